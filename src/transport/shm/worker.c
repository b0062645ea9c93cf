/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on their way through the workers. submit() runs on any thread and only queues; all else
 * runs on the holder of a worker's baton, which may be the thread that submitted.
 *
 * A request is one part on one worker, or, from split_bytes on, one part on each of them: parts
 * take chunk after chunk off the request until none is left. Each active part moves one chunk a
 * turn, so that large requests share the worker with small ones. The last part that leaves ends the
 * request.
 *
 *   inbox --> active --one chunk a turn--> no chunk left, or a failure --> leaves
 *               ^ \ a meeting or a mapping is under way --> parked
 *               +------- each turn ------------------------ /
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "config/option.h"
#include "transport/shm/internal.h"

static struct shm_target *target_of(const struct ferry_xfer *xfer)
{
    return FERRY_CONTAINER_OF(xfer->target, struct shm_target, base);
}

/* The first failure counts. */
static void fail_op(struct shm_op *op, struct shm_verdict verdict)
{
    int32_t none = 0;

    if (!atomic_compare_exchange_strong(&op->failed, &none, verdict.status))
        return;
    op->native = verdict.native;
    op->where = verdict.where;
}

/* The admission is given back before the end is published, so that whoever sees it may submit. */
static void end_op(struct shm_transport *transport, struct shm_op *op)
{
    struct ferry_xfer *xfer = op->xfer;
    enum ferry_status status = (enum ferry_status)atomic_load(&op->failed);
    uint64_t moved = atomic_load(&op->moved);
    int32_t native = op->native;
    const char *where = op->where;

    if (status == FERRY_OK) {
        FERRY_ASSERT(moved == xfer->length);
        atomic_fetch_add_explicit(&transport->moved_bytes, moved, memory_order_relaxed);
        atomic_fetch_add_explicit(&target_of(xfer)->link->ops, 1, memory_order_relaxed);
    } else {
        xfer->unapplied = xfer->opcode == FERRY_READ || moved == 0;
        /* Parts of a split request leave holes; a single one moves from the start on. */
        xfer->moved = op->part_count == 1 ? moved : 0;
    }
    atomic_fetch_add_explicit(&transport->ended_count, 1, memory_order_relaxed);
    ferry_pool_release(&transport->ops, op);
    atomic_fetch_sub(&transport->outstanding, 1);
    ferry_xfer_end(xfer, status, native, where);
    /* Workers are stopped before the transport is freed, so it is still there. */
    if (atomic_fetch_sub(&transport->unfinished, 1) == 1 && atomic_load(&transport->closing))
        ferry_futex_wake(&transport->unfinished, 1);
}

static void leave(struct shm_worker *worker, struct shm_part *part)
{
    struct shm_op *op = part->op;

    ferry_list_remove(&part->link);
    /* Release and acquire: what the other parts copied and wrote comes before the end. */
    if (atomic_fetch_sub(&op->running, 1) == 1)
        end_op(worker->transport, op);
}

/* True if something says that no more of it is to be moved. */
static bool stops(struct shm_worker *worker, struct shm_op *op, uint64_t now_ns)
{
    struct shm_verdict verdict = {0};

    if (atomic_load(&op->failed) != 0)
        return true;
    if (atomic_load(&worker->transport->closing))
        verdict = (struct shm_verdict){.status = FERRY_ERR_CLOSING,
                                       .where = "shm: the engine is closing"};
    else if (ferry_xfer_cancel_asked(op->xfer))
        verdict = (struct shm_verdict){.status = FERRY_ERR_CANCELED,
                                       .where = "shm: canceled by the caller"};
    else if (atomic_load(&op->revoked))
        verdict = (struct shm_verdict){.status = FERRY_ERR_CANCELED,
                                       .where = "shm: the memory was unregistered"};
    else if (op->xfer->deadline_ns != FERRY_NO_DEADLINE && now_ns >= op->xfer->deadline_ns)
        verdict = (struct shm_verdict){.status = FERRY_ERR_TIMED_OUT,
                                       .where = "shm: the deadline passed"};
    else
        return false;
    fail_op(op, verdict);
    return true;
}

/* What the document says about the range. */
static struct shm_verdict check_range(struct shm_op *op)
{
    const struct ferry_xfer *xfer = op->xfer;

