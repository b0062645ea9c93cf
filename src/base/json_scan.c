/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a JSON text token by token (RFC 8259, and UTF-8 by RFC 3629) before json-c reads it. Pure:
 * any thread, no allocation, no recursion. It builds nothing; it must refuse every text whose
 * values json-c would change on the way.
 */
#include "base/json_scan.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/*
 * What json-c 0.16 allocates on a 64-bit system, rounded up, allocator's overhead included: an
 * object comes with a table of 16 slots, an array with one of 32.
 */
#define OBJECT_BYTES 1024
#define ARRAY_BYTES  448
#define MEMBER_BYTES 192 /* a copy of the key, and its part of tables that double */
#define SCALAR_BYTES 96

struct scanner {
    const char *label;
    const unsigned char *text;
    size_t len;
    size_t at;
    const struct ferry_json_limits *limits;
    const struct ferry_json_key_hook *hook; /* or NULL */
    uint64_t memory_bytes;
    uint64_t member_count;
    size_t key; /* where the latest key stands, quotes included; len 0: none yet */
    size_t key_len;
    uint32_t depth;
    bool is_object[FERRY_JSON_DEPTH_MAX]; /* the open containers, outermost first */
};

static FERRY_COLD enum ferry_status refuse(const struct scanner *scan, const char *what)
{
    size_t line = 1, column = 1;

    for (size_t i = 0; i < scan->at && i < scan->len; i++) {
        column++;
        if (scan->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return ferry_fail(FERRY_ERR_INVALID, "%s: not JSON at line %zu, column %zu: %s", scan->label,
                      line, column, what);
}

/* The byte at the cursor; NUL at the end, which no token allows. */
static unsigned char peek(const struct scanner *scan)
{
    return scan->at < scan->len ? scan->text[scan->at] : 0;
}

static void skip_space(struct scanner *scan)
{
    while (scan->at < scan->len && strchr(" \t\r\n", scan->text[scan->at]) != NULL &&
           scan->text[scan->at] != 0)
        scan->at++;
}

static bool is_digit(unsigned char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Four hexadecimal digits at the cursor, or -1. */
static int32_t hex4(struct scanner *scan)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        unsigned char byte = peek(scan);
        int digit;

        if (is_digit(byte)) {
            digit = byte - '0';
        } else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f') {
            digit = (byte | 0x20) - 'a' + 10;
        } else {
            return -1;
        }
        value = value << 4 | digit;
        scan->at++;
    }
    return value;
}

/* Behind a backslash. */
static enum ferry_status scan_escape(struct scanner *scan)
{
    unsigned char byte = peek(scan);

    if (byte != 'u') {
        if (byte == 0 || strchr("\"\\/bfnrt", byte) == NULL)
            return refuse(scan, "unknown escape");
        scan->at++;
        return FERRY_OK;
    }
    scan->at++;

    int32_t code = hex4(scan);

    if (code < 0)
        return refuse(scan, "\\u wants four hexadecimal digits");
    if (code == 0)
        return refuse(scan, "a NUL character is not allowed");
    if (code >= 0xdc00 && code <= 0xdfff)
        return refuse(scan, "half of a surrogate pair");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (peek(scan) != '\\')
            return refuse(scan, "half of a surrogate pair");
        scan->at++;
        if (peek(scan) != 'u')
            return refuse(scan, "half of a surrogate pair");
        scan->at++;
        code = hex4(scan);
        if (code < 0xdc00 || code > 0xdfff)
            return refuse(scan, "half of a surrogate pair");
    }
    return FERRY_OK;
}

static enum ferry_status scan_string(struct scanner *scan)
{
    size_t start = scan->at;

