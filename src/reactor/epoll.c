/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor on epoll: edge-triggered, what the kernel said is remembered per socket, and the call
 * itself is made when it can do something. File operations go to a few helper threads, since epoll
 * cannot wait for a disk.
 *
 * Where an op is: READY (its side of the socket may work: tried in the next turn), WAITING (the
 * kernel had nothing; an event moves it to READY), FINISHED (its result is known and not
 * delivered), FILE_QUEUED and FILE_RUNNING (for a helper thread).
 *
 * Threads: the holder of the baton; helper threads only touch their own job and `landed`. Nothing
 * is bound to a thread, so the reactor may be lent at any moment. Must not run done() outside
 * turn().
 */
#include "reactor/reactor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/inbox.h"
#include "offload/offload.h"
#include "reactor/direct.h"

#define EVENTS_MAX       128
#define FILE_JOBS_MAX    32
#define FILE_THREADS_MAX 4
/* Turns with deliveries that may pass before the kernel is asked for news of the other sockets. */
#define TURNS_UNPOLLED_MAX 4

#define PLACE(n) (uint8_t)(FERRY_OP_INFLIGHT | (n) << 1)
enum place {
    READY = PLACE(1),
    WAITING = PLACE(2),
    FINISHED = PLACE(3),
    FILE_QUEUED = PLACE(4),
    FILE_RUNNING = PLACE(5),
};

/* Bits of ferry_io.flags. */
enum {
    RX_READY = 1u << 0,
    TX_READY = 1u << 1,
    /*
     * The peer has closed its direction. The edge that says so may have come together with the last
     * data, and no other will come, so a short receive is no proof that nothing is left.
     */
    RX_ENDING = 1u << 2,
};

/* One file operation on its way through a helper thread. */
struct file_job {
    struct ferry_offload_job job;
    struct ferry_inbox_node landed_node;
    struct epoll_impl *impl;
    struct ferry_op *op;
    int64_t result;
    bool canceled; /* driver only */
    struct file_job *next_free;
};

struct epoll_impl {
    /* immutable after open */
    int epoll_fd;
    int wake_fd;
    /* holder of the baton only */
    bool coarse_timeout; /* no epoll_pwait2 here: milliseconds */
    uint32_t turns_unpolled;
    struct ferry_list ready;
    struct ferry_list finished;
    struct ferry_list file_queue;
    struct ferry_offload *offload; /* from the first file operation on */
    struct file_job *free_jobs;
    struct file_job jobs[FILE_JOBS_MAX];
    /* any thread, atomic */
    struct ferry_inbox landed; /* file jobs that are done */
};

static void epoll_reactor_close(struct ferry_reactor *reactor)
{
    struct epoll_impl *impl = reactor->impl;

    if (impl == NULL)
        return;
    /* Joins the helpers first: one may still be about to ring the wake-up descriptor. */
    ferry_offload_close(impl->offload);
    if (impl->wake_fd >= 0)
        close(impl->wake_fd);
    if (impl->epoll_fd >= 0)
        close(impl->epoll_fd);
    free(impl);
    reactor->impl = NULL;
}

static enum ferry_status epoll_reactor_open(struct ferry_reactor *reactor,
                                            const struct ferry_reactor_options *options)
{
    struct epoll_impl *impl = calloc(1, sizeof(*impl));

    if (impl == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "epoll reactor: out of memory");
    reactor->impl = impl;
    ferry_list_init(&impl->ready);
    ferry_list_init(&impl->finished);
    ferry_list_init(&impl->file_queue);
    ferry_inbox_init(&impl->landed);
    for (uint32_t i = 0; i < FILE_JOBS_MAX; i++) {
        impl->jobs[i].impl = impl;
        impl->jobs[i].next_free = impl->free_jobs;
        impl->free_jobs = &impl->jobs[i];
    }
    impl->wake_fd = -1;
    impl->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (impl->epoll_fd < 0)
        return ferry_fail_errno(errno, "epoll reactor: epoll_create1");
    int wake_fd = ferry_wakefd_open();
    if (wake_fd < 0)
        return ferry_fail_errno(-wake_fd, "epoll reactor: eventfd");
    impl->wake_fd = wake_fd;

    /* Edge-triggered, so every write to it is an event and nobody ever has to read it. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
    if (epoll_ctl(impl->epoll_fd, EPOLL_CTL_ADD, impl->wake_fd, &event) != 0)
        return ferry_fail_errno(errno, "epoll reactor: epoll_ctl of the wake-up descriptor");
    return FERRY_OK;
}

static enum ferry_status epoll_attach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    struct epoll_impl *impl = reactor->impl;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = io};

    int err = ferry_fd_nonblocking(io->fd);
    if (err < 0)
        return ferry_fail_errno(-err, "epoll reactor: descriptor %d", io->fd);
    if (epoll_ctl(impl->epoll_fd, EPOLL_CTL_ADD, io->fd, &event) != 0)
        return ferry_fail_errno(errno, "epoll reactor: epoll_ctl of descriptor %d", io->fd);
    /* Not known yet; the first try finds out, which is cheaper than a round for the first event. */
    io->flags |= RX_READY | TX_READY;
    return FERRY_OK;
}

