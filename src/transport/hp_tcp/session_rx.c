/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving half of a session: requests of either codec, decided by the first bytes of the
 * connection. Many small requests are decoded from one staging receive; the body of a large WRITE
 * is received straight into registered memory. Every number from the wire is checked against the
 * registry before it becomes an address. The order of checks and answers is the published server's.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "base/log.h"
#include "transport/hp_tcp/session.h"

/* The longest request header that is taken: one with the longest list. It fits into staging. */
#define REQUEST_HEADER_MAX HP_LIST_HEADER_MAX
static_assert(REQUEST_HEADER_MAX <= HP_STAGE_BYTES, "a header with a list does not fit");

static uint32_t stage_have(const struct hp_session *session)
{
    return session->stage_end - session->stage_begin;
}

static void note_refusal(const struct hp_session *session, const char *why)
{
    ferry_debug("hp_tcp", "request refused: %s fd=%d", why, session->io.fd);
}

/* ---- a request, whichever codec it came in ---- */

static enum ferry_status lease_for(struct hp_session *session, const struct hp_request *request,
                                   struct ferry_lease *lease_out)
{
    struct ferry_lease_request want = {
        .addr = request->remote_addr,
        .length = request->length,
        .registration_id = request->registration_id,
        .access = request->opcode == FERRY_READ ? FERRY_ACCESS_READ : FERRY_ACCESS_WRITE,
    };

    if (atomic_load(&session->worker->transport->closing))
        return FERRY_ERR_PEER_CLOSING;
    return ferry_lease_acquire(&session->worker->reader, &want, lease_out);
}

static void refuse(struct hp_session *session, const struct hp_request *request,
                   enum ferry_status status)
{
    uint8_t type = request->opcode == FERRY_READ ? FERRY_FRAME_READ_REPLY : FERRY_FRAME_WRITE_REPLY;

    note_refusal(session, ferry_status_name(status));
    if (session->codec == HP_CODEC_V1) {
        ferry_hp_answer_v1_error(session, request->request_id, ferry_v1_status_of(status));
        ferry_hp_session_finish(session);
    } else {
        ferry_hp_answer_frame_error(session, type, request->request_id,
                                    (uint16_t)ferry_frame_status_of(status), false);
    }
}

/* The total time counts from the oldest request in hand, so that new ones do not renew it. */
static void note_request(struct hp_session *session)
{
    if (session->head == session->tail)
        session->request_ns = ferry_reactor_now(ferry_hp_reactor(session->worker));
}

/* A body follows in any case; refused, it is read and thrown away, to stay in step. */
static struct hp_incoming *expect_body(struct hp_session *session, const struct hp_request *request,
                                       enum ferry_status status)
{
    uint64_t length = request->length;

    session->incoming = (struct hp_incoming){
        .active = true,
        .discard = status != FERRY_OK,
        .refusal = status,
        .request_id = request->request_id,
        .summed = status == FERRY_OK && ferry_hp_session_sums(session),
        .checksum = request->checksum,
        .length = length,
        .left = length,
    };
    session->bulk = length > HP_COPY_MAX;
    session->bulk_header = session->codec == HP_CODEC_FERRY ? FERRY_FRAME_FIXED_SIZE
                                                            : FERRY_V1_REQUEST_SIZE;
    return &session->incoming;
}

static void serve(struct hp_session *session, const struct hp_request *request)
{
    struct ferry_lease lease = {0};
    enum ferry_status status = lease_for(session, request, &lease);
    struct hp_incoming *in;

    note_request(session);
    if (request->opcode == FERRY_READ) {
        if (status == FERRY_OK)
            ferry_hp_answer_read(session, request->request_id, request->remote_addr,
                                 request->length, &lease);
        else
            refuse(session, request, status);
        return;
    }
    in = expect_body(session, request, status);
    in->to = (unsigned char *)(uintptr_t)request->remote_addr;
    in->lease = lease;
}

