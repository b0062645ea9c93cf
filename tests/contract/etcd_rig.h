/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the etcd store share: a real etcd, a store at it, and a way to ask etcd itself.
 * Header only; one thread unless a test says otherwise.
 */
#ifndef FERRY_TESTS_CONTRACT_ETCD_RIG_H
#define FERRY_TESTS_CONTRACT_ETCD_RIG_H

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

static inline void set_config(struct rig *rig, const char *name, const char *value)
{
    assert_ok(ferry_config_set(rig->config, name, value, FERRY_ORIGIN_API));
}

static inline enum ferry_status open_store(struct rig *rig)
{
    struct ferry_store_env env = {
        .config = rig->config, .clock = &ferry_clock_system, .http = rig->http};

    return ferry_store_open(&env, &rig->store);
}

static inline void reopen(struct rig *rig)
{
    ferry_store_close(rig->store);
    rig->store = NULL;
    assert_ok(open_store(rig));
}

static inline void point_at(struct rig *rig, uint16_t port)
{
    char servers[64];

    snprintf(servers, sizeof(servers), "127.0.0.1:%u", port);
    set_config(rig, "metadata_servers", servers);
}

static inline void configure(struct rig *rig)
{
    static const struct ferry_option_table *const tables[] = {&ferry_engine_option_table};

    assert_ok(ferry_config_create_with(tables, 1, &rig->config));
    set_config(rig, "metadata_type", "etcd");
    set_config(rig, "metadata_timeout_ms", "30000");
    set_config(rig, "metadata_lease_s", "2");
}

static inline int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    *state = rig;
    if (!test_etcd_exists())
        test_skip("no etcd on this machine (Debian: etcd-server)");
    configure(rig);
    test_etcd_start(&rig->etcd);
    assert_ok(ferry_http_client_open(NULL, &rig->http));
    point_at(rig, rig->etcd.port);
    assert_ok(open_store(rig));
    return 0;
}

static inline int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_store_close(rig->store);
    ferry_http_client_close(rig->http);
    test_etcd_remove(&rig->etcd);
    ferry_config_destroy(rig->config);
    free(rig);
    return 0;
}

static inline struct ferry_store_request request_of(enum ferry_store_verb verb, const char *name)
{
    return (struct ferry_store_request){
        .verb = verb, .name = name, .deadline_ns = test_deadline_ms(PATIENCE_MS)};
}

static inline struct ferry_store_request put_of(const char *name, const char *text)
{
    struct ferry_store_request request = request_of(FERRY_STORE_PUT, name);

    request.text = text;
    request.text_len = strlen(text);
    return request;
}

static inline uint64_t put(struct rig *rig, const char *name, const char *text)
{
    struct ferry_store_request request = put_of(name, text);

    assert_ok(ferry_store_call(rig->store, &request));
    assert_true(request.revision != 0);
    return request.revision;
}

static inline enum ferry_status put_owned(struct rig *rig, const char *name, const char *text)
{
    struct ferry_store_request request = put_of(name, text);
    enum ferry_status status;

    request.owned = true;
    status = ferry_store_call(rig->store, &request);
    free(request.reply);
    return status;
}

/* "" if there is none. */
static inline const char *get(struct rig *rig, const char *name)
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
static inline const char *ask(struct rig *rig, const char *path, const char *body)
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

static inline bool key_exists(struct rig *rig, const char *key)
{
    char encoded[1024];
    char body[1100];

    assert_true(ferry_base64_length(strlen(key)) < sizeof(encoded));
    ferry_base64_encode(key, strlen(key), encoded);
    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", encoded);
    return strstr(ask(rig, "/v3/kv/range", body), "\"kvs\"") != NULL;
}

/* "AA==" is the byte 0: all keys. */
static inline int key_count(struct rig *rig)
{
    const char *answer = ask(rig, "/v3/kv/range",
                             "{\"key\":\"AA==\",\"range_end\":\"AA==\",\"count_only\":true}");
    const char *count = strstr(answer, "\"count\":\"");

    return count != NULL ? atoi(count + 9) : 0;
}

/* Several threads that count up one entry, each by comparing. */
enum { ADDERS = 8, ROUNDS = 10 };

static inline void *add_one_at_a_time(void *arg)
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

#define ON(fn) cmocka_unit_test_setup_teardown(fn, rig_up, rig_down)

#endif
