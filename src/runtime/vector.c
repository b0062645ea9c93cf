/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of pieces: checked and copied from the caller's request, so that the caller's array is free
 * again when submit returns, and the leases on the local memory of each piece. Runs on the
 * submitter's thread, and on whichever thread ends the task; allocates nothing.
 */
#include "base/checked.h"
#include "base/error.h"
#include "runtime/runtime.h"

static enum ferry_status check_list(const struct ferry_request *request, uint32_t index)
{
    if (request->piece_count == 0)
        return ferry_fail(FERRY_ERR_INVALID, "request %u: a list without pieces", index);
    if (request->piece_count > FERRY_PIECES_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "request %u: %u pieces, a request has at most %u",
                          index, request->piece_count, FERRY_PIECES_MAX);
    if (request->local != NULL || request->remote_offset != 0 || request->length != 0)
        return ferry_fail(FERRY_ERR_INVALID,
                          "request %u: pieces, and a range beside them; local, remote_offset and "
                          "length go with a request without pieces",
                          index);
    return FERRY_OK;
}

static enum ferry_status check_piece(const struct ferry_piece *piece, uint32_t index,
                                     uint32_t number)
{
    if (piece->local == NULL)
        return ferry_fail(FERRY_ERR_INVALID, "request %u, piece %u: local memory is NULL", index,
                          number);
    if (piece->length == 0)
        return ferry_fail(FERRY_ERR_INVALID, "request %u, piece %u: length is 0", index, number);
    if (!ferry_range_ok((uintptr_t)piece->local, piece->length))
        return ferry_fail(FERRY_ERR_INVALID,
                          "request %u, piece %u: local memory %p with %llu bytes wraps around",
                          index, number, piece->local, (unsigned long long)piece->length);
    if (!ferry_range_ok(piece->remote_offset, piece->length))
        return ferry_fail(FERRY_ERR_INVALID,
                          "request %u, piece %u: remote range %#llx with %llu bytes wraps around",
                          index, number, (unsigned long long)piece->remote_offset,
                          (unsigned long long)piece->length);
    return FERRY_OK;
}

static enum ferry_status copy_pieces(struct ferry_vector *vector,
                                     const struct ferry_request *request, uint32_t index,
                                     uint64_t *sum_out)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < request->piece_count; i++) {
        /* By value: what was checked is what is used. */
        struct ferry_piece piece = request->pieces[i];
        enum ferry_status status = check_piece(&piece, index, i);

        if (status != FERRY_OK)
            return status;
        vector->pieces[i] = (struct ferry_xfer_piece){
            .local = piece.local,
            .length = piece.length,
            .offset = sum,
            .remote_addr = piece.remote_offset,
        };
        if (!ferry_add_u64(sum, piece.length, &sum))
            return ferry_fail(FERRY_ERR_TOO_LARGE, "request %u: its pieces have over 2^64 bytes",
                              index);
    }
    *sum_out = sum;
    return FERRY_OK;
}

enum ferry_status ferry_vector_take(struct ferry_engine *engine, struct ferry_request *request,
                                    uint32_t index, struct ferry_vector **vector_out)
{
    enum ferry_status status = check_list(request, index);
    struct ferry_vector *vector;

    if (status != FERRY_OK)
        return status;
    vector = ferry_pool_acquire(&engine->vectors);
    if (vector == NULL)
        return FERRY_ERR_QUEUE_FULL;
    vector->piece_count = request->piece_count;
    vector->lease_count = 0;
    vector->split.resume = false;
    status = copy_pieces(vector, request, index, &request->length);
    if (status != FERRY_OK) {
        ferry_pool_release(&engine->vectors, vector);
        return status;
    }
    *vector_out = vector;
    return FERRY_OK;
}

static void release_leases(struct ferry_vector *vector)
{
    for (uint32_t i = 0; i < vector->lease_count; i++)
        ferry_lease_release(&vector->leases[i]);
    vector->lease_count = 0;
}

enum ferry_status ferry_vector_lease(struct ferry_vector *vector,
                                     struct ferry_registry_reader *reader, uint32_t index)
{
    struct ferry_lease last = {0};

    for (uint32_t i = 0; i < vector->piece_count; i++) {
        const struct ferry_xfer_piece *piece = &vector->pieces[i];
        struct ferry_lease_request lease = {
            .addr = (uintptr_t)piece->local,
            .length = piece->length,
            .access = FERRY_ACCESS_LOCAL,
        };
        enum ferry_status status;

        /* Pieces mostly lie in one range, one after the other: one lease serves them all. */
        if (ferry_lease_covers(&last, lease.addr, lease.length))
            continue;
        status = ferry_lease_acquire(reader, &lease, &last);
        if (status != FERRY_OK) {
            release_leases(vector);
            if (status != FERRY_ERR_INVALID)
                return status;
            return ferry_fail(status,
                              "request %u, piece %u: local memory %p with %llu bytes is not inside "
                              "one registered range",
                              index, i, (void *)piece->local, (unsigned long long)piece->length);
        }
        vector->leases[vector->lease_count++] = last;
    }
    return FERRY_OK;
}

void ferry_task_release_memory(struct ferry_task *task)
{
    struct ferry_vector *vector = task->vector;

    ferry_lease_release(&task->lease);
    if (vector == NULL)
        return;
    task->vector = NULL;
    release_leases(vector);
    ferry_pool_release(&task->batch->engine->vectors, vector);
}

bool ferry_task_revoked(const struct ferry_task *task)
{
    const struct ferry_vector *vector = task->vector;
    bool revoked = ferry_lease_revoked(&task->lease);

    for (uint32_t i = 0; vector != NULL && i < vector->lease_count && !revoked; i++)
        revoked = ferry_lease_revoked(&vector->leases[i]);
    return revoked;
}
