/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One frame of each kind in bytes written down by hand from the layout in docs/design/wire.md, not
 * by the encoder, and the same frame as a struct.
 */
#ifndef TEST_WIRE_GOLDEN_H
#define TEST_WIRE_GOLDEN_H

#include "test_wire_support.h"

#include "wire/frame.h"

#define GOLDEN_SIZE_MAX 160u

struct golden {
    const char *name;
    const char *hex;
    struct ferry_frame frame; /* a list is not filled in: its entries are in the bytes */
    uint32_t list_count;
};

static const struct golden goldens[] = {
    {
        .name = "read",
        .hex = "46525259 01 03 0040 00000000 0000 01 00 0000000000000007 1122334455667788"
               "00007f0000001000 0000000000001000 0000000000000000 00000000 00000000",
        .frame = {.type = FERRY_FRAME_READ,
                  .priority = 1,
                  .request_id = 7,
                  .registration_id = 0x1122334455667788,
                  .remote_addr = 0x7f0000001000,
                  .length = 4096},
    },
    {
        .name = "write",
        .hex = "46525259 01 04 0040 00000003 0000 02 00 0102030405060708 ffffffffffffffff"
               "00007f0000002000 0000000000010000 0000000100000000 00000009 deadbeef",
        .frame = {.type = FERRY_FRAME_WRITE,
                  .priority = 2,
                  .flags = FERRY_FLAG_CHECKSUM | FERRY_FLAG_CREDIT,
                  .request_id = 0x0102030405060708,
                  .registration_id = UINT64_MAX,
                  .remote_addr = 0x7f0000002000,
                  .length = 65536,
                  .credit_bytes = 1ULL << 32,
                  .credit_sequence = 9,
                  .checksum = 0xdeadbeef},
    },
    {
        .name = "write with a scatter list",
        .hex = "46525259 01 04 0078 00000004 0000 00 00 0000000000000008 0000000000000000"
               "0000000000000000 0000000000001800 0000000000000000 00000000 00000000"
               "0003 0030 00000000"
               "0000000000001000 0000000000001000 000000000000000a"
               "0000000000009000 0000000000000800 000000000000000b",
        .frame = {.type = FERRY_FRAME_WRITE,
                  .flags = FERRY_FLAG_SCATTER,
                  .request_id = 8,
                  .length = 0x1800},
        .list_count = 2,
    },
    {
        .name = "read_reply",
        .hex = "46525259 01 05 0040 00000001 0000 00 00 0000000000000007 0000000000000000"
               "0000000000000000 0000000000001000 0000000000000000 00000000 cafef00d",
        .frame = {.type = FERRY_FRAME_READ_REPLY,
                  .flags = FERRY_FLAG_CHECKSUM,
                  .request_id = 7,
                  .length = 4096,
                  .checksum = 0xcafef00d},
    },
    {
        .name = "read_reply with a refusal that keeps the stream",
        .hex = "46525259 01 05 0040 00000010 0004 00 00 0000000000000007 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000",
        .frame = {.type = FERRY_FRAME_READ_REPLY,
                  .status = FERRY_FRAME_STALE_REGISTRATION,
                  .flags = FERRY_FLAG_NO_CLOSE,
                  .request_id = 7},
    },
    {
        .name = "write_reply",
        .hex = "46525259 01 06 0040 00000002 0000 00 00 0000000000000008 0000000000000000"
               "0000000000000000 0000000000001800 0000000000100000 00000003 00000000",
        .frame = {.type = FERRY_FRAME_WRITE_REPLY,
                  .flags = FERRY_FLAG_CREDIT,
                  .request_id = 8,
                  .length = 0x1800,
                  .credit_bytes = 1 << 20,
                  .credit_sequence = 3},
    },
    {
        .name = "hello",
        .hex = "46525259 01 01 0090 00000000 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0001 0048 00000000"
               "000102030405060708090a0b0c0d0e0f 00000002 00000004 000000000000000f"
               "0000000000000055 0000000040000000 0000000000000021"
               "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        .frame = {.type = FERRY_FRAME_HELLO,
                  .hello = {.incarnation = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                            .lane_index = 2,
                            .lane_count = 4,
                            .features = 15,
                            .predecessor_session_id = 0x55,
                            .max_transfer_bytes = 1 << 30,
                            .low_water_request_id = 0x21,
                            .nonce = {0xf0, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9,
                                      0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff}}},
    },
    {
        .name = "hello_reply",
        .hex = "46525259 01 02 0088 00000000 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0002 0040 00000000"
               "0f0e0d0c0b0a09080706050403020100 0123456789abcdef 0000000000000003"
               "0000000020000000 0000000000400000 00000040 00000000 0000000004000000",
        .frame = {.type = FERRY_FRAME_HELLO_REPLY,
                  .hello_reply = {.incarnation = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1,
                                                  0},
                                  .session_id = 0x0123456789abcdef,
                                  .features = 3,
                                  .max_transfer_bytes = 1 << 29,
                                  .initial_credit_bytes = 1 << 22,
                                  .window_ops = 64,
                                  .window_bytes = 1 << 26}},
    },
    {
        .name = "hello_reply with a refusal",
        .hex = "46525259 01 02 0040 00000000 000b 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000",
        .frame = {.type = FERRY_FRAME_HELLO_REPLY, .status = FERRY_FRAME_FULL},
    },
    {
        .name = "resolve",
        .hex = "46525259 01 07 0058 00000000 0000 00 00 0000000000000003 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0004 0010 00000000 0000000000000005 0000000000000009",
        .frame = {.type = FERRY_FRAME_RESOLVE, .request_id = 3},
        .list_count = 2,
    },
    {
        .name = "resolve_reply",
        .hex = "46525259 01 08 0078 00000000 0000 00 00 0000000000000003 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0005 0030 00000000 0000000000000005 01 00000000000000"
               "0000000000000009 02 00000000000000 000000000000000a 00 00000000000000",
        .frame = {.type = FERRY_FRAME_RESOLVE_REPLY, .request_id = 3},
        .list_count = 3,
    },
    {
        .name = "resolve_reply for an unknown session",
        .hex = "46525259 01 08 0040 00000010 0009 00 00 0000000000000003 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000",
        .frame = {.type = FERRY_FRAME_RESOLVE_REPLY,
                  .status = FERRY_FRAME_UNKNOWN_SESSION,
                  .flags = FERRY_FLAG_NO_CLOSE,
                  .request_id = 3},
    },
    {
        .name = "credit",
        .hex = "46525259 01 09 0040 00000002 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000200000 00000004 00000000",
        .frame = {.type = FERRY_FRAME_CREDIT,
                  .flags = FERRY_FLAG_CREDIT,
                  .credit_bytes = 1 << 21,
                  .credit_sequence = 4},
    },
    {
        .name = "goodbye",
        .hex = "46525259 01 0a 0050 00000000 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0006 0004 00000000 00000002 00000000",
        .frame = {.type = FERRY_FRAME_GOODBYE, .goodbye_reason = FERRY_GOODBYE_IDLE},
    },
    {
        .name = "challenge",
        .hex = "46525259 01 0b 0068 00000000 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0007 0020 00000000 101112131415161718191a1b1c1d1e1f"
               "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
        .frame = {.type = FERRY_FRAME_CHALLENGE,
                  .challenge = {.incarnation = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
                                                0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f},
                                .nonce = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8,
                                          0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf}}},
    },
    {
        .name = "proof",
        .hex = "46525259 01 0c 0068 00000000 0000 00 00 0000000000000000 0000000000000000"
               "0000000000000000 0000000000000000 0000000000000000 00000000 00000000"
               "0008 0020 00000000 c0c1c2c3c4c5c6c7c8c9cacbcccdcecf"
               "d0d1d2d3d4d5d6d7d8d9dadbdcdddedf",
        .frame = {.type = FERRY_FRAME_PROOF,
                  .proof = {0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca,
                            0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3, 0xd4, 0xd5,
                            0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf}},
    },
};
#define GOLDEN_COUNT (sizeof(goldens) / sizeof(goldens[0]))

