/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of the engine's own segment: built from the registry and from what each transport
 * says about itself and about a buffer, printed when somebody asks for it and something changed,
 * and put into the metadata store once per register or unregister call.
 *
 * With the `peer` store nothing is printed at registration: the control server prints on demand, so
 * that registering one by one costs the same for the ten thousandth buffer as for the first. A set
 * that might outgrow a document is printed at once, to refuse it in time.
 *
 * Runs on callers that register and on the control server's thread; publish_mutex is held during a
 * PUT, so that those who come meanwhile are served by the next one together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "control/client.h"
#include "control/message.h"
#include "metadata/document.h"
#include "runtime/runtime.h"

/* No printed buffer is longer, attributes of one transport included; more are printed to be sure.
 */
#define BUFFER_TEXT_MAX 768u

#define PROBE_NS (2 * FERRY_NS_PER_S)

/* How much later a claim is looked at again, and how often it is written anew. */
#define CLAIM_SETTLE_NS (100 * FERRY_NS_PER_MS)
#define CLAIM_TRIES     3

static enum ferry_status add_buffer_attrs(struct ferry_engine *engine, struct ferry_document *doc,
                                          uint32_t index,
                                          const struct ferry_registry_buffer *buffer)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_transport *transport = engine->transports[i].transport;
        enum ferry_status status;
        char *attr = NULL;

        if (transport == NULL || transport->ops->wire_id < 0)
            continue;
        status = ferry_transport_describe_buffer(transport, buffer->registration_id,
                                                 buffer->permission, &attr);
        if (status == FERRY_OK)
            status = ferry_document_add_buffer_attr(doc, index, transport->ops->wire_id, attr);
        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

static enum ferry_status add_buffers(struct ferry_engine *engine, struct ferry_document *doc,
                                     const struct ferry_registry_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ferry_registry_buffer *buffer = &list->buffers[i];
        enum ferry_status status;
        uint32_t index;

        if (buffer->permission == FERRY_PERMISSION_LOCAL)
            continue;
        status = ferry_document_add_buffer(doc, buffer->addr, buffer->length, buffer->location,
                                           &index);
        if (status == FERRY_OK)
            status = add_buffer_attrs(engine, doc, index, buffer);
        if (status != FERRY_OK)
            return status;
    }
    ferry_document_sort(doc);
    return FERRY_OK;
}

static enum ferry_status add_attrs(struct ferry_engine *engine, struct ferry_document *doc)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_transport *transport = engine->transports[i].transport;
        enum ferry_status status;
        char *attr = NULL;

        if (transport == NULL || transport->ops->wire_id < 0)
            continue;
        status = ferry_transport_describe(transport, &attr);
        if (status == FERRY_OK)
            status = ferry_document_add_attr(doc, transport->ops->wire_id, attr);
        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

