/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells are added to by relaxed atomic operations: a cell's lines stay in the cache of the core
 * that uses it, so they cost no traffic between cores, and two threads that happen to have the same
 * cell lose nothing.
 */
#include "runtime/tally.h"

#include <assert.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"

static_assert(FERRY_TASK_FAILED - FERRY_TASK_COMPLETED + 1 == FERRY_TALLY_ENDS,
              "an end state has no row");
static_assert(FERRY_READ + FERRY_WRITE == 1, "an operation has no row");

static _Atomic uint32_t threads_seen;        /* that ended a request, of all engines */
static _Thread_local uint32_t thread_number; /* 0: not one of them yet */

static uint32_t my_cell(void)
{
    if (FERRY_UNLIKELY(thread_number == 0))
        thread_number = atomic_fetch_add_explicit(&threads_seen, 1, memory_order_relaxed) + 1;
    return thread_number % FERRY_TALLY_CELLS;
}

static size_t row_index(const struct ferry_tally *tally, uint32_t cell, uint32_t transport,
                        enum ferry_opcode opcode, enum ferry_task_state state)
{
    size_t row = (size_t)cell * tally->transport_count + transport;

    row = row * FERRY_TALLY_OPS + (uint32_t)opcode;
    return row * FERRY_TALLY_ENDS + (uint32_t)(state - FERRY_TASK_COMPLETED);
}

enum ferry_status ferry_tally_open(struct ferry_tally *tally, uint32_t transport_count)
{
    size_t rows = (size_t)FERRY_TALLY_CELLS * transport_count * FERRY_TALLY_OPS * FERRY_TALLY_ENDS;

    FERRY_ASSERT(transport_count > 0);
    /* calloc() of so much is fresh pages, which cost nothing before a thread uses its cell. */
    tally->memory = calloc(1, rows * sizeof(struct ferry_tally_row) + FERRY_CACHE_LINE);
    if (tally->memory == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: out of memory");
    tally->rows = (struct ferry_tally_row *)(((uintptr_t)tally->memory + FERRY_CACHE_LINE - 1) &
                                             ~(uintptr_t)(FERRY_CACHE_LINE - 1));
    tally->transport_count = transport_count;
    return FERRY_OK;
}

void ferry_tally_close(struct ferry_tally *tally)
{
    free(tally->memory);
    *tally = (struct ferry_tally){0};
}

uint32_t ferry_tally_bucket(uint64_t ns)
{
    uint64_t above;
    uint32_t bucket;

    if (ns <= FERRY_NS_PER_US)
        return 0;
    above = (ns - 1) / FERRY_NS_PER_US;
    bucket = 64 - (uint32_t)__builtin_clzll(above);
    return bucket < FERRY_TALLY_BUCKETS ? bucket : FERRY_TALLY_BUCKETS - 1;
}

void ferry_tally_add(struct ferry_tally *tally, uint32_t transport, enum ferry_opcode opcode,
                     enum ferry_task_state state, uint64_t bytes, uint64_t ns)
{
    struct ferry_tally_row *row =
        &tally->rows[row_index(tally, my_cell(), transport, opcode, state)];

    /* Relaxed: independent sums; whoever reads them after the end was told sees them by that. */
    atomic_fetch_add_explicit(&row->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&row->ns, ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&row->buckets[ferry_tally_bucket(ns)], 1, memory_order_relaxed);
}

struct ferry_tally_sum ferry_tally_sum(const struct ferry_tally *tally, uint32_t transport,
                                       enum ferry_opcode opcode, enum ferry_task_state state)
{
    struct ferry_tally_sum sum = {0};

    for (uint32_t cell = 0; cell < FERRY_TALLY_CELLS; cell++) {
        const struct ferry_tally_row *row =
            &tally->rows[row_index(tally, cell, transport, opcode, state)];

        sum.bytes += atomic_load_explicit(&row->bytes, memory_order_relaxed);
        sum.ns += atomic_load_explicit(&row->ns, memory_order_relaxed);
        for (uint32_t i = 0; i < FERRY_TALLY_BUCKETS; i++) {
            uint64_t count = atomic_load_explicit(&row->buckets[i], memory_order_relaxed);

            sum.buckets[i] += count;
            sum.count += count;
        }
    }
    return sum;
}
