/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The string builder and the strict parsers and printers of small values. Any thread; no state, no
 * locale, no recursion. Only a heap text allocates.
 */
#include "base/text.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Largest first within each kind: printing takes the first that divides. */
static const struct unit binary_units[] = {
    {"PiB", 1ULL << 50}, {"TiB", 1ULL << 40}, {"GiB", 1ULL << 30},
    {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10},
};
static const struct unit decimal_units[] = {
    {"PB", 1000000000000000ULL}, {"TB", 1000000000000ULL}, {"GB", 1000000000ULL},
    {"MB", 1000000ULL},          {"kB", 1000ULL},          {"B", 1ULL},
};
static const struct unit time_units[] = {
    {"d", 86400 * FERRY_NS_PER_S},
    {"h", 3600 * FERRY_NS_PER_S},
    {"min", 60 * FERRY_NS_PER_S},
    {"s", FERRY_NS_PER_S},
    {"ms", FERRY_NS_PER_MS},
    {"us", FERRY_NS_PER_US},
    {"ns", 1},
};

void ferry_text_init(struct ferry_text *text, char *buf, size_t size)
{
    FERRY_ASSERT(size > 0);
    buf[0] = '\0';
    *text = (struct ferry_text){.data = buf, .size = size, .size_max = size};
}

void ferry_text_init_heap(struct ferry_text *text, size_t size_max)
{
    FERRY_ASSERT(size_max > 0);
    *text = (struct ferry_text){.size_max = size_max, .heap = true};
}

void ferry_text_fini(struct ferry_text *text)
{
    if (text->heap)
        free(text->data);
    *text = (struct ferry_text){0};
}

/* Room for @len more bytes and the terminator. Otherwise records the cut. */
static bool reserve(struct ferry_text *text, size_t len)
{
    if (text->cut)
        return false;
    if (text->size > text->len && len < text->size - text->len)
        return true;
    if (!text->heap || len >= text->size_max - text->len) {
        text->cut = true;
        return false;
    }

    size_t need = text->len + len + 1;
    size_t size = text->size < text->size_max / 2 ? text->size * 2 : text->size_max;

    if (text->size == 0)
        size = text->size_max < 256 ? text->size_max : 256;
    if (size < need)
        size = need;

    char *data = realloc(text->data, size);

    if (data == NULL) {
        text->cut = true;
        text->no_memory = true;
        return false;
    }
    data[text->len] = '\0';
    text->data = data;
    text->size = size;
    return true;
}

void ferry_text_add_bytes(struct ferry_text *text, const char *bytes, size_t len)
{
    if (!reserve(text, len))
        return;
    memcpy(text->data + text->len, bytes, len);
    text->len += len;
    text->data[text->len] = '\0';
}

void ferry_text_add(struct ferry_text *text, const char *string)
{
    ferry_text_add_bytes(text, string, strlen(string));
}

void ferry_text_addf(struct ferry_text *text, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0) {
        text->cut = true;
        return;
    }
    if (!reserve(text, (size_t)len))
        return;
    va_start(args, fmt);
    vsnprintf(text->data + text->len, (size_t)len + 1, fmt, args);
    va_end(args);
    text->len += (size_t)len;
}

void ferry_text_add_json(struct ferry_text *text, const char *string)
{
    const char *end = string + strlen(string);

    ferry_text_add_bytes(text, "\"", 1);
    while (string < end && !text->cut) {
        unsigned char byte = (unsigned char)*string;
        size_t len = ferry_utf8_length((const unsigned char *)string, (size_t)(end - string));

        if (len == 0) {
            ferry_text_add(text, "\xef\xbf\xbd");
        } else if (byte == '"' || byte == '\\') {
            ferry_text_addf(text, "\\%c", byte);
        } else if (byte < 0x20 || byte == 0x7f) {
            ferry_text_addf(text, "\\u%04x", byte);
        } else {
            ferry_text_add_bytes(text, string, len);
        }
        string += len > 0 ? len : 1;
    }
    ferry_text_add_bytes(text, "\"", 1);
}

enum ferry_status ferry_text_take(struct ferry_text *text, char **string_out, size_t *len_out)
{
    FERRY_ASSERT(text->heap);
    reserve(text, 0); /* an empty text is a string as well */
    if (text->no_memory)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory for a text");
    if (text->cut) {
        return ferry_fail(FERRY_ERR_TOO_LARGE, "a text is longer than %zu bytes",
                          text->size_max - 1);
    }
    *string_out = text->data;
    *len_out = text->len;
    text->data = NULL;
    text->len = 0;
    text->size = 0;
    return FERRY_OK;
}

/* Digits at *@at, which moves behind them. False if there are none or too many. */
static bool take_digits(const char **at, uint64_t *value_out)
{
    const char *start = *at;
    const char *end = start;
    uint64_t value = 0;

    for (; *end >= '0' && *end <= '9'; end++) {
        if (!ferry_mul_u64(value, 10, &value) ||
            !ferry_add_u64(value, (uint64_t)(*end - '0'), &value))
            return false;
    }
    if (end == start || (*start == '0' && end - start > 1))
        return false;
    *at = end;
    *value_out = value;
    return true;
}

static const struct unit *find_unit(const struct unit *units, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(units[i].name, name) == 0)
            return &units[i];
    }
    return NULL;
}

enum ferry_status ferry_u64_parse(const char *text, uint64_t *value_out)
{
    const char *at = text;
    uint64_t value;

    if (!take_digits(&at, &value) || *at != '\0') {
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.64s\" is not a whole number 0..18446744073709551615", text);
    }
    *value_out = value;
    return FERRY_OK;
}

