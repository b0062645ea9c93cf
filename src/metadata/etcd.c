/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The etcd store: segments in a cluster of etcd v3, through its JSON gateway. Keys are those of the
 * reference, see stores.h. It compares in one transaction, its entries live as long as their owner
 * keeps a lease alive, it lists, and it tells of changes. Nothing is written outside the prefix.
 *
 * A request is one object from submit to done(); its steps run on the control thread.
 */
#include "metadata/etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/hostport.h"
#include "config/option.h"
#include "metadata/file_document.h"

/* Names on one page of a list, and pages. */
#define PAGE_NAMES     1000
#define PAGES_MAX      1000
#define NAMES_TEXT_MAX (64u << 20)

static void complete(struct ferry_etcd *etcd, struct ferry_store_request *request)
{
    request->done(request);
    ferry_etcd_end(etcd);
}

static bool is_owned(const struct ferry_etcd_op *op)
{
    return op->request == NULL || op->request->owned;
}

/* An operation has ended, and its result is where it belongs. */
static void finish(struct ferry_etcd_op *op)
{
    struct ferry_etcd *etcd = op->etcd;
    struct ferry_store_request *request = op->request;
    bool entered = op->entered;

    ferry_text_fini(&op->names);
    free(op->copy);
    free(op);
    if (entered)
        ferry_etcd_lease_leave(etcd);
    if (request != NULL)
        complete(etcd, request);
    else
        ferry_etcd_end(etcd);
}

void ferry_etcd_op_end(struct ferry_etcd_op *op, enum ferry_status status, const char *error)
{
    if (op->request != NULL)
        ferry_store_request_fail(op->request, status, "%s", error);
    else
        ferry_etcd_lease_repaired(op->etcd, op->name, status, error);
    finish(op);
}

/* etcd counts the whole request, and its proxies count once more. */
static bool is_too_large(const struct ferry_etcd_call *call)
{
    return call->refused && (strstr(call->error, "too large") != NULL ||
                             strstr(call->error, "larger than max") != NULL);
}

/* True if the call brought a reply; otherwise the operation has ended. */
static bool answered(struct ferry_etcd_op *op)
{
    struct ferry_etcd_call *call = &op->call;
    char error[sizeof(call->error)];

    if (call->status == FERRY_OK)
        return true;
    if (op->text != NULL && is_too_large(call))
        snprintf(error, sizeof(error),
                 "the metadata store refuses a document of %zu bytes: fewer buffers, or a larger "
                 "--max-request-bytes of etcd; %.300s",
                 op->text_len, call->error);
    else
        snprintf(error, sizeof(error), "the metadata store: %.480s", call->error);
    ferry_etcd_op_end(
        op, op->text != NULL && is_too_large(call) ? FERRY_ERR_TOO_LARGE : call->status, error);
    return false;
}

/* A reply that cannot be read; the cause is in the error text of the thread. */
static void end_unread(struct ferry_etcd_op *op, enum ferry_status status)
{
    char error[512];

    snprintf(error, sizeof(error), "the metadata store: %.480s", ferry_last_error_text());
    ferry_etcd_op_end(op, status, error);
}

static void end_unknown(struct ferry_etcd_op *op)
{
    char error[FERRY_STORE_NAME_MAX + 64];

    snprintf(error, sizeof(error), "the metadata store knows no segment \"%s\"", op->name);
    ferry_etcd_op_end(op, FERRY_ERR_NOT_FOUND, error);
}

static void got(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);
    struct ferry_etcd_entry entry = {0};
    enum ferry_status status;

    if (!answered(op))
        return;
    status = ferry_etcd_read_range(call->reply, call->reply_len, &entry);
    free(call->reply);
    if (status != FERRY_OK) {
        end_unread(op, status);
    } else if (!entry.found) {
        end_unknown(op);
    } else {
        op->request->reply = entry.value;
        op->request->reply_len = entry.value_len;
        op->request->revision = entry.revision;
        ferry_etcd_op_end(op, FERRY_OK, "");
    }
}

