/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between the runtime and one metadata store: segment name to document text.
 *
 * store.c is the only caller through the table. Requests are asynchronous: done() runs exactly
 * once, on the store's own (control) thread or, for simulators, whenever the rig says, never inside
 * submit(), under no lock. (One exception: in a forked child, where the store's thread is not,
 * done() runs inside submit() with ERR_FORKED.) Every request has a deadline and a size limit. A
 * data-path worker may submit a request (it only queues), and never waits for one.
 */
#ifndef FERRY_METADATA_STORE_H
#define FERRY_METADATA_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"
#include "control/client.h"

struct ferry_config;
struct ferry_store;
struct ferry_store_request;

/* Bytes of a segment name, and of the URL that an HTTP store makes of one. */
#define FERRY_STORE_NAME_MAX 255
#define FERRY_STORE_URL_SIZE 2048

enum ferry_store_verb {
    FERRY_STORE_GET = 0,    /* ERR_NOT_FOUND if the name is unknown */
    FERRY_STORE_PUT = 1,    /* create or replace; ERR_TOO_LARGE if the store refuses the size */
    FERRY_STORE_DELETE = 2, /* FERRY_OK also if there was nothing */
    FERRY_STORE_LIST = 3,   /* the names of file segments, or of memory segments: see name */
};

/* What a PUT or a DELETE takes for granted; only for stores that compare. */
enum ferry_store_expect {
    FERRY_STORE_ANYTHING = 0,
    FERRY_STORE_NOTHING = 1,  /* PUT: the name is unknown */
    FERRY_STORE_REVISION = 2, /* the entry's revision is expected_revision */
};

typedef void ferry_store_done_fn(struct ferry_store_request *request);

/*
 * In the caller's memory from submit until done() is called; done() may free it. All three strings
 * and the memory of the request are the store's to read meanwhile.
 */
struct ferry_store_request {
    enum ferry_store_verb verb;
    /*
     * Segment name; valid until done. One that begins with "nvmeof/" is a file segment's. LIST:
     * "nvmeof/" for all file segments, "" for all memory segments.
     */
    const char *name;
    const char *text; /* PUT: the document; valid until done */
    size_t text_len;
    enum ferry_store_expect expect;
    uint64_t expected_revision;
    /*
     * The entry lives with this store: in stores where entries expire it goes away soon after the
     * process, and comes back if the store loses it. PUT and DELETE touch nobody else's entry: PUT
     * ends with ERR_EXISTS, DELETE succeeds. With an expectation a PUT takes an entry over.
     */
    bool owned;
    uint64_t deadline_ns; /* absolute CLOCK_MONOTONIC, never "none" */
    ferry_store_done_fn *done;
    void *arg; /* the caller's */
    /*
     * Result. ERR_INVALID: the name. ERR_NOT_FOUND: the store does not know it. ERR_PEER_GONE: the
     * peer that the name points at does not answer. ERR_METADATA: the store does not answer, or not
     * as one should. ERR_EXISTS: what was expected is not so. ERR_UNSUPPORTED: this store does not
     * list, or does not compare. ERR_TOO_LARGE (PUT), ERR_TIMED_OUT, ERR_LIMIT, ERR_NO_MEMORY,
     * ERR_CLOSING, ERR_FORKED.
     */
    enum ferry_status status;
    char error[512]; /* the cause, for people; "" on success */
    /*
     * malloc'd, NUL-terminated, done()'s to free. GET, FERRY_OK: the document. LIST, FERRY_OK:
     * whole names, sorted, each with a newline behind it. ERR_EXISTS: the document that is there,
     * or NULL if there is none. Else NULL.
     */
    char *reply;
    size_t reply_len;
    /* Of the document in reply, or that was put: changes with every PUT. 0: the store has none. */
    uint64_t revision;
    /* the store's own between submit and done */
    void *store_data;
    struct ferry_list link;
    struct ferry_http_call call;
    char url[FERRY_STORE_URL_SIZE];
};

/* Everything must outlive the store. */
struct ferry_store_env {
    const struct ferry_config *config;
    const struct ferry_clock *clock;
    struct ferry_http_client *http;
};

/* News of one entry. In the caller's memory from watch to the end of unwatch. */
struct ferry_store_watch {
    const char *name;
    /*
     * The entry may have changed since it was last read, once also when watching begins. On the
     * store's thread; must not block, nor unwatch.
     */
    void (*changed)(struct ferry_store_watch *watch);
    void *arg;
    void *store_data; /* the store's own */
};

/* Entries watched at a time: each holds a connection. */
#define FERRY_STORE_WATCHES_MAX 16

struct ferry_store_ops {
    const char *name; /* "peer", "http", "etcd" */
    /* Required. One thread; may block, bounded. */
    enum ferry_status (*open)(const struct ferry_store_env *env, struct ferry_store **store_out);
    /*
     * Required. Not the control thread. Blocks, bounded; requests that run end with ERR_CLOSING
     * before it returns.
     * Given: nobody submits any more.
     */
    void (*close)(struct ferry_store *store);
    /* Required. Any thread; must not block, allocate or call done(). */
    void (*submit)(struct ferry_store *store, struct ferry_store_request *request);
    /*
     * Optional, both or none. Any thread but the store's own. watch() may allocate, and does not
     * block: ERR_LIMIT, ERR_NO_MEMORY, ERR_FORKED. unwatch() blocks, bounded, until changed() can
     * run no more.
     * Given: every watch has ended before close.
     */
    enum ferry_status (*watch)(struct ferry_store *store, struct ferry_store_watch *watch);
    void (*unwatch)(struct ferry_store *store, struct ferry_store_watch *watch);
    /*
     * True if names are control addresses and a document lives in its owner ("peer"): PUT and
     * DELETE succeed without doing anything.
     */
    bool names_are_addresses;
    bool compares; /* expectations are kept, in one step with what they guard */
    bool expires;  /* owned entries go away with their owner */
    bool lists;
};

struct ferry_store {
    const struct ferry_store_ops *ops;
};

/*
 * metadata_type names the store: "p2p" or "peer", "http", "etcd". ERR_CONFIG for one this build
 * lacks, or for metadata_servers that do not fit it.
 */
FERRY_CHECKED enum ferry_status ferry_store_open(const struct ferry_store_env *env,
                                                 struct ferry_store **store_out);
/* NULL is harmless. Not from done(). Close the store before its http client. */
void ferry_store_close(struct ferry_store *store);
/* Names that are empty or too long, or hold control characters, end with ERR_INVALID. */
void ferry_store_submit(struct ferry_store *store, struct ferry_store_request *request);

/* ERR_UNSUPPORTED where the store cannot; otherwise see ferry_store_ops. */
FERRY_CHECKED enum ferry_status ferry_store_watch(struct ferry_store *store,
                                                  struct ferry_store_watch *watch);
void ferry_store_unwatch(struct ferry_store *store, struct ferry_store_watch *watch);

/*
 * Submit and wait, for callers that may block; not from done(). Uses request->done and request->arg
 * itself. The result is in @request, and request->reply is the caller's to free; returns its status
 * and sets the thread's error text.
 */
FERRY_CHECKED enum ferry_status ferry_store_call(struct ferry_store *store,
                                                 struct ferry_store_request *request);

#endif
