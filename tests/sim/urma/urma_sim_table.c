/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry's table of native UB calls over the simulated fabric, without the URMA interface between.
 * Handles are small heap objects, so that a leak or a use after destroy is seen by a sanitizer.
 * Any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/urma/urma_sim_state.h"

#define OK_STATUS ((struct ferry_urma_status){.class = FERRY_URMA_OK})

struct table_runtime {
    struct usim_host host;
    uint32_t contexts;
};

/* Every other handle: a fabric object of one host. */
struct table_object {
    struct table_runtime *runtime;
    uint32_t handle;
    uint32_t ctx;
    bool events;
    bool connected;
    uint64_t cookie;
};

static struct ferry_urma_status as(enum ferry_urma_class class, int native)
{
    return (struct ferry_urma_status){.class = native == 0 ? FERRY_URMA_OK : class,
                                      .native = native};
}

static struct table_object *obj(const void *handle)
{
    return (struct table_object *)(uintptr_t)handle;
}

static struct usim *sim_of(const void *handle)
{
    return obj(handle)->runtime->host.sim;
}

static struct table_object *wrap(struct table_runtime *runtime, uint32_t handle, uint32_t ctx)
{
    struct table_object *object = calloc(1, sizeof(*object));

    FERRY_ASSERT(object != NULL);
    object->runtime = runtime;
    object->handle = handle;
    object->ctx = ctx;
    return object;
}

static struct ferry_urma_status table_open(const struct ferry_urma_open_options *options,
                                           struct ferry_urma_runtime **runtime_out)
{
    const struct usim_host *host = options->self;
    struct table_runtime *runtime;

    if (host == NULL || host->sim == NULL)
        return as(FERRY_URMA_DEVICE, SIM_FAIL);
    runtime = calloc(1, sizeof(*runtime));
    FERRY_ASSERT(runtime != NULL);
    runtime->host = *host;
    *runtime_out = (struct ferry_urma_runtime *)(void *)runtime;
    return OK_STATUS;
}

static struct ferry_urma_status table_close(struct ferry_urma_runtime **runtime)
{
    struct table_runtime *mine = (struct table_runtime *)(void *)*runtime;

    if (mine->contexts > 0)
        return as(FERRY_URMA_BUSY, SIM_EAGAIN);
    free(mine);
    *runtime = NULL;
    return OK_STATUS;
}

static void table_fingerprint(struct ferry_urma_runtime *runtime, char *buf, size_t size)
{
    (void)runtime;
    snprintf(buf, size, "simulator");
}

static void fill_caps(const struct sim_device *device, struct ferry_urma_caps *caps)
{
    *caps = (struct ferry_urma_caps){.segment_bytes_max = device->segment_bytes_max,
                                     .trans_modes = 3};
    if (device->limits_unknown)
        return;
    caps->jetty_max = SIM_JETTIES_MAX;
    caps->jetty_depth_max = device->depth_max;
    caps->cq_depth_max = SIM_DEPTH_MAX;
    caps->sge_max = 1;
    caps->read_bytes_max = device->request_bytes_max;
    caps->write_bytes_max = device->request_bytes_max;
    caps->priority_rtp = 0xffff;
    caps->priority_ctp = device->rtp_only ? 0 : 0xffff;
}

static void fill_row(const struct sim_device *device, uint32_t index, uint32_t slot,
                     struct ferry_urma_device *row)
{
    *row = (struct ferry_urma_device){.device_index = index, .eid_index = slot};
    snprintf(row->name, sizeof(row->name), "%s", device->name);
    snprintf(row->path, sizeof(row->path), "%s", device->path);
    memcpy(row->eid, device->eid[slot], sizeof(row->eid));
    row->port_count = device->port_count;
    for (uint32_t i = 0; i < device->port_count; i++)
        row->ports_active += device->port_state[i] == 4 || device->port_state[i] == 5;
    row->speed_mbit = device->bytes_per_s * 8 / 1000000;
    fill_caps(device, &row->caps);
}

