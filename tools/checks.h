/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `ferry doctor`. Each adds one finding; a file of the kernel that cannot be read, as
 * in many containers, gives none. One thread.
 */
#ifndef FERRY_TOOLS_CHECKS_H
#define FERRY_TOOLS_CHECKS_H

#include <stddef.h>

#include <ferry/ferry.h>

#define FERRY_FINDINGS_MAX 32

enum ferry_verdict {
    FERRY_VERDICT_OK = 0,
    FERRY_VERDICT_WARN = 1,
    FERRY_VERDICT_BROKEN = 2,
};

struct ferry_finding {
    const char *name; /* static */
    enum ferry_verdict verdict;
    char found[256];
    char advice[256]; /* "" if there is nothing to do */
};

struct ferry_findings {
    struct ferry_finding list[FERRY_FINDINGS_MAX];
    size_t count;
};

/* Limits of the process, io_uring, sockets. */
void ferry_check_host(struct ferry_findings *findings);

/* An engine starts, and two of them move bytes that are compared. */
void ferry_check_transfer(struct ferry_findings *findings, const struct ferry_config *config);

/*
 * A file segment on this host: the store knows it, and for each of its files that this host is in
 * the path map, that a file system is mounted there, and that it opens with its length. More files
 * than fit are counted in the last finding.
 */
void ferry_check_segment(struct ferry_findings *findings, const struct ferry_config *config,
                         const char *segment);

/* The next finding, to be filled; the last one again when there is no room. */
struct ferry_finding *ferry_finding_add(struct ferry_findings *findings, const char *name);

#endif
