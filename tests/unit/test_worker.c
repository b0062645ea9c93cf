/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker and its baton: jobs run exactly once and in order, callers drive and let go, nothing
 * is left lying, idle costs nothing. Every case runs on each reactor that works here.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/futex.h"
#include "process.h"
#include "reactor/worker.h"

#define WAIT_MS 20000

static enum ferry_reactor_kind kind_now;

static struct ferry_worker *open_worker(enum ferry_wait_mode wait, uint32_t park_us)
{
    struct ferry_worker_options options = {
        .name = "w0", .reactor.kind = kind_now, .wait = wait, .spin_us = 50, .park_us = park_us};
    struct ferry_worker *worker = NULL;

    assert_ok(ferry_worker_open(&options, &worker));
    return worker;
}

/* A job that counts, and remembers on which thread it ran. */
struct count_job {
    struct ferry_job job;
    _Atomic uint32_t runs;
    pthread_t thread;
    bool was_current;
};

static void count_run(struct ferry_worker *worker, struct ferry_job *job)
{
    struct count_job *count = FERRY_CONTAINER_OF(job, struct count_job, job);

    count->thread = pthread_self();
    count->was_current = ferry_worker_is_current(worker);
    atomic_fetch_add(&count->runs, 1);
}

static void run_once(struct ferry_worker *worker, struct count_job *job, bool inline_ok)
{
    *job = (struct count_job){.job.run = count_run};
    ferry_worker_post(worker, &job->job, inline_ok);
    assert_within_ms(atomic_load(&job->runs) == 1, WAIT_MS);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool is_set(void *arg)
{
    return atomic_load((_Atomic uint32_t *)arg) != 0;
}

/* Drive until the deadline: whatever it takes, the caller had the baton for that time. */
static bool drive_for(struct ferry_worker *worker, uint64_t ms)
{
    bool drove = false;
    uint64_t until_ns = test_deadline_ms(ms);

    while (test_now_ns() < until_ns && !drove) {
        assert_false(ferry_worker_drive(worker, never, NULL, until_ns, &drove));
        if (!drove)
            test_nap();
    }
    return drove;
}

static void test_a_posted_job_runs_on_the_holder_of_the_baton(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 0);
    struct count_job job;

    assert_false(ferry_worker_is_current(worker));
    run_once(worker, &job, true);
    assert_true(job.was_current);
    assert_false(pthread_equal(job.thread, pthread_self()));
    run_once(worker, &job, false);
    assert_false(pthread_equal(job.thread, pthread_self()));
    ferry_worker_close(worker);
}

/* The submit path of a small transfer: after this thread drove, its next post needs no switch. */
static void test_a_free_baton_lets_the_poster_run_its_job(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 1000000);
    struct count_job job;

    assert_true(drive_for(worker, 20));
    job = (struct count_job){.job.run = count_run};
    ferry_worker_post(worker, &job.job, true);
    assert_int_equal(atomic_load(&job.runs), 1);
    assert_true(pthread_equal(job.thread, pthread_self()));
    assert_true(job.was_current);
    assert_false(ferry_worker_is_current(worker));

    /* Forbidden: then the parked thread is rung, long before its park time is over. */
    uint64_t before_ns = test_now_ns();
    run_once(worker, &job, false);
    assert_false(pthread_equal(job.thread, pthread_self()));
    assert_true(test_now_ns() - before_ns < FERRY_NS_PER_S / 2);
    ferry_worker_close(worker);
}

struct chain {
    struct ferry_job job;
    struct ferry_job next;
    uint32_t ran;
    uint32_t next_ran;
};

static void chain_next(struct ferry_worker *worker, struct ferry_job *job)
{
    (void)worker;
    struct chain *chain = FERRY_CONTAINER_OF(job, struct chain, next);

    chain->next_ran = chain->ran;
}

static void chain_run(struct ferry_worker *worker, struct ferry_job *job)
{
    struct chain *chain = FERRY_CONTAINER_OF(job, struct chain, job);

    ferry_worker_post(worker, &chain->next, true);
    assert_int_equal(chain->next_ran, 0); /* not inside this callback */
    chain->ran = 1;
}

