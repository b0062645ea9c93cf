/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The path choice. Pure; any thread.
 */
#include "transport/device/choose.h"

#include "base/clock.h"

/* What a device is taken for before it was measured: 25 GB/s. */
#define ASSUMED_BYTES_PER_S 25000000000ULL

#define FAR_FACTOR   5 /* a remote NUMA node makes a path as slow as this many */
#define ERROR_FACTOR 2 /* each error lately doubles its time, up to three of them */
#define TRIED_FACTOR 16
#define MAKE_NS      (200 * FERRY_NS_PER_US) /* an endpoint has to be made first */

/* 1 + (factor - 1) * weight, in hundredths. */
static double scale(uint32_t factor, uint32_t weight)
{
    return 1.0 + (double)(factor - 1) * (double)weight / 100.0;
}

uint64_t ferry_device_score(const struct ferry_device_candidate *candidate,
                            const struct ferry_device_weights *weights, uint64_t bytes,
                            uint64_t default_bytes_per_s)
{
    double waiting = (double)candidate->inflight * (double)weights->inflight / 100.0;
    double speed = (double)default_bytes_per_s;
    double time_ns;

    if (candidate->bytes_per_s > 0 && weights->bandwidth > 0)
        speed = speed + ((double)candidate->bytes_per_s - speed) * (double)weights->bandwidth /
                            (weights->bandwidth > 100 ? (double)weights->bandwidth : 100.0);
    if (speed < 1)
        speed = 1;
    time_ns = (waiting + (double)bytes) / speed * (double)FERRY_NS_PER_S;
    if (!candidate->near)
        time_ns *= scale(FAR_FACTOR, weights->locality);
    for (uint32_t i = 0; i < candidate->errors && i < 3; i++)
        time_ns *= scale(ERROR_FACTOR, weights->history);
    if (candidate->tried)
        time_ns *= scale(TRIED_FACTOR, weights->retry);
    if (!candidate->ready)
        time_ns += (double)MAKE_NS * (double)weights->readiness / 100.0;
    return time_ns < 1e18 ? (uint64_t)time_ns : (uint64_t)1e18;
}

uint32_t ferry_device_choose(const struct ferry_device_candidate *candidates, uint32_t count,
                             const struct ferry_device_weights *weights, uint64_t bytes)
{
    uint64_t fastest = 0;
    uint64_t best_score = UINT64_MAX;
    uint32_t best = FERRY_DEVICE_NONE;

    /* One that was not measured yet is taken for the fastest that was: so it gets its turn. */
    for (uint32_t i = 0; i < count; i++) {
        if (candidates[i].usable && candidates[i].bytes_per_s > fastest)
            fastest = candidates[i].bytes_per_s;
    }
    if (fastest == 0)
        fastest = ASSUMED_BYTES_PER_S;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t score;

        if (!candidates[i].usable)
            continue;
        score = ferry_device_score(&candidates[i], weights, bytes, fastest);
        if (best == FERRY_DEVICE_NONE || score < best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}
