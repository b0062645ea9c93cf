/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A metadata store in the test's memory, for engines opened with a seam: it counts, it can keep
 * requests waiting, and it can fail them. Requests are answered on its own thread, never inside
 * submit, as the contract says. Header only.
 */
#ifndef FERRY_TESTS_UNIT_RUNTIME_STORE_H
#define FERRY_TESTS_UNIT_RUNTIME_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "metadata/store.h"
#include "support/test.h"

#define TEST_STORE_NAMES    8
#define TEST_STORE_REQUESTS 256

struct test_store {
    struct ferry_store base;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t change;
    bool stopping;
    bool held[4];               /* by verb: keep requests waiting */
    enum ferry_status fails[4]; /* by verb: answer with this instead */
    uint32_t counts[3];         /* by verb: requests that arrived */
    struct ferry_store_request *queue[TEST_STORE_REQUESTS];
    uint32_t queued;
    struct {
        char name[256];
        char *text;
    } entries[TEST_STORE_NAMES];
};

/* Under the mutex. */
static inline char **test_store_slot(struct test_store *store, const char *name, bool make)
{
    for (uint32_t i = 0; i < TEST_STORE_NAMES; i++) {
        if (strcmp(store->entries[i].name, name) == 0)
            return &store->entries[i].text;
    }
    for (uint32_t i = 0; make && i < TEST_STORE_NAMES; i++) {
        if (store->entries[i].name[0] == '\0') {
            snprintf(store->entries[i].name, sizeof(store->entries[i].name), "%s", name);
            return &store->entries[i].text;
        }
    }
    return NULL;
}

/* Under the mutex. */
static inline void test_store_answer(struct test_store *store, struct ferry_store_request *request)
{
    char **text = test_store_slot(store, request->name, request->verb == FERRY_STORE_PUT);

    request->status = store->fails[request->verb];
    if (request->status != FERRY_OK) {
        snprintf(request->error, sizeof(request->error), "the test's store says no");
        return;
    }
    switch (request->verb) {
    case FERRY_STORE_GET:
        if (text == NULL || *text == NULL) {
            request->status = FERRY_ERR_NOT_FOUND;
            snprintf(request->error, sizeof(request->error), "no such name");
            return;
        }
        request->reply = strdup(*text);
        request->reply_len = strlen(*text);
        return;
    case FERRY_STORE_PUT:
        free(*text);
        *text = strndup(request->text, request->text_len);
        return;
    case FERRY_STORE_DELETE:
        if (text != NULL) {
            free(*text);
            *text = NULL;
        }
        return;
    case FERRY_STORE_LIST:
        request->status = FERRY_ERR_UNSUPPORTED;
        return;
    }
}

/* Under the mutex: the oldest request that may be answered, or NULL. */
static inline struct ferry_store_request *test_store_next(struct test_store *store)
{
    for (uint32_t i = 0; i < store->queued; i++) {
        struct ferry_store_request *request = store->queue[i];

        if (store->held[request->verb] && !store->stopping)
            continue;
        store->queued--;
        memmove(&store->queue[i], &store->queue[i + 1],
                (store->queued - i) * sizeof(store->queue[0]));
        return request;
    }
    return NULL;
}

static inline void *test_store_main(void *arg)
{
    struct test_store *store = arg;

    pthread_mutex_lock(&store->mutex);
    for (;;) {
        struct ferry_store_request *request = test_store_next(store);

        if (request != NULL) {
            test_store_answer(store, request);
            pthread_mutex_unlock(&store->mutex);
            request->done(request);
            pthread_mutex_lock(&store->mutex);
        } else if (store->stopping) {
            break;
        } else {
            pthread_cond_wait(&store->change, &store->mutex);
        }
    }
    pthread_mutex_unlock(&store->mutex);
    return NULL;
}

static inline void test_store_submit(struct ferry_store *base, struct ferry_store_request *request)
{
    struct test_store *store = FERRY_CONTAINER_OF(base, struct test_store, base);

    pthread_mutex_lock(&store->mutex);
    if (store->queued == TEST_STORE_REQUESTS)
        abort();
    store->queue[store->queued++] = request;
    store->counts[request->verb]++;
    pthread_cond_signal(&store->change);
    pthread_mutex_unlock(&store->mutex);
}

static inline struct test_store *test_store_open(void)
{
    static const struct ferry_store_ops ops = {.name = "test", .submit = test_store_submit};
    struct test_store *store = calloc(1, sizeof(*store));

    assert_non_null(store);
    store->base.ops = &ops;
    pthread_mutex_init(&store->mutex, NULL);
    pthread_cond_init(&store->change, NULL);
    assert_int_equal(pthread_create(&store->thread, NULL, test_store_main, store), 0);
    return store;
}

static inline void test_store_close(struct test_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->stopping = true;
    pthread_cond_signal(&store->change);
    pthread_mutex_unlock(&store->mutex);
    pthread_join(store->thread, NULL);
    for (uint32_t i = 0; i < TEST_STORE_NAMES; i++)
        free(store->entries[i].text);
    free(store);
}

static inline void test_store_hold(struct test_store *store, enum ferry_store_verb verb, bool held)
{
    pthread_mutex_lock(&store->mutex);
    store->held[verb] = held;
    pthread_cond_signal(&store->change);
    pthread_mutex_unlock(&store->mutex);
}

static inline void test_store_fail(struct test_store *store, enum ferry_store_verb verb,
                                   enum ferry_status status)
{
    pthread_mutex_lock(&store->mutex);
    store->fails[verb] = status;
    pthread_mutex_unlock(&store->mutex);
}

static inline uint32_t test_store_count(struct test_store *store, enum ferry_store_verb verb)
{
    uint32_t count;

    pthread_mutex_lock(&store->mutex);
    count = store->counts[verb];
    pthread_mutex_unlock(&store->mutex);
    return count;
}

/* A copy of the text under a name, or NULL. */
static inline char *test_store_text(struct test_store *store, const char *name)
{
    char **text;
    char *copy = NULL;

    pthread_mutex_lock(&store->mutex);
    text = test_store_slot(store, name, false);
    if (text != NULL && *text != NULL)
        copy = strdup(*text);
    pthread_mutex_unlock(&store->mutex);
    return copy;
}

/* NULL deletes. */
static inline void test_store_set(struct test_store *store, const char *name, const char *value)
{
    char **text;

    pthread_mutex_lock(&store->mutex);
    text = test_store_slot(store, name, true);
    free(*text);
    *text = value != NULL ? strdup(value) : NULL;
    pthread_mutex_unlock(&store->mutex);
}

#endif
