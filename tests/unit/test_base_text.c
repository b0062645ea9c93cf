/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The string builder, and the parsers of numbers, sizes, durations and hexadecimal.
 */
#include "base/text.h"

#include "base/clock.h"
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_text_builder_leaves_out_what_does_not_fit(void **state)
{
    char buf[16];
    struct ferry_text text;

    (void)state;
    memset(buf, 0xa5, sizeof(buf));
    ferry_text_init(&text, buf, 10);
    assert_string_equal(text.data, "");
    ferry_text_add(&text, "abc");
    ferry_text_addf(&text, "%d", 12345);
    assert_string_equal(text.data, "abc12345");
    ferry_text_add(&text, "xy"); /* one too many */
    assert_true(text.cut);
    ferry_text_add(&text, "z"); /* would fit, but would hide the hole */
    assert_string_equal(text.data, "abc12345");
    assert_int_equal(text.len, 8);
    for (size_t i = 10; i < sizeof(buf); i++)
        assert_int_equal((unsigned char)buf[i], 0xa5);

    ferry_text_init(&text, buf, 10);
    ferry_text_add(&text, "123456789");
    assert_false(text.cut);
    ferry_text_addf(&text, "%s", "");
    assert_false(text.cut);
    ferry_text_addf(&text, "%d", 0);
    assert_true(text.cut);
    assert_string_equal(buf, "123456789");
}

static void test_text_builder_grows_to_its_bound(void **state)
{
    struct ferry_text text;
    char *string = NULL;
    size_t len = 0;

    (void)state;
    ferry_text_init_heap(&text, 5001);
    for (int i = 0; i < 1000; i++)
        ferry_text_addf(&text, "%05d", i);
    assert_false(text.cut);
    assert_int_equal(ferry_text_take(&text, &string, &len), FERRY_OK);
    assert_int_equal(len, 5000);
    for (int i = 0; i < 1000; i++) {
        char want[16];

        snprintf(want, sizeof(want), "%05d", i);
        assert_memory_equal(string + 5 * i, want, 5);
    }
    free(string);

    /* Taken: empty, and usable again. */
    assert_int_equal(ferry_text_take(&text, &string, &len), FERRY_OK);
    assert_string_equal(string, "");
    free(string);
    for (int i = 0; i < 1001; i++)
        ferry_text_addf(&text, "%05d", i);
    assert_true(text.cut);
    assert_int_equal(ferry_text_take(&text, &string, &len), FERRY_ERR_TOO_LARGE);
    ferry_text_fini(&text);
    ferry_text_fini(&text);
}

static void test_text_json_strings_are_escaped(void **state)
{
    char buf[64];
    struct ferry_text text;

    (void)state;
    ferry_text_init(&text, buf, sizeof(buf));
    ferry_text_add_json(&text, "a\"b\\c\n\x01\xc3\xa9\xff");
    assert_string_equal(buf, "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\xef\xbf\xbd\"");
}

static void test_u64_parse_is_strict(void **state)
{
    static const char *const bad[] = {
        "",
        " 1",
        "1 ",
        "+1",
        "-1",
        "-0",
        "01",
        "00",
        "0x1",
        "1.0",
        "1e3",
        "1,000",
        "18446744073709551616",
        "99999999999999999999",
        "\xd9\xa1",
    };
    uint64_t value = 77;

    (void)state;
    assert_int_equal(ferry_u64_parse("0", &value), FERRY_OK);
    assert_true(value == 0);
    assert_int_equal(ferry_u64_parse("18446744073709551615", &value), FERRY_OK);
    assert_true(value == UINT64_MAX);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++) {
        assert_int_equal(ferry_u64_parse(bad[i], &value), FERRY_ERR_INVALID);
        assert_non_null(strstr(ferry_last_error_text(), bad[i]));
    }
    assert_true(value == UINT64_MAX);
}

