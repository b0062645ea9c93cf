/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of the control server: checks, body, route, reply. Server thread only. Must not
 * block; what it keeps per request is bounded by options.body_max.
 *
 * A refused request whose body is small is still read to its end, so that the client gets the reply
 * and not a reset; one that is too large is answered at once.
 */
#include "control/request_private.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"

/* Bytes of a refused body that are read and thrown away before the connection is closed. */
#define DISCARD_BYTES_MAX ((size_t)1 << 20)
#define ERROR_TEXT_MAX    4096
#define METHODS_TEXT_SIZE 64

bool ferry_control_host_is_ours(const struct ferry_control_server *server, const char *host)
{
    struct ferry_hostport place;

    if (host == NULL || ferry_hostport_parse(host, 80, 0, &place) != FERRY_OK)
        return false;
    return place.kind != FERRY_HOST_NAME || strcasecmp(place.host, "localhost") == 0 ||
           (server->advertise_host[0] != '\0' &&
            strcasecmp(place.host, server->advertise_host) == 0);
}

/* Owns @reply. */
static struct MHD_Response *make_response(const struct ferry_control_reply *reply)
{
    void (*release)(void *) = reply->release != NULL ? reply->release : free;
    void *release_arg = reply->release != NULL ? reply->release_arg : reply->body;
    struct MHD_Response *response;

    if (reply->body == NULL || reply->body_len == 0) {
        response = MHD_create_response_from_buffer(0, (void *)"", MHD_RESPMEM_PERSISTENT);
        release(release_arg);
        return response;
    }
    response = MHD_create_response_from_buffer_with_free_callback_cls(reply->body_len, reply->body,
                                                                      release, release_arg);
    if (response == NULL)
        release(release_arg);
    else
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
                                reply->content_type != NULL ? reply->content_type
                                                            : "application/json");
    return response;
}

/* MHD_NO, which closes the connection, is what is left without memory. */
static enum MHD_Result send_reply(const struct ferry_control_server *server,
                                  struct MHD_Connection *connection,
                                  struct ferry_control_request *request,
                                  const struct ferry_control_reply *reply, const char *allow)
{
    char proof[2 * FERRY_AUTH_PROOF_SIZE + 1];
    bool proved = ferry_control_prove_reply(server, request, reply, proof);
    struct MHD_Response *response = make_response(reply);

    if (response == NULL)
        return MHD_NO;
    if (proved)
        MHD_add_response_header(response, FERRY_CONTROL_PROOF_HEADER, proof);
    if (reply->http_status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE,
                                FERRY_CONTROL_AUTH_SCHEME);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (allow != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, allow);

    enum MHD_Result result = MHD_queue_response(connection, reply->http_status, response);

    MHD_destroy_response(response);
    return result;
}

void ferry_control_reply_error(struct ferry_control_reply *reply_out, unsigned http_status,
                               enum ferry_status status, const char *text)
{
    struct ferry_text json;

    *reply_out = (struct ferry_control_reply){.http_status = http_status};
    ferry_text_init_heap(&json, ERROR_TEXT_MAX);
    ferry_text_add(&json, "{\"error\": ");
    ferry_text_add_json(&json, text);
    ferry_text_addf(&json, ", \"status\": \"%s\"}\n", ferry_status_name(status));
    /* Without memory the status code alone has to do. */
    if (ferry_text_take(&json, &reply_out->body, &reply_out->body_len) != FERRY_OK)
        ferry_text_fini(&json);
}

static bool same_method(const char *route_method, const char *method)
{
    return strcmp(route_method, method) == 0 || (strcmp(route_method, MHD_HTTP_METHOD_GET) == 0 &&
                                                 strcmp(method, MHD_HTTP_METHOD_HEAD) == 0);
}

/* The route, or NULL and how to refuse. */
static const struct ferry_control_route *find_route(const struct ferry_control_server *server,
                                                    const char *url, const char *method,
                                                    struct ferry_control_refusal *refusal)
{
    bool path_exists = false;

