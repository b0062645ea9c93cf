/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of one slot: filled before a request, compared after it.
 */
#include "slot.h"

#include "payload.h"
#include "sweep.h"

#define PAGE       4096u
#define SMALL      64u /* what a small block is rounded up to */
#define FENCE_SEED UINT64_C(0x5bd1e9955bd1e995)
/* What the gaps hold, by their place in the span. */
#define GAP_SEED UINT64_C(0x2545f4914f6cdd1d)

bool ferry_bench_checks(const struct ferry_bench_traffic *traffic)
{
    return traffic->check || traffic->op == FERRY_BENCH_READ_VERIFY;
}

static bool by_address(const struct ferry_bench_traffic *traffic)
{
    return traffic->op == FERRY_BENCH_WRITE_SEED || traffic->op == FERRY_BENCH_READ_VERIFY;
}

uint64_t ferry_bench_span(const struct ferry_bench_traffic *traffic)
{
    const struct ferry_bench_case c = {.block = traffic->block, .scatter = traffic->scatter};

    return ferry_bench_case_span(&c);
}

bool ferry_bench_slot_stride(const struct ferry_bench_traffic *traffic, uint64_t *stride_out)
{
    uint64_t span = ferry_bench_span(traffic);
    bool fenced = ferry_bench_checks(traffic);
    uint64_t unit = fenced || span >= PAGE ? PAGE : SMALL;
    uint64_t stride;

    if (__builtin_add_overflow(span, unit - 1, &stride))
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

static uint64_t piece_bytes(const struct ferry_bench_traffic *traffic)
{
    return traffic->block / traffic->scatter;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* The order of the pieces at the target: each place once, and neighbours far apart. */
static uint64_t far_step(uint64_t count)
{
    uint64_t step = count * 5 / 8 + 1;

    while (gcd(step, count) != 1)
        step++;
    return step;
}

/* Offset of piece @index in the local span, as the request now has it. */
static uint64_t place(const struct ferry_bench_slot *slot,
                      const struct ferry_bench_traffic *traffic, uint64_t index)
{
    uint64_t at = slot->whole ? index * far_step(traffic->scatter) % traffic->scatter : index;

    return at * (piece_bytes(traffic) + FERRY_BENCH_GAP);
}

/* The block from the pattern of a seed, and gaps from theirs. */
static void fill_block(const struct ferry_bench_slot *slot,
                       const struct ferry_bench_traffic *traffic, uint64_t seed, uint64_t gap_seed)
{
    uint64_t piece;

    if (traffic->scatter == 0) {
        ferry_bench_payload_fill(slot->local, traffic->block, seed, position(slot, traffic));
        return;
    }
    piece = piece_bytes(traffic);
    for (uint64_t i = 0; i < traffic->scatter; i++) {
        uint64_t at = place(slot, traffic, i);

        ferry_bench_payload_fill(slot->local + at, piece, seed, i * piece);
        ferry_bench_payload_fill(slot->local + at + piece, FERRY_BENCH_GAP, gap_seed, at + piece);
    }
}

/* The list of a slot; the places at the target are those of a whole step. */
static void make_pieces(struct ferry_bench_slot *slot, const struct ferry_bench_traffic *traffic)
{
    for (uint64_t i = 0; i < traffic->scatter; i++) {
        slot->whole = false;
        slot->pieces[i].local = slot->local + place(slot, traffic, i);
        slot->whole = true;
        slot->pieces[i].remote_offset = slot->remote + place(slot, traffic, i);
        slot->pieces[i].length = piece_bytes(traffic);
    }
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
        ferry_bench_payload_fill(slot->local + ferry_bench_span(traffic), FERRY_BENCH_FENCE,
                                 FENCE_SEED, FERRY_BENCH_FENCE);
    }
    make_pieces(slot, traffic);
    slot->whole = traffic->scatter > 0 && traffic->check && traffic->op != FERRY_BENCH_MIX;
    fill_block(slot, traffic, slot->seed, GAP_SEED);
}

void ferry_bench_slot_request(const struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic,
                              struct ferry_request *request_out)
{
    bool list = traffic->scatter > 0 && !slot->whole;

    request_out->opcode = slot->step;
    request_out->local = list ? NULL : slot->local;
    request_out->remote_offset = list ? 0 : slot->remote;
    request_out->length = list ? 0 : ferry_bench_slot_bytes(slot, traffic);
    request_out->pieces = list ? slot->pieces : NULL;
    request_out->piece_count = list ? traffic->scatter : 0;
}

uint64_t ferry_bench_slot_bytes(const struct ferry_bench_slot *slot,
                                const struct ferry_bench_traffic *traffic)
{
    return slot->whole ? ferry_bench_span(traffic) : traffic->block;
}

void ferry_bench_slot_prepare(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic)
{
    if (slot->prepared || !ferry_bench_checks(traffic))
        return;
    slot->prepared = true;
    if (slot->step == FERRY_READ) {
        /* The complement differs from what must arrive in every single byte. */
        fill_block(slot, traffic, ~slot->seed, slot->whole ? ~GAP_SEED : GAP_SEED);
        return;
    }
    slot->seed = ferry_bench_payload_seed(traffic->seed, slot->stream, ++slot->write_count);
    fill_block(slot, traffic, slot->seed, GAP_SEED);
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
        return slot->step == FERRY_WRITE && !slot->whole;
    case FERRY_BENCH_MIX:
        return true;
    }
    return true;
}

