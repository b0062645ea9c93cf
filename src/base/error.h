/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error text for synchronous calls, and cleanup helpers for their error paths.
 *
 * ferry_fail() is called once, at the place that knows the cause; callers pass the status on. The
 * text lives in one thread-local buffer (the only hidden thread state in the library; no code reads
 * it, only people). Nothing here allocates.
 */
#ifndef FERRY_BASE_ERROR_H
#define FERRY_BASE_ERROR_H

#include <ferry/status.h>

#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"

#define FERRY_ERROR_TEXT_SIZE 512

/* Record the sentence and return @status, so that `return ferry_fail(...)` reads well. */
FERRY_COLD enum ferry_status ferry_fail(enum ferry_status status, const char *fmt, ...)
    FERRY_PRINTF(2, 3);

/*
 * Like ferry_fail() with ": <system text> (errno N)" appended. The status follows from the errno:
 * ENOMEM -> ERR_NO_MEMORY, EMFILE/ENFILE -> ERR_LIMIT (the text says how to raise the open-file
 * limit), ECONNREFUSED/EHOSTUNREACH/ENETUNREACH/ETIMEDOUT/ECONNRESET/EPIPE -> ERR_PATH_DOWN,
 * EINVAL/EADDRINUSE/EADDRNOTAVAIL/EACCES/EPERM -> ERR_INVALID, all else ERR_IO.
 */
FERRY_COLD enum ferry_status ferry_fail_errno(int err, const char *fmt, ...) FERRY_PRINTF(2, 3);

/* The mapping alone. */
enum ferry_status ferry_status_of_errno(int err);

/*
 * The same for calls on files: EACCES/EPERM/EROFS -> ERR_PERMISSION, ENOENT/ENOTDIR ->
 * ERR_NOT_FOUND, ENOSPC/EDQUOT -> ERR_NO_SPACE, EMFILE/ENFILE/EFBIG -> ERR_LIMIT, ENOMEM ->
 * ERR_NO_MEMORY, EINVAL/EISDIR/ELOOP/ENAMETOOLONG -> ERR_INVALID, all else ERR_IO.
 */
enum ferry_status ferry_status_of_file_errno(int err);

static inline void ferry_cleanup_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void ferry_cleanup_free(void *slot)
{
    void **ptr = slot;

    free(*ptr);
}

/* Armed on the line that acquires, disarmed by ferry_take_*() on the line that hands over. */
#define FERRY_AUTO_FD   FERRY_CLEANUP(ferry_cleanup_fd)
#define FERRY_AUTO_FREE FERRY_CLEANUP(ferry_cleanup_free)

static inline int ferry_take_fd(int *slot)
{
    int fd = *slot;

    *slot = -1;
    return fd;
}

#define ferry_take_ptr(slot)                                                                       \
    __extension__({                                                                                \
        __typeof__(*(slot)) taken = *(slot);                                                       \
        *(slot) = NULL;                                                                            \
        taken;                                                                                     \
    })

#endif
