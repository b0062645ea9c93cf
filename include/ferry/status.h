/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes: what every fallible ferry function returns.
 *
 * A status is enough to act on; the text is only for people. Codes are grouped by the largest thing
 * that can no longer be used, because that is what the caller has to act on. The hundreds digit is
 * the group. Example: examples/read.c.
 */
#ifndef FERRY_STATUS_H
#define FERRY_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FERRY_API         __attribute__((visibility("default")))
#define FERRY_API_CHECKED __attribute__((visibility("default"), warn_unused_result))
#else
#define FERRY_API
#define FERRY_API_CHECKED
#endif

/*
 * The one table behind ferry_status_name(), ferry_status_text() and the mapping to task states:
 * name, value, end state of a task that fails with it, sentence. Values are ABI: never renumber
 * one, never reuse one.
 */
#define FERRY_STATUS_TABLE(X)                                                                      \
    X(OK, 0, COMPLETED, "success")                                                                 \
    /* -1xx: the call was wrong. Fix the caller; a retry cannot help. */                           \
    X(ERR_INVALID, -100, INVALID, "invalid argument")                                              \
    X(ERR_STATE, -101, INVALID, "not allowed in this state")                                       \
    X(ERR_UNSUPPORTED, -102, INVALID, "not supported")                                             \
    X(ERR_NOT_FOUND, -103, INVALID, "no such object")                                              \
    X(ERR_EXISTS, -104, INVALID, "exists already, or overlaps what exists")                        \
    X(ERR_STALE_HANDLE, -105, INVALID, "the handle names an object that is gone")                  \
    X(ERR_TOO_LARGE, -106, INVALID, "larger than a limit allows")                                  \
    X(ERR_CONFIG, -107, INVALID, "invalid configuration")                                          \
    X(ERR_FORKED, -108, INVALID, "this engine belongs to the parent process")                      \
    /* -2xx: a local limit. Nothing is broken; retry when load drops. */                           \
    X(ERR_NO_MEMORY, -200, FAILED, "out of memory")                                                \
    X(ERR_QUEUE_FULL, -201, FAILED, "a queue or an admission limit is full")                       \
    X(ERR_BUSY, -202, FAILED, "still in use")                                                      \
    X(ERR_LIMIT, -203, FAILED, "a limit of the system is reached")                                 \
    X(ERR_NO_SPACE, -204, FAILED, "no space is left on the device, or in the quota")               \
    /* -3xx: one path. Another rail or device may still reach the peer. */                         \
    X(ERR_DEVICE, -300, FAILED, "a local device failed")                                           \
    X(ERR_PATH_DOWN, -301, FAILED, "the path to the peer failed")                                  \
    X(ERR_IO, -302, FAILED, "input/output error")                                                  \
    /* -4xx: one peer, or one remote registration. Reconnect or refresh. */                        \
    X(ERR_PEER_GONE, -400, FAILED, "the peer closed, restarted or does not answer")                \
    X(ERR_STALE_KEY, -401, FAILED, "the peer's registration is a different one now")               \
    X(ERR_PROTOCOL, -402, FAILED, "the peer broke the protocol")                                   \
    X(ERR_RANGE, -403, FAILED, "the range is not inside one registered buffer of the peer")        \
    X(ERR_PERMISSION, -404, FAILED, "the peer's buffer does not permit this")                      \
    X(ERR_PEER_CLOSING, -405, FAILED, "the peer is shutting down")                                 \
    X(ERR_METADATA, -406, FAILED, "the metadata store or the peer's description is not usable")    \
    X(ERR_REFUSED, -407, FAILED, "the peer refused the request")                                   \
    X(ERR_CHECKSUM, -408, FAILED, "the data arrived damaged")                                      \
    X(ERR_NOT_MAPPED, -409, FAILED, "the file segment has no path on this host")                   \
    X(ERR_TRUNCATED, -410, FAILED, "the file is shorter than its segment")                         \
    /* -5xx: the outcome is unknown. The bytes may have landed: never replayed by the engine. */   \
    X(ERR_OUTCOME_UNKNOWN, -500, FAILED, "outcome unknown: the bytes may or may not have landed")  \
    /* -6xx: the caller ended it: cancel, deadline, or engine close. */                            \
    X(ERR_CANCELED, -600, CANCELED, "canceled")                                                    \
    X(ERR_TIMED_OUT, -601, TIMED_OUT, "timed out")                                                 \
    X(ERR_CLOSING, -602, CANCELED, "the engine is closing")                                        \
    /* -7xx: a defect in this library. Please report it. */                                        \
    X(ERR_INTERNAL, -700, FAILED, "internal error in ferry")

enum ferry_status {
#define FERRY_STATUS_ENUM(name, value, state, text) FERRY_##name = (value),
    FERRY_STATUS_TABLE(FERRY_STATUS_ENUM)
#undef FERRY_STATUS_ENUM
};

/** What a caller has to do about a status; the hundreds digit of the code. */
enum ferry_status_group {
    FERRY_GROUP_OK = 0,
    FERRY_GROUP_CALLER = 1,
    FERRY_GROUP_LOCAL_LIMIT = 2,
    FERRY_GROUP_PATH = 3,
    FERRY_GROUP_PEER = 4,
    FERRY_GROUP_OUTCOME_UNKNOWN = 5,
    FERRY_GROUP_ENDED_BY_CALLER = 6,
    FERRY_GROUP_DEFECT = 7,
};

/**
 * ferry_status_group() - the group of a status, which says what to do about it.
 * @status: any status code; an unknown one counts as a defect.
 *
 * Ownership: none.
 * Threads: any thread.
 * Return: the group.
 */
FERRY_API enum ferry_status_group ferry_status_group(enum ferry_status status);

/**
 * ferry_status_name() - the name of a status, such as "ERR_INVALID".
 * @status: any status code.
 *
 * Ownership: static storage, never freed.
 * Threads: any thread.
 * Return: the name, or "UNKNOWN" for a code this library does not know.
 */
FERRY_API const char *ferry_status_name(enum ferry_status status);

/**
 * ferry_status_text() - one sentence about a status, for people.
 * @status: any status code.
 *
 * Ownership: static storage, never freed.
 * Threads: any thread.
 * Return: the sentence, lower case, without a full stop.
 */
FERRY_API const char *ferry_status_text(enum ferry_status status);

/**
 * ferry_last_error_text() - what the latest failing call on this thread says about its cause.
 *
 * The text names the object and the value that was wrong. It stays valid until the next failing
 * call on the same thread. Calls that report back-pressure (FERRY_GROUP_LOCAL_LIMIT) may leave it
 * alone. Programs act on the status, never on this text.
 *
 * Ownership: thread-local storage of the library, never freed.
 * Threads: any thread; each has its own text.
 * Return: the text, at most 511 bytes; "" when nothing has failed yet.
 */
FERRY_API const char *ferry_last_error_text(void);

#ifdef __cplusplus
}
#endif

#endif
