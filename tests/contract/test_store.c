/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of metadata/store.h, run over every store, and what each adds to it. The http store
 * talks to the server in tests/fakes (its path is the first argument), the etcd store to a real
 * etcd, the peer store to a control server in this process.
 */
#include "metadata/store.h"

#include "support/etcd.h"
#include "support/http_store.h"
#include "support/process.h"
#include "support/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "config/engine_options.h"
#include "control/message.h"
#include "control/server.h"

#define TEXT_SIZE ((size_t)1 << 20)

static const char *http_store_path;

struct rig;

struct kind {
    const char *type; /* of metadata_type */
    void (*up)(struct rig *rig);
    void (*down)(struct rig *rig);
    /* Make a document known under rig->name. */
    void (*publish)(struct rig *rig, const char *text, size_t len);
    /* From now on nobody answers. */
    void (*hang)(struct rig *rig);
    const char *unknown_name;
    enum ferry_status unknown_status;
};

struct rig {
    const struct kind *kind;
    struct ferry_config *config;
    struct ferry_http_client *http;
    struct ferry_store *store;
    char name[64];
    /* peer: the control server, and what it serves */
    struct ferry_control_server *server;
    pthread_mutex_t lock;
    char *text;
    size_t text_len;
    int deaf_fd;
    /* http: the server process */
    struct test_http_store server_process;
    uint16_t port;
    struct test_etcd etcd;
};

/* peer */

static void serve_segment(void *arg, const char *body, size_t body_len,
                          struct ferry_control_reply *reply_out)
{
    struct rig *rig = arg;

    (void)body;
    (void)body_len;
    pthread_mutex_lock(&rig->lock);
    reply_out->body = malloc(rig->text_len + 1);
    if (reply_out->body != NULL)
        memcpy(reply_out->body, rig->text, rig->text_len);
    reply_out->body_len = rig->text_len;
    pthread_mutex_unlock(&rig->lock);
}

static const struct ferry_control_route routes[] = {
    {"GET", FERRY_CONTROL_PATH_SEGMENT, serve_segment},
};

static void peer_up(struct rig *rig)
{
    struct ferry_control_options options = {
        .bind_host = "",
        .routes = routes,
        .route_count = 1,
        .arg = rig,
        .body_max = 1000,
        .connections_max = 64,
        .timeout_s = 30,
    };

    pthread_mutex_init(&rig->lock, NULL);
    rig->text = strdup("{}");
    rig->text_len = 2;
    rig->deaf_fd = -1;
    assert_ok(ferry_control_server_open(&options, &rig->server));
    rig->port = ferry_control_server_port(rig->server);
    snprintf(rig->name, sizeof(rig->name), "127.0.0.1:%u", rig->port);
}

static void peer_down(struct rig *rig)
{
    ferry_control_server_close(rig->server);
    pthread_mutex_destroy(&rig->lock);
    free(rig->text);
    if (rig->deaf_fd >= 0)
        close(rig->deaf_fd);
}

static void peer_publish(struct rig *rig, const char *text, size_t len)
{
    pthread_mutex_lock(&rig->lock);
    free(rig->text);
    rig->text = malloc(len + 1);
    assert_non_null(rig->text);
    memcpy(rig->text, text, len);
    rig->text_len = len;
    pthread_mutex_unlock(&rig->lock);
}

