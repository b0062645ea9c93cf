/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed pool of equal objects, sized when it is made, with generation-checked handles.
 *
 * acquire and release are lock-free and may run on any thread (a tagged free list; the tag defeats
 * ABA). Memory is reserved with mmap and touched on first use, so an unused pool costs address
 * space only. Objects are zeroed once, by the kernel; they keep their content between uses.
 *
 * A handle is (generation << 32 | index + 1); 0 is never valid. The generation grows by one at each
 * release, so a stale handle resolves to NULL.
 */
#ifndef FERRY_BASE_POOL_H
#define FERRY_BASE_POOL_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

struct ferry_pool {
    /* immutable after init */
    unsigned char *objects;
    _Atomic uint32_t *links;       /* next free index + 1, per object */
    _Atomic uint32_t *generations; /* odd while in use, even while free */
    size_t object_size;            /* rounded up to a cache line */
    uint32_t capacity;
    size_t map_bytes;
    /* any thread, atomic */
    _Atomic uint64_t free_head; /* tag << 32 | index + 1 */
    _Atomic uint32_t used;
};

/* @capacity 1..2^31, @object_size > 0. ERR_NO_MEMORY. */
enum ferry_status ferry_pool_init(struct ferry_pool *pool, size_t object_size, uint32_t capacity);
/* Accepts a zeroed pool. The caller guarantees that nobody uses an object any more. */
void ferry_pool_fini(struct ferry_pool *pool);

/* NULL when all are in use: back-pressure, no text. Any thread. */
void *ferry_pool_acquire(struct ferry_pool *pool);
void ferry_pool_release(struct ferry_pool *pool, void *object);

/* The handle of an object in use, and back. ferry_pool_get() gives NULL for 0, stale or foreign
 * ones. */
uint64_t ferry_pool_handle(const struct ferry_pool *pool, const void *object);
void *ferry_pool_get(const struct ferry_pool *pool, uint64_t handle);

uint32_t ferry_pool_used(const struct ferry_pool *pool);

#endif
