/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fault decorator's worker does: it hands requests to the inner transport, gets their ends
 * back through an inbox, and tells, keeps, delays or replaces them. Everything here runs under the
 * worker's baton, except what says "any thread".
 *
 *   NEW --> PASSED --> RETURNED --> HELD ----> ended
 *    |        ^           |    \-> ENDING --/
 *    +-> DELAYED, DROPPED    (duplicate: RETURNED --> PASSED once more)
 *
 */
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "transport/fault/private.h"

void ferry_fault_kick(struct fault_transport *fault)
{
    if (!atomic_exchange(&fault->posted, true))
        ferry_worker_post(fault->worker, &fault->job, false);
}

static void set_state(struct fault_transport *fault, struct fault_op *op, enum fault_state state)
{
    bool was = op->state == FAULT_DROPPED || op->state == FAULT_HELD;
    bool is = state == FAULT_DROPPED || state == FAULT_HELD;

    op->state = state;
    if (was != is)
        atomic_fetch_add(&fault->kept, is ? 1U : UINT32_MAX);
}

static void end_op(struct fault_transport *fault, struct fault_op *op, enum ferry_status status,
                   int32_t native, const char *where)
{
    struct ferry_xfer *outer = op->outer;

    FERRY_ASSERT(op->state != FAULT_PASSED);
    set_state(fault, op, FAULT_RETURNED);
    ferry_list_remove(&op->link);
    ferry_pool_release(&fault->pool, op);
    atomic_fetch_sub(&fault->outstanding, 1);
    ferry_xfer_end(outer, status, native, where);
    if (atomic_fetch_sub(&fault->unfinished, 1) == 1)
        ferry_futex_wake(&fault->unfinished, 1);
}

static void end_as_returned(struct fault_transport *fault, struct fault_op *op)
{
    op->outer->unapplied = op->inner.unapplied;
    op->outer->moved = op->inner.moved;
    end_op(fault, op, op->inner.status, op->inner.native, op->inner.where);
}

static void inner_ended(struct ferry_xfer *xfer)
{
    struct fault_op *op = FERRY_CONTAINER_OF(xfer, struct fault_op, inner);
    struct fault_target *target = FERRY_CONTAINER_OF(op->outer->target, struct fault_target, base);
    struct fault_transport *fault = fault_of(target->base.transport);

    ferry_inbox_push(&fault->returned, &op->node);
    ferry_fault_kick(fault);
}

static void pass(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    const struct ferry_xfer *outer = op->outer;
    struct ferry_xfer *inner = &op->inner;
    enum ferry_status status;

    inner->opcode = outer->opcode;
    inner->priority = outer->priority;
    inner->local = outer->local;
    inner->remote_addr = outer->remote_addr;
    inner->length = outer->length;
    inner->pieces = outer->pieces;
    inner->piece_count = outer->piece_count;
    inner->whole = NULL;
    inner->target = FERRY_CONTAINER_OF(outer->target, struct fault_target, base)->inner;
    inner->deadline_ns = outer->deadline_ns;
    inner->lease = outer->lease;
    inner->moved = 0;
    inner->ended = inner_ended;
    inner->transport_data = NULL;
    inner->unapplied = false;
    atomic_store(&inner->cancel_asked, false);
    atomic_store(&inner->driver, NULL);
    set_state(fault, op, FAULT_PASSED);
    status = ferry_transport_submit(fault->inner, &inner, 1);
    if (status == FERRY_OK)
        return;
    set_state(fault, op, FAULT_DELAYED);
    op->at_ns = ferry_deadline_ns(now_ns, FAULT_CROWDED_NS);
    if (status != FERRY_ERR_QUEUE_FULL)
        end_op(fault, op, status, 0, "fault: the inner transport refused the request");
}

/* Ends a request that the inner transport does not have, if something says so. */
static bool end_early(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    if (atomic_load(&fault->closing))
        end_op(fault, op, FERRY_ERR_CLOSING, 0, "fault: the engine is closing");
    else if (ferry_xfer_cancel_asked(op->outer))
        end_op(fault, op, FERRY_ERR_CANCELED, 0, "fault: canceled by the caller");
    else if (op->revoked)
        end_op(fault, op, FERRY_ERR_CANCELED, 0, "fault: the memory was unregistered");
    else if (now_ns >= op->outer->deadline_ns)
        end_op(fault, op, FERRY_ERR_TIMED_OUT, 0, "fault: the deadline passed");
    else
        return false;
    return true;
}

static void step_new(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    switch (op->rule.action) {
    case FERRY_FAULT_FAIL:
        end_op(fault, op, op->rule.status, 0, "fault: failed by rule");
        return;
    case FERRY_FAULT_DELAY:
        set_state(fault, op, FAULT_DELAYED);
        op->at_ns = ferry_deadline_ns(now_ns, op->rule.delay_ns);
        return;
    case FERRY_FAULT_DROP:
        set_state(fault, op, FAULT_DROPPED);
        return;
    default:
        pass(fault, op, now_ns);
    }
}

static void step_returned(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    bool ok = op->inner.status == FERRY_OK;

    switch (op->rule.action) {
    case FERRY_FAULT_FAIL_AFTER:
        if (ok)
            end_op(fault, op, op->rule.status, 0, "fault: success replaced by rule");
        else
            end_as_returned(fault, op);
        return;
    case FERRY_FAULT_DELAY_END:
        set_state(fault, op, FAULT_ENDING);
        op->at_ns = ferry_deadline_ns(now_ns, op->rule.delay_ns);
        return;
    case FERRY_FAULT_DUPLICATE:
        if (ok && !op->again) {
            op->again = true;
            pass(fault, op, now_ns);
            return;
        }
        end_as_returned(fault, op);
        return;
    case FERRY_FAULT_HOLD:
        set_state(fault, op, FAULT_HELD);
        return;
    default:
        end_as_returned(fault, op);
    }
}

