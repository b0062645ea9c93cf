/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of hp_tcp in a segment document: where its listeners are, and by which
 * registration a buffer is reached. Pure functions but for the reads of the transport that
 * describes itself.
 */
#ifndef FERRY_HP_TCP_ATTR_H
#define FERRY_HP_TCP_ATTR_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/memory.h>
#include <ferry/status.h>

#include "transport/hp_tcp/options.h"
#include "transport/transport.h"
#include "wire/frame.h"

struct hp_endpoint_attr {
    char host[256];
    uint16_t port;
};

struct hp_segment_attr {
    struct hp_endpoint_attr endpoints[FERRY_HP_RAILS_MAX];
    uint32_t endpoint_count;
    uint8_t incarnation[FERRY_INCARNATION_SIZE];
    uint64_t max_transfer_bytes;
    bool speaks_ferry; /* the extra key "ferry" names a frame version we know */
};

enum ferry_status ferry_hp_describe(struct ferry_transport *transport, char **attr_out);
enum ferry_status ferry_hp_describe_buffer(struct ferry_transport *transport,
                                           uint64_t registration_id,
                                           enum ferry_permission permission, char **attr_out);
enum ferry_status ferry_hp_segment_attr_parse(const char *text, struct hp_segment_attr *attr_out);
enum ferry_status ferry_hp_buffer_attr_parse(const char *text, uint64_t *registration_id_out,
                                             bool *writable_out);

#endif
