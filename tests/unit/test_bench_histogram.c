/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The histogram of `ferry bench` against the sorted values themselves.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "histogram.h"

#define VALUES 100000

static struct ferry_bench_histogram histogram;
static uint64_t values[VALUES];

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static void assert_near(uint64_t got, uint64_t wanted)
{
    uint64_t distance = got > wanted ? got - wanted : wanted - got;

    if (distance > wanted / 200)
        fail_msg("got %llu, wanted %llu", (unsigned long long)got, (unsigned long long)wanted);
}

static void test_bench_histogram_is_right_within_half_a_percent(void **state)
{
    static const double fractions[] = {0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.99999, 1};
    uint64_t random = 88172645463325252u;
    double sum = 0;

    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    for (uint32_t i = 0; i < VALUES; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        /* From nanoseconds to minutes, all sizes alike. */
        values[i] = (random >> 8) >> (20 + random % 36);
        sum += (double)values[i];
        ferry_bench_histogram_add(&histogram, values[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), by_size);
    for (size_t i = 0; i < sizeof(fractions) / sizeof(fractions[0]); i++) {
        uint64_t rank = (uint64_t)(fractions[i] * VALUES + 0.999999);

        assert_near(ferry_bench_histogram_at(&histogram, fractions[i]), values[rank - 1]);
    }
    assert_int_equal(histogram.count, VALUES);
    assert_int_equal(histogram.max_ns, values[VALUES - 1]);
    assert_true(ferry_bench_histogram_mean_ns(&histogram) == sum / VALUES);
}

static void test_bench_histogram_holds_every_value(void **state)
{
    static const uint64_t edges[] = {
        0, 1, 127, 128, 129, 255, 256, 257, UINT64_MAX / 2, UINT64_MAX - 1, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
        memset(&histogram, 0, sizeof(histogram));
        ferry_bench_histogram_add(&histogram, edges[i]);
        assert_near(ferry_bench_histogram_at(&histogram, 0.5), edges[i]);
        assert_true(ferry_bench_histogram_at(&histogram, 1) <= edges[i]);
    }
}

static void test_bench_histogram_of_nothing_is_zero(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    assert_int_equal(ferry_bench_histogram_at(&histogram, 0.5), 0);
    assert_true(ferry_bench_histogram_mean_ns(&histogram) == 0);
}

static void test_bench_histograms_add_up(void **state)
{
    static struct ferry_bench_histogram other;

    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    memset(&other, 0, sizeof(other));
    for (uint64_t i = 1; i <= 100; i++)
        ferry_bench_histogram_add(i <= 50 ? &histogram : &other, i);
    ferry_bench_histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 100);
    assert_int_equal(histogram.sum_ns, 5050);
    assert_int_equal(histogram.max_ns, 100);
    assert_int_equal(ferry_bench_histogram_at(&histogram, 0.5), 50);
    assert_int_equal(ferry_bench_histogram_at(&histogram, 0.99), 99);
    /* Of a hundred values, 99.9 % are all. */
    assert_int_equal(ferry_bench_histogram_at(&histogram, 0.999), 100);
    assert_int_equal(ferry_bench_histogram_at(&histogram, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_histogram_is_right_within_half_a_percent),
        cmocka_unit_test(test_bench_histogram_holds_every_value),
        cmocka_unit_test(test_bench_histogram_of_nothing_is_zero),
        cmocka_unit_test(test_bench_histograms_add_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
