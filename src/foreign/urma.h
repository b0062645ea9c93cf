/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of native UB calls: what the UB transport may ask of a URMA implementation, one entry a
 * call, and nothing else. No scheduling, retry, credit, health or thread lives behind it; it
 * translates. urma_native.c implements it over liburma, a simulated fabric in the tests implements
 * it too. urma.c is the only file that calls through it.
 *
 * Ownership, for every call: on success a new object belongs to the caller until its destroying
 * call has succeeded; on failure nothing was made. A destroying call takes the address of the
 * handle and sets it NULL only when the native object is gone; on failure the handle stays valid
 * and the call may be repeated; a NULL handle is success. Nothing here waits for a peer.
 *
 * What has to be gone before what:
 *
 *   jetty: set_error, poll until its marker, flush until 0, disconnect, destroy
 *   rmem, mem: after every request that names them has been reported or flushed
 *   cq: after every jetty on it
 *   ctx: after every cq, mem and rmem on it, and every event was fetched
 *   runtime: after every ctx
 *
 * Threads: calls on different objects may run at the same time. Calls on one object may not, but
 * for cq_poll against jetty_post. set_error, flush, disconnect and destroy of a jetty must not
 * overlap a post to it: the caller's gate. Calls marked "data path" do not block and do not
 * allocate; all others may enter the kernel, take milliseconds and allocate.
 */
#ifndef FERRY_FOREIGN_URMA_H
#define FERRY_FOREIGN_URMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#define FERRY_URMA_OPS_VERSION 1
#define FERRY_URMA_EID_SIZE    16
#define FERRY_URMA_NAME_SIZE   64
#define FERRY_URMA_PATH_SIZE   256
#define FERRY_URMA_TAIL_MAX    64 /* opaque bytes that a provider appends to what peers need */
#define FERRY_URMA_POST_MAX    64 /* requests of one post */
#define FERRY_URMA_POLL_MAX    64 /* completions of one poll */
#define FERRY_URMA_ROWS_MAX    64 /* (device, EID) pairs of one host */

/* What is affected by a failure: the largest thing that cannot be used as before. */
enum ferry_urma_class {
    FERRY_URMA_OK = 0,
    FERRY_URMA_BUSY, /* a queue is full, or an object is still used; nothing changed: again later */
    FERRY_URMA_DEVICE,   /* the local device or context */
    FERRY_URMA_PATH,     /* the way to the remote device */
    FERRY_URMA_ENDPOINT, /* this jetty and its peer; a new pair may work */
    FERRY_URMA_MEMORY,   /* the ranges, tokens or permissions named; no other path would help */
    FERRY_URMA_TIMEOUT,  /* no answer in time: what happened is not known */
    FERRY_URMA_FLUSHED,  /* collateral: taken back because its jetty is in error */
    FERRY_URMA_CALLER,   /* an argument or an order of calls was wrong: a defect of ours */
    FERRY_URMA_UNKNOWN,  /* nothing is known of the outcome: fence before anything else */
    FERRY_URMA_CLASS_COUNT,
};

struct ferry_urma_status {
    enum ferry_urma_class class;
    int32_t native; /* the provider's own number; 0 if there is none */
};

/* Opaque; each implementation has its own objects behind them. */
struct ferry_urma_runtime;
struct ferry_urma_ctx;
struct ferry_urma_cq;
struct ferry_urma_mem;
struct ferry_urma_rmem;
struct ferry_urma_jetty;

/* Limits of a device; 0: the provider does not say. */
struct ferry_urma_caps {
    uint32_t jetty_max;
    uint32_t jetty_depth_max;
    uint32_t cq_depth_max;
    uint32_t sge_max;
    uint64_t read_bytes_max;  /* of one request */
    uint64_t write_bytes_max; /* of one request */
    uint64_t segment_bytes_max;
    uint32_t trans_modes; /* bits: 1 RM, 2 RC, 4 UM */
    uint32_t features;
    uint16_t priority_rtp; /* bit per priority that carries this kind of transport path */
    uint16_t priority_ctp;
};

