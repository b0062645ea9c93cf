/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the runtime and one transport.
 *
 * transport.c is the only file that calls through `struct ferry_transport_ops`; it checks what is
 * promised below on both sides of every call. The registry (registry.c) merges each table over
 * typed "unsupported" defaults, so no pointer is NULL after registration.
 *
 *   open -> { add_buffer .. remove_buffer | describe | target_open -> submit* -> target_close |
 *             bootstrap | revoke | report }* -> quiesce -> close
 *
 * The runtime decides which transport serves a request; choice and health of paths within a
 * transport belong to the transport. A transport never calls into another transport.
 */
#ifndef FERRY_TRANSPORT_TRANSPORT_H
#define FERRY_TRANSPORT_TRANSPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/batch.h>
#include <ferry/memory.h>
#include <ferry/status.h>

#include "base/clock.h"
#include "base/list.h"
#include "reactor/worker.h"

struct ferry_access_control;
struct ferry_config;
struct ferry_document;
struct ferry_lease;
struct ferry_net;
struct ferry_option_table;
struct ferry_peer_channel;
struct ferry_registry;
struct ferry_registry_buffer;
struct ferry_transport;
struct ferry_target;
struct ferry_urma_seam;
struct ferry_xfer;
struct json_object;

#define FERRY_TRANSPORT_OPS_VERSION 1

/* The 128-bit identity of one life of an engine, as 32 lower-case hex digits and a NUL. */
#define FERRY_INCARNATION_TEXT_SIZE 33

/* Capabilities. A set bit requires the op it names. */
#define FERRY_CAP_DRAM      (1u << 0) /* memory to memory between processes */
#define FERRY_CAP_LOCAL     (1u << 1) /* serves the engine's own segment */
#define FERRY_CAP_CANCEL    (1u << 2) /* cancel */
#define FERRY_CAP_REVOKE    (1u << 3) /* revoke */
#define FERRY_CAP_DECORATOR (1u << 4) /* wraps another transport (fault) */
#define FERRY_CAP_VECTOR    (1u << 5) /* xfers with pieces; without it the runtime splits them */
#define FERRY_CAP_FILE      (1u << 6) /* files_open: serves file segments; takes length 0 */
#define FERRY_CAP_SHARED    (1u << 7) /* gives memory that the engine allocated to peers, by fd */

/* What a transport may use of its engine. Lives as long as the transport. */
struct ferry_transport_env {
    const struct ferry_config *config;
    const struct ferry_clock *clock;
    struct ferry_random *random;
    struct ferry_registry *registry;
    const char *segment_name;   /* own */
    const char *incarnation;    /* own, 32 hex digits */
    const char *advertise_host; /* the address at which peers reach this engine, never a wildcard */
    struct ferry_spin_budget *budget;
    struct ferry_peer_channel *channel;  /* to the same transport of a peer; NULL: there is none */
    struct ferry_access_control *access; /* what peers have to prove; NULL: nothing */
    /* Seams for the model rig; NULL and false in production. */
    struct ferry_net *net;
    const struct ferry_reactor_ops *reactor_ops;
    const struct ferry_urma_seam *urma; /* ub: instead of the built-in adapter */
    bool threadless;
    void (*step)(void *arg); /* threadless: let time pass while a call waits */
    void *step_arg;
};

/*
 * One request on its way through a transport. It is part of the runtime's task; the transport owns
 * it from a successful submit() until it calls ferry_xfer_end().
 */
typedef void ferry_xfer_ended_fn(struct ferry_xfer *xfer);

/* One piece of a vectored xfer. The array is the runtime's and constant, but for `own`. */
struct ferry_xfer_piece {
    unsigned char *local;
    uint64_t length; /* > 0 */
    uint64_t offset; /* of its first byte in the whole; ascending, without gaps */
    uint64_t remote_addr;
    uint64_t own; /* the transport's own, between submit and end; undefined at submit */
};

