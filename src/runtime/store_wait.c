/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How calls that block wait: on a futex, or, in an engine without threads, by letting whoever
 * opened it step the world. Runs on the calling thread; must not be used on a worker.
 */
#include "base/assert.h"
#include "base/error.h"
#include "runtime/runtime.h"

bool ferry_engine_sleep(struct ferry_engine *engine, _Atomic uint32_t *word, uint32_t seen,
                        uint64_t deadline_ns)
{
    if (!engine->seams.threadless)
        return ferry_futex_wait(word, seen, deadline_ns);
    if (engine->seams.step == NULL || ferry_engine_now(engine) >= deadline_ns)
        return false;
    engine->seams.step(engine->seams.step_arg);
    return true;
}

struct store_waiter {
    _Atomic uint32_t done; /* futex */
};

static void store_done(struct ferry_store_request *request)
{
    struct store_waiter *waiter = request->arg;

    /* The waiter's frame may be gone after the store: a wake-up of an address touches nothing. */
    atomic_store(&waiter->done, 1);
    ferry_futex_wake(&waiter->done, 1);
}

enum ferry_status ferry_engine_store_call(struct ferry_engine *engine,
                                          struct ferry_store_request *request)
{
    struct store_waiter waiter = {0};

    request->done = store_done;
    request->arg = &waiter;
    request->reply = NULL;
    request->error[0] = '\0';
    ferry_store_submit(engine->store, request);
    while (atomic_load(&waiter.done) == 0) {
        /* The store ends every request by its deadline; a world that cannot be stepped cannot. */
        bool more = ferry_engine_sleep(engine, &waiter.done, 0, FERRY_NEVER_NS);

        FERRY_ASSERT(more);
    }
    if (request->status != FERRY_OK)
        return ferry_fail(request->status, "%s",
                          request->error[0] != '\0' ? request->error
                                                    : ferry_status_text(request->status));
    return FERRY_OK;
}