/* One row per (device, EID): a device with three EIDs is there three times. */
struct ferry_urma_device {
    char name[FERRY_URMA_NAME_SIZE];
    char path[FERRY_URMA_PATH_SIZE]; /* in sysfs; "" if the provider has none */
    uint32_t device_index;
    uint32_t eid_index; /* sparse */
    uint8_t eid[FERRY_URMA_EID_SIZE];
    uint32_t port_count;   /* 0: the provider does not say; then it counts as active */
    uint32_t ports_active; /* ACTIVE or ACTIVE_DEFER */
    uint64_t speed_mbit;   /* sum of its ports; 0 unknown */
    struct ferry_urma_caps caps;
};

enum ferry_urma_aggregation {
    FERRY_URMA_AGGREGATE_LEAVE = 0, /* what the device does by itself */
    FERRY_URMA_AGGREGATE_STANDALONE,
    FERRY_URMA_AGGREGATE_ACTIVE_BACKUP,
    FERRY_URMA_AGGREGATE_BALANCE,
};

struct ferry_urma_ctx_options {
    const char *name;
    uint32_t eid_index;
    uint8_t eid[FERRY_URMA_EID_SIZE]; /* must still be in that slot */
    enum ferry_urma_aggregation aggregation;
};

struct ferry_urma_ctx_info {
    uint8_t eid[FERRY_URMA_EID_SIZE];
    uint32_t uasid;
    int async_fd; /* readable when event_next() has something; -1 if there is none */
};

struct ferry_urma_ctx_state {
    uint32_t port_count;
    uint32_t ports_active;
    bool eid_valid; /* the EID that the context was opened with is still in its slot */
};

enum ferry_urma_event_kind {
    FERRY_URMA_EVENT_NONE = 0, /* nothing is there */
    FERRY_URMA_EVENT_CQ,       /* a completion queue broke: every jetty on it is lost */
    FERRY_URMA_EVENT_JETTY,    /* jetty_id: its jetty is in error */
    FERRY_URMA_EVENT_RECEIVE,  /* a receive queue broke */
    FERRY_URMA_EVENT_PORT,     /* a port went up or down: look with ctx_refresh() */
    FERRY_URMA_EVENT_FATAL,    /* the device is dead; its contexts will not work again */
    FERRY_URMA_EVENT_EID,      /* index: an EID slot changed: look with ctx_refresh() */
    FERRY_URMA_EVENT_OTHER,    /* watermarks and what a newer provider may send: nothing to do */
};

struct ferry_urma_event {
    enum ferry_urma_event_kind kind;
    uint32_t jetty_id;
    uint64_t cq_cookie; /* of the options with which the queue was made */
    uint32_t index;     /* port or EID slot */
};

struct ferry_urma_cq_options {
    uint32_t depth;
    bool events;     /* with a descriptor to sleep on */
    uint64_t cookie; /* handed back in events */
};

enum ferry_urma_access {
    FERRY_URMA_ACCESS_LOCAL = 1, /* excludes the others */
    FERRY_URMA_ACCESS_READ = 2,
    FERRY_URMA_ACCESS_WRITE = 4, /* requires READ */
};

struct ferry_urma_mem_spec {
    void *addr;      /* not NULL */
    uint64_t length; /* > 0 */
    uint32_t access; /* FERRY_URMA_ACCESS_* */
    uint32_t token;  /* what a peer has to name; the policy is always plain text */
};

/* What a peer needs to import a registered range, besides the token. Fields, never a raw struct. */
struct ferry_urma_descriptor {
    uint8_t eid[FERRY_URMA_EID_SIZE];
    uint32_t uasid;
    uint64_t addr;
    uint64_t length;
    uint32_t attr; /* the provider's bits */
    uint32_t token_id;
    uint32_t tail_len;
    uint8_t tail[FERRY_URMA_TAIL_MAX];
};

enum ferry_urma_path_type {
    FERRY_URMA_PATH_RTP = 0,
    FERRY_URMA_PATH_CTP = 1,
};

struct ferry_urma_jetty_options {
    uint32_t depth;
    uint32_t priority;      /* 0..15 */
    uint32_t rnr_retry;     /* 0..7 */
    uint32_t error_timeout; /* 0..31: 4.096 us * 2^n */
    enum ferry_urma_path_type path_type;
    bool multi_path;
    uint64_t cookie;
};

struct ferry_urma_jetty_info {
    uint32_t id; /* not 0; the provider gives it out again after destroy */
    uint32_t uasid;
    uint32_t depth;
};

