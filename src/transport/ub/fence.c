/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an endpoint: nothing new is posted, what was posted is fenced, then each piece of work
 * is decided upon, then the native objects are taken apart. Its worker only, but for the native
 * destroys, which are the pool's.
 *
 *   LOCAL:  error state, poll until the marker, flush until empty: our device touches nothing of it
 *   FORCED: the marker does not come: destroy the jetties instead, which has the same effect
 *   REMOTE: a WRITE may still be on its way: ask the peer to fence its end, and wait for its word
 *   DONE:   what never came back counts as not reported; repeat, fail, or say "outcome unknown"
 *
 * Memory is the caller's again only after LOCAL or FORCED; a WRITE is repeated, or ended with
 * anything but "outcome unknown", only after REMOTE. A device that reported itself dead is taken at
 * its word after the forced way has failed a few times: it moves nothing any more.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/ub/internal.h"

#define RETRY_NS         (100 * FERRY_NS_PER_US)
#define ASK_AGAIN_NS     (2 * FERRY_NS_PER_MS)
#define BACKOFF_NS_MAX   FERRY_NS_PER_S
#define QUARANTINE_TRIES 20u /* after that many the device is said to hold on to it */
#define DEAD_TRIES       4u

/* ---- beginning ---- */

static void account(struct ub_endpoint *endpoint, enum ferry_device_class class, uint64_t now_ns)
{
    struct ub_path *path = endpoint->path;

    if (path == NULL || class == FERRY_DEVICE_FINE)
        return;
    if (ferry_device_rail_error(&path->rail, &endpoint->transport->settings.rail, class, now_ns))
        ferry_info("ub", "path is paused device=%s remote=%u", endpoint->ctx->topology_id,
                   endpoint->entry.key.remote);
}

void ferry_ub_endpoint_fail(struct ub_endpoint *endpoint, enum ferry_device_class class,
                            uint64_t now_ns)
{
    struct ub_transport *transport = endpoint->transport;
    bool began = false;

    if (ferry_device_life_state(&endpoint->life) >= FERRY_DEVICE_FAILED)
        return;
    FERRY_ASSERT(endpoint->batch_count == 0);
    pthread_mutex_lock(&transport->mutex);
    if (ferry_device_life_state(&endpoint->life) < FERRY_DEVICE_FAILED) {
        ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_FAILED);
        ferry_device_store_remove(&transport->store, &endpoint->entry);
        began = true;
    }
    pthread_mutex_unlock(&transport->mutex);
    if (!began)
        return;
    account(endpoint, class, now_ns);
    ferry_ub_count(&endpoint->worker->fences);
    endpoint->fence = UB_FENCE_LOCAL;
    endpoint->fence_deadline_ns = ferry_deadline_ns(now_ns, transport->settings.fence_timeout_ns);
    ferry_ub_worker_kick(endpoint->worker);
}

static bool listens(const struct ub_endpoint *endpoint)
{
    enum ferry_device_state state = ferry_device_life_state(&endpoint->life);

    return state == FERRY_DEVICE_READY ||
           (state == FERRY_DEVICE_FAILED && endpoint->fence == UB_FENCE_LOCAL &&
            !atomic_load(&endpoint->pool_busy));
}

void ferry_ub_endpoint_drained(struct ub_worker *worker, struct ub_jfc *jfc, uint32_t jetty_id)
{
    ferry_ub_count(&worker->markers);
    /* Ids are used again, but not while their jetty lives: at most one has it. The marker may come
     * before anybody asked for the error state: it is kept until then. */
    for (struct ferry_list *link = worker->endpoints.next; link != &worker->endpoints;
         link = link->next) {
        struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(link, struct ub_endpoint, link);

        /* Whose jetties the pool makes or takes apart right now waits for no marker. */
        if (endpoint->jfc != jfc || !listens(endpoint))
            continue;
        for (uint32_t i = 0; i < endpoint->jetty_count; i++) {
            if (endpoint->jetties[i].native == NULL || endpoint->jetties[i].id != jetty_id)
                continue;
            endpoint->jetties[i].drained = true;
            /* Unasked: the jetty is in error, and what was posted since is never reported. */
            ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_ENDPOINT,
                                   ferry_ub_now(endpoint->transport));
        }
    }
}