/* A request with a list; there is room for it, or no memory at all. */
static void serve_list(struct hp_session *session, const struct ferry_frame *frame)
{
    struct hp_request request = {
        .opcode = frame->type == FERRY_FRAME_READ ? FERRY_READ : FERRY_WRITE,
        .request_id = frame->request_id,
        .length = frame->length,
        .checksum = frame->checksum,
    };
    enum ferry_status status = FERRY_ERR_NO_MEMORY;
    struct hp_incoming *in;
    uint32_t first;

    note_request(session);
    if (request.opcode == FERRY_READ) {
        if (session->ranges != NULL)
            status = ferry_hp_session_list_read(session, frame, &first);
        if (status == FERRY_OK)
            ferry_hp_answer_read_list(session, frame, first);
        else
            refuse(session, &request, status);
        return;
    }
    if (session->ranges != NULL)
        status = ferry_hp_session_list_write(session, frame);
    in = expect_body(session, &request, status);
    session->bulk_header = (uint32_t)ferry_frame_size(frame);
    if (status != FERRY_OK)
        return;
    in->range_count = frame->list.count;
    in->staged = ferry_hp_pieces_small(ferry_hp_body_pieces(session), 0, in->length);
}

static void body_complete(struct hp_session *session)
{
    struct hp_incoming in = session->incoming;
    struct hp_request request = {.opcode = FERRY_WRITE, .request_id = in.request_id};
    bool damaged = in.summed && in.crc != in.checksum;

    session->incoming.active = false;
    /* The last byte has landed: give the memory back before the peer hears of it. */
    ferry_lease_release(&in.lease);
    ferry_hp_session_list_landed(session, &in);
    if (in.discard) {
        refuse(session, &request, in.refusal);
        return;
    }
    if (damaged) {
        ferry_warn("hp_tcp", "a WRITE of %" PRIu64 " bytes arrived damaged: its CRC-32C differs",
                   in.length);
        refuse(session, &request, FERRY_ERR_CHECKSUM);
        return;
    }
    atomic_fetch_add_explicit(&session->worker->served_bytes, in.length, memory_order_relaxed);
    if (session->record != NULL)
        ferry_hp_applied_add(&session->applied, in.request_id);
    ferry_hp_answer_write(session, in.request_id, in.length);
}

/* Bytes of the body have landed where they belong, which is still in the cache. */
static void sum_body(struct hp_session *session, uint64_t bytes)
{
    struct hp_incoming *in = &session->incoming;
    uint64_t from = in->length - in->left;

    if (in->range_count > 0)
        in->crc = ferry_hp_pieces_crc(ferry_hp_body_pieces(session), from, bytes, in->crc);
    else
        in->crc = ferry_crc32c(in->crc, in->to + from, bytes);
}

static void body_advance(struct hp_session *session, uint64_t bytes)
{
    struct hp_incoming *in = &session->incoming;

    FERRY_ASSERT(bytes <= in->left);
    if (FERRY_UNLIKELY(in->summed))
        sum_body(session, bytes);
    in->left -= bytes;
    if (in->left == 0)
        body_complete(session);
}

static void body_from_stage(struct hp_session *session)
{
    struct hp_incoming *in = &session->incoming;
    uint64_t take = stage_have(session) < in->left ? stage_have(session) : in->left;

    if (!in->discard && in->range_count > 0)
        ferry_hp_pieces_fill(ferry_hp_body_pieces(session), in->length - in->left,
                             session->stage + session->stage_begin, take);
    else if (!in->discard)
        memcpy(in->to + (in->length - in->left), session->stage + session->stage_begin, take);
    session->stage_begin += (uint32_t)take;
    body_advance(session, take);
}

/* ---- v1 ---- */

