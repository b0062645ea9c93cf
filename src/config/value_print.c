/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words for people about types and values of settings. Pure; any thread; no allocation.
 */
#include "config/setting.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"

const char *ferry_option_type_name(enum ferry_option_type type)
{
    switch (type) {
    case FERRY_OPTION_BOOL:
        return "bool";
    case FERRY_OPTION_UINT:
        return "uint";
    case FERRY_OPTION_SIZE:
        return "size";
    case FERRY_OPTION_AUTO:
        return "auto or uint";
    case FERRY_OPTION_STRING:
        return "string";
    case FERRY_OPTION_CHOICE:
        return "choice";
    case FERRY_OPTION_LIST:
        return "string list";
    case FERRY_OPTION_SECRET:
        return "secret";
    case FERRY_OPTION_PLACEHOLDER:
        return "ignored";
    }
    return "unknown";
}

static void expected_choice(const struct ferry_option *option, char *buf)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; option->choices[i] != NULL; i++) {
        int len = snprintf(buf + used, FERRY_CONFIG_EXPECTED_SIZE - used, "%s%s",
                           i > 0 ? " | " : "", option->choices[i]);

        if (len < 0 || (size_t)len >= FERRY_CONFIG_EXPECTED_SIZE - used)
            return;
        used += (size_t)len;
    }
}

void ferry_option_expected(const struct ferry_option *option, char *buf)
{
    const size_t size = FERRY_CONFIG_EXPECTED_SIZE;
    char min[FERRY_SIZE_TEXT_SIZE], max[FERRY_SIZE_TEXT_SIZE];

    switch (option->type) {
    case FERRY_OPTION_BOOL:
        snprintf(buf, size, "true | false");
        return;
    case FERRY_OPTION_UINT:
        snprintf(buf, size, "%" PRIu64 "..%" PRIu64, option->min, option->max);
        return;
    case FERRY_OPTION_AUTO:
        snprintf(buf, size, "auto | %" PRIu64 "..%" PRIu64, option->min, option->max);
        return;
    case FERRY_OPTION_SIZE:
        ferry_size_format(option->min, min, sizeof(min));
        ferry_size_format(option->max, max, sizeof(max));
        snprintf(buf, size, "%s..%s, in bytes or as in 64MiB", min, max);
        return;
    case FERRY_OPTION_CHOICE:
        expected_choice(option, buf);
        return;
    case FERRY_OPTION_LIST:
        snprintf(buf, size, "a list of at most %" PRIu64 " texts", option->max);
        return;
    case FERRY_OPTION_STRING:
    case FERRY_OPTION_SECRET:
        snprintf(buf, size, "text of at most %" PRIu64 " bytes", option->max);
        return;
    case FERRY_OPTION_PLACEHOLDER:
        snprintf(buf, size, "anything");
        return;
    }
    buf[0] = '\0';
}
