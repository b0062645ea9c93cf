/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status table: every code has a group, a name, a sentence and an end state. Error texts: one
 * per thread, bounded, one line, with what the system said.
 */
#include <ferry/status.h>

#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum end_state { COMPLETED, INVALID, CANCELED, TIMED_OUT, FAILED };

struct row {
    enum ferry_status status;
    const char *name;
    enum end_state state;
    const char *text;
};

static const struct row rows[] = {
#define ROW(name, value, state, text) {FERRY_##name, #name, state, text},
    FERRY_STATUS_TABLE(ROW)
#undef ROW
};

static void test_status_table_is_complete_and_unique(void **state)
{
    (void)state;
    assert_int_equal(rows[0].status, FERRY_OK);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        assert_string_equal(ferry_status_name(rows[i].status), rows[i].name);
        assert_string_equal(ferry_status_text(rows[i].status), rows[i].text);
        assert_true(strlen(rows[i].text) > 0);
        assert_true(rows[i].text[strlen(rows[i].text) - 1] != '.');
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(rows[i].status, rows[k].status);
    }
}

static void test_status_group_is_the_hundreds_digit(void **state)
{
    (void)state;
    assert_int_equal(ferry_status_group(FERRY_OK), FERRY_GROUP_OK);
    assert_int_equal(ferry_status_group(FERRY_ERR_FORKED), FERRY_GROUP_CALLER);
    assert_int_equal(ferry_status_group(FERRY_ERR_QUEUE_FULL), FERRY_GROUP_LOCAL_LIMIT);
    assert_int_equal(ferry_status_group(FERRY_ERR_IO), FERRY_GROUP_PATH);
    assert_int_equal(ferry_status_group(FERRY_ERR_STALE_KEY), FERRY_GROUP_PEER);
    assert_int_equal(ferry_status_group(FERRY_ERR_OUTCOME_UNKNOWN), FERRY_GROUP_OUTCOME_UNKNOWN);
    assert_int_equal(ferry_status_group(FERRY_ERR_CLOSING), FERRY_GROUP_ENDED_BY_CALLER);
    assert_int_equal(ferry_status_group(FERRY_ERR_INTERNAL), FERRY_GROUP_DEFECT);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++)
        assert_int_equal((int)ferry_status_group(rows[i].status), -(int)rows[i].status / 100);
}

static void test_status_end_state_follows_the_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        switch (ferry_status_group(rows[i].status)) {
        case FERRY_GROUP_OK:
            assert_int_equal(rows[i].state, COMPLETED);
            break;
        case FERRY_GROUP_CALLER:
            assert_int_equal(rows[i].state, INVALID);
            break;
        case FERRY_GROUP_ENDED_BY_CALLER:
            assert_true(rows[i].state == CANCELED || rows[i].state == TIMED_OUT);
            break;
        default:
            assert_int_equal(rows[i].state, FAILED);
        }
    }
}

static void test_status_unknown_code_is_a_defect(void **state)
{
    enum ferry_status unknown = (enum ferry_status) - 199;

    (void)state;
    assert_int_equal(ferry_status_group(unknown), FERRY_GROUP_DEFECT);
    assert_string_equal(ferry_status_name(unknown), "UNKNOWN");
    assert_true(strlen(ferry_status_text(unknown)) > 0);
}

static void test_fail_returns_its_status_and_keeps_errno(void **state)
{
    (void)state;
    errno = EXDEV;
    assert_int_equal(ferry_fail(FERRY_ERR_RANGE, "buffer %d of %s", 7, "node1"), FERRY_ERR_RANGE);
    assert_string_equal(ferry_last_error_text(), "buffer 7 of node1");
    assert_int_equal(errno, EXDEV);
}

/* A room that adds to the cause passes the current text as an argument. */
static void test_fail_may_quote_the_current_text(void **state)
{
    (void)state;
    (void)ferry_fail(FERRY_ERR_IO, "disk is gone");
    (void)ferry_fail(FERRY_ERR_METADATA, "store: %s", ferry_last_error_text());
    assert_string_equal(ferry_last_error_text(), "store: disk is gone");
}

static void test_fail_cuts_long_texts_between_characters(void **state)
{
    char lengthy[2 * FERRY_ERROR_TEXT_SIZE];

    (void)state;
    for (size_t shift = 0; shift < 2; shift++) {
        size_t at = 0;

        if (shift == 1)
            lengthy[at++] = 'a';
        for (; at + 2 < sizeof(lengthy); at += 2)
            memcpy(lengthy + at, "\xc3\xa9", 3);
        lengthy[at] = '\0';
        (void)ferry_fail(FERRY_ERR_INVALID, "%s", lengthy);

        const char *text = ferry_last_error_text();
        size_t len = strlen(text);

        assert_true(len < FERRY_ERROR_TEXT_SIZE);
        assert_true(len > FERRY_ERROR_TEXT_SIZE - 8);
        assert_string_equal(text + len - 3, "...");
        assert_int_equal((unsigned char)text[len - 4], 0xa9);
    }
}

