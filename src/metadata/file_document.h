/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The document of a file segment ("nvmeof/NAME" in a store): backing files end to end, and for each
 * the path under which every host has it.
 *
 * The shape is the reference system's, so that its scripts and ferry share one store:
 *
 *   {"server_name": "host", "protocol": "nvmeof", "buffers": [
 *      {"length": bytes, "file_path": "path at registration", "local_path_map": {"host": "path"}}]}
 *
 * Readers of the reference take the name from "name", its scripts write "server_name": both are
 * read. A buffer may have an "offset", where its bytes begin in the file (a part of a raw device).
 * Known fields are strict, unknown ones are kept and written again.
 *
 * Pure data; no thread, no I/O. A document belongs to one thread at a time; once nobody changes it
 * any more, any number of threads may read it (not print).
 */
#ifndef FERRY_METADATA_FILE_DOCUMENT_H
#define FERRY_METADATA_FILE_DOCUMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

struct json_object;
struct ferry_host_names;

/* What the name of a file segment begins with, in stores and in ferry_segment_open(). */
#define FERRY_FILE_SEGMENT_PREFIX "nvmeof/"

/* Largest document read or written, bytes of JSON text; what can be printed can be read. */
#define FERRY_FILE_DOCUMENT_TEXT_MAX (4u << 20)
/* Backing files of one segment, and hosts of one backing file. */
#define FERRY_FILE_DOCUMENT_FILES_MAX (1u << 15)
#define FERRY_FILE_DOCUMENT_HOSTS_MAX 4096
/* Bytes of a path and of a host's name. */
#define FERRY_FILE_PATH_MAX 4095
#define FERRY_FILE_HOST_MAX 255
/* Bytes of a whole segment, and where a file may end: what off_t holds. */
#define FERRY_FILE_LENGTH_MAX ((uint64_t)INT64_MAX)

/* Where one host has a backing file. */
struct ferry_file_place {
    char *host;
    char *path;
};

/* One backing file: bytes [start, start + length) of the segment. */
struct ferry_file_piece {
    uint64_t start;       /* the sum of the lengths before it */
    uint64_t length;      /* 0 is allowed: such a piece holds no byte of the segment */
    uint64_t file_offset; /* of its first byte in the file; 0 unless the document says otherwise */
    char *file_path;      /* as it was registered, on the registering host; names the piece */
    struct ferry_file_place *places; /* in the document's order, no host twice */
    uint32_t place_count;
    struct json_object *kept; /* unknown members, or NULL */
};

/* Strings are malloc'd and belong to the document. */
struct ferry_file_document {
    char *server_name; /* the host that registered it; "" if the document does not say */
    struct ferry_file_piece *files; /* in the segment's order */
    uint32_t file_count;
    uint64_t length; /* of the segment: the sum of all */
    /*
     * Changes when the document changes: a digest of its text when it was parsed. Whoever has the
     * store's own revision (ferry_store_request.revision, not 0) puts that here instead, because it
     * changes also when a document is written again unchanged, after a file was replaced.
     */
    uint64_t revision;
    struct json_object *kept;
    bool server_name_absent; /* the document has no "server_name"; print adds none */
};

/* ERR_METADATA with the path of the wrong field in the text; ERR_TOO_LARGE; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_file_document_parse(const char *text, size_t len,
                                                          struct ferry_file_document **doc_out);
/*
 * JSON text, malloc'd, NUL-terminated; reads back to an equal document. ERR_NO_MEMORY;
 * ERR_TOO_LARGE with the number of files and the limit in the text.
 */
FERRY_CHECKED enum ferry_status ferry_file_document_print(const struct ferry_file_document *doc,
                                                          char **text_out, size_t *len_out);

/* Without files. ERR_INVALID: not the name of a host; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_file_document_create(const char *server_name,
                                                           struct ferry_file_document **doc_out);
/* NULL is harmless. */
void ferry_file_document_destroy(struct ferry_file_document *doc);

/*
 * Append a backing file, without places. ERR_INVALID: no path; ERR_TOO_LARGE: too many files, or
 * the segment would be longer than FERRY_FILE_LENGTH_MAX; ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_file_document_add(struct ferry_file_document *doc,
                                                        const char *file_path, uint64_t length,
                                                        uint32_t *index_out);
/* Set the length of a file; those behind it move. Errors as above. */
FERRY_CHECKED enum ferry_status ferry_file_document_resize(struct ferry_file_document *doc,
                                                           uint32_t index, uint64_t length);
/*
 * Say where a host has a file; an earlier path of that host is replaced. ERR_INVALID: no name of a
 * host, or no absolute path; ERR_TOO_LARGE: too many hosts; ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_file_document_place(struct ferry_file_document *doc,
                                                          uint32_t index, const char *host,
                                                          const char *path);
/*
 * Append a place as a document has it, relative paths included. Given: that host has none yet, and
 * its name is one. ERR_TOO_LARGE, ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_file_piece_add_place(struct ferry_file_piece *piece,
                                                           const char *host, const char *path);
/* True if the host had a path. */
bool ferry_file_document_displace(struct ferry_file_document *doc, uint32_t index,
                                  const char *host);

/*
 * The path under which this host has a file: the first of its names that is in the map; else the
 * path of the registration if this host made it; else NULL. It may be relative or wrong: whatever
 * the document says.
 */
const char *ferry_file_document_path(const struct ferry_file_document *doc, uint32_t index,
                                     const struct ferry_host_names *host);
/*
 * The same, as an error if there is none: ERR_NOT_MAPPED with @segment, the file, this host's name
 * and the hosts that have it; ERR_METADATA for a path that is not absolute.
 */
FERRY_CHECKED enum ferry_status ferry_file_document_resolve(const struct ferry_file_document *doc,
                                                            uint32_t index,
                                                            const struct ferry_host_names *host,
                                                            const char *segment,
                                                            const char **path_out);
/* The piece that holds byte @offset, by bisection. Given: offset < doc->length. */
uint32_t ferry_file_document_at(const struct ferry_file_document *doc, uint64_t offset);

#endif
