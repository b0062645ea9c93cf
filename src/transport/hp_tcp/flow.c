/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: one request inside hp_tcp, from submit to the end of its last chunk.
 *
 * A flow is held once per queued ref, per op in flight and per chunk that came back from a lost
 * rail; whoever gives the last hold back ends the xfer. So nothing settles before every callback
 * that may touch its memory has retired. Any worker may claim chunks; no lock but for chunks that
 * came back.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

/* A chunk that came back, with the hold that it has. Off the hot path. */
static bool take_returned(struct hp_flow *flow, uint32_t *chunk_out, uint8_t *attempts_out)
{
    struct hp_transport *transport = flow->transport;
    struct hp_return *back;

    pthread_mutex_lock(&transport->mutex);
    back = flow->returns;
    if (back != NULL) {
        flow->returns = back->next;
        atomic_fetch_sub(&flow->returned, 1);
    }
    pthread_mutex_unlock(&transport->mutex);
    if (back == NULL)
        return false;
    *chunk_out = back->chunk;
    *attempts_out = back->attempts;
    ferry_pool_release(&transport->returns, back);
    return true;
}

bool ferry_hp_ref_claim(struct hp_ref *ref, uint32_t *chunk_out, uint8_t *attempts_out)
{
    struct hp_flow *flow = ref->flow;
    uint32_t chunk;

    if (ferry_hp_ref_spent(ref))
        return false;
    if (FERRY_UNLIKELY(atomic_load_explicit(&flow->returned, memory_order_relaxed) != 0) &&
        take_returned(flow, chunk_out, attempts_out))
        return true;
    /* Look before adding, so that the counter cannot wrap however often lanes ask. */
    if ((flow->dealt && ref->dealt_out) ||
        atomic_load_explicit(&flow->next_chunk, memory_order_relaxed) >= flow->chunk_count)
        return false;
    chunk = atomic_fetch_add_explicit(&flow->next_chunk, 1, memory_order_relaxed);
    if (chunk >= flow->chunk_count)
        return false;
    if (flow->dealt) {
        chunk = (uint32_t)(ref - flow->refs);
        ref->dealt_out = true;
    }
    /* The caller's ref holds the flow, so this cannot be the first hold. */
    atomic_fetch_add_explicit(&flow->holds, 1, memory_order_relaxed);
    *chunk_out = chunk;
    *attempts_out = 0;
    return true;
}

void ferry_hp_flow_fail(struct hp_flow *flow, enum ferry_status status, int32_t native,
                        const char *where)
{
    int32_t now = FERRY_OK;

    FERRY_ASSERT(status != FERRY_OK);
    atomic_store_explicit(&flow->stopped, true, memory_order_relaxed);
    if (!atomic_compare_exchange_strong(&flow->status, &now, (int32_t)status)) {
        /* "Unknown" must win: a task that may have written is never reported as safe to repeat. */
        if (status != FERRY_ERR_OUTCOME_UNKNOWN || now == FERRY_ERR_OUTCOME_UNKNOWN)
            return;
        atomic_store(&flow->status, (int32_t)status);
    }
    /* Read by whoever drops the last hold; that drop is ordered after ours. */
    atomic_store_explicit(&flow->native, native, memory_order_relaxed);
    atomic_store_explicit(&flow->where, where, memory_order_relaxed);
}

/* The flow is stopped: nobody will claim what came back. The caller has a hold of its own. */
static void drop_returned(struct hp_flow *flow)
{
    uint32_t chunk;
    uint8_t attempts;

    while (atomic_load(&flow->returned) != 0 && take_returned(flow, &chunk, &attempts))
        ferry_hp_flow_drop(flow);
}

