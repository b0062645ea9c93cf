/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 with the standard alphabet and padding (RFC 4648, section 4), over libcrypto. Pure; any
 * thread.
 */
#ifndef FERRY_BASE_BASE64_H
#define FERRY_BASE_BASE64_H

#include <stddef.h>

#include <ferry/status.h>

#include "base/compiler.h"

/* Largest input of either direction. */
#define FERRY_BASE64_BYTES_MAX ((size_t)1 << 29)

/* Characters of @len bytes in base64, without a terminator. */
size_t ferry_base64_length(size_t len);
/* @buf of ferry_base64_length(len) + 1 bytes, NUL-terminated. Given: len <= ..._BYTES_MAX. */
void ferry_base64_encode(const void *bytes, size_t len, char *buf);

/*
 * malloc'd, with a NUL behind it. Strict: nothing but whole groups of four, the alphabet, and
 * padding at the end. ERR_INVALID, ERR_TOO_LARGE, ERR_NO_MEMORY.
 */
FERRY_CHECKED enum ferry_status ferry_base64_decode(const char *text, size_t len, char **bytes_out,
                                                    size_t *len_out);

#endif
