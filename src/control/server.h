/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of the control plane: what an engine answers about itself.
 *
 *   GET  /v1/segment      the segment document       GET /v1/process, /v1/transports   reports
 *   GET  /health          {"status":"ok",...}        GET /v1/version                   versions
 *   GET  /metrics         for Prometheus             GET /metrics.json                 the same
 *   POST /v1/notify       {"sender","name","message"}: 204, 429 inbox full
 *   POST /v1/goodbye      {"segment","incarnation"}: a peer leaves
 *
 * libmicrohttpd with epoll, on one thread of its own. A handler never waits for a peer. Requests
 * are bounded in size, time and number; `Host` must name an address or name of this engine (an IP
 * literal, localhost, or the advertised host), against DNS rebinding; calls that change anything
 * need `Content-Type: application/json` and the header `X-Ferry: 1`, which no browser form can
 * send. HEAD is answered wherever GET is. Errors are JSON: {"error": "...", "status": "ERR_..."}.
 *
 * With a key in `access` only who proves it is answered (proof.h), on every path but /health. A
 * server without one on an address that is not loopback says so in the log.
 */
#ifndef FERRY_CONTROL_SERVER_H
#define FERRY_CONTROL_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

/* The port of a segment name that has none ("node7", "::1"), and the default of --listen. */
#define FERRY_CONTROL_PORT_DEFAULT 15428

/*
 * The time from a connection's acceptance, or from the end of its last request, to the end of the
 * next request: this many times timeout_s. A peer that trickles bytes is cut off there.
 */
#define FERRY_CONTROL_REQUEST_TIMEOUTS 4

struct ferry_access_control;
struct ferry_control_server;

/*
 * What a handler answers with. release(release_arg) runs once when the body is not needed any more,
 * on the server's thread or in ferry_control_server_close(); when release is NULL the body is
 * malloc'd and freed. (A printed document can thus be shared by many replies.)
 */
struct ferry_control_reply {
    unsigned http_status;     /* 200 if the handler leaves it alone */
    const char *content_type; /* static; NULL: application/json */
    char *body;               /* text or NULL */
    size_t body_len;
    void (*release)(void *release_arg);
    void *release_arg;
};

/* Runs on the server's thread; must not block on peers. @body is "" and 0 bytes for GET. */
typedef void ferry_control_handler_fn(void *arg, const char *body, size_t body_len,
                                      struct ferry_control_reply *reply_out);

struct ferry_control_route {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/segment" */
    ferry_control_handler_fn *handler;
};

/* Strings are copied; the routes must outlive the server. */
struct ferry_control_options {
    const char *bind_host;      /* numeric; "" means loopback, "0.0.0.0" and "::" are wildcards */
    uint16_t port;              /* 0: the system picks one */
    const char *advertise_host; /* extra name accepted in Host, may be NULL */
    const struct ferry_control_route *routes;
    size_t route_count;
    void *arg;
    size_t body_max;                     /* bytes of a request body */
    unsigned connections_max;            /* > 0; further ones wait in the system's queue */
    unsigned timeout_s;                  /* > 0; of a connection on which nothing moves */
    struct ferry_access_control *access; /* outlives the server; NULL: nobody proves anything */
};

/*
 * "::" also takes IPv4. ERR_EXISTS: port taken; ERR_INVALID: the host is not numeric or not an
 * address of this machine; ERR_LIMIT, ERR_NO_MEMORY. The text names host and port.
 */
FERRY_CHECKED enum ferry_status
ferry_control_server_open(const struct ferry_control_options *options,
                          struct ferry_control_server **server_out);

/*
 * Stops listening, cuts the connections, joins the thread. Not from a handler. NULL is harmless. In
 * a forked child it does nothing: the server and its thread are the parent's.
 */
void ferry_control_server_close(struct ferry_control_server *server);

/* The port it listens on, also when the system picked it. */
uint16_t ferry_control_server_port(const struct ferry_control_server *server);

/* Fill a reply with {"error": @text, "status": "ERR_..."}. For handlers. */
void ferry_control_reply_error(struct ferry_control_reply *reply_out, unsigned http_status,
                               enum ferry_status status, const char *text);

#endif