static void test_sizes_parse_and_print(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        const char *printed;
    } good[] = {
        {"0", 0, "0"},
        {"4096", 4096, "4KiB"},
        {"4097B", 4097, "4097"},
        {"64MiB", 64ULL << 20, "64MiB"},
        {"1GiB", 1ULL << 30, "1GiB"},
        {"1024GiB", 1ULL << 40, "1TiB"},
        {"3KiB", 3072, "3KiB"},
        {"1kB", 1000, "1kB"},
        {"5MB", 5000000, "5MB"},
        {"2GB", 2000000000, "2GB"},
        {"1TB", 1000000000000, "1TB"},
        {"1500", 1500, "1500"},
        {"1024000", 1024000, "1000KiB"},
        {"16383PiB", 16383ULL << 50, "16383PiB"},
        {"18446744073709551615", UINT64_MAX, "18446744073709551615"},
    };
    static const char *const bad[] = {
        "",
        "B",
        "MiB",
        "64M",
        "64MB ",
        "64 MiB",
        "64KB",
        "64mib",
        "-1",
        "1.5GiB",
        "0x10",
        "064",
        "16384PiB",
        "18446744073709551616",
        "18446744073709551615kB",
        "1MiBB",
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(good); i++) {
        char printed[FERRY_SIZE_TEXT_SIZE];
        uint64_t bytes = 77, again = 78;

        assert_int_equal(ferry_size_parse(good[i].text, &bytes), FERRY_OK);
        assert_true(bytes == good[i].bytes);
        ferry_size_format(bytes, printed, sizeof(printed));
        assert_string_equal(printed, good[i].printed);
        assert_int_equal(ferry_size_parse(printed, &again), FERRY_OK);
        assert_true(again == bytes);
    }
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++) {
        uint64_t bytes = 77;

        assert_int_equal(ferry_size_parse(bad[i], &bytes), FERRY_ERR_INVALID);
        assert_true(bytes == 77);
        assert_non_null(strstr(ferry_last_error_text(), bad[i]));
    }
}

static void test_durations_parse_and_print(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
        const char *printed;
    } good[] = {
        {"0", 0, "0"},
        {"0s", 0, "0"},
        {"7ns", 7, "7ns"},
        {"50us", 50000, "50us"},
        {"500ms", 500 * FERRY_NS_PER_MS, "500ms"},
        {"0.5s", 500 * FERRY_NS_PER_MS, "500ms"},
        {"1.5ms", 1500000, "1500us"},
        {"1.000000001s", 1000000001, "1000000001ns"},
        {"1.50min", 90 * FERRY_NS_PER_S, "90s"},
        {"2h", 7200 * FERRY_NS_PER_S, "2h"},
        {"1d", 86400 * FERRY_NS_PER_S, "1d"},
        {"3600s", 3600 * FERRY_NS_PER_S, "1h"},
    };
    static const char *const bad[] = {
        "",
        "5",
        "s",
        "-1s",
        "1.s",
        ".5s",
        "1..5s",
        "1.2.3s",
        "1 s",
        "1S",
        "1m",
        "0.5ns",
        "1.0000000001s",
        "0.00000000001ns",
        "300000d",
        "18446744073709551615ns",
        "0.0",
        "1e3s",
        "1msx",
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(good); i++) {
        char printed[FERRY_DURATION_TEXT_SIZE];
        uint64_t ns = 77, again = 78;

        assert_int_equal(ferry_duration_parse(good[i].text, &ns), FERRY_OK);
        assert_true(ns == good[i].ns);
        ferry_duration_format(ns, printed, sizeof(printed));
        assert_string_equal(printed, good[i].printed);
        assert_int_equal(ferry_duration_parse(printed, &again), FERRY_OK);
        assert_true(again == ns);
    }
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++) {
        uint64_t ns = 77;

        if (ferry_duration_parse(bad[i], &ns) != FERRY_ERR_INVALID)
            fail_msg("\"%s\" was taken for a duration", bad[i]);
        assert_true(ns == 77);
    }
}

static void test_hex_goes_both_ways(void **state)
{
    static const char *const bad[] = {"0", "0g", "g0", " 00", "0x00", "000"};
    unsigned char bytes[256], back[257];
    char text[513];
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
    memset(back, 0xa5, sizeof(back));
    ferry_hex_encode(bytes, sizeof(bytes), text);
    assert_int_equal(strlen(text), 512);
    assert_memory_equal(text, "030a11", 6);
    assert_int_equal(ferry_hex_decode(text, back, 255, &len), FERRY_ERR_INVALID);
    assert_int_equal(back[0], 0xa5);
    assert_int_equal(ferry_hex_decode(text, back, 256, &len), FERRY_OK);
    assert_int_equal(len, 256);
    assert_memory_equal(back, bytes, 256);
    assert_int_equal(back[256], 0xa5);
    assert_int_equal(ferry_hex_decode("aBCdeF", back, 3, &len), FERRY_OK);
    assert_memory_equal(back, "\xab\xcd\xef", 3);
    assert_int_equal(ferry_hex_decode("", back, 0, &len), FERRY_OK);
    assert_int_equal(len, 0);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++)
        assert_int_equal(ferry_hex_decode(bad[i], back, sizeof(back), &len), FERRY_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_builder_leaves_out_what_does_not_fit),
        cmocka_unit_test(test_text_builder_grows_to_its_bound),
        cmocka_unit_test(test_text_json_strings_are_escaped),
        cmocka_unit_test(test_u64_parse_is_strict),
        cmocka_unit_test(test_sizes_parse_and_print),
        cmocka_unit_test(test_durations_parse_and_print),
        cmocka_unit_test(test_hex_goes_both_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
