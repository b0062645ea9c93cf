/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stores that speak HTTP share; see stores.h. submit() runs on any thread, the rest of a
 * request on the control thread. Allocates nothing for a request.
 *
 * Locks: store->lock, then the client's. A request is in the list from submit until its done() is
 * about to be called, so whoever holds the lock may name it to the client.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "config/option.h"
#include "metadata/document.h"
#include "metadata/file_document.h"
#include "metadata/stores.h"

void ferry_http_store_init(struct ferry_http_store *store, const struct ferry_store_env *env,
                           ferry_http_store_judge_fn *judge)
{
    FERRY_ASSERT(env->http != NULL);
    store->http = env->http;
    store->judge = judge;
    store->pid = getpid();
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->idle, NULL);
    ferry_list_init(&store->requests);
}

void ferry_http_store_fini(struct ferry_http_store *store)
{
    if (store->pid != getpid())
        return; /* whoever holds the lock or ran a request is not in this process */
    pthread_mutex_lock(&store->lock);
    for (struct ferry_list *link = store->requests.next; link != &store->requests;
         link = link->next) {
        struct ferry_store_request *request = FERRY_CONTAINER_OF(link, struct ferry_store_request,
                                                                 link);

        ferry_http_client_abort(store->http, &request->call);
    }
    while (store->pending > 0)
        pthread_cond_wait(&store->idle, &store->lock);
    pthread_mutex_unlock(&store->lock);
    pthread_cond_destroy(&store->idle);
    pthread_mutex_destroy(&store->lock);
}

void ferry_store_request_fail(struct ferry_store_request *request, enum ferry_status status,
                              const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(request->error, sizeof(request->error), fmt, args);
    va_end(args);
    request->status = status;
}

static void on_done(struct ferry_http_call *call)
{
    struct ferry_store_request *request = FERRY_CONTAINER_OF(call, struct ferry_store_request,
                                                             call);
    struct ferry_http_store *store = call->arg;

    request->status = call->status;
    if (call->status != FERRY_OK)
        snprintf(request->error, sizeof(request->error), "%s", call->error);
    if (!call->finished)
        store->judge(request);
    free(call->reply);

    pthread_mutex_lock(&store->lock);
    ferry_list_remove(&request->link);
    pthread_mutex_unlock(&store->lock);

    request->done(request);

    /* The last use of the store: fini may return as soon as the lock is free. */
    pthread_mutex_lock(&store->lock);
    if (--store->pending == 0)
        pthread_cond_signal(&store->idle);
    pthread_mutex_unlock(&store->lock);
}

/* False in a forked child, where the request has been answered at once. */
static bool enter(struct ferry_http_store *store, struct ferry_store_request *request)
{
    if (store->pid != getpid()) {
        ferry_store_request_fail(request, FERRY_ERR_FORKED,
                                 "the metadata store belongs to the parent process");
        request->done(request);
        return false;
    }
    request->call.done = on_done;
    request->call.arg = store;
    pthread_mutex_lock(&store->lock);
    ferry_list_push_back(&store->requests, &request->link);
    store->pending++;
    pthread_mutex_unlock(&store->lock);
    return true;
}

void ferry_http_store_send(struct ferry_http_store *store, struct ferry_store_request *request)
{
    request->call.reply_max = FERRY_DOCUMENT_TEXT_MAX;
    if (enter(store, request))
        ferry_http_client_submit(store->http, &request->call);
}

void ferry_http_store_answer(struct ferry_http_store *store, struct ferry_store_request *request,
                             enum ferry_status status, const char *error)
{
    snprintf(request->call.error, sizeof(request->call.error), "%s", error);
    if (enter(store, request))
        ferry_http_client_finish(store->http, &request->call, status);
}

bool ferry_store_name_check(const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
            ferry_fail(FERRY_ERR_INVALID, "segment name \"%.100s\": a control character", name);
            return false;
        }
    }
    if (len == 0 || len > FERRY_STORE_NAME_MAX) {
        ferry_fail(FERRY_ERR_INVALID, "segment name \"%.100s\": %zu bytes, expected 1..%d", name,
                   len, FERRY_STORE_NAME_MAX);
        return false;
    }
    return true;
}

enum ferry_status ferry_store_cluster(const struct ferry_config *config,
                                      char cluster_out[FERRY_STORE_CLUSTER_MAX + 1])
{
    const char *cluster = ferry_config_string(config, "metadata_cluster");

    if (strlen(cluster) > FERRY_STORE_CLUSTER_MAX || strchr(cluster, '/') != NULL ||
        (cluster[0] != '\0' && !ferry_store_name_check(cluster)))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "metadata_cluster \"%.100s\": expected at most %d bytes without / and "
                          "control characters",
                          cluster, FERRY_STORE_CLUSTER_MAX);
    strcpy(cluster_out, cluster);
    return FERRY_OK;
}

void ferry_store_key(const char *cluster, const char *name, char key_out[FERRY_STORE_KEY_SIZE])
{
    static const char file[] = FERRY_FILE_SEGMENT_PREFIX;
    bool is_file = strncmp(name, file, sizeof(file) - 1) == 0;
    int len = snprintf(key_out, FERRY_STORE_KEY_SIZE, "mooncake/%s%s%s%s", cluster,
                       cluster[0] != '\0' ? "/" : "", is_file ? "" : "tent/", name);

    FERRY_ASSERT(len > 0);
    FERRY_ASSERT((size_t)len < FERRY_STORE_KEY_SIZE);
}

struct ferry_http_tls ferry_store_tls(const struct ferry_config *config)
{
    return (struct ferry_http_tls){
        .ca_file = ferry_config_string(config, "metadata_ca_file"),
        .cert_file = ferry_config_string(config, "metadata_cert_file"),
        .key_file = ferry_config_string(config, "metadata_key_file"),
    };
}
