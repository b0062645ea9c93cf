/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration: made from option tables, filled from five origins, read by name. Precedence is
 * by origin, never by the order of calls. One thread at a time per configuration; getters read
 * only.
 */
#include <ferry/config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "config/setting.h"

static char *join_name(const char *component, const char *name)
{
    char *joined;

    if (asprintf(&joined, "%s%s%s", component, component[0] != '\0' ? "." : "", name) < 0)
        return NULL;
    FERRY_ASSERT(strlen(joined) <= FERRY_CONFIG_NAME_MAX);
    return joined;
}

static char *environment_name(const char *name)
{
    char *variable;

    if (asprintf(&variable, "FERRY_%s", name) < 0)
        return NULL;
    for (char *at = variable; *at != '\0'; at++) {
        if (*at >= 'a' && *at <= 'z') {
            *at = (char)(*at - 'a' + 'A');
        } else if (*at == '.') {
            *at = '_';
        }
    }
    return variable;
}

/* A table that breaks these is a defect of its component. */
static void check_option(const struct ferry_option *option)
{
    FERRY_ASSERT(option->name != NULL && option->name[0] != '\0');
    switch (option->type) {
    case FERRY_OPTION_CHOICE:
        FERRY_ASSERT(option->choices != NULL);
        break;
    case FERRY_OPTION_AUTO: /* 0 stands for auto */
        FERRY_ASSERT(option->min > 0);
        break;
    case FERRY_OPTION_STRING:
    case FERRY_OPTION_LIST:
    case FERRY_OPTION_SECRET:
        FERRY_ASSERT(option->max > 0);
        break;
    default:
        break;
    }
}

static enum ferry_status setting_init(struct ferry_setting *setting, const char *component,
                                      const struct ferry_option *option)
{
    check_option(option);
    setting->option = option;
    setting->name = join_name(component, option->name);
    if (setting->name != NULL)
        setting->environment = environment_name(setting->name);
    if (setting->environment == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");

    const char *text = option->default_value != NULL ? option->default_value : "";
    enum ferry_status status = ferry_value_from_text(option, setting->name, text, &setting->value);

    FERRY_ASSERT(status == FERRY_OK || status == FERRY_ERR_NO_MEMORY);
    if (status != FERRY_OK)
        return status;
    setting->default_text = strdup(setting->value.text);
    return setting->default_text != NULL
               ? FERRY_OK
               : ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
}

/* Two settings with one name or one variable could not be told apart. */
static void check_unique(const struct ferry_config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        for (size_t j = 0; j < i; j++) {
            FERRY_ASSERT(strcmp(config->settings[i].name, config->settings[j].name) != 0);
            FERRY_ASSERT(strcmp(config->settings[i].environment, config->settings[j].environment) !=
                         0);
        }
    }
}

static struct ferry_config *config_alloc(size_t count)
{
    struct ferry_config *config = calloc(1, sizeof(*config));

    if (config == NULL)
        return NULL;
    config->settings = calloc(count > 0 ? count : 1, sizeof(*config->settings));
    if (config->settings == NULL) {
        free(config);
        return NULL;
    }
    config->count = count;
    return config;
}

enum ferry_status ferry_config_create_with(const struct ferry_option_table *const *tables,
                                           size_t count, struct ferry_config **config_out)
{
    size_t total = 0, used = 0;

    for (size_t i = 0; i < count; i++)
        total += tables[i]->count;

    struct ferry_config *config = config_alloc(total);

    if (config == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < tables[i]->count; j++) {
            enum ferry_status status = setting_init(&config->settings[used++], tables[i]->component,
                                                    &tables[i]->options[j]);

            if (status != FERRY_OK) {
                ferry_config_destroy(config);
                return status;
            }
        }
    }
    check_unique(config);
    *config_out = config;
    return FERRY_OK;
}

void ferry_config_destroy(struct ferry_config *config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < config->count; i++) {
        struct ferry_setting *setting = &config->settings[i];

        ferry_value_fini(&setting->value);
        free(setting->name);
        free(setting->environment);
        free(setting->default_text);
        free(setting->origin_detail);
    }
    free(config->settings);
    free(config);
}

