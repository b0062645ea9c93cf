/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which address is published: the ranking on invented hosts, and the list of the real one. One
 * thread.
 */
#include "support/test.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "topology/topology_private.h"

/* One address of an invented host: up, on an interface with the given index. */
static struct ferry_address on(const char *interface, uint32_t index, const char *text)
{
    struct ferry_address address = {.interface_index = index, .up = true};

    snprintf(address.interface, sizeof(address.interface), "%s", interface);
    if (inet_pton(AF_INET, text, &address.addr.v4.sin_addr) == 1) {
        address.addr.sa.sa_family = AF_INET;
    } else if (inet_pton(AF_INET6, text, &address.addr.v6.sin6_addr) == 1) {
        address.addr.sa.sa_family = AF_INET6;
    } else {
        fail_msg("bad test address %s", text);
    }
    ferry_address_classify(&address);
    return address;
}

/* A usual server: loopback, a card without the default route, the outward card, docker, a guest. */
struct host {
    struct ferry_address list[9];
    uint32_t count;
};

static struct host server(void)
{
    struct host host = {.list = {on("lo", 1, "127.0.0.1"), on("lo", 1, "::1"),
                                 on("docker0", 3, "172.17.0.1"), on("eth1", 4, "10.0.1.7"),
                                 on("eth0", 5, "192.0.2.9"), on("eth0", 5, "2001:db8::9"),
                                 on("eth0", 5, "fe80::9"), on("wg0", 6, "10.9.0.1"),
                                 on("eth2", 7, "10.0.2.7")},
                        .count = 9};

    host.list[2].bridge_like = true;
    host.list[3].hardware = true;
    for (int i = 4; i < 7; i++)
        host.list[i].hardware = true;
    host.list[4].outward = true;
    host.list[5].outward = true;
    host.list[8].hardware = true;
    host.list[8].up = false;
    return host;
}

static void assert_picks(const struct host *host, struct ferry_address_wish wish, const char *text)
{
    struct ferry_address picked = {0};

    assert_ok(ferry_address_pick(host->list, host->count, &wish, &picked));
    assert_string_equal(picked.text, text);
}

static void test_the_outward_address_wins(void **state)
{
    struct host host = server();

    assert_picks(&host, (struct ferry_address_wish){0}, "192.0.2.9");
    assert_picks(&host, (struct ferry_address_wish){.family = AF_INET6}, "2001:db8::9");
    assert_picks(&host, (struct ferry_address_wish){.interface = "eth1"}, "10.0.1.7");
    assert_picks(&host, (struct ferry_address_wish){.interface = "docker0"}, "172.17.0.1");
    assert_picks(&host, (struct ferry_address_wish){.loopback = true}, "127.0.0.1");
    assert_picks(&host, (struct ferry_address_wish){.loopback = true, .family = AF_INET6}, "::1");
}

static void test_the_order_of_what_is_left(void **state)
{
    static const char *const order[] = {"192.0.2.9",  "2001:db8::9", "10.0.1.7", "10.9.0.1",
                                        "172.17.0.1", "127.0.0.1",   "::1"};
    struct host host = server();

    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        struct ferry_address picked = {0};
        struct ferry_address_wish any = {0};

        assert_ok(ferry_address_pick(host.list, host.count, &any, &picked));
        assert_string_equal(picked.text, order[i]);
        for (size_t j = 0; j < sizeof(host.list) / sizeof(host.list[0]); j++) {
            if (strcmp(host.list[j].text, order[i]) == 0)
                host.list[j].up = false;
        }
    }
    struct ferry_address picked = {.interface_index = 99};
    struct ferry_address_wish any = {0};
    assert_status(ferry_address_pick(host.list, host.count, &any, &picked), FERRY_ERR_NOT_FOUND);
    assert_int_equal(picked.interface_index, 99);
    assert_non_null(strstr(ferry_last_error_text(), "127.0.0.1 on lo: the interface is down"));
}

static void test_sort_agrees_with_pick(void **state)
{
    struct host host = server();
    struct host sorted = server();
    struct ferry_address_wish any = {0};

    ferry_address_sort(sorted.list, sorted.count);
    assert_picks(&host, any, sorted.list[0].text);
    for (uint32_t i = 1; i < sorted.count; i++) {
        assert_true(ferry_address_rank(&sorted.list[i - 1], NULL) <=
                    ferry_address_rank(&sorted.list[i], NULL));
    }
    /* Nothing got lost. */
    for (uint32_t i = 0; i < host.count; i++) {
        uint32_t found = 0;

        for (uint32_t j = 0; j < sorted.count; j++)
            found += strcmp(host.list[i].text, sorted.list[j].text) == 0;
        assert_int_equal(found, 1);
    }
}

