/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window between a file and a segment. Slots are used in turn, so pieces end in order and the
 * file is read and written front to back.
 *
 * Order of the end: cancel what is in flight, wait until each task has ended (the engine bounds
 * that), then free the memory. Memory that a task may still touch is not freed; closing the engine
 * ends it.
 */
#include "mover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

#define LOOK_MS         200   /* how long a signal may go unnoticed */
#define QUEUE_FULL_MS   10000 /* back-pressure for longer than this is a failure */
#define FREE_TIMEOUT_NS UINT64_C(5000000000)

volatile int ferry_mover_interrupted;

int ferry_mover_open(struct ferry_mover *mover)
{
    uint64_t pieces = (mover->length + mover->chunk_bytes - 1) / mover->chunk_bytes;
    uint32_t count = pieces < mover->window ? (uint32_t)pieces : mover->window;
    uint64_t size;
    void *memory;

    if (count == 0)
        count = 1;
    if (__builtin_mul_overflow(mover->chunk_bytes, (uint64_t)count + 1, &size)) {
        ferry_cli_say("chunk and window are too large together");
        return FERRY_EXIT_USAGE;
    }

    enum ferry_status status = ferry_memory_alloc(mover->engine, size, NULL, FERRY_PERMISSION_LOCAL,
                                                  &memory);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, "memory for the transfer");
    mover->memory = memory;
    for (; mover->slot_count < count; mover->slot_count++) {
        struct ferry_mover_slot *slot = &mover->slots[mover->slot_count];

        status = ferry_batch_create(mover->engine, 1, &slot->batch);
        if (status != FERRY_OK)
            return ferry_cli_fail(status, "batch");
        slot->memory = mover->memory + mover->slot_count * mover->chunk_bytes;
    }
    return FERRY_EXIT_OK;
}

/* A message about the file, with the bar out of its way. */
static int fail_file(const struct ferry_mover *mover, int err)
{
    ferry_progress_end(mover->progress);
    ferry_cli_say("%s: %s", mover->path, strerror(err));
    return FERRY_EXIT_ENVIRONMENT;
}

/* All of a piece from the file; a short file is an error. */
static int read_piece(const struct ferry_mover *mover, unsigned char *memory, uint64_t offset,
                      uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        ssize_t got = pread(mover->fd, memory + done, length - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_file(mover, errno);
        if (got == 0) {
            ferry_progress_end(mover->progress);
            ferry_cli_say("%s: became shorter, ends at %" PRIu64, mover->path, offset + done);
            return FERRY_EXIT_DATA;
        }
        done += (uint64_t)got;
    }
    return FERRY_EXIT_OK;
}

static int write_piece(const struct ferry_mover *mover, const unsigned char *memory,
                       uint64_t offset, uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        ssize_t put = pwrite(mover->fd, memory + done, length - done, (off_t)(offset + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return fail_file(mover, put < 0 ? errno : ENOSPC);
        done += (uint64_t)put;
    }
    return FERRY_EXIT_OK;
}

static int compare_piece(struct ferry_mover *mover, const struct ferry_mover_slot *slot)
{
    unsigned char *wanted = mover->memory + mover->slot_count * mover->chunk_bytes;
    int exit_status = read_piece(mover, wanted, slot->offset, slot->length);

    if (exit_status != FERRY_EXIT_OK || memcmp(wanted, slot->memory, slot->length) == 0)
        return exit_status;
    for (uint64_t i = 0; i < slot->length; i++) {
        if (wanted[i] != slot->memory[i]) {
            ferry_progress_end(mover->progress);
            ferry_cli_say("verify: first difference at offset %" PRIu64
                          ": %s has 0x%02x, the segment 0x%02x",
                          slot->offset + i, mover->path, wanted[i], slot->memory[i]);
            break;
        }
    }
    return FERRY_EXIT_DATA;
}

/* Back-pressure passes; anything else is told. */
static int submit(struct ferry_mover *mover, struct ferry_mover_slot *slot,
                  enum ferry_opcode opcode)
{
    const uint64_t until_ns = ferry_cli_deadline_ms(QUEUE_FULL_MS);
    struct ferry_request request = FERRY_REQUEST_INIT;
    enum ferry_status status = ferry_batch_reset(mover->engine, slot->batch);

    request.opcode = opcode;
    request.local = slot->memory;
    request.segment = mover->segment;
    request.remote_offset = mover->remote_addr + slot->offset;
    request.length = slot->length;
    request.transport = mover->transport;
    request.deadline_ns = FERRY_NO_DEADLINE;
    if (status == FERRY_OK)
        status = ferry_batch_submit(mover->engine, slot->batch, &request, 1);
    while (status == FERRY_ERR_QUEUE_FULL && ferry_cli_now_ns() < until_ns &&
           !ferry_mover_interrupted) {
        struct timespec pause = {.tv_nsec = 1000000};

        nanosleep(&pause, NULL);
        status = ferry_batch_submit(mover->engine, slot->batch, &request, 1);
    }
    if (status == FERRY_OK)
        return FERRY_EXIT_OK;
    ferry_progress_end(mover->progress);
    return ferry_cli_fail(status, "transfer");
}

/* Until the slot's task has ended. A signal cancels it; that it ends is the engine's promise. */
static int wait_for(struct ferry_mover *mover, struct ferry_mover_slot *slot)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    bool canceled = false;
    enum ferry_status status;
    char text[512];

    for (;;) {
        status = ferry_batch_wait(mover->engine, slot->batch, ferry_cli_deadline_ms(LOOK_MS), &sum);
        if (status != FERRY_ERR_TIMED_OUT)
            break;
        if (ferry_mover_interrupted && !canceled) {
            ferry_batch_cancel(mover->engine, slot->batch);
            canceled = true;
        }
    }
    if (status != FERRY_OK)
        return ferry_cli_fail(status, "wait");
    if (sum.state == FERRY_TASK_COMPLETED) {
        if (ferry_task_status(mover->engine, slot->batch, 0, &task) == FERRY_OK)
            mover->used_transport = task.transport;
        return FERRY_EXIT_OK;
    }
    if (ferry_mover_interrupted)
        return FERRY_EXIT_DATA;
    if (ferry_task_describe(mover->engine, slot->batch, 0, text, sizeof(text)) != FERRY_OK)
        text[0] = '\0';
    ferry_progress_end(mover->progress);
    ferry_cli_say("transfer at offset %" PRIu64 ": %s", slot->offset, text);
    return FERRY_EXIT_DATA;
}

