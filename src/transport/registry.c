/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transports of this build, in the order in which the runtime prefers them, and the defaults
 * that fill what a table leaves out. An explicit array: constructors run before main and vanish in
 * static links. Any thread; the merged tables are made once, under pthread_once.
 */
#include <assert.h>
#include <pthread.h>
#include <string.h>

#include "base/assert.h"
#include "base/compiler.h"
#include "base/error.h"
#include "transport/fault/fault.h"
#include "transport/file/file.h"
#include "transport/loop/loop.h"
#include "transport/transport.h"
#ifdef FERRY_HAVE_HP_TCP
#include "transport/hp_tcp/hp_tcp.h"
#endif
#ifdef FERRY_HAVE_SHM
#include "transport/shm/shm.h"
#endif
#ifdef FERRY_HAVE_UB
#include "transport/ub/ub.h"
#endif

static const struct ferry_transport_ops *const rows[] = {
#ifdef FERRY_HAVE_UB
    &ferry_ub_ops,
#endif
#ifdef FERRY_HAVE_HP_TCP
    &ferry_hp_tcp_ops,
#endif
#ifdef FERRY_HAVE_SHM
    &ferry_shm_ops,
#endif
    &ferry_loop_ops,   &ferry_file_ops, &ferry_fault_ops,
};

static_assert(FERRY_ARRAY_LEN(rows) <= FERRY_TRANSPORTS_MAX, "one slot per transport");

static pthread_once_t merge_once = PTHREAD_ONCE_INIT;
static struct ferry_transport_ops merged[FERRY_ARRAY_LEN(rows)]; /* written by merge_rows() only */

static enum ferry_status no_describe(struct ferry_transport *transport, char **attr_out)
{
    (void)attr_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s publishes nothing", transport->ops->name);
}

static enum ferry_status no_describe_buffer(struct ferry_transport *transport,
                                            uint64_t registration_id,
                                            enum ferry_permission permission, char **attr_out)
{
    (void)registration_id;
    (void)permission;
    (void)attr_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s publishes nothing about buffers",
                      transport->ops->name);
}

static enum ferry_status no_add_buffer(struct ferry_transport *transport,
                                       const struct ferry_registry_buffer *buffer)
{
    (void)transport;
    (void)buffer;
    return FERRY_OK;
}

static enum ferry_status no_remove_buffer(struct ferry_transport *transport,
                                          uint64_t registration_id, uint64_t deadline_ns)
{
    (void)transport;
    (void)registration_id;
    (void)deadline_ns;
    return FERRY_OK;
}

static enum ferry_status no_bootstrap(struct ferry_transport *transport, const char *text,
                                      size_t len, char **reply_out)
{
    (void)text;
    (void)len;
    (void)reply_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s has no bootstrap", transport->ops->name);
}

static enum ferry_status no_files(struct ferry_transport *transport,
                                  const struct ferry_file_layout *layout,
                                  struct ferry_target **target_out)
{
    (void)layout;
    (void)target_out;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s does not serve files", transport->ops->name);
}

/* Cancel is best effort: an xfer that cannot be cancelled runs to its end. */
static void no_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    (void)transport;
    (void)xfer;
}

static enum ferry_status no_revoke(struct ferry_transport *transport, const void *addr,
                                   uint64_t length, uint64_t deadline_ns)
{
    (void)addr;
    (void)length;
    (void)deadline_ns;
    return ferry_fail(FERRY_ERR_BUSY, "%s cannot take memory back before its transfers end",
                      transport->ops->name);
}

static void no_explain(struct ferry_target *target, char *buf, size_t buf_len)
{
    (void)target;
    (void)buf;
    (void)buf_len;
}

static enum ferry_reach no_reach(struct ferry_target *target, uint64_t remote_addr, uint64_t length,
                                 char *why)
{
    (void)target;
    (void)remote_addr;
    (void)length;
    (void)why;
    return FERRY_REACH_YES;
}

static void no_report(struct ferry_transport *transport, struct json_object *object)
{
    (void)transport;
    (void)object;
}

static void no_measure(struct ferry_transport *transport, struct ferry_transport_totals *totals,
                       ferry_path_fn *fn, void *arg)
{
    (void)transport;
    (void)totals;
    (void)fn;
    (void)arg;
}

