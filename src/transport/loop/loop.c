/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop transport: memmove between leased ranges of this process, one chunk per request and
 * turn, so that large requests share the worker with small ones.
 *
 * submit() and cancel() run on any thread and only queue; every byte is moved and every request
 * ended by the holder of the worker's baton. revoke() and close() block on the worker. Must not
 * touch a range without a lease: the runtime holds the local one, the remote one is taken here.
 *
 * quiesce: refuse new requests, let the worker end what is queued with ERR_CLOSING, wait until
 * nothing is outstanding. close: stop the worker, drop the registry's snapshot, free.
 */
#include "transport/loop/loop.h"

#include <json-c/json.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/json.h"
#include "base/pool.h"
#include "config/option.h"
#include "memory/registry.h"
#include "metadata/document.h"

#define LOOP_OUTSTANDING_MAX 1048576u
#define LOOP_TRANSFER_MAX    (UINT64_MAX / 2)

/* One accepted request. */
struct loop_op {
    struct ferry_inbox_node node; /* until the worker takes it */
    struct ferry_list link;       /* worker: active */
    struct ferry_xfer *xfer;
    struct ferry_lease remote; /* held from the first step to the end; of a list see lease_list() */
    uint32_t piece;            /* the present one; 0 without a list */
    uint64_t moved;            /* bytes of it */
    bool started;
    bool backward; /* the ranges of the piece overlap so that the end has to move first */
    bool revoked;  /* its memory is being unregistered */
};

/* One revoke at a time; in the transport's memory, because its caller may stop waiting for it. */
struct loop_revoke {
    struct ferry_job job;
    uint64_t addr;
    uint64_t length;
    _Atomic uint32_t busy; /* futex: 1 from post to done */
};

struct loop_transport {
    struct ferry_transport base;
    /* immutable after open */
    struct ferry_worker *worker;
    uint32_t outstanding_max;
    uint64_t transfer_max;
    uint64_t chunk_bytes;
    bool threadless;
    /* holder of the worker's baton only */
    struct ferry_list active;
    struct ferry_registry_reader reader;
    /* any thread, atomic */
    struct ferry_pool ops;
    struct ferry_inbox inbox;
    _Atomic uint32_t outstanding; /* admitted; given back before the end is told */
    _Atomic uint32_t unfinished;  /* given back after it; futex: quiesce waits for 0 */
    _Atomic bool closing;
    _Atomic bool posted; /* the job is queued; pairs with the exchange in kick() */
    _Atomic uint64_t ended_count;
    _Atomic uint64_t moved_bytes;
    struct ferry_job job;
    /* any thread, under the mutex */
    pthread_mutex_t revoke_mutex;
    struct loop_revoke revoke;
};

struct loop_target {
    struct ferry_target base;
};

static const struct ferry_option loop_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "serve requests on the engine's own segment inside the process"},
    {.name = "max_outstanding_tasks",
     .type = FERRY_OPTION_UINT,
     .default_value = "65536",
     .min = 1,
     .max = LOOP_OUTSTANDING_MAX,
     .help = "tasks admitted and not ended; more are refused with \"queue full\""},
    {.name = "max_transfer_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1099511627776",
     .min = 1,
     .max = LOOP_TRANSFER_MAX,
     .unit = "bytes",
     .help = "longest request"},
    {.name = "chunk_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "262144",
     .min = 1,
     .max = 1073741824,
     .unit = "bytes",
     .help = "piece that is moved before the next request gets its turn"},
};

static const struct ferry_option_table loop_option_table = {
    .component = "transports.loop",
    .options = loop_options,
    .count = FERRY_ARRAY_LEN(loop_options),
};

static struct loop_transport *loop_of(struct ferry_transport *transport)
{
    return FERRY_CONTAINER_OF(transport, struct loop_transport, base);
}

