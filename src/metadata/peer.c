/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store that needs no server: a segment name is the control address of its owner, "host:port",
 * and GET asks the owner itself. A name without a port means FERRY_CONTROL_PORT_DEFAULT. PUT and
 * DELETE have nothing to do, since the document lives in the process that would send them.
 *
 * A name that cannot be parsed is refused before anything is sent or looked up.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hostport.h"
#include "control/message.h"
#include "control/server.h"
#include "metadata/stores.h"

struct peer_store {
    struct ferry_http_store http;
};

static void judge(struct ferry_store_request *request)
{
    struct ferry_http_call *call = &request->call;

    if (call->status == FERRY_ERR_TOO_LARGE || call->status == FERRY_ERR_PROTOCOL) {
        request->status = FERRY_ERR_METADATA;
    } else if (call->status != FERRY_OK) {
        return; /* as the client says */
    } else if (call->http_status == 200) {
        request->reply = ferry_take_ptr(&call->reply);
        request->reply_len = call->reply_len;
    } else {
        ferry_store_request_fail(request, FERRY_ERR_METADATA,
                                 "%.280s does not describe a segment: it answers %s with HTTP "
                                 "status %ld",
                                 request->name, FERRY_CONTROL_PATH_SEGMENT, call->http_status);
    }
}

static void peer_submit(struct ferry_store *base, struct ferry_store_request *request)
{
    struct peer_store *store = FERRY_CONTAINER_OF(base, struct peer_store, http.base);
    struct ferry_hostport place;
    char authority[FERRY_HOSTPORT_SIZE];

    if (request->verb == FERRY_STORE_LIST || request->expect != FERRY_STORE_ANYTHING) {
        ferry_http_store_answer(&store->http, request, FERRY_ERR_UNSUPPORTED,
                                "without a metadata store (metadata_type p2p) nothing is listed or "
                                "kept anywhere");
        return;
    }
    if (request->verb != FERRY_STORE_GET) {
        ferry_http_store_answer(&store->http, request, FERRY_OK, "");
        return;
    }
    if (!ferry_store_name_check(request->name) ||
        ferry_hostport_parse(request->name, FERRY_CONTROL_PORT_DEFAULT, 0, &place) != FERRY_OK) {
        ferry_http_store_answer(&store->http, request, FERRY_ERR_INVALID, ferry_last_error_text());
        return;
    }
    ferry_hostport_format_url(&place, authority, sizeof(authority));
    snprintf(request->url, sizeof(request->url), "%s://%s%s",
             ferry_http_client_scheme(store->http.http), authority, FERRY_CONTROL_PATH_SEGMENT);
    request->call.method = FERRY_HTTP_GET;
    request->call.party = FERRY_HTTP_PEER;
    request->call.url = request->url;
    request->call.deadline_ns = request->deadline_ns;
    ferry_http_store_send(&store->http, request);
}

static void peer_close(struct ferry_store *base)
{
    struct peer_store *store = FERRY_CONTAINER_OF(base, struct peer_store, http.base);

    ferry_http_store_fini(&store->http);
    free(store);
}

static enum ferry_status peer_open(const struct ferry_store_env *env,
                                   struct ferry_store **store_out)
{
    struct peer_store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "peer store: out of memory");
    ferry_http_store_init(&store->http, env, judge);
    store->http.base.ops = &ferry_store_peer;
    *store_out = &store->http.base;
    return FERRY_OK;
}

const struct ferry_store_ops ferry_store_peer = {
    .name = "peer",
    .open = peer_open,
    .close = peer_close,
    .submit = peer_submit,
    .names_are_addresses = true,
};
