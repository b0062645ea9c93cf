/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP client of the control plane against servers that answer, misbehave, or are not there.
 */
#include "control/client.h"

#include "support/process.h"
#include "test_control_support.h"

#include <sys/wait.h>

#include "base/error.h"
#include "base/futex.h"

#define OK_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"answer\":42}"

struct rig {
    struct ferry_http_client *client;
    struct stub stub;
    char url[128];
};

static int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    rig->stub.reply = OK_REPLY;
    assert_ok(ferry_http_client_open(NULL, &rig->client));
    *state = rig;
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_http_client_close(rig->client);
    free(rig);
    return 0;
}

static void serve(struct rig *rig)
{
    stub_open(&rig->stub);
    snprintf(rig->url, sizeof(rig->url), "http://127.0.0.1:%u/v1/segment", rig->stub.port);
}

static struct ferry_http_call get(const char *url, uint64_t timeout_ms)
{
    return (struct ferry_http_call){
        .method = FERRY_HTTP_GET,
        .url = url,
        .reply_max = 4096,
        .deadline_ns = test_deadline_ms(timeout_ms),
    };
}

static void test_get_returns_status_and_body(void **state)
{
    struct rig *rig = *state;

    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    assert_int_equal(call.http_status, 200);
    assert_int_equal(call.reply_len, 13);
    assert_string_equal(call.reply, "{\"answer\":42}");
    assert_string_equal(call.error, "");
    free(call.reply);
    stub_close(&rig->stub);
    assert_non_null(strstr(rig->stub.request, "GET /v1/segment HTTP/1.1\r\n"));
}

static void test_any_http_status_is_a_result(void **state)
{
    struct rig *rig = *state;

    rig->stub.reply = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    assert_int_equal(call.http_status, 404);
    assert_string_equal(call.reply, "");
    free(call.reply);
    stub_close(&rig->stub);
}

static void test_put_and_post_carry_the_body_and_the_mark(void **state)
{
    static const enum ferry_http_method methods[] = {FERRY_HTTP_PUT, FERRY_HTTP_POST};
    static const char *const lines[] = {"PUT /v1/segment HTTP/1.1\r\n",
                                        "POST /v1/segment HTTP/1.1\r\n"};

    for (int i = 0; i < 2; i++) {
        struct rig *rig = *state;

        serve(rig);
        struct ferry_http_call call = get(rig->url, 10000);

        call.method = methods[i];
        call.body = "{\"name\":\"seg-a\"}";
        call.body_len = strlen(call.body);
        assert_ok(ferry_http_client_call(rig->client, &call));
        free(call.reply);
        stub_close(&rig->stub);
        assert_ptr_equal(strstr(rig->stub.request, lines[i]), rig->stub.request);
        assert_non_null(strstr(rig->stub.request, "\r\nContent-Type: application/json\r\n"));
        assert_non_null(strstr(rig->stub.request, "\r\nX-Ferry: 1\r\n"));
        assert_non_null(strstr(rig->stub.request, "\r\n\r\n{\"name\":\"seg-a\"}"));
    }
}

static void test_a_refused_connection_names_address_and_reason(void **state)
{
    struct rig *rig = *state;
    uint16_t port;
    int fd = test_dead_port(&port);
    char place[64];

    snprintf(rig->url, sizeof(rig->url), "http://127.0.0.1:%u/", port);
    snprintf(place, sizeof(place), "127.0.0.1:%u: Connection refused", port);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_PEER_GONE);
    assert_null(call.reply);
    assert_non_null(strstr(call.error, place));
    assert_string_equal(call.error, ferry_last_error_text());
    close(fd);
}

/* "localhost" has an address or two; the server listens on one of them only. */
static void test_a_name_is_resolved_and_its_addresses_are_tried(void **state)
{
    struct rig *rig = *state;

    serve(rig);
    snprintf(rig->url, sizeof(rig->url), "http://localhost:%u/", rig->stub.port);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    stub_close(&rig->stub);
}

static void test_an_unknown_name_is_reported_by_name(void **state)
{
    struct rig *rig = *state;
    struct ferry_http_call call = get("http://no-such-host.invalid:80/", 8000);
    enum ferry_status status = ferry_http_client_call(rig->client, &call);

    /* Without any name server the look-up itself may take too long. */
    assert_true(status == FERRY_ERR_PEER_GONE || status == FERRY_ERR_TIMED_OUT);
    assert_non_null(strstr(call.error, "no-such-host.invalid"));
}