/* "mooncake/[cluster/]", which is not part of a file segment's name, or with "tent/". */
static void strip_prefix(const struct ferry_etcd_op *op, char prefix[FERRY_STORE_KEY_SIZE])
{
    strcpy(prefix, op->key);
    prefix[strlen(op->key) - strlen(op->name)] = '\0';
}

static void list_page(struct ferry_etcd_op *op, const char *after, size_t after_len);

static void listed(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);
    FERRY_AUTO_FREE char *last = NULL;
    char prefix[FERRY_STORE_KEY_SIZE];
    size_t last_len = 0;
    enum ferry_status status;

    if (!answered(op))
        return;
    strip_prefix(op, prefix);
    status = ferry_etcd_read_keys(call->reply, call->reply_len, prefix, &op->names, &last,
                                  &last_len);
    free(call->reply);
    if (status == FERRY_OK && last != NULL && ++op->pages < PAGES_MAX) {
        list_page(op, last, last_len);
        return;
    }
    if (status == FERRY_OK)
        status = ferry_text_take(&op->names, &op->request->reply, &op->request->reply_len);
    if (status != FERRY_OK)
        end_unread(op, status);
    else
        ferry_etcd_op_end(op, FERRY_OK, "");
}

static void ask(struct ferry_etcd_op *op, const char *path, struct ferry_text *body,
                ferry_etcd_done_fn *done)
{
    op->call.etcd = op->etcd;
    op->call.path = path;
    op->call.done = done;
    ferry_etcd_set_body(&op->call, body);
    ferry_etcd_ask(&op->call);
}

static void list_page(struct ferry_etcd_op *op, const char *after, size_t after_len)
{
    struct ferry_text body;

    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_keys_body(&body, op->key, after, after_len, PAGE_NAMES);
    ask(op, "/v3/kv/range", &body, listed);
}

static void put_if(struct ferry_etcd_op *op, enum ferry_etcd_compare compare, uint64_t number);

/* What was put is there. Takes over the text that the caller gave, for putting it back. */
static void end_put(struct ferry_etcd_op *op, uint64_t revision)
{
    if (op->request == NULL) {
        ferry_etcd_op_end(op, FERRY_OK, "");
        return;
    }
    op->request->revision = revision;
    if (op->request->owned && !ferry_etcd_lease_own(op->etcd, op->name, op->text, op->text_len))
        ferry_etcd_op_end(op, FERRY_ERR_NO_MEMORY,
                          "no memory to keep a copy of what was published");
    else
        ferry_etcd_op_end(op, FERRY_OK, "");
}

/* Something else is there, or nothing. Takes entry->value. */
static void end_conflict(struct ferry_etcd_op *op, struct ferry_etcd_entry *entry)
{
    char error[512];

    if (!entry->found && op->request != NULL && op->request->expect == FERRY_STORE_REVISION) {
        free(entry->value);
        end_unknown(op);
        return;
    }
    snprintf(error, sizeof(error), "segment \"%s\" is in the metadata store already, revision %llu",
             op->name, (unsigned long long)entry->revision);
    if (op->request != NULL) {
        op->request->reply = ferry_take_ptr(&entry->value);
        op->request->reply_len = entry->value_len;
        op->request->revision = entry->revision;
    }
    free(entry->value);
    ferry_etcd_op_end(op, FERRY_ERR_EXISTS, error);
}

static bool is_our_text(const struct ferry_etcd_op *op, const struct ferry_etcd_entry *entry)
{
    return entry->found && entry->value_len == op->text_len &&
           memcmp(entry->value, op->text, op->text_len) == 0;
}

/*
 * The comparison did not hold. It may be our own doing: a try whose answer was lost. Of an owned
 * entry: it was deleted by somebody, or it is ours under a lease that is gone.
 */