static enum ferry_status loop_probe(const struct ferry_config *config,
                                    struct ferry_transport_info *info_out)
{
    (void)config;
    info_out->usable = true;
    info_out->reason[0] = '\0';
    return FERRY_OK;
}

/*
 * A piece's own word is the entry of the lease that was taken for it, or 0: the one before covers
 * it, or none was taken.
 */
static void release_list(const struct ferry_xfer *xfer)
{
    for (uint32_t i = 0; i < xfer->piece_count; i++) {
        struct ferry_lease lease = {.entry = (void *)(uintptr_t)xfer->pieces[i].own};

        ferry_lease_release(&lease);
    }
}

/* The admission is given back before the end is published, so that whoever sees it may submit. */
static void end_op(struct loop_transport *loop, struct loop_op *op, enum ferry_status status,
                   const char *where)
{
    struct ferry_xfer *xfer = op->xfer;

    FERRY_ASSERT(ferry_worker_is_current(loop->worker));
    ferry_list_remove(&op->link);
    ferry_lease_release(&op->remote);
    if (op->started)
        release_list(xfer);
    if (status == FERRY_OK)
        atomic_fetch_add_explicit(&loop->moved_bytes, xfer->length, memory_order_relaxed);
    atomic_fetch_add_explicit(&loop->ended_count, 1, memory_order_relaxed);
    ferry_pool_release(&loop->ops, op);
    atomic_fetch_sub(&loop->outstanding, 1);
    ferry_xfer_end(xfer, status, 0, where);
    /* The worker is stopped before the transport is freed, so it is still there. */
    if (atomic_fetch_sub(&loop->unfinished, 1) == 1 && atomic_load(&loop->closing))
        ferry_futex_wake(&loop->unfinished, 1);
}

/* What a peer would check: one published buffer that covers the range and permits the access. */
static enum ferry_status lease_range(struct loop_transport *loop, const struct loop_op *op,
                                     uint64_t addr, uint64_t length, struct ferry_lease *lease_out)
{
    struct ferry_lease_request request = {
        .addr = addr,
        .length = length,
        .access = FERRY_ACCESS_LOCAL,
    };
    struct ferry_lease any = {0};
    enum ferry_status status = ferry_lease_acquire(&loop->reader, &request, &any);

    if (status == FERRY_ERR_INVALID)
        return FERRY_ERR_RANGE;
    if (status != FERRY_OK)
        return status;
    request.registration_id = ferry_lease_registration_id(&any);
    request.access = op->xfer->opcode == FERRY_READ ? FERRY_ACCESS_READ : FERRY_ACCESS_WRITE;
    status = ferry_lease_acquire(&loop->reader, &request, lease_out);
    ferry_lease_release(&any);
    return status == FERRY_ERR_PEER_CLOSING ? FERRY_ERR_CLOSING : status;
}

/* Every piece before the first byte moves. The leases lie in the pieces' own words. */
static enum ferry_status lease_list(struct loop_transport *loop, const struct loop_op *op)
{
    const struct ferry_xfer *xfer = op->xfer;
    struct ferry_lease last = {0};

    for (uint32_t i = 0; i < xfer->piece_count; i++)
        xfer->pieces[i].own = 0;
    for (uint32_t i = 0; i < xfer->piece_count; i++) {
        struct ferry_xfer_piece *piece = &xfer->pieces[i];
        enum ferry_status status;

        if (ferry_lease_covers(&last, piece->remote_addr, piece->length))
            continue;
        status = lease_range(loop, op, piece->remote_addr, piece->length, &last);
        if (status != FERRY_OK) {
            release_list(xfer);
            return status;
        }
        piece->own = (uintptr_t)last.entry;
    }
    return FERRY_OK;
}

static enum ferry_status lease_remote(struct loop_transport *loop, struct loop_op *op)
{
    if (op->xfer->pieces != NULL)
        return lease_list(loop, op);
    return lease_range(loop, op, op->xfer->remote_addr, op->xfer->length, &op->remote);
}

