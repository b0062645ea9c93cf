/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of native UB calls over liburma: process, devices, contexts, queues and memory.
 * Jetties and requests are in urma_native_jetty.c. Any thread; translates, and remembers only what
 * a half-done native sequence needs to be taken back or gone on with.
 *
 * Ways of liburma that this file has to mind: statuses are positive; a second urma_init() answers
 * EEXIST and its caller must never uninitialise; EID lists are sparse, and empty is no fault; a
 * rescan frees the objects of devices that vanished, so names are kept and resolved anew; every
 * fetched event is acknowledged at once, else the delete of its object blocks for ever; cfg structs
 * are changed by the callee, so they are made for each call.
 */
#include "foreign/urma_native.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* How many receives a shared receive queue holds; one-sided traffic uses none. */
#define RECEIVE_DEPTH     16
#define RNR_TIMER_TYPICAL 12

/* One library per process; the log callback has no argument of its own. */
static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint32_t process_users;
static bool process_owner;
static ferry_urma_log_fn *process_log;
static void *process_log_arg;

static void pass_log(int level, char *message)
{
    ferry_urma_log_fn *log = process_log;

    if (log != NULL)
        log(process_log_arg, level, message);
}

struct ferry_urma_status ferry_native_status(enum ferry_urma_class class, int native)
{
    return (struct ferry_urma_status){.class = native == 0 ? FERRY_URMA_OK : class,
                                      .native = native};
}

/* Both may mean "in use"; everything else is a wrong order of calls. */
struct ferry_urma_status ferry_native_destroyed(int native)
{
    if (native == URMA_ENOPERM || native == URMA_EINVAL)
        return ferry_native_status(FERRY_URMA_CALLER, native);
    return ferry_native_status(FERRY_URMA_BUSY, native);
}

/* errno after a NULL result may be stale or 0. */
static int native_errno(void)
{
    return errno != 0 ? errno : URMA_FAIL;
}

/* ---- process ---- */

static int process_acquire(const struct ferry_urma_open_options *options)
{
    int rc = URMA_SUCCESS;

    pthread_mutex_lock(&process_mutex);
    if (process_users == 0) {
        urma_init_attr_t attr = {0};

        process_log = options->log;
        process_log_arg = options->log_arg;
        /* Before the first call: the error path is chatty, and its default is syslog. */
        urma_register_log_func(pass_log);
        rc = urma_init(&attr);
        process_owner = rc == URMA_SUCCESS;
        if (rc == URMA_EEXIST)
            rc = URMA_SUCCESS;
    }
    process_users += rc == URMA_SUCCESS;
    pthread_mutex_unlock(&process_mutex);
    return rc;
}

static int process_release(void)
{
    int rc = URMA_SUCCESS;

    pthread_mutex_lock(&process_mutex);
    if (process_users == 1 && process_owner)
        rc = urma_uninit();
    process_users -= rc == URMA_SUCCESS;
    if (process_users == 0)
        process_owner = false;
    pthread_mutex_unlock(&process_mutex);
    return rc;
}

static struct ferry_urma_status native_open(const struct ferry_urma_open_options *options,
                                            struct ferry_urma_runtime **runtime_out)
{
    struct native_runtime *runtime = calloc(1, sizeof(*runtime));
    int rc;

