/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local memory on the devices: each range is registered on each open context, with a token of its
 * own drawn for that registration, in pieces where a device has a limit. What is published is what
 * was registered.
 *
 * The table is under buffer_mutex, off the way of requests; those look a range up in an immutable
 * sorted copy, which is replaced as a whole. A replaced copy is freed once nobody is inside a look
 * up. Native calls are made under the mutex: they are the control path, and must not cross.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/ub/internal.h"

#define BUSY_NAP_NS FERRY_NS_PER_MS

static struct ub_buffer *buffer_of(struct ferry_list *link)
{
    return FERRY_CONTAINER_OF(link, struct ub_buffer, link);
}

static uint64_t piece_length(const struct ub_buffer *buffer, uint32_t piece)
{
    uint64_t at = piece * buffer->piece_bytes;
    uint64_t left = buffer->length - at;

    return left < buffer->piece_bytes ? left : buffer->piece_bytes;
}

static uint32_t access_of(enum ferry_permission permission)
{
    switch (permission) {
    case FERRY_PERMISSION_READ_ONLY:
        return FERRY_URMA_ACCESS_READ;
    case FERRY_PERMISSION_READ_WRITE:
        return FERRY_URMA_ACCESS_READ | FERRY_URMA_ACCESS_WRITE;
    default:
        return FERRY_URMA_ACCESS_LOCAL;
    }
}

/* ---- native registration, under buffer_mutex ---- */

static bool unregister_on(struct ub_buffer *buffer, struct ub_ctx *ctx)
{
    bool gone = true;

    for (uint32_t i = 0; i < buffer->piece_count; i++) {
        struct ub_piece *piece = &buffer->pieces[ctx->index * buffer->piece_count + i];

        if (ferry_urma_mem_unregister(&ctx->transport->urma, &piece->mem).class != FERRY_URMA_OK)
            gone = false;
    }
    return gone;
}

static enum ferry_status register_on(struct ub_buffer *buffer, struct ub_ctx *ctx)
{
    struct ferry_random *random = ctx->transport->base.env->random;

    for (uint32_t i = 0; i < buffer->piece_count; i++) {
        struct ub_piece *piece = &buffer->pieces[ctx->index * buffer->piece_count + i];
        struct ferry_urma_mem_spec spec = {
            .addr = (void *)(uintptr_t)(buffer->addr + i * buffer->piece_bytes),
            .length = piece_length(buffer, i),
            .access = access_of(buffer->permission),
            .token = (uint32_t)ferry_random_u64(random),
        };
        struct ferry_urma_status status;

        FERRY_ASSERT(piece->mem == NULL);
        status = ferry_urma_mem_register(&ctx->transport->urma, ctx->native, &spec, &piece->mem);
        if (status.class != FERRY_URMA_OK) {
            unregister_on(buffer, ctx);
            return ferry_fail(FERRY_ERR_DEVICE,
                              "ub: %s does not take a range of %llu bytes (%s, native %d)",
                              ctx->topology_id, (unsigned long long)spec.length,
                              ferry_urma_class_name(status.class), status.native);
        }
        piece->token = spec.token;
    }
    buffer->generation = ++ctx->transport->buffer_generation;
    return FERRY_OK;
}

static bool unregister_everywhere(struct ub_transport *transport, struct ub_buffer *buffer)
{
    bool gone = true;

    for (uint32_t i = 0; i < transport->ctx_count; i++)
        gone = unregister_on(buffer, &transport->ctxs[i]) && gone;
    return gone;
}

/* ---- the sorted copy, under buffer_mutex ---- */

static void free_old_views(struct ub_transport *transport)
{
    /* In one order with the readers' counting and their load of the view: nobody inside now means
     * nobody with an old copy. */
    if (atomic_load(&transport->view_readers) > 0)
        return;
    while (transport->old_views != NULL) {
        struct ub_buffer_view *view = transport->old_views;

        transport->old_views = view->older;
        free(view->dropped);
        free(view);
    }
}

static int compare(const void *left, const void *right)
{
    const struct ub_buffer *a = *(struct ub_buffer *const *)left;
    const struct ub_buffer *b = *(struct ub_buffer *const *)right;

    return (a->addr > b->addr) - (a->addr < b->addr);
}

