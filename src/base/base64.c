/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 over libcrypto, which skips white space and takes padding anywhere in the last group: what
 * it must not see is refused first. Pure; any thread.
 */
#include "base/base64.h"

#include <stdbool.h>
#include <string.h>

#include <openssl/evp.h>

#include "base/assert.h"
#include "base/error.h"

size_t ferry_base64_length(size_t len)
{
    return (len + 2) / 3 * 4;
}

void ferry_base64_encode(const void *bytes, size_t len, char *buf)
{
    FERRY_ASSERT(len <= FERRY_BASE64_BYTES_MAX);
    /* It writes nothing, not even a terminator, for nothing. */
    buf[0] = '\0';
    if (len > 0)
        EVP_EncodeBlock((unsigned char *)buf, bytes, (int)len);
}

static bool is_symbol(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '+' || byte == '/';
}

enum ferry_status ferry_base64_decode(const char *text, size_t len, char **bytes_out,
                                      size_t *len_out)
{
    size_t padding = 0;
    char *bytes;

    if (len > FERRY_BASE64_BYTES_MAX)
        return ferry_fail(FERRY_ERR_TOO_LARGE, "base64: %zu characters", len);
    while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
        padding++;
    if (len % 4 != 0)
        return ferry_fail(FERRY_ERR_INVALID, "base64: %zu characters are no whole groups", len);
    for (size_t i = 0; i < len - padding; i++) {
        if (!is_symbol((unsigned char)text[i]))
            return ferry_fail(FERRY_ERR_INVALID, "base64: character %zu is not of its alphabet", i);
    }
    bytes = malloc(len / 4 * 3 + 1);
    if (bytes == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "base64: out of memory");
    if (len > 0 &&
        EVP_DecodeBlock((unsigned char *)bytes, (const unsigned char *)text, (int)len) < 0) {
        free(bytes);
        return ferry_fail(FERRY_ERR_INVALID, "base64: cannot be decoded");
    }
    *len_out = len / 4 * 3 - padding;
    bytes[*len_out] = '\0';
    *bytes_out = bytes;
    return FERRY_OK;
}
