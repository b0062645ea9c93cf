/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole cases of the benchmark inside one process, over the loop transport: every operation with
 * its check, sums that add up, and a run that fails ends soon and says why.
 */
#include "test.h"

#include <json-c/json.h>
#include <string.h>

#include <ferry/ferry.h>

#include "record.h"
#include "run.h"

#define BUFFER_BYTES (4u << 20)

struct rig {
    struct ferry_engine *engine;
    struct ferry_bench_options options;
    struct ferry_bench_job job;
    struct ferry_bench_result result;
    void *memory;
};

static int rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct ferry_engine_options engine_options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_config *config;

    if (rig == NULL)
        return -1;
    assert_ok(ferry_config_create(&config));
    engine_options.config = config;
    assert_ok(ferry_engine_open(&engine_options, &rig->engine));
    ferry_config_destroy(config);
    assert_ok(ferry_memory_alloc(rig->engine, BUFFER_BYTES, NULL, FERRY_PERMISSION_READ_WRITE,
                                 &rig->memory));
    rig->options = (struct ferry_bench_options){.duration_ns = 30000000, .seed = 1};
    rig->job.options = &rig->options;
    rig->job.engine = rig->engine;
    rig->job.peer_count = 1;
    rig->job.peers[0] = (struct ferry_bench_peer){
        .name = "self",
        .segment = FERRY_SEGMENT_LOCAL,
        .addr = (uintptr_t)rig->memory,
        .bytes = BUFFER_BYTES,
    };
    *state = rig;
    return 0;
}

static int rig_close(void **state)
{
    struct rig *rig = *state;

    ferry_bench_result_fini(&rig->result);
    assert_ok(ferry_memory_free(rig->engine, rig->memory, 1000000000));
    assert_ok(ferry_engine_close(rig->engine));
    free(rig);
    return 0;
}

static void rig_run(struct rig *rig, struct ferry_bench_case c)
{
    ferry_bench_result_fini(&rig->result);
    assert_int_equal(ferry_bench_run(&rig->job, &c, &rig->result), FERRY_EXIT_OK);
}

static uint64_t member(struct json_object *record, const char *key)
{
    struct json_object *value = NULL;

    assert_true(json_object_object_get_ex(record, key, &value));
    return json_object_get_uint64(value);
}

static void test_bench_every_operation_is_measured_and_verified(void **state)
{
    static const struct ferry_bench_case cases[] = {
        {1, 1, 1, 0},        {4096, 1, 1, 0},     {4097, 5, 1, 0}, {4096, 64, 2, 0},
        {999, 300, 1, 0},    {1u << 20, 1, 2, 0}, {4096, 3, 2, 1}, {4096, 2, 1, 64},
        {30000, 1, 2, 1000}, {5000, 2, 1, 5}};
    static const enum ferry_bench_op ops[] = {FERRY_BENCH_READ, FERRY_BENCH_WRITE, FERRY_BENCH_MIX,
                                              FERRY_BENCH_WRITE_SEED, FERRY_BENCH_READ_VERIFY};
    struct rig *rig = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++) {
            const struct ferry_bench_result *result = &rig->result;

            /* What follows from an address is not in pieces. */
            if (cases[i].scatter > 0 && ops[k] > FERRY_BENCH_MIX)
                continue;
            rig->options.op = ops[k];
            rig->options.check = ops[k] <= FERRY_BENCH_MIX;
            rig_run(rig, cases[i]);
            if (result->errors != 0)
                fail_msg("%s: %s %s", ferry_bench_op_name(ops[k]), result->failure,
                         result->difference);
            assert_true(result->ops > 0);
            assert_int_equal(result->bytes, result->ops * cases[i].block);
            assert_int_equal(result->verified_bytes,
                             ops[k] == FERRY_BENCH_WRITE_SEED ? 0 : result->bytes);
            assert_true(result->moved_bytes >= result->bytes);
            assert_int_equal(result->latency.count, result->ops);
            assert_true(result->seconds > 0);
            assert_string_equal(result->transport, "loop");
        }
    }
}

static void test_bench_records_have_all_keys(void **state)
{
    static const char *const keys[] = {
        "op",          "transport",  "reactor",        "block",
        "pieces",      "batch",      "threads",        "seconds",
        "ops",         "bytes",      "errors",         "gb_per_s",
        "ops_per_s",   "latency_us", "cpu_s_per_gb",   "lanes",
        "cpu_threads", "placement",  "peak_rss_bytes", "verified_bytes"};
    struct rig *rig = *state;
    struct json_object *latency;
    struct json_object *value;

    rig->options.op = FERRY_BENCH_MIX;
    rig_run(rig, (struct ferry_bench_case){4096, 2, 2, 0});

    struct json_object *record = ferry_bench_record(&rig->job, &rig->result);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (!json_object_object_get_ex(record, keys[i], &value))
            fail_msg("no key %s", keys[i]);
    }
    assert_int_equal(member(record, "bytes"), member(record, "ops") * 4096);
    assert_int_equal(member(record, "threads"), 2);
    assert_true(json_object_object_get_ex(record, "latency_us", &latency));
    assert_true(json_object_object_get_ex(latency, "p999", &value));
    assert_true(json_object_get_double(value) > 0);
    json_object_put(record);
}

/* A range that is not registered: every loop stops, the reason is kept, nothing hangs. */
static void test_bench_a_failing_target_ends_the_case(void **state)
{
    struct rig *rig = *state;
    uint64_t begun_ns = test_now_ns();

    rig->options.op = FERRY_BENCH_READ;
    rig->options.duration_ns = UINT64_C(30000000000);
    rig->job.peers[0].addr = 4096;
    rig_run(rig, (struct ferry_bench_case){4096, 16, 3, 0});
    assert_true(rig->result.errors > 0);
    assert_int_equal(rig->result.ops, 0);
    assert_true(rig->result.failure[0] != '\0');
    assert_false(rig->result.stuck);
    assert_true(test_now_ns() - begun_ns < UINT64_C(20000000000));

    struct json_object *record = ferry_bench_record(&rig->job, &rig->result);
    struct json_object *latency = NULL;
    struct json_object *p50 = NULL;

    assert_int_equal(member(record, "errors"), rig->result.errors);
    json_object_object_get_ex(record, "latency_us", &latency);
    assert_true(json_object_object_get_ex(latency, "p50", &p50));
    assert_null(p50);
    json_object_put(record);
}

/* A transport that does not serve the segment is never replaced by another one. */
static void test_bench_a_pinned_transport_is_the_only_one(void **state)
{
    struct rig *rig = *state;

    rig->options.op = FERRY_BENCH_READ;
    rig->options.transport = "hp_tcp";
    rig_run(rig, (struct ferry_bench_case){4096, 1, 1, 0});
    assert_true(rig->result.errors > 0);
    assert_int_equal(rig->result.ops, 0);
    assert_non_null(strstr(rig->result.failure, "hp_tcp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bench_every_operation_is_measured_and_verified,
                                        rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_bench_records_have_all_keys, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(test_bench_a_failing_target_ends_the_case, rig_open,
                                        rig_close),
        cmocka_unit_test_setup_teardown(test_bench_a_pinned_transport_is_the_only_one, rig_open,
                                        rig_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
