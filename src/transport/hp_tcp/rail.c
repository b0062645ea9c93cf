/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transitions of a rail's health, see rail.h. Pure.
 */
#include "transport/hp_tcp/rail.h"

#include "base/assert.h"
#include "base/clock.h"

/* Breaks within the window, each after a connection that stood, that make a rail count as dead. */
#define BREAKS_MAX      3u
#define BREAK_WINDOW_NS (5 * FERRY_NS_PER_S)

/* A rail that was up for so long is trusted again: its next probe comes soon. */
#define TRUST_NS (10 * FERRY_NS_PER_S)

/* At most one line that a rail went down in this time, and one that it is back. */
#define SAY_EVERY_NS (10 * FERRY_NS_PER_S)

const char *ferry_rail_state_name(enum ferry_rail_state state)
{
    static const char *const names[FERRY_RAIL_STATE_COUNT] = {
        [FERRY_RAIL_UNTRIED] = "untried", [FERRY_RAIL_UP] = "up",
        [FERRY_RAIL_SHAKY] = "shaky",     [FERRY_RAIL_DOWN] = "down",
        [FERRY_RAIL_PROBING] = "probing",
    };

    return (unsigned)state < FERRY_RAIL_STATE_COUNT ? names[state] : "unknown";
}

static void change(struct ferry_rail *rail, struct ferry_rail_verdict *verdict, uint64_t now_ns)
{
    rail->changed_at_ns = now_ns;
    verdict->say = verdict->went_down ? now_ns >= rail->quiet_until_ns : rail->said_down;
    rail->said_down = verdict->say && verdict->went_down;
    if (rail->said_down)
        rail->quiet_until_ns = now_ns + SAY_EVERY_NS;
    rail->unsaid += !verdict->say;
}

static void go_down(struct ferry_rail *rail, struct ferry_rail_verdict *verdict, uint64_t now_ns,
                    const struct ferry_rail_limits *limits, uint32_t random)
{
    bool was_probing = rail->state == FERRY_RAIL_PROBING;
    bool trusted = !was_probing && now_ns - rail->changed_at_ns >= TRUST_NS;

    if (rail->pause_ns == 0 || trusted)
        rail->pause_ns = limits->probe_min_ns;
    else
        rail->pause_ns = rail->pause_ns < limits->probe_max_ns / 2 ? rail->pause_ns * 2
                                                                   : limits->probe_max_ns;
    rail->state = FERRY_RAIL_DOWN;
    rail->probe_at_ns = now_ns + rail->pause_ns / 4 * 3 + random % (rail->pause_ns / 4 + 1);
    if (was_probing)
        return;
    rail->downs++;
    rail->breaks = 0;
    verdict->went_down = true;
    change(rail, verdict, now_ns);
}

static void come_up(struct ferry_rail *rail, struct ferry_rail_verdict *verdict, uint64_t now_ns)
{
    verdict->came_back = !ferry_rail_state_usable(rail->state);
    rail->state = FERRY_RAIL_UP;
    if (!verdict->came_back)
        return;
    rail->backs++;
    change(rail, verdict, now_ns);
}

/* True if it has broken too often to go on. */
static bool broke_often(struct ferry_rail *rail, uint64_t now_ns)
{
    if (now_ns - rail->broke_at_ns > BREAK_WINDOW_NS)
        rail->breaks = 0;
    rail->broke_at_ns = now_ns;
    return ++rail->breaks >= BREAKS_MAX;
}

struct ferry_rail_verdict ferry_rail_step(struct ferry_rail *rail, enum ferry_rail_event event,
                                          uint64_t now_ns, const struct ferry_rail_limits *limits,
                                          uint32_t random)
{
    struct ferry_rail_verdict verdict = {0};

    FERRY_ASSERT(limits->probe_min_ns > 0 && limits->probe_min_ns <= limits->probe_max_ns);
    switch (event) {
    case FERRY_RAIL_CONNECTED:
        come_up(rail, &verdict, now_ns);
        break;
    case FERRY_RAIL_BROKE:
        /* Several lanes of a rail break at once; that is one break. */
        if (rail->state != FERRY_RAIL_UP && rail->state != FERRY_RAIL_UNTRIED)
            break;
        rail->state = FERRY_RAIL_SHAKY;
        if (broke_often(rail, now_ns))
            go_down(rail, &verdict, now_ns, limits, random);
        break;
    case FERRY_RAIL_FAILED:
    case FERRY_RAIL_SILENT:
        /* A straggler says nothing new about a rail that is known to be down. */
        if (rail->state != FERRY_RAIL_DOWN)
            go_down(rail, &verdict, now_ns, limits, random);
        break;
    case FERRY_RAIL_PROBE:
        verdict.probe = rail->state == FERRY_RAIL_DOWN && now_ns >= rail->probe_at_ns;
        if (verdict.probe) {
            rail->state = FERRY_RAIL_PROBING;
            rail->probes++;
        }
        break;
    }
    return verdict;
}
