/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transports over devices share: endpoint life, attempt tokens, quotas, path health, path
 * choice, the gate between cancel and post, and the endpoint store.
 */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "support/test.h"
#include "transport/device/attempts.h"
#include "transport/device/choose.h"
#include "transport/device/gate.h"
#include "transport/device/life.h"
#include "transport/device/quota.h"
#include "transport/device/rail.h"
#include "transport/device/store.h"

static void test_device_life_moves_forward_with_a_new_generation_each(void **state)
{
    _Atomic uint64_t source = 41;
    struct ferry_device_life first, second;

    (void)state;
    ferry_device_life_begin(&first, &source);
    ferry_device_life_begin(&second, &source);
    assert_int_equal(first.generation, 42);
    assert_int_equal(second.generation, 43);
    for (uint32_t next = FERRY_DEVICE_HANDSHAKING; next <= FERRY_DEVICE_READY; next++)
        ferry_device_life_advance(&first, (enum ferry_device_state)next);
    ferry_device_life_advance(&first, FERRY_DEVICE_FAILED);
    ferry_device_life_advance(&first, FERRY_DEVICE_DESTROYING);
    ferry_device_life_advance(&first, FERRY_DEVICE_DESTROYED);
    assert_int_equal(ferry_device_life_state(&first), FERRY_DEVICE_DESTROYED);
    assert_int_equal(ferry_device_life_state(&second), FERRY_DEVICE_UNINIT);
    assert_string_equal(ferry_device_state_name(FERRY_DEVICE_BINDING), "binding");
}

/* Late, doubled and foreign completions find nothing. */
static void test_device_tokens_are_never_used_twice(void **state)
{
    struct ferry_device_attempts attempts;
    uint64_t seen[64];
    uint32_t slot, found;

    (void)state;
    assert_ok(ferry_device_attempts_init(&attempts, 3));
    for (uint32_t i = 0; i < 64; i++) {
        assert_true(ferry_device_attempts_take(&attempts, &slot));
        seen[i] = ferry_device_attempts_renew(&attempts, slot);
        assert_true(ferry_device_attempts_find(&attempts, seen[i], &found));
        assert_int_equal(found, slot);
        for (uint32_t k = 0; k < i; k++) {
            assert_int_not_equal(seen[k], seen[i]);
            assert_false(ferry_device_attempts_find(&attempts, seen[k], &found));
        }
        if (i % 3 == 0) {
            ferry_device_attempts_void(&attempts, slot);
            assert_false(ferry_device_attempts_find(&attempts, seen[i], &found));
        }
        ferry_device_attempts_give(&attempts, slot);
        assert_false(ferry_device_attempts_find(&attempts, seen[i], &found));
    }
    assert_false(ferry_device_attempts_find(&attempts, 0, &found));
    assert_false(ferry_device_attempts_find(&attempts, UINT64_MAX, &found));
    assert_true(ferry_device_attempts_take(&attempts, &slot));
    assert_true(ferry_device_attempts_take(&attempts, &slot));
    assert_true(ferry_device_attempts_take(&attempts, &slot));
    assert_false(ferry_device_attempts_take(&attempts, &slot));
    ferry_device_attempts_fini(&attempts);
}

static void test_device_quota_is_exact_and_lets_one_request_pass(void **state)
{
    struct ferry_device_quota quota;

    (void)state;
    ferry_device_quota_init(&quota, 100, 3);
    assert_true(ferry_device_quota_take(&quota, 1, 1000)); /* alone, however long */
    assert_false(ferry_device_quota_take(&quota, 1, 1));
    assert_false(ferry_device_quota_has_room(&quota, 1));
    ferry_device_quota_give(&quota, 1, 1000);
    assert_true(ferry_device_quota_take(&quota, 1, 60));
    assert_false(ferry_device_quota_take(&quota, 1, 41));
    assert_true(ferry_device_quota_take(&quota, 1, 40));
    assert_false(ferry_device_quota_take(&quota, 1, 1));
    ferry_device_quota_give(&quota, 2, 100);
    assert_int_equal(ferry_device_quota_bytes(&quota), 0);
    assert_int_equal(atomic_load(&quota.bytes_peak), 1000);
    assert_int_equal(atomic_load(&quota.refusals), 3);
    assert_true(ferry_device_quota_take(&quota, 3, 3));
    assert_false(ferry_device_quota_take(&quota, 1, 1));
    ferry_device_quota_give(&quota, 4, 3); /* more than was taken: a defect closes it */
    assert_false(ferry_device_quota_take(&quota, 1, 1));
    assert_true(atomic_load(&quota.broken));
}

