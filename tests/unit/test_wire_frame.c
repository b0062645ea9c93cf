/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry's own frames: each kind against bytes written by hand, and one test per rule of the layout,
 * on both sides of each edge.
 */
#include "test_wire_golden.h"

/* Offsets of docs/design/wire.md. */
enum {
    AT_VERSION = 4,
    AT_TYPE = 5,
    AT_HEADER_BYTES = 6,
    AT_FLAGS = 8,
    AT_STATUS = 12,
    AT_PRIORITY = 14,
    AT_RESERVED = 15,
    AT_REQUEST_ID = 16,
    AT_REGISTRATION = 24,
    AT_ADDR = 32,
    AT_LENGTH = 40,
    AT_CREDIT = 48,
    AT_CREDIT_SEQ = 56,
    AT_CHECKSUM = 60,
    AT_EXTENSION = 64,
    AT_VALUE = 72,
};

struct bytes {
    uint8_t at[GOLDEN_SIZE_MAX + 64];
    size_t len;
};

static struct bytes golden_bytes(const char *name)
{
    struct bytes bytes;

    memset(&bytes, 0, sizeof(bytes));
    bytes.len = wire_unhex(golden_named(name)->hex, bytes.at, sizeof(bytes.at));
    return bytes;
}

static void put(struct bytes *bytes, size_t offset, uint64_t value, size_t width)
{
    for (size_t i = 0; i < width; i++)
        bytes->at[offset + i] = (uint8_t)(value >> (8 * (width - 1 - i)));
}

/* The verdict on a golden frame with one field overwritten. */
static enum ferry_frame_verdict with(const char *name, size_t offset, uint64_t value, size_t width)
{
    struct bytes bytes = golden_bytes(name);

    put(&bytes, offset, value, width);
    return decode_exact(bytes.at, bytes.len);
}

/* Append an extension and say so in the header. */
static void append(struct bytes *bytes, uint16_t type, uint16_t value_bytes)
{
    put(bytes, bytes->len, type, 2);
    put(bytes, bytes->len + 2, value_bytes, 2);
    put(bytes, bytes->len + 4, 0, 4);
    bytes->len += 8;
    for (size_t i = 0; i < (value_bytes + 7u) / 8 * 8; i++)
        bytes->at[bytes->len++] = i < value_bytes ? (uint8_t)(i + 1) : 0;
    put(bytes, AT_HEADER_BYTES, bytes->len, 2);
}

static void test_frame_goldens_hold_both_ways(void **state)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *golden = &goldens[i];
        uint8_t expected[GOLDEN_SIZE_MAX];
        size_t len = wire_unhex(golden->hex, expected, sizeof(expected));
        uint8_t *input = wire_exact_copy(expected, len);
        uint8_t *output = malloc(len);
        struct ferry_frame frame;

        memset(&frame, 0xA5, sizeof(frame));
        assert_non_null(output);
        assert_int_equal(ferry_frame_decode(input, len, &frame), FERRY_FRAME_VALID);
        assert_frame_equal(&frame, &golden->frame);
        if (golden_has_list(&frame)) {
            assert_int_equal(frame.list.count, golden->list_count);
            assert_ptr_equal(frame.list.wire, input + AT_VALUE);
        }

        struct ferry_frame sent = golden->frame;

        if (golden_has_list(&sent))
            sent.list = (struct ferry_frame_list){expected + AT_VALUE, golden->list_count};
        assert_int_equal(ferry_frame_size(&sent), len);
        memset(output, 0xEE, len);
        assert_int_equal(ferry_frame_encode(output, len, &sent), len);
        assert_memory_equal(output, expected, len);
        free(input);
        free(output);
    }
}

static void test_frame_list_entries_hold_both_ways(void **state)
{
    struct bytes scatter = golden_bytes("write with a scatter list");
    struct bytes resolve = golden_bytes("resolve");
    struct bytes reply = golden_bytes("resolve_reply");
    struct ferry_frame frame;
    uint8_t wire[48];

    assert_int_equal(ferry_frame_decode(scatter.at, scatter.len, &frame), FERRY_FRAME_VALID);
    for (uint32_t i = 0; i < 2; i++) {
        struct ferry_scatter entry = ferry_scatter_get(&frame.list, i);

        assert_int_equal(entry.addr, i == 0 ? 0x1000 : 0x9000);
        assert_int_equal(entry.length, i == 0 ? 0x1000 : 0x800);
        assert_int_equal(entry.registration_id, i == 0 ? 10 : 11);
        ferry_scatter_put(wire, i, &entry);
    }
    assert_memory_equal(wire, frame.list.wire, 48);

    assert_int_equal(ferry_frame_decode(resolve.at, resolve.len, &frame), FERRY_FRAME_VALID);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ferry_resolve_get(&frame.list, i), i == 0 ? 5 : 9);
        ferry_resolve_put(wire, i, ferry_resolve_get(&frame.list, i));
    }
    assert_memory_equal(wire, frame.list.wire, 16);

    static const struct ferry_resolved answers[] = {
        {5, FERRY_RESOLVE_APPLIED}, {9, FERRY_RESOLVE_NOT_APPLIED}, {10, FERRY_RESOLVE_UNKNOWN}};

    assert_int_equal(ferry_frame_decode(reply.at, reply.len, &frame), FERRY_FRAME_VALID);
    memset(wire, 0xEE, sizeof(wire));
    for (uint32_t i = 0; i < 3; i++) {
        struct ferry_resolved entry = ferry_resolved_get(&frame.list, i);

        assert_int_equal(entry.request_id, answers[i].request_id);
        assert_int_equal(entry.verdict, answers[i].verdict);
        ferry_resolved_put(wire, i, &entry);
    }
    assert_memory_equal(wire, frame.list.wire, 48);
}

