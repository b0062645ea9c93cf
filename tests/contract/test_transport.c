/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract that every transport keeps, through the public interface: what moves, what is
 * refused, what ends how. The argument names the kind of rig; each test opens its own.
 *
 * Capabilities are asked for by their bits, so a transport that claims one it lacks fails here.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "contract/transport_rig.h"
#include "runtime/seams.h"
#include "transport/transport.h"

static const struct rig_kind *kind;

static const uint64_t lengths[] = {1, 2, 7, 8, 63, 4095, 4096, 4097, 65536, 1048579, 3145728};

#define LENGTH_COUNT (sizeof(lengths) / sizeof(lengths[0]))

/* Every length, with every mix of alignments, in both directions; nothing around it changes. */
static void test_transport_moves_exactly_the_range_asked_for(void **state)
{
    static const uint64_t shifts[] = {0, 1, 4093};
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    for (size_t i = 0; i < LENGTH_COUNT; i++) {
        for (size_t k = 0; k < 9; k++) {
            uint64_t local = 8192 + shifts[k % 3];
            uint64_t remote = 8192 + shifts[k / 3];
            uint64_t len = lengths[i];
            struct ferry_request request = rig_request(&rig, FERRY_READ, local, remote, len);

            rig_fill(&rig, 1, 2);
            assert_ok(rig_run(&rig, &request));
            rig_expect(&rig.local, local, len, 2, remote);
            rig_expect(&rig.local, 0, local, 1, 0);
            rig_expect(&rig.local, local + len, RIG_LENGTH - local - len, 1, local + len);
            rig_expect(&rig.remote, 0, RIG_LENGTH, 2, 0);

            rig_fill(&rig, 3, 4);
            request.opcode = FERRY_WRITE;
            assert_ok(rig_run(&rig, &request));
            rig_expect(&rig.remote, remote, len, 3, local);
            rig_expect(&rig.remote, 0, remote, 4, 0);
            rig_expect(&rig.remote, remote + len, RIG_LENGTH - remote - len, 4, remote + len);
            rig_expect(&rig.local, 0, RIG_LENGTH, 3, 0);
        }
    }
    rig_close(&rig);
}

static void test_transport_reaches_both_edges_of_a_range_and_no_further(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    for (int op = FERRY_READ; op <= FERRY_WRITE; op++) {
        struct ferry_request request = rig_request(&rig, (enum ferry_opcode)op, 0, 0, RIG_LENGTH);

        assert_ok(rig_run(&rig, &request));
        request = rig_request(&rig, (enum ferry_opcode)op, 0, RIG_LENGTH - 1, 1);
        assert_ok(rig_run(&rig, &request));
        request = rig_request(&rig, (enum ferry_opcode)op, 0, 0, 1);
        assert_ok(rig_run(&rig, &request));
        request = rig_request(&rig, (enum ferry_opcode)op, 0, RIG_LENGTH - 1, 2);
        assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
        request = rig_request(&rig, (enum ferry_opcode)op, 0, 1, RIG_LENGTH);
        request.length = RIG_LENGTH;
        assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
        if (kind->file)
            continue; /* there is nothing before its start */
        request = rig_request(&rig, (enum ferry_opcode)op, 0, 0, 1);
        request.remote_offset--;
        assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
        request.remote_offset = 4096;
        assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
    }
    rig_close(&rig);
}

/* Adjacent registrations are two buffers: a request must lie inside one. */
static void test_transport_does_not_join_adjacent_buffers(void **state)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request;
    struct rig rig;

    (void)state;
    if (kind->file)
        return; /* a file has no registrations */
    rig_open(&rig, kind, NULL);
    whole.addr = rig.remote.data;
    whole.length = RIG_LENGTH;
    assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
    rig_register(rig.target, rig.remote.data, RIG_LENGTH / 2, FERRY_PERMISSION_READ_WRITE);
    rig_register(rig.target, rig.remote.data + RIG_LENGTH / 2, RIG_LENGTH / 2,
                 FERRY_PERMISSION_READ_WRITE);
    assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    request = rig_request(&rig, FERRY_READ, 0, RIG_LENGTH / 2 - 1, 2);
    assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
    request = rig_request(&rig, FERRY_READ, 0, RIG_LENGTH / 2, RIG_LENGTH / 2);
    assert_ok(rig_run(&rig, &request));
    rig_close(&rig);
}

