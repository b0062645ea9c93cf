/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics of an engine, collected when somebody asks. Any thread; one at a time, under a mutex
 * that is held while transports are asked, which take their own inside. docs/operations.md lists
 * every name; names and labels are an interface.
 */
#include "runtime/metrics.h"

#include <stdlib.h>
#include <time.h>

#include "access/access.h"
#include "base/error.h"
#include "runtime/exposition.h"
#include "runtime/path_table.h"
#include "runtime/runtime.h"

/* Far above what full tables of all transports need. */
#define METRICS_SIZE_MAX (16u << 20)

struct ferry_metrics {
    pthread_mutex_t mutex;
    /* under it */
    struct ferry_path_labels labels;
    struct ferry_path_rest rests[FERRY_TRANSPORTS_MAX];
};

/* One collection. */
struct collection {
    struct ferry_engine *engine;
    struct ferry_exposition out;
    struct ferry_transport_totals totals[FERRY_TRANSPORTS_MAX];
    struct ferry_path_table *tables[FERRY_TRANSPORTS_MAX]; /* NULL: not in use */
};

static const char *const op_names[FERRY_TALLY_OPS] = {
    [FERRY_READ] = "read",
    [FERRY_WRITE] = "write",
};

static const char *const end_names[FERRY_TALLY_ENDS] = {
    [FERRY_TASK_COMPLETED - FERRY_TASK_COMPLETED] = "completed",
    [FERRY_TASK_INVALID - FERRY_TASK_COMPLETED] = "invalid",
    [FERRY_TASK_CANCELED - FERRY_TASK_COMPLETED] = "canceled",
    [FERRY_TASK_TIMED_OUT - FERRY_TASK_COMPLETED] = "timed_out",
    [FERRY_TASK_FAILED - FERRY_TASK_COMPLETED] = "failed",
};

enum ferry_status ferry_metrics_open(struct ferry_metrics **metrics_out)
{
    struct ferry_metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: out of memory");
    pthread_mutex_init(&metrics->mutex, NULL);
    *metrics_out = metrics;
    return FERRY_OK;
}

void ferry_metrics_close(struct ferry_metrics *metrics)
{
    if (metrics == NULL)
        return;
    pthread_mutex_destroy(&metrics->mutex);
    free(metrics);
}

/* ---- what the transports say ---- */

static enum ferry_status measure(struct collection *c)
{
    struct ferry_metrics *metrics = c->engine->metrics;

    for (uint32_t i = 0; i < c->engine->transport_count; i++) {
        struct ferry_transport *transport = c->engine->transports[i].transport;

        if (transport == NULL)
            continue;
        c->tables[i] = calloc(1, sizeof(*c->tables[i]));
        if (c->tables[i] == NULL)
            return ferry_fail(FERRY_ERR_NO_MEMORY, "metrics: out of memory");
        c->tables[i]->labels = &metrics->labels;
        ferry_transport_measure(transport, &c->totals[i], ferry_path_table_add, c->tables[i]);
        ferry_path_table_settle(c->tables[i], &metrics->rests[i]);
    }
    return FERRY_OK;
}

static const char *transport_name(const struct collection *c, uint32_t transport)
{
    return c->engine->transports[transport].ops->name;
}

/* One sample a path of all transports. */
static void add_paths(struct collection *c, enum ferry_path_counter counter, const char *op)
{
    for (uint32_t t = 0; t < c->engine->transport_count; t++) {
        for (uint32_t i = 0; c->tables[t] != NULL && i <= FERRY_PATH_PEERS; i++) {
            for (uint32_t k = 0; k <= FERRY_PATH_RAILS; k++) {
                const struct ferry_path_row *row = &c->tables[t]->rows[i][k];
                struct ferry_label labels[] = {
                    {"transport", transport_name(c, t)},
                    {"peer", ferry_path_peer(c->tables[t], i)},
                    {"rail", row->rail},
                    {"op", op},
                };

                /* Bytes that are told apart, or those that are not. */
                if (!row->used || (counter == FERRY_PATH_ANY_BYTES && row->counters[counter] == 0))
                    continue;
                ferry_exposition_value(&c->out, labels, op != NULL ? 4 : 3, row->counters[counter]);
            }
        }
    }
}

