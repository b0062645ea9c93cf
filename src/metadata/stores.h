/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stores that this build has, and what those that speak HTTP share: the list of their requests,
 * so that close can end them, and the way from a request to a call and back. Private to metadata/.
 */
#ifndef FERRY_METADATA_STORES_H
#define FERRY_METADATA_STORES_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

#include "metadata/store.h"

extern const struct ferry_store_ops ferry_store_peer;
extern const struct ferry_store_ops ferry_store_http;
extern const struct ferry_store_ops ferry_store_etcd;

/* Bytes of metadata_cluster, and of the longest key with its terminator. */
#define FERRY_STORE_CLUSTER_MAX 64
#define FERRY_STORE_KEY_SIZE                                                                       \
    (sizeof("mooncake/") + FERRY_STORE_CLUSTER_MAX + sizeof("/tent/") + FERRY_STORE_NAME_MAX)

/* metadata_cluster. ERR_CONFIG. */
FERRY_CHECKED enum ferry_status ferry_store_cluster(const struct ferry_config *config,
                                                    char cluster_out[FERRY_STORE_CLUSTER_MAX + 1]);
/* "mooncake/[cluster/]tent/NAME", or "mooncake/[cluster/]nvmeof/NAME" for a file segment. */
void ferry_store_key(const char *cluster, const char *name, char key_out[FERRY_STORE_KEY_SIZE]);
/* The metadata_*_file settings; the strings are the configuration's. */
struct ferry_http_tls ferry_store_tls(const struct ferry_config *config);

struct ferry_http_store;

/* Judge a reply: sets request->status and request->error; takes call->reply if it is wanted. */
typedef void ferry_http_store_judge_fn(struct ferry_store_request *request);

/* The first member of a store that speaks HTTP. */
struct ferry_http_store {
    struct ferry_store base;
    /* immutable after open */
    struct ferry_http_client *http;
    ferry_http_store_judge_fn *judge;
    pid_t pid;
    /* any thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t idle;
    struct ferry_list requests; /* submitted, done() not begun */
    uint32_t pending;           /* submitted, done() not returned */
};

void ferry_http_store_init(struct ferry_http_store *store, const struct ferry_store_env *env,
                           ferry_http_store_judge_fn *judge);
/* Ends what runs with ERR_CLOSING, waits for it, and undoes init. Not the control thread. */
void ferry_http_store_fini(struct ferry_http_store *store);

/* Send request->call, of which method, url, body and deadline are set. */
void ferry_http_store_send(struct ferry_http_store *store, struct ferry_store_request *request);
/* Answer without sending anything, later and on the control thread. */
void ferry_http_store_answer(struct ferry_http_store *store, struct ferry_store_request *request,
                             enum ferry_status status, const char *error);

/* For judges: set the result. */
void ferry_store_request_fail(struct ferry_store_request *request, enum ferry_status status,
                              const char *fmt, ...) FERRY_PRINTF(3, 4);

/* True if a name is 1..255 bytes without control characters; otherwise the error text is set. */
bool ferry_store_name_check(const char *name);

#endif
