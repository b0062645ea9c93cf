/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases and the phases of a removal: verdicts in their order, hide, wait, revoke, resume, and what
 * old snapshots keep. Threads only where a wait must be ended from outside.
 */
#include "support/test.h"

#include <pthread.h>

#include "memory/registry_private.h"
#include "test_memory_support.h"

#define RO    UINT64_C(0x20000000)
#define RW    UINT64_C(0x30000000)
#define OWN   UINT64_C(0x40000000)
#define LEN   (64 * KIB)
#define READ  FERRY_ACCESS_READ
#define WRITE FERRY_ACCESS_WRITE
#define LOCAL FERRY_ACCESS_LOCAL

struct rig {
    struct ferry_registry registry;
    struct ferry_registry_reader reader;
};

static int setup(void **state)
{
    static struct rig rig;
    struct ferry_registry_spec specs[] = {spec(RO, LEN), spec(RW, LEN), spec(OWN, LEN)};

    memset(&rig, 0, sizeof(rig));
    rig_init(&rig.registry);
    ferry_registry_reader_init(&rig.reader, &rig.registry);
    specs[0].permission = FERRY_PERMISSION_READ_ONLY;
    specs[2].permission = FERRY_PERMISSION_LOCAL;
    assert_ok(ferry_registry_register(&rig.registry, specs, 3));
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

/* Field report B39: a peer's numbers are judged, whatever they are. */
static void test_verdicts_follow_the_published_order(void **state)
{
    struct rig *rig = *state;
    uint64_t ro = id_at(&rig->registry, RO);
    uint64_t rw = id_at(&rig->registry, RW);
    uint64_t own = id_at(&rig->registry, OWN);
    const struct {
        uint64_t addr;
        uint64_t length;
        uint64_t id;
        enum ferry_access access;
        enum ferry_status want;
    } rows[] = {
        {RO, LEN, ro, READ, FERRY_OK},
        {RO, LEN, ro, WRITE, FERRY_ERR_PERMISSION},
        {RW, LEN, rw, READ, FERRY_OK},
        {RW, LEN, rw, WRITE, FERRY_OK},
        {RW + LEN - 1, 1, rw, WRITE, FERRY_OK},
        {OWN, LEN, own, READ, FERRY_ERR_PERMISSION},
        {OWN, LEN, own, WRITE, FERRY_ERR_PERMISSION},
        /* an unknown id, the other buffer's, none */
        {RW, LEN, rw + 1, WRITE, FERRY_ERR_STALE_KEY},
        {RW, LEN, ro, READ, FERRY_ERR_STALE_KEY},
        {RW, LEN, 0, READ, FERRY_ERR_STALE_KEY},
        /* the id comes before the permission */
        {OWN, LEN, own + 1, READ, FERRY_ERR_STALE_KEY},
        {RO, LEN, ro + 1, WRITE, FERRY_ERR_STALE_KEY},
        /* the range comes before the id */
        {RW - 1, 1, rw, READ, FERRY_ERR_RANGE},
        {RW - 1, 2, rw, READ, FERRY_ERR_RANGE},
        {RW + LEN, 1, rw, READ, FERRY_ERR_RANGE},
        {RW + LEN - 1, 2, rw, READ, FERRY_ERR_RANGE},
        {RW, LEN + 1, rw + 1, READ, FERRY_ERR_RANGE},
        {RW, UINT64_C(1) << 31, rw, READ, FERRY_ERR_RANGE},
        {RW, UINT64_C(1) << 40, rw, READ, FERRY_ERR_RANGE},
        {RW, UINT64_C(1) << 63, rw, READ, FERRY_ERR_RANGE},
        {RW, UINT64_MAX, rw, READ, FERRY_ERR_RANGE},
        {RW, UINT64_MAX - RW + 1, rw, READ, FERRY_ERR_RANGE},
        {RW, UINT64_MAX - RW, rw, READ, FERRY_ERR_RANGE},
        {RW, 0, rw, READ, FERRY_ERR_RANGE},
        {0, 1, rw, READ, FERRY_ERR_RANGE},
        {0, 0, 0, READ, FERRY_ERR_RANGE},
        {UINT64_MAX, 1, rw, READ, FERRY_ERR_RANGE},
        {UINT64_MAX, UINT64_MAX, rw, WRITE, FERRY_ERR_RANGE},
        /* our own requests: any permission, any id or the right one */
        {OWN, LEN, 0, LOCAL, FERRY_OK},
        {RO + 1, 1, 0, LOCAL, FERRY_OK},
        {RW, LEN, rw, LOCAL, FERRY_OK},
        {RW, LEN, ro, LOCAL, FERRY_ERR_STALE_KEY},
        {OWN, LEN + 1, 0, LOCAL, FERRY_ERR_INVALID},
        {OWN, 0, 0, LOCAL, FERRY_ERR_INVALID},
        {UINT64_MAX, 2, 0, LOCAL, FERRY_ERR_INVALID},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ferry_lease lease = {.owner = i + 1};
        enum ferry_status status = lease_for(&rig->reader, rows[i].addr, rows[i].length, rows[i].id,
                                             rows[i].access, &lease);

        if (status != rows[i].want)
            fail_msg("row %zu: %s", i, ferry_status_name(status));
        assert_int_equal(ferry_lease_held(&lease), status == FERRY_OK);
        if (status != FERRY_OK)
            assert_int_equal(lease.owner, i + 1);
        ferry_lease_release(&lease);
    }
    assert_int_equal(ferry_registry_lease_count(&rig->registry), 0);
}

static void test_adjacent_buffers_are_not_joined(void **state)
{
    struct rig *rig = *state;

    assert_ok(register_one(&rig->registry, RW + LEN, LEN));
    assert_status(probe(&rig->reader, RW + LEN - 1, 2, id_at(&rig->registry, RW), READ),
                  FERRY_ERR_RANGE);
}

static void test_hidden_range_grants_nothing_and_stays_registered(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RW, LEN};
    struct ferry_removal removal;
    struct ferry_lease lease = {0};
    uint64_t id = id_at(&rig->registry, RW);
    uint64_t generation = ferry_registry_generation(&rig->registry);

    assert_ok(lease_for(&rig->reader, RW, LEN, id, WRITE, &lease));
    assert_int_equal(ferry_lease_registration_id(&lease), id);
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &removal));
    assert_int_not_equal(ferry_registry_generation(&rig->registry), generation);
    assert_int_equal(published(&rig->registry), 2);
    assert_int_equal(ferry_registry_count(&rig->registry), 3);
    assert_status(probe(&rig->reader, RW, 1, id, READ), FERRY_ERR_RANGE);
    assert_status(probe(&rig->reader, RW, 1, id + 1, READ), FERRY_ERR_RANGE);
    assert_status(probe(&rig->reader, RW, 1, 0, LOCAL), FERRY_ERR_INVALID);
    assert_status(register_one(&rig->registry, RW, LEN), FERRY_ERR_EXISTS);
    assert_text("still being unregistered");
    assert_status(register_one(&rig->registry, RW + 1, LEN), FERRY_ERR_EXISTS);

    assert_false(ferry_removal_quiet(&removal));
    assert_int_equal(ferry_removal_range(&removal, 0).addr, RW);
    assert_int_equal(ferry_removal_lease_count(&removal, 0), 1);
    assert_status(ferry_removal_wait(&removal, test_deadline_ms(20)), FERRY_ERR_BUSY);
    assert_status(ferry_removal_finish(&removal), FERRY_ERR_BUSY);
    assert_text("[0x30000000, 0x30010000) is still in use (leases=1)");

    assert_false(ferry_lease_revoked(&lease));
    ferry_removal_revoke(&removal);
    assert_true(ferry_lease_revoked(&lease));
    ferry_lease_release(&lease);
    assert_false(ferry_lease_revoked(&lease));
    assert_true(ferry_removal_quiet(&removal));
    assert_ok(ferry_removal_wait(&removal, test_deadline_ms(0)));
    assert_ok(ferry_removal_finish(&removal));
    assert_int_equal(ferry_registry_count(&rig->registry), 2);
    assert_ok(register_one(&rig->registry, RW, LEN));
    assert_status(probe(&rig->reader, RW, 1, id, READ), FERRY_ERR_STALE_KEY);
}

