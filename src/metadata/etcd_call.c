/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question to etcd, asked until somebody answers: the endpoints in turn, a pause, and again,
 * until its deadline. So a restart of etcd, or the loss of a leader, is a delay. A token is fetched
 * when there is none, once for all who wait for it, and again when etcd has forgotten it.
 *
 * Control thread, but for begin, end and post. Locks: etcd->lock, then the http client's; a call is
 * handed to the client under the lock, so that close either sees it or has forbidden it.
 */
#include "metadata/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

#define PAUSE_FIRST_NS (20 * FERRY_NS_PER_MS)
#define PAUSE_MAX_NS   (500 * FERRY_NS_PER_MS)
/* Least time that one of several endpoints gets. */
#define TRY_MIN_NS (100 * FERRY_NS_PER_MS)
/* Tokens that one call may find to be forgotten. */
#define TOKEN_TRIES_MAX 3

static void try_now(struct ferry_etcd_call *call);

bool ferry_etcd_begin(struct ferry_etcd *etcd)
{
    bool open;

    pthread_mutex_lock(&etcd->lock);
    open = !etcd->closing;
    if (open)
        etcd->pending++;
    pthread_mutex_unlock(&etcd->lock);
    return open;
}

/* The last use of the store by whoever calls this: close may return as soon as the lock is free. */
void ferry_etcd_end(struct ferry_etcd *etcd)
{
    pthread_mutex_lock(&etcd->lock);
    FERRY_ASSERT(etcd->pending > 0);
    if (--etcd->pending == 0)
        pthread_cond_broadcast(&etcd->idle);
    pthread_mutex_unlock(&etcd->lock);
}

bool ferry_etcd_closing(struct ferry_etcd *etcd)
{
    bool closing;

    pthread_mutex_lock(&etcd->lock);
    closing = etcd->closing;
    pthread_mutex_unlock(&etcd->lock);
    return closing;
}

static uint64_t now_ns(const struct ferry_etcd_call *call)
{
    return ferry_now_ns(call->etcd->clock);
}

static void end(struct ferry_etcd_call *call, enum ferry_status status)
{
    free(call->body);
    call->body = NULL;
    ferry_list_remove(&call->waiting);
    call->status = status;
    call->done(call);
}

/* Runs when the http client is through with it: nobody else may name it to the client any more. */
static void take_back(struct ferry_etcd_call *call)
{
    pthread_mutex_lock(&call->etcd->lock);
    ferry_list_remove(&call->link);
    pthread_mutex_unlock(&call->etcd->lock);
}

static void finished(struct ferry_http_call *http)
{
    struct ferry_etcd_call *call = http->arg;

    snprintf(call->error, sizeof(call->error), "%s", http->error);
    end(call, http->status);
}

/* End it later, on the control thread and not inside of what runs now. */
static void end_soon(struct ferry_etcd_call *call, enum ferry_status status, const char *error)
{
    snprintf(call->http.error, sizeof(call->http.error), "%s", error);
    call->http.done = finished;
    call->http.arg = call;
    ferry_http_client_finish(call->etcd->http, &call->http, status);
}

/* To the http client, or to its end if the store or the owner does not want it any more. */
static void hand_over(struct ferry_etcd_call *call, ferry_http_done_fn *done, bool sleep)
{
    struct ferry_etcd *etcd = call->etcd;
    bool wanted;

    call->http.done = done;
    call->http.arg = call;
    pthread_mutex_lock(&etcd->lock);
    wanted = !etcd->closing && !call->abandoned;
    if (wanted) {
        ferry_list_push_back(&etcd->calls, &call->link);
        if (sleep)
            ferry_http_client_sleep(etcd->http, &call->http);
        else
            ferry_http_client_submit(etcd->http, &call->http);
    }
    pthread_mutex_unlock(&etcd->lock);
    if (!wanted)
        end_soon(call, FERRY_ERR_CLOSING, "the metadata store is closing");
}

static void authenticated(struct ferry_etcd_call *auth)
{
    struct ferry_etcd *etcd = auth->etcd;
    enum ferry_status status = auth->status;

    etcd->authenticating = false;
    etcd->auth_round++;
    snprintf(etcd->auth_error, sizeof(etcd->auth_error), "%s", auth->error);
    if (status == FERRY_OK) {
        status = ferry_etcd_read_token(auth->reply, auth->reply_len, etcd->token);
        if (status == FERRY_OK)
            etcd->token_number++;
        else
            snprintf(etcd->auth_error, sizeof(etcd->auth_error), "%s", ferry_last_error_text());
    } else if (auth->refused && auth->code == FERRY_ETCD_CODE_PRECONDITION) {
        /* It knows no users: nobody needs a token. */
        etcd->without_auth = true;
        status = FERRY_OK;
    }
    free(auth->reply);
    etcd->auth_status = status;
    pthread_mutex_lock(&etcd->lock);
    for (struct ferry_list *link = etcd->auth_waiters.next; link != &etcd->auth_waiters;
         link = link->next) {
        struct ferry_etcd_call *call = FERRY_CONTAINER_OF(link, struct ferry_etcd_call, waiting);

        if (!ferry_list_empty(&call->link))
            ferry_http_client_abort(etcd->http, &call->http);
    }
    pthread_mutex_unlock(&etcd->lock);
    ferry_etcd_end(etcd);
}