static void judge_conflict(struct ferry_etcd_op *op, struct ferry_etcd_entry *entry)
{
    bool ours = is_our_text(op, entry);

    if (ours && op->call.repeated) {
        free(entry->value);
        end_put(op, entry->revision);
    } else if (is_owned(op) && op->compare == FERRY_ETCD_LEASE && !entry->found) {
        put_if(op, FERRY_ETCD_ABSENT, 0);
    } else if (op->request == NULL && ours && op->compare == FERRY_ETCD_ABSENT) {
        free(entry->value);
        put_if(op, FERRY_ETCD_REVISION, entry->revision);
    } else {
        end_conflict(op, entry);
    }
}

static void put_or_not(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);
    struct ferry_etcd_entry entry = {0};
    bool done = false;
    enum ferry_status status;

    /* The one thing that may be missing for a put is its lease. */
    if (call->refused && call->code == FERRY_ETCD_CODE_NOT_FOUND && op->entered &&
        !op->lease_retried) {
        op->lease_retried = true;
        ferry_etcd_lease_lapsed(op);
        return;
    }
    if (!answered(op))
        return;
    status = ferry_etcd_read_txn(call->reply, call->reply_len, &done, &entry);
    free(call->reply);
    if (status != FERRY_OK)
        end_unread(op, status);
    else if (done)
        end_put(op, entry.revision);
    else
        judge_conflict(op, &entry);
}

static void put_if(struct ferry_etcd_op *op, enum ferry_etcd_compare compare, uint64_t number)
{
    struct ferry_etcd_put put = {
        .key = op->key,
        .value = op->text,
        .value_len = op->text_len,
        .lease = is_owned(op) ? op->etcd->lease.id : 0,
    };
    struct ferry_text body;

    op->compare = compare;
    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    ferry_etcd_put_if_body(&body, compare, number, &put);
    ask(op, "/v3/kv/txn", &body, put_or_not);
}

static void put_done(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);
    uint64_t revision = 0;
    enum ferry_status status;

    if (!answered(op))
        return;
    status = ferry_etcd_read_put(call->reply, call->reply_len, &revision);
    free(call->reply);
    if (status != FERRY_OK)
        end_unread(op, status);
    else
        end_put(op, revision);
}

static void put(struct ferry_etcd_op *op)
{
    struct ferry_etcd_put what = {.key = op->key, .value = op->text, .value_len = op->text_len};
    struct ferry_text body;

    if (op->request == NULL || op->request->expect == FERRY_STORE_NOTHING) {
        put_if(op, FERRY_ETCD_ABSENT, 0);
    } else if (op->request->expect == FERRY_STORE_REVISION) {
        put_if(op, FERRY_ETCD_REVISION, op->request->expected_revision);
    } else if (op->request->owned) {
        put_if(op, FERRY_ETCD_LEASE, op->etcd->lease.id);
    } else {
        ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
        ferry_etcd_put_body(&body, &what);
        ask(op, "/v3/kv/put", &body, put_done);
    }
}

static void deleted(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);

    if (!answered(op))
        return;
    free(call->reply);
    ferry_etcd_op_end(op, FERRY_OK, "");
}

static void deleted_or_not(struct ferry_etcd_call *call)
{
    struct ferry_etcd_op *op = FERRY_CONTAINER_OF(call, struct ferry_etcd_op, call);
    struct ferry_etcd_entry entry = {0};
    bool done = false;
    enum ferry_status status;

    if (!answered(op))
        return;
    status = ferry_etcd_read_txn(call->reply, call->reply_len, &done, &entry);
    free(call->reply);
    if (status != FERRY_OK) {
        end_unread(op, status);
    } else if (done || op->request->owned || (!entry.found && call->repeated)) {
        free(entry.value);
        ferry_etcd_op_end(op, FERRY_OK, "");
    } else {
        end_conflict(op, &entry);
    }
}

