/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed pool: bounds, handles with generations, and threads that fight over few objects.
 */
#include "base/pool.h"

#include "base/compiler.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static void test_pool_hands_out_each_object_once(void **state)
{
    struct ferry_pool pool = {0};
    unsigned char *objects[5];

    (void)state;
    assert_int_equal(ferry_pool_init(&pool, 100, 5), FERRY_OK);
    for (size_t i = 0; i < 5; i++) {
        objects[i] = ferry_pool_acquire(&pool);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % FERRY_CACHE_LINE, 0);
        for (size_t k = 0; k < 100; k++) {
            assert_int_equal(objects[i][k], 0);
            objects[i][k] = (unsigned char)(i * 31 + k);
        }
    }
    assert_null(ferry_pool_acquire(&pool));
    assert_int_equal(ferry_pool_used(&pool), 5);
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 100; k++)
            assert_int_equal(objects[i][k], (unsigned char)(i * 31 + k));
    }
    ferry_pool_release(&pool, objects[2]);
    assert_int_equal(ferry_pool_used(&pool), 4);
    assert_ptr_equal(ferry_pool_acquire(&pool), objects[2]);
    assert_int_equal(objects[2][99], (unsigned char)(2 * 31 + 99)); /* content is kept */
    ferry_pool_fini(&pool);
    ferry_pool_fini(&pool);
}

static void test_pool_stale_and_foreign_handles_resolve_to_nothing(void **state)
{
    struct ferry_pool pool = {0};

    (void)state;
    assert_int_equal(ferry_pool_init(&pool, 8, 3), FERRY_OK);
    void *object = ferry_pool_acquire(&pool);
    uint64_t handle = ferry_pool_handle(&pool, object);

    assert_true(handle != 0);
    assert_ptr_equal(ferry_pool_get(&pool, handle), object);
    assert_null(ferry_pool_get(&pool, 0));
    assert_null(ferry_pool_get(&pool, handle + 1));           /* free neighbour */
    assert_null(ferry_pool_get(&pool, (handle & ~7ULL) | 4)); /* index behind the end */
    assert_null(ferry_pool_get(&pool, handle | UINT32_MAX));
    assert_null(ferry_pool_get(&pool, handle ^ 1ULL << 33)); /* another generation */
    assert_null(ferry_pool_get(&pool, UINT64_MAX));

    ferry_pool_release(&pool, object);
    assert_null(ferry_pool_get(&pool, handle));
    /* The number that the free object's generation would make is no handle either. */
    assert_null(ferry_pool_get(&pool, handle + (1ULL << 32)));
    assert_ptr_equal(ferry_pool_acquire(&pool), object);
    assert_null(ferry_pool_get(&pool, handle));
    assert_true(ferry_pool_handle(&pool, object) != handle);
    ferry_pool_fini(&pool);
}

static void test_pool_that_cannot_exist_is_refused(void **state)
{
    struct ferry_pool pool = {0};

    (void)state;
    assert_int_equal(ferry_pool_init(&pool, SIZE_MAX, 1), FERRY_ERR_NO_MEMORY);
    assert_int_equal(ferry_pool_init(&pool, SIZE_MAX / 8, 1U << 31), FERRY_ERR_NO_MEMORY);
    assert_int_equal(ferry_pool_init(&pool, 1ULL << 40, 1U << 31), FERRY_ERR_NO_MEMORY);
    assert_null(pool.objects);
    ferry_pool_fini(&pool);
}

/* A large pool costs address space only: its first object touches a few pages. */
static void test_pool_touches_memory_on_first_use(void **state)
{
    struct ferry_pool pool = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char resident[4096];
    size_t count = 0;

    (void)state;
    assert_int_equal(ferry_pool_init(&pool, 4096, 3000), FERRY_OK);
    assert_non_null(ferry_pool_acquire(&pool));
    assert_true(pool.map_bytes / page + 1 <= sizeof(resident));
    assert_int_equal(mincore(pool.objects, pool.map_bytes, resident), 0);
    for (size_t i = 0; i < (pool.map_bytes + page - 1) / page; i++)
        count += resident[i] & 1;
    /* One page of each array; a system that always makes huge pages rounds up. */
    assert_true(count <= 8 || count >= 512);
    ferry_pool_fini(&pool);
}

