/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ub as the runtime sees it: probe, open, quiesce, close, cancel, revoke, and the table.
 *
 * Order of the end, written down once:
 *   1. `closing` is set: submit() refuses, no endpoint is begun or accepted any more
 *   2. every flow stops, every endpoint is fenced, decided upon and destroyed; calls to peers and
 *      jobs of the pool end
 *   3. wait until no task and nothing living is left; past its patience the transport abandons what
 *      a device holds on to: its memory stays leased and registered for ever, and close() says so
 *      (end of quiesce)
 *   4. targets are closed by the runtime; their imports are released, workers let go of the peers
 *   5. workers stop, ranges are unregistered, queues and contexts closed, the library let go of
 *      (close); what the provider will not close is left as it is, and the library with it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/ub/internal.h"

#define PATIENCE_NS (2 * FERRY_NS_PER_S)
#define NAP_NS      (20 * FERRY_NS_PER_MS)
#define POOL_MAX    4u
#define CLOSE_TRIES 200u

/* ---- what lives ---- */

void ferry_ub_live_add(struct ub_transport *transport)
{
    atomic_fetch_add(&transport->living, 1);
}

void ferry_ub_live_drop(struct ub_transport *transport)
{
    uint32_t before = atomic_fetch_sub(&transport->living, 1);

    FERRY_ASSERT(before > 0);
    /* Whoever waits may free the transport once it is 0; the address is only a key. */
    if (before == 1)
        ferry_futex_wake(&transport->living, INT32_MAX);
}

static uint32_t turn_all(struct ub_transport *transport)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < transport->worker_count; i++)
        count += ferry_worker_turn(transport->workers[i].worker);
    return count;
}

uint32_t ferry_ub_turn(struct ferry_transport *transport)
{
    return turn_all(ferry_ub_of(transport));
}

static void kick_all(struct ub_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        atomic_store(&transport->workers[i].scan_asked, true);
        ferry_ub_worker_kick(&transport->workers[i]);
    }
}

/* One step of waiting for @word to change from @seen. */
static void wait_step(struct ub_transport *transport, _Atomic uint32_t *word, uint32_t seen)
{
    const struct ferry_transport_env *env = transport->base.env;

    if (!env->threadless) {
        ferry_futex_wait(word, seen, ferry_deadline_ns(ferry_now_ns(env->clock), NAP_NS));
        return;
    }
    if (turn_all(transport) == 0 && env->step != NULL)
        env->step(env->step_arg);
}

/* False if it is not 0 by the deadline. */
static bool wait_for_none(struct ub_transport *transport, _Atomic uint32_t *word,
                          uint64_t deadline_ns)
{
    uint32_t now;

    while ((now = atomic_load(word)) != 0) {
        if (ferry_ub_now(transport) >= deadline_ns)
            return false;
        wait_step(transport, word, now);
    }
    return true;
}

/* ---- cancel and revoke ---- */

static void ub_cancel(struct ferry_transport *base, struct ferry_xfer *xfer)
{
    /* It may have ended already; the mark on it is found by whoever holds its pieces. */
    (void)xfer;
    kick_all(ferry_ub_of(base));
}

bool ferry_ub_range_revoked(struct ub_transport *transport, const void *addr, uint64_t length)
{
    bool found = false;

    if (atomic_load(&transport->revoking) == 0)
        return false;
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->revocations.next; l != &transport->revocations;
         l = l->next) {
        const struct ub_revocation *r = FERRY_CONTAINER_OF(l, const struct ub_revocation, link);

        found |= ferry_range_overlaps((uintptr_t)addr, length, r->addr, r->length);
    }
    pthread_mutex_unlock(&transport->mutex);
    return found;
}

/* Every worker has scanned twice since @before, and found nothing of a revoked range left. */
static bool range_quiet(struct ub_transport *transport, const uint64_t *before)
{
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (atomic_load(&transport->workers[i].scans) < before[i] + 2 ||
            atomic_load(&transport->workers[i].touching) > 0)
            return false;
    }
    return true;
}