static enum ferry_status setting_copy(const struct ferry_setting *setting,
                                      struct ferry_setting *copy)
{
    copy->option = setting->option;
    copy->origin = setting->origin;
    copy->name = strdup(setting->name);
    copy->environment = strdup(setting->environment);
    copy->default_text = strdup(setting->default_text);
    if (setting->origin_detail != NULL)
        copy->origin_detail = strdup(setting->origin_detail);
    if (copy->name == NULL || copy->environment == NULL || copy->default_text == NULL ||
        (setting->origin_detail != NULL && copy->origin_detail == NULL))
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
    return ferry_value_copy(&setting->value, &copy->value);
}

enum ferry_status ferry_config_copy(const struct ferry_config *config,
                                    struct ferry_config **copy_out)
{
    struct ferry_config *copy = config_alloc(config->count);

    if (copy == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");
    for (size_t i = 0; i < config->count; i++) {
        enum ferry_status status = setting_copy(&config->settings[i], &copy->settings[i]);

        if (status != FERRY_OK) {
            ferry_config_destroy(copy);
            return status;
        }
    }
    *copy_out = copy;
    return FERRY_OK;
}

enum ferry_status ferry_config_load_file(struct ferry_config *config, const char *path)
{
    FERRY_CLEANUP(ferry_stage_fini) struct ferry_stage stage = {0};
    enum ferry_status status = ferry_stage_init(&stage, config, FERRY_ORIGIN_FILE, path);

    if (status == FERRY_OK)
        status = ferry_stage_file(&stage, path);
    if (status == FERRY_OK)
        ferry_stage_commit(&stage);
    return status;
}

enum ferry_status ferry_config_load_text(struct ferry_config *config, const char *json,
                                         const char *name)
{
    FERRY_CLEANUP(ferry_stage_fini) struct ferry_stage stage = {0};
    enum ferry_status status = ferry_stage_init(&stage, config, FERRY_ORIGIN_FILE, name);

    if (status == FERRY_OK)
        status = ferry_stage_text(&stage, json, strlen(json));
    if (status == FERRY_OK)
        ferry_stage_commit(&stage);
    return status;
}

/* Names that no setting has: some are accepted all the same, as in a file. */
static enum ferry_status set_unlisted(const struct ferry_config *config, const char *name,
                                      const char *value)
{
    size_t unbuilt_len = ferry_config_unbuilt_len(config, name);

    if (ferry_config_below_placeholder(config, name))
        return FERRY_OK;
    if (unbuilt_len == 0)
        return ferry_config_fail_unknown(config, name, name);
    if (strcmp(name + unbuilt_len, ".enable") == 0 && strcmp(value, "false") == 0)
        return FERRY_OK;
    return ferry_config_fail_unbuilt(name, name);
}

enum ferry_status ferry_config_set(struct ferry_config *config, const char *name, const char *value,
                                   enum ferry_config_origin origin)
{
    char normal[FERRY_CONFIG_NAME_MAX + 1];

    if (config == NULL || name == NULL || value == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "configuration: a name or a value is NULL");
    if (origin != FERRY_ORIGIN_API && origin != FERRY_ORIGIN_COMMAND_LINE) {
        return ferry_fail(FERRY_ERR_INVALID, "%.128s: values can be set as API or command line",
                          name);
    }
    if (!ferry_config_normalize(name, normal))
        return ferry_config_fail_unknown(config, name, name);

    const struct ferry_setting *setting = ferry_config_find(config, normal);

    if (setting == NULL)
        return set_unlisted(config, normal, value);

    FERRY_CLEANUP(ferry_stage_fini) struct ferry_stage stage = {0};
    struct ferry_value parsed;
    enum ferry_status status = ferry_value_from_text(setting->option, normal, value, &parsed);

