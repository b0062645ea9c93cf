/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk of a request, with the lease that covers it. Runs on the holder of a worker's baton.
 * Must not touch a byte of the peer before its slot says so, and not after the slot was cleared.
 */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/copy.h"
#include "transport/shm/internal.h"

#define VERDICT(code, error, text)                                                                 \
    (struct shm_verdict)                                                                           \
    {                                                                                              \
        .status = (code), .native = (error), .where = (text)                                       \
    }
#define PARKED                                                                                     \
    (struct shm_verdict)                                                                           \
    {                                                                                              \
        .parked = true                                                                             \
    }

static struct shm_link *link_of(const struct shm_op *op)
{
    return FERRY_CONTAINER_OF(op->xfer->target, struct shm_target, base)->link;
}

/* Ask the meeting thread for something that `flag` did not say yet. */
static void ask(struct shm_link *link, _Atomic bool *flag)
{
    if (!atomic_exchange(flag, true))
        ferry_shm_meet_wake(link->transport);
}

static struct shm_verdict peer_gone(const struct shm_op *op)
{
    /* What was written before it died is gone with it, or not: nobody can say. */
    if (op->xfer->opcode == FERRY_WRITE && atomic_load(&op->moved) > 0)
        return VERDICT(FERRY_ERR_OUTCOME_UNKNOWN, 0, "shm: the peer died in the middle of a WRITE");
    return VERDICT(FERRY_ERR_PEER_GONE, 0, "shm: the peer is gone");
}

static struct shm_verdict map_ready(struct shm_link *link, struct shm_map *map)
{
    uint32_t idle = SHM_MAP_IDLE;

    /* Acquire pairs with the release of the meeting thread: the mapping. */
    switch ((enum shm_map_state)atomic_load_explicit(&map->state, memory_order_acquire)) {
    case SHM_MAP_READY:
        break;
    case SHM_MAP_IDLE:
        if (atomic_compare_exchange_strong(&map->state, &idle, SHM_MAP_WANTED))
            ask(link, &link->wanted);
        return PARKED;
    case SHM_MAP_WANTED:
    case SHM_MAP_ASKED:
        return PARKED;
    case SHM_MAP_GONE:
        return VERDICT(FERRY_ERR_STALE_KEY, 0, "shm: the peer has taken the buffer back");
    }
    if (!map->mapped && !link->vm_works)
        return VERDICT(FERRY_ERR_UNSUPPORTED, 0,
                       "shm: unavailable for this buffer: it could not be mapped");
    return VERDICT(FERRY_OK, 0, NULL);
}

struct shm_verdict ferry_shm_ready(struct shm_op *op)
{
    struct shm_link *link = link_of(op);

    /* Acquire pairs with the release of the meeting thread: board, slots, vm_works. */
    switch ((enum shm_link_state)atomic_load_explicit(&link->state, memory_order_acquire)) {
    case SHM_LINK_NEW:
        ask(link, &link->asked);
        return PARKED;
    case SHM_LINK_MEETING:
        return PARKED;
    case SHM_LINK_REFUSED:
        ask(link, &link->asked);
        return VERDICT(FERRY_ERR_UNSUPPORTED, 0,
                       "shm: unavailable for this peer: it could not be met");
    case SHM_LINK_DEAD:
        ask(link, &link->asked);
        return peer_gone(op);
    case SHM_LINK_READY:
        break;
    }
    if (!op->buffer->attr.shared && !link->vm_works)
        return VERDICT(FERRY_ERR_UNSUPPORTED, 0,
                       "shm: unavailable for this buffer: the kernel does not let us reach it");
    return map_ready(link, op->buffer->map);
}

/* Both are mapped here. */
static struct shm_verdict copy_mapped(struct shm_op *op, const struct shm_map *map, uint64_t offset,
                                      uint64_t length)
{
    const struct shm_settings *settings = &link_of(op)->transport->settings;
    const struct ferry_xfer *xfer = op->xfer;
    uint64_t addr = xfer->remote_addr + offset;
    bool streaming = settings->streaming_bytes > 0 && xfer->length >= settings->streaming_bytes;
    unsigned char *remote;
    unsigned char *local = xfer->local + offset;
    bool read = xfer->opcode == FERRY_READ;

    remote = map->base + (addr - map->addr);
    if (streaming)
        ferry_copy_streaming(read ? local : remote, read ? remote : local, length);
    else
        memcpy(read ? local : remote, read ? remote : local, length);
    atomic_fetch_add_explicit(&op->moved, length, memory_order_relaxed);
    return VERDICT(FERRY_OK, 0, NULL);
}