/* Flows that touch the range are stopped, and what is in flight of them is fenced. */
static enum ferry_status ub_revoke(struct ferry_transport *base, const void *addr, uint64_t length,
                                   uint64_t deadline_ns)
{
    struct ub_transport *transport = ferry_ub_of(base);
    struct ub_revocation revocation = {.addr = (uintptr_t)addr, .length = length};
    uint64_t before[FERRY_UB_WORKERS_MAX];
    bool quiet = false;

    pthread_mutex_lock(&transport->mutex);
    ferry_list_push_back(&transport->revocations, &revocation.link);
    pthread_mutex_unlock(&transport->mutex);
    atomic_fetch_add(&transport->revoking, 1);
    for (uint32_t i = 0; i < transport->worker_count; i++)
        before[i] = atomic_load(&transport->workers[i].scans);
    while (!(quiet = range_quiet(transport, before)) && ferry_ub_now(transport) < deadline_ns) {
        uint32_t word = atomic_load(&transport->scan_word);

        kick_all(transport);
        wait_step(transport, &transport->scan_word, word);
    }
    atomic_fetch_sub(&transport->revoking, 1);
    pthread_mutex_lock(&transport->mutex);
    ferry_list_remove(&revocation.link);
    pthread_mutex_unlock(&transport->mutex);
    if (!quiet)
        return ferry_fail(FERRY_ERR_BUSY, "ub: a device could not be fenced in time");
    return FERRY_OK;
}

void ferry_ub_leak(struct ub_transport *transport, const void *addr, uint64_t length)
{
    struct ferry_lease_request request = {
        .addr = (uintptr_t)addr, .length = length, .access = FERRY_ACCESS_LOCAL};
    struct ferry_registry_reader reader;
    struct ferry_lease lease = {0};

    /* Never released: whoever closes the registry finds it, and leaves the memory alone. */
    ferry_registry_reader_init(&reader, transport->base.env->registry);
    if (ferry_lease_acquire(&reader, &request, &lease) != FERRY_OK)
        ferry_error("ub", "a range that a device holds on to cannot be kept registered");
    ferry_registry_reader_fini(&reader);
    atomic_fetch_add(&transport->leaked, 1);
}

/* ---- probe ---- */

static enum ferry_status find_adapter(const struct ferry_config *config,
                                      const struct ferry_urma_ops **ops_out)
{
    const char *path = ferry_config_string(config, "transports.ub.adapter");

    if (path[0] != '\0')
        return ferry_urma_load(path, ops_out);
    *ops_out = ferry_urma_builtin();
    if (*ops_out == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "this build has no liburma (urma_prefix), and transports.ub.adapter is "
                          "not set");
    return FERRY_OK;
}

/* Whether there is a library, a provider and a device takes opening them: open() says it. */
static enum ferry_status ub_probe(const struct ferry_config *config,
                                  struct ferry_transport_info *info_out)
{
    (void)config;
    info_out->usable = true;
    return FERRY_OK;
}

/* ---- open ---- */

static void log_native(void *arg, int level, const char *text)
{
    (void)arg;
    /* Its levels are syslog's; its errors are mostly about what we see and say ourselves. */
    if (level <= 3)
        ferry_info("urma", "%.200s", text);
    else
        ferry_debug("urma", "%.200s", text);
}

static enum ferry_status open_urma(struct ub_transport *transport)
{
    const struct ferry_urma_seam *seam = transport->base.env->urma;
    struct ferry_urma_open_options options = {.log = log_native};
    const struct ferry_urma_ops *ops;
    struct ferry_urma_status native;
    enum ferry_status status = FERRY_OK;

    if (seam != NULL) {
        ops = seam->ops;
        options.self = seam->self;
    } else {
        status = find_adapter(transport->config, &ops);
    }
    if (status != FERRY_OK)
        return status;
    native = ferry_urma_open(ops, &options, &transport->urma);
    if (native.class != FERRY_URMA_OK)
        return ferry_fail(FERRY_ERR_DEVICE,
                          "ub: %s cannot start (native %d): is a provider installed?", ops->name,
                          native.native);
    return FERRY_OK;
}

