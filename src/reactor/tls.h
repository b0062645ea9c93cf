/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS under the reactor's contract. A HANDSHAKE operation on a connected io ends in one of three
 * ways; after it the io is used as before, with the same operations:
 *
 *   the kernel encrypts     operations go to the implementation, as on a plain connection
 *   OpenSSL encrypts here   RECV, SEND and SENDV pass through this file
 *   it failed               the io is plain: what the peer still sends can be read and thrown away
 *
 * Through OpenSSL an operation of the caller is out exactly as long as at most one of ours is, in
 * the same direction. So cancelling, closing and the order of callbacks are what they are on a
 * plain connection; a SEND may be shorter (64 KiB), and one that was cancelled or failed half-way
 * says that its bytes were sent, since part of them may have been.
 *
 * A plain io costs one comparison per submit and completion. Holder of the baton only.
 */
#ifndef FERRY_REACTOR_TLS_H
#define FERRY_REACTOR_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "access/tls_stream.h"
#include "reactor/reactor.h"

/* In the caller's memory from submit to done(). */
struct ferry_tls_handshake {
    struct ferry_tls *tls;
    bool initiator;
    const char *host; /* for an initiator: whom the peer's certificate must name */
    /* result */
    bool kernel;                          /* the kernel encrypts */
    bool plain;                           /* the peer began with something else than TLS: */
    uint8_t first[4];                     /* this */
    char trouble[FERRY_TLS_TROUBLE_SIZE]; /* why it failed; "" if the connection broke */
};

/*
 * Submit @op as a HANDSHAKE: done, io are set; nothing else of the io may be in flight. It uses the
 * sending side's slot. result: 0; -EPROTO with trouble in @handshake; -ENOMEM; -ECONNRESET (the
 * peer closed in the middle of it) and other errors of the socket; -ECANCELED.
 */
void ferry_tls_submit(struct ferry_reactor *reactor, struct ferry_op *op,
                      struct ferry_tls_handshake *handshake);

/* Why a later RECV or SEND on the io ended with -EPROTO; "" if it did not, or is plain. */
const char *ferry_tls_trouble(const struct ferry_io *io);

/*
 * For reactor.c only.
 */
struct ferry_tls_io;

/* The slot of a caller's op on an io with TLS; NULL: it is one of ours, and belongs to the io. */
struct ferry_op **ferry_tls_slot(struct ferry_tls_io *tls_io, const struct ferry_op *op);
void ferry_tls_begin(struct ferry_reactor *reactor, struct ferry_op *op);
void ferry_tls_cancel(struct ferry_reactor *reactor, struct ferry_op *op);
/* Given: no op of the io is in flight. */
void ferry_tls_detach(struct ferry_io *io);
/* An op that was put off to the next turn is due. */
void ferry_tls_resume(struct ferry_reactor *reactor, struct ferry_op *op);

#endif
