/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts threads that leave the host's signals alone, and asks the system about CPU time and usable
 * cores. Any thread; no state. Reads /proc and /sys/fs/cgroup, so it stays off the data path.
 */
#include "base/thread.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define THREAD_NAME_SIZE 16 /* TASK_COMM_LEN of the kernel */
#define CORES_MAX        65536
#define CGROUP_TEXT_SIZE 4096

struct start {
    ferry_thread_fn *fn;
    void *arg;
    char name[THREAD_NAME_SIZE];
};

static void *trampoline(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    prctl(PR_SET_NAME, start.name);
    return start.fn(start.arg);
}

/* Blocks in the caller what the new thread shall inherit as blocked. */
static int block_signals(sigset_t *before_out)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t blocked;

    sigfillset(&blocked);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(faults); i++)
        sigdelset(&blocked, faults[i]);
    return pthread_sigmask(SIG_SETMASK, &blocked, before_out);
}

enum ferry_status ferry_thread_start(const char *name, ferry_thread_fn *fn, void *arg,
                                     pthread_t *thread_out)
{
    FERRY_AUTO_FREE struct start *start = calloc(1, sizeof(*start));
    sigset_t before;
    pthread_t thread;

    if (start == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "thread %s: out of memory", name);
    start->fn = fn;
    start->arg = arg;
    snprintf(start->name, sizeof(start->name), "%s", name);

    int err = block_signals(&before);
    if (err != 0)
        return ferry_fail_errno(err, "thread %s: blocking signals", name);
    err = pthread_create(&thread, NULL, trampoline, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == EAGAIN) {
        return ferry_fail(FERRY_ERR_LIMIT,
                          "thread %s: the system refuses another thread; raise ulimit -u, the "
                          "service's TasksMax= or kernel.threads-max",
                          name);
    }
    if (err != 0)
        return ferry_fail_errno(err, "thread %s: create", name);

    (void)ferry_take_ptr(&start); /* the trampoline frees it */
    *thread_out = thread;
    return FERRY_OK;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec used;

    if (clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * FERRY_NS_PER_S + (uint64_t)used.tv_nsec;
}

uint64_t ferry_thread_cpu_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t ferry_thread_cpu_ns_of(pthread_t thread)
{
    clockid_t clock;

    return pthread_getcpuclockid(thread, &clock) == 0 ? clock_ns(clock) : 0;
}

static uint32_t affinity_cores(void)
{
    /* The kernel wants a mask at least as long as its own; its length is found by trying. */
    for (int cpus = CPU_SETSIZE; cpus <= CORES_MAX; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        size_t bytes = CPU_ALLOC_SIZE(cpus);

        if (set == NULL)
            return 1;
        if (sched_getaffinity(0, bytes, set) == 0) {
            int count = CPU_COUNT_S(bytes, set);

            CPU_FREE(set);
            return count > 0 ? (uint32_t)count : 1;
        }
        CPU_FREE(set);
        if (errno != EINVAL)
            return 1;
    }
    return 1;
}

static uint32_t quota_cores(unsigned long long quota_us, unsigned long long period_us)
{
    if (quota_us == 0 || period_us == 0)
        return 0;

    unsigned long long cores = quota_us / period_us + (quota_us % period_us != 0);

    return cores > CORES_MAX ? CORES_MAX : (uint32_t)cores;
}

uint32_t ferry_cgroup_quota_cores(const char *cpu_max)
{
    unsigned long long quota_us, period_us;

    if (sscanf(cpu_max, "%llu %llu", &quota_us, &period_us) != 2 || cpu_max[0] == '-')
        return 0; /* "max ...": no quota */
    return quota_cores(quota_us, period_us);
}

/* Reads a small file as text. False if it is not there or does not fit. */
static bool read_text(const char *path, char *text, size_t size)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t len = 0;

    if (fd < 0)
        return false;
    while (len < size) {
        ssize_t got = read(fd, text + len, size - len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return false;
        if (got == 0) {
            text[len] = '\0';
            return true;
        }
        len += (size_t)got;
    }
    return false;
}

static void lower(uint32_t *cores, uint32_t quota)
{
    if (quota != 0 && quota < *cores)
        *cores = quota;
}

/* One directory of the version 2 tree, then of version 1. What is not there says nothing. */
static void apply_quota_v2(const char *root, const char *group, uint32_t *cores)
{
    char path[CGROUP_TEXT_SIZE + 64];
    char text[128];

    snprintf(path, sizeof(path), "%s%s/cpu.max", root, group);
    if (read_text(path, text, sizeof(text)))
        lower(cores, ferry_cgroup_quota_cores(text));
}

static void apply_quota_v1(const char *root, const char *group, uint32_t *cores)
{
    char path[CGROUP_TEXT_SIZE + 64];
    char quota[64];
    char period[64];
    char both[sizeof(quota) + sizeof(period)];

    snprintf(path, sizeof(path), "%s%s/cpu.cfs_quota_us", root, group);
    if (!read_text(path, quota, sizeof(quota)))
        return;
    snprintf(path, sizeof(path), "%s%s/cpu.cfs_period_us", root, group);
    if (!read_text(path, period, sizeof(period)))
        return;
    quota[strcspn(quota, "\n")] = '\0';
    snprintf(both, sizeof(both), "%s %s", quota, period);
    lower(cores, ferry_cgroup_quota_cores(both)); /* "-1": no quota */
}

/*
 * Walks from the process's own group to the root: a quota anywhere above binds as well. Inside a
 * container the path of the host may not exist below the mount; then only the root is found there.
 */
static void apply_group(char *group, bool v1, uint32_t *cores)
{
    for (;;) {
        if (v1) {
            apply_quota_v1("/sys/fs/cgroup/cpu", group, cores);
        } else {
            apply_quota_v2("/sys/fs/cgroup", group, cores);
            apply_quota_v2("/sys/fs/cgroup/unified", group, cores);
        }
        char *slash = strrchr(group, '/');

        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

/* True if the comma-separated @list names the cpu controller. */
static bool names_cpu(const char *list, size_t len)
{
    while (len > 0) {
        size_t word = 0;

        while (word < len && list[word] != ',')
            word++;
        if (word == 3 && memcmp(list, "cpu", 3) == 0)
            return true;
        if (word == len)
            return false;
        list += word + 1;
        len -= word + 1;
    }
    return false;
}

uint32_t ferry_usable_cores(void)
{
    uint32_t cores = affinity_cores();
    char text[CGROUP_TEXT_SIZE];
    char *rest = text;
    char *line;

    if (!read_text("/proc/self/cgroup", text, sizeof(text)))
        return cores;
    while ((line = strsep(&rest, "\n")) != NULL) {
        /* "<id>:<controllers>:<path>"; version 2 has no controllers there. */
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

        if (group == NULL)
            continue;
        controllers++;
        bool v2 = group == controllers;

        if (v2 || names_cpu(controllers, (size_t)(group - controllers)))
            apply_group(group + 1, !v2, &cores);
    }
    return cores;
}
