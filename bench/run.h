/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one case: memory, threads, the window, and what was used in it.
 */
#ifndef FERRY_BENCH_RUN_H
#define FERRY_BENCH_RUN_H

#include <stdint.h>

#include "loop.h"
#include "meter.h"
#include "sweep.h"
#include "target.h"

/* What all cases share. */
struct ferry_bench_job {
    const struct ferry_bench_options *options;
    struct ferry_engine *engine;
    struct ferry_bench_peer peers[FERRY_BENCH_TARGETS_MAX];
    size_t peer_count;
    struct ferry_bench_target *target; /* a process of our own, or NULL */
};

/* What one case gave. Units are in the names; GB is 10^9 bytes. */
struct ferry_bench_result {
    struct ferry_bench_case c;
    double seconds; /* length of the window; the mean if there are several threads */
    uint64_t ops;   /* measured requests that completed */
    uint64_t bytes; /* ops x block */
    uint64_t errors;
    uint64_t verified_bytes;
    uint64_t moved_bytes; /* of all requests: warm-up, filling and reading back included */
    char transport[96];   /* which served; several are joined with '+' */
    struct ferry_bench_histogram latency;
    struct ferry_bench_reading before; /* around the window */
    struct ferry_bench_reading after;
    struct json_object *transports_before; /* around all of it */
    struct json_object *transports_after;
    char failure[FERRY_BENCH_FAILURE_SIZE];
    char difference[FERRY_BENCH_FAILURE_SIZE];
    bool stuck;   /* requests did not end; nothing more can be run */
    bool partial; /* a signal cut the window short */
};

/*
 * Run a case. An exit status: OK whatever the requests' ends, if there was a run at all; else what
 * was missing has been said. Free the result with ferry_bench_result_fini() in any case.
 */
int ferry_bench_run(const struct ferry_bench_job *job, const struct ferry_bench_case *c,
                    struct ferry_bench_result *result_out);
void ferry_bench_result_fini(struct ferry_bench_result *result);

#endif
