/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public calls on batches that do not move data: create, destroy, reset, look, subscribe. Any
 * thread; none of them waits for a transfer.
 */
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "runtime/runtime.h"

/* A batch that is quiet within the time a callback may take, else ERR_BUSY. */
static enum ferry_status need_quiet(struct ferry_batch *batch)
{
    uint64_t counts = atomic_load(&batch->counts);

    if (ferry_counts_open(counts) != 0)
        return ferry_fail(FERRY_ERR_BUSY, "batch: %u of %u tasks are open",
                          ferry_counts_open(counts), ferry_counts_submitted(counts));
    if (!ferry_batch_quiet(batch, ferry_deadline_ns(ferry_now_ns(&ferry_clock_system),
                                                    batch->engine->settings.close_timeout_ns)))
        return ferry_fail(FERRY_ERR_BUSY, "batch: its completion callback has not returned");
    return FERRY_OK;
}

enum ferry_status ferry_batch_create(struct ferry_engine *engine, uint32_t capacity,
                                     uint64_t *batch_out)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *batch;

    if (status != FERRY_OK)
        return status;
    if (capacity == 0 || capacity > FERRY_BATCH_CAPACITY_MAX || batch_out == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "batch capacity %u: expected 1..%u", capacity,
                          FERRY_BATCH_CAPACITY_MAX);
    if (ferry_engine_closing(engine))
        return ferry_fail(FERRY_ERR_CLOSING, "the engine is closing");
    status = ferry_batch_new(engine, capacity, &batch);
    if (status == FERRY_OK)
        *batch_out = batch->handle;
    return status;
}

enum ferry_status ferry_batch_destroy(struct ferry_engine *engine, uint64_t batch)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    status = need_quiet(object);
    if (status != FERRY_OK) {
        ferry_batch_leave(object);
        return status;
    }
    if (atomic_exchange(&object->dead, true)) {
        ferry_batch_leave(object);
        return ferry_fail(FERRY_ERR_STALE_HANDLE, "batch handle %#llx names no batch",
                          (unsigned long long)batch);
    }
    ferry_batch_delete(object);
    /* Our own pin outlived the batch: the next user of the object may already count on it. */
    ferry_batch_leave(object);
    return FERRY_OK;
}

enum ferry_status ferry_batch_reset(struct ferry_engine *engine, uint64_t batch)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    status = need_quiet(object);
    if (status == FERRY_OK)
        ferry_batch_clear(object);
    ferry_batch_leave(object);
    return status;
}

/* What the caller's struct has room for; its size was checked. */
static void copy_out(void *out, size_t out_size, const void *in, size_t in_size)
{
    size_t header = sizeof(size_t);
    size_t size = out_size < in_size ? out_size : in_size;

    memcpy((unsigned char *)out + header, (const unsigned char *)in + header, size - header);
}

enum ferry_status ferry_batch_status(struct ferry_engine *engine, uint64_t batch,
                                     struct ferry_batch_status *status_out)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    if (status_out == NULL || status_out->struct_size < sizeof(sum))
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_batch_status: struct_size %zu, "
                          "expected %zu",
                          status_out != NULL ? status_out->struct_size : 0, sizeof(sum));
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    ferry_batch_sum(object, &sum);
    ferry_batch_leave(object);
    copy_out(status_out, status_out->struct_size, &sum, sizeof(sum));
    return FERRY_OK;
}

static enum ferry_status no_such_task(uint32_t task, uint32_t submitted)
{
    return ferry_fail(FERRY_ERR_INVALID, "task %u: the batch has %u", task, submitted);
}

enum ferry_status ferry_task_status(struct ferry_engine *engine, uint64_t batch, uint32_t task,
                                    struct ferry_task_status *status_out)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_task_status seen = FERRY_TASK_STATUS_INIT;
    struct ferry_batch *object;
    uint32_t submitted;

    if (status != FERRY_OK)
        return status;
    if (status_out == NULL || status_out->struct_size < sizeof(seen))
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_task_status: struct_size %zu, expected %zu",
                          status_out != NULL ? status_out->struct_size : 0, sizeof(seen));
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    submitted = ferry_counts_submitted(atomic_load(&object->counts));
    if (task < submitted) {
        const struct ferry_task *slot = &object->tasks[task];

        /* Acquire pairs with the release in ferry_task_move(): result and bytes are whole. */
        seen.state = (enum ferry_task_state)atomic_load_explicit(&slot->state,
                                                                 memory_order_acquire);
        seen.status = ferry_task_state_open(seen.state)
                          ? FERRY_OK
                          : (enum ferry_status)atomic_load(&slot->status);
        if (!ferry_task_state_open(seen.state))
            seen.bytes = atomic_load(seen.state == FERRY_TASK_COMPLETED ? &slot->length
                                                                        : &slot->moved);
        seen.transport = atomic_load(&slot->transport_name);
    }
    ferry_batch_leave(object);
    if (task >= submitted)
        return no_such_task(task, submitted);
    copy_out(status_out, status_out->struct_size, &seen, sizeof(seen));
    return FERRY_OK;
}

enum ferry_status ferry_task_describe(struct ferry_engine *engine, uint64_t batch, uint32_t task,
                                      char *buf, size_t buf_len)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;
    uint32_t submitted;

    if (status != FERRY_OK)
        return status;
    if (buf == NULL || buf_len == 0)
        return ferry_fail(FERRY_ERR_INVALID, "task description: no room for it");
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    submitted = ferry_counts_submitted(atomic_load(&object->counts));
    if (task < submitted)
        ferry_task_sentence(object, task, buf, buf_len);
    ferry_batch_leave(object);
    return task < submitted ? FERRY_OK : no_such_task(task, submitted);
}

enum ferry_status ferry_batch_eventfd(struct ferry_engine *engine, uint64_t batch, int *fd_out)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;
    int fd;

    if (status != FERRY_OK)
        return status;
    if (fd_out == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "batch: nowhere to put the descriptor");
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    fd = atomic_load(&object->eventfd) - 1;
    if (fd < 0) {
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd < 0)
            status = ferry_fail(FERRY_ERR_LIMIT, "batch: no descriptor for its eventfd");
        else
            atomic_store(&object->eventfd, fd + 1);
    }
    ferry_batch_leave(object);
    if (status == FERRY_OK)
        *fd_out = fd;
    return status;
}

enum ferry_status ferry_batch_on_done(struct ferry_engine *engine, uint64_t batch,
                                      ferry_batch_done_fn *fn, void *arg)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    status = need_quiet(object);
    if (status == FERRY_OK) {
        object->done = fn;
        object->done_arg = arg;
    }
    ferry_batch_leave(object);
    return status;
}
