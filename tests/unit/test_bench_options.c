/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of `ferry bench`: strict values, the reference benchmark's flags, and which cases
 * fit (field report B35).
 */
#include "test.h"

#include <string.h>

#include "options.h"
#include "sweep.h"
#include "tebench_flags.h"

#define GIB (UINT64_C(1) << 30)

static char error[FERRY_BENCH_ERROR_SIZE];

static void test_bench_ranges_are_one_value_or_two(void **state)
{
    static const char *const wrong[] = {"0",
                                        "-1",
                                        "",
                                        "..",
                                        "1..",
                                        "..2",
                                        "8..4",
                                        "1..0",
                                        "1...2",
                                        "1..2.",
                                        "1 .. 2",
                                        "1099511627777",
                                        "18446744073709551616",
                                        "64M"};
    struct ferry_bench_range range;

    (void)state;
    assert_true(ferry_bench_parse_range("--block", "4096..64MiB", &ferry_bench_block_bounds, &range,
                                        error));
    assert_int_equal(range.from, 4096);
    assert_int_equal(range.to, 64 << 20);
    assert_true(ferry_bench_parse_range("--block", "7", &ferry_bench_block_bounds, &range, error));
    assert_int_equal(range.from, 7);
    assert_int_equal(range.to, 7);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        error[0] = '\0';
        assert_false(
            ferry_bench_parse_range("--block", wrong[i], &ferry_bench_block_bounds, &range, error));
        assert_non_null(strstr(error, "--block"));
        assert_non_null(strstr(error, wrong[i]));
        assert_non_null(strstr(error, "expected"));
        assert_null(strchr(error, '\n'));
        assert_int_equal(range.from, 7);
    }
    /* Units are for bytes. */
    assert_false(
        ferry_bench_parse_range("--batch", "1KiB", &ferry_bench_batch_bounds, &range, error));
    assert_non_null(strstr(error, "1..65536"));
}

static void test_bench_durations_are_decimal_fractions(void **state)
{
    static const char *const wrong[] = {
        "0",     "-1",  "",    "1.",  ".5",   "1e3",          "0.0001",
        "86401", "1,5", "0x1", "nan", "soon", "1.0000000001", "99999999999999999999"};
    uint64_t ns;

    (void)state;
    assert_true(ferry_bench_parse_seconds("--duration", "0.25", 1000000, &ns, error));
    assert_int_equal(ns, 250000000);
    assert_true(ferry_bench_parse_seconds("--duration", "86400", 1000000, &ns, error));
    assert_true(ferry_bench_parse_seconds("--duration", "1.000000001", 1000000, &ns, error));
    assert_int_equal(ns, 1000000001);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(ferry_bench_parse_seconds("--duration", wrong[i], 1000000, &ns, error));
}

/* As if typed; the words are split at blanks. */
static bool take(struct ferry_bench_options *options, char *line, int *argc_out, char *argv[32])
{
    int argc = 0;

    static char name[] = "bench";

    argv[argc++] = name;
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    *options = (struct ferry_bench_options){
        .block = {4096, 64 << 20}, .batch = {1, 1}, .threads = {1, 1}, .duration_ns = 1};
    error[0] = '\0';

    bool good = ferry_bench_take_reference_flags(options, &argc, argv, error);

    *argc_out = argc;
    return good;
}

static void test_bench_takes_published_command_lines(void **state)
{
    struct ferry_bench_options options;
    char *argv[32];
    int argc;
    char line[] = "--target_seg_name=10.0.0.1:7000,10.0.0.2:7000 -op_type write --seg_type=DRAM "
                  "--total_buffer_size=1073741824 -start_block_size=8192 --max_block_size 65536 "
                  "--start_batch_size=2 --max_batch_size=8 --start_num_threads=4 "
                  "--max_num_threads=16 --duration=3 --target_offset=4096 --check_consistency "
                  "--nonotifi --json --backend=tent";

    (void)state;
    assert_true(take(&options, line, &argc, argv));
    assert_true(options.reference);
    assert_int_equal(options.target_count, 2);
    assert_string_equal(options.targets[1], "10.0.0.2:7000");
    assert_int_equal(options.op, FERRY_BENCH_MIX);
    assert_true(options.check);
    assert_int_equal(options.buffer_bytes, GIB);
    assert_int_equal(options.block.from, 8192);
    assert_int_equal(options.block.to, 65536);
    assert_int_equal(options.batch.to, 8);
    assert_int_equal(options.threads.from, 4);
    assert_int_equal(options.duration_ns, 3000000000);
    assert_int_equal(options.window_offset, 4096);
    /* The rest is left for our own parser. */
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "--json");
    assert_null(argv[2]);
    ferry_bench_options_fini(&options);
}