/* The kernel accepts connections, and that is all. */
static void peer_hang(struct rig *rig)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);

    rig->deaf_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(rig->deaf_fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(rig->deaf_fd, 256), 0);
    assert_int_equal(getsockname(rig->deaf_fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(rig->name, sizeof(rig->name), "127.0.0.1:%u", ntohs(addr.sin_port));
}

static const struct kind peer_kind = {
    .type = "p2p",
    .up = peer_up,
    .down = peer_down,
    .publish = peer_publish,
    .hang = peer_hang,
    .unknown_name = "127.0.0.1:1",
    .unknown_status = FERRY_ERR_PEER_GONE,
};

/* http */

static void http_up(struct rig *rig)
{
    if (http_store_path == NULL)
        test_skip("no path of an HTTP store was given");
    test_http_store_start(&rig->server_process, http_store_path);
    rig->port = rig->server_process.port;
    snprintf(rig->name, sizeof(rig->name), "seg-a");
}

static void http_down(struct rig *rig)
{
    test_http_store_stop(&rig->server_process);
}

/* To the test's own paths of the server. The caller frees the reply. */
static char *http_ask(struct rig *rig, enum ferry_http_method method, const char *path,
                      const char *body)
{
    char url[128];

    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", rig->port, path);
    struct ferry_http_call call = {
        .method = method,
        .url = url,
        .body = body,
        .body_len = body != NULL ? strlen(body) : 0,
        .reply_max = 1 << 20,
        .deadline_ns = test_deadline_ms(30000),
    };

    assert_ok(ferry_http_client_call(rig->http, &call));
    assert_int_equal(call.http_status, 200);
    return call.reply;
}

static void http_control(struct rig *rig, const char *wish)
{
    free(http_ask(rig, FERRY_HTTP_POST, "/control", wish));
}

static void http_hang(struct rig *rig)
{
    http_control(rig, "{\"hang\": true}");
}

static struct ferry_store_request request_of(const struct rig *rig, enum ferry_store_verb verb,
                                             uint64_t timeout_ms)
{
    return (struct ferry_store_request){
        .verb = verb, .name = rig->name, .deadline_ns = test_deadline_ms(timeout_ms)};
}

static void publish_by_put(struct rig *rig, const char *text, size_t len)
{
    struct ferry_store_request request = request_of(rig, FERRY_STORE_PUT, 30000);

    request.text = text;
    request.text_len = len;
    assert_ok(ferry_store_call(rig->store, &request));
}

static const struct kind http_kind = {
    .type = "http",
    .up = http_up,
    .down = http_down,
    .publish = publish_by_put,
    .hang = http_hang,
    .unknown_name = "nobody",
    .unknown_status = FERRY_ERR_NOT_FOUND,
};

/* etcd */

static void etcd_up(struct rig *rig)
{
    if (!test_etcd_exists())
        test_skip("no etcd on this machine (Debian: etcd-server)");
    test_etcd_start(&rig->etcd);
    rig->port = rig->etcd.port;
    snprintf(rig->name, sizeof(rig->name), "seg-a");
}

static void etcd_down(struct rig *rig)
{
    test_etcd_remove(&rig->etcd);
}

static void etcd_hang(struct rig *rig)
{
    assert_true(process_stop(rig->etcd.pid));
}

static const struct kind etcd_kind = {
    .type = "etcd",
    .up = etcd_up,
    .down = etcd_down,
    .publish = publish_by_put,
    .hang = etcd_hang,
    .unknown_name = "nobody",
    .unknown_status = FERRY_ERR_NOT_FOUND,
};

/* all */

static void set_config(struct rig *rig, const char *name, const char *value)
{
    assert_ok(ferry_config_set(rig->config, name, value, FERRY_ORIGIN_API));
}

static void open_store(struct rig *rig)
{
    struct ferry_store_env env = {
        .config = rig->config, .clock = &ferry_clock_system, .http = rig->http};

    assert_ok(ferry_store_open(&env, &rig->store));
}

static int rig_up(void **state)
{
    static const struct ferry_option_table *const tables[] = {&ferry_engine_option_table};
    struct rig *rig = calloc(1, sizeof(*rig));
    char url[64];

    rig->kind = *state;
    *state = rig;
    assert_ok(ferry_http_client_open(NULL, &rig->http));
    assert_ok(ferry_config_create_with(tables, 1, &rig->config));
    rig->kind->up(rig);
    set_config(rig, "metadata_type", rig->kind->type);
    set_config(rig, "metadata_timeout_ms", "30000");
    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", rig->port,
             rig->kind == &etcd_kind ? "" : "/metadata");
    set_config(rig, "metadata_servers", url);
    open_store(rig);
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    ferry_http_client_close(rig->http);
    rig->kind->down(rig);
    ferry_config_destroy(rig->config);
    free(rig);
    return 0;
}

