/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes: the life of one persistent connection to a peer, its queue, its timers and its end. What
 * is sent is in lane_tx.c, what is received in lane_rx.c, how it comes about in lane_connect.c.
 *
 * Everything runs on the holder of the worker's baton. No function here settles an op while the
 * kernel may still touch its memory: closing only cancels, and lane_closed() runs once both
 * directions have retired.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

/* Connections in a row that end without an answer to anything before the lane gives up. */
#define BARREN_MAX 3u

/* Connections on which some of a READ may be asked for. */
#define READ_TRIES       2u
#define READ_TRIES_RAILS 8u

/* Indexed by the present state; one bit per state that may follow it. */
#define TO(state) (1u << HP_LANE_##state)
static const uint8_t lane_next[HP_LANE_STATE_COUNT] = {
    [HP_LANE_IDLE] = TO(RESOLVING) | TO(CONNECTING),
    [HP_LANE_RESOLVING] = TO(CONNECTING) | TO(CLOSING),
    [HP_LANE_CONNECTING] = TO(CONNECTING) | TO(SECURING) | TO(GREETING) | TO(READY) | TO(CLOSING),
    [HP_LANE_SECURING] = TO(GREETING) | TO(CLOSING),
    [HP_LANE_GREETING] = TO(ASKING) | TO(READY) | TO(CLOSING),
    [HP_LANE_ASKING] = TO(READY) | TO(CLOSING),
    [HP_LANE_READY] = TO(CLOSING),
    [HP_LANE_CLOSING] = TO(IDLE),
};
#undef TO

/* The only writer of lane->state. */
void ferry_hp_lane_advance(struct hp_lane *lane, enum hp_lane_state next)
{
    FERRY_ASSERT(lane_next[lane->state] & (1u << next));
    lane->state = next;
}

/* ---- queue ---- */

void ferry_hp_lane_mark_dirty(struct hp_lane *lane)
{
    if (ferry_list_empty(&lane->dirty_link))
        ferry_list_push_back(&lane->worker->dirty, &lane->dirty_link);
}

void ferry_hp_lane_enqueue(struct hp_lane *lane, struct hp_ref *ref)
{
    struct hp_flow *flow = ref->flow;
    struct hp_worker *worker = lane->worker;
    uint64_t deadline_ns = flow->xfer->deadline_ns;

    if (ferry_list_empty(&lane->worker_link))
        ferry_list_push_back(&worker->lanes, &lane->worker_link);
    if (atomic_load(&worker->transport->closing)) {
        ferry_hp_flow_fail(flow, FERRY_ERR_CLOSING, 0, "hp_tcp: the engine is closing");
        ferry_hp_flow_release(flow);
    }
    atomic_store(&ref->state, HP_REF_QUEUED);
    ferry_hp_queue_push(lane, ref);
    if (deadline_ns < FERRY_NO_DEADLINE &&
        (!ferry_timer_armed(&worker->deadline_timer) ||
         worker->deadline_timer.deadline_ns > deadline_ns) &&
        ferry_reactor_arm(ferry_hp_reactor(worker), &worker->deadline_timer, deadline_ns) !=
            FERRY_OK)
        ferry_hp_flow_fail(flow, FERRY_ERR_NO_MEMORY, 0, "hp_tcp: no memory for a timer");
    /* The scan that the cancel relies on may have been in the inbox before this ref, and be over.
     */
    if (ferry_xfer_cancel_asked(flow->xfer))
        ferry_hp_worker_post_scan(worker);
    ferry_hp_lane_mark_dirty(lane);
}

void ferry_hp_worker_flush(struct hp_worker *worker)
{
    struct ferry_list *link;

    /* A pump may mark other lanes, or this one again; the list is drained, not walked. */
    while ((link = ferry_list_pop_front(&worker->dirty)) != NULL)
        ferry_hp_lane_pump(FERRY_CONTAINER_OF(link, struct hp_lane, dirty_link));
}