static int start(struct ferry_mover *mover, enum ferry_mover_task task,
                 struct ferry_mover_slot *slot)
{
    if (task != FERRY_MOVER_UPLOAD)
        return submit(mover, slot, FERRY_READ);

    int exit_status = read_piece(mover, slot->memory, slot->offset, slot->length);

    return exit_status == FERRY_EXIT_OK ? submit(mover, slot, FERRY_WRITE) : exit_status;
}

static int finish(struct ferry_mover *mover, enum ferry_mover_task task,
                  struct ferry_mover_slot *slot)
{
    int exit_status = wait_for(mover, slot);

    if (exit_status != FERRY_EXIT_OK)
        return exit_status;
    if (task == FERRY_MOVER_DOWNLOAD)
        return write_piece(mover, slot->memory, slot->offset, slot->length);
    if (task == FERRY_MOVER_COMPARE)
        return compare_piece(mover, slot);
    return FERRY_EXIT_OK;
}

int ferry_mover_run(struct ferry_mover *mover, enum ferry_mover_task task)
{
    uint64_t begun = 0, ended = 0; /* pieces; begun - ended are in flight */
    uint64_t offset = 0, done = 0;
    int exit_status = FERRY_EXIT_OK;

    while (done < mover->length && exit_status == FERRY_EXIT_OK) {
        if (ferry_mover_interrupted)
            return FERRY_EXIT_DATA;
        if (offset < mover->length && begun - ended < mover->slot_count) {
            struct ferry_mover_slot *slot = &mover->slots[begun % mover->slot_count];
            uint64_t left = mover->length - offset;

            slot->offset = offset;
            slot->length = left < mover->chunk_bytes ? left : mover->chunk_bytes;
            exit_status = start(mover, task, slot);
            offset += slot->length;
            begun++;
            continue;
        }

        struct ferry_mover_slot *slot = &mover->slots[ended % mover->slot_count];

        exit_status = finish(mover, task, slot);
        done += slot->length;
        ended++;
        ferry_progress_update(mover->progress, done);
    }
    return exit_status;
}

void ferry_mover_close(struct ferry_mover *mover)
{
    for (uint32_t i = 0; i < mover->slot_count; i++)
        ferry_batch_cancel(mover->engine, mover->slots[i].batch);
    for (uint32_t i = 0; i < mover->slot_count; i++) {
        enum ferry_status status = ferry_batch_wait(mover->engine, mover->slots[i].batch,
                                                    ferry_cli_deadline_ms(60000), NULL);

        if (status != FERRY_OK)
            return; /* the engine's close ends it, and owns the memory until then */
        ferry_batch_destroy(mover->engine, mover->slots[i].batch);
    }
    if (mover->memory != NULL &&
        ferry_memory_free(mover->engine, mover->memory, FREE_TIMEOUT_NS) != FERRY_OK)
        ferry_cli_say("memory of the transfer: %s", ferry_last_error_text());
    mover->memory = NULL;
    mover->slot_count = 0;
}
