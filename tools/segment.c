/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry segment show NAME`: what a peer offers. One thread; moves no data.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "common.h"
#include "text.h"

struct arguments {
    struct ferry_cli cli;
    const char *name;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num == 0 && strcmp(arg, "show") != 0)
            argp_error(state, "unknown verb \"%s\": expected show", arg);
        if (state->arg_num > 1)
            argp_error(state, "unexpected argument \"%s\"", arg);
        if (state->arg_num == 1 && arg[0] == '\0')
            argp_error(state, "NAME is empty");
        if (state->arg_num == 1)
            arguments->name = arg;
        return 0;
    case ARGP_KEY_END:
        if (arguments->name == NULL)
            argp_error(state, "expected: show NAME");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The peer's own document; NULL from a peer that has none to show, such as one in a store. */
static struct json_object *fetch_document(struct ferry_engine *engine, uint64_t segment)
{
    char *text = NULL;

    if (ferry_segment_report(engine, segment, "segment", ferry_cli_deadline_ms(5000), &text) !=
        FERRY_OK)
        return NULL;
    return ferry_cli_parse_json(text);
}

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    if (json_object_is_type(object, json_type_object))
        json_object_object_get_ex(object, key, &value);
    return value;
}

/* What a peer says goes to a terminal: no control bytes. Members that are no text give "?". */
static const char *text_member(struct json_object *object, const char *key, char *buf, size_t size)
{
    struct json_object *value = member(object, key);

    snprintf(buf, size, "%s",
             json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "?");
    for (char *at = buf; *at != '\0'; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    return buf;
}

static void print_endpoints(struct json_object *attribute)
{
    struct json_object *endpoints = member(attribute, "endpoints");
    size_t count = json_object_is_type(endpoints, json_type_array)
                       ? json_object_array_length(endpoints)
                       : 0;

    for (size_t i = 0; i < count; i++) {
        struct json_object *endpoint = json_object_array_get_idx(endpoints, i);
        char host[256];
        bool v6 = strchr(text_member(endpoint, "host", host, sizeof(host)), ':') != NULL;

        printf("%s%s%s%s:%" PRId64, i > 0 ? ", " : "", v6 ? "[" : "", host, v6 ? "]" : "",
               json_object_get_int64(member(endpoint, "port")));
    }
    if (count == 0)
        printf("no address");
}

/* Name, addresses, limit and version of one transport; --json has all of it. */
static void print_transport(int64_t id, struct json_object *attribute)
{
    static const char published[] = "tent_"; /* the wire's name of hp_tcp is tent_hp_tcp */
    struct json_object *limit = member(attribute, "max_transfer_bytes");
    struct json_object *version = member(attribute, "version");
    char protocol[64];
    char size[FERRY_CLI_TEXT_SIZE];
    const char *name = text_member(attribute, "protocol", protocol, sizeof(protocol));

    if (strncmp(name, published, sizeof(published) - 1) == 0)
        name += sizeof(published) - 1;
    if (strcmp(name, "?") == 0)
        printf("transport number %" PRId64 "  ", id);
    else
        printf("transport %-8s  ", name);
    print_endpoints(attribute);
    if (json_object_is_type(limit, json_type_int))
        printf("  at most %s a request", ferry_cli_size(json_object_get_uint64(limit), size));
    if (json_object_is_type(version, json_type_int))
        printf("  version %" PRId64 "%s", json_object_get_int64(version),
               member(attribute, "ferry") != NULL ? ", ferry" : "");
    printf("\n");
}

/* Transports are published as pairs of a number and JSON text. */
static void print_transports(struct json_object *document)
{
    struct json_object *pairs = member(member(document, "detail"), "transport_attrs");
    size_t count = json_object_is_type(pairs, json_type_array) ? json_object_array_length(pairs)
                                                               : 0;

    for (size_t i = 0; i < count; i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);
        struct json_object *attribute;

        if (!json_object_is_type(pair, json_type_array) || json_object_array_length(pair) != 2)
            continue;
        attribute = json_tokener_parse(json_object_get_string(json_object_array_get_idx(pair, 1)));
        print_transport(json_object_get_int64(json_object_array_get_idx(pair, 0)), attribute);
        json_object_put(attribute);
    }
}

static int show(struct ferry_engine *engine, const struct arguments *arguments, uint64_t segment)
{
    struct ferry_segment_buffer *buffers = NULL;
    size_t count = 0;
    uint64_t total = 0;
    char size[FERRY_CLI_TEXT_SIZE];
    enum ferry_status status = ferry_cli_buffers(engine, segment, &buffers, &count);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, arguments->name);

    struct json_object *document = fetch_document(engine, segment);

    for (size_t i = 0; i < count; i++)
        total += buffers[i].length;
    if (arguments->cli.json) {
        struct json_object *object = json_object_new_object();

        json_object_object_add(object, "name", json_object_new_string(arguments->name));
        json_object_object_add(object, "buffers", ferry_cli_buffers_json(buffers, count));
        json_object_object_add(object, "bytes", json_object_new_uint64(total));
        json_object_object_add(object, "document", json_object_get(document));
        ferry_cli_print_json(object);
    } else {
        printf("segment %s\n", arguments->name);
        print_transports(document);
        ferry_cli_print_buffers(buffers, count);
        printf("%zu buffer%s, %s\n", count, count == 1 ? "" : "s", ferry_cli_size(total, size));
    }
    json_object_put(document);
    free(buffers);
    return FERRY_EXIT_OK;
}

static int open_and_show(const struct ferry_config *config, const struct arguments *arguments)
{
    int exit_status = FERRY_EXIT_OK;
    struct ferry_engine *engine = ferry_cli_open(config, &exit_status);
    uint64_t segment;

    if (engine == NULL)
        return exit_status;

    enum ferry_status status = ferry_segment_open(engine, arguments->name, FERRY_NO_DEADLINE,
                                                  &segment);

    if (status == FERRY_OK) {
        exit_status = show(engine, arguments, segment);
        ferry_segment_close(engine, segment);
    } else {
        exit_status = ferry_cli_fail(status, "");
    }
    return ferry_cli_close(engine, exit_status);
}

int ferry_cmd_segment(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "show NAME",
        .doc = "Show what a segment offers: its buffers, their addresses and permissions, and the "
               "transports that reach them.\vWithout a metadata store, NAME is the address of the "
               "peer's control plane, HOST:PORT.\n\n" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct arguments arguments = {0};

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&arguments.cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;

    int exit_status = open_and_show(config, &arguments);

    ferry_config_destroy(config);
    return exit_status;
}
