/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transfers between memory and files promise, through the public interface, over every way to
 * read and write files. The argument names the way. Ends with a table of the acceptance cases that
 * were shown.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contract/file_rig.h"
#include "contract/file_table.h"
#include "support/process.h"

static const struct file_kind *kind;

#define KIB 1024u
#define MIB (1024u * 1024u)

/* Every alignment around the borders of three files, both ways; nothing beside the range moves. */
static void test_file_request_spans_files_at_every_alignment(void **state)
{
    static const uint64_t lengths[] = {256 * KIB + 100, 77777, 300 * KIB};
    static const int64_t shifts[] = {-4097, -4096, -513, -512, -1, 0, 1, 511, 512, 4095, 4096};
    const uint64_t total = 256 * KIB + 100 + 77777 + 300 * KIB;
    const uint64_t border = lengths[0];
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 3);
    for (size_t i = 0; i < sizeof(shifts) / sizeof(shifts[0]); i++) {
        for (uint64_t memory = 8192; memory <= 8192 + 513; memory += 171 * (1 + i % 3)) {
            uint64_t from = border + (uint64_t)shifts[i] - 70000;
            uint64_t len = 70000 + lengths[1] + 70001 + memory % 7 * 512;
            struct ferry_request request = file_request(&rig, FERRY_READ, memory, from, len);
            struct ferry_task_status task = FERRY_TASK_STATUS_INIT;

            pattern_fill(rig.local.data, FILE_LOCAL, 1, 0);
            assert_ok(file_run(&rig, &request, &task, NULL));
            assert_int_equal(task.bytes, len);
            assert_true(pattern_differs(rig.local.data + memory, len, FILE_SEED, from) ==
                        PATTERN_SAME);
            assert_true(pattern_differs(rig.local.data, memory, 1, 0) == PATTERN_SAME);
            assert_true(pattern_differs(rig.local.data + memory + len, FILE_LOCAL - memory - len, 1,
                                        memory + len) == PATTERN_SAME);

            request.opcode = FERRY_WRITE;
            pattern_fill(rig.local.data, FILE_LOCAL, 2 + i, 0);
            assert_ok(file_run(&rig, &request, &task, NULL));
            file_expect(&rig, from, len, 2 + i, memory);
            file_expect(&rig, 0, from, FILE_SEED, 0);
            file_expect(&rig, from + len, total - from - len, FILE_SEED, from + len);
            file_expect_lengths(&rig);
            for (uint32_t k = 0; k < 3; k++)
                file_fill(&rig, k, FILE_SEED);
        }
    }
    shows_case(16, "a request across three files is one task with every byte in its place");
    shows_fault(9, "no empty piece at a border of two files");
    file_rig_close(&rig);
}

static void test_file_range_must_lie_inside_the_segment(void **state)
{
    static const uint64_t lengths[] = {10000, 20000};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    uint64_t opens;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 2);
    for (int op = FERRY_READ; op <= FERRY_WRITE; op++) {
        request = file_request(&rig, (enum ferry_opcode)op, 0, 0, 30001);
        assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_RANGE);
        assert_int_equal(task.bytes, 0);
        request = file_request(&rig, (enum ferry_opcode)op, 0, 29999, 2);
        assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_RANGE);
        request = file_request(&rig, (enum ferry_opcode)op, 0, 30000, 1);
        assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_RANGE);
        request = file_request(&rig, (enum ferry_opcode)op, 0, UINT64_MAX - 1, 1);
        assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_RANGE);
    }
    request = file_request(&rig, FERRY_READ, 0, UINT64_MAX, 1);
    assert_ok(ferry_batch_reset(rig.engine, rig.batch));
    assert_status(ferry_batch_submit(rig.engine, rig.batch, &request, 1), FERRY_ERR_INVALID);
    opens = file_report(&rig, "opens");
    assert_int_equal(opens, 0);
    request = file_request(&rig, FERRY_READ, 0, 0, 30000);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    file_expect(&rig, 0, 30000, FILE_SEED, 0);
    shows_case(17, "up to the end is fine, one byte more is refused before any file is opened");
    shows_fault(8, "a range that is not covered is refused as a whole");
    shows_fault(36, "offset and length that wrap are refused");
    file_rig_close(&rig);
}

