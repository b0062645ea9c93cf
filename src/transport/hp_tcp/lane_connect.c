/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a lane's connection comes about: look the host up, try its addresses in turn, greet a ferry
 * peer. Each address gets connect_timeout_ms. What failed is kept as text with the peer, address by
 * address, for whoever asks why. Runs on the worker; the look-up runs elsewhere and only wakes it.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/hostport.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

/* The longest that one probe of a rail takes. */
#define PROBE_NS (1500 * FERRY_NS_PER_MS)

static void try_next_address(struct hp_lane *lane);

/* ---- reasons ---- */

static void note_trouble(struct hp_lane *lane, int err)
{
    struct ferry_hostport place;
    char where[FERRY_HOSTPORT_SIZE] = "?";
    size_t len = strlen(lane->attempts_text);

    if (lane->addr_next > 0 &&
        ferry_hostport_of_sockaddr((const struct sockaddr *)&lane->addrs[lane->addr_next - 1].addr,
                                   &place) == FERRY_OK)
        ferry_hostport_format(&place, where, sizeof(where));
    snprintf(lane->attempts_text + len, sizeof(lane->attempts_text) - len, "%s%s: %s",
             len > 0 ? "; " : "", where, strerror(err));
}

/*
 * Nothing answered. Nobody listens there any more, or cannot be found: the description may be out
 * of date, so the answer is "stale" and the runtime reads it again before it gives up.
 */
static void give_up(struct hp_lane *lane, int err)
{
    enum ferry_status status = FERRY_ERR_PATH_DOWN;
    const char *where = "hp_tcp: cannot connect";

    ferry_hp_peer_set_trouble(lane->peer, "cannot connect to %s (%s)", lane->via->endpoint->host,
                              lane->attempts_text);
    if (err == ECONNREFUSED || err == EHOSTUNREACH || err == ENETUNREACH || err == ENXIO) {
        status = FERRY_ERR_PEER_GONE;
        where = "hp_tcp: nobody answers at the published address";
    } else if (err == EMFILE || err == ENFILE) {
        status = FERRY_ERR_LIMIT;
        where = "hp_tcp: no descriptor is left (raise the open-file limit, ulimit -n)";
    } else if (err == ENOMEM || err == ENOBUFS) {
        status = FERRY_ERR_NO_MEMORY;
        where = "hp_tcp: no memory for a connection";
    } else if (err == ETIMEDOUT) {
        status = FERRY_ERR_TIMED_OUT;
        where = "hp_tcp: connecting took longer than connect_timeout_ms";
    }
    atomic_fetch_add_explicit(&lane->stats.failures, 1, memory_order_relaxed);
    if (status != FERRY_ERR_LIMIT && status != FERRY_ERR_NO_MEMORY)
        ferry_hp_rail_event(lane, FERRY_RAIL_FAILED, where);
    /* With another rail up this is no failure of anybody's request. */
    lane->rail_broke = ferry_hp_lane_avoided(lane);
    lane->reuse_after_close = lane->rail_broke;
    lane->keep_queue = lane->rail_broke;
    lane->ask_again = lane->rail_broke && ferry_hp_question_again(lane);
    ferry_hp_lane_close(lane, status, err, where);
}

static void drop_socket(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;

    if (lane->io.fd < 0)
        return;
    ferry_hp_drop_socket(ferry_hp_reactor(lane->worker), transport->net, &lane->io);
}

void ferry_hp_lane_attempt_failed(struct hp_lane *lane, int err)
{
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);

    if (lane->attempt_error == 0)
        lane->attempt_error = err;
    if (lane->state == HP_LANE_SECURING) {
        ferry_hp_lane_secure_timed_out(lane);
        return;
    }
    if (lane->state == HP_LANE_GREETING) {
        ferry_hp_peer_set_trouble(lane->peer, "%s:%u accepted a connection and does not greet",
                                  lane->via->endpoint->host, lane->via->endpoint->port);
        ferry_hp_lane_close(lane, FERRY_ERR_TIMED_OUT, ETIMEDOUT,
                            "hp_tcp: the peer did not greet within progress_timeout_ms");
        return;
    }
    if (lane->state != HP_LANE_CONNECTING) {
        note_trouble(lane, lane->attempt_error);
        give_up(lane, lane->attempt_error);
        return;
    }
    if (ferry_op_inflight(&lane->tx)) {
        /* done() comes back here; until then the descriptor must live. */
        ferry_reactor_cancel(reactor, &lane->tx);
        return;
    }
    note_trouble(lane, lane->attempt_error);
    drop_socket(lane);
    if (lane->attempt_error == EMFILE || lane->attempt_error == ENFILE ||
        lane->addr_next == lane->addr_count)
        give_up(lane, lane->attempt_error);
    else
        try_next_address(lane);
}

