/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the etcd store promises beyond the contract of all stores, against a real etcd: comparing,
 * owned entries and their lease, lists, news, several endpoints, restarts, authentication, TLS.
 */
#include "metadata/store.h"

#include "support/etcd.h"
#include "support/test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/base64.h"
#include "base/error.h"
#include "config/engine_options.h"
#include "control/client.h"

/* Any wait of these tests, on a machine that does much else. */
#define PATIENCE_MS 60000
#define LEASE_S     2

struct rig {
    struct test_etcd etcd;
    struct ferry_config *config;
    struct ferry_http_client *http;
    struct ferry_store *store;
    char answer[4096]; /* of ask() */
};

static void set_config(struct rig *rig, const char *name, const char *value)
{
    assert_ok(ferry_config_set(rig->config, name, value, FERRY_ORIGIN_API));
}

static enum ferry_status open_store(struct rig *rig)
{
    struct ferry_store_env env = {
        .config = rig->config, .clock = &ferry_clock_system, .http = rig->http};

    return ferry_store_open(&env, &rig->store);
}

static void reopen(struct rig *rig)
{
    ferry_store_close(rig->store);
    rig->store = NULL;
    assert_ok(open_store(rig));
}

static void point_at(struct rig *rig, uint16_t port)
{
    char servers[64];

    snprintf(servers, sizeof(servers), "127.0.0.1:%u", port);
    set_config(rig, "metadata_servers", servers);
}

static int rig_up(void **state)
{
    static const struct ferry_option_table *const tables[] = {&ferry_engine_option_table};
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    *state = rig;
    if (!test_etcd_exists())
        test_skip("no etcd on this machine (Debian: etcd-server)");
    assert_ok(ferry_config_create_with(tables, 1, &rig->config));
    test_etcd_start(&rig->etcd);
    assert_ok(ferry_http_client_open(NULL, &rig->http));
    set_config(rig, "metadata_type", "etcd");
    set_config(rig, "metadata_timeout_ms", "30000");
    set_config(rig, "metadata_lease_s", "2");
    point_at(rig, rig->etcd.port);
    assert_ok(open_store(rig));
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    ferry_http_client_close(rig->http);
    test_etcd_remove(&rig->etcd);
    ferry_config_destroy(rig->config);
    free(rig);
    return 0;
}

static struct ferry_store_request request_of(enum ferry_store_verb verb, const char *name)
{
    return (struct ferry_store_request){
        .verb = verb, .name = name, .deadline_ns = test_deadline_ms(PATIENCE_MS)};
}

static struct ferry_store_request put_of(const char *name, const char *text)
{
    struct ferry_store_request request = request_of(FERRY_STORE_PUT, name);

    request.text = text;
    request.text_len = strlen(text);
    return request;
}

static uint64_t put(struct rig *rig, const char *name, const char *text)
{
    struct ferry_store_request request = put_of(name, text);

    assert_ok(ferry_store_call(rig->store, &request));
    assert_true(request.revision != 0);
    return request.revision;
}

static enum ferry_status put_owned(struct rig *rig, const char *name, const char *text)
{
    struct ferry_store_request request = put_of(name, text);
    enum ferry_status status;

    request.owned = true;
    status = ferry_store_call(rig->store, &request);
    free(request.reply);
    return status;
}

/* "" if there is none. */
static const char *get(struct rig *rig, const char *name)
{
    struct ferry_store_request request = request_of(FERRY_STORE_GET, name);
    enum ferry_status status = ferry_store_call(rig->store, &request);

    if (status == FERRY_ERR_NOT_FOUND)
        return "";
    assert_ok(status);
    assert_true(request.reply_len < sizeof(rig->answer));
    memcpy(rig->answer, request.reply, request.reply_len + 1);
    free(request.reply);
    return rig->answer;
}

/* Ask etcd itself, beside the store. */
static const char *ask(struct rig *rig, const char *path, const char *body)
{
    char url[96];

    snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", rig->etcd.port, path);
    struct ferry_http_call call = {
        .method = FERRY_HTTP_POST,
        .url = url,
        .body = body,
        .body_len = strlen(body),
        .reply_max = sizeof(rig->answer) - 1,
        .deadline_ns = test_deadline_ms(PATIENCE_MS),
    };

    assert_ok(ferry_http_client_call(rig->http, &call));
    strcpy(rig->answer, call.reply);
    free(call.reply);
    return rig->answer;
}

