/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes used and what lanes moved, read from the reports of this engine and of its peers.
 * One thread; takes milliseconds, so never between two requests.
 */
#ifndef FERRY_BENCH_METER_H
#define FERRY_BENCH_METER_H

#include <stddef.h>
#include <stdint.h>

#include "peer.h"

struct json_object;

/* Processes at one moment. */
struct ferry_bench_reading {
    struct json_object *self;                           /* report "process", or NULL */
    struct json_object *peers[FERRY_BENCH_TARGETS_MAX]; /* the same of each peer, or NULL */
    uint64_t self_moved_bytes;                          /* moved when each of them was read */
    uint64_t peer_moved_bytes;
};

/* Bytes that have been moved so far. */
typedef uint64_t ferry_bench_moved_fn(const void *arg);

/* Whom to ask. */
struct ferry_bench_meter {
    struct ferry_engine *engine;
    const struct ferry_bench_peer *peers;
    size_t peer_count;
    uint64_t timeout_ms; /* for each peer's answer */
    ferry_bench_moved_fn *moved;
    const void *moved_arg;
};

void ferry_bench_reading_take(const struct ferry_bench_meter *meter,
                              struct ferry_bench_reading *reading_out);
void ferry_bench_reading_drop(struct ferry_bench_reading *reading);

/* The report of this engine's transports; NULL if there is none. To be put by the caller. */
struct json_object *ferry_bench_transports(struct ferry_engine *engine);

/* The object of one transport within that, borrowed, or NULL. */
struct json_object *ferry_bench_transport(struct json_object *transports, const char *name);

/* CPU seconds between two reports of a process; negative if one is missing. */
double ferry_bench_cpu_s(struct json_object *before, struct json_object *after);

/* The peak of a process's resident bytes, or 0. */
uint64_t ferry_bench_peak_rss(struct json_object *process);

/* A number below a key, or @missing. */
uint64_t ferry_bench_member_u64(struct json_object *object, const char *key, uint64_t missing);
double ferry_bench_member_double(struct json_object *object, const char *key, double missing);

#endif
