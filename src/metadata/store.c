/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of stores, and the only caller through their table: what is promised in store.h is
 * checked here on both sides of every call. Any thread.
 */
#include "metadata/store.h"

#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "config/option.h"
#include "metadata/stores.h"

/* The first name is the store's; "p2p" is what published configurations call it. */
static const struct {
    const char *type;
    const struct ferry_store_ops *ops;
} stores[] = {
    {"peer", &ferry_store_peer},
    {"p2p", &ferry_store_peer},
    {"http", &ferry_store_http},
    {"etcd", &ferry_store_etcd},
};

enum ferry_status ferry_store_open(const struct ferry_store_env *env,
                                   struct ferry_store **store_out)
{
    const char *type = ferry_config_string(env->config, "metadata_type");

    for (size_t i = 0; i < FERRY_ARRAY_LEN(stores); i++) {
        const struct ferry_store_ops *ops = stores[i].ops;
        struct ferry_store *store = NULL;

        if (strcmp(stores[i].type, type) != 0)
            continue;
        FERRY_ASSERT(ops->open != NULL);
        FERRY_ASSERT(ops->close != NULL);
        FERRY_ASSERT(ops->submit != NULL);
        FERRY_ASSERT((ops->watch != NULL) == (ops->unwatch != NULL));

        enum ferry_status status = ops->open(env, &store);

        FERRY_ASSERT((status == FERRY_OK) == (store != NULL));
        if (status != FERRY_OK)
            return status;
        FERRY_ASSERT(store->ops == ops);
        *store_out = store;
        return FERRY_OK;
    }
    return ferry_fail(FERRY_ERR_CONFIG,
                      "metadata_type \"%s\": this build has p2p (also called peer), http and etcd",
                      type);
}

void ferry_store_close(struct ferry_store *store)
{
    if (store != NULL)
        store->ops->close(store);
}

void ferry_store_submit(struct ferry_store *store, struct ferry_store_request *request)
{
    FERRY_ASSERT(request->name != NULL);
    FERRY_ASSERT(request->done != NULL);
    FERRY_ASSERT(request->deadline_ns != FERRY_NEVER_NS);
    FERRY_ASSERT(request->verb != FERRY_STORE_PUT || request->text != NULL);
    request->status = FERRY_OK;
    request->error[0] = '\0';
    request->reply = NULL;
    request->reply_len = 0;
    request->revision = 0;
    store->ops->submit(store, request);
}

enum ferry_status ferry_store_watch(struct ferry_store *store, struct ferry_store_watch *watch)
{
    FERRY_ASSERT(watch->name != NULL);
    FERRY_ASSERT(watch->changed != NULL);
    if (store->ops->watch == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "the store %s tells nobody about changes",
                          store->ops->name);
    return store->ops->watch(store, watch);
}

void ferry_store_unwatch(struct ferry_store *store, struct ferry_store_watch *watch)
{
    FERRY_ASSERT(store->ops->unwatch != NULL);
    store->ops->unwatch(store, watch);
}

static void call_ended(struct ferry_store_request *request)
{
    _Atomic uint32_t *ended = request->arg;

    /* The waiter may be gone before the wake-up, which then hits nobody: futexes are addresses. */
    atomic_store(ended, 1);
    ferry_futex_wake(ended, 1);
}

enum ferry_status ferry_store_call(struct ferry_store *store, struct ferry_store_request *request)
{
    _Atomic uint32_t ended = 0;

    request->done = call_ended;
    request->arg = (void *)&ended;
    ferry_store_submit(store, request);
    while (atomic_load(&ended) == 0)
        ferry_futex_wait(&ended, 0, FERRY_NEVER_NS);
    if (request->status == FERRY_OK)
        FERRY_ASSERT((request->reply != NULL) ==
                     (request->verb == FERRY_STORE_GET || request->verb == FERRY_STORE_LIST));
    else
        FERRY_ASSERT(request->reply == NULL || request->status == FERRY_ERR_EXISTS);
    return request->status == FERRY_OK ? FERRY_OK
                                       : ferry_fail(request->status, "%s", request->error);
}
