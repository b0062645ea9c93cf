/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hp_tcp: registered memory over persistent TCP connections, wire-compatible with the published v1.
 * This header is all that the registry of transports sees; the rooms inside share internal.h.
 */
#ifndef FERRY_HP_TCP_HP_TCP_H
#define FERRY_HP_TCP_HP_TCP_H

#include "transport/transport.h"

/* The number of hp_tcp in published documents (config: transports.hp_tcp.wire_id). */
#define FERRY_HP_TCP_WIRE_ID 13

extern const struct ferry_transport_ops ferry_hp_tcp_ops;

#endif
