/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a target remembers of the WRITEs it has applied, so that an initiator that lost an answer
 * can ask: per session a short list of request ids, kept for a while after the session's end, and
 * bounded over all sessions. Whoever is not found here is *unknown*, never "not applied".
 *
 *   LIVE --a successor names it--> DOOMED --callbacks retired--> ENDED --time, room--> forgotten
 *     |                                                            ^
 *     +-----------------end of the connection, however-------------+
 *
 * Only what has ENDED is answered for: until then a byte may still land. No I/O and no thread of
 * its own; the caller carries out what a call says. Any thread; cold paths only, but for
 * ferry_hp_applied_add(), which is the owning session's and takes no lock.
 */
#ifndef FERRY_HP_TCP_ANSWERS_H
#define FERRY_HP_TCP_ANSWERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/frame.h"

/*
 * Ids remembered per session. An initiator has at most as many requests unanswered as the greeting
 * allowed it, and ids on a session ascend: what is older than this many has been answered for sure.
 */
#define HP_APPLIED_MAX     64u
#define HP_ANSWERS_BUCKETS 256u

/* The latest applied ids of one session; its worker's. */
struct hp_applied {
    uint64_t ids[HP_APPLIED_MAX];
    uint32_t count; /* ever added; the newest is ids[(count - 1) % HP_APPLIED_MAX] */
    uint64_t floor; /* the highest id that has been dropped: up to here nothing is certain */
};

/* The last byte of WRITE @request_id has landed. Hot path. */
static inline void ferry_hp_applied_add(struct hp_applied *applied, uint64_t request_id)
{
    uint64_t *slot = &applied->ids[applied->count % HP_APPLIED_MAX];

    if (applied->count >= HP_APPLIED_MAX && *slot > applied->floor)
        applied->floor = *slot;
    *slot = request_id;
    /* Never back to a count at which old slots would look empty. */
    if (++applied->count == 2 * HP_APPLIED_MAX)
        applied->count = HP_APPLIED_MAX;
}

/* One greeted session; created by begin(), the table's after end(). */
struct hp_record {
    /* immutable */
    uint64_t session_id;
    uint64_t predecessor_id; /* 0: none */
    uint8_t initiator[FERRY_INCARNATION_SIZE];
    /* any thread, atomic: a successor came; the session must close (set under the mutex) */
    _Atomic bool doomed;
    /* under the table's mutex */
    struct ferry_list bucket_link;
    struct ferry_list age_link; /* ENDED: oldest first */
    bool ended;
    uint64_t forget_at_ns;
    uint64_t low_water; /* the initiator asks about nothing below */
    uint64_t floor;
    uint32_t count;
    uint64_t *ids;
};

struct hp_answers {
    /* immutable after init */
    uint32_t entries_max;
    uint64_t keep_ns;
    /* under the mutex; no other lock is taken inside */
    pthread_mutex_t mutex;
    struct ferry_list buckets[HP_ANSWERS_BUCKETS];
    struct ferry_list ended; /* in the order of their ends */
    uint32_t entries;        /* one per ended session and one per id of it */
    /* counters, written under the mutex, read by reports */
    _Atomic uint64_t kept;     /* entries now */
    _Atomic uint64_t fenced;   /* sessions that a successor closed */
    _Atomic uint64_t answered; /* request ids answered with a verdict */
    _Atomic uint64_t crowded;  /* sessions forgotten early because the table was full */
};

void ferry_hp_answers_init(struct hp_answers *answers, uint32_t entries_max, uint64_t keep_ns);
/* Given: no session lives. Accepts a zeroed table. */
void ferry_hp_answers_fini(struct hp_answers *answers);

/* A session was greeted. NULL without memory: then nothing will be known of it. */
struct hp_record *ferry_hp_answers_begin(struct hp_answers *answers, uint64_t session_id,
                                         const struct ferry_hello *hello);

/*
 * The session can touch memory no more: its callbacks have retired and its leases are given back.
 * Takes over @record (may be NULL). True if a successor waits for this.
 */
bool ferry_hp_answers_end(struct hp_answers *answers, struct hp_record *record,
                          const struct hp_applied *applied, uint64_t now_ns);

enum hp_fence {
    HP_FENCE_DONE, /* it has ended, or nothing is known of it: nothing of it can land here */
    HP_FENCE_WAIT, /* it lives and is doomed: have its worker close it, and ask again */
};

/*
 * A greeting names a predecessor and says up to where the initiator needs no answers. Call it again
 * whenever a session has ended, until it says DONE; nothing is answered or served before. A session
 * of another initiator is as good as unknown.
 */
enum hp_fence ferry_hp_answers_fence(struct hp_answers *answers, const struct ferry_hello *hello);

/*
 * Answer a question: verdicts for @asked into the entries of a RESOLVE_REPLY at @wire_out. False:
 * nothing is known about the session; nothing was written.
 */
bool ferry_hp_answers_resolve(struct hp_answers *answers, const struct ferry_hello *hello,
                              const struct ferry_frame_list *asked, uint64_t now_ns,
                              uint8_t *wire_out);

#endif
