/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranges of files are cut: whatever the alignments, the pieces cover the range once and in
 * order, a direct piece is aligned in everything, and nothing ever reaches beyond the range.
 */
#include "support/test.h"
#include "transport/file/slice.h"

static uint64_t random_state = 1;

static uint64_t random_below(uint64_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 20) % bound;
}

static void check_range(const struct ferry_file_grain *grain, uint64_t offset, uint64_t length,
                        uint64_t memory)
{
    uint64_t done = 0;
    uint32_t count = 0;

    while (done < length) {
        struct ferry_file_cut cut = ferry_file_cut(grain, offset + done, length - done,
                                                   memory + done);

        assert_true(cut.length > 0);
        assert_true(cut.length <= length - done);
        assert_true(cut.length <= grain->slice_bytes);
        if (cut.way != FERRY_FILE_BUFFERED) {
            assert_true(grain->offset_align != 0);
            assert_int_equal((offset + done) % grain->offset_align, 0);
            assert_int_equal(cut.length % grain->offset_align, 0);
        }
        if (cut.way == FERRY_FILE_DIRECT)
            assert_int_equal((memory + done) % grain->memory_align, 0);
        if (cut.way == FERRY_FILE_BOUNCE)
            assert_true(grain->bounce);
        done += cut.length;
        count++;
    }
    assert_int_equal(done, length);
    /* A head and a tail at most, besides full slices. */
    assert_true(count <= length / grain->slice_bytes + 3);
}

static void test_slices_cover_the_range_and_nothing_else(void **state)
{
    static const uint32_t aligns[] = {0, 1, 512, 4096, 65536};

    (void)state;
    random_state = test_seed(1);
    for (uint32_t i = 0; i < 200000; i++) {
        struct ferry_file_grain grain = {
            .offset_align = aligns[random_below(5)],
            .memory_align = 1u << random_below(13),
            .slice_bytes = 65536u << random_below(5),
            .bounce = random_below(2),
        };
        uint64_t offset = random_below(2) ? random_below(1u << 20) : random_below(1u << 12) * 4096;
        uint64_t length = 1 + (random_below(2) ? random_below(1u << 22) : random_below(10000));

        check_range(&grain, offset, length, random_below(1u << 20));
    }
}

static void test_slices_of_aligned_ranges_are_direct(void **state)
{
    struct ferry_file_grain grain = {
        .offset_align = 512, .memory_align = 512, .slice_bytes = 1u << 20, .bounce = true};
    struct ferry_file_cut cut = ferry_file_cut(&grain, 512 * 7, 4096, 512 * 3);

    (void)state;
    assert_int_equal(cut.way, FERRY_FILE_DIRECT);
    assert_int_equal(cut.length, 4096);
    cut = ferry_file_cut(&grain, 512 * 7, 4096, 512 * 3 + 4);
    assert_int_equal(cut.way, FERRY_FILE_BOUNCE);
    grain.bounce = false;
    cut = ferry_file_cut(&grain, 512 * 7, 4096, 512 * 3 + 4);
    assert_int_equal(cut.way, FERRY_FILE_BUFFERED);
    cut = ferry_file_cut(&grain, 1, 4096, 512);
    assert_int_equal(cut.way, FERRY_FILE_BUFFERED);
    assert_int_equal(cut.length, 4096);
    cut = ferry_file_cut(&grain, 1, 1u << 20, 512);
    assert_int_equal(cut.way, FERRY_FILE_BUFFERED);
    assert_int_equal(cut.length, 511);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_cover_the_range_and_nothing_else),
        cmocka_unit_test(test_slices_of_aligned_ranges_are_direct),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
