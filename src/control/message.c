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

enum ferry_status ferry_goodbye_encode(const struct ferry_goodbye_body *body, char **text_out,
                                       size_t *len_out)
{
    struct ferry_text json;
    enum ferry_status status;

    if (body->segment[0] == '\0')
        return ferry_fail(FERRY_ERR_INVALID, "segment is empty");
    if (!is_incarnation(body->incarnation))
        return ferry_fail(FERRY_ERR_INVALID, "incarnation \"%s\" is not 32 hex digits",
                          body->incarnation);
    ferry_text_init_heap(&json, FERRY_CONTROL_BODY_MAX);
    status = add_member(&json, "segment", body->segment);
    if (status == FERRY_OK)
        status = add_member(&json, "incarnation", body->incarnation);
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

enum ferry_status ferry_goodbye_decode(const char *text, size_t len,
                                       struct ferry_goodbye_body *body_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = ferry_json_parse(&limits, "goodbye", text, len, &root);
    struct ferry_goodbye_body body;

    if (status == FERRY_OK)
        status = copy_string(&root, "segment", body.segment, sizeof(body.segment));
    if (status == FERRY_OK)
        status = copy_string(&root, "incarnation", body.incarnation, sizeof(body.incarnation));
    if (status != FERRY_OK)
        return blame_peer(status);
    if (body.segment[0] == '\0')
        return ferry_fail(FERRY_ERR_PROTOCOL, "goodbye: segment: empty");
    if (!is_incarnation(body.incarnation))
        return ferry_fail(FERRY_ERR_PROTOCOL,
                          "goodbye: incarnation: expected 32 hex digits, found \"%s\"",
                          body.incarnation);
    for (char *at = body.incarnation; *at != '\0'; at++)
        *at = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
    *body_out = body;
    return FERRY_OK;
}
