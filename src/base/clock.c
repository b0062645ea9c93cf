/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system's monotonic clock and randomness behind the injectable tables. Any thread; no state of
 * its own. A system without either cannot run an engine safely, so both abort instead of failing.
 */
#include "base/clock.h"

#include "base/assert.h"

#include <limits.h>
#include <openssl/rand.h>
#include <time.h>

static uint64_t system_now_ns(const struct ferry_clock *clock)
{
    struct timespec now;

    int rc = clock_gettime(CLOCK_MONOTONIC, &now);

    FERRY_ASSERT(rc == 0);
    return (uint64_t)now.tv_sec * FERRY_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void system_fill(struct ferry_random *random, void *buf, size_t len)
{
    unsigned char *at = buf;

    while (len > 0) {
        int step = len > INT_MAX ? INT_MAX : (int)len;
        int rc = RAND_bytes(at, step);

        FERRY_ASSERT(rc == 1);
        at += step;
        len -= (size_t)step;
    }
}

const struct ferry_clock ferry_clock_system = {.now_ns = system_now_ns};
struct ferry_random ferry_random_system = {.fill = system_fill};

uint64_t ferry_random_u64(struct ferry_random *random)
{
    uint64_t value = 0;

    random->fill(random, &value, sizeof(value));
    return value;
}
