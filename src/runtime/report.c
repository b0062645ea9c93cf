/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports about a running engine as JSON: its process, its transports, its build. Any thread, the
 * control server's included; reads /proc and asks transports, far from the way of requests.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "access/access.h"
#include "base/error.h"
#include "base/json.h"
#include "runtime/runtime.h"
#include "runtime/version.h"

#define REPORT_MAX (16u << 20)

/* gcc's __VERSION__ is a bare number; clang's has the name already. */
#if defined(__clang__)
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

static bool put_double(struct json_object *object, const char *key, double value)
{
    char text[32];

    /* Microseconds are enough, and 17 digits help nobody. */
    snprintf(text, sizeof(text), "%.6f", value);
    return ferry_json_put(object, key, json_object_new_double_s(value, text));
}

/* Print @object and drop it. @ok false: some of it is missing for lack of memory. */
static enum ferry_status print_report(struct json_object *object, bool ok, char **json_out)
{
    enum ferry_status status;
    size_t len;

    if (!ok)
        status = ferry_fail(FERRY_ERR_NO_MEMORY, "report: out of memory");
    else
        status = ferry_json_print(object, REPORT_MAX, json_out, &len);
    json_object_put(object);
    return status;
}

/* The first number of /proc/self/task/<tid>/schedstat: nanoseconds on a core. */
static double thread_cpu_seconds(const char *tid)
{
    char path[96];
    unsigned long long ns = 0;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%.16s/schedstat", tid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &ns) != 1)
        ns = 0;
    fclose(file);
    return (double)ns / (double)FERRY_NS_PER_S;
}

static void thread_name(const char *tid, char *buf, size_t size)
{
    char path[96];
    FILE *file;

    buf[0] = '\0';
    snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", tid);
    file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(buf, (int)size, file) == NULL)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    fclose(file);
}

static bool put_threads(struct json_object *object)
{
    struct json_object *threads = json_object_new_array();
    DIR *dir = opendir("/proc/self/task");
    bool ok = threads != NULL;
    struct dirent *entry;

    while (dir != NULL && ok && (entry = readdir(dir)) != NULL) {
        struct json_object *thread;
        char name[32];

        if (entry->d_name[0] == '.')
            continue;
        thread_name(entry->d_name, name, sizeof(name));
        thread = json_object_new_object();
        ok = thread != NULL &&
             ferry_json_put_u64(thread, "tid", strtoull(entry->d_name, NULL, 10)) &&
             ferry_json_put_string(thread, "name", name) &&
             put_double(thread, "cpu_seconds", thread_cpu_seconds(entry->d_name));
        ok = ferry_json_append(threads, thread) && ok;
    }
    if (dir != NULL)
        closedir(dir);
    return ferry_json_put(object, "threads", threads) && ok;
}

/* A line "key:   N kB" of /proc/self/status. */
static uint64_t status_kib(const char *key)
{
    FILE *file = fopen("/proc/self/status", "re");
    unsigned long long kib = 0;
    char line[256];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        size_t len = strlen(key);

        if (strncmp(line, key, len) == 0 && line[len] == ':')
            kib = strtoull(line + len + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return kib;
}

static uint64_t count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    uint64_t count = 0;
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    if (dir == NULL)
        return 0;
    closedir(dir);
    return count - 1; /* the one that counted */
}

/* Who was not let in at the control plane; nothing where access control is off. */
static bool put_refusals(struct json_object *object, const struct ferry_access_control *access)
{
    struct json_object *refused;
    bool ok;

    if (!ferry_access_on(access))
        return true;
    refused = json_object_new_object();
    ok = refused != NULL;
    for (uint32_t i = 0; ok && i < FERRY_REFUSAL_COUNT; i++)
        ok = ferry_json_put_u64(refused, ferry_refusal_name((enum ferry_refusal)i),
                                atomic_load(&access->control_refusals.counts[i]));
    return ferry_json_put(object, "control_refused", refused) && ok;
}

