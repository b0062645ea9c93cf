/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifications: short texts from engine to engine, kept in a bounded inbox until the program takes
 * them. They arrive on the control server's thread, which never waits: a full inbox is an answer.
 * Sending blocks the caller until the peer's engine has the text.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "control/client.h"
#include "control/message.h"
#include "runtime/runtime.h"

struct ferry_notify_inbox {
    uint32_t capacity;
    /* any thread, atomic */
    _Atomic uint32_t word; /* futex: grows with each arrival */
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    struct ferry_list entries;
    uint32_t count;
};

struct notify_entry {
    struct ferry_list link;
    struct ferry_notification notification;
};

enum ferry_status ferry_notify_open(struct ferry_engine *engine)
{
    struct ferry_notify_inbox *inbox = calloc(1, sizeof(*inbox));

    if (inbox == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "engine: out of memory");
    pthread_mutex_init(&inbox->mutex, NULL);
    ferry_list_init(&inbox->entries);
    inbox->capacity = engine->settings.notifications_max;
    engine->inbox = inbox;
    return FERRY_OK;
}

void ferry_notify_close(struct ferry_engine *engine)
{
    struct ferry_notify_inbox *inbox = engine->inbox;
    struct ferry_list *link;

    if (inbox == NULL)
        return;
    while ((link = ferry_list_pop_front(&inbox->entries)) != NULL)
        free(FERRY_CONTAINER_OF(link, struct notify_entry, link));
    pthread_mutex_destroy(&inbox->mutex);
    free(inbox);
    engine->inbox = NULL;
}

static_assert(sizeof(((struct ferry_notification *)0)->sender) == FERRY_NOTIFY_SENDER_MAX + 1 &&
                  sizeof(((struct ferry_notification *)0)->name) == FERRY_NOTIFY_NAME_MAX + 1 &&
                  sizeof(((struct ferry_notification *)0)->message) == FERRY_NOTIFY_MESSAGE_MAX + 1,
              "what may be sent may be received");

enum ferry_status ferry_notify_put(struct ferry_engine *engine,
                                   const struct ferry_notify_body *body)
{
    struct ferry_notify_inbox *inbox = engine->inbox;
    struct notify_entry *entry = calloc(1, sizeof(*entry));
    bool full;

    if (entry == NULL)
        return FERRY_ERR_NO_MEMORY;
    memcpy(entry->notification.sender, body->sender, sizeof(body->sender));
    memcpy(entry->notification.name, body->name, sizeof(body->name));
    memcpy(entry->notification.message, body->message, sizeof(body->message));
    pthread_mutex_lock(&inbox->mutex);
    full = inbox->count >= inbox->capacity;
    if (!full) {
        ferry_list_push_back(&inbox->entries, &entry->link);
        inbox->count++;
    }
    pthread_mutex_unlock(&inbox->mutex);
    if (full) {
        free(entry);
        return FERRY_ERR_QUEUE_FULL;
    }
    atomic_fetch_add(&inbox->word, 1);
    ferry_futex_wake(&inbox->word, 1);
    return FERRY_OK;
}

static struct notify_entry *take_entry(struct ferry_notify_inbox *inbox)
{
    struct ferry_list *link;

    pthread_mutex_lock(&inbox->mutex);
    link = ferry_list_pop_front(&inbox->entries);
    if (link != NULL)
        inbox->count--;
    pthread_mutex_unlock(&inbox->mutex);
    return link != NULL ? FERRY_CONTAINER_OF(link, struct notify_entry, link) : NULL;
}

enum ferry_status ferry_notify_receive(struct ferry_engine *engine, uint64_t deadline_ns,
                                       struct ferry_notification *notification_out)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct ferry_notify_inbox *inbox;
    struct notify_entry *entry;
    size_t size;

    if (status != FERRY_OK)
        return status;
    if (notification_out == NULL || notification_out->struct_size < sizeof(*notification_out))
        return ferry_fail(FERRY_ERR_INVALID,
                          "struct ferry_notification: struct_size %zu, expected %zu",
                          notification_out != NULL ? notification_out->struct_size : 0,
                          sizeof(*notification_out));
    if (deadline_ns != 0 && ferry_in_callback())
        return ferry_fail(FERRY_ERR_STATE, "a completion callback must not wait");
    inbox = engine->inbox;
    for (;;) {
        uint32_t seen = atomic_load(&inbox->word);

        entry = take_entry(inbox);
        if (entry != NULL)
            break;
        if (ferry_engine_closing(engine))
            return FERRY_ERR_CLOSING;
        if (deadline_ns == 0 || !ferry_engine_sleep(engine, &inbox->word, seen, deadline_ns))
            return FERRY_ERR_TIMED_OUT;
    }
    size = notification_out->struct_size;
    *notification_out = entry->notification;
    notification_out->struct_size = size;
    free(entry);
    return FERRY_OK;
}

static enum ferry_status encode(struct ferry_engine *engine, const char *name, const char *message,
                                char **text_out, size_t *len_out)
{
    struct ferry_notify_body body;

    if (strlen(name) >= sizeof(body.name) || strlen(message) >= sizeof(body.message))
        return ferry_fail(FERRY_ERR_TOO_LARGE,
                          "notification: a name of %zu and a message of %zu bytes, at most %d and "
                          "%d",
                          strlen(name), strlen(message), FERRY_NOTIFY_NAME_MAX,
                          FERRY_NOTIFY_MESSAGE_MAX);
    snprintf(body.sender, sizeof(body.sender), "%.*s", FERRY_NOTIFY_SENDER_MAX, engine->name);
    strcpy(body.name, name);
    strcpy(body.message, message);
    return ferry_notify_encode(&body, text_out, len_out);
}

static enum ferry_status answer_of(const char *url, long http_status)
{
    if (http_status == 204 || http_status == 200)
        return FERRY_OK;
    if (http_status == 429)
        return ferry_fail(FERRY_ERR_QUEUE_FULL, "the peer's inbox is full");
    if (http_status == 503)
        return ferry_fail(FERRY_ERR_PEER_GONE, "the peer is starting or shutting down");
    return ferry_fail(FERRY_ERR_PROTOCOL, "%s answered with HTTP status %ld", url, http_status);
}

enum ferry_status ferry_notify_send(struct ferry_engine *engine, uint64_t segment, const char *name,
                                    const char *message, uint64_t deadline_ns)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    char url[FERRY_HOSTPORT_SIZE + 64];
    struct ferry_http_call call = {.method = FERRY_HTTP_POST,
                                   .party = FERRY_HTTP_PEER,
                                   .url = url,
                                   .reply_max = FERRY_CONTROL_BODY_MAX};
    FERRY_AUTO_FREE char *body = NULL;

    if (status != FERRY_OK)
        return status;
    if (name == NULL || message == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "notification: name or message is NULL");
    status = encode(engine, name, message, &body, &call.body_len);
    if (status == FERRY_OK)
        status = ferry_segment_url(engine, segment, FERRY_CONTROL_PATH_NOTIFY, url, sizeof(url));
    if (status != FERRY_OK)
        return status;
    call.body = body;
    call.deadline_ns = ferry_engine_deadline(engine, deadline_ns,
                                             engine->settings.control_timeout_ns);
    status = ferry_http_client_call(engine->http, &call);
    if (status == FERRY_OK)
        status = answer_of(url, call.http_status);
    free(call.reply);
    return status;
}
