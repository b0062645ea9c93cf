/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments: names, their counts, and the reading of their descriptions. Open and close run on any
 * thread of the caller; a description that arrives is parsed and installed on the store's thread.
 *
 * Refreshes of a segment are numbered, and one runs at a time. Whoever needs news from now on wants
 * the number after the last that began, and is served by that one together with all who came before
 * it began: ten thousand stale tasks cause one request.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "metadata/document.h"
#include "runtime/runtime.h"

/* FNV-1a, 64 bit: to tell whether a description changed; nothing is lost if a collision hides it.
 */
static uint64_t hash_text(const char *text, size_t len)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

void ferry_segment_release(struct ferry_segment *segment)
{
    struct ferry_engine *engine = segment->engine;

    if (atomic_fetch_sub(&segment->refs, 1) != 1)
        return;
    free(segment->name);
    segment->name = NULL;
    pthread_mutex_destroy(&segment->mutex);
    ferry_pool_release(&engine->segments, segment);
}

/* Put @view, which may be NULL, in the place of the present one. False if the segment is closed. */
static bool install_view(struct ferry_segment *segment, struct ferry_view *view, bool close)
{
    struct ferry_view *old = NULL;
    bool closed;

    pthread_mutex_lock(&segment->mutex);
    closed = segment->closed;
    if (!closed) {
        segment->closed = close;
        old = atomic_exchange(&segment->view, view);
    }
    pthread_mutex_unlock(&segment->mutex);
    if (old != NULL)
        ferry_view_retire(old);
    return !closed;
}

static bool same_as_now(struct ferry_segment *segment, uint64_t hash, size_t len)
{
    struct ferry_view *view = ferry_view_acquire(&segment->view);
    bool same = view != NULL && view->text_hash == hash && view->text_len == len;

    if (view != NULL)
        ferry_view_release(view);
    return same;
}

static enum ferry_status take_document(struct ferry_segment *segment, const char *text, size_t len)
{
    uint64_t hash = hash_text(text, len);
    struct ferry_document *doc = NULL;
    struct ferry_view *view = NULL;
    enum ferry_status status;

    /* What the paths of a store name may be other files by now, whatever the text says. */
    if (!ferry_stored_files_named(segment->name) && same_as_now(segment, hash, len))
        return FERRY_OK;
    if (segment->is_file) {
        status = ferry_file_segment_view(segment, text, &view);
    } else if (ferry_stored_files_named(segment->name)) {
        status = ferry_stored_files_view(segment, text, len, &view);
    } else {
        status = ferry_document_parse(text, len, &doc);
        if (status == FERRY_OK)
            status = ferry_view_create(segment->engine, segment, doc, &view);
    }
    if (status != FERRY_OK)
        return status;
    view->text_hash = hash;
    view->text_len = len;
    if (!install_view(segment, view, false))
        ferry_view_retire(view);
    return FERRY_OK;
}

static void refresh_done(struct ferry_store_request *request)
{
    struct ferry_segment *segment = request->arg;
    struct ferry_engine *engine = segment->engine;
    enum ferry_status status = request->status;
    const char *error = request->error;
    bool news;

    if (status == FERRY_OK) {
        status = take_document(segment, request->reply, request->reply_len);
        error = status != FERRY_OK ? ferry_last_error_text() : "";
        free(request->reply);
        request->reply = NULL;
    }
    ferry_debug("runtime", "description of segment read segment=%s status=%s", segment->name,
                ferry_status_name(status));
    pthread_mutex_lock(&segment->mutex);
    segment->refresh_status = status;
    snprintf(segment->refresh_error, sizeof(segment->refresh_error), "%s", error);
    segment->refreshing = false;
    news = segment->news;
    atomic_store(&segment->refresh_done, atomic_load(&segment->refresh_started));
    pthread_mutex_unlock(&segment->mutex);
    ferry_futex_wake(&segment->refresh_done, INT32_MAX);
    if (news && status != FERRY_ERR_CLOSING)
        ferry_segment_refresh_begin(segment, atomic_load(&segment->refresh_started) + 1);
    ferry_keeper_poke(engine);
    ferry_segment_release(segment);
    if (atomic_fetch_sub(&engine->refreshes_running, 1) == 1)
        ferry_futex_wake(&engine->refreshes_running, 1);
}

/* In the place of a store: looks at the file and answers at once. */
static void look_at_file(struct ferry_segment *segment)
{
    struct ferry_store_request *request = &segment->request;

    request->status = ferry_file_segment_look(segment->name, &request->reply, &request->reply_len);
    if (request->status != FERRY_OK)
        snprintf(request->error, sizeof(request->error), "%s", ferry_last_error_text());
    refresh_done(request);
}

/* Numbers wrap; their difference does not as long as fewer than 2^31 are behind. */
static bool reached(uint32_t number, uint32_t ticket)
{
    return (int32_t)(number - ticket) >= 0;
}

