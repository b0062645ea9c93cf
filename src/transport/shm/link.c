/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that we reach: the meeting, and the mappings of what they share. Runs on the meeting thread
 * under the mutex, which waits for no peer; workers read `state` of links and mappings.
 *
 *   NEW --asked--> MEETING --welcome--> READY --peer gone--> DEAD
 *                    |  \ refused, other user --> REFUSED
 *                    \ nobody there, no answer in time --> DEAD
 *
 * One that never was READY may meet again, since no worker has seen its board.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/shm/internal.h"

#define RETRY_NS FERRY_NS_PER_S

void ferry_shm_link_end(struct shm_link *link, enum shm_link_state state, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(link->why, sizeof(link->why), fmt, args);
    va_end(args);
    ferry_info("shm", "not reached: %s segment=%s", link->why, link->name);
    if (link->peer.fd >= 0)
        close(link->peer.fd);
    link->peer.fd = -1;
    /* Once it was READY workers ask the process whether it lives, until the link is freed. */
    if (link->board == NULL)
        ferry_shm_peer_close(&link->peer);
    /* Release: `why` comes before. */
    atomic_store(&link->state, state);
    ferry_shm_kick_all(link->transport);
}

static int connect_to(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    memcpy(address.sun_path, name, len);
    if (name[0] == '@')
        address.sun_path[0] = '\0';
    if (connect(fd, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) == 0)
        return fd;

    int error = errno;

    close(fd);
    errno = error;
    return -1;
}

/* The user of the listener is known at once; what it says comes later. */
void ferry_shm_link_begin(struct shm_link *link, uint64_t now_ns)
{
    struct shm_message hello = {.kind = SHM_HELLO, .fds = {-1, -1}};

    atomic_store(&link->asked, false);
    link->retry_ns = ferry_deadline_ns(now_ns, RETRY_NS);
    link->meet_deadline_ns = ferry_deadline_ns(now_ns, link->transport->settings.meet_timeout_ns);
    link->peer.fd = connect_to(link->socket);
    if (link->peer.fd < 0) {
        ferry_shm_link_end(link, SHM_LINK_DEAD, "socket %s: %s", link->socket, strerror(errno));
        return;
    }
    if (ferry_shm_peer_identify(&link->peer) != FERRY_OK) {
        ferry_shm_link_end(link, SHM_LINK_REFUSED, "%s", ferry_last_error_text());
        return;
    }
    memcpy(hello.from, link->transport->incarnation, sizeof(hello.from));
    memcpy(hello.to, link->incarnation, sizeof(hello.to));
    if (ferry_shm_message_send(link->peer.fd, &hello) != FERRY_OK) {
        ferry_shm_link_end(link, SHM_LINK_DEAD, "the peer hung up at once");
        return;
    }
    atomic_store(&link->state, SHM_LINK_MEETING);
}

static void take_welcome(struct shm_link *link, const struct shm_message *message)
{
    void *board = NULL;
    void *slots = NULL;
    enum ferry_status status = FERRY_ERR_PROTOCOL;

    if (message->fds[0] >= 0 && message->fds[1] >= 0)
        status = ferry_shm_map(message->fds[0], sizeof(*link->board), false, &board);
    if (status == FERRY_OK)
        status = ferry_shm_map(message->fds[1], sizeof(*link->slots), true, &slots);
    if (status != FERRY_OK) {
        if (board != NULL)
            munmap(board, sizeof(*link->board));
        ferry_shm_link_end(link, SHM_LINK_REFUSED, "its welcome is malformed: %.128s",
                           ferry_last_error_text());
        return;
    }
    link->board = board;
    link->slots = slots;
    link->vm_works = ferry_shm_vm_probe(link->peer.pid, message->cookie_addr, message->cookie,
                                        link->vm_why);
    ferry_info("shm", "met a peer pid=%d brought_memory=%s segment=%s", (int)link->peer.pid,
               link->vm_works ? "yes" : link->vm_why, link->name);
    /* Release: all of the above comes before; pairs with the acquire of workers. */
    atomic_store(&link->state, SHM_LINK_READY);
    ferry_shm_kick_all(link->transport);
}

/* ---- mappings ---- */

static struct shm_map **bucket_of(struct shm_link *link, uint64_t id)
{
    /* Ids are random. */
    return &link->buckets[id % SHM_MAP_BUCKETS];
}

static struct shm_map *map_find(struct shm_link *link, uint64_t id)
{
    struct shm_map *map = *bucket_of(link, id);

    while (map != NULL && map->id != id)
        map = map->next;
    return map;
}

struct shm_map *ferry_shm_map_acquire(struct shm_link *link, const struct shm_buffer_attr *attr)
{
    struct shm_map **bucket = bucket_of(link, attr->registration_id);
    struct shm_map *map = map_find(link, attr->registration_id);

    if (map != NULL) {
        map->refs++;
        return map;
    }
    map = calloc(1, sizeof(*map));
    if (map == NULL)
        return NULL;
    map->id = attr->registration_id;
    map->index = attr->index;
    map->refs = 1;
    map->next = *bucket;
    *bucket = map;
    ferry_list_push_back(&link->maps, &map->link);
    return map;
}

