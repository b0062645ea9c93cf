/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of transports as metrics: a bounded table, whatever the number of peers. The first
 * FERRY_PATH_PEERS names that are ever seen have a label of their own for the engine's life; the
 * others are added up under "other". So a name never moves from one series to another.
 */
#ifndef FERRY_RUNTIME_PATH_TABLE_H
#define FERRY_RUNTIME_PATH_TABLE_H

#include <stdint.h>

#include "transport/transport.h"

#define FERRY_PATH_PEERS     64
#define FERRY_PATH_RAILS     16 /* of one peer; the others are added up under "other" */
#define FERRY_PATH_PEER_SIZE 256
#define FERRY_PATH_RAIL_SIZE 48
#define FERRY_PATH_OTHER     "other"

/* What is counted of a path, as an array. */
enum ferry_path_counter {
    FERRY_PATH_READ_BYTES,
    FERRY_PATH_WRITE_BYTES,
    FERRY_PATH_ANY_BYTES,
    FERRY_PATH_OPERATIONS,
    FERRY_PATH_CONNECTS,
    FERRY_PATH_FAILURES,
    FERRY_PATH_RESENDS,
    FERRY_PATH_COUNTERS,
};

struct ferry_path_row {
    bool used;
    bool has_state;
    bool up;
    char rail[FERRY_PATH_RAIL_SIZE];
    uint64_t counters[FERRY_PATH_COUNTERS];
};

/* Zeroed at first. One thread at a time. */
struct ferry_path_labels {
    uint32_t count;
    uint64_t hashes[FERRY_PATH_PEERS];
    char names[FERRY_PATH_PEERS][FERRY_PATH_PEER_SIZE];
};

/* What was told of the peers without a label: it never goes back, though peers go. Zeroed. */
struct ferry_path_rest {
    uint64_t seen[FERRY_PATH_COUNTERS];
    uint64_t told[FERRY_PATH_COUNTERS];
};

/* One look at one transport. Zeroed but for the labels. */
struct ferry_path_table {
    struct ferry_path_labels *labels;
    struct ferry_path_row rows[FERRY_PATH_PEERS + 1][FERRY_PATH_RAILS + 1]; /* last: the others */
};

/* A ferry_path_fn; @arg is a table. */
void ferry_path_table_add(void *arg, const struct ferry_path *path);
/* After the last one: have the row of the others only grow. */
void ferry_path_table_settle(struct ferry_path_table *table, struct ferry_path_rest *rest);
/* The label of a table's row of peers. */
const char *ferry_path_peer(const struct ferry_path_table *table, uint32_t peer);

#endif
