/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: which backends there are, and the life of one use of a batch. Dispatcher's thread,
 * except for what helpers run.
 *
 *   FREE --> FILLING --> [SUBMITTING] --> RUNNING --all events--> FREE
 *                             |              |
 *                             |              +--an error, no event for too long, nobody wants it-->
 *                             |                 DESTROYING (cancel, poll, destroy) --> GRACE
 *                             |                       |                                  |
 *                             +--does not return--> LOST <--does not return              v
 *                                                     \--returns after all--> ...      FREE
 *
 * Events are matched by cookie alone: generation of the use and number of the entry. What has had
 * no event when the batch is destroyed and the time of grace is over is quiet, and goes to another
 * backend or ends with its request. A batch that had any error is destroyed, never used again.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "config/option.h"
#include "transport/file/internal.h"

#define EVENTS_AT_ONCE  32u
#define SILENT_NS_MIN   (20 * FERRY_NS_PER_US)
#define SILENT_NS_MAX   FERRY_NS_PER_MS
#define SILENT_SHIFTS   6u
#define COOKIE_INDEX(c) ((uint32_t)(c)-1U)
#define COOKIE_USE(c)   ((uint32_t)((c) >> 32))

static struct file_backend_slot *slot_of(struct file_transport *ft, const struct file_batch *batch)
{
    for (int kind = 0; kind < FILE_BACKEND_COUNT; kind++) {
        if (ft->slots[kind].backend == batch->base.backend)
            return &ft->slots[kind];
    }
    FERRY_ASSERT(!"a batch belongs to a backend");
    return NULL;
}

static enum file_backend_kind kind_of(struct file_transport *ft, const struct file_batch *batch)
{
    return (enum file_backend_kind)(slot_of(ft, batch) - ft->slots);
}

static bool has_trait(const struct file_batch *batch, uint32_t trait)
{
    return (batch->base.backend->ops->traits & trait) != 0;
}

/* The only writer of a batch's state. */
static void set_state(struct file_transport *ft, struct file_batch *batch,
                      enum ferry_file_batch_state state)
{
    struct file_backend_slot *slot = slot_of(ft, batch);

    batch->base.state = state;
    ferry_list_remove(&batch->base.link);
    if (state == FERRY_FILE_BATCH_FREE)
        ferry_list_push_front(&slot->free, &batch->base.link);
    else if (state != FERRY_FILE_BATCH_FILLING)
        ferry_list_push_back(&slot->busy, &batch->base.link);
}

/* ---- filling ---- */

struct file_batch *ferry_file_batch_room(struct file_transport *ft, enum file_backend_kind kind)
{
    struct file_backend_slot *slot = &ft->slots[kind];
    struct ferry_list *link = slot->free.next;
    struct file_batch *batch;

    if (slot->filling != NULL)
        return slot->filling;
    if (link == &slot->free)
        return NULL;
    batch = FERRY_CONTAINER_OF(link, struct file_batch, base.link);
    batch->base.generation++;
    batch->base.count = 0;
    batch->base.left = 0;
    batch->tainted = false;
    set_state(ft, batch, FERRY_FILE_BATCH_FILLING);
    slot->filling = batch;
    return batch;
}

static void submit(struct file_transport *ft, struct file_batch *batch);

void ferry_file_batch_add(struct file_transport *ft, struct file_batch *batch,
                          struct file_piece *piece, const struct ferry_file_io *io)
{
    uint32_t index = batch->base.count++;

    batch->base.pieces[index] = piece;
    batch->base.ios[index] = *io;
    /* Never 0, and never that of another use. */
    batch->base.ios[index].cookie = (uint64_t)batch->base.generation << 32 | (index + 1);
    batch->base.left++;
    if (batch->base.count == batch->base.backend->batch_entries)
        submit(ft, batch);
}

void ferry_file_batches_flush(struct file_transport *ft)
{
    for (int kind = 0; kind < FILE_BACKEND_COUNT; kind++) {
        struct file_batch *batch = ft->slots[kind].filling;

        if (batch == NULL)
            continue;
        if (batch->base.count > 0) {
            submit(ft, batch);
        } else {
            ft->slots[kind].filling = NULL;
            set_state(ft, batch, FERRY_FILE_BATCH_FREE);
        }
    }
}

/* ---- the end of a use ---- */