static void init_lists(struct ub_transport *transport)
{
    pthread_mutex_init(&transport->mutex, NULL);
    pthread_mutex_init(&transport->import_mutex, NULL);
    pthread_mutex_init(&transport->buffer_mutex, NULL);
    ferry_list_init(&transport->endpoints);
    ferry_list_init(&transport->peers);
    ferry_list_init(&transport->targets);
    ferry_list_init(&transport->revocations);
    ferry_list_init(&transport->zombies);
    ferry_list_init(&transport->buffers);
}

static enum ferry_status create(const struct ferry_transport_env *env,
                                struct ub_transport **transport_out)
{
    struct ub_transport *transport = calloc(1, sizeof(*transport));
    enum ferry_status status;

    if (transport == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory");
    transport->base.env = env;
    init_lists(transport);
    *transport_out = transport;
    status = ferry_config_copy(env->config, &transport->config);
    if (status == FERRY_OK)
        status = ferry_ub_settings_read(transport->config, &transport->settings);
    if (status != FERRY_OK)
        return status;
    transport->worker_count = transport->settings.worker_count;
    transport->workers = calloc(transport->worker_count, sizeof(*transport->workers));
    transport->ctxs = calloc(FERRY_UB_CONTEXTS_MAX, sizeof(*transport->ctxs));
    for (uint32_t i = 0; transport->ctxs != NULL && i < FERRY_UB_CONTEXTS_MAX; i++) {
        transport->ctxs[i].jfcs = calloc(transport->worker_count, sizeof(struct ub_jfc));
        if (transport->ctxs[i].jfcs == NULL)
            return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory");
    }
    if (transport->workers == NULL || transport->ctxs == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "ub: out of memory");
    ferry_device_store_init(&transport->store, transport->settings.max_endpoints);
    ferry_device_quota_init(&transport->admission, transport->settings.max_outstanding_bytes,
                            transport->settings.max_outstanding_tasks);
    return ferry_pool_init(&transport->flows, sizeof(struct ub_flow),
                           transport->settings.max_outstanding_tasks);
}

static enum ferry_status start(struct ub_transport *transport)
{
    const struct ferry_transport_env *env = transport->base.env;
    enum ferry_status status = FERRY_OK;
    size_t len;

    status = ferry_hex_decode(env->incarnation, transport->incarnation,
                              sizeof(transport->incarnation), &len);
    /* A source of generations that an earlier life of this engine is unlikely to have used. */
    atomic_store(&transport->generations, ferry_random_u64(env->random) >> 20);
    if (status == FERRY_OK)
        status = open_urma(transport);
    if (status == FERRY_OK && !env->threadless)
        status = ferry_offload_open("ferry-ub-pool", POOL_MAX, &transport->pool);
    if (status == FERRY_OK)
        status = ferry_ub_contexts_open(transport);
    for (uint32_t i = 0; i < transport->worker_count && status == FERRY_OK; i++)
        status = ferry_ub_worker_open(transport, i);
    return status;
}

/* ---- the end ---- */

static bool close_contexts(struct ub_transport *transport)
{
    bool gone = ferry_ub_zombies_retry(transport);

    for (uint32_t i = 0; i < transport->ctx_count; i++)
        gone = ferry_ub_context_close(&transport->ctxs[i]) && gone;
    return gone;
}

static void nap(struct ub_transport *transport)
{
    struct timespec pause = {.tv_nsec = FERRY_NS_PER_MS};

    if (transport->base.env->threadless && transport->base.env->step != NULL)
        transport->base.env->step(transport->base.env->step_arg);
    else if (!transport->base.env->threadless)
        nanosleep(&pause, NULL);
}

static void close_native(struct ub_transport *transport)
{
    bool gone = transport->urma.ops == NULL;

    if (gone)
        return;
    for (uint32_t i = 0; i < CLOSE_TRIES && !gone; i++) {
        gone = atomic_load(&transport->leaked) == 0 && close_contexts(transport);
        if (atomic_load(&transport->leaked) > 0)
            break;
        if (!gone)
            nap(transport);
    }
    if (gone)
        gone = ferry_urma_close(&transport->urma).class == FERRY_URMA_OK;
    if (!gone)
        ferry_error("ub", "a device does not let go; its objects stay as they are");
}

/* Accepts a partly opened transport. Given: nothing lives. */
static void destroy(struct ub_transport *transport)
{
    for (uint32_t i = 0; transport->workers != NULL && i < transport->worker_count; i++)
        ferry_ub_worker_close(&transport->workers[i]);
    ferry_offload_close(transport->pool);
    close_native(transport);
    ferry_ub_buffers_free(transport);
    ferry_pool_fini(&transport->flows);
    for (uint32_t i = 0; transport->ctxs != NULL && i < FERRY_UB_CONTEXTS_MAX; i++)
        free(transport->ctxs[i].jfcs);
    free(transport->ctxs);
    free(transport->workers);
    ferry_config_destroy(transport->config);
    pthread_mutex_destroy(&transport->mutex);
    pthread_mutex_destroy(&transport->import_mutex);
    pthread_mutex_destroy(&transport->buffer_mutex);
    free(transport);
}

static enum ferry_status ub_open(const struct ferry_transport_env *env,
                                 struct ferry_transport **transport_out)
{
    struct ub_transport *transport = NULL;
    enum ferry_status status = create(env, &transport);

