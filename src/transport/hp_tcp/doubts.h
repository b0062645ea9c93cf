/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges at a peer that bytes of an old WRITE may still reach. When a connection ends with WRITEs
 * unanswered, their ranges are published for every lane to the same process, and a later WRITE over
 * one of them waits. One record per session that ended:
 *
 *   spare --publish--> asked --answered--> spare
 *   (the lane's)         |
 *                        +--nobody knows--> left --named in a greeting, and answered--> freed
 *                                          (the list's)
 *
 * That a question has no answer makes a range no safer: the peer may have stood still, with the
 * bytes in its socket. So what is left is kept until a greeting has named the session, by whichever
 * lane connects next; the lane that holds a WRITE back for it connects anew for that. It outlives
 * the lane and its segment: who opens the segment again writes to the same memory.
 *
 * Threads: any, under the transport's doubt_mutex, but what is said of the lane's own record.
 */
#ifndef FERRY_HP_TCP_DOUBTS_H
#define FERRY_HP_TCP_DOUBTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/frame.h"

struct hp_flow;
struct hp_transport;

struct hp_doubted {
    uint64_t addr;
    uint64_t length;
    uint64_t request_id;
    const struct hp_flow *flow; /* for comparison only; NULL: it has ended */
};

struct hp_doubts {
    struct ferry_list link; /* in transport->doubts while range_count > 0, or in ->doubts_parked */
    uint8_t incarnation[FERRY_INCARNATION_SIZE];
    uint64_t session_id;
    bool taken; /* it is asked about, or a connection under way names the session */
    bool left;  /* no lane owns it */
    uint32_t range_count;
    uint32_t room;
    struct hp_doubted ranges[];
};

/* What a WRITE over a range has to wait for. */
enum hp_wait {
    HP_WAIT_NOT,
    HP_WAIT_OTHERS, /* somebody is finding out, or having the session fenced */
    HP_WAIT_FENCE,  /* nobody is: the lane has to */
};

/* A spare record; NULL: no memory. */
struct hp_doubts *ferry_hp_doubts_create(uint32_t room);
/* Of every list; no lane is left. */
void ferry_hp_doubts_fini(struct hp_transport *transport);

/* The lane's spare record, filled in but for the list, is published, as taken. */
void ferry_hp_doubts_publish(struct hp_transport *transport, struct hp_doubts *doubts);
/* Keep those ranges that @keep, told @context, says true of. The record is the lane's. */
void ferry_hp_doubts_filter(struct hp_transport *transport, struct hp_doubts *doubts,
                            bool (*keep)(const void *context, const struct hp_doubted *range),
                            const void *context);
/* The WRITE of one range ends without an answer. The record is the lane's. */
void ferry_hp_doubts_ended(struct hp_transport *transport, struct hp_doubts *doubts,
                           uint64_t request_id);
/* The session is fenced. Frees a record that is left; the lane's is spare again. */
void ferry_hp_doubts_clear(struct hp_transport *transport, struct hp_doubts *doubts);
/* Nobody will know: the record passes to the list. @taken: the present connection names it yet. */
void ferry_hp_doubts_leave(struct hp_transport *transport, struct hp_doubts *doubts, bool taken);
/* One that is left and not taken, of that process, and takes it; NULL: there is none. */
struct hp_doubts *ferry_hp_doubts_take(struct hp_transport *transport, const uint8_t *incarnation);
/* The connection that was to have it fenced has ended before. Somebody else may try. */
void ferry_hp_doubts_give_back(struct hp_transport *transport, struct hp_doubts *doubts);

/* The last peer of that process is gone, or the first one there: who writes to it looks at them. */
void ferry_hp_doubts_park(struct hp_transport *transport, const uint8_t *incarnation);
void ferry_hp_doubts_unpark(struct hp_transport *transport, const uint8_t *incarnation);

/* Does a published range, of another flow to the same process, overlap this one? Takes a mutex. */
enum hp_wait ferry_hp_doubts_wait(struct hp_transport *transport, const uint8_t *incarnation,
                                  const struct hp_doubted *wanted);

#endif
