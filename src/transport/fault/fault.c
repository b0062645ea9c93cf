/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault decorator. submit() decides by rule, on the caller's thread, and queues; everything
 * else happens on the decorator's own worker, which hands requests to the inner transport and gets
 * their ends back through an inbox. The inner transport sees requests of the decorator's own, so
 * that an end can be kept, told later, or replaced.
 *
 *   NEW --> PASSED --> RETURNED --> HELD ----> ended
 *    |        ^           |    \-> ENDING --/
 *    +-> DELAYED, DROPPED    (duplicate: RETURNED --> PASSED once more)
 *
 * A test tool: each event looks through all requests, so it serves thousands of them, not millions.
 * quiesce: refuse, quiesce the inner transport, end what is kept. close: the worker, then the
 * inner.
 */
#include "transport/fault/fault.h"

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

#define FAULT_OUTSTANDING_MAX 4096u

/* How long a request waits for room in the inner transport before it is tried again. */
#define FAULT_CROWDED_NS FERRY_NS_PER_MS

enum fault_state {
    FAULT_NEW,      /* nothing was done yet */
    FAULT_DELAYED,  /* starts at at_ns */
    FAULT_DROPPED,  /* starts or ends when released */
    FAULT_PASSED,   /* the inner transport has it */
    FAULT_RETURNED, /* the inner transport has ended it */
    FAULT_ENDING,   /* its end is told at at_ns */
    FAULT_HELD,     /* its end is told when released */
};

struct fault_op {
    struct ferry_inbox_node node; /* on its way to the worker */
    struct ferry_list link;       /* worker: all requests that have not ended */
    struct ferry_xfer inner;
    struct ferry_xfer *outer;
    struct ferry_fault_rule rule; /* a copy; action NONE: passed on as it is */
    enum fault_state state;
    uint64_t at_ns;
    bool again;   /* duplicate: has run once */
    bool revoked; /* its memory is being unregistered */
};

struct fault_target {
    struct ferry_target base;
    struct ferry_target *inner;
};

struct fault_revoke {
    struct ferry_job job;
    uint64_t addr;
    uint64_t length;
    _Atomic uint32_t busy; /* futex: 1 from post to done */
};

struct fault_transport {
    struct ferry_transport base;
    /* immutable after open */
    struct ferry_transport_ops ops;
    struct ferry_transport *inner;
    struct ferry_worker *worker;
    const struct ferry_clock *clock;
    struct ferry_random *random;
    bool threadless;
    /* holder of the worker's baton only */
    struct ferry_list all;
    struct ferry_timer timer;
    /* any thread, atomic */
    struct ferry_pool pool;
    struct ferry_inbox fresh;
    struct ferry_inbox returned;
    _Atomic uint32_t outstanding;
    _Atomic uint32_t unfinished; /* futex: outstanding, until the end has been told */
    _Atomic uint32_t kept;
    _Atomic bool closing;
    _Atomic bool posted;
    struct ferry_job job;
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    struct ferry_fault_rule rules[FERRY_FAULT_RULES_MAX];
    uint32_t rule_count;
    bool release_asked;
    enum ferry_status release_status;
    /* one revoke at a time, under its mutex */
    pthread_mutex_t revoke_mutex;
    struct fault_revoke revoke;
};

static const struct ferry_option fault_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "put the fault decorator around every transport; for tests"},
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

static struct fault_transport *fault_of(struct ferry_transport *transport)
{
    return FERRY_CONTAINER_OF(transport, struct fault_transport, base);
}

static void kick(struct fault_transport *fault)
{
    if (!atomic_exchange(&fault->posted, true))
        ferry_worker_post(fault->worker, &fault->job, false);
}

/* ---- rules ---- */

/* Under the mutex: does this match fire? */
static bool fires(struct fault_transport *fault, struct ferry_fault_rule *rule)
{
    uint64_t number = rule->matched++;

    if (number < rule->skip || (number - rule->skip) % rule->every != 0)
        return false;
    if (rule->count != 0 && rule->fired >= rule->count)
        return false;
    if (rule->chance < 100 && ferry_random_u64(fault->random) % 100 >= rule->chance)
        return false;
    rule->fired++;
    return true;
}