/* ---- LOCAL ---- */

/* What never reached the hardware; true once there is nothing more of it. */
static bool flush(struct ub_endpoint *endpoint, struct ub_jetty *jetty, uint64_t now_ns)
{
    struct ferry_urma_completion out[32];
    uint32_t count;

    do {
        if (ferry_urma_jetty_flush(&endpoint->transport->urma, jetty->native, out,
                                   FERRY_ARRAY_LEN(out), &count)
                .class
            != FERRY_URMA_OK)
            return false;
        for (uint32_t i = 0; i < count; i++)
            ferry_ub_worker_completed(endpoint->worker, &out[i], now_ns);
    } while (count > 0);
    return true;
}

static bool fence_jetty(struct ub_endpoint *endpoint, struct ub_jetty *jetty, uint64_t now_ns)
{
    if (jetty->native == NULL || jetty->flushed)
        return true;
    if (!jetty->error_set)
        jetty->error_set =
            ferry_urma_jetty_set_error(&endpoint->transport->urma, jetty->native).class ==
            FERRY_URMA_OK;
    if (jetty->error_set && jetty->drained)
        jetty->flushed = flush(endpoint, jetty, now_ns);
    return jetty->flushed;
}

/* ---- what was not reported ---- */

/* Their tokens are void from here on: a report that comes now settles nothing. */
static void hold_unreported(struct ub_endpoint *endpoint)
{
    struct ub_worker *worker = endpoint->worker;

    while (!ferry_list_empty(&endpoint->posted)) {
        struct ub_slot *slot = FERRY_CONTAINER_OF(endpoint->posted.next, struct ub_slot, link);

        atomic_fetch_add(&endpoint->refs, 1);
        ferry_ub_slot_unpost(worker, slot);
        slot->state = UB_SLOT_HELD;
        slot->endpoint = endpoint;
        slot->landed_unknown = true;
        slot->native = 0;
        slot->class = FERRY_DEVICE_UNKNOWN;
        ferry_list_push_back(&endpoint->held, &slot->link);
    }
    FERRY_ASSERT(endpoint->inflight == 0);
}

static bool needs_peer(const struct ub_endpoint *endpoint)
{
    for (const struct ferry_list *link = endpoint->held.next; link != &endpoint->held;
         link = link->next) {
        const struct ub_slot *slot = FERRY_CONTAINER_OF(link, const struct ub_slot, link);

        if (slot->landed_unknown && slot->flow->xfer->opcode == FERRY_WRITE)
            return true;
    }
    return false;
}

/* Our device touches nothing of it any more. */
static void fenced_locally(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    hold_unreported(endpoint);
    atomic_store(&endpoint->fenced, 1);
    endpoint->fence = needs_peer(endpoint) ? UB_FENCE_REMOTE : UB_FENCE_DONE;
    endpoint->fence_deadline_ns = ferry_deadline_ns(now_ns,
                                                    endpoint->transport->settings.fence_timeout_ns);
    endpoint->again_at_ns = now_ns;
}

/* ---- FORCED ---- */

static void destroy_run(struct ub_endpoint *endpoint)
{
    endpoint->pool_ok = ferry_ub_jetties_destroy(endpoint);
}

static uint64_t backoff_ns(uint32_t tries)
{
    uint64_t pause_ns = RETRY_NS << (tries < 14 ? tries : 14);

    return pause_ns < BACKOFF_NS_MAX ? pause_ns : BACKOFF_NS_MAX;
}

