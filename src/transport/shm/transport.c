/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm as the runtime sees it: open, quiesce, close, cancel, revoke, and the table.
 *
 * Order of the end, written down once:
 *   1. admission closes, workers end what they have with "closing"; wait until nothing is
 * unfinished
 *   2. the board says "closing"; wait until no peer's slot says that it copies
 *   3. the meeting thread stops, peers are hung up on (end of quiesce)
 *   4. targets are closed by the runtime
 *   5. links and buffers are freed, workers stopped, all is freed (close)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "base/text.h"
#include "config/option.h"
#include "memory/alloc.h"
#include "transport/shm/internal.h"

/* How long quiesce waits for the copies of peers; each is one chunk. */
#define PEERS_WAIT_NS (5 * FERRY_NS_PER_S)

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER     0x59616d61
#define PR_SET_PTRACER_ANY ((unsigned long)-1)
#endif

static enum ferry_status shm_probe(const struct ferry_config *config,
                                   struct ferry_transport_info *info_out)
{
    FERRY_AUTO_FD int fd = -1;

    (void)config;
    info_out->usable = ferry_sealed_create("ferry-probe", 4096, &fd) == FERRY_OK;
    if (!info_out->usable)
        snprintf(info_out->reason, sizeof(info_out->reason), "%.150s", ferry_last_error_text());
    return FERRY_OK;
}

static void read_boot_id(char buf[SHM_BOOT_ID_SIZE])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    buf[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(buf, SHM_BOOT_ID_SIZE, file) == NULL)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    fclose(file);
}

/* The kernel's number of the network namespace, inside which abstract names are seen. */
static uint64_t network_namespace(void)
{
    struct stat about;

    return stat("/proc/self/ns/net", &about) == 0 ? about.st_ino : 0;
}

/* Accepts a partly opened transport. Given: quiesced, or never started. */
static void destroy(struct shm_transport *transport)
{
    ferry_shm_meet_close(transport);
    for (uint32_t i = 0; i < transport->worker_count; i++)
        ferry_worker_close(transport->workers[i].worker);
    while (!ferry_list_empty(&transport->sessions))
        ferry_shm_session_free(
            transport, FERRY_CONTAINER_OF(transport->sessions.next, struct shm_session, link));
    while (!ferry_list_empty(&transport->links))
        ferry_shm_link_free(FERRY_CONTAINER_OF(transport->links.next, struct shm_link, link));
    ferry_shm_buffers_fini(transport);
    if (transport->board != NULL)
        munmap(transport->board, sizeof(*transport->board));
    if (transport->board_fd >= 0)
        close(transport->board_fd);
    if (transport->wake_fd >= 0)
        close(transport->wake_fd);
    ferry_pool_fini(&transport->ops);
    ferry_config_destroy(transport->config);
    pthread_mutex_destroy(&transport->revoke_mutex);
    pthread_mutex_destroy(&transport->mutex);
    free(transport);
}

static enum ferry_status create(const struct ferry_transport_env *env,
                                struct shm_transport **transport_out)
{
    struct shm_transport *transport = calloc(1, sizeof(*transport));
    enum ferry_status status;

    if (transport == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "shm: out of memory");
    transport->base.env = env;
    transport->board_fd = -1;
    transport->listener = -1;
    transport->wake_fd = -1;
    pthread_mutex_init(&transport->mutex, NULL);
    pthread_mutex_init(&transport->revoke_mutex, NULL);
    ferry_list_init(&transport->sessions);
    ferry_list_init(&transport->links);
    status = ferry_config_copy(env->config, &transport->config);
    if (status != FERRY_OK) {
        destroy(transport);
        return status;
    }
    ferry_shm_settings_read(transport->config, &transport->settings);
    read_boot_id(transport->boot_id);
    transport->network = network_namespace();
    env->random->fill(env->random, transport->cookie, sizeof(transport->cookie));
    *transport_out = transport;
    return FERRY_OK;
}

/* Peers get a descriptor for reading; the one for writing is closed once it is mapped. */
static enum ferry_status board_open(struct shm_transport *transport)
{
    FERRY_AUTO_FD int fd = -1;
    void *map = NULL;
    enum ferry_status status = ferry_shm_pages_create("ferry-shm-board", sizeof(*transport->board),
                                                      &map, &fd);

    if (status != FERRY_OK)
        return status;
    transport->board = map;
    return ferry_shm_read_only_fd(fd, &transport->board_fd);
}

static enum ferry_status start(struct shm_transport *transport)
{
    const struct ferry_transport_env *env = transport->base.env;
    size_t len;
    enum ferry_status status = ferry_hex_decode(env->incarnation, transport->incarnation,
                                                sizeof(transport->incarnation), &len);

    if (status == FERRY_OK)
        status = ferry_pool_init(&transport->ops, sizeof(struct shm_op),
                                 transport->settings.outstanding_max);
    if (status == FERRY_OK)
        status = board_open(transport);
    for (uint32_t i = 0; status == FERRY_OK && i < transport->settings.worker_count; i++) {
        transport->worker_count = i + 1;
        transport->workers[i].transport = transport;
        transport->workers[i].index = i;
        status = ferry_shm_worker_open(&transport->workers[i]);
    }
    if (status == FERRY_OK)
        status = ferry_shm_meet_open(transport);
    if (status != FERRY_OK)
        return status;
    /* EINVAL: a kernel without Yama, where nothing has to be allowed. */
    if (transport->settings.allow_ptrace &&
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0 && errno != EINVAL)
        ferry_warn("shm", "transports.shm.allow_ptrace: %s", strerror(errno));
    return FERRY_OK;
}

