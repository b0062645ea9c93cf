/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of a lane: answers come in the order of the requests. Many small ones arrive
 * in one staging receive and are copied; a large payload is received straight into the caller's
 * memory. A lane always has a receive posted while it is connected, so two pipelined directions
 * cannot deadlock and the end of a stream is seen at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"
#include "transport/hp_tcp/sums.h"

/* The longest header that is taken: the answer to a question about the largest window there is. */
#define REPLY_HEADER_MAX 8192u

/* One answer, whichever codec it came in. */
struct reply {
    enum ferry_status status;
    int32_t native;
    bool closes;       /* the stream ends with it */
    uint32_t checksum; /* of the payload that follows, where checksums are in force */
};

static uint32_t stage_have(const struct hp_lane *lane)
{
    return lane->stage_end - lane->stage_begin;
}

/* ---- what to receive next ---- */

static uint32_t reply_header_bytes(const struct hp_lane *lane)
{
    return lane->peer->speaks_ferry ? FERRY_FRAME_FIXED_SIZE : FERRY_V1_RESPONSE_SIZE;
}

/*
 * How much to take into staging: up to the place where a large payload begins, so that it can go
 * straight to its destination; all there is room for if none is expected. On an idle lane the
 * latest request tells what the next one will be like.
 */
static uint32_t stage_budget(const struct hp_lane *lane)
{
    uint32_t header = reply_header_bytes(lane);
    uint32_t room = HP_STAGE_BYTES - lane->stage_end;
    uint64_t want = lane->payload_left;
    bool large = lane->head == lane->tail && lane->latest_large;

    if (large)
        want = header;
    for (uint32_t i = lane->head + (lane->payload_left > 0 ? 1 : 0);
         i != lane->tail && want < room && !large; i++) {
        const struct hp_op *op = &lane->ops[i & lane->op_mask];

        want += header;
        large = ferry_hp_op_direct(op);
        if (!op->is_write && !large)
            want += op->length;
    }
    if (!large)
        return room;
    want = want > stage_have(lane) ? want - stage_have(lane) : 0;
    if (want < header)
        want = header;
    return want < room ? (uint32_t)want : room;
}

static void on_received(struct ferry_op *rx, int64_t result);

static void receive_direct(struct hp_lane *lane)
{
    struct hp_op *op = ferry_hp_lane_op(lane, lane->head);

    lane->rx_direct = true;
    if (op->orphan) {
        lane->rx.buf = lane->worker->sink;
        lane->rx.len = lane->payload_left < HP_SINK_BYTES ? lane->payload_left : HP_SINK_BYTES;
        lane->rx.min_bytes = 0;
        return;
    }
    lane->rx.min_bytes = lane->payload_left < HP_RECV_STEP ? lane->payload_left : HP_RECV_STEP;
    if (op->local == NULL) {
        uint64_t covered;

        lane->rx.kind = FERRY_OP_RECVV;
        lane->rx.iov = lane->rx_iov;
        lane->rx.iov_count = ferry_hp_pieces_iov(
            ferry_hp_flow_pieces(op->flow), op->offset + lane->payload_done, lane->payload_left,
            lane->rx_iov, HP_IOV_MAX, &covered);
        if (lane->rx.min_bytes > covered)
            lane->rx.min_bytes = covered;
        return;
    }
    lane->rx.buf = op->local + lane->payload_done;
    lane->rx.len = lane->payload_left;
}

static void receive_staged(struct hp_lane *lane)
{
    if (lane->stage_begin > 0) {
        memmove(lane->stage, lane->stage + lane->stage_begin, stage_have(lane));
        lane->stage_end -= lane->stage_begin;
        lane->stage_begin = 0;
    }
    lane->rx_direct = false;
    lane->rx.buf = lane->stage + lane->stage_end;
    lane->rx.len = stage_budget(lane);
    lane->rx.min_bytes = 0;
}

