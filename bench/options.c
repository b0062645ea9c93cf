/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flags of `ferry bench`. Values are checked here, one by one; whether they fit together and
 * into memory is for sweep.c to say.
 */
#include "options.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "tebench_flags.h"
#include "text.h"

#define NS_PER_S  UINT64_C(1000000000)
#define DAY_NS    (86400 * NS_PER_S)
#define ERROR_MAX FERRY_BENCH_ERROR_SIZE

/* A message quotes this much of a value. */
#define QUOTED "%.60s"

const struct ferry_bench_bounds ferry_bench_block_bounds = {1, FERRY_BENCH_BLOCK_MAX, true};
const struct ferry_bench_bounds ferry_bench_batch_bounds = {1, FERRY_BENCH_BATCH_MAX, false};
const struct ferry_bench_bounds ferry_bench_threads_bounds = {1, FERRY_BENCH_THREADS_MAX, false};
const struct ferry_bench_bounds ferry_bench_buffer_bounds = {1, FERRY_BENCH_BLOCK_MAX, true};
const struct ferry_bench_bounds ferry_bench_offset_bounds = {0, FERRY_BENCH_BLOCK_MAX, true};

static const struct {
    const char *name;
    enum ferry_bench_op op;
} ops[] = {
    {"read", FERRY_BENCH_READ},
    {"write", FERRY_BENCH_WRITE},
    {"mix", FERRY_BENCH_MIX},
    {"write_seed", FERRY_BENCH_WRITE_SEED},
    {"read_verify", FERRY_BENCH_READ_VERIFY},
};

const char *ferry_bench_op_name(enum ferry_bench_op op)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (ops[i].op == op)
            return ops[i].name;
    }
    return "unknown";
}

static bool in_bounds(const char *text, const struct ferry_bench_bounds *bounds,
                      uint64_t *number_out)
{
    uint64_t number;
    bool read = bounds->size ? ferry_cli_parse_size(text, &number)
                             : ferry_cli_parse_u64(text, &number);

    if (!read || number < bounds->min || number > bounds->max)
        return false;
    *number_out = number;
    return true;
}

bool ferry_bench_parse_number(const char *flag, const char *text,
                              const struct ferry_bench_bounds *bounds, uint64_t *number_out,
                              char *error)
{
    if (in_bounds(text, bounds, number_out))
        return true;
    snprintf(error, ERROR_MAX, "%s " QUOTED ": expected %s%" PRIu64 "..%" PRIu64, flag, text,
             bounds->size ? "bytes, or a number with KiB, MiB or GiB, of " : "", bounds->min,
             bounds->max);
    return false;
}

bool ferry_bench_parse_range(const char *flag, const char *text,
                             const struct ferry_bench_bounds *bounds,
                             struct ferry_bench_range *range_out, char *error)
{
    const char *dots = strstr(text, "..");
    struct ferry_bench_range range = {0};
    char first[64];
    size_t len = dots != NULL ? (size_t)(dots - text) : strlen(text);
    bool good = len < sizeof(first);

    if (good) {
        memcpy(first, text, len);
        first[len] = '\0';
        good = in_bounds(first, bounds, &range.from);
    }
    range.to = range.from;
    if (good && dots != NULL)
        good = in_bounds(dots + 2, bounds, &range.to);
    if (!good) {
        snprintf(error, ERROR_MAX,
                 "%s " QUOTED ": expected N or FROM..TO%s, each of %" PRIu64 "..%" PRIu64, flag,
                 text, bounds->size ? " in bytes, KiB, MiB or GiB" : "", bounds->min, bounds->max);
        return false;
    }
    if (range.from > range.to) {
        snprintf(error, ERROR_MAX, "%s " QUOTED ": expected FROM..TO with FROM not above TO", flag,
                 text);
        return false;
    }
    *range_out = range;
    return true;
}

/* The digits behind the point, as nanoseconds. */
static bool parse_fraction(const char *digits, uint64_t *ns_out)
{
    uint64_t ns = 0;
    size_t count = strspn(digits, "0123456789");

    if (count == 0 || count > 9 || digits[count] != '\0')
        return false;
    for (size_t i = 0; i < 9; i++)
        ns = ns * 10 + (i < count ? (uint64_t)(digits[i] - '0') : 0);
    *ns_out = ns;
    return true;
}

