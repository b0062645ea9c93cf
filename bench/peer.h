/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The targets as the initiator sees them: an open segment and the part of one of its buffers that
 * the benchmark may use. One thread opens and closes; others read.
 */
#ifndef FERRY_BENCH_PEER_H
#define FERRY_BENCH_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

struct ferry_bench_peer {
    const char *name; /* the options' */
    uint64_t segment;
    uint64_t addr; /* first remote byte in use */
    uint64_t bytes;
};

/* Find a segment and choose its largest buffer that permits the operation. An exit status. */
int ferry_bench_peer_open(struct ferry_engine *engine, const struct ferry_bench_options *options,
                          const char *name, struct ferry_bench_peer *peer_out);
void ferry_bench_peer_close(struct ferry_engine *engine, struct ferry_bench_peer *peer);

#endif
