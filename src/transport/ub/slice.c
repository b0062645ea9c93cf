/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: a request becomes a flow, workers cut slices off its front, and the last one to let go
 * ends it. Submitting runs on the caller's thread, without a lock, an allocation or a wait; what
 * the peer is known not to have travels to a worker already failed, so that no end is told inside
 * submit(). The rest runs on workers.
 *
 * A slice never crosses the edge of a registered piece on either side. Whether it is posted or
 * canceled is decided once, by the flow's gate.
 */
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/futex.h"
#include "transport/ub/internal.h"

/* A worker is worth waking for this many slices of one request. */
#define SLICES_PER_WORKER 4u

/* ---- what a flow comes to ---- */

void ferry_ub_flow_fail(struct ub_flow *flow, enum ferry_status status, int32_t native,
                        const char *where)
{
    int32_t before = FERRY_OK;
    bool first = atomic_compare_exchange_strong(&flow->status, &before, (int32_t)status);

    /* That bytes may land still is the worst to know: it beats what was there before. */
    while (!first && status == FERRY_ERR_OUTCOME_UNKNOWN && before != FERRY_ERR_OUTCOME_UNKNOWN)
        first = atomic_compare_exchange_strong(&flow->status, &before, (int32_t)status);
    if (first) {
        atomic_store(&flow->native, native);
        atomic_store(&flow->where, where);
    }
    ferry_device_gate_close(&flow->gate);
}

void ferry_ub_flow_drop(struct ub_flow *flow)
{
    struct ub_transport *transport = flow->transport;
    struct ferry_xfer *xfer = flow->xfer;
    enum ferry_status status;
    int32_t native;
    const char *where;
    uint64_t moved;

    if (atomic_fetch_sub(&flow->holds, 1) != 1)
        return;
    FERRY_ASSERT(ferry_device_gate_committed(&flow->gate) == 0);
    status = (enum ferry_status)atomic_load(&flow->status);
    native = atomic_load(&flow->native);
    where = atomic_load(&flow->where);
    moved = atomic_load(&flow->moved);
    FERRY_ASSERT(status != FERRY_OK || moved == xfer->length);
    /* Nothing was applied of a READ ever, and of a WRITE of which no slice succeeded or may have.
     */
    xfer->unapplied = xfer->opcode == FERRY_READ || (moved == 0 && !atomic_load(&flow->touched));
    ferry_pool_release(&transport->flows, flow);
    ferry_device_quota_give(&transport->admission, 1, xfer->length);
    ferry_xfer_end(xfer, status, native, where);
    if (atomic_fetch_sub(&transport->unfinished, 1) == 1 && atomic_load(&transport->closing))
        ferry_futex_wake(&transport->unfinished, 1);
}

bool ferry_ub_flow_check(struct ub_flow *flow, uint64_t now_ns)
{
    const struct ferry_xfer *xfer = flow->xfer;

    if (ferry_ub_flow_stopped(flow))
        return true;
    if (atomic_load(&flow->transport->closing))
        ferry_ub_flow_fail(flow, FERRY_ERR_CLOSING, 0, "ub: the engine is closing");
    else if (atomic_load(&xfer->cancel_asked))
        ferry_ub_flow_fail(flow, FERRY_ERR_CANCELED, 0, "ub: canceled by the caller");
    else if (now_ns >= xfer->deadline_ns)
        ferry_ub_flow_fail(flow, FERRY_ERR_TIMED_OUT, 0, "ub: the deadline passed");
    else if (ferry_ub_range_revoked(flow->transport, xfer->local, xfer->length))
        ferry_ub_flow_fail(flow, FERRY_ERR_CANCELED, 0, "ub: the memory was unregistered");
    else
        return false;
    return true;
}

/* ---- cutting ---- */

