/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One non-blocking attempt at a socket operation, by plain system calls. epoll.c lives on it;
 * uring.c uses it for what a ring has no advantage in, and for everything while it is lent.
 */
#ifndef FERRY_REACTOR_DIRECT_H
#define FERRY_REACTOR_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

#include "reactor/reactor.h"

/* What one call moves at most, so that one stream cannot hold a turn for long. */
#define FERRY_STEP_BYTES (1u << 20)

struct ferry_attempt {
    bool done;      /* the op is complete, with `result` */
    bool blocked;   /* the kernel said EAGAIN */
    bool ran_dry;   /* a short count: nothing more to take, or no more room, at that moment */
    int64_t result; /* valid if done */
};

/*
 * Try @op once. RECV and RECVV add what arrived to op->progress. Neither done nor blocked means:
 * there may be more to do at once. Never blocks, raises no SIGPIPE.
 */
struct ferry_attempt ferry_direct_try(struct ferry_op *op);

/* Whether a RECV has what it asked for. */
static inline bool ferry_recv_satisfied(const struct ferry_op *op)
{
    return op->progress > 0 && op->progress >= op->min_bytes;
}

/* Move everything from @from to the end of @to. */
static inline void ferry_list_splice(struct ferry_list *to, struct ferry_list *from)
{
    if (ferry_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    ferry_list_init(from);
}

/* Close-on-exec and non-blocking eventfd for wake-ups; -errno on failure. */
int ferry_wakefd_open(void);
void ferry_wakefd_ring(int fd);

/* -errno on failure. Puts @fd into non-blocking mode if it is not. */
int ferry_fd_nonblocking(int fd);

#endif