static enum ferry_status fill_document(struct ferry_engine *engine, struct ferry_document *doc,
                                       const struct ferry_registry_list *list)
{
    enum ferry_status status;

    doc->name = strdup(engine->name);
    doc->machine_id = strdup(engine->machine_id);
    doc->rpc_server_addr = strdup(engine->control_address);
    doc->ferry_version = strdup(ferry_version());
    if (doc->name == NULL || doc->machine_id == NULL || doc->rpc_server_addr == NULL ||
        doc->ferry_version == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory for the description of the own segment");
    status = add_attrs(engine, doc);
    return status == FERRY_OK ? add_buffers(engine, doc, list) : status;
}

enum ferry_status ferry_local_document(struct ferry_engine *engine, struct ferry_document **doc_out,
                                       uint64_t *generation_out)
{
    struct ferry_registry_list list = {0};
    struct ferry_document *doc = NULL;
    enum ferry_status status = ferry_registry_list(&engine->registry, &list);

    if (status == FERRY_OK)
        status = ferry_document_create(&doc);
    if (status == FERRY_OK)
        status = fill_document(engine, doc, &list);
    if (status == FERRY_OK) {
        *doc_out = doc;
        *generation_out = list.generation;
    } else {
        ferry_document_destroy(doc);
    }
    ferry_registry_list_free(&list);
    return status;
}

void ferry_published_release(struct ferry_published *published)
{
    if (published == NULL || atomic_fetch_sub(&published->refs, 1) != 1)
        return;
    free(published->text);
    free(published);
}

static enum ferry_status print_now(struct ferry_engine *engine,
                                   struct ferry_published **published_out)
{
    struct ferry_published *published = calloc(1, sizeof(*published));
    struct ferry_document *doc = NULL;
    enum ferry_status status;

    if (published == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory for the description of the own segment");
    status = ferry_local_document(engine, &doc, &published->generation);
    if (status == FERRY_OK)
        status = ferry_document_print(doc, &published->text, &published->len);
    ferry_document_destroy(doc);
    if (status != FERRY_OK) {
        free(published);
        return status;
    }
    atomic_store(&published->refs, 1);
    *published_out = published;
    return FERRY_OK;
}

/* Under publish_mutex: engine->published is what is registered now. */
static enum ferry_status freshen(struct ferry_engine *engine)
{
    struct ferry_published *published;
    enum ferry_status status;

    if (engine->published != NULL &&
        engine->published->generation == ferry_registry_generation(&engine->registry))
        return FERRY_OK;
    status = print_now(engine, &published);
    if (status != FERRY_OK)
        return status;
    ferry_published_release(engine->published);
    engine->published = published;
    return FERRY_OK;
}

enum ferry_status ferry_published_acquire(struct ferry_engine *engine,
                                          struct ferry_published **published_out)
{
    enum ferry_status status;

    /*
     * A reply must not wait for a store that is slow: what is printed outside of the mutex costs a
     * second printing at worst.
     */
    if (pthread_mutex_trylock(&engine->publish_mutex) != 0)
        return print_now(engine, published_out);
    status = freshen(engine);
    if (status == FERRY_OK) {
        atomic_fetch_add(&engine->published->refs, 1);
        *published_out = engine->published;
    }
    pthread_mutex_unlock(&engine->publish_mutex);
    return status;
}

/* @expected: of the entry that this one replaces; NULL once the name is ours. */
static enum ferry_status store_put(struct ferry_engine *engine,
                                   const struct ferry_published *published,
                                   const struct ferry_store_request *expected)
{
    struct ferry_store_request request = {
        .verb = FERRY_STORE_PUT,
        .name = engine->name,
        .text = published->text,
        .text_len = published->len,
        .expect = expected != NULL ? expected->expect : FERRY_STORE_ANYTHING,
        .expected_revision = expected != NULL ? expected->expected_revision : 0,
        .owned = true,
        .deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                             engine->settings.metadata_timeout_ns),
    };

    enum ferry_status status;

    atomic_fetch_add_explicit(&engine->publish_count, 1, memory_order_relaxed);
    status = ferry_engine_store_call(engine, &request);
    free(request.reply); /* what is there instead */
    return status;
}

/* A store's refusal is about the description, unless it says that it is too large. */
static enum ferry_status as_metadata(enum ferry_status status)
{
    if (status == FERRY_OK || status == FERRY_ERR_TOO_LARGE || status == FERRY_ERR_NO_MEMORY ||
        status == FERRY_ERR_CLOSING || status == FERRY_ERR_METADATA || status == FERRY_ERR_EXISTS)
        return status;
    return FERRY_ERR_METADATA; /* the text stays the cause */
}

static enum ferry_status publish_stored(struct ferry_engine *engine,
                                        const struct ferry_store_request *expected)
{
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&engine->publish_mutex);
    /* Whoever held the mutex before may have published what we registered. */
    if (!engine->stored ||
        engine->stored_generation != ferry_registry_generation(&engine->registry)) {
        status = freshen(engine);
        if (status == FERRY_OK)
            status = store_put(engine, engine->published, expected);
        if (status == FERRY_OK) {
            engine->stored = true;
            engine->stored_generation = engine->published->generation;
        }
    }
    pthread_mutex_unlock(&engine->publish_mutex);
    return status;
}

enum ferry_status ferry_local_publish(struct ferry_engine *engine)
{
    struct ferry_published *published = NULL;
    enum ferry_status status;

