/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's table over a simulated network (net_sim.h). Open it with the clock of a simulated
 * process: ferry_reactor_open_with(&sim_reactor_ops, &(struct ferry_reactor_options){.clock =
 * ...}), or give the table and the clock to a threadless worker.
 *
 * A turn completes a random, non-empty choice of what could complete, in random order. A turn that
 * may sleep moves the virtual clock instead. ferry_reactor_wake() only makes the next sleep short.
 */
#ifndef TESTS_SIM_REACTOR_SIM_H
#define TESTS_SIM_REACTOR_SIM_H

#include "reactor/reactor.h"
#include "sim/net_sim.h"

extern const struct ferry_reactor_ops sim_reactor_ops;

#endif
