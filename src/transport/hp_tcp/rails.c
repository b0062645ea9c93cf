/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the health of rails means for lanes and flows: which lanes new work goes to, which rail a
 * connection takes, how work leaves a lane whose rail is down, and how that rail is tried again.
 * The judgement itself is in rail.c. Off the hot path, but for one relaxed load per request.
 *
 * Health is kept under the transport's mutex; everything else belongs to the holder of the lane's
 * baton, or is atomic.
 */
#include "base/assert.h"
#include "base/hostport.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

/* Moves of one ref from lane to lane before its flow gives up. */
#define MOVES_MAX 64u

/* A lane that waits for a probe looks again after so long at the least. */
#define LOOK_NS (10 * FERRY_NS_PER_MS)

/* ---- health ---- */

bool ferry_hp_lane_avoided(const struct hp_lane *lane)
{
    return ferry_hp_rails_matter(lane->peer) && !ferry_hp_rail_usable(lane->rail);
}

/* One line a change, and not for every change; a peer with one rail says it in its own words. */
static void say(const struct hp_lane *lane, const struct hp_rail *rail,
                const struct ferry_rail_verdict *verdict, uint64_t unsaid, const char *why)
{
    const struct hp_peer *peer = lane->peer;
    const struct ferry_hp_settings *settings = &peer->transport->settings;
    const char *source = settings->rail_count > 0 ? settings->rails[rail->local_index] : "any";

    if (!verdict->say || peer->rail_count == 1)
        return;
    if (verdict->went_down)
        ferry_warn(
            "hp_tcp",
            "rail %u is down, its work goes to the others: %s peer=%s from=%s to=%s up=%u/%u "
            "changes_not_logged=%llu",
            rail->index, why, peer->name, source, rail->endpoint->host,
            peer->rail_count - atomic_load(&peer->rails_away), peer->rail_count,
            (unsigned long long)unsaid);
    else
        ferry_info("hp_tcp", "rail %u is up again: peer=%s from=%s to=%s changes_not_logged=%llu",
                   rail->index, peer->name, source, rail->endpoint->host,
                   (unsigned long long)unsaid);
}

/* The lanes of the rail look at what they have: idle ones close, parked work goes on. */
static void tell_lanes(struct hp_peer *peer, const struct hp_rail *rail)
{
    for (uint32_t i = 0; i < peer->lane_count; i++) {
        if (peer->lanes[i].rail == rail)
            ferry_hp_worker_post_scan(peer->lanes[i].worker);
    }
}

static struct ferry_rail_verdict step(struct hp_lane *lane, struct hp_rail *rail,
                                      enum ferry_rail_event event, uint64_t *unsaid_out)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_random *random = transport->base.env->random;
    uint64_t now = ferry_reactor_now(ferry_hp_reactor(lane->worker));
    struct ferry_rail_verdict verdict;
    uint32_t draw = 0;

    if (lane->peer->rail_count > 1)
        random->fill(random, &draw, sizeof(draw));
    pthread_mutex_lock(&transport->mutex);
    verdict = ferry_rail_step(&rail->health, event, now, &transport->settings.rail_limits, draw);
    atomic_store(&rail->state, (uint32_t)rail->health.state);
    if (verdict.went_down)
        atomic_fetch_add(&lane->peer->rails_away, 1);
    if (verdict.came_back)
        atomic_fetch_sub(&lane->peer->rails_away, 1);
    *unsaid_out = rail->health.unsaid;
    pthread_mutex_unlock(&transport->mutex);
    return verdict;
}

void ferry_hp_rail_event(struct hp_lane *lane, enum ferry_rail_event event, const char *why)
{
    struct hp_rail *rail = lane->via;
    struct ferry_rail_verdict verdict;
    uint64_t unsaid;

    /* The common case, without the lock: nothing new. */
    if (event == FERRY_RAIL_CONNECTED && atomic_load(&rail->state) == FERRY_RAIL_UP)
        return;
    verdict = step(lane, rail, event, &unsaid);
    say(lane, rail, &verdict, unsaid, why);
    if (lane->peer->rail_count > 1 && (verdict.went_down || verdict.came_back))
        tell_lanes(lane->peer, rail);
}

struct hp_rail *ferry_hp_lane_rail(struct hp_lane *lane)
{
    struct hp_peer *peer = lane->peer;