static void epoll_detach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    struct epoll_impl *impl = reactor->impl;

    /*
     * Explicitly, because closing the descriptor is not enough when a forked child still has it. No
     * event of @io is kept anywhere: a turn turns all its events into flags before it calls
     * anybody.
     */
    int rc = epoll_ctl(impl->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
    FERRY_ASSERT(rc == 0); /* the descriptor was closed before it was detached */
}

static uint32_t side_of(const struct ferry_op *op)
{
    switch (op->kind) {
    case FERRY_OP_ACCEPT:
    case FERRY_OP_RECV:
    case FERRY_OP_RECVV:
        return RX_READY;
    default:
        return TX_READY;
    }
}

static void make_ready(struct epoll_impl *impl, struct ferry_op *op)
{
    op->state = READY;
    ferry_list_push_back(&impl->ready, &op->link);
}

static void make_finished(struct epoll_impl *impl, struct ferry_op *op, int64_t result)
{
    op->state = FINISHED;
    op->progress = (uint64_t)result;
    ferry_list_push_back(&impl->finished, &op->link);
}

static bool is_file_op(const struct ferry_op *op)
{
    return op->kind == FERRY_OP_READ || op->kind == FERRY_OP_WRITE;
}

static void epoll_submit(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct epoll_impl *impl = reactor->impl;

    if (is_file_op(op)) {
        op->state = FILE_QUEUED;
        ferry_list_push_back(&impl->file_queue, &op->link);
    } else if (op->kind == FERRY_OP_CONNECT || (op->io->flags & side_of(op)) != 0) {
        make_ready(impl, op);
    } else {
        op->state = WAITING;
    }
}

static void epoll_cancel(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct epoll_impl *impl = reactor->impl;

    switch ((enum place)op->state) {
    case FINISHED:
        return;
    case FILE_RUNNING: {
        struct file_job *job = NULL;

        for (uint32_t i = 0; i < FILE_JOBS_MAX && job == NULL; i++)
            if (impl->jobs[i].op == op)
                job = &impl->jobs[i];
        FERRY_ASSERT(job != NULL);
        /* A call that has begun cannot be stopped: it completes with what it did. */
        if (ferry_offload_cancel(impl->offload, &job->job)) {
            job->op = NULL;
            job->next_free = impl->free_jobs;
            impl->free_jobs = job;
            make_finished(impl, op, -ECANCELED);
        }
        return;
    }
    case READY:
    case WAITING:
    case FILE_QUEUED:
        ferry_list_remove(&op->link);
        make_finished(impl, op, op->progress > 0 ? (int64_t)op->progress : -ECANCELED);
        return;
    }
}

static void run_file_call(struct ferry_offload_job *offload_job)
{
    struct file_job *job = FERRY_CONTAINER_OF(offload_job, struct file_job, job);
    const struct ferry_op *op = job->op;
    size_t len = op->len < FERRY_STEP_BYTES ? (size_t)op->len : FERRY_STEP_BYTES;
    ssize_t moved;

    do {
        if (op->kind == FERRY_OP_READ)
            moved = pread(op->fd, op->buf, len, (off_t)op->offset);
        else
            moved = pwrite(op->fd, op->buf, len, (off_t)op->offset);
    } while (moved < 0 && errno == EINTR);
    /* A non-blocking pipe or device; nobody could wait for it here. */
    if (moved < 0)
        job->result = errno == EAGAIN ? -EINVAL : -errno;
    else
        job->result = moved;
}

