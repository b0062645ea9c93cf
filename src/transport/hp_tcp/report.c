/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hp_tcp says about itself: settings in force, workers, peers and lanes with their counters.
 * Any thread; reads atomics while the workers go on, so the numbers are each right but not of one
 * instant. Out of memory leaves members out; a report is never a reason to fail.
 */
#include "base/json.h"
#include "transport/hp_tcp/internal.h"

/* A report that lacks a member for want of memory is still a report. */
static void put(struct json_object *object, const char *key, uint64_t value)
{
    if (!ferry_json_put_u64(object, key, value))
        return;
}

static void put_text(struct json_object *object, const char *key, const char *value)
{
    if (!ferry_json_put_string(object, key, value))
        return;
}

static uint64_t count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

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
    put(object, "lane", lane->index);
    put(object, "rail", lane->rail->index);
    put(object, "worker", lane->worker->index);
    put_text(object, "tls", tls_names[atomic_load_explicit(&stats->tls, memory_order_relaxed)]);
    put(object, "ops", count(&stats->ops));
    put(object, "bytes", count(&stats->bytes_read) + count(&stats->bytes_written));
    put(object, "bytes_read", count(&stats->bytes_read));
    put(object, "bytes_written", count(&stats->bytes_written));
    put(object, "connects", count(&stats->connects));
    put(object, "failures", count(&stats->failures));
    put(object, "resends", count(&stats->resends));
    put(object, "damaged", count(&stats->damaged));
    put(object, "resolved_applied", count(&stats->resolved_applied));
    put(object, "resolved_not_applied", count(&stats->resolved_not_applied));
    put(object, "resolved_unknown", count(&stats->resolved_unknown));
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
        read += count(&peer->lanes[i].stats.bytes_read);
        written += count(&peer->lanes[i].stats.bytes_written);
    }
    put(object, "rail", rail->index);
    put_text(object, "local", settings->rail_count > 0 ? settings->rails[rail->local_index] : "");
    put_text(object, "remote", rail->endpoint->host);
    put(object, "port", rail->endpoint->port);
    put_text(object, "state", ferry_rail_state_name(rail->health.state));
    put(object, "bytes_read", read);
    put(object, "bytes_written", written);
    put(object, "downs", rail->health.downs);
    put(object, "backs", rail->health.backs);
    put(object, "probes", rail->health.probes);
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
    put_text(object, "name", peer->name);
    put_text(object, "host", peer->endpoints[0].host);
    put(object, "port", peer->endpoints[0].port);
    put_text(object, "frames", peer->speaks_ferry ? "ferry" : "v1");
    put_text(object, "trouble", peer->trouble);
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
    put(object, "worker", worker->index);
    put(object, "sessions_opened", count(&worker->sessions_opened));
    put(object, "sessions_refused", count(&worker->sessions_refused));
    put(object, "served_ops", count(&worker->served_ops));
    put(object, "served_bytes", count(&worker->served_bytes));
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
        put(refused, ferry_refusal_name((enum ferry_refusal)i),
            count(&access->data_refusals.counts[i]));
    if (!ferry_json_put(object, "refused", refused))
        return;
}

void ferry_hp_report(struct ferry_transport *base, struct json_object *object)
{
    struct hp_transport *transport = ferry_hp_of(base);

    put_text(object, "reactor",
             ferry_reactor_name(ferry_worker_reactor(transport->workers[0].worker)));
    put(object, "port", transport->port);
    put_text(object, "advertise_host", transport->advertise_host);
    put(object, "sessions", atomic_load(&transport->session_count));
    put(object, "outstanding_tasks", atomic_load(&transport->admission.tasks));
    put(object, "outstanding_bytes", atomic_load(&transport->admission.bytes));
    put(object, "sessions_fenced", count(&transport->answers.fenced));
    put(object, "answers_kept", count(&transport->answers.kept));
    put(object, "answers_given", count(&transport->answers.answered));
    put(object, "answers_crowded_out", count(&transport->answers.crowded));
    put_refusals(object, base->env->access);
    if (!ferry_json_put(object, "workers", worker_list(transport)) ||
        !ferry_json_put(object, "peers", peer_list(transport)))
        return;
}
