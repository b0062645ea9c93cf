/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small pool of threads for calls that may block: file reads and writes without a ring, name
 * look-ups, slow destroys. Jobs live in the submitter's memory, so their number is bounded by
 * whoever owns them; threads start on demand, up to a fixed number, and live until close.
 *
 *   submit --> queue --> run() on a pool thread --> done() on the same thread, last touch of the
 * job
 */
#ifndef FERRY_OFFLOAD_OFFLOAD_H
#define FERRY_OFFLOAD_OFFLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/list.h"

struct ferry_offload;
struct ferry_offload_job;

typedef void ferry_offload_fn(struct ferry_offload_job *job);

struct ferry_offload_job {
    ferry_offload_fn *run; /* may block */
    ferry_offload_fn
        *done; /* hands the job back to its owner; the pool does not touch it afterwards */
    struct ferry_list link; /* owned by the pool from submit to done */
    bool queued;            /* under the pool's lock */
};

#define FERRY_OFFLOAD_THREADS_MAX 64

/* @name names the threads. @threads_max 1..FERRY_OFFLOAD_THREADS_MAX. ERR_INVALID, ERR_NO_MEMORY.
 */
enum ferry_status ferry_offload_open(const char *name, uint32_t threads_max,
                                     struct ferry_offload **pool_out);

/* Runs what is queued, joins the threads. Given: nobody submits any more. Idempotent on NULL. */
void ferry_offload_close(struct ferry_offload *pool);

/*
 * Any thread; does not block on the job. May start a thread, so it is not for the hot path.
 * ERR_LIMIT or ERR_NO_MEMORY if the pool has no thread at all and cannot start one: the job is the
 * caller's again and neither run() nor done() is called.
 */
enum ferry_status ferry_offload_submit(struct ferry_offload *pool, struct ferry_offload_job *job);

/* Any thread. True if @job was still waiting: it is the caller's again, nothing is called. */
bool ferry_offload_cancel(struct ferry_offload *pool, struct ferry_offload_job *job);

#endif
