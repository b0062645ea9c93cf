/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory as callers see it. Register: enter into the registry, publish, and take it back
 * if that fails. Unregister, in this order: hide the ranges (no new lease), publish the shorter
 * list, wait for leases until the caller's timeout, ask the holders to let go and have every
 * transport close what still touches the ranges, wait again, finish. Only then is the memory the
 * caller's; else it stays hidden and registered, and the next unregister resumes.
 *
 * Runs on the caller's thread; blocks on the store and on leases, each to a bound.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "memory/alloc.h"
#include "runtime/runtime.h"

#define RANGES_MAX 1048576u

/* How long transports get to close connections and fence devices once leases are revoked. */
#define REVOKE_NS (2 * FERRY_NS_PER_S)

/* The caller's array in the registry's layout. Exactly one of the two outputs is wanted. */
static enum ferry_status copy_ranges(const struct ferry_memory_range *ranges, size_t count,
                                     struct ferry_registry_spec **specs_out,
                                     struct ferry_registry_range **ranges_out)
{
    size_t stride = ranges->struct_size;
    struct ferry_registry_spec *specs = NULL;
    struct ferry_registry_range *plain = NULL;

    if (stride < sizeof(*ranges) || stride > 4096)
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_memory_range: struct_size %zu, expected %zu", stride,
                          sizeof(*ranges));
    if (specs_out != NULL)
        specs = calloc(count, sizeof(*specs));
    else
        plain = calloc(count, sizeof(*plain));
    if (specs == NULL && plain == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory for a list of %zu ranges", count);
    for (size_t i = 0; i < count; i++) {
        struct ferry_memory_range range;

        memcpy(&range, (const unsigned char *)ranges + i * stride, sizeof(range));
        if (range.struct_size != stride) {
            free(specs);
            free(plain);
            return ferry_fail(FERRY_ERR_INVALID,
                              "range %zu: struct_size %zu, the first one's is %zu", i,
                              range.struct_size, stride);
        }
        if (specs != NULL)
            specs[i] = (struct ferry_registry_spec){.addr = (uintptr_t)range.addr,
                                                    .length = range.length,
                                                    .location = range.location,
                                                    .permission = range.permission};
        else
            plain[i] = (struct ferry_registry_range){.addr = (uintptr_t)range.addr,
                                                     .length = range.length};
    }
    if (specs_out != NULL)
        *specs_out = specs;
    else
        *ranges_out = plain;
    return FERRY_OK;
}

static enum ferry_status check_list(const struct ferry_memory_range *ranges, size_t count)
{
    if (count > 0 && ranges == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "%zu ranges at NULL", count);
    if (count > RANGES_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "%zu ranges, at most %u in one call", count,
                          RANGES_MAX);
    return FERRY_OK;
}

/* Every transport closes what touches the removal's ranges; ERR_BUSY if one could not. */
static enum ferry_status revoke_ranges(struct ferry_engine *engine,
                                       const struct ferry_removal *removal, uint64_t deadline_ns)
{
    enum ferry_status result = FERRY_OK;

    for (uint32_t i = 0; i < removal->count; i++) {
        struct ferry_registry_range range = ferry_removal_range(removal, i);

        if (ferry_removal_lease_count(removal, i) == 0)
            continue;
        for (uint32_t t = 0; t < engine->transport_count; t++) {
            struct ferry_transport *transport = engine->transports[t].transport;

            if (transport == NULL || ferry_removal_lease_count(removal, i) == 0)
                continue;
            if (ferry_transport_revoke(transport, (void *)(uintptr_t)range.addr, range.length,
                                       deadline_ns) != FERRY_OK)
                result = FERRY_ERR_BUSY;
        }
    }
    return result;
}

/* In a threadless engine nobody else runs while we wait: let the rig step instead. */
static enum ferry_status wait_quiet(struct ferry_engine *engine, struct ferry_removal *removal,
                                    uint64_t deadline_ns)
{
    if (!engine->seams.threadless)
        return ferry_removal_wait(removal, deadline_ns);
    while (!ferry_removal_quiet(removal)) {
        if (engine->seams.step == NULL || ferry_engine_now(engine) >= deadline_ns)
            return FERRY_ERR_BUSY;
        engine->seams.step(engine->seams.step_arg);
    }
    return FERRY_OK;
}

