/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of shm share. Nobody outside src/transport/shm includes this.
 *
 *   transport.c  open, quiesce, close, cancel, revoke, the table
 *   worker.c     requests on their way: admission, turns, ends      any thread; holder of a baton
 *   copy.c       one chunk, with its lease                          holder of a baton
 *   target.c     the view of a peer's segment, and reach            any thread
 *   meet.c       the thread that meets peers: listener, poll loop   the meeting thread
 *   session.c    peers that reach us                                the meeting thread; unregister
 *   link.c       peers that we reach, and what we mapped of them    the meeting thread
 *   buffers.c    our buffers and their places on the board          any thread
 *   peer.c       who is at the other end of a socket                the meeting thread
 *
 * One lock, transport->mutex, for the lists of sessions, links, mappings and buffers. No worker
 * takes it on the way of a request.
 */
#ifndef FERRY_TRANSPORT_SHM_INTERNAL_H
#define FERRY_TRANSPORT_SHM_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/inbox.h"
#include "base/list.h"
#include "base/pool.h"
#include "metadata/document.h"
#include "transport/shm/board.h"
#include "transport/shm/message.h"
#include "transport/shm/shm.h"

#define SHM_SOCKET_SIZE  108u /* of sockaddr_un.sun_path */
#define SHM_BOOT_ID_SIZE 40u
#define SHM_WHY_SIZE     FERRY_REACH_TEXT_SIZE
#define SHM_BUCKETS      4096u
#define SHM_MAP_BUCKETS  1024u

struct shm_settings {
    uint32_t outstanding_max;
    uint32_t worker_count;
    uint32_t peers_max;
    uint64_t transfer_max;
    uint64_t chunk_bytes;
    uint64_t split_bytes;
    uint64_t streaming_bytes; /* 0: never */
    uint64_t meet_timeout_ns;
    const char *socket_dir; /* "": an abstract name */
    bool allow_ptrace;
};

/* What a segment publishes, or reads of a peer. */
struct shm_segment_attr {
    char boot_id[SHM_BOOT_ID_SIZE];
    char socket[SHM_SOCKET_SIZE]; /* a path, or "@name" */
    uint64_t network;             /* namespace, for abstract names */
    uint64_t user;
    uint64_t max_transfer_bytes;
    uint8_t incarnation[SHM_INCARNATION];
};

struct shm_buffer_attr {
    uint64_t registration_id;
    uint32_t index;
    bool writable;
    bool shared;
};

/* One of our buffers that peers may reach. */
struct shm_buffer {
    struct shm_buffer *next; /* of the bucket */
    uint64_t id;
    uint64_t addr;
    uint64_t length;
    uint32_t index;
    int fd; /* -1, or what peers map: our own duplicate, for reading only if not writable */
    bool writable;
};

/* Who is at the other end. */
struct shm_peer {
    int fd;    /* socket; -1: it has hung up */
    int pidfd; /* -1: its process is not visible here */
    pid_t pid; /* 0: as above */
};

/* A peer that reaches us. */
struct shm_session {
    struct ferry_list link;
    struct shm_peer peer;
    struct shm_slots *slots;
    int slots_fd;
    bool welcomed;
    bool changed;                /* has to be told */
    bool pending;                /* the answer waits for room on the socket */
    struct shm_message question; /* the last one, without descriptors */
};

enum shm_link_state {
    SHM_LINK_NEW,     /* nobody has asked for it yet */
    SHM_LINK_MEETING, /* hello said */
    SHM_LINK_READY,
    SHM_LINK_REFUSED, /* it lives, but not for us: `why` */
    SHM_LINK_DEAD,    /* it closed, died, or was never there: `why` */
};

/*
 * What the peer itself says of one of its buffers, once: where it is, what may be done, and a
 * mapping if it is shared. A description may come from a store, and is not proof of any of it.
 */
enum shm_map_state {
    SHM_MAP_IDLE,
    SHM_MAP_WANTED, /* by a worker; the meeting thread asks */
    SHM_MAP_ASKED,
    SHM_MAP_READY,
    SHM_MAP_GONE,
};

struct shm_map {
    struct ferry_list link; /* of the peer's */
    struct shm_map *next;   /* of the bucket */
    uint64_t id;
    uint32_t index;
    uint32_t refs; /* targets; under the mutex */
    /* written by the meeting thread before `state` says READY; `base` also when it is GONE */
    unsigned char *base;
    uint64_t addr;
    uint64_t length;
    bool writable;
    bool mapped;            /* false: brought memory, or it could not be mapped here */
    _Atomic uint32_t state; /* shm_map_state */
};