void ferry_hp_lane_receive(struct hp_lane *lane)
{
    if (ferry_op_inflight(&lane->rx))
        return;
    lane->rx.kind = FERRY_OP_RECV;
    if (lane->payload_left > HP_COPY_MAX && stage_have(lane) == 0 &&
        ferry_hp_op_direct(ferry_hp_lane_op(lane, lane->head)))
        receive_direct(lane);
    else
        receive_staged(lane);
    lane->rx.done = on_received;
    lane->rx.io = &lane->io;
    lane->rx_progress_seen = 0;
    ferry_reactor_submit(ferry_hp_reactor(lane->worker), &lane->rx);
}

/* ---- headers ---- */

static void protocol_error(struct hp_lane *lane, const char *where)
{
    ferry_hp_peer_set_trouble(lane->peer, "%s:%u broke the protocol: %s", lane->via->endpoint->host,
                              lane->via->endpoint->port, where);
    ferry_hp_lane_close(lane, FERRY_ERR_PROTOCOL, 0, where);
}

static bool read_v1(struct hp_lane *lane, struct reply *reply_out)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, lane->head);
    struct ferry_v1_response response;
    struct ferry_v1_request request = {
        .opcode = op->is_write ? FERRY_V1_WRITE : FERRY_V1_READ,
        .request_id = op->request_id,
        .length = op->length,
    };
    enum ferry_v1_verdict verdict = ferry_v1_response_decode(lane->stage + lane->stage_begin,
                                                             stage_have(lane), &response);

    if (verdict != FERRY_V1_VALID) {
        protocol_error(lane, ferry_v1_verdict_text(verdict));
        return false;
    }
    lane->stage_begin += FERRY_V1_RESPONSE_SIZE;
    reply_out->status = ferry_v1_response_check(&response, &request);
    reply_out->native = (int32_t)response.status;
    reply_out->closes = reply_out->status != FERRY_OK;
    return true;
}

/* An answer to a request in ferry's own frames. */
static bool read_reply_frame(struct hp_lane *lane, const struct ferry_frame *frame,
                             struct reply *reply_out)
{
    const struct hp_op *op;
    uint8_t wanted;

    if (lane->head == lane->tail) {
        protocol_error(lane, "an answer came that nobody asked for");
        return false;
    }
    op = ferry_hp_lane_op(lane, lane->head);
    wanted = op->is_write ? FERRY_FRAME_WRITE_REPLY : FERRY_FRAME_READ_REPLY;
    if (frame->type != wanted || frame->request_id != op->request_id) {
        protocol_error(lane, "an answer does not belong to the oldest request");
        return false;
    }
    reply_out->status = frame->status == FERRY_FRAME_OK ? FERRY_OK
                                                        : ferry_frame_status_map(frame->status);
    reply_out->native = frame->status;
    reply_out->closes = frame->status != FERRY_FRAME_OK &&
                        (frame->flags & FERRY_FLAG_NO_CLOSE) == 0;
    if (reply_out->status == FERRY_OK && frame->length != op->length) {
        protocol_error(lane, "an answer has another length than its request");
        return false;
    }
    reply_out->checksum = frame->checksum;
    if (reply_out->status == FERRY_OK && !op->is_write &&
        ((frame->flags & FERRY_FLAG_CHECKSUM) != 0) != ferry_hp_lane_sums(lane)) {
        protocol_error(lane, "a payload with a checksum that was not agreed on, or without one");
        return false;
    }
    return true;
}

void ferry_hp_lane_greeted(struct hp_lane *lane)
{
    /* The peer answers a greeting when the session it names can touch memory no more. */
    ferry_hp_question_fenced(lane);
    if (lane->question.ops > 0 && (lane->session_features & FERRY_FEATURE_RESOLVE) != 0) {
        ferry_hp_lane_advance(lane, HP_LANE_ASKING);
        return;
    }
    ferry_hp_question_drop(lane, 0,
                           "hp_tcp: the answer to a WRITE was lost, and the peer takes no "
                           "questions");
    ferry_hp_lane_established(lane);
}

