/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adds paths up in a bounded table. Called under a transport's lock, once for every path: no
 * allocation, and a comparison of strings only where hashes agree.
 */
#include "runtime/path_table.h"

#include <stdio.h>
#include <string.h>

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */

    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3ULL;
    return hash;
}

/* Names that are too long for a label are cut, and share one if they begin alike. */
static uint32_t peer_row(struct ferry_path_labels *labels, const char *name)
{
    char label[FERRY_PATH_PEER_SIZE];
    uint64_t hash;

    snprintf(label, sizeof(label), "%s", name);
    hash = hash_of(label);
    for (uint32_t i = 0; i < labels->count; i++) {
        if (labels->hashes[i] == hash && strcmp(labels->names[i], label) == 0)
            return i;
    }
    /* One with the name of the others is one of them: no two series have the same labels. */
    if (labels->count == FERRY_PATH_PEERS || strcmp(label, FERRY_PATH_OTHER) == 0)
        return FERRY_PATH_PEERS;
    memcpy(labels->names[labels->count], label, sizeof(label));
    labels->hashes[labels->count] = hash;
    return labels->count++;
}

static struct ferry_path_row *row_of(struct ferry_path_table *table, const struct ferry_path *path)
{
    uint32_t peer = peer_row(table->labels, path->peer);
    struct ferry_path_row *rows = table->rows[peer];
    uint32_t rail = 0;

    if (peer == FERRY_PATH_PEERS || strcmp(path->rail, FERRY_PATH_OTHER) == 0)
        rail = FERRY_PATH_RAILS;
    while (rail < FERRY_PATH_RAILS && rows[rail].used &&
           strncmp(rows[rail].rail, path->rail, FERRY_PATH_RAIL_SIZE - 1) != 0)
        rail++;
    if (!rows[rail].used)
        snprintf(rows[rail].rail, FERRY_PATH_RAIL_SIZE, "%s",
                 rail == FERRY_PATH_RAILS ? FERRY_PATH_OTHER : path->rail);
    rows[rail].used = true;
    return &rows[rail];
}

void ferry_path_table_add(void *arg, const struct ferry_path *path)
{
    struct ferry_path_row *row = row_of(arg, path);
    uint64_t *counters = row->counters;

    counters[FERRY_PATH_READ_BYTES] += path->bytes_read;
    counters[FERRY_PATH_WRITE_BYTES] += path->bytes_written;
    counters[FERRY_PATH_ANY_BYTES] += path->bytes_any;
    counters[FERRY_PATH_OPERATIONS] += path->operations;
    counters[FERRY_PATH_CONNECTS] += path->connects;
    counters[FERRY_PATH_FAILURES] += path->failures;
    counters[FERRY_PATH_RESENDS] += path->resends;
    /* Several descriptions of one peer: it is up where one of them is. */
    row->up = row->up || path->state == FERRY_PATH_UP;
    row->has_state = row->has_state || path->state != FERRY_PATH_UNKNOWN;
}

void ferry_path_table_settle(struct ferry_path_table *table, struct ferry_path_rest *rest)
{
    struct ferry_path_row *row = &table->rows[FERRY_PATH_PEERS][FERRY_PATH_RAILS];

    for (int i = 0; i < FERRY_PATH_COUNTERS; i++) {
        uint64_t now = row->counters[i];

        rest->told[i] += now > rest->seen[i] ? now - rest->seen[i] : 0;
        rest->seen[i] = now;
        row->counters[i] = rest->told[i];
        row->used = row->used || rest->told[i] > 0;
    }
    if (row->used)
        snprintf(row->rail, FERRY_PATH_RAIL_SIZE, "%s", FERRY_PATH_OTHER);
}

const char *ferry_path_peer(const struct ferry_path_table *table, uint32_t peer)
{
    return peer == FERRY_PATH_PEERS ? FERRY_PATH_OTHER : table->labels->names[peer];
}
