/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the files of access control; see secret_file.h. The checks are made on the open file, not
 * on its name, so that nothing can be exchanged in between. Opening must not wait: a pipe in the
 * place of a key file is refused, not waited for.
 */
#include "access/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "base/error.h"

/* A key in the place of the path of its file must not be shown to anybody. */
static bool looks_like_a_secret(const char *path)
{
    return strlen(path) >= 40 && strchr(path, '/') == NULL;
}

static enum ferry_status fail_open(const char *name, const char *path, int err)
{
    if (looks_like_a_secret(path))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "%s: no such file; the value looks like a key, expected the path of a "
                          "file that holds it",
                          name);
    return ferry_fail(FERRY_ERR_CONFIG, "%s: cannot open %.200s: %s", name, path, strerror(err));
}

static enum ferry_status check_file(const char *name, const char *path, const struct stat *file,
                                    bool secret)
{
    if (!S_ISREG(file->st_mode))
        return ferry_fail(FERRY_ERR_CONFIG, "%s: %.200s is not a regular file", name, path);
    if (!secret)
        return FERRY_OK;
    if (file->st_uid != geteuid() && file->st_uid != 0)
        return ferry_fail(
            FERRY_ERR_CONFIG,
            "%s: %.200s belongs to user %u, expected the user of this process (%u) or "
            "root: chown it",
            name, path, (unsigned)file->st_uid, (unsigned)geteuid());
    if ((file->st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return ferry_fail(
            FERRY_ERR_CONFIG,
            "%s: %.200s has mode %04o, others than its owner may use it: chmod 600 it", name, path,
            (unsigned)(file->st_mode & 07777));
    return FERRY_OK;
}

static enum ferry_status read_all(const char *name, const char *path, int fd, char *buf,
                                  size_t size, size_t *len_out)
{
    size_t len = 0;

    while (len < size) {
        ssize_t got = read(fd, buf + len, size - len);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ferry_fail(FERRY_ERR_CONFIG, "%s: cannot read %.200s: %s", name, path,
                              strerror(errno));
        if (got == 0)
            break;
        len += (size_t)got;
    }
    if (len == size)
        return ferry_fail(FERRY_ERR_CONFIG, "%s: %.200s is longer than %zu bytes", name, path,
                          size - 1);
    buf[len] = '\0';
    *len_out = len;
    return FERRY_OK;
}

enum ferry_status ferry_secret_file_read(const char *name, const char *path, bool secret, char *buf,
                                         size_t size, size_t *len_out)
{
    FERRY_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat file;
    enum ferry_status status;

    if (fd < 0)
        return fail_open(name, path, errno);
    if (fstat(fd, &file) != 0)
        return ferry_fail(FERRY_ERR_CONFIG, "%s: %.200s: %s", name, path, strerror(errno));
    status = check_file(name, path, &file, secret);
    if (status != FERRY_OK)
        return status;
    return read_all(name, path, fd, buf, size, len_out);
}

void *ferry_secret_alloc(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    /* Where the kernel does not know that, the memory still is the process's alone. */
    (void)madvise(memory, size, MADV_DONTDUMP);
    return memory;
}

void ferry_secret_free(void *memory, size_t size)
{
    if (memory == NULL)
        return;
    OPENSSL_cleanse(memory, size);
    munmap(memory, size);
}