/*
 * This lane has no way to the peer. A flow that another lane can still pull from, or that has
 * nothing left to pull, goes on without it; the others fail.
 */
static void fail_queue(struct ferry_list *queue, enum ferry_status status, int32_t native,
                       const char *where)
{
    while (!ferry_list_empty(queue)) {
        ferry_hp_ref_give_up(FERRY_CONTAINER_OF(queue->next, struct hp_ref, link), status, native,
                             where);
    }
}

static void fail_queues(struct hp_lane *lane, enum ferry_status status, int32_t native,
                        const char *where)
{
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        fail_queue(&lane->queues[rank], status, native, where);
}

/* ---- ops ---- */

/*
 * The last chunk is done, and lanes that never got to it (still connecting, or full) still refer to
 * the flow: have them look, so that it does not wait for them. The caller's hold keeps it alive.
 */
void ferry_hp_flow_release(struct hp_flow *flow)
{
    for (uint32_t i = 0; i < flow->ref_count; i++)
        ferry_hp_worker_post_scan(ferry_hp_ref_lane(&flow->refs[i])->worker);
}

void ferry_hp_flow_chunk_done(struct hp_flow *flow)
{
    if (atomic_fetch_add(&flow->chunks_done, 1) + 1 == flow->chunk_count &&
        atomic_load(&flow->refs_left) > 0)
        ferry_hp_flow_release(flow);
}

void ferry_hp_lane_op_done(struct hp_lane *lane, enum ferry_status status, int32_t native,
                           const char *where)
{
    struct hp_op *op = ferry_hp_lane_op(lane, lane->head);
    struct hp_flow *flow = op->flow;

    FERRY_DASSERT(lane->head != lane->tail);
    lane->head++;
    if ((int32_t)(lane->sent - lane->head) < 0) {
        lane->sent = lane->head;
        lane->tx_offset = 0;
    }
    lane->inflight_bytes -= op->length;
    lane->sealed += 2 + op->length / HP_TLS_RECORD;
    if (op->is_write)
        lane->write_outstanding = false;
    atomic_fetch_add_explicit(&lane->stats.ops, 1, memory_order_relaxed);
    if (op->orphan)
        return;
    if (status == FERRY_OK) {
        ferry_hp_flow_chunk_done(flow);
    } else {
        ferry_hp_flow_fail(flow, status, native, where);
        if (atomic_load(&flow->refs_left) > 0)
            ferry_hp_flow_release(flow);
    }
    ferry_hp_flow_drop(flow);
}

/*
 * What becomes of one op of a connection that is gone. True: it stays, to be sent on the next one.
 * A READ is sent again, once; where rails may fail in turn, a few times. A WRITE of which a byte
 * may have left is asked about, if the peer can be asked; it is never sent again without an answer.
 */
static bool survives(struct hp_lane *lane, struct hp_op *op, bool touched)
{
    if (op->doubt != HP_DOUBT_NONE)
        return true; /* of an earlier connection; this one was to ask about it */
    if (op->is_write && touched)
        return ferry_hp_question_take(lane, op);
    if (!lane->reuse_after_close || op->orphan ||
        atomic_load_explicit(&op->flow->stopped, memory_order_relaxed))
        return false;
    return !touched || op->attempts < (lane->peer->rail_count > 1 ? READ_TRIES_RAILS : READ_TRIES);
}

/* What its rail's end left over goes to other lanes, if there are any: it need not wait for this.
 */
static bool goes_elsewhere(struct hp_lane *lane, const struct hp_op *op)
{
    return lane->rail_broke && op->doubt == HP_DOUBT_NONE && ferry_hp_lane_instead(lane) != lane &&
           ferry_hp_lane_return(lane, op);
}

