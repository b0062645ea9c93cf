/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What two engines say to each other about an endpoint: the message, as JSON text in the published
 * members and a few more, and the answering side. Answers are given under the transport's mutex, on
 * the control server's thread: making and binding jetties takes a device's time, never a peer's.
 *
 *   CONNECT  "these are my jetties": answered with the answerer's, both bound; or with "yield", if
 *            both sides asked at once and the answerer's question goes first (the lower
 * incarnation) RETIRE   "let nothing of this endpoint land any more": answered with whether that is
 * so by now
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/ub/internal.h"

#define TEXT_MAX  (16u << 10)
#define LANES_MAX 64u

static const char *const verbs[] = {[UB_VERB_CONNECT] = "connect", [UB_VERB_RETIRE] = "retire"};
static const char *const path_types[] = {
    [FERRY_URMA_PATH_RTP] = "rtp", [FERRY_URMA_PATH_CTP] = "ctp"};

/* ---- the message ---- */

static bool put_hex(struct json_object *object, const char *key, const uint8_t *bytes, size_t len)
{
    char text[65];

    ferry_hex_encode(bytes, len, text);
    return ferry_json_put_string(object, key, text);
}

static bool put_numbers(struct json_object *object, const char *key, const uint32_t *numbers,
                        uint32_t count)
{
    struct json_object *list = json_object_new_array();
    bool complete = list != NULL;

    for (uint32_t i = 0; i < count && complete; i++)
        complete = ferry_json_append(list, json_object_new_uint64(numbers[i]));
    if (complete)
        return ferry_json_put(object, key, list);
    json_object_put(list);
    return false;
}

static bool put_capabilities(struct json_object *object)
{
    static const char *const names[] = {"read", "write", "endpoint_generation", "retire"};
    struct json_object *list = json_object_new_array();
    bool complete = list != NULL;

    for (size_t i = 0; i < FERRY_ARRAY_LEN(names) && complete; i++)
        complete = ferry_json_append(list, json_object_new_string(names[i]));
    if (complete)
        return ferry_json_put(object, "capabilities", list);
    json_object_put(list);
    return false;
}

static bool put_who(struct json_object *object, const struct ub_message *m)
{
    char path[32];
    char eid[FERRY_TOPOLOGY_EID_TEXT_SIZE];
    bool complete = ferry_json_put_string(object, "transport", "ub") &&
                    ferry_json_put_u64(object, "protocol_version", UB_BOOTSTRAP_VERSION) &&
                    ferry_json_put_string(object, "verb", verbs[m->verb]) &&
                    ferry_json_put_string(object, "segment_name", m->segment) &&
                    put_hex(object, "incarnation", m->incarnation, sizeof(m->incarnation)) &&
                    put_hex(object, "peer_incarnation", m->peer_incarnation,
                            sizeof(m->peer_incarnation));

    ferry_topology_eid_print(m->eid, eid);
    snprintf(path, sizeof(path), "ub%u", m->device);
    complete = complete && ferry_json_put_string(object, "local_nic_path", path);
    snprintf(path, sizeof(path), "ub%u", m->peer_device);
    return complete && ferry_json_put_string(object, "peer_nic_path", path) &&
           ferry_json_put_string(object, "local_device_name", m->device_name) &&
           ferry_json_put_u64(object, "local_device_id", m->device) &&
           ferry_json_put_u64(object, "peer_device_id", m->peer_device) &&
           ferry_json_put_u64(object, "local_eid_index", m->eid_index) &&
           ferry_json_put_string(object, "local_eid", eid);
}

