/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers: each posts and polls what is its own. A round takes completions, lets endpoints come
 * forward, fences what has waited too long, and posts what there is room for. While something is in
 * flight rounds follow one another, spinning shortly and then at growing distances; with nothing to
 * do a worker sleeps but for a rare look at its endpoints.
 *
 * Holder of the baton only, except where a function says "any thread".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "transport/ub/internal.h"

#define POLL_NS_MIN (20 * FERRY_NS_PER_US)
#define POLL_NS_MAX FERRY_NS_PER_MS
#define SCAN_NS     (2 * FERRY_NS_PER_MS)
#define IDLE_NS     (500 * FERRY_NS_PER_MS)

/* ---- slots ---- */

void ferry_ub_slot_unpost(struct ub_worker *worker, struct ub_slot *slot)
{
    struct ub_endpoint *endpoint = slot->endpoint;
    struct ub_target *target = (struct ub_target *)(void *)slot->flow->xfer->target;

    FERRY_ASSERT(slot->state == UB_SLOT_POSTED);
    FERRY_ASSERT(slot->generation == endpoint->life.generation);
    ferry_list_remove(&slot->link);
    ferry_list_remove(&slot->age);
    ferry_device_attempts_void(&worker->attempts, slot->index);
    endpoint->inflight--;
    endpoint->jfc->inflight--;
    endpoint->jetties[slot->jetty].inflight--;
    ferry_ub_path(worker, target->peer, slot->path)->inflight--;
    ferry_device_quota_give(&endpoint->ctx->quota, 1, slot->length);
    atomic_fetch_sub_explicit(&worker->posted_now, 1, memory_order_relaxed);
    slot->endpoint = NULL;
    ferry_ub_endpoint_drop(endpoint);
}

void ferry_ub_slot_finish(struct ub_worker *worker, struct ub_slot *slot)
{
    struct ub_flow *flow = slot->flow;

    FERRY_ASSERT(slot->state == UB_SLOT_WAITING);
    ferry_list_remove(&slot->link);
    slot->state = UB_SLOT_FREE;
    slot->flow = NULL;
    ferry_device_attempts_give(&worker->attempts, slot->index);
    ferry_ub_flow_drop(flow);
}

void ferry_ub_slot_retry(struct ub_worker *worker, struct ub_slot *slot, uint64_t due_ns)
{
    FERRY_ASSERT(slot->state == UB_SLOT_WAITING);
    slot->attempts++;
    slot->tried |= 1ULL << slot->path;
    slot->due_ns = due_ns;
    slot->stuck_ns = 0;
    ferry_ub_count(&worker->retries);
    ferry_list_push_back(&worker->waiting, &slot->link);
}

/* ---- completions ---- */

enum ferry_device_class ferry_ub_class(struct ferry_urma_status status)
{
    switch (status.class) {
    case FERRY_URMA_OK:
        return FERRY_DEVICE_FINE;
    case FERRY_URMA_DEVICE:
        return FERRY_DEVICE_LOCAL;
    case FERRY_URMA_PATH:
        return FERRY_DEVICE_PATH;
    case FERRY_URMA_MEMORY:
    case FERRY_URMA_CALLER:
        return FERRY_DEVICE_MEMORY;
    case FERRY_URMA_TIMEOUT:
        return FERRY_DEVICE_TIMEOUT;
    case FERRY_URMA_FLUSHED:
    case FERRY_URMA_ENDPOINT:
    case FERRY_URMA_BUSY:
        return FERRY_DEVICE_ENDPOINT;
    default:
        return FERRY_DEVICE_UNKNOWN;
    }
}

static void succeeded(struct ub_worker *worker, struct ub_slot *slot, uint64_t now_ns)
{
    struct ub_flow *flow = slot->flow;
    struct ub_target *target = (struct ub_target *)(void *)flow->xfer->target;
    struct ub_path *path = ferry_ub_path(worker, target->peer, slot->path);

    ferry_device_rail_success(&path->rail, slot->length, now_ns - slot->posted_ns, now_ns);
    ferry_device_rail_sample(&path->rail, false, now_ns);
    ferry_ub_slot_unpost(worker, slot);
    atomic_fetch_add(&flow->moved, slot->length);
    ferry_device_gate_settle(&flow->gate);
    slot->state = UB_SLOT_WAITING;
    ferry_ub_slot_finish(worker, slot);
}

/* Remote access aborted: the key is another one now, or the process behind it. */
#define NATIVE_REM_ACCESS 8

