/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of hp_tcp share: the objects, who owns each field, and the calls between files.
 *
 *   xfer --plan.c--> flow --refs--> lane (lane.c, lane_tx.c, lane_rx.c) ==TCP== session
 * (session*.c)
 *
 * A flow is one request inside this transport, cut into chunks. It is referred to from one or more
 * lanes of the peer; a lane with room pulls the next chunk. A chunk in flight is an op in the
 * lane's window. Answers come in the order of the requests, so the window is a ring.
 *
 * Threads: a lane and a session belong to one worker for life and are touched only by the holder of
 * its baton. A flow is shared by the workers of its lanes through the atomics in it.
 */
#ifndef FERRY_HP_TCP_INTERNAL_H
#define FERRY_HP_TCP_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "access/access.h"
#include "base/list.h"
#include "base/pool.h"
#include "control/resolve.h"
#include "memory/registry.h"
#include "reactor/net.h"
#include "reactor/tls.h"
#include "reactor/worker.h"
#include "transport/hp_tcp/answers.h"
#include "transport/hp_tcp/doubts.h"
#include "transport/hp_tcp/hp_tcp.h"
#include "transport/hp_tcp/options.h"
#include "transport/hp_tcp/pieces.h"
#include "transport/hp_tcp/rail.h"
#include "transport/hp_tcp/resolve.h"
#include "wire/frame.h"
#include "wire/v1.h"

struct hp_flow;
struct hp_lane;
struct hp_peer;
struct hp_session;
struct hp_transport;
struct hp_worker;

#define HP_STAGE_BYTES                                                                             \
    (32u * 1024u)                 /* receive staging: many small frames arrive in one receive      \
                                   */
#define HP_COPY_MAX (16u * 1024u) /* payloads up to this may pass through staging and be copied */
#define HP_RECV_STEP                                                                               \
    (256u * 1024u) /* a direct receive completes with at least this or the rest                    \
                    */
#define HP_FLOW_REFS_MAX FERRY_HP_SLICES_MAX
/* Chunks between two lanes at a time; one that finds no place ends with its connection. */
#define HP_RETURNS_MAX 16384u
/* Features of ferry's frames that this version offers and grants. */
#define HP_FEATURES (FERRY_FEATURE_RESOLVE | FERRY_FEATURE_SCATTER | FERRY_FEATURE_CHECKSUM)
#define HP_QUEUES   6u
#define HP_IOV_MAX  FERRY_IOV_MAX
#define HP_REPLIES  64u /* answers queued on a session before it stops reading */

/* ---- small helpers shared by both sides (codec.c) ---- */

/* A request as either codec carries it. */
struct hp_request {
    enum ferry_opcode opcode;
    enum ferry_priority priority;
    uint64_t request_id;
    uint64_t registration_id;
    uint64_t remote_addr;
    uint64_t length;
    uint32_t checksum; /* of a WRITE's payload, where checksums are in force */
};

/* ---- admission (admission.c): all-or-nothing, any thread ---- */

struct hp_admission {
    uint32_t tasks_max;
    uint64_t bytes_max;
    _Atomic uint32_t tasks;
    _Atomic uint64_t bytes;
    _Atomic bool closed;
    _Atomic bool failed; /* a counter would have gone below zero, or a worker failed */
};

enum ferry_status ferry_hp_admission_take(struct hp_admission *admission, uint32_t tasks,
                                          uint64_t bytes);
/* Keeps the counters and fails closed when they would go below zero. */
void ferry_hp_admission_give(struct hp_admission *admission, uint32_t tasks, uint64_t bytes);
void ferry_hp_admission_fail(struct hp_admission *admission, const char *why);

/* ---- transport ---- */

/* The range that revoke() is after; on the revoking thread's stack, linked while it waits. */
struct hp_revocation {
    struct ferry_list link;
    uint64_t addr;
    uint64_t length;
};

