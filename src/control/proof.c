/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text and the transcripts of proofs over the control plane; see proof.h. Pure; any thread.
 */
#include "control/proof.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define PURPOSE "ferry control 1"

static const char scheme[] = FERRY_CONTROL_AUTH_SCHEME " ";

void ferry_control_proof_format(const struct ferry_control_proof *proof,
                                char text[FERRY_CONTROL_PROOF_TEXT_SIZE])
{
    char nonce[2 * sizeof(proof->nonce) + 1];
    char body[2 * sizeof(proof->body) + 1];
    char hmac[2 * sizeof(proof->proof) + 1];

    ferry_hex_encode(proof->nonce, sizeof(proof->nonce), nonce);
    ferry_hex_encode(proof->body, sizeof(proof->body), body);
    ferry_hex_encode(proof->proof, sizeof(proof->proof), hmac);
    snprintf(text, FERRY_CONTROL_PROOF_TEXT_SIZE, "%snonce=%s, body=%s, proof=%s", scheme, nonce,
             body, hmac);
}

/* Take @name and its @size bytes in hex from the beginning of *@at. */
static bool take_hex(const char **at, const char *name, uint8_t *bytes, size_t size)
{
    char digits[2 * FERRY_AUTH_PROOF_SIZE + 1];
    size_t name_len = strlen(name);
    size_t len;

    if (strncmp(*at, name, name_len) != 0 || strlen(*at + name_len) < 2 * size)
        return false;
    memcpy(digits, *at + name_len, 2 * size);
    digits[2 * size] = '\0';
    *at += name_len + 2 * size;
    return ferry_hex_decode(digits, bytes, size, &len) == FERRY_OK && len == size;
}

bool ferry_control_proof_parse(const char *text, struct ferry_control_proof *proof_out)
{
    struct ferry_control_proof proof;

    if (strncmp(text, scheme, sizeof(scheme) - 1) != 0)
        return false;
    text += sizeof(scheme) - 1;
    if (!take_hex(&text, "nonce=", proof.nonce, sizeof(proof.nonce)) ||
        !take_hex(&text, ", body=", proof.body, sizeof(proof.body)) ||
        !take_hex(&text, ", proof=", proof.proof, sizeof(proof.proof)) || *text != '\0')
        return false;
    *proof_out = proof;
    return true;
}

void ferry_control_transcript_request(struct ferry_auth_transcript *transcript,
                                      const uint8_t challenge[FERRY_CONTROL_CHALLENGE_SIZE],
                                      const struct ferry_control_proof *proof, const char *method,
                                      const char *path)
{
    ferry_auth_begin(transcript, PURPOSE);
    ferry_auth_add(transcript, challenge, FERRY_CONTROL_CHALLENGE_SIZE);
    ferry_auth_add(transcript, proof->nonce, sizeof(proof->nonce));
    ferry_auth_add(transcript, method, strlen(method));
    ferry_auth_add(transcript, path, strlen(path));
    ferry_auth_add(transcript, proof->body, sizeof(proof->body));
}

void ferry_control_transcript_reply(struct ferry_auth_transcript *transcript, long http_status,
                                    const void *body, size_t body_len)
{
    uint8_t digest[FERRY_AUTH_DIGEST_SIZE];
    char status[16];

    snprintf(status, sizeof(status), "%ld", http_status);
    ferry_auth_add(transcript, status, strlen(status));
    if (!ferry_auth_digest(body, body_len, digest))
        transcript->failed = true;
    ferry_auth_add(transcript, digest, sizeof(digest));
}