/* The transports let go of what is hidden; ERR_BUSY if a device does not. */
static enum ferry_status remove_buffers(struct ferry_engine *engine,
                                        const struct ferry_removal *removal, uint64_t deadline_ns)
{
    enum ferry_status result = FERRY_OK;

    for (uint32_t i = 0; i < removal->count; i++) {
        uint64_t id = ferry_removal_hidden_id(removal, i);

        for (uint32_t t = 0; t < engine->transport_count && id != 0; t++) {
            struct ferry_transport *transport = engine->transports[t].transport;

            if (transport != NULL &&
                ferry_transport_remove_buffer(transport, id, deadline_ns) != FERRY_OK)
                result = FERRY_ERR_BUSY;
        }
    }
    return result;
}

/* The descriptor of memory that was allocated here and can be shared; else -1. */
static int shared_fd(struct ferry_engine *engine, const struct ferry_registry_buffer *buffer)
{
    struct ferry_list *head = &engine->allocations;
    int fd = -1;

    pthread_mutex_lock(&engine->memory_mutex);
    for (struct ferry_list *link = head->next; link != head && fd < 0; link = link->next) {
        const struct ferry_pages *pages =
            &FERRY_CONTAINER_OF(link, struct ferry_allocation, link)->pages;

        if ((uintptr_t)pages->addr == buffer->addr && pages->length == buffer->length)
            fd = pages->fd;
    }
    pthread_mutex_unlock(&engine->memory_mutex);
    return fd;
}

