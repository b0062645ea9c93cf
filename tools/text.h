/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict numbers and sizes from the command line, and numbers for people. Pure; any thread.
 */
#ifndef FERRY_TOOLS_TEXT_H
#define FERRY_TOOLS_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only, no sign, no blank, no leading zero. */
bool ferry_cli_parse_u64(const char *text, uint64_t *number_out);

/* "4096", "4096B", or with KiB, MiB, GiB, TiB, kB, MB, GB, TB. "64M" says neither and is refused.
 */
bool ferry_cli_parse_size(const char *text, uint64_t *bytes_out);

#define FERRY_CLI_SIZE_HELP "bytes, or a whole number of KiB, MiB, GiB or TiB, such as 64MiB"
#define FERRY_CLI_TEXT_SIZE 32

/* "64 MiB", "1.5 GiB", "17 B": three digits that count. */
const char *ferry_cli_size(uint64_t bytes, char buf[FERRY_CLI_TEXT_SIZE]);

/* "3.21 GB/s", decimal like all rates. */
const char *ferry_cli_rate(double bytes_per_s, char buf[FERRY_CLI_TEXT_SIZE]);

/* "0:07", "12:34", "1:02:03". */
const char *ferry_cli_duration(double seconds, char buf[FERRY_CLI_TEXT_SIZE]);

/* "ADDR:PORT" with brackets around IPv6; the port is checked, the address is not looked up. */
bool ferry_cli_split_place(const char *text, char *host, size_t host_size, uint16_t *port_out);

#endif
