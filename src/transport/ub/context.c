/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: which devices are used, and what becomes of one that loses its ports, its EID or its
 * life.
 *
 *   CLOSED --open--> ACTIVE <--ports--> DOWN
 *      ^                |                 |
 *      |                +--lost-----------+
 *      |                v
 *      +--recycle---- LOST   (all its endpoints are retired first)
 *
 * Opened at the start on the opening thread; after that worker 0 looks for events and sends the
 * pool to refresh or to recycle, one job a context at a time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/ub/internal.h"

#define LOOK_BUSY_NS  (20 * FERRY_NS_PER_MS)
#define LOOK_IDLE_NS  (500 * FERRY_NS_PER_MS)
#define EVENTS_A_LOOK 32

/* The smallest length of one request that the published default has; smaller limits are a fault. */
#define REQUEST_BYTES_ASSUMED (64u << 10)
#define JETTY_DEPTH_ASSUMED   64u

static void set_state(struct ub_ctx *ctx, enum ub_ctx_state state)
{
    atomic_store(&ctx->state, state);
}

static bool filtered(const struct ub_transport *transport, const char *name)
{
    size_t count = ferry_config_list_len(transport->config, "transports.ub.device_filter");

    for (size_t i = 0; i < count; i++) {
        if (strcmp(ferry_config_list_item(transport->config, "transports.ub.device_filter", i),
                   name) == 0)
            return false;
    }
    return count > 0;
}

/* Bonding devices move for their members: with one there, the members are left alone. */
static bool bonding(const char *name)
{
    return strncmp(name, "bonding", 7) == 0;
}

static uint32_t smaller(uint64_t wanted, uint64_t limit, uint64_t assumed)
{
    if (limit == 0)
        limit = wanted < assumed ? wanted : assumed;
    return (uint32_t)(wanted < limit ? wanted : limit);
}

static void describe(struct ub_ctx *ctx, const struct ferry_topology_ub *device)
{
    const struct ferry_ub_settings *settings = &ctx->transport->settings;
    const struct ferry_urma_caps *caps = &device->native.caps;
    uint64_t request_max = caps->read_bytes_max;
    uint16_t bit = (uint16_t)(1u << settings->priority);

    if (request_max == 0 || (caps->write_bytes_max != 0 && caps->write_bytes_max < request_max))
        request_max = caps->write_bytes_max;
    ctx->device = *device;
    ctx->caps = *caps;
    snprintf(ctx->topology_id, sizeof(ctx->topology_id), "%s", device->id);
    ctx->numa_node = device->numa_node;
    ctx->request_bytes_max = smaller(settings->slice_bytes, request_max, REQUEST_BYTES_ASSUMED);
    ctx->jetty_depth = smaller(settings->jetty_depth, caps->jetty_depth_max, JETTY_DEPTH_ASSUMED);
    ctx->segment_bytes_max = settings->segment_bytes_max;
    if (caps->segment_bytes_max != 0 &&
        (ctx->segment_bytes_max == 0 || caps->segment_bytes_max < ctx->segment_bytes_max))
        ctx->segment_bytes_max = caps->segment_bytes_max;
    ctx->path_type = settings->path_type;
    /* The bits of the kind that will be used decide, not those of the other. */
    if (settings->path_auto)
        ctx->path_type = (caps->priority_ctp & bit) != 0 || caps->priority_rtp == 0
                             ? FERRY_URMA_PATH_CTP
                             : FERRY_URMA_PATH_RTP;
}

static struct ferry_urma_status open_native(struct ub_ctx *ctx)
{
    struct ub_transport *transport = ctx->transport;
    struct ferry_urma_ctx_options options = {
        .name = ctx->device.native.name,
        .eid_index = ctx->device.native.eid_index,
        .aggregation = transport->settings.aggregation,
    };
    struct ferry_urma_ctx_info info;
    struct ferry_urma_status status;

    memcpy(options.eid, ctx->device.native.eid, sizeof(options.eid));
    status = ferry_urma_ctx_open(&transport->urma, &options, &ctx->native);
    if (status.class != FERRY_URMA_OK)
        return status;
    ferry_urma_ctx_info(&transport->urma, ctx->native, &info);
    ctx->uasid = info.uasid;
    status = ferry_ub_jfcs_create(ctx);
    return status;
}

/* True if nothing native is left; goes on where it stopped. Given: no endpoint, no slot on it. */
static bool close_native(struct ub_ctx *ctx)
{
    if (ctx->native == NULL)
        return true;
    if (!ferry_ub_imports_release(ctx) || !ferry_ub_buffers_unregister_from(ctx) ||
        !ferry_ub_jfcs_destroy(ctx))
        return false;
    return ferry_urma_ctx_close(&ctx->transport->urma, &ctx->native).class == FERRY_URMA_OK;
}

