/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a transport speaks to the same transport of a peer: one question and its answer, over the two
 * engines' control planes (POST /v1/bootstrap). What the texts say is the transports' business; the
 * body is a JSON object with the member "transport", which names who is meant.
 *
 * Any thread asks; done() runs on the control thread, exactly once, never inside the call that
 * asked, and must not block. The model rig brings a channel of its own.
 */
#ifndef FERRY_CONTROL_CHANNEL_H
#define FERRY_CONTROL_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/hostport.h"
#include "control/client.h"

#define FERRY_CONTROL_PATH_BOOTSTRAP "/v1/bootstrap"

/* Bytes of a question or an answer. */
#define FERRY_CHANNEL_TEXT_MAX (64u << 10)

struct ferry_peer_call;
typedef void ferry_peer_done_fn(struct ferry_peer_call *call);

/* In the asker's memory until done() is called; done() may free it. */
struct ferry_peer_call {
    const char *address; /* "host:port" of the peer's control plane; valid until done */
    char *body;          /* malloc'd JSON text; the channel frees it before done() */
    size_t body_len;
    uint64_t deadline_ns; /* absolute, never "none" */
    ferry_peer_done_fn *done;
    /*
     * Result. FERRY_OK: the peer's transport answered. Otherwise what its control plane or its
     * transport said, or why it could not be asked.
     */
    enum ferry_status status;
    char *reply; /* FERRY_OK: malloc'd, done()'s to free; else NULL */
    size_t reply_len;
    /* the channel's own between call and done */
    struct ferry_http_call http;
    char url[FERRY_HOSTPORT_SIZE + 32];
};

struct ferry_peer_channel {
    void (*call)(struct ferry_peer_channel *channel, struct ferry_peer_call *call);
    struct ferry_http_client *http;
};

/* A channel over HTTP. @client outlives it. */
void ferry_peer_channel_init(struct ferry_peer_channel *channel, struct ferry_http_client *client);

#endif
