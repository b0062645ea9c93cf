/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from files: what is taken, what is refused and with which words.
 */
#include "test_config_support.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Field report B19: a number is a whole number, and nothing else turns into one. */
static void test_config_only_whole_numbers_in_range_are_numbers(void **state)
{
    assert_file_gives("worker_count", "4", "4");
    assert_file_gives("worker_count", "\"auto\"", "auto");
    assert_file_gives("worker_count", "256", "256");
    assert_file_gives("port", "0", "0");

    assert_file_refuses("worker_count", "\"4\"", "\"4\"");
    assert_file_refuses("worker_count", "4.0", "4.0");
    assert_file_refuses("worker_count", "4.5", "4.5");
    assert_file_refuses("worker_count", "4e0", "4e0");
    assert_file_refuses("worker_count", "-1", "-1");
    assert_file_refuses("worker_count", "-9223372036854775808", "-9223372036854775808");
    assert_file_refuses("worker_count", "0", "found 0");
    assert_file_refuses("worker_count", "257", "257");
    assert_file_refuses("worker_count", "18446744073709551615", "18446744073709551615");
    assert_file_refuses("worker_count", "true", "true");
    assert_file_refuses("worker_count", "null", "null");
    assert_file_refuses("worker_count", "[]", "a list");
    assert_file_refuses("worker_count", "{}", "an object");
    assert_file_refuses("port", "-1", "-1");
    assert_file_refuses("port", "65536", "65536");
    assert_file_refuses("port", "\"0\"", "\"0\"");
}

/* Field report B19: larger than any integer type; a reader must not clamp it. */
static void test_config_twenty_nines_are_refused_by_name(void **state)
{
    struct ferry_config *config = sample_config();

    assert_status(ferry_config_load_text(
                      config, "{\"transports/hp_tcp/worker_count\": 99999999999999999999}", "c"),
                  FERRY_ERR_CONFIG);
    assert_says("worker_count");
    assert_says("99999999999999999999");
    assert_says("18446744073709551615");
    assert_value(config, "transports.hp_tcp.worker_count", "auto");
    ferry_config_destroy(config);
}

/* Field report B19: a text "false" counted as true. */
static void test_config_only_booleans_are_booleans(void **state)
{
    assert_file_gives("enable", "false", "false");
    assert_file_gives("enable", "true", "true");
    assert_file_refuses("enable", "\"false\"", "\"false\"");
    assert_file_refuses("enable", "\"no\"", "\"no\"");
    assert_file_refuses("enable", "0", "found 0");
    assert_file_refuses("enable", "1", "found 1");
    assert_file_refuses("enable", "null", "null");
}

static void test_config_sizes_have_binary_units(void **state)
{
    assert_file_gives("max_bytes", "67108864", "64MiB");
    assert_file_gives("max_bytes", "\"64MiB\"", "64MiB");
    assert_file_gives("max_bytes", "4097", "4097");
    assert_file_gives("max_bytes", "18446744073709551615", "18446744073709551615");
    assert_file_refuses("max_bytes", "\"67108864\"", "\"67108864\"");
    assert_file_refuses("max_bytes", "\"64M\"", "\"64M\"");
    assert_file_refuses("max_bytes", "\"64 MiB\"", "\"64 MiB\"");
    assert_file_refuses("max_bytes", "\"17179869184GiB\"", "\"17179869184GiB\"");
    assert_file_refuses("max_bytes", "\"\"", "\"\"");
    assert_file_refuses("max_bytes", "4095", "4095");
}

static void test_config_texts_choices_and_lists_are_bounded(void **state)
{
    assert_file_gives("bind_address", "\"12345678\"", "12345678");
    assert_file_refuses("bind_address", "\"123456789\"", "\"123456789\"");
    assert_file_refuses("bind_address", "7", "found 7");
    assert_file_gives("slicing", "\"static\"", "static");
    assert_file_gives("slicing", "\"dealt\"", "static");
    assert_file_refuses("slicing", "\"Static\"", "pull | static");
    assert_file_refuses("slicing", "1", "found 1");
    assert_file_gives("rail_addresses", "[]", "");
    assert_file_gives("rail_addresses", "[\"10.0.0.1\", \"10.0.1.1\"]", "10.0.0.1,10.0.1.1");
    assert_file_refuses("rail_addresses", "\"10.0.0.1\"", "10.0.0.1");
    assert_file_refuses("rail_addresses", "[1]", "not text");
    assert_file_refuses("rail_addresses", "[null]", "not text");
    assert_file_refuses("rail_addresses", "[\"\"]", "\"\"");
    assert_file_refuses("rail_addresses", "[\"a,b\"]", "a,b");
    assert_file_refuses("rail_addresses", "[\"a\", \"b\", \"c\", \"d\"]", "found 4");
}