static void refused(struct ub_worker *worker, struct ub_slot *slot,
                    const struct ferry_urma_completion *completion)
{
    struct ub_flow *flow = slot->flow;

    ferry_ub_count(&worker->errors[FERRY_DEVICE_MEMORY]);
    if (completion->status.native == NATIVE_REM_ACCESS)
        ferry_ub_flow_fail(flow, FERRY_ERR_STALE_KEY, completion->status.native,
                           "ub: the peer's device refused the key or the range");
    else
        ferry_ub_flow_fail(flow, FERRY_ERR_DEVICE, completion->status.native,
                           "ub: a device refused the memory");
    ferry_ub_slot_unpost(worker, slot);
    ferry_device_gate_settle(&flow->gate);
    slot->state = UB_SLOT_WAITING;
    ferry_ub_slot_finish(worker, slot);
}

/* What became of it the fence will say; until then it stays on its endpoint's books. */
static void held(struct ub_worker *worker, struct ub_slot *slot,
                 const struct ferry_urma_completion *completion)
{
    struct ub_endpoint *endpoint = slot->endpoint;

    /* Its endpoint stays: the hold that unposting gives back is taken once more. */
    atomic_fetch_add(&endpoint->refs, 1);
    slot->native = completion->status.native;
    slot->class = ferry_ub_class(completion->status);
    slot->landed_unknown = completion->executed != FERRY_URMA_EXECUTED_NO;
    ferry_ub_slot_unpost(worker, slot);
    slot->state = UB_SLOT_HELD;
    slot->endpoint = endpoint;
    ferry_list_push_back(&endpoint->held, &slot->link);
}

void ferry_ub_worker_completed(struct ub_worker *worker,
                               const struct ferry_urma_completion *completion, uint64_t now_ns)
{
    struct ub_endpoint *endpoint;
    struct ub_slot *slot;
    uint32_t index;

    ferry_ub_count(&worker->completions);
    if (!ferry_device_attempts_find(&worker->attempts, completion->token, &index)) {
        /* Late, twice, or nobody's: it settles nothing. */
        ferry_ub_count(&worker->stale);
        return;
    }
    slot = &worker->slots[index];
    FERRY_ASSERT(slot->state == UB_SLOT_POSTED);
    if (completion->status.class == FERRY_URMA_OK) {
        succeeded(worker, slot, now_ns);
        return;
    }
    if (completion->status.class == FERRY_URMA_MEMORY) {
        refused(worker, slot, completion);
        return;
    }
    endpoint = slot->endpoint;
    ferry_ub_count(&worker->errors[ferry_ub_class(completion->status)]);
    held(worker, slot, completion);
    /* Flushed: collateral of what broke the jetty, or of our own fence; no path is to blame. */
    ferry_ub_endpoint_fail(endpoint,
                           completion->status.class == FERRY_URMA_FLUSHED
                               ? FERRY_DEVICE_ENDPOINT
                               : ferry_ub_class(completion->status),
                           now_ns);
}

/* ---- rounds ---- */

static uint32_t poll_all(struct ub_worker *worker, uint64_t now_ns)
{
    struct ub_transport *transport = worker->transport;
    uint32_t count = 0;

    for (uint32_t i = 0; i < transport->ctx_count; i++) {
        struct ub_jfc *jfc = &transport->ctxs[i].jfcs[worker->index];

        if (jfc->endpoints > 0 && jfc->native != NULL)
            count += ferry_ub_jfc_poll(jfc, now_ns);
    }
    return count;
}

/* The oldest first; all wait equally long. */
static void time_out(struct ub_worker *worker, uint64_t now_ns)
{
    uint64_t limit_ns = worker->transport->settings.slice_timeout_ns;

    while (!ferry_list_empty(&worker->aged)) {
        struct ub_slot *slot = FERRY_CONTAINER_OF(worker->aged.next, struct ub_slot, age);

        if (now_ns - slot->posted_ns < limit_ns)
            return;
        /* Out of the queue, else it would be looked at for ever; its fence settles it. */
        ferry_list_remove(&slot->age);
        ferry_ub_count(&worker->timeouts);
        ferry_ub_endpoint_fail(slot->endpoint, FERRY_DEVICE_TIMEOUT, now_ns);
    }
}

/* True if one of them has something under way. */
static bool step_endpoints(struct ub_worker *worker, uint64_t now_ns, uint64_t *next_ns)
{
    struct ferry_list *link = worker->endpoints.next;
    bool active = false;

    while (link != &worker->endpoints) {
        struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(link, struct ub_endpoint, link);

        link = link->next;
        if (ferry_ub_endpoint_step(endpoint, now_ns))
            continue;
        if (ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_READY) {
            active = true;
            if (endpoint->again_at_ns > now_ns && endpoint->again_at_ns < *next_ns)
                *next_ns = endpoint->again_at_ns;
        }
    }
    return active;
}

