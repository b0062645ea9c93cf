/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets, peers and imports. A target is the binary view of one description of a peer's segment; a
 * peer is one incarnation of it, with what each worker knows of the paths there. A newer
 * description of the same incarnation shares the peer, so endpoints survive a refresh; its imports
 * are its own, so that old keys end with the old description.
 *
 * Any thread; the lists are under the transport's mutex. A worker imports a piece when it first
 * needs it, under import_mutex; after that it is one atomic load.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "metadata/document.h"
#include "transport/ub/internal.h"

/* Imports that the provider would not release when their target closed. */
struct zombie {
    struct ferry_list link;
    struct ferry_urma_rmem *rmem;
    struct ub_ctx *ctx;
};

/* ---- peers ---- */

static void peer_free(struct ub_peer *peer)
{
    free(peer->name);
    free(peer->address);
    free(peer->paths);
    free(peer->retires);
    free(peer);
}

/* The last worker to let go of a peer frees it. */
static void run_retire(struct ferry_worker *base, struct ferry_job *job)
{
    struct ub_peer_retire *retire = FERRY_CONTAINER_OF(job, struct ub_peer_retire, job);
    struct ub_peer *peer = retire->peer;
    struct ub_worker *worker = retire->worker;
    struct ub_transport *transport = peer->transport;
    uint64_t now_ns = ferry_ub_now(transport);

    (void)base;
    for (uint32_t i = 0; i < peer->path_count; i++) {
        struct ub_path *path = ferry_ub_path(worker, peer, i);
        struct ub_endpoint *endpoint = path->endpoint;

        if (endpoint == NULL)
            continue;
        path->endpoint = NULL;
        endpoint->path = NULL;
        ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_FINE, now_ns);
        ferry_ub_endpoint_drop(endpoint);
    }
    ferry_ub_worker_kick(worker);
    if (atomic_fetch_sub(&peer->holds, 1) != 1)
        return;
    peer_free(peer);
    ferry_ub_live_drop(transport);
}

static void make_paths(struct ub_transport *transport, struct ub_peer *peer)
{
    uint32_t locals = transport->ctx_count;
    uint32_t rounds = locals > peer->remote_count ? locals : peer->remote_count;

    for (uint32_t w = 0; w < transport->worker_count; w++) {
        struct ub_path *paths = &peer->paths[(size_t)w * peer->path_count];

        for (uint32_t i = 0; i < peer->path_count; i++) {
            paths[i].local = i / peer->remote_count;
            paths[i].remote = i % peer->remote_count;
        }
        /* Every device of either side is in one pair at least. */
        for (uint32_t i = 0; i < rounds; i++)
            paths[i % locals * peer->remote_count + i % peer->remote_count].primary = true;
    }
}

static enum ferry_status peer_create(struct ub_transport *transport,
                                     const struct ferry_document *doc,
                                     const struct ub_segment_attr *attr, struct ub_peer **peer_out)
{
    struct ub_peer *peer = calloc(1, sizeof(*peer));
    uint32_t workers = transport->worker_count;

    if (peer == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for a peer");
    peer->transport = transport;
    memcpy(peer->incarnation, attr->incarnation, sizeof(peer->incarnation));
    peer->remote_count = attr->device_count;
    while (peer->remote_count * transport->ctx_count > UB_PATHS_MAX)
        peer->remote_count--;
    memcpy(peer->remotes, attr->devices, peer->remote_count * sizeof(peer->remotes[0]));
    peer->path_count = peer->remote_count * transport->ctx_count;
    peer->name = strdup(doc->name);
    peer->address = strdup(doc->rpc_server_addr);
    peer->paths = calloc((size_t)workers * peer->path_count, sizeof(*peer->paths));
    peer->retires = calloc(workers, sizeof(*peer->retires));
    if (peer->name == NULL || peer->address == NULL || peer->paths == NULL ||
        peer->retires == NULL) {
        peer_free(peer);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for the paths to a peer");
    }
    for (uint32_t i = 0; i < workers; i++)
        peer->retires[i] = (struct ub_peer_retire){
            .job = {.run = run_retire}, .peer = peer, .worker = &transport->workers[i]};
    atomic_store(&peer->holds, workers);
    make_paths(transport, peer);
    *peer_out = peer;
    return FERRY_OK;
}

static enum ferry_status peer_acquire(struct ub_transport *transport,
                                      const struct ferry_document *doc,
                                      const struct ub_segment_attr *attr, struct ub_peer **peer_out)
{
    enum ferry_status status = FERRY_OK;
    struct ub_peer *found = NULL;

    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; l != &transport->peers; l = l->next) {
        struct ub_peer *peer = FERRY_CONTAINER_OF(l, struct ub_peer, link);

        if (memcmp(peer->incarnation, attr->incarnation, sizeof(peer->incarnation)) == 0 &&
            strcmp(peer->name, doc->name) == 0 &&
            strcmp(peer->address, doc->rpc_server_addr) == 0 &&
            (peer->remote_count == attr->device_count ||
             attr->device_count * transport->ctx_count > UB_PATHS_MAX))
            found = peer;
    }
    if (found == NULL) {
        status = peer_create(transport, doc, attr, &found);
        if (status == FERRY_OK)
            ferry_list_push_back(&transport->peers, &found->link);
    }
    if (status == FERRY_OK) {
        found->targets++;
        *peer_out = found;
    }
    pthread_mutex_unlock(&transport->mutex);
    return status;
}