    for (size_t i = 0; i < server->options.route_count; i++) {
        const struct ferry_control_route *route = &server->options.routes[i];

        if (strcmp(route->path, url) != 0)
            continue;
        if (same_method(route->method, method))
            return route;
        path_exists = true;
    }
    *refusal = path_exists ? (struct ferry_control_refusal){MHD_HTTP_METHOD_NOT_ALLOWED,
                                                            FERRY_ERR_UNSUPPORTED,
                                                            "this path does not take this method"}
                           : (struct ferry_control_refusal){MHD_HTTP_NOT_FOUND, FERRY_ERR_NOT_FOUND,
                                                            "no such path; try /v1/version"};
    return NULL;
}

static void list_methods(const struct ferry_control_server *server, const char *url,
                         struct ferry_text *text)
{
    for (size_t i = 0; i < server->options.route_count; i++) {
        const struct ferry_control_route *route = &server->options.routes[i];

        if (strcmp(route->path, url) != 0)
            continue;
        ferry_text_addf(text, "%s%s", text->len > 0 ? ", " : "", route->method);
        if (strcmp(route->method, MHD_HTTP_METHOD_GET) == 0)
            ferry_text_add(text, ", " MHD_HTTP_METHOD_HEAD);
    }
}

/* "application/json", alone or with parameters. */
static bool is_json(const char *content_type)
{
    static const char json[] = "application/json";
    size_t len = sizeof(json) - 1;

    return content_type != NULL && strncasecmp(content_type, json, len) == 0 &&
           strchr("; \t", content_type[len]) != NULL;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static struct ferry_control_refusal check_change(struct MHD_Connection *connection)
{
    const char *mark = header(connection, "X-Ferry");

    if (mark == NULL || strcmp(mark, "1") != 0)
        return (struct ferry_control_refusal){
            MHD_HTTP_FORBIDDEN, FERRY_ERR_REFUSED,
            "a call that changes something needs the header X-Ferry: 1"};
    if (!is_json(header(connection, MHD_HTTP_HEADER_CONTENT_TYPE)))
        return (struct ferry_control_refusal){MHD_HTTP_UNSUPPORTED_MEDIA_TYPE, FERRY_ERR_REFUSED,
                                              "the body must be Content-Type: application/json"};
    return (struct ferry_control_refusal){0};
}

static struct ferry_control_refusal body_too_large(void)
{
    return (struct ferry_control_refusal){MHD_HTTP_CONTENT_TOO_LARGE, FERRY_ERR_TOO_LARGE,
                                          "the request body is too large"};
}

/* True if the client says that it will send more than is allowed. */
static bool announces_too_much(const struct ferry_control_server *server,
                               struct MHD_Connection *connection)
{
    const char *text = header(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    uint64_t len;

    return text != NULL &&
           (ferry_u64_parse(text, &len) != FERRY_OK || len > server->options.body_max);
}

static void check_request(struct ferry_control_server *server, struct MHD_Connection *connection,
                          const char *url, const char *method,
                          struct ferry_control_request *request)
{
    if (!ferry_control_host_is_ours(server, header(connection, MHD_HTTP_HEADER_HOST))) {
        request->refusal = (struct ferry_control_refusal){
            MHD_HTTP_MISDIRECTED_REQUEST, FERRY_ERR_REFUSED, "the Host header names another host"};
        return;
    }
    request->refusal = ferry_control_gate(server, connection, url, method, request);
    if (request->refusal.http_status != 0 || request->wants_challenge)
        return;
    request->route = find_route(server, url, method, &request->refusal);
    if (request->route != NULL && strcmp(request->route->method, MHD_HTTP_METHOD_GET) != 0)
        request->refusal = check_change(connection);
}

static enum MHD_Result refuse(const struct ferry_control_server *server,
                              struct MHD_Connection *connection, const char *url,
                              struct ferry_control_request *request,
                              const struct ferry_control_refusal *refusal)
{
    struct ferry_control_reply reply;
    char methods[METHODS_TEXT_SIZE];
    struct ferry_text allow;

    ferry_control_reply_error(&reply, refusal->http_status, refusal->status, refusal->text);
    ferry_text_init(&allow, methods, sizeof(methods));
    if (refusal->http_status == MHD_HTTP_METHOD_NOT_ALLOWED)
        list_methods(server, url, &allow);
    return send_reply(server, connection, request, &reply, allow.len > 0 ? methods : NULL);
}

static enum MHD_Result begin(struct ferry_control_server *server, struct MHD_Connection *connection,
                             const char *url, const char *method, void **state)
{
    struct ferry_control_request *request = calloc(1, sizeof(*request));

    if (request == NULL)
        return MHD_NO;
    ferry_control_asked(connection);
    *state = request;
    check_request(server, connection, url, method, request);
    if (announces_too_much(server, connection)) {
        struct ferry_control_refusal refusal = body_too_large();

        return refuse(server, connection, url, request,
                      request->refusal.http_status != 0 ? &request->refusal : &refusal);
    }
    return MHD_YES;
}

/* False: the connection has to go. */
static bool add_body(const struct ferry_control_server *server,
                     struct ferry_control_request *request, const char *bytes, size_t len)
{
    if (request->refusal.http_status == 0 && len > server->options.body_max - request->body_len)
        request->refusal = body_too_large();
    if (request->refusal.http_status != 0) {
        request->discarded += len;
        return request->discarded <= DISCARD_BYTES_MAX;
    }

    size_t need = request->body_len + len + 1;

    if (need > request->body_size) {
        size_t size = need * 2;
        char *grown = realloc(request->body, size);

        if (grown == NULL)
            return false;
        request->body = grown;
        request->body_size = size;
    }
    memcpy(request->body + request->body_len, bytes, len);
    request->body_len += len;
    request->body[request->body_len] = '\0';
    return true;
}

static enum MHD_Result answer(struct ferry_control_server *server,
                              struct MHD_Connection *connection, const char *url,
                              struct ferry_control_request *request)
{
    static const struct ferry_control_refusal other_body = {
        MHD_HTTP_UNAUTHORIZED, FERRY_ERR_REFUSED, "the body is not the one that was proved"};
    struct ferry_control_reply reply = {.http_status = MHD_HTTP_OK};

    if (request->refusal.http_status != 0)
        return refuse(server, connection, url, request, &request->refusal);
    if (!ferry_control_body_fits(request)) {
        ferry_control_note(server, connection, FERRY_REFUSAL_WRONG_KEY, other_body.text);
        return refuse(server, connection, url, request, &other_body);
    }
    if (request->wants_challenge)
        ferry_control_challenge(connection, &reply);
    else
        request->route->handler(server->options.arg, request->body != NULL ? request->body : "",
                                request->body_len, &reply);
    FERRY_ASSERT(reply.http_status >= 200);
    FERRY_ASSERT(reply.http_status <= 599);
    return send_reply(server, connection, request, &reply, NULL);
}

enum MHD_Result ferry_control_on_request(void *arg, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *upload, size_t *upload_len, void **state)
{
    struct ferry_control_server *server = arg;
    struct ferry_control_request *request = *state;

    (void)version;
    server->events++;
    if (request == NULL)
        return begin(server, connection, url, method, state);
    if (*upload_len == 0)
        return answer(server, connection, url, request);
    if (!add_body(server, request, upload, *upload_len))
        return MHD_NO;
    *upload_len = 0;
    return MHD_YES;
}

void ferry_control_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                                enum MHD_RequestTerminationCode why)
{
    struct ferry_control_server *server = arg;
    struct ferry_control_request *request = *state;

    (void)connection;
    (void)why;
    server->events++;
    if (request != NULL)
        free(request->body);
    free(request);
    *state = NULL;
}
