/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking registrations back: hide, wait until quiet, revoke, finish or abandon.
 *
 * An open removal does not count a range down, it reserves: count - reserved registers are left for
 * others. The entry is hidden by whoever reserves the last one. Finish takes count and reserved
 * down together; abandon only reserved. So two removals of a counted range never trip over each
 * other, an abandoned one leaves the counts as they were, and an entry that any open removal points
 * to stays alive, because count >= reserved > 0.
 *
 * Any thread; one thread at a time per removal. The mutex is never held while waiting.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "memory/registry_private.h"

static enum ferry_status not_found(const struct ferry_registry *registry,
                                   const struct ferry_registry_range *range)
{
    uint32_t above = ferry_starts_above(registry->starts, registry->count, range->addr);
    const struct ferry_registration *before = above > 0 ? registry->entries[above - 1] : NULL;
    const struct ferry_registration *after = above < registry->count ? registry->entries[above]
                                                                     : NULL;

    if (before != NULL && before->addr == range->addr) {
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "unregister: at 0x%" PRIx64 " %" PRIu64
                          " bytes are registered, not %" PRIu64,
                          range->addr, before->length, range->length);
    }
    if (before != NULL && range->addr - before->addr < before->length) {
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "unregister: 0x%" PRIx64 " (length %" PRIu64
                          ") is no registered range; it lies inside " FERRY_RANGE_FMT,
                          range->addr, range->length,
                          FERRY_RANGE_ARGS(before->addr, before->length));
    }
    if (after != NULL && after->addr - range->addr < range->length) {
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "unregister: 0x%" PRIx64 " (length %" PRIu64
                          ") is no registered range; it overlaps " FERRY_RANGE_FMT,
                          range->addr, range->length, FERRY_RANGE_ARGS(after->addr, after->length));
    }
    return ferry_fail(FERRY_ERR_NOT_FOUND,
                      "unregister: nothing is registered at 0x%" PRIx64 " (length %" PRIu64 ")",
                      range->addr, range->length);
}

/* All registers of the entry are reserved: by this list alone, or by another removal too? */
static enum ferry_status none_left(const struct ferry_removal *removal, uint32_t taken,
                                   const struct ferry_registration *entry)
{
    uint32_t mentions = 0;

    for (uint32_t i = 0; i < taken; i++)
        mentions += removal->entries[i] == entry;
    if (mentions == entry->count) {
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "unregister: " FERRY_RANGE_FMT " is named more than the %" PRIu32
                          " times it is registered",
                          FERRY_RANGE_ARGS(entry->addr, entry->length), entry->count);
    }
    return ferry_fail(FERRY_ERR_BUSY,
                      "unregister: " FERRY_RANGE_FMT " is being unregistered by another call",
                      FERRY_RANGE_ARGS(entry->addr, entry->length));
}

static void unreserve(struct ferry_removal *removal, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        FERRY_ASSERT(removal->entries[i]->reserved > 0);
        removal->entries[i]->reserved--;
    }
}

static enum ferry_status reserve_all(struct ferry_removal *removal,
                                     const struct ferry_registry_range *ranges)
{
    struct ferry_registry *registry = removal->registry;

    for (uint32_t i = 0; i < removal->count; i++) {
        struct ferry_registration *entry = ferry_set_at(registry, ranges[i].addr);
        enum ferry_status status = FERRY_OK;

        if (entry == NULL || entry->length != ranges[i].length) {
            status = not_found(registry, &ranges[i]);
        } else if (entry->reserved == entry->count) {
            status = none_left(removal, i, entry);
        }
        if (status != FERRY_OK) {
            unreserve(removal, i);
            return status;
        }
        entry->reserved++;
        removal->entries[i] = entry;
    }
    return FERRY_OK;
}

/* Hide what has no register left. From the OR on, no acquire succeeds (see registry_private.h). */
static void hide_reserved(struct ferry_removal *removal)
{
    bool changed = false;

    for (uint32_t i = 0; i < removal->count; i++) {
        struct ferry_registration *entry = removal->entries[i];

        if (entry->reserved < entry->count || ferry_gate_hidden(entry))
            continue;
        atomic_fetch_or_explicit(&entry->gate, FERRY_GATE_HIDDEN, memory_order_acq_rel);
        changed = true;
    }
    if (changed)
        atomic_fetch_add_explicit(&removal->registry->generation, 1, memory_order_release);
}