struct hp_transport {
    struct ferry_transport base; /* first */
    /* immutable after open */
    struct ferry_config *config; /* own copy: the settings borrow strings from it */
    struct ferry_hp_settings settings;
    struct ferry_net *net;
    struct hp_worker *workers;
    uint32_t worker_count;
    uint16_t port;
    const char *advertise_host;
    uint8_t incarnation[FERRY_INCARNATION_SIZE];
    struct ferry_resolver *resolver; /* NULL where names cannot be used (model rig) */
    /* any thread, atomic */
    struct hp_admission admission;
    _Atomic uint64_t next_request_id;
    _Atomic uint32_t next_session_worker;
    _Atomic uint32_t session_count;
    _Atomic bool full_said;    /* that max_connections is reached was logged */
    _Atomic uint32_t closing;  /* set once */
    _Atomic uint32_t live;     /* lanes, sessions and listeners with I/O; futex word of close() */
    _Atomic uint32_t revoking; /* revocations in the list below */
    _Atomic uint32_t doubt_count; /* ranges in the list of doubts, the parked ones excepted */
    _Atomic uint32_t scan_word;   /* futex: grows when a worker has finished a scan */
    struct ferry_pool flows;
    struct ferry_pool returns; /* hp_return, of all peers */
    struct hp_answers answers; /* of what peers wrote here; has its own mutex, taken last */
    /* any thread, under the mutex (cold paths only) */
    pthread_mutex_t mutex;
    struct ferry_list peers;       /* hp_peer.link */
    struct ferry_list revocations; /* hp_revocation.link */
    /* any thread, under a mutex of its own; no other is taken inside */
    pthread_mutex_t doubt_mutex;
    struct ferry_list doubts;        /* hp_doubts.link (doubts.h) */
    struct ferry_list doubts_parked; /* of processes that no segment is open to, oldest first */
};

/* One worker's share. Fields below `worker` belong to the holder of its baton. */
struct hp_worker {
    struct hp_transport *transport;
    uint32_t index;
    struct ferry_worker *worker;
    struct ferry_registry_reader reader; /* for the leases of served requests */
    struct ferry_list lanes;             /* hp_lane.worker_link: lanes that were ever used */
    struct ferry_list sessions;          /* hp_session.link */
    struct ferry_list pending;           /* hp_session.pending_link: not let in yet, oldest first */
    uint32_t pending_count;
    struct ferry_list dirty; /* hp_lane.dirty_link: pump before the job ends */
    struct ferry_timer deadline_timer;
    struct ferry_list listeners; /* hp_listener.link; on worker 0 */
    uint8_t *sink;               /* bytes nobody wants are received here */
    /* the scan job: posted by cancel and revoke, at most one in the inbox */
    struct ferry_job scan_job;
    _Atomic bool scan_posted;
    _Atomic uint64_t scans_done;
    /* counters, written by the holder, read by reports */
    _Atomic uint64_t sessions_opened;
    _Atomic uint64_t sessions_refused;
    _Atomic uint64_t served_ops;
    _Atomic uint64_t served_bytes;
};

#define HP_SINK_BYTES  (64u * 1024u)
#define HP_LISTS_BYTES (32u * 1024u)

static inline struct hp_transport *ferry_hp_of(struct ferry_transport *base)
{
    return (struct hp_transport *)(void *)base;
}

static inline struct ferry_reactor *ferry_hp_reactor(struct hp_worker *worker)
{
    return ferry_worker_reactor(worker->worker);
}

/* Detach and close; detaching forgets the descriptor. Given: no op of @io is in flight. */
static inline void ferry_hp_drop_socket(struct ferry_reactor *reactor, struct ferry_net *net,
                                        struct ferry_io *io)
{
    int fd = io->fd;

    ferry_reactor_detach(reactor, io);
    ferry_net_close(net, fd, false);
}

/* A lane, session or listener begins or ends to have I/O; close() waits for none. */
void ferry_hp_live_add(struct hp_transport *transport);
void ferry_hp_live_drop(struct hp_transport *transport);

/* ---- peers and lanes ---- */

/* An address at which a peer listens, as published. */
struct hp_endpoint {
    char *host;
    uint16_t port;
};

/* A pair of a local and a remote address, on which lanes run. */
struct hp_rail {
    /* immutable */
    uint32_t index;
    uint32_t local_index;               /* in the settings' rails, if there are any */
    struct ferry_socket_address source; /* len 0: the host chooses */
    const struct hp_endpoint *endpoint;
    /* any thread: health under the transport's mutex, the others are atomic */
    struct ferry_rail health;
    _Atomic uint32_t state; /* enum ferry_rail_state, as in health */
    _Atomic bool asleep;    /* nobody uses the peer, so nobody probes; new work wakes it */
};

/* Which lanes small and large requests share (isolation.c); atomics are any thread's. */
struct hp_isolation {
    struct hp_lane *lane;      /* for small requests while large ones run; NULL: none to spare */
    _Atomic uint32_t bulk;     /* large flows in flight */
    _Atomic uint32_t warm_mib; /* of large requests, until the lane is theirs as well again */
};

