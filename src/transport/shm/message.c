/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encode, decode, send and receive; see message.h. Runs on the meeting thread and touches no state.
 * A message from a peer is checked to the last byte before anything of it is used.
 */
#include "transport/shm/message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "wire/bytes.h"

#define MAGIC  0x66736d31u /* "fsm1" */
#define HEADER 12u

/* Bytes behind the header, per kind. */
static const uint8_t body_bytes[] = {
    [SHM_HELLO] = 2 * SHM_INCARNATION,
    [SHM_WELCOME] = 8 + SHM_COOKIE_BYTES,
    [SHM_REFUSED] = SHM_TEXT_MAX,
    [SHM_MAP] = 12,
    [SHM_MAPPED] = 28,
    [SHM_CHANGED] = 0,
};

size_t ferry_shm_message_encode(const struct shm_message *message, uint8_t buf[SHM_MESSAGE_MAX])
{
    uint8_t *body = buf + HEADER;

    memset(buf, 0, SHM_MESSAGE_MAX);
    ferry_put_be32(buf, MAGIC);
    ferry_put_be32(buf + 4, SHM_PROTOCOL_VERSION);
    ferry_put_be32(buf + 8, message->kind);
    switch (message->kind) {
    case SHM_HELLO:
        memcpy(body, message->from, SHM_INCARNATION);
        memcpy(body + SHM_INCARNATION, message->to, SHM_INCARNATION);
        break;
    case SHM_WELCOME:
        ferry_put_be64(body, message->cookie_addr);
        memcpy(body + 8, message->cookie, SHM_COOKIE_BYTES);
        break;
    case SHM_REFUSED:
        memcpy(body, message->text, strnlen(message->text, SHM_TEXT_MAX - 1));
        break;
    case SHM_MAP:
        ferry_put_be32(body, message->index);
        ferry_put_be64(body + 4, message->id);
        break;
    case SHM_MAPPED:
        ferry_put_be64(body, message->id);
        ferry_put_be64(body + 8, message->addr);
        ferry_put_be64(body + 16, message->length);
        ferry_put_be32(body + 24, message->writable);
        break;
    case SHM_CHANGED:
        break;
    }
    return HEADER + body_bytes[message->kind];
}

static void decode_body(const uint8_t *body, struct shm_message *message)
{
    switch (message->kind) {
    case SHM_HELLO:
        memcpy(message->from, body, SHM_INCARNATION);
        memcpy(message->to, body + SHM_INCARNATION, SHM_INCARNATION);
        break;
    case SHM_WELCOME:
        message->cookie_addr = ferry_get_be64(body);
        memcpy(message->cookie, body + 8, SHM_COOKIE_BYTES);
        break;
    case SHM_REFUSED:
        memcpy(message->text, body, SHM_TEXT_MAX - 1);
        break;
    case SHM_MAP:
        message->index = ferry_get_be32(body);
        message->id = ferry_get_be64(body + 4);
        break;
    case SHM_MAPPED:
        message->id = ferry_get_be64(body);
        message->addr = ferry_get_be64(body + 8);
        message->length = ferry_get_be64(body + 16);
        message->writable = ferry_get_be32(body + 24) == 1;
        break;
    case SHM_CHANGED:
        break;
    }
}

enum ferry_status ferry_shm_message_decode(const uint8_t *buf, size_t len,
                                           struct shm_message *message_out)
{
    struct shm_message message = {.fds = {-1, -1}};
    uint32_t kind;

    if (len < HEADER || ferry_get_be32(buf) != MAGIC)
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: %zu bytes that are no message", len);
    if (ferry_get_be32(buf + 4) != SHM_PROTOCOL_VERSION)
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: the peer speaks version %u, expected %u",
                          ferry_get_be32(buf + 4), SHM_PROTOCOL_VERSION);
    kind = ferry_get_be32(buf + 8);
    if (kind < SHM_HELLO || kind > SHM_CHANGED || len != HEADER + body_bytes[kind])
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: a message of kind %u with %zu bytes", kind,
                          len);
    message.kind = (enum shm_message_kind)kind;
    decode_body(buf + HEADER, &message);
    *message_out = message;
    return FERRY_OK;
}

enum ferry_status ferry_shm_message_send(int fd, const struct shm_message *message)
{
    uint8_t buf[SHM_MESSAGE_MAX];
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = buf, .iov_len = ferry_shm_message_encode(message, buf)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    size_t count = message->fds[0] < 0 ? 0 : message->fds[1] < 0 ? 1 : 2;

    if (count > 0) {
        struct cmsghdr *extra;

        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        extra = CMSG_FIRSTHDR(&header);
        extra->cmsg_level = SOL_SOCKET;
        extra->cmsg_type = SCM_RIGHTS;
        extra->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(extra), message->fds, count * sizeof(int));
    }
    for (;;) {
        if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return FERRY_OK;
        if (errno == EINTR)
            continue;
        /* Too many descriptors under way: the peer takes some out in time. */
        if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
            return FERRY_ERR_QUEUE_FULL;
        return ferry_fail(FERRY_ERR_PEER_GONE, "shm: send to a peer: %s", strerror(errno));
    }
}

/* Up to two descriptors; more are closed, and the message is malformed. */
static bool take_fds(struct msghdr *header, int fds[2])
{
    uint32_t taken = 0;
    bool good = (header->msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0;

    for (struct cmsghdr *extra = CMSG_FIRSTHDR(header); extra != NULL;
         extra = CMSG_NXTHDR(header, extra)) {
        size_t count = (extra->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (extra->cmsg_level != SOL_SOCKET || extra->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(extra) + i * sizeof(int), sizeof(fd));
            if (taken < 2) {
                fds[taken++] = fd;
            } else {
                close(fd);
                good = false;
            }
        }
    }
    return good;
}

enum ferry_status ferry_shm_message_receive(int fd, struct shm_message *message_out)
{
    uint8_t buf[SHM_MESSAGE_MAX];
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = buf, .iov_len = sizeof(buf)};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct shm_message carried = {.fds = {-1, -1}};
    enum ferry_status status;
    ssize_t len;

    do {
        len = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (len < 0 && errno == EINTR);
    if (len < 0 && errno == EAGAIN)
        return FERRY_ERR_QUEUE_FULL;
    if (len <= 0)
        return ferry_fail(FERRY_ERR_PEER_GONE, "shm: the peer closed");
    if (!take_fds(&header, carried.fds)) {
        ferry_shm_message_close_fds(&carried);
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: a message with more than it may carry");
    }
    status = ferry_shm_message_decode(buf, (size_t)len, message_out);
    if (status != FERRY_OK) {
        ferry_shm_message_close_fds(&carried);
        return status;
    }
    memcpy(message_out->fds, carried.fds, sizeof(carried.fds));
    return FERRY_OK;
}

void ferry_shm_message_close_fds(struct shm_message *message)
{
    for (uint32_t i = 0; i < 2; i++) {
        if (message->fds[i] >= 0)
            close(message->fds[i]);
        message->fds[i] = -1;
    }
}