static void test_config_a_list_names_nothing_twice(void **state)
{
    struct ferry_config *config = sample_config();

    assert_status(
        ferry_config_load_text(
            config, "{\"transports\": {\"hp_tcp\": {\"rail_addresses\": [\"a\", \"a\"]}}}", "c"),
        FERRY_ERR_CONFIG);
    assert_says("rail_addresses");
    assert_says("twice");
    ferry_config_destroy(config);
}

/* Field report B19: a misspelt key did nothing, silently. */
static void test_config_unknown_keys_are_named_with_the_nearest(void **state)
{
    static const char *const rows[][3] = {
        {"{\"transports\": {\"hp_tcp\": {\"worker_cout\": 4}}}", "transports.hp_tcp.worker_cout",
         "nearest known one is transports.hp_tcp.worker_count"},
        {"{\"transport\": {}}", "transport:", "unknown"},
        {"{\"log_leve\": \"info\"}", "log_leve", "nearest known one is log_level"},
        {"{\"worker_count\": 4}", "worker_count", "transports.hp_tcp.worker_count"},
        {"{\"transports\": {\"hp_tpc\": {\"enable\": false}}}", "transports.hp_tpc", "unknown"},
        {"{\"\": 1}", "unknown", "nearest"},
        {"{\"log_level/x\": 1}", "log_level.x", "unknown"},
    };

    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_config *config = sample_config();

        assert_status(ferry_config_load_text(config, rows[i][0], "c.json"), FERRY_ERR_CONFIG);
        assert_says("c.json");
        assert_says(rows[i][1]);
        assert_says(rows[i][2]);
        ferry_config_destroy(config);
    }
}

static void test_config_a_key_of_any_length_is_refused_without_harm(void **state)
{
    struct ferry_config *config = sample_config();
    char text[2048];

    for (size_t len = 100; len < 1000; len += 9) {
        char key[1024];

        memset(key, 'k', len);
        key[len] = '\0';
        snprintf(text, sizeof(text), "{\"%s\": 1}", key);
        assert_status(ferry_config_load_text(config, text, "c"), FERRY_ERR_CONFIG);
        assert_says("unknown");
        snprintf(text, sizeof(text), "{\"transports\": {\"hp_tcp\": {\"%s\": 1}}}", key);
        assert_status(ferry_config_load_text(config, text, "c"), FERRY_ERR_CONFIG);
    }
    ferry_config_destroy(config);
}

static void test_config_the_path_syntax_is_another_way_to_nest(void **state)
{
    static const char *const rows[] = {
        "{\"transports\": {\"hp_tcp\": {\"worker_count\": 3}}}",
        "{\"transports/hp_tcp/worker_count\": 3}",
        "{\"transports\": {\"hp_tcp/worker_count\": 3}}",
        "{\"transports/hp_tcp\": {\"worker_count\": 3}}",
    };

    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_config *config = sample_config();

        assert_ok(ferry_config_load_text(config, rows[i], "c"));
        assert_int_equal(ferry_config_u64(config, "transports.hp_tcp.worker_count"), 3);
        ferry_config_destroy(config);
    }
}

static void test_config_one_file_gives_a_setting_once(void **state)
{
    struct ferry_config *config = sample_config();

    assert_status(
        ferry_config_load_text(config, "{\"log_level\": \"info\", \"log_level\": \"off\"}", "c"),
        FERRY_ERR_CONFIG);
    assert_says("log_level");
    assert_says("twice");
    assert_status(ferry_config_load_text(config,
                                         "{\"transports/hp_tcp/port\": 1,"
                                         " \"transports\": {\"hp_tcp\": {\"port\": 2}}}",
                                         "c"),
                  FERRY_ERR_CONFIG);
    assert_says("transports.hp_tcp.port");
    assert_says("twice");
    assert_value(config, "log_level", "warn");
    assert_value(config, "transports.hp_tcp.port", "0");
    ferry_config_destroy(config);
}

