/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the dispatcher and what really reads and writes: the shape of cuFile's
 * batch, so that the library, io_uring and a pool of threads fit behind it alike.
 *
 *   open --> { file_register, buffer_register }* --> { setup --> submit --> poll* --> again
 *                                                              \--> cancel --> poll* --> destroy }*
 *
 * backend.c is the only file that calls through the table. Everything runs on the dispatcher's
 * thread, except where it says otherwise. A batch is submitted once per setup.
 *
 * The rule that all of this exists for: an event says that nothing can touch the memory of its
 * entry any more. What has no event is presumed to run.
 */
#ifndef FERRY_TRANSPORT_FILE_BACKEND_H
#define FERRY_TRANSPORT_FILE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/batch.h>
#include <ferry/status.h>

#include "base/inbox.h"
#include "base/list.h"

struct ferry_config;
struct ferry_file_backend;
struct file_piece;
struct json_object;

/* Entries of one batch, at most. */
#define FERRY_FILE_BATCH_MAX 128u

/* One entry, copied by submit. */
struct ferry_file_io {
    uint64_t cookie; /* comes back with the event */
    enum ferry_opcode opcode;
    bool dsync; /* WRITE: complete only when the device has the data */
    int fd;     /* in the mode that the way wants */
    void *file; /* what file_register() gave; NULL for backends without it */
    void *memory;
    uint64_t length; /* > 0 */
    uint64_t offset;
};

struct ferry_file_event {
    uint64_t cookie;
    int64_t result; /* bytes, may be fewer than asked for; or a negative errno */
};

/* Called on any thread when a batch may have events. */
struct ferry_file_batch;
typedef void ferry_file_ready_fn(void *arg, struct ferry_file_batch *batch);

enum ferry_file_batch_state {
    FERRY_FILE_BATCH_FREE,       /* not set up, or set up and kept for its next use */
    FERRY_FILE_BATCH_FILLING,    /* takes entries */
    FERRY_FILE_BATCH_SUBMITTING, /* a submit that may block runs on a helper thread */
    FERRY_FILE_BATCH_RUNNING,    /* submitted; some entries have no event yet */
    FERRY_FILE_BATCH_DRAINING,   /* poisoned and cancelled; polled until quiet or out of time */
    FERRY_FILE_BATCH_DESTROYING, /* destroy runs on a helper thread */
    FERRY_FILE_BATCH_GRACE,      /* destroyed; the device may still write for a moment */
    FERRY_FILE_BATCH_LOST,       /* a call into the library does not return: never used again */
};

/* One use of a native batch. The dispatcher's, in memory that lives as long as the transport. */
struct ferry_file_batch {
    /* constant */
    struct ferry_file_backend *backend;
    uint32_t index;
    /* the dispatcher's */
    enum ferry_file_batch_state state;
    uint32_t generation; /* grows with every use */
    uint32_t count;      /* entries of this use */
    uint32_t left;       /* of them, those without an event */
    struct ferry_list link;
    struct file_piece *pieces[FERRY_FILE_BATCH_MAX];
    struct ferry_file_io ios[FERRY_FILE_BATCH_MAX];
    uint64_t until_ns; /* of the present state; FERRY_NEVER_NS: none */
    void *native;      /* the backend's, from setup to destroy */
    /* any thread, atomic */
    _Atomic bool ready; /* `node` is in the dispatcher's inbox */
    struct ferry_inbox_node node;
};

struct ferry_file_backend_env {
    const struct ferry_config *config;
    uint32_t batch_count;   /* batches that are ever set up at once */
    uint32_t batch_entries; /* of each, at most */
    ferry_file_ready_fn *ready;
    void *ready_arg;
    char *reason; /* where open says why it cannot, reason_size bytes */
    size_t reason_size;
};

/* The public part of every backend; implementations embed it first. */
struct ferry_file_backend {
    const struct ferry_file_backend_ops *ops;
    uint64_t entry_bytes_max; /* longest entry it takes */
    uint32_t batch_entries;   /* entries of a batch, <= what the env asked for */
    bool copies;              /* FERRY_FILE_ANY_ALIGNMENT: it goes through buffers of its own */
};

/* Properties of a backend. */
#define FERRY_FILE_NEEDS_REGISTER (1u << 0) /* files go through file_register() first */
#define FERRY_FILE_SILENT         (1u << 1) /* does not call ready(): has to be polled */
#define FERRY_FILE_MAY_BLOCK      (1u << 2) /* setup, submit and destroy: on a helper thread */
#define FERRY_FILE_ANY_ALIGNMENT  (1u << 3) /* aligns by itself */
#define FERRY_FILE_NO_FENCE       (1u << 4) /* after destroy memory needs a time of grace */

