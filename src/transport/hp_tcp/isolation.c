/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lanes small and large requests share. While large ones run, small ones have a lane to
 * themselves, so that none of them waits for what a large one has in a window; otherwise all lanes
 * are everybody's. A peer whose rails have one lane each has none to spare: there small requests go
 * between the chunks of large ones.
 *
 * The lane is free of large requests as long as small ones keep coming. There is no clock in it:
 * each small request that meets large ones buys the lane for the next WARM_MIB of them.
 *
 * Threads: any; a small request costs two loads, and a store where large ones run.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

#define WARM_MIB 1024u

void ferry_hp_isolation_init(struct hp_peer *peer)
{
    bool spare = peer->lane_count > peer->rail_count;

    if (spare && peer->transport->settings.isolation)
        peer->isolation.lane = &peer->lanes[peer->lane_count - 1];
}

static uint32_t mib_of(const struct hp_flow *flow)
{
    uint64_t mib = 1 + (flow->xfer->length >> 20);

    return mib < WARM_MIB ? (uint32_t)mib : WARM_MIB;
}

/* A race of two large ones may take the same MiB twice: the lane is theirs a little sooner. */
static bool still_warm(struct hp_isolation *isolation, const struct hp_flow *flow)
{
    uint32_t warm = atomic_load_explicit(&isolation->warm_mib, memory_order_relaxed);
    uint32_t mib = mib_of(flow);

    if (warm == 0)
        return false;
    atomic_store_explicit(&isolation->warm_mib, warm > mib ? warm - mib : 0, memory_order_relaxed);
    return true;
}

uint32_t ferry_hp_isolation_begin(struct hp_peer *peer, const struct hp_flow *flow)
{
    struct hp_isolation *isolation = &peer->isolation;

    if (isolation->lane == NULL || flow->small)
        return peer->lane_count;
    atomic_fetch_add_explicit(&isolation->bulk, 1, memory_order_relaxed);
    return still_warm(isolation, flow) ? peer->lane_count - 1 : peer->lane_count;
}

struct hp_lane *ferry_hp_isolation_lane(struct hp_peer *peer, const struct hp_flow *flow)
{
    struct hp_isolation *isolation = &peer->isolation;

    if (isolation->lane == NULL || !flow->small ||
        atomic_load_explicit(&isolation->bulk, memory_order_relaxed) == 0)
        return NULL;
    if (atomic_load_explicit(&isolation->warm_mib, memory_order_relaxed) < WARM_MIB)
        atomic_store_explicit(&isolation->warm_mib, WARM_MIB, memory_order_relaxed);
    return ferry_hp_lane_avoided(isolation->lane) ? NULL : isolation->lane;
}

void ferry_hp_isolation_end(struct hp_peer *peer, const struct hp_flow *flow)
{
    if (peer->isolation.lane == NULL || flow->small)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&peer->isolation.bulk, 1, memory_order_relaxed);
    FERRY_ASSERT(before > 0);
}
