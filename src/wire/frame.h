/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ferry's own frames: a fixed header of 64 bytes, big-endian, then extensions (type, length, value;
 * padded to 8), then the payload of a WRITE or of a READ's answer. Pure functions: no state, no
 * allocation, any thread. Decoding is in two steps, so that a stream parser knows how much to
 * receive: ferry_frame_peek(), then ferry_frame_decode() over the whole header.
 * Layout, rules and reasons: docs/design/wire.md.
 */
#ifndef FERRY_WIRE_FRAME_H
#define FERRY_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"

#define FERRY_FRAME_MAGIC      0x46525259u /* "FRRY" */
#define FERRY_FRAME_VERSION    1u
#define FERRY_FRAME_FIXED_SIZE 64u
#define FERRY_FRAME_HEADER_MAX 65528u /* fixed part and extensions; a multiple of 8 */

/* Where the first list entry lies in an encoded frame: fixed header, then one extension header. */
#define FERRY_FRAME_LIST_OFFSET 72u

#define FERRY_SCATTER_SIZE         24u
#define FERRY_SCATTER_COUNT_MAX    1024u
#define FERRY_RESOLVE_SIZE         8u
#define FERRY_RESOLVE_REPLY_SIZE   16u
#define FERRY_RESOLVE_COUNT_MAX    1024u
#define FERRY_INCARNATION_SIZE     16u
#define FERRY_NONCE_SIZE           16u
#define FERRY_PROOF_SIZE           32u
#define FERRY_HELLO_LANE_COUNT_MAX 4096u
#define FERRY_FRAME_PRIORITY_MAX   2u

/* The largest header of the frames without a list: everything but SCATTER and RESOLVE. */
#define FERRY_FRAME_PLAIN_MAX 144u

enum ferry_frame_type {
    FERRY_FRAME_HELLO = 1,       /* initiator: who I am, which lane this is */
    FERRY_FRAME_HELLO_REPLY = 2, /* target: the session id; nothing is sent before it came */
    FERRY_FRAME_READ = 3,
    FERRY_FRAME_WRITE = 4,      /* followed by `length` payload bytes */
    FERRY_FRAME_READ_REPLY = 5, /* followed by `length` payload bytes; 0 on an error */
    FERRY_FRAME_WRITE_REPLY = 6,
    FERRY_FRAME_RESOLVE = 7, /* which of these requests of my predecessor were applied? */
    FERRY_FRAME_RESOLVE_REPLY = 8,
    FERRY_FRAME_CREDIT = 9,     /* a grant with nothing to ride on */
    FERRY_FRAME_GOODBYE = 10,   /* no request follows from this side; answers still do */
    FERRY_FRAME_CHALLENGE = 11, /* target: prove the key before I let you in */
    FERRY_FRAME_PROOF = 12,     /* either side: I know the key */
};

/*
 * The low 16 bits must be understood: a frame with one that is not known here is refused. The high
 * 16 may be ignored and are; no flag is defined there yet.
 */
enum ferry_frame_flag {
    FERRY_FLAG_CHECKSUM = 1u << 0, /* `checksum` covers the payload; frames with a payload only */
    FERRY_FLAG_CREDIT = 1u << 1,   /* `credit_bytes` and `credit_sequence` are set */
    FERRY_FLAG_SCATTER = 1u << 2,  /* READ, WRITE: the list says where, the header only how much */
    FERRY_FLAG_MORE = 1u << 3,     /* reserved, refused: a payload in several frames */
    FERRY_FLAG_NO_CLOSE = 1u << 4, /* error answers: the stream is intact and goes on */
};

/* What a peer offers in its greeting. Bits that a receiver does not know are ignored. */
#define FERRY_FEATURE_CHECKSUM (1ULL << 0)
#define FERRY_FEATURE_CREDIT   (1ULL << 1)
#define FERRY_FEATURE_SCATTER  (1ULL << 2)
#define FERRY_FEATURE_RESOLVE  (1ULL << 3)
#define FERRY_FEATURE_SUMS_DUE (1ULL << 4) /* HELLO only: with CHECKSUM, I want it in force */
#define FERRY_FEATURE_AUTH     (1ULL << 8) /* I have a key: challenge me, and prove it as well */

/* Status on the wire. Values are never renumbered; 0 is the only one that is not an error. */
enum ferry_frame_status {
    FERRY_FRAME_OK = 0,
    FERRY_FRAME_BAD_REQUEST = 1, /* the frame breaks a rule */
    FERRY_FRAME_RANGE = 2,
    FERRY_FRAME_PERMISSION = 3,
    FERRY_FRAME_STALE_REGISTRATION = 4,
    FERRY_FRAME_CLOSING = 5,
    FERRY_FRAME_TOO_LARGE = 6, /* longer than the max_transfer_bytes announced */
    FERRY_FRAME_BUSY = 7,      /* a limit for now; the same request may pass later */
    FERRY_FRAME_CHECKSUM_BAD = 8,
    FERRY_FRAME_UNKNOWN_SESSION = 9, /* RESOLVE: nothing is known about the predecessor */
    FERRY_FRAME_INTERNAL = 10,
    FERRY_FRAME_FULL = 11,        /* no room for another session */
    FERRY_FRAME_AUTH = 12,        /* not authenticated, or not allowed in */
    FERRY_FRAME_UNSUPPORTED = 13, /* a version, type, flag or extension not known here */
    FERRY_FRAME_TLS_DUE = 14,     /* in plain text: this port speaks TLS only */
};

