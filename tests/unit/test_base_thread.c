/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the library: their name, their signal mask, their CPU time; and how many cores there
 * are.
 */
#include "base/thread.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/futex.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include <cmocka.h>

struct seen {
    sigset_t mask;
    char name[16];
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;

    pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    prctl(PR_GET_NAME, seen->name);
    return seen;
}

static void test_thread_has_a_name_and_no_signals(void **state)
{
    static const int blocked[] = {SIGTERM, SIGINT, SIGPIPE, SIGALRM, SIGCHLD, SIGUSR1, SIGPROF};
    static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct seen seen = {0};
    sigset_t before, after;
    pthread_t thread;
    void *result = NULL;

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(ferry_thread_start("ferry-worker-name-too-long", look_around, &seen, &thread),
                     FERRY_OK);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, &seen);
    assert_string_equal(seen.name, "ferry-worker-na");
    for (size_t i = 0; i < FERRY_ARRAY_LEN(blocked); i++)
        assert_int_equal(sigismember(&seen.mask, blocked[i]), 1);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(open); i++)
        assert_int_equal(sigismember(&seen.mask, open[i]), 0);
    for (int sig = 1; sig < NSIG; sig++)
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig));
}

#define BURN_NS (20 * FERRY_NS_PER_MS)

struct burner {
    _Atomic uint32_t burnt;
    _Atomic uint32_t leave;
    uint64_t own_ns;
};

static void *burn(void *arg)
{
    struct burner *burner = arg;

    while (ferry_thread_cpu_ns() < BURN_NS)
        continue;
    burner->own_ns = ferry_thread_cpu_ns();
    burner->burnt = 1;
    ferry_futex_wake(&burner->burnt, 1);
    while (burner->leave == 0)
        ferry_futex_wait(&burner->leave, 0, FERRY_NEVER_NS);
    return NULL;
}

static void test_thread_cpu_time_is_its_own(void **state)
{
    struct burner burner = {0};
    uint64_t ours_ns = ferry_thread_cpu_ns();
    uint64_t deadline_ns = ferry_now_ns(&ferry_clock_system) + 30 * FERRY_NS_PER_S;
    pthread_t thread;

    (void)state;
    assert_int_equal(ferry_thread_start("burner", burn, &burner, &thread), FERRY_OK);
    while (burner.burnt == 0 && ferry_futex_wait(&burner.burnt, 0, deadline_ns))
        continue;

    uint64_t theirs_ns = ferry_thread_cpu_ns_of(thread);

    burner.leave = 1;
    ferry_futex_wake(&burner.leave, 1);
    pthread_join(thread, NULL);
    assert_int_equal(burner.burnt, 1);
    assert_true(burner.own_ns >= BURN_NS);
    assert_true(theirs_ns >= burner.own_ns);
    assert_true(ferry_thread_cpu_ns() >= ours_ns);
}

static void *count_cores(void *arg)
{
    cpu_set_t one, before;

    /* This thread only; it ends right after. */
    if (sched_getaffinity(0, sizeof(before), &before) != 0)
        return NULL;
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    }
    if (sched_setaffinity(0, sizeof(one), &one) == 0)
        *(uint32_t *)arg = ferry_usable_cores();
    return NULL;
}

static void test_usable_cores_follow_the_affinity(void **state)
{
    uint32_t pinned = 0;
    cpu_set_t set;
    pthread_t thread;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);

    uint32_t cores = ferry_usable_cores();

    assert_true(cores >= 1);
    assert_true(cores <= (uint32_t)CPU_COUNT(&set));
    assert_int_equal(ferry_thread_start("pinned", count_cores, &pinned, &thread), FERRY_OK);
    pthread_join(thread, NULL);
    assert_int_equal(pinned, 1);
}

static void test_cgroup_quota_is_rounded_up(void **state)
{
    static const struct {
        const char *text;
        uint32_t cores;
    } rows[] = {
        {"max 100000\n", 0},
        {"100000 100000\n", 1},
        {"150000 100000\n", 2},
        {"1000 100000", 1},
        {"400000 100000", 4},
        {"-1 100000", 0},
        {"0 100000", 0},
        {"100000 0", 0},
        {"", 0},
        {"x", 0},
        {"100000", 0},
        {"200001 100000", 3},
        {"18446744073709551615 1", 65536},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++)
        assert_int_equal(ferry_cgroup_quota_cores(rows[i].text), rows[i].cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread_has_a_name_and_no_signals),
        cmocka_unit_test(test_thread_cpu_time_is_its_own),
        cmocka_unit_test(test_usable_cores_follow_the_affinity),
        cmocka_unit_test(test_cgroup_quota_is_rounded_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
