/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend on cuFile's batches. Translates; what to do about a failure is decided by batches.c:
 * one submit per use of a handle, a handle is dropped after any error, and what has no event is
 * presumed to run until the handle is destroyed and a time of grace is over.
 *
 * open runs on the dispatcher's thread, setup, submit, cancel and destroy on helpers, poll on
 * whichever of them has the batch; never two of these on one batch at once. Registrations come from
 * any thread; the mutex guards their list and is held over no call into the library.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"
#include "config/option.h"
#include "foreign/cufile.h"
#include "transport/file/backend.h"

#define VERSION_HOST_MEMORY 1070 /* older ones cannot read into memory of the host */
#define KNOWN_STATUS        0x7f

struct gds_batch {
    void *handle;
    struct ferry_cufile_io ios[FERRY_FILE_BATCH_MAX];
    struct ferry_cufile_event events[FERRY_FILE_BATCH_MAX];
};

struct gds_buffer {
    uint64_t base;
    uint64_t length;
};

struct gds_backend {
    struct ferry_file_backend base;
    const struct ferry_cufile *calls;
    int version;
    struct ferry_cufile_properties properties;
    pid_t pid;
    /* any thread, under the mutex */
    pthread_mutex_t mutex;
    struct gds_buffer *buffers; /* registered with the library */
    size_t buffer_count;
    size_t buffer_room;
    bool refused_told;
};

static struct gds_backend *gds_of(struct ferry_file_backend *backend)
{
    return FERRY_CONTAINER_OF(backend, struct gds_backend, base);
}

static enum ferry_status fail_call(const char *call, struct ferry_cufile_error error,
                                   enum ferry_status status)
{
    char buf[96];

    return ferry_fail(status, "%s: %s", call, ferry_cufile_error_text(error, buf, sizeof(buf)));
}

/* ---- files and memory ---- */

static enum ferry_status gds_file_register(struct ferry_file_backend *backend, int fd,
                                           void **file_out)
{
    struct gds_backend *gds = gds_of(backend);
    struct ferry_cufile_descr descr = {.type = FERRY_CUFILE_HANDLE_FD};
    struct ferry_cufile_error error;
    void *file = NULL;

    descr.handle.fd = fd;
    error = gds->calls->handle_register(&file, &descr);
    if (error.err != FERRY_CUFILE_SUCCESS)
        return fail_call("cuFileHandleRegister", error, FERRY_ERR_UNSUPPORTED);
    if (file == NULL)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "cuFileHandleRegister: success without a handle");
    *file_out = file;
    return FERRY_OK;
}

static void gds_file_unregister(struct ferry_file_backend *backend, void *file)
{
    gds_of(backend)->calls->handle_deregister(file);
}

static bool remember_buffer(struct gds_backend *gds, uint64_t base, uint64_t length)
{
    bool ok = true;

    pthread_mutex_lock(&gds->mutex);
    if (gds->buffer_count == gds->buffer_room) {
        size_t room = gds->buffer_room == 0 ? 16 : gds->buffer_room * 2;
        struct gds_buffer *grown = realloc(gds->buffers, room * sizeof(*grown));

        ok = grown != NULL;
        if (ok) {
            gds->buffers = grown;
            gds->buffer_room = room;
        }
    }
    if (ok)
        gds->buffers[gds->buffer_count++] = (struct gds_buffer){.base = base, .length = length};
    pthread_mutex_unlock(&gds->mutex);
    return ok;
}

static void gds_buffer_register(struct ferry_file_backend *backend, void *base, uint64_t length)
{
    struct gds_backend *gds = gds_of(backend);
    struct ferry_cufile_error error = gds->calls->buffer_register(base, length, 0);
    bool told;
    char buf[96];

    if (error.err == FERRY_CUFILE_SUCCESS) {
        if (!remember_buffer(gds, (uintptr_t)base, length))
            gds->calls->buffer_deregister(base);
        return;
    }
    pthread_mutex_lock(&gds->mutex);
    told = gds->refused_told;
    gds->refused_told = true;
    pthread_mutex_unlock(&gds->mutex);
    if (!told)
        ferry_warn("file", "cuFile does not register memory, it is used as it is: %s",
                   ferry_cufile_error_text(error, buf, sizeof(buf)));
}

static void gds_buffer_forget(struct ferry_file_backend *backend, void *base, uint64_t length)
{
    struct gds_backend *gds = gds_of(backend);
    bool found = false;

    pthread_mutex_lock(&gds->mutex);
    for (size_t i = 0; i < gds->buffer_count && !found; i++) {
        found = gds->buffers[i].base == (uintptr_t)base && gds->buffers[i].length == length;
        if (found)
            gds->buffers[i] = gds->buffers[--gds->buffer_count];
    }
    pthread_mutex_unlock(&gds->mutex);
    if (found)
        gds->calls->buffer_deregister(base);
}

