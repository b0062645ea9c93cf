/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small text helpers: a bounded string builder, and strict parsing and printing of numbers, sizes,
 * durations and hexadecimal. Host and port are in base/hostport.h.
 *
 * Parsers take whole strings: no leading or trailing space, no sign, no second guess. They are
 * independent of the locale. On failure: ERR_INVALID, outputs untouched, the text quoted in the
 * error.
 */
#ifndef FERRY_BASE_TEXT_H
#define FERRY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "base/hostport.h"

/*
 * A string in the making, always NUL-terminated. An addition that does not fit, or that memory runs
 * out for, is left out whole and recorded; later ones are left out as well, so the text never has a
 * hole in the middle. One thread at a time.
 */
struct ferry_text {
    char *data;
    size_t len;
    size_t size;     /* of data, terminator included */
    size_t size_max; /* how far it may grow */
    bool heap;
    bool cut;
    bool no_memory; /* why it was cut */
};

/* On the caller's buffer of @size > 0 bytes. Needs no fini. */
void ferry_text_init(struct ferry_text *text, char *buf, size_t size);
/* On the heap, at most @size_max > 0 bytes, terminator included. Allocates on the first addition.
 */
void ferry_text_init_heap(struct ferry_text *text, size_t size_max);
/* Accepts a zeroed text. */
void ferry_text_fini(struct ferry_text *text);

void ferry_text_add(struct ferry_text *text, const char *string);
void ferry_text_add_bytes(struct ferry_text *text, const char *bytes, size_t len);
void ferry_text_addf(struct ferry_text *text, const char *fmt, ...) FERRY_PRINTF(2, 3);
/* A JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void ferry_text_add_json(struct ferry_text *text, const char *string);

/*
 * The malloc'd string of a heap text, which is empty afterwards. ERR_TOO_LARGE if anything was cut,
 * ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_text_take(struct ferry_text *text, char **string_out,
                                                size_t *len_out);

/* Decimal digits only; "0" is the one number that may begin with 0. */
FERRY_CHECKED enum ferry_status ferry_u64_parse(const char *text, uint64_t *value_out);

/*
 * Bytes: "4096", "4096B", binary KiB MiB GiB TiB PiB, decimal kB MB GB TB PB. Whole numbers, no
 * space. "64M" and "64KB" are refused: nobody knows which of the two they mean.
 */
FERRY_CHECKED enum ferry_status ferry_size_parse(const char *text, uint64_t *bytes_out);
#define FERRY_SIZE_TEXT_SIZE 24
/* Exact and short: with the largest unit that divides it. Reads back to the same number. */
void ferry_size_format(uint64_t bytes, char *buf, size_t size);

/*
 * Durations in nanoseconds: a number and one of ns us ms s min h d; a decimal fraction is allowed
 * if it is a whole number of nanoseconds ("0.5s", "1.5ms"). Only "0" needs no unit.
 */
FERRY_CHECKED enum ferry_status ferry_duration_parse(const char *text, uint64_t *ns_out);
#define FERRY_DURATION_TEXT_SIZE 32
/* Exact: with the largest unit that divides it. */
void ferry_duration_format(uint64_t ns, char *buf, size_t size);

/* Lower case, @buf of 2 * len + 1 bytes. */
void ferry_hex_encode(const void *bytes, size_t len, char *buf);
/* Both cases; the number of digits must be even and fit in @size bytes. */
FERRY_CHECKED enum ferry_status ferry_hex_decode(const char *text, void *buf, size_t size,
                                                 size_t *len_out);

#endif
