/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endpoints from their beginning to READY, and what of them is native.
 *
 *   worker: needs a path --> HANDSHAKING --pool: make jetties--> PREPARED --channel: ask-->
 *     --control client: answered--> BINDING --pool: bind--> READY --> worker
 *   control server: the peer asks --> HANDSHAKING .. READY at once --> worker
 *
 * All of it under the transport's mutex, since both ways may meet on one endpoint. From READY on it
 * is its worker's alone (fence.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/ub/internal.h"

void ferry_ub_endpoint_drop(struct ub_endpoint *endpoint)
{
    if (atomic_fetch_sub(&endpoint->refs, 1) != 1)
        return;
    FERRY_ASSERT(ferry_list_empty(&endpoint->posted));
    FERRY_ASSERT(ferry_list_empty(&endpoint->held));
    free(endpoint);
}

/* ---- waking its worker ---- */

/* The worker takes it over: it may have come from the peer. */
static void run_wake(struct ferry_worker *base, struct ferry_job *job)
{
    struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(job, struct ub_endpoint, wake_job);
    struct ub_worker *worker = endpoint->worker;

    (void)base;
    atomic_store(&endpoint->wake_posted, false);
    if (!endpoint->announced) {
        endpoint->announced = true;
        endpoint->jfc->endpoints++;
        ferry_list_push_back(&worker->endpoints, &endpoint->link);
    }
    ferry_ub_endpoint_drop(endpoint);
    ferry_ub_worker_round(worker);
}

void ferry_ub_endpoint_wake(struct ub_endpoint *endpoint)
{
    if (atomic_exchange(&endpoint->wake_posted, true))
        return;
    atomic_fetch_add(&endpoint->refs, 1);
    ferry_worker_post(endpoint->worker->worker, &endpoint->wake_job, false);
}

/* ---- making one, under mutex ---- */

enum ferry_status ferry_ub_endpoint_create(struct ub_worker *worker,
                                           const struct ferry_device_key *key,
                                           struct ub_endpoint **endpoint_out)
{
    struct ub_transport *transport = worker->transport;
    struct ub_ctx *ctx = &transport->ctxs[key->local];
    struct ub_endpoint *endpoint;

    if (!ferry_ub_context_enter(ctx))
        return ferry_fail(FERRY_ERR_DEVICE, "ub: device %s is not usable now", ctx->topology_id);
    endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL) {
        atomic_fetch_sub(&ctx->endpoints, 1);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for an endpoint");
    }
    endpoint->entry.key = *key;
    ferry_list_init(&endpoint->entry.link);
    if (!ferry_device_store_add(&transport->store, &endpoint->entry)) {
        free(endpoint);
        atomic_fetch_sub(&ctx->endpoints, 1);
        return ferry_fail(FERRY_ERR_LIMIT, "ub: max_endpoints %u is reached",
                          transport->settings.max_endpoints);
    }
    endpoint->transport = transport;
    endpoint->worker = worker;
    endpoint->ctx = ctx;
    endpoint->jfc = &ctx->jfcs[worker->index];
    endpoint->jetty_count = transport->settings.jetty_per_endpoint;
    endpoint->wake_job.run = run_wake;
    ferry_list_init(&endpoint->link);
    ferry_list_init(&endpoint->posted);
    ferry_list_init(&endpoint->held);
    ferry_list_init(&endpoint->dirty_link);
    ferry_list_push_back(&transport->endpoints, &endpoint->all_link);
    atomic_store(&endpoint->refs, 1); /* its life's; given back when it is destroyed */
    ferry_ub_live_add(transport);
    ferry_device_life_begin(&endpoint->life, &transport->generations);
    ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_HANDSHAKING);
    endpoint->handshake_deadline_ns = ferry_deadline_ns(ferry_ub_now(transport),
                                                        transport->settings.connect_timeout_ns);
    *endpoint_out = endpoint;
    return FERRY_OK;
}

enum ferry_status ferry_ub_jetties_create(struct ub_endpoint *endpoint)
{
    struct ub_transport *transport = endpoint->transport;
    const struct ferry_ub_settings *settings = &transport->settings;
    struct ferry_urma_jetty_options options = {
        .depth = endpoint->ctx->jetty_depth,
        .priority = settings->priority,
        .rnr_retry = settings->rnr_retry,
        .error_timeout = settings->error_timeout,
        .path_type = endpoint->ctx->path_type,
        .multi_path = settings->multi_path,
        .cookie = endpoint->life.generation,
    };

