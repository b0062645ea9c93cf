/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path: look a range up in a cached snapshot and take or give back a lease on it. Takes the
 * mutex only to fetch a newer snapshot. Must not format, allocate or make a system call otherwise.
 * One thread at a time per reader; release on any thread. The protocol is explained in
 * registry_private.h.
 */
#include <string.h>

#include "base/assert.h"
#include "base/futex.h"
#include "memory/registry_private.h"

void ferry_registry_reader_init(struct ferry_registry_reader *reader,
                                struct ferry_registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    registry->reader_count++;
    pthread_mutex_unlock(&registry->mutex);
    *reader = (struct ferry_registry_reader){.registry = registry};
}

void ferry_registry_reader_fini(struct ferry_registry_reader *reader)
{
    struct ferry_registry *registry = reader->registry;

    if (registry == NULL)
        return;
    pthread_mutex_lock(&registry->mutex);
    FERRY_ASSERT(registry->reader_count > 0);
    registry->reader_count--;
    ferry_snapshot_unreference(registry, reader->snapshot);
    pthread_mutex_unlock(&registry->mutex);
    memset(reader, 0, sizeof(*reader));
}

static FERRY_COLD bool reader_refresh(struct ferry_registry_reader *reader)
{
    struct ferry_registry *registry = reader->registry;

    pthread_mutex_lock(&registry->mutex);
    struct ferry_registry_snapshot *snapshot = ferry_snapshot_current(registry);
    if (snapshot != NULL) {
        snapshot->references++;
        ferry_snapshot_unreference(registry, reader->snapshot);
        reader->snapshot = snapshot;
    }
    pthread_mutex_unlock(&registry->mutex);
    return snapshot != NULL;
}

static struct ferry_registration *snapshot_find(const struct ferry_registry_snapshot *snapshot,
                                                uint64_t addr, uint64_t length)
{
    uint32_t above = ferry_starts_above(snapshot->starts, snapshot->count, addr);

    if (above == 0)
        return NULL;
    struct ferry_registration *entry = snapshot->entries[above - 1];
    return ferry_range_within(addr, length, entry->addr, entry->length) ? entry : NULL;
}

/* What the id and the permission of a published entry say. */
static enum ferry_status entry_verdict(const struct ferry_registration *entry,
                                       const struct ferry_lease_request *request)
{
    bool local = request->access == FERRY_ACCESS_LOCAL;

    if (request->registration_id != entry->id && !(local && request->registration_id == 0))
        return FERRY_ERR_STALE_KEY;
    if (local)
        return FERRY_OK;
    if (entry->permission == FERRY_PERMISSION_LOCAL)
        return FERRY_ERR_PERMISSION;
    if (request->access == FERRY_ACCESS_READ)
        return FERRY_OK;
    return entry->permission == FERRY_PERMISSION_READ_WRITE ? FERRY_OK : FERRY_ERR_PERMISSION;
}

/* One more lease, unless a bit forbids it now. */
static enum ferry_status gate_enter(struct ferry_registration *entry,
                                    const struct ferry_lease_request *request)
{
    bool local = request->access == FERRY_ACCESS_LOCAL;
    uint32_t gate = atomic_load_explicit(&entry->gate, memory_order_relaxed);

    do {
        if (gate & FERRY_GATE_CLOSED)
            return local ? FERRY_ERR_CLOSING : FERRY_ERR_PEER_CLOSING;
        if (gate & FERRY_GATE_HIDDEN)
            return local ? FERRY_ERR_INVALID : FERRY_ERR_RANGE;
        enum ferry_status status = entry_verdict(entry, request);
        if (status != FERRY_OK)
            return status;
        if ((gate & FERRY_GATE_LEASES) >= FERRY_LEASES_MAX)
            return FERRY_ERR_QUEUE_FULL;
        /* Acquire: what was done to the memory before the lease stays before it. */
    } while (!atomic_compare_exchange_weak_explicit(&entry->gate, &gate, gate + 1,
                                                    memory_order_acquire, memory_order_relaxed));
    return FERRY_OK;
}

enum ferry_status ferry_lease_acquire(struct ferry_registry_reader *reader,
                                      const struct ferry_lease_request *request,
                                      struct ferry_lease *lease_out)
{
    struct ferry_registry *registry = reader->registry;
    bool local = request->access == FERRY_ACCESS_LOCAL;

    if (request->length == 0 || !ferry_range_ok(request->addr, request->length))
        return local ? FERRY_ERR_INVALID : FERRY_ERR_RANGE;
    if (atomic_load_explicit(&registry->closing, memory_order_acquire))
        return local ? FERRY_ERR_CLOSING : FERRY_ERR_PEER_CLOSING;

    /* Pairs with the release in ferry_snapshot_changed(). */
    uint64_t version = atomic_load_explicit(&registry->version, memory_order_acquire);
    if (FERRY_UNLIKELY(reader->snapshot == NULL || reader->snapshot->version != version)) {
        if (!reader_refresh(reader))
            return FERRY_ERR_NO_MEMORY;
    }
    struct ferry_registration *entry = snapshot_find(reader->snapshot, request->addr,
                                                     request->length);
    if (entry == NULL)
        return local ? FERRY_ERR_INVALID : FERRY_ERR_RANGE;

    enum ferry_status status = gate_enter(entry, request);
    if (status == FERRY_OK)
        *lease_out = (struct ferry_lease){.entry = entry};
    return status;
}

void ferry_lease_release(struct ferry_lease *lease)
{
    struct ferry_registration *entry = lease->entry;

    if (entry == NULL)
        return;
    memset(lease, 0, sizeof(*lease));
    /* The entry may be freed as soon as its count is down: take the registry first. */
    struct ferry_registry *registry = entry->registry;
    /* Release: our last touch of the memory comes before. Pairs with ferry_gate_leases(). */
    uint32_t before = atomic_fetch_sub_explicit(&entry->gate, 1, memory_order_release);

    FERRY_ASSERT((before & FERRY_GATE_LEASES) > 0);
    if ((before & FERRY_GATE_LEASES) == 1 && (before & FERRY_GATE_HIDDEN)) {
        atomic_fetch_add(&registry->quiet_word, 1);
        ferry_futex_wake(&registry->quiet_word, INT32_MAX);
    }
}

enum ferry_status ferry_lease_share(const struct ferry_lease *held, struct ferry_lease *lease_out)
{
    struct ferry_registration *entry = held->entry;
    uint32_t gate = atomic_load_explicit(&entry->gate, memory_order_relaxed);

    do {
        FERRY_ASSERT((gate & FERRY_GATE_LEASES) > 0);
        if ((gate & FERRY_GATE_LEASES) >= FERRY_LEASES_MAX)
            return FERRY_ERR_QUEUE_FULL;
        /* Relaxed: the lease that is held has ordered what came before. */
    } while (!atomic_compare_exchange_weak_explicit(&entry->gate, &gate, gate + 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    *lease_out = (struct ferry_lease){.entry = entry};
    return FERRY_OK;
}

bool ferry_lease_revoked(const struct ferry_lease *lease)
{
    return lease->entry != NULL &&
           (atomic_load_explicit(&lease->entry->gate, memory_order_acquire) & FERRY_GATE_REVOKED);
}

bool ferry_lease_covers(const struct ferry_lease *lease, uint64_t addr, uint64_t length)
{
    const struct ferry_registration *entry = lease->entry;

    return entry != NULL && length > 0 && ferry_range_ok(addr, length) &&
           ferry_range_within(addr, length, entry->addr, entry->length);
}

uint64_t ferry_lease_registration_id(const struct ferry_lease *lease)
{
    return lease->entry->id;
}
