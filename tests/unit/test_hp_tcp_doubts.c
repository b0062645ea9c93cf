/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges that bytes of an old WRITE may still reach: who waits for them and for whom, and that
 * nothing but a fence ends it, not the end of the lane, nor of its segment.
 */
#include <string.h>

#include "test.h"
#include "transport/hp_tcp/internal.h"

#define ROOM        4u
#define PARKED_MOST 64u

static const uint8_t peer[FERRY_INCARNATION_SIZE] = {1, 2, 3};
static const uint8_t other[FERRY_INCARNATION_SIZE] = {1, 2, 4};
static const struct hp_flow mine;
static const struct hp_flow later;

static struct hp_transport *transport_open(void)
{
    struct hp_transport *transport = calloc(1, sizeof(*transport));

    assert_non_null(transport);
    pthread_mutex_init(&transport->doubt_mutex, NULL);
    ferry_list_init(&transport->doubts);
    ferry_list_init(&transport->doubts_parked);
    return transport;
}

static void transport_close(struct hp_transport *transport)
{
    ferry_hp_doubts_fini(transport);
    pthread_mutex_destroy(&transport->doubt_mutex);
    free(transport);
}

/* A connection to @of has ended with one WRITE of [1000, 1100) unanswered. */
static struct hp_doubts *publish(struct hp_transport *transport, const uint8_t *of,
                                 uint64_t session)
{
    struct hp_doubts *doubts = ferry_hp_doubts_create(ROOM);

    assert_non_null(doubts);
    memcpy(doubts->incarnation, of, FERRY_INCARNATION_SIZE);
    doubts->session_id = session;
    doubts->ranges[doubts->range_count++] = (struct hp_doubted){
        .addr = 1000, .length = 100, .request_id = 7, .flow = &mine};
    ferry_hp_doubts_publish(transport, doubts);
    return doubts;
}

static enum hp_wait wait_of(struct hp_transport *transport, const uint8_t *of, uint64_t addr,
                            uint64_t length, const struct hp_flow *flow)
{
    struct hp_doubted wanted = {.addr = addr, .length = length, .flow = flow};

    return ferry_hp_doubts_wait(transport, of, &wanted);
}

static void test_only_what_overlaps_at_the_same_process_waits(void **state)
{
    struct hp_transport *transport = transport_open();
    struct hp_doubts *doubts = publish(transport, peer, 5);

    (void)state;
    assert_int_equal(atomic_load(&transport->doubt_count), 1);
    assert_int_equal(wait_of(transport, peer, 1099, 1, &later), HP_WAIT_OTHERS);
    assert_int_equal(wait_of(transport, peer, 1100, 1, &later), HP_WAIT_NOT);
    assert_int_equal(wait_of(transport, peer, 0, 1000, &later), HP_WAIT_NOT);
    assert_int_equal(wait_of(transport, peer, 0, 1001, &later), HP_WAIT_OTHERS);
    assert_int_equal(wait_of(transport, peer, 1000, 100, &mine), HP_WAIT_NOT);
    assert_int_equal(wait_of(transport, other, 1000, 100, &later), HP_WAIT_NOT);
    ferry_hp_doubts_clear(transport, doubts);
    assert_int_equal(wait_of(transport, peer, 1000, 100, &later), HP_WAIT_NOT);
    assert_int_equal(atomic_load(&transport->doubt_count), 0);
    free(doubts); /* a spare one is its lane's */
    transport_close(transport);
}

static bool has_id(const void *context, const struct hp_doubted *range)
{
    return range->request_id == *(const uint64_t *)context;
}

static void test_what_is_certain_waits_for_nothing(void **state)
{
    struct hp_transport *transport = transport_open();
    struct hp_doubts *doubts = publish(transport, peer, 5);
    uint64_t id = 7;

    (void)state;
    ferry_hp_doubts_filter(transport, doubts, has_id, &id);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_OTHERS);
    id = 8;
    ferry_hp_doubts_filter(transport, doubts, has_id, &id);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_NOT);
    assert_int_equal(atomic_load(&transport->doubt_count), 0);
    free(doubts);
    transport_close(transport);
}