static void settle_op(struct hp_lane *lane, struct hp_op *op, bool touched)
{
    enum ferry_status status = lane->close_status;
    const char *where = lane->close_where;

    lane->inflight_bytes -= op->length;
    if (op->orphan)
        return;
    if (op->is_write && touched && !lane->rest_unapplied) {
        status = FERRY_ERR_OUTCOME_UNKNOWN;
        ferry_hp_question_unknown(lane, op);
    }
    ferry_hp_flow_fail(op->flow, status, lane->close_native, where);
    ferry_hp_flow_drop(op->flow);
}

/* The op that an error answer was for, kept until its own body had stopped leaving. */
static void settle_refused(struct hp_lane *lane, struct hp_op *op)
{
    lane->inflight_bytes -= op->length;
    if (!op->orphan) {
        ferry_hp_flow_fail(op->flow, lane->close_status, lane->close_native, lane->close_where);
        ferry_hp_flow_drop(op->flow);
    }
    lane->close_status = FERRY_ERR_PEER_GONE;
}

/* Why nobody will ever know, for the end of a question that could not be put. */
static const char *why_unknown(const struct hp_lane *lane)
{
    if (lane->close_status == FERRY_ERR_STALE_KEY)
        return "hp_tcp: the answer to a WRITE was lost, and the peer has restarted since";
    if (lane->close_status == FERRY_ERR_CLOSING)
        return "hp_tcp: the answer to a WRITE was lost, and the engine is closing";
    if (lane->close_status == FERRY_ERR_PEER_GONE && lane->close_native == ECONNREFUSED)
        return "hp_tcp: the answer to a WRITE was lost, and nobody answers at the published "
               "address any more";
    return "hp_tcp: the answer to a WRITE was lost, and the peer could not be asked about it";
}

/* Settle or keep each op of the closed connection; what is kept moves to the front of the window.
 */
static void settle_ops(struct hp_lane *lane)
{
    uint32_t first = lane->head;
    uint32_t kept = first;

    if (!lane->ask_again)
        ferry_hp_question_drop(lane, lane->close_native, why_unknown(lane));
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct hp_op *op = ferry_hp_lane_op(lane, i);
        bool touched = (int32_t)(i - lane->sent) < 0 || (i == lane->sent && lane->tx_offset > 0);

        if (i == lane->head && lane->refused_first) {
            settle_refused(lane, op);
            continue;
        }
        if (touched && lane->rest_unapplied) {
            /* It was never looked at, for no fault of its own: a try that does not count. */
            touched = false;
            op->attempts = 0;
        }
        if (touched && i != first && op->attempts > 0)
            op->attempts--; /* it was behind another one, of which the connection may have ended */
        if (!survives(lane, op, touched)) {
            settle_op(lane, op, touched);
            continue;
        }
        if (touched && !op->is_write)
            atomic_fetch_add_explicit(&lane->stats.resends, 1, memory_order_relaxed);
        ferry_hp_lane_forget_list(lane, op);
        if (goes_elsewhere(lane, op)) {
            lane->inflight_bytes -= op->length;
            continue;
        }
        if (kept != i)
            *ferry_hp_lane_op(lane, kept) = *op;
        kept++;
    }
    lane->tail = kept;
    lane->sent = lane->head;
    lane->tx_offset = 0;
    lane->lists_pending = 0;
    lane->lists_used = 0;
    lane->write_outstanding = false;
    for (uint32_t i = lane->head; i != lane->tail; i++)
        lane->write_outstanding |= ferry_hp_lane_op(lane, i)->is_write;
    ferry_hp_question_open(lane);
}

/* ---- closing ---- */

void ferry_hp_lane_close(struct hp_lane *lane, enum ferry_status status, int32_t native,
                         const char *where)
{
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);

    if (lane->state == HP_LANE_IDLE || lane->state == HP_LANE_CLOSING)
        return;
    ferry_hp_question_note(lane);
    ferry_hp_lane_advance(lane, HP_LANE_CLOSING);
    lane->close_status = status;
    lane->close_native = native;
    lane->close_where = where;
    if (ferry_op_inflight(&lane->rx))
        ferry_reactor_cancel(reactor, &lane->rx);
    if (ferry_op_inflight(&lane->tx))
        ferry_reactor_cancel(reactor, &lane->tx);
    if (lane->lookup != NULL)
        ferry_lookup_release(ferry_take_ptr(&lane->lookup));
    ferry_reactor_disarm(reactor, &lane->timer);
    ferry_hp_lane_mark_dirty(lane);
}

