/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads reports and takes numbers out of them. A report that is missing is no error: a peer that
 * speaks another engine's protocol has none.
 */
#include "meter.h"

#include <json-c/json.h>
#include <string.h>

static struct json_object *ask_self(struct ferry_engine *engine, enum ferry_report report)
{
    char *text = NULL;

    if (ferry_engine_report(engine, report, &text) != FERRY_OK)
        return NULL;
    return ferry_cli_parse_json(text);
}

static struct json_object *ask_peer(const struct ferry_bench_meter *meter, uint64_t segment)
{
    char *text = NULL;

    if (ferry_segment_report(meter->engine, segment, "process",
                             ferry_cli_deadline_ms(meter->timeout_ms), &text) != FERRY_OK)
        return NULL;

    struct json_object *report = ferry_cli_parse_json(text);

    if (json_object_is_type(report, json_type_object))
        return report;
    json_object_put(report);
    return NULL;
}

void ferry_bench_reading_take(const struct ferry_bench_meter *meter,
                              struct ferry_bench_reading *reading_out)
{
    memset(reading_out, 0, sizeof(*reading_out));
    for (size_t i = 0; i < meter->peer_count; i++)
        reading_out->peers[i] = ask_peer(meter, meter->peers[i].segment);
    reading_out->peer_moved_bytes = meter->moved(meter->moved_arg);
    reading_out->self = ask_self(meter->engine, FERRY_REPORT_PROCESS);
    reading_out->self_moved_bytes = meter->moved(meter->moved_arg);
}

void ferry_bench_reading_drop(struct ferry_bench_reading *reading)
{
    json_object_put(reading->self);
    for (size_t i = 0; i < FERRY_BENCH_TARGETS_MAX; i++)
        json_object_put(reading->peers[i]);
    memset(reading, 0, sizeof(*reading));
}

struct json_object *ferry_bench_transports(struct ferry_engine *engine)
{
    return ask_self(engine, FERRY_REPORT_TRANSPORTS);
}

struct json_object *ferry_bench_transport(struct json_object *transports, const char *name)
{
    struct json_object *list = NULL;

    json_object_object_get_ex(transports, "transports", &list);
    for (size_t i = 0; list != NULL && i < json_object_array_length(list); i++) {
        struct json_object *item = json_object_array_get_idx(list, i);
        struct json_object *item_name = NULL;

        if (json_object_object_get_ex(item, "name", &item_name) &&
            strcmp(json_object_get_string(item_name), name) == 0)
            return item;
    }
    return NULL;
}

uint64_t ferry_bench_member_u64(struct json_object *object, const char *key, uint64_t missing)
{
    struct json_object *value = NULL;

    return json_object_object_get_ex(object, key, &value) ? json_object_get_uint64(value) : missing;
}

double ferry_bench_member_double(struct json_object *object, const char *key, double missing)
{
    struct json_object *value = NULL;

    return json_object_object_get_ex(object, key, &value) ? json_object_get_double(value) : missing;
}

double ferry_bench_cpu_s(struct json_object *before, struct json_object *after)
{
    double from = ferry_bench_member_double(before, "cpu_seconds", -1);
    double to = ferry_bench_member_double(after, "cpu_seconds", -1);

    return from >= 0 && to >= from ? to - from : -1;
}

uint64_t ferry_bench_peak_rss(struct json_object *process)
{
    return ferry_bench_member_u64(process, "peak_rss_bytes", 0);
}
