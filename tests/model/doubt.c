/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WRITEs whose answer was lost, as seen inside the engines. Two invariants that the bytes alone do
 * not show for certain: no WRITE passes one in doubt that it overlaps, on whichever lane; and no
 * two sessions receive a body into one place, since a predecessor is fenced before its successor is
 * served. Only looks; what it remembers from turn to turn is the node's.
 */
#include <string.h>

#include "base/checked.h"
#include "model.h"
#include "transport/hp_tcp/session.h"

/* ---- what waits ---- */

static bool was_waiting(const struct model_node *node, const struct model_wait *wait)
{
    for (uint32_t i = 0; i < node->wait_count; i++) {
        const struct model_wait *before = &node->waits[i];

        if (before->flow == wait->flow && before->chunk == wait->chunk &&
            before->in_doubt == wait->in_doubt && before->claimed == wait->claimed)
            return true;
    }
    return false;
}

struct waits {
    struct model_node *node;
    struct model_wait list[MODEL_WAITS_MAX];
    uint32_t count;
};

static void add_wait(struct waits *waits, const struct model_wait *wait)
{
    if (waits->count < MODEL_WAITS_MAX)
        waits->list[waits->count++] = *wait;
}

static void passed(struct model_node *node, const struct hp_doubted *range)
{
    model_fail(node->model,
               "S6: node %u sent a WRITE over [%llx, +%llu) while request %llu there is in doubt",
               node->index, (unsigned long long)range->addr, (unsigned long long)range->length,
               (unsigned long long)range->request_id);
}

/* Before READY the sending side connects, greets and asks. */
static bool sends_ops(const struct hp_lane *lane)
{
    return lane->state == HP_LANE_READY || lane->state == HP_LANE_CLOSING;
}

/* The chunks in the windows of lanes to the same process that overlap a range in doubt. */
static void look_at_window(struct waits *waits, struct hp_lane *lane,
                           const struct hp_doubted *range)
{
    for (uint32_t k = lane->head; k != lane->tail; k++) {
        struct hp_op *op = ferry_hp_lane_op(lane, k);
        bool touched = (int32_t)(k - lane->sent) < 0 || (k == lane->sent && lane->tx_offset > 0);
        struct model_wait wait = {
            .flow = op->flow, .chunk = op->chunk, .in_doubt = range->request_id};

        if (!op->is_write || op->orphan || op->doubt != HP_DOUBT_NONE || op->flow == range->flow ||
            !ferry_range_overlaps(op->flow->xfer->remote_addr +
                                      ferry_hp_flow_chunk_offset(op->flow, op->chunk),
                                  op->length, range->addr, range->length))
            continue;
        if (touched && was_waiting(waits->node, &wait))
            passed(waits->node, range);
        /* What the reactor has in hand was posted before; it shows when it is taken. */
        if (!touched && !(sends_ops(lane) && ferry_op_inflight(&lane->tx)))
            add_wait(waits, &wait);
    }
}

/* Flows that have chunks to post, and overlap a range in doubt as a whole. */
static void look_at_flows(struct waits *waits, const struct hp_peer *peer,
                          const struct hp_doubted *range)
{
    struct model_node *node = waits->node;

    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *task = &node->model->tasks[i];
        const struct hp_flow *flow = task->xfer.transport_data;
        struct model_wait wait = {.flow = flow, .chunk = UINT32_MAX, .in_doubt = range->request_id};
        const struct hp_target *target;

        if (task->state != MODEL_TASK_RUNNING || task->from != node ||
            task->xfer.opcode != FERRY_WRITE || flow == NULL || flow == range->flow)
            continue;
        target = (const struct hp_target *)(const void *)task->xfer.target;
        if (memcmp(target->peer->incarnation, peer->incarnation, FERRY_INCARNATION_SIZE) != 0 ||
            !ferry_range_overlaps(task->xfer.remote_addr, task->length, range->addr, range->length))
            continue;
        for (wait.claimed = 0; wait.claimed < atomic_load(&flow->next_chunk); wait.claimed++) {
            if (wait.claimed < flow->chunk_count && was_waiting(node, &wait))
                passed(node, range);
        }
        if (wait.claimed < flow->chunk_count)
            add_wait(waits, &wait);
    }
}

static void look_at_range(struct waits *waits, struct hp_transport *hp, const struct hp_peer *of,
                          const struct hp_doubted *range)
{
    for (struct ferry_list *l = hp->peers.next; l != &hp->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        if (memcmp(peer->incarnation, of->incarnation, FERRY_INCARNATION_SIZE) != 0)
            continue;
        for (uint32_t i = 0; i < peer->lane_count; i++)
            look_at_window(waits, &peer->lanes[i], range);
    }
    look_at_flows(waits, of, range);
}