/* Both directions have retired: nothing of this connection can touch memory any more. */
static void lane_closed(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;

    if (lane->io.fd >= 0) {
        ferry_hp_drop_socket(ferry_hp_reactor(lane->worker), transport->net, &lane->io);
    }
    ferry_debug("hp_tcp", "lane closed: %s peer=%s lane=%u native=%d", lane->close_where,
                lane->peer->name, lane->index, lane->close_native);
    ferry_hp_lane_unhold(lane);
    if (atomic_load(&transport->closing) || atomic_load(&lane->peer->retiring)) {
        /* Nothing goes on on a next connection, whatever this one ended of. */
        lane->reuse_after_close = false;
        lane->keep_queue = false;
        lane->ask_again = false;
        fail_queues(lane, FERRY_ERR_CLOSING, 0, "hp_tcp: the engine is closing");
    }
    if (lane->barren >= BARREN_MAX) {
        /* It connects and never answers: that is no way to the peer. */
        ferry_hp_rail_event(lane, FERRY_RAIL_FAILED, "connections on it are never answered");
        lane->rail_broke = ferry_hp_lane_avoided(lane);
        lane->reuse_after_close = lane->rail_broke;
        lane->keep_queue = lane->rail_broke;
        lane->close_status = FERRY_ERR_PEER_GONE;
        lane->barren = 0;
    }
    /* A probe that ended without a word about the rail, for want of a descriptor or of manners. */
    if (lane->probing && atomic_load(&lane->rail->state) == FERRY_RAIL_PROBING)
        ferry_hp_rail_event(lane, FERRY_RAIL_FAILED, lane->close_where);
    ferry_hp_question_unname(lane);
    settle_ops(lane);
    if (!lane->keep_queue) {
        fail_queues(lane, lane->close_status, lane->close_native, lane->close_where);
    }
    lane->stage_begin = 0;
    lane->stage_end = 0;
    lane->payload_left = 0;
    lane->payload_done = 0;
    lane->rx_direct = false;
    lane->orphan_pending = false;
    lane->peer_closing = false;
    lane->renewing = false;
    lane->fencing = false;
    lane->refused_first = false;
    lane->rest_unapplied = false;
    lane->reuse_after_close = false;
    lane->keep_queue = false;
    lane->ask_again = false;
    lane->rail_broke = false;
    lane->probing = false;
    lane->session_id = 0;
    lane->session_features = 0;
    ferry_hp_lane_advance(lane, HP_LANE_IDLE);
    ferry_hp_live_drop(transport);
}

/* A connection broke (end of stream, reset): what is safe to repeat goes on on the next one. */
void ferry_hp_lane_broke(struct hp_lane *lane, int32_t native, const char *where)
{
    bool was_ready = lane->state == HP_LANE_READY || lane->state == HP_LANE_ASKING;

    if (ferry_hp_lane_alerted(lane, native))
        return;
    if (lane->state == HP_LANE_SECURING || lane->state == HP_LANE_GREETING ||
        lane->state == HP_LANE_ASKING)
        lane->ask_again = ferry_hp_question_again(lane);
    if (was_ready || lane->ask_again || lane->rail_broke) {
        lane->reuse_after_close = true;
        lane->keep_queue = true;
        atomic_fetch_add_explicit(&lane->stats.failures, lane->head != lane->tail,
                                  memory_order_relaxed);
    }
    if (lane->state == HP_LANE_GREETING)
        where = "hp_tcp: the peer closed the connection before it greeted: it is full, or gone";
    ferry_hp_lane_close(lane, FERRY_ERR_PEER_GONE, native, where);
}

