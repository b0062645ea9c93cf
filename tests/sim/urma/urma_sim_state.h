/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the simulated UB fabric: its state, without pointers so that processes can share
 * it, and the calls by which the two faces of the fabric (table and URMA interface) use it. Their
 * results are native numbers: 0, or a positive errno-like status.
 *
 * Handles are index + 1; 0 is none. Everything is under state->mutex, taken by the functions named
 * usim_*; those named sim_* want it held.
 */
#ifndef FERRY_TESTS_SIM_URMA_STATE_H
#define FERRY_TESTS_SIM_URMA_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "sim/urma/urma_sim.h"

#define SIM_CONTEXTS_MAX 64u
#define SIM_QUEUES_MAX   128u
#define SIM_JETTIES_MAX  512u
#define SIM_SEGMENTS_MAX 2048u
#define SIM_IMPORTS_MAX  8192u
#define SIM_REQUESTS_MAX 16384u
#define SIM_DEPTH_MAX    2048u /* of a completion queue */
#define SIM_EVENTS_MAX   32u
#define SIM_LATE_MAX     64u
#define SIM_SCRIPTS_MAX  32u

/* Native statuses of calls. */
#define SIM_EAGAIN  11
#define SIM_ENOMEM  12
#define SIM_EEXIST  17
#define SIM_EINVAL  22
#define SIM_ENOPERM 1
#define SIM_EIO     5
#define SIM_FAIL    0x1000

/* Native statuses of completions. */
enum {
    SIM_CR_SUCCESS = 0,
    SIM_CR_LOC_OPERATION = 3,
    SIM_CR_LOC_ACCESS = 4,
    SIM_CR_REM_OPERATION = 7,
    SIM_CR_REM_ACCESS_ABORT = 8,
    SIM_CR_ACK_TIMEOUT = 9,
    SIM_CR_FLUSH = 11,
    SIM_CR_SUSPEND_DONE = 12,
    SIM_CR_FLUSH_DONE = 13,
    SIM_CR_UNHANDLED = 14,
    SIM_CR_DATA_POISON = 15,
    SIM_CR_UNHEARD_OF = 77,
};

enum sim_event_type { /* as urma_async_event_type */
                      SIM_EVENT_JFC_ERR = 0,
                      SIM_EVENT_JETTY_ERR = 4,
                      SIM_EVENT_PORT_ACTIVE = 7,
                      SIM_EVENT_PORT_DOWN = 8,
                      SIM_EVENT_DEV_FATAL = 9,
                      SIM_EVENT_EID_CHANGE = 10,
};

struct sim_cr {
    int32_t status;
    uint32_t jetty_id;
    uint64_t token;
    uint32_t bytes;
};

struct sim_event {
    uint32_t type;
    uint32_t object; /* handle of the queue or jetty; port; EID slot */
};

struct sim_node {
    bool used;
    uint32_t incarnation; /* grows at each kill */
};

struct sim_device {
    bool used, present, fatal, rtp_only, limits_unknown, container_eid;
    uint32_t node;
    char name[64];
    char path[64];
    uint32_t port_count;
    uint32_t port_state[USIM_PORTS_MAX];
    bool eid_valid[USIM_EIDS_MAX];
    uint8_t eid[USIM_EIDS_MAX][16];
    uint64_t bytes_per_s, latency_ns, jitter_ns, segment_bytes_max, request_bytes_max;
    uint32_t depth_max;
    uint64_t free_at_ns; /* its send side is busy until then */
};

struct sim_ctx {
    bool used;
    uint32_t device, node, incarnation, eid_index, uasid, children, unacked;
    uint8_t eid[16];
    struct sim_event events[SIM_EVENTS_MAX];
    uint32_t event_head, event_tail;
};

struct sim_cq {
    bool used, broken, armed;
    uint32_t ctx, depth, jetties, head, tail, signals;
    uint64_t cookie;
    struct sim_cr ring[SIM_DEPTH_MAX];
};

enum sim_jetty_state { SIM_RESET, SIM_READY, SIM_ERROR };

struct sim_jetty {
    bool used, bound, marker_due, marker_sent, error_event, once_used;
    enum sim_jetty_state state;
    uint32_t ctx, cq, depth, depth_used, err_timeout, incarnation;
    uint64_t cookie;
    uint8_t peer_eid[16];
    uint32_t peer_id;
    uint32_t head, tail; /* requests, by index + 1, in order of posting */
    uint64_t drain_at_ns;
    uint64_t last_done_ns;
};

struct sim_seg {
    bool used, draining;
    uint32_t ctx, node, token, token_id, access, users;
    pid_t pid;
    uint64_t addr, length, generation;
};

struct sim_import {
    bool used;
    uint32_t ctx, token, token_id, access, users;
    uint8_t eid[16];
    uint64_t addr, length;
};

enum sim_stage {
    SIM_QUEUED,   /* nothing has happened */
    SIM_MOVED,    /* decided and, if it succeeds, moved */
    SIM_SOFTWARE, /* never reached the hardware: only flush returns it */
};

struct sim_request {
    bool used, again, silent;
    uint32_t next, jetty, seg, import, length;
    bool write;
    enum sim_stage stage;
    int32_t status;
    uint64_t token, local, remote, move_at_ns, done_at_ns;
};

/* A completion that comes long after its time, whatever became of its jetty. */
struct sim_late {
    bool used;
    uint32_t cq, ctx_incarnation;
    uint64_t at_ns;
    struct sim_cr cr;
};

