/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edges of the public interface on one engine: handles, capacities, states, callbacks,
 * descriptors, notifications and reports.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "base/json.h"
#include "control/client.h"
#include "runtime/runtime.h"
#include "runtime/seams.h"
#include "support/pattern.h"
#include "support/test.h"
#include "transport/fault/fault.h"

#define LENGTH 65536u

struct rig {
    struct ferry_engine *engine;
    struct ferry_transport *fault; /* around loop */
    unsigned char *local;
    unsigned char *remote;
    uint64_t batch;
};

static struct ferry_engine *open_engine(const char *const *settings)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2)
        assert_ok(ferry_config_set(config, settings[i], settings[i + 1], FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

static int rig_set_up(void **state)
{
    static const char *const settings[] = {"transports.fault.enable", "true", "batches_max", "8",
                                           "notifications_max",       "3",    NULL};
    struct rig *rig = calloc(1, sizeof(*rig));
    void *addr;

    assert_non_null(rig);
    rig->engine = open_engine(settings);
    rig->fault = ferry_engine_transport(rig->engine, "loop");
    assert_ok(ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr));
    rig->local = addr;
    assert_ok(ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    rig->remote = addr;
    pattern_fill(rig->remote, LENGTH, 1, 0);
    assert_ok(ferry_batch_create(rig->engine, 8, &rig->batch));
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

static struct ferry_request read_of(const struct rig *rig, uint64_t offset, uint64_t length)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.local = rig->local + offset;
    request.remote_offset = (uintptr_t)rig->remote + offset;
    request.length = length;
    return request;
}

static struct ferry_batch_status sum_of(const struct rig *rig)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    assert_ok(ferry_batch_status(rig->engine, rig->batch, &sum));
    return sum;
}

/* Keep every request that is submitted from now on from ending. */
static void drop_all(struct rig *rig)
{
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_DROP);

    ferry_fault_add(rig->fault, &rule);
}

/* Field report B12: an empty batch, a submission over its capacity, and one of nothing. */
static void test_batch_refuses_what_does_not_fit_and_takes_nothing(void **state)
{
    struct rig *rig = *state;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request requests[9];
    uint64_t empty;

    assert_ok(ferry_batch_create(rig->engine, 1, &empty));
    assert_status(ferry_task_status(rig->engine, empty, 0, &task), FERRY_ERR_INVALID);
    assert_ok(ferry_batch_wait(rig->engine, empty, 0, NULL));
    assert_ok(ferry_batch_destroy(rig->engine, empty));
    for (uint32_t i = 0; i < 9; i++)
        requests[i] = read_of(rig, i * 4096, 4096);
    assert_status(ferry_batch_submit(rig->engine, rig->batch, requests, 9), FERRY_ERR_TOO_LARGE);
    assert_int_equal(sum_of(rig).submitted, 0);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, requests, 0));
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, NULL, 0));
    assert_status(ferry_batch_submit(rig->engine, rig->batch, NULL, 1), FERRY_ERR_INVALID);
    assert_int_equal(sum_of(rig).state, FERRY_TASK_COMPLETED);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, requests, 8));
    assert_status(ferry_batch_submit(rig->engine, rig->batch, requests, 1), FERRY_ERR_TOO_LARGE);
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
    assert_int_equal(sum_of(rig).completed, 8);
}

