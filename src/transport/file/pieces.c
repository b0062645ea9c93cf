/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces: a range of one request in one file, moved by one entry after the other until it is full,
 * the file ends, or an error says why not. Dispatcher's thread only.
 *
 * A short count is no success: the rest is issued again, and only a count of 0 ends it. What a
 * backend refuses goes to the next one, never before its first try is known to be over.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/log.h"
#include "transport/file/internal.h"

/* Interrupted or refused for the moment so often in a row, and it is an error. */
#define TRIES_MAX 1000u

struct file_piece *ferry_file_piece_new(struct file_transport *ft, struct file_op *op)
{
    struct ferry_list *link = ferry_list_pop_front(&ft->free_pieces);
    struct file_piece *piece;

    FERRY_ASSERT(link != NULL);
    piece = FERRY_CONTAINER_OF(link, struct file_piece, link);
    piece->op = op;
    piece->bounce = NULL;
    piece->refused = 0;
    piece->tries = 0;
    op->pieces++;
    return piece;
}

static void drop_bounce(struct file_transport *ft, struct file_piece *piece)
{
    if (piece->bounce == NULL)
        return;
    ferry_list_push_front(&ft->free_bounces, &piece->bounce->link);
    piece->bounce = NULL;
}

static void free_piece(struct file_transport *ft, struct file_piece *piece)
{
    struct file_op *op = piece->op;

    drop_bounce(ft, piece);
    ferry_file_extent_release(ft, piece->extent);
    ferry_list_push_front(&ft->free_pieces, &piece->link);
    op->pieces--;
    ferry_file_op_settle(ft, op);
}

void ferry_file_pieces_drop(struct file_transport *ft, struct file_op *op)
{
    struct ferry_list kept;
    struct ferry_list *link;

    ferry_list_init(&kept);
    while ((link = ferry_list_pop_front(&ft->redo)) != NULL) {
        struct file_piece *piece = FERRY_CONTAINER_OF(link, struct file_piece, link);

        if (piece->op != op) {
            ferry_list_push_back(&kept, link);
            continue;
        }
        ferry_file_op_bad(op, piece->at);
        free_piece(ft, piece);
    }
    while ((link = ferry_list_pop_front(&kept)) != NULL)
        ferry_list_push_back(&ft->redo, link);
}

/* ---- which backend, which way ---- */

/*
 * The first backend that takes the piece and has room; none waits for room in cuFile while another
 * could serve. False: none at all, or with @full_out set, none now.
 */
static bool pick(struct file_transport *ft, const struct file_piece *piece,
                 enum file_backend_kind *kind_out, bool *full_out)
{
    uint32_t refused = piece->refused | piece->extent->refused;

    *full_out = false;
    for (int kind = 0; kind < FILE_BACKEND_COUNT; kind++) {
        if (ft->slots[kind].backend == NULL || (refused & (1U << kind)) != 0)
            continue;
        /* It was not registered, or not in this mode. */
        if (kind == FILE_BACKEND_GDS &&
            ferry_file_extent_foreign(piece->extent, piece->op->opcode) == NULL)
            continue;
        *kind_out = (enum file_backend_kind)kind;
        if (ferry_file_batch_room(ft, *kind_out) != NULL)
            return true;
        *full_out = true;
    }
    return false;
}

static uint64_t in_file(const struct file_piece *piece)
{
    const struct file_extent *extent = piece->extent;

    return extent->file_offset + (piece->op->addr + piece->at - extent->start);
}

static struct ferry_file_grain grain_of(const struct file_transport *ft,
                                        const struct file_extent *extent, enum ferry_opcode opcode)
{
    struct ferry_file_grain grain = {
        .offset_align = extent->offset_align,
        .memory_align = extent->memory_align,
        .slice_bytes = ft->settings.slice_bytes,
        .bounce = !ferry_list_empty(&ft->free_bounces),
    };

    if (extent->direct_refused || ferry_file_extent_fd(extent, opcode, true) < 0)
        grain.offset_align = 0;
    return grain;
}

uint64_t ferry_file_piece_span(struct file_transport *ft, struct file_op *op,
                               struct file_extent *extent, uint64_t left)
{
    struct ferry_file_grain grain = grain_of(ft, extent, op->opcode);
    uint64_t at = op->addr + op->next;
    uint64_t room = extent->start + op->extent_end - at;