static void expect_refused(struct rig *rig, const struct ferry_request *request,
                           enum ferry_status status)
{
    struct ferry_batch_status sum;

    assert_status(ferry_batch_submit(rig->initiator, rig->batch, request, 1), status);
    sum = rig_batch(rig->initiator, rig->batch);
    assert_int_equal(sum.submitted, 0);
    assert_int_equal(sum.state, FERRY_TASK_COMPLETED);
}

static void test_transport_never_sees_a_malformed_request(void **state)
{
    struct ferry_request good, bad;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    good = rig_request(&rig, FERRY_WRITE, 0, 0, 4096);
    bad = good;
    bad.length = 0;
    if (!kind->file)
        expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.local = NULL;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.remote_offset = UINT64_MAX - 100;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.length = UINT64_MAX;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.opcode = (enum ferry_opcode)7;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.priority = (enum ferry_priority)3;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.transport = "no_such";
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.local = rig.local.data + RIG_LENGTH - 1;
    expect_refused(&rig, &bad, FERRY_ERR_INVALID);
    bad = good;
    bad.segment = 0x300000007;
    expect_refused(&rig, &bad, FERRY_ERR_STALE_HANDLE);
    rig_close(&rig);
}

/* A submit is all or nothing: the good WRITEs beside a bad request do not happen. */
static void test_transport_gets_all_of_a_submit_or_none(void **state)
{
    struct ferry_request requests[8];
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 1, 2);
    for (uint32_t i = 0; i < 8; i++)
        requests[i] = rig_request(&rig, FERRY_WRITE, i * 4096, i * 4096, 4096);
    requests[5].local = NULL;
    assert_status(ferry_batch_submit(rig.initiator, rig.batch, requests, 8), FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "request 5"));
    assert_int_equal(rig_batch(rig.initiator, rig.batch).submitted, 0);
    requests[5].length = 1;
    requests[5].remote_offset = rig_remote(&rig, RIG_LENGTH - 1);
    requests[5].local = rig.local.data + RIG_LENGTH - 1;
    assert_ok(ferry_batch_submit(rig.initiator, rig.batch, &requests[5], 1));
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(10000), NULL));
    rig_expect(&rig.remote, 0, RIG_LENGTH - 1, 2, 0);
    rig_close(&rig);
}

static void test_transport_obeys_permissions(void **state)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request;
    enum ferry_status status;
    struct rig rig;

    (void)state;
    if (kind->file)
        return; /* a file has no registrations */
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 1, 2);
    whole.addr = rig.remote.data;
    whole.length = RIG_LENGTH;
    assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
    rig_register(rig.target, rig.remote.data, RIG_LENGTH, FERRY_PERMISSION_READ_ONLY);
    assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    request = rig_request(&rig, FERRY_READ, 0, 0, 8192);
    assert_ok(rig_run(&rig, &request));
    request = rig_request(&rig, FERRY_WRITE, 65536, 0, 8192);
    assert_status(rig_run(&rig, &request), FERRY_ERR_PERMISSION);
    rig_expect(&rig.remote, 0, RIG_LENGTH, 2, 0);

    assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
    rig_register(rig.target, rig.remote.data, RIG_LENGTH, FERRY_PERMISSION_LOCAL);
    assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    request = rig_request(&rig, FERRY_READ, 0, 0, 8192);
    status = rig_run(&rig, &request);
    /* A peer does not even learn that local memory exists. */
    assert_true(status == FERRY_ERR_RANGE || status == FERRY_ERR_PERMISSION);
    rig_close(&rig);
}

struct ends {
    _Atomic uint32_t count;
};

static void count_end(void *arg, uint64_t batch)
{
    struct ends *ends = arg;

    (void)batch;
    atomic_fetch_add(&ends->count, 1);
}

/*
 * Many rounds of many requests, good and bad: each task has one end which never changes, each round
 * one callback.
 */
