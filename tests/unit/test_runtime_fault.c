/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fault decorator: its text form, and that each action does what the manual says and counts.
 */
#include <pthread.h>
#include <string.h>

#include <ferry/ferry.h>

#include "runtime/runtime.h"
#include "runtime/seams.h"
#include "support/pattern.h"
#include "support/test.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"

#define LENGTH 4096u

struct rig {
    struct ferry_engine *engine;
    struct ferry_transport *fault;
    unsigned char *local, *remote;
    uint64_t batch;
};

static int rig_set_up(void **state)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct rig *rig = calloc(1, sizeof(*rig));
    struct ferry_config *config = NULL;
    void *addr;

    assert_non_null(rig);
    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "transports.fault.enable", "true", FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &rig->engine));
    ferry_config_destroy(config);
    rig->fault = ferry_engine_transport(rig->engine, "loop");
    assert_ok(ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr));
    rig->local = addr;
    assert_ok(ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    rig->remote = addr;
    pattern_fill(rig->local, LENGTH, 1, 0);
    pattern_fill(rig->remote, LENGTH, 2, 0);
    assert_ok(ferry_batch_create(rig->engine, 16, &rig->batch));
    *state = rig;
    return 0;
}

static int rig_tear_down(void **state)
{
    struct rig *rig = *state;

    assert_ok(ferry_engine_close(rig->engine));
    free(rig);
    return 0;
}

static enum ferry_status submit(struct rig *rig, enum ferry_opcode opcode)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.opcode = opcode;
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = LENGTH;
    return ferry_batch_submit(rig->engine, rig->batch, &request, 1);
}

static struct ferry_task_status task_of(struct rig *rig, uint32_t task)
{
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;

    assert_ok(ferry_task_status(rig->engine, rig->batch, task, &status));
    return status;
}

static void wait_all(struct rig *rig)
{
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
}

static void add(struct rig *rig, enum ferry_fault_action action, uint64_t delay_ms)
{
    struct ferry_fault_rule rule = ferry_fault_rule_of(action);

    rule.delay_ns = delay_ms * 1000000;
    ferry_fault_add(rig->fault, &rule);
}

static void test_rules_are_read_strictly(void **state)
{
    static const char *const wrong[] = {
        "do=explode",
        "do",
        "op=read",
        "do=fail,op=both",
        "do=fail,status=ERR_NO_SUCH",
        "do=fail,status=OK",
        "do=delay,delay_ms=-1",
        "do=fail,chance=0",
        "do=fail,chance=101",
        "do=fail,every=0",
        "do=fail,colour=red",
        "do=fail;do=nothing",
    };
    struct ferry_fault_rule rules[FERRY_FAULT_RULES_MAX];
    uint32_t count;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_status(ferry_fault_rules_parse(wrong[i], rules, &count), FERRY_ERR_CONFIG);
    assert_ok(ferry_fault_rules_parse("", rules, &count));
    assert_int_equal(count, 0);
    assert_ok(ferry_fault_rules_parse("do=fail, op=write, status=ERR_PEER_GONE, skip=3, count=1;"
                                      " do=delay,delay_ms=20,every=2,chance=50,op=read;",
                                      rules, &count));
    assert_int_equal(count, 2);
    assert_int_equal(rules[0].action, FERRY_FAULT_FAIL);
    assert_false(rules[0].read);
    assert_true(rules[0].write);
    assert_int_equal(rules[0].status, FERRY_ERR_PEER_GONE);
    assert_int_equal(rules[0].skip, 3);
    assert_int_equal(rules[0].count, 1);
    assert_int_equal(rules[1].delay_ns, 20000000);
    assert_int_equal(rules[1].every, 2);
    assert_int_equal(rules[1].chance, 50);
    assert_false(rules[1].write);
}

