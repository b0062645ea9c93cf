/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which memory is registered, for the backend that can make use of knowing it. Registrations come
 * before the first file is opened as well as after; each range is told once, by whichever thread
 * comes first, and is forgotten before unregistering it returns.
 */
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "transport/file/internal.h"

/* Under the mutex; NULL if it is not known. */
static struct file_buffer *find(struct file_transport *ft, uint64_t id)
{
    for (size_t i = 0; i < ft->buffer_count; i++) {
        if (ft->buffers[i].id == id)
            return &ft->buffers[i];
    }
    return NULL;
}

/* Under the mutex. */
static bool append(struct file_transport *ft, const struct file_buffer *buffer)
{
    if (ft->buffer_count == ft->buffer_room) {
        size_t room = ft->buffer_room == 0 ? 16 : ft->buffer_room * 2;
        struct file_buffer *grown = realloc(ft->buffers, room * sizeof(*grown));

        if (grown == NULL)
            return false;
        ft->buffers = grown;
        ft->buffer_room = room;
    }
    ft->buffers[ft->buffer_count++] = *buffer;
    return true;
}

enum ferry_status ferry_file_add_buffer(struct ferry_transport *transport,
                                        const struct ferry_registry_buffer *buffer)
{
    struct file_transport *ft = file_transport_of(transport);
    struct file_buffer own = {
        .id = buffer->registration_id,
        .base = (void *)(uintptr_t)buffer->addr,
        .length = buffer->length,
    };
    struct ferry_file_backend *backend = NULL;
    bool ok = true;

    if (!ft->settings.enabled[FILE_BACKEND_GDS] || !ft->settings.gds_register)
        return FERRY_OK;
    pthread_mutex_lock(&ft->buffers_mutex);
    if (find(ft, own.id) == NULL) {
        backend = ft->buffer_backend;
        own.told = backend != NULL;
        ok = append(ft, &own);
    }
    pthread_mutex_unlock(&ft->buffers_mutex);
    if (!ok)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    if (backend != NULL)
        ferry_file_backend_add_buffer(backend, own.base, own.length);
    return FERRY_OK;
}

/* Under the mutex: until the dispatcher has told one, or the deadline passed. */
static bool await_told(struct file_transport *ft, uint64_t deadline_ns)
{
    struct timespec until = {
        .tv_sec = (time_t)(deadline_ns / FERRY_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % FERRY_NS_PER_S),
    };

    return pthread_cond_clockwait(&ft->buffers_told, &ft->buffers_mutex, CLOCK_MONOTONIC, &until) ==
           0;
}

enum ferry_status ferry_file_remove_buffer(struct ferry_transport *transport,
                                           uint64_t registration_id, uint64_t deadline_ns)
{
    struct file_transport *ft = file_transport_of(transport);
    struct ferry_file_backend *backend = NULL;
    struct file_buffer own = {0};
    struct file_buffer *found;

    pthread_mutex_lock(&ft->buffers_mutex);
    found = find(ft, registration_id);
    while (found != NULL && found->telling) {
        if (!await_told(ft, deadline_ns)) {
            pthread_mutex_unlock(&ft->buffers_mutex);
            return ferry_fail(FERRY_ERR_BUSY, "file: cuFile is being told of the memory");
        }
        found = find(ft, registration_id);
    }
    if (found != NULL) {
        own = *found;
        *found = ft->buffers[--ft->buffer_count];
        if (own.told)
            backend = ft->buffer_backend;
    }
    pthread_mutex_unlock(&ft->buffers_mutex);
    if (backend != NULL)
        ferry_file_backend_forget_buffer(backend, own.base, own.length);
    return FERRY_OK;
}

/* The next one that was not told yet. */
static bool take_untold(struct file_transport *ft, struct file_buffer *buffer_out)
{
    bool found = false;

    pthread_mutex_lock(&ft->buffers_mutex);
    for (size_t i = 0; i < ft->buffer_count && !found; i++) {
        found = !ft->buffers[i].told;
        if (!found)
            continue;
        ft->buffers[i].told = true;
        ft->buffers[i].telling = true;
        *buffer_out = ft->buffers[i];
    }
    pthread_mutex_unlock(&ft->buffers_mutex);
    return found;
}

static void told(struct file_transport *ft, uint64_t id)
{
    pthread_mutex_lock(&ft->buffers_mutex);
    /* It is still there: who takes it away waits for this. */
    find(ft, id)->telling = false;
    pthread_cond_broadcast(&ft->buffers_told);
    pthread_mutex_unlock(&ft->buffers_mutex);
}

void ferry_file_buffers_serve(struct file_transport *ft, struct ferry_file_backend *backend)
{
    struct file_buffer buffer;

    pthread_mutex_lock(&ft->buffers_mutex);
    ft->buffer_backend = backend;
    pthread_mutex_unlock(&ft->buffers_mutex);
    while (backend != NULL && take_untold(ft, &buffer)) {
        ferry_file_backend_add_buffer(backend, buffer.base, buffer.length);
        told(ft, buffer.id);
    }
}