/* ---- connected ---- */

static void on_plain_sent(struct ferry_op *tx, int64_t result)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(tx, struct hp_lane, tx);
    struct hp_worker *worker = lane->worker;

    if (lane->state == HP_LANE_GREETING || lane->state == HP_LANE_ASKING ||
        lane->state == HP_LANE_READY) {
        if (result > 0 && (uint64_t)result < tx->len) {
            tx->buf = (uint8_t *)tx->buf + result;
            tx->len -= (uint64_t)result;
            ferry_reactor_submit(ferry_hp_reactor(worker), tx);
        } else if (result <= 0) {
            ferry_hp_lane_broke(lane, (int32_t)-result, "hp_tcp: the greeting could not be sent");
        } else {
            ferry_hp_lane_send_proof(lane);
        }
    }
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}

void ferry_hp_lane_send_plain(struct hp_lane *lane, uint8_t *buf, size_t len)
{
    FERRY_ASSERT(!ferry_op_inflight(&lane->tx));
    lane->tx.kind = FERRY_OP_SEND;
    lane->tx.done = on_plain_sent;
    lane->tx.io = &lane->io;
    lane->tx.buf = buf;
    lane->tx.len = len;
    ferry_reactor_submit(ferry_hp_reactor(lane->worker), &lane->tx);
}

/*
 * The oldest request that may be asked about: what is in doubt stands in the window in the order of
 * its ids. Everything older has been answered, or given up as unknown.
 */
static uint64_t low_water(struct hp_lane *lane)
{
    for (uint32_t i = lane->head; i != lane->tail; i++) {
        const struct hp_op *op = ferry_hp_lane_op(lane, i);

        if (op->doubt != HP_DOUBT_NONE)
            return op->request_id;
    }
    return atomic_load_explicit(&lane->peer->transport->next_request_id, memory_order_relaxed);
}

bool ferry_hp_lane_await(struct hp_lane *lane, uint64_t timeout_ns)
{
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);
    uint64_t rail_timeout_ms = lane->peer->transport->settings.rail_timeout_ms;
    uint64_t now = ferry_reactor_now(reactor);
    uint64_t due = ferry_deadline_ns(now, rail_timeout_ms * FERRY_NS_PER_MS);

    lane->greet_until_ns = ferry_deadline_ns(now, timeout_ns);
    if (lane->peer->rail_count == 1 || due > lane->greet_until_ns)
        due = lane->greet_until_ns;
    if (ferry_reactor_arm(reactor, &lane->timer, due) == FERRY_OK)
        return true;
    ferry_hp_lane_close(lane, FERRY_ERR_NO_MEMORY, 0, "hp_tcp: no memory for a timer");
    return false;
}

void ferry_hp_lane_greet(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_frame frame = {
        .type = FERRY_FRAME_HELLO,
        .hello = {.lane_index = lane->index,
                  .lane_count = lane->peer->lane_count,
                  .features = HP_FEATURES,
                  .low_water_request_id = low_water(lane),
                  .max_transfer_bytes = transport->settings.max_transfer_bytes},
    };

    if (!ferry_hp_question_name(lane, &frame.hello.predecessor_session_id)) {
        ferry_hp_lane_close(lane, FERRY_ERR_NO_MEMORY, 0, "hp_tcp: no memory for a connection");
        return;
    }
    if (transport->settings.checksum)
        frame.hello.features |= FERRY_FEATURE_SUMS_DUE;
    if (ferry_access_auth(transport->base.env->access) != NULL)
        frame.hello.features |= FERRY_FEATURE_AUTH;
    memcpy(frame.hello.incarnation, transport->incarnation, FERRY_INCARNATION_SIZE);
    transport->base.env->random->fill(transport->base.env->random, frame.hello.nonce,
                                      sizeof(frame.hello.nonce));
    lane->hello_bytes = (uint32_t)ferry_frame_encode(lane->hello, sizeof(lane->hello), &frame);
    FERRY_ASSERT(lane->hello_bytes > 0);
    ferry_hp_lane_access_begin(lane);
    ferry_hp_lane_advance(lane, HP_LANE_GREETING);
    lane->question.tries++;
    if (ferry_hp_lane_await(lane, transport->settings.progress_timeout_ns))
        ferry_hp_lane_send_plain(lane, lane->hello, lane->hello_bytes);
}

