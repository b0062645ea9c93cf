/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract that every transport keeps about memory and life: whose the memory is after a
 * cancel, an unregister or a close, and that nothing is left behind. The argument names the kind of
 * rig.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "contract/transport_rig.h"
#include "support/process.h"

static const struct rig_kind *kind;

#define PIECE 131072u /* RIG_BATCH pieces fill the memory */

static void fill_requests(const struct rig *rig, enum ferry_opcode opcode,
                          struct ferry_request *requests)
{
    for (uint32_t i = 0; i < RIG_BATCH; i++)
        requests[i] = rig_request(rig, opcode, (uint64_t)i * PIECE, (uint64_t)i * PIECE, PIECE);
}

/* A canceled request has an end; after it, the memory is ours alone. */
static void test_transport_leaves_memory_alone_after_a_cancel(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    uint32_t canceled = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    fill_requests(&rig, FERRY_READ, requests);
    for (uint32_t round = 0; round < 20; round++) {
        struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
        bool ours[RIG_BATCH];

        rig_fill(&rig, 1, 2);
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        if (round % 2 == 0)
            assert_ok(ferry_batch_cancel(rig.initiator, rig.batch));
        else
            for (uint32_t i = RIG_BATCH; i > 0; i--)
                assert_ok(ferry_task_cancel(rig.initiator, rig.batch, i - 1));
        assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), &sum));
        assert_int_equal(sum.ended, RIG_BATCH);
        for (uint32_t i = 0; i < RIG_BATCH; i++) {
            struct ferry_task_status task = rig_task(rig.initiator, rig.batch, i);

            ours[i] = task.state == FERRY_TASK_CANCELED;
            assert_true(ours[i] || task.state == FERRY_TASK_COMPLETED);
            if (ours[i])
                pattern_fill(rig.local.data + i * PIECE, PIECE, 77, i);
            canceled += ours[i];
        }
        assert_ok(ferry_batch_reset(rig.initiator, rig.batch));
        /* Traffic over the same way: whatever was still under way has passed by after it. */
        assert_ok(rig_run(&rig, &requests[0]));
        if (ours[0])
            pattern_fill(rig.local.data, PIECE, 77, 0);
        for (uint32_t i = 0; i < RIG_BATCH; i++)
            rig_expect(&rig.local, (uint64_t)i * PIECE, PIECE, ours[i] ? 77 : 2,
                       ours[i] ? i : (uint64_t)i * PIECE);
    }
    print_message("canceled %u of %u\n", canceled, 20 * RIG_BATCH);
    rig_close(&rig);
}

static void test_transport_does_not_change_an_end_by_a_cancel(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    fill_requests(&rig, FERRY_WRITE, requests);
    assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), NULL));
    assert_ok(ferry_batch_cancel(rig.initiator, rig.batch));
    for (uint32_t i = 0; i < RIG_BATCH; i++)
        assert_int_equal(rig_task(rig.initiator, rig.batch, i).state, FERRY_TASK_COMPLETED);
    assert_int_equal(rig_batch(rig.initiator, rig.batch).completed, RIG_BATCH);
    rig_close(&rig);
}

/* A mapping of its own, so that it can be made inaccessible. */
static unsigned char *map_range(size_t len)
{
    void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(map != MAP_FAILED);
    return map;
}

static void unregister_and_seal(struct ferry_engine *engine, unsigned char *map, size_t len)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t begin = test_now_ns();

    range.addr = map;
    range.length = len;
    assert_ok(ferry_memory_unregister(engine, &range, 1, 0));
    assert_true(test_now_ns() - begin < 3000000000u);
    assert_int_equal(mprotect(map, len, PROT_NONE), 0);
}

static void expect_all_ended(struct rig *rig)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    assert_ok(ferry_batch_wait(rig->initiator, rig->batch, test_deadline_ms(20000), &sum));
    assert_int_equal(sum.ended, sum.submitted);
    assert_ok(ferry_batch_reset(rig->initiator, rig->batch));
}

