/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON over json-c: checks the text, lets json-c build the tree, checks the tree against the
 * text, and reads typed values with a path for error texts. Any thread; no state. It must not
 * change a tree that it reads, so that threads can share one.
 */
#include "base/json.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/json_scan.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct ferry_json_limits ferry_json_limits_small = {
    .text_bytes_max = 1U << 20,
    .memory_bytes_max = 64U << 20,
    .depth_max = 32,
};

/* Keys seen in each open object; only while a duplicate is being looked for. */
struct seen_keys {
    struct json_object *sets[FERRY_JSON_DEPTH_MAX + 1];
};

/* The value of a text that the scan has accepted, or NULL (which is also the value of "null"). */
static struct json_object *build(const char *text, size_t len, enum json_tokener_error *error_out)
{
    struct json_tokener *tokener = json_tokener_new_ex(FERRY_JSON_DEPTH_MAX + 2);
    struct json_object *value;

    if (tokener == NULL) {
        *error_out = json_tokener_error_depth;
        return NULL;
    }
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    value = json_tokener_parse_ex(tokener, text, (int)len);
    /* A lone number or word ends only where something follows it. */
    if (value == NULL && json_tokener_get_error(tokener) == json_tokener_continue)
        value = json_tokener_parse_ex(tokener, "", 1);
    *error_out = json_tokener_get_error(tokener);
    json_tokener_free(tokener);
    return value;
}

static bool key_is_new(void *arg, uint32_t depth, bool first, const char *text, size_t len)
{
    struct seen_keys *seen = arg;
    enum json_tokener_error error;
    bool is_new = true;

    if (first) {
        json_object_put(seen->sets[depth]);
        seen->sets[depth] = json_object_new_object();
    }

    /* Escapes are undone by json-c, so that two spellings of one key are the same key. */
    struct json_object *key = build(text, len, &error);

    if (key != NULL && seen->sets[depth] != NULL) {
        const char *name = json_object_get_string(key);

        is_new = !json_object_object_get_ex(seen->sets[depth], name, NULL);
        if (is_new)
            json_object_object_add(seen->sets[depth], name, NULL);
    }
    json_object_put(key);
    return is_new;
}

/* The slow way, taken once it is known that some key occurs twice: find out which. */
static enum ferry_status fail_duplicate(const struct ferry_json_limits *limits, const char *label,
                                        const char *text, size_t len)
{
    struct seen_keys seen = {0};
    struct ferry_json_key_hook hook = {.key = key_is_new, .arg = &seen};
    struct ferry_json_scan scan;
    enum ferry_status status = ferry_json_scan(limits, label, text, len, &hook, &scan);

    for (size_t i = 0; i < FERRY_ARRAY_LEN(seen.sets); i++)
        json_object_put(seen.sets[i]);
    if (status == FERRY_OK)
        status = ferry_fail(FERRY_ERR_INVALID, "%s: a key occurs twice in one object", label);
    return status;
}

/* Counts the members of all objects. False if a number is not finite. Depth was bounded before. */
static bool check_tree(struct json_object *value, uint64_t *member_count)
{
    switch (json_object_get_type(value)) {
    case json_type_double:
        return isfinite(json_object_get_double(value));
    case json_type_array: {
        size_t len = json_object_array_length(value);

        for (size_t i = 0; i < len; i++) {
            if (!check_tree(json_object_array_get_idx(value, i), member_count))
                return false;
        }
        return true;
    }
    case json_type_object: {
        struct json_object_iterator at = json_object_iter_begin(value);
        struct json_object_iterator end = json_object_iter_end(value);

        *member_count += (uint64_t)json_object_object_length(value);
        for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
            if (!check_tree(json_object_iter_peek_value(&at), member_count))
                return false;
        }
        return true;
    }
    default:
        return true;
    }
}

enum ferry_status ferry_json_parse(const struct ferry_json_limits *limits, const char *label,
                                   const char *text, size_t len, struct ferry_json *root_out)
{
    struct ferry_json_scan scan;
    enum json_tokener_error error;
    uint64_t member_count = 0;

    FERRY_ASSERT(limits->text_bytes_max < INT32_MAX);
    enum ferry_status status = ferry_json_scan(limits, label, text, len, NULL, &scan);

    if (status != FERRY_OK)
        return status;

    struct json_object *value = build(text + scan.start, scan.end - scan.start, &error);

    if (error != json_tokener_success) {
        /* The scan accepts nothing that json-c refuses; what remains is memory. */
        json_object_put(value);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "%s: no memory for the document (%s)", label,
                          json_tokener_error_desc(error));
    }
    if (!check_tree(value, &member_count)) {
        json_object_put(value);
        return ferry_fail(FERRY_ERR_INVALID, "%s: a number is too large to be finite", label);
    }
    /* Of two equal keys the later has replaced the former: fewer members than in the text. */
    if (member_count != scan.member_count) {
        json_object_put(value);
        return fail_duplicate(limits, label, text, len);
    }
    *root_out = ferry_json_root(value, label);
    return FERRY_OK;
}

