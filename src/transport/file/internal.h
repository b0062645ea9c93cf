/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the file transport: what its files share.
 *
 *   submit --> inbox --> op --> pieces --> batches --> backend --> events --> op ends
 *                         \--> waits while a file is opened by a helper thread
 *
 * One thread, the dispatcher, owns everything that does not say otherwise. Helper threads do what
 * may block: open, close and sync files, and calls into cuFile. They hand their job back through an
 * inbox. No lock is held over a call into a file system or a library.
 *
 *   transport.c  the contract         options.c   settings         target.c   extents
 *   dispatch.c   the thread           ops.c       life of a request
 *   pieces.c     cut, issue, complete batches.c   life of a batch  opened.c   open files
 */
#ifndef FERRY_TRANSPORT_FILE_INTERNAL_H
#define FERRY_TRANSPORT_FILE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "base/inbox.h"
#include "base/list.h"
#include "base/pool.h"
#include "memory/registry.h"
#include "offload/offload.h"
#include "transport/file/backend.h"
#include "transport/file/file.h"
#include "transport/file/slice.h"

/* In the order of preference. */
enum file_backend_kind {
    FILE_BACKEND_GDS = 0,
    FILE_BACKEND_URING,
    FILE_BACKEND_POOL,
    FILE_BACKEND_COUNT,
};

enum file_durability {
    FILE_DURABILITY_NONE = 0, /* a WRITE completes when the system has taken the bytes */
    FILE_DURABILITY_DATA,     /* when the device has them, and what is needed to find them */
    FILE_DURABILITY_FULL,     /* when it has all of the file's state as well */
};

struct file_transport;
struct file_extent;
struct file_op;

/* Work for a helper thread, in the memory of whoever needs it. */
struct file_job {
    struct ferry_offload_job base;
    struct ferry_inbox_node node;
    struct file_transport *ft;
    void (*run)(struct file_job *job);    /* helper thread; may block */
    void (*finish)(struct file_job *job); /* dispatcher */
};

enum file_extent_state {
    FILE_CLOSED,
    FILE_OPENING, /* a helper opens it, or opens it for writing as well */
    FILE_OPEN,
    FILE_CLOSING,
};

/* What an open found; the helper's until its job is finished. */
struct file_look {
    bool write;
    int fd[2]; /* buffered, direct; -1: none */
    void *foreign;
    int err;          /* 0: opened */
    const char *call; /* what failed, static */
    char foreign_reason[160];
    dev_t device;
    ino_t inode;
    uint64_t size;
    uint32_t offset_align; /* 0: no direct I/O */
    uint32_t memory_align;
};

/* One backing file of one target. Its descriptors are opened on first use and closed when idle. */
struct file_extent {
    /* constant */
    struct file_target *target;
    uint64_t start; /* in the segment */
    uint64_t length;
    uint64_t file_offset;
    char *path;    /* NULL: not mapped here */
    char *problem; /* then why */
    /* the dispatcher's */
    enum file_extent_state state;
    int fd[2][2];     /* [for writing][direct]; -1: none */
    void *foreign[2]; /* [for writing]: cuFile's handle, or NULL */
    uint32_t offset_align;
    uint32_t memory_align;
    bool direct_refused; /* by the file system, at an I/O */
    bool known;          /* device and inode are those of the first open */
    bool dirty;          /* written since the last sync, where durability asks for one */
    int32_t sync_err;    /* of a sync that failed at close; told to the next WRITE that ends */
    uint32_t refused;    /* bit per backend that does not take this file */
    uint32_t users;      /* pieces and syncs that need the descriptors */
    dev_t device;
    ino_t inode;
    struct ferry_list link;    /* in open_files, least recently used first */
    struct ferry_list waiters; /* ops that wait for the job */
    /* the job's while it runs */
    struct file_job job;
    struct file_look look;
};

struct file_target {
    struct ferry_target base;
    /* constant */
    struct file_transport *ft;
    char *segment;
    uint64_t length;
    uint32_t count;
    struct file_extent *extents;
    /* on its way to the dispatcher, to be closed */
    struct ferry_inbox_node node;
    /* the dispatcher's */
    uint32_t refs; /* ops and jobs */
    bool closing;
    struct file_job close_job;
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    char said[384];
};

