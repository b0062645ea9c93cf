/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the model: where they go, what may become of them, and the small part of the runtime
 * that hp_tcp relies on: a task that ended as outdated is held, its peer's description is read
 * again, and the whole task is submitted once more, once.
 *
 * Ranges are chosen so that the outcome is certain: a local range belongs to one task, a remote one
 * to one WRITE or to any number of READs. A WRITE that ended as "outcome unknown" keeps its range.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model.h"
#include "pattern.h"

#define TRIES       6
#define UNKNOWN_MAX 8

static void on_ended(struct ferry_xfer *xfer);

/* ---- which ranges are free ---- */

static bool overlap(uint32_t a, uint32_t a_length, uint32_t b, uint32_t b_length)
{
    return a < b + b_length && b < a + a_length;
}

static bool local_free(const struct model_task *wanted)
{
    const struct model *model = wanted->model;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *other = &model->tasks[i];

        if (other != wanted && other->from == wanted->from &&
            (other->state == MODEL_TASK_RUNNING || other->state == MODEL_TASK_HELD) &&
            overlap(wanted->local, wanted->length, other->local, other->length))
            return false;
    }
    return true;
}

static bool remote_free(const struct model_task *wanted, const struct model_task *over)
{
    const struct model *model = wanted->model;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *other = &model->tasks[i];
        bool both_read = wanted->xfer.opcode == FERRY_READ && other->xfer.opcode == FERRY_READ;

        if (other != wanted && other != over && other->state != MODEL_TASK_FREE &&
            other->to == wanted->to && !both_read &&
            overlap(wanted->remote, wanted->length, other->remote, other->length))
            return false;
    }
    return true;
}

/* ---- choosing ---- */

static struct model_task *free_task(struct model *model)
{
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        if (model->tasks[i].state == MODEL_TASK_FREE)
            return &model->tasks[i];
    }
    return NULL;
}

/* Those that ended as unknown keep their place: never so many that nothing else has one. */
static bool may_write(const struct model *model)
{
    uint32_t unknown = 0;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++)
        unknown += model->tasks[i].state == MODEL_TASK_UNKNOWN;
    return unknown < UNKNOWN_MAX;
}

/* Many are small, some are long, some touch a chunk's edge. */
static uint32_t draw_length(struct model *model, uint32_t most)
{
    uint32_t length;

    switch (model_below(model, 4)) {
    case 0:
        length = 1 + (uint32_t)model_below(model, 64);
        break;
    case 1:
        length = 1 + (uint32_t)model_below(model, model->profile.length_max);
        break;
    case 2:
        length = model->profile.chunk_bytes * (1 + (uint32_t)model_below(model, 3)) +
                 (uint32_t)model_below(model, 3) - 1;
        break;
    default:
        length = 1 + (uint32_t)model_below(model, 1 + model->profile.length_max / 8);
        break;
    }
    return length < most ? length : most;
}

static void place(struct model_task *task)
{
    struct model *model = task->model;
    const struct model_region *local = &task->from->regions[task->local_region];
    const struct model_region *remote = &task->to->regions[task->remote_region];
    uint32_t most = local->length < remote->length ? local->length : remote->length;

    task->length = draw_length(model, most);
    task->local = local->offset + (uint32_t)model_below(model, local->length - task->length + 1);
    task->remote = remote->offset + (uint32_t)model_below(model, remote->length - task->length + 1);
    task->forbidden = remote->permission == FERRY_PERMISSION_LOCAL ||
                      (task->xfer.opcode == FERRY_WRITE &&
                       remote->permission != FERRY_PERMISSION_READ_WRITE);
    task->bad = task->forbidden;
    if (model->profile.bad && !model->healing && model_chance(model, 8)) {
        /* Over the end by less than the fence there. */
        task->remote = remote->offset + remote->length - task->length + 1 +
                       (uint32_t)model_below(model, 15);
        task->bad = true;
    }
}

static uint32_t draw_region(struct model *model)
{
    if (!model->profile.bad || model->healing || !model_chance(model, 10))
        return (uint32_t)model_below(model, 2);
    return 2 + (uint32_t)model_below(model, MODEL_REGIONS - 2);
}

