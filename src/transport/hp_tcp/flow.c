/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flows: one request inside hp_tcp, from submit to the end of its last chunk.
 *
 * A flow is held once per queued ref and once per op in flight; whoever gives the last hold back
 * ends the xfer. So nothing settles before every callback that may touch its memory has retired.
 * Any worker may claim chunks; no lock.
 */
#include "base/assert.h"
#include "transport/hp_tcp/internal.h"

bool ferry_hp_ref_claim(struct hp_ref *ref, uint32_t *chunk_out)
{
    struct hp_flow *flow = ref->flow;
    uint32_t chunk;

    /* Look before adding, so that the counter cannot wrap however often lanes ask. */
    if (ferry_hp_ref_spent(ref))
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

void ferry_hp_ref_leave(struct hp_ref *ref)
{
    struct hp_flow *flow = ref->flow;

    FERRY_DASSERT(ferry_hp_ref_spent(ref) || ferry_hp_flow_claimed(flow));
    atomic_fetch_sub_explicit(&flow->refs_left, 1, memory_order_relaxed);
    ferry_list_remove(&ref->link);
    ferry_hp_flow_drop(flow);
}

void ferry_hp_ref_give_up(struct hp_ref *ref, enum ferry_status status, int32_t native,
                          const char *where)
{
    struct hp_flow *flow = ref->flow;
    /* One of two lanes that give up at the same time sees itself as the last. */
    bool last = atomic_fetch_sub(&flow->refs_left, 1) == 1;

    ferry_list_remove(&ref->link);
    if (!ferry_hp_ref_spent(ref) && (last || flow->dealt || status == FERRY_ERR_CLOSING))
        ferry_hp_flow_fail(flow, status, native, where);
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
    ferry_pool_release(&transport->flows, flow);
    /* Admission first: a waiter that submits again at once must find the room it just freed. */
    ferry_hp_admission_give(&transport->admission, 1, length);
    ferry_xfer_end(xfer, status, native, where);
}
