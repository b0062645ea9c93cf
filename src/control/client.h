/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP client of the control plane: libcurl's multi interface on one control thread.
 *
 *   submit --> queue --> look up the host --> connect (several addresses) --> talk --> done()
 *
 * Any thread queues a call; done() runs on the control thread, exactly once, under no lock, and
 * must not block. Bodies are bounded; each call has a deadline. Proxies from the environment are
 * ignored, redirects are not followed, signals are off. Every call has a connection of its own:
 * nothing is ever sent twice, which libcurl would do on a reused connection that dies. The control
 * thread uses no CPU when nothing runs.
 */
#ifndef FERRY_CONTROL_CLIENT_H
#define FERRY_CONTROL_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/list.h"

struct ferry_access_control;
struct ferry_http_client;
struct ferry_http_call;

/* Calls that run at a time; further ones wait in the queue, under their deadlines. */
#define FERRY_HTTP_RUNNING_MAX 64
/* One address gets this long to accept a connection; the next one is tried meanwhile. */
#define FERRY_HTTP_CONNECT_NS (2 * FERRY_NS_PER_S)
/* Bytes of reply headers. */
#define FERRY_HTTP_HEADERS_MAX (64u << 10)
#define FERRY_HTTP_ERROR_SIZE  512
/* Bytes of an Authorization header. */
#define FERRY_HTTP_AUTHORIZATION_MAX 4096
#define FERRY_HTTP_REPLY_MAX_MAX     (1u << 30)

enum ferry_http_method {
    FERRY_HTTP_GET = 0,
    FERRY_HTTP_PUT = 1,
    FERRY_HTTP_POST = 2,
    FERRY_HTTP_DELETE = 3,
};

/* Whom a call goes to, which says what it proves and what it expects to be proved. */
enum ferry_http_party {
    FERRY_HTTP_STRANGER = 0,  /* such as a metadata store: nothing */
    FERRY_HTTP_PEER = 1,      /* an engine of the fleet: as access control says */
    FERRY_HTTP_PEER_OPEN = 2, /* the same, for the path that needs no proof of the key: /health */
};

typedef void ferry_http_done_fn(struct ferry_http_call *call);
/*
 * A part of the reply's body, on the control thread. Not FERRY_OK: the call ends with that status
 * and with the thread's error text. Must not submit, finish, sleep or abort.
 */
typedef enum ferry_status ferry_http_data_fn(struct ferry_http_call *call, const char *bytes,
                                             size_t len);

/* How a server of https proves itself, and how we do. "" or NULL is none. */
struct ferry_http_tls {
    const char *ca_file;   /* PEM; none: the system's authorities */
    const char *cert_file; /* PEM, our own */
    const char *key_file;  /* PEM, of our certificate */
};

/* In the caller's memory from submit until done() is called; done() may free it. */
struct ferry_http_call {
    enum ferry_http_method method;
    enum ferry_http_party party;
    const char *url;  /* http or https; valid until done */
    const char *body; /* PUT, POST: application/json; valid until done */
    size_t body_len;
    const char *authorization; /* at most ..._AUTHORIZATION_MAX bytes, or NULL; valid until done */
    const struct ferry_http_tls *tls; /* NULL is all none; valid until done */
    ferry_http_data_fn *data;         /* NULL: the reply is collected; else it is not */
    size_t reply_max; /* bytes, at most FERRY_HTTP_REPLY_MAX_MAX; a longer reply: ERR_TOO_LARGE */
    uint64_t deadline_ns; /* absolute CLOCK_MONOTONIC, never "none" */
    ferry_http_done_fn *done;
    void *arg;
    /*
     * Result. FERRY_OK: a whole reply of any HTTP status came. ERR_INVALID: the URL. ERR_PEER_GONE:
     * no such host, nobody accepts, or the connection broke. ERR_TIMED_OUT, ERR_TOO_LARGE,
     * ERR_PROTOCOL (no HTTP, no TLS, or not the server that its certificate says), ERR_LIMIT
     * (descriptors), ERR_NO_MEMORY, ERR_CLOSING, ERR_FORKED; what data() returned. ERR_REFUSED: the
     * peer does not accept our proof of the key, or does not prove it to us.
     */
    enum ferry_status status;
    long http_status;
    char *reply; /* FERRY_OK: malloc'd, NUL-terminated, done()'s to free; otherwise NULL */
    size_t reply_len;
    char error[FERRY_HTTP_ERROR_SIZE]; /* the cause: each address:port tried and its reason */
    /* the client's own between submit and done */
    struct ferry_list link;
    _Atomic bool abort_asked;
    bool finished;
    bool sleeping;
};

/*
 * Starts the control thread. @access, which outlives the client, says what is proved to peers and
 * by them; NULL: nothing. ERR_NO_MEMORY, ERR_LIMIT, ERR_INTERNAL.
 */
FERRY_CHECKED enum ferry_status ferry_http_client_open(const struct ferry_access_control *access,
                                                       struct ferry_http_client **client_out);

/*
 * Ends what runs with ERR_CLOSING and joins the thread; waits at most FERRY_RESOLVER_CLOSE_NS for
 * look-ups of names that hang in the system's resolver. NULL is harmless. In a forked child it does
 * nothing: the client and its thread are the parent's.
 */
void ferry_http_client_close(struct ferry_http_client *client);

/*
 * Any thread, done() included; only queues. In a forked child done() runs at once, inside this
 * call, with ERR_FORKED: there is no other thread that could run it.
 */
void ferry_http_client_submit(struct ferry_http_client *client, struct ferry_http_call *call);

/*
 * As submit, but nothing is sent: done() runs on the control thread with @status and with the text
 * that call->error holds. For answers that are known at once but must not be given inside a call.
 */
void ferry_http_client_finish(struct ferry_http_client *client, struct ferry_http_call *call,
                              enum ferry_status status);

/*
 * As submit, but nothing is sent: done() runs on the control thread at call->deadline_ns with
 * ERR_TIMED_OUT, or earlier with ERR_CLOSING after an abort. For whoever waits before the next try.
 */
void ferry_http_client_sleep(struct ferry_http_client *client, struct ferry_http_call *call);

/*
 * Ask that a submitted call ends soon, with ERR_CLOSING unless it ends by itself first. Any thread.
 * Given: its done() has not begun, and cannot begin before this returns.
 */
void ferry_http_client_abort(struct ferry_http_client *client, struct ferry_http_call *call);

/* "https" where peers are spoken to with TLS, else "http": how a URL of a peer begins. */
const char *ferry_http_client_scheme(const struct ferry_http_client *client);

/* ERR_INVALID, with the URL in the text, unless it is one that can be called. Asks no resolver. */
FERRY_CHECKED enum ferry_status ferry_http_url_check(const char *url);

/*
 * Submit and wait; not from done(). Uses call->done and call->arg itself. The result is in @call,
 * and call->reply is the caller's to free; returns its status and sets the thread's error text.
 */
FERRY_CHECKED enum ferry_status ferry_http_client_call(struct ferry_http_client *client,
                                                       struct ferry_http_call *call);

#endif