    if (!engine->store->ops->names_are_addresses)
        return as_metadata(publish_stored(engine, NULL));
    if (ferry_registry_count(&engine->registry) < FERRY_DOCUMENT_TEXT_MAX / BUFFER_TEXT_MAX)
        return FERRY_OK;
    status = ferry_published_acquire(engine, &published);
    ferry_published_release(published);
    return status;
}

/*
 * Does an engine that has our name answer at the control address that a description names? Another
 * one may have the port of an owner that is gone, and one that closes is about to give it up.
 */
static bool owner_lives(struct ferry_engine *engine, const char *address)
{
    char authority[FERRY_HOSTPORT_SIZE];
    char url[FERRY_HOSTPORT_SIZE + 32];
    struct ferry_http_call call = {
        .method = FERRY_HTTP_GET, .party = FERRY_HTTP_PEER_OPEN, .url = url, .reply_max = 65536};
    struct ferry_health_body health;
    struct ferry_hostport place;
    bool lives;

    if (engine->http == NULL || strcmp(address, engine->control_address) == 0)
        return false;
    if (ferry_hostport_parse(address, 0, FERRY_HOSTPORT_NEED_PORT, &place) != FERRY_OK)
        return false;
    ferry_hostport_format_url(&place, authority, sizeof(authority));
    snprintf(url, sizeof(url), "%s://%s%s", ferry_http_client_scheme(engine->http), authority,
             FERRY_CONTROL_PATH_HEALTH);
    call.deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS, PROBE_NS);
    lives = ferry_http_client_call(engine->http, &call) == FERRY_OK &&
            (call.http_status == 200 || call.http_status == 503) &&
            ferry_health_decode(call.reply, call.reply_len, &health) == FERRY_OK &&
            strcmp(health.segment, engine->name) == 0 &&
            strcmp(health.state, FERRY_HEALTH_CLOSING) != 0;
    free(call.reply);
    return lives;
}

/* The control address in a description; "" if it cannot be read. */
static void owner_of(const char *text, size_t len, char *address, size_t size)
{
    struct ferry_document *doc = NULL;

    address[0] = '\0';
    if (ferry_document_parse(text, len, &doc) == FERRY_OK && doc->rpc_server_addr != NULL)
        snprintf(address, size, "%s", doc->rpc_server_addr);
    ferry_document_destroy(doc);
}

/* The control address in the description that the store has under our name, and its revision. */
static enum ferry_status stored_owner(struct ferry_engine *engine, uint64_t deadline_ns,
                                      char *address, size_t size, uint64_t *revision_out)
{
    struct ferry_store_request request = {
        .verb = FERRY_STORE_GET, .name = engine->name, .deadline_ns = deadline_ns};
    enum ferry_status status;
    char *reply = NULL;

    address[0] = '\0';
    status = ferry_engine_store_call(engine, &request);
    reply = request.reply;
    if (status != FERRY_OK)
        return status;
    owner_of(reply, request.reply_len, address, size);
    *revision_out = request.revision;
    free(reply);
    return FERRY_OK;
}

/*
 * ERR_EXISTS if a living engine has our name; *ours_out: the store has our description. The entry's
 * revision is 0 if there is none.
 */
static enum ferry_status look_at_name(struct ferry_engine *engine, bool *ours_out,
                                      uint64_t *revision_out)
{
    char address[FERRY_HOSTPORT_SIZE];
    uint64_t deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                                 engine->settings.metadata_timeout_ns);
    enum ferry_status status;

    *ours_out = false;
    *revision_out = 0;
    status = stored_owner(engine, deadline_ns, address, sizeof(address), revision_out);
    if (status == FERRY_ERR_NOT_FOUND)
        return FERRY_OK;
    if (status != FERRY_OK)
        return as_metadata(status);
    *ours_out = strcmp(address, engine->control_address) == 0;
    if (*ours_out || address[0] == '\0')
        return FERRY_OK;
    if (owner_lives(engine, address))
        return ferry_fail(FERRY_ERR_EXISTS, "segment name \"%s\" belongs to a living engine at %s",
                          engine->name, address);
    ferry_warn("runtime",
               "taking over a segment name whose owner does not serve it segment=%s owner=%s",
               engine->name, address);
    return FERRY_OK;
}