static void test_batch_is_busy_while_a_task_is_open(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig, 0, 4096);

    drop_all(rig);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    assert_status(ferry_batch_destroy(rig->engine, rig->batch), FERRY_ERR_BUSY);
    assert_status(ferry_batch_reset(rig->engine, rig->batch), FERRY_ERR_BUSY);
    assert_status(ferry_batch_on_done(rig->engine, rig->batch, NULL, NULL), FERRY_ERR_BUSY);
    assert_status(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(20), NULL),
                  FERRY_ERR_TIMED_OUT);
    assert_int_equal(sum_of(rig).state, FERRY_TASK_PENDING);
    assert_int_equal(sum_of(rig).ended, 0);
    assert_ok(ferry_batch_cancel(rig->engine, rig->batch));
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
    assert_int_equal(sum_of(rig).state, FERRY_TASK_CANCELED);
    assert_ok(ferry_batch_reset(rig->engine, rig->batch));
    assert_int_equal(sum_of(rig).submitted, 0);
    assert_ok(ferry_batch_destroy(rig->engine, rig->batch));
    assert_status(ferry_batch_destroy(rig->engine, rig->batch), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_batch_submit(rig->engine, rig->batch, &request, 1), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_batch_cancel(rig->engine, rig->batch), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_batch_wait(rig->engine, rig->batch, 0, NULL), FERRY_ERR_STALE_HANDLE);
}

static void test_batch_count_and_capacity_have_limits(void **state)
{
    struct rig *rig = *state;
    uint64_t handles[8];
    uint64_t extra;

    assert_status(ferry_batch_create(rig->engine, 0, &extra), FERRY_ERR_INVALID);
    assert_status(ferry_batch_create(rig->engine, FERRY_BATCH_CAPACITY_MAX + 1, &extra),
                  FERRY_ERR_INVALID);
    for (uint32_t i = 1; i < 8; i++)
        assert_ok(ferry_batch_create(rig->engine, 1, &handles[i]));
    assert_status(ferry_batch_create(rig->engine, 1, &extra), FERRY_ERR_LIMIT);
    assert_ok(ferry_batch_destroy(rig->engine, handles[3]));
    assert_ok(ferry_batch_create(rig->engine, 1, &extra));
    assert_true(extra != handles[3]);
    assert_status(ferry_batch_destroy(rig->engine, handles[3]), FERRY_ERR_STALE_HANDLE);
}

/* Several submits add to one batch; the part that is waited for may be any. */
static void test_batch_takes_several_submits(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig, 0, 4096);
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
        assert_ok(
            ferry_batch_wait_progress(rig->engine, rig->batch, i, test_deadline_ms(5000), &sum));
        assert_true(sum.ended >= i);
        assert_int_equal(sum.submitted, i + 1);
    }
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), &sum));
    assert_int_equal(sum.bytes, 8 * 4096);
}

struct callback {
    struct rig *rig;
    _Atomic uint32_t count;
    _Atomic int32_t wait_status, destroy_status, read_status, submit_status;
    uint64_t other;
};

static void on_done(void *arg, uint64_t batch)
{
    struct callback *callback = arg;
    struct ferry_engine *engine = callback->rig->engine;
    struct ferry_request request = read_of(callback->rig, 0, 16);

    atomic_store(&callback->wait_status, ferry_batch_wait(engine, batch, 1, NULL));
    atomic_store(&callback->destroy_status, ferry_batch_destroy(engine, batch));
    atomic_store(&callback->read_status, ferry_read(engine, &request, 1));
    atomic_store(&callback->submit_status,
                 ferry_batch_submit(engine, callback->other, &request, 1));
    atomic_fetch_add(&callback->count, 1);
}

/* Once per cycle; inside it waiting is refused and other batches may be used. */
static void test_callback_runs_once_and_must_not_wait(void **state)
{
    struct rig *rig = *state;
    struct callback callback = {.rig = rig};
    struct ferry_request request = read_of(rig, 0, 4096);

    /* Each of a round's three submits may be a cycle of its own. */
    assert_ok(ferry_batch_create(rig->engine, 3, &callback.other));
    assert_ok(ferry_batch_on_done(rig->engine, rig->batch, on_done, &callback));
    for (uint32_t round = 1; round <= 50; round++) {
        for (uint32_t i = 0; i < 3; i++)
            assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
        assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
        /* Reset waits for a callback that runs. */
        assert_ok(ferry_batch_reset(rig->engine, rig->batch));
        assert_in_range(atomic_load(&callback.count), 1, 3);
        assert_int_equal(atomic_load(&callback.wait_status), FERRY_ERR_STATE);
        assert_int_equal(atomic_load(&callback.read_status), FERRY_ERR_STATE);
        assert_int_equal(atomic_load(&callback.destroy_status), FERRY_ERR_BUSY);
        assert_ok(ferry_batch_wait(rig->engine, callback.other, test_deadline_ms(5000), NULL));
        assert_ok(ferry_batch_reset(rig->engine, callback.other));
        atomic_store(&callback.count, 0);
    }
    assert_int_equal(atomic_load(&callback.submit_status), FERRY_OK);
}

