/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One TCP connection to a host that may have several addresses: the addresses are tried in order, a
 * new one every FERRY_CONNECT_STAGGER_NS while none has answered (RFC 8305), and the first that
 * accepts wins. Every attempt keeps its errno, so that a failure can name each address and its
 * reason.
 *
 * Steppable: no thread, never blocks; the owner polls the descriptors and calls step.
 */
#ifndef FERRY_CONTROL_CONNECT_H
#define FERRY_CONTROL_CONNECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/text.h"
#include "control/resolve.h"

#define FERRY_CONNECT_STAGGER_NS (250 * FERRY_NS_PER_MS)

enum ferry_connect_state {
    FERRY_CONNECT_RUNNING,
    FERRY_CONNECT_DONE,   /* take the descriptor */
    FERRY_CONNECT_FAILED, /* no address is left */
};

enum ferry_connect_try_state {
    FERRY_TRY_WAITING, /* its turn has not come */
    FERRY_TRY_RUNNING, /* fd >= 0 */
    FERRY_TRY_FAILED,  /* err says why; ETIMEDOUT also for our own limit */
    FERRY_TRY_WON,
};

struct ferry_connect_try {
    enum ferry_connect_try_state state;
    int fd; /* >= 0 only while running, or won and not yet taken */
    int err;
    bool gave_up; /* err is ETIMEDOUT because of our limit */
    uint64_t started_ns;
};

/* One owner thread. */
struct ferry_connect {
    struct ferry_resolution to;
    struct ferry_connect_try tries[FERRY_RESOLVE_ADDRS_MAX];
    uint32_t next;        /* the first that has not been started */
    uint64_t next_due_ns; /* when it is, at the latest */
    uint64_t limit_ns;    /* per address */
};

void ferry_connect_init(struct ferry_connect *race, const struct ferry_resolution *to,
                        uint64_t limit_ns);
/* Closes what was not taken. Accepts a zeroed object. */
void ferry_connect_fini(struct ferry_connect *race);

enum ferry_connect_state ferry_connect_step(struct ferry_connect *race, uint64_t now_ns);
/* After DONE, once: the connected descriptor, non-blocking and close-on-exec. */
int ferry_connect_take(struct ferry_connect *race);

/* Call step at this time at the latest, or when one of the descriptors is writable or failed. */
uint64_t ferry_connect_due_ns(const struct ferry_connect *race);
/* At most FERRY_RESOLVE_ADDRS_MAX. */
size_t ferry_connect_fds(const struct ferry_connect *race, int *fds_out);

/* After a failure: "10.9.0.99:80: no route to host (errno 113), 10.9.0.2:80: ..." */
void ferry_connect_describe(const struct ferry_connect *race, struct ferry_text *text);
/* After DONE: the place that accepted, "10.9.0.2:80". */
void ferry_connect_describe_peer(const struct ferry_connect *race, struct ferry_text *text);
/* True if nothing but local limits (descriptors, memory) kept it from connecting. */
bool ferry_connect_hit_limit(const struct ferry_connect *race);

#endif
