/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all reactors have in common: the checked calls through the table, the timer heap, the clock
 * of the turn, and the choice of an implementation.
 *
 * Threads: the holder of the baton, except ferry_reactor_wake(). This file is the only one that
 * calls through the table; it must not know how any implementation works.
 */
#include "reactor/reactor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "reactor/tls.h"

#define TIMERS_DEFAULT      64u
#define TIMERS_MAX          (1u << 20)
#define QUEUE_DEPTH_DEFAULT 256u
#define QUEUE_DEPTH_MAX     4096u

enum ferry_status ferry_reactor_open_with(const struct ferry_reactor_ops *ops,
                                          const struct ferry_reactor_options *options,
                                          struct ferry_reactor **reactor_out)
{
    FERRY_ASSERT(ops->turn != NULL && ops->submit != NULL && ops->cancel != NULL);

    struct ferry_reactor_options resolved = *options;
    if (resolved.queue_depth == 0)
        resolved.queue_depth = QUEUE_DEPTH_DEFAULT;
    if (resolved.queue_depth > QUEUE_DEPTH_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "reactor: queue_depth %u is more than %u",
                          resolved.queue_depth, QUEUE_DEPTH_MAX);
    if (resolved.clock == NULL)
        resolved.clock = &ferry_clock_system;

    struct ferry_reactor *reactor = calloc(1, sizeof(*reactor));
    if (reactor == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "reactor: out of memory");
    reactor->ops = ops;
    reactor->clock = resolved.clock;
    ferry_list_init(&reactor->put_off);
    reactor->now_ns = ferry_now_ns(reactor->clock);

    enum ferry_status status = ferry_reactor_reserve_timers(reactor, TIMERS_DEFAULT);
    if (status == FERRY_OK)
        status = ops->open(reactor, &resolved);
    if (status != FERRY_OK) {
        ferry_reactor_close(reactor);
        return status;
    }
    *reactor_out = reactor;
    return FERRY_OK;
}

static enum ferry_status open_uring(const struct ferry_reactor_options *options,
                                    struct ferry_reactor **reactor_out)
{
#ifdef FERRY_HAVE_URING
    return ferry_reactor_open_with(&ferry_reactor_uring, options, reactor_out);
#else
    (void)options;
    (void)reactor_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED,
                      "reactor: this build has no io_uring (needs liburing)");
#endif
}

enum ferry_status ferry_reactor_open(const struct ferry_reactor_options *options,
                                     struct ferry_reactor **reactor_out)
{
    if (options->kind == FERRY_REACTOR_EPOLL)
        return ferry_reactor_open_with(&ferry_reactor_epoll, options, reactor_out);
    if (options->kind == FERRY_REACTOR_URING)
        return open_uring(options, reactor_out);
    if (options->kind != FERRY_REACTOR_AUTO)
        return ferry_fail(FERRY_ERR_INVALID, "reactor: unknown kind %d", (int)options->kind);

    if (open_uring(options, reactor_out) == FERRY_OK) {
        ferry_info("reactor", "chose uring: io_uring works here");
        return FERRY_OK;
    }
    /* Whatever the reason, epoll may still work; if it does not either, its own text is the answer.
     */
    char reason[FERRY_ERROR_TEXT_SIZE];
    snprintf(reason, sizeof(reason), "%s", ferry_last_error_text());
    enum ferry_status status = ferry_reactor_open_with(&ferry_reactor_epoll, options, reactor_out);
    if (status == FERRY_OK)
        ferry_info("reactor", "chose epoll: %s", reason);
    return status;
}

void ferry_reactor_close(struct ferry_reactor *reactor)
{
    if (reactor == NULL)
        return;
    FERRY_ASSERT(reactor->inflight == 0);
    for (uint32_t i = 0; i < reactor->heap_len; i++)
        reactor->heap[i]->slot = 0;
    reactor->ops->close(reactor);
    free(reactor->heap);
    free(reactor);
}

const char *ferry_reactor_name(const struct ferry_reactor *reactor)
{
    return reactor->ops->name;
}