void ferry_hp_lane_lost(struct hp_lane *lane, int32_t native, const char *where)
{
    bool stood = lane->state == HP_LANE_READY || lane->state == HP_LANE_ASKING;

    /* The end of a connection that nobody uses says nothing about its rail. */
    if (stood && lane->head != lane->tail) {
        ferry_hp_rail_event(lane, FERRY_RAIL_BROKE, where);
        lane->rail_broke = lane->peer->rail_count > 1;
    }
    ferry_hp_lane_broke(lane, native, where);
}

static void retire(struct hp_lane *lane)
{
    if (!ferry_list_empty(&lane->worker_link))
        ferry_list_remove(&lane->worker_link);
    ferry_list_remove(&lane->dirty_link);
    ferry_reactor_disarm(ferry_hp_reactor(lane->worker), &lane->timer);
    ferry_hp_lane_retired(lane);
}

static void run_retire(struct ferry_worker *worker, struct ferry_job *job)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(job, struct hp_lane, retire_job);
    struct hp_worker *hp = lane->worker;

    (void)worker;
    lane->retire_asked = true;
    ferry_hp_lane_close(lane, FERRY_ERR_CLOSING, 0, "hp_tcp: the segment was closed");
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(hp);
}

/*
 * Work connects the lane, unless its rail is down and there are others: then the work goes to them,
 * and the rail is tried without any. Only a question is put over whichever rail is up.
 */
static void pump_idle(struct hp_lane *lane)
{
    bool avoided = ferry_hp_lane_avoided(lane);

    if (atomic_load(&lane->peer->transport->closing)) {
        fail_queues(lane, FERRY_ERR_CLOSING, 0, "hp_tcp: the engine is closing");
    } else if (avoided) {
        ferry_hp_lane_strand(lane);
    }
    if (avoided ? lane->head != lane->tail : ferry_hp_lane_has_work(lane))
        ferry_hp_lane_connect(lane);
    else if (lane->peer->rail_count > 1 && !ferry_hp_rail_usable(lane->rail))
        ferry_hp_lane_await_probe(lane);
}

/* Pull what the window has room for. A lane that is to be kept away from ends what it has. */
static void fill(struct hp_lane *lane)
{
    bool avoided = ferry_hp_lane_avoided(lane);

    if (avoided)
        ferry_hp_lane_strand(lane);
    if (!avoided && lane->via == lane->rail) {
        ferry_hp_lane_unpark(lane);
        ferry_hp_lane_fill(lane);
    } else if (lane->head == lane->tail && !ferry_op_inflight(&lane->tx)) {
        lane->keep_queue = true;
        lane->reuse_after_close = true;
        ferry_hp_lane_close(lane, FERRY_ERR_PATH_DOWN, 0, "hp_tcp: its rail is down");
    }
}

/* Something is under way; what waits for a range in doubt is not, and has no progress to make. */
static bool busy(const struct hp_lane *lane)
{
    return lane->head != lane->sent || lane->tx_offset > 0 || ferry_op_inflight(&lane->tx);
}

void ferry_hp_lane_pump(struct hp_lane *lane)
{
    if (lane->state == HP_LANE_CLOSING && !ferry_op_inflight(&lane->rx) &&
        !ferry_op_inflight(&lane->tx))
        lane_closed(lane);
    if (lane->state == HP_LANE_IDLE) {
        /* Not on the strength of the peer's mark: the lane's own job must be out of the inbox. */
        if (lane->retire_asked) {
            retire(lane);
            return;
        }
        /* Stopped flows need no connection to end. */
        ferry_hp_lane_prune(lane);
        pump_idle(lane);
    }
    if (lane->state == HP_LANE_READY) {
        lane->renewing |= ferry_hp_lane_worn(lane);
        fill(lane);
        ferry_hp_lane_send(lane);
    }
    if (lane->state == HP_LANE_READY && lane->fencing && !busy(lane)) {
        lane->keep_queue = true;
        lane->reuse_after_close = true;
        ferry_hp_lane_close(lane, FERRY_ERR_PATH_DOWN, 0,
                            "hp_tcp: a session that ended has to be fenced");
    }
    if (lane->state == HP_LANE_READY && (lane->peer_closing || lane->renewing) &&
        lane->head == lane->tail) {
        lane->keep_queue = true;
        ferry_hp_lane_close(lane, FERRY_ERR_PEER_CLOSING, 0,
                            lane->peer_closing ? "hp_tcp: the peer said goodbye"
                                               : "hp_tcp: the keys of TLS are renewed");
    }
    if (lane->state == HP_LANE_ASKING)
        ferry_hp_question_ask(lane);
    if (lane->state == HP_LANE_READY || lane->state == HP_LANE_GREETING ||
        lane->state == HP_LANE_ASKING)
        ferry_hp_lane_receive(lane);
    if (lane->state == HP_LANE_READY)
        ferry_hp_lane_touch_timer(lane);
}