static bool key_exists(struct rig *rig, const char *key)
{
    char encoded[1024];
    char body[1100];

    assert_true(ferry_base64_length(strlen(key)) < sizeof(encoded));
    ferry_base64_encode(key, strlen(key), encoded);
    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", encoded);
    return strstr(ask(rig, "/v3/kv/range", body), "\"kvs\"") != NULL;
}

/* "AA==" is the byte 0: all keys. */
static int key_count(struct rig *rig)
{
    const char *answer = ask(rig, "/v3/kv/range",
                             "{\"key\":\"AA==\",\"range_end\":\"AA==\",\"count_only\":true}");
    const char *count = strstr(answer, "\"count\":\"");

    return count != NULL ? atoi(count + 9) : 0;
}

static void test_keys_are_the_references_and_nothing_else_is_written(void **state)
{
    struct rig *rig = *state;

    put(rig, "a/b \xc3\xbc", "{}");
    put(rig, "nvmeof/disk", "{}");
    assert_true(key_exists(rig, "mooncake/tent/a/b \xc3\xbc"));
    assert_true(key_exists(rig, "mooncake/nvmeof/disk"));
    set_config(rig, "metadata_cluster", "blue");
    reopen(rig);
    assert_string_equal(get(rig, "nvmeof/disk"), "");
    put(rig, "seg", "{\"c\":1}");
    put(rig, "nvmeof/disk", "{\"c\":2}");
    assert_true(key_exists(rig, "mooncake/blue/tent/seg"));
    assert_true(key_exists(rig, "mooncake/blue/nvmeof/disk"));
    assert_int_equal(key_count(rig), 4);
}

static void test_a_put_that_expects_nothing_finds_what_is_there(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = put_of("nvmeof/x", "one");
    uint64_t revision;

    request.expect = FERRY_STORE_NOTHING;
    assert_ok(ferry_store_call(rig->store, &request));
    revision = request.revision;
    request = put_of("nvmeof/x", "two");
    request.expect = FERRY_STORE_NOTHING;
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_EXISTS);
    assert_int_equal(request.revision, revision);
    assert_string_equal(request.reply, "one");
    free(request.reply);
    assert_string_equal(get(rig, "nvmeof/x"), "one");
}

static void test_a_put_at_a_revision_replaces_only_that(void **state)
{
    struct rig *rig = *state;
    uint64_t first = put(rig, "nvmeof/x", "one");
    uint64_t second = put(rig, "nvmeof/x", "two");
    struct ferry_store_request request = put_of("nvmeof/x", "three");

    assert_true(second > first);
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = first;
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_EXISTS);
    assert_int_equal(request.revision, second);
    assert_string_equal(request.reply, "two");
    free(request.reply);
    request.expected_revision = second;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_true(request.revision > second);
    assert_string_equal(get(rig, "nvmeof/x"), "three");
    /* The revision that a GET tells is the one to expect. */
    struct ferry_store_request seen = request_of(FERRY_STORE_GET, "nvmeof/x");

    assert_ok(ferry_store_call(rig->store, &seen));
    assert_int_equal(seen.revision, request.revision);
    free(seen.reply);
}

static void test_a_delete_at_a_revision_deletes_only_that(void **state)
{
    struct rig *rig = *state;
    uint64_t first = put(rig, "nvmeof/x", "one");
    uint64_t second = put(rig, "nvmeof/x", "two");
    struct ferry_store_request request = request_of(FERRY_STORE_DELETE, "nvmeof/x");

    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = first;
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_EXISTS);
    free(request.reply);
    assert_string_equal(get(rig, "nvmeof/x"), "two");
    request.expected_revision = second;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_NOT_FOUND);
    request = put_of("nvmeof/x", "again");
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = second;
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_NOT_FOUND);
    assert_string_equal(get(rig, "nvmeof/x"), "");
}

enum { ADDERS = 8, ROUNDS = 10 };

static void *add_one_at_a_time(void *arg)
{
    struct rig *rig = arg;
    uintptr_t failed = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct ferry_store_request request = request_of(FERRY_STORE_GET, "nvmeof/count");
        enum ferry_status status = ferry_store_call(rig->store, &request);

        do {
            char text[32];

            snprintf(text, sizeof(text), "%d", atoi(request.reply) + 1);
            free(request.reply);
            uint64_t revision = request.revision;

            request = put_of("nvmeof/count", text);
            request.expect = FERRY_STORE_REVISION;
            request.expected_revision = revision;
            status = ferry_store_call(rig->store, &request);
        } while (status == FERRY_ERR_EXISTS);
        failed += status != FERRY_OK;
    }
    return (void *)failed;
}

