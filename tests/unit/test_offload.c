/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pool of threads for blocking calls: every job runs and is handed back once, a job that waits
 * can be taken back, the number of threads is bounded, close leaves nothing behind.
 */
#include "test.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "offload/offload.h"

#define WAIT_MS 20000

static _Atomic uint32_t gate;
static _Atomic uint32_t running;
static _Atomic uint32_t running_most;

struct job {
    struct ferry_offload_job job;
    _Atomic uint32_t runs;
    _Atomic uint32_t dones;
};

static void run_gated(struct ferry_offload_job *offload_job)
{
    struct job *job = FERRY_CONTAINER_OF(offload_job, struct job, job);
    uint32_t now = atomic_fetch_add(&running, 1) + 1;
    uint32_t most = atomic_load(&running_most);

    while (now > most && !atomic_compare_exchange_weak(&running_most, &most, now))
        ;
    while (atomic_load(&gate) == 0)
        test_nap();
    atomic_fetch_sub(&running, 1);
    atomic_fetch_add(&job->runs, 1);
}

static void hand_back(struct ferry_offload_job *offload_job)
{
    struct job *job = FERRY_CONTAINER_OF(offload_job, struct job, job);

    atomic_fetch_add(&job->dones, 1);
}

static void submit(struct ferry_offload *pool, struct job *job)
{
    *job = (struct job){.job = {.run = run_gated, .done = hand_back}};
    assert_ok(ferry_offload_submit(pool, &job->job));
}

/* Threads of the pool, by their name; a sanitizer has threads of its own. */
static int pool_threads(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/task");

    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[300];
        char name[32] = "";

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        if (fgets(name, sizeof(name), file) != NULL && strcmp(name, "pool\n") == 0)
            count++;
        fclose(file);
    }
    closedir(dir);
    return count;
}

static void test_every_job_runs_once_on_a_bounded_number_of_threads(void **state)
{
    (void)state;
    static struct job jobs[200];
    struct ferry_offload *pool = NULL;

    atomic_store(&gate, 0);
    atomic_store(&running_most, 0);
    assert_ok(ferry_offload_open("pool", 3, &pool));
    assert_int_equal(pool_threads(), 0); /* none before there is work */
    for (int i = 0; i < 200; i++)
        submit(pool, &jobs[i]);
    assert_within_ms(atomic_load(&running) == 3, WAIT_MS);
    assert_within_ms(pool_threads() == 3, WAIT_MS);
    atomic_store(&gate, 1);
    for (int i = 0; i < 200; i++)
        assert_within_ms(atomic_load(&jobs[i].dones) == 1, WAIT_MS);
    ferry_offload_close(pool);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(atomic_load(&jobs[i].runs), 1);
        assert_int_equal(atomic_load(&jobs[i].dones), 1);
    }
    assert_int_equal(atomic_load(&running_most), 3);
    assert_within_ms(pool_threads() == 0, WAIT_MS);
}

static void test_a_waiting_job_can_be_taken_back_and_a_running_one_not(void **state)
{
    (void)state;
    struct job first, second;
    struct ferry_offload *pool = NULL;

    atomic_store(&gate, 0);
    assert_ok(ferry_offload_open("pool", 1, &pool));
    submit(pool, &first);
    assert_within_ms(atomic_load(&running) == 1, WAIT_MS);
    submit(pool, &second);
    assert_false(ferry_offload_cancel(pool, &first.job));
    assert_true(ferry_offload_cancel(pool, &second.job));
    assert_false(ferry_offload_cancel(pool, &second.job));
    atomic_store(&gate, 1);
    ferry_offload_close(pool);
    assert_int_equal(atomic_load(&first.dones), 1);
    assert_int_equal(atomic_load(&second.runs), 0);
    assert_int_equal(atomic_load(&second.dones), 0);
}

static void test_close_finishes_what_is_queued(void **state)
{
    (void)state;
    static struct job jobs[50];

    atomic_store(&gate, 1);
    for (int round = 0; round < 50; round++) {
        struct ferry_offload *pool = NULL;

        assert_ok(ferry_offload_open("pool", 2, &pool));
        for (int i = 0; i < 50; i++)
            submit(pool, &jobs[i]);
        ferry_offload_close(pool);
        for (int i = 0; i < 50; i++)
            assert_int_equal(atomic_load(&jobs[i].dones), 1);
    }
}

static void test_open_checks_its_arguments(void **state)
{
    (void)state;
    struct ferry_offload *pool = NULL;

    assert_status(ferry_offload_open("pool", 0, &pool), FERRY_ERR_INVALID);
    assert_status(ferry_offload_open("pool", FERRY_OFFLOAD_THREADS_MAX + 1, &pool),
                  FERRY_ERR_INVALID);
    ferry_offload_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_job_runs_once_on_a_bounded_number_of_threads),
        cmocka_unit_test(test_a_waiting_job_can_be_taken_back_and_a_running_one_not),
        cmocka_unit_test(test_close_finishes_what_is_queued),
        cmocka_unit_test(test_open_checks_its_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
