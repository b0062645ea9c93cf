/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backing file as this host has it: what it is, how long, and whether it opens. Any thread;
 * blocks in the file system. Changes nothing.
 */
#ifndef FERRY_RUNTIME_CATALOG_LOOK_H
#define FERRY_RUNTIME_CATALOG_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <ferry/status.h>

#include "base/compiler.h"

struct json_object;

enum ferry_look_kind {
    FERRY_LOOK_FILE = 0,
    FERRY_LOOK_DEVICE = 1, /* a block device */
    FERRY_LOOK_OTHER = 2,
};

struct ferry_look {
    enum ferry_look_kind kind;
    uint64_t size; /* of a device: by asking it, since its st_size is 0 */
    dev_t device;  /* that the file is on; of a device: its own number */
    ino_t inode;   /* of a device 0 */
};

/*
 * ERR_NOT_FOUND: nothing there. ERR_INVALID: neither a file nor a block device, or the path is not
 * absolute. ERR_IO, with the system's reason.
 */
FERRY_CHECKED enum ferry_status ferry_look_at(const char *path, struct ferry_look *look_out);
/* Can it be opened in this mode (O_RDONLY, O_RDWR)? ERR_IO with the system's reason. */
FERRY_CHECKED enum ferry_status ferry_look_open(const char *path, int flags);
/* Read [offset, offset + length). ERR_RANGE: it ends before; ERR_IO; ERR_NO_MEMORY. */
FERRY_CHECKED enum ferry_status ferry_look_read(const char *path, uint64_t offset, uint64_t length);
/* True if a direct read of its beginning was seen to work. */
bool ferry_look_direct(const char *path);
/*
 * The mount that holds @path, or would if it existed: {"point", "type", "source"}; NULL if the
 * kernel does not say.
 */
struct json_object *ferry_look_mount(const char *path);

#endif