struct ferry_json ferry_json_root(struct json_object *value, const char *label)
{
    return (struct ferry_json){.value = value, .key = label};
}

void ferry_json_free(struct ferry_json *root)
{
    json_object_put(root->value);
    root->value = NULL;
}

/* Puts @part in front of the text that begins at @start; returns the new start. */
static size_t put_front(char *buf, size_t start, const char *part)
{
    size_t len = strlen(part);

    if (len > start) {
        part += len - start;
        len = start;
    }
    memcpy(buf + start - len, part, len);
    return start - len;
}

void ferry_json_path(const struct ferry_json *at, char *buf, size_t size)
{
    size_t start = size - 1;

    FERRY_ASSERT(size > 0);
    buf[start] = '\0';
    /* From the leaf to the root, so the part nearest to the value survives a short buffer. */
    for (; at->parent != NULL; at = at->parent) {
        if (at->key != NULL) {
            start = put_front(buf, start, at->key);
            if (at->parent->parent != NULL)
                start = put_front(buf, start, ".");
        } else {
            char index[32];

            snprintf(index, sizeof(index), "[%zu]", at->index);
            start = put_front(buf, start, index);
        }
    }
    memmove(buf, buf + start, size - start);
}

enum ferry_status ferry_json_fail(const struct ferry_json *at, const char *fmt, ...)
{
    const struct ferry_json *root = at;
    char path[160];
    char what[256];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    ferry_json_path(at, path, sizeof(path));
    while (root->parent != NULL)
        root = root->parent;
    return ferry_fail(FERRY_ERR_INVALID, "%s%s%s%s%s", root->key != NULL ? root->key : "",
                      root->key != NULL ? ": " : "", path, path[0] != '\0' ? ": " : "", what);
}

static void describe(struct json_object *value, char *buf, size_t size)
{
    switch (json_object_get_type(value)) {
    case json_type_null:
        snprintf(buf, size, "null");
        break;
    case json_type_boolean:
        snprintf(buf, size, "%s", json_object_get_boolean(value) ? "true" : "false");
        break;
    case json_type_int:
        if (json_object_get_int64(value) < 0) {
            snprintf(buf, size, "%" PRId64, json_object_get_int64(value));
        } else {
            snprintf(buf, size, "%" PRIu64, json_object_get_uint64(value));
        }
        break;
    case json_type_double:
        snprintf(buf, size, "a number with a fraction or an exponent");
        break;
    case json_type_string: {
        const char *text = json_object_get_string(value);
        int len = json_object_get_string_len(value);

        snprintf(buf, size, "\"%.*s%s\"", len > 40 ? 40 : len, text, len > 40 ? "..." : "");
        break;
    }
    case json_type_array:
        snprintf(buf, size, "an array");
        break;
    case json_type_object:
        snprintf(buf, size, "an object");
        break;
    }
}

static FERRY_COLD enum ferry_status fail_type(const struct ferry_json *at, const char *expected)
{
    char found[64];

    describe(at->value, found, sizeof(found));
    return ferry_json_fail(at, "expected %s, found %s", expected, found);
}

/* True if the member is there, null included; then the cursor is set. */
static bool find(const struct ferry_json *at, const char *key, struct ferry_json *member_out)
{
    struct json_object *value;

    if (!json_object_object_get_ex(at->value, key, &value))
        return false;
    *member_out = (struct ferry_json){.value = value, .parent = at, .key = key};
    return true;
}

/* *member_out is set also when the member is missing, for the path in the text. */
static enum ferry_status need(const struct ferry_json *at, const char *key,
                              struct ferry_json *member_out)
{
    enum ferry_status status = ferry_json_as_object(at);

    if (status != FERRY_OK)
        return status;
    if (find(at, key, member_out))
        return FERRY_OK;
    *member_out = (struct ferry_json){.parent = at, .key = key};
    return ferry_json_fail(member_out, "missing");
}

