/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted: every end of a request under its own status, in the bucket of its time, on cache
 * lines of its own thread; and paths that add up to the totals in a table that does not grow with
 * the peers.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

#include "runtime/metrics.h"
#include "runtime/path_table.h"
#include "runtime/runtime.h"
#include "support/test.h"
#include "transport/fault/fault.h"

#define LENGTH 65536u

static struct ferry_engine *open_engine(const char *const *settings)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    for (size_t i = 0; settings[i] != NULL; i += 2)
        assert_ok(ferry_config_set(config, settings[i], settings[i + 1], FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

static char *text_of(struct ferry_engine *engine)
{
    char *text = NULL;
    size_t len;

    assert_ok(ferry_metrics_print(engine, FERRY_EXPOSITION_TEXT, &text, &len));
    assert_int_equal(strlen(text), len);
    return text;
}

/* The sum of all samples that begin so; fails if there is none. */
static uint64_t sum_of(const char *text, const char *begin)
{
    uint64_t sum = 0;
    uint32_t found = 0;

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (*line == '\0')
            break;
        if (strncmp(line, begin, strlen(begin)) != 0)
            continue;
        const char *end = strchr(line, '\n');
        const char *space = end;

        while (*space != ' ')
            space--;
        sum += strtoull(space + 1, NULL, 10);
        found++;
    }
    if (found == 0)
        fail_msg("no sample begins with %s", begin);
    return sum;
}

static uint64_t ask(struct ferry_engine *engine, const char *begin)
{
    char *text = text_of(engine);
    uint64_t sum = sum_of(text, begin);

    free(text);
    return sum;
}

/* ---- every end ---- */

struct rig {
    struct ferry_engine *engine;
    struct ferry_transport *fault; /* around loop */
    void *local;
    void *remote;
    uint64_t batch;
};

static int rig_set_up(void **state)
{
    static const char *const settings[] = {"transports.fault.enable", "true", NULL};
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    rig->engine = open_engine(settings);
    rig->fault = ferry_engine_transport(rig->engine, "loop");
    assert_ok(ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &rig->local));
    assert_ok(
        ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &rig->remote));
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

/* One request of @bytes that a rule meets, unless @action is NONE. */
static void run(struct rig *rig, enum ferry_opcode opcode, uint64_t bytes,
                enum ferry_fault_action action, enum ferry_status status,
                enum ferry_task_state wanted)
{
    struct ferry_fault_rule rule = ferry_fault_rule_of(action);
    struct ferry_request request = FERRY_REQUEST_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    rule.status = status;
    ferry_fault_clear(rig->fault);
    if (action != FERRY_FAULT_NONE)
        ferry_fault_add(rig->fault, &rule);
    request.opcode = opcode;
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = bytes;
    if (wanted == FERRY_TASK_TIMED_OUT)
        request.deadline_ns = test_deadline_ms(5);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    if (wanted == FERRY_TASK_CANCELED)
        assert_ok(ferry_batch_cancel(rig->engine, rig->batch));
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), &sum));
    assert_ok(ferry_task_status(rig->engine, rig->batch, 0, &task));
    assert_int_equal(task.state, wanted);
    assert_ok(ferry_batch_reset(rig->engine, rig->batch));
}

static void test_every_end_is_counted_under_its_own_status(void **state)
{
    static const struct {
        enum ferry_fault_action action;
        enum ferry_status status;
        enum ferry_task_state end;
        const char *name;
    } ends[] = {
        {FERRY_FAULT_NONE, FERRY_OK, FERRY_TASK_COMPLETED, "completed"},
        {FERRY_FAULT_FAIL, FERRY_ERR_UNSUPPORTED, FERRY_TASK_INVALID, "invalid"},
        {FERRY_FAULT_DROP, FERRY_OK, FERRY_TASK_CANCELED, "canceled"},
        {FERRY_FAULT_DROP, FERRY_OK, FERRY_TASK_TIMED_OUT, "timed_out"},
        {FERRY_FAULT_FAIL, FERRY_ERR_PATH_DOWN, FERRY_TASK_FAILED, "failed"},
    };
    struct rig *rig = *state;
    char begin[128];

    for (uint32_t op = 0; op < 2; op++) {
        for (uint32_t i = 0; i < FERRY_ARRAY_LEN(ends); i++) {
            /* As many as its number, so that no two could be mistaken for each other. */
            for (uint32_t k = 0; k <= i + 5 * op; k++)
                run(rig, (enum ferry_opcode)op, 4096 + i, ends[i].action, ends[i].status,
                    ends[i].end);
        }
    }
    for (uint32_t op = 0; op < 2; op++) {
        for (uint32_t i = 0; i < FERRY_ARRAY_LEN(ends); i++) {
            uint64_t count = i + 5 * op + 1;
            const char *labels = "{transport=\"loop\",op=\"%s\",status=\"%s\"}";
            char key[80];

            snprintf(key, sizeof(key), labels, op == 0 ? "read" : "write", ends[i].name);
            snprintf(begin, sizeof(begin), "ferry_requests_total%s ", key);
            assert_int_equal(ask(rig->engine, begin), count);
            snprintf(begin, sizeof(begin), "ferry_request_bytes_total%s ", key);
            assert_int_equal(ask(rig->engine, begin), count * (4096 + i));
            snprintf(begin, sizeof(begin), "ferry_request_duration_seconds_count%s ", key);
            assert_int_equal(ask(rig->engine, begin), count);
        }
    }
}

