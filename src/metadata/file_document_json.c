/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a file segment as JSON; see file_document.h. Pure; any thread. Memory is bounded
 * by a multiple of the text's length.
 */
#include "metadata/file_document.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "metadata/host_names.h"

#define PROTOCOL "nvmeof"

/* By the parser's estimate, which is about twice what json-c takes. */
static const struct ferry_json_limits limits = {
    .text_bytes_max = FERRY_FILE_DOCUMENT_TEXT_MAX,
    .memory_bytes_max = (size_t)1 << 28,
    .depth_max = 32,
};

static const char *const root_known[] = {"server_name", "protocol", "buffers", NULL};
static const char *const piece_known[] = {"length", "file_path", "local_path_map", NULL};

static enum ferry_status no_memory(void)
{
    return ferry_fail(FERRY_ERR_NO_MEMORY, "file segment document: out of memory");
}

static bool is_one_of(const char *key, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (strcmp(*keys, key) == 0)
            return true;
    }
    return false;
}

/* Set aside all members of @object but those in the list; a member that is null counts as one. */
static enum ferry_status keep_others(const struct ferry_json *object, const char *const *keys,
                                     struct json_object **kept)
{
    struct json_object_iterator at = json_object_iter_begin(object->value);
    struct json_object_iterator end = json_object_iter_end(object->value);

    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);
        struct json_object *value = json_object_iter_peek_value(&at);

        if (is_one_of(key, keys))
            continue;
        if (*kept == NULL)
            *kept = json_object_new_object();
        if (*kept == NULL)
            return no_memory();
        if (json_object_object_add(*kept, key, json_object_get(value)) != 0) {
            json_object_put(value);
            return no_memory();
        }
    }
    return FERRY_OK;
}

static enum ferry_status parse_place(const struct ferry_json *map, const char *host,
                                     struct ferry_file_document *doc, uint32_t index)
{
    struct ferry_file_piece *piece = &doc->files[index];
    const char *path;
    enum ferry_status status;

    if (!ferry_host_name_ok(host))
        return ferry_json_fail(map, "\"%.100s\" is no name of a host", host);
    status = ferry_json_string(map, host, FERRY_FILE_PATH_MAX, &path);
    if (status != FERRY_OK)
        return status;
    if (piece->place_count == FERRY_FILE_DOCUMENT_HOSTS_MAX)
        return ferry_json_fail(map, "more than %d hosts", FERRY_FILE_DOCUMENT_HOSTS_MAX);
    return ferry_file_piece_add_place(piece, host, path);
}

static enum ferry_status parse_places(const struct ferry_json *object,
                                      struct ferry_file_document *doc, uint32_t index)
{
    struct ferry_json map;
    enum ferry_status status = ferry_json_object(object, "local_path_map", &map);

    if (status != FERRY_OK)
        return status;

    struct json_object_iterator at = json_object_iter_begin(map.value);
    struct json_object_iterator end = json_object_iter_end(map.value);

    for (; status == FERRY_OK && !json_object_iter_equal(&at, &end); json_object_iter_next(&at))
        status = parse_place(&map, json_object_iter_peek_name(&at), doc, index);
    return status;
}

static enum ferry_status parse_piece(const struct ferry_json *object,
                                     struct ferry_file_document *doc)
{
    uint64_t length = 0;
    uint64_t offset = 0;
    uint32_t index = 0;
    const char *path = "";
    enum ferry_status status = ferry_json_u64(object, "length", 0, FERRY_FILE_LENGTH_MAX, &length);

    if (status == FERRY_OK)
        status = ferry_json_opt_u64(object, "offset", 0, FERRY_FILE_LENGTH_MAX, &offset);
    if (status == FERRY_OK && length > FERRY_FILE_LENGTH_MAX - offset)
        status = ferry_json_fail(object,
                                 "offset %" PRIu64 " and length %" PRIu64 " end beyond %" PRIu64,
                                 offset, length, FERRY_FILE_LENGTH_MAX);
    if (status == FERRY_OK && length > FERRY_FILE_LENGTH_MAX - doc->length)
        status = ferry_json_fail(object, "the lengths up to here make more than %" PRIu64,
                                 FERRY_FILE_LENGTH_MAX);
    if (status == FERRY_OK)
        status = ferry_json_string(object, "file_path", FERRY_FILE_PATH_MAX, &path);
    if (status == FERRY_OK && path[0] == '\0')
        status = ferry_json_fail(object, "file_path is empty");
    if (status == FERRY_OK)
        status = ferry_file_document_add(doc, path, length, &index);
    if (status != FERRY_OK)
        return status;
    doc->files[index].file_offset = offset;
    status = parse_places(object, doc, index);
    return status != FERRY_OK ? status : keep_others(object, piece_known, &doc->files[index].kept);
}

static enum ferry_status parse_pieces(const struct ferry_json *root,
                                      struct ferry_file_document *doc)
{
    struct ferry_json array;
    enum ferry_status status = ferry_json_array(root, "buffers", &array);

    if (status != FERRY_OK)
        return status;
    if (ferry_json_len(&array) == 0)
        return ferry_json_fail(&array, "no file; a segment has at least one");
    if (ferry_json_len(&array) > FERRY_FILE_DOCUMENT_FILES_MAX)
        return ferry_json_fail(&array, "%zu files, at most %u are allowed", ferry_json_len(&array),
                               FERRY_FILE_DOCUMENT_FILES_MAX);
    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&array); i++) {
        struct ferry_json item = ferry_json_item(&array, i);

        status = parse_piece(&item, doc);
    }
    return status;
}

