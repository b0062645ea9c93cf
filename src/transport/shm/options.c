/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of shm: their table, and their reading. Pure.
 */
#include "base/thread.h"
#include "config/option.h"
#include "transport/shm/internal.h"

#define OUTSTANDING_MAX 1048576u
#define TRANSFER_MAX    (UINT64_MAX / 2)
/* More threads do not copy faster than the memory is. */
#define WORKERS_AUTO_MAX 4u

static const struct ferry_option options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "meet other processes of the same user on this host, and copy to and from their "
             "memory once, without a socket"},
    {.name = "worker_count",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = SHM_WORKERS_MAX,
     .help = "threads that copy; auto: usable cores, at most 4"},
    {.name = "max_outstanding_tasks",
     .type = FERRY_OPTION_UINT,
     .default_value = "16384",
     .min = 1,
     .max = OUTSTANDING_MAX,
     .help = "tasks admitted and not ended; more are refused with \"queue full\""},
    {.name = "max_transfer_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1099511627776",
     .min = 1,
     .max = TRANSFER_MAX,
     .unit = "bytes",
     .help = "longest request"},
    {.name = "chunk_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1048576",
     .min = 4096,
     .max = 1073741824,
     .unit = "bytes",
     .help = "piece that is copied before the next request gets its turn, and under one lease"},
    {.name = "split_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "4194304",
     .min = 1,
     .max = TRANSFER_MAX,
     .unit = "bytes",
     .help = "requests from this length on are copied by all workers together"},
    {.name = "streaming_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "16777216",
     .min = 0,
     .max = TRANSFER_MAX,
     .unit = "bytes",
     .help = "requests from this length on are copied past the caches where both memories are "
             "mapped; 0: never"},
    {.name = "peers_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "256",
     .min = 1,
     .max = 65536,
     .help = "peers that may reach this engine at the same time"},
    {.name = "meet_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "3000",
     .min = 10,
     .max = 600000,
     .unit = "ms",
     .help = "how long a peer may take to answer on the socket"},
    {.name = "socket_dir",
     .type = FERRY_OPTION_STRING,
     .default_value = "",
     .max = 64,
     .help = "folder for the socket at which peers meet; empty: an abstract name, which needs no "
             "file and is seen inside one network namespace"},
    {.name = "allow_ptrace",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "let any process of the user reach this process's memory where the Yama module "
             "forbids it (PR_SET_PTRACER); changes the whole process"},
};

const struct ferry_option_table ferry_shm_options = {
    .component = "transports.shm",
    .options = options,
    .count = FERRY_ARRAY_LEN(options),
};

void ferry_shm_settings_read(const struct ferry_config *config, struct shm_settings *settings_out)
{
    struct shm_settings s = {
        .outstanding_max = (uint32_t)ferry_config_u64(config,
                                                      "transports.shm.max_outstanding_tasks"),
        .worker_count = (uint32_t)ferry_config_u64(config, "transports.shm.worker_count"),
        .peers_max = (uint32_t)ferry_config_u64(config, "transports.shm.peers_max"),
        .transfer_max = ferry_config_u64(config, "transports.shm.max_transfer_bytes"),
        .chunk_bytes = ferry_config_u64(config, "transports.shm.chunk_bytes"),
        .split_bytes = ferry_config_u64(config, "transports.shm.split_bytes"),
        .streaming_bytes = ferry_config_u64(config, "transports.shm.streaming_bytes"),
        .meet_timeout_ns = ferry_config_u64(config, "transports.shm.meet_timeout_ms") *
                           FERRY_NS_PER_MS,
        .socket_dir = ferry_config_string(config, "transports.shm.socket_dir"),
        .allow_ptrace = ferry_config_bool(config, "transports.shm.allow_ptrace"),
    };

    if (s.worker_count == 0) {
        s.worker_count = ferry_usable_cores();
        if (s.worker_count > WORKERS_AUTO_MAX)
            s.worker_count = WORKERS_AUTO_MAX;
    }
    *settings_out = s;
}