static void read_v1(struct hp_session *session)
{
    struct hp_transport *transport = session->worker->transport;
    struct ferry_v1_request v1;
    struct hp_request request;
    enum ferry_v1_verdict verdict = ferry_v1_request_decode(session->stage + session->stage_begin,
                                                            stage_have(session), &v1);

    if (verdict != FERRY_V1_VALID) {
        note_refusal(session, ferry_v1_verdict_text(verdict));
        ferry_hp_answer_v1_error(session, 0, ferry_v1_verdict_status(verdict));
        ferry_hp_session_finish(session);
        return;
    }
    session->stage_begin += FERRY_V1_REQUEST_SIZE;
    if (v1.length > transport->settings.max_transfer_bytes) {
        note_refusal(session, "longer than max_transfer_bytes");
        ferry_hp_answer_v1_error(session, v1.request_id, FERRY_V1_BAD_LENGTH);
        ferry_hp_session_finish(session);
        return;
    }
    request = (struct hp_request){
        .opcode = v1.opcode == FERRY_V1_READ ? FERRY_READ : FERRY_WRITE,
        .request_id = v1.request_id,
        .registration_id = v1.registration_id,
        .remote_addr = v1.remote_addr,
        .length = v1.length,
    };
    serve(session, &request);
}

/* ---- ferry's own frames ---- */

/*
 * The predecessor can touch memory no more, or there was none: now there is a session. Nothing was
 * read behind the greeting, and nothing is served before its answer is queued.
 */
static void greet(struct hp_session *session)
{
    struct hp_transport *transport = session->worker->transport;

    do {
        session->session_id = ferry_random_u64(transport->base.env->random);
    } while (session->session_id == 0);
    session->fencing = false;
    session->greeted = true;
    session->features = session->hello.features & HP_FEATURES;
    if (!transport->settings.checksum && (session->hello.features & FERRY_FEATURE_SUMS_DUE) == 0)
        session->features &= ~FERRY_FEATURE_CHECKSUM;
    if ((session->features & FERRY_FEATURE_RESOLVE) != 0)
        session->record = ferry_hp_answers_begin(&transport->answers, session->session_id,
                                                 &session->hello);
    ferry_hp_answer_hello(session);
}

void ferry_hp_session_fenced(struct hp_session *session)
{
    struct hp_transport *transport = session->worker->transport;

    if (ferry_hp_answers_fence(&transport->answers, &session->hello) != HP_FENCE_DONE)
        return;
    greet(session);
    ferry_hp_session_parse(session);
}

void ferry_hp_session_hello(struct hp_session *session, const struct ferry_hello *hello)
{
    struct hp_transport *transport = session->worker->transport;

    session->hello = *hello;
    if (hello->predecessor_session_id == 0 ||
        ferry_hp_answers_fence(&transport->answers, hello) == HP_FENCE_DONE) {
        greet(session);
        return;
    }
    /* Its worker closes it; the scan that its end causes comes back to this session. */
    session->fencing = true;
    ferry_hp_scan_all(transport);
}

/* What became of requests of the predecessor? It has ended, else this session were not greeted. */
static void resolve(struct hp_session *session, const struct ferry_frame *frame)
{
    struct hp_transport *transport = session->worker->transport;
    uint32_t count = frame->list.count;
    uint8_t *reply = NULL;
    enum ferry_frame_status status = FERRY_FRAME_BUSY;

    if (!session->answering)
        reply = malloc(FERRY_FRAME_LIST_OFFSET + count * FERRY_RESOLVE_REPLY_SIZE);
    if (reply != NULL) {
        status = FERRY_FRAME_UNKNOWN_SESSION;
        if (ferry_hp_answers_resolve(&transport->answers, &session->hello, &frame->list,
                                     ferry_now_ns(transport->base.env->clock),
                                     reply + FERRY_FRAME_LIST_OFFSET)) {
            ferry_hp_answer_resolve(session, frame->request_id, count, reply);
            return;
        }
        free(reply);
    }
    ferry_hp_answer_frame_error(session, FERRY_FRAME_RESOLVE_REPLY, frame->request_id,
                                (uint16_t)status, false);
}

