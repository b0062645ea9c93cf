/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Precedence, copies, the list of settings, and the tables themselves.
 */
#include "test_config_support.h"

#include <stdlib.h>
#include <unistd.h>

#define NAME     "transports.hp_tcp.worker_count"
#define VARIABLE "FERRY_TRANSPORTS_HP_TCP_WORKER_COUNT"

static void apply(struct ferry_config *config, enum ferry_config_origin origin)
{
    switch (origin) {
    case FERRY_ORIGIN_DEFAULT:
        break;
    case FERRY_ORIGIN_FILE:
        assert_ok(ferry_config_load_text(config, "{\"" NAME "\": 11}", "f.json"));
        break;
    case FERRY_ORIGIN_ENVIRONMENT:
        assert_int_equal(setenv(VARIABLE, "12", 1), 0);
        assert_ok(ferry_config_load_environment(config));
        assert_int_equal(unsetenv(VARIABLE), 0);
        break;
    case FERRY_ORIGIN_COMMAND_LINE:
        assert_ok(ferry_config_set(config, NAME, "13", origin));
        break;
    case FERRY_ORIGIN_API:
        assert_ok(ferry_config_set(config, NAME, "14", origin));
        break;
    }
}

/* Field report B19: the highest origin wins, in each of the 120 orders of calls, whole or cut. */
static void test_config_precedence_does_not_depend_on_the_order_of_calls(void **state)
{
    static const char *const wanted[] = {"auto", "11", "12", "13", "14"};
    unsigned orders = 0;

    for (unsigned code = 0; code < 5 * 5 * 5 * 5 * 5; code++) {
        unsigned digits[5], seen = 0;

        for (unsigned i = 0, rest = code; i < 5; i++, rest /= 5) {
            digits[i] = rest % 5;
            seen |= 1u << digits[i];
        }
        if (seen != 0x1f)
            continue;
        orders++;
        for (unsigned len = 0; len <= 5; len++) {
            struct ferry_config *config = sample_config();
            unsigned highest = 0;

            for (unsigned i = 0; i < len; i++) {
                apply(config, (enum ferry_config_origin)digits[i]);
                highest = digits[i] > highest ? digits[i] : highest;
            }
            assert_value(config, NAME, wanted[highest]);
            assert_int_equal(ferry_config_origin_of(config, NAME), highest);
            ferry_config_destroy(config);
        }
    }
    assert_int_equal(orders, 120);
}

static void test_config_a_value_that_loses_is_checked_all_the_same(void **state)
{
    struct ferry_config *config = sample_config();

    assert_ok(ferry_config_set(config, NAME, "3", FERRY_ORIGIN_API));
    assert_status(ferry_config_load_text(config, "{\"" NAME "\": 0}", "f.json"), FERRY_ERR_CONFIG);
    assert_value(config, NAME, "3");
    ferry_config_destroy(config);
}

static void test_config_of_two_files_the_later_wins(void **state)
{
    struct ferry_config *config = sample_config();

    assert_ok(ferry_config_load_text(config, "{\"wait\": \"spin\", \"reactor\": \"epoll\"}", "a"));
    assert_ok(ferry_config_load_text(config, "{\"wait\": \"sleep\"}", "b"));
    assert_value(config, "wait", "sleep");
    assert_value(config, "reactor", "epoll");
    ferry_config_destroy(config);
}

static void test_config_set_is_strict(void **state)
{
    struct ferry_config *config = sample_config();

    assert_status(ferry_config_set(config, NAME, "8x", FERRY_ORIGIN_API), FERRY_ERR_CONFIG);
    assert_says(NAME);
    assert_says("\"8x\"");
    assert_says("auto | 1..256");
    assert_status(ferry_config_set(config, "worker_cout", "8", FERRY_ORIGIN_API), FERRY_ERR_CONFIG);
    assert_says("worker_cout");
    assert_says(NAME);
    assert_status(ferry_config_set(config, NAME, "8", FERRY_ORIGIN_FILE), FERRY_ERR_INVALID);
    assert_status(ferry_config_set(config, NAME, "8", FERRY_ORIGIN_DEFAULT), FERRY_ERR_INVALID);
    assert_status(ferry_config_set(config, NULL, "8", FERRY_ORIGIN_API), FERRY_ERR_INVALID);
    assert_status(ferry_config_set(config, NAME, NULL, FERRY_ORIGIN_API), FERRY_ERR_INVALID);
    assert_status(ferry_config_set(config, "local_segment_name", "a\xff", FERRY_ORIGIN_API),
                  FERRY_ERR_CONFIG);
    assert_value(config, NAME, "auto");
    assert_ok(ferry_config_set(config, "transports/hp_tcp/worker_count", "8", FERRY_ORIGIN_API));
    assert_value(config, NAME, "8");
    assert_ok(ferry_config_set(config, "transports.rdma.enable", "false", FERRY_ORIGIN_API));
    assert_status(ferry_config_set(config, "transports.rdma.enable", "true", FERRY_ORIGIN_API),
                  FERRY_ERR_CONFIG);
    assert_says("rdma");
    assert_ok(ferry_config_set(config, "metrics.http_port", "9100", FERRY_ORIGIN_COMMAND_LINE));
    ferry_config_destroy(config);
}

