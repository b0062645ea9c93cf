/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-temporal stores, a cache line at a time, between an unaligned head and tail that are copied
 * as usual. Any thread, no state.
 */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

#if defined(__x86_64__)

#include <emmintrin.h>

void ferry_copy_streaming(void *to, const void *from, size_t length)
{
    unsigned char *out = to;
    const unsigned char *in = from;
    size_t head = (FERRY_CACHE_LINE - (uintptr_t)out % FERRY_CACHE_LINE) % FERRY_CACHE_LINE;

    if (length < 4 * FERRY_CACHE_LINE) {
        memcpy(to, from, length);
        return;
    }
    memcpy(out, in, head);
    out += head;
    in += head;
    length -= head;
    for (; length >= FERRY_CACHE_LINE; length -= FERRY_CACHE_LINE) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)in);
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(in + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(in + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(in + 48));

        _mm_stream_si128((__m128i *)(void *)out, a);
        _mm_stream_si128((__m128i *)(void *)(out + 16), b);
        _mm_stream_si128((__m128i *)(void *)(out + 32), c);
        _mm_stream_si128((__m128i *)(void *)(out + 48), d);
        in += FERRY_CACHE_LINE;
        out += FERRY_CACHE_LINE;
    }
    memcpy(out, in, length);
    /* Such stores are not ordered with others; a store that says "done" must come after them. */
    _mm_sfence();
}

#else

void ferry_copy_streaming(void *to, const void *from, size_t length)
{
    memcpy(to, from, length);
}

#endif
