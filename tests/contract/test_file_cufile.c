/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuFile misbehaves, one way after the other; what is promised holds: every byte is right, every
 * task ends once, memory is handed back only when nothing writes into it, and the library's own
 * rules are kept. The library is the stand-in that FERRY_TEST_CUFILE names. Ends with a table of
 * the rows of the fault table that were shown.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "contract/file_child.h"
#include "contract/file_rig.h"
#include "contract/file_table.h"
#include "fakes/cufile/double.h"
#include "support/process.h"

#define MIB  (1024u * 1024u)
#define MORE (2u * MIB)

static const struct file_kind *kind;
static cufile_double_script_fn *script;
static cufile_double_counts_fn *read_counts;
static cufile_double_release_fn *release_submit;

/* Short limits, so that what is lost is found soon; but longer than a busy machine is. */
static const char *const quick[] = {"transports.gds.watchdog_ms",
                                    "1000",
                                    "transports.gds.drain_ms",
                                    "30",
                                    "transports.gds.grace_ms",
                                    "30",
                                    NULL};

static struct cufile_double_counts counts_now(void)
{
    struct cufile_double_counts counts;

    read_counts(&counts);
    return counts;
}

static void open_rig(struct file_rig *rig, const char *words, const char *const *settings)
{
    static const uint64_t lengths[] = {MORE, MORE};

    script(words);
    file_rig_open(rig, kind, settings != NULL ? settings : quick);
    file_segment(rig, lengths, 2);
}

/* The library was used as it wants to be, and everything was given back. */
static void close_rig(struct file_rig *rig)
{
    struct cufile_double_counts counts;

    script("");
    file_rig_close(rig);
    counts = counts_now();
    if (counts.violations != 0)
        fail_msg("%s", counts.violation);
    assert_int_equal(counts.setups, counts.destroys);
    assert_int_equal(counts.files_registered, counts.files_deregistered);
    assert_int_equal(counts.buffers_registered, counts.buffers_deregistered);
    assert_int_equal(counts.driver_opens, counts.driver_closes);
}

/* Both directions, across the border of the two files, with every byte checked. */
static void expect_transfers(struct file_rig *rig, uint64_t seed)
{
    struct ferry_request request = file_request(rig, FERRY_READ, 0, 0, 2 * MORE);
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    char text[512];

    pattern_fill(rig->local.data, FILE_LOCAL, 1, 0);
    if (file_run(rig, &request, &task, text) != FERRY_OK)
        fail_msg("%s", text);
    assert_int_equal(task.bytes, 2 * MORE);
    assert_true(pattern_differs(rig->local.data, 2 * MORE, FILE_SEED, 0) == PATTERN_SAME);
    pattern_fill(rig->local.data, FILE_LOCAL, seed, 0);
    request = file_request(rig, FERRY_WRITE, 100, MORE - 300000, 600000);
    if (file_run(rig, &request, &task, text) != FERRY_OK)
        fail_msg("%s", text);
    file_expect(rig, MORE - 300000, 600000, seed, 100);
    file_expect(rig, 0, MORE - 300000, FILE_SEED, 0);
    file_expect(rig, MORE + 300000, MORE - 300000, FILE_SEED, MORE + 300000);
    file_expect_lengths(rig);
    file_fill(rig, 0, FILE_SEED);
    file_fill(rig, 1, FILE_SEED);
}

static void run_script(const char *words)
{
    struct file_rig rig;

    open_rig(&rig, words, NULL);
    expect_transfers(&rig, 2);
    expect_transfers(&rig, 3);
    close_rig(&rig);
}

static void test_cufile_serves_files_when_all_is_well(void **state)
{
    struct cufile_double_counts before, after;
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    before = counts_now();
    open_rig(&rig, "", NULL);
    expect_transfers(&rig, 2);
    assert_int_equal(file_report(&rig, "paths.direct.bytes"), 0);
    assert_true(file_report(&rig, "paths.gds_compatibility.bytes") > 0);
    after = counts_now();
    assert_true(after.registered_entries > before.registered_entries);
    /* In the middle of registered memory: the base stays that of the registration. */
    request = file_request(&rig, FERRY_READ, 12345, 4096, 4096);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(counts_now().last_base_offset, 12345);
    /* Handles are used again: far fewer than submits. */
    for (uint32_t i = 0; i < 50; i++)
        assert_ok(file_run(&rig, &request, NULL, NULL));
    after = counts_now();
    assert_true(after.setups - before.setups < (after.submits - before.submits) / 2);
    close_rig(&rig);
    shows_fault(25, "memory in the middle of a registration is passed as base and offset");
    shows_fault(23, "memory is registered, and given back when it goes");
    shows_fault(7, "one submit per use of a batch");
}

