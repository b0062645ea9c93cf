/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Submit: check every request, lease its local memory, choose its transport, hand it over. All or
 * nothing: slots become tasks only when every request of the call is in order, and what was taken
 * for them is given back if one is not.
 *
 * Runs on the caller's thread; allocates nothing, waits for nobody. The only thing that submitters
 * share is a handful of registry readers, taken by try-lock.
 *
 * Requests of one call that need different transports are handed over one transport after the
 * other. A refusal by the first refuses the call. If a later one refuses, the tasks before it run
 * already, so its own wait with the keeper until there is room, or end with that status.
 */
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "runtime/policy.h"
#include "runtime/runtime.h"

struct ferry_reader_slot *ferry_reader_lock(struct ferry_engine *engine, uint32_t hint)
{
    for (uint32_t i = 0;; i++) {
        struct ferry_reader_slot *slot = &engine->readers[(hint + i) % FERRY_READERS];

        /* Acquire pairs with the release in ferry_reader_unlock(): the reader's snapshot. */
        if (!atomic_flag_test_and_set_explicit(&slot->busy, memory_order_acquire))
            return slot;
        if (i % FERRY_READERS == FERRY_READERS - 1)
            ferry_cpu_relax();
    }
}

void ferry_reader_unlock(struct ferry_reader_slot *slot)
{
    atomic_flag_clear_explicit(&slot->busy, memory_order_release);
}

/* What one submit call works on. */
struct submission {
    struct ferry_engine *engine;
    struct ferry_batch *batch;
    struct ferry_reader_slot *reader;
    uint32_t first;      /* slot of the first request */
    uint32_t prepared;   /* slots that hold a view and a lease */
    uint32_t list_count; /* requests so far that have pieces */
    uint64_t view_handle;
    struct ferry_view *view; /* of view_handle, one reference of ours; NULL: none looked up yet */
    uint32_t transport_mask; /* bit per transport index that is needed */
    uint64_t now_ns;         /* when the call began */
};

/* One request in our own layout. */
static enum ferry_status copy_request(const unsigned char *at, size_t stride, uint32_t index,
                                      struct ferry_request *request_out)
{
    size_t size;

    memcpy(&size, at, sizeof(size));
    if (size != stride)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: struct_size %zu, the first one's is %zu",
                          index, size, stride);
    memset(request_out, 0, sizeof(*request_out));
    memcpy(request_out, at, stride < sizeof(*request_out) ? stride : sizeof(*request_out));
    for (size_t i = sizeof(*request_out); i < stride; i++) {
        if (at[i] != 0)
            return ferry_fail(FERRY_ERR_INVALID,
                              "request %u: has members that this library does not know", index);
    }
    return FERRY_OK;
}

/* The one range of a request without a list. */
static enum ferry_status check_range(const struct ferry_request *request, uint32_t index)
{
    if (request->piece_count != 0)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: %u pieces at NULL", index,
                          request->piece_count);
    if (request->local == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: local memory is NULL", index);
    if (!ferry_range_ok((uintptr_t)request->local, request->length))
        return ferry_fail(FERRY_ERR_INVALID,
                          "request %u: local memory %p with %llu bytes wraps around", index,
                          request->local, (unsigned long long)request->length);
    if (!ferry_range_ok(request->remote_offset, request->length))
        return ferry_fail(
            FERRY_ERR_INVALID, "request %u: remote range %#llx with %llu bytes wraps around", index,
            (unsigned long long)request->remote_offset, (unsigned long long)request->length);
    return FERRY_OK;
}

static enum ferry_status check_request(const struct ferry_request *request, uint32_t index)
{
    if (request->opcode != FERRY_READ && request->opcode != FERRY_WRITE)
        return ferry_fail(FERRY_ERR_INVALID,
                          "request %u: opcode %d, expected 0 (read) or 1 (write)", index,
                          (int)request->opcode);
    if ((unsigned)request->priority > FERRY_PRIORITY_LOW)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: priority %d, expected 0..2", index,
                          (int)request->priority);
    return FERRY_OK;
}

/* Sets submission->view; most calls name one segment only. */
static enum ferry_status look_up_view(struct submission *submission, uint64_t handle,
                                      uint32_t index)
{
    enum ferry_status status;

    if (submission->view != NULL && submission->view_handle == handle)
        return FERRY_OK;
    if (submission->view != NULL)
        ferry_view_release(submission->view);
    submission->view = NULL;
    status = ferry_segment_view(submission->engine, handle, &submission->view);
    submission->view_handle = handle;
    if (status != FERRY_OK)
        return ferry_fail(status, "request %u: segment handle %#llx names no open segment", index,
                          (unsigned long long)handle);
    return FERRY_OK;
}