    /* A question has little time: it takes a rail that is known to work, if its own is not. */
    if (lane->question.ops == 0 || atomic_load(&lane->rail->state) == FERRY_RAIL_UP)
        return lane->rail;
    for (uint32_t i = 1; i < peer->rail_count; i++) {
        struct hp_rail *rail = &peer->rails[(lane->rail->index + i) % peer->rail_count];

        if (atomic_load(&rail->state) == FERRY_RAIL_UP)
            return rail;
    }
    return lane->rail;
}

/* ---- work that leaves a lane ---- */

struct hp_lane *ferry_hp_lane_instead(struct hp_lane *lane)
{
    struct hp_peer *peer = lane->peer;
    uint32_t first = atomic_fetch_add_explicit(&peer->next_lane, 1, memory_order_relaxed);

    for (uint32_t i = 0; i < peer->lane_count; i++) {
        struct hp_lane *other = &peer->lanes[(first + i) % peer->lane_count];

        if (other->rail != lane->rail && ferry_hp_rail_usable(other->rail))
            return other;
    }
    return lane;
}

/* Given: the ref is TRAVELLING, and in no queue. */
static void travel(struct hp_ref *ref, struct hp_lane *to)
{
    ref->moves++;
    ref->parcel_next = NULL;
    ref->job.run = ferry_hp_parcel_run;
    atomic_store_explicit(&ref->lane, to, memory_order_relaxed);
    ferry_worker_post(to->worker->worker, &ref->job, false);
}

/* Others go on with the flow, and this ref waits for its rail. Never the last one. */
static bool park(struct hp_lane *lane, struct hp_ref *ref)
{
    uint32_t live = atomic_load(&ref->flow->refs_live);

    if (ref->flow->dealt && !ref->dealt_out)
        return false; /* nobody else may take its slice */
    do {
        if (live <= 1)
            return false;
    } while (!atomic_compare_exchange_weak(&ref->flow->refs_live, &live, live - 1));
    atomic_store(&ref->state, HP_REF_PARKED);
    lane->parked++;
    return true;
}

static void strand_ref(struct hp_lane *lane, struct hp_ref *ref)
{
    struct hp_lane *to;

    if (ferry_hp_ref_spent(ref)) {
        ferry_hp_ref_leave(ref);
        return;
    }
    if (atomic_load_explicit(&ref->state, memory_order_relaxed) == HP_REF_PARKED || park(lane, ref))
        return;
    to = ferry_hp_lane_instead(lane);
    if (to == lane || ref->moves >= MOVES_MAX) {
        ferry_hp_ref_give_up(ref, FERRY_ERR_PATH_DOWN, 0, "hp_tcp: no rail to the peer stays up");
        return;
    }
    ferry_list_remove(&ref->link);
    atomic_store(&ref->state, HP_REF_TRAVELLING);
    travel(ref, to);
}

static void strand_queue(struct hp_lane *lane, struct ferry_list *queue)
{
    struct ferry_list *next;

    for (struct ferry_list *l = queue->next; l != queue; l = next) {
        next = l->next;
        strand_ref(lane, FERRY_CONTAINER_OF(l, struct hp_ref, link));
    }
}

/* What waits in the window of a lane without a connection, WRITEs in doubt excepted. */
static void strand_window(struct hp_lane *lane)
{
    uint32_t kept = lane->head;

    for (uint32_t i = lane->head; i != lane->tail; i++) {
        struct hp_op *op = ferry_hp_lane_op(lane, i);

        if (op->doubt == HP_DOUBT_NONE && ferry_hp_lane_return(lane, op)) {
            lane->inflight_bytes -= op->length;
            continue;
        }
        *ferry_hp_lane_op(lane, kept++) = *op;
    }
    lane->tail = kept;
    lane->write_outstanding = false;
    for (uint32_t i = lane->head; i != lane->tail; i++)
        lane->write_outstanding |= ferry_hp_lane_op(lane, i)->is_write;
}

void ferry_hp_lane_strand(struct hp_lane *lane)
{
    if (lane->state == HP_LANE_IDLE)
        strand_window(lane);
    ferry_hp_lane_unhold(lane);
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        strand_queue(lane, &lane->queues[rank]);
}

static void unpark_queue(struct hp_lane *lane, struct ferry_list *queue)
{
    for (struct ferry_list *l = queue->next; l != queue; l = l->next) {
        struct hp_ref *ref = FERRY_CONTAINER_OF(l, struct hp_ref, link);

        if (atomic_load_explicit(&ref->state, memory_order_relaxed) != HP_REF_PARKED)
            continue;
        lane->parked--;
        atomic_fetch_add(&ref->flow->refs_live, 1);
        atomic_store(&ref->state, HP_REF_QUEUED);
    }
}