/* A peer that we reach: one life of one engine. */
struct shm_link {
    struct ferry_list link;
    struct shm_transport *transport;
    /* immutable */
    char socket[SHM_SOCKET_SIZE];
    uint8_t incarnation[SHM_INCARNATION];
    char *name; /* segment, for messages */
    /* under the mutex */
    uint32_t targets;
    struct ferry_list maps;
    struct shm_map *buckets[SHM_MAP_BUCKETS];
    bool ask_again;  /* a question found no room on the socket */
    bool drop_again; /* a mapping that is to go is still in use */
    char why[SHM_WHY_SIZE];
    /* meeting thread only */
    struct shm_peer peer;
    uint64_t meet_deadline_ns;
    uint64_t retry_ns; /* a meeting that failed is not tried again before */
    /* written before `state` says READY, then constant until the link is freed */
    struct shm_board *board;
    struct shm_slots *slots;
    bool vm_works;
    char vm_why[SHM_WHY_SIZE];
    _Atomic uint32_t state; /* shm_link_state */
    _Atomic bool asked;     /* somebody wants to meet */
    _Atomic bool wanted;    /* a mapping is WANTED */
    /* counters */
    _Atomic uint64_t bytes_mapped; /* copied by memcpy */
    _Atomic uint64_t bytes_vm;     /* copied by the kernel */
    _Atomic uint64_t ops;
};

struct shm_target_buffer {
    uint64_t addr;
    uint64_t length;
    struct shm_buffer_attr attr;
    struct shm_map *map;
};

struct shm_target {
    struct ferry_target base;
    struct shm_link *link;
    uint32_t buffer_count;
    struct shm_target_buffer buffers[];
};

struct shm_op;

/* A worker's share in a request. */
struct shm_part {
    struct ferry_inbox_node node; /* until the worker takes it */
    struct ferry_list link;       /* worker: active or parked */
    struct shm_op *op;
};

/* One accepted request. */
struct shm_op {
    struct ferry_xfer *xfer;
    const struct shm_target_buffer *buffer;
    _Atomic uint64_t next;    /* offset of the first byte that no part has taken */
    _Atomic uint64_t moved;   /* bytes that were copied */
    _Atomic uint32_t running; /* parts that have not left */
    _Atomic int32_t failed;   /* first status that is none; 0: none */
    _Atomic bool revoked;     /* its local memory is being unregistered */
    int32_t native;
    const char *where; /* by the part that set `failed` */
    uint32_t part_count;
    struct shm_part parts[SHM_WORKERS_MAX];
};

struct shm_revoke {
    struct ferry_job job;
    uint64_t addr;
    uint64_t length;
    _Atomic uint32_t busy; /* futex: 1 from post to done */
};

struct shm_worker {
    struct shm_transport *transport;
    struct ferry_worker *worker;
    uint32_t index; /* also of its slot at every peer */
    /* holder of the baton only */
    struct ferry_list active;
    struct ferry_list parked; /* wait for a meeting or a mapping */
    struct shm_revoke revoke;
    struct ferry_job job;
    /* any thread */
    struct ferry_inbox inbox;
    _Atomic bool posted;
    _Atomic uint32_t parked_count;
};

struct shm_transport {
    struct ferry_transport base;
    /* immutable after open */
    struct ferry_config *config;
    struct shm_settings settings;
    char boot_id[SHM_BOOT_ID_SIZE];
    uint64_t network;
    char socket[SHM_SOCKET_SIZE];
    uint8_t incarnation[SHM_INCARNATION];
    uint8_t cookie[SHM_COOKIE_BYTES];
    struct shm_worker workers[SHM_WORKERS_MAX];
    uint32_t worker_count;
    struct shm_board *board;
    int board_fd; /* for reading only: what peers get */
    /* meeting thread */
    pthread_t thread;
    bool thread_started;
    int listener;
    int wake_fd;
    _Atomic bool stop;
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    struct ferry_list sessions;
    uint32_t session_count;
    struct ferry_list links;
    struct shm_buffer *buckets[SHM_BUCKETS];
    uint32_t *free_places; /* stack of places that were used and are free again */
    uint32_t free_count;
    uint32_t free_capacity;
    uint32_t place_count; /* used at some time */
    pthread_mutex_t revoke_mutex;
    /* any thread, atomic */
    struct ferry_pool ops;
    _Atomic uint32_t outstanding;
    _Atomic uint32_t unfinished; /* futex: quiesce waits for 0 */
    _Atomic uint32_t next_worker;
    _Atomic bool closing;
    _Atomic uint64_t ended_count;
    _Atomic uint64_t moved_bytes;
    _Atomic uint64_t sessions_refused;
    _Atomic uint64_t sessions_died; /* without saying goodbye */
};

static inline struct shm_transport *ferry_shm_of(struct ferry_transport *base)
{
    return (struct shm_transport *)(void *)base;
}

/* options.c */
extern const struct ferry_option_table ferry_shm_options;
void ferry_shm_settings_read(const struct ferry_config *config, struct shm_settings *settings_out);

/* attr.c */
enum ferry_status ferry_shm_describe(struct ferry_transport *base, char **attr_out);
enum ferry_status ferry_shm_describe_buffer(struct ferry_transport *base, uint64_t registration_id,
                                            enum ferry_permission permission, char **attr_out);
