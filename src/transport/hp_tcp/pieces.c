/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking lists of pieces; see pieces.h. Pure functions, any thread that may look at the list.
 */
#include "transport/hp_tcp/pieces.h"

#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"

/* A place in a list, and how much is still wanted from there on. */
struct walk {
    struct hp_pieces list;
    uint32_t index;
    uint64_t skip; /* bytes of the piece that come before the place */
    uint64_t left;
};

/* What one step gives: a stretch of one piece. */
struct stretch {
    unsigned char *local;
    uint64_t remote_addr;
    uint64_t registration_id;
    uint64_t length;
};

static struct walk walk_from(struct hp_pieces list, uint64_t from, uint64_t bytes)
{
    struct walk walk = {.list = list, .left = bytes};

    walk.index = ferry_pieces_find(list.pieces, list.count, from);
    walk.skip = from - list.pieces[walk.index].offset;
    return walk;
}

static bool walk_on(struct walk *walk, struct stretch *stretch_out)
{
    const struct ferry_xfer_piece *piece = &walk->list.pieces[walk->index];
    uint64_t length;

    if (walk->left == 0)
        return false;
    FERRY_DASSERT(walk->index < walk->list.count);
    length = piece->length - walk->skip;
    if (length > walk->left)
        length = walk->left;
    *stretch_out = (struct stretch){
        .local = piece->local + walk->skip,
        .remote_addr = piece->remote_addr + walk->skip,
        .registration_id = piece->own,
        .length = length,
    };
    walk->left -= length;
    walk->index++;
    walk->skip = 0;
    return true;
}

uint32_t ferry_hp_pieces_iov(struct hp_pieces list, uint64_t from, uint64_t bytes,
                             struct iovec *iov_out, uint32_t iov_max, uint64_t *covered_out)
{
    struct walk walk = walk_from(list, from, bytes);
    struct stretch stretch;
    uint64_t covered = 0;
    uint32_t count = 0;

    while (walk_on(&walk, &stretch)) {
        struct iovec *last = count > 0 ? &iov_out[count - 1] : NULL;

        if (last != NULL && (unsigned char *)last->iov_base + last->iov_len == stretch.local) {
            last->iov_len += stretch.length;
        } else {
            if (count == iov_max)
                break;
            iov_out[count++] = (struct iovec){stretch.local, stretch.length};
        }
        covered += stretch.length;
    }
    *covered_out = covered;
    return count;
}

void ferry_hp_pieces_fill(struct hp_pieces list, uint64_t from, const uint8_t *src, uint64_t bytes)
{
    struct walk walk = walk_from(list, from, bytes);
    struct stretch stretch;

    while (walk_on(&walk, &stretch)) {
        memcpy(stretch.local, src, stretch.length);
        src += stretch.length;
    }
}

uint32_t ferry_hp_pieces_crc(struct hp_pieces list, uint64_t from, uint64_t bytes, uint32_t crc)
{
    struct walk walk = walk_from(list, from, bytes);
    struct stretch stretch;

    while (walk_on(&walk, &stretch))
        crc = ferry_crc32c(crc, stretch.local, stretch.length);
    return crc;
}

uint32_t ferry_hp_pieces_remotes(struct hp_pieces list, uint64_t from, uint64_t bytes,
                                 uint8_t *wire_out, struct ferry_scatter *first_out)
{
    struct walk walk = walk_from(list, from, bytes);
    struct ferry_scatter entry = {0};
    struct stretch stretch;
    uint32_t count = 0;

    while (walk_on(&walk, &stretch)) {
        if (count > 0 && entry.registration_id == stretch.registration_id &&
            entry.addr + entry.length == stretch.remote_addr) {
            entry.length += stretch.length;
        } else {
            entry = (struct ferry_scatter){.addr = stretch.remote_addr,
                                           .length = stretch.length,
                                           .registration_id = stretch.registration_id};
            count++;
        }
        if (wire_out != NULL)
            ferry_scatter_put(wire_out, count - 1, &entry);
    }
    if (first_out != NULL)
        *first_out = entry;
    return count;
}

struct ferry_scatter ferry_hp_pieces_span(struct hp_pieces list, uint64_t from, uint64_t bytes)
{
    struct walk walk = walk_from(list, from, bytes);
    struct stretch stretch;
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;

    while (walk_on(&walk, &stretch)) {
        /* The last byte, not the end, which may be 2^64. */
        uint64_t end = stretch.remote_addr + (stretch.length - 1);

        first = stretch.remote_addr < first ? stretch.remote_addr : first;
        last = end > last ? end : last;
    }
    return (struct ferry_scatter){.addr = first, .length = last - first + 1};
}

bool ferry_hp_pieces_small(struct hp_pieces list, uint64_t from, uint64_t bytes)
{
    uint32_t first = ferry_pieces_find(list.pieces, list.count, from);
    uint32_t last = ferry_pieces_find(list.pieces, list.count, from + bytes - 1);

    return bytes / (last - first + 1) < HP_PIECE_DIRECT_MIN;
}
