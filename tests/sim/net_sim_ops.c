/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operations do to the simulated network: connect, accept, send, receive, files in memory, and
 * the faults that strike while they do it. One thread; no system calls.
 */
#include "sim/net_sim_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/assert.h"
#include "reactor/reactor.h"

static void fail_connect(struct sim_socket *socket, int err, uint64_t at_ns)
{
    socket->outcome = err;
    socket->outcome_at_ns = at_ns;
}

static void begin_connect(struct sim_net *net, struct sim_socket *socket, const struct ferry_op *op)
{
    memcpy(&socket->peer, op->addr, op->addr_len);
    uint64_t arrives_ns = net->now_ns + sim_hop_ns(net);
    uint64_t answer_ns = arrives_ns + sim_hop_ns(net);
    struct sim_socket *listener = sim_find_listener(net, &socket->peer, LISTENING);

    if (*sim_port_of(&socket->local) == 0 && sim_is_any(&socket->local)) {
        socket->local = socket->peer;
        *sim_port_of(&socket->local) = 0;
    }
    sim_pick_port(net, &socket->local);
    socket->kind = CONNECTING;
    bool lost = listener == NULL && sim_find_listener(net, &socket->peer, LOST_LISTENER) != NULL;
    lost |= sim_is_cut(net, &socket->local) || sim_is_cut(net, &socket->peer);
    if (lost || sim_strikes(net, SIM_FAULT_SYN_DROP)) {
        fail_connect(socket, -ETIMEDOUT, FERRY_NEVER_NS);
        return;
    }
    if (listener == NULL || listener->backlog_count == BACKLOG_MAX ||
        sim_strikes(net, SIM_FAULT_REFUSE)) {
        fail_connect(socket, -ECONNREFUSED, answer_ns);
        return;
    }
    struct conn *conn = sim_make_conn(net);
    conn->reaches_at_ns = arrives_ns;
    conn->pipe[0].last_at_ns = arrives_ns;
    conn->socket[0] = socket;
    conn->addr[0] = socket->local;
    conn->addr[1] = socket->peer;
    listener->backlog[listener->backlog_count++] = conn;
    socket->conn = conn;
    socket->side = 0;
    socket->outcome = 0;
    socket->outcome_at_ns = answer_ns;
}

static enum sim_try try_connect(struct sim_net *net, struct sim_socket *socket,
                                const struct ferry_op *op, int64_t *result_out)
{
    if (socket->kind == FRESH || socket->kind == BOUND) {
        begin_connect(net, socket, op);
        return SIM_TRY_MOVED;
    }
    FERRY_ASSERT(socket->kind == CONNECTING);
    if (socket->conn != NULL && sim_was_reset(socket->conn, 0)) {
        *result_out = -ECONNREFUSED; /* the listener was closed before it accepted */
        return SIM_TRY_DONE;
    }
    if (socket->outcome_at_ns > net->now_ns)
        return SIM_TRY_BLOCKED;
    if (socket->outcome == 0)
        socket->kind = CONNECTED;
    *result_out = socket->outcome;
    return SIM_TRY_DONE;
}

static enum sim_try try_accept(struct sim_net *net, struct sim_socket *listener,
                               int64_t *result_out)
{
    if (listener->backlog_count == 0 || listener->backlog[0]->reaches_at_ns > net->now_ns)
        return SIM_TRY_BLOCKED;
    if (sim_strikes(net, SIM_FAULT_EMFILE)) {
        *result_out = -EMFILE;
        return SIM_TRY_DONE;
    }
    struct conn *conn = listener->backlog[0];
    listener->backlog_count--;
    memmove(listener->backlog, listener->backlog + 1,
            listener->backlog_count * sizeof(listener->backlog[0]));

    struct sim_socket *socket = sim_make_socket(listener->process);
    socket->kind = CONNECTED;
    socket->conn = conn;
    socket->side = 1;
    socket->local = conn->addr[1];
    socket->peer = conn->addr[0];
    conn->socket[1] = socket;
    *result_out = socket->fd;
    return SIM_TRY_DONE;
}