/* What is left goes to another backend; its memory is quiet. */
static void give_back(struct file_transport *ft, struct file_batch *batch)
{
    enum file_backend_kind kind = kind_of(ft, batch);

    for (uint32_t i = 0; i < batch->base.count && batch->base.left > 0; i++) {
        struct file_piece *piece = batch->base.pieces[i];

        if (piece == NULL)
            continue;
        batch->base.pieces[i] = NULL;
        batch->base.left--;
        ferry_file_piece_retry(ft, piece, kind);
    }
    FERRY_ASSERT(batch->base.left == 0);
}

static void tear_down(struct file_transport *ft, struct file_batch *batch, uint64_t drain_ns);

static void use_over(struct file_transport *ft, struct file_batch *batch)
{
    FERRY_ASSERT(batch->base.left == 0);
    if (batch->tainted && has_trait(batch, FERRY_FILE_MAY_BLOCK) && batch->base.native != NULL)
        tear_down(ft, batch, 0);
    else
        set_state(ft, batch, FERRY_FILE_BATCH_FREE);
}

static void take_event(struct file_transport *ft, struct file_batch *batch,
                       const struct ferry_file_event *event)
{
    uint32_t index = COOKIE_INDEX(event->cookie);
    struct file_piece *piece;

    if (COOKIE_USE(event->cookie) != batch->base.generation || index >= batch->base.count ||
        batch->base.pieces[index] == NULL) {
        /* Told twice, or of another use: it changes nothing. */
        file_count(&ft->counters.stray_events, 1);
        return;
    }
    piece = batch->base.pieces[index];
    batch->base.pieces[index] = NULL;
    batch->base.left--;
    if (has_trait(batch, FERRY_FILE_NO_FENCE) && event->result < 0) {
        /* Which error it was, only the system itself says. */
        batch->tainted = true;
        ferry_file_piece_retry(ft, piece, kind_of(ft, batch));
    } else {
        ferry_file_piece_done(ft, piece, event->result);
    }
}

void ferry_file_batch_reap(struct file_transport *ft, struct file_batch *batch)
{
    struct ferry_file_event events[EVENTS_AT_ONCE];
    uint32_t count = EVENTS_AT_ONCE;

    while (batch->base.state == FERRY_FILE_BATCH_RUNNING && count == EVENTS_AT_ONCE &&
           batch->base.left > 0) {
        if (ferry_file_batch_poll(&batch->base, events, EVENTS_AT_ONCE, &count) != FERRY_OK) {
            ferry_warn("file", "%s lost track of a batch, its requests go to others: %s",
                       batch->base.backend->ops->name, ferry_last_error_text());
            batch->tainted = true;
            tear_down(ft, batch, 0);
            return;
        }
        for (uint32_t i = 0; i < count; i++)
            take_event(ft, batch, &events[i]);
        if (count > 0) {
            ft->silent_rounds = 0;
            if (batch->base.until_ns != FERRY_NEVER_NS)
                batch->base.until_ns = ferry_deadline_ns(ft->now_ns, ft->settings.watchdog_ns);
        }
    }
    if (batch->base.state == FERRY_FILE_BATCH_RUNNING && batch->base.left == 0)
        use_over(ft, batch);
}

/* ---- submit ---- */

static void started(struct file_transport *ft, struct file_batch *batch, enum ferry_status status)
{
    if (status == FERRY_OK) {
        batch->base.until_ns = FERRY_NEVER_NS;
        if (has_trait(batch, FERRY_FILE_NO_FENCE))
            batch->base.until_ns = ferry_deadline_ns(ft->now_ns, ft->settings.watchdog_ns);
        set_state(ft, batch, FERRY_FILE_BATCH_RUNNING);
        ft->silent_rounds = 0;
        return;
    }
    batch->tainted = true;
    if (status != FERRY_ERR_QUEUE_FULL && status != FERRY_ERR_UNSUPPORTED) {
        tear_down(ft, batch, 0); /* nobody knows what was started */
        return;
    }
    give_back(ft, batch);
    use_over(ft, batch);
}

static void run_submit(struct file_job *job)
{
    struct file_batch *batch = FERRY_CONTAINER_OF(job, struct file_batch, job);

    batch->submit_status = FERRY_OK;
    if (batch->base.native == NULL && ferry_file_batch_setup(&batch->base) != FERRY_OK)
        batch->submit_status = FERRY_ERR_QUEUE_FULL; /* nothing was started */
    if (batch->submit_status == FERRY_OK)
        batch->submit_status = ferry_file_batch_submit(&batch->base);
}

