/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller may see of a segment: its buffers, and the reports of the peer's control plane.
 * Runs on the calling thread, far from the way of requests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "control/client.h"
#include "control/message.h"
#include "metadata/document.h"
#include "runtime/runtime.h"

#define REPORT_TEXT_MAX (64u << 20)

/* One line of the answer, in the caller's layout. */
struct buffer_sink {
    unsigned char *out; /* NULL: only count */
    size_t stride;
    size_t room;
    size_t count;
};

static void sink_put(struct buffer_sink *sink, uint64_t addr, uint64_t length,
                     enum ferry_permission permission, const char *location)
{
    if (sink->count < sink->room) {
        struct ferry_segment_buffer *buffer = (void *)(sink->out + sink->count * sink->stride);

        buffer->struct_size = sink->stride;
        buffer->addr = addr;
        buffer->length = length;
        buffer->permission = permission;
        snprintf(buffer->location, sizeof(buffer->location), "%s", location);
    }
    sink->count++;
}

/*
 * Permission is not a member of the published buffer: each transport that serves it says so in its
 * own attribute. One that any of them lets peers write is writable.
 */
static enum ferry_permission buffer_permission(const struct ferry_document_buffer *buffer)
{
    enum ferry_permission best = FERRY_PERMISSION_LOCAL;

    for (uint32_t i = 0; i < buffer->attr_count; i++) {
        const char *text = buffer->attrs[i].text;
        FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};
        const char *word = "";
        uint64_t number = 0;

        if (ferry_json_parse(&ferry_json_limits_small, "buffer attribute", text, strlen(text),
                             &root) != FERRY_OK ||
            ferry_json_as_object(&root) != FERRY_OK)
            continue;
        /* A word or, in the attributes of ub, its number. */
        if (ferry_json_opt_string(&root, "permission", 64, &word) != FERRY_OK &&
            ferry_json_u64(&root, "permission", 0, FERRY_PERMISSION_READ_WRITE, &number) !=
                FERRY_OK)
            continue;
        if (strcmp(word, "global_read_write") == 0 || number == FERRY_PERMISSION_READ_WRITE)
            return FERRY_PERMISSION_READ_WRITE;
        if (strcmp(word, "global_read_only") == 0 || number == FERRY_PERMISSION_READ_ONLY)
            best = FERRY_PERMISSION_READ_ONLY;
    }
    return best;
}

static enum ferry_status list_local(struct ferry_engine *engine, struct buffer_sink *sink)
{
    struct ferry_registry_list list = {0};
    enum ferry_status status = ferry_registry_list(&engine->registry, &list);

    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < list.count; i++) {
        const struct ferry_registry_buffer *buffer = &list.buffers[i];

        sink_put(sink, buffer->addr, buffer->length, buffer->permission, buffer->location);
    }
    ferry_registry_list_free(&list);
    return FERRY_OK;
}

static enum ferry_status list_remote(struct ferry_engine *engine, uint64_t segment,
                                     struct buffer_sink *sink)
{
    struct ferry_view *view;
    enum ferry_status status = ferry_segment_view(engine, segment, &view);

    if (status != FERRY_OK)
        return ferry_fail(status, "segment handle %#llx names no open segment",
                          (unsigned long long)segment);
    for (uint32_t i = 0; i < view->doc->buffer_count; i++) {
        const struct ferry_document_buffer *buffer = &view->doc->buffers[i];
        bool fits = sink->count < sink->room;

        enum ferry_permission permission = FERRY_PERMISSION_LOCAL;

        if (fits)
            permission = view->files ? FERRY_PERMISSION_READ_WRITE : buffer_permission(buffer);
        sink_put(sink, buffer->addr, buffer->length, permission, buffer->location);
    }
    ferry_view_release(view);
    return FERRY_OK;
}

