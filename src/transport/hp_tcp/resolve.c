/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about WRITEs whose answer was lost: see resolve.h. Decides nothing about connections:
 * the lane connects and closes, and tells what happened. Everything here is off the hot path; it
 * runs on the holder of the lane's baton.
 */
#include "transport/hp_tcp/resolve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

/* Connections begun for one question. */
#define TRIES_MAX 3u
/* Connections that may end with one WRITE as their oldest request before it is not sent again. */
#define ATTEMPTS_MAX 4u

#define LOST "hp_tcp: the answer to a WRITE was lost, and "

static void on_timer(struct ferry_timer *timer);

enum ferry_status ferry_hp_question_init(struct hp_lane *lane, uint32_t window_ops)
{
    struct hp_question *question = &lane->question;

    question->timer.fire = on_timer;
    question->room = window_ops;
    question->frame = malloc(FERRY_FRAME_LIST_OFFSET + (size_t)window_ops * FERRY_RESOLVE_SIZE);
    question->doubts = ferry_hp_doubts_create(window_ops);
    return question->frame != NULL && question->doubts != NULL ? FERRY_OK : FERRY_ERR_NO_MEMORY;
}

void ferry_hp_question_fini(struct hp_question *question)
{
    FERRY_DASSERT(question->doubts == NULL || question->doubts->range_count == 0);
    free(question->frame);
    free(question->doubts);
}

/* ---- ranges in doubt ---- */

static struct hp_doubted range_of(const struct hp_op *op)
{
    struct ferry_scatter span = ferry_hp_flow_span(op->flow, op->offset, op->length);

    return (struct hp_doubted){
        .addr = span.addr,
        .length = span.length,
        .request_id = op->request_id,
        .flow = op->flow,
    };
}

/* One that is in doubt still, or has ended without an answer. */
static bool is_open(const void *context, const struct hp_doubted *range)
{
    const struct hp_lane *lane = context;

    for (uint32_t i = lane->head; i != lane->tail && range->flow != NULL; i++) {
        const struct hp_op *op = &lane->ops[i & lane->op_mask];

        if (op->doubt != HP_DOUBT_NONE && op->request_id == range->request_id)
            return true;
    }
    return range->flow == NULL;
}

/* Nothing is asked any more. What nobody knows of is kept until its session is fenced. */
static void end_question(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct hp_question *question = &lane->question;

    ferry_reactor_disarm(ferry_hp_reactor(lane->worker), &question->timer);
    if (question->doubts == NULL || question->doubts->range_count == 0)
        return;
    if (question->fenced) {
        ferry_hp_doubts_clear(transport, question->doubts);
        return;
    }
    ferry_hp_doubts_leave(transport, question->doubts, question->named == question->doubts);
    question->doubts = ferry_hp_doubts_create(question->room); /* or later, if there is no memory */
}

bool ferry_hp_question_name(struct hp_lane *lane, uint64_t *session_id_out)
{
    struct hp_question *question = &lane->question;

    if (question->doubts == NULL)
        question->doubts = ferry_hp_doubts_create(question->room);
    if (question->doubts == NULL)
        return false;
    question->named = question->ops > 0
                          ? question->doubts
                          : ferry_hp_doubts_take(lane->peer->transport, lane->peer->incarnation);
    *session_id_out = question->named != NULL ? question->named->session_id : 0;
    return true;
}

void ferry_hp_question_fenced(struct hp_lane *lane)
{
    struct hp_question *question = &lane->question;
    struct hp_doubts *named = ferry_take_ptr(&question->named);

    if (named == NULL)
        return;
    lane->barren = 0; /* the peer did what was asked */
    if (named == question->doubts)
        question->fenced = true;
    else
        ferry_hp_doubts_clear(lane->peer->transport, named);
}

void ferry_hp_question_unname(struct hp_lane *lane)
{
    struct hp_doubts *named = ferry_take_ptr(&lane->question.named);

    if (named != NULL && named != lane->question.doubts)
        ferry_hp_doubts_give_back(lane->peer->transport, named);
}

/* ---- from a closed connection to a question ---- */

/* The session that is ending has agreed to be asked about. */
static bool askable(const struct hp_lane *lane)
{
    return lane->session_id != 0 && (lane->session_features & FERRY_FEATURE_RESOLVE) != 0;
}

void ferry_hp_question_note(struct hp_lane *lane)
{
    struct hp_question *question = &lane->question;
    struct hp_doubts *doubts = question->doubts;
    bool sending = ferry_op_inflight(&lane->tx);

    if (lane->state != HP_LANE_READY || !askable(lane))
        return;
    FERRY_ASSERT(doubts != NULL && doubts->range_count == 0);
    question->fenced = false;
    doubts->session_id = lane->session_id;
    memcpy(doubts->incarnation, lane->peer->incarnation, FERRY_INCARNATION_SIZE);
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        const struct hp_op *op = ferry_hp_lane_op(lane, i);
        bool touched = sending || (int32_t)(i - lane->sent) < 0 ||
                       (i == lane->sent && lane->tx_offset > 0);

        if (op->is_write && touched)
            doubts->ranges[doubts->range_count++] = range_of(op);
    }
    ferry_hp_doubts_publish(lane->peer->transport, doubts);
}

