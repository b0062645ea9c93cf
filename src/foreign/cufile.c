/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads cuFile; see cufile.h. Any thread, under one mutex of the process, which is held over the
 * opening and closing of the driver and over nothing else. The library is never unloaded: it leaves
 * threads and exit handlers behind.
 */
#include "foreign/cufile.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

static_assert(sizeof(struct ferry_cufile_error) == 8, "cuFile error");
static_assert(sizeof(struct ferry_cufile_descr) == 24, "cuFile descriptor");
static_assert(offsetof(struct ferry_cufile_descr, handle) == 8, "cuFile descriptor");
static_assert(offsetof(struct ferry_cufile_descr, fs_ops) == 16, "cuFile descriptor");
static_assert(sizeof(struct ferry_cufile_io) == 64, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, base) == 8, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, file_offset) == 16, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, base_offset) == 24, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, size) == 32, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, file) == 40, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, opcode) == 48, "cuFile parameters");
static_assert(offsetof(struct ferry_cufile_io, cookie) == 56, "cuFile parameters");
static_assert(sizeof(struct ferry_cufile_event) == 24, "cuFile event");
static_assert(offsetof(struct ferry_cufile_event, status) == 8, "cuFile event");
static_assert(offsetof(struct ferry_cufile_event, ret) == 16, "cuFile event");
static_assert(offsetof(struct ferry_cufile_properties, max_direct_io_kib) == 16, "cuFile props");
static_assert(offsetof(struct ferry_cufile_properties, status_flags) == 24, "cuFile props");
static_assert(offsetof(struct ferry_cufile_properties, max_batch_io_size) == 48, "cuFile props");
static_assert(offsetof(struct ferry_cufile_properties, room) == 56, "cuFile props");
static_assert(sizeof(struct ferry_cufile_properties) == 256, "cuFile props");
static_assert(sizeof(off_t) == 8, "cuFile offsets");

/* The library's state is the process's; so is what we know of it. */
static struct {
    pthread_mutex_t mutex;
    struct ferry_cufile calls;
    unsigned users;
    bool loaded;
    bool failed; /* the driver could not be opened: never call anything again */
    pid_t pid;
    char reason[256];
} process = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct symbol {
    const char *name;
    void *slot; /* address of the pointer in the table */
    bool optional;
};

static enum ferry_status find_symbols(void *object, struct ferry_cufile *calls)
{
    const struct symbol symbols[] = {
        {"cuFileDriverOpen", &calls->driver_open, false},
        {"cuFileGetVersion", &calls->get_version, true},
        {"cuFileDriverGetProperties", &calls->get_properties, false},
        {"cuFileHandleRegister", &calls->handle_register, false},
        {"cuFileHandleDeregister", &calls->handle_deregister, false},
        {"cuFileBufRegister", &calls->buffer_register, false},
        {"cuFileBufDeregister", &calls->buffer_deregister, false},
        {"cuFileRead", &calls->read, false},
        {"cuFileWrite", &calls->write, false},
        {"cuFileBatchIOSetUp", &calls->batch_setup, false},
        {"cuFileBatchIOSubmit", &calls->batch_submit, false},
        {"cuFileBatchIOGetStatus", &calls->batch_status, false},
        {"cuFileBatchIOCancel", &calls->batch_cancel, false},
        {"cuFileBatchIODestroy", &calls->batch_destroy, false},
    };
    void *close_call = dlsym(object, "cuFileDriverClose_v2");

    for (size_t i = 0; i < FERRY_ARRAY_LEN(symbols); i++) {
        void *address = dlsym(object, symbols[i].name);

        if (address == NULL && !symbols[i].optional)
            return ferry_fail(FERRY_ERR_UNSUPPORTED, "cuFile: the library has no %s",
                              symbols[i].name);
        /* POSIX has functions come out of dlsym() as data. */
        memcpy(symbols[i].slot, &address, sizeof(address));
    }
    /* What the documentation calls cuFileDriverClose is a macro for the other name. */
    if (close_call == NULL)
        close_call = dlsym(object, "cuFileDriverClose");
    if (close_call == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "cuFile: the library has no cuFileDriverClose_v2");
    memcpy(&calls->driver_close, &close_call, sizeof(close_call));
    return FERRY_OK;
}