static void test_a_stuck_server_ends_at_the_deadline(void **state)
{
    struct rig *rig = *state;

    rig->stub.deaf = true;
    serve(rig);
    uint64_t before_ns = test_now_ns();
    struct ferry_http_call call = get(rig->url, 200);

    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_TIMED_OUT);
    assert_true(test_now_ns() - before_ns >= 200 * 1000000u);
    assert_non_null(strstr(call.error, "no whole reply"));
    stub_close(&rig->stub);
}

static void test_a_reply_that_never_ends_is_cut_at_the_limit(void **state)
{
    static const char *const replies[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    };

    for (size_t i = 0; i < 3; i++) {
        struct rig *rig = *state;

        rig->stub.reply = replies[i];
        rig->stub.chunk = "a\r\n0123456789\r\n";
        rig->stub.repeat = 50000;
        serve(rig);
        struct ferry_http_call call = get(rig->url, 10000);

        assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_TOO_LARGE);
        assert_null(call.reply);
        assert_non_null(strstr(call.error, "4096 bytes"));
        stub_close(&rig->stub);
    }
}

static void test_a_reply_of_exactly_the_limit_is_taken(void **state)
{
    struct rig *rig = *state;

    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    call.reply_max = 13;
    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    call = get(rig->url, 10000);
    call.reply_max = 12;
    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_TOO_LARGE);
    stub_close(&rig->stub);
}

static void test_endless_headers_are_cut(void **state)
{
    struct rig *rig = *state;

    rig->stub.reply = "HTTP/1.1 200 OK\r\n";
    rig->stub.chunk = "X-Filler: 0123456789012345678901234567890123456789\r\n";
    rig->stub.repeat = 100000;
    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_TOO_LARGE);
    assert_non_null(strstr(call.error, "headers"));
    stub_close(&rig->stub);
}

static void test_broken_replies_are_told_apart(void **state)
{
    static const struct {
        const char *reply;
        enum ferry_status status;
    } cases[] = {
        {"", FERRY_ERR_PEER_GONE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", FERRY_ERR_PEER_GONE},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", FERRY_ERR_PEER_GONE},
        {"SSH-2.0-OpenSSH_9.2p1\r\n", FERRY_ERR_PROTOCOL},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig *rig = *state;

        rig->stub.reply = cases[i].reply;
        serve(rig);
        struct ferry_http_call call = get(rig->url, 10000);

        assert_status(ferry_http_client_call(rig->client, &call), cases[i].status);
        assert_null(call.reply);
        assert_non_null(strstr(call.error, "127.0.0.1"));
        stub_close(&rig->stub);
    }
}

static void test_redirects_are_results_and_not_followed(void **state)
{
    struct rig *rig = *state;

    rig->stub.reply = "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n";
    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    assert_int_equal(call.http_status, 302);
    free(call.reply);
    stub_close(&rig->stub);
    assert_int_equal(atomic_load(&rig->stub.accepted), 1);
}

/* libcurl repeats a request on a reused connection that dies; ours must reach the peer once. */
static void test_a_request_is_never_sent_twice(void **state)
{
    struct rig *rig = *state;

    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    stub_close(&rig->stub);

    rig->stub.reply = "";
    serve(rig);
    call = get(rig->url, 10000);
    call.method = FERRY_HTTP_POST;
    call.body = "{}";
    call.body_len = 2;
    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_PEER_GONE);
    stub_close(&rig->stub);
    assert_int_equal(atomic_load(&rig->stub.accepted), 1);
}

static void test_proxies_of_the_environment_are_ignored(void **state)
{
    struct rig *rig = *state;

    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    serve(rig);
    struct ferry_http_call call = get(rig->url, 10000);

    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    stub_close(&rig->stub);
    /* A proxy would be asked for the whole URL. */
    assert_ptr_equal(strstr(rig->stub.request, "GET /v1/segment HTTP/1.1\r\n"), rig->stub.request);
    unsetenv("http_proxy");
    unsetenv("ALL_PROXY");
}

static void test_bad_urls_are_invalid(void **state)
{
    static const char *const urls[] = {
        "",           "127.0.0.1:80",          "ftp://127.0.0.1/",        "file:///etc/passwd",
        "http://",    "http://127.0.0.1:0/",   "http://127.0.0.1:99999/", "http://[::1/",
        "http://a b", "http://127.0.0.1:80x/", "http://10.0.0.256:80/",
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct ferry_http_call call = get(urls[i], 10000);

        assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_INVALID);
        assert_non_null(strstr(call.error, urls[i]));
    }
}

