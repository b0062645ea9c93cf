/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scripted TCP server for the tests of the control plane: it reads one request per connection,
 * sends fixed bytes, then closes or keeps the connection. Also raw requests for the other side.
 * Header only.
 */
#ifndef FERRY_TESTS_UNIT_TEST_CONTROL_SUPPORT_H
#define FERRY_TESTS_UNIT_TEST_CONTROL_SUPPORT_H

#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STUB_HELD_MAX    256
#define STUB_REQUEST_MAX 65536

struct stub {
    const char *reply; /* what every connection gets */
    size_t repeat;     /* send `chunk` that many times after it */
    const char *chunk; /* or NULL */
    bool hold;         /* then keep the connection open */
    bool deaf;         /* read and answer nothing at all */
    int listen_fd;
    uint16_t port;
    pthread_t thread;
    _Atomic int accepted;
    char request[STUB_REQUEST_MAX]; /* the last one; read it after stub_close() or a reply */
    int held[STUB_HELD_MAX];
    int held_count;
};

static inline int test_listen(const char *host, uint16_t *port_out, int backlog)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    inet_pton(AF_INET, host, &addr.sin_addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port_out = ntohs(addr.sin_port);
    return fd;
}

/* A port on which nobody listens: bound, so that nobody else gets it either. */
static inline int test_dead_port(uint16_t *port_out)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *port_out = ntohs(addr.sin_port);
    return fd;
}

/* The headers, and as much body as they announce. */
static inline void stub_read_request(int fd, char *buf, size_t size)
{
    size_t len = 0;

    for (;;) {
        ssize_t got = recv(fd, buf + len, size - 1 - len, 0);

        if (got <= 0)
            break;
        len += (size_t)got;
        buf[len] = '\0';

        char *end = strstr(buf, "\r\n\r\n");
        char *announced = strstr(buf, "Content-Length: ");
        size_t want = announced != NULL ? strtoul(announced + 16, NULL, 10) : 0;

        if (end != NULL && (size_t)(buf + len - end) >= want + 4)
            break;
        if (len == size - 1)
            break;
    }
    buf[len] = '\0';
}

static inline bool stub_send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

static inline void *stub_main(void *arg)
{
    struct stub *stub = arg;
    int fd;

    while ((fd = accept4(stub->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        bool alive = true;

        atomic_fetch_add(&stub->accepted, 1);
        if (!stub->deaf) {
            stub_read_request(fd, stub->request, sizeof(stub->request));
            alive = stub_send_all(fd, stub->reply, strlen(stub->reply));
            for (size_t i = 0; alive && i < stub->repeat; i++)
                alive = stub_send_all(fd, stub->chunk, strlen(stub->chunk));
        }
        if ((stub->hold || stub->deaf) && stub->held_count < STUB_HELD_MAX)
            stub->held[stub->held_count++] = fd;
        else
            close(fd);
    }
    return NULL;
}

static inline void stub_open(struct stub *stub)
{
    stub->listen_fd = test_listen("127.0.0.1", &stub->port, 128);
    atomic_store(&stub->accepted, 0);
    stub->held_count = 0;
    assert_int_equal(pthread_create(&stub->thread, NULL, stub_main, stub), 0);
}

static inline void stub_close(struct stub *stub)
{
    shutdown(stub->listen_fd, SHUT_RDWR);
    pthread_join(stub->thread, NULL);
    close(stub->listen_fd);
    for (int i = 0; i < stub->held_count; i++)
        close(stub->held[i]);
}

static inline int test_connect(uint16_t port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* Send raw bytes and read until the other side closes; the caller's buffer gets the text. */
static inline void test_exchange(uint16_t port, const char *request, char *reply, size_t size)
{
    int fd = test_connect(port);
    size_t len = 0;
    ssize_t got = 1;

    assert_true(stub_send_all(fd, request, strlen(request)));
    while (len < size - 1 && got > 0) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

        assert_int_equal(poll(&poll_fd, 1, 20000), 1);
        got = recv(fd, reply + len, size - 1 - len, 0);
        len += got > 0 ? (size_t)got : 0;
    }
    reply[len] = '\0';
    close(fd);
}

#endif
