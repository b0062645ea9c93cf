/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The URMA interface (include/urma_api.h) over the simulated fabric, for one host of one process,
 * with the rules that a real library enforces: one initialisation, sparse EID lists, targets that
 * can be bound once, positive statuses, and events that have to be acknowledged before their object
 * goes. Any thread.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <urma_api.h>

#include "base/assert.h"
#include "foreign/urma_native.h"
#include "sim/urma/urma_sim_state.h"

struct shim_ctx {
    urma_context_t public; /* first */
    uint32_t handle;
};

struct shim_jfce {
    urma_jfce_t public;
    struct shim_jfc *jfc;
};

struct shim_jfc {
    urma_jfc_t public;
    struct shim_ctx *ctx;
    uint32_t handle;
    uint32_t unacked;
};

struct shim_jfr {
    urma_jfr_t public;
};

struct shim_jetty {
    urma_jetty_t public;
    uint32_t handle;
    struct shim_target *target;
};

struct shim_target {
    urma_target_jetty_t public;
    bool bound;
};

struct shim_seg {
    urma_target_seg_t public;
    uint32_t handle;
    bool import;
};

static struct usim_host host;
static bool inited, foreign_init;
static uint32_t uninits;
static urma_device_t devices[USIM_DEVICES_MAX];
/* Objects by handle, to find the one that an event means. */
static _Atomic(struct shim_jetty *) jetties[SIM_JETTIES_MAX];
static _Atomic(struct shim_jfc *) queues[SIM_QUEUES_MAX];

void usim_shim_host(const struct usim_host *wanted)
{
    host = wanted != NULL ? *wanted : (struct usim_host){0};
}

void usim_shim_foreign_init(bool on)
{
    foreign_init = on;
}

uint32_t usim_shim_uninits(void)
{
    return uninits;
}

const struct ferry_urma_ops *usim_native_table(void)
{
    return ferry_urma_native_ops();
}

static void *must_alloc(size_t size)
{
    void *object = calloc(1, size);

    FERRY_ASSERT(object != NULL);
    return object;
}

urma_status_t urma_init(urma_init_attr_t *attr)
{
    (void)attr;
    if (inited || foreign_init)
        return URMA_EEXIST;
    if (host.sim == NULL)
        return URMA_FAIL;
    inited = true;
    return URMA_SUCCESS;
}

urma_status_t urma_uninit(void)
{
    if (foreign_init)
        sim_violation(host.sim->state,
                      "the library was uninitialised by somebody who does not own it");
    if (!inited)
        return URMA_FAIL;
    inited = false;
    uninits++;
    return URMA_SUCCESS;
}

urma_status_t urma_register_log_func(urma_log_cb_t func)
{
    (void)func;
    return URMA_SUCCESS;
}

/* ---- devices ---- */

static struct sim_device *sim_device(const urma_device_t *device)
{
    return &host.sim->state->devices[device - devices];
}

urma_device_t **urma_get_device_list(int *num)
{
    urma_device_t **list = must_alloc((USIM_DEVICES_MAX + 1) * sizeof(urma_device_t *));
    struct sim_state *state = host.sim->state;
    int count = 0;

    for (uint32_t i = 0; i < state->device_count; i++) {
        if (state->devices[i].node != host.node || !state->devices[i].present) {
            memset(&devices[i], 0xdd, sizeof(devices[i])); /* the object of a vanished device */
            continue;
        }
        snprintf(devices[i].name, sizeof(devices[i].name), "%s", state->devices[i].name);
        snprintf(devices[i].path, sizeof(devices[i].path), "%s", state->devices[i].path);
        list[count++] = &devices[i];
    }
    *num = count;
    if (count == 0) {
        free(list);
        errno = ENODEV;
        return NULL;
    }
    return list;
}

void urma_free_device_list(urma_device_t **list)
{
    free(list);
}

urma_device_t *urma_get_device_by_name(char *name)
{
    int count = 0;
    urma_device_t **list = urma_get_device_list(&count);
    urma_device_t *found = NULL;

    for (int i = 0; i < count; i++) {
        if (strcmp(list[i]->name, name) == 0)
            found = list[i];
    }
    free(list);
    return found;
}