static void test_file_length_zero_completes_without_io(void **state)
{
    static const uint64_t lengths[] = {10000, 20000};
    static const uint64_t places[] = {0, 5000, 10000, 30000};
    struct ferry_request requests[3];
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 2);
    for (size_t i = 0; i < 4; i++) {
        requests[0] = file_request(&rig, i % 2 ? FERRY_WRITE : FERRY_READ, 0, places[i], 0);
        assert_ok(file_run(&rig, &requests[0], &task, NULL));
        assert_int_equal(task.bytes, 0);
        assert_int_equal(task.state, FERRY_TASK_COMPLETED);
    }
    requests[0].remote_offset = 30001;
    assert_status(file_run(&rig, &requests[0], NULL, NULL), FERRY_ERR_RANGE);
    assert_int_equal(file_report(&rig, "opens"), 0);
    for (uint32_t empty = 0; empty < 3; empty++) {
        for (uint32_t i = 0; i < 3; i++)
            requests[i] = file_request(&rig, FERRY_READ, i * 8192, i * 4096, i == empty ? 0 : 4096);
        assert_ok(ferry_batch_reset(rig.engine, rig.batch));
        assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests, 3));
        assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
        for (uint32_t i = 0; i < 3; i++) {
            assert_ok(ferry_task_status(rig.engine, rig.batch, i, &task));
            assert_int_equal(task.state, FERRY_TASK_COMPLETED);
            assert_int_equal(task.bytes, i == empty ? 0 : 4096);
        }
    }
    shows_case(18, "length 0 completes at once, wherever it stands");
    shows_fault(9, "length 0 first, in the middle and last in a batch");
    file_rig_close(&rig);
}

static void test_file_single_bytes_leave_their_neighbours_alone(void **state)
{
    static const uint64_t lengths[] = {3 * 4096 + 17};
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    for (uint64_t at = 0; at < lengths[0]; at += at % 509 == 0 ? 1 : 508) {
        request = file_request(&rig, FERRY_READ, 4096 + at % 13, at, 1);
        pattern_fill(rig.local.data, 16384, 1, 0);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        assert_int_equal(rig.local.data[4096 + at % 13], pattern_byte(FILE_SEED, at));
        assert_true(pattern_differs(rig.local.data, 4096 + at % 13, 1, 0) == PATTERN_SAME);
        assert_int_equal(rig.local.data[4097 + at % 13], pattern_byte(1, 4097 + at % 13));

        request.opcode = FERRY_WRITE;
        rig.local.data[4096 + at % 13] = (unsigned char)~pattern_byte(FILE_SEED, at);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        file_expect(&rig, 0, at, FILE_SEED, 0);
        file_expect(&rig, at + 1, lengths[0] - at - 1, FILE_SEED, at + 1);
        rig.local.data[4096 + at % 13] = pattern_byte(FILE_SEED, at);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        file_expect(&rig, 0, lengths[0], FILE_SEED, 0);
    }
    file_expect_lengths(&rig);
    shows_case(19, "one byte at an odd offset and address, neighbours unchanged");
    file_rig_close(&rig);
}

/* Ten thousand requests of 4 KiB in one batch, each with its own bytes. */
static void test_file_batch_of_ten_thousand_requests(void **state)
{
    enum { COUNT = 10000, SLOTS = 500 };
    static const uint64_t lengths[] = {20 * MIB, 21 * MIB};
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_request *requests = calloc(COUNT, sizeof(*requests));
    struct file_rig rig;
    uint64_t batch;

    (void)state;
    assert_non_null(requests);
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 2);
    assert_ok(ferry_batch_create(rig.engine, COUNT, &batch));
    for (uint32_t i = 0; i < COUNT; i++)
        requests[i] = file_request(&rig, FERRY_READ, i % SLOTS * 4096,
                                   (uint64_t)(i % SLOTS) * 4096 + (i / SLOTS) * 2 * MIB, 4096);
    assert_ok(ferry_batch_submit(rig.engine, batch, requests, COUNT));
    assert_ok(ferry_batch_wait(rig.engine, batch, test_deadline_ms(60000), &sum));
    assert_int_equal(sum.completed, COUNT);
    assert_int_equal(sum.bytes, COUNT * 4096u);
    for (uint32_t i = 0; i < SLOTS; i++) {
        bool found = false;

        for (uint32_t k = 0; k < COUNT / SLOTS && !found; k++)
            found = pattern_differs(rig.local.data + i * 4096, 4096, FILE_SEED,
                                    (uint64_t)i * 4096 + k * 2 * MIB) == PATTERN_SAME;
        assert_true(found);
    }
    assert_ok(ferry_batch_destroy(rig.engine, batch));
    shows_case(21, "10000 requests of 4 KiB in one batch");
    shows_fault(4, "many more requests than any backend has room for");
    shows_fault(5, "what does not fit is windowed, not refused");
    free(requests);
    file_rig_close(&rig);
}

