/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's life, its registrations and its descriptions. Any thread; each call takes the one
 * mutex and holds it for no system call but those of malloc. Unregistering is in removal.c, the
 * path without a lock in lease.c.
 */
#include "memory/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "memory/location.h"
#include "memory/registry_private.h"

enum ferry_status ferry_registry_init(struct ferry_registry *registry,
                                      const struct ferry_registry_options *options)
{
    static const uint32_t only_node_zero[] = {0};
    const uint32_t *nodes = options->numa_nodes != NULL ? options->numa_nodes : only_node_zero;
    uint32_t node_count = options->numa_nodes != NULL ? options->numa_node_count : 1;
    uint32_t buffers_max = options->buffers_max > 0 ? options->buffers_max
                                                    : FERRY_REGISTRY_BUFFERS_MAX;

    if (options->random == NULL || node_count == 0) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "registry: a random source and a NUMA node are needed");
    }
    if (buffers_max > FERRY_REGISTRY_BUFFERS_MAX) {
        return ferry_fail(FERRY_ERR_INVALID, "registry: %" PRIu32 " buffers are more than %u",
                          buffers_max, FERRY_REGISTRY_BUFFERS_MAX);
    }

    FERRY_AUTO_FREE uint32_t *copy = calloc(node_count, sizeof(*copy));
    if (copy == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "registry: out of memory");
    memcpy(copy, nodes, node_count * sizeof(*copy));

    memset(registry, 0, sizeof(*registry));
    registry->random = options->random;
    registry->numa_node_count = node_count;
    registry->buffers_max = buffers_max;
    atomic_init(&registry->version, 1);
    if (pthread_mutex_init(&registry->mutex, NULL) != 0)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "registry: no mutex");
    registry->numa_nodes = ferry_take_ptr(&copy);
    registry->initialized = true;
    return FERRY_OK;
}

void ferry_registry_fini(struct ferry_registry *registry)
{
    if (!registry->initialized)
        return;
    FERRY_ASSERT(registry->reader_count == 0);

    struct ferry_registry_snapshot *current = registry->snapshot_current;
    registry->snapshot_current = NULL;
    ferry_snapshot_unreference(registry, current);
    FERRY_ASSERT(registry->snapshot_newest == NULL);

    for (uint32_t i = 0; i < registry->count; i++) {
        FERRY_ASSERT(ferry_gate_leases(registry->entries[i]) == 0);
        ferry_ids_forget(registry, registry->entries[i]);
        free(registry->entries[i]);
    }
    FERRY_ASSERT(registry->id_count == 0);
    free(registry->starts);
    free(registry->entries);
    free(registry->id_buckets);
    free(registry->numa_nodes);
    pthread_mutex_destroy(&registry->mutex);
    memset(registry, 0, sizeof(*registry));
}

void ferry_registry_close(struct ferry_registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    /* The flag gives the verdict its place in the order; the gates make it exact, since an acquire
     * may have read the flag just before. */
    atomic_store_explicit(&registry->closing, true, memory_order_release);
    for (uint32_t i = 0; i < registry->count; i++) {
        atomic_fetch_or_explicit(&registry->entries[i]->gate, FERRY_GATE_CLOSED,
                                 memory_order_acq_rel);
    }
    pthread_mutex_unlock(&registry->mutex);
}

enum ferry_status ferry_registry_reopen(struct ferry_registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    uint32_t count = registry->count;
    if (count == 0)
        atomic_store_explicit(&registry->closing, false, memory_order_release);
    pthread_mutex_unlock(&registry->mutex);

    if (count > 0) {
        return ferry_fail(FERRY_ERR_BUSY,
                          "registry: cannot reopen while %" PRIu32 " buffers are registered",
                          count);
    }
    return FERRY_OK;
}

