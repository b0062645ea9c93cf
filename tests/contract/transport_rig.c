/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig of the transport contract; see transport_rig.h. Runs on the test's thread.
 */
#include "contract/transport_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "foreign/urma.h"
#include "runtime/seams.h"
#include "sim/urma/urma_sim.h"
#include "support/certificate.h"
#include "transport/transport.h"

static const char *const pool_settings[] = {"transports.io_uring.enable", "false", NULL};

static const char *const sum_settings[] = {"transports.hp_tcp.checksum", "true", NULL};

/* A peer that has closed is noticed by time alone. */
static const char *const ub_settings[] = {"transports.ub.connect_timeout_ms", "500",
                                          "transports.ub.error_timeout", "14", NULL};

static const char *const uring_settings[] = {"transports.io_uring.enable", "true", NULL};

/* Small pieces and a low bound, so that the short requests of the suite are split as well. */
static const char *const shm_settings[] = {"transports.shm.enable",
                                           "true",
                                           "transports.hp_tcp.enable",
                                           "false",
                                           "transports.shm.worker_count",
                                           "2",
                                           "transports.shm.chunk_bytes",
                                           "64KiB",
                                           "transports.shm.split_bytes",
                                           "100000",
                                           "transports.shm.streaming_bytes",
                                           "200000",
                                           NULL};

static const struct rig_kind kinds[] = {
    {.name = "loop", .transport = "loop", .reactor = "epoll"},
    {.name = "fault", .transport = "loop", .reactor = "epoll", .fault = true},
    {.name = "hp_tcp-epoll", .transport = "hp_tcp", .reactor = "epoll", .remote = true},
    {.name = "hp_tcp-uring",
     .transport = "hp_tcp",
     .reactor = "uring",
     .remote = true,
     .can_skip = true},
    {.name = "hp_tcp-tls-epoll",
     .transport = "hp_tcp",
     .reactor = "epoll",
     .remote = true,
     .tls = true},
    {.name = "hp_tcp-tls-uring",
     .transport = "hp_tcp",
     .reactor = "uring",
     .remote = true,
     .can_skip = true,
     .tls = true},
    {.name = "hp_tcp-key-epoll",
     .transport = "hp_tcp",
     .reactor = "epoll",
     .remote = true,
     .key = true},
    {.name = "hp_tcp-key-uring",
     .transport = "hp_tcp",
     .reactor = "uring",
     .remote = true,
     .can_skip = true,
     .key = true},
    {.name = "hp_tcp-sum-epoll",
     .transport = "hp_tcp",
     .reactor = "epoll",
     .remote = true,
     .settings = sum_settings},
    {.name = "hp_tcp-sum-uring",
     .transport = "hp_tcp",
     .reactor = "uring",
     .remote = true,
     .can_skip = true,
     .settings = sum_settings},
    {.name = "hp_tcp-fault",
     .transport = "hp_tcp",
     .reactor = "epoll",
     .remote = true,
     .fault = true},
    {.name = "split", .transport = "loop", .reactor = "epoll", .fault = true, .split = true},
    {.name = "hp_tcp-split",
     .transport = "hp_tcp",
     .reactor = "epoll",
     .remote = true,
     .fault = true,
     .split = true},
    {.name = "file-pool",
     .transport = "file",
     .reactor = "epoll",
     .file = true,
     .settings = pool_settings},
    {.name = "file-uring",
     .transport = "file",
     .reactor = "epoll",
     .file = true,
     .settings = uring_settings},
    {.name = "file-fault",
     .transport = "file",
     .reactor = "epoll",
     .file = true,
     .fault = true,
     .settings = pool_settings},
    {.name = "ub-table",
     .transport = "ub",
     .reactor = "epoll",
     .remote = true,
     .settings = ub_settings,
     .ub = true},
    {.name = "shm-brought-epoll",
     .transport = "shm",
     .reactor = "epoll",
     .remote = true,
     .split = true,
     .settings = shm_settings},
    {.name = "shm-alloc-uring",
     .transport = "shm",
     .reactor = "uring",
     .remote = true,
     .can_skip = true,
     .alloc = true,
     .settings = shm_settings},
    {.name = "shm-fault",
     .transport = "shm",
     .reactor = "epoll",
     .remote = true,
     .fault = true,
     .settings = shm_settings},
    {.name = "ub-native",
     .transport = "ub",
     .reactor = "epoll",
     .remote = true,
     .settings = ub_settings,
     .ub = true,
     .native = true},
};

/* One fabric for the whole program; each rig finds it as it was. */
static struct usim *fabric;
static struct usim_host hosts[2];
static uint32_t hosts_used;

static struct usim *rig_fabric(void)
{
    static const char *const names[] = {"udma0", "udma1"};
    struct usim_options options = {.seed = 11};