    if (runtime == NULL)
        return ferry_native_status(FERRY_URMA_DEVICE, URMA_ENOMEM);
    rc = process_acquire(options);
    if (rc != URMA_SUCCESS) {
        free(runtime);
        return ferry_native_status(FERRY_URMA_DEVICE, rc);
    }
    *runtime_out = (struct ferry_urma_runtime *)(void *)runtime;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static struct ferry_urma_status native_close(struct ferry_urma_runtime **runtime)
{
    struct native_runtime *mine = (struct native_runtime *)(void *)*runtime;
    int rc;

    if (atomic_load(&mine->contexts) > 0)
        return ferry_native_status(FERRY_URMA_BUSY, URMA_EAGAIN);
    rc = process_release();
    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    free(mine);
    *runtime = NULL;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static void native_fingerprint(struct ferry_urma_runtime *runtime, char *buf, size_t size)
{
    (void)runtime;
    /* The version number is the same in all releases; the sizes are not. */
    snprintf(buf, size,
             "api %d, device_attr %zu, context %zu, rjetty %zu, sge %zu, seg %zu, cr %zu",
             URMA_API_VERSION, sizeof(urma_device_attr_t), sizeof(urma_context_t),
             sizeof(urma_rjetty_t), sizeof(urma_sge_t), sizeof(urma_seg_t), sizeof(urma_cr_t));
}

/* ---- devices ---- */

static bool port_usable(urma_port_state_t state)
{
    return state == URMA_PORT_ACTIVE || state == URMA_PORT_ACTIVE_DEFER;
}

static uint64_t speed_mbit(urma_speed_t speed)
{
    static const uint32_t mbit[] = {
        [URMA_SP_10M] = 10,      [URMA_SP_100M] = 100,    [URMA_SP_1G] = 1000,
        [URMA_SP_2_5G] = 2500,   [URMA_SP_5G] = 5000,     [URMA_SP_10G] = 10000,
        [URMA_SP_14G] = 14000,   [URMA_SP_25G] = 25000,   [URMA_SP_40G] = 40000,
        [URMA_SP_50G] = 50000,   [URMA_SP_100G] = 100000, [URMA_SP_200G] = 200000,
        [URMA_SP_400G] = 400000, [URMA_SP_800G] = 800000,
    };

    return (unsigned)speed < sizeof(mbit) / sizeof(mbit[0]) ? mbit[speed] : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0)
        return a | b;
    return a < b ? a : b;
}

static void fill_attr(const urma_device_attr_t *attr, struct ferry_urma_device *row)
{
    const urma_device_cap_t *cap = &attr->dev_cap;

    row->port_count = attr->port_cnt <= MAX_PORT_CNT ? attr->port_cnt : MAX_PORT_CNT;
    for (uint32_t i = 0; i < row->port_count; i++) {
        if (!port_usable(attr->port_attr[i].state))
            continue;
        row->ports_active++;
        row->speed_mbit += speed_mbit(attr->port_attr[i].active_speed);
    }
    row->caps = (struct ferry_urma_caps){
        .jetty_max = cap->max_jetty,
        .jetty_depth_max = cap->max_jfs_depth,
        .cq_depth_max = cap->max_jfc_depth,
        .sge_max = cap->max_jfs_sge,
        .read_bytes_max = smaller(cap->max_read_size, cap->max_msg_size),
        .write_bytes_max = smaller(cap->max_write_size, cap->max_msg_size),
        .trans_modes = cap->trans_mode,
        .features = cap->feature.value,
        .priority_rtp = 0xffff,
        .priority_ctp = 0xffff,
    };
}

static void add_rows(urma_device_t *device, uint32_t index, struct ferry_urma_device *rows,
                     uint32_t capacity, uint32_t *count)
{
    urma_device_attr_t attr = {0};
    urma_eid_info_t *eids;
    uint32_t eid_count = 0;

    /* A device that does not answer has no row; the others do. */
    if (urma_query_device(device, &attr) != URMA_SUCCESS)
        return;
    eids = urma_get_eid_list(device, &eid_count);
    for (uint32_t i = 0; eids != NULL && i < eid_count && *count < capacity; i++) {
        struct ferry_urma_device *row = &rows[(*count)++];

        *row = (struct ferry_urma_device){.device_index = index, .eid_index = eids[i].eid_index};
        snprintf(row->name, sizeof(row->name), "%.*s", (int)sizeof(row->name) - 1, device->name);
        snprintf(row->path, sizeof(row->path), "%.*s", (int)sizeof(row->path) - 1, device->path);
        memcpy(row->eid, eids[i].eid.raw, sizeof(row->eid));
        fill_attr(&attr, row);
    }
    if (eids != NULL)
        urma_free_eid_list(eids);
}

static struct ferry_urma_status native_list(struct ferry_urma_runtime *runtime,
                                            struct ferry_urma_device *rows, uint32_t capacity,
                                            uint32_t *count_out)
{
    int device_count = 0;
    urma_device_t **devices;
    uint32_t count = 0;

    (void)runtime;
    /* The list frees what vanished since the last one: one at a time in this process. */
    pthread_mutex_lock(&process_mutex);
    errno = 0;
    devices = urma_get_device_list(&device_count);
    for (int i = 0; devices != NULL && i < device_count; i++)
        add_rows(devices[i], (uint32_t)i, rows, capacity, &count);
    if (devices != NULL)
        urma_free_device_list(devices);
    pthread_mutex_unlock(&process_mutex);
    *count_out = count;
    /* NULL is also what an empty host answers. */
    return ferry_native_status(FERRY_URMA_OK, 0);
}

/* ---- contexts ---- */

/* Under process_mutex: the device object of a name, or NULL. */
static urma_device_t *find_device(const char *name)
{
    char copy[URMA_MAX_NAME];

    snprintf(copy, sizeof(copy), "%s", name);
    return urma_get_device_by_name(copy);
}

static bool eid_in_slot(urma_device_t *device, uint32_t slot, const uint8_t *eid)
{
    uint32_t count = 0;
    urma_eid_info_t *eids = urma_get_eid_list(device, &count);
    bool found = false;

    for (uint32_t i = 0; eids != NULL && i < count; i++)
        found |= eids[i].eid_index == slot && memcmp(eids[i].eid.raw, eid, URMA_EID_SIZE) == 0;
    if (eids != NULL)
        urma_free_eid_list(eids);
    return found;
}

static void set_aggregation(urma_context_t *context, enum ferry_urma_aggregation aggregation)
{
    static const urma_context_aggr_mode_t modes[] = {
        [FERRY_URMA_AGGREGATE_STANDALONE] = URMA_AGGR_MODE_STANDALONE,
        [FERRY_URMA_AGGREGATE_ACTIVE_BACKUP] = URMA_AGGR_MODE_ACTIVE_BACKUP,
        [FERRY_URMA_AGGREGATE_BALANCE] = URMA_AGGR_MODE_BALANCE,
    };
    urma_context_aggr_mode_t mode;

    if (aggregation == FERRY_URMA_AGGREGATE_LEAVE)
        return;
    mode = modes[aggregation];
    /* Devices that bond nothing refuse it, which is as good. */
    urma_set_context_opt(context, URMA_OPT_AGGR_MODE, &mode, sizeof(mode));
}

static struct ferry_urma_status native_ctx_open(struct ferry_urma_runtime *runtime,
                                                const struct ferry_urma_ctx_options *options,
                                                struct ferry_urma_ctx **ctx_out)
{
    struct native_runtime *mine = (struct native_runtime *)(void *)runtime;
    struct native_ctx *ctx = calloc(1, sizeof(*ctx));
    urma_device_t *device;
    int flags;

