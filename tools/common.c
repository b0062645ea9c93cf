/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands share: settings, engine, messages, JSON. One thread.
 */
#include "common.h"

#include <json-c/json.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text.h"

enum { KEY_SET = 0x1000, KEY_JSON };

static const struct argp_option options[] = {
    {"config", 'c', "FILE", 0, "Read settings from a JSON file", 10},
    {"set", KEY_SET, "NAME=VALUE", 0, "Set one setting; `ferry config' lists them", 10},
    {"json", KEY_JSON, NULL, 0, "Print JSON, one value a line", 10},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ferry_cli *cli = state->input;

    switch (key) {
    case 'c':
        cli->file = arg;
        return 0;
    case KEY_SET:
        if (strchr(arg, '=') == NULL || arg[0] == '=')
            argp_error(state, "--set %s: expected NAME=VALUE", arg);
        if (cli->set_count == FERRY_CLI_SETS_MAX)
            argp_error(state, "--set: at most %d times", FERRY_CLI_SETS_MAX);
        cli->sets[cli->set_count++] = arg;
        return 0;
    case KEY_JSON:
        cli->json = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp ferry_cli_argp = {.options = options, .parser = parse};
const struct argp_child ferry_cli_children[] = {
    {&ferry_cli_argp, 0, "Common options:", 10},
    {NULL, 0, NULL, 0},
};

void ferry_cli_say(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    flockfile(stderr);
    fputs("ferry: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(args);
}

int ferry_cli_fail(enum ferry_status status, const char *what)
{
    const char *text = ferry_last_error_text();

    if (text[0] == '\0')
        text = ferry_status_text(status);
    if (what[0] != '\0') {
        ferry_cli_say("%s: %s (%s)", what, text, ferry_status_name(status));
    } else {
        ferry_cli_say("%s (%s)", text, ferry_status_name(status));
    }
    return ferry_status_group(status) == FERRY_GROUP_CALLER && status != FERRY_ERR_NOT_FOUND &&
                   status != FERRY_ERR_EXISTS
               ? FERRY_EXIT_USAGE
               : FERRY_EXIT_ENVIRONMENT;
}

bool ferry_cli_set(struct ferry_config *config, const char *name, const char *value)
{
    enum ferry_status status = ferry_config_set(config, name, value, FERRY_ORIGIN_COMMAND_LINE);

    if (status != FERRY_OK)
        ferry_cli_fail(status, "");
    return status == FERRY_OK;
}

static enum ferry_status apply_set(struct ferry_config *config, const char *set)
{
    size_t name_len = strcspn(set, "=");
    char *name = strndup(set, name_len);

    if (name == NULL)
        return FERRY_ERR_NO_MEMORY;

    enum ferry_status status = ferry_config_set(config, name, set + name_len + 1,
                                                FERRY_ORIGIN_COMMAND_LINE);

    free(name);
    return status;
}

struct ferry_config *ferry_cli_config(const struct ferry_cli *cli)
{
    struct ferry_config *config = NULL;
    enum ferry_status status = ferry_config_create(&config);

    if (status == FERRY_OK)
        status = ferry_config_load_environment(config);
    if (status == FERRY_OK && cli->file != NULL)
        status = ferry_config_load_file(config, cli->file);
    for (size_t i = 0; status == FERRY_OK && i < cli->set_count; i++)
        status = apply_set(config, cli->sets[i]);
    if (status == FERRY_OK)
        return config;
    ferry_cli_fail(status, "");
    ferry_config_destroy(config);
    return NULL;
}

struct ferry_engine *ferry_cli_open(const struct ferry_config *config, int *exit_out)
{
    struct ferry_engine_options engine_options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine;

    engine_options.config = config;

    enum ferry_status status = ferry_engine_open(&engine_options, &engine);

    if (status == FERRY_OK)
        return engine;
    /* An address that cannot be used is this host's matter; a wrong setting is the caller's. */
    ferry_cli_fail(status, "cannot start");
    *exit_out = status == FERRY_ERR_CONFIG ? FERRY_EXIT_USAGE : FERRY_EXIT_ENVIRONMENT;
    return NULL;
}

int ferry_cli_close(struct ferry_engine *engine, int exit_status)
{
    enum ferry_status status = ferry_engine_close(engine);

    if (status == FERRY_OK)
        return exit_status;
    ferry_cli_fail(status, "cannot end cleanly");
    return exit_status == FERRY_EXIT_OK ? FERRY_EXIT_ENVIRONMENT : exit_status;
}

void ferry_cli_print_json(struct json_object *value)
{
    /* PLAIN leaves '/' unescaped only with the second flag; both read back the same. */
    puts(json_object_to_json_string_ext(value,
                                        JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    fflush(stdout);
    json_object_put(value);
}

struct json_object *ferry_cli_parse_json(char *text)
{
    struct json_object *value = text != NULL ? json_tokener_parse(text) : NULL;

    ferry_text_free(text);
    return value;
}

struct json_object *ferry_cli_json_number(double value)
{
    char text[32];

    /* Seventeen digits of a measured number are noise. */
    snprintf(text, sizeof(text), "%.6g", value);
    return json_object_new_double_s(value, text);
}

static bool is_leaf(struct json_object *value)
{
    return !json_object_is_type(value, json_type_object) &&
           !json_object_is_type(value, json_type_array);
}

static void print_leaf(struct json_object *value)
{
    if (json_object_is_type(value, json_type_boolean)) {
        puts(json_object_get_boolean(value) ? "yes" : "no");
    } else if (json_object_is_type(value, json_type_double)) {
        printf("%.6g\n", json_object_get_double(value));
    } else {
        puts(value != NULL ? json_object_get_string(value) : "-");
    }
}

/* Nothing to say: "", [], {}. */
static bool is_empty(struct json_object *value)
{
    switch (json_object_get_type(value)) {
    case json_type_string:
        return json_object_get_string_len(value) == 0;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    default:
        return false;
    }
}

static void print_item(struct json_object *item, const char *label, int indent)
{
    if (is_empty(item))
        return;
    printf("%*s%s:", indent, "", label);
    if (is_leaf(item)) {
        putchar(' ');
        print_leaf(item);
        return;
    }
    putchar('\n');
    ferry_cli_print_tree(item, indent + 2);
}

/* What an item of a list is called: its first member that is text, or its number. */
static const char *item_label(struct json_object *item, size_t index, char buf[24])
{
    if (json_object_is_type(item, json_type_object) && json_object_object_length(item) > 0) {
        struct json_object_iterator first = json_object_iter_begin(item);
        struct json_object *value = json_object_iter_peek_value(&first);

        if (json_object_is_type(value, json_type_string))
            return json_object_get_string(value);
    }
    snprintf(buf, 24, "%zu", index);
    return buf;
}

/* The depth of a report is the library's own and small. */
void ferry_cli_print_tree(struct json_object *value, int indent)
{
    if (json_object_is_type(value, json_type_object)) {
        struct json_object_iterator at = json_object_iter_begin(value);
        struct json_object_iterator end = json_object_iter_end(value);

        for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
            print_item(json_object_iter_peek_value(&at), json_object_iter_peek_name(&at), indent);
    } else if (json_object_is_type(value, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(value); i++) {
            struct json_object *item = json_object_array_get_idx(value, i);
            char buf[24];

            if (is_leaf(item)) {
                printf("%*s", indent, "");
                print_leaf(item);
                continue;
            }
            print_item(item, item_label(item, i, buf), indent);
        }
    } else {
        printf("%*s", indent, "");
        print_leaf(value);
    }
}

uint64_t ferry_cli_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ferry_cli_deadline_ms(uint64_t timeout_ms)
{
    return ferry_cli_now_ns() + timeout_ms * 1000000u;
}

const char *ferry_cli_permission_name(enum ferry_permission permission)
{
    switch (permission) {
    case FERRY_PERMISSION_LOCAL:
        return "local";
    case FERRY_PERMISSION_READ_ONLY:
        return "read-only";
    case FERRY_PERMISSION_READ_WRITE:
        return "read-write";
    }
    return "unknown";
}

enum ferry_status ferry_cli_buffers(struct ferry_engine *engine, uint64_t segment,
                                    struct ferry_segment_buffer **buffers_out, size_t *count_out)
{
    size_t room = 16;

    for (;;) {
        struct ferry_segment_buffer *buffers = calloc(room, sizeof(*buffers));
        size_t count = room;

        if (buffers == NULL)
            return FERRY_ERR_NO_MEMORY;
        buffers[0].struct_size = sizeof(*buffers);

        enum ferry_status status = ferry_segment_buffers(engine, segment, buffers, &count);

        if (status == FERRY_OK && count <= room) {
            *buffers_out = buffers;
            *count_out = count;
            return FERRY_OK;
        }
        free(buffers);
        if (status != FERRY_OK)
            return status;
        room = count;
    }
}

struct json_object *ferry_cli_buffers_json(const struct ferry_segment_buffer *buffers, size_t count)
{
    struct json_object *list = json_object_new_array();

    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_new_object();
        const char *permission = ferry_cli_permission_name(buffers[i].permission);

        json_object_object_add(item, "addr", json_object_new_uint64(buffers[i].addr));
        json_object_object_add(item, "length", json_object_new_uint64(buffers[i].length));
        json_object_object_add(item, "location", json_object_new_string(buffers[i].location));
        json_object_object_add(item, "permission", json_object_new_string(permission));
        json_object_array_add(list, item);
    }
    return list;
}

void ferry_cli_print_buffers(const struct ferry_segment_buffer *buffers, size_t count)
{
    char size[FERRY_CLI_TEXT_SIZE];

    printf("%5s  %-18s  %20s  %10s  %-10s  %s\n", "index", "address", "bytes", "", "location",
           "permission");
    for (size_t i = 0; i < count; i++) {
        printf("%5zu  0x%016" PRIx64 "  %20" PRIu64 "  %10s  %-10s  %s\n", i, buffers[i].addr,
               buffers[i].length, ferry_cli_size(buffers[i].length, size), buffers[i].location,
               ferry_cli_permission_name(buffers[i].permission));
    }
}
