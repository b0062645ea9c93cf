/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: requests go in, tasks come to exactly one end.
 *
 * A batch has a fixed number of task slots. Each submit call appends tasks; a task ends exactly
 * once and its end never changes. READ completes when every byte is in the caller's buffer; WRITE
 * when every byte is in the target's memory and the target said so. Example: examples/read.c.
 */
#ifndef FERRY_BATCH_H
#define FERRY_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/engine.h>
#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Largest capacity of one batch. */
#define FERRY_BATCH_CAPACITY_MAX 65536

/** Most pieces of one request. */
#define FERRY_PIECES_MAX 16384

/** Direction of a request, seen from the caller. */
enum ferry_opcode {
    FERRY_READ = 0,  /* remote to local */
    FERRY_WRITE = 1, /* local to remote */
};

enum ferry_priority {
    FERRY_PRIORITY_HIGH = 0,
    FERRY_PRIORITY_MEDIUM = 1,
    FERRY_PRIORITY_LOW = 2,
};

/**
 * One piece of a request that moves many: a range here and a range of the same length there. The
 * layout is fixed.
 */
struct ferry_piece {
    void *local;            /* inside one registered range of this engine */
    uint64_t remote_offset; /* as in struct ferry_request */
    uint64_t length;        /* bytes, > 0 */
};

/**
 * What the caller wants moved: one range, or the pieces of a list. A list is one task, with one end
 * and one byte count; it completes when every piece has. Either side may be scattered, or both:
 * pieces that are neighbours on a side are one range there.
 */
struct ferry_request {
    size_t struct_size; /* sizeof(struct ferry_request); the stride of an array */
    enum ferry_opcode opcode;
    enum ferry_priority priority;
    void *local;            /* inside registered memory of this engine */
    uint64_t segment;       /* handle of the target */
    uint64_t remote_offset; /* memory segments: absolute address in the peer; files: byte offset */
    uint64_t length;        /* bytes, > 0; segments of files also take 0, which moves nothing */
    const char *transport;  /* pin to one transport by name, or NULL */
    uint64_t deadline_ns;   /* absolute CLOCK_MONOTONIC, FERRY_NO_DEADLINE; 0 means none too */
    /*
     * A list: pieces is not NULL, piece_count is 1..FERRY_PIECES_MAX, and local, remote_offset and
     * length above are NULL and 0. The local ranges of a READ must not overlap, nor the remote ones
     * of a WRITE: which piece wins is not defined, and nobody checks it.
     */
    const struct ferry_piece *pieces;
    uint32_t piece_count;
};

#define FERRY_REQUEST_INIT                                                                         \
    {                                                                                              \
        .struct_size = sizeof(struct ferry_request)                                                \
    }

/**
 * States of a task. The order of the values from COMPLETED on is the order of severity in which a
 * batch sums up.
 */
enum ferry_task_state {
    FERRY_TASK_WAITING = 0,   /* accepted, not posted */
    FERRY_TASK_PENDING = 1,   /* posted */
    FERRY_TASK_COMPLETED = 2, /* the first end state */
    FERRY_TASK_INVALID = 3,
    FERRY_TASK_CANCELED = 4,
    FERRY_TASK_TIMED_OUT = 5,
    FERRY_TASK_FAILED = 6,
};

/** One task, as seen now. */
struct ferry_task_status {
    size_t struct_size;
    enum ferry_task_state state;
    enum ferry_status status; /* FERRY_OK until an end state other than COMPLETED */
    /*
     * The request's length, all pieces, if COMPLETED. Of a task on files that ended otherwise: so
     * many bytes from its start are known to have moved, which of the others did is not known. Else
     * 0.
     */
    uint64_t bytes;
    const char *transport; /* static name, or NULL while none is chosen */
};

#define FERRY_TASK_STATUS_INIT                                                                     \
    {                                                                                              \
        .struct_size = sizeof(struct ferry_task_status)                                            \
    }

/** The sum of a batch, as seen now. */
struct ferry_batch_status {
    size_t struct_size;
    enum ferry_task_state state; /* open while any task is open; else the most severe end state */
    uint32_t submitted;
    uint32_t ended;
    uint32_t completed;
    uint64_t bytes; /* of completed tasks */
};

#define FERRY_BATCH_STATUS_INIT                                                                    \
    {                                                                                              \
        .struct_size = sizeof(struct ferry_batch_status)                                           \
    }

