/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hp_tcp as the runtime sees it: open, quiesce, close, cancel, revoke, and the table.
 *
 * Order of the end, written down once:
 *   1. admission closes: submit() answers "closing"
 *   2. each worker closes its listener, aborts its sessions, fails its lanes and their queues
 *   3. wait until nothing has I/O any more and every admitted task has ended: then nothing can
 * touch registered memory (end of quiesce)
 *   4. targets are closed by the runtime; the lanes of their peers retire
 *   5. wait for them, stop and join the workers, free (close)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/hp_tcp/attr.h"
#include "transport/hp_tcp/session.h"

/* How long quiesce and close look for the end of I/O before they say that something is wrong. */
#define END_WAIT_NS (5 * FERRY_NS_PER_S)

/* ---- what lives ---- */

void ferry_hp_live_add(struct hp_transport *transport)
{
    atomic_fetch_add(&transport->live, 1);
}

void ferry_hp_live_drop(struct hp_transport *transport)
{
    uint32_t before = atomic_fetch_sub(&transport->live, 1);

    FERRY_ASSERT(before > 0);
    /* The waiter of close() looks again; it may free the transport once live is 0, so the wake-up
     * uses the address only as a key. */
    if (before == 1)
        ferry_futex_wake(&transport->live, INT32_MAX);
}

/* Threadless workers are driven by whoever waits. */
static void turn_all(struct hp_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++)
        ferry_worker_turn(transport->workers[i].worker);
}

static void wait_for_none(struct hp_transport *transport, _Atomic uint32_t *word, const char *what)
{
    const struct ferry_clock *clock = transport->base.env->clock;
    uint64_t deadline_ns = ferry_deadline_ns(ferry_now_ns(clock), END_WAIT_NS);
    uint32_t turns = 0;
    uint32_t now;

    while ((now = atomic_load(word)) != 0) {
        if (transport->base.env->threadless) {
            turn_all(transport);
            FERRY_ASSERT(++turns < 1000000);
            continue;
        }
        if (ferry_now_ns(clock) >= deadline_ns) {
            ferry_error("hp_tcp", "still waiting for %u %s to end", now, what);
            deadline_ns = ferry_deadline_ns(ferry_now_ns(clock), END_WAIT_NS);
        }
        ferry_futex_wait(word, now, ferry_deadline_ns(ferry_now_ns(clock), 20 * FERRY_NS_PER_MS));
    }
}

/* ---- scans ---- */

static uint64_t earliest_deadline(const struct hp_worker *worker, uint64_t now_ns)
{
    uint64_t deadline = FERRY_NO_DEADLINE;

    for (const struct ferry_list *l = worker->lanes.next; l != &worker->lanes; l = l->next) {
        uint64_t lane = ferry_hp_lane_next_deadline(
            FERRY_CONTAINER_OF(l, const struct hp_lane, worker_link), now_ns);

        if (lane < deadline)
            deadline = lane;
    }
    return deadline;
}

static void close_everything(struct hp_worker *worker)
{
    struct ferry_list *link;

    ferry_hp_listeners_close(worker);
    for (link = worker->sessions.next; link != &worker->sessions; link = link->next)
        ferry_hp_session_abort(ferry_hp_session_of_link(link), "hp_tcp: the engine is closing");
    for (link = worker->lanes.next; link != &worker->lanes; link = link->next) {
        struct hp_lane *lane = FERRY_CONTAINER_OF(link, struct hp_lane, worker_link);

        ferry_hp_lane_close(lane, FERRY_ERR_CLOSING, 0, "hp_tcp: the engine is closing");
        ferry_hp_lane_mark_dirty(lane);
    }
}

static void scan(struct hp_worker *worker)
{
    struct ferry_reactor *reactor = ferry_hp_reactor(worker);
    uint64_t now = ferry_now_ns(worker->transport->base.env->clock);
    struct ferry_list *link;
    struct ferry_list *next;

    if (atomic_load(&worker->transport->closing))
        close_everything(worker);
    for (link = worker->lanes.next; link != &worker->lanes; link = link->next)
        ferry_hp_lane_scan(FERRY_CONTAINER_OF(link, struct hp_lane, worker_link), now);
    for (link = worker->sessions.next; link != &worker->sessions; link = next) {
        next = link->next;
        ferry_hp_session_scan(ferry_hp_session_of_link(link)); /* may free it */
    }
    ferry_hp_worker_flush(worker);
    now = earliest_deadline(worker, now);
    if (now < FERRY_NO_DEADLINE &&
        ferry_reactor_arm(reactor, &worker->deadline_timer, now) != FERRY_OK)
        ferry_hp_admission_fail(&worker->transport->admission, "no memory for a timer");
}

