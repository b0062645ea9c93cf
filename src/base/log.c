/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logger: composes a line, counts repeats, and writes it under one lock. Any thread. It must
 * not block for ever on a descriptor that nobody reads, raise SIGPIPE in the host program,
 * allocate, or be called from a sink.
 *
 * Text from outside (peers, files) may be in a message: control bytes are escaped in both formats,
 * so one message is one line, and the JSON is valid UTF-8 whatever the bytes were.
 */
#include "base/log.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_SIZE     1024
#define AREA_SIZE        32
#define LINE_SIZE        (MESSAGE_SIZE * 6 + 256) /* every byte as \u00XX, and the frame */
#define REPEAT_SLOTS     64
#define REPEAT_WINDOW_NS (10 * FERRY_NS_PER_S)
#define WRITE_WAIT_MS    100
#define WRITE_STEP       4096u
#define LOCK_WAIT_S      1

/* One message that was printed lately. Its format string is the call site. */
struct repeat {
    const char *fmt; /* NULL: slot is free */
    enum ferry_log_level level;
    uint64_t printed_ns;
    uint64_t count; /* repeats not printed */
    char area[AREA_SIZE];
    char message[MESSAGE_SIZE];
};

/* any thread, atomic: read before the lock is taken, no partner */
static _Atomic int log_level = FERRY_LOG_WARN;

/* Guards everything below. Innermost lock of the library: nothing is called under it but the sink.
 */
static pthread_mutex_t log_lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

static struct {
    enum ferry_log_format format;
    ferry_log_sink_fn *sink;
    void *sink_arg;
    const struct ferry_clock *clock;
    bool stuck; /* the descriptor took no bytes the last time */
    uint64_t dropped;
    struct repeat repeats[REPEAT_SLOTS];
    char line[LINE_SIZE];
} logger;

static const char *const level_names[] = {
    [FERRY_LOG_OFF] = "off",   [FERRY_LOG_ERROR] = "error", [FERRY_LOG_WARN] = "warn",
    [FERRY_LOG_INFO] = "info", [FERRY_LOG_DEBUG] = "debug", [FERRY_LOG_TRACE] = "trace",
};

/*
 * False if the lock cannot be had: the caller is inside its own sink, or the process was forked
 * while another thread held the lock. Both lose the message rather than hang. The holder's own
 * waits are bounded, so the limit is for a forked child only; the wall clock is good enough for it,
 * and thread sanitizers do not know the call that takes a monotonic one.
 */
static bool lock_logger(void)
{
    struct timespec deadline = {0};

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += LOCK_WAIT_S;
    return pthread_mutex_timedlock(&log_lock, &deadline) == 0;
}

static void unlock_logger(void)
{
    pthread_mutex_unlock(&log_lock);
}

/* A bounded text in the making. What does not fit is left out. */
struct out {
    char *text;
    size_t size;
    size_t len;
};

static void put(struct out *out, const char *bytes, size_t len)
{
    if (len < out->size - out->len) {
        memcpy(out->text + out->len, bytes, len);
        out->len += len;
        out->text[out->len] = '\0';
    }
}

static void puts_out(struct out *out, const char *text)
{
    put(out, text, strlen(text));
}

/* @text with everything escaped that is not printable on one line, or not allowed in JSON. */
static void put_escaped(struct out *out, const char *text, bool json)
{
    const char *end = text + strlen(text);
    char code[8];

    while (text < end) {
        unsigned char byte = (unsigned char)*text;
        size_t len = ferry_utf8_length((const unsigned char *)text, (size_t)(end - text));

        if (json && (byte == '"' || byte == '\\')) {
            snprintf(code, sizeof(code), "\\%c", byte);
            puts_out(out, code);
            text++;
        } else if (len > 0 && byte >= 0x20 && byte != 0x7f) {
            put(out, text, len);
            text += len;
        } else if (json && byte < 0x80) {
            snprintf(code, sizeof(code), "\\u%04x", byte);
            puts_out(out, code);
            text++;
        } else if (json) {
            puts_out(out, "\xef\xbf\xbd"); /* U+FFFD: a byte that is no text */
            text++;
        } else {
            snprintf(code, sizeof(code), "\\x%02x", byte);
            puts_out(out, code);
            text++;
        }
    }
}

