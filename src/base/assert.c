/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a broken invariant: one line on standard error, then abort. Runs on any thread and in
 * any state of the process, so it takes no lock, allocates nothing and does not use the logger.
 */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void ferry_assert_failed(const char *expr, const char *file, int line)
{
    char text[512];
    int len = snprintf(text, sizeof(text), "ferry: broken invariant: %s (%s:%d)\n", expr, file,
                       line);

    if (len >= (int)sizeof(text)) {
        len = (int)sizeof(text) - 1;
        text[len - 1] = '\n';
    }
    if (len > 0 && write(STDERR_FILENO, text, (size_t)len) < 0) {
        /* Nobody is left to tell; the abort below is the message. */
    }
    abort();
}
