/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits on a lane, and who is next: by rank, and within a rank in turns, chunk by chunk. The
 * rank comes from the request's priority and from whether it is small. Low rank is never starved:
 * after so many refs that went past it, the lowest has a turn.
 *
 * Threads: the holder of the baton of the lane's worker. Must not look into flows beyond that.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

/* Refs that may go past a waiting one of lower rank, in a row. */
#define PASSED_OVER_MAX 32u

/* Lower goes first. Without isolation all wait in one line. */
static uint32_t rank_of(const struct hp_flow *flow)
{
    static const uint8_t ranks[][2] = {
        /* bulk, small */
        [FERRY_PRIORITY_HIGH] = {2, 0},
        [FERRY_PRIORITY_MEDIUM] = {3, 1},
        [FERRY_PRIORITY_LOW] = {5, 4},
    };

    if (!flow->transport->settings.isolation)
        return 0;
    FERRY_DASSERT(flow->xfer->priority < FERRY_ARRAY_LEN(ranks));
    return ranks[flow->xfer->priority][flow->small ? 1 : 0];
}

void ferry_hp_queue_init(struct hp_lane *lane)
{
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        ferry_list_init(&lane->queues[rank]);
}

void ferry_hp_queue_push(struct hp_lane *lane, struct hp_ref *ref)
{
    ferry_list_push_back(&lane->queues[rank_of(ref->flow)], &ref->link);
}

struct hp_ref *ferry_hp_queue_next(struct hp_lane *lane)
{
    uint32_t first = HP_QUEUES;
    uint32_t last = 0;

    for (uint32_t rank = 0; rank < HP_QUEUES; rank++) {
        if (ferry_list_empty(&lane->queues[rank]))
            continue;
        if (first == HP_QUEUES)
            first = rank;
        last = rank;
    }
    if (first == HP_QUEUES)
        return NULL;
    if (first == last) {
        lane->passed_over = 0;
    } else if (++lane->passed_over > PASSED_OVER_MAX) {
        lane->passed_over = 0;
        first = last;
    }
    return FERRY_CONTAINER_OF(lane->queues[first].next, struct hp_ref, link);
}

void ferry_hp_queue_rotate(struct hp_lane *lane, struct hp_ref *ref)
{
    if (!ref->flow->transport->settings.isolation)
        return; /* in the order of submission: the next chunk is this one's too */
    ferry_list_remove(&ref->link);
    ferry_hp_queue_push(lane, ref);
}
