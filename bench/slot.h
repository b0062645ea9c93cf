/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot is one of the requests that a thread keeps outstanding: its block of local and of remote
 * memory, what it does next, and what its data must be. The thread's own.
 *
 * What an operation does without a check, and with one (in brackets what is not measured):
 *
 *   read         READ READ ...           [WRITE] READ compare ...
 *   write        WRITE WRITE ...         WRITE [READ compare] ...
 *   mix          WRITE READ ...          WRITE READ compare ...
 *   write_seed   WRITE of what follows from the remote address
 *   read_verify  READ and compare with that
 *
 * With pieces a block is scattered on both sides, in another order at the target. What is in
 * brackets above is then one range, gaps included: a read's WRITE puts the pieces and known gaps
 * there, a write's READ looks at the gaps of the target, and one more WRITE makes them known first.
 *
 * Each WRITE of a check has a seed of its own, and the memory of a READ is first filled with bytes
 * that all differ from what must arrive: data that is old, shifted or missing is seen.
 */
#ifndef FERRY_BENCH_SLOT_H
#define FERRY_BENCH_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

/* Bytes before and behind the local block that no transfer may touch. */
#define FERRY_BENCH_FENCE 4096u

/* What all slots of a case share. */
struct ferry_bench_traffic {
    enum ferry_bench_op op;
    bool check;
    uint64_t seed;
    uint64_t block;
    uint32_t scatter; /* pieces of a block; 0: it is one range */
};

struct ferry_bench_slot {
    /* constant */
    struct ferry_piece *pieces; /* room for traffic->scatter of them, or NULL */
    unsigned char *local;
    uint64_t remote; /* address in the target */
    uint64_t stream; /* tells its data from that of other slots */
    /* what it does now */
    enum ferry_opcode step;
    bool whole;    /* pieces: the request now is one range, gaps included */
    bool prepared; /* the local memory is ready for it */
    uint64_t seed;
    uint64_t write_count;
    uint64_t submit_ns;
    uint64_t owed_bytes; /* measured, and not yet compared */
};

/* Where data is not what it must be. */
struct ferry_bench_difference {
    int64_t offset; /* from the block's first byte; outside of the block: a fence */
    bool gap;       /* behind the piece that ends there */
    unsigned char expected;
    unsigned char got;
    uint64_t seed;
};

/* Whether data is compared at all. */
bool ferry_bench_checks(const struct ferry_bench_traffic *traffic);

/* Bytes of local memory of a slot, fences included; false on overflow. */
bool ferry_bench_slot_stride(const struct ferry_bench_traffic *traffic, uint64_t *stride_out);

/* Bytes from the first to the last of a block's memory, gaps included. */
uint64_t ferry_bench_span(const struct ferry_bench_traffic *traffic);

/* Given: remote, stream and pieces are set. @area is the slot's memory; touches all of it. */
void ferry_bench_slot_init(struct ferry_bench_slot *slot, const struct ferry_bench_traffic *traffic,
                           unsigned char *area);

/* Make the local memory ready for the next request, once. */
void ferry_bench_slot_prepare(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic);

/* What the request that comes next moves. */
void ferry_bench_slot_request(const struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic,
                              struct ferry_request *request_out);
/* Its bytes. */
uint64_t ferry_bench_slot_bytes(const struct ferry_bench_slot *slot,
                                const struct ferry_bench_traffic *traffic);

/* Whether the request now running is one that is measured. */
bool ferry_bench_slot_measured(const struct ferry_bench_slot *slot,
                               const struct ferry_bench_traffic *traffic);

/* Compare what a READ brought, fences included; true if all is right. */
bool ferry_bench_slot_compare(const struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic,
                              struct ferry_bench_difference *difference_out);

/* The request has completed: choose the next one. */
void ferry_bench_slot_advance(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic);

#endif
