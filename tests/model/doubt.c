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

/* What the reactor has in hand of the window, from the first byte that is not sent on. */
static uint64_t bytes_in_hand(const struct hp_lane *lane)
{
    uint64_t bytes = 0;

    if (!ferry_op_inflight(&lane->tx) || lane->tx.kind != FERRY_OP_SENDV ||
        lane->tx.iov != lane->iov)
        return 0; /* nothing, or a greeting */
    for (uint32_t i = 0; i < lane->tx.iov_count; i++)
        bytes += lane->iov[i].iov_len;
    return bytes;
}

/* The first of the window that has not been posted, not even in part. */
static uint32_t first_unposted(struct hp_lane *lane)
{
    uint64_t posted = lane->tx_offset + bytes_in_hand(lane);
    uint32_t k = lane->sent;

    while (k != lane->tail && posted > 0) {
        const struct hp_op *op = ferry_hp_lane_op(lane, k++);
        uint64_t whole = op->header_bytes + (op->is_write ? op->length : 0);

        posted -= whole < posted ? whole : posted;
    }
    return k;
}

/* The chunks in the windows of lanes to the same process that overlap a range in doubt. */
static void look_at_window(struct waits *waits, struct hp_lane *lane,
                           const struct hp_doubted *range)
{
    uint32_t unposted = first_unposted(lane);

    for (uint32_t k = lane->head; k != lane->tail; k++) {
        struct hp_op *op = ferry_hp_lane_op(lane, k);
        bool posted = (int32_t)(k - unposted) < 0;
        struct model_wait wait = {
            .flow = op->flow, .chunk = op->chunk, .in_doubt = range->request_id};

        if (!op->is_write || op->orphan || op->doubt != HP_DOUBT_NONE || op->flow == range->flow ||
            !ferry_range_overlaps(op->flow->xfer->remote_addr +
                                      ferry_hp_flow_chunk_offset(op->flow, op->chunk),
                                  op->length, range->addr, range->length))
            continue;
        if (posted && was_waiting(waits->node, &wait))
            passed(waits->node, range);
        if (!posted) {
            waits->node->model->events[MODEL_WAIT_WINDOW] += !was_waiting(waits->node, &wait);
            add_wait(waits, &wait);
        }
    }
}

/* Flows that have chunks to post, and overlap a range in doubt as a whole. */
static void look_at_flows(struct waits *waits, const uint8_t *incarnation,
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
        if (memcmp(target->peer->incarnation, incarnation, FERRY_INCARNATION_SIZE) != 0 ||
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

static void look_at_range(struct waits *waits, struct hp_transport *hp, const uint8_t *of,
                          const struct hp_doubted *range)
{
    for (struct ferry_list *l = hp->peers.next; l != &hp->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        if (memcmp(peer->incarnation, of, FERRY_INCARNATION_SIZE) != 0)
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
        const struct hp_doubts *doubts = FERRY_CONTAINER_OF(l, const struct hp_doubts, link);

        for (uint32_t i = 0; i < doubts->range_count; i++)
            look_at_range(&waits, hp, doubts->incarnation, &doubts->ranges[i]);
    }
    node->model->events[MODEL_WAIT] += waits.count > node->wait_count;
    memcpy(node->waits, waits.list, waits.count * sizeof(waits.list[0]));
    node->wait_count = waits.count;
}

/* ---- strikes ---- */

/* A WRITE that waits in the window of another lane to the same process overlaps this one. */
static bool waits_elsewhere(const struct hp_peer *peer, const struct hp_lane *lane,
                            const struct hp_op *op)
{
    for (uint32_t i = 0; i < peer->lane_count; i++) {
        struct hp_lane *other = &peer->lanes[i];

        for (uint32_t k = first_unposted(other); k != other->tail && other != lane; k++) {
            const struct hp_op *later = ferry_hp_lane_op(other, k);

            if (later->is_write && !later->orphan && later->flow != op->flow &&
                ferry_range_overlaps(later->flow->xfer->remote_addr + later->offset, later->length,
                                     op->flow->xfer->remote_addr + op->offset, op->length))
                return true;
        }
    }
    return false;
}

/* A WRITE is posted that another one waits to go over; now and then any will do. */
static bool hurts(struct model *model, const struct hp_peer *peer, struct hp_lane *lane)
{
    uint32_t unposted = first_unposted(lane);

    for (uint32_t k = lane->head; lane->state == HP_LANE_READY && k != unposted; k++) {
        const struct hp_op *op = ferry_hp_lane_op(lane, k);

        if (op->is_write && !op->orphan &&
            (waits_elsewhere(peer, lane, op) || model_chance(model, 3)))
            return true;
    }
    return false;
}

bool model_doubts_strike(struct model_node *node)
{
    struct hp_transport *hp = node->alive ? ferry_hp_of(node->transport) : NULL;

    for (struct ferry_list *l = hp == NULL ? NULL : hp->peers.next; hp != NULL && l != &hp->peers;
         l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        for (uint32_t i = 0; i < peer->lane_count; i++) {
            if (hurts(node->model, peer, &peer->lanes[i]))
                return sim_cut_fd(node->process, peer->lanes[i].io.fd);
        }
    }
    return false;
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

/* Somebody asks, or is to greet in the name of a session that ended. */
static bool somebody_sees_to_it(struct hp_transport *hp, const struct hp_lane *lane)
{
    for (struct ferry_list *l = hp->doubts.next; l != &hp->doubts; l = l->next) {
        if (FERRY_CONTAINER_OF(l, const struct hp_doubts, link)->taken)
            return true;
    }
    /* It connects anew as soon as nothing is under way on it. */
    return lane->fencing &&
           (lane->head != lane->sent || lane->tx_offset > 0 || ferry_op_inflight(&lane->tx));
}

static void check_held(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);

    for (struct ferry_list *l = hp->peers.next; l != &hp->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        for (uint32_t i = 0; i < peer->lane_count; i++) {
            const struct hp_lane *lane = &peer->lanes[i];

            if (!ferry_list_empty(&lane->held_queue) && !somebody_sees_to_it(hp, lane))
                model_fail(node->model, "S8: node %u holds a WRITE back for nothing", node->index);
        }
    }
}

void model_doubts_check_idle(struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        struct model_node *node = &model->nodes[i];

        if (node->alive)
            check_held(node);
    }
}

/* ---- for choices and counts ---- */

bool model_doubts_none(const struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        const struct model_node *node = &model->nodes[i];
        struct hp_transport *hp = node->alive ? ferry_hp_of(node->transport) : NULL;

        for (struct ferry_list *l = hp == NULL ? NULL : hp->doubts.next;
             hp != NULL && l != &hp->doubts; l = l->next) {
            if (!FERRY_CONTAINER_OF(l, const struct hp_doubts, link)->left)
                return false;
        }
    }
    return true;
}

struct model_task *model_doubts_task(struct model_node *from, const struct model_node *to)
{
    struct hp_transport *hp = ferry_hp_of(from->transport);

    for (struct ferry_list *l = hp->doubts.next; l != &hp->doubts; l = l->next) {
        const struct hp_doubts *doubts = FERRY_CONTAINER_OF(l, const struct hp_doubts, link);

        for (uint32_t i = 0; i < MODEL_TASKS_MAX && doubts->ranges[0].flow != NULL; i++) {
            struct model_task *task = &from->model->tasks[i];

            /* The range of a WRITE that ends now may outlive its flow by a moment. */
            if (task->state == MODEL_TASK_RUNNING && task->xfer.opcode == FERRY_WRITE &&
                task->to == to && task->from == from &&
                task->xfer.transport_data == doubts->ranges[0].flow)
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
