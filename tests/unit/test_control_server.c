/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server of the control plane: routes, the checks against browsers, limits, sockets.
 */
#include "control/server.h"

#include "support/process.h"
#include "test_control_support.h"

#include <sys/wait.h>

#include "base/error.h"
#include "base/log.h"
#include "control/client.h"

#define BODY_MAX 1000

struct rig {
    struct ferry_control_server *server;
    uint16_t port;
    _Atomic int released;
    _Atomic int posts;
    char posted[BODY_MAX + 1];
    char reply[65536];
};

/* A body that is shared by many replies, so that its release has to be counted. */
static char segment_text[] = "{\"name\":\"seg-a\"}";

static void count_release(void *arg)
{
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void get_segment(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    struct rig *rig = arg;

    (void)body;
    (void)body_len;
    reply_out->body = segment_text;
    reply_out->body_len = strlen(segment_text);
    reply_out->release = count_release;
    reply_out->release_arg = (void *)&rig->released;
}

static void get_large(void *arg, const char *body, size_t body_len,
                      struct ferry_control_reply *reply_out)
{
    size_t len = (size_t)8 << 20;

    (void)arg;
    (void)body;
    (void)body_len;
    reply_out->body = malloc(len);
    for (size_t i = 0; reply_out->body != NULL && i < len; i++)
        reply_out->body[i] = (char)('a' + (i * 31 + i / 977) % 26);
    reply_out->body_len = len;
}

static void post_notify(void *arg, const char *body, size_t body_len,
                        struct ferry_control_reply *reply_out)
{
    struct rig *rig = arg;

    assert_int_equal(body[body_len], '\0');
    memcpy(rig->posted, body, body_len + 1);
    if (strcmp(body, "{\"full\":1}") == 0) {
        ferry_control_reply_error(reply_out, 429, FERRY_ERR_QUEUE_FULL, "inbox \"full\"");
        return;
    }
    reply_out->http_status = 204;
    atomic_fetch_add(&rig->posts, 1);
}

static const struct ferry_control_route routes[] = {
    {"GET", "/v1/segment", get_segment},
    {"GET", "/v1/large", get_large},
    {"POST", "/v1/notify", post_notify},
};

static struct ferry_control_options rig_options(struct rig *rig)
{
    return (struct ferry_control_options){
        .bind_host = "",
        .advertise_host = "node7.example",
        .routes = routes,
        .route_count = 3,
        .arg = rig,
        .body_max = BODY_MAX,
        .connections_max = 16,
        .timeout_s = 30,
    };
}

static void rig_open(struct rig *rig, const struct ferry_control_options *options)
{
    assert_ok(ferry_control_server_open(options, &rig->server));
    rig->port = ferry_control_server_port(rig->server);
    assert_true(rig->port > 0);
}

static int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct ferry_control_options options = rig_options(rig);

    rig_open(rig, &options);
    *state = rig;
    return 0;
}

static int rig_up_closed(void **state)
{
    *state = calloc(1, sizeof(struct rig));
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_control_server_close(rig->server);
    free(rig);
    return 0;
}

/* The status code of the reply to a raw request. */
static int ask(struct rig *rig, const char *request)
{
    int code = -1;

    test_exchange(rig->port, request, rig->reply, sizeof(rig->reply));
    sscanf(rig->reply, "HTTP/1.1 %d ", &code);
    return code;
}

static const char *body_of(const struct rig *rig)
{
    const char *end = strstr(rig->reply, "\r\n\r\n");

    return end != NULL ? end + 4 : "";
}

#define GET(path, host) "GET " path " HTTP/1.1\r\nHost: " host "\r\nConnection: close\r\n\r\n"
#define POST(headers, body, len)                                                                   \
    "POST /v1/notify HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" headers                 \
    "Content-Length: " len "\r\n\r\n" body
#define GOOD_HEADERS "Content-Type: application/json\r\nX-Ferry: 1\r\n"

static void test_get_answers_with_json(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);
    assert_string_equal(body_of(rig), segment_text);
    assert_non_null(strstr(rig->reply, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(rig->reply, "Cache-Control: no-store\r\n"));
    assert_int_equal(ask(rig, GET("/v1/segment?x=1", "127.0.0.1")), 200);
    assert_within_ms(atomic_load(&rig->released) == 2, 10000);
}

