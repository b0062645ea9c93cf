/* SPDX-License-Identifier: Apache-2.0 */
/*
 * futex(2) on private words with absolute monotonic deadlines. Any thread; no state. The deadline
 * is absolute so that a loop over spurious wake-ups cannot stretch it.
 */
#include "base/futex.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool ferry_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / FERRY_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % FERRY_NS_PER_S),
    };
    /* Unlike FUTEX_WAIT, the bitset form takes an absolute time on CLOCK_MONOTONIC. */
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                      deadline_ns == FERRY_NEVER_NS ? NULL : &deadline, NULL,
                      FUTEX_BITSET_MATCH_ANY);

    return rc == 0 || errno != ETIMEDOUT;
}

void ferry_futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, NULL, NULL, 0);
}
