/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP store: a key-value server behind one URL, metadata_servers. The key of a segment (see
 * stores.h) stands percent-escaped in the query: GET, PUT and DELETE on <url>?key=<key>. Fleets
 * that mix ferry and the reference share one such server.
 *
 * Nothing is written outside the prefix. The server has no expiry: an engine that is killed leaves
 * its entry behind. It does not compare and does not list: two who change one entry at once lose
 * one of the changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "config/option.h"
#include "metadata/stores.h"

#define SERVER_URL_MAX 1024

struct http_store {
    struct ferry_http_store http;
    /* immutable after open */
    const struct ferry_clock *clock;
    uint64_t timeout_ns;
    char server[SERVER_URL_MAX + 1];
    char cluster[FERRY_STORE_CLUSTER_MAX + 1];
    struct ferry_http_tls tls;
};

/* Every byte of the key may take three; and the server's URL must still fit. */
_Static_assert(SERVER_URL_MAX + sizeof("?key=") + 3 * FERRY_STORE_KEY_SIZE < FERRY_STORE_URL_SIZE,
               "the longest URL fits");

/* RFC 3986, section 2.3; without the locale's opinion. */
static bool is_unreserved(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '-' || byte == '.' || byte == '_' || byte == '~';
}

static char *add_escaped(char *at, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;

        if (is_unreserved(byte)) {
            *at++ = (char)byte;
        } else {
            *at++ = '%';
            *at++ = digits[byte >> 4];
            *at++ = digits[byte & 15];
        }
    }
    *at = '\0';
    return at;
}

static void judge_refusal(struct ferry_store_request *request)
{
    static const char *const verbs[] = {"give", "take", "delete", "list"};
    long code = request->call.http_status;

    if (request->verb == FERRY_STORE_PUT && code == 413)
        ferry_store_request_fail(request, FERRY_ERR_TOO_LARGE,
                                 "the metadata store refuses a document of %zu bytes (HTTP status "
                                 "413): fewer buffers, or a larger limit in the store",
                                 request->text_len);
    else
        ferry_store_request_fail(request, FERRY_ERR_METADATA,
                                 "the metadata store does not %s segment \"%.255s\": HTTP status "
                                 "%ld",
                                 verbs[request->verb], request->name, code);
}

static void judge(struct ferry_store_request *request)
{
    struct ferry_http_call *call = &request->call;
    bool success = call->http_status >= 200 && call->http_status <= 299;

    switch (call->status) {
    case FERRY_OK:
        break;
    case FERRY_ERR_PEER_GONE:
    case FERRY_ERR_PROTOCOL:
    case FERRY_ERR_TOO_LARGE:
        ferry_store_request_fail(request, FERRY_ERR_METADATA, "the metadata store: %s",
                                 call->error);
        return;
    default:
        return; /* as the client says */
    }
    if (request->verb == FERRY_STORE_GET && call->http_status == 200) {
        request->reply = ferry_take_ptr(&call->reply);
        request->reply_len = call->reply_len;
    } else if (request->verb == FERRY_STORE_GET && call->http_status == 404) {
        ferry_store_request_fail(request, FERRY_ERR_NOT_FOUND,
                                 "the metadata store knows no segment \"%.255s\"", request->name);
    } else if (request->verb == FERRY_STORE_GET ||
               (!success && !(request->verb == FERRY_STORE_DELETE && call->http_status == 404))) {
        judge_refusal(request);
    }
}

static void http_submit(struct ferry_store *base, struct ferry_store_request *request)
{
    static const enum ferry_http_method methods[] = {
        [FERRY_STORE_GET] = FERRY_HTTP_GET,
        [FERRY_STORE_PUT] = FERRY_HTTP_PUT,
        [FERRY_STORE_DELETE] = FERRY_HTTP_DELETE,
    };
    struct http_store *store = FERRY_CONTAINER_OF(base, struct http_store, http.base);
    uint64_t limit_ns = ferry_deadline_ns(ferry_now_ns(store->clock), store->timeout_ns);
    char key[FERRY_STORE_KEY_SIZE];
    int len;

    if (request->verb == FERRY_STORE_LIST || request->expect != FERRY_STORE_ANYTHING) {
        ferry_http_store_answer(&store->http, request, FERRY_ERR_UNSUPPORTED,
                                request->verb == FERRY_STORE_LIST
                                    ? "the http store cannot list its entries"
                                    : "the http store cannot compare before it writes");
        return;
    }
    if (!ferry_store_name_check(request->name)) {
        ferry_http_store_answer(&store->http, request, FERRY_ERR_INVALID, ferry_last_error_text());
        return;
    }
    len = snprintf(request->url, sizeof(request->url), "%s?key=", store->server);
    ferry_store_key(store->cluster, request->name, key);
    add_escaped(request->url + len, key);
    request->call.method = methods[request->verb];
    request->call.url = request->url;
    request->call.tls = &store->tls;
    request->call.body = request->verb == FERRY_STORE_PUT ? request->text : NULL;
    request->call.body_len = request->verb == FERRY_STORE_PUT ? request->text_len : 0;
    request->call.deadline_ns = request->deadline_ns < limit_ns ? request->deadline_ns : limit_ns;
    ferry_http_store_send(&store->http, request);
}

static void http_close(struct ferry_store *base)
{
    struct http_store *store = FERRY_CONTAINER_OF(base, struct http_store, http.base);

    ferry_http_store_fini(&store->http);
    free(store);
}

static enum ferry_status check_server(const char *url)
{
    static const char example[] = "http://10.0.0.1:8080/metadata";

    if (url[0] == '\0')
        return ferry_fail(FERRY_ERR_CONFIG,
                          "metadata_servers is empty: metadata_type http needs the URL of the "
                          "store, such as %s",
                          example);
    if (strlen(url) > SERVER_URL_MAX || strpbrk(url, "?#") != NULL ||
        ferry_http_url_check(url) != FERRY_OK)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "metadata_servers \"%.200s\": expected one URL of at most %d bytes "
                          "without ? and #, such as %s",
                          url, SERVER_URL_MAX, example);
    return FERRY_OK;
}

static enum ferry_status http_open(const struct ferry_store_env *env,
                                   struct ferry_store **store_out)
{
    const char *server = ferry_config_string(env->config, "metadata_servers");
    char cluster[FERRY_STORE_CLUSTER_MAX + 1];
    enum ferry_status status = check_server(server);

    if (status == FERRY_OK)
        status = ferry_store_cluster(env->config, cluster);
    if (status != FERRY_OK)
        return status;

    struct http_store *store = calloc(1, sizeof(*store));

    if (store == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "http store: out of memory");
    ferry_http_store_init(&store->http, env, judge);
    store->http.base.ops = &ferry_store_http;
    store->clock = env->clock;
    store->timeout_ns = ferry_config_u64(env->config, "metadata_timeout_ms") * FERRY_NS_PER_MS;
    strcpy(store->server, server);
    strcpy(store->cluster, cluster);
    store->tls = ferry_store_tls(env->config);
    *store_out = &store->http.base;
    return FERRY_OK;
}

const struct ferry_store_ops ferry_store_http = {
    .name = "http",
    .open = http_open,
    .close = http_close,
    .submit = http_submit,
    .names_are_addresses = false,
};