static bool choose(struct model_task *task, struct model_node *to, enum ferry_opcode opcode)
{
    struct model *model = task->model;

    task->to = to;
    task->xfer.opcode = opcode;
    for (uint32_t i = 0; i < TRIES; i++) {
        task->local_region = 3 + (uint32_t)model_below(model, 2);
        task->remote_region = draw_region(model);
        if (opcode == FERRY_READ && model_chance(model, 25))
            task->remote_region = 2;
        place(task);
        if (task->from->regions[task->local_region].id != 0 &&
            !task->from->regions[task->local_region].hidden && local_free(task) &&
            remote_free(task, NULL))
            return true;
    }
    return false;
}

/* It ended as unknown, and this very engine can have its session fenced. */
static bool may_be_covered(const struct model_task *task, const struct model_node *from)
{
    return task->state == MODEL_TASK_UNKNOWN && task->from == from &&
           task->from_life == from->life && task->attempt_life == task->to->life;
}

/* A WRITE of which it may become unclear what is left of it. */
static struct model_task *draw_under(struct model_node *from, const struct model_node *to)
{
    struct model *model = from->model;
    struct model_task *doubted = model_doubts_task(from, to);
    uint32_t first = (uint32_t)model_below(model, MODEL_TASKS_MAX);
    struct model_task *found = NULL;

    if (doubted != NULL)
        return doubted;
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[(first + i) % MODEL_TASKS_MAX];

        if (task->xfer.opcode != FERRY_WRITE || task->to != to || task->bad || task->mixed)
            continue;
        if (may_be_covered(task, from))
            return task;
        if (task->state == MODEL_TASK_RUNNING && found == NULL)
            found = task;
    }
    return found;
}

/* Over the whole of one that ended as unknown: what is below must not show once this is done. */
static void cover(struct model_task *task, struct model_task *under)
{
    const struct model_region *local = &task->from->regions[task->local_region];

    task->remote = under->remote;
    task->length = under->length < local->length ? under->length : local->length;
    task->local = local->offset + local->length - task->length;
}

/* Place a WRITE over another one; whose bytes stay is not certain then. */
static bool choose_over(struct model_task *task, struct model_node *to)
{
    struct model *model = task->model;
    struct model_task *under = draw_under(task->from, to);
    uint32_t first;

    if (under == NULL || under->mixed)
        return false;
    task->to = to;
    task->xfer.opcode = FERRY_WRITE;
    task->local_region = 3 + (uint32_t)model_below(model, 2);
    task->remote_region = under->remote_region;
    place(task);
    if (under->state == MODEL_TASK_UNKNOWN) {
        cover(task, under);
    } else {
        first = under->remote > task->length ? under->remote - task->length + 1 : 0;
        if (first < to->regions[task->remote_region].offset)
            first = to->regions[task->remote_region].offset;
        task->remote = first + (uint32_t)model_below(model, under->remote + under->length - first);
    }
    if (task->bad || task->from->regions[task->local_region].id == 0 ||
        task->from->regions[task->local_region].hidden || !local_free(task) ||
        task->remote + task->length >
            to->regions[task->remote_region].offset + to->regions[task->remote_region].length ||
        !overlap(task->remote, task->length, under->remote, under->length) ||
        !remote_free(task, under))
        return false;
    task->other_seed = under->seed;
    task->other_local = under->local;
    task->other_remote = under->remote;
    task->other_length = under->length;
    task->mixed = true;
    task->under = under;
    if (under->state == MODEL_TASK_UNKNOWN && task->length == under->length) {
        task->covers = under;
        task->covers_serial = under->serial;
    }
    return true;
}

/* ---- beginning ---- */

static bool lease_local(struct model_task *task)
{
    struct ferry_lease_request want = {
        .addr = (uintptr_t)task->from->memory + task->local,
        .length = task->length,
        .access = FERRY_ACCESS_LOCAL,
    };

    return ferry_lease_acquire(&task->from->reader, &want, &task->lease) == FERRY_OK;
}

