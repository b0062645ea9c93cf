/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from the environment. Each test starts without a variable of ours; the program has one
 * thread, so changing the environment is safe.
 */
#include "test_config_support.h"

#include <stdlib.h>
#include <unistd.h>

extern char **environ;

static int forget_variables(void **state)
{
    for (char **entry = environ; *entry != NULL;) {
        char name[1024];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (strncmp(name, "FERRY_", 6) == 0 || strncmp(name, "MC_", 3) == 0) {
            unsetenv(name);
            entry = environ;
        } else {
            entry++;
        }
    }
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Returns the configuration after a load that must succeed. */
static struct ferry_config *loaded(void)
{
    struct ferry_config *config = sample_config();

    assert_ok(ferry_config_load_environment(config));
    return config;
}

static void assert_refused(const char *name, const char *value)
{
    struct ferry_config *config = sample_config();

    set(name, value);
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says(name);
    assert_says("expected");
    if (strstr(name, "TOKEN") == NULL)
        assert_says(value);
    ferry_config_destroy(config);
    assert_int_equal(unsetenv(name), 0);
}

static void test_config_variables_set_settings(void **state)
{
    set("FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT", "7");
    set("FERRY_TRANSPORTS_HP_TCP_ENABLE", "false");
    set("FERRY_TRANSPORTS_HP_TCP_MAX_BYTES", "2GiB");
    set("FERRY_TRANSPORTS_HP_TCP_RAIL_ADDRESSES", "10.0.0.1,10.0.1.1");
    set("FERRY_LOG_LEVEL", "fatal");
    set("FERRY_LOCAL_SEGMENT_NAME", "");

    struct ferry_config *config = loaded();

    assert_int_equal(ferry_config_u64(config, "transports.hp_tcp.worker_count"), 7);
    assert_false(ferry_config_bool(config, "transports.hp_tcp.enable"));
    assert_int_equal(ferry_config_u64(config, "transports.hp_tcp.max_bytes"), UINT64_C(2) << 30);
    assert_int_equal(ferry_config_list_len(config, "transports.hp_tcp.rail_addresses"), 2);
    assert_string_equal(ferry_config_list_item(config, "transports.hp_tcp.rail_addresses", 1),
                        "10.0.1.1");
    assert_string_equal(ferry_config_string(config, "log_level"), "error");
    assert_int_equal(ferry_config_origin_of(config, "local_segment_name"),
                     FERRY_ORIGIN_ENVIRONMENT);
    assert_int_equal(ferry_config_origin_of(config, "wait"), FERRY_ORIGIN_DEFAULT);
    ferry_config_destroy(config);
}

struct visit {
    struct ferry_config *config;
    unsigned numbers, booleans;
};

static void try_junk(void *arg, const struct ferry_config_entry *entry)
{
    static const char *const numbers[] = {
        "", "abc", " 8", "8 ", "8x", "-1", "+8", "0x10", "08", "1e1", "99999999999999999999"};
    static const char *const booleans[] = {"", "False", "TRUE", "0", "1", "off", "maybe", " true"};
    struct visit *visit = arg;

    if (strstr("uint auto or uint size", entry->type) != NULL) {
        visit->numbers++;
        for (size_t i = 0; i < FERRY_ARRAY_LEN(numbers); i++)
            assert_refused(entry->environment, numbers[i]);
    } else if (strcmp(entry->type, "bool") == 0) {
        visit->booleans++;
        for (size_t i = 0; i < FERRY_ARRAY_LEN(booleans); i++)
            assert_refused(entry->environment, booleans[i]);
    }
}

/* Field report B19: junk in a variable became 0, or the largest number. */
static void test_config_junk_in_any_numeric_or_boolean_variable_is_refused(void **state)
{
    struct visit visit = {.config = sample_config()};

    ferry_config_each(visit.config, try_junk, &visit);
    assert_true(visit.numbers > 10);
    assert_true(visit.booleans > 1);
    ferry_config_destroy(visit.config);
}

static void test_config_an_unknown_variable_is_named(void **state)
{
    struct ferry_config *config = sample_config();

    set("FERRY_TRANSPORTS_HP_TCP_WORKER_COUT", "4");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says("FERRY_TRANSPORTS_HP_TCP_WORKER_COUT");
    assert_says("nearest known one is FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT");
    assert_int_equal(unsetenv("FERRY_TRANSPORTS_HP_TCP_WORKER_COUT"), 0);

    /* The programs of the test suite have variables of their own. */
    set("FERRY_TEST_SEED", "4");
    assert_ok(ferry_config_load_environment(config));

    char name[600] = "FERRY_";

    memset(name + 6, 'A', sizeof(name) - 7);
    set(name, "1");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    ferry_config_destroy(config);
}

static void test_config_a_transport_that_is_not_built_may_be_off(void **state)
{
    struct ferry_config *config = sample_config();

    set("FERRY_TRANSPORTS_RDMA_ENABLE", "false");
    set("FERRY_TRANSPORTS_IO_URING_ENABLE", "false");
    assert_ok(ferry_config_load_environment(config));
    assert_refused("FERRY_TRANSPORTS_RDMA_ENABLE", "true");
    assert_refused("FERRY_TRANSPORTS_RDMA_ENABLE", "False");
    set("FERRY_TRANSPORTS_RDMA_NUM_LANES", "4");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    ferry_config_destroy(config);
}

static void test_config_a_refused_environment_changes_nothing(void **state)
{
    struct ferry_config *config = sample_config();

    set("MC_TENT_CONF", "{\"wait\": \"spin\"}");
    set("FERRY_LOG_LEVEL", "info");
    set("FERRY_RPC_SERVER_PORT", "65536");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says("FERRY_RPC_SERVER_PORT");
    assert_value(config, "wait", "adaptive");
    assert_value(config, "log_level", "warn");
    ferry_config_destroy(config);
}

static void write_temporary(char *path, const char *text)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void test_config_the_published_variable_is_a_file_or_the_text(void **state)
{
    char path[] = "/tmp/ferry-config-XXXXXX";
    struct ferry_config *config;

    set("MC_TENT_CONF", " \n{\"transports\": {\"hp_tcp\": {\"worker_count\": 5}}}");
    config = loaded();
    assert_value(config, "transports.hp_tcp.worker_count", "5");
    assert_int_equal(ferry_config_origin_of(config, "transports.hp_tcp.worker_count"),
                     FERRY_ORIGIN_FILE);
    ferry_config_destroy(config);

    write_temporary(path, "{\"transports\": {\"hp_tcp\": {\"worker_count\": 6}}}");
    set("MC_TENT_CONF", path);
    config = loaded();
    assert_value(config, "transports.hp_tcp.worker_count", "6");
    ferry_config_destroy(config);

    set("MC_TENT_CONF", "");
    config = loaded();
    assert_value(config, "transports.hp_tcp.worker_count", "auto");
    assert_int_equal(unlink(path), 0);

    set("MC_TENT_CONF", path);
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says(path);
    ferry_config_destroy(config);
}

static void test_config_our_file_variable_goes_before_the_published_one(void **state)
{
    char path[] = "/tmp/ferry-config-XXXXXX";

    write_temporary(path, "{\"wait\": \"sleep\"}");
    set("FERRY_CONFIG", path);
    set("MC_TENT_CONF", "{\"wait\": \"spin\", \"verbose\": true}");

    struct ferry_config *config = loaded();

    assert_value(config, "wait", "sleep");
    assert_value(config, "verbose", "false");
    assert_int_equal(unlink(path), 0);
    assert_refused("FERRY_CONFIG", "");
    ferry_config_destroy(config);
}

static const struct ferry_option tcp_options[] = {
    {.name = "enable", .type = FERRY_OPTION_BOOL, .default_value = "true"},
};

static const struct ferry_option_table tcp_table = {
    .component = "transports.tcp", .options = tcp_options, .count = 1};

/* Field report B19: the switch left two exclusive transports on. */
static void test_config_forcing_tcp_leaves_exactly_one_transport(void **state)
{
    const struct ferry_option_table *const tables[] = {&ferry_engine_option_table, &sample_table,
                                                       &tcp_table};
    struct ferry_config *config = sample_config();

    /* Without such a transport in the build there is nothing to force. */
    set("MC_FORCE_TCP", "1");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says("MC_FORCE_TCP");
    assert_says("no transport tcp");
    assert_refused("MC_FORCE_TCP", "maybe");
    set("MC_FORCE_TCP", "0");
    assert_ok(ferry_config_load_environment(config));
    assert_value(config, "force_transport", "");
    ferry_config_destroy(config);

    set("MC_FORCE_TCP", "true");
    assert_ok(ferry_config_create_with(tables, FERRY_ARRAY_LEN(tables), &config));
    assert_ok(ferry_config_load_text(
        config, "{\"transports\": {\"tcp\": {\"enable\": true}, \"hp_tcp\": {\"enable\": true}}}",
        "both"));
    assert_ok(ferry_config_load_environment(config));
    assert_value(config, "force_transport", "tcp");
    set("FERRY_FORCE_TRANSPORT", "hp_tcp");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says("force_transport");
    ferry_config_destroy(config);
}

static void test_config_a_secret_is_in_no_text(void **state)
{
    struct ferry_config *config = sample_config();

    set("FERRY_TRANSPORTS_HP_TCP_TOKEN", "opensesame");
    assert_ok(ferry_config_load_environment(config));
    assert_string_equal(ferry_config_string(config, "transports.hp_tcp.token"), "opensesame");
    assert_value(config, "transports.hp_tcp.token", "(set)");

    set("FERRY_TRANSPORTS_HP_TCP_TOKEN", "opensesameopensesame");
    assert_status(ferry_config_load_environment(config), FERRY_ERR_CONFIG);
    assert_says("FERRY_TRANSPORTS_HP_TCP_TOKEN");
    assert_null(strstr(ferry_last_error_text(), "sesame"));
    ferry_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_config_variables_set_settings, forget_variables),
        cmocka_unit_test_setup(test_config_junk_in_any_numeric_or_boolean_variable_is_refused,
                               forget_variables),
        cmocka_unit_test_setup(test_config_an_unknown_variable_is_named, forget_variables),
        cmocka_unit_test_setup(test_config_a_transport_that_is_not_built_may_be_off,
                               forget_variables),
        cmocka_unit_test_setup(test_config_a_refused_environment_changes_nothing, forget_variables),
        cmocka_unit_test_setup(test_config_the_published_variable_is_a_file_or_the_text,
                               forget_variables),
        cmocka_unit_test_setup(test_config_our_file_variable_goes_before_the_published_one,
                               forget_variables),
        cmocka_unit_test_setup(test_config_forcing_tcp_leaves_exactly_one_transport,
                               forget_variables),
        cmocka_unit_test_setup(test_config_a_secret_is_in_no_text, forget_variables),
    };

    return cmocka_run_group_tests_name("config_environment", tests, NULL, NULL);
}