/* A revocation reaches what is in flight by fencing its endpoint. */
static void fence_revoked(struct ub_worker *worker, uint64_t now_ns)
{
    for (struct ferry_list *link = worker->aged.next; link != &worker->aged; link = link->next) {
        struct ub_slot *slot = FERRY_CONTAINER_OF(link, struct ub_slot, age);
        const struct ferry_xfer *xfer = slot->flow->xfer;

        if (ferry_ub_range_revoked(worker->transport, xfer->local, xfer->length)) {
            ferry_ub_flow_check(slot->flow, now_ns);
            ferry_ub_endpoint_fail(slot->endpoint, FERRY_DEVICE_FINE, now_ns);
        }
    }
}

static uint32_t touching(const struct ub_worker *worker, const struct ferry_list *slots)
{
    uint32_t count = 0;

    for (const struct ferry_list *link = slots->next; link != slots; link = link->next) {
        const struct ferry_xfer *xfer =
            FERRY_CONTAINER_OF(link, const struct ub_slot, link)->flow->xfer;

        count += ferry_ub_range_revoked(worker->transport, xfer->local, xfer->length);
    }
    return count;
}

/* Everything of a revoked range that this worker has in hand. */
static uint32_t count_revoked(const struct ub_worker *worker)
{
    uint32_t count = touching(worker, &worker->waiting);

    for (uint32_t i = 0; i < 3; i++) {
        for (const struct ferry_list *link = worker->queues[i].next; link != &worker->queues[i];
             link = link->next) {
            const struct ferry_xfer *xfer =
                FERRY_CONTAINER_OF(link, const struct ub_ref, link)->flow->xfer;

            count += ferry_ub_range_revoked(worker->transport, xfer->local, xfer->length);
        }
    }
    for (const struct ferry_list *link = worker->endpoints.next; link != &worker->endpoints;
         link = link->next) {
        const struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(link, const struct ub_endpoint,
                                                                link);

        count += touching(worker, &endpoint->posted) + touching(worker, &endpoint->held);
    }
    return count;
}

static void scan(struct ub_worker *worker, uint64_t now_ns)
{
    bool revoking = atomic_load(&worker->transport->revoking) > 0;
    bool closing = atomic_load(&worker->transport->closing) != 0;

    if (!atomic_exchange(&worker->scan_asked, false) && now_ns < worker->scan_ns)
        return;
    worker->scan_ns = ferry_deadline_ns(now_ns, SCAN_NS);
    if (revoking)
        fence_revoked(worker, now_ns);
    for (struct ferry_list *link = worker->endpoints.next; closing && link != &worker->endpoints;
         link = link->next)
        ferry_ub_endpoint_fail(FERRY_CONTAINER_OF(link, struct ub_endpoint, link),
                               FERRY_DEVICE_FINE, now_ns);
    atomic_store(&worker->touching, revoking ? count_revoked(worker) : 0);
    atomic_fetch_add(&worker->scans, 1);
    atomic_fetch_add(&worker->transport->scan_word, 1);
    if (revoking)
        ferry_futex_wake(&worker->transport->scan_word, INT32_MAX);
}

static bool has_queued(const struct ub_worker *worker)
{
    return !ferry_list_empty(&worker->waiting) || !ferry_list_empty(&worker->queues[0]) ||
           !ferry_list_empty(&worker->queues[1]) || !ferry_list_empty(&worker->queues[2]);
}

/* When the next round is due: at once while completions come, later and later while none do. */
static void next_round(struct ub_worker *worker, bool active, uint64_t now_ns, uint64_t next_ns)
{
    struct ub_transport *transport = worker->transport;
    uint64_t quiet_ns = now_ns - worker->quiet_since_ns;
    uint64_t pause_ns = quiet_ns / 4;

    if (!active) {
        next_ns = ferry_list_empty(&worker->endpoints) ? FERRY_NEVER_NS
                                                       : ferry_deadline_ns(now_ns, IDLE_NS);
        if (worker->index == 0 && worker->look_ns < next_ns)
            next_ns = worker->look_ns;
    } else {
        uint64_t spin_ns = transport->settings.wait == FERRY_WAIT_SPIN
                               ? FERRY_NEVER_NS
                               : transport->settings.spin_us * FERRY_NS_PER_US;

        if (!transport->base.env->threadless && quiet_ns < spin_ns &&
            transport->settings.wait != FERRY_WAIT_SLEEP) {
            ferry_ub_worker_kick(worker);
            return;
        }
        if (pause_ns < POLL_NS_MIN)
            pause_ns = POLL_NS_MIN;
        if (pause_ns > POLL_NS_MAX)
            pause_ns = POLL_NS_MAX;
        if (ferry_deadline_ns(now_ns, pause_ns) < next_ns)
            next_ns = ferry_deadline_ns(now_ns, pause_ns);
    }
    if (next_ns == FERRY_NEVER_NS)
        ferry_reactor_disarm(ferry_worker_reactor(worker->worker), &worker->timer);
    else
        FERRY_ASSERT(ferry_reactor_arm(ferry_worker_reactor(worker->worker), &worker->timer,
                                       next_ns) == FERRY_OK);
}

