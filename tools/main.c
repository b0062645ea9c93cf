/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command `ferry`: finds the subcommand and hands the rest of the arguments to it. Knows
 * nothing of what subcommands do.
 */
#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include <ferry/ferry.h>

#ifdef FERRY_HAVE_BENCH
#include "bench.h"
#endif
#include "command.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
};

#ifdef FERRY_HAVE_BENCH
static int ferry_cmd_bench(int argc, char **argv)
{
    return ferry_bench_main(argc, argv);
}
#endif

static const struct command commands[] = {
    {"serve", ferry_cmd_serve, "register memory and let peers read and write it"},
#ifdef FERRY_HAVE_BENCH
    {"bench", ferry_cmd_bench, "measure transfers, and verify what they move"},
#endif
    {"cp", ferry_cmd_cp, "copy a file to or from a segment's memory"},
    {"segment", ferry_cmd_segment, "show segments, and make file segments known"},
    {"info", ferry_cmd_info, "describe this build and this host"},
    {"doctor", ferry_cmd_doctor, "check limits of this host and say how to raise them"},
    {"config", ferry_cmd_config, "list all settings, their values and where they come from"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

struct arguments {
    const struct command *command;
    int first; /* index of the subcommand in argv */
};

static void print_version(FILE *stream, struct argp_state *state)
{
    (void)state;
    fprintf(stream, "ferry %s\n", ferry_version());
}

/* libc has a variable of this name, and must find ours instead: hidden, it would not. */
FERRY_API void (*argp_program_version_hook)(FILE *, struct argp_state *) = print_version;

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        arguments->command = find_command(arg);
        if (arguments->command == NULL)
            argp_error(state, "unknown subcommand \"%s\"", arg);
        /* Everything behind the subcommand is its own. */
        arguments->first = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "expected a subcommand");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The list of subcommands is made from the table, so that it names each of them. */
static char *help_filter(int key, const char *text, void *input)
{
    char *list = NULL;
    size_t size;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;

    FILE *out = open_memstream(&list, &size);

    if (out == NULL)
        return (char *)text;
    fputs("Subcommands:\n", out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`ferry SUBCOMMAND --help' says more. " FERRY_EXIT_HELP, out);
    fclose(out);
    return list;
}

/* A full disk or a closed pipe must not look like success. */
static int close_output(int exit_status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit_status;
    fprintf(stderr, "ferry: standard output: %s\n", strerror(errno));
    return exit_status == FERRY_EXIT_OK ? FERRY_EXIT_ENVIRONMENT : exit_status;
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "SUBCOMMAND [ARGUMENT...]",
        .doc = "Move registered memory between processes and hosts.\v",
        .help_filter = help_filter,
    };
    struct arguments arguments = {0};
    char name[64];

    /* One that was started as /proc/self/exe is called "exe" in lists of processes. */
    prctl(PR_SET_NAME, "ferry");
    /* argp's remark on long options says what each option shows anyway. */
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_err_exit_status = FERRY_EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0)
        return FERRY_EXIT_USAGE;

    /* What the subcommand's messages and its --help begin with. */
    snprintf(name, sizeof(name), "ferry %s", arguments.command->name);
    argv[arguments.first] = name;
    return close_output(arguments.command->run(argc - arguments.first, argv + arguments.first));
}
