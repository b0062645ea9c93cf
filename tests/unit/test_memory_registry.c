/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may be registered, how duplicates count, what lists do, what is published. One thread; the
 * addresses are numbers only, no memory stands behind them.
 */
#include "support/test.h"

#include "memory/location.h"
#include "test_memory_support.h"

#define R     UINT64_C(0x10000000)
#define R_LEN MIB

struct rig {
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
};

static int setup(void **state)
{
    static struct rig rig;

    memset(&rig, 0, sizeof(rig));
    rig_init(&rig.registry);
    ferry_registry_reader_init(&rig.reader, &rig.registry);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    ferry_registry_reader_fini(&rig->reader);
    ferry_registry_fini(&rig->registry);
    return 0;
}

/* What a peer that knows R's id sees at R's first and last byte. */
static void assert_r_readable(struct rig *rig, bool readable)
{
    static uint64_t last_id = 1;
    struct ferry_registry_buffer buffer;

    if (ferry_registry_find(&rig->registry, R, R_LEN, &buffer) == FERRY_OK)
        last_id = buffer.registration_id;
    enum ferry_status want = readable ? FERRY_OK : FERRY_ERR_RANGE;
    assert_status(probe(&rig->reader, R, 1, last_id, FERRY_ACCESS_READ), want);
    assert_status(probe(&rig->reader, R + R_LEN - 1, 1, last_id, FERRY_ACCESS_READ), want);
}

/* Field report B17: one rule for the same range again, overlapping and odd ones. */
static void test_duplicates_count_and_overlaps_change_nothing(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry *registry = &rig->registry;
    struct ferry_registry_spec twice[] = {spec(R, R_LEN), spec(R, R_LEN)};
    struct ferry_registry_range both[] = {{R, R_LEN}, {R, R_LEN}};
    const struct {
        uint64_t addr;
        uint64_t length;
        enum ferry_status want;
        uint32_t published;
    } rows[] = {
        {R, R_LEN / 2, FERRY_ERR_EXISTS, 1},
        {R, R_LEN + 4096, FERRY_ERR_EXISTS, 1},
        {R + R_LEN / 2, R_LEN, FERRY_ERR_EXISTS, 1},
        {R - R_LEN / 2, R_LEN, FERRY_ERR_EXISTS, 1},
        {R - 1, R_LEN + 2, FERRY_ERR_EXISTS, 1},
        {R + 1, 4095, FERRY_ERR_EXISTS, 1},
        {R, 0, FERRY_ERR_INVALID, 1},
        {0, R_LEN, FERRY_ERR_INVALID, 1},
        {UINT64_MAX - 4095, 4096, FERRY_ERR_INVALID, 1},
        {UINT64_MAX - 10, R_LEN, FERRY_ERR_INVALID, 1},
        {R + R_LEN, R_LEN, FERRY_OK, 2},        /* adjacent behind */
        {R - 4096, 4096, FERRY_OK, 3},          /* adjacent before */
        {R + 8 * R_LEN + 1, 4095, FERRY_OK, 4}, /* unaligned */
    };

    assert_ok(register_one(registry, R, R_LEN));
    assert_r_readable(rig, true);
    uint64_t id = id_at(registry, R);
    assert_ok(register_one(registry, R, R_LEN));
    assert_int_equal(id_at(registry, R), id);
    assert_ok(ferry_registry_register(registry, twice, 2));
    assert_int_equal(published(registry), 1);
    assert_r_readable(rig, true);

    /* Registered four times by now: two go, two stay. */
    assert_ok(unregister_list(registry, both, 2));
    assert_r_readable(rig, true);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_status(register_one(registry, rows[i].addr, rows[i].length), rows[i].want);
        assert_int_equal(published(registry), rows[i].published);
        assert_r_readable(rig, true);
    }

    assert_ok(ferry_registry_register(registry, NULL, 0));
    assert_ok(unregister_list(registry, NULL, 0));
    assert_status(unregister_one(registry, R + 100 * R_LEN, R_LEN), FERRY_ERR_NOT_FOUND);
    assert_status(unregister_one(registry, R, R_LEN - 1), FERRY_ERR_NOT_FOUND);
    assert_r_readable(rig, true);

    assert_ok(unregister_one(registry, R, R_LEN));
    assert_r_readable(rig, true);
    assert_status(unregister_list(registry, both, 2), FERRY_ERR_NOT_FOUND);
    assert_text("more than the 1 times");
    assert_r_readable(rig, true);
    assert_ok(unregister_one(registry, R, R_LEN));
    assert_r_readable(rig, false);
    assert_status(unregister_one(registry, R, R_LEN), FERRY_ERR_NOT_FOUND);

    struct ferry_registry_range rest[] = {
        {R + 8 * R_LEN + 1, 4095}, {R + R_LEN, R_LEN}, {R - 4096, 4096}};
    assert_ok(unregister_list(registry, rest, 3));
    assert_int_equal(published(registry), 0);
    assert_int_equal(ferry_registry_count(registry), 0);
}

