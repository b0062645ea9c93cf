/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion queues: one for each context and worker, so that each has one poller, which is also
 * the one who posts. Made and destroyed with their context; polled by their worker only.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "transport/ub/internal.h"

/* Room for every request of every endpoint that one worker may have on one device, and a marker
 * each; cut to what the device allows. */
static uint32_t depth_of(const struct ub_ctx *ctx)
{
    const struct ferry_ub_settings *settings = &ctx->transport->settings;
    uint64_t depth = settings->slices_per_worker + 2ULL * 64 * settings->jetty_per_endpoint;

    if (ctx->caps.cq_depth_max != 0 && depth > ctx->caps.cq_depth_max)
        depth = ctx->caps.cq_depth_max;
    return (uint32_t)depth;
}

struct ferry_urma_status ferry_ub_jfcs_create(struct ub_ctx *ctx)
{
    struct ub_transport *transport = ctx->transport;
    struct ferry_urma_status status = {.class = FERRY_URMA_OK};

    for (uint32_t i = 0; i < transport->worker_count; i++) {
        struct ub_jfc *jfc = &ctx->jfcs[i];
        struct ferry_urma_cq_options options = {.depth = depth_of(ctx), .cookie = i + 1};

        jfc->ctx = ctx;
        jfc->worker = &transport->workers[i];
        jfc->endpoints = 0;
        jfc->inflight = 0;
        jfc->depth = options.depth;
        FERRY_ASSERT(jfc->native == NULL);
        status = ferry_urma_cq_create(&transport->urma, ctx->native, &options, &jfc->native);
        if (status.class != FERRY_URMA_OK)
            break;
    }
    return status;
}

bool ferry_ub_jfcs_destroy(struct ub_ctx *ctx)
{
    bool gone = true;

    for (uint32_t i = 0; i < ctx->transport->worker_count; i++) {
        if (ferry_urma_cq_destroy(&ctx->transport->urma, &ctx->jfcs[i].native).class !=
            FERRY_URMA_OK)
            gone = false;
    }
    return gone;
}

/* Completions were lost: which ones is not known, so everything on the queue is fenced. */
static void fence_all(struct ub_jfc *jfc, uint64_t now_ns)
{
    struct ub_worker *worker = jfc->worker;

    ferry_ub_count(&worker->unknown_polls);
    for (struct ferry_list *link = worker->endpoints.next; link != &worker->endpoints;
         link = link->next) {
        struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(link, struct ub_endpoint, link);

        if (endpoint->jfc == jfc)
            ferry_ub_endpoint_fail(endpoint, FERRY_DEVICE_UNKNOWN, now_ns);
    }
}

uint32_t ferry_ub_jfc_poll(struct ub_jfc *jfc, uint64_t now_ns)
{
    struct ferry_urma_completion out[FERRY_URMA_POLL_MAX];
    struct ferry_urma_status status;
    uint32_t total = 0;
    uint32_t count;

    do {
        status = ferry_urma_cq_poll(&jfc->ctx->transport->urma, jfc->native, out,
                                    FERRY_URMA_POLL_MAX, &count);
        for (uint32_t i = 0; i < count; i++) {
            if (out[i].kind == FERRY_URMA_RESULT)
                ferry_ub_worker_completed(jfc->worker, &out[i], now_ns);
            else if (out[i].kind == FERRY_URMA_DRAINED)
                ferry_ub_endpoint_drained(jfc->worker, jfc, out[i].jetty_id);
        }
        if (status.class != FERRY_URMA_OK)
            fence_all(jfc, now_ns);
        total += count;
        /* Others have a turn after a few rounds, however fast completions come. */
    } while (count == FERRY_URMA_POLL_MAX && total < 4 * FERRY_URMA_POLL_MAX);
    return total;
}
