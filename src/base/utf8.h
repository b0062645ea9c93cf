/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What counts as UTF-8 (RFC 3629, section 4): no overlong forms, no surrogates, at most U+10FFFF.
 */
#ifndef FERRY_BASE_UTF8_H
#define FERRY_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the character at @text, of which @len bytes can be read; 0 if it is none. */
static inline size_t ferry_utf8_length(const unsigned char *text, size_t len)
{
    if (len == 0)
        return 0;

    unsigned char first = text[0];
    unsigned char low = 0x80, high = 0xbf; /* bounds of the second byte */
    size_t want;

    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    want = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    if (len < want || text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < want; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    return want;
}

#endif