/* ---- time ---- */

/* When to look whether the path of a connection is dead that makes no progress; rails only. */
static uint64_t path_due_ns(const struct hp_lane *lane)
{
    uint64_t quiet_ns = lane->peer->transport->settings.rail_timeout_ms * FERRY_NS_PER_MS;
    uint64_t due = ferry_deadline_ns(lane->progress_ns, quiet_ns);

    if (lane->peer->rail_count == 1 || !busy(lane))
        return FERRY_NEVER_NS;
    return due > lane->path_due_ns ? due : lane->path_due_ns;
}

static uint64_t due_ns(struct hp_lane *lane)
{
    const struct ferry_hp_settings *settings = &lane->peer->transport->settings;
    uint64_t due = ferry_deadline_ns(lane->progress_ns, busy(lane) ? settings->progress_timeout_ns
                                                                   : settings->idle_timeout_ns);

    if (path_due_ns(lane) < due)
        due = path_due_ns(lane);
    if (lane->head != lane->tail) {
        uint64_t total = ferry_deadline_ns(ferry_hp_lane_op(lane, lane->head)->begun_ns,
                                           settings->total_timeout_ns);

        if (total < due)
            due = total;
    }
    return due;
}

/*
 * One timer per lane, never re-armed by progress: when it fires early it looks and sleeps on. It is
 * armed anew only when something is due sooner than it would fire.
 */
void ferry_hp_lane_touch_timer(struct hp_lane *lane)
{
    uint64_t due = due_ns(lane);

    if (ferry_timer_armed(&lane->timer) && lane->timer.deadline_ns <= due)
        return;
    if (ferry_reactor_arm(ferry_hp_reactor(lane->worker), &lane->timer, due) != FERRY_OK)
        ferry_hp_lane_close(lane, FERRY_ERR_NO_MEMORY, 0, "hp_tcp: no memory for a timer");
}

/* Bytes that arrived inside a receive which is not complete yet are progress too. */
static void note_partial_progress(struct hp_lane *lane, uint64_t now_ns)
{
    uint64_t partial = ferry_op_inflight(&lane->rx) ? lane->rx.progress : 0;

    if (partial > lane->rx_progress_seen)
        lane->progress_ns = now_ns;
    lane->rx_progress_seen = partial;
}

/*
 * Nothing has come for a while. The system knows whether the peer still answers it: one that is
 * slow, or stopped, keeps its connection; a path on which nothing comes back does not. Two looks,
 * since a sign of life may be on its way at the moment of one.
 */
static bool path_dead(struct hp_lane *lane, uint64_t now_ns)
{
    struct hp_transport *transport = lane->peer->transport;
    uint32_t timeout_ms = transport->settings.rail_timeout_ms;

    if (now_ns > lane->path_due_ns + timeout_ms * FERRY_NS_PER_MS / 4)
        lane->path_strikes = 0; /* the latest look was about something else */
    if (ferry_net_path_dead(transport->net, lane->io.fd, timeout_ms))
        lane->path_strikes++;
    else
        lane->path_strikes = 0;
    lane->path_due_ns = now_ns + timeout_ms * FERRY_NS_PER_MS / 8;
    return lane->path_strikes >= 2;
}

