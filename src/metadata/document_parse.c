/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read a segment document. Every known key is checked for presence, type and range, also those that
 * ferry has no use for, because a document that is wrong there is wrong. What print would not write
 * by itself is set aside in `kept`.
 *
 * Pure; any thread. Memory is bounded by a multiple of the text's length.
 */
#include "metadata/document.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "metadata/document_split.h"

/*
 * Memory for the tree of one piece, by the parser's estimate, which is about twice what json-c
 * takes. A dense buffer comes to 40 bytes for each of its text; text made to blow up is refused.
 */
#define TREE_BYTES_PER_TEXT_BYTE 64
#define TREE_BYTES_MIN           ((size_t)1 << 20)
#define TREE_BYTES_MAX           ((size_t)1 << 28)
#define DEPTH_MAX                32
#define TYPE_NAME_MAX            32
#define TEXT_MAX                 FERRY_DOCUMENT_TEXT_MAX
#define LABEL_SIZE               48

/* The text of a document, and where its buffers are in it if they are read one by one. */
struct source {
    const char *text;
    size_t len;
    bool split;
    struct ferry_document_array array;
};

static bool is_one_of(const char *key, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (strcmp(*keys, key) == 0)
            return true;
    }
    return false;
}

static enum ferry_status no_memory(void)
{
    return ferry_fail(FERRY_ERR_NO_MEMORY, "segment document: out of memory");
}

/*
 * Set @value aside under @key of *kept, which is made when it is first needed. A member that is
 * null has no object to count.
 */
static enum ferry_status keep(struct json_object **kept, const char *key, struct json_object *value)
{
    if (*kept == NULL)
        *kept = json_object_new_object();
    if (*kept == NULL)
        return no_memory();
    if (json_object_object_add(*kept, key, json_object_get(value)) != 0) {
        json_object_put(value);
        return no_memory();
    }
    return FERRY_OK;
}

/* Keep all members of @object but those in the NULL-terminated list. */
static enum ferry_status keep_others(const struct ferry_json *object, const char *const *keys,
                                     struct json_object **kept)
{
    struct json_object_iterator at = json_object_iter_begin(object->value);
    struct json_object_iterator end = json_object_iter_end(object->value);
    enum ferry_status status = FERRY_OK;

    for (; status == FERRY_OK && !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *key = json_object_iter_peek_name(&at);

        if (!is_one_of(key, keys))
            status = keep(kept, key, json_object_iter_peek_value(&at));
    }
    return status;
}

static enum ferry_status copy_string(const struct ferry_json *object, const char *key, size_t max,
                                     char **copy_out)
{
    const char *text;
    enum ferry_status status = ferry_json_string(object, key, max, &text);

    if (status != FERRY_OK)
        return status;
    *copy_out = strdup(text);
    return *copy_out != NULL ? FERRY_OK : no_memory();
}

/* One [id, "text"] pair; both borrowed. */
static enum ferry_status parse_pair(const struct ferry_json *pair, int64_t *id_out,
                                    const char **text_out)
{
    enum ferry_status status = ferry_json_as_array(pair);

    if (status != FERRY_OK)
        return status;
    if (ferry_json_len(pair) != 2)
        return ferry_json_fail(pair, "expected a pair [number, text], found %zu items",
                               ferry_json_len(pair));

    struct ferry_json id = ferry_json_item(pair, 0);
    struct ferry_json text = ferry_json_item(pair, 1);

    status = ferry_json_as_i64(&id, INT32_MIN, INT32_MAX, id_out);
    return status != FERRY_OK ? status : ferry_json_as_string(&text, TEXT_MAX, text_out);
}

/* Check an array of pairs whose ids differ. */
static enum ferry_status check_pairs(const struct ferry_json *pairs)
{
    size_t count = ferry_json_len(pairs);
    int64_t ids[FERRY_DOCUMENT_ATTRS_MAX];

    if (count > FERRY_DOCUMENT_ATTRS_MAX)
        return ferry_json_fail(pairs, "%zu pairs, at most %d are allowed", count,
                               FERRY_DOCUMENT_ATTRS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct ferry_json pair = ferry_json_item(pairs, i);
        const char *text;
        enum ferry_status status = parse_pair(&pair, &ids[i], &text);

        if (status != FERRY_OK)
            return status;
        for (size_t j = 0; j < i; j++) {
            if (ids[j] == ids[i])
                return ferry_json_fail(&pair, "transport %" PRId64 " occurs twice", ids[i]);
        }
    }
    return FERRY_OK;
}