static void test_config_sections_are_objects(void **state)
{
    static const char *const rows[][3] = {
        {"[]", "c:", "a list"},
        {"4", "c:", "an object"},
        {"null", "c:", "null"},
        {"{\"transports\": []}", "transports", "a list"},
        {"{\"transports\": null}", "transports", "null"},
        {"{\"transports\": {\"hp_tcp\": true}}", "transports.hp_tcp", "expected an object"},
        {"{\"transports\": {\"rdma\": \"off\"}}", "transports.rdma", "text"},
    };

    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_config *config = sample_config();

        assert_status(ferry_config_load_text(config, rows[i][0], "c"), FERRY_ERR_CONFIG);
        assert_says(rows[i][1]);
        assert_says(rows[i][2]);
        ferry_config_destroy(config);
    }
}

/* A published file speaks of transports that a build need not have. */
static void test_config_other_transports_may_be_named_but_not_wanted(void **state)
{
    static const char *const accepted[] = {
        "{\"transports\": {\"rdma\": {\"enable\": false, \"num_lanes\": 6, \"device\": {}}}}",
        "{\"transports\": {\"rdma\": {}, \"tcp\": {\"max_retry_count\": 3}}}",
        "{\"transports/rdma/enable\": false, \"transports/rdma/device/port\": 1}",
        "{\"transports\": {\"tcp\": {\"enable\": false}, \"shm\": {\"enable\": false},"
        " \"gds\": {\"enable\": false}, \"ascend_direct\": {\"enable\": false},"
        " \"io_uring\": {\"enable\": false}, \"hp_tcp\": {\"enable\": true}}}",
    };
    static const char *const refused[][2] = {
        {"{\"transports\": {\"rdma\": {\"enable\": true}}}", "no transport rdma"},
        {"{\"transports/tcp/enable\": true}", "no transport tcp"},
        {"{\"transports\": {\"tcp\": {\"enable\": \"false\"}}}", "transports.tcp"},
        {"{\"transports\": {\"tcp\": {\"enable\": 0}}}", "transports.tcp"},
    };
    struct ferry_config *config = sample_config();

    for (size_t i = 0; i < FERRY_ARRAY_LEN(accepted); i++)
        assert_ok(ferry_config_load_text(config, accepted[i], "c"));
    for (size_t i = 0; i < FERRY_ARRAY_LEN(refused); i++) {
        assert_status(ferry_config_load_text(config, refused[i][0], "c"), FERRY_ERR_CONFIG);
        assert_says(refused[i][1]);
    }
    ferry_config_destroy(config);
}

static void test_config_published_keys_without_meaning_are_taken_in(void **state)
{
    struct ferry_config *config = sample_config();

    assert_ok(ferry_config_load_text(
        config,
        "{\"local_segment_name\": \"node7\", \"metadata_type\": \"p2p\", \"metadata_servers\": "
        "\"\","
        " \"rpc_server_hostname\": \"\", \"rpc_server_port\": 0, \"rpc_server_threads\": 1,"
        " \"log_level\": \"warning\", \"verbose\": false, \"merge_requests\": true,"
        " \"max_failover_attempts\": 3, \"enable_auto_failover_on_poll\": true,"
        " \"enable_progress_worker\": false, \"enable_runtime_queue\": false,"
        " \"runtime_queue\": {\"max_dispatch_owners\": 64}, \"runtime_queue/x\": 1,"
        " \"use_legacy_transport_selection\": false, \"policy\": [], \"qos\": {},"
        " \"metrics\": {\"enabled\": true, \"http_port\": 9100},"
        " \"topology\": {\"rdma_whitelist\": []},"
        " \"transports\": {\"hp_tcp\": {\"chunk_size\": 65536}}}",
        "published"));
    assert_value(config, "local_segment_name", "node7");
    assert_value(config, "log_level", "warn");
    assert_int_equal(ferry_config_choice(config, "log_level"), 2);
    assert_value(config, "policy", "(ignored)");
    ferry_config_destroy(config);
}

