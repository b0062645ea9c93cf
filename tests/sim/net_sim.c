/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network: processes, sockets, connections, faults, time. One thread; no system
 * calls; no global state, so several nets may live side by side.
 *
 * A connection is two pipes. A pipe is a bounded ring of bytes of which a prefix has arrived; what
 * is still on the way is a short list of (arrival time, bytes), settled lazily by whoever looks.
 * There is no event queue: the next event is found by looking at all connections, of which a rig
 * has a few.
 */
#include "sim/net_sim_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "reactor/reactor.h"

static const struct ferry_net_ops net_ops;

uint64_t sim_random(struct sim_net *net)
{
    uint64_t x = net->random_state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t sim_random_below(struct sim_net *net, uint64_t bound)
{
    FERRY_ASSERT(bound > 0);
    return sim_random(net) % bound;
}

bool sim_strikes(struct sim_net *net, enum sim_fault fault)
{
    if (net->options.chance[fault] == 0 ||
        sim_random_below(net, CHANCE_SCALE) >= net->options.chance[fault])
        return false;
    net->fault_counts[fault]++;
    return true;
}

uint64_t sim_hop_ns(struct sim_net *net)
{
    const struct sim_options *options = &net->options;

    return options->delay_min_ns +
           sim_random_below(net, options->delay_max_ns - options->delay_min_ns + 1);
}

void sim_net_set_chance(struct sim_net *net, enum sim_fault fault, uint32_t chance)
{
    FERRY_ASSERT(chance <= CHANCE_SCALE);
    net->options.chance[fault] = chance;
}

uint64_t sim_fault_count(const struct sim_net *net, enum sim_fault fault)
{
    return net->fault_counts[fault];
}

const char *sim_fault_name(enum sim_fault fault)
{
    static const char *const names[] = {
#define SIM_FAULT_NAME(name, text) [SIM_FAULT_##name] = text,
        SIM_FAULT_TABLE(SIM_FAULT_NAME)
#undef SIM_FAULT_NAME
    };

    return (unsigned)fault < SIM_FAULT_COUNT ? names[fault] : "unknown";
}

uint64_t sim_bytes_received(const struct sim_net *net)
{
    return net->bytes_received;
}

uint32_t sim_open_sockets(const struct sim_net *net)
{
    return net->open_count;
}

uint64_t sim_net_now_ns(const struct sim_net *net)
{
    return net->now_ns;
}

/* Set-up and tear-down. */

struct sim_net *sim_net_create(const struct sim_options *options)
{
    struct sim_net *net = calloc(1, sizeof(*net));

    FERRY_ASSERT(net != NULL);
    net->options = *options;
    if (net->options.buffer_bytes == 0)
        net->options.buffer_bytes = BUFFER_DEFAULT;
    if (net->options.delay_max_ns == 0)
        net->options.delay_max_ns = DELAY_DEFAULT;
    FERRY_ASSERT(net->options.delay_min_ns <= net->options.delay_max_ns);
    net->random_state = options->seed;
    net->now_ns = FERRY_NS_PER_S;
    net->next_port = PORT_FIRST;
    return net;
}

static void free_conn(struct conn *conn)
{
    free(conn->pipe[0].ring);
    free(conn->pipe[1].ring);
    free(conn);
}

static void free_socket(struct sim_socket *socket)
{
    if (socket == NULL)
        return;
    free(socket->content);
    free(socket);
}

void sim_net_destroy(struct sim_net *net)
{
    if (net == NULL)
        return;
    FERRY_ASSERT(net->reactor_count == 0);
    for (struct conn *conn = net->conns, *next; conn != NULL; conn = next) {
        next = conn->next;
        free_conn(conn);
    }
    for (uint32_t i = 0; i < net->socket_count; i++)
        free_socket(net->sockets[i]);
    for (struct sim_process *process = net->processes, *next; process != NULL; process = next) {
        next = process->next;
        free(process);
    }
    free(net->sockets);
    free(net);
}

static uint64_t process_now_ns(const struct ferry_clock *clock)
{
    return ((const struct sim_process *)(const void *)clock)->owner->now_ns;
}

struct sim_process *sim_process_start(struct sim_net *net)
{
    struct sim_process *process = calloc(1, sizeof(*process));

    FERRY_ASSERT(process != NULL);
    process->clock.now_ns = process_now_ns;
    process->net = (struct ferry_net){.ops = &net_ops, .impl = process};
    process->owner = net;
    process->alive = true;
    process->next = net->processes;
    net->processes = process;
    return process;
}

struct ferry_net *sim_process_net(struct sim_process *process)
{
    return &process->net;
}

const struct ferry_clock *sim_process_clock(struct sim_process *process)
{
    return &process->clock;
}

bool sim_process_alive(const struct sim_process *process)
{
    return process->alive;
}

struct sim_net *sim_net_of_clock(const struct ferry_clock *clock, struct sim_process **process_out)
{
    FERRY_ASSERT(clock != NULL && clock->now_ns == process_now_ns);
    *process_out = FERRY_CONTAINER_OF(clock, struct sim_process, clock);
    return (*process_out)->owner;
}

void sim_net_add_reactor(struct sim_net *net, struct ferry_reactor *reactor)
{
    FERRY_ASSERT(net->reactor_count < REACTORS_MAX);
    net->reactors[net->reactor_count++] = reactor;
}

void sim_net_remove_reactor(struct sim_net *net, struct ferry_reactor *reactor)
{
    for (uint32_t i = 0; i < net->reactor_count; i++) {
        if (net->reactors[i] != reactor)
            continue;
        /* In order, so that the schedule does not depend on who left. */
        memmove(&net->reactors[i], &net->reactors[i + 1],
                (net->reactor_count - i - 1) * sizeof(net->reactors[0]));
        net->reactor_count--;
        return;
    }
}

/* Pipes. */

void sim_settle(const struct sim_net *net, struct pipe *pipe)
{
    uint32_t landed = 0;

    if (pipe->stalled)
        return;
    while (landed < pipe->flight_count && pipe->flights[landed].at_ns <= net->now_ns)
        pipe->arrived += pipe->flights[landed++].bytes;
    if (landed == 0)
        return;
    pipe->flight_count -= landed;
    memmove(pipe->flights, pipe->flights + landed, pipe->flight_count * sizeof(pipe->flights[0]));
}

bool sim_fin_arrived(const struct sim_net *net, const struct pipe *pipe)
{
    return !pipe->stalled && pipe->fin_at_ns <= net->now_ns;
}

static uint64_t arrival_ns(struct sim_net *net, struct pipe *pipe)
{
    uint64_t at_ns = net->now_ns + sim_hop_ns(net);

    if (sim_strikes(net, SIM_FAULT_DELAY))
        at_ns += LONG_DELAY_NS;
    if (at_ns < pipe->last_at_ns)
        at_ns = pipe->last_at_ns;
    return pipe->last_at_ns = at_ns;
}

uint32_t sim_pipe_write(struct sim_net *net, struct pipe *pipe, const void *data, uint32_t len)
{
    uint32_t cap = net->options.buffer_bytes;
    uint32_t at = (pipe->read_pos + pipe->used) % cap;
    uint32_t first = len < cap - at ? len : cap - at;

    FERRY_ASSERT(len <= cap - pipe->used);
    if (pipe->ring == NULL)
        pipe->ring = malloc(cap);
    FERRY_ASSERT(pipe->ring != NULL);
    memcpy(pipe->ring + at, data, first);
    memcpy(pipe->ring, (const unsigned char *)data + first, len - first);
    pipe->used += len;

    uint64_t at_ns = arrival_ns(net, pipe);
    if (pipe->flight_count == FLIGHTS_MAX) {
        pipe->flights[FLIGHTS_MAX - 1].bytes += len; /* travels with the one before */
        pipe->flights[FLIGHTS_MAX - 1].at_ns = at_ns;
    } else {
        pipe->flights[pipe->flight_count++] = (struct flight){at_ns, len};
    }
    return len;
}

uint32_t sim_pipe_read(struct sim_net *net, struct pipe *pipe, void *data, uint32_t len)
{
    uint32_t cap = net->options.buffer_bytes;
    uint32_t first = len < cap - pipe->read_pos ? len : cap - pipe->read_pos;

    FERRY_ASSERT(len <= pipe->arrived);
    memcpy(data, pipe->ring + pipe->read_pos, first);
    memcpy((unsigned char *)data + first, pipe->ring, len - first);
    pipe->read_pos = (pipe->read_pos + len) % cap;
    pipe->used -= len;
    pipe->arrived -= len;
    net->bytes_received += len;
    return len;
}

/* Connections. */

struct conn *sim_make_conn(struct sim_net *net)
{
    struct conn *conn = calloc(1, sizeof(*conn));

    FERRY_ASSERT(conn != NULL);
    conn->net = net;
    for (int side = 0; side < 2; side++) {
        conn->pipe[side].fin_at_ns = FERRY_NEVER_NS;
        conn->reset_at_ns[side] = FERRY_NEVER_NS;
    }
    conn->next = net->conns;
    net->conns = conn;
    return conn;
}

static void drop_conn(struct conn *conn)
{
    struct conn **slot = &conn->net->conns;

    while (*slot != conn)
        slot = &(*slot)->next;
    *slot = conn->next;
    free_conn(conn);
}

void sim_reset_side(struct conn *conn, int side, uint64_t at_ns)
{
    if (at_ns < conn->unaware_until_ns[side])
        at_ns = conn->unaware_until_ns[side];
    /* A direction that is silent carries no resets either. */
    if (!conn->pipe[1 - side].stalled && at_ns < conn->reset_at_ns[side])
        conn->reset_at_ns[side] = at_ns;
}

/*
 * @side sees a reset now. The other one knows nothing of it for a while: what is on the way to it
 * arrives, late, and what it says goes nowhere.
 */
void sim_cut_side(struct conn *conn, int side)
{
    struct sim_net *net = conn->net;
    struct pipe *pipe = &conn->pipe[side];
    uint64_t late_ns = sim_random_below(net, LONG_DELAY_NS);
    uint64_t until_ns = net->now_ns + LONG_DELAY_NS + late_ns;

    sim_reset_side(conn, side, net->now_ns);
    conn->pipe[1 - side].stalled = true;
    for (uint32_t i = 0; i < pipe->flight_count; i++)
        pipe->flights[i].at_ns += late_ns;
    conn->unaware_until_ns[1 - side] = until_ns;
    if (pipe->last_at_ns < until_ns)
        pipe->last_at_ns = until_ns;
    if (pipe->fin_sent && pipe->fin_at_ns < until_ns)
        pipe->fin_at_ns = until_ns;
    sim_reset_side(conn, 1 - side, until_ns);
}

static void end_writing(struct conn *conn, int side)
{
    struct pipe *pipe = &conn->pipe[side];

    if (pipe->fin_sent)
        return;
    pipe->fin_sent = true;
    pipe->fin_at_ns = arrival_ns(conn->net, pipe);
}

/* @abort or data that nobody read: the peer gets a reset instead of an end, as TCP does it. */
static void close_side(struct conn *conn, int side, bool abort)
{
    if (abort || conn->pipe[1 - side].used > 0)
        sim_reset_side(conn, 1 - side, conn->net->now_ns + sim_hop_ns(conn->net));
    else
        end_writing(conn, side);
    conn->closed[side] = true;
    conn->socket[side] = NULL;
    if (conn->closed[0] && conn->closed[1])
        drop_conn(conn);
}

bool sim_was_reset(const struct conn *conn, int side)
{
    return conn->reset_at_ns[side] <= conn->net->now_ns;
}

/* Sockets. */

struct sim_socket *sim_socket_of(struct sim_process *process, int fd)
{
    struct sim_net *net = process->owner;
    uint32_t index = (uint32_t)(fd - FD_BASE);

    if (fd < FD_BASE || index >= net->socket_count || net->sockets[index] == NULL)
        return NULL;
    return net->sockets[index]->process == process ? net->sockets[index] : NULL;
}

bool sim_fd_known(struct sim_process *process, int fd)
{
    return sim_socket_of(process, fd) != NULL;
}

struct sim_socket *sim_make_socket(struct sim_process *process)
{
    struct sim_net *net = process->owner;

    if (net->socket_count == net->socket_cap) {
        uint32_t cap = net->socket_cap == 0 ? 64 : net->socket_cap * 2;

        FERRY_ASSERT(cap <= SOCKETS_MAX);
        net->sockets = realloc(net->sockets, cap * sizeof(struct sim_socket *));
        FERRY_ASSERT(net->sockets != NULL);
        net->socket_cap = cap;
    }
    struct sim_socket *socket = calloc(1, sizeof(*socket));
    FERRY_ASSERT(socket != NULL);
    socket->process = process;
    socket->fd = FD_BASE + (int)net->socket_count;
    net->sockets[net->socket_count++] = socket;
    net->open_count++;
    return socket;
}

uint16_t *sim_port_of(struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET6)
        return &((struct sockaddr_in6 *)(void *)addr)->sin6_port;
    return &((struct sockaddr_in *)(void *)addr)->sin_port;
}

