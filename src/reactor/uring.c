/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor on io_uring.
 *
 * Where an op is: START (to be handed to the ring, or tried, in the next turn), ARMED (the kernel
 * has it, or a queue entry describes it), PARKED (lent, and the kernel had nothing for it),
 * HOMEBOUND (lent, and only the ring can do it), FINISHED (its result is known and not delivered).
 *
 * Threads: the ring is set up for one issuer, and requests are bound to the thread that submits
 * them: their task work interrupts it, and they are cancelled when it exits. So only the home
 * thread ever enters the ring. A borrower of the baton works without it: prepare_lend(true) takes
 * every request back from the kernel, and until prepare_lend(false) a turn makes plain non-blocking
 * calls and sleeps in ppoll(). Must not run done() outside turn(); reaping only moves ops between
 * lists.
 */
#include "reactor/reactor.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "reactor/direct.h"

#define CQ_FACTOR          4
#define ENTRIES_MIN        32 /* room for the cancels of a lend */
#define LEND_OPS_MAX       16 /* more than these are not taken back for one small transfer */
#define LENT_OPS_MAX       64 /* more than these and ppoll() is no good any more */
#define LEND_ROUNDS_MAX    64
#define SQE_ROUNDS_MAX     1000
#define TURNS_UNPOLLED_MAX 4
#define RING_LEN_MAX       (1u << 30) /* the length field of a queue entry has 32 bits */

/* The places, in bits 1 to 3 of ferry_op.state. */
#define PLACE(n)   (FERRY_OP_INFLIGHT | (n) << 1)
#define PLACE_MASK 0x0fu
enum place {
    START = PLACE(1),
    ARMED = PLACE(2),
    PARKED = PLACE(3),
    HOMEBOUND = PLACE(4),
    FINISHED = PLACE(5),
};

/* Further bits of ferry_op.state. */
enum {
    POLLING = 1u << 4,   /* the ring waits for readiness only; the call is made directly */
    CANCELING = 1u << 5, /* by the user; otherwise -ECANCELED means: submit it again */
};

/*
 * Bits of ferry_io.flags: the last call left nothing to take, or no room. Only a hint that saves a
 * call in vain: waiting is level-triggered here, so nothing is lost if it is out of date.
 */
enum {
    RX_DRY = 1u << 0,
    TX_DRY = 1u << 1,
};

/* What user_data says when it is not the address of an op. */
enum {
    TAG_WAKE = 1,
    TAG_CANCEL = 2,
    TAG_NOP = 3,
    TAG_MAX = 15,
};

struct uring_impl {
    /* immutable after open */
    pthread_t home;
    int wake_fd;
    bool ring_open;
    struct msghdr *msgs; /* one per queue entry; the kernel copies it at submission */

    /* holder of the baton only */
    struct io_uring ring; /* home thread only */
    bool lent;
    bool wake_armed;
    uint32_t turns_unflushed;
    uint32_t armed_count;
    uint32_t armed_file_count;
    uint32_t parked_count;
    struct ferry_list start;
    struct ferry_list armed;
    struct ferry_list parked;
    struct ferry_list homebound;
    struct ferry_list finished;
    struct pollfd pollfds[LENT_OPS_MAX + 1];
    struct ferry_op *polled[LENT_OPS_MAX];
};

static bool is_file_op(const struct ferry_op *op)
{
    return op->kind == FERRY_OP_READ || op->kind == FERRY_OP_WRITE;
}

static bool is_receiving(const struct ferry_op *op)
{
    return op->kind == FERRY_OP_RECV || op->kind == FERRY_OP_RECVV || op->kind == FERRY_OP_ACCEPT;
}

static uint32_t dry_bit(const struct ferry_op *op)
{
    return is_receiving(op) ? RX_DRY : TX_DRY;
}

static enum place place_of(const struct ferry_op *op)
{
    return (enum place)(op->state & PLACE_MASK);
}

