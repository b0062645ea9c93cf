/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goodbye: an engine that closes tells the peers whose segments it has open, all at once and within
 * a bound; whoever does not answer is not waited for. It is a courtesy: nothing depends on it,
 * since a process may also die without one. Sent on the closing thread, received on the control
 * server's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "control/client.h"
#include "control/message.h"
#include "metadata/document.h"
#include "runtime/runtime.h"

/* More peers than this are left to notice by themselves. */
#define GOODBYE_MAX 64

struct goodbye {
    struct ferry_http_call call;
    char url[FERRY_HOSTPORT_SIZE + 32];
    struct goodbye_round *round;
};

struct goodbye_round {
    _Atomic uint32_t running; /* futex */
    uint32_t count;
    char *body;
    size_t body_len;
    struct goodbye calls[GOODBYE_MAX];
};

static void goodbye_done(struct ferry_http_call *call)
{
    struct goodbye *goodbye = FERRY_CONTAINER_OF(call, struct goodbye, call);
    struct goodbye_round *round = goodbye->round;

    free(call->reply);
    if (atomic_fetch_sub(&round->running, 1) == 1)
        ferry_futex_wake(&round->running, 1);
}

static enum ferry_status encode(struct ferry_engine *engine, struct goodbye_round *round)
{
    struct ferry_goodbye_body body = {0};

    snprintf(body.segment, sizeof(body.segment), "%.*s", FERRY_GOODBYE_NAME_MAX, engine->name);
    memcpy(body.incarnation, engine->incarnation, sizeof(body.incarnation));
    return ferry_goodbye_encode(&body, &round->body, &round->body_len);
}

/* Handles first, under the mutex; the addresses are looked up without it. */
static uint32_t collect(struct ferry_engine *engine, uint64_t *handles)
{
    struct ferry_list *head = &engine->segment_list;
    uint32_t count = 0;

    pthread_mutex_lock(&engine->segments_mutex);
    for (struct ferry_list *link = head->next; link != head && count < GOODBYE_MAX;
         link = link->next)
        handles[count++] = ferry_pool_handle(&engine->segments,
                                             FERRY_CONTAINER_OF(link, struct ferry_segment, link));
    pthread_mutex_unlock(&engine->segments_mutex);
    return count;
}

void ferry_goodbye_send(struct ferry_engine *engine, uint64_t deadline_ns)
{
    uint64_t handles[GOODBYE_MAX];
    uint32_t count;
    struct goodbye_round *round;
    uint32_t running;

    if (engine->http == NULL)
        return;
    count = collect(engine, handles);
    if (count == 0)
        return;
    round = calloc(1, sizeof(*round));
    if (round == NULL || encode(engine, round) != FERRY_OK) {
        free(round);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct goodbye *goodbye = &round->calls[round->count];

        if (ferry_segment_url(engine, handles[i], FERRY_CONTROL_PATH_GOODBYE, goodbye->url,
                              sizeof(goodbye->url)) != FERRY_OK)
            continue;
        goodbye->round = round;
        goodbye->call = (struct ferry_http_call){
            .method = FERRY_HTTP_POST,
            .party = FERRY_HTTP_PEER,
            .url = goodbye->url,
            .body = round->body,
            .body_len = round->body_len,
            .reply_max = 4096,
            .deadline_ns = deadline_ns,
            .done = goodbye_done,
        };
        round->count++;
    }
    atomic_store(&round->running, round->count);
    for (uint32_t i = 0; i < round->count; i++)
        ferry_http_client_submit(engine->http, &round->calls[i].call);
    /* Every call ends by the deadline, so this does, too. */
    while ((running = atomic_load(&round->running)) != 0)
        ferry_futex_wait(&round->running, running, FERRY_NEVER_NS);
    free(round->body);
    free(round);
}

void ferry_goodbye_received(struct ferry_engine *engine, const struct ferry_goodbye_body *body)
{
    atomic_fetch_add_explicit(&engine->goodbye_count, 1, memory_order_relaxed);
    ferry_debug("runtime", "a peer leaves segment=%s incarnation=%s", body->segment,
                body->incarnation);
}