enum ferry_status ferry_reactor_attach(struct ferry_reactor *reactor, struct ferry_io *io, int fd)
{
    FERRY_ASSERT(fd >= 0);
    FERRY_ASSERT((io->flags & FERRY_IO_ATTACHED) == 0);

    io->fd = fd;
    io->flags = 0;
    io->rx = NULL;
    io->tx = NULL;
    io->tls = NULL;
    ferry_list_init(&io->link);
    enum ferry_status status = reactor->ops->attach(reactor, io);
    if (status != FERRY_OK) {
        io->fd = -1;
        return status;
    }
    io->flags |= FERRY_IO_ATTACHED;
    return FERRY_OK;
}

void ferry_reactor_detach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    FERRY_ASSERT((io->flags & FERRY_IO_ATTACHED) != 0);
    FERRY_ASSERT(io->rx == NULL);
    FERRY_ASSERT(io->tx == NULL);

    if (io->tls != NULL)
        ferry_tls_detach(io);
    reactor->ops->detach(reactor, io);
    io->flags = 0;
    io->fd = -1;
}

bool ferry_op_inflight(const struct ferry_op *op)
{
    return op->state != 0;
}

/* True if the op is a caller's and something stands between it and the implementation. */
static bool through_tls(const struct ferry_op *op)
{
    if (op->kind == FERRY_OP_HANDSHAKE)
        return true;
    if (op->kind == FERRY_OP_READ || op->kind == FERRY_OP_WRITE ||
        FERRY_LIKELY(op->io->tls == NULL))
        return false;
    return ferry_tls_slot(op->io->tls, op) != NULL;
}

/* The slot of the op's direction; NULL for file operations, which have none. */
static struct ferry_op **slot_of(const struct ferry_op *op)
{
    if (through_tls(op) && op->io->tls != NULL)
        return ferry_tls_slot(op->io->tls, op);
    switch (op->kind) {
    case FERRY_OP_ACCEPT:
    case FERRY_OP_RECV:
    case FERRY_OP_RECVV:
        return &op->io->rx;
    case FERRY_OP_CONNECT:
    case FERRY_OP_SEND:
    case FERRY_OP_SENDV:
    case FERRY_OP_HANDSHAKE:
        return &op->io->tx;
    default:
        return NULL;
    }
}

static void check_request(const struct ferry_op *op)
{
    FERRY_ASSERT((unsigned)op->kind < FERRY_OP_KIND_COUNT);
    FERRY_ASSERT(op->done != NULL);
    switch (op->kind) {
    case FERRY_OP_CONNECT:
        FERRY_ASSERT(op->addr != NULL && op->addr_len > 0);
        break;
    case FERRY_OP_RECVV:
        FERRY_DASSERT(op->min_bytes <= ferry_iov_bytes(op->iov, op->iov_count));
        /* fall through */
    case FERRY_OP_SENDV:
        FERRY_ASSERT(op->iov != NULL);
        FERRY_ASSERT(op->iov_count > 0 && op->iov_count <= FERRY_IOV_MAX);
        break;
    case FERRY_OP_RECV:
        FERRY_ASSERT(op->min_bytes <= op->len);
        /* fall through */
    case FERRY_OP_SEND:
    case FERRY_OP_READ:
    case FERRY_OP_WRITE:
    case FERRY_OP_HANDSHAKE:
        FERRY_ASSERT(op->buf != NULL && op->len > 0);
        break;
    default:
        break;
    }
}

void ferry_reactor_submit(struct ferry_reactor *reactor, struct ferry_op *op)
{
    check_request(op);
    FERRY_ASSERT(op->state == 0);

    struct ferry_op **slot = slot_of(op);
    if (slot != NULL) {
        FERRY_ASSERT((op->io->flags & FERRY_IO_ATTACHED) != 0);
        FERRY_ASSERT(*slot == NULL);
        *slot = op;
    } else {
        FERRY_ASSERT(op->fd >= 0);
    }
    op->state = FERRY_OP_INFLIGHT;
    op->progress = 0;
    ferry_list_init(&op->link);
    reactor->inflight++;
    if (FERRY_UNLIKELY(through_tls(op)))
        ferry_tls_begin(reactor, op);
    else
        reactor->ops->submit(reactor, op);
    FERRY_ASSERT(op->state != 0); /* done() inside submit is a broken implementation */
}

