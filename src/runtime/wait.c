/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a batch. If all its open tasks run on one worker, the caller takes that worker's
 * baton and drives it, which saves two thread switches; else it spins for a moment, if the engine's
 * mode and the budget of spinning threads allow it, and then sleeps on the batch's futex.
 *
 * A sleeper costs an ender nothing until the count of open tasks reaches 0 (or the part that it
 * waits for): one wake-up per batch, and none if nobody sleeps. Runs on the caller's thread.
 */
#include <sched.h>

#include "base/error.h"
#include "runtime/runtime.h"

/* A batch with more tasks than this is not looked through for a worker to drive. */
#define DRIVE_TASKS_MAX 256

#define SPIN_SCORE_MAX 8u

struct wait {
    struct ferry_batch *batch;
    uint32_t ended_min;
    uint64_t deadline_ns;
};

static bool wait_over(void *arg)
{
    const struct wait *wait = arg;
    uint64_t counts = atomic_load(&wait->batch->counts);

    return ferry_counts_open(counts) == 0 || ferry_counts_ended(counts) >= wait->ended_min;
}

/* Ask enders to wake when so many have ended; the smallest wish wins, the others ask again. */
static void wish(struct ferry_batch *batch, uint32_t ended_min)
{
    uint32_t now = atomic_load(&batch->wake_at);

    while (ended_min < now && !atomic_compare_exchange_weak(&batch->wake_at, &now, ended_min))
        continue;
}

/*
 * The condition of a driver. A task may have gone over to the keeper or to another worker, whose
 * ender nudges us if the wish says so; an ender that told somebody else has taken the wish down, so
 * it is made again each time. Made before the look at `counts` (all seq_cst).
 */
static bool drive_over(void *arg)
{
    struct wait *wait = arg;

    if (wait->ended_min != UINT32_MAX)
        wish(wait->batch, wait->ended_min);
    return wait_over(wait);
}

/* The worker that all open tasks run on, or NULL. */
static struct ferry_worker *common_driver(const struct ferry_batch *batch)
{
    uint32_t submitted = ferry_counts_submitted(atomic_load(&batch->counts));
    struct ferry_worker *driver = NULL;

    if (submitted > DRIVE_TASKS_MAX)
        return NULL;
    for (uint32_t i = 0; i < submitted; i++) {
        const struct ferry_task *task = &batch->tasks[i];
        struct ferry_worker *own;

        if (!ferry_task_state_open(
                (enum ferry_task_state)atomic_load_explicit(&task->state, memory_order_relaxed)))
            continue;
        /* Acquire pairs with the transport's release in submit: the worker is whole. */
        own = atomic_load_explicit(&task->xfer.driver, memory_order_acquire);
        if (own == NULL || (driver != NULL && driver != own))
            return NULL;
        driver = own;
    }
    return driver;
}

/* True if the wait is over. Sets *tired_out if there is nothing to drive, now or soon. */
static bool drive(struct wait *wait, bool *tired_out)
{
    struct ferry_batch *batch = wait->batch;
    struct ferry_worker *worker = common_driver(batch);
    struct ferry_worker *nobody = NULL;
    bool drove = false;
    bool over;

    *tired_out = true;
    if (worker == NULL || !atomic_compare_exchange_strong(&batch->driven, &nobody, worker))
        return false;
    over = ferry_worker_drive(worker, drive_over, wait, wait->deadline_ns, &drove);
    atomic_store(&batch->driven, NULL);
    /* An ender that has read `driven` must be through with the worker before the engine closes. */
    while (atomic_load(&batch->nudges) != 0)
        sched_yield();
    *tired_out = !drove;
    return over;
}

/* One more thread may spin, unless as many do as there are cores. */
static bool spin_begin(struct ferry_spin_budget *budget)
{
    if (atomic_fetch_add(&budget->spinning, 1) < budget->spinning_max)
        return true;
    atomic_fetch_sub(&budget->spinning, 1);
    return false;
}

static bool spin_until(struct wait *wait, uint64_t until_ns)
{
    const struct ferry_clock *clock = wait->batch->engine->clock;

    for (;;) {
        for (uint32_t i = 0; i < 64; i++) {
            if (wait_over(wait))
                return true;
            ferry_cpu_relax();
        }
        if (ferry_now_ns(clock) >= until_ns)
            return false;
    }
}