/*
 * A thread that read the head and was stopped must not find the same head again after others took
 * and returned objects: its swap would put an object in use on the list. The interleaving is too
 * rare to wait for, so the head itself is looked at.
 */
static void test_pool_head_never_comes_back(void **state)
{
    struct ferry_pool pool = {0};

    (void)state;
    assert_int_equal(ferry_pool_init(&pool, 8, 2), FERRY_OK);

    uint64_t before = atomic_load(&pool.free_head);
    void *first = ferry_pool_acquire(&pool);
    void *second = ferry_pool_acquire(&pool);

    ferry_pool_release(&pool, second);
    ferry_pool_release(&pool, first);
    assert_int_equal((uint32_t)atomic_load(&pool.free_head), (uint32_t)before);
    assert_true(atomic_load(&pool.free_head) != before);
    ferry_pool_fini(&pool);
}

#define THREADS 4
#define HELD    4
#define ROUNDS  20000

struct slot {
    _Atomic uint32_t owner; /* 0: nobody; relaxed, so that it orders nothing for the pool */
    uint64_t words[7];      /* written by the owner alone: a race here is a broken pool */
};

struct contender {
    struct ferry_pool *pool;
    uint32_t id;
    uint64_t errors;
    uint64_t acquired;
};

static bool take_one(struct contender *self, struct slot **slot_out, uint64_t *handle_out)
{
    struct slot *slot = ferry_pool_acquire(self->pool);

    if (slot == NULL)
        return false;
    self->errors += atomic_exchange_explicit(&slot->owner, self->id, memory_order_relaxed) != 0;
    self->acquired++;
    *handle_out = ferry_pool_handle(self->pool, slot);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(slot->words); i++)
        slot->words[i] = *handle_out * (i + 1);
    *slot_out = slot;
    return true;
}

static void give_back(struct contender *self, struct slot *slot, uint64_t handle)
{
    self->errors += ferry_pool_get(self->pool, handle) != slot;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(slot->words); i++)
        self->errors += slot->words[i] != handle * (i + 1);
    self->errors += atomic_exchange_explicit(&slot->owner, 0, memory_order_relaxed) != self->id;
    ferry_pool_release(self->pool, slot);
    self->errors += ferry_pool_get(self->pool, handle) != NULL;
}

static void *contend(void *arg)
{
    struct contender *self = arg;
    struct slot *slots[HELD];
    uint64_t handles[HELD];

    for (uint32_t round = 0; round < ROUNDS; round++) {
        size_t want = 1 + (round * 7 + self->id) % HELD;
        size_t got = 0;

        while (got < want && take_one(self, &slots[got], &handles[got]))
            got++;
        while (got > 0) {
            got--;
            give_back(self, slots[got], handles[got]);
        }
    }
    return NULL;
}

static void test_pool_threads_never_share_an_object(void **state)
{
    struct ferry_pool pool = {0};
    struct contender contenders[THREADS];
    pthread_t threads[THREADS];
    uint64_t acquired = 0;

    (void)state;
    /* Fewer objects than the threads want, so that it runs empty and full all the time. */
    assert_int_equal(ferry_pool_init(&pool, sizeof(struct slot), 6), FERRY_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        contenders[i] = (struct contender){.pool = &pool, .id = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, contend, &contenders[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        acquired += contenders[i].acquired;
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(contenders[i].errors, 0);
    assert_true(acquired > ROUNDS);
    assert_int_equal(ferry_pool_used(&pool), 0);
    /* Nothing was lost from the free list, and nothing is in it twice. */
    for (size_t i = 0; i < 6; i++)
        assert_non_null(ferry_pool_acquire(&pool));
    assert_null(ferry_pool_acquire(&pool));
    ferry_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_hands_out_each_object_once),
        cmocka_unit_test(test_pool_stale_and_foreign_handles_resolve_to_nothing),
        cmocka_unit_test(test_pool_that_cannot_exist_is_refused),
        cmocka_unit_test(test_pool_touches_memory_on_first_use),
        cmocka_unit_test(test_pool_head_never_comes_back),
        cmocka_unit_test(test_pool_threads_never_share_an_object),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