/* The target's knowledge of one request. 0 is the one that claims nothing. */
enum ferry_resolve_verdict {
    FERRY_RESOLVE_UNKNOWN = 0,
    FERRY_RESOLVE_APPLIED = 1,
    FERRY_RESOLVE_NOT_APPLIED = 2, /* half landed counts as not applied */
};

/* Why a side says goodbye. A reason not known here is treated like FERRY_GOODBYE_CLOSING. */
enum ferry_goodbye_reason {
    FERRY_GOODBYE_CLOSING = 1,  /* the engine shuts down */
    FERRY_GOODBYE_IDLE = 2,     /* no traffic for a while; connect again when needed */
    FERRY_GOODBYE_PROTOCOL = 3, /* the other side broke a rule */
    FERRY_GOODBYE_INTERNAL = 4, /* this side failed */
    FERRY_GOODBYE_EVICTED = 5,  /* room was needed; connect again later */
};

/* What the decoder says about a frame. */
enum ferry_frame_verdict {
    FERRY_FRAME_VALID = 0,
    FERRY_FRAME_TRUNCATED,     /* fewer bytes than the header has */
    FERRY_FRAME_NOT_FERRY,     /* another magic */
    FERRY_FRAME_OTHER_VERSION, /* answer FERRY_FRAME_UNSUPPORTED and close */
    FERRY_FRAME_TYPE_UNKNOWN,
    FERRY_FRAME_HEADER_SIZE,  /* header_bytes below 64, above the maximum or not a multiple of 8 */
    FERRY_FRAME_FLAG_UNKNOWN, /* a must-understand flag that is not known here */
    FERRY_FRAME_FLAG_MISPLACED, /* a known flag that this type does not carry, or lacks */
    FERRY_FRAME_RESERVED_SET,   /* a field this frame does not use, or padding, is not zero */
    FERRY_FRAME_FIELD_BAD,      /* priority, request id or status out of range */
    FERRY_FRAME_LENGTH_BAD,     /* zero, or the range passes 2^64 - 1, or the list's sum differs */
    FERRY_FRAME_EXTENSION_UNKNOWN, /* one that must be understood and is not */
    FERRY_FRAME_EXTENSION_BAD,     /* cut off, twice, missing, or on a type it does not belong to */
    FERRY_FRAME_BODY_BAD,          /* a field inside a known extension breaks its rule */
};

struct ferry_hello {
    uint8_t incarnation[FERRY_INCARNATION_SIZE]; /* the initiator's */
    uint32_t lane_index;                         /* < lane_count */
    uint32_t lane_count;                         /* 1..FERRY_HELLO_LANE_COUNT_MAX */
    uint64_t features;                           /* FERRY_FEATURE_* offered */
    uint64_t predecessor_session_id;             /* the session this one succeeds; 0 none */
    uint64_t max_transfer_bytes;                 /* > 0; the longest answer the initiator takes */
    uint64_t low_water_request_id;               /* no request below it will be asked about */
    uint8_t nonce[FERRY_NONCE_SIZE];             /* random */
};

/* Only present when the frame's status is FERRY_FRAME_OK. */
struct ferry_hello_reply {
    uint8_t incarnation[FERRY_INCARNATION_SIZE]; /* the target's */
    uint64_t session_id;                         /* > 0, issued by the target */
    uint64_t features;                           /* the ones in force: a subset of those offered */
    uint64_t max_transfer_bytes;                 /* > 0; the longest request the target takes */
    uint64_t initial_credit_bytes;
    uint64_t window_bytes; /* > 0; payload outstanding on this lane */
    uint32_t window_ops;   /* > 0; requests outstanding on this lane */
};

struct ferry_challenge {
    uint8_t incarnation[FERRY_INCARNATION_SIZE]; /* the target's */
    uint8_t nonce[FERRY_NONCE_SIZE];             /* random */
};

struct ferry_scatter {
    uint64_t addr;
    uint64_t length; /* > 0 */
    uint64_t registration_id;
};

struct ferry_resolved {
    uint64_t request_id;
    enum ferry_resolve_verdict verdict;
};

/*
 * Entries in wire form, borrowed. After decoding they lie in the decoder's input. Before encoding
 * they may lie anywhere, also where they belong (output + FERRY_FRAME_LIST_OFFSET), which saves the
 * copy. The ferry_*_get() and ferry_*_put() functions read and write single entries.
 */
struct ferry_frame_list {
    const uint8_t *wire;
    uint32_t count;
};

