/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of ranges that bytes of an old WRITE may still reach: see doubts.h. Decides nothing
 * about connections; off the hot path but for the count, which who posts a WRITE looks at.
 */
#include "transport/hp_tcp/doubts.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

/* Sessions of processes that no segment is open to; the oldest are forgotten. */
#define PARKED_MAX 64u

static struct hp_doubts *of_link(struct ferry_list *link)
{
    return FERRY_CONTAINER_OF(link, struct hp_doubts, link);
}

static bool is_of(const struct hp_doubts *doubts, const uint8_t *incarnation)
{
    return memcmp(doubts->incarnation, incarnation, FERRY_INCARNATION_SIZE) == 0;
}

struct hp_doubts *ferry_hp_doubts_create(uint32_t room)
{
    struct hp_doubts *doubts = calloc(1, sizeof(*doubts) + room * sizeof(doubts->ranges[0]));

    if (doubts != NULL) {
        ferry_list_init(&doubts->link);
        doubts->room = room;
    }
    return doubts;
}

static void free_list(struct ferry_list *list)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(list)) != NULL)
        free(of_link(link));
}

void ferry_hp_doubts_fini(struct hp_transport *transport)
{
    free_list(&transport->doubts);
    free_list(&transport->doubts_parked);
}

/*
 * Pairs with the relaxed look before a WRITE is posted: one that races was not "later". What waited
 * for a range that is certain now, or that nobody sees to any more, is looked at again.
 */
static void count(struct hp_transport *transport, uint32_t before, uint32_t now)
{
    atomic_fetch_add(&transport->doubt_count, now - before);
}

void ferry_hp_doubts_publish(struct hp_transport *transport, struct hp_doubts *doubts)
{
    FERRY_DASSERT(doubts->range_count <= doubts->room);
    if (doubts->range_count == 0)
        return;
    pthread_mutex_lock(&transport->doubt_mutex);
    doubts->taken = true;
    ferry_list_push_back(&transport->doubts, &doubts->link);
    pthread_mutex_unlock(&transport->doubt_mutex);
    count(transport, 0, doubts->range_count);
}

void ferry_hp_doubts_filter(struct hp_transport *transport, struct hp_doubts *doubts,
                            bool (*keep)(const void *context, const struct hp_doubted *range),
                            const void *context)
{
    uint32_t before = doubts->range_count;
    uint32_t kept = 0;

    if (before == 0)
        return;
    pthread_mutex_lock(&transport->doubt_mutex);
    for (uint32_t i = 0; i < before; i++) {
        if (keep(context, &doubts->ranges[i]))
            doubts->ranges[kept++] = doubts->ranges[i];
    }
    doubts->range_count = kept;
    if (kept == 0)
        ferry_list_remove(&doubts->link);
    pthread_mutex_unlock(&transport->doubt_mutex);
    count(transport, before, kept);
    if (kept < before)
        ferry_hp_scan_all(transport);
}

void ferry_hp_doubts_ended(struct hp_transport *transport, struct hp_doubts *doubts,
                           uint64_t request_id)
{
    pthread_mutex_lock(&transport->doubt_mutex);
    for (uint32_t i = 0; i < doubts->range_count; i++) {
        if (doubts->ranges[i].request_id == request_id)
            doubts->ranges[i].flow = NULL;
    }
    pthread_mutex_unlock(&transport->doubt_mutex);
}

void ferry_hp_doubts_clear(struct hp_transport *transport, struct hp_doubts *doubts)
{
    uint32_t before = doubts->range_count;

    if (before == 0)
        return;
    pthread_mutex_lock(&transport->doubt_mutex);
    doubts->range_count = 0;
    ferry_list_remove(&doubts->link);
    pthread_mutex_unlock(&transport->doubt_mutex);
    count(transport, before, 0);
    if (doubts->left)
        free(doubts);
    ferry_hp_scan_all(transport);
}

void ferry_hp_doubts_leave(struct hp_transport *transport, struct hp_doubts *doubts, bool taken)
{
    FERRY_DASSERT(doubts->range_count > 0 && !doubts->left);
    pthread_mutex_lock(&transport->doubt_mutex);
    for (uint32_t i = 0; i < doubts->range_count; i++)
        doubts->ranges[i].flow = NULL;
    doubts->left = true;
    doubts->taken = taken;
    pthread_mutex_unlock(&transport->doubt_mutex);
    if (!taken)
        ferry_hp_scan_all(transport);
}