static void test_transport_ends_every_request_exactly_once(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    struct ends ends = {0};
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 1, 2);
    assert_ok(ferry_batch_on_done(rig.initiator, rig.batch, count_end, &ends));
    for (uint32_t round = 0; round < 200; round++) {
        struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

        for (uint32_t i = 0; i < RIG_BATCH; i++)
            requests[i] = rig_request(&rig, i % 2 ? FERRY_WRITE : FERRY_READ, i * 32768,
                                      i * 32768 + round, 1 + (i * 523 + round * 37) % 16384);
        requests[7].remote_offset = rig_remote(&rig, RIG_LENGTH - 10);
        requests[7].length = 11;
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
        assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), &sum));
        assert_int_equal(sum.submitted, RIG_BATCH);
        assert_int_equal(sum.ended, RIG_BATCH);
        assert_int_equal(sum.completed, RIG_BATCH - 1);
        assert_int_equal(sum.state, FERRY_TASK_FAILED);
        for (uint32_t i = 0; i < RIG_BATCH; i++) {
            struct ferry_task_status task = rig_task(rig.initiator, rig.batch, i);

            assert_int_equal(task.state, i == 7 ? FERRY_TASK_FAILED : FERRY_TASK_COMPLETED);
            assert_int_equal(task.status, i == 7 ? FERRY_ERR_RANGE : FERRY_OK);
            assert_int_equal(task.bytes, i == 7 ? 0 : requests[i].length);
            assert_string_equal(task.transport, kind->transport);
        }
        assert_ok(ferry_batch_reset(rig.initiator, rig.batch));
        assert_int_equal(atomic_load(&ends.count), round + 1);
    }
    rig_close(&rig);
}

/* A full transport refuses the whole submit; what it took before ends, and then it takes more. */
static void test_transport_pushes_back_when_full(void **state)
{
    static const char *const settings[] = {"transports.hp_tcp.max_outstanding_tasks",
                                           "8",
                                           "transports.loop.max_outstanding_tasks",
                                           "8",
                                           "transports.file.max_outstanding_tasks",
                                           "8",
                                           "transports.ub.max_outstanding_tasks",
                                           "8",
                                           "transports.shm.max_outstanding_tasks",
                                           "8",
                                           NULL};
    struct ferry_request requests[RIG_BATCH];
    uint32_t refused = 0;
    uint32_t submitted = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, settings);
    rig_fill(&rig, 1, 2);
    for (uint32_t i = 0; i < RIG_BATCH; i++)
        requests[i] = rig_request(&rig, FERRY_READ, i * 65536, i * 65536, 65536);
    if (!kind->fault) {
        assert_status(ferry_batch_submit(rig.initiator, rig.batch, requests, 9),
                      FERRY_ERR_QUEUE_FULL);
        assert_int_equal(rig_batch(rig.initiator, rig.batch).submitted, 0);
    }
    while (submitted < RIG_BATCH) {
        enum ferry_status status = ferry_batch_submit(rig.initiator, rig.batch,
                                                      requests + submitted, 4);

        if (status == FERRY_OK) {
            submitted += 4;
            continue;
        }
        assert_int_equal(status, FERRY_ERR_QUEUE_FULL);
        refused++;
        assert_ok(ferry_batch_wait_progress(rig.initiator, rig.batch, submitted - 7,
                                            test_deadline_ms(20000), NULL));
    }
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), NULL));
    assert_int_equal(rig_batch(rig.initiator, rig.batch).completed, RIG_BATCH);
    rig_expect(&rig.local, 0, RIG_BATCH * 65536, 2, 0);
    print_message("refused %u times\n", refused);
    rig_close(&rig);
}

static void test_transport_refuses_what_is_longer_than_it_moves(void **state)
{
    static const char *const settings[] = {"transports.hp_tcp.max_transfer_bytes",
                                           "1MiB",
                                           "transports.loop.max_transfer_bytes",
                                           "1MiB",
                                           "transports.file.max_transfer_bytes",
                                           "1MiB",
                                           "transports.ub.max_transfer_bytes",
                                           "1MiB",
                                           "transports.shm.max_transfer_bytes",
                                           "1MiB",
                                           NULL};
    struct ferry_request request;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, settings);
    request = rig_request(&rig, FERRY_READ, 0, 0, (1u << 20) + 1);
    expect_refused(&rig, &request, FERRY_ERR_TOO_LARGE);
    request.length = 1u << 20;
    assert_ok(rig_run(&rig, &request));
    rig_close(&rig);
}

