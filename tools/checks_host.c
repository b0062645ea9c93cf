/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel allows this process: descriptors, locked memory, io_uring, socket buffers, ports,
 * cores. Reads files below /proc and /sys and asks for limits; changes nothing.
 */
#include "checks.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "text.h"

#define NOFILE_WANTED  4096u
#define NOFILE_LEAST   128u
#define MEMLOCK_WANTED (UINT64_C(8) << 20)
#define BUFFER_WANTED  (UINT64_C(4) << 20)
#define PORTS_WANTED   4096u
#define BACKLOG_WANTED 128u

struct ferry_finding *ferry_finding_add(struct ferry_findings *findings, const char *name)
{
    if (findings->count < FERRY_FINDINGS_MAX)
        findings->count++;

    struct ferry_finding *finding = &findings->list[findings->count - 1];

    *finding = (struct ferry_finding){.name = name};
    return finding;
}

/* The numbers in a small file, at most @max; the count. 0 if it cannot be read. */
static size_t read_numbers(const char *path, uint64_t *numbers, size_t max)
{
    FILE *file = fopen(path, "re");
    size_t count = 0;

    if (file == NULL)
        return 0;
    while (count < max && fscanf(file, "%" SCNu64, &numbers[count]) == 1)
        count++;
    fclose(file);
    return count;
}

static void check_nofile(struct ferry_findings *findings)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "open files");
    unsigned long long soft = limit.rlim_cur;

    snprintf(finding->found, sizeof(finding->found), "limit %llu", soft);
    if (soft >= NOFILE_WANTED)
        return;
    finding->verdict = soft < NOFILE_LEAST ? FERRY_VERDICT_BROKEN : FERRY_VERDICT_WARN;
    snprintf(finding->advice, sizeof(finding->advice),
             "each peer takes up to connections_per_peer + 1 descriptors: `ulimit -n %u', or "
             "LimitNOFILE=%u in the service",
             NOFILE_WANTED, NOFILE_WANTED);
}

static void check_memlock(struct ferry_findings *findings)
{
    struct rlimit limit;
    char size[FERRY_CLI_TEXT_SIZE];

    if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "locked memory");

    if (limit.rlim_cur == RLIM_INFINITY) {
        snprintf(finding->found, sizeof(finding->found), "unlimited");
        return;
    }
    snprintf(finding->found, sizeof(finding->found), "limit %s",
             ferry_cli_size(limit.rlim_cur, size));
    /* Who may lock memory anyway is not held to the limit; root is the usual case. */
    if (limit.rlim_cur >= MEMLOCK_WANTED || geteuid() == 0)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(finding->advice, sizeof(finding->advice),
             "older kernels count rings of io_uring here: `ulimit -l unlimited', or "
             "LimitMEMLOCK=infinity in the service");
}

static void advise_uring(struct ferry_finding *finding, int err)
{
    uint64_t disabled = 0;
    const char *advice = "the kernel refuses it; epoll is used instead";

    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(finding->found, sizeof(finding->found), "not available: %s", strerror(err));
    if (read_numbers("/proc/sys/kernel/io_uring_disabled", &disabled, 1) == 1 && disabled > 0) {
        advice = "epoll is used instead; `sysctl kernel.io_uring_disabled=0' allows it";
    } else if (err == EPERM || err == EACCES) {
        advice =
            "epoll is used instead; the container's seccomp profile has to allow io_uring_setup, "
            "io_uring_enter and io_uring_register";
    } else if (err == ENOMEM) {
        advice = "epoll is used instead; `ulimit -l unlimited' gives the rings room";
    } else if (err == ENOSYS) {
        advice = "epoll is used instead; this kernel has no io_uring";
    }
    snprintf(finding->advice, sizeof(finding->advice), "%s", advice);
}

static void check_uring(struct ferry_findings *findings)
{
    struct ferry_finding *finding = ferry_finding_add(findings, "io_uring");
    struct io_uring_params params = {0};
    long fd = syscall(SYS_io_uring_setup, 256, &params);

    if (fd < 0) {
        advise_uring(finding, errno);
        return;
    }
    close((int)fd);
    snprintf(finding->found, sizeof(finding->found), "available");
}