static struct ferry_urma_status table_list(struct ferry_urma_runtime *runtime,
                                           struct ferry_urma_device *rows, uint32_t capacity,
                                           uint32_t *count_out)
{
    struct table_runtime *mine = (struct table_runtime *)(void *)runtime;
    struct sim_state *state = mine->host.sim->state;
    uint32_t index = 0;
    uint32_t count = 0;

    usim_lock(mine->host.sim);
    for (uint32_t i = 0; i < state->device_count; i++) {
        const struct sim_device *device = &state->devices[i];

        if (device->node != mine->host.node || !device->present)
            continue;
        for (uint32_t k = 0; k < USIM_EIDS_MAX && count < capacity; k++) {
            if (device->eid_valid[k])
                fill_row(device, index, k, &rows[count++]);
        }
        index++;
    }
    usim_unlock(mine->host.sim);
    *count_out = count;
    return OK_STATUS;
}

static struct ferry_urma_status table_ctx_open(struct ferry_urma_runtime *runtime,
                                               const struct ferry_urma_ctx_options *options,
                                               struct ferry_urma_ctx **ctx_out)
{
    struct table_runtime *mine = (struct table_runtime *)(void *)runtime;
    struct usim *sim = mine->host.sim;
    uint32_t ctx;
    int rc = usim_ctx_create(sim, mine->host.node, options->name, options->eid_index, &ctx);

    if (rc != 0)
        return as(FERRY_URMA_DEVICE, rc);
    if (memcmp(sim->state->contexts[ctx - 1].eid, options->eid, FERRY_URMA_EID_SIZE) != 0) {
        usim_ctx_delete(sim, ctx);
        return as(FERRY_URMA_DEVICE, SIM_FAIL);
    }
    mine->contexts++;
    *ctx_out = (struct ferry_urma_ctx *)(void *)wrap(mine, ctx, ctx);
    return OK_STATUS;
}

static void table_ctx_info(struct ferry_urma_ctx *ctx, struct ferry_urma_ctx_info *info_out)
{
    struct usim *sim = sim_of(ctx);
    uint32_t index = obj(ctx)->handle - 1;

    memcpy(info_out->eid, sim->state->contexts[index].eid, FERRY_URMA_EID_SIZE);
    info_out->uasid = sim->state->contexts[index].uasid;
    info_out->async_fd = sim->ctx_fd[index];
}

static struct ferry_urma_status table_ctx_refresh(struct ferry_urma_ctx *ctx,
                                                  struct ferry_urma_ctx_state *state_out)
{
    struct usim *sim = sim_of(ctx);
    const struct sim_ctx *c = &sim->state->contexts[obj(ctx)->handle - 1];
    const struct sim_device *device = &sim->state->devices[c->device];
    bool fails;

    usim_lock(sim);
    fails = device->fatal || !device->present;
    *state_out = (struct ferry_urma_ctx_state){.port_count = device->port_count};
    for (uint32_t i = 0; i < device->port_count; i++)
        state_out->ports_active += device->port_state[i] == 4 || device->port_state[i] == 5;
    state_out->eid_valid = device->eid_valid[c->eid_index] &&
                           memcmp(device->eid[c->eid_index], c->eid, 16) == 0;
    usim_unlock(sim);
    return as(FERRY_URMA_DEVICE, fails ? SIM_EIO : 0);
}

/* Free the handle if the native object is gone. */
static struct ferry_urma_status finish(void *slot, int rc)
{
    void **handle = slot;

    if (rc != 0)
        return as(rc == SIM_EAGAIN || rc == SIM_FAIL ? FERRY_URMA_BUSY : FERRY_URMA_CALLER, rc);
    free(*handle);
    *handle = NULL;
    return OK_STATUS;
}

static struct ferry_urma_status table_ctx_close(struct ferry_urma_ctx **ctx)
{
    struct table_runtime *runtime = obj(*ctx)->runtime;
    struct ferry_urma_status status = finish(ctx, usim_ctx_delete(sim_of(*ctx), obj(*ctx)->handle));

    runtime->contexts -= status.class == FERRY_URMA_OK;
    return status;
}

static struct ferry_urma_status table_event_next(struct ferry_urma_ctx *ctx,
                                                 struct ferry_urma_event *event_out)
{
    struct usim *sim = sim_of(ctx);
    struct sim_event event;