struct ferry_file_backend_ops {
    const char *name; /* static */
    uint32_t traits;  /* FERRY_FILE_* */

    /*
     * Required. One thread; may block. ERR_UNSUPPORTED with env->reason filled if this host cannot;
     * ERR_NO_MEMORY, ERR_LIMIT.
     */
    enum ferry_status (*open)(const struct ferry_file_backend_env *env,
                              struct ferry_file_backend **backend_out);
    /* Required. One thread; blocks. Given: no batch has an entry without an event. */
    void (*close)(struct ferry_file_backend *backend);

    /*
     * FERRY_FILE_NEEDS_REGISTER. A helper thread; may block. ERR_UNSUPPORTED: not this file, with
     * text. Unregister: given that no entry on it runs.
     */
    enum ferry_status (*file_register)(struct ferry_file_backend *backend, int fd, void **file_out);
    void (*file_unregister)(struct ferry_file_backend *backend, void *file);

    /*
     * Optional. Any thread; may block. Tell the device about memory; entries inside it are then
     * faster. Errors are no errors: the memory is used unregistered. Forget: given that no entry in
     * it runs.
     */
    void (*buffer_register)(struct ferry_file_backend *backend, void *base, uint64_t length);
    void (*buffer_forget)(struct ferry_file_backend *backend, void *base, uint64_t length);

    /* Optional. Make batch->native. ERR_LIMIT, ERR_NO_MEMORY, ERR_DEVICE. */
    enum ferry_status (*setup)(struct ferry_file_batch *batch);
    /*
     * Required. All or nothing: on failure no entry of batch->ios[0..count) will ever have an event
     * by itself. Given: batch->native is unused or has had all its events.
     * Errors: ERR_QUEUE_FULL (nothing was started), ERR_UNSUPPORTED (nothing was started), others:
     * unknown what was started.
     */
    enum ferry_status (*submit)(struct ferry_file_batch *batch);
    /*
     * Required. Never blocks. Takes at most @room events, each entry's once, in any order. An error
     * poisons the batch: no event is believed after it.
     */
    enum ferry_status (*poll)(struct ferry_file_batch *batch, struct ferry_file_event *events,
                              uint32_t room, uint32_t *count_out);
    /* Required. Best effort, does not block (FERRY_FILE_MAY_BLOCK: may). */
    void (*cancel)(struct ferry_file_batch *batch);
    /* Optional. Undo setup; a barrier unless FERRY_FILE_NO_FENCE. */
    void (*destroy)(struct ferry_file_batch *batch);

    /*
     * Optional, both or none. Sleep until an event, a wake-up or @until_ns. *asleep is 1 until
     * somebody wakes, who sets it to 0 and calls wake(), on any thread.
     */
    void (*sleep)(struct ferry_file_backend *backend, _Atomic uint32_t *asleep, uint64_t until_ns);
    void (*wake)(struct ferry_file_backend *backend);

    /* Optional. Any thread. Members for the report. */
    void (*report)(struct ferry_file_backend *backend, struct json_object *object);
};

/* backend.c: the single caller, checked. */
enum ferry_status ferry_file_backend_open(const struct ferry_file_backend_ops *ops,
                                          const struct ferry_file_backend_env *env,
                                          struct ferry_file_backend **backend_out);
void ferry_file_backend_close(struct ferry_file_backend *backend);
enum ferry_status ferry_file_backend_register(struct ferry_file_backend *backend, int fd,
                                              void **file_out);
void ferry_file_backend_unregister(struct ferry_file_backend *backend, void *file);
void ferry_file_backend_add_buffer(struct ferry_file_backend *backend, void *base, uint64_t length);
void ferry_file_backend_forget_buffer(struct ferry_file_backend *backend, void *base,
                                      uint64_t length);
enum ferry_status ferry_file_batch_setup(struct ferry_file_batch *batch);
enum ferry_status ferry_file_batch_submit(struct ferry_file_batch *batch);
enum ferry_status ferry_file_batch_poll(struct ferry_file_batch *batch,
                                        struct ferry_file_event *events, uint32_t room,
                                        uint32_t *count_out);
void ferry_file_batch_cancel(struct ferry_file_batch *batch);
void ferry_file_batch_destroy(struct ferry_file_batch *batch);
void ferry_file_backend_sleep(struct ferry_file_backend *backend, _Atomic uint32_t *asleep,
                              uint64_t until_ns);
void ferry_file_backend_wake(struct ferry_file_backend *backend);
void ferry_file_backend_report(struct ferry_file_backend *backend, struct json_object *object);

/* The tables. */
extern const struct ferry_file_backend_ops ferry_file_gds;
extern const struct ferry_file_backend_ops ferry_file_pool;
#ifdef FERRY_HAVE_URING
extern const struct ferry_file_backend_ops ferry_file_uring;
#endif

#endif