/* A GET that must bring exactly this text. */
static void expect_text(struct rig *rig, const char *text, size_t len)
{
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(request.error, "");
    assert_int_equal(request.reply_len, len);
    assert_memory_equal(request.reply, text, len);
    assert_int_equal(request.reply[len], '\0');
    free(request.reply);
}

static void test_get_brings_what_was_published(void **state)
{
    struct rig *rig = *state;
    char *text = malloc(TEXT_SIZE + 3);

    rig->kind->publish(rig, "{\"a\":1}", 7);
    expect_text(rig, "{\"a\":1}", 7);
    /* Large enough for several writes, different at every place. */
    for (size_t i = 0; i < TEXT_SIZE + 3; i++)
        text[i] = (char)(' ' + (i * 7 + i / 95) % 95);
    rig->kind->publish(rig, text, TEXT_SIZE + 3);
    expect_text(rig, text, TEXT_SIZE + 3);
    rig->kind->publish(rig, "{}", 2);
    expect_text(rig, "{}", 2);
    free(text);
}

static void test_an_unknown_name_is_reported(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

    request.name = rig->kind->unknown_name;
    assert_status(ferry_store_call(rig->store, &request), rig->kind->unknown_status);
    assert_null(request.reply);
    assert_non_null(strstr(request.error, rig->kind->unknown_name));
    assert_string_equal(request.error, ferry_last_error_text());
}

static void test_delete_succeeds_twice(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(rig, FERRY_STORE_DELETE, 30000);

    rig->kind->publish(rig, "{}", 2);
    assert_ok(ferry_store_call(rig->store, &request));
    assert_ok(ferry_store_call(rig->store, &request));
    request = request_of(rig, FERRY_STORE_GET, 30000);
    if (rig->store->ops->names_are_addresses) {
        expect_text(rig, "{}", 2);
    } else {
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_NOT_FOUND);
    }
}

struct watch {
    struct ferry_store_request request;
    pthread_t submitter;
    _Atomic bool seen_on_submitter;
    _Atomic int count;
};

static void watch_done(struct ferry_store_request *request)
{
    struct watch *watch = request->arg;

    if (pthread_equal(pthread_self(), watch->submitter))
        atomic_store(&watch->seen_on_submitter, true);
    free(request->reply);
    request->reply = NULL;
    atomic_fetch_add(&watch->count, 1);
}

static void test_done_runs_once_and_on_another_thread(void **state)
{
    static const char *const names[] = {NULL, "", "[::1", "a\nb"};
    struct rig *rig = *state;

    rig->kind->publish(rig, "{}", 2);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (int verb = FERRY_STORE_GET; verb <= FERRY_STORE_DELETE; verb++) {
            static struct watch watch;

            memset(&watch, 0, sizeof(watch));
            watch.submitter = pthread_self();
            watch.request = request_of(rig, (enum ferry_store_verb)verb, 30000);
            watch.request.text = "{}";
            watch.request.text_len = 2;
            watch.request.done = watch_done;
            watch.request.arg = &watch;
            if (names[i] != NULL)
                watch.request.name = names[i];
            ferry_store_submit(rig->store, &watch.request);
            assert_within_ms(atomic_load(&watch.count) > 0, 30000);
            assert_int_equal(atomic_load(&watch.count), 1);
            assert_false(atomic_load(&watch.seen_on_submitter));
        }
    }
}

static void test_a_deadline_is_kept(void **state)
{
    struct rig *rig = *state;

    rig->kind->publish(rig, "{}", 2);
    rig->kind->hang(rig);
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 200);
    uint64_t before_ns = test_now_ns();

    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_TIMED_OUT);
    assert_true(test_now_ns() - before_ns >= 200 * 1000000u);
    assert_true(request.error[0] != '\0');
    request = request_of(rig, FERRY_STORE_GET, 0);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_TIMED_OUT);
}

