/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS between a caller's operations and those of the implementation; see tls.h. Everything runs on
 * the holder of the baton. done() of a caller's op never runs inside submit(): what could be
 * answered at once is put off to the end of the turn.
 */
#include "reactor/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

struct ferry_tls_io {
    struct ferry_reactor *reactor;
    struct ferry_io *io;
    struct ferry_tls_stream *stream;
    struct ferry_tls_handshake *handshake; /* while it lasts */
    struct ferry_op *user_rx;
    struct iovec rx_whole; /* its memory as one piece, if it has no list of them */
    const struct iovec *rx_pieces;
    uint32_t rx_piece;    /* the one that is being filled */
    uint64_t rx_piece_at; /* so far */
    uint64_t rx_total;
    struct ferry_op *user_tx;
    struct ferry_op rx; /* ours: ciphertext in */
    struct ferry_op tx; /* ours: ciphertext out */
    uint64_t tx_plain;  /* how much of user_tx the ciphertext on its way is */
    bool rx_canceled;
    bool tx_canceled;
    bool tx_begun;    /* a byte of that ciphertext left */
    bool tx_broken;   /* a record left in part: nothing can follow it */
    bool rx_broken;   /* a record did not decrypt: nothing after it can */
    bool ended;       /* the peer has ended the stream */
    int handshake_rc; /* what the handshake ends with once its last output left */
    bool handshake_over;
};

static void pump_rx(struct ferry_tls_io *tls_io);
static void step_handshake(struct ferry_tls_io *tls_io);

static bool receives(const struct ferry_op *op)
{
    return op->kind == FERRY_OP_RECV || op->kind == FERRY_OP_RECVV;
}

struct ferry_op **ferry_tls_slot(struct ferry_tls_io *tls_io, const struct ferry_op *op)
{
    if (op == &tls_io->rx || op == &tls_io->tx)
        return NULL;
    return receives(op) ? &tls_io->user_rx : &tls_io->user_tx;
}

static void put_off(struct ferry_tls_io *tls_io, struct ferry_op *op)
{
    ferry_list_push_back(&tls_io->reactor->put_off, &op->link);
}

void ferry_tls_detach(struct ferry_io *io)
{
    struct ferry_tls_io *tls_io = io->tls;

    FERRY_ASSERT(tls_io->user_rx == NULL && tls_io->user_tx == NULL);
    FERRY_ASSERT(!ferry_op_inflight(&tls_io->rx) && !ferry_op_inflight(&tls_io->tx));
    io->tls = NULL;
    ferry_tls_stream_close(tls_io->stream);
    free(tls_io);
}

const char *ferry_tls_trouble(const struct ferry_io *io)
{
    return io->tls != NULL ? ferry_tls_stream_trouble(io->tls->stream) : "";
}

/* ---- ciphertext ---- */

static void receive(struct ferry_tls_io *tls_io, ferry_op_done_fn *done)
{
    size_t room;

    tls_io->rx.kind = FERRY_OP_RECV;
    tls_io->rx.done = done;
    tls_io->rx.io = tls_io->io;
    tls_io->rx.buf = ferry_tls_stream_input(tls_io->stream, &room);
    tls_io->rx.len = room;
    tls_io->rx.min_bytes = 0;
    ferry_reactor_submit(tls_io->reactor, &tls_io->rx);
}

/* False: there is nothing to send. */
static bool transmit(struct ferry_tls_io *tls_io, ferry_op_done_fn *done)
{
    size_t len;
    const uint8_t *bytes = ferry_tls_stream_output(tls_io->stream, &len);

    if (len == 0)
        return false;
    tls_io->tx.kind = FERRY_OP_SEND;
    tls_io->tx.done = done;
    tls_io->tx.io = tls_io->io;
    tls_io->tx.buf = (void *)(uintptr_t)bytes; /* the reactor only reads from it */
    tls_io->tx.len = len;
    ferry_reactor_submit(tls_io->reactor, &tls_io->tx);
    return true;
}

/* ---- the handshake ---- */

