/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shm says about itself: where it meets peers, who is there, and how much was copied which
 * way. Any thread; the numbers are each right but not of one instant. Out of memory leaves members
 * out; a report is never a reason to fail.
 */
#include "base/json.h"
#include "transport/shm/internal.h"

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
    put(lane, "lane", 0);
    put(lane, "ops", count(&link->ops));
    put(lane, "bytes", count(&link->bytes_mapped) + count(&link->bytes_vm));
    put(lane, "bytes_mapped", count(&link->bytes_mapped));
    put(lane, "bytes_process_vm", count(&link->bytes_vm));
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
    put_text(object, "name", link->name);
    put_text(object, "state", link_states[state]);
    put_text(object, "trouble", state == SHM_LINK_READY ? link->vm_why : link->why);
    put(object, "pid", (uint64_t)link->peer.pid);
    put(object, "mapped_bytes", mapped);
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
    put(object, "pid", (uint64_t)session->peer.pid);
    put(object, "copies", copies);
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
        put(worker, "worker", i);
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

    put_text(object, "reactor",
             ferry_reactor_name(ferry_worker_reactor(transport->workers[0].worker)));
    put_text(object, "socket", transport->socket);
    put(object, "outstanding_tasks", atomic_load(&transport->outstanding));
    put(object, "tasks_ended", count(&transport->ended_count));
    put(object, "bytes_moved", count(&transport->moved_bytes));
    put(object, "peers_refused", count(&transport->sessions_refused));
    put(object, "peers_died_copying", count(&transport->sessions_died));
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