void ferry_shm_map_release(struct shm_link *link, struct shm_map *map)
{
    struct shm_map **at = bucket_of(link, map->id);

    if (--map->refs > 0)
        return;
    while (*at != map)
        at = &(*at)->next;
    *at = map->next;
    ferry_list_remove(&map->link);
    if (map->base != NULL)
        munmap(map->base, map->length);
    free(map);
}

static void ask_wanted(struct shm_link *link)
{
    if (!atomic_exchange(&link->wanted, false) && !link->ask_again)
        return;
    link->ask_again = false;
    for (struct ferry_list *l = link->maps.next; l != &link->maps; l = l->next) {
        struct shm_map *map = FERRY_CONTAINER_OF(l, struct shm_map, link);
        struct shm_message question = {
            .kind = SHM_MAP, .index = map->index, .id = map->id, .fds = {-1, -1}};
        enum ferry_status status;

        if (atomic_load(&map->state) != SHM_MAP_WANTED)
            continue;
        status = ferry_shm_message_send(link->peer.fd, &question);
        if (status == FERRY_OK)
            atomic_store(&map->state, SHM_MAP_ASKED);
        else
            link->ask_again = true;
        /* Without room the next turn tries again; one that is gone is noticed by its socket. */
        if (status != FERRY_OK)
            return;
    }
}

/* Shared memory that cannot be mapped here is reached as brought memory is, or not at all. */
static void *map_shared(struct shm_link *link, const struct shm_message *message)
{
    void *base = NULL;

    if (message->fds[0] >= 0 &&
        ferry_shm_map(message->fds[0], message->length, message->writable, &base) != FERRY_OK)
        ferry_warn("shm", "%s segment=%s", ferry_last_error_text(), link->name);
    return base;
}

static void take_mapped(struct shm_link *link, const struct shm_message *message)
{
    struct shm_map *map = map_find(link, message->id);

    /* Its last target was closed meanwhile. */
    if (map == NULL || atomic_load(&map->state) != SHM_MAP_ASKED)
        return;
    if (message->length > 0)
        map->base = map_shared(link, message);
    map->mapped = map->base != NULL;
    map->addr = message->addr;
    map->length = message->length;
    map->writable = message->writable;
    /* Release: the mapping comes before; pairs with the acquire of workers. */
    atomic_store(&map->state, message->length > 0 ? SHM_MAP_READY : SHM_MAP_GONE);
    ferry_shm_kick_all(link->transport);
}

/*
 * Unmap what the peer has taken back, so that its memory is not kept from the system. Its place on
 * the board is another's or nobody's, so no copy on it begins; one that began has a slot of ours.
 */
static void drop_gone(struct shm_link *link)
{
    link->drop_again = false;
    for (struct ferry_list *l = link->maps.next; l != &link->maps; l = l->next) {
        struct shm_map *map = FERRY_CONTAINER_OF(l, struct shm_map, link);

        if (map->base == NULL || atomic_load(&link->board->ids[map->index]) == map->id)
            continue;
        if (ferry_shm_slots_hold(link->slots, map->id)) {
            link->drop_again = true;
            continue;
        }
        atomic_store(&map->state, SHM_MAP_GONE);
        munmap(map->base, map->length);
        map->base = NULL;
    }
}

bool ferry_shm_link_tend(struct shm_link *link)
{
    ask_wanted(link);
    if (link->drop_again)
        drop_gone(link);
    return link->ask_again || link->drop_again;
}

void ferry_shm_link_input(struct shm_link *link)
{
    for (;;) {
        struct shm_message message;
        enum ferry_status status = ferry_shm_message_receive(link->peer.fd, &message);
        bool meeting = atomic_load(&link->state) == SHM_LINK_MEETING;

        if (status == FERRY_ERR_QUEUE_FULL)
            return;
        if (status != FERRY_OK) {
            ferry_shm_link_end(link, SHM_LINK_DEAD, "%s", ferry_last_error_text());
            return;
        }
        if (message.kind == SHM_WELCOME && meeting)
            take_welcome(link, &message);
        else if (message.kind == SHM_REFUSED)
            ferry_shm_link_end(link, SHM_LINK_REFUSED, "it refuses: %s", message.text);
        else if (message.kind == SHM_MAPPED && !meeting)
            take_mapped(link, &message);
        else if (message.kind == SHM_CHANGED && !meeting)
            drop_gone(link);
        else
            ferry_shm_link_end(link, SHM_LINK_DEAD, "it said something that does not belong here");
        ferry_shm_message_close_fds(&message);
        if (link->peer.fd < 0)
            return;
    }
}

void ferry_shm_link_free(struct shm_link *link)
{
    ferry_list_remove(&link->link);
    ferry_shm_peer_close(&link->peer);
    if (link->board != NULL)
        munmap(link->board, sizeof(*link->board));
    if (link->slots != NULL)
        munmap(link->slots, sizeof(*link->slots));
    free(link->name);
    free(link);
}