static void step_op(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    bool hurry = atomic_load(&fault->closing) || op->revoked;

    switch (op->state) {
    case FAULT_NEW:
        if (!end_early(fault, op, now_ns))
            step_new(fault, op, now_ns);
        return;
    case FAULT_DELAYED:
        if (!end_early(fault, op, now_ns) && now_ns >= op->at_ns)
            pass(fault, op, now_ns);
        return;
    case FAULT_DROPPED:
        end_early(fault, op, now_ns);
        return;
    case FAULT_PASSED:
        if (ferry_xfer_cancel_asked(op->outer) && !atomic_exchange(&op->inner.cancel_asked, true))
            ferry_transport_cancel(fault->inner, &op->inner);
        return;
    case FAULT_RETURNED:
        if (hurry)
            end_as_returned(fault, op);
        else
            step_returned(fault, op, now_ns);
        return;
    case FAULT_ENDING:
        if (hurry || now_ns >= op->at_ns)
            end_as_returned(fault, op);
        return;
    case FAULT_HELD:
        if (hurry)
            end_as_returned(fault, op);
        return;
    }
}

static void take_inboxes(struct fault_transport *fault)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&fault->fresh);

    while (node != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(node, struct fault_op, node);

        node = node->next;
        ferry_list_push_back(&fault->all, &op->link);
    }
    node = ferry_inbox_take(&fault->returned);
    while (node != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(node, struct fault_op, node);

        node = node->next;
        set_state(fault, op, FAULT_RETURNED);
    }
}

static bool take_release(struct fault_transport *fault, enum ferry_status *status_out)
{
    bool asked;

    pthread_mutex_lock(&fault->mutex);
    asked = fault->release_asked;
    *status_out = fault->release_status;
    fault->release_asked = false;
    pthread_mutex_unlock(&fault->mutex);
    return asked;
}

static void release_op(struct fault_transport *fault, struct fault_op *op, enum ferry_status status,
                       uint64_t now_ns)
{
    if (op->state != FAULT_DROPPED && op->state != FAULT_HELD)
        return;
    if (status != FERRY_OK)
        end_op(fault, op, status, 0, "fault: released with this status");
    else if (op->state == FAULT_DROPPED)
        pass(fault, op, now_ns);
    else
        end_as_returned(fault, op);
}

static void rearm(struct fault_transport *fault)
{
    struct ferry_reactor *reactor = ferry_worker_reactor(fault->worker);
    uint64_t next_ns = FERRY_NEVER_NS;

    for (struct ferry_list *link = fault->all.next; link != &fault->all; link = link->next) {
        const struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);
        uint64_t at_ns = op->outer->deadline_ns;

        if (op->state == FAULT_PASSED || op->state == FAULT_HELD)
            continue;
        if (op->state == FAULT_ENDING || (op->state == FAULT_DELAYED && op->at_ns < at_ns))
            at_ns = op->at_ns;
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    if (next_ns == FERRY_NEVER_NS)
        ferry_reactor_disarm(reactor, &fault->timer);
    else
        FERRY_ASSERT(ferry_reactor_arm(reactor, &fault->timer, next_ns) == FERRY_OK);
}

static void sweep(struct fault_transport *fault)
{
    uint64_t now_ns = ferry_now_ns(fault->clock);
    enum ferry_status release_status;
    struct ferry_list round;
    struct ferry_list *link;
    bool release;

    take_inboxes(fault);
    release = take_release(fault, &release_status);
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&fault->all)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);
        bool kept = op->state == FAULT_DROPPED || op->state == FAULT_HELD;

        ferry_list_push_back(&fault->all, link);
        if (release && kept)
            release_op(fault, op, release_status, now_ns);
        else
            step_op(fault, op, now_ns);
    }
    rearm(fault);
}

void ferry_fault_run_job(struct ferry_worker *worker, struct ferry_job *job)
{
    struct fault_transport *fault = FERRY_CONTAINER_OF(job, struct fault_transport, job);

    (void)worker;
    /*
     * Before the inboxes are read: a push after that finds `posted` false and posts again. Only
     * here: while the job is in the worker's inbox it must not be posted a second time.
     */
    atomic_store(&fault->posted, false);
    sweep(fault);
}

void ferry_fault_run_timer(struct ferry_timer *timer)
{
    sweep(FERRY_CONTAINER_OF(timer, struct fault_transport, timer));
}

void ferry_fault_run_revoke(struct ferry_worker *worker, struct ferry_job *job)
{
    struct fault_revoke *revoke = FERRY_CONTAINER_OF(job, struct fault_revoke, job);
    struct fault_transport *fault = FERRY_CONTAINER_OF(revoke, struct fault_transport, revoke);

    (void)worker;
    take_inboxes(fault);
    for (struct ferry_list *link = fault->all.next; link != &fault->all; link = link->next) {
        struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);

        if (ferry_xfer_touches_local(op->outer, revoke->addr, revoke->length))
            op->revoked = true;
    }
    sweep(fault);
    atomic_store(&revoke->busy, 0);
    ferry_futex_wake(&revoke->busy, 1);
}
