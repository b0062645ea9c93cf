/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codec of ferry's own frames. One table says what each type may carry; the same checks serve
 * both directions, so that what encodes also decodes. Pure functions, any thread; nothing here may
 * allocate, block, log, keep state or look past the header it was given.
 */
#include "wire/frame.h"

#include "base/checked.h"
#include "wire/bytes.h"

/* Offsets of the fixed header. */
#define AT_VERSION      4
#define AT_TYPE         5
#define AT_HEADER_BYTES 6
#define AT_FLAGS        8
#define AT_STATUS       12
#define AT_PRIORITY     14
#define AT_RESERVED     15
#define AT_REQUEST_ID   16
#define AT_REGISTRATION 24
#define AT_ADDR         32
#define AT_LENGTH       40
#define AT_CREDIT       48
#define AT_CREDIT_SEQ   56
#define AT_CHECKSUM     60

/* An extension: u16 type, u16 bytes of value, u32 reserved, the value, zeros up to 8. */
#define EXT_HEADER_SIZE 8u
#define EXT_MAY_IGNORE  0x8000u

enum {
    EXT_NONE = 0,
    EXT_HELLO = 1,
    EXT_HELLO_REPLY = 2,
    EXT_SCATTER = 3,
    EXT_RESOLVE = 4,
    EXT_RESOLVE_REPLY = 5,
    EXT_GOODBYE = 6,
    EXT_CHALLENGE = 7,
    EXT_PROOF = 8,
    EXT_LAST = EXT_PROOF,
};

#define HELLO_SIZE       72u
#define HELLO_REPLY_SIZE 64u
#define GOODBYE_SIZE     4u
#define CHALLENGE_SIZE   32u

#define FLAGS_MUST_UNDERSTAND 0x0000FFFFu
#define FLAGS_KNOWN                                                                                \
    (FERRY_FLAG_CHECKSUM | FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER | FERRY_FLAG_NO_CLOSE)

/* The fields a type uses; the others are zero on the wire. */
#define USES_ID       (1u << 0)
#define USES_TARGET   (1u << 1) /* registration and address */
#define USES_LENGTH   (1u << 2)
#define USES_STATUS   (1u << 3) /* that is: an answer */
#define USES_PRIORITY (1u << 4)

#define USES_REQUEST (USES_ID | USES_TARGET | USES_LENGTH | USES_PRIORITY)
#define USES_ANSWER  (USES_ID | USES_LENGTH | USES_STATUS)

struct frame_rule {
    uint8_t uses;
    uint8_t extension;  /* the known one this type may carry */
    uint16_t flags;     /* those it may carry */
    uint16_t flags_due; /* those it must carry */
};

/* The greeting carries no flags: none is agreed on yet. */
static const struct frame_rule rules[] = {
    [FERRY_FRAME_HELLO] = {.extension = EXT_HELLO},
    [FERRY_FRAME_HELLO_REPLY] = {.uses = USES_STATUS, .extension = EXT_HELLO_REPLY},
    [FERRY_FRAME_READ] = {.uses = USES_REQUEST,
                          .extension = EXT_SCATTER,
                          .flags = FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER},
    [FERRY_FRAME_WRITE] = {.uses = USES_REQUEST,
                           .extension = EXT_SCATTER,
                           .flags = FERRY_FLAG_CREDIT | FERRY_FLAG_SCATTER | FERRY_FLAG_CHECKSUM},
    [FERRY_FRAME_READ_REPLY] = {.uses = USES_ANSWER,
                                .flags = FERRY_FLAG_CREDIT | FERRY_FLAG_CHECKSUM |
                                         FERRY_FLAG_NO_CLOSE},
    [FERRY_FRAME_WRITE_REPLY] = {.uses = USES_ANSWER,
                                 .flags = FERRY_FLAG_CREDIT | FERRY_FLAG_NO_CLOSE},
    [FERRY_FRAME_RESOLVE] = {.uses = USES_ID, .extension = EXT_RESOLVE, .flags = FERRY_FLAG_CREDIT},
    [FERRY_FRAME_RESOLVE_REPLY] = {.uses = USES_ID | USES_STATUS,
                                   .extension = EXT_RESOLVE_REPLY,
                                   .flags = FERRY_FLAG_CREDIT | FERRY_FLAG_NO_CLOSE},
    [FERRY_FRAME_CREDIT] = {.flags = FERRY_FLAG_CREDIT, .flags_due = FERRY_FLAG_CREDIT},
    [FERRY_FRAME_GOODBYE] = {.extension = EXT_GOODBYE, .flags = FERRY_FLAG_CREDIT},
    [FERRY_FRAME_CHALLENGE] = {.extension = EXT_CHALLENGE},
    [FERRY_FRAME_PROOF] = {.extension = EXT_PROOF},
};