/* The rule for a request; refusals are asked for apart, since they concern the whole call. */
static struct ferry_fault_rule decide(struct fault_transport *fault, enum ferry_opcode opcode,
                                      bool refuse)
{
    struct ferry_fault_rule found = {.action = FERRY_FAULT_NONE};

    pthread_mutex_lock(&fault->mutex);
    for (uint32_t i = 0; i < fault->rule_count; i++) {
        struct ferry_fault_rule *rule = &fault->rules[i];

        if ((rule->action == FERRY_FAULT_REFUSE) != refuse)
            continue;
        if (opcode == FERRY_READ ? !rule->read : !rule->write)
            continue;
        if (fires(fault, rule)) {
            found = *rule;
            break;
        }
    }
    pthread_mutex_unlock(&fault->mutex);
    return found;
}

uint32_t ferry_fault_add(struct ferry_transport *transport, const struct ferry_fault_rule *rule)
{
    struct fault_transport *fault = fault_of(transport);
    uint32_t number;

    pthread_mutex_lock(&fault->mutex);
    FERRY_ASSERT(fault->rule_count < FERRY_FAULT_RULES_MAX);
    number = fault->rule_count++;
    fault->rules[number] = *rule;
    fault->rules[number].matched = 0;
    fault->rules[number].fired = 0;
    pthread_mutex_unlock(&fault->mutex);
    return number;
}

void ferry_fault_clear(struct ferry_transport *transport)
{
    struct fault_transport *fault = fault_of(transport);

    pthread_mutex_lock(&fault->mutex);
    fault->rule_count = 0;
    pthread_mutex_unlock(&fault->mutex);
}

uint64_t ferry_fault_fired(struct ferry_transport *transport, uint32_t rule)
{
    struct fault_transport *fault = fault_of(transport);
    uint64_t fired;

    pthread_mutex_lock(&fault->mutex);
    fired = rule < fault->rule_count ? fault->rules[rule].fired : 0;
    pthread_mutex_unlock(&fault->mutex);
    return fired;
}

uint32_t ferry_fault_kept(struct ferry_transport *transport)
{
    return atomic_load(&fault_of(transport)->kept);
}

void ferry_fault_release(struct ferry_transport *transport, enum ferry_status status)
{
    struct fault_transport *fault = fault_of(transport);

    pthread_mutex_lock(&fault->mutex);
    fault->release_asked = true;
    fault->release_status = status;
    pthread_mutex_unlock(&fault->mutex);
    kick(fault);
}

/* ---- the worker ---- */

static void set_state(struct fault_transport *fault, struct fault_op *op, enum fault_state state)
{
    bool was = op->state == FAULT_DROPPED || op->state == FAULT_HELD;
    bool is = state == FAULT_DROPPED || state == FAULT_HELD;

    op->state = state;
    if (was != is)
        atomic_fetch_add(&fault->kept, is ? 1U : UINT32_MAX);
}

static void end_op(struct fault_transport *fault, struct fault_op *op, enum ferry_status status,
                   int32_t native, const char *where)
{
    struct ferry_xfer *outer = op->outer;

    FERRY_ASSERT(op->state != FAULT_PASSED);
    set_state(fault, op, FAULT_RETURNED);
    ferry_list_remove(&op->link);
    ferry_pool_release(&fault->pool, op);
    atomic_fetch_sub(&fault->outstanding, 1);
    ferry_xfer_end(outer, status, native, where);
    if (atomic_fetch_sub(&fault->unfinished, 1) == 1)
        ferry_futex_wake(&fault->unfinished, 1);
}

static void end_as_returned(struct fault_transport *fault, struct fault_op *op)
{
    end_op(fault, op, op->inner.status, op->inner.native, op->inner.where);
}

