/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NUMA nodes, usable cores and devices. The cheap part reads the kernel's files; the full picture
 * is hwloc's, loaded once when it is first asked for. One thread at a time per topology for the
 * latter. Must not decide anything: which address, node or device to use is the caller's.
 */
#include "topology/topology.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "topology/topology_private.h"

struct ferry_topology {
    /* immutable after open */
    uint32_t *node_indices;
    uint32_t node_index_count;
    /* one thread at a time: the full picture, empty until it is asked for */
    bool loaded;
    struct ferry_topology_node *nodes;
    uint32_t node_count;
    struct ferry_topology_nic *nics;
    uint32_t nic_count;
};

bool ferry_topology_read_file(const char *path, char *text_out, size_t size)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return false;
    size_t length = 0;
    while (length < size - 1) {
        ssize_t got = read(fd, text_out + length, size - 1 - length);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0)
            break;
        length += (size_t)got;
    }
    text_out[length] = '\0';
    return true;
}

bool ferry_topology_read_number(const char *path, int64_t *number_out)
{
    char text[64];
    char *end;

    if (!ferry_topology_read_file(path, text, sizeof(text)))
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || (*end != '\n' && *end != '\0'))
        return false;
    *number_out = number;
    return true;
}

uint32_t ferry_topology_parse_nodes(const char *text, uint32_t *nodes_out)
{
    char line[4096];
    uint32_t count = 0;
    size_t length = strcspn(text, "\n");

    /* hwloc's parser stops without complaint at what it does not know, and does not know the
     * newline; the kernel writes digits, commas and dashes. */
    if (length == 0 || length >= sizeof(line) || strspn(text, "0123456789,-") != length ||
        !isdigit((unsigned char)text[0]))
        return 0;
    memcpy(line, text, length);
    line[length] = '\0';
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL)
        return 0;
    if (hwloc_bitmap_list_sscanf(set, line) == 0) {
        for (int node = hwloc_bitmap_first(set); node >= 0 && node < FERRY_TOPOLOGY_NODES_MAX;
             node = hwloc_bitmap_next(set, node))
            nodes_out[count++] = (uint32_t)node;
    }
    hwloc_bitmap_free(set);
    return count;
}

enum ferry_status ferry_topology_open(struct ferry_topology **topology_out)
{
    static const char *const files[] = {"/sys/devices/system/node/has_memory",
                                        "/sys/devices/system/node/online"};
    uint32_t nodes[FERRY_TOPOLOGY_NODES_MAX];
    uint32_t count = 0;
    char text[4096];

    for (size_t i = 0; count == 0 && i < FERRY_ARRAY_LEN(files); i++) {
        if (ferry_topology_read_file(files[i], text, sizeof(text)))
            count = ferry_topology_parse_nodes(text, nodes);
    }
    if (count == 0)
        nodes[count++] = 0;

    FERRY_AUTO_FREE struct ferry_topology *topology = calloc(1, sizeof(*topology));
    FERRY_AUTO_FREE uint32_t *indices = calloc(count, sizeof(*indices));
    if (topology == NULL || indices == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "topology: out of memory");
    memcpy(indices, nodes, count * sizeof(*indices));
    topology->node_indices = ferry_take_ptr(&indices);
    topology->node_index_count = count;
    *topology_out = ferry_take_ptr(&topology);
    return FERRY_OK;
}

void ferry_topology_close(struct ferry_topology *topology)
{
    if (topology == NULL)
        return;
    free(topology->node_indices);
    free(topology->nodes);
    free(topology->nics);
    free(topology);
}

const uint32_t *ferry_topology_numa_nodes(const struct ferry_topology *topology,
                                          uint32_t *count_out)
{
    *count_out = topology->node_index_count;
    return topology->node_indices;
}

static uint32_t affinity_cores(void)
{
    /* The kernel refuses a mask that is smaller than its own; grow until it fits. */
    for (int cpus = 1024; cpus <= 65536; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);

        if (set == NULL)
            return 0;
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : -errno;
        CPU_FREE(set);
        if (count != -EINVAL)
            return count > 0 ? (uint32_t)count : 0;
    }
    return 0;
}

uint32_t ferry_topology_quota_cores(const char *cpu_max)
{
    uint64_t quota;
    uint64_t period;

    /* "max 100000" or "150000 100000" */
    if (sscanf(cpu_max, "%" SCNu64 " %" SCNu64, &quota, &period) != 2 || period == 0 || quota == 0)
        return 0;
    uint64_t cores = quota / period + (quota % period != 0);
    return cores > UINT32_MAX ? 0 : (uint32_t)cores;
}

/*
 * The quota at the root of the cgroup file system that this process sees, which inside a container
 * is the container's own. 0: none.
 */
static uint32_t cgroup_cores(void)
{
    char text[128];
    int64_t quota;
    int64_t period;

    if (ferry_topology_read_file("/sys/fs/cgroup/cpu.max", text, sizeof(text)))
        return ferry_topology_quota_cores(text);
    if (!ferry_topology_read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota) ||
        !ferry_topology_read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period) ||
        quota <= 0 || period <= 0)
        return 0;
    snprintf(text, sizeof(text), "%" PRId64 " %" PRId64, quota, period);
    return ferry_topology_quota_cores(text);
}

uint32_t ferry_topology_usable_cores(void)
{
    uint32_t cores = affinity_cores();
    uint32_t quota = cgroup_cores();

    if (quota > 0 && quota < cores)
        cores = quota;
    return cores > 0 ? cores : 1;
}