urma_status_t urma_query_device(urma_device_t *device, urma_device_attr_t *attr)
{
    const struct sim_device *d = sim_device(device);

    if (d->fatal || !d->present)
        return URMA_FAIL;
    memset(attr, 0, sizeof(*attr));
    attr->port_cnt = (uint8_t)d->port_count;
    for (uint32_t i = 0; i < d->port_count; i++)
        attr->port_attr[i] = (urma_port_attr_t){(urma_port_state_t)d->port_state[i], URMA_SP_100G};
    if (d->limits_unknown)
        return URMA_SUCCESS;
    attr->dev_cap.max_jetty = SIM_JETTIES_MAX;
    attr->dev_cap.max_jfc_depth = SIM_DEPTH_MAX;
    attr->dev_cap.max_jfs_depth = d->depth_max;
    attr->dev_cap.max_jfs_sge = 1;
    attr->dev_cap.max_read_size = (uint32_t)d->request_bytes_max;
    attr->dev_cap.max_write_size = (uint32_t)d->request_bytes_max;
    attr->dev_cap.trans_mode = URMA_TM_RM | URMA_TM_RC;
    return URMA_SUCCESS;
}

urma_eid_info_t *urma_get_eid_list(urma_device_t *device, uint32_t *count)
{
    const struct sim_device *d = sim_device(device);
    urma_eid_info_t *list = must_alloc(USIM_EIDS_MAX * sizeof(*list));

    *count = 0;
    for (uint32_t i = 0; i < USIM_EIDS_MAX; i++) {
        if (!d->eid_valid[i])
            continue;
        list[*count].eid_index = i;
        memcpy(list[(*count)++].eid.raw, d->eid[i], URMA_EID_SIZE);
    }
    if (*count > 0)
        return list;
    free(list);
    errno = EIO;
    return NULL;
}

void urma_free_eid_list(urma_eid_info_t *list)
{
    free(list);
}

/* ---- contexts ---- */

urma_context_t *urma_create_context(urma_device_t *device, uint32_t eid_index)
{
    struct shim_ctx *ctx;
    uint32_t handle;

    if (usim_ctx_create(host.sim, host.node, device->name, eid_index, &handle) != 0)
        return NULL;
    ctx = must_alloc(sizeof(*ctx));
    ctx->handle = handle;
    ctx->public.async_fd = host.sim->ctx_fd[handle - 1];
    ctx->public.uasid = host.sim->state->contexts[handle - 1].uasid;
    memcpy(ctx->public.eid.raw, host.sim->state->contexts[handle - 1].eid, URMA_EID_SIZE);
    return &ctx->public;
}

urma_status_t urma_delete_context(urma_context_t *ctx)
{
    int rc = usim_ctx_delete(host.sim, ((struct shim_ctx *)(void *)ctx)->handle);

    if (rc == 0)
        free(ctx);
    return rc;
}

urma_status_t urma_set_context_opt(urma_context_t *ctx, urma_opt_name_t name, const void *value,
                                   uint32_t len)
{
    (void)ctx;
    (void)name;
    (void)value;
    (void)len;
    return URMA_EINVAL;
}

urma_status_t urma_get_async_event(urma_context_t *ctx, urma_async_event_t *event)
{
    struct sim_event got;

    if (usim_event_get(host.sim, ((struct shim_ctx *)(void *)ctx)->handle, &got) != 0)
        return URMA_FAIL;
    event->urma_ctx = ctx;
    event->event_type = (urma_async_event_type_t)got.type;
    if (got.type == SIM_EVENT_JFC_ERR)
        event->element.jfc = &atomic_load(&queues[got.object - 1])->public;
    else if (got.type == SIM_EVENT_JETTY_ERR && atomic_load(&jetties[got.object - 1]) != NULL)
        event->element.jetty = &atomic_load(&jetties[got.object - 1])->public;
    else if (got.type == SIM_EVENT_JETTY_ERR)
        event->event_type = URMA_EVENT_JETTY_LIMIT; /* its object is gone: none of our business */
    else
        event->element.port_id = got.object;
    return URMA_SUCCESS;
}

void urma_ack_async_event(urma_async_event_t *event)
{
    usim_event_ack(host.sim, ((const struct shim_ctx *)(const void *)event->urma_ctx)->handle);
}

/* ---- queues ---- */

urma_jfce_t *urma_create_jfce(urma_context_t *ctx)
{
    struct shim_jfce *jfce = must_alloc(sizeof(*jfce));

    (void)ctx;
    return &jfce->public;
}