static inline const struct golden *golden_named(const char *name)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        if (strcmp(goldens[i].name, name) == 0)
            return &goldens[i];
    }
    fail_msg("no golden frame is called %s", name);
    return NULL;
}

static inline bool golden_has_list(const struct ferry_frame *frame)
{
    switch (frame->type) {
    case FERRY_FRAME_READ:
    case FERRY_FRAME_WRITE:
        return (frame->flags & FERRY_FLAG_SCATTER) != 0;
    case FERRY_FRAME_RESOLVE:
        return true;
    case FERRY_FRAME_RESOLVE_REPLY:
        return frame->status == FERRY_FRAME_OK;
    default:
        return false;
    }
}

/* Everything but a list. */
static inline void assert_frame_equal(const struct ferry_frame *a, const struct ferry_frame *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->priority, b->priority);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->flags, b->flags);
    assert_true(a->request_id == b->request_id);
    assert_true(a->registration_id == b->registration_id);
    assert_true(a->remote_addr == b->remote_addr);
    assert_true(a->length == b->length);
    assert_true(a->credit_bytes == b->credit_bytes);
    assert_int_equal(a->credit_sequence, b->credit_sequence);
    assert_int_equal(a->checksum, b->checksum);
    if (a->type == FERRY_FRAME_HELLO)
        assert_memory_equal(&a->hello, &b->hello, sizeof(a->hello));
    if (a->type == FERRY_FRAME_HELLO_REPLY && a->status == FERRY_FRAME_OK) {
        /* Field by field: the struct ends in padding. */
        assert_memory_equal(a->hello_reply.incarnation, b->hello_reply.incarnation,
                            FERRY_INCARNATION_SIZE);
        assert_true(a->hello_reply.session_id == b->hello_reply.session_id);
        assert_true(a->hello_reply.features == b->hello_reply.features);
        assert_true(a->hello_reply.max_transfer_bytes == b->hello_reply.max_transfer_bytes);
        assert_true(a->hello_reply.initial_credit_bytes == b->hello_reply.initial_credit_bytes);
        assert_true(a->hello_reply.window_bytes == b->hello_reply.window_bytes);
        assert_int_equal(a->hello_reply.window_ops, b->hello_reply.window_ops);
    }
    if (a->type == FERRY_FRAME_GOODBYE)
        assert_int_equal(a->goodbye_reason, b->goodbye_reason);
    if (a->type == FERRY_FRAME_CHALLENGE)
        assert_memory_equal(&a->challenge, &b->challenge, sizeof(a->challenge));
    if (a->type == FERRY_FRAME_PROOF)
        assert_memory_equal(a->proof, b->proof, sizeof(a->proof));
}

/* Decode from a block of exactly @len bytes; on a refusal nothing may have been written. */
static inline enum ferry_frame_verdict decode_exact(const uint8_t *bytes, size_t len)
{
    struct ferry_frame frame;
    struct ferry_frame before;
    uint8_t *copy = wire_exact_copy(bytes, len);

    memset(&frame, 0xA5, sizeof(frame));
    memset(&before, 0xA5, sizeof(before));

    enum ferry_frame_verdict verdict = ferry_frame_decode(copy, len, &frame);

    if (verdict != FERRY_FRAME_VALID)
        assert_memory_equal(&frame, &before, sizeof(frame));
    free(copy);
    return verdict;
}

#endif