/* Everything about this try; the view is held already. */
static void aim(struct model_task *task)
{
    struct model_region *remote = &task->to->regions[task->remote_region];

    free(task->snapshot);
    task->snapshot = NULL;
    task->landed_any = false;
    task->attempt++;
    task->attempt_id = task->view->ids[task->remote_region];
    task->attempt_life = task->view->life;
    if (task->attempt_id == 0 || task->attempt_id != remote->id ||
        task->attempt_life != task->to->life || remote->hidden)
        task->stale_possible = true;
    task->xfer.local = task->from->memory + task->local;
    task->xfer.remote_addr = (uintptr_t)task->to->memory + task->remote;
    task->xfer.length = task->length;
    task->xfer.target = task->view->target;
    task->xfer.ended = on_ended;
    task->xfer.unapplied = false;
}

static void prepare(struct model_task *task)
{
    struct model *model = task->model;

    task->serial = ++model->serial;
    task->attempt = 0;
    task->refreshed = false;
    task->canceled = false;
    task->stale_possible = false;
    task->lost = false;
    task->landed_whole = false;
    task->landed_count = 0;
    task->chunk_bytes = task->length;
    task->chunk_count = 1;
    task->xfer.transport_data = NULL; /* until it is submitted */
    memset(task->landed, 0, task->length);
    atomic_store(&task->xfer.cancel_asked, false);
    task->xfer.priority = (enum ferry_priority)model_below(model, 3);
    task->xfer.deadline_ns = FERRY_NO_DEADLINE;
    if (!model->healing && model_chance(model, 20)) {
        task->xfer.deadline_ns = sim_net_now_ns(model->net) +
                                 model_below(model, 20 * FERRY_NS_PER_MS);
        model->events[MODEL_DEADLINE]++;
    }
    task->seed = sim_random(model->net);
    if (task->xfer.opcode == FERRY_WRITE)
        model_memory_fill(task->from, task->local, task->length, task->seed);
    aim(task);
}

static void release(struct model_task *task)
{
    ferry_lease_release(&task->lease);
    model_view_drop(task->view);
    task->view = NULL;
    free(task->snapshot);
    task->snapshot = NULL;
}

static struct model_node *another(struct model *model, const struct model_node *node)
{
    uint32_t index = (uint32_t)model_below(model, model->profile.nodes - 1);

    return &model->nodes[index >= node->index ? index + 1 : index];
}

/* It is under way now: tell the one below. */
static void mix(struct model_task *task)
{
    struct model_task *under = task->under;
    bool in_doubt = under == model_doubts_task(task->from, task->to);

    task->model->events[task->covers != NULL ? MODEL_OVERLAP_UNKNOWN
                        : in_doubt           ? MODEL_OVERLAP_DOUBT
                                             : MODEL_OVERLAP]++;
    under->mixed = true;
    under->other_seed = task->seed;
    under->other_local = task->local;
    under->other_remote = task->remote;
    under->other_length = task->length;
    task->under = NULL;
}

static void begin(struct model_task *task, struct model_node *from)
{
    task->from = from;
    task->from_life = from->life;
    task->mixed = false;
    task->under = NULL;
    task->covers = NULL;
}

/* It is placed: nothing else is needed but what the engine lends it. */
static bool equip(struct model_task *task)
{
    if (!lease_local(task))
        return false;
    task->view = model_view_get(task->from, task->to);
    if (task->view == NULL) {
        ferry_lease_release(&task->lease);
        return false;
    }
    prepare(task);
    task->state = MODEL_TASK_RUNNING;
    if (task->under != NULL)
        mix(task);
    return true;
}

static bool make(struct model_task *task, struct model_node *from, struct model_node *to,
                 enum ferry_opcode opcode)
{
    struct model *model = task->model;
    bool over = opcode == FERRY_WRITE && model->profile.overlap && !model->healing &&
                model_chance(model, model->profile.doubtful ? 80 : 50);

    begin(task, from);
    return ((over && choose_over(task, to)) || choose(task, to, opcode)) && equip(task);
}

