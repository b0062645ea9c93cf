/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the etcd store promises beyond the contract of all stores, against a real etcd: keys,
 * comparing, lists, limits, several endpoints, answers that are lost, settings.
 */
#include "etcd_rig.h"

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
    _Atomic int steal;
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
        ON(test_a_store_that_is_not_there_is_said_to_be_so),
        ON(test_another_endpoint_answers_for_one_that_does_not),
        ON(test_a_put_whose_answer_was_lost_is_no_conflict),
        ON(test_bad_settings_are_configuration_errors),
    };

    return cmocka_run_group_tests_name("etcd store", tests, NULL, NULL);
}