static void delete (struct ferry_etcd_op *op)
{
    struct ferry_text body;

    ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
    if (op->request->owned) {
        ferry_etcd_delete_if_body(&body, FERRY_ETCD_LEASE, op->etcd->lease.id, op->key);
        ask(op, "/v3/kv/txn", &body, deleted_or_not);
    } else if (op->request->expect == FERRY_STORE_REVISION) {
        ferry_etcd_delete_if_body(&body, FERRY_ETCD_REVISION, op->request->expected_revision,
                                  op->key);
        ask(op, "/v3/kv/txn", &body, deleted_or_not);
    } else {
        ferry_etcd_delete_body(&body, op->key);
        ask(op, "/v3/kv/deleterange", &body, deleted);
    }
}

void ferry_etcd_op_go(struct ferry_etcd_op *op)
{
    struct ferry_text body;

    switch (op->request != NULL ? op->request->verb : FERRY_STORE_PUT) {
    case FERRY_STORE_GET:
        ferry_text_init_heap(&body, FERRY_ETCD_BODY_MAX);
        ferry_etcd_range_body(&body, op->key);
        ask(op, "/v3/kv/range", &body, got);
        break;
    case FERRY_STORE_PUT:
        put(op);
        break;
    case FERRY_STORE_DELETE:
        delete (op);
        break;
    case FERRY_STORE_LIST:
        list_page(op, NULL, 0);
        break;
    }
}

static struct ferry_etcd_op *new_op(struct ferry_etcd *etcd, const char *name, uint64_t deadline_ns)
{
    struct ferry_etcd_op *op = calloc(1, sizeof(*op));
    uint64_t limit_ns = ferry_deadline_ns(ferry_now_ns(etcd->clock), etcd->timeout_ns);

    if (op == NULL)
        return NULL;
    op->etcd = etcd;
    op->name = name;
    op->call.deadline_ns = deadline_ns < limit_ns ? deadline_ns : limit_ns;
    ferry_store_key(etcd->cluster, name, op->key);
    ferry_text_init_heap(&op->names, NAMES_TEXT_MAX);
    ferry_list_init(&op->waiting);
    return op;
}

struct ferry_etcd_op *ferry_etcd_op_repair(struct ferry_etcd *etcd,
                                           const struct ferry_etcd_owned *owned)
{
    size_t name_size = strlen(owned->name) + 1;
    struct ferry_etcd_op *op = new_op(etcd, owned->name, FERRY_NEVER_NS);

    if (op != NULL)
        op->copy = malloc(name_size + owned->text_len);
    if (op == NULL || op->copy == NULL || !ferry_etcd_begin(etcd)) {
        if (op != NULL)
            free(op->copy);
        free(op);
        return NULL;
    }
    memcpy(op->copy, owned->name, name_size);
    memcpy(op->copy + name_size, owned->text, owned->text_len);
    op->name = op->copy;
    op->text = op->copy + name_size;
    op->text_len = owned->text_len;
    return op;
}

/* An entry that nothing holds any more: it is gone, or goes with its lease. */
static bool is_gone_anyway(struct ferry_etcd *etcd, const struct ferry_store_request *request)
{
    return request->verb == FERRY_STORE_DELETE && etcd->lease.state != FERRY_ETCD_LEASE_HELD;
}

/* The request's first step on the control thread. */
static void begin(struct ferry_http_call *http)
{
    struct ferry_store_request *request = FERRY_CONTAINER_OF(http, struct ferry_store_request,
                                                             call);
    struct ferry_etcd *etcd = http->arg;
    bool owned = request->owned &&
                 (request->verb == FERRY_STORE_PUT || request->verb == FERRY_STORE_DELETE);
    struct ferry_etcd_op *op;

    if (http->status != FERRY_OK) {
        ferry_store_request_fail(request, http->status, "%s", http->error);
        complete(etcd, request);
        return;
    }
    if (owned && request->verb == FERRY_STORE_DELETE)
        ferry_etcd_lease_disown(etcd, request->name);
    if (owned && is_gone_anyway(etcd, request)) {
        complete(etcd, request);
        return;
    }
    op = new_op(etcd, request->name, request->deadline_ns);
    if (op == NULL) {
        ferry_store_request_fail(request, FERRY_ERR_NO_MEMORY, "no memory for a request");
        complete(etcd, request);
        return;
    }
    op->request = request;
    if (request->verb == FERRY_STORE_PUT) {
        op->text = request->text;
        op->text_len = request->text_len;
    }
    if (owned)
        ferry_etcd_lease_enter(op);
    else
        ferry_etcd_op_go(op);
}