static void test_rule_fires_as_often_as_it_says(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_FAIL);

    rule.read = false;
    rule.skip = 2;
    rule.every = 3;
    rule.count = 2;
    rule.status = FERRY_ERR_PEER_GONE;
    ferry_fault_add(rig->fault, &rule);
    for (uint32_t i = 0; i < 12; i++)
        assert_ok(submit(rig, FERRY_WRITE));
    assert_ok(submit(rig, FERRY_READ));
    wait_all(rig);
    for (uint32_t i = 0; i < 13; i++)
        assert_int_equal(task_of(rig, i).status, i == 2 || i == 5 ? FERRY_ERR_PEER_GONE : FERRY_OK);
    assert_int_equal(ferry_fault_fired(rig->fault, 0), 2);
}

static void test_refuse_and_fail_move_nothing(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_REFUSE);

    rule.status = FERRY_ERR_QUEUE_FULL;
    rule.count = 1;
    ferry_fault_add(rig->fault, &rule);
    assert_status(submit(rig, FERRY_WRITE), FERRY_ERR_QUEUE_FULL);
    add(rig, FERRY_FAULT_FAIL, 0);
    assert_ok(submit(rig, FERRY_WRITE));
    wait_all(rig);
    assert_int_equal(task_of(rig, 0).status, FERRY_ERR_PATH_DOWN);
    assert_int_equal(pattern_differs(rig->remote, LENGTH, 2, 0), PATTERN_SAME);
}

static void test_fail_after_moves_and_fails(void **state)
{
    struct rig *rig = *state;

    add(rig, FERRY_FAULT_FAIL_AFTER, 0);
    assert_ok(submit(rig, FERRY_WRITE));
    wait_all(rig);
    assert_int_equal(task_of(rig, 0).state, FERRY_TASK_FAILED);
    assert_int_equal(pattern_differs(rig->remote, LENGTH, 1, 0), PATTERN_SAME);
}

static void test_delays_last_as_long_as_they_say(void **state)
{
    struct rig *rig = *state;
    uint64_t begin = test_now_ns();

    add(rig, FERRY_FAULT_DELAY, 30);
    assert_ok(submit(rig, FERRY_READ));
    wait_all(rig);
    assert_true(test_now_ns() - begin >= 30000000u);
    ferry_fault_clear(rig->fault);
    add(rig, FERRY_FAULT_DELAY_END, 30);
    begin = test_now_ns();
    assert_ok(submit(rig, FERRY_READ));
    wait_all(rig);
    assert_true(test_now_ns() - begin >= 30000000u);
    assert_int_equal(task_of(rig, 1).state, FERRY_TASK_COMPLETED);
}