    if (usim_event_get(sim, obj(ctx)->handle, &event) != 0)
        return OK_STATUS;
    *event_out = (struct ferry_urma_event){.kind = FERRY_URMA_EVENT_OTHER, .index = event.object};
    switch (event.type) {
    case SIM_EVENT_JFC_ERR:
        event_out->kind = FERRY_URMA_EVENT_CQ;
        event_out->cq_cookie = sim->state->queues[event.object - 1].cookie;
        break;
    case SIM_EVENT_JETTY_ERR:
        event_out->kind = FERRY_URMA_EVENT_JETTY;
        event_out->jetty_id = event.object;
        break;
    case SIM_EVENT_PORT_ACTIVE:
    case SIM_EVENT_PORT_DOWN:
        event_out->kind = FERRY_URMA_EVENT_PORT;
        break;
    case SIM_EVENT_DEV_FATAL:
        event_out->kind = FERRY_URMA_EVENT_FATAL;
        break;
    case SIM_EVENT_EID_CHANGE:
        event_out->kind = FERRY_URMA_EVENT_EID;
        break;
    default:
        break;
    }
    usim_event_ack(sim, obj(ctx)->handle);
    return OK_STATUS;
}

static struct ferry_urma_status table_cq_create(struct ferry_urma_ctx *ctx,
                                                const struct ferry_urma_cq_options *options,
                                                struct ferry_urma_cq **cq_out)
{
    uint32_t cq;
    int rc = usim_cq_create(sim_of(ctx), obj(ctx)->handle, options->depth, options->cookie, &cq);
    struct table_object *object;

    if (rc != 0)
        return as(rc == SIM_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_DEVICE, rc);
    object = wrap(obj(ctx)->runtime, cq, obj(ctx)->handle);
    object->events = options->events;
    *cq_out = (struct ferry_urma_cq *)(void *)object;
    return OK_STATUS;
}

static int table_cq_fd(struct ferry_urma_cq *cq)
{
    return obj(cq)->events ? sim_of(cq)->cq_fd[obj(cq)->handle - 1] : -1;
}

static struct ferry_urma_status table_cq_arm(struct ferry_urma_cq *cq)
{
    return as(FERRY_URMA_DEVICE, usim_arm(sim_of(cq), obj(cq)->handle));
}

static struct ferry_urma_status table_cq_ack(struct ferry_urma_cq *cq, uint32_t *count_out)
{
    *count_out = usim_take_signals(sim_of(cq), obj(cq)->handle);
    return OK_STATUS;
}

static struct ferry_urma_status table_class(int32_t native)
{
    static const enum ferry_urma_class classes[] = {
        FERRY_URMA_OK,      FERRY_URMA_ENDPOINT, FERRY_URMA_MEMORY,   FERRY_URMA_DEVICE,
        FERRY_URMA_MEMORY,  FERRY_URMA_PATH,     FERRY_URMA_ENDPOINT, FERRY_URMA_PATH,
        FERRY_URMA_MEMORY,  FERRY_URMA_TIMEOUT,  FERRY_URMA_PATH,     FERRY_URMA_FLUSHED,
        FERRY_URMA_UNKNOWN, FERRY_URMA_UNKNOWN,  FERRY_URMA_FLUSHED,  FERRY_URMA_MEMORY,
        FERRY_URMA_MEMORY,
    };
    bool known = native >= 0 && (size_t)native < sizeof(classes) / sizeof(classes[0]);

    return (struct ferry_urma_status){.class = known ? classes[native] : FERRY_URMA_UNKNOWN,
                                      .native = native};
}

static void translate(const struct sim_cr *cr, struct ferry_urma_completion *out)
{
    *out = (struct ferry_urma_completion){.jetty_id = cr->jetty_id};
    if (cr->status == SIM_CR_FLUSH_DONE || cr->status == SIM_CR_SUSPEND_DONE) {
        out->kind = cr->status == SIM_CR_FLUSH_DONE ? FERRY_URMA_DRAINED : FERRY_URMA_SUSPENDED;
        return;
    }
    out->status = table_class(cr->status);
    out->token = cr->token;
    out->bytes = cr->bytes;
    if (cr->status == SIM_CR_SUCCESS)
        out->executed = FERRY_URMA_EXECUTED_YES;
    else if (cr->status == SIM_CR_UNHANDLED)
        out->executed = FERRY_URMA_EXECUTED_NO;
}

