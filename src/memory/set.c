/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's ordered set of entries and its table of ids. Everything here runs under the
 * registry's mutex, on any thread; it grants nothing, frees no entry and judges no request.
 *
 * The set is a sorted array: an insertion moves at most 16 bytes per buffer behind it, which stays
 * in the microseconds for the tens of thousands of buffers seen in practice, and a snapshot is two
 * plain copies of it.
 */
#include "memory/registry_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

#define CAPACITY_MIN   64
#define ID_BUCKETS_MIN 64
#define ID_TRIES_MAX   1000

enum ferry_status ferry_set_reserve(struct ferry_registry *registry, uint32_t extra)
{
    FERRY_ASSERT(extra <= FERRY_REGISTRY_BUFFERS_MAX);
    if (registry->capacity - registry->count >= extra)
        return FERRY_OK;

    uint32_t capacity = registry->capacity > 0 ? registry->capacity : CAPACITY_MIN;
    while (capacity - registry->count < extra)
        capacity *= 2;

    /* Either array may stay larger than the recorded capacity; that is harmless. */
    uint64_t *starts = realloc(registry->starts, capacity * sizeof(*starts));
    if (starts != NULL)
        registry->starts = starts;
    struct ferry_registration **entries = realloc(registry->entries, capacity * sizeof(*entries));
    if (entries != NULL)
        registry->entries = entries;
    if (starts == NULL || entries == NULL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "register: out of memory for %" PRIu32 " buffers",
                          capacity);
    }
    registry->capacity = capacity;
    return FERRY_OK;
}

void ferry_set_insert(struct ferry_registry *registry, uint32_t index,
                      struct ferry_registration *entry)
{
    uint32_t behind = registry->count - index;

    FERRY_ASSERT(registry->count < registry->capacity);
    FERRY_ASSERT(index <= registry->count);
    memmove(&registry->starts[index + 1], &registry->starts[index],
            behind * sizeof(registry->starts[0]));
    memmove(&registry->entries[index + 1], &registry->entries[index],
            behind * sizeof(registry->entries[0]));
    registry->starts[index] = entry->addr;
    registry->entries[index] = entry;
    registry->count++;
}

void ferry_set_erase(struct ferry_registry *registry, struct ferry_registration *entry)
{
    uint32_t above = ferry_starts_above(registry->starts, registry->count, entry->addr);

    FERRY_ASSERT(above > 0);
    FERRY_ASSERT(registry->entries[above - 1] == entry);
    uint32_t behind = registry->count - above;
    memmove(&registry->starts[above - 1], &registry->starts[above],
            behind * sizeof(registry->starts[0]));
    memmove(&registry->entries[above - 1], &registry->entries[above],
            behind * sizeof(registry->entries[0]));
    registry->count--;
}

void ferry_set_erase_dead(struct ferry_registry *registry)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < registry->count; i++) {
        struct ferry_registration *entry = registry->entries[i];

        if (entry->count == 0) {
            ferry_snapshot_retire(registry, entry);
            continue;
        }
        registry->starts[kept] = registry->starts[i];
        registry->entries[kept] = entry;
        kept++;
    }
    registry->count = kept;
}

struct ferry_registration *ferry_set_at(const struct ferry_registry *registry, uint64_t addr)
{
    uint32_t above = ferry_starts_above(registry->starts, registry->count, addr);

    return above > 0 && registry->starts[above - 1] == addr ? registry->entries[above - 1] : NULL;
}

static struct ferry_registration **id_bucket(struct ferry_registry *registry, uint64_t id)
{
    /* Ids are random already; their low bits spread well. */
    return &registry->id_buckets[id & (registry->id_bucket_count - 1)];
}

static bool id_known(struct ferry_registry *registry, uint64_t id)
{
    for (struct ferry_registration *entry = *id_bucket(registry, id); entry != NULL;
         entry = entry->id_next) {
        if (entry->id == id)
            return true;
    }
    return false;
}

/* Double the table when chains grow. Without memory the chains are longer, and that is all. */
static enum ferry_status ids_grow(struct ferry_registry *registry)
{
    if (registry->id_count < registry->id_bucket_count)
        return FERRY_OK;

    uint32_t old_count = registry->id_bucket_count;
    uint32_t count = old_count > 0 ? old_count * 2 : ID_BUCKETS_MIN;
    struct ferry_registration **old = registry->id_buckets;
    struct ferry_registration **buckets = calloc(count, sizeof(*buckets));
    if (buckets == NULL) {
        return old_count > 0 ? FERRY_OK
                             : ferry_fail(FERRY_ERR_NO_MEMORY, "register: out of memory for ids");
    }

    registry->id_buckets = buckets;
    registry->id_bucket_count = count;
    for (uint32_t i = 0; i < old_count; i++) {
        while (old[i] != NULL) {
            struct ferry_registration *entry = old[i];
            struct ferry_registration **bucket = id_bucket(registry, entry->id);

            old[i] = entry->id_next;
            entry->id_next = *bucket;
            *bucket = entry;
        }
    }
    free(old);
    return FERRY_OK;
}

enum ferry_status ferry_ids_assign(struct ferry_registry *registry,
                                   struct ferry_registration *entry)
{
    enum ferry_status status = ids_grow(registry);

    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < ID_TRIES_MAX; i++) {
        uint64_t id = ferry_random_u64(registry->random);

        if (id == 0 || id_known(registry, id))
            continue;
        struct ferry_registration **bucket = id_bucket(registry, id);
        entry->id = id;
        entry->id_next = *bucket;
        *bucket = entry;
        registry->id_count++;
        return FERRY_OK;
    }
    return ferry_fail(FERRY_ERR_INTERNAL,
                      "register: the random source gave no fresh id in %d tries", ID_TRIES_MAX);
}

void ferry_ids_forget(struct ferry_registry *registry, struct ferry_registration *entry)
{
    struct ferry_registration **link = id_bucket(registry, entry->id);

    while (*link != entry) {
        FERRY_ASSERT(*link != NULL);
        link = &(*link)->id_next;
    }
    *link = entry->id_next;
    registry->id_count--;
}
