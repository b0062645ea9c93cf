/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Immutable pictures of the registry's set, from which readers look ranges up without a lock, and
 * the rule for when a removed entry may be freed. Runs under the registry's mutex, on any thread.
 *
 *   newest ----older----> ... ----older----> oldest       (each held by the readers that cached it)
 *      |                                        |
 *    pinned: removed entries that it is the     pinned: ...
 *    newest to contain
 *
 * Snapshots are built by the next reader that asks, never by a registration: ten thousand of those
 * in a row cost one build.
 */
#include "memory/registry_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* Free the removed entry, unless @snapshot (the newest that may) contains it. */
static void pin_or_free(struct ferry_registry *registry, struct ferry_registry_snapshot *snapshot,
                        struct ferry_registration *entry)
{
    if (snapshot != NULL && snapshot->version >= entry->created_version) {
        entry->pinned_next = snapshot->pinned;
        snapshot->pinned = entry;
        return;
    }
    ferry_ids_forget(registry, entry);
    free(entry);
}

static void snapshot_destroy(struct ferry_registry *registry,
                             struct ferry_registry_snapshot *snapshot)
{
    struct ferry_registry_snapshot *older = snapshot->older;

    if (older != NULL)
        older->newer = snapshot->newer;
    if (snapshot->newer != NULL) {
        snapshot->newer->older = older;
    } else {
        registry->snapshot_newest = older;
    }

    while (snapshot->pinned != NULL) {
        struct ferry_registration *entry = snapshot->pinned;

        snapshot->pinned = entry->pinned_next;
        pin_or_free(registry, older, entry);
    }
    free(snapshot);
}

void ferry_snapshot_unreference(struct ferry_registry *registry,
                                struct ferry_registry_snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    FERRY_ASSERT(snapshot->references > 0);
    if (--snapshot->references == 0)
        snapshot_destroy(registry, snapshot);
}

void ferry_snapshot_changed(struct ferry_registry *registry)
{
    struct ferry_registry_snapshot *current = registry->snapshot_current;

    /* Pairs with the acquire in ferry_lease_acquire(): a reader that sees the old version is
     * concurrent with this change; one that sees the new version comes here for a new snapshot. */
    atomic_fetch_add_explicit(&registry->version, 1, memory_order_release);
    registry->snapshot_current = NULL;
    ferry_snapshot_unreference(registry, current);
}

void ferry_snapshot_retire(struct ferry_registry *registry, struct ferry_registration *entry)
{
    FERRY_ASSERT(entry->count == 0);
    FERRY_ASSERT(entry->reserved == 0);
    FERRY_ASSERT(ferry_gate_leases(entry) == 0);
    pin_or_free(registry, registry->snapshot_newest, entry);
}

struct ferry_registry_snapshot *ferry_snapshot_current(struct ferry_registry *registry)
{
    if (registry->snapshot_current != NULL)
        return registry->snapshot_current;

    /* At most 2^20 entries of 16 bytes: no overflow. */
    size_t starts_bytes = registry->count * sizeof(uint64_t);
    size_t entries_bytes = registry->count * sizeof(struct ferry_registration *);
    struct ferry_registry_snapshot *snapshot = calloc(1, sizeof(*snapshot) + starts_bytes +
                                                             entries_bytes);
    if (snapshot == NULL)
        return NULL;

    uint64_t *starts = (uint64_t *)(snapshot + 1);
    struct ferry_registration **entries = (struct ferry_registration **)(starts + registry->count);
    if (registry->count > 0) {
        memcpy(starts, registry->starts, starts_bytes);
        memcpy(entries, registry->entries, entries_bytes);
    }
    snapshot->version = atomic_load_explicit(&registry->version, memory_order_relaxed);
    snapshot->count = registry->count;
    snapshot->starts = starts;
    snapshot->entries = entries;
    snapshot->references = 1;
    snapshot->older = registry->snapshot_newest;
    if (snapshot->older != NULL)
        snapshot->older->newer = snapshot;
    registry->snapshot_newest = snapshot;
    registry->snapshot_current = snapshot;
    return snapshot;
}