enum ferry_status ferry_shm_segment_attr_parse(const char *text, struct shm_segment_attr *attr_out);
enum ferry_status ferry_shm_buffer_attr_parse(const char *text, struct shm_buffer_attr *attr_out);

/* buffers.c */
enum ferry_status ferry_shm_add_buffer(struct ferry_transport *base,
                                       const struct ferry_registry_buffer *buffer);
enum ferry_status ferry_shm_remove_buffer(struct ferry_transport *base, uint64_t registration_id,
                                          uint64_t deadline_ns);
/* Under the mutex; NULL if there is none. */
struct shm_buffer *ferry_shm_buffer_find(struct shm_transport *transport, uint64_t id);
void ferry_shm_buffers_fini(struct shm_transport *transport);

/* peer.c: fills in who it is; ERR_REFUSED, with text, if it is another user. */
enum ferry_status ferry_shm_peer_identify(struct shm_peer *peer);
bool ferry_shm_peer_dead(const struct shm_peer *peer);
void ferry_shm_peer_close(struct shm_peer *peer);
/*
 * Whether the kernel lets us reach the memory of @pid, and whether that is the process which wrote
 * @cookie to @addr. False with a reason in @why.
 */
bool ferry_shm_vm_probe(pid_t pid, uint64_t addr, const uint8_t cookie[SHM_COOKIE_BYTES],
                        char why[SHM_WHY_SIZE]);

/* meet.c */
enum ferry_status ferry_shm_meet_open(struct shm_transport *transport);
void ferry_shm_meet_close(struct shm_transport *transport);
void ferry_shm_meet_wake(struct shm_transport *transport);

/* session.c: meeting thread, under the mutex. The first three return false if it is to be freed. */
bool ferry_shm_session_input(struct shm_transport *transport, struct shm_session *session);
bool ferry_shm_session_output(struct shm_transport *transport, struct shm_session *session);
bool ferry_shm_session_died(struct shm_transport *transport, struct shm_session *session);
void ferry_shm_session_accept(struct shm_transport *transport);
void ferry_shm_session_free(struct shm_transport *transport, struct shm_session *session);
/* Any thread, under the mutex: a copy of some peer runs on the registration, or on any if 0. */
bool ferry_shm_sessions_hold(struct shm_transport *transport, uint64_t id);

/* link.c: meeting thread, under the mutex. */
void ferry_shm_link_begin(struct shm_link *link, uint64_t now_ns);
void ferry_shm_link_input(struct shm_link *link);
/* Ask for mappings that are wanted, drop those that are gone. True if it wants another look. */
bool ferry_shm_link_tend(struct shm_link *link);
void ferry_shm_link_end(struct shm_link *link, enum shm_link_state state, const char *fmt, ...)
    FERRY_PRINTF(3, 4);
void ferry_shm_link_free(struct shm_link *link);
/* Any thread, under the mutex. */
struct shm_map *ferry_shm_map_acquire(struct shm_link *link, const struct shm_buffer_attr *attr);
void ferry_shm_map_release(struct shm_link *link, struct shm_map *map);

/* target.c */
enum ferry_status ferry_shm_target_open(struct ferry_transport *base,
                                        const struct ferry_document *doc,
                                        struct ferry_target **target_out);
void ferry_shm_target_close(struct ferry_target *base);
void ferry_shm_target_explain(struct ferry_target *base, char *buf, size_t buf_len);
enum ferry_reach ferry_shm_target_reach(struct ferry_target *base, uint64_t addr, uint64_t length,
                                        char *why);
const struct shm_target_buffer *ferry_shm_target_find(const struct shm_target *target,
                                                      uint64_t addr, uint64_t length);

/* copy.c: the chunk [offset, offset + length) of the request, under its lease. */
struct shm_verdict {
    enum ferry_status status;
    int32_t native;
    const char *where;
    bool parked; /* not yet: a meeting or a mapping is under way */
};
struct shm_verdict ferry_shm_ready(struct shm_op *op);
struct shm_verdict ferry_shm_copy(struct shm_worker *worker, struct shm_op *op, uint64_t offset,
                                  uint64_t length);

/* worker.c */
enum ferry_status ferry_shm_worker_open(struct shm_worker *worker);
void ferry_shm_kick(struct shm_worker *worker, bool inline_ok);
void ferry_shm_kick_all(struct shm_transport *transport);
uint32_t ferry_shm_parked(const struct shm_transport *transport);
enum ferry_status ferry_shm_submit(struct ferry_transport *base, struct ferry_xfer *const *xfers,
                                   uint32_t count);

/* report.c */
void ferry_shm_report(struct ferry_transport *base, struct json_object *object);
void ferry_shm_measure(struct ferry_transport *base, struct ferry_transport_totals *totals,
                       ferry_path_fn *fn, void *arg);

#endif
