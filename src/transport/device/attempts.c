/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table behind attempt tokens: 48 bits of serial number over 16 bits of slot. At a hundred
 * million posts a second the serial numbers of a worker last a month longer than its process is
 * likely to; when they run out the process stops rather than reuse one.
 */
#include "transport/device/attempts.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

#define SLOT_BITS  16
#define SERIAL_MAX (UINT64_MAX >> SLOT_BITS)

enum ferry_status ferry_device_attempts_init(struct ferry_device_attempts *attempts,
                                             uint32_t capacity)
{
    FERRY_ASSERT(capacity > 0);
    FERRY_ASSERT(capacity <= FERRY_DEVICE_ATTEMPTS_MAX);
    memset(attempts, 0, sizeof(*attempts));
    attempts->tokens = calloc(capacity, sizeof(*attempts->tokens));
    attempts->free = calloc(capacity, sizeof(*attempts->free));
    if (attempts->tokens == NULL || attempts->free == NULL) {
        ferry_device_attempts_fini(attempts);
        return ferry_fail(FERRY_ERR_NO_MEMORY, "out of memory for %u attempts", capacity);
    }
    attempts->capacity = capacity;
    /* Low slots first. */
    for (uint32_t i = 0; i < capacity; i++)
        attempts->free[i] = capacity - 1 - i;
    attempts->free_count = capacity;
    return FERRY_OK;
}

void ferry_device_attempts_fini(struct ferry_device_attempts *attempts)
{
    free(attempts->tokens);
    free(attempts->free);
    memset(attempts, 0, sizeof(*attempts));
}

bool ferry_device_attempts_take(struct ferry_device_attempts *attempts, uint32_t *slot_out)
{
    if (attempts->free_count == 0)
        return false;
    *slot_out = attempts->free[--attempts->free_count];
    FERRY_ASSERT(attempts->tokens[*slot_out] == 0);
    return true;
}

uint64_t ferry_device_attempts_renew(struct ferry_device_attempts *attempts, uint32_t slot)
{
    FERRY_ASSERT(slot < attempts->capacity);
    FERRY_ASSERT(attempts->serial < SERIAL_MAX);
    attempts->tokens[slot] = ++attempts->serial << SLOT_BITS | slot;
    return attempts->tokens[slot];
}

void ferry_device_attempts_void(struct ferry_device_attempts *attempts, uint32_t slot)
{
    attempts->tokens[slot] = 0;
}

void ferry_device_attempts_give(struct ferry_device_attempts *attempts, uint32_t slot)
{
    FERRY_ASSERT(attempts->free_count < attempts->capacity);
    attempts->tokens[slot] = 0;
    attempts->free[attempts->free_count++] = slot;
}

bool ferry_device_attempts_find(const struct ferry_device_attempts *attempts, uint64_t token,
                                uint32_t *slot_out)
{
    uint32_t slot = (uint32_t)(token & (FERRY_DEVICE_ATTEMPTS_MAX - 1));

    if (token == 0 || slot >= attempts->capacity || attempts->tokens[slot] != token)
        return false;
    *slot_out = slot;
    return true;
}
