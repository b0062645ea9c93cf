/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The etcd store with users, with TLS, and as the one who tells of changes.
 */
#include "etcd_rig.h"

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

/* As root: give the user the password that it has, which makes etcd forget its tokens. */
static void forget_tokens(struct rig *rig)
{
    char url[96];
    char token[256] = "";
    const char *found = strstr(
        ask(rig, "/v3/auth/authenticate", "{\"name\":\"root\",\"password\":\"r\"}"),
        "\"token\":\"");
    const char *body = "{\"name\":\"ferry\",\"password\":\"s3cret \\\"\\u00fc\"}";

    assert_non_null(found);
    snprintf(token, sizeof(token), "%.*s", (int)strcspn(found + 9, "\""), found + 9);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u/v3/auth/user/changepw", rig->etcd.port);
    struct ferry_http_call call = {
        .method = FERRY_HTTP_POST,
        .url = url,
        .body = body,
        .body_len = strlen(body),
        .authorization = token,
        .reply_max = 4096,
        .deadline_ns = test_deadline_ms(PATIENCE_MS),
    };

    assert_ok(ferry_http_client_call(rig->http, &call));
    assert_int_equal(call.http_status, 200);
    free(call.reply);
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
    forget_tokens(rig);
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

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON(test_a_user_is_authenticated),
        ON(test_many_wait_for_one_token),
        ON(test_tls_proves_both_sides),
        ON(test_news_of_an_entry_are_heard),
        ON(test_news_survive_restarts_and_compaction),
        ON(test_watches_have_a_bound_and_end_at_once),
    };

    return cmocka_run_group_tests_name("etcd store: users, TLS, news", tests, NULL, NULL);
}