struct ferry_xfer {
    /* set by the runtime, constant from submit to end */
    enum ferry_opcode opcode;
    enum ferry_priority priority;
    unsigned char *local;
    uint64_t remote_addr;
    uint64_t length; /* > 0, the sum of all pieces; FERRY_CAP_FILE: 0 is allowed, moves nothing */
    struct ferry_xfer_piece *pieces; /* NULL: a single range, as above; else the two are NULL, 0 */
    uint32_t piece_count;            /* 0 without pieces */
    struct ferry_target *target;
    const struct ferry_xfer *whole; /* NULL, or the xfer of which the runtime made this a part */
    uint64_t deadline_ns;           /* FERRY_NO_DEADLINE */
    ferry_xfer_ended_fn *ended;
    /*
     * the runtime's lease on the local memory. A transport whose device cannot be fenced in time
     * shares it before the end and gives its own back when the device is quiet: until then the
     * memory stays registered, and unregistering it answers ERR_BUSY. NULL: cannot be shared
     */
    const struct ferry_lease *lease;
    /* set by the runtime on any thread, read by the transport: someone asked for the end */
    _Atomic bool cancel_asked;
    /* set by the transport in submit(): which worker a waiter may drive; NULL if none or several */
    _Atomic(struct ferry_worker *) driver;
    /* the transport's own, between submit and end */
    void *transport_data;
    /*
     * set by the transport before an end with ERR_PEER_GONE, ERR_NOT_MAPPED or ERR_UNSUPPORTED: no
     * byte was applied (a READ never is), so the whole request may be submitted again, after the
     * first two on a newer description, after the last over another transport
     */
    bool unapplied;
    /* set by the transport before an end that is a failure: so many bytes from the start are known
     * to have moved; the others may or may not have */
    uint64_t moved;
    /* result, set by ferry_xfer_end() */
    enum ferry_status status;
    int32_t native;    /* errno, wire status or device code; 0 if none */
    const char *where; /* static text: the place that decided, such as "hp_tcp: progress timeout" */
};

/*
 * The transport's half of the bargain: called exactly once per accepted xfer, on any thread, under
 * no lock, when nothing of the transport, the kernel or a device can touch the local memory any
 * more. After the call the xfer is the runtime's. FERRY_OK means every byte was moved. May be
 * called before submit() has returned, but only on another thread or from a later turn.
 */
void ferry_xfer_end(struct ferry_xfer *xfer, enum ferry_status status, int32_t native,
                    const char *where);

/* Someone asked for the end of the xfer, or of the whole that it is a part of. */
static inline bool ferry_xfer_cancel_asked(const struct ferry_xfer *xfer)
{
    return atomic_load(&xfer->cancel_asked) ||
           (xfer->whole != NULL && atomic_load(&xfer->whole->cancel_asked));
}

/* Whether [addr, addr + length) touches the local memory of an xfer, or its remote range. */
bool ferry_xfer_touches_local(const struct ferry_xfer *xfer, uint64_t addr, uint64_t length);
bool ferry_xfer_touches_remote(const struct ferry_xfer *xfer, uint64_t addr, uint64_t length);

/* The piece that holds byte @offset of the whole. Given: @offset is below the sum. */
uint32_t ferry_pieces_find(const struct ferry_xfer_piece *pieces, uint32_t count, uint64_t offset);

/* What probe() says. */
struct ferry_transport_info {
    bool usable;
    char reason[160]; /* why not, in words; "" if usable */
};

/*
 * A file segment as this host sees it: backing files end to end. All strings are the caller's and
 * are copied by whoever keeps them.
 */
struct ferry_file_part {
    const char *path;     /* absolute; NULL: this host has none, and `problem` says why */
    const char *problem;  /* for people; NULL if there is a path */
    uint64_t length;      /* bytes of the segment in this file; 0 holds none */
    uint64_t file_offset; /* of its first byte in the file */
};

struct ferry_file_layout {
    const char *segment; /* name, for messages */
    const struct ferry_file_part *parts;
    uint32_t count;
};

/* The public part of every transport object; implementations embed it first. */
struct ferry_transport {
    const struct ferry_transport_ops *ops;
    const struct ferry_transport_env *env;
};

/* The public part of every target: a transport's binary view of one peer's segment, immutable. */
struct ferry_target {
    struct ferry_transport *transport;
    uint64_t max_transfer_bytes; /* of both sides; the runtime refuses larger requests */
};