/**
 * ferry_batch_create() - make a batch with room for a number of tasks.
 * @engine:    an open engine.
 * @capacity:  1..FERRY_BATCH_CAPACITY_MAX tasks.
 * @batch_out: the handle.
 *
 * Ownership: the caller's, until ferry_batch_destroy().
 * Threads: any thread. Allocates; keep batches and use ferry_batch_reset() in loops.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_LIMIT (batches_max), FERRY_ERR_NO_MEMORY,
 *   FERRY_ERR_CLOSING, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_create(struct ferry_engine *engine,
                                                       uint32_t capacity, uint64_t *batch_out);

/**
 * ferry_batch_destroy() - free a batch.
 * @engine: an open engine.
 * @batch:  a batch, all of whose tasks have ended.
 *
 * Ownership: on FERRY_OK the handle is stale; otherwise nothing changed.
 * Threads: one thread at a time per batch.
 * Return: FERRY_OK, FERRY_ERR_BUSY (a task is open, or the callback has not returned),
 *   FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API enum ferry_status ferry_batch_destroy(struct ferry_engine *engine, uint64_t batch);

/**
 * ferry_batch_reset() - empty a batch whose tasks have all ended, for use again.
 * @engine: an open engine.
 * @batch:  a batch.
 *
 * Ownership: earlier task numbers are gone. The eventfd and the callback stay.
 * Threads: one thread at a time per batch. Does not allocate.
 * Return: as ferry_batch_destroy().
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_reset(struct ferry_engine *engine, uint64_t batch);

/**
 * ferry_batch_submit() - hand requests to the engine.
 * @engine:   an open engine.
 * @batch:    a batch with at least @count free slots.
 * @requests: array of requests, copied before return, lists of pieces included; NULL only if
 *            @count is 0.
 * @count:    number of requests; 0 does nothing and succeeds.
 *
 * All or nothing: on success each request is a task that ends exactly once; on failure nothing was
 * accepted, nothing was sent, and the text names the first wrong request. Ranges of the peer's
 * segment are checked when a task runs: a bad one ends that task as FAILED. Of a list every piece
 * is checked before the first byte moves, on the side that knows: local ranges by this call, remote
 * ones against the peer's description, then by the peer, part by part. So if the description was
 * out of date, or the way to the peer fails, some pieces may have moved when the task fails.
 *
 * Ownership: the engine borrows the local memory of each request until its task ends.
 * Threads: one thread at a time per batch; any number per engine. Does not block and does not
 *   allocate; no callback runs before it returns, except on other threads.
 * Return:
 *   FERRY_OK               every request is a task now.
 *   FERRY_ERR_INVALID      NULL memory, zero length (files take it), wrap, unknown opcode, priority
 *                          or transport, local memory outside registered ranges, or a list with a
 *                          range beside it.
 *   FERRY_ERR_TOO_LARGE    more requests than free slots, a length (of a list: the sum) over
 *                          max_transfer_bytes, over FERRY_PIECES_MAX pieces, or more lists than
 *                          vectored_requests_max.
 *   FERRY_ERR_QUEUE_FULL   an admission limit is reached; retry after a completion.
 *   FERRY_ERR_STALE_HANDLE batch or segment is gone.
 *   FERRY_ERR_UNSUPPORTED  no transport can serve a request.
 *   FERRY_ERR_CLOSING, FERRY_ERR_NO_MEMORY (first submit after a registration),
 *   FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_submit(struct ferry_engine *engine, uint64_t batch,
                                                       const struct ferry_request *requests,
                                                       uint32_t count);

/**
 * ferry_batch_status() - the sum of a batch now.
 * @engine:     an open engine.
 * @batch:      a batch.
 * @status_out: struct_size set by the caller.
 *
 * An empty batch is COMPLETED with nothing submitted.
 *
 * Ownership: copied out.
 * Threads: any thread. Does not block.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_status(struct ferry_engine *engine, uint64_t batch,
                                                       struct ferry_batch_status *status_out);

/**
 * ferry_task_status() - one task now.
 * @engine:     an open engine.
 * @batch:      a batch.
 * @task:       number of the task, counted over all submit calls from 0.
 * @status_out: struct_size set by the caller.
 *
 * Ownership: copied out.
 * Threads: any thread. Does not block.
 * Return: FERRY_OK, FERRY_ERR_INVALID (no such task), FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_task_status(struct ferry_engine *engine, uint64_t batch,
                                                      uint32_t task,
                                                      struct ferry_task_status *status_out);

/**
 * ferry_task_describe() - a sentence about a task, for people.
 * @engine:  an open engine.
 * @batch:   a batch.
 * @task:    number of the task.
 * @buf:     where the text goes, always terminated, cut if it does not fit.
 * @buf_len: size of @buf, > 0.
 *
 * Ownership: copied out.
 * Threads: any thread.
 * Return: as ferry_task_status().
 */
FERRY_API enum ferry_status ferry_task_describe(struct ferry_engine *engine, uint64_t batch,
                                                uint32_t task, char *buf, size_t buf_len);