static bool type_known(uint8_t type)
{
    return type >= FERRY_FRAME_HELLO && type <= FERRY_FRAME_PROOF;
}

/* The extension this frame must have; EXT_NONE when it must have no known one. */
static uint8_t extension_due(const struct ferry_frame *frame)
{
    const struct frame_rule *rule = &rules[frame->type];

    if (rule->extension == EXT_SCATTER)
        return (frame->flags & FERRY_FLAG_SCATTER) != 0 ? EXT_SCATTER : EXT_NONE;
    if ((rule->uses & USES_STATUS) != 0 && frame->status != FERRY_FRAME_OK)
        return EXT_NONE;
    return rule->extension;
}

static uint32_t entry_size(uint8_t extension)
{
    switch (extension) {
    case EXT_SCATTER:
        return FERRY_SCATTER_SIZE;
    case EXT_RESOLVE:
        return FERRY_RESOLVE_SIZE;
    case EXT_RESOLVE_REPLY:
        return FERRY_RESOLVE_REPLY_SIZE;
    default:
        return 0;
    }
}

static uint32_t entry_count_max(uint8_t extension)
{
    return extension == EXT_SCATTER ? FERRY_SCATTER_COUNT_MAX : FERRY_RESOLVE_COUNT_MAX;
}

/* Fields that the type does not use must be zero, so that a later version may give them a meaning.
 */
static bool unused_are_zero(const struct ferry_frame *frame, uint8_t uses)
{
    uint64_t unused = 0;

    if ((uses & USES_ID) == 0)
        unused |= frame->request_id;
    if ((uses & USES_TARGET) == 0 || (frame->flags & FERRY_FLAG_SCATTER) != 0)
        unused |= frame->registration_id | frame->remote_addr;
    if ((uses & USES_LENGTH) == 0)
        unused |= frame->length;
    if ((uses & USES_STATUS) == 0)
        unused |= frame->status;
    if ((uses & USES_PRIORITY) == 0)
        unused |= frame->priority;
    if ((frame->flags & FERRY_FLAG_CREDIT) == 0)
        unused |= frame->credit_bytes | frame->credit_sequence;
    if ((frame->flags & FERRY_FLAG_CHECKSUM) == 0)
        unused |= frame->checksum;
    return unused == 0;
}

static enum ferry_frame_verdict check_flags(const struct ferry_frame *frame,
                                            const struct frame_rule *rule)
{
    uint32_t surplus = frame->flags & ~(uint32_t)rule->flags;

    if (FERRY_UNLIKELY(surplus != 0)) {
        return (surplus & ~(uint32_t)FLAGS_KNOWN) != 0 ? FERRY_FRAME_FLAG_UNKNOWN
                                                       : FERRY_FRAME_FLAG_MISPLACED;
    }
    if ((frame->flags & rule->flags_due) != rule->flags_due)
        return FERRY_FRAME_FLAG_MISPLACED;
    return FERRY_FRAME_VALID;
}

/* Every rule of the fixed header. @frame->flags holds no flag that may be ignored. */
static enum ferry_frame_verdict check_header(const struct ferry_frame *frame)
{
    if (!type_known(frame->type))
        return FERRY_FRAME_TYPE_UNKNOWN;