    if (status == FERRY_OK)
        status = start(transport);
    if (status == FERRY_OK) {
        *transport_out = &transport->base;
        return FERRY_OK;
    }
    if (transport != NULL) {
        char cause[FERRY_ERROR_TEXT_SIZE];

        snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
        destroy(transport);
        return ferry_fail(status, "%s", cause);
    }
    return status;
}

static void ub_quiesce(struct ferry_transport *base)
{
    struct ub_transport *transport = ferry_ub_of(base);
    uint64_t patience_ns = PATIENCE_NS + 3 * transport->settings.fence_timeout_ns;

    atomic_store(&transport->closing, 1);
    kick_all(transport);
    if (wait_for_none(transport, &transport->unfinished,
                      ferry_deadline_ns(ferry_ub_now(transport), patience_ns)) &&
        wait_for_none(transport, &transport->living,
                      ferry_deadline_ns(ferry_ub_now(transport), patience_ns)))
        return;
    /* A device that cannot be fenced: end the tasks, keep what it may touch. */
    atomic_store(&transport->abandon, true);
    kick_all(transport);
    while (!wait_for_none(transport, &transport->unfinished,
                          ferry_deadline_ns(ferry_ub_now(transport), PATIENCE_NS)) ||
           !wait_for_none(transport, &transport->living,
                          ferry_deadline_ns(ferry_ub_now(transport), PATIENCE_NS))) {
        ferry_error("ub", "still waiting for %u tasks and %u endpoints to end",
                    atomic_load(&transport->unfinished), atomic_load(&transport->living));
        kick_all(transport);
    }
}

static void ub_close(struct ferry_transport *base)
{
    struct ub_transport *transport = ferry_ub_of(base);

    /* Workers let go of the peers whose targets were closed since. */
    while (!wait_for_none(transport, &transport->living,
                          ferry_deadline_ns(ferry_ub_now(transport), PATIENCE_NS)))
        ferry_error("ub", "still waiting for %u peers to be let go of",
                    atomic_load(&transport->living));
    destroy(transport);
}

const struct ferry_transport_ops ferry_ub_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "ub",
    .wire_id = FERRY_UB_WIRE_ID,
    .caps = FERRY_CAP_DRAM | FERRY_CAP_CANCEL | FERRY_CAP_REVOKE,
    .options = &ferry_ub_option_table,
    .probe = ub_probe,
    .open = ub_open,
    .quiesce = ub_quiesce,
    .close = ub_close,
    .describe = ferry_ub_describe,
    .describe_buffer = ferry_ub_describe_buffer,
    .add_buffer = ferry_ub_add_buffer,
    .remove_buffer = ferry_ub_remove_buffer,
    .bootstrap = ferry_ub_bootstrap,
    .target_open = ferry_ub_target_open,
    .target_close = ferry_ub_target_close,
    .target_explain = ferry_ub_target_explain,
    .submit = ferry_ub_submit,
    .cancel = ub_cancel,
    .revoke = ub_revoke,
    .report = ferry_ub_report,
    .measure = ferry_ub_measure,
};
