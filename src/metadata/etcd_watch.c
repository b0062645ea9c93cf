/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News of entries in etcd: for each a stream, one JSON object a line, asked for again every minute
 * from the revision after the last one heard of, so that nothing is missed and a connection that
 * died silently is noticed. After a compaction, or when nothing is known, the listener is told that
 * something may have changed.
 *
 * The stream runs on the control thread; watch and unwatch are others'. What both look at is under
 * the store's lock.
 */
#include "metadata/etcd.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"

#define STREAM_NS     (60 * FERRY_NS_PER_S)
#define PAUSE_NS      (FERRY_NS_PER_S / 2)
#define LINE_SIZE_MAX FERRY_ETCD_REPLY_MAX

struct watching {
    struct ferry_etcd_call call;
    struct ferry_store_watch *watch;
    /* control thread only */
    uint64_t revision; /* of the next event; 0: unknown */
    bool restart;      /* the stream has ended, or should: what it knew is void */
    struct ferry_text line;
    /* under the store's lock */
    bool ended;
};

static void stream(struct ferry_etcd_call *call);

static struct watching *watching_of(struct ferry_etcd_call *call)
{
    return FERRY_CONTAINER_OF(call, struct watching, call);
}

static void hear(struct watching *watching)
{
    struct ferry_etcd_news news = {0};
    bool fresh = watching->revision == 0;

    if (ferry_etcd_read_news(watching->line.data, watching->line.len, &news) != FERRY_OK) {
        /* Among others: the token is no longer good. */
        ferry_debug("metadata", "watch ends: %s segment=%s", ferry_last_error_text(),
                    watching->watch->name);
        watching->call.etcd->token[0] = '\0';
        watching->restart = true;
        return;
    }
    if (news.canceled)
        watching->restart = true;
    else if (news.revision != 0)
        watching->revision = news.revision + 1;
    if (news.events || (news.created && fresh))
        watching->watch->changed(watching->watch);
}

/* Parts of lines, as they come. */
static enum ferry_status on_data(struct ferry_http_call *http, const char *bytes, size_t len)
{
    struct watching *watching = watching_of(http->arg);

    while (len > 0) {
        const char *newline = memchr(bytes, '\n', len);
        size_t part = newline != NULL ? (size_t)(newline - bytes) : len;

        ferry_text_add_bytes(&watching->line, bytes, part);
        bytes += part;
        len -= part;
        if (newline == NULL)
            break;
        bytes++;
        len--;
        if (watching->line.cut)
            return ferry_fail(FERRY_ERR_TOO_LARGE, "news of more than %u bytes", LINE_SIZE_MAX);
        if (watching->line.len > 0)
            hear(watching);
        ferry_text_fini(&watching->line);
        ferry_text_init_heap(&watching->line, LINE_SIZE_MAX);
    }
    return FERRY_OK;
}

/* The last use of the watch: unwatch may free it as soon as the lock is free. */
static void leave(struct watching *watching)
{
    struct ferry_etcd *etcd = watching->call.etcd;

    pthread_mutex_lock(&etcd->lock);
    watching->ended = true;
    pthread_cond_broadcast(&etcd->idle);
    pthread_mutex_unlock(&etcd->lock);
}

static void streamed(struct ferry_etcd_call *call)
{
    struct watching *watching = watching_of(call);
    bool good = call->status == FERRY_OK || call->timed_out;

    free(call->reply);
    if (call->status == FERRY_ERR_CLOSING) {
        leave(watching);
        return;
    }
    if (watching->restart || call->status == FERRY_ERR_TOO_LARGE)
        watching->revision = 0;
    if (good && !watching->restart) {
        stream(call);
        return;
    }
    watching->restart = false;
    call->done = stream;
    ferry_etcd_pause(call, ferry_deadline_ns(ferry_now_ns(call->etcd->clock), PAUSE_NS));
}

/* The first time, and after a pause. */
static void stream(struct ferry_etcd_call *call)
{
    struct watching *watching = watching_of(call);
    char key[FERRY_STORE_KEY_SIZE];
    struct ferry_text body;

    if (call->status == FERRY_ERR_CLOSING) {
        leave(watching);
        return;
    }
    ferry_text_fini(&watching->line);
    ferry_text_init_heap(&watching->line, LINE_SIZE_MAX);
    ferry_store_key(call->etcd->cluster, watching->watch->name, key);
    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_watch_body(&body, key, watching->revision);
    call->path = "/v3/watch";
    call->once = true;
    call->data = on_data;
    call->done = streamed;
    call->deadline_ns = ferry_deadline_ns(ferry_now_ns(call->etcd->clock), STREAM_NS);
    ferry_etcd_set_body(call, &body);
    ferry_etcd_ask(call);
}

enum ferry_status ferry_etcd_watch(struct ferry_store *store, struct ferry_store_watch *watch)
{
    struct ferry_etcd *etcd = FERRY_CONTAINER_OF(store, struct ferry_etcd, base);
    struct watching *watching;
    bool room;

    if (etcd->pid != getpid())
        return ferry_fail(FERRY_ERR_FORKED, "the metadata store belongs to the parent process");
    if (!ferry_store_name_check(watch->name))
        return FERRY_ERR_INVALID;
    watching = calloc(1, sizeof(*watching));
    if (watching == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory to watch an entry");
    pthread_mutex_lock(&etcd->lock);
    room = etcd->watch_count < FERRY_STORE_WATCHES_MAX;
    if (room)
        etcd->watch_count++;
    pthread_mutex_unlock(&etcd->lock);
    if (!room) {
        free(watching);
        return ferry_fail(FERRY_ERR_LIMIT, "%d entries are watched already",
                          FERRY_STORE_WATCHES_MAX);
    }
    watching->watch = watch;
    watching->call.etcd = etcd;
    watching->call.done = stream;
    watch->store_data = watching;
    ferry_etcd_post(&watching->call);
    return FERRY_OK;
}

void ferry_etcd_unwatch(struct ferry_store *store, struct ferry_store_watch *watch)
{
    struct ferry_etcd *etcd = FERRY_CONTAINER_OF(store, struct ferry_etcd, base);
    struct watching *watching = watch->store_data;

    if (etcd->pid != getpid())
        return; /* the stream is not in this process */
    pthread_mutex_lock(&etcd->lock);
    watching->call.abandoned = true;
    if (!ferry_list_empty(&watching->call.link))
        ferry_http_client_abort(etcd->http, &watching->call.http);
    while (!watching->ended)
        pthread_cond_wait(&etcd->idle, &etcd->lock);
    etcd->watch_count--;
    pthread_mutex_unlock(&etcd->lock);
    ferry_text_fini(&watching->line);
    free(watching);
}
