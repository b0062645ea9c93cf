/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies in fixed memory: 128 buckets to each power of two, so that a value read back is at most
 * 0.4 % off; mean and maximum are exact. One thread at a time per histogram.
 */
#ifndef FERRY_BENCH_HISTOGRAM_H
#define FERRY_BENCH_HISTOGRAM_H

#include <stdint.h>

#define FERRY_BENCH_SUB_BITS 7
#define FERRY_BENCH_BUCKETS  ((64 - FERRY_BENCH_SUB_BITS + 1) << FERRY_BENCH_SUB_BITS)

struct ferry_bench_histogram {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t buckets[FERRY_BENCH_BUCKETS];
};

void ferry_bench_histogram_add(struct ferry_bench_histogram *histogram, uint64_t value_ns);

/* Add all of @other to @histogram. */
void ferry_bench_histogram_merge(struct ferry_bench_histogram *histogram,
                                 const struct ferry_bench_histogram *other);

/* The value that @fraction (0..1) of all values do not exceed; 0 of an empty histogram. */
uint64_t ferry_bench_histogram_at(const struct ferry_bench_histogram *histogram, double fraction);

double ferry_bench_histogram_mean_ns(const struct ferry_bench_histogram *histogram);

#endif
