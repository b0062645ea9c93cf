/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault decorator. submit() decides by rule, on the caller's thread, and queues; everything
 * else happens on the decorator's own worker, which hands requests to the inner transport and gets
 * their ends back through an inbox. The inner transport sees requests of the decorator's own, so
 * that an end can be kept, told later, or replaced.
 *
 * A test tool: each event looks through all requests, so it serves thousands of them, not millions.
 * quiesce: refuse, quiesce the inner transport, end what is kept. close: the worker, then the
 * inner.
 */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/json.h"
#include "config/option.h"
#include "transport/fault/private.h"

#define FAULT_OUTSTANDING_MAX 4096u

static const struct ferry_option fault_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "put the fault decorator around every transport; for tests"},
    {.name = "lists",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "pass lists of pieces on; false: the runtime splits them, and each piece meets the "
             "rules by itself"},
    {.name = "rules",
     .type = FERRY_OPTION_STRING,
     .default_value = "",
     .max = 4096,
     .help = "what to break, such as \"do=fail,op=write,status=ERR_PEER_GONE,skip=3,count=1\"; "
             "rules are separated by semicolons"},
};

static const struct ferry_option_table fault_option_table = {
    .component = "transports.fault",
    .options = fault_options,
    .count = FERRY_ARRAY_LEN(fault_options),
};

static void fault_destroy(struct fault_transport *fault)
{
    ferry_worker_close(fault->worker);
    ferry_pool_fini(&fault->pool);
    pthread_mutex_destroy(&fault->mutex);
    pthread_mutex_destroy(&fault->revoke_mutex);
    free(fault);
}

static void fault_quiesce(struct ferry_transport *transport)
{
    struct fault_transport *fault = fault_of(transport);
    uint32_t left;

    atomic_store(&fault->closing, true);
    ferry_transport_quiesce(fault->inner);
    while ((left = atomic_load(&fault->unfinished)) != 0) {
        ferry_fault_kick(fault);
        if (fault->threadless)
            ferry_worker_turn(fault->worker);
        else
            ferry_futex_wait(
                &fault->unfinished, left,
                ferry_deadline_ns(ferry_now_ns(&ferry_clock_system), 10 * FAULT_CROWDED_NS));
    }
}

static void fault_close(struct ferry_transport *transport)
{
    struct fault_transport *fault = fault_of(transport);
    struct ferry_transport *inner = fault->inner;

    fault_destroy(fault);
    ferry_transport_close(inner);
}

static enum ferry_status fault_describe(struct ferry_transport *transport, char **attr_out)
{
    return ferry_transport_describe(fault_of(transport)->inner, attr_out);
}

static enum ferry_status fault_describe_buffer(struct ferry_transport *transport,
                                               uint64_t registration_id,
                                               enum ferry_permission permission, char **attr_out)
{
    return ferry_transport_describe_buffer(fault_of(transport)->inner, registration_id, permission,
                                           attr_out);
}

static enum ferry_status fault_add_buffer(struct ferry_transport *transport,
                                          const struct ferry_registry_buffer *buffer)
{
    return ferry_transport_add_buffer(fault_of(transport)->inner, buffer);
}

static enum ferry_status fault_remove_buffer(struct ferry_transport *transport,
                                             uint64_t registration_id, uint64_t deadline_ns)
{
    return ferry_transport_remove_buffer(fault_of(transport)->inner, registration_id, deadline_ns);
}

static enum ferry_status fault_bootstrap(struct ferry_transport *transport, const char *text,
                                         size_t len, char **reply_out)
{
    return ferry_transport_bootstrap(fault_of(transport)->inner, text, len, reply_out);
}

/* Exactly one of @doc and @layout is wanted. */
static enum ferry_status wrap_target(struct ferry_transport *transport,
                                     const struct ferry_document *doc,
                                     const struct ferry_file_layout *layout,
                                     struct ferry_target **target_out)
{
    struct ferry_transport *inner = fault_of(transport)->inner;
    struct fault_target *target = calloc(1, sizeof(*target));
    enum ferry_status status;

    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "fault: out of memory");
    status = doc != NULL ? ferry_transport_target_open(inner, doc, &target->inner)
                         : ferry_transport_files_open(inner, layout, &target->inner);
    if (status != FERRY_OK) {
        free(target);
        return status;
    }
    target->base.transport = transport;
    target->base.max_transfer_bytes = target->inner->max_transfer_bytes;
    *target_out = &target->base;
    return FERRY_OK;
}

static enum ferry_status fault_target_open(struct ferry_transport *transport,
                                           const struct ferry_document *doc,
                                           struct ferry_target **target_out)
{
    return wrap_target(transport, doc, NULL, target_out);
}

static enum ferry_status fault_files_open(struct ferry_transport *transport,
                                          const struct ferry_file_layout *layout,
                                          struct ferry_target **target_out)
{
    return wrap_target(transport, NULL, layout, target_out);
}

static void fault_target_close(struct ferry_target *target)
{
    struct fault_target *own = FERRY_CONTAINER_OF(target, struct fault_target, base);

    ferry_transport_target_close(own->inner);
    free(own);
}