    if (fabric != NULL)
        return fabric;
    fabric = usim_open(&options);
    assert_non_null(fabric);
    for (uint32_t host = 0; host < 2; host++) {
        hosts[host] = (struct usim_host){.sim = fabric, .node = usim_node_add(fabric)};
        for (uint32_t i = 0; i < 2; i++) {
            struct usim_device_spec spec = {.name = names[i],
                                            .ports = 2,
                                            .first_eid = i,
                                            .bytes_per_s = 4000000000,
                                            .latency_ns = 3000,
                                            .jitter_ns = 5000};

            usim_device_add(fabric, hosts[host].node, &spec);
        }
    }
    return fabric;
}

void rig_mute_events(bool on)
{
    usim_chance(rig_fabric(), USIM_NO_EVENT, on ? 1000000 : 0);
}

/* The engines of a rig are on two hosts in turn; by way of the URMA interface there is but one. */
static enum ferry_status open_engine(const struct rig_kind *kind,
                                     const struct ferry_engine_options *options,
                                     struct ferry_engine **engine_out)
{
    static struct ferry_urma_seam urma[2];
    struct ferry_engine_seams seams = {0};
    uint32_t host = kind->native ? 0 : hosts_used++ % 2;

    if (!kind->ub)
        return ferry_engine_open(options, engine_out);
    rig_fabric();
    usim_shim_host(&hosts[0]);
    urma[host] = (struct ferry_urma_seam){.ops = kind->native ? usim_native_table() : usim_table(),
                                          .self = &hosts[host]};
    seams.urma = &urma[host];
    return ferry_engine_open_with(options, &seams, engine_out);
}

const struct rig_kind *rig_find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    }
    return NULL;
}

void rig_skip_if_missing(const struct rig_kind *kind)
{
    struct ferry_config *config = NULL;
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    enum ferry_status status;

    if (ferry_transport_find(kind->transport) == NULL) {
        printf("skipped: this build has no %s\n", kind->transport);
        exit(77);
    }
    if (!kind->can_skip)
        return;
    if (ferry_config_create(&config) != FERRY_OK ||
        ferry_config_set(config, "reactor", kind->reactor, FERRY_ORIGIN_API) != FERRY_OK)
        exit(1);
    options.config = config;
    status = ferry_engine_open(&options, &engine);
    ferry_config_destroy(config);
    if (status != FERRY_OK) {
        printf("skipped: %s\n", ferry_last_error_text());
        exit(77);
    }
    ferry_engine_close(engine);
}

static char key_path[64];

static void remove_key_file(void)
{
    unlink(key_path);
}

/* A key that all engines of this program share. */
static const char *key_file(void)
{
    static const char key[] = "6c1f3b2a8d5e4f7091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f701\n";
    int fd;

    if (key_path[0] != '\0')
        return key_path;
    snprintf(key_path, sizeof(key_path), "/tmp/ferry-contract-key-%d-XXXXXX", (int)getpid());
    fd = mkstemp(key_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, key, sizeof(key) - 1), sizeof(key) - 1);
    close(fd);
    atexit(remove_key_file);
    return key_path;
}

struct ferry_engine *rig_engine(const struct rig_kind *kind, const char *const *settings)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    assert_ok(ferry_config_set(config, "reactor", kind->reactor, FERRY_ORIGIN_API));
    if (kind->ub) {
        assert_ok(ferry_config_set(config, "transports.ub.enable", "true", FERRY_ORIGIN_API));
        assert_ok(ferry_config_set(config, "transports.hp_tcp.enable", "false", FERRY_ORIGIN_API));
    }
    if (kind->fault)
        assert_ok(ferry_config_set(config, "transports.fault.enable", "true", FERRY_ORIGIN_API));
    if (kind->split)
        assert_ok(ferry_config_set(config, "transports.fault.lists", "false", FERRY_ORIGIN_API));
    if (kind->tls) {
        const struct test_certificate *made = test_certificate();

        assert_non_null(made);
        assert_ok(ferry_config_set(config, "tls.cert", made->cert, FERRY_ORIGIN_API));
        assert_ok(ferry_config_set(config, "tls.key", made->key, FERRY_ORIGIN_API));
        assert_ok(ferry_config_set(config, "tls.ca", made->cert, FERRY_ORIGIN_API));
    }
    if (kind->key)
        assert_ok(ferry_config_set(config, "auth_key_file", key_file(), FERRY_ORIGIN_API));
    for (size_t i = 0; kind->settings != NULL && kind->settings[i] != NULL; i += 2)
        assert_ok(
            ferry_config_set(config, kind->settings[i], kind->settings[i + 1], FERRY_ORIGIN_API));
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2)
        assert_ok(ferry_config_set(config, settings[i], settings[i + 1], FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(open_engine(kind, &options, &engine));
    ferry_config_destroy(config);
    return engine;
}

void rig_register(struct ferry_engine *engine, void *addr, uint64_t length,
                  enum ferry_permission permission)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    range.addr = addr;
    range.length = length;
    range.permission = permission;
    assert_ok(ferry_memory_register(engine, &range, 1));
}