/* Whether a target can be reached for a range of it, as far as is known now. */
enum ferry_reach {
    FERRY_REACH_YES = 0,
    FERRY_REACH_UNKNOWN = 1, /* the peers have not met yet; a request waits for that */
    FERRY_REACH_NO = 2,
};

#define FERRY_REACH_TEXT_SIZE 192

/* Counters of one way to one peer, since the peer was met. Strings are the caller's. */
enum ferry_path_state {
    FERRY_PATH_UNKNOWN, /* the transport does not tell */
    FERRY_PATH_UP,
    FERRY_PATH_DOWN,
};

struct ferry_path {
    const char *peer; /* segment name; "" if there is nobody behind it */
    const char *rail; /* which of the ways to that peer, or on this host */
    enum ferry_path_state state;
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t bytes_any; /* of reads and writes, where they are not told apart */
    uint64_t operations;
    uint64_t connects;
    uint64_t failures;
    uint64_t resends;
};

typedef void ferry_path_fn(void *arg, const struct ferry_path *path);

/* What a transport does now, and what it did for peers. */
struct ferry_transport_totals {
    uint64_t inflight_requests;
    uint64_t inflight_bytes;
    uint64_t peers;
    uint64_t served_operations;
    uint64_t served_bytes;
};

struct ferry_transport_ops {
    uint32_t ops_version; /* FERRY_TRANSPORT_OPS_VERSION at compile time */
    const char *name;     /* [a-z0-9_]+, unique, static storage */
    int wire_id;          /* the number in published documents; -1: never published */
    uint32_t caps;        /* FERRY_CAP_* */
    const struct ferry_option_table *options; /* its settings, or NULL */
    /* More tables, NULL-terminated, for parts that have a section of their own; or NULL. */
    const struct ferry_option_table *const *more_options;

    /*
     * Required. Any thread; may block and allocate. Says whether this host can use the transport. A
     * missing library or device is not an error: FERRY_OK with usable = false and a reason.
     */
    enum ferry_status (*probe)(const struct ferry_config *config,
                               struct ferry_transport_info *info_out);

    /*
     * Required. One thread; may block and allocate. Starts workers and listeners.
     * Errors: ERR_CONFIG, ERR_INVALID (an address), ERR_LIMIT, ERR_NO_MEMORY, ERR_IO; nothing
     * stays.
     */
    enum ferry_status (*open)(const struct ferry_transport_env *env,
                              struct ferry_transport **transport_out);

    /*
     * Required. One thread; blocks, bounded. Admits no more (submit: ERR_CLOSING) and ends
     * everything that is running with ERR_CLOSING; a WRITE that may have landed:
     * ERR_OUTCOME_UNKNOWN. Serves peers no longer. When it returns no xfer is open and nothing
     * touches registered memory.
     */
    void (*quiesce)(struct ferry_transport *transport);

    /*
     * Required. One thread; blocks, bounded. Frees the transport.
     * Given: quiesce() has returned, and every target is closed.
     */
    void (*close)(struct ferry_transport *transport);

    /*
     * Optional (wire_id >= 0). Any thread; may allocate. The attribute string (JSON text) that the
     * local segment publishes for this transport, malloc'd. Default: none.
     */
    enum ferry_status (*describe)(struct ferry_transport *transport, char **attr_out);

    /*
     * Optional. The same per buffer. Not called for buffers that are local only.
     */
    enum ferry_status (*describe_buffer)(struct ferry_transport *transport,
                                         uint64_t registration_id, enum ferry_permission permission,
                                         char **attr_out);

    /*
     * Optional. Any thread; may block and allocate. A range was registered and will be used by this
     * engine's requests, and by peers if its permission says so. Comes before any of them, and
     * again without need for a range that is known.
     * Errors: the registration is taken back: ERR_DEVICE, ERR_LIMIT, ERR_NO_MEMORY,
     * ERR_UNSUPPORTED; nothing of the range stays.
     */
    enum ferry_status (*add_buffer)(struct ferry_transport *transport,
                                    const struct ferry_registry_buffer *buffer);

