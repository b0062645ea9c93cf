/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command reads from its arguments, and numbers as it prints them.
 */
#include "test.h"

#include <string.h>

#include "place.h"
#include "text.h"

static void test_tools_sizes_are_strict(void **state)
{
    static const char *const wrong[] = {
        "",           " 1",   "1 ",     "-1",     "+1",  "0x10", "08",
        "64M",        "64KB", "64 MiB", "1.5GiB", "MiB", "lots", "18446744073709551616",
        "16777216TiB"};
    uint64_t bytes;

    assert_true(ferry_cli_parse_size("0", &bytes) && bytes == 0);
    assert_true(ferry_cli_parse_size("4096", &bytes) && bytes == 4096);
    assert_true(ferry_cli_parse_size("4096B", &bytes) && bytes == 4096);
    assert_true(ferry_cli_parse_size("64MiB", &bytes) && bytes == 64 << 20);
    assert_true(ferry_cli_parse_size("3kB", &bytes) && bytes == 3000);
    assert_true(ferry_cli_parse_size("18446744073709551615", &bytes) && bytes == UINT64_MAX);
    assert_true(ferry_cli_parse_size("16777215TiB", &bytes));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(ferry_cli_parse_size(wrong[i], &bytes));
}

static void test_tools_places_to_listen_are_split_at_the_right_colon(void **state)
{
    static const char *const wrong[] = {"nowhere", "::1:5000",  "[::1]",
                                        "[::1",    "[]:1",      ":1",
                                        "host:",   "host:0x10", "127.0.0.1:99999",
                                        "host: 1", "[::1]x:1",  "a:b:1",
                                        ""};
    char host[16];
    uint16_t port;

    assert_true(ferry_cli_split_place("127.0.0.1:0", host, sizeof(host), &port));
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 0);
    assert_true(ferry_cli_split_place("[::1]:65535", host, sizeof(host), &port));
    assert_string_equal(host, "::1");
    assert_int_equal(port, 65535);
    assert_false(ferry_cli_split_place("abcdefghijklmnop:1", host, sizeof(host), &port));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(ferry_cli_split_place(wrong[i], host, sizeof(host), &port));
}

static void test_tools_places_in_segments_are_told_from_files(void **state)
{
    static const struct {
        const char *text;
        enum ferry_place_kind kind;
        const char *name;
        uint64_t index, offset, addr;
        bool absolute;
    } rows[] = {
        {"127.0.0.1:4000/", FERRY_PLACE_SEGMENT, "127.0.0.1:4000", 0, 0, 0, false},
        {"127.0.0.1:4000", FERRY_PLACE_SEGMENT, "127.0.0.1:4000", 0, 0, 0, false},
        {"[::1]:4000/2+64KiB", FERRY_PLACE_SEGMENT, "[::1]:4000", 2, 65536, 0, false},
        {"host:1/+7", FERRY_PLACE_SEGMENT, "host:1", 0, 7, 0, false},
        {"host:1/@0x7fAb", FERRY_PLACE_SEGMENT, "host:1", 0, 0, 0x7fab, true},
        {"host:1/@4096", FERRY_PLACE_SEGMENT, "host:1", 0, 0, 4096, true},
        {"ferry://node7", FERRY_PLACE_SEGMENT, "node7", 0, 0, 0, false},
        {"ferry://node7/3", FERRY_PLACE_SEGMENT, "node7", 3, 0, 0, false},
        {"ferry://a/b/+1", FERRY_PLACE_SEGMENT, "a/b", 0, 1, 0, false},
        {"file:///tmp/a+b/2", FERRY_PLACE_SEGMENT, "file:///tmp/a+b/2", 0, 0, 0, false},
        {"file://a", FERRY_PLACE_SEGMENT, "file://a", 0, 0, 0, false},
        {"file://", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"node7/3", FERRY_PLACE_FILE, NULL, 0, 0, 0, false},
        {"./host:1/2", FERRY_PLACE_FILE, NULL, 0, 0, 0, false},
        {"/tmp/host:1/2", FERRY_PLACE_FILE, NULL, 0, 0, 0, false},
        {"host:1/file", FERRY_PLACE_FILE, NULL, 0, 0, 0, false},
        {"", FERRY_PLACE_FILE, NULL, 0, 0, 0, false},
        {"ferry://", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/x", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/1+", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/@0x", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/@0x10000000000000000", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/@-1", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
        {"ferry://node7/18446744073709551616", FERRY_PLACE_WRONG, NULL, 0, 0, 0, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ferry_place place;

        if (ferry_place_parse(rows[i].text, &place) != rows[i].kind)
            fail_msg("\"%s\" was read as something else", rows[i].text);
        if (rows[i].kind != FERRY_PLACE_SEGMENT)
            continue;
        assert_string_equal(place.name, rows[i].name);
        assert_int_equal(place.absolute, rows[i].absolute);
        assert_int_equal(place.index, rows[i].index);
        assert_int_equal(place.offset, rows[i].offset);
        if (place.absolute)
            assert_int_equal(place.addr, rows[i].addr);
    }
}

static void test_tools_a_name_of_any_length_fits_or_is_refused(void **state)
{
    char text[6000] = "ferry://";
    struct ferry_place place;

    memset(text + 8, 'n', sizeof(text) - 9);
    for (size_t len = 1; len < 5000; len++) {
        char kept = text[8 + len];

        text[8 + len] = '\0';
        assert_int_equal(ferry_place_parse(text, &place),
                         len < sizeof(place.name) ? FERRY_PLACE_SEGMENT : FERRY_PLACE_WRONG);
        text[8 + len] = kept;
    }
}

static void test_tools_numbers_for_people(void **state)
{
    char buf[FERRY_CLI_TEXT_SIZE];

    assert_string_equal(ferry_cli_size(0, buf), "0 B");
    assert_string_equal(ferry_cli_size(1023, buf), "1023 B");
    assert_string_equal(ferry_cli_size(1024, buf), "1 KiB");
    assert_string_equal(ferry_cli_size(1536, buf), "1.50 KiB");
    assert_string_equal(ferry_cli_size(UINT64_C(64) << 20, buf), "64 MiB");
    assert_string_equal(ferry_cli_size(UINT64_MAX, buf), "16 EiB");
    assert_string_equal(ferry_cli_rate(3.214e9, buf), "3.21 GB/s");
    assert_string_equal(ferry_cli_rate(0, buf), "0.0 kB/s");
    assert_string_equal(ferry_cli_duration(7.4, buf), "0:07");
    assert_string_equal(ferry_cli_duration(3723, buf), "1:02:03");
    assert_string_equal(ferry_cli_duration(-1, buf), "--:--");
    assert_string_equal(ferry_cli_duration(1e300, buf), "--:--");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools_sizes_are_strict),
        cmocka_unit_test(test_tools_places_to_listen_are_split_at_the_right_colon),
        cmocka_unit_test(test_tools_places_in_segments_are_told_from_files),
        cmocka_unit_test(test_tools_a_name_of_any_length_fits_or_is_refused),
        cmocka_unit_test(test_tools_numbers_for_people),
    };

    return cmocka_run_group_tests_name("tools_text", tests, NULL, NULL);
}
