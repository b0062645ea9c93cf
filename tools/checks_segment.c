/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of `ferry doctor SEGMENT`: the operator's list for one file segment on this host. What
 * is found comes from the catalog; here it becomes a verdict and an advice. One thread.
 */
#include "checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "common.h"

/* Findings beside those of files: the store, the map, and the files that did not fit. */
#define OTHERS 3

static struct json_object *member(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    if (json_object_is_type(object, json_type_object))
        json_object_object_get_ex(object, key, &value);
    return value;
}

static const char *text_of(struct json_object *object, const char *key)
{
    struct json_object *value = member(object, key);

    return value != NULL ? json_object_get_string(value) : "";
}

static bool is_true(struct json_object *object, const char *key)
{
    return json_object_get_boolean(member(object, key));
}

static void judge(struct ferry_finding *finding, enum ferry_verdict verdict, const char *advice)
{
    finding->verdict = verdict;
    snprintf(finding->advice, sizeof(finding->advice), "%s", advice);
}

/* It is there, long enough and opens. */
static void judge_good(struct ferry_finding *finding, struct json_object *file)
{
    struct json_object *mount = member(file, "mount");
    bool root = strcmp(text_of(mount, "point"), "/") == 0 &&
                strcmp(text_of(file, "kind"), "device") != 0;

    snprintf(finding->found, sizeof(finding->found), "%.100s: %s, %s; %.20s at %.40s from %.40s",
             text_of(file, "path"), is_true(file, "writable") ? "reads and writes" : "reads only",
             is_true(file, "direct") ? "direct I/O" : "no direct I/O: through the page cache",
             text_of(mount, "type"), text_of(mount, "point"), text_of(mount, "source"));
    judge(finding, FERRY_VERDICT_OK, "");
    if (root)
        judge(finding, FERRY_VERDICT_WARN,
              "nothing is mounted there, it is on the root file system: is that meant? "
              "findmnt says what is mounted");
    else if (!is_true(file, "writable"))
        judge(finding, FERRY_VERDICT_WARN,
              "WRITEs will fail: mount it read-write, or mind its permissions, if it is to be "
              "written from here");
    else if (!is_true(file, "direct"))
        judge(finding, FERRY_VERDICT_WARN, "slower, and the page cache is between it and the disk");
    else if (strcmp(text_of(file, "note"), "") != 0)
        judge(finding, FERRY_VERDICT_WARN,
              "the file is longer than the segment says: ferry segment resize --extend makes the "
              "rest usable");
}

static void judge_problem(struct ferry_finding *finding, struct json_object *file)
{
    const char *path = text_of(file, "path");
    struct json_object *mount = member(file, "mount");

    snprintf(finding->found, sizeof(finding->found), "%.120s: %.120s",
             path[0] != '\0' ? path : text_of(file, "file_path"), text_of(file, "problem"));
    if (member(file, "path") == NULL)
        judge(
            finding, FERRY_VERDICT_BROKEN,
            "mount the file system here, then: ferry segment map SEGMENT ORIGINAL-PATH LOCAL-PATH");
    else if (text_of(file, "kind")[0] == '\0' && strcmp(text_of(mount, "point"), "/") == 0)
        judge(finding, FERRY_VERDICT_BROKEN,
              "nothing is mounted on its way: nvme connect and mount, then check again");
    else if (text_of(file, "kind")[0] == '\0')
        judge(finding, FERRY_VERDICT_BROKEN,
              "the file system is mounted and has no such file: ferry segment map it to the right "
              "one");
    else
        judge(finding, FERRY_VERDICT_BROKEN,
              "it is not the file that was registered, or may not be read: ferry segment map it to "
              "the right one, or mend its permissions");
}

static void check_files(struct ferry_findings *findings, struct json_object *files)
{
    static char names[FERRY_FINDINGS_MAX][32];
    size_t room = FERRY_FINDINGS_MAX - OTHERS;
    size_t left_out = 0;
    size_t shown = 0;

    /* Those with a problem first, so that none of them is left out for a good one. */
    for (int bad = 1; bad >= 0; bad--) {
        for (size_t i = 0; i < json_object_array_length(files); i++) {
            struct json_object *file = json_object_array_get_idx(files, i);
            struct ferry_finding *finding;

            if ((member(file, "problem") != NULL) != (bad == 1))
                continue;
            if (shown == room) {
                left_out++;
                continue;
            }
            snprintf(names[shown], sizeof(names[shown]), "file #%zu", i);
            finding = ferry_finding_add(findings, names[shown++]);
            if (bad == 1)
                judge_problem(finding, file);
            else
                judge_good(finding, file);
        }
    }
    if (left_out > 0) {
        struct ferry_finding *finding = ferry_finding_add(findings, "more files");

        snprintf(finding->found, sizeof(finding->found), "%zu further ones are not shown",
                 left_out);
        judge(finding, FERRY_VERDICT_OK, "ferry segment show has all");
    }
}

static void check_map(struct ferry_findings *findings, struct json_object *segment)
{
    struct ferry_finding *finding = ferry_finding_add(findings, "path map");
    struct json_object *files = member(segment, "files");
    size_t count = json_object_array_length(files);
    size_t mapped = 0;

    for (size_t i = 0; i < count; i++)
        mapped += member(json_object_array_get_idx(files, i), "path") != NULL;
    snprintf(finding->found, sizeof(finding->found), "host %.100s has a path for %zu of %zu files",
             text_of(segment, "host"), mapped, count);
    judge(finding, mapped == count ? FERRY_VERDICT_OK : FERRY_VERDICT_BROKEN,
          mapped == count ? ""
                          : "ferry segment map adds it; another name of this host? set host_name");
}

void ferry_check_segment(struct ferry_findings *findings, const struct ferry_config *config,
                         const char *segment)
{
    struct ferry_finding *finding = ferry_finding_add(findings, "store");
    struct ferry_catalog *catalog = NULL;
    struct json_object *object;
    char *text = NULL;
    enum ferry_status status = ferry_catalog_open(config, &catalog);

    if (status == FERRY_OK)
        status = ferry_catalog_describe(catalog, segment, FERRY_CATALOG_LOOK, FERRY_NO_DEADLINE,
                                        &text);
    if (status != FERRY_OK) {
        snprintf(finding->found, sizeof(finding->found), "%.250s", ferry_last_error_text());
        judge(finding, FERRY_VERDICT_BROKEN,
              status == FERRY_ERR_NOT_FOUND
                  ? "ferry segment register makes it known; ferry segment "
                    "list shows what is"
                  : "mind metadata_type and metadata_servers");
        ferry_catalog_close(catalog);
        return;
    }
    snprintf(finding->found, sizeof(finding->found), "knows the segment%s",
             ferry_catalog_compares(catalog) ? "" : "; it cannot compare before it writes");
    judge(finding, FERRY_VERDICT_OK, "");
    ferry_catalog_close(catalog);
    object = ferry_cli_parse_json(text);
    if (object == NULL)
        return;
    check_map(findings, object);
    check_files(findings, member(object, "files"));
    json_object_put(object);
}
