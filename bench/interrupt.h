/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGINT and SIGTERM end a benchmark early and in good order: the window that runs is cut short,
 * its row is shown and marked, and the target is ended. A second signal ends the process at once.
 */
#ifndef FERRY_BENCH_INTERRUPT_H
#define FERRY_BENCH_INTERRUPT_H

#include <stdbool.h>

#include "loop.h"

/*
 * Blocks both signals in the calling thread, and so in all that it starts later, and waits for them
 * on a thread of its own. A signal that is ignored stays so. Once, before any other thread; false,
 * said, if there is no thread for it.
 */
bool ferry_bench_interrupt_start(void);
/* The signal that came first, or 0. Any thread; cheap. */
int ferry_bench_interrupted(void);
/* Whose waiters a signal wakes; NULL for none. The main thread. */
void ferry_bench_interrupt_gate(struct ferry_bench_gate *gate);

#endif
