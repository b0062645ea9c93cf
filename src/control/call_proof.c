/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's half of a call that proves a key to a peer (proof.h): two requests on one
 * connection, the first for a challenge, and a reply that has to prove the key as well. Without a
 * key, or towards strangers, nothing of this happens. Control thread only.
 */
#include <string.h>
#include <strings.h>

#include <openssl/crypto.h>

#include "access/access.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "control/call.h"
#include "control/message.h"

static const struct ferry_auth *auth_of(const struct ferry_http_work *work)
{
    return work->call->party == FERRY_HTTP_PEER ? ferry_access_auth(work->access) : NULL;
}

bool ferry_http_proof_begin(struct ferry_http_work *work)
{
    if (auth_of(work) == NULL)
        return true;
    work->proving = FERRY_HTTP_ASKS_CHALLENGE;
    work->challenge_url = curl_url_dup(work->url);
    return work->challenge_url != NULL &&
           curl_url_set(work->challenge_url, CURLUPART_PATH, FERRY_CONTROL_PATH_CHALLENGE, 0) ==
               CURLUE_OK &&
           curl_url_set(work->challenge_url, CURLUPART_QUERY, NULL, 0) == CURLUE_OK;
}

void ferry_http_proof_header(struct ferry_http_work *work, const char *bytes, size_t len)
{
    static const char name[] = FERRY_CONTROL_PROOF_HEADER ": ";
    size_t name_len = sizeof(name) - 1;
    size_t hex_len = sizeof(work->reply_proof) - 1;

    if (work->proving != FERRY_HTTP_PROVES_KEY || len < name_len + hex_len ||
        strncasecmp(bytes, name, name_len) != 0)
        return;
    memcpy(work->reply_proof, bytes + name_len, hex_len);
    work->reply_proof[hex_len] = '\0';
}

bool ferry_http_proof_add_header(struct ferry_http_work *work, struct curl_slist **headers)
{
    static const char name[] = "Authorization: ";
    char line[sizeof(name) + FERRY_CONTROL_PROOF_TEXT_SIZE];
    struct curl_slist *longer;

    memcpy(line, name, sizeof(name) - 1);
    ferry_control_proof_format(&work->proof, line + sizeof(name) - 1);
    longer = curl_slist_append(*headers, line);
    if (longer == NULL)
        return false;
    *headers = longer;
    return true;
}

static void refuse(struct ferry_http_work *work, const char *reason)
{
    struct ferry_text text;

    ferry_http_work_begin_error(work, &text);
    ferry_text_add(&text, reason);
    ferry_http_work_end(work, FERRY_ERR_REFUSED);
}

/* The challenge in the reply, which is ended by a NUL. */
static bool read_challenge(struct ferry_http_work *work,
                           uint8_t challenge_out[FERRY_CONTROL_CHALLENGE_SIZE])
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *hex = "";
    size_t len = 0;

    return ferry_json_parse(&ferry_json_limits_small, "challenge", work->reply, work->reply_len,
                            &root) == FERRY_OK &&
           ferry_json_as_object(&root) == FERRY_OK &&
           ferry_json_string(&root, "challenge", 64, &hex) == FERRY_OK &&
           ferry_hex_decode(hex, challenge_out, FERRY_CONTROL_CHALLENGE_SIZE, &len) == FERRY_OK &&
           len == FERRY_CONTROL_CHALLENGE_SIZE;
}

static bool prove(struct ferry_http_work *work,
                  const uint8_t challenge[FERRY_CONTROL_CHALLENGE_SIZE])
{
    const struct ferry_http_call *call = work->call;
    struct ferry_control_proof *proof = &work->proof;
    char *path = NULL;
    bool ok;

    ferry_random_system.fill(&ferry_random_system, proof->nonce, sizeof(proof->nonce));
    ok = curl_url_get(work->url, CURLUPART_PATH, &path, 0) == CURLUE_OK &&
         ferry_auth_digest(call->body_len > 0 ? call->body : "", call->body_len, proof->body);
    if (ok) {
        ferry_control_transcript_request(&work->transcript, challenge, proof,
                                         ferry_http_method_name(call->method), path);
        ok = ferry_auth_prove(auth_of(work), 0, FERRY_AUTH_INITIATOR, &work->transcript,
                              proof->proof);
    }
    curl_free(path);
    return ok;
}

/* The reply to the first request came: send the second. */
static void go_on(struct ferry_http_work *work, long http_status)
{
    uint8_t challenge[FERRY_CONTROL_CHALLENGE_SIZE];

    if (http_status == 404) {
        refuse(work, "the peer answers everybody without a proof of the key: set auth_key_file "
                     "there as it is here");
        return;
    }
    work->reply[work->reply_len] = '\0';
    if (http_status != 200 || !read_challenge(work, challenge)) {
        refuse(work, "the peer sends no challenge to prove the key to");
        return;
    }
    work->proving = FERRY_HTTP_PROVES_KEY;
    if (!prove(work, challenge) || !ferry_http_work_next_request(work))
        ferry_http_work_abort(work, FERRY_ERR_NO_MEMORY, "no memory for the request");
}

static bool reply_fits(struct ferry_http_work *work, long http_status)
{
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];
    size_t len = 0;

    ferry_control_transcript_reply(&work->transcript, http_status, work->reply, work->reply_len);
    return ferry_hex_decode(work->reply_proof, proof, sizeof(proof), &len) == FERRY_OK &&
           len == sizeof(proof) &&
           ferry_auth_check_one(auth_of(work), 0, FERRY_AUTH_TARGET, &work->transcript, proof);
}

bool ferry_http_proof_replied(struct ferry_http_work *work, long http_status)
{
    switch (work->proving) {
    case FERRY_HTTP_ASKS_CHALLENGE:
        go_on(work, http_status);
        return false;
    case FERRY_HTTP_PROVES_KEY:
        if (http_status == 401) {
            refuse(work, "the peer does not accept our proof of the key: the first key of "
                         "auth_key_file here is none of those there");
            return false;
        }
        if (!reply_fits(work, http_status)) {
            refuse(work, "the reply does not prove the key of auth_key_file");
            return false;
        }
        return true;
    case FERRY_HTTP_PROVES_NOTHING:
        break;
    }
    if (work->call->party != FERRY_HTTP_PEER || http_status != 401)
        return true;
    refuse(work, "the peer answers only who proves its key: set auth_key_file here as it is there");
    return false;
}