/* The peer's end, as its bootstrap message named it. */
struct ferry_urma_peer {
    uint8_t eid[FERRY_URMA_EID_SIZE];
    uint32_t uasid;
    uint32_t id;
    uint32_t token;
    enum ferry_urma_path_type path_type;
    uint32_t tail_len;
    uint8_t tail[FERRY_URMA_TAIL_MAX];
};

enum ferry_urma_opcode {
    FERRY_URMA_READ = 0,
    FERRY_URMA_WRITE = 1,
};

struct ferry_urma_request {
    enum ferry_urma_opcode opcode;
    uint64_t token; /* not 0; comes back with the completion; never used twice */
    struct ferry_urma_mem *mem;
    void *local;
    struct ferry_urma_rmem *rmem;
    uint64_t remote;
    uint32_t length; /* > 0 */
};

struct ferry_urma_post_result {
    uint32_t accepted; /* leading requests that will be reported */
    bool known;        /* false: which of the others were accepted is not known */
};

/* Whether the request was carried out. */
enum ferry_urma_executed {
    FERRY_URMA_EXECUTED_UNKNOWN = 0,
    FERRY_URMA_EXECUTED_YES,
    FERRY_URMA_EXECUTED_NO, /* not one byte was touched: always safe to repeat */
};

enum ferry_urma_completion_kind {
    FERRY_URMA_RESULT = 0, /* of one request, by its token */
    FERRY_URMA_DRAINED,    /* marker: jetty_id has no request in the hardware any more */
    FERRY_URMA_SUSPENDED,  /* marker */
};

struct ferry_urma_completion {
    enum ferry_urma_completion_kind kind;
    struct ferry_urma_status status;
    enum ferry_urma_executed executed;
    uint64_t token; /* of a RESULT only: markers carry whatever was in memory */
    uint32_t jetty_id;
    uint32_t bytes;
};

typedef void ferry_urma_log_fn(void *arg, int level, const char *text);

struct ferry_urma_open_options {
    void *self;             /* whatever the implementation needs; liburma: NULL */
    ferry_urma_log_fn *log; /* the provider's messages; NULL drops them */
    void *log_arg;
};

struct ferry_urma_ops {
    uint32_t ops_version; /* FERRY_URMA_OPS_VERSION at compile time */
    const char *name;     /* static text: "liburma", "simulator" */

    /*
     * 1. Initialise the library for this process. A library that somebody else initialised is
     * shared and never uninitialised by us; our own users are counted. DEVICE: there is no library
     * or no provider.
     */
    struct ferry_urma_status (*open)(const struct ferry_urma_open_options *options,
                                     struct ferry_urma_runtime **runtime_out);
    /* 2. Given: every context is closed. BUSY while one lives; the last user uninitialises. */
    struct ferry_urma_status (*close)(struct ferry_urma_runtime **runtime);
    /* 3. Sizes and features of the ABI that this was compiled against, for logs and reports. */
    void (*fingerprint)(struct ferry_urma_runtime *runtime, char *buf, size_t size);
    /*
     * 4. All (device, EID) pairs now. No row is not an error. No handle survives a call of this
     * one, since a scan frees the objects of devices that have vanished: rows carry names.
     * DEVICE: the list cannot be read.
     */
    struct ferry_urma_status (*list_devices)(struct ferry_urma_runtime *runtime,
                                             struct ferry_urma_device *rows, uint32_t capacity,
                                             uint32_t *count_out);
    /*
     * 5. Open one (device, EID). The name is resolved anew and the EID must still be in its slot.
     * DEVICE: no such device, another EID, or the provider refuses (an EID that belongs to a
     * container does): try another row.
     */
    struct ferry_urma_status (*ctx_open)(struct ferry_urma_runtime *runtime,
                                         const struct ferry_urma_ctx_options *options,
                                         struct ferry_urma_ctx **ctx_out);
    /* 6. Fields; does not fail. */
    void (*ctx_info)(struct ferry_urma_ctx *ctx, struct ferry_urma_ctx_info *info_out);
    /* 7. Ask the device for its ports and EIDs. DEVICE: it does not answer. */
    struct ferry_urma_status (*ctx_refresh)(struct ferry_urma_ctx *ctx,
                                            struct ferry_urma_ctx_state *state_out);
    /* 8. BUSY while a cq, mem, rmem or jetty lives on it. */
    struct ferry_urma_status (*ctx_close)(struct ferry_urma_ctx **ctx);
    /*
     * 9. Data path. Fetch one asynchronous event, copy what it says and acknowledge it at once, so
     * that no destroy ever waits for an acknowledgement. NONE when there is none.
     */
    struct ferry_urma_status (*event_next)(struct ferry_urma_ctx *ctx,
                                           struct ferry_urma_event *event_out);