/*
 * ADAPTIVE learns per batch whether spinning pays: a score that hits raise and misses lower. At 0
 * it sleeps at once, and every sixteenth wait or so tries again.
 */
static bool spin(struct wait *wait)
{
    struct ferry_engine *engine = wait->batch->engine;
    _Atomic uint32_t *score = &wait->batch->spin_score;
    uint32_t before = atomic_load_explicit(score, memory_order_relaxed);
    uint64_t until_ns;
    bool over;

    if (engine->settings.wait == FERRY_WAIT_SPIN)
        return spin_until(wait, wait->deadline_ns);
    if (engine->settings.wait == FERRY_WAIT_SLEEP || engine->settings.spin_ns == 0)
        return false;
    if (before == 0 &&
        (atomic_load_explicit(&wait->batch->cycles_begun, memory_order_relaxed) & 15))
        return false;
    if (!spin_begin(&engine->budget))
        return false;
    until_ns = ferry_engine_deadline(engine, wait->deadline_ns, engine->settings.spin_ns);
    over = spin_until(wait, until_ns);
    atomic_fetch_sub(&engine->budget.spinning, 1);
    if (over)
        before = before + 2 < SPIN_SCORE_MAX ? before + 2 : SPIN_SCORE_MAX;
    else
        before = before > 0 ? before - 1 : 0;
    atomic_store_explicit(score, before, memory_order_relaxed);
    return over;
}

/* One sleep; false when the deadline passed. */
static bool sleep_once(struct wait *wait)
{
    struct ferry_batch *batch = wait->batch;
    bool in_time = true;
    uint32_t word;

    /* Counted in before the look at `counts`; the ender looks the other way round (all seq_cst). */
    atomic_fetch_add(&batch->sleepers, 1);
    word = atomic_load(&batch->wake_word);
    if (wait->ended_min != UINT32_MAX)
        wish(batch, wait->ended_min);
    if (!wait_over(wait))
        in_time = ferry_engine_sleep(batch->engine, &batch->wake_word, word, wait->deadline_ns);
    atomic_fetch_sub(&batch->sleepers, 1);
    return in_time;
}

enum ferry_status ferry_batch_wait_inside(struct ferry_batch *batch, uint32_t ended_min,
                                          uint64_t deadline_ns)
{
    struct ferry_engine *engine = batch->engine;
    struct wait wait = {.batch = batch, .ended_min = ended_min, .deadline_ns = deadline_ns};
    bool tired = engine->seams.threadless;
    bool spun = engine->seams.threadless;

    while (!wait_over(&wait)) {
        if (deadline_ns != FERRY_NO_DEADLINE && ferry_engine_now(engine) >= deadline_ns)
            return FERRY_ERR_TIMED_OUT;
        if (!tired) {
            if (drive(&wait, &tired))
                break;
            continue;
        }
        if (!spun) {
            spun = true;
            if (spin(&wait))
                break;
            continue;
        }
        if (!sleep_once(&wait) && !wait_over(&wait))
            return FERRY_ERR_TIMED_OUT;
    }
    return FERRY_OK;
}

static enum ferry_status wait_public(struct ferry_engine *engine, uint64_t batch,
                                     uint32_t ended_min, uint64_t deadline_ns,
                                     struct ferry_batch_status *status_out)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_batch *object;
    size_t size = sizeof(*status_out);

    if (status != FERRY_OK)
        return status;
    if (status_out != NULL && status_out->struct_size < size)
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_batch_status: struct_size %zu, expected %zu",
                          status_out->struct_size, size);
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    status = ferry_batch_wait_inside(object, ended_min, deadline_ns);
    if (status == FERRY_ERR_TIMED_OUT)
        ferry_fail(status, "batch: %u tasks are still open",
                   ferry_counts_open(atomic_load(&object->counts)));
    if (status_out != NULL)
        ferry_batch_sum(object, status_out);
    ferry_batch_leave(object);
    return status;
}

enum ferry_status ferry_batch_wait(struct ferry_engine *engine, uint64_t batch,
                                   uint64_t deadline_ns, struct ferry_batch_status *status_out)
{
    return wait_public(engine, batch, UINT32_MAX, deadline_ns, status_out);
}

enum ferry_status ferry_batch_wait_progress(struct ferry_engine *engine, uint64_t batch,
                                            uint32_t ended_min, uint64_t deadline_ns,
                                            struct ferry_batch_status *status_out)
{
    return wait_public(engine, batch, ended_min, deadline_ns, status_out);
}
