/* SPDX-License-Identifier: Apache-2.0 */
/*
 * On which CPUs and NUMA nodes a process may run and allocate. Any thread.
 */
#ifndef FERRY_BENCH_PLACEMENT_H
#define FERRY_BENCH_PLACEMENT_H

struct json_object;

/* {"cpus": "0-1", "numa": "0"} of this process, or NULL. To be put by the caller. */
struct json_object *ferry_bench_placement_own(void);

/* The same of the process of a report, if it is one of this host; else NULL. */
struct json_object *ferry_bench_placement_target(struct json_object *report);

#endif