static void test_texts_name_both_ranges(void **state)
{
    struct rig *rig = *state;

    assert_ok(register_one(&rig->registry, 0x1000, 0x1000));
    assert_status(register_one(&rig->registry, 0x1800, 0x1000), FERRY_ERR_EXISTS);
    assert_text("[0x1800, 0x2800)");
    assert_text("[0x1000, 0x2000)");
    assert_status(unregister_one(&rig->registry, 0x1000, 0x800), FERRY_ERR_NOT_FOUND);
    assert_text("4096 bytes are registered, not 2048");
    assert_status(unregister_one(&rig->registry, 0x1400, 0x800), FERRY_ERR_NOT_FOUND);
    assert_text("inside [0x1000, 0x2000)");
    assert_status(unregister_one(&rig->registry, 0x800, 0x1000), FERRY_ERR_NOT_FOUND);
    assert_text("overlaps [0x1000, 0x2000)");
    assert_status(unregister_one(&rig->registry, 0x8000, 0x1000), FERRY_ERR_NOT_FOUND);
    assert_text("nothing is registered at 0x8000");
}

static void test_duplicate_with_other_kind_is_refused(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_spec one = spec(R, R_LEN);

    one.location = "cpu:3";
    assert_ok(ferry_registry_register(&rig->registry, &one, 1));
    one.permission = FERRY_PERMISSION_READ_ONLY;
    assert_status(ferry_registry_register(&rig->registry, &one, 1), FERRY_ERR_EXISTS);
    assert_text("(cpu:3, read-only)");
    assert_text("(cpu:3, read-write)");
    one.permission = FERRY_PERMISSION_READ_WRITE;
    one.location = "*";
    assert_status(ferry_registry_register(&rig->registry, &one, 1), FERRY_ERR_EXISTS);
    one.location = "cpu:3";
    assert_ok(ferry_registry_register(&rig->registry, &one, 1));
    one.permission = (enum ferry_permission)3;
    assert_status(ferry_registry_register(&rig->registry, &one, 1), FERRY_ERR_INVALID);
    assert_int_equal(published(&rig->registry), 1);
}