/* What the library says about itself bounds what it is given. */
static void test_cufile_limits_are_kept(void **state)
{
    static const char *const scripts[] = {
        "max_direct_kib=64", "max_direct_kib=16384",         "batch_cap=1",
        "batch_cap=8",       "max_direct_kib=4,batch_cap=3", "version=1070",
        "version=1170",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        run_script(scripts[i]);
    shows_fault(5, "slices no longer and batches no larger than the library takes");
}

static void test_cufile_events_come_in_any_order_and_shape(void **state)
{
    static const char *const scripts[] = {
        "order=reverse",
        "poll_one=1",
        "silent_polls=20",
        "duplicate=1",
        "stray=1",
        "late=1",
        "order=reverse,duplicate=1,stray=1,late=1,poll_one=1",
        "delay_ms=5,order=reverse",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        run_script(scripts[i]);
    shows_fault(33, "events are matched by cookie, of this use of the batch");
    shows_fault(32, "an end is never taken back by a late event");
    shows_fault(34, "each entry has its own state");
}

/* A status that is no success, of one entry or of all: its bytes come another way. */
static void test_cufile_failed_entries_are_done_by_others(void **state)
{
    static const char *const scripts[] = {
        "status=0x40",      "status=0x40,entry=1", "status=0x04", "status=0x20,entry=0",
        "status=0x08",      "ret=negative",        "ret=short",   "ret=short,entry=2",
        "status=0x80",      "status=0x30",         "over=1",      "getstatus=once",
        "getstatus=always", "submit=before",       "submit=half", "setup_every=1",
        "setup_every=2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++)
        run_script(scripts[i]);
    shows_fault(11, "a negative count is an error");
    shows_fault(21, "a submit that fails leaves no task without an end");
    shows_fault(3, "a batch that cannot be set up is no success without I/O");
    shows_fault(27, "a poll that fails loses the batch, not the requests");
}

/* More bytes than were asked for: nobody knows what was overwritten. */
static void test_cufile_count_beyond_the_entry_is_an_error(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "ret=over,entry=1", NULL);
    request = file_request(&rig, FERRY_READ, 0, 0, 2 * MORE);
    assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_IO);
    assert_int_equal(task.bytes, MIB);
    close_rig(&rig);
    shows_fault(35, "a middle piece that fails: the good beginning counts");
}

/* A count of nothing: whether the file ends there, others find out. */
static void test_cufile_count_of_zero_is_looked_into(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char path[320];

    (void)state;
    run_script("ret=zero");
    open_rig(&rig, "", NULL);
    request = file_request(&rig, FERRY_READ, 0, 0, MORE);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(truncate(file_path(&rig, 0, path), MIB + 1000), 0);
    pattern_fill(rig.local.data, FILE_LOCAL, 1, 0);
    assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_TRUNCATED);
    assert_int_equal(task.bytes, MIB + 1000);
    assert_true(pattern_differs(rig.local.data, MIB + 1000, FILE_SEED, 0) == PATTERN_SAME);
    close_rig(&rig);
    shows_fault(10, "COMPLETE with fewer bytes is no success");
}

static void test_cufile_refuses_a_file_and_others_take_it(void **state)
{
    static const int errors[] = {5008, 5018, 5019, 5020, 5028, 5030};
    char words[64];
    int fds = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct file_rig rig;

        snprintf(words, sizeof(words), "register_err=%d", errors[i]);
        open_rig(&rig, words, NULL);
        expect_transfers(&rig, 2);
        assert_true(file_report(&rig, "paths.direct.bytes") > 0);
        assert_int_equal(file_report(&rig, "paths.gds_compatibility.bytes"), 0);
        close_rig(&rig);
        if (i == 1)
            fds = process_fd_count();
    }
    assert_int_equal(process_fd_count(), fds);
    shows_fault(17, "a file that is refused leaks no descriptor");
    shows_fault(22, "the backend is chosen by what the library takes");
}

