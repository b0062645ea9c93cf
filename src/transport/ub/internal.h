/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of ub share: the objects, who owns each field, and the calls between files.
 *
 *   xfer --> flow (slice.c) --refs--> worker (worker.c) --slot--> endpoint (endpoint.c, fence.c)
 *                                        |                            |
 *                                        +--> jfc (jfc.c) <-----------+--> context (context.c)
 *
 * A flow is one request inside this transport; workers cut slices off its front. A slot is one
 * slice in a worker's hands, through all its attempts. An endpoint is one incarnation of a path to
 * a peer's device, for one worker; a successor has a higher generation. A path is what a worker
 * knows about a local and a remote device: its health, its speed, its present endpoint.
 *
 * Threads: an endpoint belongs to one worker for life, from READY on; its handshake is under the
 * transport's mutex, on whatever thread brings it forward (worker, pool, control server, control
 * client). Native calls that may take long run on the pool. Contexts are looked after by worker 0.
 *
 * Locks, in the order in which they may be taken: mutex, import_mutex, buffer_mutex.
 */
#ifndef FERRY_UB_INTERNAL_H
#define FERRY_UB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/pool.h"
#include "control/channel.h"
#include "foreign/urma.h"
#include "memory/registry.h"
#include "offload/offload.h"
#include "reactor/worker.h"
#include "topology/ub.h"
#include "transport/device/attempts.h"
#include "transport/device/choose.h"
#include "transport/device/gate.h"
#include "transport/device/life.h"
#include "transport/device/quota.h"
#include "transport/device/rail.h"
#include "transport/device/store.h"
#include "transport/ub/options.h"
#include "transport/ub/ub.h"

struct ub_buffer;
struct ub_ctx;
struct ub_endpoint;
struct ub_flow;
struct ub_import;
struct ub_peer;
struct ub_slot;
struct ub_target;
struct ub_transport;
struct ub_worker;

#define UB_PATHS_MAX         64u /* pairs of a local and a remote device, per peer */
#define UB_REFS_MAX          FERRY_UB_WORKERS_MAX
#define UB_BATCH             16u /* requests of one endpoint that are posted together */
#define UB_PIECES_MAX        96u /* registrations of one range, over all devices */
#define UB_REMOTES_MAX       16u /* devices of a peer */
#define UB_INCARNATION_LEN   16u
#define UB_BOOTSTRAP_VERSION 1

/* ---- contexts (context.c) and completion queues (jfc.c) ---- */

enum ub_ctx_state {
    UB_CTX_CLOSED, /* to be opened, at the next try */
    UB_CTX_ACTIVE,
    UB_CTX_DOWN, /* no port: nothing new is posted, what was ends as it ends */
    UB_CTX_LOST, /* its endpoints are retired; then it is closed and opened anew */
};

struct ub_jfc {
    struct ub_ctx *ctx;
    struct ub_worker *worker;
    struct ferry_urma_cq *native;
    uint32_t depth;
    /* its worker only */
    uint32_t endpoints; /* that report to it and are not destroyed */
    uint32_t inflight;
};

/* One (device, EID), through all times that it was opened. Its index is its identity for peers. */
struct ub_ctx {
    /* immutable after open */
    struct ub_transport *transport;
    uint32_t index;
    char topology_id[FERRY_TOPOLOGY_UB_ID_SIZE];
    struct ferry_urma_caps caps; /* as at the first open */
    int32_t numa_node;
    enum ferry_urma_path_type path_type;
    uint32_t jetty_depth;
    uint64_t request_bytes_max;
    uint64_t segment_bytes_max; /* 0: no limit */
    /* any thread, atomic */
    _Atomic uint32_t state;     /* enum ub_ctx_state; written by worker 0 and its jobs */
    _Atomic uint32_t endpoints; /* not destroyed */
    _Atomic bool fatal;         /* the device said that it is dead */
    struct ferry_device_quota quota;
    _Atomic uint64_t opens;
    _Atomic uint64_t losses;
    /* written by the thread that opens or recycles it, under mutex; read by others under mutex */
    struct ferry_topology_ub device;
    /* the thread that opens, recycles or closes it; read by others while it is not CLOSED */
    struct ferry_urma_ctx *native;
    uint32_t uasid;
    struct ub_jfc *jfcs; /* one per worker */
    bool takes_buffers;  /* under buffer_mutex: ranges are registered on it */
    /* worker 0 only */
    bool busy; /* a job of the pool has it */
    uint64_t retry_at_ns;
    struct ferry_offload_job pool_job;
    struct ferry_job done_job;
    bool refresh_only;
};

