/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the fault decorator: what fault.c (the contract), worker.c (what its worker does)
 * and decide.c (which rule fires) share.
 */
#ifndef FERRY_TRANSPORT_FAULT_PRIVATE_H
#define FERRY_TRANSPORT_FAULT_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/inbox.h"
#include "base/list.h"
#include "base/pool.h"
#include "reactor/worker.h"
#include "transport/fault/fault.h"

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

static inline struct fault_transport *fault_of(struct ferry_transport *transport)
{
    return FERRY_CONTAINER_OF(transport, struct fault_transport, base);
}

/* decide.c: the rule for a request; refusals are asked for apart, they concern the whole call. */
struct ferry_fault_rule ferry_fault_decide(struct fault_transport *fault, enum ferry_opcode opcode,
                                           bool refuse);

/* worker.c. Any thread: have the worker look at its requests. */
void ferry_fault_kick(struct fault_transport *fault);
/* The worker's jobs and its timer. */
void ferry_fault_run_job(struct ferry_worker *worker, struct ferry_job *job);
void ferry_fault_run_timer(struct ferry_timer *timer);
void ferry_fault_run_revoke(struct ferry_worker *worker, struct ferry_job *job);

#endif
