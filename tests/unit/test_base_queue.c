/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hands work from thread to thread: the bounded ring, the inbox, and sleeping on a futex.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/inbox.h"
#include "base/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PRODUCERS 3
#define CONSUMERS 3
#define ITEMS     20000 /* per producer */
#define PATIENCE  (30 * FERRY_NS_PER_S)

static void test_ring_is_bounded_and_in_order(void **state)
{
    struct ferry_ring ring;
    int items[8];

    (void)state;
    assert_int_equal(ferry_ring_init(&ring, 5), FERRY_OK); /* becomes 8 */
    for (int lap = 0; lap < 10; lap++) {
        assert_null(ferry_ring_pop(&ring));
        for (int i = 0; i < 8; i++)
            assert_true(ferry_ring_push(&ring, &items[i]));
        assert_false(ferry_ring_push(&ring, &items[0]));
        for (int i = 0; i < 3; i++)
            assert_ptr_equal(ferry_ring_pop(&ring), &items[i]);
        for (int i = 0; i < 3; i++)
            assert_true(ferry_ring_push(&ring, &items[i]));
        assert_false(ferry_ring_push(&ring, &items[0]));
        for (int i = 3; i < 11; i++)
            assert_ptr_equal(ferry_ring_pop(&ring), &items[i % 8]);
    }
    assert_null(ferry_ring_pop(&ring));
    ferry_ring_fini(&ring);
    ferry_ring_fini(&ring);
    assert_int_equal(ferry_ring_init(&ring, 1), FERRY_OK); /* becomes 2 */
    assert_true(ferry_ring_push(&ring, &items[0]));
    assert_true(ferry_ring_push(&ring, &items[1]));
    assert_false(ferry_ring_push(&ring, &items[2]));
    ferry_ring_fini(&ring);
}

struct parcel {
    uint32_t producer;
    uint32_t number;
    uint64_t seal;        /* plain memory: handed over by the queue alone */
    _Atomic uint32_t got; /* how often it came out */
    struct ferry_inbox_node node;
};

static uint64_t seal_of(uint32_t producer, uint32_t number)
{
    return ((uint64_t)producer << 32 | number) * 0x9e3779b97f4a7c15ULL;
}

struct rig {
    struct ferry_ring ring;
    struct ferry_inbox inbox;
    struct parcel *parcels; /* PRODUCERS * ITEMS */
    _Atomic uint32_t next_producer;
    _Atomic uint32_t taken;
    _Atomic uint32_t errors;
    uint64_t deadline_ns;
};

static int rig_setup(void **state)
{
    struct rig *rig = aligned_alloc(FERRY_CACHE_LINE, sizeof(*rig));

    if (rig == NULL)
        return -1;
    memset(rig, 0, sizeof(*rig));
    rig->parcels = calloc((size_t)PRODUCERS * ITEMS, sizeof(*rig->parcels));
    rig->deadline_ns = ferry_now_ns(&ferry_clock_system) + PATIENCE;
    ferry_inbox_init(&rig->inbox);
    *state = rig;
    return rig->parcels == NULL ? -1 : (int)ferry_ring_init(&rig->ring, 16);
}

static int rig_teardown(void **state)
{
    struct rig *rig = *state;

    ferry_ring_fini(&rig->ring);
    free(rig->parcels);
    free(rig);
    return 0;
}

static bool rig_late(struct rig *rig)
{
    if (ferry_now_ns(&ferry_clock_system) < rig->deadline_ns)
        return false;
    rig->errors++;
    return true;
}

static struct parcel *pack(struct rig *rig, uint32_t producer, uint32_t number)
{
    struct parcel *parcel = &rig->parcels[(size_t)producer * ITEMS + number];

    parcel->producer = producer;
    parcel->number = number;
    parcel->seal = seal_of(producer, number);
    return parcel;
}

/* Also checks that parcels of one producer come in their order, as far as this consumer sees. */
static void unpack(struct rig *rig, struct parcel *parcel, uint32_t last[PRODUCERS])
{
    rig->errors += parcel->seal != seal_of(parcel->producer, parcel->number);
    rig->errors += parcel->number + 1 <= last[parcel->producer];
    last[parcel->producer] = parcel->number + 1;
    rig->errors += parcel->got++ != 0;
    rig->taken++;
}

static void *ring_producer(void *arg)
{
    struct rig *rig = arg;
    uint32_t id = rig->next_producer++;

    for (uint32_t i = 0; i < ITEMS; i++) {
        struct parcel *parcel = pack(rig, id, i);

        while (!ferry_ring_push(&rig->ring, parcel)) {
            if (rig_late(rig))
                return NULL;
            sched_yield();
        }
    }
    return NULL;
}

static void *ring_consumer(void *arg)
{
    struct rig *rig = arg;
    uint32_t last[PRODUCERS] = {0};

    while (rig->taken < PRODUCERS * ITEMS) {
        struct parcel *parcel = ferry_ring_pop(&rig->ring);

        if (parcel != NULL) {
            unpack(rig, parcel, last);
        } else {
            if (rig_late(rig))
                return NULL;
            sched_yield();
        }
    }
    return NULL;
}