/* Faults that hit a connection while it is used. */
static void maybe_break(struct sim_net *net, struct conn *conn)
{
    if (sim_strikes(net, SIM_FAULT_RESET)) {
        sim_reset_side(conn, 0, net->now_ns + sim_hop_ns(net));
        sim_reset_side(conn, 1, net->now_ns + sim_hop_ns(net));
    }
    if (sim_strikes(net, SIM_FAULT_ONE_SIDED))
        sim_cut_side(conn, (int)sim_random_below(net, 2));
    if (sim_strikes(net, SIM_FAULT_STALL))
        conn->pipe[sim_random_below(net, 2)].stalled = true;
}

/* How much of @possible one call moves. */
static uint32_t portion(struct sim_net *net, uint64_t possible, enum sim_fault fault)
{
    uint32_t bytes = possible > UINT32_MAX ? UINT32_MAX : (uint32_t)possible;

    if (bytes > 1 && sim_strikes(net, fault))
        bytes = 1 + (uint32_t)sim_random_below(net, bytes - 1);
    return bytes;
}

/* Into the one buffer, or the pieces, of a receive, behind what has arrived already. */
static uint64_t copy_in(struct sim_net *net, struct pipe *pipe, const struct ferry_op *op,
                        uint32_t bytes)
{
    uint64_t skip = op->progress;
    uint64_t got = 0;

    if (op->kind == FERRY_OP_RECV)
        return sim_pipe_read(net, pipe, (unsigned char *)op->buf + skip, bytes);
    for (uint32_t i = 0; i < op->iov_count && got < bytes; i++) {
        uint64_t len = op->iov[i].iov_len;
        uint64_t left = bytes - got;

        if (skip >= len) {
            skip -= len;
            continue;
        }
        len -= skip;
        got += sim_pipe_read(net, pipe, (unsigned char *)op->iov[i].iov_base + skip,
                             (uint32_t)(len < left ? len : left));
        skip = 0;
    }
    return got;
}

static uint64_t wanted(const struct ferry_op *op)
{
    return op->kind == FERRY_OP_RECV ? op->len : ferry_iov_bytes(op->iov, op->iov_count);
}

static enum sim_try try_recv(struct sim_net *net, struct sim_socket *socket, struct ferry_op *op,
                             int64_t *result_out)
{
    struct conn *conn = socket->conn;
    struct pipe *pipe = &conn->pipe[1 - socket->side];

    sim_settle(net, pipe);
    if (pipe->arrived > 0) {
        uint64_t left = wanted(op) - op->progress;
        uint32_t bytes = portion(net, left < pipe->arrived ? left : pipe->arrived,
                                 SIM_FAULT_SHORT_RECV);

        maybe_break(net, conn);
        op->progress += copy_in(net, pipe, op, bytes);
        *result_out = (int64_t)op->progress;
        return op->progress >= op->min_bytes ? SIM_TRY_DONE : SIM_TRY_MOVED;
    }
    if (sim_was_reset(conn, socket->side)) {
        *result_out = -ECONNRESET;
        return SIM_TRY_DONE;
    }
    if (!sim_fin_arrived(net, pipe))
        return SIM_TRY_BLOCKED;
    *result_out = (int64_t)op->progress;
    return SIM_TRY_DONE;
}

static uint64_t copy_out(struct sim_net *net, struct pipe *pipe, const struct ferry_op *op,
                         uint32_t bytes)
{
    if (op->kind == FERRY_OP_SEND)
        return sim_pipe_write(net, pipe, op->buf, bytes);

    uint64_t sent = 0;
    for (uint32_t i = 0; i < op->iov_count && sent < bytes; i++) {
        uint64_t left = bytes - sent;
        size_t len = op->iov[i].iov_len < left ? op->iov[i].iov_len : (size_t)left;

        if (len > 0)
            sent += sim_pipe_write(net, pipe, op->iov[i].iov_base, (uint32_t)len);
    }
    return sent;
}

static enum sim_try try_send(struct sim_net *net, struct sim_socket *socket,
                             const struct ferry_op *op, int64_t *result_out)
{
    struct conn *conn = socket->conn;
    int side = socket->side;
    struct pipe *pipe = &conn->pipe[side];
    uint64_t want = op->len;

    if (op->kind == FERRY_OP_SENDV) {
        want = 0;
        for (uint32_t i = 0; i < op->iov_count; i++)
            want += op->iov[i].iov_len;
    }
    if (sim_was_reset(conn, side) || pipe->fin_sent) {
        *result_out = pipe->fin_sent ? -EPIPE : -ECONNRESET;
        return SIM_TRY_DONE;
    }
    uint32_t room = net->options.buffer_bytes - pipe->used;
    if (conn->closed[1 - side] && !conn->pipe[0].stalled && !conn->pipe[1].stalled) {
        /* Goes out, and what comes back is a reset. */
        sim_reset_side(conn, side, net->now_ns + 2 * sim_hop_ns(net));
        *result_out = want < room ? (int64_t)want : (int64_t)room;
        return *result_out > 0 ? SIM_TRY_DONE : SIM_TRY_BLOCKED;
    }
    if (room == 0)
        return SIM_TRY_BLOCKED;
    maybe_break(net, conn);
    *result_out = (int64_t)copy_out(net, pipe, op,
                                    portion(net, want < room ? want : room, SIM_FAULT_SHORT_SEND));
    return SIM_TRY_DONE;
}

