/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog: the store of a configuration without an engine, names, lists, and changes by
 * comparing. Any thread; blocks.
 */
#include "runtime/catalog.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include <ferry/batch.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "config/option.h"

#define LIST_TEXT_MAX ((size_t)128 << 20)
/* Of a whole change, when the caller does not say. */
#define DEADLINE_NS (60 * FERRY_NS_PER_S)
/* Bytes of a segment's own name. */
#define NAME_MAX_BYTES 240

static enum ferry_status read_config(const struct ferry_config *config,
                                     struct ferry_config **config_out)
{
    struct ferry_config *copy = NULL;
    enum ferry_status status;

    if (config != NULL)
        return ferry_config_copy(config, config_out);
    status = ferry_config_create(&copy);
    if (status == FERRY_OK)
        status = ferry_config_load_environment(copy);
    if (status == FERRY_OK)
        *config_out = copy;
    else
        ferry_config_destroy(copy);
    return status;
}

static enum ferry_status open_store(struct ferry_catalog *catalog)
{
    struct ferry_store_env env = {.config = catalog->config, .clock = &ferry_clock_system};
    enum ferry_status status = ferry_host_names_parse(
        ferry_config_string(catalog->config, "host_name"), &catalog->host);

    if (status == FERRY_OK)
        status = ferry_http_client_open(NULL, &catalog->http);
    if (status != FERRY_OK)
        return status;
    env.http = catalog->http;
    status = ferry_store_open(&env, &catalog->store);
    if (status == FERRY_OK && catalog->store->ops->names_are_addresses)
        status = ferry_fail(FERRY_ERR_CONFIG,
                            "file segments need a metadata store: set metadata_type to etcd or "
                            "http, and metadata_servers");
    return status;
}

enum ferry_status ferry_catalog_open(const struct ferry_config *config,
                                     struct ferry_catalog **catalog_out)
{
    struct ferry_catalog *catalog;
    enum ferry_status status;

    if (catalog_out == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "catalog: nowhere to put it");
    catalog = calloc(1, sizeof(*catalog));
    if (catalog == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "catalog: out of memory");
    status = read_config(config, &catalog->config);
    if (status == FERRY_OK)
        status = open_store(catalog);
    if (status != FERRY_OK) {
        ferry_catalog_close(catalog);
        return status;
    }
    *catalog_out = catalog;
    return FERRY_OK;
}

void ferry_catalog_close(struct ferry_catalog *catalog)
{
    if (catalog == NULL)
        return;
    ferry_store_close(catalog->store);
    ferry_http_client_close(catalog->http);
    ferry_config_destroy(catalog->config);
    free(catalog);
}

bool ferry_catalog_compares(const struct ferry_catalog *catalog)
{
    return catalog->store->ops->compares;
}

uint64_t ferry_catalog_deadline(uint64_t deadline_ns)
{
    uint64_t bound_ns = ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), DEADLINE_NS);

    return deadline_ns == FERRY_NO_DEADLINE ? bound_ns : deadline_ns;
}

enum ferry_status ferry_catalog_name(const char *segment, char name_out[FERRY_CATALOG_NAME_SIZE])
{
    static const char prefix[] = FERRY_FILE_SEGMENT_PREFIX;
    const char *own = segment;
    size_t len;

    if (segment == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "no segment name");
    if (strncmp(segment, prefix, sizeof(prefix) - 1) == 0)
        own += sizeof(prefix) - 1;
    len = strlen(own);
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)own[i] < 0x20 || own[i] == 0x7f || own[i] == '/')
            len = 0;
    }
    if (len == 0 || len > NAME_MAX_BYTES || strcmp(own, ".") == 0 || strcmp(own, "..") == 0)
        return ferry_fail(FERRY_ERR_INVALID,
                          "segment name \"%.100s\": expected 1..%d bytes without / and control "
                          "characters, with or without %s in front",
                          segment, NAME_MAX_BYTES, prefix);
    snprintf(name_out, FERRY_CATALOG_NAME_SIZE, "%s%s", prefix, own);
    return FERRY_OK;
}

/* "a\nb\n" to ["a", "b"]. */
static enum ferry_status names_json(const char *names, char **json_out)
{
    struct ferry_text text;
    enum ferry_status status;
    size_t count = 0;
    size_t len;

    ferry_text_init_heap(&text, LIST_TEXT_MAX);
    ferry_text_add(&text, "[");
    for (; *names != '\0'; names += len + 1) {
        FERRY_AUTO_FREE char *name = NULL;

        len = strcspn(names, "\n");
        FERRY_ASSERT(names[len] == '\n');
        name = strndup(names, len);
        if (name == NULL) {
            ferry_text_fini(&text);
            return ferry_fail(FERRY_ERR_NO_MEMORY, "catalog: out of memory");
        }
        if (count++ > 0)
            ferry_text_add(&text, ",");
        ferry_text_add_json(&text, name);
    }
    ferry_text_add(&text, "]");
    status = ferry_text_take(&text, json_out, &len);
    ferry_text_fini(&text);
    return status;
}

