/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: making and freeing them, who is inside one, and how its end is told. Create and destroy
 * run on the caller's thread and allocate; the end is told on whichever thread ended the last task.
 *
 * Batch objects come from a pool, so a stale handle may be looked at; `pins` keeps the tasks of a
 * batch from being freed under a thread that is inside a call. Once whoever tells the end has added
 * to cycles_ended, it touches nothing of the batch but words in the pool.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "runtime/runtime.h"

#define GLANCE_NS FERRY_NS_PER_MS /* longest sleep of a wait whose waker may have missed us */

#define QUIET_SPINS 1000u

/*
 * The batch whose callback runs on this thread, and whether this thread is inside a submit. Besides
 * the error text the only state per thread in the library: a callback must not wait for its own
 * worker and must not run inside a submit, and only the thread can know that.
 */
static _Thread_local const struct ferry_batch *calling_back;
static _Thread_local bool submitting;

bool ferry_in_callback(void)
{
    return calling_back != NULL;
}

bool ferry_mark_submitting(bool inside)
{
    bool before = submitting;

    submitting = inside;
    return before;
}

struct ferry_batch *ferry_batch_enter(struct ferry_engine *engine, uint64_t handle)
{
    struct ferry_batch *batch = ferry_pool_get(&engine->batches, handle);

    if (batch != NULL) {
        atomic_fetch_add(&batch->pins, 1);
        if (ferry_pool_get(&engine->batches, handle) == batch && !atomic_load(&batch->dead))
            return batch;
        ferry_batch_leave(batch);
    }
    ferry_fail(FERRY_ERR_STALE_HANDLE, "batch handle %#llx names no batch",
               (unsigned long long)handle);
    return NULL;
}

void ferry_batch_leave(struct ferry_batch *batch)
{
    uint32_t left = atomic_fetch_sub(&batch->pins, 1) - 1;

    /* Only a destroyer sleeps on pins; it is inside itself and waits for 1. */
    if (left == 1 && atomic_load(&batch->dead))
        ferry_futex_wake(&batch->pins, 1);
}

enum ferry_status ferry_batch_new(struct ferry_engine *engine, uint32_t capacity,
                                  struct ferry_batch **batch_out)
{
    FERRY_AUTO_FREE struct ferry_task *tasks = calloc(capacity, sizeof(*tasks));
    FERRY_AUTO_FREE struct ferry_xfer **xfers = calloc(capacity, sizeof(*xfers));
    struct ferry_batch *batch;

    if (tasks == NULL || xfers == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "batch: no memory for %u tasks", capacity);
    batch = ferry_pool_acquire(&engine->batches);
    if (batch == NULL)
        return ferry_fail(FERRY_ERR_LIMIT, "batches_max: %u batches exist",
                          engine->settings.batches_max);
    batch->engine = engine;
    batch->handle = ferry_pool_handle(&engine->batches, batch);
    batch->capacity = capacity;
    batch->tasks = ferry_take_ptr(&tasks);
    batch->xfers = ferry_take_ptr(&xfers);
    batch->done = NULL;
    batch->done_arg = NULL;
    atomic_store(&batch->counts, 0);
    atomic_store(&batch->eventfd, 0);
    atomic_store(&batch->spin_score, 4);
    atomic_store(&batch->driven, NULL);
    ferry_batch_clear(batch);
    atomic_store(&batch->dead, false);

    pthread_mutex_lock(&engine->batches_mutex);
    ferry_list_push_back(&engine->batch_list, &batch->link);
    pthread_mutex_unlock(&engine->batches_mutex);
    *batch_out = batch;
    return FERRY_OK;
}

/* Sleep until *word is @value; whoever changes it wakes us, or a glance a millisecond later does.
 */
static void await_value(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t seen;

    while ((seen = atomic_load(word)) != value)
        ferry_futex_wait(word, seen,
                         ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), GLANCE_NS));
}

static void free_parts(struct ferry_batch *batch)
{
    int fd = atomic_exchange(&batch->eventfd, 0) - 1;

    if (fd >= 0)
        close(fd);
    free(batch->tasks);
    free(batch->xfers);
    batch->tasks = NULL;
    batch->xfers = NULL;
}

void ferry_batch_delete(struct ferry_batch *batch)
{
    struct ferry_engine *engine = batch->engine;

    FERRY_ASSERT(ferry_counts_open(atomic_load(&batch->counts)) == 0);
    FERRY_ASSERT(atomic_load(&batch->dead));
    await_value(&batch->pins, 1);
    await_value(&batch->cancels, 0);
    pthread_mutex_lock(&engine->batches_mutex);
    ferry_list_remove(&batch->link);
    pthread_mutex_unlock(&engine->batches_mutex);
    free_parts(batch);
    ferry_pool_release(&engine->batches, batch);
}

