/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract that every transport keeps about requests with a list of pieces, whether it takes
 * lists itself or the runtime splits them for it: what moves, what is refused, and when. The
 * argument names the kind of rig.
 */
#include <stdio.h>
#include <string.h>

#include "contract/transport_rig.h"
#include "support/sanitizer.h"

static const struct rig_kind *kind;

#define PIECES 3000u

static uint64_t random_state = 88172645463325252u;

static uint32_t pick(uint32_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % bound;
}

/* A list over both memories, and what it has to make of the side that it writes to. */
struct list {
    struct ferry_piece *pieces;
    uint32_t count;
    uint64_t bytes;
    unsigned char *expected; /* RIG_LENGTH bytes */
};

enum shape {
    SCATTERED,    /* gaps on both sides, and another order on the far one */
    LOCAL_WHOLE,  /* no gaps here */
    REMOTE_WHOLE, /* no gaps there */
    BOTH_WHOLE,   /* one range in pieces */
    SHAPE_COUNT,
};

static void list_open(struct list *list)
{
    memset(list, 0, sizeof(*list));
    list->pieces = calloc(PIECES, sizeof(*list->pieces));
    list->expected = malloc(RIG_LENGTH);
    assert_non_null(list->pieces);
    assert_non_null(list->expected);
}

static void list_close(struct list *list)
{
    free(list->pieces);
    free(list->expected);
}

/* Places one after the other, with gaps of 1 to 64 bytes or none, in order or the last one first.
 */
static void place(const struct rig *rig, struct list *list, bool remote, bool gaps, bool reverse)
{
    uint64_t at = gaps ? 1 + pick(5000) : 0;

    for (uint32_t i = 0; i < list->count; i++) {
        struct ferry_piece *piece = &list->pieces[reverse ? list->count - 1 - i : i];

        if (remote)
            piece->remote_offset = (uintptr_t)rig->remote.data + at;
        else
            piece->local = rig->local.data + at;
        at += piece->length + (gaps ? 1 + pick(64) : 0);
    }
    assert_true(at <= RIG_LENGTH);
}

static void list_make(const struct rig *rig, struct list *list, uint32_t count, uint32_t length_max,
                      enum shape shape)
{
    list->count = count;
    list->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        list->pieces[i].length = 1 + pick(length_max);
        list->bytes += list->pieces[i].length;
    }
    place(rig, list, false, shape == SCATTERED || shape == REMOTE_WHOLE, false);
    place(rig, list, true, shape == SCATTERED || shape == LOCAL_WHOLE, shape == SCATTERED);
}

PATTERN_UNCHECKED static void copy_unchecked(unsigned char *to, const unsigned char *from,
                                             uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        to[i] = from[i];
}

static void list_expect(const struct rig *rig, struct list *list, enum ferry_opcode opcode)
{
    const struct fenced *to = opcode == FERRY_READ ? &rig->local : &rig->remote;

    copy_unchecked(list->expected, to->data, RIG_LENGTH);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ferry_piece *piece = &list->pieces[i];
        uint64_t local = (uint64_t)((unsigned char *)piece->local - rig->local.data);
        uint64_t remote = piece->remote_offset - (uintptr_t)rig->remote.data;

        if (opcode == FERRY_READ)
            copy_unchecked(list->expected + local, rig->remote.data + remote, piece->length);
        else
            copy_unchecked(list->expected + remote, rig->local.data + local, piece->length);
    }
}

PATTERN_UNCHECKED static void list_check(const struct rig *rig, const struct list *list,
                                         enum ferry_opcode opcode)
{
    const struct fenced *to = opcode == FERRY_READ ? &rig->local : &rig->remote;

    for (uint64_t i = 0; i < RIG_LENGTH; i++) {
        if (to->data[i] != list->expected[i])
            fail_msg("byte %zu after a %s of %u pieces", (size_t)i,
                     opcode == FERRY_READ ? "read" : "write", list->count);
    }
}

static struct ferry_request list_request(const struct rig *rig, const struct list *list,
                                         enum ferry_opcode opcode)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.opcode = opcode;
    request.segment = rig->segment;
    request.pieces = list->pieces;
    request.piece_count = list->count;
    return request;
}

