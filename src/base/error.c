/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The error text of the calling thread, and the mapping from errno to a status. Any thread; each
 * has its own buffer. Nothing here allocates, logs or changes errno.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static _Thread_local char last_error_text[FERRY_ERROR_TEXT_SIZE];

const char *ferry_last_error_text(void)
{
    return last_error_text;
}

/*
 * Text may quote what a peer, a store or a file said: control bytes become '?', so that it cannot
 * move a terminal's cursor or forge a second line. A text that was cut says so.
 */
static void publish(char *text, bool cut)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < 0x20 || byte == 0x7f)
            text[i] = '?';
    }
    if (cut && len >= 3) {
        size_t end = len - 3;

        /* Do not leave half of a UTF-8 sequence in front of the dots. */
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
            end--;
        memcpy(text + end, "...", 4);
    }
    memcpy(last_error_text, text, strlen(text) + 1);
}

/* Formats into a local buffer first: an argument may be the current text itself. */
static size_t format(char *text, size_t size, const char *fmt, va_list args)
{
    int len = vsnprintf(text, size, fmt, args);

    if (len < 0) {
        text[0] = '\0';
        return 0;
    }
    return (size_t)len;
}

enum ferry_status ferry_fail(enum ferry_status status, const char *fmt, ...)
{
    char text[FERRY_ERROR_TEXT_SIZE];
    int saved_errno = errno;
    va_list args;

    va_start(args, fmt);
    size_t len = format(text, sizeof(text), fmt, args);
    va_end(args);
    publish(text, len >= sizeof(text));
    errno = saved_errno;
    return status;
}

enum ferry_status ferry_status_of_errno(int err)
{
    switch (err) {
    case 0:
        return FERRY_OK;
    case ENOMEM:
        return FERRY_ERR_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return FERRY_ERR_LIMIT;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
    case ECONNRESET:
    case EPIPE:
        return FERRY_ERR_PATH_DOWN;
    case EINVAL:
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EACCES:
    case EPERM:
        return FERRY_ERR_INVALID;
    default:
        return FERRY_ERR_IO;
    }
}

enum ferry_status ferry_status_of_file_errno(int err)
{
    switch (err) {
    case 0:
        return FERRY_OK;
    case EACCES:
    case EPERM:
    case EROFS:
        return FERRY_ERR_PERMISSION;
    case ENOENT:
    case ENOTDIR:
        return FERRY_ERR_NOT_FOUND;
    case ENOSPC:
    case EDQUOT:
        return FERRY_ERR_NO_SPACE;
    case EMFILE:
    case ENFILE:
    case EFBIG:
        return FERRY_ERR_LIMIT;
    case ENOMEM:
        return FERRY_ERR_NO_MEMORY;
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return FERRY_ERR_INVALID;
    default:
        return FERRY_ERR_IO;
    }
}

/* What a person can do about an errno that is a limit; "" for all others. */
static void limit_advice(int err, char *text, size_t size)
{
    struct rlimit limit;

    text[0] = '\0';
    if (err == ENFILE) {
        snprintf(text, size, "; raise the system's open-file limit: sysctl fs.file-max");
    } else if (err == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        snprintf(text, size,
                 "; the open-file limit is %llu: raise it with ulimit -n, or LimitNOFILE= of the "
                 "service",
                 (unsigned long long)limit.rlim_cur);
    }
}

enum ferry_status ferry_fail_errno(int err, const char *fmt, ...)
{
    char head[FERRY_ERROR_TEXT_SIZE];
    char advice[128];
    char tail[256];
    char text[FERRY_ERROR_TEXT_SIZE];
    int saved_errno = errno;
    const char *system_text = strerrordesc_np(err);
    va_list args;

    va_start(args, fmt);
    size_t head_len = format(head, sizeof(head), fmt, args);
    va_end(args);
    limit_advice(err, advice, sizeof(advice));
    snprintf(tail, sizeof(tail), ": %s (errno %d)%s",
             system_text != NULL ? system_text : "unknown error", err, advice);

    /* The system's part is the shorter and the more useful one: the head gives way to it. */
    size_t room = sizeof(text) - 1 - strlen(tail);
    bool cut = head_len > room;

    snprintf(text, sizeof(text), "%.*s%s%s", (int)(cut ? room - 3 : room), head, cut ? "..." : "",
             tail);
    publish(text, false);
    errno = saved_errno;

    /* Zero cannot be a failure; whoever passes it has a defect, not a success. */
    return err == 0 ? FERRY_ERR_INTERNAL : ferry_status_of_errno(err);
}