/* Field report B19: what is no document is refused, with the place. */
static void test_config_what_is_no_document_is_refused(void **state)
{
    static const char *const rows[][2] = {
        {"{\"log_level\": \"info\",}", "line 1"}, {"", "empty"},
        {"\xef\xbb\xbf{}", "byte-order mark"},    {"{} {}", "follows"},
        {"{'log_level': 'info'}", "line 1"},      {"{\"log_level\": NaN}", "line 1"},
        {"{\n\"log_level\": \"in", "line 2"},     {"{ /* no */ }", "line 1"},
    };

    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_config *config = sample_config();

        assert_status(ferry_config_load_text(config, rows[i][0], "c.json"), FERRY_ERR_CONFIG);
        assert_says("c.json");
        assert_says(rows[i][1]);
        ferry_config_destroy(config);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Field report B19: a directory, a missing file, an empty one. */
static void test_config_what_is_no_file_is_refused(void **state)
{
    struct ferry_config *config = sample_config();
    char folder[] = "/tmp/ferry-config-XXXXXX";
    char path[64];

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/ferry.json", folder);

    assert_status(ferry_config_load_file(config, folder), FERRY_ERR_CONFIG);
    assert_says(folder);
    assert_says("directory");
    assert_status(ferry_config_load_file(config, path), FERRY_ERR_CONFIG);
    assert_says(path);
    assert_says("No such file");
    write_file(path, "");
    assert_status(ferry_config_load_file(config, path), FERRY_ERR_CONFIG);
    assert_says("empty");
    write_file(path, "{\"wait\": \"sleep\"}");
    assert_ok(ferry_config_load_file(config, path));
    assert_value(config, "wait", "sleep");
    assert_int_equal(unlink(path), 0);

    /* A pipe that nobody writes ends at once and counts as empty; nothing waits for a writer. */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_status(ferry_config_load_file(config, path), FERRY_ERR_CONFIG);
    assert_int_equal(unlink(path), 0);
    assert_status(ferry_config_load_file(config, "/dev/zero"), FERRY_ERR_CONFIG);
    assert_says("longer than");
    assert_int_equal(rmdir(folder), 0);
    ferry_config_destroy(config);
}

static void test_config_a_refused_file_changes_nothing(void **state)
{
    struct ferry_config *config = sample_config();

    assert_status(
        ferry_config_load_text(config, "{\"wait\": \"spin\", \"reactor\": \"kqueue\"}", "c"),
        FERRY_ERR_CONFIG);
    assert_says("auto | uring | epoll");
    assert_value(config, "wait", "adaptive");
    assert_int_equal(ferry_config_origin_of(config, "wait"), FERRY_ORIGIN_DEFAULT);
    ferry_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_only_whole_numbers_in_range_are_numbers),
        cmocka_unit_test(test_config_twenty_nines_are_refused_by_name),
        cmocka_unit_test(test_config_only_booleans_are_booleans),
        cmocka_unit_test(test_config_sizes_have_binary_units),
        cmocka_unit_test(test_config_texts_choices_and_lists_are_bounded),
        cmocka_unit_test(test_config_a_list_names_nothing_twice),
        cmocka_unit_test(test_config_unknown_keys_are_named_with_the_nearest),
        cmocka_unit_test(test_config_a_key_of_any_length_is_refused_without_harm),
        cmocka_unit_test(test_config_the_path_syntax_is_another_way_to_nest),
        cmocka_unit_test(test_config_one_file_gives_a_setting_once),
        cmocka_unit_test(test_config_sections_are_objects),
        cmocka_unit_test(test_config_other_transports_may_be_named_but_not_wanted),
        cmocka_unit_test(test_config_published_keys_without_meaning_are_taken_in),
        cmocka_unit_test(test_config_what_is_no_document_is_refused),
        cmocka_unit_test(test_config_what_is_no_file_is_refused),
        cmocka_unit_test(test_config_a_refused_file_changes_nothing),
    };

    return cmocka_run_group_tests_name("config_file", tests, NULL, NULL);
}