    /*
     * 10. A completion queue with the receive queues that jetties on it share. depth must cover
     * every request that may be outstanding plus one marker a jetty: an overflow loses completions
     * and breaks the queue. CALLER: depth over the device's; DEVICE: resources.
     */
    struct ferry_urma_status (*cq_create)(struct ferry_urma_ctx *ctx,
                                          const struct ferry_urma_cq_options *options,
                                          struct ferry_urma_cq **cq_out);
    /* 11. The descriptor to sleep on; -1 if made without events. */
    int (*cq_fd)(struct ferry_urma_cq *cq);
    /* 12. Data path. The next completion makes cq_fd() readable. Poll once after arming. */
    struct ferry_urma_status (*cq_arm)(struct ferry_urma_cq *cq);
    /* 13. Data path. Take and acknowledge what made cq_fd() readable. Before the next arming. */
    struct ferry_urma_status (*cq_ack_events)(struct ferry_urma_cq *cq, uint32_t *count_out);
    /*
     * 14. Data path. At most @capacity (1..FERRY_URMA_POLL_MAX) completions of any jetty on it,
     * markers among them, in *count_out of @out. A status other than OK means that completions were
     * lost: what could be saved is in @out all the same, and every jetty on the queue has to be
     * fenced.
     */
    struct ferry_urma_status (*cq_poll)(struct ferry_urma_cq *cq, struct ferry_urma_completion *out,
                                        uint32_t capacity, uint32_t *count_out);
    /* 15. Given: no jetty on it. BUSY otherwise, or while the provider is; parts that are gone are
     * remembered. */
    struct ferry_urma_status (*cq_destroy)(struct ferry_urma_cq **cq);

    /* 16. Register a range. MEMORY: the provider refuses it; CALLER: access bits that exclude each
     * other. */
    struct ferry_urma_status (*mem_register)(struct ferry_urma_ctx *ctx,
                                             const struct ferry_urma_mem_spec *spec,
                                             struct ferry_urma_mem **mem_out);
    /* 17. Does not fail. The descriptor is good until the range is unregistered. */
    void (*mem_export)(struct ferry_urma_mem *mem, struct ferry_urma_descriptor *descriptor_out);
    /*
     * 18. From success on no peer and no request of ours reaches the range. BUSY: somebody does
     * still.
     */
    struct ferry_urma_status (*mem_unregister)(struct ferry_urma_mem **mem);
    /*
     * 19. A handle for a peer's range. A wrong or outdated descriptor is not noticed here but when
     * a request names it. MEMORY: malformed.
     */
    struct ferry_urma_status (*rmem_import)(struct ferry_urma_ctx *ctx,
                                            const struct ferry_urma_descriptor *descriptor,
                                            uint32_t token, uint32_t access,
                                            struct ferry_urma_rmem **rmem_out);
    /* 20. Given: no request that names it is outstanding. BUSY otherwise. */
    struct ferry_urma_status (*rmem_release)(struct ferry_urma_rmem **rmem);

