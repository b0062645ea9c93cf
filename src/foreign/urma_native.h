/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two files of the adapter over liburma share. Includes the URMA headers, so that nothing
 * but those two files may include it; compiled with -Durma_prefix=, and in the tests against a
 * header of our own.
 */
#ifndef FERRY_FOREIGN_URMA_NATIVE_H
#define FERRY_FOREIGN_URMA_NATIVE_H

#include <pthread.h>
#include <stdatomic.h>

#include <urma_api.h>

#include "foreign/urma.h"

#define NATIVE_ORPHANS_MAX 64u

struct native_cq {
    urma_jfce_t *jfce;
    urma_jfc_t *send;
    urma_jfc_t *receive;
    urma_jfr_t *jfr;
};

struct native_runtime {
    _Atomic uint32_t contexts;
};

struct native_ctx {
    /* immutable after open */
    struct native_runtime *runtime;
    urma_context_t *context;
    char name[FERRY_URMA_NAME_SIZE];
    uint32_t eid_index;
    /* any thread, under the mutex: parts whose roll-back failed */
    pthread_mutex_t mutex;
    struct native_cq *orphans[NATIVE_ORPHANS_MAX];
    uint32_t orphan_count;
};

struct native_jetty {
    struct native_ctx *ctx;
    urma_jetty_t *jetty;
    urma_target_jetty_t *target; /* imported; kept until unimport has succeeded */
    bool bound;
    uint32_t depth;
};

static inline struct native_ctx *ferry_native_ctx(struct ferry_urma_ctx *ctx)
{
    return (struct native_ctx *)(void *)ctx;
}

static inline struct native_cq *ferry_native_cq(struct ferry_urma_cq *cq)
{
    return (struct native_cq *)(void *)cq;
}

/* urma_native.c */
const struct ferry_urma_ops *ferry_urma_native_ops(void);
struct ferry_urma_status ferry_native_status(enum ferry_urma_class class, int native);
struct ferry_urma_status ferry_native_destroyed(int native);
int ferry_native_cq_parts_destroy(struct native_cq *cq);

/* urma_native_jetty.c */
struct ferry_urma_status ferry_native_cq_poll(struct ferry_urma_cq *cq,
                                              struct ferry_urma_completion *out, uint32_t capacity,
                                              uint32_t *count_out);
struct ferry_urma_status ferry_native_jetty_create(struct ferry_urma_ctx *ctx,
                                                   struct ferry_urma_cq *cq,
                                                   const struct ferry_urma_jetty_options *options,
                                                   struct ferry_urma_jetty **jetty_out);
void ferry_native_jetty_info(struct ferry_urma_jetty *jetty,
                             struct ferry_urma_jetty_info *info_out);
struct ferry_urma_status ferry_native_jetty_connect(struct ferry_urma_jetty *jetty,
                                                    const struct ferry_urma_peer *peer);
struct ferry_urma_status ferry_native_jetty_post(struct ferry_urma_jetty *jetty,
                                                 const struct ferry_urma_request *requests,
                                                 uint32_t count,
                                                 struct ferry_urma_post_result *result_out);
struct ferry_urma_status ferry_native_jetty_set_error(struct ferry_urma_jetty *jetty);
struct ferry_urma_status ferry_native_jetty_flush(struct ferry_urma_jetty *jetty,
                                                  struct ferry_urma_completion *out,
                                                  uint32_t capacity, uint32_t *count_out);
struct ferry_urma_status ferry_native_jetty_disconnect(struct ferry_urma_jetty *jetty);
struct ferry_urma_status ferry_native_jetty_destroy(struct ferry_urma_jetty **jetty);

#endif
