/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ground on which every way to read and write files meets the same tests: an engine, a store in
 * memory that describes segments of files, a folder with files, and fenced memory.
 *
 * Position @p of a segment made by file_segment() holds byte @p of the pattern FILE_SEED, whatever
 * file it lies in; files are checked with ordinary calls. All functions are for the test's thread.
 */
#ifndef FERRY_TESTS_CONTRACT_FILE_RIG_H
#define FERRY_TESTS_CONTRACT_FILE_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/ferry.h>

#include "support/pattern.h"
#include "support/test.h"

#define FILE_SEED      11u
#define FILE_FILES_MAX 1100u
#define FILE_LOCAL     (4u << 20) /* bytes of memory */
#define FILE_BATCH     64u

struct test_store;

struct file_kind {
    const char *name; /* argument of the test program */
    const char *const *settings;
    const char *path; /* the counter of the report that grows with aligned transfers */
    bool cufile;      /* through the library that FERRY_TEST_CUFILE names */
};

struct file_rig {
    const struct file_kind *kind;
    struct test_store *store;
    struct ferry_engine *engine;
    char folder[256];
    struct fenced local;
    uint64_t batch; /* FILE_BATCH slots */
    uint64_t segment;
    uint32_t file_count;
    uint64_t lengths[FILE_FILES_MAX];
};

const struct file_kind *file_find_kind(const char *name);
/* Exit with 77 and a line of reason if this host lacks what the kind needs. */
void file_skip_if_missing(const struct file_kind *kind);

/* @settings: pairs of name and value, NULL-terminated, on top of the kind's; may be NULL. */
void file_rig_open(struct file_rig *rig, const struct file_kind *kind, const char *const *settings);
/* Also checks the fences and removes the folder. */
void file_rig_close(struct file_rig *rig);
/* The same, with another folder (which stays). */
void file_rig_open_in(struct file_rig *rig, const struct file_kind *kind,
                      const char *const *settings, const char *folder);

/* A new engine on what is there, after the first was closed; the segment is opened again. */
void file_rig_again(struct file_rig *rig, const char *const *settings);

/* "<folder>/<index>". */
const char *file_path(const struct file_rig *rig, uint32_t index, char *buf /* [320] */);
/* Files of these lengths with the pattern in them, described in the store and opened. */
void file_segment(struct file_rig *rig, const uint64_t *lengths, uint32_t count);
/* Describe and open what is there: no file is made. */
void file_describe(struct file_rig *rig, const char *host);
/* Write a file anew, in place. */
void file_fill(const struct file_rig *rig, uint32_t index, uint64_t seed);

/* Bytes [offset, +length) of the segment, read from the files with ordinary calls. */
void file_read_back(const struct file_rig *rig, uint64_t offset, unsigned char *out,
                    uint64_t length);
/* They hold the pattern of a seed from a position on. */
void file_expect(const struct file_rig *rig, uint64_t offset, uint64_t length, uint64_t seed,
                 uint64_t from);
/* No file has another length than it was made with. */
void file_expect_lengths(const struct file_rig *rig);

struct ferry_request file_request(const struct file_rig *rig, enum ferry_opcode opcode,
                                  uint64_t local_offset, uint64_t offset, uint64_t length);
/* Run one in the rig's batch; how it ended in @status_out, and what is said about it in @text. */
enum ferry_status file_run(struct file_rig *rig, const struct ferry_request *request,
                           struct ferry_task_status *status_out, char *text /* [512] or NULL */);

/* A number of the transport's report, such as "opens" or "paths.direct.bytes". */
uint64_t file_report(const struct file_rig *rig, const char *key);
/* The same for what is true or false. */
bool file_report_flag(const struct file_rig *rig, const char *key);

#endif