static void run_and_check(struct rig *rig, struct list *list, enum ferry_opcode opcode)
{
    struct ferry_request request = list_request(rig, list, opcode);

    rig_fill(rig, 1 + pick(1000), 2000 + pick(1000));
    list_expect(rig, list, opcode);
    assert_ok(rig_run(rig, &request));
    list_check(rig, list, opcode);
    /* The side that was read from is as it was. */
    if (opcode == FERRY_READ)
        assert_true(fenced_intact(&rig->remote));
}

/* Every byte of every piece, in its place, and none of the gaps; in all shapes and both directions.
 */
static void test_vector_moves_exactly_its_pieces(void **state)
{
    static const struct {
        uint32_t count;
        uint32_t length_max;
    } sizes[] = {{1, 4000000}, {2, 300000}, {5, 1400000}, {17, 40000},
                 {120, 20000}, {800, 300},  {PIECES, 40}};
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int shape = SCATTERED; shape < SHAPE_COUNT; shape++) {
            /* Splitting thousands takes its time. */
            if (kind->split && sizes[i].count > 1000 && shape != SCATTERED)
                continue;
            list_make(&rig, &list, sizes[i].count, sizes[i].length_max, (enum shape)shape);
            run_and_check(&rig, &list, FERRY_READ);
            run_and_check(&rig, &list, FERRY_WRITE);
        }
    }
    list_close(&list);
    rig_close(&rig);
}

/* As the users of a cache have it: blocks of one size from a pool, in any order. */
static void test_vector_moves_blocks_of_a_pool(void **state)
{
    const uint32_t block = 16384;
    const uint32_t count = RIG_LENGTH / block;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    list.count = count / 2;
    for (uint32_t i = 0; i < list.count; i++) {
        list.pieces[i].length = block;
        list.pieces[i].local = rig.local.data + (uint64_t)(i * 7 % count) * block;
        list.pieces[i].remote_offset = (uintptr_t)rig.remote.data +
                                       (uint64_t)((i * 11 + 5) % count) * block;
    }
    run_and_check(&rig, &list, FERRY_READ);
    run_and_check(&rig, &list, FERRY_WRITE);
    list_close(&list);
    rig_close(&rig);
}

/* Many at once beside plain ones: each one task, one end, its own sum of bytes. */
static void test_vector_is_one_task(void **state)
{
    struct ferry_request requests[RIG_BATCH];
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_piece(*pieces)[8] = calloc(RIG_BATCH, sizeof(*pieces));
    const uint64_t part = RIG_LENGTH / RIG_BATCH;
    uint64_t bytes = 0;
    struct rig rig;

    (void)state;
    assert_non_null(pieces);
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 5, 6);
    for (uint32_t i = 0; i < RIG_BATCH; i++) {
        requests[i] = rig_request(&rig, FERRY_READ, i * part, i * part, 1000);
        bytes += i % 3 == 0 ? 1000 : 8 * 999;
        if (i % 3 == 0)
            continue;
        requests[i].local = NULL;
        requests[i].remote_offset = 0;
        requests[i].length = 0;
        requests[i].pieces = pieces[i];
        requests[i].piece_count = 8;
        for (uint32_t k = 0; k < 8; k++)
            pieces[i][k] = (struct ferry_piece){
                .local = rig.local.data + i * part + k * 2000,
                .remote_offset = (uintptr_t)rig.remote.data + i * part + k * 2000,
                .length = 999,
            };
    }
    assert_ok(ferry_batch_submit(rig.initiator, rig.batch, requests, RIG_BATCH));
    /* The arrays were copied: they are the caller's again, whatever becomes of them. */
    memset(pieces, 0xff, RIG_BATCH * sizeof(*pieces));
    memset(requests, 0xff, sizeof(requests));
    free(pieces);
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), &sum));
    assert_int_equal(sum.state, FERRY_TASK_COMPLETED);
    assert_int_equal(sum.submitted, RIG_BATCH);
    assert_int_equal(sum.completed, RIG_BATCH);
    assert_int_equal(sum.bytes, bytes);
    for (uint32_t i = 0; i < RIG_BATCH; i++) {
        assert_int_equal(rig_task(rig.initiator, rig.batch, i).bytes, i % 3 == 0 ? 1000 : 8 * 999);
        for (uint32_t k = 0; k < (i % 3 == 0 ? 1u : 8u); k++)
            rig_expect(&rig.local, i * part + k * 2000, 999, 6, i * part + k * 2000);
        rig_expect(&rig.local, i * part + 1000, 1000, 5, i * part + 1000);
    }
    rig_close(&rig);
}