static bool node_known(const struct ferry_registry *registry, int32_t node)
{
    if (node == FERRY_LOCATION_ANY_NODE)
        return true;
    for (uint32_t i = 0; i < registry->numa_node_count; i++) {
        if (registry->numa_nodes[i] == (uint32_t)node)
            return true;
    }
    return false;
}

static enum ferry_status spec_check(const struct ferry_registry *registry,
                                    const struct ferry_registry_spec *spec)
{
    struct ferry_location location;

    if (spec->addr == 0) {
        return ferry_fail(FERRY_ERR_INVALID, "register: the address is NULL (length %" PRIu64 ")",
                          spec->length);
    }
    if (spec->length == 0) {
        return ferry_fail(FERRY_ERR_INVALID, "register: the length at 0x%" PRIx64 " is 0",
                          spec->addr);
    }
    if (!ferry_range_ok(spec->addr, spec->length)) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "register: address 0x%" PRIx64 " plus length %" PRIu64
                          " passes the end of the address space",
                          spec->addr, spec->length);
    }
    if (spec->permission != FERRY_PERMISSION_LOCAL &&
        spec->permission != FERRY_PERMISSION_READ_ONLY &&
        spec->permission != FERRY_PERMISSION_READ_WRITE) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "register: permission %d at 0x%" PRIx64
                          " is none of local (0), read-only (1), read-write (2)",
                          (int)spec->permission, spec->addr);
    }

    enum ferry_status status = ferry_location_parse(spec->location, &location);
    if (status != FERRY_OK)
        return status;
    if (!node_known(registry, location.numa_node)) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "register: memory location \"%s\": this host has no NUMA node %" PRId32
                          "; it has %" PRIu32 " with the lowest %" PRIu32,
                          spec->location, location.numa_node, registry->numa_node_count,
                          registry->numa_nodes[0]);
    }
    return FERRY_OK;
}

static struct ferry_registration *entry_create(struct ferry_registry *registry,
                                               const struct ferry_registry_spec *spec)
{
    struct ferry_registration *entry = calloc(1, sizeof(*entry));
    const char *location = spec->location != NULL ? spec->location : "*";

    if (entry == NULL)
        return NULL;
    entry->addr = spec->addr;
    entry->length = spec->length;
    entry->registry = registry;
    entry->permission = spec->permission;
    /* The strict parser accepts at most "cpu:2147483647". */
    size_t size = strlen(location) + 1;
    FERRY_ASSERT(size <= sizeof(entry->location));
    memcpy(entry->location, location, size);
    return entry;
}

static bool same_kind(const struct ferry_registration *a, const struct ferry_registration *b)
{
    return a->permission == b->permission && strcmp(a->location, b->location) == 0;
}

static enum ferry_status conflict(const struct ferry_registration *wanted,
                                  const struct ferry_registration *existing)
{
    static const char *const names[] = {"local", "read-only", "read-write"};
    const char *state = ferry_gate_hidden(existing) ? ", which is still being unregistered" : "";

    if (wanted->addr == existing->addr && wanted->length == existing->length &&
        !same_kind(wanted, existing)) {
        return ferry_fail(
            FERRY_ERR_EXISTS, "register: " FERRY_RANGE_FMT " (%s, %s) is registered as (%s, %s)%s",
            FERRY_RANGE_ARGS(wanted->addr, wanted->length), wanted->location,
            names[wanted->permission], existing->location, names[existing->permission], state);
    }
    return ferry_fail(FERRY_ERR_EXISTS,
                      "register: " FERRY_RANGE_FMT " overlaps the registered " FERRY_RANGE_FMT "%s",
                      FERRY_RANGE_ARGS(wanted->addr, wanted->length),
                      FERRY_RANGE_ARGS(existing->addr, existing->length), state);
}

/*
 * Put one prepared entry into the set, or count up its exact duplicate. *slot becomes the entry
 * that stands for the range now; *fresh_out says whether it is the prepared one. Under the mutex.
 */