void ferry_hp_lane_established(struct hp_lane *lane)
{
    ferry_hp_lane_advance(lane, HP_LANE_READY);
    if (lane->peer->speaks_ferry)
        ferry_hp_lane_renumber(lane);
    lane->barren++;
    lane->path_strikes = 0;
    lane->probing = false;
    ferry_hp_rail_event(lane, FERRY_RAIL_CONNECTED, "connected");
    lane->progress_ns = ferry_reactor_now(ferry_hp_reactor(lane->worker));
    atomic_fetch_add_explicit(&lane->stats.connects, 1, memory_order_relaxed);
    ferry_debug("hp_tcp", "lane ready: peer=%s host=%s port=%u lane=%u rail=%u frames=%s",
                lane->peer->name, lane->via->endpoint->host, lane->via->endpoint->port, lane->index,
                lane->via->index, lane->peer->speaks_ferry ? "ferry" : "v1");
}

/*
 * A v1 server gives a connection up on which nothing is said for a while, perhaps just when the
 * first request is on its way. So it is not kept for later if nothing is left to say on it now.
 */
static void connected_v1(struct hp_lane *lane)
{
    ferry_hp_lane_prune(lane);
    if (ferry_hp_lane_has_work(lane)) {
        ferry_hp_lane_established(lane);
        return;
    }
    ferry_hp_rail_event(lane, FERRY_RAIL_CONNECTED, "connected");
    lane->keep_queue = true;
    ferry_hp_lane_close(lane, FERRY_ERR_PATH_DOWN, 0, "hp_tcp: nothing is left to ask");
}

static void on_connected(struct ferry_op *tx, int64_t result)
{
    struct hp_lane *lane = FERRY_CONTAINER_OF(tx, struct hp_lane, tx);
    struct hp_worker *worker = lane->worker;

    if (lane->state == HP_LANE_CONNECTING) {
        if (lane->attempt_error != 0 || result < 0)
            ferry_hp_lane_attempt_failed(lane, result < 0 ? (int)-result : ETIMEDOUT);
        else if (lane->peer->speaks_ferry)
            ferry_hp_lane_secure(lane);
        else
            connected_v1(lane);
    }
    ferry_hp_lane_mark_dirty(lane);
    ferry_hp_worker_flush(worker);
}

/* A socket that leaves from the lane's rail; 0 or an errno. */
static int open_socket(struct hp_lane *lane, int family, int *fd_out)
{
    struct ferry_net *net = lane->peer->transport->net;
    const struct ferry_socket_address *source = &lane->via->source;
    enum ferry_status status = ferry_net_open(net, family, fd_out);
    int err = 0;

    if (status != FERRY_OK)
        return status == FERRY_ERR_LIMIT ? EMFILE : ENOBUFS;
    if (ferry_net_set_nodelay(net, *fd_out) != FERRY_OK ||
        (lane->peer->rail_count > 1 &&
         ferry_net_watch_path(net, *fd_out, lane->peer->transport->settings.rail_timeout_ms) !=
             FERRY_OK))
        err = ENOBUFS;
    else if (source->len > 0 && ferry_net_bind(net, *fd_out, (const struct sockaddr *)&source->addr,
                                               source->len) != FERRY_OK)
        err = EADDRNOTAVAIL; /* the rail's address has gone from this host */
    if (err != 0)
        ferry_net_close(net, *fd_out, false);
    return err;
}

/*
 * How long an address may take. The system asks again after one second, three and seven; a probe
 * asks anew instead, so that a rail that is back is found soon.
 */
static uint64_t patience_ns(const struct hp_lane *lane)
{
    uint64_t limit = lane->peer->transport->settings.connect_timeout_ns;

    return lane->probing && limit > PROBE_NS ? PROBE_NS : limit;
}