void ferry_hp_question_unknown(struct hp_lane *lane, const struct hp_op *op)
{
    if (askable(lane))
        ferry_hp_doubts_ended(lane->peer->transport, lane->question.doubts, op->request_id);
}

bool ferry_hp_question_take(struct hp_lane *lane, struct hp_op *op)
{
    struct hp_transport *transport = lane->peer->transport;
    struct hp_question *question = &lane->question;

    if (!askable(lane) || op->never_ask || atomic_load(&transport->closing) ||
        atomic_load(&lane->peer->retiring))
        return false;
    op->doubt = lane->reuse_after_close ? HP_DOUBT_AGAIN : HP_DOUBT_END;
    op->doubt_status = lane->close_status;
    op->doubt_where = lane->close_where;
    question->ops++;
    question->tries = 0;
    return true;
}

void ferry_hp_question_open(struct hp_lane *lane)
{
    struct hp_question *question = &lane->question;
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);
    uint64_t limit_ns = lane->peer->transport->settings.resolve_timeout_ns;

    question->asked = false;
    if (question->doubts != NULL)
        ferry_hp_doubts_filter(lane->peer->transport, question->doubts, is_open, lane);
    if (question->ops == 0)
        end_question(lane);
    if (question->ops == 0 || ferry_timer_armed(&question->timer))
        return;
    ferry_debug("hp_tcp", "WRITEs in doubt: peer=%s lane=%u count=%u", lane->peer->name,
                lane->index, question->ops);
    if (ferry_reactor_arm(reactor, &question->timer,
                          ferry_deadline_ns(ferry_reactor_now(reactor), limit_ns)) != FERRY_OK)
        ferry_hp_question_drop(lane, 0, LOST "there is no memory for a timer");
}

bool ferry_hp_question_again(const struct hp_lane *lane)
{
    return lane->question.ops > 0 && lane->question.tries < TRIES_MAX;
}

/* ---- the question ---- */

void ferry_hp_question_ask(struct hp_lane *lane)
{
    struct hp_question *question = &lane->question;
    uint8_t *list = question->frame + FERRY_FRAME_LIST_OFFSET;
    struct ferry_frame frame = {.type = FERRY_FRAME_RESOLVE};
    uint32_t count = 0;
    size_t size;

    if (question->asked || ferry_op_inflight(&lane->tx))
        return;
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        const struct hp_op *op = ferry_hp_lane_op(lane, i);

        if (op->doubt != HP_DOUBT_NONE)
            ferry_resolve_put(list, count++, op->request_id);
    }
    if (count == 0) {
        /* They have ended meanwhile: there is nothing to ask, and the rest may go. */
        ferry_hp_lane_established(lane);
        ferry_hp_lane_mark_dirty(lane);
        return;
    }
    frame.request_id = atomic_fetch_add_explicit(&lane->peer->transport->next_request_id, 1,
                                                 memory_order_relaxed);
    frame.list = (struct ferry_frame_list){list, count};
    size = ferry_frame_encode(question->frame,
                              FERRY_FRAME_LIST_OFFSET + (size_t)count * FERRY_RESOLVE_SIZE, &frame);
    FERRY_ASSERT(size > 0);
    question->asked = true;
    ferry_hp_lane_send_plain(lane, question->frame, size);
}

/* ---- the answer ---- */

/* What is to happen to one op, by the verdict on it. True: it stays, to be sent again. */
static bool stays(struct hp_lane *lane, struct hp_op *op, enum ferry_resolve_verdict verdict)
{
    struct hp_flow *flow = op->flow;
    struct ferry_xfer *xfer = flow->xfer;

    if (verdict == FERRY_RESOLVE_APPLIED) {
        ferry_hp_flow_chunk_done(flow);
        return false;
    }
    if (verdict != FERRY_RESOLVE_NOT_APPLIED) {
        ferry_hp_flow_fail(flow, FERRY_ERR_OUTCOME_UNKNOWN, 0,
                           LOST "the peer does not know whether it was applied");
        return false;
    }
    atomic_store_explicit(&flow->torn, true, memory_order_relaxed);
    if (op->doubt == HP_DOUBT_END)
        ferry_hp_flow_fail(flow, op->doubt_status, 0, op->doubt_where);
    else if (ferry_xfer_cancel_asked(xfer))
        ferry_hp_flow_fail(flow, FERRY_ERR_CANCELED, 0, "hp_tcp: canceled before it was applied");
    else if (xfer->deadline_ns <= ferry_reactor_now(ferry_hp_reactor(lane->worker)))
        ferry_hp_flow_fail(flow, FERRY_ERR_TIMED_OUT, ETIMEDOUT,
                           "hp_tcp: the deadline passed before it was applied");
    else if (op->attempts >= ATTEMPTS_MAX)
        ferry_hp_flow_fail(flow, FERRY_ERR_PEER_GONE, 0,
                           "hp_tcp: a WRITE was not applied on any of several connections");
    return !atomic_load_explicit(&flow->stopped, memory_order_relaxed);
}

