/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry's own frames under random fields, every truncation, every lie about the header's size and
 * random damage: what decodes keeps the rules and says the same when it is encoded again.
 */
#include "test_wire_golden.h"

/* The largest header there is, and a fence behind it. */
#define HEADER_SIZE_MAX  FERRY_FRAME_HEADER_MAX
#define SCATTER_WIRE_MAX (FERRY_SCATTER_COUNT_MAX * FERRY_SCATTER_SIZE)

static uint8_t list_wire[SCATTER_WIRE_MAX];
static uint8_t out[HEADER_SIZE_MAX + 64];
static uint8_t again[HEADER_SIZE_MAX + 64];

/* A few entries mostly, the maximum now and then. */
static uint32_t random_count(struct wire_random *random, uint32_t max)
{
    if (wire_random_below(random, 64) == 0)
        return max;
    return 1 + (uint32_t)wire_random_below(random, 9);
}

/* Entries of any place and size whose sum fits 64 bits; returns the sum. */
static uint64_t random_scatter(struct wire_random *random, struct ferry_frame_list *list_out)
{
    uint32_t count = random_count(random, FERRY_SCATTER_COUNT_MAX);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t addr = wire_random_edgy(random);
        uint64_t room = UINT64_MAX - addr;
        uint64_t share = (UINT64_MAX - sum) / (count - i);
        uint64_t length_max = room < share ? room : share;

        if (length_max == 0) {
            addr = 1;
            length_max = 1;
        }

        uint64_t pick = wire_random_edgy(random);
        struct ferry_scatter entry = {
            .addr = addr,
            .length = 1 + pick % length_max,
            .registration_id = wire_random_edgy(random),
        };

        ferry_scatter_put(list_wire, i, &entry);
        sum += entry.length;
    }
    *list_out = (struct ferry_frame_list){list_wire, count};
    return sum;
}

static void random_resolution(struct wire_random *random, bool reply,
                              struct ferry_frame_list *list_out)
{
    uint32_t count = random_count(random, FERRY_RESOLVE_COUNT_MAX);
    uint64_t id = wire_random_below(random, 2) == 0 ? 0 : UINT64_MAX - count * 8ULL;

    for (uint32_t i = 0; i < count; i++) {
        id += 1 + wire_random_below(random, 8);

        struct ferry_resolved entry = {
            .request_id = id,
            .verdict = (enum ferry_resolve_verdict)wire_random_below(random, 3),
        };

        if (reply)
            ferry_resolved_put(list_wire, i, &entry);
        else
            ferry_resolve_put(list_wire, i, id);
    }
    *list_out = (struct ferry_frame_list){list_wire, count};
}

static void random_request(struct wire_random *random, struct ferry_frame *frame)
{
    frame->priority = (uint8_t)wire_random_below(random, 3);
    frame->request_id = wire_random_edgy(random) | 1;
    if (wire_random_below(random, 4) == 0) {
        frame->flags |= FERRY_FLAG_SCATTER;
        frame->length = random_scatter(random, &frame->list);
    } else {
        frame->registration_id = wire_random_edgy(random);
        frame->remote_addr = wire_random_edgy(random);
        if (frame->remote_addr == UINT64_MAX)
            frame->remote_addr = 0;
        frame->length = 1 + wire_random_edgy(random) % (UINT64_MAX - frame->remote_addr);
    }
    if (frame->type == FERRY_FRAME_WRITE && wire_random_below(random, 2) == 0)
        frame->flags |= FERRY_FLAG_CHECKSUM;
}

static void random_answer(struct wire_random *random, struct ferry_frame *frame)
{
    if (wire_random_below(random, 2) == 0)
        frame->status = 1 + (uint16_t)wire_random_below(random, UINT16_MAX);
    frame->request_id = wire_random_edgy(random) | 1;
    if (frame->status != FERRY_FRAME_OK) {
        if (wire_random_below(random, 2) == 0)
            frame->flags |= FERRY_FLAG_NO_CLOSE;
        else
            frame->request_id &= wire_random_u64(random) & 1 ? 0 : UINT64_MAX;
        return;
    }
    if (frame->type == FERRY_FRAME_RESOLVE_REPLY) {
        random_resolution(random, true, &frame->list);
        return;
    }
    frame->length = wire_random_edgy(random);
    frame->length += frame->length == 0;
    if (frame->type == FERRY_FRAME_READ_REPLY && wire_random_below(random, 2) == 0)
        frame->flags |= FERRY_FLAG_CHECKSUM;
}