/* One incarnation of a peer as published: where it listens and what it speaks. */
struct hp_peer {
    struct ferry_list link; /* in transport->peers */
    struct hp_transport *transport;
    uint32_t targets; /* under the transport's mutex; 0: no longer found, lanes retire */
    _Atomic uint32_t lanes_alive; /* lanes that have not retired; the last one frees the peer */
    _Atomic bool retiring;
    char *name;
    uint8_t incarnation[FERRY_INCARNATION_SIZE];
    bool speaks_ferry;
    struct hp_endpoint *endpoints; /* as published, in that order */
    uint32_t endpoint_count;
    struct hp_rail *rails; /* lane i runs on rail i modulo their number */
    uint32_t rail_count;
    bool rails_differ;           /* v1: the number of rails on the two sides is not the same */
    _Atomic uint32_t rails_away; /* rails that work keeps away from */
    struct hp_isolation isolation;
    _Atomic uint32_t next_lane;
    uint32_t lane_count;
    struct hp_lane *lanes;
    /* why the latest connection attempt failed, for people; under the transport's mutex */
    char trouble[256];
};

struct hp_target_buffer {
    uint64_t addr;
    uint64_t length;
    uint64_t registration_id;
    bool writable;
};

struct hp_target {
    struct ferry_target base; /* first */
    struct hp_peer *peer;
    uint32_t buffer_count;
    struct hp_target_buffer buffers[]; /* sorted by address */
};

enum ferry_status ferry_hp_target_open(struct ferry_transport *transport,
                                       const struct ferry_document *doc,
                                       struct ferry_target **target_out);
void ferry_hp_target_close(struct ferry_target *target);
/* A lane of a retiring peer is idle for good: the last one frees the peer. */
void ferry_hp_lane_retired(struct hp_lane *lane);
void ferry_hp_target_explain(struct ferry_target *target, char *buf, size_t buf_len);
/* Text of the latest trouble with a peer; any thread. */
void ferry_hp_peer_set_trouble(struct hp_peer *peer, const char *fmt, ...) FERRY_PRINTF(2, 3);

/* ---- flows (flow.c, plan.c) ---- */

/*
 * A lane's claim on a flow: queued on the lane while there may be chunks to pull.
 *
 *   TRAVELLING --arrives--> QUEUED --nothing left--> IDLE --a chunk came back--> TRAVELLING
 *                            |  ^                                                     ^
 *          its rail is down, |  | its rail is back      its rail is down, it is the   |
 *          others go on      v  |                       last one that can pull        |
 *                           PARKED         QUEUED ------------------------------------+
 *
 * Whoever gives a chunk back makes sure that a ref is QUEUED or TRAVELLING afterwards: it looks for
 * one after the chunk is there, and a ref that leaves looks for chunks after it is IDLE.
 */
enum hp_ref_state {
    HP_REF_IDLE,
    HP_REF_TRAVELLING, /* on its way to a lane's worker */
    HP_REF_QUEUED,
    HP_REF_PARKED, /* in the queue of a lane that may not pull, while others do */
};

struct hp_ref {
    struct ferry_job job;       /* head of a parcel on its way to the worker */
    struct hp_ref *parcel_next; /* further refs for the same worker, one submit call */
    struct ferry_list link;     /* in the lane's queue */
    struct hp_flow *flow;
    _Atomic(struct hp_lane *) lane;
    _Atomic uint32_t state; /* enum hp_ref_state */
    uint32_t moves;         /* from lane to lane, because of rails */
    bool dealt_out;         /* of a dealt flow: its slice is claimed */
};

static inline struct hp_lane *ferry_hp_ref_lane(struct hp_ref *ref)
{
    return atomic_load_explicit(&ref->lane, memory_order_relaxed);
}

/* A chunk that its lane gave back, because the rail went away under it. Holds its flow. */
struct hp_return {
    struct hp_return *next;
    uint32_t chunk;
    uint8_t attempts;
};

struct hp_flow {
    /* immutable from submit to end */
    struct ferry_xfer *xfer;
    struct hp_transport *transport;
    uint64_t registration_id;
    uint64_t chunk_bytes;
    uint32_t chunk_count;
    bool small;  /* with isolation: goes past large ones */
    bool singly; /* v1: chunk i is piece i of the list, a request of its own */
    bool dealt;  /* slicing: static. Ref i has chunk i; the first chunks share out what is left over
                  */
    uint32_t ref_count;
    /* any thread, atomic */
    _Atomic uint32_t next_chunk; /* claims; may run past chunk_count */
    _Atomic uint32_t holds; /* refs that are not idle, ops, returns; the last one ends the xfer */
    _Atomic uint32_t refs_left; /* refs that are not idle */
    _Atomic uint32_t refs_live; /* of these, not parked */
    _Atomic uint32_t returned;  /* chunks in the list below */
    struct hp_return *returns;  /* under the transport's mutex */
    _Atomic uint32_t chunks_done;
    _Atomic bool stopped;   /* claim no more: an error, a cancel, a deadline */
    _Atomic bool torn;      /* some of a WRITE that was not applied may have landed */
    _Atomic int32_t status; /* enum ferry_status; the worst so far */
    _Atomic int32_t native;
    _Atomic(const char *) where;
    struct hp_ref refs[HP_FLOW_REFS_MAX];
};