static bool name_ok(const char *name)
{
    return name != NULL && name[0] != '\0' &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static enum ferry_status check_ops(const struct ferry_transport_ops *ops)
{
    if (ops->ops_version != FERRY_TRANSPORT_OPS_VERSION)
        return ferry_fail(FERRY_ERR_INTERNAL, "transport table of version %u, expected %u",
                          ops->ops_version, FERRY_TRANSPORT_OPS_VERSION);
    if (!name_ok(ops->name))
        return ferry_fail(FERRY_ERR_INTERNAL, "transport name \"%s\" is not [a-z0-9_]+",
                          ops->name != NULL ? ops->name : "");
    if (ops->probe == NULL || ops->open == NULL || ops->quiesce == NULL || ops->close == NULL ||
        ops->target_open == NULL || ops->target_close == NULL || ops->submit == NULL)
        return ferry_fail(FERRY_ERR_INTERNAL, "%s lacks a required function", ops->name);
    if (((ops->caps & FERRY_CAP_CANCEL) != 0) != (ops->cancel != NULL))
        return ferry_fail(FERRY_ERR_INTERNAL, "%s: FERRY_CAP_CANCEL and its cancel disagree",
                          ops->name);
    if (((ops->caps & FERRY_CAP_REVOKE) != 0) != (ops->revoke != NULL))
        return ferry_fail(FERRY_ERR_INTERNAL, "%s: FERRY_CAP_REVOKE and its revoke disagree",
                          ops->name);
    if ((ops->add_buffer != NULL) != (ops->remove_buffer != NULL))
        return ferry_fail(FERRY_ERR_INTERNAL, "%s: add_buffer and remove_buffer disagree",
                          ops->name);
    if (((ops->caps & FERRY_CAP_FILE) != 0) != (ops->files_open != NULL))
        return ferry_fail(FERRY_ERR_INTERNAL, "%s: FERRY_CAP_FILE and its files_open disagree",
                          ops->name);
    if ((ops->wire_id >= 0) != (ops->describe != NULL) ||
        (ops->wire_id >= 0) != (ops->describe_buffer != NULL))
        return ferry_fail(FERRY_ERR_INTERNAL, "%s: wire_id and describe disagree", ops->name);
    return FERRY_OK;
}

enum ferry_status ferry_transport_ops_merge(const struct ferry_transport_ops *ops,
                                            struct ferry_transport_ops *merged_out)
{
    struct ferry_transport_ops full = *ops;
    enum ferry_status status = check_ops(ops);

    if (status != FERRY_OK)
        return status;
    if (full.describe == NULL)
        full.describe = no_describe;
    if (full.describe_buffer == NULL)
        full.describe_buffer = no_describe_buffer;
    if (full.add_buffer == NULL)
        full.add_buffer = no_add_buffer;
    if (full.remove_buffer == NULL)
        full.remove_buffer = no_remove_buffer;
    if (full.bootstrap == NULL)
        full.bootstrap = no_bootstrap;
    if (full.files_open == NULL)
        full.files_open = no_files;
    if (full.cancel == NULL)
        full.cancel = no_cancel;
    if (full.revoke == NULL)
        full.revoke = no_revoke;
    if (full.target_explain == NULL)
        full.target_explain = no_explain;
    if (full.target_reach == NULL)
        full.target_reach = no_reach;
    if (full.report == NULL)
        full.report = no_report;
    if (full.measure == NULL)
        full.measure = no_measure;
    *merged_out = full;
    return FERRY_OK;
}

static void merge_rows(void)
{
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        enum ferry_status status = ferry_transport_ops_merge(rows[i], &merged[i]);

        FERRY_ASSERT(status == FERRY_OK);
        for (size_t k = 0; k < i; k++)
            FERRY_ASSERT(strcmp(merged[k].name, merged[i].name) != 0);
    }
}

uint32_t ferry_transports(const struct ferry_transport_ops **ops_out)
{
    pthread_once(&merge_once, merge_rows);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++)
        ops_out[i] = &merged[i];
    return FERRY_ARRAY_LEN(rows);
}

const struct ferry_transport_ops *ferry_transport_find(const char *name)
{
    pthread_once(&merge_once, merge_rows);
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        if (strcmp(merged[i].name, name) == 0)
            return &merged[i];
    }
    return NULL;
}
