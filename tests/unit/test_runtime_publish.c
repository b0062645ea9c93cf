/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine publishes, when, and under which name and address; and what it does when the store
 * refuses. The store is the test's.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

#include "metadata/document.h"
#include "runtime/runtime.h"
#include "runtime/seams.h"
#include "support/process.h"
#include "support/sanitizer.h"
#include "support/test.h"
#include "unit/runtime_store.h"

#define LENGTH 4096u

static enum ferry_status try_open(struct test_store *store, const char *name,
                                  const char *const *settings, struct ferry_engine **engine_out)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine_seams seams = {0};
    struct ferry_config *config = NULL;
    enum ferry_status status;

    assert_ok(ferry_config_create(&config));
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2)
        assert_ok(ferry_config_set(config, settings[i], settings[i + 1], FERRY_ORIGIN_API));
    options.config = config;
    options.segment_name = name;
    if (store != NULL)
        seams.store = &store->base;
    status = ferry_engine_open_with(&options, &seams, engine_out);
    ferry_config_destroy(config);
    return status;
}

static struct ferry_engine *open_engine(struct test_store *store, const char *name)
{
    struct ferry_engine *engine = NULL;

    assert_ok(try_open(store, name, NULL, &engine));
    return engine;
}

static enum ferry_status register_at(struct ferry_engine *engine, unsigned char *addr,
                                     uint64_t length)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    range.addr = addr;
    range.length = length;
    return ferry_memory_register(engine, &range, 1);
}

static uint32_t published_buffers(struct test_store *store, const char *name)
{
    char *text = test_store_text(store, name);
    struct ferry_document *doc = NULL;
    uint32_t count;

    assert_non_null(text);
    assert_ok(ferry_document_parse(text, strlen(text), &doc));
    assert_string_equal(doc->name, name);
    assert_non_null(doc->ferry_version);
    count = doc->buffer_count;
    ferry_document_destroy(doc);
    free(text);
    return count;
}

static void test_list_of_ranges_is_published_once(void **state)
{
    static unsigned char memory[1000 * 2 * LENGTH];
    struct test_store *store = test_store_open();
    struct ferry_engine *engine = open_engine(store, "a");
    struct ferry_memory_range ranges[1000];
    uint32_t before = test_store_count(store, FERRY_STORE_PUT);

    (void)state;
    assert_int_equal(before, 1);
    assert_int_equal(published_buffers(store, "a"), 0);
    for (uint32_t i = 0; i < 1000; i++) {
        ranges[i] = (struct ferry_memory_range)FERRY_MEMORY_RANGE_INIT;
        ranges[i].addr = memory + i * 2 * LENGTH;
        ranges[i].length = LENGTH;
    }
    assert_ok(ferry_memory_register(engine, ranges, 1000));
    assert_int_equal(test_store_count(store, FERRY_STORE_PUT), before + 1);
    assert_int_equal(published_buffers(store, "a"), 1000);
    /* Counted duplicates change nothing that peers could see. */
    assert_ok(ferry_memory_register(engine, ranges, 10));
    assert_int_equal(test_store_count(store, FERRY_STORE_PUT), before + 1);
    assert_ok(ferry_memory_unregister(engine, ranges, 1000, 0));
    assert_int_equal(published_buffers(store, "a"), 10);
    assert_ok(ferry_memory_unregister(engine, ranges, 10, 0));
    assert_int_equal(published_buffers(store, "a"), 0);
    assert_ok(ferry_engine_close(engine));
    assert_null(test_store_text(store, "a"));
    test_store_close(store);
}

/* A refused description leaves no registration behind, hidden or not. */
static void test_registration_that_cannot_be_published_is_taken_back(void **state)
{
    static unsigned char memory[2 * LENGTH];
    struct test_store *store = test_store_open();
    struct ferry_engine *engine = open_engine(store, "a");
    size_t count = 0;

    (void)state;
    assert_ok(register_at(engine, memory, LENGTH));
    test_store_fail(store, FERRY_STORE_PUT, FERRY_ERR_TOO_LARGE);
    assert_status(register_at(engine, memory + LENGTH, LENGTH), FERRY_ERR_TOO_LARGE);
    test_store_fail(store, FERRY_STORE_PUT, FERRY_ERR_PEER_GONE);
    assert_status(register_at(engine, memory + LENGTH, LENGTH), FERRY_ERR_METADATA);
    assert_non_null(strstr(ferry_last_error_text(), "says no"));
    assert_ok(ferry_segment_buffers(engine, FERRY_SEGMENT_LOCAL, NULL, &count));
    assert_int_equal(count, 1);
    test_store_fail(store, FERRY_STORE_PUT, FERRY_OK);
    assert_ok(register_at(engine, memory + LENGTH, LENGTH));
    assert_int_equal(published_buffers(store, "a"), 2);
    test_store_fail(store, FERRY_STORE_PUT, FERRY_ERR_PEER_GONE);
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    range.addr = memory;
    range.length = LENGTH;
    assert_status(ferry_memory_unregister(engine, &range, 1, 0), FERRY_ERR_METADATA);
    count = 0;
    assert_ok(ferry_segment_buffers(engine, FERRY_SEGMENT_LOCAL, NULL, &count));
    assert_int_equal(count, 1);
    assert_ok(ferry_engine_close(engine));
    test_store_close(store);
}

