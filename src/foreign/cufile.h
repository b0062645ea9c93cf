/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA cuFile as a table of native calls, loaded at run time. No policy: what may be called when,
 * and what an answer means, is decided by the backend of the file transport.
 *
 * The declarations are our own; the layout is that of x86-64 and aarch64 Linux, the same from
 * version 1.4 on, and is asserted in cufile.c. Structures that later versions may make longer are
 * passed in buffers with room behind them.
 *
 * The driver belongs to the process, so what is known about it does, too: it is opened for the
 * first user and closed after the last one, and once an open has failed nothing of the library is
 * called any more, since versions crash then. A child of fork has no driver.
 */
#ifndef FERRY_FOREIGN_CUFILE_H
#define FERRY_FOREIGN_CUFILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_CUFILE_LIBRARY "libcufile.so.0"

/* Error numbers start here; those above 5038 have changed their meaning between versions. */
#define FERRY_CUFILE_SUCCESS           0
#define FERRY_CUFILE_ERROR_BASE        5000
#define FERRY_CUFILE_ERROR_KNOWN_MAX   5038
#define FERRY_CUFILE_HANDLE_REGISTERED 5028

#define FERRY_CUFILE_HANDLE_FD  1
#define FERRY_CUFILE_READ       0
#define FERRY_CUFILE_WRITE      1
#define FERRY_CUFILE_MODE_BATCH 1

/* Bits of an event's status. */
enum ferry_cufile_event_status {
    FERRY_CUFILE_WAITING = 0x01,
    FERRY_CUFILE_PENDING = 0x02,
    FERRY_CUFILE_INVALID = 0x04,
    FERRY_CUFILE_CANCELED = 0x08,
    FERRY_CUFILE_COMPLETE = 0x10,
    FERRY_CUFILE_TIMEOUT = 0x20,
    FERRY_CUFILE_FAILED = 0x40,
};

struct ferry_cufile_error {
    int32_t err;
    int32_t cu_err; /* of CUDA, where err says so */
};

struct ferry_cufile_descr {
    int32_t type;
    int32_t padding;
    union {
        int32_t fd;
        void *handle;
    } handle;
    const void *fs_ops; /* always NULL */
};

struct ferry_cufile_io {
    int32_t mode;
    int32_t padding;
    void *base;
    int64_t file_offset;
    int64_t base_offset;
    uint64_t size;
    void *file;
    int32_t opcode;
    int32_t padding2;
    void *cookie;
};

struct ferry_cufile_event {
    void *cookie;
    int32_t status;
    int32_t padding;
    uint64_t ret; /* signed in truth: negative is an error */
};

struct ferry_cufile_properties {
    uint32_t nvfs_major;
    uint32_t nvfs_minor;
    uint64_t poll_threshold;
    uint64_t max_direct_io_kib;
    uint32_t status_flags;
    uint32_t control_flags;
    uint32_t features;
    uint32_t max_device_cache;
    uint32_t per_buffer_cache;
    uint32_t max_pinned;
    uint32_t max_batch_io_size;
    uint32_t max_batch_io_timeout_ms;
    unsigned char room[200]; /* for what later versions append */
};

/* The calls. All are there, but for get_version. */
struct ferry_cufile {
    struct ferry_cufile_error (*driver_open)(void);
    struct ferry_cufile_error (*driver_close)(void);
    struct ferry_cufile_error (*get_version)(int *version); /* NULL before 1.7 */
    struct ferry_cufile_error (*get_properties)(struct ferry_cufile_properties *properties);
    struct ferry_cufile_error (*handle_register)(void **file, struct ferry_cufile_descr *descr);
    void (*handle_deregister)(void *file);
    struct ferry_cufile_error (*buffer_register)(const void *base, size_t length, int flags);
    struct ferry_cufile_error (*buffer_deregister)(const void *base);
    ssize_t (*read)(void *file, void *base, size_t size, off_t file_offset, off_t base_offset);
    ssize_t (*write)(void *file, const void *base, size_t size, off_t file_offset,
                     off_t base_offset);
    struct ferry_cufile_error (*batch_setup)(void **batch, unsigned count);
    struct ferry_cufile_error (*batch_submit)(void *batch, unsigned count,
                                              struct ferry_cufile_io *ios, unsigned flags);
    struct ferry_cufile_error (*batch_status)(void *batch, unsigned min, unsigned *count_inout,
                                              struct ferry_cufile_event *events,
                                              struct timespec *timeout);
    struct ferry_cufile_error (*batch_cancel)(void *batch);
    void (*batch_destroy)(void *batch);
};

/*
 * Load the library under @path and open its driver; counted. Any thread; blocks. ERR_UNSUPPORTED:
 * not there, a required symbol is missing, the driver cannot be opened, an earlier open failed, or
 * this is a child of the process that opened it. The text says which.
 */
FERRY_CHECKED enum ferry_status ferry_cufile_open(const char *path,
                                                  const struct ferry_cufile **cufile_out);
/* One user fewer; the last one closes the driver. Does nothing in a child. */
void ferry_cufile_close(void);

/* 1000 * major + 10 * minor; 1060 where the library does not say, which is before 1.7. */
int ferry_cufile_version(const struct ferry_cufile *cufile);

/* A sentence about an error; @buf of at least 96 bytes holds what has no name. */
const char *ferry_cufile_error_text(struct ferry_cufile_error error, char *buf, size_t size);

#endif