static void test_dropped_requests_wait_for_release_deadline_or_cancel(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = FERRY_REQUEST_INIT;

    add(rig, FERRY_FAULT_DROP, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(submit(rig, FERRY_READ));
    assert_within_ms(ferry_fault_kept(rig->fault) == 3, 5000);
    assert_ok(ferry_task_cancel(rig->engine, rig->batch, 1));
    assert_within_ms(task_of(rig, 1).state == FERRY_TASK_CANCELED, 5000);
    assert_int_equal(ferry_fault_kept(rig->fault), 2);
    ferry_fault_release(rig->fault, FERRY_OK);
    wait_all(rig);
    assert_int_equal(task_of(rig, 0).state, FERRY_TASK_COMPLETED);
    assert_int_equal(pattern_differs(rig->local, LENGTH, 2, 0), PATTERN_SAME);
    assert_ok(submit(rig, FERRY_READ));
    assert_within_ms(ferry_fault_kept(rig->fault) == 1, 5000);
    ferry_fault_release(rig->fault, FERRY_ERR_PEER_GONE);
    wait_all(rig);
    assert_int_equal(task_of(rig, 3).status, FERRY_ERR_PEER_GONE);
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = 1;
    request.deadline_ns = test_deadline_ms(20);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    wait_all(rig);
    assert_int_equal(task_of(rig, 4).state, FERRY_TASK_TIMED_OUT);
}

static void test_held_ends_are_told_at_release(void **state)
{
    struct rig *rig = *state;

    add(rig, FERRY_FAULT_HOLD, 0);
    assert_ok(submit(rig, FERRY_WRITE));
    assert_within_ms(ferry_fault_kept(rig->fault) == 1, 5000);
    /* It has run; only the end is missing. */
    assert_int_equal(pattern_differs(rig->remote, LENGTH, 1, 0), PATTERN_SAME);
    assert_int_equal(task_of(rig, 0).state, FERRY_TASK_PENDING);
    ferry_fault_release(rig->fault, FERRY_OK);
    wait_all(rig);
    assert_int_equal(task_of(rig, 0).state, FERRY_TASK_COMPLETED);
}

static void test_duplicate_runs_twice_and_ends_once(void **state)
{
    struct rig *rig = *state;
    char *before, *after;

    add(rig, FERRY_FAULT_DUPLICATE, 0);
    assert_ok(ferry_engine_report(rig->engine, FERRY_REPORT_TRANSPORTS, &before));
    assert_non_null(strstr(before, "\"tasks_ended\":0"));
    assert_ok(submit(rig, FERRY_WRITE));
    wait_all(rig);
    assert_ok(ferry_engine_report(rig->engine, FERRY_REPORT_TRANSPORTS, &after));
    assert_non_null(strstr(after, "\"tasks_ended\":2"));
    assert_int_equal(task_of(rig, 0).state, FERRY_TASK_COMPLETED);
    ferry_text_free(before);
    ferry_text_free(after);
}

struct part_waiter {
    struct rig *rig;
    struct ferry_worker *worker;
    uint32_t ended_min;
    _Atomic uint32_t state; /* 1: waits, 2: has returned */
    enum ferry_status status;
};

static void *wait_for_part(void *arg)
{
    struct part_waiter *waiter = arg;

    atomic_store(&waiter->state, 1);
    waiter->status = ferry_batch_wait_progress(waiter->rig->engine, waiter->rig->batch,
                                               waiter->ended_min, test_deadline_ms(20000), NULL);
    atomic_store(&waiter->state, 2);
    return NULL;
}

/*
 * A waiter that drives the worker of its tasks while one of them ends elsewhere (with the keeper,
 * or after it went over to another worker): it has to hear of that, also if it waits for a part of
 * the batch only, and although somebody else, who wanted less, was told before. Otherwise it sleeps
 * in a reactor where nothing happens any more.
 */
static void test_waiter_for_a_part_hears_of_ends_on_other_workers(void **state)
{
    struct rig *rig = *state;
    struct ferry_batch *batch = ferry_pool_get(&rig->engine->batches, rig->batch);
    struct ferry_worker_options options = {.name = "elsewhere", .wait = FERRY_WAIT_SLEEP};
    struct part_waiter waiters[] = {{.rig = rig, .ended_min = 2}, {.rig = rig, .ended_min = 1}};
    struct ferry_worker *worker = NULL;
    pthread_t threads[2];

    assert_ok(ferry_worker_open(&options, &worker));
    add(rig, FERRY_FAULT_DROP, 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_ok(submit(rig, FERRY_READ));
    assert_within_ms(ferry_fault_kept(rig->fault) == 3, 5000);
    for (uint32_t i = 0; i < 3; i++)
        atomic_store(&batch->tasks[i].xfer.driver, worker);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_part, &waiters[i]), 0);
        assert_within_ms(atomic_load(&waiters[i].state) == 1, 5000);
        /* The first drives; the second finds that and sleeps on the batch. */
        assert_within_ms(atomic_load(&batch->driven) != NULL, 5000);
    }
    assert_within_ms(atomic_load(&batch->sleepers) == 1, 5000);
    assert_ok(ferry_task_cancel(rig->engine, rig->batch, 0));
    assert_within_ms(atomic_load(&waiters[1].state) == 2, 5000);
    assert_int_equal(atomic_load(&waiters[0].state), 1);
    assert_ok(ferry_task_cancel(rig->engine, rig->batch, 1));
    assert_within_ms(atomic_load(&waiters[0].state) == 2, 5000);
    for (uint32_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_ok(waiters[i].status);
    }
    ferry_worker_close(worker);
    assert_ok(ferry_batch_cancel(rig->engine, rig->batch));
    atomic_store(&batch->tasks[2].xfer.driver, NULL);
    wait_all(rig);
}

struct canceler {
    struct rig *rig;
    _Atomic bool stop;
};

