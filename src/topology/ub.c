/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UB devices: the adapter's list, with NUMA node and PCI location out of sysfs. Any thread; blocks
 * in the provider and in file reads. Decides nothing.
 */
#include "topology/ub.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "topology/topology_private.h"

/* The last part of where the device link points to is the PCI address, if it looks like one. */
static void find_pci(const char *path, char *pci, size_t size)
{
    char link[FERRY_URMA_PATH_SIZE + 16];
    char target[PATH_MAX];
    unsigned domain, bus, device, function;
    const char *name;

    pci[0] = '\0';
    snprintf(link, sizeof(link), "%s/device", path);
    if (realpath(link, target) == NULL)
        return;
    name = strrchr(target, '/');
    if (name == NULL || strlen(name + 1) >= size ||
        sscanf(name + 1, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return;
    snprintf(pci, size, "%s", name + 1);
}

static void fill(const struct ferry_urma_device *row, struct ferry_topology_ub *device)
{
    char path[FERRY_URMA_PATH_SIZE + 32];
    int64_t node;

    *device = (struct ferry_topology_ub){.numa_node = -1, .native = *row};
    snprintf(device->id, sizeof(device->id), "%s:%u", row->name, row->eid_index);
    device->active = row->port_count == 0 || row->ports_active > 0;
    if (row->path[0] == '\0')
        return;
    snprintf(path, sizeof(path), "%s/device/numa_node", row->path);
    if (ferry_topology_read_number(path, &node) && node >= 0 && node < FERRY_TOPOLOGY_NODES_MAX)
        device->numa_node = (int32_t)node;
    find_pci(row->path, device->pci_bus_id, sizeof(device->pci_bus_id));
}

static int compare(const void *left, const void *right)
{
    const struct ferry_topology_ub *a = left;
    const struct ferry_topology_ub *b = right;
    int order = strcmp(a->native.name, b->native.name);

    if (order != 0)
        return order;
    return (a->native.eid_index > b->native.eid_index) -
           (a->native.eid_index < b->native.eid_index);
}

enum ferry_status ferry_topology_ub_list(const struct ferry_urma *urma,
                                         struct ferry_topology_ub *devices_out, uint32_t capacity,
                                         uint32_t *count_out)
{
    struct ferry_urma_device *rows = calloc(FERRY_URMA_ROWS_MAX, sizeof(*rows));
    struct ferry_urma_status status;
    uint32_t count = 0;

    if (rows == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "topology: out of memory");
    status = ferry_urma_list_devices(
        urma, rows, capacity < FERRY_URMA_ROWS_MAX ? capacity : FERRY_URMA_ROWS_MAX, &count);
    if (status.class == FERRY_URMA_OK) {
        for (uint32_t i = 0; i < count; i++)
            fill(&rows[i], &devices_out[i]);
        qsort(devices_out, count, sizeof(*devices_out), compare);
        *count_out = count;
    }
    free(rows);
    if (status.class != FERRY_URMA_OK)
        return ferry_fail(FERRY_ERR_DEVICE, "the list of UB devices cannot be read (native %d)",
                          status.native);
    return FERRY_OK;
}

void ferry_topology_eid_print(const uint8_t eid[FERRY_URMA_EID_SIZE],
                              char text[FERRY_TOPOLOGY_EID_TEXT_SIZE])
{
    char *at = text;

    for (uint32_t i = 0; i < FERRY_URMA_EID_SIZE; i += 2)
        at += snprintf(at, 6, "%s%02x%02x", i > 0 ? ":" : "", eid[i], eid[i + 1]);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool ferry_topology_eid_parse(const char *text, uint8_t eid_out[FERRY_URMA_EID_SIZE])
{
    uint8_t eid[FERRY_URMA_EID_SIZE];

    if (strlen(text) != FERRY_TOPOLOGY_EID_TEXT_SIZE - 1)
        return false;
    for (uint32_t i = 0; i < FERRY_URMA_EID_SIZE; i++) {
        const char *at = text + i / 2 * 5 + i % 2 * 2;
        int high = digit(at[0]);
        int low = digit(at[1]);

        if (high < 0 || low < 0 || (i % 2 == 1 && i + 1 < FERRY_URMA_EID_SIZE && at[2] != ':'))
            return false;
        eid[i] = (uint8_t)(high << 4 | low);
    }
    memcpy(eid_out, eid, sizeof(eid));
    return true;
}
