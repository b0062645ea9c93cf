/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleep on a 32-bit word until it changes or a deadline passes. Private futexes: within one
 * process.
 */
#ifndef FERRY_BASE_FUTEX_H
#define FERRY_BASE_FUTEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Sleep while *@word == @expected, at most until @deadline_ns (CLOCK_MONOTONIC, FERRY_NEVER_NS for
 * no limit). Returns false if the deadline passed. Wakes up spuriously; the caller loops.
 */
bool ferry_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);

void ferry_futex_wake(_Atomic uint32_t *word, int count);

#endif