static void test_locations_are_strict(void **state)
{
    struct rig *rig = *state;
    const struct {
        const char *location;
        enum ferry_status want;
    } rows[] = {
        {NULL, FERRY_OK},
        {"*", FERRY_OK},
        {"cpu:0", FERRY_OK},
        {"cpu:3", FERRY_OK},
        {"cpu:-1", FERRY_OK}, /* field report B19: any node */
        {"cpu:1", FERRY_ERR_INVALID},
        {"cpu:4096", FERRY_ERR_INVALID}, /* field report B19 */
        {"cpu:2147483647", FERRY_ERR_INVALID},
        {"cpu:4294967296", FERRY_ERR_INVALID},
        {"cpu:-2", FERRY_ERR_INVALID},
        {"cpu:", FERRY_ERR_INVALID},
        {"cpu", FERRY_ERR_INVALID},
        {"cpu:00", FERRY_ERR_INVALID},
        {"cpu:+0", FERRY_ERR_INVALID},
        {"cpu:0 ", FERRY_ERR_INVALID},
        {" cpu:0", FERRY_ERR_INVALID},
        {"cpu:0x0", FERRY_ERR_INVALID},
        {"CPU:0", FERRY_ERR_INVALID},
        {"", FERRY_ERR_INVALID},
        {"**", FERRY_ERR_INVALID},
        {":0", FERRY_ERR_INVALID},
        {"cuda:0", FERRY_ERR_UNSUPPORTED},
        {"npu:7", FERRY_ERR_UNSUPPORTED},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ferry_registry_spec one = spec(R + i * R_LEN, 4096);

        one.location = rows[i].location;
        assert_status(ferry_registry_register(&rig->registry, &one, 1), rows[i].want);
        if (rows[i].want != FERRY_OK && rows[i].location[0] != '\0')
            assert_text(rows[i].location);
    }
    assert_int_equal(published(&rig->registry), 5);

    struct ferry_location location = {.numa_node = 77};
    assert_status(ferry_location_parse("cuda:0", &location), FERRY_ERR_UNSUPPORTED);
    assert_int_equal(location.numa_node, 77);
    assert_ok(ferry_location_parse("cpu:2147483647", &location));
    assert_int_equal(location.numa_node, INT32_MAX);
}

static void test_register_list_is_all_or_nothing(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry *registry = &rig->registry;
    struct ferry_registry_spec list[] = {spec(R, R_LEN), spec(R + 4 * R_LEN, R_LEN), spec(R, R_LEN),
                                         spec(R + R_LEN / 2, R_LEN)};
    uint64_t generation;

    assert_ok(register_one(registry, R, R_LEN));
    generation = ferry_registry_generation(registry);
    assert_status(ferry_registry_register(registry, list, 4), FERRY_ERR_EXISTS);
    assert_int_equal(published(registry), 1);
    assert_int_equal(ferry_registry_generation(registry), generation);
    list[3] = spec(0, 1);
    assert_status(ferry_registry_register(registry, list, 4), FERRY_ERR_INVALID);
    assert_int_equal(published(registry), 1);

    /* The failed lists left no count behind: one unregister is enough. */
    assert_ok(unregister_one(registry, R, R_LEN));
    assert_int_equal(published(registry), 0);
}

static void test_unregister_list_is_all_or_nothing(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry *registry = &rig->registry;
    struct ferry_registry_range list[] = {{R, R_LEN}, {R + 4 * R_LEN, R_LEN}, {R, R_LEN - 1}};

    assert_ok(register_one(registry, R, R_LEN));
    assert_ok(register_one(registry, R + 4 * R_LEN, R_LEN));
    assert_status(unregister_list(registry, list, 3), FERRY_ERR_NOT_FOUND);
    list[2] = list[0];
    assert_status(unregister_list(registry, list, 3), FERRY_ERR_NOT_FOUND);
    assert_int_equal(published(registry), 2);
    assert_r_readable(rig, true);
    assert_ok(register_one(registry, R, R_LEN));
    assert_ok(unregister_list(registry, list, 3));
    assert_int_equal(ferry_registry_count(registry), 0);
}

static void test_buffers_max_is_kept(void **state)
{
    struct ferry_registry registry;
    struct ferry_registry_options options = {.random = &ferry_random_system, .buffers_max = 2};
    struct ferry_registry_spec three[] = {spec(R, 1), spec(R + 2, 1), spec(R + 4, 1)};

    assert_ok(ferry_registry_init(&registry, &options));
    assert_status(ferry_registry_register(&registry, three, 3), FERRY_ERR_TOO_LARGE);
    assert_int_equal(ferry_registry_count(&registry), 0);
    assert_ok(ferry_registry_register(&registry, three, 2));
    assert_ok(ferry_registry_register(&registry, three, 2));
    assert_status(register_one(&registry, R + 4, 1), FERRY_ERR_TOO_LARGE);
    ferry_registry_fini(&registry);

    options.buffers_max = FERRY_REGISTRY_BUFFERS_MAX + 1;
    assert_status(ferry_registry_init(&registry, &options), FERRY_ERR_INVALID);
}