enum ferry_status ferry_hp_submit(struct ferry_transport *transport,
                                  struct ferry_xfer *const *xfers, uint32_t count);
/* Record a failure and stop further claims. OUTCOME_UNKNOWN beats all, else the first one stays. */
void ferry_hp_flow_fail(struct hp_flow *flow, enum ferry_status status, int32_t native,
                        const char *where);
/* Every chunk is claimed by some lane: nothing of the flow waits in a queue any more. */
static inline bool ferry_hp_flow_claimed(const struct hp_flow *flow)
{
    return atomic_load_explicit(&flow->next_chunk, memory_order_relaxed) >= flow->chunk_count &&
           atomic_load_explicit(&flow->returned, memory_order_relaxed) == 0;
}
/*
 * Take a ref of a claimed or stopped flow out of its queue, and give its hold back. It stays if a
 * chunk comes back just then.
 */
void ferry_hp_ref_leave(struct hp_ref *ref);
/* The same for a lane that cannot go on: the flow fails if no other lane can claim what is left. */
void ferry_hp_ref_give_up(struct hp_ref *ref, enum ferry_status status, int32_t native,
                          const char *where);
/* Give one hold back; the last one ends the xfer and frees the flow. */
void ferry_hp_flow_drop(struct hp_flow *flow);
/* Nothing is left to claim through this ref. */
static inline bool ferry_hp_ref_spent(const struct hp_ref *ref)
{
    return atomic_load_explicit(&ref->flow->stopped, memory_order_relaxed) ||
           ferry_hp_flow_claimed(ref->flow) ||
           (ref->flow->dealt && ref->dealt_out &&
            atomic_load_explicit(&ref->flow->returned, memory_order_relaxed) == 0);
}
/* One more chunk has moved. Given: the caller has a hold, which it gives back afterwards. */
void ferry_hp_flow_chunk_done(struct hp_flow *flow);
/*
 * Claim the next chunk; false if there is none or the flow is stopped. On true the caller has a
 * hold. @attempts_out: connections on which some of the chunk has left already.
 */
bool ferry_hp_ref_claim(struct hp_ref *ref, uint32_t *chunk_out, uint8_t *attempts_out);
/* Have every worker with a ref of the flow look at it. Given: the caller has a hold. */
void ferry_hp_flow_release(struct hp_flow *flow);
/* plan.c: the job of a ref that travels, with those chained to it. */
void ferry_hp_parcel_run(struct ferry_worker *worker, struct ferry_job *job);

/* ---- isolation (isolation.c): small requests have a lane of their own beside large ones ---- */

void ferry_hp_isolation_init(struct hp_peer *peer);
/* The flow begins: how many of the peer's lanes are open to it, the first ones. */
uint32_t ferry_hp_isolation_begin(struct hp_peer *peer, const struct hp_flow *flow);
/* The lane for this flow, or NULL if it may go anywhere. */
struct hp_lane *ferry_hp_isolation_lane(struct hp_peer *peer, const struct hp_flow *flow);
void ferry_hp_isolation_end(struct hp_peer *peer, const struct hp_flow *flow);

/* ---- rails (rails.c): their health, and what it means for lanes ---- */

static inline bool ferry_hp_rail_usable(const struct hp_rail *rail)
{
    return ferry_rail_state_usable(
        (enum ferry_rail_state)atomic_load_explicit(&rail->state, memory_order_relaxed));
}
/* Some rail is to be kept away from, and another is not. */
static inline bool ferry_hp_rails_matter(const struct hp_peer *peer)
{
    uint32_t away = atomic_load_explicit(&peer->rails_away, memory_order_relaxed);

    return FERRY_UNLIKELY(away != 0) && away < peer->rail_count;
}
/* New work keeps away from this lane, since its rail is down and another one is not. */
bool ferry_hp_lane_avoided(const struct hp_lane *lane);
/* A lane that is not avoided, in place of one that is; the lane itself if there is none. */
struct hp_lane *ferry_hp_lane_instead(struct hp_lane *lane);
/* The rail that the lane's next connection takes: its own, or one that is up for a question. */
struct hp_rail *ferry_hp_lane_rail(struct hp_lane *lane);
/* Tell what happened to the rail of the present connection. @why: static text. */
void ferry_hp_rail_event(struct hp_lane *lane, enum ferry_rail_event event, const char *why);
/* On an avoided lane: what is queued is moved to other lanes, or parked if others go on with it. */
void ferry_hp_lane_strand(struct hp_lane *lane);
/* The lane may pull again. */
void ferry_hp_lane_unpark(struct hp_lane *lane);
/*
 * Give a chunk of a closed connection back to its flow, for other lanes. True: it is done, and the
 * op has no hold any more.
 */