enum ferry_status ferry_ub_contexts_open(struct ub_transport *transport);
/* Given: no worker runs. True if everything native is gone. */
bool ferry_ub_context_close(struct ub_ctx *ctx);
/* Worker 0: events, ports, loss and return of all contexts. The time of the next look. */
uint64_t ferry_ub_contexts_look(struct ub_transport *transport, uint64_t now_ns);
/* Any worker: what it learnt about a context the hard way. */
void ferry_ub_context_lost(struct ub_ctx *ctx, const char *why);
static inline enum ub_ctx_state ferry_ub_context_state(const struct ub_ctx *ctx)
{
    /* In one order with the counting of endpoints: see ferry_ub_context_enter(). */
    return (enum ub_ctx_state)atomic_load(&ctx->state);
}
/* Count one endpoint in, unless the context takes none now. Whoever recycles it looks in the other
 * order: state first, then the count. */
static inline bool ferry_ub_context_enter(struct ub_ctx *ctx)
{
    atomic_fetch_add(&ctx->endpoints, 1);
    if (ferry_ub_context_state(ctx) == UB_CTX_ACTIVE)
        return true;
    atomic_fetch_sub(&ctx->endpoints, 1);
    return false;
}
struct ferry_urma_status ferry_ub_jfcs_create(struct ub_ctx *ctx);
/* False while the provider is busy; goes on at the next call. */
bool ferry_ub_jfcs_destroy(struct ub_ctx *ctx);
/* The worker: take what is there; returns how many. */
uint32_t ferry_ub_jfc_poll(struct ub_jfc *jfc, uint64_t now_ns);

/* ---- registered memory (buffers.c) ---- */

/* One piece of a range on one device. */
struct ub_piece {
    struct ferry_urma_mem *mem; /* NULL: not registered there now */
    uint32_t token;
};

struct ub_buffer {
    /* immutable */
    uint64_t registration_id;
    uint64_t addr;
    uint64_t length;
    enum ferry_permission permission;
    int32_t numa_node;
    char location[FERRY_REGISTRY_LOCATION_SIZE];
    uint64_t piece_bytes;
    uint32_t piece_count;
    struct ferry_list link; /* under buffer_mutex */
    uint64_t generation;    /* grows when its keys change; under buffer_mutex */
    bool going;             /* being removed; under buffer_mutex */
    /* [ctx * piece_count + piece]; of a context: written while it is CLOSED or by add and remove */
    struct ub_piece pieces[];
};

/* An immutable, sorted copy of the table for those who look up without a lock. */
struct ub_buffer_view {
    struct ub_buffer_view *older; /* replaced ones that may still be read; under buffer_mutex */
    struct ub_buffer *dropped;    /* freed with the view that had it last */
    uint32_t count;
    struct ub_buffer *buffers[];
};

enum ferry_status ferry_ub_add_buffer(struct ferry_transport *transport,
                                      const struct ferry_registry_buffer *buffer);
enum ferry_status ferry_ub_remove_buffer(struct ferry_transport *transport,
                                         uint64_t registration_id, uint64_t deadline_ns);