enum ferry_status ferry_ub_message_print(const struct ub_message *m, char **text_out,
                                         size_t *len_out)
{
    struct json_object *object = json_object_new_object();
    enum ferry_status status = FERRY_ERR_NO_MEMORY;
    bool complete = object != NULL && put_who(object, m) &&
                    ferry_json_put_u64(object, "lane", m->lane) &&
                    ferry_json_put_string(object, "path_type", path_types[m->path_type]) &&
                    put_numbers(object, "jetty_ids", m->jetty_ids, m->jetty_count) &&
                    put_numbers(object, "jetty_uasids", m->jetty_uasids, m->jetty_count) &&
                    ferry_json_put_u64(object, "endpoint_generation", m->generation) &&
                    ferry_json_put_u64(object, "peer_generation", m->peer_generation) &&
                    ferry_json_put_u64(object, "segment_generation", m->segment_generation) &&
                    ferry_json_put_bool(object, "yield", m->yield) &&
                    ferry_json_put_bool(object, "fenced", m->fenced) && put_capabilities(object);

    if (complete)
        status = ferry_json_print(object, TEXT_MAX, text_out, len_out);
    else
        ferry_fail(status, "ub: out of memory for a bootstrap message");
    json_object_put(object);
    return status;
}

static enum ferry_status read_hex(const struct ferry_json *at, const char *key, uint8_t *bytes,
                                  size_t size)
{
    const char *text;
    size_t len = 0;
    enum ferry_status status = ferry_json_string(at, key, 2 * size, &text);

    if (status != FERRY_OK)
        return status;
    if (ferry_hex_decode(text, bytes, size, &len) != FERRY_OK || len != size)
        return ferry_json_fail(at, "%s is not %zu hex digits", key, 2 * size);
    return FERRY_OK;
}

static enum ferry_status read_choice(const struct ferry_json *at, const char *key,
                                     const char *const *names, uint32_t count, uint32_t *index_out)
{
    const char *text;
    enum ferry_status status = ferry_json_string(at, key, 32, &text);

    for (uint32_t i = 0; i < count && status == FERRY_OK; i++) {
        if (strcmp(text, names[i]) == 0) {
            *index_out = i;
            return FERRY_OK;
        }
    }
    return status != FERRY_OK ? status : ferry_json_fail(at, "%s is \"%s\"", key, text);
}

static enum ferry_status read_numbers(const struct ferry_json *at, const char *key,
                                      uint32_t numbers[FERRY_UB_JETTIES_MAX], uint32_t *count_out)
{
    struct ferry_json list;
    enum ferry_status status = ferry_json_array(at, key, &list);
    size_t count;

    if (status != FERRY_OK)
        return status;
    count = ferry_json_len(&list);
    if (count == 0 || count > FERRY_UB_JETTIES_MAX)
        return ferry_json_fail(&list, "%zu numbers, expected 1..%u", count, FERRY_UB_JETTIES_MAX);
    for (size_t i = 0; i < count && status == FERRY_OK; i++) {
        struct ferry_json item = ferry_json_item(&list, i);
        uint64_t number = 0;

        status = ferry_json_as_u64(&item, 1, UINT32_MAX, &number);
        numbers[i] = (uint32_t)number;
    }
    *count_out = (uint32_t)count;
    return status;
}

static enum ferry_status read_u32(const struct ferry_json *at, const char *key, uint64_t max,
                                  uint32_t *value_out)
{
    uint64_t value = 0;
    enum ferry_status status = ferry_json_u64(at, key, 0, max, &value);

    *value_out = (uint32_t)value;
    return status;
}

static enum ferry_status read_texts(const struct ferry_json *at, struct ub_message *m)
{
    const char *segment = "";
    const char *device = "";
    const char *eid = "";
    enum ferry_status status = ferry_json_string(at, "segment_name", sizeof(m->segment) - 1,
                                                 &segment);

    if (status == FERRY_OK)
        status = ferry_json_string(at, "local_device_name", sizeof(m->device_name) - 1, &device);
    if (status == FERRY_OK)
        status = ferry_json_string(at, "local_eid", 64, &eid);
    if (status != FERRY_OK)
        return status;
    if (!ferry_topology_eid_parse(eid, m->eid))
        return ferry_json_fail(at, "local_eid \"%s\" is no EID", eid);
    memcpy(m->segment, segment, strlen(segment) + 1);
    memcpy(m->device_name, device, strlen(device) + 1);
    return FERRY_OK;
}