/* FERRY_OK, or why the request cannot be sent; the error text is set. */
static enum ferry_status check_request(const struct ferry_store_request *request)
{
    if (request->verb == FERRY_STORE_LIST) {
        if (request->name[0] == '\0' || strcmp(request->name, FERRY_FILE_SEGMENT_PREFIX) == 0)
            return FERRY_OK;
        return ferry_fail(FERRY_ERR_INVALID, "\"%.100s\" names no kind of segments", request->name);
    }
    return ferry_store_name_check(request->name) ? FERRY_OK : FERRY_ERR_INVALID;
}

static void etcd_submit(struct ferry_store *base, struct ferry_store_request *request)
{
    struct ferry_etcd *etcd = FERRY_CONTAINER_OF(base, struct ferry_etcd, base);
    enum ferry_status status;

    if (etcd->pid != getpid()) {
        ferry_store_request_fail(request, FERRY_ERR_FORKED,
                                 "the metadata store belongs to the parent process");
        request->done(request);
        return;
    }
    status = check_request(request);
    request->call.error[0] = '\0';
    if (status != FERRY_OK)
        snprintf(request->call.error, sizeof(request->call.error), "%s", ferry_last_error_text());
    request->call.done = begin;
    request->call.arg = etcd;
    pthread_mutex_lock(&etcd->lock);
    etcd->pending++;
    pthread_mutex_unlock(&etcd->lock);
    ferry_http_client_finish(etcd->http, &request->call, status);
}

static void etcd_close(struct ferry_store *base)
{
    struct ferry_etcd *etcd = FERRY_CONTAINER_OF(base, struct ferry_etcd, base);

    if (etcd->pid != getpid())
        return; /* whoever holds the lock or ran a request is not in this process */
    pthread_mutex_lock(&etcd->lock);
    FERRY_ASSERT(etcd->watch_count == 0);
    etcd->closing = true;
    for (struct ferry_list *link = etcd->calls.next; link != &etcd->calls; link = link->next) {
        struct ferry_etcd_call *call = FERRY_CONTAINER_OF(link, struct ferry_etcd_call, link);

        ferry_http_client_abort(etcd->http, &call->http);
    }
    while (etcd->pending > 0)
        pthread_cond_wait(&etcd->idle, &etcd->lock);
    pthread_mutex_unlock(&etcd->lock);
    ferry_etcd_lease_fini(etcd);
    pthread_cond_destroy(&etcd->idle);
    pthread_mutex_destroy(&etcd->lock);
    free(etcd);
}

static enum ferry_status fail_endpoint(const char *text, size_t len)
{
    return ferry_fail(FERRY_ERR_CONFIG,
                      "metadata_servers: \"%.*s\" is no endpoint of etcd; expected HOST:PORT or a "
                      "URL of at most %d bytes such as http://10.0.0.1:2379",
                      (int)(len < 200 ? len : 200), text, FERRY_ETCD_ENDPOINT_MAX);
}

/* "host:port" to a URL; what is one is taken as it is, without the slash at its end. */
static enum ferry_status add_endpoint(struct ferry_etcd *etcd, const char *text, size_t len)
{
    char *url = etcd->endpoints[etcd->endpoint_count];
    char given[FERRY_ETCD_ENDPOINT_MAX + 1];
    char authority[FERRY_HOSTPORT_SIZE];
    struct ferry_hostport place;