static struct ferry_urma_status table_cq_poll(struct ferry_urma_cq *cq,
                                              struct ferry_urma_completion *out, uint32_t capacity,
                                              uint32_t *count_out)
{
    struct sim_cr crs[FERRY_URMA_POLL_MAX];
    uint32_t saved;
    int rc = usim_poll(sim_of(cq), obj(cq)->handle, crs, capacity, &saved);

    for (uint32_t i = 0; i < saved; i++)
        translate(&crs[i], &out[i]);
    *count_out = saved;
    return rc < 0 ? as(FERRY_URMA_UNKNOWN, rc) : OK_STATUS;
}

static struct ferry_urma_status table_cq_destroy(struct ferry_urma_cq **cq)
{
    return finish(cq, usim_cq_delete(sim_of(*cq), obj(*cq)->handle));
}

static struct ferry_urma_status table_mem_register(struct ferry_urma_ctx *ctx,
                                                   const struct ferry_urma_mem_spec *spec,
                                                   struct ferry_urma_mem **mem_out)
{
    uint32_t seg;
    int rc = usim_seg_register(sim_of(ctx), obj(ctx)->handle, spec, &seg);

    if (rc != 0)
        return as(rc == SIM_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_MEMORY, rc);
    *mem_out = (struct ferry_urma_mem *)(void *)wrap(obj(ctx)->runtime, seg, obj(ctx)->handle);
    return OK_STATUS;
}

static void table_mem_export(struct ferry_urma_mem *mem,
                             struct ferry_urma_descriptor *descriptor_out)
{
    struct usim *sim = sim_of(mem);
    const struct sim_seg *seg = &sim->state->segments[obj(mem)->handle - 1];
    const struct sim_ctx *ctx = &sim->state->contexts[seg->ctx - 1];

    *descriptor_out = (struct ferry_urma_descriptor){
        .uasid = ctx->uasid,
        .addr = seg->addr,
        .length = seg->length,
        .attr = 1 | seg->access << 5,
        .token_id = seg->token_id,
    };
    memcpy(descriptor_out->eid, ctx->eid, FERRY_URMA_EID_SIZE);
}

static struct ferry_urma_status table_mem_unregister(struct ferry_urma_mem **mem)
{
    return finish(mem, usim_seg_unregister(sim_of(*mem), obj(*mem)->handle));
}

static struct ferry_urma_status table_rmem_import(struct ferry_urma_ctx *ctx,
                                                  const struct ferry_urma_descriptor *descriptor,
                                                  uint32_t token, uint32_t access,
                                                  struct ferry_urma_rmem **rmem_out)
{
    uint32_t import;
    int rc = usim_import(sim_of(ctx), obj(ctx)->handle, descriptor, token, access, &import);

    if (rc != 0)
        return as(FERRY_URMA_MEMORY, rc);
    *rmem_out = (struct ferry_urma_rmem *)(void *)wrap(obj(ctx)->runtime, import, obj(ctx)->handle);
    return OK_STATUS;
}

static struct ferry_urma_status table_rmem_release(struct ferry_urma_rmem **rmem)
{
    return finish(rmem, usim_unimport(sim_of(*rmem), obj(*rmem)->handle));
}

static struct ferry_urma_status table_jetty_create(struct ferry_urma_ctx *ctx,
                                                   struct ferry_urma_cq *cq,
                                                   const struct ferry_urma_jetty_options *options,
                                                   struct ferry_urma_jetty **jetty_out)
{
    struct sim_jetty_config config = {
        .depth = options->depth, .err_timeout = options->error_timeout, .cookie = options->cookie};
    uint32_t jetty;
    int rc = usim_jetty_create(sim_of(ctx), obj(ctx)->handle, obj(cq)->handle, &config, &jetty);

    if (rc != 0)
        return as(rc == SIM_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_DEVICE, rc);
    *jetty_out = (struct ferry_urma_jetty *)(void *)wrap(obj(ctx)->runtime, jetty,
                                                         obj(ctx)->handle);
    return OK_STATUS;
}

static void table_jetty_info(struct ferry_urma_jetty *jetty, struct ferry_urma_jetty_info *info_out)
{
    struct usim *sim = sim_of(jetty);
    uint32_t handle = obj(jetty)->handle;

    info_out->id = handle;
    info_out->uasid = sim->state->contexts[obj(jetty)->ctx - 1].uasid;
    info_out->depth = sim->state->jetties[handle - 1].depth;
}

