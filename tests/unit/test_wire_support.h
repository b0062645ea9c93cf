/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the codec tests share: random numbers from a printed seed, hex text, and copies that end
 * where their heap block ends, so that the address sanitizer sees a read past the last byte.
 */
#ifndef TEST_WIRE_SUPPORT_H
#define TEST_WIRE_SUPPORT_H

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct wire_random {
    uint64_t state;
};

/* FERRY_TEST_SEED=N replays a run. */
static inline struct wire_random wire_random_init(const char *test)
{
    const char *text = getenv("FERRY_TEST_SEED");
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);

    uint64_t seed = text != NULL ? strtoull(text, NULL, 0)
                                 : (uint64_t)now.tv_sec * 1000000007ULL + (uint64_t)now.tv_nsec;

    print_message("%s: replay with FERRY_TEST_SEED=%llu\n", test, (unsigned long long)seed);
    return (struct wire_random){seed};
}

/* splitmix64 */
static inline uint64_t wire_random_u64(struct wire_random *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15ULL;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

static inline uint64_t wire_random_below(struct wire_random *random, uint64_t bound)
{
    return bound > 0 ? wire_random_u64(random) % bound : 0;
}

/* Numbers as codecs meet them: often small, often at an edge, else anything. */
static inline uint64_t wire_random_edgy(struct wire_random *random)
{
    uint64_t value = wire_random_u64(random);

    switch (wire_random_below(random, 4)) {
    case 0:
        return value % 4;
    case 1:
        return UINT64_MAX - value % 4;
    case 2:
        return value >> (value % 64);
    default:
        return value;
    }
}

static inline void wire_random_fill(struct wire_random *random, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)wire_random_u64(random);
}

/* Hex digits, spaces ignored. */
static inline size_t wire_unhex(const char *hex, uint8_t *bytes_out, size_t cap)
{
    size_t digits = 0;

    for (; *hex != '\0'; hex++) {
        if (*hex == ' ')
            continue;
        assert_true(isxdigit((unsigned char)*hex));
        assert_true(digits / 2 < cap);

        int value = isdigit((unsigned char)*hex) ? *hex - '0' : tolower(*hex) - 'a' + 10;

        if (digits % 2 == 0)
            bytes_out[digits / 2] = (uint8_t)(value << 4);
        else
            bytes_out[digits / 2] |= (uint8_t)value;
        digits++;
    }
    assert_int_equal(digits % 2, 0);
    return digits / 2;
}

/* The caller frees. */
static inline uint8_t *wire_exact_copy(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len > 0 ? len : 1);

    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

#endif
