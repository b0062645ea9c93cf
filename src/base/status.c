/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, sentences and groups of the status codes, all from the one table in <ferry/status.h>.
 * Pure look-ups on any thread; the mapping to end states of tasks lives with the tasks.
 */
#include <ferry/status.h>

#include <stddef.h>

enum ferry_status_group ferry_status_group(enum ferry_status status)
{
    switch (status) {
#define STATUS_GROUP(name, value, state, text)                                                     \
    case FERRY_##name:                                                                             \
        return (enum ferry_status_group)(-(value) / 100);
        FERRY_STATUS_TABLE(STATUS_GROUP)
#undef STATUS_GROUP
    }
    return FERRY_GROUP_DEFECT;
}

const char *ferry_status_name(enum ferry_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, state, text)                                                      \
    case FERRY_##name:                                                                             \
        return #name;
        FERRY_STATUS_TABLE(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *ferry_status_text(enum ferry_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, state, text)                                                      \
    case FERRY_##name:                                                                             \
        return text;
        FERRY_STATUS_TABLE(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}
