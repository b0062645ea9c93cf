/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments and their views. A segment is a name that somebody opened; a view is what the peer's
 * description said when it was last read: the document and one target per transport, immutable. A
 * refresh puts a new view in the place of the old one, which lives on until the last task that
 * started with it has ended.
 */
#ifndef FERRY_RUNTIME_SEGMENT_H
#define FERRY_RUNTIME_SEGMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/segment.h>

#include "base/list.h"
#include "metadata/store.h"
#include "transport/transport.h"

struct ferry_engine;
struct ferry_segment;

/*
 * From a pool whose memory outlives every user, so that acquire may count up a view that was just
 * given back and find out afterwards. The count is therefore never set, only added to; RETIRED
 * marks a view whose segment has let go, and whoever brings "RETIRED, no user" to 0 frees it.
 */
#define FERRY_VIEW_RETIRED (1ULL << 63)

struct ferry_view {
    _Atomic uint64_t refs;
    /* constant from install to free */
    struct ferry_engine *engine;
    struct ferry_segment *segment; /* NULL: the engine's own */
    struct ferry_document *doc;
    bool files; /* of a file segment: one buffer from offset 0 on, and nobody behind it */
    uint64_t text_hash;
    uint64_t text_len;
    struct ferry_target *targets[FERRY_TRANSPORTS_MAX]; /* by transport index; NULL: not offered */
    uint32_t target_count;
    uint32_t first_target; /* its index, if there is one */
};

/*
 * Build a view from a document, which it takes (also on failure). It starts with the segment's
 * reference. ERR_METADATA (no transport could use it, and one found it malformed), ERR_NO_MEMORY.
 */
enum ferry_status ferry_view_create(struct ferry_engine *engine, struct ferry_segment *segment,
                                    struct ferry_document *doc, struct ferry_view **view_out);
/* The same for a file segment: the targets come from @layout, which is only read. */
enum ferry_status ferry_view_create_files(struct ferry_engine *engine,
                                          struct ferry_segment *segment, struct ferry_document *doc,
                                          const struct ferry_file_layout *layout,
                                          struct ferry_view **view_out);
/* The segment lets go. */
void ferry_view_retire(struct ferry_view *view);
/* The view in a slot with one more user, or NULL. */
struct ferry_view *ferry_view_acquire(_Atomic(struct ferry_view *) *slot);
/* One more user; the caller is one. */
void ferry_view_retain(struct ferry_view *view);
void ferry_view_release(struct ferry_view *view);

struct ferry_segment {
    /* constant from open to free */
    struct ferry_engine *engine;
    char *name;
    bool is_file; /* "file://...": neither a peer nor a store knows it */
    /* any thread, atomic */
    _Atomic(struct ferry_view *) view; /* NULL: never read yet, or closed */
    _Atomic uint32_t refs;             /* table, views, running refresh */
    _Atomic uint32_t refresh_started;  /* number of the last refresh that began; under the mutex */
    _Atomic uint32_t refresh_done;     /* number of the last refresh that ended; futex */
    /* under the engine's segments_mutex */
    struct ferry_list link;
    uint32_t opens;
    bool watched; /* watch is the store's */
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    bool closed;
    bool refreshing;
    bool news; /* the store told of a change since the last refresh began */
    enum ferry_status refresh_status;
    char refresh_error[512];
    /* the running refresh's own */
    struct ferry_store_request request;
    /* the store's between watch and unwatch */
    struct ferry_store_watch watch;
};

/*
 * See to it that refresh number @ticket, or a later one, will begin: at once if none runs; else the
 * caller asks again when the one that runs has ended. Any thread; does not block.
 */
void ferry_segment_refresh_begin(struct ferry_segment *segment, uint32_t ticket);
/* Whether refresh number @ticket, or a later one, has ended. */
bool ferry_segment_refresh_over(const struct ferry_segment *segment, uint32_t ticket);
/* Of the last refresh; with @error (512 bytes, may be NULL) the cause. */
enum ferry_status ferry_segment_refresh_result(struct ferry_segment *segment, char *error);

/*
 * The view of a handle, with one more user that keeps its segment alive, too. ERR_STALE_HANDLE,
 * bare. FERRY_SEGMENT_LOCAL gives the engine's own.
 */
enum ferry_status ferry_segment_view(struct ferry_engine *engine, uint64_t handle,
                                     struct ferry_view **view_out);

void ferry_segment_release(struct ferry_segment *segment);

/*
 * Hear of changes of a file segment's description, where the store tells: each one is read, so that
 * a path that was mapped anew is used without anybody asking. Where it does not, or has no room,
 * requests find out by themselves. Under segments_mutex, while somebody has the segment open.
 */
void ferry_segment_watch(struct ferry_segment *segment);
/* Blocks until no news can come any more. Not the store's thread; nobody has it open. */
void ferry_segment_unwatch(struct ferry_segment *segment);
/* All of them, before the store is closed. */
void ferry_segments_unwatch_all(struct ferry_engine *engine);
/* Close: every segment lets go of its view, whatever its count. Given: no batch is open. */
void ferry_segments_close_all(struct ferry_engine *engine);

#endif
