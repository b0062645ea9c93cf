/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-producer inbox: any thread pushes, one consumer takes everything at once. Unbounded by
 * itself because its nodes are embedded in objects that are already bounded elsewhere. The consumer
 * sees the items in the order in which they were pushed.
 */
#ifndef FERRY_BASE_INBOX_H
#define FERRY_BASE_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct ferry_inbox_node {
    struct ferry_inbox_node *next;
};

struct ferry_inbox {
    _Atomic(struct ferry_inbox_node *) top;
};

static inline void ferry_inbox_init(struct ferry_inbox *inbox)
{
    atomic_init(&inbox->top, NULL);
}

/* Any thread. True if the inbox was empty before, which is when the consumer may need a wake-up. */
static inline bool ferry_inbox_push(struct ferry_inbox *inbox, struct ferry_inbox_node *node)
{
    struct ferry_inbox_node *top = atomic_load_explicit(&inbox->top, memory_order_relaxed);

    /* Release pairs with the acquire in ferry_inbox_take(); seq_cst because the pusher then reads
     * the consumer's "asleep" flag, and the consumer sets that flag and then reads the top. */
    do {
        node->next = top;
    } while (!atomic_compare_exchange_weak_explicit(&inbox->top, &top, node, memory_order_seq_cst,
                                                    memory_order_relaxed));
    return top == NULL;
}

static inline bool ferry_inbox_empty(const struct ferry_inbox *inbox)
{
    return atomic_load(&inbox->top) == NULL;
}

/* The consumer only. All items, oldest first, linked by `next`; NULL if there are none. */
static inline struct ferry_inbox_node *ferry_inbox_take(struct ferry_inbox *inbox)
{
    struct ferry_inbox_node *node = atomic_exchange_explicit(&inbox->top, NULL,
                                                             memory_order_acquire);
    struct ferry_inbox_node *oldest = NULL;

    while (node != NULL) {
        struct ferry_inbox_node *next = node->next;

        node->next = oldest;
        oldest = node;
        node = next;
    }
    return oldest;
}

#endif