static void test_cufile_refuses_memory_and_goes_on_without(void **state)
{
    static const int errors[] = {5012, 5013, 5016, 5023, 5036};
    char words[64];

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct file_rig rig;

        snprintf(words, sizeof(words), "buf_err=%d", errors[i]);
        open_rig(&rig, words, NULL);
        expect_transfers(&rig, 2);
        assert_true(file_report(&rig, "paths.gds_compatibility.bytes") > 0);
        close_rig(&rig);
    }
    shows_fault(24, "memory that cannot be registered is used unregistered");
}

/* What a full disk looks like: one failed poll, then no event for anything. */
static void test_cufile_hides_a_full_disk_and_the_request_ends_right(void **state)
{
    (void)state;
    run_script("full=1");
    shows_fault(27, "the events that never come after a failed poll are not waited for");
}

static void expect_sealed(unsigned char *map, size_t len)
{
    assert_int_equal(mprotect(map, len, PROT_NONE), 0);
}

/*
 * A device that writes on after it was cancelled, and after its batch was destroyed. The memory
 * becomes inaccessible as soon as unregistering it returns: a write after that ends the test.
 */
static void test_cufile_memory_is_handed_back_only_when_it_is_quiet(void **state)
{
    static const char *const scripts[] = {
        "delay_ms=100,cancel=silent,dma_ms=250",
        "delay_ms=100,cancel=events",
        "delay_ms=100,cancel=error,dma_ms=250",
        "delay_ms=50,cancel=silent,dma_ms=250,destroy_ms=50",
    };
    static const char *const patient[] = {"transports.gds.watchdog_ms",
                                          "2000",
                                          "transports.gds.drain_ms",
                                          "50",
                                          "transports.gds.grace_ms",
                                          "600",
                                          NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
        struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
        struct ferry_request request;
        struct file_rig rig;
        uint64_t before;
        size_t len = MORE;
        unsigned char *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                  -1, 0);

        assert_true(map != MAP_FAILED);
        open_rig(&rig, scripts[i], patient);
        range.addr = map;
        range.length = len;
        assert_ok(ferry_memory_register(rig.engine, &range, 1));
        request = file_request(&rig, FERRY_READ, 0, 0, len);
        request.local = map;
        before = counts_now().submits;
        assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
        /* Until the library has it. */
        assert_within_ms(counts_now().submits > before, 20000);
        assert_ok(ferry_batch_cancel(rig.engine, rig.batch));
        assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), &sum));
        assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 20000000000u));
        expect_sealed(map, len);
        close_rig(&rig);
        munmap(map, len);
    }
    shows_fault(28, "a cancel after which no event comes ends in time");
    shows_fault(30, "a failed call is no stopped device: the end waits for it");
}

/* A call that never returns: the request ends at its deadline, its memory stays registered. */
static void test_cufile_submit_that_hangs_ends_at_the_deadline(void **state)
{
    static const char *const patient[] = {"transports.gds.watchdog_ms", "20000", NULL};
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    uint64_t begin;

    (void)state;
    open_rig(&rig, "submit_block_ms=-1", patient);
    range.addr = malloc(65536);
    range.length = 65536;
    assert_ok(ferry_memory_register(rig.engine, &range, 1));
    request = file_request(&rig, FERRY_READ, 0, 0, 65536);
    request.local = range.addr;
    begin = test_now_ns();
    request.deadline_ns = begin + 200000000;
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(15000), NULL));
    assert_true(test_now_ns() - begin >= 200000000);
    assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
    assert_int_equal(task.state, FERRY_TASK_TIMED_OUT);
    assert_int_equal(file_report(&rig, "quarantined"), 1);
    assert_status(ferry_memory_unregister(rig.engine, &range, 1, 1000000), FERRY_ERR_BUSY);
    /* The other file is not held up by it. */
    script("");
    request = file_request(&rig, FERRY_READ, 65536, MORE, 65536);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    release_submit();
    assert_within_ms(file_report(&rig, "quarantined") == 0, 20000);
    assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 20000000000u));
    free(range.addr);
    close_rig(&rig);
    shows_fault(37, "a deadline ends a request whatever hangs");
    shows_fault(31, "memory that a device keeps cannot be unregistered");
    shows_fault(26, "a call that hangs for one file holds up no other");
}