void ferry_hp_lane_unpark(struct hp_lane *lane)
{
    if (FERRY_LIKELY(lane->parked == 0))
        return;
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++)
        unpark_queue(lane, &lane->queues[rank]);
    FERRY_DASSERT(lane->parked == 0);
}

/* See to it that somebody pulls what came back. The caller has a hold. */
static void rouse(struct hp_flow *flow, struct hp_lane *lane)
{
    for (uint32_t i = 0; i < flow->ref_count; i++) {
        uint32_t state = atomic_load(&flow->refs[i].state);

        /* It will look once more before it leaves. */
        if (state == HP_REF_QUEUED || state == HP_REF_TRAVELLING)
            return;
    }
    for (uint32_t i = 0; i < flow->ref_count; i++) {
        uint32_t idle = HP_REF_IDLE;

        if (!atomic_compare_exchange_strong(&flow->refs[i].state, &idle, HP_REF_TRAVELLING))
            continue;
        atomic_fetch_add(&flow->holds, 1);
        atomic_fetch_add(&flow->refs_left, 1);
        atomic_fetch_add(&flow->refs_live, 1);
        travel(&flow->refs[i], ferry_hp_lane_instead(lane));
        return;
    }
}

bool ferry_hp_lane_return(struct hp_lane *lane, const struct hp_op *op)
{
    struct hp_transport *transport = lane->peer->transport;
    struct hp_flow *flow = op->flow;
    struct hp_return *back = ferry_pool_acquire(&transport->returns);

    if (back == NULL)
        return false;
    back->chunk = op->chunk;
    back->attempts = op->attempts;
    /* The op's hold goes with the chunk; this one is ours until we are done looking. */
    atomic_fetch_add(&flow->holds, 1);
    pthread_mutex_lock(&transport->mutex);
    back->next = flow->returns;
    flow->returns = back;
    atomic_fetch_add(&flow->returned, 1);
    pthread_mutex_unlock(&transport->mutex);
    rouse(flow, lane);
    ferry_hp_flow_drop(flow);
    return true;
}

/* ---- probes ---- */

/* Somebody has used the peer lately; else nobody needs to know whether the rail is back. */
static bool worth_a_probe(struct hp_lane *lane, uint64_t now_ns)
{
    uint32_t mark = atomic_load_explicit(&lane->peer->next_lane, memory_order_relaxed);

    if (mark != lane->probe_mark || lane->probe_mark_ns == 0) {
        lane->probe_mark = mark;
        lane->probe_mark_ns = now_ns;
    }
    return now_ns - lane->probe_mark_ns < lane->peer->transport->settings.idle_timeout_ns;
}

void ferry_hp_lane_await_probe(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);
    uint64_t now = ferry_reactor_now(reactor);
    uint64_t at = now + LOOK_NS;
    uint64_t due;

    if (ferry_timer_armed(&lane->timer) || atomic_load(&transport->closing) ||
        atomic_load(&lane->peer->retiring))
        return;
    if (!worth_a_probe(lane, now)) {
        atomic_store(&lane->rail->asleep, true);
        return;
    }
    pthread_mutex_lock(&transport->mutex);
    /* While another lane tries it, its turn ends within a pause or two. */
    due = lane->rail->health.state == FERRY_RAIL_DOWN
              ? lane->rail->health.probe_at_ns
              : now + transport->settings.rail_limits.probe_max_ns;
    pthread_mutex_unlock(&transport->mutex);
    if (ferry_reactor_arm(reactor, &lane->timer, due > at ? due : at) != FERRY_OK)
        atomic_store(&lane->rail->asleep, true);
}

void ferry_hp_lane_probe(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    uint64_t unsaid;

    if (atomic_load(&transport->closing) || atomic_load(&lane->peer->retiring) ||
        ferry_hp_rail_usable(lane->rail) || lane->question.ops > 0)
        return;
    if (!step(lane, lane->rail, FERRY_RAIL_PROBE, &unsaid).probe)
        return;
    lane->probing = true;
    ferry_hp_lane_connect(lane);
}

void ferry_hp_rails_wake(struct hp_peer *peer)
{
    for (uint32_t i = 0; i < peer->rail_count; i++) {
        if (atomic_load_explicit(&peer->rails[i].asleep, memory_order_relaxed) &&
            atomic_exchange(&peer->rails[i].asleep, false))
            ferry_hp_worker_post_scan(peer->lanes[i].worker);
    }
}