void ferry_hp_session_fatal(struct hp_session *session, const struct ferry_frame *frame,
                            enum ferry_frame_status status, const char *why)
{
    uint8_t type = FERRY_FRAME_READ_REPLY;
    uint64_t request_id = frame->request_id;

    if (!session->greeted) {
        type = FERRY_FRAME_HELLO_REPLY; /* which carries no id */
        request_id = 0;
    } else if (frame->type == FERRY_FRAME_WRITE) {
        type = FERRY_FRAME_WRITE_REPLY;
    } else if (frame->type == FERRY_FRAME_RESOLVE) {
        type = FERRY_FRAME_RESOLVE_REPLY;
    }
    note_refusal(session, why);
    if (ferry_hp_session_guarded(session))
        ferry_hp_session_note(session, FERRY_REFUSAL_GARBAGE, why);
    ferry_hp_answer_frame_error(session, type, request_id, (uint16_t)status, true);
    ferry_hp_session_finish(session);
}

static void request_frame(struct hp_session *session, const struct ferry_frame *frame)
{
    struct hp_transport *transport = session->worker->transport;
    struct hp_request request = {
        .opcode = frame->type == FERRY_FRAME_READ ? FERRY_READ : FERRY_WRITE,
        .request_id = frame->request_id,
        .registration_id = frame->registration_id,
        .remote_addr = frame->remote_addr,
        .length = frame->length,
        .checksum = frame->checksum,
    };

    if ((ferry_frame_features(frame) & ~session->features &
         (FERRY_FEATURE_SCATTER | FERRY_FEATURE_CHECKSUM)) != 0) {
        ferry_hp_session_fatal(session, frame, FERRY_FRAME_UNSUPPORTED,
                               "a feature that was not agreed on");
    } else if (frame->type == FERRY_FRAME_WRITE && ferry_hp_session_sums(session) &&
               (frame->flags & FERRY_FLAG_CHECKSUM) == 0) {
        ferry_hp_session_fatal(session, frame, FERRY_FRAME_BAD_REQUEST,
                               "a payload without the checksum that was agreed on");
    } else if (frame->length > transport->settings.max_transfer_bytes) {
        if (frame->type == FERRY_FRAME_READ)
            refuse(session, &request, FERRY_ERR_TOO_LARGE);
        else
            ferry_hp_session_fatal(session, frame, FERRY_FRAME_TOO_LARGE,
                                   "longer than max_transfer_bytes");
    } else if ((frame->flags & FERRY_FLAG_SCATTER) != 0) {
        serve_list(session, frame);
    } else {
        serve(session, &request);
    }
}

static void handle_frame(struct hp_session *session, const struct ferry_frame *frame)
{
    switch (frame->type) {
    case FERRY_FRAME_READ:
    case FERRY_FRAME_WRITE:
        request_frame(session, frame);
        break;
    case FERRY_FRAME_RESOLVE:
        if ((session->features & FERRY_FEATURE_RESOLVE) != 0)
            resolve(session, frame);
        else
            ferry_hp_session_fatal(session, frame, FERRY_FRAME_UNSUPPORTED,
                                   "a feature that was not agreed on");
        break;
    case FERRY_FRAME_CREDIT:
        break;
    case FERRY_FRAME_GOODBYE:
        ferry_hp_session_finish(session);
        break;
    default:
        ferry_hp_session_fatal(session, frame, FERRY_FRAME_BAD_REQUEST,
                               "a frame that is no request");
    }
}

/* False: a list has to wait for room in the ring, and with it all that comes behind. */
static bool may_go_on(struct hp_session *session, const struct ferry_frame *frame)
{
    enum ferry_status status;

    if ((frame->flags & FERRY_FLAG_SCATTER) == 0 || !session->greeted ||
        (session->features & FERRY_FEATURE_SCATTER) == 0)
        return true;
    if (ferry_hp_session_list_room(session, frame, &status) || status != FERRY_OK)
        return true;
    session->starved = true;
    return false;
}