/* A source that gives zero, then the same id again and again, then others. */
struct poor_random {
    struct ferry_random random;
    uint64_t calls;
};

static void poor_fill(struct ferry_random *random, void *buf, size_t len)
{
    static const uint64_t words[] = {0, 42, 0, 42, 42, 43, 42, 42, 44};
    struct poor_random *poor = (struct poor_random *)random;
    uint64_t word = words[poor->calls % (sizeof(words) / sizeof(words[0]))];

    poor->calls++;
    assert_int_equal(len, sizeof(word));
    memcpy(buf, &word, sizeof(word));
}

static void test_ids_are_nonzero_and_unique_even_from_a_poor_source(void **state)
{
    struct poor_random poor = {.random = {.fill = poor_fill}};
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
    struct ferry_registry_options options = {.random = &poor.random};

    assert_ok(ferry_registry_init(&registry, &options));
    ferry_registry_reader_init(&reader, &registry);
    assert_ok(register_one(&registry, R, 1));
    assert_int_equal(id_at(&registry, R), 42);
    /* The reader's snapshot remembers 42 after R is gone, so R's successor may not get it. */
    assert_ok(probe(&reader, R, 1, 42, FERRY_ACCESS_READ));
    assert_ok(unregister_one(&registry, R, 1));
    assert_ok(register_one(&registry, R, 1));
    assert_int_equal(id_at(&registry, R), 43);
    assert_status(probe(&reader, R, 1, 42, FERRY_ACCESS_READ), FERRY_ERR_STALE_KEY);
    assert_ok(register_one(&registry, R + 8, 1));
    uint64_t other = id_at(&registry, R + 8);
    assert_true(other != 0 && other != 43);
    ferry_registry_reader_fini(&reader);
    ferry_registry_fini(&registry);
}

static void stuck_fill(struct ferry_random *random, void *buf, size_t len)
{
    memset(buf, 0, len);
}

static void test_a_stuck_random_source_is_an_error_not_a_hang(void **state)
{
    struct ferry_random stuck = {.fill = stuck_fill};
    struct ferry_registry registry;
    struct ferry_registry_options options = {.random = &stuck};

    assert_ok(ferry_registry_init(&registry, &options));
    assert_status(register_one(&registry, R, 1), FERRY_ERR_INTERNAL);
    assert_int_equal(ferry_registry_count(&registry), 0);
    ferry_registry_fini(&registry);
}

static void test_new_registration_gets_a_new_id(void **state)
{
    struct rig *rig = *state;
    uint64_t first;

    assert_ok(register_one(&rig->registry, R, R_LEN));
    first = id_at(&rig->registry, R);
    assert_int_not_equal(first, 0);
    assert_ok(unregister_one(&rig->registry, R, R_LEN));
    assert_ok(register_one(&rig->registry, R, R_LEN));
    assert_int_not_equal(id_at(&rig->registry, R), first);
    assert_status(probe(&rig->reader, R, 1, first, FERRY_ACCESS_READ), FERRY_ERR_STALE_KEY);
}