static void expect_refused(struct rig *rig, const struct ferry_request *request,
                           enum ferry_status status, const char *text)
{
    assert_status(ferry_batch_submit(rig->initiator, rig->batch, request, 1), status);
    if (strstr(ferry_last_error_text(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", ferry_last_error_text(), text);
    assert_int_equal(rig_batch(rig->initiator, rig->batch).submitted, 0);
}

static void test_vector_that_is_malformed_is_refused(void **state)
{
    struct ferry_piece *many = calloc(FERRY_PIECES_MAX + 1, sizeof(*many));
    struct ferry_request request;
    struct ferry_piece good;
    struct list list;
    struct rig rig;

    (void)state;
    assert_non_null(many);
    rig_open(&rig, kind, NULL);
    rig_fill(&rig, 7, 8);
    list_open(&list);
    list_make(&rig, &list, 20, 1000, SCATTERED);
    request = list_request(&rig, &list, FERRY_READ);
    good = list.pieces[13];

    list.pieces[13].length = 0;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "piece 13: length is 0");
    list.pieces[13] = good;
    list.pieces[13].local = NULL;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "piece 13: local memory is NULL");
    list.pieces[13] = good;
    list.pieces[13].length = UINT64_MAX;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "piece 13");
    list.pieces[13] = good;
    list.pieces[13].remote_offset = UINT64_MAX - 1;
    list.pieces[13].length = 3;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "piece 13");
    list.pieces[13] = good;
    /* The very last byte of the last piece is outside. */
    list.pieces[19].local = rig.local.data + RIG_LENGTH - 10;
    list.pieces[19].length = 11;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "piece 19");
    list_make(&rig, &list, 20, 1000, SCATTERED);

    request.length = 5;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "range beside");
    request.length = 0;
    request.local = rig.local.data;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "range beside");
    request.local = NULL;
    request.piece_count = 0;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "without pieces");
    request.piece_count = 20;
    request.pieces = NULL;
    expect_refused(&rig, &request, FERRY_ERR_INVALID, "20 pieces at NULL");
    for (uint32_t i = 0; i <= FERRY_PIECES_MAX; i++)
        many[i] = (struct ferry_piece){
            .local = rig.local.data + i,
            .remote_offset = (uintptr_t)rig.remote.data + i,
            .length = 1,
        };
    request.pieces = many;
    request.piece_count = FERRY_PIECES_MAX + 1;
    expect_refused(&rig, &request, FERRY_ERR_TOO_LARGE, "at most 16384");
    /* Nothing moved in all this, and nothing is left behind: the same memory still serves. */
    rig_expect(&rig.local, 0, RIG_LENGTH, 7, 0);
    request.pieces = list.pieces;
    request.piece_count = 20;
    assert_ok(rig_run(&rig, &request));
    free(many);
    list_close(&list);
    rig_close(&rig);
}

static void test_vector_of_most_pieces_moves(void **state)
{
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    free(list.pieces);
    list.pieces = calloc(FERRY_PIECES_MAX, sizeof(*list.pieces));
    assert_non_null(list.pieces);
    list.count = kind->split || TEST_THREAD_SANITIZER ? 2000 : FERRY_PIECES_MAX;
    for (uint32_t i = 0; i < list.count; i++)
        list.pieces[i] = (struct ferry_piece){
            .local = rig.local.data + 300ul * i,
            .remote_offset = (uintptr_t)rig.remote.data + 300ul * (list.count - 1 - i),
            .length = 1 + i % 299,
        };
    run_and_check(&rig, &list, FERRY_READ);
    run_and_check(&rig, &list, FERRY_WRITE);
    list_close(&list);
    rig_close(&rig);
}

