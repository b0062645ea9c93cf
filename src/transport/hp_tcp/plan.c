/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Planning: from requests to flows, chunks and lanes, on the submitting thread. Uses the binary
 * view of the peer's segment only: no JSON, no lock, no allocation. What the peer is known not to
 * have is not sent; such a flow travels to its lane already failed, so that its end is never
 * reported from inside submit().
 */
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "transport/hp_tcp/internal.h"

/* The buffer of the target that covers the whole range, or NULL. */
static const struct hp_target_buffer *find_buffer(const struct hp_target *target, uint64_t addr,
                                                  uint64_t length)
{
    uint32_t low = 0;
    uint32_t high = target->buffer_count;
    const struct hp_target_buffer *buffer;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (target->buffers[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NULL;
    buffer = &target->buffers[low - 1];
    return ferry_range_within(addr, length, buffer->addr, buffer->length) ? buffer : NULL;
}

/* `slicing: static`: a rail's slice has at least as much as the published system moves at once. */
#define SLICE_BYTES_MIN (1u << 20)

/* As published: a large READ is one slice a rail, everything else stays whole. */
static void cut_static(struct hp_flow *flow, uint32_t rails)
{
    uint64_t length = flow->xfer->length;

    flow->dealt = flow->xfer->opcode == FERRY_READ && rails > 1 &&
                  length / rails >= SLICE_BYTES_MIN;
    flow->chunk_count = flow->dealt ? rails : 1;
    flow->chunk_bytes = length / flow->chunk_count;
}

static void cut_equally(struct hp_flow *flow, uint64_t chunk)
{
    uint64_t length = flow->xfer->length;
    uint64_t count = length / chunk;

    /* No crumb of a last chunk. */
    if (length % chunk != 0 && (count == 0 || length % chunk > chunk / 4))
        count++;
    flow->chunk_bytes = chunk;
    flow->chunk_count = (uint32_t)count;
}

/* How a request is cut. Towards v1 a WRITE stays whole: a half-done one could not be told apart. */
static void cut(struct hp_flow *flow, const struct hp_peer *peer)
{
    const struct ferry_hp_settings *settings = &flow->transport->settings;
    const struct ferry_xfer *xfer = flow->xfer;
    uint64_t chunk = settings->chunk_bytes;

    flow->dealt = false;
    if (settings->slicing == FERRY_HP_SLICING_STATIC) {
        cut_static(flow, peer->rail_count < HP_FLOW_REFS_MAX ? peer->rail_count : HP_FLOW_REFS_MAX);
        return;
    }
    if (xfer->opcode == FERRY_WRITE && !peer->speaks_ferry && !settings->v1_write_striping)
        chunk = xfer->length;
    /* Never more chunks than 32 bits count. */
    while (xfer->length / chunk > UINT32_MAX / 4)
        chunk *= 2;
    cut_equally(flow, chunk);
}

/* The most entries that any chunk of @chunk_bytes would have. */
static uint32_t entries_most(const struct ferry_xfer *xfer, uint64_t chunk_bytes)
{
    uint64_t boundary = chunk_bytes;
    uint32_t entries = 0;
    uint32_t most = 0;

    for (uint32_t i = 0; i < xfer->piece_count; i++) {
        const struct ferry_xfer_piece *piece = &xfer->pieces[i];
        uint64_t end = piece->offset + piece->length;

        entries++;
        if (entries > most)
            most = entries;
        if (end < boundary)
            continue;
        /* What crosses a boundary is an entry on both sides of it. */
        entries = end % chunk_bytes != 0;
        boundary = (end / chunk_bytes + 1) * chunk_bytes;
    }
    return most;
}

/*
 * A list is cut at equal distances too, so that a chunk's place follows from its number. Where the
 * pieces are so small that a frame would have too many, all chunks are shorter. Towards v1 there
 * are no lists: each piece is a request.
 */
static void cut_list(struct hp_flow *flow, const struct hp_peer *peer)
{
    const struct ferry_xfer *xfer = flow->xfer;
    uint64_t chunk = flow->transport->settings.chunk_bytes;

    flow->dealt = false;
    flow->singly = !peer->speaks_ferry;
    if (flow->singly) {
        flow->chunk_bytes = 0;
        flow->chunk_count = xfer->piece_count;
        return;
    }
    /*
     * Each entry has a byte at least, so this ends. Half, because the last chunk may have what two
     * would.
     */
    while (entries_most(xfer, chunk) > FERRY_SCATTER_COUNT_MAX / 2)
        chunk /= 2;
    if (xfer->length / chunk > UINT32_MAX / 4)
        ferry_hp_flow_fail(flow, FERRY_ERR_TOO_LARGE, 0,
                           "hp_tcp: a list of very many bytes, some in very small pieces");
    cut_equally(flow, chunk);
}

static void refuse(struct hp_flow *flow, enum ferry_status status, const char *where)
{
    ferry_hp_flow_fail(flow, status, 0, where);
}

/* What the peer's description says about one range; its registration id. */
static uint64_t check_range(struct hp_flow *flow, const struct hp_target *target, uint64_t addr,
                            uint64_t length)
{
    const struct hp_target_buffer *buffer = find_buffer(target, addr, length);

    if (buffer == NULL) {
        refuse(flow, FERRY_ERR_RANGE, "hp_tcp: no one buffer of the peer covers the range");
        return 0;
    }
    if (flow->xfer->opcode == FERRY_WRITE && !buffer->writable)
        refuse(flow, FERRY_ERR_PERMISSION, "hp_tcp: the peer's buffer is read-only");
    return buffer->registration_id;
}

static void check_ranges(struct hp_flow *flow, const struct hp_target *target)
{
    struct ferry_xfer *xfer = flow->xfer;

    flow->registration_id = 0;
    if (xfer->pieces == NULL)
        flow->registration_id = check_range(flow, target, xfer->remote_addr, xfer->length);
    for (uint32_t i = 0; i < xfer->piece_count; i++)
        xfer->pieces[i].own = check_range(flow, target, xfer->pieces[i].remote_addr,
                                          xfer->pieces[i].length);
}

static void prepare(struct hp_flow *flow, struct hp_transport *transport, struct ferry_xfer *xfer)
{
    const struct hp_target *target = (const struct hp_target *)(const void *)xfer->target;

    flow->xfer = xfer;
    flow->transport = transport;
    flow->singly = false;
    atomic_store_explicit(&flow->next_chunk, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->returned, 0, memory_order_relaxed);
    flow->returns = NULL;
    atomic_store_explicit(&flow->chunks_done, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->stopped, false, memory_order_relaxed);
    atomic_store_explicit(&flow->torn, false, memory_order_relaxed);
    atomic_store_explicit(&flow->status, FERRY_OK, memory_order_relaxed);
    atomic_store_explicit(&flow->native, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->where, NULL, memory_order_relaxed);
    if (xfer->pieces != NULL)
        cut_list(flow, target->peer);
    else
        cut(flow, target->peer);
    flow->small = transport->settings.isolation && flow->chunk_count == 1 &&
                  xfer->length <= transport->settings.small_request_bytes;
    if (target->peer->rails_differ)
        refuse(flow, FERRY_ERR_STALE_KEY,
               "hp_tcp: a v1 peer must have as many endpoints as this engine has rail_addresses");
    check_ranges(flow, target);
    if (xfer->length > target->base.max_transfer_bytes)
        refuse(flow, FERRY_ERR_TOO_LARGE, "hp_tcp: longer than max_transfer_bytes of one side");
    xfer->transport_data = flow;
}

/* What one submit call sends to each worker: refs chained through parcel_next. */
struct parcels {
    struct hp_ref *first[FERRY_HP_WORKERS_MAX];
    struct hp_ref *last[FERRY_HP_WORKERS_MAX];
    uint32_t used; /* workers with something */
};

void ferry_hp_parcel_run(struct ferry_worker *worker, struct ferry_job *job)
{
    struct hp_ref *ref = FERRY_CONTAINER_OF(job, struct hp_ref, job);
    struct hp_worker *hp = ferry_hp_ref_lane(ref)->worker;

    (void)worker;
    while (ref != NULL) {
        struct hp_ref *next = ref->parcel_next;

        ferry_hp_lane_enqueue(ferry_hp_ref_lane(ref), ref);
        ref = next;
    }
    ferry_hp_worker_flush(hp);
}

static void add_ref(struct parcels *parcels, struct hp_flow *flow, uint32_t slot,
                    struct hp_lane *lane)
{
    struct hp_ref *ref = &flow->refs[slot];
    uint32_t index = lane->worker->index;

    ref->job.run = ferry_hp_parcel_run;
    ref->parcel_next = NULL;
    ref->flow = flow;
    atomic_store_explicit(&ref->lane, lane, memory_order_relaxed);
    atomic_store_explicit(&ref->state, HP_REF_TRAVELLING, memory_order_relaxed);
    ref->moves = 0;
    ref->dealt_out = false;
    if (parcels->first[index] == NULL) {
        parcels->first[index] = ref;
        parcels->used++;
    } else {
        parcels->last[index]->parcel_next = ref;
    }
    parcels->last[index] = ref;
}

/* The lanes of a dealt flow: slice i goes to a lane of rail i, the lanes of a rail take turns. */
static uint32_t deal(struct hp_peer *peer, uint32_t sequence, uint32_t count,
                     struct hp_lane *lanes_out[HP_FLOW_REFS_MAX])
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t lanes = 1 + (peer->lane_count - 1 - i) / peer->rail_count;

        lanes_out[i] = &peer->lanes[i + (sequence % lanes) * peer->rail_count];
        if (ferry_hp_lane_avoided(lanes_out[i]))
            lanes_out[i] = ferry_hp_lane_instead(lanes_out[i]);
    }
    return count;
}

