/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be changed about a file segment: register, map, unmap, resize, remove. Files are looked
 * at before anything is written. Any thread; blocks.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "runtime/catalog.h"
#include "runtime/catalog_look.h"

/* Two paths to one file would be two places for one byte. */
static enum ferry_status check_twice(const struct ferry_look *looks, const char *const *files,
                                     size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (looks[i].device == looks[index].device && looks[i].inode == looks[index].inode)
            return ferry_fail(FERRY_ERR_INVALID, "\"%.200s\" and \"%.200s\" are one file", files[i],
                              files[index]);
    }
    return FERRY_OK;
}

static enum ferry_status add_file(struct ferry_catalog *catalog, struct ferry_file_document *doc,
                                  const char *path, const struct ferry_look *look)
{
    uint32_t index;
    enum ferry_status status;

    if (look->size == 0)
        return ferry_fail(FERRY_ERR_INVALID, "\"%.300s\" is empty", path);
    status = ferry_file_document_add(doc, path, look->size, &index);
    return status == FERRY_OK
               ? ferry_file_document_place(doc, index, ferry_host_names_first(&catalog->host), path)
               : status;
}

static enum ferry_status fill(struct ferry_catalog *catalog, struct ferry_file_document *doc,
                              const char *const *files, size_t file_count)
{
    FERRY_AUTO_FREE struct ferry_look *looks = calloc(file_count, sizeof(*looks));
    enum ferry_status status = FERRY_OK;

    if (looks == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "catalog: out of memory");
    for (size_t i = 0; status == FERRY_OK && i < file_count; i++) {
        status = ferry_look_at(files[i], &looks[i]);
        if (status == FERRY_OK)
            status = check_twice(looks, files, i);
        if (status == FERRY_OK)
            status = add_file(catalog, doc, files[i], &looks[i]);
    }
    return status;
}

/* Who is there already. Takes request->reply. */
static enum ferry_status fail_known(const char *name, struct ferry_store_request *request)
{
    struct ferry_file_document *doc = NULL;
    const char *by = "somebody";

    if (request->reply != NULL &&
        ferry_file_document_parse(request->reply, request->reply_len, &doc) == FERRY_OK)
        by = doc->server_name;
    ferry_fail(FERRY_ERR_EXISTS,
               "segment %s is known already: registered by %.200s, revision %" PRIu64, name, by,
               request->revision);
    ferry_file_document_destroy(doc);
    free(request->reply);
    return FERRY_ERR_EXISTS;
}

/* A store that does not compare is asked first, which another one may slip in behind. */
static enum ferry_status look_for(struct ferry_catalog *catalog, const char *name,
                                  uint64_t deadline_ns)
{
    struct ferry_store_request request = {
        .verb = FERRY_STORE_GET, .name = name, .deadline_ns = deadline_ns};
    enum ferry_status status = ferry_store_call(catalog->store, &request);

    if (status == FERRY_OK)
        return fail_known(name, &request);
    return status == FERRY_ERR_NOT_FOUND ? FERRY_OK : status;
}

static enum ferry_status put_new(struct ferry_catalog *catalog, const char *name,
                                 const struct ferry_file_document *doc, uint64_t deadline_ns)
{
    bool compares = ferry_catalog_compares(catalog);
    struct ferry_store_request request = {
        .verb = FERRY_STORE_PUT,
        .name = name,
        .expect = compares ? FERRY_STORE_NOTHING : FERRY_STORE_ANYTHING,
        .deadline_ns = deadline_ns,
    };
    char *text = NULL;
    enum ferry_status status = ferry_file_document_print(doc, &text, &request.text_len);

    if (status == FERRY_OK && !compares)
        status = look_for(catalog, name, deadline_ns);
    if (status == FERRY_OK) {
        request.text = text;
        status = ferry_store_call(catalog->store, &request);
        if (status == FERRY_ERR_EXISTS)
            status = fail_known(name, &request);
    }
    free(text);
    return status;
}

enum ferry_status ferry_catalog_register(struct ferry_catalog *catalog, const char *segment,
                                         const char *const *files, size_t file_count,
                                         uint64_t deadline_ns)
{
    char name[FERRY_CATALOG_NAME_SIZE];
    struct ferry_file_document *doc = NULL;
    enum ferry_status status = ferry_catalog_name(segment, name);

    if (status != FERRY_OK)
        return status;
    if (files == NULL || file_count == 0)
        return ferry_fail(FERRY_ERR_INVALID, "segment %s: no file", name);
    status = ferry_file_document_create(ferry_host_names_first(&catalog->host), &doc);
    if (status == FERRY_OK)
        status = fill(catalog, doc, files, file_count);
    if (status == FERRY_OK)
        status = put_new(catalog, name, doc, ferry_catalog_deadline(deadline_ns));
    ferry_file_document_destroy(doc);
    return status;
}

struct place {
    const char *file;
    const char *path;
    bool extend;
};

static enum ferry_status check_long_enough(const struct ferry_file_piece *piece, const char *path)
{
    struct ferry_look look;
    uint64_t need = piece->file_offset + piece->length;
    enum ferry_status status = ferry_look_at(path, &look);