void ferry_segment_refresh_begin(struct ferry_segment *segment, uint32_t ticket)
{
    struct ferry_engine *engine = segment->engine;
    uint64_t timeout_ns = engine->settings.control_timeout_ns;
    bool begin;

    if (!engine->store->ops->names_are_addresses)
        timeout_ns = engine->settings.metadata_timeout_ns;
    pthread_mutex_lock(&segment->mutex);
    begin = !segment->refreshing && !reached(atomic_load(&segment->refresh_started), ticket);
    if (begin) {
        segment->refreshing = true;
        segment->news = false;
        atomic_fetch_add(&segment->refresh_started, 1);
    }
    pthread_mutex_unlock(&segment->mutex);
    if (!begin)
        return;

    atomic_fetch_add(&segment->refs, 1);
    atomic_fetch_add(&engine->refreshes_running, 1);
    atomic_fetch_add_explicit(&engine->refresh_count, 1, memory_order_relaxed);
    segment->request = (struct ferry_store_request){
        .verb = FERRY_STORE_GET,
        .name = segment->name,
        .deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS, timeout_ns),
        .done = refresh_done,
        .arg = segment,
    };
    if (segment->is_file)
        look_at_file(segment);
    else
        ferry_store_submit(engine->store, &segment->request);
}

bool ferry_segment_refresh_over(const struct ferry_segment *segment, uint32_t ticket)
{
    return reached(atomic_load(&segment->refresh_done), ticket);
}

enum ferry_status ferry_segment_refresh_result(struct ferry_segment *segment, char *error)
{
    enum ferry_status status;

    pthread_mutex_lock(&segment->mutex);
    status = segment->refresh_status;
    if (error != NULL)
        memcpy(error, segment->refresh_error, sizeof(segment->refresh_error));
    pthread_mutex_unlock(&segment->mutex);
    return status;
}

/* Wait for the refresh of a number. */
static enum ferry_status refresh_wait(struct ferry_segment *segment, uint32_t ticket,
                                      uint64_t deadline_ns)
{
    char error[sizeof(segment->refresh_error)];
    enum ferry_status status;

    for (;;) {
        uint32_t seen = atomic_load(&segment->refresh_done);

        if (reached(seen, ticket))
            break;
        ferry_segment_refresh_begin(segment, ticket);
        if (!ferry_engine_sleep(segment->engine, &segment->refresh_done, seen, deadline_ns) &&
            !ferry_segment_refresh_over(segment, ticket))
            return ferry_fail(FERRY_ERR_TIMED_OUT,
                              "segment \"%s\": its description did not arrive in time",
                              segment->name);
    }
    status = ferry_segment_refresh_result(segment, error);
    if (status != FERRY_OK)
        return ferry_fail(status, "segment \"%.128s\": %s", segment->name,
                          error[0] != '\0' ? error : ferry_status_text(status));
    return FERRY_OK;
}

/* For a name that was never read: the refresh that runs will do. */
static uint32_t first_ticket(struct ferry_segment *segment)
{
    uint32_t started;

    pthread_mutex_lock(&segment->mutex);
    started = atomic_load(&segment->refresh_started) + (segment->refreshing ? 0 : 1);
    pthread_mutex_unlock(&segment->mutex);
    return started;
}

static struct ferry_segment *find_segment(struct ferry_engine *engine, const char *name)
{
    struct ferry_list *head = &engine->segment_list;

    for (struct ferry_list *link = head->next; link != head; link = link->next) {
        struct ferry_segment *segment = FERRY_CONTAINER_OF(link, struct ferry_segment, link);

        if (strcmp(segment->name, name) == 0)
            return segment;
    }
    return NULL;
}

static enum ferry_status new_segment(struct ferry_engine *engine, const char *name,
                                     struct ferry_segment **segment_out)
{
    char *copy = strdup(name);
    struct ferry_segment *segment;

    if (copy == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "segment: out of memory");
    segment = ferry_pool_acquire(&engine->segments);
    if (segment == NULL) {
        free(copy);
        return ferry_fail(FERRY_ERR_LIMIT, "segments_max: %u segments are open",
                          engine->settings.segments_max);
    }
    segment->engine = engine;
    segment->name = copy;
    segment->is_file = ferry_file_segment_named(name);
    atomic_store(&segment->view, NULL);
    atomic_store(&segment->refs, 1);
    atomic_store(&segment->refresh_done, atomic_load(&segment->refresh_started));
    segment->opens = 1;
    segment->closed = false;
    segment->refreshing = false;
    segment->news = false;
    segment->watched = false;
    segment->refresh_status = FERRY_OK;
    segment->refresh_error[0] = '\0';
    pthread_mutex_init(&segment->mutex, NULL);
    ferry_list_push_back(&engine->segment_list, &segment->link);
    *segment_out = segment;
    return FERRY_OK;
}

/* Under segments_mutex. True for the last one out, who then calls let_go() without the mutex. */
static bool close_locked(struct ferry_segment *segment)
{
    FERRY_ASSERT(segment->opens > 0);
    if (--segment->opens > 0)
        return false;
    ferry_list_remove(&segment->link);
    return true;
}

static void let_go(struct ferry_segment *segment)
{
    ferry_segment_unwatch(segment);
    install_view(segment, NULL, true);
    ferry_segment_release(segment);
}

