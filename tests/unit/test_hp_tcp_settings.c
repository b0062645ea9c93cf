/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hp_tcp takes for rails, and what it says to the rest: each refusal names the entry.
 */
#include <string.h>

#include "base/error.h"
#include "config/engine_options.h"
#include "test.h"
#include "transport/hp_tcp/options.h"

struct given {
    const char *rails;
    const char *bind;
    const char *lanes;
    const char *slicing;
};

static struct ferry_config *configure(const struct given *given)
{
    static const struct ferry_option_table *const tables[] = {&ferry_engine_option_table,
                                                              &ferry_hp_option_table};
    struct ferry_config *config;

    assert_int_equal(ferry_config_create_with(tables, 2, &config), FERRY_OK);
    assert_int_equal(ferry_config_set(config, "transports.hp_tcp.rail_addresses", given->rails,
                                      FERRY_ORIGIN_API),
                     FERRY_OK);
    if (given->bind != NULL)
        assert_int_equal(ferry_config_set(config, "transports.hp_tcp.bind_address", given->bind,
                                          FERRY_ORIGIN_API),
                         FERRY_OK);
    if (given->lanes != NULL)
        assert_int_equal(ferry_config_set(config, "transports.hp_tcp.connections_per_peer",
                                          given->lanes, FERRY_ORIGIN_API),
                         FERRY_OK);
    if (given->slicing != NULL)
        assert_int_equal(
            ferry_config_set(config, "transports.hp_tcp.slicing", given->slicing, FERRY_ORIGIN_API),
            FERRY_OK);
    return config;
}

static void test_rails_are_ordered_addresses_of_both_families(void **state)
{
    static const struct given givens[] = {
        {"10.0.0.1,10.1.0.1", NULL, NULL, NULL},
        {"10.0.0.1,fd00::1,10.2.0.1,fd00:1::1", "0.0.0.0", NULL, "static"},
        {"10.0.0.1", "10.0.0.1", "1", NULL},
        {"fd00::1", "fd00:0::1", "1", NULL},
        {"127.0.0.1,127.0.0.2", "::", "2", NULL},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(givens); i++) {
        struct ferry_config *config = configure(&givens[i]);
        struct ferry_hp_settings settings;
        size_t at = 0;

        if (ferry_hp_settings_read(config, &settings) != FERRY_OK)
            fail_msg("%s: %s", givens[i].rails, ferry_last_error_text());
        for (uint32_t k = 0; k < settings.rail_count; k++) {
            size_t len = strlen(settings.rails[k]);

            assert_memory_equal(givens[i].rails + at, settings.rails[k], len);
            at += len + 1;
        }
        assert_int_equal(at, strlen(givens[i].rails) + 1);
        ferry_config_destroy(config);
    }
}

static void test_a_wrong_rail_is_refused_by_name(void **state)
{
    static const struct {
        struct given given;
        const char *says;
    } rows[] = {
        {{"10.0.0.1,node7", NULL, NULL, NULL}, "\"node7\" is not a numeric address"},
        {{"10.0.0.1,10.0.0.256", NULL, NULL, NULL}, "\"10.0.0.256\" is not a numeric address"},
        {{"10.0.0.1,0.0.0.0", NULL, NULL, NULL}, "\"0.0.0.0\" is not a numeric address"},
        {{"::", NULL, NULL, NULL}, "\"::\" is not a numeric address"},
        {{"fe80::1", NULL, NULL, NULL}, "\"fe80::1\" is link-local"},
        {{"fe80::1%lo", NULL, NULL, NULL}, "\"fe80::1%lo\" is link-local"},
        {{"::ffff:10.0.0.1", NULL, NULL, NULL}, "write it as IPv4"},
        {{"10.0.0.1,fd00::1,fd00:0:0::1", NULL, NULL, NULL}, "\"fd00:0:0::1\" is there twice"},
        {{"10.0.0.1,10.0.0.2,10.0.0.3", NULL, "2", NULL}, "names 3 rails"},
        {{"10.0.0.1,10.0.0.2", "10.0.0.1", NULL, NULL}, "must be empty or a wildcard"},
        {{"10.0.0.1", "10.0.0.2", NULL, NULL}, "is not the single rail \"10.0.0.1\""},
        {{"10.0.0.1", "node7", NULL, NULL}, "bind_address \"node7\" is not a numeric address"},
        {{"10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6,10.0.0.7,10.0.0.8,10.0.0.9", NULL,
          "9", "static"},
         "takes at most 8 rails"},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        struct ferry_config *config = configure(&rows[i].given);
        struct ferry_hp_settings settings;

        assert_int_equal(ferry_hp_settings_read(config, &settings), FERRY_ERR_CONFIG);
        if (strstr(ferry_last_error_text(), rows[i].says) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", rows[i].given.rails, ferry_last_error_text(),
                     rows[i].says);
        ferry_config_destroy(config);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rails_are_ordered_addresses_of_both_families),
        cmocka_unit_test(test_a_wrong_rail_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
