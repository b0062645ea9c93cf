/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open and close an engine. One destructor accepts a partly opened engine, so there is one list of
 * what to undo.
 *
 * The order of close, each step bounded by close_timeout_ms as a whole or by a bound of its own:
 *    1. stop admitting: submit, create, open and register refuse, no new lease is granted, the
 *       control plane answers 503
 *    2. tell peers goodbye, withdraw the description from the store
 *    3. stop the control server: its handlers look into transports
 *    4. quiesce the transports: they end what is running with ERR_CLOSING and serve no peer
 *    5. end what the keeper holds; wait until the end of every batch has been told
 *    6. close the store and the control client: no refresh is under way any more
 *    7. let go of the segments' views, which closes every target; then close the transports
 *    8. close the keeper; free batches, unregister memory, free pools and the rest
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access/access.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "config/option.h"
#include "control/client.h"
#include "control/server.h"
#include "metadata/document.h"
#include "metadata/file_document.h"
#include "metadata/host_names.h"
#include "runtime/metrics.h"
#include "runtime/runtime.h"
#include "topology/topology.h"

#define GOODBYE_NS (FERRY_NS_PER_S / 2)

/* Views alive at once: one per segment, and as many again on their way in or out. */
#define VIEWS_PER_SEGMENT 4

static void free_readers(struct ferry_engine *engine)
{
    if (engine->readers == NULL)
        return;
    for (uint32_t i = 0; i < FERRY_READERS; i++) {
        if (engine->readers[i].reader.registry != NULL)
            ferry_registry_reader_fini(&engine->readers[i].reader);
    }
    free(engine->readers);
    engine->readers = NULL;
}

static void free_memory(struct ferry_engine *engine)
{
    free_readers(engine);
    if (engine->registry_open)
        ferry_registry_fini(&engine->registry);
    if (engine->sync_open)
        ferry_ring_fini(&engine->sync_batches);
    ferry_metrics_close(engine->metrics);
    ferry_tally_close(&engine->tally);
    ferry_pool_fini(&engine->batches);
    ferry_pool_fini(&engine->vectors);
    ferry_pool_fini(&engine->views);
    ferry_pool_fini(&engine->segments);
    ferry_published_release(engine->published);
    ferry_notify_close(engine);
    ferry_topology_close(engine->topology);
    ferry_access_close(engine->access);
    ferry_config_destroy(engine->config);
    pthread_mutex_destroy(&engine->publish_mutex);
    pthread_mutex_destroy(&engine->segments_mutex);
    pthread_mutex_destroy(&engine->batches_mutex);
    pthread_mutex_destroy(&engine->memory_mutex);
    ferry_fork_mark_close(engine);
    free(engine);
}

static void say_goodbye(struct ferry_engine *engine, uint64_t deadline_ns)
{
    uint64_t bound_ns = ferry_engine_deadline(engine, deadline_ns, GOODBYE_NS);

    ferry_goodbye_send(engine, bound_ns);
    /* A store that does not answer may take half of the time, not all. */
    bound_ns = ferry_engine_deadline(engine, deadline_ns, engine->settings.close_timeout_ns / 2);
    ferry_local_withdraw(engine, bound_ns);
}

/* True once the end of every batch has been told; only a callback that does not return prevents it.
 */
static bool await_batches(struct ferry_engine *engine, uint64_t deadline_ns)
{
    while (!ferry_batches_quiet(engine, deadline_ns)) {
        if (engine->seams.threadless || ferry_engine_now(engine) >= deadline_ns)
            return false;
        ferry_cpu_relax();
    }
    return true;
}

/* A store that is not ours may still have a request of ours. */
static void await_refreshes(struct ferry_engine *engine)
{
    uint32_t running;

    while ((running = atomic_load(&engine->refreshes_running)) != 0) {
        bool more = ferry_engine_sleep(engine, &engine->refreshes_running, running, FERRY_NEVER_NS);

        FERRY_ASSERT(more);
    }
}