static bool chain_done(void *arg)
{
    return ((struct chain *)arg)->next_ran == 1;
}

static void test_a_post_from_a_callback_runs_after_it(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 1000000);
    struct chain chain = {.job.run = chain_run, .next.run = chain_next};
    bool drove;

    assert_true(drive_for(worker, 20));
    ferry_worker_post(worker, &chain.job, true); /* inline, and what it posts too */
    assert_true(ferry_worker_drive(worker, chain_done, &chain, test_deadline_ms(WAIT_MS), &drove));
    ferry_worker_close(worker);
}

enum { POSTERS = 6, POSTS = 4000 };

struct numbered {
    struct ferry_job job;
    struct poster *poster;
    uint32_t number;
};

struct poster {
    struct ferry_worker *worker;
    struct numbered *jobs;
    uint32_t next;     /* holder of the baton only */
    uint32_t disorder; /* the same */
    _Atomic uint32_t ran;
    uint32_t index;
};

static void numbered_run(struct ferry_worker *worker, struct ferry_job *job)
{
    struct numbered *numbered = FERRY_CONTAINER_OF(job, struct numbered, job);
    struct poster *poster = numbered->poster;

    if (!ferry_worker_is_current(worker) || numbered->number != poster->next)
        poster->disorder++;
    poster->next = numbered->number + 1;
    atomic_fetch_add(&poster->ran, 1);
}

static void *poster_main(void *arg)
{
    struct poster *poster = arg;
    bool drove;

    for (uint32_t i = 0; i < POSTS; i++) {
        poster->jobs[i] = (struct numbered){.job.run = numbered_run, .poster = poster, .number = i};
        ferry_worker_post(poster->worker, &poster->jobs[i].job, (i + poster->index) % 3 != 0);
        if (i % 64 == 0)
            ferry_worker_drive(poster->worker, never, NULL, test_now_ns() + 50000, &drove);
    }
    return NULL;
}

static void test_jobs_of_many_posters_run_once_and_in_order(void **state)
{
    (void)state;
    for (int wait = FERRY_WAIT_ADAPTIVE; wait <= FERRY_WAIT_SLEEP; wait++) {
        struct ferry_worker *worker = open_worker((enum ferry_wait_mode)wait, 0);
        static struct poster posters[POSTERS];
        pthread_t threads[POSTERS];

        for (uint32_t i = 0; i < POSTERS; i++) {
            posters[i] = (struct poster){
                .worker = worker, .index = i, .jobs = calloc(POSTS, sizeof(struct numbered))};
            assert_non_null(posters[i].jobs);
            assert_int_equal(pthread_create(&threads[i], NULL, poster_main, &posters[i]), 0);
        }
        for (uint32_t i = 0; i < POSTERS; i++)
            pthread_join(threads[i], NULL);
        for (uint32_t i = 0; i < POSTERS; i++)
            assert_within_ms(atomic_load(&posters[i].ran) == POSTS, WAIT_MS);
        ferry_worker_close(worker);
        for (uint32_t i = 0; i < POSTERS; i++) {
            assert_int_equal(atomic_load(&posters[i].ran), POSTS);
            assert_int_equal(posters[i].disorder, 0);
            free(posters[i].jobs);
        }
    }
}

#define LONG_PARK_US 1000000u

struct racer {
    struct ferry_worker *worker;
    uint64_t slowest_ns;
};

/* Each post finds the other racer with the baton, or just letting go of it, or nobody. */
static void *race(void *arg)
{
    struct racer *racer = arg;
    uint64_t until_ns = test_now_ns() + FERRY_NS_PER_S;

    for (uint64_t now_ns; (now_ns = test_now_ns()) < until_ns;) {
        struct count_job job = {.job.run = count_run};

        ferry_worker_post(racer->worker, &job.job, true);
        while (atomic_load(&job.runs) == 0)
            ferry_cpu_relax();
        uint64_t took_ns = test_now_ns() - now_ns;
        racer->slowest_ns = took_ns > racer->slowest_ns ? took_ns : racer->slowest_ns;
    }
    return NULL;
}

