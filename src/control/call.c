/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP call; see call.h. Control thread only. Must not block, and must not let libcurl look up
 * a name or make a connection: libcurl gets a connected descriptor, so that attempts are staggered
 * and each failed address is reported with its own reason.
 */
#include "control/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/text.h"

#define EXPECT_CONTINUE_MS 250L
#define REPLY_FIRST_SIZE   4096

static const char *const method_names[] = {
    [FERRY_HTTP_GET] = "GET",
    [FERRY_HTTP_PUT] = "PUT",
    [FERRY_HTTP_POST] = "POST",
    [FERRY_HTTP_DELETE] = "DELETE",
};

/* Host names, and what libcurl says about a reply, are not ours: no control bytes in texts. */
static void clean_text(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
    }
}

/* "GET 10.9.0.2:80", the beginning of every error text. Never the URL, which may hold a password.
 */
void ferry_http_work_begin_error(const struct ferry_http_work *work, struct ferry_text *text)
{
    char place[FERRY_HOSTPORT_SIZE];

    ferry_hostport_format(&work->place, place, sizeof(place));
    ferry_text_init(text, work->call->error, sizeof(work->call->error));
    ferry_text_addf(text, "%s %s: ", method_names[work->call->method], place);
}

void ferry_http_work_end(struct ferry_http_work *work, enum ferry_status status)
{
    clean_text(work->call->error);
    work->call->status = status;
    work->state = FERRY_HTTP_WORK_ENDED;
}

void ferry_http_work_abort(struct ferry_http_work *work, enum ferry_status status,
                           const char *reason)
{
    struct ferry_text text;

    if (work->state == FERRY_HTTP_WORK_ENDED)
        return;
    ferry_http_work_begin_error(work, &text);
    ferry_text_add(&text, reason);
    ferry_http_work_end(work, status);
}

void ferry_http_call_end(struct ferry_http_call *call, enum ferry_status status, const char *reason)
{
    snprintf(call->error, sizeof(call->error), "%s %s", method_names[call->method], reason);
    call->status = status;
    call->done(call);
}

static bool reserve_reply(struct ferry_http_work *work, size_t need)
{
    size_t size = work->reply_size == 0 ? REPLY_FIRST_SIZE : work->reply_size;

    if (need <= work->reply_size)
        return true;
    while (size < need)
        size *= 2; /* need is at most FERRY_HTTP_REPLY_MAX_MAX + 1 */

    char *grown = realloc(work->reply, size);

    if (grown == NULL)
        return false;
    work->reply = grown;
    work->reply_size = size;
    return true;
}

static size_t on_body(char *bytes, size_t one, size_t len, void *arg)
{
    struct ferry_http_work *work = arg;

    (void)one;
    if (work->call->data != NULL && work->proving != FERRY_HTTP_ASKS_CHALLENGE) {
        work->reply_status = work->call->data(work->call, bytes, len);
        work->refused_by_owner = work->reply_status != FERRY_OK;
        return work->refused_by_owner ? CURL_WRITEFUNC_ERROR : len;
    }
    if (len > work->call->reply_max - work->reply_len)
        work->reply_status = FERRY_ERR_TOO_LARGE;
    else if (!reserve_reply(work, work->reply_len + len + 1))
        work->reply_status = FERRY_ERR_NO_MEMORY;
    if (work->reply_status != FERRY_OK)
        return CURL_WRITEFUNC_ERROR;
    memcpy(work->reply + work->reply_len, bytes, len);
    work->reply_len += len;
    return len;
}

static size_t on_header(char *bytes, size_t one, size_t len, void *arg)
{
    struct ferry_http_work *work = arg;

    (void)one;
    if (len > FERRY_HTTP_HEADERS_MAX - work->header_bytes) {
        work->reply_status = FERRY_ERR_TOO_LARGE;
        work->headers_too_large = true;
        return CURL_WRITEFUNC_ERROR;
    }
    work->header_bytes += len;
    ferry_http_proof_header(work, bytes, len);
    return len;
}

