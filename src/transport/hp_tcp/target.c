/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets and peers. A target is the binary view of one description of a peer's segment; a peer is
 * one incarnation of it, with its lanes. A newer description of the same incarnation shares the
 * peer, so connections survive a refresh; a new incarnation gets a new peer and the old one's lanes
 * retire. Any thread; the list of peers is under the transport's mutex, off the hot path.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hostport.h"
#include "base/log.h"
#include "metadata/document.h"
#include "transport/hp_tcp/attr.h"
#include "transport/hp_tcp/internal.h"

static void peer_free(struct hp_peer *peer)
{
    for (uint32_t i = 0; i < peer->lane_count; i++) {
        free(peer->lanes[i].ops);
        free(peer->lanes[i].stage);
        ferry_hp_question_fini(&peer->lanes[i].question);
        free(peer->lanes[i].lists);
    }
    for (uint32_t i = 0; i < peer->endpoint_count; i++)
        free(peer->endpoints[i].host);
    free(peer->lanes);
    free(peer->rails);
    free(peer->endpoints);
    free(peer->name);
    free(peer);
}

/* A spread of peers over workers: lanes next to each other belong to different workers. */
static uint32_t first_worker(const struct hp_transport *transport, const char *name)
{
    uint32_t hash = 2166136261u;

    for (const char *p = name; *p != '\0'; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return hash % transport->worker_count;
}

static enum ferry_status endpoints_create(struct hp_peer *peer, const struct hp_segment_attr *attr)
{
    peer->endpoints = calloc(attr->endpoint_count, sizeof(*peer->endpoints));
    if (peer->endpoints == NULL)
        return FERRY_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < attr->endpoint_count; i++) {
        struct hp_endpoint *endpoint = &peer->endpoints[i];

        peer->endpoint_count = i + 1;
        endpoint->port = attr->endpoints[i].port;
        endpoint->host = strdup(attr->endpoints[i].host);
        if (endpoint->host == NULL)
            return FERRY_ERR_NO_MEMORY;
    }
    return FERRY_OK;
}

/* Where connections on a local rail leave from. The settings have been checked. */
static struct ferry_socket_address source_of(const char *rail)
{
    struct ferry_socket_address source = {0};
    struct ferry_hostport place;

    if (ferry_host_parse(rail, &place) == FERRY_OK &&
        ferry_hostport_sockaddr(&place, &source.addr, &source.len) != FERRY_OK)
        source.len = 0;
    return source;
}

/*
 * Rail i joins local address i modulo R with endpoint i modulo R', so lanes on both sides of one
 * configuration meet in the published pairs; where the numbers differ, the pairs repeat after
 * their least common multiple.
 */
static enum ferry_status rails_create(struct hp_transport *transport, struct hp_peer *peer)
{
    const struct ferry_hp_settings *settings = &transport->settings;
    uint32_t local = settings->rail_count > 0 ? settings->rail_count : 1;
    uint32_t remote = peer->endpoint_count;
    uint32_t count = local;

    while (count % remote != 0 && count < settings->connections_per_peer)
        count += local;
    if (count > settings->connections_per_peer)
        count = settings->connections_per_peer;
    peer->rails_differ = !peer->speaks_ferry && local != remote;
    peer->rails = calloc(count, sizeof(*peer->rails));
    if (peer->rails == NULL)
        return FERRY_ERR_NO_MEMORY;
    peer->rail_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct hp_rail *rail = &peer->rails[i];

        rail->index = i;
        rail->local_index = i % local;
        rail->endpoint = &peer->endpoints[i % remote];
        if (settings->rail_count > 0)
            rail->source = source_of(settings->rails[rail->local_index]);
    }
    return FERRY_OK;
}

static enum ferry_status lanes_create(struct hp_transport *transport, struct hp_peer *peer)
{
    uint32_t count = transport->settings.connections_per_peer;
    uint32_t window = 2;
    uint32_t first = first_worker(transport, peer->name);

    while (window < transport->settings.window_ops)
        window *= 2;
    peer->lanes = calloc(count, sizeof(*peer->lanes));
    if (peer->lanes == NULL)
        return FERRY_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        struct hp_lane *lane = &peer->lanes[i];