static void peer_release(struct ub_peer *peer)
{
    struct ub_transport *transport = peer->transport;
    uint32_t workers = transport->worker_count;
    bool last;

    pthread_mutex_lock(&transport->mutex);
    last = --peer->targets == 0;
    if (last)
        ferry_list_remove(&peer->link);
    pthread_mutex_unlock(&transport->mutex);
    if (!last)
        return;
    ferry_ub_live_add(transport);
    /* The last of the jobs frees the peer, maybe before the loop is at its end. */
    for (uint32_t i = 0; i < workers; i++)
        ferry_worker_post(transport->workers[i].worker, &peer->retires[i].job, false);
}

void ferry_ub_peer_set_trouble(struct ub_peer *peer, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    pthread_mutex_lock(&peer->transport->mutex);
    vsnprintf(peer->trouble, sizeof(peer->trouble), fmt, args);
    pthread_mutex_unlock(&peer->transport->mutex);
    va_end(args);
}

/* ---- imports ---- */

struct ferry_urma_rmem *ferry_ub_import(struct ub_target_buffer *buffer, struct ub_ctx *ctx,
                                        uint32_t device, uint64_t addr)
{
    struct ub_transport *transport = ctx->transport;
    uint32_t index = 0;
    struct ub_import *import;
    struct ferry_urma_rmem *rmem;

    while (index < buffer->piece_count &&
           (buffer->pieces[index].device != device ||
            !ferry_range_within(addr, 1, buffer->pieces[index].descriptor.addr,
                                buffer->pieces[index].descriptor.length)))
        index++;
    if (index == buffer->piece_count)
        return NULL;
    import = &buffer->imports[ctx->index * buffer->piece_count + index];
    rmem = atomic_load_explicit(&import->rmem, memory_order_acquire);
    if (FERRY_LIKELY(rmem != NULL))
        return rmem;
    pthread_mutex_lock(&transport->import_mutex);
    rmem = atomic_load(&import->rmem);
    if (rmem == NULL) {
        struct ferry_urma_import what = {
            .descriptor = &buffer->pieces[index].descriptor,
            .token = buffer->pieces[index].token,
            .access = FERRY_URMA_ACCESS_READ | (buffer->writable ? FERRY_URMA_ACCESS_WRITE : 0),
        };

        if (ferry_urma_rmem_import(&transport->urma, ctx->native, &what, &rmem).class ==
            FERRY_URMA_OK)
            atomic_store(&import->rmem, rmem);
    }
    pthread_mutex_unlock(&transport->import_mutex);
    return rmem;
}

