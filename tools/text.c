/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict numbers and sizes from the command line, and numbers for people. Pure; any thread.
 */
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool parse_digits(const char *text, uint64_t *number_out, const char **end_out)
{
    uint64_t number = 0;
    const char *at = text;

    if (at[0] == '0' && at[1] >= '0' && at[1] <= '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, (uint64_t)10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number))
            return false;
    }
    *number_out = number;
    *end_out = at;
    return at > text;
}

bool ferry_cli_parse_u64(const char *text, uint64_t *number_out)
{
    uint64_t number;
    const char *end;

    if (!parse_digits(text, &number, &end) || *end != '\0')
        return false;
    *number_out = number;
    return true;
}

bool ferry_cli_parse_size(const char *text, uint64_t *bytes_out)
{
    static const struct {
        const char *suffix;
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"KiB", UINT64_C(1) << 10},
        {"MiB", UINT64_C(1) << 20},
        {"GiB", UINT64_C(1) << 30},
        {"TiB", UINT64_C(1) << 40},
        {"kB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", UINT64_C(1000000000000)},
    };
    uint64_t number;
    const char *suffix;

    if (!parse_digits(text, &number, &suffix))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(suffix, units[i].suffix) == 0)
            return !__builtin_mul_overflow(number, units[i].bytes, bytes_out);
    }
    return false;
}

const char *ferry_cli_size(uint64_t bytes, char buf[FERRY_CLI_TEXT_SIZE])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    if (value == (double)(uint64_t)value || value >= 100) {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%.0f %s", value, units[unit]);
    } else {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%.*f %s", value >= 10 ? 1 : 2, value, units[unit]);
    }
    return buf;
}

const char *ferry_cli_rate(double bytes_per_s, char buf[FERRY_CLI_TEXT_SIZE])
{
    if (bytes_per_s >= 1e9) {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%.2f GB/s", bytes_per_s / 1e9);
    } else if (bytes_per_s >= 1e6) {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%.1f MB/s", bytes_per_s / 1e6);
    } else {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%.1f kB/s", bytes_per_s / 1e3);
    }
    return buf;
}

const char *ferry_cli_duration(double seconds, char buf[FERRY_CLI_TEXT_SIZE])
{
    /* Beyond a hundred hours nobody reads the seconds; the bound also keeps the cast defined. */
    if (!(seconds >= 0) || seconds >= 360000) {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "--:--");
        return buf;
    }
    unsigned total = (unsigned)(seconds + 0.5);

    if (total >= 3600) {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%u:%02u:%02u", total / 3600, total / 60 % 60,
                 total % 60);
    } else {
        snprintf(buf, FERRY_CLI_TEXT_SIZE, "%u:%02u", total / 60, total % 60);
    }
    return buf;
}

bool ferry_cli_split_place(const char *text, char *host, size_t host_size, uint16_t *port_out)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon == NULL || !ferry_cli_parse_u64(colon + 1, &port) || port > UINT16_MAX)
        return false;

    const char *first = text;
    size_t len = (size_t)(colon - text);

    if (text[0] == '[') {
        if (len < 3 || colon[-1] != ']')
            return false;
        first++;
        len -= 2;
    } else if (memchr(text, ':', len) != NULL) {
        return false; /* which colon would be the port's? */
    }
    if (len == 0 || len >= host_size)
        return false;
    memcpy(host, first, len);
    host[len] = '\0';
    *port_out = (uint16_t)port;
    return true;
}