    for (uint32_t i = 0; i < endpoint->jetty_count; i++) {
        struct ub_jetty *jetty = &endpoint->jetties[i];
        struct ferry_urma_jetty_info info;
        struct ferry_urma_status status = ferry_urma_jetty_create(
            &transport->urma, endpoint->ctx->native, endpoint->jfc->native, &options,
            &jetty->native);

        if (status.class != FERRY_URMA_OK)
            return ferry_fail(FERRY_ERR_DEVICE, "ub: %s makes no jetty (%s, native %d)",
                              endpoint->ctx->topology_id, ferry_urma_class_name(status.class),
                              status.native);
        ferry_urma_jetty_info(&transport->urma, jetty->native, &info);
        jetty->id = info.id;
        jetty->uasid = info.uasid;
    }
    return FERRY_OK;
}

bool ferry_ub_jetties_destroy(struct ub_endpoint *endpoint)
{
    const struct ferry_urma *urma = &endpoint->transport->urma;
    bool gone = true;

    for (uint32_t i = 0; i < endpoint->jetty_count; i++) {
        struct ub_jetty *jetty = &endpoint->jetties[i];

        if (jetty->native == NULL)
            continue;
        if (ferry_urma_jetty_disconnect(urma, jetty->native).class != FERRY_URMA_OK ||
            ferry_urma_jetty_destroy(urma, &jetty->native).class != FERRY_URMA_OK)
            gone = false;
    }
    return gone;
}

/* ---- the pool ---- */

static void pool_run(struct ferry_offload_job *job)
{
    struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(job, struct ub_endpoint, pool_job);

    endpoint->pool_run(endpoint);
}

static void pool_done(struct ferry_offload_job *job)
{
    struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(job, struct ub_endpoint, pool_job);
    struct ub_transport *transport = endpoint->transport;

    atomic_store(&endpoint->pool_busy, false);
    ferry_ub_endpoint_wake(endpoint);
    ferry_ub_endpoint_drop(endpoint);
    ferry_ub_live_drop(transport);
}

void ferry_ub_endpoint_pool(struct ub_endpoint *endpoint, void (*run)(struct ub_endpoint *))
{
    struct ub_transport *transport = endpoint->transport;

    FERRY_ASSERT(!atomic_load(&endpoint->pool_busy));
    endpoint->pool_run = run;
    endpoint->pool_job = (struct ferry_offload_job){.run = pool_run, .done = pool_done};
    atomic_store(&endpoint->pool_busy, true);
    atomic_fetch_add(&endpoint->refs, 1);
    ferry_ub_live_add(transport);
    if (transport->pool != NULL &&
        ferry_offload_submit(transport->pool, &endpoint->pool_job) == FERRY_OK)
        return;
    /* Without threads, and where none can be started, it runs here. */
    pool_run(&endpoint->pool_job);
    pool_done(&endpoint->pool_job);
}

/* ---- asking the peer ---- */

static void bind_run(struct ub_endpoint *endpoint)
{
    struct ub_transport *transport = endpoint->transport;
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&transport->mutex);
    if (ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_BINDING)
        status = FERRY_ERR_STATE;
    for (uint32_t i = 0; i < endpoint->jetty_count && status == FERRY_OK; i++) {
        struct ferry_urma_peer peer = {.uasid = endpoint->peer_uasids[i],
                                       .id = endpoint->peer_ids[i],
                                       .path_type = endpoint->ctx->path_type};

        memcpy(peer.eid, endpoint->peer_eid, sizeof(peer.eid));
        if (ferry_urma_jetty_connect(&transport->urma, endpoint->jetties[i].native, &peer).class !=
            FERRY_URMA_OK)
            status = endpoint->handshake_status = FERRY_ERR_PATH_DOWN;
    }
    if (status == FERRY_OK)
        ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_READY);
    pthread_mutex_unlock(&transport->mutex);
}

