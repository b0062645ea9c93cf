/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry: which ranges of local CPU memory an engine may touch, for whom, and until when.
 *
 * One registry per engine. Registration and unregistration take its one mutex. The data path takes
 * no lock: each worker looks ranges up in an immutable sorted snapshot that its reader caches, and
 * takes a lease, which is one atomic step on the entry. No function here does I/O or knows of a
 * transport; phases that need one (closing connections) are left to the caller.
 *
 * Life of one registration, and of the memory under it:
 *
 *   register ---> PUBLISHED ---hide---> HIDDEN ---no lease left, finish---> gone; the memory is the
 *                 leases are            no new leases; still registered;    caller's again
 *                 granted               an unfinished one can be resumed
 */
#ifndef FERRY_MEMORY_REGISTRY_H
#define FERRY_MEMORY_REGISTRY_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/memory.h>
#include <ferry/status.h>

#include "base/clock.h"
#include "base/compiler.h"

/* Longest location with its terminator. */
#define FERRY_REGISTRY_LOCATION_SIZE 16

/* The default and the ceiling of ferry_registry_options.buffers_max. */
#define FERRY_REGISTRY_BUFFERS_MAX (1u << 20)

struct ferry_registration; /* one entry; opaque */
struct ferry_registry_snapshot;

struct ferry_registry_options {
    struct ferry_random *random; /* required; borrowed for the life of the registry */
    const uint32_t *numa_nodes;  /* OS indices that "cpu:N" may name; copied; NULL accepts node 0 */
    uint32_t numa_node_count;
    uint32_t buffers_max; /* distinct ranges, hidden ones included; 0 means the default */
};

struct ferry_registry {
    /* immutable after init */
    struct ferry_random *random;
    uint32_t *numa_nodes;
    uint32_t numa_node_count;
    uint32_t buffers_max;
    /* any thread, atomic */
    _Atomic uint64_t version;    /* of the look-up set; written under the mutex, read by readers */
    _Atomic uint64_t generation; /* of the published set; written under the mutex */
    _Atomic uint32_t quiet_word; /* futex: grows when a hidden entry loses its last lease */
    _Atomic bool closing;
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    bool initialized;
    uint64_t *starts; /* the ordered set: starts[i] is the address of entries[i] */
    struct ferry_registration **entries;
    uint32_t count;
    uint32_t capacity;
    struct ferry_registration **id_buckets; /* every id that is still remembered */
    uint32_t id_bucket_count;
    uint32_t id_count;
    uint32_t reader_count;
    struct ferry_registry_snapshot *snapshot_newest; /* all that are alive, newest first */
    struct ferry_registry_snapshot
        *snapshot_current; /* holds a reference; NULL: build at next use */
};

/* ERR_INVALID, ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_registry_init(struct ferry_registry *registry,
                                                    const struct ferry_registry_options *options);

/*
 * Free everything, buffers that are still registered included. Accepts a zeroed registry. The
 * caller guarantees that every reader is finished, that no lease is held, and that no thread is
 * inside a call on this registry (ferry_lease_release() included).
 */
void ferry_registry_fini(struct ferry_registry *registry);

/*
 * Grant no lease and accept no registration from now on; when this returns, no acquire that is
 * still running will be granted one. Leases that are held stay valid. Unregistering still works.
 * Any thread, idempotent, takes the mutex.
 */
void ferry_registry_close(struct ferry_registry *registry);

/* Undo close. ERR_BUSY (with text) while a buffer remains, hidden or not. Any thread. */
FERRY_CHECKED enum ferry_status ferry_registry_reopen(struct ferry_registry *registry);

struct ferry_registry_spec {
    uint64_t addr;
    uint64_t length;      /* bytes, > 0 */
    const char *location; /* "*", "cpu:N" or "cpu:-1" (any node); NULL means "*"; copied */
    enum ferry_permission permission;
};