static void run_scan(struct ferry_worker *base, struct ferry_job *job)
{
    struct hp_worker *worker = FERRY_CONTAINER_OF(job, struct hp_worker, scan_job);

    (void)base;
    /* Cleared first: what is asked for from now on needs another scan. */
    atomic_store(&worker->scan_posted, false);
    scan(worker);
    atomic_fetch_add(&worker->scans_done, 1);
    atomic_fetch_add(&worker->transport->scan_word, 1);
    ferry_futex_wake(&worker->transport->scan_word, INT32_MAX);
}

static void on_deadline(struct ferry_timer *timer)
{
    scan(FERRY_CONTAINER_OF(timer, struct hp_worker, deadline_timer));
}

void ferry_hp_worker_post_scan(struct hp_worker *worker)
{
    if (!atomic_exchange(&worker->scan_posted, true))
        ferry_worker_post(worker->worker, &worker->scan_job, false);
}

void ferry_hp_scan_all(struct hp_transport *transport)
{
    for (uint32_t i = 0; i < transport->worker_count; i++)
        ferry_hp_worker_post_scan(&transport->workers[i]);
}

/* A name look-up ended somewhere. */
static void on_resolved(void *arg)
{
    ferry_hp_scan_all(arg);
}

static void hp_cancel(struct ferry_transport *base, struct ferry_xfer *xfer)
{
    /* The flow may have ended already and belong to another request: the scan finds it by the mark
     * that the runtime put on the xfer. */
    (void)xfer;
    ferry_hp_scan_all(ferry_hp_of(base));
}

/* ---- revoke ---- */

bool ferry_hp_xfer_revoked(struct hp_transport *transport, const struct ferry_xfer *xfer)
{
    bool found = false;

    if (atomic_load(&transport->revoking) == 0)
        return false;
    pthread_mutex_lock(&transport->mutex);
    for (struct ferry_list *l = transport->revocations.next; l != &transport->revocations;
         l = l->next) {
        const struct hp_revocation *r = FERRY_CONTAINER_OF(l, const struct hp_revocation, link);

        found |= ferry_xfer_touches_local(xfer, r->addr, r->length);
    }
    pthread_mutex_unlock(&transport->mutex);
    return found;
}

/* Every worker has begun and finished a scan since the marks in @before were taken. */
static bool scanned(const struct hp_transport *transport, const uint64_t *before)
{
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (atomic_load(&transport->workers[i].scans_done) <= before[i])
            return false;
    }
    return true;
}

/* Two rounds: a scan that was under way when the first was asked for may have missed the range. */
static enum ferry_status scan_and_wait(struct hp_transport *transport, uint64_t deadline_ns)
{
    const struct ferry_clock *clock = transport->base.env->clock;
    uint64_t before[FERRY_HP_WORKERS_MAX];

    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < transport->worker_count; i++)
            before[i] = atomic_load(&transport->workers[i].scans_done);
        ferry_hp_scan_all(transport);
        while (!scanned(transport, before)) {
            uint32_t word = atomic_load(&transport->scan_word);

            if (ferry_now_ns(clock) >= deadline_ns)
                return FERRY_ERR_BUSY;
            if (transport->base.env->threadless)
                turn_all(transport);
            else if (!scanned(transport, before))
                ferry_futex_wait(&transport->scan_word, word, deadline_ns);
        }
    }
    return FERRY_OK;
}

