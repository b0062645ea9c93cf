/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend that works everywhere: a pool of threads that call preadv2 and pwritev2, one entry a
 * call. Not second class: on many hosts it is as fast as io_uring.
 *
 * submit, poll and cancel run on the dispatcher's thread; entries run on the pool's. An entry that
 * has begun cannot be stopped; one that has not is taken back and ends as canceled.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "base/error.h"
#include "config/option.h"
#include "offload/offload.h"
#include "transport/file/backend.h"

/* One system call moves at most so much. */
#define CALL_BYTES_MAX ((UINT64_C(2) << 30) - 4096)

struct pool_backend;

struct pool_entry {
    struct ferry_offload_job job;
    struct ferry_inbox_node node; /* in the batch's inbox once it has ended */
    struct pool_backend *pool;
    struct ferry_file_batch *batch;
    struct ferry_file_io io;
    int64_t result;
};

struct pool_batch {
    struct ferry_inbox ended;
    struct ferry_inbox_node *taken; /* the dispatcher's: ended, not yet told */
    struct pool_entry *entries;
};

struct pool_backend {
    struct ferry_file_backend base;
    struct ferry_offload *threads;
    ferry_file_ready_fn *ready;
    void *ready_arg;
    uint32_t batch_count;
    struct pool_batch *batches;
};

static struct pool_backend *pool_of(struct ferry_file_backend *backend)
{
    return FERRY_CONTAINER_OF(backend, struct pool_backend, base);
}

static struct pool_batch *batch_of(struct ferry_file_batch *batch)
{
    return &pool_of(batch->backend)->batches[batch->index];
}

static void run_entry(struct ferry_offload_job *job)
{
    struct pool_entry *entry = FERRY_CONTAINER_OF(job, struct pool_entry, job);
    const struct ferry_file_io *io = &entry->io;
    struct iovec iov = {.iov_base = io->memory, .iov_len = io->length};
    ssize_t got;

    do {
        if (io->opcode == FERRY_READ)
            got = preadv2(io->fd, &iov, 1, (off_t)io->offset, 0);
        else
            got = pwritev2(io->fd, &iov, 1, (off_t)io->offset, io->dsync ? RWF_DSYNC : 0);
    } while (got < 0 && errno == EINTR);
    entry->result = got < 0 ? -(int64_t)errno : got;
}

static void entry_done(struct ferry_offload_job *job)
{
    struct pool_entry *entry = FERRY_CONTAINER_OF(job, struct pool_entry, job);
    struct pool_backend *pool = entry->pool;
    struct ferry_file_batch *batch = entry->batch;

    ferry_inbox_push(&pool->batches[batch->index].ended, &entry->node);
    /* From here on the batch may be in its next use: a call too many does no harm. */
    pool->ready(pool->ready_arg, batch);
}

static enum ferry_status pool_submit(struct ferry_file_batch *batch)
{
    struct pool_backend *pool = pool_of(batch->backend);
    struct pool_batch *own = batch_of(batch);

    for (uint32_t i = 0; i < batch->count; i++) {
        struct pool_entry *entry = &own->entries[i];

        entry->io = batch->ios[i];
        entry->pool = pool;
        entry->batch = batch;
        entry->job.run = run_entry;
        entry->job.done = entry_done;
        if (ferry_offload_submit(pool->threads, &entry->job) == FERRY_OK)
            continue;
        /* Only a pool without any thread refuses, so nothing runs yet. */
        FERRY_ASSERT(i == 0);
        return FERRY_ERR_UNSUPPORTED;
    }
    return FERRY_OK;
}

static enum ferry_status pool_poll(struct ferry_file_batch *batch, struct ferry_file_event *events,
                                   uint32_t room, uint32_t *count_out)
{
    struct pool_batch *own = batch_of(batch);
    uint32_t count = 0;

    while (count < room) {
        struct pool_entry *entry;

        if (own->taken == NULL)
            own->taken = ferry_inbox_take(&own->ended);
        if (own->taken == NULL)
            break;
        entry = FERRY_CONTAINER_OF(own->taken, struct pool_entry, node);
        own->taken = own->taken->next;
        events[count++] = (struct ferry_file_event){.cookie = entry->io.cookie,
                                                    .result = entry->result};
    }
    *count_out = count;
    return FERRY_OK;
}

static void pool_cancel(struct ferry_file_batch *batch)
{
    struct pool_backend *pool = pool_of(batch->backend);
    struct pool_batch *own = batch_of(batch);

    for (uint32_t i = 0; i < batch->count; i++) {
        struct pool_entry *entry = &own->entries[i];

        if (!ferry_offload_cancel(pool->threads, &entry->job))
            continue;
        entry->result = -ECANCELED;
        entry_done(&entry->job);
    }
}

static void pool_close(struct ferry_file_backend *backend)
{
    struct pool_backend *pool = pool_of(backend);

    ferry_offload_close(pool->threads);
    for (uint32_t i = 0; pool->batches != NULL && i < pool->batch_count; i++)
        free(pool->batches[i].entries);
    free(pool->batches);
    free(pool);
}

static enum ferry_status pool_open(const struct ferry_file_backend_env *env,
                                   struct ferry_file_backend **backend_out)
{
    struct pool_backend *pool = calloc(1, sizeof(*pool));
    uint32_t threads = (uint32_t)ferry_config_u64(env->config, "transports.file.threads");
    enum ferry_status status;

    if (pool == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    pool->base.entry_bytes_max = CALL_BYTES_MAX;
    pool->base.batch_entries = env->batch_entries;
    pool->ready = env->ready;
    pool->ready_arg = env->ready_arg;
    pool->batch_count = env->batch_count;
    pool->batches = calloc(env->batch_count, sizeof(*pool->batches));
    status = pool->batches != NULL ? FERRY_OK : FERRY_ERR_NO_MEMORY;
    for (uint32_t i = 0; status == FERRY_OK && i < env->batch_count; i++) {
        ferry_inbox_init(&pool->batches[i].ended);
        pool->batches[i].entries = calloc(env->batch_entries, sizeof(struct pool_entry));
        if (pool->batches[i].entries == NULL)
            status = FERRY_ERR_NO_MEMORY;
    }
    if (status != FERRY_OK)
        ferry_fail(status, "file: out of memory");
    else
        status = ferry_offload_open("ferry-fpool", threads, &pool->threads);
    if (status != FERRY_OK) {
        pool_close(&pool->base);
        return status;
    }
    *backend_out = &pool->base;
    return FERRY_OK;
}

const struct ferry_file_backend_ops ferry_file_pool = {
    .name = "pool",
    .open = pool_open,
    .close = pool_close,
    .submit = pool_submit,
    .poll = pool_poll,
    .cancel = pool_cancel,
};
