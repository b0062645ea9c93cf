/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From text or JSON to a checked value of one option. Strict: nothing is rounded, guessed or cut.
 * Any thread; allocates; knows nothing of origins and precedence.
 */
#include "config/setting.h"

#include <json-c/json.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

/* How much of a wrong value an error text quotes. */
#define FOUND_SIZE 80

static FERRY_COLD enum ferry_status no_memory(void)
{
    return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
}

static FERRY_COLD enum ferry_status wrong(const struct ferry_option *option, const char *where,
                                          const char *found)
{
    char expected[FERRY_CONFIG_EXPECTED_SIZE];

    ferry_option_expected(option, expected);
    return ferry_fail(FERRY_ERR_CONFIG, "%s: expected %s, found %s", where, expected, found);
}

static FERRY_COLD enum ferry_status wrong_text(const struct ferry_option *option, const char *where,
                                               const char *text)
{
    char found[FOUND_SIZE];

    if (option->type == FERRY_OPTION_SECRET) {
        snprintf(found, sizeof(found), "%zu bytes", strlen(text));
    } else {
        snprintf(found, sizeof(found), "\"%.64s\"%s", text, strlen(text) > 64 ? "..." : "");
    }
    return wrong(option, where, found);
}

static bool is_utf8(const char *text)
{
    size_t len = strlen(text);

    for (size_t at = 0; at < len;) {
        size_t step = ferry_utf8_length((const unsigned char *)text + at, len - at);

        if (step == 0)
            return false;
        at += step;
    }
    return true;
}

/* The index of a choice or of what an alias stands for. */
static bool parse_choice(const struct ferry_option *option, const char *text, uint64_t *index_out)
{
    const char *const *alias = option->aliases;

    for (; alias != NULL && *alias != NULL; alias += 2) {
        if (strcmp(alias[0], text) == 0) {
            text = alias[1];
            break;
        }
    }
    for (uint64_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *index_out = i;
            return true;
        }
    }
    return false;
}

/* The text of a number that has passed the checks. */
static enum ferry_status print_number(const struct ferry_option *option, struct ferry_value *value)
{
    char buf[32];
    const char *text = buf;

    switch (option->type) {
    case FERRY_OPTION_BOOL:
        text = value->number != 0 ? "true" : "false";
        break;
    case FERRY_OPTION_CHOICE:
        text = option->choices[value->number];
        break;
    case FERRY_OPTION_SIZE:
        ferry_size_format(value->number, buf, sizeof(buf));
        break;
    default:
        if (option->type == FERRY_OPTION_AUTO && value->number == 0) {
            text = "auto";
        } else {
            snprintf(buf, sizeof(buf), "%" PRIu64, value->number);
        }
    }
    value->text = strdup(text);
    return value->text != NULL ? FERRY_OK : no_memory();
}

static enum ferry_status set_string(const struct ferry_option *option, const char *where,
                                    const char *text, struct ferry_value *value)
{
    if (strlen(text) > option->max || !is_utf8(text))
        return wrong_text(option, where, text);
    value->text = strdup(text);
    return value->text != NULL ? FERRY_OK : no_memory();
}

/* Room for @count items; the value counts them as they come. */
static enum ferry_status reserve_items(const struct ferry_option *option, const char *where,
                                       size_t count, struct ferry_value *value)
{
    if (count > option->max) {
        char found[FOUND_SIZE];

        snprintf(found, sizeof(found), "%zu", count);
        return wrong(option, where, found);
    }
    value->items = calloc(count > 0 ? count : 1, sizeof(*value->items));
    return value->items != NULL ? FERRY_OK : no_memory();
}

static enum ferry_status add_item(const struct ferry_option *option, const char *where,
                                  const char *text, struct ferry_value *value)
{
    size_t len = strlen(text);

    /* A comma would come back as two items from the text of the list. */
    if (len == 0 || len > FERRY_CONFIG_ITEM_BYTES_MAX || strchr(text, ',') != NULL ||
        !is_utf8(text)) {
        return ferry_fail(FERRY_ERR_CONFIG,
                          "%s: expected texts of 1..%d bytes without a comma, found \"%.64s\"",
                          where, FERRY_CONFIG_ITEM_BYTES_MAX, text);
    }
    for (size_t i = 0; i < value->item_count; i++) {
        if (strcmp(value->items[i], text) == 0)
            return ferry_fail(FERRY_ERR_CONFIG, "%s: \"%.64s\" is in the list twice", where, text);
    }
    value->items[value->item_count] = strdup(text);
    if (value->items[value->item_count] == NULL)
        return no_memory();
    value->item_count++;
    return FERRY_OK;
}

