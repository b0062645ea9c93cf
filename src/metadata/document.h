/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment document: what an engine publishes about itself and reads about its peers.
 *
 * The shape is the reference system's (same keys, u64 exact), so that stores can be shared: known
 * fields strict, unknown fields ignored, and kept when a document that we read is written again.
 * Pure data; no thread, no I/O. A document belongs to one thread at a time.
 *
 *   name, type "memory" | "file", machine_id, rpc_server_addr, optional rdma_server_name, detail:
 *     memory: device_attrs {}, buffers [...], devices [...], topology "text", transport_attrs [[id, text]]
 */
#ifndef FERRY_METADATA_DOCUMENT_H
#define FERRY_METADATA_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

struct json_object;

/* Largest document read or written, bytes of JSON text; and most buffers in one. */
#define FERRY_DOCUMENT_TEXT_MAX    (64u << 20)
#define FERRY_DOCUMENT_BUFFERS_MAX (1u << 20)

/* One [transport id, attribute text] pair. */
struct ferry_document_attr {
    int32_t transport_id;
    char *text;
};

struct ferry_document_buffer {
    uint64_t addr;
    uint64_t length; /* addr + length does not wrap */
    char location[64];
    struct ferry_document_attr *attrs;
    uint32_t attr_count;
};

struct ferry_document {
    char *name;
    char *machine_id;
    char *rpc_server_addr;
    struct ferry_document_buffer *buffers; /* sorted by address */
    uint32_t buffer_count;
    struct ferry_document_attr *attrs;
    uint32_t attr_count;
    /* ferry's own: a text to text map under "ferry" in the document; NULL when the peer is no ferry */
    char *ferry_version;
    struct json_object *kept; /* unknown fields, written back as they were; may be NULL */
};

/*
 * Read a memory segment's document. ERR_METADATA with the path of the wrong field in the text;
 * ERR_UNSUPPORTED for type "file"; ERR_TOO_LARGE; ERR_NO_MEMORY.
 */
enum ferry_status ferry_document_parse(const char *text, size_t len, struct ferry_document **doc_out);

/* JSON text, malloc'd, NUL-terminated. ERR_NO_MEMORY, ERR_TOO_LARGE. */
enum ferry_status ferry_document_print(const struct ferry_document *doc, char **text_out,
                                       size_t *len_out);

enum ferry_status ferry_document_create(struct ferry_document **doc_out);
void ferry_document_destroy(struct ferry_document *doc);

/* The attribute text for a transport, or NULL. */
const char *ferry_document_attr(const struct ferry_document *doc, int32_t transport_id);
const char *ferry_document_buffer_attr(const struct ferry_document_buffer *buffer, int32_t transport_id);

/* Takes ownership of @text (malloc'd). ERR_NO_MEMORY (then @text is freed). */
enum ferry_status ferry_document_add_attr(struct ferry_document *doc, int32_t transport_id, char *text);
/* Append a buffer; call ferry_document_sort() after the last. Index of the new one in @index_out. */
enum ferry_status ferry_document_add_buffer(struct ferry_document *doc, uint64_t addr, uint64_t length,
                                            const char *location, uint32_t *index_out);
enum ferry_status ferry_document_add_buffer_attr(struct ferry_document *doc, uint32_t index,
                                                 int32_t transport_id, char *text);
void ferry_document_sort(struct ferry_document *doc);

#endif
