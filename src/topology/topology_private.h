/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of src/topology share, and the pure parsers behind them that tests call directly.
 */
#ifndef FERRY_TOPOLOGY_TOPOLOGY_PRIVATE_H
#define FERRY_TOPOLOGY_TOPOLOGY_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/address.h"
#include "topology/topology.h"

/* Read at most @size - 1 bytes and terminate them. False if the file cannot be read. */
bool ferry_topology_read_file(const char *path, char *text_out, size_t size);

/* A file that holds one decimal number. */
bool ferry_topology_read_number(const char *path, int64_t *number_out);

/* "0-1,4": the nodes below FERRY_TOPOLOGY_NODES_MAX, ascending; 0 of them if the text is malformed.
 */
uint32_t ferry_topology_parse_nodes(const char *text, uint32_t *nodes_out);

/* "150000 100000" is 2; "max 100000" and malformed texts are 0, for none. */
uint32_t ferry_topology_quota_cores(const char *cpu_max);

/* The flags of an IPv6 address out of the text of /proc/net/if_inet6; false if it is not there. */
bool ferry_address_v6_flags(const char *table, const struct in6_addr *addr,
                            uint32_t interface_index, uint32_t *flags_out);

/* The text and the flags that follow from the socket address alone. */
void ferry_address_classify(struct ferry_address *address);

#endif
