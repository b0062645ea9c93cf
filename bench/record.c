/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the record of a case. Numbers that cannot be known (a target without a report, latencies
 * without a request) are null, never 0.
 */
#include "record.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "placement.h"

#define BYTES_PER_GB 1e9

/* A negative number is one that is not known. */
static struct json_object *number(double value)
{
    return value >= 0 ? ferry_cli_json_number(value) : NULL;
}

static void add(struct json_object *object, const char *key, struct json_object *value)
{
    json_object_object_add(object, key, value);
}

static double per_gb(double cpu_s, uint64_t bytes)
{
    return cpu_s >= 0 && bytes > 0 ? cpu_s / ((double)bytes / BYTES_PER_GB) : -1;
}

double ferry_bench_initiator_cpu_s_per_gb(const struct ferry_bench_result *result)
{
    return per_gb(ferry_bench_cpu_s(result->before.self, result->after.self),
                  result->after.self_moved_bytes - result->before.self_moved_bytes);
}

static double targets_cpu_s(const struct ferry_bench_job *job,
                            const struct ferry_bench_result *result)
{
    double sum = 0;

    for (size_t i = 0; i < job->peer_count; i++) {
        double one = ferry_bench_cpu_s(result->before.peers[i], result->after.peers[i]);

        if (one < 0)
            return -1;
        sum += one;
    }
    return sum;
}

double ferry_bench_target_cpu_s_per_gb(const struct ferry_bench_job *job,
                                       const struct ferry_bench_result *result)
{
    return per_gb(targets_cpu_s(job, result),
                  result->after.peer_moved_bytes - result->before.peer_moved_bytes);
}

static struct json_object *latencies(const struct ferry_bench_histogram *latency)
{
    static const struct {
        const char *key;
        double fraction;
    } rows[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    struct json_object *object = json_object_new_object();
    bool some = latency->count > 0;

    add(object, "mean", number(some ? ferry_bench_histogram_mean_ns(latency) / 1e3 : -1));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        add(object, rows[i].key,
            number(some ? (double)ferry_bench_histogram_at(latency, rows[i].fraction) / 1e3 : -1));
    add(object, "max", number(some ? (double)latency->max_ns / 1e3 : -1));
    return object;
}

static struct json_object *pair(struct json_object *initiator, struct json_object *target)
{
    struct json_object *object = json_object_new_object();

    add(object, "initiator", initiator);
    add(object, "target", target);
    return object;
}

static struct json_object *peak_rss(const struct ferry_bench_job *job,
                                    const struct ferry_bench_result *result)
{
    uint64_t own = ferry_bench_peak_rss(result->after.self);
    uint64_t most = 0;

    for (size_t i = 0; i < job->peer_count; i++) {
        uint64_t one = ferry_bench_peak_rss(result->after.peers[i]);

        most = one > most ? one : most;
    }
    return pair(own > 0 ? json_object_new_uint64(own) : NULL,
                most > 0 ? json_object_new_uint64(most) : NULL);
}

/* CPU seconds of a thread at the earlier report; 0 if it did not exist then. */
static double thread_cpu_before(struct json_object *before, uint64_t tid)
{
    struct json_object *threads = NULL;

    json_object_object_get_ex(before, "threads", &threads);
    for (size_t i = 0; threads != NULL && i < json_object_array_length(threads); i++) {
        struct json_object *thread = json_object_array_get_idx(threads, i);

        if (ferry_bench_member_u64(thread, "tid", 0) == tid)
            return ferry_bench_member_double(thread, "cpu_seconds", 0);
    }
    return 0;
}

/* Threads with a number drive transports: "ferry-hp-0". */
static bool is_worker(const char *name)
{
    size_t len = strlen(name);

    return strncmp(name, "ferry-", 6) == 0 && name[len - 1] >= '0' && name[len - 1] <= '9';
}

/* Put each thread of a process into the list of its kind. */
static struct json_object *cpu_threads(struct json_object *before, struct json_object *after)
{
    struct json_object *object = json_object_new_object();
    struct json_object *callers = json_object_new_array();
    struct json_object *workers = json_object_new_array();
    struct json_object *others = json_object_new_array();
    struct json_object *threads = NULL;

    json_object_object_get_ex(after, "threads", &threads);
    for (size_t i = 0; threads != NULL && i < json_object_array_length(threads); i++) {
        struct json_object *thread = json_object_array_get_idx(threads, i);
        struct json_object *item = json_object_new_object();
        struct json_object *name = NULL;
        uint64_t tid = ferry_bench_member_u64(thread, "tid", 0);
        double cpu_s = ferry_bench_member_double(thread, "cpu_seconds", 0) -
                       thread_cpu_before(before, tid);

        json_object_object_get_ex(thread, "name", &name);
        add(item, "name", json_object_get(name));
        add(item, "seconds", number(cpu_s > 0 ? cpu_s : 0));

        const char *text = name != NULL ? json_object_get_string(name) : "";

        json_object_array_add(strncmp(text, "bench-", 6) == 0 ? callers
                              : is_worker(text)               ? workers
                                                              : others,
                              item);
    }
    add(object, "callers", callers);
    add(object, "workers", workers);
    add(object, "others", others);
    return object;
}

/* The bytes of a lane at the earlier report. */
static uint64_t lane_before(struct json_object *transport, const char *peer_name, uint64_t index)
{
    struct json_object *peers = NULL;

    json_object_object_get_ex(transport, "peers", &peers);
    for (size_t i = 0; peers != NULL && i < json_object_array_length(peers); i++) {
        struct json_object *peer = json_object_array_get_idx(peers, i);
        struct json_object *name = NULL;
        struct json_object *lanes = NULL;

        json_object_object_get_ex(peer, "name", &name);
        json_object_object_get_ex(peer, "lanes", &lanes);
        if (name == NULL || strcmp(json_object_get_string(name), peer_name) != 0)
            continue;
        for (size_t k = 0; lanes != NULL && k < json_object_array_length(lanes); k++) {
            struct json_object *lane = json_object_array_get_idx(lanes, k);

            if (ferry_bench_member_u64(lane, "lane", UINT64_MAX) == index)
                return ferry_bench_member_u64(lane, "bytes", 0);
        }
    }
    return 0;
}

static void add_lanes_of_peer(struct json_object *list, struct json_object *before,
                              struct json_object *peer)
{
    struct json_object *lanes = NULL;
    struct json_object *name = NULL;

