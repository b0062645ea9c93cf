/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher: one thread that takes what came in, issues pieces, reaps events and sleeps. It
 * never calls into a file system in a way that may block for long, except to read and write through
 * a ring; helpers do the rest.
 *
 * Stop: the runtime has quiesced the transport and closed every target. The thread goes when the
 * last target is closed, no job runs and no entry is without an event. What does not come to that
 * in time is left where it is, thread and memory: a device may still use it.
 */
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/file/internal.h"

#define HELPERS_MAX 16u
#define STOP_NS     (5 * FERRY_NS_PER_S)

void ferry_file_kick(struct file_transport *ft)
{
    struct ferry_file_backend *sleeper;

    if (atomic_load(&ft->asleep) == 0 || atomic_exchange(&ft->asleep, 0) == 0)
        return;
    sleeper = atomic_load(&ft->sleeper);
    if (sleeper != NULL)
        ferry_file_backend_wake(sleeper);
    else
        ferry_futex_wake(&ft->asleep, 1);
}

/* ---- jobs ---- */

static void run_job(struct ferry_offload_job *base)
{
    struct file_job *job = FERRY_CONTAINER_OF(base, struct file_job, base);

    job->run(job);
}

static void job_done(struct ferry_offload_job *base)
{
    struct file_job *job = FERRY_CONTAINER_OF(base, struct file_job, base);
    struct file_transport *ft = job->ft;

    ferry_inbox_push(&ft->finished, &job->node);
    ferry_file_kick(ft);
}

bool ferry_file_job_start(struct file_transport *ft, struct file_job *job)
{
    job->base.run = run_job;
    job->base.done = job_done;
    job->ft = ft;
    ft->jobs++;
    if (ferry_offload_submit(ft->helpers, &job->base) == FERRY_OK)
        return true;
    ft->jobs--;
    return false;
}

/* ---- what came in ---- */

static void take_ops(struct file_transport *ft)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&ft->inbox);

    while (node != NULL) {
        struct file_op *op = FERRY_CONTAINER_OF(node, struct file_op, node);

        node = node->next;
        ferry_file_op_begin(ft, op);
    }
}

static void take_finished(struct file_transport *ft)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&ft->finished);

    while (node != NULL) {
        struct file_job *job = FERRY_CONTAINER_OF(node, struct file_job, node);

        node = node->next;
        ft->jobs--;
        job->finish(job);
    }
}

static void take_ready(struct file_transport *ft)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&ft->ready);

    while (node != NULL) {
        struct file_batch *batch = FERRY_CONTAINER_OF(node, struct file_batch, base.node);

        node = node->next;
        /* Before the poll: what comes after that finds `ready` false and pushes again. */
        atomic_store(&batch->base.ready, false);
        ferry_file_batch_reap(ft, batch);
    }
}

static void take_targets(struct file_transport *ft)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&ft->closing_targets);

    while (node != NULL) {
        struct file_target *target = FERRY_CONTAINER_OF(node, struct file_target, node);

        node = node->next;
        target->closing = true;
        ft->target_count++;
        if (target->refs == 0)
            ferry_file_target_close(ft, target);
    }
}

/* ---- revoke ---- */

static bool touches(const struct file_op *op, const struct file_revoke *revoke)
{
    return op->length > 0 &&
           ferry_range_overlaps((uintptr_t)op->local, op->length, revoke->addr, revoke->length);
}

/* Stop what touches the range; done when nothing does any more. */
static void step_revoke(struct file_transport *ft)
{
    struct file_revoke *revoke = &ft->revoke;
    struct ferry_list round;
    struct ferry_list *link;
    bool busy = false;

    if (atomic_load(&revoke->busy) == 0)
        return;
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&ft->all)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct file_op *op = FERRY_CONTAINER_OF(link, struct file_op, all);

        ferry_list_push_back(&ft->all, link);
        if (touches(op, revoke))
            ferry_file_op_stop(ft, op, FERRY_ERR_CANCELED, 0, "file: the memory was unregistered");
    }
    for (link = ft->all.next; link != &ft->all; link = link->next)
        busy = busy || touches(FERRY_CONTAINER_OF(link, struct file_op, all), revoke);
    if (busy)
        return;
    atomic_store(&revoke->busy, 0);
    ferry_futex_wake(&revoke->busy, 1);
}

/* ---- the loop ---- */