    if (len > FERRY_ETCD_ENDPOINT_MAX)
        return fail_endpoint(text, len);
    memcpy(given, text, len);
    given[len] = '\0';
    while (len > 0 && given[len - 1] == '/')
        given[--len] = '\0';
    if (strstr(given, "://") != NULL) {
        strcpy(url, given);
    } else if (ferry_hostport_parse(given, FERRY_ETCD_PORT, 0, &place) == FERRY_OK) {
        ferry_hostport_format_url(&place, authority, sizeof(authority));
        if (snprintf(url, sizeof(etcd->endpoints[0]), "%s://%s",
                     etcd->tls.ca_file[0] != '\0' || etcd->tls.cert_file[0] != '\0' ? "https"
                                                                                    : "http",
                     authority) > FERRY_ETCD_ENDPOINT_MAX)
            return fail_endpoint(given, len);
    } else {
        return fail_endpoint(given, len);
    }
    if (strpbrk(url, "?#@") != NULL || ferry_http_url_check(url) != FERRY_OK)
        return fail_endpoint(given, len);
    etcd->endpoint_count++;
    return FERRY_OK;
}

static enum ferry_status add_endpoints(struct ferry_etcd *etcd, const char *list)
{
    static const char separators[] = ",; ";
    enum ferry_status status = FERRY_OK;

    for (list += strspn(list, separators); status == FERRY_OK && *list != '\0';
         list += strspn(list, separators)) {
        size_t len = strcspn(list, separators);

        if (etcd->endpoint_count == FERRY_ETCD_ENDPOINTS_MAX)
            return ferry_fail(FERRY_ERR_CONFIG, "metadata_servers: more than %d endpoints",
                              FERRY_ETCD_ENDPOINTS_MAX);
        status = add_endpoint(etcd, list, len);
        list += len;
    }
    if (status == FERRY_OK && etcd->endpoint_count == 0)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "metadata_servers is empty: metadata_type etcd needs its endpoints, such "
                          "as 10.0.0.1:2379,10.0.0.2:2379");
    return status;
}

static enum ferry_status read_config(struct ferry_etcd *etcd, const struct ferry_config *config)
{
    enum ferry_status status = ferry_store_cluster(config, etcd->cluster);

    etcd->tls = ferry_store_tls(config);
    etcd->timeout_ns = ferry_config_u64(config, "metadata_timeout_ms") * FERRY_NS_PER_MS;
    etcd->lease_ttl_s = ferry_config_u64(config, "metadata_lease_s");
    etcd->user = ferry_config_string(config, "metadata_user");
    etcd->password = ferry_config_string(config, "metadata_password");
    if ((etcd->tls.cert_file[0] != '\0') != (etcd->tls.key_file[0] != '\0'))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "metadata_cert_file and metadata_key_file belong together");
    return status == FERRY_OK ? add_endpoints(etcd, ferry_config_string(config, "metadata_servers"))
                              : status;
}

static enum ferry_status etcd_open(const struct ferry_store_env *env,
                                   struct ferry_store **store_out)
{
    struct ferry_etcd *etcd = calloc(1, sizeof(*etcd));
    enum ferry_status status;

    if (etcd == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "etcd store: out of memory");
    FERRY_ASSERT(env->http != NULL);
    status = read_config(etcd, env->config);
    if (status != FERRY_OK) {
        free(etcd);
        return status;
    }
    etcd->base.ops = &ferry_store_etcd;
    etcd->clock = env->clock;
    etcd->http = env->http;
    etcd->pid = getpid();
    pthread_mutex_init(&etcd->lock, NULL);
    pthread_cond_init(&etcd->idle, NULL);
    ferry_list_init(&etcd->calls);
    ferry_list_init(&etcd->auth_waiters);
    ferry_etcd_lease_init(etcd);
    *store_out = &etcd->base;
    return FERRY_OK;
}

const struct ferry_store_ops ferry_store_etcd = {
    .name = "etcd",
    .open = etcd_open,
    .close = etcd_close,
    .submit = etcd_submit,
    .watch = ferry_etcd_watch,
    .unwatch = ferry_etcd_unwatch,
    .names_are_addresses = false,
    .compares = true,
    .expires = true,
    .lists = true,
};