/* The last piece is wrong: no byte of the first moves. */
static void test_vector_checks_every_piece_before_a_byte_moves(void **state)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    whole.addr = rig.remote.data;
    whole.length = RIG_LENGTH;
    assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
    rig_register(rig.target, rig.remote.data, RIG_LENGTH - 8192, FERRY_PERMISSION_READ_WRITE);
    rig_register(rig.target, rig.remote.data + RIG_LENGTH - 8192, 4096, FERRY_PERMISSION_READ_ONLY);
    assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    for (uint32_t count = 1; count < 700; count = count * 3 + 1) {
        list_make(&rig, &list, count, 8000, SCATTERED);
        rig_fill(&rig, 3, 4);
        /* The first two in both buffers, which do not join; then one that nothing covers. */
        request = list_request(&rig, &list, FERRY_READ);
        list.pieces[count - 1].length = 16;
        list.pieces[count - 1].remote_offset = (uintptr_t)rig.remote.data + RIG_LENGTH - 8192 - 8;
        assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
        if (!kind->split)
            rig_expect(&rig.local, 0, RIG_LENGTH, 3, 0);
        request.opcode = FERRY_WRITE;
        list.pieces[count - 1].remote_offset = (uintptr_t)rig.remote.data + RIG_LENGTH - 8192;
        assert_status(rig_run(&rig, &request), FERRY_ERR_PERMISSION);
        if (!kind->split)
            rig_expect(&rig.remote, 0, RIG_LENGTH, 4, 0);
        /* Reading there is allowed. */
        run_and_check(&rig, &list, FERRY_READ);
    }
    list_close(&list);
    rig_close(&rig);
}

/* Each piece in a buffer of its own, on both sides, neighbours among them. */
static void test_vector_reaches_many_buffers(void **state)
{
    enum { BUFFERS = 200 };
    const uint64_t step = RIG_LENGTH / BUFFERS / 8 * 8;
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    whole.length = RIG_LENGTH;
    whole.addr = rig.remote.data;
    assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
    whole.addr = rig.local.data;
    assert_ok(ferry_memory_unregister(rig.initiator, &whole, 1, 1000000000));
    list.count = BUFFERS;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        uint64_t far = (i * 7u % BUFFERS) * step;

        rig_register(rig.initiator, rig.local.data + i * step, step, FERRY_PERMISSION_LOCAL);
        rig_register(rig.target, rig.remote.data + far, step, FERRY_PERMISSION_READ_WRITE);
        list.pieces[i] = (struct ferry_piece){.local = rig.local.data + i * step,
                                              .remote_offset = (uintptr_t)rig.remote.data + far,
                                              .length = step};
    }
    assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    run_and_check(&rig, &list, FERRY_READ);
    run_and_check(&rig, &list, FERRY_WRITE);
    /* The neighbours are whole buffers, so a piece over the border of two is no piece of either. */
    list.pieces[4].remote_offset += 1;
    struct ferry_request request = list_request(&rig, &list, FERRY_WRITE);
    assert_status(rig_run(&rig, &request), FERRY_ERR_RANGE);
    list_close(&list);
    rig_close(&rig);
}

/* After its end, a canceled list's memory is ours alone. */
static void test_vector_leaves_memory_alone_after_a_cancel(void **state)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_request request;
    uint32_t canceled = 0;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    for (uint32_t round = 0; round < 30; round++) {
        list_make(&rig, &list, 200, 30000, SCATTERED);
        request = list_request(&rig, &list, FERRY_READ);
        rig_fill(&rig, 1, 2);
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, &request, 1));
        if (round % 3 != 0)
            assert_ok(ferry_batch_cancel(rig.initiator, rig.batch));
        assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), &sum));
        if (sum.state != FERRY_TASK_COMPLETED) {
            assert_int_equal(sum.state, FERRY_TASK_CANCELED);
            canceled++;
            pattern_fill(rig.local.data, RIG_LENGTH, 9, 0);
        }
        assert_ok(ferry_batch_reset(rig.initiator, rig.batch));
        /* Traffic over the same way: whatever was still under way has passed by after it. */
        for (uint32_t i = 0; i < 4; i++) {
            struct ferry_request plain = rig_request(&rig, FERRY_WRITE, 0, RIG_LENGTH - 1000, 1000);

            assert_ok(rig_run(&rig, &plain));
        }
        if (sum.state != FERRY_TASK_COMPLETED)
            rig_expect(&rig.local, 0, RIG_LENGTH, 9, 0);
    }
    print_message("canceled %u of 30\n", canceled);
    list_close(&list);
    rig_close(&rig);
}

