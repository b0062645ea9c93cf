/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files. A file is opened by a helper when a request first needs it, for reading only until a
 * WRITE comes, and stays open until others need its descriptors or its segment is closed. Whichever
 * file the first open found is the file of this target: another one under the same name is an
 * error, until a refresh makes a new target.
 *
 * open_files is ordered by last use; only files without users are closed for others' sake.
 * Dispatcher's thread, except for what helpers run.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/file/internal.h"

#define ALIGN_DEFAULT 4096u
#define ALIGN_MAX     65536u
#define LOOKS_MAX     3 /* opens in a row that find another file each time */

/* What the kernel's struct statx has and this C library's does not: see statx(2), dio alignment. */
#define STATX_BYTES         256u
#define STATX_WANT_DIOALIGN 0x2000u
#define STATX_MASK_AT       0x00u
#define STATX_MEM_ALIGN_AT  0x98u
#define STATX_OFF_ALIGN_AT  0x9cu

/* ---- helper threads ---- */

static uint32_t align_of(uint32_t value, uint32_t fallback)
{
    bool power = value != 0 && (value & (value - 1)) == 0;

    return power && value <= ALIGN_MAX ? value : fallback;
}

/*
 * Direct I/O and the page cache must not meet inside a page or a block of the file system: the
 * cache reads the whole of it to change a part, and writes the whole back, over what direct I/O has
 * put beside it meanwhile. So direct I/O takes whole pages only, even where it could take less.
 */
static uint32_t whole_pages(uint32_t align, const struct stat *now)
{
    uint32_t page = align_of((uint32_t)sysconf(_SC_PAGESIZE), ALIGN_DEFAULT);
    uint32_t block = align_of((uint32_t)now->st_blksize, page);

    align = align < page ? page : align;
    return align < block ? block : align;
}

static void look_at_alignment(int fd, struct file_look *look)
{
    unsigned char buf[STATX_BYTES] = {0};
    uint32_t mask, memory, offset;

    look->offset_align = ALIGN_DEFAULT;
    look->memory_align = ALIGN_DEFAULT;
    if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_WANT_DIOALIGN, buf) != 0)
        return;
    memcpy(&mask, buf + STATX_MASK_AT, sizeof(mask));
    memcpy(&memory, buf + STATX_MEM_ALIGN_AT, sizeof(memory));
    memcpy(&offset, buf + STATX_OFF_ALIGN_AT, sizeof(offset));
    if ((mask & STATX_WANT_DIOALIGN) == 0 || offset == 0)
        return;
    look->offset_align = align_of(offset, ALIGN_DEFAULT);
    look->memory_align = align_of(memory, ALIGN_DEFAULT);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static bool fail_look(struct file_look *look, int err, const char *call)
{
    close_fd(&look->fd[0]);
    close_fd(&look->fd[1]);
    look->err = err;
    look->call = call;
    return false;
}

