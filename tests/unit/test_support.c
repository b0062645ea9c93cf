/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test helpers themselves: a check that cannot fail protects nothing, so every way in which
 * data can be wrong is put in once here and has to be seen.
 */
#include "support/pattern.h"
#include "support/process.h"
#include "support/test.h"

#define LEN 100003u

struct rig {
    struct fenced range;
};

static int setup(void **state)
{
    static struct rig rig;
    if (!fenced_alloc(&rig.range, LEN, 3))
        return -1;
    pattern_fill(rig.range.data, LEN, 7, 1000);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    fenced_free(&rig->range);
    return 0;
}

static void test_pattern_is_the_same_however_it_is_cut(void **state)
{
    struct rig *rig = *state;
    assert_true(pattern_differs(rig->range.data, LEN, 7, 1000) == PATTERN_SAME);
    for (size_t at = 0, step = 1; at < LEN; at += step, step = step * 2 + 1) {
        size_t len = LEN - at < step ? LEN - at : step;
        assert_true(pattern_differs(rig->range.data + at, len, 7, 1000 + at) == PATTERN_SAME);
    }
    assert_int_equal(rig->range.data[4097], pattern_byte(7, 1000 + 4097));
}

static void test_one_wrong_byte_is_found_at_its_offset(void **state)
{
    struct rig *rig = *state;
    size_t offsets[] = {0, 1, 7, 8, 4095, 4096, LEN - 9, LEN - 1};
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
        rig->range.data[offsets[i]] ^= 0x10;
        assert_int_equal(pattern_differs(rig->range.data, LEN, 7, 1000), offsets[i]);
        rig->range.data[offsets[i]] ^= 0x10;
    }
}

static void test_shifted_swapped_and_stale_blocks_are_seen(void **state)
{
    struct rig *rig = *state;
    unsigned char block[4096];

    assert_true(pattern_differs(rig->range.data + 1, LEN - 1, 7, 1000) != PATTERN_SAME);
    assert_true(pattern_differs(rig->range.data, LEN, 8, 1000) != PATTERN_SAME);

    memcpy(block, rig->range.data, sizeof(block));
    memcpy(rig->range.data, rig->range.data + 8192, sizeof(block));
    memcpy(rig->range.data + 8192, block, sizeof(block));
    assert_int_equal(pattern_differs(rig->range.data, LEN, 7, 1000), 0);
    assert_int_equal(pattern_differs(rig->range.data + 4096, LEN - 4096, 7, 5096), 4096);
}

static void test_a_byte_outside_of_the_range_breaks_the_fence(void **state)
{
    struct rig *rig = *state;
    assert_true(fenced_intact(&rig->range));

    rig->range.data[LEN] ^= 1;
    assert_false(fenced_intact(&rig->range));
    rig->range.data[LEN] ^= 1;
    rig->range.data[-1] ^= 1;
    assert_false(fenced_intact(&rig->range));
    rig->range.data[-1] ^= 1;
    assert_true(fenced_intact(&rig->range));
}

static void test_descriptors_threads_and_memory_are_counted(void **state)
{
    (void)state;
    int before = process_fd_count();
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(process_fd_count(), before + 2);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(process_fd_count(), before);
    assert_true(process_thread_count() >= 1);
    assert_true(process_rss_bytes() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pattern_is_the_same_however_it_is_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_one_wrong_byte_is_found_at_its_offset, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_shifted_swapped_and_stale_blocks_are_seen, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_byte_outside_of_the_range_breaks_the_fence, setup,
                                        teardown),
        cmocka_unit_test(test_descriptors_threads_and_memory_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