/* One accepted request. */
struct file_op {
    struct ferry_inbox_node node;
    struct ferry_list all;
    struct ferry_list link;  /* active, starved, or an extent's waiters */
    struct ferry_xfer *xfer; /* NULL: ended, while a device still has its memory */
    struct file_target *target;
    struct ferry_lease lease; /* of an op whose xfer is NULL */
    enum ferry_opcode opcode;
    unsigned char *local;
    uint64_t addr;
    uint64_t length;
    uint64_t next;         /* bytes cut into pieces so far */
    uint64_t good;         /* no byte before this one is known to be bad; UINT64_MAX: none is */
    uint64_t orphan_at_ns; /* when the wait for the device ends, once stopped */
    uint32_t extent;       /* where `next` is */
    uint32_t first_extent; /* where byte 0 is */
    uint32_t sized_extent; /* the last one whose size was looked at, + 1 */
    uint64_t extent_end;   /* how many bytes of it there are */
    uint32_t sync_extent;  /* the next one to be synced */
    uint32_t pieces;       /* issued, or to be issued again */
    bool started;
    bool stop;       /* issues nothing more */
    bool needs_sync; /* some piece did not bring its own */
    bool syncing;
    bool unmapped;
    /* how it ends, once stopped */
    enum ferry_status status;
    int32_t native;
    const char *where;
    struct file_job sync_job;
    int32_t sync_err;
};

struct file_bounce {
    struct ferry_list link;
    unsigned char *memory;
};

/* A range of one op in one file, moved by one entry after the other. */
struct file_piece {
    struct ferry_list link; /* free, or redo */
    struct file_op *op;
    struct file_extent *extent;
    uint64_t at;   /* in the request: the first byte that is not moved */
    uint64_t end;  /* in the request */
    uint64_t part; /* bytes of the entry under way */
    enum ferry_file_way way;
    struct file_bounce *bounce;
    uint32_t refused; /* bit per backend that must not have it again */
    uint32_t tries;
    uint32_t batch; /* for messages */
};

struct file_way_counter {
    _Atomic uint64_t ops;
    _Atomic uint64_t bytes;
};

/* Relaxed counters: the dispatcher writes, reports read. */
struct file_counters {
    struct file_way_counter ways[FERRY_FILE_WAY_COUNT];
    _Atomic uint64_t ended;
    _Atomic uint64_t bytes_moved;
    _Atomic uint64_t short_io;
    _Atomic uint64_t fallbacks[FILE_BACKEND_COUNT]; /* pieces that this backend gave up */
    _Atomic uint64_t direct_refused;
    _Atomic uint64_t stray_events;
    _Atomic uint64_t opens;
    _Atomic uint64_t evictions;
    _Atomic uint64_t syncs;
    _Atomic uint64_t quarantined; /* ever */
    _Atomic uint32_t quarantined_now;
    _Atomic uint32_t open_files;
};

struct file_settings {
    enum file_durability durability;
    uint64_t slice_bytes;
    uint32_t queue_depth;
    uint32_t threads;
    uint32_t open_files_max;
    uint32_t bounce_count;
    uint32_t outstanding_max;
    uint64_t transfer_max;
    bool direct;
    bool enabled[FILE_BACKEND_COUNT];
    bool gds_wanted; /* somebody asked for it: its absence is worth a warning */
    bool gds_register;
    uint32_t gds_depth;
    uint32_t gds_batches;
    uint64_t watchdog_ns; /* a foreign call that lasts longer is lost */
    uint64_t drain_ns;    /* polled so long after a cancel */
    uint64_t grace_ns;    /* a device may write so long after a destroy */
};

/* A batch with what the dispatcher needs to have helpers work on it. */
struct file_batch {
    struct ferry_file_batch base;
    /* the job's while it runs */
    struct file_job job;
    enum ferry_status submit_status;
    uint64_t drain_ns; /* how long to poll for events after the cancel; 0: none is believed */
    uint32_t late_count;
    struct ferry_file_event late[FERRY_FILE_BATCH_MAX];
    /* the dispatcher's */
    bool job_runs;
    bool tainted; /* some entry failed: not kept for another use */
};

struct file_backend_slot {
    struct ferry_file_backend *backend; /* NULL: not in use */
    struct file_batch *batches;
    uint32_t batch_count;
    struct ferry_list free; /* FREE batches */
    struct ferry_list busy; /* all others but the one that is filled */
    struct file_batch *filling;
    char reason[192]; /* why it is not in use */
};

/* One revoke at a time. */
struct file_revoke {
    _Atomic uint32_t busy; /* futex: 1 from asked to done */
    uint64_t addr;
    uint64_t length;
};

