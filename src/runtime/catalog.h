/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the catalog share: catalog.c reaches the store and changes entries,
 * catalog_change.c says what the changes are, catalog_describe.c tells what is there. Private to
 * the runtime; any thread.
 */
#ifndef FERRY_RUNTIME_CATALOG_H
#define FERRY_RUNTIME_CATALOG_H

#include <ferry/catalog.h>

#include "metadata/file_document.h"
#include "metadata/host_names.h"
#include "metadata/store.h"

struct ferry_catalog {
    struct ferry_config *config;
    struct ferry_http_client *http;
    struct ferry_store *store;
    struct ferry_host_names host;
};

#define FERRY_CATALOG_NAME_SIZE (FERRY_STORE_NAME_MAX + 1)

/* "nvmeof/NAME" of a segment named with or without the prefix. ERR_INVALID. */
FERRY_CHECKED enum ferry_status ferry_catalog_name(const char *segment,
                                                   char name_out[FERRY_CATALOG_NAME_SIZE]);
/* Whole, for a caller's deadline. */
uint64_t ferry_catalog_deadline(uint64_t deadline_ns);
/* ERR_NOT_FOUND and whatever stores and documents say. */
FERRY_CHECKED enum ferry_status ferry_catalog_read(struct ferry_catalog *catalog, const char *name,
                                                   uint64_t deadline_ns,
                                                   struct ferry_file_document **doc_out);

/* One change of a document; it may be made again on a newer one. Not FERRY_OK: no change. */
typedef enum ferry_status ferry_catalog_change_fn(struct ferry_catalog *catalog,
                                                  struct ferry_file_document *doc, void *arg);

/*
 * Read, change, write if nobody else has written meanwhile; else again with what is there. Bounded
 * by the deadline alone: of n who change one segment at once somebody always gets through.
 */
FERRY_CHECKED enum ferry_status ferry_catalog_update(struct ferry_catalog *catalog,
                                                     const char *segment, uint64_t deadline_ns,
                                                     ferry_catalog_change_fn *change, void *arg);

/* The piece that a caller means. ERR_NOT_FOUND; ERR_INVALID: several. */
FERRY_CHECKED enum ferry_status ferry_catalog_find(const struct ferry_file_document *doc,
                                                   const char *file, uint32_t *index_out);

#endif
