/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of `ferry segment` that are about file segments. Each takes its words behind the verb,
 * prints what it did, and returns an exit status. One thread.
 */
#ifndef FERRY_TOOLS_SEGMENT_FILES_H
#define FERRY_TOOLS_SEGMENT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/ferry.h>

#include "common.h"

struct ferry_segment_arguments {
    struct ferry_cli cli;
    const struct ferry_config *config; /* of all that the command line says */
    const char *host;                  /* --host, or NULL */
    uint64_t size;                     /* --size, or 0 */
    bool sparse;
    bool extend;
    bool memory;
    bool purge;
    bool hidden;
    bool quick;
    const char **words; /* the verb first */
    size_t word_count;
};

/* Given: as many words as the verb takes. */
typedef int ferry_segment_verb_fn(const struct ferry_segment_arguments *arguments,
                                  struct ferry_catalog *catalog);

int ferry_segment_list(const struct ferry_segment_arguments *arguments,
                       struct ferry_catalog *catalog);
int ferry_segment_register(const struct ferry_segment_arguments *arguments,
                           struct ferry_catalog *catalog);
int ferry_segment_map(const struct ferry_segment_arguments *arguments,
                      struct ferry_catalog *catalog);
int ferry_segment_unmap(const struct ferry_segment_arguments *arguments,
                        struct ferry_catalog *catalog);
int ferry_segment_resize(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog);
int ferry_segment_rm(const struct ferry_segment_arguments *arguments,
                     struct ferry_catalog *catalog);
int ferry_segment_verify(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog);
/* Makes files; asks no store, @catalog is NULL. */
int ferry_segment_create(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog);

int ferry_segment_show_files(const struct ferry_segment_arguments *arguments,
                             struct ferry_catalog *catalog);

/* Absolute, malloc'd: a relative path is one of the working directory. NULL after a message. */
char *ferry_segment_absolute(const char *path);

/* Paths of a registration: folders are their files. */
struct ferry_segment_paths {
    char **list;
    size_t count;
};

/* False after a message. Free in any case. */
bool ferry_segment_expand(const struct ferry_segment_arguments *arguments, size_t first_word,
                          struct ferry_segment_paths *paths);
void ferry_segment_paths_free(struct ferry_segment_paths *paths);

/* Make an existing file at least so long, with blocks behind the new bytes. False after a message.
 */
bool ferry_segment_grow(const char *path, uint64_t size);

#endif
