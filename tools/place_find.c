/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a place in what the peer published. One thread; moves nothing.
 */
#include "place.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common.h"

/* The buffer that the place names, or NULL after a message. Sets the offset inside it. */
static const struct ferry_segment_buffer *find(const struct ferry_place *place,
                                               const struct ferry_segment_buffer *buffers,
                                               size_t count, uint64_t *offset_out)
{
    if (!place->absolute) {
        if (place->index < count) {
            *offset_out = place->offset;
            return &buffers[place->index];
        }
        ferry_cli_say("%s: no buffer %" PRIu64 ", the segment has %zu", place->name, place->index,
                      count);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (place->addr >= buffers[i].addr && place->addr - buffers[i].addr < buffers[i].length) {
            *offset_out = place->addr - buffers[i].addr;
            return &buffers[i];
        }
    }
    ferry_cli_say("%s: address 0x%" PRIx64 " is in none of the segment's %zu buffers", place->name,
                  place->addr, count);
    return NULL;
}

bool ferry_place_resolve(struct ferry_engine *engine, uint64_t segment,
                         const struct ferry_place *place, bool writable, uint64_t *addr_out,
                         uint64_t *room_out)
{
    struct ferry_segment_buffer *buffers = NULL;
    size_t count = 0;
    uint64_t offset = 0;
    enum ferry_status status = ferry_cli_buffers(engine, segment, &buffers, &count);
    bool found = false;

    if (status != FERRY_OK) {
        ferry_cli_fail(status, place->name);
        return false;
    }

    const struct ferry_segment_buffer *buffer = find(place, buffers, count, &offset);

    if (buffer == NULL) {
        /* said */
    } else if (offset > buffer->length) {
        ferry_cli_say("%s: offset %" PRIu64 " is beyond the buffer's %" PRIu64 " bytes",
                      place->name, offset, buffer->length);
    } else if (writable && buffer->permission != FERRY_PERMISSION_READ_WRITE) {
        ferry_cli_say("%s: the buffer at 0x%" PRIx64 " is %s", place->name, buffer->addr,
                      ferry_cli_permission_name(buffer->permission));
    } else {
        *addr_out = buffer->addr + offset;
        *room_out = buffer->length - offset;
        found = true;
    }
    free(buffers);
    return found;
}