void ferry_reactor_cancel(struct ferry_reactor *reactor, struct ferry_op *op)
{
    if (op->state == 0)
        return;
    if (FERRY_UNLIKELY(through_tls(op) && op->io->tls != NULL))
        ferry_tls_cancel(reactor, op);
    else if (op->kind != FERRY_OP_HANDSHAKE)
        reactor->ops->cancel(reactor, op);
    FERRY_ASSERT(op->state != 0);
}

void ferry_reactor_complete(struct ferry_reactor *reactor, struct ferry_op *op, int64_t result)
{
    FERRY_ASSERT(op->state != 0);
    FERRY_ASSERT(reactor->inflight > 0);
    FERRY_ASSERT(result != -EAGAIN);
    FERRY_DASSERT(ferry_list_empty(&op->link));

    struct ferry_op **slot = slot_of(op);
    if (slot != NULL) {
        FERRY_ASSERT(*slot == op);
        *slot = NULL;
    }
    if (op->kind != FERRY_OP_ACCEPT && op->kind != FERRY_OP_SENDV && op->kind != FERRY_OP_RECVV &&
        result > 0)
        FERRY_ASSERT((uint64_t)result <= op->len || op->kind == FERRY_OP_CONNECT);
    op->state = 0;
    reactor->inflight--;
    op->done(op, result);
}

static void heap_put(struct ferry_reactor *reactor, uint32_t index, struct ferry_timer *timer)
{
    reactor->heap[index] = timer;
    timer->slot = index + 1;
}

static void heap_up(struct ferry_reactor *reactor, uint32_t index)
{
    struct ferry_timer *timer = reactor->heap[index];

    while (index > 0) {
        uint32_t parent = (index - 1) / 2;

        if (reactor->heap[parent]->deadline_ns <= timer->deadline_ns)
            break;
        heap_put(reactor, index, reactor->heap[parent]);
        index = parent;
    }
    heap_put(reactor, index, timer);
}

static void heap_down(struct ferry_reactor *reactor, uint32_t index)
{
    struct ferry_timer *timer = reactor->heap[index];

    for (;;) {
        uint32_t child = 2 * index + 1;

        if (child >= reactor->heap_len)
            break;
        if (child + 1 < reactor->heap_len &&
            reactor->heap[child + 1]->deadline_ns < reactor->heap[child]->deadline_ns)
            child++;
        if (timer->deadline_ns <= reactor->heap[child]->deadline_ns)
            break;
        heap_put(reactor, index, reactor->heap[child]);
        index = child;
    }
    heap_put(reactor, index, timer);
}

enum ferry_status ferry_reactor_reserve_timers(struct ferry_reactor *reactor, uint32_t count)
{
    if (count <= reactor->heap_cap)
        return FERRY_OK;
    if (count > TIMERS_MAX)
        return FERRY_ERR_NO_MEMORY;

    uint32_t cap = reactor->heap_cap == 0 ? TIMERS_DEFAULT : reactor->heap_cap;
    while (cap < count)
        cap *= 2;
    size_t bytes;
    if (!ferry_mul_size(cap, sizeof(*reactor->heap), &bytes))
        return FERRY_ERR_NO_MEMORY;
    struct ferry_timer **heap = realloc(reactor->heap, bytes);
    if (heap == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "reactor: no memory for %u timers", cap);
    reactor->heap = heap;
    reactor->heap_cap = cap;
    return FERRY_OK;
}

enum ferry_status ferry_reactor_arm(struct ferry_reactor *reactor, struct ferry_timer *timer,
                                    uint64_t deadline_ns)
{
    FERRY_ASSERT(timer->fire != NULL);

    if (timer->slot != 0) {
        uint32_t index = timer->slot - 1;

        FERRY_ASSERT(index < reactor->heap_len && reactor->heap[index] == timer);
        timer->deadline_ns = deadline_ns;
        heap_up(reactor, index);
        heap_down(reactor, timer->slot - 1);
        return FERRY_OK;
    }
    enum ferry_status status = ferry_reactor_reserve_timers(reactor, reactor->heap_len + 1);
    if (status != FERRY_OK)
        return status;
    timer->deadline_ns = deadline_ns;
    heap_put(reactor, reactor->heap_len++, timer);
    heap_up(reactor, timer->slot - 1);
    return FERRY_OK;
}