static void test_head_is_get_without_the_body(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(
        ask(rig, "HEAD /v1/segment HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), 200);
    assert_string_equal(body_of(rig), "");
    assert_non_null(strstr(rig->reply, "Content-Length: 16\r\n"));
    assert_within_ms(atomic_load(&rig->released) == 1, 10000);
}

static void test_unknown_paths_and_methods_are_told_apart(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(ask(rig, GET("/v1/other", "127.0.0.1")), 404);
    assert_non_null(strstr(body_of(rig), "\"status\": \"ERR_NOT_FOUND\"}"));
    assert_int_equal(ask(rig, GET("/v1/segment/", "127.0.0.1")), 404);
    assert_int_equal(ask(rig, GET("/v1/notify", "127.0.0.1")), 405);
    assert_non_null(strstr(rig->reply, "Allow: POST\r\n"));
    assert_int_equal(ask(rig, "DELETE /v1/segment HTTP/1.1\r\nHost: [::1]:80\r\n"
                              "Connection: close\r\n\r\n"),
                     405);
    assert_non_null(strstr(rig->reply, "Allow: GET, HEAD\r\n"));
    assert_non_null(strstr(rig->reply, "Content-Type: application/json\r\n"));
}

static void test_only_our_own_names_are_accepted_as_host(void **state)
{
    static const char *const good[] = {
        "127.0.0.1",    "127.0.0.1:15428", "10.1.2.3:80",
        "[::1]",        "[::1]:8080",      "localhost",
        "LocalHost:80", "node7.example",   "NODE7.example:15428",
    };
    static const char *const bad[] = {
        "evil.example",
        "evil.example:80",
        "node7.example.evil",
        "localhost.evil.example",
        "",
        "127.0.0.1.evil.example",
        "127.0.0.1:99999",
        "[::1",
        "a b",
        "10.0.0.256",
        "127.0.0.1:80:80",
    };
    struct rig *rig = *state;
    char request[256];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        snprintf(request, sizeof(request), GET("/v1/segment", "%s"), good[i]);
        assert_int_equal(ask(rig, request), 200);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(request, sizeof(request), GET("/v1/segment", "%s"), bad[i]);
        assert_int_equal(ask(rig, request), 421);
        assert_non_null(strstr(body_of(rig), "ERR_REFUSED"));
    }
    assert_int_equal(ask(rig, "GET /v1/segment HTTP/1.0\r\n\r\n"), 421);
    assert_int_equal(ask(rig, "GET /v1/segment HTTP/1.1\r\nConnection: close\r\n\r\n"), 400);
}

static void test_a_change_needs_what_no_form_can_send(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(ask(rig, POST("Content-Type: application/json\r\n", "{}", "2")), 403);
    assert_int_equal(ask(rig, POST("Content-Type: application/json\r\nX-Ferry: 2\r\n", "{}", "2")),
                     403);
    assert_int_equal(ask(rig, POST("X-Ferry: 1\r\n", "{}", "2")), 415);
    assert_int_equal(ask(rig, POST("X-Ferry: 1\r\nContent-Type: text/plain\r\n", "{}", "2")), 415);
    assert_int_equal(ask(rig, POST("X-Ferry: 1\r\nContent-Type: application/jsonx\r\n", "{}", "2")),
                     415);
    assert_int_equal(atomic_load(&rig->posts), 0);
    assert_int_equal(ask(rig, POST(GOOD_HEADERS, "{}", "2")), 204);
    assert_int_equal(
        ask(rig,
            POST("x-ferry: 1\r\nContent-Type: Application/JSON; charset=utf-8\r\n", "{}", "2")),
        204);
    assert_int_equal(atomic_load(&rig->posts), 2);
    assert_string_equal(rig->posted, "{}");
}

static void test_a_handler_can_refuse_with_json(void **state)
{
    struct rig *rig = *state;

    assert_int_equal(ask(rig, POST(GOOD_HEADERS, "{\"full\":1}", "10")), 429);
    assert_string_equal(body_of(rig),
                        "{\"error\": \"inbox \\\"full\\\"\", \"status\": \"ERR_QUEUE_FULL\"}\n");
}

static void test_a_body_at_the_limit_is_taken_and_one_above_is_not(void **state)
{
    struct rig *rig = *state;
    char *request = malloc(8192);
    char body[BODY_MAX + 2];

    for (int extra = 0; extra <= 1; extra++) {
        size_t len = BODY_MAX + (size_t)extra;

        for (size_t i = 0; i < len; i++)
            body[i] = (char)('a' + i % 23);
        body[len] = '\0';
        snprintf(request, 8192, POST(GOOD_HEADERS, "%s", "%zu"), len, body);
        assert_int_equal(ask(rig, request), extra == 0 ? 204 : 413);
        if (extra == 0)
            assert_string_equal(rig->posted, body);
        /* The same in chunks, whose sum nobody announces. */
        snprintf(request, 8192,
                 "POST /v1/notify HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" GOOD_HEADERS
                 "Transfer-Encoding: chunked\r\n\r\n%zx\r\n%.*s\r\n%zx\r\n%s\r\n0\r\n\r\n",
                 (size_t)10, 10, body, len - 10, body + 10);
        assert_int_equal(ask(rig, request), extra == 0 ? 204 : 413);
        if (extra == 0)
            assert_string_equal(rig->posted, body);
    }
    assert_int_equal(atomic_load(&rig->posts), 2);
    assert_int_equal(ask(rig, POST(GOOD_HEADERS, "x", "18446744073709551615")), 413);
    free(request);
}

static void test_an_endless_body_is_cut(void **state)
{
    static const char head[] = "POST /v1/notify HTTP/1.1\r\nHost: 127.0.0.1\r\n" GOOD_HEADERS
                               "Transfer-Encoding: chunked\r\n\r\n";
    struct rig *rig = *state;
    int fd = test_connect(rig->port);
    static char chunk[65536];
    bool alive = true;

    memset(chunk, 'x', sizeof(chunk));
    assert_true(stub_send_all(fd, head, strlen(head)));
    for (int i = 0; i < 1000 && alive; i++)
        alive = stub_send_all(fd, "10000\r\n", 7) && stub_send_all(fd, chunk, sizeof(chunk)) &&
                stub_send_all(fd, "\r\n", 2);
    assert_false(alive);
    close(fd);
    assert_int_equal(atomic_load(&rig->posts), 0);
}

static void test_a_large_reply_arrives_whole(void **state)
{
    struct rig *rig = *state;
    struct ferry_http_client *client;
    char url[64];

    assert_ok(ferry_http_client_open(NULL, &client));
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v1/large", rig->port);
    struct ferry_http_call call = {
        .url = url, .reply_max = (size_t)8 << 20, .deadline_ns = test_deadline_ms(30000)};

    assert_ok(ferry_http_client_call(client, &call));
    assert_int_equal(call.reply_len, 8 << 20);
    for (size_t i = 0; i < call.reply_len; i++) {
        if (call.reply[i] != (char)('a' + (i * 31 + i / 977) % 26))
            fail_msg("differs at %zu", i);
    }
    free(call.reply);
    ferry_http_client_close(client);
}

/* A client that leaves in the middle of a reply: the body is released all the same. */
static void test_an_aborted_reply_is_released(void **state)
{
    struct rig *rig = *state;
    int before = process_fd_count();

    for (int i = 0; i < 20; i++) {
        int fd = test_connect(rig->port);
        struct linger reset = {.l_onoff = 1};

        assert_true(stub_send_all(fd, GET("/v1/segment", "127.0.0.1"),
                                  strlen(GET("/v1/segment", "127.0.0.1"))));
        if (i % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        close(fd);
    }
    assert_within_ms(process_fd_count() == before, 20000);
    ferry_control_server_close(rig->server);
    rig->server = NULL;
    /* A reset may overtake the request; then there was no reply. */
    assert_true(atomic_load(&rig->released) <= 20);
}

static void test_a_trickling_peer_is_cut_off(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = rig_options(rig);
    struct timespec pause = {.tv_nsec = 50000000};
    uint64_t until_ns = test_deadline_ms(30000);
    bool alive = true;

    options.timeout_s = 1;
    rig_open(rig, &options);

    int fd = test_connect(rig->port);

    assert_true(stub_send_all(fd, "GET /v1/segment HTTP/1.1\r\nX-Slow: ", 35));
    while (alive && test_now_ns() < until_ns) {
        char byte;

        alive = send(fd, "x", 1, MSG_NOSIGNAL) == 1 &&
                (recv(fd, &byte, 1, MSG_DONTWAIT) > 0 || errno == EAGAIN);
        nanosleep(&pause, NULL);
    }
    assert_false(alive);
    close(fd);
    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);
}

static void test_silent_connections_do_not_keep_others_out_for_ever(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = rig_options(rig);
    int fds[20];

    options.timeout_s = 1;
    options.connections_max = 4;
    rig_open(rig, &options);
    for (int i = 0; i < 20; i++)
        fds[i] = test_connect(rig->port);
    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);
    for (int i = 0; i < 20; i++)
        close(fds[i]);
}