/* The jetties; the two answers that carry none may leave them out. */
static enum ferry_status read_jetties(const struct ferry_json *at, struct ub_message *m)
{
    uint32_t count = 0;
    enum ferry_status status;

    if (m->yield || m->verb == UB_VERB_RETIRE)
        return FERRY_OK;
    status = read_numbers(at, "jetty_ids", m->jetty_ids, &m->jetty_count);
    if (status == FERRY_OK)
        status = read_numbers(at, "jetty_uasids", m->jetty_uasids, &count);
    if (status == FERRY_OK && count != m->jetty_count)
        return ferry_json_fail(at, "%u jetty_ids, but %u jetty_uasids", m->jetty_count, count);
    return status;
}

static enum ferry_status read_message(const struct ferry_json *root, struct ub_message *m)
{
    uint32_t verb = 0;
    uint32_t path_type = 0;
    uint64_t version;
    enum ferry_status status = ferry_json_as_object(root);

    if (status == FERRY_OK)
        status = ferry_json_u64(root, "protocol_version", UB_BOOTSTRAP_VERSION,
                                UB_BOOTSTRAP_VERSION, &version);
    if (status == FERRY_OK)
        status = read_choice(root, "verb", verbs, FERRY_ARRAY_LEN(verbs), &verb);
    if (status == FERRY_OK)
        status = read_choice(root, "path_type", path_types, FERRY_ARRAY_LEN(path_types),
                             &path_type);
    if (status == FERRY_OK)
        status = read_texts(root, m);
    if (status == FERRY_OK)
        status = read_hex(root, "incarnation", m->incarnation, sizeof(m->incarnation));
    if (status == FERRY_OK)
        status = read_hex(root, "peer_incarnation", m->peer_incarnation,
                          sizeof(m->peer_incarnation));
    if (status == FERRY_OK)
        status = read_u32(root, "local_device_id", UB_REMOTES_MAX - 1, &m->device);
    if (status == FERRY_OK)
        status = read_u32(root, "peer_device_id", UB_REMOTES_MAX - 1, &m->peer_device);
    if (status == FERRY_OK)
        status = read_u32(root, "local_eid_index", UINT32_MAX, &m->eid_index);
    if (status == FERRY_OK)
        status = read_u32(root, "lane", LANES_MAX - 1, &m->lane);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "endpoint_generation", 1, UINT64_MAX, &m->generation);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "peer_generation", 0, UINT64_MAX, &m->peer_generation);
    if (status == FERRY_OK)
        status = ferry_json_u64(root, "segment_generation", 0, UINT64_MAX, &m->segment_generation);
    if (status == FERRY_OK)
        status = ferry_json_opt_bool(root, "yield", &m->yield);
    if (status == FERRY_OK)
        status = ferry_json_opt_bool(root, "fenced", &m->fenced);
    m->verb = (enum ub_verb)verb;
    m->path_type = (enum ferry_urma_path_type)path_type;
    return status == FERRY_OK ? read_jetties(root, m) : status;
}

enum ferry_status ferry_ub_message_parse(const char *text, size_t len,
                                         struct ub_message *message_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ub_message message = {0};
    enum ferry_status status = ferry_json_parse(&ferry_json_limits_small, "ub bootstrap", text, len,
                                                &root);

    if (status == FERRY_OK)
        status = read_message(&root, &message);
    if (status == FERRY_ERR_INVALID)
        status = FERRY_ERR_PROTOCOL; /* the text stays */
    if (status == FERRY_OK)
        *message_out = message;
    return status;
}

/* ---- the answering side, under mutex ---- */

