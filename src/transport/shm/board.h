/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two pieces of memory through which peers agree about a range without a message.
 *
 *   board: one per engine, written by it, read by its peers. Entry i holds the registration id of
 *          the buffer in place i, or 0. Ids are random and never used again, so an id is the
 *          generation of its place as well.
 *   slots: one page per peer, made by the target, written by the initiator: one slot for each of
 *          its workers, which says what the copy that runs now is on.
 *
 *   initiator: slot = id; is board[i] == id?  yes: copy, then slot = 0.  no: slot = 0, no copy
 *   target:    board[i] = 0; wait until no slot holds id; the range is quiet for good
 *
 * Both sides write one word and then read the other's, each sequentially consistent: at least one
 * of them sees what the other wrote. So there is no moment between "may I" and "I do" in which the
 * range could go. The chain is the same as for leases inside one process (memory/registry.h).
 */
#ifndef FERRY_TRANSPORT_SHM_BOARD_H
#define FERRY_TRANSPORT_SHM_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "memory/registry.h"

#define SHM_BOARD_ENTRIES FERRY_REGISTRY_BUFFERS_MAX
#define SHM_WORKERS_MAX   16u

struct shm_board {
    _Atomic uint64_t closing; /* not 0: nothing is to be copied any more */
    _Atomic uint64_t reserved[511];
    _Atomic uint64_t ids[SHM_BOARD_ENTRIES];
};

struct shm_slot {
    _Atomic uint64_t id; /* 0: no copy runs */
    _Atomic uint64_t addr;
    _Atomic uint64_t length;
    _Atomic uint64_t reserved[5];
};

struct shm_slots {
    struct shm_slot slot[64]; /* SHM_WORKERS_MAX of them in use */
};

/* Sealed memory of @length bytes, mapped for reading and writing; the descriptor in *fd_out. */
FERRY_CHECKED enum ferry_status ferry_shm_pages_create(const char *name, size_t length,
                                                       void **map_out, int *fd_out);
/* A descriptor of the same memory that cannot be mapped for writing, for a peer. */
FERRY_CHECKED enum ferry_status ferry_shm_read_only_fd(int fd, int *fd_out);
/*
 * Map what a peer sent: sealed against resizing and of exactly @length bytes, else ERR_PROTOCOL.
 * Only for reading unless @writable.
 */
FERRY_CHECKED enum ferry_status ferry_shm_map(int fd, size_t length, bool writable, void **map_out);

/* Initiator. False: the range is gone, or the peer closes; nothing is held then. */
static inline bool ferry_shm_lease_enter(struct shm_slot *slot, const struct shm_board *board,
                                         uint32_t index, uint64_t id)
{
    atomic_store(&slot->id, id);
    if (atomic_load(&board->ids[index]) == id && atomic_load(&board->closing) == 0)
        return true;
    atomic_store_explicit(&slot->id, 0, memory_order_release);
    return false;
}

/* Release: the last touch of the memory comes before. Pairs with ferry_shm_slots_hold(). */
static inline void ferry_shm_lease_leave(struct shm_slot *slot)
{
    atomic_store_explicit(&slot->id, 0, memory_order_release);
}

/* Target: a copy on the registration runs, or on any if @id is 0. */
bool ferry_shm_slots_hold(const struct shm_slots *slots, uint64_t id);

#endif
