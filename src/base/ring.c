/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bounded ring of pointers. Any number of producers and consumers; nothing here blocks. A
 * cell's sequence number says whose turn it is: equal to the position, a producer may fill it;
 * position + 1, a consumer may empty it; position + capacity, the next lap's producer.
 */
#include "base/ring.h"

#include "base/assert.h"
#include "base/error.h"

struct ferry_ring_cell {
    _Atomic uint64_t sequence;
    void *item;
};

enum ferry_status ferry_ring_init(struct ferry_ring *ring, uint32_t capacity)
{
    uint64_t count = 2;

    FERRY_ASSERT(capacity > 0);
    FERRY_ASSERT(capacity <= 1U << 30);
    while (count < capacity)
        count <<= 1;

    struct ferry_ring_cell *cells = aligned_alloc(FERRY_CACHE_LINE,
                                                  (count * sizeof(*cells) + FERRY_CACHE_LINE - 1) /
                                                      FERRY_CACHE_LINE * FERRY_CACHE_LINE);
    if (cells == NULL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ring: no memory for %llu cells",
                          (unsigned long long)count);
    }

    for (uint64_t i = 0; i < count; i++) {
        atomic_init(&cells[i].sequence, i);
        cells[i].item = NULL;
    }
    ring->cells = cells;
    ring->mask = count - 1;
    atomic_init(&ring->tail, 0);
    atomic_init(&ring->head, 0);
    return FERRY_OK;
}

void ferry_ring_fini(struct ferry_ring *ring)
{
    free(ring->cells);
    ring->cells = NULL;
    ring->mask = 0;
}

bool ferry_ring_push(struct ferry_ring *ring, void *item)
{
    FERRY_DASSERT(item != NULL); /* pop says "empty" with NULL */

    uint64_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);

    for (;;) {
        struct ferry_ring_cell *cell = &ring->cells[position & ring->mask];
        /* Acquire pairs with the consumer's release of the cell in ferry_ring_pop(). */
        uint64_t sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
        int64_t ahead = (int64_t)(sequence - position);

        if (ahead < 0)
            return false;
        if (ahead > 0) {
            position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
            continue;
        }
        /* Relaxed: the tail only hands out positions, the sequence publishes the item. */
        if (atomic_compare_exchange_weak_explicit(&ring->tail, &position, position + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            cell->item = item;
            /* Release pairs with the acquire in ferry_ring_pop(). */
            atomic_store_explicit(&cell->sequence, position + 1, memory_order_release);
            return true;
        }
    }
}

void *ferry_ring_pop(struct ferry_ring *ring)
{
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);

    for (;;) {
        struct ferry_ring_cell *cell = &ring->cells[position & ring->mask];
        /* Acquire pairs with the producer's release of the cell in ferry_ring_push(). */
        uint64_t sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
        int64_t ahead = (int64_t)(sequence - (position + 1));

        if (ahead < 0)
            return NULL;
        if (ahead > 0) {
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
            continue;
        }
        /* Relaxed for the same reason as the tail's in ferry_ring_push(). */
        if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
            void *item = cell->item;

            /* Release pairs with the next lap's acquire in ferry_ring_push(). */
            atomic_store_explicit(&cell->sequence, position + ring->mask + 1, memory_order_release);
            return item;
        }
    }
}
