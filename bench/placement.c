/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the lists that the kernel keeps of each process.
 */
#include "placement.h"

#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The rest of a line "KEY:\tVALUE", without its end; false if the line is another one. */
static bool take_line(const char *line, const char *key, char *value, size_t size)
{
    size_t len = strlen(key);

    if (strncmp(line, key, len) != 0 || line[len] != ':')
        return false;
    line += len + 1;
    line += strspn(line, " \t");
    snprintf(value, size, "%.*s", (int)strcspn(line, "\n"), line);
    return true;
}

static struct json_object *make(const char *cpus, const char *numa)
{
    struct json_object *object = json_object_new_object();

    json_object_object_add(object, "cpus", json_object_new_string(cpus));
    json_object_object_add(object, "numa", json_object_new_string(numa));
    return object;
}

static struct json_object *of_process(const char *path)
{
    FILE *file = fopen(path, "re");
    char line[1024];
    char cpus[256] = "";
    char numa[256] = "";

    if (file == NULL)
        return NULL;
    while (fgets(line, sizeof(line), file) != NULL) {
        if (!take_line(line, "Cpus_allowed_list", cpus, sizeof(cpus)))
            take_line(line, "Mems_allowed_list", numa, sizeof(numa));
    }
    fclose(file);
    return cpus[0] != '\0' ? make(cpus, numa) : NULL;
}

struct json_object *ferry_bench_placement_own(void)
{
    return of_process("/proc/self/status");
}

struct json_object *ferry_bench_placement_target(pid_t pid, struct json_object *report)
{
    struct json_object *cpus = NULL;
    struct json_object *numa = NULL;
    char path[64];

    if (json_object_object_get_ex(report, "cpus", &cpus) &&
        json_object_object_get_ex(report, "numa", &numa))
        return make(json_object_get_string(cpus), json_object_get_string(numa));
    if (pid == 0)
        return NULL;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return of_process(path);
}
