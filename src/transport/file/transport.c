/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file transport as the runtime sees it. submit and cancel run on any thread and only queue;
 * revoke, quiesce and close block, each to a bound; everything else is the dispatcher's.
 *
 * open reads settings and makes room; no thread runs and no library is loaded before the first
 * segment of files is opened. quiesce: refuse, have the dispatcher end everything with ERR_CLOSING.
 * close: stop the dispatcher once the last target is closed, free. What a device does not give back
 * is left where it is, and the engine's close says so.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "config/option.h"
#include "transport/file/internal.h"

static enum ferry_status file_probe(const struct ferry_config *config,
                                    struct ferry_transport_info *info_out)
{
    (void)config;
    info_out->usable = true;
    info_out->reason[0] = '\0';
    return FERRY_OK;
}

static void destroy(struct file_transport *ft)
{
    ferry_pool_fini(&ft->ops);
    free(ft->pieces);
    free(ft->bounces);
    free(ft->buffers);
    if (ft->bounce_memory != NULL)
        munmap(ft->bounce_memory, ft->bounce_bytes);
    pthread_mutex_destroy(&ft->start_mutex);
    pthread_mutex_destroy(&ft->revoke_mutex);
    pthread_mutex_destroy(&ft->buffers_mutex);
    pthread_cond_destroy(&ft->buffers_told);
    free(ft);
}

static enum ferry_status make_pieces(struct file_transport *ft)
{
    uint32_t count = ft->settings.queue_depth;

    ft->pieces = calloc(count, sizeof(*ft->pieces));
    if (ft->pieces == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    for (uint32_t i = 0; i < count; i++)
        ferry_list_push_back(&ft->free_pieces, &ft->pieces[i].link);
    return FERRY_OK;
}

/* Address space only: pages come when a bounce buffer is first used. */
static enum ferry_status make_bounces(struct file_transport *ft)
{
    size_t count = ft->settings.bounce_count;
    void *memory;

    if (count == 0)
        return FERRY_OK;
    ft->bounce_bytes = count * ft->settings.slice_bytes;
    ft->bounces = calloc(count, sizeof(*ft->bounces));
    memory = mmap(NULL, ft->bounce_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ft->bounces == NULL || memory == MAP_FAILED) {
        if (memory != MAP_FAILED)
            munmap(memory, ft->bounce_bytes);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: no memory for %zu bounce buffers", count);
    }
    ft->bounce_memory = memory;
    for (size_t i = 0; i < count; i++) {
        ft->bounces[i].memory = ft->bounce_memory + i * ft->settings.slice_bytes;
        ferry_list_push_back(&ft->free_bounces, &ft->bounces[i].link);
    }
    return FERRY_OK;
}

static struct file_transport *new_transport(const struct ferry_transport_env *env)
{
    struct file_transport *ft = calloc(1, sizeof(*ft));

    if (ft == NULL)
        return NULL;
    ft->base.env = env;
    pthread_mutex_init(&ft->start_mutex, NULL);
    pthread_mutex_init(&ft->revoke_mutex, NULL);
    pthread_mutex_init(&ft->buffers_mutex, NULL);
    pthread_cond_init(&ft->buffers_told, NULL);
    ferry_list_init(&ft->all);
    ferry_list_init(&ft->active);
    ferry_list_init(&ft->starved);
    ferry_list_init(&ft->redo);
    ferry_list_init(&ft->free_pieces);
    ferry_list_init(&ft->free_bounces);
    ferry_list_init(&ft->open_files);
    ferry_inbox_init(&ft->inbox);
    ferry_inbox_init(&ft->finished);
    ferry_inbox_init(&ft->ready);
    ferry_inbox_init(&ft->closing_targets);
    ft->next_deadline_ns = FERRY_NEVER_NS;
    return ft;
}

static enum ferry_status file_open(const struct ferry_transport_env *env,
                                   struct ferry_transport **transport_out)
{
    struct file_transport *ft = new_transport(env);
    enum ferry_status status;

    if (ft == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    status = ferry_file_settings_read(env->config, &ft->settings);
    ft->open_limit = ft->settings.open_files_max;
    if (status == FERRY_OK)
        status = ferry_pool_init(&ft->ops, sizeof(struct file_op), ft->settings.outstanding_max);
    if (status == FERRY_OK)
        status = make_pieces(ft);
    if (status == FERRY_OK)
        status = make_bounces(ft);
    if (status != FERRY_OK) {
        destroy(ft);
        return status;
    }
    *transport_out = &ft->base;
    return FERRY_OK;
}

static void file_quiesce(struct ferry_transport *transport)
{
    struct file_transport *ft = file_transport_of(transport);
    uint32_t left;

    atomic_store(&ft->closing, true);
    atomic_store(&ft->attention, true);
    ferry_file_kick(ft);
    /* Bounded: what a device does not give back ends without its memory. */
    while ((left = atomic_load(&ft->unfinished)) != 0)
        ferry_futex_wait(&ft->unfinished, left, FERRY_NEVER_NS);
}

static void file_close(struct ferry_transport *transport)
{
    struct file_transport *ft = file_transport_of(transport);

    if (ferry_file_stop(ft))
        destroy(ft);
}

static enum ferry_status file_target_open(struct ferry_transport *transport,
                                          const struct ferry_document *doc,
                                          struct ferry_target **target_out)
{
    (void)transport;
    (void)doc;
    (void)target_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "file serves segments of files only");
}

static enum ferry_status file_files_open(struct ferry_transport *transport,
                                         const struct ferry_file_layout *layout,
                                         struct ferry_target **target_out)
{
    struct file_transport *ft = file_transport_of(transport);
    struct file_target *target;
    enum ferry_status status;