static void test_eventfd_becomes_readable_at_the_end(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig, 0, 4096);
    struct pollfd poller = {.events = POLLIN};
    uint64_t count;
    int again;

    assert_ok(ferry_batch_eventfd(rig->engine, rig->batch, &poller.fd));
    assert_ok(ferry_batch_eventfd(rig->engine, rig->batch, &again));
    assert_int_equal(poller.fd, again);
    assert_true(fcntl(poller.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(poll(&poller, 1, 0), 0);
    for (uint32_t i = 0; i < 20; i++) {
        assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
        assert_int_equal(poll(&poller, 1, 5000), 1);
        assert_int_equal(read(poller.fd, &count, sizeof(count)), sizeof(count));
        assert_int_equal(count, 1);
        assert_ok(ferry_batch_reset(rig->engine, rig->batch));
    }
}

static void test_read_ends_at_its_deadline_and_memory_is_free(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig, 0, 4096);
    uint64_t begin = test_now_ns();

    drop_all(rig);
    assert_status(ferry_read(rig->engine, &request, begin + 50000000u), FERRY_ERR_TIMED_OUT);
    assert_true(test_now_ns() - begin >= 50000000u);
    assert_true(test_now_ns() - begin < 3000000000u);
    assert_int_equal(ferry_fault_kept(rig->fault), 0);
    assert_non_null(strstr(ferry_last_error_text(), "timed out"));
    assert_status(ferry_read(rig->engine, &request, 0), FERRY_ERR_TIMED_OUT);
}

static void test_request_array_is_read_with_its_stride(void **state)
{
    struct rig *rig = *state;
    struct wide {
        struct ferry_request request;
        uint64_t more;
    } wide[2] = {{.request = read_of(rig, 0, 64)}, {.request = read_of(rig, 64, 64)}};

    for (uint32_t i = 0; i < 2; i++)
        wide[i].request.struct_size = sizeof(wide[0]);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &wide[0].request, 2));
    wide[1].more = 1;
    assert_status(ferry_batch_submit(rig->engine, rig->batch, &wide[0].request, 2),
                  FERRY_ERR_INVALID);
    wide[1].more = 0;
    wide[1].request.struct_size = sizeof(struct ferry_request);
    assert_status(ferry_batch_submit(rig->engine, rig->batch, &wide[0].request, 2),
                  FERRY_ERR_INVALID);
    wide[0].request.struct_size = 8;
    assert_status(ferry_batch_submit(rig->engine, rig->batch, &wide[0].request, 1),
                  FERRY_ERR_INVALID);
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
    assert_int_equal(sum_of(rig).completed, 2);
}