static void random_greeting(struct wire_random *random, struct ferry_frame *frame)
{
    if (frame->type == FERRY_FRAME_HELLO) {
        struct ferry_hello *hello = &frame->hello;

        wire_random_fill(random, hello->incarnation, sizeof(hello->incarnation));
        wire_random_fill(random, hello->nonce, sizeof(hello->nonce));
        hello->lane_count = 1 + (uint32_t)wire_random_below(random, FERRY_HELLO_LANE_COUNT_MAX);
        hello->lane_index = (uint32_t)wire_random_below(random, hello->lane_count);
        hello->features = wire_random_u64(random);
        hello->predecessor_session_id = wire_random_edgy(random);
        hello->max_transfer_bytes = wire_random_edgy(random) | 1;
        hello->low_water_request_id = wire_random_edgy(random);
        return;
    }
    if (wire_random_below(random, 4) == 0) {
        frame->status = 1 + (uint16_t)wire_random_below(random, UINT16_MAX);
        return;
    }

    struct ferry_hello_reply *reply = &frame->hello_reply;

    wire_random_fill(random, reply->incarnation, sizeof(reply->incarnation));
    reply->session_id = wire_random_edgy(random) | 1;
    reply->features = wire_random_u64(random);
    reply->max_transfer_bytes = wire_random_edgy(random) | 1;
    reply->initial_credit_bytes = wire_random_edgy(random);
    reply->window_ops = (uint32_t)wire_random_edgy(random) | 1;
    reply->window_bytes = wire_random_edgy(random) | 1;
}

/* A frame that keeps every rule. */
static struct ferry_frame random_frame(struct wire_random *random)
{
    struct ferry_frame frame;

    memset(&frame, 0, sizeof(frame));
    frame.type = (uint8_t)(1 + wire_random_below(random, FERRY_FRAME_PROOF));
    switch (frame.type) {
    case FERRY_FRAME_HELLO:
    case FERRY_FRAME_HELLO_REPLY:
        random_greeting(random, &frame);
        return frame; /* no flags before the greeting is over */
    case FERRY_FRAME_CHALLENGE:
        wire_random_fill(random, frame.challenge.incarnation, FERRY_INCARNATION_SIZE);
        wire_random_fill(random, frame.challenge.nonce, FERRY_NONCE_SIZE);
        return frame;
    case FERRY_FRAME_PROOF:
        wire_random_fill(random, frame.proof, sizeof(frame.proof));
        return frame;
    case FERRY_FRAME_READ:
    case FERRY_FRAME_WRITE:
        random_request(random, &frame);
        break;
    case FERRY_FRAME_RESOLVE:
        frame.request_id = wire_random_edgy(random) | 1;
        random_resolution(random, false, &frame.list);
        break;
    case FERRY_FRAME_CREDIT:
        frame.flags = FERRY_FLAG_CREDIT;
        break;
    case FERRY_FRAME_GOODBYE:
        frame.goodbye_reason = (uint32_t)wire_random_edgy(random);
        break;
    default:
        random_answer(random, &frame);
    }
    if (wire_random_below(random, 2) == 0)
        frame.flags |= FERRY_FLAG_CREDIT;
    if ((frame.flags & FERRY_FLAG_CREDIT) != 0) {
        frame.credit_bytes = wire_random_edgy(random);
        frame.credit_sequence = (uint32_t)wire_random_edgy(random);
    }
    if ((frame.flags & FERRY_FLAG_CHECKSUM) != 0)
        frame.checksum = (uint32_t)wire_random_edgy(random);
    return frame;
}

static uint32_t list_entry_size(const struct ferry_frame *frame)
{
    if (frame->type == FERRY_FRAME_RESOLVE)
        return FERRY_RESOLVE_SIZE;
    return frame->type == FERRY_FRAME_RESOLVE_REPLY ? FERRY_RESOLVE_REPLY_SIZE : FERRY_SCATTER_SIZE;
}