bool ferry_ub_context_close(struct ub_ctx *ctx)
{
    return close_native(ctx);
}

/* On the opening thread or the pool; leaves nothing native on failure, or what close_native() goes
 * on with. */
static enum ferry_status open_one(struct ub_ctx *ctx)
{
    struct ferry_urma_status native = open_native(ctx);
    enum ferry_status status = FERRY_OK;

    if (native.class != FERRY_URMA_OK)
        status = ferry_fail(FERRY_ERR_DEVICE, "ub: %s cannot be opened (%s, native %d)",
                            ctx->topology_id, ferry_urma_class_name(native.class), native.native);
    atomic_fetch_add(&ctx->opens, 1);
    if (status == FERRY_OK)
        status = ferry_ub_buffers_register_on(ctx);
    if (status != FERRY_OK)
        close_native(ctx);
    return status;
}

static bool choose_devices(struct ub_transport *transport, struct ferry_topology_ub *devices,
                           uint32_t *count)
{
    bool have_bonding = false;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < *count; i++)
        have_bonding |= bonding(devices[i].native.name);
    if (ferry_config_list_len(transport->config, "transports.ub.device_filter") > 0)
        have_bonding = false;
    for (uint32_t i = 0; i < *count; i++) {
        if (filtered(transport, devices[i].native.name) ||
            (have_bonding && !bonding(devices[i].native.name)))
            continue;
        devices[kept++] = devices[i];
    }
    *count = kept;
    return kept > 0;
}

/* One context a device: the first of its EIDs that opens. */
static void open_devices(struct ub_transport *transport, const struct ferry_topology_ub *devices,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count && transport->ctx_count < FERRY_UB_CONTEXTS_MAX; i++) {
        struct ub_ctx *ctx = &transport->ctxs[transport->ctx_count];

        if (transport->ctx_count > 0 &&
            strcmp(ctx[-1].device.native.name, devices[i].native.name) == 0)
            continue;
        ctx->index = transport->ctx_count;
        describe(ctx, &devices[i]);
        if (open_one(ctx) != FERRY_OK) {
            ferry_warn("ub", "%s", ferry_last_error_text());
            /* What would not close keeps its place; it is tried again later. */
            if (ctx->native == NULL)
                continue;
        }
        ferry_device_quota_init(&ctx->quota, transport->settings.device_bytes_max,
                                transport->settings.device_requests_max);
        set_state(ctx, ctx->native == NULL ? UB_CTX_CLOSED
                       : devices[i].active ? UB_CTX_ACTIVE
                                           : UB_CTX_DOWN);
        transport->ctx_count++;
    }
}

static void init_contexts(struct ub_transport *transport)
{
    for (uint32_t i = 0; i < FERRY_UB_CONTEXTS_MAX; i++)
        transport->ctxs[i].transport = transport;
}

static void choose_cuts(struct ub_transport *transport)
{
    transport->piece_bytes = UINT64_MAX;
    transport->slice_bytes = transport->settings.slice_bytes;
    for (uint32_t i = 0; i < transport->ctx_count; i++) {
        const struct ub_ctx *ctx = &transport->ctxs[i];

        if (ctx->segment_bytes_max != 0 && ctx->segment_bytes_max < transport->piece_bytes)
            transport->piece_bytes = ctx->segment_bytes_max;
        if (ctx->request_bytes_max < transport->slice_bytes)
            transport->slice_bytes = ctx->request_bytes_max;
    }
}

enum ferry_status ferry_ub_contexts_open(struct ub_transport *transport)
{
    struct ferry_topology_ub *devices = calloc(FERRY_TOPOLOGY_UB_MAX, sizeof(*devices));
    enum ferry_status status;
    uint32_t count = 0;