/* The target may be the request's own memory; the copy behaves as if made through a third place. */
static void test_own_segment_moves_overlapping_ranges_whole(void **state)
{
    enum { TOTAL = 3 << 20 };
    static const int64_t shifts[] = {1, 100, 262144, 1048577, -1, -100, -262144, -1048577};
    static unsigned char copy[TOTAL];
    struct rig *rig = *state;
    void *addr;

    assert_ok(ferry_memory_alloc(rig->engine, TOTAL, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    for (size_t i = 0; i < 2 * sizeof(shifts) / sizeof(shifts[0]); i++) {
        int64_t shift = shifts[i / 2];
        struct ferry_request request = FERRY_REQUEST_INIT;
        unsigned char *local = (unsigned char *)addr + (shift < 0 ? -shift : 0);
        unsigned char *remote = (unsigned char *)addr + (shift < 0 ? 0 : shift);

        pattern_fill(addr, TOTAL, i, 0);
        memcpy(copy, addr, TOTAL);
        request.local = local;
        request.remote_offset = (uintptr_t)remote;
        request.length = TOTAL - (uint64_t)(shift < 0 ? -shift : shift);
        if (i % 2) {
            assert_ok(ferry_write(rig->engine, &request, test_deadline_ms(5000)));
            memmove(copy + (remote - (unsigned char *)addr), copy + (local - (unsigned char *)addr),
                    request.length);
        } else {
            assert_ok(ferry_read(rig->engine, &request, test_deadline_ms(5000)));
            memmove(copy + (local - (unsigned char *)addr), copy + (remote - (unsigned char *)addr),
                    request.length);
        }
        assert_memory_equal(addr, copy, TOTAL);
    }
}

struct rounds {
    _Atomic uint32_t told;
};

static void count_round(void *arg, uint64_t batch)
{
    struct rounds *rounds = arg;

    (void)batch;
    atomic_fetch_add(&rounds->told, 1);
}

/*
 * Submits that are refused while earlier tasks of the batch end: each cycle's end is told exactly
 * once, by whoever finds it, and nobody who waits sleeps on.
 */
static void test_refused_submit_does_not_lose_the_end_of_a_cycle(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_REFUSE);
    struct ferry_request request = read_of(rig, 0, 64);
    struct rounds rounds = {0};

    rule.status = FERRY_ERR_QUEUE_FULL;
    rule.every = 2;
    rule.skip = 1;
    ferry_fault_add(rig->fault, &rule);
    assert_ok(ferry_batch_on_done(rig->engine, rig->batch, count_round, &rounds));
    for (uint32_t i = 0; i < 5000; i++) {
        uint32_t before = atomic_load(&rounds.told);

        assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
        assert_status(ferry_batch_submit(rig->engine, rig->batch, &request, 1),
                      FERRY_ERR_QUEUE_FULL);
        assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
        assert_ok(ferry_batch_reset(rig->engine, rig->batch));
        assert_int_equal(atomic_load(&rounds.told), before + 1);
    }
}

/* The last open task ends while a submit to its batch is being refused: its end is told all the
 * same. */
static void test_end_inside_a_refused_submit_is_told(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule late = ferry_fault_rule_of(FERRY_FAULT_DELAY_END);
    struct ferry_fault_rule slow = ferry_fault_rule_of(FERRY_FAULT_REFUSE);
    struct ferry_request request = read_of(rig, 0, 64);
    struct rounds rounds = {0};

    slow.status = FERRY_ERR_QUEUE_FULL;
    slow.skip = 1;
    slow.delay_ns = 100000000;
    late.delay_ns = 20000000;
    ferry_fault_add(rig->fault, &slow);
    ferry_fault_add(rig->fault, &late);
    assert_ok(ferry_batch_on_done(rig->engine, rig->batch, count_round, &rounds));
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    assert_status(ferry_batch_submit(rig->engine, rig->batch, &request, 1), FERRY_ERR_QUEUE_FULL);
    assert_within_ms(atomic_load(&rounds.told) == 1, 5000);
    assert_ok(ferry_batch_reset(rig->engine, rig->batch));
}

struct looker {
    struct rig *rig;
    _Atomic uint64_t handle;
    _Atomic bool stop;
    _Atomic uint32_t wrong;
};

static bool one_of(enum ferry_status status)
{
    return status == FERRY_OK || status == FERRY_ERR_STALE_HANDLE || status == FERRY_ERR_INVALID ||
           status == FERRY_ERR_TIMED_OUT;
}

static void *look_at_it(void *arg)
{
    struct looker *looker = arg;
    struct ferry_engine *engine = looker->rig->engine;
    char text[300];

    while (!atomic_load(&looker->stop)) {
        struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
        struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
        uint64_t handle = atomic_load(&looker->handle);
        bool fine = one_of(ferry_batch_status(engine, handle, &sum)) &&
                    one_of(ferry_task_status(engine, handle, 3, &task)) &&
                    one_of(ferry_task_describe(engine, handle, 2, text, sizeof(text))) &&
                    one_of(ferry_task_cancel(engine, handle, 1)) &&
                    one_of(ferry_batch_cancel(engine, handle)) &&
                    one_of(ferry_batch_wait(engine, handle, 1, &sum));

        if (!fine || sum.ended > sum.submitted || sum.completed > sum.ended)
            atomic_fetch_add(&looker->wrong, 1);
    }
    return NULL;
}

/* Any thread may look at a batch while another fills, empties and destroys it. */
static void test_batch_may_be_looked_at_while_it_is_destroyed(void **state)
{
    struct rig *rig = *state;
    struct looker looker = {.rig = rig};
    struct ferry_request requests[8];
    pthread_t threads[2];

    for (uint32_t i = 0; i < 8; i++)
        requests[i] = read_of(rig, i * 4096, 4096);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look_at_it, &looker), 0);
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t batch;

        assert_ok(ferry_batch_create(rig->engine, 8, &batch));
        atomic_store(&looker.handle, batch);
        for (uint32_t round = 0; round < 2; round++) {
            assert_ok(ferry_batch_submit(rig->engine, batch, requests, 8));
            assert_ok(ferry_batch_wait(rig->engine, batch, test_deadline_ms(10000), NULL));
            if (round == 0)
                assert_ok(ferry_batch_reset(rig->engine, batch));
        }
        assert_ok(ferry_batch_destroy(rig->engine, batch));
    }
    atomic_store(&looker.stop, true);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&looker.wrong), 0);
}

