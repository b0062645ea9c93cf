/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only caller through `struct ferry_transport_ops`: it checks what transport.h promises on both
 * sides of every call. Runs on whatever thread calls; holds no state and no lock, decides nothing.
 */
#include "transport/transport.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "memory/registry.h"

#define FERRY_ATTR_TEXT_MAX (64u << 10) /* bytes of one published attribute */

static bool known_status(enum ferry_status status)
{
    return ferry_status_group(status) != FERRY_GROUP_DEFECT || status == FERRY_ERR_INTERNAL;
}

void ferry_xfer_end(struct ferry_xfer *xfer, enum ferry_status status, int32_t native,
                    const char *where)
{
    ferry_xfer_ended_fn *ended = xfer->ended;

    /* A second end of the same xfer finds no callback. */
    FERRY_ASSERT(ended != NULL);
    FERRY_ASSERT(known_status(status));
    FERRY_ASSERT(where != NULL || status == FERRY_OK);

    xfer->ended = NULL;
    xfer->status = status;
    xfer->native = native;
    xfer->where = where;
    ended(xfer);
}

uint32_t ferry_pieces_find(const struct ferry_xfer_piece *pieces, uint32_t count, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (pieces[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    FERRY_DASSERT(offset - pieces[low].offset < pieces[low].length);
    return low;
}

bool ferry_xfer_touches_local(const struct ferry_xfer *xfer, uint64_t addr, uint64_t length)
{
    if (xfer->pieces == NULL)
        return ferry_range_overlaps((uintptr_t)xfer->local, xfer->length, addr, length);
    for (uint32_t i = 0; i < xfer->piece_count; i++) {
        if (ferry_range_overlaps((uintptr_t)xfer->pieces[i].local, xfer->pieces[i].length, addr,
                                 length))
            return true;
    }
    return false;
}

bool ferry_xfer_touches_remote(const struct ferry_xfer *xfer, uint64_t addr, uint64_t length)
{
    if (xfer->pieces == NULL)
        return ferry_range_overlaps(xfer->remote_addr, xfer->length, addr, length);
    for (uint32_t i = 0; i < xfer->piece_count; i++) {
        if (ferry_range_overlaps(xfer->pieces[i].remote_addr, xfer->pieces[i].length, addr, length))
            return true;
    }
    return false;
}

enum ferry_status ferry_transport_probe(const struct ferry_transport_ops *ops,
                                        const struct ferry_config *config,
                                        struct ferry_transport_info *info_out)
{
    struct ferry_transport_info info = {.usable = false};
    enum ferry_status status = ops->probe(config, &info);

    if (status != FERRY_OK)
        return status;
    FERRY_ASSERT(memchr(info.reason, '\0', sizeof(info.reason)) != NULL);
    FERRY_ASSERT(info.usable == (info.reason[0] == '\0'));
    *info_out = info;
    return FERRY_OK;
}

enum ferry_status ferry_transport_open(const struct ferry_transport_ops *ops,
                                       const struct ferry_transport_env *env,
                                       struct ferry_transport **transport_out)
{
    struct ferry_transport *transport = NULL;
    enum ferry_status status;

    FERRY_ASSERT(ops->ops_version == FERRY_TRANSPORT_OPS_VERSION);
    FERRY_ASSERT(env->config != NULL);
    FERRY_ASSERT(env->clock != NULL);
    FERRY_ASSERT(env->random != NULL);
    FERRY_ASSERT(env->registry != NULL);
    FERRY_ASSERT(strlen(env->incarnation) == FERRY_INCARNATION_TEXT_SIZE - 1);

    status = ops->open(env, &transport);
    FERRY_ASSERT((status == FERRY_OK) == (transport != NULL));
    if (status != FERRY_OK)
        return status;
    transport->ops = ops;
    /* One that has started threads has set it before, since they may read it already. */
    if (transport->env == NULL)
        transport->env = env;
    *transport_out = transport;
    return FERRY_OK;
}

void ferry_transport_quiesce(struct ferry_transport *transport)
{
    transport->ops->quiesce(transport);
}

void ferry_transport_close(struct ferry_transport *transport)
{
    if (transport == NULL)
        return;
    transport->ops->close(transport);
}

static enum ferry_status check_attr(enum ferry_status status, char *attr, char **attr_out)
{
    if (status != FERRY_OK)
        return status;
    FERRY_ASSERT(attr != NULL);
    FERRY_ASSERT(strlen(attr) < FERRY_ATTR_TEXT_MAX);
    *attr_out = attr;
    return FERRY_OK;
}

enum ferry_status ferry_transport_describe(struct ferry_transport *transport, char **attr_out)
{
    enum ferry_status status;
    char *attr = NULL;

    FERRY_ASSERT(transport->ops->wire_id >= 0);
    status = transport->ops->describe(transport, &attr);
    return check_attr(status, attr, attr_out);
}

enum ferry_status ferry_transport_describe_buffer(struct ferry_transport *transport,
                                                  uint64_t registration_id,
                                                  enum ferry_permission permission, char **attr_out)
{
    enum ferry_status status;
    char *attr = NULL;

    FERRY_ASSERT(transport->ops->wire_id >= 0);
    FERRY_ASSERT(registration_id != 0);
    FERRY_ASSERT(permission != FERRY_PERMISSION_LOCAL);
    status = transport->ops->describe_buffer(transport, registration_id, permission, &attr);
    return check_attr(status, attr, attr_out);
}

enum ferry_status ferry_transport_add_buffer(struct ferry_transport *transport,
                                             const struct ferry_registry_buffer *buffer)
{
    enum ferry_status status;

    FERRY_ASSERT(buffer->registration_id != 0);
    FERRY_ASSERT(buffer->length > 0);
    status = transport->ops->add_buffer(transport, buffer);
    FERRY_ASSERT(known_status(status));
    return status;
}

enum ferry_status ferry_transport_remove_buffer(struct ferry_transport *transport,
                                                uint64_t registration_id, uint64_t deadline_ns)
{
    enum ferry_status status;

    FERRY_ASSERT(registration_id != 0);
    FERRY_ASSERT(deadline_ns != FERRY_NEVER_NS);
    status = transport->ops->remove_buffer(transport, registration_id, deadline_ns);
    FERRY_ASSERT(status == FERRY_OK || status == FERRY_ERR_BUSY);
    return status;
}

enum ferry_status ferry_transport_bootstrap(struct ferry_transport *transport, const char *text,
                                            size_t len, char **reply_out)
{
    enum ferry_status status;
    char *reply = NULL;

    status = transport->ops->bootstrap(transport, text, len, &reply);
    FERRY_ASSERT((status == FERRY_OK) == (reply != NULL));
    if (status == FERRY_OK)
        *reply_out = reply;
    return status;
}

enum ferry_status ferry_transport_target_open(struct ferry_transport *transport,
                                              const struct ferry_document *doc,
                                              struct ferry_target **target_out)
{
    struct ferry_target *target = NULL;
    enum ferry_status status;

    FERRY_ASSERT(doc != NULL);
    status = transport->ops->target_open(transport, doc, &target);
    FERRY_ASSERT((status == FERRY_OK) == (target != NULL));
    if (status != FERRY_OK)
        return status;
    FERRY_ASSERT(target->transport == transport);
    FERRY_ASSERT(target->max_transfer_bytes > 0);
    *target_out = target;
    return FERRY_OK;
}

enum ferry_status ferry_transport_files_open(struct ferry_transport *transport,
                                             const struct ferry_file_layout *layout,
                                             struct ferry_target **target_out)
{
    struct ferry_target *target = NULL;
    enum ferry_status status;

    FERRY_ASSERT((transport->ops->caps & FERRY_CAP_FILE) != 0);
    FERRY_ASSERT(layout->segment != NULL);
    for (uint32_t i = 0; i < layout->count; i++)
        FERRY_ASSERT((layout->parts[i].path == NULL) != (layout->parts[i].problem == NULL));
    status = transport->ops->files_open(transport, layout, &target);
    FERRY_ASSERT((status == FERRY_OK) == (target != NULL));
    if (status != FERRY_OK)
        return status;
    FERRY_ASSERT(target->transport == transport);
    FERRY_ASSERT(target->max_transfer_bytes > 0);
    *target_out = target;
    return FERRY_OK;
}

void ferry_transport_target_close(struct ferry_target *target)
{
    if (target == NULL)
        return;
    target->transport->ops->target_close(target);
}

enum ferry_reach ferry_transport_target_reach(struct ferry_target *target, uint64_t remote_addr,
                                              uint64_t length, char *why)
{
    enum ferry_reach reach;

    if (why != NULL)
        why[0] = '\0';
    reach = target->transport->ops->target_reach(target, remote_addr, length, why);
    FERRY_ASSERT(reach <= FERRY_REACH_NO);
    FERRY_ASSERT(why == NULL || memchr(why, '\0', FERRY_REACH_TEXT_SIZE) != NULL);
    FERRY_ASSERT(why == NULL || (reach == FERRY_REACH_YES) == (why[0] == '\0'));
    return reach;
}

void ferry_transport_target_explain(struct ferry_target *target, char *buf, size_t buf_len)
{
    FERRY_ASSERT(buf_len > 0);
    buf[0] = '\0';
    target->transport->ops->target_explain(target, buf, buf_len);
}

static void check_xfer(const struct ferry_transport *transport, const struct ferry_xfer *xfer)
{
    FERRY_DASSERT(xfer->opcode == FERRY_READ || xfer->opcode == FERRY_WRITE);
    FERRY_DASSERT(xfer->length > 0 || (transport->ops->caps & FERRY_CAP_FILE) != 0);
    FERRY_ASSERT((xfer->pieces != NULL) == (xfer->piece_count > 0));
    if (xfer->pieces != NULL) {
        FERRY_ASSERT(transport->ops->caps & FERRY_CAP_VECTOR);
        FERRY_DASSERT(xfer->local == NULL && xfer->remote_addr == 0);
    } else {
        FERRY_DASSERT(xfer->local != NULL);
        FERRY_DASSERT(ferry_range_ok((uintptr_t)xfer->local, xfer->length));
        FERRY_DASSERT(ferry_range_ok(xfer->remote_addr, xfer->length));
    }
    FERRY_DASSERT(xfer->length <= xfer->target->max_transfer_bytes);
    FERRY_ASSERT(xfer->target->transport == transport);
    FERRY_ASSERT(xfer->ended != NULL);
}

enum ferry_status ferry_transport_submit(struct ferry_transport *transport,
                                         struct ferry_xfer *const *xfers, uint32_t count)
{
    enum ferry_status status;

    FERRY_ASSERT(count > 0);
    for (uint32_t i = 0; i < count; i++)
        check_xfer(transport, xfers[i]);

    /* After success the xfers may be gone already: nothing is looked at again. */
    status = transport->ops->submit(transport, xfers, count);
    FERRY_ASSERT(known_status(status));
    return status;
}

void ferry_transport_cancel(struct ferry_transport *transport, struct ferry_xfer *xfer)
{
    FERRY_ASSERT(atomic_load(&xfer->cancel_asked));
    transport->ops->cancel(transport, xfer);
}

enum ferry_status ferry_transport_revoke(struct ferry_transport *transport, const void *addr,
                                         uint64_t length, uint64_t deadline_ns)
{
    enum ferry_status status;

    FERRY_ASSERT(length > 0);
    FERRY_ASSERT(deadline_ns != FERRY_NEVER_NS);
    status = transport->ops->revoke(transport, addr, length, deadline_ns);
    FERRY_ASSERT(known_status(status));
    return status;
}

void ferry_transport_report(struct ferry_transport *transport, struct json_object *object)
{
    FERRY_ASSERT(object != NULL);
    transport->ops->report(transport, object);
}

void ferry_transport_measure(struct ferry_transport *transport,
                             struct ferry_transport_totals *totals_out, ferry_path_fn *fn,
                             void *arg)
{
    FERRY_ASSERT(fn != NULL);
    *totals_out = (struct ferry_transport_totals){0};
    transport->ops->measure(transport, totals_out, fn, arg);
}
