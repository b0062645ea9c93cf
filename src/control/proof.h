/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a control request proves the key, and its reply. Pure functions, any thread.
 *
 *   GET /v1/challenge               -> {"challenge": "32 hex"}, of this connection, for one request
 *   METHOD PATH, on the same connection, with
 *     Authorization: Ferry nonce=<32 hex>, body=<64 hex>, proof=<64 hex>
 *                                   -> the reply, with X-Ferry-Proof: <64 hex>
 *
 * The transcript of the request's proof is: challenge, nonce (16 bytes each), the method, the path
 * without a query, the SHA-256 of the body. That of the reply's goes on with the status code in
 * decimal and the SHA-256 of the reply's body.
 */
#ifndef FERRY_CONTROL_PROOF_H
#define FERRY_CONTROL_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access/auth.h"
#include "base/compiler.h"

#define FERRY_CONTROL_CHALLENGE_SIZE 16u
#define FERRY_CONTROL_PROOF_HEADER   "X-Ferry-Proof"
#define FERRY_CONTROL_AUTH_SCHEME    "Ferry"

/* What an Authorization header says. */
struct ferry_control_proof {
    uint8_t nonce[FERRY_CONTROL_CHALLENGE_SIZE];
    uint8_t body[FERRY_AUTH_DIGEST_SIZE];
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];
};

/* Bytes of the text, its NUL included. */
#define FERRY_CONTROL_PROOF_TEXT_SIZE 208

void ferry_control_proof_format(const struct ferry_control_proof *proof,
                                char text[FERRY_CONTROL_PROOF_TEXT_SIZE]);
/* Exactly the form above, hex digits in either case. */
FERRY_CHECKED bool ferry_control_proof_parse(const char *text,
                                             struct ferry_control_proof *proof_out);

/* The transcript of a request; @proof->proof is not looked at. */
void ferry_control_transcript_request(struct ferry_auth_transcript *transcript,
                                      const uint8_t challenge[FERRY_CONTROL_CHALLENGE_SIZE],
                                      const struct ferry_control_proof *proof, const char *method,
                                      const char *path);
/* The same transcript goes on with the reply. */
void ferry_control_transcript_reply(struct ferry_auth_transcript *transcript, long http_status,
                                    const void *body, size_t body_len);

#endif