static void test_list_is_ordered_complete_and_tagged(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_list list;
    struct ferry_registry_spec specs[] = {spec(R + 2 * R_LEN, 5), spec(R, 7), spec(R + R_LEN, 6)};
    uint64_t before = ferry_registry_generation(&rig->registry);

    specs[0].permission = FERRY_PERMISSION_LOCAL;
    specs[1].permission = FERRY_PERMISSION_READ_ONLY;
    specs[1].location = "cpu:3";
    assert_ok(ferry_registry_register(&rig->registry, specs, 3));
    assert_int_not_equal(ferry_registry_generation(&rig->registry), before);
    assert_ok(ferry_registry_list(&rig->registry, &list));
    assert_int_equal(list.generation, ferry_registry_generation(&rig->registry));
    assert_int_equal(list.count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(list.buffers[i].addr, R + i * R_LEN);
        assert_int_equal(list.buffers[i].length, 7 - i);
        assert_int_equal(list.buffers[i].registration_id, id_at(&rig->registry, R + i * R_LEN));
    }
    assert_int_equal(list.buffers[0].permission, FERRY_PERMISSION_READ_ONLY);
    assert_string_equal(list.buffers[0].location, "cpu:3");
    assert_int_equal(list.buffers[2].permission, FERRY_PERMISSION_LOCAL);
    assert_string_equal(list.buffers[2].location, "*");
    ferry_registry_list_free(&list);

    /* Duplicates publish nothing, taking the last one back does. */
    before = ferry_registry_generation(&rig->registry);
    assert_ok(register_one(&rig->registry, R + R_LEN, 6));
    assert_ok(unregister_one(&rig->registry, R + R_LEN, 6));
    assert_int_equal(ferry_registry_generation(&rig->registry), before);
    assert_ok(unregister_one(&rig->registry, R + R_LEN, 6));
    assert_int_not_equal(ferry_registry_generation(&rig->registry), before);
}

static void test_close_refuses_and_reopen_needs_an_empty_registry(void **state)
{
    struct rig *rig = *state;
    struct ferry_lease held = {0};

    assert_ok(register_one(&rig->registry, R, R_LEN));
    uint64_t id = id_at(&rig->registry, R);
    assert_ok(lease_for(&rig->reader, R, 1, id, FERRY_ACCESS_READ, &held));
    ferry_registry_close(&rig->registry);
    assert_status(probe(&rig->reader, R, 1, id, FERRY_ACCESS_READ), FERRY_ERR_PEER_CLOSING);
    assert_status(probe(&rig->reader, R, 1, id + 1, FERRY_ACCESS_READ), FERRY_ERR_PEER_CLOSING);
    assert_status(probe(&rig->reader, 1, 1, id, FERRY_ACCESS_READ), FERRY_ERR_PEER_CLOSING);
    assert_status(probe(&rig->reader, R, 0, id, FERRY_ACCESS_READ), FERRY_ERR_RANGE);
    assert_status(probe(&rig->reader, R, 1, 0, FERRY_ACCESS_LOCAL), FERRY_ERR_CLOSING);
    assert_status(register_one(&rig->registry, R, R_LEN), FERRY_ERR_CLOSING);
    assert_status(ferry_registry_reopen(&rig->registry), FERRY_ERR_BUSY);

    ferry_lease_release(&held);
    assert_ok(unregister_one(&rig->registry, R, R_LEN));
    assert_ok(ferry_registry_reopen(&rig->registry));
    assert_ok(register_one(&rig->registry, R, R_LEN));
    assert_ok(probe(&rig->reader, R, 1, id_at(&rig->registry, R), FERRY_ACCESS_READ));
}

static void test_fini_takes_zeroed_and_filled_registries(void **state)
{
    struct ferry_registry registry = {0};

    ferry_registry_fini(&registry);
    rig_init(&registry);
    for (uint64_t i = 0; i < 200; i++)
        assert_ok(register_one(&registry, R + i * 64, 64));
    ferry_registry_fini(&registry);
    ferry_registry_fini(&registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_duplicates_count_and_overlaps_change_nothing, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_texts_name_both_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_duplicate_with_other_kind_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locations_are_strict, setup, teardown),
        cmocka_unit_test_setup_teardown(test_register_list_is_all_or_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unregister_list_is_all_or_nothing, setup, teardown),
        cmocka_unit_test(test_buffers_max_is_kept),
        cmocka_unit_test(test_ids_are_nonzero_and_unique_even_from_a_poor_source),
        cmocka_unit_test(test_a_stuck_random_source_is_an_error_not_a_hang),
        cmocka_unit_test_setup_teardown(test_new_registration_gets_a_new_id, setup, teardown),
        cmocka_unit_test_setup_teardown(test_list_is_ordered_complete_and_tagged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_refuses_and_reopen_needs_an_empty_registry,
                                        setup, teardown),
        cmocka_unit_test(test_fini_takes_zeroed_and_filled_registries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