static void test_frame_peek_tells_how_much_to_receive(void **state)
{
    struct bytes hello = golden_bytes("hello");

    for (size_t have = 0; have <= hello.len; have++) {
        uint8_t *copy = wire_exact_copy(hello.at, have);
        uint32_t need = 0;

        assert_int_equal(ferry_frame_peek(copy, have, &need), FERRY_FRAME_VALID);
        assert_int_equal(need, have < 8 ? 64 : 144);
        free(copy);
    }
}

static void test_frame_peek_refuses_as_soon_as_it_sees(void **state)
{
    static const struct {
        size_t offset;
        uint8_t value;
        size_t seen_at;
        enum ferry_frame_verdict verdict;
    } rows[] = {
        {0, 'M', 4, FERRY_FRAME_NOT_FERRY},    {3, 'X', 4, FERRY_FRAME_NOT_FERRY},
        {4, 0, 8, FERRY_FRAME_OTHER_VERSION},  {4, 2, 8, FERRY_FRAME_OTHER_VERSION},
        {5, 0, 8, FERRY_FRAME_TYPE_UNKNOWN},   {5, 13, 8, FERRY_FRAME_TYPE_UNKNOWN},
        {5, 255, 8, FERRY_FRAME_TYPE_UNKNOWN}, {7, 0x38, 8, FERRY_FRAME_HEADER_SIZE},
        {7, 0x41, 8, FERRY_FRAME_HEADER_SIZE}, {7, 0x44, 8, FERRY_FRAME_HEADER_SIZE},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bytes bytes = golden_bytes("read");

        bytes.at[rows[i].offset] = rows[i].value;
        for (size_t have = 0; have <= bytes.len; have++) {
            uint32_t need = 12345;
            enum ferry_frame_verdict verdict = ferry_frame_peek(bytes.at, have, &need);

            if (have < rows[i].seen_at) {
                assert_int_equal(verdict, FERRY_FRAME_VALID);
                continue;
            }
            assert_int_equal(verdict, rows[i].verdict);
            assert_int_equal(need, 12345);
            assert_int_equal(decode_exact(bytes.at, have), rows[i].verdict);
        }
    }
}

static void test_frame_header_size_edges(void **state)
{
    for (uint32_t size = 0; size <= UINT16_MAX; size++) {
        struct bytes bytes = golden_bytes("read");
        uint32_t need = 0;

        put(&bytes, AT_HEADER_BYTES, size, 2);

        enum ferry_frame_verdict verdict = ferry_frame_peek(bytes.at, bytes.len, &need);
        bool fits = size >= 64 && size <= 65528 && size % 8 == 0;

        assert_int_equal(verdict, fits ? FERRY_FRAME_VALID : FERRY_FRAME_HEADER_SIZE);
        if (fits)
            assert_int_equal(need, size);
    }
}

/* What each type may carry. The table of the document, written again. */
static uint32_t flags_of(uint8_t type)
{
    switch (type) {
    case FERRY_FRAME_HELLO:
    case FERRY_FRAME_HELLO_REPLY:
        return 0;
    case FERRY_FRAME_READ:
        return FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER;
    case FERRY_FRAME_WRITE:
        return FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER | FERRY_FLAG_CHECKSUM;
    case FERRY_FRAME_READ_REPLY:
        return FERRY_FLAG_CREDIT | FERRY_FLAG_CHECKSUM | FERRY_FLAG_NO_CLOSE;
    case FERRY_FRAME_WRITE_REPLY:
    case FERRY_FRAME_RESOLVE_REPLY:
        return FERRY_FLAG_CREDIT | FERRY_FLAG_NO_CLOSE;
    default:
        return FERRY_FLAG_CREDIT;
    }
}