/* One descriptor, which must not hang on a pipe that took the file's place. */
static int open_plain(const char *path, int flags)
{
    int fd;

    do {
        fd = open(path, flags | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    } while (fd < 0 && errno == EINTR);
    /* cuFile refuses descriptors with this flag, and files do without. */
    if (fd >= 0 && fcntl(fd, F_SETFL, flags & O_DIRECT) != 0) {
        int err = errno;

        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

static bool look_at_file(const struct file_extent *extent, struct file_look *look, bool direct)
{
    int flags = look->write ? O_RDWR : O_RDONLY;
    struct stat now;

    look->fd[0] = open_plain(extent->path, flags);
    if (look->fd[0] < 0)
        return fail_look(look, errno, look->write ? "open for writing" : "open");
    if (fstat(look->fd[0], &now) != 0)
        return fail_look(look, errno, "stat");
    if (!S_ISREG(now.st_mode) && !S_ISBLK(now.st_mode))
        return fail_look(look, S_ISDIR(now.st_mode) ? EISDIR : EINVAL,
                         "open: neither a file nor a block device");
    look->device = now.st_dev;
    look->inode = now.st_ino;
    look->size = (uint64_t)now.st_size;
    if (S_ISBLK(now.st_mode) && ioctl(look->fd[0], BLKGETSIZE64, &look->size) != 0)
        return fail_look(look, errno, "size of the device");
    if (!direct)
        return true;
    look->fd[1] = open_plain(extent->path, flags | O_DIRECT);
    if (look->fd[1] < 0) {
        int err = errno;

        if (err == EMFILE || err == ENFILE)
            return fail_look(look, err, "open");
        return true; /* this file system has no direct I/O */
    }
    look_at_alignment(look->fd[1], look);
    look->offset_align = whole_pages(look->offset_align, &now);
    return true;
}

/* The two descriptors are of one file, also if its name is given to others meanwhile. */
static bool same_file(const struct file_look *look)
{
    struct stat now;

    return look->fd[1] < 0 || (fstat(look->fd[1], &now) == 0 && now.st_dev == look->device &&
                               now.st_ino == look->inode);
}

static void register_foreign(struct file_transport *ft, const struct file_extent *extent,
                             struct file_look *look)
{
    struct ferry_file_backend *backend = ft->slots[FILE_BACKEND_GDS].backend;

    if (backend == NULL || (extent->refused & (1U << FILE_BACKEND_GDS)) != 0)
        return;
    if (ferry_file_backend_register(backend, look->fd[1] >= 0 ? look->fd[1] : look->fd[0],
                                    &look->foreign) != FERRY_OK)
        snprintf(look->foreign_reason, sizeof(look->foreign_reason), "%s", ferry_last_error_text());
}

static void run_open(struct file_job *job)
{
    struct file_extent *extent = FERRY_CONTAINER_OF(job, struct file_extent, job);
    struct file_look *look = &extent->look;

    for (int i = 0; i < LOOKS_MAX; i++) {
        look->err = 0;
        if (!look_at_file(extent, look, job->ft->settings.direct))
            return;
        if (same_file(look)) {
            register_foreign(job->ft, extent, look);
            return;
        }
        fail_look(look, ESTALE, "open: the file is replaced all the time");
    }
}

static void close_mode(struct file_transport *ft, struct file_extent *extent, int write)
{
    if (extent->foreign[write] != NULL)
        ferry_file_backend_unregister(ft->slots[FILE_BACKEND_GDS].backend, extent->foreign[write]);
    extent->foreign[write] = NULL;
    close_fd(&extent->fd[write][0]);
    close_fd(&extent->fd[write][1]);
}

static void close_extent(struct file_transport *ft, struct file_extent *extent)
{
    int fd = extent->fd[1][0] >= 0 ? extent->fd[1][0] : extent->fd[1][1];

    /* Later nobody could ask for it any more. */
    if (extent->dirty && fd >= 0 && fdatasync(fd) != 0)
        extent->sync_err = errno;
    extent->dirty = false;
    close_mode(ft, extent, 0);
    close_mode(ft, extent, 1);
}

static void run_close(struct file_job *job)
{
    close_extent(job->ft, FERRY_CONTAINER_OF(job, struct file_extent, job));
}

static void run_target_close(struct file_job *job)
{
    struct file_target *target = FERRY_CONTAINER_OF(job, struct file_target, close_job);

    for (uint32_t i = 0; i < target->count; i++)
        close_extent(job->ft, &target->extents[i]);
}

/* ---- the dispatcher ---- */

static void set_closed(struct file_transport *ft, struct file_extent *extent)
{
    FERRY_ASSERT(extent->users == 0);
    if (extent->state == FILE_CLOSED)
        return;
    extent->state = FILE_CLOSED;
    ferry_list_remove(&extent->link);
    ft->open_count--;
    atomic_store(&ft->counters.open_files, ft->open_count);
}

void ferry_file_target_unref(struct file_transport *ft, struct file_target *target)
{
    FERRY_ASSERT(target->refs > 0);
    if (--target->refs == 0 && target->closing)
        ferry_file_target_close(ft, target);
}

static void wake_waiters(struct file_transport *ft, struct file_extent *extent)
{
    struct ferry_list *link;

    /* In front, and in their order: nobody else may have the file closed before they used it. */
    while (!ferry_list_empty(&extent->waiters)) {
        link = extent->waiters.prev;
        ferry_list_remove(link);
        ferry_list_push_front(&ft->active, link);
    }
}

void ferry_file_starved_wake(struct file_transport *ft)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&ft->starved)) != NULL)
        ferry_list_push_back(&ft->active, link);
}

/* What those who waited for an open are told. */
static void fail_waiters(struct file_transport *ft, struct file_extent *extent,
                         enum ferry_status status, int32_t native, const char *where)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&extent->waiters)) != NULL)
        ferry_file_op_stop(ft, FERRY_CONTAINER_OF(link, struct file_op, link), status, native,
                           where);
}

static bool evict_one(struct file_transport *ft);