    if (ctx == NULL)
        return ferry_native_status(FERRY_URMA_DEVICE, URMA_ENOMEM);
    pthread_mutex_lock(&process_mutex);
    errno = 0;
    device = find_device(options->name);
    if (device != NULL && eid_in_slot(device, options->eid_index, options->eid))
        ctx->context = urma_create_context(device, options->eid_index);
    pthread_mutex_unlock(&process_mutex);
    if (ctx->context == NULL) {
        free(ctx);
        return ferry_native_status(FERRY_URMA_DEVICE, native_errno());
    }
    ctx->runtime = mine;
    pthread_mutex_init(&ctx->mutex, NULL);
    snprintf(ctx->name, sizeof(ctx->name), "%s", options->name);
    ctx->eid_index = options->eid_index;
    set_aggregation(ctx->context, options->aggregation);
    /* The getter of events blocks on a descriptor that does. */
    flags = fcntl(ctx->context->async_fd, F_GETFL);
    if (flags >= 0)
        fcntl(ctx->context->async_fd, F_SETFL, flags | O_NONBLOCK);
    atomic_fetch_add(&mine->contexts, 1);
    *ctx_out = (struct ferry_urma_ctx *)(void *)ctx;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static void native_ctx_info(struct ferry_urma_ctx *handle, struct ferry_urma_ctx_info *info_out)
{
    const struct native_ctx *ctx = ferry_native_ctx(handle);

    memcpy(info_out->eid, ctx->context->eid.raw, FERRY_URMA_EID_SIZE);
    info_out->uasid = ctx->context->uasid;
    info_out->async_fd = ctx->context->async_fd;
}

static struct ferry_urma_status native_ctx_refresh(struct ferry_urma_ctx *handle,
                                                   struct ferry_urma_ctx_state *state_out)
{
    const struct native_ctx *ctx = ferry_native_ctx(handle);
    struct ferry_urma_device row = {0};
    urma_device_attr_t attr = {0};
    int rc = URMA_FAIL;