    /*
     * Optional. Any thread; may block and allocate, bounded by @deadline_ns. The range goes: when
     * this returns FERRY_OK nothing of the transport and no peer through it reaches the range.
     * Harmless for one that is not known.
     * Given:  no xfer is open on it.
     * Errors: ERR_BUSY, a device does not let go: the range stays hidden; called again, it goes on.
     */
    enum ferry_status (*remove_buffer)(struct ferry_transport *transport, uint64_t registration_id,
                                       uint64_t deadline_ns);

    /*
     * Optional. Any thread, mostly the control server's: must not wait for a peer. What the same
     * transport of a peer says over the channel (transport_env.channel); the answer, JSON text
     * malloc'd, in *reply_out.
     * Errors: ERR_PROTOCOL (malformed), and any status that the peer should see.
     */
    enum ferry_status (*bootstrap)(struct ferry_transport *transport, const char *text, size_t len,
                                   char **reply_out);

    /*
     * Required. Any thread; may allocate; must not block on the network. Builds the binary view of
     * a peer's segment from its document. @doc may be changed or freed after the call. Errors:
     * ERR_UNSUPPORTED (the peer does not offer this transport), ERR_METADATA (its attributes are
     * malformed; the text says which), ERR_REFUSED (access control is on, and the peer's form of
     * this transport can prove nothing), ERR_NO_MEMORY.
     */
    enum ferry_status (*target_open)(struct ferry_transport *transport,
                                     const struct ferry_document *doc,
                                     struct ferry_target **target_out);

    /*
     * Optional (FERRY_CAP_FILE). Any thread; may allocate; must not block on a file system. The
     * view of a file segment; files are opened when a request first needs them. Errors: ERR_INVALID
     * (the lengths do not add up), ERR_UNSUPPORTED, ERR_LIMIT, ERR_NO_MEMORY.
     */
    enum ferry_status (*files_open)(struct ferry_transport *transport,
                                    const struct ferry_file_layout *layout,
                                    struct ferry_target **target_out);

    /* Required. Any thread. Given: every xfer on the target has ended. */
    void (*target_close)(struct ferry_target *target);

    /*
     * Optional. Any thread; may block shortly. What this transport last had to say about the way to
     * the peer, such as addresses tried and the reason of each; "" if nothing. Default: "".
     */
    void (*target_explain)(struct ferry_target *target, char *buf, size_t buf_len);

    /*
     * Optional. Any thread; must not block, must not allocate. Whether requests on
     * [remote_addr, remote_addr + length) of the target can be served. Unless YES, and if @why is
     * not NULL, it is told the reason in words (FERRY_REACH_TEXT_SIZE bytes). A range that the
     * target does not have is not a reason: such a request ends with ERR_RANGE. A request that is
     * submitted all the same ends with ERR_UNSUPPORTED and `unapplied`. Default: YES.
     */
    enum ferry_reach (*target_reach)(struct ferry_target *target, uint64_t remote_addr,
                                     uint64_t length, char *why);

    /*
     * Required. Any thread; must not block, must not allocate. All or nothing.
     * Given:   every xfer is valid, its local ranges are leased by the runtime, all targets are
     * this transport's; pieces only with FERRY_CAP_VECTOR. Ensures: on FERRY_OK each xfer ends
     * exactly once through ferry_xfer_end(), never from inside this call on this thread. On failure
     * none was taken and none ends. Errors:  ERR_QUEUE_FULL is back-pressure. ERR_CLOSING. Ranges
     * that the target does not have are not errors here: such an xfer ends with ERR_RANGE or
     * ERR_PERMISSION.
     */
    enum ferry_status (*submit)(struct ferry_transport *transport, struct ferry_xfer *const *xfers,
                                uint32_t count);

    /*
     * Optional (FERRY_CAP_CANCEL). Any thread; must not block. Best effort and silent: asks that
     * the xfer, whose cancel_asked is set, end soon. It still ends exactly once. The caller
     * guarantees that the xfer's memory stays valid during the call, even if it ends meanwhile.
     * Without FERRY_CAP_VECTOR it may be the whole of which only parts were submitted: look for
     * those by ferry_xfer_cancel_asked().
     */
    void (*cancel)(struct ferry_transport *transport, struct ferry_xfer *xfer);

