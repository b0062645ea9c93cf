/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: its thread, its inbox, and the baton that says who drives the reactor. Policy of
 * waiting lives here; what is moved does not.
 *
 * No wake-up is lost, because each pair of "announce, then look" is sequentially consistent on both
 * sides (docs/design/baton.md walks through the cases):
 *
 *   poster:   push to the inbox     then read baton, asleep      (rings whoever it finds)
 *   driver:   asleep = 1            then read the inbox          (does not sleep if there is a job)
 *   leaver:   baton = FREE          then read the inbox          (comes back or rings the worker)
 *   taker:    baton FREE -> taken   then empties the inbox       (always, before anything else)
 *   dozer:    dozing = 1            then read baton              (sleeps without limit only if
 * taken) leaver:   baton = FREE          then read dozing             (rings, so that the park time
 * runs)
 *
 * Threads: the worker's own, and every thread that posts or drives. Locks: none.
 */
#include "reactor/worker.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/thread.h"

#define NAME_SIZE        16
#define PARK_US_DEFAULT  200u
#define PARK_US_MAX      1000000u
#define SPIN_US_MAX      1000000u
#define ASK_NS           FERRY_NS_PER_MS /* how long a caller waits for an answer to its ask */
#define REFUSE_NS_MIN    FERRY_NS_PER_MS
#define REFUSE_NS_MAX    (256 * FERRY_NS_PER_MS)
#define CROWD_NS         (2 * FERRY_NS_PER_MS)
#define DRAIN_NS         FERRY_NS_PER_S
#define LEAVE_ROUNDS_MAX 4
#define SPIN_MISSES_MAX  6

/* Who drives. */
enum {
    BATON_FREE = 0,
    BATON_WORKER = 1,
    BATON_CALLER = 2,
};

/* Reasons to ring a parked worker. */
enum {
    BELL_TAKE = 1u << 0,  /* take the baton now */
    BELL_TIMER = 1u << 1, /* the caller has left: let the park time run */
};

struct ferry_worker {
    /* immutable after open */
    struct ferry_worker_options options;
    char name[NAME_SIZE];
    const struct ferry_clock *clock;
    struct ferry_reactor *reactor;
    pthread_t thread;
    uint64_t spin_ns;
    uint64_t park_ns;

    /* any thread, atomic; the pairs are named at the top */
    FERRY_ALIGNED_LINE struct ferry_inbox inbox;
    _Atomic uint32_t asleep; /* the driver sleeps in the reactor, or is about to */
    _Atomic uint32_t inside; /* posts and drives that have not returned */
    _Atomic uint32_t baton;  /* BATON_* */
    _Atomic uintptr_t
        driver; /* pthread_self() of the holder; relaxed: only compared with oneself */
    _Atomic uint32_t stopping;
    FERRY_ALIGNED_LINE _Atomic uint32_t bell; /* futex: BELL_* */
    _Atomic uint32_t dozing;                  /* parked without a time limit */
    _Atomic uint32_t asks;                    /* callers that asked for the baton so far */
    _Atomic uint32_t answers;                 /* futex: asks that were answered */
    _Atomic uint32_t crowded;                 /* a caller was turned away while another drove */
    _Atomic uint32_t tenures;                 /* turns of callers at the baton so far */
    _Atomic uint64_t left_ns;                 /* when the last of them left */
    _Atomic uint64_t refuse_until_ns;         /* no lending before: relaxed, a hint */
    _Atomic int32_t duty;                     /* written by the holder; relaxed, a hint */
    _Atomic uint32_t opened;                  /* futex: the thread has opened the reactor, or not */

    /* holder of the baton only */
    FERRY_ALIGNED_LINE uint64_t traffic_ns; /* the last turn that delivered something */
    uint64_t refuse_ns;                     /* present length of the back-off */
    uint32_t asks_seen;
    uint32_t spin_misses; /* spins in a row that ended in sleep */
    uint32_t spin_skip;   /* sleeps that go without a spin */
    bool spinning;        /* counted in the budget */
    bool draining;        /* closing: sleep although `stopping` is set */
    ferry_worker_done_fn *wait_done;
    void *wait_arg;