/**
 * ferry_batch_wait() - wait until every task of a batch has ended.
 * @engine:      an open engine.
 * @batch:       a batch.
 * @deadline_ns: absolute CLOCK_MONOTONIC nanoseconds, or FERRY_NO_DEADLINE. The deadline ends the
 *               waiting, not the tasks.
 * @status_out:  the sum at return; struct_size set by the caller; may be NULL.
 *
 * Ownership: copied out.
 * Threads: any thread, not from a callback.
 * Return: FERRY_OK (all ended, whatever the ends), FERRY_ERR_TIMED_OUT (some are open),
 *   FERRY_ERR_STATE (called from a callback), FERRY_ERR_INVALID (struct_size),
 *   FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_wait(struct ferry_engine *engine, uint64_t batch,
                                                     uint64_t deadline_ns,
                                                     struct ferry_batch_status *status_out);

/**
 * ferry_batch_wait_progress() - wait until at least a number of tasks have ended.
 * @engine:      an open engine.
 * @batch:       a batch.
 * @ended_min:   return when this many tasks have ended, or all of them.
 * @deadline_ns: as in ferry_batch_wait().
 * @status_out:  the sum at return; struct_size set by the caller; may be NULL.
 *
 * Ownership: copied out.
 * Threads: any thread, not from a callback.
 * Return: as ferry_batch_wait().
 */
FERRY_API_CHECKED enum ferry_status
ferry_batch_wait_progress(struct ferry_engine *engine, uint64_t batch, uint32_t ended_min,
                          uint64_t deadline_ns, struct ferry_batch_status *status_out);

/**
 * ferry_batch_eventfd() - a descriptor for event loops.
 * @engine: an open engine.
 * @batch:  a batch.
 * @fd_out: becomes readable each time the batch goes from open to ended; an eventfd counter.
 *
 * Ownership: the batch's; the caller polls and reads it, and does not close it.
 * Threads: one thread at a time per batch.
 * Return: FERRY_OK, FERRY_ERR_INVALID (@fd_out is NULL), FERRY_ERR_LIMIT, FERRY_ERR_STALE_HANDLE,
 *   FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_eventfd(struct ferry_engine *engine, uint64_t batch,
                                                        int *fd_out);

/**
 * Called when the last open task of a batch has ended: once per submit-to-ended cycle, on a thread
 * of the library or on one that waits (ferry_batch_wait(), ferry_batch_wait_progress(),
 * ferry_read(), ferry_write(); for any batch), never inside another call and never under a lock of
 * the library. It must not block, and must not wait for or destroy the batch; it may submit to
 * other batches.
 */
typedef void ferry_batch_done_fn(void *arg, uint64_t batch);

/**
 * ferry_batch_on_done() - set the completion callback.
 * @engine: an open engine.
 * @batch:  a batch without open tasks.
 * @fn:     the callback, or NULL for none.
 * @arg:    passed to @fn.
 *
 * Ownership: @arg stays the caller's and must live until the batch is destroyed.
 * Threads: one thread at a time per batch.
 * Return: FERRY_OK, FERRY_ERR_BUSY, FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_batch_on_done(struct ferry_engine *engine, uint64_t batch,
                                                        ferry_batch_done_fn *fn, void *arg);

/**
 * ferry_batch_cancel() - ask for the end of all open tasks of a batch.
 * @engine: an open engine.
 * @batch:  a batch.
 *
 * Best effort: what was not posted never is and ends as CANCELED; what was posted ends as CANCELED
 * or as what really happened. Memory is the caller's again only when the task has ended.
 *
 * Ownership: none.
 * Threads: any thread. Does not wait.
 * Return: FERRY_OK, FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API enum ferry_status ferry_batch_cancel(struct ferry_engine *engine, uint64_t batch);

/**
 * ferry_task_cancel() - the same for one task.
 * @engine: an open engine.
 * @batch:  a batch.
 * @task:   number of the task.
 *
 * Ownership: none.
 * Threads: any thread. Does not wait.
 * Return: FERRY_OK, FERRY_ERR_INVALID (no such task), FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API enum ferry_status ferry_task_cancel(struct ferry_engine *engine, uint64_t batch,
                                              uint32_t task);

/**
 * ferry_read() - copy from a segment into local memory and wait for it.
 * @engine:      an open engine.
 * @request:     opcode is ignored.
 * @deadline_ns: ends the request as TIMED_OUT; the memory is free on return, with one exception: a
 *               file system or device that does not end what it was asked for keeps it, and
 *               ferry_memory_unregister() answers FERRY_ERR_BUSY until it does.
 *
 * Ownership: the local memory is borrowed during the call.
 * Threads: any thread, not from a callback. Blocks.
 * Return: FERRY_OK (every byte arrived), or the status with which the task ended or was refused;
 *   FERRY_ERR_STATE if called from a callback.
 */
FERRY_API_CHECKED enum ferry_status
ferry_read(struct ferry_engine *engine, const struct ferry_request *request, uint64_t deadline_ns);

/**
 * ferry_write() - copy local memory into a segment and wait until it is there.
 * @engine:      an open engine.
 * @request:     opcode is ignored.
 * @deadline_ns: as in ferry_read().
 *
 * Ownership: the local memory is borrowed during the call.
 * Threads: any thread, not from a callback. Blocks.
 * Return: FERRY_OK (the target said so), or the status with which the task ended or was refused;
 *   FERRY_ERR_STATE if called from a callback.
 */
FERRY_API_CHECKED enum ferry_status
ferry_write(struct ferry_engine *engine, const struct ferry_request *request, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
