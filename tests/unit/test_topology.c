/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes, cores and devices of the host that runs the tests, compared with what the kernel says
 * elsewhere, and the parsers on texts of other hosts. One thread.
 */
#include "support/test.h"

#include <sched.h>
#include <string.h>

#include "topology/topology_private.h"

static void test_node_lists_are_parsed(void **state)
{
    uint32_t nodes[FERRY_TOPOLOGY_NODES_MAX];
    const uint32_t wanted[] = {0, 1, 2, 8, 10};

    assert_int_equal(ferry_topology_parse_nodes("0\n", nodes), 1);
    assert_int_equal(nodes[0], 0);
    assert_int_equal(ferry_topology_parse_nodes("0-2,8,10\n", nodes), 5);
    assert_memory_equal(nodes, wanted, sizeof(wanted));
    assert_int_equal(ferry_topology_parse_nodes("", nodes), 0);
    assert_int_equal(ferry_topology_parse_nodes("\n", nodes), 0);
    assert_int_equal(ferry_topology_parse_nodes("all", nodes), 0);
    assert_int_equal(ferry_topology_parse_nodes("-1", nodes), 0);
    /* Never more than the array holds, whatever the file says. */
    assert_int_equal(ferry_topology_parse_nodes("0-5000", nodes), FERRY_TOPOLOGY_NODES_MAX);
    assert_int_equal(ferry_topology_parse_nodes("1023,1024", nodes), 1);
}

static void test_quotas_are_rounded_up(void **state)
{
    assert_int_equal(ferry_topology_quota_cores("max 100000\n"), 0);
    assert_int_equal(ferry_topology_quota_cores("100000 100000\n"), 1);
    assert_int_equal(ferry_topology_quota_cores("150000 100000\n"), 2);
    assert_int_equal(ferry_topology_quota_cores("1000 100000\n"), 1);
    assert_int_equal(ferry_topology_quota_cores("100000 0\n"), 0);
    assert_int_equal(ferry_topology_quota_cores("0 100000\n"), 0);
    assert_int_equal(ferry_topology_quota_cores(""), 0);
    assert_int_equal(ferry_topology_quota_cores("99999999999999 1"), 0);
}

static void test_usable_cores_follow_the_affinity(void **state)
{
    cpu_set_t before;
    cpu_set_t one;

    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    uint32_t cores = ferry_topology_usable_cores();
    assert_in_range(cores, 1, (unsigned)CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(ferry_topology_usable_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(ferry_topology_usable_cores(), cores);
}

static void test_the_view_agrees_with_the_node_list(void **state)
{
    struct ferry_topology *topology;
    struct ferry_topology_view view;
    struct ferry_topology_view again;
    uint32_t count;

    assert_ok(ferry_topology_open(&topology));
    const uint32_t *nodes = ferry_topology_numa_nodes(topology, &count);
    assert_true(count >= 1);
    assert_ok(ferry_topology_view(topology, &view));
    assert_ok(ferry_topology_view(topology, &again));
    assert_ptr_equal(view.nodes, again.nodes);
    print_message("%u nodes, %u devices\n", view.node_count, view.nic_count);

    /* hwloc leaves out nodes that the cgroup forbids; it invents none. */
    assert_in_range(view.node_count, 1, count);
    for (uint32_t i = 0; i < view.node_count; i++) {
        bool known = false;

        for (uint32_t j = 0; j < count; j++)
            known |= nodes[j] == view.nodes[i].os_index;
        assert_true(known);
    }
    for (uint32_t i = 0; i < view.nic_count; i++) {
        print_message("%s pci %s node %d up %d\n", view.nics[i].name, view.nics[i].pci_bus_id,
                      view.nics[i].numa_node, view.nics[i].up);
        assert_int_not_equal(strlen(view.nics[i].name), 0);
        if (i > 0 && view.nics[i].kind == view.nics[i - 1].kind)
            assert_true(strcmp(view.nics[i - 1].name, view.nics[i].name) < 0);
    }
    ferry_topology_close(topology);
    ferry_topology_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_lists_are_parsed),
        cmocka_unit_test(test_quotas_are_rounded_up),
        cmocka_unit_test(test_usable_cores_follow_the_affinity),
        cmocka_unit_test(test_the_view_agrees_with_the_node_list),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
