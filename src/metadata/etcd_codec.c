/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies and replies of etcd's JSON gateway; see etcd_codec.h. Pure; any thread.
 */
#include "metadata/etcd_codec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/base64.h"
#include "base/error.h"
#include "base/json.h"

#define TEXT_MAX FERRY_ETCD_REPLY_MAX
/* Keys of one page; a page that claims more is no answer to what was asked. */
#define KEYS_MAX 100000

/* The tree of a reply is its strings and little else. */
static const struct ferry_json_limits limits = {
    .text_bytes_max = FERRY_ETCD_REPLY_MAX,
    .memory_bytes_max = (size_t)512 << 20,
    .depth_max = 16,
};

static void add_base64(struct ferry_text *body, const char *bytes, size_t len)
{
    char small[1024];
    size_t need = ferry_base64_length(len) + 1;
    char *text = need <= sizeof(small) ? small : malloc(need);

    if (text == NULL) {
        body->cut = true;
        body->no_memory = true;
        return;
    }
    ferry_base64_encode(bytes, len, text);
    ferry_text_add(body, "\"");
    ferry_text_add_bytes(body, text, need - 1);
    ferry_text_add(body, "\"");
    if (text != small)
        free(text);
}

static void add_key(struct ferry_text *body, const char *key)
{
    ferry_text_add(body, "{\"key\":");
    add_base64(body, key, strlen(key));
}

void ferry_etcd_range_body(struct ferry_text *body, const char *key)
{
    add_key(body, key);
    ferry_text_add(body, "}");
}

void ferry_etcd_keys_body(struct ferry_text *body, const char *prefix, const char *after,
                          size_t after_len, uint32_t limit)
{
    char end[FERRY_ETCD_KEY_MAX];
    size_t len = strlen(prefix);

    FERRY_ASSERT(len > 0);
    FERRY_ASSERT(len <= sizeof(end));
    /* Behind all keys with the prefix: its last byte and one. */
    memcpy(end, prefix, len);
    end[len - 1]++;
    ferry_text_add(body, "{\"key\":");
    if (after != NULL)
        add_base64(body, after, after_len + 1); /* with its NUL: the next key that there can be */
    else
        add_base64(body, prefix, len);
    ferry_text_add(body, ",\"range_end\":");
    add_base64(body, end, len);
    ferry_text_addf(body, ",\"keys_only\":true,\"limit\":\"%" PRIu32 "\"}", limit);
}

void ferry_etcd_put_body(struct ferry_text *body, const struct ferry_etcd_put *put)
{
    add_key(body, put->key);
    ferry_text_add(body, ",\"value\":");
    add_base64(body, put->value, put->value_len);
    if (put->lease != 0)
        ferry_text_addf(body, ",\"lease\":\"%" PRIu64 "\"", put->lease);
    ferry_text_add(body, "}");
}

void ferry_etcd_delete_body(struct ferry_text *body, const char *key)
{
    add_key(body, key);
    ferry_text_add(body, "}");
}

static void add_compare(struct ferry_text *body, enum ferry_etcd_compare compare, uint64_t number,
                        const char *key)
{
    ferry_text_add(body, "{\"compare\":[");
    add_key(body, key);
    ferry_text_add(body, ",\"result\":\"EQUAL\",");
    switch (compare) {
    case FERRY_ETCD_ABSENT:
        ferry_text_add(body, "\"target\":\"CREATE\",\"create_revision\":\"0\"");
        break;
    case FERRY_ETCD_REVISION:
        ferry_text_addf(body, "\"target\":\"MOD\",\"mod_revision\":\"%" PRIu64 "\"", number);
        break;
    case FERRY_ETCD_LEASE:
        ferry_text_addf(body, "\"target\":\"LEASE\",\"lease\":\"%" PRIu64 "\"", number);
        break;
    }
    ferry_text_add(body, "}],\"success\":[");
}

static void add_otherwise(struct ferry_text *body, const char *key)
{
    ferry_text_add(body, "],\"failure\":[{\"request_range\":");
    ferry_etcd_range_body(body, key);
    ferry_text_add(body, "}]}");
}

