/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves a range between a file and a segment through a window of registered buffers, several
 * requests in flight. One thread. Payload passes through own memory and never through a mapping of
 * the file, so a file that somebody cuts is an error and not a fault.
 */
#ifndef FERRY_TOOLS_MOVER_H
#define FERRY_TOOLS_MOVER_H

#include <stdbool.h>
#include <stdint.h>

#include <ferry/ferry.h>

#include "progress.h"

#define FERRY_MOVER_WINDOW_MAX 256u

enum ferry_mover_task {
    FERRY_MOVER_UPLOAD,   /* file to segment */
    FERRY_MOVER_DOWNLOAD, /* segment to file */
    FERRY_MOVER_COMPARE,  /* read the segment and compare with the file */
};

struct ferry_mover_slot {
    unsigned char *memory;
    uint64_t batch;
    uint64_t offset; /* of the piece in flight */
    uint64_t length;
};

struct ferry_mover {
    /* set by the caller */
    struct ferry_engine *engine;
    uint64_t segment;
    uint64_t remote_addr;
    uint64_t length;
    int fd;
    const char *path;
    const char *transport; /* NULL: any */
    uint64_t chunk_bytes;
    uint32_t window; /* 1..FERRY_MOVER_WINDOW_MAX */
    struct ferry_progress *progress;
    /* its own */
    struct ferry_mover_slot slots[FERRY_MOVER_WINDOW_MAX];
    unsigned char *memory; /* one piece per slot, and one to compare with */
    uint32_t slot_count;
    const char *used_transport; /* of the latest task that ended well, or NULL */
};

/* Set by a signal handler: the run ends soon, with FERRY_EXIT_DATA and no message. */
extern volatile int ferry_mover_interrupted;

/* Exit statuses; a message was printed unless it is FERRY_EXIT_OK or the run was interrupted. */
int ferry_mover_open(struct ferry_mover *mover);
int ferry_mover_run(struct ferry_mover *mover, enum ferry_mover_task task);
/* Accepts one that did not open. */
void ferry_mover_close(struct ferry_mover *mover);

#endif