static void add_path_families(struct collection *c)
{
    static const struct {
        enum ferry_path_counter counter;
        const char *name;
        const char *help;
    } families[] = {
        {FERRY_PATH_OPERATIONS, "ferry_rail_operations_total",
         "Operations that ended on a rail; a request may be several."},
        {FERRY_PATH_CONNECTS, "ferry_rail_connects_total",
         "Connections that came about on a rail."},
        {FERRY_PATH_FAILURES, "ferry_rail_failures_total",
         "Connections of a rail that failed or broke, and pauses after errors."},
        {FERRY_PATH_RESENDS, "ferry_rail_resends_total",
         "Operations that were sent again after their connection broke."},
    };

    ferry_exposition_family(&c->out, "ferry_rail_bytes_total", "counter",
                            "Payload that was moved over a rail, as initiator.");
    add_paths(c, FERRY_PATH_READ_BYTES, "read");
    add_paths(c, FERRY_PATH_WRITE_BYTES, "write");
    add_paths(c, FERRY_PATH_ANY_BYTES, "any");
    for (size_t i = 0; i < FERRY_ARRAY_LEN(families); i++) {
        ferry_exposition_family(&c->out, families[i].name, "counter", families[i].help);
        add_paths(c, families[i].counter, NULL);
    }
}

static void add_rail_states(struct collection *c)
{
    ferry_exposition_family(&c->out, "ferry_rail_up", "gauge",
                            "1 if work may use the rail, 0 if it is kept away from it.");
    for (uint32_t t = 0; t < c->engine->transport_count; t++) {
        for (uint32_t i = 0; c->tables[t] != NULL && i < FERRY_PATH_PEERS; i++) {
            for (uint32_t k = 0; k < FERRY_PATH_RAILS; k++) {
                const struct ferry_path_row *row = &c->tables[t]->rows[i][k];
                struct ferry_label labels[] = {
                    {"transport", transport_name(c, t)},
                    {"peer", ferry_path_peer(c->tables[t], i)},
                    {"rail", row->rail},
                };

                if (row->used && row->has_state)
                    ferry_exposition_value(&c->out, labels, 3, row->up);
            }
        }
    }
}

static void add_totals(struct collection *c)
{
    static const struct {
        size_t offset;
        const char *name;
        const char *type;
        const char *help;
    } families[] = {
        {offsetof(struct ferry_transport_totals, inflight_requests), "ferry_inflight_requests",
         "gauge", "Requests that a transport has accepted and not ended."},
        {offsetof(struct ferry_transport_totals, inflight_bytes), "ferry_inflight_bytes", "gauge",
         "Bytes of the requests in flight, where a transport counts them."},
        {offsetof(struct ferry_transport_totals, peers), "ferry_peers", "gauge",
         "Peers that a transport knows as initiator."},
        {offsetof(struct ferry_transport_totals, served_operations),
         "ferry_served_operations_total", "counter", "Operations that were served to peers."},
        {offsetof(struct ferry_transport_totals, served_bytes), "ferry_served_bytes_total",
         "counter", "Payload that was served to peers or taken from them."},
    };

    for (size_t i = 0; i < FERRY_ARRAY_LEN(families); i++) {
        ferry_exposition_family(&c->out, families[i].name, families[i].type, families[i].help);
        for (uint32_t t = 0; t < c->engine->transport_count; t++) {
            struct ferry_label label = {"transport", transport_name(c, t)};
            const char *at = (const char *)&c->totals[t] + families[i].offset;

            if (c->tables[t] != NULL)
                ferry_exposition_value(&c->out, &label, 1, *(const uint64_t *)(const void *)at);
        }
    }
}

/* ---- what the runtime counts ---- */

enum request_family {
    REQUESTS,
    BYTES,
    DURATIONS,
};

/* Histograms that are empty are left out: one for each end would be most of the text. */
static void add_requests(struct collection *c, enum request_family family)
{
    for (uint32_t t = 0; t < c->engine->transport_count; t++) {
        for (int op = 0; c->tables[t] != NULL && op < FERRY_TALLY_OPS; op++) {
            for (int end = 0; end < FERRY_TALLY_ENDS; end++) {
                struct ferry_tally_sum sum = ferry_tally_sum(
                    &c->engine->tally, t, (enum ferry_opcode)op,
                    (enum ferry_task_state)(FERRY_TASK_COMPLETED + end));
                struct ferry_label labels[] = {
                    {"transport", transport_name(c, t)},
                    {"op", op_names[op]},
                    {"status", end_names[end]},
                };

                if (family == REQUESTS)
                    ferry_exposition_value(&c->out, labels, 3, sum.count);
                else if (family == BYTES)
                    ferry_exposition_value(&c->out, labels, 3, sum.bytes);
                else if (sum.count > 0)
                    ferry_exposition_tally(&c->out, labels, 3, &sum);
            }
        }
    }
}