static void test_nobody_knows_is_no_end(void **state)
{
    struct hp_transport *transport = transport_open();
    struct hp_doubts *doubts = publish(transport, peer, 5);

    (void)state;
    /* A greeting under way names it yet: others need only wait for that. */
    ferry_hp_doubts_leave(transport, doubts, true);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_OTHERS);
    /* Its task has ended: a new one in the same memory is another one. */
    assert_int_equal(wait_of(transport, peer, 1000, 1, &mine), HP_WAIT_OTHERS);
    assert_null(ferry_hp_doubts_take(transport, peer));
    ferry_hp_doubts_give_back(transport, doubts);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_FENCE);
    assert_null(ferry_hp_doubts_take(transport, other));
    assert_ptr_equal(ferry_hp_doubts_take(transport, peer), doubts);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_OTHERS);
    ferry_hp_doubts_clear(transport, doubts);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_NOT);
    assert_int_equal(atomic_load(&transport->doubt_count), 0);
    transport_close(transport);
}

static void test_one_that_nobody_sees_to_decides(void **state)
{
    struct hp_transport *transport = transport_open();
    struct hp_doubts *asked = publish(transport, peer, 5);

    (void)state;
    ferry_hp_doubts_leave(transport, publish(transport, peer, 6), false);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_FENCE);
    assert_int_equal(ferry_hp_doubts_take(transport, peer)->session_id, 6);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_OTHERS);
    ferry_hp_doubts_clear(transport, asked);
    free(asked);
    transport_close(transport);
}

static void test_a_segment_that_is_opened_again_is_not_safer(void **state)
{
    struct hp_transport *transport = transport_open();

    (void)state;
    ferry_hp_doubts_leave(transport, publish(transport, peer, 5), false);
    ferry_hp_doubts_leave(transport, publish(transport, other, 6), false);
    ferry_hp_doubts_park(transport, peer);
    /* Nobody writes there: it costs the others nothing. */
    assert_int_equal(atomic_load(&transport->doubt_count), 1);
    assert_int_equal(wait_of(transport, other, 1000, 1, &later), HP_WAIT_FENCE);
    ferry_hp_doubts_unpark(transport, peer);
    assert_int_equal(atomic_load(&transport->doubt_count), 2);
    assert_int_equal(wait_of(transport, peer, 1000, 1, &later), HP_WAIT_FENCE);
    transport_close(transport);
}

static void test_processes_that_never_come_back_are_bounded(void **state)
{
    struct hp_transport *transport = transport_open();
    uint32_t found = 0;

    (void)state;
    for (uint64_t i = 1; i <= 2 * PARKED_MOST; i++) {
        ferry_hp_doubts_leave(transport, publish(transport, peer, i), false);
        ferry_hp_doubts_park(transport, peer);
    }
    ferry_hp_doubts_unpark(transport, peer);
    for (struct hp_doubts *doubts; (doubts = ferry_hp_doubts_take(transport, peer)) != NULL;) {
        assert_int_equal(doubts->session_id, PARKED_MOST + ++found); /* the oldest went */
        ferry_hp_doubts_clear(transport, doubts);
    }
    assert_int_equal(found, PARKED_MOST);
    assert_int_equal(atomic_load(&transport->doubt_count), 0);
    transport_close(transport);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_overlaps_at_the_same_process_waits),
        cmocka_unit_test(test_what_is_certain_waits_for_nothing),
        cmocka_unit_test(test_nobody_knows_is_no_end),
        cmocka_unit_test(test_one_that_nobody_sees_to_decides),
        cmocka_unit_test(test_a_segment_that_is_opened_again_is_not_safer),
        cmocka_unit_test(test_processes_that_never_come_back_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