static void test_close_ends_what_runs(void **state)
{
    enum { COUNT = 100 };
    struct rig *rig = *state;
    struct watch *watches = calloc(COUNT, sizeof(*watches));
    uint64_t before_ns;

    rig->kind->hang(rig);
    for (int i = 0; i < COUNT; i++) {
        watches[i].submitter = pthread_self();
        watches[i].request = request_of(rig, FERRY_STORE_GET, 60000);
        watches[i].request.done = watch_done;
        watches[i].request.arg = &watches[i];
        ferry_store_submit(rig->store, &watches[i].request);
    }
    before_ns = test_now_ns();
    ferry_store_close(rig->store);
    rig->store = NULL;
    assert_true(test_now_ns() - before_ns < 20 * FERRY_NS_PER_S);
    for (int i = 0; i < COUNT; i++) {
        /* done() has returned: nothing else may come. */
        assert_int_equal(atomic_load(&watches[i].count), 1);
        assert_int_equal(watches[i].request.status, FERRY_ERR_CLOSING);
    }
    free(watches);
}

static void *get_many(void *arg)
{
    struct rig *rig = arg;
    uintptr_t failed = 0;

    for (int i = 0; i < 25; i++) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 60000);

        if (ferry_store_call(rig->store, &request) != FERRY_OK ||
            strcmp(request.reply, "{\"a\":1}") != 0)
            failed++;
        free(request.reply);
    }
    return (void *)failed;
}

static void test_many_threads_ask_at_once(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[8];

    rig->kind->publish(rig, "{\"a\":1}", 7);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_many, rig), 0);
    for (int i = 0; i < 8; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void test_a_forked_child_is_refused(void **state)
{
    struct rig *rig = *state;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 1000);

        _exit(ferry_store_call(rig->store, &request) == FERRY_ERR_FORKED ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_bad_names_are_invalid(void **state)
{
    char long_name[FERRY_STORE_NAME_MAX + 2];
    const char *const names[] = {"", "a\nb", "\x7f", long_name};
    struct rig *rig = *state;

    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

        request.name = names[i];
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_INVALID);
        assert_non_null(strstr(request.error, "segment name"));
    }
}

/* What a store cannot do it refuses, and does nothing. */
static void test_what_a_store_cannot_is_refused(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(rig, FERRY_STORE_PUT, 30000);

    rig->kind->publish(rig, "{}", 2);
    if (!rig->store->ops->compares) {
        request.text = "{\"b\":2}";
        request.text_len = 7;
        request.expect = FERRY_STORE_NOTHING;
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_UNSUPPORTED);
        request.expect = FERRY_STORE_REVISION;
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_UNSUPPORTED);
        request.verb = FERRY_STORE_DELETE;
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_UNSUPPORTED);
    }
    if (!rig->store->ops->lists) {
        request = request_of(rig, FERRY_STORE_LIST, 30000);
        request.name = "";
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_UNSUPPORTED);
    }
    if (rig->store->ops->watch == NULL) {
        struct ferry_store_watch watch = {.name = rig->name,
                                          .changed = (void (*)(struct ferry_store_watch *))abort};

        assert_status(ferry_store_watch(rig->store, &watch), FERRY_ERR_UNSUPPORTED);
    }
    expect_text(rig, "{}", 2);
}

/* peer only: field report B26 */

static void test_names_are_parsed_strictly(void **state)
{
    static const char *const bad[] = {
        "::1:5000:",      "[::1",       "[::1]x",   "[::1]:",     "127.0.0.1:99999",
        "host:0x10",      "host:",      ":80",      "host:0",     "a b:80",
        "10.0.0.256:80",  "host:80:90", "host:+80", "[fe80::1]x", "http://127.0.0.1:80",
        "127.0.0.1:80/x", "u@host:80",
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

        request.name = bad[i];
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_INVALID);
        if (strstr(request.error, bad[i]) == NULL)
            fail_msg("\"%s\" does not quote \"%s\"", request.error, bad[i]);
    }
}

