/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every byte of every node must be. The shadow of a node holds the bytes as the rules allow
 * them; after a turn of the node each byte that differs must be explained by exactly one open task:
 *
 *   READ   the byte of the source at that position, under the registration the READ was made for
 *   WRITE  the byte it carries, not landed before, under the registration it was made for
 *
 * Everything else is a broken rule: a byte outside of a range, a byte after an end, a byte twice, a
 * byte of another life. Landed bytes may be changed by their owner at once, so that a second
 * landing shows. A chunk that has not landed whole may begin anew, since a WRITE that a peer says
 * it did not apply is sent again; one that has may not. Where two WRITEs overlap, the byte of
 * either will do.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "pattern.h"

void model_memory_fill(struct model_node *node, uint32_t offset, uint32_t length, uint64_t seed)
{
    pattern_fill(node->memory + offset, length, seed, offset);
    memcpy(node->shadow + offset, node->memory + offset, length);
}

/* The bytes that a READ may deliver, or NULL: nothing may come. */
static const unsigned char *source_of(const struct model_task *task)
{
    const struct model_region *region = &task->to->regions[task->remote_region];

    if (task->forbidden || task->attempt_id == 0)
        return NULL;
    if (task->snapshot != NULL)
        return task->snapshot;
    return region->id == task->attempt_id && task->attempt_life == task->to->life
               ? task->to->shadow + task->remote
               : NULL;
}

static bool may_land(const struct model_task *task)
{
    const struct model_region *region = &task->to->regions[task->remote_region];

    return !task->forbidden && task->to->alive && task->attempt_id != 0 &&
           region->id == task->attempt_id && task->attempt_life == task->to->life;
}

/* How many of its bytes lie inside of the registration: a chunk that does may move. */
static uint32_t reach_of(const struct model_task *task)
{
    const struct model_region *region = &task->to->regions[task->remote_region];
    uint32_t left = region->offset + region->length - task->remote;

    return task->length < left ? task->length : left;
}

static bool covers(uint32_t offset, uint32_t length, uint32_t at)
{
    return at >= offset && at - offset < length;
}

/* The task that may change the byte, or NULL. */
static struct model_task *owner_of(struct model_node *node, uint32_t at)
{
    struct model *model = node->model;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[i];

        if (task->state == MODEL_TASK_FREE)
            continue;
        if (task->xfer.opcode == FERRY_READ && task->state != MODEL_TASK_UNKNOWN &&
            task->from == node && covers(task->local, task->length, at))
            return task;
        /* One that is forbidden may lie over anything; it must not change a byte. */
        if (task->xfer.opcode == FERRY_WRITE && task->to == node && !task->forbidden &&
            covers(task->remote, task->length, at))
            return task;
    }
    return NULL;
}

static void wrong_byte(struct model_node *node, const struct model_task *task, uint32_t at,
                       const char *why)
{
    model_fail(node->model, "%s: node %u byte %u was %02x is %02x (task %u %s try %u)", why,
               node->index, at, node->shadow[at], node->memory[at], task == NULL ? 0 : task->serial,
               task == NULL                      ? "none"
               : task->xfer.opcode == FERRY_READ ? "read"
                                                 : "write",
               task == NULL ? 0 : task->attempt);
}

/* Take over what a READ has delivered so far. */
static void take_read(struct model_task *task)
{
    struct model_node *node = task->from;
    const unsigned char *source = source_of(task);
    unsigned char *memory = node->memory + task->local;
    unsigned char *shadow = node->shadow + task->local;

    if (memcmp(memory, shadow, task->length) == 0)
        return;
    for (uint32_t i = 0; i < task->length; i++) {
        if (memory[i] == shadow[i])
            continue;
        if (source == NULL || i >= reach_of(task))
            wrong_byte(node, task, task->local + i, "S7: a READ delivered what it must not have");
        if (memory[i] != source[i])
            wrong_byte(node, task, task->local + i, "S2/S7: a READ delivered a wrong byte");
        shadow[i] = memory[i];
    }
}

