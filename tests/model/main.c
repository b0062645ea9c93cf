/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model rig's program: runs schedules from consecutive seeds, stops at the first broken rule
 * with its seed and its latest steps, and says at the end how often each fault, event and end
 * occurred. A fault that never fired is a failure of the run.
 *
 *   model_hp_tcp [SCHEDULES [FIRST_SEED]]
 *
 *   FERRY_TEST_SEED=N        replay one schedule
 *   FERRY_TEST_SCHEDULES=N  how many (default 10 000; with FERRY_TEST_LONG=1 10^6)
 *   FERRY_TEST_VERBOSE=1    print every step as it happens
 */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "model.h"
#include "transport/hp_tcp/hp_tcp.h"

#define SCHEDULES_DEFAULT 10000
#ifdef __has_feature
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define SCHEDULES_LONG 50000 /* these builds are several times slower */
#else
#define SCHEDULES_LONG 1000000
#endif
#define FIRST_DEFAULT 1
/* Fewer are too few for every fault to have its turn. */
#define COUNTS_MATTER_FROM 1000
/* Seconds of real time for one schedule; they take about a millisecond. */
#define PATIENCE_S 60

static struct model *running; /* for the crash handler */

static void print_step(const struct model_trace *step)
{
    const uint64_t *v = step->values;

    printf("  %12.6f ms  ", (double)(step->now_ns - FERRY_NS_PER_S) / 1e6);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    printf(step->format, (unsigned long long)v[0], (unsigned long long)v[1],
           (unsigned long long)v[2], (unsigned long long)v[3], (unsigned long long)v[4]);
#pragma GCC diagnostic pop
    printf("\n");
}

void model_note(struct model *model, const char *format, const uint64_t values[5])
{
    struct model_trace *step = &model->trace[model->trace_count++ % MODEL_TRACE_MAX];

    step->format = format;
    step->now_ns = sim_net_now_ns(model->net);
    memcpy(step->values, values, sizeof(step->values));
    if (model->verbose)
        print_step(step);
}

static void print_trace(const struct model *model)
{
    const struct model_profile *p = &model->profile;
    uint32_t first = model->trace_count > MODEL_TRACE_MAX ? model->trace_count - MODEL_TRACE_MAX
                                                          : 0;

    printf("schedule: nodes %u, workers %u, lanes %u, window %u ops %u bytes, chunk %u, "
           "%s%s%s%s%s%s%s%s, rails %u/%u/%u\n",
           p->nodes, p->workers, p->lanes, p->window_ops, p->window_bytes, p->chunk_bytes,
           p->v1 ? "v1" : "ferry", p->calm ? ", calm" : "", p->churn ? ", churn" : "",
           p->deaths ? ", deaths" : "", p->bad ? ", bad requests" : "",
           p->forged ? ", forged descriptions" : "", p->cuts ? ", cuts" : "",
           p->isolation ? ", isolation" : "", p->rails[0], p->rails[1], p->rails[2]);
    for (uint32_t i = first; i < model->trace_count && !model->verbose; i++)
        print_step(&model->trace[i % MODEL_TRACE_MAX]);
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *t = &model->tasks[i];

        if (t->state != MODEL_TASK_FREE)
            printf("  task %u is %s: %s node %u [%u] to %u [%u], %u bytes, %u landed%s%s\n",
                   t->serial,
                   t->state == MODEL_TASK_RUNNING ? "running"
                   : t->state == MODEL_TASK_HELD  ? "held"
                                                  : "unknown",
                   t->xfer.opcode == FERRY_READ ? "read" : "write", t->from->index, t->local,
                   t->to->index, t->remote, t->length, t->landed_count,
                   t->canceled ? ", canceled" : "", t->bad ? ", bad" : "");
    }
    printf("FAILED after %" PRIu64 " steps; replay with FERRY_TEST_SEED=%" PRIu64 "\n",
           model->steps, model->seed);
    fflush(stdout);
}

void model_fail(struct model *model, const char *format, ...)
{
    va_list args;

    running = NULL;
    print_trace(model);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    _exit(1);
}

