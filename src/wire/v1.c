/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 codec: field by field, length first, checks in the order of the reference server, since a
 * frame with two faults must get the same answer from both. Pure functions, any thread; nothing
 * here may allocate, block, log or keep state.
 */
#include "wire/v1.h"

#include <stdbool.h>

#include "base/assert.h"
#include "base/checked.h"
#include "wire/bytes.h"
#include "wire/frame.h"

/* Request: 0 magic, 4 version, 6 opcode, 7 flags, then five u64. */
#define REQUEST_VERSION      4
#define REQUEST_OPCODE       6
#define REQUEST_FLAGS        7
#define REQUEST_ID           8
#define REQUEST_REGISTRATION 16
#define REQUEST_ADDR         24
#define REQUEST_LENGTH       32
#define REQUEST_RESERVED     40

/* Response: 0 magic, 4 version, 6 status, then three u64. */
#define RESPONSE_VERSION   4
#define RESPONSE_STATUS    6
#define RESPONSE_ID        8
#define RESPONSE_COMMITTED 16
#define RESPONSE_RESERVED  24

enum ferry_wire_kind ferry_wire_classify(const uint8_t *first4)
{
    switch (ferry_get_be32(first4)) {
    case FERRY_V1_MAGIC:
        return FERRY_WIRE_V1;
    case FERRY_FRAME_MAGIC:
        return FERRY_WIRE_FERRY;
    default:
        return FERRY_WIRE_UNKNOWN;
    }
}

void ferry_v1_request_encode(const struct ferry_v1_request *request, uint8_t *bytes_out)
{
    FERRY_DASSERT(request->opcode == FERRY_V1_READ || request->opcode == FERRY_V1_WRITE);
    FERRY_DASSERT(request->length > 0);

    ferry_put_be32(bytes_out, FERRY_V1_MAGIC);
    ferry_put_be16(bytes_out + REQUEST_VERSION, FERRY_V1_VERSION);
    bytes_out[REQUEST_OPCODE] = (uint8_t)request->opcode;
    bytes_out[REQUEST_FLAGS] = 0;
    ferry_put_be64(bytes_out + REQUEST_ID, request->request_id);
    ferry_put_be64(bytes_out + REQUEST_REGISTRATION, request->registration_id);
    ferry_put_be64(bytes_out + REQUEST_ADDR, request->remote_addr);
    ferry_put_be64(bytes_out + REQUEST_LENGTH, request->length);
    ferry_put_be64(bytes_out + REQUEST_RESERVED, 0);
}

void ferry_v1_response_encode(const struct ferry_v1_response *response, uint8_t *bytes_out)
{
    FERRY_DASSERT((unsigned)response->status <= FERRY_V1_STATUS_MAX);

    ferry_put_be32(bytes_out, FERRY_V1_MAGIC);
    ferry_put_be16(bytes_out + RESPONSE_VERSION, FERRY_V1_VERSION);
    ferry_put_be16(bytes_out + RESPONSE_STATUS, (uint16_t)response->status);
    ferry_put_be64(bytes_out + RESPONSE_ID, response->request_id);
    ferry_put_be64(bytes_out + RESPONSE_COMMITTED, response->committed_bytes);
    ferry_put_be64(bytes_out + RESPONSE_RESERVED, 0);
}

enum ferry_v1_verdict ferry_v1_request_decode(const uint8_t *bytes, size_t len,
                                              struct ferry_v1_request *request_out)
{
    if (len < FERRY_V1_REQUEST_SIZE)
        return FERRY_V1_TRUNCATED;
    if (ferry_get_be32(bytes) != FERRY_V1_MAGIC)
        return FERRY_V1_NOT_V1;
    if (ferry_get_be16(bytes + REQUEST_VERSION) != FERRY_V1_VERSION)
        return FERRY_V1_OTHER_VERSION;
    if (bytes[REQUEST_FLAGS] != 0 || ferry_get_be64(bytes + REQUEST_RESERVED) != 0)
        return FERRY_V1_RESERVED_SET;

    uint8_t opcode = bytes[REQUEST_OPCODE];
    if (opcode != FERRY_V1_READ && opcode != FERRY_V1_WRITE)
        return FERRY_V1_OPCODE_UNKNOWN;

    uint64_t addr = ferry_get_be64(bytes + REQUEST_ADDR);
    uint64_t length = ferry_get_be64(bytes + REQUEST_LENGTH);
    if (length == 0 || !ferry_range_ok(addr, length))
        return FERRY_V1_LENGTH_BAD;

    *request_out = (struct ferry_v1_request){
        .opcode = opcode == FERRY_V1_READ ? FERRY_V1_READ : FERRY_V1_WRITE,
        .request_id = ferry_get_be64(bytes + REQUEST_ID),
        .registration_id = ferry_get_be64(bytes + REQUEST_REGISTRATION),
        .remote_addr = addr,
        .length = length,
    };
    return FERRY_V1_VALID;
}

enum ferry_v1_verdict ferry_v1_response_decode(const uint8_t *bytes, size_t len,
                                               struct ferry_v1_response *response_out)
{
    if (len < FERRY_V1_RESPONSE_SIZE)
        return FERRY_V1_TRUNCATED;
    if (ferry_get_be32(bytes) != FERRY_V1_MAGIC)
        return FERRY_V1_NOT_V1;
    if (ferry_get_be16(bytes + RESPONSE_VERSION) != FERRY_V1_VERSION)
        return FERRY_V1_OTHER_VERSION;
    if (ferry_get_be64(bytes + RESPONSE_RESERVED) != 0)
        return FERRY_V1_RESERVED_SET;

