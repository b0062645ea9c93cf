/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending half of a session: queue answers in both codecs, and send all that is queued in one
 * vectored call, payload straight from registered memory. The lease of a READ goes when its last
 * byte has been taken by the kernel.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "transport/hp_tcp/session.h"

/* Bytes put into one send: one session does not keep the others of its worker waiting. */
#define SEND_BYTES_MAX (4u << 20)

static struct hp_answer *take_slot(struct hp_session *session)
{
    struct hp_answer *answer = ferry_hp_session_answer(session, session->tail);

    FERRY_ASSERT(!ferry_hp_session_full(session));
    if (session->head == session->tail)
        session->progress_ns = ferry_reactor_now(ferry_hp_reactor(session->worker));
    session->tail++;
    answer->payload = NULL;
    answer->payload_bytes = 0;
    answer->lease = (struct ferry_lease){0};
    answer->range_count = 0;
    answer->sum_due = false;
    answer->own = NULL;
    return answer;
}

static void put_v1(struct hp_answer *answer, enum ferry_v1_status status, uint64_t request_id,
                   uint64_t committed)
{
    struct ferry_v1_response response = {
        .status = status, .request_id = request_id, .committed_bytes = committed};

    ferry_v1_response_encode(&response, answer->header);
    answer->header_bytes = FERRY_V1_RESPONSE_SIZE;
}

/* What a peer sent decides what is answered, so a frame that cannot be encoded ends its session. */
static void put_frame(struct hp_session *session, struct hp_answer *answer,
                      const struct ferry_frame *frame)
{
    size_t size = ferry_frame_encode(answer->header, sizeof(answer->header), frame);

    answer->header_bytes = (uint16_t)size;
    if (size == 0)
        ferry_hp_session_abort(session, "hp_tcp: an answer that cannot be put into a frame");
}

/* The header before a payload. Where checksums are in force, complete only with add_sum(). */
static void put_read_reply(struct hp_session *session, struct hp_answer *answer,
                           uint64_t request_id, uint32_t checksum)
{
    bool sums = ferry_hp_session_sums(session);

    answer->request_id = request_id;
    put_frame(session, answer,
              &(struct ferry_frame){.type = FERRY_FRAME_READ_REPLY,
                                    .flags = sums ? FERRY_FLAG_CHECKSUM : 0,
                                    .request_id = request_id,
                                    .length = answer->payload_bytes,
                                    .checksum = checksum});
}

/*
 * When the payload is about to leave: it costs a pass over it, and brings it into the cache that
 * the kernel copies from.
 */
static void add_sum(struct hp_session *session, struct hp_answer *answer)
{
    uint32_t crc;

    if (!answer->sum_due)
        return;
    answer->sum_due = false;
    if (answer->range_count > 0)
        crc = ferry_hp_pieces_crc(ferry_hp_answer_pieces(session, answer), 0, answer->payload_bytes,
                                  0);
    else
        crc = ferry_crc32c(0, answer->payload, answer->payload_bytes);
    put_read_reply(session, answer, answer->request_id, crc);
}

void ferry_hp_answer_read(struct hp_session *session, uint64_t request_id, uint64_t addr,
                          uint64_t length, struct ferry_lease *lease)
{
    struct hp_answer *answer = take_slot(session);

    answer->payload = (const unsigned char *)(uintptr_t)addr;
    answer->payload_bytes = length;
    answer->lease = *lease;
    *lease = (struct ferry_lease){0};
    if (session->codec == HP_CODEC_V1)
        put_v1(answer, FERRY_V1_OK, request_id, length);
    else
        put_read_reply(session, answer, request_id, 0);
    answer->sum_due = ferry_hp_session_sums(session);
}

void ferry_hp_answer_read_list(struct hp_session *session, const struct ferry_frame *frame,
                               uint32_t range_first)
{
    struct hp_answer *answer = take_slot(session);

    answer->payload_bytes = frame->length;
    answer->range_first = range_first;
    answer->range_count = frame->list.count;
    put_read_reply(session, answer, frame->request_id, 0);
    answer->sum_due = ferry_hp_session_sums(session);
}

void ferry_hp_answer_write(struct hp_session *session, uint64_t request_id, uint64_t length)
{
    struct hp_answer *answer = take_slot(session);

    if (session->codec == HP_CODEC_V1)
        put_v1(answer, FERRY_V1_OK, request_id, length);
    else
        put_frame(session, answer,
                  &(struct ferry_frame){
                      .type = FERRY_FRAME_WRITE_REPLY, .request_id = request_id, .length = length});
}

void ferry_hp_answer_v1_error(struct hp_session *session, uint64_t request_id,
                              enum ferry_v1_status status)
{
    put_v1(take_slot(session), status, request_id, 0);
}

void ferry_hp_answer_frame_error(struct hp_session *session, uint8_t type, uint64_t request_id,
                                 uint16_t frame_status, bool fatal)
{
    put_frame(session, take_slot(session),
              &(struct ferry_frame){.type = type,
                                    .request_id = request_id,
                                    .status = frame_status,
                                    .flags = fatal ? 0 : FERRY_FLAG_NO_CLOSE});
}

const struct hp_answer *ferry_hp_answer_greeting(struct hp_session *session,
                                                 const struct ferry_frame *frame)
{
    struct hp_answer *answer = take_slot(session);

    put_frame(session, answer, frame);
    return answer;
}