    pthread_mutex_lock(&process_mutex);
    urma_device_t *device = find_device(ctx->name);
    if (device != NULL)
        rc = urma_query_device(device, &attr);
    if (rc == URMA_SUCCESS) {
        fill_attr(&attr, &row);
        *state_out = (struct ferry_urma_ctx_state){
            .port_count = row.port_count,
            .ports_active = row.ports_active,
            .eid_valid = eid_in_slot(device, ctx->eid_index, ctx->context->eid.raw),
        };
    }
    pthread_mutex_unlock(&process_mutex);
    return ferry_native_status(FERRY_URMA_DEVICE, rc);
}

/* Parts of queues whose roll-back failed keep the context busy; try them again. */
static void drop_orphans(struct native_ctx *ctx)
{
    pthread_mutex_lock(&ctx->mutex);
    for (uint32_t i = 0; i < ctx->orphan_count;) {
        struct native_cq *cq = ctx->orphans[i];

        if (ferry_native_cq_parts_destroy(cq) != URMA_SUCCESS) {
            i++;
            continue;
        }
        free(cq);
        ctx->orphans[i] = ctx->orphans[--ctx->orphan_count];
    }
    pthread_mutex_unlock(&ctx->mutex);
}

static struct ferry_urma_status native_ctx_close(struct ferry_urma_ctx **handle)
{
    struct native_ctx *ctx = ferry_native_ctx(*handle);
    int rc;

    drop_orphans(ctx);
    rc = urma_delete_context(ctx->context);
    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    atomic_fetch_sub(&ctx->runtime->contexts, 1);
    pthread_mutex_destroy(&ctx->mutex);
    free(ctx);
    *handle = NULL;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

/* ---- events ---- */

static void fill_event(const urma_async_event_t *event, struct ferry_urma_event *out)
{
    switch (event->event_type) {
    case URMA_EVENT_JFC_ERR:
        out->kind = FERRY_URMA_EVENT_CQ;
        out->cq_cookie = event->element.jfc->jfc_cfg.user_ctx;
        return;
    case URMA_EVENT_JETTY_ERR:
        out->kind = FERRY_URMA_EVENT_JETTY;
        out->jetty_id = event->element.jetty->jetty_id.id;
        return;
    case URMA_EVENT_JFR_ERR:
        out->kind = FERRY_URMA_EVENT_RECEIVE;
        return;
    case URMA_EVENT_PORT_ACTIVE:
    case URMA_EVENT_PORT_DOWN:
        out->kind = FERRY_URMA_EVENT_PORT;
        out->index = event->element.port_id;
        return;
    case URMA_EVENT_DEV_FATAL:
    case URMA_EVENT_ELR_ERR:
        out->kind = FERRY_URMA_EVENT_FATAL;
        return;
    case URMA_EVENT_EID_CHANGE:
        out->kind = FERRY_URMA_EVENT_EID;
        out->index = event->element.eid_idx;
        return;
    default:
        out->kind = FERRY_URMA_EVENT_OTHER;
    }
}

static struct ferry_urma_status native_event_next(struct ferry_urma_ctx *handle,
                                                  struct ferry_urma_event *event_out)
{
    const struct native_ctx *ctx = ferry_native_ctx(handle);
    urma_async_event_t event = {0};

    /* "Nothing there" is reported like every other failure. */
    if (urma_get_async_event(ctx->context, &event) != URMA_SUCCESS)
        return ferry_native_status(FERRY_URMA_OK, 0);
    fill_event(&event, event_out);
    urma_ack_async_event(&event);
    return ferry_native_status(FERRY_URMA_OK, 0);
}

/* ---- completion queues ---- */

int ferry_native_cq_parts_destroy(struct native_cq *cq)
{
    int rc = URMA_SUCCESS;

    if (cq->jfr != NULL && (rc = urma_delete_jfr(cq->jfr)) != URMA_SUCCESS)
        return rc;
    cq->jfr = NULL;
    if (cq->receive != NULL && (rc = urma_delete_jfc(cq->receive)) != URMA_SUCCESS)
        return rc;
    cq->receive = NULL;
    if (cq->send != NULL && (rc = urma_delete_jfc(cq->send)) != URMA_SUCCESS)
        return rc;
    cq->send = NULL;
    if (cq->jfce != NULL && (rc = urma_delete_jfce(cq->jfce)) != URMA_SUCCESS)
        return rc;
    cq->jfce = NULL;
    return rc;
}

static int cq_parts_create(struct native_ctx *ctx, const struct ferry_urma_cq_options *options,
                           struct native_cq *cq)
{
    urma_jfc_cfg_t send = {.depth = options->depth, .user_ctx = options->cookie};
    urma_jfc_cfg_t receive = {.depth = RECEIVE_DEPTH, .user_ctx = options->cookie};
    urma_jfr_cfg_t jfr = {
        .depth = RECEIVE_DEPTH,
        .trans_mode = URMA_TM_RC,
        .max_sge = 1,
        .min_rnr_timer = RNR_TIMER_TYPICAL,
    };

