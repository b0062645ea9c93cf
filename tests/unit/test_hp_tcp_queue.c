/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is next on a lane, step by step: by priority and size, in turns within a rank, nobody starved
 * however much comes before it, and in the order of submission without isolation.
 */
#include <string.h>

#include "base/compiler.h"
#include "test.h"
#include "transport/hp_tcp/internal.h"

#define WAITING_MAX 8u

struct rig {
    struct hp_transport transport;
    struct hp_lane lane;
    struct ferry_xfer xfers[WAITING_MAX];
    struct hp_flow flows[WAITING_MAX];
    uint32_t count;
};

static void rig_open(struct rig *rig, bool isolation)
{
    memset(rig, 0, sizeof(*rig));
    rig->transport.settings.isolation = isolation;
    ferry_hp_queue_init(&rig->lane);
}

/* Another request waits; its number. */
static uint32_t wait_for_lane(struct rig *rig, enum ferry_priority priority, bool small)
{
    uint32_t number = rig->count++;
    struct hp_flow *flow = &rig->flows[number];

    assert_true(number < WAITING_MAX);
    rig->xfers[number].priority = priority;
    flow->xfer = &rig->xfers[number];
    flow->transport = &rig->transport;
    flow->small = small;
    flow->refs[0].flow = flow;
    ferry_list_init(&flow->refs[0].link);
    ferry_hp_queue_push(&rig->lane, &flow->refs[0]);
    return number;
}

/* Take one chunk of whoever is next, who has more of them. */
static uint32_t take_chunk(struct rig *rig)
{
    struct hp_ref *ref = ferry_hp_queue_next(&rig->lane);

    assert_non_null(ref);
    ferry_hp_queue_rotate(&rig->lane, ref);
    return (uint32_t)(ref->flow - rig->flows);
}

/* Take the last chunk of whoever is next. */
static uint32_t take_last(struct rig *rig)
{
    struct hp_ref *ref = ferry_hp_queue_next(&rig->lane);

    assert_non_null(ref);
    ferry_list_remove(&ref->link);
    return (uint32_t)(ref->flow - rig->flows);
}

static void test_priority_goes_first_and_small_before_large(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    uint32_t low_bulk = wait_for_lane(&rig, FERRY_PRIORITY_LOW, false);
    uint32_t low_small = wait_for_lane(&rig, FERRY_PRIORITY_LOW, true);
    uint32_t medium_bulk = wait_for_lane(&rig, FERRY_PRIORITY_MEDIUM, false);
    uint32_t high_bulk = wait_for_lane(&rig, FERRY_PRIORITY_HIGH, false);
    uint32_t medium_small = wait_for_lane(&rig, FERRY_PRIORITY_MEDIUM, true);
    uint32_t high_small = wait_for_lane(&rig, FERRY_PRIORITY_HIGH, true);

    assert_true(ferry_hp_queue_busy(&rig.lane));
    assert_int_equal(take_last(&rig), high_small);
    assert_int_equal(take_last(&rig), medium_small);
    assert_int_equal(take_last(&rig), high_bulk);
    assert_int_equal(take_last(&rig), medium_bulk);
    assert_int_equal(take_last(&rig), low_small);
    assert_int_equal(take_last(&rig), low_bulk);
    assert_false(ferry_hp_queue_busy(&rig.lane));
    assert_null(ferry_hp_queue_next(&rig.lane));
}

static void test_requests_of_one_rank_take_turns(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    for (uint32_t i = 0; i < 3; i++)
        wait_for_lane(&rig, FERRY_PRIORITY_MEDIUM, false);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(take_chunk(&rig), i % 3);
}

/* However many ranks wait behind a flood, each moves on, and the flood has most of the lane. */
static void test_nobody_is_starved(void **state)
{
    enum { CHUNKS = 4096 };
    struct rig rig;
    uint32_t taken[WAITING_MAX] = {0};

    (void)state;
    rig_open(&rig, true);
    uint32_t flood = wait_for_lane(&rig, FERRY_PRIORITY_HIGH, true);
    wait_for_lane(&rig, FERRY_PRIORITY_HIGH, false);
    wait_for_lane(&rig, FERRY_PRIORITY_MEDIUM, false);
    wait_for_lane(&rig, FERRY_PRIORITY_LOW, true);
    wait_for_lane(&rig, FERRY_PRIORITY_LOW, false);
    for (uint32_t i = 0; i < CHUNKS; i++)
        taken[take_chunk(&rig)]++;
    for (uint32_t i = 0; i < rig.count; i++) {
        if (i != flood)
            assert_true(taken[i] >= CHUNKS / 256);
    }
    assert_true(taken[flood] >= CHUNKS * 9 / 10);
}

/* Turns that nobody had to wait for do not count against whoever comes later. */
static void test_waiting_is_counted_from_when_somebody_waits(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, true);
    uint32_t first = wait_for_lane(&rig, FERRY_PRIORITY_HIGH, true);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(take_chunk(&rig), first);
    wait_for_lane(&rig, FERRY_PRIORITY_LOW, false);
    assert_int_equal(take_chunk(&rig), first);
}

static void test_without_isolation_the_order_is_that_of_submission(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, false);
    uint32_t bulk = wait_for_lane(&rig, FERRY_PRIORITY_LOW, false);
    uint32_t small = wait_for_lane(&rig, FERRY_PRIORITY_HIGH, true);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(take_chunk(&rig), bulk);
    assert_int_equal(take_last(&rig), bulk);
    assert_int_equal(take_last(&rig), small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_priority_goes_first_and_small_before_large),
        cmocka_unit_test(test_requests_of_one_rank_take_turns),
        cmocka_unit_test(test_nobody_is_starved),
        cmocka_unit_test(test_waiting_is_counted_from_when_somebody_waits),
        cmocka_unit_test(test_without_isolation_the_order_is_that_of_submission),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