/* An assertion in the library, a crash, or a schedule that does not end. */
static void on_signal(int number)
{
    if (running != NULL) {
        print_trace(running);
        printf("signal %d (%s)\n", number,
               number == SIGALRM ? "the schedule does not end" : strsignal(number));
        fflush(stdout);
    }
    _exit(1);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        signal(numbers[i], on_signal);
}

static void random_fill(struct ferry_random *random, void *buf, size_t len)
{
    struct model *model = (struct model *)(void *)((char *)random - offsetof(struct model, random));

    for (size_t done = 0; done < len; done += 8) {
        uint64_t word = sim_random(model->net);

        memcpy((char *)buf + done, &word, len - done < 8 ? len - done : 8);
    }
}

static struct model *model_create(void)
{
    struct model *model = calloc(1, sizeof(*model));

    model->random.fill = random_fill;
    model->verbose = getenv("FERRY_TEST_VERBOSE") != NULL;
    if (ferry_transport_ops_merge(&ferry_hp_tcp_ops, &model->ops) != FERRY_OK)
        abort();
    for (uint32_t i = 0; i < MODEL_NODES_MAX; i++) {
        model->arenas[i][0] = malloc(MODEL_ARENA_BYTES);
        model->arenas[i][1] = malloc(MODEL_ARENA_BYTES);
    }
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++)
        model->landed_maps[i] = malloc(MODEL_REGION_MAX);
    return model;
}

static void model_destroy(struct model *model)
{
    for (uint32_t i = 0; i < MODEL_NODES_MAX; i++) {
        free(model->arenas[i][0]);
        free(model->arenas[i][1]);
    }
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++)
        free(model->landed_maps[i]);
    free(model);
}

static uint32_t print_counts(const struct model *model)
{
    static const char *const names[] = {
#define MODEL_EVENT_NAME(name, text) text,
        MODEL_EVENT_TABLE(MODEL_EVENT_NAME)
#undef MODEL_EVENT_NAME
    };
    uint32_t missing = 0;

    printf("faults:");
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++) {
        printf(" %s %" PRIu64, sim_fault_name((enum sim_fault)i), model->faults[i]);
        missing += model->faults[i] == 0;
    }
    printf("\nevents:");
    for (uint32_t i = 0; i < MODEL_EVENT_COUNT; i++) {
        printf(" %s %" PRIu64, names[i], model->events[i]);
        missing += model->events[i] == 0;
    }
    printf("\nends:");
    for (uint32_t i = 0; i < sizeof(model->ends) / sizeof(model->ends[0]); i++) {
        if (model->ends[i] > 0)
            printf(" %s %" PRIu64, ferry_status_name((enum ferry_status) - (int)i), model->ends[i]);
    }
    printf("\nturns: %" PRIu64 "\n", model->total_steps);
    return missing;
}

static uint64_t number(const char *text, uint64_t fallback)
{
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

int main(int argc, char **argv)
{
    const char *replay = getenv("FERRY_TEST_SEED");
    const char *is_long = getenv("FERRY_TEST_LONG");
    uint64_t count = is_long != NULL && is_long[0] == '1' ? SCHEDULES_LONG : SCHEDULES_DEFAULT;
    uint64_t first = FIRST_DEFAULT;
    struct model *model = model_create();
    uint32_t missing;

    count = number(getenv("FERRY_TEST_SCHEDULES"), count);
    count = number(argc > 1 ? argv[1] : NULL, count);
    first = number(argc > 2 ? argv[2] : NULL, first);
    if (replay != NULL) {
        first = number(replay, 0);
        count = 1;
    }
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    ferry_log_set_level(FERRY_LOG_ERROR);
    catch_signals();
    for (uint64_t i = 0; i < count; i++) {
        alarm(PATIENCE_S);
        running = model;
        model_run(model, first + i);
        running = NULL;
    }
    alarm(0);
    printf("%" PRIu64 " schedules from seed %" PRIu64 ", no rule broken\n", count, first);
    missing = print_counts(model);
    model_destroy(model);
    if (missing > 0 && count >= COUNTS_MATTER_FROM) {
        printf("FAILED: %u faults or events never occurred\n", missing);
        return 1;
    }
    return 0;
}