static void test_bench_leaves_own_command_lines_alone(void **state)
{
    struct ferry_bench_options options;
    char *argv[32];
    int argc;
    char line[] = "--target a --op read --duration 0.5 -- --seg_name=x";

    (void)state;
    assert_true(take(&options, line, &argc, argv));
    assert_false(options.reference);
    assert_int_equal(options.duration_ns, 500000000);
    assert_int_equal(argc, 7);
    assert_string_equal(argv[6], "--seg_name=x");
}

static void test_bench_refuses_flags_by_name(void **state)
{
    static const char *const wrong[][2] = {
        {"--seg_type=VRAM", "--seg_type VRAM"},
        {"--seg_type_mix=dram,vram", "--seg_type_mix dram,vram"},
        {"--notifi", "--notifi true"},
        {"--backend=classic", "--backend classic"},
        {"--qos_classes=a:1:1:1", "--qos_classes"},
        {"--workload_classes_json=[]", "--workload_classes_json"},
        {"--deadline_us 5", "--deadline_us 5"},
        {"-request_interval_us=1", "--request_interval_us 1"},
        {"--local_gpu_id=-1", "--local_gpu_id -1"},
        {"--start_block_size=0", "--start_block_size 0"},
        {"--start_block_size=8192 --max_block_size=4096", "--start_block_size 8192"},
        {"--max_num_threads=100000000000", "--max_num_threads"},
        {"--total_buffer_size=18446744073709551616", "--total_buffer_size"},
        {"--op_type=steal", "--op_type steal"},
        {"--check_consistency --op_type=write_seed", "--check_consistency"},
        {"--target_seg_name=a,,b", "--target_seg_name"},
        {"--seg_name", "--seg_name"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct ferry_bench_options options;
        char *argv[32];
        char line[128];
        int argc;

        strcpy(line, wrong[i][0]);
        if (take(&options, line, &argc, argv))
            fail_msg("%s was taken", wrong[i][0]);
        if (strstr(error, wrong[i][1]) == NULL || strchr(error, '\n') != NULL)
            fail_msg("%s: said \"%s\"", wrong[i][0], error);
        ferry_bench_options_fini(&options);
    }
}

static void test_bench_sweeps_double_and_end_within_the_range(void **state)
{
    static const struct ferry_bench_case wanted[] = {
        {4096, 1, 1, 0},
        {8192, 1, 1, 0},
        {4096, 2, 1, 0},
        {8192, 2, 1, 0},
    };
    struct ferry_bench_options options = {
        .block = {4096, 16383}, .batch = {1, 3}, .threads = {1, 1}};
    struct ferry_bench_case c = {0};
    size_t count = 0;

    (void)state;
    while (ferry_bench_case_next(&options, &c)) {
        assert_true(count < 4);
        assert_int_equal(c.block, wanted[count].block);
        assert_int_equal(c.batch, wanted[count].batch);
        count++;
    }
    assert_int_equal(count, 4);
    options.threads = (struct ferry_bench_range){3, 5};
    options.block = (struct ferry_bench_range){FERRY_BENCH_BLOCK_MAX, FERRY_BENCH_BLOCK_MAX};
    options.batch = (struct ferry_bench_range){1, FERRY_BENCH_BATCH_MAX};
    memset(&c, 0, sizeof(c));
    for (count = 0; ferry_bench_case_next(&options, &c); count++)
        assert_int_equal(c.threads, 3);
    assert_int_equal(count, 17);
}

/* Products wrapped and addressed wrong memory once; here they are refused. */
static void test_bench_products_are_checked(void **state)
{
    struct ferry_bench_case c = {FERRY_BENCH_BLOCK_MAX, 65536, 256, 0};
    struct ferry_bench_options options = {
        .block = {4096, 65536}, .batch = {1, 1}, .threads = {2, 2}};
    struct ferry_bench_limit limit = {.bytes = 40000, .said_bytes = UINT64_MAX, .name = "test"};
    uint64_t bytes;

    (void)state;
    assert_false(ferry_bench_case_bytes(&c, &bytes));
    c.threads = 255;
    assert_true(ferry_bench_case_bytes(&c, &bytes));
    assert_true(bytes == 255 * (UINT64_C(1) << 56));
    assert_int_equal(ferry_bench_sweep_bytes(&options, &limit), 2 * 16384);
    limit.bytes = 8191;
    assert_int_equal(ferry_bench_sweep_bytes(&options, &limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_ranges_are_one_value_or_two),
        cmocka_unit_test(test_bench_durations_are_decimal_fractions),
        cmocka_unit_test(test_bench_takes_published_command_lines),
        cmocka_unit_test(test_bench_leaves_own_command_lines_alone),
        cmocka_unit_test(test_bench_refuses_flags_by_name),
        cmocka_unit_test(test_bench_sweeps_double_and_end_within_the_range),
        cmocka_unit_test(test_bench_products_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