/* @index: of a buffer, or -1 for the segment. Given: checked. */
static enum ferry_status take_pairs(struct ferry_document *doc, int64_t index,
                                    const struct ferry_json *pairs)
{
    enum ferry_status status = FERRY_OK;

    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(pairs); i++) {
        struct ferry_json pair = ferry_json_item(pairs, i);
        const char *text = "";
        int64_t id = 0;

        status = parse_pair(&pair, &id, &text);
        if (status != FERRY_OK)
            return status;

        char *copy = strdup(text);

        if (copy == NULL)
            return no_memory();
        status = index < 0
                     ? ferry_document_add_attr(doc, (int32_t)id, copy)
                     : ferry_document_add_buffer_attr(doc, (uint32_t)index, (int32_t)id, copy);
    }
    return status;
}

/* An array of whole numbers 0..max or, for transports, of any number of 32 bits. */
static enum ferry_status check_numbers(const struct ferry_json *array, int64_t min, int64_t max)
{
    enum ferry_status status = FERRY_OK;

    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(array); i++) {
        struct ferry_json item = ferry_json_item(array, i);
        int64_t value;

        status = ferry_json_as_i64(&item, min, max, &value);
    }
    return status;
}

/* Keep the list of transports unless it is the one that the attributes imply. */
static enum ferry_status parse_transports(const struct ferry_json *object,
                                          struct ferry_document_buffer *buffer)
{
    struct ferry_json array;
    enum ferry_status status = ferry_json_array(object, "transports", &array);

    if (status == FERRY_OK)
        status = check_numbers(&array, INT32_MIN, INT32_MAX);
    if (status != FERRY_OK)
        return status;

    bool implied = ferry_json_len(&array) == buffer->attr_count;

    for (uint32_t i = 0; implied && i < buffer->attr_count; i++) {
        struct ferry_json item = ferry_json_item(&array, i);

        implied = json_object_get_int64(item.value) == buffer->attrs[i].transport_id;
    }
    return implied ? FERRY_OK : keep(&buffer->kept, "transports", array.value);
}

/* Keep the regions unless there is one that says what the buffer says. */
static enum ferry_status parse_regions(const struct ferry_json *object,
                                       struct ferry_document_buffer *buffer)
{
    struct ferry_json array;
    enum ferry_status status = ferry_json_array(object, "regions", &array);
    bool implied = false;

    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&array); i++) {
        struct ferry_json item = ferry_json_item(&array, i);
        uint64_t size = 0;
        const char *location = "";

        status = ferry_json_u64(&item, "size", 0, UINT64_MAX, &size);
        if (status == FERRY_OK)
            status = ferry_json_string(&item, "location", FERRY_DOCUMENT_LOCATION_SIZE - 1,
                                       &location);
        implied = status == FERRY_OK && ferry_json_len(&array) == 1 &&
                  json_object_object_length(item.value) == 2 && size == buffer->length &&
                  strcmp(location, buffer->location) == 0;
    }
    if (status != FERRY_OK || implied)
        return status;
    return keep(&buffer->kept, "regions", array.value);
}

/* The keys of transports that ferry does not have; kept unless they are empty. */
static enum ferry_status parse_foreign(const struct ferry_json *object,
                                       struct ferry_document_buffer *buffer)
{
    static const char *const texts[] = {"shm_path", "mnnvl_handle"};
    struct ferry_json rkey;
    bool internal = false;
    enum ferry_status status = ferry_json_array(object, "rkey", &rkey);

    if (status == FERRY_OK)
        status = check_numbers(&rkey, 0, UINT32_MAX);
    if (status == FERRY_OK && ferry_json_len(&rkey) > 0)
        status = keep(&buffer->kept, "rkey", rkey.value);
    for (size_t i = 0; status == FERRY_OK && i < FERRY_ARRAY_LEN(texts); i++) {
        const char *text = "";

        status = ferry_json_string(object, texts[i], TEXT_MAX, &text);
        if (status == FERRY_OK && text[0] != '\0')
            status = keep(&buffer->kept, texts[i], json_object_object_get(object->value, texts[i]));
    }
    if (status == FERRY_OK)
        status = ferry_json_bool(object, "internal", &internal);
    if (status == FERRY_OK && internal)
        status = keep(&buffer->kept, "internal", json_object_object_get(object->value, "internal"));
    return status;
}

/*
 * The attributes in a member "ferry", which has them for transports that only ferry has. The other
 * members of it are for later ferries, and kept.
 */