/* What a choice of lanes has used so far, as bits. */
struct choice {
    uint64_t lanes;
    uint64_t rails;
    uint64_t workers;
};

/* Which rules a look around the ring of lanes keeps to; the first look keeps to both. */
enum { NEW_RAIL = 1, NEW_WORKER = 2 };

/* Of more than 64 workers two may share a bit; then one is passed by for another. */
static uint64_t worker_bit(const struct hp_lane *lane)
{
    return UINT64_C(1) << lane->worker->index % 64;
}

static bool fits(const struct hp_lane *lane, const struct choice *used, unsigned rules)
{
    if ((used->lanes & UINT64_C(1) << lane->index) != 0 || ferry_hp_lane_avoided(lane))
        return false;
    if ((rules & NEW_RAIL) != 0 && (used->rails & UINT64_C(1) << lane->rail->index) != 0)
        return false;
    return (rules & NEW_WORKER) == 0 || (used->workers & worker_bit(lane)) == 0;
}

/*
 * Lanes for a flow among the first @open ones: of different rails as long as there are any, then
 * of different workers, so that a request uses more than one wire and more than one core.
 */
static uint32_t spread(struct hp_peer *peer, uint32_t open, uint32_t first, uint32_t want,
                       struct hp_lane *lanes_out[HP_FLOW_REFS_MAX])
{
    static const unsigned looks[] = {NEW_RAIL | NEW_WORKER, NEW_RAIL, NEW_WORKER, 0};
    struct choice used = {0};
    uint32_t count = 0;