    if (left > room)
        left = room;
    /* cuFile aligns by itself; what it gives up is cut again when it is issued anew. */
    if (ft->slots[FILE_BACKEND_GDS].backend != NULL &&
        (extent->refused & (1U << FILE_BACKEND_GDS)) == 0 &&
        ferry_file_extent_foreign(extent, op->opcode) != NULL)
        return left < grain.slice_bytes ? left : grain.slice_bytes;
    return ferry_file_cut(&grain, extent->file_offset + (at - extent->start), left,
                          (uintptr_t)op->local + op->next)
        .length;
}

/* The entry for what is left of a piece. */
static void plan(struct file_transport *ft, struct file_piece *piece, enum file_backend_kind kind,
                 struct ferry_file_io *io)
{
    const struct ferry_file_backend *backend = ft->slots[kind].backend;
    struct file_op *op = piece->op;
    struct file_extent *extent = piece->extent;
    struct ferry_file_grain grain = grain_of(ft, extent, op->opcode);
    unsigned char *memory = op->local + piece->at;
    uint64_t left = piece->end - piece->at;

    if ((backend->ops->traits & FERRY_FILE_ANY_ALIGNMENT) != 0) {
        piece->part = left < grain.slice_bytes ? left : grain.slice_bytes;
        piece->way = backend->copies ? FERRY_FILE_COMPAT : FERRY_FILE_FOREIGN;
        io->file = ferry_file_extent_foreign(extent, op->opcode);
    } else {
        struct ferry_file_cut cut = ferry_file_cut(&grain, in_file(piece), left, (uintptr_t)memory);

        piece->part = cut.length;
        piece->way = cut.way;
    }
    if (piece->part > backend->entry_bytes_max)
        piece->part = backend->entry_bytes_max;
    if (piece->way == FERRY_FILE_BOUNCE) {
        piece->bounce = FERRY_CONTAINER_OF(ferry_list_pop_front(&ft->free_bounces),
                                           struct file_bounce, link);
        if (op->opcode == FERRY_WRITE)
            memcpy(piece->bounce->memory, memory, piece->part);
        memory = piece->bounce->memory;
    }
    io->opcode = op->opcode;
    io->memory = memory;
    io->length = piece->part;
    io->offset = in_file(piece);
    io->fd = ferry_file_extent_fd(
        extent, op->opcode, piece->way == FERRY_FILE_DIRECT || piece->way == FERRY_FILE_BOUNCE);
    io->dsync = false;
    if (op->opcode == FERRY_WRITE && ft->settings.durability != FILE_DURABILITY_NONE) {
        io->dsync = !op->needs_sync && !ft->no_dsync &&
                    (backend->ops->traits & FERRY_FILE_ANY_ALIGNMENT) == 0;
        if (!io->dsync) {
            op->needs_sync = true;
            extent->dirty = true;
        }
    }
}

void ferry_file_piece_issue(struct file_transport *ft, struct file_piece *piece)
{
    enum file_backend_kind kind;
    struct ferry_file_io io = {0};
    bool full;

    FERRY_ASSERT(piece->at < piece->end);
    if (pick(ft, piece, &kind, &full)) {
        plan(ft, piece, kind, &io);
        ferry_file_batch_add(ft, ferry_file_batch_room(ft, kind), piece, &io);
    } else if (full) {
        ferry_list_push_front(&ft->redo, &piece->link);
    } else {
        ferry_file_op_bad(piece->op, piece->at);
        ferry_file_op_stop(ft, piece->op, FERRY_ERR_LIMIT, 0,
                           "file: no backend can serve the request");
        free_piece(ft, piece);
    }
}

/* ---- how it ended ---- */

static const char *where_of(const struct file_piece *piece)
{
    return piece->op->opcode == FERRY_READ ? "file: read" : "file: write";
}

static void fail_piece(struct file_transport *ft, struct file_piece *piece, int err)
{
    struct file_op *op = piece->op;

    ferry_file_target_say(op->target, "%s: %s at offset %llu: %s", piece->extent->path,
                          op->opcode == FERRY_READ ? "read" : "write",
                          (unsigned long long)in_file(piece), strerrordesc_np(err));
    ferry_file_op_bad(op, piece->at);
    ferry_file_op_stop(ft, op, ferry_status_of_file_errno(err), err, where_of(piece));
    free_piece(ft, piece);
}

