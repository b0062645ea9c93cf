/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes that ub publishes in a segment document and reads in a peer's: JSON text in the
 * published shape, with what only a ferry peer needs in an extra member. Pure conversion, but for
 * the short locks under which the tables are read; any thread.
 *
 *   segment: {"schema_version":1,"protocol":"urma","notifications":false,"ferry":{...}}
 *     ferry: {"bootstrap":1,"incarnation":"32 hex","max_transfer_bytes":u64,"lanes":n,
 *             "devices":[{"topology_id","native_device_name","native_device_path","eid_index",
 *                         "eid","active","numa_node"}, ...]}     the index is the device's number
 *   buffer: {"schema_version":1,"generation":u64,"base":u64,"length":u64,"location":"...",
 *            "permission":n,"segments":[{"topology_id","device_name","eid","eid_index",
 *              "descriptor":{"schema_version":1,"urma_api_version":9,"urma_abi_size":48,"hex"},
 *              "ferry":{"device":n,"token":u32}}, ...]}
 *
 * A descriptor's hex digits are the published 48 bytes (EID, UASID and address packed, then length,
 * attributes and token id, little endian), made and read field by field, and what a provider adds.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "transport/attr.h"
#include "transport/ub/internal.h"

#define SCHEMA      1
#define API_VERSION 9
#define ABI_SIZE    48u
#define TEXT_MAX    (60u << 10)
#define LANES_MAX   64u
#define AT_UASID    16u
#define AT_ADDR     20u
#define AT_LENGTH   32u
#define AT_ATTR     40u
#define AT_TOKEN_ID 44u

/* ---- descriptors ---- */