static void authenticate(struct ferry_etcd *etcd)
{
    struct ferry_text body;

    if (etcd->authenticating || !ferry_etcd_begin(etcd))
        return;
    etcd->authenticating = true;
    etcd->auth = (struct ferry_etcd_call){
        .etcd = etcd,
        .path = "/v3/auth/authenticate",
        .deadline_ns = ferry_deadline_ns(ferry_now_ns(etcd->clock), etcd->timeout_ns),
        .anonymous = true,
        .done = authenticated,
    };
    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_authenticate_body(&body, etcd->user, etcd->password);
    ferry_etcd_set_body(&etcd->auth, &body);
    ferry_etcd_ask(&etcd->auth);
}

/* There is a token, or there will be none, or it did not come in time. */
static void token_came(struct ferry_http_call *http)
{
    struct ferry_etcd_call *call = http->arg;
    struct ferry_etcd *etcd = call->etcd;

    take_back(call);
    if (etcd->auth_round != call->auth_round) {
        if (etcd->auth_status == FERRY_OK) {
            ferry_list_remove(&call->waiting);
            try_now(call);
            return;
        }
        snprintf(call->error, sizeof(call->error), "%s", etcd->auth_error);
        end(call, etcd->auth_status);
        return;
    }
    snprintf(call->error, sizeof(call->error), "no token came in time");
    end(call, http->status);
}

static void await_token(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;

    call->auth_round = etcd->auth_round;
    ferry_list_push_back(&etcd->auth_waiters, &call->waiting);
    call->http.deadline_ns = call->deadline_ns;
    hand_over(call, token_came, true);
    authenticate(etcd);
}

static void try_again(struct ferry_http_call *http)
{
    struct ferry_etcd_call *call = http->arg;

    take_back(call);
    if (http->status != FERRY_ERR_TIMED_OUT)
        end(call, http->status); /* call->error is about the last try */
    else
        try_now(call);
}

/* The time is up; call->error says how the last try ended. */
static void expire(struct ferry_etcd_call *call)
{
    if (call->error[0] == '\0') {
        call->timed_out = true;
        snprintf(call->error, sizeof(call->error), "there was no time to ask");
    }
    end(call, call->timed_out ? FERRY_ERR_TIMED_OUT : FERRY_ERR_METADATA);
}

/* This endpoint gave no answer, and call->error says why. */
static void try_next(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;
    uint64_t now = now_ns(call);

    if (etcd->endpoint == call->endpoint)
        etcd->endpoint = (etcd->endpoint + 1) % etcd->endpoint_count;
    call->endpoint = (call->endpoint + 1) % etcd->endpoint_count;
    call->round_tries++;
    if (call->once || now >= call->deadline_ns || call->wrong_tries == etcd->endpoint_count) {
        expire(call);
    } else if (call->round_tries < etcd->endpoint_count) {
        try_now(call);
    } else {
        call->round_tries = 0;
        call->wrong_tries = 0;
        call->http.deadline_ns = ferry_deadline_ns(now, call->pause_ns);
        if (call->http.deadline_ns > call->deadline_ns)
            call->http.deadline_ns = call->deadline_ns;
        call->pause_ns = call->pause_ns * 2 < PAUSE_MAX_NS ? call->pause_ns * 2 : PAUSE_MAX_NS;
        hand_over(call, try_again, true);
    }
}

static void forget_token(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;

    if (etcd->token_number == call->token_number)
        etcd->token[0] = '\0';
    etcd->without_auth = false;
    call->token_tries++;
}

/* True if another token may help. */
static bool is_about_token(const struct ferry_etcd_call *call, const char *says)
{
    if (call->etcd->user[0] == '\0' || call->anonymous || call->token_tries == TOKEN_TRIES_MAX)
        return false;
    return call->http.http_status == 401 || call->code == FERRY_ETCD_CODE_UNAUTHENTICATED ||
           strstr(says, "auth store is old") != NULL || strstr(says, "user name is empty") != NULL;
}

/* True if it is about the moment or this endpoint, and not about what was asked. */
static bool is_passing(const struct ferry_etcd_call *call, const char *says)
{
    return call->http.http_status >= 500 || call->code == FERRY_ETCD_CODE_UNAVAILABLE ||
           call->code == FERRY_ETCD_CODE_DEADLINE || call->code == FERRY_ETCD_CODE_CANCELED ||
           strstr(says, "too many requests") != NULL || strstr(says, "not leader") != NULL;
}

static void judge_refusal(struct ferry_etcd_call *call)
{
    struct ferry_http_call *http = &call->http;
    char says[320];

    ferry_etcd_read_refusal(http->reply != NULL ? http->reply : "", http->reply_len, &call->code,
                            says, sizeof(says));
    free(http->reply);
    snprintf(call->error, sizeof(call->error), "%.120s%.24s answers with HTTP status %ld%s%.300s",
             call->etcd->endpoints[call->endpoint], call->path, http->http_status,
             says[0] != '\0' ? ": " : "", says);
    call->timed_out = false;
    if (is_about_token(call, says)) {
        forget_token(call);
        try_now(call);
    } else if (is_passing(call, says)) {
        call->repeated = true;
        try_next(call);
    } else {
        call->refused = true;
        end(call, FERRY_ERR_METADATA);
    }
}

