/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The logger's front end: levels, text or JSON lines to one descriptor (standard error by default),
 * or to a callback. Repeated messages are counted and not repeated: the same call site with the
 * same text within ten seconds prints once, then "repeated N times".
 *
 * Levels by volume: error and warn for people who operate (a background job failed and has nobody
 * to return to), info a few lines per engine life, debug per connection, trace per operation. The
 * level is checked before arguments are evaluated. Any thread may log; a line is written with one
 * write. A descriptor that takes no bytes for a tenth of a second loses lines, which are counted
 * and reported when it takes bytes again: logging delays nobody for ever. errno is left alone.
 */
#ifndef FERRY_BASE_LOG_H
#define FERRY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum ferry_log_level {
    FERRY_LOG_OFF = 0,
    FERRY_LOG_ERROR = 1,
    FERRY_LOG_WARN = 2,
    FERRY_LOG_INFO = 3,
    FERRY_LOG_DEBUG = 4,
    FERRY_LOG_TRACE = 5,
};

enum ferry_log_format {
    FERRY_LOG_TEXT = 0,
    FERRY_LOG_JSON = 1,
};

typedef void ferry_log_sink_fn(void *arg, enum ferry_log_level level, const char *line);

/* Process-wide; takes effect at once. Default: warn, text, standard error. */
void ferry_log_set_level(enum ferry_log_level level);
void ferry_log_set_format(enum ferry_log_format format);
/* NULL restores standard error. The sink runs under the logger's lock and must not log. */
void ferry_log_set_sink(ferry_log_sink_fn *sink, void *arg);
bool ferry_log_enabled(enum ferry_log_level level);

/* Time source of the ten-second window; NULL restores the system's. For tests and the model rig. */
struct ferry_clock;
void ferry_log_set_clock(const struct ferry_clock *clock);

/*
 * Write the "repeated N times" lines that are due later. Without new messages nothing else would;
 * an engine calls this when it closes.
 */
void ferry_log_flush(void);

/* @area is the room, such as "hp_tcp". The message is a sentence first, then key=value pairs. */
void ferry_log_write(enum ferry_log_level level, const char *area, const char *fmt, ...)
    FERRY_PRINTF(3, 4);

#define FERRY_LOG(level, area, ...)                                                                \
    do {                                                                                           \
        if (FERRY_UNLIKELY(ferry_log_enabled(level)))                                              \
            ferry_log_write(level, area, __VA_ARGS__);                                             \
    } while (0)

#define ferry_error(area, ...) FERRY_LOG(FERRY_LOG_ERROR, area, __VA_ARGS__)
#define ferry_warn(area, ...)  FERRY_LOG(FERRY_LOG_WARN, area, __VA_ARGS__)
#define ferry_info(area, ...)  FERRY_LOG(FERRY_LOG_INFO, area, __VA_ARGS__)
#define ferry_debug(area, ...) FERRY_LOG(FERRY_LOG_DEBUG, area, __VA_ARGS__)
#define ferry_trace(area, ...) FERRY_LOG(FERRY_LOG_TRACE, area, __VA_ARGS__)

#endif