    if (devices == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory");
    init_contexts(transport);
    status = ferry_topology_ub_list(&transport->urma, devices, FERRY_TOPOLOGY_UB_MAX, &count);
    if (status == FERRY_OK && count == 0)
        status = ferry_fail(FERRY_ERR_DEVICE, "ub: this host has no UB device");
    else if (status == FERRY_OK && !choose_devices(transport, devices, &count))
        status = ferry_fail(FERRY_ERR_DEVICE,
                            "ub: transports.ub.device_filter names none of this host's UB devices");
    if (status == FERRY_OK) {
        open_devices(transport, devices, count);
        if (transport->ctx_count == 0)
            status = ferry_fail(FERRY_ERR_DEVICE, "ub: none of %u UB devices could be opened",
                                count);
    }
    free(devices);
    choose_cuts(transport);
    return status;
}

/* ---- loss and return ---- */

void ferry_ub_context_lost(struct ub_ctx *ctx, const char *why)
{
    uint32_t state = atomic_load(&ctx->state);

    do {
        if (state != UB_CTX_ACTIVE && state != UB_CTX_DOWN)
            return;
    } while (!atomic_compare_exchange_weak(&ctx->state, &state, UB_CTX_LOST));
    atomic_fetch_add(&ctx->losses, 1);
    ferry_warn("ub", "device is given up: %s device=%s", why, ctx->topology_id);
    for (uint32_t i = 0; i < ctx->transport->worker_count; i++)
        ferry_ub_worker_kick(&ctx->transport->workers[i]);
}

static bool find_again(struct ub_ctx *ctx)
{
    struct ferry_topology_ub *devices = calloc(FERRY_TOPOLOGY_UB_MAX, sizeof(*devices));
    uint32_t count = 0;
    bool found = false;

    if (devices == NULL)
        return false;
    if (ferry_topology_ub_list(&ctx->transport->urma, devices, FERRY_TOPOLOGY_UB_MAX, &count) !=
        FERRY_OK)
        count = 0;
    for (uint32_t i = 0; i < count && !found; i++) {
        found = strcmp(devices[i].id, ctx->topology_id) == 0;
        if (!found)
            continue;
        pthread_mutex_lock(&ctx->transport->mutex);
        ctx->device = devices[i];
        pthread_mutex_unlock(&ctx->transport->mutex);
    }
    free(devices);
    return found;
}

/* The pool: from LOST or CLOSED to ACTIVE, as far as it goes. */
static void recycle(struct ub_ctx *ctx)
{
    if (!close_native(ctx))
        return;
    set_state(ctx, UB_CTX_CLOSED);
    atomic_store(&ctx->fatal, false);
    if (!find_again(ctx) || open_one(ctx) != FERRY_OK)
        return;
    set_state(ctx, ctx->device.active ? UB_CTX_ACTIVE : UB_CTX_DOWN);
    ferry_info("ub", "device is back device=%s", ctx->topology_id);
    /* Peers have to learn its EID and the new keys of what is registered on it. */
    ferry_registry_touch(ctx->transport->base.env->registry);
}

static void refresh(struct ub_ctx *ctx)
{
    struct ferry_urma_ctx_state now;
    struct ferry_urma_status status = ferry_urma_ctx_refresh(&ctx->transport->urma, ctx->native,
                                                             &now);
    enum ub_ctx_state state = ferry_ub_context_state(ctx);
    bool up;

    if (status.class != FERRY_URMA_OK) {
        ferry_ub_context_lost(ctx, "it does not answer");
        return;
    }
    if (!now.eid_valid) {
        ferry_ub_context_lost(ctx, "its EID has changed");
        return;
    }
    up = now.port_count == 0 || now.ports_active > 0;
    if (state == UB_CTX_ACTIVE && !up) {
        set_state(ctx, UB_CTX_DOWN);
        ferry_warn("ub", "device has no active port device=%s", ctx->topology_id);
    } else if (state == UB_CTX_DOWN && up) {
        set_state(ctx, UB_CTX_ACTIVE);
        ferry_info("ub", "device has an active port again device=%s", ctx->topology_id);
    }
}

static void run_pool_job(struct ferry_offload_job *job)
{
    struct ub_ctx *ctx = FERRY_CONTAINER_OF(job, struct ub_ctx, pool_job);

    if (ctx->refresh_only)
        refresh(ctx);
    else
        recycle(ctx);
}

static void run_done_job(struct ferry_worker *worker, struct ferry_job *job)
{
    struct ub_ctx *ctx = FERRY_CONTAINER_OF(job, struct ub_ctx, done_job);
    struct ub_transport *transport = ctx->transport;

    (void)worker;
    ctx->busy = false;
    for (uint32_t i = 0; i < transport->worker_count; i++)
        ferry_ub_worker_kick(&transport->workers[i]);
    ferry_ub_live_drop(transport);
}

static void pool_job_done(struct ferry_offload_job *job)
{
    struct ub_ctx *ctx = FERRY_CONTAINER_OF(job, struct ub_ctx, pool_job);

    ferry_worker_post(ctx->transport->workers[0].worker, &ctx->done_job, false);
}

static void start_job(struct ub_ctx *ctx, bool refresh_only)
{
    struct ub_transport *transport = ctx->transport;

    ctx->busy = true;
    ctx->refresh_only = refresh_only;
    ctx->pool_job = (struct ferry_offload_job){.run = run_pool_job, .done = pool_job_done};
    ctx->done_job.run = run_done_job;
    ferry_ub_live_add(transport);
    if (transport->pool != NULL) {
        if (ferry_offload_submit(transport->pool, &ctx->pool_job) == FERRY_OK)
            return;
        /* No thread to be had: tried again at the next look. */
        ctx->busy = false;
        ferry_ub_live_drop(transport);
        return;
    }
    run_pool_job(&ctx->pool_job);
    pool_job_done(&ctx->pool_job);
}

/* An asynchronous event says which jetty is in error; its endpoint is retired. */
static void jetty_event(struct ub_ctx *ctx, uint32_t jetty_id)
{
    struct ub_transport *transport = ctx->transport;

    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_device_entry *e = ferry_device_store_next(&transport->store, NULL); e != NULL;
         e = ferry_device_store_next(&transport->store, e)) {
        struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(e, struct ub_endpoint, entry);

        for (uint32_t i = 0; i < endpoint->jetty_count && endpoint->ctx == ctx; i++) {
            if (endpoint->jetties[i].id != jetty_id ||
                ferry_device_life_state(&endpoint->life) != FERRY_DEVICE_READY)
                continue;
            atomic_store(&endpoint->retire_asked, true);
            ferry_ub_endpoint_wake(endpoint);
        }
    }
    pthread_mutex_unlock(&transport->mutex);
}

