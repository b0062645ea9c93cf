/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper: one worker of the runtime that holds the tasks no transport has, and tells the ends
 * that must not be told on a submitter's thread. It never moves data.
 *
 * A task comes here in two ways. Its registration was stale: the description is read again, once
 * per segment however many tasks wait for it, and the whole task is submitted anew on what it says;
 * a second stale answer is final. Or a transport had no room for it after its batch was accepted:
 * it is tried again every millisecond, up to the control timeout.
 *
 *   transport --stale--> inbox --> waiting --+--refresh ended--> submit anew --full--> waiting
 *                                            +--canceled, revoked, deadline, closing--> end
 *
 * Every end and every new try of such a task happens on the keeper, under no lock. Wakes come from
 * refreshes, cancels and revokes (ferry_keeper_poke) and from one timer for the nearest deadline.
 */
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "runtime/policy.h"
#include "runtime/runtime.h"

#define RETRY_NS FERRY_NS_PER_MS

static struct ferry_engine *engine_of(struct ferry_keeper *keeper)
{
    return FERRY_CONTAINER_OF(keeper, struct ferry_engine, keeper);
}

static void kick(struct ferry_keeper *keeper)
{
    if (!atomic_exchange(&keeper->posted, true))
        ferry_worker_post(keeper->worker, &keeper->job, false);
}

void ferry_keeper_poke(struct ferry_engine *engine)
{
    /* Acquire of `held`: seq_cst, so a poker that sees 0 came before the task that it missed. */
    if (atomic_load(&engine->keeper.held) != 0)
        kick(&engine->keeper);
}

/* The task leaves a transport: nobody drives it, and its state says so. */
static void hold(struct ferry_engine *engine, struct ferry_task *task)
{
    atomic_store_explicit(&task->xfer.driver, NULL, memory_order_relaxed);
    ferry_task_move(task, FERRY_TASK_WAITING);
    atomic_fetch_add(&engine->keeper.held, 1);
    ferry_inbox_push(&engine->keeper.stale, &task->stale_node);
    kick(&engine->keeper);
}

bool ferry_retry_begin(struct ferry_task *task)
{
    struct ferry_engine *engine = task->batch->engine;
    struct ferry_segment *segment = task->view->segment;

    /* Nobody publishes a plain file: there is nothing newer to read, and the look would block. */
    if (task->refreshed || segment == NULL || segment->is_file || ferry_engine_closing(engine) ||
        atomic_load(&task->xfer.cancel_asked))
        return false;
    /* What any refresh from here on brings is newer than the answer that we have. */
    task->ticket = atomic_load(&segment->refresh_started) + 1;
    task->refreshed = true;
    task->crowded = false;
    hold(engine, task);
    return true;
}

void ferry_retry_refused(struct ferry_task *task, enum ferry_status status)
{
    task->crowded = true;
    task->xfer.status = status;
    hold(task->batch->engine, task);
}

void ferry_keeper_finish(struct ferry_batch *batch)
{
    struct ferry_keeper *keeper = &batch->engine->keeper;

    /* The node is in the inbox once, however many ends are due: it may be asked for again while the
     * keeper has it in hand. */
    if (atomic_fetch_add(&batch->finishes_due, 1) == 0)
        ferry_inbox_push(&keeper->finished, &batch->finish_node);
    kick(keeper);
}

static void end_held(struct ferry_keeper *keeper, struct ferry_task *task, enum ferry_status status,
                     const char *where)
{
    ferry_list_remove(&task->link);
    ferry_task_end(task, status, 0, where);
    if (atomic_fetch_sub(&keeper->held, 1) == 1)
        ferry_futex_wake(&keeper->held, 1);
}

/* Ends the task if something says so before its next try. */
static bool end_early(struct ferry_keeper *keeper, struct ferry_task *task, uint64_t now_ns)
{
    if (ferry_engine_closing(engine_of(keeper)))
        end_held(keeper, task, FERRY_ERR_CLOSING, "runtime: the engine is closing");
    else if (atomic_load(&task->xfer.cancel_asked))
        end_held(keeper, task, FERRY_ERR_CANCELED, "runtime: canceled between two tries");
    else if (ferry_task_revoked(task))
        end_held(keeper, task, FERRY_ERR_CANCELED, "runtime: the local memory was unregistered");
    else if (now_ns >= task->xfer.deadline_ns)
        end_held(keeper, task, FERRY_ERR_TIMED_OUT,
                 "runtime: the deadline passed between two tries");
    else
        return false;
    return true;
}

