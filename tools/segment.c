/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry segment`: finds the verb, and shows memory segments; the verbs of file segments are in
 * segment_files.c and segment_create.c. One thread; moves no data.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "common.h"
#include "segment_files.h"
#include "text.h"

enum {
    KEY_HOST = 'H' + 0x100,
    KEY_SIZE,
    KEY_SPARSE,
    KEY_EXTEND,
    KEY_MEMORY,
    KEY_PURGE,
    KEY_HIDDEN,
    KEY_QUICK
};

static const struct argp_option options[] = {
    {"host", KEY_HOST, "NAME", 0, "This host's name in path maps; the setting host_name", 1},
    {"size", KEY_SIZE, "SIZE", 0, "create, resize: " FERRY_CLI_SIZE_HELP, 1},
    {"sparse", KEY_SPARSE, NULL, 0, "create: without blocks behind the bytes", 1},
    {"extend", KEY_EXTEND, NULL, 0, "resize: the segment may become longer", 1},
    {"hidden", KEY_HIDDEN, NULL, 0, "register: files of a folder whose names begin with a dot too",
     1},
    {"memory", KEY_MEMORY, NULL, 0, "list: the memory segments of engines instead", 1},
    {"quick", KEY_QUICK, NULL, 0, "verify: open the files without reading them", 1},
    {"purge", KEY_PURGE, NULL, 0, "rm: delete this host's files as well", 1},
    {NULL, 0, NULL, 0, NULL, 0},
};

static int show(const struct ferry_segment_arguments *arguments, struct ferry_catalog *catalog);

static const struct verb {
    const char *name;
    size_t words_min; /* behind the verb */
    size_t words_max;
    const char *words;
    ferry_segment_verb_fn *run;
    bool without_store;
} verbs[] = {
    {"show", 1, 1, "NAME", show, true},
    {"list", 0, 0, "", ferry_segment_list, false},
    {"create", 1, SIZE_MAX, "--size SIZE FILE...", ferry_segment_create, true},
    {"register", 2, SIZE_MAX, "NAME FILE...", ferry_segment_register, false},
    {"map", 3, 3, "NAME ORIGINAL-PATH LOCAL-PATH", ferry_segment_map, false},
    {"unmap", 1, 2, "NAME [ORIGINAL-PATH]", ferry_segment_unmap, false},
    {"verify", 1, 1, "NAME", ferry_segment_verify, false},
    {"resize", 2, 2, "NAME ORIGINAL-PATH", ferry_segment_resize, false},
    {"rm", 1, 1, "NAME", ferry_segment_rm, false},
};

#define VERB_COUNT (sizeof(verbs) / sizeof(verbs[0]))

static const struct verb *find_verb(const char *name)
{
    for (size_t i = 0; i < VERB_COUNT; i++) {
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    }
    return NULL;
}

static void check_words(struct argp_state *state, const struct ferry_segment_arguments *arguments)
{
    const struct verb *verb = arguments->word_count > 0 ? find_verb(arguments->words[0]) : NULL;
    size_t count = arguments->word_count - 1;

    if (arguments->word_count == 0)
        argp_error(state, "expected a verb: show, list, create, register, map, unmap, verify, "
                          "resize or rm");
    if (verb == NULL)
        argp_error(state,
                   "unknown verb \"%s\": expected show, list, create, register, map, unmap, "
                   "verify, resize or rm",
                   arguments->words[0]);
    if (count < verb->words_min)
        argp_error(state, "expected: %s %s", verb->name, verb->words);
    if (count > verb->words_max)
        argp_error(state, "unexpected argument \"%s\"", arguments->words[1 + verb->words_max]);
    for (size_t i = 1; i <= count; i++) {
        if (arguments->words[i][0] == '\0')
            argp_error(state, "%s: argument %zu is empty", verb->name, i);
    }
}

static void add_word(struct argp_state *state, struct ferry_segment_arguments *arguments,
                     const char *word)
{
    const char **grown = realloc(arguments->words,
                                 (arguments->word_count + 1) * sizeof(*arguments->words));

    if (grown == NULL)
        argp_failure(state, FERRY_EXIT_ENVIRONMENT, ENOMEM, "arguments");
    arguments->words = grown;
    arguments->words[arguments->word_count++] = word;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ferry_segment_arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case KEY_HOST:
        arguments->host = arg;
        return 0;
    case KEY_SIZE:
        if (!ferry_cli_parse_size(arg, &arguments->size) || arguments->size == 0)
            argp_error(state, "--size %s: expected %s", arg, FERRY_CLI_SIZE_HELP);
        return 0;
    case KEY_SPARSE:
        arguments->sparse = true;
        return 0;
    case KEY_EXTEND:
        arguments->extend = true;
        return 0;
    case KEY_MEMORY:
        arguments->memory = true;
        return 0;
    case KEY_PURGE:
        arguments->purge = true;
        return 0;
    case KEY_HIDDEN:
        arguments->hidden = true;
        return 0;
    case KEY_QUICK:
        arguments->quick = true;
        return 0;
    case ARGP_KEY_ARG:
        add_word(state, arguments, arg);
        return 0;
    case ARGP_KEY_END:
        check_words(state, arguments);
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

static int show_memory(struct ferry_engine *engine, const struct ferry_segment_arguments *arguments,
                       uint64_t segment)
{
    const char *name = arguments->words[1];
    struct ferry_segment_buffer *buffers = NULL;
    size_t count = 0;
    uint64_t total = 0;
    char size[FERRY_CLI_TEXT_SIZE];
    enum ferry_status status = ferry_cli_buffers(engine, segment, &buffers, &count);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, name);

    struct json_object *document = fetch_document(engine, segment);

    for (size_t i = 0; i < count; i++)
        total += buffers[i].length;
    if (arguments->cli.json) {
        struct json_object *object = json_object_new_object();

        json_object_object_add(object, "name", json_object_new_string(name));
        json_object_object_add(object, "buffers", ferry_cli_buffers_json(buffers, count));
        json_object_object_add(object, "bytes", json_object_new_uint64(total));
        json_object_object_add(object, "document", json_object_get(document));
        ferry_cli_print_json(object);
    } else {
        printf("segment %s\n", name);
        print_transports(document);
        ferry_cli_print_buffers(buffers, count);
        printf("%zu buffer%s, %s\n", count, count == 1 ? "" : "s", ferry_cli_size(total, size));
    }
    json_object_put(document);
    free(buffers);
    return FERRY_EXIT_OK;
}

static int open_and_show(const struct ferry_config *config,
                         const struct ferry_segment_arguments *arguments)
{
    int exit_status = FERRY_EXIT_OK;
    struct ferry_engine *engine = ferry_cli_open(config, &exit_status);
    uint64_t segment;

    if (engine == NULL)
        return exit_status;

    enum ferry_status status = ferry_segment_open(engine, arguments->words[1], FERRY_NO_DEADLINE,
                                                  &segment);

    if (status == FERRY_OK) {
        exit_status = show_memory(engine, arguments, segment);
        ferry_segment_close(engine, segment);
    } else {
        exit_status = ferry_cli_fail(status, "");
    }
    return ferry_cli_close(engine, exit_status);
}

static bool is_file_segment(const char *name)
{
    return strncmp(name, "nvmeof/", 7) == 0;
}

/*
 * A name with "nvmeof/" in front is a file segment's. Any other one is a memory segment's, unless
 * there is a store that knows a file segment of that name.
 */
static int show(const struct ferry_segment_arguments *arguments, struct ferry_catalog *catalog)
{
    enum ferry_status status = ferry_catalog_open(arguments->config, &catalog);
    char *text = NULL;
    int exit_status;

    if (status != FERRY_OK && is_file_segment(arguments->words[1]))
        return ferry_cli_fail(status, "");
    if (status == FERRY_OK && !is_file_segment(arguments->words[1])) {
        status = ferry_catalog_describe(catalog, arguments->words[1], FERRY_CATALOG_DOCUMENT,
                                        FERRY_NO_DEADLINE, &text);
        ferry_text_free(text);
    }
    exit_status = status == FERRY_OK ? ferry_segment_show_files(arguments, catalog)
                                     : open_and_show(arguments->config, arguments);
    ferry_catalog_close(catalog);
    return exit_status;
}

static int run(const struct ferry_segment_arguments *arguments)
{
    const struct verb *verb = find_verb(arguments->words[0]);
    struct ferry_catalog *catalog = NULL;
    enum ferry_status status;
    int exit_status;

    if (verb->without_store)
        return verb->run(arguments, NULL);
    status = ferry_catalog_open(arguments->config, &catalog);
    if (status != FERRY_OK)
        return ferry_cli_fail(status, "");
    exit_status = verb->run(arguments, catalog);
    ferry_catalog_close(catalog);
    return exit_status;
}

int ferry_cmd_segment(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "VERB [ARGUMENT...]",
        .doc = "Show segments, and make file segments known.\vVerbs:\n"
               "  show NAME                      what a segment offers; where this host has its "
               "files\n"
               "  list                           the file segments of the metadata store\n"
               "  create --size SIZE FILE...     make backing files\n"
               "  register NAME FILE...          make a segment of files known\n"
               "  map NAME ORIGINAL LOCAL        say where this host has one of its files\n"
               "  unmap NAME [ORIGINAL]          take this host out of the path maps\n"
               "  verify NAME                    read all of it as this host has it\n"
               "  resize NAME ORIGINAL           let the segment follow the length of a file\n"
               "  rm NAME                        forget the segment\n\n"
               "ORIGINAL is a path as it was registered, or #N for the Nth file, from 0. Without a "
               "metadata store, NAME is the address of the peer's control plane, "
               "HOST:PORT.\n\n" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct ferry_segment_arguments arguments = {0};
    struct ferry_config *config = NULL;
    int exit_status = FERRY_EXIT_USAGE;

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) == 0)
        config = ferry_cli_config(&arguments.cli);
    arguments.config = config;
    if (config != NULL &&
        (arguments.host == NULL || ferry_cli_set(config, "host_name", arguments.host)))
        exit_status = run(&arguments);
    ferry_config_destroy(config);
    free(arguments.words);
    return exit_status;
}