static void issue(struct file_transport *ft)
{
    struct ferry_list *link;

    while (!ferry_list_empty(&ft->redo)) {
        struct file_piece *piece = FERRY_CONTAINER_OF(ferry_list_pop_front(&ft->redo),
                                                      struct file_piece, link);

        ferry_file_piece_issue(ft, piece);
        /* It found no room and went back to the front. */
        if (ft->redo.next == &piece->link)
            break;
    }
    while (!ferry_list_empty(&ft->free_pieces) &&
           (link = ferry_list_pop_front(&ft->active)) != NULL) {
        struct file_op *op = FERRY_CONTAINER_OF(link, struct file_op, link);

        if (ferry_file_op_step(ft, op))
            ferry_list_push_back(&ft->active, &op->link);
    }
    ferry_file_batches_flush(ft);
}

static void look(struct file_transport *ft)
{
    bool asked = atomic_exchange(&ft->attention, false);

    if (asked || ft->now_ns >= ft->next_deadline_ns)
        ferry_file_ops_look(ft);
    step_revoke(ft);
}

static bool work_waits(struct file_transport *ft)
{
    return !ferry_inbox_empty(&ft->inbox) || !ferry_inbox_empty(&ft->finished) ||
           !ferry_inbox_empty(&ft->ready) || !ferry_inbox_empty(&ft->closing_targets) ||
           atomic_load(&ft->attention);
}

static bool nothing_left(struct file_transport *ft)
{
    if (!atomic_load(&ft->stopping) || ft->jobs > 0 || ft->target_count > 0 ||
        !ferry_list_empty(&ft->all) || work_waits(ft))
        return false;
    for (int i = 0; i < FILE_BACKEND_COUNT; i++) {
        if (!ferry_list_empty(&ft->slots[i].busy))
            return false;
    }
    return true;
}

static void sleep_a_while(struct file_transport *ft)
{
    struct ferry_file_backend *sleeper = atomic_load(&ft->sleeper);
    uint64_t until_ns = ferry_file_batches_next_ns(ft);

    if (ft->next_deadline_ns < until_ns)
        until_ns = ft->next_deadline_ns;
    /* Who pushes afterwards sees that we sleep; who pushed before is seen by us. */
    atomic_store(&ft->asleep, 1);
    if (work_waits(ft) || nothing_left(ft)) {
        until_ns = 0;
        atomic_store(&ft->asleep, 0);
    }
    if (sleeper != NULL)
        ferry_file_backend_sleep(sleeper, &ft->asleep, until_ns);
    else if (until_ns > ft->now_ns)
        ferry_futex_wait(&ft->asleep, 1, until_ns);
    atomic_store(&ft->asleep, 0);
}

static void *dispatch(void *arg)
{
    struct file_transport *ft = arg;

    if (ferry_file_backends_open(ft) != FERRY_OK)
        ferry_error("file", "no way to read and write files: %s", ferry_last_error_text());
    /* Pairs with the acquire of whoever reports. */
    atomic_store_explicit(&ft->backends_known, true, memory_order_release);
    while (!nothing_left(ft)) {
        ft->now_ns = ferry_now_ns(ft->base.env->clock);
        take_ops(ft);
        take_finished(ft);
        take_ready(ft);
        ferry_file_batches_poll(ft);
        take_targets(ft);
        look(ft);
        issue(ft);
        if (ferry_list_empty(&ft->active) || ferry_list_empty(&ft->free_pieces))
            sleep_a_while(ft);
    }
    atomic_store(&ft->idle, 1);
    ferry_futex_wake(&ft->idle, 1);
    return NULL;
}

/* ---- start and stop ---- */

static enum ferry_status start(struct file_transport *ft)
{
    enum ferry_status status = ferry_offload_open("ferry-fhelp", HELPERS_MAX, &ft->helpers);

    if (status == FERRY_OK)
        status = ferry_thread_start("ferry-file", dispatch, ft, &ft->thread);
    if (status != FERRY_OK) {
        ferry_offload_close(ft->helpers);
        ft->helpers = NULL;
    }
    return status;
}

enum ferry_status ferry_file_start(struct file_transport *ft)
{
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&ft->start_mutex);
    if (!ft->started) {
        status = start(ft);
        ft->started = status == FERRY_OK;
    }
    pthread_mutex_unlock(&ft->start_mutex);
    return status;
}

bool ferry_file_stop(struct file_transport *ft)
{
    uint64_t until_ns = ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), STOP_NS);

    if (!ft->started)
        return true;
    atomic_store(&ft->stopping, true);
    ferry_file_kick(ft);
    while (atomic_load(&ft->idle) == 0) {
        if (!ferry_futex_wait(&ft->idle, 0, until_ns) && atomic_load(&ft->idle) == 0) {
            ferry_error("file", "a file system or a device does not let go; its threads and "
                                "memory are left as they are");
            return false;
        }
    }
    pthread_join(ft->thread, NULL);
    /* A helper whose job is finished may still be on its way out of the wake-up. */
    ferry_offload_close(ft->helpers);
    ferry_file_backends_close(ft);
    return true;
}
