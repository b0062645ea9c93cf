/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands share: the options for settings, opening an engine with them, messages, JSON
 * and strict numbers. One thread.
 */
#ifndef FERRY_TOOLS_COMMON_H
#define FERRY_TOOLS_COMMON_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/ferry.h>

#include "command.h"

struct json_object;

/* Longest list of --set. */
#define FERRY_CLI_SETS_MAX 256

/* -c FILE, --set NAME=VALUE, --json; filled by ferry_cli_argp, a child of each subcommand's parser.
 */
struct ferry_cli {
    const char *file;
    const char *sets[FERRY_CLI_SETS_MAX];
    size_t set_count;
    bool json;
};

extern const struct argp ferry_cli_argp;

/* A child list for `struct argp`; the parser sets state->child_inputs[0] to its struct ferry_cli.
 */
extern const struct argp_child ferry_cli_children[];

/*
 * Environment, then the file, then --set. Says what is wrong on standard error and returns NULL.
 * Free with ferry_config_destroy().
 */
struct ferry_config *ferry_cli_config(const struct ferry_cli *cli);

/* Set one setting as the command line does; false after a message. */
bool ferry_cli_set(struct ferry_config *config, const char *name, const char *value);

/* Open an engine; on failure a message, NULL, and the exit status in *exit_out. */
struct ferry_engine *ferry_cli_open(const struct ferry_config *config, int *exit_out);

/* Close it; the exit status to end with, which is @exit_status unless that is success. */
int ferry_cli_close(struct ferry_engine *engine, int exit_status);

/* "ferry: <message>" on standard error, one line. */
void ferry_cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Say "<what>: <last error text>"; returns the exit status for the code. */
int ferry_cli_fail(enum ferry_status status, const char *what);

/* Print as one line, flush, and drop the reference. */
void ferry_cli_print_json(struct json_object *value);

/* The text of ferry_engine_report() and its kin as a tree, or NULL; frees @text. */
struct json_object *ferry_cli_parse_json(char *text);

/* A number with the digits that mean something; not for infinity. */
struct json_object *ferry_cli_json_number(double value);

/* Print a tree for people: one "name: value" a line, indented. */
void ferry_cli_print_tree(struct json_object *value, int indent);

/* CLOCK_MONOTONIC, and a deadline so many milliseconds from now. */
uint64_t ferry_cli_now_ns(void);
uint64_t ferry_cli_deadline_ms(uint64_t timeout_ms);

/* "local", "read-only", "read-write". */
const char *ferry_cli_permission_name(enum ferry_permission permission);

/*
 * All buffers of a segment, malloc'd, ordered by address. FERRY_OK, or what ferry_segment_buffers()
 * says.
 */
enum ferry_status ferry_cli_buffers(struct ferry_engine *engine, uint64_t segment,
                                    struct ferry_segment_buffer **buffers_out, size_t *count_out);

/* [{"addr", "length", "location", "permission"}, ...] */
struct json_object *ferry_cli_buffers_json(const struct ferry_segment_buffer *buffers,
                                           size_t count);

/* A table with a heading. */
void ferry_cli_print_buffers(const struct ferry_segment_buffer *buffers, size_t count);

#endif