/* The library uses a registration only if it is given its very beginning. */
static void place_memory(struct gds_backend *gds, const struct ferry_file_io *io,
                         struct ferry_cufile_io *out)
{
    uint64_t address = (uintptr_t)io->memory;

    out->base = io->memory;
    out->base_offset = 0;
    pthread_mutex_lock(&gds->mutex);
    for (size_t i = 0; i < gds->buffer_count; i++) {
        const struct gds_buffer *buffer = &gds->buffers[i];

        if (!ferry_range_within(address, io->length, buffer->base, buffer->length))
            continue;
        out->base = (void *)(uintptr_t)buffer->base;
        out->base_offset = (int64_t)(address - buffer->base);
        break;
    }
    pthread_mutex_unlock(&gds->mutex);
}

/* ---- batches ---- */

static enum ferry_status gds_setup(struct ferry_file_batch *batch)
{
    struct gds_backend *gds = gds_of(batch->backend);
    struct gds_batch *own = calloc(1, sizeof(*own));
    struct ferry_cufile_error error;

    if (own == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    error = gds->calls->batch_setup(&own->handle, gds->base.batch_entries);
    if (error.err != FERRY_CUFILE_SUCCESS || own->handle == NULL) {
        free(own);
        return fail_call("cuFileBatchIOSetUp", error, FERRY_ERR_LIMIT);
    }
    batch->native = own;
    return FERRY_OK;
}

static enum ferry_status gds_submit(struct ferry_file_batch *batch)
{
    struct gds_backend *gds = gds_of(batch->backend);
    struct gds_batch *own = batch->native;
    struct ferry_cufile_error error;

    if (gds->pid != getpid())
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "cuFile does not survive fork");
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct ferry_file_io *io = &batch->ios[i];

        own->ios[i] = (struct ferry_cufile_io){
            .mode = FERRY_CUFILE_MODE_BATCH,
            .file_offset = (int64_t)io->offset,
            .size = io->length,
            .file = io->file,
            .opcode = io->opcode == FERRY_READ ? FERRY_CUFILE_READ : FERRY_CUFILE_WRITE,
            .cookie = (void *)(uintptr_t)io->cookie,
        };
        place_memory(gds, io, &own->ios[i]);
    }
    error = gds->calls->batch_submit(own->handle, batch->count, own->ios, 0);
    if (error.err == FERRY_CUFILE_SUCCESS)
        return FERRY_OK;
    return fail_call("cuFileBatchIOSubmit", error, FERRY_ERR_DEVICE);
}

/* False: the entry has not ended. */
static bool event_result(const struct ferry_cufile_event *event, int64_t *result_out)
{
    int64_t ret = (int64_t)event->ret;

    switch (event->status) {
    case FERRY_CUFILE_WAITING:
    case FERRY_CUFILE_PENDING:
        return false;
    case FERRY_CUFILE_COMPLETE:
        *result_out = ret >= 0 ? ret : -EIO;
        return true;
    case FERRY_CUFILE_INVALID:
        *result_out = -EINVAL;
        return true;
    case FERRY_CUFILE_CANCELED:
        *result_out = -ECANCELED;
        return true;
    case FERRY_CUFILE_TIMEOUT:
        *result_out = -ETIMEDOUT;
        return true;
    default:
        *result_out = -EIO;
        return true;
    }
}

/* Exactly one bit of those that have a meaning. */
static bool status_known(int32_t status)
{
    return (status & ~KNOWN_STATUS) == 0 && status != 0 && (status & (status - 1)) == 0;
}

static enum ferry_status gds_poll(struct ferry_file_batch *batch, struct ferry_file_event *events,
                                  uint32_t room, uint32_t *count_out)
{
    struct gds_backend *gds = gds_of(batch->backend);
    struct gds_batch *own = batch->native;
    struct timespec now = {0};
    unsigned count = room < FERRY_FILE_BATCH_MAX ? room : FERRY_FILE_BATCH_MAX;
    unsigned asked = count;
    uint32_t taken = 0;
    struct ferry_cufile_error error = gds->calls->batch_status(own->handle, 0, &count, own->events,
                                                               &now);

    if (error.err != FERRY_CUFILE_SUCCESS)
        return fail_call("cuFileBatchIOGetStatus", error, FERRY_ERR_DEVICE);
    if (count > asked)
        return ferry_fail(FERRY_ERR_DEVICE, "cuFileBatchIOGetStatus: %u events, room for %u", count,
                          asked);
    for (unsigned i = 0; i < count; i++) {
        const struct ferry_cufile_event *event = &own->events[i];

        /* What is no end that we know is no proof that the memory is quiet. */
        if (!status_known(event->status))
            return ferry_fail(FERRY_ERR_DEVICE, "cuFileBatchIOGetStatus: unknown status %#x",
                              (unsigned)event->status);
        events[taken].cookie = (uintptr_t)event->cookie;
        if (event_result(event, &events[taken].result))
            taken++;
    }
    *count_out = taken;
    return FERRY_OK;
}

