/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host and port. The tables hold the good and the bad forms of field report B26: a literal with a
 * port was cut at the wrong colon there, and the rest was looked up as a name.
 */
#include "base/hostport.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_hostport_good_forms(void **state)
{
    static const struct {
        const char *text;
        enum ferry_host_kind kind;
        const char *host;
        uint16_t port;
        bool port_given;
        const char *printed;
    } rows[] = {
        /* field report B26 */
        {"[::1]:17000", FERRY_HOST_IPV6, "::1", 17000, true, "[::1]:17000"},
        {"::1", FERRY_HOST_IPV6, "::1", 5000, false, "[::1]:5000"},
        {"[::1]", FERRY_HOST_IPV6, "::1", 5000, false, "[::1]:5000"},
        {"::ffff:127.0.0.1", FERRY_HOST_IPV6, "::ffff:127.0.0.1", 5000, false,
         "[::ffff:127.0.0.1]:5000"},
        {"[fe80::a%veth0]:9", FERRY_HOST_IPV6, "fe80::a%veth0", 9, true, "[fe80::a%veth0]:9"},
        {"fe80::a%veth0", FERRY_HOST_IPV6, "fe80::a%veth0", 5000, false, "[fe80::a%veth0]:5000"},
        {"[::]:1", FERRY_HOST_IPV6, "::", 1, true, "[::]:1"},
        {"[2001:DB8:0:0:0:0:0:1]:65535", FERRY_HOST_IPV6, "2001:db8::1", 65535, true,
         "[2001:db8::1]:65535"},
        {"[::FFFF:10.0.0.1]:80", FERRY_HOST_IPV6, "::ffff:10.0.0.1", 80, true,
         "[::ffff:10.0.0.1]:80"},
        {"[ff02::1%2]:80", FERRY_HOST_IPV6, "ff02::1%2", 80, true, "[ff02::1%2]:80"},
        {"127.0.0.1:1", FERRY_HOST_IPV4, "127.0.0.1", 1, true, "127.0.0.1:1"},
        {"0.0.0.0", FERRY_HOST_IPV4, "0.0.0.0", 5000, false, "0.0.0.0:5000"},
        {"localhost:80", FERRY_HOST_NAME, "localhost", 80, true, "localhost:80"},
        {"node-7.rack_2.example.", FERRY_HOST_NAME, "node-7.rack_2.example.", 5000, false,
         "node-7.rack_2.example.:5000"},
        {"7node:80", FERRY_HOST_NAME, "7node", 80, true, "7node:80"},
        {"10.0.0.1.example:80", FERRY_HOST_NAME, "10.0.0.1.example", 80, true,
         "10.0.0.1.example:80"},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_hostport place, again;
        char printed[FERRY_HOSTPORT_SIZE];

        if (ferry_hostport_parse(rows[i].text, 5000, 0, &place) != FERRY_OK)
            fail_msg("%s: %s", rows[i].text, ferry_last_error_text());
        assert_string_equal(place.host, rows[i].host);
        assert_int_equal(place.kind, rows[i].kind);
        assert_int_equal(place.port, rows[i].port);
        assert_int_equal(place.port_given, rows[i].port_given);

        /* What is published reads back to the same place. */
        ferry_hostport_format(&place, printed, sizeof(printed));
        assert_string_equal(printed, rows[i].printed);
        assert_int_equal(ferry_hostport_parse(printed, 1, FERRY_HOSTPORT_NEED_PORT, &again),
                         FERRY_OK);
        assert_string_equal(again.host, place.host);
        assert_int_equal(again.kind, place.kind);
        assert_int_equal(again.port, place.port);
    }
}

/* A whole address that only looks like a shorter one with a port. */
static void test_hostport_never_cuts_a_bare_literal(void **state)
{
    struct ferry_hostport place;
    struct sockaddr_storage addr;
    struct in6_addr want;
    socklen_t len = 0;

    (void)state;
    assert_int_equal(ferry_hostport_parse("::1:5000", 80, 0, &place), FERRY_OK);
    assert_int_equal(place.kind, FERRY_HOST_IPV6);
    assert_int_equal(place.port, 80);
    assert_false(place.port_given);
    assert_int_equal(ferry_hostport_sockaddr(&place, &addr, &len), FERRY_OK);
    assert_int_equal(inet_pton(AF_INET6, "0:0:0:0:0:0:1:5000", &want), 1);
    assert_memory_equal(&((struct sockaddr_in6 *)&addr)->sin6_addr, &want, sizeof(want));
}

