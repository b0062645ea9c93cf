/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checked calls through the table of net.h, and the system's implementation of it. Any thread;
 * no state. Must not move payload: that is the reactor's.
 */
#include "reactor/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"

#define ADDR_TEXT_SIZE (INET6_ADDRSTRLEN + 16)

/* For error texts only. */
static const char *addr_text(const struct sockaddr *addr, char *buf, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)addr;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(buf, size, "%s:%u", host, ntohs(in->sin_port));
    } else if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)addr;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(buf, size, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(buf, size, "an address of family %d", addr->sa_family);
    }
    return buf;
}

static enum ferry_status system_open(struct ferry_net *net, int family, int *fd_out)
{
    (void)net;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ferry_fail_errno(errno, "socket of family %d", family);
    *fd_out = fd;
    return FERRY_OK;
}

static enum ferry_status system_bind(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                     socklen_t addr_len)
{
    const int on = 1;
    char text[ADDR_TEXT_SIZE];

    (void)net;
    /* Port 0 would take a port away for good at bind; this leaves the choice to connect(). */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    if (bind(fd, addr, addr_len) != 0)
        return ferry_fail_errno(errno, "bind to %s", addr_text(addr, text, sizeof(text)));
    return FERRY_OK;
}

static enum ferry_status system_listen(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                       socklen_t addr_len)
{
    const int on = 1;
    char text[ADDR_TEXT_SIZE];

    (void)net;
    addr_text(addr, text, sizeof(text));
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
        return ferry_fail_errno(errno, "listen on %s: SO_REUSEADDR", text);
    if (addr->sa_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0)
        return ferry_fail_errno(errno, "listen on %s: IPV6_V6ONLY", text);
    if (bind(fd, addr, addr_len) != 0)
        return ferry_fail_errno(errno, "listen on %s: bind", text);
    if (listen(fd, SOMAXCONN) != 0)
        return ferry_fail_errno(errno, "listen on %s", text);
    return FERRY_OK;
}

static enum ferry_status system_set_nodelay(struct ferry_net *net, int fd)
{
    const int on = 1;

    (void)net;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        return ferry_fail_errno(errno, "TCP_NODELAY");
    return FERRY_OK;
}

static enum ferry_status set_size(int fd, int option, uint32_t bytes)
{
    int value = bytes > INT_MAX / 2 ? INT_MAX / 2 : (int)bytes;

    if (bytes != 0 && setsockopt(fd, SOL_SOCKET, option, &value, sizeof(value)) != 0)
        return ferry_fail_errno(errno, "%s of %u bytes",
                                option == SO_SNDBUF ? "SO_SNDBUF" : "SO_RCVBUF", bytes);
    return FERRY_OK;
}

static enum ferry_status system_set_buffers(struct ferry_net *net, int fd, uint32_t send_bytes,
                                            uint32_t recv_bytes)
{
    (void)net;
    enum ferry_status status = set_size(fd, SO_SNDBUF, send_bytes);
    return status != FERRY_OK ? status : set_size(fd, SO_RCVBUF, recv_bytes);
}

/* Keep-alive packets in whole seconds; so many that it is never them who end the connection. */
static enum ferry_status system_watch_path(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    const int on = 1;
    const int idle_s = timeout_ms / 2 >= 2000 ? (int)(timeout_ms / 2000) : 1;
    const int interval_s = 1;
    const int probes = 127;

    (void)net;
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes)) != 0)
        return ferry_fail_errno(errno, "SO_KEEPALIVE");
    return FERRY_OK;
}

static bool system_path_dead(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);

    (void)net;
    memset(&info, 0, sizeof(info));
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return false;
    /* Data that nobody has acknowledged, or probes (of a closed window, or keep-alive). */
    return info.tcpi_last_ack_recv >= timeout_ms && info.tcpi_last_data_recv >= timeout_ms &&
           (info.tcpi_unacked > 0 || info.tcpi_probes > 0);
}

