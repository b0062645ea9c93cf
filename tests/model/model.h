/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model rig: two or three engines' data planes and a faulty network in one thread, on a virtual
 * clock, from a seed. Exactly the shipped code runs (registry, hp_tcp, workers); the reactor, the
 * sockets, the clock and the randomness are simulated behind the library's own seams.
 *
 *   main.c      seeds, counters, what is printed
 *   profile.c   what a seed decides about a schedule before it begins
 *   node.c      one engine: open, close, kill, restart, register, unregister, descriptions of peers
 *   task.c      requests: choosing, submitting, cancelling, what the runtime does with stale ones
 *   memory.c    what each byte of each node must be, checked after every step
 *   doubt.c     WRITEs whose answer was lost: what is looked up inside the engines
 *   schedule.c  the random walk, the healing, the end
 *
 * What must hold is in docs/design/model.md. One thread; no state outside `struct model`, but for
 * the pointer that the crash handler uses.
 */
#ifndef FERRY_TESTS_MODEL_MODEL_H
#define FERRY_TESTS_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/registry.h"
#include "sim/net_sim.h"
#include "transport/hp_tcp/internal.h"
#include "transport/transport.h"

#define MODEL_NODES_MAX   3
#define MODEL_REGIONS     5
#define MODEL_RAILS_MAX   3
#define MODEL_TASKS_MAX   28
#define MODEL_REGION_MAX  (96u << 10)
#define MODEL_GAP_MAX     512u
#define MODEL_ARENA_BYTES (MODEL_REGIONS * (MODEL_REGION_MAX + MODEL_GAP_MAX) + MODEL_GAP_MAX)
#define MODEL_TRACE_MAX   400u
#define MODEL_WAITS_MAX   128u

/* What the rig itself does to the engines; each must have happened in a run. */
#define MODEL_EVENT_TABLE(X)                                                                       \
    X(SUBMIT_READ, "submit_read")                                                                  \
    X(SUBMIT_WRITE, "submit_write")                                                                \
    X(SUBMIT_BAD, "submit_bad")       /* a range or permission that the peer does not have */      \
    X(SUBMIT_FULL, "submit_full")     /* admission said no */                                      \
    X(SUBMIT_NESTED, "submit_nested") /* from inside the end of another task */                    \
    X(DEADLINE, "deadline")           /* a task with a deadline */                                 \
    X(CANCEL, "cancel")                                                                            \
    X(RETRY, "retry")                     /* the runtime's second try on a new description */      \
    X(LANDED_TWO_STEPS, "landed_partly")  /* a WRITE was seen half landed */                       \
    X(CONSUME, "consume")                 /* landed bytes were changed by their owner at once */   \
    X(LANDED_AGAIN, "landed_again")       /* a half landed chunk begins anew, after a question */  \
    X(STRIKE, "strike")                   /* a connection was cut where all else is well */        \
    X(OVERLAP, "overlap")                 /* a WRITE over one that is under way */                 \
    X(OVERLAP_DOUBT, "overlap_doubt")     /* over one whose answer was lost */                     \
    X(OVERLAP_UNKNOWN, "overlap_unknown") /* over one that ended as unknown */                     \
    X(COVERED, "covered")                 /* such a one is done: nothing below it may land now */  \
    X(WAIT, "wait")                       /* a WRITE that had to wait for such a one */            \
    X(WAIT_WINDOW, "wait_window")         /* the same, with a place in a window already */         \
    X(FENCED, "fenced")                   /* a session that its successor closed */                \
    X(FENCED_BODY, "fenced_body")         /* in the middle of a body */                            \
    X(CROWDED, "crowded")                 /* answers forgotten because the table was full */       \
    X(APPLIED, "applied")                 /* what questions brought */                             \
    X(NOT_APPLIED, "not_applied")                                                                  \
    X(NOT_KNOWN, "not_known")                                                                      \
    X(UNREGISTER, "unregister")                                                                    \
    X(REVOKE, "revoke") /* a lease outlived the patience of an unregister */                       \
    X(REGISTER, "register")                                                                        \
    X(REFRESH, "refresh") /* a description was read again without need */                          \
    X(FORGE, "forge")     /* a description that promises too much */                               \
    X(KILL, "kill")                                                                                \
    X(SHUTDOWN, "shutdown")                                                                        \
    X(RESTART, "restart")                                                                          \
    X(MEND, "mend") /* a wire that was cut carries again */                                        \
    X(REST, "rest") /* everybody waited for the idle timeout */                                    \
    X(JUMP, "jump") /* nobody ran for a long time */

enum model_event {
#define MODEL_EVENT_ENUM(name, text) MODEL_##name,
    MODEL_EVENT_TABLE(MODEL_EVENT_ENUM)
#undef MODEL_EVENT_ENUM
        MODEL_EVENT_COUNT,
};

