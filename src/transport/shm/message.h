/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two shm transports say on their socket (SOCK_SEQPACKET: one message, one packet), field by
 * field in network order. Pure, but for send and receive, which carry descriptors along and do not
 * block.
 *
 *   initiator                                      target
 *     HELLO  incarnations of both  ------------->
 *            <------------  WELCOME  cookie's address and bytes; descriptors of board and slots
 *            <------------  REFUSED  text; then the end
 *     MAP    place, registration   ------------->
 *            <------------  MAPPED   registration, address, length, writable; its descriptor, or
 * none
 *            <------------  CHANGED  ranges have gone: look at the board
 */
#ifndef FERRY_TRANSPORT_SHM_MESSAGE_H
#define FERRY_TRANSPORT_SHM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define SHM_PROTOCOL_VERSION 1u
#define SHM_COOKIE_BYTES     32u
#define SHM_INCARNATION      16u
#define SHM_MESSAGE_MAX      256u
#define SHM_TEXT_MAX         160u

enum shm_message_kind {
    SHM_HELLO = 1,
    SHM_WELCOME = 2,
    SHM_REFUSED = 3,
    SHM_MAP = 4,
    SHM_MAPPED = 5,
    SHM_CHANGED = 6,
};

struct shm_message {
    enum shm_message_kind kind;
    uint8_t from[SHM_INCARNATION]; /* HELLO */
    uint8_t to[SHM_INCARNATION];   /* HELLO */
    uint64_t cookie_addr;          /* WELCOME */
    uint8_t cookie[SHM_COOKIE_BYTES];
    uint32_t index; /* MAP */
    uint64_t id;    /* MAP, MAPPED */
    uint64_t addr;  /* MAPPED */
    uint64_t length;
    bool writable;
    char text[SHM_TEXT_MAX]; /* REFUSED */
    int fds[2];              /* -1: none. Of a received message they are the receiver's to close */
};

size_t ferry_shm_message_encode(const struct shm_message *message, uint8_t buf[SHM_MESSAGE_MAX]);
/* ERR_PROTOCOL, with text. */
FERRY_CHECKED enum ferry_status ferry_shm_message_decode(const uint8_t *buf, size_t len,
                                                         struct shm_message *message_out);

/* ERR_QUEUE_FULL, bare: not now. ERR_PEER_GONE. The descriptors stay the caller's. */
FERRY_CHECKED enum ferry_status ferry_shm_message_send(int fd, const struct shm_message *message);
/* The same; ERR_PROTOCOL closes what came along. */
FERRY_CHECKED enum ferry_status ferry_shm_message_receive(int fd, struct shm_message *message_out);

void ferry_shm_message_close_fds(struct shm_message *message);

#endif
