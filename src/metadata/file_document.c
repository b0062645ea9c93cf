/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a file segment as data: life, files, places, look-ups. Reading and writing are in
 * file_document_json.c. Pure; no thread of its own.
 */
#include "metadata/file_document.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "metadata/host_names.h"

/* Hosts that an error lists. */
#define HOSTS_SHOWN_MAX 8

static enum ferry_status no_memory(void)
{
    return ferry_fail(FERRY_ERR_NO_MEMORY, "file segment document: out of memory");
}

static bool is_utf8(const char *text)
{
    size_t len = strlen(text);

    while (len > 0) {
        size_t step = ferry_utf8_length((const unsigned char *)text, len);

        if (step == 0)
            return false;
        text += step;
        len -= step;
    }
    return true;
}

/* What can be written to a document and read again. */
static enum ferry_status check_path(const char *path, bool absolute)
{
    size_t len = strlen(path);

    if (len == 0 || len > FERRY_FILE_PATH_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "path \"%.100s\": %zu bytes, expected 1..%d", path,
                          len, FERRY_FILE_PATH_MAX);
    if (absolute && path[0] != '/')
        return ferry_fail(FERRY_ERR_INVALID, "path \"%.300s\" is not absolute", path);
    if (!is_utf8(path))
        return ferry_fail(FERRY_ERR_INVALID,
                          "path \"%.300s\" is not UTF-8, which a document must be", path);
    return FERRY_OK;
}

static enum ferry_status check_host(const char *host)
{
    if (!ferry_host_name_ok(host) || !is_utf8(host))
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.100s\" is no name of a host; expected 1..%d bytes of UTF-8 without "
                          "control characters and commas",
                          host, FERRY_FILE_HOST_MAX);
    return FERRY_OK;
}

enum ferry_status ferry_file_document_create(const char *server_name,
                                             struct ferry_file_document **doc_out)
{
    enum ferry_status status = check_host(server_name);
    struct ferry_file_document *doc;

    if (status != FERRY_OK)
        return status;
    doc = calloc(1, sizeof(*doc));
    if (doc == NULL)
        return no_memory();
    doc->server_name = strdup(server_name);
    if (doc->server_name == NULL) {
        free(doc);
        return no_memory();
    }
    *doc_out = doc;
    return FERRY_OK;
}

void ferry_file_document_destroy(struct ferry_file_document *doc)
{
    if (doc == NULL)
        return;
    for (uint32_t i = 0; i < doc->file_count; i++) {
        struct ferry_file_piece *piece = &doc->files[i];

        for (uint32_t j = 0; j < piece->place_count; j++) {
            free(piece->places[j].host);
            free(piece->places[j].path);
        }
        free(piece->places);
        free(piece->file_path);
        json_object_put(piece->kept);
    }
    free(doc->files);
    free(doc->server_name);
    json_object_put(doc->kept);
    free(doc);
}

/*
 * Room for one more. Sizes double from 4, so an array that is full has a power of two of items; one
 * that lost some has more room than its count implies, never less.
 */
static bool reserve(void **array, uint32_t count, size_t item_size)
{
    uint32_t size = count < 4 ? 4 : count * 2;

    if (count != 0 && (count < 4 || (count & (count - 1)) != 0))
        return true;

    void *grown = realloc(*array, size * item_size);

    if (grown == NULL)
        return false;
    *array = grown;
    return true;
}

static enum ferry_status fail_length(uint64_t length, uint64_t before)
{
    return ferry_fail(FERRY_ERR_TOO_LARGE,
                      "file segment: a file of %" PRIu64 " bytes beside %" PRIu64
                      " others; a segment has at most %" PRIu64,
                      length, before, FERRY_FILE_LENGTH_MAX);
}

enum ferry_status ferry_file_document_add(struct ferry_file_document *doc, const char *file_path,
                                          uint64_t length, uint32_t *index_out)
{
    enum ferry_status status = check_path(file_path, false);

    if (status != FERRY_OK)
        return status;
    if (doc->file_count == FERRY_FILE_DOCUMENT_FILES_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "file segment: more than %u files",
                          FERRY_FILE_DOCUMENT_FILES_MAX);
    if (length > FERRY_FILE_LENGTH_MAX - doc->length)
        return fail_length(length, doc->length);
    if (!reserve((void **)&doc->files, doc->file_count, sizeof(doc->files[0])))
        return no_memory();

    struct ferry_file_piece *piece = &doc->files[doc->file_count];

    *piece = (struct ferry_file_piece){.start = doc->length, .length = length};
    piece->file_path = strdup(file_path);
    if (piece->file_path == NULL)
        return no_memory();
    doc->length += length;
    *index_out = doc->file_count++;
    return FERRY_OK;
}

enum ferry_status ferry_file_document_resize(struct ferry_file_document *doc, uint32_t index,
                                             uint64_t length)
{
    FERRY_ASSERT(index < doc->file_count);

    struct ferry_file_piece *piece = &doc->files[index];
    uint64_t others = doc->length - piece->length;

    if (length > FERRY_FILE_LENGTH_MAX - others ||
        length > FERRY_FILE_LENGTH_MAX - piece->file_offset)
        return fail_length(length, others);
    piece->length = length;
    doc->length = others + length;
    for (uint32_t i = index + 1; i < doc->file_count; i++)
        doc->files[i].start = doc->files[i - 1].start + doc->files[i - 1].length;
    return FERRY_OK;
}