struct publisher {
    struct ferry_engine *engine;
    unsigned char *addr;
    enum ferry_status status;
};

static void *publish(void *arg)
{
    struct publisher *publisher = arg;

    publisher->status = register_at(publisher->engine, publisher->addr, LENGTH);
    return NULL;
}

/* Threads that register while a PUT is under way are served by the next one together. */
static void test_registrations_of_many_threads_share_publications(void **state)
{
    static unsigned char memory[16 * LENGTH];
    struct test_store *store = test_store_open();
    struct ferry_engine *engine = open_engine(store, "a");
    struct publisher publishers[16];
    pthread_t threads[16];

    (void)state;
    test_store_hold(store, FERRY_STORE_PUT, true);
    for (uint32_t i = 0; i < 16; i++) {
        size_t count = 0;

        publishers[i] = (struct publisher){.engine = engine, .addr = memory + i * LENGTH};
        assert_int_equal(pthread_create(&threads[i], NULL, publish, &publishers[i]), 0);
        assert_within_ms(ferry_segment_buffers(engine, FERRY_SEGMENT_LOCAL, NULL, &count) ==
                                 FERRY_OK &&
                             (count >= i + 1 || (count = 0)),
                         5000);
    }
    test_store_hold(store, FERRY_STORE_PUT, false);
    for (uint32_t i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(publishers[i].status, FERRY_OK);
    }
    assert_in_range(test_store_count(store, FERRY_STORE_PUT), 2, 3);
    assert_int_equal(published_buffers(store, "a"), 16);
    assert_ok(ferry_engine_close(engine));
    test_store_close(store);
}

/* Field report B25: a name belongs to one living engine; one that does not answer is replaced. */
static void test_name_of_a_living_engine_is_taken(void **state)
{
    struct test_store *store = test_store_open();
    struct ferry_engine *first = open_engine(store, "a");
    struct ferry_engine *second = NULL;
    char *text;

    (void)state;
    assert_status(try_open(store, "a", NULL, &second), FERRY_ERR_EXISTS);
    assert_int_equal(published_buffers(store, "a"), 0);
    text = test_store_text(store, "a");
    assert_ok(ferry_engine_close(first));
    test_store_set(store, "a", text);
    free(text);
    assert_ok(try_open(store, "a", NULL, &second));
    /* Whoever took it over meanwhile keeps it when we leave. */
    test_store_set(store, "a",
                   "{\"name\":\"a\",\"type\":\"memory\",\"machine_id\":\"m\",\"rpc_server_addr\":"
                   "\"127.0.0.1:9\",\"detail\":{\"device_attrs\":{},\"buffers\":[],\"devices\":[],"
                   "\"transport_attrs\":[]}}");
    assert_ok(ferry_engine_close(second));
    text = test_store_text(store, "a");
    assert_non_null(text);
    free(text);
    test_store_close(store);
}

static void set_owner(struct test_store *store, const char *name, const char *address)
{
    char text[1024];

    snprintf(
        text, sizeof(text),
        "{\"name\":\"%s\",\"type\":\"memory\",\"machine_id\":\"m\",\"rpc_server_addr\":\"%s\","
        "\"detail\":{\"device_attrs\":{},\"buffers\":[],\"devices\":[],\"transport_attrs\":[]}}",
        name, address);
    test_store_set(store, name, text);
}

/* An owner was killed, and its port went to an engine of another name: that one has no claim. */
static void test_name_is_not_held_by_a_stranger_at_the_same_address(void **state)
{
    struct test_store *store = test_store_open();
    struct ferry_engine *stranger = open_engine(store, "stranger");
    struct ferry_engine *engine = NULL;

    (void)state;
    set_owner(store, "a", stranger->control_address);
    assert_ok(try_open(store, "a", NULL, &engine));
    assert_ok(ferry_engine_close(engine));
    assert_ok(ferry_engine_close(stranger));
    test_store_close(store);
}

