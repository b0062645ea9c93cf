/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A look at a backing file; see catalog_look.h. Any thread, no state.
 */
#include "runtime/catalog_look.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "base/error.h"
#include "base/json.h"

#define DIRECT_ALIGN 4096
#define READ_SIZE    ((size_t)1 << 20)

/* What the system says about a path, as a status that a caller can act on. */
static enum ferry_status fail_path(int err, const char *what, const char *path)
{
    char buf[128];
    const char *reason = strerror_r(err, buf, sizeof(buf));

    return ferry_fail(err == ENOENT || err == ENOTDIR ? FERRY_ERR_NOT_FOUND : FERRY_ERR_IO,
                      "%s \"%.300s\": %s (errno %d)", what, path, reason, err);
}

static enum ferry_status device_size(const char *path, uint64_t *size_out)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fail_path(errno, "cannot open", path);
    if (ioctl(fd, BLKGETSIZE64, size_out) != 0)
        return fail_path(errno, "cannot ask for the size of", path);
    return FERRY_OK;
}

enum ferry_status ferry_look_at(const char *path, struct ferry_look *look_out)
{
    struct ferry_look look = {0};
    struct stat st;
    enum ferry_status status = FERRY_OK;

    if (path[0] != '/')
        return ferry_fail(FERRY_ERR_INVALID, "path \"%.300s\" is not absolute", path);
    if (stat(path, &st) != 0)
        return fail_path(errno, "cannot examine", path);
    look.device = st.st_dev;
    look.inode = st.st_ino;
    look.size = (uint64_t)st.st_size;
    if (S_ISBLK(st.st_mode)) {
        look.kind = FERRY_LOOK_DEVICE;
        look.device = st.st_rdev;
        look.inode = 0;
        status = device_size(path, &look.size);
    } else if (!S_ISREG(st.st_mode)) {
        return ferry_fail(FERRY_ERR_INVALID,
                          "\"%.300s\" is %s; expected a regular file or a block device", path,
                          S_ISDIR(st.st_mode) ? "a directory" : "something else");
    }
    if (status == FERRY_OK)
        *look_out = look;
    return status;
}

enum ferry_status ferry_look_open(const char *path, int flags)
{
    FERRY_AUTO_FD int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    return fd >= 0 ? FERRY_OK : fail_path(errno, "cannot open", path);
}

enum ferry_status ferry_look_read(const char *path, uint64_t offset, uint64_t length)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    FERRY_AUTO_FREE char *buf = malloc(READ_SIZE);
    uint64_t done = 0;

    if (fd < 0)
        return fail_path(errno, "cannot open", path);
    if (buf == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "no memory to read \"%.300s\"", path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (done < length) {
        size_t want = length - done < READ_SIZE ? (size_t)(length - done) : READ_SIZE;
        ssize_t got = pread(fd, buf, want, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_path(errno, "cannot read", path);
        if (got == 0)
            return ferry_fail(FERRY_ERR_RANGE,
                              "\"%.300s\" ends after %" PRIu64 " bytes, expected %" PRIu64, path,
                              offset + done, offset + length);
        done += (uint64_t)got;
    }
    return FERRY_OK;
}

bool ferry_look_direct(const char *path)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY);
    FERRY_AUTO_FREE char *buf = aligned_alloc(DIRECT_ALIGN, DIRECT_ALIGN);

    return fd >= 0 && buf != NULL && pread(fd, buf, DIRECT_ALIGN, 0) >= 0;
}

/* The kernel writes spaces and the like as \040. */
static void unescape(char *text)
{
    char *to = text;

    for (char *at = text; *at != '\0'; to++) {
        if (at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
            at[3] >= '0' && at[3] <= '7') {
            *to = (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0'));
            at += 4;
        } else {
            *to = *at++;
        }
    }
    *to = '\0';
}

/* True if @path is @point or below it. */
static bool is_below(const char *path, const char *point)
{
    size_t len = strlen(point);

    return strcmp(point, "/") == 0 ||
           (strncmp(path, point, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

/*
 * One line of mountinfo (proc(5)): id parent major:minor root point options ... - type source. The
 * numbers are of no use: files of some file systems are on other devices than their mount.
 */
struct mount_line {
    char *point;
    char *type;
    char *source;
};

static bool parse_line(char *line, struct mount_line *mount)
{
    char *save = NULL;
    char *dash = strstr(line, " - ");
    char *field;

    if (dash == NULL)
        return false;
    *dash = '\0';
    for (int i = 0; i < 5; i++) {
        field = strtok_r(i == 0 ? line : NULL, " ", &save);
        if (field == NULL)
            return false;
    }
    mount->point = field;
    mount->type = strtok_r(dash + 3, " ", &save);
    mount->source = strtok_r(NULL, " \n", &save);
    if (mount->type == NULL || mount->source == NULL)
        return false;
    unescape(mount->point);
    unescape(mount->source);
    return true;
}

static struct json_object *mount_json(const struct mount_line *mount)
{
    struct json_object *object = json_object_new_object();

    if (object != NULL && ferry_json_put_string(object, "point", mount->point) &&
        ferry_json_put_string(object, "type", mount->type) &&
        ferry_json_put_string(object, "source", mount->source))
        return object;
    json_object_put(object);
    return NULL;
}

struct json_object *ferry_look_mount(const char *path)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    FERRY_AUTO_FREE char *real = realpath(path, NULL);
    FERRY_AUTO_FREE char *line = NULL;
    struct json_object *best = NULL;
    size_t best_len = 0;
    size_t size = 0;

    if (real != NULL)
        path = real;
    while (file != NULL && getline(&line, &size, file) >= 0) {
        struct mount_line mount;

        /* Of several at one place the last one is seen. */
        if (!parse_line(line, &mount) || !is_below(path, mount.point) ||
            strlen(mount.point) < best_len)
            continue;
        json_object_put(best);
        best = mount_json(&mount);
        best_len = strlen(mount.point);
    }
    if (file != NULL)
        fclose(file);
    return best;
}