static void test_a_taken_port_is_reported(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = rig_options(rig);
    struct ferry_control_server *second;
    char text[32];

    options.port = rig->port;
    assert_status(ferry_control_server_open(&options, &second), FERRY_ERR_EXISTS);
    snprintf(text, sizeof(text), "127.0.0.1:%u", rig->port);
    assert_non_null(strstr(ferry_last_error_text(), text));

    /* A restart gets the same port at once, though old connections linger. */
    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);
    ferry_control_server_close(rig->server);
    rig->server = NULL;
    rig_open(rig, &options);
    assert_int_equal(rig->port, options.port);
}

static void test_bad_hosts_are_invalid(void **state)
{
    static const char *const hosts[] = {"node7", "127.0.0.1:80", "10.0.0.256",  "203.0.113.7",
                                        "[::1",  "1.2.3",        "fe80::1%nic", " "};
    struct rig *rig = *state;
    struct ferry_control_options options = rig_options(rig);

    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        options.bind_host = hosts[i];
        assert_status(ferry_control_server_open(&options, &rig->server), FERRY_ERR_INVALID);
        assert_non_null(strstr(ferry_last_error_text(), hosts[i]));
    }
}

static void keep_warning(void *arg, enum ferry_log_level level, const char *line)
{
    if (level == FERRY_LOG_WARN)
        snprintf(arg, 512, "%s", line);
}