static void test_unregister_that_is_busy_can_be_called_again(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range list[] = {{RO, LEN}, {RW, LEN}, {OWN, LEN}};
    struct ferry_lease lease = {0};

    assert_ok(register_one(&rig->registry, RW, LEN));
    assert_ok(lease_for(&rig->reader, OWN, 1, 0, LOCAL, &lease));
    for (int i = 0; i < 3; i++) {
        assert_status(unregister_list(&rig->registry, list, 3), FERRY_ERR_BUSY);
        assert_text("[0x40000000, 0x40010000)");
        assert_int_equal(ferry_registry_count(&rig->registry), 3);
        /* RW is registered twice and was not hidden. */
        assert_int_equal(published(&rig->registry), 1);
        assert_true(ferry_lease_revoked(&lease));
    }
    ferry_lease_release(&lease);
    assert_ok(unregister_list(&rig->registry, list, 3));
    assert_int_equal(ferry_registry_count(&rig->registry), 1);
    assert_ok(unregister_one(&rig->registry, RW, LEN));
    assert_int_equal(ferry_registry_count(&rig->registry), 0);
}

static void test_other_removals_of_a_hidden_range_are_told_so(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RW, LEN};
    struct ferry_removal first;
    struct ferry_removal second;

    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &first));
    assert_status(ferry_registry_hide(&rig->registry, &range, 1, &second), FERRY_ERR_BUSY);
    assert_text("another call");
    ferry_removal_abandon(&first);
    ferry_removal_abandon(&first);
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &second));
    assert_ok(ferry_removal_finish(&second));
    assert_status(ferry_registry_hide(&rig->registry, &range, 1, &second), FERRY_ERR_NOT_FOUND);
}