static void test_frame_flags_that_must_be_understood_refuse_and_the_others_do_not(void **state)
{
    const uint32_t known = FERRY_FLAG_CHECKSUM | FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER |
                           FERRY_FLAG_NO_CLOSE;

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct golden *golden = &goldens[i];

        for (int bit = 0; bit < 32; bit++) {
            uint32_t flag = 1u << bit;
            struct bytes bytes = golden_bytes(golden->name);
            struct ferry_frame frame;

            if ((golden->frame.flags & flag) != 0)
                continue;
            put(&bytes, AT_FLAGS, golden->frame.flags | flag, 4);

            enum ferry_frame_verdict verdict = decode_exact(bytes.at, bytes.len);

            if (bit >= 16) {
                assert_int_equal(verdict, FERRY_FRAME_VALID);
                assert_int_equal(ferry_frame_decode(bytes.at, bytes.len, &frame), verdict);
                assert_int_equal(frame.flags, golden->frame.flags);
            } else if ((known & flag) == 0) {
                assert_int_equal(verdict, FERRY_FRAME_FLAG_UNKNOWN);
            } else if ((flags_of(golden->frame.type) & flag) == 0) {
                assert_int_equal(verdict, FERRY_FRAME_FLAG_MISPLACED);
            }
        }
    }
    assert_int_equal(with("read", AT_FLAGS, FERRY_FLAG_MORE, 4), FERRY_FRAME_FLAG_UNKNOWN);
}

static void test_frame_flags_must_agree_with_what_the_frame_says(void **state)
{
    /* "stays open" is about errors only, and an error has no payload to sum up */
    assert_int_equal(with("write_reply", AT_FLAGS, FERRY_FLAG_CREDIT | FERRY_FLAG_NO_CLOSE, 4),
                     FERRY_FRAME_FLAG_MISPLACED);
    assert_int_equal(with("read_reply with a refusal that keeps the stream", AT_FLAGS,
                          FERRY_FLAG_NO_CLOSE | FERRY_FLAG_CHECKSUM, 4),
                     FERRY_FRAME_FLAG_MISPLACED);
    assert_int_equal(with("credit", AT_FLAGS, 0, 4), FERRY_FRAME_FLAG_MISPLACED);
    /* a flag that says there is a list, and no list */
    assert_int_equal(with("read", AT_FLAGS, FERRY_FLAG_SCATTER, 4), FERRY_FRAME_RESERVED_SET);

    struct bytes bytes = golden_bytes("read");

    put(&bytes, AT_FLAGS, FERRY_FLAG_SCATTER, 4);
    put(&bytes, AT_REGISTRATION, 0, 8);
    put(&bytes, AT_ADDR, 0, 8);
    assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_BAD);
    /* a list and no flag that says so */
    assert_int_equal(with("write with a scatter list", AT_FLAGS, 0, 4), FERRY_FRAME_EXTENSION_BAD);
    /* credit fields without their flag */
    assert_int_equal(with("read", AT_CREDIT, 1, 8), FERRY_FRAME_RESERVED_SET);
    assert_int_equal(with("read", AT_CREDIT_SEQ, 1, 4), FERRY_FRAME_RESERVED_SET);
    assert_int_equal(with("read", AT_CHECKSUM, 1, 4), FERRY_FRAME_RESERVED_SET);
}

/* A field that a type does not use is kept zero, so that a later version may give it a meaning. */
static void test_frame_unused_fields_must_be_zero(void **state)
{
    static const struct {
        size_t offset;
        size_t width;
        bool used[FERRY_FRAME_PROOF + 1];
    } fields[] = {
        {AT_RESERVED, 1, {false}},
        {AT_REQUEST_ID,
         8,
         {[FERRY_FRAME_READ] = true,
          [FERRY_FRAME_WRITE] = true,
          [FERRY_FRAME_READ_REPLY] = true,
          [FERRY_FRAME_WRITE_REPLY] = true,
          [FERRY_FRAME_RESOLVE] = true,
          [FERRY_FRAME_RESOLVE_REPLY] = true}},
        {AT_REGISTRATION, 8, {[FERRY_FRAME_READ] = true, [FERRY_FRAME_WRITE] = true}},
        {AT_ADDR, 8, {[FERRY_FRAME_READ] = true, [FERRY_FRAME_WRITE] = true}},
        {AT_LENGTH,
         8,
         {[FERRY_FRAME_READ] = true,
          [FERRY_FRAME_WRITE] = true,
          [FERRY_FRAME_READ_REPLY] = true,
          [FERRY_FRAME_WRITE_REPLY] = true}},
        {AT_STATUS,
         2,
         {[FERRY_FRAME_HELLO_REPLY] = true,
          [FERRY_FRAME_READ_REPLY] = true,
          [FERRY_FRAME_WRITE_REPLY] = true,
          [FERRY_FRAME_RESOLVE_REPLY] = true}},
        {AT_PRIORITY, 1, {[FERRY_FRAME_READ] = true, [FERRY_FRAME_WRITE] = true}},
    };

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
            if (fields[f].used[goldens[i].frame.type])
                continue;
            for (size_t at = 0; at < fields[f].width; at++) {
                assert_int_equal(with(goldens[i].name, fields[f].offset + at, 1, 1),
                                 FERRY_FRAME_RESERVED_SET);
                assert_int_equal(with(goldens[i].name, fields[f].offset + at, 0x80, 1),
                                 FERRY_FRAME_RESERVED_SET);
            }
        }
    }
    assert_int_equal(with("write with a scatter list", AT_ADDR, 1, 8), FERRY_FRAME_RESERVED_SET);
    assert_int_equal(with("write with a scatter list", AT_REGISTRATION, 1, 8),
                     FERRY_FRAME_RESERVED_SET);
}

