/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ub says about itself: devices, workers, peers and paths with their counters and states, and
 * why a path is or is not chosen. Any thread; reads atomics, and plain numbers that their worker
 * goes on writing, so each number is about right and no two are of one instant. Out of memory
 * leaves members out; a report is never a reason to fail.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "transport/report.h"
#include "transport/ub/internal.h"

static const char *ctx_state_name(enum ub_ctx_state state)
{
    static const char *const names[] = {"closed", "active", "down", "lost"};

    return names[state];
}

static struct json_object *device_report(const struct ub_ctx *ctx)
{
    struct json_object *object = json_object_new_object();
    const struct ferry_urma_device *native = &ctx->device.native;
    char eid[FERRY_TOPOLOGY_EID_TEXT_SIZE];

    if (object == NULL)
        return NULL;
    ferry_topology_eid_print(native->eid, eid);
    ferry_report_u64(object, "device", ctx->index);
    ferry_report_text(object, "id", ctx->topology_id);
    ferry_report_text(object, "name", native->name);
    ferry_report_u64(object, "device_index", native->device_index);
    ferry_report_u64(object, "eid_index", native->eid_index);
    ferry_report_text(object, "eid", eid);
    if (!ferry_json_put(object, "numa_node", json_object_new_int(ctx->numa_node)))
        return object;
    ferry_report_text(object, "pci_bus_id", ctx->device.pci_bus_id);
    ferry_report_text(object, "state", ctx_state_name(ferry_ub_context_state(ctx)));
    ferry_report_text(object, "path_type", ctx->path_type == FERRY_URMA_PATH_CTP ? "ctp" : "rtp");
    ferry_report_u64(object, "endpoints", atomic_load(&ctx->endpoints));
    ferry_report_u64(object, "inflight_bytes", ferry_device_quota_bytes(&ctx->quota));
    ferry_report_u64(object, "inflight_requests", atomic_load(&ctx->quota.requests));
    ferry_report_u64(object, "inflight_bytes_peak", atomic_load(&ctx->quota.bytes_peak));
    ferry_report_u64(object, "quota_refusals", atomic_load(&ctx->quota.refusals));
    ferry_report_u64(object, "opens", ferry_report_count(&ctx->opens));
    ferry_report_u64(object, "losses", ferry_report_count(&ctx->losses));
    return object;
}

static struct json_object *error_report(const _Atomic uint64_t *errors)
{
    struct json_object *object = json_object_new_object();

    for (uint32_t i = 1; object != NULL && i < FERRY_DEVICE_CLASS_COUNT; i++)
        ferry_report_u64(object, ferry_device_class_name((enum ferry_device_class)i),
                         ferry_report_count(&errors[i]));
    return object;
}

static struct json_object *worker_report(const struct ub_worker *worker)
{
    struct json_object *object = json_object_new_object();

    if (object == NULL)
        return NULL;
    ferry_report_u64(object, "worker", worker->index);
    ferry_report_u64(object, "posted", atomic_load(&worker->posted_now));
    ferry_report_u64(object, "posts", ferry_report_count(&worker->posts));
    ferry_report_u64(object, "slices", ferry_report_count(&worker->slices));
    ferry_report_u64(object, "completions", ferry_report_count(&worker->completions));
    ferry_report_u64(object, "stale_completions", ferry_report_count(&worker->stale));
    ferry_report_u64(object, "markers", ferry_report_count(&worker->markers));
    ferry_report_u64(object, "lost_polls", ferry_report_count(&worker->unknown_polls));
    ferry_report_u64(object, "retries", ferry_report_count(&worker->retries));
    ferry_report_u64(object, "timeouts", ferry_report_count(&worker->timeouts));
    ferry_report_u64(object, "fences", ferry_report_count(&worker->fences));
    ferry_report_u64(object, "forced_fences", ferry_report_count(&worker->forced));
    ferry_report_u64(object, "rebuilds", ferry_report_count(&worker->rebuilds));
    ferry_report_u64(object, "quarantined", ferry_report_count(&worker->quarantined));
    ferry_report_u64(object, "unknown_outcomes", ferry_report_count(&worker->unknown_outcomes));
    if (!ferry_json_put(object, "errors", error_report(worker->errors)))
        return object;
    return object;
}