static struct ferry_list *list_of(struct uring_impl *impl, enum place place)
{
    switch (place) {
    case START:
        return &impl->start;
    case ARMED:
        return &impl->armed;
    case PARKED:
        return &impl->parked;
    case HOMEBOUND:
        return &impl->homebound;
    case FINISHED:
        return &impl->finished;
    }
    FERRY_ASSERT(!"an op is in a known place");
    return NULL;
}

static void count_place(struct uring_impl *impl, const struct ferry_op *op, uint32_t by)
{
    if (place_of(op) == ARMED) {
        impl->armed_count += by;
        impl->armed_file_count += is_file_op(op) ? by : 0;
    } else if (place_of(op) == PARKED) {
        impl->parked_count += by;
    }
}

/* The only writer of an op's place after submit. */
static void move_op(struct uring_impl *impl, struct ferry_op *op, enum place place)
{
    count_place(impl, op, (uint32_t)-1);
    ferry_list_remove(&op->link);
    op->state = (uint8_t)((op->state & ~PLACE_MASK) | place);
    ferry_list_push_back(list_of(impl, place), &op->link);
    count_place(impl, op, 1);
}

static void finish_op(struct uring_impl *impl, struct ferry_op *op, int64_t result)
{
    op->progress = (uint64_t)result;
    move_op(impl, op, FINISHED);
}

static int64_t canceled_result(const struct ferry_op *op)
{
    return op->progress > 0 ? (int64_t)op->progress : -ECANCELED;
}

static void assert_home(const struct uring_impl *impl)
{
    FERRY_ASSERT(!impl->lent);
    FERRY_ASSERT(pthread_equal(impl->home, pthread_self()));
}

/* A request came back: what it means for its op. */
static void reap_op(struct uring_impl *impl, struct ferry_op *op, int32_t res, uint32_t flags)
{
    bool polled = (op->state & POLLING) != 0;
    bool canceling = (op->state & CANCELING) != 0;

    FERRY_ASSERT(place_of(op) == ARMED);
    op->state = (uint8_t)(op->state & ~(unsigned)POLLING);
    if (res == -EINTR || res == -ECANCELED || (res == -EAGAIN && !is_file_op(op))) {
        if (canceling) {
            finish_op(impl, op, canceled_result(op));
            return;
        }
        /* Old kernels pass EAGAIN of a non-blocking socket on; then readiness alone is waited for.
         */
        if (res == -EAGAIN)
            op->state |= POLLING;
        move_op(impl, op, START);
    } else if (polled) {
        op->io->flags &= ~dry_bit(op);
        if (canceling)
            finish_op(impl, op, canceled_result(op));
        else
            move_op(impl, op, START); /* an error shows in the call that is made now */
    } else if (op->kind == FERRY_OP_RECV && res >= 0) {
        if ((flags & IORING_CQE_F_SOCK_NONEMPTY) != 0)
            op->io->flags &= ~(uint32_t)RX_DRY;
        else
            op->io->flags |= RX_DRY;
        op->progress += (uint64_t)res;
        if (res == 0 || canceling || ferry_recv_satisfied(op))
            finish_op(impl, op, (int64_t)op->progress);
        else
            move_op(impl, op, START);
    } else {
        finish_op(impl, op, res == -EAGAIN ? -EINVAL : res);
    }
}

static void reap(struct uring_impl *impl)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned count = 0;

    io_uring_for_each_cqe(&impl->ring, head, cqe)
    {
        uint64_t data = cqe->user_data;

        count++;
        if (data == TAG_WAKE)
            impl->wake_armed = (cqe->flags & IORING_CQE_F_MORE) != 0;
        else if (data > TAG_MAX)
            reap_op(impl, (struct ferry_op *)(uintptr_t)data, cqe->res, cqe->flags);
    }
    io_uring_cq_advance(&impl->ring, count);
}

/* Never NULL: a full queue is submitted, and completions make room for that. */
static struct io_uring_sqe *take_sqe(struct uring_impl *impl)
{
    for (int i = 0; i < SQE_ROUNDS_MAX; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&impl->ring);

