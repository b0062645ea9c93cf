/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of native UB calls over liburma: jetties, requests and completions. Any thread, within
 * what urma.h says about each object; the data path neither blocks nor allocates.
 *
 * Ways of liburma minded here: on RC both ends have to be bound before a post, which dereferences a
 * null pointer else; a failed post says in *bad where it stopped, if it says anything; markers
 * carry whatever was in memory in place of a token and go by their jetty's id; a negative poll has
 * taken the entries before the corrupt one off the queue and left them in the array.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "foreign/urma_native.h"

static struct native_jetty *native(struct ferry_urma_jetty *jetty)
{
    return (struct native_jetty *)(void *)jetty;
}

static struct ferry_urma_status ok(void)
{
    return ferry_native_status(FERRY_URMA_OK, 0);
}

/* ---- completions ---- */

static struct ferry_urma_status classify(urma_cr_status_t status)
{
    static const enum ferry_urma_class classes[] = {
        [URMA_CR_SUCCESS] = FERRY_URMA_OK,
        [URMA_CR_UNSUPPORTED_OPCODE_ERR] = FERRY_URMA_ENDPOINT,
        [URMA_CR_LOC_LEN_ERR] = FERRY_URMA_MEMORY,
        [URMA_CR_LOC_OPERATION_ERR] = FERRY_URMA_DEVICE,
        [URMA_CR_LOC_ACCESS_ERR] = FERRY_URMA_MEMORY,
        [URMA_CR_REM_RESP_LEN_ERR] = FERRY_URMA_PATH,
        [URMA_CR_REM_UNSUPPORTED_REQ_ERR] = FERRY_URMA_ENDPOINT,
        [URMA_CR_REM_OPERATION_ERR] = FERRY_URMA_PATH,
        [URMA_CR_REM_ACCESS_ABORT_ERR] = FERRY_URMA_MEMORY,
        [URMA_CR_ACK_TIMEOUT_ERR] = FERRY_URMA_TIMEOUT,
        [URMA_CR_RNR_RETRY_CNT_EXC_ERR] = FERRY_URMA_PATH,
        [URMA_CR_WR_FLUSH_ERR] = FERRY_URMA_FLUSHED,
        [URMA_CR_WR_SUSPEND_DONE] = FERRY_URMA_UNKNOWN,
        [URMA_CR_WR_FLUSH_ERR_DONE] = FERRY_URMA_UNKNOWN,
        [URMA_CR_WR_UNHANDLED] = FERRY_URMA_FLUSHED,
        [URMA_CR_LOC_DATA_POISON] = FERRY_URMA_MEMORY,
        [URMA_CR_REM_DATA_POISON] = FERRY_URMA_MEMORY,
    };
    unsigned index = (unsigned)status;

    return (struct ferry_urma_status){
        .class = index < sizeof(classes) / sizeof(classes[0]) ? classes[index] : FERRY_URMA_UNKNOWN,
        .native = (int32_t)status,
    };
}

static void translate(const urma_cr_t *cr, struct ferry_urma_completion *out)
{
    *out = (struct ferry_urma_completion){.jetty_id = cr->local_id};
    if (cr->status == URMA_CR_WR_FLUSH_ERR_DONE || cr->status == URMA_CR_WR_SUSPEND_DONE) {
        out->kind = cr->status == URMA_CR_WR_FLUSH_ERR_DONE ? FERRY_URMA_DRAINED
                                                            : FERRY_URMA_SUSPENDED;
        return;
    }
    out->status = classify(cr->status);
    out->token = cr->user_ctx;
    out->bytes = cr->completion_len;
    if (cr->status == URMA_CR_SUCCESS)
        out->executed = FERRY_URMA_EXECUTED_YES;
    else if (cr->status == URMA_CR_WR_UNHANDLED)
        out->executed = FERRY_URMA_EXECUTED_NO;
}

struct ferry_urma_status ferry_native_cq_poll(struct ferry_urma_cq *handle,
                                              struct ferry_urma_completion *out, uint32_t capacity,
                                              uint32_t *count_out)
{
    struct native_cq *cq = ferry_native_cq(handle);
    urma_cr_t crs[FERRY_URMA_POLL_MAX];
    uint32_t count = 0;
    int rc;

    /* The token is the sentinel that tells an entry that was written from one that was not. */
    memset(crs, 0, capacity * sizeof(crs[0]));
    rc = urma_poll_jfc(cq->send, (int)capacity, crs);
    if (rc >= 0) {
        FERRY_ASSERT((uint32_t)rc <= capacity);
        for (; count < (uint32_t)rc; count++)
            translate(&crs[count], &out[count]);
        *count_out = count;
        return ok();
    }
    while (count < capacity && crs[count].user_ctx != 0) {
        translate(&crs[count], &out[count]);
        count++;
    }
    *count_out = count;
    return (struct ferry_urma_status){.class = FERRY_URMA_UNKNOWN, .native = rc};
}

