/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A progress bar with rate and time left, on standard error if that is a terminal, else nothing.
 * One thread; redraws at most ten times a second.
 */
#ifndef FERRY_TOOLS_PROGRESS_H
#define FERRY_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct ferry_progress {
    const char *label;
    uint64_t total;
    uint64_t begun_ns;
    uint64_t drawn_ns; /* 0: not yet */
    bool shown;
};

void ferry_progress_begin(struct ferry_progress *progress, const char *label, uint64_t total,
                          bool wanted);
void ferry_progress_update(struct ferry_progress *progress, uint64_t done);
/* Remove the bar; the line is free for a message. Harmless when repeated. */
void ferry_progress_end(struct ferry_progress *progress);

#endif