static void test_description_names_what_happened(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig, 0, 4096);
    char text[400];
    char tiny[8];

    request.remote_offset = 4096;
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), NULL));
    assert_ok(ferry_task_describe(rig->engine, rig->batch, 0, text, sizeof(text)));
    assert_non_null(strstr(text, "read of 4096 bytes"));
    assert_non_null(strstr(text, "failed over loop"));
    assert_non_null(strstr(text, ferry_engine_segment_name(rig->engine)));
    assert_ok(ferry_task_describe(rig->engine, rig->batch, 0, tiny, sizeof(tiny)));
    assert_true(strlen(tiny) < sizeof(tiny));
    assert_status(ferry_task_describe(rig->engine, rig->batch, 1, text, sizeof(text)),
                  FERRY_ERR_INVALID);
}

static void check_json(const char *text)
{
    struct ferry_json root = {0};

    assert_ok(ferry_json_parse(&ferry_json_limits_small, "report", text, strlen(text), &root));
    ferry_json_free(&root);
}

static void test_reports_are_json_and_the_peer_gives_them_too(void **state)
{
    static const char *const paths[] = {"segment", "process", "transports", "health", "version"};
    struct rig *rig = *state;
    struct ferry_engine *other = open_engine(NULL);
    uint64_t segment;
    char *text;

    for (int i = FERRY_REPORT_PROCESS; i <= FERRY_REPORT_HOST; i++) {
        assert_ok(ferry_engine_report(rig->engine, (enum ferry_report)i, &text));
        check_json(text);
        ferry_text_free(text);
    }
    assert_ok(ferry_engine_report(NULL, FERRY_REPORT_BUILD, &text));
    assert_non_null(strstr(text, ferry_version()));
    ferry_text_free(text);
    assert_status(ferry_engine_report(NULL, FERRY_REPORT_PROCESS, &text), FERRY_ERR_INVALID);
    assert_ok(ferry_segment_open(rig->engine, ferry_engine_segment_name(other),
                                 test_deadline_ms(5000), &segment));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        assert_ok(
            ferry_segment_report(rig->engine, segment, paths[i], test_deadline_ms(5000), &text));
        check_json(text);
        ferry_text_free(text);
    }
    assert_status(
        ferry_segment_report(rig->engine, segment, "secrets", test_deadline_ms(5000), &text),
        FERRY_ERR_INVALID);
    assert_status(ferry_segment_report(rig->engine, FERRY_SEGMENT_LOCAL, "process",
                                       test_deadline_ms(5000), &text),
                  FERRY_ERR_INVALID);
    assert_ok(ferry_engine_close(other));
}

