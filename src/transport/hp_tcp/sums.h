/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums as a lane's two halves need them. Header only; on the holder of the worker's baton.
 * Where and when they are computed, and what they see: docs/design/hp_tcp.md.
 */
#ifndef FERRY_HP_TCP_SUMS_H
#define FERRY_HP_TCP_SUMS_H

#include "base/checksum.h"
#include "transport/hp_tcp/internal.h"

/* Checksums are in force on the present connection: every payload comes with one. */
static inline bool ferry_hp_lane_sums(const struct hp_lane *lane)
{
    return (lane->session_features & FERRY_FEATURE_CHECKSUM) != 0;
}

/* The checksum of @bytes of the op's memory from byte @from of it on, behind what @crc is of. */
static inline uint32_t ferry_hp_op_crc(const struct hp_op *op, uint64_t from, uint64_t bytes,
                                       uint32_t crc)
{
    if (op->local != NULL)
        return ferry_crc32c(crc, op->local + from, bytes);
    return ferry_hp_pieces_crc(ferry_hp_flow_pieces(op->flow), op->offset + from, bytes, crc);
}

#endif