static void test_duration_of_a_request_is_the_time_to_its_end(void **state)
{
    struct rig *rig = *state;
    struct ferry_fault_rule drop = ferry_fault_rule_of(FERRY_FAULT_DROP);
    struct ferry_request request = FERRY_REQUEST_INIT;
    struct ferry_batch_status batch = FERRY_BATCH_STATUS_INIT;
    struct ferry_tally_sum sum;
    uint64_t before_ns, after_ns;
    uint32_t loop;

    ferry_fault_add(rig->fault, &drop);
    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = 4096;
    request.deadline_ns = test_deadline_ms(50);
    before_ns = ferry_engine_now(rig->engine);
    assert_ok(ferry_batch_submit(rig->engine, rig->batch, &request, 1));
    after_ns = ferry_engine_now(rig->engine);
    assert_ok(ferry_batch_wait(rig->engine, rig->batch, test_deadline_ms(5000), &batch));
    assert_ok(ferry_engine_find_transport(rig->engine, "loop", &loop));
    sum = ferry_tally_sum(&rig->engine->tally, loop, FERRY_READ, FERRY_TASK_TIMED_OUT);
    assert_int_equal(sum.count, 1);
    if (request.deadline_ns > after_ns)
        assert_true(sum.ns >= request.deadline_ns - after_ns);
    assert_true(sum.ns <= ferry_engine_now(rig->engine) - before_ns);
    assert_int_equal(sum.buckets[ferry_tally_bucket(sum.ns)], 1);
    assert_ok(ferry_batch_reset(rig->engine, rig->batch));
}

/* ---- buckets and cells ---- */

static void test_buckets_begin_at_a_microsecond_and_double(void **state)
{
    (void)state;
    assert_int_equal(ferry_tally_bucket(0), 0);
    assert_int_equal(ferry_tally_bucket(1000), 0);
    for (uint32_t i = 1; i < FERRY_TALLY_BUCKETS - 1; i++) {
        assert_int_equal(ferry_tally_bucket((1000ULL << (i - 1)) + 1), i);
        assert_int_equal(ferry_tally_bucket(1000ULL << i), i);
    }
    assert_int_equal(ferry_tally_bucket((1000ULL << (FERRY_TALLY_BUCKETS - 2)) + 1),
                     FERRY_TALLY_BUCKETS - 1);
    assert_int_equal(ferry_tally_bucket(UINT64_MAX), FERRY_TALLY_BUCKETS - 1);
}

#define ADDERS    (FERRY_TALLY_CELLS + 8)
#define ADDITIONS 1000
#define SEPARATE  8

static void *add_many(void *arg)
{
    for (uint32_t i = 0; i < ADDITIONS; i++)
        ferry_tally_add(arg, 1, FERRY_WRITE, FERRY_TASK_FAILED, 3, 1500);
    return NULL;
}

static void add_on_threads(struct ferry_tally *tally, uint32_t count)
{
    pthread_t threads[ADDERS];

    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, tally), 0);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void test_sums_are_right_with_more_threads_than_cells(void **state)
{
    struct ferry_tally tally = {0};
    struct ferry_tally_sum sum;

    (void)state;
    assert_ok(ferry_tally_open(&tally, 2));
    add_on_threads(&tally, ADDERS);
    sum = ferry_tally_sum(&tally, 1, FERRY_WRITE, FERRY_TASK_FAILED);
    assert_int_equal(sum.count, ADDERS * ADDITIONS);
    assert_int_equal(sum.bytes, 3 * ADDERS * ADDITIONS);
    assert_int_equal(sum.ns, 1500 * ADDERS * ADDITIONS);
    assert_int_equal(sum.buckets[1], ADDERS * ADDITIONS);
    assert_int_equal(ferry_tally_sum(&tally, 0, FERRY_WRITE, FERRY_TASK_FAILED).count, 0);
    assert_int_equal(ferry_tally_sum(&tally, 1, FERRY_READ, FERRY_TASK_FAILED).count, 0);
    ferry_tally_close(&tally);
}

