/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Position-dependent data: fill and compare at the speed of memory, so that a check measures
 * transfers and not itself.
 */
#include "payload.h"

#include <endian.h>
#include <string.h>

#define STEP        UINT64_C(0x9E3779B97F4A7C15)
#define GROUP_WORDS 64

static uint64_t word_at(uint64_t seed, uint64_t index)
{
    return htole64(seed ^ (index * STEP));
}

unsigned char ferry_bench_payload_byte(uint64_t seed, uint64_t position)
{
    return (unsigned char)((seed ^ (position / 8 * STEP)) >> (8 * (position % 8)));
}

/* Bytes up to the next whole word, at most @len. */
static size_t head_bytes(size_t len, uint64_t position)
{
    size_t head = (size_t)((8 - position % 8) % 8);

    return head < len ? head : len;
}

static void fill_bytes(unsigned char *at, size_t len, uint64_t seed, uint64_t position)
{
    for (size_t i = 0; i < len; i++)
        at[i] = ferry_bench_payload_byte(seed, position + i);
}

void ferry_bench_payload_fill(void *memory, size_t len, uint64_t seed, uint64_t position)
{
    unsigned char *at = memory;
    size_t head = head_bytes(len, position);

    fill_bytes(at, head, seed, position);
    at += head;
    position += head;
    len -= head;

    uint64_t index = position / 8;

    for (; len >= 8; len -= 8, at += 8, position += 8) {
        uint64_t word = word_at(seed, index++);

        memcpy(at, &word, sizeof(word));
    }
    fill_bytes(at, len, seed, position);
}

static size_t differs_bytes(const unsigned char *at, size_t len, uint64_t seed, uint64_t position)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] != ferry_bench_payload_byte(seed, position + i))
            return i;
    }
    return FERRY_BENCH_SAME;
}

/* Whether a group of whole words is right; without an early end, so that it becomes vector code. */
static uint64_t group_differs(const unsigned char *at, uint64_t seed, uint64_t index)
{
    uint64_t differences = 0;

    for (uint32_t i = 0; i < GROUP_WORDS; i++) {
        uint64_t word;

        memcpy(&word, at + i * sizeof(word), sizeof(word));
        differences |= word ^ word_at(seed, index + i);
    }
    return differences;
}

size_t ferry_bench_payload_differs(const void *memory, size_t len, uint64_t seed, uint64_t position)
{
    const unsigned char *at = memory;
    size_t done = head_bytes(len, position);
    size_t found = differs_bytes(at, done, seed, position);

    if (found != FERRY_BENCH_SAME)
        return found;
    while (len - done >= GROUP_WORDS * 8 &&
           group_differs(at + done, seed, (position + done) / 8) == 0)
        done += GROUP_WORDS * 8;
    found = differs_bytes(at + done, len - done, seed, position + done);
    return found == FERRY_BENCH_SAME ? found : done + found;
}

/* The finisher of splitmix64. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t ferry_bench_payload_seed(uint64_t seed, uint64_t stream, uint64_t count)
{
    return mix(mix(seed + stream * STEP) + count * STEP);
}
