/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the benchmark's checks: each difference is found, at its offset; and what is compared
 * in which order.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "payload.h"
#include "slot.h"

static void test_bench_payload_is_the_documented_one(void **state)
{
    unsigned char bytes[64];
    uint64_t word;

    (void)state;
    ferry_bench_payload_fill(bytes, sizeof(bytes), 0x0123456789abcdef, 0);
    for (uint64_t k = 0; k < 8; k++) {
        memcpy(&word, bytes + 8 * k, 8);
        assert_true(word == (0x0123456789abcdef ^ (k * 0x9e3779b97f4a7c15)));
    }
}

/* A piece filled by itself is the same as that piece of the whole, wherever it begins. */
static void test_bench_payload_depends_on_the_position_alone(void **state)
{
    unsigned char whole[300];
    unsigned char piece[300];

    (void)state;
    ferry_bench_payload_fill(whole, sizeof(whole), 7, 1000);
    for (size_t from = 0; from < 20; from++) {
        for (size_t len = 0; len + from <= 100; len++) {
            memset(piece, 0xa5, sizeof(piece));
            ferry_bench_payload_fill(piece, len, 7, 1000 + from);
            assert_memory_equal(piece, whole + from, len);
            assert_int_equal(piece[len], 0xa5);
            assert_true(ferry_bench_payload_differs(whole + from, len, 7, 1000 + from) ==
                        FERRY_BENCH_SAME);
        }
    }
}

static void test_bench_payload_finds_each_flipped_byte(void **state)
{
    static unsigned char bytes[3001];

    (void)state;
    for (size_t from = 0; from < 3; from++) {
        size_t len = sizeof(bytes) - from;

        ferry_bench_payload_fill(bytes, len, 99, from);
        for (size_t i = 0; i < len; i++) {
            bytes[i] ^= (unsigned char)(1u << i % 8);
            assert_int_equal(ferry_bench_payload_differs(bytes, len, 99, from), i);
            bytes[i] ^= (unsigned char)(1u << i % 8);
        }
        assert_true(ferry_bench_payload_differs(bytes, len, 99, from) == FERRY_BENCH_SAME);
    }
}

static void test_bench_payload_sees_swapped_pieces_and_other_seeds(void **state)
{
    static unsigned char bytes[8192];
    unsigned char piece[512];
    size_t same = 0;

    (void)state;
    ferry_bench_payload_fill(bytes, sizeof(bytes), 5, 0);
    memcpy(piece, bytes + 1024, sizeof(piece));
    memcpy(bytes + 1024, bytes + 4096, sizeof(piece));
    memcpy(bytes + 4096, piece, sizeof(piece));
    assert_in_range(ferry_bench_payload_differs(bytes, sizeof(bytes), 5, 0), 1024, 1031);

    /* Data of the write before: hardly a byte is right by chance. */
    uint64_t before = ferry_bench_payload_seed(1, 3, 10);
    uint64_t now = ferry_bench_payload_seed(1, 3, 11);

    for (uint64_t i = 0; i < sizeof(bytes); i++)
        same += ferry_bench_payload_byte(before, i) == ferry_bench_payload_byte(now, i);
    assert_true(same < sizeof(bytes) / 4);
    assert_true(ferry_bench_payload_seed(1, 3, 10) != ferry_bench_payload_seed(1, 4, 10));
}

struct rig {
    struct ferry_bench_traffic traffic;
    struct ferry_bench_slot slot;
    unsigned char *area;
    uint64_t stride;
};

static void rig_open(struct rig *rig, enum ferry_bench_op op, bool check, uint64_t block)
{
    memset(rig, 0, sizeof(*rig));
    rig->traffic = (struct ferry_bench_traffic){
        .op = op, .check = check, .seed = 1, .block = block};
    assert_true(ferry_bench_slot_stride(&rig->traffic, &rig->stride));
    rig->area = calloc(1, rig->stride);
    assert_non_null(rig->area);
    rig->slot.remote = 0x7f0000001003;
    rig->slot.stream = 4;
    ferry_bench_slot_init(&rig->slot, &rig->traffic, rig->area);
}

/* One operation through a perfect memory of the target. */
static void rig_move(struct rig *rig, unsigned char *remote)
{
    ferry_bench_slot_prepare(&rig->slot, &rig->traffic);
    if (rig->slot.step == FERRY_WRITE)
        memcpy(remote, rig->slot.local, rig->traffic.block);
    else
        memcpy(rig->slot.local, remote, rig->traffic.block);
}

static void test_bench_checked_operations_alternate_and_compare(void **state)
{
    static const struct {
        enum ferry_bench_op op;
        bool write_measured, read_measured;
    } rows[] = {
        {FERRY_BENCH_READ, false, true},
        {FERRY_BENCH_WRITE, true, false},
        {FERRY_BENCH_MIX, true, true},
    };
    struct ferry_bench_difference difference;
    static unsigned char remote[5001];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rig rig;
        uint64_t seed = 0;

        rig_open(&rig, rows[i].op, true, sizeof(remote));
        for (int k = 0; k < 3; k++) {
            assert_int_equal(rig.slot.step, FERRY_WRITE);
            assert_int_equal(ferry_bench_slot_measured(&rig.slot, &rig.traffic),
                             rows[i].write_measured);
            rig_move(&rig, remote);
            assert_true(rig.slot.seed != seed);
            seed = rig.slot.seed;
            ferry_bench_slot_advance(&rig.slot, &rig.traffic);

            assert_int_equal(rig.slot.step, FERRY_READ);
            assert_int_equal(ferry_bench_slot_measured(&rig.slot, &rig.traffic),
                             rows[i].read_measured);
            rig_move(&rig, remote);
            assert_true(ferry_bench_slot_compare(&rig.slot, &rig.traffic, &difference));
            ferry_bench_slot_advance(&rig.slot, &rig.traffic);
        }
        free(rig.area);
    }
}