    errno = 0;
    if (options->events && (cq->jfce = urma_create_jfce(ctx->context)) == NULL)
        return native_errno();
    send.jfce = cq->jfce;
    cq->send = urma_create_jfc(ctx->context, &send);
    if (cq->send == NULL)
        return native_errno();
    cq->receive = urma_create_jfc(ctx->context, &receive);
    if (cq->receive == NULL)
        return native_errno();
    /* Jetties of UB devices need a shared receive queue although one-sided traffic never uses it.
     */
    jfr.flag.bs.token_policy = URMA_TOKEN_NONE;
    jfr.jfc = cq->receive;
    cq->jfr = urma_create_jfr(ctx->context, &jfr);
    return cq->jfr == NULL ? native_errno() : URMA_SUCCESS;
}

static struct ferry_urma_status native_cq_create(struct ferry_urma_ctx *handle,
                                                 const struct ferry_urma_cq_options *options,
                                                 struct ferry_urma_cq **cq_out)
{
    struct native_ctx *ctx = ferry_native_ctx(handle);
    struct native_cq *cq = calloc(1, sizeof(*cq));
    int rc;

    if (cq == NULL)
        return ferry_native_status(FERRY_URMA_DEVICE, URMA_ENOMEM);
    rc = cq_parts_create(ctx, options, cq);
    if (rc == URMA_SUCCESS) {
        *cq_out = (struct ferry_urma_cq *)(void *)cq;
        return ferry_native_status(FERRY_URMA_OK, 0);
    }
    if (ferry_native_cq_parts_destroy(cq) == URMA_SUCCESS) {
        free(cq);
    } else {
        pthread_mutex_lock(&ctx->mutex);
        FERRY_ASSERT(ctx->orphan_count < NATIVE_ORPHANS_MAX);
        ctx->orphans[ctx->orphan_count++] = cq;
        pthread_mutex_unlock(&ctx->mutex);
    }
    return ferry_native_status(rc == URMA_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_DEVICE, rc);
}

static int native_cq_fd(struct ferry_urma_cq *handle)
{
    const struct native_cq *cq = ferry_native_cq(handle);

    return cq->jfce != NULL ? cq->jfce->fd : -1;
}

static struct ferry_urma_status native_cq_arm(struct ferry_urma_cq *handle)
{
    return ferry_native_status(FERRY_URMA_DEVICE, urma_rearm_jfc(ferry_native_cq(handle)->send, 0));
}

static struct ferry_urma_status native_cq_ack(struct ferry_urma_cq *handle, uint32_t *count_out)
{
    struct native_cq *cq = ferry_native_cq(handle);
    urma_jfc_t *jfc = NULL;
    uint32_t one = 1;
    int rc;

    *count_out = 0;
    if (cq->jfce == NULL)
        return ferry_native_status(FERRY_URMA_OK, 0);
    while ((rc = urma_wait_jfc(cq->jfce, 1, 0, &jfc)) > 0) {
        urma_ack_jfc(&jfc, &one, 1);
        ++*count_out;
    }
    return ferry_native_status(FERRY_URMA_DEVICE, rc);
}

static struct ferry_urma_status native_cq_destroy(struct ferry_urma_cq **handle)
{
    struct native_cq *cq = ferry_native_cq(*handle);
    int rc = ferry_native_cq_parts_destroy(cq);

    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    free(cq);
    *handle = NULL;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

/* ---- memory ---- */

static struct ferry_urma_status native_mem_register(struct ferry_urma_ctx *handle,
                                                    const struct ferry_urma_mem_spec *spec,
                                                    struct ferry_urma_mem **mem_out)
{
    urma_seg_cfg_t cfg = {
        .va = (uintptr_t)spec->addr, .len = spec->length, .token_value = {.token = spec->token}};
    urma_target_seg_t *seg;