static void add_request_families(struct collection *c)
{
    ferry_exposition_family(&c->out, "ferry_requests_total", "counter",
                            "Requests that ended, by how.");
    add_requests(c, REQUESTS);
    ferry_exposition_family(&c->out, "ferry_request_bytes_total", "counter",
                            "Lengths of the requests that ended, by how.");
    add_requests(c, BYTES);
    ferry_exposition_family(&c->out, "ferry_request_duration_seconds", "histogram",
                            "Time from the submission of a request to its end.");
    add_requests(c, DURATIONS);
}

static void add_number(struct collection *c, const char *name, const char *type, const char *help,
                       uint64_t value)
{
    ferry_exposition_family(&c->out, name, type, help);
    ferry_exposition_value(&c->out, NULL, 0, value);
}

static void add_engine(struct collection *c)
{
    struct ferry_engine *engine = c->engine;
    struct ferry_label version = {"version", ferry_version()};
    struct timespec cpu = {0};

    ferry_exposition_family(&c->out, "ferry_build_info", "gauge", "1, with the library's version.");
    ferry_exposition_value(&c->out, &version, 1, 1);
    ferry_exposition_family(&c->out, "ferry_transport_up", "gauge",
                            "1 if the engine uses the transport.");
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_label label = {"transport", transport_name(c, i)};

        ferry_exposition_value(&c->out, &label, 1, engine->transports[i].transport != NULL);
    }
    add_number(c, "ferry_registered_buffers", "gauge", "Ranges of memory that are registered.",
               ferry_registry_count(&engine->registry));
    add_number(c, "ferry_open_batches", "gauge", "Batches that exist.",
               ferry_pool_used(&engine->batches));
    add_number(c, "ferry_open_segments", "gauge", "Segments that are open.",
               ferry_pool_used(&engine->segments));
    add_number(c, "ferry_segment_refreshes_total", "counter",
               "Descriptions of peers and files that were read.",
               atomic_load(&engine->refresh_count));
    add_number(c, "ferry_publications_total", "counter",
               "Times that the own description was published.",
               atomic_load(&engine->publish_count));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    ferry_exposition_family(&c->out, "ferry_process_cpu_seconds_total", "counter",
                            "Time on cores of the whole process.");
    ferry_exposition_ns(&c->out, NULL, 0,
                        (uint64_t)cpu.tv_sec * FERRY_NS_PER_S + (uint64_t)cpu.tv_nsec);
}

/* Nothing where access control is off. */
static void add_refusals(struct collection *c)
{
    struct ferry_access_control *access = c->engine->access;

    if (!ferry_access_on(access))
        return;
    ferry_exposition_family(&c->out, "ferry_refused_total", "counter",
                            "Who was not let in, by plane and reason.");
    for (uint32_t i = 0; i < FERRY_REFUSAL_COUNT; i++) {
        struct ferry_label control[] = {{"plane", "control"},
                                        {"reason", ferry_refusal_name((enum ferry_refusal)i)}};
        struct ferry_label data[] = {{"plane", "data"},
                                     {"reason", ferry_refusal_name((enum ferry_refusal)i)}};

        ferry_exposition_value(&c->out, control, 2,
                               atomic_load(&access->control_refusals.counts[i]));
        ferry_exposition_value(&c->out, data, 2, atomic_load(&access->data_refusals.counts[i]));
    }
}

static enum ferry_status collect(struct collection *c, char **text_out, size_t *len_out)
{
    enum ferry_status status = measure(c);

    if (status != FERRY_OK) {
        ferry_text_fini(&c->out.text);
        return status;
    }
    add_engine(c);
    add_request_families(c);
    add_path_families(c);
    add_rail_states(c);
    add_totals(c);
    add_refusals(c);
    return ferry_exposition_take(&c->out, text_out, len_out);
}

enum ferry_status ferry_metrics_print(struct ferry_engine *engine, enum ferry_exposition_form form,
                                      char **text_out, size_t *len_out)
{
    struct collection c = {.engine = engine};
    enum ferry_status status;

    ferry_exposition_init(&c.out, form, METRICS_SIZE_MAX);
    pthread_mutex_lock(&engine->metrics->mutex);
    status = collect(&c, text_out, len_out);
    pthread_mutex_unlock(&engine->metrics->mutex);
    for (uint32_t i = 0; i < FERRY_TRANSPORTS_MAX; i++)
        free(c.tables[i]);
    return status;
}