/* Under mutex. True if the jetties of the answer are to be bound to. */
static bool take_answer(struct ub_endpoint *endpoint, const struct ferry_peer_call *call)
{
    struct ub_message answer;
    enum ferry_status status = call->status;

    if (ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_PREPARED)
        return false;
    if (status == FERRY_OK)
        status = ferry_ub_message_parse(call->reply, call->reply_len, &answer);
    if (status == FERRY_OK && answer.yield) {
        endpoint->yielded = true;
        return false;
    }
    if (status == FERRY_OK &&
        (memcmp(answer.incarnation, endpoint->entry.key.peer, UB_INCARNATION_LEN) != 0 ||
         answer.jetty_count != endpoint->jetty_count || answer.verb != UB_VERB_CONNECT ||
         answer.device != endpoint->entry.key.remote))
        status = FERRY_ERR_PROTOCOL;
    if (status != FERRY_OK) {
        endpoint->handshake_status = status;
        return false;
    }
    endpoint->peer_generation = answer.generation;
    memcpy(endpoint->peer_eid, answer.eid, sizeof(endpoint->peer_eid));
    memcpy(endpoint->peer_ids, answer.jetty_ids, sizeof(endpoint->peer_ids));
    memcpy(endpoint->peer_uasids, answer.jetty_uasids, sizeof(endpoint->peer_uasids));
    ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_BINDING);
    return true;
}

static void connect_done(struct ferry_peer_call *call)
{
    struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(call, struct ub_endpoint, call);
    struct ub_transport *transport = endpoint->transport;
    bool bind;

    pthread_mutex_lock(&transport->mutex);
    bind = take_answer(endpoint, call);
    pthread_mutex_unlock(&transport->mutex);
    free(call->reply);
    call->reply = NULL;
    if (bind)
        ferry_ub_endpoint_pool(endpoint, bind_run);
    atomic_store(&endpoint->asking, false);
    ferry_ub_endpoint_wake(endpoint);
    ferry_ub_endpoint_drop(endpoint);
    ferry_ub_live_drop(transport);
}

static void prepare_run(struct ub_endpoint *endpoint)
{
    struct ub_transport *transport = endpoint->transport;
    bool ask = false;

    pthread_mutex_lock(&transport->mutex);
    if (ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_HANDSHAKING) {
        enum ferry_status status = ferry_ub_jetties_create(endpoint);

        endpoint->handshake_status = status;
        if (status == FERRY_OK)
            ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_PREPARED);
        ask = status == FERRY_OK;
    }
    pthread_mutex_unlock(&transport->mutex);
    if (!ask)
        return;
    endpoint->ask_next = true; /* by the worker, when the pool is through */
}

/* ---- the worker's side ---- */

static void attach(struct ub_path *path, struct ub_peer *peer, struct ub_endpoint *endpoint)
{
    path->endpoint = endpoint;
    endpoint->path = path;
    endpoint->path_peer = peer;
    atomic_fetch_add(&endpoint->refs, 1);
    snprintf(endpoint->peer_address, sizeof(endpoint->peer_address), "%s", peer->address);
}

static struct ub_endpoint *begin(struct ub_worker *worker, struct ub_peer *peer,
                                 struct ub_path *path)
{
    struct ub_transport *transport = worker->transport;
    struct ferry_device_key key = {
        .local = path->local, .remote = path->remote, .lane = worker->index};
    struct ferry_device_entry *entry;
    struct ub_endpoint *endpoint = NULL;
    bool made = false;

    memcpy(key.peer, peer->incarnation, sizeof(key.peer));
    pthread_mutex_lock(&transport->mutex);
    entry = ferry_device_store_find(&transport->store, &key);
    if (entry != NULL) {
        endpoint = FERRY_CONTAINER_OF(entry, struct ub_endpoint, entry);
    } else if (ferry_ub_endpoint_create(worker, &key, &endpoint) == FERRY_OK) {
        endpoint->initiator = true;
        made = true;
    }
    if (endpoint != NULL)
        attach(path, peer, endpoint);
    pthread_mutex_unlock(&transport->mutex);
    if (!made)
        return endpoint;
    endpoint->announced = true;
    endpoint->jfc->endpoints++;
    ferry_list_push_back(&worker->endpoints, &endpoint->link);
    if (atomic_load_explicit(&path->rail.completions, memory_order_relaxed) > 0) {
        ferry_ub_count(&worker->rebuilds);
        ferry_ub_count(&path->rail.rebuilds);
    }
    ferry_ub_endpoint_pool(endpoint, prepare_run);
    return endpoint;
}

struct ub_endpoint *ferry_ub_endpoint_get(struct ub_worker *worker, struct ub_peer *peer,
                                          struct ub_path *path, uint64_t now_ns)
{
    struct ub_endpoint *endpoint = path->endpoint;

