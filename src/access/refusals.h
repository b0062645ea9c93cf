/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who was not let in, and why: counted each time, logged once a minute and reason, so that a flood
 * of bad connections fills no log. Any thread; allocates nothing.
 */
#ifndef FERRY_ACCESS_REFUSALS_H
#define FERRY_ACCESS_REFUSALS_H

#include <stdatomic.h>
#include <stdint.h>

#define FERRY_REFUSALS_QUIET_NS 60000000000ull

enum ferry_refusal {
    FERRY_REFUSAL_V1,        /* speaks v1, which can prove nothing */
    FERRY_REFUSAL_NO_KEY,    /* does not offer a proof of the key */
    FERRY_REFUSAL_WRONG_KEY, /* proves another key, or replays an old proof */
    FERRY_REFUSAL_LATE,      /* took too long, or gave way to others that came later */
    FERRY_REFUSAL_GARBAGE,   /* speaks none of our protocols, or breaks one */
    FERRY_REFUSAL_NO_TLS,    /* plain bytes where TLS is due, or TLS without a certificate */
    FERRY_REFUSAL_TLS,       /* the TLS handshake failed: an unknown CA, an expired certificate */
    FERRY_REFUSAL_TLS_HERE,  /* TLS where plain bytes are due */
    FERRY_REFUSAL_COUNT,
};

/* Zero is a good start. */
struct ferry_refusals {
    _Atomic uint64_t counts[FERRY_REFUSAL_COUNT];
    _Atomic uint64_t said_at_ns[FERRY_REFUSAL_COUNT]; /* 0: never */
    _Atomic uint64_t said_count[FERRY_REFUSAL_COUNT]; /* of counts[] at that time */
};

/*
 * Count one; log it if that reason was not logged for a minute. @area is the log's, @who a few
 * words such as an address, @detail more about the cause or "".
 */
void ferry_refusal_note(struct ferry_refusals *refusals, enum ferry_refusal why, uint64_t now_ns,
                        const char *area, const char *who, const char *detail);

/* "wrong_key", static storage: keys of reports. */
const char *ferry_refusal_name(enum ferry_refusal why);

#endif
