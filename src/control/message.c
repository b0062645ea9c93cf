/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encode and decode the bodies of control messages. Pure; any thread. Nothing here knows HTTP.
 */
#include "control/message.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

static const struct ferry_json_limits limits = {
    .text_bytes_max = FERRY_CONTROL_BODY_MAX,
    .memory_bytes_max = 4u << 20,
    .depth_max = 8,
};

static bool is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t len = strlen(text);

    while (len > 0) {
        size_t step = ferry_utf8_length(at, len);

        if (step == 0)
            return false;
        at += step;
        len -= step;
    }
    return true;
}

static enum ferry_status add_member(struct ferry_text *json, const char *key, const char *value)
{
    if (!is_utf8(value))
        return ferry_fail(FERRY_ERR_INVALID, "%s is not UTF-8", key);
    ferry_text_addf(json, "%s\"%s\": ", json->len > 0 ? ", " : "{", key);
    ferry_text_add_json(json, value);
    return FERRY_OK;
}

/* Ends the object; frees @json if @status is not FERRY_OK. */
static enum ferry_status take_object(struct ferry_text *json, enum ferry_status status,
                                     char **text_out, size_t *len_out)
{
    ferry_text_add(json, "}");
    if (status == FERRY_OK)
        status = ferry_text_take(json, text_out, len_out);
    ferry_text_fini(json);
    return status;
}

enum ferry_status ferry_notify_encode(const struct ferry_notify_body *body, char **text_out,
                                      size_t *len_out)
{
    struct ferry_text json;
    enum ferry_status status;

    ferry_text_init_heap(&json, FERRY_CONTROL_BODY_MAX);
    status = add_member(&json, "sender", body->sender);
    if (status == FERRY_OK)
        status = add_member(&json, "name", body->name);
    if (status == FERRY_OK)
        status = add_member(&json, "message", body->message);
    return take_object(&json, status, text_out, len_out);
}

static bool is_incarnation(const char *text)
{
    return strlen(text) == FERRY_INCARNATION_LEN &&
           strspn(text, "0123456789abcdefABCDEF") == FERRY_INCARNATION_LEN;
}

static enum ferry_status add_identity(struct ferry_text *json, const char *segment,
                                      const char *incarnation)
{
    enum ferry_status status;

    if (segment[0] == '\0')
        return ferry_fail(FERRY_ERR_INVALID, "segment is empty");
    if (!is_incarnation(incarnation))
        return ferry_fail(FERRY_ERR_INVALID, "incarnation \"%s\" is not 32 hex digits",
                          incarnation);
    status = add_member(json, "segment", segment);
    return status == FERRY_OK ? add_member(json, "incarnation", incarnation) : status;
}

enum ferry_status ferry_goodbye_encode(const struct ferry_goodbye_body *body, char **text_out,
                                       size_t *len_out)
{
    struct ferry_text json;

    ferry_text_init_heap(&json, FERRY_CONTROL_BODY_MAX);
    return take_object(&json, add_identity(&json, body->segment, body->incarnation), text_out,
                       len_out);
}

enum ferry_status ferry_health_encode(const struct ferry_health_body *body, char **text_out,
                                      size_t *len_out)
{
    struct ferry_text json;
    enum ferry_status status;

    ferry_text_init_heap(&json, FERRY_CONTROL_BODY_MAX);
    status = add_member(&json, "status", body->state);
    if (status == FERRY_OK)
        status = add_identity(&json, body->segment, body->incarnation);
    return take_object(&json, status, text_out, len_out);
}

/* What a peer sent wrongly is no invalid argument of ours; the text stays. */
static enum ferry_status blame_peer(enum ferry_status status)
{
    return status == FERRY_ERR_INVALID ? FERRY_ERR_PROTOCOL : status;
}

static enum ferry_status copy_string(const struct ferry_json *object, const char *key, char *buf,
                                     size_t size)
{
    const char *text;
    enum ferry_status status = ferry_json_string(object, key, size - 1, &text);

    if (status == FERRY_OK)
        memcpy(buf, text, strlen(text) + 1);
    return status;
}

enum ferry_status ferry_notify_decode(const char *text, size_t len,
                                      struct ferry_notify_body *body_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = ferry_json_parse(&limits, "notification", text, len, &root);
    struct ferry_notify_body body;

    if (status == FERRY_OK)
        status = copy_string(&root, "sender", body.sender, sizeof(body.sender));
    if (status == FERRY_OK)
        status = copy_string(&root, "name", body.name, sizeof(body.name));
    if (status == FERRY_OK)
        status = copy_string(&root, "message", body.message, sizeof(body.message));
    if (status == FERRY_OK)
        *body_out = body;
    return blame_peer(status);
}

/* The two members that say who is meant; @what begins the text of an error. */
static enum ferry_status copy_identity(const struct ferry_json *object, const char *what,
                                       char *segment, char *incarnation)
{
    enum ferry_status status = copy_string(object, "segment", segment, FERRY_GOODBYE_NAME_MAX + 1);

    if (status == FERRY_OK)
        status = copy_string(object, "incarnation", incarnation, FERRY_INCARNATION_LEN + 1);
    if (status != FERRY_OK)
        return status;
    if (segment[0] == '\0')
        return ferry_fail(FERRY_ERR_PROTOCOL, "%s: segment: empty", what);
    if (!is_incarnation(incarnation))
        return ferry_fail(FERRY_ERR_PROTOCOL,
                          "%s: incarnation: expected 32 hex digits, found \"%s\"", what,
                          incarnation);
    for (char *at = incarnation; *at != '\0'; at++)
        *at = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
    return FERRY_OK;
}

enum ferry_status ferry_goodbye_decode(const char *text, size_t len,
                                       struct ferry_goodbye_body *body_out)
{
    static const char what[] = "goodbye";
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = ferry_json_parse(&limits, what, text, len, &root);
    struct ferry_goodbye_body body;

    if (status == FERRY_OK)
        status = copy_identity(&root, what, body.segment, body.incarnation);
    if (status == FERRY_OK)
        *body_out = body;
    return blame_peer(status);
}

enum ferry_status ferry_health_decode(const char *text, size_t len,
                                      struct ferry_health_body *body_out)
{
    static const char what[] = "health";
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = ferry_json_parse(&limits, what, text, len, &root);
    struct ferry_health_body body;

    if (status == FERRY_OK)
        status = copy_string(&root, "status", body.state, sizeof(body.state));
    if (status == FERRY_OK)
        status = copy_identity(&root, what, body.segment, body.incarnation);
    if (status == FERRY_OK)
        *body_out = body;
    return blame_peer(status);
}