    /* the worker's thread, read by the opener after `opened` */
    enum ferry_status open_status;
    char open_text[FERRY_ERROR_TEXT_SIZE];
};

static uintptr_t self_id(void)
{
    return (uintptr_t)pthread_self();
}

static bool drives(const struct ferry_worker *worker)
{
    return atomic_load_explicit(&worker->driver, memory_order_relaxed) == self_id();
}

bool ferry_worker_is_current(const struct ferry_worker *worker)
{
    return worker->options.threadless || drives(worker);
}

struct ferry_reactor *ferry_worker_reactor(struct ferry_worker *worker)
{
    return worker->reactor;
}

static void set_driver(struct ferry_worker *worker, uintptr_t id)
{
    atomic_store_explicit(&worker->driver, id, memory_order_relaxed);
}

static bool try_take(struct ferry_worker *worker, uint32_t who)
{
    uint32_t expected = BATON_FREE;

    if (!atomic_compare_exchange_strong(&worker->baton, &expected, who))
        return false;
    set_driver(worker, self_id());
    return true;
}

static void ring_bell(struct ferry_worker *worker, uint32_t reason)
{
    if (worker->options.threadless)
        return;
    if (atomic_fetch_or(&worker->bell, reason) == 0)
        ferry_futex_wake(&worker->bell, 1);
}

/* Wakes a driver that sleeps in the reactor; at most one of many ringers pays the system call. */
static void ring_driver(struct ferry_worker *worker)
{
    if (atomic_load(&worker->asleep) != 0 && atomic_exchange(&worker->asleep, 0) != 0)
        ferry_reactor_wake(worker->reactor);
}

static bool asked(const struct ferry_worker *worker)
{
    return atomic_load(&worker->asks) != worker->asks_seen;
}

static bool hook_sleep_begin(void *arg)
{
    struct ferry_worker *worker = arg;

    atomic_store(&worker->asleep, 1);
    /* The condition of a waiter may be made of weaker atomics; this orders it behind the flag. */
    atomic_thread_fence(memory_order_seq_cst);
    bool stay = !ferry_inbox_empty(&worker->inbox) ||
                (atomic_load(&worker->stopping) != 0 && !worker->draining) ||
                (worker->wait_done != NULL && worker->wait_done(worker->wait_arg)) ||
                (atomic_load_explicit(&worker->baton, memory_order_relaxed) == BATON_WORKER &&
                 asked(worker));
    if (stay)
        atomic_store(&worker->asleep, 0);
    return !stay;
}

static void hook_sleep_end(void *arg)
{
    struct ferry_worker *worker = arg;

    atomic_store_explicit(&worker->asleep, 0, memory_order_relaxed);
}

static uint32_t run_inbox(struct ferry_worker *worker)
{
    uint32_t count = 0;

    if (ferry_inbox_empty(&worker->inbox))
        return 0;
    /* The latest turn may be long ago, and a job counts its deadlines from the reactor's time. */
    ferry_reactor_read_clock(worker->reactor);
    for (struct ferry_inbox_node *node = ferry_inbox_take(&worker->inbox); node != NULL;) {
        struct ferry_job *job = FERRY_CONTAINER_OF(node, struct ferry_job, node);

        node = node->next;
        job->run(worker, job);
        count++;
    }
    return count;
}

static void spin_end(struct ferry_worker *worker)
{
    if (!worker->spinning)
        return;
    worker->spinning = false;
    if (worker->options.budget != NULL)
        atomic_fetch_sub_explicit(&worker->options.budget->spinning, 1, memory_order_relaxed);
}

