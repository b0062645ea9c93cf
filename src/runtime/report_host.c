/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report about this host: addresses and what speaks against each, NUMA nodes, NICs, limits.
 * Works without an engine. Runs on the calling thread; loading the device tree costs tens of
 * milliseconds.
 */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include "base/error.h"
#include "base/json.h"
#include "runtime/runtime.h"
#include "topology/address.h"
#include "topology/topology.h"

static bool put_address(struct json_object *list, const struct ferry_address *address)
{
    struct json_object *object = json_object_new_object();
    const char *reason = "";
    enum ferry_address_rank rank = ferry_address_rank(address, &reason);
    bool ok = object != NULL && ferry_json_put_string(object, "address", address->text) &&
              ferry_json_put_string(object, "interface", address->interface) &&
              ferry_json_put_bool(object, "usable", rank != FERRY_ADDRESS_UNUSABLE) &&
              ferry_json_put_u64(object, "rank", (uint64_t)rank) &&
              ferry_json_put_string(object, "note", reason != NULL ? reason : "");

    return ferry_json_append(list, object) && ok;
}

static bool put_addresses(struct json_object *object)
{
    struct ferry_address *addresses = calloc(FERRY_ADDRESSES_MAX, sizeof(*addresses));
    struct json_object *list = json_object_new_array();
    bool ok = list != NULL && addresses != NULL;
    uint32_t count = 0;

    if (ok && ferry_address_list(addresses, &count) != FERRY_OK)
        count = 0;
    ferry_address_sort(addresses, count);
    for (uint32_t i = 0; i < count && ok; i++)
        ok = put_address(list, &addresses[i]);
    free(addresses);
    return ferry_json_put(object, "addresses", list) && ok;
}

static bool put_nodes(struct json_object *object, const struct ferry_topology_view *view)
{
    struct json_object *list = json_object_new_array();
    bool ok = list != NULL;

    for (uint32_t i = 0; i < view->node_count && ok; i++) {
        struct json_object *node = json_object_new_object();

        ok = node != NULL && ferry_json_put_u64(node, "node", view->nodes[i].os_index) &&
             ferry_json_put_u64(node, "cores", view->nodes[i].core_count) &&
             ferry_json_put_u64(node, "memory_bytes", view->nodes[i].memory_bytes);
        ok = ferry_json_append(list, node) && ok;
    }
    return ferry_json_put(object, "numa_nodes", list) && ok;
}

static bool put_nics(struct json_object *object, const struct ferry_topology_view *view)
{
    struct json_object *list = json_object_new_array();
    bool ok = list != NULL;

    for (uint32_t i = 0; i < view->nic_count && ok; i++) {
        const struct ferry_topology_nic *nic = &view->nics[i];
        struct json_object *entry = json_object_new_object();

        ok = entry != NULL && ferry_json_put_string(entry, "name", nic->name) &&
             ferry_json_put_string(entry, "kind",
                                   nic->kind == FERRY_NIC_RDMA ? "rdma" : "network") &&
             ferry_json_put_string(entry, "pci_bus_id", nic->pci_bus_id) &&
             ferry_json_put(entry, "numa_node", json_object_new_int(nic->numa_node)) &&
             ferry_json_put_u64(entry, "speed_mbit", nic->speed_mbit) &&
             ferry_json_put_bool(entry, "up", nic->up);
        ok = ferry_json_append(list, entry) && ok;
    }
    return ferry_json_put(object, "nics", list) && ok;
}

static bool put_topology(struct json_object *object)
{
    struct ferry_topology_view view = {0};
    struct ferry_topology *topology = NULL;
    bool ok;

    if (ferry_topology_open(&topology) != FERRY_OK ||
        ferry_topology_view(topology, &view) != FERRY_OK)
        memset(&view, 0, sizeof(view));
    ok = put_nodes(object, &view) && put_nics(object, &view);
    ferry_topology_close(topology);
    return ok;
}

/* Text, since RLIM_INFINITY as a number would pass for a limit, and many readers round it. */
static bool put_limit_value(struct json_object *object, const char *key, rlim_t value)
{
    if (value == RLIM_INFINITY)
        return ferry_json_put_string(object, key, "unlimited");
    return ferry_json_put_u64(object, key, value);
}

static bool put_limit(struct json_object *limits, const char *name, int resource)
{
    struct json_object *object = json_object_new_object();
    struct rlimit limit = {0};
    bool ok = object != NULL;

    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        ok = false;
    ok = ok && put_limit_value(object, "soft", limit.rlim_cur) &&
         put_limit_value(object, "hard", limit.rlim_max);
    return ferry_json_put(limits, name, object) && ok;
}

static bool put_limits(struct json_object *object)
{
    struct json_object *limits = json_object_new_object();
    bool ok = limits != NULL && put_limit(limits, "open_files", RLIMIT_NOFILE) &&
              put_limit(limits, "locked_memory_bytes", RLIMIT_MEMLOCK) &&
              put_limit(limits, "processes", RLIMIT_NPROC) &&
              put_limit(limits, "address_space_bytes", RLIMIT_AS);

    return ferry_json_put(object, "limits", limits) && ok;
}

enum ferry_status ferry_report_host(char **json_out)
{
    struct json_object *object = json_object_new_object();
    struct utsname name = {0};
    char machine_id[128];
    enum ferry_status status;
    size_t len;
    bool ok;

    uname(&name);
    ferry_machine_id(machine_id, sizeof(machine_id));
    ok = object != NULL && ferry_json_put_string(object, "hostname", name.nodename) &&
         ferry_json_put_string(object, "kernel", name.release) &&
         ferry_json_put_string(object, "machine", name.machine) &&
         ferry_json_put_string(object, "machine_id", machine_id) &&
         ferry_json_put_u64(object, "usable_cores", ferry_topology_usable_cores()) &&
         put_addresses(object) && put_topology(object) && put_limits(object);
    if (ok)
        status = ferry_json_print(object, 1u << 20, json_out, &len);
    else
        status = ferry_fail(FERRY_ERR_NO_MEMORY, "report: out of memory");
    json_object_put(object);
    return status;
}
