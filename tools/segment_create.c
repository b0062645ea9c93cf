/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of file segments: `ferry segment create`, growing one, and the paths of a registration.
 * One thread.
 */
#include "segment_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <json-c/json.h>

#include "text.h"

char *ferry_segment_absolute(const char *path)
{
    char *here = path[0] != '/' ? getcwd(NULL, 0) : NULL;
    char *absolute = NULL;

    while (path[0] == '.' && path[1] == '/')
        path += 1 + strspn(path + 1, "/");
    if (path[0] == '/')
        absolute = strdup(path);
    else if (here != NULL &&
             asprintf(&absolute, "%s/%s", strcmp(here, "/") == 0 ? "" : here, path) < 0)
        absolute = NULL;
    if (absolute == NULL)
        ferry_cli_say("no absolute path for \"%s\": %s", path, strerror(errno));
    free(here);
    return absolute;
}

/* Takes @path. */
static bool add_path(struct ferry_segment_paths *paths, char *path)
{
    char **grown = path != NULL ? realloc(paths->list, (paths->count + 1) * sizeof(*grown)) : NULL;

    if (grown == NULL) {
        free(path);
        ferry_cli_say("out of memory");
        return false;
    }
    paths->list = grown;
    paths->list[paths->count++] = path;
    return true;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The regular files of a folder, in the order of their names' bytes, whatever the locale. */
static bool add_folder(const struct ferry_segment_arguments *arguments, const char *folder,
                       struct ferry_segment_paths *paths)
{
    DIR *dir = opendir(folder);
    size_t first = paths->count;
    struct dirent *entry;
    bool ok = true;

    if (dir == NULL) {
        ferry_cli_say("cannot read \"%s\": %s", folder, strerror(errno));
        return false;
    }
    while (ok && (entry = readdir(dir)) != NULL) {
        struct stat st;
        char *path;

        if (entry->d_name[0] == '.' && !arguments->hidden)
            continue;
        if (asprintf(&path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/",
                     entry->d_name) < 0)
            path = NULL;
        if (path != NULL && (lstat(path, &st) != 0 || !S_ISREG(st.st_mode)))
            free(path);
        else
            ok = add_path(paths, path);
    }
    closedir(dir);
    if (ok && paths->count == first) {
        ferry_cli_say("no file in \"%s\"%s", folder,
                      arguments->hidden ? "" : ", hidden ones not counted");
        return false;
    }
    if (ok)
        qsort(paths->list + first, paths->count - first, sizeof(*paths->list), by_bytes);
    return ok;
}

bool ferry_segment_expand(const struct ferry_segment_arguments *arguments, size_t first_word,
                          struct ferry_segment_paths *paths)
{
    for (size_t i = first_word; i < arguments->word_count; i++) {
        char *path = ferry_segment_absolute(arguments->words[i]);
        struct stat st;
        bool ok;

        if (path == NULL)
            return false;
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            ok = add_folder(arguments, path, paths);
            free(path);
        } else {
            ok = add_path(paths, path);
        }
        if (!ok)
            return false;
    }
    return true;
}

void ferry_segment_paths_free(struct ferry_segment_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->list[i]);
    free(paths->list);
}

/* Say why blocks could not be had, with what there is where the reason is space. */
static void say_no_space(const char *path, uint64_t size, int err)
{
    struct statvfs fs;
    char *folder = strdup(path);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;

    if (slash != NULL)
        slash[slash == folder ? 1 : 0] = '\0';
    if (err == ENOSPC && slash != NULL && statvfs(folder, &fs) == 0)
        ferry_cli_say("\"%s\": no space left on device (ENOSPC): %" PRIu64 " bytes are needed and "
                      "%" PRIu64 " are free",
                      path, size, (uint64_t)fs.f_bavail * fs.f_frsize);
    else
        ferry_cli_say("\"%s\": %s", path, strerror(err));
    free(folder);
}

/*
 * Blocks for [from, size), read as zeros. Some file systems cannot (EOPNOTSUPP): the C library then
 * writes to each block, which is as good.
 */
static int allocate(int fd, uint64_t from, uint64_t size)
{
    int err;

    do {
        err = posix_fallocate(fd, (off_t)from, (off_t)(size - from));
    } while (err == EINTR);
    return err;
}

static bool create_file(const struct ferry_segment_arguments *arguments, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    int err = 0;

    if (fd < 0) {
        ferry_cli_say("cannot create \"%s\": %s", path, strerror(errno));
        return false;
    }
    if (arguments->sparse)
        err = ftruncate(fd, (off_t)arguments->size) == 0 ? 0 : errno;
    else
        err = allocate(fd, 0, arguments->size);
    if (err == 0 && fsync(fd) != 0)
        err = errno;
    if (close(fd) != 0 && err == 0)
        err = errno;
    if (err == 0)
        return true;
    say_no_space(path, arguments->size, err);
    unlink(path);
    return false;
}

bool ferry_segment_grow(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    int err = 0;

    if (fd < 0 || fstat(fd, &st) != 0) {
        ferry_cli_say("cannot open \"%s\": %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (!S_ISREG(st.st_mode))
        err = EINVAL;
    else if ((uint64_t)st.st_size < size)
        err = allocate(fd, (uint64_t)st.st_size, size);
    /* What was allocated in part is given back: the file is as it was. */
    if (err != 0 && S_ISREG(st.st_mode) && ftruncate(fd, st.st_size) != 0)
        ferry_cli_say("\"%s\" has grown in part: %s", path, strerror(errno));
    if (err != 0)
        say_no_space(path, size, err);
    close(fd);
    return err == 0;
}

static void print_created(const struct ferry_segment_arguments *arguments,
                          const struct ferry_segment_paths *paths)
{
    struct json_object *list;
    char size[FERRY_CLI_TEXT_SIZE];

    if (!arguments->cli.json) {
        for (size_t i = 0; i < paths->count; i++)
            printf("%s %s%s\n", paths->list[i], ferry_cli_size(arguments->size, size),
                   arguments->sparse ? ", sparse" : "");
        return;
    }
    list = json_object_new_array();
    for (size_t i = 0; i < paths->count; i++) {
        struct json_object *object = json_object_new_object();

        json_object_object_add(object, "path", json_object_new_string(paths->list[i]));
        json_object_object_add(object, "size", json_object_new_uint64(arguments->size));
        json_object_object_add(object, "sparse", json_object_new_boolean(arguments->sparse));
        json_object_array_add(list, object);
    }
    ferry_cli_print_json(list);
}

int ferry_segment_create(const struct ferry_segment_arguments *arguments,
                         struct ferry_catalog *catalog)
{
    struct ferry_segment_paths paths = {0};
    size_t made = 0;
    bool ok = true;

    (void)catalog;
    if (arguments->size == 0 || arguments->size > INT64_MAX) {
        ferry_cli_say("create: say --size, " FERRY_CLI_SIZE_HELP);
        return FERRY_EXIT_USAGE;
    }
    for (size_t i = 1; ok && i < arguments->word_count; i++) {
        char *path = ferry_segment_absolute(arguments->words[i]);

        ok = path != NULL && add_path(&paths, path) && create_file(arguments, path);
        made += ok;
    }
    if (ok)
        print_created(arguments, &paths);
    /* All or none: half of a segment's files is of no use to anybody. */
    for (size_t i = 0; !ok && i < made; i++)
        unlink(paths.list[i]);
    ferry_segment_paths_free(&paths);
    return ok ? FERRY_EXIT_OK : FERRY_EXIT_ENVIRONMENT;
}
