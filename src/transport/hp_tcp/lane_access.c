/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The initiator's half of a greeting with a key; see session_access.c for the other. The lane
 * proves the key when it is challenged, and carries nothing before the peer has proved it too.
 *
 *   CHALLENGE --challenge came, proof goes--> REPLY --reply came--> PROOF --proof fits--> OPEN
 *
 * A peer that skips a step is closed. Runs on the holder of the worker's baton.
 */
#include <string.h>

#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

#define PURPOSE "ferry greeting 1"

static const struct ferry_auth *auth_of(const struct hp_lane *lane)
{
    return ferry_access_auth(lane->peer->transport->base.env->access);
}

/* @what ends a sentence that begins with the peer; @where is static. */
static void refuse(struct hp_lane *lane, enum ferry_status status, const char *what,
                   const char *where)
{
    const struct hp_endpoint *endpoint = lane->via->endpoint;

    ferry_hp_peer_set_trouble(lane->peer, "%s:%u %s", endpoint->host, endpoint->port, what);
    ferry_hp_lane_close(lane, status, 0, where);
}

void ferry_hp_lane_access_begin(struct hp_lane *lane)
{
    lane->gate = HP_GATE_OPEN;
    lane->proof_due = false;
    if (auth_of(lane) == NULL)
        return;
    lane->gate = HP_GATE_CHALLENGE;
    ferry_auth_begin(&lane->transcript, PURPOSE);
    ferry_auth_add(&lane->transcript, lane->hello, lane->hello_bytes);
}

void ferry_hp_lane_send_proof(struct hp_lane *lane)
{
    struct ferry_frame frame = {.type = FERRY_FRAME_PROOF};

    if (!lane->proof_due || ferry_op_inflight(&lane->tx))
        return;
    lane->proof_due = false;
    if (!ferry_auth_prove(auth_of(lane), 0, FERRY_AUTH_INITIATOR, &lane->transcript, frame.proof)) {
        ferry_hp_lane_close(lane, FERRY_ERR_NO_MEMORY, 0, "hp_tcp: no memory for a proof");
        return;
    }
    lane->hello_bytes = (uint32_t)ferry_frame_encode(lane->hello, sizeof(lane->hello), &frame);
    FERRY_ASSERT(lane->hello_bytes > 0);
    ferry_auth_add(&lane->transcript, lane->hello, lane->hello_bytes);
    ferry_hp_lane_send_plain(lane, lane->hello, lane->hello_bytes);
}

void ferry_hp_lane_challenged(struct hp_lane *lane, const struct ferry_frame *frame,
                              const uint8_t *wire, uint32_t wire_bytes)
{
    if (lane->gate != HP_GATE_CHALLENGE) {
        refuse(lane, FERRY_ERR_PROTOCOL, "asks for a proof out of turn",
               "hp_tcp: a challenge came out of turn");
        return;
    }
    if (memcmp(frame->challenge.incarnation, lane->peer->incarnation, FERRY_INCARNATION_SIZE) !=
        0) {
        /* Another life of the peer, or somebody else in its place: prove nothing to it. */
        ferry_hp_lane_close(lane, FERRY_ERR_STALE_KEY, 0, "hp_tcp: the peer has restarted");
        return;
    }
    ferry_auth_add(&lane->transcript, wire, wire_bytes);
    lane->gate = HP_GATE_REPLY;
    lane->proof_due = true;
    ferry_hp_lane_send_proof(lane);
}

bool ferry_hp_lane_access_reply(struct hp_lane *lane, const uint8_t *wire, uint32_t wire_bytes)
{
    switch (lane->gate) {
    case HP_GATE_OPEN:
        return true;
    case HP_GATE_REPLY:
        if (lane->proof_due)
            break;
        ferry_auth_add(&lane->transcript, wire, wire_bytes);
        lane->gate = HP_GATE_PROOF;
        return false;
    default:
        break;
    }
    refuse(lane, FERRY_ERR_REFUSED,
           "lets everybody in without a proof of the key: set auth_key_file there as it is here",
           "hp_tcp: the peer does not prove the key (auth_key_file)");
    return false;
}

void ferry_hp_lane_proved(struct hp_lane *lane, const struct ferry_frame *frame)
{
    if (lane->gate != HP_GATE_PROOF) {
        refuse(lane, FERRY_ERR_PROTOCOL, "sends a proof out of turn",
               "hp_tcp: a proof came out of turn");
        return;
    }
    if (!ferry_auth_check_one(auth_of(lane), 0, FERRY_AUTH_TARGET, &lane->transcript,
                              frame->proof)) {
        refuse(lane, FERRY_ERR_REFUSED, "does not prove the key of auth_key_file: it is not ours",
               "hp_tcp: the peer's proof of the key does not fit (auth_key_file)");
        return;
    }
    lane->gate = HP_GATE_OPEN;
    ferry_hp_lane_greeted(lane);
}

void ferry_hp_lane_turned_away(struct hp_lane *lane)
{
    if (auth_of(lane) == NULL)
        refuse(lane, FERRY_ERR_REFUSED,
               "lets in only who proves its key: set auth_key_file here as it is there",
               "hp_tcp: the peer asks for a key (auth_key_file)");
    else
        refuse(lane, FERRY_ERR_REFUSED,
               "refused our proof of the key: the first key of auth_key_file here is none of "
               "those there",
               "hp_tcp: the peer does not accept our key (auth_key_file)");
}
