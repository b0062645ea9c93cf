/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data whose every byte follows from a seed and a position: the little-endian word k (bytes 8k to
 * 8k + 7) is seed XOR (k * 0x9E3779B97F4A7C15). Pure; any thread.
 */
#ifndef FERRY_BENCH_PAYLOAD_H
#define FERRY_BENCH_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

/* ferry_bench_payload_differs(): there is no difference. */
#define FERRY_BENCH_SAME SIZE_MAX

unsigned char ferry_bench_payload_byte(uint64_t seed, uint64_t position);

/* Write the bytes of the positions @position to @position + @len - 1. */
void ferry_bench_payload_fill(void *memory, size_t len, uint64_t seed, uint64_t position);

/* Offset of the first byte that ferry_bench_payload_fill() would not have written, or SAME. */
size_t ferry_bench_payload_differs(const void *memory, size_t len, uint64_t seed,
                                   uint64_t position);

/* The seed of the @count-th block of @stream: seeds of two blocks differ in about half their bits,
 * so that each byte of one block differs from most of the other's. */
uint64_t ferry_bench_payload_seed(uint64_t seed, uint64_t stream, uint64_t count);

#endif