static void test_threads_add_on_cache_lines_of_their_own(void **state)
{
    size_t rows = (size_t)FERRY_TALLY_CELLS * 2 * FERRY_TALLY_OPS * FERRY_TALLY_ENDS;
    struct ferry_tally tally = {0};
    uint32_t used = 0;

    (void)state;
    assert_ok(ferry_tally_open(&tally, 2));
    assert_int_equal((uintptr_t)tally.rows % FERRY_CACHE_LINE, 0);
    add_on_threads(&tally, SEPARATE);
    for (size_t i = 0; i < rows; i++) {
        uint64_t bytes = atomic_load(&tally.rows[i].bytes);

        used += bytes != 0;
        assert_true(bytes == 0 || bytes == 3 * ADDITIONS);
    }
    assert_int_equal(used, SEPARATE);
    ferry_tally_close(&tally);
}

/* ---- paths ---- */

static struct ferry_path_table *new_table(struct ferry_path_labels *labels)
{
    struct ferry_path_table *table = calloc(1, sizeof(*table));

    assert_non_null(table);
    table->labels = labels;
    return table;
}

/* Peers [first, end), 3 rails each, every one with @each bytes read. */
static struct ferry_path_table *look(struct ferry_path_labels *labels, struct ferry_path_rest *rest,
                                     uint32_t first, uint32_t end, uint64_t each)
{
    struct ferry_path_table *table = new_table(labels);

    for (uint32_t i = first; i < end; i++) {
        for (uint32_t k = 0; k < 3; k++) {
            char peer[32];
            char rail[8];
            struct ferry_path path = {.peer = peer, .rail = rail, .bytes_read = each};

            snprintf(peer, sizeof(peer), "peer%u", i);
            snprintf(rail, sizeof(rail), "%u", k);
            ferry_path_table_add(table, &path);
        }
    }
    ferry_path_table_settle(table, rest);
    return table;
}

static uint64_t read_bytes(const struct ferry_path_table *table, uint32_t *rows_out)
{
    uint64_t sum = 0;

    *rows_out = 0;
    for (uint32_t i = 0; i <= FERRY_PATH_PEERS; i++) {
        for (uint32_t k = 0; k <= FERRY_PATH_RAILS; k++) {
            *rows_out += table->rows[i][k].used;
            sum += table->rows[i][k].counters[FERRY_PATH_READ_BYTES];
        }
    }
    return sum;
}

static uint64_t others(const struct ferry_path_table *table)
{
    return table->rows[FERRY_PATH_PEERS][FERRY_PATH_RAILS].counters[FERRY_PATH_READ_BYTES];
}

static void test_ten_thousand_peers_are_a_bounded_table_that_adds_up(void **state)
{
    struct ferry_path_labels *labels = calloc(1, sizeof(*labels));
    struct ferry_path_rest rest = {0};
    struct ferry_path_table *table = look(labels, &rest, 0, 10000, 7);
    uint32_t rows;

    (void)state;
    assert_int_equal(read_bytes(table, &rows), 10000 * 3 * 7);
    assert_int_equal(rows, FERRY_PATH_PEERS * 3 + 1);
    assert_int_equal(others(table), (10000 - FERRY_PATH_PEERS) * 3 * 7);
    assert_string_equal(ferry_path_peer(table, FERRY_PATH_PEERS), "other");
    assert_string_equal(ferry_path_peer(table, 5), "peer5");
    free(table);
    free(labels);
}

static void test_labels_stay_and_the_others_never_go_back(void **state)
{
    struct ferry_path_labels *labels = calloc(1, sizeof(*labels));
    struct ferry_path_rest rest = {0};
    struct ferry_path_table *before = look(labels, &rest, 0, 1000, 7);
    /* All that had a label are gone, and half of the others: nobody moves up. */
    struct ferry_path_table *after = look(labels, &rest, 500, 1000, 7);
    struct ferry_path_table *later;

    (void)state;
    assert_int_equal(others(after), others(before));
    for (uint32_t i = 0; i < FERRY_PATH_PEERS; i++)
        assert_false(after->rows[i][0].used);
    later = look(labels, &rest, 500, 1000, 8);
    assert_int_equal(others(later), others(before) + 500 * 3);
    free(before);
    free(after);
    free(later);
    free(labels);
}