/* The verdict on @request_id in an answer; one that is left out is not known. */
static enum ferry_resolve_verdict verdict_in(const struct ferry_frame *frame, uint64_t request_id)
{
    if (frame == NULL || frame->status != FERRY_FRAME_OK)
        return FERRY_RESOLVE_UNKNOWN;
    for (uint32_t i = 0; i < frame->list.count; i++) {
        struct ferry_resolved entry = ferry_resolved_get(&frame->list, i);

        if (entry.request_id == request_id)
            return entry.verdict;
    }
    return FERRY_RESOLVE_UNKNOWN;
}

static void count_verdict(struct hp_lane *lane, enum ferry_resolve_verdict verdict)
{
    _Atomic uint64_t *counters[] = {
        [FERRY_RESOLVE_UNKNOWN] = &lane->stats.resolved_unknown,
        [FERRY_RESOLVE_APPLIED] = &lane->stats.resolved_applied,
        [FERRY_RESOLVE_NOT_APPLIED] = &lane->stats.resolved_not_applied,
    };

    atomic_fetch_add_explicit(counters[verdict], 1, memory_order_relaxed);
}

/* End or keep every op in doubt; @frame NULL: all are unknown, as @where says. True: some moved. */
static bool settle(struct hp_lane *lane, const struct ferry_frame *frame, const char *where)
{
    struct hp_question *question = &lane->question;
    uint32_t ends[3] = {0};
    uint32_t kept = lane->head;

    /* Before a flow goes: its memory may be another one's at once. */
    question->ops = 0;
    end_question(lane);
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct hp_op op = *ferry_hp_lane_op(lane, i);
        enum ferry_resolve_verdict verdict;

        if (op.doubt != HP_DOUBT_NONE) {
            verdict = verdict_in(frame, op.request_id);
            ends[verdict]++;
            count_verdict(lane, verdict);
            if (where != NULL)
                ferry_hp_flow_fail(op.flow, FERRY_ERR_OUTCOME_UNKNOWN, lane->close_native, where);
            if (!stays(lane, &op, verdict)) {
                lane->inflight_bytes -= op.length;
                ferry_hp_flow_drop(op.flow);
                continue;
            }
            op.doubt = HP_DOUBT_NONE;
            atomic_fetch_add_explicit(&lane->stats.resends, 1, memory_order_relaxed);
        }
        *ferry_hp_lane_op(lane, kept++) = op;
    }
    lane->tail = kept;
    lane->sent = lane->head;
    ferry_info("hp_tcp",
               "the peer was asked about WRITEs whose answer was lost: peer=%s lane=%u applied=%u "
               "not_applied=%u unknown=%u",
               lane->peer->name, lane->index, ends[FERRY_RESOLVE_APPLIED],
               ends[FERRY_RESOLVE_NOT_APPLIED], ends[FERRY_RESOLVE_UNKNOWN]);
    return ends[FERRY_RESOLVE_APPLIED] > 0;
}

void ferry_hp_question_answer(struct hp_lane *lane, const struct ferry_frame *frame)
{
    bool moved;

    lane->close_native = frame->status;
    moved = settle(
        lane, frame,
        frame->status == FERRY_FRAME_OK ? NULL : LOST "the peer knows nothing of that connection");

    ferry_hp_lane_established(lane);
    /* Only what moved is progress: a peer that answers questions and no request is given up. */
    if (moved)
        lane->barren = 0;
}

void ferry_hp_question_drop(struct hp_lane *lane, int32_t native, const char *where)
{
    if (lane->question.ops == 0)
        return;
    lane->close_native = native;
    settle(lane, NULL, where);
}

void ferry_hp_question_forget(struct hp_lane *lane, struct hp_op *op, const char *where)
{
    struct hp_transport *transport = lane->peer->transport;
    struct hp_question *question = &lane->question;

    if (!question->fenced)
        ferry_hp_doubts_ended(transport, question->doubts, op->request_id);
    ferry_hp_flow_fail(op->flow, FERRY_ERR_OUTCOME_UNKNOWN, 0, where);
    op->doubt = HP_DOUBT_NONE;
    count_verdict(lane, FERRY_RESOLVE_UNKNOWN);
    ferry_hp_doubts_filter(transport, question->doubts, is_open, lane);
    if (--question->ops == 0)
        end_question(lane);
}

static void on_timer(struct ferry_timer *timer)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(timer, struct hp_lane, question.timer);
    struct hp_worker *worker = lane->worker;

    ferry_hp_question_drop(lane, ETIMEDOUT,
                           LOST "the peer did not say within resolve_timeout_ms what became of it");
    /* An answer that comes yet would be to nothing. */
    if (lane->state == HP_LANE_ASKING)
        ferry_hp_lane_broke(lane, ETIMEDOUT, "hp_tcp: the peer did not answer a question");
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}