/* The second time there is nothing to take: a call has one connection and is never repeated. */
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct ferry_http_work *work = arg;
    int fd = ferry_connect_take(&work->connect);

    (void)purpose;
    (void)address;
    return fd >= 0 ? fd : CURL_SOCKET_BAD;
}

static int on_socket_options(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static bool add_line(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);

    if (longer == NULL)
        return false;
    *list = longer;
    return true;
}

const char *ferry_http_method_name(enum ferry_http_method method)
{
    return method_names[method];
}

/* The request before the call's own: it carries nothing and keeps the connection. */
static bool set_challenge_request(struct ferry_http_work *work)
{
    CURL *easy = work->easy;

    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 0L);
    return add_line(&work->headers, "Accept: application/json") &&
           curl_easy_setopt(easy, CURLOPT_CURLU, work->challenge_url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, work->headers) == CURLE_OK;
}

static bool set_request(struct ferry_http_work *work)
{
    const struct ferry_http_call *call = work->call;
    CURL *easy = work->easy;
    bool has_body = call->method == FERRY_HTTP_PUT || call->method == FERRY_HTTP_POST;
    bool ok = add_line(&work->headers, "Accept: application/json") &&
              add_line(&work->headers, "Connection: close") &&
              add_line(&work->headers, "X-Ferry: 1") &&
              curl_easy_setopt(easy, CURLOPT_CURLU, work->url) == CURLE_OK;

    if (work->proving == FERRY_HTTP_PROVES_KEY)
        ok = ok && ferry_http_proof_add_header(work, &work->headers);

    if (call->authorization != NULL) {
        char line[FERRY_HTTP_AUTHORIZATION_MAX + sizeof("Authorization: ")];

        ok = ok &&
             snprintf(line, sizeof(line), "Authorization: %s", call->authorization) <
                 (int)sizeof(line) &&
             add_line(&work->headers, line);
    }
    if (has_body) {
        ok = ok && add_line(&work->headers, "Content-Type: application/json") &&
             curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body_len > 0 ? call->body : "") ==
                 CURLE_OK &&
             curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len) ==
                 CURLE_OK;
    }
    return ok &&
           curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method_names[call->method]) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, work->headers) == CURLE_OK;
}

static bool set_file(CURL *easy, CURLoption option, const char *path)
{
    return path == NULL || path[0] == '\0' || curl_easy_setopt(easy, option, path) == CURLE_OK;
}

/* Who the server is, is always checked: libcurl's default, said again because it must stay. */
static bool set_tls(struct ferry_http_work *work)
{
    const struct ferry_http_tls *tls = work->call->tls;
    CURL *easy = work->easy;

    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    return tls == NULL || (set_file(easy, CURLOPT_CAINFO, tls->ca_file) &&
                           set_file(easy, CURLOPT_SSLCERT, tls->cert_file) &&
                           set_file(easy, CURLOPT_SSLKEY, tls->key_file));
}

/*
 * libcurl tells connections apart by where they were to go, and a second request must go out on the
 * very connection of the first: each call pretends to go to an address of its own.
 */
static void name_connection(char *buf, size_t size)
{
    static _Atomic uint32_t last;
    uint32_t number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed);

    snprintf(buf, size, "::127.%u.%u.%u:", number >> 16 & 255, number >> 8 & 255, number & 255);
}

/*
 * The address in connect_to only keeps libcurl from looking up the host; the descriptor is
 * connected already. The options that can fail need memory; the others are plain numbers and
 * pointers.
 */
static bool set_connection(struct ferry_http_work *work)
{
    CURL *easy = work->easy;
    char connect_to[32];

    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_EXPECT_100_TIMEOUT_MS, EXPECT_CONTINUE_MS);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, work->curl_error);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, work);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, work);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, work);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, work);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_options);
    name_connection(connect_to, sizeof(connect_to));
    return add_line(&work->connect_to, connect_to) &&
           curl_easy_setopt(easy, CURLOPT_CONNECT_TO, work->connect_to) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_USERAGENT, "ferry") == CURLE_OK;
}

