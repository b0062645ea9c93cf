/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C against the published vectors and a bit-by-bit computation, whole and in parts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "test.h"

/* RFC 3720, appendix B.4: values are the CRC's, least significant byte first on the wire there. */
static void test_published_vectors(void **state)
{
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(ferry_crc32c(0, "", 0), 0);
    assert_int_equal(ferry_crc32c(0, "123456789", 9), 0xe3069283u);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(ferry_crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(ferry_crc32c(0, bytes, 32), 0x62a8ab43u);
    for (size_t i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(ferry_crc32c(0, bytes, 32), 0x46dd794eu);
    for (size_t i = 0; i < 32; i++)
        bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(ferry_crc32c(0, bytes, 32), 0x113fdb5cu);
}

static uint32_t bit_by_bit(const unsigned char *bytes, size_t len)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static void test_parts_make_the_whole(void **state)
{
    enum { SIZE = 5000 };
    unsigned char *bytes = malloc(SIZE);
    uint32_t random = 7;

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++) {
        random = random * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(random >> 24);
    }
    for (size_t begin = 0; begin < 17; begin++) {
        for (size_t len = 0; len <= SIZE - begin; len += 1 + len / 7) {
            uint32_t whole = bit_by_bit(bytes + begin, len);
            size_t part = len * (begin + 1) / 19;
            uint32_t crc = ferry_crc32c(0, bytes + begin, part);

            assert_int_equal(ferry_crc32c(0, bytes + begin, len), whole);
            assert_int_equal(ferry_crc32c(crc, bytes + begin + part, len - part), whole);
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_parts_make_the_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
