/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that somebody no longer wants: cancelled, past its deadline, or on memory that is being
 * taken back. Cold path: each worker looks through its lanes when it is asked to. What is queued
 * ends at once; a READ in flight is disowned (its owner is free, late bytes go to the sink); a
 * posted WRITE ends as what really happens, unless its memory is revoked: then its connection is
 * closed.
 */
#include <errno.h>

#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

enum verdict {
    KEEP,
    CANCELED,
    EXPIRED,
    REVOKED,
};

static enum verdict judge(struct hp_lane *lane, const struct hp_flow *flow, uint64_t now_ns)
{
    const struct ferry_xfer *xfer = flow->xfer;

    if (ferry_hp_xfer_revoked(lane->peer->transport, xfer))
        return REVOKED;
    if (ferry_xfer_cancel_asked(xfer))
        return CANCELED;
    return xfer->deadline_ns <= now_ns ? EXPIRED : KEEP;
}

static void stop(struct hp_flow *flow, enum verdict verdict)
{
    if (verdict == EXPIRED)
        ferry_hp_flow_fail(flow, FERRY_ERR_TIMED_OUT, ETIMEDOUT, "hp_tcp: the deadline passed");
    else
        ferry_hp_flow_fail(flow, FERRY_ERR_CANCELED, 0,
                           verdict == REVOKED ? "hp_tcp: its memory was unregistered"
                                              : "hp_tcp: canceled");
}

static void scan_queue(struct hp_lane *lane, struct ferry_list *queue, uint64_t now_ns)
{
    struct ferry_list *link = queue->next;

    while (link != queue) {
        struct hp_ref *ref = FERRY_CONTAINER_OF(link, struct hp_ref, link);
        enum verdict verdict;

        link = link->next;
        verdict = judge(lane, ref->flow, now_ns);
        if (verdict != KEEP && !ferry_hp_flow_claimed(ref->flow))
            stop(ref->flow, verdict);
        if (verdict != KEEP || ferry_hp_ref_spent(ref))
            ferry_hp_ref_leave(ref);
    }
}

/* The present receive writes into the memory of ops[head]. */
static bool receiving_into(const struct hp_lane *lane, uint32_t index)
{
    return index == lane->head && lane->rx_direct && ferry_op_inflight(&lane->rx);
}

static void disown(struct hp_lane *lane, uint32_t index)
{
    struct hp_op *op = ferry_hp_lane_op(lane, index);

    if (receiving_into(lane, index)) {
        if (!lane->orphan_pending)
            ferry_reactor_cancel(ferry_hp_reactor(lane->worker), &lane->rx);
        lane->orphan_pending = true;
        return;
    }
    op->orphan = true;
    ferry_hp_flow_drop(op->flow);
}

/* Take an op that was not sent at all out of the window; the ones behind it move up. */
static void remove_unsent(struct hp_lane *lane, uint32_t index)
{
    struct hp_flow *flow = ferry_hp_lane_op(lane, index)->flow;

    ferry_hp_lane_forget_list(lane, ferry_hp_lane_op(lane, index));
    lane->inflight_bytes -= ferry_hp_lane_op(lane, index)->length;
    for (uint32_t i = index; i + 1 != lane->tail; i++)
        *ferry_hp_lane_op(lane, i) = *ferry_hp_lane_op(lane, i + 1);
    lane->tail--;
    lane->write_outstanding = false;
    for (uint32_t i = lane->head; i != lane->tail; i++)
        lane->write_outstanding |= ferry_hp_lane_op(lane, i)->is_write;
    ferry_hp_flow_drop(flow);
}

/* Nothing of the op has left, and no send in flight may still take it. */
static bool unsent(struct hp_lane *lane, uint32_t index)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, index);

    /* Before READY the sending side connects and greets: it has none of the ops. */
    bool sending = lane->state == HP_LANE_READY && ferry_op_inflight(&lane->tx);

    /* A header with a list is encoded for the send that takes it: no send has this op, or any that
     * comes after it. And nothing could encode it once its flow is gone. */
    if (ferry_hp_op_has_list(op) && op->list_at == 0)
        return true;
    return (int32_t)(index - lane->sent) >= 0 && !sending &&
           (index != lane->sent || lane->tx_offset == 0);
}