static void land_file_call(struct ferry_offload_job *offload_job)
{
    struct file_job *job = FERRY_CONTAINER_OF(offload_job, struct file_job, job);
    struct epoll_impl *impl = job->impl;

    ferry_inbox_push(&impl->landed, &job->landed_node);
    ferry_wakefd_ring(impl->wake_fd);
}

static void start_file_ops(struct epoll_impl *impl)
{
    while (impl->free_jobs != NULL) {
        struct ferry_list *link = ferry_list_pop_front(&impl->file_queue);

        if (link == NULL)
            return;
        struct ferry_op *op = FERRY_CONTAINER_OF(link, struct ferry_op, link);
        struct file_job *job = impl->free_jobs;
        enum ferry_status status = FERRY_OK;

        if (impl->offload == NULL)
            status = ferry_offload_open("ferry-file", FILE_THREADS_MAX, &impl->offload);
        if (status == FERRY_OK) {
            job->job.run = run_file_call;
            job->job.done = land_file_call;
            job->op = op;
            op->state = FILE_RUNNING;
            status = ferry_offload_submit(impl->offload, &job->job);
        }
        if (status == FERRY_OK) {
            impl->free_jobs = job->next_free;
        } else {
            job->op = NULL;
            make_finished(impl, op, -ENOMEM);
        }
    }
}

static void collect_file_ops(struct epoll_impl *impl)
{
    if (ferry_inbox_empty(&impl->landed))
        return;

    struct ferry_inbox_node *node = ferry_inbox_take(&impl->landed);
    while (node != NULL) {
        struct file_job *job = FERRY_CONTAINER_OF(node, struct file_job, landed_node);
        struct ferry_op *op = job->op;

        node = node->next;
        job->op = NULL;
        job->next_free = impl->free_jobs;
        impl->free_jobs = job;
        make_finished(impl, op, job->result);
    }
}

static uint32_t deliver_finished(struct ferry_reactor *reactor, struct epoll_impl *impl)
{
    struct ferry_list batch;
    uint32_t delivered = 0;

    ferry_list_init(&batch);
    ferry_list_splice(&batch, &impl->finished);
    for (struct ferry_list *link; (link = ferry_list_pop_front(&batch)) != NULL;) {
        struct ferry_op *op = FERRY_CONTAINER_OF(link, struct ferry_op, link);

        ferry_reactor_complete(reactor, op, (int64_t)op->progress);
        delivered++;
    }
    return delivered;
}

/* One try of a ready op; true if it completed (its memory may be gone then). */
static bool try_op(struct ferry_reactor *reactor, struct epoll_impl *impl, struct ferry_op *op)
{
    struct ferry_io *io = op->io;
    uint32_t side = side_of(op);
    struct ferry_attempt attempt = ferry_direct_try(op);

    if (attempt.blocked)
        io->flags &= side == RX_READY ? ~(uint32_t)(RX_READY | RX_ENDING) : ~(uint32_t)TX_READY;
    else if (attempt.ran_dry && !(side == RX_READY && (io->flags & RX_ENDING) != 0))
        io->flags &= ~side;
    else if (attempt.done && op->kind == FERRY_OP_CONNECT)
        io->flags |= RX_READY | TX_READY;

    if (attempt.done) {
        ferry_reactor_complete(reactor, op, attempt.result);
        return true;
    }
    if ((io->flags & side) != 0)
        make_ready(impl, op);
    else
        op->state = WAITING;
    return false;
}

/* One pass: ops that become ready meanwhile have their try in the next turn. */
static uint32_t run_ready(struct ferry_reactor *reactor, struct epoll_impl *impl)
{
    struct ferry_list batch;
    uint32_t delivered = 0;

    ferry_list_init(&batch);
    ferry_list_splice(&batch, &impl->ready);
    for (struct ferry_list *link; (link = ferry_list_pop_front(&batch)) != NULL;) {
        struct ferry_op *op = FERRY_CONTAINER_OF(link, struct ferry_op, link);

        if (try_op(reactor, impl, op))
            delivered++;
    }
    return delivered;
}

