/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shm says about itself: where it meets peers, who is there, and how much was copied which
 * way. Any thread; the numbers are each right but not of one instant. Out of memory leaves members
 * out; a report is never a reason to fail.
 */
#include "transport/report.h"
#include "base/json.h"
#include "transport/shm/internal.h"

static const char *const link_states[] = {
    [SHM_LINK_NEW] = "new",         [SHM_LINK_MEETING] = "meeting", [SHM_LINK_READY] = "ready",
    [SHM_LINK_REFUSED] = "refused", [SHM_LINK_DEAD] = "dead",
};

/* One "lane" a peer: there is one way to it. */
static struct json_object *lane_list(const struct shm_link *link)
{
    struct json_object *list = json_object_new_array();
    struct json_object *lane = json_object_new_object();

    if (list == NULL || lane == NULL) {
        json_object_put(list);
        json_object_put(lane);
        return NULL;
    }
    ferry_report_u64(lane, "lane", 0);
    ferry_report_u64(lane, "ops", ferry_report_count(&link->ops));
    ferry_report_u64(lane, "bytes",
                     ferry_report_count(&link->bytes_mapped) + ferry_report_count(&link->bytes_vm));
    ferry_report_u64(lane, "bytes_mapped", ferry_report_count(&link->bytes_mapped));
    ferry_report_u64(lane, "bytes_process_vm", ferry_report_count(&link->bytes_vm));
    if (!ferry_json_append(list, lane))
        return list;
    return list;
}

static struct json_object *link_report(const struct shm_link *link)
{
    struct json_object *object = json_object_new_object();
    uint32_t state = atomic_load(&link->state);
    uint64_t mapped = 0;

    if (object == NULL)
        return NULL;
    for (const struct ferry_list *l = link->maps.next; l != &link->maps; l = l->next) {
        const struct shm_map *map = FERRY_CONTAINER_OF(l, const struct shm_map, link);

        mapped += map->base != NULL ? map->length : 0;
    }
    ferry_report_text(object, "name", link->name);
    ferry_report_text(object, "state", link_states[state]);
    ferry_report_text(object, "trouble", state == SHM_LINK_READY ? link->vm_why : link->why);
    ferry_report_u64(object, "pid", (uint64_t)link->peer.pid);
    ferry_report_u64(object, "mapped_bytes", mapped);
    if (!ferry_json_put_bool(object, "process_vm", link->vm_works) ||
        !ferry_json_put(object, "lanes", lane_list(link)))
        return object;
    return object;
}

static struct json_object *session_report(const struct shm_session *session)
{
    struct json_object *object = json_object_new_object();
    uint32_t copies = 0;

    if (object == NULL)
        return NULL;
    for (uint32_t i = 0; i < SHM_WORKERS_MAX; i++)
        copies += atomic_load(&session->slots->slot[i].id) != 0;
    ferry_report_u64(object, "pid", (uint64_t)session->peer.pid);
    ferry_report_u64(object, "copies", copies);
    return object;
}

static struct json_object *worker_list(struct shm_transport *transport)
{
    struct json_object *list = json_object_new_array();

    for (uint32_t i = 0; list != NULL && i < transport->worker_count; i++) {
        struct json_object *worker = json_object_new_object();
        double cpu = ferry_worker_cpu_seconds(transport->workers[i].worker);

        if (worker == NULL)
            break;
        ferry_report_u64(worker, "worker", i);
        if (!ferry_json_put(worker, "cpu_seconds", json_object_new_double(cpu)) ||
            !ferry_json_append(list, worker))
            break;
    }
    return list;
}

void ferry_shm_report(struct ferry_transport *base, struct json_object *object)
{
    struct shm_transport *transport = ferry_shm_of(base);
    struct json_object *peers = json_object_new_array();
    struct json_object *sessions = json_object_new_array();

    ferry_report_text(object, "reactor",
                      ferry_reactor_name(ferry_worker_reactor(transport->workers[0].worker)));
    ferry_report_text(object, "socket", transport->socket);
    ferry_report_u64(object, "outstanding_tasks", atomic_load(&transport->outstanding));
    ferry_report_u64(object, "tasks_ended", ferry_report_count(&transport->ended_count));
    ferry_report_u64(object, "bytes_moved", ferry_report_count(&transport->moved_bytes));
    ferry_report_u64(object, "peers_refused", ferry_report_count(&transport->sessions_refused));
    ferry_report_u64(object, "peers_died_copying", ferry_report_count(&transport->sessions_died));
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->links.next; l != &transport->links; l = l->next) {
        if (!ferry_json_append(peers, link_report(FERRY_CONTAINER_OF(l, struct shm_link, link))))
            break;
    }
    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = l->next) {
        if (!ferry_json_append(sessions,
                               session_report(FERRY_CONTAINER_OF(l, struct shm_session, link))))
            break;
    }
    pthread_mutex_unlock(&transport->mutex);
    if (!ferry_json_put(object, "workers", worker_list(transport)) ||
        !ferry_json_put(object, "peers", peers) || !ferry_json_put(object, "served", sessions))
        return;
}

void ferry_shm_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                       ferry_path_fn *fn, void *arg)
{
    struct shm_transport *transport = ferry_shm_of(base);

    totals->inflight_requests = atomic_load(&transport->outstanding);
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->links.next; l != &transport->links; l = l->next) {
        const struct shm_link *link = FERRY_CONTAINER_OF(l, struct shm_link, link);
        struct ferry_path path = {
            .peer = link->name,
            .rail = "memory",
            .state = atomic_load(&link->state) == SHM_LINK_READY ? FERRY_PATH_UP : FERRY_PATH_DOWN,
            .bytes_any = ferry_report_count(&link->bytes_mapped) +
                         ferry_report_count(&link->bytes_vm),
            .operations = ferry_report_count(&link->ops),
        };

        totals->peers++;
        fn(arg, &path);
    }
    pthread_mutex_unlock(&transport->mutex);
}
