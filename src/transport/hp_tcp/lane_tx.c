/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a lane: pull chunks from the queue into the window, and send what waits in
 * one vectored call. Small requests go first, between the chunks of large ones; large flows take
 * turns. Payload leaves straight from the caller's memory.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"
#include "transport/hp_tcp/sums.h"

/* Bytes put into one send: enough for a full pipe, little enough to keep small ones close. */
#define SEND_BYTES_MAX (4u << 20)

/* Where a request without a list begins at the peer, and by which registration. */
static struct ferry_scatter remote_of(const struct hp_op *op, uint32_t *count_out)
{
    const struct hp_flow *flow = op->flow;
    struct ferry_scatter remote = {
        .addr = flow->xfer->remote_addr + op->offset,
        .length = op->length,
        .registration_id = flow->registration_id,
    };

    *count_out = 1;
    if (flow->xfer->pieces != NULL)
        *count_out = ferry_hp_pieces_remotes(ferry_hp_flow_pieces(flow), op->offset, op->length,
                                             NULL, &remote);
    return remote;
}

static struct ferry_frame frame_of(const struct hp_op *op)
{
    return (struct ferry_frame){
        .type = op->is_write ? FERRY_FRAME_WRITE : FERRY_FRAME_READ,
        .priority = (uint8_t)op->flow->xfer->priority,
        .request_id = op->request_id,
        .length = op->length,
    };
}

/*
 * The header has to say what the payload's checksum is, and does not. That waits until it is about
 * to leave: it costs a pass over the payload, and brings it into the cache that the kernel copies
 * from.
 */
static bool needs_sum(const struct hp_lane *lane, const struct hp_op *op)
{
    return op->is_write && !op->summed && FERRY_UNLIKELY(ferry_hp_lane_sums(lane));
}

static void add_sum(struct hp_op *op, struct ferry_frame *frame)
{
    frame->flags |= FERRY_FLAG_CHECKSUM;
    frame->checksum = ferry_hp_op_crc(op, 0, op->length, 0);
    op->summed = true;
}

/* A header of ferry's without a list. */
static void encode_frame(struct hp_op *op, const struct ferry_scatter *remote,
                         struct ferry_frame *frame)
{
    size_t size;

    frame->registration_id = remote->registration_id;
    frame->remote_addr = remote->addr;
    size = ferry_frame_encode(op->header, sizeof(op->header), frame);
    FERRY_ASSERT(size == FERRY_FRAME_FIXED_SIZE);
    op->header_bytes = (uint16_t)size;
}

/* One with a list is only measured: its header is encoded when it is about to leave. */
static void encode(struct hp_lane *lane, struct hp_op *op)
{
    uint32_t count;
    struct ferry_scatter remote = remote_of(op, &count);

    op->list_at = 0;
    op->summed = false;
    if (count > 1) {
        FERRY_ASSERT(count <= FERRY_SCATTER_COUNT_MAX);
        op->header_bytes = (uint16_t)(FERRY_FRAME_LIST_OFFSET + count * FERRY_SCATTER_SIZE);
    } else if (lane->peer->speaks_ferry) {
        struct ferry_frame frame = frame_of(op);

        encode_frame(op, &remote, &frame);
    } else {
        struct ferry_v1_request request = {
            .opcode = op->is_write ? FERRY_V1_WRITE : FERRY_V1_READ,
            .request_id = op->request_id,
            .registration_id = remote.registration_id,
            .remote_addr = remote.addr,
            .length = op->length,
        };

        ferry_v1_request_encode(&request, op->header);
        op->header_bytes = FERRY_V1_REQUEST_SIZE;
    }
}

/*
 * Encode a header with its list behind those that wait to be sent; there it stays, whatever becomes
 * of the flow, until it is sent. False: there is no room before some of them are.
 */
