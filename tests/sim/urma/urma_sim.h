/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated UB fabric: hosts (nodes) with devices, EIDs and ports, contexts, completion queues,
 * jetties and registered ranges, and bytes that really move, inside one process or between several
 * that share the fabric's file. Time is a clock that the owner gives: a virtual one makes every run
 * of a seed the same; with the system's clock the seed fixes the faults only.
 *
 * Requests are carried out when somebody calls: each call of a node first lets happen what is due.
 * A process only carries out requests of its own jetties and reaches the memory of others with
 * process_vm_readv and process_vm_writev.
 *
 * usim_table() is the fabric behind ferry's own table of calls; urma_shim.c is the same fabric
 * behind the URMA interface. Any thread; one lock.
 */
#ifndef FERRY_TESTS_SIM_URMA_SIM_H
#define FERRY_TESTS_SIM_URMA_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "foreign/urma.h"

struct usim;

#define USIM_NODES_MAX   8
#define USIM_DEVICES_MAX 16
#define USIM_EIDS_MAX    4
#define USIM_PORTS_MAX   2

#define USIM_FAULT_TABLE(X)                                                                        \
    X(DROP_COMPLETION, "drop_completion")     /* carried out, never reported */                    \
    X(DOUBLE_COMPLETION, "double_completion") /* reported twice */                                 \
    X(LATE_COMPLETION, "late_completion")     /* reported long after, its jetty may be gone */     \
    X(POISON_STATUS, "unknown_status")        /* a status that nobody knows */                     \
    X(ACK_TIMEOUT, "link_loss")               /* no answer: what was done is not known */          \
    X(LATE_WRITE, "late_write")               /* no answer, and the bytes land afterwards */       \
    X(REM_OPERATION, "rem_operation")         /* the remote device refuses */                      \
    X(LOC_OPERATION, "loc_operation")         /* the local device refuses */                       \
    X(LOC_ACCESS, "loc_access")                                                                    \
    X(DATA_POISON, "data_poison")                                                                  \
    X(ELSEWHERE_DELAY, "link_delay") /* far slower than usual */                                   \
    X(REPEAT_MOVE, "retransmission") /* the bytes move twice */                                    \
    X(NO_EVENT, "no_event")          /* a jetty's failure is not told by an event */               \
    X(FLUSH_MIDDLE, "flush_middle")  /* the jetty goes into error by itself */                     \
    X(EARLY_MARKER, "early_marker")  /* before completions that belong before it */                \
    X(LATE_MARKER, "late_marker")                                                                  \
    X(MISSING_MARKER, "missing_marker")                                                            \
    X(DOUBLE_MARKER, "dup_marker")                                                                 \
    X(POLL_NEGATIVE, "poll_negative") /* completions are lost in a poll */                         \
    X(CQ_OVERFLOW, "cq_overflow")     /* the queue breaks */                                       \
    X(POST_PREFIX, "post_prefix")     /* some of a list are accepted */                            \
    X(POST_UNKNOWN, "post_unknown")   /* an error that does not say what was accepted */           \
    X(POST_FULL, "sq_full")                                                                        \
    X(BUSY_CTX, "busy_destroy_ctx")                                                                \
    X(BUSY_CQ, "busy_destroy_cq")                                                                  \
    X(BUSY_JETTY, "busy_destroy_jetty")                                                            \
    X(BUSY_UNBIND, "busy_unbind")                                                                  \
    X(BUSY_SEG, "busy_destroy_seg")                                                                \
    X(BUSY_IMPORT, "busy_release")                                                                 \
    X(CREATE_CTX, "create_fail_ctx")                                                               \
    X(CREATE_CQ, "create_fail_cq")                                                                 \
    X(CREATE_JETTY, "create_fail_jetty")                                                           \
    X(CREATE_SEG, "create_fail_seg")                                                               \
    X(CREATE_IMPORT, "import_fail")                                                                \
    X(BIND_FAIL, "bind_fail")                                                                      \
    X(BIND_EXISTS, "bind_eexist")                                                                  \
    X(MODIFY_FAIL, "modify_fail")                                                                  \
    X(PORT_DOWN, "port_down") /* by usim_port() and friends, counted */                            \
    X(PORT_UP, "port_up")                                                                          \
    X(EID_CHANGE, "eid_change")                                                                    \
    X(DEVICE_FATAL, "device_fatal")                                                                \
    X(DEVICE_RESET, "device_reset")                                                                \
    X(PEER_KILL, "peer_crash")                                                                     \
    X(STALE_SEGMENT, "stale_segment") /* a request named a range that is gone */                   \
    X(TOKEN_MISMATCH, "token_mismatch")                                                            \
    X(RANGE_ERROR, "range_error")                                                                  \
    X(ACCESS_DENIED, "access_denied")                                                              \
    X(NOT_BOUND, "not_bound") /* the remote jetty is gone, in error or bound elsewhere */          \
    X(ID_REUSE, "id_reuse")   /* a jetty got an id that was used before */

