/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor: one completion-style contract for input and output, with several implementations.
 *
 *   caller fills an op --> ferry_reactor_submit() --> ... --> op->done(op, result), exactly once
 *
 * uring.c hands operations to io_uring; epoll.c performs the call itself when the descriptor is
 * ready; tests bring a simulated network. reactor.c is the only file that calls through the table.
 *
 * Threads: a reactor belongs to whoever holds its baton (worker.h); every function here except
 * ferry_reactor_wake() is for the holder only. done() runs inside ferry_reactor_turn(), on the
 * holder's thread, never inside the call that submitted the op, and under no lock. It may submit,
 * cancel and free ops, its own included.
 *
 * Why it is shaped so: a contract that mixes readiness and completion forces one side to fake the
 * other; completion can be built on readiness at the cost of one retried call, not the reverse.
 */
#ifndef FERRY_REACTOR_REACTOR_H
#define FERRY_REACTOR_REACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <ferry/status.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"

struct ferry_reactor;
struct ferry_op;
struct ferry_tls_io;

enum ferry_reactor_kind {
    FERRY_REACTOR_AUTO = 0, /* uring where it works, else epoll; one log line says which and why */
    FERRY_REACTOR_URING = 1,
    FERRY_REACTOR_EPOLL = 2,
};

/*
 * A socket as the reactor sees it. At most one operation per direction is in flight: accept, recv
 * and recvv use the receiving side, connect, send and sendv the sending side. Caller's memory;
 * ferry_reactor_detach() before it goes.
 */
struct ferry_io {
    int fd; /* -1 while detached; attach puts it into non-blocking mode */
    /* owned by the reactor between attach and detach */
    uint32_t flags; /* FERRY_IO_ATTACHED, and bits of the implementation below it */
    struct ferry_op *rx;
    struct ferry_op *tx;
    struct ferry_list link;
    struct ferry_tls_io *tls; /* between the caller's ops and the socket (tls.h); NULL: nothing */
};

#define FERRY_IO_ATTACHED (1u << 31)

enum ferry_op_kind {
    FERRY_OP_ACCEPT,  /* result: a new descriptor, close-on-exec and non-blocking */
    FERRY_OP_CONNECT, /* result: 0 */
    /*
     * result: bytes, at least op->min_bytes unless the stream ended or the op was cancelled; 0 =
     * end of stream before the first byte. An error wins over bytes that came before it.
     */
    FERRY_OP_RECV,
    FERRY_OP_RECVV,     /* as RECV, into op->iov[0..iov_count), in order */
    FERRY_OP_SEND,      /* result: bytes sent, may be short; never raises SIGPIPE */
    FERRY_OP_SENDV,     /* as SEND, from op->iov[0..iov_count) */
    FERRY_OP_READ,      /* result: bytes, may be short */
    FERRY_OP_WRITE,     /* result: bytes, may be short */
    FERRY_OP_HANDSHAKE, /* TLS, see tls.h; never reaches an implementation */
    FERRY_OP_KIND_COUNT,
};

/*
 * result: a count or descriptor, or a negative errno. -ECANCELED only after ferry_reactor_cancel(),
 * -EAGAIN and -EINTR never. -EMFILE and -ENFILE of an accept are transient: submit it again later,
 * from a timer, since the waiting connection would make it fail again at once.
 */
typedef void ferry_op_done_fn(struct ferry_op *op, int64_t result);

/*
 * One operation, in the caller's memory from submit to done. The caller fills the first part; the
 * memory it points to (buffer, iovec array, address) stays valid and unchanged until done().
 */
struct ferry_op {
    enum ferry_op_kind kind;
    ferry_op_done_fn *done;
    struct ferry_io *io; /* all kinds but READ and WRITE */
    int fd;              /* READ and WRITE */
    void *buf;           /* RECV, READ; SEND and WRITE do not change it */
    uint64_t len;        /* > 0; the reactor may do less at a time, down to 1 byte */
    uint64_t min_bytes;  /* RECV, RECVV: complete only with this much; 0 and 1 mean "anything" */
    uint64_t offset;     /* READ, WRITE: file offset */
    const struct iovec *iov;
    uint32_t iov_count; /* 1..FERRY_IOV_MAX */
    const struct sockaddr *addr;
    socklen_t addr_len;
    /* owned by the reactor between submit and done; zero before the first submit */
    uint8_t state; /* FERRY_OP_INFLIGHT, and values of the implementation above it */
    uint64_t progress;
    struct ferry_list link;
};