static bool encode_list(struct hp_lane *lane, struct hp_op *op)
{
    uint8_t *at = lane->lists + lane->lists_used;
    struct ferry_frame frame = frame_of(op);
    uint32_t count;
    size_t size;

    if (op->list_at != 0)
        return true;
    if (op->header_bytes > HP_LISTS_BYTES - lane->lists_used)
        return false;
    count = ferry_hp_pieces_remotes(ferry_hp_flow_pieces(op->flow), op->offset, op->length,
                                    at + FERRY_FRAME_LIST_OFFSET, NULL);
    frame.flags = FERRY_FLAG_SCATTER;
    if (needs_sum(lane, op))
        add_sum(op, &frame);
    frame.list = (struct ferry_frame_list){at + FERRY_FRAME_LIST_OFFSET, count};
    size = ferry_frame_encode(at, op->header_bytes, &frame);
    FERRY_ASSERT(size == op->header_bytes);
    op->list_at = (uint16_t)(lane->lists_used + 1);
    lane->lists_used += op->header_bytes;
    lane->lists_pending++;
    return true;
}

/* The header of a WRITE without a list, again, with the checksum. */
static void encode_sum(struct hp_op *op)
{
    struct ferry_frame frame = frame_of(op);
    uint32_t count;
    struct ferry_scatter remote = remote_of(op, &count);

    FERRY_DASSERT(count == 1);
    add_sum(op, &frame);
    encode_frame(op, &remote, &frame);
}

void ferry_hp_lane_forget_list(struct hp_lane *lane, struct hp_op *op)
{
    if (op->list_at == 0)
        return;
    op->list_at = 0;
    if (lane->lists_pending > 0 && --lane->lists_pending == 0)
        lane->lists_used = 0;
}

static void push_op(struct hp_lane *lane, struct hp_flow *flow, uint32_t chunk, uint8_t attempts)
{
    struct hp_op *op = ferry_hp_lane_op(lane, lane->tail);
    bool vectored = flow->xfer->pieces != NULL;

    op->flow = flow;
    op->chunk = chunk;
    op->length = ferry_hp_flow_chunk_length(flow, chunk);
    op->offset = ferry_hp_flow_chunk_offset(flow, chunk);
    op->local = vectored ? NULL : flow->xfer->local + op->offset;
    op->staged = vectored &&
                 ferry_hp_pieces_small(ferry_hp_flow_pieces(flow), op->offset, op->length);
    op->is_write = flow->xfer->opcode == FERRY_WRITE;
    op->orphan = false;
    op->never_ask = false;
    op->doubt = HP_DOUBT_NONE;
    op->attempts = attempts;
    op->begun_ns = ferry_reactor_now(ferry_hp_reactor(lane->worker));
    op->request_id = atomic_fetch_add_explicit(&flow->transport->next_request_id, 1,
                                               memory_order_relaxed);
    encode(lane, op);
    if (lane->head == lane->tail)
        lane->progress_ns = op->begun_ns;
    lane->tail++;
    lane->inflight_bytes += op->length;
    lane->latest_large = ferry_hp_op_direct(op);
    if (op->is_write)
        lane->write_outstanding = true;
}

static void stop_if_asked(struct hp_lane *lane, struct hp_flow *flow)
{
    /* What is posted ends as what really happens. */
    if (ferry_hp_flow_claimed(flow))
        return;
    if (ferry_xfer_cancel_asked(flow->xfer))
        ferry_hp_flow_fail(flow, FERRY_ERR_CANCELED, 0, "hp_tcp: canceled before it was posted");
    else if (flow->xfer->deadline_ns <= ferry_reactor_now(ferry_hp_reactor(lane->worker)))
        ferry_hp_flow_fail(flow, FERRY_ERR_TIMED_OUT, 0,
                           "hp_tcp: the deadline passed in the queue");
}

/* Room for one more request? The first always fits; v1 sends nothing behind a WRITE. */
static bool has_room(const struct hp_lane *lane)
{
    if (lane->peer_closing || lane->renewing || lane->fencing)
        return false;
    if (lane->head == lane->tail)
        return true;
    if (lane->write_outstanding && !lane->peer->speaks_ferry)
        return false;
    return lane->tail - lane->head < lane->window_ops && lane->inflight_bytes < lane->window_bytes;
}

/* ---- ranges in doubt ---- */

/*
 * As long as bytes of an earlier WRITE whose answer was lost may land, later ones to the same place
 * wait; where nobody else sees to that, this lane connects anew. One relaxed load as long as
 * nothing is in doubt.
 */