static void test_who_compares_loses_no_change(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[ADDERS];
    char want[16];

    put(rig, "nvmeof/count", "0");
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_one_at_a_time, rig), 0);
    for (int i = 0; i < ADDERS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    snprintf(want, sizeof(want), "%d", ADDERS * ROUNDS);
    assert_string_equal(get(rig, "nvmeof/count"), want);
}

static void expect_list(struct rig *rig, const char *kind, const char *want)
{
    struct ferry_store_request request = request_of(FERRY_STORE_LIST, kind);

    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(request.reply, want);
    assert_int_equal(request.reply_len, strlen(want));
    free(request.reply);
}

static void test_lists_are_whole_sorted_and_of_one_kind(void **state)
{
    enum { MANY = 1203 }; /* more than a page */
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_LIST, "");
    size_t size = MANY * 16;
    char *want = malloc(size);
    size_t len = 0;

    expect_list(rig, "", "");
    put(rig, "nvmeof/b", "{}");
    put(rig, "nvmeof/a", "{}");
    expect_list(rig, "nvmeof/", "nvmeof/a\nnvmeof/b\n");
    expect_list(rig, "", "");
    for (int i = 0; i < MANY; i++) {
        char name[16];

        snprintf(name, sizeof(name), "n%05d", i);
        put(rig, name, "{}");
        len += (size_t)snprintf(want + len, size - len, "%s\n", name);
    }
    expect_list(rig, "", want);
    /* "mooncake/tent/", a NUL and an x: nobody of us wrote it, and no list can hold it. */
    ask(rig, "/v3/kv/put", "{\"key\":\"bW9vbmNha2UvdGVudC8AeA==\",\"value\":\"eA==\"}");
    expect_list(rig, "", want);
    request.name = "nvm";
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_INVALID);
    free(want);
}

/* Field report B23: etcd's own limit. */
static void test_a_document_that_etcd_refuses_is_too_large(void **state)
{
    struct rig *rig = *state;
    size_t len = 5 << 20;
    char *text = malloc(len + 1);
    struct ferry_store_request request;
    char size[32];

    put(rig, "seg", "{}");
    memset(text, 'x', len);
    text[len] = '\0';
    for (int owned = 0; owned < 2; owned++) {
        for (size_t part = 2 << 20; part <= len; part += 3 << 20) {
            request = put_of(owned ? "own" : "seg", text);
            request.text_len = part;
            request.owned = owned;
            assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_TOO_LARGE);
            snprintf(size, sizeof(size), "%zu bytes", part);
            assert_non_null(strstr(request.error, size));
            assert_non_null(strstr(request.error, "max-request-bytes"));
        }
    }
    assert_string_equal(get(rig, "seg"), "{}");
    assert_string_equal(get(rig, "own"), "");
    free(text);
}

/* A process that owns an entry and lives until it is killed. */
static pid_t start_owner(struct rig *rig, const char *name, const char *text)
{
    int ready[2];
    char byte = 0;
    pid_t child;

    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        bool ok;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig->store = NULL;
        ok = ferry_http_client_open(NULL, &rig->http) == FERRY_OK && open_store(rig) == FERRY_OK &&
             put_owned(rig, name, text) == FERRY_OK;
        byte = ok ? 'y' : 'n';
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(byte, 'y');
    return child;
}