/*
 * Register @count ranges, all or none. An exact duplicate (same address, length, location and
 * permission; also within the list) is counted and keeps its id; every new range gets a fresh,
 * unpredictable, non-zero id. A list of 0 ranges succeeds and changes nothing.
 *
 * Any thread; takes the mutex; allocates. With text that names the range:
 *   ERR_INVALID      NULL, zero length, wrap, bad permission, malformed location, unknown NUMA node
 *   ERR_UNSUPPORTED  a location of another kind than cpu (the text names it)
 *   ERR_EXISTS       partial overlap, same range with other location or permission (names both), or
 *                    a range that is hidden and not yet gone
 *   ERR_TOO_LARGE    buffers_max would be exceeded
 *   ERR_NO_MEMORY
 *   ERR_CLOSING      ferry_registry_close() was called
 */
FERRY_CHECKED enum ferry_status ferry_registry_register(struct ferry_registry *registry,
                                                        const struct ferry_registry_spec *specs,
                                                        uint32_t count);

/*
 * How a range is taken back:
 *
 *   ferry_registry_hide() --> [publish the shorter list] --> ferry_removal_wait() --OK--> finish
 *                                                                  | ERR_BUSY
 *                                    ferry_removal_revoke(); the transports close the connections
 *                                    whose operations hold a lease with ferry_lease_revoked()
 *                                                                  |
 *                                    ferry_removal_wait() --OK--> finish; else
 * ferry_removal_abandon()
 *
 * A removal belongs to one thread at a time. Each successful hide must be followed by exactly one
 * successful finish, or abandon.
 */

struct ferry_registry_range {
    uint64_t addr;
    uint64_t length;
};

struct ferry_removal {
    struct ferry_registry *registry;
    struct ferry_registration **entries; /* one per mention; a range may be there several times */
    uint32_t count;
};

/*
 * Begin to unregister @count ranges, all or none. Each mention of a range takes back one register
 * of it; one that takes back the last hides the range: from the return of this call on, no lease is
 * granted on it and it is absent from ferry_registry_list(). A range that an abandoned removal left
 * hidden may be named again; that resumes it. A list of 0 ranges succeeds.
 *
 * Any thread; takes the mutex; allocates. On failure nothing changed. With text:
 *   ERR_NOT_FOUND  a range is not registered with exactly this address and length (the text names
 *                  what is near), or is named more often than it is registered
 *   ERR_BUSY       another removal in progress has taken the registers that are left
 *   ERR_NO_MEMORY
 */
FERRY_CHECKED enum ferry_status ferry_registry_hide(struct ferry_registry *registry,
                                                    const struct ferry_registry_range *ranges,
                                                    uint32_t count,
                                                    struct ferry_removal *removal_out);

/*
 * Begin to unregister everything that no other removal has taken, with all its duplicates: for the
 * close of an engine. ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_registry_hide_all(struct ferry_registry *registry,
                                                        struct ferry_removal *removal_out);

/* True once no lease is held on what the removal hid. Does not block: for the model rig and loops.
 */
bool ferry_removal_quiet(const struct ferry_removal *removal);

/*
 * Sleep until quiet, at most to @deadline_ns (real CLOCK_MONOTONIC; 0 only looks; FERRY_NEVER_NS
 * sleeps for as long as a holder likes). ERR_BUSY, bare, when the deadline passed first.
 */
FERRY_CHECKED enum ferry_status ferry_removal_wait(const struct ferry_removal *removal,
                                                   uint64_t deadline_ns);

/*
 * Ask the holders to let go: ferry_lease_revoked() is true from now on for leases on what this
 * removal hid. The caller then tells the transports to look. Idempotent; does not block.
 */
void ferry_removal_revoke(const struct ferry_removal *removal);

/*
 * The i-th mention, 0 <= @index < count: its range, and how many leases keep it from being quiet (0
 * if it is not hidden). Valid until finish or abandon.
 */