/*
 * A job that is pushed at the moment at which the baton is let go belongs to one of the two. If
 * both thought it was the other's, it would lie for the whole park time, which is a second here.
 */
static void test_a_job_pushed_while_the_baton_is_let_go_is_not_left_lying(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, LONG_PARK_US);
    struct racer racers[2] = {{.worker = worker}, {.worker = worker}};
    pthread_t threads[2];

    assert_true(drive_for(worker, 20));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        assert_true(racers[i].slowest_ns < LONG_PARK_US * FERRY_NS_PER_US * 9 / 10);
    ferry_worker_close(worker);
}

/*
 * One poster, and a worker that goes to sleep after each job, while the pause before the next post
 * sweeps over the time that going to sleep takes. A job that falls between its last look into the
 * inbox and its sleep would lie for ever.
 */
static void test_a_job_pushed_while_the_driver_goes_to_sleep_is_not_left_lying(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 0);
    uint64_t until_ns = test_now_ns() + 2 * FERRY_NS_PER_S;

    for (uint64_t round = 0; test_now_ns() < until_ns; round++) {
        struct count_job job = {.job.run = count_run};
        uint64_t stuck_ns = test_deadline_ms(WAIT_MS);

        for (uint64_t i = 0; i < round % 512; i++)
            ferry_cpu_relax();
        ferry_worker_post(worker, &job.job, false);
        while (atomic_load(&job.runs) == 0)
            assert_true(test_now_ns() < stuck_ns);
    }
    ferry_worker_close(worker);
}

static void test_drive_ends_at_its_deadline(void **state)
{
    (void)state;
    for (int wait = FERRY_WAIT_ADAPTIVE; wait <= FERRY_WAIT_SPIN; wait++) {
        struct ferry_worker *worker = open_worker((enum ferry_wait_mode)wait, 0);
        uint64_t before_ns = test_now_ns();

        assert_true(drive_for(worker, 30));
        assert_true(test_now_ns() - before_ns >= 30 * FERRY_NS_PER_MS);
        ferry_worker_close(worker);
    }
}

struct nudger {
    struct ferry_worker *worker;
    _Atomic uint32_t flag;
};

static void *nudge_later(void *arg)
{
    struct nudger *nudger = arg;

    for (int i = 0; i < 50; i++)
        test_nap();
    atomic_store(&nudger->flag, 1);
    ferry_worker_nudge(nudger->worker);
    return NULL;
}

static void test_a_nudge_makes_a_driver_look_again(void **state)
{
    (void)state;
    struct nudger nudger = {.worker = open_worker(FERRY_WAIT_SLEEP, 0)};
    pthread_t thread;
    bool drove;

    for (int round = 0; round < 5; round++) {
        atomic_store(&nudger.flag, 0);
        assert_int_equal(pthread_create(&thread, NULL, nudge_later, &nudger), 0);
        uint64_t until_ns = test_deadline_ms(WAIT_MS);
        while (!ferry_worker_drive(nudger.worker, is_set, &nudger.flag, until_ns, &drove)) {
            assert_true(test_now_ns() < until_ns);
            test_nap();
        }
        pthread_join(thread, NULL);
    }
    ferry_worker_close(nudger.worker);
}

/* One byte over a socket pair, received by an op on the worker. */
struct mailbox {
    struct ferry_worker *worker;
    int fds[2];
    struct ferry_io io;
    struct ferry_op op;
    struct ferry_job job;
    unsigned char byte;
    _Atomic uint32_t got;
    _Atomic uint32_t closed;
};

static void mailbox_arm(struct mailbox *box);

static void mailbox_done(struct ferry_op *op, int64_t result)
{
    struct mailbox *box = FERRY_CONTAINER_OF(op, struct mailbox, op);

    if (result <= 0) {
        ferry_reactor_detach(ferry_worker_reactor(box->worker), &box->io);
        atomic_store(&box->closed, 1);
        return;
    }
    atomic_fetch_add(&box->got, 1);
    mailbox_arm(box);
}

