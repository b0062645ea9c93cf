/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the registry's own files share: the entry, its gate, the ordered set and the snapshots.
 * Nobody outside src/memory includes this.
 *
 * The gate is the whole of the lease protocol: one 32-bit word per entry that holds the number of
 * leases and the bits that forbid new ones. Acquire is a compare-and-swap that adds one only while
 * no forbidding bit is set; hide is an atomic OR. All changes of one word have one total order, so
 * after the OR no acquire can succeed, and the count that is seen from then on only falls: once it
 * is zero it stays zero. There is no window between "may I" and "I do", and no second variable to
 * agree with.
 *
 * Who keeps an entry's storage alive: the set while it is registered, then the newest snapshot that
 * contains it. A removed entry is pinned to that snapshot and handed to the next older one that
 * contains it when the newer dies, so a snapshot keeps no more entries than it lists, however old
 * it is.
 */
#ifndef FERRY_MEMORY_REGISTRY_PRIVATE_H
#define FERRY_MEMORY_REGISTRY_PRIVATE_H

#include <inttypes.h>

#include "base/checked.h"
#include "memory/registry.h"

#define FERRY_GATE_HIDDEN  (1u << 31) /* unregistering: no new leases */
#define FERRY_GATE_REVOKED (1u << 30) /* holders are asked to let go */
#define FERRY_GATE_CLOSED  (1u << 29) /* the registry is closing: no new leases */
#define FERRY_GATE_LEASES  (FERRY_GATE_CLOSED - 1)
#define FERRY_LEASES_MAX   (1u << 28)

struct ferry_registration {
    /* immutable while in the set or in a snapshot */
    uint64_t addr;
    uint64_t length;
    uint64_t id;
    struct ferry_registry *registry;
    uint64_t created_version; /* snapshots from this version on contain it, until it is removed */
    enum ferry_permission permission;
    char location[FERRY_REGISTRY_LOCATION_SIZE];
    /* any thread, atomic */
    _Atomic uint32_t gate;
    /* any thread, under the registry's mutex */
    uint32_t count;                         /* how often it is registered */
    uint32_t reserved;                      /* of those, how many open removals have taken back */
    struct ferry_registration *id_next;     /* chain of its id bucket */
    struct ferry_registration *pinned_next; /* after removal: chain of the snapshot that pins it */
};

struct ferry_registry_snapshot {
    /* immutable after it is built */
    uint64_t version;
    uint32_t count;
    const uint64_t *starts; /* ascending; starts[i] is the address of entries[i] */
    struct ferry_registration *const *entries;
    /* any thread, under the registry's mutex */
    uint32_t references; /* readers, and the registry if it is the current one */
    struct ferry_registry_snapshot *older;
    struct ferry_registry_snapshot *newer;
    struct ferry_registration *pinned; /* removed entries whose newest snapshot is this one */
};

/* Ranges in texts: "[0x1000, 0x2000)". */
#define FERRY_RANGE_FMT             "[0x%" PRIx64 ", 0x%" PRIx64 ")"
#define FERRY_RANGE_ARGS(addr, len) (addr), (addr) + (len)

/* The first index whose start is greater than @addr; its predecessor is the only one that may cover
 * it. */
static inline uint32_t ferry_starts_above(const uint64_t *starts, uint32_t count, uint64_t addr)
{
    uint32_t low = 0;

    while (count > 0) {
        uint32_t half = count / 2;

        if (starts[low + half] <= addr) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

static inline uint32_t ferry_gate_leases(const struct ferry_registration *entry)
{
    /* Pairs with the release in ferry_lease_release(): zero means that the holders' last touch of
     * the memory happened before. */
    return atomic_load_explicit(&entry->gate, memory_order_acquire) & FERRY_GATE_LEASES;
}

static inline bool ferry_gate_hidden(const struct ferry_registration *entry)
{
    return (atomic_load_explicit(&entry->gate, memory_order_acquire) & FERRY_GATE_HIDDEN) != 0;
}

/*
 * snapshot.c, all under the mutex. changed: the set was modified; the next reader builds a new
 * snapshot. retire: the entry left the set; free it, now or when no snapshot contains it any more.
 * current: build if needed; NULL when out of memory. unreference accepts NULL.
 */
void ferry_snapshot_changed(struct ferry_registry *registry);
void ferry_snapshot_retire(struct ferry_registry *registry, struct ferry_registration *entry);
struct ferry_registry_snapshot *ferry_snapshot_current(struct ferry_registry *registry);
void ferry_snapshot_unreference(struct ferry_registry *registry,
                                struct ferry_registry_snapshot *snapshot);

/*
 * set.c, all under the mutex: the ordered set and the table of ids. insert needs room made by
 * reserve. erase takes one entry out and leaves it to the caller; erase_dead takes out and retires
 * every entry whose count is 0, in one pass.
 */
enum ferry_status ferry_set_reserve(struct ferry_registry *registry, uint32_t extra);
void ferry_set_insert(struct ferry_registry *registry, uint32_t index,
                      struct ferry_registration *entry);
void ferry_set_erase(struct ferry_registry *registry, struct ferry_registration *entry);
void ferry_set_erase_dead(struct ferry_registry *registry);
/* The entry with exactly this address, or NULL. */
struct ferry_registration *ferry_set_at(const struct ferry_registry *registry, uint64_t addr);
/* Give the entry an id that nobody has, and remember it; forget it when the entry is freed. */
enum ferry_status ferry_ids_assign(struct ferry_registry *registry,
                                   struct ferry_registration *entry);
void ferry_ids_forget(struct ferry_registry *registry, struct ferry_registration *entry);

#endif
