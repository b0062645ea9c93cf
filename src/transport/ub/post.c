/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Posting: a worker cuts slices off the flows in its queues, chooses a path for each, and posts
 * them in batches, one list an endpoint. Cutting is late: a slice is cut when some path has room
 * for it, so that fast devices take more of a request than slow ones, and a lost one nothing.
 *
 * Holder of the worker's baton only; no allocation, no lock, but for the first use of a key.
 */
#include "base/assert.h"
#include "base/checked.h"
#include "transport/ub/internal.h"

/* How soon a slice that found no place is looked at again. */
#define AGAIN_NS FERRY_NS_PER_MS

struct ub_path *ferry_ub_path(struct ub_worker *worker, struct ub_peer *peer, uint32_t index)
{
    FERRY_DASSERT(index < peer->path_count);
    return &peer->paths[(size_t)worker->index * peer->path_count + index];
}

/* ---- choosing ---- */

static uint8_t least_loaded(const struct ub_endpoint *endpoint)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < endpoint->jetty_count; i++) {
        if (endpoint->jetties[i].inflight < endpoint->jetties[best].inflight)
            best = i;
    }
    return (uint8_t)best;
}

/* On one of its jetties and in its completion queue, where each jetty needs room for markers. */
static bool endpoint_room(const struct ub_endpoint *endpoint)
{
    const struct ub_jfc *jfc = endpoint->jfc;
    uint32_t markers = 2 * jfc->endpoints * endpoint->jetty_count;

    return endpoint->jetties[least_loaded(endpoint)].inflight < endpoint->ctx->jetty_depth &&
           (jfc->inflight == 0 || jfc->inflight + markers < jfc->depth);
}

/* What a path may be used for now, apart from how good it is. */
static bool path_open(struct ub_worker *worker, struct ub_peer *peer, struct ub_path *path,
                      uint64_t now_ns)
{
    struct ub_ctx *ctx = &worker->transport->ctxs[path->local];

    return ferry_ub_context_state(ctx) == UB_CTX_ACTIVE &&
           ferry_device_rail_usable(&path->rail, now_ns) && path->remote < peer->remote_count;
}

static bool near_memory(const struct ub_ctx *ctx, const struct ub_flow *flow)
{
    if (flow == NULL || flow->local == NULL || flow->local->numa_node < 0 || ctx->numa_node < 0)
        return true;
    return flow->local->numa_node == ctx->numa_node;
}

/* Its endpoint, if it is ready; begins one where there is none. */
static struct ub_endpoint *ready_endpoint(struct ub_worker *worker, struct ub_peer *peer,
                                          struct ub_path *path, uint64_t now_ns)
{
    struct ub_endpoint *endpoint = ferry_ub_endpoint_get(worker, peer, path, now_ns);

    if (endpoint == NULL || ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_READY ||
        atomic_load_explicit(&endpoint->retire_asked, memory_order_relaxed))
        return NULL;
    return endpoint;
}

void ferry_ub_candidates(struct ub_worker *worker, const struct ub_place *place, uint64_t now_ns,
                         struct ferry_device_candidate *candidates)
{
    struct ub_peer *peer = place->peer;
    uint32_t locals_served = 0; /* bit per local device that one of its own paths serves */

