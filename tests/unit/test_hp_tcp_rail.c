/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health of a rail, stepped by hand: what keeps work away, when it is tried again, what is
 * said; and over a million random steps, that no sequence of events leaves a rail that nobody will
 * ever try again.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "test.h"
#include "transport/hp_tcp/rail.h"

#define MS FERRY_NS_PER_MS
#define S  FERRY_NS_PER_S

static const struct ferry_rail_limits limits = {.probe_min_ns = 100 * MS,
                                                .probe_max_ns = 1000 * MS};

static struct ferry_rail_verdict step(struct ferry_rail *rail, enum ferry_rail_event event,
                                      uint64_t now_ns)
{
    return ferry_rail_step(rail, event, now_ns, &limits, 12345);
}

static bool usable(const struct ferry_rail *rail)
{
    return ferry_rail_state_usable(rail->state);
}

static void test_one_break_keeps_no_work_away(void **state)
{
    struct ferry_rail rail = {0};

    (void)state;
    assert_true(usable(&rail));
    step(&rail, FERRY_RAIL_CONNECTED, S);
    assert_false(step(&rail, FERRY_RAIL_BROKE, 2 * S).went_down);
    assert_int_equal(rail.state, FERRY_RAIL_SHAKY);
    /* The other lanes of the rail break at the same time. */
    for (int i = 0; i < 10; i++)
        assert_false(step(&rail, FERRY_RAIL_BROKE, 2 * S).went_down);
    step(&rail, FERRY_RAIL_CONNECTED, 2 * S + MS);
    assert_int_equal(rail.state, FERRY_RAIL_UP);
    assert_int_equal(rail.downs, 0);
}

static void test_no_connection_after_a_break_is_the_end(void **state)
{
    struct ferry_rail rail = {0};

    (void)state;
    step(&rail, FERRY_RAIL_CONNECTED, S);
    step(&rail, FERRY_RAIL_BROKE, 2 * S);
    assert_true(step(&rail, FERRY_RAIL_FAILED, 3 * S).went_down);
    assert_false(usable(&rail));
    /* Stragglers neither count again nor put the probe off. */
    uint64_t probe_at_ns = rail.probe_at_ns;
    assert_false(step(&rail, FERRY_RAIL_FAILED, 3 * S + MS).went_down);
    assert_false(step(&rail, FERRY_RAIL_SILENT, 3 * S + MS).went_down);
    assert_false(step(&rail, FERRY_RAIL_BROKE, 3 * S + MS).went_down);
    assert_int_equal(rail.probe_at_ns, probe_at_ns);
    assert_int_equal(rail.downs, 1);
}

static void test_a_rail_that_breaks_again_and_again_goes_down(void **state)
{
    struct ferry_rail rail = {0};
    bool down = false;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        step(&rail, FERRY_RAIL_CONNECTED, S + i * 100 * MS);
        down = step(&rail, FERRY_RAIL_BROKE, S + i * 100 * MS + MS).went_down;
        assert_int_equal(down, i == 2);
    }
    /* The same number over minutes does not. */
    rail = (struct ferry_rail){0};
    for (uint64_t i = 0; i < 10; i++) {
        step(&rail, FERRY_RAIL_CONNECTED, S + i * 20 * S);
        assert_false(step(&rail, FERRY_RAIL_BROKE, S + i * 20 * S + MS).went_down);
    }
}

