/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws the progress bar. The width is read at each drawing, since windows change.
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common.h"
#include "text.h"

#define INTERVAL_NS 100000000u
#define BAR_MAX     60

static int terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 20)
        return 80;
    return size.ws_col;
}

void ferry_progress_begin(struct ferry_progress *progress, const char *label, uint64_t total,
                          bool wanted)
{
    *progress = (struct ferry_progress){
        .label = label,
        .total = total,
        .begun_ns = ferry_cli_now_ns(),
        .shown = wanted && isatty(STDERR_FILENO),
    };
}

void ferry_progress_update(struct ferry_progress *progress, uint64_t done)
{
    uint64_t now_ns = ferry_cli_now_ns();

    if (!progress->shown || now_ns - progress->drawn_ns < INTERVAL_NS)
        return;
    progress->drawn_ns = now_ns;

    double seconds = (double)(now_ns - progress->begun_ns) / 1e9;
    double part = progress->total > 0 ? (double)done / (double)progress->total : 1;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    double left = rate > 0 ? (double)(progress->total - done) / rate : -1;
    char total[FERRY_CLI_TEXT_SIZE], speed[FERRY_CLI_TEXT_SIZE], eta[FERRY_CLI_TEXT_SIZE];
    char tail[128];
    char bar[BAR_MAX + 1];

    snprintf(tail, sizeof(tail), " %3.0f%% of %s  %s  %s left", part * 100,
             ferry_cli_size(progress->total, total), ferry_cli_rate(rate, speed),
             ferry_cli_duration(left, eta));

    /* One column stays free: a full line would wrap and could not be redrawn. */
    int width = terminal_columns() - 1 - (int)strlen(tail) - (int)strlen(progress->label) - 3;

    width = width > BAR_MAX ? BAR_MAX : width;
    if (width < 1) {
        fprintf(stderr, "\r\033[K%s%s", progress->label, tail);
    } else {
        int filled = (int)(part * width);

        memset(bar, ' ', sizeof(bar));
        memset(bar, '=', (size_t)(filled > width ? width : filled));
        bar[width] = '\0';
        fprintf(stderr, "\r\033[K%s [%s]%s", progress->label, bar, tail);
    }
    fflush(stderr);
}

void ferry_progress_end(struct ferry_progress *progress)
{
    if (progress->shown && progress->drawn_ns != 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    progress->shown = false;
}
