/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file segment as JSON: what the store says, and what this host finds when it looks. Any thread;
 * blocks in the store and in the file system.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/error.h"
#include "base/json.h"
#include "runtime/catalog.h"
#include "runtime/catalog_look.h"

#define TEXT_MAX ((size_t)64 << 20)

/* All of a segment's files while it is described. */
struct describing {
    struct ferry_catalog *catalog;
    const struct ferry_file_document *doc;
    enum ferry_catalog_depth depth;
    const char *name;
    struct ferry_look *looks; /* one a file; inode and device 0 where nothing was found */
    uint32_t problems;
    bool ok; /* no memory ran out */
};

static void put(struct describing *d, struct json_object *object, const char *key,
                struct json_object *value)
{
    d->ok = ferry_json_put(object, key, value) && d->ok;
}

static void put_text(struct describing *d, struct json_object *object, const char *key,
                     const char *text)
{
    d->ok = ferry_json_put_string(object, key, text) && d->ok;
}

static void put_u64(struct describing *d, struct json_object *object, const char *key, uint64_t n)
{
    d->ok = ferry_json_put_u64(object, key, n) && d->ok;
}

static void put_bool(struct describing *d, struct json_object *object, const char *key, bool value)
{
    d->ok = ferry_json_put_bool(object, key, value) && d->ok;
}

static void put_problem(struct describing *d, struct json_object *object, const char *text)
{
    put_text(d, object, "problem", text);
    d->problems++;
}

/* Where a symbolic link leads. */
static void put_target(struct describing *d, struct json_object *object, const char *path)
{
    FERRY_AUTO_FREE char *real = realpath(path, NULL);

    if (real != NULL && strcmp(real, path) != 0)
        put_text(d, object, "target", real);
}

/* Another piece that is the same file, at overlapping bytes; UINT32_MAX if there is none. */
static uint32_t find_same(const struct describing *d, uint32_t index)
{
    const struct ferry_look *look = &d->looks[index];
    const struct ferry_file_piece *piece = &d->doc->files[index];

    for (uint32_t i = 0; i < index; i++) {
        const struct ferry_file_piece *other = &d->doc->files[i];

        if (d->looks[i].device == look->device && d->looks[i].inode == look->inode &&
            other->file_offset < piece->file_offset + piece->length &&
            piece->file_offset < other->file_offset + other->length)
            return i;
    }
    return UINT32_MAX;
}

/* The first thing that is wrong with a file that is there; false if nothing is. */
static bool is_wrong(struct describing *d, uint32_t index, const char *path, char *text,
                     size_t size)
{
    const struct ferry_file_piece *piece = &d->doc->files[index];
    uint64_t need = piece->file_offset + piece->length;
    uint32_t same = find_same(d, index);

    if (d->looks[index].size < need)
        snprintf(text, size, "%" PRIu64 " bytes, expected %" PRIu64, d->looks[index].size, need);
    else if (same != UINT32_MAX)
        snprintf(text, size, "it is the file of #%" PRIu32 " as well", same);
    else if (ferry_look_open(path, O_RDONLY) != FERRY_OK)
        snprintf(text, size, "%s", ferry_last_error_text());
    else if (d->depth == FERRY_CATALOG_READ &&
             ferry_look_read(path, piece->file_offset, piece->length) != FERRY_OK)
        snprintf(text, size, "%s", ferry_last_error_text());
    else
        return false;
    return true;
}

static void look(struct describing *d, struct json_object *object, uint32_t index, const char *path)
{
    static const char *const kinds[] = {"file", "device", "other"};
    const struct ferry_file_piece *piece = &d->doc->files[index];
    struct json_object *mount = ferry_look_mount(path);
    char text[FERRY_ERROR_TEXT_SIZE];
    enum ferry_status status;

    if (mount != NULL)
        put(d, object, "mount", mount);
    status = ferry_look_at(path, &d->looks[index]);
    if (status != FERRY_OK) {
        d->looks[index] = (struct ferry_look){0};
        put_problem(d, object, ferry_last_error_text());
        return;
    }
    put_text(d, object, "kind", kinds[d->looks[index].kind]);
    put_u64(d, object, "size", d->looks[index].size);
    put_target(d, object, path);
    put_bool(d, object, "readable", ferry_look_open(path, O_RDONLY) == FERRY_OK);
    put_bool(d, object, "writable", ferry_look_open(path, O_RDWR) == FERRY_OK);
    put_bool(d, object, "direct", ferry_look_direct(path));
    if (d->looks[index].size > piece->file_offset + piece->length &&
        d->looks[index].kind == FERRY_LOOK_FILE)
        put_text(d, object, "note", "longer than the segment says");
    if (is_wrong(d, index, path, text, sizeof(text)))
        put_problem(d, object, text);
}

