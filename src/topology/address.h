/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which addresses this host has, and which of them to publish so that peers can reach it.
 *
 * Listing asks the kernel; ranking and picking are pure functions over the list. Never picks a
 * wildcard, and loopback only if it was asked for or nothing else is there. Sends nothing.
 */
#ifndef FERRY_TOPOLOGY_ADDRESS_H
#define FERRY_TOPOLOGY_ADDRESS_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_ADDRESSES_MAX     256
#define FERRY_ADDRESS_TEXT_SIZE 48

/* What is known about one local address; facts only, no judgement. */
struct ferry_address {
    char interface[IF_NAMESIZE];
    uint32_t interface_index;
    union {
        struct sockaddr sa;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } addr;                             /* port 0 */
    char text[FERRY_ADDRESS_TEXT_SIZE]; /* "10.0.0.1", "fd00::1"; no brackets, no scope */
    bool up;                            /* administratively and with a carrier */
    bool loopback;
    bool link_local;  /* 169.254/16, fe80::/10 */
    bool unready;     /* IPv6: still being checked for duplicates, or a duplicate */
    bool fading;      /* IPv6: temporary or deprecated */
    bool bridge_like; /* a bridge or a container's or virtual machine's network on this host */
    bool hardware;    /* backed by a device */
    bool outward;     /* the kernel's own source address towards the rest of the world */
};

/* The judgement: lower is better. */
enum ferry_address_rank {
    FERRY_ADDRESS_OUTWARD = 0,  /* the default route leaves from it */
    FERRY_ADDRESS_HARDWARE = 1, /* a real network card */
    FERRY_ADDRESS_OTHER = 2,    /* virtual, but not host-internal as far as we see */
    FERRY_ADDRESS_BRIDGE = 3,   /* likely reachable from this host only */
    FERRY_ADDRESS_FADING = 4,   /* IPv6 that will go away */
    FERRY_ADDRESS_LOOPBACK = 5, /* this host only */
    FERRY_ADDRESS_UNUSABLE = 6, /* down, link-local, unready, wildcard */
};

/* What is wanted. Zeroed: any family, any interface, loopback only when nothing else is there. */
struct ferry_address_wish {
    int family;            /* AF_UNSPEC, AF_INET, AF_INET6 */
    const char *interface; /* NULL: any */
    bool loopback;         /* loopback and nothing else */
};

/*
 * All addresses of the up and down interfaces, in the kernel's order. @list_out has room for
 * FERRY_ADDRESSES_MAX; more are left out. Any thread; a few system calls and small file reads.
 * ERR_IO, ERR_LIMIT, ERR_NO_MEMORY, with text.
 */
FERRY_CHECKED enum ferry_status ferry_address_list(struct ferry_address *list_out,
                                                   uint32_t *count_out);

/* The judgement and its reason (static text, such as "interface is down"). */
enum ferry_address_rank ferry_address_rank(const struct ferry_address *address,
                                           const char **reason_out);

/* Sort best first: rank, IPv4 before IPv6, interface index, kernel's order. */
void ferry_address_sort(struct ferry_address *list, uint32_t count);

/*
 * The best that meets the wish; @list in any order. ERR_NOT_FOUND with text that says what was
 * there and why each was refused.
 */
FERRY_CHECKED enum ferry_status ferry_address_pick(const struct ferry_address *list, uint32_t count,
                                                   const struct ferry_address_wish *wish,
                                                   struct ferry_address *address_out);

/* List and pick in one call. */
FERRY_CHECKED enum ferry_status ferry_topology_pick_address(const struct ferry_address_wish *wish,
                                                            struct ferry_address *address_out);

#endif
