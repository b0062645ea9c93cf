/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks: their states, their one end, and how ends add up to the sum of a batch. Runs on whichever
 * thread ends a task (a transport's worker, a waiter that drives one, the keeper); allocates
 * nothing, takes no lock, formats nothing.
 */
#include "base/assert.h"
#include "runtime/runtime.h"

enum ferry_task_state ferry_task_state_of(enum ferry_status status)
{
    switch (status) {
#define STATE_OF(name, value, state, text)                                                         \
    case FERRY_##name:                                                                             \
        return FERRY_TASK_##state;
        FERRY_STATUS_TABLE(STATE_OF)
#undef STATE_OF
    }
    return FERRY_TASK_FAILED;
}

bool ferry_task_state_open(enum ferry_task_state state)
{
    return state == FERRY_TASK_WAITING || state == FERRY_TASK_PENDING;
}

/* Indexed by the state now; one bit per state that may follow. Nothing follows an end. */
#define TO(name) (1U << FERRY_TASK_##name)
#define ENDS     (TO(COMPLETED) | TO(INVALID) | TO(CANCELED) | TO(TIMED_OUT) | TO(FAILED))
static const uint8_t task_next[FERRY_TASK_FAILED + 1] = {
    [FERRY_TASK_WAITING] = TO(PENDING) | ENDS,
    [FERRY_TASK_PENDING] = TO(WAITING) | ENDS,
};
#undef ENDS
#undef TO

void ferry_task_move(struct ferry_task *task, enum ferry_task_state next)
{
    /* Relaxed: only the task's present owner moves it, and owners hand it over with their own
     * order. */
    uint32_t now = atomic_load_explicit(&task->state, memory_order_relaxed);

    FERRY_ASSERT(task_next[now] & (1U << next));
    /* Release pairs with the acquire in ferry_task_status(): the result and the bytes moved. */
    atomic_store_explicit(&task->state, next, memory_order_release);
}

void ferry_batch_add_end(struct ferry_batch *batch, enum ferry_task_state state, uint64_t bytes)
{
    uint32_t worst = atomic_load(&batch->worst);

    if (state == FERRY_TASK_COMPLETED) {
        atomic_fetch_add(&batch->bytes, bytes);
        atomic_fetch_add(&batch->completed, 1);
        return;
    }
    /* A maximum: any order of the ends gives the same. */
    while (worst < (uint32_t)state && !atomic_compare_exchange_weak(&batch->worst, &worst, state))
        continue;
}

/* Take one off the open ones; tell sleepers who wait for part of the batch; finish with the last.
 */
static void count_down(struct ferry_batch *batch)
{
    uint64_t counts = atomic_fetch_sub(&batch->counts, 1) - 1;

    FERRY_ASSERT(ferry_counts_open(counts) < ferry_counts_submitted(counts));
    if (ferry_counts_open(counts) == 0) {
        ferry_batch_finish(batch);
        return;
    }
    /*
     * The batch cannot go away: tasks of it are open... unless the last ended meanwhile and its
     * finisher is done. Its place in the pool stays, and a wake-up too many harms nobody.
     */
    if (ferry_counts_ended(counts) >= atomic_load(&batch->wake_at)) {
        atomic_store(&batch->wake_at, UINT32_MAX);
        ferry_batch_wake(batch);
    }
}

/* Before the end is visible, so that whoever saw it finds it counted. */
static void count_end(struct ferry_task *task, enum ferry_task_state state)
{
    struct ferry_engine *engine = task->batch->engine;
    uint64_t now_ns = ferry_engine_now(engine);

    ferry_tally_add(&engine->tally, task->transport_index, task->xfer.opcode, state,
                    atomic_load_explicit(&task->length, memory_order_relaxed),
                    now_ns - task->submitted_ns);
}

void ferry_task_end(struct ferry_task *task, enum ferry_status status, int32_t native,
                    const char *where)
{
    struct ferry_batch *batch = task->batch;
    enum ferry_task_state state = ferry_task_state_of(status);

    count_end(task, state);
    atomic_store_explicit(&task->status, status, memory_order_relaxed);
    atomic_store_explicit(&task->native, native, memory_order_relaxed);
    atomic_store_explicit(&task->where, where, memory_order_relaxed);
    /* Before the end is visible: whoever sees it may unregister the memory at once. */
    ferry_task_release_memory(task);
    ferry_view_release(task->view);
    task->view = NULL;
    ferry_batch_add_end(batch, state, atomic_load_explicit(&task->length, memory_order_relaxed));
    ferry_task_move(task, state);
    count_down(batch);
}

/* A newer description of the peer may help, and the whole request may be submitted again. */
static bool outdated(const struct ferry_xfer *xfer)
{
    return xfer->status == FERRY_ERR_STALE_KEY ||
           (xfer->unapplied &&
            (xfer->status == FERRY_ERR_PEER_GONE || xfer->status == FERRY_ERR_NOT_MAPPED));
}

void ferry_task_xfer_ended(struct ferry_xfer *xfer)
{
    struct ferry_task *task = FERRY_CONTAINER_OF(xfer, struct ferry_task, xfer);

    if (FERRY_UNLIKELY(outdated(xfer)) && ferry_retry_begin(task))
        return;
    atomic_store_explicit(&task->moved, xfer->moved, memory_order_relaxed);
    ferry_task_end(task, xfer->status, xfer->native, xfer->where);
}