/* Every transport learns of the ranges, in the order of the list. */
static enum ferry_status add_buffers(struct ferry_engine *engine,
                                     const struct ferry_registry_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ferry_registry_buffer buffer;
        enum ferry_status status = ferry_registry_find(&engine->registry, specs[i].addr,
                                                       specs[i].length, &buffer);

        if (status == FERRY_OK)
            buffer.fd = shared_fd(engine, &buffer);
        for (uint32_t t = 0; t < engine->transport_count && status == FERRY_OK; t++) {
            if (engine->transports[t].transport != NULL)
                status = ferry_transport_add_buffer(engine->transports[t].transport, &buffer);
        }
        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

/* From "hidden" to "gone". On failure the removal was abandoned. */
static enum ferry_status remove_hidden(struct ferry_engine *engine, struct ferry_removal *removal,
                                       uint64_t timeout_ns)
{
    /* A bound even where the caller gave none: centuries fit into the arithmetic, "never" does not.
     */
    uint64_t deadline_ns = ferry_deadline_ns(ferry_engine_now(engine), timeout_ns);
    enum ferry_status status;

    if (deadline_ns == FERRY_NEVER_NS)
        deadline_ns--;
    status = wait_quiet(engine, removal, deadline_ns);
    if (status != FERRY_OK) {
        uint64_t revoke_ns = ferry_deadline_ns(ferry_engine_now(engine), REVOKE_NS);

        ferry_removal_revoke(removal);
        ferry_keeper_poke(engine);
        revoke_ranges(engine, removal, revoke_ns);
        status = wait_quiet(engine, removal, revoke_ns);
    }
    /* Peers reach the memory without a lease where a device serves them. */
    if (status == FERRY_OK)
        status = remove_buffers(engine, removal,
                                ferry_deadline_ns(ferry_engine_now(engine), REVOKE_NS));
    if (status == FERRY_OK)
        status = ferry_removal_finish(removal);
    if (status != FERRY_OK) {
        status = ferry_fail(FERRY_ERR_BUSY,
                            "memory is still in use by a device; it stays hidden and registered, "
                            "call again");
        ferry_removal_abandon(removal);
    }
    return status;
}

/* A registration that could not be published is taken back; what ran on it meanwhile is ended. */
static void roll_back(struct ferry_engine *engine, const struct ferry_registry_spec *specs,
                      uint32_t count)
{
    FERRY_AUTO_FREE struct ferry_registry_range *ranges = calloc(count, sizeof(*ranges));
    struct ferry_removal removal = {0};

    if (ranges == NULL) {
        ferry_error("runtime", "no memory to take an unpublished registration back");
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        ranges[i] = (struct ferry_registry_range){.addr = specs[i].addr, .length = specs[i].length};
    if (ferry_registry_hide(&engine->registry, ranges, count, &removal) != FERRY_OK ||
        remove_hidden(engine, &removal, 0) != FERRY_OK)
        ferry_error("runtime", "an unpublished registration could not be taken back: %s",
                    ferry_last_error_text());
}

enum ferry_status ferry_memory_register(struct ferry_engine *engine,
                                        const struct ferry_memory_range *ranges, size_t count)
{
    FERRY_AUTO_FREE struct ferry_registry_spec *specs = NULL;
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    char cause[FERRY_ERROR_TEXT_SIZE];

    if (status == FERRY_OK)
        status = check_list(ranges, count);
    if (status != FERRY_OK || count == 0)
        return status;
    if (ferry_engine_closing(engine))
        return ferry_fail(FERRY_ERR_CLOSING, "the engine is closing");
    status = copy_ranges(ranges, count, &specs, NULL);
    if (status == FERRY_OK)
        status = ferry_registry_register(&engine->registry, specs, (uint32_t)count);
    if (status != FERRY_OK)
        return status;
    status = add_buffers(engine, specs, (uint32_t)count);
    if (status == FERRY_OK)
        status = ferry_local_publish(engine);
    if (status == FERRY_OK)
        return FERRY_OK;
    strncpy(cause, ferry_last_error_text(), sizeof(cause) - 1);
    cause[sizeof(cause) - 1] = '\0';
    roll_back(engine, specs, (uint32_t)count);
    return ferry_fail(status, "%s", cause);
}

/* What follows a successful hide. */
static enum ferry_status finish_removal(struct ferry_engine *engine, struct ferry_removal *removal,
                                        uint64_t timeout_ns)
{
    enum ferry_status published = ferry_local_publish(engine);
    enum ferry_status status = remove_hidden(engine, removal, timeout_ns);

    if (status == FERRY_OK && published != FERRY_OK)
        return ferry_fail(FERRY_ERR_METADATA,
                          "the memory is free, but the description was not published: %s",
                          ferry_status_text(published));
    return status;
}

enum ferry_status ferry_memory_unregister(struct ferry_engine *engine,
                                          const struct ferry_memory_range *ranges, size_t count,
                                          uint64_t timeout_ns)
{
    FERRY_AUTO_FREE struct ferry_registry_range *plain = NULL;
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_removal removal = {0};

    if (status == FERRY_OK)
        status = check_list(ranges, count);
    if (status != FERRY_OK || count == 0)
        return status;
    status = copy_ranges(ranges, count, NULL, &plain);
    if (status == FERRY_OK)
        status = ferry_registry_hide(&engine->registry, plain, (uint32_t)count, &removal);
    return status == FERRY_OK ? finish_removal(engine, &removal, timeout_ns) : status;
}

/* Some transport in use gives memory to peers by descriptor. */
static bool wants_shared(const struct ferry_engine *engine)
{
    for (uint32_t t = 0; t < engine->transport_count; t++) {
        const struct ferry_transport *transport = engine->transports[t].transport;

        if (transport != NULL && (transport->ops->caps & FERRY_CAP_SHARED) != 0)
            return true;
    }
    return false;
}

static void put_allocation(struct ferry_engine *engine, struct ferry_allocation *allocation)
{
    pthread_mutex_lock(&engine->memory_mutex);
    ferry_list_push_back(&engine->allocations, &allocation->link);
    pthread_mutex_unlock(&engine->memory_mutex);
}

static void drop_allocation(struct ferry_engine *engine, struct ferry_allocation *allocation)
{
    pthread_mutex_lock(&engine->memory_mutex);
    ferry_list_remove(&allocation->link);
    pthread_mutex_unlock(&engine->memory_mutex);
    ferry_pages_free(&allocation->pages);
    free(allocation);
}

enum ferry_status ferry_memory_alloc(struct ferry_engine *engine, uint64_t length,
                                     const char *location, enum ferry_permission permission,
                                     void **addr_out)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_pages_options options = {
        .huge = true, .populate = true, .sealed = permission != FERRY_PERMISSION_READ_WRITE};
    struct ferry_allocation *allocation;

    if (status != FERRY_OK)
        return status;
    if (addr_out == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "memory: nowhere to put the address");
    status = ferry_location_parse(location, &options.location);
    if (status != FERRY_OK)
        return status;
    options.shared = permission != FERRY_PERMISSION_LOCAL && wants_shared(engine);
    allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "memory: out of memory");
    status = ferry_pages_alloc(length, &options, &allocation->pages);
    if (status != FERRY_OK) {
        free(allocation);
        return status;
    }
    /* On the list first: transports ask it for the descriptor. */
    put_allocation(engine, allocation);
    range.addr = allocation->pages.addr;
    range.length = allocation->pages.length;
    range.location = location;
    range.permission = permission;
    status = ferry_memory_register(engine, &range, 1);
    if (status != FERRY_OK) {
        drop_allocation(engine, allocation);
        return status;
    }
    *addr_out = range.addr;
    return FERRY_OK;
}