/* Decided by the seed before the first step. */
struct model_profile {
    uint32_t nodes;
    uint32_t workers;
    uint32_t lanes;
    uint32_t window_ops;
    uint32_t window_bytes;
    uint32_t chunk_bytes;
    uint32_t tasks_max;
    uint32_t region_bytes; /* the most one region has */
    uint32_t steps;
    uint32_t length_max;
    uint32_t submits; /* how often requests come, against 86 of everything else */
    bool v1;
    uint32_t answers_max;            /* what a target remembers of WRITEs, in all */
    uint32_t keep_ms;                /* and for how long */
    uint32_t question_ms;            /* how long an initiator asks */
    uint32_t rails[MODEL_NODES_MAX]; /* of each node; 0: none named */
    bool isolation;                  /* small requests pass large ones */
    uint32_t small_bytes;            /* what counts as small then */
    bool cuts;     /* wires are cut and mended; with calm only ever the same one */
    bool calm;     /* nothing else fails: then every task must do what was asked */
    bool gentle;   /* connections are cut one at a time: then every question has an answer */
    bool overlap;  /* WRITEs go over WRITEs */
    bool doubtful; /* answers to WRITEs are lost while others to the same place are under way */
    bool churn;    /* regions come and go */
    bool deaths;   /* nodes die and come back */
    bool jumps;    /* nobody runs for a while */
    bool rests;    /* connections grow idle, and requests come just then */
    bool bad;      /* requests that must be refused */
    bool forged;   /* descriptions that promise too much */
    bool twins;    /* a restarted process gives out the same registration ids again */
    struct sim_options net;
};

struct model;
struct model_node;

struct model_region {
    uint32_t offset;
    uint32_t length;
    enum ferry_permission permission;
    uint64_t id;      /* 0: not registered; the memory is its owner's */
    bool hidden;      /* an unregister is under way */
    uint64_t retired; /* how often it was taken back */
};

/* The generator of a registry: its own, so that another life can draw the same ids. */
struct model_ids {
    struct ferry_random random; /* first */
    uint64_t state;
};

/* What a node knows of another one; tasks hold it. */
struct model_view {
    struct ferry_target *target;
    struct model_node *of;
    uint32_t life;
    uint32_t holds;
    uint64_t ids[MODEL_REGIONS]; /* 0: not described */
    bool forged;
};

/* A WRITE that must wait as long as a range in doubt is published. */
struct model_wait {
    const void *flow;
    uint32_t chunk;    /* in a window; UINT32_MAX: the flow as a whole */
    uint32_t claimed;  /* of the flow */
    uint64_t in_doubt; /* request id of what it waits for */
};

struct model_node {
    struct model *model;
    uint32_t index;
    bool alive;
    bool closing;
    uint32_t life;
    struct sim_process *process;
    struct ferry_config *config;
    struct ferry_registry registry;
    struct model_ids ids;
    struct ferry_registry_reader reader;
    struct ferry_transport_env env;
    struct ferry_transport *transport;
    char incarnation[FERRY_INCARNATION_TEXT_SIZE];
    char name[16];
    struct model_region regions[MODEL_REGIONS];
    unsigned char *memory;
    unsigned char *shadow; /* what memory must be */
    uint32_t size;
    struct model_view *views[MODEL_NODES_MAX];
    /* the unregister under way */
    struct ferry_removal removal;
    uint32_t removing; /* region, or MODEL_REGIONS */
    bool revoked;
    uint64_t revoke_at_ns;
    /* as the latest turn left them */
    struct model_wait waits[MODEL_WAITS_MAX];
    uint32_t wait_count;
};

enum model_task_state {
    MODEL_TASK_FREE,
    MODEL_TASK_RUNNING, /* inside the transport */
    MODEL_TASK_HELD,    /* ended as outdated; waits for a new description */
    MODEL_TASK_UNKNOWN, /* ended as "outcome unknown": its bytes may land still */
};

struct model_task {
    struct ferry_xfer xfer; /* first */
    struct model *model;
    enum model_task_state state;
    uint32_t serial;
    uint32_t attempt;
    struct model_node *from;
    struct model_node *to;
    uint32_t from_life;
    uint32_t local_region;
    uint32_t remote_region;
    uint32_t local; /* offsets in the arenas */
    uint32_t remote;
    uint32_t length;
    uint64_t seed; /* of what a WRITE carries */
    struct model_view *view;
    uint64_t attempt_id; /* registration that this try goes to */
    uint32_t attempt_life;
    struct ferry_lease lease;
    bool bad;       /* must not complete */
    bool forbidden; /* must not move a byte */
    bool refreshed;
    bool canceled;
    bool stale_possible;
    bool lost; /* its own engine died */
    /* READ: what the source was when its registration ended, if it has */
    unsigned char *snapshot;
    /* WRITE: which bytes have landed under the present registration of the target */
    uint8_t *landed;
    uint32_t landed_count;
    uint32_t chunk_bytes; /* how this try was cut */
    uint32_t chunk_count;
    struct model_task *under;  /* the one it was placed over, while it is made */
    struct model_task *covers; /* the one, ended as unknown, that lies below the whole of it */
    uint32_t covers_serial;
    bool mixed;          /* another WRITE goes over it: whose bytes stay is not certain */
    uint64_t other_seed; /* what that one carries, and where */
    uint32_t other_local;
    uint32_t other_remote;
    uint32_t other_length;
    bool landed_whole; /* it was complete when that registration ended */
    bool landed_any;   /* some of this try had landed when it ended */
};

