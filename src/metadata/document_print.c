/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write a segment document: text straight from the structure, because a tree of json-c for fifty
 * thousand buffers costs more than everything else. Kept members go back where they were, instead
 * of or beside what would be written by itself. Pure.
 */
#include "metadata/document.h"

#include <inttypes.h>
#include <string.h>

#include <json-c/json.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"

static struct json_object *kept_member(struct json_object *kept, const char *key)
{
    struct json_object *value = NULL;

    if (kept != NULL)
        json_object_object_get_ex(kept, key, &value);
    return value;
}

static void add_value(struct ferry_text *text, struct json_object *value)
{
    size_t len = 0;
    const char *json = json_object_to_json_string_length(
        value, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, &len);

    if (json != NULL) {
        ferry_text_add_bytes(text, json, len);
    } else {
        text->cut = true;
        text->no_memory = true;
    }
}

/* The kept value of @key, or else @standard. */
static void add_kept_or(struct ferry_text *text, struct json_object *kept, const char *key,
                        const char *standard)
{
    struct json_object *value = kept_member(kept, key);

    ferry_text_addf(text, ",\"%s\":", key);
    if (value != NULL)
        add_value(text, value);
    else
        ferry_text_add(text, standard);
}

/* All kept members but those in the NULL-terminated list, each with a comma in front. */
static void add_kept_others(struct ferry_text *text, struct json_object *kept,
                            const char *const *written)
{
    if (kept == NULL)
        return;

    struct json_object_iterator at = json_object_iter_begin(kept);
    struct json_object_iterator end = json_object_iter_end(kept);

    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);
        const char *const *seen = written;

        while (*seen != NULL && strcmp(*seen, key) != 0)
            seen++;
        if (*seen != NULL)
            continue;
        ferry_text_add(text, ",");
        ferry_text_add_json(text, key);
        ferry_text_add(text, ":");
        add_value(text, json_object_iter_peek_value(&at));
    }
}

/*
 * A JSON string. Attributes are JSON themselves, full of quotes and nothing else to escape; in
 * fifty thousand of them the general way is most of the time.
 */
static void add_quoted(struct ferry_text *text, const char *value)
{
    const char *run = value;

    for (const char *at = value; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;

        if (byte < 0x20 || byte > 0x7e) {
            ferry_text_add_json(text, value);
            return;
        }
    }
    ferry_text_add_bytes(text, "\"", 1);
    for (;;) {
        size_t len = strcspn(run, "\"\\");

        ferry_text_add_bytes(text, run, len);
        run += len;
        if (*run == '\0')
            break;
        ferry_text_add_bytes(text, *run == '"' ? "\\\"" : "\\\\", 2);
        run++;
    }
    ferry_text_add_bytes(text, "\"", 1);
}

static void add_string(struct ferry_text *text, const char *key, const char *value)
{
    ferry_text_addf(text, "\"%s\":", key);
    add_quoted(text, value);
}

static bool is_own(const struct ferry_document_attr *attr)
{
    return attr->transport_id >= FERRY_DOCUMENT_OWN_ID_MIN;
}

static bool has_own(const struct ferry_document_attr *attrs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (is_own(&attrs[i]))
            return true;
    }
    return false;
}

/* Those that are ferry's own, or the others. */
static void add_attrs(struct ferry_text *text, const struct ferry_document_attr *attrs,
                      uint32_t count, bool own)
{
    bool first = true;

    ferry_text_add(text, "\"transport_attrs\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (is_own(&attrs[i]) != own)
            continue;
        ferry_text_addf(text, "%s[%" PRId32 ",", first ? "" : ",", attrs[i].transport_id);
        add_quoted(text, attrs[i].text);
        ferry_text_add(text, "]");
        first = false;
    }
    ferry_text_add(text, "]");
}

static void add_transports(struct ferry_text *text, const struct ferry_document_buffer *buffer)
{
    struct json_object *kept = kept_member(buffer->kept, "transports");

    ferry_text_add(text, ",\"transports\":");
    if (kept != NULL) {
        add_value(text, kept);
        return;
    }
    bool first = true;

    ferry_text_add(text, "[");
    for (uint32_t i = 0; i < buffer->attr_count; i++) {
        if (is_own(&buffer->attrs[i]))
            continue;
        ferry_text_addf(text, "%s%" PRId32, first ? "" : ",", buffer->attrs[i].transport_id);
        first = false;
    }
    ferry_text_add(text, "]");
}

static void add_regions(struct ferry_text *text, const struct ferry_document_buffer *buffer)
{
    struct json_object *kept = kept_member(buffer->kept, "regions");

    ferry_text_add(text, ",\"regions\":");
    if (kept != NULL) {
        add_value(text, kept);
        return;
    }
    ferry_text_addf(text, "[{\"size\":%" PRIu64 ",", buffer->length);
    add_string(text, "location", buffer->location);
    ferry_text_add(text, "}]");
}