static void end_owner(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

/* Field report B24: nobody has to clean up behind a process that was killed. */
static void test_the_entry_of_a_killed_owner_goes_away(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");
    uint64_t killed_ns;

    put(rig, "nvmeof/stays", "{}");
    /* Longer than the lease without a keep-alive. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":1}");
        test_nap();
    }
    end_owner(owner);
    killed_ns = test_now_ns();
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    assert_true(test_now_ns() - killed_ns < 30 * FERRY_NS_PER_S);
    assert_string_equal(get(rig, "nvmeof/stays"), "{}");
}

static void test_an_owner_that_was_stopped_puts_its_entry_back(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    kill(owner, SIGSTOP);
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    kill(owner, SIGCONT);
    assert_within_ms(strcmp(get(rig, "seg"), "{\"o\":1}") == 0, PATIENCE_MS);
    /* And it lives on under its new lease. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 1000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":1}");
        test_nap();
    }
    end_owner(owner);
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
}

static void test_an_owner_that_comes_back_does_not_take_a_name_from_its_successor(void **state)
{
    struct rig *rig = *state;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    kill(owner, SIGSTOP);
    assert_within_ms(get(rig, "seg")[0] == '\0', PATIENCE_MS);
    assert_ok(put_owned(rig, "seg", "{\"o\":2}"));
    kill(owner, SIGCONT);
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":2}");
        test_nap();
    }
    end_owner(owner);
}

static void test_an_owned_put_takes_nothing_from_others(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request;
    pid_t owner = start_owner(rig, "seg", "{\"o\":1}");

    assert_status(put_owned(rig, "seg", "{\"o\":2}"), FERRY_ERR_EXISTS);
    request = request_of(FERRY_STORE_DELETE, "seg");
    request.owned = true;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "{\"o\":1}");
    /* Unless the very entry is meant. */
    request = request_of(FERRY_STORE_GET, "seg");
    assert_ok(ferry_store_call(rig->store, &request));
    free(request.reply);
    uint64_t revision = request.revision;

    request = put_of("seg", "{\"o\":3}");
    request.owned = true;
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = revision;
    assert_ok(ferry_store_call(rig->store, &request));
    end_owner(owner);
    /* It is ours now: it does not go with the lease that it had. */
    for (uint64_t until_ns = test_deadline_ms(LEASE_S * 1000 + 2000); test_now_ns() < until_ns;) {
        assert_string_equal(get(rig, "seg"), "{\"o\":3}");
        test_nap();
    }
    assert_ok(put_owned(rig, "seg", "{\"o\":4}"));
    request = request_of(FERRY_STORE_DELETE, "seg");
    request.owned = true;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "");
}

static void test_an_entry_that_somebody_deleted_is_put_again(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_DELETE, "seg");

    assert_ok(put_owned(rig, "seg", "one"));
    assert_ok(ferry_store_call(rig->store, &request));
    assert_string_equal(get(rig, "seg"), "");
    assert_ok(put_owned(rig, "seg", "two"));
    assert_string_equal(get(rig, "seg"), "two");
}

struct writer {
    struct rig *rig;
    char text[16];
    enum ferry_status status;
};

static void *put_meanwhile(void *arg)
{
    struct writer *writer = arg;
    struct ferry_store_request request = put_of("seg", writer->text);

    writer->status = ferry_store_call(writer->rig->store, &request);
    return NULL;
}

static void test_requests_ride_out_a_restart(void **state)
{
    struct rig *rig = *state;
    struct writer writer = {.rig = rig};
    struct timespec gap = {.tv_nsec = 200000000};
    pthread_t thread;

    assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    for (int i = 0; i < 3; i++) {
        snprintf(writer.text, sizeof(writer.text), "round %d", i);
        test_etcd_kill(&rig->etcd);
        assert_int_equal(pthread_create(&thread, NULL, put_meanwhile, &writer), 0);
        /* So that it meets the gap; nothing depends on that it does. */
        nanosleep(&gap, NULL);
        test_etcd_start(&rig->etcd);
        pthread_join(thread, NULL);
        assert_ok(writer.status);
        assert_string_equal(get(rig, "seg"), writer.text);
        assert_string_equal(get(rig, "own"), "{\"o\":1}");
        assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    }
}

static void test_an_etcd_that_lost_all_gets_the_entry_again(void **state)
{
    struct rig *rig = *state;

    assert_ok(put_owned(rig, "own", "{\"o\":1}"));
    test_etcd_kill(&rig->etcd);
    test_etcd_wipe(&rig->etcd);
    test_etcd_start(&rig->etcd);
    assert_within_ms(strcmp(get(rig, "own"), "{\"o\":1}") == 0, PATIENCE_MS);
    assert_ok(put_owned(rig, "own", "{\"o\":2}"));
    assert_string_equal(get(rig, "own"), "{\"o\":2}");
}

/* The lease went and nobody has noticed yet: the put that finds out goes through all the same. */
static void test_a_put_under_a_lease_that_is_gone_takes_another(void **state)
{
    struct rig *rig = *state;
    char body[96];
    const char *id;

    set_config(rig, "metadata_lease_s", "3600");
    reopen(rig);
    assert_ok(put_owned(rig, "own", "one"));
    id = strstr(ask(rig, "/v3/lease/leases", "{}"), "\"ID\":\"");
    assert_non_null(id);
    snprintf(body, sizeof(body), "{\"ID\":\"%.*s\"}", (int)strcspn(id + 6, "\""), id + 6);
    ask(rig, "/v3/lease/revoke", body);
    assert_string_equal(get(rig, "own"), "");
    assert_ok(put_owned(rig, "own", "two"));
    assert_string_equal(get(rig, "own"), "two");
}