static struct json_object *path_report(const struct ub_peer *peer, const struct ub_path *path,
                                       uint32_t worker)
{
    struct json_object *object = json_object_new_object();
    const struct ferry_device_rail *rail = &path->rail;

    if (object == NULL)
        return NULL;
    ferry_report_u64(object, "worker", worker);
    ferry_report_text(object, "local", peer->transport->ctxs[path->local].topology_id);
    ferry_report_text(object, "remote", peer->remotes[path->remote].name);
    ferry_report_u64(object, "completions", ferry_report_count(&rail->completions));
    ferry_report_u64(object, "bytes", ferry_report_count(&rail->completed_bytes));
    ferry_report_u64(object, "pauses", ferry_report_count(&rail->pauses));
    ferry_report_u64(object, "recoveries", ferry_report_count(&rail->recoveries));
    ferry_report_u64(object, "rebuilds", ferry_report_count(&rail->rebuilds));
    ferry_report_u64(object, "bytes_per_second", ferry_report_count(&rail->bytes_per_s));
    ferry_report_u64(object, "latency_ns", ferry_report_count(&rail->latency_ns));
    ferry_report_u64(object, "paused_until_ns", ferry_report_count(&rail->paused_until_ns));
    ferry_report_u64(object, "outstanding",
                     atomic_load_explicit(&path->inflight, memory_order_relaxed));
    if (!ferry_json_put(object, "errors", error_report(rail->errors)))
        return object;
    return object;
}

static struct json_object *peer_report(const struct ub_peer *peer)
{
    struct json_object *object = json_object_new_object();
    struct json_object *paths = json_object_new_array();
    uint32_t workers = peer->transport->worker_count;

    if (object == NULL || paths == NULL) {
        json_object_put(object);
        json_object_put(paths);
        return NULL;
    }
    ferry_report_text(object, "name", peer->name);
    ferry_report_text(object, "address", peer->address);
    ferry_report_text(object, "trouble", peer->trouble);
    for (uint32_t i = 0; i < workers * peer->path_count; i++) {
        const struct ub_path *path = &peer->paths[i];

        /* Those that were never needed say nothing. */
        if (!path->primary && ferry_report_count(&path->rail.completions) == 0)
            continue;
        if (!ferry_json_append(paths, path_report(peer, path, i / peer->path_count)))
            break;
    }
    if (!ferry_json_put(object, "paths", paths))
        return object;
    return object;
}

static struct json_object *peer_list(struct ub_transport *transport)
{
    struct json_object *list = json_object_new_array();

    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; list != NULL && l != &transport->peers;
         l = l->next) {
        if (!ferry_json_append(list, peer_report(FERRY_CONTAINER_OF(l, struct ub_peer, link))))
            break;
    }
    pthread_mutex_unlock(&transport->mutex);
    return list;
}

static struct json_object *device_list(struct ub_transport *transport)
{
    struct json_object *list = json_object_new_array();

    pthread_mutex_lock(&transport->mutex);
    for (uint32_t i = 0; list != NULL && i < transport->ctx_count; i++) {
        if (!ferry_json_append(list, device_report(&transport->ctxs[i])))
            break;
    }
    pthread_mutex_unlock(&transport->mutex);
    return list;
}

static struct json_object *worker_list(const struct ub_transport *transport)
{
    struct json_object *list = json_object_new_array();

    for (uint32_t i = 0; list != NULL && i < transport->worker_count; i++) {
        if (!ferry_json_append(list, worker_report(&transport->workers[i])))
            break;
    }
    return list;
}