/* FERRY_OK with *found_out = false if it is absent. */
static enum ferry_status look(const struct ferry_json *at, const char *key,
                              struct ferry_json *member_out, bool *found_out)
{
    enum ferry_status status = ferry_json_as_object(at);

    if (status == FERRY_OK)
        *found_out = find(at, key, member_out);
    return status;
}

enum ferry_status ferry_json_as_object(const struct ferry_json *at)
{
    return json_object_is_type(at->value, json_type_object) ? FERRY_OK : fail_type(at, "an object");
}

enum ferry_status ferry_json_as_array(const struct ferry_json *at)
{
    return json_object_is_type(at->value, json_type_array) ? FERRY_OK : fail_type(at, "an array");
}

enum ferry_status ferry_json_as_string(const struct ferry_json *at, size_t len_max,
                                       const char **string_out)
{
    if (!json_object_is_type(at->value, json_type_string))
        return fail_type(at, "a string");

    size_t len = (size_t)json_object_get_string_len(at->value);

    if (len > len_max)
        return ferry_json_fail(at, "a string of %zu bytes, at most %zu are allowed", len, len_max);
    *string_out = json_object_get_string(at->value);
    return FERRY_OK;
}

enum ferry_status ferry_json_as_bool(const struct ferry_json *at, bool *value_out)
{
    if (!json_object_is_type(at->value, json_type_boolean))
        return fail_type(at, "true or false");
    *value_out = json_object_get_boolean(at->value);
    return FERRY_OK;
}

enum ferry_status ferry_json_as_u64(const struct ferry_json *at, uint64_t min, uint64_t max,
                                    uint64_t *value_out)
{
    /* json-c reads a negative number as 0 here, hence the signed look first. The scan has made sure
     * that every whole number fits one of the two types, so neither look is clamped unseen. */
    if (json_object_is_type(at->value, json_type_int) && json_object_get_int64(at->value) >= 0) {
        uint64_t value = json_object_get_uint64(at->value);

        if (value >= min && value <= max) {
            *value_out = value;
            return FERRY_OK;
        }
    }
    char expected[80];

    snprintf(expected, sizeof(expected), "a whole number %" PRIu64 "..%" PRIu64, min, max);
    return fail_type(at, expected);
}

enum ferry_status ferry_json_as_i64(const struct ferry_json *at, int64_t min, int64_t max,
                                    int64_t *value_out)
{
    if (json_object_is_type(at->value, json_type_int)) {
        int64_t value = json_object_get_int64(at->value);
        bool clamped = value >= 0 && json_object_get_uint64(at->value) > INT64_MAX;

        if (!clamped && value >= min && value <= max) {
            *value_out = value;
            return FERRY_OK;
        }
    }
    char expected[80];

    snprintf(expected, sizeof(expected), "a whole number %" PRId64 "..%" PRId64, min, max);
    return fail_type(at, expected);
}

bool ferry_json_has(const struct ferry_json *at, const char *key)
{
    return json_object_is_type(at->value, json_type_object) &&
           json_object_object_get_ex(at->value, key, NULL);
}

enum ferry_status ferry_json_object(const struct ferry_json *at, const char *key,
                                    struct ferry_json *object_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    if (status == FERRY_OK)
        status = ferry_json_as_object(&member);
    if (status == FERRY_OK)
        *object_out = member;
    return status;
}

enum ferry_status ferry_json_array(const struct ferry_json *at, const char *key,
                                   struct ferry_json *array_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    if (status == FERRY_OK)
        status = ferry_json_as_array(&member);
    if (status == FERRY_OK)
        *array_out = member;
    return status;
}

enum ferry_status ferry_json_string(const struct ferry_json *at, const char *key, size_t len_max,
                                    const char **string_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    return status != FERRY_OK ? status : ferry_json_as_string(&member, len_max, string_out);
}

enum ferry_status ferry_json_bool(const struct ferry_json *at, const char *key, bool *value_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    return status != FERRY_OK ? status : ferry_json_as_bool(&member, value_out);
}

enum ferry_status ferry_json_u64(const struct ferry_json *at, const char *key, uint64_t min,
                                 uint64_t max, uint64_t *value_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    return status != FERRY_OK ? status : ferry_json_as_u64(&member, min, max, value_out);
}

enum ferry_status ferry_json_i64(const struct ferry_json *at, const char *key, int64_t min,
                                 int64_t max, int64_t *value_out)
{
    struct ferry_json member;
    enum ferry_status status = need(at, key, &member);

    return status != FERRY_OK ? status : ferry_json_as_i64(&member, min, max, value_out);
}