static void test_transport_ends_a_request_whose_deadline_has_passed(void **state)
{
    struct ferry_request request;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 1, 2);
    request = rig_request(&rig, FERRY_READ, 0, 0, 4096);
    request.deadline_ns = 1;
    assert_ok(ferry_batch_submit(rig.initiator, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(10000), NULL));
    assert_int_equal(rig_task(rig.initiator, rig.batch, 0).state, FERRY_TASK_TIMED_OUT);
    assert_int_equal(rig_task(rig.initiator, rig.batch, 0).bytes, 0);
    rig_expect(&rig.local, 0, RIG_LENGTH, 1, 0);
    rig_close(&rig);
}

/* The registration id changed: the description is read again, once, and the request runs. */
static void test_transport_recovers_from_a_stale_registration(void **state)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request;
    struct rig rig;

    (void)state;
    if (kind->file)
        return; /* a file has no registrations */
    rig_open(&rig, kind, NULL);
    whole.addr = rig.remote.data;
    whole.length = RIG_LENGTH;
    for (uint64_t round = 0; round < 20; round++) {
        rig_fill(&rig, 1, 100 + round);
        request = rig_request(&rig, FERRY_READ, 0, 4096, 2097152);
        assert_ok(rig_run(&rig, &request));
        rig_expect(&rig.local, 0, 2097152, 100 + round, 4096);
        request = rig_request(&rig, FERRY_WRITE, 0, 4194304, 100000);
        assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
        rig_register(rig.target, rig.remote.data, RIG_LENGTH, FERRY_PERMISSION_READ_WRITE);
        assert_ok(rig_run(&rig, &request));
        rig_expect(&rig.remote, 4194304, 100000, 100 + round, 4096);
        assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
        rig_register(rig.target, rig.remote.data, RIG_LENGTH, FERRY_PERMISSION_READ_WRITE);
    }
    rig_close(&rig);
}

/* What a transport says that it can do, it can; what it says it cannot, has a typed default. */
static void test_transport_tells_the_truth_about_its_capabilities(void **state)
{
    struct ferry_transport *transport;
    struct ferry_request request;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    transport = ferry_engine_transport(rig.initiator, kind->transport);
    assert_non_null(transport);
    assert_string_equal(transport->ops->name, kind->transport);
    assert_int_equal((transport->ops->caps & FERRY_CAP_LOCAL) != 0, !kind->remote && !kind->file);
    assert_int_equal((transport->ops->caps & FERRY_CAP_FILE) != 0, kind->file);
    assert_int_equal((transport->ops->caps & FERRY_CAP_DECORATOR) != 0, kind->fault);
    assert_true(transport->ops->caps & FERRY_CAP_CANCEL);
    assert_true(transport->ops->caps & FERRY_CAP_REVOKE);
    /* Nothing touches the memory: taking it back has nothing to wait for. */
    assert_ok(
        ferry_transport_revoke(transport, rig.local.data, RIG_LENGTH, test_deadline_ms(5000)));
    /* Pinned, it runs there and nowhere else. */
    request = rig_request(&rig, FERRY_READ, 0, 0, 4096);
    request.transport = kind->transport;
    assert_ok(rig_run(&rig, &request));
    request.transport = kind->remote ? "loop" : "hp_tcp";
    expect_refused(&rig, &request, FERRY_ERR_UNSUPPORTED);
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transport_moves_exactly_the_range_asked_for),
        cmocka_unit_test(test_transport_reaches_both_edges_of_a_range_and_no_further),
        cmocka_unit_test(test_transport_does_not_join_adjacent_buffers),
        cmocka_unit_test(test_transport_never_sees_a_malformed_request),
        cmocka_unit_test(test_transport_gets_all_of_a_submit_or_none),
        cmocka_unit_test(test_transport_obeys_permissions),
        cmocka_unit_test(test_transport_ends_every_request_exactly_once),
        cmocka_unit_test(test_transport_pushes_back_when_full),
        cmocka_unit_test(test_transport_refuses_what_is_longer_than_it_moves),
        cmocka_unit_test(test_transport_ends_a_request_whose_deadline_has_passed),
        cmocka_unit_test(test_transport_recovers_from_a_stale_registration),
        cmocka_unit_test(test_transport_tells_the_truth_about_its_capabilities),
    };

    kind = argc == 2 ? rig_find_kind(argv[1]) : NULL;
    if (kind == NULL) {
        fprintf(stderr, "usage: %s KIND, see transport_rig.c\n", argv[0]);
        return 2;
    }
    rig_skip_if_missing(kind);
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
