/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON: what is refused, what is exact, and which field an error names. The tables hold what
 * json-c alone would take or change.
 */
#include "base/json.h"

#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ferry_json_limits limits = {
    .text_bytes_max = 1U << 20,
    .memory_bytes_max = 64U << 20,
    .depth_max = 8,
};

/* From a buffer of exactly the text's size: a byte read behind it is a sanitizer's report. */
static enum ferry_status parse_bytes(const char *text, size_t len, struct ferry_json *root_out)
{
    char *copy = malloc(len > 0 ? len : 1);

    assert_non_null(copy);
    memcpy(copy, text, len);
    enum ferry_status status = ferry_json_parse(&limits, "doc", copy, len, root_out);

    free(copy);
    return status;
}

static enum ferry_status parse(const char *text, struct ferry_json *root_out)
{
    return parse_bytes(text, strlen(text), root_out);
}

static void test_json_takes_what_rfc_8259_allows(void **state)
{
    static const char *const good[] = {
        "null",
        "true",
        " false ",
        "0",
        "-0",
        "18446744073709551615",
        "-9223372036854775808",
        "1.0",
        "1e3",
        "1E+3",
        "0.5e-7",
        "-0.0",
        "100000000000000000000000000.0", /* a fraction may be large */
        "\"\"",
        "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\xa2\"",
        "\"\\u00e9 \\ud83d\\udea2 \\\" \\\\ \\/ \\b\\f\\n\\r\\t\"",
        "[]",
        "{}",
        "\t[ 1 ,\r\n 2 ] ",
        "{\"a\":{\"a\":{\"a\":1}},\"b\":[{\"a\":1},{\"a\":2}]}", /* equal keys, other objects */
        "{\"\":1}",
        "[[[[[[[[1]]]]]]]]",
        "\"\x7f\"",
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(good); i++) {
        struct ferry_json root = {0};

        if (parse(good[i], &root) != FERRY_OK)
            fail_msg("%s: %s", good[i], ferry_last_error_text());
        ferry_json_free(&root);
    }
}

static void test_json_refuses_everything_else(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "{\"a\":Infinity}",
        "1e999",
        "[-1e999]",
        "99999999999999999999",
        "18446744073709551616",
        "-9223372036854775809",
        "[1,184467440737095516150]",
        "01",
        "-01",
        "00",
        "+1",
        "-",
        ".5",
        "1.",
        "1.e1",
        "1e",
        "1e+",
        "0x10",
        "1_000",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\u0000\"",
        "\"\\ud83d\"",
        "\"\\ud83dx\"",
        "\"\\ud83d\\n\"",
        "\"\\ud83d\\u0041\"",
        "\"\\udea2\"",
        "\"\n\"",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xe2\x82\"",
        "\xef\xbb\xbf{}",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{1:1}",
        "{\"a\" 1}",
        "{\"a\":1]",
        "]",
        "{} {}",
        "{}x",
        "[] ,",
        "1 2",
        "/* c */ 1",
        "1 // c",
        "[[[[[[[[[1]]]]]]]]]", /* one deeper than allowed */
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"b\":2,\"\\u0061\":3}", /* the same key, spelled otherwise */
        "[{\"x\":{\"k\":[],\"j\":0,\"k\":{}}}]",
        "{\"\":1,\"\":2}",
        "\f1",
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++) {
        struct ferry_json root = {0};
        enum ferry_status status = parse(bad[i], &root);

        if (status != FERRY_ERR_INVALID)
            fail_msg("%s: %s (%s)", bad[i], ferry_status_name(status), ferry_last_error_text());
        assert_null(root.value);
    }
}

static void test_json_refuses_nul_bytes(void **state)
{
    static const char in_string[] = "\"a\0b\"";
    static const char behind[] = "{}\0";
    static const char between[] = "[1,\0 2]";
    struct ferry_json root = {0};

    (void)state;
    assert_int_equal(parse_bytes(in_string, sizeof(in_string) - 1, &root), FERRY_ERR_INVALID);
    assert_int_equal(parse_bytes(behind, sizeof(behind) - 1, &root), FERRY_ERR_INVALID);
    assert_int_equal(parse_bytes(between, sizeof(between) - 1, &root), FERRY_ERR_INVALID);
}