/* All buffers on one context, when it is opened anew, and away from it. */
enum ferry_status ferry_ub_buffers_register_on(struct ub_ctx *ctx);
bool ferry_ub_buffers_unregister_from(struct ub_ctx *ctx);
/* The buffer that covers a local range that its caller holds a lease on; NULL: none. */
struct ub_buffer *ferry_ub_buffer_find(struct ub_transport *transport, uint64_t addr,
                                       uint64_t length);
void ferry_ub_buffers_free(struct ub_transport *transport);
static inline struct ub_piece *ferry_ub_piece(struct ub_buffer *buffer, uint32_t ctx_index,
                                              uint64_t addr)
{
    return &buffer->pieces[ctx_index * buffer->piece_count +
                           (addr - buffer->addr) / buffer->piece_bytes];
}

/* ---- published attributes (attr.c) ---- */

struct ub_remote_device {
    uint8_t eid[FERRY_URMA_EID_SIZE];
    int32_t numa_node;
    bool active;
    char name[FERRY_URMA_NAME_SIZE];
};

struct ub_segment_attr {
    uint8_t incarnation[UB_INCARNATION_LEN];
    uint64_t max_transfer_bytes;
    uint32_t lanes;
    uint32_t device_count;
    struct ub_remote_device devices[UB_REMOTES_MAX];
};

/* One registered piece of a peer's range on one of its devices. */
struct ub_remote_piece {
    uint32_t device;
    uint32_t token;
    struct ferry_urma_descriptor descriptor;
};

struct ub_buffer_attr {
    bool writable;
    uint64_t generation;
    uint32_t piece_count;
    struct ub_remote_piece *pieces; /* malloc'd, by device, then address */
};

enum ferry_status ferry_ub_describe(struct ferry_transport *transport, char **attr_out);
enum ferry_status ferry_ub_describe_buffer(struct ferry_transport *transport,
                                           uint64_t registration_id,
                                           enum ferry_permission permission, char **attr_out);
enum ferry_status ferry_ub_segment_attr_parse(const char *text, struct ub_segment_attr *attr_out);
enum ferry_status ferry_ub_buffer_attr_parse(const char *text, struct ub_buffer_attr *attr_out);
/* The published binary form of a descriptor, as hex digits, and back. */
#define UB_DESCRIPTOR_HEX_SIZE (2 * (48 + FERRY_URMA_TAIL_MAX) + 1)
void ferry_ub_descriptor_print(const struct ferry_urma_descriptor *descriptor,
                               char hex[UB_DESCRIPTOR_HEX_SIZE]);
enum ferry_status ferry_ub_descriptor_parse(const char *hex,
                                            struct ferry_urma_descriptor *descriptor_out);

/* ---- peers and targets (target.c) ---- */

/* What one worker knows of one path to a peer. */
struct ub_path {
    uint32_t local;  /* context */
    uint32_t remote; /* device of the peer */
    bool primary;    /* one of those that are used while nothing is wrong */
    /* the worker only */
    struct ferry_device_rail rail;
    struct ub_endpoint *endpoint; /* holds a reference; NULL: none */
    uint64_t retry_at_ns;         /* no new endpoint before */
    _Atomic uint32_t inflight;    /* written by the worker, read by reports; relaxed */
};

/* How one worker hears that a peer has no target any more. */
struct ub_peer_retire {
    struct ferry_job job;
    struct ub_peer *peer;
    struct ub_worker *worker;
};

/* One incarnation of a peer. */
struct ub_peer {
    /* immutable */
    struct ub_transport *transport;
    char *name;
    char *address; /* of its control plane */
    uint8_t incarnation[UB_INCARNATION_LEN];
    uint32_t remote_count;
    struct ub_remote_device remotes[UB_REMOTES_MAX];
    uint32_t path_count;
    struct ub_path *paths; /* [worker * path_count + i] */
    /* under mutex */
    struct ferry_list link;
    uint32_t targets;
    char trouble[256];
    struct ub_peer_retire *retires; /* one per worker */
    /* any thread, atomic */
    _Atomic uint32_t holds;         /* workers that have to let go of it; the last one frees it */
    _Atomic bool outdated;          /* it says itself that it is another process */
    _Atomic int32_t trouble_status; /* of the latest failed handshake */
};

