/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a case as JSON, and its row of a table. docs/benchmark.md describes the keys. The
 * main thread.
 */
#ifndef FERRY_BENCH_RECORD_H
#define FERRY_BENCH_RECORD_H

#include "run.h"

struct json_object;

/* To be put by the caller. */
struct json_object *ferry_bench_record(const struct ferry_bench_job *job,
                                       const struct ferry_bench_result *result);

/* CPU seconds a GB, of this process or of all targets together; negative if unknown. */
double ferry_bench_initiator_cpu_s_per_gb(const struct ferry_bench_result *result);
double ferry_bench_target_cpu_s_per_gb(const struct ferry_bench_job *job,
                                       const struct ferry_bench_result *result);

/* The heading of the table for people, and a row. */
void ferry_bench_print_heading(void);
void ferry_bench_print_row(const struct ferry_bench_job *job,
                           const struct ferry_bench_result *result);

#endif