static void give_up(struct ferry_segment *segment)
{
    pthread_mutex_t *mutex = &segment->engine->segments_mutex;
    bool last;

    pthread_mutex_lock(mutex);
    last = close_locked(segment);
    pthread_mutex_unlock(mutex);
    if (last)
        let_go(segment);
}

static enum ferry_status open_remote(struct ferry_engine *engine, const char *name,
                                     uint64_t deadline_ns, uint64_t *segment_out)
{
    struct ferry_segment *segment;
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&engine->segments_mutex);
    segment = find_segment(engine, name);
    if (segment != NULL)
        segment->opens++;
    else
        status = new_segment(engine, name, &segment);
    pthread_mutex_unlock(&engine->segments_mutex);
    if (status != FERRY_OK)
        return status;
    if (atomic_load(&segment->view) == NULL)
        status = refresh_wait(segment, first_ticket(segment), deadline_ns);
    if (status != FERRY_OK) {
        give_up(segment);
        return status;
    }
    pthread_mutex_lock(&engine->segments_mutex);
    if (!ferry_engine_closing(engine))
        ferry_segment_watch(segment);
    pthread_mutex_unlock(&engine->segments_mutex);
    *segment_out = ferry_pool_handle(&engine->segments, segment);
    return FERRY_OK;
}

enum ferry_status ferry_segment_open(struct ferry_engine *engine, const char *name,
                                     uint64_t deadline_ns, uint64_t *segment_out)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);

    if (status != FERRY_OK)
        return status;
    if (name == NULL || segment_out == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "segment: no name, or nowhere to put the handle");
    if (strlen(name) > 255 && !ferry_file_segment_named(name))
        return ferry_fail(FERRY_ERR_INVALID, "segment name \"%.32s...\": longer than 255 bytes",
                          name);
    if (name[0] == '\0' || strcmp(name, engine->name) == 0) {
        *segment_out = FERRY_SEGMENT_LOCAL;
        return FERRY_OK;
    }
    if (ferry_engine_closing(engine))
        return ferry_fail(FERRY_ERR_CLOSING, "the engine is closing");
    return open_remote(engine, name, deadline_ns, segment_out);
}

enum ferry_status ferry_segment_close(struct ferry_engine *engine, uint64_t segment)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_segment *object;
    bool open = false;
    bool last = false;

    if (status != FERRY_OK || segment == FERRY_SEGMENT_LOCAL)
        return status;
    pthread_mutex_lock(&engine->segments_mutex);
    object = ferry_pool_get(&engine->segments, segment);
    if (object != NULL)
        open = object->opens > 0 && atomic_load(&object->view) != NULL;
    if (open)
        last = close_locked(object);
    pthread_mutex_unlock(&engine->segments_mutex);
    if (!open)
        return ferry_fail(FERRY_ERR_STALE_HANDLE, "segment handle %#llx names no open segment",
                          (unsigned long long)segment);
    if (last)
        let_go(object);
    return FERRY_OK;
}

enum ferry_status ferry_segment_view(struct ferry_engine *engine, uint64_t handle,
                                     struct ferry_view **view_out)
{
    struct ferry_segment *segment;
    struct ferry_view *view;

    if (handle == FERRY_SEGMENT_LOCAL) {
        ferry_view_retain(engine->local_view);
        *view_out = engine->local_view;
        return FERRY_OK;
    }
    segment = ferry_pool_get(&engine->segments, handle);
    if (segment == NULL)
        return FERRY_ERR_STALE_HANDLE;
    view = ferry_view_acquire(&segment->view);
    if (view == NULL)
        return FERRY_ERR_STALE_HANDLE;
    /* The object may have become another segment between the two look-ups. */
    if (ferry_pool_get(&engine->segments, handle) != segment) {
        ferry_view_release(view);
        return FERRY_ERR_STALE_HANDLE;
    }
    *view_out = view;
    return FERRY_OK;
}

enum ferry_status ferry_segment_refresh(struct ferry_engine *engine, uint64_t segment,
                                        uint64_t deadline_ns)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    struct ferry_view *view;

    if (status != FERRY_OK || segment == FERRY_SEGMENT_LOCAL)
        return status;
    if (ferry_engine_closing(engine))
        return ferry_fail(FERRY_ERR_CLOSING, "the engine is closing");
    status = ferry_segment_view(engine, segment, &view);
    if (status != FERRY_OK)
        return ferry_fail(status, "segment handle %#llx names no open segment",
                          (unsigned long long)segment);
    status = refresh_wait(view->segment, atomic_load(&view->segment->refresh_started) + 1,
                          deadline_ns);
    ferry_view_release(view);
    return status;
}

void ferry_segments_close_all(struct ferry_engine *engine)
{
    struct ferry_list *link;

    for (;;) {
        struct ferry_segment *segment;

        pthread_mutex_lock(&engine->segments_mutex);
        link = ferry_list_pop_front(&engine->segment_list);
        pthread_mutex_unlock(&engine->segments_mutex);
        if (link == NULL)
            return;
        segment = FERRY_CONTAINER_OF(link, struct ferry_segment, link);
        segment->opens = 0;
        let_go(segment);
    }
}