bool ferry_http_work_next_request(struct ferry_http_work *work)
{
    /* Only from here on may libcurl use the connection again, and afterwards nobody may. */
    curl_multi_remove_handle(work->multi, work->easy);
    curl_slist_free_all(ferry_take_ptr(&work->headers));
    curl_easy_setopt(work->easy, CURLOPT_FRESH_CONNECT, 0L);
    curl_easy_setopt(work->easy, CURLOPT_FORBID_REUSE, 1L);
    work->reply_len = 0;
    work->header_bytes = 0;
    return set_request(work) && curl_multi_add_handle(work->multi, work->easy) == CURLM_OK;
}

static bool set_first_request(struct ferry_http_work *work)
{
    return ferry_http_tls_begin(work) && ferry_http_proof_begin(work) &&
           (work->proving == FERRY_HTTP_ASKS_CHALLENGE ? set_challenge_request(work)
                                                       : set_request(work));
}

static void start_talking(struct ferry_http_work *work)
{
    work->easy = curl_easy_init();
    if (work->easy == NULL || !set_connection(work) || !set_tls(work) || !set_first_request(work) ||
        curl_multi_add_handle(work->multi, work->easy) != CURLM_OK) {
        ferry_http_work_abort(work, FERRY_ERR_NO_MEMORY, "no memory for the request");
        return;
    }
    work->state = FERRY_HTTP_WORK_TALKING;
}

static void step_connect(struct ferry_http_work *work, uint64_t now_ns)
{
    enum ferry_connect_state state = ferry_connect_step(&work->connect, now_ns);
    struct ferry_text text;

    if (state == FERRY_CONNECT_DONE) {
        start_talking(work);
    } else if (state == FERRY_CONNECT_FAILED) {
        ferry_http_work_begin_error(work, &text);
        ferry_text_add(&text, "cannot connect: ");
        ferry_connect_describe(&work->connect, &text);
        ferry_http_work_end(work, ferry_connect_hit_limit(&work->connect) ? FERRY_ERR_LIMIT
                                                                          : FERRY_ERR_PEER_GONE);
    }
}

static void start_connect(struct ferry_http_work *work, const struct ferry_resolution *to)
{
    ferry_connect_init(&work->connect, to, FERRY_HTTP_CONNECT_NS);
    work->state = FERRY_HTTP_WORK_CONNECTING;
}

static void step_lookup(struct ferry_http_work *work)
{
    struct ferry_resolution to;
    struct ferry_text text;

    if (!ferry_lookup_poll(work->lookup, &to))
        return;
    ferry_lookup_release(work->lookup);
    work->lookup = NULL;
    if (to.count > 0) {
        start_connect(work, &to);
        return;
    }
    ferry_http_work_begin_error(work, &text);
    ferry_text_addf(&text, "the host name cannot be resolved: %s", to.reason);
    ferry_http_work_end(work, FERRY_ERR_PEER_GONE);
}

/* The deadline has passed: say what it was waiting for. */
static void expire(struct ferry_http_work *work)
{
    struct ferry_text text;

    ferry_http_work_begin_error(work, &text);
    switch (work->state) {
    case FERRY_HTTP_WORK_RESOLVING:
        ferry_text_add(&text, "the look-up of the host name took too long");
        break;
    case FERRY_HTTP_WORK_CONNECTING:
        ferry_text_add(&text, "not connected in time: ");
        ferry_connect_describe(&work->connect, &text);
        break;
    case FERRY_HTTP_WORK_TALKING:
        ferry_text_add(&text, "connected to ");
        ferry_connect_describe_peer(&work->connect, &text);
        ferry_text_add(&text, ", but no whole reply came in time");
        break;
    case FERRY_HTTP_WORK_ENDED:
        return;
    }
    ferry_http_work_end(work, FERRY_ERR_TIMED_OUT);
}