static void rig_check(struct rig *rig)
{
    assert_int_equal(rig->errors, 0);
    assert_int_equal(rig->taken, PRODUCERS * ITEMS);
    for (size_t i = 0; i < (size_t)PRODUCERS * ITEMS; i++)
        assert_int_equal(rig->parcels[i].got, 1);
}

static void test_ring_loses_and_doubles_nothing(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[PRODUCERS + CONSUMERS];

    for (size_t i = 0; i < FERRY_ARRAY_LEN(threads); i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < PRODUCERS ? ring_producer : ring_consumer, rig),
            0);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    rig_check(rig);
    assert_null(ferry_ring_pop(&rig->ring));
}

static void *inbox_producer(void *arg)
{
    struct rig *rig = arg;
    uint32_t id = rig->next_producer++;

    for (uint32_t i = 0; i < ITEMS; i++)
        ferry_inbox_push(&rig->inbox, &pack(rig, id, i)->node);
    return NULL;
}

static void test_inbox_keeps_the_order_of_each_producer(void **state)
{
    struct rig *rig = *state;
    pthread_t threads[PRODUCERS];
    uint32_t last[PRODUCERS] = {0};

    for (size_t i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, inbox_producer, rig), 0);
    while (rig->taken < PRODUCERS * ITEMS && !rig_late(rig)) {
        struct ferry_inbox_node *node = ferry_inbox_take(&rig->inbox);

        if (node == NULL)
            sched_yield();
        while (node != NULL) {
            struct parcel *parcel = FERRY_CONTAINER_OF(node, struct parcel, node);

            node = node->next;
            unpack(rig, parcel, last);
        }
    }
    for (size_t i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    rig_check(rig);
}

static void test_inbox_says_when_it_was_empty(void **state)
{
    struct ferry_inbox inbox;
    struct ferry_inbox_node nodes[3];

    (void)state;
    ferry_inbox_init(&inbox);
    assert_true(ferry_inbox_empty(&inbox));
    assert_null(ferry_inbox_take(&inbox));
    assert_true(ferry_inbox_push(&inbox, &nodes[0]));
    assert_false(ferry_inbox_push(&inbox, &nodes[1]));
    assert_false(ferry_inbox_push(&inbox, &nodes[2]));
    assert_false(ferry_inbox_empty(&inbox));

    struct ferry_inbox_node *node = ferry_inbox_take(&inbox);

    for (size_t i = 0; i < 3; i++, node = node->next)
        assert_ptr_equal(node, &nodes[i]);
    assert_null(node);
    assert_true(ferry_inbox_push(&inbox, &nodes[0]));
}

static void test_futex_wait_ends_at_its_deadline(void **state)
{
    _Atomic uint32_t word = 1;
    uint64_t now_ns = ferry_now_ns(&ferry_clock_system);

    (void)state;
    assert_true(ferry_futex_wait(&word, 0, FERRY_NEVER_NS)); /* another value: no sleep */
    assert_false(ferry_futex_wait(&word, 1, now_ns));        /* in the past */
    while (ferry_futex_wait(&word, 1, now_ns + 20 * FERRY_NS_PER_MS))
        continue;
    assert_true(ferry_now_ns(&ferry_clock_system) >= now_ns + 20 * FERRY_NS_PER_MS);
}

struct ping {
    _Atomic uint32_t word; /* even: our turn, odd: theirs */
    bool late;
};

#define PINGS 2000

static void *pong(void *arg)
{
    struct ping *ping = arg;
    uint64_t deadline_ns = ferry_now_ns(&ferry_clock_system) + PATIENCE;

    for (uint32_t turn = 1; turn < 2 * PINGS; turn += 2) {
        while (ping->word != turn) {
            if (!ferry_futex_wait(&ping->word, turn - 1, deadline_ns)) {
                ping->late = true;
                return NULL;
            }
        }
        ping->word = turn + 1;
        ferry_futex_wake(&ping->word, 1);
    }
    return NULL;
}

static void test_futex_wakes_who_sleeps(void **state)
{
    struct ping ping = {0};
    uint64_t deadline_ns = ferry_now_ns(&ferry_clock_system) + PATIENCE;
    pthread_t thread;
    bool in_time = true;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, pong, &ping), 0);
    for (uint32_t turn = 0; turn < 2 * PINGS && in_time; turn += 2) {
        while (ping.word != turn && in_time)
            in_time = ferry_futex_wait(&ping.word, turn - 1, deadline_ns);
        ping.word = turn + 1;
        ferry_futex_wake(&ping.word, 1);
    }
    pthread_join(thread, NULL);
    assert_true(in_time);
    assert_false(ping.late);
    assert_int_equal(ping.word, 2 * PINGS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring_is_bounded_and_in_order),
        cmocka_unit_test_setup_teardown(test_ring_loses_and_doubles_nothing, rig_setup,
                                        rig_teardown),
        cmocka_unit_test_setup_teardown(test_inbox_keeps_the_order_of_each_producer, rig_setup,
                                        rig_teardown),
        cmocka_unit_test(test_inbox_says_when_it_was_empty),
        cmocka_unit_test(test_futex_wait_ends_at_its_deadline),
        cmocka_unit_test(test_futex_wakes_who_sleeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
