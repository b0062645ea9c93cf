/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store "etcd", in parts: etcd.c is the store and its requests, etcd_call.c asks the endpoints
 * one question until it is answered, etcd_lease.c keeps the entries of this process alive,
 * etcd_watch.c hears of changes, etcd_codec.c knows bodies and replies. Private to metadata/.
 *
 *    submit --> control thread --> (lease) --> (token) --> an endpoint --> next endpoint --> done()
 *
 * Everything but submit, watch, unwatch and close runs on the control thread, which therefore needs
 * no lock for the token, the lease and the endpoints. The lock guards what close looks at: which
 * calls are under way, and whether new ones may begin.
 */
#ifndef FERRY_METADATA_ETCD_H
#define FERRY_METADATA_ETCD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/text.h"
#include "metadata/etcd_codec.h"
#include "metadata/stores.h"

#define FERRY_ETCD_ENDPOINTS_MAX 16
#define FERRY_ETCD_ENDPOINT_MAX  255
#define FERRY_ETCD_PORT          2379
/* Names that one process owns; an engine has one. */
#define FERRY_ETCD_OWNED_MAX 16
/* A body: a document in base64, its key twice, and little else. */
#define FERRY_ETCD_BODY_MAX (96u << 20)

struct ferry_etcd;
struct ferry_etcd_call;

typedef void ferry_etcd_done_fn(struct ferry_etcd_call *call);

/*
 * One question. In the owner's memory until done(), which runs on the control thread, may free it
 * and may ask again.
 */
struct ferry_etcd_call {
    struct ferry_etcd *etcd;
    const char *path; /* static, such as "/v3/kv/range" */
    char *body;       /* malloc'd; taken by ask, freed at the end */
    size_t body_len;
    uint64_t deadline_ns; /* absolute, never "none" */
    bool anonymous;       /* without a token */
    bool once;            /* do not try again: the owner does, with another body */
    bool abandoned;       /* under lock: the owner wants it to end */
    ferry_http_data_fn *data;
    ferry_etcd_done_fn *done;
    /*
     * Result. FERRY_OK: a reply of HTTP status 200. ERR_METADATA: nobody answers as one should, or
     * etcd refuses (refused is set, code and error say why). ERR_TIMED_OUT, ERR_LIMIT,
     * ERR_NO_MEMORY, ERR_CLOSING.
     */
    enum ferry_status status;
    bool refused;
    int code;      /* of gRPC, or -1 */
    bool repeated; /* an earlier try may have been carried out without an answer */
    char error[512];
    char *reply; /* FERRY_OK: done()'s to free */
    size_t reply_len;
    /* its own between ask and done */
    struct ferry_http_call http;
    char url[FERRY_ETCD_ENDPOINT_MAX + 64];
    char authorization[FERRY_ETCD_TOKEN_SIZE];
    uint32_t endpoint;     /* that was asked */
    uint32_t round_tries;  /* endpoints asked since the last pause */
    uint32_t token_number; /* of the token it was sent with */
    uint32_t token_tries;
    uint32_t auth_round;       /* while it waits for a token */
    uint32_t wrong_tries;      /* endpoints of this round that speak no HTTP, or the wrong TLS */
    uint64_t pause_ns;         /* the next pause between rounds */
    bool timed_out;            /* how the last try ended */
    struct ferry_list link;    /* etcd->calls, under lock: the http client has it */
    struct ferry_list waiting; /* etcd->auth_waiters */
};

enum ferry_etcd_lease_state {
    FERRY_ETCD_LEASE_NONE,     /* nothing was owned yet, or it was lost and is asked for again */
    FERRY_ETCD_LEASE_GRANTING, /* asked for */
    FERRY_ETCD_LEASE_HELD,     /* kept alive */
};

/* An entry that lives with this process. */
struct ferry_etcd_owned {
    char name[FERRY_STORE_NAME_MAX + 1];
    char *text; /* as it was put last */
    size_t text_len;
    uint64_t lease; /* that it is attached to, as far as we know */
};

struct ferry_etcd_lease {
    enum ferry_etcd_lease_state state;
    uint64_t id;
    uint64_t ttl_s;              /* as granted */
    bool running;                /* call is in use, or about to be */
    bool lapsed;                 /* etcd said that it is gone; call is being called back */
    bool warned;                 /* that keeping it alive fails */
    bool busy;                   /* an operation on an owned entry runs */
    bool repairing;              /* one that puts an entry back is queued or runs */
    struct ferry_list queue;     /* operations that wait for it */
    struct ferry_etcd_call call; /* grant, keep-alive, or the pause before the next */
    struct ferry_etcd_owned owned[FERRY_ETCD_OWNED_MAX];
    uint32_t owned_count;
};

