/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cancel: mark tasks, tell their transports, and let the keeper look at those that no transport has
 * at the moment. Any thread; ends nothing itself, so no callback runs inside a cancel.
 */
#include "base/error.h"
#include "runtime/runtime.h"

static void cancel_one(struct ferry_task *task, bool *keeper_out)
{
    enum ferry_task_state state = (enum ferry_task_state)atomic_load_explicit(&task->state,
                                                                              memory_order_acquire);

    if (!ferry_task_state_open(state))
        return;
    atomic_store(&task->xfer.cancel_asked, true);
    /*
     * The state is read again after the mark: a task that leaves a transport for the keeper, or
     * comes back, sees the mark when it does.
     */
    if (atomic_load(&task->state) == FERRY_TASK_WAITING)
        *keeper_out = true;
    ferry_transport_cancel(atomic_load(&task->transport), &task->xfer);
}

uint32_t ferry_batch_cancel_inside(struct ferry_batch *batch, uint32_t first, uint32_t end)
{
    bool keeper = false;
    uint32_t submitted;

    /* Whoever uses slots again waits for this: a mark must not hit the slot's next task. */
    atomic_fetch_add(&batch->cancels, 1);
    /* Counted in before the look at what there is: who takes slots back looks the other way round.
     */
    submitted = ferry_counts_submitted(atomic_load(&batch->counts));
    for (uint32_t i = first; i < end && i < submitted; i++)
        cancel_one(&batch->tasks[i], &keeper);
    if (atomic_fetch_sub(&batch->cancels, 1) == 1)
        ferry_futex_wake(&batch->cancels, INT32_MAX);
    if (keeper)
        ferry_keeper_poke(batch->engine);
    return submitted;
}

enum ferry_status ferry_batch_cancel(struct ferry_engine *engine, uint64_t batch)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    ferry_batch_cancel_inside(object, 0, object->capacity);
    ferry_batch_leave(object);
    return FERRY_OK;
}

enum ferry_status ferry_task_cancel(struct ferry_engine *engine, uint64_t batch, uint32_t task)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;
    uint32_t submitted;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    submitted = task < object->capacity ? ferry_batch_cancel_inside(object, task, task + 1)
                                        : ferry_counts_submitted(atomic_load(&object->counts));
    ferry_batch_leave(object);
    if (task >= submitted)
        return ferry_fail(FERRY_ERR_INVALID, "task %u: the batch has %u", task, submitted);
    return status;
}