/*
 * Two removals share a range that is registered twice. The second hides it; the first gives up; the
 * entry must live until both registers are taken back.
 */
static void test_removals_share_a_counted_range(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RW, LEN};
    struct ferry_removal first;
    struct ferry_removal second;
    uint64_t id = id_at(&rig->registry, RW);

    assert_ok(register_one(&rig->registry, RW, LEN));
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &first));
    assert_ok(probe(&rig->reader, RW, LEN, id, READ));
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &second));
    assert_status(probe(&rig->reader, RW, LEN, id, READ), FERRY_ERR_RANGE);
    assert_ok(ferry_removal_finish(&second));
    assert_int_equal(ferry_registry_count(&rig->registry), 3);
    ferry_removal_abandon(&first);
    assert_status(probe(&rig->reader, RW, LEN, id, READ), FERRY_ERR_RANGE);
    assert_ok(unregister_one(&rig->registry, RW, LEN));
    assert_int_equal(ferry_registry_count(&rig->registry), 2);
    assert_status(unregister_one(&rig->registry, RW, LEN), FERRY_ERR_NOT_FOUND);
}

static void test_hide_all_takes_what_is_left(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RO, LEN};
    struct ferry_removal part;
    struct ferry_removal all;
    struct ferry_lease lease = {0};

    assert_ok(register_one(&rig->registry, RW, LEN));
    assert_ok(lease_for(&rig->reader, RW, LEN, 0, LOCAL, &lease));
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &part));
    assert_ok(ferry_registry_hide_all(&rig->registry, &all));
    assert_int_equal(all.count, 3);
    assert_int_equal(published(&rig->registry), 0);
    assert_status(ferry_removal_finish(&all), FERRY_ERR_BUSY);
    ferry_lease_release(&lease);
    assert_ok(ferry_removal_finish(&all));
    assert_int_equal(ferry_registry_count(&rig->registry), 1);
    assert_ok(ferry_removal_finish(&part));
    assert_int_equal(ferry_registry_count(&rig->registry), 0);
    assert_ok(ferry_registry_hide_all(&rig->registry, &all));
    assert_true(ferry_removal_quiet(&all));
    assert_ok(ferry_removal_wait(&all, 0));
    assert_ok(ferry_removal_finish(&all));
    assert_ok(ferry_removal_finish(&all));
}

struct holder {
    struct ferry_lease lease;
    _Atomic bool revoke_seen;
    _Atomic bool go;
    _Atomic bool released;
};

