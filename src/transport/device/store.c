/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoint store: a fixed hash of lists. Under its owner's lock.
 */
#include "transport/device/store.h"

#include <string.h>

#include "base/assert.h"

static struct ferry_device_entry *entry_of(struct ferry_list *link)
{
    return FERRY_CONTAINER_OF(link, struct ferry_device_entry, link);
}

static uint32_t bucket_of(const struct ferry_device_key *key)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < sizeof(key->peer); i++)
        hash = (hash ^ key->peer[i]) * 16777619u;
    hash = (hash ^ key->local) * 16777619u;
    hash = (hash ^ key->remote) * 16777619u;
    hash = (hash ^ key->lane) * 16777619u;
    return (hash ^ hash >> 16) % FERRY_DEVICE_BUCKETS;
}

static bool same(const struct ferry_device_key *a, const struct ferry_device_key *b)
{
    return a->local == b->local && a->remote == b->remote && a->lane == b->lane &&
           memcmp(a->peer, b->peer, sizeof(a->peer)) == 0;
}

void ferry_device_store_init(struct ferry_device_store *store, uint32_t count_max)
{
    for (uint32_t i = 0; i < FERRY_DEVICE_BUCKETS; i++)
        ferry_list_init(&store->buckets[i]);
    store->count = 0;
    store->count_max = count_max;
}

struct ferry_device_entry *ferry_device_store_find(struct ferry_device_store *store,
                                                   const struct ferry_device_key *key)
{
    struct ferry_list *head = &store->buckets[bucket_of(key)];

    for (struct ferry_list *link = head->next; link != head; link = link->next) {
        if (same(&entry_of(link)->key, key))
            return entry_of(link);
    }
    return NULL;
}

bool ferry_device_store_add(struct ferry_device_store *store, struct ferry_device_entry *entry)
{
    FERRY_ASSERT(!entry->stored);
    FERRY_ASSERT(ferry_device_store_find(store, &entry->key) == NULL);
    if (store->count >= store->count_max)
        return false;
    ferry_list_push_back(&store->buckets[bucket_of(&entry->key)], &entry->link);
    entry->stored = true;
    store->count++;
    return true;
}

void ferry_device_store_remove(struct ferry_device_store *store, struct ferry_device_entry *entry)
{
    if (!entry->stored)
        return;
    ferry_list_remove(&entry->link);
    entry->stored = false;
    store->count--;
}

struct ferry_device_entry *ferry_device_store_next(struct ferry_device_store *store,
                                                   struct ferry_device_entry *entry)
{
    uint32_t bucket = 0;

    if (entry != NULL) {
        bucket = bucket_of(&entry->key);
        if (entry->link.next != &store->buckets[bucket])
            return entry_of(entry->link.next);
        bucket++;
    }
    for (; bucket < FERRY_DEVICE_BUCKETS; bucket++) {
        if (!ferry_list_empty(&store->buckets[bucket]))
            return entry_of(store->buckets[bucket].next);
    }
    return NULL;
}