struct ferry_registry_range ferry_removal_range(const struct ferry_removal *removal,
                                                uint32_t index);
uint32_t ferry_removal_lease_count(const struct ferry_removal *removal, uint32_t index);
/* The id of the i-th mention's range if it goes for good with this removal, else 0. */
uint64_t ferry_removal_hidden_id(const struct ferry_removal *removal, uint32_t index);

/*
 * Drop what was hidden and count down what was not, all or none. ERR_BUSY (with text that names a
 * range and its leases) unless quiet; then the removal is unchanged and still open. On success the
 * memory of ranges that are gone is the caller's again and the removal is zeroed. Takes the mutex.
 */
FERRY_CHECKED enum ferry_status ferry_removal_finish(struct ferry_removal *removal);

/*
 * Give the removal up: what is hidden stays hidden and registered, and naming it in a later
 * ferry_registry_hide() resumes; counted ranges that were not hidden are as before the hide. Zeroes
 * the removal; accepts a zeroed one. Takes the mutex.
 */
void ferry_removal_abandon(struct ferry_removal *removal);

/* Called between the two waits, on the thread that unregisters, under no lock. May block to its own
 * bound. */
typedef void ferry_registry_revoke_fn(void *context, const struct ferry_removal *removal);

struct ferry_unregister_plan {
    uint64_t lease_deadline_ns;       /* until then holders may finish on their own */
    uint64_t revoke_deadline_ns;      /* until then revoked holders may let go */
    ferry_registry_revoke_fn *revoke; /* NULL: revoked leases are only marked */
    void *context;
};

/*
 * All phases in the order drawn above, for callers that publish nothing. ERR_BUSY (with text) when
 * not quiet by revoke_deadline_ns: the ranges stay hidden and registered, and calling again
 * resumes. Otherwise as ferry_registry_hide().
 */
FERRY_CHECKED enum ferry_status ferry_registry_unregister(struct ferry_registry *registry,
                                                          const struct ferry_registry_range *ranges,
                                                          uint32_t count,
                                                          const struct ferry_unregister_plan *plan);

/* One per worker or submit slot; used by one thread at a time. Keeps at most one snapshot alive. */
struct ferry_registry_reader {
    struct ferry_registry *registry;
    struct ferry_registry_snapshot *snapshot; /* NULL until first use */
};

/* Takes the mutex; does not allocate; cannot fail. */
void ferry_registry_reader_init(struct ferry_registry_reader *reader,
                                struct ferry_registry *registry);
/* Accepts a zeroed reader. Leases that were taken through it stay valid. */
void ferry_registry_reader_fini(struct ferry_registry_reader *reader);

enum ferry_access {
    FERRY_ACCESS_LOCAL = 0, /* our own source or destination: any permission will do */
    FERRY_ACCESS_READ = 1,  /* a peer reads our memory */
    FERRY_ACCESS_WRITE = 2, /* a peer writes our memory */
};

struct ferry_lease_request {
    uint64_t addr; /* any values: they may come from a peer unchecked */
    uint64_t length;
    uint64_t registration_id; /* LOCAL: 0 takes whichever is there; READ, WRITE: must match */
    enum ferry_access access;
};

/* Move it by plain assignment; exactly one copy is released. Zeroed means "none held". */
struct ferry_lease {
    struct ferry_registration *entry;
    uint64_t owner; /* the holder's own mark, 0 after acquire; the registry never reads it */
};