static const char *lease_failure(enum ferry_status status)
{
    switch (status) {
    case FERRY_ERR_RANGE:
        return "loop: the target range is not inside one registered buffer";
    case FERRY_ERR_PERMISSION:
        return "loop: the target buffer does not permit this";
    case FERRY_ERR_CLOSING:
        return "loop: the engine is closing";
    default:
        return "loop: the target range cannot be leased";
    }
}

static bool remote_revoked(const struct loop_op *op)
{
    bool revoked = ferry_lease_revoked(&op->remote);

    for (uint32_t i = 0; i < op->xfer->piece_count && !revoked; i++) {
        struct ferry_lease lease = {.entry = (void *)(uintptr_t)op->xfer->pieces[i].own};

        revoked = ferry_lease_revoked(&lease);
    }
    return revoked;
}

/* Ends the request if something says so before its next byte. */
static bool end_early(struct loop_transport *loop, struct loop_op *op, uint64_t now_ns)
{
    if (atomic_load(&loop->closing))
        end_op(loop, op, FERRY_ERR_CLOSING, "loop: the engine is closing");
    else if (ferry_xfer_cancel_asked(op->xfer))
        end_op(loop, op, FERRY_ERR_CANCELED, "loop: canceled by the caller");
    else if (op->revoked || (op->started && remote_revoked(op)))
        end_op(loop, op, FERRY_ERR_CANCELED, "loop: the memory was unregistered");
    else if (op->xfer->deadline_ns != FERRY_NO_DEADLINE && now_ns >= op->xfer->deadline_ns)
        end_op(loop, op, FERRY_ERR_TIMED_OUT, "loop: the deadline passed");
    else
        return false;
    return true;
}

/* The single range of a request, or the present piece of its list. */
static struct ferry_xfer_piece present_piece(const struct loop_op *op)
{
    const struct ferry_xfer *xfer = op->xfer;

    if (xfer->pieces != NULL)
        return xfer->pieces[op->piece];
    return (struct ferry_xfer_piece){
        .local = xfer->local, .length = xfer->length, .remote_addr = xfer->remote_addr};
}

static void start_piece(struct loop_op *op)
{
    struct ferry_xfer_piece piece = present_piece(op);
    uint64_t local = (uintptr_t)piece.local;
    uint64_t to = op->xfer->opcode == FERRY_READ ? local : piece.remote_addr;
    uint64_t from = op->xfer->opcode == FERRY_READ ? piece.remote_addr : local;

    op->backward = to > from && to - from < piece.length;
    op->moved = 0;
}

/* Move at most @most bytes of the present piece, and go to the next one at its end. */
static uint64_t move_some(struct loop_op *op, uint64_t most)
{
    struct ferry_xfer_piece piece = present_piece(op);
    unsigned char *remote = (unsigned char *)(uintptr_t)piece.remote_addr;
    uint64_t left = piece.length - op->moved;
    uint64_t bytes = left < most ? left : most;
    uint64_t at = op->backward ? left - bytes : op->moved;

    if (op->xfer->opcode == FERRY_READ)
        memmove(piece.local + at, remote + at, bytes);
    else
        memmove(remote + at, piece.local + at, bytes);
    op->moved += bytes;
    if (op->moved == piece.length && op->piece + 1 < op->xfer->piece_count) {
        op->piece++;
        start_piece(op);
    }
    return bytes;
}

static bool all_moved(const struct loop_op *op)
{
    return op->moved == present_piece(op).length && op->piece + 1 >= op->xfer->piece_count;
}

