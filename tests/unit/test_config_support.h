/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the configuration share: the engine's table beside one of a transport that has
 * an option of every type, and looks at values and error texts. Header only; one thread.
 */
#ifndef FERRY_TESTS_UNIT_CONFIG_SUPPORT_H
#define FERRY_TESTS_UNIT_CONFIG_SUPPORT_H

#include "test.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "config/engine_options.h"
#include "config/option.h"

static const char *const sample_choices[] = {"pull", "static", NULL};
static const char *const sample_aliases[] = {"dealt", "static", NULL};

static const struct ferry_option sample_options[] = {
    {.name = "enable", .type = FERRY_OPTION_BOOL, .default_value = "true"},
    {.name = "bind_address", .type = FERRY_OPTION_STRING, .max = 8},
    {.name = "rail_addresses", .type = FERRY_OPTION_LIST, .max = 3},
    {.name = "port", .type = FERRY_OPTION_UINT, .default_value = "0", .max = 65535},
    {.name = "worker_count",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = 256,
     .help = "threads"},
    {.name = "connections_per_peer",
     .type = FERRY_OPTION_UINT,
     .default_value = "4",
     .min = 1,
     .max = 64},
    {.name = "max_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1GiB",
     .min = 4096,
     .max = UINT64_MAX,
     .unit = "bytes"},
    {.name = "slicing",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "pull",
     .choices = sample_choices,
     .aliases = sample_aliases},
    {.name = "token", .type = FERRY_OPTION_SECRET, .max = 16},
    {.name = "chunk_size", .type = FERRY_OPTION_PLACEHOLDER},
};

static const struct ferry_option_table sample_table = {
    .component = "transports.hp_tcp",
    .options = sample_options,
    .count = FERRY_ARRAY_LEN(sample_options),
};

static inline struct ferry_config *sample_config(void)
{
    const struct ferry_option_table *const tables[] = {&ferry_engine_option_table, &sample_table};
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create_with(tables, FERRY_ARRAY_LEN(tables), &config));
    return config;
}

static inline void assert_says(const char *part)
{
    if (strstr(ferry_last_error_text(), part) == NULL)
        fail_msg("the text \"%s\" does not say \"%s\"", ferry_last_error_text(), part);
}

static inline void assert_value(const struct ferry_config *config, const char *name,
                                const char *wanted)
{
    char value[256];

    assert_ok(ferry_config_get(config, name, value, sizeof(value)));
    assert_string_equal(value, wanted);
}

/* One setting of the sample transport in a file: refused, and the text has name, value and more. */
static inline void assert_file_refuses(const char *key, const char *json, const char *found)
{
    struct ferry_config *config = sample_config();
    char text[512];

    snprintf(text, sizeof(text), "{\"transports\": {\"hp_tcp\": {\"%s\": %s}}}", key, json);
    assert_status(ferry_config_load_text(config, text, "ferry.json"), FERRY_ERR_CONFIG);
    assert_says("ferry.json");
    assert_says(key);
    assert_says(found);
    assert_says("expected");
    ferry_config_destroy(config);
}

/* What the same key gives when it is accepted. */
static inline void assert_file_gives(const char *key, const char *json, const char *wanted)
{
    struct ferry_config *config = sample_config();
    char text[512];
    char name[128];

    snprintf(text, sizeof(text), "{\"transports\": {\"hp_tcp\": {\"%s\": %s}}}", key, json);
    snprintf(name, sizeof(name), "transports.hp_tcp.%s", key);
    assert_ok(ferry_config_load_text(config, text, "ferry.json"));
    assert_value(config, name, wanted);
    assert_int_equal(ferry_config_origin_of(config, name), FERRY_ORIGIN_FILE);
    ferry_config_destroy(config);
}

#endif