urma_status_t urma_delete_jfce(urma_jfce_t *jfce)
{
    if (((struct shim_jfce *)(void *)jfce)->jfc != NULL)
        return URMA_FAIL;
    free(jfce);
    return URMA_SUCCESS;
}

urma_jfc_t *urma_create_jfc(urma_context_t *ctx, urma_jfc_cfg_t *cfg)
{
    struct shim_ctx *c = (struct shim_ctx *)(void *)ctx;
    struct shim_jfc *jfc;
    uint32_t handle;
    int rc = usim_cq_create(host.sim, c->handle, cfg->depth, cfg->user_ctx, &handle);

    if (rc != 0) {
        errno = rc == SIM_EINVAL ? EINVAL : 0;
        return NULL;
    }
    jfc = must_alloc(sizeof(*jfc));
    jfc->public.jfc_cfg = *cfg;
    jfc->ctx = c;
    jfc->handle = handle;
    queues[handle - 1] = jfc;
    if (cfg->jfce != NULL) {
        ((struct shim_jfce *)(void *)cfg->jfce)->jfc = jfc;
        cfg->jfce->fd = host.sim->cq_fd[handle - 1];
    }
    return &jfc->public;
}

urma_status_t urma_delete_jfc(urma_jfc_t *jfc)
{
    struct shim_jfc *mine = (struct shim_jfc *)(void *)jfc;
    struct shim_jfc *before;
    uint32_t handle = mine->handle;
    int rc;

    if (mine->unacked > 0)
        sim_violation(host.sim->state,
                      "a completion queue was deleted with events not acknowledged");
    rc = usim_cq_delete(host.sim, handle);
    if (rc != 0)
        return rc;
    before = mine;
    atomic_compare_exchange_strong(&queues[handle - 1], &before, NULL);
    if (mine->public.jfc_cfg.jfce != NULL)
        ((struct shim_jfce *)(void *)mine->public.jfc_cfg.jfce)->jfc = NULL;
    free(mine);
    return URMA_SUCCESS;
}

urma_jfr_t *urma_create_jfr(urma_context_t *ctx, urma_jfr_cfg_t *cfg)
{
    struct shim_jfr *jfr = must_alloc(sizeof(*jfr));

    (void)ctx;
    FERRY_ASSERT(cfg->jfc != NULL);
    return &jfr->public;
}

urma_status_t urma_delete_jfr(urma_jfr_t *jfr)
{
    free(jfr);
    return URMA_SUCCESS;
}

urma_status_t urma_rearm_jfc(urma_jfc_t *jfc, int solicited_only)
{
    (void)solicited_only;
    return usim_arm(host.sim, ((struct shim_jfc *)(void *)jfc)->handle);
}

int urma_wait_jfc(urma_jfce_t *jfce, uint32_t jfc_cnt, int time_out, urma_jfc_t *jfc[])
{
    struct shim_jfc *mine = ((struct shim_jfce *)(void *)jfce)->jfc;
    uint32_t signals = usim_take_signals(host.sim, mine->handle);

    (void)jfc_cnt;
    FERRY_ASSERT(time_out == 0);
    if (signals == 0)
        return 0;
    mine->unacked++;
    jfc[0] = &mine->public;
    return 1;
}

void urma_ack_jfc(urma_jfc_t *jfc[], uint32_t nevents[], uint32_t jfc_cnt)
{
    for (uint32_t i = 0; i < jfc_cnt; i++)
        ((struct shim_jfc *)(void *)jfc[i])->unacked -= nevents[i];
}

/* ---- jetties ---- */

urma_jetty_t *urma_create_jetty(urma_context_t *ctx, urma_jetty_cfg_t *cfg)
{
    struct shim_ctx *c = (struct shim_ctx *)(void *)ctx;
    struct sim_jetty_config config = {.depth = cfg->jfs_cfg.depth,
                                      .err_timeout = cfg->jfs_cfg.err_timeout,
                                      .cookie = cfg->user_ctx};
    struct shim_jetty *jetty;
    uint32_t handle;
    int rc;

    if (!cfg->flag.bs.share_jfr || cfg->shared.jfr == NULL) {
        sim_violation(host.sim->state, "a jetty without a shared receive queue");
        return NULL;
    }
    rc = usim_jetty_create(host.sim, c->handle,
                           ((struct shim_jfc *)(void *)cfg->jfs_cfg.jfc)->handle, &config, &handle);
    if (rc != 0) {
        errno = rc == SIM_EINVAL ? EINVAL : ENOMEM;
        return NULL;
    }
    jetty = must_alloc(sizeof(*jetty));
    jetty->handle = handle;
    jetty->public.jetty_cfg = *cfg;
    jetty->public.jetty_id.id = handle;
    jetty->public.jetty_id.uasid = c->public.uasid;
    jetty->public.jetty_id.eid = c->public.eid;
    jetties[handle - 1] = jetty;
    return &jetty->public;
}

