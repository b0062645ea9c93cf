/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of one slot: filled before a request, compared after it.
 */
#include "slot.h"

#include "payload.h"

#define PAGE       4096u
#define SMALL      64u /* what a small block is rounded up to */
#define FENCE_SEED UINT64_C(0x5bd1e9955bd1e995)

bool ferry_bench_checks(const struct ferry_bench_traffic *traffic)
{
    return traffic->check || traffic->op == FERRY_BENCH_READ_VERIFY;
}

static bool by_address(const struct ferry_bench_traffic *traffic)
{
    return traffic->op == FERRY_BENCH_WRITE_SEED || traffic->op == FERRY_BENCH_READ_VERIFY;
}

bool ferry_bench_slot_stride(const struct ferry_bench_traffic *traffic, uint64_t *stride_out)
{
    bool fenced = ferry_bench_checks(traffic);
    uint64_t unit = fenced || traffic->block >= PAGE ? PAGE : SMALL;
    uint64_t stride;

    if (__builtin_add_overflow(traffic->block, unit - 1, &stride))
        return false;
    stride -= stride % unit;
    if (fenced && __builtin_add_overflow(stride, (uint64_t)2 * FERRY_BENCH_FENCE, &stride))
        return false;
    *stride_out = stride;
    return true;
}

/* Where the data of the slot begins in its pattern. */
static uint64_t position(const struct ferry_bench_slot *slot,
                         const struct ferry_bench_traffic *traffic)
{
    return by_address(traffic) ? slot->remote : 0;
}

void ferry_bench_slot_init(struct ferry_bench_slot *slot, const struct ferry_bench_traffic *traffic,
                           unsigned char *area)
{
    slot->local = area;
    slot->seed = by_address(traffic) ? traffic->seed
                                     : ferry_bench_payload_seed(traffic->seed, slot->stream, 0);
    slot->step = FERRY_READ;
    if (traffic->op == FERRY_BENCH_WRITE || traffic->op == FERRY_BENCH_MIX ||
        traffic->op == FERRY_BENCH_WRITE_SEED || traffic->check)
        slot->step = FERRY_WRITE;
    if (ferry_bench_checks(traffic)) {
        slot->local = area + FERRY_BENCH_FENCE;
        ferry_bench_payload_fill(area, FERRY_BENCH_FENCE, FENCE_SEED, 0);
        ferry_bench_payload_fill(slot->local + traffic->block, FERRY_BENCH_FENCE, FENCE_SEED,
                                 FERRY_BENCH_FENCE);
    }
    ferry_bench_payload_fill(slot->local, traffic->block, slot->seed, position(slot, traffic));
}

void ferry_bench_slot_prepare(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic)
{
    if (slot->prepared || !ferry_bench_checks(traffic))
        return;
    slot->prepared = true;
    if (slot->step == FERRY_READ) {
        /* The complement differs from what must arrive in every single byte. */
        ferry_bench_payload_fill(slot->local, traffic->block, ~slot->seed, position(slot, traffic));
        return;
    }
    slot->seed = ferry_bench_payload_seed(traffic->seed, slot->stream, ++slot->write_count);
    ferry_bench_payload_fill(slot->local, traffic->block, slot->seed, position(slot, traffic));
}

bool ferry_bench_slot_measured(const struct ferry_bench_slot *slot,
                               const struct ferry_bench_traffic *traffic)
{
    switch (traffic->op) {
    case FERRY_BENCH_READ:
    case FERRY_BENCH_READ_VERIFY:
        return slot->step == FERRY_READ;
    case FERRY_BENCH_WRITE:
    case FERRY_BENCH_WRITE_SEED:
        return slot->step == FERRY_WRITE;
    case FERRY_BENCH_MIX:
        return true;
    }
    return true;
}

/* One range of the slot's memory against its pattern. */
static bool same(const struct ferry_bench_slot *slot, int64_t offset, uint64_t len, uint64_t seed,
                 uint64_t from, struct ferry_bench_difference *difference_out)
{
    const unsigned char *at = slot->local + offset;
    size_t found = ferry_bench_payload_differs(at, len, seed, from);

    if (found == FERRY_BENCH_SAME)
        return true;
    *difference_out = (struct ferry_bench_difference){
        .offset = offset + (int64_t)found,
        .expected = ferry_bench_payload_byte(seed, from + found),
        .got = at[found],
        .seed = seed,
    };
    return false;
}

bool ferry_bench_slot_compare(const struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic,
                              struct ferry_bench_difference *difference_out)
{
    return same(slot, 0, traffic->block, slot->seed, position(slot, traffic), difference_out) &&
           same(slot, -(int64_t)FERRY_BENCH_FENCE, FERRY_BENCH_FENCE, FENCE_SEED, 0,
                difference_out) &&
           same(slot, (int64_t)traffic->block, FERRY_BENCH_FENCE, FENCE_SEED, FERRY_BENCH_FENCE,
                difference_out);
}

void ferry_bench_slot_advance(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic)
{
    slot->prepared = false;
    if (traffic->op == FERRY_BENCH_MIX || traffic->check)
        slot->step = slot->step == FERRY_WRITE ? FERRY_READ : FERRY_WRITE;
}
