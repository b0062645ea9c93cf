/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host names to addresses, away from the control thread.
 *
 * getaddrinfo() blocks for as long as the system's resolver likes, and no call ends it early. It
 * therefore runs on a few threads of its own, started on demand and gone when the queue is empty. A
 * look-up that nobody waits for any more ends by itself; nothing else waits for it, closing
 * included, for longer than FERRY_RESOLVER_CLOSE_NS.
 */
#ifndef FERRY_CONTROL_RESOLVE_H
#define FERRY_CONTROL_RESOLVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include <ferry/status.h>

#include "base/clock.h"
#include "base/compiler.h"

#define FERRY_RESOLVER_THREADS_MAX 4
#define FERRY_RESOLVER_CLOSE_NS    FERRY_NS_PER_S
/* Addresses of one name that are used; further ones are left out. */
#define FERRY_RESOLVE_ADDRS_MAX 8

struct ferry_resolver;
struct ferry_lookup;

struct ferry_socket_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct ferry_resolution {
    struct ferry_socket_address addrs[FERRY_RESOLVE_ADDRS_MAX]; /* in the system's order */
    uint32_t count;                                             /* 0: the look-up failed */
    const char *reason;                                         /* then why; static text */
};

/* Runs on a resolver thread, under the resolver's lock, after a look-up ended; must only wake. */
typedef void ferry_resolver_wake_fn(void *arg);

FERRY_CHECKED enum ferry_status ferry_resolver_open(ferry_resolver_wake_fn *wake, void *arg,
                                                    struct ferry_resolver **resolver_out);
/* After the last ferry_lookup_release(). wake() is not called any more once this begins. */
void ferry_resolver_close(struct ferry_resolver *resolver);

/* Any thread, does not block. ERR_NO_MEMORY, ERR_LIMIT (no thread can be started). */
FERRY_CHECKED enum ferry_status ferry_resolver_lookup(struct ferry_resolver *resolver,
                                                      const char *host, uint16_t port,
                                                      struct ferry_lookup **lookup_out);
/* True once the look-up ended; then *resolution_out is set. */
bool ferry_lookup_poll(struct ferry_lookup *lookup, struct ferry_resolution *resolution_out);
/* Give it back, ended or not. */
void ferry_lookup_release(struct ferry_lookup *lookup);

#endif