/* No more descriptors: do with fewer, if there are any to give up. */
static bool shrink(struct file_transport *ft, struct file_extent *extent)
{
    if (extent->look.err != EMFILE && extent->look.err != ENFILE)
        return false;
    if (ft->open_count == 0)
        return false;
    if (ft->open_limit > ft->open_count)
        ft->open_limit = ft->open_count;
    while (!ferry_list_empty(&extent->waiters))
        ferry_list_push_back(&ft->starved, ferry_list_pop_front(&extent->waiters));
    evict_one(ft);
    return true;
}

static void open_failed(struct file_transport *ft, struct file_extent *extent)
{
    const struct file_look *look = &extent->look;
    enum ferry_status status = ferry_status_of_file_errno(look->err);

    if (shrink(ft, extent))
        return;
    ferry_file_target_say(extent->target, "%s: %s: %s", extent->path, look->call,
                          strerrordesc_np(look->err));
    if (look->err == ESTALE)
        status = FERRY_ERR_STALE_KEY;
    fail_waiters(ft, extent, status, look->err, "file: open");
}

static bool other_file(const struct file_extent *extent)
{
    return extent->known &&
           (extent->device != extent->look.device || extent->inode != extent->look.inode);
}

static void install(struct file_transport *ft, struct file_extent *extent)
{
    struct file_look *look = &extent->look;
    int mode = look->write ? 1 : 0;

    extent->known = true;
    extent->device = look->device;
    extent->inode = look->inode;
    extent->offset_align = look->offset_align;
    extent->memory_align = look->memory_align;
    extent->fd[mode][0] = look->fd[0];
    extent->fd[mode][1] = look->fd[1];
    extent->foreign[mode] = look->foreign;
    if (look->offset_align != 0 && ft->settings.slice_bytes % look->offset_align != 0)
        extent->offset_align = 0;
    if (look->foreign_reason[0] != '\0' && (extent->refused & (1U << FILE_BACKEND_GDS)) == 0) {
        extent->refused |= 1U << FILE_BACKEND_GDS;
        file_count(&ft->counters.fallbacks[FILE_BACKEND_GDS], 1);
        ferry_warn("file", "cuFile does not take the file, others serve it: %s path=%s",
                   look->foreign_reason, extent->path);
    }
}

static void finish_open(struct file_job *job)
{
    struct file_extent *extent = FERRY_CONTAINER_OF(job, struct file_extent, job);
    struct file_transport *ft = job->ft;
    struct file_look *look = &extent->look;
    bool had = extent->fd[0][0] >= 0 || extent->fd[1][0] >= 0;

    extent->state = FILE_OPEN;
    file_count(&ft->counters.opens, 1);
    if (look->err == 0 && other_file(extent)) {
        if (look->foreign != NULL)
            ferry_file_backend_unregister(ft->slots[FILE_BACKEND_GDS].backend, look->foreign);
        fail_look(look, ESTALE, "another file has taken its place; refresh the segment");
    }
    if (look->err == 0) {
        install(ft, extent);
        wake_waiters(ft, extent);
    } else {
        if (!had)
            set_closed(ft, extent);
        open_failed(ft, extent);
    }
    ferry_file_starved_wake(ft);
    ferry_file_target_unref(ft, extent->target);
}

static void finish_close(struct file_job *job)
{
    struct file_extent *extent = FERRY_CONTAINER_OF(job, struct file_extent, job);
    struct file_transport *ft = job->ft;

    ft->closing_count--;
    set_closed(ft, extent);
    wake_waiters(ft, extent);
    ferry_file_starved_wake(ft);
    ferry_file_target_unref(ft, extent->target);
}

/* Begin to close the file that was idle longest; false if all are in use. */
static bool evict_one(struct file_transport *ft)
{
    for (struct ferry_list *link = ft->open_files.next; link != &ft->open_files;
         link = link->next) {
        struct file_extent *extent = FERRY_CONTAINER_OF(link, struct file_extent, link);

        if (extent->state != FILE_OPEN || extent->users > 0)
            continue;
        extent->state = FILE_CLOSING;
        extent->target->refs++;
        ft->closing_count++;
        extent->job.run = run_close;
        extent->job.finish = finish_close;
        file_count(&ft->counters.evictions, 1);
        if (ferry_file_job_start(ft, &extent->job))
            return true;
        extent->state = FILE_OPEN;
        extent->target->refs--;
        ft->closing_count--;
        return false;
    }
    return false;
}