/* Put the task on the segment's present view; false if that cannot carry it. */
static bool rebase(struct ferry_keeper *keeper, struct ferry_task *task, struct ferry_view *view)
{
    struct ferry_engine *engine = engine_of(keeper);
    uint32_t index = task->transport_index;

    if (view->targets[index] == NULL && task->pinned < 0)
        index = ferry_policy_choose_in(view, &(struct ferry_policy_request){
                                                 .length = task->xfer.length,
                                                 .remote_addr = task->xfer.remote_addr,
                                                 .pieces = task->xfer.pieces,
                                                 .piece_count = task->xfer.piece_count,
                                             });
    if (index == FERRY_POLICY_NONE || view->targets[index] == NULL) {
        ferry_view_release(view);
        end_held(keeper, task, FERRY_ERR_STALE_KEY,
                 "runtime: the peer's new description offers no transport for it");
        return false;
    }
    ferry_view_release(task->view);
    task->view = view;
    task->transport_index = index;
    task->xfer.target = view->targets[index];
    atomic_store(&task->transport, engine->transports[index].transport);
    atomic_store(&task->transport_name, engine->transports[index].ops->name);
    if (task->xfer.length > task->xfer.target->max_transfer_bytes) {
        end_held(keeper, task, FERRY_ERR_TOO_LARGE,
                 "runtime: longer than the peer's new description allows");
        return false;
    }
    return true;
}

static void submit_anew(struct ferry_keeper *keeper, struct ferry_task *task, uint64_t now_ns)
{
    struct ferry_engine *engine = engine_of(keeper);
    struct ferry_transport *transport = atomic_load(&task->transport);
    struct ferry_batch *batch = task->batch;
    struct ferry_xfer *xfer = &task->xfer;
    enum ferry_status status;
    bool nested;

    xfer->ended = ferry_task_xfer_ended;
    xfer->transport_data = NULL;
    xfer->unapplied = false;
    xfer->moved = 0;
    ferry_list_remove(&task->link);
    ferry_task_move(task, FERRY_TASK_PENDING);
    /* The batch must outlast the look at the task below, which may have ended by then. */
    atomic_fetch_add(&batch->pins, 1);
    atomic_fetch_add(&batch->cancels, 1);
    /* No callback runs inside: it may submit to this batch, which would wait for `cancels`. */
    nested = ferry_mark_submitting(true);
    status = ferry_split_needed(task) ? ferry_split_submit(task, true)
                                      : ferry_transport_submit(transport, &xfer, 1);
    ferry_mark_submitting(nested);
    /* A cancel that came between end_early() and now told a transport that had no such task. */
    if (status == FERRY_OK && atomic_load(&xfer->cancel_asked))
        ferry_transport_cancel(transport, xfer);
    atomic_fetch_sub(&batch->cancels, 1);
    ferry_batch_leave(batch);
    if (status == FERRY_OK) {
        if (atomic_fetch_sub(&keeper->held, 1) == 1)
            ferry_futex_wake(&keeper->held, 1);
        return;
    }
    ferry_task_move(task, FERRY_TASK_WAITING);
    ferry_list_push_back(&keeper->waiting, &task->link);
    task->crowded = true;
    if (task->give_up_ns == 0)
        task->give_up_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                                 engine->settings.control_timeout_ns);
    if (status != FERRY_ERR_QUEUE_FULL || now_ns >= task->give_up_ns)
        end_held(keeper, task, status, "runtime: the transport did not take the task");
}

/* The view that the task could go on with, or NULL: it waits, or has ended. */
static struct ferry_view *next_view(struct ferry_keeper *keeper, struct ferry_task *task)
{
    struct ferry_segment *segment = task->view->segment;
    struct ferry_view *view = ferry_view_acquire(&segment->view);
    enum ferry_status status;

    if (view == NULL) {
        end_held(keeper, task, FERRY_ERR_STALE_KEY,
                 "runtime: the segment was closed, and its description is out of date");
        return NULL;
    }
    /* Somebody's refresh is newer than what the task knew: nothing to ask. */
    if (view != task->view)
        return view;
    if (!ferry_segment_refresh_over(segment, task->ticket)) {
        ferry_segment_refresh_begin(segment, task->ticket);
        ferry_view_release(view);
        return NULL;
    }
    status = ferry_segment_refresh_result(segment, NULL);
    if (status == FERRY_OK)
        return view;
    ferry_view_release(view);
    end_held(keeper, task, status, "runtime: reading the peer's description again");
    return NULL;
}