static struct ferry_file_place *find_place(const struct ferry_file_piece *piece, const char *host)
{
    for (uint32_t i = 0; i < piece->place_count; i++) {
        if (strcmp(piece->places[i].host, host) == 0)
            return &piece->places[i];
    }
    return NULL;
}

enum ferry_status ferry_file_piece_add_place(struct ferry_file_piece *piece, const char *host,
                                             const char *path)
{
    if (piece->place_count == FERRY_FILE_DOCUMENT_HOSTS_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "file segment: more than %d hosts have \"%.200s\"",
                          FERRY_FILE_DOCUMENT_HOSTS_MAX, piece->file_path);
    if (!reserve((void **)&piece->places, piece->place_count, sizeof(piece->places[0])))
        return no_memory();

    struct ferry_file_place place = {.host = strdup(host), .path = strdup(path)};

    if (place.host == NULL || place.path == NULL) {
        free(place.host);
        free(place.path);
        return no_memory();
    }
    piece->places[piece->place_count++] = place;
    return FERRY_OK;
}

enum ferry_status ferry_file_document_place(struct ferry_file_document *doc, uint32_t index,
                                            const char *host, const char *path)
{
    FERRY_ASSERT(index < doc->file_count);

    struct ferry_file_place *place = find_place(&doc->files[index], host);
    enum ferry_status status = check_host(host);
    char *copy;

    if (status == FERRY_OK)
        status = check_path(path, true);
    if (status != FERRY_OK)
        return status;
    if (place == NULL)
        return ferry_file_piece_add_place(&doc->files[index], host, path);
    copy = strdup(path);
    if (copy == NULL)
        return no_memory();
    free(place->path);
    place->path = copy;
    return FERRY_OK;
}

bool ferry_file_document_displace(struct ferry_file_document *doc, uint32_t index, const char *host)
{
    FERRY_ASSERT(index < doc->file_count);

    struct ferry_file_piece *piece = &doc->files[index];
    struct ferry_file_place *place = find_place(piece, host);

    if (place == NULL)
        return false;
    free(place->host);
    free(place->path);

    size_t behind = (size_t)(&piece->places[piece->place_count] - (place + 1));

    memmove(place, place + 1, behind * sizeof(*place));
    piece->place_count--;
    return true;
}

const char *ferry_file_document_path(const struct ferry_file_document *doc, uint32_t index,
                                     const struct ferry_host_names *host)
{
    FERRY_ASSERT(index < doc->file_count);

    const struct ferry_file_piece *piece = &doc->files[index];

    for (uint32_t i = 0; i < host->count; i++) {
        const struct ferry_file_place *place = find_place(piece, host->names[i]);

        if (place != NULL)
            return place->path;
    }
    return ferry_host_names_has(host, doc->server_name) ? piece->file_path : NULL;
}

static enum ferry_status fail_unmapped(const struct ferry_file_document *doc, uint32_t index,
                                       const struct ferry_host_names *host, const char *segment)
{
    const struct ferry_file_piece *piece = &doc->files[index];
    char buf[160];
    struct ferry_text hosts;

    ferry_text_init(&hosts, buf, sizeof(buf));
    for (uint32_t i = 0; i < piece->place_count && i < HOSTS_SHOWN_MAX; i++)
        ferry_text_addf(&hosts, "%s%s", i > 0 ? ", " : "", piece->places[i].host);
    if (piece->place_count == 0)
        ferry_text_add(&hosts, "no host");
    return ferry_fail(
        FERRY_ERR_NOT_MAPPED,
        "segment %.60s, file %" PRIu32 ": host %.60s is not in its path map, which has "
        "%s%s; registered as %.160s; ferry segment map adds this host",
        segment, index, ferry_host_names_first(host), buf,
        piece->place_count > HOSTS_SHOWN_MAX || hosts.cut ? ", ..." : "", piece->file_path);
}

enum ferry_status ferry_file_document_resolve(const struct ferry_file_document *doc, uint32_t index,
                                              const struct ferry_host_names *host,
                                              const char *segment, const char **path_out)
{
    const char *path = ferry_file_document_path(doc, index, host);

    if (path == NULL)
        return fail_unmapped(doc, index, host, segment);
    if (path[0] != '/')
        return ferry_fail(FERRY_ERR_METADATA,
                          "segment %.60s, file %" PRIu32 ": the path of host %.60s, \"%.200s\", is "
                          "not absolute: it would mean another file in every directory",
                          segment, index, ferry_host_names_first(host), path);
    *path_out = path;
    return FERRY_OK;
}

uint32_t ferry_file_document_at(const struct ferry_file_document *doc, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = doc->file_count;

    FERRY_ASSERT(offset < doc->length);
    /* The first piece that begins beyond offset is behind the one that holds it. */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (doc->files[middle].start > offset)
            high = middle;
        else
            low = middle + 1;
    }
    /* Empty pieces begin where the next one does; of equal starts the last is the full one. */
    FERRY_ASSERT(low > 0);
    return low - 1;
}
