/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry config`: every setting with its value and where it came from. The option part of
 * ferry.conf(5) is printed from here too, so that the page cannot disagree with the program.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "common.h"

enum { KEY_CHANGED = 0x2000, KEY_MAN };

struct arguments {
    struct ferry_cli cli;
    bool changed;
    bool man;
    char **names; /* only these */
    int name_count;
    int found;
};

static const struct argp_option options[] = {
    {"changed", KEY_CHANGED, NULL, 0,
     "Only settings that were given somewhere, even with the default's value", 0},
    {"man", KEY_MAN, NULL, OPTION_HIDDEN, NULL, 0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &arguments->cli;
        return 0;
    case KEY_CHANGED:
        arguments->changed = true;
        return 0;
    case KEY_MAN:
        arguments->man = true;
        return 0;
    case ARGP_KEY_ARGS:
        arguments->names = state->argv + state->next;
        arguments->name_count = state->argc - state->next;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const char *origin_name(enum ferry_config_origin origin)
{
    switch (origin) {
    case FERRY_ORIGIN_DEFAULT:
        return "default";
    case FERRY_ORIGIN_FILE:
        return "file";
    case FERRY_ORIGIN_ENVIRONMENT:
        return "environment";
    case FERRY_ORIGIN_COMMAND_LINE:
        return "command line";
    case FERRY_ORIGIN_API:
        return "api";
    }
    return "unknown";
}

/* True if @name is asked for, by its own name or by that of a section above it. */
static bool is_named(const struct arguments *arguments, const char *name)
{
    for (int i = 0; i < arguments->name_count; i++) {
        size_t len = strlen(arguments->names[i]);

        if (strncmp(name, arguments->names[i], len) == 0 && (name[len] == '\0' || name[len] == '.'))
            return true;
    }
    return arguments->name_count == 0;
}

static void print_json(const struct ferry_config_entry *entry)
{
    const struct {
        const char *key;
        const char *text;
    } members[] = {
        {"name", entry->name},
        {"value", entry->value},
        {"origin", origin_name(entry->origin)},
        {"origin_detail", entry->origin_detail},
        {"default", entry->default_value},
        {"type", entry->type},
        {"unit", entry->unit},
        {"expected", entry->expected},
        {"environment", entry->environment},
        {"help", entry->help},
    };
    struct json_object *object = json_object_new_object();

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++)
        json_object_object_add(object, members[i].key, json_object_new_string(members[i].text));
    ferry_cli_print_json(object);
}

static void print_row(const struct ferry_config_entry *entry)
{
    printf("%-44s %-20s %s%s%s%s\n", entry->name, entry->value[0] != '\0' ? entry->value : "\"\"",
           origin_name(entry->origin), entry->origin_detail[0] != '\0' ? " (" : "",
           entry->origin_detail, entry->origin_detail[0] != '\0' ? ")" : "");
}

static void print_details(const struct ferry_config_entry *entry)
{
    print_row(entry);
    printf("    %s\n    type %s%s%s, expected %s, default %s\n    environment %s\n", entry->help,
           entry->type, entry->unit[0] != '\0' ? " in " : "", entry->unit, entry->expected,
           entry->default_value[0] != '\0' ? entry->default_value : "\"\"", entry->environment);
}

static void show(void *arg, const struct ferry_config_entry *entry)
{
    struct arguments *arguments = arg;
    bool is_default = entry->origin == FERRY_ORIGIN_DEFAULT;

    if (!is_named(arguments, entry->name))
        return;
    arguments->found++;
    if (is_default && arguments->changed)
        return;
    /* Keys that are only taken in matter when somebody gives them, or asks. */
    if (is_default && strcmp(entry->type, "ignored") == 0 && arguments->name_count == 0 &&
        !arguments->cli.json)
        return;
    if (arguments->cli.json) {
        print_json(entry);
    } else if (arguments->name_count > 0) {
        print_details(entry);
    } else {
        print_row(entry);
    }
}

/* scdoc reads these characters as markup. */
static void print_escaped(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("_*\\#", *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

/* Help texts begin in lower case, since most are shown behind a colon. */
static void print_sentence(const char *text)
{
    if (*text >= 'a' && *text <= 'z')
        putchar(*text++ - 'a' + 'A');
    print_escaped(text);
    putchar('.');
}

static void show_man(void *arg, const struct ferry_config_entry *entry)
{
    (void)arg;
    if (strcmp(entry->type, "ignored") == 0)
        return;
    putchar('*');
    print_escaped(entry->name);
    printf("* (%s%s%s)\n\t", entry->type, entry->unit[0] != '\0' ? ", " : "", entry->unit);
    print_sentence(entry->help);
    fputs("\n\n\tExpected: ", stdout);
    print_escaped(entry->expected);
    fputs(". Default: ", stdout);
    print_escaped(entry->default_value[0] != '\0' ? entry->default_value : "empty");
    fputs(". Environment: ", stdout);
    print_escaped(entry->environment);
    fputs(".\n\n", stdout);
}

static void show_man_ignored(void *arg, const struct ferry_config_entry *entry)
{
    int *count = arg;

    if (strcmp(entry->type, "ignored") != 0)
        return;
    fputs((*count)++ > 0 ? ", " : "", stdout);
    print_escaped(entry->name);
}

static void print_man(const struct ferry_config *config)
{
    int count = 0;

    ferry_config_each(config, show_man, NULL);
    fputs(
        "# IGNORED KEYS\n\nThese published keys are accepted, with everything below them, and have "
        "no effect: ",
        stdout);
    ferry_config_each(config, show_man_ignored, &count);
    fputs(".\n\n", stdout);
}

int ferry_cmd_config(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[NAME...]",
        .doc = "List every setting with its value and where the value came from; with NAMEs (of "
               "settings or of sections), only those and in full.\v" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    struct arguments arguments = {0};

    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    struct ferry_config *config = ferry_cli_config(&arguments.cli);

    if (config == NULL)
        return FERRY_EXIT_USAGE;
    if (arguments.man) {
        print_man(config);
    } else {
        ferry_config_each(config, show, &arguments);
        if (arguments.found == 0)
            ferry_cli_say("no setting is named %s", arguments.names[0]);
    }
    ferry_config_destroy(config);
    return arguments.man || arguments.found > 0 ? FERRY_EXIT_OK : FERRY_EXIT_USAGE;
}