static void step_task(struct ferry_keeper *keeper, struct ferry_task *task, uint64_t now_ns)
{
    struct ferry_view *view;

    if (end_early(keeper, task, now_ns))
        return;
    if (!task->crowded) {
        view = next_view(keeper, task);
        if (view == NULL || !rebase(keeper, task, view))
            return;
    }
    submit_anew(keeper, task, now_ns);
}

/* One timer for all: the nearest deadline, or the next try of a crowded task. */
static void rearm(struct ferry_keeper *keeper, uint64_t now_ns)
{
    struct ferry_reactor *reactor = ferry_worker_reactor(keeper->worker);
    uint64_t next_ns = FERRY_NEVER_NS;

    for (struct ferry_list *link = keeper->waiting.next; link != &keeper->waiting;
         link = link->next) {
        const struct ferry_task *task = FERRY_CONTAINER_OF(link, struct ferry_task, link);
        uint64_t at_ns = task->xfer.deadline_ns;

        if (task->crowded)
            at_ns = ferry_deadline_ns(now_ns, RETRY_NS);
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    if (next_ns == FERRY_NEVER_NS)
        ferry_reactor_disarm(reactor, &keeper->timer);
    else if (ferry_reactor_arm(reactor, &keeper->timer, next_ns) != FERRY_OK)
        ferry_warn("runtime", "the keeper's timer cannot be armed; deadlines are seen late");
}

static void take_inboxes(struct ferry_keeper *keeper)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&keeper->finished);

    while (node != NULL) {
        struct ferry_batch *batch = FERRY_CONTAINER_OF(node, struct ferry_batch, finish_node);

        node = node->next;
        /* From here on the node may be pushed again. */
        for (uint32_t due = atomic_exchange(&batch->finishes_due, 0); due > 0; due--)
            ferry_batch_finish(batch);
    }
    node = ferry_inbox_take(&keeper->stale);
    while (node != NULL) {
        struct ferry_task *task = FERRY_CONTAINER_OF(node, struct ferry_task, stale_node);

        node = node->next;
        ferry_list_push_back(&keeper->waiting, &task->link);
    }
}

static void sweep(struct ferry_keeper *keeper)
{
    uint64_t now_ns = ferry_engine_now(engine_of(keeper));
    struct ferry_list round;
    struct ferry_list *link;

    take_inboxes(keeper);
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&keeper->waiting)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        ferry_list_push_back(&keeper->waiting, link);
        step_task(keeper, FERRY_CONTAINER_OF(link, struct ferry_task, link), now_ns);
    }
    rearm(keeper, now_ns);
}

static void run_job(struct ferry_worker *worker, struct ferry_job *job)
{
    struct ferry_keeper *keeper = FERRY_CONTAINER_OF(job, struct ferry_keeper, job);

    (void)worker;
    /*
     * Before the inboxes are read: a push after that finds `posted` false and posts again. Only
     * here: while the job is in the worker's inbox it must not be posted a second time.
     */
    atomic_store(&keeper->posted, false);
    sweep(keeper);
}

static void run_timer(struct ferry_timer *timer)
{
    sweep(FERRY_CONTAINER_OF(timer, struct ferry_keeper, timer));
}

enum ferry_status ferry_keeper_open(struct ferry_engine *engine)
{
    struct ferry_keeper *keeper = &engine->keeper;
    struct ferry_worker_options options = {
        .name = "ferry-keeper",
        .reactor = {.kind = FERRY_REACTOR_EPOLL, .clock = engine->clock},
        .reactor_ops = engine->seams.reactor_ops,
        .wait = FERRY_WAIT_SLEEP,
        .threadless = engine->seams.threadless,
    };

    ferry_list_init(&keeper->waiting);
    ferry_inbox_init(&keeper->stale);
    ferry_inbox_init(&keeper->finished);
    keeper->job.run = run_job;
    keeper->timer.fire = run_timer;
    return ferry_worker_open(&options, &keeper->worker);
}

void ferry_keeper_drain(struct ferry_engine *engine)
{
    struct ferry_keeper *keeper = &engine->keeper;
    uint32_t held;

    if (keeper->worker == NULL)
        return;
    while ((held = atomic_load(&keeper->held)) != 0 || !ferry_inbox_empty(&keeper->finished)) {
        kick(keeper);
        if (engine->seams.threadless)
            ferry_worker_turn(keeper->worker);
        else
            ferry_futex_wait(&keeper->held, held,
                             ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), 10 * RETRY_NS));
    }
}

void ferry_keeper_close(struct ferry_engine *engine)
{
    if (engine->keeper.worker != NULL)
        ferry_worker_close(engine->keeper.worker);
    engine->keeper.worker = NULL;
}
