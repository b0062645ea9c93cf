/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Legal moves of an endpoint's life. Any thread that owns the life; no other state.
 */
#include "transport/device/life.h"

#include "base/assert.h"

#define TO(state) (1u << FERRY_DEVICE_##state)

/* Indexed by the current state; one bit per state that may follow it. */
static const uint32_t moves[FERRY_DEVICE_STATE_COUNT] = {
    [FERRY_DEVICE_UNINIT] = TO(HANDSHAKING) | TO(FAILED) | TO(DESTROYED),
    [FERRY_DEVICE_HANDSHAKING] = TO(PREPARED) | TO(FAILED),
    [FERRY_DEVICE_PREPARED] = TO(BINDING) | TO(FAILED),
    [FERRY_DEVICE_BINDING] = TO(READY) | TO(FAILED),
    [FERRY_DEVICE_READY] = TO(FAILED),
    [FERRY_DEVICE_FAILED] = TO(DESTROYING),
    [FERRY_DEVICE_DESTROYING] = TO(DESTROYED),
    [FERRY_DEVICE_DESTROYED] = 0,
};
#undef TO

void ferry_device_life_begin(struct ferry_device_life *life, _Atomic uint64_t *source)
{
    atomic_store(&life->state, FERRY_DEVICE_UNINIT);
    life->generation = atomic_fetch_add(source, 1) + 1;
    FERRY_ASSERT(life->generation != 0);
}

void ferry_device_life_advance(struct ferry_device_life *life, enum ferry_device_state next)
{
    FERRY_ASSERT(moves[ferry_device_life_state(life)] & (1u << next));
    atomic_store_explicit(&life->state, next, memory_order_release);
}

const char *ferry_device_state_name(enum ferry_device_state state)
{
    static const char *const names[FERRY_DEVICE_STATE_COUNT] = {
        "uninit", "handshaking", "prepared",   "binding",
        "ready",  "failed",      "destroying", "destroyed"};

    return (unsigned)state < FERRY_DEVICE_STATE_COUNT ? names[state] : "?";
}