    if (FERRY_LIKELY(endpoint != NULL &&
                     ferry_device_life_state(&endpoint->life) <= FERRY_DEVICE_READY))
        return endpoint;
    if (endpoint != NULL) {
        path->endpoint = NULL;
        endpoint->path = NULL;
        ferry_ub_endpoint_drop(endpoint);
    }
    if (now_ns < path->retry_at_ns || atomic_load(&peer->outdated) ||
        atomic_load(&worker->transport->closing))
        return NULL;
    /* One that cannot be made now is not tried again at once. */
    path->retry_at_ns = ferry_deadline_ns(now_ns, FERRY_NS_PER_MS);
    return begin(worker, peer, path);
}

/* The handshake did not work out: the path waits before the next one. */
static void handshake_failed(struct ub_endpoint *endpoint, enum ferry_status status,
                             uint64_t now_ns)
{
    struct ub_path *path = endpoint->path;
    struct ub_peer *peer = endpoint->path_peer;
    uint64_t pause_ns = endpoint->transport->settings.rail.cooldown_ns / 8;

    if (path != NULL) {
        path->retry_at_ns = ferry_deadline_ns(now_ns, pause_ns);
        if (peer != NULL) {
            atomic_store(&peer->trouble_status, (int32_t)status);
            if (status == FERRY_ERR_STALE_KEY)
                atomic_store(&peer->outdated, true);
            ferry_ub_peer_set_trouble(peer, "device %s to the peer's %u: %s",
                                      endpoint->ctx->topology_id, endpoint->entry.key.remote,
                                      ferry_status_text(status));
        }
    }
    ferry_ub_endpoint_fail(
        endpoint, status == FERRY_ERR_DEVICE ? FERRY_DEVICE_LOCAL : FERRY_DEVICE_ENDPOINT, now_ns);
}

static void step_handshake(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    struct ub_transport *transport = endpoint->transport;
    enum ferry_status status;

    pthread_mutex_lock(&transport->mutex);
    status = endpoint->handshake_status;
    pthread_mutex_unlock(&transport->mutex);
    if (atomic_load(&endpoint->pool_busy))
        return;
    if (status == FERRY_OK && endpoint->ask_next) {
        endpoint->ask_next = false;
        endpoint->asking = true;
        ferry_ub_ask(endpoint, UB_VERB_CONNECT, connect_done, endpoint->handshake_deadline_ns);
        return;
    }
    if (status == FERRY_OK && now_ns >= endpoint->handshake_deadline_ns && !endpoint->asking)
        status = FERRY_ERR_TIMED_OUT;
    if (status != FERRY_OK)
        handshake_failed(endpoint, status, now_ns);
}

/* Nothing native is left: off all books. */
static void bury(struct ub_endpoint *endpoint)
{
    struct ub_transport *transport = endpoint->transport;

    pthread_mutex_lock(&transport->mutex);
    ferry_list_remove(&endpoint->all_link);
    pthread_mutex_unlock(&transport->mutex);
    ferry_list_remove(&endpoint->link);
    endpoint->jfc->endpoints--;
    if (endpoint->path != NULL) {
        endpoint->path->endpoint = NULL;
        endpoint->path = NULL;
        ferry_ub_endpoint_drop(endpoint);
    }
    atomic_fetch_sub(&endpoint->ctx->endpoints, 1);
    ferry_ub_endpoint_drop(endpoint);
    ferry_ub_live_drop(transport);
}

bool ferry_ub_endpoint_step(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    enum ferry_device_state state = ferry_device_life_state(&endpoint->life);

    if (state < FERRY_DEVICE_FAILED &&
        atomic_load_explicit(&endpoint->retire_asked, memory_order_relaxed))
        ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_FINE, now_ns);
    else if (state < FERRY_DEVICE_READY)
        step_handshake(endpoint, now_ns);
    else if (state == FERRY_DEVICE_READY && ferry_ub_context_state(endpoint->ctx) == UB_CTX_LOST)
        ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_LOCAL, now_ns);
    if (ferry_device_life_state(&endpoint->life) >= FERRY_DEVICE_FAILED)
        ferry_ub_fence_step(endpoint, now_ns);
    if (ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_DESTROYED || endpoint->asking ||
        atomic_load(&endpoint->pool_busy))
        return false;
    bury(endpoint);
    return true;
}
