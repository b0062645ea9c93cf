/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The catalog: what a metadata store knows about file segments, read and changed without an engine.
 *
 * A file segment is one address space made of backing files end to end; for each of them the store
 * has a map from host to path. Changes are made by comparing where the store can (etcd), so that
 * hosts which change one segment at the same time all survive; see ferry_catalog_compares().
 * Segments are named with or without "nvmeof/" in front. Example: examples/catalog.c.
 */
#ifndef FERRY_CATALOG_H
#define FERRY_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ferry_config;
struct ferry_catalog;

/** What ferry_catalog_list() lists. */
enum ferry_catalog_kind {
    FERRY_CATALOG_FILES = 0,
    FERRY_CATALOG_MEMORY = 1,
};

/** How closely ferry_catalog_describe() looks at this host's files. */
enum ferry_catalog_depth {
    FERRY_CATALOG_DOCUMENT = 0, /* not at all: what the store says */
    FERRY_CATALOG_LOOK = 1,     /* each is examined, opened and closed */
    FERRY_CATALOG_READ = 2,     /* and read to its end */
};

/**
 * ferry_catalog_open() - reach the metadata store of a configuration.
 * @config:      metadata_type, metadata_servers and the other metadata_ settings, and host_name;
 *               NULL means the environment. Copied.
 * @catalog_out: the catalog.
 *
 * Nothing is asked yet.
 *
 * Ownership: close with ferry_catalog_close().
 * Threads: any thread.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_CONFIG (also for a store without entries: p2p),
 * FERRY_ERR_IO, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_open(const struct ferry_config *config,
                                                       struct ferry_catalog **catalog_out);

/**
 * ferry_catalog_close() - let go of the store.
 * @catalog: NULL is harmless.
 *
 * Ownership: @catalog is gone.
 * Threads: any thread, when no call on @catalog runs any more. Blocks, bounded.
 * Return: nothing.
 */
FERRY_API void ferry_catalog_close(struct ferry_catalog *catalog);

/**
 * ferry_catalog_compares() - whether two who change one segment at once both survive.
 * @catalog: an open catalog.
 *
 * With a store that does not compare (http) the later of two changes replaces the earlier one.
 *
 * Ownership: none.
 * Threads: any thread.
 * Return: true if the store compares.
 */
FERRY_API bool ferry_catalog_compares(const struct ferry_catalog *catalog);