urma_status_t urma_modify_jetty(urma_jetty_t *jetty, urma_jetty_attr_t *attr)
{
    FERRY_ASSERT(attr->mask == JETTY_STATE);
    FERRY_ASSERT(attr->state == URMA_JETTY_STATE_ERROR);
    return usim_jetty_error(host.sim, ((struct shim_jetty *)(void *)jetty)->handle);
}

urma_status_t urma_delete_jetty(urma_jetty_t *jetty)
{
    struct shim_jetty *mine = (struct shim_jetty *)(void *)jetty;
    struct shim_jetty *before;
    uint32_t handle = mine->handle;
    int rc = usim_jetty_delete(host.sim, handle);

    if (rc != 0)
        return rc;
    /* The handle may be somebody else's by now. */
    before = mine;
    atomic_compare_exchange_strong(&jetties[handle - 1], &before, NULL);
    free(mine);
    return URMA_SUCCESS;
}

urma_target_jetty_t *urma_import_jetty(urma_context_t *ctx, urma_rjetty_t *rjetty,
                                       urma_token_t *token)
{
    struct shim_target *target = must_alloc(sizeof(*target));

    (void)ctx;
    (void)token;
    FERRY_ASSERT(rjetty->type == URMA_JETTY);
    target->public.id = rjetty->jetty_id;
    return &target->public;
}

urma_status_t urma_unimport_jetty(urma_target_jetty_t *tjetty)
{
    free(tjetty);
    return URMA_SUCCESS;
}

urma_status_t urma_bind_jetty(urma_jetty_t *jetty, urma_target_jetty_t *tjetty)
{
    struct shim_jetty *mine = (struct shim_jetty *)(void *)jetty;
    struct shim_target *target = (struct shim_target *)(void *)tjetty;
    int rc;

    if (target->bound)
        return URMA_EINVAL;
    rc = usim_jetty_bind(host.sim, mine->handle, target->public.id.eid.raw, target->public.id.id);
    target->bound = rc == 0;
    return rc;
}

urma_status_t urma_unbind_jetty(urma_jetty_t *jetty)
{
    return usim_jetty_unbind(host.sim, ((struct shim_jetty *)(void *)jetty)->handle);
}

/* ---- memory ---- */

urma_target_seg_t *urma_register_seg(urma_context_t *ctx, urma_seg_cfg_t *cfg)
{
    struct shim_ctx *c = (struct shim_ctx *)(void *)ctx;
    struct ferry_urma_mem_spec spec = {.addr = (void *)(uintptr_t)cfg->va,
                                       .length = cfg->len,
                                       .access = cfg->flag.bs.access,
                                       .token = cfg->token_value.token};
    struct shim_seg *seg;
    uint32_t handle;
    int rc;

    if (cfg->flag.bs.token_policy != URMA_TOKEN_PLAIN_TEXT)
        sim_violation(host.sim->state, "a range was registered without a token");
    rc = usim_seg_register(host.sim, c->handle, &spec, &handle);
    if (rc != 0) {
        errno = rc == SIM_EINVAL ? EINVAL : ENOMEM;
        return NULL;
    }
    seg = must_alloc(sizeof(*seg));
    seg->handle = handle;
    seg->public.seg.ubva.eid = c->public.eid;
    seg->public.seg.ubva.uasid = c->public.uasid;
    seg->public.seg.ubva.va = cfg->va;
    seg->public.seg.len = cfg->len;
    seg->public.seg.attr.bs.token_policy = cfg->flag.bs.token_policy;
    seg->public.seg.attr.bs.access = cfg->flag.bs.access;
    seg->public.seg.token_id = host.sim->state->segments[handle - 1].token_id;
    return &seg->public;
}