    const struct frame_rule *rule = &rules[frame->type];
    enum ferry_frame_verdict verdict = check_flags(frame, rule);

    if (FERRY_UNLIKELY(verdict != FERRY_FRAME_VALID))
        return verdict;
    if (FERRY_UNLIKELY(!unused_are_zero(frame, rule->uses)))
        return FERRY_FRAME_RESERVED_SET;
    if (frame->priority > FERRY_FRAME_PRIORITY_MAX)
        return FERRY_FRAME_FIELD_BAD;

    bool ok = frame->status == FERRY_FRAME_OK;
    bool stays_open = (frame->flags & FERRY_FLAG_NO_CLOSE) != 0;

    if ((ok && stays_open) || (!ok && (frame->flags & FERRY_FLAG_CHECKSUM) != 0))
        return FERRY_FRAME_FLAG_MISPLACED;

    /* Id 0 is "the request could not be decoded", and then the stream cannot go on either. */
    if ((rule->uses & USES_ID) != 0 && frame->request_id == 0 && (ok || stays_open))
        return FERRY_FRAME_FIELD_BAD;

    if ((rule->uses & USES_LENGTH) != 0) {
        if ((frame->length > 0) != ok || !ferry_range_ok(frame->remote_addr, frame->length))
            return FERRY_FRAME_LENGTH_BAD;
    }
    return FERRY_FRAME_VALID;
}

static enum ferry_frame_verdict check_hello(const struct ferry_hello *hello)
{
    if (hello->lane_count == 0 || hello->lane_count > FERRY_HELLO_LANE_COUNT_MAX)
        return FERRY_FRAME_BODY_BAD;
    if (hello->lane_index >= hello->lane_count || hello->max_transfer_bytes == 0)
        return FERRY_FRAME_BODY_BAD;
    return FERRY_FRAME_VALID;
}

static enum ferry_frame_verdict check_hello_reply(const struct ferry_hello_reply *reply)
{
    if (reply->session_id == 0 || reply->max_transfer_bytes == 0)
        return FERRY_FRAME_BODY_BAD;
    if (reply->window_ops == 0 || reply->window_bytes == 0)
        return FERRY_FRAME_BODY_BAD;
    return FERRY_FRAME_VALID;
}

/* Each entry holds at least one byte of the address space, and together exactly @length. */
static enum ferry_frame_verdict check_scatter(const struct ferry_frame_list *list, uint64_t length)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        struct ferry_scatter entry = ferry_scatter_get(list, i);

        if (entry.length == 0 || !ferry_range_ok(entry.addr, entry.length))
            return FERRY_FRAME_LENGTH_BAD;
        if (!ferry_add_u64(sum, entry.length, &sum))
            return FERRY_FRAME_LENGTH_BAD;
    }
    return sum == length ? FERRY_FRAME_VALID : FERRY_FRAME_LENGTH_BAD;
}

/* Ids ascend, so none is zero and none comes twice: each question has one answer. */
static enum ferry_frame_verdict check_resolve(const struct ferry_frame_list *list)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        uint64_t id = ferry_resolve_get(list, i);

        if (id <= last)
            return FERRY_FRAME_BODY_BAD;
        last = id;
    }
    return FERRY_FRAME_VALID;
}

static enum ferry_frame_verdict check_resolve_reply(const struct ferry_frame_list *list)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        const uint8_t *wire = list->wire + (size_t)i * FERRY_RESOLVE_REPLY_SIZE;
        uint64_t id = ferry_get_be64(wire);

        if (id <= last || wire[8] > FERRY_RESOLVE_NOT_APPLIED)
            return FERRY_FRAME_BODY_BAD;
        if ((ferry_get_be64(wire + 8) & 0x00FFFFFFFFFFFFFFULL) != 0)
            return FERRY_FRAME_RESERVED_SET;
        last = id;
    }
    return FERRY_FRAME_VALID;
}