static bool read_seconds(const char *text, uint64_t *ns_out)
{
    const char *point = strchr(text, '.');
    size_t len = point != NULL ? (size_t)(point - text) : strlen(text);
    char whole[16];
    uint64_t seconds;
    uint64_t ns = 0;

    if (len >= sizeof(whole))
        return false;
    memcpy(whole, text, len);
    whole[len] = '\0';
    if (!ferry_cli_parse_u64(whole, &seconds) || seconds > DAY_NS / NS_PER_S)
        return false;
    if (point != NULL && !parse_fraction(point + 1, &ns))
        return false;
    *ns_out = seconds * NS_PER_S + ns;
    return true;
}

bool ferry_bench_parse_seconds(const char *flag, const char *text, uint64_t min_ns,
                               uint64_t *duration_ns_out, char *error)
{
    uint64_t ns;

    if (read_seconds(text, &ns) && ns >= min_ns && ns <= DAY_NS) {
        *duration_ns_out = ns;
        return true;
    }
    snprintf(error, ERROR_MAX, "%s " QUOTED ": expected seconds, such as 0.5, of %g..86400", flag,
             text, (double)min_ns / (double)NS_PER_S);
    return false;
}

bool ferry_bench_parse_op(const char *flag, const char *text, enum ferry_bench_op *op_out,
                          char *error)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, text) == 0) {
            *op_out = ops[i].op;
            return true;
        }
    }
    snprintf(error, ERROR_MAX,
             "%s " QUOTED ": expected read, write, mix, write_seed or read_verify", flag, text);
    return false;
}

bool ferry_bench_parse_targets(const char *flag, const char *text,
                               struct ferry_bench_options *options, char *error)
{
    const char *all = text;

    while (true) {
        size_t len = strcspn(text, ",");

        if (len == 0 || options->target_count == FERRY_BENCH_TARGETS_MAX) {
            snprintf(error, ERROR_MAX,
                     len == 0 ? "%s " QUOTED ": expected NAME[,NAME...] without an empty name"
                              : "%s " QUOTED ": expected at most %d names",
                     flag, all, FERRY_BENCH_TARGETS_MAX);
            return false;
        }
        options->targets[options->target_count] = strndup(text, len);
        if (options->targets[options->target_count] == NULL) {
            snprintf(error, ERROR_MAX, "%s: out of memory", flag);
            return false;
        }
        options->target_count++;
        if (text[len] == '\0')
            return true;
        text += len + 1;
    }
}

/* Transports of every build that reach no other process, with the reason; else NULL. */
static const char *unusable(const char *transport)
{
    if (strcmp(transport, "loop") == 0)
        return "it serves the process's own memory, and there is always another process here";
    if (strcmp(transport, "fault") == 0)
        return "it only makes another transport fail";
    return NULL;
}

/* Whether this build has a transport for this; @list gets the names of those that it has. */
static bool build_has_transport(const char *name, char *list, size_t list_size)
{
    struct json_object *names = NULL;
    char *text = NULL;
    bool found = false;
    size_t used = 0;

    list[0] = '\0';
    if (ferry_engine_report(NULL, FERRY_REPORT_BUILD, &text) != FERRY_OK)
        return true; /* the engine will say */

    struct json_object *build = ferry_cli_parse_json(text);

    json_object_object_get_ex(build, "transports", &names);
    for (size_t i = 0; names != NULL && i < json_object_array_length(names); i++) {
        const char *one = json_object_get_string(json_object_array_get_idx(names, i));

        if (unusable(one) != NULL)
            continue;
        found = found || strcmp(one, name) == 0;
        used += (size_t)snprintf(list + used, list_size - used, "%s%s", used > 0 ? ", " : "", one);
        if (used >= list_size)
            break;
    }
    json_object_put(build);
    return found;
}

bool ferry_bench_parse_transport(const char *flag, const char *text,
                                 struct ferry_bench_options *options, char *error)
{
    char list[128];