static enum ferry_status take_own(struct ferry_document *doc, int64_t index,
                                  const struct ferry_json *ferry)
{
    struct ferry_json pairs = {0};
    enum ferry_status status = ferry_json_opt_array(ferry, "transport_attrs", &pairs);

    if (status == FERRY_OK)
        status = check_pairs(&pairs);
    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&pairs); i++) {
        struct ferry_json pair = ferry_json_item(&pairs, i);
        const char *text;
        int64_t id;

        status = parse_pair(&pair, &id, &text);
        if (status == FERRY_OK && id < FERRY_DOCUMENT_OWN_ID_MIN)
            return ferry_json_fail(&pair, "transport %" PRId64 " is not ferry's own", id);
    }
    return status == FERRY_OK ? take_pairs(doc, index, &pairs) : status;
}

static enum ferry_status parse_own(const struct ferry_json *object, struct ferry_document *doc,
                                   uint32_t index)
{
    static const char *const known[] = {"transport_attrs", NULL};
    struct ferry_json ferry = {0};
    struct json_object *rest = NULL;
    enum ferry_status status = ferry_json_opt_object(object, "ferry", &ferry);

    if (status != FERRY_OK || ferry.value == NULL)
        return status;
    status = take_own(doc, index, &ferry);
    if (status == FERRY_OK)
        status = keep_others(&ferry, known, &rest);
    if (status == FERRY_OK && rest != NULL)
        status = keep(&doc->buffers[index].kept, "ferry", rest);
    json_object_put(rest);
    return status;
}

static enum ferry_status parse_buffer(const struct ferry_json *object, struct ferry_document *doc)
{
    static const char *const known[] = {
        "addr", "length",   "location",     "transports", "regions", "transport_attrs",
        "rkey", "shm_path", "mnnvl_handle", "internal",   "ferry",   NULL,
    };
    uint64_t addr = 0;
    uint64_t length = 0;
    uint32_t index = 0;
    const char *location = "";
    struct ferry_json pairs;
    enum ferry_status status = ferry_json_u64(object, "addr", 0, UINT64_MAX, &addr);

    if (status == FERRY_OK)
        status = ferry_json_u64(object, "length", 1, UINT64_MAX, &length);
    if (status == FERRY_OK && !ferry_range_ok(addr, length))
        status = ferry_json_fail(object, "addr %" PRIu64 " and length %" PRIu64 " wrap", addr,
                                 length);
    if (status == FERRY_OK)
        status = ferry_json_string(object, "location", FERRY_DOCUMENT_LOCATION_SIZE - 1, &location);
    if (status == FERRY_OK)
        status = ferry_json_array(object, "transport_attrs", &pairs);
    if (status == FERRY_OK)
        status = check_pairs(&pairs);
    if (status == FERRY_OK)
        status = ferry_document_add_buffer(doc, addr, length, location, &index);
    if (status == FERRY_OK)
        status = take_pairs(doc, index, &pairs);
    if (status == FERRY_OK)
        status = parse_transports(object, &doc->buffers[index]);
    if (status == FERRY_OK)
        status = parse_regions(object, &doc->buffers[index]);
    if (status == FERRY_OK)
        status = parse_foreign(object, &doc->buffers[index]);
    if (status == FERRY_OK)
        status = parse_own(object, doc, index);
    if (status == FERRY_OK)
        status = keep_others(object, known, &doc->buffers[index].kept);
    return status;
}

static enum ferry_status check_overlap(const struct ferry_json *array,
                                       const struct ferry_document *doc)
{
    for (uint32_t i = 1; i < doc->buffer_count; i++) {
        const struct ferry_document_buffer *left = &doc->buffers[i - 1];
        const struct ferry_document_buffer *right = &doc->buffers[i];

        if (ferry_range_overlaps(left->addr, left->length, right->addr, right->length))
            return ferry_json_fail(array,
                                   "the buffers of %" PRIu64 " bytes at 0x%" PRIx64
                                   " and of %" PRIu64 " bytes at 0x%" PRIx64 " overlap",
                                   left->length, left->addr, right->length, right->addr);
    }
    return FERRY_OK;
}

static enum ferry_status parse_piece(const char *label, const char *text, size_t len,
                                     struct ferry_json *root_out)
{
    size_t tree_bytes = TREE_BYTES_MIN + len * TREE_BYTES_PER_TEXT_BYTE;
    struct ferry_json_limits limits = {
        .text_bytes_max = FERRY_DOCUMENT_TEXT_MAX,
        .memory_bytes_max = tree_bytes < TREE_BYTES_MAX ? tree_bytes : TREE_BYTES_MAX,
        .depth_max = DEPTH_MAX,
    };

    return ferry_json_parse(&limits, label, text, len, root_out);
}

