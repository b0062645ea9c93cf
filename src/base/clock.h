/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monotonic time and randomness, both injectable: an engine holds one `struct ferry_clock` and one
 * `struct ferry_random`, so that the model rig can run it on a virtual clock from a seed.
 */
#ifndef FERRY_BASE_CLOCK_H
#define FERRY_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define FERRY_NS_PER_US 1000ULL
#define FERRY_NS_PER_MS 1000000ULL
#define FERRY_NS_PER_S  1000000000ULL

/* "Never": later than any deadline. */
#define FERRY_NEVER_NS UINT64_MAX

struct ferry_clock {
    uint64_t (*now_ns)(const struct ferry_clock *clock); /* CLOCK_MONOTONIC nanoseconds */
};

struct ferry_random {
    /* Fill @buf with @len unpredictable bytes. Never fails; aborts if the system has none. */
    void (*fill)(struct ferry_random *random, void *buf, size_t len);
};

/* The system's: clock_gettime(CLOCK_MONOTONIC), and RAND_bytes of libcrypto (fork-safe). */
extern const struct ferry_clock ferry_clock_system;
extern struct ferry_random ferry_random_system;

static inline uint64_t ferry_now_ns(const struct ferry_clock *clock)
{
    return clock->now_ns(clock);
}

uint64_t ferry_random_u64(struct ferry_random *random);

/* now + delta, clamped to FERRY_NEVER_NS. */
static inline uint64_t ferry_deadline_ns(uint64_t now_ns, uint64_t delta_ns)
{
    return delta_ns > FERRY_NEVER_NS - now_ns ? FERRY_NEVER_NS : now_ns + delta_ns;
}

#endif
