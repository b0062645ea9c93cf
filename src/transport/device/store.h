/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoint store: for each path to a peer and lane the present endpoint, if there is one.
 * Retired ones are out of it; a successor never meets its predecessor here. Not thread-safe: under
 * the owner's lock.
 */
#ifndef FERRY_TRANSPORT_DEVICE_STORE_H
#define FERRY_TRANSPORT_DEVICE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "base/list.h"

struct ferry_device_key {
    uint8_t peer[16]; /* the incarnation of the peer */
    uint32_t local;   /* local device, by index */
    uint32_t remote;  /* remote device, by its own index */
    uint32_t lane;
};

/* Embedded in an endpoint. */
struct ferry_device_entry {
    struct ferry_list link;
    struct ferry_device_key key;
    bool stored;
};

#define FERRY_DEVICE_BUCKETS 256u

struct ferry_device_store {
    struct ferry_list buckets[FERRY_DEVICE_BUCKETS];
    uint32_t count;
    uint32_t count_max;
};

void ferry_device_store_init(struct ferry_device_store *store, uint32_t count_max);
/* The endpoint of a key, or NULL. */
struct ferry_device_entry *ferry_device_store_find(struct ferry_device_store *store,
                                                   const struct ferry_device_key *key);
/* Given: there is none of that key. False if the store is full. */
bool ferry_device_store_add(struct ferry_device_store *store, struct ferry_device_entry *entry);
/* Out of it; harmless if it is not in. */
void ferry_device_store_remove(struct ferry_device_store *store, struct ferry_device_entry *entry);
/* All entries in turn: starts with NULL, NULL at the end. The store must not change meanwhile. */
struct ferry_device_entry *ferry_device_store_next(struct ferry_device_store *store,
                                                   struct ferry_device_entry *entry);

#endif