    cfg.flag.bs.token_policy = URMA_TOKEN_PLAIN_TEXT;
    cfg.flag.bs.cacheable = URMA_NON_CACHEABLE;
    cfg.flag.bs.access = spec->access & 0x3fu;
    errno = 0;
    seg = urma_register_seg(ferry_native_ctx(handle)->context, &cfg);
    if (seg == NULL) {
        int rc = native_errno();

        return ferry_native_status(rc == URMA_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_MEMORY, rc);
    }
    *mem_out = (struct ferry_urma_mem *)(void *)seg;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static void native_mem_export(struct ferry_urma_mem *mem,
                              struct ferry_urma_descriptor *descriptor_out)
{
    const urma_target_seg_t *target = (const urma_target_seg_t *)(const void *)mem;

    *descriptor_out = (struct ferry_urma_descriptor){
        .uasid = target->seg.ubva.uasid,
        .addr = target->seg.ubva.va,
        .length = target->seg.len,
        .attr = target->seg.attr.value,
        .token_id = target->seg.token_id,
    };
    memcpy(descriptor_out->eid, target->seg.ubva.eid.raw, FERRY_URMA_EID_SIZE);
}

static struct ferry_urma_status native_mem_unregister(struct ferry_urma_mem **mem)
{
    int rc = urma_unregister_seg((urma_target_seg_t *)(void *)*mem);

    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    *mem = NULL;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static struct ferry_urma_status native_rmem_import(struct ferry_urma_ctx *handle,
                                                   const struct ferry_urma_descriptor *descriptor,
                                                   uint32_t token, uint32_t access,
                                                   struct ferry_urma_rmem **rmem_out)
{
    urma_seg_t seg = {.len = descriptor->length,
                      .attr = {.value = descriptor->attr},
                      .token_id = descriptor->token_id};
    urma_token_t value = {.token = token};
    urma_import_seg_flag_t flag = {0};
    urma_target_seg_t *target;

    memcpy(seg.ubva.eid.raw, descriptor->eid, URMA_EID_SIZE);
    seg.ubva.uasid = descriptor->uasid;
    seg.ubva.va = descriptor->addr;
    flag.bs.cacheable = URMA_NON_CACHEABLE;
    flag.bs.access = access & 0x3fu;
    flag.bs.mapping = URMA_SEG_NOMAP;
    errno = 0;
    target = urma_import_seg(ferry_native_ctx(handle)->context, &seg, &value, 0, flag);
    if (target == NULL)
        return ferry_native_status(FERRY_URMA_MEMORY, native_errno());
    *rmem_out = (struct ferry_urma_rmem *)(void *)target;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static struct ferry_urma_status native_rmem_release(struct ferry_urma_rmem **rmem)
{
    int rc = urma_unimport_seg((urma_target_seg_t *)(void *)*rmem);

    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    *rmem = NULL;
    return ferry_native_status(FERRY_URMA_OK, 0);
}

static const struct ferry_urma_ops native_ops = {
    .ops_version = FERRY_URMA_OPS_VERSION,
    .name = "liburma",
    .open = native_open,
    .close = native_close,
    .fingerprint = native_fingerprint,
    .list_devices = native_list,
    .ctx_open = native_ctx_open,
    .ctx_info = native_ctx_info,
    .ctx_refresh = native_ctx_refresh,
    .ctx_close = native_ctx_close,
    .event_next = native_event_next,
    .cq_create = native_cq_create,
    .cq_fd = native_cq_fd,
    .cq_arm = native_cq_arm,
    .cq_ack_events = native_cq_ack,
    .cq_poll = ferry_native_cq_poll,
    .cq_destroy = native_cq_destroy,
    .mem_register = native_mem_register,
    .mem_export = native_mem_export,
    .mem_unregister = native_mem_unregister,
    .rmem_import = native_rmem_import,
    .rmem_release = native_rmem_release,
    .jetty_create = ferry_native_jetty_create,
    .jetty_info = ferry_native_jetty_info,
    .jetty_connect = ferry_native_jetty_connect,
    .jetty_post = ferry_native_jetty_post,
    .jetty_set_error = ferry_native_jetty_set_error,
    .jetty_flush = ferry_native_jetty_flush,
    .jetty_disconnect = ferry_native_jetty_disconnect,
    .jetty_destroy = ferry_native_jetty_destroy,
};

const struct ferry_urma_ops *ferry_urma_native_ops(void)
{
    return &native_ops;
}

#ifdef FERRY_HAVE_LIBURMA
const struct ferry_urma_ops *ferry_urma_builtin(void)
{
    return &native_ops;
}
#endif