/* One buffer at a time: its tree is gone before the next one is built. */
static enum ferry_status parse_items(const struct source *source, const struct ferry_json *array,
                                     struct ferry_document *doc)
{
    struct ferry_document_items items = ferry_document_items(source->text, &source->array);
    enum ferry_status status = FERRY_OK;
    const char *text;
    size_t len;

    for (size_t i = 0; status == FERRY_OK && ferry_document_next_item(&items, &text, &len); i++) {
        FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
        char label[LABEL_SIZE];

        snprintf(label, sizeof(label), "segment document: buffer %zu", i);
        status = parse_piece(label, text, len, &root);
        if (status != FERRY_OK)
            return status;

        struct ferry_json item = {.value = root.value, .parent = array, .index = i};

        status = parse_buffer(&item, doc);
    }
    return status;
}

static enum ferry_status parse_buffers(const struct source *source, const struct ferry_json *detail,
                                       struct ferry_document *doc)
{
    struct ferry_json array;
    enum ferry_status status = ferry_json_array(detail, "buffers", &array);

    if (status == FERRY_OK && source->split)
        status = parse_items(source, &array, doc);
    /* Where they were not found in the text, and empty where they were. */
    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&array); i++) {
        struct ferry_json item = ferry_json_item(&array, i);

        status = parse_buffer(&item, doc);
    }
    if (status != FERRY_OK)
        return status;
    ferry_document_sort(doc);
    return check_overlap(&array, doc);
}

static enum ferry_status check_device(const struct ferry_json *device)
{
    const char *text;
    uint64_t lid;
    struct ferry_json pairs;
    enum ferry_status status = ferry_json_string(device, "name", FERRY_DOCUMENT_NAME_MAX, &text);

    if (status == FERRY_OK)
        status = ferry_json_u64(device, "lid", 0, UINT16_MAX, &lid);
    if (status == FERRY_OK)
        status = ferry_json_string(device, "gid", FERRY_DOCUMENT_NAME_MAX, &text);
    if (status == FERRY_OK)
        status = ferry_json_array(device, "transport_attrs", &pairs);
    return status != FERRY_OK ? status : check_pairs(&pairs);
}

/* Devices and their attributes belong to transports that ferry does not have yet: checked, kept. */
static enum ferry_status parse_devices(const struct ferry_json *detail, struct json_object **kept)
{
    struct ferry_json attrs;
    struct ferry_json devices;
    enum ferry_status status = ferry_json_object(detail, "device_attrs", &attrs);

    if (status == FERRY_OK) {
        struct json_object_iterator at = json_object_iter_begin(attrs.value);
        struct json_object_iterator end = json_object_iter_end(attrs.value);

        for (; status == FERRY_OK && !json_object_iter_equal(&at, &end);
             json_object_iter_next(&at)) {
            const char *text;

            status = ferry_json_string(&attrs, json_object_iter_peek_name(&at), TEXT_MAX, &text);
        }
    }
    if (status == FERRY_OK && json_object_object_length(attrs.value) > 0)
        status = keep(kept, "device_attrs", attrs.value);
    if (status == FERRY_OK)
        status = ferry_json_array(detail, "devices", &devices);
    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&devices); i++) {
        struct ferry_json item = ferry_json_item(&devices, i);

        status = check_device(&item);
    }
    if (status == FERRY_OK && ferry_json_len(&devices) > 0)
        status = keep(kept, "devices", devices.value);
    return status;
}

static enum ferry_status parse_memory(const struct source *source, const struct ferry_json *detail,
                                      struct ferry_document *doc, struct json_object **kept)
{
    static const char *const known[] = {"device_attrs", "buffers", "devices", "transport_attrs",
                                        NULL};
    struct ferry_json pairs;
    const char *topology;
    enum ferry_status status = parse_devices(detail, kept);

    if (status == FERRY_OK)
        status = ferry_json_opt_string(detail, "topology", TEXT_MAX, &topology);
    if (status == FERRY_OK)
        status = ferry_json_opt_array(detail, "transport_attrs", &pairs);
    if (status == FERRY_OK)
        status = check_pairs(&pairs);
    if (status == FERRY_OK)
        status = take_pairs(doc, -1, &pairs);
    if (status == FERRY_OK)
        status = parse_buffers(source, detail, doc);
    if (status == FERRY_OK)
        status = keep_others(detail, known, kept);
    return status;
}

/* The member "ferry": what it says beside the version is a later ferry's, and kept. */
static enum ferry_status parse_ferry(const struct ferry_json *root, struct ferry_document *doc,
                                     struct json_object **kept)
{
    static const char *const known[] = {"version", "transport_attrs", NULL};
    struct ferry_json ferry;
    enum ferry_status status = ferry_json_opt_object(root, "ferry", &ferry);

