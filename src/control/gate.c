/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may ask the control server anything: with a key, only who proves it, before the route is
 * looked up and before a byte of a body is taken. A challenge belongs to its connection and is good
 * for one request, so that nothing that was heard on the wire opens anything later or elsewhere.
 * Server thread only.
 */
#include "control/request_private.h"

#include <string.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "base/hostport.h"
#include "base/text.h"
#include "control/message.h"

static const struct ferry_auth *auth_of(const struct ferry_control_server *server)
{
    return ferry_access_auth(server->options.access);
}

static struct ferry_control_connection *connection_of(struct MHD_Connection *mhd_connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd_connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info->socket_context;
}

void ferry_control_asked(struct MHD_Connection *mhd_connection)
{
    struct ferry_control_connection *connection = connection_of(mhd_connection);

    if (connection != NULL)
        connection->asked = true;
}

void ferry_control_note(struct ferry_control_server *server, struct MHD_Connection *mhd_connection,
                        enum ferry_refusal why, const char *detail)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd_connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct ferry_hostport place;
    char who[FERRY_HOSTPORT_SIZE] = "?";

    if (server->options.access == NULL)
        return;
    if (info != NULL && ferry_hostport_of_sockaddr(info->client_addr, &place) == FERRY_OK)
        ferry_hostport_format(&place, who, sizeof(who));
    ferry_refusal_note(&server->options.access->control_refusals, why,
                       ferry_now_ns(&ferry_clock_system), "control", who, detail);
}

static struct ferry_control_refusal not_let_in(const char *text)
{
    return (struct ferry_control_refusal){MHD_HTTP_UNAUTHORIZED, FERRY_ERR_REFUSED, text};
}

static struct ferry_control_refusal check_proof(struct ferry_control_server *server,
                                                struct MHD_Connection *mhd_connection,
                                                const char *url, const char *method,
                                                struct ferry_control_request *request)
{
    struct ferry_control_connection *connection = connection_of(mhd_connection);
    const char *text = MHD_lookup_connection_value(mhd_connection, MHD_HEADER_KIND,
                                                   MHD_HTTP_HEADER_AUTHORIZATION);
    bool challenged = connection != NULL && connection->challenged;
    struct ferry_control_proof proof;

    if (connection != NULL)
        connection->challenged = false;
    if (text == NULL || !ferry_control_proof_parse(text, &proof)) {
        ferry_control_note(server, mhd_connection, FERRY_REFUSAL_NO_KEY, "");
        return not_let_in("this engine answers only who proves its key (auth_key_file); ask for "
                          "/v1/challenge first");
    }
    if (challenged) {
        ferry_control_transcript_request(&request->transcript, connection->challenge, &proof,
                                         method, url);
        request->proved = ferry_auth_check(auth_of(server), FERRY_AUTH_INITIATOR,
                                           &request->transcript, proof.proof, &request->key);
    }
    if (!request->proved) {
        ferry_control_note(server, mhd_connection, FERRY_REFUSAL_WRONG_KEY, "");
        return not_let_in("the proof of the key does not fit: another key, or an old proof");
    }
    memcpy(request->body_digest, proof.body, sizeof(request->body_digest));
    return (struct ferry_control_refusal){0};
}

struct ferry_control_refusal ferry_control_gate(struct ferry_control_server *server,
                                                struct MHD_Connection *mhd_connection,
                                                const char *url, const char *method,
                                                struct ferry_control_request *request)
{
    bool get = strcmp(method, MHD_HTTP_METHOD_GET) == 0;

    if (auth_of(server) == NULL || (get && strcmp(url, FERRY_CONTROL_PATH_HEALTH) == 0))
        return (struct ferry_control_refusal){0};
    if (get && strcmp(url, FERRY_CONTROL_PATH_CHALLENGE) == 0) {
        request->wants_challenge = true;
        return (struct ferry_control_refusal){0};
    }
    return check_proof(server, mhd_connection, url, method, request);
}

void ferry_control_challenge(struct MHD_Connection *mhd_connection,
                             struct ferry_control_reply *reply_out)
{
    struct ferry_control_connection *connection = connection_of(mhd_connection);
    char hex[2 * FERRY_CONTROL_CHALLENGE_SIZE + 1];
    struct ferry_text json;

    if (connection == NULL) {
        ferry_control_reply_error(reply_out, MHD_HTTP_SERVICE_UNAVAILABLE, FERRY_ERR_NO_MEMORY,
                                  "out of memory");
        return;
    }
    ferry_random_system.fill(&ferry_random_system, connection->challenge,
                             sizeof(connection->challenge));
    connection->challenged = true;
    ferry_hex_encode(connection->challenge, sizeof(connection->challenge), hex);
    ferry_text_init_heap(&json, 256);
    ferry_text_addf(&json, "{\"challenge\": \"%s\"}\n", hex);
    if (ferry_text_take(&json, &reply_out->body, &reply_out->body_len) != FERRY_OK) {
        ferry_text_fini(&json);
        reply_out->http_status = MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}

bool ferry_control_body_fits(const struct ferry_control_request *request)
{
    uint8_t digest[FERRY_AUTH_DIGEST_SIZE];

    return !request->proved || (ferry_auth_digest(request->body != NULL ? request->body : "",
                                                  request->body_len, digest) &&
                                CRYPTO_memcmp(digest, request->body_digest, sizeof(digest)) == 0);
}

bool ferry_control_prove_reply(const struct ferry_control_server *server,
                               struct ferry_control_request *request,
                               const struct ferry_control_reply *reply,
                               char text[2 * FERRY_AUTH_PROOF_SIZE + 1])
{
    uint8_t proof[FERRY_AUTH_PROOF_SIZE];

    if (!request->proved)
        return false;
    ferry_control_transcript_reply(&request->transcript, (long)reply->http_status,
                                   reply->body != NULL ? reply->body : "",
                                   reply->body != NULL ? reply->body_len : 0);
    if (!ferry_auth_prove(auth_of(server), request->key, FERRY_AUTH_TARGET, &request->transcript,
                          proof))
        return false;
    ferry_hex_encode(proof, sizeof(proof), text);
    return true;
}
