/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps through the cases and does their arithmetic, checked for overflow.
 */
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>

bool ferry_bench_case_bytes(const struct ferry_bench_case *c, uint64_t *bytes_out)
{
    uint64_t bytes;

    /* Blocks end far below 2^64, and so do their gaps. */
    if (__builtin_mul_overflow(ferry_bench_case_span(c), (uint64_t)c->batch, &bytes) ||
        __builtin_mul_overflow(bytes, (uint64_t)c->threads, &bytes))
        return false;
    *bytes_out = bytes;
    return true;
}

void ferry_bench_case_text(const struct ferry_bench_case *c, char *buf, size_t size)
{
    uint64_t bytes;
    int used = snprintf(buf, size, "block %" PRIu64 " x batch %" PRIu32 " x threads %" PRIu32,
                        c->block, c->batch, c->threads);

    if (used >= 0 && (size_t)used < size && c->scatter > 0)
        used += snprintf(buf + used, size - (size_t)used, " in %" PRIu32 " pieces", c->scatter);
    if (used < 0 || (size_t)used >= size)
        return;
    if (ferry_bench_case_bytes(c, &bytes))
        snprintf(buf + used, size - (size_t)used, " = %" PRIu64 " bytes", bytes);
    else
        snprintf(buf + used, size - (size_t)used, " = more than 2^64 bytes");
}

bool ferry_bench_is_single(const struct ferry_bench_options *options)
{
    return options->block.from == options->block.to && options->batch.from == options->batch.to &&
           options->threads.from == options->threads.to;
}

/* Doubling stays below 2^41, 2^17 and 2^11. */
bool ferry_bench_case_next(const struct ferry_bench_options *options, struct ferry_bench_case *c)
{
    if (c->block == 0) {
        c->block = options->block.from;
        c->batch = (uint32_t)options->batch.from;
        c->threads = (uint32_t)options->threads.from;
        c->scatter = (uint32_t)options->scatter;
        return true;
    }
    c->block *= 2;
    if (c->block <= options->block.to)
        return true;
    c->block = options->block.from;
    c->batch *= 2;
    if (c->batch <= options->batch.to)
        return true;
    c->batch = (uint32_t)options->batch.from;
    c->threads *= 2;
    return c->threads <= options->threads.to;
}

uint64_t ferry_bench_sweep_bytes(const struct ferry_bench_options *options,
                                 const struct ferry_bench_limit *limit)
{
    const char *what = ferry_bench_is_single(options) ? "refused" : "skipped";
    struct ferry_bench_case c = {0};
    uint64_t most = 0;

    while (ferry_bench_case_next(options, &c)) {
        uint64_t bytes = 0;
        bool counts = ferry_bench_case_bytes(&c, &bytes);
        char text[128];

        if (counts && bytes <= limit->bytes) {
            most = bytes > most ? bytes : most;
            continue;
        }
        if (limit->said_bytes != UINT64_MAX && (!counts || bytes > limit->said_bytes))
            continue;
        ferry_bench_case_text(&c, text, sizeof(text));
        ferry_cli_say("%s: %s, expected at most %" PRIu64 " (%s)", what, text, limit->bytes,
                      limit->name);
    }
    return most;
}
