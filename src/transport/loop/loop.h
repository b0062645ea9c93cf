/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop: requests of an engine on its own segment, moved inside the process by one worker.
 *
 * The smallest complete transport, and the reference for the contract suite. It obeys the rules
 * that a peer would meet: the target range must lie inside one published buffer, and its permission
 * counts. Registration ids are looked up when a request runs, so nothing is ever stale.
 */
#ifndef FERRY_TRANSPORT_LOOP_LOOP_H
#define FERRY_TRANSPORT_LOOP_LOOP_H

#include <stdint.h>

#include "transport/transport.h"

extern const struct ferry_transport_ops ferry_loop_ops;

/* Threadless transports only (model rig): run what is queued for one turn; returns work done. */
uint32_t ferry_loop_turn(struct ferry_transport *transport);

#endif