static void step_op(struct loop_transport *loop, struct loop_op *op, uint64_t now_ns)
{
    uint64_t left = loop->chunk_bytes;

    if (end_early(loop, op, now_ns))
        return;
    if (!op->started) {
        enum ferry_status status = lease_remote(loop, op);

        if (status != FERRY_OK) {
            end_op(loop, op, status, lease_failure(status));
            return;
        }
        op->started = true;
        start_piece(op);
    }
    while (left > 0 && !all_moved(op))
        left -= move_some(op, left);
    if (all_moved(op))
        end_op(loop, op, FERRY_OK, NULL);
}

static void kick(struct loop_transport *loop)
{
    if (!atomic_exchange(&loop->posted, true))
        ferry_worker_post(loop->worker, &loop->job, false);
}

static void take_inbox(struct loop_transport *loop)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&loop->inbox);

    while (node != NULL) {
        struct loop_op *op = FERRY_CONTAINER_OF(node, struct loop_op, node);

        node = node->next;
        ferry_list_push_back(&loop->active, &op->link);
    }
}

/* One turn: each request that is active now moves one chunk. */
static void run_turn(struct ferry_worker *worker, struct ferry_job *job)
{
    struct loop_transport *loop = FERRY_CONTAINER_OF(job, struct loop_transport, job);
    struct ferry_list turn;
    struct ferry_list *link;

    FERRY_ASSERT(worker == loop->worker);
    /* Before the inbox is read: a push after that finds `posted` false and posts again. */
    atomic_store(&loop->posted, false);
    take_inbox(loop);

    uint64_t now_ns = ferry_now_ns(loop->base.env->clock);

    ferry_list_init(&turn);
    while ((link = ferry_list_pop_front(&loop->active)) != NULL)
        ferry_list_push_back(&turn, link);
    while ((link = ferry_list_pop_front(&turn)) != NULL) {
        ferry_list_push_back(&loop->active, link);
        step_op(loop, FERRY_CONTAINER_OF(link, struct loop_op, link), now_ns);
    }
    if (!ferry_list_empty(&loop->active))
        kick(loop);
}

static void run_revoke(struct ferry_worker *worker, struct ferry_job *job)
{
    struct loop_revoke *revoke = FERRY_CONTAINER_OF(job, struct loop_revoke, job);
    struct loop_transport *loop = FERRY_CONTAINER_OF(revoke, struct loop_transport, revoke);
    uint64_t now_ns = ferry_now_ns(loop->base.env->clock);
    struct ferry_list checked;
    struct ferry_list *link;

    (void)worker;
    take_inbox(loop);
    ferry_list_init(&checked);
    while ((link = ferry_list_pop_front(&loop->active)) != NULL) {
        struct loop_op *op = FERRY_CONTAINER_OF(link, struct loop_op, link);
        const struct ferry_xfer *xfer = op->xfer;

        op->revoked = ferry_xfer_touches_local(xfer, revoke->addr, revoke->length) ||
                      ferry_xfer_touches_remote(xfer, revoke->addr, revoke->length);
        ferry_list_push_back(&checked, link);
        if (op->revoked)
            end_early(loop, op, now_ns);
    }
    while ((link = ferry_list_pop_front(&checked)) != NULL)
        ferry_list_push_back(&loop->active, link);
    atomic_store(&revoke->busy, 0);
    ferry_futex_wake(&revoke->busy, 1);
}

static void loop_destroy(struct loop_transport *loop)
{
    if (loop->worker != NULL)
        ferry_worker_close(loop->worker);
    if (loop->reader.registry != NULL)
        ferry_registry_reader_fini(&loop->reader);
    ferry_pool_fini(&loop->ops);
    pthread_mutex_destroy(&loop->revoke_mutex);
    free(loop);
}

static enum ferry_status loop_open_worker(struct loop_transport *loop,
                                          const struct ferry_transport_env *env)
{
    struct ferry_worker_options options = {
        .name = "ferry-loop",
        .reactor = {.kind = (enum ferry_reactor_kind)ferry_config_choice(env->config, "reactor"),
                    .clock = env->clock},
        .reactor_ops = env->reactor_ops,
        .wait = (enum ferry_wait_mode)ferry_config_choice(env->config, "wait"),
        .spin_us = (uint32_t)ferry_config_u64(env->config, "wait_spin_us_max"),
        .budget = env->budget,
        .threadless = env->threadless,
    };

    return ferry_worker_open(&options, &loop->worker);
}