static enum ferry_reach fault_reach(struct ferry_target *target, uint64_t remote_addr,
                                    uint64_t length, char *why)
{
    return ferry_transport_target_reach(
        FERRY_CONTAINER_OF(target, struct fault_target, base)->inner, remote_addr, length, why);
}

static void fault_explain(struct ferry_target *target, char *buf, size_t buf_len)
{
    ferry_transport_target_explain(FERRY_CONTAINER_OF(target, struct fault_target, base)->inner,
                                   buf, buf_len);
}

static enum ferry_status fault_admit(struct fault_transport *fault, uint32_t count)
{
    uint32_t outstanding = atomic_load(&fault->outstanding);

    if (atomic_load(&fault->closing))
        return FERRY_ERR_CLOSING;
    do {
        if (count > FAULT_OUTSTANDING_MAX - outstanding)
            return FERRY_ERR_QUEUE_FULL;
    } while (!atomic_compare_exchange_weak(&fault->outstanding, &outstanding, outstanding + count));
    atomic_fetch_add(&fault->unfinished, count);
    return FERRY_OK;
}

/* A refusal that takes its time, so that other things happen inside the submit call. */
static void linger(const struct fault_transport *fault, uint64_t delay_ns)
{
    struct timespec delay = {
        .tv_sec = (time_t)(delay_ns / FERRY_NS_PER_S),
        .tv_nsec = (long)(delay_ns % FERRY_NS_PER_S),
    };

    if (delay_ns != 0 && !fault->threadless)
        nanosleep(&delay, NULL);
}

static enum ferry_status fault_submit(struct ferry_transport *transport,
                                      struct ferry_xfer *const *xfers, uint32_t count)
{
    struct fault_transport *fault = fault_of(transport);
    enum ferry_status status;

    for (uint32_t i = 0; i < count; i++) {
        struct ferry_fault_rule rule = ferry_fault_decide(fault, xfers[i]->opcode, true);

        if (rule.action != FERRY_FAULT_NONE) {
            linger(fault, rule.delay_ns);
            return rule.status;
        }
    }
    status = fault_admit(fault, count);
    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct fault_op *op = ferry_pool_acquire(&fault->pool);

        FERRY_ASSERT(op != NULL);
        op->outer = xfers[i];
        op->rule = ferry_fault_decide(fault, xfers[i]->opcode, false);
        op->state = FAULT_NEW;
        op->again = false;
        op->revoked = false;
        ferry_inbox_push(&fault->fresh, &op->node);
    }
    ferry_fault_kick(fault);
    return FERRY_OK;
}

static void fault_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    /* The worker looks at cancel_asked of every request that it has. */
    (void)xfer;
    ferry_fault_kick(fault_of(transport));
}

static bool revoke_idle(struct fault_transport *fault, uint64_t deadline_ns)
{
    while (atomic_load(&fault->revoke.busy) != 0) {
        if (fault->threadless)
            ferry_worker_turn(fault->worker);
        else if (!ferry_futex_wait(&fault->revoke.busy, 1, deadline_ns))
            return atomic_load(&fault->revoke.busy) == 0;
    }
    return true;
}

/* Mark what touches the range; the second time tells the ends that the inner transport gave back.
 */
static bool revoke_pass(struct fault_transport *fault, const void *addr, uint64_t length,
                        uint64_t deadline_ns)
{
    if (!revoke_idle(fault, deadline_ns))
        return false;
    fault->revoke.addr = (uintptr_t)addr;
    fault->revoke.length = length;
    atomic_store(&fault->revoke.busy, 1);
    ferry_worker_post(fault->worker, &fault->revoke.job, false);
    return revoke_idle(fault, deadline_ns);
}

static enum ferry_status fault_revoke(struct ferry_transport *transport, const void *addr,
                                      uint64_t length, uint64_t deadline_ns)
{
    struct fault_transport *fault = fault_of(transport);
    enum ferry_status status = FERRY_OK;
    bool done;

    pthread_mutex_lock(&fault->revoke_mutex);
    done = revoke_pass(fault, addr, length, deadline_ns);
    if (done)
        status = ferry_transport_revoke(fault->inner, addr, length, deadline_ns);
    done = done && revoke_pass(fault, addr, length, deadline_ns);
    pthread_mutex_unlock(&fault->revoke_mutex);
    if (!done)
        return ferry_fail(FERRY_ERR_BUSY, "fault: the worker did not answer in time");
    return status;
}

static void fault_measure(struct ferry_transport *transport, struct ferry_transport_totals *totals,
                          ferry_path_fn *fn, void *arg)
{
    ferry_transport_measure(fault_of(transport)->inner, totals, fn, arg);
}