static void test_frame_priority_id_and_range_edges(void **state)
{
    for (uint32_t priority = 0; priority < 256; priority++) {
        assert_int_equal(with("read", AT_PRIORITY, priority, 1),
                         priority <= 2 ? FERRY_FRAME_VALID : FERRY_FRAME_FIELD_BAD);
    }
    assert_int_equal(with("read", AT_REQUEST_ID, 0, 8), FERRY_FRAME_FIELD_BAD);
    assert_int_equal(with("write", AT_REQUEST_ID, UINT64_MAX, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("resolve", AT_REQUEST_ID, 0, 8), FERRY_FRAME_FIELD_BAD);
    assert_int_equal(with("read", AT_REGISTRATION, 0, 8), FERRY_FRAME_VALID);

    assert_int_equal(with("read", AT_LENGTH, 0, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with("read", AT_LENGTH, UINT64_MAX - 0x7f0000001000, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("read", AT_LENGTH, UINT64_MAX - 0x7f0000000fff, 8),
                     FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with("read", AT_ADDR, UINT64_MAX - 4096, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("read", AT_ADDR, UINT64_MAX - 4095, 8), FERRY_FRAME_LENGTH_BAD);
}

static void test_frame_answers_have_bytes_exactly_when_ok(void **state)
{
    const char *refused = "read_reply with a refusal that keeps the stream";

    assert_int_equal(with("read_reply", AT_LENGTH, 0, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with("read_reply", AT_LENGTH, UINT64_MAX, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("write_reply", AT_LENGTH, 0, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with("write_reply", AT_STATUS, 2, 2), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(refused, AT_LENGTH, 1, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(refused, AT_STATUS, 0, 2), FERRY_FRAME_FLAG_MISPLACED);
    /* a status of a later version is an error answer like any other */
    assert_int_equal(with(refused, AT_STATUS, 999, 2), FERRY_FRAME_VALID);
    assert_int_equal(with(refused, AT_STATUS, 65535, 2), FERRY_FRAME_VALID);
    /* id 0 is for what could not be decoded, and then the stream ends */
    assert_int_equal(with(refused, AT_REQUEST_ID, 0, 8), FERRY_FRAME_FIELD_BAD);
    assert_int_equal(with("read_reply", AT_REQUEST_ID, 0, 8), FERRY_FRAME_FIELD_BAD);

    struct bytes bytes = golden_bytes(refused);

    put(&bytes, AT_REQUEST_ID, 0, 8);
    put(&bytes, AT_FLAGS, 0, 4);
    assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_VALID);
}

static void test_frame_greeting_edges(void **state)
{
    assert_int_equal(with("hello", AT_VALUE + 16, 3, 4), FERRY_FRAME_VALID);
    assert_int_equal(with("hello", AT_VALUE + 16, 4, 4), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello", AT_VALUE + 20, 0, 4), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello", AT_VALUE + 20, 2, 4), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello", AT_VALUE + 20, FERRY_HELLO_LANE_COUNT_MAX, 4),
                     FERRY_FRAME_VALID);
    assert_int_equal(with("hello", AT_VALUE + 20, FERRY_HELLO_LANE_COUNT_MAX + 1, 4),
                     FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello", AT_VALUE + 24, UINT64_MAX, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("hello", AT_VALUE + 32, 0, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("hello", AT_VALUE + 40, 0, 8), FERRY_FRAME_BODY_BAD);

    assert_int_equal(with("hello_reply", AT_VALUE + 16, 0, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello_reply", AT_VALUE + 32, 0, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello_reply", AT_VALUE + 40, 0, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("hello_reply", AT_VALUE + 48, 0, 4), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("hello_reply", AT_VALUE + 52, 1, 4), FERRY_FRAME_RESERVED_SET);
    assert_int_equal(with("hello_reply", AT_VALUE + 56, 0, 8), FERRY_FRAME_BODY_BAD);
    /* a refusal issues no session */
    assert_int_equal(with("hello_reply", AT_STATUS, FERRY_FRAME_FULL, 2),
                     FERRY_FRAME_EXTENSION_BAD);
    assert_int_equal(with("hello_reply with a refusal", AT_STATUS, FERRY_FRAME_OK, 2),
                     FERRY_FRAME_EXTENSION_BAD);
    /* a reason of a later version */
    assert_int_equal(with("goodbye", AT_VALUE, UINT32_MAX, 4), FERRY_FRAME_VALID);
}

static void test_frame_scatter_list_edges(void **state)
{
    const char *name = "write with a scatter list";

    assert_int_equal(with(name, AT_LENGTH, 0x17ff, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(name, AT_LENGTH, 0x1801, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(name, AT_VALUE + 8, 0, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(name, AT_VALUE, UINT64_MAX - 0x1000, 8), FERRY_FRAME_VALID);
    assert_int_equal(with(name, AT_VALUE, UINT64_MAX - 0xfff, 8), FERRY_FRAME_LENGTH_BAD);
    assert_int_equal(with(name, AT_VALUE + 24, UINT64_MAX - 0x7ff, 8), FERRY_FRAME_LENGTH_BAD);

    /* an entry of no bytes, the others making up the sum */
    struct bytes bytes = golden_bytes(name);

    put(&bytes, AT_VALUE + 8, 0, 8);
    put(&bytes, AT_VALUE + 24 + 8, 0x1800, 8);
    assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_LENGTH_BAD);

    /* a sum that wraps to the header's length */
    bytes = golden_bytes(name);
    put(&bytes, AT_VALUE, 0, 8);
    put(&bytes, AT_VALUE + 8, UINT64_MAX, 8);
    put(&bytes, AT_VALUE + 24, 0, 8);
    put(&bytes, AT_VALUE + 24 + 8, 0x1801, 8);
    assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_LENGTH_BAD);

    /* an empty list, and one that is not whole */
    bytes = golden_bytes(name);
    put(&bytes, AT_EXTENSION + 2, 0, 2);
    put(&bytes, AT_HEADER_BYTES, 72, 2);
    assert_int_equal(decode_exact(bytes.at, 72), FERRY_FRAME_BODY_BAD);
    for (uint16_t value_bytes = 41; value_bytes < 48; value_bytes++) {
        bytes = golden_bytes(name);
        put(&bytes, AT_EXTENSION + 2, value_bytes, 2);
        memset(bytes.at + AT_VALUE + value_bytes, 0, 48u - value_bytes);
        assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_BAD);
    }
}

static void test_frame_resolution_list_edges(void **state)
{
    assert_int_equal(with("resolve", AT_VALUE, 0, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("resolve", AT_VALUE, 8, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("resolve", AT_VALUE, 9, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("resolve", AT_VALUE, 10, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("resolve", AT_VALUE + 8, UINT64_MAX, 8), FERRY_FRAME_VALID);
    assert_int_equal(with("resolve_reply", AT_VALUE, 0, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("resolve_reply", AT_VALUE, 9, 8), FERRY_FRAME_BODY_BAD);
    assert_int_equal(with("resolve_reply", AT_VALUE + 16, 10, 8), FERRY_FRAME_BODY_BAD);
    for (uint32_t verdict = 0; verdict < 256; verdict++) {
        assert_int_equal(with("resolve_reply", AT_VALUE + 8, verdict, 1),
                         verdict <= 2 ? FERRY_FRAME_VALID : FERRY_FRAME_BODY_BAD);
    }
    for (size_t pad = 9; pad < 16; pad++) {
        assert_int_equal(with("resolve_reply", AT_VALUE + pad, 1, 1), FERRY_FRAME_RESERVED_SET);
        assert_int_equal(with("resolve_reply", AT_VALUE + 32 + pad, 0x80, 1),
                         FERRY_FRAME_RESERVED_SET);
    }
    assert_int_equal(with("resolve_reply", AT_STATUS, FERRY_FRAME_UNKNOWN_SESSION, 2),
                     FERRY_FRAME_EXTENSION_BAD);
    assert_int_equal(with("resolve_reply for an unknown session", AT_FLAGS, 0, 4),
                     FERRY_FRAME_VALID);
}

static void test_frame_extensions_that_may_be_ignored_are(void **state)
{
    static const uint16_t sizes[] = {0, 1, 7, 8, 9, 40};

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            struct bytes bytes = golden_bytes(goldens[i].name);
            struct ferry_frame frame;

            append(&bytes, 0x8001, sizes[s]);
            assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_VALID);
            assert_int_equal(ferry_frame_decode(bytes.at, bytes.len, &frame), FERRY_FRAME_VALID);
            assert_frame_equal(&frame, &goldens[i].frame);

            bytes = golden_bytes(goldens[i].name);
            append(&bytes, 99, sizes[s]);
            assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_UNKNOWN);
            bytes = golden_bytes(goldens[i].name);
            append(&bytes, 0, sizes[s]);
            assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_UNKNOWN);
            bytes = golden_bytes(goldens[i].name);
            append(&bytes, 0x7fff, sizes[s]);
            assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_UNKNOWN);
        }
    }
}

static void test_frame_extension_order_does_not_matter_but_number_and_place_do(void **state)
{
    struct bytes goodbye = golden_bytes("goodbye");
    struct bytes bytes = golden_bytes("credit");
    struct ferry_frame frame;

    /* an ignorable one in front of the one that is due */
    bytes = golden_bytes("goodbye");
    bytes.len = 64;
    append(&bytes, 0xffff, 5);
    memcpy(bytes.at + bytes.len, goodbye.at + 64, 16);
    bytes.len += 16;
    put(&bytes, AT_HEADER_BYTES, bytes.len, 2);
    assert_int_equal(ferry_frame_decode(bytes.at, bytes.len, &frame), FERRY_FRAME_VALID);
    assert_int_equal(frame.goodbye_reason, FERRY_GOODBYE_IDLE);

    /* twice */
    bytes = golden_bytes("goodbye");
    memcpy(bytes.at + bytes.len, goodbye.at + 64, 16);
    bytes.len += 16;
    put(&bytes, AT_HEADER_BYTES, bytes.len, 2);
    assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_BAD);

    /* on a type it does not belong to */
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        if (goldens[i].frame.type == FERRY_FRAME_GOODBYE)
            continue;
        bytes = golden_bytes(goldens[i].name);
        memcpy(bytes.at + bytes.len, goodbye.at + 64, 16);
        bytes.len += 16;
        put(&bytes, AT_HEADER_BYTES, bytes.len, 2);
        assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_BAD);
    }

    /* missing */
    bytes = golden_bytes("hello");
    put(&bytes, AT_HEADER_BYTES, 64, 2);
    assert_int_equal(decode_exact(bytes.at, 64), FERRY_FRAME_EXTENSION_BAD);
}

static void test_frame_extension_sizes_cannot_reach_outside(void **state)
{
    const char *with_value[] = {"hello",   "hello_reply",   "goodbye",
                                "resolve", "resolve_reply", "write with a scatter list"};

    for (size_t i = 0; i < sizeof(with_value) / sizeof(with_value[0]); i++) {
        struct bytes good = golden_bytes(with_value[i]);
        uint16_t real = (uint16_t)(good.at[AT_EXTENSION + 2] << 8 | good.at[AT_EXTENSION + 3]);

        for (uint32_t size = 0; size <= UINT16_MAX; size++) {
            put(&good, AT_EXTENSION + 2, size, 2);

            enum ferry_frame_verdict verdict = decode_exact(good.at, good.len);

            if (size == real)
                assert_int_equal(verdict, FERRY_FRAME_VALID);
            else
                assert_int_not_equal(verdict, FERRY_FRAME_VALID);
            if (size > good.len - 72)
                assert_int_equal(verdict, FERRY_FRAME_EXTENSION_BAD);
        }
        assert_int_equal(with(with_value[i], AT_EXTENSION + 4, 1, 4), FERRY_FRAME_RESERVED_SET);
    }
    for (size_t pad = 4; pad < 8; pad++)
        assert_int_equal(with("goodbye", AT_VALUE + pad, 1, 1), FERRY_FRAME_RESERVED_SET);

    /* a known extension that is longer than it should be, with the header to match */
    static const char *const fixed[] = {"hello", "hello_reply", "goodbye"};

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        struct bytes bytes = golden_bytes(fixed[i]);

        bytes.len += 8;
        put(&bytes, AT_HEADER_BYTES, bytes.len, 2);
        put(&bytes, AT_EXTENSION + 2, bytes.len - AT_VALUE, 2);
        assert_int_equal(decode_exact(bytes.at, bytes.len), FERRY_FRAME_EXTENSION_BAD);
    }
}

static void test_frame_encode_refuses_what_decode_would(void **state)
{
    static const struct ferry_frame bad[] = {
        {.type = 0},
        {.type = 13},
        {.type = 255, .status = 1},
        {.type = FERRY_FRAME_READ, .request_id = 1},
        {.type = FERRY_FRAME_READ, .request_id = 0, .length = 1},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .priority = 3},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .status = 1},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 2, .remote_addr = UINT64_MAX - 1},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .flags = 1u << 16},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .flags = FERRY_FLAG_MORE},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .flags = FERRY_FLAG_SCATTER},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .list = {NULL, 1}},
        {.type = FERRY_FRAME_READ,
         .request_id = 1,
         .length = 1,
         .flags = FERRY_FLAG_SCATTER,
         .list = {NULL, 1}},
        {.type = FERRY_FRAME_READ, .request_id = 1, .length = 1, .credit_bytes = 1},
        {.type = FERRY_FRAME_HELLO},
        {.type = FERRY_FRAME_HELLO_REPLY},
        {.type = FERRY_FRAME_RESOLVE, .request_id = 1},
        {.type = FERRY_FRAME_RESOLVE_REPLY, .request_id = 1},
        {.type = FERRY_FRAME_CREDIT},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint8_t out[FERRY_FRAME_PLAIN_MAX];
        uint8_t before[FERRY_FRAME_PLAIN_MAX];

        memset(out, 0xEE, sizeof(out));
        memset(before, 0xEE, sizeof(before));
        assert_int_not_equal(ferry_frame_check(&bad[i]), FERRY_FRAME_VALID);
        assert_int_equal(ferry_frame_encode(out, sizeof(out), &bad[i]), 0);
        assert_memory_equal(out, before, sizeof(out));
    }
}