static const struct ferry_device_rail_options rail_options = {.errors_max = 3,
                                                              .window_ns = 10 * FERRY_NS_PER_S,
                                                              .cooldown_ns = FERRY_NS_PER_S,
                                                              .cooldown_ns_max = 3 *
                                                                                 FERRY_NS_PER_S};

static void test_device_rail_pauses_after_errors_of_its_own_only(void **state)
{
    struct ferry_device_rail rail = {0};
    uint64_t now = FERRY_NS_PER_S;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_ENDPOINT, now));
        assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_LOCAL, now));
    }
    assert_true(ferry_device_rail_usable(&rail, now));
    assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_PATH, now));
    assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_TIMEOUT, now));
    /* The window has passed: they do not add up. */
    now += 11 * FERRY_NS_PER_S;
    assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_PATH, now));
    assert_false(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_PATH, now));
    assert_true(ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_PATH, now));
    assert_false(ferry_device_rail_usable(&rail, now + FERRY_NS_PER_S - 1));
    assert_true(ferry_device_rail_usable(&rail, now + FERRY_NS_PER_S));
    assert_int_equal(atomic_load(&rail.recoveries), 1);
    /* The next pause is twice as long, and the one after ends at the most. */
    for (uint32_t pause = 2; pause <= 3; pause++) {
        now += 20 * FERRY_NS_PER_S;
        for (uint32_t i = 0; i < 3; i++)
            ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_TIMEOUT, now);
        assert_false(ferry_device_rail_usable(&rail, now + pause * FERRY_NS_PER_S - 1));
        assert_true(ferry_device_rail_usable(&rail, now + pause * FERRY_NS_PER_S));
    }
    ferry_device_rail_success(&rail, 10, 5, now);
    now += 20 * FERRY_NS_PER_S;
    for (uint32_t i = 0; i < 3; i++)
        ferry_device_rail_error(&rail, &rail_options, FERRY_DEVICE_TIMEOUT, now);
    assert_true(ferry_device_rail_usable(&rail, now + FERRY_NS_PER_S));
}

static void test_device_rail_measures_while_there_is_work(void **state)
{
    struct ferry_device_rail rail = {0};
    uint64_t now = FERRY_NS_PER_S;

    (void)state;
    ferry_device_rail_sample(&rail, true, now);
    for (uint32_t i = 0; i < 40; i++) {
        now += 100 * FERRY_NS_PER_US;
        ferry_device_rail_success(&rail, 100000, 1000, now);
        ferry_device_rail_sample(&rail, false, now);
    }
    assert_in_range(rail.bytes_per_s, 990000000, 1010000000);
    assert_int_equal(rail.latency_ns, 1000);
    /* A second of idleness is not slowness. */
    now += FERRY_NS_PER_S;
    ferry_device_rail_sample(&rail, true, now);
    now += 100 * FERRY_NS_PER_US;
    ferry_device_rail_success(&rail, 100000, 1000, now);
    ferry_device_rail_sample(&rail, false, now);
    assert_in_range(rail.bytes_per_s, 990000000, 1010000000);
}

static void test_device_choice_is_the_shortest_predicted_time(void **state)
{
    struct ferry_device_weights weights = FERRY_DEVICE_WEIGHTS_DEFAULT;
    struct ferry_device_candidate c[3];

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        c[i] = (struct ferry_device_candidate){
            .usable = true, .near = true, .ready = true, .bytes_per_s = 1000000000};
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 0);
    c[0].inflight = 65536;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 1);
    c[1].bytes_per_s = 100000000;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 2);
    c[2].near = false;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 0);
    weights.locality = 0;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 2);
    c[2].tried = true;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 0);
    c[0].usable = false;
    c[1].usable = false;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), 2);
    c[2].usable = false;
    assert_int_equal(ferry_device_choose(c, 3, &weights, 65536), FERRY_DEVICE_NONE);
}

/* Four devices of unequal speed, each piece to where it ends first: near the sum of their speeds.
 */