void ferry_ub_worker_round(struct ub_worker *worker)
{
    struct ub_transport *transport = worker->transport;
    uint64_t now_ns = ferry_ub_now(transport);
    uint64_t next_ns = FERRY_NEVER_NS;
    bool active;

    if (poll_all(worker, now_ns) > 0)
        worker->quiet_since_ns = now_ns;
    if (worker->index == 0 && now_ns >= worker->look_ns)
        worker->look_ns = ferry_ub_contexts_look(transport, now_ns);
    scan(worker, now_ns);
    time_out(worker, now_ns);
    active = step_endpoints(worker, now_ns, &next_ns);
    if (ferry_ub_worker_pump(worker, now_ns))
        worker->quiet_since_ns = now_ns;
    active = active || has_queued(worker) ||
             atomic_load_explicit(&worker->posted_now, memory_order_relaxed) > 0;
    /* Endpoints that were begun in this round have not been stepped yet. */
    for (struct ferry_list *link = worker->endpoints.next; !active && link != &worker->endpoints;
         link = link->next)
        active = ferry_device_life_state(
                     &FERRY_CONTAINER_OF(link, struct ub_endpoint, link)->life) !=
                 FERRY_DEVICE_READY;
    next_round(worker, active, now_ns, next_ns);
}

static void run_kick(struct ferry_worker *base, struct ferry_job *job)
{
    struct ub_worker *worker = FERRY_CONTAINER_OF(job, struct ub_worker, kick_job);

    (void)base;
    /* Cleared first, and only here: what is asked for from now on needs another round. */
    atomic_store(&worker->kicked, false);
    ferry_ub_worker_round(worker);
}

static void on_timer(struct ferry_timer *timer)
{
    ferry_ub_worker_round(FERRY_CONTAINER_OF(timer, struct ub_worker, timer));
}

void ferry_ub_worker_kick(struct ub_worker *worker)
{
    if (!atomic_exchange(&worker->kicked, true))
        ferry_worker_post(worker->worker, &worker->kick_job, false);
}

void ferry_ub_worker_enqueue(struct ub_worker *worker, struct ub_ref *ref)
{
    ferry_list_push_back(&worker->queues[ref->flow->xfer->priority], &ref->link);
    /* Devices were not looked at while nobody needed them. */
    if (worker->index == 0 && ferry_list_empty(&worker->endpoints))
        worker->look_ns = 0;
}

/* ---- open and close ---- */

enum ferry_status ferry_ub_worker_open(struct ub_transport *transport, uint32_t index)
{
    const struct ferry_transport_env *env = transport->base.env;
    struct ub_worker *worker = &transport->workers[index];
    uint32_t slots = transport->settings.slices_per_worker;
    char name[24];
    struct ferry_worker_options options = {
        .name = name,
        .reactor = {.kind = transport->settings.reactor, .clock = env->clock},
        .reactor_ops = env->reactor_ops,
        .wait = transport->settings.wait,
        .spin_us = transport->settings.spin_us,
        .budget = env->budget,
        .threadless = env->threadless,
    };
    enum ferry_status status;

    snprintf(name, sizeof(name), "ferry-ub-%u", index);
    worker->transport = transport;
    worker->index = index;
    worker->kick_job.run = run_kick;
    worker->timer.fire = on_timer;
    for (uint32_t i = 0; i < 3; i++)
        ferry_list_init(&worker->queues[i]);
    ferry_list_init(&worker->waiting);
    ferry_list_init(&worker->aged);
    ferry_list_init(&worker->endpoints);
    ferry_list_init(&worker->dirty);
    worker->slots = calloc(slots, sizeof(*worker->slots));
    if (worker->slots == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for %u slices", slots);
    for (uint32_t i = 0; i < slots; i++)
        worker->slots[i].index = i;
    status = ferry_device_attempts_init(&worker->attempts, slots);
    if (status == FERRY_OK)
        status = ferry_worker_open(&options, &worker->worker);
    if (status == FERRY_OK && env->threadless)
        status = ferry_reactor_reserve_timers(ferry_worker_reactor(worker->worker), 1);
    return status;
}

void ferry_ub_worker_close(struct ub_worker *worker)
{
    ferry_worker_close(worker->worker);
    worker->worker = NULL;
    ferry_device_attempts_fini(&worker->attempts);
    free(worker->slots);
    worker->slots = NULL;
}