/* A READ that brings nothing, or misses one byte, leaves bytes that differ from what was wanted. */
static void test_bench_bytes_that_did_not_arrive_are_seen(void **state)
{
    struct ferry_bench_difference difference;
    static unsigned char remote[1000];
    struct rig rig;

    (void)state;
    rig_open(&rig, FERRY_BENCH_READ, true, sizeof(remote));
    rig_move(&rig, remote);
    ferry_bench_slot_advance(&rig.slot, &rig.traffic);
    for (size_t missing = 0; missing < sizeof(remote); missing++) {
        ferry_bench_slot_prepare(&rig.slot, &rig.traffic);
        memcpy(rig.slot.local, remote, missing);
        memcpy(rig.slot.local + missing + 1, remote + missing + 1, sizeof(remote) - missing - 1);
        assert_false(ferry_bench_slot_compare(&rig.slot, &rig.traffic, &difference));
        assert_int_equal(difference.offset, missing);
        assert_int_equal(difference.expected, remote[missing]);
        assert_int_equal(difference.got, rig.slot.local[missing]);
        rig.slot.prepared = false;
    }
    free(rig.area);
}

static void test_bench_fences_are_compared_on_both_sides(void **state)
{
    static const int64_t offsets[] = {-4096, -1, 777, 777 + 4095};
    struct ferry_bench_difference difference;
    static unsigned char remote[777];
    struct rig rig;

    (void)state;
    rig_open(&rig, FERRY_BENCH_MIX, true, sizeof(remote));
    rig_move(&rig, remote);
    ferry_bench_slot_advance(&rig.slot, &rig.traffic);
    rig_move(&rig, remote);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        rig.slot.local[offsets[i]] ^= 1;
        assert_false(ferry_bench_slot_compare(&rig.slot, &rig.traffic, &difference));
        assert_int_equal(difference.offset, offsets[i]);
        rig.slot.local[offsets[i]] ^= 1;
    }
    assert_true(ferry_bench_slot_compare(&rig.slot, &rig.traffic, &difference));
    free(rig.area);
}

/* Two processes that share nothing but the address agree on the data, however it is cut. */
static void test_bench_seeded_data_follows_from_the_address(void **state)
{
    struct ferry_bench_difference difference;
    unsigned char remote[600];
    struct rig writer;
    struct rig reader;

    (void)state;
    for (uint64_t i = 0; i < 2; i++) {
        rig_open(&writer, FERRY_BENCH_WRITE_SEED, false, 300);
        writer.slot.remote = 0x10005 + i * 300;
        ferry_bench_slot_init(&writer.slot, &writer.traffic, writer.area);
        rig_move(&writer, remote + i * 300);
        free(writer.area);
    }
    for (uint64_t i = 0; i < 6; i++) {
        rig_open(&reader, FERRY_BENCH_READ_VERIFY, false, 100);
        reader.slot.remote = 0x10005 + i * 100;
        reader.slot.stream = 17 + i;
        ferry_bench_slot_init(&reader.slot, &reader.traffic, reader.area);
        rig_move(&reader, remote + i * 100);
        assert_true(ferry_bench_slot_compare(&reader.slot, &reader.traffic, &difference));
        free(reader.area);
    }
}

static void test_bench_strides_do_not_overflow(void **state)
{
    struct ferry_bench_traffic traffic = {.block = UINT64_MAX - 10};
    uint64_t stride;

    (void)state;
    assert_false(ferry_bench_slot_stride(&traffic, &stride));
    traffic.check = true;
    traffic.block = UINT64_MAX - 8192;
    assert_false(ferry_bench_slot_stride(&traffic, &stride));
    traffic.block = 4097;
    assert_true(ferry_bench_slot_stride(&traffic, &stride));
    assert_int_equal(stride, 2 * 4096 + 2 * FERRY_BENCH_FENCE);
    traffic.check = false;
    traffic.block = 1;
    assert_true(ferry_bench_slot_stride(&traffic, &stride));
    assert_int_equal(stride, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bench_payload_is_the_documented_one),
        cmocka_unit_test(test_bench_payload_depends_on_the_position_alone),
        cmocka_unit_test(test_bench_payload_finds_each_flipped_byte),
        cmocka_unit_test(test_bench_payload_sees_swapped_pieces_and_other_seeds),
        cmocka_unit_test(test_bench_checked_operations_alternate_and_compare),
        cmocka_unit_test(test_bench_bytes_that_did_not_arrive_are_seen),
        cmocka_unit_test(test_bench_fences_are_compared_on_both_sides),
        cmocka_unit_test(test_bench_seeded_data_follows_from_the_address),
        cmocka_unit_test(test_bench_strides_do_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