static void test_json_every_prefix_of_a_document_is_refused(void **state)
{
    static const char text[] =
        "{\"name\":\"n\\u00e9\",\"buffers\":[{\"addr\":18446744073709551615,\"x\":[1.5e3,null]}],"
        "\"ok\":true}";
    struct ferry_json root = {0};

    (void)state;
    for (size_t len = 0; len < sizeof(text) - 1; len++)
        assert_int_equal(parse_bytes(text, len, &root), FERRY_ERR_INVALID);
    assert_int_equal(parse_bytes(text, sizeof(text) - 1, &root), FERRY_OK);
    ferry_json_free(&root);
}

static void test_json_errors_say_where(void **state)
{
    struct ferry_json root = {0};

    (void)state;
    assert_int_equal(parse("{\n  \"a\": 1,\n  \"b\": 01\n}", &root), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(),
                        "doc: not JSON at line 3, column 8: a number with a leading zero");
    assert_int_equal(parse("{\"a\":1,\n\"bc\":{\"a\":1},\n\"b\\u0063\":3}", &root),
                     FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(),
                        "doc: not JSON at line 3, column 1: the key \"b\\u0063\" occurs twice");
}

/* It is a wrong value more often than a broken text, so the text says whose and which. */
static void test_json_numbers_out_of_range_are_named(void **state)
{
    struct ferry_json root = {0};

    (void)state;
    assert_int_equal(parse("{\"a\":1,\"big\":18446744073709551616}", &root), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "18446744073709551616"));
    assert_non_null(strstr(ferry_last_error_text(), "\"big\""));
    assert_int_equal(parse("[-9223372036854775809]", &root), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "-9223372036854775809"));
}

static void test_json_size_and_memory_are_bounded(void **state)
{
    struct ferry_json_limits tight = {
        .text_bytes_max = 64, .memory_bytes_max = 4096, .depth_max = 4};
    struct ferry_json root = {0};
    char text[65];

    (void)state;
    memset(text, ' ', sizeof(text));
    text[0] = '1';
    assert_int_equal(ferry_json_parse(&tight, "doc", text, 64, &root), FERRY_OK);
    ferry_json_free(&root);
    assert_int_equal(ferry_json_parse(&tight, "doc", text, 65, &root), FERRY_ERR_TOO_LARGE);

    /* Three bytes of text each, hundreds of bytes of tree. */
    static const char bushy[] = "[{},{},{},{},{},{},{},{},{},{},{},{},{},{}]";

    assert_int_equal(ferry_json_parse(&tight, "doc", bushy, sizeof(bushy) - 1, &root),
                     FERRY_ERR_TOO_LARGE);
    assert_null(root.value);
}

static void test_json_u64_is_exact_both_ways(void **state)
{
    static const uint64_t values[] = {
        0, 1, 9007199254740993ULL, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(values); i++) {
        struct json_object *object = json_object_new_object();
        struct ferry_json root = {0};
        uint64_t value = 0;
        char *text = NULL;
        size_t len = 0;

        assert_true(ferry_json_put_u64(object, "v", values[i]));
        assert_int_equal(ferry_json_print(object, 100, &text, &len), FERRY_OK);
        json_object_put(object);
        assert_int_equal(len, strlen(text));
        assert_int_equal(ferry_json_parse(&limits, "doc", text, len, &root), FERRY_OK);
        assert_int_equal(ferry_json_u64(&root, "v", 0, UINT64_MAX, &value), FERRY_OK);
        assert_true(value == values[i]);
        ferry_json_free(&root);
        free(text);
    }
}

static void test_json_whole_numbers_are_read_from_whole_numbers(void **state)
{
    static const struct {
        const char *text;
        bool u64, i64;
    } rows[] = {
        {"{\"v\":0}", true, true},
        {"{\"v\":18446744073709551615}", true, false},
        {"{\"v\":9223372036854775808}", true, false},
        {"{\"v\":9223372036854775807}", true, true},
        {"{\"v\":-1}", false, true},
        {"{\"v\":-9223372036854775808}", false, true},
        {"{\"v\":1.0}", false, false},
        {"{\"v\":1e3}", false, false},
        {"{\"v\":\"1\"}", false, false},
        {"{\"v\":true}", false, false},
        {"{\"v\":null}", false, false},
        {"{\"v\":[1]}", false, false},
        {"{\"v\":{}}", false, false},
        {"{}", false, false},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_json root = {0};
        uint64_t u64 = 77;
        int64_t i64 = 77;

        assert_int_equal(parse(rows[i].text, &root), FERRY_OK);
        assert_int_equal(ferry_json_u64(&root, "v", 0, UINT64_MAX, &u64),
                         rows[i].u64 ? FERRY_OK : FERRY_ERR_INVALID);
        assert_int_equal(ferry_json_i64(&root, "v", INT64_MIN, INT64_MAX, &i64),
                         rows[i].i64 ? FERRY_OK : FERRY_ERR_INVALID);
        assert_true(rows[i].u64 || u64 == 77);
        assert_true(rows[i].i64 || i64 == 77);
        ferry_json_free(&root);
    }
}

