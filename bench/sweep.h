/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of one run: all combinations of block, batch and threads, and whether each fits into
 * the memory that there is. Pure; one thread.
 */
#ifndef FERRY_BENCH_SWEEP_H
#define FERRY_BENCH_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "options.h"

struct ferry_bench_case {
    uint64_t block;
    uint32_t batch;
    uint32_t threads;
    uint32_t scatter; /* pieces of a block; 0: it is one range */
};

/* Bytes between two pieces, on both sides, so that no two are neighbours. */
#define FERRY_BENCH_GAP 64u

/* What a block takes at the target: its bytes, and a gap behind each piece. */
static inline uint64_t ferry_bench_case_span(const struct ferry_bench_case *c)
{
    return c->block + (uint64_t)c->scatter * FERRY_BENCH_GAP;
}

/* Bytes at the target: span x batch x threads; false if they do not fit into 64 bits. */
bool ferry_bench_case_bytes(const struct ferry_bench_case *c, uint64_t *bytes_out);

/* "block 4096 x batch 2 x threads 1 = 8192 bytes". */
void ferry_bench_case_text(const struct ferry_bench_case *c, char *buf, size_t size);

/* Whether the options name one case only. */
bool ferry_bench_is_single(const struct ferry_bench_options *options);

/*
 * The cases one after the other: block grows fastest, then batch, then threads. Start with *c all
 * zero; false at the end.
 */
bool ferry_bench_case_next(const struct ferry_bench_options *options, struct ferry_bench_case *c);

/* How much memory there is, and who says so. */
struct ferry_bench_limit {
    uint64_t bytes;
    uint64_t said_bytes; /* an earlier limit: larger cases have been mentioned; else UINT64_MAX */
    const char *name;
};

/*
 * Bytes of the largest case within the limit; 0 if there is none. What does not fit is said on
 * standard error, as a refusal if there is one case only, else as skipped.
 */
uint64_t ferry_bench_sweep_bytes(const struct ferry_bench_options *options,
                                 const struct ferry_bench_limit *limit);

#endif