/* @dropped goes with the copy that is replaced; NULL: none does. */
static enum ferry_status replace_view(struct ub_transport *transport, struct ub_buffer *dropped)
{
    struct ub_buffer_view *old = atomic_load(&transport->view);
    struct ub_buffer_view *view = calloc(1, sizeof(*view) +
                                                transport->buffer_count * sizeof(view->buffers[0]));

    if (view == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for the list of ranges");
    for (struct ferry_list *link = transport->buffers.next; link != &transport->buffers;
         link = link->next) {
        if (!buffer_of(link)->going)
            view->buffers[view->count++] = buffer_of(link);
    }
    qsort(view->buffers, view->count, sizeof(view->buffers[0]), compare);
    atomic_store(&transport->view, view);
    if (old != NULL) {
        old->older = transport->old_views;
        old->dropped = dropped;
        transport->old_views = old;
    } else {
        free(dropped);
    }
    free_old_views(transport);
    return FERRY_OK;
}

struct ub_buffer *ferry_ub_buffer_find(struct ub_transport *transport, uint64_t addr,
                                       uint64_t length)
{
    struct ub_buffer_view *view;
    struct ub_buffer *found = NULL;
    uint32_t low = 0;
    uint32_t high;

    atomic_fetch_add(&transport->view_readers, 1);
    view = atomic_load(&transport->view);
    high = view != NULL ? view->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (view->buffers[middle]->addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low > 0 && ferry_range_within(addr, length, view->buffers[low - 1]->addr,
                                      view->buffers[low - 1]->length))
        found = view->buffers[low - 1];
    /* The caller's lease keeps the buffer; the copy may go from here on. */
    atomic_fetch_sub(&transport->view_readers, 1);
    return found;
}

/* ---- add and remove ---- */

static struct ub_buffer *find_by_id(struct ub_transport *transport, uint64_t registration_id)
{
    for (struct ferry_list *link = transport->buffers.next; link != &transport->buffers;
         link = link->next) {
        if (buffer_of(link)->registration_id == registration_id)
            return buffer_of(link);
    }
    return NULL;
}

/* "cpu:3" is node 3; everything else says nothing. */
static int32_t node_of(const char *location)
{
    int node;

    return sscanf(location, "cpu:%d", &node) == 1 && node >= 0 ? node : -1;
}

static enum ferry_status buffer_create(struct ub_transport *transport,
                                       const struct ferry_registry_buffer *from,
                                       struct ub_buffer **buffer_out)
{
    uint64_t pieces = (from->length - 1) / transport->piece_bytes + 1;
    struct ub_buffer *buffer;

