/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets as far as they are not input or output: opening, binding, naming, closing. A transport
 * goes through this table, so that the model rig can give it a simulated network; what moves bytes
 * is in reactor.h. net.c is the only file that calls through the table.
 *
 * Threads: any thread; the calls neither block nor allocate memory of ours. A descriptor that is
 * attached to a reactor is detached before it is closed.
 */
#ifndef FERRY_REACTOR_NET_H
#define FERRY_REACTOR_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <ferry/status.h>

struct ferry_net;

/* Errors carry text (ferry_fail_errno); ERR_LIMIT for a full descriptor table. */
struct ferry_net_ops {
    /* A stream socket for @family (AF_INET, AF_INET6): close-on-exec, non-blocking. */
    enum ferry_status (*open)(struct ferry_net *net, int family, int *fd_out);
    /* The local address for a connection to come; port 0 leaves the port to the system. */
    enum ferry_status (*bind)(struct ferry_net *net, int fd, const struct sockaddr *addr,
                              socklen_t addr_len);
    /*
     * Bind and listen. The port may be reused at once after a restart; an IPv6 socket takes IPv6
     * only, so that one listener per family can share a port.
     */
    enum ferry_status (*listen)(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                socklen_t addr_len);
    /* TCP_NODELAY. */
    enum ferry_status (*set_nodelay)(struct ferry_net *net, int fd);
    /* SO_SNDBUF and SO_RCVBUF; 0 leaves a side to the system's tuning. Before connect or listen. */
    enum ferry_status (*set_buffers)(struct ferry_net *net, int fd, uint32_t send_bytes,
                                     uint32_t recv_bytes);
    /*
     * Have the system ask the other end for a sign of life when nothing was heard of it for half
     * of @timeout_ms, so that path_dead() can tell. It never ends the connection by itself.
     */
    enum ferry_status (*watch_path)(struct ferry_net *net, int fd, uint32_t timeout_ms);
    /*
     * For @timeout_ms nothing at all has come from the other end, although the system waits for it
     * to acknowledge data or a probe. A peer that is merely slow, or stopped, still does that. To
     * be asked when the caller has sent nothing either for so long. False where it cannot be told.
     */
    bool (*path_dead)(struct ferry_net *net, int fd, uint32_t timeout_ms);
    enum ferry_status (*local_addr)(struct ferry_net *net, int fd,
                                    struct sockaddr_storage *addr_out, socklen_t *addr_len_out);
    enum ferry_status (*peer_addr)(struct ferry_net *net, int fd, struct sockaddr_storage *addr_out,
                                   socklen_t *addr_len_out);
    /* @how as in shutdown(2). An error is of no use to anybody and is dropped. */
    void (*shutdown)(struct ferry_net *net, int fd, int how);
    /* @abort: at once and with a reset, so that nothing of what was sent is delivered any more. */
    void (*close)(struct ferry_net *net, int fd, bool abort);
};

struct ferry_net {
    const struct ferry_net_ops *ops;
    void *impl; /* the simulator's */
};

/* The system's sockets. */
extern struct ferry_net ferry_net_system;

enum ferry_status ferry_net_open(struct ferry_net *net, int family, int *fd_out);
enum ferry_status ferry_net_bind(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                 socklen_t addr_len);
enum ferry_status ferry_net_listen(struct ferry_net *net, int fd, const struct sockaddr *addr,
                                   socklen_t addr_len);
enum ferry_status ferry_net_set_nodelay(struct ferry_net *net, int fd);
enum ferry_status ferry_net_set_buffers(struct ferry_net *net, int fd, uint32_t send_bytes,
                                        uint32_t recv_bytes);
enum ferry_status ferry_net_watch_path(struct ferry_net *net, int fd, uint32_t timeout_ms);
bool ferry_net_path_dead(struct ferry_net *net, int fd, uint32_t timeout_ms);
enum ferry_status ferry_net_local_addr(struct ferry_net *net, int fd,
                                       struct sockaddr_storage *addr_out, socklen_t *addr_len_out);
enum ferry_status ferry_net_peer_addr(struct ferry_net *net, int fd,
                                      struct sockaddr_storage *addr_out, socklen_t *addr_len_out);
void ferry_net_shutdown(struct ferry_net *net, int fd, int how);
void ferry_net_close(struct ferry_net *net, int fd, bool abort);

#endif
