/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of the control plane: what an engine answers about itself.
 *
 *   GET  /v1/segment      the segment document       GET /v1/process, /v1/transports   reports
 *   GET  /health          {"status":"ok",...}        GET /v1/version                   versions
 *   POST /v1/notify       {"sender","name","message"}: 204, 429 inbox full
 *   POST /v1/goodbye      {"segment","incarnation"}: a peer leaves
 *
 * libmicrohttpd with its own thread and epoll. A handler never waits for a peer. Requests are bounded
 * in size, time and number; `Host` must name an address or name of this engine (an IP literal,
 * localhost, or the advertised host), against DNS rebinding; calls that change anything need
 * `Content-Type: application/json` and the header `X-Ferry: 1`, which no browser form can send.
 * Errors are JSON: {"error": "...", "status": "ERR_..."}.
 */
#ifndef FERRY_CONTROL_SERVER_H
#define FERRY_CONTROL_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

struct ferry_control_server;

/* What a handler answers with. `body` is malloc'd JSON text or NULL. */
struct ferry_control_reply {
    unsigned http_status;
    char *body;
    size_t body_len;
};

/* Runs on the server's thread; must not block on peers. */
typedef void ferry_control_handler_fn(void *arg, const char *body, size_t body_len,
                                      struct ferry_control_reply *reply_out);

struct ferry_control_route {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/segment" */
    ferry_control_handler_fn *handler;
};

struct ferry_control_options {
    const char *bind_host; /* numeric; "" means loopback, "0.0.0.0" and "::" are wildcards */
    uint16_t port;         /* 0: the system picks one */
    const char *advertise_host; /* extra name accepted in Host, may be NULL */
    const struct ferry_control_route *routes;
    size_t route_count;
    void *arg;
    size_t body_max;          /* bytes of a request body */
    unsigned connections_max; /* further ones are refused */
    unsigned timeout_s;       /* of an idle or slow connection */
};

/* ERR_EXISTS: port taken; ERR_INVALID: host; ERR_LIMIT. The text names host and port. */
enum ferry_status ferry_control_server_open(const struct ferry_control_options *options,
                                            struct ferry_control_server **server_out);
void ferry_control_server_close(struct ferry_control_server *server);
uint16_t ferry_control_server_port(const struct ferry_control_server *server);

#endif
