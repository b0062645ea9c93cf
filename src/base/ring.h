/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded multi-producer, multi-consumer ring of pointers (Vyukov's bounded queue: one sequence
 * number per cell). push fails when full; nothing blocks; any thread. A heap object that contains a
 * ring needs aligned_alloc(FERRY_CACHE_LINE, ...): its ends live on cache lines of their own.
 */
#ifndef FERRY_BASE_RING_H
#define FERRY_BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

struct ferry_ring_cell;

struct ferry_ring {
    struct ferry_ring_cell *cells;
    uint64_t mask;
    FERRY_ALIGNED_LINE _Atomic uint64_t tail; /* producers */
    FERRY_ALIGNED_LINE _Atomic uint64_t head; /* consumers */
};

/* @capacity is rounded up to a power of two, 2..2^30. ERR_NO_MEMORY. */
enum ferry_status ferry_ring_init(struct ferry_ring *ring, uint32_t capacity);
void ferry_ring_fini(struct ferry_ring *ring);
bool ferry_ring_push(struct ferry_ring *ring, void *item);
void *ferry_ring_pop(struct ferry_ring *ring); /* NULL when empty */

#endif
