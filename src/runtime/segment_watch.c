/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File segments whose description changes in the store are read again. News come on the store's
 * thread, which begins the refresh and waits for nothing; watching begins and ends on threads of
 * the caller.
 *
 * Locks: segments_mutex, then the store's own; news take only the segment's mutex.
 */
#include "base/error.h"
#include "base/log.h"
#include "runtime/runtime.h"

static void changed(struct ferry_store_watch *watch)
{
    struct ferry_segment *segment = watch->arg;

    pthread_mutex_lock(&segment->mutex);
    segment->news = true;
    pthread_mutex_unlock(&segment->mutex);
    /* If one runs now, its end begins the next. */
    ferry_segment_refresh_begin(segment, atomic_load(&segment->refresh_started) + 1);
}

void ferry_segment_watch(struct ferry_segment *segment)
{
    struct ferry_store *store = segment->engine->store;

    if (segment->watched || store->ops->watch == NULL || !ferry_stored_files_named(segment->name))
        return;
    segment->watch = (struct ferry_store_watch){
        .name = segment->name, .changed = changed, .arg = segment};
    segment->watched = ferry_store_watch(store, &segment->watch) == FERRY_OK;
    if (!segment->watched)
        ferry_debug("runtime", "changes of a file segment are not watched: %s segment=%s",
                    ferry_last_error_text(), segment->name);
}

void ferry_segment_unwatch(struct ferry_segment *segment)
{
    if (!segment->watched)
        return;
    ferry_store_unwatch(segment->engine->store, &segment->watch);
    segment->watched = false;
}

void ferry_segments_unwatch_all(struct ferry_engine *engine)
{
    pthread_mutex_lock(&engine->segments_mutex);
    for (struct ferry_list *link = engine->segment_list.next; link != &engine->segment_list;
         link = link->next)
        ferry_segment_unwatch(FERRY_CONTAINER_OF(link, struct ferry_segment, link));
    pthread_mutex_unlock(&engine->segments_mutex);
}
