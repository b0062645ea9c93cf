/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reading of JSON documents over json-c: the one way in which any room reads one.
 *
 * json-c by itself takes more than JSON, lets the last of two equal keys win, and turns numbers
 * that do not fit into other numbers. Here the text is checked first: RFC 8259 and nothing else,
 * UTF-8, no NUL (not as \u0000 either), bounded length, depth and memory, no duplicate keys, whole
 * numbers inside u64 or i64, fractions finite. Then json-c builds the tree.
 *
 * Values are read through cursors that know their path, so an error names the field:
 *
 *     segment document: buffers[3].addr: expected a whole number 0..18446744073709551615, found -1
 *
 * All errors are ERR_INVALID with that text; a room that promises another status passes it on with
 * its own. Cursors live on the caller's stack and borrow the tree: a cursor must not outlive its
 * parent cursor or the tree. Reading changes nothing, so several threads may read one tree; taking
 * and dropping references is json-c's and not atomic.
 */
#ifndef FERRY_BASE_JSON_H
#define FERRY_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include <ferry/status.h>

#include "base/compiler.h"

/* Deepest nesting that any caller may ask for. */
#define FERRY_JSON_DEPTH_MAX 64

struct ferry_json_limits {
    size_t text_bytes_max;   /* at most INT32_MAX - 1 */
    size_t memory_bytes_max; /* of the tree, by an estimate made before it is built */
    uint32_t depth_max;      /* 1..FERRY_JSON_DEPTH_MAX; a lone number has depth 0 */
};

/* For requests, attributes and configuration files. */
extern const struct ferry_json_limits ferry_json_limits_small; /* 1 MiB, 64 MiB, 32 */

struct ferry_json {
    struct json_object *value;       /* NULL is JSON's null, or an absent optional member */
    const struct ferry_json *parent; /* NULL: this is the root */
    const char *key;                 /* member of an object; at the root, the document's label */
    size_t index;                    /* item of an array, when key is NULL */
};

/*
 * Read @len bytes of @text (no terminator needed). @label names the document in error texts and
 * must outlive the cursors. The caller owns root_out->value: ferry_json_free(). ERR_INVALID (line
 * and column in the text), ERR_TOO_LARGE, ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_json_parse(const struct ferry_json_limits *limits,
                                                 const char *label, const char *text, size_t len,
                                                 struct ferry_json *root_out);

/* A cursor on a tree that was built otherwise. Borrows @value. */
struct ferry_json ferry_json_root(struct json_object *value, const char *label);

/* Drop the root's reference; harmless on a zeroed cursor. Usable with FERRY_CLEANUP. */
void ferry_json_free(struct ferry_json *root);

/* Record "label: path: sentence" and return ERR_INVALID. */
FERRY_COLD enum ferry_status ferry_json_fail(const struct ferry_json *at, const char *fmt, ...)
    FERRY_PRINTF(2, 3);

/* "buffers[3].addr" into @buf, cut at the front if it does not fit; "" for the root. */
void ferry_json_path(const struct ferry_json *at, char *buf, size_t size);

/*
 * Members. The plain form wants the member there; the optional form leaves the output alone when it
 * is absent, so set the default first (object and array cursors: value NULL). null is never a
 * value.
 * @at must be a cursor on an object.
 */
bool ferry_json_has(const struct ferry_json *at, const char *key);
FERRY_CHECKED enum ferry_status ferry_json_object(const struct ferry_json *at, const char *key,
                                                  struct ferry_json *object_out);
FERRY_CHECKED enum ferry_status ferry_json_array(const struct ferry_json *at, const char *key,
                                                 struct ferry_json *array_out);
FERRY_CHECKED enum ferry_status ferry_json_string(const struct ferry_json *at, const char *key,
                                                  size_t len_max, const char **string_out);
FERRY_CHECKED enum ferry_status ferry_json_bool(const struct ferry_json *at, const char *key,
                                                bool *value_out);
FERRY_CHECKED enum ferry_status ferry_json_u64(const struct ferry_json *at, const char *key,
                                               uint64_t min, uint64_t max, uint64_t *value_out);
FERRY_CHECKED enum ferry_status ferry_json_i64(const struct ferry_json *at, const char *key,
                                               int64_t min, int64_t max, int64_t *value_out);

FERRY_CHECKED enum ferry_status ferry_json_opt_object(const struct ferry_json *at, const char *key,
                                                      struct ferry_json *object_out);
FERRY_CHECKED enum ferry_status ferry_json_opt_array(const struct ferry_json *at, const char *key,
                                                     struct ferry_json *array_out);
FERRY_CHECKED enum ferry_status ferry_json_opt_string(const struct ferry_json *at, const char *key,
                                                      size_t len_max, const char **string_out);
FERRY_CHECKED enum ferry_status ferry_json_opt_bool(const struct ferry_json *at, const char *key,
                                                    bool *value_out);
FERRY_CHECKED enum ferry_status ferry_json_opt_u64(const struct ferry_json *at, const char *key,
                                                   uint64_t min, uint64_t max, uint64_t *value_out);
FERRY_CHECKED enum ferry_status ferry_json_opt_i64(const struct ferry_json *at, const char *key,
                                                   int64_t min, int64_t max, int64_t *value_out);

/* ERR_INVALID for the first key that is not in the NULL-terminated list; it is named. */
FERRY_CHECKED enum ferry_status ferry_json_only(const struct ferry_json *at,
                                                const char *const *keys);

/* Items of an array cursor; the length of one whose value is NULL is 0. @index < length. */
size_t ferry_json_len(const struct ferry_json *array);
struct ferry_json ferry_json_item(const struct ferry_json *array, size_t index);

/* The value under the cursor itself. */
FERRY_CHECKED enum ferry_status ferry_json_as_object(const struct ferry_json *at);
FERRY_CHECKED enum ferry_status ferry_json_as_array(const struct ferry_json *at);
FERRY_CHECKED enum ferry_status ferry_json_as_string(const struct ferry_json *at, size_t len_max,
                                                     const char **string_out);
FERRY_CHECKED enum ferry_status ferry_json_as_bool(const struct ferry_json *at, bool *value_out);
FERRY_CHECKED enum ferry_status ferry_json_as_u64(const struct ferry_json *at, uint64_t min,
                                                  uint64_t max, uint64_t *value_out);
FERRY_CHECKED enum ferry_status ferry_json_as_i64(const struct ferry_json *at, int64_t min,
                                                  int64_t max, int64_t *value_out);

/*
 * Writing: each takes what json-c made and reports running out of memory as false. put() owns
 * @value from the call on, also when it fails; a NULL @value counts as a failure, so that
 * put(object, key, json_object_new_object()) needs no other check. Not for null members.
 */
FERRY_CHECKED bool ferry_json_put(struct json_object *object, const char *key,
                                  struct json_object *value);
FERRY_CHECKED bool ferry_json_put_u64(struct json_object *object, const char *key, uint64_t value);
FERRY_CHECKED bool ferry_json_put_string(struct json_object *object, const char *key,
                                         const char *value);
FERRY_CHECKED bool ferry_json_put_bool(struct json_object *object, const char *key, bool value);
FERRY_CHECKED bool ferry_json_append(struct json_object *array, struct json_object *value);

/*
 * Compact text of the tree, malloc'd and NUL-terminated. One thread at a time per tree (json-c
 * keeps the text in it). ERR_TOO_LARGE beyond @len_max bytes, ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_json_print(struct json_object *value, size_t len_max,
                                                 char **text_out, size_t *len_out);

#endif