/* Under import_mutex. */
static bool release_import(struct ub_transport *transport, struct ub_import *import)
{
    struct ferry_urma_rmem *rmem = atomic_load(&import->rmem);
    bool gone = ferry_urma_rmem_release(&transport->urma, &rmem).class == FERRY_URMA_OK;

    if (gone)
        atomic_store(&import->rmem, NULL);
    return gone;
}

static bool retry_zombies(struct ub_transport *transport, const struct ub_ctx *ctx)
{
    bool none = true;
    struct ferry_list *next;

    for (struct ferry_list *link = transport->zombies.next; link != &transport->zombies;
         link = next) {
        struct zombie *zombie = FERRY_CONTAINER_OF(link, struct zombie, link);

        next = link->next;
        if (ctx != NULL && zombie->ctx != ctx)
            continue;
        if (ferry_urma_rmem_release(&transport->urma, &zombie->rmem).class != FERRY_URMA_OK) {
            none = false;
            continue;
        }
        ferry_list_remove(link);
        free(zombie);
    }
    return none;
}

bool ferry_ub_zombies_retry(struct ub_transport *transport)
{
    bool none;

    pthread_mutex_lock(&transport->import_mutex);
    none = retry_zombies(transport, NULL);
    pthread_mutex_unlock(&transport->import_mutex);
    return none;
}

bool ferry_ub_imports_release(struct ub_ctx *ctx)
{
    struct ub_transport *transport = ctx->transport;
    bool none = true;

    pthread_mutex_lock(&transport->mutex);
    pthread_mutex_lock(&transport->import_mutex);
    for (struct ferry_list *l = transport->targets.next; l != &transport->targets; l = l->next) {
        struct ub_target *target = FERRY_CONTAINER_OF(l, struct ub_target, link);

        for (uint32_t b = 0; b < target->buffer_count; b++) {
            struct ub_target_buffer *buffer = &target->buffers[b];

            for (uint32_t i = 0; i < buffer->piece_count; i++) {
                if (!release_import(transport,
                                    &buffer->imports[ctx->index * buffer->piece_count + i]))
                    none = false;
            }
        }
    }
    none = retry_zombies(transport, ctx) && none;
    pthread_mutex_unlock(&transport->import_mutex);
    pthread_mutex_unlock(&transport->mutex);
    return none;
}

/* An import whose release is refused is kept for later; the new description does not wait. */
static void release_or_keep(struct ub_transport *transport, struct ub_import *import,
                            struct ub_ctx *ctx)
{
    struct zombie *zombie;

    if (release_import(transport, import))
        return;
    zombie = calloc(1, sizeof(*zombie));
    FERRY_ASSERT(zombie != NULL);
    zombie->rmem = atomic_load(&import->rmem);
    zombie->ctx = ctx;
    ferry_list_push_back(&transport->zombies, &zombie->link);
}

/* ---- targets ---- */

static void buffer_fini(struct ub_transport *transport, struct ub_target_buffer *buffer)
{
    pthread_mutex_lock(&transport->import_mutex);
    for (uint32_t c = 0; buffer->imports != NULL && c < transport->ctx_count; c++) {
        for (uint32_t i = 0; i < buffer->piece_count; i++)
            release_or_keep(transport, &buffer->imports[c * buffer->piece_count + i],
                            &transport->ctxs[c]);
    }
    pthread_mutex_unlock(&transport->import_mutex);
    free(buffer->pieces);
    free(buffer->imports);
    free(buffer->edges);
}

static void target_free(struct ub_target *target)
{
    struct ub_transport *transport = ferry_ub_of(target->base.transport);

    for (uint32_t i = 0; i < target->buffer_count; i++)
        buffer_fini(transport, &target->buffers[i]);
    free(target);
}

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* What a peer publishes is checked against itself: a piece outside of its range is no piece of it.
 */
static enum ferry_status check_pieces(const struct ferry_document_buffer *from,
                                      struct ub_target_buffer *buffer)
{
    for (uint32_t i = 0; i < buffer->piece_count; i++) {
        const struct ferry_urma_descriptor *d = &buffer->pieces[i].descriptor;

        if (!ferry_range_within(d->addr, d->length, from->addr, from->length))
            return ferry_fail(FERRY_ERR_METADATA,
                              "ub buffer attribute: segments[%u] is not inside its buffer", i);
        if (d->addr != from->addr)
            buffer->edges[buffer->edge_count++] = d->addr;
    }
    qsort(buffer->edges, buffer->edge_count, sizeof(*buffer->edges), compare_u64);
    return FERRY_OK;
}

