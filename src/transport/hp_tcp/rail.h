/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health of one rail, a pair of a local and a remote address, as a state machine: events in,
 * verdicts out. No clock, no I/O, no lock: the caller brings the time and a random number, and
 * makes one call at a time. The model rig and the unit test step it as the transport does.
 *
 *                connected                       broke            failed, silent
 *   UNTRIED ------------------> UP ------------------------> SHAKY --------+
 *      |                       ^  ^ \____failed, silent____   |  ^broke    |
 *      |failed                 |  |                        \  |connected   v
 *      +-----------------------|--|---------------------->  DOWN <--failed-- PROBING
 *                              |  +------connected---------  |  --probe-->     |
 *                              +--------------connected------|-----------------+
 *
 * Only DOWN and PROBING keep work away. A rail that breaks again and again while it can always be
 * connected anew goes down too. The pause before a probe doubles from probe_min_ns to probe_max_ns
 * and is varied by a quarter, so that a thousand peers do not knock at once; it begins anew when
 * the rail has been up for a while.
 */
#ifndef FERRY_HP_TCP_RAIL_H
#define FERRY_HP_TCP_RAIL_H

#include <stdbool.h>
#include <stdint.h>

enum ferry_rail_state {
    FERRY_RAIL_UNTRIED, /* nothing is known; used as if it were up */
    FERRY_RAIL_UP,
    FERRY_RAIL_SHAKY, /* a connection broke; the next one tells what that meant */
    FERRY_RAIL_DOWN,  /* no work; waits for its next probe */
    FERRY_RAIL_PROBING,
    FERRY_RAIL_STATE_COUNT,
};

enum ferry_rail_event {
    FERRY_RAIL_CONNECTED, /* a connection stands */
    FERRY_RAIL_BROKE,     /* one that stood was reset or ended */
    FERRY_RAIL_FAILED,    /* none came about: refused, unreachable, too slow */
    FERRY_RAIL_SILENT,    /* one that stood swallows what it is given */
    FERRY_RAIL_PROBE,     /* a lane asks to try a rail that is down */
};

struct ferry_rail_limits {
    uint64_t probe_min_ns;
    uint64_t probe_max_ns;
};

struct ferry_rail {
    enum ferry_rail_state state;
    uint32_t breaks; /* lately, without a pause */
    uint64_t broke_at_ns;
    uint64_t changed_at_ns; /* when it went down or came back */
    uint64_t pause_ns;      /* before the next probe */
    uint64_t probe_at_ns;   /* DOWN: not before */
    uint64_t quiet_until_ns;
    bool said_down; /* so that it is back will be said too */
    /* counters, never reset */
    uint64_t downs;
    uint64_t backs;
    uint64_t probes;
    uint64_t unsaid; /* changes that were not worth a line of their own */
};

struct ferry_rail_verdict {
    bool went_down;
    bool came_back;
    bool probe; /* to PROBE: go ahead */
    bool say;   /* a change worth a line: not every one of a rail that comes and goes */
};

/* The one transition function. @random: any number, for the jitter. */
struct ferry_rail_verdict ferry_rail_step(struct ferry_rail *rail, enum ferry_rail_event event,
                                          uint64_t now_ns, const struct ferry_rail_limits *limits,
                                          uint32_t random);

/* Work may go there. */
static inline bool ferry_rail_state_usable(enum ferry_rail_state state)
{
    return state != FERRY_RAIL_DOWN && state != FERRY_RAIL_PROBING;
}

/* "untried", "up", "shaky", "down", "probing". */
const char *ferry_rail_state_name(enum ferry_rail_state state);

#endif
