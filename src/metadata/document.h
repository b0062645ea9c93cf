/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The segment document: what an engine publishes about itself and reads about its peers.
 *
 * The shape is the reference system's (same keys, u64 exact), so that stores can be shared: known
 * fields strict, unknown fields ignored, and kept when a document that we read is written again.
 * Pure data; no thread, no I/O. A document belongs to one thread at a time; once nobody changes it
 * any more, any number of threads may read it through the struct and the two look-ups (not print).
 *
 *   name, type "memory" | "file", machine_id, rpc_server_addr, optional rdma_server_name, detail:
 *     memory: device_attrs {}, buffers [...], devices [...], topology "text",
 *             transport_attrs [[id, text]]
 *   ferry: {"version": "0.1.0", optional transport_attrs [[id, text]]}, which other decoders
 * ignore; a buffer may have a member of this name with attributes of its own
 *
 * Attributes of transports that only ferry has, whose ids begin at FERRY_DOCUMENT_OWN_ID_MIN, are
 * in the members named ferry and nowhere else: a reader that tries the transports of a buffer in
 * their order does not meet a number that it gives another meaning.
 */
#ifndef FERRY_METADATA_DOCUMENT_H
#define FERRY_METADATA_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

struct json_object;

/*
 * Largest document read or written, bytes of JSON text; and most buffers in one. What can be
 * printed can be read.
 */
#define FERRY_DOCUMENT_TEXT_MAX    (64u << 20)
#define FERRY_DOCUMENT_BUFFERS_MAX (1u << 17)
/* Bytes of a name, a machine id or an address. */
#define FERRY_DOCUMENT_NAME_MAX 1023
/* Attributes of one segment or of one buffer. */
#define FERRY_DOCUMENT_ATTRS_MAX     64
#define FERRY_DOCUMENT_LOCATION_SIZE 64
#define FERRY_DOCUMENT_OWN_ID_MIN    (1 << 24)

/* One [transport id, attribute text] pair. */
struct ferry_document_attr {
    int32_t transport_id;
    char *text;
};

struct ferry_document_buffer {
    uint64_t addr;
    uint64_t length; /* > 0; addr + length does not wrap */
    char location[FERRY_DOCUMENT_LOCATION_SIZE];
    struct ferry_document_attr *attrs; /* no id twice */
    uint32_t attr_count;
    struct json_object *kept; /* members that print would not write by itself; NULL for none */
};

/* Strings are malloc'd and belong to the document; a new one has them all NULL. */
struct ferry_document {
    char *name;
    char *machine_id;
    char *rpc_server_addr;
    struct ferry_document_buffer *buffers; /* sorted by address, no two overlap */
    uint32_t buffer_count;
    uint32_t buffer_capacity;
    struct ferry_document_attr *attrs;
    uint32_t attr_count;
    char *ferry_version; /* NULL when the peer is no ferry */
    /* Unknown fields, written back as they were; an object with the document's nesting, or NULL. */
    struct json_object *kept;
};

/*
 * Read a memory segment's document. Buffers may come in any order; the result is sorted.
 * ERR_METADATA with the path of the wrong field in the text; ERR_UNSUPPORTED for type "file";
 * ERR_TOO_LARGE; ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_document_parse(const char *text, size_t len,
                                                     struct ferry_document **doc_out);

/*
 * JSON text, malloc'd, NUL-terminated; reads back to an equal document. Given: name, machine_id and
 * rpc_server_addr are set, the buffers are sorted. ERR_NO_MEMORY; ERR_TOO_LARGE with the number of
 * buffers and the limit in the text.
 */
FERRY_CHECKED enum ferry_status ferry_document_print(const struct ferry_document *doc,
                                                     char **text_out, size_t *len_out);

/* An empty document. ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_document_create(struct ferry_document **doc_out);
/* NULL is harmless. */
void ferry_document_destroy(struct ferry_document *doc);

/* The attribute text for a transport, or NULL. */
const char *ferry_document_attr(const struct ferry_document *doc, int32_t transport_id);
const char *ferry_document_buffer_attr(const struct ferry_document_buffer *buffer,
                                       int32_t transport_id);

/*
 * Set the attribute of a transport; an earlier one is replaced. Takes ownership of @text
 * (malloc'd), also on failure, when it is freed. ERR_NO_MEMORY, ERR_TOO_LARGE.
 */
FERRY_CHECKED enum ferry_status ferry_document_add_attr(struct ferry_document *doc,
                                                        int32_t transport_id, char *text);

/*
 * Append a buffer; call ferry_document_sort() after the last one and its attributes. Index of the
 * new one in @index_out. ERR_INVALID: empty, wraps, or the location is too long; ERR_TOO_LARGE;
 * ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_document_add_buffer(struct ferry_document *doc, uint64_t addr,
                                                          uint64_t length, const char *location,
                                                          uint32_t *index_out);
/* As ferry_document_add_attr(), for one buffer. */
FERRY_CHECKED enum ferry_status ferry_document_add_buffer_attr(struct ferry_document *doc,
                                                               uint32_t index, int32_t transport_id,
                                                               char *text);
/* By address. Indices from ferry_document_add_buffer() are void afterwards. */
void ferry_document_sort(struct ferry_document *doc);

#endif
