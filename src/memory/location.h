/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text that says where memory lives: "*" (anywhere) or "cpu:N" (NUMA node N, -1 for any).
 */
#ifndef FERRY_MEMORY_LOCATION_H
#define FERRY_MEMORY_LOCATION_H

#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_LOCATION_ANY_NODE (-1)

struct ferry_location {
    int32_t numa_node; /* OS index, or FERRY_LOCATION_ANY_NODE */
};

/*
 * Strict: no blanks, signs, leading zeros or trailing text. NULL reads as "*". Whether the node
 * exists is the caller's question. With text that quotes @text: ERR_INVALID (malformed),
 * ERR_UNSUPPORTED (a well-formed location of another kind, such as "cuda:0").
 */
FERRY_CHECKED enum ferry_status ferry_location_parse(const char *text,
                                                     struct ferry_location *location_out);

#endif
