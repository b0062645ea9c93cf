/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers, a client worker and a server worker under load, for seconds, with drawn sizes and drawn
 * behaviour: some callers drive, some sleep on their own futex, some forbid inline jobs, some pause
 * so long that the baton goes back. Every byte that comes back is checked, every wait has a
 * deadline, so a wake-up that is lost fails the test. The seed prints; FERRY_TEST_SEED replays the
 * draws.
 */
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "base/futex.h"
#include "pattern.h"
#include "reactor/net.h"
#include "reactor/worker.h"

enum { CALLERS = 5 };

#define MESSAGE_MAX 60000
#define STUCK_NS    (20 * FERRY_NS_PER_S)

static enum ferry_reactor_kind kind_now;
static uint64_t seed_now;

/* The server's end of one connection: sends back what it receives. */
struct echo {
    struct ferry_worker *worker;
    struct ferry_io io;
    struct ferry_op recv_op;
    struct ferry_op send_op;
    uint64_t fill;
    uint64_t sent;
    unsigned char buf[8192];
};

/* The client's end, and the thread that uses it. */
struct caller {
    struct ferry_worker *worker;
    struct ferry_io io;
    struct ferry_op recv_op;
    struct ferry_op send_op;
    struct ferry_op connect_op;
    struct ferry_job job;
    struct sockaddr_storage addr;
    socklen_t addr_len;
    uint64_t len;
    uint64_t sent;
    uint64_t got;
    unsigned char out[MESSAGE_MAX];
    unsigned char in[MESSAGE_MAX];
    _Atomic uint32_t done; /* futex */
    uint64_t seed;
    uint64_t rounds;
    uint64_t drove;
    uint64_t until_ns;
};

struct server {
    struct ferry_worker *worker;
    struct ferry_io io;
    struct ferry_op accept_op;
    struct ferry_job start;
    struct ferry_job stop;
    int fd;
    uint32_t accepted;
    struct echo echoes[CALLERS];
    _Atomic uint32_t closed;
};

static void echo_recv(struct echo *echo);

static void echo_close(struct echo *echo)
{
    int fd = echo->io.fd;

    if (ferry_op_inflight(&echo->recv_op) || ferry_op_inflight(&echo->send_op))
        return;
    ferry_reactor_detach(ferry_worker_reactor(echo->worker), &echo->io);
    ferry_net_close(&ferry_net_system, fd, false);
    ferry_worker_add_duty(echo->worker, -1);
}

static void echo_send(struct echo *echo);

static void echo_sent(struct ferry_op *op, int64_t result)
{
    struct echo *echo = FERRY_CONTAINER_OF(op, struct echo, send_op);

    if (result <= 0) {
        echo_close(echo);
        return;
    }
    echo->sent += (uint64_t)result;
    if (echo->sent < echo->fill)
        echo_send(echo);
    else
        echo_recv(echo);
}

static void echo_send(struct echo *echo)
{
    echo->send_op = (struct ferry_op){.kind = FERRY_OP_SEND,
                                      .done = echo_sent,
                                      .io = &echo->io,
                                      .buf = echo->buf + echo->sent,
                                      .len = echo->fill - echo->sent};
    ferry_reactor_submit(ferry_worker_reactor(echo->worker), &echo->send_op);
}

static void echo_received(struct ferry_op *op, int64_t result)
{
    struct echo *echo = FERRY_CONTAINER_OF(op, struct echo, recv_op);

    if (result <= 0) {
        echo_close(echo);
        return;
    }
    echo->fill = (uint64_t)result;
    echo->sent = 0;
    echo_send(echo);
}

static void echo_recv(struct echo *echo)
{
    echo->recv_op = (struct ferry_op){.kind = FERRY_OP_RECV,
                                      .done = echo_received,
                                      .io = &echo->io,
                                      .buf = echo->buf,
                                      .len = sizeof(echo->buf)};
    ferry_reactor_submit(ferry_worker_reactor(echo->worker), &echo->recv_op);
}

static void server_accept(struct server *server);

static void server_accepted(struct ferry_op *op, int64_t result)
{
    struct server *server = FERRY_CONTAINER_OF(op, struct server, accept_op);

    if (result < 0) {
        ferry_reactor_detach(ferry_worker_reactor(server->worker), &server->io);
        atomic_store(&server->closed, 1);
        return;
    }
    struct echo *echo = &server->echoes[server->accepted++];
    echo->worker = server->worker;
    assert_ok(ferry_net_set_nodelay(&ferry_net_system, (int)result));
    assert_ok(ferry_reactor_attach(ferry_worker_reactor(server->worker), &echo->io, (int)result));
    ferry_worker_add_duty(server->worker, 1);
    echo_recv(echo);
    server_accept(server);
}

static void server_accept(struct server *server)
{
    server->accept_op = (struct ferry_op){
        .kind = FERRY_OP_ACCEPT, .done = server_accepted, .io = &server->io};
    ferry_reactor_submit(ferry_worker_reactor(server->worker), &server->accept_op);
}