static void try_next_address(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);
    const struct ferry_socket_address *to = &lane->addrs[lane->addr_next++];
    int fd = -1;
    int err;

    ferry_hp_lane_advance(lane, HP_LANE_CONNECTING);
    lane->attempt_error = 0;
    err = open_socket(lane, to->addr.ss_family, &fd);
    if (err != 0) {
        ferry_hp_lane_attempt_failed(lane, err);
        return;
    }
    if (ferry_reactor_attach(reactor, &lane->io, fd) != FERRY_OK) {
        ferry_net_close(transport->net, fd, false);
        lane->io.fd = -1;
        ferry_hp_lane_attempt_failed(lane, ENOMEM);
        return;
    }
    if (ferry_reactor_arm(reactor, &lane->timer,
                          ferry_deadline_ns(ferry_reactor_now(reactor), patience_ns(lane))) !=
        FERRY_OK) {
        ferry_hp_lane_attempt_failed(lane, ENOMEM);
        return;
    }
    lane->tx.kind = FERRY_OP_CONNECT;
    lane->tx.done = on_connected;
    lane->tx.io = &lane->io;
    lane->tx.addr = (const struct sockaddr *)&to->addr;
    lane->tx.addr_len = to->len;
    ferry_reactor_submit(reactor, &lane->tx);
}

/* From a rail's address only those of its family can be reached. */
static void try_addresses(struct hp_lane *lane)
{
    const struct ferry_socket_address *source = &lane->via->source;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < lane->addr_count; i++) {
        if (source->len == 0 || source->addr.ss_family == lane->addrs[i].addr.ss_family)
            lane->addrs[kept++] = lane->addrs[i];
    }
    lane->addr_count = kept;
    if (kept > 0) {
        try_next_address(lane);
        return;
    }
    snprintf(lane->attempts_text, sizeof(lane->attempts_text),
             "it has no address of the family of this rail");
    ferry_hp_lane_advance(lane, HP_LANE_CONNECTING);
    give_up(lane, ENETUNREACH);
}

/* ---- look-up ---- */

/* Polled by the scan that the resolver's wake-up causes. */
void ferry_hp_lane_poll_lookup(struct hp_lane *lane)
{
    struct ferry_resolution resolution;

    if (lane->lookup == NULL || !ferry_lookup_poll(lane->lookup, &resolution))
        return;
    ferry_lookup_release(lane->lookup);
    lane->lookup = NULL;
    if (lane->state != HP_LANE_RESOLVING)
        return;
    if (resolution.count == 0) {
        snprintf(lane->attempts_text, sizeof(lane->attempts_text), "%s", resolution.reason);
        give_up(lane, ENXIO);
        return;
    }
    memcpy(lane->addrs, resolution.addrs, resolution.count * sizeof(resolution.addrs[0]));
    lane->addr_count = resolution.count;
    try_addresses(lane);
}

static void look_up(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_reactor *reactor = ferry_hp_reactor(lane->worker);

    ferry_hp_lane_advance(lane, HP_LANE_RESOLVING);
    if (transport->resolver == NULL ||
        ferry_resolver_lookup(transport->resolver, lane->via->endpoint->host,
                              lane->via->endpoint->port, &lane->lookup) != FERRY_OK) {
        snprintf(lane->attempts_text, sizeof(lane->attempts_text), "the name cannot be looked up");
        give_up(lane, ENOMEM);
        return;
    }
    if (ferry_reactor_arm(reactor, &lane->timer,
                          ferry_deadline_ns(ferry_reactor_now(reactor),
                                            transport->settings.connect_timeout_ns)) != FERRY_OK)
        give_up(lane, ENOMEM);
    else
        ferry_hp_lane_poll_lookup(lane);
}

void ferry_hp_lane_connect(struct hp_lane *lane)
{
    struct hp_transport *transport = lane->peer->transport;
    struct ferry_hostport place;

    ferry_hp_live_add(transport);
    lane->via = ferry_hp_lane_rail(lane);
    lane->rail_broke = false;
    lane->window_ops = transport->settings.window_ops;
    lane->window_bytes = transport->settings.window_bytes;
    lane->attempts_text[0] = '\0';
    lane->addr_next = 0;
    lane->addr_count = 0;
    if (ferry_host_parse(lane->via->endpoint->host, &place) != FERRY_OK ||
        place.kind == FERRY_HOST_NAME) {
        look_up(lane);
        return;
    }
    place.port = lane->via->endpoint->port;
    if (ferry_hostport_sockaddr(&place, &lane->addrs[0].addr, &lane->addrs[0].len) != FERRY_OK) {
        ferry_hp_lane_advance(lane, HP_LANE_CONNECTING);
        snprintf(lane->attempts_text, sizeof(lane->attempts_text), "no such interface");
        give_up(lane, ENXIO);
        return;
    }
    lane->addr_count = 1;
    try_addresses(lane);
}
