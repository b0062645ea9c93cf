/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the file transport and of its backends. Data, and one reader.
 */
#include <sys/resource.h>

#include "base/error.h"
#include "config/option.h"
#include "transport/file/internal.h"

/* One call moves at most so much. */
#define SLICE_MAX       ((UINT64_C(2) << 30) - 4096)
#define OUTSTANDING_MAX 1048576u
#define OPEN_FILES_MAX  65536u

/* The index is enum file_durability. */
static const char *const durabilities[] = {"none", "data", "full", NULL};

static const struct ferry_option file_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "serve file segments: file://PATH, and nvmeof/NAME from a store. Costs nothing until "
             "the first one is opened"},
    {.name = "durability",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "none",
     .choices = durabilities,
     .help = "when a WRITE is complete: none, when the system has taken the bytes and every later "
             "READ on this host sees them; data, when the device has them and they survive a loss "
             "of power (fdatasync); full, when it has all of the file's state as well (fsync)"},
    {.name = "slice_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1048576",
     .min = 4096,
     .max = SLICE_MAX,
     .unit = "bytes",
     .help = "longest single read or write; rounded down to a multiple of 4096"},
    {.name = "queue_depth",
     .type = FERRY_OPTION_UINT,
     .default_value = "64",
     .min = 1,
     .max = 4096,
     .help = "reads and writes in flight at once, over all files"},
    {.name = "threads",
     .type = FERRY_OPTION_UINT,
     .default_value = "8",
     .min = 1,
     .max = FERRY_OFFLOAD_THREADS_MAX,
     .help = "threads that read and write where io_uring is not used; they start on demand"},
    {.name = "direct_io",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "go past the page cache where the file system allows it"},
    {.name = "open_files_max",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = OPEN_FILES_MAX,
     .help = "backing files open at once, with two to four descriptors each; auto: an eighth of "
             "the descriptors that the process may have, at most 1024"},
    {.name = "bounce_buffers",
     .type = FERRY_OPTION_UINT,
     .default_value = "16",
     .max = 1024,
     .help = "aligned buffers of slice_bytes for memory that direct I/O cannot use as it is; "
             "without a free one the page cache is used"},
    {.name = "max_outstanding_tasks",
     .type = FERRY_OPTION_UINT,
     .default_value = "65536",
     .min = 1,
     .max = OUTSTANDING_MAX,
     .help = "tasks admitted and not ended; more are refused with \"queue full\""},
    {.name = "max_transfer_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1099511627776",
     .min = 1,
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "longest request"},
};

static const struct ferry_option uring_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "read and write files through io_uring where the host allows it; else threads do it"},
};

static const struct ferry_option gds_options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "read and write files through NVIDIA cuFile where it is installed and takes the file; "
             "else io_uring or threads do it"},
    {.name = "library",
     .type = FERRY_OPTION_STRING,
     .max = 4095,
     .help = "cuFile's library; empty is libcufile.so.0 where the loader finds it"},
    {.name = "io_batch_depth",
     .type = FERRY_OPTION_UINT,
     .default_value = "32",
     .min = 1,
     .max = FERRY_FILE_BATCH_MAX,
     .help = "entries of one batch, at most what the library allows"},
    {.name = "batches",
     .type = FERRY_OPTION_UINT,
     .default_value = "8",
     .min = 1,
     .max = 256,
     .help = "batches in use at once; what does not fit goes to io_uring or threads"},
    {.name = "register_memory",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "register memory with cuFile; what it refuses is used unregistered"},
    {.name = "watchdog_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "10000",
     .min = 10,
     .max = 3600000,
     .unit = "ms",
     .help = "how long a call may take, and a batch be without an end of an entry, before its "
             "requests go elsewhere, or end while their memory stays registered"},
    {.name = "drain_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "200",
     .max = 60000,
     .unit = "ms",
     .help = "how long a cancelled batch is asked for its last events before it is destroyed"},
    {.name = "grace_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "500",
     .max = 60000,
     .unit = "ms",
     .help = "how long memory stays in use after the batch was destroyed whose entries never told "
             "their end; nothing promises that a device has stopped by then"},
};

const struct ferry_option_table ferry_file_option_table = {
    .component = "transports.file",
    .options = file_options,
    .count = FERRY_ARRAY_LEN(file_options),
};

static const struct ferry_option_table uring_option_table = {
    .component = "transports.io_uring",
    .options = uring_options,
    .count = FERRY_ARRAY_LEN(uring_options),
};

static const struct ferry_option_table gds_option_table = {
    .component = "transports.gds",
    .options = gds_options,
    .count = FERRY_ARRAY_LEN(gds_options),
};

const struct ferry_option_table *const ferry_file_more_options[] = {
    &gds_option_table,
    &uring_option_table,
    NULL,
};

static uint32_t auto_open_files(void)
{
    struct rlimit limit;
    uint64_t count = 1024;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 8 < count)
        count = limit.rlim_cur / 8;
    return count > 0 ? (uint32_t)count : 1;
}

enum ferry_status ferry_file_settings_read(const struct ferry_config *config,
                                           struct file_settings *settings_out)
{
    struct file_settings *settings = settings_out;

    settings->durability = (enum file_durability)ferry_config_choice(config,
                                                                     "transports.file.durability");
    settings->slice_bytes = ferry_config_u64(config, "transports.file.slice_bytes") / 4096 * 4096;
    settings->queue_depth = (uint32_t)ferry_config_u64(config, "transports.file.queue_depth");
    settings->threads = (uint32_t)ferry_config_u64(config, "transports.file.threads");
    settings->direct = ferry_config_bool(config, "transports.file.direct_io");
    settings->open_files_max = (uint32_t)ferry_config_u64(config, "transports.file.open_files_max");
    if (settings->open_files_max == 0)
        settings->open_files_max = auto_open_files();
    settings->bounce_count = (uint32_t)ferry_config_u64(config, "transports.file.bounce_buffers");
    settings->outstanding_max = (uint32_t)ferry_config_u64(config,
                                                           "transports.file.max_outstanding_tasks");
    settings->transfer_max = ferry_config_u64(config, "transports.file.max_transfer_bytes");
    settings->enabled[FILE_BACKEND_GDS] = ferry_config_bool(config, "transports.gds.enable");
    settings->gds_wanted = settings->enabled[FILE_BACKEND_GDS] &&
                           ferry_config_origin_of(config, "transports.gds.enable") !=
                               FERRY_ORIGIN_DEFAULT;
    settings->gds_register = ferry_config_bool(config, "transports.gds.register_memory");
    settings->gds_depth = (uint32_t)ferry_config_u64(config, "transports.gds.io_batch_depth");
    settings->gds_batches = (uint32_t)ferry_config_u64(config, "transports.gds.batches");
    settings->watchdog_ns = ferry_config_u64(config, "transports.gds.watchdog_ms") *
                            FERRY_NS_PER_MS;
    settings->drain_ns = ferry_config_u64(config, "transports.gds.drain_ms") * FERRY_NS_PER_MS;
    settings->grace_ns = ferry_config_u64(config, "transports.gds.grace_ms") * FERRY_NS_PER_MS;
    settings->enabled[FILE_BACKEND_URING] = ferry_config_bool(config, "transports.io_uring.enable");
    settings->enabled[FILE_BACKEND_POOL] = true;
    return FERRY_OK;
}