/* Where the first piece after @addr begins on the other side, or UINT64_MAX. */
static uint64_t next_edge(const struct ub_target_buffer *buffer, uint64_t addr)
{
    for (uint32_t i = 0; i < buffer->edge_count; i++) {
        if (buffer->edges[i] > addr)
            return buffer->edges[i];
    }
    return UINT64_MAX;
}

static uint64_t slice_at(const struct ub_flow *flow, uint64_t offset)
{
    const struct ferry_xfer *xfer = flow->xfer;
    uint64_t left = xfer->length - offset;
    uint64_t length = left;
    uint64_t in_piece = ((uintptr_t)xfer->local + offset - flow->local->addr) %
                        flow->local->piece_bytes;
    uint64_t edge = next_edge(flow->remote, xfer->remote_addr + offset);

    /* No crumb of a last slice: up to a quarter more goes with the one before. */
    if (left > flow->slice_bytes + flow->slice_bytes / 4)
        length = flow->slice_bytes;
    if (length > flow->transport->slice_bytes)
        length = flow->transport->slice_bytes;
    if (length > flow->local->piece_bytes - in_piece)
        length = flow->local->piece_bytes - in_piece;
    if (length > edge - (xfer->remote_addr + offset))
        length = edge - (xfer->remote_addr + offset);
    return length;
}

bool ferry_ub_flow_claim(struct ub_flow *flow, uint64_t *offset_out, uint32_t *length_out)
{
    uint64_t offset = atomic_load(&flow->cursor);
    uint64_t length;

    do {
        if (offset >= flow->xfer->length || ferry_ub_flow_stopped(flow))
            return false;
        length = slice_at(flow, offset);
    } while (!atomic_compare_exchange_weak(&flow->cursor, &offset, offset + length));
    /* The caller's ref holds the flow meanwhile. */
    atomic_fetch_add(&flow->holds, 1);
    *offset_out = offset;
    *length_out = (uint32_t)length;
    return true;
}

/* ---- submit ---- */

static struct ub_target_buffer *find_buffer(struct ub_target *target, uint64_t addr,
                                            uint64_t length)
{
    uint32_t low = 0;
    uint32_t high = target->buffer_count;
    struct ub_target_buffer *buffer;

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

static void prepare(struct ub_flow *flow, struct ub_transport *transport, struct ferry_xfer *xfer)
{
    struct ub_target *target = (struct ub_target *)(void *)xfer->target;

    flow->xfer = xfer;
    flow->transport = transport;
    flow->slice_bytes = transport->slice_bytes;
    flow->remote = find_buffer(target, xfer->remote_addr, xfer->length);
    flow->local = ferry_ub_buffer_find(transport, (uintptr_t)xfer->local, xfer->length);
    atomic_store_explicit(&flow->cursor, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->touched, false, memory_order_relaxed);
    atomic_store_explicit(&flow->status, FERRY_OK, memory_order_relaxed);
    atomic_store_explicit(&flow->native, 0, memory_order_relaxed);
    atomic_store_explicit(&flow->where, NULL, memory_order_relaxed);
    ferry_device_gate_open(&flow->gate);
    if (flow->remote == NULL)
        ferry_ub_flow_fail(flow, FERRY_ERR_RANGE, 0,
                           "ub: no one buffer of the peer covers the range");
    else if (xfer->opcode == FERRY_WRITE && !flow->remote->writable)
        ferry_ub_flow_fail(flow, FERRY_ERR_PERMISSION, 0, "ub: the peer's buffer is read-only");
    else if (flow->remote->piece_count == 0)
        ferry_ub_flow_fail(flow, FERRY_ERR_STALE_KEY, 0,
                           "ub: the peer's range was on no device when it was described");
    else if (flow->local == NULL)
        ferry_ub_flow_fail(flow, FERRY_ERR_DEVICE, 0, "ub: no device has the local range");
    xfer->transport_data = flow;
}

struct parcels {
    struct ub_ref *first[FERRY_UB_WORKERS_MAX];
    struct ub_ref *last[FERRY_UB_WORKERS_MAX];
    uint32_t used;
};

static void run_parcel(struct ferry_worker *base, struct ferry_job *job)
{
    struct ub_ref *ref = FERRY_CONTAINER_OF(job, struct ub_ref, job);
    struct ub_transport *transport = ref->flow->transport;
    struct ub_worker *worker = NULL;

    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (transport->workers[i].worker == base)
            worker = &transport->workers[i];
    }
    while (ref != NULL) {
        struct ub_ref *next = ref->parcel_next;

        ferry_ub_worker_enqueue(worker, ref);
        ref = next;
    }
    ferry_ub_worker_round(worker);
}

