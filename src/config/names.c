/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of settings: finding them, the sections above them, published transports that this build
 * does not have, and the known name nearest to a misspelt one. Pure; any thread; no allocation.
 */
#include "config/setting.h"

#include <string.h>

#include "base/error.h"

#define TRANSPORTS "transports"

/*
 * Transports with a section in published configuration files, and our own. One without settings in
 * this build may be named, but not enabled.
 */
static const char *const published_transports[] = {
    "ascend", "ascend_direct", "fabric", "fault", "file",   "gds",
    "hp_tcp", "io_uring",      "loop",   "mnnvl", "mpcomm", "nvlink",
    "rdma",   "sunrise_link",  "shm",    "tcp",   "tpu",    "ub",
};

struct ferry_setting *ferry_config_find(const struct ferry_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++) {
        if (strcmp(config->settings[i].name, name) == 0)
            return &config->settings[i];
    }
    return NULL;
}

/* True if @name is @section or lies below it. */
static bool within(const char *name, const char *section, size_t section_len)
{
    return strncmp(name, section, section_len) == 0 &&
           (name[section_len] == '\0' || name[section_len] == '.');
}

bool ferry_config_is_section(const struct ferry_config *config, const char *name)
{
    size_t len = strlen(name);

    if (strcmp(name, TRANSPORTS) == 0)
        return true;
    for (size_t i = 0; i < config->count; i++) {
        if (within(config->settings[i].name, name, len) && config->settings[i].name[len] == '.')
            return true;
    }
    return false;
}

bool ferry_config_below_placeholder(const struct ferry_config *config, const char *name)
{
    for (size_t i = 0; i < config->count; i++) {
        const struct ferry_setting *setting = &config->settings[i];
        size_t len = strlen(setting->name);

        if (setting->option->type == FERRY_OPTION_PLACEHOLDER && within(name, setting->name, len) &&
            name[len] == '.')
            return true;
    }
    return false;
}

size_t ferry_config_unbuilt_len(const struct ferry_config *config, const char *name)
{
    const size_t above = sizeof(TRANSPORTS); /* with the dot */

    if (strncmp(name, TRANSPORTS ".", above) != 0)
        return 0;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(published_transports); i++) {
        size_t len = strlen(published_transports[i]);
        char section[64];

        if (!within(name + above, published_transports[i], len))
            continue;
        memcpy(section, name, above + len);
        section[above + len] = '\0';
        return ferry_config_is_section(config, section) ? 0 : above + len;
    }
    return 0;
}

bool ferry_config_normalize(const char *name, char *buf)
{
    size_t len = strlen(name);

    if (len > FERRY_CONFIG_NAME_MAX)
        return false;
    memcpy(buf, name, len + 1);
    for (char *slash = strchr(buf, '/'); slash != NULL; slash = strchr(slash, '/'))
        *slash = '.';
    return true;
}

/* Edits that turn one name into the other, both at most FERRY_CONFIG_NAME_MAX + 16 long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[FERRY_CONFIG_NAME_MAX + 32];
    size_t b_len = strlen(b);

    for (size_t j = 0; j <= b_len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[b_len];
}

const char *ferry_config_nearest(const struct ferry_config *config, const char *name,
                                 bool environment)
{
    char bounded[FERRY_CONFIG_NAME_MAX + 16];
    const char *nearest = "";
    size_t nearest_distance = SIZE_MAX;

    strncpy(bounded, name, sizeof(bounded) - 1);
    bounded[sizeof(bounded) - 1] = '\0';
    for (size_t i = 0; i < config->count; i++) {
        const struct ferry_setting *setting = &config->settings[i];
        const char *known = environment ? setting->environment : setting->name;

        if (setting->option->type == FERRY_OPTION_PLACEHOLDER)
            continue; /* nobody means a setting without effect */
        size_t distance = edit_distance(bounded, known);
        const char *leaf = strrchr(setting->name, '.');

        /* Whoever left out the section knows the last part. */
        if (!environment && leaf != NULL && strchr(bounded, '.') == NULL) {
            size_t leaf_distance = edit_distance(bounded, leaf + 1) + 1;

            distance = leaf_distance < distance ? leaf_distance : distance;
        }
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = known;
        }
    }
    return nearest;
}

enum ferry_status ferry_config_fail_unknown(const struct ferry_config *config, const char *where,
                                            const char *name)
{
    const char *nearest = ferry_config_nearest(config, name, false);

    if (nearest[0] == '\0')
        return ferry_fail(FERRY_ERR_CONFIG, "%.300s: unknown setting", where);
    return ferry_fail(FERRY_ERR_CONFIG, "%.300s: unknown setting; the nearest known one is %s",
                      where, nearest);
}

enum ferry_status ferry_config_fail_unbuilt(const char *where, const char *name)
{
    const char *transport = name + sizeof(TRANSPORTS);

    return ferry_fail(FERRY_ERR_CONFIG,
                      "%.300s: this build has no transport %.*s; expected \"enable\": false", where,
                      (int)strcspn(transport, "."), transport);
}