static enum ferry_status load(const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct ferry_cufile calls = {0};
    enum ferry_status status;

    if (object == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "cuFile: %s", dlerror());
    status = find_symbols(object, &calls);
    if (status != FERRY_OK) {
        dlclose(object);
        return status;
    }
    process.calls = calls;
    process.loaded = true;
    return FERRY_OK;
}

static enum ferry_status open_driver(void)
{
    struct ferry_cufile_error error = process.calls.driver_open();
    char buf[96];

    if (error.err == FERRY_CUFILE_SUCCESS) {
        process.pid = getpid();
        return FERRY_OK;
    }
    process.failed = true;
    snprintf(process.reason, sizeof(process.reason), "cuFile: the driver does not open: %s",
             ferry_cufile_error_text(error, buf, sizeof(buf)));
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "%s", process.reason);
}

enum ferry_status ferry_cufile_open(const char *path, const struct ferry_cufile **cufile_out)
{
    enum ferry_status status = FERRY_OK;

    pthread_mutex_lock(&process.mutex);
    if (process.failed)
        status = ferry_fail(FERRY_ERR_UNSUPPORTED, "%s", process.reason);
    else if (process.pid != 0 && process.pid != getpid())
        status = ferry_fail(FERRY_ERR_UNSUPPORTED,
                            "cuFile: the driver was opened by process %d and does not survive fork",
                            (int)process.pid);
    else if (!process.loaded)
        status = load(path);
    if (status == FERRY_OK && process.users == 0)
        status = open_driver();
    if (status == FERRY_OK) {
        process.users++;
        *cufile_out = &process.calls;
    }
    pthread_mutex_unlock(&process.mutex);
    return status;
}

void ferry_cufile_close(void)
{
    pthread_mutex_lock(&process.mutex);
    if (process.pid == getpid() && process.users > 0 && --process.users == 0) {
        process.calls.driver_close();
        process.pid = 0;
    }
    pthread_mutex_unlock(&process.mutex);
}

int ferry_cufile_version(const struct ferry_cufile *cufile)
{
    int version = 0;

    if (cufile->get_version == NULL || cufile->get_version(&version).err != FERRY_CUFILE_SUCCESS)
        return 1060;
    return version;
}

const char *ferry_cufile_error_text(struct ferry_cufile_error error, char *buf, size_t size)
{
    static const char *const texts[] = {
        [1] = "the driver is not initialised",
        [2] = "invalid properties",
        [3] = "a limit is not supported",
        [4] = "the version does not fit",
        [5] = "the version does not fit",
        [6] = "the driver is closing",
        [7] = "the platform is not supported",
        [8] = "input and output on this file is not supported",
        [9] = "device error",
        [10] = "the nvidia-fs driver failed",
        [11] = "CUDA failed",
        [12] = "the memory is not the device's",
        [13] = "the kind of memory is not supported",
        [14] = "the pointer is out of range",
        [15] = "another context",
        [16] = "the size of the mapping is invalid",
        [17] = "the range of the mapping is invalid",
        [18] = "the kind of file is not supported",
        [19] = "the flags of the file are not supported",
        [20] = "the file is not open for direct I/O",
        [22] = "invalid value",
        [23] = "the memory is registered already",
        [24] = "the memory is not registered",
        [25] = "permission denied, or a required file is missing",
        [26] = "the driver is open already",
        [27] = "the file is not registered",
        [28] = "the file is registered already",
        [29] = "the device is not found",
        [30] = "internal error; in a container /run/udev may be missing",
        [31] = "no new descriptor",
        [33] = "the nvidia-fs driver cannot be set up",
        [34] = "input and output is disabled",
        [35] = "the batch cannot be submitted",
        [36] = "memory cannot be pinned",
        [37] = "the queue of the batch is full",
        [38] = "asynchronous calls are not supported",
    };
    int index = error.err - FERRY_CUFILE_ERROR_BASE;
    const char *text = NULL;

    if (index > 0 && (size_t)index < FERRY_ARRAY_LEN(texts))
        text = texts[index];
    if (text != NULL && error.cu_err == 0)
        snprintf(buf, size, "%s (cuFile %d)", text, (int)error.err);
    else
        snprintf(buf, size, "%s (cuFile %d, CUDA %d)", text != NULL ? text : "error",
                 (int)error.err, (int)error.cu_err);
    return buf;
}