/* Steps 1 to 8. Any part may be missing. With an error and text if something had to be leaked. */
static enum ferry_status shut_down(struct ferry_engine *engine)
{
    uint64_t deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                                 engine->settings.close_timeout_ns);
    bool opened = atomic_load(&engine->ready);
    bool leaked = false;

    atomic_store(&engine->closing, true);
    /* Peers hear "closing" from here on, rather than a broken connection later. */
    if (engine->registry_open)
        ferry_registry_close(&engine->registry);
    if (opened)
        say_goodbye(engine, deadline_ns);
    ferry_control_server_close(engine->control);
    engine->control = NULL;
    ferry_transports_quiesce(engine);
    ferry_keeper_drain(engine);
    if (!await_batches(engine, deadline_ns))
        return ferry_fail(FERRY_ERR_BUSY, "a completion callback does not return: the engine is "
                                          "leaked");
    ferry_segments_unwatch_all(engine);
    if (engine->store_owned)
        ferry_store_close(engine->store);
    await_refreshes(engine);
    ferry_http_client_close(engine->http);
    ferry_segments_close_all(engine);
    if (engine->local_view != NULL)
        ferry_view_retire(engine->local_view);
    engine->local_view = NULL;
    ferry_transports_close(engine);
    ferry_keeper_close(engine);
    ferry_batches_free(engine);
    if (engine->registry_open)
        ferry_memory_release_all(engine, &leaked);
    ferry_log_flush();
    if (leaked)
        return ferry_fail(
            FERRY_ERR_BUSY,
            "a device would not let go of registered memory: it is leaked on purpose");
    return FERRY_OK;
}

static enum ferry_status open_pools(struct ferry_engine *engine)
{
    const struct ferry_settings *settings = &engine->settings;
    enum ferry_status status = ferry_pool_init(&engine->segments, sizeof(struct ferry_segment),
                                               settings->segments_max);

    if (status == FERRY_OK)
        status = ferry_pool_init(&engine->views, sizeof(struct ferry_view),
                                 settings->segments_max * VIEWS_PER_SEGMENT + 16);
    if (status == FERRY_OK)
        status = ferry_pool_init(&engine->batches, sizeof(struct ferry_batch),
                                 settings->batches_max);
    if (status == FERRY_OK)
        status = ferry_pool_init(&engine->vectors, sizeof(struct ferry_vector),
                                 settings->vectored_requests_max);
    if (status == FERRY_OK)
        status = ferry_ring_init(&engine->sync_batches, FERRY_SYNC_BATCHES);
    engine->sync_open = status == FERRY_OK;
    return status;
}

static enum ferry_status open_registry(struct ferry_engine *engine)
{
    struct ferry_registry_options options = {
        .random = engine->random,
        .buffers_max = engine->settings.ranges_max,
    };
    enum ferry_status status = ferry_topology_open(&engine->topology);

    if (status != FERRY_OK)
        return status;
    options.numa_nodes = ferry_topology_numa_nodes(engine->topology, &options.numa_node_count);
    status = ferry_registry_init(&engine->registry, &options);
    if (status != FERRY_OK)
        return status;
    engine->registry_open = true;
    engine->readers = aligned_alloc(FERRY_CACHE_LINE, FERRY_READERS * sizeof(*engine->readers));
    if (engine->readers == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: out of memory");
    memset(engine->readers, 0, FERRY_READERS * sizeof(*engine->readers));
    for (uint32_t i = 0; i < FERRY_READERS; i++) {
        atomic_flag_clear(&engine->readers[i].busy);
        ferry_registry_reader_init(&engine->readers[i].reader, &engine->registry);
    }
    return FERRY_OK;
}

static enum ferry_status open_access(struct ferry_engine *engine)
{
    struct ferry_access_options options = {
        .auth_key_file = ferry_config_string(engine->config, "auth_key_file"),
        .tls = {.cert = ferry_config_string(engine->config, "tls.cert"),
                .key = ferry_config_string(engine->config, "tls.key"),
                .ca = ferry_config_string(engine->config, "tls.ca"),
                .verify_names = ferry_config_bool(engine->config, "tls.verify_names"),
                .kernel = ferry_config_bool(engine->config, "tls.kernel")},
    };

    return ferry_access_open(&options, &engine->access);
}

static enum ferry_status open_store(struct ferry_engine *engine)
{
    struct ferry_store_env env = {.config = engine->config, .clock = engine->clock};
    const char *host_name = ferry_config_string(engine->config, "host_name");
    struct ferry_host_names names;
    enum ferry_status status = FERRY_OK;

    /* Used when a file segment is opened; what is wrong with it shows now. */
    if (host_name[0] != '\0')
        status = ferry_host_names_parse(host_name, &names);
    if (status != FERRY_OK)
        return status;