static void test_a_store_that_is_not_there_is_said_to_be_so(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_GET, "seg");

    set_config(rig, "metadata_servers", "127.0.0.1:1,http://127.0.0.2:1/");
    set_config(rig, "metadata_timeout_ms", "300");
    reopen(rig);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "Connection refused"));
    assert_status(put_owned(rig, "seg", "{}"), FERRY_ERR_METADATA);
}

static void test_another_endpoint_answers_for_one_that_does_not(void **state)
{
    struct rig *rig = *state;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char servers[128];
    uint64_t begin_ns;

    /* It accepts, and that is all. */
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(deaf, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(deaf, 64), 0);
    assert_int_equal(getsockname(deaf, (struct sockaddr *)&addr, &len), 0);
    snprintf(servers, sizeof(servers), "127.0.0.1:%u; 127.0.0.1:1 http://127.0.0.1:%u",
             ntohs(addr.sin_port), rig->etcd.port);
    set_config(rig, "metadata_servers", servers);
    set_config(rig, "metadata_timeout_ms", "6000");
    reopen(rig);
    put(rig, "seg", "{}");
    /* Once it is known who answers, that one is asked first. */
    begin_ns = test_now_ns();
    for (int i = 0; i < 5; i++)
        assert_string_equal(get(rig, "seg"), "{}");
    assert_true(test_now_ns() - begin_ns < 5 * 2000 * FERRY_NS_PER_MS);
    close(deaf);
}

/* One that passes requests on, and drops the first answers. */
struct thief {
    int fd;
    uint16_t port;
    uint16_t to_port;
    int steal;
    _Atomic int stolen;
    pthread_t thread;
};

static int dial(uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void carry(struct thief *thief, int client)
{
    char buf[65536];
    int server = dial(thief->to_port);
    ssize_t got = recv(client, buf, sizeof(buf), 0);
    char *head_end = NULL;

    /* Small requests: the head, and then the body, at most in two pieces. */
    if (got > 0) {
        buf[got] = '\0';
        head_end = strstr(buf, "\r\n\r\n");
        if (head_end != NULL && head_end[4] == '\0')
            got += recv(client, buf + got, sizeof(buf) - (size_t)got, 0);
        assert_int_equal(send(server, buf, (size_t)got, MSG_NOSIGNAL), got);
    }
    while ((got = recv(server, buf, sizeof(buf), 0)) > 0) {
        if (thief->steal > 0)
            continue;
        if (send(client, buf, (size_t)got, MSG_NOSIGNAL) != got)
            break;
    }
    if (thief->steal > 0) {
        thief->steal--;
        atomic_fetch_add(&thief->stolen, 1);
    }
    close(server);
    close(client);
}

static void *thief_main(void *arg)
{
    struct thief *thief = arg;
    int client;

    while ((client = accept(thief->fd, NULL, NULL)) >= 0)
        carry(thief, client);
    return NULL;
}

static void thief_open(struct thief *thief)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);

    thief->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(thief->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(thief->fd, 64), 0);
    assert_int_equal(getsockname(thief->fd, (struct sockaddr *)&addr, &len), 0);
    thief->port = ntohs(addr.sin_port);
    assert_int_equal(pthread_create(&thief->thread, NULL, thief_main, thief), 0);
}

static void thief_close(struct thief *thief)
{
    shutdown(thief->fd, SHUT_RDWR);
    pthread_join(thief->thread, NULL);
    close(thief->fd);
}

/* The answer to a put is lost: the next try finds its own doing and must not call it a conflict. */
static void test_a_put_whose_answer_was_lost_is_no_conflict(void **state)
{
    struct rig *rig = *state;
    struct thief thief = {.to_port = rig->etcd.port, .steal = 1};
    struct ferry_store_request request = put_of("nvmeof/x", "mine");
    uint64_t revision;

    thief_open(&thief);
    point_at(rig, thief.port);
    reopen(rig);
    request.expect = FERRY_STORE_NOTHING;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_int_equal(atomic_load(&thief.stolen), 1);
    revision = request.revision;
    thief.steal = 1;
    request = put_of("nvmeof/x", "mine again");
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = revision;
    assert_ok(ferry_store_call(rig->store, &request));
    assert_int_equal(atomic_load(&thief.stolen), 2);
    assert_true(request.revision > revision);
    /* What another has put meanwhile is a conflict. */
    thief.steal = 1;
    request = put_of("nvmeof/x", "too late");
    request.expect = FERRY_STORE_REVISION;
    request.expected_revision = revision;
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_EXISTS);
    free(request.reply);
    thief.steal = 1;
    struct ferry_store_request delete = request_of(FERRY_STORE_DELETE, "nvmeof/x");

    delete.expect = FERRY_STORE_REVISION;
    delete.expected_revision = request.revision;
    assert_ok(ferry_store_call(rig->store, &delete));
    reopen(rig);
    thief_close(&thief);
}