static void finish_submit(struct file_job *job)
{
    struct file_batch *batch = FERRY_CONTAINER_OF(job, struct file_batch, job);
    struct file_transport *ft = job->ft;

    batch->job_runs = false;
    if (batch->base.state == FERRY_FILE_BATCH_LOST)
        tear_down(ft, batch, batch->submit_status == FERRY_OK ? ft->settings.drain_ns : 0);
    else
        started(ft, batch, batch->submit_status);
}

static void submit(struct file_transport *ft, struct file_batch *batch)
{
    slot_of(ft, batch)->filling = NULL;
    if (!has_trait(batch, FERRY_FILE_MAY_BLOCK)) {
        started(ft, batch, ferry_file_batch_submit(&batch->base));
        return;
    }
    set_state(ft, batch, FERRY_FILE_BATCH_SUBMITTING);
    batch->base.until_ns = ferry_deadline_ns(ft->now_ns, ft->settings.watchdog_ns);
    batch->job.run = run_submit;
    batch->job.finish = finish_submit;
    batch->job_runs = true;
    if (ferry_file_job_start(ft, &batch->job))
        return;
    batch->job_runs = false;
    started(ft, batch, FERRY_ERR_QUEUE_FULL);
}

/* ---- the end of a native batch ---- */

static void nap(void)
{
    struct timespec pause = {.tv_nsec = 500000};

    nanosleep(&pause, NULL);
}

/* On a helper: cancel, poll for a bounded time, destroy. No lock is held, nobody else calls. */
static void run_tear_down(struct file_job *job)
{
    struct file_batch *batch = FERRY_CONTAINER_OF(job, struct file_batch, job);
    uint64_t until_ns = ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), batch->drain_ns);

    if (batch->base.left > 0)
        ferry_file_batch_cancel(&batch->base);
    while (batch->drain_ns > 0 && batch->late_count < batch->base.left) {
        uint32_t count = 0;

        if (ferry_file_batch_poll(&batch->base, batch->late + batch->late_count,
                                  FERRY_FILE_BATCH_MAX - batch->late_count, &count) != FERRY_OK)
            break;
        batch->late_count += count;
        if (batch->late_count == FERRY_FILE_BATCH_MAX ||
            ferry_now_ns(&ferry_clock_system) >= until_ns)
            break;
        if (count == 0)
            nap();
    }
    ferry_file_batch_destroy(&batch->base);
}

static void finish_tear_down(struct file_job *job)
{
    struct file_batch *batch = FERRY_CONTAINER_OF(job, struct file_batch, job);
    struct file_transport *ft = job->ft;

    batch->job_runs = false;
    for (uint32_t i = 0; i < batch->late_count; i++)
        take_event(ft, batch, &batch->late[i]);
    if (batch->base.left == 0) {
        set_state(ft, batch, FERRY_FILE_BATCH_FREE);
        return;
    }
    batch->base.until_ns = ferry_deadline_ns(ft->now_ns, ft->settings.grace_ns);
    set_state(ft, batch, FERRY_FILE_BATCH_GRACE);
}

static void lose(struct file_transport *ft, struct file_batch *batch);

static void tear_down(struct file_transport *ft, struct file_batch *batch, uint64_t drain_ns)
{
    set_state(ft, batch, FERRY_FILE_BATCH_DESTROYING);
    batch->base.until_ns = ferry_deadline_ns(ft->now_ns, ft->settings.watchdog_ns);
    batch->drain_ns = drain_ns;
    batch->late_count = 0;
    batch->job.run = run_tear_down;
    batch->job.finish = finish_tear_down;
    batch->job_runs = true;
    if (ferry_file_job_start(ft, &batch->job))
        return;
    batch->job_runs = false;
    lose(ft, batch);
}

/* A call does not return. Its requests end without their memory; nothing is touched again. */
static void lose(struct file_transport *ft, struct file_batch *batch)
{
    ferry_error("file", "a call into %s does not return; what it was given stays registered",
                batch->base.backend->ops->name);
    set_state(ft, batch, FERRY_FILE_BATCH_LOST);
    batch->base.until_ns = FERRY_NEVER_NS;
    for (uint32_t i = 0; i < batch->base.count; i++) {
        struct file_piece *piece = batch->base.pieces[i];

        if (piece != NULL && !piece->op->stop) {
            ferry_file_op_bad(piece->op, piece->at);
            ferry_file_op_stop(ft, piece->op, FERRY_ERR_DEVICE, 0,
                               "file: a call into the device's library does not return");
        }
    }
}