#define FERRY_OP_INFLIGHT 1u
#define FERRY_IOV_MAX     256

/* A timer in the caller's memory. Fires once; re-arm it in the callback if wanted. */
struct ferry_timer;
typedef void ferry_timer_fn(struct ferry_timer *timer);

struct ferry_timer {
    ferry_timer_fn *fire;
    uint64_t deadline_ns; /* owned by the reactor while armed */
    uint32_t slot;        /* heap position + 1; 0 = not armed */
};

/* Zero-initialised timers are disarmed. */

struct ferry_reactor_options {
    enum ferry_reactor_kind kind;
    const struct ferry_clock *clock;
    uint32_t queue_depth; /* 0: the default, 256 */
};

/*
 * The table. An implementation needs no locking; reactor.c checks both sides of every call.
 * Optional ops say so.
 */
struct ferry_reactor_ops {
    const char *name; /* "uring", "epoll", ... */
    enum ferry_status (*open)(struct ferry_reactor *reactor,
                              const struct ferry_reactor_options *options);
    /* Given: no op is in flight. Accepts a partly opened reactor. */
    void (*close)(struct ferry_reactor *reactor);
    enum ferry_status (*attach)(struct ferry_reactor *reactor, struct ferry_io *io);
    /* Given: no op of @io is in flight. Does not close the descriptor. */
    void (*detach)(struct ferry_reactor *reactor, struct ferry_io *io);
    void (*submit)(struct ferry_reactor *reactor, struct ferry_op *op);
    /*
     * Given: @op is in flight. Ask for its end. done() still runs, later, once: with -ECANCELED if
     * nothing happened, or with what did happen (a RECV: the bytes so far, even below min_bytes).
     * After it ran the kernel cannot touch the op's memory any more. Asking twice is harmless.
     */
    void (*cancel)(struct ferry_reactor *reactor, struct ferry_op *op);
    /*
     * Move what can move, run due done() callbacks; if there was nothing, sleep until an event, a
     * wake-up or @until_ns (0 = do not sleep). Returns the number of completions delivered.
     * One pass over what is ready, each op in steps of bounded size, so that a stream that never
     * runs dry does not keep the others, the timers and the inbox waiting.
     *
     * Directly before it blocks it calls ferry_reactor_sleep_begin(), and does not block if that
     * says no; directly after, ferry_reactor_sleep_end().
     */
    uint32_t (*turn)(struct ferry_reactor *reactor, uint64_t until_ns);
    /* Any thread, async-signal-safe enough for eventfd: make a sleeping (or the next) turn()
     * return. */
    void (*wake)(struct ferry_reactor *reactor);
    /*
     * Optional. The home thread only (the one that opened the reactor), while it holds the baton.
     * true: prepare to be driven by another thread; nothing may stay bound to the calling thread
     * afterwards, and no done() runs inside. Returns false, with everything as before, while that
     * is not possible yet; asked again. false: back at home; always succeeds. Absent: always true.
     */
    bool (*prepare_lend)(struct ferry_reactor *reactor, bool lend);
    /*
     * Optional. True if the next turn() would do something without waiting for the kernel: a driver
     * that leaves now would leave it lying. Absent: never.
     */
    bool (*has_work)(const struct ferry_reactor *reactor);
    /*
     * Optional. True while lent if something is in flight that only the home thread can go on with
     * (a file operation on a ring): the borrower hands the baton back at once. Absent: never.
     */
    bool (*needs_home)(const struct ferry_reactor *reactor);
};

/* How the driver hears that turn() is about to block. Both run on the driver's thread. */
struct ferry_sleep_hook {
    bool (*begin)(void *arg); /* false: do not block, something came in */
    void (*end)(void *arg);
    void *arg;
};

/* Timer heap, clock and table are common to all implementations (reactor.c). */
struct ferry_reactor {
    const struct ferry_reactor_ops *ops;
    const struct ferry_clock *clock;
    void *impl;
    struct ferry_timer **heap;
    uint32_t heap_len;
    uint32_t heap_cap;
    uint64_t now_ns;               /* read once per turn: the coarse shared clock of all timeouts */
    uint64_t inflight;             /* ops submitted and not yet done */
    struct ferry_sleep_hook sleep; /* zero: none */
    struct ferry_list put_off;     /* ops on TLS that go on at the end of this turn, or the next */
};

