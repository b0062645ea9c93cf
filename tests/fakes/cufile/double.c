/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcufile.so.0: the real symbol names, ordinary reads and writes behind them, and
 * a script of misbehaviour. Each batch that is submitted runs on a thread of its own. What a caller
 * must not do is counted as a violation. One mutex for everything; nothing is done for speed.
 */
#include "fakes/cufile/double.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "foreign/cufile.h"

#define EXPORT      __attribute__((visibility("default")))
#define ENTRIES_MAX 1024
#define EVENTS_MAX  (ENTRIES_MAX * 4)
#define RANGES_MAX  256
#define FIRST       1 /* marks the event that tells the end of its entry */

struct script {
    long version, max_direct_kib, batch_cap, driver_err, register_err, buf_err, delay_ms, poll_one,
        silent_polls, duplicate, stray, late, entry, status, over, submit_block_ms, dma_ms,
        destroy_ms, setup_every, stall_ms, full;
    char order[16], ret[16], getstatus[16], submit[16], cancel[16];
};

struct batch {
    unsigned capacity;
    unsigned count;
    struct ferry_cufile_io ios[ENTRIES_MAX];
    struct ferry_cufile_event events[EVENTS_MAX];
    unsigned event_count;
    unsigned told; /* entries that had their event */
    long polls;
    bool submitted, running, canceled, silenced, failed_once, destroyed;
    bool failed; /* some call or entry: it must not be used again */
    pthread_t thread;
    bool joinable;
};

struct file {
    int fd;
    bool open;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct script script;
static bool script_read;
static struct cufile_double_counts counts;
static bool driver_open, driver_failed, released;
static struct {
    const void *base;
    size_t length;
} ranges[RANGES_MAX];

static struct ferry_cufile_error answer(int err)
{
    return (struct ferry_cufile_error){.err = err};
}

static void violate(const char *text)
{
    if (counts.violations++ == 0)
        snprintf(counts.violation, sizeof(counts.violation), "%s", text);
}

static void nap_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    if (ms > 0)
        nanosleep(&pause, NULL);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the script ---- */

static void set_word(char *word)
{
    static const struct {
        const char *key;
        long *value;
    } numbers[] = {
        {"version", &script.version},
        {"max_direct_kib", &script.max_direct_kib},
        {"batch_cap", &script.batch_cap},
        {"driver_err", &script.driver_err},
        {"register_err", &script.register_err},
        {"buf_err", &script.buf_err},
        {"delay_ms", &script.delay_ms},
        {"poll_one", &script.poll_one},
        {"silent_polls", &script.silent_polls},
        {"duplicate", &script.duplicate},
        {"stray", &script.stray},
        {"late", &script.late},
        {"entry", &script.entry},
        {"status", &script.status},
        {"over", &script.over},
        {"submit_block_ms", &script.submit_block_ms},
        {"dma_ms", &script.dma_ms},
        {"destroy_ms", &script.destroy_ms},
        {"setup_every", &script.setup_every},
        {"stall_ms", &script.stall_ms},
        {"full", &script.full},
    };
    static const struct {
        const char *key;
        char *value;
    } words[] = {
        {"order", script.order},   {"ret", script.ret},       {"getstatus", script.getstatus},
        {"submit", script.submit}, {"cancel", script.cancel},
    };
    char *equals = strchr(word, '=');

    if (equals == NULL)
        return;
    *equals = '\0';
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(numbers[i].key, word) == 0) {
            *numbers[i].value = strtol(equals + 1, NULL, 0);
            return;
        }
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].key, word) == 0) {
            snprintf(words[i].value, sizeof(script.order), "%s", equals + 1);
            return;
        }
    }
    fprintf(stderr, "cuFile double: unknown word \"%s\"\n", word);
    abort();
}

