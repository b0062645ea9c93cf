/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of hp_tcp for those who watch it: every rail of every peer, from its lanes. Any
 * thread; reads atomics while the workers go on.
 */
#include <stdio.h>

#include "transport/hp_tcp/internal.h"
#include "transport/report.h"

/* The caller holds the transport's mutex. */
static void measure_rail(const struct hp_peer *peer, const struct hp_rail *rail, ferry_path_fn *fn,
                         void *arg)
{
    uint32_t state = atomic_load_explicit(&rail->state, memory_order_relaxed);
    bool away = state == FERRY_RAIL_DOWN || state == FERRY_RAIL_PROBING;
    char name[16];
    struct ferry_path path = {
        .peer = peer->name,
        .rail = name,
        .state = away ? FERRY_PATH_DOWN : FERRY_PATH_UP,
    };

    snprintf(name, sizeof(name), "%u", rail->index);
    for (uint32_t i = rail->index; i < peer->lane_count; i += peer->rail_count) {
        const struct hp_lane_stats *stats = &peer->lanes[i].stats;

        path.bytes_read += ferry_report_count(&stats->bytes_read);
        path.bytes_written += ferry_report_count(&stats->bytes_written);
        path.operations += ferry_report_count(&stats->ops);
        path.connects += ferry_report_count(&stats->connects);
        path.failures += ferry_report_count(&stats->failures);
        path.resends += ferry_report_count(&stats->resends);
    }
    fn(arg, &path);
}

void ferry_hp_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                      ferry_path_fn *fn, void *arg)
{
    struct hp_transport *transport = ferry_hp_of(base);

    totals->inflight_requests = atomic_load(&transport->admission.tasks);
    totals->inflight_bytes = atomic_load(&transport->admission.bytes);
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        totals->served_operations += ferry_report_count(&transport->workers[i].served_ops);
        totals->served_bytes += ferry_report_count(&transport->workers[i].served_bytes);
    }
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; l != &transport->peers; l = l->next) {
        const struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        totals->peers++;
        for (uint32_t i = 0; i < peer->rail_count; i++)
            measure_rail(peer, &peer->rails[i], fn, arg);
    }
    pthread_mutex_unlock(&transport->mutex);
}
