/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of threads for blocking calls: one lock, one queue, first in first out. Not for the data
 * path of sockets. Must not know what a job does.
 *
 * Locks: pool->lock only; never held while a job runs.
 */
#include "offload/offload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/thread.h"

struct ferry_offload {
    /* immutable after open */
    char name[16];
    uint32_t threads_max;
    /* any thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t wakeup;
    struct ferry_list queue;
    uint32_t queued;
    uint32_t idle;
    uint32_t thread_count;
    bool closing;
    pthread_t threads[FERRY_OFFLOAD_THREADS_MAX];
};

static void *pool_main(void *arg)
{
    struct ferry_offload *pool = arg;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct ferry_list *link = ferry_list_pop_front(&pool->queue);

        if (link == NULL) {
            if (pool->closing)
                break;
            pool->idle++;
            pthread_cond_wait(&pool->wakeup, &pool->lock);
            pool->idle--;
            continue;
        }
        struct ferry_offload_job *job = FERRY_CONTAINER_OF(link, struct ferry_offload_job, link);
        pool->queued--;
        job->queued = false;
        pthread_mutex_unlock(&pool->lock);
        job->run(job);
        job->done(job);
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

enum ferry_status ferry_offload_open(const char *name, uint32_t threads_max,
                                     struct ferry_offload **pool_out)
{
    if (threads_max == 0 || threads_max > FERRY_OFFLOAD_THREADS_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "offload %s: %u threads, expected 1..%d", name,
                          threads_max, FERRY_OFFLOAD_THREADS_MAX);

    struct ferry_offload *pool = calloc(1, sizeof(*pool));
    if (pool == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "offload %s: out of memory", name);
    snprintf(pool->name, sizeof(pool->name), "%s", name);
    pool->threads_max = threads_max;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wakeup, NULL);
    ferry_list_init(&pool->queue);
    *pool_out = pool;
    return FERRY_OK;
}

void ferry_offload_close(struct ferry_offload *pool)
{
    if (pool == NULL)
        return;

    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    uint32_t thread_count = pool->thread_count;
    pthread_cond_broadcast(&pool->wakeup);
    pthread_mutex_unlock(&pool->lock);

    for (uint32_t i = 0; i < thread_count; i++)
        pthread_join(pool->threads[i], NULL);
    FERRY_ASSERT(ferry_list_empty(&pool->queue));
    pthread_cond_destroy(&pool->wakeup);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

enum ferry_status ferry_offload_submit(struct ferry_offload *pool, struct ferry_offload_job *job)
{
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&pool->lock);
    FERRY_ASSERT(!pool->closing);
    FERRY_ASSERT(!job->queued);
    if (pool->idle <= pool->queued && pool->thread_count < pool->threads_max) {
        status = ferry_thread_start(pool->name, pool_main, pool,
                                    &pool->threads[pool->thread_count]);
        if (status == FERRY_OK)
            pool->thread_count++;
        else if (pool->thread_count > 0)
            status = FERRY_OK; /* fewer threads do it too, later */
    }
    if (status == FERRY_OK) {
        job->queued = true;
        ferry_list_push_back(&pool->queue, &job->link);
        pool->queued++;
        pthread_cond_signal(&pool->wakeup);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

bool ferry_offload_cancel(struct ferry_offload *pool, struct ferry_offload_job *job)
{
    pthread_mutex_lock(&pool->lock);
    bool was_queued = job->queued;

    if (was_queued) {
        ferry_list_remove(&job->link);
        job->queued = false;
        pool->queued--;
    }
    pthread_mutex_unlock(&pool->lock);
    return was_queued;
}