bool ferry_hp_lane_return(struct hp_lane *lane, const struct hp_op *op);
/* An idle lane on a rail that is down: try it when it is time. */
void ferry_hp_lane_await_probe(struct hp_lane *lane);
void ferry_hp_lane_probe(struct hp_lane *lane);
/* New work for a peer that has rails away: probes go on. */
void ferry_hp_rails_wake(struct hp_peer *peer);
/* Bytes that the chunks of a dealt flow leave over when all are equally long. */
static inline uint64_t ferry_hp_flow_rest(const struct hp_flow *flow)
{
    return flow->xfer->length - flow->chunk_bytes * flow->chunk_count;
}
static inline uint64_t ferry_hp_flow_chunk_offset(const struct hp_flow *flow, uint32_t chunk)
{
    uint64_t offset = (uint64_t)chunk * flow->chunk_bytes;
    uint64_t rest;

    if (flow->singly)
        return flow->xfer->pieces[chunk].offset;
    if (!flow->dealt)
        return offset;
    rest = ferry_hp_flow_rest(flow);
    return offset + (chunk < rest ? chunk : rest);
}
static inline uint64_t ferry_hp_flow_chunk_length(const struct hp_flow *flow, uint32_t chunk)
{
    if (flow->singly)
        return flow->xfer->pieces[chunk].length;
    if (flow->dealt)
        return flow->chunk_bytes + (chunk < ferry_hp_flow_rest(flow) ? 1 : 0);
    /* The last one takes what is left, which may be a little more than the others have. */
    if (chunk + 1 == flow->chunk_count)
        return flow->xfer->length - ferry_hp_flow_chunk_offset(flow, chunk);
    return flow->chunk_bytes;
}
static inline struct hp_pieces ferry_hp_flow_pieces(const struct hp_flow *flow)
{
    return (struct hp_pieces){flow->xfer->pieces, flow->xfer->piece_count};
}
/* Where bytes of the whole lie at the peer; of a list, the smallest range that holds them all. */
static inline struct ferry_scatter ferry_hp_flow_span(const struct hp_flow *flow, uint64_t offset,
                                                      uint64_t length)
{
    if (flow->xfer->pieces != NULL)
        return ferry_hp_pieces_span(ferry_hp_flow_pieces(flow), offset, length);
    return (struct ferry_scatter){.addr = flow->xfer->remote_addr + offset, .length = length};
}

/* ---- lanes ---- */

/*
 * Life of a lane's connection. A lane object lives as long as its peer; connections come and go.
 *
 *   IDLE --work--> RESOLVING --> CONNECTING --> GREETING --> READY --idle--> CLOSING --> IDLE
 *                      |             |           |  ASKING     |                ^
 *                      |             |           |  |          |                |
 *                      +-------------+-----------+--+----------+----failure-----+
 *
 * ASKING comes between GREETING and READY if WRITEs of the connection before are in doubt.
 * In CLOSING the operations are cancelled and their callbacks awaited; only then are ops settled,
 * since until then the kernel may touch their memory.
 */
enum hp_lane_state {
    HP_LANE_IDLE,
    HP_LANE_RESOLVING,
    HP_LANE_CONNECTING,
    HP_LANE_SECURING, /* the TLS handshake; where TLS is on */
    HP_LANE_GREETING, /* ferry peers only */
    HP_LANE_ASKING,   /* greeted; the question about WRITEs in doubt is out (resolve.h) */
    HP_LANE_READY,
    HP_LANE_CLOSING,
    HP_LANE_STATE_COUNT,
};

/* What a greeting with a key waits for next; see lane_access.c. */
enum hp_lane_gate {
    HP_GATE_OPEN, /* no key here, or the peer has proved it */
    HP_GATE_CHALLENGE,
    HP_GATE_REPLY,
    HP_GATE_PROOF,
};

/* One chunk in flight: an entry of the lane's window. */
struct hp_op {
    struct hp_flow *flow; /* holds it */
    unsigned char *local; /* NULL: the flow's pieces, from byte `offset` of the whole on */
    uint64_t offset;
    uint64_t length;
    uint64_t request_id;
    uint64_t begun_ns;
    uint32_t chunk;
    uint16_t header_bytes;
    uint16_t list_at; /* of the header in lane->lists, + 1; 0: not encoded, or `header` has it */
    bool staged;      /* small pieces: the payload comes through staging, however long it is */
    uint8_t attempts; /* connections on which a byte of it left */
    bool is_write;
    bool summed;         /* WRITE: the header has the checksum of the payload */
    bool orphan;         /* READ given up by its owner: flow is settled, payload goes to the sink */
    bool never_ask;      /* WRITE whose memory is being taken back: no time for a question */
    enum hp_doubt doubt; /* WRITE of an earlier connection, unanswered: what if not applied */
    enum ferry_status doubt_status; /* with HP_DOUBT_END */
    const char *doubt_where;
    uint8_t header[FERRY_FRAME_FIXED_SIZE]; /* longer ones, with a list, are encoded when due */
};