static enum ferry_status shm_open_transport(const struct ferry_transport_env *env,
                                            struct ferry_transport **transport_out)
{
    struct shm_transport *transport = NULL;
    enum ferry_status status;

    if (env->threadless)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "shm needs threads of its own");
    status = create(env, &transport);
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

/* A peer that stands still in the middle of a chunk is given up on: it has our memory mapped, or
 * the kernel copies for it, and neither outlasts this process's mapping of it. */
static void wait_for_peers(struct shm_transport *transport)
{
    const struct ferry_clock *clock = transport->base.env->clock;
    uint64_t deadline_ns = ferry_deadline_ns(ferry_now_ns(clock), PEERS_WAIT_NS);
    const struct timespec nap = {.tv_nsec = 100 * FERRY_NS_PER_US};
    bool held;

    atomic_store(&transport->board->closing, 1);
    for (;;) {
        pthread_mutex_lock(&transport->mutex);
        held = ferry_shm_sessions_hold(transport, 0);
        pthread_mutex_unlock(&transport->mutex);
        if (!held)
            return;
        if (ferry_now_ns(clock) >= deadline_ns) {
            ferry_error("shm", "a peer still says that it copies; closing all the same");
            return;
        }
        nanosleep(&nap, NULL);
    }
}

static void shm_quiesce(struct ferry_transport *base)
{
    struct shm_transport *transport = ferry_shm_of(base);
    uint32_t left;

    atomic_store(&transport->closing, true);
    ferry_shm_kick_all(transport);
    while ((left = atomic_load(&transport->unfinished)) != 0)
        ferry_futex_wait(&transport->unfinished, left, FERRY_NEVER_NS);
    wait_for_peers(transport);
    ferry_shm_meet_close(transport);
    while (!ferry_list_empty(&transport->sessions))
        ferry_shm_session_free(
            transport, FERRY_CONTAINER_OF(transport->sessions.next, struct shm_session, link));
}

static void shm_close(struct ferry_transport *base)
{
    destroy(ferry_shm_of(base));
}

/* cancel_asked is set: every part looks at it before its next chunk. Those that wait are woken. */
static void shm_cancel(struct ferry_transport *base, struct ferry_xfer *xfer)
{
    struct shm_transport *transport = ferry_shm_of(base);

    (void)xfer;
    for (uint32_t i = 0; i < transport->worker_count; i++) {
        if (atomic_load(&transport->workers[i].parked_count) > 0)
            ferry_shm_kick(&transport->workers[i], false);
    }
}

static bool revoke_idle(struct shm_revoke *revoke, uint64_t deadline_ns)
{
    while (atomic_load(&revoke->busy) != 0) {
        if (!ferry_futex_wait(&revoke->busy, 1, deadline_ns))
            return atomic_load(&revoke->busy) == 0;
    }
    return true;
}

/* Each worker in turn takes its parts of what touches the range out; the last one ends it. */
static enum ferry_status shm_revoke(struct ferry_transport *base, const void *addr, uint64_t length,
                                    uint64_t deadline_ns)
{
    struct shm_transport *transport = ferry_shm_of(base);
    bool done = true;

    pthread_mutex_lock(&transport->revoke_mutex);
    for (uint32_t i = 0; i < transport->worker_count && done; i++) {
        struct shm_worker *worker = &transport->workers[i];

        done = revoke_idle(&worker->revoke, deadline_ns);
        if (!done)
            break;
        worker->revoke.addr = (uintptr_t)addr;
        worker->revoke.length = length;
        atomic_store(&worker->revoke.busy, 1);
        ferry_worker_post(worker->worker, &worker->revoke.job, false);
        done = revoke_idle(&worker->revoke, deadline_ns);
    }
    pthread_mutex_unlock(&transport->revoke_mutex);
    if (!done)
        return ferry_fail(FERRY_ERR_BUSY, "shm: a worker did not answer in time");
    return FERRY_OK;
}

const struct ferry_transport_ops ferry_shm_ops = {
    .ops_version = FERRY_TRANSPORT_OPS_VERSION,
    .name = "shm",
    .wire_id = FERRY_SHM_WIRE_ID,
    .caps = FERRY_CAP_DRAM | FERRY_CAP_CANCEL | FERRY_CAP_REVOKE | FERRY_CAP_SHARED,
    .options = &ferry_shm_options,
    .probe = shm_probe,
    .open = shm_open_transport,
    .quiesce = shm_quiesce,
    .close = shm_close,
    .describe = ferry_shm_describe,
    .describe_buffer = ferry_shm_describe_buffer,
    .add_buffer = ferry_shm_add_buffer,
    .remove_buffer = ferry_shm_remove_buffer,
    .target_open = ferry_shm_target_open,
    .target_close = ferry_shm_target_close,
    .target_explain = ferry_shm_target_explain,
    .target_reach = ferry_shm_target_reach,
    .submit = ferry_shm_submit,
    .cancel = shm_cancel,
    .revoke = shm_revoke,
    .report = ferry_shm_report,
    .measure = ferry_shm_measure,
};
