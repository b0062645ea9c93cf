/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `ferry bench` is asked to do: its flags, with every value checked before anything is
 * started. One thread.
 */
#ifndef FERRY_BENCH_OPTIONS_H
#define FERRY_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common.h"

#define FERRY_BENCH_BLOCK_MAX   (UINT64_C(1) << 40)
#define FERRY_BENCH_BATCH_MAX   FERRY_BATCH_CAPACITY_MAX
#define FERRY_BENCH_THREADS_MAX 1024
#define FERRY_BENCH_TARGETS_MAX 64
#define FERRY_BENCH_ERROR_SIZE  256

enum ferry_bench_op {
    FERRY_BENCH_READ,
    FERRY_BENCH_WRITE,
    FERRY_BENCH_MIX,         /* WRITE a block, READ it back */
    FERRY_BENCH_WRITE_SEED,  /* WRITE data that follows from its remote address */
    FERRY_BENCH_READ_VERIFY, /* READ and compare with that */
};

/* Doubled from case to case; equal ends are one value. */
struct ferry_bench_range {
    uint64_t from;
    uint64_t to;
};

/* What a value of a flag may be. */
struct ferry_bench_bounds {
    uint64_t min;
    uint64_t max;
    bool size; /* "64MiB" is fine */
};

struct ferry_bench_options {
    struct ferry_cli cli;
    char *targets[FERRY_BENCH_TARGETS_MAX]; /* segment names, malloc'd; none: a target of its own */
    size_t target_count;
    enum ferry_bench_op op;
    struct ferry_bench_range block;
    struct ferry_bench_range batch;
    struct ferry_bench_range threads;
    uint64_t duration_ns;
    uint64_t warmup_ns;
    const char *transport; /* NULL: what the engine chooses */
    char enable[64];       /* the setting that switches a pinned transport on, among cli.sets */
    uint64_t scatter;      /* pieces of a block; 0: it is one range */
    bool check;
    uint64_t seed;
    uint64_t buffer_bytes;
    bool buffer_given;
    uint64_t window_offset; /* the part of the target's buffer that is used */
    uint64_t window_bytes;  /* 0: to its end */
    /* flags of the reference benchmark */
    bool reference;            /* at least one of its own was there */
    const char *segment_name;  /* or NULL */
    const char *metadata_type; /* or NULL: as configured */
    const char *metadata_servers;
    const char *rpc_server_port;
};

extern const struct ferry_bench_bounds ferry_bench_block_bounds;
extern const struct ferry_bench_bounds ferry_bench_batch_bounds;
extern const struct ferry_bench_bounds ferry_bench_threads_bounds;
extern const struct ferry_bench_bounds ferry_bench_buffer_bounds;
extern const struct ferry_bench_bounds ferry_bench_offset_bounds;

/*
 * Strict readers of one value. On false, @error (FERRY_BENCH_ERROR_SIZE) has one line that names
 * flag, value and what was expected, and nothing is written otherwise.
 */
bool ferry_bench_parse_number(const char *flag, const char *text,
                              const struct ferry_bench_bounds *bounds, uint64_t *number_out,
                              char *error);
bool ferry_bench_parse_range(const char *flag, const char *text,
                             const struct ferry_bench_bounds *bounds,
                             struct ferry_bench_range *range_out, char *error);
/* Seconds with up to nine decimals; @min_ns to a day. */
bool ferry_bench_parse_seconds(const char *flag, const char *text, uint64_t min_ns,
                               uint64_t *duration_ns_out, char *error);
bool ferry_bench_parse_op(const char *flag, const char *text, enum ferry_bench_op *op_out,
                          char *error);
/* Add the names of a comma list. */
bool ferry_bench_parse_targets(const char *flag, const char *text,
                               struct ferry_bench_options *options, char *error);
bool ferry_bench_parse_transport(const char *flag, const char *text,
                                 struct ferry_bench_options *options, char *error);

const char *ferry_bench_op_name(enum ferry_bench_op op);

/*
 * Read the command line. On a wrong one, says why and ends the process with status 2, as argp does.
 * Free what it allocated with ferry_bench_options_fini().
 */
void ferry_bench_options_read(struct ferry_bench_options *options, int argc, char **argv);
void ferry_bench_options_fini(struct ferry_bench_options *options);

#endif
