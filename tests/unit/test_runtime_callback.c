/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a completion callback runs: on a worker or inside a wait, never inside a submit of the
 * thread that submits. Two engines in one process over hp_tcp, the initiator with one worker, whose
 * baton a submitter gets easily.
 */
#include <pthread.h>
#include <stdatomic.h>

#include <ferry/ferry.h>

#include "support/pattern.h"
#include "support/test.h"

#define LENGTH 4096u
#define TOLD   4u

struct rig {
    struct ferry_engine *initiator;
    struct ferry_engine *target;
    uint64_t segment;
    unsigned char *local;
    unsigned char *remote;
};

static struct ferry_engine *open_engine(void)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "transports.hp_tcp.worker_count", "1", FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

static int rig_set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    void *addr;

    assert_non_null(rig);
    rig->initiator = open_engine();
    rig->target = open_engine();
    assert_ok(ferry_memory_alloc(rig->initiator, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr));
    rig->local = addr;
    assert_ok(ferry_memory_alloc(rig->target, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    rig->remote = addr;
    pattern_fill(rig->remote, LENGTH, 1, 0);
    assert_ok(ferry_segment_open(rig->initiator, ferry_engine_segment_name(rig->target),
                                 test_deadline_ms(5000), &rig->segment));
    *state = rig;
    return 0;
}

static int rig_tear_down(void **state)
{
    struct rig *rig = *state;

    assert_ok(ferry_engine_close(rig->initiator));
    assert_ok(ferry_engine_close(rig->target));
    free(rig);
    return 0;
}

static struct ferry_request read_of(const struct rig *rig)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.local = rig->local;
    request.segment = rig->segment;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = LENGTH;
    return request;
}

static _Thread_local bool inside_submit;

struct told {
    _Atomic uint32_t count;
    _Atomic uint32_t inside; /* of these, on a thread that was in ferry_batch_submit() */
};

static void tell(void *arg, uint64_t batch)
{
    struct told *told = arg;

    (void)batch;
    if (inside_submit)
        atomic_fetch_add(&told->inside, 1);
    atomic_fetch_add(&told->count, 1);
}

/*
 * A submitter that gets the baton also delivers what has arrived for others. A callback that ran
 * there would take the locks that the submitting program holds around its call.
 */
static void test_callback_does_not_run_inside_a_submit(void **state)
{
    struct rig *rig = *state;
    struct ferry_request request = read_of(rig);
    struct told told = {0};
    uint64_t batches[TOLD];
    uint32_t cycles = 0;

    for (uint32_t i = 0; i < TOLD; i++) {
        assert_ok(ferry_batch_create(rig->initiator, 1, &batches[i]));
        assert_ok(ferry_batch_on_done(rig->initiator, batches[i], tell, &told));
    }
    for (uint64_t until_ns = test_deadline_ms(1000); test_now_ns() < until_ns;) {
        /* It drives, and leaves the baton free. */
        assert_ok(ferry_read(rig->initiator, &request, test_deadline_ms(5000)));
        inside_submit = true;
        for (uint32_t i = 0; i < TOLD; i++) {
            assert_ok(ferry_batch_submit(rig->initiator, batches[i], &request, 1));
            /* The answers to the last ones arrive while nobody drives. */
            for (uint64_t at_ns = test_now_ns() + cycles % 160 * 1000; test_now_ns() < at_ns;)
                continue;
        }
        inside_submit = false;
        cycles += TOLD;
        for (uint32_t i = 0; i < TOLD; i++) {
            assert_ok(ferry_batch_wait(rig->initiator, batches[i], test_deadline_ms(5000), NULL));
            assert_ok(ferry_batch_reset(rig->initiator, batches[i]));
        }
        assert_int_equal(atomic_load(&told.count), cycles);
    }
    assert_int_equal(atomic_load(&told.inside), 0);
}

struct refusals {
    struct rig *rig;
    _Atomic uint32_t count;
    enum ferry_status statuses[13];
};

/* Everything that may block, with arguments that it would take elsewhere. */
static void call_what_blocks(void *arg, uint64_t batch)
{
    struct refusals *refusals = arg;
    struct rig *rig = refusals->rig;
    struct ferry_engine *engine = rig->initiator;
    static unsigned char memory[LENGTH];
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_notification notification = {.struct_size = sizeof(notification)};
    struct ferry_request request = read_of(rig);
    uint64_t until_ns = test_deadline_ms(1000);
    enum ferry_status *status = refusals->statuses;
    uint64_t segment;
    char *json;
    void *addr;

    range.addr = memory;
    range.length = sizeof(memory);
    *status++ = ferry_segment_open(engine, ferry_engine_segment_name(rig->target), until_ns,
                                   &segment);
    *status++ = ferry_segment_refresh(engine, rig->segment, until_ns);
    *status++ = ferry_segment_report(engine, rig->segment, "health", until_ns, &json);
    *status++ = ferry_memory_register(engine, &range, 1);
    *status++ = ferry_memory_unregister(engine, &range, 1, 0);
    *status++ = ferry_memory_alloc(engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr);
    *status++ = ferry_memory_free(engine, rig->local, 0);
    *status++ = ferry_notify_send(engine, rig->segment, "a", "b", until_ns);
    *status++ = ferry_notify_receive(engine, until_ns, &notification);
    *status++ = ferry_read(engine, &request, until_ns);
    *status++ = ferry_write(engine, &request, until_ns);
    *status++ = ferry_batch_wait(engine, batch, until_ns, NULL);
    *status++ = ferry_engine_close(engine);
    atomic_fetch_add(&refusals->count, 1);
}

/* One answer to one mistake, whichever call it is. */
static void test_what_blocks_is_refused_in_a_callback(void **state)
{
    struct rig *rig = *state;
    struct refusals refusals = {.rig = rig};
    struct ferry_request request = read_of(rig);
    uint64_t batch;

    assert_ok(ferry_batch_create(rig->initiator, 1, &batch));
    assert_ok(ferry_batch_on_done(rig->initiator, batch, call_what_blocks, &refusals));
    assert_ok(ferry_batch_submit(rig->initiator, batch, &request, 1));
    assert_ok(ferry_batch_wait(rig->initiator, batch, test_deadline_ms(20000), NULL));
    assert_within_ms(atomic_load(&refusals.count) == 1, 20000);
    for (size_t i = 0; i < sizeof(refusals.statuses) / sizeof(refusals.statuses[0]); i++)
        assert_status(refusals.statuses[i], FERRY_ERR_STATE);
}

#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_callback_does_not_run_inside_a_submit),
        RIG_TEST(test_what_blocks_is_refused_in_a_callback),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
