/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One case from its memory to its sums. The main thread; it starts the loops, moves their gate, and
 * reads the meters while they run.
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "interrupt.h"

#define UNREGISTER_NS UINT64_C(5000000000)

/* For the report of a target, and of one that has failed and may well be gone. */
#define REPORT_MS        2000
#define REPORT_FAILED_MS 300

/* The memory, the threads and the gate of a case. */
struct field {
    const struct ferry_bench_job *job;
    const struct ferry_bench_case *c;
    struct ferry_bench_gate gate;
    struct ferry_bench_loop *loops;
    uint32_t started;
    unsigned char *memory;
    uint64_t memory_bytes;
    uint64_t loop_bytes; /* of it, for each loop */
};

static uint64_t moved_bytes(const void *arg)
{
    const struct field *field = arg;
    uint64_t moved = 0;

    for (uint32_t i = 0; i < field->started; i++)
        moved += atomic_load_explicit(&field->loops[i].moved_bytes, memory_order_relaxed);
    return moved;
}

/* Nine tenths of what this host has. */
static uint64_t memory_limit(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) / 10 * 9 * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int map_memory(struct field *field)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t stride;
    enum ferry_status status;

    if (!ferry_bench_slot_stride(&field->gate.traffic, &stride) ||
        __builtin_mul_overflow(stride, (uint64_t)field->c->batch, &field->loop_bytes) ||
        __builtin_mul_overflow(field->loop_bytes, (uint64_t)field->c->threads,
                               &field->memory_bytes) ||
        field->memory_bytes > memory_limit()) {
        ferry_cli_say("not enough memory: %" PRIu32 " threads with %" PRIu32 " blocks of %" PRIu64
                      " bytes, expected at most %" PRIu64 " bytes",
                      field->c->threads, field->c->batch, field->c->block, memory_limit());
        return FERRY_EXIT_ENVIRONMENT;
    }
    field->memory = mmap(NULL, field->memory_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (field->memory == MAP_FAILED) {
        field->memory = NULL;
        ferry_cli_say("no memory for %" PRIu64 " bytes: %s", field->memory_bytes, strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    range.addr = field->memory;
    range.length = field->memory_bytes;
    range.permission = FERRY_PERMISSION_LOCAL;
    status = ferry_memory_register(field->job->engine, &range, 1);
    if (status == FERRY_OK)
        return FERRY_EXIT_OK;
    munmap(field->memory, field->memory_bytes);
    field->memory = NULL;
    return ferry_cli_fail(status, "memory");
}

/* What may still be touched is left alone; the end of the process frees it. */
static void unmap_memory(struct field *field, bool stuck)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    if (field->memory == NULL || stuck)
        return;
    range.addr = field->memory;
    range.length = field->memory_bytes;
    if (ferry_memory_unregister(field->job->engine, &range, 1, UNREGISTER_NS) == FERRY_OK)
        munmap(field->memory, field->memory_bytes);
}

static void init_gate(struct field *field)
{
    const struct ferry_bench_options *options = field->job->options;
    struct ferry_bench_gate *gate = &field->gate;
    pthread_condattr_t attributes;

    gate->engine = field->job->engine;
    gate->traffic = (struct ferry_bench_traffic){
        .op = options->op,
        .check = options->check,
        .seed = options->seed,
        .block = field->c->block,
        .scatter = field->c->scatter,
    };
    gate->transport = options->transport;
    gate->batch = field->c->batch;
    gate->threads = field->c->threads;
    gate->warmup_ns = options->warmup_ns;
    gate->duration_ns = options->duration_ns;
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void init_loops(struct field *field)
{
    uint64_t remote_bytes = ferry_bench_case_span(field->c) * field->c->batch;

    for (uint32_t i = 0; i < field->c->threads; i++) {
        struct ferry_bench_loop *loop = &field->loops[i];

        loop->gate = &field->gate;
        loop->peer = &field->job->peers[i % field->job->peer_count];
        loop->index = i;
        loop->memory = field->memory + i * field->loop_bytes;
        loop->remote = loop->peer->addr + i * remote_bytes;
    }
}

static int start_loops(struct field *field)
{
    for (uint32_t i = 0; i < field->c->threads; i++) {
        int err = pthread_create(&field->loops[i].thread, NULL, ferry_bench_loop_main,
                                 &field->loops[i]);

        if (err != 0) {
            ferry_cli_say("cannot start thread %" PRIu32 " of %" PRIu32 ": %s", i + 1,
                          field->c->threads, strerror(err));
            atomic_store(&field->gate.failed, true);
            return FERRY_EXIT_ENVIRONMENT;
        }
        field->started++;
    }
    return FERRY_EXIT_OK;
}

static bool all_warm(const struct ferry_bench_gate *gate)
{
    return gate->warm == gate->threads;
}

static bool all_measured(const struct ferry_bench_gate *gate)
{
    return atomic_load(&gate->measured) == gate->threads;
}

/*
 * Sleep until all loops are so far, one failed, or a signal came. Every request ends within the
 * engine's own time limits, and so does this.
 */
static void await(struct ferry_bench_gate *gate, bool (*done)(const struct ferry_bench_gate *))
{
    pthread_mutex_lock(&gate->mutex);
    while (!done(gate) && !atomic_load(&gate->failed) && ferry_bench_interrupted() == 0)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void let_go(struct ferry_bench_gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    atomic_store(&gate->phase, FERRY_BENCH_STOP);
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

static void measure(struct field *field, struct ferry_bench_result *result)
{
    struct ferry_bench_meter meter = {
        .engine = field->job->engine,
        .peers = field->job->peers,
        .peer_count = field->job->peer_count,
        .timeout_ms = REPORT_MS,
        .moved = moved_bytes,
        .moved_arg = field,
    };

    await(&field->gate, all_warm);
    ferry_bench_reading_take(&meter, &result->before);
    atomic_store(&field->gate.phase, FERRY_BENCH_MEASURE);
    await(&field->gate, all_measured);
    if (atomic_load(&field->gate.failed))
        meter.timeout_ms = REPORT_FAILED_MS;
    ferry_bench_reading_take(&meter, &result->after);
}

static void join_transports(struct field *field, struct ferry_bench_result *result)
{
    for (uint32_t i = 0; i < field->started; i++) {
        const struct ferry_bench_loop *loop = &field->loops[i];

        for (uint32_t k = 0; k < loop->transport_count; k++) {
            size_t used = strlen(result->transport);

            if (strstr(result->transport, loop->transports[k]) == NULL)
                snprintf(result->transport + used, sizeof(result->transport) - used, "%s%s",
                         used > 0 ? "+" : "", loop->transports[k]);
        }
    }
}

/*
 * The rate is the sum of the threads' rates, each over its own window; the seconds are what makes
 * bytes / seconds that rate, a mean of the windows.
 */
static void sum_up(struct field *field, struct ferry_bench_result *result)
{
    double ops_per_s = 0;
    double longest_s = 0;

    for (uint32_t i = 0; i < field->started; i++) {
        const struct ferry_bench_loop *loop = &field->loops[i];
        double window_s = loop->end_ns > loop->begin_ns
                              ? (double)(loop->end_ns - loop->begin_ns) / 1e9
                              : 0;

        result->ops += loop->ops;
        result->errors += loop->errors;
        result->verified_bytes += loop->verified_bytes;
        result->stuck = result->stuck || loop->stuck;
        result->partial = result->partial || (ferry_bench_interrupted() != 0 &&
                                              (loop->end_ns == 0 || loop->end_ns - loop->begin_ns <
                                                                        field->gate.duration_ns));
        ferry_bench_histogram_merge(&result->latency, &loop->latency);
        if (window_s > 0)
            ops_per_s += (double)loop->ops / window_s;
        longest_s = window_s > longest_s ? window_s : longest_s;
    }
    result->bytes = result->ops * field->c->block;
    result->moved_bytes = moved_bytes(field);
    result->seconds = ops_per_s > 0 ? (double)result->ops / ops_per_s : longest_s;
    join_transports(field, result);
    snprintf(result->failure, sizeof(result->failure), "%s", field->gate.failure);
    snprintf(result->difference, sizeof(result->difference), "%s", field->gate.difference);
}

/* A pinned transport must be the one that served. */
static void check_transport(const struct ferry_bench_options *options,
                            struct ferry_bench_result *result)
{
    if (options->transport == NULL || result->transport[0] == '\0' ||
        strcmp(options->transport, result->transport) == 0)
        return;
    result->errors++;
    if (result->failure[0] == '\0')
        snprintf(result->failure, sizeof(result->failure), "--transport %s: served by %s",
                 options->transport, result->transport);
}

static int run_field(struct field *field, struct ferry_bench_result *result)
{
    int exit_status = map_memory(field);

    if (exit_status != FERRY_EXIT_OK)
        return exit_status;
    init_loops(field);
    result->transports_before = ferry_bench_transports(field->job->engine);
    exit_status = start_loops(field);
    if (exit_status == FERRY_EXIT_OK)
        measure(field, result);
    let_go(&field->gate);
    for (uint32_t i = 0; i < field->started; i++)
        pthread_join(field->loops[i].thread, NULL);
    result->transports_after = ferry_bench_transports(field->job->engine);
    sum_up(field, result);
    check_transport(field->job->options, result);
    unmap_memory(field, result->stuck);
    return exit_status;
}

int ferry_bench_run(const struct ferry_bench_job *job, const struct ferry_bench_case *c,
                    struct ferry_bench_result *result_out)
{
    struct field field = {.job = job, .c = c};
    int exit_status;

    memset(result_out, 0, sizeof(*result_out));
    result_out->c = *c;
    field.loops = calloc(c->threads, sizeof(*field.loops));
    if (field.loops == NULL) {
        ferry_cli_say("out of memory");
        return FERRY_EXIT_ENVIRONMENT;
    }
    init_gate(&field);
    ferry_bench_interrupt_gate(&field.gate);
    exit_status = run_field(&field, result_out);
    ferry_bench_interrupt_gate(NULL);
    pthread_cond_destroy(&field.gate.changed);
    pthread_mutex_destroy(&field.gate.mutex);
    free(field.loops);
    return exit_status;
}

void ferry_bench_result_fini(struct ferry_bench_result *result)
{
    ferry_bench_reading_drop(&result->before);
    ferry_bench_reading_drop(&result->after);
    json_object_put(result->transports_before);
    json_object_put(result->transports_after);
    result->transports_before = NULL;
    result->transports_after = NULL;
}