void ferry_etcd_put_if_body(struct ferry_text *body, enum ferry_etcd_compare compare,
                            uint64_t number, const struct ferry_etcd_put *put)
{
    add_compare(body, compare, number, put->key);
    ferry_text_add(body, "{\"request_put\":");
    ferry_etcd_put_body(body, put);
    ferry_text_add(body, "}");
    add_otherwise(body, put->key);
}

void ferry_etcd_delete_if_body(struct ferry_text *body, enum ferry_etcd_compare compare,
                               uint64_t number, const char *key)
{
    add_compare(body, compare, number, key);
    ferry_text_add(body, "{\"request_delete_range\":");
    ferry_etcd_delete_body(body, key);
    ferry_text_add(body, "}");
    add_otherwise(body, key);
}

void ferry_etcd_grant_body(struct ferry_text *body, uint64_t ttl_s)
{
    ferry_text_addf(body, "{\"TTL\":\"%" PRIu64 "\"}", ttl_s);
}

void ferry_etcd_keepalive_body(struct ferry_text *body, uint64_t lease)
{
    ferry_text_addf(body, "{\"ID\":\"%" PRIu64 "\"}", lease);
}

void ferry_etcd_authenticate_body(struct ferry_text *body, const char *user, const char *password)
{
    ferry_text_add(body, "{\"name\":");
    ferry_text_add_json(body, user);
    ferry_text_add(body, ",\"password\":");
    ferry_text_add_json(body, password);
    ferry_text_add(body, "}");
}

void ferry_etcd_watch_body(struct ferry_text *body, const char *key, uint64_t revision)
{
    ferry_text_add(body, "{\"create_request\":");
    add_key(body, key);
    if (revision != 0)
        ferry_text_addf(body, ",\"start_revision\":\"%" PRIu64 "\"", revision);
    ferry_text_add(body, "}}");
}

/* A number in a string, or a plain number; absent is 0. At most what int64 holds. */
static enum ferry_status read_number(const struct ferry_json *at, const char *key,
                                     uint64_t *number_out)
{
    struct json_object *value = NULL;
    const char *text = NULL;
    uint64_t number = 0;
    enum ferry_status status;

    if (!ferry_json_has(at, key)) {
        *number_out = 0;
        return FERRY_OK;
    }
    json_object_object_get_ex(at->value, key, &value);
    if (!json_object_is_type(value, json_type_string))
        return ferry_json_u64(at, key, 0, INT64_MAX, number_out);
    status = ferry_json_string(at, key, 20, &text);
    if (status == FERRY_OK)
        status = ferry_u64_parse(text, &number);
    if (status == FERRY_OK && number > INT64_MAX)
        status = FERRY_ERR_INVALID;
    if (status != FERRY_OK)
        return ferry_json_fail(at, "%s: no number of 63 bits", key);
    *number_out = number;
    return FERRY_OK;
}

/* Bytes in base64; absent is empty. */
static enum ferry_status read_bytes(const struct ferry_json *at, const char *key, char **bytes_out,
                                    size_t *len_out)
{
    const char *text = "";
    enum ferry_status status = ferry_json_opt_string(at, key, TEXT_MAX, &text);

    return status != FERRY_OK ? status
                              : ferry_base64_decode(text, strlen(text), bytes_out, len_out);
}

/* The root, an object. */
static enum ferry_status open_reply(const char *reply, size_t len, struct ferry_json *root_out)
{
    enum ferry_status status = ferry_json_parse(&limits, "reply of etcd", reply, len, root_out);

    return status != FERRY_OK ? status : ferry_json_as_object(root_out);
}

/* What etcd answers wrongly is no invalid argument of ours; the text stays. */
static enum ferry_status foreign(enum ferry_status status)
{
    return status == FERRY_ERR_INVALID ? FERRY_ERR_METADATA : status;
}

/* header.revision; absent is 0. */
static enum ferry_status read_revision(const struct ferry_json *at, uint64_t *revision_out)
{
    struct ferry_json header = {0};
    enum ferry_status status = ferry_json_opt_object(at, "header", &header);

    *revision_out = 0;
    if (status != FERRY_OK || header.value == NULL)
        return status;
    return read_number(&header, "revision", revision_out);
}

/* The first of "kvs", if there is one. */
static enum ferry_status read_entry(const struct ferry_json *range,
                                    struct ferry_etcd_entry *entry_out)
{
    struct ferry_etcd_entry entry = {0};
    struct ferry_json kvs = {0};
    enum ferry_status status = ferry_json_opt_array(range, "kvs", &kvs);

