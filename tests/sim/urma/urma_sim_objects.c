/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the simulated fabric and the rules of their making and destroying: children keep
 * their parents, low ids are given out again first, and what is destroyed out of order is refused
 * or noted as a violation. Any thread, under the fabric's lock.
 */
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sim/urma/urma_sim_state.h"

/* The device of a live context answers. */
static bool broken(const struct sim_state *state, uint32_t ctx)
{
    return state->devices[state->contexts[ctx - 1].device].fatal;
}

static void count_made(struct sim_state *state, uint32_t ctx)
{
    state->made++;
    if (ctx != 0)
        state->contexts[ctx - 1].children++;
}

static void count_gone(struct sim_state *state, uint32_t ctx)
{
    state->gone++;
    if (ctx != 0)
        state->contexts[ctx - 1].children--;
}

/* ---- contexts ---- */

static int find_device(const struct sim_state *state, uint32_t node, const char *name)
{
    for (uint32_t i = 0; i < state->device_count; i++) {
        const struct sim_device *device = &state->devices[i];

        if (device->node == node && device->present && strcmp(device->name, name) == 0)
            return (int)i;
    }
    return -1;
}

static int ctx_create(struct usim *sim, uint32_t node, const char *name, uint32_t eid_index,
                      uint32_t *ctx_out)
{
    struct sim_state *state = sim->state;
    int device = find_device(state, node, name);
    struct sim_ctx *ctx = NULL;
    uint32_t index = 0;

    if (device < 0 || state->devices[device].fatal || eid_index >= USIM_EIDS_MAX ||
        !state->devices[device].eid_valid[eid_index] || sim_fires(state, USIM_CREATE_CTX))
        return SIM_EIO;
    if (state->devices[device].container_eid &&
        (eid_index == 0 || !state->devices[device].eid_valid[eid_index - 1]))
        return SIM_ENOPERM;
    while (index < SIM_CONTEXTS_MAX && state->contexts[index].used)
        index++;
    if (index == SIM_CONTEXTS_MAX)
        return SIM_ENOMEM;
    ctx = &state->contexts[index];
    memset(ctx, 0, sizeof(*ctx));
    ctx->used = true;
    ctx->device = (uint32_t)device;
    ctx->node = node;
    ctx->incarnation = state->nodes[node].incarnation;
    ctx->eid_index = eid_index;
    ctx->uasid = state->next_uasid++;
    memcpy(ctx->eid, state->devices[device].eid[eid_index], 16);
    if (sim->ctx_fd[index] == 0)
        sim->ctx_fd[index] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    count_made(state, 0);
    *ctx_out = index + 1;
    return 0;
}

int usim_ctx_create(struct usim *sim, uint32_t node, const char *name, uint32_t eid_index,
                    uint32_t *ctx_out)
{
    int rc;

    usim_lock(sim);
    rc = ctx_create(sim, node, name, eid_index, ctx_out);
    usim_unlock(sim);
    return rc;
}