static void inner_ended(struct ferry_xfer *xfer)
{
    struct fault_op *op = FERRY_CONTAINER_OF(xfer, struct fault_op, inner);
    struct fault_target *target = FERRY_CONTAINER_OF(op->outer->target, struct fault_target, base);
    struct fault_transport *fault = fault_of(target->base.transport);

    ferry_inbox_push(&fault->returned, &op->node);
    kick(fault);
}

static void pass(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    const struct ferry_xfer *outer = op->outer;
    struct ferry_xfer *inner = &op->inner;
    enum ferry_status status;

    inner->opcode = outer->opcode;
    inner->priority = outer->priority;
    inner->local = outer->local;
    inner->remote_addr = outer->remote_addr;
    inner->length = outer->length;
    inner->target = FERRY_CONTAINER_OF(outer->target, struct fault_target, base)->inner;
    inner->deadline_ns = outer->deadline_ns;
    inner->ended = inner_ended;
    inner->transport_data = NULL;
    atomic_store(&inner->cancel_asked, false);
    atomic_store(&inner->driver, NULL);
    set_state(fault, op, FAULT_PASSED);
    status = ferry_transport_submit(fault->inner, &inner, 1);
    if (status == FERRY_OK)
        return;
    set_state(fault, op, FAULT_DELAYED);
    op->at_ns = ferry_deadline_ns(now_ns, FAULT_CROWDED_NS);
    if (status != FERRY_ERR_QUEUE_FULL)
        end_op(fault, op, status, 0, "fault: the inner transport refused the request");
}

/* Ends a request that the inner transport does not have, if something says so. */
static bool end_early(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    if (atomic_load(&fault->closing))
        end_op(fault, op, FERRY_ERR_CLOSING, 0, "fault: the engine is closing");
    else if (atomic_load(&op->outer->cancel_asked))
        end_op(fault, op, FERRY_ERR_CANCELED, 0, "fault: canceled by the caller");
    else if (op->revoked)
        end_op(fault, op, FERRY_ERR_CANCELED, 0, "fault: the memory was unregistered");
    else if (now_ns >= op->outer->deadline_ns)
        end_op(fault, op, FERRY_ERR_TIMED_OUT, 0, "fault: the deadline passed");
    else
        return false;
    return true;
}

static void step_new(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    switch (op->rule.action) {
    case FERRY_FAULT_FAIL:
        end_op(fault, op, op->rule.status, 0, "fault: failed by rule");
        return;
    case FERRY_FAULT_DELAY:
        set_state(fault, op, FAULT_DELAYED);
        op->at_ns = ferry_deadline_ns(now_ns, op->rule.delay_ns);
        return;
    case FERRY_FAULT_DROP:
        set_state(fault, op, FAULT_DROPPED);
        return;
    default:
        pass(fault, op, now_ns);
    }
}

static void step_returned(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    bool ok = op->inner.status == FERRY_OK;

    switch (op->rule.action) {
    case FERRY_FAULT_FAIL_AFTER:
        if (ok)
            end_op(fault, op, op->rule.status, 0, "fault: success replaced by rule");
        else
            end_as_returned(fault, op);
        return;
    case FERRY_FAULT_DELAY_END:
        set_state(fault, op, FAULT_ENDING);
        op->at_ns = ferry_deadline_ns(now_ns, op->rule.delay_ns);
        return;
    case FERRY_FAULT_DUPLICATE:
        if (ok && !op->again) {
            op->again = true;
            pass(fault, op, now_ns);
            return;
        }
        end_as_returned(fault, op);
        return;
    case FERRY_FAULT_HOLD:
        set_state(fault, op, FAULT_HELD);
        return;
    default:
        end_as_returned(fault, op);
    }
}

