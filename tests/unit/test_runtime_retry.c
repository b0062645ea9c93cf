/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to tasks between a stale registration and their second try. Two engines over hp_tcp,
 * whose descriptions live in a store that the test controls; stale answers are made by the fault
 * decorator of the initiator.
 */
#include <pthread.h>
#include <string.h>

#include <ferry/ferry.h>

#include "runtime/seams.h"
#include "support/pattern.h"
#include "support/test.h"
#include "transport/fault/fault.h"
#include "unit/runtime_store.h"

#define SLOTS  64u
#define LENGTH 4096u

struct rig {
    struct test_store *store;
    struct ferry_engine *initiator;
    struct ferry_engine *target;
    struct ferry_transport *fault;
    uint64_t segment;
    unsigned char *local;
    unsigned char *remote;
    unsigned char *own; /* the initiator's, reachable through its own segment */
    uint64_t batch;
};

static struct ferry_engine *open_engine(struct rig *rig, const char *name)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine_seams seams = {.store = &rig->store->base};
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "transports.fault.enable", "true", FERRY_ORIGIN_API));
    /* Lists go piece by piece, as over a transport that cannot take them. */
    assert_ok(ferry_config_set(config, "transports.fault.lists", "false", FERRY_ORIGIN_API));
    options.config = config;
    options.segment_name = name;
    assert_ok(ferry_engine_open_with(&options, &seams, &engine));
    ferry_config_destroy(config);
    return engine;
}

static int rig_set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    void *addr;

    assert_non_null(rig);
    rig->store = test_store_open();
    rig->initiator = open_engine(rig, "initiator");
    rig->target = open_engine(rig, "target");
    rig->fault = ferry_engine_transport(rig->initiator, "hp_tcp");
    assert_ok(
        ferry_memory_alloc(rig->initiator, SLOTS * LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr));
    rig->local = addr;
    assert_ok(
        ferry_memory_alloc(rig->target, SLOTS * LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    rig->remote = addr;
    pattern_fill(rig->remote, SLOTS * LENGTH, 5, 0);
    assert_ok(ferry_memory_alloc(rig->initiator, SLOTS * LENGTH, NULL, FERRY_PERMISSION_READ_ONLY,
                                 &addr));
    rig->own = addr;
    pattern_fill(rig->own, SLOTS * LENGTH, 6, 0);
    assert_ok(ferry_segment_open(rig->initiator, "target", test_deadline_ms(5000), &rig->segment));
    assert_ok(ferry_batch_create(rig->initiator, SLOTS, &rig->batch));
    *state = rig;
    return 0;
}

static int rig_tear_down(void **state)
{
    struct rig *rig = *state;

    test_store_hold(rig->store, FERRY_STORE_GET, false);
    if (rig->initiator != NULL)
        assert_ok(ferry_engine_close(rig->initiator));
    assert_ok(ferry_engine_close(rig->target));
    test_store_close(rig->store);
    free(rig);
    return 0;
}

/* The initiator's next @count requests end as stale, as if the peer had said so. */
static void make_stale(struct rig *rig, uint32_t count)
{
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_FAIL);

    rule.status = FERRY_ERR_STALE_KEY;
    rule.count = count;
    ferry_fault_clear(rig->fault);
    ferry_fault_add(rig->fault, &rule);
}

/* Change the peer's registration ids, so that its description differs. */
static void register_anew(struct rig *rig)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    range.addr = rig->remote;
    range.length = SLOTS * LENGTH;
    assert_ok(ferry_memory_unregister(rig->target, &range, 1, 1000000000));
    assert_ok(ferry_memory_register(rig->target, &range, 1));
}

static void submit_reads(struct rig *rig, uint32_t count, uint64_t deadline_ns)
{
    struct ferry_request requests[SLOTS];

    for (uint32_t i = 0; i < count; i++) {
        requests[i] = (struct ferry_request)FERRY_REQUEST_INIT;
        requests[i].local = rig->local + i * LENGTH;
        requests[i].remote_offset = (uintptr_t)rig->remote + i * LENGTH;
        requests[i].segment = rig->segment;
        requests[i].length = LENGTH;
        requests[i].deadline_ns = deadline_ns;
    }
    assert_ok(ferry_batch_submit(rig->initiator, rig->batch, requests, count));
}