    if (!engine->seams.threadless)
        status = ferry_http_client_open(engine->access, &engine->http);
    else if (engine->seams.store == NULL)
        status = ferry_fail(FERRY_ERR_INVALID, "an engine without threads needs a store");
    if (status != FERRY_OK)
        return status;
    if (engine->seams.store != NULL) {
        engine->store = engine->seams.store;
        return FERRY_OK;
    }
    env.http = engine->http;
    status = ferry_store_open(&env, &engine->store);
    engine->store_owned = status == FERRY_OK;
    return status;
}

/* "segment_noname_" and eight letters, as the reference calls those without a name. */
static void random_name(struct ferry_engine *engine)
{
    unsigned char bytes[8];
    char letters[9];

    engine->random->fill(engine->random, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        letters[i] = (char)('a' + bytes[i] % 26);
    letters[8] = '\0';
    snprintf(engine->name, sizeof(engine->name), "segment_noname_%s", letters);
}

static enum ferry_status choose_name(struct ferry_engine *engine)
{
    const char *given = ferry_config_string(engine->config, "local_segment_name");

    if (engine->store->ops->names_are_addresses && !engine->seams.threadless) {
        /* Published files carry a name even where it has no meaning; anybody else means it. */
        if (given[0] != '\0' &&
            ferry_config_origin_of(engine->config, "local_segment_name") != FERRY_ORIGIN_FILE)
            return ferry_fail(FERRY_ERR_CONFIG,
                              "local_segment_name \"%s\" needs a metadata store; with "
                              "metadata_type p2p the name is the control address",
                              given);
        snprintf(engine->name, sizeof(engine->name), "%s", engine->control_address);
    } else if (strncmp(given, FERRY_FILE_SEGMENT_PREFIX, sizeof(FERRY_FILE_SEGMENT_PREFIX) - 1) ==
               0) {
        /* Under that prefix are file segments, which have no owner. */
        return ferry_fail(FERRY_ERR_CONFIG,
                          "local_segment_name \"%s\": names that begin with %s are file segments",
                          given, FERRY_FILE_SEGMENT_PREFIX);
    } else if (given[0] != '\0') {
        snprintf(engine->name, sizeof(engine->name), "%s", given);
    } else {
        random_name(engine);
    }
    atomic_store(&engine->named, true);
    return FERRY_OK;
}

/* The control plane's place and name; a threadless engine takes both from its options. */
static enum ferry_status open_control(struct ferry_engine *engine)
{
    struct ferry_places places = {0};
    struct ferry_hostport place = {0};
    enum ferry_status status;

    ferry_machine_id(engine->machine_id, sizeof(engine->machine_id));
    if (engine->seams.threadless) {
        const char *advertise = ferry_config_string(engine->config, "advertise_address");

        snprintf(engine->advertise_host, sizeof(engine->advertise_host), "%s",
                 advertise[0] != '\0' ? advertise : "127.0.0.1");
        snprintf(engine->control_address, sizeof(engine->control_address), "%.255s:1",
                 engine->advertise_host);
        return choose_name(engine);
    }
    status = ferry_places_choose(engine->config, &places);
    if (status == FERRY_OK)
        status = ferry_control_open(engine, &places);
    if (status != FERRY_OK)
        return status;
    snprintf(engine->advertise_host, sizeof(engine->advertise_host), "%s", places.advertise_host);
    status = ferry_host_parse(places.advertise_host, &place);
    if (status != FERRY_OK)
        return status;
    place.port = ferry_control_server_port(engine->control);
    ferry_hostport_format(&place, engine->control_address, sizeof(engine->control_address));
    return choose_name(engine);
}

static enum ferry_status open_local_view(struct ferry_engine *engine)
{
    struct ferry_document *doc = NULL;
    uint64_t generation;
    enum ferry_status status = ferry_local_document(engine, &doc, &generation);

    if (status != FERRY_OK)
        return status;
    return ferry_view_create(engine, NULL, doc, &engine->local_view);
}

static void fill_env(struct ferry_engine *engine)
{
    engine->env = (struct ferry_transport_env){
        .config = engine->config,
        .clock = engine->clock,
        .random = engine->random,
        .registry = &engine->registry,
        .segment_name = engine->name,
        .incarnation = engine->incarnation,
        .advertise_host = engine->advertise_host,
        .budget = &engine->budget,
        .access = engine->access,
        .net = engine->seams.net,
        .reactor_ops = engine->seams.reactor_ops,
        .urma = engine->seams.urma,
        .threadless = engine->seams.threadless,
        .step = engine->seams.step,
        .step_arg = engine->seams.step_arg,
    };
    if (engine->http != NULL) {
        ferry_peer_channel_init(&engine->channel, engine->http);
        engine->env.channel = &engine->channel;
    }
}

static enum ferry_status open_all(struct ferry_engine *engine)
{
    unsigned char incarnation[16];
    enum ferry_status status;

    engine->random->fill(engine->random, incarnation, sizeof(incarnation));
    ferry_hex_encode(incarnation, sizeof(incarnation), engine->incarnation);
    engine->budget.spinning_max = (int32_t)ferry_usable_cores();
    status = open_access(engine);
    if (status == FERRY_OK)
        status = open_pools(engine);
    if (status == FERRY_OK)
        status = open_registry(engine);
    if (status == FERRY_OK)
        status = ferry_notify_open(engine);
    if (status == FERRY_OK)
        status = ferry_keeper_open(engine);
    if (status == FERRY_OK)
        status = open_store(engine);
    if (status == FERRY_OK)
        status = open_control(engine);
    if (status != FERRY_OK)
        return status;
    fill_env(engine);
    status = ferry_transports_open(engine);
    if (status == FERRY_OK)
        status = ferry_tally_open(&engine->tally, engine->transport_count);
    if (status == FERRY_OK)
        status = ferry_metrics_open(&engine->metrics);
    if (status == FERRY_OK)
        status = open_local_view(engine);
    if (status == FERRY_OK)
        status = ferry_local_claim(engine);
    if (status != FERRY_OK)
        return status;
    atomic_store(&engine->ready, true);
    ferry_info("runtime", "engine is open segment=%s control=%s", engine->name,
               engine->control_address);
    return FERRY_OK;
}

static struct ferry_engine *new_engine(const struct ferry_engine_seams *seams)
{
    struct ferry_engine *engine = calloc(1, sizeof(*engine));

    if (engine == NULL)
        return NULL;
    if (seams != NULL)
        engine->seams = *seams;
    engine->clock = engine->seams.clock != NULL ? engine->seams.clock : &ferry_clock_system;
    engine->random = engine->seams.random != NULL ? engine->seams.random : &ferry_random_system;
    pthread_mutex_init(&engine->publish_mutex, NULL);
    pthread_mutex_init(&engine->segments_mutex, NULL);
    pthread_mutex_init(&engine->batches_mutex, NULL);
    pthread_mutex_init(&engine->memory_mutex, NULL);
    ferry_list_init(&engine->segment_list);
    ferry_list_init(&engine->batch_list);
    ferry_list_init(&engine->allocations);
    return engine;
}

enum ferry_status ferry_engine_open_with(const struct ferry_engine_options *options,
                                         const struct ferry_engine_seams *seams,
                                         struct ferry_engine **engine_out)
{
    struct ferry_engine *engine;
    enum ferry_status status;
    char cause[FERRY_ERROR_TEXT_SIZE];

    if (engine_out == NULL || (options != NULL && options->struct_size < sizeof(*options)))
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_engine_options: struct_size %zu, expected %zu",
                          options != NULL ? options->struct_size : 0, sizeof(*options));
    engine = new_engine(seams);
    if (engine == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: out of memory");
    status = ferry_fork_mark_open(engine);
    if (status == FERRY_OK)
        status = ferry_engine_configure(options, &engine->config);
    if (status == FERRY_OK)
        status = ferry_settings_read(engine->config, &engine->settings);
    if (status == FERRY_OK)
        status = open_all(engine);
    if (status == FERRY_OK) {
        *engine_out = engine;
        return FERRY_OK;
    }
    /* Tearing down may fail calls of its own; the caller wants to know the first cause. */
    snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
    if (shut_down(engine) == FERRY_OK)
        free_memory(engine);
    else
        ferry_engine_bury(engine);
    return ferry_fail(status, "%s", cause);
}

enum ferry_status ferry_engine_open(const struct ferry_engine_options *options,
                                    struct ferry_engine **engine_out)
{
    return ferry_engine_open_with(options, NULL, engine_out);
}

enum ferry_status ferry_engine_close(struct ferry_engine *engine)
{
    enum ferry_status status;

    if (engine == NULL)
        return FERRY_OK;
    if (ferry_engine_forked(engine)) {
        ferry_engine_bury(engine);
        return FERRY_OK;
    }
    if (ferry_in_callback())
        return ferry_fail(FERRY_ERR_STATE, "a completion callback must not close an engine");
    status = shut_down(engine);
    /* The registry stays with the memory that it guards. */
    if (status != FERRY_OK)
        ferry_engine_bury(engine);
    else
        free_memory(engine);
    return status;
}

const char *ferry_engine_segment_name(const struct ferry_engine *engine)
{
    return engine->name;
}

enum ferry_status ferry_engine_find_transport(const struct ferry_engine *engine, const char *name,
                                              uint32_t *index_out)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        if (strcmp(engine->transports[i].ops->name, name) != 0)
            continue;
        if (engine->transports[i].transport == NULL)
            return FERRY_ERR_UNSUPPORTED;
        *index_out = i;
        return FERRY_OK;
    }
    return FERRY_ERR_INVALID;
}

struct ferry_transport *ferry_engine_transport(struct ferry_engine *engine, const char *name)
{
    uint32_t index;

    if (ferry_engine_find_transport(engine, name, &index) != FERRY_OK)
        return NULL;
    return engine->transports[index].transport;
}
