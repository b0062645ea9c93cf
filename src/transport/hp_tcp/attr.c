/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes that hp_tcp publishes in a segment document, and reads in a peer's: JSON text in
 * the published shape. A ferry engine announces itself in an extra key, which v1 decoders ignore.
 * Pure conversion; any thread.
 *
 *   segment: {"endpoints":[{"host","port"}],"ferry":{"frame_version":1},"incarnation":"32 hex",
 *             "max_transfer_bytes":u64,"protocol":"tent_hp_tcp","version":1}
 *   buffer:  {"permission":"global_read_only"|"global_read_write","protocol":"tent_hp_tcp",
 *             "registration_id":u64 > 0,"version":1}
 */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "transport/attr.h"
#include "transport/hp_tcp/attr.h"
#include "transport/hp_tcp/internal.h"

#define PROTOCOL     "tent_hp_tcp"
#define ATTR_VERSION 1
#define TEXT_MAX     (32u * 1024u) /* all rails, each with the longest host name, take 19 KiB */

static const char *const permission_names[] = {
    [FERRY_PERMISSION_READ_ONLY] = "global_read_only",
    [FERRY_PERMISSION_READ_WRITE] = "global_read_write",
};

static bool append_endpoint(struct json_object *list, const char *host, uint16_t port)
{
    struct json_object *endpoint = json_object_new_object();

    if (endpoint == NULL || !ferry_json_put_string(endpoint, "host", host) ||
        !ferry_json_put_u64(endpoint, "port", port)) {
        json_object_put(endpoint);
        return false;
    }
    return ferry_json_append(list, endpoint);
}

/* One endpoint a rail, in the order of the rails, all with the port of the listener. */
static struct json_object *endpoint_list(const struct hp_transport *transport)
{
    const struct ferry_hp_settings *settings = &transport->settings;
    struct json_object *list = json_object_new_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; complete && i < settings->rail_count; i++)
        complete = append_endpoint(list, settings->rails[i], transport->port);
    if (complete && settings->rail_count == 0)
        complete = append_endpoint(list, transport->advertise_host, transport->port);
    if (!complete) {
        json_object_put(list);
        return NULL;
    }
    return list;
}

static struct json_object *ferry_mark(void)
{
    struct json_object *mark = json_object_new_object();

    if (mark != NULL && !ferry_json_put_u64(mark, "frame_version", FERRY_FRAME_VERSION)) {
        json_object_put(mark);
        return NULL;
    }
    return mark;
}

enum ferry_status ferry_hp_describe(struct ferry_transport *base, char **attr_out)
{
    struct hp_transport *transport = ferry_hp_of(base);
    struct json_object *object = json_object_new_object();
    bool complete =
        object != NULL && ferry_json_put(object, "endpoints", endpoint_list(transport)) &&
        ferry_json_put(object, "ferry", ferry_mark()) &&
        ferry_json_put_string(object, "incarnation", base->env->incarnation) &&
        ferry_json_put_u64(object, "max_transfer_bytes", transport->settings.max_transfer_bytes) &&
        ferry_attr_put_head(object, PROTOCOL, ATTR_VERSION);

    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

enum ferry_status ferry_hp_describe_buffer(struct ferry_transport *base, uint64_t registration_id,
                                           enum ferry_permission permission, char **attr_out)
{
    struct json_object *object = json_object_new_object();
    bool complete = object != NULL &&
                    ferry_json_put_string(object, "permission", permission_names[permission]) &&
                    ferry_json_put_u64(object, "registration_id", registration_id) &&
                    ferry_attr_put_head(object, PROTOCOL, ATTR_VERSION);

    (void)base;
    return ferry_attr_finish(object, complete, TEXT_MAX, attr_out);
}

static enum ferry_status read_endpoints(const struct ferry_json *root, struct hp_segment_attr *attr)
{
    struct ferry_json list;
    enum ferry_status status = ferry_json_array(root, "endpoints", &list);
    size_t count;

    if (status != FERRY_OK)
        return status;
    count = ferry_json_len(&list);
    if (count == 0 || count > FERRY_HP_RAILS_MAX)
        return ferry_json_fail(&list, "expected 1 to %u endpoints, found %zu", FERRY_HP_RAILS_MAX,
                               count);
    for (size_t i = 0; i < count; i++) {
        struct hp_endpoint_attr *endpoint = &attr->endpoints[i];
        struct ferry_json item = ferry_json_item(&list, i);
        const char *host;
        uint64_t port;

        status = ferry_json_as_object(&item);
        if (status == FERRY_OK)
            status = ferry_json_string(&item, "host", sizeof(endpoint->host) - 1, &host);
        if (status == FERRY_OK)
            status = ferry_json_u64(&item, "port", 1, 65535, &port);
        if (status != FERRY_OK)
            return status;
        if (host[0] == '\0')
            return ferry_json_fail(&item, "host is empty");
        memcpy(endpoint->host, host, strlen(host) + 1);
        endpoint->port = (uint16_t)port;
    }
    attr->endpoint_count = (uint32_t)count;
    return FERRY_OK;
}

static enum ferry_status read_mark(const struct ferry_json *root, struct hp_segment_attr *attr)
{
    struct ferry_json mark = {0};
    uint64_t version = 0;
    enum ferry_status status = ferry_json_opt_object(root, "ferry", &mark);

    if (status != FERRY_OK || mark.value == NULL)
        return status;
    status = ferry_json_u64(&mark, "frame_version", 1, UINT32_MAX, &version);
    /* A newer ferry still answers v1, so that is what we fall back to. */
    attr->speaks_ferry = status == FERRY_OK && version == FERRY_FRAME_VERSION;
    return status;
}

static enum ferry_status read_segment(const struct ferry_json *root, struct hp_segment_attr *attr)
{
    const char *incarnation;
    size_t len;
    enum ferry_status status = ferry_attr_check_head(root, PROTOCOL, ATTR_VERSION);

    if (status == FERRY_OK)
        status = read_endpoints(root, attr);
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
    return read_mark(root, attr);
}

enum ferry_status ferry_hp_segment_attr_parse(const char *text, struct hp_segment_attr *attr_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct hp_segment_attr attr = {0};
    enum ferry_status status = ferry_json_parse(
        &ferry_json_limits_small, "hp_tcp segment attribute", text, strlen(text), &root);

    if (status == FERRY_OK)
        status = read_segment(&root, &attr);
    if (status == FERRY_OK)
        *attr_out = attr;
    return status;
}

enum ferry_status ferry_hp_buffer_attr_parse(const char *text, uint64_t *registration_id_out,
                                             bool *writable_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *permission;
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "hp_tcp buffer attribute",
                                                text, strlen(text), &root);

    if (status == FERRY_OK)
        status = ferry_attr_check_head(&root, PROTOCOL, ATTR_VERSION);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "permission", 64, &permission);
    if (status != FERRY_OK)
        return status;
    if (strcmp(permission, permission_names[FERRY_PERMISSION_READ_ONLY]) != 0 &&
        strcmp(permission, permission_names[FERRY_PERMISSION_READ_WRITE]) != 0)
        return ferry_json_fail(&root, "permission \"%s\" is not known", permission);
    status = ferry_json_u64(&root, "registration_id", 1, UINT64_MAX, registration_id_out);
    if (status == FERRY_OK)
        *writable_out = strcmp(permission, permission_names[FERRY_PERMISSION_READ_WRITE]) == 0;
    return status;
}
