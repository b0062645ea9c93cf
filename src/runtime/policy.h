/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of several transports serves a request that names none: a pure rule over facts, and the
 * collecting of those facts from a view. The first difference decides:
 *
 *   1. offered by the segment, and long enough transfers;
 *   2. reachable now, before not known yet, before known not to be;
 *   3. within the host, before over a network;
 *   4. the registry's order.
 *
 * One that fails 1 or is known to be unreachable is still chosen where nothing better is offered:
 * the request then ends with that reason.
 */
#ifndef FERRY_RUNTIME_POLICY_H
#define FERRY_RUNTIME_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/transport.h"

struct ferry_view;

/* What a request asks for: one range, or pieces. */
struct ferry_policy_request {
    uint64_t length; /* the sum */
    uint64_t remote_addr;
    const struct ferry_xfer_piece *pieces; /* NULL: the one range */
    uint32_t piece_count;
};

/* What is known of one transport for it. */
struct ferry_policy_candidate {
    bool offered;
    bool same_host; /* it copies within the host */
    enum ferry_reach reach;
    uint64_t length_max;
};

#define FERRY_POLICY_NONE UINT32_MAX

/* The index of the best candidate; FERRY_POLICY_NONE if none is offered. Pure. */
uint32_t ferry_policy_choose(const struct ferry_policy_candidate *candidates, uint32_t count,
                             uint64_t length);

/*
 * The same for a view: the transport index, or FERRY_POLICY_NONE. Any thread; neither blocks on a
 * peer nor allocates. With one target, which is the plain case, nothing is asked.
 */
uint32_t ferry_policy_choose_in(const struct ferry_view *view,
                                const struct ferry_policy_request *request);

#endif