/* The rules of the extension that is due, on the decoded form. */
static enum ferry_frame_verdict check_body(const struct ferry_frame *frame)
{
    uint8_t due = extension_due(frame);

    if (entry_size(due) > 0) {
        const struct ferry_frame_list *list = &frame->list;

        if (list->wire == NULL || list->count == 0 || list->count > entry_count_max(due))
            return FERRY_FRAME_BODY_BAD;
    }
    switch (due) {
    case EXT_NONE: /* a list without its flag would be dropped in silence */
        if (rules[frame->type].extension == EXT_SCATTER && frame->list.count > 0)
            return FERRY_FRAME_FLAG_MISPLACED;
        return FERRY_FRAME_VALID;
    case EXT_HELLO:
        return check_hello(&frame->hello);
    case EXT_HELLO_REPLY:
        return check_hello_reply(&frame->hello_reply);
    case EXT_SCATTER:
        return check_scatter(&frame->list, frame->length);
    case EXT_RESOLVE:
        return check_resolve(&frame->list);
    case EXT_RESOLVE_REPLY:
        return check_resolve_reply(&frame->list);
    default:
        return FERRY_FRAME_VALID;
    }
}

enum ferry_frame_verdict ferry_frame_peek(const uint8_t *bytes, size_t have, uint32_t *need_out)
{
    if (have >= 4 && ferry_get_be32(bytes) != FERRY_FRAME_MAGIC)
        return FERRY_FRAME_NOT_FERRY;
    if (have < AT_FLAGS) {
        *need_out = FERRY_FRAME_FIXED_SIZE;
        return FERRY_FRAME_VALID;
    }
    if (bytes[AT_VERSION] != FERRY_FRAME_VERSION)
        return FERRY_FRAME_OTHER_VERSION;
    if (!type_known(bytes[AT_TYPE]))
        return FERRY_FRAME_TYPE_UNKNOWN;

    uint32_t header_bytes = ferry_get_be16(bytes + AT_HEADER_BYTES);

    if (header_bytes < FERRY_FRAME_FIXED_SIZE || header_bytes > FERRY_FRAME_HEADER_MAX ||
        header_bytes % 8 != 0)
        return FERRY_FRAME_HEADER_SIZE;
    *need_out = header_bytes;
    return FERRY_FRAME_VALID;
}

static void decode_fixed(const uint8_t *bytes, struct ferry_frame *frame_out)
{
    frame_out->type = bytes[AT_TYPE];
    frame_out->priority = bytes[AT_PRIORITY];
    frame_out->status = ferry_get_be16(bytes + AT_STATUS);
    frame_out->flags = ferry_get_be32(bytes + AT_FLAGS) & FLAGS_MUST_UNDERSTAND;
    frame_out->request_id = ferry_get_be64(bytes + AT_REQUEST_ID);
    frame_out->registration_id = ferry_get_be64(bytes + AT_REGISTRATION);
    frame_out->remote_addr = ferry_get_be64(bytes + AT_ADDR);
    frame_out->length = ferry_get_be64(bytes + AT_LENGTH);
    frame_out->credit_bytes = ferry_get_be64(bytes + AT_CREDIT);
    frame_out->credit_sequence = ferry_get_be32(bytes + AT_CREDIT_SEQ);
    frame_out->checksum = ferry_get_be32(bytes + AT_CHECKSUM);
    frame_out->list = (struct ferry_frame_list){NULL, 0};
}

static void decode_hello(const uint8_t *wire, struct ferry_hello *hello_out)
{
    memcpy(hello_out->incarnation, wire, FERRY_INCARNATION_SIZE);
    hello_out->lane_index = ferry_get_be32(wire + 16);
    hello_out->lane_count = ferry_get_be32(wire + 20);
    hello_out->features = ferry_get_be64(wire + 24);
    hello_out->predecessor_session_id = ferry_get_be64(wire + 32);
    hello_out->max_transfer_bytes = ferry_get_be64(wire + 40);
    hello_out->low_water_request_id = ferry_get_be64(wire + 48);
    memcpy(hello_out->nonce, wire + 56, FERRY_NONCE_SIZE);
}