static void enable_auth(struct rig *rig)
{
    /* root has everything; "ferry" may use the prefix "mooncake/" ("bW9vbmNha2Uv" to
     * "bW9vbmNha2Uw"). */
    ask(rig, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
    ask(rig, "/v3/auth/role/add", "{\"name\":\"root\"}");
    ask(rig, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    ask(rig, "/v3/auth/user/add", "{\"name\":\"ferry\",\"password\":\"s3cret \\\"\\u00fc\"}");
    ask(rig, "/v3/auth/role/add", "{\"name\":\"fleet\"}");
    ask(rig, "/v3/auth/role/grant",
        "{\"name\":\"fleet\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"bW9vbmNha2Uv\","
        "\"range_end\":\"bW9vbmNha2Uw\"}}");
    ask(rig, "/v3/auth/user/grant", "{\"user\":\"ferry\",\"role\":\"fleet\"}");
    ask(rig, "/v3/auth/enable", "{}");
}

static void test_a_user_is_authenticated(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_GET, "seg");

    set_config(rig, "metadata_user", "ferry");
    set_config(rig, "metadata_password", "s3cret \"\xc3\xbc");
    reopen(rig);
    put(rig, "seg", "before"); /* nobody needs a token yet */
    enable_auth(rig);
    put(rig, "seg", "after");
    assert_ok(put_owned(rig, "own", "{}"));
    /* Tokens are in etcd's memory: after a restart it knows none of them. */
    test_etcd_kill(&rig->etcd);
    test_etcd_start(&rig->etcd);
    assert_string_equal(get(rig, "seg"), "after");
    assert_ok(put_owned(rig, "own", "{\"n\":2}"));

    set_config(rig, "metadata_user", "");
    reopen(rig);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "user name is empty"));
    set_config(rig, "metadata_user", "ferry");
    set_config(rig, "metadata_password", "wrong");
    reopen(rig);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "authentication failed"));
    assert_null(strstr(request.error, "wrong"));
}

static void test_many_wait_for_one_token(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[ADDERS];

    put(rig, "nvmeof/count", "0");
    enable_auth(rig);
    set_config(rig, "metadata_user", "ferry");
    set_config(rig, "metadata_password", "s3cret \"\xc3\xbc");
    reopen(rig);
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_one_at_a_time, rig), 0);
    for (int i = 0; i < ADDERS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
}

static void run(const char *dir, const char *command)
{
    char line[1024];

    snprintf(line, sizeof(line), "cd '%s' && (%s) >openssl.log 2>&1", dir, command);
    if (system(line) != 0)
        fail_msg("%s fails", line);
}

/* An authority with a server's and a client's certificate, and another authority. */
static void make_certificates(const char *dir)
{
    run(dir, "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 "
             "-subj /CN=ca");
    run(dir, "openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.pem -days 2 "
             "-subj /CN=other");
    run(dir, "openssl req -newkey rsa:2048 -nodes -keyout s.key -out s.csr -subj /CN=etcd && "
             "echo subjectAltName=IP:127.0.0.1,DNS:localhost >s.ext && "
             "openssl x509 -req -in s.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
             "-extfile s.ext -out s.pem");
    run(dir, "openssl req -newkey rsa:2048 -nodes -keyout c.key -out c.csr -subj /CN=ferry && "
             "openssl x509 -req -in c.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
             "-out c.pem");
}

static void set_path(struct rig *rig, const char *name, const char *file)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", rig->etcd.dir, file);
    set_config(rig, name, path);
}

