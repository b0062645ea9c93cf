/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that writes and reads ferry's frames by hand, over a blocking socket on loopback. Every
 * wait is bounded; what does not come in time fails the test. Header only, one thread.
 */
#ifndef FERRY_TESTS_SUPPORT_FRAME_PEER_H
#define FERRY_TESTS_SUPPORT_FRAME_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "support/test.h"
#include "wire/frame.h"

#define FRAME_PEER_PATIENCE_S 20

static inline void frame_peer_send(int fd, const void *bytes, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t step = send(fd, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);

        assert_true(step > 0 || (step < 0 && errno == EINTR));
        sent += step > 0 ? (size_t)step : 0;
    }
}

/* Bytes until @size have come or the stream ended. */
static inline size_t frame_peer_receive(int fd, void *bytes, size_t size)
{
    size_t have = 0;

    while (have < size) {
        ssize_t step = recv(fd, (char *)bytes + have, size - have, 0);

        if (step < 0 && errno == EINTR)
            continue;
        assert_true(step >= 0 || errno == ECONNRESET);
        if (step <= 0)
            break;
        have += (size_t)step;
    }
    return have;
}

/* A frame without a list. */
static inline struct ferry_frame frame_peer_frame(int fd)
{
    struct ferry_frame frame;
    uint8_t bytes[FERRY_FRAME_PLAIN_MAX];
    uint32_t need;

    assert_int_equal(frame_peer_receive(fd, bytes, FERRY_FRAME_FIXED_SIZE), FERRY_FRAME_FIXED_SIZE);
    assert_int_equal(ferry_frame_peek(bytes, FERRY_FRAME_FIXED_SIZE, &need), FERRY_FRAME_VALID);
    assert_true(need <= sizeof(bytes));
    assert_int_equal(
        frame_peer_receive(fd, bytes + FERRY_FRAME_FIXED_SIZE, need - FERRY_FRAME_FIXED_SIZE),
        need - FERRY_FRAME_FIXED_SIZE);
    assert_int_equal(ferry_frame_decode(bytes, need, &frame), FERRY_FRAME_VALID);
    return frame;
}

/* A header alone; a payload is the caller's to send. */
static inline void frame_peer_send_frame(int fd, const struct ferry_frame *frame)
{
    uint8_t bytes[FERRY_FRAME_PLAIN_MAX];
    size_t size = ferry_frame_encode(bytes, sizeof(bytes), frame);

    assert_true(size > 0);
    frame_peer_send(fd, bytes, size);
}

/* Connect and greet with these features on offer; the socket. The greeting must be accepted. */
static inline int frame_peer_connect(uint16_t port, uint64_t features,
                                     struct ferry_hello_reply *reply_out)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {.tv_sec = FRAME_PEER_PATIENCE_S};
    struct ferry_frame frame = {
        .type = FERRY_FRAME_HELLO,
        .hello = {.lane_count = 1, .max_transfer_bytes = 1u << 30, .features = features}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    frame_peer_send_frame(fd, &frame);
    frame = frame_peer_frame(fd);
    assert_int_equal(frame.type, FERRY_FRAME_HELLO_REPLY);
    assert_int_equal(frame.status, FERRY_FRAME_OK);
    *reply_out = frame.hello_reply;
    return fd;
}

#endif
