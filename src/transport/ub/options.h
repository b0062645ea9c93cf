/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of ub: the option table and the checked values that the transport runs with.
 */
#ifndef FERRY_UB_OPTIONS_H
#define FERRY_UB_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "config/option.h"
#include "foreign/urma.h"
#include "reactor/worker.h"
#include "transport/device/choose.h"
#include "transport/device/rail.h"

#define FERRY_UB_CONTEXTS_MAX 16u
#define FERRY_UB_WORKERS_MAX  16u
#define FERRY_UB_JETTIES_MAX  8u

struct ferry_ub_settings {
    bool enable;
    const char *adapter; /* "" = built in; borrowed from the configuration */
    uint32_t worker_count;
    uint32_t jetty_per_endpoint;
    uint32_t jetty_depth;
    uint32_t max_endpoints;
    uint32_t max_retries;
    uint32_t slices_per_worker;
    uint64_t slice_bytes;
    uint64_t slice_timeout_ns;
    uint64_t fence_timeout_ns;
    uint64_t connect_timeout_ns;
    uint64_t max_transfer_bytes;
    uint32_t max_outstanding_tasks;
    uint64_t max_outstanding_bytes;
    uint64_t device_bytes_max;
    uint32_t device_requests_max;
    uint64_t segment_bytes_max; /* 0: what the device says */
    uint32_t priority;
    uint32_t rnr_retry;
    uint32_t error_timeout;
    enum ferry_urma_path_type path_type;
    bool path_auto;
    enum ferry_urma_aggregation aggregation;
    bool multi_path;
    bool estimate;
    struct ferry_device_rail_options rail;
    struct ferry_device_weights weights;
    enum ferry_reactor_kind reactor;
    enum ferry_wait_mode wait;
    uint32_t spin_us;
};

extern const struct ferry_option_table ferry_ub_option_table;

/* Read and cross-check. ERR_CONFIG, ERR_UNSUPPORTED (notifications), with text. */
enum ferry_status ferry_ub_settings_read(const struct ferry_config *config,
                                         struct ferry_ub_settings *settings_out);

#endif