static enum ferry_status entry_apply(struct ferry_registry *registry,
                                     struct ferry_registration **slot, bool *fresh_out)
{
    struct ferry_registration *entry = *slot;
    uint32_t above = ferry_starts_above(registry->starts, registry->count, entry->addr);
    struct ferry_registration *before = above > 0 ? registry->entries[above - 1] : NULL;
    struct ferry_registration *after = above < registry->count ? registry->entries[above] : NULL;

    if (before != NULL && before->addr == entry->addr && before->length == entry->length &&
        same_kind(before, entry) && !ferry_gate_hidden(before)) {
        if (before->count == UINT32_MAX) {
            return ferry_fail(FERRY_ERR_TOO_LARGE,
                              "register: " FERRY_RANGE_FMT " is registered too often",
                              FERRY_RANGE_ARGS(entry->addr, entry->length));
        }
        before->count++;
        free(entry);
        *slot = before;
        *fresh_out = false;
        return FERRY_OK;
    }
    if (before != NULL &&
        ferry_range_overlaps(before->addr, before->length, entry->addr, entry->length))
        return conflict(entry, before);
    if (after != NULL &&
        ferry_range_overlaps(after->addr, after->length, entry->addr, entry->length))
        return conflict(entry, after);
    if (registry->count == registry->buffers_max) {
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "register: %" PRIu32 " buffers are registered, which is the limit",
                          registry->count);
    }

    enum ferry_status status = ferry_set_reserve(registry, 1);
    if (status == FERRY_OK)
        status = ferry_ids_assign(registry, entry);
    if (status != FERRY_OK)
        return status;
    entry->count = 1;
    entry->created_version = atomic_load_explicit(&registry->version, memory_order_relaxed) + 1;
    ferry_set_insert(registry, above, entry);
    *fresh_out = true;
    return FERRY_OK;
}

/* Undo entry_apply() for the first @count slots. No snapshot saw them: the mutex was held all
 * along. */
static void entries_rollback(struct ferry_registry *registry, struct ferry_registration **slots,
                             uint32_t count)
{
    for (uint32_t i = count; i > 0; i--) {
        struct ferry_registration *entry = slots[i - 1];

        slots[i - 1] = NULL;
        if (--entry->count > 0)
            continue;
        ferry_set_erase(registry, entry);
        ferry_ids_forget(registry, entry);
        free(entry);
    }
}

static enum ferry_status entries_apply(struct ferry_registry *registry,
                                       struct ferry_registration **slots, uint32_t count)
{
    uint32_t fresh_count = 0;

    if (atomic_load_explicit(&registry->closing, memory_order_relaxed))
        return ferry_fail(FERRY_ERR_CLOSING, "register: the engine is closing");
    for (uint32_t i = 0; i < count; i++) {
        bool fresh = false;
        enum ferry_status status = entry_apply(registry, &slots[i], &fresh);

        if (status != FERRY_OK) {
            entries_rollback(registry, slots, i);
            return status;
        }
        fresh_count += fresh;
    }
    if (fresh_count > 0) {
        ferry_snapshot_changed(registry);
        atomic_fetch_add_explicit(&registry->generation, 1, memory_order_release);
    }
    return FERRY_OK;
}

enum ferry_status ferry_registry_register(struct ferry_registry *registry,
                                          const struct ferry_registry_spec *specs, uint32_t count)
{
    if (count > FERRY_REGISTRY_BUFFERS_MAX) {
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "register: %" PRIu32 " ranges in a call; the limit is %u", count,
                          FERRY_REGISTRY_BUFFERS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        enum ferry_status status = spec_check(registry, &specs[i]);

        if (status != FERRY_OK)
            return status;
    }
    if (count == 0)
        return FERRY_OK;

    FERRY_AUTO_FREE struct ferry_registration **slots = calloc(count, sizeof(*slots));
    bool complete = slots != NULL;
    for (uint32_t i = 0; complete && i < count; i++) {
        slots[i] = entry_create(registry, &specs[i]);
        complete = slots[i] != NULL;
    }

    enum ferry_status status;
    if (complete) {
        pthread_mutex_lock(&registry->mutex);
        status = entries_apply(registry, slots, count);
        pthread_mutex_unlock(&registry->mutex);
    } else {
        status = ferry_fail(FERRY_ERR_NO_MEMORY, "register: out of memory for %" PRIu32 " ranges",
                            count);
    }
    /* On failure the slots hold what was prepared and not used; on success the set owns them. */
    for (uint32_t i = 0; slots != NULL && status != FERRY_OK && i < count; i++)
        free(slots[i]);
    return status;
}