/**
 * ferry_catalog_list() - the names in the store.
 * @catalog:     an open catalog.
 * @kind:        file segments, or the memory segments of engines.
 * @deadline_ns: absolute CLOCK_MONOTONIC nanoseconds, or FERRY_NO_DEADLINE (then
 *               metadata_timeout_ms bounds each request).
 * @json_out:    an array of names, sorted.
 *
 * Ownership: the text is the caller's, to be given to ferry_text_free().
 * Threads: any thread. Blocks.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_UNSUPPORTED (the store cannot list),
 * FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_list(struct ferry_catalog *catalog,
                                                       enum ferry_catalog_kind kind,
                                                       uint64_t deadline_ns, char **json_out);

/**
 * ferry_catalog_describe() - a file segment as the store has it, and how its files are on this
 * host.
 * @catalog:     an open catalog.
 * @segment:     name.
 * @depth:       how closely this host's files are looked at.
 * @deadline_ns: as in ferry_catalog_list(); for the store, not for reading files.
 * @json_out:    one object: name, revision, length, registered_by, host, problems (how many files
 *               have one), and files: an array of index, file_path, start, length, offset, paths
 *               (host to path), path (this host's, or null), and, with a depth above DOCUMENT:
 * kind, size, target (of a symbolic link), readable, writable, direct (true if a direct read was
 * seen to work), mount (point, type, source), note and problem (text, or absent).
 *
 * Ownership: the text is the caller's, to be given to ferry_text_free().
 * Threads: any thread. Blocks.
 * Return: FERRY_OK (also if files have problems), FERRY_ERR_INVALID, FERRY_ERR_NOT_FOUND,
 * FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_describe(struct ferry_catalog *catalog,
                                                           const char *segment,
                                                           enum ferry_catalog_depth depth,
                                                           uint64_t deadline_ns, char **json_out);

/**
 * ferry_catalog_register() - make a file segment known.
 * @catalog:     an open catalog.
 * @segment:     name: 1 to 240 bytes without '/', control characters, "." and "..".
 * @files:       absolute paths of regular files or block devices on this host, in the order of the
 *               segment; none twice, none empty.
 * @file_count:  how many; at least 1.
 * @deadline_ns: as in ferry_catalog_list().
 *
 * The lengths are the files' lengths now. This host is put into each path map under its name.
 *
 * Ownership: nothing is kept.
 * Threads: any thread. Blocks.
 * Return:
 *   FERRY_OK             known now.
 *   FERRY_ERR_INVALID    a name or a path; a file that is no file, is empty or occurs twice.
 *   FERRY_ERR_NOT_FOUND  no such file.
 *   FERRY_ERR_EXISTS     the segment is known already; the text says by whom and which revision.
 *   FERRY_ERR_IO         a file cannot be examined, with the system's reason.
 *   FERRY_ERR_TOO_LARGE, FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT,
 *   FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_register(struct ferry_catalog *catalog,
                                                           const char *segment,
                                                           const char *const *files,
                                                           size_t file_count, uint64_t deadline_ns);

/**
 * ferry_catalog_map() - say where this host has one of a segment's files.
 * @catalog:     an open catalog.
 * @segment:     name.
 * @file:        the path at registration, or "#N" for the file with index N.
 * @path:        absolute path on this host: a regular file or block device that can be read and is
 *               at least as long as the segment's file.
 * @deadline_ns: as in ferry_catalog_list().
 *
 * An earlier path of this host is replaced.
 *
 * Ownership: nothing is kept.
 * Threads: any thread. Blocks.
 * Return:
 *   FERRY_OK             mapped.
 *   FERRY_ERR_INVALID    a name or a path; @file names several files (use "#N"); @path is no file.
 *   FERRY_ERR_NOT_FOUND  no such segment, no such file in it, or nothing at @path.
 *   FERRY_ERR_RANGE      @path is shorter; the text has both lengths.
 *   FERRY_ERR_IO         it cannot be examined or opened, with the system's reason.
 *   FERRY_ERR_TOO_LARGE, FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT,
 *   FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_map(struct ferry_catalog *catalog,
                                                      const char *segment, const char *file,
                                                      const char *path, uint64_t deadline_ns);

/**
 * ferry_catalog_unmap() - take this host out of a segment's path maps.
 * @catalog:     an open catalog.
 * @segment:     name.
 * @file:        as in ferry_catalog_map(), or NULL for all files.
 * @deadline_ns: as in ferry_catalog_list().
 *
 * Engines that have the file open keep it until they read the segment's description again.
 *
 * Ownership: nothing is kept.
 * Threads: any thread. Blocks.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_NOT_FOUND, FERRY_ERR_NOT_MAPPED (this host is in
 * none of the maps), FERRY_ERR_TOO_LARGE, FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT,
 * FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_unmap(struct ferry_catalog *catalog,
                                                        const char *segment, const char *file,
                                                        uint64_t deadline_ns);

/**
 * ferry_catalog_resize() - let the segment's length follow a file of this host.
 * @catalog:     an open catalog.
 * @segment:     name.
 * @file:        as in ferry_catalog_map().
 * @extend:      whether the segment may become longer. The bytes behind that file move to higher
 *               offsets, for everybody.
 * @deadline_ns: as in ferry_catalog_list().
 *
 * A file that is shorter than the segment says is refused: other hosts read there.
 *
 * Ownership: nothing is kept.
 * Threads: any thread. Blocks.
 * Return: FERRY_OK (also if the length is as it was), FERRY_ERR_INVALID (longer, and not @extend),
 * FERRY_ERR_NOT_FOUND, FERRY_ERR_NOT_MAPPED, FERRY_ERR_RANGE (shorter), FERRY_ERR_IO,
 * FERRY_ERR_TOO_LARGE, FERRY_ERR_METADATA, FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT,
 * FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_resize(struct ferry_catalog *catalog,
                                                         const char *segment, const char *file,
                                                         bool extend, uint64_t deadline_ns);

/**
 * ferry_catalog_remove() - forget a file segment. Its files stay.
 * @catalog:     an open catalog.
 * @segment:     name.
 * @deadline_ns: as in ferry_catalog_list().
 *
 * Ownership: none.
 * Threads: any thread. Blocks.
 * Return: FERRY_OK, FERRY_ERR_INVALID, FERRY_ERR_NOT_FOUND, FERRY_ERR_METADATA,
 * FERRY_ERR_TIMED_OUT, FERRY_ERR_LIMIT, FERRY_ERR_NO_MEMORY, FERRY_ERR_FORKED.
 */
FERRY_API_CHECKED enum ferry_status ferry_catalog_remove(struct ferry_catalog *catalog,
                                                         const char *segment, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