static enum ferry_status hp_revoke(struct ferry_transport *base, const void *addr, uint64_t length,
                                   uint64_t deadline_ns)
{
    struct hp_transport *transport = ferry_hp_of(base);
    struct hp_revocation revocation = {.addr = (uintptr_t)addr, .length = length};
    enum ferry_status status;

    pthread_mutex_lock(&transport->mutex);
    ferry_list_push_back(&transport->revocations, &revocation.link);
    pthread_mutex_unlock(&transport->mutex);
    atomic_fetch_add(&transport->revoking, 1);
    status = scan_and_wait(transport, deadline_ns);
    atomic_fetch_sub(&transport->revoking, 1);
    pthread_mutex_lock(&transport->mutex);
    ferry_list_remove(&revocation.link);
    pthread_mutex_unlock(&transport->mutex);
    return status;
}

/* ---- open and close ---- */

static enum ferry_status hp_probe(const struct ferry_config *config,
                                  struct ferry_transport_info *info_out)
{
    info_out->usable = ferry_config_bool(config, "transports.hp_tcp.enable");
    if (!info_out->usable)
        strcpy(info_out->reason, "transports.hp_tcp.enable is false");
    return FERRY_OK;
}

static enum ferry_status worker_open(struct hp_transport *transport, uint32_t index)
{
    const struct ferry_transport_env *env = transport->base.env;
    struct hp_worker *worker = &transport->workers[index];
    char name[24];
    struct ferry_worker_options options = {
        .name = name,
        .reactor = {.kind = transport->settings.reactor, .clock = env->clock},
        .reactor_ops = env->reactor_ops,
        .wait = transport->settings.wait,
        .spin_us = transport->settings.spin_us,
        .budget = env->budget,
        .threadless = env->threadless,
    };

    snprintf(name, sizeof(name), "ferry-hp-%u", index);
    worker->transport = transport;
    worker->index = index;
    worker->scan_job.run = run_scan;
    worker->deadline_timer.fire = on_deadline;
    ferry_list_init(&worker->listeners);
    ferry_list_init(&worker->lanes);
    ferry_list_init(&worker->sessions);
    ferry_list_init(&worker->pending);
    ferry_list_init(&worker->dirty);
    worker->sink = malloc(HP_SINK_BYTES);
    if (worker->sink == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for a worker");
    ferry_registry_reader_init(&worker->reader, env->registry);
    return ferry_worker_open(&options, &worker->worker);
}

/* Accepts a partly opened transport. Given: nothing has I/O. */
static void destroy(struct hp_transport *transport)
{
    ferry_resolver_close(transport->resolver);
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        struct hp_worker *worker = &transport->workers[i];

        ferry_worker_close(worker->worker);
        ferry_registry_reader_fini(&worker->reader);
        free(worker->sink);
    }
    ferry_hp_doubts_fini(transport);
    ferry_hp_answers_fini(&transport->answers);
    ferry_pool_fini(&transport->returns);
    ferry_pool_fini(&transport->flows);
    ferry_config_destroy(transport->config);
    pthread_mutex_destroy(&transport->doubt_mutex);
    pthread_mutex_destroy(&transport->mutex);
    free(transport->workers);
    free(transport);
}

/* Where the listener binds: as configured, else at the address that peers are told. */
static const char *bind_host(const struct hp_transport *transport)
{
    const char *host = transport->settings.bind_address;
    struct ferry_hostport place;

    if (host[0] != '\0')
        return host;
    if (ferry_host_parse(transport->advertise_host, &place) == FERRY_OK &&
        place.kind != FERRY_HOST_NAME)
        return transport->advertise_host;
    return "0.0.0.0";
}

static enum ferry_status start(struct hp_transport *transport)
{
    const struct ferry_transport_env *env = transport->base.env;
    enum ferry_status status;
    size_t len;

    status = ferry_hex_decode(env->incarnation, transport->incarnation,
                              sizeof(transport->incarnation), &len);
    if (status == FERRY_OK)
        status = ferry_pool_init(&transport->flows, sizeof(struct hp_flow),
                                 transport->settings.max_outstanding_tasks);
    if (status == FERRY_OK)
        status = ferry_pool_init(&transport->returns, sizeof(struct hp_return), HP_RETURNS_MAX);
    if (status == FERRY_OK && !env->threadless)
        status = ferry_resolver_open(on_resolved, transport, &transport->resolver);
    for (uint32_t i = 0; status == FERRY_OK && i < transport->settings.worker_count; i++) {
        transport->worker_count = i + 1;
        status = worker_open(transport, i);
    }
    if (status != FERRY_OK)
        return status;
    transport->advertise_host = transport->settings.advertise_address[0] != '\0'
                                    ? transport->settings.advertise_address
                                    : env->advertise_host;
    if (transport->settings.rail_count > 0)
        transport->advertise_host = transport->settings.rails[0];
    return ferry_hp_listeners_open(&transport->workers[0], bind_host(transport), &transport->port);
}

