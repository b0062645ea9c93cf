/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health and the measured speed of one path, a local device with a remote one. A state machine
 * without threads: several errors within a window pause the path for a while that doubles from
 * pause to pause; a success, or the end of the pause, makes it usable again and a success forgets
 * the doubling. Collateral of an error (requests that were flushed) is none of its business.
 *
 * Written by one worker; the counters may be read by any thread.
 */
#ifndef FERRY_TRANSPORT_DEVICE_RAIL_H
#define FERRY_TRANSPORT_DEVICE_RAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What an error takes with it; the larger ones are not the path's own. */
enum ferry_device_class {
    FERRY_DEVICE_FINE = 0,
    FERRY_DEVICE_LOCAL,    /* the local device: another one may work */
    FERRY_DEVICE_PATH,     /* this path: another remote device may work */
    FERRY_DEVICE_ENDPOINT, /* this endpoint: a new generation may work */
    FERRY_DEVICE_MEMORY,   /* the ranges named: final */
    FERRY_DEVICE_TIMEOUT,  /* no answer */
    FERRY_DEVICE_CANCELED, /* before it was posted */
    FERRY_DEVICE_UNKNOWN,
    FERRY_DEVICE_CLASS_COUNT,
};

const char *ferry_device_class_name(enum ferry_device_class class);

struct ferry_device_rail_options {
    uint32_t errors_max; /* within the window: the path is paused */
    uint64_t window_ns;
    uint64_t cooldown_ns;     /* the first pause */
    uint64_t cooldown_ns_max; /* what doubling ends at */
};

struct ferry_device_rail {
    /* its worker only */
    uint64_t window_began_ns;
    uint32_t window_errors;
    uint32_t pauses_in_row;
    uint64_t sampled_ns;   /* when the latest bandwidth sample ended */
    uint64_t sample_bytes; /* completed since */
    /* written by its worker, read by reports; relaxed */
    _Atomic uint64_t paused_until_ns; /* 0: not paused */
    _Atomic uint64_t bytes_per_s;     /* a moving average; 0: nothing measured yet */
    _Atomic uint64_t latency_ns;      /* likewise */
    _Atomic uint64_t completions;
    _Atomic uint64_t completed_bytes;
    _Atomic uint64_t errors[FERRY_DEVICE_CLASS_COUNT];
    _Atomic uint64_t pauses;
    _Atomic uint64_t recoveries;
    _Atomic uint64_t rebuilds; /* endpoints that were made on it after the first */
};

/* False while it is paused; ends a pause whose time is over. */
bool ferry_device_rail_usable(struct ferry_device_rail *rail, uint64_t now_ns);
/* @latency_ns: from post to completion. */
void ferry_device_rail_success(struct ferry_device_rail *rail, uint64_t bytes, uint64_t latency_ns,
                               uint64_t now_ns);
/* End of a round of completions: turn what came in since the last one into a bandwidth sample. */
void ferry_device_rail_sample(struct ferry_device_rail *rail, bool idle_before, uint64_t now_ns);
/* Counts the error; PATH and TIMEOUT may pause the path. True if this one did. */
bool ferry_device_rail_error(struct ferry_device_rail *rail,
                             const struct ferry_device_rail_options *options,
                             enum ferry_device_class class, uint64_t now_ns);

#endif