void ferry_hp_answer_hello(struct hp_session *session)
{
    struct hp_transport *transport = session->worker->transport;
    struct ferry_frame frame = {
        .type = FERRY_FRAME_HELLO_REPLY,
        .hello_reply = {.session_id = session->session_id,
                        .features = session->features,
                        .max_transfer_bytes = transport->settings.max_transfer_bytes,
                        .window_bytes = transport->settings.window_bytes,
                        .window_ops = HP_REPLIES},
    };

    memcpy(frame.hello_reply.incarnation, transport->incarnation, FERRY_INCARNATION_SIZE);
    ferry_hp_session_prove(session, ferry_hp_answer_greeting(session, &frame));
}

void ferry_hp_answer_resolve(struct hp_session *session, uint64_t request_id, uint32_t count,
                             uint8_t *frame)
{
    struct hp_answer *answer = take_slot(session);
    struct ferry_frame reply = {
        .type = FERRY_FRAME_RESOLVE_REPLY,
        .request_id = request_id,
        .list = {frame + FERRY_FRAME_LIST_OFFSET, count},
    };
    size_t size = FERRY_FRAME_LIST_OFFSET + (size_t)count * FERRY_RESOLVE_REPLY_SIZE;

    size = ferry_frame_encode(frame, size, &reply);
    FERRY_ASSERT(size > 0); /* the ids were decoded in order */
    answer->own = frame;
    answer->header_bytes = 0;
    answer->payload = frame;
    answer->payload_bytes = size;
    session->answering = true;
}

/* The payload from byte @skip on. Returns the pieces used; *bytes_out is what they hold. */
static uint32_t gather_payload(const struct hp_session *session, const struct hp_answer *answer,
                               uint64_t skip, struct iovec *iov, uint32_t iov_max,
                               uint64_t *bytes_out)
{
    if (answer->range_count > 0)
        return ferry_hp_pieces_iov(ferry_hp_answer_pieces(session, answer), skip,
                                   answer->payload_bytes - skip, iov, iov_max, bytes_out);
    /* The reactor only reads from it; iovec has no const form. */
    iov->iov_base = (void *)(uintptr_t)(answer->payload + skip);
    iov->iov_len = answer->payload_bytes - skip;
    *bytes_out = answer->payload_bytes - skip;
    return 1;
}

static uint32_t gather(struct hp_session *session)
{
    uint64_t skip = session->tx_offset;
    uint64_t bytes = 0;
    uint32_t count = 0;

    for (uint32_t i = session->head; i != session->tail; i++) {
        struct hp_answer *answer = ferry_hp_session_answer(session, i);

        if (count + 2 > HP_IOV_MAX || bytes >= SEND_BYTES_MAX)
            break;
        add_sum(session, answer);
        if (skip < answer->header_bytes) {
            session->iov[count].iov_base = answer->header + skip;
            session->iov[count].iov_len = answer->header_bytes - skip;
            bytes += session->iov[count++].iov_len;
            skip = 0;
        } else {
            skip -= answer->header_bytes;
        }
        if (answer->payload_bytes > 0) {
            uint64_t covered;

            count += gather_payload(session, answer, skip, &session->iov[count], HP_IOV_MAX - count,
                                    &covered);
            bytes += covered;
            if (covered < answer->payload_bytes - skip)
                break;
        }
        skip = 0;
    }
    return count;
}

static void advance(struct hp_session *session, uint64_t left)
{
    while (left > 0) {
        struct hp_answer *answer = ferry_hp_session_answer(session, session->head);
        uint64_t whole = answer->header_bytes + answer->payload_bytes;
        uint64_t step = whole - session->tx_offset < left ? whole - session->tx_offset : left;

        FERRY_DASSERT(session->head != session->tail);
        left -= step;
        session->tx_offset += step;
        if (session->tx_offset < whole)
            break;
        session->tx_offset = 0;
        session->head++;
        session->request_ns = session->progress_ns;
        atomic_fetch_add_explicit(&session->worker->served_ops, 1, memory_order_relaxed);
        if (answer->own == NULL)
            atomic_fetch_add_explicit(&session->worker->served_bytes, answer->payload_bytes,
                                      memory_order_relaxed);
        ferry_lease_release(&answer->lease);
        ferry_hp_session_list_sent(session, answer);
        if (answer->own != NULL) {
            free(answer->own);
            answer->own = NULL;
            session->answering = false;
        }
    }
}

static void on_sent(struct ferry_op *tx, int64_t result)
{
    struct hp_session *session = FERRY_CONTAINER_OF(tx, struct hp_session, tx);

    if (result > 0) {
        session->progress_ns = ferry_reactor_now(ferry_hp_reactor(session->worker));
        advance(session, (uint64_t)result);
    } else if (result < 0) {
        ferry_hp_session_abort(session, "hp_tcp: sending an answer failed");
    }
    /* A full queue of answers had stopped the parser; what is staged may go on now. */
    if (session->state == HP_SESSION_OPEN)
        ferry_hp_session_parse(session);
    ferry_hp_session_pump(session);
}

void ferry_hp_session_send(struct hp_session *session)
{
    uint32_t count;

    if (ferry_op_inflight(&session->tx))
        return;
    count = gather(session);
    if (count == 0)
        return;
    session->tx.kind = FERRY_OP_SENDV;
    session->tx.done = on_sent;
    session->tx.io = &session->io;
    session->tx.iov = session->iov;
    session->tx.iov_count = count;
    ferry_reactor_submit(ferry_hp_reactor(session->worker), &session->tx);
}