/* One registered range. */
struct file_buffer {
    uint64_t id;
    void *base;
    uint64_t length;
    bool told;    /* buffer_backend knows it, or is being told */
    bool telling; /* right now, by the dispatcher */
};

struct file_transport {
    struct ferry_transport base;
    /* immutable after open */
    struct file_settings settings;
    /* set once by the first target, under start_mutex */
    pthread_mutex_t start_mutex;
    bool started;
    pthread_t thread;
    struct ferry_offload *helpers;
    /* the dispatcher's */
    struct file_backend_slot slots[FILE_BACKEND_COUNT];
    struct ferry_list all;     /* ops */
    struct ferry_list active;  /* ops with something to issue */
    struct ferry_list starved; /* ops that wait for an open file to be idle */
    struct ferry_list redo;    /* pieces to issue again */
    struct ferry_list free_pieces;
    struct ferry_list free_bounces;
    struct ferry_list open_files; /* extents */
    struct file_piece *pieces;
    struct file_bounce *bounces;
    unsigned char *bounce_memory;
    size_t bounce_bytes;
    uint32_t open_count;    /* extents that are not CLOSED */
    uint32_t closing_count; /* of them, those that are being closed for others' sake */
    uint32_t open_limit;    /* falls when the system has no more descriptors */
    uint32_t jobs;
    uint32_t target_count; /* closed by the runtime, not yet by us */
    uint64_t next_deadline_ns;
    uint64_t now_ns;
    uint32_t silent_rounds; /* polls in vain of backends that do not call */
    bool no_dsync;
    /* any thread, under the mutex, which is held over no call into a library */
    pthread_mutex_t buffers_mutex;
    pthread_cond_t buffers_told;
    struct file_buffer *buffers; /* registered memory, for cuFile */
    size_t buffer_count;
    size_t buffer_room;
    struct ferry_file_backend *buffer_backend; /* who wants to know; NULL: nobody yet */
    /* any thread, atomic */
    struct ferry_pool ops;
    struct ferry_inbox inbox;    /* ops */
    struct ferry_inbox finished; /* jobs */
    struct ferry_inbox ready;    /* batches */
    struct ferry_inbox closing_targets;
    _Atomic uint32_t asleep; /* futex: 1 while the dispatcher sleeps */
    _Atomic(struct ferry_file_backend *) sleeper;
    _Atomic bool attention; /* look at every op: cancel, revoke, close */
    _Atomic bool closing;
    _Atomic bool stopping;
    _Atomic uint32_t outstanding; /* admitted; given back before the end is told */
    _Atomic uint32_t unfinished;  /* given back after it; futex */
    _Atomic bool backends_known;  /* the slots are as they stay */
    _Atomic uint32_t idle;        /* futex: 1 once the thread has nothing left and stops */
    struct file_counters counters;
    /* one at a time, under the mutex */
    pthread_mutex_t revoke_mutex;
    struct file_revoke revoke;
};

static inline struct file_transport *file_transport_of(struct ferry_transport *transport)
{
    return FERRY_CONTAINER_OF(transport, struct file_transport, base);
}

static inline void file_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* ---- options.c ---- */
extern const struct ferry_option_table ferry_file_option_table;
extern const struct ferry_option_table *const ferry_file_more_options[];
enum ferry_status ferry_file_settings_read(const struct ferry_config *config,
                                           struct file_settings *settings_out);

/* ---- target.c ---- */
enum ferry_status ferry_file_target_create(struct file_transport *ft,
                                           const struct ferry_file_layout *layout,
                                           struct file_target **target_out);
/* Given: nothing of it is open. */
void ferry_file_target_free(struct file_target *target);
/* The extent that holds a byte of the segment. Given: offset < target->length. */
uint32_t ferry_file_target_find(const struct file_target *target, uint64_t offset);
/* What the target says when asked about its last failure. */
void ferry_file_target_say(struct file_target *target, const char *fmt, ...) FERRY_PRINTF(2, 3);

/* ---- dispatch.c ---- */
enum ferry_status ferry_file_start(struct file_transport *ft);
void ferry_file_kick(struct file_transport *ft);
/* Blocks, bounded. False if something does not return: the transport must stay where it is. */
bool ferry_file_stop(struct file_transport *ft);
/* Start a job; its finish() runs later on the dispatcher, or false: nobody can run it. */
bool ferry_file_job_start(struct file_transport *ft, struct file_job *job);

