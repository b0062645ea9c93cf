/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one step that decides between a cancel and a post: a post commits through the gate, a cancel
 * closes it. What has committed before the gate closed will be posted and has to be settled; what
 * comes after is never posted. Any thread; one atomic word.
 */
#ifndef FERRY_TRANSPORT_DEVICE_GATE_H
#define FERRY_TRANSPORT_DEVICE_GATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FERRY_DEVICE_GATE_CLOSED (1ULL << 63)

struct ferry_device_gate {
    _Atomic uint64_t word; /* closed, and how many have committed and are not settled */
};

static inline void ferry_device_gate_open(struct ferry_device_gate *gate)
{
    atomic_store_explicit(&gate->word, 0, memory_order_relaxed);
}

/* True if the caller may post; it then owes one ferry_device_gate_settle(). */
static inline bool ferry_device_gate_commit(struct ferry_device_gate *gate)
{
    uint64_t word = atomic_load_explicit(&gate->word, memory_order_relaxed);

    do {
        if (word & FERRY_DEVICE_GATE_CLOSED)
            return false;
    } while (!atomic_compare_exchange_weak(&gate->word, &word, word + 1));
    return true;
}

static inline void ferry_device_gate_settle(struct ferry_device_gate *gate)
{
    atomic_fetch_sub(&gate->word, 1);
}

static inline void ferry_device_gate_close(struct ferry_device_gate *gate)
{
    atomic_fetch_or(&gate->word, FERRY_DEVICE_GATE_CLOSED);
}

static inline bool ferry_device_gate_closed(const struct ferry_device_gate *gate)
{
    return (atomic_load_explicit(&gate->word, memory_order_relaxed) & FERRY_DEVICE_GATE_CLOSED) !=
           0;
}

static inline uint64_t ferry_device_gate_committed(const struct ferry_device_gate *gate)
{
    return atomic_load_explicit(&gate->word, memory_order_relaxed) & ~FERRY_DEVICE_GATE_CLOSED;
}

#endif