static void test_frame_random_frames_round_trip(void **state)
{
    struct wire_random random = wire_random_init(__func__);
    uint32_t kinds[FERRY_FRAME_PROOF + 1] = {0};

    for (int i = 0; i < 60000; i++) {
        struct ferry_frame frame = random_frame(&random);
        struct ferry_frame decoded;
        uint32_t need;

        assert_int_equal(ferry_frame_check(&frame), FERRY_FRAME_VALID);

        size_t size = ferry_frame_size(&frame);

        memset(out, 0xEE, size + 16);
        assert_int_equal(ferry_frame_encode(out, size, &frame), size);
        for (size_t at = size; at < size + 16; at++)
            assert_int_equal(out[at], 0xEE);
        assert_int_equal(ferry_frame_peek(out, 8, &need), FERRY_FRAME_VALID);
        assert_int_equal(need, size);
        assert_int_equal(ferry_frame_decode(out, size, &decoded), FERRY_FRAME_VALID);
        assert_frame_equal(&decoded, &frame);
        if (golden_has_list(&frame)) {
            assert_int_equal(decoded.list.count, frame.list.count);
            assert_memory_equal(decoded.list.wire, frame.list.wire,
                                (size_t)frame.list.count * list_entry_size(&frame));
        }
        kinds[frame.type]++;
    }
    for (size_t type = 1; type <= FERRY_FRAME_PROOF; type++)
        assert_true(kinds[type] > 0);
}

/* Up to the maximum and not one more. */
static void test_frame_list_counts_are_bounded(void **state)
{
    static uint8_t wire[(FERRY_SCATTER_COUNT_MAX + 1) * FERRY_SCATTER_SIZE];
    struct ferry_frame frame = {
        .type = FERRY_FRAME_READ, .request_id = 1, .flags = FERRY_FLAG_SCATTER};

    for (uint32_t i = 0; i <= FERRY_SCATTER_COUNT_MAX; i++)
        ferry_scatter_put(wire, i, &(struct ferry_scatter){i, 1, i});
    frame.length = FERRY_SCATTER_COUNT_MAX;
    frame.list = (struct ferry_frame_list){wire, FERRY_SCATTER_COUNT_MAX};

    size_t size = ferry_frame_encode(out, sizeof(out), &frame);

    assert_int_equal(size, FERRY_FRAME_LIST_OFFSET + SCATTER_WIRE_MAX);
    assert_int_equal(decode_exact(out, size), FERRY_FRAME_VALID);
    frame.list.count++;
    frame.length++;
    assert_int_equal(ferry_frame_check(&frame), FERRY_FRAME_BODY_BAD);
    assert_int_equal(ferry_frame_encode(out, sizeof(out), &frame), 0);

    /* The same, by hand past the encoder. */
    memcpy(out + FERRY_FRAME_LIST_OFFSET, wire, sizeof(wire));
    size += FERRY_SCATTER_SIZE;
    out[6] = (uint8_t)(size >> 8);
    out[7] = (uint8_t)size;
    out[66] = (uint8_t)(sizeof(wire) >> 8);
    out[67] = (uint8_t)sizeof(wire);
    out[46] = (uint8_t)(frame.length >> 8);
    out[47] = (uint8_t)frame.length;
    assert_int_equal(decode_exact(out, size), FERRY_FRAME_BODY_BAD);

    struct ferry_frame resolve = {.type = FERRY_FRAME_RESOLVE, .request_id = 1};

    for (uint32_t i = 0; i <= FERRY_RESOLVE_COUNT_MAX; i++)
        ferry_resolve_put(wire, i, i + 1);
    resolve.list = (struct ferry_frame_list){wire, FERRY_RESOLVE_COUNT_MAX};
    assert_int_equal(ferry_frame_check(&resolve), FERRY_FRAME_VALID);
    resolve.list.count++;
    assert_int_equal(ferry_frame_check(&resolve), FERRY_FRAME_BODY_BAD);
}