static void test_json_ranges_are_checked_at_their_edges(void **state)
{
    struct ferry_json root = {0};
    uint64_t u64 = 0;
    int64_t i64 = 0;

    (void)state;
    assert_int_equal(parse("{\"a\":65535,\"b\":65536,\"c\":-5}", &root), FERRY_OK);
    assert_int_equal(ferry_json_u64(&root, "a", 1, 65535, &u64), FERRY_OK);
    assert_int_equal(ferry_json_u64(&root, "b", 1, 65535, &u64), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(),
                        "doc: b: expected a whole number 1..65535, found 65536");
    assert_int_equal(ferry_json_u64(&root, "a", 65536, UINT64_MAX, &u64), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_i64(&root, "c", -5, 0, &i64), FERRY_OK);
    assert_true(i64 == -5);
    assert_int_equal(ferry_json_i64(&root, "c", -4, 0, &i64), FERRY_ERR_INVALID);
    ferry_json_free(&root);
}

static void test_json_errors_name_the_path(void **state)
{
    static const char text[] = "{\"buffers\":[{},{\"addr\":-1,\"attrs\":[[5,\"x\"],[\"y\"]]}]}";
    struct ferry_json root = {0}, buffers, buffer, attrs, pair, item;
    uint64_t value = 0;
    const char *string = NULL;

    (void)state;
    assert_int_equal(parse(text, &root), FERRY_OK);
    assert_int_equal(ferry_json_array(&root, "buffers", &buffers), FERRY_OK);
    assert_int_equal(ferry_json_len(&buffers), 2);
    buffer = ferry_json_item(&buffers, 1);
    assert_int_equal(ferry_json_u64(&buffer, "addr", 0, UINT64_MAX, &value), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(), "doc: buffers[1].addr: expected a whole number "
                                                 "0..18446744073709551615, found -1");
    assert_int_equal(ferry_json_string(&buffer, "location", 63, &string), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(), "doc: buffers[1].location: missing");
    assert_int_equal(ferry_json_array(&buffer, "attrs", &attrs), FERRY_OK);
    pair = ferry_json_item(&attrs, 1);
    item = ferry_json_item(&pair, 0);
    assert_int_equal(ferry_json_as_u64(&item, 0, 9, &value), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(), "doc: buffers[1].attrs[1][0]: expected a whole "
                                                 "number 0..9, found \"y\"");
    /* A member of what is no object: the caller forgot nothing, the document is wrong. */
    assert_int_equal(ferry_json_u64(&item, "z", 0, 9, &value), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(),
                        "doc: buffers[1].attrs[1][0]: expected an object, found \"y\"");
    assert_int_equal(ferry_json_fail(&root, "odd"), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(), "doc: odd");

    char path[16];

    ferry_json_path(&item, path, sizeof(path));
    assert_string_equal(path, "[1].attrs[1][0]");
    ferry_json_free(&root);
}

static void test_json_strings_bools_and_containers_are_typed(void **state)
{
    struct ferry_json root = {0}, member;
    const char *string = NULL;
    bool yes = false;

    (void)state;
    assert_int_equal(parse("{\"s\":\"\\u00e9x\",\"b\":true,\"n\":null,\"o\":{},\"a\":[]}", &root),
                     FERRY_OK);
    assert_int_equal(ferry_json_string(&root, "s", 3, &string), FERRY_OK);
    assert_string_equal(string, "\xc3\xa9x");
    assert_int_equal(ferry_json_string(&root, "s", 2, &string), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_string(&root, "b", 9, &string), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_string(&root, "n", 9, &string), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_bool(&root, "b", &yes), FERRY_OK);
    assert_true(yes);
    assert_int_equal(ferry_json_bool(&root, "s", &yes), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_object(&root, "o", &member), FERRY_OK);
    assert_int_equal(ferry_json_object(&root, "a", &member), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_array(&root, "a", &member), FERRY_OK);
    assert_int_equal(ferry_json_array(&root, "o", &member), FERRY_ERR_INVALID);
    assert_true(ferry_json_has(&root, "n"));
    assert_false(ferry_json_has(&root, "m"));
    ferry_json_free(&root);
}

