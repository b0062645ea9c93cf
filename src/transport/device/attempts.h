/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attempt tokens: which piece of work a device's completion belongs to. A token is a slot and a
 * serial number that is never used again, so a completion that comes late, twice or out of nowhere
 * names no attempt, and one that comes in time settles its own attempt and nothing else. The
 * generation of the endpoint is the owner's to keep in its slot.
 *
 * One table a worker, for the holder of its baton.
 */
#ifndef FERRY_TRANSPORT_DEVICE_ATTEMPTS_H
#define FERRY_TRANSPORT_DEVICE_ATTEMPTS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_DEVICE_ATTEMPTS_MAX 65536u

struct ferry_device_attempts {
    uint64_t *tokens; /* of each slot in use; 0: free */
    uint32_t *free;   /* a stack of free slots */
    uint32_t free_count;
    uint32_t capacity;
    uint64_t serial; /* of the latest token */
};

/* @capacity 1..FERRY_DEVICE_ATTEMPTS_MAX. ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_device_attempts_init(struct ferry_device_attempts *attempts,
                                                           uint32_t capacity);
/* Accepts a zeroed one. */
void ferry_device_attempts_fini(struct ferry_device_attempts *attempts);

/* A free slot; false if there is none. It has no token yet. */
bool ferry_device_attempts_take(struct ferry_device_attempts *attempts, uint32_t *slot_out);
/* A new token for a slot in use; what its earlier tokens named is void from now on. Not 0. */
uint64_t ferry_device_attempts_renew(struct ferry_device_attempts *attempts, uint32_t slot);
/* Whatever names the slot from now on names nothing. */
void ferry_device_attempts_void(struct ferry_device_attempts *attempts, uint32_t slot);
void ferry_device_attempts_give(struct ferry_device_attempts *attempts, uint32_t slot);
/* The slot that a token names now; false if it names none. Any number may come in. */
bool ferry_device_attempts_find(const struct ferry_device_attempts *attempts, uint64_t token,
                                uint32_t *slot_out);

#endif