/* Wall-clock time in UTC. gmtime_r() would take the C library's time zone lock. */
static void put_time(struct out *out)
{
    struct timespec now = {0};
    char text[64];

    clock_gettime(CLOCK_REALTIME, &now);

    int64_t days = now.tv_sec / 86400;
    int64_t second = now.tv_sec % 86400;
    /* Years that begin in March put the leap day last; day 0 is 1 March of year 0, 719468 days
     * before 1 January 1970. */
    int64_t since = days + 719468;
    int64_t era = since / 146097;
    int64_t day_of_era = since % 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153;
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    int64_t year = era * 400 + year_of_era + (month >= 10);

    month = month < 10 ? month + 3 : month - 9;
    snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", (int)year, (int)month,
             (int)day, (int)(second / 3600), (int)(second / 60 % 60), (int)(second % 60),
             (int)(now.tv_nsec / 1000));
    puts_out(out, text);
}

/* Writes without SIGPIPE reaching the host: blocked here, and taken back if this write raised it.
 */
static ssize_t write_quietly(int fd, const char *line, size_t len)
{
    const struct timespec at_once = {0};
    sigset_t pipe_set, pending, before;

    sigemptyset(&pipe_set);
    sigaddset(&pipe_set, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE) == 1;

    pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
    ssize_t done = write(fd, line, len);
    int err = errno;

    if (done < 0 && err == EPIPE && !was_pending) {
        while (sigtimedwait(&pipe_set, NULL, &at_once) < 0 && errno == EINTR)
            continue;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = err;
    return done;
}

/* Under the lock. True if the descriptor takes a step at once. */
static bool await_room(bool may_wait)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    int ready;

    do {
        ready = poll(&fd, 1, may_wait ? WRITE_WAIT_MS : 0);
    } while (ready < 0 && errno == EINTR && may_wait);
    logger.stuck = ready == 0;
    return ready > 0 && (fd.revents & POLLOUT) != 0;
}

/*
 * Under the lock. False if the line, or the end of it, was lost. A pipe that polls as writable has
 * room for WRITE_STEP bytes; a longer write to it would block for as long as nobody reads. A full
 * pipe is waited for once; while it stays full, lines are dropped at once.
 */
static bool write_line(const char *line, size_t len)
{
    while (len > 0) {
        size_t step = len < WRITE_STEP ? len : WRITE_STEP;
        ssize_t done;

        if (!await_room(!logger.stuck))
            return false;
        done = write_quietly(STDERR_FILENO, line, step);
        if (done <= 0)
            return false;
        line += done;
        len -= (size_t)done;
    }
    return true;
}

/* Under the lock: compose and write one line. */
static void emit(enum ferry_log_level level, const char *area, const char *message)
{
    struct out out = {.text = logger.line, .size = sizeof(logger.line) - 1};

    out.text[0] = '\0';
    if (logger.format == FERRY_LOG_JSON) {
        puts_out(&out, "{\"time\":\"");
        put_time(&out);
        puts_out(&out, "\",\"level\":\"");
        puts_out(&out, level_names[level]);
        puts_out(&out, "\",\"area\":\"");
        put_escaped(&out, area, true);
        puts_out(&out, "\",\"message\":\"");
        put_escaped(&out, message, true);
        puts_out(&out, "\"}");
    } else {
        put_time(&out);
        puts_out(&out, " ");
        puts_out(&out, level_names[level]);
        puts_out(&out, " ");
        put_escaped(&out, area, false);
        puts_out(&out, ": ");
        put_escaped(&out, message, false);
    }
    if (logger.sink != NULL) {
        logger.sink(logger.sink_arg, level, logger.line);
        return;
    }
    /* One byte of the buffer is kept for the newline. */
    logger.line[out.len] = '\n';
    if (!write_line(logger.line, out.len + 1))
        logger.dropped++;
}

/* Under the lock: tell of lines that were lost, once the descriptor takes bytes again. */
static void report_dropped(void)
{
    char message[64];
    uint64_t dropped = logger.dropped;

    if (dropped == 0)
        return;
    logger.dropped = 0;
    snprintf(message, sizeof(message), "log lines were lost: count=%llu",
             (unsigned long long)dropped);
    emit(FERRY_LOG_WARN, "log", message);
    if (logger.dropped != 0)
        logger.dropped = dropped; /* this line was lost as well and counts for nothing */
}

