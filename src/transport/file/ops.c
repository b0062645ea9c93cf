/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a request. Dispatcher's thread only.
 *
 *   begin --> active <--> waits for a file --> all issued --> pieces end --> [sync] --> ended
 *                \--stop: failure, cancel, deadline, revoke, close--> pieces end --> ended
 *                                                \--the device does not let go--> ended, and its
 *                                                   memory stays leased until it does
 *
 * The cause of a failure is the first one seen; the bytes that count as moved are those before the
 * first one that is not known to be there.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/fs.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/log.h"
#include "transport/file/internal.h"

/* How long a device gets to end what is under way before the request ends without it. */
#define FENCE_DEADLINE_NS (100 * FERRY_NS_PER_MS)
#define FENCE_NS          (1000 * FERRY_NS_PER_MS)

/* The longest WRITE in slices whose pieces each bring their own sync. */
#define DSYNC_SLICES_MAX 4u

static uint64_t moved_prefix(const struct file_op *op)
{
    uint64_t moved = op->good < op->next ? op->good : op->next;

    return moved < op->length ? moved : op->length;
}

/* Take the xfer from the op and say how it ended; ferry_xfer_end() is left to be called. */
static struct ferry_xfer *close_account(struct file_transport *ft, struct file_op *op)
{
    struct ferry_xfer *xfer = op->xfer;

    if (!op->stop) {
        file_count(&ft->counters.bytes_moved, op->length);
    } else {
        xfer->moved = moved_prefix(op);
        xfer->unapplied = op->unmapped;
    }
    file_count(&ft->counters.ended, 1);
    op->xfer = NULL;
    return xfer;
}

static void end_told(struct file_transport *ft)
{
    if (atomic_fetch_sub(&ft->unfinished, 1) == 1 && atomic_load(&ft->closing))
        ferry_futex_wake(&ft->unfinished, 1);
}

/* The admission is given back before the end is told, so that whoever sees it may submit. */
static void end_op(struct file_transport *ft, struct file_op *op)
{
    enum ferry_status status = op->stop ? op->status : FERRY_OK;
    int32_t native = op->stop ? op->native : 0;
    const char *where = op->stop ? op->where : NULL;
    struct file_target *target = op->target;
    struct ferry_xfer *xfer = NULL;

    FERRY_ASSERT(op->pieces == 0);
    FERRY_ASSERT(!op->syncing);
    ferry_list_remove(&op->all);
    ferry_list_remove(&op->link);
    if (op->xfer != NULL) {
        xfer = close_account(ft, op);
    } else {
        atomic_fetch_sub(&ft->counters.quarantined_now, 1);
        ferry_lease_release(&op->lease);
    }
    ferry_pool_release(&ft->ops, op);
    atomic_fetch_sub(&ft->outstanding, 1);
    /* The target may be closed by whoever hears of the end. */
    ferry_file_target_unref(ft, target);
    if (xfer == NULL)
        return;
    ferry_xfer_end(xfer, status, native, where);
    end_told(ft);
}

/* The device keeps the memory: end without it, and keep a lease of our own and the op. */
static void orphan(struct file_transport *ft, struct file_op *op)
{
    struct ferry_xfer *xfer = op->xfer;

    if (op->pieces > 0 &&
        (xfer->lease == NULL || ferry_lease_share(xfer->lease, &op->lease) != FERRY_OK)) {
        /* The memory cannot be kept back, so its owner must not have it yet. */
        op->orphan_at_ns = ferry_deadline_ns(ft->now_ns, FENCE_NS);
        return;
    }
    atomic_fetch_add(&ft->counters.quarantined_now, 1);
    file_count(&ft->counters.quarantined, 1);
    ferry_warn("file",
               "a device does not end what it was asked for; its memory stays registered until it "
               "does segment=%s",
               op->target->segment);
    close_account(ft, op);
    ferry_xfer_end(xfer, op->status, op->native, op->where);
    end_told(ft);
}

/* ---- sync ---- */

static void run_sync(struct file_job *job)
{
    struct file_op *op = FERRY_CONTAINER_OF(job, struct file_op, sync_job);
    const struct file_extent *extent = &op->target->extents[op->sync_extent];
    int fd = extent->fd[1][0] >= 0 ? extent->fd[1][0] : extent->fd[1][1];
    int result;

    do {
        result = job->ft->settings.durability == FILE_DURABILITY_FULL ? fsync(fd) : fdatasync(fd);
    } while (result != 0 && errno == EINTR);
    op->sync_err = result != 0 ? errno : 0;
}

static void sync_next(struct file_transport *ft, struct file_op *op);

static void finish_sync(struct file_job *job)
{
    struct file_op *op = FERRY_CONTAINER_OF(job, struct file_op, sync_job);
    struct file_transport *ft = job->ft;
    struct file_extent *extent = &op->target->extents[op->sync_extent];

    op->syncing = false;
    file_count(&ft->counters.syncs, 1);
    ferry_file_extent_release(ft, extent);
    if (op->sync_err != 0 && !op->stop) {
        ferry_file_target_say(op->target, "%s: sync: %s", extent->path,
                              strerrordesc_np(op->sync_err));
        ferry_file_op_bad(op, 0);
        op->stop = true;
        op->status = FERRY_ERR_IO;
        op->native = op->sync_err;
        op->where = "file: the bytes could not be made durable";
    }
    op->sync_extent++;
    sync_next(ft, op);
}

