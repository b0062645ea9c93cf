/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC-32C (Castagnoli; RFC 3720, 12.1, and RFC 9260, appendix A) of bytes that may come in parts.
 * Computed by ISA-L, which picks the processor's instructions by itself. Pure; any thread.
 */
#ifndef FERRY_BASE_CHECKSUM_H
#define FERRY_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/*
 * The checksum of what @crc is the checksum of, followed by @len bytes. @crc of nothing is 0.
 * "123456789" gives 0xe3069283.
 */
uint32_t ferry_crc32c(uint32_t crc, const void *bytes, size_t len);

#endif