static struct ferry_urma_status table_jetty_connect(struct ferry_urma_jetty *jetty,
                                                    const struct ferry_urma_peer *peer)
{
    int rc = usim_jetty_bind(sim_of(jetty), obj(jetty)->handle, peer->eid, peer->id);

    if (rc != 0)
        return as(rc == SIM_EEXIST ? FERRY_URMA_ENDPOINT : FERRY_URMA_PATH, rc);
    obj(jetty)->connected = true;
    return OK_STATUS;
}

static struct ferry_urma_status table_jetty_post(struct ferry_urma_jetty *jetty,
                                                 const struct ferry_urma_request *requests,
                                                 uint32_t count,
                                                 struct ferry_urma_post_result *result_out)
{
    struct sim_post posts[FERRY_URMA_POST_MAX];
    int rc;

    for (uint32_t i = 0; i < count; i++) {
        posts[i] = (struct sim_post){
            .write = requests[i].opcode == FERRY_URMA_WRITE,
            .token = requests[i].token,
            .local = (uintptr_t)requests[i].local,
            .remote = requests[i].remote,
            .seg = obj(requests[i].mem)->handle,
            .import = obj(requests[i].rmem)->handle,
            .length = requests[i].length,
        };
    }
    rc = usim_post(sim_of(jetty), obj(jetty)->handle, posts, count, &result_out->accepted,
                   &result_out->known);
    if (!result_out->known) {
        result_out->accepted = 0;
        return as(FERRY_URMA_UNKNOWN, rc);
    }
    if (rc == SIM_EAGAIN || rc == SIM_ENOMEM)
        return as(FERRY_URMA_BUSY, rc);
    return as(rc == SIM_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_ENDPOINT, rc);
}

static struct ferry_urma_status table_set_error(struct ferry_urma_jetty *jetty)
{
    return as(FERRY_URMA_ENDPOINT, usim_jetty_error(sim_of(jetty), obj(jetty)->handle));
}

static struct ferry_urma_status table_flush(struct ferry_urma_jetty *jetty,
                                            struct ferry_urma_completion *out, uint32_t capacity,
                                            uint32_t *count_out)
{
    struct sim_cr crs[FERRY_URMA_POLL_MAX];
    int count = usim_flush(sim_of(jetty), obj(jetty)->handle, crs,
                           capacity < FERRY_URMA_POLL_MAX ? capacity : FERRY_URMA_POLL_MAX);

    for (int i = 0; i < count; i++)
        translate(&crs[i], &out[i]);
    *count_out = (uint32_t)count;
    return OK_STATUS;
}

static struct ferry_urma_status table_disconnect(struct ferry_urma_jetty *jetty)
{
    int rc = obj(jetty)->connected ? usim_jetty_unbind(sim_of(jetty), obj(jetty)->handle) : 0;

    if (rc == 0)
        obj(jetty)->connected = false;
    return as(FERRY_URMA_BUSY, rc);
}

static struct ferry_urma_status table_jetty_destroy(struct ferry_urma_jetty **jetty)
{
    return finish(jetty, usim_jetty_delete(sim_of(*jetty), obj(*jetty)->handle));
}

static const struct ferry_urma_ops table = {
    .ops_version = FERRY_URMA_OPS_VERSION,
    .name = "simulator",
    .open = table_open,
    .close = table_close,
    .fingerprint = table_fingerprint,
    .list_devices = table_list,
    .ctx_open = table_ctx_open,
    .ctx_info = table_ctx_info,
    .ctx_refresh = table_ctx_refresh,
    .ctx_close = table_ctx_close,
    .event_next = table_event_next,
    .cq_create = table_cq_create,
    .cq_fd = table_cq_fd,
    .cq_arm = table_cq_arm,
    .cq_ack_events = table_cq_ack,
    .cq_poll = table_cq_poll,
    .cq_destroy = table_cq_destroy,
    .mem_register = table_mem_register,
    .mem_export = table_mem_export,
    .mem_unregister = table_mem_unregister,
    .rmem_import = table_rmem_import,
    .rmem_release = table_rmem_release,
    .jetty_create = table_jetty_create,
    .jetty_info = table_jetty_info,
    .jetty_connect = table_jetty_connect,
    .jetty_post = table_jetty_post,
    .jetty_set_error = table_set_error,
    .jetty_flush = table_flush,
    .jetty_disconnect = table_disconnect,
    .jetty_destroy = table_jetty_destroy,
};

const struct ferry_urma_ops *usim_table(void)
{
    return &table;
}