static void tried(struct ferry_http_call *http)
{
    struct ferry_etcd_call *call = http->arg;

    take_back(call);
    if (http->status == FERRY_OK && http->http_status == 200) {
        call->etcd->endpoint = call->endpoint;
        call->reply = ferry_take_ptr(&http->reply);
        call->reply_len = http->reply_len;
        call->error[0] = '\0';
        end(call, FERRY_OK);
        return;
    }
    if (http->status == FERRY_OK) {
        judge_refusal(call);
        return;
    }
    snprintf(call->error, sizeof(call->error), "%s", http->error);
    call->timed_out = http->status == FERRY_ERR_TIMED_OUT;
    switch (http->status) {
    case FERRY_ERR_PROTOCOL:
        call->wrong_tries++;
        call->repeated = true;
        try_next(call);
        break;
    case FERRY_ERR_PEER_GONE:
    case FERRY_ERR_TIMED_OUT:
        call->repeated = true;
        try_next(call);
        break;
    case FERRY_ERR_TOO_LARGE:
    case FERRY_ERR_INVALID:
        end(call, FERRY_ERR_METADATA);
        break;
    default:
        end(call, http->status);
    }
}

static bool needs_token(const struct ferry_etcd_call *call)
{
    const struct ferry_etcd *etcd = call->etcd;

    return etcd->user[0] != '\0' && !call->anonymous && !etcd->without_auth &&
           etcd->token[0] == '\0';
}

static void try_now(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;
    struct ferry_http_call *http = &call->http;
    uint64_t now = now_ns(call);
    uint64_t share_ns;

    if (now >= call->deadline_ns) {
        expire(call);
        return;
    }
    if (needs_token(call)) {
        await_token(call);
        return;
    }
    /* One that hangs must leave time for the others. */
    share_ns = (call->deadline_ns - now) / (etcd->endpoint_count - call->round_tries);
    if (share_ns < TRY_MIN_NS)
        share_ns = TRY_MIN_NS;
    snprintf(call->url, sizeof(call->url), "%s%s", etcd->endpoints[call->endpoint], call->path);
    strcpy(call->authorization, call->anonymous ? "" : etcd->token);
    call->token_number = etcd->token_number;
    *http = (struct ferry_http_call){
        .method = FERRY_HTTP_POST,
        .url = call->url,
        .body = call->body,
        .body_len = call->body_len,
        .authorization = call->authorization[0] != '\0' ? call->authorization : NULL,
        .tls = &etcd->tls,
        .data = call->data,
        .reply_max = FERRY_ETCD_REPLY_MAX,
        .deadline_ns = ferry_deadline_ns(now, share_ns),
    };
    if (http->deadline_ns > call->deadline_ns)
        http->deadline_ns = call->deadline_ns;
    hand_over(call, tried, false);
}

static void start(struct ferry_etcd_call *call)
{
    call->status = FERRY_OK;
    call->refused = false;
    call->code = -1;
    call->repeated = false;
    call->error[0] = '\0';
    call->reply = NULL;
    call->reply_len = 0;
    call->endpoint = call->etcd->endpoint;
    call->round_tries = 0;
    call->wrong_tries = 0;
    call->token_tries = 0;
    call->timed_out = false;
    call->pause_ns = PAUSE_FIRST_NS;
    /* Once used it is empty, and others may look at it. */
    if (call->link.next == NULL)
        ferry_list_init(&call->link);
    ferry_list_init(&call->waiting);
}

void ferry_etcd_ask(struct ferry_etcd_call *call)
{
    start(call);
    if (call->body == NULL)
        end_soon(call, FERRY_ERR_NO_MEMORY, "no memory for a question to the metadata store");
    else if (now_ns(call) >= call->deadline_ns)
        end_soon(call, FERRY_ERR_TIMED_OUT, "there was no time to ask");
    else
        try_now(call);
}

void ferry_etcd_post(struct ferry_etcd_call *call)
{
    call->body = NULL;
    start(call);
    end_soon(call, FERRY_OK, "");
}

static void slept(struct ferry_http_call *http)
{
    struct ferry_etcd_call *call = http->arg;

    take_back(call);
    end(call, http->status);
}

void ferry_etcd_pause(struct ferry_etcd_call *call, uint64_t until_ns)
{
    call->body = NULL;
    start(call);
    call->http.deadline_ns = until_ns;
    hand_over(call, slept, true);
}

void ferry_etcd_set_body(struct ferry_etcd_call *call, struct ferry_text *body)
{
    char *text = NULL;
    size_t len = 0;

    if (ferry_text_take(body, &text, &len) != FERRY_OK)
        text = NULL;
    ferry_text_fini(body);
    call->body = text;
    call->body_len = len;
}
