/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only caller through the table of native UB calls: it asserts what urma.h promises on both
 * sides of every call. Any thread; holds no state, decides nothing, retries nothing.
 */
#include "foreign/urma.h"

#include <dlfcn.h>

#include "base/assert.h"
#include "base/error.h"

const char *ferry_urma_class_name(enum ferry_urma_class class)
{
    static const char *const names[FERRY_URMA_CLASS_COUNT] = {
        [FERRY_URMA_OK] = "ok",
        [FERRY_URMA_BUSY] = "busy",
        [FERRY_URMA_DEVICE] = "device",
        [FERRY_URMA_PATH] = "path",
        [FERRY_URMA_ENDPOINT] = "endpoint",
        [FERRY_URMA_MEMORY] = "memory",
        [FERRY_URMA_TIMEOUT] = "timeout",
        [FERRY_URMA_FLUSHED] = "flushed",
        [FERRY_URMA_CALLER] = "caller",
        [FERRY_URMA_UNKNOWN] = "unknown",
    };

    return (unsigned)class < FERRY_URMA_CLASS_COUNT ? names[class] : "?";
}

#ifndef FERRY_HAVE_LIBURMA
const struct ferry_urma_ops *ferry_urma_builtin(void)
{
    return NULL;
}
#endif

enum ferry_status ferry_urma_load(const char *path, const struct ferry_urma_ops **ops_out)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ferry_urma_adapter_fn *adapter;
    const struct ferry_urma_ops *ops;

    if (object == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "urma: the adapter cannot be loaded: %s",
                          dlerror());
    /* POSIX has functions come out of dlsym() as data. */
    *(void **)&adapter = dlsym(object, FERRY_URMA_ADAPTER_SYMBOL);
    ops = adapter != NULL ? adapter() : NULL;
    if (ops == NULL || ops->ops_version != FERRY_URMA_OPS_VERSION) {
        dlclose(object);
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "urma: \"%s\" exports no adapter of table version %u", path,
                          FERRY_URMA_OPS_VERSION);
    }
    *ops_out = ops;
    return FERRY_OK;
}

static struct ferry_urma_status checked(struct ferry_urma_status status)
{
    FERRY_ASSERT((unsigned)status.class < FERRY_URMA_CLASS_COUNT);
    return status;
}

/* A new object is there if and only if the call succeeded. */
static struct ferry_urma_status made(struct ferry_urma_status status, const void *object)
{
    FERRY_ASSERT((status.class == FERRY_URMA_OK) == (object != NULL));
    return checked(status);
}

/* A destroyed one is gone if and only if the call succeeded. */
static struct ferry_urma_status gone(struct ferry_urma_status status, const void *object)
{
    FERRY_ASSERT((status.class == FERRY_URMA_OK) == (object == NULL));
    return checked(status);
}

#define NOTHING_TO_DO ((struct ferry_urma_status){.class = FERRY_URMA_OK})

struct ferry_urma_status ferry_urma_open(const struct ferry_urma_ops *ops,
                                         const struct ferry_urma_open_options *options,
                                         struct ferry_urma *urma_out)
{
    struct ferry_urma_runtime *runtime = NULL;
    struct ferry_urma_status status;

    FERRY_ASSERT(ops->ops_version == FERRY_URMA_OPS_VERSION);
    status = ops->open(options, &runtime);
    if (status.class == FERRY_URMA_OK)
        *urma_out = (struct ferry_urma){.ops = ops, .runtime = runtime};
    return made(status, runtime);
}

struct ferry_urma_status ferry_urma_close(struct ferry_urma *urma)
{
    struct ferry_urma_status status;

    if (urma->runtime == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->close(&urma->runtime);
    return gone(status, urma->runtime);
}

void ferry_urma_fingerprint(const struct ferry_urma *urma, char *buf, size_t size)
{
    FERRY_ASSERT(size > 0);
    urma->ops->fingerprint(urma->runtime, buf, size);
}

struct ferry_urma_status ferry_urma_list_devices(const struct ferry_urma *urma,
                                                 struct ferry_urma_device *rows, uint32_t capacity,
                                                 uint32_t *count_out)
{
    struct ferry_urma_status status;

    *count_out = 0;
    status = urma->ops->list_devices(urma->runtime, rows, capacity, count_out);
    FERRY_ASSERT(*count_out <= capacity);
    return checked(status);
}

struct ferry_urma_status ferry_urma_ctx_open(const struct ferry_urma *urma,
                                             const struct ferry_urma_ctx_options *options,
                                             struct ferry_urma_ctx **ctx_out)
{
    struct ferry_urma_ctx *ctx = NULL;
    struct ferry_urma_status status = urma->ops->ctx_open(urma->runtime, options, &ctx);

