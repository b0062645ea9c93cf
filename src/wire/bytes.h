/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Big-endian integers at any alignment. The only way the codecs touch a byte of the wire: no struct
 * is ever laid over received bytes. Pure, any thread. The caller has checked the length.
 */
#ifndef FERRY_WIRE_BYTES_H
#define FERRY_WIRE_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t ferry_get_be16(const uint8_t *bytes)
{
    uint16_t raw;

    memcpy(&raw, bytes, sizeof(raw));
    return be16toh(raw);
}

static inline uint32_t ferry_get_be32(const uint8_t *bytes)
{
    uint32_t raw;

    memcpy(&raw, bytes, sizeof(raw));
    return be32toh(raw);
}

static inline uint64_t ferry_get_be64(const uint8_t *bytes)
{
    uint64_t raw;

    memcpy(&raw, bytes, sizeof(raw));
    return be64toh(raw);
}

static inline void ferry_put_be16(uint8_t *bytes, uint16_t value)
{
    uint16_t raw = htobe16(value);

    memcpy(bytes, &raw, sizeof(raw));
}

static inline void ferry_put_be32(uint8_t *bytes, uint32_t value)
{
    uint32_t raw = htobe32(value);

    memcpy(bytes, &raw, sizeof(raw));
}

static inline void ferry_put_be64(uint8_t *bytes, uint64_t value)
{
    uint64_t raw = htobe64(value);

    memcpy(bytes, &raw, sizeof(raw));
}

#endif