/* A peer's piece as one context sees it. */
struct ub_import {
    _Atomic(struct ferry_urma_rmem *) rmem; /* NULL: not imported yet; written under import_mutex */
};

struct ub_target_buffer {
    uint64_t addr;
    uint64_t length;
    bool writable;
    uint32_t piece_count;
    struct ub_remote_piece *pieces;
    struct ub_import *imports; /* [context * piece_count + piece] */
    uint32_t edge_count;       /* where pieces begin: no slice crosses one */
    uint64_t *edges;           /* ascending, without the buffer's start */
};

struct ub_target {
    struct ferry_target base; /* first */
    struct ub_peer *peer;
    struct ferry_list link; /* under mutex */
    uint32_t buffer_count;
    struct ub_target_buffer buffers[]; /* sorted by address */
};

enum ferry_status ferry_ub_target_open(struct ferry_transport *transport,
                                       const struct ferry_document *doc,
                                       struct ferry_target **target_out);
void ferry_ub_target_close(struct ferry_target *target);
void ferry_ub_target_explain(struct ferry_target *target, char *buf, size_t buf_len);
void ferry_ub_peer_set_trouble(struct ub_peer *peer, const char *fmt, ...) FERRY_PRINTF(2, 3);
/* The imported piece under a remote range, imported now if need be. NULL: not on that device, or
 * refused. */
struct ferry_urma_rmem *ferry_ub_import(struct ub_target_buffer *buffer, struct ub_ctx *ctx,
                                        uint32_t device, uint64_t addr);
/* Given: no slot uses the context. False while the provider is busy. */
bool ferry_ub_imports_release(struct ub_ctx *ctx);
/* Releases that the provider refused, once more. True if none is left. */
bool ferry_ub_zombies_retry(struct ub_transport *transport);

/* ---- flows and slots (slice.c) ---- */

/* A worker's claim on a flow: queued while there may be slices to cut. */
struct ub_ref {
    struct ferry_job job;
    struct ub_ref *parcel_next;
    struct ferry_list link;
    struct ub_flow *flow;
    uint64_t stuck_ns; /* since when no path could take it; 0: not now */
};

struct ub_flow {
    /* immutable from submit to end */
    struct ferry_xfer *xfer;
    struct ub_transport *transport;
    struct ub_target_buffer *remote;
    struct ub_buffer *local;
    uint64_t slice_bytes;
    uint32_t ref_count;
    /* any thread, atomic */
    _Atomic uint64_t cursor; /* bytes claimed so far */
    _Atomic uint64_t moved;
    _Atomic uint32_t holds; /* queued refs and slots; the last one ends the xfer */
    struct ferry_device_gate gate;
    _Atomic bool touched;   /* a WRITE of it may have landed without success */
    _Atomic int32_t status; /* enum ferry_status; the first failure, OUTCOME_UNKNOWN beats all */
    _Atomic int32_t native;
    _Atomic(const char *) where;
    struct ub_ref refs[UB_REFS_MAX];
};

enum ub_slot_state {
    UB_SLOT_FREE,
    UB_SLOT_WAITING, /* in the worker's hands: to be posted, now or later */
    UB_SLOT_POSTED,  /* the device has it, or will in this round */
    UB_SLOT_HELD,    /* its attempt is over; whether it may be repeated is the fence's to say */
};