static void read_script(const char *text)
{
    char copy[1024];
    char *rest = NULL;

    script = (struct script){
        .version = 1090, .max_direct_kib = 1024, .batch_cap = 128, .entry = -1, .status = -1};
    snprintf(copy, sizeof(copy), "%s", text != NULL ? text : "");
    for (char *word = strtok_r(copy, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest))
        set_word(word);
    script_read = true;
}

EXPORT cufile_double_script_fn ferry_cufile_double_script;
EXPORT void ferry_cufile_double_script(const char *text)
{
    pthread_mutex_lock(&mutex);
    read_script(text);
    released = false;
    pthread_mutex_unlock(&mutex);
}

EXPORT cufile_double_counts_fn ferry_cufile_double_counts;
EXPORT void ferry_cufile_double_counts(struct cufile_double_counts *counts_out)
{
    pthread_mutex_lock(&mutex);
    *counts_out = counts;
    pthread_mutex_unlock(&mutex);
}

EXPORT cufile_double_release_fn ferry_cufile_double_release;
EXPORT void ferry_cufile_double_release(void)
{
    pthread_mutex_lock(&mutex);
    released = true;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&mutex);
}

/* What every call begins with; unlocked by its end. */
static void enter(void)
{
    pthread_mutex_lock(&mutex);
    if (!script_read)
        read_script(getenv("FERRY_CUFILE_DOUBLE"));
    if (driver_failed) {
        fprintf(stderr, "cuFile double: called after its driver did not open\n");
        abort();
    }
}

static void enter_open(void)
{
    enter();
    if (!driver_open)
        violate("a call without an open driver");
}

/* ---- the driver ---- */