    if (transport->env->threadless)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "file needs threads");
    status = ferry_file_target_create(ft, layout, &target);
    if (status != FERRY_OK)
        return status;
    status = ferry_file_start(ft);
    if (status != FERRY_OK) {
        ferry_file_target_free(target);
        return status;
    }
    *target_out = &target->base;
    return FERRY_OK;
}

/* The dispatcher closes the files: it may still have one of them in its hands. */
static void file_target_close(struct ferry_target *base)
{
    struct file_target *target = FERRY_CONTAINER_OF(base, struct file_target, base);
    struct file_transport *ft = target->ft;

    ferry_inbox_push(&ft->closing_targets, &target->node);
    ferry_file_kick(ft);
}

static void file_target_explain(struct ferry_target *base, char *buf, size_t buf_len)
{
    struct file_target *target = FERRY_CONTAINER_OF(base, struct file_target, base);

    pthread_mutex_lock(&target->mutex);
    strncpy(buf, target->said, buf_len - 1);
    buf[buf_len - 1] = '\0';
    pthread_mutex_unlock(&target->mutex);
}

/* All or none: the counter admits first, after that the pool cannot be empty. */
static enum ferry_status admit(struct file_transport *ft, uint32_t count)
{
    uint32_t outstanding = atomic_load(&ft->outstanding);

    if (atomic_load(&ft->closing))
        return FERRY_ERR_CLOSING;
    do {
        if (count > ft->settings.outstanding_max - outstanding)
            return FERRY_ERR_QUEUE_FULL;
    } while (!atomic_compare_exchange_weak(&ft->outstanding, &outstanding, outstanding + count));
    atomic_fetch_add(&ft->unfinished, count);
    return FERRY_OK;
}

static void fill_op(struct file_op *op, struct ferry_xfer *xfer)
{
    *op = (struct file_op){
        .xfer = xfer,
        .target = FERRY_CONTAINER_OF(xfer->target, struct file_target, base),
        .opcode = xfer->opcode,
        .local = xfer->local,
        .addr = xfer->remote_addr,
        .length = xfer->length,
        .good = UINT64_MAX,
        .orphan_at_ns = FERRY_NEVER_NS,
    };
    ferry_list_init(&op->all);
    ferry_list_init(&op->link);
}

static enum ferry_status file_submit(struct ferry_transport *transport,
                                     struct ferry_xfer *const *xfers, uint32_t count)
{
    struct file_transport *ft = file_transport_of(transport);
    enum ferry_status status = admit(ft, count);

    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct file_op *op = ferry_pool_acquire(&ft->ops);

        FERRY_ASSERT(op != NULL);
        fill_op(op, xfers[i]);
        ferry_inbox_push(&ft->inbox, &op->node);
    }
    ferry_file_kick(ft);
    return FERRY_OK;
}

static void file_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    struct file_transport *ft = file_transport_of(transport);

    /* The dispatcher looks at cancel_asked of every op that it has. */
    (void)xfer;
    atomic_store(&ft->attention, true);
    ferry_file_kick(ft);
}

static enum ferry_status file_revoke(struct ferry_transport *transport, const void *addr,
                                     uint64_t length, uint64_t deadline_ns)
{
    struct file_transport *ft = file_transport_of(transport);
    struct file_revoke *revoke = &ft->revoke;
    bool done = true;

    if (atomic_load(&ft->outstanding) == 0)
        return FERRY_OK;
    pthread_mutex_lock(&ft->revoke_mutex);
    /* Idle here: whoever gave up below has taken its question back, under the mutex. */
    revoke->addr = (uintptr_t)addr;
    revoke->length = length;
    atomic_store(&revoke->busy, 1);
    atomic_store(&ft->attention, true);
    ferry_file_kick(ft);
    while (done && atomic_load(&revoke->busy) != 0)
        done = ferry_futex_wait(&revoke->busy, 1, deadline_ns) || atomic_load(&revoke->busy) == 0;
    atomic_store(&revoke->busy, 0);
    pthread_mutex_unlock(&ft->revoke_mutex);
    if (!done)
        return ferry_fail(FERRY_ERR_BUSY, "file: a device still has the memory");
    return FERRY_OK;
}

const struct ferry_transport_ops ferry_file_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "file",
    .wire_id = -1,
    .caps = FERRY_CAP_CANCEL | FERRY_CAP_REVOKE | FERRY_CAP_FILE,
    .options = &ferry_file_option_table,
    .more_options = ferry_file_more_options,
    .probe = file_probe,
    .open = file_open,
    .quiesce = file_quiesce,
    .close = file_close,
    .add_buffer = ferry_file_add_buffer,
    .remove_buffer = ferry_file_remove_buffer,
    .target_open = file_target_open,
    .files_open = file_files_open,
    .target_close = file_target_close,
    .target_explain = file_target_explain,
    .submit = file_submit,
    .cancel = file_cancel,
    .revoke = file_revoke,
    .report = ferry_file_report,
    .measure = ferry_file_measure,
};
