/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings from JSON in the layout of the published configuration files: sections are objects, and
 * "a/b/c" is another way to write nested keys. Blocks for the file; a pipe that stays silent is
 * given up after a few seconds. Nothing takes effect here.
 */
#include "config/setting.h"

#include <json-c/json.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

#define PIPE_TIMEOUT_MS 5000
#define WHERE_SIZE      384

static const struct ferry_json_limits file_limits = {
    .text_bytes_max = FERRY_CONFIG_FILE_BYTES_MAX,
    .memory_bytes_max = 256u << 20,
    .depth_max = 32,
};

static enum ferry_status stage_object(struct ferry_stage *stage, const char *prefix,
                                      struct json_object *object);

/* "conf.json: log_level" */
static void make_where(const struct ferry_stage *stage, const char *name, char buf[WHERE_SIZE])
{
    snprintf(buf, WHERE_SIZE, "%.200s: %.150s", stage->label, name);
}

static FERRY_COLD enum ferry_status expected_object(const char *where, struct json_object *value)
{
    return ferry_fail(FERRY_ERR_CONFIG, "%s: expected an object, found %s", where,
                      json_object_is_type(value, json_type_array)    ? "a list"
                      : json_object_is_type(value, json_type_null)   ? "null"
                      : json_object_is_type(value, json_type_string) ? "text"
                                                                     : "a number or a boolean");
}

static enum ferry_status stage_setting(struct ferry_stage *stage,
                                       const struct ferry_setting *setting,
                                       struct json_object *json, const char *where)
{
    struct ferry_value value;
    enum ferry_status status = ferry_value_from_json(setting->option, where, json, &value);

    if (status != FERRY_OK)
        return status;
    if (setting->option->type == FERRY_OPTION_PLACEHOLDER)
        ferry_info("config", "%s has no effect in this version", where);
    return ferry_stage_put(stage, setting, &value, stage->label);
}

/* What a section of a transport that is not in this build says about being wanted. */
static enum ferry_status check_unbuilt(const char *name, size_t section_len,
                                       struct json_object *json, const char *where)
{
    struct json_object *enable = NULL;

    if (name[section_len] == '\0') {
        if (!json_object_is_type(json, json_type_object))
            return expected_object(where, json);
        if (!json_object_object_get_ex(json, "enable", &enable))
            return FERRY_OK;
    } else if (strcmp(name + section_len, ".enable") == 0) {
        enable = json;
    } else {
        return FERRY_OK;
    }
    if (!json_object_is_type(enable, json_type_boolean))
        return ferry_fail(FERRY_ERR_CONFIG, "%s: expected \"enable\" to be true or false", where);
    if (json_object_get_boolean(enable))
        return ferry_config_fail_unbuilt(where, name);
    return FERRY_OK;
}

static enum ferry_status stage_member(struct ferry_stage *stage, const char *name,
                                      struct json_object *value)
{
    char where[WHERE_SIZE];
    const struct ferry_setting *setting = ferry_config_find(stage->config, name);

    make_where(stage, name, where);
    if (setting != NULL)
        return stage_setting(stage, setting, value, where);
    if (ferry_config_is_section(stage->config, name)) {
        if (!json_object_is_type(value, json_type_object))
            return expected_object(where, value);
        return stage_object(stage, name, value);
    }
    if (ferry_config_below_placeholder(stage->config, name))
        return FERRY_OK;

    size_t unbuilt_len = ferry_config_unbuilt_len(stage->config, name);

    if (unbuilt_len > 0)
        return check_unbuilt(name, unbuilt_len, value, where);
    return ferry_config_fail_unknown(stage->config, where, name);
}

/* Recursion is bounded by the parser's depth limit and by the length of names. */
static enum ferry_status stage_object(struct ferry_stage *stage, const char *prefix,
                                      struct json_object *object)
{
    struct json_object_iterator at = json_object_iter_begin(object);
    struct json_object_iterator end = json_object_iter_end(object);

    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        char joined[2 * FERRY_CONFIG_NAME_MAX + 2];
        char name[FERRY_CONFIG_NAME_MAX + 1];
        int len = snprintf(joined, sizeof(joined), "%s%s%s", prefix, prefix[0] != '\0' ? "." : "",
                           json_object_iter_peek_name(&at));

