/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a socket: its user, its process, whether it lives, and whether the
 * kernel lets us reach its memory. Runs on the meeting thread; each call is a few system calls that
 * do not block.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/shm/internal.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/*
 * A descriptor of the process. The kernel gives that of the very process from 6.5 on; before, the
 * number is looked up, and may be another's by then: the cookie decides, and a dead peer's socket.
 */
static int open_pidfd(int socket, pid_t pid)
{
    int fd = -1;
    socklen_t size = sizeof(fd);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0)
        return fd;
    return pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

enum ferry_status ferry_shm_peer_identify(struct shm_peer *peer)
{
    struct ucred about;
    socklen_t size = sizeof(about);

    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERCRED, &about, &size) != 0)
        return ferry_fail_errno(errno, "shm: ask for the user of a peer");
    if (about.uid != geteuid())
        return ferry_fail(FERRY_ERR_REFUSED, "shm: the peer belongs to user %u, this process to %u",
                          about.uid, geteuid());
    peer->pid = about.pid;
    peer->pidfd = open_pidfd(peer->fd, about.pid);
    return FERRY_OK;
}

bool ferry_shm_peer_dead(const struct shm_peer *peer)
{
    struct pollfd look = {.fd = peer->pidfd, .events = POLLIN};

    return peer->pidfd >= 0 && poll(&look, 1, 0) == 1;
}

void ferry_shm_peer_close(struct shm_peer *peer)
{
    if (peer->fd >= 0)
        close(peer->fd);
    if (peer->pidfd >= 0)
        close(peer->pidfd);
    *peer = (struct shm_peer){.fd = -1, .pidfd = -1};
}

bool ferry_shm_vm_probe(pid_t pid, uint64_t addr, const uint8_t cookie[SHM_COOKIE_BYTES],
                        char why[SHM_WHY_SIZE])
{
    uint8_t found[SHM_COOKIE_BYTES] = {0};
    struct iovec to = {.iov_base = found, .iov_len = sizeof(found)};
    struct iovec from = {.iov_base = (void *)(uintptr_t)addr, .iov_len = sizeof(found)};
    ssize_t got;

    if (pid <= 0) {
        snprintf(why, SHM_WHY_SIZE, "its process is not visible in this PID namespace");
        return false;
    }
    got = process_vm_readv(pid, &to, 1, &from, 1, 0);
    if (got < 0 && errno != EFAULT) {
        snprintf(why, SHM_WHY_SIZE, "process_vm_readv of process %d: %s%s", (int)pid,
                 strerror(errno),
                 errno == EPERM ? "; a sandbox or the Yama module forbids it (see "
                                  "transports.shm.allow_ptrace)"
                                : "");
        return false;
    }
    /* The number may be that of another process by now, or in another namespace. */
    if (got != (ssize_t)sizeof(found) || memcmp(found, cookie, sizeof(found)) != 0) {
        snprintf(why, SHM_WHY_SIZE, "process %d is not the peer: it does not have the cookie",
                 (int)pid);
        return false;
    }
    why[0] = '\0';
    return true;
}
