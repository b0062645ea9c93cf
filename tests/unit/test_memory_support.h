/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short names for registry calls in the tests of src/memory. Header only; no state of its own.
 */
#ifndef FERRY_TESTS_UNIT_MEMORY_SUPPORT_H
#define FERRY_TESTS_UNIT_MEMORY_SUPPORT_H

#include <string.h>

#include "base/clock.h"
#include "memory/registry.h"
#include "support/test.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

static inline void rig_init(struct ferry_registry *registry)
{
    static const uint32_t nodes[] = {0, 3};
    struct ferry_registry_options options = {
        .random = &ferry_random_system, .numa_nodes = nodes, .numa_node_count = 2};

    assert_ok(ferry_registry_init(registry, &options));
}

static inline struct ferry_registry_spec spec(uint64_t addr, uint64_t length)
{
    return (struct ferry_registry_spec){
        .addr = addr, .length = length, .permission = FERRY_PERMISSION_READ_WRITE};
}

static inline enum ferry_status register_one(struct ferry_registry *registry, uint64_t addr,
                                             uint64_t length)
{
    struct ferry_registry_spec one = spec(addr, length);

    return ferry_registry_register(registry, &one, 1);
}

static inline enum ferry_status unregister_list(struct ferry_registry *registry,
                                                const struct ferry_registry_range *ranges,
                                                uint32_t count)
{
    struct ferry_unregister_plan now = {0};

    return ferry_registry_unregister(registry, ranges, count, &now);
}

static inline enum ferry_status unregister_one(struct ferry_registry *registry, uint64_t addr,
                                               uint64_t length)
{
    struct ferry_registry_range range = {.addr = addr, .length = length};

    return unregister_list(registry, &range, 1);
}

static inline uint64_t id_at(struct ferry_registry *registry, uint64_t addr)
{
    struct ferry_registry_buffer buffer;

    assert_ok(ferry_registry_find(registry, addr, 1, &buffer));
    return buffer.registration_id;
}

static inline uint32_t published(struct ferry_registry *registry)
{
    struct ferry_registry_list list;

    assert_ok(ferry_registry_list(registry, &list));
    uint32_t count = list.count;
    ferry_registry_list_free(&list);
    return count;
}

static inline enum ferry_status lease_for(struct ferry_registry_reader *reader, uint64_t addr,
                                          uint64_t length, uint64_t id, enum ferry_access access,
                                          struct ferry_lease *lease_out)
{
    struct ferry_lease_request request = {
        .addr = addr, .length = length, .registration_id = id, .access = access};

    return ferry_lease_acquire(reader, &request, lease_out);
}

/* The verdict alone: a granted lease is given back at once. */
static inline enum ferry_status probe(struct ferry_registry_reader *reader, uint64_t addr,
                                      uint64_t length, uint64_t id, enum ferry_access access)
{
    struct ferry_lease lease = {0};
    enum ferry_status status = lease_for(reader, addr, length, id, access, &lease);

    ferry_lease_release(&lease);
    return status;
}

static inline void assert_text(const char *part)
{
    if (strstr(ferry_last_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in the text \"%s\"", part, ferry_last_error_text());
}

#endif
