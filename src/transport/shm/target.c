/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The view of a peer's segment: its buffers, and the link to the peer, which all views of one life
 * of a peer share. Any thread; takes the mutex to open, close and explain, and no lock to find a
 * buffer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "transport/shm/internal.h"

/* A host, a network for abstract names, and a user: without one of them there is no way. */
static enum ferry_status check_place(const struct shm_transport *transport, const char *name,
                                     const struct shm_segment_attr *attr)
{
    if (strcmp(attr->boot_id, transport->boot_id) != 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "shm: segment %s is on another host", name);
    if (attr->user != geteuid())
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "shm: segment %s belongs to user %llu, this process to %u", name,
                          (unsigned long long)attr->user, geteuid());
    if (attr->socket[0] == '@' && attr->network != transport->network)
        return ferry_fail(
            FERRY_ERR_UNSUPPORTED,
            "shm: segment %s is in another network namespace, where its socket cannot "
            "be seen; set transports.shm.socket_dir to a folder that both see",
            name);
    return FERRY_OK;
}

/* Under the mutex. One that failed is given another chance with a new view. */
static struct shm_link *link_find(struct shm_transport *transport,
                                  const struct shm_segment_attr *attr)
{
    for (struct ferry_list *l = transport->links.next; l != &transport->links; l = l->next) {
        struct shm_link *link = FERRY_CONTAINER_OF(l, struct shm_link, link);

        if (link->targets > 0 && strcmp(link->socket, attr->socket) == 0 &&
            memcmp(link->incarnation, attr->incarnation, sizeof(link->incarnation)) == 0 &&
            atomic_load(&link->state) <= SHM_LINK_READY)
            return link;
    }
    return NULL;
}

static struct shm_link *link_create(struct shm_transport *transport, const char *name,
                                    const struct shm_segment_attr *attr)
{
    struct shm_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    link->name = strdup(name);
    if (link->name == NULL) {
        free(link);
        return NULL;
    }
    link->transport = transport;
    memcpy(link->socket, attr->socket, sizeof(link->socket));
    memcpy(link->incarnation, attr->incarnation, sizeof(link->incarnation));
    link->peer = (struct shm_peer){.fd = -1, .pidfd = -1};
    ferry_list_init(&link->maps);
    /* At once: by the first request the peers have met, and a selector knows. */
    atomic_store(&link->asked, true);
    ferry_list_push_back(&transport->links, &link->link);
    return link;
}

static enum ferry_status read_buffers(const struct ferry_document *doc, struct shm_target *target)
{
    for (uint32_t i = 0; i < doc->buffer_count; i++) {
        const struct ferry_document_buffer *from = &doc->buffers[i];
        const char *text = ferry_document_buffer_attr(from, FERRY_SHM_WIRE_ID);
        struct shm_target_buffer *to = &target->buffers[target->buffer_count];

        if (text == NULL)
            continue;
        if (ferry_shm_buffer_attr_parse(text, &to->attr) != FERRY_OK)
            return FERRY_ERR_METADATA;
        to->addr = from->addr;
        to->length = from->length;
        target->buffer_count++;
    }
    return FERRY_OK;
}

/* Under the mutex. Accepts a target that got some of its mappings. */
static void drop_link(struct shm_target *target)
{
    if (target->link == NULL)
        return;
    for (uint32_t i = 0; i < target->buffer_count; i++) {
        if (target->buffers[i].map != NULL)
            ferry_shm_map_release(target->link, target->buffers[i].map);
    }
    target->link->targets--;
}

static enum ferry_status take_link(struct shm_transport *transport, const char *name,
                                   const struct shm_segment_attr *attr, struct shm_target *target)
{
    struct shm_link *link;
    bool complete;

    pthread_mutex_lock(&transport->mutex);
    link = link_find(transport, attr);
    if (link == NULL)
        link = link_create(transport, name, attr);
    complete = link != NULL;
    if (complete) {
        target->link = link;
        link->targets++;
    }
    for (uint32_t i = 0; complete && i < target->buffer_count; i++) {
        target->buffers[i].map = ferry_shm_map_acquire(link, &target->buffers[i].attr);
        complete = target->buffers[i].map != NULL;
    }
    if (!complete)
        drop_link(target);
    pthread_mutex_unlock(&transport->mutex);
    ferry_shm_meet_wake(transport);
    return complete
               ? FERRY_OK
               : ferry_fail(FERRY_ERR_NO_MEMORY, "shm: out of memory for the view of %s", name);
}

enum ferry_status ferry_shm_target_open(struct ferry_transport *base,
                                        const struct ferry_document *doc,
                                        struct ferry_target **target_out)
{
    struct shm_transport *transport = ferry_shm_of(base);
    const char *text = ferry_document_attr(doc, FERRY_SHM_WIRE_ID);
    FERRY_AUTO_FREE struct shm_target *target = NULL;
    struct shm_segment_attr attr;
    enum ferry_status status;

