/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread of load: a closed loop that keeps a number of requests outstanding.
 *
 *   WARM --(every loop has run for a while)--> MEASURE --(every loop's window is over)--> STOP
 *
 * The main thread moves the gate; each loop begins and ends its window at the end of a request of
 * its own, and keeps up the load until the last of them is done. In any case it waits for STOP.
 */
#ifndef FERRY_BENCH_LOOP_H
#define FERRY_BENCH_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"
#include "peer.h"
#include "slot.h"

#define FERRY_BENCH_FAILURE_SIZE    512
#define FERRY_BENCH_TRANSPORTS_SEEN 4

enum ferry_bench_phase {
    FERRY_BENCH_WARM,
    FERRY_BENCH_MEASURE,
    FERRY_BENCH_STOP,
};

/* What the loops of a case share. */
struct ferry_bench_gate {
    /* constant while they run */
    struct ferry_engine *engine;
    struct ferry_bench_traffic traffic;
    const char *transport; /* pinned, or NULL */
    uint32_t batch;
    uint32_t threads;
    uint64_t warmup_ns;
    uint64_t duration_ns;
    /* any thread, atomic */
    _Atomic uint32_t phase;
    _Atomic uint32_t measured; /* loops whose window is over */
    _Atomic bool failed;       /* a request failed: all stop */
    /* any thread, under the mutex; the condition says that something of all this has changed */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t warm;
    char failure[FERRY_BENCH_FAILURE_SIZE];    /* the first one */
    char difference[FERRY_BENCH_FAILURE_SIZE]; /* likewise, of a comparison */
};

struct ferry_bench_loop {
    /* constant */
    struct ferry_bench_gate *gate;
    const struct ferry_bench_peer *peer;
    uint32_t index;
    unsigned char *memory; /* gate->batch slots */
    uint64_t remote;       /* of the first slot */
    pthread_t thread;
    /* any thread, atomic */
    _Atomic uint64_t moved_bytes; /* of all completed requests */
    /* the loop's; the main thread's after joining */
    struct ferry_bench_histogram latency;
    uint64_t begin_ns; /* of the window; 0: not begun */
    uint64_t end_ns;
    uint64_t ops;
    uint64_t verified_bytes;
    uint64_t errors;
    const char *transports[FERRY_BENCH_TRANSPORTS_SEEN];
    uint32_t transport_count;
    bool stuck; /* requests did not end: memory must not be freed before the engine is closed */
};

/* The thread's function; @arg is its struct ferry_bench_loop. */
void *ferry_bench_loop_main(void *arg);

#endif
