/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers of the reactor, on a virtual clock: order, re-arming and disarming from callbacks, and the
 * heap under random use against a plain list.
 */
#include "test.h"

#include <string.h>

#include "base/compiler.h"
#include "pattern.h"
#include "sim/reactor_sim.h"

struct fixture {
    struct sim_net *net;
    struct ferry_reactor *reactor;
};

struct timer {
    struct ferry_timer timer;
    struct ferry_reactor *reactor;
    uint64_t due_ns; /* what the test expects; FERRY_NEVER_NS: disarmed */
    uint64_t fired_ns;
    uint32_t fires;
    uint64_t again_ns;  /* re-arm this much later, 0: no */
    struct timer *stop; /* disarm this one */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct sim_options sim = {.seed = 1};
    struct ferry_reactor_options options = {0};

    assert_non_null(f);
    f->net = sim_net_create(&sim);
    options.clock = sim_process_clock(sim_process_start(f->net));
    assert_ok(ferry_reactor_open_with(&sim_reactor_ops, &options, &f->reactor));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ferry_reactor_close(f->reactor);
    sim_net_destroy(f->net);
    free(f);
    return 0;
}

static void fire(struct ferry_timer *ferry_timer)
{
    struct timer *timer = FERRY_CONTAINER_OF(ferry_timer, struct timer, timer);

    assert_false(ferry_timer_armed(ferry_timer));
    timer->fires++;
    timer->fired_ns = ferry_reactor_now(timer->reactor);
    if (timer->again_ns != 0)
        assert_ok(
            ferry_reactor_arm(timer->reactor, ferry_timer, timer->fired_ns + timer->again_ns));
    if (timer->stop != NULL)
        ferry_reactor_disarm(timer->reactor, &timer->stop->timer);
}

static void init(struct timer *timer, struct fixture *f)
{
    *timer = (struct timer){.timer.fire = fire, .reactor = f->reactor, .due_ns = FERRY_NEVER_NS};
}

static void run_for(struct fixture *f, uint64_t ns)
{
    uint64_t until_ns = sim_net_now_ns(f->net) + ns;

    while (sim_net_now_ns(f->net) < until_ns)
        ferry_reactor_turn(f->reactor, until_ns);
}

static void test_a_timer_fires_once_and_not_early(void **state)
{
    struct fixture *f = *state;
    struct timer timer;

    init(&timer, f);
    uint64_t due_ns = sim_net_now_ns(f->net) + 1000;
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, due_ns));
    assert_true(ferry_timer_armed(&timer.timer));
    run_for(f, 999);
    assert_int_equal(timer.fires, 0);
    run_for(f, 10000);
    assert_int_equal(timer.fires, 1);
    assert_int_equal(timer.fired_ns, due_ns);
    assert_false(ferry_timer_armed(&timer.timer));
}

static void test_rearming_moves_a_timer_and_disarming_stops_it(void **state)
{
    struct fixture *f = *state;
    struct timer timer;
    uint64_t now_ns = sim_net_now_ns(f->net);

    init(&timer, f);
    ferry_reactor_disarm(f->reactor, &timer.timer); /* not armed: nothing happens */
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, now_ns + 1000));
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, now_ns + 5000));
    run_for(f, 4000);
    assert_int_equal(timer.fires, 0);
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, now_ns + 4500));
    run_for(f, 600);
    assert_int_equal(timer.fires, 1);
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, now_ns + 9000));
    ferry_reactor_disarm(f->reactor, &timer.timer);
    run_for(f, 10000);
    assert_int_equal(timer.fires, 1);
}

/* A callback that arms its timer for a moment already past gets the next turn, not this one again.
 */