    if (text == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "segment %s does not offer shm", doc->name);
    if (ferry_shm_segment_attr_parse(text, &attr) != FERRY_OK)
        return FERRY_ERR_METADATA;
    status = check_place(transport, doc->name, &attr);
    if (status != FERRY_OK)
        return status;
    target = calloc(1, sizeof(*target) + doc->buffer_count * sizeof(target->buffers[0]));
    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "shm: out of memory for the view of %s", doc->name);
    status = read_buffers(doc, target);
    if (status == FERRY_OK)
        status = take_link(transport, doc->name, &attr, target);
    if (status != FERRY_OK)
        return status;
    target->base.transport = base;
    target->base.max_transfer_bytes = attr.max_transfer_bytes < transport->settings.transfer_max
                                          ? attr.max_transfer_bytes
                                          : transport->settings.transfer_max;
    *target_out = &ferry_take_ptr(&target)->base;
    return FERRY_OK;
}

void ferry_shm_target_close(struct ferry_target *base)
{
    struct shm_target *target = FERRY_CONTAINER_OF(base, struct shm_target, base);
    struct shm_transport *transport = ferry_shm_of(base->transport);

    pthread_mutex_lock(&transport->mutex);
    drop_link(target);
    pthread_mutex_unlock(&transport->mutex);
    /* The meeting thread frees a link that nobody uses. */
    ferry_shm_meet_wake(transport);
    free(target);
}

const struct shm_target_buffer *ferry_shm_target_find(const struct shm_target *target,
                                                      uint64_t addr, uint64_t length)
{
    uint32_t low = 0;
    uint32_t high = target->buffer_count;

    while (high > low) {
        uint32_t middle = low + (high - low) / 2;

        if (target->buffers[middle].addr <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || !ferry_range_within(addr, length, target->buffers[low - 1].addr,
                                        target->buffers[low - 1].length))
        return NULL;
    return &target->buffers[low - 1];
}

void ferry_shm_target_explain(struct ferry_target *base, char *buf, size_t buf_len)
{
    struct shm_target *target = FERRY_CONTAINER_OF(base, struct shm_target, base);
    struct shm_transport *transport = ferry_shm_of(base->transport);
    uint32_t state;

    pthread_mutex_lock(&transport->mutex);
    state = atomic_load(&target->link->state);
    if (state == SHM_LINK_READY)
        snprintf(buf, buf_len, "%s%s",
                 target->link->vm_works ? "" : "brought memory: ", target->link->vm_why);
    else
        snprintf(buf, buf_len, "%s", target->link->why);
    pthread_mutex_unlock(&transport->mutex);
}

static enum ferry_reach met_reach(const struct shm_link *link,
                                  const struct shm_target_buffer *buffer, char *why)
{
    const struct shm_map *map = buffer != NULL ? buffer->map : NULL;
    bool brought = map != NULL && !buffer->attr.shared;

    /* Shared, but it could not be mapped here. */
    if (map != NULL && atomic_load(&map->state) == SHM_MAP_READY && !map->mapped)
        brought = true;
    /* A range that is nobody's is told so by the request's end. */
    if (!brought || link->vm_works)
        return FERRY_REACH_YES;
    if (why != NULL)
        snprintf(why, FERRY_REACH_TEXT_SIZE, "shm: memory that the engine did not allocate: %.140s",
                 link->vm_why);
    return FERRY_REACH_NO;
}

enum ferry_reach ferry_shm_target_reach(struct ferry_target *base, uint64_t addr, uint64_t length,
                                        char *why)
{
    struct shm_target *target = FERRY_CONTAINER_OF(base, struct shm_target, base);
    struct shm_transport *transport = ferry_shm_of(base->transport);
    struct shm_link *link = target->link;
    uint32_t state = atomic_load(&link->state);

    if (state == SHM_LINK_READY)
        return met_reach(link, ferry_shm_target_find(target, addr, length), why);
    if (state == SHM_LINK_NEW || state == SHM_LINK_MEETING) {
        if (why != NULL)
            snprintf(why, FERRY_REACH_TEXT_SIZE, "shm: the peers have not met yet");
        return FERRY_REACH_UNKNOWN;
    }
    if (why != NULL) {
        pthread_mutex_lock(&transport->mutex);
        snprintf(why, FERRY_REACH_TEXT_SIZE, "shm: %.180s", link->why);
        pthread_mutex_unlock(&transport->mutex);
    }
    /* Ask for another meeting: this one may have failed for a moment's reason. */
    if (!atomic_exchange(&link->asked, true))
        ferry_shm_meet_wake(transport);
    return FERRY_REACH_NO;
}