/* The owner changes some of what has landed, so that a second landing would show. */
static void consume(struct model_task *task)
{
    struct model_node *node = task->to;
    uint32_t from = (uint32_t)model_below(task->model, task->length);
    uint32_t count = 0;

    for (uint32_t i = from; i < task->length && count < 64; i++) {
        if (task->landed[i] == 0)
            continue;
        node->memory[task->remote + i] ^= 0xa5;
        node->shadow[task->remote + i] = node->memory[task->remote + i];
        count++;
    }
    task->model->events[MODEL_CONSUME] += count > 0;
}

/* The chunk that holds a byte of the task: where it begins, and where it ends. */
static uint32_t chunk_begin(const struct model_task *task, uint32_t i)
{
    uint32_t chunk = i / task->chunk_bytes;

    if (chunk >= task->chunk_count)
        chunk = task->chunk_count - 1;
    return chunk * task->chunk_bytes;
}

static uint32_t chunk_end(const struct model_task *task, uint32_t i)
{
    uint32_t begin = chunk_begin(task, i);

    return begin / task->chunk_bytes + 1 == task->chunk_count ? task->length
                                                              : begin + task->chunk_bytes;
}

/* Only what is known not to have been applied is sent again: never a chunk that landed whole. */
static bool may_begin_anew(const struct model_task *task, uint32_t i)
{
    const unsigned char *shadow = task->to->shadow + task->remote;

    /* In a calm schedule only memory that is taken back ends a connection, or a wire that is cut.
     */
    if (task->model->profile.v1 || (!task->model->disturbed && !task->model->profile.cuts))
        return false;
    for (uint32_t k = chunk_begin(task, i); k < chunk_end(task, i); k++) {
        if (task->landed[k] == 0 && shadow[k] != pattern_byte(task->seed, task->local + k))
            return true;
    }
    return false;
}

static void begin_anew(struct model_task *task, uint32_t i)
{
    for (uint32_t k = chunk_begin(task, i); k < chunk_end(task, i); k++) {
        task->landed_count -= task->landed[k];
        task->landed[k] = 0;
    }
    task->model->events[MODEL_LANDED_AGAIN]++;
}

/* Where WRITEs overlap: the byte of any of them that may land there. */
static bool take_mixed(struct model_node *node, uint32_t at)
{
    struct model *model = node->model;
    bool found = false;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[i];

        if (task->state == MODEL_TASK_FREE || !task->mixed || task->xfer.opcode != FERRY_WRITE ||
            task->to != node || !covers(task->remote, task->length, at) || !may_land(task) ||
            node->memory[at] != pattern_byte(task->seed, task->local + at - task->remote))
            continue;
        task->landed_count += task->landed[at - task->remote] == 0;
        task->landed[at - task->remote] = 1;
        found = true;
    }
    if (found)
        node->shadow[at] = node->memory[at];
    return found;
}

static void take_write(struct model_task *task)
{
    struct model_node *node = task->to;
    unsigned char *memory = node->memory + task->remote;
    unsigned char *shadow = node->shadow + task->remote;
    uint32_t before = task->landed_count;

    for (uint32_t i = 0; i < task->length; i++) {
        uint32_t at = task->remote + i;

        if (memory[i] == shadow[i])
            continue;
        if (!may_land(task) || i >= reach_of(task))
            wrong_byte(node, task, at, "S5/S7: a byte of a WRITE landed where it must not");
        if (task->landed[i] != 0 && !may_begin_anew(task, i))
            wrong_byte(node, task, at, "S6: a byte of a WRITE landed twice");
        if (task->landed[i] != 0)
            begin_anew(task, i);
        if (memory[i] != pattern_byte(task->seed, task->local + i))
            wrong_byte(node, task, at, "S2: a WRITE landed a wrong byte");
        task->landed[i] = 1;
        task->landed_count++;
        shadow[i] = memory[i];
    }
    if (task->landed_count != before) {
        task->model->events[MODEL_LANDED_TWO_STEPS] += task->landed_count < task->length * 9 / 10;
        if (model_chance(task->model, 40))
            consume(task);
    }
}