static void test_file_later_batch_wins_over_an_earlier_one(void **state)
{
    static const uint64_t lengths[] = {MIB};
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    for (uint64_t round = 0; round < 20; round++) {
        pattern_fill(rig.local.data, FILE_LOCAL, 100 + round, 0);
        request = file_request(&rig, FERRY_WRITE, round * 3, 4000 + round, 200000);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        file_expect(&rig, 4000 + round, 200000, 100 + round, round * 3);
    }
    shows_case(22, "the same range twice, one batch after the other: the last wins");
    file_rig_close(&rig);
}

/* Reading into and writing from the same memory at once has no defined bytes, and no other harm. */
/* Where requests, or the ways that one takes, meet inside a page: none takes another's bytes back.
 */
static void test_file_neighbours_inside_a_page_keep_their_bytes(void **state)
{
    enum { COUNT = 48, LENGTH = 17 * 4096 + 700 }; /* too long to be buffered as a whole */
    const uint64_t length = COUNT * LENGTH;
    struct ferry_request requests[COUNT];
    struct file_rig rig;
    uint32_t rounds = test_is_long() ? 1000 : 30;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, &length, 1);
    for (uint64_t i = 0; i < COUNT; i++)
        requests[i] = file_request(&rig, FERRY_WRITE, i * LENGTH, i * LENGTH, LENGTH);
    for (uint32_t round = 0; round < rounds; round++) {
        pattern_fill(rig.local.data, length, 100 + round, 0);
        file_fill(&rig, 0, FILE_SEED);
        assert_ok(ferry_batch_reset(rig.engine, rig.batch));
        assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests, COUNT));
        assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(60000), NULL));
        file_expect(&rig, 0, length, 100 + round, 0);
    }
    /* What makes it so: direct I/O takes whole pages only. */
    assert_int_equal(file_report(&rig, "paths.direct.bytes") % 4096, 0);
    assert_int_equal(file_report(&rig, "paths.bounce.bytes") % 4096, 0);
    file_rig_close(&rig);
}

static void test_file_same_memory_read_and_written_at_once_does_no_harm(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    struct ferry_request requests[FILE_BATCH];
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 2);
    for (uint32_t i = 0; i < FILE_BATCH; i++)
        requests[i] = file_request(&rig, i % 2 ? FERRY_READ : FERRY_WRITE, 4096, i * 8192, 65536);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests, FILE_BATCH));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(60000), &sum));
    assert_int_equal(sum.completed, FILE_BATCH);
    file_expect(&rig, 64 * 8192 + 65536, MIB, FILE_SEED, 64 * 8192 + 65536);
    shows_case(23, "the same memory read into and written from: no crash, no byte elsewhere");
    shows_fault(42, "no order inside a batch, and none needed for safety");
    file_rig_close(&rig);
}

/* One batch, one kind of batch object: part of it is a file, part is memory. */
static void test_file_batch_mixes_files_and_memory(void **state)
{
    static const uint64_t lengths[] = {MIB};
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request requests[8];
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    unsigned char *remote;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    remote = malloc(65536);
    assert_non_null(remote);
    pattern_fill(remote, 65536, 5, 0);
    range.addr = remote;
    range.length = 65536;
    assert_ok(ferry_memory_register(rig.engine, &range, 1));
    for (uint32_t i = 0; i < 8; i++) {
        requests[i] = file_request(&rig, FERRY_READ, i * 8192, i * 8192, 8192);
        if (i % 2) {
            requests[i].segment = FERRY_SEGMENT_LOCAL;
            requests[i].remote_offset = (uintptr_t)remote + i * 8192;
        }
    }
    for (uint32_t i = 0; i < 8; i += 4)
        assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests + i, 4));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(ferry_task_status(rig.engine, rig.batch, i, &task));
        assert_int_equal(task.state, FERRY_TASK_COMPLETED);
        assert_string_equal(task.transport, i % 2 ? "loop" : "file");
        assert_true(pattern_differs(rig.local.data + i * 8192, 8192, i % 2 ? 5 : FILE_SEED,
                                    i * 8192) == PATTERN_SAME);
    }
    assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 1000000000));
    free(remote);
    shows_case(25, "a batch of memory and files: both complete");
    shows_fault(1, "one batch object for every transport, through the public interface");
    shows_fault(20, "a memory segment and a file segment are told apart by the runtime");
    file_rig_close(&rig);
}