int usim_ctx_delete(struct usim *sim, uint32_t ctx)
{
    struct sim_state *state = sim->state;
    struct sim_ctx *c = &state->contexts[ctx - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (c->children > 0 || sim_fires(state, USIM_BUSY_CTX)) {
        rc = SIM_EAGAIN;
    } else {
        if (c->unacked > 0)
            sim_violation(state, "a context was closed with events that nobody acknowledged");
        c->used = false;
        count_gone(state, 0);
        if (sim->ctx_fd[ctx - 1] > 0)
            close(sim->ctx_fd[ctx - 1]);
        sim->ctx_fd[ctx - 1] = 0;
    }
    usim_unlock(sim);
    return rc;
}

int usim_event_get(struct usim *sim, uint32_t ctx, struct sim_event *event_out)
{
    struct sim_ctx *c = &sim->state->contexts[ctx - 1];
    int rc = SIM_FAIL;
    uint64_t count;

    usim_lock(sim);
    sim_run(sim);
    if (c->event_head != c->event_tail) {
        *event_out = c->events[c->event_head++ % SIM_EVENTS_MAX];
        c->unacked++;
        rc = 0;
    }
    if (c->event_head == c->event_tail && sim->ctx_fd[ctx - 1] > 0 &&
        read(sim->ctx_fd[ctx - 1], &count, sizeof(count)) < 0)
        count = 0;
    usim_unlock(sim);
    return rc;
}

void usim_event_ack(struct usim *sim, uint32_t ctx)
{
    usim_lock(sim);
    if (sim->state->contexts[ctx - 1].unacked == 0)
        sim_violation(sim->state, "an event was acknowledged twice");
    else
        sim->state->contexts[ctx - 1].unacked--;
    usim_unlock(sim);
}

/* ---- completion queues ---- */

int usim_cq_create(struct usim *sim, uint32_t ctx, uint32_t depth, uint64_t cookie,
                   uint32_t *cq_out)
{
    struct sim_state *state = sim->state;
    uint32_t index = 0;
    int rc = 0;

    usim_lock(sim);
    while (index < SIM_QUEUES_MAX && state->queues[index].used)
        index++;
    if (depth > SIM_DEPTH_MAX || depth == 0) {
        rc = SIM_EINVAL;
    } else if (index == SIM_QUEUES_MAX || broken(state, ctx) || sim_fires(state, USIM_CREATE_CQ)) {
        rc = SIM_FAIL;
    } else {
        struct sim_cq *cq = &state->queues[index];

        cq->used = true;
        cq->broken = false;
        cq->armed = false;
        cq->ctx = ctx;
        cq->depth = depth;
        cq->jetties = 0;
        cq->head = cq->tail = cq->signals = 0;
        cq->cookie = cookie;
        if (sim->cq_fd[index] == 0)
            sim->cq_fd[index] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        count_made(state, ctx);
        *cq_out = index + 1;
    }
    usim_unlock(sim);
    return rc;
}

int usim_cq_delete(struct usim *sim, uint32_t cq)
{
    struct sim_state *state = sim->state;
    struct sim_cq *q = &state->queues[cq - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (q->jetties > 0)
        sim_violation(state, "a completion queue was deleted before its jetties");
    if (q->jetties > 0 || sim_fires(state, USIM_BUSY_CQ)) {
        rc = SIM_FAIL;
    } else {
        q->used = false;
        count_gone(state, q->ctx);
        close(sim->cq_fd[cq - 1]);
        sim->cq_fd[cq - 1] = 0;
    }
    usim_unlock(sim);
    return rc;
}

/* ---- jetties ---- */

static int jetty_create(struct usim *sim, uint32_t ctx, uint32_t cq,
                        const struct sim_jetty_config *config, uint32_t *jetty_out)
{
    struct sim_state *state = sim->state;
    uint32_t index = 0;
    struct sim_jetty *jetty;
    uint32_t incarnation;
    bool before;

    while (index < SIM_JETTIES_MAX && state->jetties[index].used)
        index++;
    if (config->depth == 0 ||
        config->depth > state->devices[state->contexts[ctx - 1].device].depth_max)
        return SIM_EINVAL;
    if (index == SIM_JETTIES_MAX || broken(state, ctx) || sim_dead(state, ctx - 1) ||
        sim_fires(state, USIM_CREATE_JETTY))
        return SIM_ENOMEM;
    jetty = &state->jetties[index];
    incarnation = jetty->incarnation + 1;
    before = jetty->once_used;
    memset(jetty, 0, sizeof(*jetty));
    state->fired[USIM_ID_REUSE] += before;
    jetty->used = true;
    jetty->once_used = true;
    jetty->incarnation = incarnation;
    jetty->state = SIM_READY;
    jetty->ctx = ctx;
    jetty->cq = cq;
    jetty->depth = config->depth;
    jetty->err_timeout = config->err_timeout;
    jetty->cookie = config->cookie;
    if (index + 1 > state->jetty_top)
        state->jetty_top = index + 1;
    state->queues[cq - 1].jetties++;
    count_made(state, ctx);
    *jetty_out = index + 1;
    return 0;
}

int usim_jetty_create(struct usim *sim, uint32_t ctx, uint32_t cq,
                      const struct sim_jetty_config *config, uint32_t *jetty_out)
{
    int rc;

    usim_lock(sim);
    rc = jetty_create(sim, ctx, cq, config, jetty_out);
    usim_unlock(sim);
    return rc;
}

/* Completions that were not polled go with their jetty. */
static void scrub(struct sim_state *state, uint32_t jetty)
{
    struct sim_cq *cq = &state->queues[state->jetties[jetty - 1].cq - 1];
    uint32_t kept = cq->head;

    for (uint32_t i = cq->head; i != cq->tail; i++) {
        struct sim_cr *cr = &cq->ring[i % SIM_DEPTH_MAX];

        if (cr->jetty_id != jetty)
            cq->ring[kept++ % SIM_DEPTH_MAX] = *cr;
    }
    cq->tail = kept;
}

int usim_jetty_delete(struct usim *sim, uint32_t jetty)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (j->bound && !sim_dead(state, j->ctx - 1)) {
        sim_violation(state, "a bound jetty was deleted");
        rc = SIM_ENOPERM;
    } else if (broken(state, j->ctx) || sim_fires(state, USIM_BUSY_JETTY)) {
        rc = SIM_FAIL;
    } else {
        sim_requests_drop(sim, jetty - 1);
        scrub(state, jetty);
        state->queues[j->cq - 1].jetties--;
        j->used = false;
        count_gone(state, j->ctx);
    }
    usim_unlock(sim);
    return rc;
}

int usim_jetty_bind(struct usim *sim, uint32_t jetty, const uint8_t *eid, uint32_t id)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    int rc = 0;

    usim_lock(sim);
    if (broken(state, j->ctx) || sim_fires(state, USIM_BIND_FAIL)) {
        rc = SIM_FAIL;
    } else if (sim_fires(state, USIM_BIND_EXISTS)) {
        rc = SIM_EEXIST;
    } else if (j->bound && (j->peer_id != id || memcmp(j->peer_eid, eid, 16) != 0)) {
        rc = SIM_EEXIST;
    } else {
        j->bound = true;
        j->peer_id = id;
        memcpy(j->peer_eid, eid, 16);
    }
    usim_unlock(sim);
    return rc;
}