    if (status != FERRY_OK)
        return status;
    if (ferry_json_len(&kvs) > 0) {
        struct ferry_json kv = ferry_json_item(&kvs, 0);

        status = ferry_json_as_object(&kv);
        if (status == FERRY_OK)
            status = read_number(&kv, "mod_revision", &entry.revision);
        if (status == FERRY_OK)
            status = read_bytes(&kv, "value", &entry.value, &entry.value_len);
        entry.found = true;
    }
    if (status == FERRY_OK)
        *entry_out = entry;
    return status;
}

enum ferry_status ferry_etcd_read_range(const char *reply, size_t len,
                                        struct ferry_etcd_entry *entry_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = read_entry(&root, entry_out);
    return foreign(status);
}

static bool has_control(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return true;
    }
    return false;
}

static enum ferry_status read_key(const struct ferry_json *kv, const char *prefix,
                                  struct ferry_text *names, char **last, size_t *last_len)
{
    size_t prefix_len = strlen(prefix);
    char *key = NULL;
    size_t len = 0;
    enum ferry_status status = ferry_json_as_object(kv);

    if (status == FERRY_OK)
        status = read_bytes(kv, "key", &key, &len);
    if (status != FERRY_OK)
        return status;
    if (len < prefix_len || memcmp(key, prefix, prefix_len) != 0) {
        free(key);
        return ferry_json_fail(kv, "a key that was not asked for");
    }
    if (len > prefix_len && !has_control(key, len)) {
        ferry_text_add_bytes(names, key + prefix_len, len - prefix_len);
        ferry_text_add(names, "\n");
    }
    free(*last);
    *last = key;
    *last_len = len;
    return FERRY_OK;
}

enum ferry_status ferry_etcd_read_keys(const char *reply, size_t len, const char *prefix,
                                       struct ferry_text *names, char **last_out,
                                       size_t *last_len_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    FERRY_AUTO_FREE char *last = NULL;
    struct ferry_json kvs = {0};
    size_t last_len = 0;
    bool more = false;
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = ferry_json_opt_bool(&root, "more", &more);
    if (status == FERRY_OK)
        status = ferry_json_opt_array(&root, "kvs", &kvs);
    if (status == FERRY_OK && ferry_json_len(&kvs) > KEYS_MAX)
        status = ferry_json_fail(&kvs, "%zu keys on a page", ferry_json_len(&kvs));
    for (size_t i = 0; status == FERRY_OK && i < ferry_json_len(&kvs); i++) {
        struct ferry_json kv = ferry_json_item(&kvs, i);

        status = read_key(&kv, prefix, names, &last, &last_len);
    }
    if (status == FERRY_OK) {
        *last_out = more ? ferry_take_ptr(&last) : NULL;
        *last_len_out = last_len;
    }
    return foreign(status);
}

enum ferry_status ferry_etcd_read_put(const char *reply, size_t len, uint64_t *revision_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = read_revision(&root, revision_out);
    return foreign(status);
}

/* responses[0].response_range, if the comparison did not hold. */
static enum ferry_status read_otherwise(const struct ferry_json *root,
                                        struct ferry_etcd_entry *entry_out)
{
    struct ferry_json responses;
    struct ferry_json range;
    enum ferry_status status = ferry_json_array(root, "responses", &responses);

    if (status != FERRY_OK)
        return status;
    if (ferry_json_len(&responses) != 1)
        return ferry_json_fail(&responses, "%zu responses, expected 1", ferry_json_len(&responses));

    struct ferry_json response = ferry_json_item(&responses, 0);

    status = ferry_json_as_object(&response);
    if (status == FERRY_OK)
        status = ferry_json_object(&response, "response_range", &range);
    return status != FERRY_OK ? status : read_entry(&range, entry_out);
}

enum ferry_status ferry_etcd_read_txn(const char *reply, size_t len, bool *done_out,
                                      struct ferry_etcd_entry *entry_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_etcd_entry entry = {0};
    bool done = false;
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = ferry_json_opt_bool(&root, "succeeded", &done);
    if (status == FERRY_OK)
        status = done ? read_revision(&root, &entry.revision) : read_otherwise(&root, &entry);
    if (status == FERRY_OK) {
        *done_out = done;
        *entry_out = entry;
    }
    return foreign(status);
}