static enum ferry_status choose_transport(struct submission *submission,
                                          const struct ferry_request *request, uint32_t index,
                                          struct ferry_task *task)
{
    struct ferry_engine *engine = submission->engine;
    struct ferry_target *const *targets = submission->view->targets;
    const struct ferry_vector *list = task->vector;
    uint32_t chosen = 0;

    task->pinned = -1;
    if (request->transport != NULL) {
        enum ferry_status status = ferry_engine_find_transport(engine, request->transport, &chosen);

        if (status != FERRY_OK)
            return ferry_fail(status, "request %u: transport \"%.32s\" %s", index,
                              request->transport,
                              status == FERRY_ERR_INVALID ? "is unknown" : "is not in use here");
        task->pinned = (int32_t)chosen;
        if (targets[chosen] == NULL)
            return ferry_fail(FERRY_ERR_UNSUPPORTED,
                              "request %u: the segment is not reachable over %s", index,
                              request->transport);
    } else {
        chosen = ferry_policy_choose_in(submission->view,
                                        &(struct ferry_policy_request){
                                            .length = request->length,
                                            .remote_addr = request->remote_offset,
                                            .pieces = list != NULL ? list->pieces : NULL,
                                            .piece_count = list != NULL ? list->piece_count : 0,
                                        });
        if (chosen == FERRY_POLICY_NONE)
            return ferry_fail(FERRY_ERR_UNSUPPORTED,
                              "request %u: no transport of this engine reaches the segment", index);
    }
    task->transport_index = chosen;
    if (request->length == 0 && (engine->transports[chosen].ops->caps & FERRY_CAP_FILE) == 0)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: length is 0", index);
    if (request->length > targets[chosen]->max_transfer_bytes)
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "request %u: %llu bytes, %s moves at most %llu at once", index,
                          (unsigned long long)request->length, engine->transports[chosen].ops->name,
                          (unsigned long long)targets[chosen]->max_transfer_bytes);
    return FERRY_OK;
}

static enum ferry_status lease_local(struct submission *submission,
                                     const struct ferry_request *request, uint32_t index,
                                     struct ferry_task *task)
{
    struct ferry_lease_request lease = {
        .addr = (uintptr_t)request->local,
        .length = request->length,
        .access = FERRY_ACCESS_LOCAL,
    };
    enum ferry_status status;

    if (task->vector != NULL)
        return ferry_vector_lease(task->vector, &submission->reader->reader, index);
    /* Nothing will be touched. */
    if (request->length == 0) {
        task->lease = (struct ferry_lease){0};
        return FERRY_OK;
    }
    status = ferry_lease_acquire(&submission->reader->reader, &lease, &task->lease);
    if (status == FERRY_ERR_INVALID)
        return ferry_fail(
            status,
            "request %u: local memory %p with %llu bytes is not inside one registered "
            "range",
            index, request->local, (unsigned long long)request->length);
    return status;
}

static void fill_task(struct submission *submission, const struct ferry_request *request,
                      struct ferry_task *task)
{
    struct ferry_xfer *xfer = &task->xfer;
    struct ferry_transport_slot *slot = &submission->engine->transports[task->transport_index];

    task->view = submission->view;
    ferry_view_retain(task->view);
    task->refreshed = false;
    task->submitted_ns = submission->now_ns;
    task->give_up_ns = 0;
    task->crowded = false;
    xfer->opcode = request->opcode;
    xfer->priority = request->priority;
    xfer->local = request->local;
    xfer->remote_addr = request->remote_offset;
    xfer->length = request->length;
    xfer->pieces = task->vector != NULL ? task->vector->pieces : NULL;
    xfer->piece_count = task->vector != NULL ? task->vector->piece_count : 0;
    xfer->whole = NULL;
    xfer->target = task->view->targets[task->transport_index];
    xfer->deadline_ns = request->deadline_ns != 0 ? request->deadline_ns : FERRY_NO_DEADLINE;
    xfer->ended = ferry_task_xfer_ended;
    xfer->lease = &task->lease;
    atomic_store_explicit(&xfer->cancel_asked, false, memory_order_relaxed);
    atomic_store_explicit(&xfer->driver, NULL, memory_order_relaxed);
    xfer->transport_data = NULL;
    xfer->unapplied = false;
    xfer->moved = 0;
    /* Relaxed: published by the release of the state below and by the count of the batch. */
    atomic_store_explicit(&task->status, FERRY_OK, memory_order_relaxed);
    atomic_store_explicit(&task->native, 0, memory_order_relaxed);
    atomic_store_explicit(&task->where, NULL, memory_order_relaxed);
    atomic_store_explicit(&task->transport_name, slot->ops->name, memory_order_relaxed);
    atomic_store_explicit(&task->transport, slot->transport, memory_order_relaxed);
    atomic_store_explicit(&task->segment_handle, request->segment, memory_order_relaxed);
    atomic_store_explicit(&task->length, request->length, memory_order_relaxed);
    atomic_store_explicit(&task->moved, 0, memory_order_relaxed);
    atomic_store_explicit(&task->remote_addr,
                          xfer->pieces != NULL ? xfer->pieces[0].remote_addr : xfer->remote_addr,
                          memory_order_relaxed);
    atomic_store_explicit(&task->opcode, request->opcode, memory_order_relaxed);
    atomic_store_explicit(&task->piece_count, xfer->piece_count, memory_order_relaxed);
    atomic_store_explicit(&task->state, FERRY_TASK_PENDING, memory_order_release);
    submission->transport_mask |= 1U << task->transport_index;
}