static void settle(struct ferry_engine *engine)
{
    _Atomic uint32_t never = 0;
    uint64_t until_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS, CLAIM_SETTLE_NS);

    while (ferry_futex_wait(&never, 0, until_ns))
        continue;
}

/*
 * A store that does not compare: two engines that find a name free at the same moment both write
 * it, and the last one has it. Each looks again a little later: the other one sees that, and
 * an entry that a predecessor deleted on its way out is written once more. A rival that takes
 * longer than that from its look to its write is not noticed; nothing but the store could.
 */
static enum ferry_status hold_name(struct ferry_engine *engine)
{
    for (uint32_t i = 0; i < CLAIM_TRIES; i++) {
        enum ferry_status status;
        uint64_t revision;
        bool ours;

        settle(engine);
        status = look_at_name(engine, &ours, &revision);
        if (status != FERRY_OK || ours)
            return status;
        engine->stored = false;
        status = ferry_local_publish(engine);
        if (status != FERRY_OK)
            return status;
    }
    return ferry_fail(FERRY_ERR_METADATA,
                      "the metadata store does not keep the description of segment \"%s\"",
                      engine->name);
}

static enum ferry_status claim_by_looking(struct ferry_engine *engine)
{
    char cause[FERRY_ERROR_TEXT_SIZE];
    uint64_t revision;
    bool ours;
    enum ferry_status status = look_at_name(engine, &ours, &revision);

    if (status == FERRY_OK)
        status = ferry_local_publish(engine);
    /* In a threadless engine nobody comes in between. */
    if (status == FERRY_OK && !engine->seams.threadless)
        status = hold_name(engine);
    if (status == FERRY_OK || !engine->stored)
        return status;
    snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
    ferry_local_withdraw(engine, ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                                       engine->settings.metadata_timeout_ns));
    return ferry_fail(status, "%s", cause);
}

/*
 * A store that compares: only if nobody has the name, or in place of the very entry whose owner
 * does not serve it. Of two that start at once one gets it; the other finds it taken, and asks
 * again who that is.
 */
static enum ferry_status claim_by_comparing(struct ferry_engine *engine)
{
    uint64_t deadline_ns = ferry_engine_deadline(engine, FERRY_NEVER_NS,
                                                 engine->settings.metadata_timeout_ns);
    enum ferry_status status;

    do {
        struct ferry_store_request expected = {0};
        bool ours;

        status = look_at_name(engine, &ours, &expected.expected_revision);
        if (status != FERRY_OK)
            return status;
        expected.expect = expected.expected_revision != 0 ? FERRY_STORE_REVISION
                                                          : FERRY_STORE_NOTHING;
        status = publish_stored(engine, &expected);
    } while ((status == FERRY_ERR_EXISTS || status == FERRY_ERR_NOT_FOUND) &&
             ferry_engine_now(engine) < deadline_ns);
    return as_metadata(status);
}

enum ferry_status ferry_local_claim(struct ferry_engine *engine)
{
    if (engine->store->ops->names_are_addresses)
        return FERRY_OK;
    return engine->store->ops->compares ? claim_by_comparing(engine) : claim_by_looking(engine);
}

void ferry_local_withdraw(struct ferry_engine *engine, uint64_t deadline_ns)
{
    char address[FERRY_HOSTPORT_SIZE];
    uint64_t revision;
    struct ferry_store_request request = {.verb = FERRY_STORE_DELETE,
                                          .name = engine->name,
                                          .owned = true,
                                          .deadline_ns = deadline_ns};

    if (engine->store == NULL || engine->store->ops->names_are_addresses || !engine->stored)
        return;
    /* A successor may have the name already; its entry is not ours to delete. */
    if (!engine->store->ops->expires &&
        stored_owner(engine, deadline_ns, address, sizeof(address), &revision) == FERRY_OK &&
        strcmp(address, engine->control_address) != 0)
        return;
    if (ferry_engine_store_call(engine, &request) != FERRY_OK)
        ferry_warn("runtime", "the segment's description stays in the store: %s segment=%s",
                   ferry_last_error_text(), engine->name);
    engine->stored = false;
}
