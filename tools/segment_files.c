/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry segment list | register | map | unmap | resize | rm | verify`, and show of a file segment:
 * words to calls of the catalog, and what they bring to lines or JSON. One thread.
 */
#include "segment_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "text.h"

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    if (json_object_is_type(object, json_type_object))
        json_object_object_get_ex(object, key, &value);
    return value;
}

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *value = member(object, key);

    return value != NULL ? json_object_get_string(value) : NULL;
}

static uint64_t number_of(struct json_object *object, const char *key)
{
    return json_object_get_uint64(member(object, key));
}

/* Who changes an entry without comparing may undo what another one did; say it once. */
static void warn_about_store(struct ferry_catalog *catalog)
{
    if (!ferry_catalog_compares(catalog))
        ferry_cli_say("this store cannot compare before it writes: of two hosts that change one "
                      "segment at the same time one change is lost");
}

static void print_paths(struct json_object *file)
{
    struct json_object *paths = member(file, "paths");

    if (paths == NULL || json_object_object_length(paths) == 0)
        printf("     no host has it\n");
    if (paths == NULL)
        return;

    struct json_object_iterator at = json_object_iter_begin(paths);
    struct json_object_iterator end = json_object_iter_end(paths);

    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
        printf("     %s: %s\n", json_object_iter_peek_name(&at),
               json_object_get_string(json_object_iter_peek_value(&at)));
    if (text_of(file, "path") != NULL)
        printf("     this host uses %s\n", text_of(file, "path"));
}

static void print_look(struct json_object *file)
{
    struct json_object *mount = member(file, "mount");
    const char *target = text_of(file, "target");
    const char *note = text_of(file, "note");
    const char *problem = text_of(file, "problem");

    if (text_of(file, "kind") != NULL)
        printf("     here: %s of %" PRIu64 " bytes, %s, %s\n", text_of(file, "kind"),
               number_of(file, "size"),
               json_object_get_boolean(member(file, "writable"))   ? "opens for reading and writing"
               : json_object_get_boolean(member(file, "readable")) ? "opens for reading only"
                                                                   : "does not open",
               json_object_get_boolean(member(file, "direct")) ? "direct I/O works"
                                                               : "no direct I/O");
    if (mount != NULL)
        printf("     on: %s at %s from %s\n", text_of(mount, "type"), text_of(mount, "point"),
               text_of(mount, "source"));
    if (target != NULL)
        printf("     leads to: %s\n", target);
    if (note != NULL)
        printf("     note: %s\n", note);
    if (problem != NULL)
        printf("     problem: %s\n", problem);
}

static void print_segment(struct json_object *segment)
{
    struct json_object *files = member(segment, "files");
    size_t count = json_object_array_length(files);
    char size[FERRY_CLI_TEXT_SIZE];

    printf("segment %s\n", text_of(segment, "name"));
    printf("registered by %s, revision %" PRIu64 ", this host is %s\n",
           text_of(segment, "registered_by"), number_of(segment, "revision"),
           text_of(segment, "host"));
    for (size_t i = 0; i < count; i++) {
        struct json_object *file = json_object_array_get_idx(files, i);

        printf("#%-3zu %" PRIu64 "+%" PRIu64 " %s\n", i, number_of(file, "start"),
               number_of(file, "length"), text_of(file, "file_path"));
        print_paths(file);
        print_look(file);
    }
    printf("%zu file%s, %s\n", count, count == 1 ? "" : "s",
           ferry_cli_size(number_of(segment, "length"), size));
}

/* @strict: a file with a problem is a failure. */
static int describe(const struct ferry_segment_arguments *arguments, struct ferry_catalog *catalog,
                    enum ferry_catalog_depth depth, bool strict)
{
    char *text = NULL;
    enum ferry_status status = ferry_catalog_describe(catalog, arguments->words[1], depth,
                                                      FERRY_NO_DEADLINE, &text);
    struct json_object *segment;
    uint64_t problems;

    if (status != FERRY_OK)
        return ferry_cli_fail(status, "");
    segment = ferry_cli_parse_json(text);
    if (segment == NULL)
        return ferry_cli_fail(FERRY_ERR_NO_MEMORY, arguments->words[1]);
    problems = number_of(segment, "problems");
    if (arguments->cli.json) {
        ferry_cli_print_json(segment);
    } else {
        print_segment(segment);
        if (strict && problems == 0)
            printf("no problem found\n");
        else if (strict)
            printf("%" PRIu64 " file%s with a problem\n", problems, problems == 1 ? "" : "s");
        json_object_put(segment);
    }
    return strict && problems > 0 ? FERRY_EXIT_DATA : FERRY_EXIT_OK;
}

int ferry_segment_show_files(const struct ferry_segment_arguments *arguments,
                             struct ferry_catalog *catalog)
{
    return describe(arguments, catalog, FERRY_CATALOG_LOOK, false);
}

int ferry_segment_verify(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog)
{
    return describe(arguments, catalog, arguments->quick ? FERRY_CATALOG_LOOK : FERRY_CATALOG_READ,
                    true);
}

/* After a change: what the segment is now. */
static int print_changed(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog)
{
    return describe(arguments, catalog, FERRY_CATALOG_DOCUMENT, false);
}

int ferry_segment_list(const struct ferry_segment_arguments *arguments,
                       struct ferry_catalog *catalog)
{
    char *text = NULL;
    enum ferry_status status = ferry_catalog_list(
        catalog, arguments->memory ? FERRY_CATALOG_MEMORY : FERRY_CATALOG_FILES, FERRY_NO_DEADLINE,
        &text);
    struct json_object *names;

    if (status != FERRY_OK)
        return ferry_cli_fail(status, "");
    names = ferry_cli_parse_json(text);
    if (names == NULL)
        return ferry_cli_fail(FERRY_ERR_NO_MEMORY, "list");
    if (arguments->cli.json) {
        ferry_cli_print_json(names);
        return FERRY_EXIT_OK;
    }
    for (size_t i = 0; i < json_object_array_length(names); i++)
        printf("%s\n", json_object_get_string(json_object_array_get_idx(names, i)));
    json_object_put(names);
    return FERRY_EXIT_OK;
}

int ferry_segment_register(const struct ferry_segment_arguments *arguments,
                           struct ferry_catalog *catalog)
{
    struct ferry_segment_paths paths = {0};
    int exit_status = FERRY_EXIT_ENVIRONMENT;

    if (ferry_segment_expand(arguments, 2, &paths)) {
        enum ferry_status status;

        warn_about_store(catalog);
        status = ferry_catalog_register(catalog, arguments->words[1],
                                        (const char *const *)paths.list, paths.count,
                                        FERRY_NO_DEADLINE);
        exit_status = status == FERRY_OK ? print_changed(arguments, catalog)
                                         : ferry_cli_fail(status, "");
    }
    ferry_segment_paths_free(&paths);
    return exit_status;
}

int ferry_segment_map(const struct ferry_segment_arguments *arguments,
                      struct ferry_catalog *catalog)
{
    char *path = ferry_segment_absolute(arguments->words[3]);
    enum ferry_status status;

    if (path == NULL)
        return FERRY_EXIT_ENVIRONMENT;
    warn_about_store(catalog);
    status = ferry_catalog_map(catalog, arguments->words[1], arguments->words[2], path,
                               FERRY_NO_DEADLINE);
    free(path);
    return status == FERRY_OK ? print_changed(arguments, catalog) : ferry_cli_fail(status, "");
}

int ferry_segment_unmap(const struct ferry_segment_arguments *arguments,
                        struct ferry_catalog *catalog)
{
    enum ferry_status status;

    warn_about_store(catalog);
    status = ferry_catalog_unmap(catalog, arguments->words[1],
                                 arguments->word_count > 2 ? arguments->words[2] : NULL,
                                 FERRY_NO_DEADLINE);
    return status == FERRY_OK ? print_changed(arguments, catalog) : ferry_cli_fail(status, "");
}

/* This host's path of a file, malloc'd; NULL after a message. */
static char *path_here(struct ferry_catalog *catalog, const char *name, const char *file,
                       int *exit_out)
{
    char *text = NULL;
    char *path = NULL;
    struct json_object *segment;
    struct json_object *files;
    enum ferry_status status = ferry_catalog_describe(catalog, name, FERRY_CATALOG_DOCUMENT,
                                                      FERRY_NO_DEADLINE, &text);

    if (status != FERRY_OK) {
        *exit_out = ferry_cli_fail(status, "");
        return NULL;
    }
    segment = ferry_cli_parse_json(text);
    files = member(segment, "files");
    for (size_t i = 0; files != NULL && path == NULL && i < json_object_array_length(files); i++) {
        struct json_object *each = json_object_array_get_idx(files, i);
        char index[24];

        snprintf(index, sizeof(index), "#%zu", i);
        if ((strcmp(index, file) == 0 || strcmp(text_of(each, "file_path"), file) == 0) &&
            text_of(each, "path") != NULL)
            path = strdup(text_of(each, "path"));
    }
    json_object_put(segment);
    if (path == NULL) {
        ferry_cli_say("segment %s has no file \"%s\" with a path on this host", name, file);
        *exit_out = FERRY_EXIT_ENVIRONMENT;
    }
    return path;
}

int ferry_segment_resize(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog)
{
    int exit_status = FERRY_EXIT_OK;
    enum ferry_status status;

    if (arguments->size > 0) {
        char *path;

        if (!arguments->extend) {
            ferry_cli_say("--size makes a file longer: say --extend as well");
            return FERRY_EXIT_USAGE;
        }
        path = path_here(catalog, arguments->words[1], arguments->words[2], &exit_status);
        if (path == NULL)
            return exit_status;
        if (!ferry_segment_grow(path, arguments->size))
            exit_status = FERRY_EXIT_ENVIRONMENT;
        free(path);
        if (exit_status != FERRY_EXIT_OK)
            return exit_status;
    }
    warn_about_store(catalog);
    status = ferry_catalog_resize(catalog, arguments->words[1], arguments->words[2],
                                  arguments->extend, FERRY_NO_DEADLINE);
    return status == FERRY_OK ? print_changed(arguments, catalog) : ferry_cli_fail(status, "");
}

/* Delete this host's files of a segment that is gone from the store. */
static int purge(struct json_object *segment)
{
    struct json_object *files = member(segment, "files");
    int exit_status = FERRY_EXIT_OK;

    for (size_t i = 0; i < json_object_array_length(files); i++) {
        struct json_object *file = json_object_array_get_idx(files, i);
        const char *path = text_of(file, "path");

        if (path == NULL || path[0] != '/' || text_of(file, "kind") == NULL ||
            strcmp(text_of(file, "kind"), "file") != 0)
            continue;
        if (unlink(path) == 0 || errno == ENOENT)
            continue;
        ferry_cli_say("cannot delete \"%s\": %s", path, strerror(errno));
        exit_status = FERRY_EXIT_ENVIRONMENT;
    }
    return exit_status;
}

int ferry_segment_rm(const struct ferry_segment_arguments *arguments, struct ferry_catalog *catalog)
{
    const char *name = arguments->words[1];
    char *text = NULL;
    struct json_object *segment;
    enum ferry_status status = ferry_catalog_describe(catalog, name, FERRY_CATALOG_LOOK,
                                                      FERRY_NO_DEADLINE, &text);
    int exit_status = FERRY_EXIT_OK;

    /* A document that cannot be read can still be removed, without its files. */
    if (status != FERRY_OK && (status != FERRY_ERR_METADATA || arguments->purge))
        return ferry_cli_fail(status, "");
    segment = status == FERRY_OK ? ferry_cli_parse_json(text) : NULL;
    status = ferry_catalog_remove(catalog, name, FERRY_NO_DEADLINE);
    if (status != FERRY_OK)
        exit_status = ferry_cli_fail(status, "");
    else if (arguments->purge)
        exit_status = purge(segment);
    if (exit_status == FERRY_EXIT_OK && arguments->cli.json) {
        struct json_object *object = json_object_new_object();

        json_object_object_add(object, "removed", json_object_new_string(name));
        ferry_cli_print_json(object);
    } else if (exit_status == FERRY_EXIT_OK) {
        printf("removed %s; its files %s\n", name,
               arguments->purge ? "on this host are deleted" : "stay");
    }
    json_object_put(segment);
    return exit_status;
}
