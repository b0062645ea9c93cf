/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of files. "file://PATH" is one file or block device of this host, found without a peer
 * or a store: what takes the place of a description is a look at the file, its length and which
 * file it is, so that a refresh notices a file that was grown or replaced. "nvmeof/NAME" is what a
 * store says: files end to end, with a path for each host.
 *
 * The look blocks on the file system and runs on the thread that opens or refreshes the segment,
 * never on the keeper or the store's thread. Reads and writes no byte of the files.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "config/option.h"
#include "metadata/document.h"
#include "metadata/file_document.h"
#include "metadata/host_names.h"
#include "runtime/runtime.h"

#define SCHEME "file://"

bool ferry_file_segment_named(const char *name)
{
    return strncmp(name, SCHEME, strlen(SCHEME)) == 0;
}

static enum ferry_status fail_path(int err, const char *path)
{
    ferry_fail_errno(err, "%.300s", path);
    return ferry_status_of_file_errno(err);
}

/* A path that stays the same when the process changes its folder. */
static enum ferry_status absolute_path(const char *path, char *buf, size_t size)
{
    char folder[PATH_MAX];
    int len;

    if (path[0] == '\0')
        return ferry_fail(FERRY_ERR_INVALID, SCHEME ": no path; expected " SCHEME "/folder/file");
    if (path[0] == '/')
        folder[0] = '\0';
    else if (getcwd(folder, sizeof(folder)) == NULL)
        return fail_path(errno, ".");
    len = snprintf(buf, size, "%s%s%s", folder, path[0] == '/' ? "" : "/", path);
    if (len < 0 || (size_t)len >= size)
        return ferry_fail(FERRY_ERR_INVALID, "%.100s...: longer than a path may be", path);
    return FERRY_OK;
}

static enum ferry_status device_length(const char *path, uint64_t *length_out)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || ioctl(fd, BLKGETSIZE64, length_out) != 0)
        return fail_path(errno, path);
    return FERRY_OK;
}

enum ferry_status ferry_file_segment_look(const char *name, char **text_out, size_t *len_out)
{
    char path[PATH_MAX];
    struct stat now;
    uint64_t length;
    enum ferry_status status = absolute_path(name + strlen(SCHEME), path, sizeof(path));
    int len;

    if (status != FERRY_OK)
        return status;
    if (stat(path, &now) != 0)
        return fail_path(errno, path);
    if (!S_ISREG(now.st_mode) && !S_ISBLK(now.st_mode))
        return ferry_fail(FERRY_ERR_INVALID, "%.300s: neither a regular file nor a block device",
                          path);
    length = (uint64_t)now.st_size;
    if (S_ISBLK(now.st_mode))
        status = device_length(path, &length);
    if (status != FERRY_OK)
        return status;
    len = asprintf(text_out, "%" PRIu64 " %llu:%llu %s", length, (unsigned long long)now.st_dev,
                   (unsigned long long)now.st_ino, path);
    if (len < 0)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "%.300s: out of memory", path);
    *len_out = (size_t)len;
    return FERRY_OK;
}

/* One buffer from offset 0, so that whoever lists the segment sees its length. */
enum ferry_status ferry_file_segment_document(const char *name, uint64_t length,
                                              struct ferry_document **doc_out)
{
    struct ferry_document *doc = NULL;
    enum ferry_status status = ferry_document_create(&doc);
    uint32_t index;

    if (status != FERRY_OK)
        return status;
    doc->name = strdup(name);
    if (doc->name == NULL)
        status = ferry_fail(FERRY_ERR_NO_MEMORY, "segment: out of memory");
    if (status == FERRY_OK && length > 0)
        status = ferry_document_add_buffer(doc, 0, length, "file", &index);
    if (status == FERRY_OK)
        *doc_out = doc;
    else
        ferry_document_destroy(doc);
    return status;
}

bool ferry_stored_files_named(const char *name)
{
    return strncmp(name, FERRY_FILE_SEGMENT_PREFIX, strlen(FERRY_FILE_SEGMENT_PREFIX)) == 0;
}

static enum ferry_status fill_part(const struct ferry_file_document *files, uint32_t index,
                                   const struct ferry_host_names *host, const char *segment,
                                   struct ferry_file_part *part)
{
    part->length = files->files[index].length;
    part->file_offset = files->files[index].file_offset;
    if (ferry_file_document_resolve(files, index, host, segment, &part->path) == FERRY_OK)
        return FERRY_OK;
    /* No error yet: only a request that needs this file fails. */
    part->path = NULL;
    part->problem = strdup(ferry_last_error_text());
    return part->problem != NULL ? FERRY_OK
                                 : ferry_fail(FERRY_ERR_NO_MEMORY, "segment: out of memory");
}

static void free_parts(struct ferry_file_part *parts, uint32_t count)
{
    for (uint32_t i = 0; parts != NULL && i < count; i++)
        free((char *)(uintptr_t)parts[i].problem);
    free(parts);
}

static enum ferry_status view_of(struct ferry_segment *segment,
                                 const struct ferry_file_document *files,
                                 struct ferry_view **view_out)
{
    struct ferry_file_layout layout = {.segment = segment->name, .count = files->file_count};
    struct ferry_file_part *parts = calloc(files->file_count + 1, sizeof(*parts));
    struct ferry_document *doc = NULL;
    struct ferry_host_names host;
    enum ferry_status status = ferry_host_names_parse(
        ferry_config_string(segment->engine->config, "host_name"), &host);

    if (parts == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "segment: out of memory");
    for (uint32_t i = 0; i < files->file_count && status == FERRY_OK; i++)
        status = fill_part(files, i, &host, segment->name, &parts[i]);
    layout.parts = parts;
    if (status == FERRY_OK)
        status = ferry_file_segment_document(segment->name, files->length, &doc);
    if (status == FERRY_OK)
        status = ferry_view_create_files(segment->engine, segment, doc, &layout, view_out);
    free_parts(parts, files->file_count);
    return status;
}

enum ferry_status ferry_stored_files_view(struct ferry_segment *segment, const char *text,
                                          size_t len, struct ferry_view **view_out)
{
    struct ferry_file_document *files = NULL;
    enum ferry_status status = ferry_file_document_parse(text, len, &files);

    if (status != FERRY_OK)
        return status;
    status = view_of(segment, files, view_out);
    ferry_file_document_destroy(files);
    return status;
}

enum ferry_status ferry_file_segment_view(struct ferry_segment *segment, const char *text,
                                          struct ferry_view **view_out)
{
    struct ferry_file_part part = {0};
    struct ferry_file_layout layout = {.segment = segment->name, .parts = &part, .count = 1};
    struct ferry_document *doc = NULL;
    enum ferry_status status;
    int path_at = 0;

    /* Our own text: written by the function above. */
    if (sscanf(text, "%" SCNu64 " %*u:%*u %n", &part.length, &path_at) != 1 || path_at == 0)
        return ferry_fail(FERRY_ERR_INTERNAL, "segment \"%.128s\": its look is unreadable",
                          segment->name);
    part.path = text + path_at;
    status = ferry_file_segment_document(segment->name, part.length, &doc);
    if (status != FERRY_OK)
        return status;
    return ferry_view_create_files(segment->engine, segment, doc, &layout, view_out);
}