    if (status == FERRY_OK && look.size < need)
        status = ferry_fail(FERRY_ERR_RANGE,
                            "\"%.300s\" has %" PRIu64 " bytes, expected at least %" PRIu64, path,
                            look.size, need);
    return status == FERRY_OK ? ferry_look_open(path, O_RDONLY) : status;
}

static enum ferry_status map(struct ferry_catalog *catalog, struct ferry_file_document *doc,
                             void *arg)
{
    const struct place *place = arg;
    uint32_t index = 0;
    enum ferry_status status = ferry_catalog_find(doc, place->file, &index);

    if (status == FERRY_OK)
        status = check_long_enough(&doc->files[index], place->path);
    if (status == FERRY_OK)
        status = ferry_file_document_place(doc, index, ferry_host_names_first(&catalog->host),
                                           place->path);
    return status;
}

enum ferry_status ferry_catalog_map(struct ferry_catalog *catalog, const char *segment,
                                    const char *file, const char *path, uint64_t deadline_ns)
{
    struct place place = {.file = file, .path = path};

    if (file == NULL || path == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "map: no file, or no path");
    return ferry_catalog_update(catalog, segment, deadline_ns, map, &place);
}

/* Under any of its names. */
static bool displace(struct ferry_catalog *catalog, struct ferry_file_document *doc, uint32_t index)
{
    bool displaced = false;

    for (uint32_t i = 0; i < catalog->host.count; i++)
        displaced = ferry_file_document_displace(doc, index, catalog->host.names[i]) || displaced;
    return displaced;
}

static enum ferry_status unmap(struct ferry_catalog *catalog, struct ferry_file_document *doc,
                               void *arg)
{
    const struct place *place = arg;
    uint32_t index = 0;
    uint32_t end = doc->file_count;
    bool displaced = false;

    if (place->file != NULL) {
        enum ferry_status status = ferry_catalog_find(doc, place->file, &index);

        if (status != FERRY_OK)
            return status;
        end = index + 1;
    }
    for (; index < end; index++)
        displaced = displace(catalog, doc, index) || displaced;
    return displaced ? FERRY_OK
                     : ferry_fail(FERRY_ERR_NOT_MAPPED, "host %s is not in the path map",
                                  ferry_host_names_first(&catalog->host));
}

enum ferry_status ferry_catalog_unmap(struct ferry_catalog *catalog, const char *segment,
                                      const char *file, uint64_t deadline_ns)
{
    struct place place = {.file = file};

    return ferry_catalog_update(catalog, segment, deadline_ns, unmap, &place);
}

static enum ferry_status resize(struct ferry_catalog *catalog, struct ferry_file_document *doc,
                                void *arg)
{
    const struct place *place = arg;
    const char *path = NULL;
    struct ferry_look look = {0};
    uint64_t length;
    uint32_t index = 0;
    enum ferry_status status = ferry_catalog_find(doc, place->file, &index);

    if (status == FERRY_OK)
        status = ferry_file_document_resolve(doc, index, &catalog->host, "of the catalog", &path);
    if (status == FERRY_OK)
        status = ferry_look_at(path, &look);
    if (status != FERRY_OK)
        return status;
    length = doc->files[index].length;
    if (look.size < doc->files[index].file_offset ||
        look.size - doc->files[index].file_offset < length)
        return ferry_fail(FERRY_ERR_RANGE,
                          "\"%.300s\" has %" PRIu64 " bytes and the segment says %" PRIu64
                          ": a segment does not shrink, other hosts read there",
                          path, look.size, doc->files[index].file_offset + length);
    if (look.size - doc->files[index].file_offset > length && !place->extend)
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.300s\" has %" PRIu64 " bytes and the segment says %" PRIu64
                          ": to make the segment longer, say so (extend)",
                          path, look.size, doc->files[index].file_offset + length);
    return ferry_file_document_resize(doc, index, look.size - doc->files[index].file_offset);
}

enum ferry_status ferry_catalog_resize(struct ferry_catalog *catalog, const char *segment,
                                       const char *file, bool extend, uint64_t deadline_ns)
{
    struct place place = {.file = file, .extend = extend};

    if (file == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "resize: no file");
    return ferry_catalog_update(catalog, segment, deadline_ns, resize, &place);
}

enum ferry_status ferry_catalog_remove(struct ferry_catalog *catalog, const char *segment,
                                       uint64_t deadline_ns)
{
    char name[FERRY_CATALOG_NAME_SIZE];
    enum ferry_status status = ferry_catalog_name(segment, name);

    if (status != FERRY_OK)
        return status;

    struct ferry_store_request get = {
        .verb = FERRY_STORE_GET, .name = name, .deadline_ns = ferry_catalog_deadline(deadline_ns)};
    struct ferry_store_request gone = {
        .verb = FERRY_STORE_DELETE, .name = name, .deadline_ns = get.deadline_ns};

    /* A name that nobody knows is a mistake to be told, not a success. */
    status = ferry_store_call(catalog->store, &get);
    free(get.reply);
    return status == FERRY_OK ? ferry_store_call(catalog->store, &gone) : status;
}