    op->buffer = ferry_shm_target_find(target_of(xfer), xfer->remote_addr, xfer->length);
    if (op->buffer == NULL)
        return (struct shm_verdict){
            .status = FERRY_ERR_RANGE,
            .where = "shm: the target range is not inside one registered buffer"};
    if (xfer->opcode == FERRY_WRITE && !op->buffer->attr.writable)
        return (struct shm_verdict){.status = FERRY_ERR_PERMISSION,
                                    .where = "shm: the target buffer does not permit this"};
    return (struct shm_verdict){0};
}

static void park(struct shm_worker *worker, struct shm_part *part)
{
    ferry_list_remove(&part->link);
    ferry_list_push_back(&worker->parked, &part->link);
    if (atomic_fetch_add(&worker->parked_count, 1) == 0)
        ferry_shm_meet_wake(worker->transport);
}

/* One chunk, or the end of the part. */
static void step(struct shm_worker *worker, struct shm_part *part, uint64_t now_ns)
{
    struct shm_op *op = part->op;
    uint64_t length = op->xfer->length;
    uint64_t chunk = worker->transport->settings.chunk_bytes;
    struct shm_verdict verdict;
    uint64_t at;

    if (stops(worker, op, now_ns)) {
        leave(worker, part);
        return;
    }
    verdict = ferry_shm_ready(op);
    if (verdict.parked) {
        park(worker, part);
        return;
    }
    if (verdict.status == FERRY_OK) {
        at = atomic_fetch_add(&op->next, chunk);
        if (at >= length) {
            leave(worker, part);
            return;
        }
        verdict = ferry_shm_copy(worker, op, at, length - at < chunk ? length - at : chunk);
        if (verdict.status == FERRY_OK && length - at > chunk)
            return;
    }
    if (verdict.status != FERRY_OK)
        fail_op(op, verdict);
    leave(worker, part);
}

static void take_inbox(struct shm_worker *worker)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&worker->inbox);

    while (node != NULL) {
        struct shm_part *part = FERRY_CONTAINER_OF(node, struct shm_part, node);

        node = node->next;
        ferry_list_push_back(&worker->active, &part->link);
    }
}

static void unpark(struct shm_worker *worker)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&worker->parked)) != NULL) {
        atomic_fetch_sub(&worker->parked_count, 1);
        ferry_list_push_back(&worker->active, link);
    }
}

static void run_turn(struct ferry_worker *base, struct ferry_job *job)
{
    struct shm_worker *worker = FERRY_CONTAINER_OF(job, struct shm_worker, job);
    uint64_t now_ns = ferry_now_ns(worker->transport->base.env->clock);
    struct ferry_list turn;
    struct ferry_list *link;

    FERRY_ASSERT(base == worker->worker);
    /* Before the inbox is read: a push after that finds `posted` false and posts again. */
    atomic_store(&worker->posted, false);
    take_inbox(worker);
    unpark(worker);
    ferry_list_init(&turn);
    while ((link = ferry_list_pop_front(&worker->active)) != NULL)
        ferry_list_push_back(&turn, link);
    while ((link = ferry_list_pop_front(&turn)) != NULL) {
        ferry_list_push_back(&worker->active, link);
        step(worker, FERRY_CONTAINER_OF(link, struct shm_part, link), now_ns);
    }
    if (!ferry_list_empty(&worker->active))
        ferry_shm_kick(worker, false);
}

void ferry_shm_kick(struct shm_worker *worker, bool inline_ok)
{
    if (!atomic_exchange(&worker->posted, true))
        ferry_worker_post(worker->worker, &worker->job, inline_ok);
}

void ferry_shm_kick_all(struct shm_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++)
        ferry_shm_kick(&transport->workers[i], false);
}

uint32_t ferry_shm_parked(const struct shm_transport *transport)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < transport->worker_count; i++)
        count += atomic_load(&transport->workers[i].parked_count);
    return count;
}

/* Marks what touches the range; its parts leave at their next step, which comes in this turn. */
static void run_revoke(struct ferry_worker *base, struct ferry_job *job)
{
    struct shm_revoke *revoke = FERRY_CONTAINER_OF(job, struct shm_revoke, job);
    struct shm_worker *worker = FERRY_CONTAINER_OF(revoke, struct shm_worker, revoke);
    uint64_t now_ns = ferry_now_ns(worker->transport->base.env->clock);
    struct ferry_list checked;
    struct ferry_list *link;

    (void)base;
    take_inbox(worker);
    unpark(worker);
    ferry_list_init(&checked);
    while ((link = ferry_list_pop_front(&worker->active)) != NULL) {
        struct shm_part *part = FERRY_CONTAINER_OF(link, struct shm_part, link);
        struct shm_op *op = part->op;

        ferry_list_push_back(&checked, link);
        if (!ferry_xfer_touches_local(op->xfer, revoke->addr, revoke->length))
            continue;
        atomic_store(&op->revoked, true);
        if (stops(worker, op, now_ns))
            leave(worker, part);
    }
    while ((link = ferry_list_pop_front(&checked)) != NULL)
        ferry_list_push_back(&worker->active, link);
    if (!ferry_list_empty(&worker->active))
        ferry_shm_kick(worker, false);
    atomic_store(&revoke->busy, 0);
    ferry_futex_wake(&revoke->busy, 1);
}

