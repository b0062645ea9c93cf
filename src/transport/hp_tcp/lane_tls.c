/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a lane: between connecting and greeting. The reactor does the work (reactor/tls.h); here
 * is what its failures mean to a person, and the renewal of connections on which a cipher has been
 * used for long. Runs on the holder of the worker's baton.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "transport/hp_tcp/internal.h"

static void refuse(struct hp_lane *lane, int32_t native, const char *what, const char *where)
{
    const struct hp_endpoint *endpoint = lane->via->endpoint;

    ferry_hp_peer_set_trouble(lane->peer, "%s:%u %s", endpoint->host, endpoint->port, what);
    ferry_hp_lane_close(lane, FERRY_ERR_REFUSED, native, where);
}

static void handshake_failed(struct hp_lane *lane, int32_t err)
{
    const struct ferry_tls_handshake *handshake = &lane->handshake;
    char what[FERRY_TLS_TROUBLE_SIZE + 128];

    if (err == ENOMEM) {
        ferry_hp_lane_close(lane, FERRY_ERR_NO_MEMORY, err, "hp_tcp: no memory for TLS");
    } else if (handshake->plain) {
        refuse(lane, err,
               "does not speak TLS: set tls.cert, tls.key and tls.ca there as they are here",
               "hp_tcp: the peer does not speak TLS (tls.cert, tls.key, tls.ca)");
    } else if (err == EPROTO) {
        snprintf(what, sizeof(what), "TLS fails: %s (tls.cert, tls.ca, tls.verify_names)",
                 handshake->trouble);
        refuse(lane, err, what, "hp_tcp: the TLS handshake failed");
    } else {
        ferry_hp_peer_set_trouble(lane->peer,
                                  "%s:%u closed the connection in the TLS handshake: is TLS on "
                                  "there (tls.cert)?",
                                  lane->via->endpoint->host, lane->via->endpoint->port);
        ferry_hp_lane_broke(lane, err, "hp_tcp: the connection broke in the TLS handshake");
    }
}

static void on_secured(struct ferry_op *tx, int64_t result)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(tx, struct hp_lane, tx);
    struct hp_worker *worker = lane->worker;

    if (lane->state == HP_LANE_SECURING && result == 0) {
        atomic_store_explicit(&lane->stats.tls,
                              lane->handshake.kernel ? HP_TLS_KERNEL : HP_TLS_OPENSSL,
                              memory_order_relaxed);
        ferry_hp_lane_greet(lane);
    } else if (lane->state == HP_LANE_SECURING) {
        handshake_failed(lane, (int32_t)-result);
    }
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}

void ferry_hp_lane_secure(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;

    lane->sealed = 0;
    lane->handshake.tls = ferry_access_tls(transport->base.env->access);
    if (lane->handshake.tls == NULL) {
        ferry_hp_lane_greet(lane);
        return;
    }
    lane->handshake.initiator = true;
    lane->handshake.host = lane->via->endpoint->host;
    ferry_hp_lane_advance(lane, HP_LANE_SECURING);
    if (!ferry_hp_lane_await(lane, transport->settings.handshake_timeout_ns))
        return;
    lane->tx.done = on_secured;
    lane->tx.io = &lane->io;
    ferry_tls_submit(ferry_hp_reactor(lane->worker), &lane->tx, &lane->handshake);
}

void ferry_hp_lane_secure_timed_out(struct hp_lane *lane)
{
    ferry_hp_peer_set_trouble(lane->peer,
                              "%s:%u does not go on with TLS: is it on there (tls.cert)?",
                              lane->via->endpoint->host, lane->via->endpoint->port);
    ferry_hp_lane_close(lane, FERRY_ERR_TIMED_OUT, ETIMEDOUT,
                        "hp_tcp: the TLS handshake took longer than handshake_timeout_ms");
}

/*
 * In TLS 1.3 an initiator is done before the target has looked at its certificate, and hears of a
 * refusal where the answer to the greeting should be: as an alert through OpenSSL, as EIO from the
 * kernel, which gives nothing but data to a plain receive.
 */
bool ferry_hp_lane_alerted(struct hp_lane *lane, int32_t err)
{
    char what[FERRY_TLS_TROUBLE_SIZE + 128];
    const char *trouble = ferry_tls_trouble(&lane->io);

    if (lane->handshake.tls == NULL || lane->state != HP_LANE_GREETING ||
        (err != EPROTO && err != EIO))
        return false;
    snprintf(what, sizeof(what), "does not accept our certificate (tls.cert): %s",
             trouble[0] != '\0' ? trouble : "its log says why");
    refuse(lane, err, what, "hp_tcp: the peer does not accept our certificate (tls.cert)");
    return true;
}

/* The peer answered TLS's plain greeting with a frame that says that TLS is due. */
void ferry_hp_lane_tls_due(struct hp_lane *lane)
{
    refuse(lane, 0, "speaks TLS only: set tls.cert, tls.key and tls.ca here as they are there",
           "hp_tcp: the peer speaks TLS only (tls.cert, tls.key, tls.ca)");
}

bool ferry_hp_lane_worn(const struct hp_lane *lane)
{
    return lane->sealed > lane->peer->transport->settings.tls_records_max &&
           lane->handshake.tls != NULL;
}