/* Nothing of ours is in flight. Ends the op, on an io that is plain again unless we go on here. */
static void end_handshake(struct ferry_tls_io *tls_io, int64_t result)
{
    struct ferry_reactor *reactor = tls_io->reactor;
    struct ferry_op *op = tls_io->user_tx;
    struct ferry_io *io = tls_io->io;
    struct ferry_tls_handshake *handshake = tls_io->handshake;

    handshake->plain = ferry_tls_stream_plain(tls_io->stream, handshake->first);
    memcpy(handshake->trouble, ferry_tls_stream_trouble(tls_io->stream),
           sizeof(handshake->trouble));
    tls_io->handshake = NULL;
    if (result != 0 || handshake->kernel) {
        tls_io->user_tx = NULL;
        ferry_tls_detach(io);
        io->tx = op; /* the slot of a plain io */
    }
    ferry_reactor_complete(reactor, op, result);
}

static void established(struct ferry_tls_io *tls_io)
{
    enum ferry_tls_kernel kernel = ferry_tls_stream_to_kernel(tls_io->stream, tls_io->io->fd);

    tls_io->handshake->kernel = kernel == FERRY_TLS_KERNEL_YES;
    if (kernel == FERRY_TLS_KERNEL_BROKEN)
        end_handshake(tls_io, -EIO);
    else if (kernel == FERRY_TLS_KERNEL_NO && ferry_tls_stream_grow(tls_io->stream) != FERRY_OK)
        end_handshake(tls_io, -ENOMEM);
    else
        end_handshake(tls_io, 0);
}

static void on_handshake_received(struct ferry_op *rx, int64_t result)
{
    struct ferry_tls_io *tls_io = FERRY_CONTAINER_OF(rx, struct ferry_tls_io, rx);

    if (result > 0)
        ferry_tls_stream_received(tls_io->stream, (size_t)result);
    if (tls_io->tx_canceled)
        end_handshake(tls_io, -ECANCELED);
    else if (result > 0)
        step_handshake(tls_io);
    else
        end_handshake(tls_io, result == 0 ? -ECONNRESET : result);
}

static void on_handshake_sent(struct ferry_op *tx, int64_t result)
{
    struct ferry_tls_io *tls_io = FERRY_CONTAINER_OF(tx, struct ferry_tls_io, tx);

    if (result > 0)
        ferry_tls_stream_sent(tls_io->stream, (size_t)result);
    if (tls_io->tx_canceled)
        end_handshake(tls_io, -ECANCELED);
    else if (result > 0)
        step_handshake(tls_io);
    else /* an alert that cannot be sent changes nothing about why */
        end_handshake(tls_io, tls_io->handshake_over && tls_io->handshake_rc != 0
                                  ? tls_io->handshake_rc
                                  : result);
}

static void step_handshake(struct ferry_tls_io *tls_io)
{
    enum ferry_tls_result result;

    if (transmit(tls_io, on_handshake_sent))
        return;
    if (!tls_io->handshake_over) {
        result = ferry_tls_stream_handshake(tls_io->stream);
        tls_io->handshake_over = result != FERRY_TLS_WANTS;
        tls_io->handshake_rc = result == FERRY_TLS_OK ? 0 : -EPROTO;
        /* Its last message, or the alert that says why not, leaves first. */
        if (transmit(tls_io, on_handshake_sent))
            return;
    }
    if (!tls_io->handshake_over)
        receive(tls_io, on_handshake_received);
    else if (tls_io->handshake_rc != 0)
        end_handshake(tls_io, tls_io->handshake_rc);
    else
        established(tls_io);
}

void ferry_tls_submit(struct ferry_reactor *reactor, struct ferry_op *op,
                      struct ferry_tls_handshake *handshake)
{
    handshake->kernel = false;
    handshake->plain = false;
    handshake->trouble[0] = '\0';
    op->kind = FERRY_OP_HANDSHAKE;
    op->buf = handshake;
    op->len = sizeof(*handshake);
    FERRY_ASSERT(op->io->tls == NULL && op->io->rx == NULL);
    ferry_reactor_submit(reactor, op);
}