/*
 * Open a reactor. AUTO tries uring and falls back to epoll (EPERM and ENOSYS: forbidden; ENOMEM:
 * memory-lock limit); an explicit kind that does not work is an error that says why.
 * Return: FERRY_OK, ERR_UNSUPPORTED, ERR_NO_MEMORY, ERR_LIMIT.
 */
enum ferry_status ferry_reactor_open(const struct ferry_reactor_options *options,
                                     struct ferry_reactor **reactor_out);
/* The same with a given table (simulators). */
enum ferry_status ferry_reactor_open_with(const struct ferry_reactor_ops *ops,
                                          const struct ferry_reactor_options *options,
                                          struct ferry_reactor **reactor_out);
/* Given: no op is in flight. Armed timers are disarmed, unfired. Idempotent on NULL. */
void ferry_reactor_close(struct ferry_reactor *reactor);

/* @io is the caller's, zeroed or detached; @fd stays the caller's to close, after detach. */
enum ferry_status ferry_reactor_attach(struct ferry_reactor *reactor, struct ferry_io *io, int fd);
void ferry_reactor_detach(struct ferry_reactor *reactor, struct ferry_io *io);
void ferry_reactor_submit(struct ferry_reactor *reactor, struct ferry_op *op);
/* Nothing happens if @op is not in flight (any more). */
void ferry_reactor_cancel(struct ferry_reactor *reactor, struct ferry_op *op);
bool ferry_op_inflight(const struct ferry_op *op);

/* Arm or re-arm. ERR_NO_MEMORY only while the heap grows; reserve ahead for the hot path. */
enum ferry_status ferry_reactor_arm(struct ferry_reactor *reactor, struct ferry_timer *timer,
                                    uint64_t deadline_ns);
/* Room for @count armed timers, so that arming up to that many cannot fail. */
enum ferry_status ferry_reactor_reserve_timers(struct ferry_reactor *reactor, uint32_t count);
void ferry_reactor_disarm(struct ferry_reactor *reactor, struct ferry_timer *timer);
bool ferry_timer_armed(const struct ferry_timer *timer);

/*
 * One round: fire due timers, deliver completions, else sleep until the earliest of an event, a
 * timer, a wake-up, or @until_ns. Returns what was delivered (completions and timers).
 */
uint32_t ferry_reactor_turn(struct ferry_reactor *reactor, uint64_t until_ns);

/* Any thread. */
void ferry_reactor_wake(struct ferry_reactor *reactor);

bool ferry_reactor_prepare_lend(struct ferry_reactor *reactor, bool lend);
bool ferry_reactor_has_work(const struct ferry_reactor *reactor);
bool ferry_reactor_needs_home(const struct ferry_reactor *reactor);

/* For a driver that runs code outside turn(), perhaps long after the latest one. */
static inline void ferry_reactor_read_clock(struct ferry_reactor *reactor)
{
    reactor->now_ns = ferry_now_ns(reactor->clock);
}

/* The time of the present turn; use this, not the clock, for timeouts on the data path. */
static inline uint64_t ferry_reactor_now(const struct ferry_reactor *reactor)
{
    return reactor->now_ns;
}

const char *ferry_reactor_name(const struct ferry_reactor *reactor);

/* What an array of pieces holds together. */
static inline uint64_t ferry_iov_bytes(const struct iovec *iov, uint32_t count)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

/*
 * For implementations of the table only.
 */

/* Ends the op: the slot in its io is free again, done() runs. Inside turn() only. */
void ferry_reactor_complete(struct ferry_reactor *reactor, struct ferry_op *op, int64_t result);
/* Around every call that blocks; sleep_end() also reads the clock anew. */
bool ferry_reactor_sleep_begin(struct ferry_reactor *reactor);
void ferry_reactor_sleep_end(struct ferry_reactor *reactor);

/* The tables. FERRY_HAVE_URING says whether the ring was built. */
extern const struct ferry_reactor_ops ferry_reactor_epoll;
extern const struct ferry_reactor_ops ferry_reactor_uring;

#endif
