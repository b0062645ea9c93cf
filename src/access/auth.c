/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transcripts and proofs; see auth.h. Pure but for what libcrypto allocates. Must not log, and must
 * not put a byte of a key into any text.
 */
#include "access/auth_private.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/assert.h"

static const char *const role_texts[] = {
    [FERRY_AUTH_INITIATOR] = "ferry initiator",
    [FERRY_AUTH_TARGET] = "ferry target",
};

#define ROLE_TEXT_MAX 16u

bool ferry_auth_digest(const void *bytes, size_t len, uint8_t digest_out[FERRY_AUTH_DIGEST_SIZE])
{
    unsigned int written = 0;

    return EVP_Digest(bytes, len, digest_out, &written, EVP_sha256(), NULL) == 1 &&
           written == FERRY_AUTH_DIGEST_SIZE;
}

void ferry_auth_begin(struct ferry_auth_transcript *transcript, const char *purpose)
{
    transcript->failed = !ferry_auth_digest(purpose, strlen(purpose), transcript->digest);
}

void ferry_auth_add(struct ferry_auth_transcript *transcript, const void *bytes, size_t len)
{
    uint8_t both[2 * FERRY_AUTH_DIGEST_SIZE];

    memcpy(both, transcript->digest, FERRY_AUTH_DIGEST_SIZE);
    if (!ferry_auth_digest(bytes, len, both + FERRY_AUTH_DIGEST_SIZE) ||
        !ferry_auth_digest(both, sizeof(both), transcript->digest))
        transcript->failed = true;
}

bool ferry_auth_prove(const struct ferry_auth *auth, uint32_t key, enum ferry_auth_role role,
                      const struct ferry_auth_transcript *transcript,
                      uint8_t proof_out[FERRY_AUTH_PROOF_SIZE])
{
    uint8_t said[ROLE_TEXT_MAX + FERRY_AUTH_DIGEST_SIZE];
    size_t len = strlen(role_texts[role]);
    unsigned int written = 0;

    FERRY_ASSERT(key < auth->count);
    FERRY_ASSERT(len <= ROLE_TEXT_MAX);
    if (transcript->failed)
        return false;
    memcpy(said, role_texts[role], len);
    memcpy(said + len, transcript->digest, FERRY_AUTH_DIGEST_SIZE);
    return HMAC(EVP_sha256(), auth->keys[key].bytes, (int)auth->keys[key].len, said,
                len + FERRY_AUTH_DIGEST_SIZE, proof_out, &written) != NULL &&
           written == FERRY_AUTH_PROOF_SIZE;
}

bool ferry_auth_check_one(const struct ferry_auth *auth, uint32_t key, enum ferry_auth_role role,
                          const struct ferry_auth_transcript *transcript,
                          const uint8_t proof[FERRY_AUTH_PROOF_SIZE])
{
    uint8_t expected[FERRY_AUTH_PROOF_SIZE];

    return ferry_auth_prove(auth, key, role, transcript, expected) &&
           CRYPTO_memcmp(expected, proof, FERRY_AUTH_PROOF_SIZE) == 0;
}

bool ferry_auth_check(const struct ferry_auth *auth, enum ferry_auth_role role,
                      const struct ferry_auth_transcript *transcript,
                      const uint8_t proof[FERRY_AUTH_PROOF_SIZE], uint32_t *key_out)
{
    bool found = false;

    /* All keys are tried, whichever fits: the time says nothing about which. */
    for (uint32_t i = 0; i < auth->count; i++) {
        bool fits = ferry_auth_check_one(auth, i, role, transcript, proof);

        if (fits && !found)
            *key_out = i;
        found |= fits;
    }
    return found;
}
