/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: the life of one served connection, from accept to the retirement of its last callback.
 * The number of sessions is bounded by max_connections. A session that only idles costs nothing and
 * is never evicted, since its client may just have sent a WRITE; one that stalls in the middle of a
 * header, a body or an answer is closed after progress_timeout_ms.
 */
#include "transport/hp_tcp/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"

/* After an error answer: how much input is thrown away, and for how long, before the close. */
#define LINGER_BYTES_MAX  (64ull << 20)
#define LINGER_BYTES_GATE (64ull << 10) /* of a peer that was not let in */
#define LINGER_NS         FERRY_NS_PER_S

struct hp_session *ferry_hp_session_of_link(struct ferry_list *link)
{
    return FERRY_CONTAINER_OF(link, struct hp_session, link);
}

static void release_leases(struct hp_session *session)
{
    for (uint32_t i = session->head; i != session->tail; i++) {
        ferry_lease_release(&ferry_hp_session_answer(session, i)->lease);
        ferry_hp_session_list_sent(session, ferry_hp_session_answer(session, i));
        free(ferry_hp_session_answer(session, i)->own);
    }
    session->head = session->tail;
    if (session->incoming.active) {
        ferry_lease_release(&session->incoming.lease);
        ferry_hp_session_list_landed(session, &session->incoming);
    }
    session->incoming.active = false;
}

/* Both directions have retired: nothing of this connection can touch registered memory any more. */
static void session_closed(struct hp_session *session)
{
    struct hp_worker *worker = session->worker;
    struct hp_transport *transport = worker->transport;

    ferry_reactor_disarm(ferry_hp_reactor(worker), &session->timer);
    ferry_hp_drop_socket(ferry_hp_reactor(worker), transport->net, &session->io);
    release_leases(session);
    /* Only now may a successor be told what was applied: no byte of this session lands any more. */
    if (ferry_hp_answers_end(&transport->answers, session->record, &session->applied,
                             ferry_now_ns(transport->base.env->clock)))
        ferry_hp_scan_all(transport);
    ferry_list_remove(&session->link);
    ferry_hp_session_pending_remove(session);
    ferry_worker_add_duty(worker->worker, -1);
    free(session->ranges);
    free(session);
    atomic_fetch_sub(&transport->session_count, 1);
    ferry_hp_live_drop(transport);
}

void ferry_hp_session_abort(struct hp_session *session, const char *why)
{
    struct ferry_reactor *reactor = ferry_hp_reactor(session->worker);

    if (session->state == HP_SESSION_CLOSING)
        return;
    ferry_debug("hp_tcp", "session closed: %s fd=%d", why, session->io.fd);
    session->state = HP_SESSION_CLOSING;
    if (ferry_op_inflight(&session->rx))
        ferry_reactor_cancel(reactor, &session->rx);
    if (ferry_op_inflight(&session->tx))
        ferry_reactor_cancel(reactor, &session->tx);
}

void ferry_hp_session_finish(struct hp_session *session)
{
    if (session->state == HP_SESSION_OPEN)
        session->state = HP_SESSION_FLUSHING;
}

/*
 * Closing a socket with unread input makes the kernel send a reset, which may overtake the answer.
 * So the sending side is closed first, and input is thrown away for a moment.
 */
static void linger(struct hp_session *session)
{
    if (session->ended) {
        ferry_hp_session_abort(session, "hp_tcp: the peer has finished");
        return;
    }
    session->state = HP_SESSION_LINGERING;
    session->linger_left = ferry_hp_session_guarded(session) ? LINGER_BYTES_GATE : LINGER_BYTES_MAX;
    session->progress_ns = ferry_reactor_now(ferry_hp_reactor(session->worker));
    session->request_ns = session->progress_ns;
    ferry_net_shutdown(session->worker->transport->net, session->io.fd, SHUT_WR);
}

/* ---- time ---- */

static bool busy(const struct hp_session *session)
{
    return session->codec == HP_CODEC_UNKNOWN || session->incoming.active ||
           session->head != session->tail || session->stage_begin != session->stage_end ||
           session->fencing || session->state != HP_SESSION_OPEN;
}

static uint64_t due_ns(const struct hp_session *session)
{
    const struct ferry_hp_settings *settings = &session->worker->transport->settings;
    uint64_t due = FERRY_NEVER_NS;
    uint64_t total;

    if (session->state == HP_SESSION_LINGERING)
        return ferry_deadline_ns(session->request_ns, LINGER_NS);
    if (busy(session)) {
        due = ferry_deadline_ns(session->progress_ns, settings->progress_timeout_ns);
        total = ferry_deadline_ns(session->request_ns, settings->total_timeout_ns);
        if ((session->incoming.active || session->head != session->tail) && total < due)
            due = total;
    }
    total = ferry_hp_session_gate_due_ns(session);
    return total < due ? total : due;
}

/* As for lanes: armed anew only when something is due sooner than the timer would fire. */
static void touch_timer(struct hp_session *session)
{
    uint64_t due = due_ns(session);

    if (due == FERRY_NEVER_NS ||
        (ferry_timer_armed(&session->timer) && session->timer.deadline_ns <= due))
        return;
    if (ferry_reactor_arm(ferry_hp_reactor(session->worker), &session->timer, due) != FERRY_OK)
        ferry_hp_session_abort(session, "hp_tcp: no memory for a timer");
}

