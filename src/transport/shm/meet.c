/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting thread: a listener, the sockets and processes of all peers, and one poll over them.
 * It sleeps until something happens; only while a meeting is under way, a request waits for one or
 * a socket has no room does it look again every few milliseconds. It holds the mutex but while it
 * polls, waits for no peer and copies nothing.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "transport/shm/internal.h"

#define TICK_MS 5
#define BACKLOG 128

/* The descriptors of one turn: two fixed ones, then two for each session and each link. */
struct poll_set {
    struct pollfd *fds;
    uint32_t count;
    uint32_t capacity;
};

static bool set_reserve(struct poll_set *set, uint32_t capacity)
{
    struct pollfd *fds;

    if (capacity <= set->capacity)
        return true;
    fds = realloc(set->fds, 2 * capacity * sizeof(*fds));
    if (fds == NULL)
        return false;
    set->fds = fds;
    set->capacity = 2 * capacity;
    return true;
}

static void set_add(struct poll_set *set, int fd, short events)
{
    set->fds[set->count++] = (struct pollfd){.fd = fd, .events = events};
}

static uint32_t list_length(const struct ferry_list *head)
{
    uint32_t count = 0;

    for (const struct ferry_list *l = head->next; l != head; l = l->next)
        count++;
    return count;
}

/* Negative descriptors are left out by poll() itself. */
static bool set_fill(struct shm_transport *transport, struct poll_set *set)
{
    uint32_t wanted = 2 + 2 * (list_length(&transport->sessions) + list_length(&transport->links));

    if (!set_reserve(set, wanted))
        return false;
    set->count = 0;
    set_add(set, transport->wake_fd, POLLIN);
    set_add(set, transport->listener, POLLIN);
    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = l->next) {
        const struct shm_session *session = FERRY_CONTAINER_OF(l, struct shm_session, link);

        set_add(set, session->peer.fd, session->pending ? POLLOUT : POLLIN);
        set_add(set, session->peer.pidfd, POLLIN);
    }
    for (struct ferry_list *l = transport->links.next; l != &transport->links; l = l->next) {
        const struct shm_link *link = FERRY_CONTAINER_OF(l, struct shm_link, link);

        set_add(set, link->peer.fd, POLLIN);
        set_add(set, link->peer.fd >= 0 ? link->peer.pidfd : -1, POLLIN);
    }
    return true;
}

/* In the order of set_fill(); sessions and links that came after the poll have no entry. */
static void serve_sessions(struct shm_transport *transport, const struct poll_set *set,
                           uint32_t *at)
{
    struct ferry_list *next;

    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = next) {
        struct shm_session *session = FERRY_CONTAINER_OF(l, struct shm_session, link);
        const struct pollfd *fds = &set->fds[*at];
        bool keep = true;

        next = l->next;
        *at += 2;
        if (fds[1].revents != 0)
            keep = ferry_shm_session_died(transport, session);
        else if (session->peer.fd < 0)
            keep = ferry_shm_session_died(transport, session);
        else if (fds[0].revents != 0)
            keep = session->pending ? ferry_shm_session_output(transport, session)
                                    : ferry_shm_session_input(transport, session);
        if (!keep)
            ferry_shm_session_free(transport, session);
    }
}

static void serve_links(struct shm_transport *transport, const struct poll_set *set, uint32_t *at)
{
    struct ferry_list *l = transport->links.next;

    for (; l != &transport->links && *at + 1 < set->count; l = l->next) {
        struct shm_link *link = FERRY_CONTAINER_OF(l, struct shm_link, link);
        const struct pollfd *fds = &set->fds[*at];

        *at += 2;
        if (link->peer.fd < 0)
            continue;
        if (fds[1].revents != 0)
            ferry_shm_link_end(link, SHM_LINK_DEAD, "its process has ended");
        else if (fds[0].revents != 0)
            ferry_shm_link_input(link);
    }
}

/* Somebody asks for a meeting, and workers have not seen the board of an earlier one. */
static bool may_meet(const struct shm_link *link)
{
    return link->board == NULL && atomic_load(&link->asked);
}

/* What is due without a word from a peer. True if it wants another look soon. */
static bool tend_link(struct shm_link *link, uint64_t now_ns)
{
    uint32_t state = atomic_load(&link->state);

    if (state == SHM_LINK_MEETING && now_ns >= link->meet_deadline_ns)
        ferry_shm_link_end(
            link, SHM_LINK_DEAD, "it did not answer within %llu ms",
            (unsigned long long)(link->transport->settings.meet_timeout_ns / FERRY_NS_PER_MS));
    else if (state == SHM_LINK_READY)
        return ferry_shm_link_tend(link);
    else if (state != SHM_LINK_MEETING && may_meet(link) && now_ns >= link->retry_ns)
        ferry_shm_link_begin(link, now_ns);
    return atomic_load(&link->state) == SHM_LINK_MEETING || may_meet(link);
}