struct ferry_frame {
    uint8_t type;     /* enum ferry_frame_type */
    uint8_t priority; /* READ, WRITE: 0 high, 1 medium, 2 low; else 0 */
    uint16_t status;  /* answers: enum ferry_frame_status or a later one; else 0 */
    uint32_t flags;   /* FERRY_FLAG_* */
    uint64_t request_id;
    uint64_t registration_id; /* READ, WRITE without a list; else 0 */
    uint64_t remote_addr;     /* READ, WRITE without a list; else 0 */
    uint64_t length;       /* asked for (READ), committed (WRITE_REPLY) or following as payload */
    uint64_t credit_bytes; /* cumulative grant of this frame's sender */
    uint32_t credit_sequence;
    uint32_t checksum; /* CRC-32C of the payload; opaque here */
    union {
        struct ferry_hello hello;
        struct ferry_hello_reply hello_reply; /* status FERRY_FRAME_OK only */
        uint32_t goodbye_reason;
        struct ferry_challenge challenge;
        uint8_t proof[FERRY_PROOF_SIZE]; /* opaque here */
        struct ferry_frame_list list;    /* READ, WRITE (count 0: none), RESOLVE, RESOLVE_REPLY */
    };
};

/*
 * How many bytes must be in hand for the next step, from the @have that are. Repeat with more until
 * *need_out <= @have, then decode. @need_out is written only when FERRY_FRAME_VALID and lies in
 * 64..FERRY_FRAME_HEADER_MAX. Refuses a wrong magic, version, type or header size as soon as seen.
 */
FERRY_CHECKED enum ferry_frame_verdict ferry_frame_peek(const uint8_t *bytes, size_t have,
                                                        uint32_t *need_out);

/*
 * Decode one header of @have bytes or more and check every rule that needs no state. Never looks
 * past the header. @frame_out is written only when FERRY_FRAME_VALID; its list, if it has one,
 * borrows @bytes. Flags that may be ignored are dropped. Work is linear in the header's size.
 */
FERRY_CHECKED enum ferry_frame_verdict ferry_frame_decode(const uint8_t *bytes, size_t have,
                                                          struct ferry_frame *frame_out);

/*
 * Encode the header into @cap bytes at @bytes_out.
 * Return: its size; 0 when it does not fit or the frame breaks a rule the decoder would refuse it
 * for (ferry_frame_check() says which). On 0 nothing is written.
 */
FERRY_CHECKED size_t ferry_frame_encode(uint8_t *bytes_out, size_t cap,
                                        const struct ferry_frame *frame);

/* The rules a decoded frame keeps, applied to a frame to be sent. */
FERRY_CHECKED enum ferry_frame_verdict ferry_frame_check(const struct ferry_frame *frame);

/* The size ferry_frame_encode() needs for a frame that passes ferry_frame_check(). */
size_t ferry_frame_size(const struct ferry_frame *frame);

/* The features that both sides must have agreed on before this frame may be sent. */
uint64_t ferry_frame_features(const struct ferry_frame *frame);

/* Payload bytes that follow the header on the stream. */
static inline uint64_t ferry_frame_payload_bytes(const struct ferry_frame *frame)
{
    return frame->type == FERRY_FRAME_WRITE || frame->type == FERRY_FRAME_READ_REPLY ? frame->length
                                                                                     : 0;
}

/* Entry @index < @list->count of a list; ferry_resolve_get() returns the request id. */
struct ferry_scatter ferry_scatter_get(const struct ferry_frame_list *list, uint32_t index);
uint64_t ferry_resolve_get(const struct ferry_frame_list *list, uint32_t index);
struct ferry_resolved ferry_resolved_get(const struct ferry_frame_list *list, uint32_t index);

/* Write entry @index of a list at @wire_out, which has room for it. */
void ferry_scatter_put(uint8_t *wire_out, uint32_t index, const struct ferry_scatter *entry);
void ferry_resolve_put(uint8_t *wire_out, uint32_t index, uint64_t request_id);
void ferry_resolved_put(uint8_t *wire_out, uint32_t index, const struct ferry_resolved *entry);

/* The status to answer for a refused frame: UNSUPPORTED for what is too new, else BAD_REQUEST. */
enum ferry_frame_status ferry_frame_verdict_status(enum ferry_frame_verdict verdict);

/* A few words for logs and errors, static storage. */
const char *ferry_frame_verdict_text(enum ferry_frame_verdict verdict);

/* The type's name, such as "read"; "unknown" for one not known here. Static storage. */
const char *ferry_frame_type_name(uint8_t type);

/*
 * Wire status to engine status. A status not known here is ERR_REFUSED: an error answer, of
 * whatever kind, says that the request was not applied as a whole. UNKNOWN_SESSION is
 * ERR_OUTCOME_UNKNOWN.
 */
enum ferry_status ferry_frame_status_map(uint16_t status);

/* Engine status to the wire status a target answers; what has no code of its own is INTERNAL. */
enum ferry_frame_status ferry_frame_status_of(enum ferry_status status);

#endif
