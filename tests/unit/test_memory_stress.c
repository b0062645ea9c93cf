/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads register, unregister and lease at once. Owners take the pages away as soon as an
 * unregister has returned, so a lease that was granted or kept too long ends in a fault; workers
 * check that what they read under a lease is of one round.
 */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#include "support/pattern.h"
#include "test_memory_support.h"

#define OWNERS       2
#define OWNER_SLOTS  4
#define SLOTS        (OWNERS * OWNER_SLOTS)
#define WORKERS      3
#define SLOT_BYTES   (16 * KIB)
#define TIME_LIMIT_S 45

struct slot {
    unsigned char *memory;
    _Atomic uint64_t id; /* of the latest registration; stale ones are part of the test */
};

struct rig {
    struct ferry_registry registry;
    struct slot slots[SLOTS];
    uint64_t seed;
    uint32_t rounds;
    _Atomic uint32_t owners_running;
    _Atomic uint64_t granted;
    _Atomic uint64_t refused;
    _Atomic uint64_t revoked;
    _Atomic uint64_t busy;
    _Atomic uint64_t failures;
};

struct actor {
    struct rig *rig;
    uint32_t index;
    uint64_t random;
};

static uint64_t draw(struct actor *actor)
{
    return pattern_word(actor->rig->seed + actor->index, actor->random++);
}

static void fault(struct rig *rig, const char *what)
{
    if (atomic_fetch_add(&rig->failures, 1) < 5)
        print_error("stress: %s\n", what);
}

/* Fill, register, let the others at it, unregister, take the pages away. */
static void own_round(struct actor *actor, struct slot *slot, uint64_t round)
{
    struct rig *rig = actor->rig;
    struct ferry_registry_range range = {(uintptr_t)slot->memory, SLOT_BYTES};
    struct ferry_registry_buffer buffer;

    if (mprotect(slot->memory, SLOT_BYTES, PROT_READ | PROT_WRITE) != 0)
        fault(rig, "mprotect");
    memcpy(slot->memory, &round, sizeof(round));
    pattern_fill(slot->memory + 8, SLOT_BYTES - 8, round, 8);
    if (register_one(&rig->registry, range.addr, range.length) != FERRY_OK ||
        ferry_registry_find(&rig->registry, range.addr, range.length, &buffer) != FERRY_OK)
        fault(rig, "register");
    atomic_store(&slot->id, buffer.registration_id);
    if (draw(actor) % 4 != 0)
        test_nap();

    enum ferry_status status;
    uint64_t give_up_ns = test_deadline_ms(20000);
    do {
        uint64_t grace_ms = draw(actor) % 2;
        struct ferry_unregister_plan plan = {.lease_deadline_ns = test_deadline_ms(grace_ms),
                                             .revoke_deadline_ns = test_deadline_ms(grace_ms + 2)};

        status = ferry_registry_unregister(&rig->registry, &range, 1, &plan);
        if (status == FERRY_ERR_BUSY)
            atomic_fetch_add(&rig->busy, 1);
    } while (status == FERRY_ERR_BUSY && test_now_ns() < give_up_ns);
    if (status != FERRY_OK)
        fault(rig, "unregister");
    if (mprotect(slot->memory, SLOT_BYTES, PROT_NONE) != 0)
        fault(rig, "mprotect");
}

static void *owner_main(void *argument)
{
    struct actor *actor = argument;
    struct rig *rig = actor->rig;

    for (uint32_t i = 0; i < rig->rounds && atomic_load(&rig->failures) == 0; i++) {
        struct slot *slot = &rig->slots[actor->index * OWNER_SLOTS + draw(actor) % OWNER_SLOTS];

        own_round(actor, slot, ((uint64_t)actor->index << 32) + i + 1);
    }
    atomic_fetch_sub(&rig->owners_running, 1);
    return NULL;
}

/* Touch the slot under a lease; sometimes for as long as nobody asks for it back. */
static void use_leased(struct actor *actor, struct slot *slot, struct ferry_lease *lease)
{
    struct rig *rig = actor->rig;
    uint64_t round;
    uint64_t until_ns = test_deadline_ms(20000);
    bool patient = draw(actor) % 64 == 0;

    do {
        memcpy(&round, slot->memory, sizeof(round));
        if (pattern_differs(slot->memory + 8, SLOT_BYTES - 8, round, 8) != PATTERN_SAME)
            fault(rig, "a lease saw two rounds mixed");
        if (ferry_lease_revoked(lease)) {
            atomic_fetch_add(&rig->revoked, 1);
            patient = false;
        }
    } while (patient && atomic_load(&rig->owners_running) > 0 && test_now_ns() < until_ns);
}

static void *worker_main(void *argument)
{
    struct actor *actor = argument;
    struct rig *rig = actor->rig;
    struct ferry_registry_reader reader;

    ferry_registry_reader_init(&reader, &rig->registry);
    while (atomic_load(&rig->owners_running) > 0) {
        struct slot *slot = &rig->slots[draw(actor) % SLOTS];
        uint64_t id = atomic_load(&slot->id);
        struct ferry_lease lease = {0};
        enum ferry_status status = lease_for(
            &reader, (uintptr_t)slot->memory, SLOT_BYTES, id,
            draw(actor) % 2 ? FERRY_ACCESS_READ : FERRY_ACCESS_WRITE, &lease);

        if (status == FERRY_OK) {
            atomic_fetch_add(&rig->granted, 1);
            use_leased(actor, slot, &lease);
            ferry_lease_release(&lease);
        } else {
            if (status != FERRY_ERR_RANGE && status != FERRY_ERR_STALE_KEY)
                fault(rig, ferry_status_name(status));
            atomic_fetch_add(&rig->refused, 1);
            /* With few cores the owners need a turn. */
            test_nap();
        }
    }
    ferry_registry_reader_fini(&reader);
    return NULL;
}

