/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64: the vectors of RFC 4648, every length, and nothing but whole groups of its alphabet.
 */
#include "base/base64.h"

#include "support/test.h"

#include <string.h>

#include "base/compiler.h"

static void test_the_vectors_of_the_standard(void **state)
{
    static const char *const vectors[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xef\xff", "++//"},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(vectors); i++) {
        char buf[16];
        char *bytes = NULL;
        size_t len = 99;

        assert_int_equal(ferry_base64_length(strlen(vectors[i][0])), strlen(vectors[i][1]));
        ferry_base64_encode(vectors[i][0], strlen(vectors[i][0]), buf);
        assert_string_equal(buf, vectors[i][1]);
        assert_ok(ferry_base64_decode(buf, strlen(buf), &bytes, &len));
        assert_int_equal(len, strlen(vectors[i][0]));
        assert_memory_equal(bytes, vectors[i][0], len + 1);
        free(bytes);
    }
}

static void test_every_length_comes_back(void **state)
{
    unsigned char bytes[300];
    char text[401];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7 + i / 256);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        char *back = NULL;
        size_t back_len = 0;

        memset(text, '#', sizeof(text));
        ferry_base64_encode(bytes, len, text);
        assert_int_equal(strlen(text), ferry_base64_length(len));
        assert_ok(ferry_base64_decode(text, strlen(text), &back, &back_len));
        assert_int_equal(back_len, len);
        assert_memory_equal(back, bytes, len);
        free(back);
    }
}

static void test_what_is_not_base64_is_refused(void **state)
{
    static const char *const bad[] = {
        "Z",    "Zg",   "Zg=",  "Zg= ",       " Zg=",   "Zg==\n",   "Z===",       "====",
        "=Zg=", "Zg=a", "Z-_=", "Zm9v\nZm9v", "Zm9vZg", "Zg==Zg==", "\303\274==", "Z\x00g="};

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(bad); i++) {
        char *bytes = NULL;
        size_t len;

        if (ferry_base64_decode(bad[i], strlen(bad[i]), &bytes, &len) != FERRY_ERR_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_null(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_vectors_of_the_standard),
        cmocka_unit_test(test_every_length_comes_back),
        cmocka_unit_test(test_what_is_not_base64_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