    /* First the paths of peace time; others only for a device that has none of those left. */
    for (uint32_t round = 0; round < 2; round++) {
        uint32_t served_before = locals_served;

        for (uint32_t i = 0; i < peer->path_count; i++) {
            struct ub_path *path = ferry_ub_path(worker, peer, i);
            struct ub_ctx *ctx = &worker->transport->ctxs[path->local];
            struct ferry_device_candidate *c = &candidates[i];
            struct ub_endpoint *endpoint;

            if (path->primary != (round == 0))
                continue;
            *c = (struct ferry_device_candidate){.near = near_memory(ctx, place->flow)};
            if (round == 1 && (served_before & (1u << path->local)) != 0)
                continue;
            if (!path_open(worker, peer, path, now_ns))
                continue;
            endpoint = ready_endpoint(worker, peer, path, now_ns);
            /* On its way, or to be tried soon: that is no reason to take another path's place. */
            if (endpoint != NULL || path->endpoint != NULL)
                locals_served |= 1u << path->local;
            c->ready = endpoint != NULL;
            c->tried = (place->tried & (1ULL << i)) != 0;
            c->errors = path->rail.window_errors;
            c->inflight = ferry_device_quota_bytes(&ctx->quota);
            c->bytes_per_s = path->rail.bytes_per_s;
            c->usable = c->ready && endpoint_room(endpoint) &&
                        ferry_device_quota_has_room(&ctx->quota, place->bytes);
        }
    }
}

/* Whether some path could take work if it only had room. */
static bool any_open(struct ub_worker *worker, struct ub_peer *peer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < peer->path_count; i++) {
        struct ub_path *path = ferry_ub_path(worker, peer, i);

        if (path->endpoint != NULL && path_open(worker, peer, path, now_ns) &&
            ferry_device_life_state(&path->endpoint->life) == FERRY_DEVICE_READY)
            return true;
    }
    return false;
}

/* ---- batches ---- */

/* The pieces under a slice on one context and device; false if a key is missing there. */
static bool fill_request(struct ub_slot *slot, const struct ub_path *path,
                         struct ferry_urma_request *request)
{
    struct ub_flow *flow = slot->flow;
    const struct ferry_xfer *xfer = flow->xfer;
    struct ub_ctx *ctx = &flow->transport->ctxs[path->local];
    uint64_t remote = xfer->remote_addr + slot->offset;
    unsigned char *local = xfer->local + slot->offset;
    struct ferry_urma_mem *mem = ferry_ub_piece(flow->local, ctx->index, (uintptr_t)local)->mem;
    struct ferry_urma_rmem *rmem;

    if (mem == NULL)
        return false;
    rmem = ferry_ub_import(flow->remote, ctx, path->remote, remote);
    if (rmem == NULL)
        return false;
    *request = (struct ferry_urma_request){
        .opcode = xfer->opcode == FERRY_READ ? FERRY_URMA_READ : FERRY_URMA_WRITE,
        .token = slot->token,
        .mem = mem,
        .local = local,
        .rmem = rmem,
        .remote = remote,
        .length = slot->length,
    };
    return true;
}

/* Back into the worker's hands, as if it had not been tried. */
static void take_back(struct ub_worker *worker, struct ub_slot *slot, uint64_t due_ns)
{
    ferry_ub_slot_unpost(worker, slot);
    ferry_device_gate_settle(&slot->flow->gate);
    slot->state = UB_SLOT_WAITING;
    slot->due_ns = due_ns;
    ferry_list_push_back(&worker->waiting, &slot->link);
}

static void flush(struct ub_worker *worker, struct ub_endpoint *endpoint, uint64_t now_ns)
{
    struct ub_jetty *jetty = &endpoint->jetties[endpoint->batch_jetty];
    uint32_t count = endpoint->batch_count;
    struct ferry_urma_post_result result;
    struct ferry_urma_status status;

    endpoint->batch_count = 0;
    ferry_list_remove(&endpoint->dirty_link);
    if (count == 0)
        return;
    FERRY_ASSERT(ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_READY);
    status = ferry_urma_jetty_post(&worker->transport->urma, jetty->native, endpoint->batch, count,
                                   &result);
    atomic_store_explicit(&worker->posts,
                          atomic_load_explicit(&worker->posts, memory_order_relaxed) +
                              result.accepted,
                          memory_order_relaxed);
    if (status.class == FERRY_URMA_OK)
        return;
    if (!result.known) {
        /* Some may be on their way: all are treated so, until the fence says what became of them.
         */
        ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_UNKNOWN, now_ns);
        return;
    }
    for (uint32_t i = result.accepted; i < count; i++) {
        struct ub_slot *slot = endpoint->batch_slots[i];

        if (i == result.accepted && status.class == FERRY_URMA_CALLER)
            ferry_ub_flow_fail(slot->flow, FERRY_ERR_DEVICE, status.native,
                               "ub: the device does not take the request");
        take_back(worker, slot, ferry_deadline_ns(now_ns, AGAIN_NS));
    }
    if (status.class != FERRY_URMA_BUSY && status.class != FERRY_URMA_CALLER)
        ferry_ub_endpoint_fail(endpoint, ferry_ub_class(status), now_ns);
}

