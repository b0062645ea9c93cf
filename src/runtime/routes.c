/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the control server answers about this engine. Every handler runs on the server's thread;
 * none waits for a peer or a store. Until the engine is open, and from the moment it closes, the
 * answer is 503; only the health then says more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "config/option.h"
#include "control/channel.h"
#include "control/message.h"
#include "control/server.h"
#include "runtime/metrics.h"
#include "runtime/runtime.h"

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

static void reply_metrics(struct ferry_engine *engine, enum ferry_exposition_form form,
                          struct ferry_control_reply *reply_out)
{
    enum ferry_status status;
    char *text = NULL;
    size_t len;

    if (not_ready(engine, reply_out))
        return;
    status = ferry_metrics_print(engine, form, &text, &len);
    reply_text(reply_out, status, text);
    if (status == FERRY_OK && form == FERRY_EXPOSITION_TEXT)
        reply_out->content_type = FERRY_EXPOSITION_TEXT_TYPE;
}

static void get_metrics(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    (void)body;
    (void)body_len;
    reply_metrics(arg, FERRY_EXPOSITION_TEXT, reply_out);
}

static void get_metrics_json(void *arg, const char *body, size_t body_len,
                             struct ferry_control_reply *reply_out)
{
    (void)body;
    (void)body_len;
    reply_metrics(arg, FERRY_EXPOSITION_JSON, reply_out);
}

/* Also while starting and closing, so that whoever wants the name can tell. */
static void get_health(void *arg, const char *body, size_t body_len,
                       struct ferry_control_reply *reply_out)
{
    struct ferry_engine *engine = arg;
    bool closing = ferry_engine_closing(engine);
    bool ready = atomic_load(&engine->ready) && !closing;
    struct ferry_health_body health = {0};
    enum ferry_status status;
    char *json = NULL;
    size_t len;

    (void)body;
    (void)body_len;
    if (!atomic_load(&engine->named)) {
        not_ready(engine, reply_out);
        return;
    }
    snprintf(health.state, sizeof(health.state), "%s",
             closing ? FERRY_HEALTH_CLOSING
             : ready ? "ok"
                     : "starting");
    snprintf(health.segment, sizeof(health.segment), "%.*s", FERRY_GOODBYE_NAME_MAX, engine->name);
    memcpy(health.incarnation, engine->incarnation, sizeof(health.incarnation));
    status = ferry_health_encode(&health, &json, &len);
    reply_text(reply_out, status, json);
    if (status == FERRY_OK && !ready)
        reply_out->http_status = 503;
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
    case FERRY_ERR_PROTOCOL:
    case FERRY_ERR_TOO_LARGE:
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
    struct ferry_notify_body notify;
    enum ferry_status status;

    if (not_ready(arg, reply_out))
        return;
    status = ferry_notify_decode(body, body_len, &notify);
    if (status == FERRY_OK)
        status = ferry_notify_put(arg, &notify);
    reply_status(reply_out, status);
}

static void post_goodbye(void *arg, const char *body, size_t body_len,
                         struct ferry_control_reply *reply_out)
{
    struct ferry_goodbye_body goodbye;
    enum ferry_status status;

    if (not_ready(arg, reply_out))
        return;
    status = ferry_goodbye_decode(body, body_len, &goodbye);
    if (status == FERRY_OK)
        ferry_goodbye_received(arg, &goodbye);
    reply_status(reply_out, status);
}

/* {"transport": name, ...}: the rest is that transport's. */
static void post_bootstrap(void *arg, const char *body, size_t body_len,
                           struct ferry_control_reply *reply_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_engine *engine = arg;
    enum ferry_status status;
    const char *name;
    uint32_t index;
    char *reply = NULL;

    if (not_ready(arg, reply_out))
        return;
    status = ferry_json_parse(&ferry_json_limits_small, "bootstrap", body, body_len, &root);
    if (status == FERRY_OK)
        status = ferry_json_as_object(&root);
    if (status == FERRY_OK)
        status = ferry_json_string(&root, "transport", 32, &name);
    if (status != FERRY_OK) {
        reply_status(reply_out, status);
        return;
    }
    status = ferry_engine_find_transport(engine, name, &index);
    if (status != FERRY_OK) {
        ferry_control_reply_error(reply_out, 404, FERRY_ERR_UNSUPPORTED,
                                  "this engine does not use that transport");
        return;
    }
    status = ferry_transport_bootstrap(engine->transports[index].transport, body, body_len, &reply);
    if (status != FERRY_OK) {
        ferry_control_reply_error(reply_out, 409, status, ferry_last_error_text());
        return;
    }
    reply_text(reply_out, FERRY_OK, reply);
}

static const struct ferry_control_route routes[] = {
    {"GET", FERRY_CONTROL_PATH_SEGMENT, get_segment},
    {"GET", FERRY_CONTROL_PATH_PROCESS, get_process},
    {"GET", FERRY_CONTROL_PATH_TRANSPORTS, get_transports},
    {"GET", FERRY_CONTROL_PATH_VERSION, get_version},
    {"GET", FERRY_CONTROL_PATH_HEALTH, get_health},
    {"GET", FERRY_CONTROL_PATH_METRICS, get_metrics},
    {"GET", FERRY_CONTROL_PATH_METRICS_JSON, get_metrics_json},
    {"POST", FERRY_CONTROL_PATH_NOTIFY, post_notify},
    {"POST", FERRY_CONTROL_PATH_GOODBYE, post_goodbye},
    {"POST", FERRY_CONTROL_PATH_BOOTSTRAP, post_bootstrap},
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
        .body_max = FERRY_CONTROL_BODY_MAX,
        .connections_max = CONNECTIONS_MAX,
        .timeout_s = TIMEOUT_S,
        .access = engine->access,
    };

    return ferry_control_server_open(&options, &engine->control);
}
