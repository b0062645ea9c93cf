/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry_read() and ferry_write(): one request, waited for. Batches of one task are kept in a
 * bounded ring and used again, so that steady use allocates nothing; how many there are follows how
 * many threads are inside at once. Runs on the calling thread.
 *
 * The memory is the caller's on return in any case: when the deadline passes the request is
 * canceled, and its real end is waited for.
 */
#include <string.h>

#include "base/error.h"
#include "runtime/runtime.h"

/* The transport ends a request at its deadline by itself; this much later we ask for it. */
#define GRACE_NS (20 * FERRY_NS_PER_MS)

static enum ferry_status take_batch(struct ferry_engine *engine, struct ferry_batch **batch_out)
{
    struct ferry_batch *batch = ferry_ring_pop(&engine->sync_batches);

    if (batch == NULL)
        return ferry_batch_new(engine, 1, batch_out);
    *batch_out = batch;
    return FERRY_OK;
}

static void keep_batch(struct ferry_engine *engine, struct ferry_batch *batch)
{
    /* Nobody else has the handle: it is quiet as soon as its ender has left. */
    while (!ferry_batch_quiet(batch, FERRY_NEVER_NS))
        continue;
    ferry_batch_clear(batch);
    if (ferry_ring_push(&engine->sync_batches, batch))
        return;
    atomic_store(&batch->dead, true);
    atomic_fetch_add(&batch->pins, 1);
    ferry_batch_delete(batch);
    ferry_batch_leave(batch);
}

/* @late: we asked for the end because the deadline passed, so a cancel is a timeout to the caller.
 */
static enum ferry_status result_of(struct ferry_batch *batch, bool late)
{
    struct ferry_task *task = &batch->tasks[0];
    char sentence[FERRY_ERROR_TEXT_SIZE];
    enum ferry_status status;

    if (atomic_load_explicit(&task->state, memory_order_acquire) == FERRY_TASK_COMPLETED)
        return FERRY_OK;
    status = (enum ferry_status)atomic_load(&task->status);
    if (late && status == FERRY_ERR_CANCELED)
        return ferry_fail(FERRY_ERR_TIMED_OUT, "timed out: the request was canceled after its "
                                               "deadline");
    ferry_task_sentence(batch, 0, sentence, sizeof(sentence));
    return ferry_fail(status, "%s", sentence);
}

static enum ferry_status run_one(struct ferry_engine *engine, const struct ferry_request *request,
                                 uint64_t deadline_ns)
{
    struct ferry_batch *batch;
    enum ferry_status status = take_batch(engine, &batch);

    if (status != FERRY_OK)
        return status;
    status = ferry_batch_submit_inside(batch, request, 1);
    if (status == FERRY_OK) {
        uint64_t patience_ns = ferry_deadline_ns(deadline_ns, GRACE_NS);
        bool late = ferry_batch_wait_inside(batch, UINT32_MAX, patience_ns) != FERRY_OK;

        if (late) {
            ferry_batch_cancel_inside(batch, 0, 1);
            while (ferry_batch_wait_inside(batch, UINT32_MAX, FERRY_NO_DEADLINE) != FERRY_OK)
                continue;
        }
        status = result_of(batch, late);
    }
    keep_batch(engine, batch);
    return status;
}

static enum ferry_status run_public(struct ferry_engine *engine,
                                    const struct ferry_request *request, enum ferry_opcode opcode,
                                    uint64_t deadline_ns)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_request copy = FERRY_REQUEST_INIT;

    if (status != FERRY_OK)
        return status;
    if (request == NULL || request->struct_size < FERRY_REQUEST_SIZE_MIN)
        return ferry_fail(FERRY_ERR_INVALID, "struct ferry_request: struct_size %zu, expected %zu",
                          request != NULL ? request->struct_size : 0, sizeof(copy));
    if (engine->seams.threadless && engine->seams.step == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "nobody can wait in this engine");
    memcpy(&copy, request,
           request->struct_size < sizeof(copy) ? request->struct_size : sizeof(copy));
    copy.struct_size = sizeof(copy);
    copy.opcode = opcode;
    if (copy.deadline_ns == 0 || copy.deadline_ns > deadline_ns)
        copy.deadline_ns = deadline_ns;
    /* A deadline of 0 is one that has passed, not none. */
    if (copy.deadline_ns == 0)
        copy.deadline_ns = 1;
    return run_one(engine, &copy, copy.deadline_ns);
}

enum ferry_status ferry_read(struct ferry_engine *engine, const struct ferry_request *request,
                             uint64_t deadline_ns)
{
    return run_public(engine, request, FERRY_READ, deadline_ns);
}

enum ferry_status ferry_write(struct ferry_engine *engine, const struct ferry_request *request,
                              uint64_t deadline_ns)
{
    return run_public(engine, request, FERRY_WRITE, deadline_ns);
}
