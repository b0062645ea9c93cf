/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: how many tasks and bytes may be inside hp_tcp at once. Any thread, two atomics, no
 * lock. A counter that would go below zero is a defect: it is kept as it is, reported once, and
 * admission closes for good, since live work must never be counted as done.
 */
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

enum ferry_status ferry_hp_admission_take(struct hp_admission *admission, uint32_t tasks,
                                          uint64_t bytes)
{
    uint32_t tasks_before;
    uint64_t bytes_before;

    if (atomic_load_explicit(&admission->closed, memory_order_relaxed))
        return FERRY_ERR_CLOSING;
    if (tasks > admission->tasks_max || bytes > admission->bytes_max)
        return FERRY_ERR_QUEUE_FULL;
    /* Add first, look afterwards: two racing submits may both be refused, never both pass. */
    tasks_before = atomic_fetch_add(&admission->tasks, tasks);
    bytes_before = atomic_fetch_add(&admission->bytes, bytes);
    if (tasks_before <= admission->tasks_max - tasks &&
        bytes_before <= admission->bytes_max - bytes && !atomic_load(&admission->closed))
        return FERRY_OK;
    atomic_fetch_sub(&admission->tasks, tasks);
    atomic_fetch_sub(&admission->bytes, bytes);
    return atomic_load(&admission->closed) ? FERRY_ERR_CLOSING : FERRY_ERR_QUEUE_FULL;
}

void ferry_hp_admission_fail(struct hp_admission *admission, const char *why)
{
    atomic_store(&admission->closed, true);
    if (!atomic_exchange(&admission->failed, true))
        ferry_error("hp_tcp", "admission is closed for good: %s", why);
}

void ferry_hp_admission_give(struct hp_admission *admission, uint32_t tasks, uint64_t bytes)
{
    uint32_t tasks_now = atomic_load(&admission->tasks);
    uint64_t bytes_now = atomic_load(&admission->bytes);

    do {
        if (tasks_now < tasks) {
            ferry_hp_admission_fail(admission, "the count of tasks would go below zero");
            return;
        }
    } while (!atomic_compare_exchange_weak(&admission->tasks, &tasks_now, tasks_now - tasks));
    do {
        if (bytes_now < bytes) {
            ferry_hp_admission_fail(admission, "the count of bytes would go below zero");
            return;
        }
    } while (!atomic_compare_exchange_weak(&admission->bytes, &bytes_now, bytes_now - bytes));
}