static void test_notifications_arrive_in_order_and_the_inbox_is_bounded(void **state)
{
    struct rig *rig = *state;
    struct ferry_engine *other = open_engine(NULL);
    struct ferry_notification got = {.struct_size = sizeof(got)};
    char long_text[4097];
    uint64_t segment;

    assert_ok(ferry_segment_open(other, ferry_engine_segment_name(rig->engine),
                                 test_deadline_ms(5000), &segment));
    assert_ok(ferry_notify_send(other, segment, "a", "first", test_deadline_ms(5000)));
    assert_ok(ferry_notify_send(other, segment, "b", "", test_deadline_ms(5000)));
    memset(long_text, 'x', sizeof(long_text));
    long_text[4095] = '\0';
    assert_ok(ferry_notify_send(other, segment, "c", long_text, test_deadline_ms(5000)));
    assert_status(ferry_notify_send(other, segment, "d", "one too many", test_deadline_ms(5000)),
                  FERRY_ERR_QUEUE_FULL);
    long_text[4095] = 'x';
    long_text[4096] = '\0';
    assert_status(ferry_notify_send(other, segment, "e", long_text, test_deadline_ms(5000)),
                  FERRY_ERR_TOO_LARGE);
    assert_status(ferry_notify_send(other, FERRY_SEGMENT_LOCAL, "f", "me", test_deadline_ms(5000)),
                  FERRY_ERR_INVALID);
    /* Refused here, and not only by a peer that cannot read it. */
    assert_status(ferry_notify_send(other, segment, "g", "\xff", test_deadline_ms(5000)),
                  FERRY_ERR_INVALID);
    assert_non_null(strstr(ferry_last_error_text(), "UTF-8"));
    assert_ok(ferry_notify_receive(rig->engine, test_deadline_ms(5000), &got));
    assert_string_equal(got.name, "a");
    assert_string_equal(got.message, "first");
    assert_string_equal(got.sender, ferry_engine_segment_name(other));
    assert_ok(ferry_notify_receive(rig->engine, 0, &got));
    assert_ok(ferry_notify_receive(rig->engine, 0, &got));
    assert_int_equal(strlen(got.message), 4095);
    assert_status(ferry_notify_receive(rig->engine, 0, &got), FERRY_ERR_TIMED_OUT);
    assert_status(ferry_notify_receive(rig->engine, test_deadline_ms(20), &got),
                  FERRY_ERR_TIMED_OUT);
    assert_ok(ferry_engine_close(other));
}

/* What a peer posts is read by the one strict reader of control messages. */
static void test_bodies_that_peers_post_are_checked(void **state)
{
    static const struct {
        const char *path;
        const char *body;
        long http_status;
    } posts[] = {
        {"/v1/goodbye", "{\"segment\":\"a\",\"incarnation\":\"0123\"}", 400},
        {"/v1/goodbye", "{\"segment\":\"\",\"incarnation\":\"0123456789abcdef0123456789abcdef\"}",
         400},
        {"/v1/goodbye", "{\"segment\":\"a\",\"incarnation\":\"0123456789abcdef0123456789ABCDEF\"}",
         204},
        {"/v1/notify", "{\"sender\":\"a\",\"name\":\"b\"}", 400},
        {"/v1/notify", "{\"sender\":\"a\",\"name\":\"b\",\"message\":\"c\",\"later\":1}", 204},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++) {
        char url[512];
        struct ferry_http_call call = {.method = FERRY_HTTP_POST,
                                       .url = url,
                                       .body = posts[i].body,
                                       .body_len = strlen(posts[i].body),
                                       .reply_max = 65536,
                                       .deadline_ns = test_deadline_ms(5000)};

        snprintf(url, sizeof(url), "http://%s%s", ferry_engine_segment_name(rig->engine),
                 posts[i].path);
        assert_ok(ferry_http_client_call(rig->engine->http, &call));
        assert_int_equal(call.http_status, posts[i].http_status);
        free(call.reply);
    }
}

