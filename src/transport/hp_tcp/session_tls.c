/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a session: the first thing on an accepted connection, before a byte of a greeting is read.
 * A peer that begins in plain text gets an answer in plain text that says what is missing. Runs on
 * the holder of the worker's baton.
 */
#include <errno.h>
#include <string.h>

#include "transport/hp_tcp/session.h"

static void refuse_plain(struct hp_session *session)
{
    enum ferry_wire_kind kind = ferry_wire_classify(session->handshake.first);

    ferry_hp_session_note(session, FERRY_REFUSAL_NO_TLS, "");
    if (kind == FERRY_WIRE_V1) {
        session->codec = HP_CODEC_V1;
        ferry_hp_answer_v1_error(session, 0, FERRY_V1_INTERNAL_ERROR);
    } else if (kind == FERRY_WIRE_FERRY) {
        session->codec = HP_CODEC_FERRY;
        ferry_hp_answer_frame_error(session, FERRY_FRAME_HELLO_REPLY, 0, FERRY_FRAME_TLS_DUE, true);
    }
}

static void on_secured(struct ferry_op *tx, int64_t result)
{
    struct hp_session *session = FERRY_CONTAINER_OF(tx, struct hp_session, tx);

    session->securing = false;
    if (session->state == HP_SESSION_OPEN && result != 0) {
        if (session->handshake.plain)
            refuse_plain(session);
        else if (result == -EPROTO)
            ferry_hp_session_note(session, FERRY_REFUSAL_TLS, session->handshake.trouble);
        /* What is queued goes out, an alert has; then a moment for the peer to read it. */
        if (result == -EPROTO)
            ferry_hp_session_finish(session);
        else
            ferry_hp_session_abort(session, "hp_tcp: the connection broke in the TLS handshake");
    }
    ferry_hp_session_pump(session);
}

void ferry_hp_session_secure(struct hp_session *session)
{
    session->handshake.tls = ferry_access_tls(session->worker->transport->base.env->access);
    if (session->handshake.tls == NULL)
        return;
    session->securing = true;
    session->tx.done = on_secured;
    session->tx.io = &session->io;
    ferry_tls_submit(ferry_hp_reactor(session->worker), &session->tx, &session->handshake);
}