static void flush_all(struct ub_worker *worker, uint64_t now_ns)
{
    while (!ferry_list_empty(&worker->dirty))
        flush(worker, FERRY_CONTAINER_OF(worker->dirty.next, struct ub_endpoint, dirty_link),
              now_ns);
}

/* Room in the batch for one more on a jetty that has room. False: the endpoint has failed. */
static bool batch_ready(struct ub_worker *worker, struct ub_endpoint *endpoint, uint64_t now_ns)
{
    if (endpoint->batch_count == UB_BATCH ||
        (endpoint->batch_count > 0 &&
         endpoint->jetties[endpoint->batch_jetty].inflight >= endpoint->ctx->jetty_depth))
        flush(worker, endpoint, now_ns);
    return ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_READY;
}

/* Onto the endpoint's books and into its batch. Given: the gate has let it pass. */
static void add_to_batch(struct ub_worker *worker, struct ub_slot *slot,
                         struct ub_endpoint *endpoint, const struct ferry_urma_request *request,
                         uint64_t now_ns)
{
    struct ub_path *path = endpoint->path;

    if (endpoint->batch_count == 0) {
        endpoint->batch_jetty = least_loaded(endpoint);
        ferry_list_push_back(&worker->dirty, &endpoint->dirty_link);
    }
    endpoint->batch[endpoint->batch_count] = *request;
    endpoint->batch_slots[endpoint->batch_count++] = slot;
    slot->state = UB_SLOT_POSTED;
    slot->endpoint = endpoint;
    slot->generation = endpoint->life.generation;
    slot->jetty = endpoint->batch_jetty;
    slot->posted_ns = now_ns;
    endpoint->inflight++;
    endpoint->jfc->inflight++;
    endpoint->jetties[slot->jetty].inflight++;
    if (path->inflight++ == 0)
        ferry_device_rail_sample(&path->rail, true, now_ns);
    atomic_fetch_add(&endpoint->refs, 1);
    ferry_list_push_back(&endpoint->posted, &slot->link);
    ferry_list_push_back(&worker->aged, &slot->age);
    atomic_fetch_add_explicit(&worker->posted_now, 1, memory_order_relaxed);
}

enum placed {
    PLACED,
    PLACED_NO_ROOM, /* some path will have room */
    PLACED_NO_PATH, /* no path could take it at all */
    PLACED_STOPPED, /* its flow is stopped: it must not be posted */
};

static enum placed place_slot(struct ub_worker *worker, struct ub_slot *slot, uint64_t now_ns)
{
    struct ub_target *target = (struct ub_target *)(void *)slot->flow->xfer->target;
    struct ferry_device_candidate candidates[UB_PATHS_MAX];
    struct ub_place place = {
        .peer = target->peer, .flow = slot->flow, .bytes = slot->length, .tried = slot->tried};