/* The watchdog: without a deadline, too, a request does not wait for ever. */
static void test_cufile_call_that_hangs_is_found_by_the_watchdog(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "submit_block_ms=-1", NULL);
    request = file_request(&rig, FERRY_WRITE, 0, 0, 65536);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
    assert_int_equal(task.status, FERRY_ERR_DEVICE);
    script("");
    release_submit();
    assert_within_ms(file_report(&rig, "quarantined") == 0, 20000);
    request = file_request(&rig, FERRY_READ, 0, 0, 65536);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    close_rig(&rig);
    shows_fault(29, "what is quarantined is counted, and let go when it is over");
}

/* No event for anything, for ever: the batch is destroyed and its requests go another way. */
static void test_cufile_events_that_never_come_are_not_waited_for(void **state)
{
    (void)state;
    run_script("silent_polls=-1");
    run_script("silent_polls=-1,cancel=error,destroy_ms=150");
    shows_fault(28, "what never tells its end goes another way after a time of grace");
}

static void test_cufile_engine_closes_while_entries_run(void **state)
{
    struct ferry_request requests[8];

    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct file_rig rig;
        uint64_t before;

        open_rig(&rig, round % 2 ? "delay_ms=100,cancel=silent" : "delay_ms=100,destroy_ms=100",
                 NULL);
        for (uint32_t i = 0; i < 8; i++)
            requests[i] = file_request(&rig, FERRY_READ, i * 65536, i * 131072, 65536);
        before = counts_now().submits;
        assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests, 8));
        if (round >= 2)
            assert_within_ms(counts_now().submits > before, 20000);
        close_rig(&rig);
    }
    shows_case(42, "an engine is closed while its requests run: it drains first");
}

/* A batch is never destroyed by its second owner, nor used after it is gone. */
static void test_cufile_batch_is_freed_once_and_by_its_owner(void **state)
{
    struct ferry_request request;
    struct file_rig rig;
    uint64_t batch;

    (void)state;
    open_rig(&rig, "delay_ms=50", NULL);
    assert_ok(ferry_batch_create(rig.engine, 4, &batch));
    request = file_request(&rig, FERRY_READ, 0, 0, 65536);
    assert_ok(ferry_batch_submit(rig.engine, batch, &request, 1));
    assert_status(ferry_batch_destroy(rig.engine, batch), FERRY_ERR_BUSY);
    assert_ok(ferry_batch_wait(rig.engine, batch, test_deadline_ms(20000), NULL));
    assert_ok(ferry_batch_destroy(rig.engine, batch));
    assert_status(ferry_batch_destroy(rig.engine, batch), FERRY_ERR_STALE_HANDLE);
    assert_status(ferry_batch_submit(rig.engine, batch, &request, 1), FERRY_ERR_STALE_HANDLE);
    close_rig(&rig);
    shows_case(41, "a batch is busy while it runs, and free afterwards");
    shows_fault(2, "a batch has one owner and is freed once");
}

/* In a child: the driver does not open, and nothing of the library is called any more. */
static void child_without_driver(void **state)
{
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "driver_err=5033", NULL);
    expect_transfers(&rig, 2);
    request = file_request(&rig, FERRY_READ, 0, 0, 4096);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(file_report(&rig, "paths.gds_compatibility.bytes"), 0);
    assert_ok(ferry_segment_close(rig.engine, rig.segment));
    script("");
    file_rig_close(&rig);
    /* Not even for a second engine. */
    open_rig(&rig, "driver_err=5033", NULL);
    expect_transfers(&rig, 2);
    script("");
    file_rig_close(&rig);
}

static void child_with_missing_symbol(void **state)
{
    const char *name = getenv("FERRY_TEST_CUFILE_NOREAD");
    struct file_rig rig;

    (void)state;
    if (name == NULL)
        file_child_skip("the variable names no library");
    setenv("FERRY_TEST_CUFILE", name, 1);
    open_rig(&rig, "", NULL);
    expect_transfers(&rig, 2);
    assert_int_equal(file_report(&rig, "paths.gds_compatibility.bytes"), 0);
    file_rig_close(&rig);
}