bool sim_is_any(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(
            &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr);
    return ((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr == INADDR_ANY;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)(const void *)b)->sin6_addr, 16) == 0;
    return ((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr ==
           ((const struct sockaddr_in *)(const void *)b)->sin_addr.s_addr;
}

struct sim_socket *sim_find_listener(struct sim_net *net, struct sockaddr_storage *addr, int kind)
{
    for (uint32_t i = 0; i < net->socket_count; i++) {
        struct sim_socket *socket = net->sockets[i];

        if (socket != NULL && (int)socket->kind == kind &&
            socket->local.ss_family == addr->ss_family &&
            *sim_port_of(&socket->local) == *sim_port_of(addr) &&
            (sim_is_any(&socket->local) || same_host(&socket->local, addr)))
            return socket;
    }
    return NULL;
}

void sim_pick_port(struct sim_net *net, struct sockaddr_storage *addr)
{
    if (*sim_port_of(addr) == 0)
        *sim_port_of(addr) = htons(net->next_port++);
}

/* The table of net.h. */

static enum ferry_status sim_socket_open(struct ferry_net *table, int family, int *fd_out)
{
    struct sim_process *process = table->impl;

    if (!process->alive || sim_strikes(process->owner, SIM_FAULT_EMFILE))
        return ferry_fail(FERRY_ERR_LIMIT, "simulated: no descriptor left");
    struct sim_socket *socket = sim_make_socket(process);
    socket->local.ss_family = (sa_family_t)family;
    *fd_out = socket->fd;
    return FERRY_OK;
}

static enum ferry_status sim_socket_bind(struct ferry_net *table, int fd,
                                         const struct sockaddr *addr, socklen_t addr_len)
{
    struct sim_socket *socket = sim_socket_of(table->impl, fd);

    FERRY_ASSERT(socket != NULL && socket->kind == FRESH);
    memcpy(&socket->local, addr, addr_len);
    socket->kind = BOUND;
    return FERRY_OK;
}

static enum ferry_status sim_socket_listen(struct ferry_net *table, int fd,
                                           const struct sockaddr *addr, socklen_t addr_len)
{
    struct sim_process *process = table->impl;
    struct sim_socket *socket = sim_socket_of(process, fd);
    struct sockaddr_storage local = {0};

    FERRY_ASSERT(socket != NULL && socket->kind == FRESH);
    memcpy(&local, addr, addr_len);
    if (*sim_port_of(&local) != 0 && sim_find_listener(process->owner, &local, LISTENING) != NULL)
        return ferry_fail_errno(EADDRINUSE, "simulated: listen");
    sim_pick_port(process->owner, &local);
    socket->local = local;
    if (process->alive)
        socket->kind = LISTENING;
    return FERRY_OK;
}

static enum ferry_status sim_socket_set_nodelay(struct ferry_net *table, int fd)
{
    FERRY_ASSERT(sim_fd_known(table->impl, fd));
    return FERRY_OK;
}

static enum ferry_status sim_socket_set_buffers(struct ferry_net *table, int fd,
                                                uint32_t send_bytes, uint32_t recv_bytes)
{
    (void)send_bytes;
    (void)recv_bytes;
    FERRY_ASSERT(sim_fd_known(table->impl, fd));
    return FERRY_OK;
}

static socklen_t addr_len_of(const struct sockaddr_storage *addr)
{
    return addr->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static enum ferry_status sim_socket_local_addr(struct ferry_net *table, int fd,
                                               struct sockaddr_storage *addr_out,
                                               socklen_t *addr_len_out)
{
    struct sim_socket *socket = sim_socket_of(table->impl, fd);

    FERRY_ASSERT(socket != NULL);
    *addr_out = socket->local;
    *addr_len_out = addr_len_of(&socket->local);
    return FERRY_OK;
}

static enum ferry_status sim_socket_peer_addr(struct ferry_net *table, int fd,
                                              struct sockaddr_storage *addr_out,
                                              socklen_t *addr_len_out)
{
    struct sim_socket *socket = sim_socket_of(table->impl, fd);

    FERRY_ASSERT(socket != NULL);
    if (socket->kind != CONNECTED)
        return ferry_fail_errno(ENOTCONN, "simulated: peer address");
    *addr_out = socket->peer;
    *addr_len_out = addr_len_of(&socket->peer);
    return FERRY_OK;
}

static void sim_socket_shutdown(struct ferry_net *table, int fd, int how)
{
    struct sim_socket *socket = sim_socket_of(table->impl, fd);

    FERRY_ASSERT(socket != NULL);
    if (socket->kind == CONNECTED && how != SHUT_RD)
        end_writing(socket->conn, socket->side);
    if (socket->kind == CONNECTED && how != SHUT_WR) {
        /* The reader sees an end at once; what the peer still sends goes nowhere. */
        struct pipe *pipe = &socket->conn->pipe[1 - socket->side];

        sim_settle(socket->conn->net, pipe);
        pipe->fin_at_ns = 0;
    }
}

static void let_go(struct sim_socket *socket, bool abort)
{
    if (socket->kind == LISTENING)
        for (uint32_t i = 0; i < socket->backlog_count; i++)
            close_side(socket->backlog[i], 1, true);
    socket->backlog_count = 0;
    if (socket->conn != NULL)
        close_side(socket->conn, socket->side, abort);
    socket->conn = NULL;
}

static void sim_socket_close(struct ferry_net *table, int fd, bool abort)
{
    struct sim_process *process = table->impl;
    struct sim_net *net = process->owner;
    struct sim_socket *socket = sim_socket_of(process, fd);

    FERRY_ASSERT(socket != NULL); /* closed twice, or never opened */
    let_go(socket, abort);
    net->sockets[fd - FD_BASE] = NULL;
    net->open_count--;
    free_socket(socket);
}

static enum ferry_status sim_socket_watch_path(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    (void)net;
    (void)fd;
    (void)timeout_ms;
    return FERRY_OK;
}

/* Here a path that has gone silent stays so, so how long it has been is the caller's to know. */
static bool sim_socket_path_dead(struct ferry_net *net, int fd, uint32_t timeout_ms)
{
    struct sim_socket *socket = sim_socket_of(net->impl, fd);

    (void)timeout_ms;
    return socket != NULL && socket->conn != NULL &&
           (socket->conn->pipe[0].stalled || socket->conn->pipe[1].stalled);
}

static const struct ferry_net_ops net_ops = {
    .open = sim_socket_open,
    .bind = sim_socket_bind,
    .listen = sim_socket_listen,
    .set_nodelay = sim_socket_set_nodelay,
    .set_buffers = sim_socket_set_buffers,
    .watch_path = sim_socket_watch_path,
    .path_dead = sim_socket_path_dead,
    .local_addr = sim_socket_local_addr,
    .peer_addr = sim_socket_peer_addr,
    .shutdown = sim_socket_shutdown,
    .close = sim_socket_close,
};

int sim_file_open(struct sim_process *process, const void *content, uint32_t size,
                  uint32_t size_max)
{
    struct sim_socket *socket = sim_make_socket(process);

    FERRY_ASSERT(size <= size_max);
    socket->kind = FILE_IN_MEMORY;
    socket->content = calloc(1, size_max > 0 ? size_max : 1);
    FERRY_ASSERT(socket->content != NULL);
    if (content != NULL)
        memcpy(socket->content, content, size);
    socket->size = size;
    socket->size_max = size_max;
    return socket->fd;
}

/* Faults by hand. */

void sim_process_kill(struct sim_process *process, bool silent)
{
    struct sim_net *net = process->owner;

    if (!process->alive)
        return;
    process->alive = false;
    net->fault_counts[silent ? SIM_FAULT_KILL_SILENT : SIM_FAULT_KILL_RESET]++;
    for (uint32_t i = 0; i < net->socket_count; i++) {
        struct sim_socket *socket = net->sockets[i];

        if (socket == NULL || socket->process != process)
            continue;
        if (silent && socket->conn != NULL) {
            socket->conn->pipe[0].stalled = true;
            socket->conn->pipe[1].stalled = true;
        }
        if (silent && socket->kind == LISTENING)
            for (uint32_t k = 0; k < socket->backlog_count; k++)
                socket->backlog[k]->pipe[1].stalled = true;
        if (socket->kind != FILE_IN_MEMORY) {
            let_go(socket, true);
            socket->kind = silent && socket->kind == LISTENING ? LOST_LISTENER : FRESH;
        }
    }
}

static struct conn *random_conn(struct sim_net *net)
{
    uint32_t count = 0;
    struct conn *chosen = NULL;

    for (struct conn *conn = net->conns; conn != NULL; conn = conn->next)
        if (!conn->closed[0] && !conn->closed[1] && sim_random_below(net, ++count) == 0)
            chosen = conn;
    return chosen;
}

bool sim_reset_one(struct sim_net *net)
{
    struct conn *conn = random_conn(net);

    if (conn == NULL)
        return false;
    net->fault_counts[SIM_FAULT_RESET]++;
    sim_reset_side(conn, 0, net->now_ns);
    sim_reset_side(conn, 1, net->now_ns);
    return true;
}

bool sim_cut_one(struct sim_net *net)
{
    struct conn *conn = random_conn(net);

    if (conn == NULL)
        return false;
    net->fault_counts[SIM_FAULT_ONE_SIDED]++;
    sim_cut_side(conn, (int)sim_random_below(net, 2));
    return true;
}

bool sim_cut_fd(struct sim_process *process, int fd)
{
    struct sim_socket *socket = fd < 0 ? NULL : sim_socket_of(process, fd);
    struct conn *conn = socket == NULL ? NULL : socket->conn;
    if (conn == NULL || conn->closed[0] || conn->closed[1])
        return false;
    conn->net->fault_counts[SIM_FAULT_ONE_SIDED]++;
    sim_cut_side(conn, socket->side);
    return true;
}

static uint32_t host_of(const struct sockaddr_storage *addr)
{
    if (addr->ss_family != AF_INET)
        return 0;
    return ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr);
}

bool sim_is_cut(const struct sim_net *net, const struct sockaddr_storage *addr)
{
    for (uint32_t i = 0; i < net->cut_count; i++) {
        if (net->cuts[i] == host_of(addr))
            return true;
    }
    return false;
}

void sim_net_cut(struct sim_net *net, uint32_t host)
{
    FERRY_ASSERT(net->cut_count < CUTS_MAX && host != 0);
    net->cuts[net->cut_count++] = host;
    net->fault_counts[SIM_FAULT_CUT]++;
    for (struct conn *conn = net->conns; conn != NULL; conn = conn->next) {
        if (host_of(&conn->addr[0]) != host && host_of(&conn->addr[1]) != host)
            continue;
        conn->pipe[0].stalled = true;
        conn->pipe[1].stalled = true;
    }
}

void sim_net_mend(struct sim_net *net, uint32_t host)
{
    for (uint32_t i = 0; i < net->cut_count; i++) {
        if (net->cuts[i] == host)
            net->cuts[i--] = net->cuts[--net->cut_count];
    }
}

bool sim_stall_one(struct sim_net *net)
{
    struct conn *conn = random_conn(net);

    if (conn == NULL)
        return false;
    net->fault_counts[SIM_FAULT_STALL]++;
    conn->pipe[sim_random_below(net, 2)].stalled = true;
    return true;
}

/* Time. */

static void consider(const struct sim_net *net, uint64_t at_ns, uint64_t *next_ns)
{
    if (at_ns > net->now_ns && at_ns < *next_ns)
        *next_ns = at_ns;
}

static uint64_t next_event_ns(const struct sim_net *net)
{
    uint64_t next_ns = FERRY_NEVER_NS;

    for (const struct conn *conn = net->conns; conn != NULL; conn = conn->next) {
        consider(net, conn->reaches_at_ns, &next_ns);
        for (int side = 0; side < 2; side++) {
            const struct pipe *pipe = &conn->pipe[side];

            consider(net, conn->reset_at_ns[side], &next_ns);
            if (pipe->stalled)
                continue;
            if (pipe->flight_count > 0)
                consider(net, pipe->flights[0].at_ns, &next_ns);
            consider(net, pipe->fin_at_ns, &next_ns);
        }
    }
    for (uint32_t i = 0; i < net->socket_count; i++)
        if (net->sockets[i] != NULL && net->sockets[i]->kind == CONNECTING)
            consider(net, net->sockets[i]->outcome_at_ns, &next_ns);
    for (uint32_t i = 0; i < net->reactor_count; i++) {
        const struct ferry_reactor *reactor = net->reactors[i];

        if (reactor->heap_len > 0)
            consider(net, reactor->heap[0]->deadline_ns, &next_ns);
    }
    return next_ns;
}

bool sim_net_advance(struct sim_net *net)
{
    uint64_t next_ns = next_event_ns(net);

    if (next_ns == FERRY_NEVER_NS)
        return false;
    net->now_ns = next_ns;
    return true;
}

void sim_net_advance_until(struct sim_net *net, uint64_t until_ns)
{
    uint64_t next_ns = next_event_ns(net);

    if (until_ns < next_ns)
        next_ns = until_ns;
    if (next_ns != FERRY_NEVER_NS && next_ns > net->now_ns)
        net->now_ns = next_ns;
}