    for (uint32_t look = want > 1 ? 0 : 3; look < FERRY_ARRAY_LEN(looks) && count < want; look++) {
        for (uint32_t i = 0; i < open && count < want; i++) {
            struct hp_lane *lane = &peer->lanes[(first + i) % open];

            if (!fits(lane, &used, looks[look]))
                continue;
            used.lanes |= UINT64_C(1) << lane->index;
            used.rails |= UINT64_C(1) << lane->rail->index;
            used.workers |= worker_bit(lane);
            lanes_out[count++] = lane;
        }
    }
    return count;
}

/* How many lanes share the flow: at least one a rail, if there are chunks for all of them. */
static uint32_t share(const struct hp_flow *flow, const struct hp_peer *peer, uint32_t open)
{
    uint32_t lanes = flow->transport->settings.lanes_per_task;

    if (lanes < peer->rail_count)
        lanes = peer->rail_count;
    if (lanes > flow->chunk_count)
        lanes = flow->chunk_count;
    if (lanes > open)
        lanes = open;
    if (lanes > HP_FLOW_REFS_MAX)
        lanes = HP_FLOW_REFS_MAX;
    return atomic_load_explicit(&flow->stopped, memory_order_relaxed) ? 1 : lanes;
}

/* Choose the flow's lanes and refer to it from each of them. */
static void assign(struct parcels *parcels, struct hp_flow *flow)
{
    struct hp_peer *peer = ((struct hp_target *)(void *)flow->xfer->target)->peer;
    struct hp_lane *lanes[HP_FLOW_REFS_MAX];
    uint32_t open = ferry_hp_isolation_begin(peer, flow);
    struct hp_lane *own = ferry_hp_isolation_lane(peer, flow);
    uint32_t want = share(flow, peer, open);
    bool dealt = flow->dealt && want == flow->chunk_count;
    uint32_t first = atomic_fetch_add_explicit(&peer->next_lane, dealt ? 1 : want,
                                               memory_order_relaxed);
    uint32_t count = 0;

    if (own != NULL)
        lanes[count++] = own;
    else if (dealt)
        count = deal(peer, first, want, lanes);
    else
        count = spread(peer, open, first, want, lanes);
    if (count == 0)
        /* The rails have changed while they were looked at. */
        lanes[count++] = &peer->lanes[first % peer->lane_count];
    if (ferry_hp_rails_matter(peer))
        ferry_hp_rails_wake(peer);
    flow->ref_count = count;
    atomic_store_explicit(&flow->holds, count, memory_order_relaxed);
    atomic_store_explicit(&flow->refs_left, count, memory_order_relaxed);
    atomic_store_explicit(&flow->refs_live, count, memory_order_relaxed);
    atomic_store_explicit(&flow->xfer->driver, count == 1 ? lanes[0]->worker->worker : NULL,
                          memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++)
        add_ref(parcels, flow, i, lanes[i]);
}

