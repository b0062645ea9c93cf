/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a header costs: nanoseconds to encode and to decode one, best and median of several rounds
 * over a ring of different headers. A figure for docs/design/wire.md; nothing passes or fails by
 * it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire/frame.h"
#include "wire/v1.h"

#define RING_COUNT  256u /* 16 KiB of headers: in the first cache, as a reactor finds them */
#define ROUND_COUNT 21u
#define ROUND_OPS   (1u << 20)

static uint8_t ring[RING_COUNT][FERRY_FRAME_FIXED_SIZE];

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static uint64_t v1_encode(uint32_t i)
{
    struct ferry_v1_request request = {FERRY_V1_READ, i, i * 7ULL, i * 4096ULL, i + 1ULL};

    ferry_v1_request_encode(&request, ring[i % RING_COUNT]);
    return 1;
}

static uint64_t v1_decode(uint32_t i)
{
    struct ferry_v1_request request;

    if (ferry_v1_request_decode(ring[i % RING_COUNT], 48, &request) != FERRY_V1_VALID)
        abort();
    return request.length;
}

static uint64_t frame_encode(uint32_t i)
{
    struct ferry_frame frame;

    frame.type = FERRY_FRAME_READ;
    frame.priority = 0;
    frame.status = 0;
    frame.flags = 0;
    frame.request_id = i + 1ULL;
    frame.registration_id = i * 7ULL;
    frame.remote_addr = i * 4096ULL;
    frame.length = i + 1ULL;
    frame.credit_bytes = 0;
    frame.credit_sequence = 0;
    frame.checksum = 0;
    frame.list = (struct ferry_frame_list){NULL, 0};
    return ferry_frame_encode(ring[i % RING_COUNT], FERRY_FRAME_FIXED_SIZE, &frame);
}

static uint64_t frame_decode(uint32_t i)
{
    struct ferry_frame frame;

    if (ferry_frame_decode(ring[i % RING_COUNT], FERRY_FRAME_FIXED_SIZE, &frame) !=
        FERRY_FRAME_VALID)
        abort();
    return frame.length;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const char *name, uint64_t (*operation)(uint32_t i))
{
    double ns[ROUND_COUNT];
    uint64_t sink = 0;

    for (uint32_t round = 0; round < ROUND_COUNT; round++) {
        uint64_t start = now_ns();

        for (uint32_t i = 0; i < ROUND_OPS; i++)
            sink += operation(i);
        ns[round] = (double)(now_ns() - start) / ROUND_OPS;
    }
    if (sink == 0)
        abort();
    qsort(ns, ROUND_COUNT, sizeof(ns[0]), compare);
    printf("%-22s best %5.1f ns, median %5.1f ns\n", name, ns[0], ns[ROUND_COUNT / 2]);
}

int main(void)
{
    measure("v1 request encode", v1_encode);
    measure("v1 request decode", v1_decode);
    measure("ferry READ encode", frame_encode);
    measure("ferry READ decode", frame_decode);
    return 0;
}
