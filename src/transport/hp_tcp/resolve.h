/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The initiator's half of "a WRITE whose answer is lost is not guessed". When a connection to a
 * ferry peer ends, the WRITEs that may have reached it and were not answered are *in doubt*. They
 * stay in the lane's window; the lane connects again, names the session that ended, and asks:
 *
 *   settled --no doubt--> nothing
 *      |
 *      +--doubt--> CONNECTING .. GREETING (names the predecessor) --> ASKING (RESOLVE sent)
 *                      |                     |                           |
 *                      |                     |        applied: done;  not applied: sent again,
 *                      v                     v        or ends as its old connection did
 *                  refused, restarted, three tries, resolve_timeout_ms: outcome unknown
 *
 * Nothing else is sent on the new session before the answer. Meanwhile the ranges in doubt are
 * published for all lanes to the same process: a WRITE that overlaps one of them waits. Unknown is
 * no end of that: see doubts.h.
 *
 * Threads: a question belongs to the holder of its lane's baton.
 */
#ifndef FERRY_HP_TCP_RESOLVE_H
#define FERRY_HP_TCP_RESOLVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ferry/status.h>

#include "base/compiler.h"
#include "reactor/reactor.h"
#include "wire/frame.h"

struct hp_flow;
struct hp_lane;
struct hp_op;
struct hp_peer;
struct hp_ref;
struct hp_transport;

/* What becomes of an op that turns out not to have been applied. */
enum hp_doubt {
    HP_DOUBT_NONE = 0, /* its outcome is not in doubt */
    HP_DOUBT_AGAIN,    /* it is sent again */
    HP_DOUBT_END,      /* it ends with what its connection ended of */
};

struct hp_question {
    /* holder of the worker's baton only */
    bool fenced;    /* the peer greeted after the session in doubt was named */
    bool asked;     /* RESOLVE has left, or is leaving, on the present connection */
    uint32_t ops;   /* entries of the window in doubt */
    uint32_t tries; /* connections begun for this question */
    struct ferry_timer timer;
    uint8_t *frame; /* room for a RESOLVE about a whole window */
    uint32_t room;
    struct hp_doubts *doubts; /* of the session in doubt, or spare; NULL: none yet */
    struct hp_doubts *named;  /* whose session the present greeting names: its own or one left */
};

/* Room for @window_ops entries. ERR_NO_MEMORY. */
enum ferry_status ferry_hp_question_init(struct hp_lane *lane, uint32_t window_ops);
/* Accepts a zeroed question. */
void ferry_hp_question_fini(struct hp_question *question);

/* The connection begins to close: what may be in doubt is published at once. */
void ferry_hp_question_note(struct hp_lane *lane);
/*
 * The connection is closed and the op, a WRITE of which a byte may have left, is unanswered. True:
 * it can be asked about, is marked so and stays in the window. False: its outcome is unknown.
 */
bool ferry_hp_question_take(struct hp_lane *lane, struct hp_op *op);
/* After the ops of a closed connection are settled: publish what is in doubt, and set the limit. */
void ferry_hp_question_open(struct hp_lane *lane);
/* May a connection that broke before the answer came be tried again? */
bool ferry_hp_question_again(const struct hp_lane *lane);
/* Connected and greeted, in ASKING: send the question, once. */
void ferry_hp_question_ask(struct hp_lane *lane);
/* The answer. Settles what was in doubt; the window may be sent afterwards. */
void ferry_hp_question_answer(struct hp_lane *lane, const struct ferry_frame *frame);
/* Every op in doubt ends as unknown. Given: nothing of the window is on the present connection. */
void ferry_hp_question_drop(struct hp_lane *lane, int32_t native, const char *where);
/* The entry, which is in doubt, is to leave the window by itself, as unknown. */
void ferry_hp_question_forget(struct hp_lane *lane, struct hp_op *op, const char *where);

/*
 * Before a greeting: the session that it is to name, 0 for none, and room for what may be in doubt
 * later. False: there is no memory.
 */
FERRY_CHECKED bool ferry_hp_question_name(struct hp_lane *lane, uint64_t *session_id_out);
/* The peer has greeted: what was named is fenced. */
void ferry_hp_question_fenced(struct hp_lane *lane);
/* The connection is gone; what it named and the peer did not answer is somebody else's to name. */
void ferry_hp_question_unname(struct hp_lane *lane);
/* The op, of the connection that is being settled, ends as unknown without a question. */
void ferry_hp_question_unknown(struct hp_lane *lane, const struct hp_op *op);

#endif