static int32_t near_node(hwloc_obj_t device)
{
    hwloc_obj_t place = device;

    while (place != NULL && place->nodeset == NULL)
        place = place->parent;
    /* Equally near to several nodes says nothing. */
    if (place == NULL || hwloc_bitmap_weight(place->nodeset) != 1)
        return -1;
    return hwloc_bitmap_first(place->nodeset);
}

static void fill_nic(hwloc_obj_t device, struct ferry_topology_nic *nic)
{
    char path[128];
    char text[32];
    int64_t speed;
    hwloc_obj_t pci = device->parent;

    *nic = (struct ferry_topology_nic){.numa_node = near_node(device)};
    nic->kind = device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ? FERRY_NIC_RDMA
                                                                        : FERRY_NIC_NETWORK;
    snprintf(nic->name, sizeof(nic->name), "%s", device->name);
    while (pci != NULL && pci->type != HWLOC_OBJ_PCI_DEVICE)
        pci = pci->parent;
    if (pci != NULL) {
        const struct hwloc_pcidev_attr_s *at = &pci->attr->pcidev;

        snprintf(nic->pci_bus_id, sizeof(nic->pci_bus_id), "%04x:%02x:%02x.%01x",
                 (unsigned)at->domain & 0xffffu, at->bus, at->dev, at->func & 0xfu);
    }
    if (nic->kind == FERRY_NIC_NETWORK) {
        snprintf(path, sizeof(path), "/sys/class/net/%s/operstate", nic->name);
        nic->up = ferry_topology_read_file(path, text, sizeof(text)) && strncmp(text, "up", 2) == 0;
        snprintf(path, sizeof(path), "/sys/class/net/%s/speed", nic->name);
        if (ferry_topology_read_number(path, &speed) && speed > 0 && speed <= UINT32_MAX)
            nic->speed_mbit = (uint32_t)speed;
    } else {
        snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/state", nic->name);
        nic->up = ferry_topology_read_file(path, text, sizeof(text)) &&
                  strstr(text, "ACTIVE") != NULL;
    }
}

static int compare_nics(const void *left, const void *right)
{
    const struct ferry_topology_nic *a = left;
    const struct ferry_topology_nic *b = right;

    return a->kind != b->kind ? (int)a->kind - (int)b->kind : strcmp(a->name, b->name);
}

static enum ferry_status collect_nics(hwloc_topology_t hw, struct ferry_topology *topology)
{
    hwloc_obj_t device = NULL;

    topology->nics = calloc(FERRY_TOPOLOGY_NICS_MAX, sizeof(topology->nics[0]));
    if (topology->nics == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "topology: out of memory");
    while ((device = hwloc_get_next_osdev(hw, device)) != NULL &&
           topology->nic_count < FERRY_TOPOLOGY_NICS_MAX) {
        if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
            device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            fill_nic(device, &topology->nics[topology->nic_count++]);
    }
    qsort(topology->nics, topology->nic_count, sizeof(topology->nics[0]), compare_nics);
    return FERRY_OK;
}

static enum ferry_status collect_nodes(hwloc_topology_t hw, struct ferry_topology *topology)
{
    int count = hwloc_get_nbobjs_by_type(hw, HWLOC_OBJ_NUMANODE);

    if (count <= 0)
        return ferry_fail(FERRY_ERR_IO, "topology: hwloc found no NUMA node");
    topology->nodes = calloc((size_t)count, sizeof(topology->nodes[0]));
    if (topology->nodes == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "topology: out of memory");
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(hw, HWLOC_OBJ_NUMANODE, node)) != NULL &&
           topology->node_count < (uint32_t)count) {
        int cores = hwloc_bitmap_weight(node->cpuset);

        topology->nodes[topology->node_count++] = (struct ferry_topology_node){
            .os_index = node->os_index,
            .core_count = cores > 0 ? (uint32_t)cores : 0,
            .memory_bytes = node->attr->numanode.local_memory};
    }
    return FERRY_OK;
}

static void destroy_hwloc(hwloc_topology_t *hw)
{
    if (*hw != NULL)
        hwloc_topology_destroy(*hw);
}

static enum ferry_status load(struct ferry_topology *topology)
{
    FERRY_CLEANUP(destroy_hwloc) hwloc_topology_t hw = NULL;

    if (hwloc_topology_init(&hw) != 0)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "topology: hwloc cannot start");
    hwloc_topology_set_io_types_filter(hw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(hw) != 0) {
        return ferry_fail(FERRY_ERR_IO, "topology: hwloc cannot read this host: %s",
                          strerror(errno));
    }

    /* An earlier attempt may have stopped half-way. */
    free(topology->nodes);
    free(topology->nics);
    topology->nodes = NULL;
    topology->nics = NULL;
    topology->node_count = 0;
    topology->nic_count = 0;
    enum ferry_status status = collect_nodes(hw, topology);
    if (status == FERRY_OK)
        status = collect_nics(hw, topology);
    topology->loaded = status == FERRY_OK;
    return status;
}

enum ferry_status ferry_topology_view(struct ferry_topology *topology,
                                      struct ferry_topology_view *view_out)
{
    if (!topology->loaded) {
        enum ferry_status status = load(topology);

        if (status != FERRY_OK)
            return status;
    }
    *view_out = (struct ferry_topology_view){.nodes = topology->nodes,
                                             .node_count = topology->node_count,
                                             .nics = topology->nics,
                                             .nic_count = topology->nic_count};
    return FERRY_OK;
}