static void mailbox_arm(struct mailbox *box)
{
    box->op = (struct ferry_op){
        .kind = FERRY_OP_RECV, .done = mailbox_done, .io = &box->io, .buf = &box->byte, .len = 1};
    ferry_reactor_submit(ferry_worker_reactor(box->worker), &box->op);
}

static void mailbox_start(struct ferry_worker *worker, struct ferry_job *job)
{
    struct mailbox *box = FERRY_CONTAINER_OF(job, struct mailbox, job);

    assert_ok(ferry_reactor_attach(ferry_worker_reactor(worker), &box->io, box->fds[0]));
    mailbox_arm(box);
}

static void mailbox_open(struct mailbox *box, struct ferry_worker *worker)
{
    *box = (struct mailbox){.worker = worker, .job.run = mailbox_start};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, box->fds), 0);
    ferry_worker_post(worker, &box->job, true);
}

static void mailbox_close(struct mailbox *box)
{
    close(box->fds[1]);
    assert_within_ms(atomic_load(&box->closed) == 1, WAIT_MS);
    close(box->fds[0]);
}

/* The last caller is gone and something arrives: the worker's thread is back by itself. */
static void test_nothing_is_left_lying_when_callers_stop_coming(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 0);
    struct mailbox box;

    mailbox_open(&box, worker);
    for (uint32_t round = 1; round <= 20; round++) {
        drive_for(worker, 3);
        assert_int_equal(write(box.fds[1], "x", 1), 1);
        assert_within_ms(atomic_load(&box.got) == round, WAIT_MS);
    }
    mailbox_close(&box);
    ferry_worker_close(worker);
}

static void test_a_driver_receives_what_arrives_meanwhile(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 1000000);
    struct mailbox box;
    bool drove;

    mailbox_open(&box, worker);
    assert_true(drive_for(worker, 20));
    for (uint32_t round = 1; round <= 100; round++) {
        assert_int_equal(write(box.fds[1], "x", 1), 1);
        while (!ferry_worker_drive(worker, is_set, &box.got, test_deadline_ms(WAIT_MS), &drove))
            test_nap();
        atomic_store(&box.got, 0);
    }
    mailbox_close(&box);
    ferry_worker_close(worker);
}

/* How often the worker's thread has gone to sleep so far. */
static uint64_t sleeps_of_worker(void)
{
    uint64_t sum = 0;
    DIR *dir = opendir("/proc/self/task");

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[300];
        char line[200];
        unsigned long count;
        bool is_worker = false;

        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        while (fgets(line, sizeof(line), file) != NULL) {
            is_worker |= strcmp(line, "Name:\tw0\n") == 0;
            if (is_worker && sscanf(line, "voluntary_ctxt_switches: %lu", &count) == 1)
                sum += count;
        }
        fclose(file);
    }
    closedir(dir);
    return sum;
}

/* Not "few wake-ups" but none: a thread that sleeps without a limit has nothing to wake up for. */
static void test_idle_means_no_wakeups_at_all(void **state)
{
    (void)state;
    struct ferry_worker *worker = open_worker(FERRY_WAIT_ADAPTIVE, 0);
    struct mailbox box;
    struct timespec pause = {.tv_nsec = 300000000};

    mailbox_open(&box, worker);
    drive_for(worker, 5);
    /* The park time passes, the thread takes the baton back, spins out, and sleeps. */
    uint64_t before = sleeps_of_worker();
    uint64_t same = 0;
    for (int i = 0; i < 100 && same < 20; i++) {
        test_nap();
        uint64_t now = sleeps_of_worker();
        same = now == before ? same + 1 : 0;
        before = now;
    }
    double cpu_before = ferry_worker_cpu_seconds(worker);
    nanosleep(&pause, NULL); /* the time in which nothing may happen */
    assert_int_equal(sleeps_of_worker(), before);
    assert_true(ferry_worker_cpu_seconds(worker) - cpu_before < 0.001);
    mailbox_close(&box);
    ferry_worker_close(worker);
}

struct long_driver {
    struct ferry_worker *worker;
    _Atomic uint32_t looked; /* it is inside the drive: its condition was asked */
};

static bool look(void *arg)
{
    atomic_store(&((struct long_driver *)arg)->looked, 1);
    return false;
}