static void server_start(struct ferry_worker *worker, struct ferry_job *job)
{
    struct server *server = FERRY_CONTAINER_OF(job, struct server, start);

    assert_ok(ferry_reactor_attach(ferry_worker_reactor(worker), &server->io, server->fd));
    server_accept(server);
}

static void server_stop(struct ferry_worker *worker, struct ferry_job *job)
{
    struct server *server = FERRY_CONTAINER_OF(job, struct server, stop);

    ferry_reactor_cancel(ferry_worker_reactor(worker), &server->accept_op);
}

static void caller_end(struct caller *caller)
{
    atomic_store(&caller->done, 1);
    ferry_futex_wake(&caller->done, 1);
}

static void caller_connected(struct ferry_op *op, int64_t result)
{
    assert_int_equal(result, 0);
    caller_end(FERRY_CONTAINER_OF(op, struct caller, connect_op));
}

static void caller_connect(struct ferry_worker *worker, struct ferry_job *job)
{
    struct caller *caller = FERRY_CONTAINER_OF(job, struct caller, job);
    int fd = -1;

    assert_ok(ferry_net_open(&ferry_net_system, AF_INET, &fd));
    assert_ok(ferry_net_set_nodelay(&ferry_net_system, fd));
    assert_ok(ferry_reactor_attach(ferry_worker_reactor(worker), &caller->io, fd));
    caller->connect_op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                           .done = caller_connected,
                                           .io = &caller->io,
                                           .addr = (struct sockaddr *)&caller->addr,
                                           .addr_len = caller->addr_len};
    ferry_reactor_submit(ferry_worker_reactor(worker), &caller->connect_op);
}

static void caller_close(struct ferry_worker *worker, struct ferry_job *job)
{
    struct caller *caller = FERRY_CONTAINER_OF(job, struct caller, job);
    int fd = caller->io.fd;

    ferry_reactor_detach(ferry_worker_reactor(worker), &caller->io);
    ferry_net_close(&ferry_net_system, fd, false);
    caller_end(caller);
}

static void caller_received(struct ferry_op *op, int64_t result)
{
    struct caller *caller = FERRY_CONTAINER_OF(op, struct caller, recv_op);

    assert_int_equal(result, caller->len);
    caller->got = (uint64_t)result;
    if (caller->sent == caller->len)
        caller_end(caller);
}

static void caller_send(struct caller *caller);

static void caller_sent(struct ferry_op *op, int64_t result)
{
    struct caller *caller = FERRY_CONTAINER_OF(op, struct caller, send_op);

    assert_true(result > 0);
    caller->sent += (uint64_t)result;
    if (caller->sent < caller->len)
        caller_send(caller);
    else if (caller->got == caller->len)
        caller_end(caller);
}

static void caller_send(struct caller *caller)
{
    caller->send_op = (struct ferry_op){.kind = FERRY_OP_SEND,
                                        .done = caller_sent,
                                        .io = &caller->io,
                                        .buf = caller->out + caller->sent,
                                        .len = caller->len - caller->sent};
    ferry_reactor_submit(ferry_worker_reactor(caller->worker), &caller->send_op);
}

static void caller_request(struct ferry_worker *worker, struct ferry_job *job)
{
    struct caller *caller = FERRY_CONTAINER_OF(job, struct caller, job);

    caller->sent = 0;
    caller->got = 0;
    caller_send(caller);
    caller->recv_op = (struct ferry_op){.kind = FERRY_OP_RECV,
                                        .done = caller_received,
                                        .io = &caller->io,
                                        .buf = caller->in,
                                        .len = caller->len,
                                        .min_bytes = caller->len};
    ferry_reactor_submit(ferry_worker_reactor(worker), &caller->recv_op);
}

static bool caller_is_done(void *arg)
{
    return atomic_load(&((struct caller *)arg)->done) != 0;
}

/* Post and wait: driving if wanted and possible, else asleep. */
static void caller_call(struct caller *caller, ferry_job_fn *run, bool inline_ok, bool drive)
{
    uint64_t stuck_ns = test_now_ns() + STUCK_NS;
    bool drove = false;

    atomic_store(&caller->done, 0);
    caller->job.run = run;
    ferry_worker_post(caller->worker, &caller->job, inline_ok);
    if (drive)
        ferry_worker_drive(caller->worker, caller_is_done, caller, stuck_ns, &drove);
    caller->drove += drove;
    while (!caller_is_done(caller)) {
        assert_true(test_now_ns() < stuck_ns); /* a lost wake-up */
        ferry_futex_wait(&caller->done, 0, stuck_ns);
    }
}

static uint64_t draw(struct caller *caller, uint64_t below)
{
    return pattern_word(caller->seed, caller->rounds * 16 + below) % below;
}