    if (pieces * transport->ctx_count > UB_PIECES_MAX)
        return ferry_fail(FERRY_ERR_LIMIT,
                          "ub: %llu bytes would take %llu registrations of at most %llu bytes on "
                          "each of %u devices; at most %u in all",
                          (unsigned long long)from->length, (unsigned long long)pieces,
                          (unsigned long long)transport->piece_bytes, transport->ctx_count,
                          UB_PIECES_MAX);
    buffer = calloc(1, sizeof(*buffer) + pieces * transport->ctx_count * sizeof(struct ub_piece));
    if (buffer == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for a range");
    buffer->registration_id = from->registration_id;
    buffer->addr = from->addr;
    buffer->length = from->length;
    buffer->permission = from->permission;
    buffer->numa_node = node_of(from->location);
    snprintf(buffer->location, sizeof(buffer->location), "%s", from->location);
    buffer->piece_bytes = transport->piece_bytes;
    buffer->piece_count = (uint32_t)pieces;
    *buffer_out = buffer;
    return FERRY_OK;
}

/* Take the buffer out of the table if nothing native is left of it. */
static bool drop_if_gone(struct ub_transport *transport, struct ub_buffer *buffer)
{
    if (!unregister_everywhere(transport, buffer))
        return false;
    ferry_list_remove(&buffer->link);
    transport->buffer_count--;
    /* Without memory for a new copy the old one keeps the buffer, which is unregistered. */
    if (replace_view(transport, buffer) != FERRY_OK) {
        ferry_list_push_back(&transport->buffers, &buffer->link);
        transport->buffer_count++;
        return false;
    }
    return true;
}

enum ferry_status ferry_ub_add_buffer(struct ferry_transport *base,
                                      const struct ferry_registry_buffer *from)
{
    struct ub_transport *transport = ferry_ub_of(base);
    struct ub_buffer *buffer = NULL;
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&transport->buffer_mutex);
    if (find_by_id(transport, from->registration_id) != NULL) {
        pthread_mutex_unlock(&transport->buffer_mutex);
        return FERRY_OK;
    }
    status = buffer_create(transport, from, &buffer);
    for (uint32_t i = 0; i < transport->ctx_count && status == FERRY_OK; i++) {
        if (transport->ctxs[i].takes_buffers)
            status = register_on(buffer, &transport->ctxs[i]);
        if (status != FERRY_OK && unregister_everywhere(transport, buffer)) {
            free(buffer);
            buffer = NULL;
        }
    }
    if (buffer != NULL) {
        /* One that could not be rolled back stays known, so that its removal is tried again. */
        buffer->going = status != FERRY_OK;
        ferry_list_push_back(&transport->buffers, &buffer->link);
        transport->buffer_count++;
        if (status == FERRY_OK)
            status = replace_view(transport, NULL);
    }
    pthread_mutex_unlock(&transport->buffer_mutex);
    /* A description that was printed meanwhile says that no device has the range. */
    if (status == FERRY_OK)
        ferry_registry_touch(base->env->registry);
    return status;
}

static void nap(const struct ub_transport *transport)
{
    struct timespec pause = {.tv_nsec = BUSY_NAP_NS};

    if (transport->base.env->step != NULL)
        transport->base.env->step(transport->base.env->step_arg);
    else
        nanosleep(&pause, NULL);
}

enum ferry_status ferry_ub_remove_buffer(struct ferry_transport *base, uint64_t registration_id,
                                         uint64_t deadline_ns)
{
    struct ub_transport *transport = ferry_ub_of(base);

    for (;;) {
        struct ub_buffer *buffer;
        bool gone = true;

        pthread_mutex_lock(&transport->buffer_mutex);
        buffer = find_by_id(transport, registration_id);
        if (buffer != NULL) {
            buffer->going = true;
            gone = drop_if_gone(transport, buffer);
        }
        pthread_mutex_unlock(&transport->buffer_mutex);
        if (gone)
            return FERRY_OK;
        if (ferry_ub_now(transport) >= deadline_ns)
            return ferry_fail(FERRY_ERR_BUSY, "ub: a device does not let go of a range");
        nap(transport);
    }
}

/* ---- a context comes and goes ---- */

enum ferry_status ferry_ub_buffers_register_on(struct ub_ctx *ctx)
{
    struct ub_transport *transport = ctx->transport;
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&transport->buffer_mutex);
    for (struct ferry_list *link = transport->buffers.next;
         link != &transport->buffers && status == FERRY_OK; link = link->next) {
        if (!buffer_of(link)->going)
            status = register_on(buffer_of(link), ctx);
    }
    ctx->takes_buffers = status == FERRY_OK;
    pthread_mutex_unlock(&transport->buffer_mutex);
    return status;
}

bool ferry_ub_buffers_unregister_from(struct ub_ctx *ctx)
{
    struct ub_transport *transport = ctx->transport;
    bool gone = true;

    pthread_mutex_lock(&transport->buffer_mutex);
    ctx->takes_buffers = false;
    for (struct ferry_list *link = transport->buffers.next; link != &transport->buffers;
         link = link->next)
        gone = unregister_on(buffer_of(link), ctx) && gone;
    pthread_mutex_unlock(&transport->buffer_mutex);
    return gone;
}

void ferry_ub_buffers_free(struct ub_transport *transport)
{
    struct ub_buffer_view *view = atomic_load(&transport->view);
    struct ferry_list *link;

    while (transport->buffers.next != NULL &&
           (link = ferry_list_pop_front(&transport->buffers)) != NULL)
        free(buffer_of(link));
    free(view);
    atomic_store(&transport->view, NULL);
    free_old_views(transport);
}