/* ---- time ---- */

static void time_passed(struct file_transport *ft, struct file_batch *batch)
{
    switch (batch->base.state) {
    case FERRY_FILE_BATCH_SUBMITTING:
    case FERRY_FILE_BATCH_DESTROYING:
        lose(ft, batch);
        break;
    case FERRY_FILE_BATCH_RUNNING:
        ferry_warn("file", "%s tells of no end for too long, its requests go to others",
                   batch->base.backend->ops->name);
        batch->tainted = true;
        tear_down(ft, batch, ft->settings.drain_ns);
        break;
    case FERRY_FILE_BATCH_GRACE:
        give_back(ft, batch);
        set_state(ft, batch, FERRY_FILE_BATCH_FREE);
        break;
    default:
        batch->base.until_ns = FERRY_NEVER_NS;
    }
}

void ferry_file_batches_poll(struct file_transport *ft)
{
    struct file_backend_slot *slot = &ft->slots[FILE_BACKEND_GDS];
    struct ferry_list round;
    struct ferry_list *link;

    /* Only foreign backends are silent, and only their states have a time limit. */
    if (slot->backend == NULL || ferry_list_empty(&slot->busy))
        return;
    ft->silent_rounds++;
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&slot->busy)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct file_batch *batch = FERRY_CONTAINER_OF(link, struct file_batch, base.link);

        ferry_list_push_back(&slot->busy, link);
        if (batch->base.state == FERRY_FILE_BATCH_RUNNING)
            ferry_file_batch_reap(ft, batch);
        if (ft->now_ns >= batch->base.until_ns)
            time_passed(ft, batch);
    }
}

