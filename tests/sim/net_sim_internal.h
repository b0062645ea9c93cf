/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of the simulated network share: net_sim.c keeps processes, sockets and time,
 * net_sim_ops.c carries out operations. Nobody else includes this.
 */
#ifndef TESTS_SIM_NET_SIM_INTERNAL_H
#define TESTS_SIM_NET_SIM_INTERNAL_H

#include "sim/net_sim.h"

#include <sys/socket.h>

#define FD_BASE        (1 << 20) /* no real descriptor is that large */
#define SOCKETS_MAX    (1 << 16)
#define FLIGHTS_MAX    16
#define BACKLOG_MAX    64
#define REACTORS_MAX   64
#define CUTS_MAX       8
#define PORT_FIRST     20000
#define BUFFER_DEFAULT (16u << 10)
#define DELAY_DEFAULT  (20 * FERRY_NS_PER_US)
#define LONG_DELAY_NS  (50 * FERRY_NS_PER_MS)
#define CHANCE_SCALE   1000000

struct flight {
    uint64_t at_ns;
    uint32_t bytes;
};

/* One direction. */
struct pipe {
    unsigned char *ring; /* allocated at the first byte */
    uint32_t read_pos;
    uint32_t used;    /* bytes written and not read */
    uint32_t arrived; /* of these, what the reader can have */
    struct flight flights[FLIGHTS_MAX];
    uint32_t flight_count;
    uint64_t last_at_ns; /* nothing overtakes */
    uint64_t fin_at_ns;  /* FERRY_NEVER_NS: the writer has not ended */
    bool fin_sent;
    bool stalled;
};

struct conn;

struct sim_socket {
    struct sim_process *process;
    int fd;
    enum { FRESH, BOUND, LISTENING, LOST_LISTENER, CONNECTING, CONNECTED, FILE_IN_MEMORY } kind;
    struct sockaddr_storage local;
    struct sockaddr_storage peer;
    /* listener */
    struct conn *backlog[BACKLOG_MAX];
    uint32_t backlog_count;
    /* connecting and connected */
    struct conn *conn;
    int side;
    uint64_t outcome_at_ns;
    int outcome;
    /* file */
    unsigned char *content;
    uint32_t size;
    uint32_t size_max;
};

struct conn {
    struct conn *next;
    struct sim_net *net;
    struct pipe pipe[2];          /* pipe[s] is written by side s */
    struct sim_socket *socket[2]; /* NULL: not accepted yet, or closed */
    bool closed[2];
    uint64_t reset_at_ns[2];      /* when side s learns of a reset */
    uint64_t unaware_until_ns[2]; /* side s is told of nothing before */
    uint64_t reaches_at_ns;       /* when it appears at the listener */
    struct sockaddr_storage addr[2];
};

struct sim_process {
    struct ferry_clock clock; /* first, so that a clock leads here */
    struct ferry_net net;
    struct sim_net *owner;
    struct sim_process *next;
    bool alive;
};

struct sim_net {
    struct sim_options options;
    uint64_t now_ns;
    uint64_t random_state;
    struct sim_process *processes;
    struct conn *conns;
    struct sim_socket **sockets; /* by descriptor; never reused, so a stale one is noticed */
    uint32_t socket_count;
    uint32_t socket_cap;
    uint32_t open_count;
    uint16_t next_port;
    struct ferry_reactor *reactors[REACTORS_MAX];
    uint32_t reactor_count;
    uint64_t fault_counts[SIM_FAULT_COUNT];
    uint32_t cuts[CUTS_MAX]; /* hosts whose wire is cut */
    uint32_t cut_count;
    uint64_t bytes_received;
};

bool sim_strikes(struct sim_net *net, enum sim_fault fault);
uint64_t sim_hop_ns(struct sim_net *net);
void sim_settle(const struct sim_net *net, struct pipe *pipe);
bool sim_fin_arrived(const struct sim_net *net, const struct pipe *pipe);
uint32_t sim_pipe_write(struct sim_net *net, struct pipe *pipe, const void *data, uint32_t len);
uint32_t sim_pipe_read(struct sim_net *net, struct pipe *pipe, void *data, uint32_t len);
struct conn *sim_make_conn(struct sim_net *net);
void sim_reset_side(struct conn *conn, int side, uint64_t at_ns);
void sim_cut_side(struct conn *conn, int side);
bool sim_was_reset(const struct conn *conn, int side);
struct sim_socket *sim_make_socket(struct sim_process *process);
struct sim_socket *sim_socket_of(struct sim_process *process, int fd);
uint16_t *sim_port_of(struct sockaddr_storage *addr);
bool sim_is_any(const struct sockaddr_storage *addr);
bool sim_is_cut(const struct sim_net *net, const struct sockaddr_storage *addr);
struct sim_socket *sim_find_listener(struct sim_net *net, struct sockaddr_storage *addr, int kind);
void sim_pick_port(struct sim_net *net, struct sockaddr_storage *addr);

#endif
