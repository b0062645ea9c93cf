/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ub: registered memory over UB devices, by way of URMA. This header is all that the registry of
 * transports and the tests see; the rooms inside share internal.h.
 */
#ifndef FERRY_UB_UB_H
#define FERRY_UB_UB_H

#include <stdint.h>

#include "transport/transport.h"

/* The number of ub in published documents. */
#define FERRY_UB_WIRE_ID 11

extern const struct ferry_transport_ops ferry_ub_ops;

/* Threadless transports only (model rig): one turn of every worker; returns work done. */
uint32_t ferry_ub_turn(struct ferry_transport *transport);

#endif