uint64_t ferry_file_batches_next_ns(struct file_transport *ft)
{
    struct file_backend_slot *slot = &ft->slots[FILE_BACKEND_GDS];
    uint32_t shifts = ft->silent_rounds < SILENT_SHIFTS ? ft->silent_rounds : SILENT_SHIFTS;
    uint64_t next_ns = FERRY_NEVER_NS;

    if (slot->backend == NULL)
        return next_ns;
    for (struct ferry_list *link = slot->busy.next; link != &slot->busy; link = link->next) {
        const struct file_batch *batch = FERRY_CONTAINER_OF(link, struct file_batch, base.link);
        uint64_t at_ns = batch->base.until_ns;

        if (batch->base.state == FERRY_FILE_BATCH_RUNNING)
            at_ns = ferry_deadline_ns(ft->now_ns, SILENT_NS_MIN << shifts < SILENT_NS_MAX
                                                      ? SILENT_NS_MIN << shifts
                                                      : SILENT_NS_MAX);
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    return next_ns;
}

static bool wanted(const struct file_batch *batch)
{
    for (uint32_t i = 0; i < batch->base.count; i++) {
        if (batch->base.pieces[i] != NULL && !batch->base.pieces[i]->op->stop)
            return true;
    }
    return false;
}

void ferry_file_batches_cancel(struct file_transport *ft)
{
    for (int kind = 0; kind < FILE_BACKEND_COUNT; kind++) {
        struct file_backend_slot *slot = &ft->slots[kind];
        struct ferry_list *next;

        if (slot->backend == NULL)
            continue;
        for (struct ferry_list *link = slot->busy.next; link != &slot->busy; link = next) {
            struct file_batch *batch = FERRY_CONTAINER_OF(link, struct file_batch, base.link);

            next = link->next;
            if (batch->base.state != FERRY_FILE_BATCH_RUNNING || wanted(batch))
                continue;
            if (has_trait(batch, FERRY_FILE_MAY_BLOCK)) {
                batch->tainted = true;
                tear_down(ft, batch, ft->settings.drain_ns);
                next = slot->busy.next;
            } else {
                ferry_file_batch_cancel(&batch->base);
            }
        }
    }
}

/* ---- open and close ---- */

static void on_ready(void *arg, struct ferry_file_batch *batch)
{
    struct file_transport *ft = arg;

    if (atomic_exchange(&batch->ready, true))
        return;
    ferry_inbox_push(&ft->ready, &batch->node);
    ferry_file_kick(ft);
}

static enum ferry_status make_batches(struct file_backend_slot *slot, uint32_t count)
{
    slot->batches = calloc(count, sizeof(*slot->batches));
    if (slot->batches == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    slot->batch_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct file_batch *batch = &slot->batches[i];

        batch->base.backend = slot->backend;
        batch->base.index = i;
        batch->base.state = FERRY_FILE_BATCH_FREE;
        batch->base.until_ns = FERRY_NEVER_NS;
        ferry_list_push_back(&slot->free, &batch->base.link);
    }
    return FERRY_OK;
}

static enum ferry_status open_one(struct file_transport *ft, enum file_backend_kind kind,
                                  const struct ferry_file_backend_ops *ops)
{
    struct file_backend_slot *slot = &ft->slots[kind];
    uint32_t entries = ft->settings.queue_depth < 32 ? ft->settings.queue_depth : 32;
    struct ferry_file_backend_env env = {
        .config = ft->base.env->config,
        .batch_count = kind == FILE_BACKEND_GDS ? ft->settings.gds_batches
                                                : ft->settings.queue_depth,
        .batch_entries = kind == FILE_BACKEND_GDS ? ft->settings.gds_depth : entries,
        .ready = on_ready,
        .ready_arg = ft,
        .reason = slot->reason,
        .reason_size = sizeof(slot->reason),
    };
    struct ferry_file_backend *backend = NULL;
    enum ferry_status status = ferry_file_backend_open(ops, &env, &backend);

    slot->backend = backend;
    if (status == FERRY_OK)
        status = make_batches(slot, env.batch_count);
    if (status == FERRY_OK && ops->sleep != NULL)
        atomic_store(&ft->sleeper, backend);
    if (status == FERRY_OK)
        return FERRY_OK;
    ferry_file_backend_close(backend);
    slot->backend = NULL;
    if (slot->reason[0] == '\0')
        snprintf(slot->reason, sizeof(slot->reason), "%s", ferry_last_error_text());
    return status;
}

/* Most hosts have none, and need none; a warning only where somebody wants it. */
static void open_gds(struct file_transport *ft)
{
    struct file_backend_slot *slot = &ft->slots[FILE_BACKEND_GDS];

    if (open_one(ft, FILE_BACKEND_GDS, &ferry_file_gds) == FERRY_OK) {
        ferry_file_buffers_serve(ft, slot->backend);
        return;
    }
    if (ft->settings.gds_wanted)
        ferry_warn("file", "cuFile is not used: %s", slot->reason);
    else
        ferry_info("file", "cuFile is not used: %s", slot->reason);
}

/* One line says why threads do it instead, here and never again. */
static void open_uring(struct file_transport *ft)
{
    struct file_backend_slot *slot = &ft->slots[FILE_BACKEND_URING];
#ifdef FERRY_HAVE_URING
    if (open_one(ft, FILE_BACKEND_URING, &ferry_file_uring) == FERRY_OK)
        return;
#else
    snprintf(slot->reason, sizeof(slot->reason), "this build has no liburing");
#endif
    ferry_warn("file", "files are read and written by threads, not by io_uring: %s", slot->reason);
}

enum ferry_status ferry_file_backends_open(struct file_transport *ft)
{
    for (int kind = 0; kind < FILE_BACKEND_COUNT; kind++) {
        ferry_list_init(&ft->slots[kind].free);
        ferry_list_init(&ft->slots[kind].busy);
        snprintf(ft->slots[kind].reason, sizeof(ft->slots[kind].reason), "not enabled");
    }
    if (ft->settings.enabled[FILE_BACKEND_GDS])
        open_gds(ft);
    if (ft->settings.enabled[FILE_BACKEND_URING])
        open_uring(ft);
    return open_one(ft, FILE_BACKEND_POOL, &ferry_file_pool);
}

void ferry_file_backends_close(struct file_transport *ft)
{
    ferry_file_buffers_serve(ft, NULL);
    /* Last first: threads of the pool wake the dispatcher through the ring. */
    for (int kind = FILE_BACKEND_COUNT - 1; kind >= 0; kind--) {
        struct file_backend_slot *slot = &ft->slots[kind];

        for (uint32_t i = 0; i < slot->batch_count; i++) {
            FERRY_ASSERT(slot->batches[i].base.state == FERRY_FILE_BATCH_FREE);
            if (slot->batches[i].base.native != NULL)
                ferry_file_batch_destroy(&slot->batches[i].base);
        }
        ferry_file_backend_close(slot->backend);
        slot->backend = NULL;
        free(slot->batches);
        slot->batches = NULL;
        slot->batch_count = 0;
    }
    atomic_store(&ft->sleeper, NULL);
}