/* ---- ops.c; the dispatcher's thread only ---- */
void ferry_file_op_begin(struct file_transport *ft, struct file_op *op);
/* Issue one piece, or begin to wait. True if the op wants another turn. */
bool ferry_file_op_step(struct file_transport *ft, struct file_op *op);
/* No more pieces; the first cause wins, the earliest bad byte counts. */
void ferry_file_op_stop(struct file_transport *ft, struct file_op *op, enum ferry_status status,
                        int32_t native, const char *where);
void ferry_file_op_bad(struct file_op *op, uint64_t at);
/* A piece is done with: ends the op if that was the last. */
void ferry_file_op_settle(struct file_transport *ft, struct file_op *op);
/* Deadlines, cancels, revokes, close. */
void ferry_file_ops_look(struct file_transport *ft);

/* ---- pieces.c; the dispatcher's thread only ---- */
struct file_piece *ferry_file_piece_new(struct file_transport *ft, struct file_op *op);
/* How much of an extent one piece takes from here on. */
uint64_t ferry_file_piece_span(struct file_transport *ft, struct file_op *op,
                               struct file_extent *extent, uint64_t left);
void ferry_file_piece_issue(struct file_transport *ft, struct file_piece *piece);
/* The entry of a piece has ended: bytes, or a negative errno. */
void ferry_file_piece_done(struct file_transport *ft, struct file_piece *piece, int64_t result);
/* Its entry never ran, or is fenced: again, on another backend. */
void ferry_file_piece_retry(struct file_transport *ft, struct file_piece *piece,
                            enum file_backend_kind except);
/* Give up those that wait to be issued again. */
void ferry_file_pieces_drop(struct file_transport *ft, struct file_op *op);

/* ---- batches.c; the dispatcher's thread only ---- */
enum ferry_status ferry_file_backends_open(struct file_transport *ft);
/* Given: the dispatcher and the helpers are gone. */
void ferry_file_backends_close(struct file_transport *ft);
/* A batch with room, or NULL: none is free now. */
struct file_batch *ferry_file_batch_room(struct file_transport *ft, enum file_backend_kind kind);
void ferry_file_batch_add(struct file_transport *ft, struct file_batch *batch,
                          struct file_piece *piece, const struct ferry_file_io *io);
/* Submit what is filled. */
void ferry_file_batches_flush(struct file_transport *ft);
/* Take the events of one batch; of all that are silent, and let time pass for all. */
void ferry_file_batch_reap(struct file_transport *ft, struct file_batch *batch);
void ferry_file_batches_poll(struct file_transport *ft);
/* When a silent batch or a state wants to be looked at again. */
uint64_t ferry_file_batches_next_ns(struct file_transport *ft);
/* Ask the backends to drop what only stopped ops still wait for. */
void ferry_file_batches_cancel(struct file_transport *ft);

/* ---- opened.c; the dispatcher's thread only ---- */
enum file_ready {
    FILE_READY,
    FILE_WAITS,  /* the op is on a list and comes back */
    FILE_FAILED, /* the op was stopped */
};
/* See to it that the extent is open in the op's mode. */
enum file_ready ferry_file_extent_ready(struct file_transport *ft, struct file_extent *extent,
                                        struct file_op *op);
void ferry_file_extent_use(struct file_transport *ft, struct file_extent *extent);
void ferry_file_extent_release(struct file_transport *ft, struct file_extent *extent);
/* The descriptor for a way. */
int ferry_file_extent_fd(const struct file_extent *extent, enum ferry_opcode opcode, bool direct);
/* cuFile's handle, or NULL. */
void *ferry_file_extent_foreign(const struct file_extent *extent, enum ferry_opcode opcode);
/* Close everything of a target whose refs are 0; frees it, later. */
void ferry_file_target_close(struct file_transport *ft, struct file_target *target);
/* One op or job fewer needs the target. */
void ferry_file_target_unref(struct file_transport *ft, struct file_target *target);
void ferry_file_starved_wake(struct file_transport *ft);

/* ---- buffers.c; any thread ---- */
enum ferry_status ferry_file_add_buffer(struct ferry_transport *transport,
                                        const struct ferry_registry_buffer *buffer);
enum ferry_status ferry_file_remove_buffer(struct ferry_transport *transport,
                                           uint64_t registration_id, uint64_t deadline_ns);
/* Tell a backend of all memory, and from now on of changes; NULL: nobody any more. */
void ferry_file_buffers_serve(struct file_transport *ft, struct ferry_file_backend *backend);

/* ---- report.c ---- */
void ferry_file_report(struct ferry_transport *transport, struct json_object *object);
void ferry_file_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                        ferry_path_fn *fn, void *arg);

#endif