struct model_trace {
    const char *format;
    uint64_t now_ns;
    uint64_t values[5];
};

struct model {
    uint64_t seed;
    struct model_profile profile;
    struct ferry_transport_ops ops;
    struct ferry_random random;
    struct sim_net *net;
    struct model_node nodes[MODEL_NODES_MAX];
    struct model_task tasks[MODEL_TASKS_MAX];
    uint32_t serial;
    uint32_t open;     /* RUNNING and HELD */
    uint32_t cut_host; /* the wire that is cut now, or 0 */
    bool disturbed;    /* something happened that explains a failed connection */
    bool healing;
    uint64_t steps;
    struct model_trace trace[MODEL_TRACE_MAX];
    uint32_t trace_count;
    bool verbose;
    /* kept over all schedules of a run */
    unsigned char *arenas[MODEL_NODES_MAX][2];
    uint8_t *landed_maps[MODEL_TASKS_MAX];
    uint64_t events[MODEL_EVENT_COUNT];
    uint64_t faults[SIM_FAULT_COUNT];
    uint64_t ends[700]; /* by -status */
    uint64_t total_steps;
};

/* main.c */
void model_note(struct model *model, const char *format, const uint64_t values[5]);
/* A step for the trace: the format takes up to five %llu or %llx. */
#define MODEL_NOTE(model, format, ...)                                                             \
    model_note((model), (format), (const uint64_t[5]){__VA_ARGS__})
/* Print what is wrong, the seed and the latest steps, and end the program. */
_Noreturn void model_fail(struct model *model, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline uint64_t model_below(struct model *model, uint64_t bound)
{
    return sim_random_below(model->net, bound);
}

static inline bool model_chance(struct model *model, uint32_t percent)
{
    return model_below(model, 100) < percent;
}

/* profile.c */
void model_profile_draw(struct model *model);
/* The address of a rail of a node, in host byte order. */
uint32_t model_rail_host(uint32_t node, uint32_t rail);

/* node.c */
void model_node_create(struct model *model, uint32_t index); /* layout, content, first life */
void model_node_close(struct model_node *node);              /* gracefully; all its tasks end */
void model_node_kill(struct model_node *node, bool silent);
void model_node_restart(struct model_node *node);
uint32_t model_node_turn(struct model_node *node, uint32_t worker);
bool model_node_register(struct model_node *node, uint32_t region);
bool model_node_unregister(struct model_node *node, uint32_t region);
/* Goes on with an unregister under way; true if something came of it. */
bool model_node_removal_step(struct model_node *node);
/* The present description of another node, held; NULL if none can be had. */
struct model_view *model_view_get(struct model_node *node, struct model_node *of);
bool model_view_refresh(struct model_node *node, struct model_node *of);
void model_view_drop(struct model_view *view);

/* task.c */
bool model_task_submit(struct model *model, struct model_node *from);
void model_task_cancel_one(struct model *model);
/* The runtime's part: a held task goes on or ends. True if there was one. */
bool model_task_held_step(struct model *model);
/* One request that must succeed in the end; the network is whole. */
void model_task_probe(struct model_node *from, struct model_node *to);
void model_tasks_forget_unknown(struct model_node *node, uint32_t region);
/* Nothing is left to do at this time: nothing that was called off may be open. */
void model_tasks_check_idle(struct model *model);

/* memory.c */
void model_memory_fill(struct model_node *node, uint32_t offset, uint32_t length, uint64_t seed);
/* After a turn of the node: only what was allowed to change has changed, and rightly. */
void model_memory_check(struct model_node *node);
/* The bytes of a registration go out of use: remember what tasks on it may still deliver. */
void model_memory_retire(struct model_node *node, uint32_t region);
/* A READ ends now: its bytes so far are right; all of them if it says so. */
void model_memory_read_ended(struct model_task *task, bool completed);
void model_memory_write_ended(struct model_task *task, bool completed);
/* A WRITE over the whole of one that ended as unknown is done: only its own bytes are there. */
void model_memory_covered(struct model_task *task);

/* doubt.c */
/* After a turn of the node: nothing passed a range in doubt, and no two sessions write one place.
 */
void model_doubts_check(struct model_node *node);
/* Nothing is left to do at this time: nothing that could go on may be held back. */
void model_doubts_check_idle(struct model *model);
/* Cut a connection of the node on which a WRITE is under way that another one waits to go over, in
 * the window of another connection. False: there is none. */
bool model_doubts_strike(struct model_node *node);
/* True if no WRITE of any node is in doubt. */
bool model_doubts_none(const struct model *model);
/* The WRITE task of @from to @to whose outcome is in doubt now, or NULL. */
struct model_task *model_doubts_task(struct model_node *from, const struct model_node *to);
/* Before a life ends: what its engine counted. */
void model_doubts_count(struct model_node *node);

/* schedule.c */
void model_run(struct model *model, uint64_t seed);

#endif
