/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table of ub and its cross-checks. Keys and meaning are the published ones where there
 * are such. Runs on the thread that opens an engine; touches nothing but the configuration.
 */
#include "transport/ub/options.h"

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/thread.h"

static const char *const path_types[] = {"auto", "rtp", "ctp", NULL};
/* The index is enum ferry_urma_aggregation. */
static const char *const aggregations[] = {"leave", "standalone", "active_backup", "balance", NULL};

#define WEIGHT(key, text)                                                                          \
    {                                                                                              \
        .name = "weight_" key, .type = FERRY_OPTION_UINT, .default_value = "100", .max = 10000,    \
        .unit = "%", .help = text                                                                  \
    }

static const struct ferry_option options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "serve and use UB devices"},
    {.name = "adapter",
     .type = FERRY_OPTION_STRING,
     .default_value = "",
     .max = 1024,
     .help = "shared object with another implementation of the native calls; empty takes the one "
             "over liburma that was built in"},
    {.name = "device_filter",
     .type = FERRY_OPTION_LIST,
     .default_value = "",
     .max = FERRY_UB_CONTEXTS_MAX,
     .help =
         "names of the devices to use; empty takes all, bonding devices alone if there are any"},
    {.name = "worker_count",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = FERRY_UB_WORKERS_MAX,
     .help = "threads that post and poll; auto is one per usable core, at most 4"},
    {.name = "poller_count",
     .type = FERRY_OPTION_PLACEHOLDER,
     .help = "without meaning here: whoever posts polls"},
    {.name = "jfc_per_context",
     .type = FERRY_OPTION_PLACEHOLDER,
     .help = "without meaning here: one completion queue per worker and device"},
    {.name = "jetty_per_endpoint",
     .type = FERRY_OPTION_UINT,
     .default_value = "1",
     .min = 1,
     .max = FERRY_UB_JETTIES_MAX,
     .help = "jetties of one path to a peer and worker"},
    {.name = "jetty_depth",
     .type = FERRY_OPTION_UINT,
     .default_value = "256",
     .min = 1,
     .max = 4096,
     .help = "requests in flight on one jetty; cut to what the device allows"},
    {.name = "max_endpoints",
     .type = FERRY_OPTION_UINT,
     .default_value = "4096",
     .min = 1,
     .max = 65536,
     .help = "endpoints that exist at once"},
    {.name = "slice_size",
     .type = FERRY_OPTION_SIZE,
     .default_value = "64KiB",
     .min = 4096,
     .max = 1073741824,
     .unit = "bytes",
     .help = "piece into which a request is cut; cut to what the devices allow"},
    {.name = "slices_per_worker",
     .type = FERRY_OPTION_UINT,
     .default_value = "1024",
     .min = 1,
     .max = 65536,
     .help = "pieces that one worker has in hand at once"},
    {.name = "max_retries",
     .type = FERRY_OPTION_UINT,
     .default_value = "3",
     .max = 100,
     .help = "how often a piece is tried again, on another path where there is one"},
    {.name = "slice_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "5000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "longest time a piece may be in flight before its endpoint is fenced"},
    {.name = "fence_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "1000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "how long a fence waits for the device, and for the peer's word, before it goes on"},
    {.name = "connect_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "3000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "bound of one endpoint bootstrap"},
    {.name = "endpoint_cooldown_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "1000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "first pause of a path after errors; doubles from pause to pause, up to ten times"},
    {.name = "path_errors_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "3",
     .min = 1,
     .max = 1000,
     .help = "errors of a path within ten seconds that pause it"},
    {.name = "max_outstanding_tasks",
     .type = FERRY_OPTION_UINT,
     .default_value = "4096",
     .min = 1,
     .max = 1048576,
     .help = "tasks admitted and not ended; more are refused with \"queue full\""},
    {.name = "max_outstanding_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "4294967296",
     .min = 1,
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "bytes of tasks admitted and not ended; one task always passes"},
    {.name = "max_transfer_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1099511627776",
     .min = 1,
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "longest request, sent or served"},
    {.name = "device_inflight_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "16MiB",
     .min = 4096,
     .max = 1099511627776,
     .unit = "bytes",
     .help = "payload in flight on one local device; one piece always passes"},
    {.name = "device_inflight_requests",
     .type = FERRY_OPTION_UINT,
     .default_value = "4096",
     .min = 1,
     .max = 1048576,
     .help = "pieces in flight on one local device"},
    {.name = "segment_bytes_max",
     .type = FERRY_OPTION_SIZE,
     .default_value = "0",
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "registered ranges longer than this are split; 0 takes what the devices say"},
    {.name = "priority",
     .type = FERRY_OPTION_UINT,
     .default_value = "15",
     .max = 15,
     .help = "priority of jetties"},
    {.name = "rnr_retry",
     .type = FERRY_OPTION_UINT,
     .default_value = "7",
     .max = 7,
     .help = "tries towards a peer that is not ready"},
    {.name = "error_timeout",
     .type = FERRY_OPTION_UINT,
     .default_value = "17",
     .max = 31,
     .help = "the device gives an answer up after 4.096 us times two to this power"},
    {.name = "path_type",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "auto",
     .choices = path_types,
     .help = "kind of transport path; auto takes ctp where the device has it for the priority"},
    {.name = "aggregation",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "leave",
     .choices = aggregations,
     .help = "mode of bonding devices"},
    {.name = "multi_path",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "let a bonding device use several paths for one jetty"},
    {.name = "enable_bandwidth_estimation",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "let measured bandwidth count in the choice of paths"},
    {.name = "enable_notifications",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "not supported: true is an error"},
    WEIGHT("locality", "how much distance from device to memory counts in the choice of paths"),
    WEIGHT("inflight", "how much bytes in flight count"),
    WEIGHT("bandwidth", "how much measured bandwidth counts"),
    WEIGHT("readiness", "how much it counts that an endpoint has to be made first"),
    WEIGHT("history", "how much errors of a path count"),
    WEIGHT("retry", "how much it counts that a piece has failed on a path already"),
};