bool ferry_batch_quiet(struct ferry_batch *batch, uint64_t deadline_ns)
{
    uint32_t spins = 0;

    for (;;) {
        uint32_t ended = atomic_load(&batch->cycles_ended);

        if (ferry_counts_open(atomic_load(&batch->counts)) != 0)
            return false;
        if (ended == atomic_load(&batch->cycles_begun))
            return true;
        /* The last task has ended and its ender is telling so; the callback may be ours. */
        if (calling_back == batch)
            return false;
        if (batch->engine->seams.threadless)
            return false;
        /* Mostly it is a few instructions away; a callback may take longer. */
        if (spins++ < QUIET_SPINS) {
            ferry_cpu_relax();
            continue;
        }
        atomic_store(&batch->cycles_waited, 1);
        if (!ferry_futex_wait(&batch->cycles_ended, ended, deadline_ns) &&
            ferry_now_ns(&ferry_clock_system) >= deadline_ns)
            return false;
    }
}

void ferry_batch_await_cancels(struct ferry_batch *batch)
{
    await_value(&batch->cancels, 0);
}

void ferry_batch_clear(struct ferry_batch *batch)
{
    /* First: a cancel that still looks at a task of the last round must not meet one of the next.
     */
    atomic_store(&batch->counts, 0);
    ferry_batch_await_cancels(batch);
    atomic_store(&batch->bytes, 0);
    atomic_store(&batch->completed, 0);
    atomic_store(&batch->worst, FERRY_TASK_COMPLETED);
    atomic_store(&batch->wake_at, UINT32_MAX);
}

void ferry_batch_sum(struct ferry_batch *batch, struct ferry_batch_status *status_out)
{
    uint64_t counts = atomic_load(&batch->counts);
    uint32_t ended = ferry_counts_ended(counts);
    /*
     * Each end adds to the sums before it takes the count down (both seq_cst), so sums read after
     * the count are whole once nothing is open. Before that they may be ahead of it.
     */
    uint32_t completed = atomic_load(&batch->completed);

    status_out->bytes = atomic_load(&batch->bytes);
    status_out->state = ferry_counts_open(counts) != 0
                            ? FERRY_TASK_PENDING
                            : (enum ferry_task_state)atomic_load(&batch->worst);
    status_out->ended = ended;
    status_out->completed = completed < ended ? completed : ended;
    status_out->submitted = ferry_counts_submitted(counts);
}

static void signal_eventfd(struct ferry_batch *batch)
{
    int fd = atomic_load(&batch->eventfd) - 1;
    uint64_t one = 1;

    if (fd < 0)
        return;
    /* Fails only when the counter is full, and then the descriptor is readable anyway. */
    if (write(fd, &one, sizeof(one)) < 0)
        return;
}

void ferry_batch_wake(struct ferry_batch *batch)
{
    struct ferry_worker *driven;

    /*
     * A waiter counts itself in before it looks at `counts`, and we changed that before we look
     * whether somebody waits (all seq_cst): one of the two sees the other.
     */
    if (atomic_load(&batch->sleepers) != 0) {
        atomic_fetch_add(&batch->wake_word, 1);
        ferry_futex_wake(&batch->wake_word, INT32_MAX);
    }
    if (atomic_load(&batch->driven) == NULL)
        return;
    /* Counted in before the second look: the driver waits for us before it returns. */
    atomic_fetch_add(&batch->nudges, 1);
    driven = atomic_load(&batch->driven);
    if (driven != NULL)
        ferry_worker_nudge(driven);
    atomic_fetch_sub(&batch->nudges, 1);
}

/* The last step of a cycle. The batch may be gone afterwards; its place in the pool is not. */
static void end_cycle(struct ferry_batch *batch)
{
    atomic_fetch_add(&batch->cycles_ended, 1);
    if (atomic_load(&batch->cycles_waited) != 0) {
        atomic_store(&batch->cycles_waited, 0);
        ferry_futex_wake(&batch->cycles_ended, INT32_MAX);
    }
}

void ferry_batch_finish(struct ferry_batch *batch)
{
    const struct ferry_batch *outer = calling_back;

    if (batch->done == NULL) {
        /* Whoever wakes up may reset or destroy at once, without waiting for this thread. */
        signal_eventfd(batch);
        end_cycle(batch);
        ferry_batch_wake(batch);
        return;
    }
    /*
     * A submit that gets a worker's baton delivers what has arrived for others, too. The program
     * may hold a lock around its submit that its callback takes.
     */
    if (submitting) {
        ferry_keeper_finish(batch);
        return;
    }
    /* Sleepers do not wait for the callback, whose length is the program's. */
    ferry_batch_wake(batch);
    signal_eventfd(batch);
    calling_back = batch;
    batch->done(batch->done_arg, batch->handle);
    calling_back = outer;
    end_cycle(batch);
}

bool ferry_batches_quiet(struct ferry_engine *engine, uint64_t deadline_ns)
{
    struct ferry_list *head = &engine->batch_list;
    bool quiet = true;

    /* Close is the only thread inside, callbacks apart; those neither create nor destroy any more.
     */
    for (struct ferry_list *link = head->next; link != head; link = link->next)
        quiet &= ferry_batch_quiet(FERRY_CONTAINER_OF(link, struct ferry_batch, link), deadline_ns);
    return quiet;
}

void ferry_batches_free(struct ferry_engine *engine)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&engine->batch_list)) != NULL) {
        struct ferry_batch *batch = FERRY_CONTAINER_OF(link, struct ferry_batch, link);

        free_parts(batch);
        ferry_pool_release(&engine->batches, batch);
    }
}