static void *hold_until_revoked(void *argument)
{
    struct holder *holder = argument;

    while (!ferry_lease_revoked(&holder->lease))
        test_nap();
    atomic_store(&holder->revoke_seen, true);
    while (!atomic_load(&holder->go))
        test_nap();
    atomic_store(&holder->released, true);
    ferry_lease_release(&holder->lease);
    return NULL;
}

static void let_go(void *context, const struct ferry_removal *removal)
{
    struct holder *holder = context;

    assert_int_equal(removal->count, 1);
    assert_false(ferry_removal_quiet(removal));
    assert_within_ms(atomic_load(&holder->revoke_seen), 5000);
    atomic_store(&holder->go, true);
}

static void test_unregister_revokes_and_sleeps_until_the_holder_let_go(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RW, LEN};
    struct holder holder = {0};
    pthread_t thread;
    struct ferry_unregister_plan plan = {.lease_deadline_ns = test_deadline_ms(10),
                                         .revoke_deadline_ns = test_deadline_ms(20000),
                                         .revoke = let_go,
                                         .context = &holder};

    assert_ok(lease_for(&rig->reader, RW, LEN, 0, LOCAL, &holder.lease));
    assert_int_equal(pthread_create(&thread, NULL, hold_until_revoked, &holder), 0);
    uint64_t began_ns = test_now_ns();
    assert_ok(ferry_registry_unregister(&rig->registry, &range, 1, &plan));
    assert_true(atomic_load(&holder.released));
    /* A lost wake-up would have slept to the deadline. */
    assert_true(test_now_ns() - began_ns < 10 * FERRY_NS_PER_S);
    pthread_join(thread, NULL);
}

static void test_release_clears_and_accepts_none(void **state)
{
    struct rig *rig = *state;
    struct ferry_lease lease = {0};

    ferry_lease_release(&lease);
    assert_ok(lease_for(&rig->reader, RW, 1, 0, LOCAL, &lease));
    assert_true(ferry_lease_held(&lease));
    lease.owner = 99;
    ferry_lease_release(&lease);
    assert_false(ferry_lease_held(&lease));
    assert_int_equal(lease.owner, 0);
    ferry_lease_release(&lease);
    assert_int_equal(ferry_registry_lease_count(&rig->registry), 0);
}

static void test_lease_limit_is_back_pressure(void **state)
{
    struct rig *rig = *state;
    struct ferry_lease lease = {0};

    assert_ok(lease_for(&rig->reader, RW, 1, 0, LOCAL, &lease));
    atomic_fetch_add(&lease.entry->gate, FERRY_LEASES_MAX - 2);
    struct ferry_lease last = {0};
    assert_ok(lease_for(&rig->reader, RW, 1, 0, LOCAL, &last));
    assert_status(probe(&rig->reader, RW, 1, 0, LOCAL), FERRY_ERR_QUEUE_FULL);
    ferry_lease_release(&last);
    atomic_fetch_sub(&lease.entry->gate, FERRY_LEASES_MAX - 2);
    ferry_lease_release(&lease);
}

/*
 * An acquire may have read the closing flag just before close set it. What stops it then is the
 * gate: with the flag put back by hand, no lease is granted.
 */
static void test_close_stops_acquires_that_are_past_the_flag(void **state)
{
    struct rig *rig = *state;

    assert_ok(probe(&rig->reader, RW, 1, 0, LOCAL));
    ferry_registry_close(&rig->registry);
    atomic_store(&rig->registry.closing, false);
    assert_status(probe(&rig->reader, RW, 1, 0, LOCAL), FERRY_ERR_CLOSING);
    assert_status(probe(&rig->reader, RW, 1, id_at(&rig->registry, RW), READ),
                  FERRY_ERR_PEER_CLOSING);
}

/* A waiter that looked before the release sleeps on the old word; only a new one sends it back. */
static void test_the_last_release_of_a_hidden_range_changes_the_futex_word(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_range range = {RW, LEN};
    struct ferry_removal removal;
    struct ferry_lease leases[2] = {{0}};

    for (int i = 0; i < 2; i++)
        assert_ok(lease_for(&rig->reader, RW, 1, 0, LOCAL, &leases[i]));
    assert_ok(ferry_registry_hide(&rig->registry, &range, 1, &removal));
    uint32_t word = atomic_load(&rig->registry.quiet_word);
    ferry_lease_release(&leases[0]);
    assert_int_equal(atomic_load(&rig->registry.quiet_word), word);
    ferry_lease_release(&leases[1]);
    assert_int_not_equal(atomic_load(&rig->registry.quiet_word), word);
    assert_ok(ferry_removal_finish(&removal));
}

