/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: how many users one has, and who frees it. acquire and release run on any thread without a
 * lock, on the way of every request; create and the freeing of a view may block and allocate, and
 * happen when a description changed.
 *
 * acquire counts up first and looks whether the view is still the one in the slot afterwards. That
 * may count up an object that was given back a moment ago; the count is taken back, and since only
 * RETIRED makes a count of 0 mean anything, nothing is freed twice.
 */
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "metadata/document.h"
#include "runtime/runtime.h"

static void view_free(struct ferry_view *view)
{
    struct ferry_engine *engine = view->engine;
    struct ferry_segment *segment = view->segment;

    for (uint32_t i = 0; i < FERRY_TRANSPORTS_MAX; i++) {
        ferry_transport_target_close(view->targets[i]);
        view->targets[i] = NULL;
    }
    ferry_document_destroy(view->doc);
    view->doc = NULL;
    view->segment = NULL;
    ferry_pool_release(&engine->views, view);
    if (segment != NULL)
        ferry_segment_release(segment);
}

/* Free the view if @refs, its count a moment ago, says that nobody is left. */
static void view_settle(struct ferry_view *view, uint64_t refs)
{
    uint64_t nobody = FERRY_VIEW_RETIRED;

    if (refs != FERRY_VIEW_RETIRED)
        return;
    /* Several may see "retired, nobody"; one of them wins. */
    if (atomic_compare_exchange_strong(&view->refs, &nobody, 0))
        view_free(view);
}

void ferry_view_release(struct ferry_view *view)
{
    uint64_t before = atomic_fetch_sub(&view->refs, 1);

    FERRY_ASSERT((before & ~FERRY_VIEW_RETIRED) > 0);
    view_settle(view, before - 1);
}

void ferry_view_retain(struct ferry_view *view)
{
    atomic_fetch_add_explicit(&view->refs, 1, memory_order_relaxed);
}

void ferry_view_retire(struct ferry_view *view)
{
    uint64_t before = atomic_fetch_or(&view->refs, FERRY_VIEW_RETIRED);

    FERRY_ASSERT((before & FERRY_VIEW_RETIRED) == 0);
    view_settle(view, before | FERRY_VIEW_RETIRED);
}

struct ferry_view *ferry_view_acquire(_Atomic(struct ferry_view *) *slot)
{
    for (;;) {
        struct ferry_view *view = atomic_load(slot);

        if (view == NULL)
            return NULL;
        atomic_fetch_add(&view->refs, 1);
        if (atomic_load(slot) == view)
            return view;
        ferry_view_release(view);
    }
}

/* What every submit would have to count: the view is immutable from here on. */
static void count_targets(struct ferry_view *view)
{
    for (uint32_t i = view->engine->transport_count; i > 0; i--) {
        if (view->targets[i - 1] == NULL)
            continue;
        view->target_count++;
        view->first_target = i - 1;
    }
}

/* One target per transport that serves files. */
static enum ferry_status open_files(struct ferry_engine *engine, struct ferry_view *view,
                                    const struct ferry_file_layout *layout)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_transport *transport = engine->transports[i].transport;
        enum ferry_status status;

        if (transport == NULL || (transport->ops->caps & FERRY_CAP_FILE) == 0)
            continue;
        status = ferry_transport_files_open(transport, layout, &view->targets[i]);
        if (status == FERRY_OK)
            count++;
        else if (status != FERRY_ERR_UNSUPPORTED)
            return status;
    }
    if (count == 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "no transport in use here serves files");
    return FERRY_OK;
}

/* One target per transport that the peer offers; @malformed_out if one could not read its part. */
static enum ferry_status open_targets(struct ferry_engine *engine, struct ferry_view *view,
                                      uint32_t *count_out, bool *malformed_out)
{
    *count_out = 0;
    *malformed_out = false;
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_transport *transport = engine->transports[i].transport;
        enum ferry_status status;

        if (transport == NULL)
            continue;
        /* The own segment is served inside the process, by transports that say they can. */
        if (view->segment == NULL && (transport->ops->caps & FERRY_CAP_LOCAL) == 0)
            continue;
        status = ferry_transport_target_open(transport, view->doc, &view->targets[i]);
        if (status == FERRY_OK)
            ++*count_out;
        else if (status == FERRY_ERR_METADATA)
            *malformed_out = true;
        else if (status != FERRY_ERR_UNSUPPORTED)
            return status;
    }
    return FERRY_OK;
}

static enum ferry_status new_view(struct ferry_engine *engine, struct ferry_segment *segment,
                                  struct ferry_document *doc, struct ferry_view **view_out)
{
    struct ferry_view *view = ferry_pool_acquire(&engine->views);

    if (view == NULL) {
        ferry_document_destroy(doc);
        return ferry_fail(FERRY_ERR_LIMIT, "too many descriptions of segments are in use");
    }
    view->engine = engine;
    view->segment = segment;
    view->doc = doc;
    view->files = false;
    view->text_hash = 0;
    view->text_len = 0;
    memset(view->targets, 0, sizeof(view->targets));
    view->target_count = 0;
    view->first_target = 0;
    if (segment != NULL)
        atomic_fetch_add(&segment->refs, 1);
    *view_out = view;
    return FERRY_OK;
}

enum ferry_status ferry_view_create_files(struct ferry_engine *engine,
                                          struct ferry_segment *segment, struct ferry_document *doc,
                                          const struct ferry_file_layout *layout,
                                          struct ferry_view **view_out)
{
    struct ferry_view *view = NULL;
    enum ferry_status status = new_view(engine, segment, doc, &view);

    if (status != FERRY_OK)
        return status;
    view->files = true;
    status = open_files(engine, view, layout);
    if (status != FERRY_OK) {
        ferry_view_retire(view);
        return status;
    }
    count_targets(view);
    *view_out = view;
    return FERRY_OK;
}

enum ferry_status ferry_view_create(struct ferry_engine *engine, struct ferry_segment *segment,
                                    struct ferry_document *doc, struct ferry_view **view_out)
{
    struct ferry_view *view = NULL;
    enum ferry_status status = new_view(engine, segment, doc, &view);
    uint32_t count;
    bool malformed;

    if (status != FERRY_OK)
        return status;
    status = open_targets(engine, view, &count, &malformed);
    if (status == FERRY_OK && count == 0 && malformed)
        status = FERRY_ERR_METADATA;
    if (status != FERRY_OK) {
        ferry_view_retire(view);
        return status;
    }
    count_targets(view);
    *view_out = view;
    return FERRY_OK;
}