    if (status.class == FERRY_URMA_OK)
        *ctx_out = ctx;
    return made(status, ctx);
}

void ferry_urma_ctx_info(const struct ferry_urma *urma, struct ferry_urma_ctx *ctx,
                         struct ferry_urma_ctx_info *info_out)
{
    urma->ops->ctx_info(ctx, info_out);
}

struct ferry_urma_status ferry_urma_ctx_refresh(const struct ferry_urma *urma,
                                                struct ferry_urma_ctx *ctx,
                                                struct ferry_urma_ctx_state *state_out)
{
    return checked(urma->ops->ctx_refresh(ctx, state_out));
}

struct ferry_urma_status ferry_urma_ctx_close(const struct ferry_urma *urma,
                                              struct ferry_urma_ctx **ctx)
{
    struct ferry_urma_status status;

    if (*ctx == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->ctx_close(ctx);
    return gone(status, *ctx);
}

struct ferry_urma_status ferry_urma_event_next(const struct ferry_urma *urma,
                                               struct ferry_urma_ctx *ctx,
                                               struct ferry_urma_event *event_out)
{
    *event_out = (struct ferry_urma_event){.kind = FERRY_URMA_EVENT_NONE};
    return checked(urma->ops->event_next(ctx, event_out));
}

struct ferry_urma_status ferry_urma_cq_create(const struct ferry_urma *urma,
                                              struct ferry_urma_ctx *ctx,
                                              const struct ferry_urma_cq_options *options,
                                              struct ferry_urma_cq **cq_out)
{
    struct ferry_urma_cq *cq = NULL;
    struct ferry_urma_status status;

    FERRY_ASSERT(options->depth > 0);
    status = urma->ops->cq_create(ctx, options, &cq);
    if (status.class == FERRY_URMA_OK)
        *cq_out = cq;
    return made(status, cq);
}

int ferry_urma_cq_fd(const struct ferry_urma *urma, struct ferry_urma_cq *cq)
{
    return urma->ops->cq_fd(cq);
}

struct ferry_urma_status ferry_urma_cq_arm(const struct ferry_urma *urma, struct ferry_urma_cq *cq)
{
    return checked(urma->ops->cq_arm(cq));
}

struct ferry_urma_status ferry_urma_cq_ack_events(const struct ferry_urma *urma,
                                                  struct ferry_urma_cq *cq, uint32_t *count_out)
{
    *count_out = 0;
    return checked(urma->ops->cq_ack_events(cq, count_out));
}

struct ferry_urma_status ferry_urma_cq_poll(const struct ferry_urma *urma, struct ferry_urma_cq *cq,
                                            struct ferry_urma_completion *out, uint32_t capacity,
                                            uint32_t *count_out)
{
    struct ferry_urma_status status;

    FERRY_DASSERT(capacity > 0);
    FERRY_DASSERT(capacity <= FERRY_URMA_POLL_MAX);
    *count_out = 0;
    status = urma->ops->cq_poll(cq, out, capacity, count_out);
    FERRY_ASSERT(*count_out <= capacity);
    return checked(status);
}

struct ferry_urma_status ferry_urma_cq_destroy(const struct ferry_urma *urma,
                                               struct ferry_urma_cq **cq)
{
    struct ferry_urma_status status;

    if (*cq == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->cq_destroy(cq);
    return gone(status, *cq);
}

struct ferry_urma_status ferry_urma_mem_register(const struct ferry_urma *urma,
                                                 struct ferry_urma_ctx *ctx,
                                                 const struct ferry_urma_mem_spec *spec,
                                                 struct ferry_urma_mem **mem_out)
{
    struct ferry_urma_mem *mem = NULL;
    struct ferry_urma_status status;

    FERRY_ASSERT(spec->addr != NULL);
    FERRY_ASSERT(spec->length > 0);
    status = urma->ops->mem_register(ctx, spec, &mem);
    if (status.class == FERRY_URMA_OK)
        *mem_out = mem;
    return made(status, mem);
}

void ferry_urma_mem_export(const struct ferry_urma *urma, struct ferry_urma_mem *mem,
                           struct ferry_urma_descriptor *descriptor_out)
{
    urma->ops->mem_export(mem, descriptor_out);
    FERRY_ASSERT(descriptor_out->tail_len <= FERRY_URMA_TAIL_MAX);
}

struct ferry_urma_status ferry_urma_mem_unregister(const struct ferry_urma *urma,
                                                   struct ferry_urma_mem **mem)
{
    struct ferry_urma_status status;