static enum ferry_status take_list(struct submission *submission, struct ferry_request *request,
                                   uint32_t index, struct ferry_task *task)
{
    uint32_t most = submission->engine->settings.vectored_requests_max;
    enum ferry_status status = ferry_vector_take(submission->engine, request, index, &task->vector);

    if (status == FERRY_OK)
        submission->list_count++;
    /* Waiting would not help: all that are in use are of this very call. */
    if (status == FERRY_ERR_QUEUE_FULL && submission->list_count == most)
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "request %u: vectored_requests_max: a call takes at most %u lists", index,
                          most);
    return status;
}

static enum ferry_status prepare_one(struct submission *submission, const unsigned char *at,
                                     size_t stride, uint32_t index)
{
    struct ferry_task *task = &submission->batch->tasks[submission->first + index];
    struct ferry_request request;
    enum ferry_status status = copy_request(at, stride, index, &request);

    task->batch = submission->batch;
    task->vector = NULL;
    task->lease = (struct ferry_lease){0};
    if (status == FERRY_OK)
        status = check_request(&request, index);
    if (status == FERRY_OK)
        status = request.pieces != NULL ? take_list(submission, &request, index, task)
                                        : check_range(&request, index);
    if (status == FERRY_OK)
        status = look_up_view(submission, request.segment, index);
    if (status == FERRY_OK)
        status = choose_transport(submission, &request, index, task);
    if (status == FERRY_OK)
        status = lease_local(submission, &request, index, task);
    if (status != FERRY_OK) {
        ferry_task_release_memory(task);
        return status;
    }
    fill_task(submission, &request, task);
    submission->prepared++;
    return FERRY_OK;
}

static enum ferry_status prepare_all(struct submission *submission,
                                     const struct ferry_request *requests, uint32_t count)
{
    const unsigned char *at = (const unsigned char *)requests;
    size_t stride = requests->struct_size;
    enum ferry_status status = FERRY_OK;

    if (stride < FERRY_REQUEST_SIZE_MIN || stride > 4096)
        return ferry_fail(FERRY_ERR_INVALID, "struct ferry_request: struct_size %zu, expected %zu",
                          stride, sizeof(*requests));
    /* The hint spreads submitters; a batch mostly meets the reader that it used last time. */
    submission->reader = ferry_reader_lock(submission->engine,
                                           (uint32_t)(submission->batch->handle & UINT32_MAX));
    for (uint32_t i = 0; i < count && status == FERRY_OK; i++)
        status = prepare_one(submission, at + (size_t)i * stride, stride, i);
    ferry_reader_unlock(submission->reader);
    if (submission->view != NULL)
        ferry_view_release(submission->view);
    return status;
}

static void undo_prepared(struct submission *submission)
{
    for (uint32_t i = 0; i < submission->prepared; i++) {
        struct ferry_task *task = &submission->batch->tasks[submission->first + i];

        ferry_task_release_memory(task);
        ferry_view_release(task->view);
        task->view = NULL;
    }
}

bool ferry_batch_take_back(struct ferry_batch *batch, uint32_t count)
{
    uint64_t both = (uint64_t)count << 32 | count;
    uint64_t counts = atomic_fetch_sub(&batch->counts, both) - both;

    return ferry_counts_open(counts) == 0;
}

/* The tasks of one transport, as an array; with @split those whose pieces go one by one. */
struct group {
    struct ferry_xfer **xfers;
    uint32_t count;
    bool split;
};

/* Collect a group at the place given. */
static uint32_t gather(struct submission *submission, uint32_t transport_index, bool split,
                       struct ferry_xfer **xfers)
{
    struct ferry_batch *batch = submission->batch;
    uint32_t count = 0;

    for (uint32_t i = 0; i < submission->prepared; i++) {
        struct ferry_task *task = &batch->tasks[submission->first + i];

        if (task->transport_index == transport_index && ferry_split_needed(task) == split)
            xfers[count++] = &task->xfer;
    }
    return count;
}

static struct ferry_task *task_of(struct ferry_xfer *xfer)
{
    return FERRY_CONTAINER_OF(xfer, struct ferry_task, xfer);
}