enum ferry_status ferry_etcd_read_grant(const char *reply, size_t len, uint64_t *lease_out,
                                        uint64_t *ttl_s_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    uint64_t lease = 0;
    uint64_t ttl_s = 0;
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = read_number(&root, "ID", &lease);
    if (status == FERRY_OK)
        status = read_number(&root, "TTL", &ttl_s);
    if (status == FERRY_OK && (lease == 0 || ttl_s == 0))
        status = ferry_json_fail(&root, "no lease was granted");
    if (status == FERRY_OK) {
        *lease_out = lease;
        *ttl_s_out = ttl_s;
    }
    return foreign(status);
}

enum ferry_status ferry_etcd_read_keepalive(const char *reply, size_t len, uint64_t *ttl_s_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_json result;
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = ferry_json_object(&root, "result", &result);
    if (status == FERRY_OK)
        status = read_number(&result, "TTL", ttl_s_out);
    return foreign(status);
}

enum ferry_status ferry_etcd_read_token(const char *reply, size_t len,
                                        char token_out[FERRY_ETCD_TOKEN_SIZE])
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    const char *token = NULL;
    enum ferry_status status = open_reply(reply, len, &root);

    if (status == FERRY_OK)
        status = ferry_json_string(&root, "token", FERRY_ETCD_TOKEN_SIZE - 1, &token);
    /* It becomes a header. */
    if (status == FERRY_OK && (token[0] == '\0' || has_control(token, strlen(token))))
        status = ferry_json_fail(&root, "token: no usable token");
    if (status == FERRY_OK)
        strcpy(token_out, token);
    return foreign(status);
}

enum ferry_status ferry_etcd_read_news(const char *line, size_t len,
                                       struct ferry_etcd_news *news_out)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_etcd_news news = {0};
    struct ferry_json result;
    struct ferry_json events = {0};
    enum ferry_status status = open_reply(line, len, &root);

    if (status == FERRY_OK)
        status = ferry_json_object(&root, "result", &result);
    if (status == FERRY_OK)
        status = ferry_json_opt_bool(&result, "created", &news.created);
    if (status == FERRY_OK)
        status = ferry_json_opt_bool(&result, "canceled", &news.canceled);
    if (status == FERRY_OK)
        status = ferry_json_opt_array(&result, "events", &events);
    if (status == FERRY_OK)
        status = read_revision(&result, &news.revision);
    news.events = ferry_json_len(&events) > 0;
    if (status == FERRY_OK)
        *news_out = news;
    return foreign(status);
}

static const struct ferry_json_limits refusal_limits = {
    .text_bytes_max = 1u << 16,
    .memory_bytes_max = 4u << 20,
    .depth_max = 16,
};

void ferry_etcd_read_refusal(const char *reply, size_t len, int *code_out, char *text, size_t size)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
    struct ferry_json inner = {0};
    const struct ferry_json *at = &root;
    const char *message = NULL;
    uint64_t code = 0;
    struct ferry_text out;

    *code_out = -1;
    ferry_text_init(&out, text, size);
    if (ferry_json_parse(&refusal_limits, "refusal", reply, len, &root) != FERRY_OK ||
        ferry_json_as_object(&root) != FERRY_OK)
        return;
    /* In a stream the error is an object with the members below. */
    if (ferry_json_opt_object(&root, "error", &inner) == FERRY_OK && inner.value != NULL)
        at = &inner;
    for (size_t i = 0; i < 2 && message == NULL; i++) {
        if (ferry_json_opt_string(at, i == 0 ? "message" : "error", 400, &message) != FERRY_OK)
            message = NULL;
    }
    for (; message != NULL && *message != '\0'; message++) {
        char byte = (unsigned char)*message < 0x20 || *message == 0x7f ? '?' : *message;

        ferry_text_add_bytes(&out, &byte, 1);
    }
    if (ferry_json_has(at, "code") && ferry_json_u64(at, "code", 0, 100, &code) == FERRY_OK)
        *code_out = (int)code;
    else if (ferry_json_has(at, "grpc_code") &&
             ferry_json_u64(at, "grpc_code", 0, 100, &code) == FERRY_OK)
        *code_out = (int)code;
}
