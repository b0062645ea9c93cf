/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry doctor`: looks at the limits of this host that make transfers slow or fail, says how to
 * raise each, and moves verified bytes between two engines over loopback. Changes nothing. One
 * thread.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "checks.h"
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
        .doc =
            "Check what makes transfers slow or fail on this host, say how to mend it, and move "
            "verified bytes over loopback.\vEach check ends as ok, warn (works, but slower or "
            "smaller than it could) or broken. Exit status: 0 nothing is broken, 2 wrong arguments "
            "or settings, 3 something is broken.",
        .children = ferry_cli_children,
    };
    struct ferry_cli cli = {0};
    struct ferry_findings findings = {0};
    enum ferry_verdict worst = FERRY_VERDICT_OK;

    if (argp_parse(&argp, argc, argv, 0, NULL, &cli) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;
    ferry_check_host(&findings);
    ferry_check_transfer(&findings, config);
    ferry_config_destroy(config);
    for (size_t i = 0; i < findings.count; i++)
        worst = findings.list[i].verdict > worst ? findings.list[i].verdict : worst;

    if (cli.json) {
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