void ferry_ub_report(struct ferry_transport *base, struct json_object *object)
{
    struct ub_transport *transport = ferry_ub_of(base);
    char fingerprint[160];

    ferry_urma_fingerprint(&transport->urma, fingerprint, sizeof(fingerprint));
    ferry_report_text(object, "adapter", transport->urma.ops->name);
    ferry_report_text(object, "abi", fingerprint);
    ferry_report_u64(object, "outstanding_tasks", atomic_load(&transport->admission.requests));
    ferry_report_u64(object, "outstanding_bytes", ferry_device_quota_bytes(&transport->admission));
    ferry_report_u64(object, "slice_bytes", transport->slice_bytes);
    if (!ferry_json_put(object, "devices", device_list(transport)) ||
        !ferry_json_put(object, "workers", worker_list(transport)) ||
        !ferry_json_put(object, "peers", peer_list(transport)))
        return;
}

/* One line a path: what would count for it and against it. */
void ferry_ub_explain(struct ub_peer *peer, char *buf, size_t buf_len)
{
    struct ub_transport *transport = peer->transport;
    const struct ferry_device_weights *w = &transport->settings.weights;
    size_t at;

    pthread_mutex_lock(&transport->mutex);
    at = (size_t)snprintf(buf, buf_len,
                          "weights: locality %u inflight %u bandwidth %u readiness %u history %u "
                          "retry %u%s%s",
                          w->locality, w->inflight, w->bandwidth, w->readiness, w->history,
                          w->retry, peer->trouble[0] != '\0' ? "; trouble: " : "", peer->trouble);
    pthread_mutex_unlock(&transport->mutex);
    for (uint32_t i = 0; i < peer->path_count && at < buf_len; i++) {
        const struct ub_path *path = &peer->paths[i];
        const struct ub_ctx *ctx = &transport->ctxs[path->local];

        if (!path->primary)
            continue;
        at += (size_t)snprintf(
            buf + at, buf_len - at,
            "; %s to %s: %s, %" PRIu64 " bytes in flight, %" PRIu64 " bytes/s, %" PRIu64 " ns%s",
            ctx->topology_id, peer->remotes[path->remote].name,
            ctx_state_name(ferry_ub_context_state(ctx)), ferry_device_quota_bytes(&ctx->quota),
            ferry_report_count(&path->rail.bytes_per_s), ferry_report_count(&path->rail.latency_ns),
            ferry_report_count(&path->rail.paused_until_ns) != 0 ? ", paused" : "");
    }
}

/* Workers share a path's name: whoever adds paths up adds theirs. */
static void measure_path(const struct ub_peer *peer, const struct ub_path *path, ferry_path_fn *fn,
                         void *arg)
{
    const struct ferry_device_rail *rail = &path->rail;
    struct ferry_path told = {
        .peer = peer->name,
        .rail = peer->transport->ctxs[path->local].topology_id,
        .bytes_any = ferry_report_count(&rail->completed_bytes),
        .operations = ferry_report_count(&rail->completions),
        .connects = ferry_report_count(&rail->rebuilds),
        .failures = ferry_report_count(&rail->pauses),
    };

    fn(arg, &told);
}

void ferry_ub_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                      ferry_path_fn *fn, void *arg)
{
    struct ub_transport *transport = ferry_ub_of(base);

    totals->inflight_requests = atomic_load(&transport->admission.requests);
    totals->inflight_bytes = ferry_device_quota_bytes(&transport->admission);
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; l != &transport->peers; l = l->next) {
        const struct ub_peer *peer = FERRY_CONTAINER_OF(l, struct ub_peer, link);

        totals->peers++;
        for (uint32_t i = 0; i < transport->worker_count * peer->path_count; i++)
            measure_path(peer, &peer->paths[i], fn, arg);
    }
    pthread_mutex_unlock(&transport->mutex);
}
