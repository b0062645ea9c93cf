/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The channel between transports of two engines, over HTTP. call() runs on any thread and only
 * queues; the rest runs on the control thread.
 */
#include "control/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"

/* The status that an error body names, else one for "it said no". */
static enum ferry_status refused(const struct ferry_http_call *http)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *name;

    if (http->reply == NULL || ferry_json_parse(&ferry_json_limits_small, "reply", http->reply,
                                                http->reply_len, &root) != FERRY_OK)
        return FERRY_ERR_REFUSED;
    if (ferry_json_as_object(&root) != FERRY_OK ||
        ferry_json_string(&root, "status", 64, &name) != FERRY_OK)
        return FERRY_ERR_REFUSED;
#define ROW(row, value, state, text)                                                               \
    if (strcmp(name, #row) == 0)                                                                   \
        return FERRY_##row;
    FERRY_STATUS_TABLE(ROW)
#undef ROW
    return FERRY_ERR_REFUSED;
}

static void http_done(struct ferry_http_call *http)
{
    struct ferry_peer_call *call = http->arg;

    free(call->body);
    call->body = NULL;
    call->status = http->status;
    call->reply = NULL;
    if (http->status == FERRY_OK && http->http_status == 200) {
        call->reply = http->reply;
        call->reply_len = http->reply_len;
    } else if (http->status == FERRY_OK) {
        call->status = refused(http);
        if (call->status == FERRY_OK)
            call->status = FERRY_ERR_REFUSED;
        free(http->reply);
    }
    http->reply = NULL;
    call->done(call);
}

static void http_call(struct ferry_peer_channel *channel, struct ferry_peer_call *call)
{
    struct ferry_hostport place;
    char authority[FERRY_HOSTPORT_SIZE];

    memset(&call->http, 0, sizeof(call->http));
    call->url[0] = '\0';
    if (ferry_hostport_parse(call->address, 0, FERRY_HOSTPORT_NEED_PORT, &place) == FERRY_OK) {
        ferry_hostport_format_url(&place, authority, sizeof(authority));
        snprintf(call->url, sizeof(call->url), "%s://%s" FERRY_CONTROL_PATH_BOOTSTRAP,
                 ferry_http_client_scheme(channel->http), authority);
    }
    call->http.method = FERRY_HTTP_POST;
    call->http.party = FERRY_HTTP_PEER;
    call->http.url = call->url;
    call->http.body = call->body;
    call->http.body_len = call->body_len;
    call->http.reply_max = FERRY_CHANNEL_TEXT_MAX;
    call->http.deadline_ns = call->deadline_ns;
    call->http.done = http_done;
    call->http.arg = call;
    ferry_http_client_submit(channel->http, &call->http);
}

void ferry_peer_channel_init(struct ferry_peer_channel *channel, struct ferry_http_client *client)
{
    channel->call = http_call;
    channel->http = client;
}
