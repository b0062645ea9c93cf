/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: one instance in a process, with its configuration, registry, transports and workers.
 *
 * Several engines may live in one process. After fork() an engine belongs to the parent; every call
 * on it in the child fails with FERRY_ERR_FORKED, and the child may open its own. The library
 * leaves the program's signals, locale and descriptors alone. Example: examples/read.c.
 */
#ifndef FERRY_ENGINE_H
#define FERRY_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/config.h>
#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ferry_engine;

/** No deadline. All deadlines are absolute CLOCK_MONOTONIC nanoseconds. */
#define FERRY_NO_DEADLINE UINT64_MAX

/** How ferry_engine_open() is to build the engine. */
struct ferry_engine_options {
    size_t struct_size;
    const struct ferry_config *config; /* NULL: defaults and the environment */
    const char *segment_name;          /* overrides local_segment_name; NULL: as configured */
};

#define FERRY_ENGINE_OPTIONS_INIT                                                                  \
    {                                                                                              \
        .struct_size = sizeof(struct ferry_engine_options)                                         \
    }

/**
 * ferry_engine_open() - start an engine.
 * @options:    NULL for defaults and the environment.
 * @engine_out: the engine.
 *
 * Starts the control plane and the transports, and publishes the (empty) local segment. A transport
 * that cannot work on this host is left out with one log line, unless nothing is left.
 *
 * Ownership: the caller's, until ferry_engine_close(). Options and configuration are copied.
 * Threads: any thread. Blocks for the control plane's start and the metadata store.
 * Return:
 *   FERRY_OK               running.
 *   FERRY_ERR_CONFIG       a setting is wrong; the text names it.
 *   FERRY_ERR_INVALID      an address cannot be used or published; the text names it.
 *   FERRY_ERR_EXISTS       the port or the segment name is taken.
 *   FERRY_ERR_UNSUPPORTED  no transport works here.
 *   FERRY_ERR_METADATA, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY, FERRY_ERR_IO.
 */
FERRY_API_CHECKED enum ferry_status ferry_engine_open(const struct ferry_engine_options *options,
                                                      struct ferry_engine **engine_out);

/**
 * ferry_engine_close() - stop an engine and free it.
 * @engine: an engine or NULL.
 *
 * Stops admitting, ends what is running (FERRY_ERR_CLOSING), tells peers, withdraws the local
 * segment, closes transports, stops workers, unregisters memory, frees. Bounded in time by the
 * setting close_timeout_ms. In a forked child it touches nothing and frees nothing, since all of it
 * belongs to threads that the child does not have.
 *
 * Ownership: @engine, its batches and segments are gone; registered memory is the caller's again.
 * Threads: one thread, when no other thread is inside a call on @engine; not from a callback.
 * Return: FERRY_OK; FERRY_ERR_BUSY (a device would not let go, or a callback does not return: what
 *   they use is leaked on purpose, and @engine is gone); FERRY_ERR_STATE (called from a callback:
 *   nothing changed).
 */
FERRY_API enum ferry_status ferry_engine_close(struct ferry_engine *engine);

/**
 * ferry_engine_segment_name() - the name under which peers open this engine's segment.
 * @engine: an open engine.
 *
 * Without a metadata store it is the control address, "host:port" ("[v6]:port").
 *
 * Ownership: the engine's; valid until it is closed.
 * Threads: any thread.
 * Return: the name.
 */
FERRY_API const char *ferry_engine_segment_name(const struct ferry_engine *engine);

/** What ferry_engine_report() describes. */
enum ferry_report {
    FERRY_REPORT_PROCESS = 0, /* pid, CPU seconds per thread, resident bytes, descriptors */
    FERRY_REPORT_TRANSPORTS =
        1,                    /* each transport: state, reactor, lanes, counters, or why absent */
    FERRY_REPORT_SEGMENT = 2, /* the local segment document as published */
    FERRY_REPORT_BUILD = 3,   /* version, features (works without an engine) */
    FERRY_REPORT_HOST = 4,    /* addresses, NUMA nodes, NICs, limits (works without an engine) */
};

/**
 * ferry_engine_report() - describe an engine, or this host, as JSON.
 * @engine:   an open engine; NULL is allowed for BUILD and HOST.
 * @report:   what to describe.
 * @json_out: JSON text.
 *
 * Ownership: the caller's, to be given to ferry_text_free().
 * Threads: any thread. May block for milliseconds; not for the hot path.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_engine_report(struct ferry_engine *engine,
                                                        enum ferry_report report, char **json_out);

/**
 * ferry_text_free() - free text that the library handed out.
 * @text: text or NULL.
 *
 * Ownership: @text is gone.
 * Threads: any thread.
 * Return: nothing.
 */
FERRY_API void ferry_text_free(char *text);

/**
 * ferry_version() - the version of the library, such as "0.1.0".
 *
 * Ownership: static storage.
 * Threads: any thread.
 * Return: the version.
 */
FERRY_API const char *ferry_version(void);

/** A notification that arrived. */
struct ferry_notification {
    size_t struct_size;
    char sender[256]; /* segment name of the sender */
    char name[256];
    char message[4096];
};

/**
 * ferry_notify_send() - send a short text to a peer's engine.
 * @engine:      an open engine.
 * @segment:     an open remote segment.
 * @name:        UTF-8, at most 255 bytes.
 * @message:     UTF-8, at most 4095 bytes.
 * @deadline_ns: absolute CLOCK_MONOTONIC nanoseconds.
 *
 * Ownership: the strings are copied.
 * Threads: any thread, not from a callback. Blocks until the peer has it or the deadline.
 * Return: FERRY_OK (the peer's engine has it), FERRY_ERR_INVALID, FERRY_ERR_TOO_LARGE,
 *   FERRY_ERR_QUEUE_FULL (the peer's inbox is full), FERRY_ERR_PEER_GONE, FERRY_ERR_TIMED_OUT,
 *   FERRY_ERR_PROTOCOL (the peer answers something else), FERRY_ERR_UNSUPPORTED (a peer without
 *   ferry's control plane), FERRY_ERR_METADATA (its description names no control address),
 *   FERRY_ERR_STALE_HANDLE, FERRY_ERR_STATE (called from a callback), FERRY_ERR_LIMIT,
 *   FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_notify_send(struct ferry_engine *engine, uint64_t segment,
                                                      const char *name, const char *message,
                                                      uint64_t deadline_ns);

/**
 * ferry_notify_receive() - take the oldest notification.
 * @engine:           an open engine.
 * @deadline_ns:      how long to wait; 0 does not wait.
 * @notification_out: struct_size set by the caller.
 *
 * Ownership: copied out.
 * Threads: any thread; from a callback only with a deadline of 0.
 * Return: FERRY_OK, FERRY_ERR_TIMED_OUT (none came), FERRY_ERR_INVALID, FERRY_ERR_CLOSING,
 *   FERRY_ERR_STATE (would wait in a callback), FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status
ferry_notify_receive(struct ferry_engine *engine, uint64_t deadline_ns,
                     struct ferry_notification *notification_out);

#ifdef __cplusplus
}
#endif

#endif
