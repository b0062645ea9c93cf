/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches and tasks: slots that are allocated when the batch is made, and an end for each task that
 * is told exactly once.
 *
 * A task's life, with one writer (ferry_task_move):
 *
 *   free --> PENDING --------> COMPLETED | INVALID | CANCELED | TIMED_OUT | FAILED
 *              |   ^                ^
 *              v   |                |
 *            WAITING ---------------+      between a stale registration and the second try
 *
 * The order in which an end becomes visible: the result, the lease and the view are given back, the
 * sums of the batch, the task's state (release), and last the count of open tasks (seq_cst).
 * Whoever sees the count or the state (acquire) sees all that came before, the transferred bytes
 * included.
 */
#ifndef FERRY_RUNTIME_BATCH_H
#define FERRY_RUNTIME_BATCH_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/batch.h>

#include "base/inbox.h"
#include "base/list.h"
#include "memory/registry.h"
#include "runtime/segment.h"
#include "transport/transport.h"

struct ferry_batch;
struct ferry_engine;

struct ferry_task {
    struct ferry_xfer xfer;
    /* constant while the task is open; the submitter's before, its ender's after */
    struct ferry_batch *batch;
    struct ferry_view *view;     /* one reference */
    struct ferry_lease lease;    /* on the local memory; of a list the vector has them */
    struct ferry_vector *vector; /* the list of pieces, or NULL */
    uint32_t transport_index;    /* where it runs */
    int32_t pinned;              /* the transport the request names, or -1 */
    uint64_t submitted_ns;
    /* holder of the keeper's baton only */
    struct ferry_inbox_node stale_node;
    struct ferry_list link;
    uint64_t give_up_ns; /* end of patience with a full transport; 0: not begun */
    uint32_t ticket;     /* the first refresh that began after the stale answer */
    bool crowded;        /* the way is known; waits for room in the transport */
    bool refreshed;      /* has had its second try: the next stale answer is final */
    /* any thread, atomic: what a look at the task may read even while a slot is used again */
    _Atomic uint32_t state; /* enum ferry_task_state */
    _Atomic int32_t status;
    _Atomic int32_t native;
    _Atomic(const char *) where;
    _Atomic(const char *) transport_name;
    _Atomic(struct ferry_transport *)
        transport; /* for cancel; the engine's, never freed before it */
    _Atomic uint64_t segment_handle;
    _Atomic uint64_t length;
    _Atomic uint64_t moved; /* of a failed one: so many bytes from the start are known good */
    _Atomic uint64_t remote_addr;
    _Atomic uint32_t opcode;
    _Atomic uint32_t piece_count;
};

/* Every slot of every batch pays for a byte here. */
static_assert(sizeof(struct ferry_task) <= 320, "a task has grown");

/* Parts that a transport without lists has at once of one task. */
#define FERRY_SPLIT_PARTS 16

struct ferry_vector;

/* One piece on its way through a transport that takes single ranges only. */
struct ferry_split_part {
    struct ferry_xfer xfer;
    struct ferry_task *task;
    bool parked; /* the transport had no room for it */
};

/* How far such a task is (split.c). */
struct ferry_split {
    /* any thread, atomic */
    _Atomic uint32_t next;  /* piece to hand over; may run past the count */
    _Atomic uint32_t holds; /* parts with the transport, and whoever hands over */
    _Atomic uint32_t done;
    _Atomic bool touched;   /* a piece that did not end well may have been applied, in part */
    _Atomic int32_t status; /* enum ferry_status; the worst so far */
    _Atomic int32_t native;
    _Atomic(const char *) where;
    /* whoever hands over, and the last to leave */
    bool resume; /* parts are parked; else it begins with the first piece */
    uint32_t part_count;
    struct ferry_split_part parts[FERRY_SPLIT_PARTS];
};

/*
 * The pieces of a vectored task, copied from the caller, and the leases on their local memory: each
 * piece is covered by one of its own or by the one before. Comes from a pool whose memory lives as
 * long as the engine.
 */
struct ferry_vector {
    uint32_t piece_count;
    uint32_t lease_count;
    struct ferry_split split;
    struct ferry_xfer_piece pieces[FERRY_PIECES_MAX];
    struct ferry_lease leases[FERRY_PIECES_MAX];
};

/* vector.c. Checks and copies a request's list; @request gets the sum as its length. @index is the
 * request's, for texts. QUEUE_FULL comes bare. */
enum ferry_status ferry_vector_take(struct ferry_engine *engine, struct ferry_request *request,
                                    uint32_t index, struct ferry_vector **vector_out);
/* Leases for all pieces, or none. ERR_INVALID with text. */
enum ferry_status ferry_vector_lease(struct ferry_vector *vector,
                                     struct ferry_registry_reader *reader, uint32_t index);
/* Give the task's local memory back, leases and list. */
void ferry_task_release_memory(struct ferry_task *task);
/* An unregister wants some of the task's local memory back. */
bool ferry_task_revoked(const struct ferry_task *task);

/* split.c. The transport of a task that has pieces does not take them. */
bool ferry_split_needed(const struct ferry_task *task);
/*
 * As ferry_transport_submit() for one task; begins, or goes on where there was no room. @may_end:
 * the caller is the keeper, on whose thread the task may end inside the call; otherwise such an end
 * is left to the keeper.
 */
enum ferry_status ferry_split_submit(struct ferry_task *task, bool may_end);

/* Both halves of batch.counts. */
static inline uint32_t ferry_counts_open(uint64_t counts)
{
    return (uint32_t)counts;
}

static inline uint32_t ferry_counts_submitted(uint64_t counts)
{
    return (uint32_t)(counts >> 32);
}

