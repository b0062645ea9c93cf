/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog through its public interface, at a real etcd: every status that its header promises,
 * and changes from several threads at once.
 */
#include <ferry/ferry.h>

#include "support/etcd.h"
#include "support/test.h"

#include <json-c/json.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH 5000

struct rig {
    struct test_etcd etcd;
    struct ferry_config *config;
    struct ferry_catalog *catalog;
    char dir[64];
    char one[96]; /* a file of LENGTH bytes */
    char two[96]; /* and another */
};

static void make_file(const char *path, size_t length)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    for (size_t i = 0; i < length; i++)
        assert_int_not_equal(fputc((int)((i * 7 + i / 251) % 256), file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void set_config(struct rig *rig, const char *name, const char *value)
{
    assert_ok(ferry_config_set(rig->config, name, value, FERRY_ORIGIN_API));
}

static struct ferry_catalog *open_as(struct rig *rig, const char *host)
{
    struct ferry_catalog *catalog = NULL;

    set_config(rig, "host_name", host);
    assert_ok(ferry_catalog_open(rig->config, &catalog));
    return catalog;
}

static int rig_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    char servers[32];

    *state = rig;
    if (!test_etcd_exists())
        test_skip("no etcd on this machine (Debian: etcd-server)");
    test_etcd_start(&rig->etcd);
    strcpy(rig->dir, "/tmp/ferry-catalog-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    snprintf(rig->one, sizeof(rig->one), "%s/one", rig->dir);
    snprintf(rig->two, sizeof(rig->two), "%s/two", rig->dir);
    make_file(rig->one, LENGTH);
    make_file(rig->two, LENGTH);
    assert_ok(ferry_config_create(&rig->config));
    snprintf(servers, sizeof(servers), "127.0.0.1:%u", rig->etcd.port);
    set_config(rig, "metadata_type", "etcd");
    set_config(rig, "metadata_servers", servers);
    rig->catalog = open_as(rig, "h1");
    return 0;
}

static int rig_down(void **state)
{
    struct rig *rig = *state;

    ferry_catalog_close(rig->catalog);
    ferry_config_destroy(rig->config);
    test_etcd_remove(&rig->etcd);
    unlink(rig->one);
    unlink(rig->two);
    rmdir(rig->dir);
    free(rig);
    return 0;
}

static void expect_text(enum ferry_status status, enum ferry_status wanted, const char *says)
{
    assert_status(status, wanted);
    if (strstr(ferry_last_error_text(), says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", ferry_last_error_text(), says);
}

static enum ferry_status register_both(struct rig *rig, const char *segment)
{
    const char *const files[] = {rig->one, rig->two};

    return ferry_catalog_register(rig->catalog, segment, files, 2, FERRY_NO_DEADLINE);
}

/* The description as a tree; the caller drops it. */
static struct json_object *describe(struct ferry_catalog *catalog, const char *segment,
                                    enum ferry_catalog_depth depth)
{
    char *text = NULL;
    struct json_object *tree;

    assert_ok(ferry_catalog_describe(catalog, segment, depth, FERRY_NO_DEADLINE, &text));
    tree = json_tokener_parse(text);
    assert_non_null(tree);
    ferry_text_free(text);
    return tree;
}

static struct json_object *file_of(struct json_object *segment, size_t index)
{
    return json_object_array_get_idx(json_object_object_get(segment, "files"), index);
}

static void test_opening_needs_a_store_that_has_entries(void **state)
{
    struct rig *rig = *state;
    struct ferry_catalog *catalog = NULL;

    assert_status(ferry_catalog_open(rig->config, NULL), FERRY_ERR_INVALID);
    assert_true(ferry_catalog_compares(rig->catalog));
    set_config(rig, "host_name", "a,,b");
    expect_text(ferry_catalog_open(rig->config, &catalog), FERRY_ERR_CONFIG, "host_name");
    set_config(rig, "host_name", "");
    set_config(rig, "metadata_servers", "");
    expect_text(ferry_catalog_open(rig->config, &catalog), FERRY_ERR_CONFIG, "metadata_servers");
    set_config(rig, "metadata_type", "p2p");
    expect_text(ferry_catalog_open(rig->config, &catalog), FERRY_ERR_CONFIG, "metadata_type");
    set_config(rig, "metadata_type", "http");
    set_config(rig, "metadata_servers", "http://127.0.0.1:1/");
    assert_ok(ferry_catalog_open(rig->config, &catalog));
    assert_false(ferry_catalog_compares(catalog));
    ferry_catalog_close(catalog);
    ferry_catalog_close(NULL);
}

static void test_what_is_registered_is_described(void **state)
{
    struct rig *rig = *state;
    struct json_object *segment;
    char *text = NULL;

    assert_ok(register_both(rig, "disk"));
    segment = describe(rig->catalog, "nvmeof/disk", FERRY_CATALOG_READ);
    assert_string_equal(json_object_get_string(json_object_object_get(segment, "name")),
                        "nvmeof/disk");
    assert_int_equal(json_object_get_uint64(json_object_object_get(segment, "length")), 2 * LENGTH);
    assert_int_equal(json_object_get_uint64(json_object_object_get(segment, "problems")), 0);
    assert_true(json_object_get_uint64(json_object_object_get(segment, "revision")) > 0);
    assert_int_equal(json_object_get_uint64(json_object_object_get(file_of(segment, 1), "start")),
                     LENGTH);
    assert_string_equal(json_object_get_string(json_object_object_get(file_of(segment, 1), "path")),
                        rig->two);
    assert_non_null(json_object_object_get(file_of(segment, 0), "mount"));
    json_object_put(segment);
    segment = describe(rig->catalog, "disk", FERRY_CATALOG_DOCUMENT);
    assert_null(json_object_object_get(file_of(segment, 0), "kind"));
    json_object_put(segment);
    assert_ok(ferry_catalog_list(rig->catalog, FERRY_CATALOG_FILES, FERRY_NO_DEADLINE, &text));
    assert_string_equal(text, "[\"nvmeof/disk\"]");
    ferry_text_free(text);
    assert_ok(ferry_catalog_list(rig->catalog, FERRY_CATALOG_MEMORY, FERRY_NO_DEADLINE, &text));
    assert_string_equal(text, "[]");
    ferry_text_free(text);
    assert_status(ferry_catalog_list(rig->catalog, 7, FERRY_NO_DEADLINE, &text), FERRY_ERR_INVALID);
    assert_status(ferry_catalog_describe(rig->catalog, "disk", 7, FERRY_NO_DEADLINE, &text),
                  FERRY_ERR_INVALID);
    assert_status(ferry_catalog_describe(rig->catalog, "none", 0, FERRY_NO_DEADLINE, &text),
                  FERRY_ERR_NOT_FOUND);
}

static void test_what_cannot_be_registered_is_not(void **state)
{
    struct rig *rig = *state;
    char link_path[128];
    const char *missing[] = {rig->one, "/nonexistent/x"};
    const char *twice[] = {rig->one, link_path};
    const char *relative[] = {"one"};
    const char *folder[] = {rig->dir};
    char *text = NULL;

    snprintf(link_path, sizeof(link_path), "%s/link", rig->dir);
    assert_int_equal(symlink(rig->one, link_path), 0);
    expect_text(ferry_catalog_register(rig->catalog, "x", missing, 2, FERRY_NO_DEADLINE),
                FERRY_ERR_NOT_FOUND, "/nonexistent/x\": No such file");
    expect_text(ferry_catalog_register(rig->catalog, "x", twice, 2, FERRY_NO_DEADLINE),
                FERRY_ERR_INVALID, "are one file");
    expect_text(ferry_catalog_register(rig->catalog, "x", relative, 1, FERRY_NO_DEADLINE),
                FERRY_ERR_INVALID, "not absolute");
    expect_text(ferry_catalog_register(rig->catalog, "x", folder, 1, FERRY_NO_DEADLINE),
                FERRY_ERR_INVALID, "a directory");
    expect_text(ferry_catalog_register(rig->catalog, "x", relative, 0, FERRY_NO_DEADLINE),
                FERRY_ERR_INVALID, "no file");
    expect_text(register_both(rig, "a/b"), FERRY_ERR_INVALID, "a/b");
    expect_text(register_both(rig, NULL), FERRY_ERR_INVALID, "no segment name");
    assert_int_equal(truncate(rig->one, 0), 0);
    expect_text(register_both(rig, "x"), FERRY_ERR_INVALID, "empty");
    make_file(rig->one, LENGTH);
    assert_ok(register_both(rig, "x"));
    expect_text(register_both(rig, "nvmeof/x"), FERRY_ERR_EXISTS, "registered by h1, revision");
    assert_ok(ferry_catalog_list(rig->catalog, FERRY_CATALOG_FILES, FERRY_NO_DEADLINE, &text));
    assert_string_equal(text, "[\"nvmeof/x\"]");
    ferry_text_free(text);
    unlink(link_path);
}

static void test_a_map_takes_only_what_fits(void **state)
{
    struct rig *rig = *state;
    struct ferry_catalog *other = open_as(rig, "h2");
    struct json_object *segment;

    assert_ok(register_both(rig, "x"));
    assert_ok(ferry_catalog_map(other, "x", rig->one, rig->two, FERRY_NO_DEADLINE));
    expect_text(ferry_catalog_map(other, "x", "#2", rig->two, FERRY_NO_DEADLINE),
                FERRY_ERR_NOT_FOUND, "#2");
    expect_text(ferry_catalog_map(other, "x", "/else", rig->two, FERRY_NO_DEADLINE),
                FERRY_ERR_NOT_FOUND, "registered as");
    expect_text(ferry_catalog_map(other, "x", "#1", "two", FERRY_NO_DEADLINE), FERRY_ERR_INVALID,
                "not absolute");
    expect_text(ferry_catalog_map(other, "x", "#1", "/nonexistent", FERRY_NO_DEADLINE),
                FERRY_ERR_NOT_FOUND, "No such file");
    assert_int_equal(truncate(rig->two, LENGTH - 1), 0);
    expect_text(ferry_catalog_map(other, "x", "#1", rig->two, FERRY_NO_DEADLINE), FERRY_ERR_RANGE,
                "4999 bytes, expected at least 5000");
    assert_status(ferry_catalog_map(other, "y", "#1", rig->two, FERRY_NO_DEADLINE),
                  FERRY_ERR_NOT_FOUND);
    assert_status(ferry_catalog_map(other, "x", NULL, rig->two, FERRY_NO_DEADLINE),
                  FERRY_ERR_INVALID);
    segment = describe(other, "x", FERRY_CATALOG_LOOK);
    /* One is short by now, the other was never mapped. */
    assert_int_equal(json_object_get_uint64(json_object_object_get(segment, "problems")), 2);
    json_object_put(segment);
    assert_ok(ferry_catalog_unmap(other, "x", "#0", FERRY_NO_DEADLINE));
    assert_status(ferry_catalog_unmap(other, "x", NULL, FERRY_NO_DEADLINE), FERRY_ERR_NOT_MAPPED);
    ferry_catalog_close(other);
}

static void test_a_segment_grows_when_told_and_never_shrinks(void **state)
{
    struct rig *rig = *state;
    struct json_object *segment;

    assert_ok(register_both(rig, "x"));
    assert_ok(ferry_catalog_resize(rig->catalog, "x", "#0", false, FERRY_NO_DEADLINE));
    make_file(rig->one, LENGTH + 7);
    expect_text(ferry_catalog_resize(rig->catalog, "x", "#0", false, FERRY_NO_DEADLINE),
                FERRY_ERR_INVALID, "extend");
    assert_ok(ferry_catalog_resize(rig->catalog, "x", "#0", true, FERRY_NO_DEADLINE));
    segment = describe(rig->catalog, "x", FERRY_CATALOG_READ);
    assert_int_equal(json_object_get_uint64(json_object_object_get(segment, "length")),
                     2 * LENGTH + 7);
    assert_int_equal(json_object_get_uint64(json_object_object_get(file_of(segment, 1), "start")),
                     LENGTH + 7);
    json_object_put(segment);
    make_file(rig->one, 10);
    expect_text(ferry_catalog_resize(rig->catalog, "x", "#0", true, FERRY_NO_DEADLINE),
                FERRY_ERR_RANGE, "does not shrink");
    assert_status(ferry_catalog_resize(rig->catalog, "x", NULL, true, FERRY_NO_DEADLINE),
                  FERRY_ERR_INVALID);
}

static void test_what_is_removed_is_unknown_and_its_files_stay(void **state)
{
    struct rig *rig = *state;

    assert_ok(register_both(rig, "x"));
    assert_ok(ferry_catalog_remove(rig->catalog, "x", FERRY_NO_DEADLINE));
    assert_status(ferry_catalog_remove(rig->catalog, "x", FERRY_NO_DEADLINE), FERRY_ERR_NOT_FOUND);
    assert_int_equal(access(rig->one, R_OK), 0);
}

enum { HOSTS = 8 };

struct mapper {
    struct rig *rig;
    struct ferry_catalog *catalog;
    pthread_t thread;
    enum ferry_status status;
};

static void *map_both(void *arg)
{
    struct mapper *mapper = arg;

    mapper->status = ferry_catalog_map(mapper->catalog, "x", "#0", mapper->rig->one,
                                       FERRY_NO_DEADLINE);
    if (mapper->status == FERRY_OK)
        mapper->status = ferry_catalog_map(mapper->catalog, "x", "#1", mapper->rig->two,
                                           FERRY_NO_DEADLINE);
    return NULL;
}

static void test_hosts_that_map_at_once_all_survive(void **state)
{
    struct rig *rig = *state;
    struct mapper mappers[HOSTS];
    struct json_object *segment;

    assert_ok(register_both(rig, "x"));
    for (int i = 0; i < HOSTS; i++) {
        char host[8];

        snprintf(host, sizeof(host), "m%d", i);
        mappers[i] = (struct mapper){.rig = rig, .catalog = open_as(rig, host)};
    }
    for (int i = 0; i < HOSTS; i++)
        assert_int_equal(pthread_create(&mappers[i].thread, NULL, map_both, &mappers[i]), 0);
    for (int i = 0; i < HOSTS; i++) {
        pthread_join(mappers[i].thread, NULL);
        assert_status(mappers[i].status, FERRY_OK);
        ferry_catalog_close(mappers[i].catalog);
    }
    segment = describe(rig->catalog, "x", FERRY_CATALOG_DOCUMENT);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(
            json_object_object_length(json_object_object_get(file_of(segment, i), "paths")),
            HOSTS + 1);
    json_object_put(segment);
}

/* The first byte of the segment, as an engine reads it. */
static unsigned char first_byte(struct ferry_engine *engine, uint64_t segment)
{
    static unsigned char memory[4096];
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request = FERRY_REQUEST_INIT;

    range.addr = memory;
    range.length = sizeof(memory);
    range.permission = FERRY_PERMISSION_LOCAL;
    assert_ok(ferry_memory_register(engine, &range, 1));
    request.segment = segment;
    request.local = memory;
    request.length = 1;
    assert_ok(ferry_read(engine, &request, test_deadline_ms(60000)));
    assert_ok(ferry_memory_unregister(engine, &range, 1, test_deadline_ms(60000)));
    return memory[0];
}

/* Another path is used without anybody refreshing: the store tells, and it is read anew. */
static void test_an_engine_follows_a_map_that_changes(void **state)
{
    struct rig *rig = *state;
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    uint64_t segment;
    const char *const files[] = {rig->one};
    FILE *file = fopen(rig->two, "r+");

    assert_non_null(file);
    assert_int_equal(fputc(0xa5, file), 0xa5);
    fclose(file);
    assert_ok(ferry_catalog_register(rig->catalog, "x", files, 1, FERRY_NO_DEADLINE));
    options.config = rig->config;
    assert_ok(ferry_engine_open(&options, &engine));
    assert_ok(ferry_segment_open(engine, "nvmeof/x", FERRY_NO_DEADLINE, &segment));
    assert_int_equal(first_byte(engine, segment), 0);
    assert_ok(ferry_catalog_map(rig->catalog, "x", "#0", rig->two, FERRY_NO_DEADLINE));
    assert_within_ms(first_byte(engine, segment) == 0xa5, 60000);
    assert_ok(ferry_catalog_map(rig->catalog, "x", "#0", rig->one, FERRY_NO_DEADLINE));
    assert_within_ms(first_byte(engine, segment) == 0, 60000);
    assert_ok(ferry_segment_close(engine, segment));
    /* Open again, and left open: closing the engine ends the watch. */
    assert_ok(ferry_segment_open(engine, "nvmeof/x", FERRY_NO_DEADLINE, &segment));
    assert_ok(ferry_engine_close(engine));
}

static void test_a_store_that_is_away_is_said_to_be(void **state)
{
    struct rig *rig = *state;
    struct ferry_catalog *catalog;
    char *text = NULL;

    set_config(rig, "metadata_servers", "127.0.0.1:1");
    set_config(rig, "metadata_timeout_ms", "200");
    catalog = open_as(rig, "h1");
    expect_text(ferry_catalog_describe(catalog, "x", 0, FERRY_NO_DEADLINE, &text),
                FERRY_ERR_METADATA, "127.0.0.1:1");
    assert_status(ferry_catalog_describe(catalog, "x", 0, 1, &text), FERRY_ERR_TIMED_OUT);
    ferry_catalog_close(catalog);
}

#define ON(fn) cmocka_unit_test_setup_teardown(fn, rig_up, rig_down)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        ON(test_opening_needs_a_store_that_has_entries),
        ON(test_what_is_registered_is_described),
        ON(test_what_cannot_be_registered_is_not),
        ON(test_a_map_takes_only_what_fits),
        ON(test_a_segment_grows_when_told_and_never_shrinks),
        ON(test_what_is_removed_is_unknown_and_its_files_stay),
        ON(test_hosts_that_map_at_once_all_survive),
        ON(test_an_engine_follows_a_map_that_changes),
        ON(test_a_store_that_is_away_is_said_to_be),
    };

    return cmocka_run_group_tests_name("catalog", tests, NULL, NULL);
}