/* A parked worker looks at its clock every 200 us; here it may not have been turned for long. */
static void refresh_clocks(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);

    for (uint32_t i = 0; i < hp->worker_count; i++)
        ferry_hp_reactor(&hp->workers[i])->now_ns = sim_net_now_ns(node->model->net);
}

/* No task ends inside of a submit, so its flow is there still. */
static void note_cut(struct model_task *task)
{
    const struct hp_flow *flow = task->xfer.transport_data;

    task->chunk_bytes = (uint32_t)flow->chunk_bytes;
    task->chunk_count = flow->chunk_count;
}

static bool submit(struct model_node *node, struct model_task *const *tasks, uint32_t count)
{
    struct model *model = node->model;
    struct ferry_xfer *xfers[4];
    enum ferry_status status;

    for (uint32_t i = 0; i < count; i++) {
        const struct model_task *task = tasks[i];

        xfers[i] = &tasks[i]->xfer;
        MODEL_NOTE(model, "submit %llu node %llu to %llu write %llu length %llu", task->serial,
                   task->from->index, task->to->index, task->xfer.opcode == FERRY_WRITE,
                   task->length);
        model->events[task->bad                         ? MODEL_SUBMIT_BAD
                      : task->xfer.opcode == FERRY_READ ? MODEL_SUBMIT_READ
                                                        : MODEL_SUBMIT_WRITE]++;
        model->open++;
    }
    refresh_clocks(node);
    status = ferry_transport_submit(node->transport, xfers, count);
    model_memory_check(node);
    if (status == FERRY_OK) {
        for (uint32_t i = 0; i < count; i++)
            note_cut(tasks[i]);
        return true;
    }
    if (status != FERRY_ERR_QUEUE_FULL && !(status == FERRY_ERR_CLOSING && node->closing))
        model_fail(model, "submit said %s", ferry_status_name(status));
    model->events[MODEL_SUBMIT_FULL]++;
    for (uint32_t i = 0; i < count; i++) {
        release(tasks[i]);
        tasks[i]->state = MODEL_TASK_FREE;
        model->open--;
    }
    return false;
}

bool model_task_submit(struct model *model, struct model_node *from)
{
    struct model_task *tasks[3];
    uint32_t wanted = 1 + (uint32_t)(model_chance(model, 20) ? 1 + model_below(model, 2) : 0);
    uint32_t count = 0;

    if (!from->alive || from->closing)
        return false;
    while (count < wanted) {
        struct model_task *task = free_task(model);
        enum ferry_opcode opcode = may_write(model) && model_chance(model, 50) ? FERRY_WRITE
                                                                               : FERRY_READ;

        if (task == NULL || !make(task, from, another(model, from), opcode))
            break;
        tasks[count++] = task;
    }
    return count > 0 && submit(from, tasks, count);
}

/* ---- ending ---- */

/* Whether something that happened explains the end. */
static bool explained(const struct model_task *task, enum ferry_status status)
{
    const struct model *model = task->model;
    bool write = task->xfer.opcode == FERRY_WRITE;

    switch (status) {
    case FERRY_OK:
        return true;
    case FERRY_ERR_CANCELED:
        return task->canceled || ferry_lease_revoked(&task->lease);
    case FERRY_ERR_TIMED_OUT:
        return task->xfer.deadline_ns <= sim_net_now_ns(model->net) || model->disturbed;
    case FERRY_ERR_STALE_KEY:
        return task->stale_possible || task->attempt_life != task->to->life;
    case FERRY_ERR_RANGE:
    case FERRY_ERR_PERMISSION:
        return task->bad || task->stale_possible;
    case FERRY_ERR_CLOSING:
        return task->lost;
    case FERRY_ERR_PATH_DOWN:
        return model->disturbed && task->xfer.native != 0;
    case FERRY_ERR_PEER_GONE:
    case FERRY_ERR_PEER_CLOSING:
    case FERRY_ERR_LIMIT:
        return model->disturbed;
    case FERRY_ERR_OUTCOME_UNKNOWN:
        if (model->profile.gentle)
            return write && (task->lost || ferry_lease_revoked(&task->lease));
        /* v1 cannot be asked. */
        return write &&
               (model->disturbed || task->lost || (model->profile.cuts && model->profile.v1));
    default:
        return false;
    }
}

