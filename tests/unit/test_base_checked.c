/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checked arithmetic at its edges, ranges against a slow model, deadlines, randomness and the list.
 */
#include "base/checked.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_add_and_mul_refuse_to_wrap(void **state)
{
    uint64_t value = 0;
    size_t size = 0;

    (void)state;
    assert_true(ferry_add_u64(UINT64_MAX, 0, &value));
    assert_true(value == UINT64_MAX);
    assert_false(ferry_add_u64(UINT64_MAX, 1, &value));
    assert_true(ferry_mul_u64(1ULL << 32, (1ULL << 32) - 1, &value));
    assert_true(value == (1ULL << 32) * ((1ULL << 32) - 1));
    assert_false(ferry_mul_u64(1ULL << 32, 1ULL << 32, &value));
    assert_true(ferry_mul_size(SIZE_MAX, 1, &size));
    assert_true(size == SIZE_MAX);
    assert_false(ferry_mul_size(SIZE_MAX, 2, &size));
}

/* The same questions over 128 bits, where nothing wraps. */
__extension__ typedef unsigned __int128 wide;

static void test_ranges_agree_with_wide_arithmetic(void **state)
{
    static const uint64_t edges[] = {
        0,
        1,
        2,
        3,
        4095,
        4096,
        1ULL << 63,
        (1ULL << 63) - 1,
        UINT64_MAX - 4096,
        UINT64_MAX - 2,
        UINT64_MAX - 1,
        UINT64_MAX,
    };
    const size_t n = FERRY_ARRAY_LEN(edges);

    (void)state;
    for (size_t i = 0; i < n * n * n * n; i++) {
        uint64_t a = edges[i % n], a_len = edges[i / n % n];
        uint64_t b = edges[i / n / n % n], b_len = edges[i / n / n / n];
        wide a_end = (wide)a + a_len, b_end = (wide)b + b_len;

        assert_int_equal(ferry_range_ok(a, a_len), a_end <= UINT64_MAX);
        assert_int_equal(ferry_range_within(a, a_len, b, b_len), a >= b && a_end <= b_end);
        if (a_end <= UINT64_MAX && b_end <= UINT64_MAX)
            assert_int_equal(ferry_range_overlaps(a, a_len, b, b_len),
                             a_len > 0 && b_len > 0 && a < b_end && b < a_end);
    }
}

static void test_deadline_is_clamped_to_never(void **state)
{
    (void)state;
    assert_true(ferry_deadline_ns(5, 7) == 12);
    assert_true(ferry_deadline_ns(5, FERRY_NEVER_NS) == FERRY_NEVER_NS);
    assert_true(ferry_deadline_ns(FERRY_NEVER_NS, 1) == FERRY_NEVER_NS);
    assert_true(ferry_deadline_ns(1, FERRY_NEVER_NS - 1) == FERRY_NEVER_NS);
}

static void test_system_clock_never_goes_back(void **state)
{
    uint64_t before_ns = ferry_now_ns(&ferry_clock_system);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        uint64_t now_ns = ferry_now_ns(&ferry_clock_system);

        assert_true(now_ns >= before_ns);
        before_ns = now_ns;
    }
}

struct counting_random {
    struct ferry_random random;
    unsigned char next;
};

static void count_up(struct ferry_random *random, void *buf, size_t len)
{
    struct counting_random *self = FERRY_CONTAINER_OF(random, struct counting_random, random);

    for (size_t i = 0; i < len; i++)
        ((unsigned char *)buf)[i] = self->next++;
}

static void test_random_can_be_injected_and_fills_exactly(void **state)
{
    struct counting_random mine = {.random = {.fill = count_up}, .next = 1};
    uint64_t want;
    unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    unsigned char fenced[48];
    unsigned char seen[32] = {0};

    (void)state;
    memcpy(&want, bytes, sizeof(want));
    assert_true(ferry_random_u64(&mine.random) == want);
    assert_int_equal(mine.next, 9);

    /* 64 fills: every byte position changes at least once, the fence never. */
    for (int i = 0; i < 64; i++) {
        memset(fenced, 0xa5, sizeof(fenced));
        ferry_random_system.fill(&ferry_random_system, fenced + 8, 32);
        for (size_t k = 0; k < 32; k++)
            seen[k] |= fenced[8 + k] != 0xa5;
        for (size_t k = 0; k < 8; k++) {
            assert_int_equal(fenced[k], 0xa5);
            assert_int_equal(fenced[40 + k], 0xa5);
        }
    }
    for (size_t k = 0; k < 32; k++)
        assert_int_equal(seen[k], 1);
    assert_true(ferry_random_u64(&ferry_random_system) != ferry_random_u64(&ferry_random_system));
}

struct item {
    int number;
    struct ferry_list link;
};

static void test_list_keeps_order_and_removes_anywhere(void **state)
{
    struct ferry_list head;
    struct item items[4];

    (void)state;
    ferry_list_init(&head);
    assert_true(ferry_list_empty(&head));
    assert_null(ferry_list_pop_front(&head));
    for (int i = 0; i < 3; i++) {
        items[i].number = i;
        ferry_list_push_back(&head, &items[i].link);
    }
    items[3].number = 3;
    ferry_list_push_front(&head, &items[3].link);
    ferry_list_remove(&items[1].link);
    ferry_list_remove(&items[1].link); /* harmless */

    static const int want[] = {3, 0, 2};

    for (size_t i = 0; i < FERRY_ARRAY_LEN(want); i++) {
        struct ferry_list *node = ferry_list_pop_front(&head);

        assert_non_null(node);
        assert_int_equal(FERRY_CONTAINER_OF(node, struct item, link)->number, want[i]);
    }
    assert_true(ferry_list_empty(&head));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_and_mul_refuse_to_wrap),
        cmocka_unit_test(test_ranges_agree_with_wide_arithmetic),
        cmocka_unit_test(test_deadline_is_clamped_to_never),
        cmocka_unit_test(test_system_clock_never_goes_back),
        cmocka_unit_test(test_random_can_be_injected_and_fills_exactly),
        cmocka_unit_test(test_list_keeps_order_and_removes_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
