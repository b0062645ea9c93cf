/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hp_tcp says about itself: settings in force, workers, peers and lanes with their counters.
 * Any thread; reads atomics while the workers go on, so the numbers are each right but not of one
 * instant. Out of memory leaves members out; a report is never a reason to fail.
 */
#include "transport/report.h"
#include "base/json.h"
#include "transport/hp_tcp/internal.h"

static const char *const tls_names[] = {
    [HP_TLS_OFF] = "off",
    [HP_TLS_OPENSSL] = "openssl",
    [HP_TLS_KERNEL] = "kernel",
};

static struct json_object *lane_report(const struct hp_lane *lane)
{
    struct json_object *object = json_object_new_object();
    const struct hp_lane_stats *stats = &lane->stats;

    if (object == NULL)
        return NULL;
    ferry_report_u64(object, "lane", lane->index);
    ferry_report_u64(object, "rail", lane->rail->index);
    ferry_report_u64(object, "worker", lane->worker->index);
    ferry_report_text(object, "tls",
                      tls_names[atomic_load_explicit(&stats->tls, memory_order_relaxed)]);
    ferry_report_u64(object, "ops", ferry_report_count(&stats->ops));
    ferry_report_u64(object, "bytes",
                     ferry_report_count(&stats->bytes_read) +
                         ferry_report_count(&stats->bytes_written));
    ferry_report_u64(object, "bytes_read", ferry_report_count(&stats->bytes_read));
    ferry_report_u64(object, "bytes_written", ferry_report_count(&stats->bytes_written));
    ferry_report_u64(object, "connects", ferry_report_count(&stats->connects));
    ferry_report_u64(object, "failures", ferry_report_count(&stats->failures));
    ferry_report_u64(object, "resends", ferry_report_count(&stats->resends));
    ferry_report_u64(object, "damaged", ferry_report_count(&stats->damaged));
    ferry_report_u64(object, "resolved_applied", ferry_report_count(&stats->resolved_applied));
    ferry_report_u64(object, "resolved_not_applied",
                     ferry_report_count(&stats->resolved_not_applied));
    ferry_report_u64(object, "resolved_unknown", ferry_report_count(&stats->resolved_unknown));
    return object;
}

/* The caller holds the transport's mutex. */
static struct json_object *rail_report(const struct hp_peer *peer, const struct hp_rail *rail)
{
    const struct ferry_hp_settings *settings = &peer->transport->settings;
    struct json_object *object = json_object_new_object();
    uint64_t read = 0;
    uint64_t written = 0;

    if (object == NULL)
        return NULL;
    for (uint32_t i = rail->index; i < peer->lane_count; i += peer->rail_count) {
        read += ferry_report_count(&peer->lanes[i].stats.bytes_read);
        written += ferry_report_count(&peer->lanes[i].stats.bytes_written);
    }
    ferry_report_u64(object, "rail", rail->index);
    ferry_report_text(object, "local",
                      settings->rail_count > 0 ? settings->rails[rail->local_index] : "");
    ferry_report_text(object, "remote", rail->endpoint->host);
    ferry_report_u64(object, "port", rail->endpoint->port);
    ferry_report_text(object, "state", ferry_rail_state_name(rail->health.state));
    ferry_report_u64(object, "bytes_read", read);
    ferry_report_u64(object, "bytes_written", written);
    ferry_report_u64(object, "downs", rail->health.downs);
    ferry_report_u64(object, "backs", rail->health.backs);
    ferry_report_u64(object, "probes", rail->health.probes);
    return object;
}

static struct json_object *rail_list(const struct hp_peer *peer)
{
    struct json_object *list = json_object_new_array();

    for (uint32_t i = 0; list != NULL && i < peer->rail_count; i++) {
        if (!ferry_json_append(list, rail_report(peer, &peer->rails[i])))
            break;
    }
    return list;
}

static struct json_object *peer_report(const struct hp_peer *peer)
{
    struct json_object *object = json_object_new_object();
    struct json_object *lanes = json_object_new_array();

