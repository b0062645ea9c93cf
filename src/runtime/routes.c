/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the control server answers about this engine. Every handler runs on the server's thread;
 * none waits for a peer or a store. Until the engine is open, and from the moment it closes, the
 * answer is 503.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "config/option.h"
#include "control/server.h"
#include "runtime/runtime.h"

#define BODY_MAX        65536
#define CONNECTIONS_MAX 256
#define TIMEOUT_S       10

static bool not_ready(struct ferry_engine *engine, struct ferry_control_reply *reply_out)
{
    if (atomic_load(&engine->ready) && !ferry_engine_closing(engine))
        return false;
    ferry_control_reply_error(reply_out, 503, FERRY_ERR_CLOSING,
                              ferry_engine_closing(engine) ? "shutting down" : "starting");
    return true;
}

static void reply_text(struct ferry_control_reply *reply_out, enum ferry_status status, char *json)
{
    if (status != FERRY_OK) {
        ferry_control_reply_error(reply_out, 500, status, ferry_last_error_text());
        return;
    }
    reply_out->http_status = 200;
    reply_out->body = json;
    reply_out->body_len = strlen(json);
}

static void release_published(void *arg)
{
    ferry_published_release(arg);
}

static void get_segment(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    struct ferry_published *published;
    enum ferry_status status;

    (void)body;
    (void)body_len;
    if (not_ready(arg, reply_out))
        return;
    status = ferry_published_acquire(arg, &published);
    if (status != FERRY_OK) {
        ferry_control_reply_error(reply_out, 500, status, ferry_last_error_text());
        return;
    }
    reply_out->http_status = 200;
    reply_out->body = published->text;
    reply_out->body_len = published->len;
    reply_out->release = release_published;
    reply_out->release_arg = published;
}

static void get_process(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    enum ferry_status status;
    char *json = NULL;

    (void)body;
    (void)body_len;
    if (not_ready(arg, reply_out))
        return;
    status = ferry_report_process(arg, &json);
    reply_text(reply_out, status, json);
}

static void get_transports(void *arg, const char *body, size_t body_len,
                           struct ferry_control_reply *reply_out)
{
    enum ferry_status status;
    char *json = NULL;

    (void)body;
    (void)body_len;
    if (not_ready(arg, reply_out))
        return;
    status = ferry_report_transports(arg, &json);
    reply_text(reply_out, status, json);
}

static void get_version(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    enum ferry_status status;
    char *json = NULL;

    (void)body;
    (void)body_len;
    if (not_ready(arg, reply_out))
        return;
    status = ferry_report_build(&json);
    reply_text(reply_out, status, json);
}

static void get_health(void *arg, const char *body, size_t body_len,
                       struct ferry_control_reply *reply_out)
{
    struct ferry_engine *engine = arg;
    struct json_object *object;
    enum ferry_status status = FERRY_ERR_NO_MEMORY;
    char *json = NULL;
    size_t len;

    (void)body;
    (void)body_len;
    if (not_ready(engine, reply_out))
        return;
    object = json_object_new_object();
    if (object != NULL && ferry_json_put_string(object, "status", "ok") &&
        ferry_json_put_string(object, "segment", engine->name) &&
        ferry_json_put_string(object, "incarnation", engine->incarnation))
        status = ferry_json_print(object, BODY_MAX, &json, &len);
    json_object_put(object);
    reply_text(reply_out, status, json);
}

static void reply_status(struct ferry_control_reply *reply_out, enum ferry_status status)
{
    switch (status) {
    case FERRY_OK:
        reply_out->http_status = 204;
        return;
    case FERRY_ERR_QUEUE_FULL:
        ferry_control_reply_error(reply_out, 429, status, "the inbox is full");
        return;
    case FERRY_ERR_INVALID:
        ferry_control_reply_error(reply_out, 400, status, ferry_last_error_text());
        return;
    default:
        ferry_control_reply_error(reply_out, 500, status, ferry_status_text(status));
        return;
    }
}

static void post_notify(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *sender, *name, *message;
    enum ferry_status status;

    if (not_ready(arg, reply_out))
        return;
    status = ferry_json_parse(&ferry_json_limits_small, "notification", body, body_len, &root);
    if (status == FERRY_OK)
        status = ferry_json_as_object(&root);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "sender", 255, &sender);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "name", 255, &name);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "message", 4095, &message);
    if (status == FERRY_OK)
        status = ferry_notify_put(arg, sender, name, message);
    reply_status(reply_out, status);
}

static void post_goodbye(void *arg, const char *body, size_t body_len,
                         struct ferry_control_reply *reply_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *segment, *incarnation;
    enum ferry_status status;

    if (not_ready(arg, reply_out))
        return;
    status = ferry_json_parse(&ferry_json_limits_small, "goodbye", body, body_len, &root);
    if (status == FERRY_OK)
        status = ferry_json_as_object(&root);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "segment", 255, &segment);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "incarnation", 64, &incarnation);
    if (status == FERRY_OK)
        ferry_goodbye_received(arg, segment, incarnation);
    reply_status(reply_out, status);
}

static const struct ferry_control_route routes[] = {
    {"GET", "/v1/segment", get_segment},
    {"GET", "/v1/process", get_process},
    {"GET", "/v1/transports", get_transports},
    {"GET", "/v1/version", get_version},
    {"GET", "/health", get_health},
    {"POST", "/v1/notify", post_notify},
    {"POST", "/v1/goodbye", post_goodbye},
};

enum ferry_status ferry_control_open(struct ferry_engine *engine, const struct ferry_places *places)
{
    struct ferry_control_options options = {
        .bind_host = places->bind_host,
        .port = (uint16_t)ferry_config_u64(engine->config, "rpc_server_port"),
        .advertise_host = places->advertise_host,
        .routes = routes,
        .route_count = FERRY_ARRAY_LEN(routes),
        .arg = engine,
        .body_max = BODY_MAX,
        .connections_max = CONNECTIONS_MAX,
        .timeout_s = TIMEOUT_S,
    };

    return ferry_control_server_open(&options, &engine->control);
}