    /*
     * Optional (FERRY_CAP_REVOKE). Any thread, not a worker; blocks, bounded by @deadline_ns. Close
     * the connections whose operations still touch [addr, addr + length), as source, destination or
     * served memory, and end the queued xfers on it; return when their callbacks have retired.
     * Errors: ERR_BUSY (a device could not be fenced).
     */
    enum ferry_status (*revoke)(struct ferry_transport *transport, const void *addr,
                                uint64_t length, uint64_t deadline_ns);

    /*
     * Optional. Any thread; may block and allocate. Adds this transport's state and counters to a
     * JSON object: {"reactor", "workers": [...], "peers": [{"name", "lanes": [...]}], ...}.
     */
    void (*report)(struct ferry_transport *transport, struct json_object *object);

    /*
     * Optional. Any thread; may take a lock, and calls @fn under it, once for every path; must not
     * block otherwise, must not allocate. The same path may come several times. @totals is zeroed
     * by the caller. Default: nothing to tell.
     */
    void (*measure)(struct ferry_transport *transport, struct ferry_transport_totals *totals,
                    ferry_path_fn *fn, void *arg);
};

/* transport.c: the single caller. Same contracts, checked. */
enum ferry_status ferry_transport_probe(const struct ferry_transport_ops *ops,
                                        const struct ferry_config *config,
                                        struct ferry_transport_info *info_out);
enum ferry_status ferry_transport_open(const struct ferry_transport_ops *ops,
                                       const struct ferry_transport_env *env,
                                       struct ferry_transport **transport_out);
void ferry_transport_quiesce(struct ferry_transport *transport);
void ferry_transport_close(struct ferry_transport *transport);
enum ferry_status ferry_transport_describe(struct ferry_transport *transport, char **attr_out);
enum ferry_status ferry_transport_describe_buffer(struct ferry_transport *transport,
                                                  uint64_t registration_id,
                                                  enum ferry_permission permission,
                                                  char **attr_out);
enum ferry_status ferry_transport_add_buffer(struct ferry_transport *transport,
                                             const struct ferry_registry_buffer *buffer);
enum ferry_status ferry_transport_remove_buffer(struct ferry_transport *transport,
                                                uint64_t registration_id, uint64_t deadline_ns);
enum ferry_status ferry_transport_bootstrap(struct ferry_transport *transport, const char *text,
                                            size_t len, char **reply_out);
enum ferry_status ferry_transport_target_open(struct ferry_transport *transport,
                                              const struct ferry_document *doc,
                                              struct ferry_target **target_out);
enum ferry_status ferry_transport_files_open(struct ferry_transport *transport,
                                             const struct ferry_file_layout *layout,
                                             struct ferry_target **target_out);
void ferry_transport_target_close(struct ferry_target *target);
void ferry_transport_target_explain(struct ferry_target *target, char *buf, size_t buf_len);
/* @why: NULL, or FERRY_REACH_TEXT_SIZE bytes; "" if YES. */
enum ferry_reach ferry_transport_target_reach(struct ferry_target *target, uint64_t remote_addr,
                                              uint64_t length, char *why);
enum ferry_status ferry_transport_submit(struct ferry_transport *transport,
                                         struct ferry_xfer *const *xfers, uint32_t count);
void ferry_transport_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer);
enum ferry_status ferry_transport_revoke(struct ferry_transport *transport, const void *addr,
                                         uint64_t length, uint64_t deadline_ns);
void ferry_transport_report(struct ferry_transport *transport, struct json_object *object);
void ferry_transport_measure(struct ferry_transport *transport,
                             struct ferry_transport_totals *totals_out, ferry_path_fn *fn,
                             void *arg);

/* registry.c: the list of transports of this build, merged tables. */
#define FERRY_TRANSPORTS_MAX 16

uint32_t ferry_transports(const struct ferry_transport_ops **ops_out /* [FERRY_TRANSPORTS_MAX] */);
/* NULL if this build has none of that name. */
const struct ferry_transport_ops *ferry_transport_find(const char *name);
/* Merge @ops over the defaults into @merged_out; ERR_INTERNAL if caps and ops disagree. */
enum ferry_status ferry_transport_ops_merge(const struct ferry_transport_ops *ops,
                                            struct ferry_transport_ops *merged_out);

#endif