/* Scripts of the reference write "server_name", its engines read "name". */
static enum ferry_status parse_name(const struct ferry_json *root, struct ferry_file_document *doc)
{
    const char *server_name = NULL;
    const char *name = NULL;
    enum ferry_status status = ferry_json_opt_string(root, "server_name", FERRY_FILE_PATH_MAX,
                                                     &server_name);

    if (status == FERRY_OK)
        status = ferry_json_opt_string(root, "name", FERRY_FILE_PATH_MAX, &name);
    if (status != FERRY_OK)
        return status;
    doc->server_name_absent = server_name == NULL;
    if (server_name == NULL)
        server_name = name != NULL ? name : "";
    doc->server_name = strdup(server_name);
    return doc->server_name != NULL ? FERRY_OK : no_memory();
}

static enum ferry_status parse_protocol(const struct ferry_json *root)
{
    const char *protocol;
    enum ferry_status status = ferry_json_string(root, "protocol", FERRY_FILE_HOST_MAX, &protocol);

    if (status != FERRY_OK || strcmp(protocol, PROTOCOL) == 0)
        return status;
    return ferry_json_fail(root, "protocol: expected \"%s\", found \"%.60s\"", PROTOCOL, protocol);
}

static enum ferry_status parse_root(const struct ferry_json *root, struct ferry_file_document *doc)
{
    enum ferry_status status = ferry_json_as_object(root);

    if (status == FERRY_OK)
        status = parse_protocol(root);
    if (status == FERRY_OK)
        status = parse_name(root, doc);
    if (status == FERRY_OK)
        status = parse_pieces(root, doc);
    return status != FERRY_OK ? status : keep_others(root, root_known, &doc->kept);
}

/* FNV-1a with 64 bits; never 0, which is no revision. */
static uint64_t digest(const char *text, size_t len)
{
    uint64_t value = 14695981039346656037u;

    for (size_t i = 0; i < len; i++)
        value = (value ^ (unsigned char)text[i]) * 1099511628211u;
    return value != 0 ? value : 1;
}

enum ferry_status ferry_file_document_parse(const char *text, size_t len,
                                            struct ferry_file_document **doc_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_file_document *doc;
    enum ferry_status status = ferry_json_parse(&limits, "file segment document", text, len, &root);

    if (status == FERRY_OK) {
        doc = calloc(1, sizeof(*doc));
        status = doc != NULL ? parse_root(&root, doc) : no_memory();
        if (status == FERRY_OK) {
            doc->revision = digest(text, len);
            *doc_out = doc;
        } else {
            ferry_file_document_destroy(doc);
        }
    }
    /* What a store holds wrongly is no invalid argument of ours; the text stays. */
    return status == FERRY_ERR_INVALID ? FERRY_ERR_METADATA : status;
}

/* All kept members; false when memory ran out. */
static bool put_kept(struct json_object *object, struct json_object *kept)
{
    if (kept == NULL)
        return true;

    struct json_object_iterator at = json_object_iter_begin(kept);
    struct json_object_iterator end = json_object_iter_end(kept);

    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        struct json_object *value = json_object_get(json_object_iter_peek_value(&at));

        if (json_object_object_add(object, json_object_iter_peek_name(&at), value) != 0) {
            json_object_put(value);
            return false;
        }
    }
    return true;
}

static struct json_object *print_piece(const struct ferry_file_piece *piece)
{
    struct json_object *object = json_object_new_object();
    struct json_object *map = json_object_new_object();
    bool ok = object != NULL && map != NULL &&
              ferry_json_put_u64(object, "length", piece->length) &&
              ferry_json_put_string(object, "file_path", piece->file_path);

    for (uint32_t i = 0; ok && i < piece->place_count; i++)
        ok = ferry_json_put_string(map, piece->places[i].host, piece->places[i].path);
    if (ok)
        ok = ferry_json_put(object, "local_path_map", json_object_get(map));
    /* "offset" is among the kept ones: only documents that had it have it. */
    ok = ok && put_kept(object, piece->kept);
    json_object_put(map);
    if (ok)
        return object;
    json_object_put(object);
    return NULL;
}

static struct json_object *print_pieces(const struct ferry_file_document *doc)
{
    struct json_object *array = json_object_new_array();

    for (uint32_t i = 0; array != NULL && i < doc->file_count; i++) {
        if (!ferry_json_append(array, print_piece(&doc->files[i]))) {
            json_object_put(array);
            array = NULL;
        }
    }
    return array;
}

enum ferry_status ferry_file_document_print(const struct ferry_file_document *doc, char **text_out,
                                            size_t *len_out)
{
    struct json_object *root = json_object_new_object();
    bool ok = root != NULL &&
              (doc->server_name_absent ||
               ferry_json_put_string(root, "server_name", doc->server_name)) &&
              ferry_json_put_string(root, "protocol", PROTOCOL) &&
              ferry_json_put(root, "buffers", print_pieces(doc)) && put_kept(root, doc->kept);
    enum ferry_status status =
        ok ? ferry_json_print(root, FERRY_FILE_DOCUMENT_TEXT_MAX, text_out, len_out) : no_memory();

    json_object_put(root);
    if (status == FERRY_ERR_TOO_LARGE)
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "file segment document: the text of %" PRIu32
                          " files and their hosts is longer than %u bytes",
                          doc->file_count, FERRY_FILE_DOCUMENT_TEXT_MAX);
    return status;
}