static void decode_hello_reply(const uint8_t *wire, struct ferry_hello_reply *reply_out)
{
    memcpy(reply_out->incarnation, wire, FERRY_INCARNATION_SIZE);
    reply_out->session_id = ferry_get_be64(wire + 16);
    reply_out->features = ferry_get_be64(wire + 24);
    reply_out->max_transfer_bytes = ferry_get_be64(wire + 32);
    reply_out->initial_credit_bytes = ferry_get_be64(wire + 40);
    reply_out->window_ops = ferry_get_be32(wire + 48);
    reply_out->window_bytes = ferry_get_be64(wire + 56);
}

/* Sizes first, then fields; the rules on the values are check_body()'s. */
static enum ferry_frame_verdict decode_body(uint8_t extension, const uint8_t *value,
                                            uint32_t value_bytes, struct ferry_frame *frame_out)
{
    uint32_t size = entry_size(extension);

    if (size > 0) {
        if (value_bytes % size != 0)
            return FERRY_FRAME_EXTENSION_BAD;
        frame_out->list = (struct ferry_frame_list){value, value_bytes / size};
        return FERRY_FRAME_VALID;
    }
    if (extension == EXT_HELLO && value_bytes == HELLO_SIZE) {
        decode_hello(value, &frame_out->hello);
        return FERRY_FRAME_VALID;
    }
    if (extension == EXT_HELLO_REPLY && value_bytes == HELLO_REPLY_SIZE) {
        if (ferry_get_be32(value + 52) != 0)
            return FERRY_FRAME_RESERVED_SET;
        decode_hello_reply(value, &frame_out->hello_reply);
        return FERRY_FRAME_VALID;
    }
    if (extension == EXT_GOODBYE && value_bytes == GOODBYE_SIZE) {
        frame_out->goodbye_reason = ferry_get_be32(value);
        return FERRY_FRAME_VALID;
    }
    if (extension == EXT_CHALLENGE && value_bytes == CHALLENGE_SIZE) {
        memcpy(frame_out->challenge.incarnation, value, FERRY_INCARNATION_SIZE);
        memcpy(frame_out->challenge.nonce, value + FERRY_INCARNATION_SIZE, FERRY_NONCE_SIZE);
        return FERRY_FRAME_VALID;
    }
    if (extension == EXT_PROOF && value_bytes == FERRY_PROOF_SIZE) {
        memcpy(frame_out->proof, value, FERRY_PROOF_SIZE);
        return FERRY_FRAME_VALID;
    }
    return FERRY_FRAME_EXTENSION_BAD;
}

/* Walk the extensions in bytes[64, header_bytes). Each step takes at least 8 bytes. */
static enum ferry_frame_verdict decode_extensions(const uint8_t *bytes, uint32_t header_bytes,
                                                  struct ferry_frame *frame_out)
{
    uint8_t due = extension_due(frame_out);
    uint32_t at = FERRY_FRAME_FIXED_SIZE;