static void add_buffer(struct ferry_text *text, const struct ferry_document_buffer *buffer)
{
    static const char *const written[] = {"transports",   "regions",  "rkey",  "shm_path",
                                          "mnnvl_handle", "internal", "ferry", NULL};
    static const char *const none[] = {NULL};

    ferry_text_addf(text, "{\"addr\":%" PRIu64 ",\"length\":%" PRIu64 ",", buffer->addr,
                    buffer->length);
    add_string(text, "location", buffer->location);
    add_transports(text, buffer);
    add_regions(text, buffer);
    ferry_text_add(text, ",");
    add_attrs(text, buffer->attrs, buffer->attr_count, false);
    if (has_own(buffer->attrs, buffer->attr_count)) {
        ferry_text_add(text, ",\"ferry\":{");
        add_attrs(text, buffer->attrs, buffer->attr_count, true);
        add_kept_others(text, kept_member(buffer->kept, "ferry"), none);
        ferry_text_add(text, "}");
    } else if (kept_member(buffer->kept, "ferry") != NULL) {
        ferry_text_add(text, ",\"ferry\":");
        add_value(text, kept_member(buffer->kept, "ferry"));
    }
    add_kept_or(text, buffer->kept, "rkey", "[]");
    add_kept_or(text, buffer->kept, "shm_path", "\"\"");
    add_kept_or(text, buffer->kept, "mnnvl_handle", "\"\"");
    add_kept_or(text, buffer->kept, "internal", "false");
    add_kept_others(text, buffer->kept, written);
    ferry_text_add(text, "}");
}

static void add_detail(struct ferry_text *text, const struct ferry_document *doc)
{
    static const char *const written[] = {"device_attrs", "devices", NULL};
    struct json_object *kept = kept_member(doc->kept, "detail");

    ferry_text_add(text, ",\"detail\":{\"buffers\":[");
    for (uint32_t i = 0; i < doc->buffer_count && !text->cut; i++) {
        FERRY_ASSERT(i == 0 || doc->buffers[i - 1].addr <= doc->buffers[i].addr);
        if (i > 0)
            ferry_text_add(text, ",");
        add_buffer(text, &doc->buffers[i]);
    }
    ferry_text_add(text, "]");
    add_kept_or(text, kept, "device_attrs", "{}");
    add_kept_or(text, kept, "devices", "[]");
    ferry_text_add(text, ",");
    add_attrs(text, doc->attrs, doc->attr_count, false);
    add_kept_others(text, kept, written);
    ferry_text_add(text, "}");
}

static void add_ferry(struct ferry_text *text, const struct ferry_document *doc)
{
    static const char *const none[] = {NULL};

    if (doc->ferry_version == NULL)
        return;
    ferry_text_add(text, ",\"ferry\":{");
    add_string(text, "version", doc->ferry_version);
    if (has_own(doc->attrs, doc->attr_count)) {
        ferry_text_add(text, ",");
        add_attrs(text, doc->attrs, doc->attr_count, true);
    }
    add_kept_others(text, kept_member(doc->kept, "ferry"), none);
    ferry_text_add(text, "}");
}

enum ferry_status ferry_document_print(const struct ferry_document *doc, char **text_out,
                                       size_t *len_out)
{
    static const char *const written[] = {"detail", "ferry", NULL};
    struct ferry_text text;

    FERRY_ASSERT(doc->name != NULL);
    FERRY_ASSERT(doc->machine_id != NULL);
    FERRY_ASSERT(doc->rpc_server_addr != NULL);
    ferry_text_init_heap(&text, FERRY_DOCUMENT_TEXT_MAX + 1);
    ferry_text_add(&text, "{");
    add_string(&text, "name", doc->name);
    ferry_text_add(&text, ",\"type\":\"memory\",");
    add_string(&text, "machine_id", doc->machine_id);
    ferry_text_add(&text, ",");
    add_string(&text, "rpc_server_addr", doc->rpc_server_addr);
    add_kept_others(&text, doc->kept, written);
    add_detail(&text, doc);
    add_ferry(&text, doc);
    ferry_text_add(&text, "}");

    enum ferry_status status = ferry_text_take(&text, text_out, len_out);

    ferry_text_fini(&text);
    if (status == FERRY_ERR_TOO_LARGE)
        return ferry_fail(status,
                          "segment document: %" PRIu32
                          " buffers take more than the %u bytes that a document may have",
                          doc->buffer_count, FERRY_DOCUMENT_TEXT_MAX);
    return status;
}