static bool spin_begin(struct ferry_worker *worker)
{
    struct ferry_spin_budget *budget = worker->options.budget;

    if (worker->spinning)
        return true;
    if (budget != NULL && atomic_fetch_add_explicit(&budget->spinning, 1, memory_order_relaxed) >=
                              budget->spinning_max) {
        atomic_fetch_sub_explicit(&budget->spinning, 1, memory_order_relaxed);
        return false;
    }
    worker->spinning = true;
    return true;
}

/*
 * ADAPTIVE: spin for a while after traffic, unless the last spins were in vain; each further miss
 * in a row doubles the number of sleeps that go without one.
 */
static bool may_spin(struct ferry_worker *worker)
{
    uint64_t now_ns = worker->reactor->now_ns;

    if (worker->options.wait != FERRY_WAIT_ADAPTIVE || worker->spin_skip > 0)
        return false;
    if (now_ns - worker->traffic_ns < worker->spin_ns)
        return spin_begin(worker);
    return false;
}

static void note_spin_miss(struct ferry_worker *worker)
{
    if (worker->spin_misses < SPIN_MISSES_MAX)
        worker->spin_misses++;
    worker->spin_skip = (1u << worker->spin_misses) - 1;
}

/* One turn of the reactor as the wait mode wants it. Returns what was delivered. */
static uint32_t step(struct ferry_worker *worker, uint64_t until_ns)
{
    bool always = worker->options.wait == FERRY_WAIT_SPIN;
    bool spin = always || may_spin(worker);
    uint32_t delivered;

    if (spin) {
        delivered = ferry_reactor_turn(worker->reactor, 0);
        /* A pause instruction would keep off the core the very thread that has to answer. */
        if (delivered == 0)
            sched_yield();
        else if (worker->spinning)
            worker->spin_misses = 0;
    } else {
        if (worker->spinning)
            note_spin_miss(worker);
        spin_end(worker);
        delivered = ferry_reactor_turn(worker->reactor, until_ns);
        if (worker->spin_skip > 0)
            worker->spin_skip--;
    }
    if (delivered > 0)
        worker->traffic_ns = worker->reactor->now_ns;
    return delivered;
}

static void refuse_for(struct ferry_worker *worker, uint64_t ns)
{
    atomic_store_explicit(&worker->refuse_until_ns, ferry_deadline_ns(worker->reactor->now_ns, ns),
                          memory_order_relaxed);
}

/* Lending is not possible, or left something lying: do without for a while, longer each time. */
static void lending_failed(struct ferry_worker *worker)
{
    worker->refuse_ns = worker->refuse_ns == 0 ? REFUSE_NS_MIN : worker->refuse_ns * 2;
    if (worker->refuse_ns > REFUSE_NS_MAX)
        worker->refuse_ns = REFUSE_NS_MAX;
    refuse_for(worker, worker->refuse_ns);
}

/*
 * Gives the baton back. Work that only shows after the release (a job pushed at that moment) is
 * done by coming back for it, a few times; then the worker's thread is rung.
 */
static void leave(struct ferry_worker *worker)
{
    for (uint32_t round = 0;; round++) {
        for (int i = 0; i < LEAVE_ROUNDS_MAX && ferry_reactor_has_work(worker->reactor); i++)
            ferry_reactor_turn(worker->reactor, 0);
        bool take = ferry_reactor_has_work(worker->reactor) ||
                    ferry_reactor_needs_home(worker->reactor);

        if (atomic_exchange(&worker->crowded, 0) != 0) {
            /* Several callers wait at once: the worker serves them better than one of them. */
            refuse_for(worker, CROWD_NS);
            take = true;
        }
        spin_end(worker);
        atomic_store_explicit(&worker->left_ns, ferry_now_ns(worker->clock), memory_order_relaxed);
        set_driver(worker, 0);
        atomic_store(&worker->baton, BATON_FREE);

        bool more = !ferry_inbox_empty(&worker->inbox);
        if (!more || take || round >= LEAVE_ROUNDS_MAX) {
            if (more || take || atomic_load(&worker->crowded) != 0 ||
                atomic_load(&worker->stopping) != 0)
                ring_bell(worker, BELL_TAKE);
            else if (atomic_load(&worker->dozing) != 0)
                ring_bell(worker, BELL_TIMER);
            return;
        }
        if (!try_take(worker, BATON_CALLER))
            return; /* whoever took it empties the inbox */
        run_inbox(worker);
    }
}