/* False: more bytes are needed, or room. */
static bool read_frame(struct hp_session *session)
{
    const uint8_t *bytes = session->stage + session->stage_begin;
    struct ferry_frame frame = {0};
    uint32_t need = 0;
    enum ferry_frame_verdict verdict = ferry_frame_peek(bytes, stage_have(session), &need);

    if (verdict == FERRY_FRAME_VALID && need > REQUEST_HEADER_MAX)
        verdict = FERRY_FRAME_HEADER_SIZE;
    if (verdict == FERRY_FRAME_VALID && need > stage_have(session))
        return false;
    if (verdict == FERRY_FRAME_VALID)
        verdict = ferry_frame_decode(bytes, stage_have(session), &frame);
    if (verdict != FERRY_FRAME_VALID) {
        ferry_hp_session_fatal(session, &frame, ferry_frame_verdict_status(verdict),
                               ferry_frame_verdict_text(verdict));
        return true;
    }
    if (!may_go_on(session, &frame))
        return false;
    session->stage_begin += need;
    if (session->greeted)
        handle_frame(session, &frame);
    else
        ferry_hp_session_greet(session, &frame, bytes, need);
    return true;
}

/* ---- the stream ---- */

/* The first record of TLS: a handshake, of whatever version. */
static bool begins_tls(const uint8_t *bytes)
{
    return bytes[0] == 0x16 && bytes[1] == 0x03;
}

/*
 * The first bytes decide; anything unknown is answered like a v1 server answers it, unless it has
 * to prove a key: then it ends here, before anything of it is taken for a request.
 */
static bool decide_codec(struct hp_session *session)
{
    const uint8_t *bytes = session->stage + session->stage_begin;
    enum ferry_wire_kind kind;

    if (stage_have(session) < 4)
        return false;
    kind = ferry_wire_classify(bytes);
    session->codec = kind == FERRY_WIRE_FERRY ? HP_CODEC_FERRY : HP_CODEC_V1;
    if (begins_tls(bytes)) {
        ferry_hp_session_note(session, FERRY_REFUSAL_TLS_HERE, "");
        ferry_hp_session_finish(session);
    } else if (kind != FERRY_WIRE_FERRY && ferry_hp_session_guarded(session)) {
        ferry_hp_session_refuse_v1(session);
    }
    return session->state == HP_SESSION_OPEN;
}

/* False: nothing more can be done with what is staged. */
static bool parse_one(struct hp_session *session)
{
    if (session->fencing || session->starved)
        return false;
    if (session->incoming.active) {
        if (stage_have(session) == 0)
            return false;
        body_from_stage(session);
        return true;
    }
    if (session->codec == HP_CODEC_UNKNOWN && !decide_codec(session))
        return false;
    if (session->codec == HP_CODEC_FERRY)
        return read_frame(session);
    if (stage_have(session) < FERRY_V1_REQUEST_SIZE)
        return false;
    read_v1(session);
    return true;
}

void ferry_hp_session_parse(struct hp_session *session)
{
    while (session->state == HP_SESSION_OPEN && !ferry_hp_session_full(session)) {
        if (!parse_one(session))
            return;
    }
}

static void on_received(struct ferry_op *rx, int64_t result)
{
    struct hp_session *session = FERRY_CONTAINER_OF(rx, struct hp_session, rx);
    bool reading = session->state == HP_SESSION_OPEN;

    if (result <= 0) {
        session->ended = result == 0;
        if (result == 0 && (reading || session->state == HP_SESSION_FLUSHING) &&
            !session->incoming.active)
            ferry_hp_session_finish(session); /* answers that are due still go out */
        else
            ferry_hp_session_abort(session, "hp_tcp: the peer closed the connection");
        ferry_hp_session_pump(session);
        return;
    }
    session->progress_ns = ferry_reactor_now(ferry_hp_reactor(session->worker));
    if (session->state == HP_SESSION_LINGERING) {
        session->linger_left -= (uint64_t)result < session->linger_left ? (uint64_t)result
                                                                        : session->linger_left;
        if (session->linger_left == 0)
            ferry_hp_session_abort(session, "hp_tcp: too much input after a refusal");
    } else if (session->rx_direct) {
        if (reading)
            body_advance(session, (uint64_t)result);
    } else {
        session->stage_end += (uint32_t)result;
    }
    ferry_hp_session_parse(session);
    ferry_hp_session_pump(session);
}

