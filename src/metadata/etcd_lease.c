/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries that live with this process: one lease, kept alive, to which they are attached. etcd
 * drops them when the lease is not kept alive for its lifetime, so a process that was killed
 * disappears; one that was only stopped, or cut off, or whose etcd lost its data, finds the lease
 * gone, takes another one and puts its entries back, unless somebody else has the name by then.
 *
 *   NONE --> GRANTING --> HELD --> (every third of the lifetime) keep alive --> HELD
 *                ^                                     |
 *                +-------- the lease is gone ----------+
 *
 * Operations on owned entries run one at a time, so that what is put back never overtakes what the
 * engine puts. Control thread only.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "metadata/etcd.h"

/* Between tries while etcd does not answer. */
#define RETRY_NS FERRY_NS_PER_S

static void pump(struct ferry_etcd *etcd);
static void grant(struct ferry_etcd *etcd);

void ferry_etcd_lease_init(struct ferry_etcd *etcd)
{
    ferry_list_init(&etcd->lease.queue);
}

void ferry_etcd_lease_fini(struct ferry_etcd *etcd)
{
    FERRY_ASSERT(ferry_list_empty(&etcd->lease.queue));
    for (uint32_t i = 0; i < etcd->lease.owned_count; i++)
        free(etcd->lease.owned[i].text);
}

static uint64_t in_ns(const struct ferry_etcd *etcd, uint64_t delta_ns)
{
    return ferry_deadline_ns(ferry_now_ns(etcd->clock), delta_ns);
}

static void fail_queue(struct ferry_etcd *etcd, enum ferry_status status, const char *error)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&etcd->lease.queue)) != NULL)
        ferry_etcd_op_end(FERRY_CONTAINER_OF(link, struct ferry_etcd_op, waiting), status, error);
}

/* The last thing that the machine does; the store may be gone afterwards. */
static void stop(struct ferry_etcd *etcd, enum ferry_status status, const char *error)
{
    etcd->lease.state = FERRY_ETCD_LEASE_NONE;
    etcd->lease.running = false;
    fail_queue(etcd, status, error);
    ferry_etcd_end(etcd);
}

static void set_call(struct ferry_etcd *etcd, ferry_etcd_done_fn *done)
{
    etcd->lease.call = (struct ferry_etcd_call){.etcd = etcd, .done = done};
}

/* Queue one operation that puts an entry back which is not under the present lease. */
static void repair(struct ferry_etcd *etcd)
{
    struct ferry_etcd_lease *lease = &etcd->lease;

    for (uint32_t i = 0; i < lease->owned_count && !lease->repairing; i++) {
        struct ferry_etcd_op *op;

        if (lease->owned[i].lease == lease->id)
            continue;
        op = ferry_etcd_op_repair(etcd, &lease->owned[i]);
        if (op == NULL)
            return; /* after the next keep-alive */
        lease->repairing = true;
        ferry_list_push_front(&lease->queue, &op->waiting);
    }
    pump(etcd);
}

static void lost(struct ferry_etcd *etcd)
{
    struct ferry_etcd_lease *lease = &etcd->lease;

    if (lease->owned_count > 0)
        ferry_warn("metadata",
                   "etcd has dropped the lease of this process; its entry is put back "
                   "segment=%s",
                   lease->owned[0].name);
    for (uint32_t i = 0; i < lease->owned_count; i++)
        lease->owned[i].lease = 0;
    grant(etcd);
}

/* True if the machine was called back because the lease is gone, and goes on with another one. */
static bool called_back(struct ferry_etcd *etcd)
{
    if (!etcd->lease.lapsed)
        return false;
    etcd->lease.lapsed = false;
    if (ferry_etcd_closing(etcd))
        return false;
    lost(etcd);
    return true;
}

static void kept(struct ferry_etcd_call *call);

static void keep_alive(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;
    uint64_t bound_ns = etcd->lease.ttl_s * FERRY_NS_PER_S / 3;
    struct ferry_text body;

    if (called_back(etcd))
        return;
    if (call->status != FERRY_ERR_TIMED_OUT) {
        stop(etcd, call->status, call->error);
        return;
    }
    set_call(etcd, kept);
    call->path = "/v3/lease/keepalive";
    call->deadline_ns = in_ns(etcd, bound_ns < etcd->timeout_ns ? bound_ns : etcd->timeout_ns);
    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_keepalive_body(&body, etcd->lease.id);
    ferry_etcd_set_body(call, &body);
    ferry_etcd_ask(call);
}

