/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C through ISA-L. No state. ISA-L counts bytes in an int and leaves the inversions of both
 * ends to its caller.
 */
#include "base/checksum.h"

#include <isa-l.h>

#define STEP_BYTES (1u << 30)

uint32_t ferry_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;

    while (len > 0) {
        size_t step = len < STEP_BYTES ? len : STEP_BYTES;

        /* It only reads; its parameter has no const. */
        crc = ~crc32_iscsi((unsigned char *)(uintptr_t)at, (int)step, ~crc);
        at += step;
        len -= step;
    }
    return crc;
}