struct opener {
    struct test_store *store;
    struct ferry_engine *engine;
    enum ferry_status status;
};

static void *open_a(void *arg)
{
    struct opener *opener = arg;

    opener->status = try_open(opener->store, "a", NULL, &opener->engine);
    return NULL;
}

/* Both find the name free before either has written it: one has it, the other hears of that. */
static void test_name_claimed_twice_at_once_goes_to_one(void **state)
{
    struct test_store *store = test_store_open();
    struct opener openers[2] = {{.store = store}, {.store = store}};
    pthread_t threads[2];
    uint32_t winners = 0;

    (void)state;
    test_store_hold(store, FERRY_STORE_GET, true);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_a, &openers[i]), 0);
    assert_within_ms(test_store_count(store, FERRY_STORE_GET) == 2, 20000);
    test_store_hold(store, FERRY_STORE_PUT, true);
    test_store_hold(store, FERRY_STORE_GET, false);
    assert_within_ms(test_store_count(store, FERRY_STORE_PUT) == 2, 20000);
    test_store_hold(store, FERRY_STORE_PUT, false);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        winners += openers[i].status == FERRY_OK;
    }
    assert_int_equal(winners, 1);
    assert_true(openers[0].status == FERRY_ERR_EXISTS || openers[1].status == FERRY_ERR_EXISTS);
    /* The loser has left the winner's description alone. */
    assert_int_equal(published_buffers(store, "a"), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_ok(ferry_engine_close(openers[i].engine));
    test_store_close(store);
}

/* A predecessor that looked before we wrote deletes our entry on its way out. */
static void test_name_that_a_predecessor_deletes_is_written_again(void **state)
{
    struct test_store *store = test_store_open();
    struct opener opener = {.store = store};
    pthread_t thread;

    (void)state;
    test_store_hold(store, FERRY_STORE_PUT, true);
    assert_int_equal(pthread_create(&thread, NULL, open_a, &opener), 0);
    assert_within_ms(test_store_count(store, FERRY_STORE_PUT) == 1, 20000);
    test_store_hold(store, FERRY_STORE_GET, true);
    test_store_hold(store, FERRY_STORE_PUT, false);
    assert_within_ms(test_store_count(store, FERRY_STORE_GET) == 2, 20000);
    test_store_set(store, "a", NULL);
    test_store_hold(store, FERRY_STORE_GET, false);
    pthread_join(thread, NULL);
    assert_ok(opener.status);
    assert_int_equal(published_buffers(store, "a"), 0);
    assert_ok(ferry_engine_close(opener.engine));
    test_store_close(store);
}

static void test_store_that_fails_fails_the_open(void **state)
{
    struct test_store *store = test_store_open();
    struct ferry_engine *engine = NULL;
    int before = process_thread_count();

    (void)state;
    test_store_fail(store, FERRY_STORE_PUT, FERRY_ERR_PEER_GONE);
    assert_status(try_open(store, "a", NULL, &engine), FERRY_ERR_METADATA);
    test_store_fail(store, FERRY_STORE_GET, FERRY_ERR_PEER_GONE);
    assert_status(try_open(store, "a", NULL, &engine), FERRY_ERR_METADATA);
    assert_null(engine);
    assert_within_ms(process_thread_count() == before, 5000);
    test_store_close(store);
}

/* Field report B05: what is published is never a wildcard; a setting that is one is named. */
static void test_published_address_is_one_that_peers_can_use(void **state)
{
    static const char *const advertised[] = {"0.0.0.0", "::", "[::]", NULL};
    static const char *const bound[] = {"0.0.0.0", "::", NULL};
    struct ferry_engine *engine = NULL;
    size_t i;

    (void)state;
    for (i = 0; advertised[i] != NULL; i++) {
        const char *const settings[] = {"advertise_address", advertised[i], NULL};

        assert_status(try_open(NULL, NULL, settings, &engine), FERRY_ERR_INVALID);
        assert_non_null(strstr(ferry_last_error_text(), "advertise_address"));
    }
    for (i = 0; bound[i] != NULL; i++) {
        const char *const settings[] = {"rpc_server_hostname", bound[i], NULL};
        const char *name;

        assert_ok(try_open(NULL, NULL, settings, &engine));
        name = ferry_engine_segment_name(engine);
        assert_null(strstr(name, "0.0.0.0"));
        assert_null(strstr(name, "[::]"));
        assert_ok(ferry_engine_close(engine));
    }
    {
        const char *const settings[] = {"rpc_server_hostname", "::1", NULL};

        assert_ok(try_open(NULL, NULL, settings, &engine));
        assert_memory_equal(ferry_engine_segment_name(engine), "[::1]:", 6);
        assert_ok(ferry_engine_close(engine));
    }
    {
        const char *const settings[] = {"rpc_server_hostname", "192.0.2.77", NULL};

        assert_status(try_open(NULL, NULL, settings, &engine), FERRY_ERR_INVALID);
        assert_non_null(strstr(ferry_last_error_text(), "192.0.2.77"));
    }
}