static void test_config_a_copy_is_the_same_and_stands_alone(void **state)
{
    struct ferry_config *config = sample_config();
    struct ferry_config *copy;

    assert_ok(ferry_config_load_text(
        config, "{\"transports/hp_tcp/rail_addresses\": [\"a\", \"b\"], \"wait\": \"spin\"}", "f"));
    assert_ok(ferry_config_set(config, "transports.hp_tcp.token", "secret", FERRY_ORIGIN_API));
    assert_ok(ferry_config_copy(config, &copy));
    assert_ok(ferry_config_set(config, "wait", "sleep", FERRY_ORIGIN_API));
    ferry_config_destroy(config);

    assert_value(copy, "wait", "spin");
    assert_int_equal(ferry_config_origin_of(copy, "wait"), FERRY_ORIGIN_FILE);
    assert_string_equal(ferry_config_list_item(copy, "transports.hp_tcp.rail_addresses", 1), "b");
    assert_string_equal(ferry_config_string(copy, "transports.hp_tcp.token"), "secret");
    ferry_config_destroy(copy);
    ferry_config_destroy(NULL);
}

static void test_config_get_says_when_the_text_was_cut(void **state)
{
    struct ferry_config *config = sample_config();
    char buf[5];

    assert_status(ferry_config_get(config, "wait", buf, sizeof(buf)), FERRY_ERR_TOO_LARGE);
    assert_string_equal(buf, "adap");
    assert_status(ferry_config_get(config, "waiting", buf, sizeof(buf)), FERRY_ERR_NOT_FOUND);
    assert_says("wait");
    assert_string_equal(buf, "");
    ferry_config_destroy(config);
}

struct listing {
    struct ferry_config *config;
    unsigned count;
    bool found;
};

static void look(void *arg, const struct ferry_config_entry *entry)
{
    struct listing *listing = arg;

    listing->count++;
    assert_int_equal(entry->struct_size, sizeof(*entry));
    assert_true(entry->type[0] != '\0');
    assert_true(entry->expected[0] != '\0');
    assert_memory_equal(entry->environment, "FERRY_", 6);
    assert_non_null(entry->unit);
    assert_non_null(entry->origin_detail);

    /* What is shown can be given back. */
    if (strcmp(entry->type, "secret") != 0)
        assert_ok(ferry_config_set(listing->config, entry->name, entry->value, FERRY_ORIGIN_API));
    if (strcmp(entry->name, NAME) != 0)
        return;
    listing->found = true;
    assert_string_equal(entry->value, "11");
    assert_string_equal(entry->default_value, "auto");
    assert_string_equal(entry->environment, VARIABLE);
    assert_string_equal(entry->help, "threads");
    assert_int_equal(entry->origin, FERRY_ORIGIN_FILE);
    assert_string_equal(entry->origin_detail, "f.json");
}

static void test_config_each_lists_everything_with_its_origin(void **state)
{
    struct ferry_config *config = sample_config();
    struct listing listing = {.config = sample_config()};

    apply(config, FERRY_ORIGIN_FILE);
    ferry_config_each(config, look, &listing);
    assert_true(listing.found);
    assert_int_equal(listing.count, ferry_engine_option_table.count + sample_table.count);
    ferry_config_destroy(config);
    ferry_config_destroy(listing.config);
}

/* A setting that nobody explains is a setting that nobody can use. */
static void test_config_every_setting_of_the_engine_has_help(void **state)
{
    for (size_t i = 0; i < ferry_engine_option_table.count; i++) {
        const struct ferry_option *option = &ferry_engine_option_table.options[i];

        assert_non_null(option->help);
        assert_true(strlen(option->help) > 10);
        assert_int_not_equal(option->help[strlen(option->help) - 1], '.');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config_precedence_does_not_depend_on_the_order_of_calls),
        cmocka_unit_test(test_config_a_value_that_loses_is_checked_all_the_same),
        cmocka_unit_test(test_config_of_two_files_the_later_wins),
        cmocka_unit_test(test_config_set_is_strict),
        cmocka_unit_test(test_config_a_copy_is_the_same_and_stands_alone),
        cmocka_unit_test(test_config_get_says_when_the_text_was_cut),
        cmocka_unit_test(test_config_each_lists_everything_with_its_origin),
        cmocka_unit_test(test_config_every_setting_of_the_engine_has_help),
    };

    return cmocka_run_group_tests_name("config_settings", tests, NULL, NULL);
}