static void expect_form(struct rig *rig, const char *host)
{
    if (strchr(host, ':') != NULL && host[0] != '[')
        snprintf(rig->name, sizeof(rig->name), "[%s]:%u", host, rig->port);
    else
        snprintf(rig->name, sizeof(rig->name), "%s:%u", host, rig->port);
    expect_text(rig, "{\"a\":1}", 7);
}

static void test_all_forms_of_a_name_reach_the_peer(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = {
        .bind_host = "::",
        .routes = routes,
        .route_count = 1,
        .arg = rig,
        .body_max = 1000,
        .connections_max = 64,
        .timeout_s = 30,
    };

    rig->kind->publish(rig, "{\"a\":1}", 7);
    expect_form(rig, "127.0.0.1");
    expect_form(rig, "localhost");
    ferry_control_server_close(rig->server);
    rig->server = NULL;
    if (ferry_control_server_open(&options, &rig->server) != FERRY_OK)
        test_skip("this machine has no IPv6");
    rig->port = ferry_control_server_port(rig->server);
    expect_form(rig, "127.0.0.1");
    expect_form(rig, "::1");
    expect_form(rig, "::ffff:127.0.0.1");
}

/* A bare host means the default port; nobody listens there, and the text shows what was tried. */
static void test_a_bare_host_takes_the_default_port(void **state)
{
    static const struct {
        const char *name;
        const char *place;
    } cases[] = {
        {"127.0.0.9", "127.0.0.9:15428"}, {"::1", "[::1]:15428"}, {"[::1]", "[::1]:15428"}};
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

        request.name = cases[i].name;
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_PEER_GONE);
        assert_non_null(strstr(request.error, cases[i].place));
    }
}

static void test_a_peer_without_a_segment_is_no_peer(void **state)
{
    struct rig *rig = *state;
    struct ferry_control_options options = {
        .bind_host = "", .arg = rig, .body_max = 1000, .connections_max = 64, .timeout_s = 30};

    ferry_control_server_close(rig->server);
    assert_ok(ferry_control_server_open(&options, &rig->server));
    snprintf(rig->name, sizeof(rig->name), "127.0.0.1:%u", ferry_control_server_port(rig->server));
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "404"));
}

/* http only */

static void test_the_key_is_the_prefix_and_the_escaped_name(void **state)
{
    struct rig *rig = *state;
    char *stats;

    snprintf(rig->name, sizeof(rig->name), "a/b c&d=e%%2F+?#\xc3\xbc~");
    rig->kind->publish(rig, "{}", 2);
    expect_text(rig, "{}", 2);
    stats = http_ask(rig, FERRY_HTTP_GET, "/stats", NULL);
    assert_non_null(strstr(stats, "\"keys\": [\"mooncake/tent/a/b c&d=e%2F+?#\\u00fc~\"]"));
    free(stats);
}

/* Field report B23: the size and the reason are in the text, and the old value stays. */
static void test_a_document_that_the_store_refuses_is_too_large(void **state)
{
    struct rig *rig = *state;
    static char text[3 << 20];

    http_control(rig, "{\"limit\": 1048576}");
    rig->kind->publish(rig, "{}", 2);
    memset(text, 'x', sizeof(text));
    for (size_t len = 1048577; len <= sizeof(text); len += sizeof(text) - 1048577) {
        struct ferry_store_request request = request_of(rig, FERRY_STORE_PUT, 30000);
        char size[32];

        request.text = text;
        request.text_len = len;
        assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_TOO_LARGE);
        snprintf(size, sizeof(size), "%zu bytes", len);
        assert_non_null(strstr(request.error, size));
        assert_non_null(strstr(request.error, "413"));
    }
    expect_text(rig, "{}", 2);
}