static void test_frame_truncated_headers_are_refused_at_every_length(void **state)
{
    struct wire_random random = wire_random_init(__func__);

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        uint8_t bytes[GOLDEN_SIZE_MAX];
        size_t len = wire_unhex(goldens[i].hex, bytes, sizeof(bytes));

        for (size_t have = 0; have < len; have++)
            assert_int_equal(decode_exact(bytes, have), FERRY_FRAME_TRUNCATED);
        assert_int_equal(decode_exact(bytes, len), FERRY_FRAME_VALID);
    }
    for (int i = 0; i < 2000; i++) {
        struct ferry_frame frame = random_frame(&random);
        size_t size = ferry_frame_encode(out, sizeof(out), &frame);

        assert_true(size > 0);
        assert_int_equal(decode_exact(out, wire_random_below(&random, size)),
                         FERRY_FRAME_TRUNCATED);
    }
}

/*
 * A header that claims to be longer or shorter than it is. Behind the real one come zeros, 0xFF, or
 * a second valid frame, as on a stream; none may be taken for a valid longer header.
 */
static void test_frame_header_size_lies_are_refused(void **state)
{
    static uint8_t stream[UINT16_MAX + 1];

    for (size_t i = 0; i < GOLDEN_COUNT; i++) {
        size_t len = wire_unhex(goldens[i].hex, stream, sizeof(stream));

        for (int filler = 0; filler < 3; filler++) {
            memset(stream + len, filler == 1 ? 0xFF : 0, sizeof(stream) - len);
            if (filler == 2)
                wire_unhex(goldens[0].hex, stream + len, sizeof(stream) - len);
            for (uint32_t size = 0; size <= UINT16_MAX; size++) {
                /* All near the truth, then a sample: each step checks up to 64 KiB. */
                if (size > 1024 && size % 1021 != 0 && size < UINT16_MAX - 16)
                    continue;
                if (size == len)
                    continue;
                stream[6] = (uint8_t)(size >> 8);
                stream[7] = (uint8_t)size;

                enum ferry_frame_verdict exact = decode_exact(stream, size);

                assert_int_not_equal(exact, FERRY_FRAME_VALID);
                if (size >= 64 && size <= HEADER_SIZE_MAX && size % 8 == 0)
                    assert_int_equal(decode_exact(stream, size - 1), FERRY_FRAME_TRUNCATED);
            }
        }
    }
}

/* What still decodes after damage keeps the rules and is the same frame when it is encoded again.
 */
static void test_frame_damage_is_refused_or_means_what_it_says(void **state)
{
    struct wire_random random = wire_random_init(__func__);
    uint32_t survived = 0;

    for (int i = 0; i < 100000; i++) {
        struct ferry_frame frame = random_frame(&random);
        struct ferry_frame decoded;
        struct ferry_frame repeated;
        size_t size = ferry_frame_encode(out, sizeof(out), &frame);
        uint64_t hits = 1 + wire_random_below(&random, 3);

        assert_true(size > 0);
        while (hits-- > 0) {
            uint64_t at = wire_random_below(&random, size < 160 ? size : 160);

            if (wire_random_below(&random, 2) == 0)
                out[at] = (uint8_t)wire_random_edgy(&random);
            else
                out[at] ^= (uint8_t)(1u << wire_random_below(&random, 8));
        }

        uint8_t *copy = wire_exact_copy(out, size);

        if (ferry_frame_decode(copy, size, &decoded) == FERRY_FRAME_VALID) {
            survived++;
            assert_int_equal(ferry_frame_check(&decoded), FERRY_FRAME_VALID);

            size_t size_again = ferry_frame_encode(again, sizeof(again), &decoded);

            assert_true(size_again > 0);
            assert_true(size_again <= size);
            assert_int_equal(ferry_frame_decode(again, size_again, &repeated), FERRY_FRAME_VALID);
            assert_frame_equal(&repeated, &decoded);
        }
        free(copy);
    }
    assert_true(survived > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_random_frames_round_trip),
        cmocka_unit_test(test_frame_list_counts_are_bounded),
        cmocka_unit_test(test_frame_truncated_headers_are_refused_at_every_length),
        cmocka_unit_test(test_frame_header_size_lies_are_refused),
        cmocka_unit_test(test_frame_damage_is_refused_or_means_what_it_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