EXPORT struct ferry_cufile_error cuFileDriverOpen(void);
EXPORT struct ferry_cufile_error cuFileDriverOpen(void)
{
    int err;

    enter();
    err = (int)script.driver_err;
    counts.driver_opens++;
    if (err != 0)
        driver_failed = true;
    else if (driver_open)
        violate("the driver is open already");
    driver_open = err == 0;
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

EXPORT struct ferry_cufile_error cuFileDriverClose_v2(void);
EXPORT struct ferry_cufile_error cuFileDriverClose_v2(void)
{
    enter_open();
    counts.driver_closes++;
    driver_open = false;
    if (counts.setups != counts.destroys)
        violate("the driver is closed and a batch was not destroyed");
    if (counts.files_registered != counts.files_deregistered)
        violate("the driver is closed and a file is registered");
    if (counts.buffers_registered != counts.buffers_deregistered)
        violate("the driver is closed and memory is registered");
    pthread_mutex_unlock(&mutex);
    return answer(0);
}

#ifndef WITHOUT_VERSION
EXPORT struct ferry_cufile_error cuFileGetVersion(int *version);
EXPORT struct ferry_cufile_error cuFileGetVersion(int *version)
{
    enter_open();
    *version = (int)script.version;
    pthread_mutex_unlock(&mutex);
    return answer(0);
}
#endif

EXPORT struct ferry_cufile_error
cuFileDriverGetProperties(struct ferry_cufile_properties *properties);
EXPORT struct ferry_cufile_error
cuFileDriverGetProperties(struct ferry_cufile_properties *properties)
{
    enter_open();
    properties->max_direct_io_kib = (uint64_t)script.max_direct_kib;
    properties->max_batch_io_size = (uint32_t)script.batch_cap;
    properties->control_flags = 2;
    pthread_mutex_unlock(&mutex);
    return answer(0);
}

/* ---- files and memory ---- */

EXPORT struct ferry_cufile_error cuFileHandleRegister(void **handle,
                                                      struct ferry_cufile_descr *descr);
EXPORT struct ferry_cufile_error cuFileHandleRegister(void **handle,
                                                      struct ferry_cufile_descr *descr)
{
    struct file *file;
    int err;

    enter_open();
    err = (int)script.register_err;
    *handle = (void *)(uintptr_t)0xdeadbeef;
    if (descr->type != FERRY_CUFILE_HANDLE_FD || descr->fs_ops != NULL)
        violate("a descriptor of another type");
    if (err == 0) {
        file = calloc(1, sizeof(*file));
        file->fd = dup(descr->handle.fd);
        file->open = true;
        *handle = file;
        counts.files_registered++;
    }
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

EXPORT void cuFileHandleDeregister(void *handle);
EXPORT void cuFileHandleDeregister(void *handle)
{
    struct file *file = handle;

    enter_open();
    if (handle == (void *)(uintptr_t)0xdeadbeef || !file->open) {
        violate("a file is deregistered that is not registered");
    } else {
        counts.files_deregistered++;
        close(file->fd);
        free(file);
    }
    pthread_mutex_unlock(&mutex);
}

EXPORT struct ferry_cufile_error cuFileBufRegister(const void *base, size_t length, int flags);
EXPORT struct ferry_cufile_error cuFileBufRegister(const void *base, size_t length, int flags)
{
    int err;

    enter_open();
    err = (int)script.buf_err;
    if (base == NULL || length == 0 || flags != 0)
        violate("memory is registered with wrong arguments");
    for (int i = 0; err == 0 && i < RANGES_MAX; i++) {
        if (ranges[i].base == base)
            err = 5023;
    }
    for (int i = 0; err == 0 && i < RANGES_MAX; i++) {
        if (ranges[i].base != NULL)
            continue;
        ranges[i].base = base;
        ranges[i].length = length;
        counts.buffers_registered++;
        break;
    }
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

EXPORT struct ferry_cufile_error cuFileBufDeregister(const void *base);
EXPORT struct ferry_cufile_error cuFileBufDeregister(const void *base)
{
    int err = 5024;

    enter_open();
    for (int i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].base != base)
            continue;
        ranges[i].base = NULL;
        counts.buffers_deregistered++;
        err = 0;
        break;
    }
    if (err != 0)
        violate("memory is deregistered that is not registered");
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

#ifndef WITHOUT_READ
EXPORT ssize_t cuFileRead(void *handle, void *base, size_t size, off_t file_offset,
                          off_t base_offset);
EXPORT ssize_t cuFileRead(void *handle, void *base, size_t size, off_t file_offset,
                          off_t base_offset)
{
    return pread(((struct file *)handle)->fd, (char *)base + base_offset, size, file_offset);
}
#endif

EXPORT ssize_t cuFileWrite(void *handle, const void *base, size_t size, off_t file_offset,
                           off_t base_offset);
EXPORT ssize_t cuFileWrite(void *handle, const void *base, size_t size, off_t file_offset,
                           off_t base_offset)
{
    return pwrite(((struct file *)handle)->fd, (const char *)base + base_offset, size, file_offset);
}

/* ---- batches ---- */

EXPORT struct ferry_cufile_error cuFileBatchIOSetUp(void **handle, unsigned count);
EXPORT struct ferry_cufile_error cuFileBatchIOSetUp(void **handle, unsigned count)
{
    static long number;
    struct batch *batch;

    enter_open();
    if (count == 0 || count > ENTRIES_MAX)
        violate("a batch of a wrong size");
    if (script.setup_every > 0 && ++number % script.setup_every == 0) {
        pthread_mutex_unlock(&mutex);
        return answer(5030);
    }
    batch = calloc(1, sizeof(*batch));
    batch->capacity = count;
    counts.setups++;
    *handle = batch;
    pthread_mutex_unlock(&mutex);
    return answer(0);
}

static void push_event(struct batch *batch, void *cookie, int status, uint64_t ret)
{
    if (batch->event_count < EVENTS_MAX)
        batch->events[batch->event_count++] = (struct ferry_cufile_event){
            .cookie = cookie, .status = status, .ret = ret};
}

static int64_t run_io(const struct ferry_cufile_io *io)
{
    char *memory = (char *)io->base + io->base_offset;
    int fd = ((struct file *)io->file)->fd;
    uint64_t done = 0;

    while (done < io->size) {
        off_t at = io->file_offset + (int64_t)done;
        struct iovec iov = {.iov_base = memory + done, .iov_len = io->size - done};
        /* Like a device's: no sanitizer looks at what is read into memory that others read into. */
        ssize_t got = io->opcode == FERRY_CUFILE_READ ? preadv2(fd, &iov, 1, at, 0)
                                                      : pwritev2(fd, &iov, 1, at, 0);

        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

/* The real library opens the file a second time for what is not aligned; so do we. */
static int64_t run_any(const struct ferry_cufile_io *io)
{
    struct file *file = io->file;
    int64_t got = run_io(io);
    char path[64];
    int plain;

    if (got != -EINVAL)
        return got;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    plain = open(path, (io->opcode == FERRY_CUFILE_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (plain >= 0) {
        struct file other = {.fd = plain, .open = true};
        struct ferry_cufile_io copy = *io;

        copy.file = &other;
        got = run_io(&copy);
        close(plain);
    }
    return got;
}

static void end_entry(struct batch *batch, unsigned index, int64_t got)
{
    const struct ferry_cufile_io *io = &batch->ios[index];
    bool chosen = script.entry < 0 || script.entry == (long)index;
    int status = got >= 0 ? FERRY_CUFILE_COMPLETE : FERRY_CUFILE_FAILED;
    uint64_t ret = (uint64_t)got;

    if (chosen && script.status >= 0)
        status = (int)script.status;
    if (chosen && strcmp(script.ret, "short") == 0)
        ret = ret / 2;
    else if (chosen && strcmp(script.ret, "zero") == 0)
        ret = 0;
    else if (chosen && strcmp(script.ret, "over") == 0)
        ret = io->size + 4096;
    else if (chosen && strcmp(script.ret, "negative") == 0)
        ret = (uint64_t)-5;
    if (batch->silenced)
        return;
    if (script.stray != 0 && batch->event_count == 0) {
        push_event(batch, (void *)(uintptr_t)0x123456789abc, FERRY_CUFILE_COMPLETE, 4096);
        push_event(batch, NULL, FERRY_CUFILE_COMPLETE, 4096);
    }
    batch->failed = batch->failed || status != FERRY_CUFILE_COMPLETE || (int64_t)ret < 0;
    push_event(batch, io->cookie, status, ret);
    batch->events[batch->event_count - 1].padding = FIRST;
    if (script.duplicate != 0)
        push_event(batch, io->cookie, status, ret);
    if (script.late != 0)
        push_event(batch, io->cookie, FERRY_CUFILE_PENDING, 0);
    counts.bytes += got > 0 ? (uint64_t)got : 0;
}

/* A device that was not stopped: it goes on writing into the memory of its entries. */
static void write_on(const struct batch *batch, long ms)
{
    uint64_t until = now_ms() + (uint64_t)ms;
    unsigned char value = 0;

    while (now_ms() < until) {
        value++;
        for (unsigned i = 0; i < batch->count; i++) {
            const struct ferry_cufile_io *io = &batch->ios[i];

            if (io->opcode == FERRY_CUFILE_READ)
                memset((char *)io->base + io->base_offset, value, io->size < 64 ? io->size : 64);
        }
        nap_ms(1);
    }
}

static void *run_batch(void *arg)
{
    struct batch *batch = arg;
    unsigned count = batch->count;
    struct script own;
    bool canceled;

    pthread_mutex_lock(&mutex);
    own = script;
    pthread_mutex_unlock(&mutex);
    nap_ms(own.delay_ms);
    for (unsigned k = 0; k < count; k++) {
        unsigned index = strcmp(own.order, "reverse") == 0 ? count - 1 - k : k;
        const struct ferry_cufile_io *io = &batch->ios[index];
        int64_t got;

        pthread_mutex_lock(&mutex);
        canceled = batch->canceled;
        pthread_mutex_unlock(&mutex);
        if (canceled)
            break;
        if (io->file_offset == 0)
            nap_ms(own.stall_ms);
        if (own.full != 0 && io->opcode == FERRY_CUFILE_WRITE) {
            pthread_mutex_lock(&mutex);
            batch->silenced = true;
            batch->failed_once = false;
            pthread_mutex_unlock(&mutex);
            break;
        }
        got = run_any(io);
        pthread_mutex_lock(&mutex);
        end_entry(batch, index, got);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    canceled = batch->canceled;
    pthread_mutex_unlock(&mutex);
    if (canceled && own.dma_ms > 0)
        write_on(batch, own.dma_ms);
    pthread_mutex_lock(&mutex);
    batch->running = false;
    if (batch->destroyed) {
        pthread_mutex_unlock(&mutex);
        free(batch);
        return NULL;
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

static int check_entries(const struct batch *batch, unsigned count,
                         const struct ferry_cufile_io *ios)
{
    int err = 0;

    if (count == 0 || count > batch->capacity || count > (unsigned)script.batch_cap) {
        violate("more entries than a batch takes, or none");
        return 5030;
    }
    for (unsigned i = 0; i < count; i++) {
        if (ios[i].size == 0)
            violate("an entry of no bytes");
        if (ios[i].size > (uint64_t)script.max_direct_kib * 1024) {
            violate("an entry that is too long");
            err = 5030;
        }
        if (ios[i].mode != FERRY_CUFILE_MODE_BATCH || ios[i].file == NULL || ios[i].file_offset < 0)
            violate("an entry with wrong members");
        if (ios[i].cookie == NULL)
            violate("an entry without a cookie");
        for (int k = 0; k < RANGES_MAX; k++) {
            if (ranges[k].base == NULL || ranges[k].base != ios[i].base)
                continue;
            counts.registered_entries++;
            counts.last_base_offset = (uint64_t)ios[i].base_offset;
            if ((uint64_t)ios[i].base_offset + ios[i].size > ranges[k].length)
                violate("an entry beyond registered memory");
        }
    }
    return err;
}

/* Under the mutex: how long a submit may be kept. */
static void block_submit(void)
{
    long ms = script.submit_block_ms;

    if (ms > 0) {
        pthread_mutex_unlock(&mutex);
        nap_ms(ms);
        pthread_mutex_lock(&mutex);
    }
    while (ms < 0 && !released)
        pthread_cond_wait(&change, &mutex);
}

EXPORT struct ferry_cufile_error cuFileBatchIOSubmit(void *handle, unsigned count,
                                                     struct ferry_cufile_io *ios, unsigned flags);
EXPORT struct ferry_cufile_error cuFileBatchIOSubmit(void *handle, unsigned count,
                                                     struct ferry_cufile_io *ios, unsigned flags)
{
    struct batch *batch = handle;
    int err;

    enter_open();
    counts.submits++;
    counts.entries += count;
    if (flags != 0)
        violate("a submit with flags");
    if (batch->failed)
        violate("a batch is used again after an error");
    if (batch->told < batch->count)
        violate("a second submit before the first one's events were taken");
    err = check_entries(batch, count, ios);
    if (batch->joinable) {
        batch->joinable = false;
        pthread_mutex_unlock(&mutex);
        pthread_join(batch->thread, NULL);
        pthread_mutex_lock(&mutex);
    }
    block_submit();
    if (err == 0 && strcmp(script.submit, "before") == 0)
        err = 5030;
    if (err == 0) {
        batch->count = strcmp(script.submit, "half") == 0 ? (count + 1) / 2 : count;
        memcpy(batch->ios, ios, batch->count * sizeof(*ios));
        batch->submitted = batch->running = true;
        batch->canceled = batch->silenced = batch->failed_once = false;
        batch->polls = 0;
        batch->told = 0;
        batch->joinable = pthread_create(&batch->thread, NULL, run_batch, batch) == 0;
        if (strcmp(script.submit, "half") == 0)
            err = 5030;
    }
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

/* Under the mutex: whether this poll fails. */
static bool poll_fails(struct batch *batch)
{
    if (strcmp(script.getstatus, "always") == 0)
        return true;
    if (batch->failed_once)
        return false;
    if ((strcmp(script.getstatus, "once") == 0 && batch->polls == 2) ||
        (script.full != 0 && batch->silenced)) {
        batch->failed_once = true;
        batch->silenced = true;
        batch->failed = true;
        batch->event_count = 0;
        return true;
    }
    return false;
}

EXPORT struct ferry_cufile_error cuFileBatchIOGetStatus(void *handle, unsigned min,
                                                        unsigned *count_inout,
                                                        struct ferry_cufile_event *events,
                                                        struct timespec *timeout);
EXPORT struct ferry_cufile_error cuFileBatchIOGetStatus(void *handle, unsigned min,
                                                        unsigned *count_inout,
                                                        struct ferry_cufile_event *events,
                                                        struct timespec *timeout)
{
    struct batch *batch = handle;
    unsigned room = *count_inout;
    unsigned count;

    enter_open();
    counts.polls++;
    batch->polls++;
    if (min != 0 || timeout == NULL || timeout->tv_sec != 0 || timeout->tv_nsec != 0)
        violate("a poll that may block");
    if (poll_fails(batch)) {
        pthread_mutex_unlock(&mutex);
        return answer(5030);
    }
    count = batch->event_count < room ? batch->event_count : room;
    if (script.silent_polls < 0 || batch->polls <= script.silent_polls)
        count = 0;
    if (count > 1 && script.poll_one != 0)
        count = 1;
    for (unsigned i = 0; i < count; i++) {
        batch->told += batch->events[i].padding == FIRST;
        batch->events[i].padding = 0;
    }
    memcpy(events, batch->events, count * sizeof(*events));
    memmove(batch->events, batch->events + count, (batch->event_count - count) * sizeof(*events));
    batch->event_count -= count;
    *count_inout = count > 0 && script.over != 0 ? room + 1000 : count;
    pthread_mutex_unlock(&mutex);
    return answer(0);
}

EXPORT struct ferry_cufile_error cuFileBatchIOCancel(void *handle);
EXPORT struct ferry_cufile_error cuFileBatchIOCancel(void *handle)
{
    struct batch *batch = handle;
    int err = 0;

    enter_open();
    counts.cancels++;
    batch->canceled = true;
    if (strcmp(script.cancel, "error") == 0) {
        err = 5030;
    } else if (strcmp(script.cancel, "events") == 0) {
        for (unsigned i = 0; i < batch->count; i++)
            push_event(batch, batch->ios[i].cookie, FERRY_CUFILE_CANCELED, 0);
    } else {
        batch->silenced = true;
    }
    pthread_mutex_unlock(&mutex);
    return answer(err);
}

EXPORT void cuFileBatchIODestroy(void *handle);
EXPORT void cuFileBatchIODestroy(void *handle)
{
    struct batch *batch = handle;
    bool join;

    long destroy_ms;

    enter_open();
    counts.destroys++;
    destroy_ms = script.destroy_ms;
    pthread_mutex_unlock(&mutex);
    nap_ms(destroy_ms);
    pthread_mutex_lock(&mutex);
    /* Not a barrier while the device writes on: that is what the time of grace is for. */
    join = batch->joinable && !(batch->running && script.dma_ms > 0);
    if (!join && batch->joinable) {
        batch->canceled = true;
        batch->destroyed = true;
        pthread_detach(batch->thread);
    }
    batch->canceled = true;
    pthread_mutex_unlock(&mutex);
    if (join)
        pthread_join(batch->thread, NULL);
    if (join || !batch->joinable)
        free(batch);
}
