/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of pieces as both sides of hp_tcp use them: where bytes [from, from + bytes) of the whole
 * lie, as an array for a vectored call, by copying, and as the list of a frame. Pure functions on
 * the holder of the list; nothing here may allocate or block.
 */
#ifndef FERRY_HP_TCP_PIECES_H
#define FERRY_HP_TCP_PIECES_H

#include <stdint.h>
#include <sys/uio.h>

#include "transport/transport.h"
#include "wire/frame.h"

/* The longest header with a list. */
#define HP_LIST_HEADER_MAX (FERRY_FRAME_LIST_OFFSET + FERRY_SCATTER_COUNT_MAX * FERRY_SCATTER_SIZE)

/* Pieces shorter than this, in the mean, are received into staging and copied: a vectored call
 * costs more for each than the copy. */
#define HP_PIECE_DIRECT_MIN 1024u

struct hp_pieces {
    const struct ferry_xfer_piece *pieces;
    uint32_t count;
};

/*
 * Describe at most @iov_max stretches of local memory from byte @from on, up to @bytes; neighbours
 * become one. Returns how many entries were filled; *covered_out is the bytes they hold, less than
 * @bytes if there was no room for more.
 */
uint32_t ferry_hp_pieces_iov(struct hp_pieces list, uint64_t from, uint64_t bytes,
                             struct iovec *iov_out, uint32_t iov_max, uint64_t *covered_out);

/* Copy @bytes at @src to where the bytes from @from on belong. */
void ferry_hp_pieces_fill(struct hp_pieces list, uint64_t from, const uint8_t *src, uint64_t bytes);

/*
 * The remote ranges of the bytes, in wire form at @wire_out, or only counted if that is NULL. A
 * piece's own word is its registration id. Neighbours in one registration become one entry, whose
 * values go to @first_out if there is just that one; may be NULL.
 */
uint32_t ferry_hp_pieces_remotes(struct hp_pieces list, uint64_t from, uint64_t bytes,
                                 uint8_t *wire_out, struct ferry_scatter *first_out);

/* The checksum of local memory from byte @from on, behind bytes whose checksum is @crc. */
uint32_t ferry_hp_pieces_crc(struct hp_pieces list, uint64_t from, uint64_t bytes, uint32_t crc);

/* The smallest range of addresses that holds the remote ranges of the bytes. */
struct ferry_scatter ferry_hp_pieces_span(struct hp_pieces list, uint64_t from, uint64_t bytes);

/* The bytes are better received into staging and copied. */
bool ferry_hp_pieces_small(struct hp_pieces list, uint64_t from, uint64_t bytes);

#endif