    if (status != FERRY_OK)
        return status;
    status = ferry_stage_init(&stage, config, origin, "");
    if (status != FERRY_OK) {
        ferry_value_fini(&parsed);
        return status;
    }
    status = ferry_stage_put(&stage, setting, &parsed, "");
    if (status == FERRY_OK)
        ferry_stage_commit(&stage);
    return status;
}

/* What may be shown of a value. */
static const char *shown(const struct ferry_setting *setting, const char *text)
{
    switch (setting->option->type) {
    case FERRY_OPTION_SECRET:
        return text[0] != '\0' ? "(set)" : "(not set)";
    case FERRY_OPTION_PLACEHOLDER:
        return "(ignored)";
    default:
        return text;
    }
}

void ferry_config_each(const struct ferry_config *config, ferry_config_each_fn *fn, void *arg)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct ferry_setting *setting = &config->settings[i];
        const struct ferry_option *option = setting->option;
        char expected[FERRY_CONFIG_EXPECTED_SIZE];

        ferry_option_expected(option, expected);

        struct ferry_config_entry entry = {
            .struct_size = sizeof(entry),
            .name = setting->name,
            .type = ferry_option_type_name(option->type),
            .unit = option->unit != NULL ? option->unit : "",
            .value = shown(setting, setting->value.text),
            .default_value = shown(setting, setting->default_text),
            .expected = expected,
            .help = option->help != NULL ? option->help : "",
            .environment = setting->environment,
            .origin = setting->origin,
            .origin_detail = setting->origin_detail != NULL ? setting->origin_detail : "",
        };

        fn(arg, &entry);
    }
}

enum ferry_status ferry_config_get(const struct ferry_config *config, const char *name, char *buf,
                                   size_t buf_len)
{
    char normal[FERRY_CONFIG_NAME_MAX + 1];
    const struct ferry_setting *setting = NULL;

    buf[0] = '\0';
    if (ferry_config_normalize(name, normal))
        setting = ferry_config_find(config, normal);
    if (setting == NULL) {
        return ferry_fail(FERRY_ERR_NOT_FOUND, "%.128s: no such setting; the nearest is %s", name,
                          ferry_config_nearest(config, name, false));
    }

    const char *text = shown(setting, setting->value.text);
    int len = snprintf(buf, buf_len, "%s", text);

    if (len < 0 || (size_t)len >= buf_len) {
        return ferry_fail(FERRY_ERR_TOO_LARGE, "%s: %zu bytes of text do not fit into %zu",
                          setting->name, strlen(text) + 1, buf_len);
    }
    return FERRY_OK;
}

/* Asking for what no table has is a defect of the caller, found by the first test that runs it. */
static const struct ferry_setting *must_find(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = ferry_config_find(config, name);

    FERRY_ASSERT(setting != NULL);
    return setting;
}

bool ferry_config_bool(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = must_find(config, name);

    FERRY_ASSERT(setting->option->type == FERRY_OPTION_BOOL);
    return setting->value.number != 0;
}

uint64_t ferry_config_u64(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = must_find(config, name);
    enum ferry_option_type type = setting->option->type;

    FERRY_ASSERT(type == FERRY_OPTION_UINT || type == FERRY_OPTION_SIZE ||
                 type == FERRY_OPTION_AUTO);
    return setting->value.number;
}

const char *ferry_config_string(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = must_find(config, name);
    enum ferry_option_type type = setting->option->type;

    FERRY_ASSERT(type == FERRY_OPTION_STRING || type == FERRY_OPTION_CHOICE ||
                 type == FERRY_OPTION_SECRET);
    return setting->value.text;
}

uint32_t ferry_config_choice(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = must_find(config, name);

    FERRY_ASSERT(setting->option->type == FERRY_OPTION_CHOICE);
    return (uint32_t)setting->value.number;
}

size_t ferry_config_list_len(const struct ferry_config *config, const char *name)
{
    const struct ferry_setting *setting = must_find(config, name);

    FERRY_ASSERT(setting->option->type == FERRY_OPTION_LIST);
    return setting->value.item_count;
}

const char *ferry_config_list_item(const struct ferry_config *config, const char *name,
                                   size_t index)
{
    const struct ferry_setting *setting = must_find(config, name);

    FERRY_ASSERT(setting->option->type == FERRY_OPTION_LIST);
    FERRY_ASSERT(index < setting->value.item_count);
    return setting->value.items[index];
}

enum ferry_config_origin ferry_config_origin_of(const struct ferry_config *config, const char *name)
{
    return must_find(config, name)->origin;
}
