/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps, binds, populates and unmaps pages. Any thread, no state; the only system calls are mmap,
 * mbind, madvise and munmap, and for pages that are shared those on memory descriptors. Nothing
 * here touches memory it did not map.
 */
#include "memory/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"

#define HUGE_PAGE_BYTES (2ull << 20)
#define NODES_MAX       1024
#define BITS_PER_WORD   (8 * sizeof(unsigned long))

/* From the kernel's interface, so that libnuma is not needed for two numbers. */
#define MEMPOLICY_BIND 2

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* Map with the start aligned: map one alignment more and give the ends back. */
static void *map_aligned(size_t length, size_t alignment)
{
    size_t slack = alignment > (size_t)sysconf(_SC_PAGESIZE) ? alignment : 0;
    unsigned char *base = mmap(NULL, length + slack, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (base == MAP_FAILED)
        return NULL;
    size_t lead = slack > 0 ? (alignment - (uintptr_t)base % alignment) % alignment : 0;
    if (lead > 0)
        munmap(base, lead);
    if (slack - lead > 0)
        munmap(base + lead + length, slack - lead);
    return base + lead;
}

enum ferry_status ferry_sealed_create(const char *name, uint64_t length, int *fd_out)
{
    FERRY_AUTO_FD int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EACCES))
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "memory descriptors are not to be had here: %s",
                          strerror(errno));
    if (fd < 0)
        return ferry_fail_errno(errno, "memory descriptor for %s", name);
    if (length > INT64_MAX || ftruncate(fd, (off_t)length) != 0)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "memory descriptor of %" PRIu64 " bytes: %s", length,
                          strerror(errno));
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        return ferry_fail_errno(errno, "seal a memory descriptor");
    *fd_out = ferry_take_fd(&fd);
    return FERRY_OK;
}

/* In the place of the private pages: the same addresses, by a descriptor. */
static enum ferry_status share(struct ferry_pages *pages, bool sealed)
{
    enum ferry_status status = ferry_sealed_create("ferry-memory", pages->length, &pages->fd);

    if (status != FERRY_OK)
        return status;
    if (mmap(pages->addr, pages->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, pages->fd,
             0) == MAP_FAILED)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "allocate: no %zu bytes of shared memory: %s",
                          pages->length, strerror(errno));
    /* Our own mapping stays as it is. EINVAL: a kernel before 5.1, where the descriptor that peers
     * are given is all that keeps them from writing. */
    if (sealed && fcntl(pages->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0 && errno != EINVAL)
        return ferry_fail_errno(errno, "allocate: seal memory against writing");
    if (fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SEAL) != 0)
        return ferry_fail_errno(errno, "allocate: seal memory");
    return FERRY_OK;
}

static enum ferry_status bind_node(struct ferry_pages *pages, int32_t node)
{
    unsigned long mask[NODES_MAX / BITS_PER_WORD] = {0};

    if (node < 0 || node >= NODES_MAX)
        return ferry_fail(FERRY_ERR_INVALID, "allocate: this host has no NUMA node %" PRId32, node);
    mask[(size_t)node / BITS_PER_WORD] |= 1ul << ((size_t)node % BITS_PER_WORD);
    /* The kernel reads one bit less than it is told. */
    if (syscall(SYS_mbind, pages->addr, pages->length, MEMPOLICY_BIND, mask, NODES_MAX + 1ul, 0) ==
        0) {
        pages->bound = true;
        return FERRY_OK;
    }
    if (errno == EPERM || errno == ENOSYS)
        return FERRY_OK;
    if (errno == EINVAL) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "allocate: this host has no NUMA node %" PRId32 " with memory for us",
                          node);
    }
    return ferry_fail_errno(errno, "allocate: bind %zu bytes to NUMA node %" PRId32, pages->length,
                            node);
}

static enum ferry_status populate(struct ferry_pages *pages)
{
    int rc;

    do {
        rc = madvise(pages->addr, pages->length, MADV_POPULATE_WRITE);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0)
        return FERRY_OK;
    if (errno != EINVAL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "allocate: %zu bytes cannot be populated: %s",
                          pages->length, strerror(errno));
    }

    /* Linux before 5.14: touch each page by hand. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t offset = 0; offset < pages->length; offset += page)
        ((volatile unsigned char *)pages->addr)[offset] = 0;
    return FERRY_OK;
}

enum ferry_status ferry_pages_alloc(uint64_t length, const struct ferry_pages_options *options,
                                    struct ferry_pages *pages_out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t alignment = length >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : page;
    uint64_t rounded;
    uint64_t with_slack;

    if (length == 0)
        return ferry_fail(FERRY_ERR_INVALID, "allocate: the length is 0");
    if (!ferry_add_u64(length, page - 1, &rounded) ||
        !ferry_add_u64(rounded, alignment, &with_slack) || with_slack > PTRDIFF_MAX) {
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "allocate: %" PRIu64 " bytes are more than an address space holds",
                          length);
    }
    rounded -= rounded % page;

    struct ferry_pages pages = {.length = rounded, .fd = -1};
    pages.addr = map_aligned(pages.length, alignment);
    if (pages.addr == NULL) {
        return ferry_fail(FERRY_ERR_NO_MEMORY, "allocate: no %" PRIu64 " bytes of memory: %s",
                          rounded, strerror(errno));
    }

    enum ferry_status status = FERRY_OK;
    if (options->shared)
        status = share(&pages, options->sealed);
    if (status == FERRY_OK && options->location.numa_node != FERRY_LOCATION_ANY_NODE)
        status = bind_node(&pages, options->location.numa_node);
    /* Advice: a kernel without huge pages serves small ones. */
    if (status == FERRY_OK && options->huge)
        (void)madvise(pages.addr, pages.length, MADV_HUGEPAGE);
    if (status == FERRY_OK && options->populate)
        status = populate(&pages);
    if (status != FERRY_OK) {
        ferry_pages_free(&pages);
        return status;
    }
    *pages_out = pages;
    return FERRY_OK;
}

void ferry_pages_free(struct ferry_pages *pages)
{
    if (pages->addr != NULL) {
        munmap(pages->addr, pages->length);
        ferry_cleanup_fd(&pages->fd);
    }
    memset(pages, 0, sizeof(*pages));
}