static void *cancel_all_the_time(void *arg)
{
    struct canceler *canceler = arg;

    while (!atomic_load(&canceler->stop))
        assert_ok(ferry_batch_cancel(canceler->rig->engine, canceler->rig->batch));
    return NULL;
}

/*
 * The slots of a refused submit are used by the next one. A cancel that had seen them meanwhile
 * marked a task that was not its own, and found the mark gone when it told the transport, which is
 * an assertion.
 */
static void test_cancel_meets_no_slot_of_a_refused_submit(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_REFUSE);
    struct canceler canceler = {.rig = rig};
    struct ferry_request requests[16];
    pthread_t thread;

    rule.status = FERRY_ERR_QUEUE_FULL;
    ferry_fault_add(rig->fault, &rule);
    for (uint32_t i = 0; i < 16; i++) {
        requests[i] = (struct ferry_request)FERRY_REQUEST_INIT;
        requests[i].local = rig->local;
        requests[i].remote_offset = (uintptr_t)rig->remote;
        requests[i].length = LENGTH;
    }
    assert_int_equal(pthread_create(&thread, NULL, cancel_all_the_time, &canceler), 0);
    for (uint64_t until_ns = test_deadline_ms(1000); test_now_ns() < until_ns;)
        assert_status(ferry_batch_submit(rig->engine, rig->batch, requests, 16),
                      FERRY_ERR_QUEUE_FULL);
    atomic_store(&canceler.stop, true);
    pthread_join(thread, NULL);
}

/* Close ends what is dropped or held, in time. */
static void test_close_does_not_wait_for_what_is_kept(void **state)
{
    struct rig *rig = *state;

    add(rig, FERRY_FAULT_DROP, 0);
    assert_ok(submit(rig, FERRY_READ));
    assert_within_ms(ferry_fault_kept(rig->fault) == 1, 5000);
    ferry_fault_clear(rig->fault);
    add(rig, FERRY_FAULT_HOLD, 0);
    assert_ok(submit(rig, FERRY_READ));
    assert_within_ms(ferry_fault_kept(rig->fault) == 2, 5000);
}

static void test_table_that_disagrees_with_its_capabilities_is_refused(void **state)
{
    struct ferry_transport_ops merged;
    struct ferry_transport_ops ops = ferry_loop_ops;

    (void)state;
    assert_ok(ferry_transport_ops_merge(&ops, &merged));
    ops.cancel = NULL;
    assert_status(ferry_transport_ops_merge(&ops, &merged), FERRY_ERR_INTERNAL);
    ops.caps &= ~FERRY_CAP_CANCEL;
    assert_ok(ferry_transport_ops_merge(&ops, &merged));
    assert_non_null(merged.cancel);
    ops.caps &= ~FERRY_CAP_REVOKE;
    assert_status(ferry_transport_ops_merge(&ops, &merged), FERRY_ERR_INTERNAL);
    ops.revoke = NULL;
    assert_ok(ferry_transport_ops_merge(&ops, &merged));
    ops.name = "Loop";
    assert_status(ferry_transport_ops_merge(&ops, &merged), FERRY_ERR_INTERNAL);
    ops.name = "loop";
    ops.submit = NULL;
    assert_status(ferry_transport_ops_merge(&ops, &merged), FERRY_ERR_INTERNAL);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_are_read_strictly),
        cmocka_unit_test(test_table_that_disagrees_with_its_capabilities_is_refused),
        RIG_TEST(test_rule_fires_as_often_as_it_says),
        RIG_TEST(test_refuse_and_fail_move_nothing),
        RIG_TEST(test_fail_after_moves_and_fails),
        RIG_TEST(test_delays_last_as_long_as_they_say),
        RIG_TEST(test_dropped_requests_wait_for_release_deadline_or_cancel),
        RIG_TEST(test_held_ends_are_told_at_release),
        RIG_TEST(test_duplicate_runs_twice_and_ends_once),
        RIG_TEST(test_waiter_for_a_part_hears_of_ends_on_other_workers),
        RIG_TEST(test_cancel_meets_no_slot_of_a_refused_submit),
        RIG_TEST(test_close_does_not_wait_for_what_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
