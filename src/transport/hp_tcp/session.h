/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the serving side of one connection. session.c owns its life, session_rx.c reads
 * requests, session_tx.c sends answers; all on the holder of the worker's baton.
 *
 *   OPEN --error answer queued--> FLUSHING --sent--> LINGERING --end of stream, time--> CLOSING
 *     |                                                                                   ^
 *     +-----------------------end of stream, reset, timeout, abort-----------------------+
 *
 * A lease is held from the moment a request is accepted until its last byte has left (READ) or
 * arrived (WRITE), so memory that is being unregistered is never touched late.
 */
#ifndef FERRY_HP_TCP_SESSION_H
#define FERRY_HP_TCP_SESSION_H

#include <assert.h>

#include "transport/hp_tcp/answers.h"
#include "transport/hp_tcp/internal.h"

enum hp_session_state {
    HP_SESSION_OPEN,
    HP_SESSION_FLUSHING,  /* reads no more requests; closes when all answers are sent */
    HP_SESSION_LINGERING, /* sent and half-closed; input is thrown away so that no reset eats the
                             answer */
    HP_SESSION_CLOSING,   /* waiting for the callbacks */
};

enum hp_codec {
    HP_CODEC_UNKNOWN,
    HP_CODEC_V1,
    HP_CODEC_FERRY,
};

/*
 * The ranges of requests with lists, and the leases on them, from the first such request of a
 * session on. A WRITE's are those of the body that is arriving; those of READs lie in a ring, in
 * the order of their answers. A lease is held by the first of the ranges that it covers in a row.
 */
#define HP_RANGES_MAX (3u * FERRY_SCATTER_COUNT_MAX)

struct hp_ranges {
    struct ferry_xfer_piece in[FERRY_SCATTER_COUNT_MAX];
    struct ferry_lease in_leases[FERRY_SCATTER_COUNT_MAX];
    struct ferry_xfer_piece out[HP_RANGES_MAX];
    struct ferry_lease out_leases[HP_RANGES_MAX];
    uint32_t lists; /* in the ring */
    uint32_t head;  /* first range of the oldest */
    uint32_t tail;  /* behind the last range of the newest */
    struct iovec iov[HP_IOV_MAX];
};

/* One answer on its way out: a header, and the payload of a READ straight from registered memory.
 */
struct hp_answer {
    uint8_t header[FERRY_FRAME_PLAIN_MAX];
    uint16_t header_bytes;
    const unsigned char *payload;
    uint64_t payload_bytes;
    uint64_t request_id;  /* of one with a payload */
    uint32_t range_first; /* of range_count in the ring, if the payload is a list */
    uint32_t range_count;
    struct ferry_lease lease;
    bool sum_due; /* its header is encoded when it is about to leave, with the checksum */
    uint8_t *own; /* the whole frame, where it does not fit into `header`; malloc'd */
};

/* A WRITE whose body is arriving. With no lease the body is thrown away and `refusal` answered. */
struct hp_incoming {
    bool active;
    bool discard;
    bool close_after;
    enum ferry_status refusal;
    uint64_t request_id;
    unsigned char *to;
    uint32_t range_count; /* > 0: it goes to these of session->ranges->in */
    bool summed;          /* its checksum is to be compared with that of what lands */
    uint32_t checksum;
    uint32_t crc; /* of what has landed so far */
    bool staged;  /* small ranges: comes through staging, however long it is */
    uint64_t length;
    uint64_t left;
    struct ferry_lease lease;
};

struct hp_session {
    struct ferry_list link; /* in worker->sessions */
    struct hp_worker *worker;
    struct ferry_job job; /* brings an accepted socket to its worker */
    enum hp_session_state state;
    enum hp_codec codec;
    bool securing; /* the TLS handshake is under way: nothing else is read or said */
    bool greeted;
    bool fencing; /* the greeting waits for the end of its predecessor; nothing is read or said */
    bool challenged; /* the HELLO came, and its sender has to prove the key */
    bool admitted;   /* whoever it is has proved what access control asks for */
    bool ended;      /* the peer sent its last byte */
    bool bulk;       /* the latest WRITE was large: stop staging where the next body begins */
    struct ferry_io io;
    struct ferry_op rx;
    struct ferry_op tx;
    struct ferry_timer timer;
    uint64_t progress_ns;
    uint64_t request_ns; /* when the request in hand began; total_timeout_ms counts from here */
    uint64_t rx_progress_seen;
    uint64_t session_id;
    uint64_t linger_left;
    /* resolution: what the greeting said, what was applied, and the table's record of both */
    struct ferry_hello hello;
    uint64_t features; /* in force */
    struct hp_record *record;
    bool answering; /* a list of verdicts is on its way out: one at a time */
    struct hp_applied applied;
    /* access control, until the session is admitted */
    struct ferry_list pending_link; /* in worker->pending */
    uint64_t accepted_ns;
    uint32_t key; /* which one was proved */
    struct ferry_auth_transcript transcript;
    struct ferry_tls_handshake handshake;
    /* receive */
    bool rx_direct;
    bool starved;             /* the next request waits for room in the ring of ranges */
    uint32_t bulk_header;     /* of the latest large WRITE */
    struct hp_ranges *ranges; /* NULL until a list came */
    uint32_t stage_begin;
    uint32_t stage_end;
    struct hp_incoming incoming;
    /* answers[head..tail), indices only grow */
    uint32_t head;
    uint32_t tail;
    uint64_t tx_offset; /* bytes of answers[head] already taken by the kernel */
    struct iovec iov[HP_IOV_MAX];
    struct hp_answer answers[HP_REPLIES];
    uint8_t stage[HP_STAGE_BYTES];
};