enum ferry_status ferry_report_process(struct ferry_engine *engine, char **json_out)
{
    struct json_object *object = json_object_new_object();
    struct timespec cpu = {0};
    bool ok = object != NULL;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    ok = ok && ferry_json_put_u64(object, "pid", (uint64_t)getpid());
    ok = ok && ferry_json_put_string(object, "segment", engine->name);
    ok = ok && ferry_json_put_string(object, "incarnation", engine->incarnation);
    ok = ok && put_double(object, "cpu_seconds",
                          (double)cpu.tv_sec + (double)cpu.tv_nsec / (double)FERRY_NS_PER_S);
    ok = ok && ferry_json_put_u64(object, "rss_bytes", status_kib("VmRSS") * 1024);
    ok = ok && ferry_json_put_u64(object, "peak_rss_bytes", status_kib("VmHWM") * 1024);
    ok = ok && ferry_json_put_u64(object, "fds", count_descriptors());
    ok = ok && ferry_json_put_u64(object, "buffers", ferry_registry_count(&engine->registry));
    ok = ok && ferry_json_put_u64(object, "batches", ferry_pool_used(&engine->batches));
    ok = ok && ferry_json_put_u64(object, "segments", ferry_pool_used(&engine->segments));
    ok = ok && ferry_json_put_u64(object, "refreshes", atomic_load(&engine->refresh_count));
    ok = ok && ferry_json_put_u64(object, "publications", atomic_load(&engine->publish_count));
    ok = ok && put_refusals(object, engine->access);
    ok = ok && put_threads(object);
    return print_report(object, ok, json_out);
}

static bool put_transport(struct json_object *list, const struct ferry_transport_slot *slot)
{
    struct json_object *object = json_object_new_object();
    bool ok = object != NULL && ferry_json_put_string(object, "name", slot->ops->name) &&
              ferry_json_put_bool(object, "usable", slot->transport != NULL) &&
              ferry_json_put_string(object, "reason", slot->reason);

    if (ok && slot->transport != NULL)
        ferry_transport_report(slot->transport, object);
    return ferry_json_append(list, object) && ok;
}

enum ferry_status ferry_report_transports(struct ferry_engine *engine, char **json_out)
{
    struct json_object *object = json_object_new_object();
    struct json_object *list = json_object_new_array();
    bool ok = list != NULL;

    for (uint32_t i = 0; i < engine->transport_count && ok; i++)
        ok = put_transport(list, &engine->transports[i]);
    ok = ferry_json_put(object, "transports", list) && ok;
    return print_report(object, ok, json_out);
}

enum ferry_status ferry_report_build(char **json_out)
{
    const struct ferry_transport_ops *rows[FERRY_TRANSPORTS_MAX];
    uint32_t count = ferry_transports(rows);
    struct json_object *object = json_object_new_object();
    struct json_object *list = json_object_new_array();
    bool ok = list != NULL;

    for (uint32_t i = 0; i < count && ok; i++)
        ok = ferry_json_append(list, json_object_new_string(rows[i]->name));
    ok = ferry_json_put(object, "transports", list) && ok;
    ok = ok && ferry_json_put_string(object, "version", ferry_version());
    ok = ok && ferry_json_put_string(object, "compiler", COMPILER);
#ifdef FERRY_HAVE_URING
    ok = ok && ferry_json_put_bool(object, "io_uring", true);
#else
    ok = ok && ferry_json_put_bool(object, "io_uring", false);
#endif
    return print_report(object, ok, json_out);
}

static enum ferry_status report_segment(struct ferry_engine *engine, char **json_out)
{
    struct ferry_published *published;
    enum ferry_status status = ferry_published_acquire(engine, &published);
    char *copy;

    if (status != FERRY_OK)
        return status;
    copy = strdup(published->text);
    ferry_published_release(published);
    if (copy == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "report: out of memory");
    *json_out = copy;
    return FERRY_OK;
}

enum ferry_status ferry_engine_report(struct ferry_engine *engine, enum ferry_report report,
                                      char **json_out)
{
    enum ferry_status status = engine != NULL ? ferry_engine_enter(engine) : FERRY_OK;

    if (status != FERRY_OK)
        return status;
    if (json_out == NULL ||
        (engine == NULL && report != FERRY_REPORT_BUILD && report != FERRY_REPORT_HOST))
        return ferry_fail(FERRY_ERR_INVALID, "report: no engine, or nowhere to put the text");
    switch (report) {
    case FERRY_REPORT_PROCESS:
        return ferry_report_process(engine, json_out);
    case FERRY_REPORT_TRANSPORTS:
        return ferry_report_transports(engine, json_out);
    case FERRY_REPORT_SEGMENT:
        return report_segment(engine, json_out);
    case FERRY_REPORT_BUILD:
        return ferry_report_build(json_out);
    case FERRY_REPORT_HOST:
        return ferry_report_host(json_out);
    }
    return ferry_fail(FERRY_ERR_INVALID, "report %d: expected 0..4", (int)report);
}

void ferry_text_free(char *text)
{
    free(text);
}

const char *ferry_version(void)
{
    return FERRY_VERSION_TEXT;
}