enum ferry_status ferry_segment_buffers(struct ferry_engine *engine, uint64_t segment,
                                        struct ferry_segment_buffer *buffers_out,
                                        size_t *count_inout)
{
    enum ferry_status status = ferry_engine_enter(engine);
    struct buffer_sink sink = {0};

    if (status != FERRY_OK)
        return status;
    if (count_inout == NULL || (buffers_out == NULL && *count_inout > 0))
        return ferry_fail(FERRY_ERR_INVALID, "segment buffers: room is announced but not given");
    if (*count_inout > 0) {
        sink.stride = buffers_out->struct_size;
        if (sink.stride < sizeof(struct ferry_segment_buffer) || sink.stride % 8 != 0)
            return ferry_fail(FERRY_ERR_INVALID,
                              "struct ferry_segment_buffer: struct_size %zu, expected %zu",
                              sink.stride, sizeof(struct ferry_segment_buffer));
        sink.out = (unsigned char *)buffers_out;
        sink.room = *count_inout;
    }
    status = segment == FERRY_SEGMENT_LOCAL ? list_local(engine, &sink)
                                            : list_remote(engine, segment, &sink);
    if (status == FERRY_OK)
        *count_inout = sink.count;
    return status;
}

static const char *report_path(const char *path)
{
    static const char *const paths[][2] = {
        {"segment", FERRY_CONTROL_PATH_SEGMENT},       {"process", FERRY_CONTROL_PATH_PROCESS},
        {"transports", FERRY_CONTROL_PATH_TRANSPORTS}, {"health", FERRY_CONTROL_PATH_HEALTH},
        {"version", FERRY_CONTROL_PATH_VERSION},
    };

    for (size_t i = 0; path != NULL && i < FERRY_ARRAY_LEN(paths); i++) {
        if (strcmp(path, paths[i][0]) == 0)
            return paths[i][1];
    }
    return NULL;
}

/* "http(s)://<control address of the peer><path>". */
static enum ferry_status peer_url(const struct ferry_view *view, const char *path, char *url,
                                  size_t size)
{
    char authority[FERRY_HOSTPORT_SIZE];
    struct ferry_hostport place;
    enum ferry_status status;

    if (view->files)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "segment \"%.200s\": files, without an engine",
                          view->segment->name);
    if (view->doc->ferry_version == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "segment \"%s\": its engine is not ferry",
                          view->segment->name);
    status = ferry_hostport_parse(view->doc->rpc_server_addr, 0, FERRY_HOSTPORT_NEED_PORT, &place);
    if (status != FERRY_OK)
        return FERRY_ERR_METADATA;
    ferry_hostport_format_url(&place, authority, sizeof(authority));
    snprintf(url, size, "%s://%s%s", ferry_http_client_scheme(view->engine->http), authority, path);
    return FERRY_OK;
}

enum ferry_status ferry_segment_url(struct ferry_engine *engine, uint64_t segment, const char *path,
                                    char *url, size_t size)
{
    struct ferry_view *view;
    enum ferry_status status;

    if (segment == FERRY_SEGMENT_LOCAL)
        return ferry_fail(FERRY_ERR_INVALID, "this is the engine's own segment, not a peer's");
    if (engine->http == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "this engine has no control plane");
    status = ferry_segment_view(engine, segment, &view);
    if (status != FERRY_OK)
        return ferry_fail(status, "segment handle %#llx names no open segment",
                          (unsigned long long)segment);
    status = peer_url(view, path, url, size);
    ferry_view_release(view);
    return status;
}

enum ferry_status ferry_segment_report(struct ferry_engine *engine, uint64_t segment,
                                       const char *path, uint64_t deadline_ns, char **json_out)
{
    enum ferry_status status = ferry_engine_enter_blocking(engine);
    char url[FERRY_HOSTPORT_SIZE + 64];
    struct ferry_http_call call = {.method = FERRY_HTTP_GET, .party = FERRY_HTTP_PEER, .url = url};

    if (status != FERRY_OK)
        return status;
    if (json_out == NULL || report_path(path) == NULL)
        return ferry_fail(FERRY_ERR_INVALID,
                          "report \"%s\": expected segment, process, transports, health or version",
                          path != NULL ? path : "");
    status = ferry_segment_url(engine, segment, report_path(path), url, sizeof(url));
    if (status != FERRY_OK)
        return status;
    call.reply_max = REPORT_TEXT_MAX;
    call.deadline_ns = ferry_engine_deadline(engine, deadline_ns,
                                             engine->settings.control_timeout_ns);
    status = ferry_http_client_call(engine->http, &call);
    if (status != FERRY_OK)
        return status;
    if (call.http_status != 200) {
        free(call.reply);
        return ferry_fail(FERRY_ERR_PROTOCOL, "%s answered with HTTP status %ld", url,
                          call.http_status);
    }
    *json_out = call.reply;
    return FERRY_OK;
}
