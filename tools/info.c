/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry info`: this build, this host, and each transport with its state or the reason why it is
 * not there. Opens an engine for the transports, which listens on loopback for a moment.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "common.h"

static error_t parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = state->input;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument \"%s\"", arg);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int add_report(struct json_object *info, struct ferry_engine *engine, const char *key,
                      enum ferry_report report)
{
    char *text = NULL;
    enum ferry_status status = ferry_engine_report(engine, report, &text);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, key);

    struct json_object *value = ferry_cli_parse_json(text);
    struct json_object *inner;

    /* A report that is one list under its own name is that list. */
    if (json_object_is_type(value, json_type_object) && json_object_object_length(value) == 1 &&
        json_object_object_get_ex(value, key, &inner)) {
        json_object_get(inner);
        json_object_put(value);
        value = inner;
    }
    json_object_object_add(info, key, value);
    return FERRY_EXIT_OK;
}

/* A host on which no engine starts is still worth describing; the reason is part of it. */
static int add_transports(struct json_object *info, const struct ferry_config *config)
{
    struct ferry_engine_options engine_options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine;

    engine_options.config = config;
    if (ferry_engine_open(&engine_options, &engine) != FERRY_OK) {
        json_object_object_add(info, "transports", NULL);
        json_object_object_add(info, "error", json_object_new_string(ferry_last_error_text()));
        return FERRY_EXIT_ENVIRONMENT;
    }
    return ferry_cli_close(engine, add_report(info, engine, "transports", FERRY_REPORT_TRANSPORTS));
}

int ferry_cmd_info(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .doc =
            "Describe this build and this host: version and features, each transport or why it is "
            "not available, addresses, NUMA nodes and limits.\v" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct ferry_cli cli = {0};

    if (argp_parse(&argp, argc, argv, 0, NULL, &cli) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;

    struct json_object *info = json_object_new_object();
    int exit_status = add_report(info, NULL, "build", FERRY_REPORT_BUILD);

    if (exit_status == FERRY_EXIT_OK)
        exit_status = add_transports(info, config);
    if (exit_status == FERRY_EXIT_OK || exit_status == FERRY_EXIT_ENVIRONMENT) {
        int host_status = add_report(info, NULL, "host", FERRY_REPORT_HOST);

        exit_status = exit_status != FERRY_EXIT_OK ? exit_status : host_status;
    }
    if (cli.json) {
        ferry_cli_print_json(info);
    } else {
        ferry_cli_print_tree(info, 0);
        json_object_put(info);
    }
    ferry_config_destroy(config);
    return exit_status;
}