static enum ferry_status removal_allocate(struct ferry_removal *removal,
                                          struct ferry_registry *registry, uint64_t count)
{
    *removal = (struct ferry_removal){.registry = registry, .count = (uint32_t)count};
    if (count > UINT32_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "unregister: more than 2^32 registers at once");
    removal->entries = calloc(count > 0 ? count : 1, sizeof(struct ferry_registration *));
    if (removal->entries == NULL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "unregister: out of memory for %" PRIu64 " ranges",
                          count);
    }
    return FERRY_OK;
}

enum ferry_status ferry_registry_hide(struct ferry_registry *registry,
                                      const struct ferry_registry_range *ranges, uint32_t count,
                                      struct ferry_removal *removal_out)
{
    struct ferry_removal removal;
    enum ferry_status status = removal_allocate(&removal, registry, count);

    if (status != FERRY_OK)
        return status;
    pthread_mutex_lock(&registry->mutex);
    status = reserve_all(&removal, ranges);
    if (status == FERRY_OK)
        hide_reserved(&removal);
    pthread_mutex_unlock(&registry->mutex);

    if (status == FERRY_OK) {
        *removal_out = removal;
    } else {
        free(removal.entries);
    }
    return status;
}

enum ferry_status ferry_registry_hide_all(struct ferry_registry *registry,
                                          struct ferry_removal *removal_out)
{
    struct ferry_removal removal;
    uint64_t count = 0;

    pthread_mutex_lock(&registry->mutex);
    for (uint32_t i = 0; i < registry->count; i++)
        count += registry->entries[i]->count - registry->entries[i]->reserved;
    enum ferry_status status = removal_allocate(&removal, registry, count);
    if (status == FERRY_OK) {
        uint32_t taken = 0;

        for (uint32_t i = 0; i < registry->count; i++) {
            struct ferry_registration *entry = registry->entries[i];

            for (; entry->reserved < entry->count; entry->reserved++)
                removal.entries[taken++] = entry;
        }
        FERRY_ASSERT(taken == removal.count);
        hide_reserved(&removal);
        *removal_out = removal;
    }
    pthread_mutex_unlock(&registry->mutex);
    return status;
}

uint32_t ferry_removal_lease_count(const struct ferry_removal *removal, uint32_t index)
{
    FERRY_ASSERT(index < removal->count);
    const struct ferry_registration *entry = removal->entries[index];

    return ferry_gate_hidden(entry) ? ferry_gate_leases(entry) : 0;
}

uint64_t ferry_removal_hidden_id(const struct ferry_removal *removal, uint32_t index)
{
    FERRY_ASSERT(index < removal->count);
    const struct ferry_registration *entry = removal->entries[index];

    return ferry_gate_hidden(entry) ? entry->id : 0;
}

struct ferry_registry_range ferry_removal_range(const struct ferry_removal *removal, uint32_t index)
{
    FERRY_ASSERT(index < removal->count);
    return (struct ferry_registry_range){.addr = removal->entries[index]->addr,
                                         .length = removal->entries[index]->length};
}

bool ferry_removal_quiet(const struct ferry_removal *removal)
{
    for (uint32_t i = 0; i < removal->count; i++) {
        if (ferry_removal_lease_count(removal, i) > 0)
            return false;
    }
    return true;
}

enum ferry_status ferry_removal_wait(const struct ferry_removal *removal, uint64_t deadline_ns)
{
    if (removal->count == 0)
        return FERRY_OK;

    struct ferry_registry *registry = removal->registry;
    for (;;) {
        /* Read the word before the gates: a release after our look at a gate changes the word and
         * the sleep ends at once. */
        uint32_t word = atomic_load(&registry->quiet_word);

        if (ferry_removal_quiet(removal))
            return FERRY_OK;
        if (!ferry_futex_wait(&registry->quiet_word, word, deadline_ns))
            return ferry_removal_quiet(removal) ? FERRY_OK : FERRY_ERR_BUSY;
    }
}

