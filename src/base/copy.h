/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying past the caches: for lengths that would throw out of them what is needed next. Where the
 * processor has no such stores it is memcpy().
 */
#ifndef FERRY_BASE_COPY_H
#define FERRY_BASE_COPY_H

#include <stddef.h>

/*
 * As memcpy(): the ranges do not overlap. Any thread. When it returns the bytes are visible to
 * whoever learns of it by an atomic store that comes after, as with memcpy().
 */
void ferry_copy_streaming(void *to, const void *from, size_t length);

#endif
