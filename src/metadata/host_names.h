/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of this host in the path maps of file segments.
 *
 * The option host_name lists them, separated by commas; the first is the one that ferry writes, the
 * others are looked up as well. Empty means the system's host name. A name with a port
 * ("node7:1234", as engines of the reference call themselves) is looked up as it stands and then
 * without the port.
 */
#ifndef FERRY_METADATA_HOST_NAMES_H
#define FERRY_METADATA_HOST_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "metadata/file_document.h"

/* Names in the option; each may count twice, with and without its port. */
#define FERRY_HOST_NAMES_MAX 8

struct ferry_host_names {
    char names[2 * FERRY_HOST_NAMES_MAX][FERRY_FILE_HOST_MAX + 1]; /* in the order of looking */
    uint32_t count;
};

/* @list: the option's value. ERR_CONFIG with the name that is wrong; ERR_IO: no host name. */
FERRY_CHECKED enum ferry_status ferry_host_names_parse(const char *list,
                                                       struct ferry_host_names *names_out);
/* The one that is written. */
const char *ferry_host_names_first(const struct ferry_host_names *names);
bool ferry_host_names_has(const struct ferry_host_names *names, const char *host);
/* True for 1..255 bytes of UTF-8 without control characters and commas. */
bool ferry_host_name_ok(const char *host);

#endif