static void greeted(struct hp_lane *lane, const struct ferry_frame *frame, const uint8_t *wire,
                    uint32_t wire_bytes)
{
    if (frame->type == FERRY_FRAME_CHALLENGE) {
        ferry_hp_lane_challenged(lane, frame, wire, wire_bytes);
        return;
    }
    if (frame->type == FERRY_FRAME_PROOF) {
        ferry_hp_lane_proved(lane, frame);
        return;
    }
    if (frame->type != FERRY_FRAME_HELLO_REPLY) {
        protocol_error(lane, "the first frame is no greeting");
        return;
    }
    if (frame->status == FERRY_FRAME_AUTH) {
        ferry_hp_lane_turned_away(lane);
        return;
    }
    if (frame->status == FERRY_FRAME_TLS_DUE) {
        ferry_hp_lane_tls_due(lane);
        return;
    }
    if (frame->status != FERRY_FRAME_OK) {
        ferry_hp_peer_set_trouble(lane->peer, "%s:%u refused the greeting with status %u",
                                  lane->via->endpoint->host, lane->via->endpoint->port,
                                  frame->status);
        ferry_hp_lane_close(lane, ferry_frame_status_map(frame->status), frame->status,
                            "hp_tcp: the peer refused the greeting");
        return;
    }
    if (memcmp(frame->hello_reply.incarnation, lane->peer->incarnation, FERRY_INCARNATION_SIZE) !=
        0) {
        /* Another life of the peer: what we know about its memory is void. */
        ferry_hp_lane_close(lane, FERRY_ERR_STALE_KEY, 0, "hp_tcp: the peer has restarted");
        return;
    }
    lane->session_id = frame->hello_reply.session_id;
    lane->session_features = frame->hello_reply.features & HP_FEATURES;
    lane->session_max_transfer = frame->hello_reply.max_transfer_bytes;
    if (frame->hello_reply.window_ops < lane->window_ops)
        lane->window_ops = frame->hello_reply.window_ops;
    if (frame->hello_reply.window_bytes < lane->window_bytes)
        lane->window_bytes = frame->hello_reply.window_bytes;
    if (ferry_hp_lane_access_reply(lane, wire, wire_bytes))
        ferry_hp_lane_greeted(lane);
}

/* The first and only answer before READY is the one to the question. */
static void resolved(struct hp_lane *lane, const struct ferry_frame *frame)
{
    if (frame->type != FERRY_FRAME_RESOLVE_REPLY || !lane->question.asked) {
        protocol_error(lane, "an answer to a question is due, and something else came");
        return;
    }
    if (frame->status != FERRY_FRAME_OK && (frame->flags & FERRY_FLAG_NO_CLOSE) == 0) {
        ferry_hp_lane_broke(lane, frame->status, "hp_tcp: the peer closes after a question");
        return;
    }
    ferry_hp_question_answer(lane, frame);
}

/*
 * One frame of ferry's own. False: more bytes are needed, or the lane is closing, or the frame was
 * not an answer (then *again_out says to look at the next one).
 */
