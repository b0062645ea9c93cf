/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered memory: ranges of this process that transfers may read or write.
 *
 * Only registered memory moves. A range registered as global can be reached by peers; a local one
 * serves as source or destination of this process's own requests. Example: examples/serve.c.
 */
#ifndef FERRY_MEMORY_H
#define FERRY_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ferry_engine;

/** What peers may do with a registered range. */
enum ferry_permission {
    FERRY_PERMISSION_LOCAL = 0,      /* this process only; not published */
    FERRY_PERMISSION_READ_ONLY = 1,  /* peers may READ */
    FERRY_PERMISSION_READ_WRITE = 2, /* peers may READ and WRITE */
};

/** One range to register or unregister. */
struct ferry_memory_range {
    size_t struct_size;   /* sizeof(struct ferry_memory_range); the stride of an array */
    void *addr;           /* not NULL; any alignment */
    uint64_t length;      /* bytes, > 0; addr + length must not wrap */
    const char *location; /* "cpu:N" (N = NUMA node, -1 any) or "*"; NULL means "*" */
    enum ferry_permission permission;
};

/* The usual range: any location, readable and writable by peers. */
#define FERRY_MEMORY_RANGE_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(struct ferry_memory_range),                                          \
        .permission = FERRY_PERMISSION_READ_WRITE                                                  \
    }

/**
 * ferry_memory_register() - make ranges of memory available to transfers.
 * @engine: an open engine.
 * @ranges: array of ranges; NULL only if @count is 0.
 * @count:  number of ranges, 0 to 1048576. 0 does nothing and succeeds.
 *
 * All or nothing: on failure no range of this call is registered. Registering exactly the same
 * range again (address, length, location, permission) is counted, and needs as many unregister
 * calls; a partial overlap is refused and the text names both ranges. On return the description
 * that peers read names all of them; it is published once per call, whatever @count is.
 *
 * Ownership: the memory stays the caller's; it must stay mapped until unregistered. @ranges and the
 * strings in it are copied.
 * Threads: any thread, not from a callback. Blocks while the description is published (metadata
 *   store).
 * Return:
 *   FERRY_OK               all ranges are registered.
 *   FERRY_ERR_INVALID      NULL, zero length, wrap, or a location that cannot be parsed.
 *   FERRY_ERR_UNSUPPORTED  memory that is not ordinary memory of this host (such as "cuda:0").
 *   FERRY_ERR_EXISTS       overlaps another range, or differs in permission or location.
 *   FERRY_ERR_TOO_LARGE    more ranges than the engine's limit, or a description over the store's.
 *   FERRY_ERR_STATE        called from a callback.
 *   FERRY_ERR_NO_MEMORY, FERRY_ERR_METADATA, FERRY_ERR_CLOSING, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_memory_register(struct ferry_engine *engine,
                                                          const struct ferry_memory_range *ranges,
                                                          size_t count);

/**
 * ferry_memory_unregister() - take ranges back.
 * @engine:     an open engine.
 * @ranges:     array of ranges; only addr and length count. NULL only if @count is 0.
 * @count:      number of ranges. Naming one twice needs two registrations.
 * @timeout_ns: how long running transfers may finish, in nanoseconds; 0 does not wait.
 *
 * The list is checked first: if one range is not registered exactly so, nothing changes. Then the
 * ranges are hidden from new transfers, running ones get until the timeout, and after that the
 * connections whose transfers still touch a range are closed. When this returns FERRY_OK nothing
 * can touch the memory any more and it may be unmapped.
 *
 * Ownership: on FERRY_OK the memory is the caller's alone; on FERRY_ERR_BUSY it is still in use.
 * Threads: any thread, not from a callback. Blocks.
 * Return:
 *   FERRY_OK             done; nothing touches the ranges.
 *   FERRY_ERR_NOT_FOUND  a range is not registered with this address and length; nothing changed.
 *   FERRY_ERR_BUSY       a device still uses a range: it stays hidden; call again to resume. Or
 *                        another call is taking the range back: nothing changed.
 *   FERRY_ERR_METADATA   the memory is free, but the description could not be published.
 *   FERRY_ERR_STATE      called from a callback.
 *   FERRY_ERR_INVALID, FERRY_ERR_TOO_LARGE (too many ranges in a call), FERRY_ERR_NO_MEMORY,
 *   FERRY_ERR_FORKED: nothing changed.
 */
FERRY_API_CHECKED enum ferry_status ferry_memory_unregister(struct ferry_engine *engine,
                                                            const struct ferry_memory_range *ranges,
                                                            size_t count, uint64_t timeout_ns);

/**
 * ferry_memory_alloc() - allocate page-aligned memory and register it.
 * @engine:     an open engine.
 * @length:     bytes, > 0; rounded up to whole pages.
 * @location:   "cpu:N", "*", or NULL for "*".
 * @permission: as in ferry_memory_register().
 * @addr_out:   the address.
 *
 * Every page is there when this returns, so that no transfer meets a page fault and a lack of
 * memory is an error here. The content is zero.
 *
 * Ownership: the caller's, until ferry_memory_free().
 * Threads: any thread, not from a callback. Blocks while the description is published.
 * Return: as ferry_memory_register().
 */
FERRY_API_CHECKED enum ferry_status ferry_memory_alloc(struct ferry_engine *engine, uint64_t length,
                                                       const char *location,
                                                       enum ferry_permission permission,
                                                       void **addr_out);

/**
 * ferry_memory_free() - unregister and free memory of ferry_memory_alloc().
 * @engine:     an open engine.
 * @addr:       an address that ferry_memory_alloc() gave.
 * @timeout_ns: as in ferry_memory_unregister().
 *
 * Ownership: on FERRY_OK and FERRY_ERR_METADATA the memory is gone; on any other failure it still
 *   exists.
 * Threads: any thread, not from a callback. Blocks.
 * Return:
 *   FERRY_OK             gone.
 *   FERRY_ERR_METADATA   gone all the same, but the description could not be published.
 *   FERRY_ERR_NOT_FOUND  ferry_memory_alloc() did not give this address.
 *   FERRY_ERR_BUSY       as in ferry_memory_unregister(); or the range was registered once more
 *                        with ferry_memory_register() and not unregistered: nothing changed.
 *   FERRY_ERR_STATE, FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED: nothing changed.
 */
FERRY_API_CHECKED enum ferry_status ferry_memory_free(struct ferry_engine *engine, void *addr,
                                                      uint64_t timeout_ns);

#ifdef __cplusplus
}
#endif

#endif