    if (peek(scan) != '"')
        return refuse(scan, "expected a string");
    scan->at++;
    for (;;) {
        if (scan->at >= scan->len)
            return refuse(scan, "the text ends inside a string");

        unsigned char byte = scan->text[scan->at];

        if (byte == '"')
            break;
        if (byte < 0x20)
            return refuse(scan, "a control character in a string");
        if (byte == '\\') {
            scan->at++;
            enum ferry_status status = scan_escape(scan);

            if (status != FERRY_OK)
                return status;
            continue;
        }
        size_t step = ferry_utf8_length(scan->text + scan->at, scan->len - scan->at);

        if (step == 0)
            return refuse(scan, "not UTF-8");
        scan->at += step;
    }
    scan->at++;
    scan->memory_bytes += SCALAR_BYTES + (scan->at - start);
    return FERRY_OK;
}

/* True if the decimal digits at @text say at most @limit. No leading zeros, len > 0. */
static bool digits_within(const unsigned char *text, size_t len, uint64_t limit)
{
    uint64_t value = 0;

    for (size_t i = 0; i < len; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');

        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    return true;
}

/* At least one digit at the cursor. */
static bool scan_digits(struct scanner *scan)
{
    size_t start = scan->at;

    while (is_digit(peek(scan)))
        scan->at++;
    return scan->at > start;
}

/* Says which key the number belongs to: this is a wrong value more often than a broken text. */
static FERRY_COLD enum ferry_status refuse_number(struct scanner *scan, size_t start, bool negative)
{
    const char *text = (const char *)scan->text;
    size_t len = scan->at - start;
    char what[224];

    snprintf(what, sizeof(what), "expected a whole number %s, found %.*s%s%.*s",
             negative ? "not below -9223372036854775808" : "up to 18446744073709551615",
             (int)(len > 40 ? 40 : len), text + start, scan->key_len > 0 ? " behind " : "",
             (int)(scan->key_len > 64 ? 64 : scan->key_len), text + scan->key);
    scan->at = start;
    return refuse(scan, what);
}

static enum ferry_status scan_number(struct scanner *scan)
{
    size_t start = scan->at;
    bool negative = peek(scan) == '-';
    bool whole = true;

    if (negative)
        scan->at++;

    size_t digits = scan->at;

    if (!scan_digits(scan))
        return refuse(scan, "expected a value");

    size_t digit_count = scan->at - digits;

    if (scan->text[digits] == '0' && digit_count > 1) {
        scan->at = digits;
        return refuse(scan, "a number with a leading zero");
    }
    if (peek(scan) == '.') {
        whole = false;
        scan->at++;
        if (!scan_digits(scan))
            return refuse(scan, "expected a digit behind the point");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        whole = false;
        scan->at++;
        if (peek(scan) == '+' || peek(scan) == '-')
            scan->at++;
        if (!scan_digits(scan))
            return refuse(scan, "expected a digit in the exponent");
    }
    if (whole && !digits_within(scan->text + digits, digit_count,
                                negative ? (uint64_t)INT64_MAX + 1 : UINT64_MAX)) {
        return refuse_number(scan, start, negative);
    }
    /* A fraction keeps its literal text beside its value. */
    scan->memory_bytes += SCALAR_BYTES + (scan->at - start);
    return FERRY_OK;
}

static enum ferry_status scan_word(struct scanner *scan, const char *word)
{
    size_t len = strlen(word);

    if (scan->len - scan->at < len || memcmp(scan->text + scan->at, word, len) != 0)
        return refuse(scan, "expected a value");
    scan->at += len;
    scan->memory_bytes += SCALAR_BYTES;
    return FERRY_OK;
}

static enum ferry_status scan_scalar(struct scanner *scan)
{
    switch (peek(scan)) {
    case '"':
        return scan_string(scan);
    case 't':
        return scan_word(scan, "true");
    case 'f':
        return scan_word(scan, "false");
    case 'n':
        return scan_word(scan, "null");
    default:
        if (scan->at >= scan->len)
            return refuse(scan, "the text ends where a value was expected");
        return scan_number(scan);
    }
}

/* A key and its colon. */
static enum ferry_status scan_key(struct scanner *scan, bool first)
{
    skip_space(scan);
    size_t start = scan->at;
    enum ferry_status status = scan_string(scan);

    if (status != FERRY_OK)
        return status;
    if (scan->hook != NULL &&
        !scan->hook->key(scan->hook->arg, scan->depth, first, (const char *)scan->text + start,
                         scan->at - start)) {
        char what[96];

        snprintf(what, sizeof(what), "the key %.*s occurs twice",
                 (int)(scan->at - start > 64 ? 64 : scan->at - start),
                 (const char *)scan->text + start);
        scan->at = start;
        return refuse(scan, what);
    }
    scan->key = start;
    scan->key_len = scan->at - start;
    skip_space(scan);
    if (peek(scan) != ':')
        return refuse(scan, "expected ':' behind the key");
    scan->at++;
    scan->member_count++;
    scan->memory_bytes += MEMBER_BYTES;
    return FERRY_OK;
}

static enum ferry_status open_container(struct scanner *scan, bool is_object)
{
    if (scan->depth >= scan->limits->depth_max)
        return refuse(scan, "nested too deeply");
    scan->is_object[scan->depth++] = is_object;
    scan->memory_bytes += is_object ? OBJECT_BYTES : ARRAY_BYTES;
    scan->at++;
    return FERRY_OK;
}

/*
 * Behind a complete value: closes what closes here. @more_out: a value follows, its key has been
 * read.
 */
static enum ferry_status scan_behind_value(struct scanner *scan, bool *more_out)
{
    while (scan->depth > 0) {
        bool is_object = scan->is_object[scan->depth - 1];

        skip_space(scan);
        if (peek(scan) == ',') {
            scan->at++;
            *more_out = true;
            return is_object ? scan_key(scan, false) : FERRY_OK;
        }
        if (peek(scan) != (is_object ? '}' : ']'))
            return refuse(scan, is_object ? "expected ',' or '}'" : "expected ',' or ']'");
        scan->at++;
        scan->depth--;
    }
    *more_out = false;
    return FERRY_OK;
}

/*
 * From the start of a value to the start of the next one, or to the end of the root. An empty
 * container is closed at once.
 */
static enum ferry_status scan_step(struct scanner *scan, bool *more_out)
{
    skip_space(scan);

    unsigned char byte = peek(scan);
    enum ferry_status status;

    if (byte == '{' || byte == '[') {
        status = open_container(scan, byte == '{');
        if (status != FERRY_OK)
            return status;
        skip_space(scan);
        if (peek(scan) != (byte == '{' ? '}' : ']')) {
            *more_out = true;
            return byte == '{' ? scan_key(scan, true) : FERRY_OK;
        }
        scan->at++;
        scan->depth--;
    } else {
        status = scan_scalar(scan);
        if (status != FERRY_OK)
            return status;
    }
    return scan_behind_value(scan, more_out);
}

enum ferry_status ferry_json_scan(const struct ferry_json_limits *limits, const char *label,
                                  const char *text, size_t len,
                                  const struct ferry_json_key_hook *hook,
                                  struct ferry_json_scan *scan_out)
{
    struct scanner scan = {
        .label = label,
        .text = (const unsigned char *)text,
        .len = len,
        .limits = limits,
        .hook = hook,
    };
    bool more = true;

    FERRY_ASSERT(limits->depth_max <= FERRY_JSON_DEPTH_MAX);
    if (len > limits->text_bytes_max) {
        return ferry_fail(FERRY_ERR_TOO_LARGE, "%s: %zu bytes of text, at most %zu are read", label,
                          len, limits->text_bytes_max);
    }
    skip_space(&scan);
    scan_out->start = scan.at;
    while (more) {
        enum ferry_status status = scan_step(&scan, &more);

        if (status != FERRY_OK)
            return status;
        if (scan.memory_bytes > limits->memory_bytes_max) {
            return ferry_fail(FERRY_ERR_TOO_LARGE, "%s: would need more than %zu bytes of memory",
                              label, limits->memory_bytes_max);
        }
    }
    scan_out->end = scan.at;
    scan_out->member_count = scan.member_count;
    skip_space(&scan);
    if (scan.at < len)
        return refuse(&scan, "something follows the document");
    return FERRY_OK;
}