    /* 21. A jetty in mode RC that reports to @cq. CALLER, DEVICE (resources). */
    struct ferry_urma_status (*jetty_create)(struct ferry_urma_ctx *ctx, struct ferry_urma_cq *cq,
                                             const struct ferry_urma_jetty_options *options,
                                             struct ferry_urma_jetty **jetty_out);
    /* 22. Fields; does not fail. */
    void (*jetty_info)(struct ferry_urma_jetty *jetty, struct ferry_urma_jetty_info *info_out);
    /*
     * 23. Import the peer's jetty and bind to it. Both ends have to do so before either posts.
     * After a failure the jetty is as before, or keeps a part that jetty_disconnect() takes back.
     * PATH: the peer cannot be reached; ENDPOINT: bound elsewhere; CALLER.
     */
    struct ferry_urma_status (*jetty_connect)(struct ferry_urma_jetty *jetty,
                                              const struct ferry_urma_peer *peer);
    /*
     * 24. Data path. Given: connected; every range lies inside its mem and rmem; count is
     * 1..FERRY_URMA_POST_MAX. The leading result_out->accepted requests will each be reported once
     * through the queue; until then, or until the jetty is fenced, the device may touch their
     * memory. A jetty in error accepts requests and flushes them. BUSY: the queue is full. UNKNOWN
     * comes with known = false.
     */
    struct ferry_urma_status (*jetty_post)(struct ferry_urma_jetty *jetty,
                                           const struct ferry_urma_request *requests,
                                           uint32_t count,
                                           struct ferry_urma_post_result *result_out);
    /*
     * 25. Into the error state: nothing new is carried out. Then poll: when the DRAINED marker of
     * this jetty has come, the hardware holds none of its requests. Repeating is harmless.
     */
    struct ferry_urma_status (*jetty_set_error)(struct ferry_urma_jetty *jetty);
    /*
     * 26. Given: its marker was seen. Requests that never reached the hardware, at most @capacity
     * at a time, as completions with executed = NO or UNKNOWN; call until *count_out is 0.
     */
    struct ferry_urma_status (*jetty_flush)(struct ferry_urma_jetty *jetty,
                                            struct ferry_urma_completion *out, uint32_t capacity,
                                            uint32_t *count_out);
    /* 27. Undo connect; goes on where a failed call stopped. BUSY. */
    struct ferry_urma_status (*jetty_disconnect)(struct ferry_urma_jetty *jetty);
    /*
     * 28. Given: disconnected; no post is under way. Completions that were not polled are lost.
     * BUSY.
     */
    struct ferry_urma_status (*jetty_destroy)(struct ferry_urma_jetty **jetty);
};

/* An implementation in use. */
struct ferry_urma {
    const struct ferry_urma_ops *ops;
    struct ferry_urma_runtime *runtime;
};

/* What tests put in the place of the built-in implementation. */
struct ferry_urma_seam {
    const struct ferry_urma_ops *ops;
    void *self;
};

/* The name of a class, such as "device". */
const char *ferry_urma_class_name(enum ferry_urma_class class);

/*
 * The implementation over liburma, or NULL in a build without it. Any thread.
 */
const struct ferry_urma_ops *ferry_urma_builtin(void);

/*
 * An implementation from a shared object that exports `ferry_urma_adapter` (a function without
 * arguments that returns its table). The object stays loaded for the life of the process.
 * ERR_UNSUPPORTED with text: no such file, no such symbol, another version of the table.
 */
enum ferry_status ferry_urma_load(const char *path, const struct ferry_urma_ops **ops_out);

#define FERRY_URMA_ADAPTER_SYMBOL "ferry_urma_adapter"
typedef const struct ferry_urma_ops *ferry_urma_adapter_fn(void);

/*
 * urma.c: the single caller. Same contracts, with what they promise asserted on both sides.
 */
struct ferry_urma_status ferry_urma_open(const struct ferry_urma_ops *ops,
                                         const struct ferry_urma_open_options *options,
                                         struct ferry_urma *urma_out);
struct ferry_urma_status ferry_urma_close(struct ferry_urma *urma);
void ferry_urma_fingerprint(const struct ferry_urma *urma, char *buf, size_t size);
struct ferry_urma_status ferry_urma_list_devices(const struct ferry_urma *urma,
                                                 struct ferry_urma_device *rows, uint32_t capacity,
                                                 uint32_t *count_out);
struct ferry_urma_status ferry_urma_ctx_open(const struct ferry_urma *urma,
                                             const struct ferry_urma_ctx_options *options,
                                             struct ferry_urma_ctx **ctx_out);
void ferry_urma_ctx_info(const struct ferry_urma *urma, struct ferry_urma_ctx *ctx,
                         struct ferry_urma_ctx_info *info_out);
struct ferry_urma_status ferry_urma_ctx_refresh(const struct ferry_urma *urma,
                                                struct ferry_urma_ctx *ctx,
                                                struct ferry_urma_ctx_state *state_out);