enum ferry_status ferry_size_parse(const char *text, uint64_t *bytes_out)
{
    const struct unit *unit = NULL;
    const char *at = text;
    uint64_t value;

    if (take_digits(&at, &value)) {
        unit = find_unit(binary_units, FERRY_ARRAY_LEN(binary_units), at);
        if (unit == NULL)
            unit = find_unit(decimal_units, FERRY_ARRAY_LEN(decimal_units), *at != '\0' ? at : "B");
    }
    if (unit == NULL) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.64s\" is not a size: expected bytes (4096), or a whole number with "
                          "KiB, MiB, GiB, TiB, PiB, or kB, MB, GB, TB, PB",
                          text);
    }
    if (!ferry_mul_u64(value, unit->factor, &value)) {
        return ferry_fail(FERRY_ERR_INVALID, "\"%.64s\" is more than 18446744073709551615 bytes",
                          text);
    }
    *bytes_out = value;
    return FERRY_OK;
}

/* The largest unit that divides @bytes, or NULL. */
static const struct unit *largest_divisor(const struct unit *units, size_t count, uint64_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes > 0 && bytes % units[i].factor == 0)
            return &units[i];
    }
    return NULL;
}

void ferry_size_format(uint64_t bytes, char *buf, size_t size)
{
    const struct unit *binary = largest_divisor(binary_units, FERRY_ARRAY_LEN(binary_units), bytes);
    /* Without the last one: plain bytes need no unit. */
    const struct unit *decimal = largest_divisor(decimal_units, FERRY_ARRAY_LEN(decimal_units) - 1,
                                                 bytes);
    const struct unit *unit = binary;

    if (unit == NULL || (decimal != NULL && decimal->factor > unit->factor))
        unit = decimal;
    if (unit == NULL) {
        snprintf(buf, size, "%" PRIu64, bytes);
    } else {
        snprintf(buf, size, "%" PRIu64 "%s", bytes / unit->factor, unit->name);
    }
}

/* ".125" at *@at as a part of @factor. False if it is malformed or no whole number of nanoseconds.
 */
static bool take_fraction(const char **at, uint64_t factor, uint64_t *ns_out)
{
    const char *end = *at + 1;
    uint64_t ns = 0;

    for (; *end >= '0' && *end <= '9'; end++) {
        uint64_t digit = (uint64_t)(*end - '0');

        if (digit != 0 && (factor < 10 || factor % 10 != 0))
            return false;
        factor /= 10;
        ns += digit * factor;
    }
    if (end == *at + 1)
        return false;
    *at = end;
    *ns_out = ns;
    return true;
}

enum ferry_status ferry_duration_parse(const char *text, uint64_t *ns_out)
{
    const struct unit *unit = NULL;
    const char *at = text;
    uint64_t ns, fraction_ns = 0;
    bool valid = take_digits(&at, &ns);

    if (valid) {
        const char *name = at + strspn(at, ".0123456789");

        unit = find_unit(time_units, FERRY_ARRAY_LEN(time_units), name);
        if (unit == NULL && ns == 0 && *at == '\0')
            unit = &time_units[0]; /* a bare 0 is 0 in every unit */
    }
    valid = unit != NULL;
    if (valid && *at == '.')
        valid = take_fraction(&at, unit->factor, &fraction_ns);
    if (valid && *at != '\0')
        valid = strcmp(at, unit->name) == 0; /* "1.2.3s" stops early */
    if (!valid) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.64s\" is not a duration: expected a number with ns, us, ms, s, min, "
                          "h or d",
                          text);
    }
    if (!ferry_mul_u64(ns, unit->factor, &ns) || !ferry_add_u64(ns, fraction_ns, &ns) ||
        ns == FERRY_NEVER_NS)
        return ferry_fail(FERRY_ERR_INVALID, "\"%.64s\" is longer than five centuries", text);
    *ns_out = ns;
    return FERRY_OK;
}

void ferry_duration_format(uint64_t ns, char *buf, size_t size)
{
    const struct unit *unit = largest_divisor(time_units, FERRY_ARRAY_LEN(time_units), ns);

    if (unit == NULL) {
        snprintf(buf, size, "0");
    } else {
        snprintf(buf, size, "%" PRIu64 "%s", ns / unit->factor, unit->name);
    }
}

void ferry_hex_encode(const void *bytes, size_t len, char *buf)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *from = bytes;

    for (size_t i = 0; i < len; i++) {
        buf[2 * i] = digits[from[i] >> 4];
        buf[2 * i + 1] = digits[from[i] & 15];
    }
    buf[2 * len] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

enum ferry_status ferry_hex_decode(const char *text, void *buf, size_t size, size_t *len_out)
{
    unsigned char *to = buf;
    size_t digits = strlen(text);

    if (digits % 2 != 0) {
        return ferry_fail(FERRY_ERR_INVALID, "\"%.64s\" has an odd number of hexadecimal digits",
                          text);
    }
    if (digits / 2 > size) {
        return ferry_fail(FERRY_ERR_INVALID, "\"%.64s\" is longer than %zu bytes in hexadecimal",
                          text, size);
    }
    for (size_t i = 0; i < digits; i++) {
        if (hex_digit(text[i]) < 0)
            return ferry_fail(FERRY_ERR_INVALID, "\"%.64s\" is not hexadecimal", text);
    }
    for (size_t i = 0; i < digits / 2; i++)
        to[i] = (unsigned char)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    *len_out = digits / 2;
    return FERRY_OK;
}