urma_status_t urma_unregister_seg(urma_target_seg_t *seg)
{
    int rc = usim_seg_unregister(host.sim, ((struct shim_seg *)(void *)seg)->handle);

    if (rc == 0)
        free(seg);
    return rc;
}

urma_target_seg_t *urma_import_seg(urma_context_t *ctx, urma_seg_t *seg, urma_token_t *token,
                                   uint64_t addr, urma_import_seg_flag_t flag)
{
    struct shim_ctx *c = (struct shim_ctx *)(void *)ctx;
    struct ferry_urma_descriptor descriptor = {.uasid = seg->ubva.uasid,
                                               .addr = seg->ubva.va,
                                               .length = seg->len,
                                               .attr = seg->attr.value,
                                               .token_id = seg->token_id};
    struct shim_seg *import;
    uint32_t handle;

    FERRY_ASSERT(addr == 0);
    memcpy(descriptor.eid, seg->ubva.eid.raw, URMA_EID_SIZE);
    if (usim_import(host.sim, c->handle, &descriptor, token->token, flag.bs.access, &handle) != 0)
        return NULL;
    import = must_alloc(sizeof(*import));
    import->handle = handle;
    import->import = true;
    return &import->public;
}

urma_status_t urma_unimport_seg(urma_target_seg_t *seg)
{
    int rc = usim_unimport(host.sim, ((struct shim_seg *)(void *)seg)->handle);

    if (rc == 0)
        free(seg);
    return rc;
}

/* ---- requests ---- */

urma_status_t urma_post_jetty_send_wr(urma_jetty_t *jetty, urma_jfs_wr_t *wr,
                                      urma_jfs_wr_t **bad_wr)
{
    struct sim_post posts[FERRY_URMA_POST_MAX];
    urma_jfs_wr_t *wrs[FERRY_URMA_POST_MAX];
    uint32_t count = 0;
    uint32_t accepted;
    bool known;
    int rc;

    for (; wr != NULL; wr = wr->next) {
        bool write = wr->opcode == URMA_OPC_WRITE;
        const urma_sge_t *local = write ? wr->rw.src.sge : wr->rw.dst.sge;
        const urma_sge_t *remote = write ? wr->rw.dst.sge : wr->rw.src.sge;

        FERRY_ASSERT(wr->flag.bs.complete_enable);
        FERRY_ASSERT(count < FERRY_URMA_POST_MAX);
        posts[count] = (struct sim_post){
            .write = write,
            .token = wr->user_ctx,
            .local = local->addr,
            .remote = remote->addr,
            .seg = ((struct shim_seg *)(void *)local->tseg)->handle,
            .import = ((struct shim_seg *)(void *)remote->tseg)->handle,
            .length = local->len,
        };
        wrs[count++] = wr;
    }
    rc = usim_post(host.sim, ((struct shim_jetty *)(void *)jetty)->handle, posts, count, &accepted,
                   &known);
    if (rc != 0 && known && accepted < count)
        *bad_wr = wrs[accepted];
    return rc;
}

static void fill_cr(const struct sim_cr *from, urma_cr_t *to)
{
    memset(to, 0, sizeof(*to));
    to->status = (urma_cr_status_t)from->status;
    to->user_ctx = from->token;
    to->completion_len = from->bytes;
    to->local_id = from->jetty_id;
    to->flag.bs.flush_err_done = from->status == SIM_CR_FLUSH_DONE;
}

int urma_poll_jfc(urma_jfc_t *jfc, int cr_cnt, urma_cr_t *cr)
{
    struct sim_cr crs[FERRY_URMA_POLL_MAX];
    uint32_t saved;
    int rc = usim_poll(host.sim, ((struct shim_jfc *)(void *)jfc)->handle, crs, (uint32_t)cr_cnt,
                       &saved);

    for (uint32_t i = 0; i < saved; i++)
        fill_cr(&crs[i], &cr[i]);
    return rc;
}

int urma_flush_jetty(urma_jetty_t *jetty, int cr_cnt, urma_cr_t *cr)
{
    struct sim_cr crs[FERRY_URMA_POLL_MAX];
    int count = usim_flush(host.sim, ((struct shim_jetty *)(void *)jetty)->handle, crs,
                           (uint32_t)cr_cnt);

    for (int i = 0; i < count; i++)
        fill_cr(&crs[i], &cr[i]);
    return count;
}