void ferry_reactor_disarm(struct ferry_reactor *reactor, struct ferry_timer *timer)
{
    if (timer->slot == 0)
        return;

    uint32_t index = timer->slot - 1;
    FERRY_ASSERT(index < reactor->heap_len && reactor->heap[index] == timer);
    struct ferry_timer *last = reactor->heap[--reactor->heap_len];
    timer->slot = 0;
    if (last != timer) {
        heap_put(reactor, index, last);
        heap_up(reactor, index);
        heap_down(reactor, last->slot - 1);
    }
}

bool ferry_timer_armed(const struct ferry_timer *timer)
{
    return timer->slot != 0;
}

/*
 * At most as many as are armed now: a callback that arms a timer for a moment already past gets it
 * in the next turn, not in an endless loop in this one.
 */
static uint32_t fire_due(struct ferry_reactor *reactor)
{
    uint32_t fired = 0;
    uint32_t fired_max = reactor->heap_len;

    while (fired < fired_max && reactor->heap_len > 0) {
        struct ferry_timer *timer = reactor->heap[0];

        if (timer->deadline_ns > reactor->now_ns)
            break;
        ferry_reactor_disarm(reactor, timer);
        fired++;
        timer->fire(timer);
    }
    return fired;
}

/* As many as there are now: what is put off again meanwhile is the next turn's. */
static uint32_t resume_put_off(struct ferry_reactor *reactor)
{
    uint32_t resumed = 0;
    struct ferry_list due;
    struct ferry_list *link;

    if (FERRY_LIKELY(ferry_list_empty(&reactor->put_off)))
        return 0;
    ferry_list_init(&due);
    while ((link = ferry_list_pop_front(&reactor->put_off)) != NULL)
        ferry_list_push_back(&due, link);
    while ((link = ferry_list_pop_front(&due)) != NULL) {
        ferry_tls_resume(reactor, FERRY_CONTAINER_OF(link, struct ferry_op, link));
        resumed++;
    }
    return resumed;
}

bool ferry_reactor_sleep_begin(struct ferry_reactor *reactor)
{
    return reactor->sleep.begin == NULL || reactor->sleep.begin(reactor->sleep.arg);
}

void ferry_reactor_sleep_end(struct ferry_reactor *reactor)
{
    if (reactor->sleep.end != NULL)
        reactor->sleep.end(reactor->sleep.arg);
    reactor->now_ns = ferry_now_ns(reactor->clock);
}

uint32_t ferry_reactor_turn(struct ferry_reactor *reactor, uint64_t until_ns)
{
    reactor->now_ns = ferry_now_ns(reactor->clock);
    uint32_t delivered = fire_due(reactor);

    if (delivered > 0 || until_ns <= reactor->now_ns || !ferry_list_empty(&reactor->put_off))
        until_ns = 0;
    else if (reactor->heap_len > 0 && reactor->heap[0]->deadline_ns < until_ns)
        until_ns = reactor->heap[0]->deadline_ns;
    delivered += reactor->ops->turn(reactor, until_ns);
    delivered += resume_put_off(reactor);
    return delivered + fire_due(reactor);
}

void ferry_reactor_wake(struct ferry_reactor *reactor)
{
    reactor->ops->wake(reactor);
}

bool ferry_reactor_prepare_lend(struct ferry_reactor *reactor, bool lend)
{
    if (reactor->ops->prepare_lend == NULL)
        return true;
    bool ready = reactor->ops->prepare_lend(reactor, lend);
    FERRY_ASSERT(lend || ready);
    return ready;
}

bool ferry_reactor_has_work(const struct ferry_reactor *reactor)
{
    return !ferry_list_empty(&reactor->put_off) ||
           (reactor->ops->has_work != NULL && reactor->ops->has_work(reactor));
}

bool ferry_reactor_needs_home(const struct ferry_reactor *reactor)
{
    return reactor->ops->needs_home != NULL && reactor->ops->needs_home(reactor);
}
