/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The v1 frames of the reference's hp_tcp, byte for byte: a 48-byte request and a 32-byte response,
 * all integers big-endian. Pure functions: bytes in, struct out, no state, no allocation, any
 * thread. What a server replies and when it closes is the caller's; the verdicts here name the row
 * that applies. Layout and reasons: docs/design/wire.md.
 */
#ifndef FERRY_WIRE_V1_H
#define FERRY_WIRE_V1_H

#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_V1_MAGIC         0x4D435450u /* "MCTP" */
#define FERRY_V1_VERSION       1u
#define FERRY_V1_REQUEST_SIZE  48u
#define FERRY_V1_RESPONSE_SIZE 32u

enum ferry_v1_opcode {
    FERRY_V1_READ = 1,  /* answered by a response and, when OK, `length` payload bytes */
    FERRY_V1_WRITE = 2, /* the request is followed by `length` payload bytes */
};

/* Status on the wire. The values are the reference's. */
enum ferry_v1_status {
    FERRY_V1_OK = 0,
    FERRY_V1_BAD_VERSION = 1,
    FERRY_V1_BAD_OPCODE = 2,
    FERRY_V1_BAD_LENGTH = 3,
    FERRY_V1_RANGE_REJECTED = 4,
    FERRY_V1_PERMISSION_DENIED = 5,
    FERRY_V1_STALE_REGISTRATION = 6,
    FERRY_V1_SHUTTING_DOWN = 7,
    FERRY_V1_INTERNAL_ERROR = 8,
};
#define FERRY_V1_STATUS_MAX FERRY_V1_INTERNAL_ERROR

/*
 * What the decoders say about a frame, in the order in which they check. For a request each refusal
 * is one row of the server's table; ferry_v1_verdict_status() gives the status it answers, with
 * request id 0, before it closes. For a response each refusal is a protocol error.
 */
enum ferry_v1_verdict {
    FERRY_V1_VALID = 0,
    FERRY_V1_TRUNCATED, /* fewer bytes than the frame has; nothing was looked at */
    FERRY_V1_NOT_V1,    /* another magic */
    FERRY_V1_OTHER_VERSION,
    FERRY_V1_RESERVED_SET,   /* flags or reserved bytes are not zero */
    FERRY_V1_OPCODE_UNKNOWN, /* request only */
    FERRY_V1_LENGTH_BAD,     /* request only: zero, or address + length passes 2^64 - 1 */
    FERRY_V1_STATUS_UNKNOWN, /* response only: larger than FERRY_V1_STATUS_MAX */
};

struct ferry_v1_request {
    enum ferry_v1_opcode opcode;
    uint64_t request_id;
    uint64_t registration_id;
    uint64_t remote_addr; /* absolute address in the server's process */
    uint64_t length;
};

struct ferry_v1_response {
    enum ferry_v1_status status;
    uint64_t request_id;      /* 0 when the request could not be decoded */
    uint64_t committed_bytes; /* the request's length when OK, else 0 */
};

/* Which codec a connection speaks, from its first four bytes. */
enum ferry_wire_kind {
    FERRY_WIRE_UNKNOWN = 0, /* a v1 server answers it as a v1 request with a wrong magic */
    FERRY_WIRE_V1,
    FERRY_WIRE_FERRY,
};

enum ferry_wire_kind ferry_wire_classify(const uint8_t *first4);

/* Writes exactly FERRY_V1_REQUEST_SIZE bytes. The fields are sent as they are. */
void ferry_v1_request_encode(const struct ferry_v1_request *request, uint8_t *bytes_out);

/* Writes exactly FERRY_V1_RESPONSE_SIZE bytes. */
void ferry_v1_response_encode(const struct ferry_v1_response *response, uint8_t *bytes_out);

/*
 * Reads the first FERRY_V1_REQUEST_SIZE of @len bytes. @request_out is written only when
 * FERRY_V1_VALID. A length above the server's own max_transfer_bytes is valid here: that row
 * answers with the real request id and is the caller's.
 */
FERRY_CHECKED enum ferry_v1_verdict ferry_v1_request_decode(const uint8_t *bytes, size_t len,
                                                            struct ferry_v1_request *request_out);

/* Reads the first FERRY_V1_RESPONSE_SIZE of @len bytes. @response_out only when FERRY_V1_VALID. */
FERRY_CHECKED enum ferry_v1_verdict
ferry_v1_response_decode(const uint8_t *bytes, size_t len, struct ferry_v1_response *response_out);

/*
 * How the request ends that a decoded response answers. FERRY_OK only if the id is the request's
 * and exactly its length was committed. An error status counts as the answer when it carries the
 * request's id, or id 0 with a status a server gives to what it cannot decode. Anything else is
 * ERR_PROTOCOL for a READ; for a WRITE it proves nothing about the bytes and is
 * ERR_OUTCOME_UNKNOWN, and so is an internal error reported under the WRITE's own id (no server row
 * produces one, so it is not known to have come before the first byte). Any result but FERRY_OK
 * ends the connection.
 */
enum ferry_status ferry_v1_response_check(const struct ferry_v1_response *response,
                                          const struct ferry_v1_request *request);

/* The status a server answers for a refused request; FERRY_V1_OK for FERRY_V1_VALID. */
enum ferry_v1_status ferry_v1_verdict_status(enum ferry_v1_verdict verdict);

/* A few words for logs and errors, static storage. */
const char *ferry_v1_verdict_text(enum ferry_v1_verdict verdict);

/*
 * Wire status to engine status: 4 ERR_RANGE, 5 ERR_PERMISSION, 6 ERR_STALE_KEY, 7 ERR_PEER_CLOSING,
 * 1 2 3 8 ERR_REFUSED (3 may mean longer than the peer's max_transfer_bytes), unknown ERR_PROTOCOL.
 */
enum ferry_status ferry_v1_status_map(enum ferry_v1_status status);

/* Engine status to the wire status a server answers; what has no row of its own is InternalError.
 */
enum ferry_v1_status ferry_v1_status_of(enum ferry_status status);

#endif