static void fault_report(struct ferry_transport *transport, struct json_object *object)
{
    struct fault_transport *fault = fault_of(transport);
    struct json_object *list = json_object_new_array();

    ferry_transport_report(fault->inner, object);
    pthread_mutex_lock(&fault->mutex);
    for (uint32_t i = 0; list != NULL && i < fault->rule_count; i++) {
        struct json_object *rule = json_object_new_object();

        if (rule == NULL || !ferry_json_put_u64(rule, "fired", fault->rules[i].fired) ||
            !ferry_json_put_u64(rule, "matched", fault->rules[i].matched)) {
            json_object_put(rule);
            break;
        }
        if (!ferry_json_append(list, rule))
            break;
    }
    pthread_mutex_unlock(&fault->mutex);
    if (!ferry_json_put(object, "fault_rules", list))
        return;
}

/* The inner transport's face with our functions behind it. */
static void fill_ops(struct fault_transport *fault, const struct ferry_config *config)
{
    fault->ops = *fault->inner->ops;
    fault->ops.caps |= FERRY_CAP_CANCEL | FERRY_CAP_REVOKE | FERRY_CAP_DECORATOR;
    if (!ferry_config_bool(config, "transports.fault.lists"))
        fault->ops.caps &= ~FERRY_CAP_VECTOR;
    fault->ops.quiesce = fault_quiesce;
    fault->ops.close = fault_close;
    fault->ops.describe = fault_describe;
    fault->ops.describe_buffer = fault_describe_buffer;
    fault->ops.add_buffer = fault_add_buffer;
    fault->ops.remove_buffer = fault_remove_buffer;
    fault->ops.bootstrap = fault_bootstrap;
    fault->ops.target_open = fault_target_open;
    if (fault->ops.caps & FERRY_CAP_FILE)
        fault->ops.files_open = fault_files_open;
    fault->ops.target_close = fault_target_close;
    fault->ops.target_explain = fault_explain;
    fault->ops.target_reach = fault_reach;
    fault->ops.submit = fault_submit;
    fault->ops.cancel = fault_cancel;
    fault->ops.revoke = fault_revoke;
    fault->ops.report = fault_report;
    fault->ops.measure = fault_measure;
    fault->base.ops = &fault->ops;
}

static enum ferry_status open_worker(struct fault_transport *fault,
                                     const struct ferry_transport_env *env)
{
    struct ferry_worker_options options = {
        .name = "ferry-fault",
        .reactor = {.kind = FERRY_REACTOR_EPOLL, .clock = env->clock},
        .reactor_ops = env->reactor_ops,
        .wait = FERRY_WAIT_SLEEP,
        .threadless = env->threadless,
    };

    return ferry_worker_open(&options, &fault->worker);
}

enum ferry_status ferry_fault_wrap(struct ferry_transport *inner,
                                   const struct ferry_transport_env *env,
                                   struct ferry_transport **transport_out)
{
    struct fault_transport *fault = calloc(1, sizeof(*fault));
    enum ferry_status status;

    if (fault == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "fault: out of memory");
    pthread_mutex_init(&fault->mutex, NULL);
    pthread_mutex_init(&fault->revoke_mutex, NULL);
    ferry_list_init(&fault->all);
    ferry_inbox_init(&fault->fresh);
    ferry_inbox_init(&fault->returned);
    fault->job.run = ferry_fault_run_job;
    fault->timer.fire = ferry_fault_run_timer;
    fault->revoke.job.run = ferry_fault_run_revoke;
    fault->inner = inner;
    fault->clock = env->clock;
    fault->random = env->random;
    fault->threadless = env->threadless;
    fault->base.env = env;
    fill_ops(fault, env->config);
    status = ferry_fault_rules_parse(ferry_config_string(env->config, "transports.fault.rules"),
                                     fault->rules, &fault->rule_count);
    if (status == FERRY_OK)
        status = ferry_pool_init(&fault->pool, sizeof(struct fault_op), FAULT_OUTSTANDING_MAX);
    if (status == FERRY_OK)
        status = open_worker(fault, env);
    if (status != FERRY_OK) {
        fault_destroy(fault);
        return status;
    }
    *transport_out = &fault->base;
    return FERRY_OK;
}

uint32_t ferry_fault_turn(struct ferry_transport *transport)
{
    return ferry_worker_turn(fault_of(transport)->worker);
}

/* ---- the row of the registry ---- */

static enum ferry_status row_probe(const struct ferry_config *config,
                                   struct ferry_transport_info *info_out)
{
    (void)config;
    info_out->usable = false;
    strcpy(info_out->reason, "decorates other transports; it is none by itself");
    return FERRY_OK;
}

static enum ferry_status row_open(const struct ferry_transport_env *env,
                                  struct ferry_transport **transport_out)
{
    (void)env;
    (void)transport_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "fault decorates other transports");
}

const struct ferry_transport_ops ferry_fault_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "fault",
    .wire_id = -1,
    .caps = FERRY_CAP_DECORATOR | FERRY_CAP_CANCEL | FERRY_CAP_REVOKE,
    .options = &fault_option_table,
    .probe = row_probe,
    .open = row_open,
    .quiesce = fault_quiesce,
    .close = fault_close,
    .target_open = fault_target_open,
    .target_close = fault_target_close,
    .submit = fault_submit,
    .cancel = fault_cancel,
    .revoke = fault_revoke,
};