static void test_a_timer_that_rearms_into_the_past_does_not_hold_the_turn(void **state)
{
    struct fixture *f = *state;
    struct timer timer;

    init(&timer, f);
    timer.again_ns = 1;
    assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, 1));
    for (uint32_t turn = 0; turn < 10; turn++) {
        uint32_t before = timer.fires;

        ferry_reactor_turn(f->reactor, 0);
        assert_true(timer.fires - before <= 2);
        assert_true(ferry_timer_armed(&timer.timer));
        assert_ok(ferry_reactor_arm(f->reactor, &timer.timer, 1));
    }
    ferry_reactor_disarm(f->reactor, &timer.timer);
}

static void test_a_callback_may_disarm_a_timer_that_is_due_as_well(void **state)
{
    struct fixture *f = *state;
    struct timer first, second;
    uint64_t due_ns = sim_net_now_ns(f->net) + 100;

    init(&first, f);
    init(&second, f);
    first.stop = &second;
    assert_ok(ferry_reactor_arm(f->reactor, &second.timer, due_ns + 1));
    assert_ok(ferry_reactor_arm(f->reactor, &first.timer, due_ns));
    run_for(f, 50);
    sim_net_advance_until(f->net, due_ns + 10); /* both are due in one turn then */
    run_for(f, 1000);
    assert_int_equal(first.fires, 1);
    assert_int_equal(second.fires, 0);
}

static void test_closing_disarms_what_is_left(void **state)
{
    struct fixture *f = *state;
    struct ferry_reactor_options options = {.clock = f->reactor->clock};
    struct ferry_reactor *reactor = NULL;
    struct timer timer;

    init(&timer, f);
    assert_ok(ferry_reactor_open_with(&sim_reactor_ops, &options, &reactor));
    assert_ok(ferry_reactor_arm(reactor, &timer.timer, 1));
    ferry_reactor_close(reactor);
    assert_false(ferry_timer_armed(&timer.timer));
    assert_int_equal(timer.fires, 0);
}

static void test_the_heap_agrees_with_a_list(void **state)
{
    struct fixture *f = *state;
    enum { TIMERS = 300, STEPS = 20000 };
    static struct timer timers[TIMERS];
    uint64_t seed = test_seed(3);
    uint64_t fires = 0;

    assert_ok(ferry_reactor_reserve_timers(f->reactor, TIMERS));
    for (int i = 0; i < TIMERS; i++)
        init(&timers[i], f);
    for (uint64_t step = 0; step < STEPS; step++) {
        struct timer *timer = &timers[pattern_word(seed, step) % TIMERS];
        uint64_t now_ns = sim_net_now_ns(f->net);

        if (pattern_word(seed + 1, step) % 4 == 0) {
            ferry_reactor_disarm(f->reactor, &timer->timer);
            timer->due_ns = FERRY_NEVER_NS;
        } else {
            timer->due_ns = now_ns + 1 + pattern_word(seed + 2, step) % 50000;
            assert_ok(ferry_reactor_arm(f->reactor, &timer->timer, timer->due_ns));
        }
        run_for(f, pattern_word(seed + 3, step) % 300);
        for (int i = 0; i < TIMERS; i++) {
            bool due = timers[i].due_ns <= ferry_reactor_now(f->reactor);

            assert_int_equal(timers[i].fires, due ? 1 : 0);
            if (!due)
                continue;
            assert_int_equal(timers[i].fired_ns, timers[i].due_ns);
            timers[i].fires = 0;
            timers[i].due_ns = FERRY_NEVER_NS;
            fires++;
        }
    }
    assert_true(fires > STEPS / 10);
}

int main(void)
{
#define TIMER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TIMER_TEST(test_a_timer_fires_once_and_not_early),
        TIMER_TEST(test_rearming_moves_a_timer_and_disarming_stops_it),
        TIMER_TEST(test_a_timer_that_rearms_into_the_past_does_not_hold_the_turn),
        TIMER_TEST(test_a_callback_may_disarm_a_timer_that_is_due_as_well),
        TIMER_TEST(test_closing_disarms_what_is_left),
        TIMER_TEST(test_the_heap_agrees_with_a_list),
    };
#undef TIMER_TEST

    return cmocka_run_group_tests(tests, NULL, NULL);
}
