/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UB devices of this host: their own kind beside network and RDMA interfaces. What URMA says about
 * them, with where they are from the kernel's files. Any thread; blocks; holds no state.
 */
#ifndef FERRY_TOPOLOGY_UB_H
#define FERRY_TOPOLOGY_UB_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "foreign/urma.h"

#define FERRY_TOPOLOGY_UB_MAX     FERRY_URMA_ROWS_MAX
#define FERRY_TOPOLOGY_UB_ID_SIZE (FERRY_URMA_NAME_SIZE + 16)

/* One (device, EID). */
struct ferry_topology_ub {
    char id[FERRY_TOPOLOGY_UB_ID_SIZE]; /* stable: "udma0:2", the native name and the EID's slot */
    char pci_bus_id[16];                /* "0000:3b:00.0"; "" if it is not known */
    int32_t numa_node;                  /* -1: unknown */
    bool active;                        /* a port is, or the device does not say */
    struct ferry_urma_device native;
};

/* By name, then slot of the EID. ERR_DEVICE with text if the list cannot be read. */
FERRY_CHECKED enum ferry_status ferry_topology_ub_list(const struct ferry_urma *urma,
                                                       struct ferry_topology_ub *devices_out,
                                                       uint32_t capacity, uint32_t *count_out);

/* "fe80:..." as 32 hex digits in eight groups. */
#define FERRY_TOPOLOGY_EID_TEXT_SIZE 40
void ferry_topology_eid_print(const uint8_t eid[FERRY_URMA_EID_SIZE],
                              char text[FERRY_TOPOLOGY_EID_TEXT_SIZE]);
/* Of exactly that form; false otherwise. */
bool ferry_topology_eid_parse(const char *text, uint8_t eid_out[FERRY_URMA_EID_SIZE]);

#endif
