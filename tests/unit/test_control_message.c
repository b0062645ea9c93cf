/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of control messages: they read back as written, and nothing else is read.
 */
#include "control/message.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>

static void test_a_notification_reads_back(void **state)
{
    struct ferry_notify_body body = {.sender = "10.0.0.1:15428", .name = "kv \"ready\"\n"};
    struct ferry_notify_body back;
    char *text;
    size_t len;

    (void)state;
    for (int i = 0; i < FERRY_NOTIFY_MESSAGE_MAX; i++)
        body.message[i] = (char)(1 + i % 127);
    assert_ok(ferry_notify_encode(&body, &text, &len));
    assert_int_equal(strlen(text), len);
    assert_true(len <= FERRY_CONTROL_BODY_MAX);
    assert_ok(ferry_notify_decode(text, len, &back));
    assert_string_equal(back.sender, body.sender);
    assert_string_equal(back.name, body.name);
    assert_string_equal(back.message, body.message);
    free(text);
}

/* Every byte of every text needs the longest escape. */
static void test_the_longest_notification_fits_the_body_limit(void **state)
{
    struct ferry_notify_body body = {0};
    struct ferry_notify_body back;
    char *text;
    size_t len;

    (void)state;
    memset(body.sender, 1, FERRY_NOTIFY_SENDER_MAX);
    memset(body.name, 2, FERRY_NOTIFY_NAME_MAX);
    memset(body.message, 3, FERRY_NOTIFY_MESSAGE_MAX);
    assert_ok(ferry_notify_encode(&body, &text, &len));
    assert_ok(ferry_notify_decode(text, len, &back));
    assert_memory_equal(&back, &body, sizeof(body));
    free(text);
}

static void test_text_that_is_no_utf8_is_refused(void **state)
{
    struct ferry_notify_body body = {.sender = "a", .name = "b", .message = "x\xff"};
    char *text;
    size_t len;

    (void)state;
    assert_status(ferry_notify_encode(&body, &text, &len), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "message"));
}

static void expect_refused(const char *json, const char *key)
{
    struct ferry_notify_body back;

    assert_status(ferry_notify_decode(json, strlen(json), &back), FERRY_ERR_PROTOCOL);
    assert_non_null(strstr(ferry_last_error_text(), key));
}

static void test_bad_notifications_are_refused_by_key(void **state)
{
    char json[8192];
    char long_text[FERRY_NOTIFY_MESSAGE_MAX + 2];

    (void)state;
    expect_refused("", "notification");
    expect_refused("[]", "notification");
    expect_refused("{}", "sender");
    expect_refused("{\"sender\":\"a\",\"name\":\"b\"}", "message");
    expect_refused("{\"sender\":1,\"name\":\"b\",\"message\":\"c\"}", "sender");
    expect_refused("{\"sender\":\"a\",\"name\":null,\"message\":\"c\"}", "name");
    expect_refused("{\"sender\":\"a\",\"name\":\"b\",\"message\":\"c\\u0000d\"}", "notification");
    expect_refused("{\"sender\":\"a\",\"name\":\"b\",\"name\":\"b\",\"message\":\"c\"}",
                   "notification");
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    snprintf(json, sizeof(json), "{\"sender\":\"a\",\"name\":\"b\",\"message\":\"%s\"}", long_text);
    expect_refused(json, "message");
    long_text[FERRY_NOTIFY_NAME_MAX + 1] = '\0';
    snprintf(json, sizeof(json), "{\"sender\":\"%s\",\"name\":\"b\",\"message\":\"c\"}", long_text);
    expect_refused(json, "sender");
    snprintf(json, sizeof(json), "{\"sender\":\"a\",\"name\":\"%s\",\"message\":\"c\"}", long_text);
    expect_refused(json, "name");
}

static void test_unknown_keys_are_ignored(void **state)
{
    static const char json[] =
        "{\"sender\":\"\",\"priority\":[1,{}],\"name\":\"b\",\"message\":\"\"}";
    struct ferry_notify_body back;

    (void)state;
    assert_ok(ferry_notify_decode(json, sizeof(json) - 1, &back));
    assert_string_equal(back.sender, "");
    assert_string_equal(back.name, "b");
    assert_string_equal(back.message, "");
}