    if (!build_has_transport(text, list, sizeof(list))) {
        const char *reason = unusable(text);

        snprintf(error, ERROR_MAX, "%s " QUOTED ": %s%sexpected one of this build: %s", flag, text,
                 reason != NULL ? reason : "", reason != NULL ? "; " : "", list);
        return false;
    }
    if (options->transport != NULL && strcmp(options->transport, text) != 0) {
        snprintf(error, ERROR_MAX, "%s " QUOTED ": another flag says " QUOTED, flag, text,
                 options->transport);
        return false;
    }
    options->transport = text;
    return true;
}

enum {
    KEY_TARGET = 0x3000,
    KEY_OP,
    KEY_BLOCK,
    KEY_BATCH,
    KEY_THREADS,
    KEY_DURATION,
    KEY_WARMUP,
    KEY_TRANSPORT,
    KEY_CHECK,
    KEY_SEED,
    KEY_SCATTER,
    KEY_BUFFER,
};

static const struct argp_option options_table[] = {
    {"target", KEY_TARGET, "NAME[,NAME...]", 0,
     "Segments to drive, such as `ferry serve' prints; threads take them in turn. Without it, a "
     "target process of its own is started on loopback",
     0},
    {"op", KEY_OP, "OP", 0, "read (default), write, mix, write_seed or read_verify", 0},
    {"block", KEY_BLOCK, "N|FROM..TO", 0, "Bytes of a request (default 4096..64MiB)", 0},
    {"batch", KEY_BATCH, "N|FROM..TO", 0, "Requests each thread keeps outstanding (default 1)", 0},
    {"threads", KEY_THREADS, "N|FROM..TO", 0, "Threads that submit (default 1)", 0},
    {"duration", KEY_DURATION, "SECONDS", 0, "Length of a case (default 1)", 0},
    {"warmup", KEY_WARMUP, "SECONDS", 0, "What comes before it, unmeasured (default 0.3)", 0},
    {"transport", KEY_TRANSPORT, "NAME", 0, "Use this transport and no other", 0},
    {"check", KEY_CHECK, NULL, 0,
     "Move data that depends on a seed and its position, and compare every byte", 0},
    {"seed", KEY_SEED, "N", 0, "The seed of that data (default 1)", 0},
    {"scatter", KEY_SCATTER, "N", 0,
     "Move each block as one request of N equal pieces, scattered on both sides", 0},
    {"buffer", KEY_BUFFER, "SIZE", 0,
     "The most memory that a case may use at the target (default 1GiB, or what the target offers)",
     0},
    {NULL, 0, NULL, 0, NULL, 0},
};

static bool parse_value(struct ferry_bench_options *options, int key, const char *arg, char *error)
{
    const struct ferry_bench_bounds any = {0, UINT64_MAX, false};
    const struct ferry_bench_bounds pieces = {1, FERRY_PIECES_MAX, false};

    switch (key) {
    case KEY_TARGET:
        return ferry_bench_parse_targets("--target", arg, options, error);
    case KEY_OP:
        return ferry_bench_parse_op("--op", arg, &options->op, error);
    case KEY_BLOCK:
        return ferry_bench_parse_range("--block", arg, &ferry_bench_block_bounds, &options->block,
                                       error);
    case KEY_BATCH:
        return ferry_bench_parse_range("--batch", arg, &ferry_bench_batch_bounds, &options->batch,
                                       error);
    case KEY_THREADS:
        return ferry_bench_parse_range("--threads", arg, &ferry_bench_threads_bounds,
                                       &options->threads, error);
    case KEY_DURATION:
        return ferry_bench_parse_seconds("--duration", arg, NS_PER_S / 1000, &options->duration_ns,
                                         error);
    case KEY_WARMUP:
        return ferry_bench_parse_seconds("--warmup", arg, 0, &options->warmup_ns, error);
    case KEY_TRANSPORT:
        return ferry_bench_parse_transport("--transport", arg, options, error);
    case KEY_SEED:
        return ferry_bench_parse_number("--seed", arg, &any, &options->seed, error);
    case KEY_SCATTER:
        return ferry_bench_parse_number("--scatter", arg, &pieces, &options->scatter, error);
    case KEY_BUFFER:
        options->buffer_given = true;
        return ferry_bench_parse_number("--buffer", arg, &ferry_bench_buffer_bounds,
                                        &options->buffer_bytes, error);
    default:
        return true;
    }
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct ferry_bench_options *options = state->input;
    char error[ERROR_MAX];

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->cli;
        return 0;
    case KEY_CHECK:
        options->check = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_failure(state, FERRY_EXIT_USAGE, 0, "unexpected argument \"" QUOTED "\"", arg);
        return EINVAL;
    default:
        if (key < KEY_TARGET || key > KEY_BUFFER)
            return ARGP_ERR_UNKNOWN;
        if (!parse_value(options, key, arg, error))
            argp_failure(state, FERRY_EXIT_USAGE, 0, "%s", error);
        return 0;
    }
}