    if (*mem == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->mem_unregister(mem);
    return gone(status, *mem);
}

struct ferry_urma_status ferry_urma_rmem_import(const struct ferry_urma *urma,
                                                struct ferry_urma_ctx *ctx,
                                                const struct ferry_urma_import *import,
                                                struct ferry_urma_rmem **rmem_out)
{
    struct ferry_urma_rmem *rmem = NULL;
    struct ferry_urma_status status = urma->ops->rmem_import(ctx, import->descriptor, import->token,
                                                             import->access, &rmem);

    if (status.class == FERRY_URMA_OK)
        *rmem_out = rmem;
    return made(status, rmem);
}

struct ferry_urma_status ferry_urma_rmem_release(const struct ferry_urma *urma,
                                                 struct ferry_urma_rmem **rmem)
{
    struct ferry_urma_status status;

    if (*rmem == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->rmem_release(rmem);
    return gone(status, *rmem);
}

struct ferry_urma_status ferry_urma_jetty_create(const struct ferry_urma *urma,
                                                 struct ferry_urma_ctx *ctx,
                                                 struct ferry_urma_cq *cq,
                                                 const struct ferry_urma_jetty_options *options,
                                                 struct ferry_urma_jetty **jetty_out)
{
    struct ferry_urma_jetty *jetty = NULL;
    struct ferry_urma_status status = urma->ops->jetty_create(ctx, cq, options, &jetty);

    if (status.class == FERRY_URMA_OK)
        *jetty_out = jetty;
    return made(status, jetty);
}

void ferry_urma_jetty_info(const struct ferry_urma *urma, struct ferry_urma_jetty *jetty,
                           struct ferry_urma_jetty_info *info_out)
{
    urma->ops->jetty_info(jetty, info_out);
    FERRY_ASSERT(info_out->id != 0);
}

struct ferry_urma_status ferry_urma_jetty_connect(const struct ferry_urma *urma,
                                                  struct ferry_urma_jetty *jetty,
                                                  const struct ferry_urma_peer *peer)
{
    FERRY_ASSERT(peer->tail_len <= FERRY_URMA_TAIL_MAX);
    return checked(urma->ops->jetty_connect(jetty, peer));
}

struct ferry_urma_status ferry_urma_jetty_post(const struct ferry_urma *urma,
                                               struct ferry_urma_jetty *jetty,
                                               const struct ferry_urma_request *requests,
                                               uint32_t count,
                                               struct ferry_urma_post_result *result_out)
{
    struct ferry_urma_status status;

    FERRY_DASSERT(count > 0);
    FERRY_DASSERT(count <= FERRY_URMA_POST_MAX);
    *result_out = (struct ferry_urma_post_result){.known = true};
    status = urma->ops->jetty_post(jetty, requests, count, result_out);
    FERRY_ASSERT(result_out->accepted <= count);
    FERRY_ASSERT(status.class != FERRY_URMA_OK || result_out->accepted == count);
    FERRY_ASSERT(result_out->known || status.class == FERRY_URMA_UNKNOWN);
    return checked(status);
}

struct ferry_urma_status ferry_urma_jetty_set_error(const struct ferry_urma *urma,
                                                    struct ferry_urma_jetty *jetty)
{
    return checked(urma->ops->jetty_set_error(jetty));
}

struct ferry_urma_status ferry_urma_jetty_flush(const struct ferry_urma *urma,
                                                struct ferry_urma_jetty *jetty,
                                                struct ferry_urma_completion *out,
                                                uint32_t capacity, uint32_t *count_out)
{
    struct ferry_urma_status status;

    FERRY_ASSERT(capacity > 0);
    *count_out = 0;
    status = urma->ops->jetty_flush(jetty, out, capacity, count_out);
    FERRY_ASSERT(*count_out <= capacity);
    return checked(status);
}

struct ferry_urma_status ferry_urma_jetty_disconnect(const struct ferry_urma *urma,
                                                     struct ferry_urma_jetty *jetty)
{
    return checked(urma->ops->jetty_disconnect(jetty));
}

struct ferry_urma_status ferry_urma_jetty_destroy(const struct ferry_urma *urma,
                                                  struct ferry_urma_jetty **jetty)
{
    struct ferry_urma_status status;

    if (*jetty == NULL)
        return NOTHING_TO_DO;
    status = urma->ops->jetty_destroy(jetty);
    return gone(status, *jetty);
}