/* Several submits into one batch: nothing of an earlier one is issued again. */
static void test_file_second_submit_issues_nothing_again(void **state)
{
    static const uint64_t lengths[] = {MIB};
    struct ferry_request request;
    struct file_rig rig;
    uint64_t before;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    pattern_fill(rig.local.data, FILE_LOCAL, 6, 0);
    request = file_request(&rig, FERRY_WRITE, 0, 0, 4096);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    before = file_report(&rig, "bytes_moved");
    /* If the first were written again, these bytes would reach the file. */
    pattern_fill(rig.local.data, 4096, 7, 0);
    request = file_request(&rig, FERRY_WRITE, 8192, 8192, 4096);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    assert_int_equal(file_report(&rig, "bytes_moved"), before + 4096);
    file_expect(&rig, 0, 4096, 6, 0);
    file_expect(&rig, 8192, 4096, 6, 8192);
    shows_fault(6, "a second submit issues only what is new");
    file_rig_close(&rig);
}

struct mixer {
    struct file_rig *rig;
    uint64_t batch;
    uint32_t number;
    uint64_t until_ns;
    _Atomic uint32_t *failures;
};

/* Each thread owns an eighth of the segment, which lies across files, and knows what is in it. */
static void *mix(void *arg)
{
    enum { PART = 512 * 1024, BLOCK = 4096, BLOCKS = PART / BLOCK };
    struct mixer *mixer = arg;
    struct file_rig *rig = mixer->rig;
    uint64_t base = (uint64_t)mixer->number * PART + 1000;
    uint64_t seeds[BLOCKS];
    uint64_t random = mixer->number + 1;
    uint64_t local = (uint64_t)mixer->number * 65536;

    for (uint32_t i = 0; i < BLOCKS; i++)
        seeds[i] = 0;
    while (test_now_ns() < mixer->until_ns) {
        uint32_t block;
        struct ferry_request request;
        bool write;

        random = random * 6364136223846793005u + 1442695040888963407u;
        block = (uint32_t)(random >> 33) % BLOCKS;
        write = (random >> 20) % 2;
        request = file_request(rig, write ? FERRY_WRITE : FERRY_READ, local + random % 512,
                               base + (uint64_t)block * BLOCK, BLOCK);
        if (write) {
            seeds[block] = random | 1;
            pattern_fill(request.local, BLOCK, seeds[block], block);
            if (ferry_write(rig->engine, &request, test_deadline_ms(30000)) != FERRY_OK)
                atomic_fetch_add(mixer->failures, 1);
        } else {
            uint64_t seed = seeds[block] != 0 ? seeds[block] : FILE_SEED;
            uint64_t from = seeds[block] != 0 ? block : request.remote_offset;

            if (ferry_read(rig->engine, &request, test_deadline_ms(30000)) != FERRY_OK ||
                pattern_differs(request.local, BLOCK, seed, from) != PATTERN_SAME)
                atomic_fetch_add(mixer->failures, 1);
        }
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        unsigned char bytes[BLOCK];

        if (seeds[i] == 0)
            continue;
        file_read_back(rig, base + (uint64_t)i * BLOCK, bytes, BLOCK);
        if (pattern_differs(bytes, BLOCK, seeds[i], i) != PATTERN_SAME)
            atomic_fetch_add(mixer->failures, 1);
    }
    return NULL;
}

static void test_file_many_threads_on_many_files_mix_nothing_up(void **state)
{
    static const uint64_t lengths[] = {MIB + 7, MIB, MIB - 500, MIB + 4000};
    _Atomic uint32_t failures = 0;
    struct mixer mixers[8];
    pthread_t threads[8];
    struct file_rig rig;
    uint64_t until_ns = test_deadline_ms(test_is_long() ? 30000 : 1500);

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 4);
    for (uint32_t i = 0; i < 8; i++) {
        mixers[i] = (struct mixer){
            .rig = &rig, .number = i, .until_ns = until_ns, .failures = &failures};
        assert_int_equal(pthread_create(&threads[i], NULL, mix, &mixers[i]), 0);
    }
    for (uint32_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&failures), 0);
    shows_case(24, "8 threads on 4 files, mixed: every block is what was written last");
    shows_fault(38, "any number of threads wait and look");
    file_rig_close(&rig);
}

