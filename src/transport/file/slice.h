/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a range of a file is cut into pieces, each of which is one input or output operation.
 *
 * Direct I/O wants the file offset, the length and the memory address to be multiples of what the
 * file system says. A head or a tail that is not goes through the page cache, which changes no
 * neighbouring byte and never makes a file longer; a middle whose memory is not aligned goes
 * through an aligned bounce buffer. Pure functions, any thread.
 */
#ifndef FERRY_TRANSPORT_FILE_SLICE_H
#define FERRY_TRANSPORT_FILE_SLICE_H

#include <stdbool.h>
#include <stdint.h>

/* The way a piece takes. */
enum ferry_file_way {
    FERRY_FILE_DIRECT = 0, /* past the page cache, straight from or into the caller's memory */
    FERRY_FILE_BOUNCE,     /* past the page cache, through an aligned buffer of ours */
    FERRY_FILE_BUFFERED,   /* through the page cache */
    FERRY_FILE_FOREIGN,    /* handed to cuFile, which may go direct */
    FERRY_FILE_COMPAT,     /* handed to cuFile, which copies (compatibility mode) */
    FERRY_FILE_WAY_COUNT,
};

/* Ranges that are shorter and not aligned go through the page cache as a whole. */
#define FERRY_FILE_SMALL_BYTES 65536u

struct ferry_file_grain {
    uint32_t offset_align; /* power of two, of file offset and length; 0: no direct I/O */
    uint32_t memory_align; /* power of two */
    uint64_t slice_bytes;  /* longest piece; a multiple of offset_align if that is not 0 */
    bool bounce;           /* there is a bounce buffer of slice_bytes */
};

struct ferry_file_cut {
    uint64_t length; /* of the first piece, 1..length asked for */
    enum ferry_file_way way;
};

/* The first piece of @length > 0 bytes at @offset of a file, from or into @memory. */
struct ferry_file_cut ferry_file_cut(const struct ferry_file_grain *grain, uint64_t offset,
                                     uint64_t length, uint64_t memory);

#endif