        if (sqe != NULL)
            return sqe;
        io_uring_submit_and_get_events(&impl->ring);
        reap(impl);
    }
    FERRY_ASSERT(!"the submission queue never got room");
    return NULL;
}

static void uring_close(struct ferry_reactor *reactor)
{
    struct uring_impl *impl = reactor->impl;

    if (impl == NULL)
        return;
    if (impl->ring_open)
        io_uring_queue_exit(&impl->ring);
    if (impl->wake_fd >= 0)
        close(impl->wake_fd);
    free(impl->msgs);
    free(impl);
    reactor->impl = NULL;
}

static enum ferry_status explain_setup(int err)
{
    switch (err) {
    case EPERM:
    case EACCES:
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "io_uring is forbidden here (EPERM): a container's seccomp filter or "
                          "kernel.io_uring_disabled");
    case ENOSYS:
        return ferry_fail(
            FERRY_ERR_UNSUPPORTED,
            "io_uring is not available (ENOSYS): the kernel or a seccomp filter lacks "
            "the call");
    case ENOMEM:
        return ferry_fail(FERRY_ERR_NO_MEMORY,
                          "io_uring has no memory for its rings (ENOMEM): raise the memory-lock "
                          "limit (ulimit -l) or the control group's");
    case EINVAL:
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "io_uring of this kernel is older than Linux 5.19");
    default:
        return ferry_fail_errno(err, "io_uring setup");
    }
}

static int setup_ring(struct uring_impl *impl, uint32_t entries)
{
    const uint32_t common = IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL |
                            IORING_SETUP_TASKRUN_FLAG;
    struct io_uring_params params = {
        .flags = common | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        .cq_entries = entries * CQ_FACTOR,
    };

    int rc = io_uring_queue_init_params(entries, &impl->ring, &params);
    if (rc == -EINVAL) {
        params = (struct io_uring_params){.flags = common | IORING_SETUP_COOP_TASKRUN,
                                          .cq_entries = entries * CQ_FACTOR};
        rc = io_uring_queue_init_params(entries, &impl->ring, &params);
    }
    impl->ring_open = rc == 0;
    return rc;
}

static enum ferry_status check_features(struct uring_impl *impl)
{
    static const int needed[] = {IORING_OP_SEND,        IORING_OP_RECV,  IORING_OP_SENDMSG,
                                 IORING_OP_READ,        IORING_OP_WRITE, IORING_OP_POLL_ADD,
                                 IORING_OP_ASYNC_CANCEL};
    const uint32_t features = IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE |
                              IORING_FEAT_FAST_POLL | IORING_FEAT_EXT_ARG;

    if ((impl->ring.features & features) != features)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "io_uring lacks features (has 0x%x, needs 0x%x)",
                          impl->ring.features, features);
    struct io_uring_probe *probe = io_uring_get_probe_ring(&impl->ring);
    if (probe == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "io_uring does not say what it can do");
    int missing = -1;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(needed); i++)
        if (!io_uring_opcode_supported(probe, needed[i]))
            missing = needed[i];
    io_uring_free_probe(probe);
    if (missing >= 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "io_uring lacks operation %d", missing);
    return FERRY_OK;
}

/* A filter may let the setup pass and forbid the rest, which must show now and not in a turn. */
static enum ferry_status check_round_trip(struct uring_impl *impl)
{
    struct __kernel_timespec limit = {.tv_sec = 1};
    struct io_uring_cqe *cqe = NULL;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&impl->ring);

    io_uring_prep_nop(sqe);
    sqe->user_data = TAG_NOP;
    int rc = io_uring_submit_and_wait_timeout(&impl->ring, &cqe, 1, &limit, NULL);
    if (rc < 0)
        return explain_setup(-rc);
    reap(impl);
    return FERRY_OK;
}

