/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend on io_uring: one ring, of the dispatcher's thread alone. submit only prepares queue
 * entries; they go to the kernel together, in the call with which the dispatcher also waits, so
 * that a busy ring costs one system call for many entries.
 *
 * Disk I/O that has begun cannot be cancelled, and closing a ring is no barrier: the dispatcher
 * closes it only when every entry has had its event.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/file/backend.h"

/* One entry moves at most so much. */
#define ENTRY_BYTES_MAX ((UINT64_C(2) << 30) - 4096)
#define EXTRA_ENTRIES   16u /* wake-ups and cancels */
#define SQE_ROUNDS_MAX  1000

/* What user_data says when it is not the address of an entry. */
enum { TAG_WAKE = 1, TAG_CANCEL = 2 };

struct uring_entry {
    struct ferry_file_batch *batch;
    int64_t result;
    uint64_t cookie;
    bool running;
    bool ended;
};

struct uring_batch {
    struct uring_entry *entries;
    uint32_t ended; /* of them, not told yet */
};

struct uring_backend {
    struct ferry_file_backend base;
    ferry_file_ready_fn *ready;
    void *ready_arg;
    uint32_t batch_count;
    struct uring_batch *batches;
    struct io_uring ring;
    bool ring_open;
    int wake_fd;
    bool wake_armed;
    uint64_t wake_value;
    uint32_t prepared; /* entries that the kernel has not seen */
};

static struct uring_backend *uring_of(struct ferry_file_backend *backend)
{
    return FERRY_CONTAINER_OF(backend, struct uring_backend, base);
}

/* ---- completions ---- */

static void take_cqe(struct uring_backend *uring, const struct io_uring_cqe *cqe)
{
    struct uring_entry *entry;

    if (cqe->user_data == TAG_WAKE) {
        uring->wake_armed = false;
        return;
    }
    if (cqe->user_data == TAG_CANCEL)
        return;
    entry = (struct uring_entry *)(uintptr_t)cqe->user_data;
    FERRY_ASSERT(entry->running);
    entry->running = false;
    entry->ended = true;
    entry->result = cqe->res;
    uring->batches[entry->batch->index].ended++;
    uring->ready(uring->ready_arg, entry->batch);
}

static void reap(struct uring_backend *uring)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned count = 0;

    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        take_cqe(uring, cqe);
        count++;
    }
    io_uring_cq_advance(&uring->ring, count);
}

/* ---- submissions ---- */

/* The queue is full only until the kernel has taken what is in it. */
static struct io_uring_sqe *next_sqe(struct uring_backend *uring)
{
    for (int i = 0; i < SQE_ROUNDS_MAX; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

        if (sqe != NULL) {
            uring->prepared++;
            return sqe;
        }
        io_uring_submit(&uring->ring);
        uring->prepared = 0;
        reap(uring);
    }
    return NULL;
}

static void prepare(struct io_uring_sqe *sqe, struct uring_entry *entry,
                    const struct ferry_file_io *io)
{
    if (io->opcode == FERRY_READ)
        io_uring_prep_read(sqe, io->fd, io->memory, (unsigned)io->length, io->offset);
    else
        io_uring_prep_write(sqe, io->fd, io->memory, (unsigned)io->length, io->offset);
    if (io->dsync)
        sqe->rw_flags = RWF_DSYNC;
    io_uring_sqe_set_data(sqe, entry);
}

static enum ferry_status uring_submit(struct ferry_file_batch *batch)
{
    struct uring_backend *uring = uring_of(batch->backend);
    struct uring_batch *own = &uring->batches[batch->index];

    FERRY_ASSERT(own->ended == 0);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct uring_entry *entry = &own->entries[i];
        struct io_uring_sqe *sqe = next_sqe(uring);

        entry->batch = batch;
        entry->cookie = batch->ios[i].cookie;
        entry->ended = false;
        if (sqe != NULL) {
            entry->running = true;
            prepare(sqe, entry, &batch->ios[i]);
            continue;
        }
        /* The kernel takes nothing more, which does not happen: the entry ends by itself. */
        entry->running = false;
        entry->ended = true;
        entry->result = -EAGAIN;
        own->ended++;
        uring->ready(uring->ready_arg, batch);
    }
    return FERRY_OK;
}

static enum ferry_status uring_poll(struct ferry_file_batch *batch, struct ferry_file_event *events,
                                    uint32_t room, uint32_t *count_out)
{
    struct uring_batch *own = &uring_of(batch->backend)->batches[batch->index];
    uint32_t count = 0;

    for (uint32_t i = 0; i < batch->count && count < room && own->ended > 0; i++) {
        struct uring_entry *entry = &own->entries[i];

        if (!entry->ended)
            continue;
        entry->ended = false;
        own->ended--;
        events[count++] = (struct ferry_file_event){.cookie = entry->cookie,
                                                    .result = entry->result};
    }
    *count_out = count;
    return FERRY_OK;
}

static void uring_cancel(struct ferry_file_batch *batch)
{
    struct uring_backend *uring = uring_of(batch->backend);
    struct uring_batch *own = &uring->batches[batch->index];

    for (uint32_t i = 0; i < batch->count; i++) {
        struct io_uring_sqe *sqe;

        if (!own->entries[i].running)
            continue;
        sqe = next_sqe(uring);
        if (sqe == NULL)
            return;
        io_uring_prep_cancel(sqe, &own->entries[i], 0);
        io_uring_sqe_set_data64(sqe, TAG_CANCEL);
    }
}

/* ---- sleeping ---- */

