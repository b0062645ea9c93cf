/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages: sizes at the edges, alignment, binding where the kernel lets us, population. One thread.
 */
#include "support/test.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/alloc.h"
#include "support/pattern.h"
#include "test_memory_support.h"

static const struct ferry_pages_options anywhere = {
    .location = {.numa_node = FERRY_LOCATION_ANY_NODE}};

/* How many of the pages are in memory. */
static size_t resident_pages(const struct ferry_pages *pages)
{
    size_t count = pages->length / (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *map = calloc(count, 1);
    size_t resident = 0;

    assert_non_null(map);
    assert_int_equal(mincore(pages->addr, pages->length, map), 0);
    for (size_t i = 0; i < count; i++)
        resident += map[i] & 1;
    free(map);
    return resident;
}

static void test_pages_are_whole_zeroed_and_usable(void **state)
{
    const uint64_t lengths[] = {1, 4095, 4096, 4097, 65537, 2 * MIB - 1, 2 * MIB, 5 * MIB + 1};

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct ferry_pages pages = {0};
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        assert_ok(ferry_pages_alloc(lengths[i], &anywhere, &pages));
        assert_true(pages.length >= lengths[i]);
        assert_true(pages.length - lengths[i] < page);
        assert_int_equal(pages.length % page, 0);
        assert_int_equal((uintptr_t)pages.addr % page, 0);
        if (lengths[i] >= 2 * MIB)
            assert_int_equal((uintptr_t)pages.addr % (2 * MIB), 0);
        assert_false(pages.bound);
        for (size_t j = 0; j < pages.length; j += 997)
            assert_int_equal(((unsigned char *)pages.addr)[j], 0);
        pattern_fill(pages.addr, pages.length, i, 0);
        assert_int_equal(pattern_differs(pages.addr, pages.length, i, 0), PATTERN_SAME);
        ferry_pages_free(&pages);
        assert_null(pages.addr);
        ferry_pages_free(&pages);
    }
}

static void test_neighbours_of_an_aligned_mapping_are_given_back(void **state)
{
    struct ferry_pages pages[64] = {{0}};

    /* Each asks for 2 MiB more than it keeps; what is kept must not overlap and must all be freed.
     */
    for (size_t i = 0; i < 64; i++) {
        assert_ok(ferry_pages_alloc(2 * MIB + 4096 * i, &anywhere, &pages[i]));
        memset(pages[i].addr, (int)i, 1);
    }
    for (size_t i = 0; i < 64; i++) {
        assert_int_equal(*(unsigned char *)pages[i].addr, i);
        void *addr = pages[i].addr;
        size_t length = pages[i].length;
        unsigned char map[1024];
        ferry_pages_free(&pages[i]);
        assert_int_equal(mincore(addr, length, map), -1);
    }
}

static void test_impossible_sizes_are_refused(void **state)
{
    struct ferry_pages pages = {.length = 77};

    assert_status(ferry_pages_alloc(0, &anywhere, &pages), FERRY_ERR_INVALID);
    assert_status(ferry_pages_alloc(UINT64_MAX, &anywhere, &pages), FERRY_ERR_TOO_LARGE);
    assert_status(ferry_pages_alloc(UINT64_MAX - 4096, &anywhere, &pages), FERRY_ERR_TOO_LARGE);
    assert_status(ferry_pages_alloc(UINT64_C(1) << 63, &anywhere, &pages), FERRY_ERR_TOO_LARGE);
    assert_status(ferry_pages_alloc(UINT64_C(1) << 62, &anywhere, &pages), FERRY_ERR_NO_MEMORY);
    assert_int_equal(pages.length, 77);
}

static void test_populate_brings_every_page_in(void **state)
{
    struct ferry_pages_options options = anywhere;
    struct ferry_pages pages;

    assert_ok(ferry_pages_alloc(3 * MIB, &options, &pages));
    assert_true(resident_pages(&pages) < 3 * MIB / 4096);
    ferry_pages_free(&pages);
    options.populate = true;
    options.huge = true;
    assert_ok(ferry_pages_alloc(3 * MIB, &options, &pages));
    assert_int_equal(resident_pages(&pages), pages.length / (size_t)sysconf(_SC_PAGESIZE));
    ferry_pages_free(&pages);
}

static void test_binding_is_done_or_said_not_to_be(void **state)
{
    struct ferry_pages_options options = {.location = {.numa_node = 0}, .populate = true};
    struct ferry_pages pages;

    assert_ok(ferry_pages_alloc(1 * MIB, &options, &pages));
    print_message("bound to node 0: %s\n", pages.bound ? "yes" : "no, not permitted here");
    bool may_bind = pages.bound;
    ferry_pages_free(&pages);

    options.location.numa_node = 1000;
    enum ferry_status status = ferry_pages_alloc(1 * MIB, &options, &pages);
    if (may_bind) {
        assert_int_equal(status, FERRY_ERR_INVALID);
        assert_text("no NUMA node 1000");
    } else if (status == FERRY_OK) {
        ferry_pages_free(&pages);
    }
    options.location.numa_node = 4096;
    assert_status(ferry_pages_alloc(1 * MIB, &options, &pages), FERRY_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_are_whole_zeroed_and_usable),
        cmocka_unit_test(test_neighbours_of_an_aligned_mapping_are_given_back),
        cmocka_unit_test(test_impossible_sizes_are_refused),
        cmocka_unit_test(test_populate_brings_every_page_in),
        cmocka_unit_test(test_binding_is_done_or_said_not_to_be),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