static void count_call(struct ferry_http_call *call)
{
    _Atomic uint32_t *count = call->arg;

    free(call->reply);
    atomic_fetch_add(count, 1);
}

/* More calls than run at a time, to a server that never answers: all end at their deadline. */
static void test_calls_beyond_the_limit_wait_under_their_deadline(void **state)
{
    enum { CALLS = FERRY_HTTP_RUNNING_MAX + 40 };
    struct rig *rig = *state;
    struct ferry_http_call *calls = calloc(CALLS, sizeof(*calls));
    _Atomic uint32_t count = 0;
    int waited = 0;

    rig->stub.deaf = true;
    serve(rig);

    for (int i = 0; i < CALLS; i++) {
        calls[i] = get(rig->url, i < FERRY_HTTP_RUNNING_MAX ? 1500 : 300);
        calls[i].done = count_call;
        calls[i].arg = (void *)&count;
        ferry_http_client_submit(rig->client, &calls[i]);
    }
    assert_within_ms(atomic_load(&count) == CALLS, 20000);
    for (int i = 0; i < CALLS; i++) {
        assert_int_equal(calls[i].status, FERRY_ERR_TIMED_OUT);
        waited += strstr(calls[i].error, "waited") != NULL;
    }
    assert_int_equal(waited, 40);
    stub_close(&rig->stub);
    free(calls);
}

struct chain {
    struct ferry_http_client *client;
    struct ferry_http_call call;
    char url[128];
    _Atomic int left;
    _Atomic int failed;
};

static void next_in_chain(struct ferry_http_call *call)
{
    struct chain *chain = call->arg;

    free(call->reply);
    if (call->status != FERRY_OK)
        atomic_fetch_add(&chain->failed, 1);
    if (atomic_fetch_sub(&chain->left, 1) > 1) {
        call->deadline_ns = test_deadline_ms(30000);
        ferry_http_client_submit(chain->client, call);
    }
}

/* done() may submit the very call that it got. */
static void test_done_may_submit_again(void **state)
{
    struct rig *rig = *state;
    struct chain chain = {.client = rig->client};

    serve(rig);
    atomic_store(&chain.left, 20);
    chain.call = get(rig->url, 30000);
    chain.call.done = next_in_chain;
    chain.call.arg = &chain;
    ferry_http_client_submit(rig->client, &chain.call);
    assert_within_ms(atomic_load(&chain.left) == 0, 30000);
    assert_int_equal(atomic_load(&chain.failed), 0);
    assert_int_equal(atomic_load(&rig->stub.accepted), 20);
    stub_close(&rig->stub);
}

static void *call_many(void *arg)
{
    struct rig *rig = arg;
    uintptr_t failed = 0;

    for (int i = 0; i < 50; i++) {
        struct ferry_http_call call = get(rig->url, 30000);

        if (ferry_http_client_call(rig->client, &call) != FERRY_OK ||
            strcmp(call.reply, "{\"answer\":42}") != 0)
            failed++;
        free(call.reply);
    }
    return (void *)failed;
}

static void test_many_threads_call_at_once(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[8];

    serve(rig);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, rig), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    stub_close(&rig->stub);
    assert_int_equal(atomic_load(&rig->stub.accepted), 400);
}

static void test_close_ends_what_runs_and_what_waits(void **state)
{
    enum { CALLS = FERRY_HTTP_RUNNING_MAX + 10 };
    struct rig *rig = *state;
    struct ferry_http_call *calls = calloc(CALLS, sizeof(*calls));
    _Atomic uint32_t count = 0;

    rig->stub.deaf = true;
    serve(rig);
    for (int i = 0; i < CALLS; i++) {
        calls[i] = get(rig->url, 60000);
        calls[i].done = count_call;
        calls[i].arg = (void *)&count;
        ferry_http_client_submit(rig->client, &calls[i]);
    }
    assert_within_ms(atomic_load(&rig->stub.accepted) > 0, 10000);
    uint64_t before_ns = test_now_ns();

    ferry_http_client_close(rig->client);
    rig->client = NULL;
    assert_true(test_now_ns() - before_ns < 10 * FERRY_NS_PER_S);
    assert_int_equal(atomic_load(&count), CALLS);
    for (int i = 0; i < CALLS; i++)
        assert_int_equal(calls[i].status, FERRY_ERR_CLOSING);
    stub_close(&rig->stub);
    free(calls);
}