enum usim_fault {
#define USIM_FAULT_ENUM(name, text) USIM_##name,
    USIM_FAULT_TABLE(USIM_FAULT_ENUM)
#undef USIM_FAULT_ENUM
        USIM_FAULT_COUNT,
};

struct usim_options {
    uint64_t seed;
    const struct ferry_clock *clock; /* NULL: the system's */
    const char *path;                /* a file that several processes share; NULL: this process */
    bool attach;                     /* the file is there already */
};

/* NULL without memory or file. */
struct usim *usim_open(const struct usim_options *options);
/* The file stays. */
void usim_close(struct usim *sim);

struct usim_device_spec {
    const char *name;
    const char *path;     /* in a made-up sysfs; NULL: none */
    uint32_t ports;       /* 0: bonding, the provider does not say */
    uint64_t bytes_per_s; /* 0: instantly */
    uint64_t latency_ns;  /* one way */
    uint64_t jitter_ns;
    uint64_t segment_bytes_max; /* 0: no limit */
    uint64_t request_bytes_max; /* 0: 4 MiB */
    uint32_t jetty_depth_max;   /* 0: 256 */
    bool limits_unknown;        /* capabilities are all zero */
    uint32_t first_eid;         /* sparse: the slot that has the first EID */
    bool rtp_only;
    bool container_eid; /* opening the first EID fails */
};

/* A host. Its devices' objects are gone after usim_node_kill(); devices and EIDs stay. */
uint32_t usim_node_add(struct usim *sim);
uint32_t usim_device_add(struct usim *sim, uint32_t node, const struct usim_device_spec *spec);
void usim_node_kill(struct usim *sim, uint32_t node);

void usim_port(struct usim *sim, uint32_t device, uint32_t port, bool up);
/* 4 is ACTIVE, 5 ACTIVE_DEFER; see urma_port_state. */
void usim_port_state(struct usim *sim, uint32_t device, uint32_t port, uint32_t state);
void usim_eid_change(struct usim *sim, uint32_t device);
/* Nothing on it works or ends any more until reset; then its contexts can be closed. */
void usim_device_fatal(struct usim *sim, uint32_t device);
void usim_device_reset(struct usim *sim, uint32_t device);
/* The device vanishes from the list, or comes back. */
void usim_device_present(struct usim *sim, uint32_t device, bool present);

/* The chance of a fault from now on, in a million. */
void usim_chance(struct usim *sim, enum usim_fault fault, uint32_t chance);
/* The next @count chances of a fault, after @skip, fire whatever the chance is. */
void usim_script(struct usim *sim, enum usim_fault fault, uint32_t skip, uint32_t count);
uint64_t usim_fault_fired(const struct usim *sim, enum usim_fault fault);
const char *usim_fault_name(enum usim_fault fault);
uint64_t usim_random(struct usim *sim);

/* When something next happens by itself; FERRY_NEVER_NS if nothing will. */
uint64_t usim_next_ns(struct usim *sim);
/* Let happen what is due, for all nodes of this process. */
void usim_run(struct usim *sim);

/* What is alive, what was ever made, and what was done against the rules. */
struct usim_audit {
    uint32_t contexts, queues, jetties, segments, imports;
    uint64_t made, gone; /* objects of all kinds */
    uint32_t events_unacked;
    uint32_t requests; /* posted and not yet reported, flushed or scrubbed */
    uint64_t violations;
    char violation[160]; /* the first one */
    uint64_t posts, moves, moved_bytes;
    uint64_t posts_in_error; /* accepted by a jetty that was in error */
};
void usim_audit(struct usim *sim, uint32_t node, struct usim_audit *audit_out);

/*
 * ferry's table over the fabric. open() takes the address of one of these as `self`.
 */
struct usim_host {
    struct usim *sim;
    uint32_t node;
};
const struct ferry_urma_ops *usim_table(void);

/*
 * The URMA interface over the fabric, in one process: calls concern this host. urma_init() fails as
 * without a provider while there is none.
 */
void usim_shim_host(const struct usim_host *host);
/* Somebody else has initialised the library before us. */
void usim_shim_foreign_init(bool on);
/* Calls of urma_uninit() that succeeded. */
uint32_t usim_shim_uninits(void);
/* ferry's table by way of src/foreign/urma_native.c and the URMA interface. */
const struct ferry_urma_ops *usim_native_table(void);

/*
 * What a shared object made of these files reads: "PATH:NODE" in URMA_SIM, and whether to go
 * by way of the URMA interface in URMA_SIM_NATIVE.
 */
#define USIM_VARIABLE        "URMA_SIM"
#define USIM_VARIABLE_NATIVE "URMA_SIM_NATIVE"

#endif