static enum ferry_status uring_open(struct ferry_reactor *reactor,
                                    const struct ferry_reactor_options *options)
{
    struct uring_impl *impl = calloc(1, sizeof(*impl));

    if (impl == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "uring reactor: out of memory");
    reactor->impl = impl;
    impl->wake_fd = -1;
    impl->home = pthread_self();
    ferry_list_init(&impl->start);
    ferry_list_init(&impl->armed);
    ferry_list_init(&impl->parked);
    ferry_list_init(&impl->homebound);
    ferry_list_init(&impl->finished);

    int rc = setup_ring(impl,
                        options->queue_depth > ENTRIES_MIN ? options->queue_depth : ENTRIES_MIN);
    if (rc != 0)
        return explain_setup(-rc);
    enum ferry_status status = check_features(impl);
    if (status == FERRY_OK)
        status = check_round_trip(impl);
    if (status != FERRY_OK)
        return status;
    impl->msgs = calloc(impl->ring.sq.ring_entries, sizeof(*impl->msgs));
    if (impl->msgs == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "uring reactor: out of memory");
    int wake_fd = ferry_wakefd_open();
    if (wake_fd < 0)
        return ferry_fail_errno(-wake_fd, "uring reactor: eventfd");
    impl->wake_fd = wake_fd;
    /* A child that forks has no business in the rings; and a registered ring is cheaper to enter.
     */
    io_uring_ring_dontfork(&impl->ring);
    io_uring_register_ring_fd(&impl->ring);
    return FERRY_OK;
}

static enum ferry_status uring_attach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    (void)reactor;
    int err = ferry_fd_nonblocking(io->fd);

    if (err < 0)
        return ferry_fail_errno(-err, "uring reactor: descriptor %d", io->fd);
    return FERRY_OK;
}

static void uring_detach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    /* The kernel holds a socket only through requests, and there are none. */
    (void)reactor;
    (void)io;
}

static void uring_submit(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct uring_impl *impl = reactor->impl;
    enum place place = START;

    if (impl->lent && is_file_op(op))
        place = HOMEBOUND;
    else if (impl->lent && op->kind != FERRY_OP_CONNECT && (op->io->flags & dry_bit(op)) != 0)
        place = PARKED;
    op->state = (uint8_t)place;
    ferry_list_push_back(list_of(impl, place), &op->link);
    count_place(impl, op, 1);
}

static void ask_cancel(struct uring_impl *impl, uint64_t user_data)
{
    struct io_uring_sqe *sqe = take_sqe(impl);

    io_uring_prep_cancel64(sqe, user_data, 0);
    sqe->user_data = TAG_CANCEL;
}

static void uring_cancel(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct uring_impl *impl = reactor->impl;

    if (place_of(op) == FINISHED || (op->state & CANCELING) != 0)
        return;
    if (place_of(op) != ARMED) {
        finish_op(impl, op, canceled_result(op));
        return;
    }
    assert_home(impl);
    op->state |= CANCELING;
    /*
     * If the op completes before the request is submitted and its memory is used for another op,
     * the request hits that one: it is then submitted again, like every op cancelled without being
     * asked.
     */
    ask_cancel(impl, (uintptr_t)op);
}

/*
 * Plain, without MSG_WAITALL: that one keeps the request in the kernel for many wake-ups, and a
 * request that was woken 128 times is handed to a kernel worker thread, which then blocks on the
 * socket.
 */
static void prep_recv(struct io_uring_sqe *sqe, struct ferry_op *op)
{
    uint64_t want = op->len - op->progress;

    if (want > RING_LEN_MAX)
        want = RING_LEN_MAX;
    io_uring_prep_recv(sqe, op->io->fd, (char *)op->buf + op->progress, (size_t)want, 0);
    if ((op->io->flags & RX_DRY) != 0)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

static void prep_send(struct uring_impl *impl, struct io_uring_sqe *sqe, struct ferry_op *op)
{
    if (op->kind == FERRY_OP_SEND) {
        uint64_t want = op->len < RING_LEN_MAX ? op->len : RING_LEN_MAX;

        io_uring_prep_send(sqe, op->io->fd, op->buf, (size_t)want, MSG_NOSIGNAL);
    } else {
        struct msghdr *msg = &impl->msgs[sqe - impl->ring.sq.sqes];

        *msg = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)op->iov,
                               .msg_iovlen = op->iov_count};
        io_uring_prep_sendmsg(sqe, op->io->fd, msg, MSG_NOSIGNAL);
    }
    if ((op->io->flags & TX_DRY) != 0)
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
}