/*
 * A host that cancels its thread must not take the baton to the grave, nor leave `inside` counted,
 * which close waits for: every sleep is such a point, and so is the write that rings a wake-up
 * descriptor.
 */
static int cancel_off(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static void post_from_outside(struct ferry_worker *worker, struct ferry_job *job, bool inline_ok)
{
    ferry_inbox_push(&worker->inbox, &job->node);
    for (;;) {
        if (atomic_load(&worker->baton) != BATON_FREE) {
            ring_driver(worker);
            return;
        }
        if (!inline_ok) {
            ring_bell(worker, BELL_TAKE);
            return;
        }
        if (try_take(worker, BATON_CALLER)) {
            atomic_fetch_add_explicit(&worker->tenures, 1, memory_order_relaxed);
            run_inbox(worker);
            leave(worker);
            return;
        }
    }
}

void ferry_worker_post(struct ferry_worker *worker, struct ferry_job *job, bool inline_ok)
{
    FERRY_ASSERT(job->run != NULL);

    if (drives(worker)) {
        /* From a callback: the driver looks into the inbox before it sleeps or leaves. */
        ferry_inbox_push(&worker->inbox, &job->node);
        return;
    }
    int cancel_state = cancel_off();
    atomic_fetch_add(&worker->inside, 1);
    post_from_outside(worker, job, inline_ok);
    atomic_fetch_sub(&worker->inside, 1);
    pthread_setcancelstate(cancel_state, NULL);
}

void ferry_worker_nudge(struct ferry_worker *worker)
{
    if (drives(worker))
        return;
    int cancel_state = cancel_off();
    atomic_fetch_add(&worker->inside, 1);
    atomic_thread_fence(memory_order_seq_cst);
    ring_driver(worker);
    atomic_fetch_sub(&worker->inside, 1);
    pthread_setcancelstate(cancel_state, NULL);
}

/*
 * Asks the worker's thread for the baton and waits for the answer, which comes with its next turn:
 * bounded, so that a caller whose transfer ends meanwhile is not held up by more than that. True if
 * the baton may be free now.
 */
static bool ask(struct ferry_worker *worker, uint64_t deadline_ns)
{
    uint64_t now_ns = ferry_now_ns(worker->clock);

    if (atomic_load_explicit(&worker->refuse_until_ns, memory_order_relaxed) > now_ns)
        return false;
    uint64_t until_ns = ferry_deadline_ns(now_ns, ASK_NS);
    if (deadline_ns < until_ns)
        until_ns = deadline_ns;

    uint32_t answers = atomic_load(&worker->answers);
    atomic_fetch_add(&worker->asks, 1);
    if (atomic_load(&worker->baton) != BATON_WORKER)
        return true;
    ring_driver(worker);
    while (atomic_load(&worker->answers) == answers)
        if (!ferry_futex_wait(&worker->answers, answers, until_ns))
            break;
    return atomic_load(&worker->baton) != BATON_WORKER;
}

static bool get_baton(struct ferry_worker *worker, uint64_t deadline_ns)
{
    while (atomic_load(&worker->stopping) == 0) {
        switch (atomic_load(&worker->baton)) {
        case BATON_FREE:
            if (try_take(worker, BATON_CALLER))
                return true;
            break;
        case BATON_CALLER:
            atomic_store(&worker->crowded, 1);
            if (atomic_load(&worker->baton) == BATON_CALLER)
                return false;
            break;
        default:
            if (!ask(worker, deadline_ns))
                return false;
        }
    }
    return false;
}

/* With the baton: until the condition holds (true), the deadline, or something only home can do. */
static bool drive_as_caller(struct ferry_worker *worker, uint64_t deadline_ns, bool *drove_out)
{
    uint32_t delivered = 0;
    bool is_done = false;

    for (;;) {
        run_inbox(worker);
        is_done = worker->wait_done(worker->wait_arg);
        if (is_done || atomic_load(&worker->stopping) != 0 ||
            ferry_reactor_needs_home(worker->reactor))
            break;
        delivered += step(worker, deadline_ns);
        if (worker->reactor->now_ns >= deadline_ns) {
            *drove_out = true;
            break;
        }
    }
    if (is_done) {
        *drove_out = true;
        if (delivered > 0)
            worker->refuse_ns /= 2;
    }
    return is_done;
}

bool ferry_worker_drive(struct ferry_worker *worker, ferry_worker_done_fn *done, void *arg,
                        uint64_t deadline_ns, bool *drove_out)
{
    *drove_out = false;
    if (worker->options.threadless)
        return done(arg);
    FERRY_ASSERT(!drives(worker));

    bool is_done = false;
    int cancel_state = cancel_off();
    atomic_fetch_add(&worker->inside, 1);
    if (get_baton(worker, deadline_ns)) {
        atomic_fetch_add_explicit(&worker->tenures, 1, memory_order_relaxed);
        worker->wait_done = done;
        worker->wait_arg = arg;
        is_done = drive_as_caller(worker, deadline_ns, drove_out);
        worker->wait_done = NULL;
        leave(worker);
    }
    atomic_fetch_sub(&worker->inside, 1);
    pthread_setcancelstate(cancel_state, NULL);
    return is_done || done(arg);
}

void ferry_worker_add_duty(struct ferry_worker *worker, int delta)
{
    FERRY_ASSERT(ferry_worker_is_current(worker));
    int32_t before = atomic_fetch_add_explicit(&worker->duty, delta, memory_order_relaxed);
    FERRY_ASSERT(before + delta >= 0);
}

/* Lends the baton to those who asked, or says no. True if it was let go. */
static bool answer_ask(struct ferry_worker *worker)
{
    uint64_t now_ns = ferry_now_ns(worker->clock);
    bool refuse = atomic_load_explicit(&worker->refuse_until_ns, memory_order_relaxed) > now_ns;

    worker->asks_seen = atomic_load(&worker->asks);
    if (!refuse && !ferry_reactor_prepare_lend(worker->reactor, true)) {
        lending_failed(worker);
        refuse = true;
    }
    if (!refuse) {
        spin_end(worker);
        atomic_store(&worker->bell, 0);
        atomic_store_explicit(&worker->left_ns, now_ns, memory_order_relaxed);
        set_driver(worker, 0);
        atomic_store(&worker->baton, BATON_FREE);
    }
    atomic_fetch_add(&worker->answers, 1);
    ferry_futex_wake(&worker->answers, INT_MAX);
    return !refuse;
}

static uint64_t park_limit_ns(const struct ferry_worker *worker)
{
    bool on_duty = atomic_load_explicit(&worker->duty, memory_order_relaxed) > 0;

    return on_duty ? worker->park_ns / 2 : worker->park_ns;
}

/*
 * A caller has driven for a whole park time without a pause: sleep until it leaves, instead of
 * looking every park time.
 */
static void doze(struct ferry_worker *worker, uint32_t tenures)
{
    atomic_store(&worker->dozing, 1);
    if (atomic_load(&worker->baton) == BATON_CALLER && atomic_load(&worker->tenures) == tenures)
        ferry_futex_wait(&worker->bell, 0, FERRY_NEVER_NS);
    atomic_store(&worker->dozing, 0);
}

/*
 * The worker's thread while others drive. Returns with the baton, and true if it came back for it
 * because the park time was over.
 */
static bool park(struct ferry_worker *worker)
{
    for (;;) {
        uint64_t now_ns = ferry_now_ns(worker->clock);
        uint32_t tenures = atomic_load(&worker->tenures);
        bool is_free = atomic_load(&worker->baton) == BATON_FREE;
        uint64_t until_ns = now_ns;

        if (is_free) {
            until_ns = atomic_load_explicit(&worker->left_ns, memory_order_relaxed);
            bool over = (until_ns += park_limit_ns(worker)) <= now_ns;
            bool needed = !ferry_inbox_empty(&worker->inbox) || atomic_load(&worker->stopping) != 0;

            if ((over || needed) && try_take(worker, BATON_WORKER))
                return !needed;
            if (over || needed)
                continue;
        } else {
            until_ns = ferry_deadline_ns(now_ns, worker->park_ns);
        }
        bool in_time = ferry_futex_wait(&worker->bell, 0, until_ns);
        uint32_t bell = atomic_exchange(&worker->bell, 0);
        if ((bell & BELL_TAKE) != 0 && try_take(worker, BATON_WORKER))
            return false;
        if (bell == 0 && !in_time && !is_free)
            doze(worker, tenures);
    }
}

/* Drives until the baton is lent (true) or the worker stops (false). */
static bool drive_as_worker(struct ferry_worker *worker, bool after_park_time)
{
    run_inbox(worker);
    if (after_park_time && ferry_reactor_turn(worker->reactor, 0) > 0)
        lending_failed(worker); /* something had arrived, and nobody had looked */
    while (atomic_load(&worker->stopping) == 0) {
        if (asked(worker) && answer_ask(worker))
            return true;
        step(worker, FERRY_NEVER_NS);
        run_inbox(worker);
    }
    return false;
}

/*
 * The last acts, in this order: run what was posted, let the last ops end, let the last posters
 * leave (their doorbell is the reactor's), close the reactor. The baton is never given up again.
 */
static void shut_down(struct ferry_worker *worker)
{
    uint64_t give_up_ns = ferry_deadline_ns(ferry_now_ns(worker->clock), DRAIN_NS);

    spin_end(worker);
    worker->draining = true;
    for (;;) {
        run_inbox(worker);
        bool drained = worker->reactor->inflight == 0 || worker->reactor->now_ns >= give_up_ns;
        if (drained && atomic_load(&worker->inside) == 0 && ferry_inbox_empty(&worker->inbox))
            break;
        if (drained)
            sched_yield();
        else
            ferry_reactor_turn(worker->reactor,
                               ferry_deadline_ns(worker->reactor->now_ns, FERRY_NS_PER_MS));
    }
    ferry_reactor_close(worker->reactor);
}

static enum ferry_status open_reactor(struct ferry_worker *worker)
{
    const struct ferry_worker_options *options = &worker->options;
    enum ferry_status status;

    if (options->reactor_ops != NULL)
        status = ferry_reactor_open_with(options->reactor_ops, &options->reactor, &worker->reactor);
    else
        status = ferry_reactor_open(&options->reactor, &worker->reactor);
    if (status == FERRY_OK)
        worker->reactor->sleep = (struct ferry_sleep_hook){hook_sleep_begin, hook_sleep_end,
                                                           worker};
    return status;
}

static void *worker_main(void *arg)
{
    struct ferry_worker *worker = arg;

    set_driver(worker, self_id());
    worker->open_status = open_reactor(worker);
    bool works = worker->open_status == FERRY_OK;
    if (!works)
        snprintf(worker->open_text, sizeof(worker->open_text), "%s", ferry_last_error_text());
    atomic_store(&worker->opened, 1);
    ferry_futex_wake(&worker->opened, 1);
    if (!works)
        return NULL;

    bool after_park_time = false;
    while (drive_as_worker(worker, after_park_time)) {
        after_park_time = park(worker);
        ferry_reactor_prepare_lend(worker->reactor, false);
    }
    shut_down(worker);
    return NULL;
}

static enum ferry_status check_options(const struct ferry_worker_options *options)
{
    if (options->name == NULL || options->name[0] == '\0' || strlen(options->name) >= NAME_SIZE)
        return ferry_fail(FERRY_ERR_INVALID, "worker: a name has 1 to %d bytes", NAME_SIZE - 1);
    if (options->spin_us > SPIN_US_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "worker %s: spin_us %u is more than %u", options->name,
                          options->spin_us, SPIN_US_MAX);
    if (options->park_us > PARK_US_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "worker %s: park_us %u is more than %u", options->name,
                          options->park_us, PARK_US_MAX);
    return FERRY_OK;
}

static enum ferry_status start_thread(struct ferry_worker *worker)
{
    atomic_store(&worker->baton, BATON_WORKER);
    enum ferry_status status = ferry_thread_start(worker->name, worker_main, worker,
                                                  &worker->thread);
    if (status != FERRY_OK)
        return status;
    /* Bounded by the system calls that open a reactor. */
    while (atomic_load(&worker->opened) == 0)
        ferry_futex_wait(&worker->opened, 0, FERRY_NEVER_NS);
    if (worker->open_status != FERRY_OK) {
        pthread_join(worker->thread, NULL);
        return ferry_fail(worker->open_status, "worker %s: %s", worker->name, worker->open_text);
    }
    return FERRY_OK;
}

enum ferry_status ferry_worker_open(const struct ferry_worker_options *options,
                                    struct ferry_worker **worker_out)
{
    enum ferry_status status = check_options(options);
    if (status != FERRY_OK)
        return status;

    struct ferry_worker *worker = aligned_alloc(FERRY_CACHE_LINE, sizeof(*worker));
    if (worker == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "worker %s: out of memory", options->name);
    memset(worker, 0, sizeof(*worker));
    worker->options = *options;
    snprintf(worker->name, sizeof(worker->name), "%s", options->name);
    worker->options.name = worker->name;
    worker->clock = options->reactor.clock != NULL ? options->reactor.clock : &ferry_clock_system;
    worker->spin_ns = options->spin_us * FERRY_NS_PER_US;
    worker->park_ns = (options->park_us == 0 ? PARK_US_DEFAULT : options->park_us) *
                      FERRY_NS_PER_US;
    ferry_inbox_init(&worker->inbox);

    status = options->threadless ? open_reactor(worker) : start_thread(worker);
    if (status != FERRY_OK) {
        free(worker);
        return status;
    }
    *worker_out = worker;
    return FERRY_OK;
}

void ferry_worker_close(struct ferry_worker *worker)
{
    if (worker == NULL)
        return;

    FERRY_ASSERT(!drives(worker));
    if (worker->options.threadless) {
        bool taken = try_take(worker, BATON_WORKER);
        FERRY_ASSERT(taken);
        shut_down(worker);
    } else {
        atomic_fetch_add(&worker->inside, 1);
        atomic_store(&worker->stopping, 1);
        ring_bell(worker, BELL_TAKE);
        ring_driver(worker);
        atomic_fetch_sub(&worker->inside, 1);
        pthread_join(worker->thread, NULL);
    }
    free(worker);
}

uint32_t ferry_worker_turn(struct ferry_worker *worker)
{
    FERRY_ASSERT(worker->options.threadless);
    bool taken = try_take(worker, BATON_WORKER);
    FERRY_ASSERT(taken);

    uint32_t delivered = run_inbox(worker);
    delivered += ferry_reactor_turn(worker->reactor, 0);
    set_driver(worker, 0);
    atomic_store(&worker->baton, BATON_FREE);
    return delivered;
}

double ferry_worker_cpu_seconds(struct ferry_worker *worker)
{
    if (worker->options.threadless)
        return 0;
    return (double)ferry_thread_cpu_ns_of(worker->thread) / (double)FERRY_NS_PER_S;
}
