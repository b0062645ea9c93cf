/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of one endpoint incarnation, for transports over devices. States only move forward: a
 * failed endpoint is fenced and destroyed, and a successor with a higher generation takes its
 * place; it is never reconnected.
 *
 *   UNINIT --> HANDSHAKING --> PREPARED --> BINDING --> READY
 *      |            |             |            |          |
 *      |            +-------------+-----+------+----------+
 *      v                                v
 *   DESTROYED <---- DESTROYING <----- FAILED
 *
 * Who writes a state is said where the endpoint is declared; any thread may read one.
 */
#ifndef FERRY_TRANSPORT_DEVICE_LIFE_H
#define FERRY_TRANSPORT_DEVICE_LIFE_H

#include <stdatomic.h>
#include <stdint.h>

enum ferry_device_state {
    FERRY_DEVICE_UNINIT,      /* nothing native yet */
    FERRY_DEVICE_HANDSHAKING, /* native objects are being made */
    FERRY_DEVICE_PREPARED,    /* they exist; the peer has not been heard */
    FERRY_DEVICE_BINDING,     /* the peer was heard; binding to its end */
    FERRY_DEVICE_READY,       /* requests may be posted */
    FERRY_DEVICE_FAILED,      /* nothing new is posted; what was is being fenced */
    FERRY_DEVICE_DESTROYING,  /* fenced; native objects are being taken apart */
    FERRY_DEVICE_DESTROYED,   /* nothing native is left */
    FERRY_DEVICE_STATE_COUNT,
};

struct ferry_device_life {
    _Atomic uint32_t state; /* enum ferry_device_state */
    uint64_t generation;    /* higher than that of every earlier endpoint of this engine */
};

/* A new life: UNINIT, with the next generation of @source (never 0). */
void ferry_device_life_begin(struct ferry_device_life *life, _Atomic uint64_t *source);

/* The only writer of the state. The move must be a legal one. */
void ferry_device_life_advance(struct ferry_device_life *life, enum ferry_device_state next);

static inline enum ferry_device_state ferry_device_life_state(const struct ferry_device_life *life)
{
    return (enum ferry_device_state)atomic_load_explicit(&life->state, memory_order_acquire);
}

/* "ready" */
const char *ferry_device_state_name(enum ferry_device_state state);

#endif