static struct json_object *describe_file(struct describing *d, uint32_t index)
{
    const struct ferry_file_piece *piece = &d->doc->files[index];
    struct json_object *object = json_object_new_object();
    struct json_object *paths = json_object_new_object();
    const char *path = ferry_file_document_path(d->doc, index, &d->catalog->host);
    const char *usable = NULL;

    if (object == NULL || paths == NULL) {
        json_object_put(object);
        json_object_put(paths);
        return NULL;
    }
    put_u64(d, object, "index", index);
    put_text(d, object, "file_path", piece->file_path);
    put_u64(d, object, "start", piece->start);
    put_u64(d, object, "length", piece->length);
    put_u64(d, object, "offset", piece->file_offset);
    for (uint32_t i = 0; i < piece->place_count; i++)
        put_text(d, paths, piece->places[i].host, piece->places[i].path);
    put(d, object, "paths", paths);
    if (path != NULL)
        put_text(d, object, "path", path);
    else
        json_object_object_add(object, "path", NULL);
    if (d->depth == FERRY_CATALOG_DOCUMENT)
        return object;
    if (ferry_file_document_resolve(d->doc, index, &d->catalog->host, d->name, &usable) != FERRY_OK)
        put_problem(d, object, ferry_last_error_text());
    else
        look(d, object, index, usable);
    return object;
}

static struct json_object *describe(struct describing *d)
{
    struct json_object *root = json_object_new_object();
    struct json_object *files = json_object_new_array();

    for (uint32_t i = 0; files != NULL && i < d->doc->file_count; i++)
        d->ok = ferry_json_append(files, describe_file(d, i)) && d->ok;
    if (root == NULL) {
        json_object_put(files);
        return NULL;
    }
    put_text(d, root, "name", d->name);
    put_u64(d, root, "revision", d->doc->revision);
    put_u64(d, root, "length", d->doc->length);
    put_text(d, root, "registered_by", d->doc->server_name);
    put_text(d, root, "host", ferry_host_names_first(&d->catalog->host));
    put_u64(d, root, "problems", d->problems);
    put(d, root, "files", files);
    return root;
}

enum ferry_status ferry_catalog_describe(struct ferry_catalog *catalog, const char *segment,
                                         enum ferry_catalog_depth depth, uint64_t deadline_ns,
                                         char **json_out)
{
    char name[FERRY_CATALOG_NAME_SIZE];
    struct ferry_file_document *doc = NULL;
    struct describing d = {.catalog = catalog, .depth = depth, .name = name, .ok = true};
    struct json_object *root = NULL;
    size_t len = 0;
    enum ferry_status status = ferry_catalog_name(segment, name);

    if (status != FERRY_OK)
        return status;
    if (json_out == NULL || depth < FERRY_CATALOG_DOCUMENT || depth > FERRY_CATALOG_READ)
        return ferry_fail(FERRY_ERR_INVALID, "catalog: depth %d, or nowhere to put the text",
                          (int)depth);
    status = ferry_catalog_read(catalog, name, ferry_catalog_deadline(deadline_ns), &doc);
    if (status != FERRY_OK)
        return status;
    d.doc = doc;
    d.looks = calloc(doc->file_count, sizeof(*d.looks));
    if (d.looks != NULL)
        root = describe(&d);
    status = root != NULL && d.ok ? ferry_json_print(root, TEXT_MAX, json_out, &len)
                                  : ferry_fail(FERRY_ERR_NO_MEMORY, "catalog: out of memory");
    json_object_put(root);
    free(d.looks);
    ferry_file_document_destroy(doc);
    return status;
}