static void describe(const struct ferry_registration *entry,
                     struct ferry_registry_buffer *buffer_out)
{
    *buffer_out = (struct ferry_registry_buffer){.addr = entry->addr,
                                                 .length = entry->length,
                                                 .registration_id = entry->id,
                                                 .permission = entry->permission,
                                                 .fd = -1};
    memcpy(buffer_out->location, entry->location, sizeof(buffer_out->location));
}

enum ferry_status ferry_registry_list(struct ferry_registry *registry,
                                      struct ferry_registry_list *list_out)
{
    uint32_t count = 0;

    pthread_mutex_lock(&registry->mutex);
    struct ferry_registry_buffer *buffers = calloc(registry->count > 0 ? registry->count : 1,
                                                   sizeof(*buffers));
    for (uint32_t i = 0; buffers != NULL && i < registry->count; i++) {
        if (!ferry_gate_hidden(registry->entries[i]))
            describe(registry->entries[i], &buffers[count++]);
    }
    uint64_t generation = atomic_load_explicit(&registry->generation, memory_order_relaxed);
    pthread_mutex_unlock(&registry->mutex);

    if (buffers == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "registry: out of memory for the list of buffers");
    *list_out = (struct ferry_registry_list){
        .generation = generation, .buffers = buffers, .count = count};
    return FERRY_OK;
}

void ferry_registry_list_free(struct ferry_registry_list *list)
{
    free(list->buffers);
    memset(list, 0, sizeof(*list));
}

uint64_t ferry_registry_generation(const struct ferry_registry *registry)
{
    /* Pairs with the releases where the published set changes. */
    return atomic_load_explicit(&registry->generation, memory_order_acquire);
}

enum ferry_status ferry_registry_find(struct ferry_registry *registry, uint64_t addr,
                                      uint64_t length, struct ferry_registry_buffer *buffer_out)
{
    bool found = false;

    pthread_mutex_lock(&registry->mutex);
    uint32_t above = ferry_starts_above(registry->starts, registry->count, addr);
    if (above > 0) {
        const struct ferry_registration *entry = registry->entries[above - 1];

        found = !ferry_gate_hidden(entry) &&
                ferry_range_within(addr, length, entry->addr, entry->length);
        if (found)
            describe(entry, buffer_out);
    }
    pthread_mutex_unlock(&registry->mutex);

    if (!found) {
        return ferry_fail(FERRY_ERR_NOT_FOUND,
                          "no registered buffer covers %" PRIu64 " bytes at 0x%" PRIx64, length,
                          addr);
    }
    return FERRY_OK;
}

void ferry_registry_touch(struct ferry_registry *registry)
{
    atomic_fetch_add_explicit(&registry->generation, 1, memory_order_release);
}

uint32_t ferry_registry_count(struct ferry_registry *registry)
{
    pthread_mutex_lock(&registry->mutex);
    uint32_t count = registry->count;
    pthread_mutex_unlock(&registry->mutex);
    return count;
}

uint64_t ferry_registry_lease_count(struct ferry_registry *registry)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&registry->mutex);
    for (uint32_t i = 0; i < registry->count; i++)
        sum += ferry_gate_leases(registry->entries[i]);
    pthread_mutex_unlock(&registry->mutex);
    return sum;
}