struct ub_slot {
    struct ferry_list link; /* worker: waiting; endpoint: posted or held */
    struct ferry_list age;  /* worker: posted ones, oldest first */
    struct ub_flow *flow;
    struct ub_endpoint *endpoint;
    uint64_t generation; /* of the endpoint that it was posted on */
    uint64_t token;
    uint64_t offset;
    uint32_t length;
    uint32_t index;
    enum ub_slot_state state;
    uint8_t jetty;
    uint8_t attempts;
    bool landed_unknown; /* its bytes may have landed, or may land yet */
    uint32_t path;       /* index of the present or latest path */
    uint64_t tried;      /* bit per path */
    uint64_t posted_ns;
    uint64_t due_ns;   /* WAITING: not before */
    uint64_t stuck_ns; /* WAITING: since when no path could take it; 0: not now */
    int32_t native;    /* of the latest failed attempt */
    enum ferry_device_class class;
};

enum ferry_status ferry_ub_submit(struct ferry_transport *transport,
                                  struct ferry_xfer *const *xfers, uint32_t count);
/* Record a failure and post no more of the flow. */
void ferry_ub_flow_fail(struct ub_flow *flow, enum ferry_status status, int32_t native,
                        const char *where);
void ferry_ub_flow_drop(struct ub_flow *flow);
/* The next slice of a flow; false if there is none or it is stopped. A hold comes with it. */
bool ferry_ub_flow_claim(struct ub_flow *flow, uint64_t *offset_out, uint32_t *length_out);
/* Cancel, deadline, revocation and closing; true if the flow is stopped. */
bool ferry_ub_flow_check(struct ub_flow *flow, uint64_t now_ns);
static inline bool ferry_ub_flow_stopped(const struct ub_flow *flow)
{
    return ferry_device_gate_closed(&flow->gate);
}
static inline bool ferry_ub_flow_claimed(const struct ub_flow *flow)
{
    return atomic_load_explicit(&flow->cursor, memory_order_relaxed) >= flow->xfer->length;
}

/* ---- endpoints (endpoint.c, bootstrap.c, fence.c) ---- */

struct ub_jetty {
    struct ferry_urma_jetty *native;
    uint32_t id;
    uint32_t uasid;
    /* the worker only */
    uint32_t inflight;
    bool error_set;
    bool drained; /* its marker was seen */
    bool flushed; /* nothing of it is in the hardware or before it */
};

enum ub_fence {
    UB_FENCE_NONE,
    UB_FENCE_LOCAL,  /* waiting for markers and flush */
    UB_FENCE_FORCED, /* they did not come: the native objects are being destroyed instead */
    UB_FENCE_REMOTE, /* waiting for the peer's word that nothing can land any more */
    UB_FENCE_DONE,
};

struct ub_endpoint {
    struct ferry_device_entry entry; /* in the store, under mutex */
    struct ferry_device_life life;   /* under mutex up to READY, then its worker's */
    /* immutable */
    struct ub_transport *transport;
    struct ub_worker *worker;
    struct ub_ctx *ctx;
    struct ub_jfc *jfc;
    char peer_address[FERRY_HOSTPORT_SIZE]; /* "" if it was the peer that came first */
    /* any thread, atomic */
    _Atomic uint32_t refs;
    _Atomic bool retire_asked; /* by the peer, or by its context */
    _Atomic uint32_t fenced;   /* what a retire question is answered with */
    /* under mutex */
    bool initiator;
    bool yielded; /* the peer's bootstrap of the same path goes first */
    uint64_t peer_generation;
    enum ferry_status handshake_status;
    struct ferry_list all_link; /* in transport->endpoints, until nothing native is left */
    uint32_t peer_ids[FERRY_UB_JETTIES_MAX];
    uint32_t peer_uasids[FERRY_UB_JETTIES_MAX];
    uint8_t peer_eid[FERRY_URMA_EID_SIZE];
    uint32_t jetty_count;
    struct ub_jetty jetties[FERRY_UB_JETTIES_MAX];
    /* the worker only */
    struct ferry_list link; /* in worker->endpoints */
    struct ferry_list posted;
    struct ferry_list held;
    struct ferry_list dirty_link;
    struct ferry_urma_request batch[UB_BATCH];
    struct ub_slot *batch_slots[UB_BATCH];
    uint32_t batch_count;
    uint8_t batch_jetty;
    uint32_t inflight;
    enum ub_fence fence;
    bool remote_fenced; /* the peer's word; written by its answer, while `asking` */
    bool remote_silent; /* likewise: there will be none */
    uint64_t fence_deadline_ns;
    uint64_t handshake_deadline_ns;
    uint64_t again_at_ns;
    uint32_t destroy_tries;
    bool announced;            /* it is in the worker's list */
    bool ask_next;             /* the pool has made the jetties: ask the peer */
    _Atomic bool asking;       /* a call is under way */
    _Atomic bool pool_busy;    /* a job of the pool has it */
    struct ub_path *path;      /* of whoever needs it; NULL: nobody, as yet or any more */
    struct ub_peer *path_peer; /* whose path that is */
    /* jobs */
    struct ferry_offload_job pool_job;
    void (*pool_run)(struct ub_endpoint *endpoint);
    struct ferry_job wake_job;
    _Atomic bool wake_posted;
    struct ferry_peer_call call;
    bool pool_ok; /* what the pool's job came to; between its end and the worker's look */
};