static void pause_until(struct ferry_etcd *etcd, uint64_t delta_ns, ferry_etcd_done_fn *then)
{
    set_call(etcd, then);
    ferry_etcd_pause(&etcd->lease.call, in_ns(etcd, delta_ns));
}

static void kept(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;
    struct ferry_etcd_lease *lease = &etcd->lease;
    uint64_t third_ns = lease->ttl_s * FERRY_NS_PER_S / 3;
    enum ferry_status status = call->status;
    uint64_t ttl_s = 0;

    if (status == FERRY_OK) {
        status = ferry_etcd_read_keepalive(call->reply, call->reply_len, &ttl_s);
        free(call->reply);
    }
    if (called_back(etcd))
        return;
    if (status == FERRY_ERR_CLOSING) {
        stop(etcd, status, call->error);
        return;
    }
    if (status == FERRY_OK && ttl_s == 0) {
        lost(etcd);
        return;
    }
    if (status == FERRY_OK) {
        if (lease->warned)
            ferry_warn("metadata", "etcd answers again; the lease of this process holds");
        lease->warned = false;
        pause_until(etcd, third_ns, keep_alive);
        repair(etcd);
        return;
    }
    if (!lease->warned)
        ferry_warn(
            "metadata",
            "the lease of this process cannot be kept alive; its entry goes away %llu s after "
            "the last time: %s",
            (unsigned long long)lease->ttl_s, call->error);
    lease->warned = true;
    pause_until(etcd, third_ns < RETRY_NS ? third_ns : RETRY_NS, keep_alive);
}

static void grant_again(struct ferry_etcd_call *call)
{
    if (call->status == FERRY_ERR_TIMED_OUT)
        grant(call->etcd);
    else
        stop(call->etcd, call->status, call->error);
}

static void granted(struct ferry_etcd_call *call)
{
    struct ferry_etcd *etcd = call->etcd;
    struct ferry_etcd_lease *lease = &etcd->lease;
    enum ferry_status status = call->status;

    if (status == FERRY_OK) {
        status = ferry_etcd_read_grant(call->reply, call->reply_len, &lease->id, &lease->ttl_s);
        free(call->reply);
        if (status != FERRY_OK)
            snprintf(call->error, sizeof(call->error), "%s", ferry_last_error_text());
    }
    if (status == FERRY_OK) {
        ferry_debug("metadata", "lease granted id=%llu ttl_s=%llu", (unsigned long long)lease->id,
                    (unsigned long long)lease->ttl_s);
        lease->state = FERRY_ETCD_LEASE_HELD;
        lease->warned = false;
        pause_until(etcd, lease->ttl_s * FERRY_NS_PER_S / 3, keep_alive);
        repair(etcd);
    } else if (status == FERRY_ERR_CLOSING || lease->owned_count == 0) {
        stop(etcd, status, call->error);
    } else {
        /* Entries wait to be put back: those who ask now are told, and it goes on. */
        fail_queue(etcd, status, call->error);
        lease->repairing = false;
        pause_until(etcd, RETRY_NS, grant_again);
    }
}

/* Given: the machine runs. */
static void grant(struct ferry_etcd *etcd)
{
    struct ferry_etcd_call *call = &etcd->lease.call;
    struct ferry_text body;

    etcd->lease.state = FERRY_ETCD_LEASE_GRANTING;
    set_call(etcd, granted);
    call->path = "/v3/lease/grant";
    call->deadline_ns = in_ns(etcd, etcd->timeout_ns);
    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_grant_body(&body, etcd->lease_ttl_s);
    ferry_etcd_set_body(call, &body);
    ferry_etcd_ask(call);
}