static void test_a_failing_store_is_reported_with_its_code(void **state)
{
    static const char *const codes[] = {"500", "403", "302", "204"};
    struct rig *rig = *state;

    rig->kind->publish(rig, "{}", 2);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char wish[32];

        snprintf(wish, sizeof(wish), "{\"status\": %s}", codes[i]);
        http_control(rig, wish);
        for (int verb = FERRY_STORE_GET; verb <= FERRY_STORE_DELETE; verb++) {
            struct ferry_store_request request = request_of(rig, (enum ferry_store_verb)verb,
                                                            30000);

            request.text = "{}";
            request.text_len = 2;
            if (codes[i][0] == '2' && verb != FERRY_STORE_GET) {
                assert_ok(ferry_store_call(rig->store, &request));
                continue;
            }
            assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
            assert_non_null(strstr(request.error, codes[i]));
            assert_non_null(strstr(request.error, rig->name));
        }
    }
    /* Only 404 means that there is none. */
    http_control(rig, "{\"status\": 0}");
    expect_text(rig, "{}", 2);
}

static void test_a_store_that_is_not_there_is_no_unknown_name(void **state)
{
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    set_config(rig, "metadata_servers", "http://127.0.0.1:1/metadata");
    open_store(rig);
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 30000);

    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "127.0.0.1:1: Connection refused"));
}

static void test_the_stores_own_limit_is_shorter_than_the_deadline(void **state)
{
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    set_config(rig, "metadata_timeout_ms", "150");
    open_store(rig);
    http_hang(rig);
    struct ferry_store_request request = request_of(rig, FERRY_STORE_GET, 3600000);

    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_TIMED_OUT);
}

static void test_bad_server_urls_are_configuration_errors(void **state)
{
    static const char *const urls[] = {"",
                                       "127.0.0.1:80",
                                       "ftp://127.0.0.1/",
                                       "http://127.0.0.1:80/?a=1",
                                       "http://127.0.0.1:80/#a",
                                       "http://127.0.0.1:99999/",
                                       "http://[::1/",
                                       "http://10.0.0.256/"};
    struct rig *rig = *state;
    struct ferry_store_env env = {
        .config = rig->config, .clock = &ferry_clock_system, .http = rig->http};

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        struct ferry_store *store = NULL;

        set_config(rig, "metadata_servers", urls[i]);
        assert_status(ferry_store_open(&env, &store), FERRY_ERR_CONFIG);
        assert_null(store);
        assert_non_null(strstr(ferry_last_error_text(), "metadata_servers"));
        assert_non_null(strstr(ferry_last_error_text(), urls[i]));
    }
}

#define ON(kind, fn)                                                                               \
    {                                                                                              \
        .name = #fn " (" #kind ")", .test_func = (fn), .setup_func = rig_up,                       \
        .teardown_func = rig_down, .initial_state = (void *)(uintptr_t)&kind##_kind                \
    }
#define ALL(fn) ON(peer, fn), ON(http, fn), ON(etcd, fn)

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        ALL(test_get_brings_what_was_published),
        ALL(test_an_unknown_name_is_reported),
        ALL(test_delete_succeeds_twice),
        ALL(test_done_runs_once_and_on_another_thread),
        ALL(test_a_deadline_is_kept),
        ALL(test_close_ends_what_runs),
        ALL(test_many_threads_ask_at_once),
        ALL(test_a_forked_child_is_refused),
        ALL(test_bad_names_are_invalid),
        ALL(test_what_a_store_cannot_is_refused),
        ON(peer, test_names_are_parsed_strictly),
        ON(peer, test_all_forms_of_a_name_reach_the_peer),
        ON(peer, test_a_bare_host_takes_the_default_port),
        ON(peer, test_a_peer_without_a_segment_is_no_peer),
        ON(http, test_the_key_is_the_prefix_and_the_escaped_name),
        ON(http, test_a_document_that_the_store_refuses_is_too_large),
        ON(http, test_a_failing_store_is_reported_with_its_code),
        ON(http, test_a_store_that_is_not_there_is_no_unknown_name),
        ON(http, test_the_stores_own_limit_is_shorter_than_the_deadline),
        ON(http, test_bad_server_urls_are_configuration_errors),
    };

    http_store_path = argc > 1 ? argv[1] : getenv("FERRY_TESTS_HTTP_STORE");
    return cmocka_run_group_tests_name("metadata store", tests, NULL, NULL);
}