static void aim_at_sink(struct hp_session *session, uint64_t most)
{
    session->rx.buf = session->worker->sink;
    session->rx.len = most < HP_SINK_BYTES ? most : HP_SINK_BYTES;
    session->rx.min_bytes = 0;
}

/* How much of a header is missing that is likely to be followed by a large body; 0 if it is not. */
static uint32_t header_missing(const struct hp_session *session)
{
    uint32_t have = stage_have(session);
    uint32_t need = session->bulk_header;

    if (!session->bulk || session->incoming.active)
        return 0;
    /* Once its beginning is there, the header says how long it is itself. */
    if (session->codec == HP_CODEC_FERRY && have >= 8 &&
        ferry_frame_peek(session->stage + session->stage_begin, have, &need) != FERRY_FRAME_VALID)
        return 0;
    return need > have ? need - have : 0;
}

static void aim_at_stage(struct hp_session *session)
{
    uint32_t missing = header_missing(session);
    uint32_t room;

    if (session->stage_begin > 0) {
        memmove(session->stage, session->stage + session->stage_begin, stage_have(session));
        session->stage_end -= session->stage_begin;
        session->stage_begin = 0;
    }
    room = HP_STAGE_BYTES - session->stage_end;
    session->rx.buf = session->stage + session->stage_end;
    /* After a large WRITE another is likely: take the header alone, the body goes straight in. */
    session->rx.len = missing > 0 && missing < room ? missing : room;
    session->rx.min_bytes = 0;
}

/* The body of a WRITE, straight to where it belongs, or to the sink. */
static void aim_at_body(struct hp_session *session)
{
    struct hp_incoming *in = &session->incoming;
    uint64_t covered = in->left;

    session->rx_direct = true;
    if (in->discard) {
        aim_at_sink(session, in->left);
        return;
    }
    if (in->range_count > 0) {
        session->rx.kind = FERRY_OP_RECVV;
        session->rx.iov = session->ranges->iov;
        session->rx.iov_count = ferry_hp_pieces_iov(ferry_hp_body_pieces(session),
                                                    in->length - in->left, in->left,
                                                    session->ranges->iov, HP_IOV_MAX, &covered);
    } else {
        session->rx.buf = in->to + (in->length - in->left);
        session->rx.len = in->left;
    }
    session->rx.min_bytes = covered < HP_RECV_STEP ? covered : HP_RECV_STEP;
}

void ferry_hp_session_receive(struct hp_session *session)
{
    struct hp_incoming *in = &session->incoming;

    if (ferry_op_inflight(&session->rx))
        return;
    session->rx_direct = false;
    session->rx.kind = FERRY_OP_RECV;
    if (session->state == HP_SESSION_LINGERING) {
        aim_at_sink(session, HP_SINK_BYTES);
    } else if (session->state != HP_SESSION_OPEN || ferry_hp_session_full(session) ||
               session->starved || (session->fencing && stage_have(session) == HP_STAGE_BYTES)) {
        return;
    } else if (in->active && in->left > HP_COPY_MAX && !in->staged && stage_have(session) == 0) {
        aim_at_body(session);
    } else {
        aim_at_stage(session);
    }
    session->rx.done = on_received;
    session->rx.io = &session->io;
    session->rx_progress_seen = 0;
    ferry_reactor_submit(ferry_hp_reactor(session->worker), &session->rx);
}