/* The index of a byte that has not landed, or the length. */
static uint32_t not_landed(const struct model_task *task)
{
    const unsigned char *memory = task->to->memory + task->remote;

    for (uint32_t i = 0; i < task->length; i++) {
        uint32_t at = task->remote + i;

        /* A byte that was there already cannot be seen to land, nor one that was covered at once.
         */
        if (task->landed[i] == 0 && memory[i] != pattern_byte(task->seed, task->local + i) &&
            !(task->mixed && covers(task->other_remote, task->other_length, at) &&
              memory[i] ==
                  pattern_byte(task->other_seed, task->other_local + at - task->other_remote)))
            return i;
    }
    return task->length;
}

void model_memory_check(struct model_node *node)
{
    uint32_t at = 0;

    if (memcmp(node->memory, node->shadow, node->size) == 0)
        return;
    while (at < node->size) {
        struct model_task *task;

        if (node->size - at >= 64 && memcmp(node->memory + at, node->shadow + at, 64) == 0) {
            at += 64;
            continue;
        }
        if (node->memory[at] == node->shadow[at]) {
            at++;
            continue;
        }
        task = owner_of(node, at);
        if (task == NULL)
            wrong_byte(node, NULL, at, "S3/S5/S6: a byte changed that nobody may change");
        if (task->xfer.opcode == FERRY_READ)
            take_read(task);
        else if (!task->mixed)
            take_write(task);
        else if (!take_mixed(node, at))
            wrong_byte(node, task, at, "S2/S6: a byte landed that no WRITE there may bring");
    }
}

void model_memory_retire(struct model_node *node, uint32_t region)
{
    struct model *model = node->model;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &model->tasks[i];

        if (task->state == MODEL_TASK_FREE || task->to != node || task->remote_region != region)
            continue;
        task->stale_possible = true;
        if (task->xfer.opcode == FERRY_READ && source_of(task) != NULL && task->snapshot == NULL) {
            task->snapshot = malloc(task->length);
            memcpy(task->snapshot, node->shadow + task->remote, task->length);
        }
        if (task->xfer.opcode == FERRY_WRITE && task->state != MODEL_TASK_UNKNOWN) {
            task->landed_whole |= may_land(task) && not_landed(task) == task->length;
            task->landed_any |= task->landed_count > 0;
            memset(task->landed, 0, task->length);
            task->landed_count = 0;
        }
    }
    model_tasks_forget_unknown(node, region);
}

void model_memory_read_ended(struct model_task *task, bool completed)
{
    const unsigned char *source = source_of(task);

    take_read(task);
    if (!completed)
        return;
    if (source == NULL)
        model_fail(task->model, "S7: READ %u completed on a registration that is not its own",
                   task->serial);
    if (memcmp(task->from->memory + task->local, source, task->length) != 0)
        model_fail(task->model, "S2: READ %u completed without all of its bytes", task->serial);
}

void model_memory_covered(struct model_task *task)
{
    const unsigned char *memory = task->to->memory + task->remote;

    for (uint32_t i = 0; i < task->length && may_land(task); i++) {
        if (memory[i] != pattern_byte(task->seed, task->local + i))
            wrong_byte(task->to, task, task->remote + i,
                       "S6: a WRITE completed over one of unknown outcome, and that one shows");
    }
}

void model_memory_write_ended(struct model_task *task, bool completed)
{
    if (!completed || task->landed_whole)
        return;
    if (!may_land(task))
        model_fail(task->model, "S7: WRITE %u completed on a registration that is not its own",
                   task->serial);
    if (not_landed(task) < task->length)
        model_fail(task->model, "S2: WRITE %u completed, but its byte %u has not landed",
                   task->serial, not_landed(task));
}