static void test_probes_come_one_at_a_time_and_ever_later(void **state)
{
    struct ferry_rail rail = {0};
    uint64_t now_ns = S;
    uint64_t expected_ns = limits.probe_min_ns;

    (void)state;
    step(&rail, FERRY_RAIL_SILENT, now_ns);
    for (int i = 0; i < 8; i++) {
        assert_in_range(rail.probe_at_ns - now_ns, expected_ns / 4 * 3, expected_ns);
        assert_false(step(&rail, FERRY_RAIL_PROBE, rail.probe_at_ns - 1).probe);
        now_ns = rail.probe_at_ns;
        assert_true(step(&rail, FERRY_RAIL_PROBE, now_ns).probe);
        assert_false(step(&rail, FERRY_RAIL_PROBE, now_ns).probe);
        assert_false(usable(&rail));
        assert_false(step(&rail, FERRY_RAIL_FAILED, now_ns).went_down);
        expected_ns = expected_ns * 2 < limits.probe_max_ns ? expected_ns * 2 : limits.probe_max_ns;
    }
    step(&rail, FERRY_RAIL_PROBE, rail.probe_at_ns);
    assert_true(step(&rail, FERRY_RAIL_CONNECTED, rail.probe_at_ns + MS).came_back);
    assert_true(usable(&rail));
    assert_int_equal(rail.backs, 1);
    assert_int_equal(rail.probes, 9);
    /* One that soon goes down again is not tried sooner for having been up for a moment. */
    now_ns = rail.probe_at_ns + S;
    step(&rail, FERRY_RAIL_SILENT, now_ns);
    assert_in_range(rail.probe_at_ns - now_ns, limits.probe_max_ns / 4 * 3, limits.probe_max_ns);
    /* One that was up for long is. */
    step(&rail, FERRY_RAIL_CONNECTED, now_ns);
    now_ns += 60 * S;
    step(&rail, FERRY_RAIL_SILENT, now_ns);
    assert_in_range(rail.probe_at_ns - now_ns, limits.probe_min_ns / 4 * 3, limits.probe_min_ns);
}

static void test_a_rail_that_comes_and_goes_does_not_flood_the_log(void **state)
{
    struct ferry_rail rail = {0};
    uint32_t said = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        struct ferry_rail_verdict down = step(&rail, FERRY_RAIL_SILENT, S + i * 50 * MS);
        struct ferry_rail_verdict back = step(&rail, FERRY_RAIL_CONNECTED, S + i * 50 * MS + MS);

        assert_true(down.went_down && back.came_back);
        /* What was said to be down is said to be back. */
        assert_int_equal(down.say, back.say);
        said += down.say;
    }
    assert_in_range(said, 4, 6);
    assert_int_equal(rail.unsaid, 2 * (1000 - said));
    assert_int_equal(rail.downs, 1000);
}

static void test_no_history_leaves_a_rail_that_nobody_tries_again(void **state)
{
    struct ferry_rail rail = {0};
    uint64_t now_ns = S;
    uint64_t random = 1;
    uint32_t away = 0;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        enum ferry_rail_event event = (enum ferry_rail_event)((random >> 60) % 5);
        bool before = usable(&rail);
        struct ferry_rail_verdict verdict = ferry_rail_step(&rail, event, now_ns, &limits,
                                                            (uint32_t)(random >> 20));

        /* The transport counts rails by these two: they must tell of every change, once. */
        away += verdict.went_down;
        away -= verdict.came_back;
        assert_int_equal(away, !usable(&rail));
        assert_int_equal(verdict.went_down, before && !usable(&rail));
        assert_int_equal(verdict.came_back, !before && usable(&rail));
        assert_true(!verdict.probe || (event == FERRY_RAIL_PROBE && !before));
        if (rail.state == FERRY_RAIL_DOWN)
            assert_true(rail.probe_at_ns <= now_ns + limits.probe_max_ns);
        now_ns += (random >> 30) % (300 * MS);
    }
    assert_true(rail.downs > 1000 && rail.backs > 1000 && rail.probes > 1000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_break_keeps_no_work_away),
        cmocka_unit_test(test_no_connection_after_a_break_is_the_end),
        cmocka_unit_test(test_a_rail_that_breaks_again_and_again_goes_down),
        cmocka_unit_test(test_probes_come_one_at_a_time_and_ever_later),
        cmocka_unit_test(test_a_rail_that_comes_and_goes_does_not_flood_the_log),
        cmocka_unit_test(test_no_history_leaves_a_rail_that_nobody_tries_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