/*
 * Field report B11: memory taken away while transfers ran was still touched. Here it becomes
 * inaccessible as soon as unregister returns; touching it would kill the test.
 */
static void test_transport_lets_go_of_local_memory_that_is_unregistered(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    size_t len = (size_t)RIG_BATCH * PIECE;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    for (uint32_t round = 0; round < 30; round++) {
        unsigned char *map = map_range(len);

        rig_register(rig.initiator, map, len, FERRY_PERMISSION_LOCAL);
        fill_requests(&rig, round % 2 ? FERRY_WRITE : FERRY_READ, requests);
        for (uint32_t i = 0; i < RIG_BATCH; i++)
            requests[i].local = map + (size_t)i * PIECE;
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        if (round % 3 != 0)
            assert_ok(ferry_batch_wait_progress(rig.initiator, rig.batch, round % 16,
                                                test_deadline_ms(20000), NULL));
        unregister_and_seal(rig.initiator, map, len);
        expect_all_ended(&rig);
        assert_int_equal(munmap(map, len), 0);
    }
    rig_close(&rig);
}

/* Neither a timeout nor an event says what becomes of the others after one is refused. */
static const char *const unhurried[] = {"transports.ub.error_timeout", "24",
                                        "transports.ub.slice_timeout_ms", "120000", NULL};

static void test_transport_lets_go_of_target_memory_that_is_unregistered(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    size_t len = (size_t)RIG_BATCH * PIECE;
    struct rig rig;

    (void)state;
    if (kind->file)
        return; /* nothing registers a file */
    if (kind->ub)
        rig_mute_events(true);
    rig_open(&rig, kind, kind->ub ? unhurried : NULL);
    for (uint32_t round = 0; round < 30; round++) {
        unsigned char *map = map_range(len);

        rig_register(rig.target, map, len, FERRY_PERMISSION_READ_WRITE);
        assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
        fill_requests(&rig, round % 2 ? FERRY_WRITE : FERRY_READ, requests);
        for (uint32_t i = 0; i < RIG_BATCH; i++)
            requests[i].remote_offset = (uintptr_t)map + (size_t)i * PIECE;
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        if (round % 3 != 0)
            assert_ok(ferry_batch_wait_progress(rig.initiator, rig.batch, round % 16,
                                                test_deadline_ms(20000), NULL));
        unregister_and_seal(rig.target, map, len);
        expect_all_ended(&rig);
        assert_int_equal(munmap(map, len), 0);
        /* The way to the peer still works, or works again. */
        requests[0] = rig_request(&rig, FERRY_READ, 0, 0, 4096);
        assert_ok(rig_run(&rig, &requests[0]));
    }
    rig_close(&rig);
    if (kind->ub)
        rig_mute_events(false);
}

static void close_in_time(struct ferry_engine **engine)
{
    uint64_t begin = test_now_ns();

    assert_ok(ferry_engine_close(*engine));
    assert_true(test_now_ns() - begin < 10000000000u);
    *engine = NULL;
}

struct close_ends {
    _Atomic uint32_t count;
};

static void on_close_end(void *arg, uint64_t batch)
{
    struct close_ends *ends = arg;

    (void)batch;
    atomic_fetch_add(&ends->count, 1);
}

/* Every task ends before close returns, so the memory may go at once. */
static void test_transport_ends_everything_when_its_engine_closes(void **state)
{
    struct ferry_request requests[RIG_BATCH];

    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        struct close_ends ends = {0};
        struct rig rig;

        rig_open(&rig, kind, NULL);
        fill_requests(&rig, round % 2 ? FERRY_WRITE : FERRY_READ, requests);
        assert_ok(ferry_batch_on_done(rig.initiator, rig.batch, on_close_end, &ends));
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        if (round % 3 != 0)
            assert_ok(ferry_batch_wait_progress(rig.initiator, rig.batch, round,
                                                test_deadline_ms(20000), NULL));
        if (!kind->remote)
            rig.target = NULL;
        close_in_time(&rig.initiator);
        assert_int_equal(atomic_load(&ends.count), 1);
        assert_int_equal(mprotect(rig.local.map, 4096, PROT_NONE), 0);
        assert_int_equal(mprotect(rig.local.map, 4096, PROT_READ | PROT_WRITE), 0);
        rig_close(&rig);
    }
}

