/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary view of a file segment: its backing files end to end. create runs on any thread; what
 * changes later is the dispatcher's. Opens nothing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "transport/file/internal.h"

void ferry_file_target_free(struct file_target *target)
{
    for (uint32_t i = 0; i < target->count; i++) {
        free(target->extents[i].path);
        free(target->extents[i].problem);
    }
    free(target->extents);
    free(target->segment);
    pthread_mutex_destroy(&target->mutex);
    free(target);
}

static enum ferry_status no_memory(void)
{
    return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
}

static enum ferry_status fill_extent(struct file_target *target, struct file_extent *extent,
                                     const struct ferry_file_part *part)
{
    uint64_t end;

    extent->target = target;
    extent->start = target->length;
    extent->length = part->length;
    extent->file_offset = part->file_offset;
    extent->fd[0][0] = extent->fd[0][1] = extent->fd[1][0] = extent->fd[1][1] = -1;
    ferry_list_init(&extent->link);
    ferry_list_init(&extent->waiters);
    if (!ferry_add_u64(target->length, part->length, &target->length) ||
        !ferry_add_u64(part->file_offset, part->length, &end) || target->length > INT64_MAX ||
        end > INT64_MAX)
        return ferry_fail(FERRY_ERR_INVALID,
                          "segment \"%.128s\": longer than a file can be, from file %u on",
                          target->segment, (unsigned)(extent - target->extents));
    if (part->path != NULL)
        extent->path = strdup(part->path);
    else
        extent->problem = strdup(part->problem);
    return extent->path != NULL || extent->problem != NULL ? FERRY_OK : no_memory();
}

enum ferry_status ferry_file_target_create(struct file_transport *ft,
                                           const struct ferry_file_layout *layout,
                                           struct file_target **target_out)
{
    struct file_target *target = calloc(1, sizeof(*target));
    enum ferry_status status = FERRY_OK;

    if (target == NULL)
        return no_memory();
    pthread_mutex_init(&target->mutex, NULL);
    target->base.transport = &ft->base;
    target->base.max_transfer_bytes = ft->settings.transfer_max;
    target->ft = ft;
    target->segment = strdup(layout->segment);
    target->extents = calloc(layout->count > 0 ? layout->count : 1, sizeof(*target->extents));
    if (target->segment == NULL || target->extents == NULL)
        status = no_memory();
    for (; status == FERRY_OK && target->count < layout->count; target->count++)
        status = fill_extent(target, &target->extents[target->count],
                             &layout->parts[target->count]);
    if (status != FERRY_OK) {
        ferry_file_target_free(target);
        return status;
    }
    *target_out = target;
    return FERRY_OK;
}

uint32_t ferry_file_target_find(const struct file_target *target, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = target->count;

    FERRY_ASSERT(offset < target->length);
    /* The last one that starts at or before the byte; empty ones before it start there, too. */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (target->extents[middle].start <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void ferry_file_target_say(struct file_target *target, const char *fmt, ...)
{
    va_list args;

    pthread_mutex_lock(&target->mutex);
    va_start(args, fmt);
    vsnprintf(target->said, sizeof(target->said), fmt, args);
    va_end(args);
    pthread_mutex_unlock(&target->mutex);
}
