/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists this host's addresses and picks the one to publish. Any thread; no state; sends no packet
 * (the datagram sockets below are connected to learn the kernel's choice of route, never written
 * to).
 */
#include "topology/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "topology/topology_private.h"

#define INET6_TABLE_BYTES 65536

/* linux/if_addr.h; its other contents collide with the C library's headers. */
#define V6_TEMPORARY  0x01u
#define V6_DAD_FAILED 0x08u
#define V6_DEPRECATED 0x20u
#define V6_TENTATIVE  0x40u

void ferry_address_classify(struct ferry_address *address)
{
    if (address->addr.sa.sa_family == AF_INET) {
        uint32_t v4 = ntohl(address->addr.v4.sin_addr.s_addr);

        inet_ntop(AF_INET, &address->addr.v4.sin_addr, address->text, sizeof(address->text));
        address->loopback = v4 >> 24 == 127;
        address->link_local = v4 >> 16 == 0xa9fe;
    } else {
        const struct in6_addr *v6 = &address->addr.v6.sin6_addr;

        inet_ntop(AF_INET6, v6, address->text, sizeof(address->text));
        address->loopback = IN6_IS_ADDR_LOOPBACK(v6);
        address->link_local = IN6_IS_ADDR_LINKLOCAL(v6);
    }
}

bool ferry_address_v6_flags(const char *table, const struct in6_addr *addr,
                            uint32_t interface_index, uint32_t *flags_out)
{
    char wanted[33];
    char found[33];
    unsigned int index;
    unsigned int flags;

    for (int i = 0; i < 16; i++)
        snprintf(wanted + 2 * i, 3, "%02x", addr->s6_addr[i]);
    while (*table != '\0') {
        if (sscanf(table, "%32s %x %*x %*x %x", found, &index, &flags) == 3 &&
            index == interface_index && strcmp(found, wanted) == 0) {
            *flags_out = flags;
            return true;
        }
        table += strcspn(table, "\n");
        table += *table == '\n';
    }
    return false;
}

static bool interface_has(const char *interface, const char *what)
{
    char path[64 + IF_NAMESIZE];

    snprintf(path, sizeof(path), "/sys/class/net/%s/%s", interface, what);
    return access(path, F_OK) == 0;
}

