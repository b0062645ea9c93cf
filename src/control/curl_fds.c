/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the wake-up pair of a multi handle by what only it does: between curl_multi_wakeup() and
 * the next curl_multi_poll() one end holds an unread byte and the other an unacknowledged one,
 * before and after neither does. Any thread. Must not read from, write to or close a descriptor.
 *
 * A program that forks and executes between curl_multi_init() and the end of this still hands the
 * pair on; only libcurl itself could close that gap.
 */
#include "control/curl_fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define CANDIDATES_MAX 256
#define ROUNDS         2

struct candidates {
    int fds[CANDIDATES_MAX];
    size_t count;
};

/* A connected stream socket of the AF_UNIX family that would survive exec. */
static bool is_candidate(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    int domain = 0;
    socklen_t len = sizeof(domain);

    return flags >= 0 && (flags & FD_CLOEXEC) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

static void find_candidates(struct candidates *found)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;

    if (dir == NULL)
        return;
    while (found->count < CANDIDATES_MAX && (entry = readdir(dir)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);

        if (end != entry->d_name && *end == '\0' && is_candidate((int)fd))
            found->fds[found->count++] = (int)fd;
    }
    closedir(dir);
}

/* Bytes that wait to be read here, or that the other end has not read yet. */
static int bytes_waiting(int fd)
{
    int unread = 0;
    int unacknowledged = 0;

    if (ioctl(fd, FIONREAD, &unread) != 0 || ioctl(fd, SIOCOUTQ, &unacknowledged) != 0)
        return -1;
    return unread + unacknowledged;
}

/* Keep those for which (bytes waiting > 0) is @expected. */
static void keep(struct candidates *found, bool expected)
{
    size_t kept = 0;

    for (size_t i = 0; i < found->count; i++) {
        int waiting = bytes_waiting(found->fds[i]);

        if (waiting >= 0 && (waiting > 0) == expected)
            found->fds[kept++] = found->fds[i];
    }
    found->count = kept;
}

void ferry_curl_set_cloexec(CURLM *multi)
{
    struct candidates found = {.count = 0};

    find_candidates(&found);
    for (int round = 0; round < ROUNDS && found.count > 0; round++) {
        keep(&found, false);
        curl_multi_wakeup(multi);
        keep(&found, true);
        curl_multi_poll(multi, NULL, 0, 0, NULL);
        keep(&found, false);
    }
    for (size_t i = 0; i < found.count; i++)
        fcntl(found.fds[i], F_SETFD, FD_CLOEXEC);
}