static void test_frame_encode_writes_all_or_nothing(void **state)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        struct bytes bytes = golden_bytes(goldens[i].name);
        struct ferry_frame frame = goldens[i].frame;
        uint8_t out[GOLDEN_SIZE_MAX + 16];

        if (golden_has_list(&frame))
            frame.list = (struct ferry_frame_list){bytes.at + AT_VALUE, goldens[i].list_count};
        for (size_t cap = 0; cap < bytes.len + 2; cap++) {
            memset(out, 0xEE, sizeof(out));

            size_t size = ferry_frame_encode(out, cap, &frame);

            assert_int_equal(size, cap >= bytes.len ? bytes.len : 0);
            for (size_t at = size; at < sizeof(out); at++)
                assert_int_equal(out[at], 0xEE);
        }
    }
}

/* The caller may build a list where it belongs, or anywhere else in the same buffer. */
static void test_frame_encode_takes_a_list_from_its_own_output(void **state)
{
    struct bytes good = golden_bytes("write with a scatter list");

    for (size_t at = 0; at <= 112; at++) {
        uint8_t out[160];
        struct ferry_frame frame = golden_named("write with a scatter list")->frame;

        memset(out, 0xEE, sizeof(out));
        memcpy(out + at, good.at + AT_VALUE, 48);
        frame.list = (struct ferry_frame_list){out + at, 2};
        assert_int_equal(ferry_frame_encode(out, sizeof(out), &frame), good.len);
        assert_memory_equal(out, good.at, good.len);
    }
}