/* What the ring only waits for, and a plain call then does. */
static bool waits_only(const struct ferry_op *op)
{
    /* A vectored receive would need its rest of the pieces described anew for each request. */
    return (op->state & POLLING) != 0 || op->kind == FERRY_OP_ACCEPT ||
           op->kind == FERRY_OP_CONNECT || op->kind == FERRY_OP_RECVV;
}

static void arm_op(struct uring_impl *impl, struct ferry_op *op)
{
    struct io_uring_sqe *sqe = take_sqe(impl);
    uint64_t len = op->len < RING_LEN_MAX ? op->len : RING_LEN_MAX;

    if (waits_only(op)) {
        op->state |= POLLING;
        io_uring_prep_poll_add(sqe, op->io->fd, is_receiving(op) ? POLLIN : POLLOUT);
    } else if (op->kind == FERRY_OP_RECV) {
        prep_recv(sqe, op);
    } else if (op->kind == FERRY_OP_READ) {
        io_uring_prep_read(sqe, op->fd, op->buf, (unsigned)len, op->offset);
    } else if (op->kind == FERRY_OP_WRITE) {
        io_uring_prep_write(sqe, op->fd, op->buf, (unsigned)len, op->offset);
    } else {
        prep_send(impl, sqe, op);
    }
    sqe->user_data = (uintptr_t)op;
    move_op(impl, op, ARMED);
}

/* One direct call; moves the op on unless the kernel had nothing. True if it moved. */
static bool try_directly(struct uring_impl *impl, struct ferry_op *op)
{
    struct ferry_attempt attempt = ferry_direct_try(op);

    if (attempt.blocked || attempt.ran_dry)
        op->io->flags |= dry_bit(op);
    else
        op->io->flags &= ~dry_bit(op);
    if (attempt.done) {
        finish_op(impl, op, attempt.result);
        return true;
    }
    if (attempt.blocked || attempt.ran_dry)
        return false;
    move_op(impl, op, START); /* there is more: the next pass */
    return true;
}

/*
 * A plain call first, unless it is known to be in vain: that is faster than a request whenever the
 * socket is ready. Figures in docs/design/reactor.md.
 */
static bool direct_first(const struct ferry_op *op)
{
    if (op->kind == FERRY_OP_ACCEPT || op->kind == FERRY_OP_CONNECT)
        return true;
    return !is_file_op(op) && (op->io->flags & dry_bit(op)) == 0;
}

/* One pass over the ops that are to be started. */
static void start_ops(struct uring_impl *impl)
{
    struct ferry_list batch;

    ferry_list_init(&batch);
    ferry_list_splice(&batch, &impl->start);
    while (!ferry_list_empty(&batch)) {
        struct ferry_op *op = FERRY_CONTAINER_OF(batch.next, struct ferry_op, link);

        if ((op->state & POLLING) == 0 && (impl->lent || direct_first(op)) &&
            try_directly(impl, op))
            continue;
        if (impl->lent)
            move_op(impl, op, PARKED);
        else
            arm_op(impl, op);
    }
}

static uint32_t deliver_finished(struct ferry_reactor *reactor, struct uring_impl *impl)
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

static void arm_wake(struct uring_impl *impl)
{
    if (impl->wake_armed)
        return;
    /* Multishot: every write to the descriptor is an event, and nobody has to read it. */
    struct io_uring_sqe *sqe = take_sqe(impl);
    io_uring_prep_poll_multishot(sqe, impl->wake_fd, POLLIN);
    sqe->user_data = TAG_WAKE;
    impl->wake_armed = true;
}

/* Hand over what is queued, fetch what is there, without sleeping. */
static void flush_ring(struct uring_impl *impl)
{
    unsigned news = __atomic_load_n(impl->ring.sq.kflags, __ATOMIC_ACQUIRE) &
                    (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW);

    impl->turns_unflushed = 0;
    if (io_uring_sq_ready(&impl->ring) > 0 || news != 0)
        io_uring_submit_and_get_events(&impl->ring);
    reap(impl);
}