static bool host_internal_name(const char *interface)
{
    static const char *const prefixes[] = {"docker", "br-",     "virbr", "veth",  "vnet",
                                           "cni",    "cali",    "lxc",   "lxd",   "podman",
                                           "kube",   "flannel", "tap",   "cilium"};

    for (size_t i = 0; i < FERRY_ARRAY_LEN(prefixes); i++) {
        if (strncmp(interface, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

/* The source address the kernel takes towards @far; needs a route, sends nothing. */
static bool outward_source(const struct sockaddr *far, socklen_t far_size,
                           struct sockaddr *near_out)
{
    FERRY_AUTO_FD int fd = socket(far->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = far_size;

    return fd >= 0 && connect(fd, far, far_size) == 0 && getsockname(fd, near_out, &size) == 0;
}

static void mark_outward(struct ferry_address *list, uint32_t count)
{
    /* Well-known anycast roots would do as well; these blocks are reserved for documentation, so
     * nobody's own network contains them in earnest and the default route decides. */
    struct sockaddr_in far4 = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 far6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    struct sockaddr_in near4 = {0};
    struct sockaddr_in6 near6 = {0};

    inet_pton(AF_INET, "203.0.113.1", &far4.sin_addr);
    inet_pton(AF_INET6, "2001:db8:ffff::1", &far6.sin6_addr);
    bool have4 = outward_source((struct sockaddr *)&far4, sizeof(far4), (struct sockaddr *)&near4);
    bool have6 = outward_source((struct sockaddr *)&far6, sizeof(far6), (struct sockaddr *)&near6);

    for (uint32_t i = 0; i < count; i++) {
        if (list[i].addr.sa.sa_family == AF_INET) {
            list[i].outward = have4 && list[i].addr.v4.sin_addr.s_addr == near4.sin_addr.s_addr;
        } else {
            list[i].outward = have6 &&
                              memcmp(&list[i].addr.v6.sin6_addr, &near6.sin6_addr, 16) == 0;
        }
    }
}

static bool fill(const struct ifaddrs *from, const char *inet6_table, struct ferry_address *to)
{
    memset(to, 0, sizeof(*to));
    if (from->ifa_addr == NULL)
        return false;
    if (from->ifa_addr->sa_family == AF_INET) {
        memcpy(&to->addr.v4, from->ifa_addr, sizeof(to->addr.v4));
    } else if (from->ifa_addr->sa_family == AF_INET6) {
        memcpy(&to->addr.v6, from->ifa_addr, sizeof(to->addr.v6));
    } else {
        return false;
    }

    snprintf(to->interface, sizeof(to->interface), "%s", from->ifa_name);
    /* An address label ("eth0:1") is not an interface. */
    to->interface[strcspn(to->interface, ":")] = '\0';
    to->interface_index = if_nametoindex(to->interface);
    ferry_address_classify(to);
    to->up = (from->ifa_flags & IFF_UP) && (from->ifa_flags & IFF_RUNNING);
    to->loopback = to->loopback || (from->ifa_flags & IFF_LOOPBACK);
    to->bridge_like = interface_has(to->interface, "bridge") || host_internal_name(to->interface);
    to->hardware = interface_has(to->interface, "device");
    if (to->addr.sa.sa_family == AF_INET6) {
        uint32_t flags = 0;

        ferry_address_v6_flags(inet6_table, &to->addr.v6.sin6_addr, to->interface_index, &flags);
        to->unready = flags & (V6_TENTATIVE | V6_DAD_FAILED);
        to->fading = flags & (V6_TEMPORARY | V6_DEPRECATED);
    }
    return true;
}

enum ferry_status ferry_address_list(struct ferry_address *list_out, uint32_t *count_out)
{
    struct ifaddrs *all;
    uint32_t count = 0;
    FERRY_AUTO_FREE char *inet6_table = calloc(1, INET6_TABLE_BYTES);

    if (inet6_table == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "addresses: out of memory");
    /* Absent where IPv6 is off. */
    if (!ferry_topology_read_file("/proc/net/if_inet6", inet6_table, INET6_TABLE_BYTES))
        inet6_table[0] = '\0';
    if (getifaddrs(&all) != 0)
        return ferry_fail_errno(errno, "addresses: the kernel does not list its interfaces");

    for (const struct ifaddrs *from = all; from != NULL && count < FERRY_ADDRESSES_MAX;
         from = from->ifa_next)
        count += fill(from, inet6_table, &list_out[count]);
    freeifaddrs(all);
    mark_outward(list_out, count);
    *count_out = count;
    return FERRY_OK;
}

static bool is_wildcard(const struct ferry_address *address)
{
    return address->addr.sa.sa_family == AF_INET
               ? address->addr.v4.sin_addr.s_addr == htonl(INADDR_ANY)
               : IN6_IS_ADDR_UNSPECIFIED(&address->addr.v6.sin6_addr);
}

enum ferry_address_rank ferry_address_rank(const struct ferry_address *address,
                                           const char **reason_out)
{
    const struct {
        bool applies;
        enum ferry_address_rank rank;
        const char *reason;
    } rules[] = {
        {is_wildcard(address), FERRY_ADDRESS_UNUSABLE, "a wildcard is no address of this host"},
        {!address->up, FERRY_ADDRESS_UNUSABLE, "the interface is down or has no carrier"},
        {address->link_local, FERRY_ADDRESS_UNUSABLE,
         "a link-local address needs an interface name"},
        {address->unready, FERRY_ADDRESS_UNUSABLE, "the address is not ready (duplicate check)"},
        {address->loopback, FERRY_ADDRESS_LOOPBACK, "loopback reaches this host only"},
        {address->fading, FERRY_ADDRESS_FADING, "a temporary or deprecated IPv6 address"},
        {address->outward, FERRY_ADDRESS_OUTWARD, "the default route leaves from it"},
        {address->bridge_like, FERRY_ADDRESS_BRIDGE, "a bridge or a guest network of this host"},
        {address->hardware, FERRY_ADDRESS_HARDWARE, "a network card"},
        {true, FERRY_ADDRESS_OTHER, "a virtual interface"},
    };
    size_t i = 0;

    while (!rules[i].applies)
        i++;
    if (reason_out != NULL)
        *reason_out = rules[i].reason;
    return rules[i].rank;
}

struct ranked {
    uint32_t position; /* in the kernel's order */
    enum ferry_address_rank rank;
    bool v6;
    uint32_t interface_index;
};

static struct ranked rank_at(const struct ferry_address *list, uint32_t position)
{
    return (struct ranked){.position = position,
                           .rank = ferry_address_rank(&list[position], NULL),
                           .v6 = list[position].addr.sa.sa_family == AF_INET6,
                           .interface_index = list[position].interface_index};
}

static bool is_better(const struct ranked *a, const struct ranked *b)
{
    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (a->v6 != b->v6)
        return b->v6;
    if (a->interface_index != b->interface_index)
        return a->interface_index < b->interface_index;
    return a->position < b->position;
}

void ferry_address_sort(struct ferry_address *list, uint32_t count)
{
    /* By insertion: it is stable, and the list is short. */
    for (uint32_t i = 1; i < count; i++) {
        struct ferry_address moving = list[i];
        struct ranked wanted = rank_at(list, i);
        uint32_t hole = i;

        for (; hole > 0; hole--) {
            struct ranked other = rank_at(list, hole - 1);

            if (!is_better(&wanted, &other))
                break;
            list[hole] = list[hole - 1];
        }
        list[hole] = moving;
    }
}

static const char *wish_refuses(const struct ferry_address *address,
                                const struct ferry_address_wish *wish)
{
    const char *reason = NULL;

    if (wish->family != AF_UNSPEC && address->addr.sa.sa_family != wish->family)
        return "other address family";
    if (wish->interface != NULL && strcmp(address->interface, wish->interface) != 0)
        return "other interface";
    if (ferry_address_rank(address, &reason) == FERRY_ADDRESS_UNUSABLE)
        return reason;
    if (wish->loopback && !address->loopback)
        return "not loopback";
    return NULL;
}

static enum ferry_status nothing_to_pick(const struct ferry_address *list, uint32_t count,
                                         const struct ferry_address_wish *wish)
{
    char text[FERRY_ERROR_TEXT_SIZE / 2] = "";
    size_t length = 0;

    for (uint32_t i = 0; i < count && length < sizeof(text); i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s on %s: %s",
                                   i > 0 ? "; " : "", list[i].text, list[i].interface,
                                   wish_refuses(&list[i], wish));
    }
    return ferry_fail(FERRY_ERR_NOT_FOUND, "no usable%s%s address%s%s (%s)",
                      wish->loopback ? " loopback" : "",
                      wish->family == AF_INET    ? " IPv4"
                      : wish->family == AF_INET6 ? " IPv6"
                                                 : "",
                      wish->interface != NULL ? " on interface " : "",
                      wish->interface != NULL ? wish->interface : "",
                      count > 0 ? text : "this host has no address at all");
}

enum ferry_status ferry_address_pick(const struct ferry_address *list, uint32_t count,
                                     const struct ferry_address_wish *wish,
                                     struct ferry_address *address_out)
{
    bool found = false;
    struct ranked best = {0};

    for (uint32_t i = 0; i < count; i++) {
        if (wish_refuses(&list[i], wish) != NULL)
            continue;
        struct ranked candidate = rank_at(list, i);
        if (!found || is_better(&candidate, &best))
            best = candidate;
        found = true;
    }
    if (!found)
        return nothing_to_pick(list, count, wish);
    *address_out = list[best.position];
    return FERRY_OK;
}

enum ferry_status ferry_topology_pick_address(const struct ferry_address_wish *wish,
                                              struct ferry_address *address_out)
{
    uint32_t count = 0;
    FERRY_AUTO_FREE struct ferry_address *list = calloc(FERRY_ADDRESSES_MAX, sizeof(*list));

    if (list == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "addresses: out of memory");
    enum ferry_status status = ferry_address_list(list, &count);
    if (status == FERRY_OK)
        status = ferry_address_pick(list, count, wish, address_out);
    return status;
}