/* A count of 0: the file ended before its segment does, or the device took nothing. */
static void fail_short(struct file_transport *ft, struct file_piece *piece)
{
    struct file_op *op = piece->op;

    if (op->opcode == FERRY_WRITE) {
        fail_piece(ft, piece, EIO);
        return;
    }
    ferry_file_target_say(op->target, "%s: ends at offset %llu, the segment says %llu",
                          piece->extent->path, (unsigned long long)in_file(piece),
                          (unsigned long long)(piece->extent->file_offset + piece->extent->length));
    ferry_file_op_bad(op, piece->at);
    ferry_file_op_stop(ft, op, FERRY_ERR_TRUNCATED, 0, "file: read past the end of the file");
    free_piece(ft, piece);
}

static void redo(struct file_transport *ft, struct file_piece *piece)
{
    drop_bounce(ft, piece);
    if (piece->op->stop) {
        ferry_file_op_bad(piece->op, piece->at);
        free_piece(ft, piece);
        return;
    }
    ferry_list_push_back(&ft->redo, &piece->link);
}

void ferry_file_piece_retry(struct file_transport *ft, struct file_piece *piece,
                            enum file_backend_kind except)
{
    piece->refused |= 1U << except;
    file_count(&ft->counters.fallbacks[except], 1);
    redo(ft, piece);
}

static void refuse_direct(struct file_transport *ft, struct file_extent *extent, int err)
{
    if (extent->direct_refused)
        return;
    extent->direct_refused = true;
    file_count(&ft->counters.direct_refused, 1);
    ferry_warn("file", "direct I/O is refused, the page cache is used: %s path=%s",
               strerrordesc_np(err), extent->path);
}

static void handle_error(struct file_transport *ft, struct file_piece *piece, int err)
{
    bool direct = piece->way == FERRY_FILE_DIRECT || piece->way == FERRY_FILE_BOUNCE;

    if ((err == EINTR || err == EAGAIN) && ++piece->tries < TRIES_MAX) {
        redo(ft, piece);
    } else if (err == ECANCELED) {
        /* Only what was asked to end does; the cancel may have been meant for its neighbours. */
        redo(ft, piece);
    } else if (err == EOPNOTSUPP && !ft->no_dsync && piece->op->opcode == FERRY_WRITE &&
               ft->settings.durability != FILE_DURABILITY_NONE) {
        ft->no_dsync = true;
        piece->op->needs_sync = true;
        redo(ft, piece);
    } else if (direct && (err == EINVAL || err == EOPNOTSUPP)) {
        refuse_direct(ft, piece->extent, err);
        redo(ft, piece);
    } else {
        fail_piece(ft, piece, err);
    }
}

static bool is_foreign(const struct file_piece *piece)
{
    return piece->way == FERRY_FILE_FOREIGN || piece->way == FERRY_FILE_COMPAT;
}

void ferry_file_piece_done(struct file_transport *ft, struct file_piece *piece, int64_t result)
{
    uint64_t got = (uint64_t)result;

    if (result < 0) {
        handle_error(ft, piece, result < -4095 ? EIO : (int)-result);
        return;
    }
    if (got > piece->part) {
        /* Who says so cannot be believed in anything. */
        fail_piece(ft, piece, EIO);
        return;
    }
    if (piece->bounce != NULL && piece->op->opcode == FERRY_READ)
        memcpy(piece->op->local + piece->at, piece->bounce->memory, got);
    file_count(&ft->counters.ways[piece->way].ops, 1);
    file_count(&ft->counters.ways[piece->way].bytes, got);
    piece->at += got;
    piece->tries = 0;
    if (got < piece->part && is_foreign(piece)) {
        /* Whether the file ends there, only the system itself says. */
        file_count(&ft->counters.short_io, 1);
        ferry_file_piece_retry(ft, piece, FILE_BACKEND_GDS);
    } else if (piece->at == piece->end) {
        free_piece(ft, piece);
    } else if (got == 0) {
        fail_short(ft, piece);
    } else {
        if (got < piece->part)
            file_count(&ft->counters.short_io, 1);
        redo(ft, piece);
    }
}