static bool read_frame(struct hp_lane *lane, struct reply *reply_out, bool *again_out)
{
    const uint8_t *bytes = lane->stage + lane->stage_begin;
    struct ferry_frame frame;
    uint32_t need;
    enum ferry_frame_verdict verdict = ferry_frame_peek(bytes, stage_have(lane), &need);

    *again_out = false;
    if (verdict == FERRY_FRAME_VALID && need > REPLY_HEADER_MAX)
        verdict = FERRY_FRAME_HEADER_SIZE;
    if (verdict == FERRY_FRAME_VALID && need > stage_have(lane))
        return false;
    if (verdict == FERRY_FRAME_VALID)
        verdict = ferry_frame_decode(bytes, stage_have(lane), &frame);
    if (verdict != FERRY_FRAME_VALID) {
        protocol_error(lane, ferry_frame_verdict_text(verdict));
        return false;
    }
    lane->stage_begin += need;
    if (lane->state == HP_LANE_GREETING) {
        greeted(lane, &frame, bytes, need);
        *again_out = lane->state == HP_LANE_READY || lane->state == HP_LANE_GREETING;
        return false;
    }
    if (lane->state == HP_LANE_ASKING && frame.type != FERRY_FRAME_CREDIT) {
        resolved(lane, &frame);
        *again_out = lane->state == HP_LANE_READY;
        return false;
    }
    if (frame.type == FERRY_FRAME_GOODBYE || frame.type == FERRY_FRAME_CREDIT) {
        lane->peer_closing |= frame.type == FERRY_FRAME_GOODBYE;
        *again_out = true;
        return false;
    }
    return read_reply_frame(lane, &frame, reply_out);
}

/* What is said of a request that ends with this answer. */
static const char *where_of(enum ferry_status status)
{
    if (status == FERRY_OK)
        return NULL;
    return status == FERRY_ERR_CHECKSUM ? "hp_tcp: the payload of a WRITE arrived damaged"
                                        : "hp_tcp: refused by the peer";
}

/* An answer was read. True: go on parsing. */
static bool apply(struct hp_lane *lane, const struct reply *reply)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, lane->head);

    lane->barren = 0;
    bool whole = (int32_t)(lane->head - lane->sent) < 0;

    if (!whole && (reply->status == FERRY_OK || !reply->closes)) {
        protocol_error(lane, "an answer came before its request was sent");
        return false;
    }
    if (reply->status == FERRY_OK && !op->is_write) {
        lane->payload_left = op->length;
        lane->payload_done = 0;
        lane->payload_sum = reply->checksum;
        lane->payload_crc = 0;
        return true;
    }
    if (reply->closes) {
        /*
         * Towards v1 a received error to this request proves that nothing after it was applied;
         * what is left goes on the next connection. Its own body may still be on the way: it must
         * not end before the sending side has retired, so it is settled with the connection.
         */
        if (op->is_write && ferry_op_inflight(&lane->tx)) {
            ferry_hp_lane_close(lane, reply->status, reply->native, "hp_tcp: refused by the peer");
            lane->refused_first = true;
        } else {
            ferry_hp_lane_op_done(lane, reply->status, reply->native,
                                  "hp_tcp: refused by the peer");
            ferry_hp_lane_close(lane, FERRY_ERR_PEER_GONE, 0,
                                "hp_tcp: the peer closes after an error");
        }
        lane->reuse_after_close = true;
        lane->keep_queue = true;
        lane->rest_unapplied = reply->status != FERRY_ERR_OUTCOME_UNKNOWN &&
                               reply->status != FERRY_ERR_PROTOCOL;
        return false;
    }
    if (reply->status == FERRY_ERR_CHECKSUM)
        atomic_fetch_add_explicit(&lane->stats.damaged, 1, memory_order_relaxed);
    ferry_hp_lane_op_done(lane, reply->status, reply->native, where_of(reply->status));
    return true;
}

/* ---- payload ---- */

/* All of it has arrived. An orphan's bytes were thrown away. */
static void payload_complete(struct hp_lane *lane)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, lane->head);

    if (!ferry_hp_lane_sums(lane) || op->orphan || lane->payload_crc == lane->payload_sum) {
        ferry_hp_lane_op_done(lane, FERRY_OK, 0, NULL);
        return;
    }
    atomic_fetch_add_explicit(&lane->stats.damaged, 1, memory_order_relaxed);
    ferry_warn("hp_tcp", "%" PRIu64 " bytes from %s:%u arrived damaged: their CRC-32C differs",
               op->length, lane->via->endpoint->host, lane->via->endpoint->port);
    ferry_hp_lane_op_done(lane, FERRY_ERR_CHECKSUM, 0,
                          "hp_tcp: the payload of a READ arrived damaged");
}