/* The parent's thread is not in the child: calls are refused, close returns. */
static void test_a_forked_child_cannot_use_it(void **state)
{
    struct rig *rig = *state;
    int wait_status = 0;
    pid_t child = fork();

    if (child == 0) {
        struct ferry_http_call call = get("http://127.0.0.1:1/", 1000);
        enum ferry_status status = ferry_http_client_call(rig->client, &call);

        ferry_http_client_close(rig->client);
        _exit(status == FERRY_ERR_FORKED ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_true(WIFEXITED(wait_status));
    assert_int_equal(WEXITSTATUS(wait_status), 0);
}

/* What the test program itself was started with. */
static int inherited_at_start;

static int inheritable_fds(void)
{
    int count = 0;

    for (int fd = 3; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);

        count += flags >= 0 && (flags & FD_CLOEXEC) == 0;
    }
    return count;
}

static void test_no_descriptor_survives_exec(void **state)
{
    struct rig *rig = *state;

    rig->stub.deaf = true;
    serve(rig);
    static struct ferry_http_call call;
    static _Atomic uint32_t count;

    call = get(rig->url, 60000);
    call.done = count_call;
    call.arg = (void *)&count;
    ferry_http_client_submit(rig->client, &call);
    assert_within_ms(atomic_load(&rig->stub.accepted) > 0, 10000);
    assert_int_equal(inheritable_fds(), inherited_at_start);
    ferry_http_client_close(rig->client);
    rig->client = NULL;
    assert_int_equal(atomic_load(&count), 1);
    stub_close(&rig->stub);
}

static void test_nothing_stays_open(void **state)
{
    struct rig *rig = *state;
    int before = process_fd_count();

    serve(rig);
    for (int i = 0; i < 10; i++) {
        struct ferry_http_call call = get(rig->url, 10000);

        assert_ok(ferry_http_client_call(rig->client, &call));
        free(call.reply);
    }
    stub_close(&rig->stub);
    assert_within_ms(process_fd_count() == before, 10000);
}

static void test_an_idle_client_uses_no_cpu(void **state)
{
    struct timespec before;
    struct timespec after;
    struct timespec pause = {.tv_nsec = 500000000};

    (void)state;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    assert_true((after.tv_sec - before.tv_sec) * 1000000000L + after.tv_nsec - before.tv_nsec <
                50000000L);
}

struct parts {
    char text[4096];
    size_t len;
    enum ferry_status answer; /* once len is beyond answer_at */
    size_t answer_at;
};

static struct parts streamed_parts;

static enum ferry_status take_streamed(struct ferry_http_call *call, const char *bytes, size_t len)
{
    struct parts *parts = &streamed_parts;

    (void)call;
    if (len > sizeof(parts->text) - parts->len)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "more than the test sent");
    memcpy(parts->text + parts->len, bytes, len);
    parts->len += len;
    if (parts->len > parts->answer_at)
        return ferry_fail(parts->answer, "enough of it");
    return FERRY_OK;
}

static void test_a_reply_can_be_taken_as_it_comes(void **state)
{
    struct rig *rig = *state;

    streamed_parts = (struct parts){.answer_at = SIZE_MAX};
    rig->stub.reply = "HTTP/1.1 200 OK\r\nContent-Length: 1013\r\n\r\n{\"answer\":42}";
    rig->stub.chunk = "0123456789";
    rig->stub.repeat = 100;
    serve(rig);

    struct ferry_http_call call = get(rig->url, 10000);

    call.reply_max = 10; /* for what is collected, which is nothing */
    call.data = take_streamed;
    assert_ok(ferry_http_client_call(rig->client, &call));
    assert_int_equal(streamed_parts.len, 1013);
    assert_memory_equal(streamed_parts.text, "{\"answer\":42}0123456789", 23);
    assert_string_equal(call.reply, "");
    free(call.reply);
    stub_close(&rig->stub);
}

static void test_who_takes_a_reply_may_end_it(void **state)
{
    struct rig *rig = *state;

    streamed_parts = (struct parts){.answer = FERRY_ERR_CANCELED, .answer_at = 5};
    serve(rig);

    struct ferry_http_call call = get(rig->url, 10000);

    call.data = take_streamed;
    assert_status(ferry_http_client_call(rig->client, &call), FERRY_ERR_CANCELED);
    assert_non_null(strstr(call.error, "enough of it"));
    assert_null(call.reply);
    stub_close(&rig->stub);
}

