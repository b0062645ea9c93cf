/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts refusals and says each reason once a minute; see refusals.h. Any thread.
 */
#include "access/refusals.h"

#include <inttypes.h>

#include "base/log.h"

static const struct {
    const char *name;
    const char *text;
} reasons[] = {
    [FERRY_REFUSAL_V1] = {"v1", "the peer speaks v1, which cannot prove a key or use TLS; access "
                                "control is on here (auth_key_file, tls)"},
    [FERRY_REFUSAL_NO_KEY] = {"no_key", "the peer does not prove a key; give it the auth_key_file "
                                        "of this engine"},
    [FERRY_REFUSAL_WRONG_KEY] = {"wrong_key", "the proof of the key does not fit; auth_key_file "
                                              "differs between the peer and here, or an old proof "
                                              "was sent again"},
    [FERRY_REFUSAL_LATE] = {"late", "the peer did not prove who it is in time"},
    [FERRY_REFUSAL_GARBAGE] = {"garbage", "what came is no greeting"},
    [FERRY_REFUSAL_NO_TLS] = {"no_tls", "no TLS 1.3 with a certificate came where it is due; set "
                                        "tls.cert, tls.key and tls.ca at the peer"},
    [FERRY_REFUSAL_TLS] = {"tls", "the TLS handshake failed"},
    [FERRY_REFUSAL_TLS_HERE] = {"tls_here", "the peer begins TLS, which is off here; set tls.cert, "
                                            "tls.key and tls.ca here, or unset them at the peer"},
};

const char *ferry_refusal_name(enum ferry_refusal why)
{
    return reasons[why].name;
}

void ferry_refusal_note(struct ferry_refusals *refusals, enum ferry_refusal why, uint64_t now_ns,
                        const char *area, const char *who, const char *detail)
{
    uint64_t count = atomic_fetch_add_explicit(&refusals->counts[why], 1, memory_order_relaxed) + 1;
    uint64_t said_at_ns = atomic_load_explicit(&refusals->said_at_ns[why], memory_order_relaxed);
    uint64_t quiet;

    /* Workers read the clock once a turn: another one's may be a little ahead of ours. */
    if (said_at_ns != 0 && now_ns < said_at_ns + FERRY_REFUSALS_QUIET_NS)
        return;
    /* Of several that come here at once, one speaks. */
    if (!atomic_compare_exchange_strong(&refusals->said_at_ns[why], &said_at_ns,
                                        now_ns != 0 ? now_ns : 1))
        return;
    quiet = atomic_exchange(&refusals->said_count[why], count);
    quiet = count - 1 > quiet ? count - 1 - quiet : 0;
    if (quiet == 0)
        ferry_warn(area,
                   "a connection is refused: %s%s%s from=%s; more of these are counted and not "
                   "logged for a minute",
                   reasons[why].text, detail[0] != '\0' ? ": " : "", detail, who);
    else
        ferry_warn(area, "a connection is refused: %s%s%s from=%s unlogged=%" PRIu64,
                   reasons[why].text, detail[0] != '\0' ? ": " : "", detail, who, quiet);
}