        peer->lane_count = i + 1;
        lane->ops = calloc(window, sizeof(*lane->ops));
        lane->stage = malloc(HP_STAGE_BYTES);
        lane->lists = malloc(HP_LISTS_BYTES);
        if (lane->ops == NULL || lane->stage == NULL || lane->lists == NULL ||
            ferry_hp_question_init(lane, window) != FERRY_OK)
            return FERRY_ERR_NO_MEMORY;
        lane->op_mask = window - 1;
        ferry_hp_lane_init(lane, peer, i,
                           &transport->workers[(first + i) % transport->worker_count]);
    }
    return FERRY_OK;
}

static enum ferry_status peer_create(struct hp_transport *transport, const char *name,
                                     const struct hp_segment_attr *attr, struct hp_peer **peer_out)
{
    struct hp_peer *peer = calloc(1, sizeof(*peer));

    if (peer == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for a peer");
    peer->transport = transport;
    memcpy(peer->incarnation, attr->incarnation, sizeof(peer->incarnation));
    peer->speaks_ferry = attr->speaks_ferry;
    peer->name = strdup(name);
    if (peer->name == NULL || endpoints_create(peer, attr) != FERRY_OK ||
        rails_create(transport, peer) != FERRY_OK || lanes_create(transport, peer) != FERRY_OK) {
        peer_free(peer);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for the lanes of a peer");
    }
    atomic_store(&peer->lanes_alive, peer->lane_count);
    ferry_hp_doubts_unpark(transport, peer->incarnation);
    ferry_hp_isolation_init(peer);
    if (transport->settings.checksum && !peer->speaks_ferry)
        ferry_warn("hp_tcp",
                   "transports.hp_tcp.checksum is on, and %s speaks v1, which has none: what "
                   "crosses to and from it is not checked",
                   name);
    *peer_out = peer;
    return FERRY_OK;
}

static bool peer_matches(const struct hp_peer *peer, const char *name,
                         const struct hp_segment_attr *attr)
{
    if (peer->endpoint_count != attr->endpoint_count || peer->speaks_ferry != attr->speaks_ferry ||
        memcmp(peer->incarnation, attr->incarnation, sizeof(peer->incarnation)) != 0 ||
        strcmp(peer->name, name) != 0)
        return false;
    for (uint32_t i = 0; i < attr->endpoint_count; i++) {
        if (peer->endpoints[i].port != attr->endpoints[i].port ||
            strcmp(peer->endpoints[i].host, attr->endpoints[i].host) != 0)
            return false;
    }
    return true;
}

/* Find or make the peer, with one more target on it. */
static enum ferry_status peer_acquire(struct hp_transport *transport, const char *name,
                                      const struct hp_segment_attr *attr, struct hp_peer **peer_out)
{
    enum ferry_status status = FERRY_OK;
    struct hp_peer *found = NULL;

    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->peers.next; l != &transport->peers; l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        if (peer->targets > 0 && peer_matches(peer, name, attr)) {
            found = peer;
            break;
        }
    }
    if (found == NULL) {
        status = peer_create(transport, name, attr, &found);
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

/* Under the mutex: another peer is a view of the same process. */
static bool is_known(const struct hp_transport *transport, const uint8_t *incarnation)
{
    for (const struct ferry_list *l = transport->peers.next; l != &transport->peers; l = l->next) {
        const struct hp_peer *peer = FERRY_CONTAINER_OF(l, const struct hp_peer, link);

        if (memcmp(peer->incarnation, incarnation, FERRY_INCARNATION_SIZE) == 0)
            return true;
    }
    return false;
}

void ferry_hp_lane_retired(struct hp_lane *lane)
{
    struct hp_peer *peer = lane->peer;
    struct hp_transport *transport = peer->transport;

    if (atomic_fetch_sub(&peer->lanes_alive, 1) != 1)
        return;
    pthread_mutex_lock(&transport->mutex);
    ferry_list_remove(&peer->link);
    if (!is_known(transport, peer->incarnation))
        ferry_hp_doubts_park(transport, peer->incarnation);
    pthread_mutex_unlock(&transport->mutex);
    peer_free(peer);
    ferry_hp_live_drop(transport);
}

static void peer_release(struct hp_peer *peer)
{
    struct hp_transport *transport = peer->transport;
    uint32_t lane_count = peer->lane_count;
    bool last;

    pthread_mutex_lock(&transport->mutex);
    last = --peer->targets == 0;
    pthread_mutex_unlock(&transport->mutex);
    if (!last)
        return;
    /* The retirement is work in progress that close() waits for. */
    ferry_hp_live_add(transport);
    atomic_store(&peer->retiring, true);
    for (uint32_t i = 0; i < lane_count; i++) {
        struct hp_lane *lane = &peer->lanes[i];

        ferry_worker_post(lane->worker->worker, &lane->retire_job, false);
    }
}

static enum ferry_status read_buffers(const struct ferry_document *doc, int wire_id,
                                      struct hp_target *target)
{
    for (uint32_t i = 0; i < doc->buffer_count; i++) {
        const struct ferry_document_buffer *from = &doc->buffers[i];
        const char *text = ferry_document_buffer_attr(from, wire_id);
        struct hp_target_buffer *to = &target->buffers[target->buffer_count];

        if (text == NULL)
            continue;
        if (ferry_hp_buffer_attr_parse(text, &to->registration_id, &to->writable) != FERRY_OK)
            return FERRY_ERR_METADATA;
        to->addr = from->addr;
        to->length = from->length;
        target->buffer_count++;
    }
    return FERRY_OK;
}

enum ferry_status ferry_hp_target_open(struct ferry_transport *base,
                                       const struct ferry_document *doc,
                                       struct ferry_target **target_out)
{
    struct hp_transport *transport = ferry_hp_of(base);
    const char *text = ferry_document_attr(doc, base->ops->wire_id);
    FERRY_AUTO_FREE struct hp_target *target = NULL;
    struct hp_segment_attr attr;
    enum ferry_status status;

    if (text == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "segment %s does not offer hp_tcp", doc->name);
    if (ferry_hp_segment_attr_parse(text, &attr) != FERRY_OK)
        return FERRY_ERR_METADATA;
    if (!attr.speaks_ferry && ferry_access_on(base->env->access))
        return ferry_fail(
            FERRY_ERR_REFUSED,
            "segment %s speaks v1 over hp_tcp, which can prove no key and use no TLS; "
            "access control is on here (auth_key_file, tls)",
            doc->name);
    target = calloc(1, sizeof(*target) + doc->buffer_count * sizeof(target->buffers[0]));
    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for the view of %s",
                          doc->name);
    status = read_buffers(doc, base->ops->wire_id, target);
    if (status == FERRY_OK)
        status = peer_acquire(transport, doc->name, &attr, &target->peer);
    if (status != FERRY_OK)
        return status;
    target->base.transport = base;
    target->base.max_transfer_bytes = attr.max_transfer_bytes <
                                              transport->settings.max_transfer_bytes
                                          ? attr.max_transfer_bytes
                                          : transport->settings.max_transfer_bytes;
    *target_out = &ferry_take_ptr(&target)->base;
    return FERRY_OK;
}

void ferry_hp_target_close(struct ferry_target *base)
{
    struct hp_target *target = (struct hp_target *)(void *)base;

    peer_release(target->peer);
    free(target);
}

void ferry_hp_target_explain(struct ferry_target *base, char *buf, size_t buf_len)
{
    struct hp_peer *peer = ((struct hp_target *)(void *)base)->peer;

    pthread_mutex_lock(&peer->transport->mutex);
    snprintf(buf, buf_len, "%s", peer->trouble);
    pthread_mutex_unlock(&peer->transport->mutex);
}

void ferry_hp_peer_set_trouble(struct hp_peer *peer, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    pthread_mutex_lock(&peer->transport->mutex);
    vsnprintf(peer->trouble, sizeof(peer->trouble), fmt, args);
    pthread_mutex_unlock(&peer->transport->mutex);
    va_end(args);
}