static void test_a_wildcard_is_dual_and_warned_about(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = rig_options(rig);
    static char warning[512];
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};

    warning[0] = '\0';
    ferry_log_set_sink(keep_warning, warning);
    rig_open(rig, &options);
    assert_string_equal(warning, "");
    ferry_control_server_close(rig->server);
    rig->server = NULL;

    options.bind_host = "::";
    if (ferry_control_server_open(&options, &rig->server) != FERRY_OK) {
        ferry_log_set_sink(NULL, NULL);
        assert_non_null(strstr(ferry_last_error_text(), "IPv6"));
        test_skip("this machine has no IPv6");
    }
    ferry_log_set_sink(NULL, NULL);
    assert_non_null(strstr(warning, "without access control"));
    rig->port = ferry_control_server_port(rig->server);
    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);

    int fd = socket(AF_INET6, SOCK_STREAM, 0);

    addr.sin6_port = htons(rig->port);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
}

static void test_close_is_prompt_with_open_connections(void **state)
{
    struct rig *rig = *state;
    int before = process_fd_count();
    int fds[8];

    for (int i = 0; i < 8; i++) {
        fds[i] = test_connect(rig->port);
        assert_true(stub_send_all(fds[i], "GET /v1/seg", 11));
    }
    assert_within_ms(process_fd_count() == before + 16, 10000);
    uint64_t before_ns = test_now_ns();

    ferry_control_server_close(rig->server);
    rig->server = NULL;
    assert_true(test_now_ns() - before_ns < 10000000000u);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    /* The listener, the epoll descriptor and the two event descriptors went as well. */
    assert_true(process_fd_count() < before);
}