enum ferry_status ferry_shm_worker_open(struct shm_worker *worker)
{
    const struct ferry_transport_env *env = worker->transport->base.env;
    char name[24];
    struct ferry_worker_options options = {
        .name = name,
        .reactor = {.kind = (enum ferry_reactor_kind)ferry_config_choice(env->config, "reactor"),
                    .clock = env->clock},
        .reactor_ops = env->reactor_ops,
        .wait = (enum ferry_wait_mode)ferry_config_choice(env->config, "wait"),
        .spin_us = (uint32_t)ferry_config_u64(env->config, "wait_spin_us_max"),
        .budget = env->budget,
    };

    snprintf(name, sizeof(name), "ferry-shm-%u", worker->index);
    ferry_list_init(&worker->active);
    ferry_list_init(&worker->parked);
    ferry_inbox_init(&worker->inbox);
    worker->job.run = run_turn;
    worker->revoke.job.run = run_revoke;
    return ferry_worker_open(&options, &worker->worker);
}

/* All or none: the counter admits first, after that the pool cannot be empty. */
static enum ferry_status admit(struct shm_transport *transport, uint32_t count)
{
    uint32_t outstanding = atomic_load(&transport->outstanding);

    if (atomic_load(&transport->closing))
        return FERRY_ERR_CLOSING;
    do {
        if (count > transport->settings.outstanding_max - outstanding)
            return FERRY_ERR_QUEUE_FULL;
    } while (
        !atomic_compare_exchange_weak(&transport->outstanding, &outstanding, outstanding + count));
    atomic_fetch_add(&transport->unfinished, count);
    return FERRY_OK;
}

static void init_op(struct shm_op *op, struct ferry_xfer *xfer, uint32_t part_count)
{
    op->xfer = xfer;
    atomic_store_explicit(&op->next, 0, memory_order_relaxed);
    atomic_store_explicit(&op->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&op->failed, 0, memory_order_relaxed);
    atomic_store_explicit(&op->revoked, false, memory_order_relaxed);
    op->native = 0;
    op->where = NULL;
    op->part_count = part_count;
    /* Release with the push below. */
    atomic_store_explicit(&op->running, part_count, memory_order_relaxed);
    for (uint32_t i = 0; i < part_count; i++)
        op->parts[i].op = op;
}

enum ferry_status ferry_shm_submit(struct ferry_transport *base, struct ferry_xfer *const *xfers,
                                   uint32_t count)
{
    struct shm_transport *transport = ferry_shm_of(base);
    enum ferry_status status = admit(transport, count);
    uint64_t touched = 0;

    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        bool split = xfers[i]->length >= transport->settings.split_bytes;
        uint32_t part_count = split ? transport->worker_count : 1;
        uint32_t first = part_count > 1 ? 0
                                        : atomic_fetch_add_explicit(&transport->next_worker, 1,
                                                                    memory_order_relaxed) %
                                              transport->worker_count;
        struct shm_op *op = ferry_pool_acquire(&transport->ops);
        struct shm_verdict verdict;

        FERRY_ASSERT(op != NULL);
        init_op(op, xfers[i], part_count);
        verdict = check_range(op);
        if (verdict.status != FERRY_OK)
            fail_op(op, verdict);
        /* Release pairs with the acquire of a waiter that wants to drive the worker. */
        if (part_count == 1)
            atomic_store_explicit(&xfers[i]->driver, transport->workers[first].worker,
                                  memory_order_release);
        for (uint32_t k = 0; k < part_count; k++) {
            touched |= 1ull << (first + k);
            ferry_inbox_push(&transport->workers[first + k].inbox, &op->parts[k].node);
        }
    }
    /* The last one's turn may run in this call; the others begin meanwhile. */
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (touched & (1ull << i))
            ferry_shm_kick(&transport->workers[i], (touched >> i) == 1);
    }
    return FERRY_OK;
}
