/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the library: started with a name and with the host program's signals blocked, so that
 * its handlers keep running on its own threads. Also what a thread used and how many cores there
 * are.
 */
#ifndef FERRY_BASE_THREAD_H
#define FERRY_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

#include <ferry/status.h>

typedef void *ferry_thread_fn(void *arg);

/*
 * Start @fn on a new joinable thread. Every signal is blocked in it from its first instruction,
 * except those that a fault in the thread itself raises (SIGSEGV and its kin): a crash handler of
 * the host keeps its chance. @name is cut to 15 bytes, which is what the kernel keeps.
 *
 * The caller joins it with pthread_join(). ERR_NO_MEMORY, ERR_LIMIT (thread limit; the text says
 * which).
 */
enum ferry_status ferry_thread_start(const char *name, ferry_thread_fn *fn, void *arg,
                                     pthread_t *thread_out);

/* CPU time of the calling thread, and of another one that has not been joined (0 if unknown). */
uint64_t ferry_thread_cpu_ns(void);
uint64_t ferry_thread_cpu_ns_of(pthread_t thread);

/*
 * Cores that this process can keep busy: its affinity mask, and the quota of its control group and
 * of all groups above, rounded up. At least 1. Reads files; not for the data path.
 */
uint32_t ferry_usable_cores(void);

/*
 * The quota in a text of cpu.max ("max 100000", "150000 100000"), in cores rounded up; 0 if there
 * is none or the text is not understood.
 */
uint32_t ferry_cgroup_quota_cores(const char *cpu_max);

#endif