static void note_event(struct epoll_impl *impl, struct ferry_io *io, uint32_t events)
{
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0)
        io->flags |= RX_READY;
    if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0)
        io->flags |= TX_READY;
    /* Not EPOLLHUP: a socket that was never connected reports it too. */
    if ((events & EPOLLRDHUP) != 0)
        io->flags |= RX_ENDING;
    if ((io->flags & RX_READY) != 0 && io->rx != NULL && io->rx->state == WAITING)
        make_ready(impl, io->rx);
    if ((io->flags & TX_READY) != 0 && io->tx != NULL && io->tx->state == WAITING)
        make_ready(impl, io->tx);
}

static int wait_events(struct epoll_impl *impl, struct epoll_event *events, uint64_t wait_ns)
{
    if (!impl->coarse_timeout) {
        struct timespec timeout = {.tv_sec = (time_t)(wait_ns / FERRY_NS_PER_S),
                                   .tv_nsec = (long)(wait_ns % FERRY_NS_PER_S)};
        int n = epoll_pwait2(impl->epoll_fd, events, EVENTS_MAX,
                             wait_ns == FERRY_NEVER_NS ? NULL : &timeout, NULL);

        /* Linux before 5.11, or a filter that does not know the call. */
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n;
        impl->coarse_timeout = true;
    }
    uint64_t wait_ms = wait_ns / FERRY_NS_PER_MS + (wait_ns % FERRY_NS_PER_MS != 0);
    int timeout_ms = wait_ns == FERRY_NEVER_NS ? -1 : wait_ms > 60000 ? 60000 : (int)wait_ms;
    return epoll_wait(impl->epoll_fd, events, EVENTS_MAX, timeout_ms);
}

/* Ask the kernel, sleeping until @until_ns if allowed; events become flags and ready ops only. */
static void poll_kernel(struct ferry_reactor *reactor, struct epoll_impl *impl, uint64_t until_ns)
{
    struct epoll_event events[EVENTS_MAX];
    bool sleep = until_ns != 0 && ferry_reactor_sleep_begin(reactor);
    uint64_t wait_ns = 0;
    int n;

    impl->turns_unpolled = 0;
    if (sleep && until_ns == FERRY_NEVER_NS)
        wait_ns = FERRY_NEVER_NS;
    else if (sleep && until_ns > reactor->now_ns)
        wait_ns = until_ns - reactor->now_ns;
    if (wait_ns == 0)
        n = epoll_wait(impl->epoll_fd, events, EVENTS_MAX, 0);
    else
        n = wait_events(impl, events, wait_ns);
    FERRY_ASSERT(n >= 0 || errno == EINTR);
    if (sleep)
        ferry_reactor_sleep_end(reactor);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr != NULL)
            note_event(impl, events[i].data.ptr, events[i].events);
}

static uint32_t epoll_turn(struct ferry_reactor *reactor, uint64_t until_ns)
{
    struct epoll_impl *impl = reactor->impl;

    start_file_ops(impl);
    collect_file_ops(impl);
    uint32_t delivered = deliver_finished(reactor, impl);
    delivered += run_ready(reactor, impl);
    bool idle = delivered == 0 && ferry_list_empty(&impl->ready);
    if (!idle && ++impl->turns_unpolled < TURNS_UNPOLLED_MAX)
        return delivered;

    poll_kernel(reactor, impl, idle ? until_ns : 0);
    if (!idle)
        return delivered;
    collect_file_ops(impl);
    return deliver_finished(reactor, impl) + run_ready(reactor, impl);
}

static void epoll_wake(struct ferry_reactor *reactor)
{
    struct epoll_impl *impl = reactor->impl;

    ferry_wakefd_ring(impl->wake_fd);
}

static bool epoll_has_work(const struct ferry_reactor *reactor)
{
    const struct epoll_impl *impl = reactor->impl;

    return !ferry_list_empty(&impl->ready) || !ferry_list_empty(&impl->finished) ||
           (!ferry_list_empty(&impl->file_queue) && impl->free_jobs != NULL);
}

const struct ferry_reactor_ops ferry_reactor_epoll = {
    .name = "epoll",
    .open = epoll_reactor_open,
    .close = epoll_reactor_close,
    .attach = epoll_attach,
    .detach = epoll_detach,
    .submit = epoll_submit,
    .cancel = epoll_cancel,
    .turn = epoll_turn,
    .wake = epoll_wake,
    .has_work = epoll_has_work,
};