static void test_hostport_bad_forms_are_quoted(void **state)
{
    static const char *const rows[] = {
        /* field report B26 */
        "::1:5000:",
        "[::1",
        "[::1]x",
        "[::1]:",
        "127.0.0.1:99999",
        "host:0x10",
        "",
        ":",
        ":80",
        "host:",
        "host:0",
        "host:65536",
        "host:080",
        "host:+80",
        "host: 80",
        "host:80 ",
        " host:80",
        "host:http",
        "host:80:",
        "host:80:90",
        "a:b:c",
        "[]",
        "[]:80",
        "[host]:80",
        "[127.0.0.1]:80",
        "[::1]]:80",
        "[[::1]]:80",
        "::1]",
        "::1]:80",
        "::g",
        "1:2:3:4:5:6:7:8:9",
        "[::1%]:80",
        "[::1%lo]:80",
        "[fe80::1%]:80",
        "[fe80::1%a/b]:80",
        "[fe80::1%interface-name-too-long]:80",
        "[fe80::1%25%lo]:80",
        "127.0.0.1%lo:80",
        "127.0.0.256",
        "127.0.0",
        "1.2.3",
        "127.1:80",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "1.2.3.4.5",
        "host..example",
        ".host",
        "-host",
        "host-",
        "a.-b",
        "ho st",
        "host/x",
        "h\xc3\xa9",
        "user@host",
        "*",
        "*:80",
        "host\n:80",
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_hostport place = {.port = 77};

        if (ferry_hostport_parse(rows[i], 5000, 0, &place) != FERRY_ERR_INVALID)
            fail_msg("\"%s\" was taken for %s", rows[i], place.host);
        assert_int_equal(place.port, 77);
        assert_string_equal(place.host, "");
        if (strchr(rows[i], '\n') == NULL)
            assert_non_null(strstr(ferry_last_error_text(), rows[i]));
    }
}

static void test_hostport_lengths_are_bounded(void **state)
{
    struct ferry_hostport place;
    char text[600];

    (void)state;
    memset(text, 'a', sizeof(text));
    text[63] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_OK);
    text[63] = 'a';
    text[64] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_ERR_INVALID);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 50 == 49 ? '.' : 'a';
    text[253] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_OK);
    text[253] = 'a';
    text[254] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_ERR_INVALID);
    text[254] = 'a';
    text[599] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_ERR_INVALID);
    memset(text, ':', sizeof(text) - 1);
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_ERR_INVALID);
    text[0] = '[';
    text[500] = ']';
    text[501] = '\0';
    assert_int_equal(ferry_hostport_parse(text, 1, 0, &place), FERRY_ERR_INVALID);
}

static void test_hostport_flags_decide_about_the_port(void **state)
{
    struct ferry_hostport place;

    (void)state;
    assert_int_equal(ferry_hostport_parse("[::1]:0", 1, FERRY_HOSTPORT_ZERO_PORT, &place),
                     FERRY_OK);
    assert_int_equal(place.port, 0);
    assert_true(place.port_given);
    assert_int_equal(ferry_hostport_parse("h:00", 1, FERRY_HOSTPORT_ZERO_PORT, &place),
                     FERRY_ERR_INVALID);
    assert_int_equal(ferry_hostport_parse("host", 1, FERRY_HOSTPORT_NEED_PORT, &place),
                     FERRY_ERR_INVALID);
    assert_int_equal(ferry_hostport_parse("::1", 1, FERRY_HOSTPORT_NEED_PORT, &place),
                     FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "brackets"));
    assert_int_equal(ferry_host_parse("[::1]", &place), FERRY_OK);
    assert_string_equal(place.host, "::1");
    assert_int_equal(ferry_host_parse("[::1]:80", &place), FERRY_ERR_INVALID);
    assert_int_equal(ferry_host_parse("h:80", &place), FERRY_ERR_INVALID);
}