static void test_tls_proves_both_sides(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_GET, "seg");
    char paths[3][96];

    test_etcd_kill(&rig->etcd);
    make_certificates(rig->etcd.dir);
    snprintf(paths[0], sizeof(paths[0]), "--cert-file=%s/s.pem", rig->etcd.dir);
    snprintf(paths[1], sizeof(paths[1]), "--key-file=%s/s.key", rig->etcd.dir);
    snprintf(paths[2], sizeof(paths[2]), "--trusted-ca-file=%s/ca.pem", rig->etcd.dir);
    for (int i = 0; i < 3; i++)
        rig->etcd.args[i] = paths[i];
    rig->etcd.args[3] = "--client-cert-auth";
    strcpy(rig->etcd.scheme, "https");
    test_etcd_start(&rig->etcd);

    set_path(rig, "metadata_ca_file", "ca.pem");
    set_path(rig, "metadata_cert_file", "c.pem");
    set_path(rig, "metadata_key_file", "c.key");
    reopen(rig);
    put(rig, "seg", "{}");
    assert_ok(put_owned(rig, "own", "{}"));

    /* Nobody's certificate, and a server that the authority knows nothing of. */
    set_config(rig, "metadata_timeout_ms", "3000");
    set_config(rig, "metadata_cert_file", "");
    set_config(rig, "metadata_key_file", "");
    reopen(rig);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    set_path(rig, "metadata_cert_file", "c.pem");
    set_path(rig, "metadata_key_file", "c.key");
    set_path(rig, "metadata_ca_file", "other.pem");
    reopen(rig);
    assert_status(ferry_store_call(rig->store, &request), FERRY_ERR_METADATA);
    assert_non_null(strstr(request.error, "certificate"));
    set_path(rig, "metadata_ca_file", "ca.pem");
    set_config(rig, "metadata_key_file", "");
    ferry_store_close(rig->store);
    rig->store = NULL;
    assert_status(open_store(rig), FERRY_ERR_CONFIG);
}

struct listener {
    struct ferry_store_watch watch;
    _Atomic int news;
};

static void changed(struct ferry_store_watch *watch)
{
    struct listener *listener = watch->arg;

    atomic_fetch_add(&listener->news, 1);
}

static void listen_to(struct rig *rig, struct listener *listener, const char *name)
{
    *listener = (struct listener){.watch = {.name = name, .changed = changed, .arg = listener}};
    assert_ok(ferry_store_watch(rig->store, &listener->watch));
    /* It says so when it has begun. */
    assert_within_ms(atomic_load(&listener->news) > 0, PATIENCE_MS);
}

static void test_news_of_an_entry_are_heard(void **state)
{
    struct rig *rig = *state;
    struct ferry_store_request request = request_of(FERRY_STORE_DELETE, "nvmeof/x");
    struct listener listener;
    int before;

    listen_to(rig, &listener, "nvmeof/x");
    for (int i = 0; i < 3; i++) {
        before = atomic_load(&listener.news);
        put(rig, "nvmeof/x", "{}");
        assert_within_ms(atomic_load(&listener.news) > before, PATIENCE_MS);
    }
    before = atomic_load(&listener.news);
    assert_ok(ferry_store_call(rig->store, &request));
    assert_within_ms(atomic_load(&listener.news) > before, PATIENCE_MS);
    /* Of that entry, and not of one whose name is longer. */
    before = atomic_load(&listener.news);
    put(rig, "nvmeof/xy", "{}");
    put(rig, "nvmeof/x", "{}");
    assert_within_ms(atomic_load(&listener.news) > before, PATIENCE_MS);
    assert_int_equal(atomic_load(&listener.news), before + 1);
    ferry_store_unwatch(rig->store, &listener.watch);
    before = atomic_load(&listener.news);
    put(rig, "nvmeof/x", "{}");
    assert_int_equal(atomic_load(&listener.news), before);
}

static void test_news_survive_restarts_and_compaction(void **state)
{
    struct rig *rig = *state;
    struct listener listener;
    char body[64];
    int before;

    put(rig, "nvmeof/x", "{}");
    listen_to(rig, &listener, "nvmeof/x");
    for (int i = 0; i < 2; i++) {
        before = atomic_load(&listener.news);
        test_etcd_kill(&rig->etcd);
        test_etcd_start(&rig->etcd);
        /* Whether the watch is there again or not: what happens meanwhile is not missed. */
        snprintf(body, sizeof(body), "{\"revision\":\"%llu\"}",
                 (unsigned long long)put(rig, "nvmeof/x", "{}"));
        if (i == 1)
            ask(rig, "/v3/kv/compaction", body);
        assert_within_ms(atomic_load(&listener.news) > before, PATIENCE_MS);
    }
    before = atomic_load(&listener.news);
    put(rig, "nvmeof/x", "{}");
    assert_within_ms(atomic_load(&listener.news) > before, PATIENCE_MS);
    ferry_store_unwatch(rig->store, &listener.watch);
}