static void put_le(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_le(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void ferry_ub_descriptor_print(const struct ferry_urma_descriptor *descriptor,
                               char hex[UB_DESCRIPTOR_HEX_SIZE])
{
    uint8_t bytes[ABI_SIZE + FERRY_URMA_TAIL_MAX] = {0};

    memcpy(bytes, descriptor->eid, FERRY_URMA_EID_SIZE);
    put_le(bytes + AT_UASID, descriptor->uasid, 4);
    put_le(bytes + AT_ADDR, descriptor->addr, 8);
    put_le(bytes + AT_LENGTH, descriptor->length, 8);
    put_le(bytes + AT_ATTR, descriptor->attr, 4);
    put_le(bytes + AT_TOKEN_ID, descriptor->token_id, 4);
    memcpy(bytes + ABI_SIZE, descriptor->tail, descriptor->tail_len);
    ferry_hex_encode(bytes, ABI_SIZE + descriptor->tail_len, hex);
}

enum ferry_status ferry_ub_descriptor_parse(const char *hex,
                                            struct ferry_urma_descriptor *descriptor_out)
{
    uint8_t bytes[ABI_SIZE + FERRY_URMA_TAIL_MAX];
    size_t len = 0;
    enum ferry_status status = ferry_hex_decode(hex, bytes, sizeof(bytes), &len);

    if (status != FERRY_OK)
        return status;
    if (len < ABI_SIZE)
        return ferry_fail(FERRY_ERR_INVALID, "a descriptor of %zu bytes, expected at least %u", len,
                          ABI_SIZE);
    *descriptor_out = (struct ferry_urma_descriptor){
        .uasid = (uint32_t)get_le(bytes + AT_UASID, 4),
        .addr = get_le(bytes + AT_ADDR, 8),
        .length = get_le(bytes + AT_LENGTH, 8),
        .attr = (uint32_t)get_le(bytes + AT_ATTR, 4),
        .token_id = (uint32_t)get_le(bytes + AT_TOKEN_ID, 4),
        .tail_len = (uint32_t)len - ABI_SIZE,
    };
    memcpy(descriptor_out->eid, bytes, FERRY_URMA_EID_SIZE);
    memcpy(descriptor_out->tail, bytes + ABI_SIZE, len - ABI_SIZE);
    if (descriptor_out->length == 0 || descriptor_out->addr == 0 ||
        !ferry_range_ok(descriptor_out->addr, descriptor_out->length))
        return ferry_fail(FERRY_ERR_INVALID, "a descriptor of no range");
    return FERRY_OK;
}

/* ---- printing ---- */

static bool put_eid(struct json_object *object, const uint8_t *eid)
{
    char text[FERRY_TOPOLOGY_EID_TEXT_SIZE];

    ferry_topology_eid_print(eid, text);
    return ferry_json_put_string(object, "eid", text);
}

static struct json_object *print_device(const struct ub_ctx *ctx)
{
    struct json_object *object = json_object_new_object();
    const struct ferry_urma_device *native = &ctx->device.native;
    bool complete =
        object != NULL && ferry_json_put_string(object, "topology_id", ctx->topology_id) &&
        ferry_json_put_string(object, "native_device_name", native->name) &&
        ferry_json_put_string(object, "native_device_path", native->path) &&
        ferry_json_put_u64(object, "eid_index", native->eid_index) &&
        put_eid(object, native->eid) &&
        ferry_json_put_bool(object, "active", ferry_ub_context_state(ctx) == UB_CTX_ACTIVE) &&
        ferry_json_put(object, "numa_node", json_object_new_int(ctx->numa_node));

    if (complete)
        return object;
    json_object_put(object);
    return NULL;
}

static struct json_object *print_devices(struct ub_transport *transport)
{
    struct json_object *list = json_object_new_array();
    bool complete = list != NULL;

    pthread_mutex_lock(&transport->mutex);
    for (uint32_t i = 0; i < transport->ctx_count && complete; i++)
        complete = ferry_json_append(list, print_device(&transport->ctxs[i]));
    pthread_mutex_unlock(&transport->mutex);
    if (complete)
        return list;
    json_object_put(list);
    return NULL;
}

static struct json_object *print_mark(struct ub_transport *transport)
{
    struct json_object *object = json_object_new_object();
    bool complete =
        object != NULL && ferry_json_put_u64(object, "bootstrap", UB_BOOTSTRAP_VERSION) &&
        ferry_json_put_string(object, "incarnation", transport->base.env->incarnation) &&
        ferry_json_put_u64(object, "max_transfer_bytes", transport->settings.max_transfer_bytes) &&
        ferry_json_put_u64(object, "lanes", transport->worker_count) &&
        ferry_json_put(object, "devices", print_devices(transport));

    if (complete)
        return object;
    json_object_put(object);
    return NULL;
}

enum ferry_status ferry_ub_describe(struct ferry_transport *base, char **attr_out)
{
    struct json_object *object = json_object_new_object();
    bool complete = object != NULL && ferry_json_put_u64(object, "schema_version", SCHEMA) &&
                    ferry_json_put_string(object, "protocol", "urma") &&
                    ferry_json_put_bool(object, "notifications", false) &&
                    ferry_json_put(object, "ferry", print_mark(ferry_ub_of(base)));

    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

static struct json_object *print_descriptor(struct ub_transport *transport, struct ub_piece *piece)
{
    struct json_object *object = json_object_new_object();
    struct ferry_urma_descriptor descriptor;
    char hex[UB_DESCRIPTOR_HEX_SIZE];

    ferry_urma_mem_export(&transport->urma, piece->mem, &descriptor);
    ferry_ub_descriptor_print(&descriptor, hex);
    if (object != NULL && ferry_json_put_u64(object, "schema_version", SCHEMA) &&
        ferry_json_put_u64(object, "urma_api_version", API_VERSION) &&
        ferry_json_put_u64(object, "urma_abi_size", ABI_SIZE) &&
        ferry_json_put_string(object, "hex", hex))
        return object;
    json_object_put(object);
    return NULL;
}

static struct json_object *print_piece(struct ub_transport *transport, const struct ub_ctx *ctx,
                                       struct ub_piece *piece)
{
    struct json_object *object = json_object_new_object();
    struct json_object *mark = json_object_new_object();
    const struct ferry_urma_device *native = &ctx->device.native;
    bool complete = object != NULL && mark != NULL &&
                    ferry_json_put_u64(mark, "device", ctx->index) &&
                    ferry_json_put_u64(mark, "token", piece->token) &&
                    ferry_json_put_string(object, "topology_id", ctx->topology_id) &&
                    ferry_json_put_string(object, "device_name", native->name) &&
                    put_eid(object, native->eid) &&
                    ferry_json_put_u64(object, "eid_index", native->eid_index) &&
                    ferry_json_put(object, "descriptor", print_descriptor(transport, piece));

    if (complete && ferry_json_put(object, "ferry", mark))
        return object;
    if (!complete)
        json_object_put(mark);
    json_object_put(object);
    return NULL;
}

/* Under buffer_mutex; @buffer NULL: no device has the range yet, or any more. */
static struct json_object *print_pieces(struct ub_transport *transport, struct ub_buffer *buffer)
{
    struct json_object *list = json_object_new_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; buffer != NULL && i < transport->ctx_count; i++) {
        for (uint32_t k = 0; k < buffer->piece_count && complete; k++) {
            struct ub_piece *piece = &buffer->pieces[i * buffer->piece_count + k];

            if (piece->mem != NULL)
                complete = ferry_json_append(list,
                                             print_piece(transport, &transport->ctxs[i], piece));
        }
    }
    if (complete)
        return list;
    json_object_put(list);
    return NULL;
}

enum ferry_status ferry_ub_describe_buffer(struct ferry_transport *base, uint64_t registration_id,
                                           enum ferry_permission permission, char **attr_out)
{
    struct ub_transport *transport = ferry_ub_of(base);
    struct json_object *object = json_object_new_object();
    struct ub_buffer *buffer = NULL;
    bool complete;

    pthread_mutex_lock(&transport->mutex);
    pthread_mutex_lock(&transport->buffer_mutex);
    for (struct ferry_list *link = transport->buffers.next; link != &transport->buffers;
         link = link->next) {
        struct ub_buffer *one = FERRY_CONTAINER_OF(link, struct ub_buffer, link);

        if (one->registration_id == registration_id && !one->going)
            buffer = one;
    }
    complete = object != NULL && ferry_json_put_u64(object, "schema_version", SCHEMA) &&
               ferry_json_put_u64(object, "generation", buffer != NULL ? buffer->generation : 1) &&
               ferry_json_put_u64(object, "base", buffer != NULL ? buffer->addr : 0) &&
               ferry_json_put_u64(object, "length", buffer != NULL ? buffer->length : 0) &&
               ferry_json_put_string(object, "location", buffer != NULL ? buffer->location : "*") &&
               ferry_json_put_u64(object, "permission", (uint64_t)permission) &&
               ferry_json_put(object, "segments", print_pieces(transport, buffer));
    pthread_mutex_unlock(&transport->buffer_mutex);
    pthread_mutex_unlock(&transport->mutex);
    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

/* ---- reading ---- */

static enum ferry_status read_eid(const struct ferry_json *at, uint8_t *eid)
{
    const char *text;
    enum ferry_status status = ferry_json_string(at, "eid", 64, &text);

    if (status == FERRY_OK && !ferry_topology_eid_parse(text, eid))
        return ferry_json_fail(at, "eid \"%s\" is not eight groups of four hex digits", text);
    return status;
}

static enum ferry_status read_device(const struct ferry_json *at, struct ub_remote_device *device)
{
    enum ferry_status status = ferry_json_as_object(at);
    const char *name;
    int64_t node = -1;

    if (status == FERRY_OK)
        status = ferry_json_string(at, "native_device_name", FERRY_URMA_NAME_SIZE - 1, &name);
    if (status == FERRY_OK)
        status = read_eid(at, device->eid);
    if (status == FERRY_OK)
        status = ferry_json_bool(at, "active", &device->active);
    if (status == FERRY_OK)
        status = ferry_json_opt_i64(at, "numa_node", -1, INT32_MAX, &node);
    if (status != FERRY_OK)
        return status;
    memcpy(device->name, name, strlen(name) + 1);
    device->numa_node = (int32_t)node;
    return FERRY_OK;
}

static enum ferry_status read_devices(const struct ferry_json *at, struct ub_segment_attr *attr)
{
    struct ferry_json list;
    enum ferry_status status = ferry_json_array(at, "devices", &list);
    size_t count;

    if (status != FERRY_OK)
        return status;
    count = ferry_json_len(&list);
    if (count == 0 || count > UB_REMOTES_MAX)
        return ferry_json_fail(&list, "%zu devices, expected 1..%u", count, UB_REMOTES_MAX);
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        struct ferry_json item = ferry_json_item(&list, i);

        status = read_device(&item, &attr->devices[i]);
    }
    attr->device_count = (uint32_t)count;
    return status;
}

static enum ferry_status read_mark(const struct ferry_json *root, struct ub_segment_attr *attr)
{
    struct ferry_json mark = {0};
    enum ferry_status status = ferry_json_opt_object(root, "ferry", &mark);
    const char *incarnation;
    uint64_t version;
    uint64_t lanes = 0;
    size_t len;

    if (status == FERRY_OK && mark.value == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "ub: the peer is no ferry");
    if (status == FERRY_OK)
        status = ferry_json_u64(&mark, "bootstrap", 1, UINT32_MAX, &version);
    if (status == FERRY_OK && version != UB_BOOTSTRAP_VERSION)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "ub: the peer's bootstrap is of version %llu",
                          (unsigned long long)version);
    if (status == FERRY_OK)
        status = ferry_json_string(&mark, "incarnation", 64, &incarnation);
    if (status == FERRY_OK)
        status = ferry_json_u64(&mark, "max_transfer_bytes", 1, UINT64_MAX,
                                &attr->max_transfer_bytes);
    if (status == FERRY_OK)
        status = ferry_json_u64(&mark, "lanes", 1, LANES_MAX, &lanes);
    if (status != FERRY_OK)
        return status;
    attr->lanes = (uint32_t)lanes;
    if (ferry_hex_decode(incarnation, attr->incarnation, sizeof(attr->incarnation), &len) !=
            FERRY_OK ||
        len != sizeof(attr->incarnation))
        return ferry_json_fail(&mark, "incarnation \"%s\" is not 32 hex digits", incarnation);
    return read_devices(&mark, attr);
}

enum ferry_status ferry_ub_segment_attr_parse(const char *text, struct ub_segment_attr *attr_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ub_segment_attr attr = {0};
    const char *protocol;
    uint64_t version;
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "ub segment attribute",
                                                text, strlen(text), &root);

    if (status == FERRY_OK)
        status = ferry_json_as_object(&root);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "schema_version", SCHEMA, SCHEMA, &version);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "protocol", 32, &protocol);
    if (status == FERRY_OK && strcmp(protocol, "urma") != 0)
        status = ferry_json_fail(&root, "protocol is \"%s\", expected \"urma\"", protocol);
    if (status == FERRY_OK)
        status = read_mark(&root, &attr);
    if (status == FERRY_OK)
        *attr_out = attr;
    return status;
}