/* Starts the pool's destroy, or takes what came of it. True when the jetties are gone. */
static bool destroyed(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    if (atomic_load(&endpoint->pool_busy) || now_ns < endpoint->again_at_ns)
        return false;
    if (endpoint->destroy_tries > 0 && endpoint->pool_ok)
        return true;
    if (endpoint->destroy_tries++ == QUARANTINE_TRIES) {
        ferry_ub_count(&endpoint->worker->quarantined);
        ferry_warn("ub", "device holds on to an endpoint; it is kept and tried again device=%s",
                   endpoint->ctx->topology_id);
    }
    endpoint->pool_ok = false;
    endpoint->again_at_ns = ferry_deadline_ns(now_ns, backoff_ns(endpoint->destroy_tries));
    ferry_ub_endpoint_pool(endpoint, destroy_run);
    /* Without threads it has run already. */
    return !atomic_load(&endpoint->pool_busy) && endpoint->pool_ok;
}

/* ---- giving up at the close of the engine ---- */

/* The device may touch the memory still: it is kept registered and leased for ever. */
static void leak_memory(struct ub_endpoint *endpoint)
{
    struct ub_transport *transport = endpoint->transport;

    for (struct ferry_list *link = endpoint->held.next; link != &endpoint->held;
         link = link->next) {
        struct ub_slot *slot = FERRY_CONTAINER_OF(link, struct ub_slot, link);

        ferry_ub_leak(transport, slot->flow->xfer->local + slot->offset, slot->length);
    }
    ferry_error("ub", "device does not let go of memory; it is leaked on purpose device=%s",
                endpoint->ctx->topology_id);
}

/* ---- REMOTE ---- */

static void retire_done(struct ferry_peer_call *call)
{
    struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(call, struct ub_endpoint, call);
    struct ub_transport *transport = endpoint->transport;
    struct ub_message answer;

    endpoint->remote_fenced = call->status == FERRY_OK &&
                              ferry_ub_message_parse(call->reply, call->reply_len, &answer) ==
                                  FERRY_OK &&
                              answer.verb == UB_VERB_RETIRE && answer.fenced;
    /* Nobody there, or somebody else: no answer will ever come. */
    endpoint->remote_silent = call->status != FERRY_OK;
    free(call->reply);
    call->reply = NULL;
    atomic_store(&endpoint->asking, false);
    ferry_ub_endpoint_wake(endpoint);
    ferry_ub_endpoint_drop(endpoint);
    ferry_ub_live_drop(transport);
}

static void step_remote(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    if (atomic_load(&endpoint->asking))
        return;
    if (endpoint->remote_fenced || endpoint->remote_silent ||
        now_ns >= endpoint->fence_deadline_ns) {
        endpoint->fence = UB_FENCE_DONE;
        return;
    }
    if (now_ns < endpoint->again_at_ns)
        return;
    endpoint->again_at_ns = ferry_deadline_ns(now_ns, ASK_AGAIN_NS);
    atomic_store(&endpoint->asking, true);
    ferry_ub_ask(endpoint, UB_VERB_RETIRE, retire_done, endpoint->fence_deadline_ns);
}

/* ---- DONE ---- */

static enum ferry_status status_of(enum ferry_device_class class)
{
    return class == FERRY_DEVICE_LOCAL ? FERRY_ERR_DEVICE : FERRY_ERR_PATH_DOWN;
}

static const char *where_of(enum ferry_device_class class)
{
    switch (class) {
    case FERRY_DEVICE_LOCAL:
        return "ub: the local device failed, and so did every retry";
    case FERRY_DEVICE_TIMEOUT:
        return "ub: no answer in time, and none to the retries";
    case FERRY_DEVICE_PATH:
        return "ub: the path failed, and so did every retry";
    default:
        return "ub: the endpoint failed, and so did every retry";
    }
}

/* Not on the paths of a local device that failed. */
static void avoid_local(struct ub_endpoint *endpoint, struct ub_slot *slot)
{
    const struct ub_target *target =
        (const struct ub_target *)(const void *)slot->flow->xfer->target;

    for (uint32_t i = 0; i < target->peer->path_count; i++) {
        if (ferry_ub_path(endpoint->worker, target->peer, i)->local == endpoint->entry.key.local)
            slot->tried |= 1ULL << i;
    }
}