static void test_frame_payload_and_features_follow_from_the_header(void **state)
{
    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        const struct ferry_frame *frame = &goldens[i].frame;
        bool has = frame->type == FERRY_FRAME_WRITE || frame->type == FERRY_FRAME_READ_REPLY;

        assert_int_equal(ferry_frame_payload_bytes(frame), has ? frame->length : 0);
    }
    assert_int_equal(ferry_frame_features(&golden_named("read")->frame), 0);
    assert_int_equal(ferry_frame_features(&golden_named("hello")->frame), 0);
    assert_int_equal(ferry_frame_features(&golden_named("write")->frame),
                     FERRY_FEATURE_CHECKSUM | FERRY_FEATURE_CREDIT);
    assert_int_equal(ferry_frame_features(&golden_named("write with a scatter list")->frame),
                     FERRY_FEATURE_SCATTER);
    assert_int_equal(ferry_frame_features(&golden_named("resolve")->frame), FERRY_FEATURE_RESOLVE);
    assert_int_equal(ferry_frame_features(&golden_named("credit")->frame), FERRY_FEATURE_CREDIT);
}

static void test_frame_statuses_map_to_the_engines_and_back(void **state)
{
    static const enum ferry_status engine[] = {
        [FERRY_FRAME_OK] = FERRY_OK,
        [FERRY_FRAME_BAD_REQUEST] = FERRY_ERR_REFUSED,
        [FERRY_FRAME_RANGE] = FERRY_ERR_RANGE,
        [FERRY_FRAME_PERMISSION] = FERRY_ERR_PERMISSION,
        [FERRY_FRAME_STALE_REGISTRATION] = FERRY_ERR_STALE_KEY,
        [FERRY_FRAME_CLOSING] = FERRY_ERR_PEER_CLOSING,
        [FERRY_FRAME_TOO_LARGE] = FERRY_ERR_REFUSED,
        [FERRY_FRAME_BUSY] = FERRY_ERR_BUSY,
        [FERRY_FRAME_CHECKSUM_BAD] = FERRY_ERR_CHECKSUM,
        [FERRY_FRAME_UNKNOWN_SESSION] = FERRY_ERR_OUTCOME_UNKNOWN,
        [FERRY_FRAME_INTERNAL] = FERRY_ERR_REFUSED,
        [FERRY_FRAME_FULL] = FERRY_ERR_QUEUE_FULL,
        [FERRY_FRAME_AUTH] = FERRY_ERR_REFUSED,
        [FERRY_FRAME_UNSUPPORTED] = FERRY_ERR_REFUSED,
        [FERRY_FRAME_TLS_DUE] = FERRY_ERR_REFUSED,
    };
    static const struct {
        enum ferry_status engine;
        enum ferry_frame_status wire;
    } back[] = {
        {FERRY_OK, FERRY_FRAME_OK},
        {FERRY_ERR_PROTOCOL, FERRY_FRAME_BAD_REQUEST},
        {FERRY_ERR_INVALID, FERRY_FRAME_BAD_REQUEST},
        {FERRY_ERR_UNSUPPORTED, FERRY_FRAME_UNSUPPORTED},
        {FERRY_ERR_RANGE, FERRY_FRAME_RANGE},
        {FERRY_ERR_PERMISSION, FERRY_FRAME_PERMISSION},
        {FERRY_ERR_STALE_KEY, FERRY_FRAME_STALE_REGISTRATION},
        {FERRY_ERR_CLOSING, FERRY_FRAME_CLOSING},
        {FERRY_ERR_PEER_CLOSING, FERRY_FRAME_CLOSING},
        {FERRY_ERR_TOO_LARGE, FERRY_FRAME_TOO_LARGE},
        {FERRY_ERR_BUSY, FERRY_FRAME_BUSY},
        {FERRY_ERR_QUEUE_FULL, FERRY_FRAME_BUSY},
        {FERRY_ERR_NO_MEMORY, FERRY_FRAME_BUSY},
        {FERRY_ERR_LIMIT, FERRY_FRAME_FULL},
        {FERRY_ERR_CHECKSUM, FERRY_FRAME_CHECKSUM_BAD},
        {FERRY_ERR_OUTCOME_UNKNOWN, FERRY_FRAME_UNKNOWN_SESSION},
        {FERRY_ERR_IO, FERRY_FRAME_INTERNAL},
    };

    for (size_t i = 0; i < sizeof(engine) / sizeof(engine[0]); i++)
        assert_int_equal(ferry_frame_status_map((uint16_t)i), engine[i]);
    for (uint32_t later = sizeof(engine) / sizeof(engine[0]); later <= UINT16_MAX; later++)
        assert_int_equal(ferry_frame_status_map((uint16_t)later), FERRY_ERR_REFUSED);
    for (size_t i = 0; i < sizeof(back) / sizeof(back[0]); i++)
        assert_int_equal(ferry_frame_status_of(back[i].engine), back[i].wire);
    for (uint32_t i = 0; i <= FERRY_FRAME_BODY_BAD; i++) {
        enum ferry_frame_verdict verdict = (enum ferry_frame_verdict)i;
        bool too_new = verdict == FERRY_FRAME_OTHER_VERSION ||
                       verdict == FERRY_FRAME_TYPE_UNKNOWN || verdict == FERRY_FRAME_FLAG_UNKNOWN ||
                       verdict == FERRY_FRAME_EXTENSION_UNKNOWN;

        if (verdict != FERRY_FRAME_VALID) {
            assert_int_equal(ferry_frame_verdict_status(verdict),
                             too_new ? FERRY_FRAME_UNSUPPORTED : FERRY_FRAME_BAD_REQUEST);
        }
        assert_string_not_equal(ferry_frame_verdict_text(verdict), "unknown verdict");
    }
    assert_int_equal(ferry_frame_verdict_status(FERRY_FRAME_VALID), FERRY_FRAME_OK);
    assert_string_equal(ferry_frame_verdict_text((enum ferry_frame_verdict)99), "unknown verdict");
    assert_string_equal(ferry_frame_type_name(FERRY_FRAME_HELLO), "hello");
    assert_string_equal(ferry_frame_type_name(FERRY_FRAME_GOODBYE), "goodbye");
    assert_string_equal(ferry_frame_type_name(0), "unknown");
    assert_string_equal(ferry_frame_type_name(FERRY_FRAME_PROOF), "proof");
    assert_string_equal(ferry_frame_type_name(FERRY_FRAME_PROOF + 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_goldens_hold_both_ways),
        cmocka_unit_test(test_frame_list_entries_hold_both_ways),
        cmocka_unit_test(test_frame_peek_tells_how_much_to_receive),
        cmocka_unit_test(test_frame_peek_refuses_as_soon_as_it_sees),
        cmocka_unit_test(test_frame_header_size_edges),
        cmocka_unit_test(test_frame_flags_that_must_be_understood_refuse_and_the_others_do_not),
        cmocka_unit_test(test_frame_flags_must_agree_with_what_the_frame_says),
        cmocka_unit_test(test_frame_unused_fields_must_be_zero),
        cmocka_unit_test(test_frame_priority_id_and_range_edges),
        cmocka_unit_test(test_frame_answers_have_bytes_exactly_when_ok),
        cmocka_unit_test(test_frame_greeting_edges),
        cmocka_unit_test(test_frame_scatter_list_edges),
        cmocka_unit_test(test_frame_resolution_list_edges),
        cmocka_unit_test(test_frame_extensions_that_may_be_ignored_are),
        cmocka_unit_test(test_frame_extension_order_does_not_matter_but_number_and_place_do),
        cmocka_unit_test(test_frame_extension_sizes_cannot_reach_outside),
        cmocka_unit_test(test_frame_encode_refuses_what_decode_would),
        cmocka_unit_test(test_frame_encode_writes_all_or_nothing),
        cmocka_unit_test(test_frame_encode_takes_a_list_from_its_own_output),
        cmocka_unit_test(test_frame_payload_and_features_follow_from_the_header),
        cmocka_unit_test(test_frame_statuses_map_to_the_engines_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