/* Who encrypts. */
enum hp_tls {
    HP_TLS_OFF,
    HP_TLS_OPENSSL,
    HP_TLS_KERNEL,
};

#define HP_TLS_RECORD 16384u /* plaintext of a full record */

struct hp_lane_stats {
    _Atomic uint64_t ops;
    _Atomic uint64_t bytes_read;
    _Atomic uint64_t bytes_written;
    _Atomic uint64_t connects;
    _Atomic uint64_t failures;
    _Atomic uint64_t resends;
    _Atomic uint64_t damaged; /* payloads with another checksum than was said, either direction */
    _Atomic uint32_t tls;     /* enum hp_tls, of the latest connection */
    /* WRITEs whose answer was lost, by what the question about them brought */
    _Atomic uint64_t resolved_applied;
    _Atomic uint64_t resolved_not_applied;
    _Atomic uint64_t resolved_unknown;
};

struct hp_lane {
    /* immutable */
    struct hp_peer *peer;
    struct hp_rail *rail; /* its own */
    struct hp_worker *worker;
    uint32_t index;
    /* holder of the worker's baton only */
    enum hp_lane_state state;
    struct ferry_list worker_link;
    struct ferry_list dirty_link;
    struct ferry_list queues[HP_QUEUES]; /* refs that wait, by rank (lane_queue.c) */
    struct ferry_list held_queue; /* WRITEs that overlap a range in doubt; back with a scan */
    /* connection */
    struct ferry_io io;
    struct ferry_op rx;
    struct ferry_op tx;
    struct ferry_timer timer;
    struct hp_rail *via;     /* of the present connection, or the latest */
    bool rail_broke;         /* what ended the connection was its rail: others may go on */
    bool probing;            /* connected for no other reason than to see whether it can be */
    uint32_t parked;         /* refs in the queues that are PARKED */
    uint32_t path_strikes;   /* looks in a row that found the path dead */
    uint64_t path_due_ns;    /* when to look (again) */
    uint64_t greet_until_ns; /* SECURING, GREETING: when the peer's patience ends */
    uint32_t probe_mark;     /* peer->next_lane when a probe was last worth it */
    uint64_t probe_mark_ns;  /* and when that was */
    bool latest_large;       /* the latest READ was too large for staging */
    bool rx_direct;          /* rx goes straight into an op's memory, or the sink */
    bool orphan_pending;     /* rx into ops[head] is being cancelled so that its owner can go */
    uint32_t passed_over;    /* refs taken in a row while one of lower rank waited */
    uint8_t aged_rank;       /* the rank that had a turn because of that, the last time */
    uint32_t barren;         /* connections in a row that answered nothing */
    bool peer_closing;       /* GOODBYE was seen: send nothing more */
    bool renewing;           /* the same, since the cipher has been used for long */
    bool fencing;            /* the same, so that the next greeting has a session fenced */
    bool reuse_after_close;  /* ops that are safe to repeat go on on the next connection */
    bool keep_queue;         /* so does the queue */
    bool ask_again;          /* so does a question that was not answered */
    bool rest_unapplied;     /* v1: an error answer proved that what follows was not applied */
    bool refused_first;      /* ops[head] is what that error answer was for */
    enum ferry_status close_status;
    int32_t close_native;
    const char *close_where;
    uint64_t progress_ns;
    uint64_t rx_progress_seen; /* of a receive that is not complete */
    int attempt_error;         /* why the present connection attempt is given up; 0 while it runs */
    char attempts_text[192];   /* address by address */
    uint64_t session_id;
    uint64_t session_features; /* in force on it */
    uint64_t session_max_transfer;
    uint32_t window_ops;
    uint64_t window_bytes;
    struct ferry_lookup *lookup; /* while RESOLVING */
    struct ferry_socket_address addrs[FERRY_RESOLVE_ADDRS_MAX];
    uint32_t addr_count;
    uint32_t addr_next;
    struct ferry_job retire_job;
    bool retire_asked;
    /* window: ops[head..sent) are sent, wholly or partly; ops[sent..tail) wait; indices only grow
     */
    struct hp_op *ops;
    uint32_t op_mask;
    uint32_t head;
    uint32_t sent;
    uint32_t tail;
    uint64_t inflight_bytes;
    uint64_t tx_offset;     /* bytes of ops[sent] already taken by the kernel */
    bool write_outstanding; /* v1: a WRITE is unanswered, nothing goes behind it */
    struct iovec iov[HP_IOV_MAX];
    /* Headers with lists, of the ops that are being sent or are next; emptied when all are sent. */
    uint8_t *lists; /* HP_LISTS_BYTES */
    uint32_t lists_used;
    uint32_t lists_pending;               /* ops whose header lies there and is not wholly sent */
    uint8_t hello[FERRY_FRAME_PLAIN_MAX]; /* what is said in the greeting: HELLO, then the proof */
    uint32_t hello_bytes;
    enum hp_lane_gate gate;
    struct ferry_tls_handshake handshake;
    uint64_t sealed; /* about how many records of TLS this connection has carried */
    bool proof_due;  /* it leaves as soon as the HELLO is sent */
    struct ferry_auth_transcript transcript;
    /* receive */
    uint8_t *stage;
    uint32_t stage_begin;
    uint32_t stage_end;
    uint64_t payload_left; /* of ops[head], after its header was read */
    uint64_t payload_done;
    uint32_t payload_sum; /* where checksums are in force: what its answer said */
    uint32_t payload_crc; /* and of payload_done bytes */
    struct hp_question question;
    struct iovec rx_iov[HP_IOV_MAX];
    struct hp_lane_stats stats;
};