static enum ferry_status read_piece(const struct ferry_json *at, struct ub_remote_piece *piece)
{
    enum ferry_status status = ferry_json_as_object(at);
    struct ferry_json descriptor;
    struct ferry_json mark;
    uint64_t device = 0;
    uint64_t token = 0;
    uint64_t version;
    const char *hex;

    if (status == FERRY_OK)
        status = ferry_json_object(at, "descriptor", &descriptor);
    if (status == FERRY_OK)
        status = ferry_json_u64(&descriptor, "schema_version", SCHEMA, SCHEMA, &version);
    if (status == FERRY_OK)
        status = ferry_json_u64(&descriptor, "urma_abi_size", ABI_SIZE, ABI_SIZE, &version);
    if (status == FERRY_OK)
        status = ferry_json_string(&descriptor, "hex", UB_DESCRIPTOR_HEX_SIZE, &hex);
    if (status == FERRY_OK)
        status = ferry_ub_descriptor_parse(hex, &piece->descriptor);
    if (status == FERRY_OK)
        status = ferry_json_object(at, "ferry", &mark);
    if (status == FERRY_OK)
        status = ferry_json_u64(&mark, "device", 0, UB_REMOTES_MAX - 1, &device);
    if (status == FERRY_OK)
        status = ferry_json_u64(&mark, "token", 0, UINT32_MAX, &token);
    piece->device = (uint32_t)device;
    piece->token = (uint32_t)token;
    return status;
}

