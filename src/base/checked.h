/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes are added and multiplied here and nowhere else; ranges are compared by subtraction from the
 * length, so that no sum can wrap.
 */
#ifndef FERRY_BASE_CHECKED_H
#define FERRY_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool ferry_add_u64(uint64_t a, uint64_t b, uint64_t *sum_out)
{
    return !__builtin_add_overflow(a, b, sum_out);
}

static inline bool ferry_mul_u64(uint64_t a, uint64_t b, uint64_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

static inline bool ferry_mul_size(size_t a, size_t b, size_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

/* True if [addr, addr + len) does not wrap past the end of the address space. */
static inline bool ferry_range_ok(uint64_t addr, uint64_t len)
{
    return len <= UINT64_MAX - addr;
}

/* True if [addr, addr + len) lies inside [base, base + size). Any inputs, no overflow. */
static inline bool ferry_range_within(uint64_t addr, uint64_t len, uint64_t base, uint64_t size)
{
    return addr >= base && addr - base <= size && len <= size - (addr - base);
}

/* True if the two ranges share a byte. Both must pass ferry_range_ok(). */
static inline bool ferry_range_overlaps(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
    return a_len > 0 && b_len > 0 && (a < b ? b - a < a_len : a - b < b_len);
}

#endif