static void check_waits(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);
    struct waits waits = {.node = node};

    for (struct ferry_list *l = hp->doubts.next; l != &hp->doubts; l = l->next) {
        struct hp_lane *lane = FERRY_CONTAINER_OF(l, struct hp_lane, question.link);

        for (uint32_t i = 0; i < lane->question.range_count; i++)
            look_at_range(&waits, hp, lane->peer, &lane->question.ranges[i]);
    }
    node->model->events[MODEL_WAIT] += waits.count > node->wait_count;
    memcpy(node->waits, waits.list, waits.count * sizeof(waits.list[0]));
    node->wait_count = waits.count;
}

/* ---- sessions ---- */

static bool is_mixed(struct model_node *node, const unsigned char *at, uint64_t length)
{
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        const struct model_task *task = &node->model->tasks[i];

        if (task->mixed && task->to == node &&
            ferry_range_overlaps((uintptr_t)node->memory + task->remote, task->length,
                                 (uintptr_t)at, length))
            return true;
    }
    return false;
}

static void check_body(struct model_node *node, const struct hp_session *session)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);
    const struct hp_incoming *in = &session->incoming;

    for (uint32_t i = 0; i < hp->worker_count; i++) {
        struct ferry_list *sessions = &hp->workers[i].sessions;

        for (struct ferry_list *l = sessions->next; l != sessions; l = l->next) {
            const struct hp_session *other = ferry_hp_session_of_link(l);

            if (other == session || !other->incoming.active || other->incoming.discard ||
                !ferry_range_overlaps((uintptr_t)in->to, in->length, (uintptr_t)other->incoming.to,
                                      other->incoming.length) ||
                is_mixed(node, in->to, in->length))
                continue;
            model_fail(node->model, "S6: two sessions of node %u receive into one place",
                       node->index);
        }
    }
}

static void check_sessions(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);

    for (uint32_t i = 0; i < hp->worker_count; i++) {
        struct ferry_list *sessions = &hp->workers[i].sessions;

        for (struct ferry_list *l = sessions->next; l != sessions; l = l->next) {
            const struct hp_session *session = ferry_hp_session_of_link(l);

            if (!session->incoming.active || session->incoming.discard)
                continue;
            check_body(node, session);
            node->model->events[MODEL_FENCED_BODY] += session->record != NULL &&
                                                      atomic_load(&session->record->doomed);
        }
    }
}

void model_doubts_check(struct model_node *node)
{
    check_waits(node);
    check_sessions(node);
}

static void check_held(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);

    for (struct ferry_list *l = hp->peers.next; l != &hp->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        for (uint32_t i = 0; i < peer->lane_count; i++) {
            if (!ferry_list_empty(&peer->lanes[i].held_queue))
                model_fail(node->model, "S8: node %u holds a WRITE back for nothing", node->index);
        }
    }
}

void model_doubts_check_idle(struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        struct model_node *node = &model->nodes[i];

        if (node->alive && atomic_load(&ferry_hp_of(node->transport)->doubt_count) == 0)
            check_held(node);
    }
}

/* ---- for choices and counts ---- */

bool model_doubts_none(const struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        const struct model_node *node = &model->nodes[i];

        if (node->alive && atomic_load(&ferry_hp_of(node->transport)->doubt_count) != 0)
            return false;
    }
    return true;
}

struct model_task *model_doubts_task(struct model_node *from, const struct model_node *to)
{
    struct hp_transport *hp = ferry_hp_of(from->transport);

    for (struct ferry_list *l = hp->doubts.next; l != &hp->doubts; l = l->next) {
        const struct hp_lane *lane = FERRY_CONTAINER_OF(l, const struct hp_lane, question.link);

        for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
            struct model_task *task = &from->model->tasks[i];

            /* The range of a WRITE that ends now may outlive its flow by a moment. */
            if (task->state == MODEL_TASK_RUNNING && task->xfer.opcode == FERRY_WRITE &&
                task->to == to && task->from == from &&
                task->xfer.transport_data == lane->question.ranges[0].flow)
                return task;
        }
    }
    return NULL;
}

void model_doubts_count(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);
    uint64_t *events = node->model->events;

    events[MODEL_FENCED] += atomic_load(&hp->answers.fenced);
    events[MODEL_CROWDED] += atomic_load(&hp->answers.crowded);
    for (struct ferry_list *l = hp->peers.next; l != &hp->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        for (uint32_t i = 0; i < peer->lane_count; i++) {
            const struct hp_lane_stats *stats = &peer->lanes[i].stats;

            events[MODEL_APPLIED] += atomic_load(&stats->resolved_applied);
            events[MODEL_NOT_APPLIED] += atomic_load(&stats->resolved_not_applied);
            events[MODEL_NOT_KNOWN] += atomic_load(&stats->resolved_unknown);
        }
    }
}