const struct ferry_option_table ferry_ub_option_table = {
    .component = "transports.ub",
    .options = options,
    .count = FERRY_ARRAY_LEN(options),
};

#define KEY(name) "transports.ub." name

#define WORKERS_AUTO_MAX   4u
#define WINDOW_NS          (10 * FERRY_NS_PER_S)
#define COOLDOWN_DOUBLINGS 10u

static uint64_t ms(const struct ferry_config *config, const char *key)
{
    return ferry_config_u64(config, key) * FERRY_NS_PER_MS;
}

static uint32_t u32(const struct ferry_config *config, const char *key)
{
    return (uint32_t)ferry_config_u64(config, key);
}

static void read_limits(const struct ferry_config *config, struct ferry_ub_settings *s)
{
    s->worker_count = u32(config, KEY("worker_count"));
    if (s->worker_count == 0) {
        s->worker_count = ferry_usable_cores();
        if (s->worker_count > WORKERS_AUTO_MAX)
            s->worker_count = WORKERS_AUTO_MAX;
    }
    s->jetty_per_endpoint = u32(config, KEY("jetty_per_endpoint"));
    s->jetty_depth = u32(config, KEY("jetty_depth"));
    s->max_endpoints = u32(config, KEY("max_endpoints"));
    s->max_retries = u32(config, KEY("max_retries"));
    s->slices_per_worker = u32(config, KEY("slices_per_worker"));
    s->slice_bytes = ferry_config_u64(config, KEY("slice_size"));
    s->slice_timeout_ns = ms(config, KEY("slice_timeout_ms"));
    s->fence_timeout_ns = ms(config, KEY("fence_timeout_ms"));
    s->connect_timeout_ns = ms(config, KEY("connect_timeout_ms"));
    s->max_transfer_bytes = ferry_config_u64(config, KEY("max_transfer_bytes"));
    s->max_outstanding_tasks = u32(config, KEY("max_outstanding_tasks"));
    s->max_outstanding_bytes = ferry_config_u64(config, KEY("max_outstanding_bytes"));
    s->device_bytes_max = ferry_config_u64(config, KEY("device_inflight_bytes"));
    s->device_requests_max = u32(config, KEY("device_inflight_requests"));
    s->segment_bytes_max = ferry_config_u64(config, KEY("segment_bytes_max"));
}

static void read_native(const struct ferry_config *config, struct ferry_ub_settings *s)
{
    uint32_t path = ferry_config_choice(config, KEY("path_type"));

    s->priority = u32(config, KEY("priority"));
    s->rnr_retry = u32(config, KEY("rnr_retry"));
    s->error_timeout = u32(config, KEY("error_timeout"));
    s->path_auto = path == 0;
    s->path_type = path == 1 ? FERRY_URMA_PATH_RTP : FERRY_URMA_PATH_CTP;
    s->aggregation = (enum ferry_urma_aggregation)ferry_config_choice(config, KEY("aggregation"));
    s->multi_path = ferry_config_bool(config, KEY("multi_path"));
    s->rail = (struct ferry_device_rail_options){
        .errors_max = u32(config, KEY("path_errors_max")),
        .window_ns = WINDOW_NS,
        .cooldown_ns = ms(config, KEY("endpoint_cooldown_ms")),
        .cooldown_ns_max = COOLDOWN_DOUBLINGS * ms(config, KEY("endpoint_cooldown_ms")),
    };
}

static void read_weights(const struct ferry_config *config, struct ferry_ub_settings *s)
{
    s->estimate = ferry_config_bool(config, KEY("enable_bandwidth_estimation"));
    s->weights = (struct ferry_device_weights){
        .locality = u32(config, KEY("weight_locality")),
        .inflight = u32(config, KEY("weight_inflight")),
        .bandwidth = s->estimate ? u32(config, KEY("weight_bandwidth")) : 0,
        .readiness = u32(config, KEY("weight_readiness")),
        .history = u32(config, KEY("weight_history")),
        .retry = u32(config, KEY("weight_retry")),
    };
}

enum ferry_status ferry_ub_settings_read(const struct ferry_config *config,
                                         struct ferry_ub_settings *settings_out)
{
    struct ferry_ub_settings s = {
        .enable = ferry_config_bool(config, KEY("enable")),
        .adapter = ferry_config_string(config, KEY("adapter")),
        .reactor = (enum ferry_reactor_kind)ferry_config_choice(config, "reactor"),
        .wait = (enum ferry_wait_mode)ferry_config_choice(config, "wait"),
        .spin_us = u32(config, "wait_spin_us_max"),
    };

    if (ferry_config_bool(config, KEY("enable_notifications")))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.ub.enable_notifications: notifications over UB are not "
                          "supported; they go over the control plane");
    read_limits(config, &s);
    read_native(config, &s);
    read_weights(config, &s);
    *settings_out = s;
    return FERRY_OK;
}
