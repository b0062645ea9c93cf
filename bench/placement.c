/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the lists that the kernel keeps of each process.
 */
#include "placement.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "meter.h"

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

/* Whether a thread of a report is one of a process of this host, by its number and its name. */
static bool is_thread_of(uint64_t pid, struct json_object *thread)
{
    struct json_object *name = NULL;
    char path[96];
    char line[64] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%" PRIu64 "/task/%" PRIu64 "/comm", pid,
             ferry_bench_member_u64(thread, "tid", 0));
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    if (fgets(line, sizeof(line), file) == NULL)
        line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return json_object_object_get_ex(thread, "name", &name) &&
           strcmp(json_object_get_string(name), line) == 0;
}

struct json_object *ferry_bench_placement_target(struct json_object *report)
{
    uint64_t pid = ferry_bench_member_u64(report, "pid", 0);
    struct json_object *threads = NULL;
    char path[64];

    json_object_object_get_ex(report, "threads", &threads);
    if (threads == NULL || json_object_array_length(threads) == 0)
        return NULL;
    /* The number alone could be another process's, on another host. */
    for (size_t i = 0; i < json_object_array_length(threads); i++) {
        if (!is_thread_of(pid, json_object_array_get_idx(threads, i)))
            return NULL;
    }
    snprintf(path, sizeof(path), "/proc/%" PRIu64 "/status", pid);
    return of_process(path);
}