static void test_port_and_name_that_cannot_be_had_are_errors(void **state)
{
    struct ferry_engine *first = NULL;
    struct ferry_engine *second = NULL;
    char port[8];
    const char *settings[] = {"rpc_server_port", port, NULL};

    (void)state;
    assert_ok(try_open(NULL, NULL, NULL, &first));
    snprintf(port, sizeof(port), "%.7s", strrchr(ferry_engine_segment_name(first), ':') + 1);
    assert_status(try_open(NULL, NULL, settings, &second), FERRY_ERR_EXISTS);
    assert_status(try_open(NULL, "name-without-a-store", NULL, &second), FERRY_ERR_CONFIG);
    assert_non_null(strstr(ferry_last_error_text(), "local_segment_name"));
    assert_ok(ferry_engine_close(first));
}

static void test_transports_are_what_the_settings_say(void **state)
{
    static const char *const none[] = {"force_transport", "carrier_pigeon", NULL};
    static const char *const loop_only[] = {"transports.hp_tcp.enable", "false", NULL};
    static const char *const nothing[] = {"transports.hp_tcp.enable", "false",
                                          "transports.loop.enable", "false", NULL};
    struct ferry_engine *engine = NULL;

    (void)state;
    assert_status(try_open(NULL, NULL, none, &engine), FERRY_ERR_CONFIG);
    assert_non_null(strstr(ferry_last_error_text(), "carrier_pigeon"));
    assert_ok(try_open(NULL, NULL, loop_only, &engine));
    assert_null(ferry_engine_transport(engine, "hp_tcp"));
    assert_non_null(ferry_engine_transport(engine, "loop"));
    assert_ok(ferry_engine_close(engine));
    assert_ok(try_open(NULL, NULL, nothing, &engine));
    assert_ok(ferry_engine_close(engine));
}

/* Field report B16: registration does not get slower with count or history. */
static void test_registration_one_by_one_stays_cheap(void **state)
{
    enum { COUNT = 10000, ROUNDS = 6 };
    static unsigned char memory[COUNT * 64];
    struct ferry_engine *engine = NULL;
    uint64_t took[ROUNDS];
    uint64_t rss = 0;

    (void)state;
    assert_ok(try_open(NULL, NULL, NULL, &engine));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t begin = test_now_ns();

        for (uint32_t i = 0; i < COUNT; i++)
            assert_ok(register_at(engine, memory + i * 64, 64));
        for (uint32_t i = 0; i < COUNT; i++) {
            struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

            range.addr = memory + i * 64;
            range.length = 64;
            assert_ok(ferry_memory_unregister(engine, &range, 1, 0));
        }
        took[round] = test_now_ns() - begin;
        if (round == 1)
            rss = process_rss_bytes();
    }
    print_message("first round %llu us, last %llu us\n", (unsigned long long)took[0] / 1000,
                  (unsigned long long)took[ROUNDS - 1] / 1000);
    /* Against itself, and with room for a busy machine: history must not add up. */
    assert_true(took[ROUNDS - 1] < 10 * took[1] + 1000000000u);
    if (!TEST_ADDRESS_SANITIZER && !TEST_THREAD_SANITIZER)
        assert_true(process_rss_bytes() < rss + (8u << 20));
    assert_ok(ferry_engine_close(engine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_of_ranges_is_published_once),
        cmocka_unit_test(test_registration_that_cannot_be_published_is_taken_back),
        cmocka_unit_test(test_registrations_of_many_threads_share_publications),
        cmocka_unit_test(test_name_of_a_living_engine_is_taken),
        cmocka_unit_test(test_name_is_not_held_by_a_stranger_at_the_same_address),
        cmocka_unit_test(test_name_claimed_twice_at_once_goes_to_one),
        cmocka_unit_test(test_name_that_a_predecessor_deletes_is_written_again),
        cmocka_unit_test(test_store_that_fails_fails_the_open),
        cmocka_unit_test(test_published_address_is_one_that_peers_can_use),
        cmocka_unit_test(test_port_and_name_that_cannot_be_had_are_errors),
        cmocka_unit_test(test_transports_are_what_the_settings_say),
        cmocka_unit_test(test_registration_one_by_one_stays_cheap),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