static void test_no_descriptor_survives_exec(void **state)
{
    struct rig *rig = *state;
    int before = process_fd_count();
    int fd = test_connect(rig->port);
    int count = 0;

    assert_within_ms(process_fd_count() == before + 2, 10000);
    /* What the program was started with comes first and is not ours. */
    for (int i = fd > 3 ? 3 : fd; i < 1024; i++) {
        int flags = fcntl(i, F_GETFD);
        struct sockaddr_storage addr;
        socklen_t len = sizeof(addr);
        bool is_socket = flags >= 0 && getsockname(i, (struct sockaddr *)&addr, &len) == 0;

        count += is_socket && (flags & FD_CLOEXEC) == 0 && addr.ss_family == AF_INET;
    }
    assert_int_equal(count, 0);
    close(fd);
}

static void test_a_forked_child_leaves_it_alone(void **state)
{
    struct rig *rig = *state;
    int wait_status = 0;
    pid_t child = fork();

    if (child == 0) {
        ferry_control_server_close(rig->server);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(ask(rig, GET("/v1/segment", "127.0.0.1")), 200);
}

struct caller {
    struct rig *rig;
    struct ferry_http_client *client;
    int failed;
};

static void *call_many(void *arg)
{
    struct caller *caller = arg;
    char url[64];

    for (int i = 0; i < 100; i++) {
        bool post = i % 3 == 0;

        snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", caller->rig->port,
                 post ? "/v1/notify" : "/v1/segment");
        struct ferry_http_call call = {
            .method = post ? FERRY_HTTP_POST : FERRY_HTTP_GET,
            .url = url,
            .body = post ? "{}" : NULL,
            .body_len = post ? 2 : 0,
            .reply_max = 100,
            .deadline_ns = test_deadline_ms(60000),
        };

        if (ferry_http_client_call(caller->client, &call) != FERRY_OK ||
            call.http_status != (post ? 204 : 200) ||
            strcmp(call.reply, post ? "" : segment_text) != 0)
            caller->failed++;
        free(call.reply);
    }
    return NULL;
}

static void test_many_clients_at_once(void **state)
{
    enum { THREADS = 8 };
    struct rig *rig = *state;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    struct ferry_http_client *client;

    assert_ok(ferry_http_client_open(NULL, &client));
    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.rig = rig, .client = client};
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].failed, 0);
    }
    ferry_http_client_close(client);
    assert_int_equal(atomic_load(&rig->posts), THREADS * 34);
    assert_within_ms(atomic_load(&rig->released) == THREADS * 66, 10000);
}

int main(void)
{
#define TEST(fn)        cmocka_unit_test_setup_teardown(fn, rig_up, rig_down)
#define TEST_CLOSED(fn) cmocka_unit_test_setup_teardown(fn, rig_up_closed, rig_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_get_answers_with_json),
        TEST(test_head_is_get_without_the_body),
        TEST(test_unknown_paths_and_methods_are_told_apart),
        TEST(test_only_our_own_names_are_accepted_as_host),
        TEST(test_a_change_needs_what_no_form_can_send),
        TEST(test_a_handler_can_refuse_with_json),
        TEST(test_a_body_at_the_limit_is_taken_and_one_above_is_not),
        TEST(test_an_endless_body_is_cut),
        TEST(test_a_large_reply_arrives_whole),
        TEST(test_an_aborted_reply_is_released),
        TEST_CLOSED(test_a_trickling_peer_is_cut_off),
        TEST_CLOSED(test_silent_connections_do_not_keep_others_out_for_ever),
        TEST(test_a_taken_port_is_reported),
        TEST_CLOSED(test_bad_hosts_are_invalid),
        TEST_CLOSED(test_a_wildcard_is_dual_and_warned_about),
        TEST(test_close_is_prompt_with_open_connections),
        TEST(test_no_descriptor_survives_exec),
        TEST(test_a_forked_child_leaves_it_alone),
        TEST(test_many_clients_at_once),
    };
#undef TEST
#undef TEST_CLOSED

    return cmocka_run_group_tests_name("control server", tests, NULL, NULL);
}