/* Under mutex: one that begins its handshake, stored; ERR_DEVICE, ERR_LIMIT, ERR_NO_MEMORY. */
enum ferry_status ferry_ub_endpoint_create(struct ub_worker *worker,
                                           const struct ferry_device_key *key,
                                           struct ub_endpoint **endpoint_out);
/* The worker: the endpoint of a path, begun if there is none. NULL: none yet, or not now. */
struct ub_endpoint *ferry_ub_endpoint_get(struct ub_worker *worker, struct ub_peer *peer,
                                          struct ub_path *path, uint64_t now_ns);
void ferry_ub_endpoint_drop(struct ub_endpoint *endpoint);
/* The worker: no more posts on it; fence, decide, destroy. FINE: nobody is to blame. */
void ferry_ub_endpoint_fail(struct ub_endpoint *endpoint, enum ferry_device_class class,
                            uint64_t now_ns);
/* The worker: bring it forward. True if it is gone and was dropped from the worker's list. */
bool ferry_ub_endpoint_step(struct ub_endpoint *endpoint, uint64_t now_ns);
/* The worker: a marker of one of its jetties. */
void ferry_ub_endpoint_drained(struct ub_worker *worker, struct ub_jfc *jfc, uint32_t jetty_id);
void ferry_ub_endpoint_wake(struct ub_endpoint *endpoint);
/* A job for the pool, or run at once without threads; the worker is woken at its end. */
void ferry_ub_endpoint_pool(struct ub_endpoint *endpoint, void (*run)(struct ub_endpoint *));
/* Native parts, under mutex or on the pool. */
enum ferry_status ferry_ub_jetties_create(struct ub_endpoint *endpoint);
bool ferry_ub_jetties_destroy(struct ub_endpoint *endpoint);
void ferry_ub_fence_step(struct ub_endpoint *endpoint, uint64_t now_ns);

enum ub_verb {
    UB_VERB_CONNECT,
    UB_VERB_RETIRE, /* "see to it that nothing of this endpoint can land any more" */
};

