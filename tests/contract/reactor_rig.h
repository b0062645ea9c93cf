/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rig for the reactor's contract suite, whatever the reactor: a reactor, the sockets that go
 * with it, and operations that count how often they complete. The real reactors use the loopback
 * interface, the simulated one a simulated network; a test does not see the difference.
 */
#ifndef TESTS_CONTRACT_REACTOR_RIG_H
#define TESTS_CONTRACT_REACTOR_RIG_H

#include "test.h"

#include "access/tls.h"
#include "reactor/net.h"
#include "reactor/reactor.h"
#include "reactor/tls.h"

#define RIG_WAIT_NS (20 * FERRY_NS_PER_S)

/* Why a test is left out there. */
#define RIG_SIM_LACKS "the simulated network has no descriptors, files or real time"

enum rig_kind {
    RIG_URING,
    RIG_EPOLL,
    RIG_SIM,
    RIG_URING_TLS, /* pairs are connected through TLS; OpenSSL encrypts */
    RIG_EPOLL_TLS,
    RIG_KIND_COUNT,
};

struct sim_net;
struct sim_process;

struct rig {
    enum rig_kind kind;
    struct ferry_reactor *reactor;
    struct ferry_net *net;
    const struct ferry_clock *clock;
    struct sim_net *sim;
    struct sim_process *process;
    struct ferry_tls *tls;
};

/* An op that knows how often it completed, and with what. */
struct rig_op {
    struct ferry_op op;
    uint32_t calls;
    int64_t result;
};

struct rig_pair {
    int listen_fd;
    int fd[2]; /* 0: who connected, 1: who accepted */
    struct ferry_io listen_io;
    struct ferry_io io[2];
};

/* cmocka's set-up and tear-down; the kind of all rigs is set once per group. */
extern enum rig_kind rig_kind_now;
int rig_setup(void **state);
int rig_teardown(void **state);
const char *rig_kind_name(enum rig_kind kind);
/* The tests as one group per kind that can be had here; prints which cannot, and why. */
int rig_run_on_all(const struct CMUnitTest *tests, size_t count);
/* The same for the kinds with TLS. */
int rig_run_on_tls(const struct CMUnitTest *tests, size_t count);

uint64_t rig_now_ns(const struct rig *rig);
/* One turn that sleeps for 10 ms at most. */
void rig_turn(struct rig *rig);
/* Turns until @op completed; fails the test if it does not. Returns its result. */
int64_t rig_finish(struct rig *rig, struct rig_op *op);
/* Turns for a while in which @op must not complete. */
void rig_expect_pending(struct rig *rig, struct rig_op *op);

void rig_count_done(struct ferry_op *op, int64_t result);
void rig_submit(struct rig *rig, struct rig_op *op);
void rig_recv(struct rig *rig, struct rig_op *op, struct ferry_io *io, void *buf, uint64_t len,
              uint64_t min_bytes);
void rig_send(struct rig *rig, struct rig_op *op, struct ferry_io *io, const void *buf,
              uint64_t len);
/* Sends all of it, turning until it is gone. */
void rig_send_all(struct rig *rig, struct ferry_io *io, const void *buf, uint64_t len);

/* A listener on the loopback address; its address goes to addr_out. */
int rig_listen(struct rig *rig, struct sockaddr_storage *addr_out, socklen_t *addr_len_out);
void rig_connect_pair(struct rig *rig, struct rig_pair *pair);
/* Detaches and closes what is open of it. */
void rig_close_side(struct rig *rig, struct rig_pair *pair, int side, bool abort);
void rig_close_pair(struct rig *rig, struct rig_pair *pair);

#endif