enum ferry_status ferry_json_opt_object(const struct ferry_json *at, const char *key,
                                        struct ferry_json *object_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    if (status == FERRY_OK && found)
        status = ferry_json_as_object(&member);
    if (status == FERRY_OK)
        *object_out = found ? member : (struct ferry_json){.parent = at, .key = key};
    return status;
}

enum ferry_status ferry_json_opt_array(const struct ferry_json *at, const char *key,
                                       struct ferry_json *array_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    if (status == FERRY_OK && found)
        status = ferry_json_as_array(&member);
    if (status == FERRY_OK)
        *array_out = found ? member : (struct ferry_json){.parent = at, .key = key};
    return status;
}

enum ferry_status ferry_json_opt_string(const struct ferry_json *at, const char *key,
                                        size_t len_max, const char **string_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    return found ? ferry_json_as_string(&member, len_max, string_out) : status;
}

enum ferry_status ferry_json_opt_bool(const struct ferry_json *at, const char *key, bool *value_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    return found ? ferry_json_as_bool(&member, value_out) : status;
}

enum ferry_status ferry_json_opt_u64(const struct ferry_json *at, const char *key, uint64_t min,
                                     uint64_t max, uint64_t *value_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    return found ? ferry_json_as_u64(&member, min, max, value_out) : status;
}

enum ferry_status ferry_json_opt_i64(const struct ferry_json *at, const char *key, int64_t min,
                                     int64_t max, int64_t *value_out)
{
    struct ferry_json member;
    bool found = false;
    enum ferry_status status = look(at, key, &member, &found);

    return found ? ferry_json_as_i64(&member, min, max, value_out) : status;
}

static bool listed(const char *key, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (strcmp(key, *keys) == 0)
            return true;
    }
    return false;
}

enum ferry_status ferry_json_only(const struct ferry_json *at, const char *const *keys)
{
    enum ferry_status status = ferry_json_as_object(at);

    if (status != FERRY_OK)
        return status;

    struct json_object_iterator it = json_object_iter_begin(at->value);
    struct json_object_iterator end = json_object_iter_end(at->value);

    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *key = json_object_iter_peek_name(&it);

        if (!listed(key, keys)) {
            struct ferry_json member = {.parent = at, .key = key};

            return ferry_json_fail(&member, "unknown key");
        }
    }
    return FERRY_OK;
}

size_t ferry_json_len(const struct ferry_json *array)
{
    return array->value == NULL ? 0 : json_object_array_length(array->value);
}

struct ferry_json ferry_json_item(const struct ferry_json *array, size_t index)
{
    FERRY_ASSERT(index < ferry_json_len(array));
    return (struct ferry_json){
        .value = json_object_array_get_idx(array->value, index),
        .parent = array,
        .index = index,
    };
}

bool ferry_json_put(struct json_object *object, const char *key, struct json_object *value)
{
    if (value == NULL)
        return false;
    if (object == NULL || json_object_object_add(object, key, value) != 0) {
        json_object_put(value);
        return false;
    }
    return true;
}

bool ferry_json_put_u64(struct json_object *object, const char *key, uint64_t value)
{
    return ferry_json_put(object, key, json_object_new_uint64(value));
}

bool ferry_json_put_string(struct json_object *object, const char *key, const char *value)
{
    return ferry_json_put(object, key, json_object_new_string(value));
}

bool ferry_json_put_bool(struct json_object *object, const char *key, bool value)
{
    return ferry_json_put(object, key, json_object_new_boolean(value));
}

bool ferry_json_append(struct json_object *array, struct json_object *value)
{
    if (value == NULL)
        return false;
    if (array == NULL || json_object_array_add(array, value) != 0) {
        json_object_put(value);
        return false;
    }
    return true;
}

enum ferry_status ferry_json_print(struct json_object *value, size_t len_max, char **text_out,
                                   size_t *len_out)
{
    size_t len = 0;
    const char *text = json_object_to_json_string_length(
        value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);

    if (text == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory to print a JSON document");
    if (len > len_max) {
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "a JSON document of %zu bytes, at most %zu are allowed", len, len_max);
    }

    char *copy = malloc(len + 1);

    if (copy == NULL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory to print a JSON document of %zu bytes",
                          len);
    }
    memcpy(copy, text, len + 1);
    *text_out = copy;
    *len_out = len;
    return FERRY_OK;
}
