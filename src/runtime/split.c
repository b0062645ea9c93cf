/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks with pieces on a transport that takes single ranges only: each piece goes as a request of
 * its own, a few at a time, and the task ends once, when the last of them has.
 *
 *   hand over --> part: piece 0, piece 16, ... --+
 *             \-> part: piece 1, ...           --+--> the last one to leave ends the task,
 *             \-> ...                          --+    or gives it to the keeper: no room
 *
 * A part takes the next piece when its last one has ended, on the thread that ended it, until none
 * is left or something failed. What the transport has no room for is parked with its part. When
 * nothing is under way any more and parts are parked, the task waits with the keeper like any
 * other that a transport refused, and goes on from there.
 */
#include "base/assert.h"
#include "runtime/runtime.h"

bool ferry_split_needed(const struct ferry_task *task)
{
    const struct ferry_transport *transport = atomic_load_explicit(&task->transport,
                                                                   memory_order_relaxed);

    return task->vector != NULL && !(transport->ops->caps & FERRY_CAP_VECTOR);
}

/* OUTCOME_UNKNOWN beats all, else the first one stays. */
static void note_failure(struct ferry_split *split, enum ferry_status status, int32_t native,
                         const char *where)
{
    int32_t now = FERRY_OK;

    if (!atomic_compare_exchange_strong(&split->status, &now, (int32_t)status)) {
        if (status != FERRY_ERR_OUTCOME_UNKNOWN || now == FERRY_ERR_OUTCOME_UNKNOWN)
            return;
        atomic_store(&split->status, (int32_t)status);
    }
    /* Read by the last to leave, whose step on `holds` comes after ours. */
    atomic_store_explicit(&split->native, native, memory_order_relaxed);
    atomic_store_explicit(&split->where, where, memory_order_relaxed);
}

static bool failed(const struct ferry_split *split)
{
    return atomic_load(&split->status) != FERRY_OK;
}

/* Nothing is under way: an end, or more to do when there is room. */
static void settle(struct ferry_task *task)
{
    struct ferry_split *split = &task->vector->split;
    uint32_t done = atomic_load_explicit(&split->done, memory_order_relaxed);

    if (!failed(split) && done < task->vector->piece_count) {
        split->resume = true;
        task->give_up_ns = 0; /* something moved: patience begins anew */
        ferry_retry_refused(task, FERRY_ERR_QUEUE_FULL);
        return;
    }
    split->resume = false;
    task->xfer.unapplied = task->xfer.opcode == FERRY_READ ||
                           (done == 0 &&
                            !atomic_load_explicit(&split->touched, memory_order_relaxed));
    ferry_xfer_end(&task->xfer, (enum ferry_status)atomic_load(&split->status),
                   atomic_load_explicit(&split->native, memory_order_relaxed),
                   atomic_load_explicit(&split->where, memory_order_relaxed));
}

static void part_ended(struct ferry_xfer *xfer);

/* The lease under one piece; every piece has one. */
static const struct ferry_lease *lease_of(const struct ferry_vector *vector,
                                          const struct ferry_xfer_piece *piece)
{
    for (uint32_t i = 0; i < vector->lease_count; i++) {
        if (ferry_lease_covers(&vector->leases[i], (uintptr_t)piece->local, piece->length))
            return &vector->leases[i];
    }
    return NULL;
}

static void fill_part(struct ferry_split_part *part, uint32_t number)
{
    const struct ferry_xfer *whole = &part->task->xfer;
    const struct ferry_xfer_piece *piece = &whole->pieces[number];
    struct ferry_xfer *xfer = &part->xfer;

    xfer->opcode = whole->opcode;
    xfer->priority = whole->priority;
    xfer->local = piece->local;
    xfer->remote_addr = piece->remote_addr;
    xfer->length = piece->length;
    xfer->pieces = NULL;
    xfer->piece_count = 0;
    xfer->target = whole->target;
    xfer->whole = whole;
    xfer->deadline_ns = whole->deadline_ns;
    xfer->lease = lease_of(part->task->vector, piece);
    xfer->moved = 0;
    xfer->unapplied = false;
    atomic_store_explicit(&xfer->cancel_asked, false, memory_order_relaxed);
}