static void step_op(struct fault_transport *fault, struct fault_op *op, uint64_t now_ns)
{
    bool hurry = atomic_load(&fault->closing) || op->revoked;

    switch (op->state) {
    case FAULT_NEW:
        if (!end_early(fault, op, now_ns))
            step_new(fault, op, now_ns);
        return;
    case FAULT_DELAYED:
        if (!end_early(fault, op, now_ns) && now_ns >= op->at_ns)
            pass(fault, op, now_ns);
        return;
    case FAULT_DROPPED:
        end_early(fault, op, now_ns);
        return;
    case FAULT_PASSED:
        if (atomic_load(&op->outer->cancel_asked) &&
            !atomic_exchange(&op->inner.cancel_asked, true))
            ferry_transport_cancel(fault->inner, &op->inner);
        return;
    case FAULT_RETURNED:
        if (hurry)
            end_as_returned(fault, op);
        else
            step_returned(fault, op, now_ns);
        return;
    case FAULT_ENDING:
        if (hurry || now_ns >= op->at_ns)
            end_as_returned(fault, op);
        return;
    case FAULT_HELD:
        if (hurry)
            end_as_returned(fault, op);
        return;
    }
}

static void take_inboxes(struct fault_transport *fault)
{
    struct ferry_inbox_node *node = ferry_inbox_take(&fault->fresh);

    while (node != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(node, struct fault_op, node);

        node = node->next;
        ferry_list_push_back(&fault->all, &op->link);
    }
    node = ferry_inbox_take(&fault->returned);
    while (node != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(node, struct fault_op, node);

        node = node->next;
        set_state(fault, op, FAULT_RETURNED);
    }
}

static bool take_release(struct fault_transport *fault, enum ferry_status *status_out)
{
    bool asked;

    pthread_mutex_lock(&fault->mutex);
    asked = fault->release_asked;
    *status_out = fault->release_status;
    fault->release_asked = false;
    pthread_mutex_unlock(&fault->mutex);
    return asked;
}

static void release_op(struct fault_transport *fault, struct fault_op *op, enum ferry_status status,
                       uint64_t now_ns)
{
    if (op->state != FAULT_DROPPED && op->state != FAULT_HELD)
        return;
    if (status != FERRY_OK)
        end_op(fault, op, status, 0, "fault: released with this status");
    else if (op->state == FAULT_DROPPED)
        pass(fault, op, now_ns);
    else
        end_as_returned(fault, op);
}

static void rearm(struct fault_transport *fault)
{
    struct ferry_reactor *reactor = ferry_worker_reactor(fault->worker);
    uint64_t next_ns = FERRY_NEVER_NS;

    for (struct ferry_list *link = fault->all.next; link != &fault->all; link = link->next) {
        const struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);
        uint64_t at_ns = op->outer->deadline_ns;

        if (op->state == FAULT_PASSED || op->state == FAULT_HELD)
            continue;
        if (op->state == FAULT_ENDING || (op->state == FAULT_DELAYED && op->at_ns < at_ns))
            at_ns = op->at_ns;
        if (at_ns < next_ns)
            next_ns = at_ns;
    }
    if (next_ns == FERRY_NEVER_NS)
        ferry_reactor_disarm(reactor, &fault->timer);
    else
        FERRY_ASSERT(ferry_reactor_arm(reactor, &fault->timer, next_ns) == FERRY_OK);
}

static void sweep(struct fault_transport *fault)
{
    uint64_t now_ns = ferry_now_ns(fault->clock);
    enum ferry_status release_status;
    struct ferry_list round;
    struct ferry_list *link;
    bool release;

    /* Before the inboxes are read: a push after that finds `posted` false and posts again. */
    atomic_store(&fault->posted, false);
    take_inboxes(fault);
    release = take_release(fault, &release_status);
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&fault->all)) != NULL)
        ferry_list_push_back(&round, link);
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);
        bool kept = op->state == FAULT_DROPPED || op->state == FAULT_HELD;

        ferry_list_push_back(&fault->all, link);
        if (release && kept)
            release_op(fault, op, release_status, now_ns);
        else
            step_op(fault, op, now_ns);
    }
    rearm(fault);
}

static void run_job(struct ferry_worker *worker, struct ferry_job *job)
{
    (void)worker;
    sweep(FERRY_CONTAINER_OF(job, struct fault_transport, job));
}