static void on_timer(struct ferry_timer *timer)
{
    struct hp_session *session = FERRY_CONTAINER_OF(timer, struct hp_session, timer);
    uint64_t now = ferry_reactor_now(ferry_hp_reactor(session->worker));
    uint64_t partial = ferry_op_inflight(&session->rx) ? session->rx.progress : 0;

    if (partial > session->rx_progress_seen)
        session->progress_ns = now;
    session->rx_progress_seen = partial;
    if (session->state == HP_SESSION_OPEN && ferry_hp_session_gate_due_ns(session) <= now)
        ferry_hp_session_note(session, FERRY_REFUSAL_LATE, "");
    if (session->state != HP_SESSION_CLOSING && due_ns(session) <= now)
        ferry_hp_session_abort(session, "hp_tcp: no progress within progress_timeout_ms");
    ferry_hp_session_pump(session);
}

void ferry_hp_session_pump(struct hp_session *session)
{
    if (session->securing && session->state == HP_SESSION_OPEN) {
        touch_timer(session);
        return;
    }
    if (session->state == HP_SESSION_OPEN || session->state == HP_SESSION_FLUSHING)
        ferry_hp_session_send(session);
    if (session->state == HP_SESSION_FLUSHING && session->head == session->tail &&
        !ferry_op_inflight(&session->tx))
        linger(session);
    if (session->state == HP_SESSION_OPEN || session->state == HP_SESSION_LINGERING)
        ferry_hp_session_receive(session);
    if (session->state != HP_SESSION_CLOSING)
        touch_timer(session);
    if (session->state == HP_SESSION_CLOSING && !ferry_op_inflight(&session->rx) &&
        !ferry_op_inflight(&session->tx))
        session_closed(session);
}

/* A range is being unregistered: a session that still touches it is closed. So is a predecessor. */
void ferry_hp_session_scan(struct hp_session *session)
{
    bool revoked = session->incoming.active && ferry_lease_held(&session->incoming.lease) &&
                   ferry_lease_revoked(&session->incoming.lease);

    for (uint32_t i = session->head; i != session->tail && !revoked; i++) {
        struct hp_answer *answer = ferry_hp_session_answer(session, i);

        revoked = (ferry_lease_held(&answer->lease) && ferry_lease_revoked(&answer->lease)) ||
                  ferry_hp_session_list_revoked(session, answer);
    }
    revoked = revoked || ferry_hp_session_body_revoked(session);
    if (revoked)
        ferry_hp_session_abort(session, "hp_tcp: its memory was unregistered");
    if (session->record != NULL && atomic_load(&session->record->doomed))
        ferry_hp_session_abort(session, "hp_tcp: a successor has taken its place");
    if (session->fencing && session->state == HP_SESSION_OPEN)
        ferry_hp_session_fenced(session);
    ferry_hp_session_pump(session);
}

/* ---- beginning ---- */

static void start(struct ferry_worker *base, struct ferry_job *job)
{
    struct hp_session *session = FERRY_CONTAINER_OF(job, struct hp_session, job);
    struct hp_worker *worker = session->worker;
    struct hp_transport *transport = worker->transport;
    int fd = session->io.fd;

    session->io.fd = -1;
    if (atomic_load(&transport->closing) ||
        ferry_reactor_attach(ferry_hp_reactor(worker), &session->io, fd) != FERRY_OK) {
        ferry_net_close(transport->net, fd, false);
        free(session);
        atomic_fetch_sub(&transport->session_count, 1);
        ferry_hp_live_drop(transport);
        return;
    }
    ferry_worker_add_duty(base, 1);
    ferry_list_push_back(&worker->sessions, &session->link);
    atomic_fetch_add_explicit(&worker->sessions_opened, 1, memory_order_relaxed);
    session->progress_ns = ferry_reactor_now(ferry_hp_reactor(worker));
    session->request_ns = session->progress_ns;
    session->accepted_ns = session->progress_ns;
    ferry_hp_session_pending_add(session);
    ferry_hp_session_secure(session);
    ferry_hp_session_pump(session);
}

void ferry_hp_session_accept(struct hp_transport *transport, int fd)
{
    FERRY_AUTO_FREE struct hp_session *session = NULL;
    uint32_t index = atomic_fetch_add_explicit(&transport->next_session_worker, 1,
                                               memory_order_relaxed);
    struct hp_worker *worker = &transport->workers[index % transport->worker_count];
    struct hp_session *handed;

    if (atomic_fetch_add(&transport->session_count, 1) >= transport->settings.max_connections) {
        if (!atomic_exchange(&transport->full_said, true))
            ferry_warn("hp_tcp", "connections are refused: max_connections=%u are open",
                       transport->settings.max_connections);
    } else if (ferry_net_set_nodelay(transport->net, fd) == FERRY_OK)
        session = malloc(sizeof(*session));
    if (session == NULL) {
        atomic_fetch_add_explicit(&worker->sessions_refused, 1, memory_order_relaxed);
        atomic_fetch_sub(&transport->session_count, 1);
        ferry_net_close(transport->net, fd, false);
        return;
    }
    atomic_store_explicit(&transport->full_said, false, memory_order_relaxed);
    /* The staging buffer at the end needs no zeroes, and is not touched before it is used. */
    memset(session, 0, offsetof(struct hp_session, answers));
    session->worker = worker;
    session->io.fd = fd;
    session->timer.fire = on_timer;
    session->job.run = start;
    ferry_list_init(&session->link);
    ferry_list_init(&session->pending_link);
    ferry_hp_live_add(transport);
    handed = ferry_take_ptr(&session);
    ferry_worker_post(worker->worker, &handed->job, false);
}
