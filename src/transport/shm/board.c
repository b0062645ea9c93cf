/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes, shares and maps the memory of boards and slots. Any thread, no state; the system calls are
 * those on memory descriptors. See board.h for the protocol.
 */
#include "transport/shm/board.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "memory/alloc.h"

static_assert(sizeof(struct shm_slots) == 4096, "a page per peer");
static_assert(sizeof(struct shm_slot) == FERRY_CACHE_LINE, "workers do not share a line");

enum ferry_status ferry_shm_pages_create(const char *name, size_t length, void **map_out,
                                         int *fd_out)
{
    FERRY_AUTO_FD int fd = -1;
    enum ferry_status status = ferry_sealed_create(name, length, &fd);
    void *map;

    if (status != FERRY_OK)
        return status;
    map = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return ferry_fail_errno(errno, "shm: map %zu bytes of %s", length, name);
    *map_out = map;
    *fd_out = ferry_take_fd(&fd);
    return FERRY_OK;
}

enum ferry_status ferry_shm_read_only_fd(int fd, int *fd_out)
{
    char path[48];
    int opened;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0)
        return ferry_fail_errno(errno, "shm: open %s for reading", path);
    *fd_out = opened;
    return FERRY_OK;
}

enum ferry_status ferry_shm_map(int fd, size_t length, bool writable, void **map_out)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat about;
    void *map;

    /* A peer that could shorten it would kill us by SIGBUS. */
    if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: the peer's memory is not sealed");
    if (fstat(fd, &about) != 0 || (uint64_t)about.st_size != length)
        return ferry_fail(FERRY_ERR_PROTOCOL, "shm: the peer's memory has %lld bytes, expected %zu",
                          (long long)about.st_size, length);
    map = mmap(NULL, length, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return ferry_fail_errno(errno, "shm: map %zu bytes of a peer", length);
    *map_out = map;
    return FERRY_OK;
}

bool ferry_shm_slots_hold(const struct shm_slots *slots, uint64_t id)
{
    for (uint32_t i = 0; i < SHM_WORKERS_MAX; i++) {
        /* Sequentially consistent: see board.h. */
        uint64_t held = atomic_load(&slots->slot[i].id);

        if (held != 0 && (id == 0 || held == id))
            return true;
    }
    return false;
}