static void path_died(struct hp_lane *lane)
{
    static const char why[] = "hp_tcp: nothing comes back on a connection within rail_timeout_ms";

    ferry_hp_rail_event(lane, FERRY_RAIL_SILENT, why);
    lane->rail_broke = true;
    ferry_hp_lane_broke(lane, ETIMEDOUT, why);
}

/* Connected, and TLS, a greeting or the answer to a question is due. */
static void unready_timer(struct hp_lane *lane, uint64_t now_ns)
{
    uint64_t due;

    if (lane->peer->rail_count > 1 && now_ns < lane->greet_until_ns) {
        if (path_dead(lane, now_ns)) {
            path_died(lane);
            return;
        }
        due = lane->path_due_ns < lane->greet_until_ns ? lane->path_due_ns : lane->greet_until_ns;
        if (ferry_reactor_arm(ferry_hp_reactor(lane->worker), &lane->timer, due) == FERRY_OK)
            return;
    }
    if (lane->state == HP_LANE_ASKING)
        ferry_hp_lane_broke(lane, ETIMEDOUT, "hp_tcp: the peer did not answer a question");
    else
        ferry_hp_lane_attempt_failed(lane, ETIMEDOUT);
}

static void ready_timer(struct hp_lane *lane, uint64_t now_ns)
{
    const struct ferry_hp_settings *settings = &lane->peer->transport->settings;

    note_partial_progress(lane, now_ns);
    if (path_due_ns(lane) <= now_ns && path_dead(lane, now_ns)) {
        path_died(lane);
    } else if (due_ns(lane) > now_ns) {
        ferry_hp_lane_touch_timer(lane);
    } else if (busy(lane)) {
        bool paused = ferry_deadline_ns(lane->progress_ns, settings->progress_timeout_ns) <= now_ns;

        ferry_hp_lane_close(lane, FERRY_ERR_TIMED_OUT, ETIMEDOUT,
                            paused ? "hp_tcp: the peer made no progress within progress_timeout_ms"
                                   : "hp_tcp: the request took longer than total_timeout_ms");
    } else {
        /* A request that comes before the callbacks have retired goes on on the next one. */
        lane->keep_queue = true;
        lane->reuse_after_close = true;
        ferry_hp_lane_close(lane, FERRY_ERR_PATH_DOWN, 0, "hp_tcp: idle");
    }
}

static void on_timer(struct ferry_timer *timer)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(timer, struct hp_lane, timer);
    struct hp_worker *worker = lane->worker;
    uint64_t now = ferry_reactor_now(ferry_hp_reactor(worker));

    if (lane->state == HP_LANE_RESOLVING || lane->state == HP_LANE_CONNECTING)
        ferry_hp_lane_attempt_failed(lane, ETIMEDOUT);
    else if (lane->state == HP_LANE_SECURING || lane->state == HP_LANE_GREETING ||
             lane->state == HP_LANE_ASKING)
        unready_timer(lane, now);
    else if (lane->state == HP_LANE_READY)
        ready_timer(lane, now);
    else if (lane->state == HP_LANE_IDLE)
        ferry_hp_lane_probe(lane);
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}

void ferry_hp_lane_init(struct hp_lane *lane, struct hp_peer *peer, uint32_t index,
                        struct hp_worker *worker)
{
    lane->peer = peer;
    lane->rail = &peer->rails[index % peer->rail_count];
    lane->via = lane->rail;
    lane->worker = worker;
    lane->index = index;
    lane->io.fd = -1;
    lane->timer.fire = on_timer;
    lane->retire_job.run = run_retire;
    ferry_list_init(&lane->worker_link);
    ferry_list_init(&lane->dirty_link);
    ferry_hp_queue_init(lane);
    ferry_list_init(&lane->held_queue);
}
