/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-aligned memory straight from the kernel, optionally bound to a NUMA node and populated.
 * Knows nothing of registrations.
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
};

struct ferry_pages_options {
    struct ferry_location location; /* node ANY binds nothing */
    bool populate; /* fault every page in now, so that lack of memory is an error here and not later
                    */
    bool huge;     /* ask for transparent huge pages */
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

/* Unmap and zero. Accepts a zeroed one. */
void ferry_pages_free(struct ferry_pages *pages);

#endif
