/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts ranges of files into pieces; see slice.h. Pure; any thread.
 */
#include "transport/file/slice.h"

#include "base/assert.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct ferry_file_cut ferry_file_cut(const struct ferry_file_grain *grain, uint64_t offset,
                                     uint64_t length, uint64_t memory)
{
    struct ferry_file_cut cut = {.length = min_u64(length, grain->slice_bytes),
                                 .way = FERRY_FILE_BUFFERED};
    uint64_t align = grain->offset_align;
    uint64_t head;

    FERRY_ASSERT(length > 0);
    if (align == 0)
        return cut;
    FERRY_ASSERT((align & (align - 1)) == 0);
    FERRY_ASSERT(grain->slice_bytes % align == 0);
    head = (align - offset % align) % align;
    if (length < FERRY_FILE_SMALL_BYTES && (head != 0 || length % align != 0))
        return cut;
    if (head != 0 || length < align) {
        cut.length = head != 0 ? min_u64(head, length) : length;
        return cut;
    }
    cut.length = min_u64(length - length % align, grain->slice_bytes);
    if (memory % grain->memory_align == 0)
        cut.way = FERRY_FILE_DIRECT;
    else if (grain->bounce)
        cut.way = FERRY_FILE_BOUNCE;
    return cut;
}
