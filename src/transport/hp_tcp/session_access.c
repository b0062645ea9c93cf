/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serving half of access control: nobody's request is read before he is let in. Without a key
 * the HELLO is enough; with one it is answered with a challenge, and the proof of the key with the
 * reply and a proof of ours:
 *
 *   HELLO -> CHALLENGE -> PROOF -> HELLO_REPLY, PROOF
 *
 * Each proof covers every byte of the greeting before it. What a session may cost before it is let
 * in is bounded in time (handshake_timeout_ms from the accept, whatever moves) and in number (the
 * oldest of a worker gives way). Runs on the holder of the worker's baton.
 */
#include <string.h>

#include "base/hostport.h"
#include "transport/hp_tcp/session.h"

#define PURPOSE "ferry greeting 1"

/* Sessions of one worker that are not let in yet. */
#define PENDING_MAX 64u
#define PENDING_MIN 8u

static struct ferry_access_control *access_of(const struct hp_session *session)
{
    return session->worker->transport->base.env->access;
}

bool ferry_hp_session_guarded(const struct hp_session *session)
{
    return !session->admitted && ferry_access_on(access_of(session));
}

void ferry_hp_session_note(struct hp_session *session, enum ferry_refusal why, const char *detail)
{
    struct hp_worker *worker = session->worker;
    struct ferry_access_control *access = access_of(session);
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    struct ferry_hostport place;
    char who[FERRY_HOSTPORT_SIZE] = "?";

    if (access == NULL)
        return;
    if (ferry_net_peer_addr(worker->transport->net, session->io.fd, &addr, &len) == FERRY_OK &&
        ferry_hostport_of_sockaddr((const struct sockaddr *)&addr, &place) == FERRY_OK)
        ferry_hostport_format(&place, who, sizeof(who));
    ferry_refusal_note(&access->data_refusals, why, ferry_reactor_now(ferry_hp_reactor(worker)),
                       "hp_tcp", who, detail);
}

/* ---- who waits to be let in ---- */

static uint32_t pending_max(const struct hp_transport *transport)
{
    uint32_t share = transport->settings.max_connections / (2 * transport->worker_count);

    if (share > PENDING_MAX)
        return PENDING_MAX;
    return share > PENDING_MIN ? share : PENDING_MIN;
}

void ferry_hp_session_pending_add(struct hp_session *session)
{
    struct hp_worker *worker = session->worker;
    struct hp_session *oldest;

    if (!ferry_hp_session_guarded(session))
        return;
    ferry_list_push_back(&worker->pending, &session->pending_link);
    if (++worker->pending_count <= pending_max(worker->transport))
        return;
    oldest = FERRY_CONTAINER_OF(worker->pending.next, struct hp_session, pending_link);
    ferry_hp_session_pending_remove(oldest);
    ferry_hp_session_note(oldest, FERRY_REFUSAL_LATE, "gave way to later ones");
    ferry_hp_session_abort(oldest, "hp_tcp: too many connections wait to be let in");
    ferry_hp_session_pump(oldest);
}

void ferry_hp_session_pending_remove(struct hp_session *session)
{
    if (ferry_list_empty(&session->pending_link))
        return;
    ferry_list_remove(&session->pending_link);
    session->worker->pending_count--;
}

uint64_t ferry_hp_session_gate_due_ns(const struct hp_session *session)
{
    if (!ferry_hp_session_guarded(session))
        return FERRY_NEVER_NS;
    return ferry_deadline_ns(session->accepted_ns,
                             session->worker->transport->settings.handshake_timeout_ns);
}

/* ---- the greeting ---- */

void ferry_hp_session_turn_away(struct hp_session *session, enum ferry_refusal why)
{
    ferry_hp_session_note(session, why, "");
    ferry_hp_answer_frame_error(session, FERRY_FRAME_HELLO_REPLY, 0, FERRY_FRAME_AUTH, true);
    ferry_hp_session_finish(session);
}

/* The greeting may go on; it may have to wait for the predecessor's end, which is our business. */
static void let_in(struct hp_session *session, const struct ferry_hello *hello)
{
    session->admitted = true;
    ferry_hp_session_pending_remove(session);
    ferry_hp_session_hello(session, hello);
}

/* A session in v1 can prove nothing; its error answer says that nothing was applied. */
void ferry_hp_session_refuse_v1(struct hp_session *session)
{
    ferry_hp_session_note(session, FERRY_REFUSAL_V1, "");
    ferry_hp_answer_v1_error(session, 0, FERRY_V1_INTERNAL_ERROR);
    ferry_hp_session_finish(session);
}

static void challenge(struct hp_session *session, const struct ferry_hello *hello,
                      const uint8_t *wire, uint32_t wire_bytes)
{
    struct hp_transport *transport = session->worker->transport;
    struct ferry_frame frame = {.type = FERRY_FRAME_CHALLENGE};
    const struct hp_answer *answer;

    session->challenged = true;
    session->hello = *hello;
    memcpy(frame.challenge.incarnation, transport->incarnation, FERRY_INCARNATION_SIZE);
    transport->base.env->random->fill(transport->base.env->random, frame.challenge.nonce,
                                      sizeof(frame.challenge.nonce));
    answer = ferry_hp_answer_greeting(session, &frame);
    ferry_auth_begin(&session->transcript, PURPOSE);
    ferry_auth_add(&session->transcript, wire, wire_bytes);
    ferry_auth_add(&session->transcript, answer->header, answer->header_bytes);
}

static void check_proof(struct hp_session *session, const struct ferry_frame *frame,
                        const uint8_t *wire, uint32_t wire_bytes)
{
    if (!ferry_auth_check(access_of(session)->auth, FERRY_AUTH_INITIATOR, &session->transcript,
                          frame->proof, &session->key)) {
        ferry_hp_session_turn_away(session, FERRY_REFUSAL_WRONG_KEY);
        return;
    }
    ferry_auth_add(&session->transcript, wire, wire_bytes);
    let_in(session, &session->hello);
}

void ferry_hp_session_greet(struct hp_session *session, const struct ferry_frame *frame,
                            const uint8_t *wire, uint32_t wire_bytes)
{
    const struct ferry_auth *auth = ferry_access_auth(access_of(session));

    if (!session->challenged && frame->type == FERRY_FRAME_HELLO) {
        if (auth == NULL)
            let_in(session, &frame->hello);
        else if ((frame->hello.features & FERRY_FEATURE_AUTH) == 0)
            ferry_hp_session_turn_away(session, FERRY_REFUSAL_NO_KEY);
        else
            challenge(session, &frame->hello, wire, wire_bytes);
    } else if (session->challenged && frame->type == FERRY_FRAME_PROOF) {
        check_proof(session, frame, wire, wire_bytes);
    } else {
        ferry_hp_session_fatal(session, frame, FERRY_FRAME_BAD_REQUEST, "no greeting came first");
    }
}

/* With the reply goes our own proof, which covers it. */
void ferry_hp_session_prove(struct hp_session *session, const struct hp_answer *reply)
{
    const struct ferry_auth *auth = ferry_access_auth(access_of(session));
    struct ferry_frame frame = {.type = FERRY_FRAME_PROOF};

    if (auth == NULL)
        return;
    ferry_auth_add(&session->transcript, reply->header, reply->header_bytes);
    if (ferry_auth_prove(auth, session->key, FERRY_AUTH_TARGET, &session->transcript, frame.proof))
        (void)ferry_hp_answer_greeting(session, &frame);
    else
        ferry_hp_session_abort(session, "hp_tcp: no memory for a proof");
}