    ferry_ub_candidates(worker, &place, now_ns, candidates);
    for (;;) {
        uint32_t index = ferry_device_choose(candidates, target->peer->path_count,
                                             &worker->transport->settings.weights, slot->length);
        struct ferry_urma_request request;
        struct ub_path *path;
        struct ub_ctx *ctx;

        if (index == FERRY_DEVICE_NONE)
            return any_open(worker, target->peer, now_ns) ? PLACED_NO_ROOM : PLACED_NO_PATH;
        candidates[index].usable = false;
        path = ferry_ub_path(worker, target->peer, index);
        ctx = &worker->transport->ctxs[path->local];
        slot->token = ferry_device_attempts_renew(&worker->attempts, slot->index);
        if (!fill_request(slot, path, &request) || !batch_ready(worker, path->endpoint, now_ns))
            continue;
        if (!ferry_device_quota_take(&ctx->quota, 1, slot->length))
            continue;
        if (!ferry_device_gate_commit(&slot->flow->gate)) {
            ferry_device_quota_give(&ctx->quota, 1, slot->length);
            return PLACED_STOPPED;
        }
        slot->path = index;
        slot->stuck_ns = 0;
        add_to_batch(worker, slot, path->endpoint, &request, now_ns);
        return PLACED;
    }
}

/* ---- being stuck ---- */

static void fail_stuck(struct ub_worker *worker, struct ub_flow *flow)
{
    struct ub_target *target = (struct ub_target *)(void *)flow->xfer->target;
    bool device = false;

    for (uint32_t i = 0; i < worker->transport->ctx_count; i++)
        device |= ferry_ub_context_state(&worker->transport->ctxs[i]) == UB_CTX_ACTIVE;
    if (!device)
        ferry_ub_flow_fail(flow, FERRY_ERR_DEVICE, 0, "ub: no local device is usable");
    else if (atomic_load(&target->peer->outdated) ||
             atomic_load(&target->peer->trouble_status) == FERRY_ERR_PEER_GONE)
        ferry_ub_flow_fail(flow, FERRY_ERR_PEER_GONE, 0,
                           "ub: the peer does not answer, or is another process");
    else
        ferry_ub_flow_fail(flow, FERRY_ERR_PATH_DOWN, 0, "ub: no path reaches the peer");
}

/* No path for a while: the flow fails. At once if the peer itself says that it is another one. */
static bool stuck(struct ub_worker *worker, struct ub_flow *flow, uint64_t *since_ns,
                  uint64_t now_ns)
{
    struct ub_target *target = (struct ub_target *)(void *)flow->xfer->target;

    if (*since_ns == 0)
        *since_ns = now_ns;
    if (!atomic_load(&target->peer->outdated) &&
        now_ns - *since_ns < worker->transport->settings.connect_timeout_ns)
        return false;
    fail_stuck(worker, flow);
    return true;
}

/* ---- the pump ---- */

static bool pump_waiting(struct ub_worker *worker, uint64_t now_ns)
{
    struct ferry_list round;
    struct ferry_list *link;
    bool posted = false;

    if (ferry_list_empty(&worker->waiting))
        return false;
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&worker->waiting)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct ub_slot *slot = FERRY_CONTAINER_OF(link, struct ub_slot, link);
        enum placed placed = PLACED_NO_ROOM;

        if (ferry_ub_flow_check(slot->flow, now_ns))
            placed = PLACED_STOPPED;
        else if (now_ns >= slot->due_ns)
            placed = place_slot(worker, slot, now_ns);
        posted |= placed == PLACED;
        if (placed == PLACED)
            continue;
        if (placed == PLACED_NO_PATH && stuck(worker, slot->flow, &slot->stuck_ns, now_ns))
            placed = PLACED_STOPPED;
        if (placed == PLACED_STOPPED) {
            ferry_ub_slot_finish(worker, slot);
            continue;
        }
        if (now_ns >= slot->due_ns)
            slot->due_ns = placed == PLACED_NO_PATH ? ferry_deadline_ns(now_ns, AGAIN_NS) : now_ns;
        ferry_list_push_back(&worker->waiting, &slot->link);
    }
    return posted;
}

static struct ub_slot *slot_take(struct ub_worker *worker)
{
    uint32_t index;