static enum ferry_status create(const struct ferry_transport_env *env,
                                struct hp_transport **transport_out)
{
    struct hp_transport *transport = calloc(1, sizeof(*transport));
    enum ferry_status status;

    if (transport == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory");
    transport->base.env = env;
    transport->net = env->net != NULL ? env->net : &ferry_net_system;
    pthread_mutex_init(&transport->mutex, NULL);
    ferry_list_init(&transport->peers);
    ferry_list_init(&transport->revocations);
    pthread_mutex_init(&transport->doubt_mutex, NULL);
    ferry_list_init(&transport->doubts);
    ferry_list_init(&transport->doubts_parked);
    atomic_store(&transport->next_request_id, 1);
    status = ferry_config_copy(env->config, &transport->config);
    if (status == FERRY_OK)
        status = ferry_hp_settings_read(transport->config, &transport->settings);
    if (status == FERRY_OK) {
        ferry_hp_answers_init(&transport->answers, transport->settings.resolve_answers_max,
                              transport->settings.resolve_keep_ns);
        transport->admission.tasks_max = transport->settings.max_outstanding_tasks;
        transport->admission.bytes_max = transport->settings.max_outstanding_bytes;
        transport->workers = calloc(transport->settings.worker_count, sizeof(*transport->workers));
        if (transport->workers == NULL)
            status = ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for workers");
    }
    if (status != FERRY_OK) {
        destroy(transport);
        return status;
    }
    *transport_out = transport;
    return FERRY_OK;
}

static enum ferry_status hp_open(const struct ferry_transport_env *env,
                                 struct ferry_transport **transport_out)
{
    struct hp_transport *transport = NULL;
    enum ferry_status status = create(env, &transport);

    if (status != FERRY_OK)
        return status;
    status = start(transport);
    if (status != FERRY_OK) {
        destroy(transport);
        return status;
    }
    *transport_out = &transport->base;
    return FERRY_OK;
}

static void hp_quiesce(struct ferry_transport *base)
{
    struct hp_transport *transport = ferry_hp_of(base);

    atomic_store(&transport->admission.closed, true);
    atomic_store(&transport->closing, 1);
    ferry_hp_scan_all(transport);
    wait_for_none(transport, &transport->live, "connections");
    wait_for_none(transport, &transport->admission.tasks, "tasks");
    /* A worker may be between the last count and the call that tells the end: a job after it is
     * not. */
    if (scan_and_wait(transport, ferry_deadline_ns(ferry_now_ns(transport->base.env->clock),
                                                   END_WAIT_NS)) != FERRY_OK)
        ferry_error("hp_tcp", "a worker does not answer while closing");
}

static void hp_close(struct ferry_transport *base)
{
    struct hp_transport *transport = ferry_hp_of(base);

    wait_for_none(transport, &transport->live, "retiring peers");
    destroy(transport);
}

const struct ferry_transport_ops ferry_hp_tcp_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "hp_tcp",
    .wire_id = FERRY_HP_TCP_WIRE_ID,
    .caps = FERRY_CAP_VECTOR | FERRY_CAP_DRAM | FERRY_CAP_CANCEL | FERRY_CAP_REVOKE,
    .options = &ferry_hp_option_table,
    .probe = hp_probe,
    .open = hp_open,
    .quiesce = hp_quiesce,
    .close = hp_close,
    .describe = ferry_hp_describe,
    .describe_buffer = ferry_hp_describe_buffer,
    .target_open = ferry_hp_target_open,
    .target_close = ferry_hp_target_close,
    .target_explain = ferry_hp_target_explain,
    .submit = ferry_hp_submit,
    .cancel = hp_cancel,
    .revoke = hp_revoke,
    .report = ferry_hp_report,
    .measure = ferry_hp_measure,
};
