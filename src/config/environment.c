/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from the environment: FERRY_* variables, the file that FERRY_CONFIG or MC_TENT_CONF
 * names, and the published MC_FORCE_TCP. Reads the environment of the calling thread's process
 * once; nobody may change it meanwhile. Nothing is read in a program that runs with more rights
 * than its user.
 */
#include "config/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"

#define PREFIX      "FERRY_"
#define TEST_PREFIX "FERRY_TEST_" /* belongs to the test programs */

extern char **environ;

static enum ferry_status stage_variables(struct ferry_stage *stage)
{
    for (size_t i = 0; i < stage->config->count; i++) {
        const struct ferry_setting *setting = &stage->config->settings[i];
        const char *text = secure_getenv(setting->environment);
        struct ferry_value value;

        if (text == NULL)
            continue;

        enum ferry_status status = ferry_value_from_text(setting->option, setting->environment,
                                                         text, &value);

        if (status == FERRY_OK)
            status = ferry_stage_put(stage, setting, &value, setting->environment);
        if (status != FERRY_OK)
            return status;
        if (setting->option->type == FERRY_OPTION_PLACEHOLDER)
            ferry_info("config", "%s has no effect in this version", setting->environment);
    }
    return FERRY_OK;
}

/* "FERRY_TRANSPORTS_RDMA_ENABLE" of a build without rdma: false is no request for it. */
static bool is_unbuilt_enable(const struct ferry_config *config, const char *variable)
{
    const char *const head = PREFIX "TRANSPORTS_";
    const char *const tail = "_ENABLE";
    size_t len = strlen(variable), head_len = strlen(head), tail_len = strlen(tail);
    char name[FERRY_CONFIG_NAME_MAX + 1] = "transports.";
    size_t used = strlen(name);

    if (len <= head_len + tail_len || strncmp(variable, head, head_len) != 0 ||
        strcmp(variable + len - tail_len, tail) != 0)
        return false;
    for (const char *at = variable + head_len;
         at < variable + len - tail_len && used < FERRY_CONFIG_NAME_MAX; at++)
        name[used++] = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
    name[used] = '\0';
    return ferry_config_unbuilt_len(config, name) == used;
}

static enum ferry_status check_variable(const struct ferry_config *config, const char *variable,
                                        const char *text)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->settings[i].environment, variable) == 0)
            return FERRY_OK;
    }
    if (strcmp(variable, PREFIX "CONFIG") == 0 ||
        strncmp(variable, TEST_PREFIX, strlen(TEST_PREFIX)) == 0)
        return FERRY_OK;
    if (is_unbuilt_enable(config, variable)) {
        if (strcmp(text, "false") == 0)
            return FERRY_OK;
        return ferry_fail(FERRY_ERR_CONFIG,
                          "%.128s: this build does not have the transport; expected false, found "
                          "\"%.64s\"",
                          variable, text);
    }
    return ferry_fail(FERRY_ERR_CONFIG,
                      "%.128s: no setting has this variable; the nearest known one is %s", variable,
                      ferry_config_nearest(config, variable, true));
}

/* A misspelt variable would otherwise be a setting that silently does nothing. */
static enum ferry_status check_all_variables(const struct ferry_config *config)
{
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        char variable[FERRY_CONFIG_NAME_MAX + 16];

        if (equals == NULL || strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(variable, sizeof(variable), "%.*s", (int)(equals - *entry), *entry);

        enum ferry_status status = check_variable(config, variable, equals + 1);

        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

/* The published switch that leaves tcp as the only transport. */
static enum ferry_status stage_force_tcp(struct ferry_stage *stage)
{
    const char *text = secure_getenv("MC_FORCE_TCP");
    const struct ferry_setting *setting = ferry_config_find(stage->config, "force_transport");
    struct ferry_value value;

    if (text == NULL || setting == NULL || text[0] == '\0' || strcmp(text, "0") == 0 ||
        strcmp(text, "false") == 0)
        return FERRY_OK;
    if (strcmp(text, "1") != 0 && strcmp(text, "true") != 0) {
        return ferry_fail(FERRY_ERR_CONFIG,
                          "MC_FORCE_TCP: expected 1, true, 0 or false, found \"%.64s\"", text);
    }
    if (!ferry_config_is_section(stage->config, "transports.tcp")) {
        return ferry_fail(FERRY_ERR_CONFIG,
                          "MC_FORCE_TCP=%s: this build has no transport tcp; expected 0 or false",
                          text);
    }

    enum ferry_status status = ferry_value_from_text(setting->option, "MC_FORCE_TCP", "tcp",
                                                     &value);

    return status == FERRY_OK ? ferry_stage_put(stage, setting, &value, "MC_FORCE_TCP") : status;
}

/* MC_TENT_CONF holds the text itself if it begins like an object, else a file's name. */
static enum ferry_status load_published(struct ferry_stage *stage, const char *text)
{
    const char *first = text + strspn(text, " \t\r\n");

    return *first == '{' ? ferry_stage_text(stage, text, strlen(text))
                         : ferry_stage_file(stage, text);
}

/* @stage is left zeroed if no variable names a file. */
static enum ferry_status stage_named_file(struct ferry_config *config, struct ferry_stage *stage)
{
    const char *path = secure_getenv(PREFIX "CONFIG");
    const char *published = secure_getenv("MC_TENT_CONF");
    enum ferry_status status;

    if (path != NULL) {
        if (path[0] == '\0') {
            return ferry_fail(FERRY_ERR_CONFIG,
                              PREFIX "CONFIG: expected the name of a file, found \"\"");
        }
        status = ferry_stage_init(stage, config, FERRY_ORIGIN_FILE, path);
        return status == FERRY_OK ? ferry_stage_file(stage, path) : status;
    }
    if (published == NULL || published[0] == '\0')
        return FERRY_OK;
    status = ferry_stage_init(stage, config, FERRY_ORIGIN_FILE, "MC_TENT_CONF");
    return status == FERRY_OK ? load_published(stage, published) : status;
}

enum ferry_status ferry_config_load_environment(struct ferry_config *config)
{
    FERRY_CLEANUP(ferry_stage_fini) struct ferry_stage file = {0};
    FERRY_CLEANUP(ferry_stage_fini) struct ferry_stage variables = {0};
    enum ferry_status status = stage_named_file(config, &file);

    if (status == FERRY_OK)
        status = ferry_stage_init(&variables, config, FERRY_ORIGIN_ENVIRONMENT, "");
    if (status == FERRY_OK)
        status = stage_variables(&variables);
    if (status == FERRY_OK)
        status = stage_force_tcp(&variables);
    if (status == FERRY_OK)
        status = check_all_variables(config);
    if (status != FERRY_OK)
        return status;

    if (file.config != NULL)
        ferry_stage_commit(&file);
    ferry_stage_commit(&variables);
    return FERRY_OK;
}