enum ferry_status ferry_catalog_list(struct ferry_catalog *catalog, enum ferry_catalog_kind kind,
                                     uint64_t deadline_ns, char **json_out)
{
    struct ferry_store_request request = {
        .verb = FERRY_STORE_LIST,
        .name = kind == FERRY_CATALOG_MEMORY ? "" : FERRY_FILE_SEGMENT_PREFIX,
        .deadline_ns = ferry_catalog_deadline(deadline_ns),
    };
    enum ferry_status status;

    if (json_out == NULL || (kind != FERRY_CATALOG_FILES && kind != FERRY_CATALOG_MEMORY))
        return ferry_fail(FERRY_ERR_INVALID, "catalog: kind %d, or nowhere to put the list",
                          (int)kind);
    status = ferry_store_call(catalog->store, &request);
    if (status == FERRY_OK)
        status = names_json(request.reply, json_out);
    free(request.reply);
    return status;
}

/* Parse what a request brought, which is taken. The document's revision is the store's if it has
 * one. */
static enum ferry_status take_document(struct ferry_store_request *request,
                                       struct ferry_file_document **doc_out)
{
    enum ferry_status status = ferry_file_document_parse(request->reply, request->reply_len,
                                                         doc_out);

    if (status == FERRY_OK && request->revision != 0)
        (*doc_out)->revision = request->revision;
    free(ferry_take_ptr(&request->reply));
    return status;
}

enum ferry_status ferry_catalog_read(struct ferry_catalog *catalog, const char *name,
                                     uint64_t deadline_ns, struct ferry_file_document **doc_out)
{
    struct ferry_store_request request = {
        .verb = FERRY_STORE_GET, .name = name, .deadline_ns = deadline_ns};
    enum ferry_status status = ferry_store_call(catalog->store, &request);

    return status == FERRY_OK ? take_document(&request, doc_out) : status;
}

/*
 * Write @doc over the revision that it was read at. ERR_EXISTS: there is another one now, which
 * replaces *doc.
 */
static enum ferry_status write_over(struct ferry_catalog *catalog, const char *name,
                                    uint64_t deadline_ns, struct ferry_file_document **doc)
{
    bool compares = ferry_catalog_compares(catalog);
    struct ferry_store_request request = {
        .verb = FERRY_STORE_PUT,
        .name = name,
        .expect = compares ? FERRY_STORE_REVISION : FERRY_STORE_ANYTHING,
        .expected_revision = (*doc)->revision,
        .deadline_ns = deadline_ns,
    };
    char *text = NULL;
    enum ferry_status status = ferry_file_document_print(*doc, &text, &request.text_len);
    enum ferry_status parsed;

    if (status != FERRY_OK)
        return status;
    request.text = text;
    status = ferry_store_call(catalog->store, &request);
    free(text);
    if (status != FERRY_ERR_EXISTS)
        return status;
    ferry_file_document_destroy(ferry_take_ptr(doc));
    parsed = take_document(&request, doc);
    return parsed == FERRY_OK ? status : parsed;
}

enum ferry_status ferry_catalog_update(struct ferry_catalog *catalog, const char *segment,
                                       uint64_t deadline_ns, ferry_catalog_change_fn *change,
                                       void *arg)
{
    char name[FERRY_CATALOG_NAME_SIZE];
    struct ferry_file_document *doc = NULL;
    enum ferry_status status = ferry_catalog_name(segment, name);

    deadline_ns = ferry_catalog_deadline(deadline_ns);
    if (status == FERRY_OK)
        status = ferry_catalog_read(catalog, name, deadline_ns, &doc);
    if (status != FERRY_OK)
        return status;
    do {
        status = change(catalog, doc, arg);
        if (status == FERRY_OK)
            status = write_over(catalog, name, deadline_ns, &doc);
        /* change() fails with other codes than this one. */
    } while (status == FERRY_ERR_EXISTS && ferry_now_ns(&ferry_clock_system) < deadline_ns);
    ferry_file_document_destroy(doc);
    return status == FERRY_ERR_EXISTS
               ? ferry_fail(FERRY_ERR_TIMED_OUT,
                            "segment %s: others changed it all the time until the deadline", name)
               : status;
}

/* "#N" to N. */
static bool parse_index(const char *file, uint64_t *index_out)
{
    return file[0] == '#' && ferry_u64_parse(file + 1, index_out) == FERRY_OK;
}

enum ferry_status ferry_catalog_find(const struct ferry_file_document *doc, const char *file,
                                     uint32_t *index_out)
{
    uint64_t number = 0;
    uint32_t found = 0;

    if (parse_index(file, &number)) {
        if (number >= doc->file_count)
            return ferry_fail(FERRY_ERR_NOT_FOUND,
                              "the segment has no file %s: there are %" PRIu32 ", from #0", file,
                              doc->file_count);
        *index_out = (uint32_t)number;
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < doc->file_count; i++) {
        if (strcmp(doc->files[i].file_path, file) != 0)
            continue;
        if (found++ == 0)
            *index_out = i;
    }
    if (found == 0)
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "the segment has no file that was registered as \"%.200s\"; the first of "
                          "%" PRIu32 " is \"%.200s\"",
                          file, doc->file_count, doc->files[0].file_path);
    if (found > 1)
        return ferry_fail(FERRY_ERR_INVALID,
                          "%" PRIu32 " files of the segment were registered as \"%.200s\": say #N "
                          "instead",
                          found, file);
    return FERRY_OK;
}