static void test_rails_beyond_the_table_are_added_up(void **state)
{
    struct ferry_path_labels *labels = calloc(1, sizeof(*labels));
    struct ferry_path_table *table = new_table(labels);

    (void)state;
    for (uint32_t i = 0; i < FERRY_PATH_RAILS + 5; i++) {
        char rail[8];
        struct ferry_path path = {.peer = "p", .rail = rail, .bytes_read = 1};

        snprintf(rail, sizeof(rail), "%u", i);
        ferry_path_table_add(table, &path);
    }
    assert_int_equal(table->rows[0][FERRY_PATH_RAILS].counters[FERRY_PATH_READ_BYTES], 5);
    assert_string_equal(table->rows[0][FERRY_PATH_RAILS].rail, "other");
    free(table);
    free(labels);
}

static void test_who_is_called_other_shares_that_row(void **state)
{
    struct ferry_path_labels *labels = calloc(1, sizeof(*labels));
    struct ferry_path_table *table = new_table(labels);
    struct ferry_path rail = {.peer = "a", .rail = "other", .bytes_read = 3};
    struct ferry_path peer = {.peer = "other", .rail = "0", .bytes_read = 4};

    (void)state;
    ferry_path_table_add(table, &rail);
    ferry_path_table_add(table, &peer);
    assert_int_equal(table->rows[0][FERRY_PATH_RAILS].counters[FERRY_PATH_READ_BYTES], 3);
    assert_int_equal(others(table), 4);
    assert_int_equal(labels->count, 1);
    free(table);
    free(labels);
}

#ifdef FERRY_HAVE_HP_TCP
static void test_bytes_of_rails_add_up_to_those_of_requests(void **state)
{
    static const char *const settings[] = {"transports.hp_tcp.rail_addresses",
                                           "127.0.0.1,127.0.0.2", "transports.hp_tcp.worker_count",
                                           "2", NULL};
    struct ferry_engine *here = open_engine(settings);
    struct ferry_engine *there = open_engine(settings);
    uint64_t length = 8u << 20;
    uint64_t segment;
    void *local, *remote;

    (void)state;
    assert_ok(ferry_memory_alloc(here, length, NULL, FERRY_PERMISSION_LOCAL, &local));
    assert_ok(ferry_memory_alloc(there, length, NULL, FERRY_PERMISSION_READ_WRITE, &remote));
    assert_ok(ferry_segment_open(here, ferry_engine_segment_name(there), test_deadline_ms(5000),
                                 &segment));
    for (uint32_t i = 0; i < 6; i++) {
        struct ferry_request request = FERRY_REQUEST_INIT;

        request.segment = segment;
        request.local = local;
        request.remote_offset = (uintptr_t)remote;
        request.length = i % 2 == 0 ? length : 4096;
        if (i < 4)
            assert_ok(ferry_read(here, &request, test_deadline_ms(10000)));
        else
            assert_ok(ferry_write(here, &request, test_deadline_ms(10000)));
    }

    char *text = text_of(here);
    uint64_t rails = sum_of(text, "ferry_rail_bytes_total{transport=\"hp_tcp\"");

    assert_int_equal(rails, 3 * length + 3 * 4096);
    assert_int_equal(rails, sum_of(text, "ferry_request_bytes_total{transport=\"hp_tcp\""));
    assert_int_equal(sum_of(text, "ferry_rail_up{transport=\"hp_tcp\""), 2);
    assert_int_equal(sum_of(text, "ferry_peers{transport=\"hp_tcp\""), 1);
    free(text);
    assert_int_equal(ask(there, "ferry_served_bytes_total{transport=\"hp_tcp\""), rails);
    assert_ok(ferry_engine_close(here));
    assert_ok(ferry_engine_close(there));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_end_is_counted_under_its_own_status, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(test_duration_of_a_request_is_the_time_to_its_end,
                                        rig_set_up, rig_tear_down),
        cmocka_unit_test(test_buckets_begin_at_a_microsecond_and_double),
        cmocka_unit_test(test_sums_are_right_with_more_threads_than_cells),
        cmocka_unit_test(test_threads_add_on_cache_lines_of_their_own),
        cmocka_unit_test(test_ten_thousand_peers_are_a_bounded_table_that_adds_up),
        cmocka_unit_test(test_labels_stay_and_the_others_never_go_back),
        cmocka_unit_test(test_who_is_called_other_shares_that_row),
        cmocka_unit_test(test_rails_beyond_the_table_are_added_up),
#ifdef FERRY_HAVE_HP_TCP
        cmocka_unit_test(test_bytes_of_rails_add_up_to_those_of_requests),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