    json_object_object_get_ex(peer, "name", &name);
    json_object_object_get_ex(peer, "lanes", &lanes);
    for (size_t i = 0; lanes != NULL && i < json_object_array_length(lanes); i++) {
        struct json_object *lane = json_object_array_get_idx(lanes, i);
        struct json_object *item;
        const char *peer_name = name != NULL ? json_object_get_string(name) : "";
        uint64_t index = ferry_bench_member_u64(lane, "lane", 0);
        uint64_t bytes = ferry_bench_member_u64(lane, "bytes", 0) -
                         lane_before(before, peer_name, index);

        if (bytes == 0)
            continue;
        item = json_object_new_object();
        add(item, "rail", json_object_new_uint64(ferry_bench_member_u64(lane, "rail", 0)));
        add(item, "lane", json_object_new_uint64(index));
        add(item, "bytes", json_object_new_uint64(bytes));
        add(item, "peer", json_object_new_string(peer_name));
        json_object_array_add(list, item);
    }
}

static struct json_object *lanes(const struct ferry_bench_result *result)
{
    struct json_object *list = json_object_new_array();
    struct json_object *after = ferry_bench_transport(result->transports_after, result->transport);
    struct json_object *before = ferry_bench_transport(result->transports_before,
                                                       result->transport);
    struct json_object *peers = NULL;

    json_object_object_get_ex(after, "peers", &peers);
    for (size_t i = 0; peers != NULL && i < json_object_array_length(peers); i++)
        add_lanes_of_peer(list, before, json_object_array_get_idx(peers, i));
    return list;
}

static struct json_object *reactor(const struct ferry_bench_result *result)
{
    struct json_object *transport = ferry_bench_transport(result->transports_after,
                                                          result->transport);
    struct json_object *value = NULL;

    json_object_object_get_ex(transport, "reactor", &value);
    return json_object_get(value);
}

static struct json_object *targets(const struct ferry_bench_job *job)
{
    struct json_object *list = json_object_new_array();

    for (size_t i = 0; i < job->peer_count; i++)
        json_object_array_add(list, json_object_new_string(job->peers[i].name));
    return list;
}

/* Keys beyond those that are promised. */
static void add_extras(struct json_object *record, const struct ferry_bench_job *job,
                       const struct ferry_bench_result *result)
{
    add(record, "check", json_object_new_boolean(job->options->check));
    add(record, "moved_bytes", json_object_new_uint64(result->moved_bytes));
    add(record, "cpu_s",
        pair(number(ferry_bench_cpu_s(result->before.self, result->after.self)),
             number(targets_cpu_s(job, result))));
    add(record, "cpu_threads_target", cpu_threads(result->before.peers[0], result->after.peers[0]));
    add(record, "targets", targets(job));
    add(record, "version", json_object_new_string(ferry_version()));
    if (result->partial)
        add(record, "partial", json_object_new_boolean(true));
    if (result->failure[0] != '\0')
        add(record, "failure", json_object_new_string(result->failure));
    if (result->difference[0] != '\0')
        add(record, "difference", json_object_new_string(result->difference));
}

struct json_object *ferry_bench_record(const struct ferry_bench_job *job,
                                       const struct ferry_bench_result *result)
{
    struct json_object *record = json_object_new_object();
    double seconds = result->seconds;
    double gb_per_s = seconds > 0 ? (double)result->bytes / BYTES_PER_GB / seconds : 0;
    double ops_per_s = seconds > 0 ? (double)result->ops / seconds : 0;

    add(record, "op", json_object_new_string(ferry_bench_op_name(job->options->op)));
    add(record, "transport",
        result->transport[0] != '\0' ? json_object_new_string(result->transport) : NULL);
    add(record, "reactor", reactor(result));
    add(record, "block", json_object_new_uint64(result->c.block));
    add(record, "pieces", json_object_new_uint64(result->c.scatter));
    add(record, "batch", json_object_new_uint64(result->c.batch));
    add(record, "threads", json_object_new_uint64(result->c.threads));
    add(record, "seconds", number(seconds));
    add(record, "ops", json_object_new_uint64(result->ops));
    add(record, "bytes", json_object_new_uint64(result->bytes));
    add(record, "errors", json_object_new_uint64(result->errors));
    add(record, "gb_per_s", number(gb_per_s));
    add(record, "ops_per_s", number(ops_per_s));
    add(record, "latency_us", latencies(&result->latency));
    add(record, "cpu_s_per_gb",
        pair(number(ferry_bench_initiator_cpu_s_per_gb(result)),
             number(ferry_bench_target_cpu_s_per_gb(job, result))));
    add(record, "cpu_threads", cpu_threads(result->before.self, result->after.self));
    add(record, "placement",
        pair(ferry_bench_placement_own(), ferry_bench_placement_target(result->after.peers[0])));
    add(record, "peak_rss_bytes", peak_rss(job, result));
    add(record, "verified_bytes", json_object_new_uint64(result->verified_bytes));
    add(record, "lanes", lanes(result));
    add_extras(record, job, result);
    return record;
}