/* ---- jetties ---- */

struct ferry_urma_status ferry_native_jetty_create(struct ferry_urma_ctx *ctx_handle,
                                                   struct ferry_urma_cq *cq_handle,
                                                   const struct ferry_urma_jetty_options *options,
                                                   struct ferry_urma_jetty **jetty_out)
{
    struct native_ctx *ctx = ferry_native_ctx(ctx_handle);
    const struct native_cq *cq = ferry_native_cq(cq_handle);
    struct native_jetty *jetty = calloc(1, sizeof(*jetty));
    urma_jetty_cfg_t cfg = {.user_ctx = options->cookie};
    int rc;

    if (jetty == NULL)
        return ferry_native_status(FERRY_URMA_DEVICE, URMA_ENOMEM);
    cfg.flag.bs.share_jfr = 1;
    cfg.jfs_cfg.depth = options->depth;
    cfg.jfs_cfg.flag.bs.multi_path = options->multi_path ? 1 : 0;
    cfg.jfs_cfg.trans_mode = URMA_TM_RC;
    cfg.jfs_cfg.priority = (uint8_t)options->priority;
    cfg.jfs_cfg.max_sge = 1;
    cfg.jfs_cfg.max_rsge = 1;
    cfg.jfs_cfg.rnr_retry = (uint8_t)options->rnr_retry;
    cfg.jfs_cfg.err_timeout = (uint8_t)options->error_timeout;
    cfg.jfs_cfg.jfc = cq->send;
    cfg.shared.jfr = cq->jfr;
    cfg.shared.jfc = cq->receive;
    errno = 0;
    jetty->jetty = urma_create_jetty(ctx->context, &cfg);
    if (jetty->jetty == NULL) {
        rc = errno != 0 ? errno : URMA_FAIL;
        free(jetty);
        return ferry_native_status(rc == URMA_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_DEVICE, rc);
    }
    jetty->ctx = ctx;
    jetty->depth = options->depth;
    *jetty_out = (struct ferry_urma_jetty *)(void *)jetty;
    return ok();
}

void ferry_native_jetty_info(struct ferry_urma_jetty *handle,
                             struct ferry_urma_jetty_info *info_out)
{
    const struct native_jetty *jetty = native(handle);

    *info_out = (struct ferry_urma_jetty_info){
        .id = jetty->jetty->jetty_id.id,
        .uasid = jetty->jetty->jetty_id.uasid,
        .depth = jetty->depth,
    };
}

struct ferry_urma_status ferry_native_jetty_connect(struct ferry_urma_jetty *handle,
                                                    const struct ferry_urma_peer *peer)
{
    struct native_jetty *jetty = native(handle);
    urma_token_t token = {.token = peer->token};
    urma_rjetty_t remote = {
        .trans_mode = URMA_TM_RC,
        .type = URMA_JETTY,
        .tp_type = peer->path_type == FERRY_URMA_PATH_CTP ? URMA_CTP : URMA_RTP,
    };
    int rc;

    memcpy(remote.jetty_id.eid.raw, peer->eid, URMA_EID_SIZE);
    remote.jetty_id.uasid = peer->uasid;
    remote.jetty_id.id = peer->id;
    remote.flag.bs.token_policy = URMA_TOKEN_NONE;
    /* A target handle can be bound once only; one that an earlier attempt left is still good. */
    if (jetty->target == NULL) {
        errno = 0;
        jetty->target = urma_import_jetty(jetty->ctx->context, &remote, &token);
        if (jetty->target == NULL)
            return ferry_native_status(FERRY_URMA_PATH, errno != 0 ? errno : URMA_FAIL);
    }
    rc = urma_bind_jetty(jetty->jetty, jetty->target);
    jetty->bound = rc == URMA_SUCCESS;
    if (rc == URMA_EEXIST)
        return ferry_native_status(FERRY_URMA_ENDPOINT, rc);
    if (rc == URMA_ENOPERM || rc == URMA_EINVAL)
        return ferry_native_status(FERRY_URMA_CALLER, rc);
    return ferry_native_status(FERRY_URMA_PATH, rc);
}

struct ferry_urma_status ferry_native_jetty_set_error(struct ferry_urma_jetty *handle)
{
    urma_jetty_attr_t attr = {.mask = JETTY_STATE, .state = URMA_JETTY_STATE_ERROR};

    return ferry_native_status(FERRY_URMA_ENDPOINT,
                               urma_modify_jetty(native(handle)->jetty, &attr));
}