static uint32_t count_in(struct rig *rig, uint32_t count, enum ferry_task_state wanted)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct ferry_task_status status = FERRY_TASK_STATUS_INIT;

        assert_ok(ferry_task_status(rig->initiator, rig->batch, i, &status));
        found += status.state == wanted;
    }
    return found;
}

static void wait_all(struct rig *rig)
{
    assert_ok(ferry_batch_wait(rig->initiator, rig->batch, test_deadline_ms(10000), NULL));
}

static void test_stale_tasks_of_one_segment_cause_one_request(void **state)
{
    struct rig *rig = *state;
    uint32_t before;

    register_anew(rig);
    make_stale(rig, SLOTS);
    before = test_store_count(rig->store, FERRY_STORE_GET);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, SLOTS, 0);
    assert_within_ms(count_in(rig, SLOTS, FERRY_TASK_WAITING) == SLOTS, 5000);
    assert_within_ms(test_store_count(rig->store, FERRY_STORE_GET) == before + 1, 5000);
    test_store_hold(rig->store, FERRY_STORE_GET, false);
    wait_all(rig);
    assert_int_equal(count_in(rig, SLOTS, FERRY_TASK_COMPLETED), SLOTS);
    /* One more if the first one began before the last task was found to be stale. */
    assert_in_range(test_store_count(rig->store, FERRY_STORE_GET), before + 1, before + 2);
    assert_int_equal(pattern_differs(rig->local, SLOTS * LENGTH, 5, 0), PATTERN_SAME);
}

/* One refresh that began after the last stale answer serves all, though it brings nothing new. */
static void test_stale_tasks_ask_once_when_nothing_changed(void **state)
{
    struct rig *rig = *state;
    uint32_t before = test_store_count(rig->store, FERRY_STORE_GET);

    make_stale(rig, SLOTS);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, SLOTS, 0);
    assert_within_ms(count_in(rig, SLOTS, FERRY_TASK_WAITING) == SLOTS, 5000);
    test_store_hold(rig->store, FERRY_STORE_GET, false);
    wait_all(rig);
    assert_int_equal(count_in(rig, SLOTS, FERRY_TASK_COMPLETED), SLOTS);
    /* Those whose answer came while a refresh ran wait for the next, again together. */
    assert_in_range(test_store_count(rig->store, FERRY_STORE_GET), before + 1, before + 2);
}

static void test_second_stale_answer_is_final(void **state)
{
    struct rig *rig = *state;
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;
    uint32_t before = test_store_count(rig->store, FERRY_STORE_GET);

    make_stale(rig, 2);
    submit_reads(rig, 1, 0);
    wait_all(rig);
    assert_ok(ferry_task_status(rig->initiator, rig->batch, 0, &status));
    assert_int_equal(status.state, FERRY_TASK_FAILED);
    assert_int_equal(status.status, FERRY_ERR_STALE_KEY);
    assert_int_equal(ferry_fault_fired(rig->fault, 0), 2);
    assert_int_equal(test_store_count(rig->store, FERRY_STORE_GET), before + 1);
}

static void test_failed_refresh_ends_the_task_with_its_status(void **state)
{
    struct rig *rig = *state;
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;
    char text[512];

    make_stale(rig, 1);
    test_store_fail(rig->store, FERRY_STORE_GET, FERRY_ERR_PEER_GONE);
    submit_reads(rig, 1, 0);
    wait_all(rig);
    test_store_fail(rig->store, FERRY_STORE_GET, FERRY_OK);
    assert_ok(ferry_task_status(rig->initiator, rig->batch, 0, &status));
    assert_int_equal(status.state, FERRY_TASK_FAILED);
    assert_int_equal(status.status, FERRY_ERR_PEER_GONE);
    assert_ok(ferry_task_describe(rig->initiator, rig->batch, 0, text, sizeof(text)));
    assert_non_null(strstr(text, "description"));
}

static void test_waiting_task_can_be_canceled(void **state)
{
    struct rig *rig = *state;

    make_stale(rig, SLOTS);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, SLOTS, 0);
    assert_within_ms(count_in(rig, SLOTS, FERRY_TASK_WAITING) == SLOTS, 5000);
    assert_ok(ferry_task_cancel(rig->initiator, rig->batch, 3));
    assert_within_ms(count_in(rig, SLOTS, FERRY_TASK_CANCELED) == 1, 5000);
    assert_ok(ferry_batch_cancel(rig->initiator, rig->batch));
    wait_all(rig);
    assert_int_equal(count_in(rig, SLOTS, FERRY_TASK_CANCELED), SLOTS);
}

