/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Knowledge of a shared key, proved and checked. A proof is an HMAC-SHA-256 under the key over the
 * prover's role and a transcript of what both sides have said so far, with a fresh random number of
 * each of them in it: what was said once proves nothing later, to another peer, or in the other
 * direction. It says who is there, not that later bytes are theirs.
 *
 *   transcript 0:  SHA-256(purpose)
 *   transcript n:  SHA-256(transcript n-1, SHA-256(piece n))
 *   proof:         HMAC-SHA-256(key, role text, transcript)
 *
 * Keys never leave this room: no text, log line or error holds a byte of one. Any thread; keys do
 * not change after open. Proving and checking may allocate inside libcrypto and belong to
 * greetings, not to the way of requests.
 */
#ifndef FERRY_ACCESS_AUTH_H
#define FERRY_ACCESS_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_AUTH_DIGEST_SIZE    32u
#define FERRY_AUTH_PROOF_SIZE     32u
#define FERRY_AUTH_KEY_BYTES_MIN  32u
#define FERRY_AUTH_KEY_BYTES_MAX  256u
#define FERRY_AUTH_KEYS_MAX       4u
#define FERRY_AUTH_FILE_BYTES_MAX 4096u

struct ferry_auth;

/* A proof of one role is none of the other: it cannot be sent back to where it came from. */
enum ferry_auth_role {
    FERRY_AUTH_INITIATOR = 0, /* "ferry initiator" */
    FERRY_AUTH_TARGET = 1,    /* "ferry target" */
};

/* Plain bytes, copied freely. Once something failed, nothing is proved or accepted with it. */
struct ferry_auth_transcript {
    uint8_t digest[FERRY_AUTH_DIGEST_SIZE];
    bool failed;
};

/*
 * Read a key file: text, one key a line in hex or base64, each of 32 to 256 bytes, at most four;
 * empty lines and lines that begin with # say nothing. The first key proves, all of them are
 * accepted. The file must be a regular one that belongs to the user of the process or to root and
 * that nobody else may read or write.
 * ERR_CONFIG with text, the remedy in it; ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_auth_open(const char *path, struct ferry_auth **auth_out);
/* Wipes the keys. NULL is harmless. Given: nobody uses it any more. */
void ferry_auth_close(struct ferry_auth *auth);

/* @purpose is static text that no other use of proofs has. */
void ferry_auth_begin(struct ferry_auth_transcript *transcript, const char *purpose);
void ferry_auth_add(struct ferry_auth_transcript *transcript, const void *bytes, size_t len);

/* SHA-256. False only when libcrypto has no memory. */
FERRY_CHECKED bool ferry_auth_digest(const void *bytes, size_t len,
                                     uint8_t digest_out[FERRY_AUTH_DIGEST_SIZE]);

/* Prove with key @key, which is 0 or what a check gave. False only when something failed before. */
FERRY_CHECKED bool ferry_auth_prove(const struct ferry_auth *auth, uint32_t key,
                                    enum ferry_auth_role role,
                                    const struct ferry_auth_transcript *transcript,
                                    uint8_t proof_out[FERRY_AUTH_PROOF_SIZE]);
/* True if @proof was made with one of the keys; @key_out says which. Takes the same time anyhow. */
FERRY_CHECKED bool ferry_auth_check(const struct ferry_auth *auth, enum ferry_auth_role role,
                                    const struct ferry_auth_transcript *transcript,
                                    const uint8_t proof[FERRY_AUTH_PROOF_SIZE], uint32_t *key_out);
/* The same for one key: whoever answers must know the key that was proved to him. */
FERRY_CHECKED bool ferry_auth_check_one(const struct ferry_auth *auth, uint32_t key,
                                        enum ferry_auth_role role,
                                        const struct ferry_auth_transcript *transcript,
                                        const uint8_t proof[FERRY_AUTH_PROOF_SIZE]);

#endif