/* Under the lock: print what the slot still counts, and free it. */
static void settle(struct repeat *slot)
{
    char message[MESSAGE_SIZE + 64];

    if (slot->fmt != NULL && slot->count > 0 && ferry_log_enabled(slot->level)) {
        snprintf(message, sizeof(message), "%s (repeated %llu times)", slot->message,
                 (unsigned long long)slot->count);
        emit(slot->level, slot->area, message);
    }
    slot->fmt = NULL;
    slot->count = 0;
}

/*
 * Under the lock. True if the message is a repeat and was counted. Otherwise it is remembered, in
 * place of the oldest one if all slots are taken.
 */
static bool count_repeat(enum ferry_log_level level, const char *area, const char *fmt,
                         const char *message)
{
    uint64_t now_ns = ferry_now_ns(logger.clock != NULL ? logger.clock : &ferry_clock_system);
    struct repeat *free_slot = NULL;
    struct repeat *oldest = &logger.repeats[0];

    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        struct repeat *slot = &logger.repeats[i];

        if (slot->fmt != NULL && now_ns - slot->printed_ns >= REPEAT_WINDOW_NS)
            settle(slot);
        if (slot->fmt == NULL) {
            free_slot = slot;
            continue;
        }
        if (slot->fmt == fmt && slot->level == level && strcmp(slot->area, area) == 0 &&
            strcmp(slot->message, message) == 0) {
            slot->count++;
            return true;
        }
        if (slot->printed_ns < oldest->printed_ns)
            oldest = slot;
    }
    if (free_slot == NULL) {
        settle(oldest);
        free_slot = oldest;
    }
    free_slot->fmt = fmt;
    free_slot->level = level;
    free_slot->printed_ns = now_ns;
    free_slot->count = 0;
    snprintf(free_slot->area, sizeof(free_slot->area), "%s", area);
    snprintf(free_slot->message, sizeof(free_slot->message), "%s", message);
    return false;
}

void ferry_log_write(enum ferry_log_level level, const char *area, const char *fmt, ...)
{
    char short_area[AREA_SIZE];
    char message[MESSAGE_SIZE];
    int saved_errno = errno;
    va_list args;

    FERRY_ASSERT(level > FERRY_LOG_OFF);
    FERRY_ASSERT(level <= FERRY_LOG_TRACE);
    snprintf(short_area, sizeof(short_area), "%s", area);
    va_start(args, fmt);
    int len = vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (len < 0) {
        snprintf(message, sizeof(message), "a message that cannot be formatted");
    } else if ((size_t)len >= sizeof(message)) {
        memcpy(message + sizeof(message) - 4, "...", 4);
    }

    if (lock_logger()) {
        if (!count_repeat(level, short_area, fmt, message)) {
            report_dropped();
            emit(level, short_area, message);
        }
        unlock_logger();
    }
    errno = saved_errno;
}

void ferry_log_flush(void)
{
    int saved_errno = errno;

    if (lock_logger()) {
        for (size_t i = 0; i < REPEAT_SLOTS; i++)
            settle(&logger.repeats[i]);
        report_dropped();
        unlock_logger();
    }
    errno = saved_errno;
}

void ferry_log_set_level(enum ferry_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

bool ferry_log_enabled(enum ferry_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

void ferry_log_set_format(enum ferry_log_format format)
{
    if (lock_logger()) {
        logger.format = format;
        unlock_logger();
    }
}

void ferry_log_set_sink(ferry_log_sink_fn *sink, void *arg)
{
    /* A caller that removes its sink frees the argument next: the lock has to be had. */
    int rc = pthread_mutex_lock(&log_lock);

    FERRY_ASSERT(rc == 0);
    logger.sink = sink;
    logger.sink_arg = arg;
    unlock_logger();
}

void ferry_log_set_clock(const struct ferry_clock *clock)
{
    int rc = pthread_mutex_lock(&log_lock);

    FERRY_ASSERT(rc == 0);
    logger.clock = clock;
    unlock_logger();
}
