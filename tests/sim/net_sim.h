/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated network for the model rig: processes, listeners and connections on a virtual clock,
 * in one thread, without a system call. Everything random comes from the seed, so the same seed and
 * the same calls give the same schedule.
 *
 *   net = sim_net_create(&options)
 *   p = sim_process_start(net)          one per simulated engine
 *     sim_process_net(p)                its sockets (reactor/net.h)
 *     sim_process_clock(p)              its clock; a reactor opened with it and with
 *                                       sim_reactor_ops (reactor_sim.h) belongs to this process
 *   loop: turn every worker; when none did anything: sim_net_advance(net)
 *   sim_net_destroy(net)                after the reactors are closed
 *
 * Faults: by chance on each call, as the options say, or by hand (sim_process_kill(),
 * sim_reset_one(), sim_stall_one()). Each that fires is counted by name.
 */
#ifndef TESTS_SIM_NET_SIM_H
#define TESTS_SIM_NET_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "reactor/net.h"

struct sim_net;
struct sim_process;

#define SIM_FAULT_TABLE(X)                                                                         \
    X(REFUSE, "refuse")           /* a connection is refused although somebody listens */          \
    X(SYN_DROP, "syn_drop")       /* a connection attempt is never answered */                     \
    X(RESET, "reset")             /* a connection is reset from outside */                         \
    X(ONE_SIDED, "one_sided")     /* one side is told of the end at once, the other much later */  \
    X(STALL, "stall")             /* one direction goes silent for ever */                         \
    X(DELAY, "delay")             /* a piece of data takes far longer than usual */                \
    X(SHORT_SEND, "short_send")   /* less was taken than there was room for */                     \
    X(SHORT_RECV, "short_recv")   /* less was given than had arrived */                            \
    X(EMFILE, "emfile")           /* no descriptor for a new socket or an accepted one */          \
    X(KILL_RESET, "kill_reset")   /* a process died and its kernel said so */                      \
    X(KILL_SILENT, "kill_silent") /* a host died: nobody says anything */                          \
    X(CUT, "cut")                 /* the wire of an address was cut: nothing passes, both ways */

enum sim_fault {
#define SIM_FAULT_ENUM(name, text) SIM_FAULT_##name,
    SIM_FAULT_TABLE(SIM_FAULT_ENUM)
#undef SIM_FAULT_ENUM
        SIM_FAULT_COUNT,
};

struct sim_options {
    uint64_t seed;
    uint32_t buffer_bytes; /* of each direction of a connection; 0: 16 KiB */
    uint64_t delay_min_ns; /* of one hop */
    uint64_t delay_max_ns; /* 0: 20 us */
    /* Chances in a million, per call that could meet the fault; those of the process kind unused.
     */
    uint32_t chance[SIM_FAULT_COUNT];
};

struct sim_net *sim_net_create(const struct sim_options *options);
/* Given: no reactor of the net is open any more. */
void sim_net_destroy(struct sim_net *net);

struct sim_process *sim_process_start(struct sim_net *net);
struct ferry_net *sim_process_net(struct sim_process *process);
const struct ferry_clock *sim_process_clock(struct sim_process *process);
/*
 * Its sockets are gone: peers see a reset, or nothing at all if @silent. What is still open in it
 * fails with ECONNRESET, so that its engine can be closed and freed by the rig.
 */
void sim_process_kill(struct sim_process *process, bool silent);
bool sim_process_alive(const struct sim_process *process);

/*
 * A random open connection is reset, or cut so that only one side learns of it soon, or one
 * direction of it is stalled. False if there is none.
 */
bool sim_reset_one(struct sim_net *net);
bool sim_cut_one(struct sim_net *net);
bool sim_stall_one(struct sim_net *net);
/* The same for a connection of the process: it learns of the end at once, the other side late.
 * False if it has none there. */
bool sim_cut_fd(struct sim_process *process, int fd);

/*
 * The wire at an IPv4 address, in host byte order, is cut or mended. What stands on it goes silent
 * for good; new connections from or to it are not answered while it is cut.
 */
void sim_net_cut(struct sim_net *net, uint32_t host);
void sim_net_mend(struct sim_net *net, uint32_t host);

uint64_t sim_net_now_ns(const struct sim_net *net);
/*
 * Moves the clock to the next event: data or a signal that arrives, or a timer of a reactor. False
 * if nothing will ever happen by itself.
 */
bool sim_net_advance(struct sim_net *net);
/* Moves the clock to @until_ns or the next event, whichever is sooner. */
void sim_net_advance_until(struct sim_net *net, uint64_t until_ns);

/* Changes the chance of a fault from now on, in a million. */
void sim_net_set_chance(struct sim_net *net, enum sim_fault fault, uint32_t chance);

/* The net's generator, for the rig's own choices: part of the same schedule. */
uint64_t sim_random(struct sim_net *net);
uint64_t sim_random_below(struct sim_net *net, uint64_t bound); /* 0 .. bound - 1; bound > 0 */

uint64_t sim_fault_count(const struct sim_net *net, enum sim_fault fault);
const char *sim_fault_name(enum sim_fault fault);
/* Bytes handed to receivers so far: if it did not grow, no receive wrote into anybody's memory. */
uint64_t sim_bytes_received(const struct sim_net *net);
/* Open descriptors, to find leaks. */
uint32_t sim_open_sockets(const struct sim_net *net);

/* A file in memory: a descriptor for READ and WRITE ops. @content may be NULL (zeros). */
int sim_file_open(struct sim_process *process, const void *content, uint32_t size,
                  uint32_t size_max);

/*
 * For reactor_sim.c.
 */

struct ferry_op;
struct ferry_reactor;

enum sim_try {
    SIM_TRY_BLOCKED, /* nothing can be done now */
    SIM_TRY_MOVED,   /* progress, not complete */
    SIM_TRY_DONE,
};

struct sim_net *sim_net_of_clock(const struct ferry_clock *clock, struct sim_process **process_out);
/* Does what the op can do at this time. Also whether a try would do anything, without doing it. */
enum sim_try sim_try_op(struct sim_process *process, struct ferry_op *op, int64_t *result_out);
bool sim_op_ready(struct sim_process *process, const struct ferry_op *op);
bool sim_fd_known(struct sim_process *process, int fd);
void sim_net_add_reactor(struct sim_net *net, struct ferry_reactor *reactor);
void sim_net_remove_reactor(struct sim_net *net, struct ferry_reactor *reactor);

#endif