/* What a bootstrap message says, in both directions. */
struct ub_message {
    enum ub_verb verb;
    bool yield;  /* answer: mine goes first, wait for it */
    bool fenced; /* answer to RETIRE */
    char segment[256];
    uint8_t incarnation[UB_INCARNATION_LEN];      /* of the sender */
    uint8_t peer_incarnation[UB_INCARNATION_LEN]; /* whom it is meant for */
    uint32_t device;                              /* of the sender */
    uint32_t peer_device;                         /* of the receiver */
    uint32_t lane;
    char device_name[FERRY_URMA_NAME_SIZE];
    uint32_t eid_index;
    uint8_t eid[FERRY_URMA_EID_SIZE];
    uint64_t generation;
    uint64_t peer_generation; /* RETIRE: of the receiver's end */
    uint64_t segment_generation;
    enum ferry_urma_path_type path_type;
    uint32_t jetty_count;
    uint32_t jetty_ids[FERRY_UB_JETTIES_MAX];
    uint32_t jetty_uasids[FERRY_UB_JETTIES_MAX];
};

enum ferry_status ferry_ub_message_print(const struct ub_message *message, char **text_out,
                                         size_t *len_out);
/* ERR_PROTOCOL with the path of the wrong member. */
enum ferry_status ferry_ub_message_parse(const char *text, size_t len,
                                         struct ub_message *message_out);
enum ferry_status ferry_ub_bootstrap(struct ferry_transport *transport, const char *text,
                                     size_t len, char **reply_out);
/* Ask the peer, by the endpoint's call. */
void ferry_ub_ask(struct ub_endpoint *endpoint, enum ub_verb verb, ferry_peer_done_fn *done,
                  uint64_t deadline_ns);
void ferry_ub_message_fill(const struct ub_endpoint *endpoint, struct ub_message *message);

/* ---- workers (worker.c) ---- */

struct ub_worker {
    struct ub_transport *transport;
    uint32_t index;
    struct ferry_worker *worker;
    /* holder of the baton only */
    struct ferry_list queues[3]; /* refs, by priority */
    struct ferry_list waiting;   /* slots to be posted */
    struct ferry_list aged;      /* slots posted, oldest first */
    struct ferry_list endpoints;
    struct ferry_list dirty; /* endpoints with a batch */
    struct ub_slot *slots;
    struct ferry_device_attempts attempts;
    struct ferry_timer timer;
    uint64_t quiet_since_ns; /* the latest round that brought something */
    uint64_t look_ns;        /* worker 0: when contexts are looked at next */
    uint64_t scan_ns;        /* when every flow is looked at next */
    _Atomic bool scan_asked;
    /* any thread, atomic */
    struct ferry_job kick_job;
    _Atomic bool kicked;
    _Atomic uint64_t scans;      /* finished */
    _Atomic uint32_t touching;   /* pieces of revoked ranges in the latest scan */
    _Atomic uint32_t posted_now; /* slots that a device has */
    /* counters, written by the holder */
    _Atomic uint64_t posts, completions, stale, markers, unknown_polls, retries, timeouts, fences,
        forced, unknown_outcomes, slices, rebuilds, quarantined;
    _Atomic uint64_t errors[FERRY_DEVICE_CLASS_COUNT];
};

