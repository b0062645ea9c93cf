/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In-flight quotas. Any thread, two atomics, no lock.
 */
#include "transport/device/quota.h"

#include "base/log.h"

void ferry_device_quota_init(struct ferry_device_quota *quota, uint64_t bytes_max,
                             uint32_t requests_max)
{
    *quota = (struct ferry_device_quota){.bytes_max = bytes_max, .requests_max = requests_max};
}

static bool fits(const struct ferry_device_quota *quota, uint64_t held, uint64_t bytes)
{
    if (held == 0)
        return true;
    return held <= quota->bytes_max && bytes <= quota->bytes_max - held;
}

bool ferry_device_quota_has_room(const struct ferry_device_quota *quota, uint64_t bytes)
{
    uint32_t requests = atomic_load_explicit(&quota->requests, memory_order_relaxed);

    return requests < quota->requests_max && fits(quota, ferry_device_quota_bytes(quota), bytes) &&
           !atomic_load_explicit(&quota->broken, memory_order_relaxed);
}

bool ferry_device_quota_take(struct ferry_device_quota *quota, uint32_t requests, uint64_t bytes)
{
    uint64_t peak = atomic_load_explicit(&quota->bytes_peak, memory_order_relaxed);
    /* Add first, look afterwards: of two that race both may be refused, never both pass. */
    uint32_t requests_before = atomic_fetch_add(&quota->requests, requests);
    uint64_t bytes_before = atomic_fetch_add(&quota->bytes, bytes);

    if (requests <= quota->requests_max && requests_before <= quota->requests_max - requests &&
        fits(quota, bytes_before, bytes) && !atomic_load(&quota->broken)) {
        while (bytes_before + bytes > peak && !atomic_compare_exchange_weak_explicit(
                                                  &quota->bytes_peak, &peak, bytes_before + bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
            continue;
        return true;
    }
    atomic_fetch_sub(&quota->requests, requests);
    atomic_fetch_sub(&quota->bytes, bytes);
    atomic_fetch_add_explicit(&quota->refusals, 1, memory_order_relaxed);
    return false;
}

static void defect(struct ferry_device_quota *quota, const char *what)
{
    if (!atomic_exchange(&quota->broken, true))
        ferry_error("device", "a quota is closed for good: its %s would go below zero", what);
}

void ferry_device_quota_give(struct ferry_device_quota *quota, uint32_t requests, uint64_t bytes)
{
    uint32_t requests_now = atomic_load(&quota->requests);
    uint64_t bytes_now = atomic_load(&quota->bytes);

    do {
        if (requests_now < requests) {
            defect(quota, "requests");
            return;
        }
    } while (
        !atomic_compare_exchange_weak(&quota->requests, &requests_now, requests_now - requests));
    do {
        if (bytes_now < bytes) {
            defect(quota, "bytes");
            return;
        }
    } while (!atomic_compare_exchange_weak(&quota->bytes, &bytes_now, bytes_now - bytes));
}
