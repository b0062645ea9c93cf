/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration as the runtime uses it: read once when an engine opens, so that nothing on the
 * way of a request looks a setting up by name. Runs on the thread that opens.
 */
#include "base/error.h"
#include "base/log.h"
#include "config/option.h"
#include "runtime/runtime.h"

static uint64_t milliseconds(const struct ferry_config *config, const char *name)
{
    return ferry_config_u64(config, name) * FERRY_NS_PER_MS;
}

enum ferry_status ferry_settings_read(const struct ferry_config *config,
                                      struct ferry_settings *settings_out)
{
    uint64_t ranges_max = ferry_config_u64(config, "memory_ranges_max");
    struct ferry_settings settings = {
        .wait = (enum ferry_wait_mode)ferry_config_choice(config, "wait"),
        .spin_ns = ferry_config_u64(config, "wait_spin_us_max") * FERRY_NS_PER_US,
        .control_timeout_ns = milliseconds(config, "control_timeout_ms"),
        .metadata_timeout_ns = milliseconds(config, "metadata_timeout_ms"),
        .close_timeout_ns = milliseconds(config, "close_timeout_ms"),
        .batches_max = (uint32_t)ferry_config_u64(config, "batches_max"),
        .vectored_requests_max = (uint32_t)ferry_config_u64(config, "vectored_requests_max"),
        .segments_max = (uint32_t)ferry_config_u64(config, "segments_max"),
        .ranges_max = ranges_max < FERRY_REGISTRY_BUFFERS_MAX ? (uint32_t)ranges_max
                                                              : FERRY_REGISTRY_BUFFERS_MAX,
        .notifications_max = (uint32_t)ferry_config_u64(config, "notifications_max"),
    };

    *settings_out = settings;
    return FERRY_OK;
}

/* The logger is the process's: an engine that says nothing about it leaves it alone. */
static void apply_logging(const struct ferry_config *config)
{
    if (ferry_config_origin_of(config, "log_level") != FERRY_ORIGIN_DEFAULT)
        ferry_log_set_level((enum ferry_log_level)ferry_config_choice(config, "log_level"));
    if (ferry_config_bool(config, "verbose") && !ferry_log_enabled(FERRY_LOG_DEBUG))
        ferry_log_set_level(FERRY_LOG_DEBUG);
    if (ferry_config_origin_of(config, "log_format") != FERRY_ORIGIN_DEFAULT)
        ferry_log_set_format((enum ferry_log_format)ferry_config_choice(config, "log_format"));
}

enum ferry_status ferry_engine_configure(const struct ferry_engine_options *options,
                                         struct ferry_config **config_out)
{
    struct ferry_config *config = NULL;
    enum ferry_status status;

    if (options != NULL && options->config != NULL) {
        status = ferry_config_copy(options->config, &config);
    } else {
        status = ferry_config_create(&config);
        if (status == FERRY_OK)
            status = ferry_config_load_environment(config);
    }
    if (status == FERRY_OK && options != NULL && options->segment_name != NULL)
        status = ferry_config_set(config, "local_segment_name", options->segment_name,
                                  FERRY_ORIGIN_API);
    if (status != FERRY_OK) {
        ferry_config_destroy(config);
        return status;
    }
    apply_logging(config);
    *config_out = config;
    return FERRY_OK;
}
