/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of the reference benchmark's flags: what each sets here, or the value with which it has
 * no effect. A flag that would change what is measured and is not built is refused by name.
 */
#include "tebench_flags.h"

#include <stdio.h>
#include <string.h>

#include "options.h"

#define ERROR_MAX FERRY_BENCH_ERROR_SIZE

/* What the flags say beyond what the options hold. */
struct taken {
    struct ferry_bench_options *options;
    bool check_consistency;
    bool duration_given;
    char *error;
};

struct flag {
    const char *name;
    /* Either sets something... */
    bool (*take)(struct taken *taken, const char *flag, const char *value);
    /* ...or is accepted with these values only, separated by '|'. */
    const char *neutral;
    bool boolean; /* "--name" and "--noname" are complete */
    bool shared;  /* ours too: alone it does not ask for the reference's behaviour */
};

static bool take_segment_name(struct taken *taken, const char *flag, const char *value)
{
    (void)flag;
    taken->options->segment_name = value[0] != '\0' ? value : NULL;
    return true;
}

static bool take_targets(struct taken *taken, const char *flag, const char *value)
{
    /* Empty is the reference's way to ask for a target. */
    return value[0] == '\0' || ferry_bench_parse_targets(flag, value, taken->options, taken->error);
}

static bool take_op(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_op(flag, value, &taken->options->op, taken->error);
}

static bool take_check(struct taken *taken, const char *flag, const char *value)
{
    taken->check_consistency = strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (taken->check_consistency || strcmp(value, "false") == 0 || strcmp(value, "0") == 0)
        return true;
    snprintf(taken->error, ERROR_MAX, "%s %.60s: expected true or false", flag, value);
    return false;
}

static bool take_buffer(struct taken *taken, const char *flag, const char *value)
{
    taken->options->buffer_given = true;
    return ferry_bench_parse_number(flag, value, &ferry_bench_buffer_bounds,
                                    &taken->options->buffer_bytes, taken->error);
}

static bool take_block_from(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_block_bounds,
                                    &taken->options->block.from, taken->error);
}

static bool take_block_to(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_block_bounds,
                                    &taken->options->block.to, taken->error);
}

static bool take_batch_from(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_batch_bounds,
                                    &taken->options->batch.from, taken->error);
}

static bool take_batch_to(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_batch_bounds,
                                    &taken->options->batch.to, taken->error);
}

static bool take_threads_from(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_threads_bounds,
                                    &taken->options->threads.from, taken->error);
}

static bool take_threads_to(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_threads_bounds,
                                    &taken->options->threads.to, taken->error);
}

static bool take_duration(struct taken *taken, const char *flag, const char *value)
{
    taken->duration_given = true;
    return ferry_bench_parse_seconds(flag, value, 1000000, &taken->options->duration_ns,
                                     taken->error);
}

static bool take_offset(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_offset_bounds,
                                    &taken->options->window_offset, taken->error);
}

static bool take_window(struct taken *taken, const char *flag, const char *value)
{
    return ferry_bench_parse_number(flag, value, &ferry_bench_offset_bounds,
                                    &taken->options->window_bytes, taken->error);
}

static bool take_metadata_type(struct taken *taken, const char *flag, const char *value)
{
    (void)flag;
    taken->options->metadata_type = value;
    return true;
}

static bool take_metadata_servers(struct taken *taken, const char *flag, const char *value)
{
    (void)flag;
    taken->options->metadata_servers = value[0] != '\0' ? value : NULL;
    return true;
}

static bool take_port(struct taken *taken, const char *flag, const char *value)
{
    (void)flag;
    taken->options->rpc_server_port = value;
    return true;
}

static bool take_transport(struct taken *taken, const char *flag, const char *value)
{
    if (value[0] == '\0' || strcmp(value, "unspec") == 0)
        return true;
    return ferry_bench_parse_transport(flag, value, taken->options, taken->error);
}

static const struct flag flags[] = {
    {.name = "seg_name", .take = take_segment_name},
    {.name = "target_seg_name", .take = take_targets},
    {.name = "op_type", .take = take_op},
    {.name = "check_consistency", .take = take_check, .boolean = true},
    {.name = "total_buffer_size", .take = take_buffer},
    {.name = "start_block_size", .take = take_block_from},
    {.name = "max_block_size", .take = take_block_to},
    {.name = "start_batch_size", .take = take_batch_from},
    {.name = "max_batch_size", .take = take_batch_to},
    {.name = "start_num_threads", .take = take_threads_from},
    {.name = "max_num_threads", .take = take_threads_to},
    {.name = "duration", .take = take_duration, .shared = true},
    {.name = "target_offset", .take = take_offset},
    {.name = "target_range_size", .take = take_window},
    {.name = "metadata_type", .take = take_metadata_type},
    {.name = "metadata_url_list", .take = take_metadata_servers},
    {.name = "rpc_server_port", .take = take_port},
    {.name = "xport_type", .take = take_transport},
    {.name = "tent_transport_hint", .take = take_transport},
    {.name = "seg_type", .neutral = "DRAM"},
    {.name = "seg_type_mix", .neutral = "|dram|DRAM"},
    {.name = "backend", .neutral = "tent"},
    {.name = "notifi", .neutral = "false|0", .boolean = true},
    {.name = "tent_intent_type", .neutral = "unspec"},
    {.name = "local_gpu_id", .neutral = "0"},
    {.name = "target_gpu_id", .neutral = "0"},
    {.name = "request_interval_us", .neutral = "0"},
    {.name = "deadline_us", .neutral = "0"},
    {.name = "deadline_tight_threads", .neutral = "0"},
    {.name = "deadline_bw_arbitration", .neutral = "false|0", .boolean = true},
    {.name = "qos_classes", .neutral = ""},
    {.name = "qos_classes_json", .neutral = ""},
    {.name = "workload_classes_json", .neutral = ""},
    {.name = "qos_link_capacity_gbps", .neutral = "0"},
    {.name = "qos_output_jsonl", .neutral = ""},
};