/* The same while the connection closes: a send that is being cancelled may yet say it took some. */
static bool maybe_touched(const struct hp_lane *lane, uint32_t index)
{
    return (int32_t)(index - lane->sent) < 0 || ferry_op_inflight(&lane->tx) ||
           (index == lane->sent && lane->tx_offset > 0);
}

/*
 * A posted WRITE ends as what really happened, which its answer or a question tells. Memory that is
 * being taken back has no time for a question.
 */
static void scan_posted_write(struct hp_op *op, enum verdict verdict)
{
    op->never_ask |= verdict == REVOKED;
    if (verdict == REVOKED || !ferry_hp_flow_claimed(op->flow))
        stop(op->flow, verdict);
}

/* In the same way a WRITE in doubt waits for the end of its question, which has a limit. */
static bool scan_doubt(struct hp_lane *lane, uint32_t index, enum verdict verdict)
{
    if (verdict != REVOKED)
        return false;
    ferry_hp_question_forget(lane, ferry_hp_lane_op(lane, index),
                             "hp_tcp: the answer to a WRITE was lost, and its memory was "
                             "unregistered before the peer could be asked");
    remove_unsent(lane, index);
    return true;
}

/* True if the entry is gone and the next one stands in its place. */
static bool scan_op(struct hp_lane *lane, uint32_t index, uint64_t now_ns)
{
    struct hp_op *op = ferry_hp_lane_op(lane, index);
    enum verdict verdict;

    if (op->orphan)
        return false;
    verdict = judge(lane, op->flow, now_ns);
    if (verdict == KEEP)
        return false;
    if (op->doubt != HP_DOUBT_NONE)
        return scan_doubt(lane, index, verdict);
    if (lane->state == HP_LANE_CLOSING) {
        /* It ends with the connection, and does not go on on the next one. */
        if (op->is_write && maybe_touched(lane, index))
            scan_posted_write(op, verdict);
        else
            stop(op->flow, verdict);
        return false;
    }
    if (unsent(lane, index)) {
        stop(op->flow, verdict);
        remove_unsent(lane, index);
        return true;
    }
    if (!op->is_write) {
        stop(op->flow, verdict);
        disown(lane, index);
    } else {
        scan_posted_write(op, verdict);
        if (verdict == REVOKED)
            ferry_hp_lane_broke(lane, 0, "hp_tcp: memory of a WRITE in flight was unregistered");
    }
    return false;
}

void ferry_hp_lane_scan(struct hp_lane *lane, uint64_t now_ns)
{
    uint32_t i;

    ferry_hp_lane_poll_lookup(lane);
    ferry_hp_lane_unhold(lane);
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        scan_queue(lane, &lane->queues[rank], now_ns);
    i = lane->head;
    while (i != lane->tail) {
        if (!scan_op(lane, i, now_ns))
            i++;
    }
    ferry_hp_lane_mark_dirty(lane);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t queue_deadline(const struct ferry_list *queue)
{
    uint64_t deadline = FERRY_NO_DEADLINE;

    for (const struct ferry_list *l = queue->next; l != queue; l = l->next)
        deadline = earlier(
            deadline, FERRY_CONTAINER_OF(l, const struct hp_ref, link)->flow->xfer->deadline_ns);
    return deadline;
}

uint64_t ferry_hp_lane_next_deadline(const struct hp_lane *lane, uint64_t now_ns)
{
    uint64_t deadline = FERRY_NO_DEADLINE;

    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        deadline = earlier(deadline, queue_deadline(&lane->queues[rank]));
    deadline = earlier(deadline, queue_deadline(&lane->held_queue));
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        const struct hp_op *op = &lane->ops[i & lane->op_mask];

        /* One that has passed is in hand already. */
        if (!op->orphan && op->flow->xfer->deadline_ns > now_ns)
            deadline = earlier(deadline, op->flow->xfer->deadline_ns);
    }
    return deadline;
}
