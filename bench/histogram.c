/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Latencies in fixed memory. A value below 128 has a bucket of its own; above that the seven bits
 * behind the leading one choose among the buckets of its power of two.
 */
#include "histogram.h"

#define SUB_COUNT (1u << FERRY_BENCH_SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (uint32_t)value;

    uint32_t power = 63u - (uint32_t)__builtin_clzll(value);
    uint32_t shift = power - FERRY_BENCH_SUB_BITS;

    return (shift + 1) * SUB_COUNT + (uint32_t)((value >> shift) & (SUB_COUNT - 1));
}

/* The middle of a bucket. */
static uint64_t value_of(uint32_t bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;

    uint32_t shift = bucket / SUB_COUNT - 1;
    uint64_t low = (uint64_t)(SUB_COUNT + bucket % SUB_COUNT) << shift;

    return low + ((UINT64_C(1) << shift) >> 1);
}

void ferry_bench_histogram_add(struct ferry_bench_histogram *histogram, uint64_t value_ns)
{
    histogram->count++;
    histogram->sum_ns += value_ns;
    if (value_ns > histogram->max_ns)
        histogram->max_ns = value_ns;
    histogram->buckets[bucket_of(value_ns)]++;
}

void ferry_bench_histogram_merge(struct ferry_bench_histogram *histogram,
                                 const struct ferry_bench_histogram *other)
{
    histogram->count += other->count;
    histogram->sum_ns += other->sum_ns;
    if (other->max_ns > histogram->max_ns)
        histogram->max_ns = other->max_ns;
    for (uint32_t i = 0; i < FERRY_BENCH_BUCKETS; i++)
        histogram->buckets[i] += other->buckets[i];
}

uint64_t ferry_bench_histogram_at(const struct ferry_bench_histogram *histogram, double fraction)
{
    double exact = fraction * (double)histogram->count;
    uint64_t rank = (uint64_t)exact;
    uint64_t seen = 0;

    /* The smallest rank that covers the fraction, counted from 1. */
    if ((double)rank < exact || rank == 0)
        rank++;
    for (uint32_t i = 0; i < FERRY_BENCH_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank) {
            uint64_t value = value_of(i);

            return value < histogram->max_ns ? value : histogram->max_ns;
        }
    }
    return histogram->max_ns;
}

double ferry_bench_histogram_mean_ns(const struct ferry_bench_histogram *histogram)
{
    return histogram->count > 0 ? (double)histogram->sum_ns / (double)histogram->count : 0;
}
