/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive doubly linked list; the head is a node that points to itself when empty. Not
 * thread-safe: each list belongs to one thread or one lock, named where it is declared.
 */
#ifndef FERRY_BASE_LIST_H
#define FERRY_BASE_LIST_H

#include <stdbool.h>

struct ferry_list {
    struct ferry_list *next;
    struct ferry_list *prev;
};

static inline void ferry_list_init(struct ferry_list *head)
{
    head->next = head;
    head->prev = head;
}

static inline bool ferry_list_empty(const struct ferry_list *head)
{
    return head->next == head;
}

static inline void ferry_list_insert_between(struct ferry_list *node, struct ferry_list *prev,
                                             struct ferry_list *next)
{
    node->prev = prev;
    node->next = next;
    prev->next = node;
    next->prev = node;
}

static inline void ferry_list_push_back(struct ferry_list *head, struct ferry_list *node)
{
    ferry_list_insert_between(node, head->prev, head);
}

static inline void ferry_list_push_front(struct ferry_list *head, struct ferry_list *node)
{
    ferry_list_insert_between(node, head, head->next);
}

/* Leaves @node as an empty list, so removing twice is harmless. */
static inline void ferry_list_remove(struct ferry_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    ferry_list_init(node);
}

static inline struct ferry_list *ferry_list_pop_front(struct ferry_list *head)
{
    struct ferry_list *node = head->next;

    if (node == head)
        return 0;
    ferry_list_remove(node);
    return node;
}

#endif