static void test_a_goodbye_reads_back(void **state)
{
    struct ferry_goodbye_body body = {.segment = "[::1]:15428",
                                      .incarnation = "0123456789abcdef0123456789abcdef"};
    struct ferry_goodbye_body back;
    char *text;
    size_t len;

    (void)state;
    assert_ok(ferry_goodbye_encode(&body, &text, &len));
    assert_ok(ferry_goodbye_decode(text, len, &back));
    assert_string_equal(back.segment, body.segment);
    assert_string_equal(back.incarnation, body.incarnation);
    free(text);
}

static void test_a_health_reply_reads_back_and_needs_its_members(void **state)
{
    static const char *const bad[] = {
        "{\"status\":\"UP\"}",
        "{\"segment\":\"a\",\"incarnation\":\"0123456789abcdef0123456789abcdef\"}",
        "{\"status\":\"ok\",\"segment\":\"a\",\"incarnation\":\"\"}",
    };
    struct ferry_health_body body = {.state = FERRY_HEALTH_CLOSING,
                                     .segment = "a",
                                     .incarnation = "0123456789abcdef0123456789abcdef"};
    struct ferry_health_body back;
    char *text;
    size_t len;

    (void)state;
    assert_ok(ferry_health_encode(&body, &text, &len));
    assert_ok(ferry_health_decode(text, len, &back));
    assert_string_equal(back.state, body.state);
    assert_string_equal(back.segment, body.segment);
    assert_string_equal(back.incarnation, body.incarnation);
    free(text);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_status(ferry_health_decode(bad[i], strlen(bad[i]), &back), FERRY_ERR_PROTOCOL);
}

static void test_a_goodbye_needs_a_name_and_an_incarnation(void **state)
{
    static const char *const bad[] = {
        "{\"incarnation\":\"0123456789abcdef0123456789abcdef\"}",
        "{\"segment\":\"\",\"incarnation\":\"0123456789abcdef0123456789abcdef\"}",
        "{\"segment\":\"a\"}",
        "{\"segment\":\"a\",\"incarnation\":\"0123456789abcdef0123456789abcde\"}",
        "{\"segment\":\"a\",\"incarnation\":\"0123456789abcdef0123456789abcdef0\"}",
        "{\"segment\":\"a\",\"incarnation\":\"0123456789abcdef0123456789abcdeg\"}",
        "{\"segment\":\"a\",\"incarnation\":12}",
    };
    struct ferry_goodbye_body body = {.segment = "a", .incarnation = "12"};
    struct ferry_goodbye_body back;
    char *text;
    size_t len;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_status(ferry_goodbye_decode(bad[i], strlen(bad[i]), &back), FERRY_ERR_PROTOCOL);
    assert_status(ferry_goodbye_encode(&body, &text, &len), FERRY_ERR_INVALID);

    static const char upper[] =
        "{\"segment\":\"a\",\"incarnation\":\"0123456789ABCDEF0123456789ABCDEF\"}";

    assert_ok(ferry_goodbye_decode(upper, sizeof(upper) - 1, &back));
    assert_string_equal(back.incarnation, "0123456789abcdef0123456789abcdef");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_notification_reads_back),
        cmocka_unit_test(test_the_longest_notification_fits_the_body_limit),
        cmocka_unit_test(test_text_that_is_no_utf8_is_refused),
        cmocka_unit_test(test_bad_notifications_are_refused_by_key),
        cmocka_unit_test(test_unknown_keys_are_ignored),
        cmocka_unit_test(test_a_goodbye_reads_back),
        cmocka_unit_test(test_a_goodbye_needs_a_name_and_an_incarnation),
        cmocka_unit_test(test_a_health_reply_reads_back_and_needs_its_members),
    };

    return cmocka_run_group_tests_name("control message", tests, NULL, NULL);
}