static void *drive_until_closed(void *arg)
{
    struct long_driver *driver = arg;
    bool drove;

    ferry_worker_drive(driver->worker, look, driver, test_deadline_ms(2 * WAIT_MS), &drove);
    return NULL;
}

static void test_close_ends_a_drive_in_progress(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct long_driver driver = {.worker = open_worker(FERRY_WAIT_SLEEP, 0)};
        struct count_job job;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, drive_until_closed, &driver), 0);
        if (round % 2 == 0) {
            for (int i = 0; i < 10; i++)
                test_nap();
            run_once(driver.worker, &job, round % 4 == 0);
        }
        assert_within_ms(atomic_load(&driver.looked) == 1, WAIT_MS);
        uint64_t before_ns = test_now_ns();
        ferry_worker_close(driver.worker);
        pthread_join(thread, NULL);
        assert_true(test_now_ns() - before_ns < WAIT_MS * FERRY_NS_PER_MS / 2);
    }
}

struct canceled_poster {
    struct ferry_worker *worker;
    struct count_job job;
    bool nudges;
    _Atomic uint32_t closed;
};

/* The cancel is pending when the call begins; ringing a sleeping driver is a point where it acts.
 */
static void *post_while_canceled(void *arg)
{
    struct canceled_poster *poster = arg;

    pthread_cancel(pthread_self());
    if (poster->nudges)
        ferry_worker_nudge(poster->worker);
    else
        ferry_worker_post(poster->worker, &poster->job.job, false);
    pthread_testcancel();
    return NULL;
}

static void *close_it(void *arg)
{
    struct canceled_poster *poster = arg;

    ferry_worker_close(poster->worker);
    atomic_store(&poster->closed, 1);
    return NULL;
}

/* A thread that the host canceled inside a post stayed counted, and close waited for it for ever.
 */
static void test_close_does_not_wait_for_a_canceled_poster(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        struct canceled_poster poster = {.worker = open_worker(FERRY_WAIT_SLEEP, 0),
                                         .job = {.job.run = count_run},
                                         .nudges = round % 2 != 0};
        pthread_t thread;
        void *result;

        for (int i = 0; i < 10; i++)
            test_nap(); /* long enough to fall asleep */
        assert_int_equal(pthread_create(&thread, NULL, post_while_canceled, &poster), 0);
        pthread_join(thread, &result);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        assert_int_equal(pthread_create(&thread, NULL, close_it, &poster), 0);
        assert_within_ms(atomic_load(&poster.closed) == 1, WAIT_MS);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&poster.job.runs), poster.nudges ? 0 : 1);
    }
}

static void test_close_runs_the_jobs_that_are_left(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 0);
        static struct count_job jobs[32];

        for (int i = 0; i < 32; i++) {
            jobs[i] = (struct count_job){.job.run = count_run};
            ferry_worker_post(worker, &jobs[i].job, i % 2 == 0);
        }
        ferry_worker_close(worker);
        for (int i = 0; i < 32; i++)
            assert_int_equal(atomic_load(&jobs[i].runs), 1);
    }
}

static void test_open_refuses_what_makes_no_sense(void **state)
{
    (void)state;
    struct ferry_worker_options options = {.name = "sixteen-bytes-xx"};
    struct ferry_worker *worker = NULL;

    assert_status(ferry_worker_open(&options, &worker), FERRY_ERR_INVALID);
    options = (struct ferry_worker_options){.name = ""};
    assert_status(ferry_worker_open(&options, &worker), FERRY_ERR_INVALID);
    options = (struct ferry_worker_options){.name = "w", .park_us = 2000000};
    assert_status(ferry_worker_open(&options, &worker), FERRY_ERR_INVALID);
    options = (struct ferry_worker_options){.name = "w", .reactor.queue_depth = 100000};
    assert_status(ferry_worker_open(&options, &worker), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "queue_depth"));
    assert_null(worker);
    ferry_worker_close(NULL);
}

