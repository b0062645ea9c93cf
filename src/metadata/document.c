/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document as data: life, attributes, buffers. Reading is in document_parse.c, writing in
 * document_print.c. Pure; no thread of its own.
 */
#include "metadata/document.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

#define BUFFERS_FIRST_CAPACITY 16

/* An attribute list in place, so that segments and buffers share the code. */
struct attr_list {
    struct ferry_document_attr **attrs;
    uint32_t *count;
};

static void free_attrs(struct ferry_document_attr *attrs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(attrs[i].text);
    free(attrs);
}

enum ferry_status ferry_document_create(struct ferry_document **doc_out)
{
    struct ferry_document *doc = calloc(1, sizeof(*doc));

    if (doc == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "segment document: out of memory");
    *doc_out = doc;
    return FERRY_OK;
}

void ferry_document_destroy(struct ferry_document *doc)
{
    if (doc == NULL)
        return;
    for (uint32_t i = 0; i < doc->buffer_count; i++) {
        free_attrs(doc->buffers[i].attrs, doc->buffers[i].attr_count);
        json_object_put(doc->buffers[i].kept);
    }
    free(doc->buffers);
    free_attrs(doc->attrs, doc->attr_count);
    free(doc->name);
    free(doc->machine_id);
    free(doc->rpc_server_addr);
    free(doc->ferry_version);
    json_object_put(doc->kept);
    free(doc);
}

static const char *find_attr(const struct ferry_document_attr *attrs, uint32_t count, int32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (attrs[i].transport_id == id)
            return attrs[i].text;
    }
    return NULL;
}

const char *ferry_document_attr(const struct ferry_document *doc, int32_t transport_id)
{
    return find_attr(doc->attrs, doc->attr_count, transport_id);
}

const char *ferry_document_buffer_attr(const struct ferry_document_buffer *buffer,
                                       int32_t transport_id)
{
    return find_attr(buffer->attrs, buffer->attr_count, transport_id);
}

static enum ferry_status add_attr(struct attr_list list, int32_t id, char *text)
{
    struct ferry_document_attr *attrs = *list.attrs;
    uint32_t count = *list.count;

    for (uint32_t i = 0; i < count; i++) {
        if (attrs[i].transport_id == id) {
            free(attrs[i].text);
            attrs[i].text = text;
            return FERRY_OK;
        }
    }
    if (count == FERRY_DOCUMENT_ATTRS_MAX) {
        free(text);
        return ferry_fail(FERRY_ERR_TOO_LARGE, "segment document: more than %d transports",
                          FERRY_DOCUMENT_ATTRS_MAX);
    }
    attrs = realloc(attrs, (count + 1) * sizeof(*attrs));
    if (attrs == NULL) {
        free(text);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "segment document: out of memory");
    }
    attrs[count] = (struct ferry_document_attr){.transport_id = id, .text = text};
    *list.attrs = attrs;
    *list.count = count + 1;
    return FERRY_OK;
}

enum ferry_status ferry_document_add_attr(struct ferry_document *doc, int32_t transport_id,
                                          char *text)
{
    return add_attr((struct attr_list){&doc->attrs, &doc->attr_count}, transport_id, text);
}

enum ferry_status ferry_document_add_buffer_attr(struct ferry_document *doc, uint32_t index,
                                                 int32_t transport_id, char *text)
{
    FERRY_ASSERT(index < doc->buffer_count);

    struct ferry_document_buffer *buffer = &doc->buffers[index];

    return add_attr((struct attr_list){&buffer->attrs, &buffer->attr_count}, transport_id, text);
}

static enum ferry_status reserve_buffer(struct ferry_document *doc)
{
    uint32_t capacity = doc->buffer_capacity == 0 ? BUFFERS_FIRST_CAPACITY
                                                  : doc->buffer_capacity * 2;

    if (doc->buffer_count < doc->buffer_capacity)
        return FERRY_OK;
    if (doc->buffer_count == FERRY_DOCUMENT_BUFFERS_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "segment document: more than %u buffers",
                          FERRY_DOCUMENT_BUFFERS_MAX);

    struct ferry_document_buffer *grown = realloc(doc->buffers, capacity * sizeof(*grown));

    if (grown == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "segment document: out of memory");
    doc->buffers = grown;
    doc->buffer_capacity = capacity;
    return FERRY_OK;
}

enum ferry_status ferry_document_add_buffer(struct ferry_document *doc, uint64_t addr,
                                            uint64_t length, const char *location,
                                            uint32_t *index_out)
{
    size_t location_len = strlen(location);

    if (length == 0 || !ferry_range_ok(addr, length))
        return ferry_fail(FERRY_ERR_INVALID,
                          "segment document: a buffer of %" PRIu64 " bytes at 0x%" PRIx64
                          " is empty or wraps",
                          length, addr);
    if (location_len >= FERRY_DOCUMENT_LOCATION_SIZE)
        return ferry_fail(FERRY_ERR_INVALID,
                          "segment document: location \"%.80s\" is longer than %d bytes", location,
                          FERRY_DOCUMENT_LOCATION_SIZE - 1);

    enum ferry_status status = reserve_buffer(doc);

    if (status != FERRY_OK)
        return status;

    struct ferry_document_buffer *buffer = &doc->buffers[doc->buffer_count];

    *buffer = (struct ferry_document_buffer){.addr = addr, .length = length};
    memcpy(buffer->location, location, location_len + 1);
    *index_out = doc->buffer_count++;
    return FERRY_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct ferry_document_buffer *left = a;
    const struct ferry_document_buffer *right = b;

    if (left->addr != right->addr)
        return left->addr < right->addr ? -1 : 1;
    return left->length > right->length ? -1 : left->length < right->length;
}

void ferry_document_sort(struct ferry_document *doc)
{
    bool sorted = true;

    for (uint32_t i = 1; i < doc->buffer_count && sorted; i++)
        sorted = by_address(&doc->buffers[i - 1], &doc->buffers[i]) <= 0;
    if (!sorted)
        qsort(doc->buffers, doc->buffer_count, sizeof(doc->buffers[0]), by_address);
}