struct ferry_urma_status ferry_urma_ctx_close(const struct ferry_urma *urma,
                                              struct ferry_urma_ctx **ctx);
struct ferry_urma_status ferry_urma_event_next(const struct ferry_urma *urma,
                                               struct ferry_urma_ctx *ctx,
                                               struct ferry_urma_event *event_out);
struct ferry_urma_status ferry_urma_cq_create(const struct ferry_urma *urma,
                                              struct ferry_urma_ctx *ctx,
                                              const struct ferry_urma_cq_options *options,
                                              struct ferry_urma_cq **cq_out);
int ferry_urma_cq_fd(const struct ferry_urma *urma, struct ferry_urma_cq *cq);
struct ferry_urma_status ferry_urma_cq_arm(const struct ferry_urma *urma, struct ferry_urma_cq *cq);
struct ferry_urma_status ferry_urma_cq_ack_events(const struct ferry_urma *urma,
                                                  struct ferry_urma_cq *cq, uint32_t *count_out);
struct ferry_urma_status ferry_urma_cq_poll(const struct ferry_urma *urma, struct ferry_urma_cq *cq,
                                            struct ferry_urma_completion *out, uint32_t capacity,
                                            uint32_t *count_out);
struct ferry_urma_status ferry_urma_cq_destroy(const struct ferry_urma *urma,
                                               struct ferry_urma_cq **cq);
struct ferry_urma_status ferry_urma_mem_register(const struct ferry_urma *urma,
                                                 struct ferry_urma_ctx *ctx,
                                                 const struct ferry_urma_mem_spec *spec,
                                                 struct ferry_urma_mem **mem_out);
void ferry_urma_mem_export(const struct ferry_urma *urma, struct ferry_urma_mem *mem,
                           struct ferry_urma_descriptor *descriptor_out);
struct ferry_urma_status ferry_urma_mem_unregister(const struct ferry_urma *urma,
                                                   struct ferry_urma_mem **mem);
/* What rmem_import() needs besides the context. */
struct ferry_urma_import {
    const struct ferry_urma_descriptor *descriptor;
    uint32_t token;
    uint32_t access;
};
struct ferry_urma_status ferry_urma_rmem_import(const struct ferry_urma *urma,
                                                struct ferry_urma_ctx *ctx,
                                                const struct ferry_urma_import *import,
                                                struct ferry_urma_rmem **rmem_out);
struct ferry_urma_status ferry_urma_rmem_release(const struct ferry_urma *urma,
                                                 struct ferry_urma_rmem **rmem);
struct ferry_urma_status ferry_urma_jetty_create(const struct ferry_urma *urma,
                                                 struct ferry_urma_ctx *ctx,
                                                 struct ferry_urma_cq *cq,
                                                 const struct ferry_urma_jetty_options *options,
                                                 struct ferry_urma_jetty **jetty_out);
void ferry_urma_jetty_info(const struct ferry_urma *urma, struct ferry_urma_jetty *jetty,
                           struct ferry_urma_jetty_info *info_out);
struct ferry_urma_status ferry_urma_jetty_connect(const struct ferry_urma *urma,
                                                  struct ferry_urma_jetty *jetty,
                                                  const struct ferry_urma_peer *peer);
struct ferry_urma_status ferry_urma_jetty_post(const struct ferry_urma *urma,
                                               struct ferry_urma_jetty *jetty,
                                               const struct ferry_urma_request *requests,
                                               uint32_t count,
                                               struct ferry_urma_post_result *result_out);
struct ferry_urma_status ferry_urma_jetty_set_error(const struct ferry_urma *urma,
                                                    struct ferry_urma_jetty *jetty);
struct ferry_urma_status ferry_urma_jetty_flush(const struct ferry_urma *urma,
                                                struct ferry_urma_jetty *jetty,
                                                struct ferry_urma_completion *out,
                                                uint32_t capacity, uint32_t *count_out);
struct ferry_urma_status ferry_urma_jetty_disconnect(const struct ferry_urma *urma,
                                                     struct ferry_urma_jetty *jetty);
struct ferry_urma_status ferry_urma_jetty_destroy(const struct ferry_urma *urma,
                                                  struct ferry_urma_jetty **jetty);

#endif