static void test_segment_names_are_counted_and_stale_handles_are_errors(void **state)
{
    struct rig *rig = *state;
    struct ferry_engine *other = open_engine(NULL);
    const char *name = ferry_engine_segment_name(other);
    uint64_t first, second;
    size_t count = 0;

    assert_ok(ferry_segment_open(rig->engine, "", 0, &first));
    assert_int_equal(first, FERRY_SEGMENT_LOCAL);
    assert_ok(ferry_segment_close(rig->engine, FERRY_SEGMENT_LOCAL));
    assert_ok(ferry_segment_open(rig->engine, ferry_engine_segment_name(rig->engine), 0, &first));
    assert_int_equal(first, FERRY_SEGMENT_LOCAL);
    assert_ok(ferry_segment_open(rig->engine, name, test_deadline_ms(5000), &first));
    assert_ok(ferry_segment_open(rig->engine, name, test_deadline_ms(5000), &second));
    assert_int_equal(first, second);
    assert_ok(ferry_segment_close(rig->engine, first));
    assert_ok(ferry_segment_buffers(rig->engine, first, NULL, &count));
    assert_ok(ferry_segment_close(rig->engine, first));
    assert_status(ferry_segment_close(rig->engine, first), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_segment_buffers(rig->engine, first, NULL, &count), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_segment_refresh(rig->engine, first, test_deadline_ms(1000)),
                  FERRY_ERR_STALE_HANDLE);
    assert_ok(ferry_segment_open(rig->engine, name, test_deadline_ms(5000), &second));
    assert_true(first != second);
    assert_ok(ferry_engine_close(other));
}

static void test_segment_that_nobody_serves_is_an_error_with_the_address(void **state)
{
    struct rig *rig = *state;
    uint64_t segment;

    assert_status(ferry_segment_open(rig->engine, "127.0.0.1:1", test_deadline_ms(5000), &segment),
                  FERRY_ERR_PEER_GONE);
    assert_non_null(strstr(ferry_last_error_text(), "127.0.0.1"));
    assert_status(ferry_segment_open(rig->engine, "1.2.3:x", test_deadline_ms(5000), &segment),
                  FERRY_ERR_INVALID);
    assert_status(ferry_segment_open(rig->engine, NULL, test_deadline_ms(5000), &segment),
                  FERRY_ERR_INVALID);
}