/* The flag that @argument is; *value_out is what stands in it, or NULL: in the next one. */
static const struct flag *find(const char *argument, const char **value_out)
{
    if (argument[0] != '-' || argument[1] == '\0')
        return NULL;

    const char *name = argument + (argument[1] == '-' ? 2 : 1);
    size_t len = strcspn(name, "=");

    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        const struct flag *flag = &flags[i];

        if (len == strlen(flag->name) && strncmp(name, flag->name, len) == 0) {
            *value_out = name[len] == '=' ? name + len + 1 : NULL;
            if (flag->boolean && *value_out == NULL)
                *value_out = "true";
            return flag;
        }
        if (flag->boolean && strncmp(name, "no", 2) == 0 && strcmp(name + 2, flag->name) == 0) {
            *value_out = "false";
            return flag;
        }
    }
    return NULL;
}

static bool in_list(const char *list, const char *value)
{
    size_t value_len = strlen(value);

    while (true) {
        size_t len = strcspn(list, "|");

        if (len == value_len && strncmp(list, value, len) == 0)
            return true;
        if (list[len] == '\0')
            return false;
        list += len + 1;
    }
}

static bool apply(struct taken *taken, const struct flag *flag, const char *value)
{
    char name[40];

    snprintf(name, sizeof(name), "--%s", flag->name);
    taken->options->reference = taken->options->reference || !flag->shared;
    if (flag->take != NULL)
        return flag->take(taken, name, value);
    if (in_list(flag->neutral, value))
        return true;
    snprintf(taken->error, ERROR_MAX, "%s %.60s: not supported here, expected %s", name, value,
             flag->neutral[0] != '\0' ? flag->neutral : "nothing");
    return false;
}

/* Start above end, and a check that goes with one kind of traffic only. */
static bool check_together(struct taken *taken)
{
    struct ferry_bench_options *options = taken->options;
    const struct {
        const char *what;
        const struct ferry_bench_range *range;
    } rows[] = {
        {"block_size", &options->block},
        {"batch_size", &options->batch},
        {"num_threads", &options->threads},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].range->from > rows[i].range->to) {
            snprintf(taken->error, ERROR_MAX, "--start_%s %llu: expected at most --max_%s, %llu",
                     rows[i].what, (unsigned long long)rows[i].range->from, rows[i].what,
                     (unsigned long long)rows[i].range->to);
            return false;
        }
    }
    if (!taken->check_consistency)
        return true;
    if (options->op == FERRY_BENCH_WRITE_SEED || options->op == FERRY_BENCH_READ_VERIFY) {
        snprintf(taken->error, ERROR_MAX,
                 "--check_consistency with --op_type %s: expected read, write or mix",
                 ferry_bench_op_name(options->op));
        return false;
    }
    options->op = FERRY_BENCH_MIX;
    options->check = true;
    return true;
}

bool ferry_bench_take_reference_flags(struct ferry_bench_options *options, int *argc, char **argv,
                                      char *error)
{
    struct taken taken = {.options = options, .error = error};
    int kept = 1;
    int at = 1;

    for (; at < *argc && strcmp(argv[at], "--") != 0; at++) {
        const char *value = NULL;
        const struct flag *flag = find(argv[at], &value);

        if (flag == NULL) {
            argv[kept++] = argv[at];
            continue;
        }
        if (value == NULL && ++at == *argc) {
            snprintf(error, ERROR_MAX, "--%s: expected a value", flag->name);
            return false;
        }
        if (!apply(&taken, flag, value != NULL ? value : argv[at]))
            return false;
    }
    while (at < *argc)
        argv[kept++] = argv[at++];
    argv[kept] = NULL;
    *argc = kept;
    if (!options->reference)
        return true;
    /* Its defaults differ from ours in these two. */
    if (!taken.duration_given)
        options->duration_ns = UINT64_C(5000000000);
    options->warmup_ns = UINT64_C(1000000000);
    return check_together(&taken);
}