/* What a peer says must not move a terminal's cursor or forge a second line. */
static void test_fail_keeps_control_bytes_out(void **state)
{
    (void)state;
    (void)ferry_fail(FERRY_ERR_PROTOCOL, "peer says \"%s\"", "a\n\x1b[2Jb\x7f");
    assert_string_equal(ferry_last_error_text(), "peer says \"a??[2Jb?\"");
}

static void test_fail_errno_maps_and_explains(void **state)
{
    static const struct {
        int err;
        enum ferry_status status;
    } map[] = {
        {ENOMEM, FERRY_ERR_NO_MEMORY},
        {EMFILE, FERRY_ERR_LIMIT},
        {ENFILE, FERRY_ERR_LIMIT},
        {ECONNREFUSED, FERRY_ERR_PATH_DOWN},
        {EHOSTUNREACH, FERRY_ERR_PATH_DOWN},
        {ENETUNREACH, FERRY_ERR_PATH_DOWN},
        {ETIMEDOUT, FERRY_ERR_PATH_DOWN},
        {ECONNRESET, FERRY_ERR_PATH_DOWN},
        {EPIPE, FERRY_ERR_PATH_DOWN},
        {EINVAL, FERRY_ERR_INVALID},
        {EADDRINUSE, FERRY_ERR_INVALID},
        {EADDRNOTAVAIL, FERRY_ERR_INVALID},
        {EACCES, FERRY_ERR_INVALID},
        {EPERM, FERRY_ERR_INVALID},
        {EIO, FERRY_ERR_IO},
        {ENOSPC, FERRY_ERR_IO},
        {99999, FERRY_ERR_IO},
        {0, FERRY_ERR_INTERNAL},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(map); i++)
        assert_int_equal(ferry_fail_errno(map[i].err, "call"), map[i].status);
    assert_int_equal(ferry_status_of_errno(0), FERRY_OK);

    (void)ferry_fail_errno(ECONNREFUSED, "connect to %s", "[::1]:9");
    assert_string_equal(ferry_last_error_text(),
                        "connect to [::1]:9: Connection refused (errno 111)");
    (void)ferry_fail_errno(EMFILE, "socket");
    assert_non_null(strstr(ferry_last_error_text(), "socket: Too many open files (errno 24)"));
    assert_non_null(strstr(ferry_last_error_text(), "ulimit -n"));
}

static void test_fail_errno_keeps_the_cause_of_a_long_text(void **state)
{
    char lengthy[2 * FERRY_ERROR_TEXT_SIZE];

    (void)state;
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    (void)ferry_fail_errno(ENOSPC, "%s", lengthy);

    const char *text = ferry_last_error_text();

    assert_int_equal(strlen(text), FERRY_ERROR_TEXT_SIZE - 1);
    assert_non_null(strstr(text, "x...: No space left on device (errno 28)"));
}

static void *other_thread(void *arg)
{
    const char **text_out = arg;
    static char seen[FERRY_ERROR_TEXT_SIZE];

    snprintf(seen, sizeof(seen), "%s", ferry_last_error_text());
    (void)ferry_fail(FERRY_ERR_BUSY, "theirs");
    *text_out = seen;
    return NULL;
}

static void test_error_text_belongs_to_its_thread(void **state)
{
    const char *theirs = NULL;
    pthread_t thread;

    (void)state;
    (void)ferry_fail(FERRY_ERR_BUSY, "ours");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &theirs), 0);
    pthread_join(thread, NULL);
    assert_string_equal(theirs, "");
    assert_string_equal(ferry_last_error_text(), "ours");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status_table_is_complete_and_unique),
        cmocka_unit_test(test_status_group_is_the_hundreds_digit),
        cmocka_unit_test(test_status_end_state_follows_the_group),
        cmocka_unit_test(test_status_unknown_code_is_a_defect),
        cmocka_unit_test(test_fail_returns_its_status_and_keeps_errno),
        cmocka_unit_test(test_fail_may_quote_the_current_text),
        cmocka_unit_test(test_fail_cuts_long_texts_between_characters),
        cmocka_unit_test(test_fail_keeps_control_bytes_out),
        cmocka_unit_test(test_fail_errno_maps_and_explains),
        cmocka_unit_test(test_fail_errno_keeps_the_cause_of_a_long_text),
        cmocka_unit_test(test_error_text_belongs_to_its_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
