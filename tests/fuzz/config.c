/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz the configuration: the first byte chooses what the rest is, a file or a list of name=value
 * lines as for --set. Whatever is refused changes nothing, with a text; whatever is accepted can be
 * shown and given back.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"
#include "config/engine_options.h"
#include "config/option.h"

#define TEXT_MAX 4096

static const char *const choices[] = {"pull", "static", NULL};

static const struct ferry_option options[] = {
    {.name = "enable", .type = FERRY_OPTION_BOOL, .default_value = "true"},
    {.name = "rails", .type = FERRY_OPTION_LIST, .max = 3},
    {.name = "workers", .type = FERRY_OPTION_AUTO, .default_value = "auto", .min = 1, .max = 256},
    {.name = "bytes", .type = FERRY_OPTION_SIZE, .default_value = "1GiB", .max = UINT64_MAX},
    {.name = "slicing", .type = FERRY_OPTION_CHOICE, .default_value = "pull", .choices = choices},
    {.name = "token", .type = FERRY_OPTION_SECRET, .max = 16},
};

static const struct ferry_option_table table = {
    .component = "transports.hp_tcp",
    .options = options,
    .count = FERRY_ARRAY_LEN(options),
};

static struct ferry_config *create(void)
{
    const struct ferry_option_table *const tables[] = {&ferry_engine_option_table, &table};
    struct ferry_config *config;

    FUZZ_REQUIRE(ferry_config_create_with(tables, FERRY_ARRAY_LEN(tables), &config) == FERRY_OK);
    return config;
}

static void is_default(void *arg, const struct ferry_config_entry *entry)
{
    FUZZ_REQUIRE(entry->origin == FERRY_ORIGIN_DEFAULT);
}

static void give_back(void *arg, const struct ferry_config_entry *entry)
{
    struct ferry_config *again = arg;
    char value[TEXT_MAX];
    enum ferry_status status;

    if (strcmp(entry->type, "secret") == 0)
        return;
    FUZZ_REQUIRE(ferry_config_set(again, entry->name, entry->value, FERRY_ORIGIN_API) == FERRY_OK);
    status = ferry_config_get(again, entry->name, value, sizeof(value));
    FUZZ_REQUIRE(status == FERRY_OK);
    FUZZ_REQUIRE(strcmp(value, entry->value) == 0);
}

static void check(struct ferry_config *config, enum ferry_status status)
{
    if (status != FERRY_OK) {
        FUZZ_REQUIRE(status == FERRY_ERR_CONFIG);
        FUZZ_REQUIRE(ferry_last_error_text()[0] != '\0');
        ferry_config_each(config, is_default, NULL);
        return;
    }

    struct ferry_config *again = create();
    struct ferry_config *copy;

    FUZZ_REQUIRE(ferry_config_copy(config, &copy) == FERRY_OK);
    ferry_config_each(copy, give_back, again);
    ferry_config_destroy(copy);
    ferry_config_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_MAX];

    if (size == 0 || size > sizeof(text))
        return 0;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';

    struct ferry_config *config = create();

    if (data[0] == '{') {
        /* A file is its own first byte: corpora stay readable. */
        memmove(text + 1, text, size - 1);
        text[0] = '{';
        text[size < sizeof(text) ? size : size - 1] = '\0';
        check(config, ferry_config_load_text(config, text, "fuzz"));
    } else {
        char *value = strchr(text, '=');

        if (value != NULL) {
            *value++ = '\0';
            check(config, ferry_config_set(config, text, value, FERRY_ORIGIN_COMMAND_LINE));
        }
    }
    ferry_config_destroy(config);
    return 0;
}
