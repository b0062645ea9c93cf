/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every C test starts with: cmocka with the headers that it needs before it, assertions that
 * print a status by name with the text of its cause, and waiting on a condition with a deadline.
 * Header only; one test program, any thread unless a function says otherwise.
 */
#ifndef FERRY_TESTS_SUPPORT_TEST_H
#define FERRY_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include <ferry/status.h>

/* A call that must succeed, and one that must fail in a named way. */
#define assert_ok(call) test_expect_status((call), FERRY_OK, #call, __FILE__, __LINE__)

#define assert_status(call, wanted) test_expect_status((call), (wanted), #call, __FILE__, __LINE__)

/* Poll a condition until it holds; the test fails when it does not within @timeout_ms. */
#define assert_within_ms(condition, timeout_ms)                                                    \
    do {                                                                                           \
        uint64_t test_until_ns = test_now_ns() + (uint64_t)(timeout_ms)*1000000u;                  \
        while (!(condition)) {                                                                     \
            if (test_now_ns() > test_until_ns)                                                     \
                fail_msg("not within %u ms: %s", (unsigned)(timeout_ms), #condition);              \
            test_nap();                                                                            \
        }                                                                                          \
    } while (0)

static inline void test_expect_status(enum ferry_status got, enum ferry_status wanted,
                                      const char *call, const char *file, int line)
{
    if (got == wanted)
        return;
    print_error("%s: got %s, wanted %s; last error text: %s\n", call, ferry_status_name(got),
                ferry_status_name(wanted), ferry_last_error_text());
    _fail(file, line);
}

/* Leave a test out, with the reason that the run prints under "not proved". */
#define test_skip(reason)                                                                          \
    do {                                                                                           \
        print_message("SKIP: %s\n", (reason));                                                     \
        skip();                                                                                    \
    } while (0)

/* CLOCK_MONOTONIC in nanoseconds, the clock of every deadline. */
static inline uint64_t test_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A deadline so many milliseconds from now. */
static inline uint64_t test_deadline_ms(uint64_t timeout_ms)
{
    return test_now_ns() + timeout_ms * 1000000u;
}

/* The pause between two looks at a condition; nothing may depend on its length. */
static inline void test_nap(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

/*
 * The seed of a randomized test: FERRY_TEST_SEED if set, else a fixed one, so that a failing run is
 * repeated by setting one variable.
 */
static inline uint64_t test_seed(uint64_t fallback)
{
    const char *text = getenv("FERRY_TEST_SEED");
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

/* The lengths that only the long run takes: FERRY_TEST_LONG=1. */
static inline bool test_is_long(void)
{
    const char *text = getenv("FERRY_TEST_LONG");
    return text != NULL && text[0] == '1';
}

#endif
