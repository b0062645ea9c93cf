/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report B16: ten thousand buffers, sixty rounds. Times are printed; only growth is judged,
 * and generously, since other programs share the machine.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

#include "test_memory_support.h"

#define BUFFERS 10000u
#define ROUNDS  60u
#define BASE    UINT64_C(0x100000000)
#define SIZE    (64 * KIB)

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

static uint64_t median(const uint64_t *values, uint32_t count)
{
    uint64_t copy[ROUNDS];

    memcpy(copy, values, count * sizeof(copy[0]));
    qsort(copy, count, sizeof(copy[0]), compare);
    return copy[count / 2];
}

/* Present in sanitizer builds alone: the one holds freed memory back, the other is slow, on
 * purpose. */
extern void __asan_init(void) __attribute__((weak));
extern void __tsan_init(void) __attribute__((weak));

static uint64_t resident_bytes(void)
{
    unsigned long size = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (uint64_t)resident * 4096;
}

struct plan {
    struct ferry_registry_spec specs[BUFFERS];
    struct ferry_registry_range ranges[BUFFERS];
};

/* Addresses in an order that is neither ascending nor descending. */
static struct plan *plan_create(void)
{
    struct plan *plan = calloc(1, sizeof(*plan));

    assert_non_null(plan);
    for (uint64_t i = 0; i < BUFFERS; i++) {
        uint64_t addr = BASE + (i * 7919 % BUFFERS) * 2 * SIZE;

        plan->specs[i] = spec(addr, SIZE);
        plan->ranges[i] = (struct ferry_registry_range){addr, SIZE};
    }
    return plan;
}

static uint64_t round_ns(struct ferry_registry *registry, struct ferry_registry_reader *reader,
                         const struct plan *plan, bool batch)
{
    uint64_t began = test_now_ns();

    for (uint32_t i = 0; i < (batch ? 1 : BUFFERS); i++)
        assert_ok(ferry_registry_register(registry, &plan->specs[i], batch ? BUFFERS : 1));
    assert_ok(probe(reader, plan->ranges[3].addr, SIZE, 0, FERRY_ACCESS_LOCAL));
    for (uint32_t i = 0; i < (batch ? 1 : BUFFERS); i++)
        assert_ok(unregister_list(registry, &plan->ranges[i], batch ? BUFFERS : 1));
    return test_now_ns() - began;
}

static void rounds(bool batch, uint32_t count)
{
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
    struct plan *plan = plan_create();
    uint64_t times[ROUNDS];
    uint64_t resident_early = 0;

    rig_init(&registry);
    ferry_registry_reader_init(&reader, &registry);
    for (uint32_t i = 0; i < count; i++) {
        times[i] = round_ns(&registry, &reader, plan, batch);
        if (i == 4)
            resident_early = resident_bytes();
    }
    uint64_t early = median(&times[1], 5);
    uint64_t late = median(&times[count - 5], 5);
    uint64_t resident_late = resident_bytes();
    print_message("%s: early round %.2f ms, late round %.2f ms, resident %+.2f MiB\n",
                  batch ? "batch" : "one by one", (double)early / 1e6, (double)late / 1e6,
                  ((double)resident_late - (double)resident_early) / (double)MIB);
    assert_true(late < 4 * early + 20 * FERRY_NS_PER_MS);
    if (__asan_init == NULL)
        assert_true(resident_late < resident_early + 8 * MIB);
    assert_int_equal(ferry_registry_count(&registry), 0);
    ferry_registry_reader_fini(&reader);
    assert_int_equal(registry.id_count, 0);
    ferry_registry_fini(&registry);
    free(plan);
}

static void test_batch_rounds_do_not_get_slower(void **state)
{
    rounds(true, __tsan_init == NULL ? ROUNDS : 7);
}

static void test_single_rounds_do_not_get_slower(void **state)
{
    rounds(false, __tsan_init == NULL ? 12 : 7);
}

static double lookup_ns(const struct plan *plan, uint32_t buffers)
{
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
    uint32_t lookups = __tsan_init == NULL ? 1000000 : 100000;

    rig_init(&registry);
    ferry_registry_reader_init(&reader, &registry);
    assert_ok(ferry_registry_register(&registry, plan->specs, buffers));
    assert_ok(probe(&reader, plan->ranges[0].addr, 1, 0, FERRY_ACCESS_LOCAL));
    uint64_t began = test_now_ns();
    for (uint32_t i = 0; i < lookups; i++) {
        uint64_t addr = plan->ranges[i * 48271u % buffers].addr;

        if (probe(&reader, addr + 4096, 4096, 0, FERRY_ACCESS_LOCAL) != FERRY_OK)
            fail_msg("look-up %u failed", i);
    }
    double each = (double)(test_now_ns() - began) / lookups;
    ferry_registry_reader_fini(&reader);
    ferry_registry_fini(&registry);
    return each;
}

static void test_lookups_grow_like_the_logarithm(void **state)
{
    struct plan *plan = plan_create();
    double few = lookup_ns(plan, 10);
    double many = lookup_ns(plan, BUFFERS);

    print_message("lease and release: %.1f ns of 10 buffers, %.1f ns of %u\n", few, many, BUFFERS);
    /* A linear search would take about a thousand times as long. */
    assert_true(many < 40 * few + 100);
    free(plan);
}

/* The worst mixture: every registration is followed by a look-up, so each builds a snapshot. */
static void test_alternating_registration_and_lookup_stays_cheap(void **state)
{
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
    struct plan *plan = plan_create();

    rig_init(&registry);
    ferry_registry_reader_init(&reader, &registry);
    uint64_t began = test_now_ns();
    uint32_t count = __tsan_init == NULL ? BUFFERS : BUFFERS / 10;
    for (uint32_t i = 0; i < count; i++) {
        assert_ok(ferry_registry_register(&registry, &plan->specs[i], 1));
        assert_ok(probe(&reader, plan->ranges[i].addr, SIZE, 0, FERRY_ACCESS_LOCAL));
    }
    print_message("register and look up, %u times: %.2f us each\n", count,
                  (double)(test_now_ns() - began) / 1e3 / count);
    ferry_registry_reader_fini(&reader);
    ferry_registry_fini(&registry);
    free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_rounds_do_not_get_slower),
        cmocka_unit_test(test_single_rounds_do_not_get_slower),
        cmocka_unit_test(test_lookups_grow_like_the_logarithm),
        cmocka_unit_test(test_alternating_registration_and_lookup_stays_cheap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