static uint32_t snapshots(const struct ferry_registry *registry)
{
    uint32_t count = 0;

    for (const struct ferry_registry_snapshot *at = registry->snapshot_newest; at != NULL;
         at = at->older)
        count++;
    return count;
}

/*
 * A reader that sleeps keeps its snapshot, and with it the entries it lists, but nothing that was
 * registered later: else an idle worker would make history pile up.
 */
static void test_a_sleeping_reader_keeps_no_history(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_reader busy;

    ferry_registry_reader_init(&busy, &rig->registry);
    assert_ok(probe(&rig->reader, RW, 1, 0, LOCAL));
    for (int i = 0; i < 100; i++) {
        assert_ok(unregister_one(&rig->registry, RW, LEN));
        assert_ok(register_one(&rig->registry, RW, LEN));
        assert_ok(probe(&busy, RW, 1, 0, LOCAL));
        /* live: RO, RW, OWN; pinned: the first RW (sleeping reader) */
        assert_int_equal(rig->registry.id_count, 4);
        assert_int_equal(snapshots(&rig->registry), 2);
    }
    assert_ok(probe(&rig->reader, RW, 1, 0, LOCAL));
    assert_int_equal(rig->registry.id_count, 3);
    assert_int_equal(snapshots(&rig->registry), 1);
    ferry_registry_reader_fini(&busy);
}

/* An entry that several snapshots list is handed down and dies with the oldest of them. */
static void test_pinned_entries_outlive_every_snapshot_that_lists_them(void **state)
{
    struct rig *rig = *state;
    struct ferry_registry_reader readers[3] = {{0}};

    for (uint64_t i = 0; i < 3; i++) {
        ferry_registry_reader_init(&readers[i], &rig->registry);
        assert_ok(register_one(&rig->registry, RW + (i + 1) * LEN, LEN));
        assert_ok(probe(&readers[i], RW, 1, 0, LOCAL));
    }
    assert_int_equal(snapshots(&rig->registry), 3);
    struct ferry_registration *entry = ferry_set_at(&rig->registry, RW);
    assert_ok(unregister_one(&rig->registry, RW, LEN));
    for (int i = 2; i >= 0; i--) {
        /* Still allocated, or the sanitizer says so. */
        assert_int_equal(entry->addr, RW);
        assert_int_equal(rig->registry.id_count, 6);
        ferry_registry_reader_fini(&readers[i]);
    }
    assert_int_equal(rig->registry.id_count, 5);
    assert_int_equal(snapshots(&rig->registry), 0);
}

static void test_ten_thousand_registrations_build_one_snapshot(void **state)
{
    struct rig *rig = *state;

    for (uint64_t i = 0; i < 10000; i++)
        assert_ok(register_one(&rig->registry, UINT64_C(0x100000000) + i * 4096, 4096));
    assert_int_equal(snapshots(&rig->registry), 0);
    assert_ok(probe(&rig->reader, UINT64_C(0x100000000) + 777 * 4096 + 5, 7, 0, LOCAL));
    assert_int_equal(snapshots(&rig->registry), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verdicts_follow_the_published_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_adjacent_buffers_are_not_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hidden_range_grants_nothing_and_stays_registered,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_unregister_that_is_busy_can_be_called_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_other_removals_of_a_hidden_range_are_told_so, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_removals_share_a_counted_range, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hide_all_takes_what_is_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unregister_revokes_and_sleeps_until_the_holder_let_go,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_release_clears_and_accepts_none, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lease_limit_is_back_pressure, setup, teardown),
        cmocka_unit_test_setup_teardown(test_close_stops_acquires_that_are_past_the_flag, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_the_last_release_of_a_hidden_range_changes_the_futex_word, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_sleeping_reader_keeps_no_history, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pinned_entries_outlive_every_snapshot_that_lists_them,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_ten_thousand_registrations_build_one_snapshot, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