/* ---- data in ---- */

/* What the caller's RECV ends with, by what has arrived so far; false: not yet. */
static bool rx_result(struct ferry_tls_io *tls_io, enum ferry_tls_result last, int64_t *result_out)
{
    const struct ferry_op *op = tls_io->user_rx;
    uint64_t wanted = op->min_bytes > 1 ? op->min_bytes : 1;

    tls_io->rx_broken |= last == FERRY_TLS_FAILED;
    if (tls_io->rx_broken) {
        *result_out = -EPROTO;
        return true;
    }
    tls_io->ended |= last == FERRY_TLS_ENDED;
    *result_out = (int64_t)op->progress;
    if (op->progress >= wanted || tls_io->ended)
        return true;
    if (!tls_io->rx_canceled)
        return false;
    if (op->progress == 0)
        *result_out = -ECANCELED;
    return true;
}

static void end_rx(struct ferry_tls_io *tls_io, int64_t result)
{
    tls_io->rx_canceled = false;
    ferry_reactor_complete(tls_io->reactor, tls_io->user_rx, result);
}

static void on_received(struct ferry_op *rx, int64_t result)
{
    struct ferry_tls_io *tls_io = FERRY_CONTAINER_OF(rx, struct ferry_tls_io, rx);

    if (result > 0)
        ferry_tls_stream_received(tls_io->stream, (size_t)result);
    else if (result == 0)
        tls_io->ended = true; /* without a farewell: frames say themselves where they end */
    else if (result != -ECANCELED || !tls_io->rx_canceled) {
        end_rx(tls_io, result);
        return;
    }
    pump_rx(tls_io);
}

/* Decrypt into the caller's memory; end his RECV, or receive more. */
static void pump_rx(struct ferry_tls_io *tls_io)
{
    struct ferry_op *op = tls_io->user_rx;
    enum ferry_tls_result last = tls_io->rx_broken ? FERRY_TLS_FAILED : FERRY_TLS_OK;
    int64_t result;

    while (last == FERRY_TLS_OK && op->progress < tls_io->rx_total) {
        const struct iovec *piece = &tls_io->rx_pieces[tls_io->rx_piece];
        size_t got = 0;

        if (tls_io->rx_piece_at == piece->iov_len) {
            tls_io->rx_piece++;
            tls_io->rx_piece_at = 0;
            continue;
        }
        last = ferry_tls_stream_decrypt(tls_io->stream,
                                        (uint8_t *)piece->iov_base + tls_io->rx_piece_at,
                                        piece->iov_len - tls_io->rx_piece_at, &got);
        got = last == FERRY_TLS_OK ? got : 0;
        tls_io->rx_piece_at += got;
        op->progress += got;
    }
    if (rx_result(tls_io, last, &result))
        end_rx(tls_io, result);
    else
        receive(tls_io, on_received);
}

/* ---- data out ---- */

static void end_tx(struct ferry_tls_io *tls_io, int64_t result)
{
    tls_io->tx_canceled = false;
    ferry_reactor_complete(tls_io->reactor, tls_io->user_tx, result);
}

static void on_sent(struct ferry_op *tx, int64_t result)
{
    struct ferry_tls_io *tls_io = FERRY_CONTAINER_OF(tx, struct ferry_tls_io, tx);

    if (result > 0) {
        tls_io->tx_begun = true;
        ferry_tls_stream_sent(tls_io->stream, (size_t)result);
        if (!tls_io->tx_canceled && transmit(tls_io, on_sent))
            return;
        result = 0;
    }
    /* What is not sent whole ends here: the rest of a record cannot be left out. */
    if (result < 0 || tls_io->tx_canceled) {
        size_t left;

        (void)ferry_tls_stream_output(tls_io->stream, &left);
        tls_io->tx_broken |= left > 0;
    }
    /* Bytes that may have left count as sent, or a WRITE would be taken for one that was not. */
    if (result == 0 || tls_io->tx_begun)
        result = (int64_t)tls_io->tx_plain;
    end_tx(tls_io, result);
}

