/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the text of a memory location. Pure: any thread, no state, asks the host nothing.
 */
#include "memory/location.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

#define QUOTED_MAX "%.40s" /* how much of a wrong text is repeated */

/* A whole decimal number without sign, leading zeros or trailing text that fits int32_t. */
static bool parse_number(const char *text, int32_t *number_out)
{
    int64_t number = 0;

    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0'))
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        number = number * 10 + (*text - '0');
        if (number > INT32_MAX)
            return false;
    }
    *number_out = (int32_t)number;
    return true;
}

/* "name:rest" with a name of lower-case letters, digits and underscores. */
static bool has_kind(const char *text)
{
    size_t name_length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_");

    return name_length > 0 && text[name_length] == ':' && text[name_length + 1] != '\0';
}

enum ferry_status ferry_location_parse(const char *text, struct ferry_location *location_out)
{
    int32_t node = FERRY_LOCATION_ANY_NODE;

    if (text != NULL && strcmp(text, "*") != 0) {
        if (strncmp(text, "cpu:", 4) != 0) {
            if (has_kind(text)) {
                return ferry_fail(FERRY_ERR_UNSUPPORTED,
                                  "memory location \"" QUOTED_MAX
                                  "\" is not ordinary memory of this host; expected \"*\" or "
                                  "\"cpu:N\"",
                                  text);
            }
            return ferry_fail(FERRY_ERR_INVALID,
                              "memory location \"" QUOTED_MAX
                              "\" is malformed; expected \"*\" or \"cpu:N\"",
                              text);
        }
        if (strcmp(text + 4, "-1") != 0 && !parse_number(text + 4, &node)) {
            return ferry_fail(FERRY_ERR_INVALID,
                              "memory location \"" QUOTED_MAX
                              "\" has no NUMA node number; expected \"cpu:N\" with N = 0, 1, ... "
                              "or -1 for any",
                              text);
        }
    }
    location_out->numa_node = node;
    return FERRY_OK;
}