static void reuse_memory(struct model_task *task)
{
    struct model *model = task->model;

    /* The memory is the caller's again: it does with it what it likes, at once. */
    if (model_chance(model, 75))
        model_memory_fill(task->from, task->local, task->length, sim_random(model->net));
    if (task->xfer.opcode == FERRY_WRITE && task->state == MODEL_TASK_FREE && task->to->alive &&
        !task->bad && !task->mixed && model_chance(model, 50))
        model_memory_fill(task->to, task->remote, task->length, sim_random(model->net));
}

static void finish(struct model_task *task, enum ferry_status status)
{
    struct model *model = task->model;

    MODEL_NOTE(model, "end %llu try %llu status -%llu native %llu unapplied %llu", task->serial,
               task->attempt, -(int)status, task->xfer.native, task->xfer.unapplied);
    if (!explained(task, status))
        model_fail(model, "nothing explains %s of %s %u (%s)", ferry_status_name(status),
                   task->xfer.opcode == FERRY_READ ? "READ" : "WRITE", task->serial,
                   task->xfer.where);
    if (task->bad && status == FERRY_OK)
        model_fail(model, "S4: task %u completed on what it must not touch", task->serial);
    model->ends[-(int)status]++;
    model->open--;
    task->state = status == FERRY_ERR_OUTCOME_UNKNOWN ? MODEL_TASK_UNKNOWN : MODEL_TASK_FREE;
    /* Another registration, another life: nothing of it may land any more. */
    if (task->state == MODEL_TASK_UNKNOWN &&
        (task->to->regions[task->remote_region].id != task->attempt_id || task->attempt_id == 0))
        task->state = MODEL_TASK_FREE;
    release(task);
    reuse_memory(task);
}

/* A newer description of the peer may help: the runtime's rule. */
static bool outdated(const struct ferry_xfer *xfer)
{
    return xfer->status == FERRY_ERR_STALE_KEY ||
           (xfer->status == FERRY_ERR_PEER_GONE && xfer->unapplied);
}

/* What lies below was fenced before a byte of this was sent: it lands no more. */
static void end_cover(struct model_task *task, enum ferry_status status)
{
    struct model_task *under = task->covers;

    if (under->serial != task->covers_serial || under->state != MODEL_TASK_UNKNOWN)
        return;
    if (status == FERRY_OK) {
        model_memory_covered(task);
        under->state = MODEL_TASK_FREE;
        task->model->events[MODEL_COVERED]++;
    } else if (status != FERRY_ERR_OUTCOME_UNKNOWN && task->landed_count == 0) {
        under->mixed = false; /* as if it had not been: another one may try */
    }
}

static void on_ended(struct ferry_xfer *xfer)
{
    struct model_task *task = (struct model_task *)(void *)xfer;
    struct model *model = task->model;
    struct model_node *from = task->from;

    if (task->state != MODEL_TASK_RUNNING)
        model_fail(model, "S1: task %u ended twice", task->serial);
    if (xfer->opcode == FERRY_READ)
        model_memory_read_ended(task, xfer->status == FERRY_OK);
    else
        model_memory_write_ended(task, xfer->status == FERRY_OK);
    if (xfer->status == FERRY_ERR_PEER_GONE && xfer->unapplied && xfer->opcode == FERRY_WRITE &&
        !task->mixed && (task->landed_count > 0 || task->landed_any))
        model_fail(model, "S6: WRITE %u ended as not applied, but bytes of it have landed",
                   task->serial);
    if (!explained(task, xfer->status))
        finish(task, xfer->status);
    if (outdated(xfer) && !task->refreshed && !from->closing && !task->canceled) {
        MODEL_NOTE(model, "hold %llu status -%llu", task->serial, -(int)xfer->status);
        task->refreshed = true;
        task->state = MODEL_TASK_HELD;
        return;
    }
    if (task->covers != NULL)
        end_cover(task, xfer->status);
    finish(task, xfer->status);
    /* Who is told that nobody knows writes again, at once. */
    if (!model->healing && !from->closing &&
        model_chance(model, task->state == MODEL_TASK_UNKNOWN ? 60 : 15) &&
        model_task_submit(model, from))
        model->events[MODEL_SUBMIT_NESTED]++;
}