/* Encrypt what fits and send it. False: that failed, and is told at the end of the turn. */
static bool begin_tx(struct ferry_tls_io *tls_io)
{
    const struct ferry_op *op = tls_io->user_tx;
    struct iovec one = {.iov_base = op->buf, .iov_len = op->len};
    bool vectored = op->kind == FERRY_OP_SENDV;

    if (tls_io->tx_broken)
        return false;
    tls_io->tx_begun = false;
    tls_io->tx_plain = ferry_tls_stream_encrypt(tls_io->stream, vectored ? op->iov : &one,
                                                vectored ? op->iov_count : 1);
    if (tls_io->tx_plain > 0 && transmit(tls_io, on_sent))
        return true;
    tls_io->tx_broken = true;
    return false;
}

/* ---- reactor.c ---- */

static struct ferry_tls_io *new_tls_io(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct ferry_tls_handshake *handshake = op->buf;
    struct ferry_tls_io *tls_io = calloc(1, sizeof(*tls_io));

    if (tls_io == NULL)
        return NULL;
    if (ferry_tls_stream_open(handshake->tls, handshake->initiator, handshake->host,
                              &tls_io->stream) != FERRY_OK) {
        free(tls_io);
        return NULL;
    }
    tls_io->reactor = reactor;
    tls_io->io = op->io;
    tls_io->handshake = handshake;
    return tls_io;
}

/* The op is registered as in flight already. */
void ferry_tls_begin(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct ferry_tls_io *tls_io = op->io->tls;

    if (op->kind == FERRY_OP_HANDSHAKE) {
        tls_io = new_tls_io(reactor, op);
        if (tls_io != NULL) {
            op->io->tx = NULL;
            op->io->tls = tls_io;
            tls_io->user_tx = op;
        }
        ferry_list_push_back(&reactor->put_off, &op->link);
        return;
    }
    if (receives(op)) {
        tls_io->rx_whole = (struct iovec){.iov_base = op->buf, .iov_len = op->len};
        tls_io->rx_pieces = op->kind == FERRY_OP_RECVV ? op->iov : &tls_io->rx_whole;
        tls_io->rx_total = op->kind == FERRY_OP_RECVV ? ferry_iov_bytes(op->iov, op->iov_count)
                                                      : op->len;
        tls_io->rx_piece = 0;
        tls_io->rx_piece_at = 0;
        if (tls_io->ended || tls_io->rx_broken || ferry_tls_stream_holds_input(tls_io->stream))
            put_off(tls_io, op);
        else
            receive(tls_io, on_received);
        return;
    }
    FERRY_ASSERT(op->kind == FERRY_OP_SEND || op->kind == FERRY_OP_SENDV);
    if (!begin_tx(tls_io))
        put_off(tls_io, op);
}

void ferry_tls_cancel(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct ferry_tls_io *tls_io = op->io->tls;
    bool receiving = receives(op);

    if (receiving)
        tls_io->rx_canceled = true;
    else
        tls_io->tx_canceled = true;
    /* A handshake has one of the two in flight; an op that was put off has none and ends soon. */
    if (receiving || op->kind == FERRY_OP_HANDSHAKE)
        ferry_reactor_cancel(reactor, &tls_io->rx);
    if (!receiving)
        ferry_reactor_cancel(reactor, &tls_io->tx);
}

void ferry_tls_resume(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct ferry_tls_io *tls_io = op->io->tls;

    if (tls_io == NULL)
        ferry_reactor_complete(reactor, op, -ENOMEM); /* a handshake that could not begin */
    else if (receives(op))
        pump_rx(tls_io);
    else if (op->kind != FERRY_OP_HANDSHAKE)
        end_tx(tls_io, ferry_tls_stream_trouble(tls_io->stream)[0] != '\0' ? -EPROTO : -EPIPE);
    else if (tls_io->tx_canceled)
        end_handshake(tls_io, -ECANCELED);
    else
        step_handshake(tls_io);
}