static void test_what_is_never_picked(void **state)
{
    const struct {
        const char *text;
        bool unready;
        bool down;
    } rows[] = {{"0.0.0.0", false, false},     {"::", false, false},
                {"169.254.7.7", false, false}, {"fe80::1", false, false},
                {"2001:db8::1", true, false},  {"10.0.0.1", false, true}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ferry_address one = on("eth0", 2, rows[i].text);
        struct ferry_address picked;
        struct ferry_address_wish any = {0};
        const char *reason = NULL;

        one.hardware = true;
        one.unready = rows[i].unready;
        one.up = !rows[i].down;
        assert_int_equal(ferry_address_rank(&one, &reason), FERRY_ADDRESS_UNUSABLE);
        assert_status(ferry_address_pick(&one, 1, &any, &picked), FERRY_ERR_NOT_FOUND);
        assert_non_null(strstr(ferry_last_error_text(), reason));
    }
    struct ferry_address_wish wish = {.family = AF_INET6, .interface = "eth9", .loopback = true};
    struct ferry_address picked;
    assert_status(ferry_address_pick(NULL, 0, &wish, &picked), FERRY_ERR_NOT_FOUND);
    assert_non_null(strstr(ferry_last_error_text(), "IPv6"));
    assert_non_null(strstr(ferry_last_error_text(), "eth9"));
}

static void test_text_of_many_addresses_stays_in_bounds(void **state)
{
    static struct ferry_address many[FERRY_ADDRESSES_MAX];
    struct ferry_address_wish any = {0};
    struct ferry_address picked;

    for (uint32_t i = 0; i < FERRY_ADDRESSES_MAX; i++)
        many[i] = on("eth0", 2, "fe80:1111:2222:3333:4444:5555:6666:7777");
    assert_status(ferry_address_pick(many, FERRY_ADDRESSES_MAX, &any, &picked),
                  FERRY_ERR_NOT_FOUND);
}

static void test_ipv6_flags_are_read_from_the_kernels_table(void **state)
{
    static const char table[] = "00000000000000000000000000000001 01 80 10 80       lo\n"
                                "fd000000000000000000000000000002 04 40 00 82     eth0\n"
                                "20010db8000000000000000000000009 04 40 00 40     eth0\n"
                                "junk\n"
                                "20010db8000000000000000000000009 05 40 00 01     eth1";
    struct in6_addr addr;
    uint32_t flags = 7;

    assert_int_equal(inet_pton(AF_INET6, "2001:db8::9", &addr), 1);
    assert_true(ferry_address_v6_flags(table, &addr, 4, &flags));
    assert_int_equal(flags, 0x40);
    assert_true(ferry_address_v6_flags(table, &addr, 5, &flags));
    assert_int_equal(flags, 0x01);
    assert_false(ferry_address_v6_flags(table, &addr, 6, &flags));
    assert_false(ferry_address_v6_flags("", &addr, 4, &flags));
    assert_int_equal(inet_pton(AF_INET6, "fd00::2", &addr), 1);
    assert_true(ferry_address_v6_flags(table, &addr, 4, &flags));
    assert_int_equal(flags, 0x82);
}

static void test_this_hosts_addresses(void **state)
{
    static struct ferry_address list[FERRY_ADDRESSES_MAX];
    uint32_t count = 0;
    struct ferry_address picked;
    struct ferry_address_wish any = {0};

    assert_ok(ferry_address_list(list, &count));
    ferry_address_sort(list, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *reason;
        enum ferry_address_rank rank = ferry_address_rank(&list[i], &reason);

        print_message("%s on %s: %d, %s\n", list[i].text, list[i].interface, (int)rank, reason);
        assert_int_not_equal(list[i].interface_index, 0);
    }
    if (count == 0)
        return;
    enum ferry_status status = ferry_topology_pick_address(&any, &picked);
    if (ferry_address_rank(&list[0], NULL) == FERRY_ADDRESS_UNUSABLE) {
        assert_int_equal(status, FERRY_ERR_NOT_FOUND);
    } else {
        assert_string_equal(picked.text, list[0].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_outward_address_wins),
        cmocka_unit_test(test_the_order_of_what_is_left),
        cmocka_unit_test(test_sort_agrees_with_pick),
        cmocka_unit_test(test_what_is_never_picked),
        cmocka_unit_test(test_text_of_many_addresses_stays_in_bounds),
        cmocka_unit_test(test_ipv6_flags_are_read_from_the_kernels_table),
        cmocka_unit_test(test_this_hosts_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