struct ferry_etcd {
    struct ferry_store base;
    /* immutable after open */
    const struct ferry_clock *clock;
    struct ferry_http_client *http;
    struct ferry_http_tls tls;
    uint64_t timeout_ns;
    uint64_t lease_ttl_s;
    const char *user; /* the configuration's; "" is nobody */
    const char *password;
    pid_t pid;
    char cluster[FERRY_STORE_CLUSTER_MAX + 1];
    char endpoints[FERRY_ETCD_ENDPOINTS_MAX][FERRY_ETCD_ENDPOINT_MAX + 1]; /* URLs */
    uint32_t endpoint_count;
    /* control thread only */
    uint32_t endpoint; /* the one that answered last */
    char token[FERRY_ETCD_TOKEN_SIZE];
    uint32_t token_number; /* of the token; grows with each */
    bool authenticating;
    bool without_auth; /* etcd says that it has none enabled */
    uint32_t auth_round;
    enum ferry_status auth_status; /* of the last round */
    char auth_error[512];
    struct ferry_etcd_call auth;
    struct ferry_list auth_waiters;
    struct ferry_etcd_lease lease;
    /* any thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    bool closing;
    struct ferry_list calls; /* that the http client has */
    uint32_t pending;        /* requests and machines that may still touch the store */
    uint32_t watch_count;
};

/* etcd_call.c */

/*
 * Control thread. Ask the endpoints, the last good one first, each for its share of the time and
 * then again after a pause, until one answers or the deadline has passed. call->body is taken, also
 * if it is NULL because memory ran out. done() never runs inside.
 */
void ferry_etcd_ask(struct ferry_etcd_call *call);
/* Any thread. As ask, but nothing is asked: done() runs soon with FERRY_OK. */
void ferry_etcd_post(struct ferry_etcd_call *call);
/* Control thread. done() at @until_ns with ERR_TIMED_OUT, or earlier with ERR_CLOSING. */
void ferry_etcd_pause(struct ferry_etcd_call *call, uint64_t until_ns);
/* A call's body, from a heap text; NULL when it did not fit or memory ran out. */
void ferry_etcd_set_body(struct ferry_etcd_call *call, struct ferry_text *body);
/* Any thread. Something begins, or ends, that close must wait for. False: the store is closing. */
FERRY_CHECKED bool ferry_etcd_begin(struct ferry_etcd *etcd);
void ferry_etcd_end(struct ferry_etcd *etcd);
bool ferry_etcd_closing(struct ferry_etcd *etcd);

/* etcd.c: one request on its way. */

struct ferry_etcd_op {
    struct ferry_store_request *request; /* NULL: the repair of an owned entry */
    struct ferry_etcd *etcd;
    char key[FERRY_STORE_KEY_SIZE];
    const char *name;
    const char *text;
    size_t text_len;
    char *copy;                      /* of name and text, for a repair */
    bool entered;                    /* it is the one that runs on owned entries */
    bool lease_retried;              /* the lease was gone once */
    enum ferry_etcd_compare compare; /* of the transaction under way */
    uint64_t number;
    struct ferry_text names; /* LIST */
    uint32_t pages;
    struct ferry_etcd_call call;
    struct ferry_list waiting; /* lease->queue */
};

/* Begin an operation on an owned entry: the lease is held and nothing else runs on one. */
void ferry_etcd_op_go(struct ferry_etcd_op *op);
/* End one, with its result. Frees it. */
void ferry_etcd_op_end(struct ferry_etcd_op *op, enum ferry_status status, const char *error);
/*
 * One that puts an owned entry back, if nobody else has taken the name. It tells
 * ferry_etcd_lease_repaired(). NULL: no memory.
 */
struct ferry_etcd_op *ferry_etcd_op_repair(struct ferry_etcd *etcd,
                                           const struct ferry_etcd_owned *owned);

/* etcd_lease.c: all on the control thread. */

void ferry_etcd_lease_init(struct ferry_etcd *etcd);
/* Nothing runs any more. */
void ferry_etcd_lease_fini(struct ferry_etcd *etcd);
/* Run @op, with ferry_etcd_op_go(), as soon as there is a lease and no other one runs. */
void ferry_etcd_lease_enter(struct ferry_etcd_op *op);
/* It is through. */
void ferry_etcd_lease_leave(struct ferry_etcd *etcd);
/* The lease is gone, says etcd: the operation that runs is run again under the next one. */
void ferry_etcd_lease_lapsed(struct ferry_etcd_op *op);
/* What was put under the lease, or taken out of it. False: no memory, or too many. */
bool ferry_etcd_lease_own(struct ferry_etcd *etcd, const char *name, const char *text,
                          size_t text_len);
void ferry_etcd_lease_disown(struct ferry_etcd *etcd, const char *name);
/* How putting @name back ended. */
void ferry_etcd_lease_repaired(struct ferry_etcd *etcd, const char *name, enum ferry_status status,
                               const char *error);

/* etcd_watch.c */

enum ferry_status ferry_etcd_watch(struct ferry_store *store, struct ferry_store_watch *watch);
void ferry_etcd_unwatch(struct ferry_store *store, struct ferry_store_watch *watch);

#endif