static enum ferry_status join_items(struct ferry_value *value)
{
    size_t size = 1;

    for (size_t i = 0; i < value->item_count; i++)
        size += strlen(value->items[i]) + 1;
    value->text = malloc(size);
    if (value->text == NULL)
        return no_memory();

    char *at = value->text;

    for (size_t i = 0; i < value->item_count; i++) {
        if (i > 0)
            *at++ = ',';
        at = stpcpy(at, value->items[i]);
    }
    *at = '\0';
    return FERRY_OK;
}

static enum ferry_status split_items(const struct ferry_option *option, const char *where,
                                     const char *text, struct ferry_value *value)
{
    FERRY_AUTO_FREE char *copy = strdup(text);
    size_t count = text[0] != '\0' ? 1 : 0;

    if (copy == NULL)
        return no_memory();
    for (const char *at = text; *at != '\0'; at++)
        count += *at == ',';

    enum ferry_status status = reserve_items(option, where, count, value);
    char *rest = copy;

    for (size_t i = 0; status == FERRY_OK && i < count; i++)
        status = add_item(option, where, strsep(&rest, ","), value);
    return status == FERRY_OK ? join_items(value) : status;
}

static enum ferry_status fill_from_text(const struct ferry_option *option, const char *where,
                                        const char *text, struct ferry_value *value)
{
    bool ok = false;

    switch (option->type) {
    case FERRY_OPTION_STRING:
    case FERRY_OPTION_SECRET:
        return set_string(option, where, text, value);
    case FERRY_OPTION_LIST:
        return split_items(option, where, text, value);
    case FERRY_OPTION_PLACEHOLDER:
        value->text = strdup("");
        return value->text != NULL ? FERRY_OK : no_memory();
    case FERRY_OPTION_BOOL:
        value->number = strcmp(text, "true") == 0;
        ok = value->number != 0 || strcmp(text, "false") == 0;
        break;
    case FERRY_OPTION_CHOICE:
        ok = parse_choice(option, text, &value->number);
        break;
    case FERRY_OPTION_AUTO:
        if (strcmp(text, "auto") == 0) {
            ok = true;
            break;
        }
        /* fall through */
    case FERRY_OPTION_UINT:
        ok = ferry_u64_parse(text, &value->number) == FERRY_OK;
        ok = ok && value->number >= option->min && value->number <= option->max;
        break;
    case FERRY_OPTION_SIZE:
        ok = ferry_size_parse(text, &value->number) == FERRY_OK;
        ok = ok && value->number >= option->min && value->number <= option->max;
        break;
    }
    return ok ? print_number(option, value) : wrong_text(option, where, text);
}

enum ferry_status ferry_value_from_text(const struct ferry_option *option, const char *where,
                                        const char *text, struct ferry_value *value_out)
{
    struct ferry_value value = {0};
    enum ferry_status status = fill_from_text(option, where, text, &value);

    if (status != FERRY_OK) {
        ferry_value_fini(&value);
        return status;
    }
    *value_out = value;
    return FERRY_OK;
}

static FERRY_COLD enum ferry_status wrong_json(const struct ferry_option *option, const char *where,
                                               struct json_object *json)
{
    char found[FOUND_SIZE];

    switch (json_object_get_type(json)) {
    case json_type_null:
        return wrong(option, where, "null");
    case json_type_object:
        return wrong(option, where, "an object");
    case json_type_array:
        return wrong(option, where, "a list");
    case json_type_string:
        return wrong_text(option, where, json_object_get_string(json));
    default:
        break;
    }

    const char *text = json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN);

    if (option->type == FERRY_OPTION_SECRET)
        text = "a value that is not text";
    snprintf(found, sizeof(found), "%.64s", text != NULL ? text : "a value");
    return wrong(option, where, found);
}