    while (at < header_bytes) {
        uint32_t room = header_bytes - at - EXT_HEADER_SIZE; /* both are multiples of 8 */
        uint32_t type = ferry_get_be16(bytes + at);
        uint32_t value_bytes = ferry_get_be16(bytes + at + 2);
        const uint8_t *value = bytes + at + EXT_HEADER_SIZE;

        if (value_bytes > room)
            return FERRY_FRAME_EXTENSION_BAD;
        if (ferry_get_be32(bytes + at + 4) != 0)
            return FERRY_FRAME_RESERVED_SET;

        uint32_t padded = (value_bytes + 7) & ~7u; /* at most room, itself a multiple of 8 */

        for (uint32_t i = value_bytes; i < padded; i++) {
            if (value[i] != 0)
                return FERRY_FRAME_RESERVED_SET;
        }
        at += EXT_HEADER_SIZE + padded;

        if ((type & EXT_MAY_IGNORE) != 0)
            continue;
        if (type == EXT_NONE || type > EXT_LAST)
            return FERRY_FRAME_EXTENSION_UNKNOWN;
        if (type != due)
            return FERRY_FRAME_EXTENSION_BAD;

        enum ferry_frame_verdict verdict = decode_body((uint8_t)type, value, value_bytes,
                                                       frame_out);

        if (verdict != FERRY_FRAME_VALID)
            return verdict;
        due = EXT_NONE; /* a second one of the same type is one too many */
    }
    return due == EXT_NONE ? FERRY_FRAME_VALID : FERRY_FRAME_EXTENSION_BAD;
}

/* Everything but the bodies that come in an extension of their own. */
static void copy_plain(const struct ferry_frame *frame, struct ferry_frame *frame_out)
{
    frame_out->type = frame->type;
    frame_out->priority = frame->priority;
    frame_out->status = frame->status;
    frame_out->flags = frame->flags;
    frame_out->request_id = frame->request_id;
    frame_out->registration_id = frame->registration_id;
    frame_out->remote_addr = frame->remote_addr;
    frame_out->length = frame->length;
    frame_out->credit_bytes = frame->credit_bytes;
    frame_out->credit_sequence = frame->credit_sequence;
    frame_out->checksum = frame->checksum;
    frame_out->list = frame->list;
}

/* Its own copy of the frame, so that the one of the plain case can stay in registers. */
FERRY_COLD static enum ferry_frame_verdict
decode_with_extensions(const uint8_t *bytes, uint32_t header_bytes, struct ferry_frame *frame_out)
{
    struct ferry_frame frame;

    decode_fixed(bytes, &frame);

    enum ferry_frame_verdict verdict = decode_extensions(bytes, header_bytes, &frame);

    if (verdict == FERRY_FRAME_VALID)
        verdict = check_body(&frame);
    if (verdict == FERRY_FRAME_VALID)
        *frame_out = frame;
    return verdict;
}

enum ferry_frame_verdict ferry_frame_decode(const uint8_t *bytes, size_t have,
                                            struct ferry_frame *frame_out)
{
    uint32_t need;
    enum ferry_frame_verdict verdict = ferry_frame_peek(bytes, have, &need);

    if (FERRY_UNLIKELY(verdict != FERRY_FRAME_VALID))
        return verdict;
    if (have < need)
        return FERRY_FRAME_TRUNCATED;

    struct ferry_frame frame;

    decode_fixed(bytes, &frame);
    if (bytes[AT_RESERVED] != 0)
        return FERRY_FRAME_RESERVED_SET;
    verdict = check_header(&frame);
    if (FERRY_UNLIKELY(verdict != FERRY_FRAME_VALID))
        return verdict;
    if (need > FERRY_FRAME_FIXED_SIZE || extension_due(&frame) != EXT_NONE)
        return decode_with_extensions(bytes, need, frame_out);
    copy_plain(&frame, frame_out);
    return FERRY_FRAME_VALID;
}

enum ferry_frame_verdict ferry_frame_check(const struct ferry_frame *frame)
{
    enum ferry_frame_verdict verdict = check_header(frame);

    if (FERRY_UNLIKELY(verdict != FERRY_FRAME_VALID))
        return verdict;
    return check_body(frame);
}

static uint32_t value_bytes_of(const struct ferry_frame *frame, uint8_t extension)
{
    switch (extension) {
    case EXT_NONE:
        return 0;
    case EXT_HELLO:
        return HELLO_SIZE;
    case EXT_HELLO_REPLY:
        return HELLO_REPLY_SIZE;
    case EXT_GOODBYE:
        return GOODBYE_SIZE;
    case EXT_CHALLENGE:
        return CHALLENGE_SIZE;
    case EXT_PROOF:
        return FERRY_PROOF_SIZE;
    default:
        return frame->list.count * entry_size(extension);
    }
}

