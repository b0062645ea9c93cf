/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file transport says about itself: which backends are in use and why not the others, and
 * what went which way. Any thread; reads atomics, and what is constant once the dispatcher runs.
 */
#include <json-c/json.h>

#include "base/json.h"
#include "transport/file/internal.h"

static const char *const way_names[FERRY_FILE_WAY_COUNT] = {
    [FERRY_FILE_DIRECT] = "direct",
    [FERRY_FILE_BOUNCE] = "bounce",
    [FERRY_FILE_BUFFERED] = "buffered",
    [FERRY_FILE_FOREIGN] = "gds",
    [FERRY_FILE_COMPAT] = "gds_compatibility",
};

static bool put_counter(struct json_object *object, const char *key, _Atomic uint64_t *counter)
{
    return ferry_json_put_u64(object, key, atomic_load_explicit(counter, memory_order_relaxed));
}

static bool put_ways(struct json_object *object, struct file_counters *counters)
{
    struct json_object *ways = json_object_new_object();
    bool ok = ways != NULL;

    for (int i = 0; ok && i < FERRY_FILE_WAY_COUNT; i++) {
        struct json_object *way = json_object_new_object();

        ok = way != NULL && put_counter(way, "operations", &counters->ways[i].ops) &&
             put_counter(way, "bytes", &counters->ways[i].bytes);
        ok = ferry_json_put(ways, way_names[i], way) && ok;
    }
    return ferry_json_put(object, "paths", ways) && ok;
}

static const char *const backend_names[FILE_BACKEND_COUNT] = {
    [FILE_BACKEND_GDS] = "gds",
    [FILE_BACKEND_URING] = "io_uring",
    [FILE_BACKEND_POOL] = "pool",
};

static bool put_backends(struct json_object *object, struct file_transport *ft)
{
    struct json_object *backends = json_object_new_object();
    bool ok = backends != NULL;

    /* Acquire pairs with the release in the dispatcher: what it found is constant from then on. */
    for (int i = 0; ok && i < FILE_BACKEND_COUNT &&
                    atomic_load_explicit(&ft->backends_known, memory_order_acquire);
         i++) {
        struct json_object *backend = json_object_new_object();

        ok = backend != NULL &&
             ferry_json_put_bool(backend, "usable", ft->slots[i].backend != NULL) &&
             ferry_json_put_string(backend, "reason",
                                   ft->slots[i].backend != NULL ? "" : ft->slots[i].reason);
        ok = ferry_json_put(backends, backend_names[i], backend) && ok;
    }
    return ferry_json_put(object, "backends", backends) && ok;
}

void ferry_file_report(struct ferry_transport *transport, struct json_object *object)
{
    struct file_transport *ft = file_transport_of(transport);
    struct file_counters *counters = &ft->counters;
    bool ok = put_backends(object, ft);

    ok = put_ways(object, counters) && ok;
    ok = ferry_json_put_u64(object, "outstanding", atomic_load(&ft->outstanding)) && ok;
    ok = put_counter(object, "tasks_ended", &counters->ended) && ok;
    ok = put_counter(object, "bytes_moved", &counters->bytes_moved) && ok;
    ok = put_counter(object, "short_operations", &counters->short_io) && ok;
    ok = put_counter(object, "direct_refused", &counters->direct_refused) && ok;
    ok = put_counter(object, "stray_events", &counters->stray_events) && ok;
    ok = put_counter(object, "opens", &counters->opens) && ok;
    ok = put_counter(object, "evictions", &counters->evictions) && ok;
    ok = put_counter(object, "syncs", &counters->syncs) && ok;
    ok = put_counter(object, "quarantined_ever", &counters->quarantined) && ok;
    ok = ferry_json_put_u64(object, "quarantined", atomic_load(&counters->quarantined_now)) && ok;
    ok = ferry_json_put_u64(object, "open_files", atomic_load(&counters->open_files)) && ok;
    ok = put_counter(object, "gds_fallbacks", &counters->fallbacks[FILE_BACKEND_GDS]) && ok;
    ok = put_counter(object, "io_uring_fallbacks", &counters->fallbacks[FILE_BACKEND_URING]) && ok;
    /* Out of memory leaves members out; a report is best effort. */
    (void)ok;
}

void ferry_file_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                        ferry_path_fn *fn, void *arg)
{
    struct file_transport *ft = file_transport_of(base);

    totals->inflight_requests = atomic_load(&ft->outstanding);
    for (int i = 0; i < FERRY_FILE_WAY_COUNT; i++) {
        struct ferry_path path = {
            .peer = "",
            .rail = way_names[i],
            .bytes_any = atomic_load_explicit(&ft->counters.ways[i].bytes, memory_order_relaxed),
            .operations = atomic_load_explicit(&ft->counters.ways[i].ops, memory_order_relaxed),
        };

        fn(arg, &path);
    }
}