/*
 * Take a lease: while it is held, the range stays registered and the memory may be touched as
 * asked.
 *
 * The hot path: a version check, a binary search, one compare-and-swap. No lock, no system call, no
 * allocation, no text; only the first call on a reader after a registration changed takes the mutex
 * and may build a snapshot. All verdicts are bare, decided in this order (LOCAL in brackets):
 *   ERR_RANGE         length 0 or a range that wraps                 [ERR_INVALID]
 *   ERR_PEER_CLOSING  the registry is closing                        [ERR_CLOSING]
 *   ERR_NO_MEMORY     the snapshot could not be built (any access)
 *   ERR_RANGE         no one published buffer covers the whole range [ERR_INVALID]
 *   ERR_STALE_KEY     the buffer has another id                      [same, if an id was given]
 *   ERR_PERMISSION    local-only buffer, or WRITE to read-only       [never]
 *   ERR_QUEUE_FULL    2^28 leases are held on the buffer (any access)
 */
FERRY_CHECKED enum ferry_status ferry_lease_acquire(struct ferry_registry_reader *reader,
                                                    const struct ferry_lease_request *request,
                                                    struct ferry_lease *lease_out);

/*
 * Give it back and zero it. The holder must have stopped touching the memory: an unregister on
 * another thread may return at once. Any thread; one atomic step, plus one wake-up if it was the
 * last lease on a hidden range. Accepts a zeroed lease.
 */
void ferry_lease_release(struct ferry_lease *lease);

static inline bool ferry_lease_held(const struct ferry_lease *lease)
{
    return lease->entry != NULL;
}

/* True if the buffer under a held lease covers the whole range: then the lease is good for it too.
 */
bool ferry_lease_covers(const struct ferry_lease *lease, uint64_t addr, uint64_t length);

/*
 * One more lease on what @held is on, also if it is hidden or revoked meanwhile. @held stays as it
 * is. Any thread that knows @held to be held; one atomic step. ERR_QUEUE_FULL, bare.
 */
FERRY_CHECKED enum ferry_status ferry_lease_share(const struct ferry_lease *held,
                                                  struct ferry_lease *lease_out);

/* True if an unregister wants the memory back now: end the operation, or close its connection. */
bool ferry_lease_revoked(const struct ferry_lease *lease);

/* The id of the buffer under a held lease. */
uint64_t ferry_lease_registration_id(const struct ferry_lease *lease);

struct ferry_registry_buffer {
    uint64_t addr;
    uint64_t length;
    uint64_t registration_id;
    enum ferry_permission permission;
    char location[FERRY_REGISTRY_LOCATION_SIZE];
    int fd; /* borrowed: of exactly this memory, sealed; -1, which is all the registry knows of */
};

struct ferry_registry_list {
    uint64_t generation;                   /* of exactly this content */
    struct ferry_registry_buffer *buffers; /* ascending addresses */
    uint32_t count;
};

/*
 * Copy the published set (hidden ranges left out, local-only ones included) with its generation.
 * Takes the mutex; allocates. ERR_NO_MEMORY. Freed by ferry_registry_list_free().
 */
FERRY_CHECKED enum ferry_status ferry_registry_list(struct ferry_registry *registry,
                                                    struct ferry_registry_list *list_out);
void ferry_registry_list_free(struct ferry_registry_list *list);

/*
 * Grows whenever the published set changes: a new range, a hidden range. Counted duplicates change
 * nothing. Publish when it differs from the generation of the list that was published last. Any
 * thread, no lock.
 */
uint64_t ferry_registry_generation(const struct ferry_registry *registry);

/* What is published of the set has changed without it, such as a device's keys: publish anew. */
void ferry_registry_touch(struct ferry_registry *registry);

/* The published buffer that covers all of a range. ERR_NOT_FOUND, with text. Takes the mutex. */
FERRY_CHECKED enum ferry_status ferry_registry_find(struct ferry_registry *registry, uint64_t addr,
                                                    uint64_t length,
                                                    struct ferry_registry_buffer *buffer_out);

/* Distinct ranges, hidden ones included. */
uint32_t ferry_registry_count(struct ferry_registry *registry);

/* Leases held on all ranges now: for tests, logs and shutdown reports. */
uint64_t ferry_registry_lease_count(struct ferry_registry *registry);

#endif