static bool must_wait(struct hp_lane *lane, const struct hp_flow *flow, uint64_t offset,
                      uint64_t length)
{
    struct ferry_scatter span = ferry_hp_flow_span(flow, offset, length);
    struct hp_doubted wanted = {.addr = span.addr, .length = span.length, .flow = flow};
    enum hp_wait wait = ferry_hp_doubts_wait(lane->peer->transport, lane->peer->incarnation,
                                             &wanted);

    lane->fencing |= wait == HP_WAIT_FENCE;
    return wait != HP_WAIT_NOT;
}

static bool doubts(const struct hp_lane *lane)
{
    return FERRY_UNLIKELY(
        atomic_load_explicit(&lane->peer->transport->doubt_count, memory_order_relaxed) != 0);
}

/* True: the ref was put aside, as a whole: which chunk it would get is not known before. */
static bool hold(struct hp_lane *lane, struct hp_ref *ref)
{
    const struct ferry_xfer *xfer = ref->flow->xfer;

    if (xfer->opcode != FERRY_WRITE || ferry_hp_ref_spent(ref) ||
        !must_wait(lane, ref->flow, 0, xfer->length))
        return false;
    ferry_list_remove(&ref->link);
    ferry_list_push_back(&lane->held_queue, &ref->link);
    return true;
}

void ferry_hp_lane_unhold(struct hp_lane *lane)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&lane->held_queue)) != NULL)
        ferry_hp_queue_push(lane, FERRY_CONTAINER_OF(link, struct hp_ref, link));
}

/* The same for a WRITE that waits in the window, after a connection that ended before it left. */
static bool op_waits(struct hp_lane *lane, const struct hp_op *op, bool begun)
{
    /* A READ may have outlived its flow. */
    return op->is_write && !begun && must_wait(lane, op->flow, op->offset, op->length);
}

void ferry_hp_lane_renumber(struct hp_lane *lane)
{
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct hp_op *op = ferry_hp_lane_op(lane, i);

        op->request_id = atomic_fetch_add_explicit(&lane->peer->transport->next_request_id, 1,
                                                   memory_order_relaxed);
        ferry_hp_lane_forget_list(lane, op);
        encode(lane, op);
    }
}

void ferry_hp_lane_fill(struct hp_lane *lane)
{
    struct hp_ref *ref;

    while (has_room(lane) && (ref = ferry_hp_queue_next(lane)) != NULL) {
        struct hp_flow *flow = ref->flow;
        uint32_t chunk;
        uint8_t attempts;

        stop_if_asked(lane, flow);
        if (doubts(lane) && hold(lane, ref))
            continue;
        if (flow->xfer->pieces != NULL && !flow->singly &&
            (lane->session_features & FERRY_FEATURE_SCATTER) == 0)
            ferry_hp_flow_fail(flow, FERRY_ERR_UNSUPPORTED, 0,
                               "hp_tcp: the peer takes no lists of pieces");
        if (ferry_hp_ref_claim(ref, &chunk, &attempts))
            push_op(lane, flow, chunk, attempts);
        if (ferry_hp_ref_spent(ref)) {
            ferry_hp_ref_leave(ref);
            continue;
        }
        ferry_hp_queue_rotate(lane, ref);
    }
}

static void prune_queue(struct hp_lane *lane, struct ferry_list *queue)
{
    struct ferry_list *link = queue->next;

    while (link != queue) {
        struct hp_ref *ref = FERRY_CONTAINER_OF(link, struct hp_ref, link);

        link = link->next;
        stop_if_asked(lane, ref->flow);
        if (ferry_hp_ref_spent(ref))
            ferry_hp_ref_leave(ref);
    }
}

void ferry_hp_lane_prune(struct hp_lane *lane)
{
    prune_queue(lane, &lane->held_queue);
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        prune_queue(lane, &lane->queues[rank]);
}