void ferry_hp_lane_init(struct hp_lane *lane, struct hp_peer *peer, uint32_t index,
                        struct hp_worker *worker);
/* Queue a ref (takes over its hold) and mark the lane dirty. */
void ferry_hp_lane_enqueue(struct hp_lane *lane, struct hp_ref *ref);
void ferry_hp_lane_mark_dirty(struct hp_lane *lane);
/* Pump all dirty lanes of a worker: pull chunks, connect, send. */
void ferry_hp_worker_flush(struct hp_worker *worker);
void ferry_hp_lane_pump(struct hp_lane *lane);
/* Begin to close the connection; ops are settled when the callbacks have retired. */
void ferry_hp_lane_close(struct hp_lane *lane, enum ferry_status status, int32_t native,
                         const char *where);
/* Look for cancelled, expired and revoked work on this lane. */
void ferry_hp_lane_scan(struct hp_lane *lane, uint64_t now_ns);
/* Earliest deadline of anything on the lane. */
uint64_t ferry_hp_lane_next_deadline(const struct hp_lane *lane, uint64_t now_ns);
/* ---- what waits on a lane (lane_queue.c) ---- */

void ferry_hp_queue_init(struct hp_lane *lane);
void ferry_hp_queue_push(struct hp_lane *lane, struct hp_ref *ref);
/* Who is next, still queued; NULL if nobody waits. Counts as taken. */
struct hp_ref *ferry_hp_queue_next(struct hp_lane *lane);
/* A chunk of the ref was taken, and there are more: others of its rank go before it. */
void ferry_hp_queue_rotate(struct hp_lane *lane, struct hp_ref *ref);
static inline bool ferry_hp_queue_busy(const struct hp_lane *lane)
{
    for (uint32_t rank = 0; rank < HP_QUEUES; rank++) {
        if (!ferry_list_empty(&lane->queues[rank]))
            return true;
    }
    return false;
}

static inline bool ferry_hp_lane_has_work(const struct hp_lane *lane)
{
    return lane->head != lane->tail || !ferry_list_empty(&lane->held_queue) ||
           ferry_hp_queue_busy(lane);
}
static inline struct hp_op *ferry_hp_lane_op(struct hp_lane *lane, uint32_t index)
{
    return &lane->ops[index & lane->op_mask];
}

/* lane.c, for its sister files */
void ferry_hp_lane_advance(struct hp_lane *lane, enum hp_lane_state next);
/* The connection broke: what is safe to repeat goes on on the next one. */
void ferry_hp_lane_broke(struct hp_lane *lane, int32_t native, const char *where);
/* The same if it ended under us, which tells something about its rail. */
void ferry_hp_lane_lost(struct hp_lane *lane, int32_t native, const char *where);

/* lane_connect.c */
void ferry_hp_lane_connect(struct hp_lane *lane);
void ferry_hp_lane_attempt_failed(struct hp_lane *lane, int err);
void ferry_hp_lane_greet(struct hp_lane *lane);
/* The peer has so long for its next word, its rail less. False: no memory, the lane is closing. */
FERRY_CHECKED bool ferry_hp_lane_await(struct hp_lane *lane, uint64_t timeout_ns);
void ferry_hp_lane_poll_lookup(struct hp_lane *lane);
void ferry_hp_lane_established(struct hp_lane *lane); /* connected, greeted, answered: READY */
/* Send a frame by itself, before READY. Given: nothing is being sent; @buf stays until it is. */
void ferry_hp_lane_send_plain(struct hp_lane *lane, uint8_t *buf, size_t len);