static int compare_pieces(const void *left, const void *right)
{
    const struct ub_remote_piece *a = left;
    const struct ub_remote_piece *b = right;

    if (a->device != b->device)
        return a->device < b->device ? -1 : 1;
    return (a->descriptor.addr > b->descriptor.addr) - (a->descriptor.addr < b->descriptor.addr);
}

static enum ferry_status read_pieces(const struct ferry_json *root, struct ub_buffer_attr *attr)
{
    struct ferry_json list;
    enum ferry_status status = ferry_json_array(root, "segments", &list);
    size_t count;

    if (status != FERRY_OK)
        return status;
    count = ferry_json_len(&list);
    if (count > UB_PIECES_MAX)
        return ferry_json_fail(&list, "%zu segments, at most %u", count, UB_PIECES_MAX);
    attr->pieces = calloc(count > 0 ? count : 1, sizeof(*attr->pieces));
    if (attr->pieces == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for a peer's range");
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        struct ferry_json item = ferry_json_item(&list, i);

        status = read_piece(&item, &attr->pieces[i]);
    }
    attr->piece_count = (uint32_t)count;
    qsort(attr->pieces, count, sizeof(*attr->pieces), compare_pieces);
    return status;
}

enum ferry_status ferry_ub_buffer_attr_parse(const char *text, struct ub_buffer_attr *attr_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ub_buffer_attr attr = {0};
    uint64_t permission = 0;
    uint64_t version;
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "ub buffer attribute",
                                                text, strlen(text), &root);

    if (status == FERRY_OK)
        status = ferry_json_as_object(&root);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "schema_version", SCHEMA, SCHEMA, &version);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "generation", 1, UINT64_MAX, &attr.generation);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "permission", FERRY_PERMISSION_READ_ONLY,
                                FERRY_PERMISSION_READ_WRITE, &permission);
    if (status == FERRY_OK)
        status = read_pieces(&root, &attr);
    if (status != FERRY_OK) {
        free(attr.pieces);
        return status;
    }
    attr.writable = permission == FERRY_PERMISSION_READ_WRITE;
    *attr_out = attr;
    return FERRY_OK;
}
