/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz ferry's own frames as a stream: peek, decode, skip the header, go on. What decodes must keep
 * every rule, must encode, and must mean the same when it is decoded again.
 */
#include "fuzz.h"

#include <string.h>

#include "wire/frame.h"

static uint8_t encoded[FERRY_FRAME_HEADER_MAX];

/* Read every entry: the bounds the decoder promised are checked by the sanitizer. */
static uint64_t sum_list(const struct ferry_frame *frame)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < frame->list.count; i++) {
        switch (frame->type) {
        case FERRY_FRAME_RESOLVE:
            sum += ferry_resolve_get(&frame->list, i);
            break;
        case FERRY_FRAME_RESOLVE_REPLY:
            sum += ferry_resolved_get(&frame->list, i).request_id;
            FUZZ_REQUIRE(ferry_resolved_get(&frame->list, i).verdict <= FERRY_RESOLVE_NOT_APPLIED);
            break;
        default:
            FUZZ_REQUIRE(ferry_scatter_get(&frame->list, i).length > 0);
            sum += ferry_scatter_get(&frame->list, i).length;
        }
    }
    return sum;
}

static bool has_list(const struct ferry_frame *frame)
{
    return (frame->flags & FERRY_FLAG_SCATTER) != 0 || frame->type == FERRY_FRAME_RESOLVE ||
           (frame->type == FERRY_FRAME_RESOLVE_REPLY && frame->status == FERRY_FRAME_OK);
}

static void try_frame(const struct ferry_frame *frame, uint32_t header_bytes)
{
    struct ferry_frame again;

    FUZZ_REQUIRE(ferry_frame_check(frame) == FERRY_FRAME_VALID);
    FUZZ_REQUIRE(strcmp(ferry_frame_type_name(frame->type), "unknown") != 0);
    (void)ferry_frame_features(frame);
    (void)ferry_frame_payload_bytes(frame);

    size_t size = ferry_frame_encode(encoded, sizeof(encoded), frame);

    FUZZ_REQUIRE(size >= FERRY_FRAME_FIXED_SIZE && size <= header_bytes);
    FUZZ_REQUIRE(size == ferry_frame_size(frame));
    FUZZ_REQUIRE(ferry_frame_decode(encoded, size, &again) == FERRY_FRAME_VALID);
    FUZZ_REQUIRE(again.type == frame->type && again.flags == frame->flags);
    FUZZ_REQUIRE(again.request_id == frame->request_id && again.length == frame->length);
    if (has_list(frame)) {
        uint64_t sum = sum_list(frame);

        FUZZ_REQUIRE(frame->list.count > 0 && frame->list.count == again.list.count);
        FUZZ_REQUIRE(sum == sum_list(&again));
        if ((frame->flags & FERRY_FLAG_SCATTER) != 0)
            FUZZ_REQUIRE(sum == frame->length);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t at = 0;

    while (at < size) {
        struct ferry_frame frame;
        uint32_t need = 0;
        enum ferry_frame_verdict verdict = ferry_frame_peek(data + at, size - at, &need);

        if (verdict != FERRY_FRAME_VALID) {
            FUZZ_REQUIRE(ferry_frame_decode(data + at, size - at, &frame) == verdict);
            break;
        }
        FUZZ_REQUIRE(need >= FERRY_FRAME_FIXED_SIZE && need <= FERRY_FRAME_HEADER_MAX);
        verdict = ferry_frame_decode(data + at, size - at, &frame);
        FUZZ_REQUIRE((verdict == FERRY_FRAME_TRUNCATED) == (need > size - at));
        FUZZ_REQUIRE(ferry_frame_verdict_text(verdict)[0] != '\0');
        if (verdict != FERRY_FRAME_VALID)
            break;
        try_frame(&frame, need);
        at += need;
    }
    return 0;
}
