/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Targets that this command brings itself: a child process that serves memory, and this process as
 * the target that the reference benchmark's flags ask for.
 */
#ifndef FERRY_BENCH_TARGET_H
#define FERRY_BENCH_TARGET_H

#include <stdint.h>
#include <sys/types.h>

#include "options.h"

struct ferry_bench_target {
    pid_t pid; /* 0: none */
    int pidfd;
    char name[256]; /* of its segment */
};

/*
 * Start `serve` of this very program with @bytes of memory on loopback, and wait for its name. An
 * exit status; on failure the reason was said and nothing runs. Call before other threads exist.
 */
int ferry_bench_target_start(const struct ferry_cli *cli, uint64_t bytes,
                             struct ferry_bench_target *target);

/* End it, in bounded time. False, after a message, if it had not been well. Idempotent. */
bool ferry_bench_target_stop(struct ferry_bench_target *target);

/* Whether it has ended by itself, which is said once. Looks for a moment, since news of that is
 * late. */
bool ferry_bench_target_ended(struct ferry_bench_target *target);

/* Offer memory, say how to drive it, and wait for SIGTERM or SIGINT. An exit status. */
int ferry_bench_be_target(const struct ferry_config *config,
                          const struct ferry_bench_options *options);

#endif