/* lane_tls.c: TLS between connecting and greeting */
/* Connected: TLS first if it is on, then the greeting. */
void ferry_hp_lane_secure(struct hp_lane *lane);
void ferry_hp_lane_secure_timed_out(struct hp_lane *lane);
/* True: a broken connection is a refusal of our certificate, and the lane is closing. */
bool ferry_hp_lane_alerted(struct hp_lane *lane, int32_t err);
void ferry_hp_lane_tls_due(struct hp_lane *lane);
/* The cipher has been used for long: time for another connection. */
bool ferry_hp_lane_worn(const struct hp_lane *lane);

/* lane_access.c: the initiator's half of a greeting with a key; nothing happens without one */
void ferry_hp_lane_access_begin(struct hp_lane *lane);
void ferry_hp_lane_challenged(struct hp_lane *lane, const struct ferry_frame *frame,
                              const uint8_t *wire, uint32_t wire_bytes);
/* The reply was read. False: the target has to prove the key first, or the lane is closing. */
bool ferry_hp_lane_access_reply(struct hp_lane *lane, const uint8_t *wire, uint32_t wire_bytes);
void ferry_hp_lane_proved(struct hp_lane *lane, const struct ferry_frame *frame);
void ferry_hp_lane_send_proof(struct hp_lane *lane);
/* The peer refused the greeting because of the key. */
void ferry_hp_lane_turned_away(struct hp_lane *lane);

/* lane_tx.c */
void ferry_hp_lane_fill(struct hp_lane *lane);  /* pull chunks into the window */
void ferry_hp_lane_prune(struct hp_lane *lane); /* end queued refs that have nothing to send */
void ferry_hp_lane_send(struct hp_lane *lane);
/* Bring back what was held, so that it is looked at again. */
void ferry_hp_lane_unhold(struct hp_lane *lane);
/* New ids for a window of which nothing is sent: an id belongs to one session, and ids ascend. */
void ferry_hp_lane_renumber(struct hp_lane *lane);
/* An op leaves the window before it was sent, or goes to another connection. */
void ferry_hp_lane_forget_list(struct hp_lane *lane, struct hp_op *op);
/* The header of the op is longer than the op itself has room for. */
static inline bool ferry_hp_op_has_list(const struct hp_op *op)
{
    return op->header_bytes > FERRY_FRAME_FIXED_SIZE;
}
/* A READ whose payload goes straight to its destination. */
static inline bool ferry_hp_op_direct(const struct hp_op *op)
{
    return !op->is_write && op->length > HP_COPY_MAX && !op->staged;
}
/* lane_rx.c */
void ferry_hp_lane_receive(struct hp_lane *lane);
/* The reply to the greeting counts: ask what is in doubt, else READY. */
void ferry_hp_lane_greeted(struct hp_lane *lane);

/* Completion of ops[head]: settles its flow, frees the entry. Holds nothing afterwards. */
void ferry_hp_lane_op_done(struct hp_lane *lane, enum ferry_status status, int32_t native,
                           const char *where);
void ferry_hp_lane_touch_timer(struct hp_lane *lane);

/* ---- server ---- */

/*
 * Listen at every rail, or at @host where there are none, all at one port; accept on @worker. Text
 * with an error names the address. Nothing stays after a failure.
 */
enum ferry_status ferry_hp_listeners_open(struct hp_worker *worker, const char *host,
                                          uint16_t *port_out);
/* On the worker; the objects are freed when their I/O has retired. */
void ferry_hp_listeners_close(struct hp_worker *worker);

/* A connection was accepted: hand it to the next worker. Takes the descriptor. */
void ferry_hp_session_accept(struct hp_transport *transport, int fd);
void ferry_hp_session_scan(struct hp_session *session);
/* Close at once, dropping what is queued. */
void ferry_hp_session_abort(struct hp_session *session, const char *why);
struct hp_session *ferry_hp_session_of_link(struct ferry_list *link);

/* report.c */
void ferry_hp_report(struct ferry_transport *transport, struct json_object *object);
void ferry_hp_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                      ferry_path_fn *fn, void *arg);

/* transport.c */
void ferry_hp_worker_post_scan(struct hp_worker *worker);
void ferry_hp_scan_all(struct hp_transport *transport);
bool ferry_hp_xfer_revoked(struct hp_transport *transport, const struct ferry_xfer *xfer);

#endif