static enum ferry_status bind_to(struct ub_endpoint *endpoint, const struct ub_message *m)
{
    struct ub_transport *transport = endpoint->transport;

    memcpy(endpoint->peer_eid, m->eid, sizeof(endpoint->peer_eid));
    memcpy(endpoint->peer_ids, m->jetty_ids, sizeof(endpoint->peer_ids));
    memcpy(endpoint->peer_uasids, m->jetty_uasids, sizeof(endpoint->peer_uasids));
    endpoint->peer_generation = m->generation;
    ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_BINDING);
    for (uint32_t i = 0; i < endpoint->jetty_count; i++) {
        struct ferry_urma_peer peer = {.uasid = m->jetty_uasids[i],
                                       .id = m->jetty_ids[i],
                                       .path_type = endpoint->ctx->path_type};
        struct ferry_urma_status status;

        memcpy(peer.eid, m->eid, sizeof(peer.eid));
        status = ferry_urma_jetty_connect(&transport->urma, endpoint->jetties[i].native, &peer);
        if (status.class != FERRY_URMA_OK) {
            endpoint->handshake_status = FERRY_ERR_PATH_DOWN;
            return ferry_fail(FERRY_ERR_PATH_DOWN, "ub: cannot bind to the peer's jetty (%s, %d)",
                              ferry_urma_class_name(status.class), status.native);
        }
    }
    ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_READY);
    return FERRY_OK;
}

static enum ferry_status check_offer(struct ub_transport *transport, const struct ub_message *m)
{
    static const uint8_t no_eid[FERRY_URMA_EID_SIZE];

    if (memcmp(m->peer_incarnation, transport->incarnation, sizeof(m->peer_incarnation)) != 0)
        return ferry_fail(FERRY_ERR_STALE_KEY, "ub: this engine is another incarnation");
    if (memcmp(m->incarnation, transport->incarnation, sizeof(m->incarnation)) == 0)
        return ferry_fail(FERRY_ERR_PROTOCOL, "ub: a bootstrap of this engine with itself");
    if (memcmp(m->eid, no_eid, sizeof(no_eid)) == 0)
        return ferry_fail(FERRY_ERR_PROTOCOL, "ub: the peer's EID is all zeros");
    if (m->peer_device >= transport->ctx_count)
        return ferry_fail(FERRY_ERR_PROTOCOL, "ub: device %u of %u", m->peer_device,
                          transport->ctx_count);
    if (atomic_load(&transport->closing))
        return ferry_fail(FERRY_ERR_PEER_CLOSING, "ub: the engine is closing");
    return FERRY_OK;
}

static void fill_key(struct ub_transport *transport, const struct ub_message *m,
                     struct ferry_device_key *key)
{
    (void)transport;
    memset(key, 0, sizeof(*key));
    memcpy(key->peer, m->incarnation, sizeof(key->peer));
    key->local = m->peer_device;
    key->remote = m->device;
    key->lane = m->lane;
}

/* Two questions crossed: the one of the lower incarnation goes on, on both sides. */
static bool ours_goes_first(const struct ub_transport *transport, const struct ub_message *m)
{
    return memcmp(transport->incarnation, m->incarnation, sizeof(m->incarnation)) < 0;
}

static enum ferry_status make_and_bind(struct ub_endpoint *endpoint, const struct ub_message *m)
{
    enum ferry_status status = FERRY_OK;

    if (ferry_device_life_state(&endpoint->life) == FERRY_DEVICE_HANDSHAKING) {
        endpoint->jetty_count = m->jetty_count;
        status = ferry_ub_jetties_create(endpoint);
        if (status == FERRY_OK)
            ferry_device_life_advance(&endpoint->life, FERRY_DEVICE_PREPARED);
    }
    if (status == FERRY_OK)
        status = bind_to(endpoint, m);
    if (status != FERRY_OK)
        endpoint->handshake_status = status;
    ferry_ub_endpoint_wake(endpoint);
    return status;
}