/* Field report B17: the same again, overlaps, and odd ranges, all or nothing. */
static void test_registration_rules_hold_and_the_list_agrees(void **state)
{
    struct rig *rig = *state;
    struct ferry_segment_buffer list[8] = {{.struct_size = sizeof(list[0])}};
    static unsigned char memory[1 << 20];
    struct ferry_memory_range ranges[2] = {FERRY_MEMORY_RANGE_INIT, FERRY_MEMORY_RANGE_INIT};
    size_t count = 8;

    ranges[0].addr = ranges[1].addr = memory;
    ranges[0].length = ranges[1].length = sizeof(memory) / 2;
    assert_ok(ferry_memory_register(rig->engine, ranges, 2));
    assert_ok(ferry_memory_register(rig->engine, ranges, 1));
    assert_ok(ferry_segment_buffers(rig->engine, FERRY_SEGMENT_LOCAL, list, &count));
    assert_int_equal(count, 3);
    assert_ok(ferry_memory_unregister(rig->engine, ranges, 2, 0));
    ranges[1].length /= 2;
    assert_status(ferry_memory_register(rig->engine, &ranges[1], 1), FERRY_ERR_EXISTS);
    assert_status(ferry_memory_unregister(rig->engine, ranges, 2, 0), FERRY_ERR_NOT_FOUND);
    ranges[1].addr = memory + sizeof(memory) / 2 + 1;
    ranges[1].length = 4095;
    assert_ok(ferry_memory_register(rig->engine, &ranges[1], 1));
    assert_ok(ferry_memory_unregister(rig->engine, ranges, 2, 0));
    assert_status(ferry_memory_unregister(rig->engine, ranges, 1, 0), FERRY_ERR_NOT_FOUND);
    ranges[0].addr = NULL;
    assert_status(ferry_memory_register(rig->engine, ranges, 1), FERRY_ERR_INVALID);
    ranges[0].addr = memory;
    ranges[0].length = 0;
    assert_status(ferry_memory_register(rig->engine, ranges, 1), FERRY_ERR_INVALID);
    ranges[0].length = UINT64_MAX;
    assert_status(ferry_memory_register(rig->engine, ranges, 1), FERRY_ERR_INVALID);
    ranges[0].length = 4096;
    ranges[0].location = "cuda:0";
    assert_status(ferry_memory_register(rig->engine, ranges, 1), FERRY_ERR_UNSUPPORTED);
    ranges[0].location = "cpu:4096";
    assert_status(ferry_memory_register(rig->engine, ranges, 1), FERRY_ERR_INVALID);
    assert_ok(ferry_memory_register(rig->engine, NULL, 0));
    count = 8;
    assert_ok(ferry_segment_buffers(rig->engine, FERRY_SEGMENT_LOCAL, list, &count));
    assert_int_equal(count, 2);
    assert_status(ferry_memory_free(rig->engine, memory, 0), FERRY_ERR_NOT_FOUND);
}

/* Memory that was registered once more would have been unmapped under whoever reads it. */
static void test_memory_is_freed_with_its_last_registration_only(void **state)
{
    struct rig *rig = *state;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request = FERRY_REQUEST_INIT;

    range.addr = rig->remote;
    range.length = LENGTH;
    assert_ok(ferry_memory_register(rig->engine, &range, 1));
    assert_status(ferry_memory_free(rig->engine, rig->remote, 0), FERRY_ERR_BUSY);
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = LENGTH;
    assert_ok(ferry_read(rig->engine, &request, test_deadline_ms(5000)));
    assert_ok(ferry_memory_unregister(rig->engine, &range, 1, 0));
    assert_ok(ferry_memory_free(rig->engine, rig->remote, 0));
    assert_status(ferry_memory_free(rig->engine, rig->remote, 0), FERRY_ERR_NOT_FOUND);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_batch_refuses_what_does_not_fit_and_takes_nothing),
        RIG_TEST(test_batch_is_busy_while_a_task_is_open),
        RIG_TEST(test_batch_count_and_capacity_have_limits),
        RIG_TEST(test_batch_takes_several_submits),
        RIG_TEST(test_callback_runs_once_and_must_not_wait),
        RIG_TEST(test_eventfd_becomes_readable_at_the_end),
        RIG_TEST(test_read_ends_at_its_deadline_and_memory_is_free),
        RIG_TEST(test_request_array_is_read_with_its_stride),
        RIG_TEST(test_own_segment_moves_overlapping_ranges_whole),
        RIG_TEST(test_refused_submit_does_not_lose_the_end_of_a_cycle),
        RIG_TEST(test_end_inside_a_refused_submit_is_told),
        RIG_TEST(test_batch_may_be_looked_at_while_it_is_destroyed),
        RIG_TEST(test_description_names_what_happened),
        RIG_TEST(test_reports_are_json_and_the_peer_gives_them_too),
        RIG_TEST(test_notifications_arrive_in_order_and_the_inbox_is_bounded),
        RIG_TEST(test_bodies_that_peers_post_are_checked),
        RIG_TEST(test_memory_is_freed_with_its_last_registration_only),
        RIG_TEST(test_segment_names_are_counted_and_stale_handles_are_errors),
        RIG_TEST(test_segment_that_nobody_serves_is_an_error_with_the_address),
        RIG_TEST(test_registration_rules_hold_and_the_list_agrees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