static void test_waiting_task_keeps_its_deadline(void **state)
{
    struct rig *rig = *state;
    uint64_t begin = test_now_ns();

    make_stale(rig, 1);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, 1, begin + 200000000u);
    wait_all(rig);
    assert_int_equal(count_in(rig, 1, FERRY_TASK_TIMED_OUT), 1);
    assert_true(test_now_ns() - begin >= 200000000u);
    assert_true(test_now_ns() - begin < 3000000000u);
}

static void test_waiting_task_lets_go_of_memory_that_is_unregistered(void **state)
{
    struct rig *rig = *state;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    make_stale(rig, 1);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, 1, 0);
    assert_within_ms(count_in(rig, 1, FERRY_TASK_WAITING) == 1, 5000);
    range.addr = rig->local;
    range.length = SLOTS * LENGTH;
    assert_ok(ferry_memory_unregister(rig->initiator, &range, 1, 1000000));
    wait_all(rig);
    assert_int_equal(count_in(rig, 1, FERRY_TASK_CANCELED), 1);
}

struct told {
    _Atomic uint32_t count;
};

static void tell(void *arg, uint64_t batch)
{
    struct told *told = arg;

    (void)batch;
    atomic_fetch_add(&told->count, 1);
}

static void *let_go_soon(void *arg)
{
    struct rig *rig = arg;

    test_nap();
    test_store_hold(rig->store, FERRY_STORE_GET, false);
    return NULL;
}

static void test_waiting_task_ends_when_the_engine_closes(void **state)
{
    struct rig *rig = *state;
    struct told told = {0};
    pthread_t thread;

    assert_ok(ferry_batch_on_done(rig->initiator, rig->batch, tell, &told));
    make_stale(rig, 1);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, 1, 0);
    assert_within_ms(count_in(rig, 1, FERRY_TASK_WAITING) == 1, 5000);
    assert_int_equal(pthread_create(&thread, NULL, let_go_soon, rig), 0);
    assert_ok(ferry_engine_close(rig->initiator));
    rig->initiator = NULL;
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&told.count), 1);
}

/* No room after the refresh: the task is tried again and does not fail. */
static void test_waiting_task_is_tried_again_when_the_transport_is_full(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule full = ferry_fault_rule_of(FERRY_FAULT_REFUSE);

    make_stale(rig, 1);
    full.status = FERRY_ERR_QUEUE_FULL;
    full.skip = 1; /* the first submit passes */
    full.count = 5;
    ferry_fault_add(rig->fault, &full);
    submit_reads(rig, 1, 0);
    wait_all(rig);
    assert_int_equal(count_in(rig, 1, FERRY_TASK_COMPLETED), 1);
    assert_int_equal(ferry_fault_fired(rig->fault, 1), 5);
}

/* The segment handle may be closed while its tasks run; they end all the same. */
static void test_closed_segment_does_not_lose_its_tasks(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = FERRY_REQUEST_INIT;

    make_stale(rig, 1);
    test_store_hold(rig->store, FERRY_STORE_GET, true);
    submit_reads(rig, 2, 0);
    assert_within_ms(count_in(rig, 2, FERRY_TASK_WAITING) == 1, 5000);
    assert_ok(ferry_segment_close(rig->initiator, rig->segment));
    test_store_hold(rig->store, FERRY_STORE_GET, false);
    wait_all(rig);
    request.segment = rig->segment;
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = 1;
    assert_status(ferry_read(rig->initiator, &request, test_deadline_ms(1000)),
                  FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_segment_close(rig->initiator, rig->segment), FERRY_ERR_STALE_HANDLE);
}

/* One submit over two transports: hp_tcp comes first, loop after it. */
static void submit_mixed(struct rig *rig, enum ferry_status expected)
{
    struct ferry_request requests[8];

    for (uint32_t i = 0; i < 8; i++) {
        requests[i] = (struct ferry_request)FERRY_REQUEST_INIT;
        requests[i].local = rig->local + i * LENGTH;
        requests[i].length = LENGTH;
        requests[i].segment = i % 2 ? FERRY_SEGMENT_LOCAL : rig->segment;
        requests[i].remote_offset = i % 2 ? (uintptr_t)rig->own + i * LENGTH
                                          : (uintptr_t)rig->remote + i * LENGTH;
    }
    assert_status(ferry_batch_submit(rig->initiator, rig->batch, requests, 8), expected);
}