        if (len < 0 || (size_t)len >= sizeof(joined) || !ferry_config_normalize(joined, name)) {
            char where[WHERE_SIZE];

            make_where(stage, joined, where);
            return ferry_config_fail_unknown(stage->config, where, joined);
        }
        enum ferry_status status = stage_member(stage, name, json_object_iter_peek_value(&at));

        if (status != FERRY_OK)
            return status;
    }
    return FERRY_OK;
}

enum ferry_status ferry_stage_text(struct ferry_stage *stage, const char *json, size_t len)
{
    FERRY_CLEANUP(ferry_json_free) struct ferry_json root = {0};

    if (strnlen(json, len) == 0)
        return ferry_fail(FERRY_ERR_CONFIG, "%s: empty; expected a JSON object", stage->label);
    if (len >= 3 && memcmp(json, "\xef\xbb\xbf", 3) == 0) {
        return ferry_fail(FERRY_ERR_CONFIG,
                          "%s: starts with a byte-order mark; expected UTF-8 without one",
                          stage->label);
    }

    enum ferry_status status = ferry_json_parse(&file_limits, stage->label, json, len, &root);

    if (status == FERRY_ERR_NO_MEMORY)
        return status;
    if (status != FERRY_OK) /* the text stays, the code is ours */
        return ferry_fail(FERRY_ERR_CONFIG, "%s", ferry_last_error_text());
    if (!json_object_is_type(root.value, json_type_object))
        return expected_object(stage->label, root.value);
    return stage_object(stage, "", root.value);
}

/* A file that cannot be read is a wrong setting of whoever named it. */
static FERRY_COLD enum ferry_status unreadable(const char *path, int err)
{
    (void)ferry_fail_errno(err, "%.200s: cannot be read", path);
    return ferry_fail(FERRY_ERR_CONFIG, "%s", ferry_last_error_text());
}

static bool wait_readable(int fd, uint64_t deadline_ns)
{
    uint64_t now_ns = ferry_now_ns(&ferry_clock_system);
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};

    if (now_ns >= deadline_ns)
        return false;
    /* A signal of the host may cut this short; the caller reads again and comes back. */
    return poll(&pollfd, 1, (int)((deadline_ns - now_ns) / FERRY_NS_PER_MS + 1)) != 0;
}

/* All of @fd into @buf, which has room for one byte more than a file may have. */
static enum ferry_status read_all(int fd, const char *path, char *buf, size_t *len_out)
{
    const uint64_t deadline_ns = ferry_deadline_ns(ferry_now_ns(&ferry_clock_system),
                                                   PIPE_TIMEOUT_MS * FERRY_NS_PER_MS);
    size_t len = 0;

    while (len <= FERRY_CONFIG_FILE_BYTES_MAX) {
        ssize_t got = read(fd, buf + len, FERRY_CONFIG_FILE_BYTES_MAX + 1 - len);

        if (got == 0) {
            *len_out = len;
            return FERRY_OK;
        }
        if (got > 0) {
            len += (size_t)got;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return unreadable(path, errno);
        if (!wait_readable(fd, deadline_ns)) {
            return ferry_fail(FERRY_ERR_CONFIG, "%.200s: no end of the text within %d ms", path,
                              PIPE_TIMEOUT_MS);
        }
    }
    return ferry_fail(FERRY_ERR_CONFIG, "%.200s: longer than %u bytes", path,
                      FERRY_CONFIG_FILE_BYTES_MAX);
}

enum ferry_status ferry_stage_file(struct ferry_stage *stage, const char *path)
{
    /* Without O_NONBLOCK the open of a pipe that nobody writes would wait for ever. */
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat stat;
    size_t len = 0;

    if (fd < 0 || fstat(fd, &stat) < 0)
        return unreadable(path, errno);
    if (S_ISDIR(stat.st_mode))
        return ferry_fail(FERRY_ERR_CONFIG, "%.200s: is a directory; expected a JSON file", path);

    FERRY_AUTO_FREE char *text = malloc(FERRY_CONFIG_FILE_BYTES_MAX + 1);

    if (text == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "configuration: out of memory");

    enum ferry_status status = read_all(fd, path, text, &len);

    return status == FERRY_OK ? ferry_stage_text(stage, text, len) : status;
}