/* A file that somebody cut: what is before its end arrives, nothing beyond is touched. */
static void test_file_truncated_under_us_is_an_error_with_what_was_there(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char text[512];
    char path[320];
    struct stat now;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 2);
    request = file_request(&rig, FERRY_READ, 0, 0, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(truncate(file_path(&rig, 0, path), 300 * KIB + 77), 0);
    pattern_fill(rig.local.data, FILE_LOCAL, 1, 0);
    request = file_request(&rig, FERRY_READ, 0, 0, MIB);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_TRUNCATED);
    assert_int_equal(task.state, FERRY_TASK_FAILED);
    assert_int_equal(task.bytes, 300 * KIB + 77);
    assert_non_null(strstr(text, path));
    assert_true(pattern_differs(rig.local.data, 300 * KIB + 77, FILE_SEED, 0) == PATTERN_SAME);
    assert_true(pattern_differs(rig.local.data + 300 * KIB + 77, FILE_LOCAL - 300 * KIB - 77, 1,
                                300 * KIB + 77) == PATTERN_SAME);
    request = file_request(&rig, FERRY_READ, 0, 600 * KIB, 4096);
    assert_status(file_run(&rig, &request, &task, NULL), FERRY_ERR_TRUNCATED);
    assert_int_equal(task.bytes, 0);

    /* A WRITE beyond the end must not make it longer again. */
    request = file_request(&rig, FERRY_WRITE, 0, 300 * KIB, 4096);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_TRUNCATED);
    assert_non_null(strstr(text, path));
    assert_int_equal(stat(path, &now), 0);
    assert_int_equal(now.st_size, 300 * KIB + 77);
    /* What is left of it, and its neighbour, work. */
    request = file_request(&rig, FERRY_READ, 0, 0, 300 * KIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    request = file_request(&rig, FERRY_WRITE, 0, MIB, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    shows_case(26, "truncated: what was before the end, and no byte beyond");
    shows_fault(10, "a short read is no success, its bytes are exact");
    shows_fault(35, "the bytes of a failed task are its good beginning");
    file_rig_close(&rig);
}

static void test_file_deleted_while_open_works_until_it_is_opened_anew(void **state)
{
    static const uint64_t lengths[] = {MIB};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char path[320];
    char text[512];
    uint64_t begin;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    request = file_request(&rig, FERRY_WRITE, 0, 0, 4096);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(unlink(file_path(&rig, 0, path)), 0);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    request.opcode = FERRY_READ;
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_ok(ferry_segment_refresh(rig.engine, rig.segment, test_deadline_ms(5000)));
    begin = test_now_ns();
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_NOT_FOUND);
    assert_true(test_now_ns() - begin < 10000000000u);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "No such file"));
    shows_case(28, "deleted while open: works; opened anew: not found");
    shows_fault(14, "a failed open says which path and why");
    file_rig_close(&rig);
}

/* Another file under the same name is used after a refresh, and never in the middle of a request.
 */
