/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the codes of ferry's own frames mean: verdicts and wire statuses to engine statuses and
 * back, and their words for people. Pure functions over constant tables, any thread.
 */
#include "wire/frame.h"

enum ferry_frame_status ferry_frame_verdict_status(enum ferry_frame_verdict verdict)
{
    switch (verdict) {
    case FERRY_FRAME_VALID:
        return FERRY_FRAME_OK;
    case FERRY_FRAME_OTHER_VERSION:
    case FERRY_FRAME_TYPE_UNKNOWN:
    case FERRY_FRAME_FLAG_UNKNOWN:
    case FERRY_FRAME_EXTENSION_UNKNOWN:
        return FERRY_FRAME_UNSUPPORTED;
    case FERRY_FRAME_TRUNCATED:
    case FERRY_FRAME_NOT_FERRY:
    case FERRY_FRAME_HEADER_SIZE:
    case FERRY_FRAME_FLAG_MISPLACED:
    case FERRY_FRAME_RESERVED_SET:
    case FERRY_FRAME_FIELD_BAD:
    case FERRY_FRAME_LENGTH_BAD:
    case FERRY_FRAME_EXTENSION_BAD:
    case FERRY_FRAME_BODY_BAD:
        break;
    }
    return FERRY_FRAME_BAD_REQUEST;
}

const char *ferry_frame_verdict_text(enum ferry_frame_verdict verdict)
{
    static const char *const texts[] = {
        [FERRY_FRAME_VALID] = "valid",
        [FERRY_FRAME_TRUNCATED] = "the header is incomplete",
        [FERRY_FRAME_NOT_FERRY] = "the magic is not ferry's",
        [FERRY_FRAME_OTHER_VERSION] = "the version is not 1",
        [FERRY_FRAME_TYPE_UNKNOWN] = "the frame type is not known",
        [FERRY_FRAME_HEADER_SIZE] = "the header size is out of range or not a multiple of 8",
        [FERRY_FRAME_FLAG_UNKNOWN] = "a flag that must be understood is not known",
        [FERRY_FRAME_FLAG_MISPLACED] = "a flag does not go with this frame",
        [FERRY_FRAME_RESERVED_SET] = "a field that this frame does not use is not zero",
        [FERRY_FRAME_FIELD_BAD] = "the priority or the request id is out of range",
        [FERRY_FRAME_LENGTH_BAD] = "the length does not fit the range, the list or the status",
        [FERRY_FRAME_EXTENSION_UNKNOWN] = "an extension that must be understood is not known",
        [FERRY_FRAME_EXTENSION_BAD] = "an extension is cut off, missing, repeated or misplaced",
        [FERRY_FRAME_BODY_BAD] = "a field inside an extension is out of range",
    };

    if ((unsigned)verdict >= FERRY_ARRAY_LEN(texts))
        return "unknown verdict";
    return texts[verdict];
}

const char *ferry_frame_type_name(uint8_t type)
{
    static const char *const names[] = {
        [FERRY_FRAME_HELLO] = "hello",
        [FERRY_FRAME_HELLO_REPLY] = "hello_reply",
        [FERRY_FRAME_READ] = "read",
        [FERRY_FRAME_WRITE] = "write",
        [FERRY_FRAME_READ_REPLY] = "read_reply",
        [FERRY_FRAME_WRITE_REPLY] = "write_reply",
        [FERRY_FRAME_RESOLVE] = "resolve",
        [FERRY_FRAME_RESOLVE_REPLY] = "resolve_reply",
        [FERRY_FRAME_CREDIT] = "credit",
        [FERRY_FRAME_GOODBYE] = "goodbye",
        [FERRY_FRAME_CHALLENGE] = "challenge",
        [FERRY_FRAME_PROOF] = "proof",
    };

    if (type >= FERRY_ARRAY_LEN(names) || names[type] == NULL)
        return "unknown";
    return names[type];
}

enum ferry_status ferry_frame_status_map(uint16_t status)
{
    switch (status) {
    case FERRY_FRAME_OK:
        return FERRY_OK;
    case FERRY_FRAME_RANGE:
        return FERRY_ERR_RANGE;
    case FERRY_FRAME_PERMISSION:
        return FERRY_ERR_PERMISSION;
    case FERRY_FRAME_STALE_REGISTRATION:
        return FERRY_ERR_STALE_KEY;
    case FERRY_FRAME_CLOSING:
        return FERRY_ERR_PEER_CLOSING;
    case FERRY_FRAME_BUSY:
        return FERRY_ERR_BUSY;
    case FERRY_FRAME_CHECKSUM_BAD:
        return FERRY_ERR_CHECKSUM;
    case FERRY_FRAME_UNKNOWN_SESSION:
        return FERRY_ERR_OUTCOME_UNKNOWN;
    case FERRY_FRAME_FULL:
        return FERRY_ERR_QUEUE_FULL;
    default: /* BAD_REQUEST, TOO_LARGE, INTERNAL, AUTH, UNSUPPORTED, and later ones */
        return FERRY_ERR_REFUSED;
    }
}

enum ferry_frame_status ferry_frame_status_of(enum ferry_status status)
{
    switch (status) {
    case FERRY_OK:
        return FERRY_FRAME_OK;
    case FERRY_ERR_INVALID:
    case FERRY_ERR_PROTOCOL:
        return FERRY_FRAME_BAD_REQUEST;
    case FERRY_ERR_UNSUPPORTED:
        return FERRY_FRAME_UNSUPPORTED;
    case FERRY_ERR_RANGE:
        return FERRY_FRAME_RANGE;
    case FERRY_ERR_PERMISSION:
        return FERRY_FRAME_PERMISSION;
    case FERRY_ERR_STALE_KEY:
        return FERRY_FRAME_STALE_REGISTRATION;
    case FERRY_ERR_CLOSING:
    case FERRY_ERR_PEER_CLOSING:
        return FERRY_FRAME_CLOSING;
    case FERRY_ERR_TOO_LARGE:
        return FERRY_FRAME_TOO_LARGE;
    case FERRY_ERR_BUSY:
    case FERRY_ERR_NO_MEMORY:
    case FERRY_ERR_QUEUE_FULL:
        return FERRY_FRAME_BUSY;
    case FERRY_ERR_LIMIT:
        return FERRY_FRAME_FULL;
    case FERRY_ERR_CHECKSUM:
        return FERRY_FRAME_CHECKSUM_BAD;
    case FERRY_ERR_OUTCOME_UNKNOWN:
        return FERRY_FRAME_UNKNOWN_SESSION;
    default:
        return FERRY_FRAME_INTERNAL;
    }
}