/* Flags that exclude each other. */
static bool check_together(const struct ferry_bench_options *options, char *error)
{
    bool seeded = options->op == FERRY_BENCH_WRITE_SEED || options->op == FERRY_BENCH_READ_VERIFY;

    if (seeded && options->check) {
        snprintf(error, ERROR_MAX, "--check with --op %s: expected read, write or mix",
                 ferry_bench_op_name(options->op));
        return false;
    }
    if (seeded && options->scatter > 0) {
        snprintf(error, ERROR_MAX, "--scatter with --op %s: expected read, write or mix",
                 ferry_bench_op_name(options->op));
        return false;
    }
    if (options->scatter > 0 && options->block.from % options->scatter != 0) {
        snprintf(error, ERROR_MAX,
                 "--scatter %" PRIu64 ": expected a number of pieces that divides the block of "
                 "%" PRIu64 " bytes",
                 options->scatter, options->block.from);
        return false;
    }
    return true;
}

/* A pinned transport is wanted, at both ends; a --set of the user comes later and wins. */
static void enable_pinned(struct ferry_bench_options *options)
{
    struct ferry_cli *cli = &options->cli;

    if (options->transport == NULL || cli->set_count == FERRY_CLI_SETS_MAX)
        return;
    snprintf(options->enable, sizeof(options->enable), "transports.%.32s.enable=true",
             options->transport);
    memmove(&cli->sets[1], &cli->sets[0], cli->set_count * sizeof(cli->sets[0]));
    cli->sets[0] = options->enable;
    cli->set_count++;
}

void ferry_bench_options_read(struct ferry_bench_options *options, int argc, char **argv)
{
    static const struct argp argp = {
        .options = options_table,
        .parser = parse,
        .doc = "Move blocks between own memory and a target's, and report each case."
               "\vA range doubles from case to case. The flags of the reference benchmark are "
               "accepted too, as ferry-bench(1) lists.\n\n" FERRY_EXIT_HELP,
        .children = ferry_cli_children,
    };
    char error[ERROR_MAX];

    *options = (struct ferry_bench_options){
        .block = {4096, UINT64_C(64) << 20},
        .batch = {1, 1},
        .threads = {1, 1},
        .duration_ns = NS_PER_S,
        .warmup_ns = 3 * NS_PER_S / 10,
        .seed = 1,
        .buffer_bytes = UINT64_C(1) << 30,
    };
    if (!ferry_bench_take_reference_flags(options, &argc, argv, error)) {
        ferry_cli_say("%s", error);
        exit(FERRY_EXIT_USAGE);
    }
    if (argp_parse(&argp, argc, argv, 0, NULL, options) != 0)
        exit(FERRY_EXIT_USAGE);
    if (!check_together(options, error)) {
        ferry_cli_say("%s", error);
        exit(FERRY_EXIT_USAGE);
    }
    enable_pinned(options);
    if (options->seed == 0)
        options->seed = 1;
}

void ferry_bench_options_fini(struct ferry_bench_options *options)
{
    for (size_t i = 0; i < options->target_count; i++)
        free(options->targets[i]);
    options->target_count = 0;
}