int usim_jetty_unbind(struct usim *sim, uint32_t jetty)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    int rc = 0;

    usim_lock(sim);
    if (broken(state, j->ctx) || sim_fires(state, USIM_BUSY_UNBIND))
        rc = SIM_EAGAIN;
    else
        j->bound = false;
    usim_unlock(sim);
    return rc;
}

/* ---- memory ---- */

static int seg_register(struct usim *sim, uint32_t ctx, const struct ferry_urma_mem_spec *spec,
                        uint32_t *seg_out)
{
    struct sim_state *state = sim->state;
    const struct sim_device *device = &state->devices[state->contexts[ctx - 1].device];
    uint32_t index = 0;
    struct sim_seg *seg;

    if ((spec->access & FERRY_URMA_ACCESS_LOCAL) != 0 && spec->access != FERRY_URMA_ACCESS_LOCAL)
        return SIM_EINVAL;
    if ((spec->access & FERRY_URMA_ACCESS_WRITE) != 0 &&
        (spec->access & FERRY_URMA_ACCESS_READ) == 0)
        return SIM_EINVAL;
    while (index < SIM_SEGMENTS_MAX && state->segments[index].used)
        index++;
    if (device->segment_bytes_max != 0 && spec->length > device->segment_bytes_max)
        return SIM_EINVAL;
    if (index == SIM_SEGMENTS_MAX || broken(state, ctx) || sim_fires(state, USIM_CREATE_SEG))
        return SIM_ENOMEM;
    seg = &state->segments[index];
    *seg = (struct sim_seg){
        .used = true,
        .ctx = ctx,
        .node = state->contexts[ctx - 1].node,
        .token = spec->token,
        .token_id = index + 1, /* recycled: only the token tells two registrations apart */
        .access = spec->access,
        .pid = sim->pid,
        .addr = (uintptr_t)spec->addr,
        .length = spec->length,
        .generation = ++state->generation,
    };
    if (index + 1 > state->seg_top)
        state->seg_top = index + 1;
    count_made(state, ctx);
    *seg_out = index + 1;
    return 0;
}

int usim_seg_register(struct usim *sim, uint32_t ctx, const struct ferry_urma_mem_spec *spec,
                      uint32_t *seg_out)
{
    int rc;

    usim_lock(sim);
    rc = seg_register(sim, ctx, spec, seg_out);
    usim_unlock(sim);
    return rc;
}

int usim_seg_unregister(struct usim *sim, uint32_t seg)
{
    struct sim_state *state = sim->state;
    struct sim_seg *s = &state->segments[seg - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (s->users > 0 && !sim_dead(state, s->ctx - 1))
        sim_violation(state, "a range was unregistered under requests of its own process");
    if (sim_fires(state, USIM_BUSY_SEG)) {
        rc = SIM_EAGAIN;
    } else {
        s->used = false;
        count_gone(state, s->ctx);
    }
    usim_unlock(sim);
    return rc;
}

int usim_import(struct usim *sim, uint32_t ctx, const struct ferry_urma_descriptor *descriptor,
                uint32_t token, uint32_t access, uint32_t *import_out)
{
    struct sim_state *state = sim->state;
    uint32_t index = 0;
    int rc = 0;

    usim_lock(sim);
    while (index < SIM_IMPORTS_MAX && state->imports[index].used)
        index++;
    if (index == SIM_IMPORTS_MAX || broken(state, ctx) || sim_fires(state, USIM_CREATE_IMPORT)) {
        rc = SIM_FAIL;
    } else {
        struct sim_import *import = &state->imports[index];

        *import = (struct sim_import){
            .used = true,
            .ctx = ctx,
            .token = token,
            .token_id = descriptor->token_id,
            .access = access,
            .addr = descriptor->addr,
            .length = descriptor->length,
        };
        memcpy(import->eid, descriptor->eid, 16);
        if (index + 1 > state->import_top)
            state->import_top = index + 1;
        count_made(state, ctx);
        *import_out = index + 1;
    }
    usim_unlock(sim);
    return rc;
}

int usim_unimport(struct usim *sim, uint32_t import)
{
    struct sim_state *state = sim->state;
    struct sim_import *i = &state->imports[import - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (i->users > 0 && !sim_dead(state, i->ctx - 1))
        sim_violation(state, "an import was released under requests that name it");
    if (sim_fires(state, USIM_BUSY_IMPORT)) {
        rc = SIM_EAGAIN;
    } else {
        i->used = false;
        count_gone(state, i->ctx);
    }
    usim_unlock(sim);
    return rc;
}