static enum ferry_status system_local_addr(struct ferry_net *net, int fd,
                                           struct sockaddr_storage *addr_out,
                                           socklen_t *addr_len_out)
{
    (void)net;
    *addr_len_out = sizeof(*addr_out);
    if (getsockname(fd, (struct sockaddr *)addr_out, addr_len_out) != 0)
        return ferry_fail_errno(errno, "getsockname");
    return FERRY_OK;
}

static enum ferry_status system_peer_addr(struct ferry_net *net, int fd,
                                          struct sockaddr_storage *addr_out,
                                          socklen_t *addr_len_out)
{
    (void)net;
    *addr_len_out = sizeof(*addr_out);
    if (getpeername(fd, (struct sockaddr *)addr_out, addr_len_out) != 0)
        return ferry_fail_errno(errno, "getpeername");
    return FERRY_OK;
}

static void system_shutdown(struct ferry_net *net, int fd, int how)
{
    (void)net;
    shutdown(fd, how);
}

/*
 * A process that the host program forked may hold the same socket, and then close() alone says
 * nothing to the peer. Both ways taken here work on the connection, not on the descriptor: a
 * connect() to "no address" resets it, a shutdown() ends it.
 */
static void system_close(struct ferry_net *net, int fd, bool abort)
{
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};

    (void)net;
    if (!abort || connect(fd, &nowhere, sizeof(nowhere)) != 0)
        shutdown(fd, SHUT_RDWR);
    close(fd);
}

static const struct ferry_net_ops system_ops = {
    .open = system_open,
    .bind = system_bind,
    .listen = system_listen,
    .set_nodelay = system_set_nodelay,
    .set_buffers = system_set_buffers,
    .watch_path = system_watch_path,
    .path_dead = system_path_dead,
    .local_addr = system_local_addr,
    .peer_addr = system_peer_addr,
    .shutdown = system_shutdown,
    .close = system_close,
};

struct ferry_net ferry_net_system = {.ops = &system_ops};

enum ferry_status ferry_net_open(struct ferry_net *net, int family, int *fd_out)
{
    enum ferry_status status = net->ops->open(net, family, fd_out);

    FERRY_ASSERT(status != FERRY_OK || *fd_out >= 0);
    return status;
}

enum ferry_status ferry_net_bind(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                 socklen_t addr_len)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->bind(net, fd, addr, addr_len);
}

enum ferry_status ferry_net_listen(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                   socklen_t addr_len)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->listen(net, fd, addr, addr_len);
}

enum ferry_status ferry_net_set_nodelay(struct ferry_net *net, int fd)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->set_nodelay(net, fd);
}

enum ferry_status ferry_net_set_buffers(struct ferry_net *net, int fd, uint32_t send_bytes,
                                        uint32_t recv_bytes)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->set_buffers(net, fd, send_bytes, recv_bytes);
}

enum ferry_status ferry_net_watch_path(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    FERRY_ASSERT(fd >= 0 && timeout_ms > 0);
    return net->ops->watch_path(net, fd, timeout_ms);
}

bool ferry_net_path_dead(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    FERRY_ASSERT(fd >= 0 && timeout_ms > 0);
    return net->ops->path_dead(net, fd, timeout_ms);
}

enum ferry_status ferry_net_local_addr(struct ferry_net *net, int fd,
                                       struct sockaddr_storage *addr_out, socklen_t *addr_len_out)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->local_addr(net, fd, addr_out, addr_len_out);
}

enum ferry_status ferry_net_peer_addr(struct ferry_net *net, int fd,
                                      struct sockaddr_storage *addr_out, socklen_t *addr_len_out)
{
    FERRY_ASSERT(fd >= 0);
    return net->ops->peer_addr(net, fd, addr_out, addr_len_out);
}

void ferry_net_shutdown(struct ferry_net *net, int fd, int how)
{
    FERRY_ASSERT(fd >= 0);
    net->ops->shutdown(net, fd, how);
}

void ferry_net_close(struct ferry_net *net, int fd, bool abort)
{
    FERRY_ASSERT(fd >= 0);
    net->ops->close(net, fd, abort);
}