    if (object == NULL || lanes == NULL) {
        json_object_put(object);
        json_object_put(lanes);
        return NULL;
    }
    ferry_report_text(object, "name", peer->name);
    ferry_report_text(object, "host", peer->endpoints[0].host);
    ferry_report_u64(object, "port", peer->endpoints[0].port);
    ferry_report_text(object, "frames", peer->speaks_ferry ? "ferry" : "v1");
    ferry_report_text(object, "trouble", peer->trouble);
    for (uint32_t i = 0; i < peer->lane_count; i++) {
        if (!ferry_json_append(lanes, lane_report(&peer->lanes[i])))
            break;
    }
    if (!ferry_json_put(object, "lanes", lanes) ||
        !ferry_json_put(object, "rails", rail_list(peer)))
        return object;
    return object;
}

static struct json_object *worker_report(const struct hp_worker *worker)
{
    struct json_object *object = json_object_new_object();

    if (object == NULL)
        return NULL;
    ferry_report_u64(object, "worker", worker->index);
    ferry_report_u64(object, "sessions_opened", ferry_report_count(&worker->sessions_opened));
    ferry_report_u64(object, "sessions_refused", ferry_report_count(&worker->sessions_refused));
    ferry_report_u64(object, "served_ops", ferry_report_count(&worker->served_ops));
    ferry_report_u64(object, "served_bytes", ferry_report_count(&worker->served_bytes));
    return object;
}

static struct json_object *worker_list(const struct hp_transport *transport)
{
    struct json_object *list = json_object_new_array();

    for (uint32_t i = 0; list != NULL && i < transport->worker_count; i++) {
        if (!ferry_json_append(list, worker_report(&transport->workers[i])))
            break;
    }
    return list;
}

static struct json_object *peer_list(struct hp_transport *transport)
{
    struct json_object *list = json_object_new_array();

    /* The mutex keeps the peers alive; a lane's counters need none. */
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; list != NULL && l != &transport->peers;
         l = l->next) {
        if (!ferry_json_append(list, peer_report(FERRY_CONTAINER_OF(l, struct hp_peer, link))))
            break;
    }
    pthread_mutex_unlock(&transport->mutex);
    return list;
}

/* Who was not let in; nothing where access control is off. */
static void put_refusals(struct json_object *object, const struct ferry_access_control *access)
{
    struct json_object *refused = json_object_new_object();

    if (!ferry_access_on(access)) {
        json_object_put(refused);
        return;
    }
    for (uint32_t i = 0; refused != NULL && i < FERRY_REFUSAL_COUNT; i++)
        ferry_report_u64(refused, ferry_refusal_name((enum ferry_refusal)i),
                         ferry_report_count(&access->data_refusals.counts[i]));
    if (!ferry_json_put(object, "refused", refused))
        return;
}

void ferry_hp_report(struct ferry_transport *base, struct json_object *object)
{
    struct hp_transport *transport = ferry_hp_of(base);

    ferry_report_text(object, "reactor",
                      ferry_reactor_name(ferry_worker_reactor(transport->workers[0].worker)));
    ferry_report_u64(object, "port", transport->port);
    ferry_report_text(object, "advertise_host", transport->advertise_host);
    ferry_report_u64(object, "sessions", atomic_load(&transport->session_count));
    ferry_report_u64(object, "outstanding_tasks", atomic_load(&transport->admission.tasks));
    ferry_report_u64(object, "outstanding_bytes", atomic_load(&transport->admission.bytes));
    ferry_report_u64(object, "sessions_fenced", ferry_report_count(&transport->answers.fenced));
    ferry_report_u64(object, "answers_kept", ferry_report_count(&transport->answers.kept));
    ferry_report_u64(object, "answers_given", ferry_report_count(&transport->answers.answered));
    ferry_report_u64(object, "answers_crowded_out",
                     ferry_report_count(&transport->answers.crowded));
    put_refusals(object, base->env->access);
    if (!ferry_json_put(object, "workers", worker_list(transport)) ||
        !ferry_json_put(object, "peers", peer_list(transport)))
        return;
}