/* ---- what the runtime does between ---- */

static void end_held(struct model_task *task, enum ferry_status status, const char *where)
{
    task->xfer.status = status;
    task->xfer.where = where;
    finish(task, status);
}

static bool step_held(struct model_task *task)
{
    struct model *model = task->model;

    if (task->lost || task->from->closing) {
        end_held(task, FERRY_ERR_CLOSING, "model: closing");
    } else if (task->canceled || ferry_lease_revoked(&task->lease)) {
        end_held(task, FERRY_ERR_CANCELED, "model: canceled between two tries");
    } else if (sim_net_now_ns(model->net) >= task->xfer.deadline_ns) {
        end_held(task, FERRY_ERR_TIMED_OUT, "model: the deadline passed between two tries");
    } else if (!task->to->alive || task->to->closing) {
        if (!model_chance(model, 30))
            return false;
        end_held(task, FERRY_ERR_PEER_GONE, "model: the peer cannot be asked");
    } else {
        model_view_refresh(task->from, task->to);
        model_view_drop(task->view);
        task->view = model_view_get(task->from, task->to);
        aim(task);
        model->events[MODEL_RETRY]++;
        model->open--;
        task->state = MODEL_TASK_RUNNING;
        MODEL_NOTE(model, "again %llu id %llx life %llu", task->serial, task->attempt_id,
                   task->attempt_life);
        submit(task->from, &task, 1);
    }
    return true;
}

bool model_task_held_step(struct model *model)
{
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[i];

        if (task->state == MODEL_TASK_HELD && step_held(task))
            return true;
    }
    return false;
}

void model_task_cancel_one(struct model *model)
{
    uint32_t first = (uint32_t)model_below(model, MODEL_TASKS_MAX);

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[(first + i) % MODEL_TASKS_MAX];

        if ((task->state != MODEL_TASK_RUNNING && task->state != MODEL_TASK_HELD) || task->canceled)
            continue;
        MODEL_NOTE(model, "cancel %llu", task->serial);
        model->events[MODEL_CANCEL]++;
        task->canceled = true;
        atomic_store(&task->xfer.cancel_asked, true);
        if (task->state == MODEL_TASK_RUNNING)
            ferry_transport_cancel(task->from->transport, &task->xfer);
        return;
    }
}

void model_tasks_forget_unknown(struct model_node *node, uint32_t region)
{
    struct model *model = node->model;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[i];

        if (task->state == MODEL_TASK_UNKNOWN && task->to == node && task->remote_region == region)
            task->state = MODEL_TASK_FREE;
    }
}

void model_tasks_check_idle(struct model *model)
{
    uint64_t now_ns = sim_net_now_ns(model->net);

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *task = &model->tasks[i];

        if (task->state != MODEL_TASK_RUNNING || task->xfer.opcode != FERRY_READ)
            continue;
        if (task->canceled)
            model_fail(model, "S8: READ %u was canceled and nothing ends it", task->serial);
        if (task->xfer.deadline_ns < now_ns)
            model_fail(model, "S8: READ %u is past its deadline and nothing ends it", task->serial);
    }
}

void model_task_probe(struct model_node *from, struct model_node *to)
{
    struct model *model = from->model;
    struct model_task *task = free_task(model);

    if (task == NULL)
        return;
    model_view_refresh(from, to);
    begin(task, from);
    /* Where a WRITE has ended as unknown, another one has its way all the same. */
    if ((!model->profile.v1 && choose_over(task, to) && equip(task)) ||
        make(task, from, to, FERRY_READ))
        submit(from, &task, 1);
}
