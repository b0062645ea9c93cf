/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine without threads, on a virtual clock and simulated reactors: nothing happens between two
 * steps, calls that block step the world, and deadlines pass when the clock says so. This is what
 * the model rig builds on.
 */
#include <string.h>

#include <ferry/ferry.h>

#include "metadata/store.h"
#include "runtime/seams.h"
#include "sim/net_sim.h"
#include "sim/reactor_sim.h"
#include "support/pattern.h"
#include "support/process.h"
#include "support/test.h"
#include "transport/fault/fault.h"

#define LENGTH 262144u

struct world {
    struct sim_net *net;
    struct ferry_store store;
    struct ferry_store_request *request; /* one at a time is enough here */
    uint32_t puts;
    struct ferry_engine *engine;
    struct ferry_transport *fault;
    unsigned char *local, *remote;
    uint64_t batch;
};

static void store_submit(struct ferry_store *store, struct ferry_store_request *request)
{
    struct world *world = FERRY_CONTAINER_OF(store, struct world, store);

    assert_null(world->request);
    world->request = request;
}

static void store_step(struct world *world)
{
    struct ferry_store_request *request = world->request;

    if (request == NULL)
        return;
    world->request = NULL;
    world->puts += request->verb == FERRY_STORE_PUT;
    request->status = request->verb == FERRY_STORE_GET ? FERRY_ERR_NOT_FOUND : FERRY_OK;
    request->done(request);
}

/* One move of everything; the clock moves when nothing else does. */
static void step(void *arg)
{
    struct world *world = arg;

    store_step(world);
    if (world->engine == NULL || ferry_engine_turn(world->engine) == 0)
        sim_net_advance_until(world->net, sim_net_now_ns(world->net) + 1000000);
}

static int set_up(void **state)
{
    static const struct ferry_store_ops ops = {.name = "step", .submit = store_submit};
    struct sim_options sim = {.seed = 7};
    struct world *world = calloc(1, sizeof(*world));
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine_seams seams = {.threadless = true, .step = step};
    struct ferry_config *config = NULL;
    struct sim_process *process;
    void *addr;

    assert_non_null(world);
    world->store.ops = &ops;
    world->net = sim_net_create(&sim);
    process = sim_process_start(world->net);
    seams.clock = sim_process_clock(process);
    seams.net = sim_process_net(process);
    seams.reactor_ops = &sim_reactor_ops;
    seams.store = &world->store;
    seams.step_arg = world;
    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "transports.fault.enable", "true", FERRY_ORIGIN_API));
    options.config = config;
    options.segment_name = "world";
    assert_ok(ferry_engine_open_with(&options, &seams, &world->engine));
    ferry_config_destroy(config);
    world->fault = ferry_engine_transport(world->engine, "loop");
    assert_ok(ferry_memory_alloc(world->engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &addr));
    world->local = addr;
    assert_ok(ferry_memory_alloc(world->engine, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &addr));
    world->remote = addr;
    pattern_fill(world->remote, LENGTH, 1, 0);
    assert_ok(ferry_batch_create(world->engine, 4, &world->batch));
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;

    assert_ok(ferry_engine_close(world->engine));
    sim_net_destroy(world->net);
    free(world);
    return 0;
}

static struct ferry_request request_of(const struct world *world)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.local = world->local;
    request.remote_offset = (uintptr_t)world->remote;
    request.length = LENGTH;
    return request;
}

static struct ferry_batch_status sum_of(const struct world *world)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    assert_ok(ferry_batch_status(world->engine, world->batch, &sum));
    return sum;
}

static void test_engine_without_threads_moves_only_when_stepped(void **state)
{
    struct world *world = *state;
    struct ferry_request request = request_of(world);

    assert_int_equal(process_thread_count(), 1);
    assert_string_equal(ferry_engine_segment_name(world->engine), "world");
    assert_int_equal(world->puts, 3);
    assert_ok(ferry_batch_submit(world->engine, world->batch, &request, 1));
    assert_int_equal(sum_of(world).ended, 0);
    assert_status(ferry_batch_wait(world->engine, world->batch, 1, NULL), FERRY_ERR_TIMED_OUT);
    for (uint32_t i = 0; i < 1000 && sum_of(world).ended == 0; i++)
        step(world);
    assert_int_equal(sum_of(world).completed, 1);
    assert_int_equal(pattern_differs(world->local, LENGTH, 1, 0), PATTERN_SAME);
    assert_int_equal(process_thread_count(), 1);
}

static void test_engine_without_threads_steps_in_calls_that_block(void **state)
{
    struct world *world = *state;
    struct ferry_request request = request_of(world);
    uint64_t now = sim_net_now_ns(world->net);

    assert_ok(ferry_read(world->engine, &request, now + 1000000000u));
    assert_int_equal(pattern_differs(world->local, LENGTH, 1, 0), PATTERN_SAME);
    pattern_fill(world->local, LENGTH, 2, 0);
    assert_ok(ferry_write(world->engine, &request, FERRY_NO_DEADLINE));
    assert_int_equal(pattern_differs(world->remote, LENGTH, 2, 0), PATTERN_SAME);
    assert_ok(ferry_memory_free(world->engine, world->local, 1000000));
}

static void test_engine_without_threads_keeps_deadlines_of_its_clock(void **state)
{
    struct world *world = *state;
    struct ferry_fault_rule rule = ferry_fault_rule_of(FERRY_FAULT_DROP);
    struct ferry_request request = request_of(world);
    uint64_t now = sim_net_now_ns(world->net);

    ferry_fault_add(world->fault, &rule);
    assert_status(ferry_read(world->engine, &request, now + 5000000000u), FERRY_ERR_TIMED_OUT);
    assert_in_range(sim_net_now_ns(world->net), now + 5000000000u, now + 5100000000u);
    /* An open task at the end: close steps, too. */
    assert_ok(ferry_batch_submit(world->engine, world->batch, &request, 1));
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(test_engine_without_threads_moves_only_when_stepped),
        WORLD_TEST(test_engine_without_threads_steps_in_calls_that_block),
        WORLD_TEST(test_engine_without_threads_keeps_deadlines_of_its_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