/* A range that one of many pieces touches is taken back: the list ends, and lets go of all. */
static void test_vector_lets_go_of_memory_that_is_unregistered(void **state)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_request request;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    for (uint32_t round = 0; round < 8; round++) {
        struct ferry_engine *engine = round % 2 ? rig.target : rig.initiator;
        const struct fenced *side = round % 2 ? &rig.remote : &rig.local;

        list_make(&rig, &list, 400, 20000, SCATTERED);
        request = list_request(&rig, &list, round % 4 < 2 ? FERRY_READ : FERRY_WRITE);
        assert_ok(ferry_batch_submit(rig.initiator, rig.batch, &request, 1));
        range.addr = side->data;
        range.length = RIG_LENGTH;
        assert_ok(ferry_memory_unregister(engine, &range, 1, 0));
        pattern_fill(side->data, RIG_LENGTH, 30 + round, 0);
        assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), &sum));
        assert_int_equal(sum.ended, 1);
        rig_expect(side, 0, RIG_LENGTH, 30 + round, 0);
        assert_ok(ferry_batch_reset(rig.initiator, rig.batch));
        rig_register(engine, side->data, RIG_LENGTH,
                     round % 2 ? FERRY_PERMISSION_READ_WRITE : FERRY_PERMISSION_LOCAL);
        assert_ok(ferry_segment_refresh(rig.initiator, rig.segment, test_deadline_ms(5000)));
    }
    list_close(&list);
    rig_close(&rig);
}

static void test_vector_ends_at_its_deadline(void **state)
{
    struct ferry_request request;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    list_make(&rig, &list, 100, 1000, SCATTERED);
    request = list_request(&rig, &list, FERRY_READ);
    request.deadline_ns = 1;
    rig_fill(&rig, 1, 2);
    assert_ok(ferry_batch_submit(rig.initiator, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.initiator, rig.batch, test_deadline_ms(20000), NULL));
    assert_int_equal(rig_task(rig.initiator, rig.batch, 0).state, FERRY_TASK_TIMED_OUT);
    rig_expect(&rig.local, 0, RIG_LENGTH, 1, 0);
    list_close(&list);
    rig_close(&rig);
}

/* The target registered its memory anew: one refresh, and the list runs once more, as a whole. */
static void test_vector_recovers_from_a_stale_registration(void **state)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;
    struct list list;
    struct rig rig;

    (void)state;
    rig_open(&rig, kind, NULL);
    list_open(&list);
    whole.addr = rig.remote.data;
    whole.length = RIG_LENGTH;
    for (int op = FERRY_READ; op <= FERRY_WRITE; op++) {
        list_make(&rig, &list, 150, 20000, SCATTERED);
        run_and_check(&rig, &list, (enum ferry_opcode)op);
        assert_ok(ferry_memory_unregister(rig.target, &whole, 1, 1000000000));
        rig_register(rig.target, rig.remote.data, RIG_LENGTH, FERRY_PERMISSION_READ_WRITE);
        run_and_check(&rig, &list, (enum ferry_opcode)op);
    }
    list_close(&list);
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vector_moves_exactly_its_pieces),
        cmocka_unit_test(test_vector_moves_blocks_of_a_pool),
        cmocka_unit_test(test_vector_is_one_task),
        cmocka_unit_test(test_vector_that_is_malformed_is_refused),
        cmocka_unit_test(test_vector_of_most_pieces_moves),
        cmocka_unit_test(test_vector_checks_every_piece_before_a_byte_moves),
        cmocka_unit_test(test_vector_reaches_many_buffers),
        cmocka_unit_test(test_vector_leaves_memory_alone_after_a_cancel),
        cmocka_unit_test(test_vector_lets_go_of_memory_that_is_unregistered),
        cmocka_unit_test(test_vector_ends_at_its_deadline),
        cmocka_unit_test(test_vector_recovers_from_a_stale_registration),
    };

    kind = argc == 2 ? rig_find_kind(argv[1]) : NULL;
    if (kind == NULL) {
        fprintf(stderr,
                "usage: %s loop|fault|split|hp_tcp-epoll|hp_tcp-uring|hp_tcp-fault|"
                "hp_tcp-split\n",
                argv[0]);
        return 2;
    }
    rig_skip_if_missing(kind);
    return cmocka_run_group_tests_name(argv[1], tests, NULL, NULL);
}
