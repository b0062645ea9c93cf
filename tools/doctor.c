/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry doctor`: looks at the limits of this host that make transfers slow or fail, says how to
 * raise each, and moves verified bytes between two engines over loopback; or looks at a file
 * segment as this host has it. Changes nothing. One thread.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "checks.h"
#include "common.h"

struct arguments {
    struct ferry_cli cli;
    const char *segment; /* or NULL */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 0)
            argp_error(state, "unexpected argument \"%s\"", arg);
        if (arg[0] == '\0')
            argp_error(state, "SEGMENT is empty");
        arguments->segment = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *verdict_name(enum ferry_verdict verdict)
{
    return verdict == FERRY_VERDICT_OK ? "ok" : verdict == FERRY_VERDICT_WARN ? "warn" : "broken";
}

static struct json_object *finding_json(const struct ferry_finding *finding)
{
    struct json_object *object = json_object_new_object();

    json_object_object_add(object, "name", json_object_new_string(finding->name));
    json_object_object_add(object, "verdict",
                           json_object_new_string(verdict_name(finding->verdict)));
    json_object_object_add(object, "found", json_object_new_string(finding->found));
    json_object_object_add(object, "advice", json_object_new_string(finding->advice));
    return object;
}

static void print_findings(const struct ferry_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct ferry_finding *finding = &findings->list[i];

        printf("%-7s %-20s %s\n", verdict_name(finding->verdict), finding->name, finding->found);
        if (finding->advice[0] != '\0')
            printf("%-28s %s\n", "", finding->advice);
    }
}

int ferry_cmd_doctor(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "[SEGMENT]",
        .doc =
            "Check what makes transfers slow or fail on this host, say how to mend it, and move "
            "verified bytes over loopback. With SEGMENT, check instead that this host has each "
            "file of "
            "that file segment.\vEach check ends as ok, warn (works, but slower or "
            "smaller than it could) or broken. Exit status: 0 nothing is broken, 2 wrong arguments "
            "or settings, 3 something is broken.",
        .children = ferry_cli_children,
    };
    struct arguments arguments = {0};
    struct ferry_findings findings = {0};
    enum ferry_verdict worst = FERRY_VERDICT_OK;

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&arguments.cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;
    if (arguments.segment != NULL) {
        ferry_check_segment(&findings, config, arguments.segment);
    } else {
        ferry_check_host(&findings);
        ferry_check_transfer(&findings, config);
    }
    ferry_config_destroy(config);
    for (size_t i = 0; i < findings.count; i++)
        worst = findings.list[i].verdict > worst ? findings.list[i].verdict : worst;

    if (arguments.cli.json) {
        struct json_object *object = json_object_new_object();
        struct json_object *list = json_object_new_array();

        for (size_t i = 0; i < findings.count; i++)
            json_object_array_add(list, finding_json(&findings.list[i]));
        json_object_object_add(object, "verdict", json_object_new_string(verdict_name(worst)));
        json_object_object_add(object, "checks", list);
        ferry_cli_print_json(object);
    } else {
        print_findings(&findings);
        printf("\n%s\n", worst == FERRY_VERDICT_OK ? "all is well"
                         : worst == FERRY_VERDICT_WARN
                             ? "works; the warnings say what could be better"
                             : "something is broken, see above");
    }
    return worst == FERRY_VERDICT_BROKEN ? FERRY_EXIT_ENVIRONMENT : FERRY_EXIT_OK;
}