void ferry_hp_ref_leave(struct hp_ref *ref)
{
    struct hp_flow *flow = ref->flow;
    struct hp_lane *lane = ferry_hp_ref_lane(ref);
    bool parked = atomic_load_explicit(&ref->state, memory_order_relaxed) == HP_REF_PARKED;
    uint32_t idle = HP_REF_IDLE;

    ferry_list_remove(&ref->link);
    if (parked)
        lane->parked--;
    /* First idle, then the look for chunks that came back: see enum hp_ref_state. */
    atomic_store(&ref->state, HP_REF_IDLE);
    if (!parked)
        atomic_fetch_sub(&flow->refs_live, 1);
    if (FERRY_UNLIKELY(atomic_load(&flow->returned) != 0) && !atomic_load(&flow->stopped) &&
        atomic_compare_exchange_strong(&ref->state, &idle, HP_REF_QUEUED)) {
        atomic_fetch_add(&flow->refs_live, 1);
        ferry_hp_queue_push(lane, ref);
        ferry_hp_lane_mark_dirty(lane);
        return;
    }
    if (atomic_load(&flow->stopped)) {
        drop_returned(flow);
        /* Parked ones wait for nobody any more. */
        if (atomic_load(&flow->refs_left) > atomic_load(&flow->refs_live) + 1)
            ferry_hp_flow_release(flow);
    }
    atomic_fetch_sub_explicit(&flow->refs_left, 1, memory_order_relaxed);
    ferry_hp_flow_drop(flow);
}

void ferry_hp_ref_give_up(struct hp_ref *ref, enum ferry_status status, int32_t native,
                          const char *where)
{
    struct hp_flow *flow = ref->flow;
    bool parked = atomic_load_explicit(&ref->state, memory_order_relaxed) == HP_REF_PARKED;
    /* One of two lanes that give up at the same time sees itself as the last. */
    bool last = !parked && atomic_fetch_sub(&flow->refs_live, 1) == 1;
    bool slice = flow->dealt && !ref->dealt_out;

    ferry_list_remove(&ref->link);
    if (parked)
        ferry_hp_ref_lane(ref)->parked--;
    if (!ferry_hp_ref_spent(ref) && (last || slice || status == FERRY_ERR_CLOSING)) {
        ferry_hp_flow_fail(flow, status, native, where);
        /* Refs that are parked elsewhere wait for nobody any more. */
        if (atomic_load(&flow->refs_left) > 1)
            ferry_hp_flow_release(flow);
    }
    atomic_store(&ref->state, HP_REF_IDLE);
    /* A chunk that came back while this ref seemed to stay, and the others had left already. */
    if (atomic_load(&flow->returned) != 0 && atomic_load(&flow->refs_live) == 0)
        ferry_hp_flow_fail(flow, status, native, where);
    if (atomic_load(&flow->stopped))
        drop_returned(flow);
    atomic_fetch_sub_explicit(&flow->refs_left, 1, memory_order_relaxed);
    ferry_hp_flow_drop(flow);
}

void ferry_hp_flow_drop(struct hp_flow *flow)
{
    struct hp_transport *transport = flow->transport;
    struct ferry_xfer *xfer = flow->xfer;
    enum ferry_status status;
    const char *where;
    int32_t native;
    uint64_t length;

    /* acq_rel: the last dropper sees the bytes and marks of all others. */
    if (atomic_fetch_sub_explicit(&flow->holds, 1, memory_order_acq_rel) != 1)
        return;
    status = (enum ferry_status)atomic_load_explicit(&flow->status, memory_order_relaxed);
    native = atomic_load_explicit(&flow->native, memory_order_relaxed);
    where = atomic_load_explicit(&flow->where, memory_order_relaxed);
    if (status == FERRY_OK)
        FERRY_ASSERT(atomic_load_explicit(&flow->chunks_done, memory_order_relaxed) ==
                     flow->chunk_count);
    length = xfer->length;
    xfer->unapplied = xfer->opcode == FERRY_READ ||
                      (atomic_load_explicit(&flow->chunks_done, memory_order_relaxed) == 0 &&
                       !atomic_load_explicit(&flow->torn, memory_order_relaxed));
    ferry_hp_isolation_end(((struct hp_target *)(void *)xfer->target)->peer, flow);
    ferry_pool_release(&transport->flows, flow);
    /* Admission first: a waiter that submits again at once must find the room it just freed. */
    ferry_hp_admission_give(&transport->admission, 1, length);
    ferry_xfer_end(xfer, status, native, where);
}
