/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes that shm publishes in a segment document and reads in a peer's: JSON text. Pure
 * conversion, but for the short lock under which a buffer is found; any thread.
 *
 *   segment: {"protocol":"ferry_shm","version":1,"boot_id","socket":"@name"|"/path","network":u64,
 *             "user":u64,"incarnation":"32 hex","max_transfer_bytes":u64}
 *   buffer:  {"protocol":"ferry_shm","version":1,"registration_id":u64 > 0,"place":u32,
 *             "permission":"global_read_only"|"global_read_write","shared":bool}
 */
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "transport/attr.h"
#include "transport/shm/internal.h"

#define PROTOCOL     "ferry_shm"
#define ATTR_VERSION 1
#define TEXT_MAX     1024u

enum ferry_status ferry_shm_describe(struct ferry_transport *base, char **attr_out)
{
    struct shm_transport *transport = ferry_shm_of(base);
    struct json_object *object = json_object_new_object();
    bool complete = object != NULL && ferry_attr_put_head(object, PROTOCOL, ATTR_VERSION) &&
                    ferry_json_put_string(object, "boot_id", transport->boot_id) &&
                    ferry_json_put_string(object, "socket", transport->socket) &&
                    ferry_json_put_u64(object, "network", transport->network) &&
                    ferry_json_put_u64(object, "user", geteuid()) &&
                    ferry_json_put_string(object, "incarnation", base->env->incarnation) &&
                    ferry_json_put_u64(object, "max_transfer_bytes",
                                       transport->settings.transfer_max);

    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

enum ferry_status ferry_shm_describe_buffer(struct ferry_transport *base, uint64_t registration_id,
                                            enum ferry_permission permission, char **attr_out)
{
    struct shm_transport *transport = ferry_shm_of(base);
    struct json_object *object = json_object_new_object();
    const struct shm_buffer *buffer;
    uint32_t index = 0;
    bool shared = false;
    bool complete;

    pthread_mutex_lock(&transport->mutex);
    buffer = ferry_shm_buffer_find(transport, registration_id);
    if (buffer != NULL) {
        index = buffer->index;
        shared = buffer->fd >= 0;
    }
    pthread_mutex_unlock(&transport->mutex);
    /* One that is gone meanwhile: a peer finds another id, or none, in that place. */
    complete = object != NULL && ferry_attr_put_head(object, PROTOCOL, ATTR_VERSION) &&
               ferry_json_put_u64(object, "registration_id", registration_id) &&
               ferry_json_put_u64(object, "place", index) &&
               ferry_json_put_string(object, "permission",
                                     permission == FERRY_PERMISSION_READ_WRITE
                                         ? "global_read_write"
                                         : "global_read_only") &&
               ferry_json_put_bool(object, "shared", shared);
    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

static enum ferry_status read_text(const struct ferry_json *root, const char *key, char *buf,
                                   size_t size)
{
    const char *text;
    enum ferry_status status = ferry_json_string(root, key, size - 1, &text);

    if (status == FERRY_OK)
        memcpy(buf, text, strlen(text) + 1);
    return status;
}

static enum ferry_status read_segment(const struct ferry_json *root, struct shm_segment_attr *attr)
{
    enum ferry_status status = ferry_attr_check_head(root, PROTOCOL, ATTR_VERSION);
    const char *incarnation;
    size_t len;

    if (status == FERRY_OK)
        status = read_text(root, "boot_id", attr->boot_id, sizeof(attr->boot_id));
    if (status == FERRY_OK)
        status = read_text(root, "socket", attr->socket, sizeof(attr->socket));
    if (status == FERRY_OK && attr->socket[0] != '@' && attr->socket[0] != '/')
        return ferry_json_fail(root, "socket \"%s\" is neither a path nor @name", attr->socket);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "network", 0, UINT64_MAX, &attr->network);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "user", 0, UINT32_MAX, &attr->user);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "max_transfer_bytes", 1, UINT64_MAX,
                                &attr->max_transfer_bytes);
    if (status == FERRY_OK)
        status = ferry_json_string(root, "incarnation", 64, &incarnation);
    if (status != FERRY_OK)
        return status;
    if (ferry_hex_decode(incarnation, attr->incarnation, sizeof(attr->incarnation), &len) !=
            FERRY_OK ||
        len != sizeof(attr->incarnation))
        return ferry_json_fail(root, "incarnation \"%s\" is not 32 hex digits", incarnation);
    return FERRY_OK;
}

enum ferry_status ferry_shm_segment_attr_parse(const char *text, struct shm_segment_attr *attr_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct shm_segment_attr attr = {0};
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "shm segment attribute",
                                                text, strlen(text), &root);

    if (status == FERRY_OK)
        status = read_segment(&root, &attr);
    if (status == FERRY_OK)
        *attr_out = attr;
    return status;
}

enum ferry_status ferry_shm_buffer_attr_parse(const char *text, struct shm_buffer_attr *attr_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct shm_buffer_attr attr = {0};
    const char *permission = "";
    uint64_t place = 0;
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "shm buffer attribute",
                                                text, strlen(text), &root);

    if (status == FERRY_OK)
        status = ferry_attr_check_head(&root, PROTOCOL, ATTR_VERSION);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "registration_id", 1, UINT64_MAX, &attr.registration_id);
    if (status == FERRY_OK)
        status = ferry_json_u64(&root, "place", 0, SHM_BOARD_ENTRIES - 1, &place);
    if (status == FERRY_OK)
        status = ferry_json_bool(&root, "shared", &attr.shared);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "permission", 32, &permission);
    if (status != FERRY_OK)
        return status;
    attr.index = (uint32_t)place;
    attr.writable = strcmp(permission, "global_read_write") == 0;
    if (!attr.writable && strcmp(permission, "global_read_only") != 0)
        return ferry_json_fail(&root, "permission \"%s\" is not known", permission);
    *attr_out = attr;
    return FERRY_OK;
}