    if (status != FERRY_OK || ferry.value == NULL)
        return status;
    status = copy_string(&ferry, "version", FERRY_DOCUMENT_NAME_MAX, &doc->ferry_version);
    if (status == FERRY_OK)
        status = take_own(doc, -1, &ferry);
    return status != FERRY_OK ? status : keep_others(&ferry, known, kept);
}

/* Hang a part of what is kept below doc->kept. Owns @part. */
static enum ferry_status keep_part(struct ferry_document *doc, const char *key,
                                   struct json_object *part)
{
    enum ferry_status status = part != NULL ? keep(&doc->kept, key, part) : FERRY_OK;

    json_object_put(part);
    return status;
}

static enum ferry_status parse_type(const struct ferry_json *root)
{
    const char *type;
    enum ferry_status status = ferry_json_string(root, "type", TYPE_NAME_MAX, &type);

    if (status != FERRY_OK || strcmp(type, "memory") == 0)
        return status;
    if (strcmp(type, "file") == 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "segment document: a file segment, which cannot be opened remotely");
    return ferry_json_fail(root, "type: expected \"memory\" or \"file\", found \"%s\"", type);
}

static enum ferry_status parse_root(const struct source *source, const struct ferry_json *root,
                                    struct ferry_document *doc)
{
    static const char *const known[] = {"name",   "type",  "machine_id", "rpc_server_addr",
                                        "detail", "ferry", NULL};
    struct json_object *kept_detail = NULL;
    struct json_object *kept_ferry = NULL;
    struct ferry_json detail;
    const char *rdma_name;
    enum ferry_status status = copy_string(root, "name", FERRY_DOCUMENT_NAME_MAX, &doc->name);

    if (status == FERRY_OK)
        status = parse_type(root);
    if (status == FERRY_OK)
        status = copy_string(root, "machine_id", FERRY_DOCUMENT_NAME_MAX, &doc->machine_id);
    if (status == FERRY_OK)
        status = copy_string(root, "rpc_server_addr", FERRY_DOCUMENT_NAME_MAX,
                             &doc->rpc_server_addr);
    if (status == FERRY_OK)
        status = ferry_json_opt_string(root, "rdma_server_name", FERRY_DOCUMENT_NAME_MAX,
                                       &rdma_name);
    if (status == FERRY_OK)
        status = ferry_json_object(root, "detail", &detail);
    if (status == FERRY_OK)
        status = parse_memory(source, &detail, doc, &kept_detail);
    if (status == FERRY_OK)
        status = parse_ferry(root, doc, &kept_ferry);
    if (status == FERRY_OK)
        status = keep_others(root, known, &doc->kept);

    enum ferry_status kept_status = keep_part(doc, "detail", kept_detail);

    if (status == FERRY_OK)
        status = kept_status;
    kept_status = keep_part(doc, "ferry", kept_ferry);
    return status != FERRY_OK ? status : kept_status;
}

/* The document as a tree, without its buffers if they were found. */
static enum ferry_status parse_frame(const struct source *source, struct ferry_json *root_out)
{
    static const char label[] = "segment document";
    size_t tail = source->len - source->array.end;
    FERRY_AUTO_FREE char *frame = NULL;

    if (!source->split)
        return parse_piece(label, source->text, source->len, root_out);
    frame = malloc(source->array.start + tail);
    if (frame == NULL)
        return no_memory();
    memcpy(frame, source->text, source->array.start);
    memcpy(frame + source->array.start, source->text + source->array.end, tail);
    return parse_piece(label, frame, source->array.start + tail, root_out);
}

enum ferry_status ferry_document_parse(const char *text, size_t len,
                                       struct ferry_document **doc_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct source source = {.text = text, .len = len};
    struct ferry_document *doc;
    enum ferry_status status;

    if (len > FERRY_DOCUMENT_TEXT_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "segment document: %zu bytes, at most %u are allowed", len,
                          FERRY_DOCUMENT_TEXT_MAX);
    source.split = ferry_document_find_buffers(text, len, &source.array);
    status = parse_frame(&source, &root);
    if (status == FERRY_OK)
        status = ferry_document_create(&doc);
    if (status == FERRY_OK) {
        status = parse_root(&source, &root, doc);
        if (status == FERRY_OK)
            *doc_out = doc;
        else
            ferry_document_destroy(doc);
    }
    /* What a peer or a store wrote wrongly is no invalid argument of ours; the text stays. */
    return status == FERRY_ERR_INVALID ? FERRY_ERR_METADATA : status;
}