static void run_timer(struct ferry_timer *timer)
{
    sweep(FERRY_CONTAINER_OF(timer, struct fault_transport, timer));
}

static void run_revoke(struct ferry_worker *worker, struct ferry_job *job)
{
    struct fault_revoke *revoke = FERRY_CONTAINER_OF(job, struct fault_revoke, job);
    struct fault_transport *fault = FERRY_CONTAINER_OF(revoke, struct fault_transport, revoke);

    (void)worker;
    take_inboxes(fault);
    for (struct ferry_list *link = fault->all.next; link != &fault->all; link = link->next) {
        struct fault_op *op = FERRY_CONTAINER_OF(link, struct fault_op, link);

        if (ferry_range_overlaps((uintptr_t)op->outer->local, op->outer->length, revoke->addr,
                                 revoke->length))
            op->revoked = true;
    }
    sweep(fault);
    atomic_store(&revoke->busy, 0);
    ferry_futex_wake(&revoke->busy, 1);
}

/* ---- the contract ---- */

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
        kick(fault);
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

static enum ferry_status fault_target_open(struct ferry_transport *transport,
                                           const struct ferry_document *doc,
                                           struct ferry_target **target_out)
{
    struct fault_target *target = calloc(1, sizeof(*target));
    enum ferry_status status;

    if (target == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "fault: out of memory");
    status = ferry_transport_target_open(fault_of(transport)->inner, doc, &target->inner);
    if (status != FERRY_OK) {
        free(target);
        return status;
    }
    target->base.transport = transport;
    target->base.max_transfer_bytes = target->inner->max_transfer_bytes;
    *target_out = &target->base;
    return FERRY_OK;
}

static void fault_target_close(struct ferry_target *target)
{
    struct fault_target *own = FERRY_CONTAINER_OF(target, struct fault_target, base);

    ferry_transport_target_close(own->inner);
    free(own);
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

static enum ferry_status fault_submit(struct ferry_transport *transport,
                                      struct ferry_xfer *const *xfers, uint32_t count)
{
    struct fault_transport *fault = fault_of(transport);
    enum ferry_status status;

    for (uint32_t i = 0; i < count; i++) {
        struct ferry_fault_rule rule = decide(fault, xfers[i]->opcode, true);

        if (rule.action != FERRY_FAULT_NONE)
            return rule.status;
    }
    status = fault_admit(fault, count);
    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        struct fault_op *op = ferry_pool_acquire(&fault->pool);

        FERRY_ASSERT(op != NULL);
        op->outer = xfers[i];
        op->rule = decide(fault, xfers[i]->opcode, false);
        op->state = FAULT_NEW;
        op->again = false;
        op->revoked = false;
        ferry_inbox_push(&fault->fresh, &op->node);
    }
    kick(fault);
    return FERRY_OK;
}

static void fault_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    /* The worker looks at cancel_asked of every request that it has. */
    (void)xfer;
    kick(fault_of(transport));
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
static void fill_ops(struct fault_transport *fault)
{
    fault->ops = *fault->inner->ops;
    fault->ops.caps |= FERRY_CAP_CANCEL | FERRY_CAP_REVOKE | FERRY_CAP_DECORATOR;
    fault->ops.quiesce = fault_quiesce;
    fault->ops.close = fault_close;
    fault->ops.describe = fault_describe;
    fault->ops.describe_buffer = fault_describe_buffer;
    fault->ops.target_open = fault_target_open;
    fault->ops.target_close = fault_target_close;
    fault->ops.target_explain = fault_explain;
    fault->ops.submit = fault_submit;
    fault->ops.cancel = fault_cancel;
    fault->ops.revoke = fault_revoke;
    fault->ops.report = fault_report;
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
    fault->job.run = run_job;
    fault->timer.fire = run_timer;
    fault->revoke.job.run = run_revoke;
    fault->inner = inner;
    fault->clock = env->clock;
    fault->random = env->random;
    fault->threadless = env->threadless;
    fault->base.env = env;
    fill_ops(fault);
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