static bool json_whole(struct json_object *json, uint64_t *number_out)
{
    if (!json_object_is_type(json, json_type_int))
        return false;
    /* json-c reads a negative number as unsigned 0, and a large one as signed INT64_MAX. */
    if (json_object_get_int64(json) < 0)
        return false;
    *number_out = json_object_get_uint64(json);
    return true;
}

static enum ferry_status list_from_json(const struct ferry_option *option, const char *where,
                                        struct json_object *json, struct ferry_value *value)
{
    size_t count = json_object_array_length(json);
    enum ferry_status status = reserve_items(option, where, count, value);

    for (size_t i = 0; status == FERRY_OK && i < count; i++) {
        struct json_object *item = json_object_array_get_idx(json, i);

        if (!json_object_is_type(item, json_type_string))
            return wrong(option, where, "an item that is not text");
        status = add_item(option, where, json_object_get_string(item), value);
    }
    return status == FERRY_OK ? join_items(value) : status;
}

static bool says_more_than_digits(const struct ferry_option *option, const char *text)
{
    if (option->type == FERRY_OPTION_AUTO)
        return strcmp(text, "auto") == 0;
    return strspn(text, "0123456789") < strlen(text);
}

static enum ferry_status fill_from_json(const struct ferry_option *option, const char *where,
                                        struct json_object *json, struct ferry_value *value)
{
    enum json_type type = json_object_get_type(json);

    switch (option->type) {
    case FERRY_OPTION_PLACEHOLDER:
        return fill_from_text(option, where, "", value);
    case FERRY_OPTION_BOOL:
        if (type != json_type_boolean)
            return wrong_json(option, where, json);
        value->number = json_object_get_boolean(json) != 0;
        return print_number(option, value);
    case FERRY_OPTION_LIST:
        if (type != json_type_array)
            return wrong_json(option, where, json);
        return list_from_json(option, where, json, value);
    case FERRY_OPTION_UINT:
    case FERRY_OPTION_AUTO:
    case FERRY_OPTION_SIZE:
        if (type == json_type_int) {
            if (!json_whole(json, &value->number) || value->number < option->min ||
                value->number > option->max)
                return wrong_json(option, where, json);
            return print_number(option, value);
        }
        /* Text counts where it says more than digits: "auto", "64MiB"; never "4" for 4. */
        if (type != json_type_string || option->type == FERRY_OPTION_UINT)
            return wrong_json(option, where, json);
        if (!says_more_than_digits(option, json_object_get_string(json)))
            return wrong_json(option, where, json);
        break;
    default:
        if (type != json_type_string)
            return wrong_json(option, where, json);
        break;
    }
    return fill_from_text(option, where, json_object_get_string(json), value);
}

enum ferry_status ferry_value_from_json(const struct ferry_option *option, const char *where,
                                        struct json_object *json, struct ferry_value *value_out)
{
    struct ferry_value value = {0};
    enum ferry_status status = fill_from_json(option, where, json, &value);

    if (status != FERRY_OK) {
        ferry_value_fini(&value);
        return status;
    }
    *value_out = value;
    return FERRY_OK;
}

enum ferry_status ferry_value_copy(const struct ferry_value *value, struct ferry_value *copy_out)
{
    struct ferry_value copy = {.number = value->number};

    copy.text = strdup(value->text);
    if (copy.text != NULL && value->items != NULL)
        copy.items = calloc(value->item_count > 0 ? value->item_count : 1, sizeof(*copy.items));
    if (copy.text == NULL || (value->items != NULL && copy.items == NULL)) {
        ferry_value_fini(&copy);
        return no_memory();
    }
    for (; copy.item_count < value->item_count; copy.item_count++) {
        copy.items[copy.item_count] = strdup(value->items[copy.item_count]);
        if (copy.items[copy.item_count] == NULL) {
            ferry_value_fini(&copy);
            return no_memory();
        }
    }
    *copy_out = copy;
    return FERRY_OK;
}

void ferry_value_fini(struct ferry_value *value)
{
    for (size_t i = 0; i < value->item_count; i++)
        free(value->items[i]);
    free(value->items);
    free(value->text);
    *value = (struct ferry_value){0};
}