static void test_json_optional_members_keep_the_default(void **state)
{
    struct ferry_json root = {0}, object, array;
    const char *string = "default";
    uint64_t u64 = 5;
    int64_t i64 = -5;
    bool yes = true;

    (void)state;
    assert_int_equal(parse("{\"null\":null,\"u\":6,\"s\":\"t\",\"b\":false,\"i\":-6}", &root),
                     FERRY_OK);
    assert_int_equal(ferry_json_opt_u64(&root, "x", 0, 9, &u64), FERRY_OK);
    assert_int_equal(ferry_json_opt_i64(&root, "x", -9, 9, &i64), FERRY_OK);
    assert_int_equal(ferry_json_opt_bool(&root, "x", &yes), FERRY_OK);
    assert_int_equal(ferry_json_opt_string(&root, "x", 9, &string), FERRY_OK);
    assert_int_equal(ferry_json_opt_object(&root, "x", &object), FERRY_OK);
    assert_int_equal(ferry_json_opt_array(&root, "x", &array), FERRY_OK);
    assert_true(u64 == 5 && i64 == -5 && yes);
    assert_string_equal(string, "default");
    assert_null(object.value);
    assert_int_equal(ferry_json_len(&array), 0);

    assert_int_equal(ferry_json_opt_u64(&root, "u", 0, 9, &u64), FERRY_OK);
    assert_int_equal(ferry_json_opt_i64(&root, "i", -9, 9, &i64), FERRY_OK);
    assert_int_equal(ferry_json_opt_bool(&root, "b", &yes), FERRY_OK);
    assert_int_equal(ferry_json_opt_string(&root, "s", 9, &string), FERRY_OK);
    assert_true(u64 == 6 && i64 == -6 && !yes);
    assert_string_equal(string, "t");

    /* null is a value of the wrong type, not an absent member. */
    assert_int_equal(ferry_json_opt_u64(&root, "null", 0, 9, &u64), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_opt_object(&root, "null", &object), FERRY_ERR_INVALID);
    assert_int_equal(ferry_json_opt_string(&root, "u", 9, &string), FERRY_ERR_INVALID);
    ferry_json_free(&root);
}

static void test_json_only_names_the_unknown_key(void **state)
{
    static const char *const some[] = {"a", "b", NULL};
    static const char *const all[] = {"a", "b", "worker_cuont", NULL};
    struct ferry_json root = {0}, object;

    (void)state;
    assert_int_equal(parse("{\"t\":{\"a\":1,\"worker_cuont\":4}}", &root), FERRY_OK);
    assert_int_equal(ferry_json_object(&root, "t", &object), FERRY_OK);
    assert_int_equal(ferry_json_only(&object, some), FERRY_ERR_INVALID);
    assert_string_equal(ferry_last_error_text(), "doc: t.worker_cuont: unknown key");
    assert_int_equal(ferry_json_only(&object, all), FERRY_OK);
    ferry_json_free(&root);
}

static void test_json_print_is_bounded_and_put_owns_its_value(void **state)
{
    struct json_object *object = json_object_new_object();
    struct json_object *array = json_object_new_array();
    char *text = NULL;
    size_t len = 0;

    (void)state;
    assert_true(ferry_json_put_string(object, "s", "a/\"b"));
    assert_true(ferry_json_put_bool(object, "b", true));
    assert_true(ferry_json_append(array, json_object_new_int64(-1)));
    assert_true(ferry_json_put(object, "a", array));
    assert_false(ferry_json_put(object, "n", NULL));
    assert_false(ferry_json_append(NULL, json_object_new_int64(1)));
    assert_false(ferry_json_put(NULL, "x", json_object_new_int64(1)));
    assert_int_equal(ferry_json_print(object, 35, &text, &len), FERRY_OK);
    assert_string_equal(text, "{\"s\":\"a/\\\"b\",\"b\":true,\"a\":[-1]}");
    assert_int_equal(ferry_json_print(object, len - 1, &text, &len), FERRY_ERR_TOO_LARGE);
    free(text);
    json_object_put(object);
}

/* A random valid document, from a seed that is printed when something goes wrong. */
struct writer {
    char text[1 << 16];
    size_t len;
    uint64_t seed;
    uint32_t values;
};

static uint32_t roll(struct writer *writer, uint32_t below)
{
    writer->seed = writer->seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((writer->seed >> 33) % below);
}