static void test_a_call_brings_its_authorization(void **state)
{
    struct rig *rig = *state;
    struct ferry_http_call call;

    serve(rig);
    call = get(rig->url, 10000);
    call.authorization = "token.7";
    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    assert_non_null(strstr(rig->stub.request, "\r\nAuthorization: token.7\r\n"));
    call = get(rig->url, 10000);
    assert_ok(ferry_http_client_call(rig->client, &call));
    free(call.reply);
    assert_null(strstr(rig->stub.request, "Authorization"));
    stub_close(&rig->stub);
}

struct sleeper {
    struct ferry_http_call call;
    _Atomic int ended;
};

static void wake_sleeper(struct ferry_http_call *call)
{
    struct sleeper *sleeper = call->arg;

    atomic_fetch_add(&sleeper->ended, 1);
}

static void send_to_sleep(struct rig *rig, struct sleeper *sleeper, uint64_t timeout_ms)
{
    *sleeper = (struct sleeper){.call = {.deadline_ns = test_deadline_ms(timeout_ms),
                                         .done = wake_sleeper,
                                         .arg = sleeper}};
    ferry_http_client_sleep(rig->client, &sleeper->call);
}

static void test_a_sleeping_call_ends_at_its_time(void **state)
{
    struct rig *rig = *state;
    static struct sleeper late;
    static struct sleeper early;
    uint64_t begin_ns = test_now_ns();

    send_to_sleep(rig, &late, 600);
    send_to_sleep(rig, &early, 200);
    assert_within_ms(atomic_load(&early.ended) == 1, 20000);
    assert_true(test_now_ns() - begin_ns >= 200 * FERRY_NS_PER_MS);
    assert_int_equal(early.call.status, FERRY_ERR_TIMED_OUT);
    assert_within_ms(atomic_load(&late.ended) == 1, 20000);
    assert_true(test_now_ns() - begin_ns >= 600 * FERRY_NS_PER_MS);
}

static void test_a_sleeping_call_can_be_woken_and_ends_with_the_client(void **state)
{
    struct rig *rig = *state;
    static struct sleeper one;
    static struct sleeper other;

    send_to_sleep(rig, &one, 3600000);
    send_to_sleep(rig, &other, 3600000);
    ferry_http_client_abort(rig->client, &one.call);
    assert_within_ms(atomic_load(&one.ended) == 1, 20000);
    assert_int_equal(one.call.status, FERRY_ERR_CLOSING);
    assert_int_equal(atomic_load(&other.ended), 0);
    ferry_http_client_close(rig->client);
    rig->client = NULL;
    assert_int_equal(atomic_load(&other.ended), 1);
    assert_int_equal(other.call.status, FERRY_ERR_CLOSING);
}

int main(void)
{
    inherited_at_start = inheritable_fds();
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, rig_up, rig_down)
    static const struct CMUnitTest tests[] = {
        TEST(test_get_returns_status_and_body),
        TEST(test_any_http_status_is_a_result),
        TEST(test_put_and_post_carry_the_body_and_the_mark),
        TEST(test_a_refused_connection_names_address_and_reason),
        TEST(test_a_name_is_resolved_and_its_addresses_are_tried),
        TEST(test_an_unknown_name_is_reported_by_name),
        TEST(test_a_stuck_server_ends_at_the_deadline),
        TEST(test_a_reply_that_never_ends_is_cut_at_the_limit),
        TEST(test_a_reply_of_exactly_the_limit_is_taken),
        TEST(test_endless_headers_are_cut),
        TEST(test_broken_replies_are_told_apart),
        TEST(test_redirects_are_results_and_not_followed),
        TEST(test_a_request_is_never_sent_twice),
        TEST(test_proxies_of_the_environment_are_ignored),
        TEST(test_bad_urls_are_invalid),
        TEST(test_calls_beyond_the_limit_wait_under_their_deadline),
        TEST(test_done_may_submit_again),
        TEST(test_many_threads_call_at_once),
        TEST(test_close_ends_what_runs_and_what_waits),
        TEST(test_a_forked_child_cannot_use_it),
        TEST(test_no_descriptor_survives_exec),
        TEST(test_nothing_stays_open),
        TEST(test_an_idle_client_uses_no_cpu),
        TEST(test_a_reply_can_be_taken_as_it_comes),
        TEST(test_who_takes_a_reply_may_end_it),
        TEST(test_a_call_brings_its_authorization),
        TEST(test_a_sleeping_call_ends_at_its_time),
        TEST(test_a_sleeping_call_can_be_woken_and_ends_with_the_client),
    };
#undef TEST

    return cmocka_run_group_tests_name("control client", tests, NULL, NULL);
}
