/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The narrow windows of the lease protocol, hit on purpose: one thread takes and gives leases
 * without a pause while another hides, closes or waits. Each round is a few microseconds, so that a
 * window of a few instructions is met many times. Bounded by rounds and by time.
 */
#include "support/test.h"

#include <pthread.h>

#include "memory/registry_private.h"
#include "test_memory_support.h"

#define ADDR       UINT64_C(0x60000000)
#define LEN        UINT64_C(4096)
#define ROUNDS_MAX 20000u
#define TIME_MS    4000u
#define LOOKS      400u

struct rig {
    struct ferry_registry registry;
    _Atomic bool stop;
    _Atomic uint64_t granted;
    _Atomic bool hold_on; /* a lease is kept until its range is hidden */
};

static void *lease_main(void *argument)
{
    struct rig *rig = argument;
    struct ferry_registry_reader reader;

    ferry_registry_reader_init(&reader, &rig->registry);
    while (!atomic_load_explicit(&rig->stop, memory_order_relaxed)) {
        struct ferry_lease lease = {0};

        if (lease_for(&reader, ADDR, LEN, 0, FERRY_ACCESS_LOCAL, &lease) != FERRY_OK)
            continue;
        atomic_fetch_add_explicit(&rig->granted, 1, memory_order_relaxed);
        while (atomic_load_explicit(&rig->hold_on, memory_order_relaxed) &&
               !ferry_gate_hidden(lease.entry) &&
               !atomic_load_explicit(&rig->stop, memory_order_relaxed))
            ;
        ferry_lease_release(&lease);
    }
    ferry_registry_reader_fini(&reader);
    return NULL;
}

static void start(struct rig *rig, pthread_t *thread_out)
{
    memset(rig, 0, sizeof(*rig));
    rig_init(&rig->registry);
    assert_int_equal(pthread_create(thread_out, NULL, lease_main, rig), 0);
}

static void stop(struct rig *rig, pthread_t thread, uint32_t rounds)
{
    atomic_store(&rig->stop, true);
    pthread_join(thread, NULL);
    print_message("%u rounds, %llu leases\n", rounds, (unsigned long long)rig->granted);
    assert_true(rig->granted > 0);
    ferry_registry_fini(&rig->registry);
}

/* Register, and wait for a first lease, so that the other thread is at it. False when time is up.
 */
static bool begin_round(struct rig *rig, uint64_t until_ns)
{
    uint64_t before = atomic_load(&rig->granted);

    assert_ok(register_one(&rig->registry, ADDR, LEN));
    while (atomic_load(&rig->granted) == before) {
        if (test_now_ns() > until_ns)
            return false;
    }
    return true;
}

/* Once no lease is seen there may never be one again: the owner has unmapped the memory by then. */
static bool stays_quiet(const struct ferry_registration *entry)
{
    while (ferry_gate_leases(entry) != 0)
        ;
    for (uint32_t i = 0; i < LOOKS; i++) {
        if (ferry_gate_leases(entry) != 0)
            return false;
    }
    return true;
}

static void test_a_hidden_range_that_is_quiet_stays_quiet(void **state)
{
    static struct rig rig;
    struct ferry_registry_range range = {ADDR, LEN};
    uint64_t until_ns = test_deadline_ms(TIME_MS);
    uint64_t noisy = 0;
    uint32_t rounds = 0;
    pthread_t thread;

    start(&rig, &thread);
    for (; rounds < ROUNDS_MAX && test_now_ns() < until_ns; rounds++) {
        struct ferry_removal removal;

        bool warm = begin_round(&rig, until_ns);
        assert_ok(ferry_registry_hide(&rig.registry, &range, 1, &removal));
        noisy += !stays_quiet(removal.entries[0]);
        assert_ok(ferry_removal_wait(&removal, test_deadline_ms(20000)));
        assert_ok(ferry_removal_finish(&removal));
        if (!warm)
            break;
    }
    stop(&rig, thread, rounds);
    assert_int_equal(noisy, 0);
}

static void test_a_closed_registry_that_is_quiet_stays_quiet(void **state)
{
    static struct rig rig;
    uint64_t until_ns = test_deadline_ms(TIME_MS);
    uint64_t noisy = 0;
    uint32_t rounds = 0;
    pthread_t thread;

    start(&rig, &thread);
    for (; rounds < ROUNDS_MAX && test_now_ns() < until_ns; rounds++) {
        bool warm = begin_round(&rig, until_ns);
        struct ferry_registration *entry = rig.registry.entries[0];

        ferry_registry_close(&rig.registry);
        noisy += !stays_quiet(entry);
        assert_ok(unregister_one(&rig.registry, ADDR, LEN));
        assert_ok(ferry_registry_reopen(&rig.registry));
        if (!warm)
            break;
    }
    stop(&rig, thread, rounds);
    assert_int_equal(noisy, 0);
}

/* A release that falls between the waiter's last look and its sleep must not be lost. */
static void test_no_wakeup_is_lost(void **state)
{
    static struct rig rig;
    struct ferry_registry_range range = {ADDR, LEN};
    uint64_t until_ns = test_deadline_ms(TIME_MS);
    uint64_t longest_ns = 0;
    uint32_t rounds = 0;
    pthread_t thread;

    start(&rig, &thread);
    atomic_store(&rig.hold_on, true);
    for (; rounds < ROUNDS_MAX && test_now_ns() < until_ns; rounds++) {
        struct ferry_removal removal;

        bool warm = begin_round(&rig, until_ns);
        assert_ok(ferry_registry_hide(&rig.registry, &range, 1, &removal));
        uint64_t began_ns = test_now_ns();
        assert_ok(ferry_removal_wait(&removal, test_deadline_ms(20000)));
        uint64_t took_ns = test_now_ns() - began_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        assert_ok(ferry_removal_finish(&removal));
        if (!warm)
            break;
    }
    stop(&rig, thread, rounds);
    print_message("longest wait %.3f ms\n", (double)longest_ns / 1e6);
    /* A lost one sleeps to its deadline. */
    assert_true(longest_ns < 10 * FERRY_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hidden_range_that_is_quiet_stays_quiet),
        cmocka_unit_test(test_a_closed_registry_that_is_quiet_stays_quiet),
        cmocka_unit_test(test_no_wakeup_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
