/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which path takes the next piece of work. A pure function of what it is given: the same candidates
 * give the same choice. The score is a predicted time: what is in flight on the local device and
 * the path, and the piece itself, over the measured bandwidth, made longer by distance and trouble.
 * The lowest wins, the earlier of two equals.
 */
#ifndef FERRY_TRANSPORT_DEVICE_CHOOSE_H
#define FERRY_TRANSPORT_DEVICE_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

/* In hundredths; 0 leaves the reason out of the score. */
struct ferry_device_weights {
    uint32_t locality;  /* memory on another NUMA node than the device */
    uint32_t inflight;  /* bytes in flight */
    uint32_t bandwidth; /* measured, against all paths alike */
    uint32_t readiness; /* an endpoint that has to be made first */
    uint32_t history;   /* errors lately */
    uint32_t retry;     /* the piece has failed here already */
};

#define FERRY_DEVICE_WEIGHTS_DEFAULT                                                               \
    {                                                                                              \
        .locality = 100, .inflight = 100, .bandwidth = 100, .readiness = 100, .history = 100,      \
        .retry = 100                                                                               \
    }

struct ferry_device_candidate {
    bool usable;          /* device and path are there, not paused, with room for the piece */
    bool near;            /* to the memory; also if nothing is known */
    bool ready;           /* its endpoint is */
    bool tried;           /* the piece has failed on it */
    uint32_t errors;      /* lately */
    uint64_t inflight;    /* bytes, of its local device */
    uint64_t bytes_per_s; /* 0: not measured */
};

#define FERRY_DEVICE_NONE UINT32_MAX

/* The score of one, in nanoseconds; for explanations. */
uint64_t ferry_device_score(const struct ferry_device_candidate *candidate,
                            const struct ferry_device_weights *weights, uint64_t bytes,
                            uint64_t default_bytes_per_s);
/* The index of the best usable one, or FERRY_DEVICE_NONE. */
uint32_t ferry_device_choose(const struct ferry_device_candidate *candidates, uint32_t count,
                             const struct ferry_device_weights *weights, uint64_t bytes);

#endif