static enum ferry_status loop_open(const struct ferry_transport_env *env,
                                   struct ferry_transport **transport_out)
{
    const struct ferry_config *config = env->config;
    struct loop_transport *loop = calloc(1, sizeof(*loop));
    enum ferry_status status;

    if (loop == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "loop: out of memory");
    pthread_mutex_init(&loop->revoke_mutex, NULL);
    ferry_list_init(&loop->active);
    ferry_inbox_init(&loop->inbox);
    loop->job.run = run_turn;
    loop->revoke.job.run = run_revoke;
    loop->base.env = env;
    loop->threadless = env->threadless;
    loop->outstanding_max = (uint32_t)ferry_config_u64(config,
                                                       "transports.loop.max_outstanding_tasks");
    loop->transfer_max = ferry_config_u64(config, "transports.loop.max_transfer_bytes");
    loop->chunk_bytes = ferry_config_u64(config, "transports.loop.chunk_bytes");
    status = ferry_pool_init(&loop->ops, sizeof(struct loop_op), loop->outstanding_max);
    if (status == FERRY_OK)
        status = loop_open_worker(loop, env);
    if (status != FERRY_OK) {
        loop_destroy(loop);
        return status;
    }
    ferry_registry_reader_init(&loop->reader, env->registry);
    *transport_out = &loop->base;
    return FERRY_OK;
}

static void loop_quiesce(struct ferry_transport *transport)
{
    struct loop_transport *loop = loop_of(transport);
    uint32_t left;

    atomic_store(&loop->closing, true);
    kick(loop);
    while ((left = atomic_load(&loop->unfinished)) != 0) {
        if (loop->threadless)
            ferry_worker_turn(loop->worker);
        else
            ferry_futex_wait(&loop->unfinished, left, FERRY_NEVER_NS);
    }
}

static void loop_close(struct ferry_transport *transport)
{
    loop_destroy(loop_of(transport));
}

static enum ferry_status loop_target_open(struct ferry_transport *transport,
                                          const struct ferry_document *doc,
                                          struct ferry_target **target_out)
{
    struct loop_transport *loop = loop_of(transport);
    struct loop_target *target;

    if (doc->name == NULL || strcmp(doc->name, transport->env->segment_name) != 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "loop serves the engine's own segment only");
    target = calloc(1, sizeof(*target));
    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "loop: out of memory");
    target->base.transport = transport;
    target->base.max_transfer_bytes = loop->transfer_max;
    *target_out = &target->base;
    return FERRY_OK;
}

static void loop_target_close(struct ferry_target *target)
{
    free(FERRY_CONTAINER_OF(target, struct loop_target, base));
}

/* All or none: the counter admits first, after that the pool cannot be empty. */
static enum ferry_status admit(struct loop_transport *loop, uint32_t count)
{
    uint32_t outstanding = atomic_load(&loop->outstanding);

    if (atomic_load(&loop->closing))
        return FERRY_ERR_CLOSING;
    do {
        if (count > loop->outstanding_max - outstanding)
            return FERRY_ERR_QUEUE_FULL;
    } while (!atomic_compare_exchange_weak(&loop->outstanding, &outstanding, outstanding + count));
    atomic_fetch_add(&loop->unfinished, count);
    return FERRY_OK;
}

static enum ferry_status loop_submit(struct ferry_transport *transport,
                                     struct ferry_xfer *const *xfers, uint32_t count)
{
    struct loop_transport *loop = loop_of(transport);
    enum ferry_status status = admit(loop, count);

    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct loop_op *op = ferry_pool_acquire(&loop->ops);

