/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-blocking attempts at socket operations. The thread that drives the reactor; no state, no
 * sleeping, no callbacks.
 */
#include "reactor/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/compiler.h"

/* A peer that connects and resets in a loop must not hold the turn. */
#define ACCEPT_TRIES_MAX 16

static struct ferry_attempt finished(int64_t result)
{
    return (struct ferry_attempt){.done = true, .result = result};
}

static struct ferry_attempt blocked(void)
{
    return (struct ferry_attempt){.blocked = true};
}

static struct ferry_attempt failed(int err)
{
    if (err == EAGAIN || err == EWOULDBLOCK)
        return blocked();
    return finished(-err);
}

static struct ferry_attempt try_accept(struct ferry_op *op)
{
    for (int i = 0; i < ACCEPT_TRIES_MAX; i++) {
        int fd = accept4(op->io->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            return finished(fd);
        /* accept(2) passes on errors that the new connection already had; the listener is well. */
        switch (errno) {
        case EINTR:
        case ECONNABORTED:
        case EPROTO:
        case ENETDOWN:
        case ENOPROTOOPT:
        case EHOSTDOWN:
        case ENONET:
        case EHOSTUNREACH:
        case ENETUNREACH:
            continue;
        default:
            return failed(errno);
        }
    }
    return (struct ferry_attempt){0};
}

/*
 * Calling connect() again asks for the outcome of the first call: EALREADY while it is open, its
 * error once, 0 or EISCONN when the connection stands. SO_ERROR would not tell the first from the
 * last, and a socket that has not connected yet polls as writable.
 */
static struct ferry_attempt try_connect(struct ferry_op *op)
{
    int rc;

    do {
        rc = connect(op->io->fd, op->addr, op->addr_len);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0 || errno == EISCONN)
        return finished(0);
    if (errno == EINPROGRESS || errno == EALREADY)
        return blocked();
    /* EAGAIN of connect(2) on TCP: no free local port. Waiting for readiness would be for ever. */
    return finished(errno == EAGAIN ? -EADDRNOTAVAIL : -errno);
}

/* Bytes arrived, or the end of the stream, or nothing. */
static struct ferry_attempt received(struct ferry_op *op, ssize_t got, size_t want)
{
    if (got < 0)
        return failed(errno);
    if (got == 0)
        return finished((int64_t)op->progress);

    op->progress += (uint64_t)got;
    struct ferry_attempt attempt = {.ran_dry = (size_t)got < want};
    if (ferry_recv_satisfied(op)) {
        attempt.done = true;
        attempt.result = (int64_t)op->progress;
    }
    return attempt;
}

static struct ferry_attempt try_recv(struct ferry_op *op)
{
    uint64_t left = op->len - op->progress;
    size_t want = left < FERRY_STEP_BYTES ? (size_t)left : FERRY_STEP_BYTES;
    ssize_t got;

    FERRY_DASSERT(left > 0);
    ferry_payload_call_begin();
    do {
        got = recv(op->io->fd, (char *)op->buf + op->progress, want, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    ferry_payload_call_end();
    return received(op, got, want);
}

/* What is left of the op's pieces, up to a step. Returns the bytes of it. */
static size_t pieces_left(const struct ferry_op *op, struct iovec *iov_out, size_t *count_out)
{
    uint64_t skip = op->progress;
    size_t want = 0;
    size_t count = 0;

    for (uint32_t i = 0; i < op->iov_count && want < FERRY_STEP_BYTES; i++) {
        size_t len = op->iov[i].iov_len;

        if (skip >= len) {
            skip -= len;
            continue;
        }
        len -= (size_t)skip;
        if (len > FERRY_STEP_BYTES - want)
            len = FERRY_STEP_BYTES - want;
        iov_out[count++] = (struct iovec){(char *)op->iov[i].iov_base + skip, len};
        want += len;
        skip = 0;
    }
    *count_out = count;
    return want;
}

static struct ferry_attempt try_recvv(struct ferry_op *op)
{
    struct iovec iov[FERRY_IOV_MAX];
    struct msghdr msg = {.msg_iov = iov};
    size_t want = pieces_left(op, iov, &msg.msg_iovlen);
    ssize_t got;

    FERRY_DASSERT(want > 0);
    ferry_payload_call_begin();
    do {
        got = recvmsg(op->io->fd, &msg, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    ferry_payload_call_end();
    return received(op, got, want);
}

static struct ferry_attempt try_send(struct ferry_op *op)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    uint64_t want;
    ssize_t sent;

    ferry_payload_call_begin();
    do {
        if (op->kind == FERRY_OP_SEND) {
            want = op->len < FERRY_STEP_BYTES ? op->len : FERRY_STEP_BYTES;
            sent = send(op->io->fd, op->buf, (size_t)want, flags);
        } else {
            struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)op->iov,
                                 .msg_iovlen = op->iov_count};

            want = ferry_iov_bytes(op->iov, op->iov_count);
            sent = sendmsg(op->io->fd, &msg, flags);
        }
    } while (sent < 0 && errno == EINTR);
    ferry_payload_call_end();
    if (sent < 0)
        return failed(errno);
    return (struct ferry_attempt){.done = true, .result = sent, .ran_dry = (uint64_t)sent < want};
}

struct ferry_attempt ferry_direct_try(struct ferry_op *op)
{
    switch (op->kind) {
    case FERRY_OP_ACCEPT:
        return try_accept(op);
    case FERRY_OP_CONNECT:
        return try_connect(op);
    case FERRY_OP_RECV:
        return try_recv(op);
    case FERRY_OP_RECVV:
        return try_recvv(op);
    case FERRY_OP_SEND:
    case FERRY_OP_SENDV:
        return try_send(op);
    default:
        FERRY_ASSERT(!"a file operation is not tried directly");
        return finished(-EINVAL);
    }
}

int ferry_wakefd_open(void)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    return fd >= 0 ? fd : -errno;
}

void ferry_wakefd_ring(int fd)
{
    const uint64_t one = 1;
    ssize_t written;

    /* EAGAIN means that the counter is full, and then the sleeper has been woken often enough. */
    do {
        written = write(fd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
}

int ferry_fd_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    if ((flags & O_NONBLOCK) == 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return -errno;
    return 0;
}
