/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only caller through `struct ferry_file_backend_ops`; checks what backend.h promises. Runs on
 * whatever thread calls; holds no state.
 */
#include "transport/file/backend.h"

#include "base/assert.h"
#include "base/error.h"

enum ferry_status ferry_file_backend_open(const struct ferry_file_backend_ops *ops,
                                          const struct ferry_file_backend_env *env,
                                          struct ferry_file_backend **backend_out)
{
    struct ferry_file_backend *backend = NULL;
    enum ferry_status status;

    FERRY_ASSERT(env->batch_entries > 0 && env->batch_entries <= FERRY_FILE_BATCH_MAX);
    FERRY_ASSERT((ops->sleep != NULL) == (ops->wake != NULL));
    env->reason[0] = '\0';
    status = ops->open(env, &backend);
    FERRY_ASSERT((status == FERRY_OK) == (backend != NULL));
    if (status != FERRY_OK)
        return status;
    FERRY_ASSERT(backend->entry_bytes_max > 0);
    FERRY_ASSERT(backend->batch_entries > 0 && backend->batch_entries <= env->batch_entries);
    backend->ops = ops;
    *backend_out = backend;
    return FERRY_OK;
}

void ferry_file_backend_close(struct ferry_file_backend *backend)
{
    if (backend != NULL)
        backend->ops->close(backend);
}

enum ferry_status ferry_file_backend_register(struct ferry_file_backend *backend, int fd,
                                              void **file_out)
{
    void *file = NULL;
    enum ferry_status status;

    FERRY_ASSERT((backend->ops->traits & FERRY_FILE_NEEDS_REGISTER) != 0);
    status = backend->ops->file_register(backend, fd, &file);
    FERRY_ASSERT((status == FERRY_OK) == (file != NULL));
    if (status == FERRY_OK)
        *file_out = file;
    return status;
}

void ferry_file_backend_unregister(struct ferry_file_backend *backend, void *file)
{
    FERRY_ASSERT(file != NULL);
    backend->ops->file_unregister(backend, file);
}

void ferry_file_backend_add_buffer(struct ferry_file_backend *backend, void *base, uint64_t length)
{
    if (backend->ops->buffer_register != NULL)
        backend->ops->buffer_register(backend, base, length);
}

void ferry_file_backend_forget_buffer(struct ferry_file_backend *backend, void *base,
                                      uint64_t length)
{
    if (backend->ops->buffer_forget != NULL)
        backend->ops->buffer_forget(backend, base, length);
}

enum ferry_status ferry_file_batch_setup(struct ferry_file_batch *batch)
{
    const struct ferry_file_backend_ops *ops = batch->backend->ops;

    return ops->setup != NULL ? ops->setup(batch) : FERRY_OK;
}

enum ferry_status ferry_file_batch_submit(struct ferry_file_batch *batch)
{
    FERRY_ASSERT(batch->count > 0);
    FERRY_ASSERT(batch->count <= batch->backend->batch_entries);
    for (uint32_t i = 0; i < batch->count; i++) {
        /* An entry of no bytes may never have an event. */
        FERRY_ASSERT(batch->ios[i].length > 0);
        FERRY_ASSERT(batch->ios[i].length <= batch->backend->entry_bytes_max);
    }
    return batch->backend->ops->submit(batch);
}

enum ferry_status ferry_file_batch_poll(struct ferry_file_batch *batch,
                                        struct ferry_file_event *events, uint32_t room,
                                        uint32_t *count_out)
{
    enum ferry_status status;

    *count_out = 0;
    status = batch->backend->ops->poll(batch, events, room, count_out);
    FERRY_ASSERT(*count_out <= room);
    if (status != FERRY_OK)
        *count_out = 0;
    return status;
}

void ferry_file_batch_cancel(struct ferry_file_batch *batch)
{
    batch->backend->ops->cancel(batch);
}

void ferry_file_batch_destroy(struct ferry_file_batch *batch)
{
    if (batch->backend->ops->destroy != NULL)
        batch->backend->ops->destroy(batch);
    batch->native = NULL;
}

void ferry_file_backend_sleep(struct ferry_file_backend *backend, _Atomic uint32_t *asleep,
                              uint64_t until_ns)
{
    backend->ops->sleep(backend, asleep, until_ns);
}

void ferry_file_backend_wake(struct ferry_file_backend *backend)
{
    backend->ops->wake(backend);
}

void ferry_file_backend_report(struct ferry_file_backend *backend, struct json_object *object)
{
    if (backend->ops->report != NULL)
        backend->ops->report(backend, object);
}