static void gds_cancel(struct ferry_file_batch *batch)
{
    struct gds_batch *own = batch->native;

    /* Nothing depends on its answer: no event may ever come after it. */
    gds_of(batch->backend)->calls->batch_cancel(own->handle);
}

static void gds_destroy(struct ferry_file_batch *batch)
{
    struct gds_batch *own = batch->native;

    gds_of(batch->backend)->calls->batch_destroy(own->handle);
    free(own);
}

/* ---- open and close ---- */

static void gds_close(struct ferry_file_backend *backend)
{
    struct gds_backend *gds = gds_of(backend);

    if (gds->calls != NULL) {
        for (size_t i = 0; i < gds->buffer_count; i++)
            gds->calls->buffer_deregister((void *)(uintptr_t)gds->buffers[i].base);
        ferry_cufile_close();
    }
    free(gds->buffers);
    pthread_mutex_destroy(&gds->mutex);
    free(gds);
}

static enum ferry_status look_at_driver(struct gds_backend *gds,
                                        const struct ferry_file_backend_env *env)
{
    struct ferry_cufile_properties *properties = &gds->properties;
    uint64_t slice = ferry_config_u64(env->config, "transports.file.slice_bytes");
    struct ferry_cufile_error error;
    uint32_t entries = env->batch_entries;

    gds->version = ferry_cufile_version(gds->calls);
    if (gds->version < VERSION_HOST_MEMORY)
        return ferry_fail(FERRY_ERR_UNSUPPORTED,
                          "cuFile %d.%d cannot read into memory of the host, 1.7 can",
                          gds->version / 1000, gds->version % 1000 / 10);
    error = gds->calls->get_properties(properties);
    if (error.err != FERRY_CUFILE_SUCCESS)
        return fail_call("cuFileDriverGetProperties", error, FERRY_ERR_UNSUPPORTED);
    if (properties->max_batch_io_size > 0 && properties->max_batch_io_size < entries)
        entries = properties->max_batch_io_size;
    gds->base.batch_entries = entries;
    gds->base.entry_bytes_max = slice;
    /* A longer entry makes the whole submit fail. */
    if (properties->max_direct_io_kib > 0 && properties->max_direct_io_kib < slice / 1024)
        gds->base.entry_bytes_max = properties->max_direct_io_kib * 1024;
    /* Without the kernel's part the library copies through buffers of its own. */
    gds->base.copies = properties->nvfs_major == 0 && properties->nvfs_minor == 0;
    return FERRY_OK;
}

static enum ferry_status gds_open(const struct ferry_file_backend_env *env,
                                  struct ferry_file_backend **backend_out)
{
    const char *path = ferry_config_string(env->config, "transports.gds.library");
    struct gds_backend *gds = calloc(1, sizeof(*gds));
    enum ferry_status status;

    if (gds == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "file: out of memory");
    pthread_mutex_init(&gds->mutex, NULL);
    gds->pid = getpid();
    status = ferry_cufile_open(path[0] != '\0' ? path : FERRY_CUFILE_LIBRARY, &gds->calls);
    if (status == FERRY_OK)
        status = look_at_driver(gds, env);
    if (status != FERRY_OK) {
        snprintf(env->reason, env->reason_size, "%s", ferry_last_error_text());
        gds_close(&gds->base);
        return status;
    }
    ferry_info("file", "cuFile serves files version=%d entries=%u entry_bytes=%llu copies=%d",
               gds->version, gds->base.batch_entries, (unsigned long long)gds->base.entry_bytes_max,
               gds->base.copies);
    *backend_out = &gds->base;
    return FERRY_OK;
}

const struct ferry_file_backend_ops ferry_file_gds = {
    .name = "gds",
    .traits = FERRY_FILE_NEEDS_REGISTER | FERRY_FILE_SILENT | FERRY_FILE_MAY_BLOCK |
              FERRY_FILE_ANY_ALIGNMENT | FERRY_FILE_NO_FENCE,
    .open = gds_open,
    .close = gds_close,
    .file_register = gds_file_register,
    .file_unregister = gds_file_unregister,
    .buffer_register = gds_buffer_register,
    .buffer_forget = gds_buffer_forget,
    .setup = gds_setup,
    .submit = gds_submit,
    .poll = gds_poll,
    .cancel = gds_cancel,
    .destroy = gds_destroy,
};