/* Off the list, so that two threads cannot free the same; NULL if the address is none of ours. */
static struct ferry_allocation *take_allocation(struct ferry_engine *engine, const void *addr)
{
    struct ferry_allocation *found = NULL;
    struct ferry_list *head = &engine->allocations;

    pthread_mutex_lock(&engine->memory_mutex);
    for (struct ferry_list *link = head->next; link != head && found == NULL; link = link->next) {
        struct ferry_allocation *allocation = FERRY_CONTAINER_OF(link, struct ferry_allocation,
                                                                 link);

        if (allocation->pages.addr == addr)
            found = allocation;
    }
    if (found != NULL)
        ferry_list_remove(&found->link);
    pthread_mutex_unlock(&engine->memory_mutex);
    return found;
}

static void unmap(struct ferry_allocation *allocation)
{
    ferry_pages_free(&allocation->pages);
    free(allocation);
}

/* The pages may go only with the last registration of them. */
static enum ferry_status unregister_last(struct ferry_engine *engine,
                                         const struct ferry_allocation *allocation,
                                         uint64_t timeout_ns)
{
    struct ferry_registry_range range = {.addr = (uintptr_t)allocation->pages.addr,
                                         .length = allocation->pages.length};
    struct ferry_removal removal = {0};
    enum ferry_status status = ferry_registry_hide(&engine->registry, &range, 1, &removal);

    if (status != FERRY_OK)
        return status;
    if (ferry_removal_hidden_id(&removal, 0) != 0)
        return finish_removal(engine, &removal, timeout_ns);
    ferry_removal_abandon(&removal);
    return ferry_fail(
        FERRY_ERR_BUSY,
        "memory: %p was registered once more with ferry_memory_register(); unregister "
        "it first",
        allocation->pages.addr);
}

enum ferry_status ferry_memory_free(struct ferry_engine *engine, void *addr, uint64_t timeout_ns)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_allocation *allocation;

    if (status != FERRY_OK)
        return status;
    allocation = take_allocation(engine, addr);
    if (allocation == NULL)
        return ferry_fail(FERRY_ERR_NOT_FOUND, "memory: %p was not allocated here", addr);
    status = unregister_last(engine, allocation, timeout_ns);
    if (status == FERRY_OK || status == FERRY_ERR_METADATA) {
        unmap(allocation);
        return status;
    }
    put_allocation(engine, allocation);
    return status;
}

void ferry_memory_release_all(struct ferry_engine *engine, bool *leaked_out)
{
    struct ferry_removal removal = {0};
    struct ferry_list *link;

    *leaked_out = false;
    if (ferry_registry_hide_all(&engine->registry, &removal) == FERRY_OK) {
        if (!ferry_removal_quiet(&removal) || ferry_removal_finish(&removal) != FERRY_OK)
            *leaked_out = true;
        ferry_removal_abandon(&removal);
    }
    if (ferry_registry_lease_count(&engine->registry) != 0)
        *leaked_out = true;
    while ((link = ferry_list_pop_front(&engine->allocations)) != NULL) {
        struct ferry_allocation *allocation = FERRY_CONTAINER_OF(link, struct ferry_allocation,
                                                                 link);

        /* What a device may still write to is leaked on purpose. */
        if (*leaked_out)
            free(allocation);
        else
            unmap(allocation);
    }
}
