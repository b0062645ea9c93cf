/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host has: NUMA nodes, usable cores and network interfaces, and how near they are.
 *
 * Cheap questions (nodes, cores) are answered from the kernel's own files. The full picture with
 * devices comes from hwloc, costs tens of milliseconds, and is loaded by the first call that needs
 * it.
 */
#ifndef FERRY_TOPOLOGY_TOPOLOGY_H
#define FERRY_TOPOLOGY_TOPOLOGY_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_TOPOLOGY_NODES_MAX 1024
#define FERRY_TOPOLOGY_NICS_MAX  256

struct ferry_topology;

/* Does not load hwloc. ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_topology_open(struct ferry_topology **topology_out);
/* Accepts NULL. */
void ferry_topology_close(struct ferry_topology *topology);

/*
 * The OS indices of the NUMA nodes with memory, ascending; at least one ({0} when the kernel tells
 * nothing). Owned by the topology. Any thread.
 */
const uint32_t *ferry_topology_numa_nodes(const struct ferry_topology *topology,
                                          uint32_t *count_out);

/*
 * Cores that this process may run on: its affinity mask, cut down to the CPU quota of its cgroup
 * when there is one (rounded up). At least 1. Any thread.
 */
uint32_t ferry_topology_usable_cores(void);

struct ferry_topology_node {
    uint32_t os_index;
    uint32_t core_count;   /* hardware threads near it that this process may use */
    uint64_t memory_bytes; /* 0 if unknown */
};

enum ferry_nic_kind {
    FERRY_NIC_NETWORK = 0, /* a network interface, "eth0" */
    FERRY_NIC_RDMA = 1,    /* a verbs device, "mlx5_0" */
};

struct ferry_topology_nic {
    enum ferry_nic_kind kind;
    char name[32];
    char pci_bus_id[16]; /* "0000:3b:00.0"; "" for a device that is not on a PCI bus */
    int32_t numa_node;   /* OS index; -1: unknown, or equally near to all */
    uint32_t speed_mbit; /* 0: unknown */
    bool up;
};

struct ferry_topology_view {
    const struct ferry_topology_node *nodes;
    uint32_t node_count;
    const struct ferry_topology_nic *nics; /* by kind, then name */
    uint32_t nic_count;
};

/*
 * The full picture with devices; loads hwloc at the first call. Owned by the topology. One thread
 * at a time per topology; blocks. ERR_NO_MEMORY, ERR_IO (hwloc failed), with text.
 */
FERRY_CHECKED enum ferry_status ferry_topology_view(struct ferry_topology *topology,
                                                    struct ferry_topology_view *view_out);

#endif
