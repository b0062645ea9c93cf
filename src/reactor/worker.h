/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: one thread with one reactor, an inbox of jobs, and a baton that says who drives.
 *
 * The reactor is driven by exactly one thread at a time: the worker's own, or a caller that waits
 * for a small transfer and took the baton by try-lock. A round trip between two sleeping threads
 * costs four wake-ups; a caller that drives saves two of them.
 *
 *   WORKER drives --(a caller asks, nothing is bound to the thread)--> FREE, worker thread parked
 *   FREE --(try-lock by a waiting caller)--> CALLER drives --(its condition holds)--> FREE
 *   FREE --(inbox work nobody waits for, park time over, urgent)--> WORKER drives
 *
 * While the baton is FREE the worker thread is parked on a futex, for at most park_us; after that,
 * if no caller came, it takes the baton back, so that nothing that arrives is left lying for
 * longer. A caller that leaves work behind (ops of other waiters, server sessions) wakes the worker
 * at once. A submitter that is expected to wait next (it did so lately) wakes nobody; if it does
 * not come within park_us the worker takes over and the expectation is dropped for a while.
 *
 * Waiting: ADAPTIVE spins at most spin_us after recent traffic and never lets more threads spin
 * than the budget has cores; SLEEP never spins; SPIN always does.
 *
 * Locks: none. Jobs come through a lock-free inbox.
 */
#ifndef FERRY_REACTOR_WORKER_H
#define FERRY_REACTOR_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/inbox.h"
#include "reactor/reactor.h"

struct ferry_worker;

/* Work for the holder of the baton. In the poster's memory until run() begins. */
struct ferry_job;
typedef void ferry_job_fn(struct ferry_worker *worker, struct ferry_job *job);

struct ferry_job {
    struct ferry_inbox_node node;
    ferry_job_fn *run;
};

enum ferry_wait_mode {
    FERRY_WAIT_ADAPTIVE = 0,
    FERRY_WAIT_SLEEP = 1,
    FERRY_WAIT_SPIN = 2,
};

/* Shared by all workers and callers of an engine: how many threads may spin at once. */
struct ferry_spin_budget {
    _Atomic int32_t spinning;
    int32_t spinning_max; /* usable cores */
};

struct ferry_worker_options {
    const char *name; /* thread name, at most 15 bytes, e.g. "ferry-hp_tcp-0" */
    struct ferry_reactor_options reactor;
    const struct ferry_reactor_ops
        *reactor_ops; /* NULL: by reactor.kind; else a simulator's table */
    enum ferry_wait_mode wait;
    uint32_t spin_us;                 /* bound of ADAPTIVE */
    struct ferry_spin_budget *budget; /* may be NULL: no bound */
    uint32_t park_us;                 /* 0: the default, 200 */
    bool threadless; /* no thread: the owner calls ferry_worker_turn() (model rig) */
};

/* All signals are blocked in the thread, so that the host program's handlers never run on it. */
/*
 * Returns when the reactor works; it was opened on the worker's thread, its home. Return: FERRY_OK,
 * ERR_INVALID (name), ERR_NO_MEMORY, ERR_LIMIT, ERR_UNSUPPORTED (reactor.kind, with the reason).
 */
enum ferry_status ferry_worker_open(const struct ferry_worker_options *options,
                                    struct ferry_worker **worker_out);

/*
 * Stop and join the thread, run the jobs that are left, close the reactor. Given: the owner has
 * closed every lane, so that no op is in flight, and nobody posts any more. A post or a drive whose
 * job has run but which has not returned yet is waited for. Idempotent on NULL.
 */
void ferry_worker_close(struct ferry_worker *worker);

struct ferry_reactor *ferry_worker_reactor(struct ferry_worker *worker);

/* True on the thread that holds this worker's baton. Always true for a threadless worker. */
bool ferry_worker_is_current(const struct ferry_worker *worker);

/*
 * Any thread. Queue a job and see to it that somebody runs it soon. Jobs of one poster run in
 * order. If nobody drives and the caller can take the baton at once, the job runs inside this call
 * (that is the submit path of a small transfer: no thread switch); `inline_ok` false forbids it.
 * Never runs inside a call that was made from the worker's own callbacks; a callback of another
 * worker passes false, else jobs nest on its stack. The poster's locks are held inside: take none
 * that a job takes.
 */
void ferry_worker_post(struct ferry_worker *worker, struct ferry_job *job, bool inline_ok);

/* The predicate of a waiter; cheap, called any number of times, on the thread that drives. */
typedef bool ferry_worker_done_fn(void *arg);

/*
 * A caller waits for `done(arg)`: drive the reactor if the baton can be had, until done or
 * deadline. Returns true if done. Returns false at the deadline, or soon (within a millisecond) if
 * another thread drives or has to (then the caller sleeps on its own futex; *drove_out says whether
 * this call drove until the deadline). Must not be called from a callback.
 *
 * Given: the condition becomes true only in callbacks of this worker, or whoever makes it true
 * calls ferry_worker_nudge() afterwards. Else the caller sleeps in the reactor and does not notice.
 */
bool ferry_worker_drive(struct ferry_worker *worker, ferry_worker_done_fn *done, void *arg,
                        uint64_t deadline_ns, bool *drove_out);

/* Any thread. Make a caller that drives look at its condition again. Costs nothing if none sleeps.
 */
void ferry_worker_nudge(struct ferry_worker *worker);

/*
 * How many things besides its waiters' a worker has to look after (server sessions, listeners):
 * while > 0 a caller that leaves the baton wakes the worker sooner. Holder of the baton only.
 */
void ferry_worker_add_duty(struct ferry_worker *worker, int delta);

/* Threadless workers only: run the inbox, then one turn of the reactor that does not sleep. */
uint32_t ferry_worker_turn(struct ferry_worker *worker);

/* CPU seconds used by the worker's own thread so far. Any thread. */
double ferry_worker_cpu_seconds(struct ferry_worker *worker);

#endif
