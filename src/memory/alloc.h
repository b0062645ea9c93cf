/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-aligned memory straight from the kernel, optionally bound to a NUMA node and populated, and
 * optionally of a kind that another process can map. Knows nothing of registrations.
 */
#ifndef FERRY_MEMORY_ALLOC_H
#define FERRY_MEMORY_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "memory/location.h"

struct ferry_pages {
    void *addr;    /* NULL: none */
    size_t length; /* whole pages, >= what was asked */
    bool bound;    /* the kernel accepted the NUMA node; false when none was asked */
    int fd;        /* of exactly these pages, sealed against resizing; -1: nobody can map them */
};

struct ferry_pages_options {
    struct ferry_location location; /* node ANY binds nothing */
    bool populate; /* fault every page in now, so that lack of memory is an error here and not later
                    */
    bool huge;     /* ask for transparent huge pages */
    bool shared;   /* by a descriptor that another process can map */
    bool sealed;   /* with `shared`: nobody else can map them for writing, where the kernel has that
                      seal (5.1) */
};

/*
 * Map @length bytes of zeroed memory. 2 MiB and more is aligned to 2 MiB, so that huge pages fit.
 * Binding needs a permission that containers often withhold: EPERM and ENOSYS leave the memory
 * unbound and bound false, which is not an error; a node that does not exist is. Any thread; blocks
 * while populating. With text: ERR_INVALID (0 bytes, unknown node), ERR_TOO_LARGE (rounding or the
 * address space overflows), ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_pages_alloc(uint64_t length,
                                                  const struct ferry_pages_options *options,
                                                  struct ferry_pages *pages_out);

/*
 * A memory descriptor of @length bytes that cannot be made longer or shorter, for mapping.
 * Close-on-exec; the caller's to close. With text: ERR_NO_MEMORY, ERR_LIMIT, ERR_UNSUPPORTED (a
 * kernel or a sandbox without memory descriptors).
 */
FERRY_CHECKED enum ferry_status ferry_sealed_create(const char *name, uint64_t length, int *fd_out);

/* Unmap, close and zero. Accepts a zeroed one. */
void ferry_pages_free(struct ferry_pages *pages);

#endif
