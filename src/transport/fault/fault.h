/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault: a decorator that makes any transport fail, by rule. Always built, off by default.
 *
 *     transports.fault.enable = true
 *     transports.fault.rules  = "do=fail,op=write,status=ERR_PEER_GONE,skip=3,count=1;
 * do=delay,delay_ms=20"
 *
 * A rule says what to do, to which requests, and how often:
 *
 *     do        refuse      submit itself fails with `status`, after `delay_ms`
 *               fail        the request ends with `status`, no byte moves
 *               fail_after  the request runs, and ends with `status` instead of success
 *               delay       the request starts `delay_ms` later
 *               delay_end   the request runs, its end is told `delay_ms` later
 *               drop        nothing happens until its deadline, a cancel, a revoke or a release
 *               duplicate   the request runs twice and ends once
 *               hold        the request runs, its end is kept until a release
 *     op        read | write | any (any)
 *     status    a status name (ERR_PATH_DOWN)
 *     skip      let so many pass first (0)
 *     every     then each so-many-th (1)
 *     count     fire at most so often; 0: without end (0)
 *     chance    percent, decided anew each time (100)
 *
 * The first rule that matches and fires decides. Each counts how often it fired. The decorated
 * transport keeps its name, its published attributes and its settings.
 */
#ifndef FERRY_TRANSPORT_FAULT_FAULT_H
#define FERRY_TRANSPORT_FAULT_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

/* The row of the registry: settings only; it cannot be opened by itself. */
extern const struct ferry_transport_ops ferry_fault_ops;

#define FERRY_FAULT_RULES_MAX 32

enum ferry_fault_action {
    FERRY_FAULT_NONE = 0,
    FERRY_FAULT_REFUSE,
    FERRY_FAULT_FAIL,
    FERRY_FAULT_FAIL_AFTER,
    FERRY_FAULT_DELAY,
    FERRY_FAULT_DELAY_END,
    FERRY_FAULT_DROP,
    FERRY_FAULT_DUPLICATE,
    FERRY_FAULT_HOLD,
};

struct ferry_fault_rule {
    enum ferry_fault_action action;
    bool read;
    bool write;
    enum ferry_status status;
    uint64_t delay_ns;
    uint32_t skip;
    uint32_t every;  /* >= 1 */
    uint32_t count;  /* 0: without end */
    uint32_t chance; /* percent */
    /* kept by the decorator */
    uint64_t matched;
    uint64_t fired;
};

/* A rule of one action for every request, to be changed before it is added. */
struct ferry_fault_rule ferry_fault_rule_of(enum ferry_fault_action action);

/* Read the text form. ERR_CONFIG names the rule, the word and what was expected. Pure. */
enum ferry_status ferry_fault_rules_parse(const char *text,
                                          struct ferry_fault_rule *rules_out /* [RULES_MAX] */,
                                          uint32_t *count_out);

/*
 * Decorate @inner, which belongs to the result from then on (closed with it). Rules come from
 * env->config. On failure @inner is untouched. ERR_CONFIG, ERR_NO_MEMORY, ERR_LIMIT.
 */
enum ferry_status ferry_fault_wrap(struct ferry_transport *inner,
                                   const struct ferry_transport_env *env,
                                   struct ferry_transport **transport_out);

/* For tests. Any thread. The number of a rule is its position; clear forgets all, counts included.
 */
uint32_t ferry_fault_add(struct ferry_transport *transport, const struct ferry_fault_rule *rule);
void ferry_fault_clear(struct ferry_transport *transport);
uint64_t ferry_fault_fired(struct ferry_transport *transport, uint32_t rule);
/* How many requests are dropped or held now. */
uint32_t ferry_fault_kept(struct ferry_transport *transport);
/*
 * Let go of what is dropped or held now. With FERRY_OK dropped requests run and held ends are told
 * as they are; any other status is told instead.
 */
void ferry_fault_release(struct ferry_transport *transport, enum ferry_status status);

/* Threadless transports only: one turn of the decorator's own worker. */
uint32_t ferry_fault_turn(struct ferry_transport *transport);

#endif
