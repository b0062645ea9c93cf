/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP call on its way: a state machine that the control thread steps. Private to control/.
 *
 *   RESOLVING --> CONNECTING --> TALKING --> ENDED
 *       |              |            |          ^
 *       +--------------+------------+----------+   failure, deadline, abort
 *
 * Everything here runs on the control thread and does not block.
 */
#ifndef FERRY_CONTROL_CALL_H
#define FERRY_CONTROL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <curl/curl.h>

#include "base/compiler.h"
#include "base/hostport.h"
#include "base/list.h"
#include "base/text.h"
#include "control/client.h"
#include "control/connect.h"
#include "control/proof.h"
#include "control/resolve.h"

enum ferry_http_work_state {
    FERRY_HTTP_WORK_RESOLVING,  /* lookup != NULL */
    FERRY_HTTP_WORK_CONNECTING, /* connect has running attempts */
    FERRY_HTTP_WORK_TALKING,    /* easy is in the multi handle */
    FERRY_HTTP_WORK_ENDED,      /* the result is in call; finish() is all that is left */
};

/* Where a call stands that proves a key: see call_proof.c. */
enum ferry_http_proving {
    FERRY_HTTP_PROVES_NOTHING,
    FERRY_HTTP_ASKS_CHALLENGE, /* the first of two requests on the connection */
    FERRY_HTTP_PROVES_KEY,     /* the second; its reply has to prove the key, too */
};

struct ferry_http_work {
    struct ferry_http_call *call;
    struct ferry_list link; /* the client's */
    enum ferry_http_work_state state;
    CURLM *multi;
    struct ferry_resolver *resolver;
    const struct ferry_access_control *access;
    struct ferry_hostport place;
    struct ferry_lookup *lookup;
    struct ferry_connect connect;
    CURLU *url;
    CURL *easy;
    struct curl_slist *headers;
    struct curl_slist *connect_to;
    /* the reply so far */
    char *reply;
    size_t reply_len;
    size_t reply_size;
    size_t header_bytes;
    enum ferry_status reply_status; /* why a callback stopped libcurl */
    bool headers_too_large;
    bool refused_by_owner; /* call->data() did not want it */
    /* with a key */
    enum ferry_http_proving proving;
    CURLU *challenge_url;
    struct ferry_control_proof proof;
    struct ferry_auth_transcript transcript;
    char reply_proof[2 * FERRY_AUTH_PROOF_SIZE + 1]; /* what the reply says; "" if nothing */
    char curl_error[CURL_ERROR_SIZE];
};

/* Begin. The state may be ENDED already (a bad URL). ERR_NO_MEMORY: nothing began. */
FERRY_CHECKED enum ferry_status ferry_http_work_create(struct ferry_http_call *call, CURLM *multi,
                                                       struct ferry_resolver *resolver,
                                                       const struct ferry_access_control *access,
                                                       struct ferry_http_work **work_out);
/* Look-up, connects and the deadline. */
void ferry_http_work_step(struct ferry_http_work *work, uint64_t now_ns);
/* libcurl is through with it. */
void ferry_http_work_talked(struct ferry_http_work *work, CURLcode result);
/* End it from outside. */
void ferry_http_work_abort(struct ferry_http_work *work, enum ferry_status status,
                           const char *reason);
/* Given: ENDED. Frees the work, then calls call->done(). */
void ferry_http_work_finish(struct ferry_http_work *work);

uint64_t ferry_http_work_due_ns(const struct ferry_http_work *work);
/* Descriptors to watch for writability, at most FERRY_RESOLVE_ADDRS_MAX. */
size_t ferry_http_work_fds(const struct ferry_http_work *work, int *fds_out);

/*
 * For call_proof.c: "GET 10.9.0.2:80: ", the end of the call, and the request that comes next on
 * the connection (false: no memory).
 */
void ferry_http_work_begin_error(const struct ferry_http_work *work, struct ferry_text *text);
void ferry_http_work_end(struct ferry_http_work *work, enum ferry_status status);
FERRY_CHECKED bool ferry_http_work_next_request(struct ferry_http_work *work);
const char *ferry_http_method_name(enum ferry_http_method method);

/*
 * call_tls.c: TLS towards peers, before the first request (false: no memory), and what may be wrong
 * with it when libcurl fails; "" if nothing is known.
 */
FERRY_CHECKED bool ferry_http_tls_begin(struct ferry_http_work *work);
/* A peer whose TLS we do not accept, or which ended it with an alert since it does not accept us.
 */
bool ferry_http_tls_refused(const struct ferry_http_work *work, CURLcode result);
const char *ferry_http_tls_hint(const struct ferry_http_work *work, CURLcode result);

/* call_proof.c */
/* Before the first request. False: no memory. */
FERRY_CHECKED bool ferry_http_proof_begin(struct ferry_http_work *work);
/* A line of the reply's headers. */
void ferry_http_proof_header(struct ferry_http_work *work, const char *bytes, size_t len);
/*
 * A whole reply came. True: it is the call's, and proved what it had to. False: the work went on
 * with its second request, or has ended.
 */
FERRY_CHECKED bool ferry_http_proof_replied(struct ferry_http_work *work, long http_status);
/* The Authorization header of the second request. False: no memory. */
FERRY_CHECKED bool ferry_http_proof_add_header(struct ferry_http_work *work,
                                               struct curl_slist **headers);

/* End a call that has no work. */
void ferry_http_call_end(struct ferry_http_call *call, enum ferry_status status,
                         const char *reason);

#endif