static void assign(struct parcels *parcels, struct ub_flow *flow)
{
    struct ub_transport *transport = flow->transport;
    uint64_t slices = flow->xfer->length / (flow->slice_bytes * SLICES_PER_WORKER) + 1;
    uint32_t workers = transport->worker_count;
    uint32_t first;

    if (slices < workers)
        workers = (uint32_t)slices;
    if (ferry_ub_flow_stopped(flow))
        workers = 1;
    first = atomic_fetch_add_explicit(&transport->next_worker, workers, memory_order_relaxed);
    flow->ref_count = workers;
    atomic_store_explicit(&flow->holds, workers, memory_order_relaxed);
    atomic_store_explicit(&flow->xfer->driver,
                          workers == 1 ? transport->workers[first % transport->worker_count].worker
                                       : NULL,
                          memory_order_relaxed);
    for (uint32_t i = 0; i < workers; i++) {
        uint32_t index = (first + i) % transport->worker_count;
        struct ub_ref *ref = &flow->refs[i];

        ref->job.run = run_parcel;
        ref->parcel_next = NULL;
        ref->flow = flow;
        ref->stuck_ns = 0;
        if (parcels->first[index] == NULL) {
            parcels->first[index] = ref;
            parcels->used++;
        } else {
            parcels->last[index]->parcel_next = ref;
        }
        parcels->last[index] = ref;
    }
}

static bool in_callback(const struct ub_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (ferry_worker_is_current(transport->workers[i].worker))
            return true;
    }
    return false;
}

static void post(struct ub_transport *transport, struct parcels *parcels)
{
    uint32_t left = parcels->used;
    bool inline_ok = !in_callback(transport);

    for (uint32_t i = 0; i < transport->worker_count && left > 0; i++) {
        struct ub_ref *ref = parcels->first[i];

        if (ref == NULL)
            continue;
        left--;
        ferry_worker_post(transport->workers[i].worker, &ref->job, inline_ok && left == 0);
    }
}

enum ferry_status ferry_ub_submit(struct ferry_transport *base, struct ferry_xfer *const *xfers,
                                  uint32_t count)
{
    struct ub_transport *transport = ferry_ub_of(base);
    struct parcels parcels = {0};
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!ferry_add_u64(bytes, xfers[i]->length, &bytes))
            return FERRY_ERR_QUEUE_FULL;
    }
    /* Counted first and looked afterwards: quiesce sets `closing` and then waits for the count. */
    atomic_fetch_add(&transport->unfinished, count);
    if (atomic_load(&transport->closing) ||
        !ferry_device_quota_take(&transport->admission, count, bytes)) {
        if (atomic_fetch_sub(&transport->unfinished, count) == count)
            ferry_futex_wake(&transport->unfinished, 1);
        return atomic_load(&transport->closing) ? FERRY_ERR_CLOSING : FERRY_ERR_QUEUE_FULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct ub_flow *flow = ferry_pool_acquire(&transport->flows);

        /* The pool has as many flows as admission has tasks, and a flow goes back first. */
        FERRY_ASSERT(flow != NULL);
        prepare(flow, transport, xfers[i]);
        assign(&parcels, flow);
    }
    post(transport, &parcels);
    return FERRY_OK;
}