/* A limit in bytes that a sysctl holds, alone or as the last of three numbers. */
static void check_buffer(struct ferry_findings *findings, const char *name, const char *path,
                         const char *sysctl)
{
    uint64_t numbers[3];
    size_t count = read_numbers(path, numbers, 3);
    char size[FERRY_CLI_TEXT_SIZE];

    if (count == 0)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, name);

    snprintf(finding->found, sizeof(finding->found), "at most %s",
             ferry_cli_size(numbers[count - 1], size));
    if (numbers[count - 1] >= BUFFER_WANTED)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    if (count == 3) {
        snprintf(finding->advice, sizeof(finding->advice),
                 "a fast or long link needs more: `sysctl -w %s=\"%" PRIu64 " %" PRIu64 " %" PRIu64
                 "\"'",
                 sysctl, numbers[0], numbers[1], BUFFER_WANTED);
    } else {
        snprintf(finding->advice, sizeof(finding->advice),
                 "a fast or long link needs more: `sysctl -w %s=%" PRIu64 "'", sysctl,
                 BUFFER_WANTED);
    }
}

static void check_autotuning(struct ferry_findings *findings)
{
    uint64_t on;

    if (read_numbers("/proc/sys/net/ipv4/tcp_moderate_rcvbuf", &on, 1) != 1)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "receive autotuning");

    snprintf(finding->found, sizeof(finding->found), "%s", on != 0 ? "on" : "off");
    if (on != 0)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(finding->advice, sizeof(finding->advice),
             "receive windows stay small: `sysctl -w net.ipv4.tcp_moderate_rcvbuf=1'");
}

static void check_ports(struct ferry_findings *findings)
{
    uint64_t range[2];

    if (read_numbers("/proc/sys/net/ipv4/ip_local_port_range", range, 2) != 2 ||
        range[1] < range[0])
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "local ports");

    snprintf(finding->found, sizeof(finding->found), "%" PRIu64 "..%" PRIu64, range[0], range[1]);
    if (range[1] - range[0] + 1 >= PORTS_WANTED)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(finding->advice, sizeof(finding->advice),
             "few for many peers: `sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"'");
}

static void check_backlog(struct ferry_findings *findings)
{
    uint64_t backlog;

    if (read_numbers("/proc/sys/net/core/somaxconn", &backlog, 1) != 1)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "listen backlog");

    snprintf(finding->found, sizeof(finding->found), "at most %" PRIu64, backlog);
    if (backlog >= BACKLOG_WANTED)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(finding->advice, sizeof(finding->advice),
             "many peers that connect at once are delayed: `sysctl -w net.core.somaxconn=4096'");
}

/* The quota of the control group, in hundredths of a core; 0 if there is none. */
static uint64_t quota_percent(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    uint64_t quota, period, percent = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &quota, &period) == 2 && period > 0)
        percent = quota / (period / 100 > 0 ? period / 100 : 1);
    fclose(file);
    return percent;
}

static void check_cores(struct ferry_findings *findings)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) < 0)
        return;

    struct ferry_finding *finding = ferry_finding_add(findings, "cores");
    int count = CPU_COUNT(&set);
    uint64_t percent = quota_percent();

    if (percent == 0) {
        snprintf(finding->found, sizeof(finding->found), "%d usable", count);
        return;
    }
    snprintf(finding->found, sizeof(finding->found), "%d usable, control group allows %.2f", count,
             (double)percent / 100);
    if (percent >= (uint64_t)count * 100)
        return;
    finding->verdict = FERRY_VERDICT_WARN;
    snprintf(
        finding->advice, sizeof(finding->advice),
        "threads beyond the quota are throttled; worker_count: auto takes the quota into account");
}

void ferry_check_host(struct ferry_findings *findings)
{
    check_nofile(findings);
    check_memlock(findings);
    check_uring(findings);
    check_buffer(findings, "socket receive", "/proc/sys/net/core/rmem_max", "net.core.rmem_max");
    check_buffer(findings, "socket send", "/proc/sys/net/core/wmem_max", "net.core.wmem_max");
    check_buffer(findings, "tcp receive", "/proc/sys/net/ipv4/tcp_rmem", "net.ipv4.tcp_rmem");
    check_buffer(findings, "tcp send", "/proc/sys/net/ipv4/tcp_wmem", "net.ipv4.tcp_wmem");
    check_autotuning(findings);
    check_ports(findings);
    check_backlog(findings);
    check_cores(findings);
}