static struct shm_verdict vm_failure(const struct shm_op *op, int error)
{
    switch (error) {
    case ESRCH:
        return peer_gone(op);
    case EFAULT:
        return VERDICT(FERRY_ERR_RANGE, error,
                       "shm: the memory of the peer, or ours, is not there any more");
    case ENOMEM:
        return VERDICT(FERRY_ERR_NO_MEMORY, error, "shm: the kernel has no memory for a copy");
    default:
        return VERDICT(FERRY_ERR_UNSUPPORTED, error,
                       "shm: unavailable for this buffer: the kernel refuses the copy");
    }
}

/* The kernel copies between the two address spaces. */
static struct shm_verdict copy_vm(struct shm_op *op, uint64_t offset, uint64_t length)
{
    const struct shm_link *link = link_of(op);
    const struct ferry_xfer *xfer = op->xfer;
    struct iovec local = {.iov_base = xfer->local + offset, .iov_len = length};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)(xfer->remote_addr + offset),
                           .iov_len = length};

    /* Else its number may be another process's already. */
    if (ferry_shm_peer_dead(&link->peer))
        return peer_gone(op);
    while (local.iov_len > 0) {
        ssize_t got = xfer->opcode == FERRY_READ
                          ? process_vm_readv(link->peer.pid, &local, 1, &remote, 1, 0)
                          : process_vm_writev(link->peer.pid, &local, 1, &remote, 1, 0);

        if (got <= 0)
            return vm_failure(op, got < 0 ? errno : EFAULT);
        local.iov_base = (char *)local.iov_base + got;
        remote.iov_base = (char *)remote.iov_base + got;
        local.iov_len -= (size_t)got;
        remote.iov_len -= (size_t)got;
        atomic_fetch_add_explicit(&op->moved, (uint64_t)got, memory_order_relaxed);
    }
    return VERDICT(FERRY_OK, 0, NULL);
}

static struct shm_verdict copy_leased(struct shm_op *op, uint64_t offset, uint64_t length)
{
    struct shm_link *link = link_of(op);
    const struct shm_map *map = op->buffer->map;
    struct shm_verdict verdict;

    /* By what the peer itself has said: its description may have been somebody else's. */
    if (!ferry_range_within(op->xfer->remote_addr + offset, length, map->addr, map->length))
        return VERDICT(FERRY_ERR_RANGE, 0, "shm: the range is not inside the buffer of the peer");
    if (op->xfer->opcode == FERRY_WRITE && !map->writable)
        return VERDICT(FERRY_ERR_PERMISSION, 0, "shm: the buffer of the peer is read-only");
    verdict = map->mapped ? copy_mapped(op, map, offset, length) : copy_vm(op, offset, length);
    if (verdict.status == FERRY_OK)
        atomic_fetch_add_explicit(map->mapped ? &link->bytes_mapped : &link->bytes_vm, length,
                                  memory_order_relaxed);
    /* A peer that died meanwhile has not got it. */
    if (verdict.status == FERRY_OK && atomic_load(&link->state) != SHM_LINK_READY)
        return peer_gone(op);
    return verdict;
}

struct shm_verdict ferry_shm_copy(struct shm_worker *worker, struct shm_op *op, uint64_t offset,
                                  uint64_t length)
{
    struct shm_link *link = link_of(op);
    const struct shm_buffer_attr *attr = &op->buffer->attr;
    struct shm_slot *slot = &link->slots->slot[worker->index];
    struct shm_verdict verdict;

    FERRY_DASSERT(ferry_worker_is_current(worker->worker));
    /* Relaxed: for people; the id decides. */
    atomic_store_explicit(&slot->addr, op->xfer->remote_addr + offset, memory_order_relaxed);
    atomic_store_explicit(&slot->length, length, memory_order_relaxed);
    if (ferry_shm_lease_enter(slot, link->board, attr->index, attr->registration_id)) {
        verdict = copy_leased(op, offset, length);
        ferry_shm_lease_leave(slot);
        return verdict;
    }
    if (atomic_load(&link->board->closing) != 0)
        return peer_gone(op);
    return VERDICT(FERRY_ERR_STALE_KEY, 0, "shm: the registration is not there any more");
}