static void payload_advance(struct hp_lane *lane, uint64_t bytes)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, lane->head);

    FERRY_ASSERT(bytes <= lane->payload_left);
    /* They have just arrived in their memory, and are still in the cache. */
    if (FERRY_UNLIKELY(ferry_hp_lane_sums(lane)) && !op->orphan)
        lane->payload_crc = ferry_hp_op_crc(op, lane->payload_done, bytes, lane->payload_crc);
    lane->payload_left -= bytes;
    lane->payload_done += bytes;
    atomic_fetch_add_explicit(&lane->stats.bytes_read, bytes, memory_order_relaxed);
    if (lane->payload_left == 0)
        payload_complete(lane);
}

static void payload_from_stage(struct hp_lane *lane)
{
    const struct hp_op *op = ferry_hp_lane_op(lane, lane->head);
    uint64_t take = stage_have(lane) < lane->payload_left ? stage_have(lane) : lane->payload_left;

    if (!op->orphan && op->local != NULL)
        memcpy(op->local + lane->payload_done, lane->stage + lane->stage_begin, take);
    else if (!op->orphan)
        ferry_hp_pieces_fill(ferry_hp_flow_pieces(op->flow), op->offset + lane->payload_done,
                             lane->stage + lane->stage_begin, take);
    lane->stage_begin += (uint32_t)take;
    payload_advance(lane, take);
}

static void parse(struct hp_lane *lane)
{
    while (lane->state == HP_LANE_READY || lane->state == HP_LANE_GREETING ||
           lane->state == HP_LANE_ASKING) {
        struct reply reply = {0};
        bool again = false;
        bool got;

        if (lane->payload_left > 0) {
            if (stage_have(lane) == 0)
                return;
            payload_from_stage(lane);
            continue;
        }
        if (lane->peer->speaks_ferry) {
            if (stage_have(lane) < FERRY_FRAME_FIXED_SIZE)
                return;
            got = read_frame(lane, &reply, &again);
        } else {
            if (stage_have(lane) == 0)
                return;
            if (lane->head == lane->tail) {
                protocol_error(lane, "an answer came that nobody asked for");
                return;
            }
            if (stage_have(lane) < FERRY_V1_RESPONSE_SIZE)
                return;
            got = read_v1(lane, &reply);
        }
        if (!got && !again)
            return;
        if (got && !apply(lane, &reply))
            return;
    }
}

/* The owner of a READ gave it up while the kernel was writing into its memory; now it is not. */
static void settle_orphan(struct hp_lane *lane)
{
    struct hp_op *op;

    if (!lane->orphan_pending)
        return;
    lane->orphan_pending = false;
    if (lane->head == lane->tail)
        return;
    op = ferry_hp_lane_op(lane, lane->head);
    if (op->orphan || lane->payload_left == 0)
        return;
    op->orphan = true;
    ferry_hp_flow_drop(op->flow);
}

static void on_received(struct ferry_op *rx, int64_t result)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(rx, struct hp_lane, rx);
    struct hp_worker *worker = lane->worker;
    bool open = lane->state == HP_LANE_READY || lane->state == HP_LANE_GREETING ||
                lane->state == HP_LANE_ASKING;

    if (result > 0) {
        lane->progress_ns = ferry_reactor_now(ferry_hp_reactor(worker));
        if (!lane->rx_direct)
            lane->stage_end += (uint32_t)result;
        else if (open)
            payload_advance(lane, (uint64_t)result);
    }
    if (open && result == 0)
        ferry_hp_lane_lost(lane, 0, "hp_tcp: the peer closed the connection");
    else if (open && result < 0 && !(result == -ECANCELED && lane->orphan_pending))
        ferry_hp_lane_lost(lane, (int32_t)-result, "hp_tcp: receiving failed");
    settle_orphan(lane);
    parse(lane);
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}