static void begin_open(struct file_transport *ft, struct file_extent *extent, struct file_op *op)
{
    if (extent->state == FILE_CLOSED) {
        ft->open_count++;
        atomic_store(&ft->counters.open_files, ft->open_count);
        ferry_list_push_back(&ft->open_files, &extent->link);
    }
    extent->state = FILE_OPENING;
    extent->target->refs++;
    extent->look = (struct file_look){.write = op->opcode == FERRY_WRITE, .fd = {-1, -1}};
    extent->job.run = run_open;
    extent->job.finish = finish_open;
    ferry_list_push_back(&extent->waiters, &op->link);
    if (ferry_file_job_start(ft, &extent->job))
        return;
    extent->target->refs--;
    extent->state = FILE_OPEN;
    if (extent->fd[0][0] < 0 && extent->fd[1][0] < 0)
        set_closed(ft, extent);
    fail_waiters(ft, extent, FERRY_ERR_LIMIT, 0, "file: no thread can be started to open files");
}

enum file_ready ferry_file_extent_ready(struct file_transport *ft, struct file_extent *extent,
                                        struct file_op *op)
{
    bool write = op->opcode == FERRY_WRITE;

    if (extent->state == FILE_OPEN && extent->fd[write ? 1 : 0][0] >= 0)
        return FILE_READY;
    /* What is open for writing serves readers, too, also while more is being opened. */
    if (!write && extent->state != FILE_CLOSING && (extent->fd[1][0] >= 0 || extent->fd[0][0] >= 0))
        return FILE_READY;
    if (extent->state == FILE_OPENING || extent->state == FILE_CLOSING) {
        ferry_list_push_back(&extent->waiters, &op->link);
        return FILE_WAITS;
    }
    if (extent->state == FILE_CLOSED && ft->open_count >= ft->open_limit) {
        if (ft->open_count - ft->closing_count >= ft->open_limit)
            evict_one(ft);
        ferry_list_push_back(&ft->starved, &op->link);
        return FILE_WAITS;
    }
    begin_open(ft, extent, op);
    return FILE_WAITS;
}

void ferry_file_extent_use(struct file_transport *ft, struct file_extent *extent)
{
    (void)ft;
    extent->users++;
}

void ferry_file_extent_release(struct file_transport *ft, struct file_extent *extent)
{
    FERRY_ASSERT(extent->users > 0);
    if (--extent->users > 0)
        return;
    ferry_list_remove(&extent->link);
    ferry_list_push_back(&ft->open_files, &extent->link);
    if (!ferry_list_empty(&ft->starved))
        ferry_file_starved_wake(ft);
}

int ferry_file_extent_fd(const struct file_extent *extent, enum ferry_opcode opcode, bool direct)
{
    if (opcode == FERRY_READ && extent->fd[0][0] >= 0)
        return extent->fd[0][direct ? 1 : 0];
    return extent->fd[1][direct ? 1 : 0];
}

void *ferry_file_extent_foreign(const struct file_extent *extent, enum ferry_opcode opcode)
{
    if (opcode == FERRY_READ && extent->foreign[0] != NULL)
        return extent->foreign[0];
    return extent->foreign[1];
}

static void finish_target_close(struct file_job *job)
{
    struct file_target *target = FERRY_CONTAINER_OF(job, struct file_target, close_job);
    struct file_transport *ft = job->ft;

    for (uint32_t i = 0; i < target->count; i++) {
        if (target->extents[i].state == FILE_CLOSED)
            continue;
        ft->closing_count--;
        set_closed(ft, &target->extents[i]);
    }
    ferry_file_target_free(target);
    ft->target_count--;
    ferry_file_starved_wake(ft);
}

void ferry_file_target_close(struct file_transport *ft, struct file_target *target)
{
    FERRY_ASSERT(target->closing);
    FERRY_ASSERT(target->refs == 0);
    /* From here on nobody else closes one of them. */
    for (uint32_t i = 0; i < target->count; i++) {
        if (target->extents[i].state == FILE_CLOSED)
            continue;
        FERRY_ASSERT(target->extents[i].state == FILE_OPEN);
        target->extents[i].state = FILE_CLOSING;
        ft->closing_count++;
    }
    target->close_job.run = run_target_close;
    target->close_job.finish = finish_target_close;
    if (ferry_file_job_start(ft, &target->close_job))
        return;
    /* No helper: then here; closing rarely takes time. */
    target->close_job.ft = ft;
    run_target_close(&target->close_job);
    finish_target_close(&target->close_job);
}