/* True in a callback of one of our workers: there, jobs must not run inside the post. */
static bool in_callback(const struct hp_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (ferry_worker_is_current(transport->workers[i].worker))
            return true;
    }
    return false;
}

static void post(struct hp_transport *transport, struct parcels *parcels)
{
    uint32_t left = parcels->used;
    bool inline_ok = !in_callback(transport);

    for (uint32_t i = 0; i < transport->worker_count && left > 0; i++) {
        struct hp_ref *ref = parcels->first[i];

        if (ref == NULL)
            continue;
        left--;
        /* The last one may run right here if nobody drives that worker. */
        ferry_worker_post(transport->workers[i].worker, &ref->job, inline_ok && left == 0);
    }
}

static bool total_bytes(struct ferry_xfer *const *xfers, uint32_t count, uint64_t *total_out)
{
    *total_out = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!ferry_add_u64(*total_out, xfers[i]->length, total_out))
            return false;
    }
    return true;
}

enum ferry_status ferry_hp_submit(struct ferry_transport *base, struct ferry_xfer *const *xfers,
                                  uint32_t count)
{
    struct hp_transport *transport = ferry_hp_of(base);
    struct parcels parcels;
    enum ferry_status status;
    uint64_t bytes;

    if (!total_bytes(xfers, count, &bytes))
        return FERRY_ERR_QUEUE_FULL;
    status = ferry_hp_admission_take(&transport->admission, count, bytes);
    if (status != FERRY_OK)
        return status;
    memset(parcels.first, 0, transport->worker_count * sizeof(parcels.first[0]));
    parcels.used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct hp_flow *flow = ferry_pool_acquire(&transport->flows);

        /* The pool has as many flows as admission has tasks, and a flow goes back first. */
        FERRY_ASSERT(flow != NULL);
        prepare(flow, transport, xfers[i]);
        assign(&parcels, flow);
    }
    post(transport, &parcels);
    return FERRY_OK;
}