/* The payload of a WRITE from byte @skip on. Returns the pieces used; *bytes_out what they hold. */
static uint32_t gather_payload(const struct hp_op *op, uint64_t skip, struct iovec *iov,
                               uint32_t iov_max, uint64_t *bytes_out)
{
    if (op->local == NULL)
        return ferry_hp_pieces_iov(ferry_hp_flow_pieces(op->flow), op->offset + skip,
                                   op->length - skip, iov, iov_max, bytes_out);
    *bytes_out = op->length - skip;
    iov->iov_base = op->local + skip;
    iov->iov_len = op->length - skip;
    return 1;
}

/* Describe what waits, from ops[sent] at tx_offset on. Returns the number of pieces. */
static uint32_t gather(struct hp_lane *lane)
{
    uint64_t skip = lane->tx_offset;
    uint64_t bytes = 0;
    uint32_t count = 0;

    for (uint32_t i = lane->sent; i != lane->tail; i++) {
        struct hp_op *op = ferry_hp_lane_op(lane, i);
        uint64_t covered;

        if (count + 2 > HP_IOV_MAX || bytes >= SEND_BYTES_MAX)
            break;
        if (doubts(lane) && op_waits(lane, op, skip > 0))
            break;
        if (ferry_hp_op_has_list(op) && !encode_list(lane, op))
            break;
        if (needs_sum(lane, op))
            encode_sum(op);
        if (skip < op->header_bytes) {
            uint8_t *header = op->list_at != 0 ? lane->lists + (op->list_at - 1) : op->header;

            lane->iov[count].iov_base = header + skip;
            lane->iov[count].iov_len = op->header_bytes - skip;
            bytes += lane->iov[count++].iov_len;
            skip = 0;
        } else {
            skip -= op->header_bytes;
        }
        if (op->is_write) {
            count += gather_payload(op, skip, &lane->iov[count], HP_IOV_MAX - count, &covered);
            bytes += covered;
            if (covered < op->length - skip)
                break;
        }
        skip = 0;
    }
    return count;
}

/* Payload among the first @bytes of a WRITE as it leaves. */
static uint64_t payload_in(const struct hp_op *op, uint64_t bytes)
{
    return bytes > op->header_bytes ? bytes - op->header_bytes : 0;
}

static void on_sent(struct ferry_op *tx, int64_t result)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(tx, struct hp_lane, tx);
    struct hp_worker *worker = lane->worker;
    uint64_t left = result > 0 ? (uint64_t)result : 0;

    if (left > 0)
        lane->progress_ns = ferry_reactor_now(ferry_hp_reactor(worker));
    while (left > 0 && lane->sent != lane->tail) {
        struct hp_op *op = ferry_hp_lane_op(lane, lane->sent);
        uint64_t whole = op->header_bytes + (op->is_write ? op->length : 0);
        uint64_t step = whole - lane->tx_offset < left ? whole - lane->tx_offset : left;

        if (lane->tx_offset == 0)
            op->attempts++;
        if (op->is_write)
            atomic_fetch_add_explicit(&lane->stats.bytes_written,
                                      payload_in(op, lane->tx_offset + step) -
                                          payload_in(op, lane->tx_offset),
                                      memory_order_relaxed);
        left -= step;
        lane->tx_offset += step;
        if (lane->tx_offset == whole) {
            if (op->list_at != 0 && --lane->lists_pending == 0)
                lane->lists_used = 0;
            lane->sent++;
            lane->tx_offset = 0;
        }
    }
    if (result < 0 && lane->state == HP_LANE_READY)
        ferry_hp_lane_lost(lane, (int32_t)-result, "hp_tcp: sending failed");
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}

void ferry_hp_lane_send(struct hp_lane *lane)
{
    uint32_t count;

    if (ferry_op_inflight(&lane->tx))
        return;
    count = gather(lane);
    if (count == 0)
        return;
    /* What has waited for a range in doubt makes progress from now on. */
    if (lane->head == lane->sent && lane->tx_offset == 0)
        lane->progress_ns = ferry_reactor_now(ferry_hp_reactor(lane->worker));
    lane->tx.kind = FERRY_OP_SENDV;
    lane->tx.done = on_sent;
    lane->tx.io = &lane->io;
    lane->tx.iov = lane->iov;
    lane->tx.iov_count = count;
    ferry_reactor_submit(ferry_hp_reactor(lane->worker), &lane->tx);
}
