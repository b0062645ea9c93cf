/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much may be in flight somewhere at once, in bytes and in requests: of a local device, of an
 * endpoint, of a transport. All or nothing, exact, and closed for good when it would go below zero,
 * since live work must never be counted as done. Any thread; atomics only.
 */
#ifndef FERRY_TRANSPORT_DEVICE_QUOTA_H
#define FERRY_TRANSPORT_DEVICE_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ferry_device_quota {
    /* immutable after init */
    uint64_t bytes_max;
    uint32_t requests_max;
    /* any thread, atomic */
    _Atomic uint64_t bytes;
    _Atomic uint32_t requests;
    _Atomic uint64_t bytes_peak;
    _Atomic uint64_t refusals;
    _Atomic bool broken;
};

void ferry_device_quota_init(struct ferry_device_quota *quota, uint64_t bytes_max,
                             uint32_t requests_max);
/* One request always passes where nothing is in flight, however long it is. */
bool ferry_device_quota_take(struct ferry_device_quota *quota, uint32_t requests, uint64_t bytes);
void ferry_device_quota_give(struct ferry_device_quota *quota, uint32_t requests, uint64_t bytes);
/* Whether a take would pass now; for choosing, the take decides. */
bool ferry_device_quota_has_room(const struct ferry_device_quota *quota, uint64_t bytes);

static inline uint64_t ferry_device_quota_bytes(const struct ferry_device_quota *quota)
{
    return atomic_load_explicit(&quota->bytes, memory_order_relaxed);
}

#endif