/* Sync the files of a WRITE one after the other; then the end. */
static void sync_next(struct file_transport *ft, struct file_op *op)
{
    for (; !op->stop && op->sync_extent <= op->extent; op->sync_extent++) {
        struct file_extent *extent = &op->target->extents[op->sync_extent];

        if (extent->sync_err != 0) {
            op->native = extent->sync_err;
            extent->sync_err = 0;
            op->stop = true;
            op->status = FERRY_ERR_IO;
            op->where = "file: the bytes could not be made durable";
            ferry_file_op_bad(op, 0);
            break;
        }
        /* One that is closed is synced first: its error, if any, is known afterwards. */
        if (extent->state == FILE_CLOSING) {
            ferry_list_push_back(&extent->waiters, &op->link);
            return;
        }
        if (extent->state != FILE_OPEN || (extent->fd[1][0] < 0 && extent->fd[1][1] < 0))
            continue;
        ferry_file_extent_use(ft, extent);
        op->sync_job.run = run_sync;
        op->sync_job.finish = finish_sync;
        op->syncing = true;
        if (ferry_file_job_start(ft, &op->sync_job))
            return;
        op->syncing = false;
        ferry_file_extent_release(ft, extent);
        op->stop = true;
        op->status = FERRY_ERR_LIMIT;
        op->where = "file: no thread can be started to sync";
    }
    end_op(ft, op);
}

void ferry_file_op_settle(struct file_transport *ft, struct file_op *op)
{
    if (op->pieces > 0 || op->syncing)
        return;
    if (op->stop) {
        end_op(ft, op);
    } else if (op->next == op->length) {
        if (op->needs_sync)
            sync_next(ft, op);
        else
            end_op(ft, op);
    }
}

/* ---- stop ---- */

void ferry_file_op_bad(struct file_op *op, uint64_t at)
{
    if (at < op->good)
        op->good = at;
}

void ferry_file_op_stop(struct file_transport *ft, struct file_op *op, enum ferry_status status,
                        int32_t native, const char *where)
{
    uint64_t fence_ns = status == FERRY_ERR_TIMED_OUT ? FENCE_DEADLINE_NS : FENCE_NS;

    if (op->stop)
        return;
    op->stop = true;
    op->status = status;
    op->native = native;
    op->where = where;
    op->orphan_at_ns = ferry_deadline_ns(ft->now_ns, fence_ns);
    if (op->orphan_at_ns < ft->next_deadline_ns)
        ft->next_deadline_ns = op->orphan_at_ns;
    ferry_list_remove(&op->link);
    ferry_file_op_bad(op, op->next);
    /* Keep the op while its pieces are dropped. */
    op->pieces++;
    ferry_file_pieces_drop(ft, op);
    op->pieces--;
    if (op->pieces > 0)
        ferry_file_batches_cancel(ft);
    ferry_file_op_settle(ft, op);
}

static void look_at(struct file_transport *ft, struct file_op *op)
{
    if (op->xfer == NULL)
        return;
    if (op->stop) {
        if (ft->now_ns >= op->orphan_at_ns)
            orphan(ft, op);
        return;
    }
    if (atomic_load(&ft->closing))
        ferry_file_op_stop(ft, op, FERRY_ERR_CLOSING, 0, "file: the engine is closing");
    else if (ferry_xfer_cancel_asked(op->xfer))
        ferry_file_op_stop(ft, op, FERRY_ERR_CANCELED, 0, "file: canceled by the caller");
    else if (ft->now_ns >= op->xfer->deadline_ns)
        ferry_file_op_stop(ft, op, FERRY_ERR_TIMED_OUT, 0, "file: the deadline passed");
}

void ferry_file_ops_look(struct file_transport *ft)
{
    struct ferry_list round;
    struct ferry_list *link;

    /* Ends take ops off the list while it is walked: each is looked at once. */
    ferry_list_init(&round);
    while ((link = ferry_list_pop_front(&ft->all)) != NULL)
        ferry_list_push_back(&round, link);
    ft->next_deadline_ns = FERRY_NEVER_NS;
    while ((link = ferry_list_pop_front(&round)) != NULL) {
        struct file_op *op = FERRY_CONTAINER_OF(link, struct file_op, all);

        ferry_list_push_back(&ft->all, link);
        look_at(ft, op);
    }
    for (link = ft->all.next; link != &ft->all; link = link->next) {
        const struct file_op *op = FERRY_CONTAINER_OF(link, struct file_op, all);
        uint64_t at_ns = FERRY_NEVER_NS;

        if (op->xfer != NULL)
            at_ns = op->stop ? op->orphan_at_ns : op->xfer->deadline_ns;
        if (at_ns < ft->next_deadline_ns)
            ft->next_deadline_ns = at_ns;
    }
}

