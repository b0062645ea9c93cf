/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sentence about a task, composed when somebody asks: what it was, how it ended, where that was
 * decided, and what the transport knows about the way to the peer. Any thread, at any time of the
 * task's life: everything it reads is atomic or looked up by handle.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/runtime.h"

static const char *const state_names[] = {
    [FERRY_TASK_WAITING] = "waiting",     [FERRY_TASK_PENDING] = "pending",
    [FERRY_TASK_COMPLETED] = "completed", [FERRY_TASK_INVALID] = "invalid",
    [FERRY_TASK_CANCELED] = "canceled",   [FERRY_TASK_TIMED_OUT] = "timed out",
    [FERRY_TASK_FAILED] = "failed",
};

/* What the transport last had to say about the peer, if the segment is still open. */
static void explain(struct ferry_engine *engine, struct ferry_view *view,
                    const struct ferry_transport *transport, struct ferry_text *text)
{
    char buf[384];

    for (uint32_t i = 0; i < engine->transport_count; i++) {
        if (engine->transports[i].transport != transport || view->targets[i] == NULL)
            continue;
        ferry_transport_target_explain(view->targets[i], buf, sizeof(buf));
        if (buf[0] != '\0')
            ferry_text_addf(text, "; %s", buf);
    }
}

static void add_native(struct ferry_text *text, int32_t native)
{
    char buf[128];

    if (native == 0)
        return;
    /* Positive ones below 4096 are mostly errno values; the name helps, the number decides. */
    if (native > 0 && native < 4096)
        ferry_text_addf(text, " (native %d, as errno: %s)", native,
                        strerror_r(native, buf, sizeof(buf)));
    else
        ferry_text_addf(text, " (native %d)", native);
}

void ferry_task_sentence(struct ferry_batch *batch, uint32_t index, char *buf, size_t buf_len)
{
    struct ferry_engine *engine = batch->engine;
    struct ferry_task *task = &batch->tasks[index];
    /* Acquire pairs with the release in ferry_task_move(). */
    enum ferry_task_state state = (enum ferry_task_state)atomic_load_explicit(&task->state,
                                                                              memory_order_acquire);
    enum ferry_status status = (enum ferry_status)atomic_load(&task->status);
    const char *where = atomic_load(&task->where);
    const char *transport = atomic_load(&task->transport_name);
    struct ferry_view *view = NULL;
    struct ferry_text text;

    ferry_text_init(&text, buf, buf_len);
    if (ferry_segment_view(engine, atomic_load(&task->segment_handle), &view) != FERRY_OK)
        view = NULL;
    ferry_text_addf(&text, "task %u: %s of %llu bytes", index,
                    atomic_load(&task->opcode) == FERRY_READ ? "read" : "write",
                    (unsigned long long)atomic_load(&task->length));
    if (atomic_load(&task->piece_count) > 0)
        ferry_text_addf(&text, " in %u pieces, the first", atomic_load(&task->piece_count));
    ferry_text_addf(&text, " at %#llx %s segment \"%s\" %s",
                    (unsigned long long)atomic_load(&task->remote_addr),
                    atomic_load(&task->opcode) == FERRY_READ ? "from" : "to",
                    view == NULL            ? "(closed)"
                    : view->segment == NULL ? engine->name
                                            : view->segment->name,
                    state_names[state]);
    if (transport != NULL)
        ferry_text_addf(&text, " over %s", transport);
    if (!ferry_task_state_open(state) && state != FERRY_TASK_COMPLETED) {
        ferry_text_addf(&text, ": %s", ferry_status_text(status));
        if (where != NULL)
            ferry_text_addf(&text, ": %s", where);
        add_native(&text, atomic_load(&task->native));
        if (view != NULL && state != FERRY_TASK_CANCELED)
            explain(engine, view, atomic_load(&task->transport), &text);
    }
    if (view != NULL)
        ferry_view_release(view);
}