/* Hand the part's piece over. False: refused, and @status_out says why. */
static bool post(struct ferry_split_part *part, enum ferry_status *status_out)
{
    struct ferry_transport *transport = part->xfer.target->transport;
    struct ferry_xfer *xfer = &part->xfer;

    xfer->ended = part_ended;
    xfer->transport_data = NULL;
    xfer->unapplied = false;
    atomic_store_explicit(&xfer->driver, NULL, memory_order_relaxed);
    part->parked = false;
    /* On success the part may have ended, and the task with it: nothing is looked at again. */
    *status_out = ferry_transport_submit(transport, &xfer, 1);
    return *status_out == FERRY_OK;
}

/* The next piece for a part that has none. False: there is none to be had. */
static bool take_piece(struct ferry_split_part *part)
{
    struct ferry_task *task = part->task;
    struct ferry_split *split = &task->vector->split;
    uint32_t number;

    if (failed(split))
        return false;
    if (ferry_xfer_cancel_asked(&task->xfer))
        note_failure(split, FERRY_ERR_CANCELED, 0, "runtime: canceled between two pieces");
    else if (ferry_task_revoked(task))
        note_failure(split, FERRY_ERR_CANCELED, 0, "runtime: the local memory was unregistered");
    if (failed(split))
        return false;
    /* At most one step beyond the count for each part: it cannot wrap. */
    number = atomic_fetch_add_explicit(&split->next, 1, memory_order_relaxed);
    if (number >= task->vector->piece_count)
        return false;
    fill_part(part, number);
    return true;
}

/*
 * Have the transport take the part's piece, or the next one. False: it has none, and the hold for
 * it is to be given back; @status_out is an error if the transport refused.
 */
static bool advance(struct ferry_split_part *part, enum ferry_status *status_out)
{
    if (!part->parked && !take_piece(part))
        return false;
    if (post(part, status_out))
        return true;
    if (*status_out == FERRY_ERR_QUEUE_FULL)
        part->parked = true;
    else
        note_failure(&part->task->vector->split, *status_out, 0,
                     "runtime: the transport refused a piece");
    return false;
}

static void part_ended(struct ferry_xfer *xfer)
{
    struct ferry_split_part *part = FERRY_CONTAINER_OF(xfer, struct ferry_split_part, xfer);
    struct ferry_task *task = part->task;
    struct ferry_split *split = &task->vector->split;
    enum ferry_status status = FERRY_OK;

    if (xfer->status == FERRY_OK) {
        atomic_fetch_add_explicit(&split->done, 1, memory_order_relaxed);
    } else {
        if (!xfer->unapplied)
            atomic_store_explicit(&split->touched, true, memory_order_relaxed);
        note_failure(split, xfer->status, xfer->native, xfer->where);
    }
    if (advance(part, &status))
        return;
    /* acq_rel: the last one to leave sees the counts and marks of all others. */
    if (atomic_fetch_sub_explicit(&split->holds, 1, memory_order_acq_rel) == 1)
        settle(task);
}

static void begin(struct ferry_task *task)
{
    struct ferry_vector *vector = task->vector;
    struct ferry_split *split = &vector->split;

    atomic_store(&split->next, 0);
    atomic_store(&split->done, 0);
    atomic_store(&split->touched, false);
    atomic_store(&split->status, FERRY_OK);
    atomic_store(&split->native, 0);
    atomic_store(&split->where, NULL);
    split->part_count = vector->piece_count < FERRY_SPLIT_PARTS ? vector->piece_count
                                                                : FERRY_SPLIT_PARTS;
    for (uint32_t i = 0; i < split->part_count; i++) {
        split->parts[i].task = task;
        split->parts[i].parked = false;
    }
}

enum ferry_status ferry_split_submit(struct ferry_task *task, bool may_end)
{
    struct ferry_split *split = &task->vector->split;
    enum ferry_status status = FERRY_OK;
    bool resumed = split->resume;
    bool taken = false;
    uint32_t ours; /* holds: of the parts that were not tried, or have nothing; and our own */
    uint32_t i;

    if (!resumed)
        begin(task);
    ours = split->part_count + 1;
    atomic_store(&split->holds, ours);
    for (i = 0; i < split->part_count && status == FERRY_OK; i++) {
        if (advance(&split->parts[i], &status)) {
            taken = true;
            ours--;
        }
    }
    if (atomic_fetch_sub_explicit(&split->holds, ours, memory_order_acq_rel) != ours)
        return FERRY_OK;
    if (!taken && status != FERRY_OK) {
        split->resume = resumed;
        return status;
    }
    /* What was taken is over already, or nothing was left to hand over. */
    if (may_end) {
        settle(task);
    } else {
        split->resume = true;
        ferry_retry_refused(task, FERRY_ERR_QUEUE_FULL);
    }
    return FERRY_OK;
}