    if (!ferry_device_attempts_take(&worker->attempts, &index))
        return NULL;
    return &worker->slots[index];
}

/* The next slice of a flow into a slot; NULL: none is left, or there is no slot. */
static struct ub_slot *cut_slice(struct ub_worker *worker, struct ub_flow *flow)
{
    struct ub_slot *slot = slot_take(worker);
    uint32_t index;

    if (slot == NULL)
        return NULL;
    index = slot->index;
    *slot = (struct ub_slot){.index = index, .flow = flow, .state = UB_SLOT_WAITING};
    ferry_list_init(&slot->link);
    ferry_list_init(&slot->age);
    if (ferry_ub_flow_claim(flow, &slot->offset, &slot->length)) {
        ferry_ub_count(&worker->slices);
        return slot;
    }
    slot->state = UB_SLOT_FREE;
    ferry_device_attempts_give(&worker->attempts, index);
    return NULL;
}

static void leave_queue(struct ub_ref *ref)
{
    ferry_list_remove(&ref->link);
    ferry_ub_flow_drop(ref->flow);
}

/* Some path has room for a slice of the flow right now; else whether any could have. */
static enum placed look_for_room(struct ub_worker *worker, struct ub_flow *flow, uint64_t now_ns)
{
    struct ub_target *target = (struct ub_target *)(void *)flow->xfer->target;
    struct ferry_device_candidate candidates[UB_PATHS_MAX];
    struct ub_place place = {.peer = target->peer, .flow = flow, .bytes = flow->slice_bytes};

    ferry_ub_candidates(worker, &place, now_ns, candidates);
    for (uint32_t i = 0; i < target->peer->path_count; i++) {
        if (candidates[i].usable)
            return PLACED;
    }
    return any_open(worker, target->peer, now_ns) ? PLACED_NO_ROOM : PLACED_NO_PATH;
}

/* Slices of one flow until it has none left or no path has room. False: the ref has left. */
static bool pump_ref(struct ub_worker *worker, struct ub_ref *ref, uint64_t now_ns, bool *posted)
{
    struct ub_flow *flow = ref->flow;

    for (;;) {
        struct ub_slot *slot;
        enum placed placed;

        if (ferry_ub_flow_check(flow, now_ns) || ferry_ub_flow_claimed(flow)) {
            leave_queue(ref);
            return false;
        }
        placed = look_for_room(worker, flow, now_ns);
        if (placed == PLACED_NO_PATH && stuck(worker, flow, &ref->stuck_ns, now_ns))
            continue;
        if (placed != PLACED)
            return true;
        ref->stuck_ns = 0;
        slot = cut_slice(worker, flow);
        if (slot == NULL)
            return !ferry_ub_flow_claimed(flow) || (leave_queue(ref), false);
        placed = place_slot(worker, slot, now_ns);
        if (placed == PLACED) {
            *posted = true;
            continue;
        }
        if (placed == PLACED_STOPPED) {
            ferry_ub_slot_finish(worker, slot);
            continue;
        }
        /* Its keys are not on the path with room: it waits, and so does the rest. */
        slot->due_ns = ferry_deadline_ns(now_ns, AGAIN_NS);
        ferry_list_push_back(&worker->waiting, &slot->link);
        return true;
    }
}

bool ferry_ub_worker_pump(struct ub_worker *worker, uint64_t now_ns)
{
    bool posted = pump_waiting(worker, now_ns);

    for (uint32_t priority = 0; priority < 3; priority++) {
        struct ferry_list *queue = &worker->queues[priority];
        struct ferry_list *link = queue->next;

        while (link != queue) {
            struct ub_ref *ref = FERRY_CONTAINER_OF(link, struct ub_ref, link);

            link = link->next;
            pump_ref(worker, ref, now_ns, &posted);
        }
    }
    flush_all(worker, now_ns);
    return posted;
}