static void emit(struct writer *writer, const char *part)
{
    size_t len = strlen(part);

    assert_true(writer->len + len < sizeof(writer->text));
    memcpy(writer->text + writer->len, part, len + 1);
    writer->len += len;
}

static void emit_value(struct writer *writer, uint32_t depth)
{
    static const char *const scalars[] = {
        "0",
        "-0",
        "-1",
        "1.5",
        "1e3",
        "0.0e-0",
        "18446744073709551615",
        "-9223372036854775808",
        "null",
        "true",
        "false",
        "\"\"",
        "\"a\\u0041\\n\"",
        "\"\\ud83d\\udea2\"",
        "\"\xc3\xa9\"",
        "2E+9",
    };
    static const char *const spaces[] = {"", "", "", " ", "\n\t", "\r\n"};
    uint32_t kind = roll(writer, depth < 7 && writer->values < 500 ? 4 : 2);

    writer->values++;
    emit(writer, spaces[roll(writer, FERRY_ARRAY_LEN(spaces))]);
    if (kind < 2) {
        emit(writer, scalars[roll(writer, FERRY_ARRAY_LEN(scalars))]);
    } else {
        uint32_t count = roll(writer, 5);

        emit(writer, kind == 2 ? "[" : "{");
        for (uint32_t i = 0; i < count; i++) {
            char key[32];

            if (i > 0)
                emit(writer, ",");
            snprintf(key, sizeof(key), "\"k%u\" :", i);
            if (kind == 3)
                emit(writer, key);
            emit_value(writer, depth + 1);
        }
        emit(writer, spaces[roll(writer, FERRY_ARRAY_LEN(spaces))]);
        emit(writer, kind == 2 ? "]" : "}");
    }
    emit(writer, spaces[roll(writer, FERRY_ARRAY_LEN(spaces))]);
}

/*
 * Valid documents are read, and print to a text that reads to the same text. Damaged ones are
 * either refused or still mean something, never a crash and never another status.
 */
static void test_json_random_documents_and_damaged_ones(void **state)
{
    static struct writer writer;

    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct ferry_json root = {0}, again = {0};
        char *text = NULL, *text_again = NULL;
        size_t len = 0, len_again = 0;

        writer = (struct writer){.seed = seed};
        emit_value(&writer, 0);
        if (parse_bytes(writer.text, writer.len, &root) != FERRY_OK)
            fail_msg("seed %llu: %s", (unsigned long long)seed, ferry_last_error_text());
        assert_int_equal(ferry_json_print(root.value, SIZE_MAX, &text, &len), FERRY_OK);
        assert_int_equal(parse_bytes(text, len, &again), FERRY_OK);
        assert_int_equal(ferry_json_print(again.value, SIZE_MAX, &text_again, &len_again),
                         FERRY_OK);
        assert_string_equal(text, text_again);
        ferry_json_free(&root);
        ferry_json_free(&again);
        free(text);
        free(text_again);

        writer.text[roll(&writer, (uint32_t)writer.len)] = (char)roll(&writer, 256);
        enum ferry_status status = parse_bytes(writer.text, writer.len, &root);

        if (status != FERRY_OK && status != FERRY_ERR_INVALID)
            fail_msg("seed %llu, damaged: %s", (unsigned long long)seed, ferry_last_error_text());
        ferry_json_free(&root);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_takes_what_rfc_8259_allows),
        cmocka_unit_test(test_json_refuses_everything_else),
        cmocka_unit_test(test_json_refuses_nul_bytes),
        cmocka_unit_test(test_json_every_prefix_of_a_document_is_refused),
        cmocka_unit_test(test_json_errors_say_where),
        cmocka_unit_test(test_json_numbers_out_of_range_are_named),
        cmocka_unit_test(test_json_size_and_memory_are_bounded),
        cmocka_unit_test(test_json_u64_is_exact_both_ways),
        cmocka_unit_test(test_json_whole_numbers_are_read_from_whole_numbers),
        cmocka_unit_test(test_json_ranges_are_checked_at_their_edges),
        cmocka_unit_test(test_json_errors_name_the_path),
        cmocka_unit_test(test_json_strings_bools_and_containers_are_typed),
        cmocka_unit_test(test_json_optional_members_keep_the_default),
        cmocka_unit_test(test_json_only_names_the_unknown_key),
        cmocka_unit_test(test_json_print_is_bounded_and_put_owns_its_value),
        cmocka_unit_test(test_json_random_documents_and_damaged_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