static void test_no_lease_touches_memory_after_unregister_returned(void **state)
{
    static struct rig rig;
    pthread_t threads[OWNERS + WORKERS];
    struct actor actors[OWNERS + WORKERS];

    rig_init(&rig.registry);
    rig.seed = test_seed(20);
    rig.rounds = test_is_long() ? 40000 : 4000;
    print_message("seed %llu\n", (unsigned long long)rig.seed);
    for (uint32_t i = 0; i < SLOTS; i++) {
        rig.slots[i].memory = mmap(NULL, SLOT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(rig.slots[i].memory, MAP_FAILED);
    }
    atomic_store(&rig.owners_running, OWNERS);
    for (uint32_t i = 0; i < OWNERS + WORKERS; i++) {
        actors[i] = (struct actor){.rig = &rig, .index = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < OWNERS ? owner_main : worker_main, &actors[i]),
            0);
    }
    for (uint32_t i = 0; i < OWNERS + WORKERS; i++)
        pthread_join(threads[i], NULL);

    print_message("granted %llu refused %llu revoked %llu busy %llu\n",
                  (unsigned long long)rig.granted, (unsigned long long)rig.refused,
                  (unsigned long long)rig.revoked, (unsigned long long)rig.busy);
    assert_int_equal(rig.failures, 0);
    assert_true(rig.granted > 0);
    assert_true(rig.refused > 0);
    assert_int_equal(ferry_registry_count(&rig.registry), 0);
    /* Nothing but the live set is remembered once the readers are gone. */
    assert_int_equal(rig.registry.id_count, 0);
    ferry_registry_fini(&rig.registry);
    for (uint32_t i = 0; i < SLOTS; i++)
        munmap(rig.slots[i].memory, SLOT_BYTES);
}

#define SHARED     UINT64_C(0x50000000)
#define SHARED_LEN UINT64_C(4096)

/* While I hold one register of the shared range it works, whatever the others do. */
static void *share_main(void *argument)
{
    struct actor *actor = argument;
    struct rig *rig = actor->rig;
    struct ferry_registry_reader reader;
    uint64_t until_ns = test_deadline_ms(TIME_LIMIT_S * 1000);

    ferry_registry_reader_init(&reader, &rig->registry);
    for (uint32_t i = 0; i < rig->rounds && test_now_ns() < until_ns;) {
        enum ferry_status status = register_one(&rig->registry, SHARED, SHARED_LEN);

        /* Hidden by the last holder, not gone yet. */
        if (status == FERRY_ERR_EXISTS) {
            test_nap();
            continue;
        }
        if (status != FERRY_OK)
            fault(rig, ferry_last_error_text());
        if (probe(&reader, SHARED, SHARED_LEN, 0, FERRY_ACCESS_LOCAL) != FERRY_OK)
            fault(rig, "a registered range was refused");
        if (draw(actor) % 8 == 0)
            test_nap();
        if (unregister_one(&rig->registry, SHARED, SHARED_LEN) != FERRY_OK)
            fault(rig, ferry_last_error_text());
        i++;
    }
    ferry_registry_reader_fini(&reader);
    return NULL;
}

static void test_a_shared_range_works_for_everyone_who_registered_it(void **state)
{
    static struct rig rig;
    pthread_t threads[4];
    struct actor actors[4];

    rig_init(&rig.registry);
    rig.seed = test_seed(21);
    rig.rounds = test_is_long() ? 100000 : 5000;
    for (uint32_t i = 0; i < 4; i++) {
        actors[i] = (struct actor){.rig = &rig, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, share_main, &actors[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(rig.failures, 0);
    assert_int_equal(ferry_registry_count(&rig.registry), 0);
    ferry_registry_fini(&rig.registry);
}

/* After close returned, no acquire that was under way is granted. */
static void *grab_main(void *argument)
{
    struct actor *actor = argument;
    struct rig *rig = actor->rig;
    struct ferry_registry_reader reader;
    enum ferry_status status;

    ferry_registry_reader_init(&reader, &rig->registry);
    do {
        /* owners_running is cleared after close returned. */
        bool open = atomic_load(&rig->owners_running) > 0;

        status = probe(&reader, SHARED, 1, 0, FERRY_ACCESS_LOCAL);
        if (status == FERRY_OK && !open)
            fault(rig, "a lease was granted after close");
    } while (status == FERRY_OK);
    if (status != FERRY_ERR_CLOSING)
        fault(rig, ferry_status_name(status));
    ferry_registry_reader_fini(&reader);
    return NULL;
}

static void test_close_is_exact(void **state)
{
    for (uint32_t round = 0; round < 50; round++) {
        static struct rig rig;
        pthread_t threads[2];
        struct actor actors[2];

        memset(&rig, 0, sizeof(rig));
        rig_init(&rig.registry);
        assert_ok(register_one(&rig.registry, SHARED, SHARED_LEN));
        atomic_store(&rig.owners_running, 1);
        for (uint32_t i = 0; i < 2; i++) {
            actors[i] = (struct actor){.rig = &rig, .index = i};
            assert_int_equal(pthread_create(&threads[i], NULL, grab_main, &actors[i]), 0);
        }
        if (round % 2)
            test_nap();
        ferry_registry_close(&rig.registry);
        atomic_store(&rig.owners_running, 0);
        for (uint32_t i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(rig.failures, 0);
        ferry_registry_fini(&rig.registry);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_lease_touches_memory_after_unregister_returned),
        cmocka_unit_test(test_a_shared_range_works_for_everyone_who_registered_it),
        cmocka_unit_test(test_close_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