size_t ferry_frame_size(const struct ferry_frame *frame)
{
    uint8_t due = extension_due(frame);

    if (due == EXT_NONE)
        return FERRY_FRAME_FIXED_SIZE;
    return FERRY_FRAME_FIXED_SIZE + EXT_HEADER_SIZE + ((value_bytes_of(frame, due) + 7) & ~7u);
}

static void encode_fixed(uint8_t *bytes, const struct ferry_frame *frame, size_t size)
{
    ferry_put_be32(bytes, FERRY_FRAME_MAGIC);
    bytes[AT_VERSION] = FERRY_FRAME_VERSION;
    bytes[AT_TYPE] = frame->type;
    ferry_put_be16(bytes + AT_HEADER_BYTES, (uint16_t)size);
    ferry_put_be32(bytes + AT_FLAGS, frame->flags);
    ferry_put_be16(bytes + AT_STATUS, frame->status);
    bytes[AT_PRIORITY] = frame->priority;
    bytes[AT_RESERVED] = 0;
    ferry_put_be64(bytes + AT_REQUEST_ID, frame->request_id);
    ferry_put_be64(bytes + AT_REGISTRATION, frame->registration_id);
    ferry_put_be64(bytes + AT_ADDR, frame->remote_addr);
    ferry_put_be64(bytes + AT_LENGTH, frame->length);
    ferry_put_be64(bytes + AT_CREDIT, frame->credit_bytes);
    ferry_put_be32(bytes + AT_CREDIT_SEQ, frame->credit_sequence);
    ferry_put_be32(bytes + AT_CHECKSUM, frame->checksum);
}

static void encode_hello(uint8_t *wire, const struct ferry_hello *hello)
{
    memcpy(wire, hello->incarnation, FERRY_INCARNATION_SIZE);
    ferry_put_be32(wire + 16, hello->lane_index);
    ferry_put_be32(wire + 20, hello->lane_count);
    ferry_put_be64(wire + 24, hello->features);
    ferry_put_be64(wire + 32, hello->predecessor_session_id);
    ferry_put_be64(wire + 40, hello->max_transfer_bytes);
    ferry_put_be64(wire + 48, hello->low_water_request_id);
    memcpy(wire + 56, hello->nonce, FERRY_NONCE_SIZE);
}

static void encode_hello_reply(uint8_t *wire, const struct ferry_hello_reply *reply)
{
    memcpy(wire, reply->incarnation, FERRY_INCARNATION_SIZE);
    ferry_put_be64(wire + 16, reply->session_id);
    ferry_put_be64(wire + 24, reply->features);
    ferry_put_be64(wire + 32, reply->max_transfer_bytes);
    ferry_put_be64(wire + 40, reply->initial_credit_bytes);
    ferry_put_be32(wire + 48, reply->window_ops);
    ferry_put_be32(wire + 52, 0);
    ferry_put_be64(wire + 56, reply->window_bytes);
}

static void encode_value(uint8_t *wire, uint8_t extension, const struct ferry_frame *frame,
                         uint32_t value_bytes)
{
    switch (extension) {
    case EXT_HELLO:
        encode_hello(wire, &frame->hello);
        break;
    case EXT_HELLO_REPLY:
        encode_hello_reply(wire, &frame->hello_reply);
        break;
    case EXT_GOODBYE:
        ferry_put_be32(wire, frame->goodbye_reason);
        break;
    case EXT_CHALLENGE:
        memcpy(wire, frame->challenge.incarnation, FERRY_INCARNATION_SIZE);
        memcpy(wire + FERRY_INCARNATION_SIZE, frame->challenge.nonce, FERRY_NONCE_SIZE);
        break;
    case EXT_PROOF:
        memcpy(wire, frame->proof, FERRY_PROOF_SIZE);
        break;
    default: /* a list, checked already; it may be in place, or overlap its place */
        memmove(wire, frame->list.wire, value_bytes);
        break;
    }
}