static void test_watches_have_a_bound_and_end_at_once(void **state)
{
    struct rig *rig = *state;
    static struct listener listeners[FERRY_STORE_WATCHES_MAX + 1];
    struct ferry_store_watch *extra = &listeners[FERRY_STORE_WATCHES_MAX].watch;

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FERRY_STORE_WATCHES_MAX; i++) {
            listeners[i] = (struct listener){
                .watch = {.name = "nvmeof/x", .changed = changed, .arg = &listeners[i]}};
            assert_ok(ferry_store_watch(rig->store, &listeners[i].watch));
        }
        *extra = (struct ferry_store_watch){.name = "nvmeof/x", .changed = changed};
        assert_status(ferry_store_watch(rig->store, extra), FERRY_ERR_LIMIT);
        /* Others get through beside them; nobody waits for the first news in the second round. */
        put(rig, "nvmeof/x", "{}");
        for (int i = 0; i < FERRY_STORE_WATCHES_MAX && round != 1; i++)
            assert_within_ms(atomic_load(&listeners[i].news) > 0, PATIENCE_MS);
        for (int i = 0; i < FERRY_STORE_WATCHES_MAX; i++)
            ferry_store_unwatch(rig->store, &listeners[i].watch);
    }
}

static void test_bad_settings_are_configuration_errors(void **state)
{
    static const char *const servers[] = {"",
                                          " , ;",
                                          "127.0.0.1:99999",
                                          "http://10.0.0.256/",
                                          "ftp://127.0.0.1/",
                                          "http://u:p@127.0.0.1:2379",
                                          "http://127.0.0.1:2379/?a",
                                          "[::1",
                                          "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a"};
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    rig->store = NULL;
    for (size_t i = 0; i < sizeof(servers) / sizeof(servers[0]); i++) {
        set_config(rig, "metadata_servers", servers[i]);
        assert_status(open_store(rig), FERRY_ERR_CONFIG);
        assert_null(rig->store);
        assert_non_null(strstr(ferry_last_error_text(), "metadata_servers"));
    }
    point_at(rig, rig->etcd.port);
    set_config(rig, "metadata_cluster", "a/b");
    assert_status(open_store(rig), FERRY_ERR_CONFIG);
    assert_non_null(strstr(ferry_last_error_text(), "metadata_cluster"));
    set_config(rig, "metadata_cluster", "");
    set_config(rig, "metadata_servers", "localhost,[::1]:1");
    assert_ok(open_store(rig));
}

#define ON(fn) cmocka_unit_test_setup_teardown(fn, rig_up, rig_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON(test_keys_are_the_references_and_nothing_else_is_written),
        ON(test_a_put_that_expects_nothing_finds_what_is_there),
        ON(test_a_put_at_a_revision_replaces_only_that),
        ON(test_a_delete_at_a_revision_deletes_only_that),
        ON(test_who_compares_loses_no_change),
        ON(test_lists_are_whole_sorted_and_of_one_kind),
        ON(test_a_document_that_etcd_refuses_is_too_large),
        ON(test_the_entry_of_a_killed_owner_goes_away),
        ON(test_an_owner_that_was_stopped_puts_its_entry_back),
        ON(test_an_owner_that_comes_back_does_not_take_a_name_from_its_successor),
        ON(test_an_owned_put_takes_nothing_from_others),
        ON(test_an_entry_that_somebody_deleted_is_put_again),
        ON(test_requests_ride_out_a_restart),
        ON(test_an_etcd_that_lost_all_gets_the_entry_again),
        ON(test_a_put_under_a_lease_that_is_gone_takes_another),
        ON(test_a_store_that_is_not_there_is_said_to_be_so),
        ON(test_another_endpoint_answers_for_one_that_does_not),
        ON(test_a_put_whose_answer_was_lost_is_no_conflict),
        ON(test_a_user_is_authenticated),
        ON(test_many_wait_for_one_token),
        ON(test_tls_proves_both_sides),
        ON(test_news_of_an_entry_are_heard),
        ON(test_news_survive_restarts_and_compaction),
        ON(test_watches_have_a_bound_and_end_at_once),
        ON(test_bad_settings_are_configuration_errors),
    };

    return cmocka_run_group_tests_name("etcd store", tests, NULL, NULL);
}
