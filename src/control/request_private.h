/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of the control server, between request.c (its life) and gate.c (who may ask).
 * Private to control/.
 */
#ifndef FERRY_CONTROL_REQUEST_PRIVATE_H
#define FERRY_CONTROL_REQUEST_PRIVATE_H

#include "control/proof.h"
#include "control/server_private.h"

/* Zero http_status: not refused. Texts are static. */
struct ferry_control_refusal {
    unsigned http_status;
    enum ferry_status status;
    const char *text;
};

struct ferry_control_request {
    const struct ferry_control_route *route; /* NULL if refused, and for a challenge */
    struct ferry_control_refusal refusal;
    char *body;
    size_t body_len;
    size_t body_size;
    size_t discarded;
    /* with a key */
    bool wants_challenge;
    bool proved; /* its sender knows the key, and the reply proves it too */
    uint32_t key;
    uint8_t body_digest[FERRY_AUTH_DIGEST_SIZE]; /* what was proved about the body */
    struct ferry_auth_transcript transcript;
};

/* A request of the connection was read. */
void ferry_control_asked(struct MHD_Connection *mhd_connection);
/* Before anything else is looked at. May set @request->wants_challenge or ->proved. */
struct ferry_control_refusal ferry_control_gate(struct ferry_control_server *server,
                                                struct MHD_Connection *mhd_connection,
                                                const char *url, const char *method,
                                                struct ferry_control_request *request);
void ferry_control_challenge(struct MHD_Connection *mhd_connection,
                             struct ferry_control_reply *reply_out);
/* False: the body is not the one that the proof was made for. */
FERRY_CHECKED bool ferry_control_body_fits(const struct ferry_control_request *request);
/* True: @text is what the reply's proof says. Once a request. */
FERRY_CHECKED bool ferry_control_prove_reply(const struct ferry_control_server *server,
                                             struct ferry_control_request *request,
                                             const struct ferry_control_reply *reply,
                                             char text[2 * FERRY_AUTH_PROOF_SIZE + 1]);
/* Count a refusal, and log it now and then. */
void ferry_control_note(struct ferry_control_server *server, struct MHD_Connection *mhd_connection,
                        enum ferry_refusal why, const char *detail);

#endif
