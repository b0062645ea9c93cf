/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that waits for signals. It never touches a loop: those look at
 * ferry_bench_interrupted() at the end of each request.
 */
#include "interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common.h"

static _Atomic int first_signal;

/* Guards the pointer, and what it points to while the thread wakes it. Before gate->mutex. */
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ferry_bench_gate *current_gate;

int ferry_bench_interrupted(void)
{
    return atomic_load_explicit(&first_signal, memory_order_relaxed);
}

void ferry_bench_interrupt_gate(struct ferry_bench_gate *gate)
{
    pthread_mutex_lock(&gate_mutex);
    current_gate = gate;
    pthread_mutex_unlock(&gate_mutex);
}

static void wake_gate(void)
{
    pthread_mutex_lock(&gate_mutex);
    if (current_gate != NULL) {
        pthread_mutex_lock(&current_gate->mutex);
        pthread_cond_broadcast(&current_gate->changed);
        pthread_mutex_unlock(&current_gate->mutex);
    }
    pthread_mutex_unlock(&gate_mutex);
}

static void fill(sigset_t *ends)
{
    sigemptyset(ends);
    sigaddset(ends, SIGINT);
    sigaddset(ends, SIGTERM);
}

static void *interrupt_main(void *arg)
{
    sigset_t ends;
    int number;

    (void)arg;
    prctl(PR_SET_NAME, "ferry-signals");
    fill(&ends);
    while (sigwait(&ends, &number) != 0)
        continue;
    atomic_store(&first_signal, number);
    wake_gate();
    while (sigwait(&ends, &number) != 0)
        continue;
    /* The target hears of it from the kernel. */
    _exit(FERRY_EXIT_SIGNAL + number);
}

bool ferry_bench_interrupt_start(void)
{
    pthread_t thread;
    sigset_t ends;
    int err;

    fill(&ends);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    err = pthread_create(&thread, NULL, interrupt_main, NULL);
    if (err != 0) {
        ferry_cli_say("no thread for signals: %s", strerror(err));
        return false;
    }
    pthread_detach(thread);
    return true;
}