        FERRY_ASSERT(op != NULL);
        op->xfer = xfers[i];
        op->remote = (struct ferry_lease){0};
        op->piece = 0;
        op->moved = 0;
        op->started = false;
        op->backward = false;
        op->revoked = false;
        /* Release pairs with the acquire of a waiter that wants to drive the worker. */
        atomic_store_explicit(&xfers[i]->driver, loop->worker, memory_order_release);
        ferry_inbox_push(&loop->inbox, &op->node);
    }
    kick(loop);
    return FERRY_OK;
}

/* Every active request is looked at once a turn, and cancel_asked is set: nothing else to do. */
static void loop_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    (void)transport;
    (void)xfer;
}

static bool revoke_idle(struct loop_transport *loop, uint64_t deadline_ns)
{
    while (atomic_load(&loop->revoke.busy) != 0) {
        if (loop->threadless)
            ferry_worker_turn(loop->worker);
        else if (!ferry_futex_wait(&loop->revoke.busy, 1, deadline_ns))
            return atomic_load(&loop->revoke.busy) == 0;
    }
    return true;
}

static enum ferry_status loop_revoke(struct ferry_transport *transport, const void *addr,
                                     uint64_t length, uint64_t deadline_ns)
{
    struct loop_transport *loop = loop_of(transport);
    bool done = false;

    pthread_mutex_lock(&loop->revoke_mutex);
    if (revoke_idle(loop, deadline_ns)) {
        loop->revoke.addr = (uintptr_t)addr;
        loop->revoke.length = length;
        atomic_store(&loop->revoke.busy, 1);
        ferry_worker_post(loop->worker, &loop->revoke.job, false);
        done = revoke_idle(loop, deadline_ns);
    }
    pthread_mutex_unlock(&loop->revoke_mutex);
    if (!done)
        return ferry_fail(FERRY_ERR_BUSY, "loop: the worker did not answer in time");
    return FERRY_OK;
}

static void loop_report(struct ferry_transport *transport, struct json_object *object)
{
    struct loop_transport *loop = loop_of(transport);
    struct json_object *workers = json_object_new_array();
    struct json_object *worker = json_object_new_object();
    double cpu = ferry_worker_cpu_seconds(loop->worker);
    bool ok = worker != NULL && ferry_json_put_string(worker, "name", "ferry-loop");

    ok = ok && ferry_json_put(worker, "cpu_seconds", json_object_new_double(cpu));
    ok = ferry_json_append(workers, worker) && ok;
    ok = ferry_json_put(object, "workers", workers) && ok;
    ok = ferry_json_put_string(object, "reactor",
                               ferry_reactor_name(ferry_worker_reactor(loop->worker))) &&
         ok;
    ok = ferry_json_put_u64(object, "outstanding", atomic_load(&loop->outstanding)) && ok;
    ok = ferry_json_put_u64(object, "tasks_ended", atomic_load(&loop->ended_count)) && ok;
    ok = ferry_json_put_u64(object, "bytes_moved", atomic_load(&loop->moved_bytes)) && ok;
    /* Out of memory leaves members out; a report is best effort. */
    (void)ok;
}

uint32_t ferry_loop_turn(struct ferry_transport *transport)
{
    return ferry_worker_turn(loop_of(transport)->worker);
}

const struct ferry_transport_ops ferry_loop_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "loop",
    .wire_id = -1,
    .caps = FERRY_CAP_LOCAL | FERRY_CAP_CANCEL | FERRY_CAP_REVOKE | FERRY_CAP_VECTOR,
    .options = &loop_option_table,
    .probe = loop_probe,
    .open = loop_open,
    .quiesce = loop_quiesce,
    .close = loop_close,
    .target_open = loop_target_open,
    .target_close = loop_target_close,
    .submit = loop_submit,
    .cancel = loop_cancel,
    .revoke = loop_revoke,
    .report = loop_report,
};