/* Bytes on the way that nobody waits for any more. */
struct sim_packet {
    bool used;
    uint32_t jetty, incarnation; /* the remote end */
    uint64_t at_ns;
    uint64_t to;
    uint32_t length, token, token_id;
    unsigned char *data; /* this process only */
};

struct sim_script {
    bool used;
    enum usim_fault fault;
    uint32_t skip, count;
};

struct sim_state {
    uint64_t magic;
    pthread_mutex_t mutex;
    uint64_t random;
    uint32_t device_count, next_uasid;
    uint64_t made, gone, posts, moves, moved_bytes, posts_in_error, violations, generation;
    char violation[160];
    uint32_t chance[USIM_FAULT_COUNT];
    uint64_t fired[USIM_FAULT_COUNT];
    struct sim_script scripts[SIM_SCRIPTS_MAX];
    struct sim_node nodes[USIM_NODES_MAX];
    struct sim_device devices[USIM_DEVICES_MAX];
    struct sim_ctx contexts[SIM_CONTEXTS_MAX];
    struct sim_jetty jetties[SIM_JETTIES_MAX];
    uint32_t jetty_top; /* none used from here on */
    struct sim_late late[SIM_LATE_MAX];
    struct sim_packet packets[SIM_LATE_MAX];
    uint32_t extras; /* late and packets in use */
    uint32_t request_free, request_top;
    uint32_t seg_top, import_top;
    struct sim_seg segments[SIM_SEGMENTS_MAX];
    struct sim_import imports[SIM_IMPORTS_MAX];
    struct sim_request requests[SIM_REQUESTS_MAX];
    struct sim_cq queues[SIM_QUEUES_MAX];
};

struct usim {
    struct sim_state *state;
    const struct ferry_clock *clock;
    bool shared;
    int cq_fd[SIM_QUEUES_MAX]; /* of this process; 0: none */
    int ctx_fd[SIM_CONTEXTS_MAX];
    pid_t pid;
};

/* urma_sim.c */
uint64_t sim_random_u64(struct sim_state *state);
uint64_t sim_below(struct sim_state *state, uint64_t bound);
bool sim_fires(struct sim_state *state, enum usim_fault fault);
void sim_violation(struct sim_state *state, const char *text);
void sim_event_push(struct usim *sim, uint32_t ctx_index, uint32_t type, uint32_t object);
bool sim_dead(const struct sim_state *state, uint32_t ctx_index);
void usim_lock(struct usim *sim);
void usim_unlock(struct usim *sim);

/* urma_sim_objects.c; contexts */
int usim_ctx_create(struct usim *sim, uint32_t node, const char *name, uint32_t eid_index,
                    uint32_t *ctx_out);
int usim_ctx_delete(struct usim *sim, uint32_t ctx);
int usim_event_get(struct usim *sim, uint32_t ctx, struct sim_event *event_out);
void usim_event_ack(struct usim *sim, uint32_t ctx);
int usim_cq_create(struct usim *sim, uint32_t ctx, uint32_t depth, uint64_t cookie,
                   uint32_t *cq_out);
int usim_cq_delete(struct usim *sim, uint32_t cq);
struct sim_jetty_config {
    uint32_t depth, err_timeout;
    uint64_t cookie;
};
int usim_jetty_create(struct usim *sim, uint32_t ctx, uint32_t cq,
                      const struct sim_jetty_config *config, uint32_t *jetty_out);
int usim_jetty_delete(struct usim *sim, uint32_t jetty);
int usim_jetty_bind(struct usim *sim, uint32_t jetty, const uint8_t *eid, uint32_t id);
int usim_jetty_unbind(struct usim *sim, uint32_t jetty);
int usim_seg_register(struct usim *sim, uint32_t ctx, const struct ferry_urma_mem_spec *spec,
                      uint32_t *seg_out);
int usim_seg_unregister(struct usim *sim, uint32_t seg);
int usim_import(struct usim *sim, uint32_t ctx, const struct ferry_urma_descriptor *descriptor,
                uint32_t token, uint32_t access, uint32_t *import_out);
int usim_unimport(struct usim *sim, uint32_t import);

/* urma_sim_wire.c */
struct sim_post {
    bool write;
    uint64_t token, local, remote;
    uint32_t seg, import, length;
};
/* @accepted_out: how many were taken; @known_out: false if the caller is not to be told. */
int usim_post(struct usim *sim, uint32_t jetty, const struct sim_post *posts, uint32_t count,
              uint32_t *accepted_out, bool *known_out);
/* The count, or negative with *saved_out entries in @out that were taken off the queue. */
int usim_poll(struct usim *sim, uint32_t cq, struct sim_cr *out, uint32_t capacity,
              uint32_t *saved_out);
int usim_jetty_error(struct usim *sim, uint32_t jetty);
int usim_flush(struct usim *sim, uint32_t jetty, struct sim_cr *out, uint32_t capacity);
int usim_arm(struct usim *sim, uint32_t cq);
uint32_t usim_take_signals(struct usim *sim, uint32_t cq);
void sim_run(struct usim *sim);
void sim_jetty_fails(struct usim *sim, uint32_t jetty_index);
void sim_requests_drop(struct usim *sim, uint32_t jetty_index);
void sim_cr_push(struct usim *sim, uint32_t cq_index, const struct sim_cr *cr);

#endif