static void sleep_in_ring(struct ferry_reactor *reactor, struct uring_impl *impl, uint64_t until_ns)
{
    uint64_t wait_ns = until_ns > reactor->now_ns ? until_ns - reactor->now_ns : 0;
    struct __kernel_timespec limit = {.tv_sec = (int64_t)(wait_ns / FERRY_NS_PER_S),
                                      .tv_nsec = (long long)(wait_ns % FERRY_NS_PER_S)};
    struct io_uring_cqe *cqe;

    arm_wake(impl);
    if (!ferry_reactor_sleep_begin(reactor)) {
        flush_ring(impl);
        return;
    }
    int rc = io_uring_submit_and_wait_timeout(&impl->ring, &cqe, 1,
                                              until_ns == FERRY_NEVER_NS ? NULL : &limit, NULL);
    /* Nothing came, a signal did, or what has completed must be taken first; else it would spin. */
    FERRY_ASSERT(rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EBUSY || rc == -EAGAIN ||
                 rc == -ENOMEM);
    ferry_reactor_sleep_end(reactor);
    impl->turns_unflushed = 0;
    reap(impl);
}

static uint32_t turn_at_home(struct ferry_reactor *reactor, struct uring_impl *impl,
                             uint64_t until_ns)
{
    assert_home(impl);
    start_ops(impl);
    uint32_t delivered = deliver_finished(reactor, impl);
    if (delivered > 0 && ++impl->turns_unflushed < TURNS_UNPOLLED_MAX)
        return delivered;

    if (delivered > 0 || until_ns == 0 || !ferry_list_empty(&impl->start))
        flush_ring(impl);
    else
        sleep_in_ring(reactor, impl, until_ns);
    start_ops(impl); /* those whose readiness was waited for make their call now */
    return delivered + deliver_finished(reactor, impl);
}