static enum ferry_status buffer_init(struct ub_transport *transport,
                                     const struct ferry_document_buffer *from, const char *text,
                                     struct ub_target_buffer *buffer)
{
    struct ub_buffer_attr attr;
    enum ferry_status status = ferry_ub_buffer_attr_parse(text, &attr);

    if (status == FERRY_ERR_NO_MEMORY)
        return status;
    if (status != FERRY_OK)
        return FERRY_ERR_METADATA;
    buffer->addr = from->addr;
    buffer->length = from->length;
    buffer->writable = attr.writable;
    buffer->piece_count = attr.piece_count;
    buffer->pieces = attr.pieces;
    buffer->edges = calloc(attr.piece_count + 1, sizeof(*buffer->edges));
    buffer->imports = calloc((size_t)transport->ctx_count * attr.piece_count + 1,
                             sizeof(*buffer->imports));
    if (buffer->edges == NULL || buffer->imports == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for a peer's range");
    return check_pieces(from, buffer);
}

static enum ferry_status read_buffers(struct ub_transport *transport,
                                      const struct ferry_document *doc, struct ub_target *target)
{
    for (uint32_t i = 0; i < doc->buffer_count; i++) {
        const char *text = ferry_document_buffer_attr(&doc->buffers[i], FERRY_UB_WIRE_ID);
        enum ferry_status status;

        if (text == NULL)
            continue;
        status = buffer_init(transport, &doc->buffers[i], text,
                             &target->buffers[target->buffer_count++]);
        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

enum ferry_status ferry_ub_target_open(struct ferry_transport *base,
                                       const struct ferry_document *doc,
                                       struct ferry_target **target_out)
{
    struct ub_transport *transport = ferry_ub_of(base);
    const char *text = ferry_document_attr(doc, FERRY_UB_WIRE_ID);
    struct ub_segment_attr attr;
    struct ub_target *target;
    enum ferry_status status;

    if (text == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "segment %s does not offer ub", doc->name);
    status = ferry_ub_segment_attr_parse(text, &attr);
    if (status != FERRY_OK)
        return status == FERRY_ERR_UNSUPPORTED ? status : FERRY_ERR_METADATA;
    if (doc->rpc_server_addr == NULL || doc->rpc_server_addr[0] == '\0')
        return ferry_fail(FERRY_ERR_METADATA, "segment %s names no control plane", doc->name);
    target = calloc(1, sizeof(*target) + doc->buffer_count * sizeof(target->buffers[0]));
    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory for the view of %s", doc->name);
    target->base.transport = base;
    target->base.max_transfer_bytes = attr.max_transfer_bytes <
                                              transport->settings.max_transfer_bytes
                                          ? attr.max_transfer_bytes
                                          : transport->settings.max_transfer_bytes;
    status = read_buffers(transport, doc, target);
    if (status == FERRY_OK)
        status = peer_acquire(transport, doc, &attr, &target->peer);
    if (status != FERRY_OK) {
        target_free(target);
        return status;
    }
    pthread_mutex_lock(&transport->mutex);
    ferry_list_push_back(&transport->targets, &target->link);
    pthread_mutex_unlock(&transport->mutex);
    *target_out = &target->base;
    return FERRY_OK;
}

void ferry_ub_target_close(struct ferry_target *base)
{
    struct ub_target *target = (struct ub_target *)(void *)base;
    struct ub_transport *transport = ferry_ub_of(base->transport);

    pthread_mutex_lock(&transport->mutex);
    ferry_list_remove(&target->link);
    pthread_mutex_unlock(&transport->mutex);
    peer_release(target->peer);
    target_free(target);
}

void ferry_ub_target_explain(struct ferry_target *base, char *buf, size_t buf_len)
{
    ferry_ub_explain(((struct ub_target *)(void *)base)->peer, buf, buf_len);
}