/* True if ports or EIDs have to be asked for. */
static bool take_events(struct ub_ctx *ctx)
{
    bool ask = false;

    for (uint32_t i = 0; i < EVENTS_A_LOOK; i++) {
        struct ferry_urma_event event;

        if (ferry_urma_event_next(&ctx->transport->urma, ctx->native, &event).class !=
                FERRY_URMA_OK ||
            event.kind == FERRY_URMA_EVENT_NONE)
            break;
        switch (event.kind) {
        case FERRY_URMA_EVENT_CQ:
        case FERRY_URMA_EVENT_RECEIVE:
            ferry_ub_context_lost(ctx, "a completion queue broke");
            break;
        case FERRY_URMA_EVENT_FATAL:
            atomic_store(&ctx->fatal, true);
            ferry_ub_context_lost(ctx, "it reports a fatal error");
            break;
        case FERRY_URMA_EVENT_JETTY:
            jetty_event(ctx, event.jetty_id);
            break;
        case FERRY_URMA_EVENT_PORT:
        case FERRY_URMA_EVENT_EID:
            ask = true;
            break;
        default:
            break;
        }
    }
    return ask;
}

static void look_at(struct ub_ctx *ctx, uint64_t now_ns)
{
    enum ub_ctx_state state = ferry_ub_context_state(ctx);
    bool closing = atomic_load(&ctx->transport->closing) != 0;

    if (ctx->busy)
        return;
    if (state == UB_CTX_ACTIVE || state == UB_CTX_DOWN) {
        bool ask = take_events(ctx);

        if (ask && ferry_ub_context_state(ctx) != UB_CTX_LOST)
            start_job(ctx, true);
        return;
    }
    /* What is closed or lost goes on when nothing of it is in use any more. */
    if (state == UB_CTX_LOST && ctx->native != NULL)
        take_events(ctx);
    if (closing || atomic_load(&ctx->endpoints) > 0 || now_ns < ctx->retry_at_ns)
        return;
    ctx->retry_at_ns = ferry_deadline_ns(now_ns, ctx->transport->settings.rail.cooldown_ns);
    start_job(ctx, false);
}

uint64_t ferry_ub_contexts_look(struct ub_transport *transport, uint64_t now_ns)
{
    bool busy = false;
    bool waiting = false;

    for (uint32_t i = 0; i < transport->ctx_count; i++) {
        struct ub_ctx *ctx = &transport->ctxs[i];

        look_at(ctx, now_ns);
        busy |= atomic_load(&ctx->endpoints) > 0;
        waiting |= ferry_ub_context_state(ctx) != UB_CTX_ACTIVE;
    }
    /* With nothing connected nobody is served either; a request looks by itself. */
    if (!busy && !waiting)
        return ferry_deadline_ns(now_ns, 4 * LOOK_IDLE_NS);
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (atomic_load(&transport->workers[i].posted_now) > 0)
            return ferry_deadline_ns(now_ns, LOOK_BUSY_NS);
    }
    return ferry_deadline_ns(now_ns, waiting ? LOOK_BUSY_NS : LOOK_IDLE_NS);
}