static inline void ferry_ub_count(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

enum ferry_status ferry_ub_worker_open(struct ub_transport *transport, uint32_t index);
void ferry_ub_worker_close(struct ub_worker *worker);
void ferry_ub_worker_kick(struct ub_worker *worker);
/* Holder of the baton: poll, settle, post, and see to the next round. */
void ferry_ub_worker_round(struct ub_worker *worker);
void ferry_ub_worker_enqueue(struct ub_worker *worker, struct ub_ref *ref);
/* A completion of one request. */
void ferry_ub_worker_completed(struct ub_worker *worker,
                               const struct ferry_urma_completion *completion, uint64_t now_ns);
/* The attempt of a slot is over and settled: give it back, or try once more. */
void ferry_ub_slot_finish(struct ub_worker *worker, struct ub_slot *slot);
void ferry_ub_slot_retry(struct ub_worker *worker, struct ub_slot *slot, uint64_t due_ns);
/* Off its endpoint's books; the slot is in nobody's list afterwards. */
void ferry_ub_slot_unpost(struct ub_worker *worker, struct ub_slot *slot);
struct ub_path *ferry_ub_path(struct ub_worker *worker, struct ub_peer *peer, uint32_t index);
/* post.c: cut, choose, post. True if something was posted. */
bool ferry_ub_worker_pump(struct ub_worker *worker, uint64_t now_ns);
/* What is said of each path when a slice is to be placed; for explanations too. */
struct ub_place {
    struct ub_peer *peer;
    struct ub_flow *flow; /* NULL: any */
    uint64_t bytes;
    uint64_t tried;
};
void ferry_ub_candidates(struct ub_worker *worker, const struct ub_place *place, uint64_t now_ns,
                         struct ferry_device_candidate *candidates);

/* ---- transport ---- */

struct ub_revocation {
    struct ferry_list link;
    uint64_t addr;
    uint64_t length;
};

struct ub_transport {
    struct ferry_transport base; /* first */
    /* immutable after open */
    struct ferry_config *config;
    struct ferry_ub_settings settings;
    struct ferry_urma urma;
    struct ferry_offload *pool; /* NULL: threadless */
    struct ub_worker *workers;
    uint32_t worker_count;
    struct ub_ctx *ctxs;
    uint32_t ctx_count;
    uint8_t incarnation[UB_INCARNATION_LEN];
    uint64_t piece_bytes; /* ranges are cut so; UINT64_MAX: never */
    uint64_t slice_bytes;
    /* any thread, atomic */
    struct ferry_device_quota admission;
    _Atomic uint32_t unfinished; /* tasks not ended; futex of quiesce */
    _Atomic uint32_t living;     /* endpoints, calls and jobs of the pool; quiesce waits for 0 */
    _Atomic uint32_t closing;
    _Atomic uint32_t revoking;
    _Atomic uint64_t generations; /* of endpoints */
    _Atomic uint32_t next_worker;
    struct ferry_pool flows;
    _Atomic(struct ub_buffer_view *) view; /* written under buffer_mutex */
    _Atomic uint32_t view_readers;
    _Atomic uint32_t scan_word; /* futex: grows at the end of every scan */
    _Atomic uint32_t leaked;    /* ranges that a device did not let go of */
    _Atomic bool abandon;       /* closing ran out of patience: end what can be ended */
    /* any thread, under mutex: handshakes, peers, the store */
    pthread_mutex_t mutex;
    struct ferry_device_store store;
    struct ferry_list endpoints; /* all that are not destroyed */
    struct ferry_list peers;
    struct ferry_list targets;
    struct ferry_list revocations;
    /* any thread, under import_mutex */
    pthread_mutex_t import_mutex;
    struct ferry_list zombies;
    /* any thread, under buffer_mutex */
    pthread_mutex_t buffer_mutex;
    struct ferry_list buffers;
    uint32_t buffer_count;
    uint64_t buffer_generation;
    struct ub_buffer_view *old_views;
};

static inline struct ub_transport *ferry_ub_of(struct ferry_transport *base)
{
    return (struct ub_transport *)(void *)base;
}

static inline uint64_t ferry_ub_now(const struct ub_transport *transport)
{
    return ferry_now_ns(transport->base.env->clock);
}

/* Something of ours lives on another thread, or stops to. */
void ferry_ub_live_add(struct ub_transport *transport);
void ferry_ub_live_drop(struct ub_transport *transport);
/* Keep a local range leased for ever: a device may touch it still. */
void ferry_ub_leak(struct ub_transport *transport, const void *addr, uint64_t length);
bool ferry_ub_range_revoked(struct ub_transport *transport, const void *addr, uint64_t length);
enum ferry_device_class ferry_ub_class(struct ferry_urma_status status);
/* report.c */
void ferry_ub_report(struct ferry_transport *transport, struct json_object *object);
void ferry_ub_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                      ferry_path_fn *fn, void *arg);
void ferry_ub_explain(struct ub_peer *peer, char *buf, size_t buf_len);

#endif