/* ---- begin and step ---- */

void ferry_file_op_begin(struct file_transport *ft, struct file_op *op)
{
    const struct file_target *target = op->target;

    ferry_list_push_back(&ft->all, &op->all);
    op->target->refs++;
    op->started = true;
    if (op->xfer->deadline_ns < ft->next_deadline_ns)
        ft->next_deadline_ns = op->xfer->deadline_ns;
    if (atomic_load(&ft->closing)) {
        ferry_file_op_stop(ft, op, FERRY_ERR_CLOSING, 0, "file: the engine is closing");
    } else if (ferry_xfer_cancel_asked(op->xfer)) {
        ferry_file_op_stop(ft, op, FERRY_ERR_CANCELED, 0, "file: canceled by the caller");
    } else if (!ferry_range_within(op->addr, op->length, 0, target->length)) {
        ferry_file_op_stop(ft, op, FERRY_ERR_RANGE, 0, "file: the range is not inside the segment");
    } else if (op->length == 0) {
        ferry_file_op_settle(ft, op);
    } else {
        op->extent = ferry_file_target_find(target, op->addr);
        op->first_extent = op->extent;
        op->sync_extent = op->extent;
        op->needs_sync = op->opcode == FERRY_WRITE &&
                         ft->settings.durability != FILE_DURABILITY_NONE;
        if (op->needs_sync && ft->settings.durability == FILE_DURABILITY_DATA && !ft->no_dsync &&
            op->length <= DSYNC_SLICES_MAX * ft->settings.slice_bytes)
            op->needs_sync = false; /* its pieces bring their own */
        ferry_list_push_back(&ft->active, &op->link);
    }
}

static uint64_t size_now(int fd)
{
    struct stat now;
    uint64_t size = 0;

    if (fstat(fd, &now) != 0)
        return 0;
    if (S_ISBLK(now.st_mode))
        return ioctl(fd, BLKGETSIZE64, &size) == 0 ? size : 0;
    return (uint64_t)now.st_size;
}

/*
 * How much of the extent the file really has. A WRITE past the end would make it longer, and no
 * error would tell that somebody had cut it; a direct READ over the end would touch memory behind
 * what it reads. One look per request and file; who cuts it in the middle of a request shows in a
 * short count.
 */
static uint64_t look_at_size(const struct file_op *op, const struct file_extent *extent)
{
    uint64_t size = size_now(ferry_file_extent_fd(extent, op->opcode, false));
    uint64_t end = size > extent->file_offset ? size - extent->file_offset : 0;

    return end < extent->length ? end : extent->length;
}

static bool long_enough(struct file_transport *ft, struct file_op *op, struct file_extent *extent)
{
    uint64_t at = op->addr + op->next - extent->start;
    uint64_t want = op->addr + op->length - extent->start;

    if (op->sized_extent != op->extent + 1) {
        op->sized_extent = op->extent + 1;
        op->extent_end = look_at_size(op, extent);
    }
    if (want > extent->length)
        want = extent->length;
    /* A READ gets what is there before it fails; of a WRITE nothing is written in this file. */
    if (op->opcode == FERRY_READ ? at < op->extent_end : want <= op->extent_end)
        return true;
    ferry_file_target_say(op->target, "%s: ends at offset %llu, the segment says %llu",
                          extent->path, (unsigned long long)(extent->file_offset + op->extent_end),
                          (unsigned long long)(extent->file_offset + extent->length));
    ferry_file_op_stop(ft, op, FERRY_ERR_TRUNCATED, 0,
                       op->opcode == FERRY_READ ? "file: read past the end of the file"
                                                : "file: write past the end of the file");
    return false;
}

bool ferry_file_op_step(struct file_transport *ft, struct file_op *op)
{
    struct file_extent *extent = &op->target->extents[op->extent];
    struct file_piece *piece;
    uint64_t at = op->addr + op->next;

    if (op->next == op->length) {
        sync_next(ft, op); /* it waited for a file to be closed */
        return false;
    }
    while (at >= extent->start + extent->length)
        extent = &op->target->extents[++op->extent];
    if (extent->path == NULL) {
        op->unmapped = op->next == 0 || op->opcode == FERRY_READ;
        ferry_file_target_say(op->target, "%s", extent->problem);
        ferry_file_op_stop(ft, op, FERRY_ERR_NOT_MAPPED, 0,
                           "file: this host has no path to the file");
        return false;
    }
    if (ferry_file_extent_ready(ft, extent, op) != FILE_READY || !long_enough(ft, op, extent))
        return false;
    piece = ferry_file_piece_new(ft, op);
    piece->extent = extent;
    piece->at = op->next;
    op->next += ferry_file_piece_span(ft, op, extent, op->length - op->next);
    piece->end = op->next;
    ferry_file_extent_use(ft, extent);
    /* Keep the op: a piece that cannot be issued ends at once. */
    op->pieces++;
    ferry_file_piece_issue(ft, piece);
    op->pieces--;
    if (op->next < op->length && !op->stop)
        return true;
    ferry_file_op_settle(ft, op);
    return false;
}