static void test_nothing_leaks(void **state)
{
    (void)state;
    int fds = process_fd_count();
    int threads = process_thread_count();

    for (int i = 0; i < 20; i++) {
        struct ferry_worker *worker = open_worker(FERRY_WAIT_SLEEP, 0);
        struct mailbox box;

        mailbox_open(&box, worker);
        drive_for(worker, 2);
        mailbox_close(&box);
        ferry_worker_close(worker);
    }
    assert_int_equal(process_fd_count(), fds);
    assert_within_ms(process_thread_count() == threads, WAIT_MS);
}

static void test_a_threadless_worker_is_turned_by_its_owner(void **state)
{
    (void)state;
    struct ferry_worker_options options = {
        .name = "rig", .reactor.kind = kind_now, .threadless = true};
    struct ferry_worker *worker = NULL;
    struct mailbox box;
    struct count_job job = {.job.run = count_run};
    bool drove;

    assert_ok(ferry_worker_open(&options, &worker));
    assert_true(ferry_worker_is_current(worker));
    ferry_worker_post(worker, &job.job, false);
    assert_int_equal(atomic_load(&job.runs), 0); /* waits for the turn */
    ferry_worker_turn(worker);
    assert_int_equal(atomic_load(&job.runs), 1);
    mailbox_open(&box, worker); /* inline */
    assert_int_equal(write(box.fds[1], "x", 1), 1);
    for (int i = 0; i < 10 && atomic_load(&box.got) == 0; i++)
        ferry_worker_turn(worker);
    assert_int_equal(atomic_load(&box.got), 1);
    assert_false(ferry_worker_drive(worker, never, NULL, FERRY_NEVER_NS, &drove));
    assert_false(drove);
    close(box.fds[1]);
    for (int i = 0; i < 10 && atomic_load(&box.closed) == 0; i++)
        ferry_worker_turn(worker);
    assert_int_equal(atomic_load(&box.closed), 1);
    close(box.fds[0]);
    ferry_worker_close(worker);
}

static const struct CMUnitTest worker_tests[] = {
    cmocka_unit_test(test_a_posted_job_runs_on_the_holder_of_the_baton),
    cmocka_unit_test(test_a_free_baton_lets_the_poster_run_its_job),
    cmocka_unit_test(test_a_post_from_a_callback_runs_after_it),
    cmocka_unit_test(test_jobs_of_many_posters_run_once_and_in_order),
    cmocka_unit_test(test_a_job_pushed_while_the_baton_is_let_go_is_not_left_lying),
    cmocka_unit_test(test_a_job_pushed_while_the_driver_goes_to_sleep_is_not_left_lying),
    cmocka_unit_test(test_drive_ends_at_its_deadline),
    cmocka_unit_test(test_a_nudge_makes_a_driver_look_again),
    cmocka_unit_test(test_nothing_is_left_lying_when_callers_stop_coming),
    cmocka_unit_test(test_a_driver_receives_what_arrives_meanwhile),
    cmocka_unit_test(test_idle_means_no_wakeups_at_all),
    cmocka_unit_test(test_close_ends_a_drive_in_progress),
    cmocka_unit_test(test_close_does_not_wait_for_a_canceled_poster),
    cmocka_unit_test(test_close_runs_the_jobs_that_are_left),
    cmocka_unit_test(test_open_refuses_what_makes_no_sense),
    cmocka_unit_test(test_nothing_leaks),
    cmocka_unit_test(test_a_threadless_worker_is_turned_by_its_owner),
};

int main(void)
{
    int failed = 0;

    for (int kind = FERRY_REACTOR_URING; kind <= FERRY_REACTOR_EPOLL; kind++) {
        struct ferry_reactor_options options = {.kind = (enum ferry_reactor_kind)kind};
        struct ferry_reactor *reactor = NULL;

        kind_now = (enum ferry_reactor_kind)kind;
        if (ferry_reactor_open(&options, &reactor) != FERRY_OK) {
            print_message("NOT PROVED: reactor kind %d: %s\n", kind, ferry_last_error_text());
            continue;
        }
        ferry_reactor_close(reactor);
        failed += cmocka_run_group_tests_name(kind == FERRY_REACTOR_URING ? "uring" : "epoll",
                                              worker_tests, NULL, NULL);
    }
    return failed;
}