    uint16_t status = ferry_get_be16(bytes + RESPONSE_STATUS);
    if (status > FERRY_V1_STATUS_MAX)
        return FERRY_V1_STATUS_UNKNOWN;

    *response_out = (struct ferry_v1_response){
        .status = (enum ferry_v1_status)status,
        .request_id = ferry_get_be64(bytes + RESPONSE_ID),
        .committed_bytes = ferry_get_be64(bytes + RESPONSE_COMMITTED),
    };
    return FERRY_V1_VALID;
}

/* True for the statuses a server gives, with id 0, to a request it could not decode. */
static bool status_of_undecodable(enum ferry_v1_status status)
{
    return status == FERRY_V1_BAD_VERSION || status == FERRY_V1_BAD_OPCODE ||
           status == FERRY_V1_BAD_LENGTH || status == FERRY_V1_INTERNAL_ERROR;
}

enum ferry_status ferry_v1_response_check(const struct ferry_v1_response *response,
                                          const struct ferry_v1_request *request)
{
    bool write = request->opcode == FERRY_V1_WRITE;
    bool own_id = response->request_id == request->request_id;
    enum ferry_status unproven = write ? FERRY_ERR_OUTCOME_UNKNOWN : FERRY_ERR_PROTOCOL;

    if (response->status == FERRY_V1_OK)
        return own_id && response->committed_bytes == request->length ? FERRY_OK : unproven;

    if (response->committed_bytes != 0)
        return unproven;
    if (!own_id && (response->request_id != 0 || !status_of_undecodable(response->status)))
        return unproven;
    if (write && own_id && request->request_id != 0 && response->status == FERRY_V1_INTERNAL_ERROR)
        return FERRY_ERR_OUTCOME_UNKNOWN;
    return ferry_v1_status_map(response->status);
}

enum ferry_v1_status ferry_v1_verdict_status(enum ferry_v1_verdict verdict)
{
    switch (verdict) {
    case FERRY_V1_VALID:
        return FERRY_V1_OK;
    case FERRY_V1_OTHER_VERSION:
        return FERRY_V1_BAD_VERSION;
    case FERRY_V1_OPCODE_UNKNOWN:
        return FERRY_V1_BAD_OPCODE;
    case FERRY_V1_LENGTH_BAD:
        return FERRY_V1_BAD_LENGTH;
    case FERRY_V1_TRUNCATED:
    case FERRY_V1_NOT_V1:
    case FERRY_V1_RESERVED_SET:
    case FERRY_V1_STATUS_UNKNOWN:
        break;
    }
    return FERRY_V1_INTERNAL_ERROR;
}

const char *ferry_v1_verdict_text(enum ferry_v1_verdict verdict)
{
    switch (verdict) {
    case FERRY_V1_VALID:
        return "valid";
    case FERRY_V1_TRUNCATED:
        return "the frame is incomplete";
    case FERRY_V1_NOT_V1:
        return "the magic is not v1's";
    case FERRY_V1_OTHER_VERSION:
        return "the version is not 1";
    case FERRY_V1_RESERVED_SET:
        return "flags or reserved bytes are not zero";
    case FERRY_V1_OPCODE_UNKNOWN:
        return "the opcode is neither read nor write";
    case FERRY_V1_LENGTH_BAD:
        return "the length is zero or the range passes the end of the address space";
    case FERRY_V1_STATUS_UNKNOWN:
        return "the status is larger than 8";
    }
    return "unknown verdict";
}

enum ferry_status ferry_v1_status_map(enum ferry_v1_status status)
{
    switch (status) {
    case FERRY_V1_OK:
        return FERRY_OK;
    case FERRY_V1_RANGE_REJECTED:
        return FERRY_ERR_RANGE;
    case FERRY_V1_PERMISSION_DENIED:
        return FERRY_ERR_PERMISSION;
    case FERRY_V1_STALE_REGISTRATION:
        return FERRY_ERR_STALE_KEY;
    case FERRY_V1_SHUTTING_DOWN:
        return FERRY_ERR_PEER_CLOSING;
    case FERRY_V1_BAD_VERSION:
    case FERRY_V1_BAD_OPCODE:
    case FERRY_V1_BAD_LENGTH:
    case FERRY_V1_INTERNAL_ERROR:
        return FERRY_ERR_REFUSED;
    }
    return FERRY_ERR_PROTOCOL;
}

enum ferry_v1_status ferry_v1_status_of(enum ferry_status status)
{
    switch (status) {
    case FERRY_OK:
        return FERRY_V1_OK;
    case FERRY_ERR_TOO_LARGE:
        return FERRY_V1_BAD_LENGTH;
    case FERRY_ERR_RANGE:
        return FERRY_V1_RANGE_REJECTED;
    case FERRY_ERR_PERMISSION:
        return FERRY_V1_PERMISSION_DENIED;
    case FERRY_ERR_STALE_KEY:
        return FERRY_V1_STALE_REGISTRATION;
    case FERRY_ERR_CLOSING:
    case FERRY_ERR_PEER_CLOSING:
        return FERRY_V1_SHUTTING_DOWN;
    default:
        return FERRY_V1_INTERNAL_ERROR;
    }
}
