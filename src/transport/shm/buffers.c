/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our buffers that peers may reach: their places on the board, the descriptors that peers map, and
 * the wait for copies of peers when one goes. Any thread; the wait sleeps and looks, since peers
 * wake nobody here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/shm/internal.h"

/* Between two looks at the slots: a chunk of the default length takes about as long. */
#define LOOK_NS (50 * FERRY_NS_PER_US)

static struct shm_buffer **bucket_of(struct shm_transport *transport, uint64_t id)
{
    /* Ids are random. */
    return &transport->buckets[id % SHM_BUCKETS];
}

struct shm_buffer *ferry_shm_buffer_find(struct shm_transport *transport, uint64_t id)
{
    struct shm_buffer *buffer = *bucket_of(transport, id);

    while (buffer != NULL && buffer->id != id)
        buffer = buffer->next;
    return buffer;
}

/* What peers map. A mapping for reading only is made from a descriptor for reading only. */
static enum ferry_status give_fd(const struct ferry_registry_buffer *from,
                                 struct shm_buffer *buffer)
{
    if (from->fd < 0)
        return FERRY_OK;
    if (!buffer->writable)
        return ferry_shm_read_only_fd(from->fd, &buffer->fd);
    buffer->fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
    if (buffer->fd < 0)
        return ferry_fail_errno(errno, "shm: a descriptor for %llu bytes",
                                (unsigned long long)from->length);
    return FERRY_OK;
}

static void buffer_free(struct shm_buffer *buffer)
{
    if (buffer->fd >= 0)
        close(buffer->fd);
    free(buffer);
}

/* Room for the place of a buffer to be given back later without allocating. */
static bool reserve_place(struct shm_transport *transport)
{
    uint32_t capacity = transport->free_capacity > 0 ? 2 * transport->free_capacity : 64;
    uint32_t *places;

    if (transport->free_count > 0 || transport->place_count < transport->free_capacity)
        return true;
    places = realloc(transport->free_places, capacity * sizeof(*places));
    if (places == NULL)
        return false;
    transport->free_places = places;
    transport->free_capacity = capacity;
    return true;
}

/* Under the mutex. */
static enum ferry_status place_buffer(struct shm_transport *transport, struct shm_buffer *buffer)
{
    struct shm_buffer **bucket = bucket_of(transport, buffer->id);

    if (!reserve_place(transport))
        return ferry_fail(FERRY_ERR_NO_MEMORY, "shm: out of memory for a buffer");
    if (transport->free_count == 0 && transport->place_count == SHM_BOARD_ENTRIES)
        return ferry_fail(FERRY_ERR_LIMIT, "shm: more than %u buffers", SHM_BOARD_ENTRIES);
    buffer->index = transport->free_count > 0 ? transport->free_places[--transport->free_count]
                                              : transport->place_count++;
    buffer->next = *bucket;
    *bucket = buffer;
    atomic_store(&transport->board->ids[buffer->index], buffer->id);
    return FERRY_OK;
}

enum ferry_status ferry_shm_add_buffer(struct ferry_transport *base,
                                       const struct ferry_registry_buffer *from)
{
    struct shm_transport *transport = ferry_shm_of(base);
    struct shm_buffer *buffer;
    enum ferry_status status;
    bool known;

    if (from->permission == FERRY_PERMISSION_LOCAL)
        return FERRY_OK;
    pthread_mutex_lock(&transport->mutex);
    known = ferry_shm_buffer_find(transport, from->registration_id) != NULL;
    pthread_mutex_unlock(&transport->mutex);
    if (known)
        return FERRY_OK;
    buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "shm: out of memory for a buffer");
    *buffer = (struct shm_buffer){.id = from->registration_id,
                                  .addr = from->addr,
                                  .length = from->length,
                                  .fd = -1,
                                  .writable = from->permission == FERRY_PERMISSION_READ_WRITE};
    status = give_fd(from, buffer);
    pthread_mutex_lock(&transport->mutex);
    /* Another thread may have registered the same range meanwhile. */
    known = ferry_shm_buffer_find(transport, from->registration_id) != NULL;
    if (status == FERRY_OK && !known)
        status = place_buffer(transport, buffer);
    pthread_mutex_unlock(&transport->mutex);
    if (status != FERRY_OK || known)
        buffer_free(buffer);
    return status;
}

static void look_later(void)
{
    const struct timespec nap = {.tv_nsec = LOOK_NS};

    nanosleep(&nap, NULL);
}

/* Under the mutex: nobody finds it any more, and the place is free. */
static void forget(struct shm_transport *transport, struct shm_buffer *buffer)
{
    struct shm_buffer **at = bucket_of(transport, buffer->id);

    while (*at != buffer)
        at = &(*at)->next;
    *at = buffer->next;
    transport->free_places[transport->free_count++] = buffer->index;
    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = l->next)
        FERRY_CONTAINER_OF(l, struct shm_session, link)->changed = true;
    buffer_free(buffer);
}

enum ferry_status ferry_shm_remove_buffer(struct ferry_transport *base, uint64_t registration_id,
                                          uint64_t deadline_ns)
{
    struct shm_transport *transport = ferry_shm_of(base);
    const struct ferry_clock *clock = base->env->clock;

    for (;;) {
        struct shm_buffer *buffer;
        bool known;
        bool held = false;

        pthread_mutex_lock(&transport->mutex);
        buffer = ferry_shm_buffer_find(transport, registration_id);
        known = buffer != NULL;
        if (known) {
            /* From here on no copy begins: see board.h. */
            atomic_store(&transport->board->ids[buffer->index], 0);
            held = ferry_shm_sessions_hold(transport, registration_id);
            if (!held)
                forget(transport, buffer);
        }
        pthread_mutex_unlock(&transport->mutex);
        /* Peers are told, so that they unmap it. */
        if (known && !held)
            ferry_shm_meet_wake(transport);
        if (!held)
            return FERRY_OK;
        if (ferry_now_ns(clock) >= deadline_ns)
            return ferry_fail(FERRY_ERR_BUSY, "shm: a peer still copies to or from the range");
        look_later();
    }
}

void ferry_shm_buffers_fini(struct shm_transport *transport)
{
    for (uint32_t i = 0; i < SHM_BUCKETS; i++) {
        struct shm_buffer *buffer = transport->buckets[i];

        while (buffer != NULL) {
            struct shm_buffer *next = buffer->next;

            buffer_free(buffer);
            buffer = next;
        }
    }
    free(transport->free_places);
}