static bool tend_all(struct shm_transport *transport)
{
    uint64_t now_ns = ferry_now_ns(transport->base.env->clock);
    bool again = false;
    struct ferry_list *next;

    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = next) {
        struct shm_session *session = FERRY_CONTAINER_OF(l, struct shm_session, link);

        next = l->next;
        if (session->peer.fd >= 0 && session->changed &&
            !ferry_shm_session_output(transport, session)) {
            ferry_shm_session_free(transport, session);
            continue;
        }
        /* It hung up and copies on, or has not been told yet. */
        again |= session->peer.fd < 0 || (session->changed && session->welcomed);
    }
    for (struct ferry_list *l = transport->links.next; l != &transport->links; l = next) {
        struct shm_link *link = FERRY_CONTAINER_OF(l, struct shm_link, link);

        next = l->next;
        if (link->targets == 0)
            ferry_shm_link_free(link);
        else
            again |= tend_link(link, now_ns);
    }
    return again;
}

static void drain_wake(struct shm_transport *transport)
{
    uint64_t count;

    if (read(transport->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        ferry_warn("shm", "the wake-up descriptor: %s", strerror(errno));
}

static void *run(void *arg)
{
    struct shm_transport *transport = arg;
    struct poll_set set = {0};

    pthread_mutex_lock(&transport->mutex);
    while (!atomic_load(&transport->stop)) {
        bool again = tend_all(transport) || ferry_shm_parked(transport) > 0;
        bool filled = set_fill(transport, &set);
        uint32_t at = 2;

        pthread_mutex_unlock(&transport->mutex);
        /* Without memory for the list: look again a little later. */
        if (poll(set.fds, filled ? set.count : 0, again || !filled ? TICK_MS : -1) < 0 &&
            errno != EINTR)
            ferry_warn("shm", "poll: %s", strerror(errno));
        pthread_mutex_lock(&transport->mutex);
        if (!filled)
            continue;
        if (set.fds[0].revents != 0)
            drain_wake(transport);
        serve_sessions(transport, &set, &at);
        serve_links(transport, &set, &at);
        /* Last: a new session has no entry in the set. */
        if (set.fds[1].revents != 0)
            ferry_shm_session_accept(transport);
        if (ferry_shm_parked(transport) > 0)
            ferry_shm_kick_all(transport);
    }
    pthread_mutex_unlock(&transport->mutex);
    free(set.fds);
    return NULL;
}

void ferry_shm_meet_wake(struct shm_transport *transport)
{
    uint64_t one = 1;

    /* A counter that is full wakes as well. */
    if (write(transport->wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
        ferry_warn("shm", "the wake-up descriptor: %s", strerror(errno));
}

/* "@name", or a path in the folder that is set. Random: of one life of one engine. */
static enum ferry_status choose_socket(struct shm_transport *transport)
{
    const char *dir = transport->settings.socket_dir;
    uint8_t random[8];
    char hex[2 * sizeof(random) + 1];

    transport->base.env->random->fill(transport->base.env->random, random, sizeof(random));
    ferry_hex_encode(random, sizeof(random), hex);
    if (dir[0] == '\0') {
        snprintf(transport->socket, sizeof(transport->socket), "@ferry-shm-%s", hex);
        return FERRY_OK;
    }
    if (dir[0] != '/')
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.shm.socket_dir \"%s\": expected an absolute path", dir);
    snprintf(transport->socket, sizeof(transport->socket), "%s/ferry-shm-%s", dir, hex);
    return FERRY_OK;
}

static enum ferry_status listen_at(struct shm_transport *transport)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(transport->socket);
    FERRY_AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ferry_fail_errno(errno, "shm: socket");
    memcpy(address.sun_path, transport->socket, len);
    if (transport->socket[0] == '@')
        address.sun_path[0] = '\0';
    if (bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) != 0)
        return ferry_fail(FERRY_ERR_CONFIG, "shm: socket %s: %s (transports.shm.socket_dir)",
                          transport->socket, strerror(errno));
    if (listen(fd, BACKLOG) != 0)
        return ferry_fail_errno(errno, "shm: listen at %s", transport->socket);
    transport->listener = ferry_take_fd(&fd);
    return FERRY_OK;
}

enum ferry_status ferry_shm_meet_open(struct shm_transport *transport)
{
    enum ferry_status status = choose_socket(transport);

    if (status != FERRY_OK)
        return status;
    transport->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (transport->wake_fd < 0)
        return ferry_fail_errno(errno, "shm: eventfd");
    status = listen_at(transport);
    if (status == FERRY_OK)
        status = ferry_thread_start("ferry-shm-meet", run, transport, &transport->thread);
    transport->thread_started = status == FERRY_OK;
    return status;
}

/* Idempotent; accepts one that was partly opened. After it the lists are the caller's alone. */
void ferry_shm_meet_close(struct shm_transport *transport)
{
    if (transport->thread_started) {
        atomic_store(&transport->stop, true);
        ferry_shm_meet_wake(transport);
        pthread_join(transport->thread, NULL);
        transport->thread_started = false;
    }
    if (transport->listener >= 0) {
        close(transport->listener);
        if (transport->socket[0] == '/')
            unlink(transport->socket);
    }
    transport->listener = -1;
}