static void test_device_choice_keeps_unequal_devices_busy(void **state)
{
    static const uint64_t speeds[4] = {400, 800, 1600, 3200}; /* bytes per tick */
    struct ferry_device_weights weights = FERRY_DEVICE_WEIGHTS_DEFAULT;
    struct ferry_device_candidate c[4];
    uint64_t left[4] = {0};
    uint64_t done = 0;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        c[i] = (struct ferry_device_candidate){
            .near = true, .ready = true, .bytes_per_s = speeds[i] * 1000};
    for (uint32_t tick = 0; tick < 20000; tick++) {
        for (;;) {
            uint32_t chosen;

            for (uint32_t i = 0; i < 4; i++) {
                c[i].inflight = left[i];
                c[i].usable = left[i] < 16 * 65536;
            }
            chosen = ferry_device_choose(c, 4, &weights, 65536);
            if (chosen == FERRY_DEVICE_NONE)
                break;
            left[chosen] += 65536;
        }
        for (uint32_t i = 0; i < 4; i++) {
            uint64_t moved = left[i] < speeds[i] ? left[i] : speeds[i];

            left[i] -= moved;
            done += moved;
        }
    }
    assert_true(done >= 20000ULL * 6000 * 9 / 10);
}

struct race {
    struct ferry_device_gate gate;
    _Atomic uint64_t posted;
    _Atomic bool closed;
    _Atomic uint64_t posted_after_close;
};

static void *post_all(void *arg)
{
    struct race *race = arg;

    for (uint32_t i = 0; i < 200000; i++) {
        bool closed = atomic_load(&race->closed);

        if (!ferry_device_gate_commit(&race->gate))
            break;
        /* Closed before we looked: then no commit may have passed. */
        atomic_fetch_add(&race->posted_after_close, closed);
        atomic_fetch_add(&race->posted, 1);
        ferry_device_gate_settle(&race->gate);
    }
    return NULL;
}

static void test_device_gate_decides_once_between_cancel_and_post(void **state)
{
    struct race race = {0};
    pthread_t threads[2];

    (void)state;
    ferry_device_gate_open(&race.gate);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &race), 0);
    while (atomic_load(&race.posted) < 100)
        test_nap();
    ferry_device_gate_close(&race.gate);
    atomic_store(&race.closed, true);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&race.posted_after_close), 0);
    assert_int_equal(ferry_device_gate_committed(&race.gate), 0);
    assert_true(ferry_device_gate_closed(&race.gate));
    assert_false(ferry_device_gate_commit(&race.gate));
}

static void test_device_store_has_one_endpoint_for_each_path(void **state)
{
    struct ferry_device_store store;
    struct ferry_device_entry entries[100];
    uint32_t seen = 0;

    (void)state;
    memset(entries, 0, sizeof(entries));
    ferry_device_store_init(&store, 99);
    for (uint32_t i = 0; i < 100; i++) {
        entries[i].key.peer[0] = (uint8_t)(i % 3);
        entries[i].key.local = i / 3;
        assert_null(ferry_device_store_find(&store, &entries[i].key));
        assert_int_equal(ferry_device_store_add(&store, &entries[i]), i < 99);
    }
    for (uint32_t i = 0; i < 99; i++)
        assert_ptr_equal(ferry_device_store_find(&store, &entries[i].key), &entries[i]);
    for (struct ferry_device_entry *e = ferry_device_store_next(&store, NULL); e != NULL;
         e = ferry_device_store_next(&store, e))
        seen++;
    assert_int_equal(seen, 99);
    for (uint32_t i = 0; i < 100; i++)
        ferry_device_store_remove(&store, &entries[i]);
    assert_int_equal(store.count, 0);
    assert_null(ferry_device_store_next(&store, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device_life_moves_forward_with_a_new_generation_each),
        cmocka_unit_test(test_device_tokens_are_never_used_twice),
        cmocka_unit_test(test_device_quota_is_exact_and_lets_one_request_pass),
        cmocka_unit_test(test_device_rail_pauses_after_errors_of_its_own_only),
        cmocka_unit_test(test_device_rail_measures_while_there_is_work),
        cmocka_unit_test(test_device_choice_is_the_shortest_predicted_time),
        cmocka_unit_test(test_device_choice_keeps_unequal_devices_busy),
        cmocka_unit_test(test_device_gate_decides_once_between_cancel_and_post),
        cmocka_unit_test(test_device_store_has_one_endpoint_for_each_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
