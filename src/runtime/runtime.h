/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine from the inside: the objects of the runtime and what its files call of each other.
 * Private to src/runtime; transports see transport.h only.
 *
 *   engine --> transports, registry, store, control server, keeper
 *      |
 *      +--> segment (a name) --> view (what the peer's description said) --> targets, one each
 *      |                           ^
 *      +--> batch --> task --------+   one reference per open task
 *
 * Handles of segments and batches come from pools, whose memory lives as long as the engine: an
 * object may be looked at after it was given back, and the generation then says so.
 *
 * Locks, in the order in which they may be taken (nobody holds two unless it says so):
 *   publish_mutex, segments_mutex, segment->mutex, batches_mutex, memory_mutex, inbox.mutex
 * The one of metrics is held while transports take theirs; no other is taken inside.
 */
#ifndef FERRY_RUNTIME_RUNTIME_H
#define FERRY_RUNTIME_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferry/ferry.h>

#include "base/clock.h"
#include "base/futex.h"
#include "base/hostport.h"
#include "base/list.h"
#include "base/pool.h"
#include "base/ring.h"
#include "control/channel.h"
#include "memory/alloc.h"
#include "memory/registry.h"
#include "metadata/store.h"
#include "reactor/worker.h"
#include "runtime/batch.h"
#include "runtime/seams.h"
#include "runtime/segment.h"
#include "runtime/tally.h"
#include "transport/transport.h"

struct ferry_access_control;
struct ferry_config;
struct ferry_control_server;
struct ferry_document;
struct ferry_goodbye_body;
struct ferry_http_client;
struct ferry_metrics;
struct ferry_notify_body;
struct ferry_notify_inbox;
struct ferry_topology;

/* Submitters that look up local memory at the same time without sharing a snapshot's reader. */
#define FERRY_READERS 16

/* Batches of one task that ferry_read() and ferry_write() keep for use again. */
#define FERRY_SYNC_BATCHES 256

/* Values of the configuration that the runtime itself uses, read once. */
struct ferry_settings {
    enum ferry_wait_mode wait;
    uint64_t spin_ns;
    uint64_t control_timeout_ns;
    uint64_t metadata_timeout_ns;
    uint64_t close_timeout_ns;
    uint32_t batches_max;
    uint32_t vectored_requests_max;
    uint32_t segments_max;
    uint32_t ranges_max;
    uint32_t notifications_max;
};

/* One row of the registry, open or not. */
struct ferry_transport_slot {
    const struct ferry_transport_ops *ops;
    struct ferry_transport *transport; /* NULL: not in use */
    struct ferry_transport *inner;     /* what `transport` decorates, or NULL */
    char reason[256];                  /* why it is not in use */
};

struct ferry_reader_slot {
    FERRY_ALIGNED_LINE atomic_flag busy;
    struct ferry_registry_reader reader; /* of whoever set busy */
};

/* The keeper: one worker of the runtime for what must run on a thread that nobody waits on. */
struct ferry_keeper {
    /* immutable after open */
    struct ferry_worker *worker;
    /* holder of the worker's baton only */
    struct ferry_list waiting; /* tasks that wait for a refresh or for room */
    struct ferry_timer timer;
    /* any thread, atomic */
    struct ferry_inbox stale;    /* tasks on their way to `waiting` */
    struct ferry_inbox finished; /* batches whose end must not be told on the submitter's thread */
    _Atomic bool posted;
    _Atomic uint32_t held; /* tasks in `stale` and `waiting`; futex for the close */
    struct ferry_job job;
};

/* What is allocated by ferry_memory_alloc(). */
struct ferry_allocation {
    struct ferry_list link;
    struct ferry_pages pages; /* registered as a whole */
};

struct ferry_engine {
    /* immutable after open */
    pid_t pid;
    _Atomic uint32_t *fork_mark; /* a page that the kernel zeroes in a child; NULL: compare pids */
    struct ferry_config *config;
    struct ferry_settings settings;
    struct ferry_engine_seams seams;
    const struct ferry_clock *clock;
    struct ferry_random *random;
    char name[FERRY_HOSTPORT_SIZE];            /* of the own segment */
    char control_address[FERRY_HOSTPORT_SIZE]; /* "host:port" that peers are told */
    char advertise_host[FERRY_HOST_SIZE];
    char incarnation[FERRY_INCARNATION_TEXT_SIZE];
    char machine_id[128];
    struct ferry_spin_budget budget;
    struct ferry_topology *topology;
    struct ferry_access_control *access; /* what peers have to prove, and what is proved to them */
    struct ferry_http_client *http;      /* NULL: threadless */
    struct ferry_store *store;
    bool store_owned;
    struct ferry_control_server *control; /* NULL: threadless */
    struct ferry_peer_channel channel;    /* of the transports, over `http` */
    struct ferry_transport_env env;
    struct ferry_transport_slot transports[FERRY_TRANSPORTS_MAX];
    uint32_t transport_count;
    struct ferry_view *local_view;
    struct ferry_notify_inbox *inbox;
    struct ferry_metrics *metrics;
    /* any thread, atomic */
    struct ferry_registry registry;
    bool registry_open;
    struct ferry_pool segments;
    struct ferry_pool views;
    struct ferry_pool batches;
    struct ferry_pool vectors;      /* struct ferry_vector */
    struct ferry_ring sync_batches; /* of struct ferry_batch */
    bool sync_open;
    struct ferry_tally tally;
    struct ferry_reader_slot *readers; /* FERRY_READERS of them */
    struct ferry_keeper keeper;
    _Atomic bool named;                 /* `name` is set; the control plane may say it */
    _Atomic bool ready;                 /* the control plane answers */
    _Atomic bool closing;               /* set once; submit, create and open refuse from then on */
    _Atomic uint32_t refreshes_running; /* futex: close waits for 0 */
    _Atomic uint64_t refresh_count;
    _Atomic uint64_t publish_count;
    _Atomic uint64_t goodbye_count;
    /* any thread, under publish_mutex */
    pthread_mutex_t publish_mutex;
    struct ferry_published *published; /* the description as last printed; NULL: none yet */
    uint64_t stored_generation;        /* what the store has */
    bool stored;
    /* any thread, under segments_mutex */
    pthread_mutex_t segments_mutex;
    struct ferry_list segment_list;
    /* any thread, under batches_mutex */
    pthread_mutex_t batches_mutex;
    struct ferry_list batch_list;
    /* any thread, under memory_mutex */
    pthread_mutex_t memory_mutex;
    struct ferry_list allocations;
};

/* ---- fork.c ---- */
enum ferry_status ferry_fork_mark_open(struct ferry_engine *engine);
void ferry_fork_mark_close(struct ferry_engine *engine);
bool ferry_engine_forked(const struct ferry_engine *engine);
/* ERR_FORKED with text in a child, else FERRY_OK. The first line of every public call. */
enum ferry_status ferry_engine_enter(const struct ferry_engine *engine);
/* The same for calls that block: ERR_STATE inside a completion callback as well. */
enum ferry_status ferry_engine_enter_blocking(const struct ferry_engine *engine);
/* What close does in a child: keeps the object reachable and touches nothing else. */
void ferry_engine_bury(struct ferry_engine *engine);

/* ---- settings.c ---- */
enum ferry_status ferry_settings_read(const struct ferry_config *config,
                                      struct ferry_settings *settings_out);
/* A copy of the options' configuration, or defaults and environment; applies logging settings. */
enum ferry_status ferry_engine_configure(const struct ferry_engine_options *options,
                                         struct ferry_config **config_out);

/* ---- places.c ---- */
struct ferry_places {
    char bind_host[FERRY_HOST_SIZE];      /* numeric */
    char advertise_host[FERRY_HOST_SIZE]; /* never a wildcard */
};
/* Where the control plane listens and what peers are told. ERR_INVALID names the setting. */
enum ferry_status ferry_places_choose(const struct ferry_config *config,
                                      struct ferry_places *places_out);
void ferry_machine_id(char *buf, size_t size);

/* ---- routes.c ---- */
enum ferry_status ferry_control_open(struct ferry_engine *engine,
                                     const struct ferry_places *places);

/* ---- transports.c ---- */
enum ferry_status ferry_transports_open(struct ferry_engine *engine);
void ferry_transports_quiesce(struct ferry_engine *engine);
void ferry_transports_close(struct ferry_engine *engine);

/* ---- local_segment.c ---- */
/* A description of the own segment as it is now. The caller destroys it. */
enum ferry_status ferry_local_document(struct ferry_engine *engine, struct ferry_document **doc_out,
                                       uint64_t *generation_out);
/* One printed description, shared by replies and the store; a reference each. */
struct ferry_published {
    _Atomic uint32_t refs;
    uint64_t generation;
    size_t len;
    char *text;
};
/* The current one, printed if it changed. Release it. */
enum ferry_status ferry_published_acquire(struct ferry_engine *engine,
                                          struct ferry_published **published_out);
void ferry_published_release(struct ferry_published *published);
/* See to it that the store has what is registered now; one PUT serves all who wait for it. */
enum ferry_status ferry_local_publish(struct ferry_engine *engine);
/* The first publication: ERR_EXISTS if a living engine has the name. */
enum ferry_status ferry_local_claim(struct ferry_engine *engine);
/* Delete it from the store, if it is still ours. Best effort, bounded. */
void ferry_local_withdraw(struct ferry_engine *engine, uint64_t deadline_ns);

/* ---- memory.c ---- */
void ferry_memory_release_all(struct ferry_engine *engine, bool *leaked_out);

/* ---- store_wait.c ---- */
/* Submit and wait; in a threadless engine by stepping. Returns the request's status with text. */
enum ferry_status ferry_engine_store_call(struct ferry_engine *engine,
                                          struct ferry_store_request *request);
/* Sleep until *word differs from @seen; false when the deadline passed. Threadless: step. */
bool ferry_engine_sleep(struct ferry_engine *engine, _Atomic uint32_t *word, uint32_t seen,
                        uint64_t deadline_ns);

/* ---- submit.c ---- */
struct ferry_reader_slot *ferry_reader_lock(struct ferry_engine *engine, uint32_t hint);
void ferry_reader_unlock(struct ferry_reader_slot *slot);

/* ---- retry.c ---- */
enum ferry_status ferry_keeper_open(struct ferry_engine *engine);
/* Given: no xfer is open. Ends what still waits, and returns when it is empty. */
void ferry_keeper_drain(struct ferry_engine *engine);
void ferry_keeper_close(struct ferry_engine *engine);
/* Any thread: look again soon, because a task was canceled, memory revoked or a refresh ended. */
void ferry_keeper_poke(struct ferry_engine *engine);
/* Take a task whose registration is stale; false if it has to end instead. Any thread. */
bool ferry_retry_begin(struct ferry_task *task);
/* Take an accepted task that a transport refused: try again until there is room. Any thread. */
void ferry_retry_refused(struct ferry_task *task, enum ferry_status status);
/* Tell a batch's end on the keeper's thread. */
void ferry_keeper_finish(struct ferry_batch *batch);

/* ---- notify.c ---- */
enum ferry_status ferry_notify_open(struct ferry_engine *engine);
void ferry_notify_close(struct ferry_engine *engine);
/* ERR_QUEUE_FULL, ERR_NO_MEMORY; bare. */
enum ferry_status ferry_notify_put(struct ferry_engine *engine,
                                   const struct ferry_notify_body *body);

/* ---- segment_buffers.c ---- */
/* "http(s)://<control address of a peer><path>". ERR_INVALID (own segment), ERR_UNSUPPORTED (no
 * ferry). */
enum ferry_status ferry_segment_url(struct ferry_engine *engine, uint64_t segment, const char *path,
                                    char *url, size_t size);

/* ---- file_segment.c ---- */
/* True for "file://...". */
bool ferry_file_segment_named(const char *name);
/* Look at the file; blocks on the file system. The text says what there is now, malloc'd. */
enum ferry_status ferry_file_segment_look(const char *name, char **text_out, size_t *len_out);
enum ferry_status ferry_file_segment_view(struct ferry_segment *segment, const char *text,
                                          struct ferry_view **view_out);
/* True for "nvmeof/...", which a store describes. */
bool ferry_stored_files_named(const char *name);
enum ferry_status ferry_stored_files_view(struct ferry_segment *segment, const char *text,
                                          size_t len, struct ferry_view **view_out);
/* The document under a view of files: its name and one buffer. */
enum ferry_status ferry_file_segment_document(const char *name, uint64_t length,
                                              struct ferry_document **doc_out);

/* ---- goodbye.c ---- */
void ferry_goodbye_send(struct ferry_engine *engine, uint64_t deadline_ns);
void ferry_goodbye_received(struct ferry_engine *engine, const struct ferry_goodbye_body *body);

/* ---- report.c ---- */
enum ferry_status ferry_report_process(struct ferry_engine *engine, char **json_out);
enum ferry_status ferry_report_transports(struct ferry_engine *engine, char **json_out);
enum ferry_status ferry_report_build(char **json_out);
/* report_host.c */
enum ferry_status ferry_report_host(char **json_out);

/* ---- engine.c ---- */
/* The index of an open transport by name; ERR_INVALID (unknown), ERR_UNSUPPORTED (not in use). */
enum ferry_status ferry_engine_find_transport(const struct ferry_engine *engine, const char *name,
                                              uint32_t *index_out);

static inline bool ferry_engine_closing(struct ferry_engine *engine)
{
    return atomic_load(&engine->closing);
}

static inline uint64_t ferry_engine_now(const struct ferry_engine *engine)
{
    return ferry_now_ns(engine->clock);
}

/* The earlier of a caller's deadline and now plus a limit; never "none". */
static inline uint64_t ferry_engine_deadline(const struct ferry_engine *engine,
                                             uint64_t deadline_ns, uint64_t limit_ns)
{
    uint64_t bound = ferry_deadline_ns(ferry_engine_now(engine), limit_ns);

    return deadline_ns < bound ? deadline_ns : bound;
}

#endif
