/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of requests: how many ended in which state over which transport, how long they took
 * and how many bytes they moved. A cell per thread, summed when somebody asks: as long as no more
 * than FERRY_TALLY_CELLS threads end requests, none shares a cache line with another; further ones
 * share cells, and the sums stay right.
 */
#ifndef FERRY_RUNTIME_TALLY_H
#define FERRY_RUNTIME_TALLY_H

#include <stdatomic.h>
#include <stdint.h>

#include <ferry/batch.h>
#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_TALLY_CELLS 64
#define FERRY_TALLY_OPS   2
#define FERRY_TALLY_ENDS  5 /* COMPLETED to FAILED */

/* Bucket i takes what lasted at most 2^i microseconds (1 us to 67 s), the last one all others. */
#define FERRY_TALLY_BUCKETS 28

/* The sums first: with the lowest buckets they fill the row's first line. */
struct ferry_tally_row {
    FERRY_ALIGNED_LINE _Atomic uint64_t bytes;
    _Atomic uint64_t ns;
    _Atomic uint64_t buckets[FERRY_TALLY_BUCKETS];
};

struct ferry_tally {
    /* immutable after open */
    void *memory;
    struct ferry_tally_row *rows; /* by cell, transport, operation, end */
    uint32_t transport_count;
};

struct ferry_tally_sum {
    uint64_t count; /* of all buckets */
    uint64_t bytes; /* of the requests' lengths */
    uint64_t ns;
    uint64_t buckets[FERRY_TALLY_BUCKETS];
};

/* @transport_count > 0. ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_tally_open(struct ferry_tally *tally,
                                                 uint32_t transport_count);
/* Accepts a zeroed one. */
void ferry_tally_close(struct ferry_tally *tally);

/* Any thread, wait-free: one request of @bytes ended in @state, an end, after @ns. */
void ferry_tally_add(struct ferry_tally *tally, uint32_t transport, enum ferry_opcode opcode,
                     enum ferry_task_state state, uint64_t bytes, uint64_t ns);

/* Any thread. Each number is right for some moment during the call. */
struct ferry_tally_sum ferry_tally_sum(const struct ferry_tally *tally, uint32_t transport,
                                       enum ferry_opcode opcode, enum ferry_task_state state);

/* The bucket of a duration. */
uint32_t ferry_tally_bucket(uint64_t ns);

#endif
