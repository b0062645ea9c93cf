/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of a JSON text before json-c sees it. Private to base/json.c and its tests.
 */
#ifndef FERRY_BASE_JSON_SCAN_H
#define FERRY_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

struct ferry_json_limits;

struct ferry_json_scan {
    size_t start; /* the root value is text[start, end) */
    size_t end;
    uint64_t member_count; /* of all objects together, duplicates included */
};

/*
 * Optional: sees every key as it stands in the text, quotes and escapes included. @first: it is the
 * first one of its object. False ends the scan: the key is refused as a duplicate.
 */
struct ferry_json_key_hook {
    bool (*key)(void *arg, uint32_t depth, bool first, const char *text, size_t len);
    void *arg;
};

/*
 * Check @text against RFC 8259 and the limits; see base/json.h for what is refused. Pure, no
 * allocation, linear time. @hook may be NULL. ERR_INVALID with line and column, ERR_TOO_LARGE.
 */
enum ferry_status ferry_json_scan(const struct ferry_json_limits *limits, const char *label,
                                  const char *text, size_t len,
                                  const struct ferry_json_key_hook *hook,
                                  struct ferry_json_scan *scan_out);

#endif