static void *caller_main(void *arg)
{
    struct caller *caller = arg;

    caller_call(caller, caller_connect, true, true);
    while (test_now_ns() < caller->until_ns) {
        caller->rounds++;
        caller->len = 1 + (draw(caller, 8) == 0 ? draw(caller, MESSAGE_MAX) : draw(caller, 3000));
        pattern_fill(caller->out, caller->len, caller->seed, caller->rounds);
        memset(caller->in, 0, caller->len);
        caller_call(caller, caller_request, draw(caller, 5) != 0, draw(caller, 4) != 0);
        assert_int_equal(pattern_differs(caller->in, caller->len, caller->seed, caller->rounds),
                         PATTERN_SAME);
        if (draw(caller, 97) == 0)
            test_nap(); /* about a park time */
    }
    caller_call(caller, caller_close, true, false);
    return NULL;
}

static struct ferry_worker *open_worker(const char *name, enum ferry_wait_mode wait,
                                        struct ferry_spin_budget *budget)
{
    struct ferry_worker_options options = {
        .name = name, .reactor.kind = kind_now, .wait = wait, .spin_us = 20, .budget = budget};
    struct ferry_worker *worker = NULL;

    assert_ok(ferry_worker_open(&options, &worker));
    return worker;
}

static void stress(enum ferry_wait_mode wait, uint32_t caller_count, uint64_t ms)
{
    struct ferry_spin_budget budget = {.spinning_max = 1};
    struct sockaddr_in loopback = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static struct server server;
    static struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    uint64_t rounds = 0;
    uint64_t drove = 0;

    memset(&server, 0, sizeof(server));
    memset(callers, 0, sizeof(callers));
    server.worker = open_worker("server", wait, &budget);
    assert_ok(ferry_net_open(&ferry_net_system, AF_INET, &server.fd));
    assert_ok(ferry_net_listen(&ferry_net_system, server.fd, (struct sockaddr *)&loopback,
                               sizeof(loopback)));
    server.start.run = server_start;
    ferry_worker_post(server.worker, &server.start, true);

    struct ferry_worker *client = open_worker("client", wait, &budget);
    for (uint32_t i = 0; i < caller_count; i++) {
        callers[i].worker = client;
        callers[i].seed = seed_now + i;
        callers[i].until_ns = test_deadline_ms(ms);
        assert_ok(ferry_net_local_addr(&ferry_net_system, server.fd, &callers[i].addr,
                                       &callers[i].addr_len));
        assert_int_equal(pthread_create(&threads[i], NULL, caller_main, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < caller_count; i++) {
        pthread_join(threads[i], NULL);
        assert_true(callers[i].rounds > 0);
        rounds += callers[i].rounds;
        drove += callers[i].drove;
    }
    ferry_worker_close(client);
    server.stop.run = server_stop;
    ferry_worker_post(server.worker, &server.stop, true);
    assert_within_ms(atomic_load(&server.closed) == 1, 20000);
    ferry_worker_close(server.worker);
    ferry_net_close(&ferry_net_system, server.fd, false);
    assert_int_equal(atomic_load(&budget.spinning), 0);
    print_message("%u callers: %llu calls, %llu driven by their caller\n", caller_count,
                  (unsigned long long)rounds, (unsigned long long)drove);
}

static void test_one_caller(void **state)
{
    (void)state;
    uint64_t ms = test_is_long() ? 20000 : 400;

    stress(FERRY_WAIT_SLEEP, 1, ms);
    stress(FERRY_WAIT_ADAPTIVE, 1, ms);
}

static void test_two_callers(void **state)
{
    (void)state;
    uint64_t ms = test_is_long() ? 20000 : 400;

    stress(FERRY_WAIT_SLEEP, 2, ms);
    stress(FERRY_WAIT_ADAPTIVE, 2, ms);
}

static void test_many_callers(void **state)
{
    (void)state;
    uint64_t ms = test_is_long() ? 60000 : 800;

    stress(FERRY_WAIT_SLEEP, CALLERS, ms);
    stress(FERRY_WAIT_ADAPTIVE, CALLERS, ms);
    stress(FERRY_WAIT_SPIN, CALLERS, ms / 4);
}

static const struct CMUnitTest stress_tests[] = {
    cmocka_unit_test(test_one_caller),
    cmocka_unit_test(test_two_callers),
    cmocka_unit_test(test_many_callers),
};

int main(void)
{
    int failed = 0;

    seed_now = test_seed(test_now_ns());
    print_message("seed %llu\n", (unsigned long long)seed_now);
    for (int kind = FERRY_REACTOR_URING; kind <= FERRY_REACTOR_EPOLL; kind++) {
        struct ferry_reactor_options options = {.kind = (enum ferry_reactor_kind)kind};
        struct ferry_reactor *reactor = NULL;

        kind_now = (enum ferry_reactor_kind)kind;
        if (ferry_reactor_open(&options, &reactor) != FERRY_OK) {
            print_message("NOT PROVED: reactor kind %d: %s\n", kind, ferry_last_error_text());
            continue;
        }
        ferry_reactor_close(reactor);
        failed += cmocka_run_group_tests_name(kind == FERRY_REACTOR_URING ? "uring" : "epoll",
                                              stress_tests, NULL, NULL);
    }
    return failed;
}