void ferry_removal_revoke(const struct ferry_removal *removal)
{
    for (uint32_t i = 0; i < removal->count; i++) {
        if (ferry_gate_hidden(removal->entries[i])) {
            atomic_fetch_or_explicit(&removal->entries[i]->gate, FERRY_GATE_REVOKED,
                                     memory_order_acq_rel);
        }
    }
}

static enum ferry_status busy(const struct ferry_removal *removal)
{
    for (uint32_t i = 0; i < removal->count; i++) {
        uint32_t leases = ferry_removal_lease_count(removal, i);

        if (leases > 0) {
            return ferry_fail(
                FERRY_ERR_BUSY,
                "unregister: " FERRY_RANGE_FMT " is still in use (leases=%" PRIu32
                "); it stays hidden and registered, and calling again resumes",
                FERRY_RANGE_ARGS(removal->entries[i]->addr, removal->entries[i]->length), leases);
        }
    }
    /* The last lease went between the caller's look and ours. */
    return ferry_fail(FERRY_ERR_BUSY, "unregister: calling again resumes");
}

/* A single entry is moved out by one memmove; a longer list is worth one pass over the set. */
#define ERASE_SINGLY_MAX 8

enum ferry_status ferry_removal_finish(struct ferry_removal *removal)
{
    struct ferry_registry *registry = removal->registry;
    struct ferry_registration *dead[ERASE_SINGLY_MAX];
    uint32_t dead_count = 0;

    if (removal->count == 0) {
        ferry_removal_abandon(removal);
        return FERRY_OK;
    }
    pthread_mutex_lock(&registry->mutex);
    /* Looked at under the mutex, under which ranges are hidden: another removal may hide one of
     * ours at any time before. */
    if (!ferry_removal_quiet(removal)) {
        pthread_mutex_unlock(&registry->mutex);
        return busy(removal);
    }
    unreserve(removal, removal->count);
    for (uint32_t i = 0; i < removal->count; i++) {
        struct ferry_registration *entry = removal->entries[i];

        FERRY_ASSERT(entry->count > 0);
        if (--entry->count > 0)
            continue;
        if (dead_count < ERASE_SINGLY_MAX)
            dead[dead_count] = entry;
        dead_count++;
    }
    if (dead_count > ERASE_SINGLY_MAX) {
        ferry_set_erase_dead(registry);
    } else {
        for (uint32_t i = 0; i < dead_count; i++) {
            ferry_set_erase(registry, dead[i]);
            ferry_snapshot_retire(registry, dead[i]);
        }
    }
    if (dead_count > 0)
        ferry_snapshot_changed(registry);
    pthread_mutex_unlock(&registry->mutex);

    free(removal->entries);
    memset(removal, 0, sizeof(*removal));
    return FERRY_OK;
}

void ferry_removal_abandon(struct ferry_removal *removal)
{
    if (removal->registry == NULL)
        return;
    pthread_mutex_lock(&removal->registry->mutex);
    unreserve(removal, removal->count);
    pthread_mutex_unlock(&removal->registry->mutex);
    free(removal->entries);
    memset(removal, 0, sizeof(*removal));
}

enum ferry_status ferry_registry_unregister(struct ferry_registry *registry,
                                            const struct ferry_registry_range *ranges,
                                            uint32_t count,
                                            const struct ferry_unregister_plan *plan)
{
    struct ferry_removal removal;
    enum ferry_status status = ferry_registry_hide(registry, ranges, count, &removal);

    if (status != FERRY_OK)
        return status;
    if (ferry_removal_wait(&removal, plan->lease_deadline_ns) != FERRY_OK) {
        ferry_removal_revoke(&removal);
        if (plan->revoke != NULL)
            plan->revoke(plan->context, &removal);
        /* The verdict is finish's, which looks again and composes the text. */
        (void)!ferry_removal_wait(&removal, plan->revoke_deadline_ns);
    }
    status = ferry_removal_finish(&removal);
    if (status != FERRY_OK)
        ferry_removal_abandon(&removal);
    return status;
}