struct ferry_urma_status ferry_native_jetty_flush(struct ferry_urma_jetty *handle,
                                                  struct ferry_urma_completion *out,
                                                  uint32_t capacity, uint32_t *count_out)
{
    struct native_jetty *jetty = native(handle);
    urma_cr_t crs[FERRY_URMA_POLL_MAX] = {0};
    int rc;

    if (capacity > FERRY_URMA_POLL_MAX)
        capacity = FERRY_URMA_POLL_MAX;
    /* More than the jetty is deep is an error of its own. */
    if (capacity > jetty->depth)
        capacity = jetty->depth;
    rc = urma_flush_jetty(jetty->jetty, (int)capacity, crs);
    if (rc < 0)
        return (struct ferry_urma_status){.class = FERRY_URMA_ENDPOINT, .native = rc};
    for (int i = 0; i < rc; i++)
        translate(&crs[i], &out[i]);
    *count_out = (uint32_t)rc;
    return ok();
}

struct ferry_urma_status ferry_native_jetty_disconnect(struct ferry_urma_jetty *handle)
{
    struct native_jetty *jetty = native(handle);
    int rc = URMA_SUCCESS;

    if (jetty->bound)
        rc = urma_unbind_jetty(jetty->jetty);
    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    jetty->bound = false;
    if (jetty->target != NULL)
        rc = urma_unimport_jetty(jetty->target);
    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    jetty->target = NULL;
    return ok();
}

struct ferry_urma_status ferry_native_jetty_destroy(struct ferry_urma_jetty **handle)
{
    struct native_jetty *jetty = native(*handle);
    int rc = urma_delete_jetty(jetty->jetty);

    if (rc != URMA_SUCCESS)
        return ferry_native_destroyed(rc);
    free(jetty);
    *handle = NULL;
    return ok();
}

/* ---- posting ---- */

struct wr_list {
    urma_jfs_wr_t wrs[FERRY_URMA_POST_MAX];
    urma_sge_t sges[FERRY_URMA_POST_MAX][2];
};

static void build(struct wr_list *list, uint32_t i, const struct ferry_urma_request *request,
                  urma_target_jetty_t *target)
{
    urma_jfs_wr_t *wr = &list->wrs[i];
    urma_sge_t *local = &list->sges[i][0];
    urma_sge_t *remote = &list->sges[i][1];
    bool write = request->opcode == FERRY_URMA_WRITE;

    memset(wr, 0, sizeof(*wr));
    memset(local, 0, 2 * sizeof(*local));
    local->addr = (uintptr_t)request->local;
    local->len = request->length;
    local->tseg = (urma_target_seg_t *)(void *)request->mem;
    remote->addr = request->remote;
    remote->len = request->length;
    remote->tseg = (urma_target_seg_t *)(void *)request->rmem;
    wr->opcode = write ? URMA_OPC_WRITE : URMA_OPC_READ;
    wr->flag.bs.complete_enable = 1;
    wr->tjetty = target;
    wr->user_ctx = request->token;
    wr->rw.src.sge = write ? local : remote;
    wr->rw.src.num_sge = 1;
    wr->rw.dst.sge = write ? remote : local;
    wr->rw.dst.num_sge = 1;
}

/* What a failed post says about the list. */
static struct ferry_urma_status failed_post(const struct wr_list *list, uint32_t count, int rc,
                                            const urma_jfs_wr_t *bad,
                                            struct ferry_urma_post_result *result_out)
{
    bool inside = bad >= list->wrs && bad < list->wrs + count;
    bool refused = rc == URMA_EINVAL || rc == URMA_EAGAIN || rc == URMA_ENOMEM;

    result_out->accepted = inside ? (uint32_t)(bad - list->wrs) : 0;
    result_out->known = inside || (bad == NULL && refused);
    if (!result_out->known)
        return (struct ferry_urma_status){.class = FERRY_URMA_UNKNOWN, .native = rc};
    if (rc == URMA_EAGAIN || rc == URMA_ENOMEM)
        return ferry_native_status(FERRY_URMA_BUSY, rc);
    return ferry_native_status(rc == URMA_EINVAL ? FERRY_URMA_CALLER : FERRY_URMA_ENDPOINT, rc);
}

struct ferry_urma_status ferry_native_jetty_post(struct ferry_urma_jetty *handle,
                                                 const struct ferry_urma_request *requests,
                                                 uint32_t count,
                                                 struct ferry_urma_post_result *result_out)
{
    struct native_jetty *jetty = native(handle);
    struct wr_list list; /* copied during the post */
    urma_jfs_wr_t *bad = NULL;
    int rc;

    FERRY_ASSERT(jetty->bound);
    for (uint32_t i = 0; i < count; i++) {
        FERRY_DASSERT(requests[i].token != 0);
        FERRY_DASSERT(requests[i].length > 0);
        build(&list, i, &requests[i], jetty->target);
        if (i > 0)
            list.wrs[i - 1].next = &list.wrs[i];
    }
    rc = urma_post_jetty_send_wr(jetty->jetty, list.wrs, &bad);
    if (rc != URMA_SUCCESS)
        return failed_post(&list, count, rc, bad, result_out);
    result_out->accepted = count;
    result_out->known = true;
    return ok();
}
