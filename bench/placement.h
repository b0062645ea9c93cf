/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which CPUs and NUMA nodes a process may run and allocate. Any thread.
 */
#ifndef FERRY_BENCH_PLACEMENT_H
#define FERRY_BENCH_PLACEMENT_H

#include <sys/types.h>

struct json_object;

/* {"cpus": "0-1", "numa": "0"} of this process, or NULL. To be put by the caller. */
struct json_object *ferry_bench_placement_own(void);

/* The same of a target: of process @pid of this host, or (@pid 0) as its report says; else NULL. */
struct json_object *ferry_bench_placement_target(pid_t pid, struct json_object *report);

#endif