/* What to do with a question about a path that has an endpoint. NULL: make a new one. */
static enum ferry_status meet(struct ub_transport *transport, const struct ub_message *m,
                              struct ub_endpoint **endpoint, bool *yield_out)
{
    struct ub_endpoint *present = *endpoint;
    enum ferry_device_state state = ferry_device_life_state(&present->life);

    if (state == FERRY_DEVICE_READY) {
        if (present->peer_generation == m->generation)
            return FERRY_OK; /* asked twice */
        if (m->generation < present->peer_generation)
            return ferry_fail(FERRY_ERR_STALE_HANDLE, "ub: an endpoint of an earlier generation");
    } else if (present->initiator) {
        /* BINDING: the peer has answered ours already, and will not use its own. */
        if (state == FERRY_DEVICE_BINDING || ours_goes_first(transport, m)) {
            *yield_out = true;
            return FERRY_OK;
        }
        if (present->jetty_count == m->jetty_count && present->handshake_status == FERRY_OK)
            return make_and_bind(present, m);
    }
    /* A successor: the present one is retired by its worker. */
    atomic_store(&present->retire_asked, true);
    ferry_device_store_remove(&transport->store, &present->entry);
    ferry_ub_endpoint_wake(present);
    *endpoint = NULL;
    return FERRY_OK;
}

static enum ferry_status accept_offer(struct ub_transport *transport, const struct ub_message *m,
                                      struct ub_endpoint **endpoint_out, bool *yield_out)
{
    struct ferry_device_key key;
    struct ferry_device_entry *entry;
    struct ub_endpoint *endpoint = NULL;
    enum ferry_status status = check_offer(transport, m);

    if (status != FERRY_OK)
        return status;
    if (m->path_type != transport->ctxs[m->peer_device].path_type)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "ub: path types %s and %s do not meet",
                          path_types[m->path_type],
                          path_types[transport->ctxs[m->peer_device].path_type]);
    fill_key(transport, m, &key);
    entry = ferry_device_store_find(&transport->store, &key);
    if (entry != NULL) {
        endpoint = FERRY_CONTAINER_OF(entry, struct ub_endpoint, entry);
        status = meet(transport, m, &endpoint, yield_out);
    }
    if (status == FERRY_OK && endpoint == NULL) {
        status = ferry_ub_endpoint_create(&transport->workers[m->lane % transport->worker_count],
                                          &key, &endpoint);
        if (status == FERRY_OK)
            status = make_and_bind(endpoint, m);
    }
    *endpoint_out = endpoint;
    return status;
}

/* True once nothing of that endpoint can land here any more. */
static bool retire(struct ub_transport *transport, const struct ub_message *m)
{
    for (struct ferry_list *link = transport->endpoints.next; link != &transport->endpoints;
         link = link->next) {
        struct ub_endpoint *endpoint = FERRY_CONTAINER_OF(link, struct ub_endpoint, all_link);

        if (endpoint->life.generation != m->peer_generation)
            continue;
        if (atomic_load(&endpoint->fenced))
            return true;
        atomic_store(&endpoint->retire_asked, true);
        ferry_ub_endpoint_wake(endpoint);
        return false;
    }
    /* Generations are not reused: it is destroyed. */
    return true;
}