struct hp_doubts *ferry_hp_doubts_take(struct hp_transport *transport, const uint8_t *incarnation)
{
    struct hp_doubts *found = NULL;

    if (atomic_load_explicit(&transport->doubt_count, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&transport->doubt_mutex);
    for (struct ferry_list *l = transport->doubts.next; l != &transport->doubts; l = l->next) {
        struct hp_doubts *doubts = of_link(l);

        if (found == NULL && doubts->left && !doubts->taken && is_of(doubts, incarnation))
            found = doubts;
    }
    if (found != NULL)
        found->taken = true;
    pthread_mutex_unlock(&transport->doubt_mutex);
    return found;
}

void ferry_hp_doubts_give_back(struct hp_transport *transport, struct hp_doubts *doubts)
{
    pthread_mutex_lock(&transport->doubt_mutex);
    doubts->taken = false;
    pthread_mutex_unlock(&transport->doubt_mutex);
    ferry_hp_scan_all(transport);
}

/* ---- processes that nobody writes to ---- */

/* Move what is left of one process to another list. Returns the number of ranges. */
static uint32_t move(struct ferry_list *from, struct ferry_list *to, const uint8_t *incarnation)
{
    struct ferry_list *link = from->next;
    uint32_t ranges = 0;

    while (link != from) {
        struct hp_doubts *doubts = of_link(link);

        link = link->next;
        if (!is_of(doubts, incarnation) || !doubts->left)
            continue;
        ferry_list_remove(&doubts->link);
        ferry_list_push_back(to, &doubts->link);
        ranges += doubts->range_count;
    }
    return ranges;
}

static void forget_oldest(struct ferry_list *parked)
{
    uint32_t have = 0;

    for (const struct ferry_list *l = parked->next; l != parked; l = l->next)
        have++;
    for (; have > PARKED_MAX; have--)
        free(of_link(ferry_list_pop_front(parked)));
}

void ferry_hp_doubts_park(struct hp_transport *transport, const uint8_t *incarnation)
{
    uint32_t ranges;

    pthread_mutex_lock(&transport->doubt_mutex);
    ranges = move(&transport->doubts, &transport->doubts_parked, incarnation);
    forget_oldest(&transport->doubts_parked);
    pthread_mutex_unlock(&transport->doubt_mutex);
    count(transport, ranges, 0);
}

void ferry_hp_doubts_unpark(struct hp_transport *transport, const uint8_t *incarnation)
{
    uint32_t ranges;

    pthread_mutex_lock(&transport->doubt_mutex);
    ranges = move(&transport->doubts_parked, &transport->doubts, incarnation);
    pthread_mutex_unlock(&transport->doubt_mutex);
    count(transport, 0, ranges);
}

/* ---- who waits ---- */

static bool overlaps(const struct hp_doubts *doubts, const struct hp_doubted *wanted)
{
    for (uint32_t i = 0; i < doubts->range_count; i++) {
        const struct hp_doubted *range = &doubts->ranges[i];

        if (range->flow != wanted->flow &&
            ferry_range_overlaps(range->addr, range->length, wanted->addr, wanted->length))
            return true;
    }
    return false;
}

enum hp_wait ferry_hp_doubts_wait(struct hp_transport *transport, const uint8_t *incarnation,
                                  const struct hp_doubted *wanted)
{
    enum hp_wait wait = HP_WAIT_NOT;

    pthread_mutex_lock(&transport->doubt_mutex);
    for (struct ferry_list *l = transport->doubts.next; l != &transport->doubts; l = l->next) {
        const struct hp_doubts *doubts = of_link(l);

        if (!is_of(doubts, incarnation) || !overlaps(doubts, wanted))
            continue;
        if (!doubts->taken)
            wait = HP_WAIT_FENCE;
        else if (wait == HP_WAIT_NOT)
            wait = HP_WAIT_OTHERS;
    }
    pthread_mutex_unlock(&transport->doubt_mutex);
    return wait;
}