static void decide(struct ub_endpoint *endpoint, struct ub_slot *slot, uint64_t now_ns)
{
    struct ub_worker *worker = endpoint->worker;
    struct ub_flow *flow = slot->flow;
    bool lands = slot->landed_unknown && flow->xfer->opcode == FERRY_WRITE;

    FERRY_ASSERT(slot->state == UB_SLOT_HELD);
    ferry_list_remove(&slot->link);
    slot->state = UB_SLOT_WAITING;
    slot->endpoint = NULL;
    ferry_device_gate_settle(&flow->gate);
    if (lands)
        atomic_store(&flow->touched, true);
    if (lands && !endpoint->remote_fenced) {
        ferry_ub_count(&worker->unknown_outcomes);
        ferry_ub_flow_fail(flow, FERRY_ERR_OUTCOME_UNKNOWN, slot->native,
                           "ub: a part of the write was not answered, and the peer does not say "
                           "that it cannot land any more");
        ferry_ub_slot_finish(worker, slot);
    } else if (ferry_ub_flow_check(flow, now_ns)) {
        ferry_ub_slot_finish(worker, slot);
    } else if (slot->attempts >= worker->transport->settings.max_retries) {
        ferry_ub_flow_fail(flow, status_of(slot->class), slot->native, where_of(slot->class));
        ferry_ub_slot_finish(worker, slot);
    } else {
        if (slot->class == FERRY_DEVICE_LOCAL)
            avoid_local(endpoint, slot);
        ferry_ub_slot_retry(worker, slot, ferry_deadline_ns(now_ns, RETRY_NS));
    }
    ferry_ub_endpoint_drop(endpoint);
}

static void decide_all(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    /* The endpoint outlives its slots: its life's own reference is given back later. */
    while (!ferry_list_empty(&endpoint->held))
        decide(endpoint, FERRY_CONTAINER_OF(endpoint->held.next, struct ub_slot, link), now_ns);
    ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_DESTROYING);
    endpoint->again_at_ns = now_ns;
    ferry_ub_worker_kick(endpoint->worker);
}

/* ---- steps ---- */

static bool all_fenced(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    bool all = true;

    for (uint32_t i = 0; i < endpoint->jetty_count; i++)
        all = fence_jetty(endpoint, &endpoint->jetties[i], now_ns) && all;
    return all;
}

static void step_local(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    /* The pool may be making or binding jetties; it will find that the endpoint has failed. */
    if (atomic_load(&endpoint->pool_busy))
        return;
    if (all_fenced(endpoint, now_ns)) {
        fenced_locally(endpoint, now_ns);
        return;
    }
    if (now_ns < endpoint->fence_deadline_ns)
        return;
    ferry_ub_count(&endpoint->worker->forced);
    endpoint->fence = UB_FENCE_FORCED;
    endpoint->again_at_ns = now_ns;
}

static void step_forced(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    bool dead = atomic_load(&endpoint->ctx->fatal) && endpoint->destroy_tries >= DEAD_TRIES;

    if (destroyed(endpoint, now_ns) || (dead && !atomic_load(&endpoint->pool_busy))) {
        fenced_locally(endpoint, now_ns);
        return;
    }
    if (!atomic_load(&endpoint->transport->abandon) || atomic_load(&endpoint->pool_busy))
        return;
    hold_unreported(endpoint);
    leak_memory(endpoint);
    endpoint->fence = UB_FENCE_DONE;
}

static void step_destroying(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    bool abandon = atomic_load(&endpoint->transport->abandon);

    if (destroyed(endpoint, now_ns) || (abandon && !atomic_load(&endpoint->pool_busy)))
        ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_DESTROYED);
}

void ferry_ub_fence_step(struct ub_endpoint *endpoint, uint64_t now_ns)
{
    if (endpoint->fence == UB_FENCE_LOCAL)
        step_local(endpoint, now_ns);
    if (endpoint->fence == UB_FENCE_FORCED)
        step_forced(endpoint, now_ns);
    if (endpoint->fence == UB_FENCE_REMOTE)
        step_remote(endpoint, now_ns);
    if (ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_FAILED &&
        endpoint->fence == UB_FENCE_DONE)
        decide_all(endpoint, now_ns);
    if (ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_DESTROYING)
        step_destroying(endpoint, now_ns);
}