/* What a transport refused after others took their part goes to the keeper, which tries again. */
static void defer(const struct group *group, enum ferry_status status)
{
    for (uint32_t i = 0; i < group->count; i++)
        ferry_retry_refused(task_of(group->xfers[i]), status);
}

/* @first: nothing was handed over before; then a failure means that still nothing is. */
static enum ferry_status hand_over_split(const struct group *group, bool first)
{
    for (uint32_t i = 0; i < group->count; i++) {
        struct ferry_task *task = task_of(group->xfers[i]);
        enum ferry_status status = ferry_split_submit(task, false);

        if (status != FERRY_OK && first)
            return status;
        if (status != FERRY_OK)
            ferry_retry_refused(task, status);
        first = false;
    }
    return FERRY_OK;
}

/* All groups are made before the first is handed over: after that the tasks are not ours. */
static uint32_t make_groups(struct submission *submission, struct group *groups_out)
{
    struct ferry_xfer **at = submission->batch->xfers;
    uint32_t group_count = 0;

    for (uint32_t i = 0; i < submission->engine->transport_count; i++) {
        if (!(submission->transport_mask & (1U << i)))
            continue;
        for (uint32_t split = 0; split <= (submission->list_count > 0 ? 1U : 0U); split++) {
            struct group *group = &groups_out[group_count];

            *group = (struct group){.xfers = at, .split = split != 0};
            group->count = gather(submission, i, group->split, at);
            at += group->count;
            group_count += group->count > 0;
        }
    }
    return group_count;
}

/* Hand over, group by group. On failure nothing was. */
static enum ferry_status hand_over(struct submission *submission)
{
    struct group groups[2 * FERRY_TRANSPORTS_MAX + 1];
    uint32_t count = make_groups(submission, groups);

    for (uint32_t i = 0; i < count; i++) {
        const struct group *group = &groups[i];
        enum ferry_status status;

        if (group->split)
            status = hand_over_split(group, i == 0);
        else
            status = ferry_transport_submit(group->xfers[0]->target->transport, group->xfers,
                                            group->count);
        if (status != FERRY_OK && i == 0)
            return status;
        if (status != FERRY_OK)
            defer(group, status);
    }
    return FERRY_OK;
}

enum ferry_status ferry_batch_submit_inside(struct ferry_batch *batch,
                                            const struct ferry_request *requests, uint32_t count)
{
    struct ferry_engine *engine = batch->engine;
    struct submission submission = {
        .engine = engine, .batch = batch, .now_ns = ferry_engine_now(engine)};
    uint64_t both = (uint64_t)count << 32 | count;
    enum ferry_status status;

    submission.first = ferry_counts_submitted(atomic_load(&batch->counts));
    if (count > batch->capacity - submission.first)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "batch: %u requests for %u free slots of %u", count,
                          batch->capacity - submission.first, batch->capacity);
    if (ferry_engine_closing(engine))
        return ferry_fail(FERRY_ERR_CLOSING, "the engine is closing");
    status = prepare_all(&submission, requests, count);
    if (status != FERRY_OK) {
        undo_prepared(&submission);
        return status;
    }

    uint64_t before = atomic_fetch_add(&batch->counts, both);

    if (ferry_counts_open(before) == 0)
        atomic_fetch_add(&batch->cycles_begun, 1);
    bool nested = ferry_mark_submitting(true);
    status = hand_over(&submission);
    ferry_mark_submitting(nested);
    if (status == FERRY_OK)
        return FERRY_OK;

    undo_prepared(&submission);
    /* Nothing else was open: this was no cycle, and nobody has to be told of its end. */
    if (ferry_counts_open(before) == 0)
        atomic_fetch_sub(&batch->cycles_begun, 1);
    /*
     * If older tasks were open before and have all ended meanwhile, their end is still to be told,
     * and not by us: no callback runs inside submit.
     */
    if (ferry_batch_take_back(batch, count)) {
        if (ferry_counts_open(before) != 0)
            ferry_keeper_finish(batch);
        else
            ferry_batch_wake(batch);
    }
    /* A cancel that saw the slots must be through with them before they are tasks again. */
    ferry_batch_await_cancels(batch);
    return status;
}

enum ferry_status ferry_batch_submit(struct ferry_engine *engine, uint64_t batch,
                                     const struct ferry_request *requests, uint32_t count)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_batch *object;

    if (status != FERRY_OK)
        return status;
    object = ferry_batch_enter(engine, batch);
    if (object == NULL)
        return FERRY_ERR_STALE_HANDLE;
    if (count > 0 && requests == NULL)
        status = ferry_fail(FERRY_ERR_INVALID, "submit: %u requests at NULL", count);
    else if (count > 0)
        status = ferry_batch_submit_inside(object, requests, count);
    ferry_batch_leave(object);
    return status;
}