size_t ferry_frame_encode(uint8_t *bytes_out, size_t cap, const struct ferry_frame *frame)
{
    if (FERRY_UNLIKELY(ferry_frame_check(frame) != FERRY_FRAME_VALID))
        return 0;

    size_t size = ferry_frame_size(frame);

    if (FERRY_UNLIKELY(cap < size))
        return 0;

    uint8_t due = extension_due(frame);

    if (due != EXT_NONE) {
        uint8_t *extension = bytes_out + FERRY_FRAME_FIXED_SIZE;
        uint8_t *value = extension + EXT_HEADER_SIZE;
        uint32_t value_bytes = value_bytes_of(frame, due);

        /* The value first: a list may lie in this very buffer, under what is written next. */
        encode_value(value, due, frame, value_bytes);
        memset(value + value_bytes, 0, size - FERRY_FRAME_LIST_OFFSET - value_bytes);
        ferry_put_be16(extension, due);
        ferry_put_be16(extension + 2, (uint16_t)value_bytes);
        ferry_put_be32(extension + 4, 0);
    }
    encode_fixed(bytes_out, frame, size);
    return size;
}

uint64_t ferry_frame_features(const struct ferry_frame *frame)
{
    uint64_t features = 0;

    if ((frame->flags & FERRY_FLAG_CHECKSUM) != 0)
        features |= FERRY_FEATURE_CHECKSUM;
    if ((frame->flags & FERRY_FLAG_CREDIT) != 0)
        features |= FERRY_FEATURE_CREDIT;
    if ((frame->flags & FERRY_FLAG_SCATTER) != 0)
        features |= FERRY_FEATURE_SCATTER;
    if (frame->type == FERRY_FRAME_RESOLVE || frame->type == FERRY_FRAME_RESOLVE_REPLY)
        features |= FERRY_FEATURE_RESOLVE;
    return features;
}

struct ferry_scatter ferry_scatter_get(const struct ferry_frame_list *list, uint32_t index)
{
    const uint8_t *wire = list->wire + (size_t)index * FERRY_SCATTER_SIZE;

    return (struct ferry_scatter){
        .addr = ferry_get_be64(wire),
        .length = ferry_get_be64(wire + 8),
        .registration_id = ferry_get_be64(wire + 16),
    };
}

uint64_t ferry_resolve_get(const struct ferry_frame_list *list, uint32_t index)
{
    return ferry_get_be64(list->wire + (size_t)index * FERRY_RESOLVE_SIZE);
}

struct ferry_resolved ferry_resolved_get(const struct ferry_frame_list *list, uint32_t index)
{
    const uint8_t *wire = list->wire + (size_t)index * FERRY_RESOLVE_REPLY_SIZE;

    return (struct ferry_resolved){
        .request_id = ferry_get_be64(wire),
        .verdict = (enum ferry_resolve_verdict)wire[8],
    };
}

void ferry_scatter_put(uint8_t *wire_out, uint32_t index, const struct ferry_scatter *entry)
{
    uint8_t *wire = wire_out + (size_t)index * FERRY_SCATTER_SIZE;

    ferry_put_be64(wire, entry->addr);
    ferry_put_be64(wire + 8, entry->length);
    ferry_put_be64(wire + 16, entry->registration_id);
}

void ferry_resolve_put(uint8_t *wire_out, uint32_t index, uint64_t request_id)
{
    ferry_put_be64(wire_out + (size_t)index * FERRY_RESOLVE_SIZE, request_id);
}

void ferry_resolved_put(uint8_t *wire_out, uint32_t index, const struct ferry_resolved *entry)
{
    uint8_t *wire = wire_out + (size_t)index * FERRY_RESOLVE_REPLY_SIZE;

    ferry_put_be64(wire, entry->request_id);
    ferry_put_be64(wire + 8, (uint64_t)entry->verdict << 56);
}