/* One range of the slot's memory, at @offset, against its pattern. */
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

/* A block in pieces, and its gaps; offsets in a difference are those of the whole. */
static bool same_pieces(const struct ferry_bench_slot *slot,
                        const struct ferry_bench_traffic *traffic,
                        struct ferry_bench_difference *difference_out)
{
    uint64_t piece = piece_bytes(traffic);

    for (uint64_t i = 0; i < traffic->scatter; i++) {
        int64_t at = (int64_t)place(slot, traffic, i);
        uint64_t gap = (uint64_t)at + piece;

        if (!same(slot, at, piece, slot->seed, i * piece, difference_out)) {
            difference_out->offset += (int64_t)(i * piece) - at;
            return false;
        }
        if (!same(slot, (int64_t)gap, FERRY_BENCH_GAP, GAP_SEED, gap, difference_out)) {
            difference_out->offset = (int64_t)((i + 1) * piece);
            difference_out->gap = true;
            return false;
        }
    }
    return true;
}

bool ferry_bench_slot_compare(const struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic,
                              struct ferry_bench_difference *difference_out)
{
    uint64_t span = ferry_bench_span(traffic);

    if (traffic->scatter > 0 && !same_pieces(slot, traffic, difference_out))
        return false;
    if (traffic->scatter == 0 &&
        !same(slot, 0, traffic->block, slot->seed, position(slot, traffic), difference_out))
        return false;
    return same(slot, -(int64_t)FERRY_BENCH_FENCE, FERRY_BENCH_FENCE, FENCE_SEED, 0,
                difference_out) &&
           same(slot, (int64_t)span, FERRY_BENCH_FENCE, FENCE_SEED, FERRY_BENCH_FENCE,
                difference_out);
}

void ferry_bench_slot_advance(struct ferry_bench_slot *slot,
                              const struct ferry_bench_traffic *traffic)
{
    bool pieces = traffic->scatter > 0 && traffic->check;
    bool known = slot->whole;

    slot->prepared = false;
    if (pieces && traffic->op == FERRY_BENCH_WRITE && slot->step == FERRY_WRITE && known) {
        /* The gaps at the target are known now: from here on as without pieces. */
        slot->whole = false;
        return;
    }
    if (traffic->op == FERRY_BENCH_MIX || traffic->check)
        slot->step = slot->step == FERRY_WRITE ? FERRY_READ : FERRY_WRITE;
    if (pieces && traffic->op == FERRY_BENCH_READ)
        slot->whole = slot->step == FERRY_WRITE;
    if (pieces && traffic->op == FERRY_BENCH_WRITE)
        slot->whole = slot->step == FERRY_READ;
}
