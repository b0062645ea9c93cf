/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What waits on a lane, and who is next: by rank, and within a rank in turns, chunk by chunk. The
 * rank comes from the request's priority and from whether it is small. No rank is starved: after so
 * many refs that went past others, one of those has a turn, each of their ranks in its turn.
 *
 * Threads: the holder of the baton of the lane's worker. Must not look into flows beyond that.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

/* Refs that may go past waiting ones of lower rank, in a row. */
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

/* The next rank behind @rank that has something waiting, round to the first; HP_QUEUES if none has.
 */
static uint32_t rank_behind(const struct hp_lane *lane, uint32_t rank)
{
    for (uint32_t step = 1; step <= HP_QUEUES; step++) {
        uint32_t next = (rank + step) % HP_QUEUES;

        if (!ferry_list_empty(&lane->queues[next]))
            return next;
    }
    return HP_QUEUES;
}

struct hp_ref *ferry_hp_queue_next(struct hp_lane *lane)
{
    uint32_t rank = rank_behind(lane, HP_QUEUES - 1);

    if (rank == HP_QUEUES)
        return NULL;
    if (rank_behind(lane, rank) == rank) {
        lane->passed_over = 0; /* nobody else waits */
    } else if (++lane->passed_over > PASSED_OVER_MAX) {
        uint32_t aged = rank_behind(lane, lane->aged_rank);

        lane->passed_over = 0;
        rank = aged != rank ? aged : rank_behind(lane, aged);
        lane->aged_rank = (uint8_t)rank;
    }
    return FERRY_CONTAINER_OF(lane->queues[rank].next, struct hp_ref, link);
}

void ferry_hp_queue_rotate(struct hp_lane *lane, struct hp_ref *ref)
{
    if (!ref->flow->transport->settings.isolation)
        return; /* in the order of submission: the next chunk is this one's too */
    ferry_list_remove(&ref->link);
    ferry_hp_queue_push(lane, ref);
}
