/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixed pool: one anonymous mapping that holds the objects, their links and their generations.
 * acquire, release, handle and get run on any thread without a lock; init and fini on one.
 *
 * The free list needs no set-up, so an unused pool touches no page: a link of 0 means "never
 * linked, the next object in memory follows", any other value is 1 + (index + 1 of the next, or 0
 * at the end).
 */
#include "base/pool.h"

#include "base/assert.h"
#include "base/checked.h"
#include "base/compiler.h"
#include "base/error.h"

#include <assert.h>
#include <stdbool.h>
#include <sys/mman.h>

static_assert(sizeof(_Atomic uint32_t) == 4,
              "links and generations are plain words in the mapping");

/* @size rounded up to a multiple of @step, a power of two. */
static bool round_up(uint64_t size, uint64_t step, uint64_t *rounded_out)
{
    uint64_t sum;

    if (!ferry_add_u64(size, step - 1, &sum))
        return false;
    *rounded_out = sum & ~(step - 1);
    return true;
}

/* The parts of the mapping, each on its own cache lines. False if the sum does not fit. */
static bool plan(uint64_t object_size, uint64_t capacity, uint64_t *objects_bytes_out,
                 uint64_t *words_bytes_out, uint64_t *map_bytes_out)
{
    uint64_t objects, words, twice;

    if (!ferry_mul_u64(object_size, capacity, &objects))
        return false;
    if (!round_up(capacity * sizeof(uint32_t), FERRY_CACHE_LINE, &words))
        return false;
    twice = words * 2; /* at most 2^34 */
    if (!ferry_add_u64(objects, twice, map_bytes_out))
        return false;
    *objects_bytes_out = objects;
    *words_bytes_out = words;
    return *map_bytes_out <= PTRDIFF_MAX;
}

enum ferry_status ferry_pool_init(struct ferry_pool *pool, size_t object_size, uint32_t capacity)
{
    uint64_t rounded, objects_bytes, words_bytes, map_bytes;

    FERRY_ASSERT(object_size > 0);
    FERRY_ASSERT(capacity > 0);
    FERRY_ASSERT(capacity <= 1U << 31);

    if (!round_up(object_size, FERRY_CACHE_LINE, &rounded) ||
        !plan(rounded, capacity, &objects_bytes, &words_bytes, &map_bytes)) {
        return ferry_fail(FERRY_ERR_NO_MEMORY,
                          "pool: %u objects of %zu bytes exceed the address space", capacity,
                          object_size);
    }

    void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "pool: no memory for %u objects of %zu bytes",
                          capacity, object_size);
    }

    pool->objects = map;
    pool->links = (void *)(pool->objects + objects_bytes);
    pool->generations = (void *)(pool->objects + objects_bytes + words_bytes);
    pool->object_size = rounded;
    pool->capacity = capacity;
    pool->map_bytes = map_bytes;
    atomic_init(&pool->free_head, 1);
    atomic_init(&pool->used, 0);
    return FERRY_OK;
}

void ferry_pool_fini(struct ferry_pool *pool)
{
    if (pool->objects == NULL)
        return;
    munmap(pool->objects, pool->map_bytes);
    pool->objects = NULL;
    pool->links = NULL;
    pool->generations = NULL;
    pool->capacity = 0;
    pool->map_bytes = 0;
    atomic_store(&pool->free_head, 0);
    atomic_store(&pool->used, 0);
}

/* The head that replaces @head: a new tag, and @first as index + 1. */
static uint64_t next_head(uint64_t head, uint32_t first)
{
    return ((head >> 32) + 1) << 32 | first;
}

static uint32_t object_index(const struct ferry_pool *pool, const void *object)
{
    size_t offset = (size_t)((const unsigned char *)object - pool->objects);

    FERRY_ASSERT((const unsigned char *)object >= pool->objects);
    FERRY_ASSERT(offset / pool->object_size < pool->capacity);
    FERRY_ASSERT(offset % pool->object_size == 0);
    return (uint32_t)(offset / pool->object_size);
}

void *ferry_pool_acquire(struct ferry_pool *pool)
{
    /* Acquire pairs with the release in ferry_pool_release(): the link and the object's content. */
    uint64_t head = atomic_load_explicit(&pool->free_head, memory_order_acquire);
    uint32_t first;

    for (;;) {
        first = (uint32_t)head;
        if (first == 0)
            return NULL;

        /* May be stale if another thread took @first meanwhile; then the tag makes the swap fail.
         */
        uint32_t link = atomic_load_explicit(&pool->links[first - 1], memory_order_relaxed);
        uint32_t next = link != 0 ? link - 1 : first < pool->capacity ? first + 1 : 0;

        if (atomic_compare_exchange_weak_explicit(&pool->free_head, &head, next_head(head, next),
                                                  memory_order_acq_rel, memory_order_acquire))
            break;
    }
    uint32_t before = atomic_fetch_add(&pool->generations[first - 1], 1);

    FERRY_ASSERT((before & 1) == 0);
    atomic_fetch_add_explicit(&pool->used, 1, memory_order_relaxed);
    return pool->objects + (size_t)(first - 1) * pool->object_size;
}

void ferry_pool_release(struct ferry_pool *pool, void *object)
{
    uint32_t index = object_index(pool, object);
    uint32_t before = atomic_fetch_add(&pool->generations[index], 1);

    FERRY_ASSERT((before & 1) == 1); /* else it was released twice */
    atomic_fetch_sub_explicit(&pool->used, 1, memory_order_relaxed);

    uint64_t head = atomic_load_explicit(&pool->free_head, memory_order_relaxed);

    do {
        atomic_store_explicit(&pool->links[index], (uint32_t)head + 1, memory_order_relaxed);
        /* Release pairs with the acquire in ferry_pool_acquire(). */
    } while (!atomic_compare_exchange_weak_explicit(&pool->free_head, &head,
                                                    next_head(head, index + 1),
                                                    memory_order_acq_rel, memory_order_relaxed));
}

uint64_t ferry_pool_handle(const struct ferry_pool *pool, const void *object)
{
    uint32_t index = object_index(pool, object);
    uint32_t generation = atomic_load(&pool->generations[index]);

    FERRY_ASSERT((generation & 1) == 1);
    return (uint64_t)generation << 32 | (index + 1);
}

void *ferry_pool_get(const struct ferry_pool *pool, uint64_t handle)
{
    uint32_t generation = (uint32_t)(handle >> 32);
    uint32_t number = (uint32_t)handle; /* index + 1 */

    if (number == 0 || number > pool->capacity || (generation & 1) == 0)
        return NULL;
    if (atomic_load(&pool->generations[number - 1]) != generation)
        return NULL;
    return pool->objects + (size_t)(number - 1) * pool->object_size;
}

uint32_t ferry_pool_used(const struct ferry_pool *pool)
{
    return atomic_load_explicit(&pool->used, memory_order_relaxed);
}
