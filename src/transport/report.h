/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of a transport's report. A report that lacks one for want of memory is still a report, so
 * nothing here fails. Header only; any thread.
 */
#ifndef FERRY_TRANSPORT_REPORT_H
#define FERRY_TRANSPORT_REPORT_H

#include <stdatomic.h>

#include "base/json.h"

static inline void ferry_report_u64(struct json_object *object, const char *key, uint64_t value)
{
    if (!ferry_json_put_u64(object, key, value))
        return;
}

static inline void ferry_report_text(struct json_object *object, const char *key, const char *value)
{
    if (!ferry_json_put_string(object, key, value))
        return;
}

/* A counter that goes on while it is read. */
static inline uint64_t ferry_report_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

#endif