/* The target is a file in the present folder, which need not be one that lives in memory. */
static void open_file(struct rig *rig)
{
    char name[80];
    void *map;
    int fd;

    snprintf(rig->path, sizeof(rig->path), "contract-file-%d.dat", (int)getpid());
    fd = open(rig->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, RIG_LENGTH), 0);
    map = mmap(NULL, RIG_LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    rig->remote.data = map;
    rig->remote.len = RIG_LENGTH;
    snprintf(name, sizeof(name), "file://%s", rig->path);
    assert_ok(ferry_segment_open(rig->initiator, name, test_deadline_ms(10000), &rig->segment));
}

/* No test makes the file longer or shorter. */
static void close_file(struct rig *rig)
{
    struct stat now;

    assert_int_equal(stat(rig->path, &now), 0);
    assert_int_equal(now.st_size, RIG_LENGTH);
    assert_int_equal(munmap(rig->remote.data, RIG_LENGTH), 0);
    assert_int_equal(unlink(rig->path), 0);
}

/* Registered at once, and the engine's to give back: there are no fences. */
static void alloc_remote(struct rig *rig)
{
    void *addr = NULL;

    assert_ok(ferry_memory_alloc(rig->target, RIG_LENGTH, "*", FERRY_PERMISSION_READ_WRITE, &addr));
    rig->remote.data = addr;
    rig->remote.len = RIG_LENGTH;
}

void rig_open(struct rig *rig, const struct rig_kind *kind, const char *const *settings)
{
    memset(rig, 0, sizeof(*rig));
    rig->kind = kind;
    assert_true(fenced_alloc(&rig->local, RIG_LENGTH, RIG_MISALIGN));
    if (!kind->file && !kind->alloc)
        assert_true(fenced_alloc(&rig->remote, RIG_LENGTH, RIG_MISALIGN));
    rig->initiator = rig_engine(kind, settings);
    rig->target = kind->remote ? rig_engine(kind, settings) : rig->initiator;
    rig_register(rig->initiator, rig->local.data, rig->local.len, FERRY_PERMISSION_LOCAL);
    if (kind->file) {
        open_file(rig);
    } else {
        if (kind->alloc)
            alloc_remote(rig);
        else
            rig_register(rig->target, rig->remote.data, rig->remote.len,
                         FERRY_PERMISSION_READ_WRITE);
        assert_ok(ferry_segment_open(rig->initiator, ferry_engine_segment_name(rig->target),
                                     test_deadline_ms(10000), &rig->segment));
    }
    assert_ok(ferry_batch_create(rig->initiator, RIG_BATCH, &rig->batch));
}

void rig_close(struct rig *rig)
{
    if (rig->initiator != NULL)
        assert_ok(ferry_engine_close(rig->initiator));
    if (rig->target != NULL && rig->target != rig->initiator)
        assert_ok(ferry_engine_close(rig->target));
    if (rig->kind->file)
        close_file(rig);
    assert_true(rig->local.map == NULL || fenced_intact(&rig->local));
    assert_true(rig->remote.map == NULL || fenced_intact(&rig->remote));
    fenced_free(&rig->local);
    fenced_free(&rig->remote);
}

uint64_t rig_remote(const struct rig *rig, uint64_t offset)
{
    return rig->kind->file ? offset : (uintptr_t)rig->remote.data + offset;
}

struct ferry_request rig_request(const struct rig *rig, enum ferry_opcode opcode,
                                 uint64_t local_offset, uint64_t remote_offset, uint64_t length)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.opcode = opcode;
    request.local = rig->local.data + local_offset;
    request.segment = rig->segment;
    request.remote_offset = rig_remote(rig, remote_offset);
    request.length = length;
    return request;
}

enum ferry_status rig_run(struct rig *rig, const struct ferry_request *request)
{
    if (request->opcode == FERRY_READ)
        return ferry_read(rig->initiator, request, test_deadline_ms(60000));
    return ferry_write(rig->initiator, request, test_deadline_ms(60000));
}

void rig_fill(struct rig *rig, uint64_t local_seed, uint64_t remote_seed)
{
    pattern_fill(rig->local.data, rig->local.len, local_seed, 0);
    pattern_fill(rig->remote.data, rig->remote.len, remote_seed, 0);
}

void rig_expect(const struct fenced *range, uint64_t offset, uint64_t length, uint64_t seed,
                uint64_t from)
{
    size_t at = pattern_differs(range->data + offset, length, seed, from);

    if (at != PATTERN_SAME)
        fail_msg("byte %zu of %zu at offset %zu is not that of seed %zu at position %zu", at,
                 (size_t)length, (size_t)offset, (size_t)seed, (size_t)from);
}

struct ferry_task_status rig_task(struct ferry_engine *engine, uint64_t batch, uint32_t task)
{
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;

    assert_ok(ferry_task_status(engine, batch, task, &status));
    return status;
}

struct ferry_batch_status rig_batch(struct ferry_engine *engine, uint64_t batch)
{
    struct ferry_batch_status status = FERRY_BATCH_STATUS_INIT;

    assert_ok(ferry_batch_status(engine, batch, &status));
    return status;
}