static void arm_wake(struct uring_backend *uring)
{
    struct io_uring_sqe *sqe;

    if (uring->wake_armed)
        return;
    sqe = next_sqe(uring);
    if (sqe == NULL)
        return;
    io_uring_prep_read(sqe, uring->wake_fd, &uring->wake_value, sizeof(uring->wake_value), 0);
    io_uring_sqe_set_data64(sqe, TAG_WAKE);
    uring->wake_armed = true;
}

static void uring_sleep(struct ferry_file_backend *backend, _Atomic uint32_t *asleep,
                        uint64_t until_ns)
{
    struct uring_backend *uring = uring_of(backend);
    struct __kernel_timespec timeout = {0};
    struct io_uring_cqe *cqe = NULL;
    uint64_t now_ns = ferry_now_ns(&ferry_clock_system);
    bool bounded = until_ns != FERRY_NEVER_NS;

    arm_wake(uring);
    if (bounded && until_ns > now_ns) {
        timeout.tv_sec = (int64_t)((until_ns - now_ns) / FERRY_NS_PER_S);
        timeout.tv_nsec = (long long)((until_ns - now_ns) % FERRY_NS_PER_S);
    }
    if (atomic_load(asleep) == 0 || (bounded && until_ns <= now_ns)) {
        /* Nothing to wait for: only hand over what is prepared, and see what has ended. */
        io_uring_submit_and_get_events(&uring->ring);
    } else {
        io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, bounded ? &timeout : NULL, NULL);
    }
    uring->prepared = 0;
    reap(uring);
}

static void uring_wake(struct ferry_file_backend *backend)
{
    uint64_t one = 1;
    ssize_t put = write(uring_of(backend)->wake_fd, &one, sizeof(one));

    /* A counter that is full wakes as well. */
    (void)put;
}

/* ---- open and close ---- */

static void uring_close(struct ferry_file_backend *backend)
{
    struct uring_backend *uring = uring_of(backend);

    if (uring->ring_open)
        io_uring_queue_exit(&uring->ring);
    if (uring->wake_fd >= 0)
        close(uring->wake_fd);
    for (uint32_t i = 0; uring->batches != NULL && i < uring->batch_count; i++)
        free(uring->batches[i].entries);
    free(uring->batches);
    free(uring);
}

/* The cheapest ring that this kernel has: older ones know fewer flags. */
static int open_ring(struct uring_backend *uring, uint32_t entries)
{
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_COOP_TASKRUN,
        0,
    };
    int err = -EINVAL;

    for (size_t i = 0; i < FERRY_ARRAY_LEN(flags) && err == -EINVAL; i++) {
        struct io_uring_params params = {.flags = flags[i] | IORING_SETUP_CLAMP |
                                                  IORING_SETUP_CQSIZE,
                                         .cq_entries = entries * 4};

        err = io_uring_queue_init_params(entries, &uring->ring, &params);
    }
    if (err == 0) {
        uring->ring_open = true;
        io_uring_ring_dontfork(&uring->ring);
    }
    return err;
}

static bool kernel_reads(struct uring_backend *uring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(&uring->ring);
    bool ok = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
              io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
              io_uring_opcode_supported(probe, IORING_OP_ASYNC_CANCEL);

    if (probe != NULL)
        io_uring_free_probe(probe);
    return ok;
}

static const char *advice_of(int err)
{
    switch (err) {
    case EPERM:
    case ENOSYS:
        return "; a container's seccomp profile or sysctl kernel.io_uring_disabled forbids it";
    case ENOMEM:
        return "; the limit of locked memory may be too small, see ulimit -l";
    default:
        return "";
    }
}

static enum ferry_status open_parts(struct uring_backend *uring,
                                    const struct ferry_file_backend_env *env)
{
    int err = open_ring(uring, env->batch_count + EXTRA_ENTRIES);

    if (err != 0) {
        snprintf(env->reason, env->reason_size, "io_uring_setup: %s (errno %d)%s",
                 strerrordesc_np(-err), -err, advice_of(-err));
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s", env->reason);
    }
    if (!kernel_reads(uring)) {
        snprintf(env->reason, env->reason_size, "this kernel's io_uring does not read files");
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s", env->reason);
    }
    uring->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (uring->wake_fd < 0)
        return ferry_fail_errno(errno, "file: eventfd");
    uring->batches = calloc(env->batch_count, sizeof(*uring->batches));
    if (uring->batches == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    for (uint32_t i = 0; i < env->batch_count; i++) {
        uring->batches[i].entries = calloc(env->batch_entries, sizeof(struct uring_entry));
        if (uring->batches[i].entries == NULL)
            return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    }
    return FERRY_OK;
}

static enum ferry_status uring_open(const struct ferry_file_backend_env *env,
                                    struct ferry_file_backend **backend_out)
{
    struct uring_backend *uring = calloc(1, sizeof(*uring));
    enum ferry_status status;

    if (uring == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    uring->base.entry_bytes_max = ENTRY_BYTES_MAX;
    uring->base.batch_entries = env->batch_entries;
    uring->ready = env->ready;
    uring->ready_arg = env->ready_arg;
    uring->batch_count = env->batch_count;
    uring->wake_fd = -1;
    status = open_parts(uring, env);
    if (status != FERRY_OK) {
        uring_close(&uring->base);
        return status;
    }
    *backend_out = &uring->base;
    return FERRY_OK;
}

const struct ferry_file_backend_ops ferry_file_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .submit = uring_submit,
    .poll = uring_poll,
    .cancel = uring_cancel,
    .sleep = uring_sleep,
    .wake = uring_wake,
};