void ferry_http_work_step(struct ferry_http_work *work, uint64_t now_ns)
{
    if (work->state == FERRY_HTTP_WORK_RESOLVING)
        step_lookup(work);
    if (work->state == FERRY_HTTP_WORK_CONNECTING)
        step_connect(work, now_ns);
    if (work->state != FERRY_HTTP_WORK_ENDED && now_ns >= work->call->deadline_ns)
        expire(work);
}

static enum ferry_status status_of_curl(CURLcode result)
{
    switch (result) {
    case CURLE_OUT_OF_MEMORY:
        return FERRY_ERR_NO_MEMORY;
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_COULDNT_CONNECT:
        return FERRY_ERR_PEER_GONE;
    default:
        return FERRY_ERR_PROTOCOL;
    }
}

static void fail_talk(struct ferry_http_work *work, CURLcode result)
{
    enum ferry_status status = work->reply_status;
    struct ferry_text text;

    ferry_http_work_begin_error(work, &text);
    if (work->headers_too_large) {
        ferry_text_addf(&text, "reply headers of more than %u bytes", FERRY_HTTP_HEADERS_MAX);
    } else if (work->refused_by_owner) {
        ferry_text_add(&text, ferry_last_error_text());
    } else if (status == FERRY_ERR_TOO_LARGE) {
        ferry_text_addf(&text, "a reply of more than %zu bytes", work->call->reply_max);
    } else if (status == FERRY_ERR_NO_MEMORY) {
        ferry_text_add(&text, "no memory for the reply");
    } else {
        status = ferry_http_tls_refused(work, result) ? FERRY_ERR_REFUSED : status_of_curl(result);
        ferry_connect_describe_peer(&work->connect, &text);
        ferry_text_addf(&text, ": %s%s",
                        work->curl_error[0] != '\0' ? work->curl_error : curl_easy_strerror(result),
                        ferry_http_tls_hint(work, result));
    }
    ferry_http_work_end(work, status);
}

void ferry_http_work_talked(struct ferry_http_work *work, CURLcode result)
{
    struct ferry_http_call *call = work->call;
    long http_status = 0;

    FERRY_ASSERT(work->state == FERRY_HTTP_WORK_TALKING);
    if (result == CURLE_OK && work->reply_status == FERRY_OK && !reserve_reply(work, 1))
        work->reply_status = FERRY_ERR_NO_MEMORY;
    if (result != CURLE_OK || work->reply_status != FERRY_OK) {
        fail_talk(work, result);
        return;
    }
    curl_easy_getinfo(work->easy, CURLINFO_RESPONSE_CODE, &http_status);
    if (!ferry_http_proof_replied(work, http_status))
        return;
    call->http_status = http_status;
    work->reply[work->reply_len] = '\0';
    call->reply = ferry_take_ptr(&work->reply);
    call->reply_len = work->reply_len;
    ferry_http_work_end(work, FERRY_OK);
}

void ferry_http_work_finish(struct ferry_http_work *work)
{
    struct ferry_http_call *call = work->call;

    FERRY_ASSERT(work->state == FERRY_HTTP_WORK_ENDED);
    if (work->easy != NULL) {
        curl_multi_remove_handle(work->multi, work->easy);
        curl_easy_cleanup(work->easy);
    }
    curl_slist_free_all(work->headers);
    curl_slist_free_all(work->connect_to);
    curl_url_cleanup(work->url);
    curl_url_cleanup(work->challenge_url);
    ferry_lookup_release(work->lookup);
    ferry_connect_fini(&work->connect);
    free(work->reply);
    free(work);
    call->done(call);
}

uint64_t ferry_http_work_due_ns(const struct ferry_http_work *work)
{
    uint64_t due_ns = work->call->deadline_ns;

    if (work->state == FERRY_HTTP_WORK_CONNECTING) {
        uint64_t connect_due_ns = ferry_connect_due_ns(&work->connect);

        if (connect_due_ns < due_ns)
            due_ns = connect_due_ns;
    }
    return due_ns;
}

size_t ferry_http_work_fds(const struct ferry_http_work *work, int *fds_out)
{
    return work->state == FERRY_HTTP_WORK_CONNECTING ? ferry_connect_fds(&work->connect, fds_out)
                                                     : 0;
}

