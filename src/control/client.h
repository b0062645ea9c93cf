/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP client of the control plane: libcurl's multi interface on one control thread.
 *
 * Any thread queues a request; done() runs on the control thread, exactly once, under no lock, and
 * must not block. Bodies are bounded; each request has a deadline. Proxies from the environment are
 * ignored (NOPROXY), redirects are not followed, signals are off. A request that is not idempotent is never repeated
 * by itself: fresh connection for POST. The control thread is idle (no CPU) when nothing runs.
 */
#ifndef FERRY_CONTROL_CLIENT_H
#define FERRY_CONTROL_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/clock.h"
#include "base/list.h"

struct ferry_http_client;
struct ferry_http_call;

enum ferry_http_method {
    FERRY_HTTP_GET = 0,
    FERRY_HTTP_PUT = 1,
    FERRY_HTTP_POST = 2,
    FERRY_HTTP_DELETE = 3,
};

typedef void ferry_http_done_fn(struct ferry_http_call *call);

/* In the caller's memory from submit to done. */
struct ferry_http_call {
    enum ferry_http_method method;
    const char *url;  /* valid until done */
    const char *body; /* PUT, POST: application/json */
    size_t body_len;
    size_t reply_max;     /* bytes; a longer reply ends the call with ERR_TOO_LARGE */
    uint64_t deadline_ns; /* absolute CLOCK_MONOTONIC */
    ferry_http_done_fn *done;
    void *arg;
    /* result, valid inside done() */
    enum ferry_status status; /* FERRY_OK: a reply of any HTTP status came */
    long http_status;
    char *reply; /* malloc'd, NUL-terminated; the callback takes it or it is freed */
    size_t reply_len;
    char error[512]; /* the cause: address:port pairs tried and the reason of each */
    /* the client's own between submit and done */
    void *client_data;
    struct ferry_list link;
};

enum ferry_status ferry_http_client_open(struct ferry_http_client **client_out);
/* Ends what runs with ERR_CLOSING, joins the thread. NULL is harmless. */
void ferry_http_client_close(struct ferry_http_client *client);
void ferry_http_client_submit(struct ferry_http_client *client, struct ferry_http_call *call);
/* Submit and wait; not from the control thread. */
enum ferry_status ferry_http_client_call(struct ferry_http_client *client, struct ferry_http_call *call);

#endif