static void test_hostport_socket_addresses_go_both_ways(void **state)
{
    static const char *const rows[] = {"127.0.0.1:80", "[2001:db8::1]:65535", "[fe80::1%lo]:1",
                                       "[::]:9", "0.0.0.0:9"};

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_hostport place, again;
        struct sockaddr_storage addr;
        char printed[FERRY_HOSTPORT_SIZE];
        socklen_t len = 0;

        assert_int_equal(ferry_hostport_parse(rows[i], 1, 0, &place), FERRY_OK);
        if (ferry_hostport_sockaddr(&place, &addr, &len) != FERRY_OK)
            fail_msg("%s: %s", rows[i], ferry_last_error_text());
        assert_int_equal(len, place.kind == FERRY_HOST_IPV4 ? sizeof(struct sockaddr_in)
                                                            : sizeof(struct sockaddr_in6));
        assert_int_equal(ferry_hostport_of_sockaddr((struct sockaddr *)&addr, &again), FERRY_OK);
        ferry_hostport_format(&again, printed, sizeof(printed));
        assert_string_equal(printed, rows[i]);
    }
}

static void test_hostport_socket_addresses_that_cannot_be(void **state)
{
    struct ferry_hostport place;
    struct sockaddr_storage addr = {.ss_family = AF_UNIX};
    socklen_t len = 0;

    (void)state;
    assert_int_equal(ferry_hostport_of_sockaddr((struct sockaddr *)&addr, &place),
                     FERRY_ERR_UNSUPPORTED);
    assert_int_equal(ferry_hostport_parse("localhost:1", 1, 0, &place), FERRY_OK);
    assert_int_equal(ferry_hostport_sockaddr(&place, &addr, &len), FERRY_ERR_INVALID);
    assert_int_equal(ferry_hostport_parse("[fe80::1%no-such-if]:1", 1, 0, &place), FERRY_OK);
    assert_int_equal(ferry_hostport_sockaddr(&place, &addr, &len), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "no-such-if"));

    /* A zone may be a number. */
    assert_int_equal(ferry_hostport_parse("[fe80::1%1]:1", 1, 0, &place), FERRY_OK);
    assert_int_equal(ferry_hostport_sockaddr(&place, &addr, &len), FERRY_OK);
    assert_int_equal(((struct sockaddr_in6 *)&addr)->sin6_scope_id, 1);
    assert_int_equal(ferry_hostport_parse("[fe80::1%99999999999]:1", 1, 0, &place), FERRY_OK);
    assert_int_equal(ferry_hostport_sockaddr(&place, &addr, &len), FERRY_ERR_INVALID);
}

static void test_hostport_wildcards_and_loopback_are_known(void **state)
{
    static const struct {
        const char *text;
        bool wildcard, loopback;
    } rows[] = {
        {"0.0.0.0", true, false},
        {"::", true, false},
        {"::ffff:0.0.0.0", true, false},
        {"127.0.0.1", false, true},
        {"127.255.3.4", false, true},
        {"::1", false, true},
        {"::ffff:127.0.0.1", false, true},
        {"localhost", false, true},
        {"10.0.0.1", false, false},
        {"fe80::1%lo", false, false},
        {"node", false, false},
        {"128.0.0.1", false, false},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_hostport place;

        assert_int_equal(ferry_host_parse(rows[i].text, &place), FERRY_OK);
        assert_int_equal(ferry_hostport_is_wildcard(&place), rows[i].wildcard);
        assert_int_equal(ferry_hostport_is_loopback(&place), rows[i].loopback);
    }
}

static void test_hostport_in_a_url(void **state)
{
    static const char *const rows[][2] = {
        {"node:80", "node:80"},
        {"10.0.0.1:80", "10.0.0.1:80"},
        {"[::1]:80", "[::1]:80"},
        {"[fe80::1%eth0]:80", "[fe80::1%25eth0]:80"},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_hostport place;
        char printed[FERRY_HOSTPORT_SIZE];

        assert_int_equal(ferry_hostport_parse(rows[i][0], 1, 0, &place), FERRY_OK);
        ferry_hostport_format_url(&place, printed, sizeof(printed));
        assert_string_equal(printed, rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostport_good_forms),
        cmocka_unit_test(test_hostport_never_cuts_a_bare_literal),
        cmocka_unit_test(test_hostport_bad_forms_are_quoted),
        cmocka_unit_test(test_hostport_lengths_are_bounded),
        cmocka_unit_test(test_hostport_flags_decide_about_the_port),
        cmocka_unit_test(test_hostport_socket_addresses_go_both_ways),
        cmocka_unit_test(test_hostport_socket_addresses_that_cannot_be),
        cmocka_unit_test(test_hostport_wildcards_and_loopback_are_known),
        cmocka_unit_test(test_hostport_in_a_url),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