static bool get_part(CURLU *url, CURLUPart part, char *buf, size_t size)
{
    char *text = NULL;
    bool ok = curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) == CURLUE_OK &&
              strlen(text) < size;

    if (ok)
        strcpy(buf, text);
    curl_free(text);
    return ok;
}

/* The place behind a URL, without asking anybody. False: it is no URL that we call. */
static bool parse_url(CURLU *url, const char *text, struct ferry_hostport *place)
{
    char scheme[16];
    char host[FERRY_HOST_SIZE];
    char zone[32];
    char port[8];
    char whole[FERRY_HOSTPORT_SIZE];

    if (curl_url_set(url, CURLUPART_URL, text, 0) != CURLUE_OK ||
        !get_part(url, CURLUPART_SCHEME, scheme, sizeof(scheme)) ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) ||
        !get_part(url, CURLUPART_HOST, host, sizeof(host)) ||
        !get_part(url, CURLUPART_PORT, port, sizeof(port)))
        return false;
    if (get_part(url, CURLUPART_ZONEID, zone, sizeof(zone))) {
        /* "[fe80::1]" and "eth0" make "[fe80::1%eth0]". */
        size_t len = strlen(host);

        if (len + strlen(zone) + 2 > sizeof(host) || host[len - 1] != ']')
            return false;
        snprintf(host + len - 1, sizeof(host) - len + 1, "%%%s]", zone);
    }
    snprintf(whole, sizeof(whole), "%s:%s", host, port);
    return ferry_hostport_parse(whole, 0, FERRY_HOSTPORT_NEED_PORT, place) == FERRY_OK;
}

/* What stands in front of an '@' is nobody's business. */
static enum ferry_status fail_url(const char *url)
{
    bool secret = strchr(url, '@') != NULL;

    return ferry_fail(FERRY_ERR_INVALID,
                      "\"%.200s\" is no URL that can be called; expected http://host:port/path",
                      secret ? "..." : url);
}

enum ferry_status ferry_http_url_check(const char *url)
{
    struct ferry_hostport place;
    CURLU *parsed = curl_url();

    if (parsed == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "out of memory");

    bool good = parse_url(parsed, url, &place);

    curl_url_cleanup(parsed);
    return good ? FERRY_OK : fail_url(url);
}

static void start(struct ferry_http_work *work)
{
    const struct ferry_hostport *place = &work->place;
    struct ferry_resolution to = {.count = 1};
    enum ferry_status status;

    if (place->kind == FERRY_HOST_NAME) {
        work->state = FERRY_HTTP_WORK_RESOLVING;
        status = ferry_resolver_lookup(work->resolver, place->host, place->port, &work->lookup);
    } else {
        status = ferry_hostport_sockaddr(place, &to.addrs[0].addr, &to.addrs[0].len);
        if (status == FERRY_OK)
            start_connect(work, &to);
    }
    if (status != FERRY_OK)
        ferry_http_work_abort(work, status, ferry_last_error_text());
}

enum ferry_status ferry_http_work_create(struct ferry_http_call *call, CURLM *multi,
                                         struct ferry_resolver *resolver,
                                         const struct ferry_access_control *access,
                                         struct ferry_http_work **work_out)
{
    struct ferry_http_work *work = calloc(1, sizeof(*work));

    if (work == NULL)
        return FERRY_ERR_NO_MEMORY;
    work->call = call;
    work->multi = multi;
    work->resolver = resolver;
    work->access = access;
    work->url = curl_url();
    if (work->url == NULL) {
        free(work);
        return FERRY_ERR_NO_MEMORY;
    }
    ferry_list_init(&work->link);
    if (parse_url(work->url, call->url, &work->place)) {
        start(work);
    } else {
        fail_url(call->url);
        snprintf(call->error, sizeof(call->error), "%s", ferry_last_error_text());
        ferry_http_work_end(work, FERRY_ERR_INVALID);
    }
    *work_out = work;
    return FERRY_OK;
}