static void test_file_replaced_is_noticed_and_never_mixed(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    static const char *const few[] = {"transports.file.open_files_max", "1", NULL};
    struct ferry_request request;
    struct file_rig rig;
    char path[320];
    char other[340];

    (void)state;
    file_rig_open(&rig, kind, few);
    file_segment(&rig, lengths, 2);
    request = file_request(&rig, FERRY_READ, 0, 0, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    file_path(&rig, 0, path);
    snprintf(other, sizeof(other), "%s.old", path);
    assert_int_equal(rename(path, other), 0);
    file_fill(&rig, 0, 42);
    /* Open still: the old one. */
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_true(pattern_differs(rig.local.data, MIB, FILE_SEED, 0) == PATTERN_SAME);
    /* Its descriptor goes to the neighbour; what opens next finds another file, and starts over. */
    request = file_request(&rig, FERRY_READ, 0, MIB, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    request = file_request(&rig, FERRY_READ, 0, 0, 2 * MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_true(pattern_differs(rig.local.data, MIB, 42, 0) == PATTERN_SAME);
    assert_true(pattern_differs(rig.local.data + MIB, MIB, FILE_SEED, MIB) == PATTERN_SAME);
    /* And back, with a refresh. */
    assert_int_equal(rename(other, path), 0);
    assert_ok(ferry_segment_refresh(rig.engine, rig.segment, test_deadline_ms(5000)));
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_true(pattern_differs(rig.local.data, 2 * MIB, FILE_SEED, 0) == PATTERN_SAME);
    shows_case(29, "replaced by rename: the new file after a refresh, never half and half");
    shows_fault(18, "the cache of open files knows which file it has");
    file_rig_close(&rig);
}

/* Without a store nobody can say that the other file is meant: only a refresh can. */
static void test_file_by_name_is_the_file_that_was_opened(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    static const char *const few[] = {"transports.file.open_files_max", "1", NULL};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request[2];
    struct file_rig rig;
    char path[320];
    char name[400];
    char text[512];

    (void)state;
    file_rig_open(&rig, kind, few);
    file_segment(&rig, lengths, 2);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "file://%s", file_path(&rig, i, path));
        request[i] = file_request(&rig, FERRY_READ, i * MIB, 0, MIB);
        assert_ok(
            ferry_segment_open(rig.engine, name, test_deadline_ms(5000), &request[i].segment));
    }
    assert_ok(file_run(&rig, &request[0], NULL, NULL));
    assert_true(pattern_differs(rig.local.data, MIB, FILE_SEED, 0) == PATTERN_SAME);
    file_path(&rig, 0, path);
    snprintf(name, sizeof(name), "%s.old", path);
    assert_int_equal(rename(path, name), 0);
    file_fill(&rig, 0, 42);
    /* The other one takes its descriptor. */
    assert_ok(file_run(&rig, &request[1], NULL, NULL));
    assert_status(file_run(&rig, &request[0], &task, text), FERRY_ERR_STALE_KEY);
    assert_int_equal(task.bytes, 0);
    assert_non_null(strstr(text, path));
    assert_ok(ferry_segment_refresh(rig.engine, request[0].segment, test_deadline_ms(5000)));
    assert_ok(file_run(&rig, &request[0], NULL, NULL));
    assert_true(pattern_differs(rig.local.data, MIB, 42, 0) == PATTERN_SAME);
    file_rig_close(&rig);
}

static void test_file_host_without_a_path_is_told_so(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char text[512];

    (void)state;
    file_rig_open(&rig, kind, NULL);
    rig.file_count = 2;
    memcpy(rig.lengths, lengths, sizeof(lengths));
    file_fill(&rig, 0, FILE_SEED);
    file_fill(&rig, 1, FILE_SEED);
    file_describe(&rig, "another-host");
    request = file_request(&rig, FERRY_READ, 0, 0, 4096);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_NOT_MAPPED);
    assert_non_null(strstr(text, "another-host"));
    /* Somebody maps it: no restart is needed, and no refresh by hand. */
    file_describe(&rig, NULL);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_true(pattern_differs(rig.local.data, 4096, FILE_SEED, 0) == PATTERN_SAME);
    shows_case(10, "an unmapped host is told who is mapped");
    shows_fault(12, "no path on this host is an error of its own");
    shows_fault(19, "a map that was changed after the first use is seen");
    file_rig_close(&rig);
}

/* A thousand files and few descriptors. */
static void test_file_more_files_than_descriptors(void **state)
{
    static const char *const few[] = {"transports.file.open_files_max", "5", NULL};
    uint32_t count = 1000;
    uint64_t *lengths = calloc(count, sizeof(*lengths));
    struct ferry_request requests[FILE_BATCH];
    struct file_rig rig;

    (void)state;
    assert_non_null(lengths);
    for (uint32_t i = 0; i < count; i++)
        lengths[i] = 1500 + i % 3000;
    file_rig_open(&rig, kind, few);
    file_segment(&rig, lengths, count);
    requests[0] = file_request(&rig, FERRY_READ, 0, 0, 1900000);
    assert_ok(file_run(&rig, &requests[0], NULL, NULL));
    assert_true(pattern_differs(rig.local.data, 1900000, FILE_SEED, 0) == PATTERN_SAME);
    assert_true(file_report(&rig, "open_files") <= 5);
    assert_true(file_report(&rig, "evictions") > 500);
    assert_ok(ferry_batch_reset(rig.engine, rig.batch));
    for (uint32_t i = 0; i < FILE_BATCH; i++)
        requests[i] = file_request(&rig, FERRY_READ, i * 32768, (i * 7919 % 50) * 31000, 32768);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, requests, FILE_BATCH));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(60000), NULL));
    for (uint32_t i = 0; i < FILE_BATCH; i++)
        assert_true(pattern_differs(rig.local.data + i * 32768, 32768, FILE_SEED,
                                    requests[i].remote_offset) == PATTERN_SAME);
    shows_fault(5, "one request over a thousand files");
    file_rig_close(&rig);
    free(lengths);
}