static void child_with_old_library(void **state)
{
    const char *name = getenv("FERRY_TEST_CUFILE_NOVERSION");
    struct file_rig rig;

    (void)state;
    if (name == NULL)
        file_child_skip("the variable names no library");
    setenv("FERRY_TEST_CUFILE", name, 1);
    open_rig(&rig, "", NULL);
    expect_transfers(&rig, 2);
    assert_int_equal(file_report(&rig, "paths.gds_compatibility.bytes"), 0);
    file_rig_close(&rig);
}

static void child_without_library(void **state)
{
    struct file_rig rig;

    (void)state;
    setenv("FERRY_TEST_CUFILE", "/nowhere/libcufile.so.0", 1);
    open_rig(&rig, "", NULL);
    expect_transfers(&rig, 2);
    file_rig_close(&rig);
}

static void test_cufile_is_not_there_or_not_whole(void **state)
{
    (void)state;
    /* The library's state is the process's: each in a process of its own. */
    file_child_run("gds", "without_library");
    file_child_run("gds", "with_missing_symbol");
    file_child_run("gds", "with_old_library");
    file_child_run("gds", "without_driver");
    shows_fault(22, "no library, no driver, an old version: the engine opens and others serve");
}

static const struct file_child children[] = {
    {"without_library", child_without_library},
    {"with_missing_symbol", child_with_missing_symbol},
    {"with_old_library", child_with_old_library},
    {"without_driver", child_without_driver},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cufile_is_not_there_or_not_whole),
        cmocka_unit_test(test_cufile_serves_files_when_all_is_well),
        cmocka_unit_test(test_cufile_limits_are_kept),
        cmocka_unit_test(test_cufile_events_come_in_any_order_and_shape),
        cmocka_unit_test(test_cufile_failed_entries_are_done_by_others),
        cmocka_unit_test(test_cufile_count_beyond_the_entry_is_an_error),
        cmocka_unit_test(test_cufile_count_of_zero_is_looked_into),
        cmocka_unit_test(test_cufile_refuses_a_file_and_others_take_it),
        cmocka_unit_test(test_cufile_refuses_memory_and_goes_on_without),
        cmocka_unit_test(test_cufile_hides_a_full_disk_and_the_request_ends_right),
        cmocka_unit_test(test_cufile_memory_is_handed_back_only_when_it_is_quiet),
        cmocka_unit_test(test_cufile_submit_that_hangs_ends_at_the_deadline),
        cmocka_unit_test(test_cufile_call_that_hangs_is_found_by_the_watchdog),
        cmocka_unit_test(test_cufile_events_that_never_come_are_not_waited_for),
        cmocka_unit_test(test_cufile_engine_closes_while_entries_run),
        cmocka_unit_test(test_cufile_batch_is_freed_once_and_by_its_owner),
    };
    const char *path;
    void *object;
    int failed;

    /* The stand-in, and two that lack a symbol; children find them in the environment. */
    if (argc == 4 && strcmp(argv[2], "--child") != 0) {
        setenv("FERRY_TEST_CUFILE", argv[1], 1);
        setenv("FERRY_TEST_CUFILE_NOREAD", argv[2], 1);
        setenv("FERRY_TEST_CUFILE_NOVERSION", argv[3], 1);
    }
    path = getenv("FERRY_TEST_CUFILE");
    object = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    kind = file_find_kind("gds");
    if (object == NULL || kind == NULL) {
        printf("SKIP: FERRY_TEST_CUFILE names no library\n");
        return 77;
    }
    *(void **)&script = dlsym(object, FERRY_CUFILE_DOUBLE_SCRIPT);
    *(void **)&read_counts = dlsym(object, FERRY_CUFILE_DOUBLE_COUNTS);
    *(void **)&release_submit = dlsym(object, FERRY_CUFILE_DOUBLE_RELEASE);
    failed = file_child_main(argc, argv, children);
    if (failed >= 0)
        return failed;
    failed = cmocka_run_group_tests_name("cufile", tests, NULL, NULL);
    file_table_print("cufile");
    return failed;
}