static inline uint32_t ferry_counts_ended(uint64_t counts)
{
    return ferry_counts_submitted(counts) - ferry_counts_open(counts);
}

struct ferry_batch {
    /* constant from create to destroy */
    struct ferry_engine *engine;
    uint64_t handle;
    uint32_t capacity;
    struct ferry_task *tasks;
    struct ferry_xfer **xfers; /* scratch of submit; capacity entries */
    /* one thread at a time per batch; the finisher reads it before it adds to cycles_ended */
    ferry_batch_done_fn *done;
    void *done_arg;
    /* any thread, atomic */
    FERRY_ALIGNED_LINE _Atomic uint64_t counts; /* submitted << 32 | open */
    _Atomic uint64_t bytes;                     /* of completed tasks */
    _Atomic uint32_t completed;
    _Atomic uint32_t worst; /* most severe end state so far */
    _Atomic uint32_t
        wake_at; /* tell sleepers when so many have ended; UINT32_MAX: at the end only */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t wake_word;               /* futex of sleepers */
    _Atomic(struct ferry_worker *) driven;    /* a waiter drives this one */
    _Atomic uint32_t nudges;                  /* enders that may be about to nudge it */
    _Atomic int32_t eventfd;                  /* descriptor + 1; 0: none */
    _Atomic uint32_t spin_score;              /* how well spinning went lately, 0..8 */
    FERRY_ALIGNED_LINE _Atomic uint32_t pins; /* threads inside a call; futex */
    _Atomic uint32_t cancels;                 /* threads inside a cancel; futex */
    _Atomic bool dead;                        /* being destroyed */
    _Atomic uint32_t cycles_begun;            /* open went from 0 to more */
    _Atomic uint32_t cycles_ended;            /* its end has been told everywhere; futex */
    _Atomic uint32_t cycles_waited;           /* somebody sleeps on cycles_ended */
    _Atomic uint32_t finishes_due;            /* ends that the keeper has to tell */
    struct ferry_inbox_node finish_node;      /* in the keeper's inbox while that is not 0 */
    /* under the engine's batches_mutex */
    struct ferry_list link;
};

/* The batch of a handle with one more thread inside, or NULL with ERR_STALE_HANDLE's text. */
struct ferry_batch *ferry_batch_enter(struct ferry_engine *engine, uint64_t handle);
void ferry_batch_leave(struct ferry_batch *batch);
enum ferry_status ferry_batch_new(struct ferry_engine *engine, uint32_t capacity,
                                  struct ferry_batch **batch_out);
/* Given: no task is open. Frees; waits for threads inside other than the caller. */
void ferry_batch_delete(struct ferry_batch *batch);
/* True once no task is open and every end has been told; sleeps to the deadline. */
bool ferry_batch_quiet(struct ferry_batch *batch, uint64_t deadline_ns);
/* Until no cancel looks at the batch; a cancel does not wait, so this is short. */
void ferry_batch_await_cancels(struct ferry_batch *batch);
/* Empty a batch that is quiet. */
void ferry_batch_clear(struct ferry_batch *batch);
void ferry_batch_sum(struct ferry_batch *batch, struct ferry_batch_status *status_out);
/* Have whoever waits for the batch look at it again. */
void ferry_batch_wake(struct ferry_batch *batch);
/*
 * Given: open went to 0. Wakes, writes the eventfd, calls back, counts the cycle as ended; leaves
 * all that to the keeper if there is a callback and this thread is inside a submit.
 */
void ferry_batch_finish(struct ferry_batch *batch);
/* Whether the callback of a batch runs on this thread now. */
bool ferry_in_callback(void);
/* Say that this thread enters or leaves a submit, where no callback runs; what it was before. */
bool ferry_mark_submitting(bool inside);
/* Close, for what is left. Given: no other thread uses the engine. */
bool ferry_batches_quiet(struct ferry_engine *engine, uint64_t deadline_ns);
void ferry_batches_free(struct ferry_engine *engine);

/* task.c */
enum ferry_task_state ferry_task_state_of(enum ferry_status status);
bool ferry_task_state_open(enum ferry_task_state state);
/* The only writer of task->state for open tasks; asserts that the move is legal. */
void ferry_task_move(struct ferry_task *task, enum ferry_task_state next);
/* Fold one end into the sums; commutative. */
void ferry_batch_add_end(struct ferry_batch *batch, enum ferry_task_state state, uint64_t bytes);
/* xfer->ended. */
void ferry_task_xfer_ended(struct ferry_xfer *xfer);
/* The end. The task belongs to nobody afterwards. */
void ferry_task_end(struct ferry_task *task, enum ferry_status status, int32_t native,
                    const char *where);
/* A sentence about a task. */
void ferry_task_sentence(struct ferry_batch *batch, uint32_t index, char *buf, size_t buf_len);

/* What a program knew of struct ferry_request that was compiled before requests had pieces. */
#define FERRY_REQUEST_SIZE_MIN offsetof(struct ferry_request, pieces)

/* submit.c: @batch entered by the caller. */
enum ferry_status ferry_batch_submit_inside(struct ferry_batch *batch,
                                            const struct ferry_request *requests, uint32_t count);
/* Take count down by tasks that were never handed over; true if that was the end of a cycle. */
bool ferry_batch_take_back(struct ferry_batch *batch, uint32_t count);

/* wait.c: wait until @ended_min have ended or all. */
enum ferry_status ferry_batch_wait_inside(struct ferry_batch *batch, uint32_t ended_min,
                                          uint64_t deadline_ns);

/* cancel.c */
/* Tasks [first, end) as far as they are submitted; returns how many are. */
uint32_t ferry_batch_cancel_inside(struct ferry_batch *batch, uint32_t first, uint32_t end);

#endif