/* Sleep until a parked op may go on; such ops are moved to START. */
static void poll_parked(struct ferry_reactor *reactor, struct uring_impl *impl, uint64_t until_ns)
{
    uint32_t count = 0;
    struct pollfd *wake = &impl->pollfds[LENT_OPS_MAX];

    for (struct ferry_list *link = impl->parked.next; link != &impl->parked && count < LENT_OPS_MAX;
         link = link->next) {
        struct ferry_op *op = FERRY_CONTAINER_OF(link, struct ferry_op, link);

        impl->polled[count] = op;
        impl->pollfds[count] = (struct pollfd){.fd = op->io->fd,
                                               .events = is_receiving(op) ? POLLIN : POLLOUT};
        count++;
    }
    wake = &impl->pollfds[count];
    *wake = (struct pollfd){.fd = impl->wake_fd, .events = POLLIN};

    uint64_t wait_ns = until_ns > reactor->now_ns ? until_ns - reactor->now_ns : 0;
    struct timespec limit = {.tv_sec = (time_t)(wait_ns / FERRY_NS_PER_S),
                             .tv_nsec = (long)(wait_ns % FERRY_NS_PER_S)};
    bool sleep = until_ns != 0 && ferry_reactor_sleep_begin(reactor);
    if (!sleep)
        limit = (struct timespec){0};
    int n = ppoll(impl->pollfds, count + 1, sleep && until_ns == FERRY_NEVER_NS ? NULL : &limit,
                  NULL);
    if (sleep)
        ferry_reactor_sleep_end(reactor);
    if (n <= 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        if (impl->pollfds[i].revents != 0) {
            impl->polled[i]->io->flags &= ~dry_bit(impl->polled[i]);
            move_op(impl, impl->polled[i], START);
        }
    if (wake->revents != 0) {
        uint64_t rings;
        ssize_t got = read(impl->wake_fd, &rings, sizeof(rings));
        (void)got;
    }
}

static bool uring_needs_home(const struct ferry_reactor *reactor)
{
    const struct uring_impl *impl = reactor->impl;

    return impl->lent && (!ferry_list_empty(&impl->homebound) || impl->parked_count > LENT_OPS_MAX);
}

static uint32_t turn_away(struct ferry_reactor *reactor, struct uring_impl *impl, uint64_t until_ns)
{
    start_ops(impl);
    uint32_t delivered = deliver_finished(reactor, impl);
    if (delivered > 0 && ++impl->turns_unflushed < TURNS_UNPOLLED_MAX)
        return delivered;

    impl->turns_unflushed = 0;
    bool stay = delivered > 0 || !ferry_list_empty(&impl->start) || uring_needs_home(reactor);
    poll_parked(reactor, impl, stay ? 0 : until_ns);
    start_ops(impl);
    return delivered + deliver_finished(reactor, impl);
}

static uint32_t uring_turn(struct ferry_reactor *reactor, uint64_t until_ns)
{
    struct uring_impl *impl = reactor->impl;

    return impl->lent ? turn_away(reactor, impl, until_ns) : turn_at_home(reactor, impl, until_ns);
}

static void uring_wake(struct ferry_reactor *reactor)
{
    struct uring_impl *impl = reactor->impl;

    ferry_wakefd_ring(impl->wake_fd);
}

/* Takes everything back from the kernel. Ops that complete meanwhile are FINISHED, the others
 * START. */
static bool disarm_all(struct uring_impl *impl)
{
    for (struct ferry_list *link = impl->armed.next, *next; link != &impl->armed; link = next) {
        next = link->next; /* take_sqe() may reap, but it has room for so few */
        ask_cancel(impl, (uintptr_t)FERRY_CONTAINER_OF(link, struct ferry_op, link));
    }
    if (impl->wake_armed)
        ask_cancel(impl, TAG_WAKE);
    for (int i = 0; i < LEND_ROUNDS_MAX; i++) {
        if (impl->armed_count == 0 && !impl->wake_armed)
            return true;
        io_uring_submit_and_get_events(&impl->ring);
        reap(impl);
    }
    return impl->armed_count == 0 && !impl->wake_armed;
}

static bool uring_prepare_lend(struct ferry_reactor *reactor, bool lend)
{
    struct uring_impl *impl = reactor->impl;

    FERRY_ASSERT(pthread_equal(impl->home, pthread_self()));
    if (impl->lent == lend)
        return true;
    if (lend) {
        if (impl->armed_file_count > 0 || reactor->inflight > LEND_OPS_MAX)
            return false;
        for (struct ferry_list *link = impl->start.next; link != &impl->start; link = link->next)
            if (is_file_op(FERRY_CONTAINER_OF(link, struct ferry_op, link)))
                return false;
        /* Room for all cancels, so that nothing is reaped while the list is walked. */
        io_uring_submit_and_get_events(&impl->ring);
        reap(impl);
        impl->lent = disarm_all(impl);
        return impl->lent;
    }
    impl->lent = false;
    for (struct ferry_list *link; (link = impl->parked.next) != &impl->parked;)
        move_op(impl, FERRY_CONTAINER_OF(link, struct ferry_op, link), START);
    for (struct ferry_list *link; (link = impl->homebound.next) != &impl->homebound;)
        move_op(impl, FERRY_CONTAINER_OF(link, struct ferry_op, link), START);
    return true;
}

static bool uring_has_work(const struct ferry_reactor *reactor)
{
    const struct uring_impl *impl = reactor->impl;

    return !ferry_list_empty(&impl->start) || !ferry_list_empty(&impl->finished) ||
           (!impl->lent && io_uring_sq_ready(&impl->ring) > 0);
}

const struct ferry_reactor_ops ferry_reactor_uring = {
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .attach = uring_attach,
    .detach = uring_detach,
    .submit = uring_submit,
    .cancel = uring_cancel,
    .turn = uring_turn,
    .wake = uring_wake,
    .prepare_lend = uring_prepare_lend,
    .has_work = uring_has_work,
    .needs_home = uring_needs_home,
};
