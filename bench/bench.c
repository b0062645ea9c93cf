/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ferry bench` from its arguments to its exit status. The main thread.
 *
 * Order of the end: segments, engine, and last the target process of our own, so that it sees its
 * peer go.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "interrupt.h"
#include "options.h"
#include "record.h"
#include "run.h"
#include "sweep.h"
#include "target.h"

/* Settings that flags of the reference benchmark stand for. */
static bool apply_reference_flags(const struct ferry_bench_options *options,
                                  struct ferry_config *config)
{
    const struct {
        const char *setting;
        const char *value;
    } rows[] = {
        {"metadata_type", options->metadata_type},
        {"metadata_servers", options->metadata_servers},
        {"rpc_server_port", options->rpc_server_port},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].value != NULL && !ferry_cli_set(config, rows[i].setting, rows[i].value))
            return false;
    }
    return true;
}

/* Without a store the name of a segment is its address, and a name of one's own means nothing. */
static bool apply_segment_name(const struct ferry_bench_options *options,
                               struct ferry_config *config)
{
    char type[32] = "";

    if (options->segment_name == NULL)
        return true;
    if (ferry_config_get(config, "metadata_type", type, sizeof(type)) == FERRY_OK &&
        (strcmp(type, "p2p") == 0 || strcmp(type, "peer") == 0)) {
        ferry_cli_say("--seg_name %s: not used, without a metadata store the name is the address",
                      options->segment_name);
        return true;
    }
    return ferry_cli_set(config, "local_segment_name", options->segment_name);
}

static struct ferry_config *make_config(const struct ferry_bench_options *options)
{
    struct ferry_config *config = ferry_cli_config(&options->cli);

    if (config != NULL && apply_reference_flags(options, config) &&
        apply_segment_name(options, config))
        return config;
    ferry_config_destroy(config);
    return NULL;
}

/* Print a record or a row; false if nobody can read it any more. */
static bool show(const struct ferry_bench_job *job, const struct ferry_bench_result *result)
{
    if (job->options->cli.json)
        ferry_cli_print_json(ferry_bench_record(job, result));
    else
        ferry_bench_print_row(job, result);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    ferry_cli_say("standard output: %s", strerror(errno));
    return false;
}

/* What went wrong in a case, on standard error. */
static void explain(const struct ferry_bench_result *result)
{
    char text[128];

    if (result->errors == 0)
        return;
    ferry_bench_case_text(&result->c, text, sizeof(text));
    if (result->difference[0] != '\0')
        ferry_cli_say("%s", result->difference);
    if (result->failure[0] != '\0')
        ferry_cli_say("%s", result->failure);
    ferry_cli_say("%s: %" PRIu64 " errors", text, result->errors);
}

/* One case; *go_on_out says whether there can be another one. */
static int run_one(const struct ferry_bench_job *job, const struct ferry_bench_case *c,
                   struct ferry_bench_result *result, bool *go_on_out)
{
    int exit_status = ferry_bench_run(job, c, result);

    *go_on_out = false;
    /* What was cut short before anything was measured is no row. */
    if (result->partial && result->ops == 0)
        exit_status = FERRY_EXIT_SIGNAL + ferry_bench_interrupted();
    if (exit_status == FERRY_EXIT_OK) {
        bool shown = show(job, result);

        /* The cause before what came of it. */
        if (result->failure[0] != '\0' && job->target != NULL)
            ferry_bench_target_ended(job->target);
        explain(result);
        if (!shown)
            exit_status = FERRY_EXIT_ENVIRONMENT;
        else if (result->errors > 0)
            exit_status = FERRY_EXIT_DATA;
        /* Data that differs says nothing about the next case; a failed request does. */
        *go_on_out = shown && result->failure[0] == '\0';
    }
    ferry_bench_result_fini(result);
    return exit_status;
}

static int run_all(const struct ferry_bench_job *job, uint64_t limit_bytes)
{
    struct ferry_bench_result *result = malloc(sizeof(*result));
    struct ferry_bench_case c = {0};
    int worst = FERRY_EXIT_OK;
    bool go_on = true;

    if (result == NULL) {
        ferry_cli_say("out of memory");
        return FERRY_EXIT_ENVIRONMENT;
    }
    if (!job->options->cli.json)
        ferry_bench_print_heading();
    while (go_on && ferry_bench_interrupted() == 0 && ferry_bench_case_next(job->options, &c)) {
        uint64_t bytes;

        if (!ferry_bench_case_bytes(&c, &bytes) || bytes > limit_bytes)
            continue;

        int exit_status = run_one(job, &c, result, &go_on);

        if (exit_status != FERRY_EXIT_OK)
            worst = exit_status;
    }
    free(result);
    if (ferry_bench_interrupted() == 0)
        return worst;
    ferry_cli_say("ended early by signal %d", ferry_bench_interrupted());
    return FERRY_EXIT_SIGNAL + ferry_bench_interrupted();
}

/* The smallest buffer of all targets decides which cases fit. */
static int run_within_peers(const struct ferry_bench_job *job, uint64_t said_bytes)
{
    struct ferry_bench_limit limit = {.bytes = UINT64_MAX, .said_bytes = said_bytes};
    char name[320];

    for (size_t i = 0; i < job->peer_count; i++) {
        if (job->peers[i].bytes >= limit.bytes)
            continue;
        limit.bytes = job->peers[i].bytes;
        snprintf(name, sizeof(name), "buffer of %.300s", job->peers[i].name);
        limit.name = name;
    }
    if (said_bytes < limit.bytes)
        limit.bytes = said_bytes;
    if (ferry_bench_sweep_bytes(job->options, &limit) == 0)
        return FERRY_EXIT_USAGE;
    return run_all(job, limit.bytes);
}

static int run_against(struct ferry_bench_job *job, const char *const *names, size_t count,
                       uint64_t said_bytes)
{
    int exit_status = FERRY_EXIT_OK;

    for (size_t i = 0; i < count && exit_status == FERRY_EXIT_OK; i++) {
        exit_status = ferry_bench_peer_open(job->engine, job->options, names[i], &job->peers[i]);
        if (exit_status == FERRY_EXIT_OK)
            job->peer_count++;
    }
    if (exit_status == FERRY_EXIT_OK)
        exit_status = run_within_peers(job, said_bytes);
    for (size_t i = 0; i < job->peer_count; i++)
        ferry_bench_peer_close(job->engine, &job->peers[i]);
    return exit_status;
}

/* With @target started, or the options' targets. */
static int initiate(const struct ferry_bench_options *options, const struct ferry_config *config,
                    struct ferry_bench_target *target, uint64_t said_bytes)
{
    struct ferry_bench_job job = {.options = options,
                                  .target = options->target_count == 0 ? target : NULL};
    const char *own[] = {target->name};
    int exit_status = FERRY_EXIT_OK;

    job.engine = ferry_cli_open(config, &exit_status);
    if (job.engine == NULL)
        return exit_status;
    if (options->target_count > 0)
        exit_status = run_against(&job, (const char *const *)options->targets,
                                  options->target_count, said_bytes);
    else
        exit_status = run_against(&job, own, 1, said_bytes);
    return ferry_cli_close(job.engine, exit_status);
}

static int bench(const struct ferry_bench_options *options, const struct ferry_config *config)
{
    bool bounded = options->target_count == 0 || options->buffer_given;
    struct ferry_bench_limit limit = {
        .bytes = bounded ? options->buffer_bytes : UINT64_MAX,
        .said_bytes = UINT64_MAX,
        .name = !bounded             ? "64 bits"
                : options->reference ? "--total_buffer_size"
                                     : "--buffer",
    };
    struct ferry_bench_target target = {0};
    uint64_t bytes = ferry_bench_sweep_bytes(options, &limit);
    int exit_status = FERRY_EXIT_OK;

    if (bytes == 0)
        return FERRY_EXIT_USAGE;
    if (options->target_count == 0)
        exit_status = ferry_bench_target_start(&options->cli, bytes + options->window_offset,
                                               &target);
    /* From here on there are threads; before that a signal has its usual effect, on both. */
    if (exit_status == FERRY_EXIT_OK && !ferry_bench_interrupt_start())
        exit_status = FERRY_EXIT_ENVIRONMENT;
    if (exit_status == FERRY_EXIT_OK)
        exit_status = initiate(options, config, &target, limit.bytes);
    if (!ferry_bench_target_stop(&target) && exit_status == FERRY_EXIT_OK)
        exit_status = FERRY_EXIT_ENVIRONMENT;
    return exit_status;
}

int ferry_bench_main(int argc, char **argv)
{
    struct ferry_bench_options options;
    int exit_status = FERRY_EXIT_USAGE;

    ferry_bench_options_read(&options, argc, argv);
    /* A reader that goes away is an error like any other, with our target ended in good order. */
    signal(SIGPIPE, SIG_IGN);

    struct ferry_config *config = make_config(&options);

    if (config != NULL) {
        if (options.reference && options.target_count == 0)
            exit_status = ferry_bench_be_target(config, &options);
        else
            exit_status = bench(&options, config);
    }
    ferry_config_destroy(config);
    ferry_bench_options_fini(&options);
    return exit_status;
}