static void test_transport_ends_everything_when_its_peer_closes(void **state)
{
    uint32_t rounds = kind->ub ? 5 : 10; /* there by time alone */
    struct ferry_request requests[RIG_BATCH];

    (void)state;
    if (!kind->remote)
        return;
    for (uint32_t round = 0; round < rounds; round++) {
        struct rig rig;

        rig_open(&rig, kind, NULL);
        fill_requests(&rig, round % 2 ? FERRY_WRITE : FERRY_READ, requests);
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        if (round % 3 != 0)
            assert_ok(ferry_batch_wait_progress(rig.initiator, rig.batch, round,
                                                test_deadline_ms(20000), NULL));
        close_in_time(&rig.target);
        expect_all_ended(&rig);
        assert_true(rig_run(&rig, &requests[0]) != FERRY_OK);
        rig_close(&rig);
    }
}

static void test_transport_leaves_nothing_behind_when_it_is_opened_again_and_again(void **state)
{
    int descriptors = 0;
    int threads = 0;

    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        struct ferry_request request;
        struct rig rig;

        rig_open(&rig, kind, NULL);
        request = rig_request(&rig, FERRY_READ, 0, 0, 65536);
        assert_ok(rig_run(&rig, &request));
        rig_close(&rig);
        if (round == 1) {
            descriptors = process_fd_count();
            threads = process_thread_count();
        }
    }
    assert_int_equal(process_fd_count(), descriptors);
    /* A joined thread may stay in the list for a moment. */
    assert_within_ms(process_thread_count() <= threads, 2000);
}

struct crowd {
    struct rig *rig;
    uint32_t number;
    _Atomic uint32_t *failures;
};

static void *crowd_member(void *arg)
{
    struct crowd *crowd = arg;
    struct rig *rig = crowd->rig;

    for (uint32_t i = 0; i < 300; i++) {
        uint64_t at = (uint64_t)crowd->number * PIECE;
        struct ferry_request request = rig_request(rig, FERRY_READ, at, at, 1 + i * 97 % PIECE);

        if (ferry_read(rig->initiator, &request, test_deadline_ms(20000)) != FERRY_OK ||
            pattern_differs(rig->local.data + at, request.length, 2, at) != PATTERN_SAME)
            atomic_fetch_add(crowd->failures, 1);
    }
    return NULL;
}

static void test_transport_serves_many_threads_at_once(void **state)
{
    _Atomic uint32_t failures = 0;
    struct crowd members[8];
    pthread_t threads[8];
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 1, 2);
    for (uint32_t i = 0; i < 8; i++) {
        members[i] = (struct crowd){.rig = &rig, .number = i, .failures = &failures};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, &members[i]), 0);
    }
    for (uint32_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transport_leaves_memory_alone_after_a_cancel),
        cmocka_unit_test(test_transport_does_not_change_an_end_by_a_cancel),
        cmocka_unit_test(test_transport_lets_go_of_local_memory_that_is_unregistered),
        cmocka_unit_test(test_transport_lets_go_of_target_memory_that_is_unregistered),
        cmocka_unit_test(test_transport_ends_everything_when_its_engine_closes),
        cmocka_unit_test(test_transport_ends_everything_when_its_peer_closes),
        cmocka_unit_test(test_transport_leaves_nothing_behind_when_it_is_opened_again_and_again),
        cmocka_unit_test(test_transport_serves_many_threads_at_once),
    };

    kind = argc == 2 ? rig_find_kind(argv[1]) : NULL;
    if (kind == NULL) {
        fprintf(stderr, "usage: %s KIND, see transport_rig.c\n", argv[0]);
        return 2;
    }
    rig_skip_if_missing(kind);
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