/* A session remembers as many applied ids as its initiator may have unanswered. */
static_assert(HP_REPLIES <= HP_APPLIED_MAX, "the list of applied ids is too short");

static inline struct hp_answer *ferry_hp_session_answer(struct hp_session *session, uint32_t index)
{
    return &session->answers[index % HP_REPLIES];
}

static inline bool ferry_hp_session_full(const struct hp_session *session)
{
    return session->tail - session->head == HP_REPLIES;
}

/* Checksums are in force: every payload comes with one, in both directions. */
static inline bool ferry_hp_session_sums(const struct hp_session *session)
{
    return (session->features & FERRY_FEATURE_CHECKSUM) != 0;
}

/* session.c */
void ferry_hp_session_pump(struct hp_session *session);
/* The peer broke a rule or was refused for good: no more requests; close when answered. */
void ferry_hp_session_finish(struct hp_session *session);

/* session_access.c: who is let in */
/* True until a session is admitted, where access control asks for anything. */
bool ferry_hp_session_guarded(const struct hp_session *session);
/* Count a refusal, and log it now and then. */
void ferry_hp_session_note(struct hp_session *session, enum ferry_refusal why, const char *detail);
/* May close the oldest one that waits, which is never @session. */
void ferry_hp_session_pending_add(struct hp_session *session);
void ferry_hp_session_pending_remove(struct hp_session *session);
uint64_t ferry_hp_session_gate_due_ns(const struct hp_session *session);
void ferry_hp_session_refuse_v1(struct hp_session *session);
void ferry_hp_session_turn_away(struct hp_session *session, enum ferry_refusal why);
/* A frame before the session is let in, with its bytes. */
void ferry_hp_session_greet(struct hp_session *session, const struct ferry_frame *frame,
                            const uint8_t *wire, uint32_t wire_bytes);
void ferry_hp_session_prove(struct hp_session *session, const struct hp_answer *reply);

/* session_tls.c: begin TLS, if it is on. */
void ferry_hp_session_secure(struct hp_session *session);

/* session_rx.c */
/* The sender of @hello is admitted: greet it, now or once its predecessor has ended. */
void ferry_hp_session_hello(struct hp_session *session, const struct ferry_hello *hello);
/* A frame that ends the stream: answer, then close. */
void ferry_hp_session_fatal(struct hp_session *session, const struct ferry_frame *frame,
                            enum ferry_frame_status status, const char *why);
void ferry_hp_session_receive(struct hp_session *session);
void ferry_hp_session_parse(struct hp_session *session);
/* The predecessor may have ended: if so, greet and go on. */
void ferry_hp_session_fenced(struct hp_session *session);

/* session_list.c: requests with lists; all ranges are leased or none. */

/*
 * Have a place for the list of @frame. False: it has to wait until answers have left; or, with
 * *status_out set, there is no memory.
 */
bool ferry_hp_session_list_room(struct hp_session *session, const struct ferry_frame *frame,
                                enum ferry_status *status_out);
/* Lease the ranges of a READ into the ring. Given: there is room. */
enum ferry_status ferry_hp_session_list_read(struct hp_session *session,
                                             const struct ferry_frame *frame, uint32_t *first_out);
/* Lease the ranges of a WRITE as those of the body. Given: no body is arriving. */
enum ferry_status ferry_hp_session_list_write(struct hp_session *session,
                                              const struct ferry_frame *frame);
/* Give the ranges of an answer, or of the body, back. No-op for those without. */
void ferry_hp_session_list_sent(struct hp_session *session, struct hp_answer *answer);
void ferry_hp_session_list_landed(struct hp_session *session, struct hp_incoming *incoming);
/* Some memory of an answer's list, or of the body's, is being unregistered. */
bool ferry_hp_session_list_revoked(const struct hp_session *session,
                                   const struct hp_answer *answer);
bool ferry_hp_session_body_revoked(const struct hp_session *session);

static inline struct hp_pieces ferry_hp_answer_pieces(const struct hp_session *session,
                                                      const struct hp_answer *answer)
{
    return (struct hp_pieces){&session->ranges->out[answer->range_first], answer->range_count};
}

static inline struct hp_pieces ferry_hp_body_pieces(const struct hp_session *session)
{
    return (struct hp_pieces){session->ranges->in, session->incoming.range_count};
}

/* session_tx.c: the answers of both codecs; each takes a free slot (given: not full) */
void ferry_hp_session_send(struct hp_session *session);
void ferry_hp_answer_read(struct hp_session *session, uint64_t request_id, uint64_t addr,
                          uint64_t length, struct ferry_lease *lease);
/* The same from a list in the ring. */
void ferry_hp_answer_read_list(struct hp_session *session, const struct ferry_frame *frame,
                               uint32_t range_first);
void ferry_hp_answer_write(struct hp_session *session, uint64_t request_id, uint64_t length);
void ferry_hp_answer_hello(struct hp_session *session);
/* A RESOLVE_REPLY of @count entries at @list; takes over @frame, which has the list in its place.
 */
void ferry_hp_answer_resolve(struct hp_session *session, uint64_t request_id, uint32_t count,
                             uint8_t *frame);
/* A frame of the greeting as it is; valid until the next answer is queued. */
const struct hp_answer *ferry_hp_answer_greeting(struct hp_session *session,
                                                 const struct ferry_frame *frame);
/* @fatal: the stream ends with it. */
void ferry_hp_answer_v1_error(struct hp_session *session, uint64_t request_id,
                              enum ferry_v1_status status);
void ferry_hp_answer_frame_error(struct hp_session *session, uint8_t type, uint64_t request_id,
                                 uint16_t frame_status, bool fatal);

#endif