static void test_file_counts_what_went_which_way(void **state)
{
    static const uint64_t lengths[] = {4 * MIB};
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, 1);
    request = file_request(&rig, FERRY_READ, 0, 0, 2 * MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(file_report(&rig, kind->path), 2 * MIB);
    request = file_request(&rig, FERRY_READ, 100, 0, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    request = file_request(&rig, FERRY_READ, 0, 1, 100);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(
        file_report(&rig, "paths.direct.bytes") + file_report(&rig, "paths.bounce.bytes") +
            file_report(&rig, "paths.buffered.bytes") + file_report(&rig, "paths.gds.bytes") +
            file_report(&rig, "paths.gds_compatibility.bytes"),
        3 * MIB + 100);
    assert_int_equal(file_report(&rig, "bytes_moved"), 3 * MIB + 100);
    assert_int_equal(file_report(&rig, "tasks_ended"), 3);
    assert_int_equal(file_report(&rig, "quarantined"), 0);
    shows_case(48, "counters of each path, fallbacks, short I/O, quarantine");
    file_rig_close(&rig);
}

static void test_file_leaves_no_descriptor_behind(void **state)
{
    static const uint64_t lengths[] = {MIB, MIB};
    struct ferry_request request;
    int count = 0;

    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct file_rig rig;

        file_rig_open(&rig, kind, NULL);
        file_segment(&rig, lengths, 2);
        request = file_request(&rig, round % 2 ? FERRY_READ : FERRY_WRITE, 0, 0, 2 * MIB);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        assert_ok(ferry_segment_close(rig.engine, rig.segment));
        assert_within_ms(file_report(&rig, "open_files") == 0, 20000);
        file_rig_close(&rig);
        if (round == 1)
            count = process_fd_count();
    }
    assert_int_equal(process_fd_count(), count);
    shows_fault(16, "every descriptor is closed when its segment is");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_request_spans_files_at_every_alignment),
        cmocka_unit_test(test_file_range_must_lie_inside_the_segment),
        cmocka_unit_test(test_file_length_zero_completes_without_io),
        cmocka_unit_test(test_file_single_bytes_leave_their_neighbours_alone),
        cmocka_unit_test(test_file_batch_of_ten_thousand_requests),
        cmocka_unit_test(test_file_later_batch_wins_over_an_earlier_one),
        cmocka_unit_test(test_file_neighbours_inside_a_page_keep_their_bytes),
        cmocka_unit_test(test_file_same_memory_read_and_written_at_once_does_no_harm),
        cmocka_unit_test(test_file_batch_mixes_files_and_memory),
        cmocka_unit_test(test_file_second_submit_issues_nothing_again),
        cmocka_unit_test(test_file_many_threads_on_many_files_mix_nothing_up),
        cmocka_unit_test(test_file_truncated_under_us_is_an_error_with_what_was_there),
        cmocka_unit_test(test_file_deleted_while_open_works_until_it_is_opened_anew),
        cmocka_unit_test(test_file_replaced_is_noticed_and_never_mixed),
        cmocka_unit_test(test_file_by_name_is_the_file_that_was_opened),
        cmocka_unit_test(test_file_host_without_a_path_is_told_so),
        cmocka_unit_test(test_file_more_files_than_descriptors),
        cmocka_unit_test(test_file_counts_what_went_which_way),
        cmocka_unit_test(test_file_leaves_no_descriptor_behind),
    };
    int failed;

    kind = argc >= 2 ? file_find_kind(argv[1]) : NULL;
    if (kind == NULL) {
        fprintf(stderr, "usage: %s KIND [LIBCUFILE], see file_rig.c\n", argv[0]);
        return 2;
    }
    if (argc == 3)
        setenv("FERRY_TEST_CUFILE", argv[2], 1);
    file_skip_if_missing(kind);
    failed = cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
    file_table_print(argv[1]);
    return failed;
}
