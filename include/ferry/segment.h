/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: named address spaces, the targets of requests.
 *
 * A segment handle is an index with a generation, never a pointer: a handle of a closed segment is
 * an error, not a crash. Example: examples/read.c.
 */
#ifndef FERRY_SEGMENT_H
#define FERRY_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/memory.h>
#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ferry_engine;

/** The handle of the engine's own segment; always open. */
#define FERRY_SEGMENT_LOCAL 0

/** One buffer of a segment. */
struct ferry_segment_buffer {
    size_t struct_size; /* the stride of an array */
    uint64_t addr;      /* the remote_offset of its first byte */
    uint64_t length;
    enum ferry_permission permission;
    char location[64];
};

/**
 * ferry_segment_open() - find a segment by name.
 * @engine:      an open engine.
 * @name:        a segment name; "" or the engine's own name give FERRY_SEGMENT_LOCAL. Without a
 *               store: "host:port" or "[v6]:port" of the peer's control plane. "file://PATH" is a
 *               file or block device of this host, found without a peer or a store, as long as it
 *               is now; "nvmeof/NAME" is several files, as the store says.
 * @deadline_ns: absolute CLOCK_MONOTONIC nanoseconds, or FERRY_NO_DEADLINE (then control_timeout_ms
 *               bounds it).
 * @segment_out: the handle. The same name gives the same handle, counted.
 *
 * Reads the peer's description. No data connection is made and no file is opened yet.
 *
 * Ownership: close with ferry_segment_close().
 * Threads: any thread, not from a callback. Blocks.
 * Return:
 *   FERRY_OK             open.
 *   FERRY_ERR_INVALID    the name cannot be parsed; the text quotes it.
 *   FERRY_ERR_NOT_FOUND  the store does not know the name.
 *   FERRY_ERR_PEER_GONE  nobody answers there; the text has each address and reason.
 *   FERRY_ERR_METADATA   the description is malformed or too large.
 *   FERRY_ERR_PERMISSION a folder on the way to the file may not be searched.
 *   FERRY_ERR_IO         the file system failed.
 *   FERRY_ERR_UNSUPPORTED no transport in use here serves files.
 *   FERRY_ERR_STATE      called from a callback.
 *   FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT (segments_max, descriptors), FERRY_ERR_NO_MEMORY,
 *   FERRY_ERR_CLOSING, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_segment_open(struct ferry_engine *engine,
                                                       const char *name, uint64_t deadline_ns,
                                                       uint64_t *segment_out);

/**
 * ferry_segment_close() - give a handle back.
 * @engine:  an open engine.
 * @segment: an open handle; FERRY_SEGMENT_LOCAL does nothing.
 *
 * Running requests keep what they need; connections idle out.
 *
 * Ownership: after the last close of a name the handle is stale.
 * Threads: any thread.
 * Return: FERRY_OK, FERRY_ERR_STALE_HANDLE, FERRY_ERR_FORKED.
 */
FERRY_API enum ferry_status ferry_segment_close(struct ferry_engine *engine, uint64_t segment);

/**
 * ferry_segment_refresh() - read the peer's description again.
 * @engine:      an open engine.
 * @segment:     an open handle.
 * @deadline_ns: as in ferry_segment_open().
 *
 * Requests do this by themselves, once, when the peer says that a registration is stale.
 *
 * Ownership: none.
 * Threads: any thread, not from a callback. Blocks.
 * Return: as ferry_segment_open(), and FERRY_ERR_STALE_HANDLE.
 */
FERRY_API_CHECKED enum ferry_status ferry_segment_refresh(struct ferry_engine *engine,
                                                          uint64_t segment, uint64_t deadline_ns);

/**
 * ferry_segment_buffers() - list the buffers of a segment, ordered by address.
 * @engine:      an open engine.
 * @segment:     an open handle.
 * @buffers_out: room for *@count_inout entries, each struct_size set in the first; NULL with a
 * count of 0 only counts.
 * @count_inout: in: room; out: how many there are, which may be more than fitted.
 *
 * Ownership: copied out.
 * Threads: any thread.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_STALE_HANDLE, FERRY_ERR_NO_MEMORY,
 *   FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_segment_buffers(struct ferry_engine *engine,
                                                          uint64_t segment,
                                                          struct ferry_segment_buffer *buffers_out,
                                                          size_t *count_inout);

/**
 * ferry_segment_report() - ask a peer's control plane for one of its reports.
 * @engine:      an open engine.
 * @segment:     an open remote handle.
 * @path:        "segment", "process", "transports", "health" or "version".
 * @deadline_ns: absolute CLOCK_MONOTONIC nanoseconds.
 * @json_out:    JSON text.
 *
 * Ownership: the caller's, to be given to ferry_text_free().
 * Threads: any thread, not from a callback. Blocks.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_PEER_GONE, FERRY_ERR_TIMED_OUT,
 *   FERRY_ERR_PROTOCOL (no HTTP, or a status other than 200: a peer that starts or closes says
 *   503), FERRY_ERR_TOO_LARGE, FERRY_ERR_STALE_HANDLE, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY,
 *   FERRY_ERR_METADATA (the peer's description names no control address), FERRY_ERR_UNSUPPORTED (a
 *   peer without ferry's control plane), FERRY_ERR_STATE (called from a callback),
 *   FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_segment_report(struct ferry_engine *engine,
                                                         uint64_t segment, const char *path,
                                                         uint64_t deadline_ns, char **json_out);

#ifdef __cplusplus
}
#endif

#endif
