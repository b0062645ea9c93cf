/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings of the engine itself, and the published top-level keys that have no meaning here. Data
 * only.
 */
#include "config/engine_options.h"

#include "base/compiler.h"

/* The index is enum ferry_log_level. */
static const char *const log_levels[] = {"off", "error", "warn", "info", "debug", "trace", NULL};
static const char *const log_level_aliases[] = {"warning", "warn", "fatal", "error", NULL};
static const char *const log_formats[] = {"text", "json", NULL}; /* enum ferry_log_format */
static const char *const reactors[] = {"auto", "uring", "epoll",
                                       NULL}; /* enum ferry_reactor_kind */
static const char *const waits[] = {"adaptive", "sleep", "spin", NULL}; /* enum ferry_wait_mode */
static const char *const stores[] = {"p2p", "peer", "http", "etcd", NULL};

#define PUBLISHED(key)                                                                             \
    {                                                                                              \
        .name = (key), .type = FERRY_OPTION_PLACEHOLDER,                                           \
        .help = "accepted from published files, without effect"                                    \
    }

static const struct ferry_option options[] = {
    {.name = "local_segment_name",
     .type = FERRY_OPTION_STRING,
     .max = 255,
     .help = "name under which peers find this engine; needs a metadata store. Empty: the address "
             "of the control plane, or a random name in a store"},
    {.name = "metadata_type",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "p2p",
     .choices = stores,
     .help = "where segments are published: p2p (also called peer) asks the peer itself and needs "
             "no server, http is a key-value store behind metadata_servers, etcd is a cluster of "
             "etcd v3"},
    {.name = "metadata_servers",
     .type = FERRY_OPTION_STRING,
     .max = 1024,
     .help = "http: the URL of the store. etcd: its endpoints, URLs or HOST:PORT, separated by "
             "commas. Unused with p2p"},
    {.name = "metadata_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "3000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "bound of one request to the metadata store"},
    {.name = "metadata_cluster",
     .type = FERRY_OPTION_STRING,
     .max = 64,
     .help = "fleet inside a shared store: its keys begin with mooncake/, this name and a slash"},
    {.name = "metadata_lease_s",
     .type = FERRY_OPTION_UINT,
     .default_value = "10",
     .min = 2,
     .max = 86400,
     .unit = "s",
     .help = "etcd: how long the entry of an engine that died stays in the store"},
    {.name = "metadata_user",
     .type = FERRY_OPTION_STRING,
     .max = 255,
     .help = "etcd: user to authenticate as; empty is nobody"},
    {.name = "metadata_password",
     .type = FERRY_OPTION_SECRET,
     .max = 255,
     .help = "etcd: password of metadata_user"},
    {.name = "metadata_ca_file",
     .type = FERRY_OPTION_STRING,
     .max = 4095,
     .help =
         "https: file with the authorities that may sign the store's certificate, PEM; empty is "
         "the system's"},
    {.name = "metadata_cert_file",
     .type = FERRY_OPTION_STRING,
     .max = 4095,
     .help = "https: file with our own certificate for the store, PEM"},
    {.name = "metadata_key_file",
     .type = FERRY_OPTION_STRING,
     .max = 4095,
     .help = "https: file with the key of metadata_cert_file, PEM"},
    {.name = "host_name",
     .type = FERRY_OPTION_STRING,
     .max = 1024,
     .help = "names of this host in the path maps of file segments, separated by commas; the first "
             "one is written, all are looked up. Empty is the system's host name"},
    {.name = "rpc_server_hostname",
     .type = FERRY_OPTION_STRING,
     .max = 255,
     .help = "address on which the control plane listens; empty is loopback, 127.0.0.1"},
    {.name = "rpc_server_port",
     .type = FERRY_OPTION_UINT,
     .default_value = "0",
     .max = 65535,
     .help = "port of the control plane; 0 lets the system pick one"},
    {.name = "advertise_address",
     .type = FERRY_OPTION_STRING,
     .max = 255,
     .help = "address or name that peers are told; empty picks one that they can reach"},
    {.name = "auth_key_file",
     .type = FERRY_OPTION_STRING,
     .max = 1024,
     .help = "file with the key that peers have to prove, over data connections and the control "
             "plane, and that this engine proves to them; a line of hex or base64, at least 32 "
             "bytes, readable by its owner only. Empty: nobody proves anything"},
    {.name = "log_level",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "warn",
     .choices = log_levels,
     .aliases = log_level_aliases,
     .help = "least severe messages that are logged; the published warning and fatal read as warn "
             "and error"},
    {.name = "log_format",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "text",
     .choices = log_formats,
     .help = "lines of text, or one JSON object a line"},
    {.name = "verbose",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "log at least at level debug"},
    {.name = "reactor",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "auto",
     .choices = reactors,
     .help = "how sockets are driven: io_uring, epoll, or io_uring where the host allows it"},
    {.name = "wait",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "adaptive",
     .choices = waits,
     .help = "how threads wait: adaptive spins shortly after recent traffic, sleep never spins, "
             "spin burns a core"},
    {.name = "wait_spin_us_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "50",
     .max = 10000,
     .unit = "us",
     .help = "longest spin of an adaptive wait"},
    {.name = "control_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "5000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "bound of one request to a peer's control plane"},
    {.name = "close_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "10000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "bound of closing an engine"},
    {.name = "batches_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "16384",
     .min = 1,
     .max = 16777216,
     .help = "batches that exist at once"},
    {.name = "vectored_requests_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "256",
     .min = 1,
     .max = 4096,
     .help =
         "requests with a list of pieces that are not over; each reserves 1 MB of addresses, and "
         "keeps what its longest list used"},
    {.name = "segments_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "4096",
     .min = 1,
     .max = 1048576,
     .help = "remote segments open at once"},
    {.name = "notifications_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "1024",
     .min = 1,
     .max = 1048576,
     .help = "received notifications that wait to be taken; further ones are refused"},
    {.name = "memory_ranges_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "1048576",
     .min = 1,
     .max = 16777216,
     .help = "ranges of memory registered at once"},
    {.name = "force_transport",
     .type = FERRY_OPTION_STRING,
     .max = 31,
     .help = "use exactly this transport and no other, whatever the sections below transports say"},
    PUBLISHED("rpc_server_threads"),
    PUBLISHED("merge_requests"),
    PUBLISHED("max_failover_attempts"),
    PUBLISHED("enable_auto_failover_on_poll"),
    PUBLISHED("enable_progress_worker"),
    PUBLISHED("enable_runtime_queue"),
    PUBLISHED("runtime_queue"),
    PUBLISHED("use_legacy_transport_selection"),
    PUBLISHED("policy"),
    PUBLISHED("qos"),
    PUBLISHED("metrics"),
    PUBLISHED("topology"),
};

const struct ferry_option_table ferry_engine_option_table = {
    .component = "",
    .options = options,
    .count = FERRY_ARRAY_LEN(options),
};
