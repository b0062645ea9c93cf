/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of hp_tcp: the option table and the checked values that the transport runs with.
 */
#ifndef FERRY_HP_TCP_OPTIONS_H
#define FERRY_HP_TCP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "config/option.h"
#include "reactor/worker.h"
#include "transport/hp_tcp/rail.h"

#define FERRY_HP_LANES_MAX   64u
#define FERRY_HP_WORKERS_MAX 256u
#define FERRY_HP_RAILS_MAX   FERRY_HP_LANES_MAX
/* `slicing: static` gives every rail a slice of its own, and a request has that many at most. */
#define FERRY_HP_SLICES_MAX 8u

enum ferry_hp_slicing {
    FERRY_HP_SLICING_DYNAMIC, /* lanes pull chunks when they have room */
    FERRY_HP_SLICING_STATIC,  /* as published: READ only, one contiguous slice a rail */
};

struct ferry_hp_settings {
    bool enable;
    const char *bind_address;              /* "" = any; borrowed from the configuration */
    const char *advertise_address;         /* "" = the engine's */
    const char *rails[FERRY_HP_RAILS_MAX]; /* local addresses, borrowed as above */
    uint32_t rail_count;                   /* 0: connections leave as the host routes them */
    enum ferry_hp_slicing slicing;
    bool v1_write_striping;
    uint16_t port;
    uint32_t worker_count;
    uint32_t connections_per_peer;
    uint32_t max_connections;
    uint32_t max_outstanding_tasks;
    uint64_t max_outstanding_bytes;
    uint64_t max_transfer_bytes;
    uint64_t connect_timeout_ns;
    uint64_t progress_timeout_ns;
    uint64_t total_timeout_ns;
    uint64_t idle_timeout_ns;
    uint32_t rail_timeout_ms;
    struct ferry_rail_limits rail_limits;
    uint64_t resolve_timeout_ns; /* of a question about a WRITE whose answer was lost */
    uint64_t resolve_keep_ns;    /* of what a peer may ask after a session's end */
    uint32_t resolve_answers_max;
    uint64_t handshake_timeout_ns;
    uint64_t tls_records_max;
    uint32_t window_ops;   /* requests in flight on one lane */
    uint64_t window_bytes; /* payload in flight on one lane */
    uint64_t chunk_bytes;
    uint32_t lanes_per_task;
    bool isolation;
    bool checksum; /* asked for here; in force if either side asks for it */
    uint64_t small_request_bytes;
    enum ferry_reactor_kind reactor;
    enum ferry_wait_mode wait;
    uint32_t spin_us;
};

extern const struct ferry_option_table ferry_hp_option_table;

/*
 * Read and cross-check. ERR_CONFIG with text: rails that are not unique numeric addresses, or more
 * than there are lanes, limits that no request of max_transfer_bytes could ever pass, addresses
 * that are no numeric addresses or cannot be published.
 */
enum ferry_status ferry_hp_settings_read(const struct ferry_config *config,
                                         struct ferry_hp_settings *settings_out);

#endif