static enum sim_try try_file(struct sim_net *net, struct sim_socket *file, struct ferry_op *op,
                             int64_t *result_out)
{
    uint64_t limit = op->kind == FERRY_OP_READ ? file->size : file->size_max;
    uint64_t room = op->offset < limit ? limit - op->offset : 0;
    uint64_t possible = op->len < room ? op->len : room;

    if (op->kind == FERRY_OP_WRITE && possible == 0) {
        *result_out = -ENOSPC;
        return SIM_TRY_DONE;
    }
    bool reads = op->kind == FERRY_OP_READ;
    uint32_t bytes = portion(net, possible, reads ? SIM_FAULT_SHORT_RECV : SIM_FAULT_SHORT_SEND);
    if (reads && bytes > 0)
        memcpy(op->buf, file->content + op->offset, bytes);
    if (!reads) {
        memcpy(file->content + op->offset, op->buf, bytes);
        if (op->offset + bytes > file->size)
            file->size = (uint32_t)(op->offset + bytes);
    }
    *result_out = bytes;
    return SIM_TRY_DONE;
}

enum sim_try sim_try_op(struct sim_process *process, struct ferry_op *op, int64_t *result_out)
{
    struct sim_net *net = process->owner;
    bool is_file = op->kind == FERRY_OP_READ || op->kind == FERRY_OP_WRITE;
    struct sim_socket *socket = sim_socket_of(process, is_file ? op->fd : op->io->fd);

    FERRY_ASSERT(socket != NULL);
    if (!process->alive) {
        *result_out = -ECONNRESET;
        return SIM_TRY_DONE;
    }
    if (is_file)
        return try_file(net, socket, op, result_out);
    if (op->kind == FERRY_OP_CONNECT)
        return try_connect(net, socket, op, result_out);
    if (op->kind == FERRY_OP_ACCEPT) {
        FERRY_ASSERT(socket->kind == LISTENING);
        return try_accept(net, socket, result_out);
    }
    if (socket->kind != CONNECTED) {
        *result_out = -ENOTCONN;
        return SIM_TRY_DONE;
    }
    return op->kind == FERRY_OP_RECV || op->kind == FERRY_OP_RECVV
               ? try_recv(net, socket, op, result_out)
               : try_send(net, socket, op, result_out);
}

bool sim_op_ready(struct sim_process *process, const struct ferry_op *op)
{
    struct sim_net *net = process->owner;
    bool is_file = op->kind == FERRY_OP_READ || op->kind == FERRY_OP_WRITE;
    struct sim_socket *socket = sim_socket_of(process, is_file ? op->fd : op->io->fd);

    if (is_file || !process->alive || socket == NULL)
        return true;
    switch (op->kind) {
    case FERRY_OP_CONNECT:
        return socket->kind != CONNECTING || socket->outcome_at_ns <= net->now_ns ||
               (socket->conn != NULL && sim_was_reset(socket->conn, 0));
    case FERRY_OP_ACCEPT:
        return socket->backlog_count > 0 && socket->backlog[0]->reaches_at_ns <= net->now_ns;
    default:
        break;
    }
    if (socket->kind != CONNECTED || sim_was_reset(socket->conn, socket->side))
        return true;
    if (op->kind == FERRY_OP_RECV || op->kind == FERRY_OP_RECVV) {
        struct pipe *pipe = &socket->conn->pipe[1 - socket->side];

        sim_settle(net, pipe);
        return pipe->arrived > 0 || sim_fin_arrived(net, pipe);
    }
    return socket->conn->pipe[socket->side].used < net->options.buffer_bytes ||
           socket->conn->pipe[socket->side].fin_sent;
}