void ferry_ub_message_fill(const struct ub_endpoint *endpoint, struct ub_message *m)
{
    struct ub_transport *transport = endpoint->transport;
    const struct ferry_urma_device *native = &endpoint->ctx->device.native;

    snprintf(m->segment, sizeof(m->segment), "%s", transport->base.env->segment_name);
    memcpy(m->incarnation, transport->incarnation, sizeof(m->incarnation));
    memcpy(m->peer_incarnation, endpoint->entry.key.peer, sizeof(m->peer_incarnation));
    m->device = endpoint->entry.key.local;
    m->peer_device = endpoint->entry.key.remote;
    m->lane = endpoint->entry.key.lane;
    snprintf(m->device_name, sizeof(m->device_name), "%s", native->name);
    m->eid_index = native->eid_index;
    memcpy(m->eid, native->eid, sizeof(m->eid));
    m->generation = endpoint->life.generation;
    m->peer_generation = endpoint->peer_generation;
    m->segment_generation = ferry_registry_generation(transport->base.env->registry);
    m->path_type = endpoint->ctx->path_type;
    m->jetty_count = endpoint->jetty_count;
    for (uint32_t i = 0; i < endpoint->jetty_count; i++) {
        m->jetty_ids[i] = endpoint->jetties[i].id;
        m->jetty_uasids[i] = endpoint->jetties[i].uasid;
    }
}

/* An answer that carries no endpoint of ours: the question's own numbers, turned round. */
static void answer_without(const struct ub_transport *transport, const struct ub_message *asked,
                           struct ub_message *answer)
{
    *answer = *asked;
    memcpy(answer->incarnation, transport->incarnation, sizeof(answer->incarnation));
    memcpy(answer->peer_incarnation, asked->incarnation, sizeof(answer->peer_incarnation));
    answer->device = asked->peer_device;
    answer->peer_device = asked->device;
    answer->jetty_count = 0;
}

enum ferry_status ferry_ub_bootstrap(struct ferry_transport *base, const char *text, size_t len,
                                     char **reply_out)
{
    struct ub_transport *transport = ferry_ub_of(base);
    struct ub_endpoint *endpoint = NULL;
    struct ub_message asked;
    struct ub_message answer = {0};
    enum ferry_status status = ferry_ub_message_parse(text, len, &asked);
    size_t reply_len;

    if (status != FERRY_OK)
        return status;
    pthread_mutex_lock(&transport->mutex);
    answer_without(transport, &asked, &answer);
    if (asked.verb == UB_VERB_RETIRE) {
        if (memcmp(asked.peer_incarnation, transport->incarnation, UB_INCARNATION_LEN) != 0)
            status = ferry_fail(FERRY_ERR_STALE_KEY, "ub: this engine is another incarnation");
        else
            answer.fenced = retire(transport, &asked);
    } else {
        status = accept_offer(transport, &asked, &endpoint, &answer.yield);
        if (status == FERRY_OK && !answer.yield)
            ferry_ub_message_fill(endpoint, &answer);
    }
    answer.verb = asked.verb;
    pthread_mutex_unlock(&transport->mutex);
    if (status != FERRY_OK) {
        ferry_debug("ub", "bootstrap is refused: %s", ferry_last_error_text());
        return status;
    }
    return ferry_ub_message_print(&answer, reply_out, &reply_len);
}

/* ---- the asking side ---- */

void ferry_ub_ask(struct ub_endpoint *endpoint, enum ub_verb verb, ferry_peer_done_fn *done,
                  uint64_t deadline_ns)
{
    struct ub_transport *transport = endpoint->transport;
    struct ferry_peer_channel *channel = transport->base.env->channel;
    struct ferry_peer_call *call = &endpoint->call;
    struct ub_message message = {.verb = verb};
    enum ferry_status status = FERRY_ERR_UNSUPPORTED;

    pthread_mutex_lock(&transport->mutex);
    ferry_ub_message_fill(endpoint, &message);
    pthread_mutex_unlock(&transport->mutex);
    *call = (struct ferry_peer_call){
        .address = endpoint->peer_address, .deadline_ns = deadline_ns, .done = done};
    if (channel != NULL && endpoint->peer_address[0] != '\0')
        status = ferry_ub_message_print(&message, &call->body, &call->body_len);
    atomic_fetch_add(&endpoint->refs, 1);
    ferry_ub_live_add(transport);
    if (status == FERRY_OK) {
        channel->call(channel, call);
        return;
    }
    call->status = status;
    call->reply = NULL;
    done(call);
}