/* Let the next operation run if it can. */
static void pump(struct ferry_etcd *etcd)
{
    struct ferry_etcd_lease *lease = &etcd->lease;
    struct ferry_list *link;

    if (lease->busy || ferry_list_empty(&lease->queue))
        return;
    if (lease->state == FERRY_ETCD_LEASE_HELD) {
        struct ferry_etcd_op *op;

        link = ferry_list_pop_front(&lease->queue);
        op = FERRY_CONTAINER_OF(link, struct ferry_etcd_op, waiting);
        op->entered = true;
        lease->busy = true;
        ferry_etcd_op_go(op);
    } else if (!lease->running) {
        if (ferry_etcd_begin(etcd)) {
            lease->running = true;
            grant(etcd);
        } else {
            fail_queue(etcd, FERRY_ERR_CLOSING, "the metadata store is closing");
        }
    }
}

void ferry_etcd_lease_enter(struct ferry_etcd_op *op)
{
    ferry_list_push_back(&op->etcd->lease.queue, &op->waiting);
    pump(op->etcd);
}

void ferry_etcd_lease_leave(struct ferry_etcd *etcd)
{
    FERRY_ASSERT(etcd->lease.busy);
    etcd->lease.busy = false;
    pump(etcd);
}

void ferry_etcd_lease_lapsed(struct ferry_etcd_op *op)
{
    struct ferry_etcd *etcd = op->etcd;
    struct ferry_etcd_lease *lease = &etcd->lease;

    FERRY_ASSERT(lease->busy);
    lease->busy = false;
    op->entered = false;
    ferry_list_push_front(&lease->queue, &op->waiting);
    /* Unless another one is under way already: then it is waited for. */
    if (lease->state != FERRY_ETCD_LEASE_HELD)
        return;
    lease->state = FERRY_ETCD_LEASE_GRANTING;
    lease->lapsed = true;
    pthread_mutex_lock(&etcd->lock);
    if (!ferry_list_empty(&lease->call.link))
        ferry_http_client_abort(etcd->http, &lease->call.http);
    pthread_mutex_unlock(&etcd->lock);
}

static struct ferry_etcd_owned *find(struct ferry_etcd_lease *lease, const char *name)
{
    for (uint32_t i = 0; i < lease->owned_count; i++) {
        if (strcmp(lease->owned[i].name, name) == 0)
            return &lease->owned[i];
    }
    return NULL;
}

bool ferry_etcd_lease_own(struct ferry_etcd *etcd, const char *name, const char *text,
                          size_t text_len)
{
    struct ferry_etcd_lease *lease = &etcd->lease;
    struct ferry_etcd_owned *owned = find(lease, name);
    char *copy;

    if (owned == NULL && lease->owned_count == FERRY_ETCD_OWNED_MAX)
        return false;
    copy = malloc(text_len + 1);
    if (copy == NULL)
        return false;
    memcpy(copy, text, text_len);
    copy[text_len] = '\0';
    if (owned == NULL) {
        owned = &lease->owned[lease->owned_count++];
        *owned = (struct ferry_etcd_owned){0};
        snprintf(owned->name, sizeof(owned->name), "%s", name);
    }
    free(owned->text);
    owned->text = copy;
    owned->text_len = text_len;
    owned->lease = lease->id;
    return true;
}

void ferry_etcd_lease_disown(struct ferry_etcd *etcd, const char *name)
{
    struct ferry_etcd_lease *lease = &etcd->lease;
    struct ferry_etcd_owned *owned = find(lease, name);

    if (owned == NULL)
        return;
    free(owned->text);
    *owned = lease->owned[--lease->owned_count];
}

void ferry_etcd_lease_repaired(struct ferry_etcd *etcd, const char *name, enum ferry_status status,
                               const char *error)
{
    struct ferry_etcd_lease *lease = &etcd->lease;
    struct ferry_etcd_owned *owned = find(lease, name);

    lease->repairing = false;
    if (status == FERRY_OK) {
        ferry_warn("metadata", "the entry of this process is back in etcd segment=%s", name);
        if (owned != NULL)
            owned->lease = lease->id;
    } else if (status == FERRY_ERR_EXISTS) {
        ferry_error("metadata",
                    "another engine has taken the name of this one, which can no longer be found "
                    "segment=%s",
                    name);
        ferry_etcd_lease_disown(etcd, name);
    } else if (status != FERRY_ERR_CLOSING) {
        ferry_warn("metadata", "the entry of this process is not back yet: %s segment=%s", error,
                   name);
    }
    /* The next one, or this one again after the next keep-alive. */
    if (status == FERRY_OK || status == FERRY_ERR_EXISTS)
        repair(etcd);
}