static void test_submit_over_two_transports_is_taken_whole_or_not(void **state)
{
    struct rig *rig = *state;
    struct ferry_transport *loop = ferry_engine_transport(rig->initiator, "loop");
    struct ferry_fault_rule full = ferry_fault_rule_of(FERRY_FAULT_REFUSE);
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    full.status = FERRY_ERR_QUEUE_FULL;
    full.count = 1;
    ferry_fault_add(rig->fault, &full);
    submit_mixed(rig, FERRY_ERR_QUEUE_FULL);
    assert_ok(ferry_batch_status(rig->initiator, rig->batch, &sum));
    assert_int_equal(sum.submitted, 0);
    /* The second transport is full for a while: its part waits for room and completes. */
    full.count = 20;
    ferry_fault_add(loop, &full);
    submit_mixed(rig, FERRY_OK);
    wait_all(rig);
    assert_int_equal(count_in(rig, 8, FERRY_TASK_COMPLETED), 8);
    assert_true(ferry_fault_fired(loop, 0) > 1);
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(
            pattern_differs(rig->local + i * LENGTH, LENGTH, i % 2 ? 6 : 5, i * LENGTH),
            PATTERN_SAME);
    /* What it refuses for good ends as it says; the rest is not touched by that. */
    assert_ok(ferry_batch_reset(rig->initiator, rig->batch));
    full.status = FERRY_ERR_DEVICE;
    full.count = 0;
    ferry_fault_clear(loop);
    ferry_fault_add(loop, &full);
    submit_mixed(rig, FERRY_OK);
    wait_all(rig);
    assert_int_equal(count_in(rig, 8, FERRY_TASK_COMPLETED), 4);
    assert_int_equal(count_in(rig, 8, FERRY_TASK_FAILED), 4);
}

/*
 * A list that goes piece by piece: each piece has landed, in part or whole, and its end is lost
 * with the peer. No piece has ended well, but that does not mean that nothing was applied.
 */
static void test_list_whose_pieces_may_have_landed_is_not_written_again(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_FAIL_AFTER);
    struct ferry_request request = FERRY_REQUEST_INIT;
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;
    struct ferry_piece pieces[2];
    uint32_t before = test_store_count(rig->store, FERRY_STORE_GET);

    rule.status = FERRY_ERR_PEER_GONE;
    rule.count = 2;
    ferry_fault_add(rig->fault, &rule);
    for (uint32_t i = 0; i < 2; i++)
        pieces[i] = (struct ferry_piece){.local = rig->local + i * LENGTH,
                                         .remote_offset = (uintptr_t)rig->remote + i * LENGTH,
                                         .length = LENGTH};
    request.opcode = FERRY_WRITE;
    request.segment = rig->segment;
    request.pieces = pieces;
    request.piece_count = 2;
    assert_ok(ferry_batch_submit(rig->initiator, rig->batch, &request, 1));
    wait_all(rig);
    assert_ok(ferry_task_status(rig->initiator, rig->batch, 0, &status));
    assert_int_equal(status.state, FERRY_TASK_FAILED);
    assert_int_equal(status.status, FERRY_ERR_PEER_GONE);
    assert_int_equal(test_store_count(rig->store, FERRY_STORE_GET), before);
}

#define RETRY_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RETRY_TEST(test_stale_tasks_of_one_segment_cause_one_request),
        RETRY_TEST(test_stale_tasks_ask_once_when_nothing_changed),
        RETRY_TEST(test_second_stale_answer_is_final),
        RETRY_TEST(test_failed_refresh_ends_the_task_with_its_status),
        RETRY_TEST(test_waiting_task_can_be_canceled),
        RETRY_TEST(test_waiting_task_keeps_its_deadline),
        RETRY_TEST(test_waiting_task_lets_go_of_memory_that_is_unregistered),
        RETRY_TEST(test_waiting_task_ends_when_the_engine_closes),
        RETRY_TEST(test_waiting_task_is_tried_again_when_the_transport_is_full),
        RETRY_TEST(test_closed_segment_does_not_lose_its_tasks),
        RETRY_TEST(test_submit_over_two_transports_is_taken_whole_or_not),
        RETRY_TEST(test_list_whose_pieces_may_have_landed_is_not_written_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
