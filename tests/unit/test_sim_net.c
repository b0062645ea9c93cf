/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated network itself: same seed, same schedule; faults do what their names say and are
 * counted; bytes arrive in order whatever the delays; a schedule costs microseconds.
 */
#include "test.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/compiler.h"
#include "pattern.h"
#include "sim/reactor_sim.h"

struct end {
    struct sim_process *process;
    struct ferry_reactor *reactor;
    struct ferry_io io;
    struct ferry_op recv_op;
    struct ferry_op send_op;
    int fd;
    int64_t recv_result;
    int64_t send_result;
    uint32_t recv_calls;
    uint32_t send_calls;
};

struct world {
    struct sim_net *net;
    struct end client;
    struct end server;
    struct ferry_io listen_io;
    struct ferry_op accept_op;
    struct ferry_op connect_op;
    struct sockaddr_in addr;
    int listen_fd;
    int64_t accepted;
    int64_t connected;
    uint32_t calls;
};

static struct world world;

static void accepted(struct ferry_op *op, int64_t result)
{
    (void)op;
    world.accepted = result;
    world.calls++;
}

static void connected(struct ferry_op *op, int64_t result)
{
    (void)op;
    world.connected = result;
    world.calls++;
}

static void received(struct ferry_op *op, int64_t result)
{
    struct end *end = FERRY_CONTAINER_OF(op, struct end, recv_op);

    end->recv_result = result;
    end->recv_calls++;
}

static void sent(struct ferry_op *op, int64_t result)
{
    struct end *end = FERRY_CONTAINER_OF(op, struct end, send_op);

    end->send_result = result;
    end->send_calls++;
}

static void open_end(struct end *end)
{
    end->process = sim_process_start(world.net);
    struct ferry_reactor_options options = {.clock = sim_process_clock(end->process)};

    assert_ok(ferry_reactor_open_with(&sim_reactor_ops, &options, &end->reactor));
    end->fd = -1;
}

/* Everybody's turn; then time. False when nothing will ever happen. */
static bool step(void)
{
    uint32_t delivered = ferry_reactor_turn(world.client.reactor, 0);

    delivered += ferry_reactor_turn(world.server.reactor, 0);
    return delivered > 0 || sim_net_advance(world.net);
}

static void run_dry(void)
{
    for (int i = 0; i < 100000; i++)
        if (!step())
            return;
    fail_msg("the network never comes to rest");
}

static void begin(const struct sim_options *options)
{
    memset(&world, 0, sizeof(world));
    world.net = sim_net_create(options);
    world.accepted = world.connected = INT64_MIN;
    open_end(&world.client);
    open_end(&world.server);
    struct ferry_net *net = sim_process_net(world.server.process);
    struct sockaddr_storage addr;
    socklen_t addr_len;

    world.addr.sin_family = AF_INET;
    world.addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_ok(ferry_net_open(net, AF_INET, &world.listen_fd));
    assert_ok(
        ferry_net_listen(net, world.listen_fd, (struct sockaddr *)&world.addr, sizeof(world.addr)));
    assert_ok(ferry_net_local_addr(net, world.listen_fd, &addr, &addr_len));
    memcpy(&world.addr, &addr, sizeof(world.addr));
    assert_true(world.addr.sin_port != 0);
    assert_ok(ferry_reactor_attach(world.server.reactor, &world.listen_io, world.listen_fd));
}

static void start_connect(void)
{
    world.accept_op = (struct ferry_op){
        .kind = FERRY_OP_ACCEPT, .done = accepted, .io = &world.listen_io};
    ferry_reactor_submit(world.server.reactor, &world.accept_op);
    assert_ok(ferry_net_open(sim_process_net(world.client.process), AF_INET, &world.client.fd));
    assert_ok(ferry_reactor_attach(world.client.reactor, &world.client.io, world.client.fd));
    world.connect_op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                         .done = connected,
                                         .io = &world.client.io,
                                         .addr = (struct sockaddr *)&world.addr,
                                         .addr_len = sizeof(world.addr)};
    ferry_reactor_submit(world.client.reactor, &world.connect_op);
}

static void connect_ends(void)
{
    start_connect();
    run_dry();
    assert_int_equal(world.connected, 0);
    assert_true(world.accepted >= 0);
    world.server.fd = (int)world.accepted;
    assert_ok(ferry_reactor_attach(world.server.reactor, &world.server.io, world.server.fd));
}

static void recv_some(struct end *end, void *buf, uint64_t len, uint64_t min_bytes)
{
    end->recv_calls = 0;
    end->recv_op = (struct ferry_op){.kind = FERRY_OP_RECV,
                                     .done = received,
                                     .io = &end->io,
                                     .buf = buf,
                                     .len = len,
                                     .min_bytes = min_bytes};
    ferry_reactor_submit(end->reactor, &end->recv_op);
}

static void send_some(struct end *end, void *buf, uint64_t len)
{
    end->send_calls = 0;
    end->send_op = (struct ferry_op){
        .kind = FERRY_OP_SEND, .done = sent, .io = &end->io, .buf = buf, .len = len};
    ferry_reactor_submit(end->reactor, &end->send_op);
}

static void stop(struct end *end, struct ferry_op *op)
{
    ferry_reactor_cancel(end->reactor, op);
    for (int i = 0; i < 1000 && ferry_op_inflight(op); i++)
        ferry_reactor_turn(end->reactor, 0);
    assert_false(ferry_op_inflight(op));
}

static void close_end(struct end *end)
{
    stop(end, &end->recv_op);
    stop(end, &end->send_op);
    if (end->fd >= 0) {
        ferry_reactor_detach(end->reactor, &end->io);
        ferry_net_close(sim_process_net(end->process), end->fd, false);
    }
    ferry_reactor_close(end->reactor);
}

static void finish(void)
{
    stop(&world.server, &world.accept_op);
    stop(&world.client, &world.connect_op);
    ferry_reactor_detach(world.server.reactor, &world.listen_io);
    ferry_net_close(sim_process_net(world.server.process), world.listen_fd, false);
    close_end(&world.client);
    close_end(&world.server);
    assert_int_equal(sim_open_sockets(world.net), 0);
    sim_net_destroy(world.net);
}

/* Sends a few KiB each way; returns a digest of every result and its time. */
static uint64_t exchange(uint64_t seed)
{
    struct sim_options options = {.seed = seed, .buffer_bytes = 2048};
    static unsigned char out[6000], in[6000];
    uint64_t digest = seed;
    uint64_t sent_bytes = 0;
    uint64_t got = 0;

    options.chance[SIM_FAULT_SHORT_SEND] = 300000;
    options.chance[SIM_FAULT_SHORT_RECV] = 300000;
    options.chance[SIM_FAULT_DELAY] = 50000;
    begin(&options);
    connect_ends();
    pattern_fill(out, sizeof(out), seed, 0);
    memset(in, 0, sizeof(in));
    while (got < sizeof(in)) {
        if (!ferry_op_inflight(&world.client.send_op) && sent_bytes < sizeof(out)) {
            if (world.client.send_calls > 0)
                sent_bytes += (uint64_t)world.client.send_result;
            if (sent_bytes < sizeof(out))
                send_some(&world.client, out + sent_bytes, sizeof(out) - sent_bytes);
        }
        if (!ferry_op_inflight(&world.server.recv_op)) {
            if (world.server.recv_calls > 0) {
                assert_true(world.server.recv_result > 0);
                got += (uint64_t)world.server.recv_result;
            }
            if (got < sizeof(in))
                recv_some(&world.server, in + got, sizeof(in) - got, 1);
        }
        digest = pattern_word(digest ^ got, sim_net_now_ns(world.net) + sent_bytes);
        assert_true(got == sizeof(in) || step());
    }
    assert_int_equal(pattern_differs(in, sizeof(in), seed, 0), PATTERN_SAME);
    finish();
    return digest;
}

static void test_the_same_seed_gives_the_same_schedule(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 200; seed++)
        assert_true(exchange(seed) == exchange(seed));
    assert_true(exchange(1) != exchange(2));
}

static void test_schedules_are_cheap(void **state)
{
    (void)state;
    uint64_t count = test_is_long() ? 100000 : 2000;
    uint64_t before_ns = test_now_ns();

    for (uint64_t seed = 0; seed < count; seed++)
        exchange(seed);
    print_message("%llu ns for a connection with 6 KB in small pieces\n",
                  (unsigned long long)((test_now_ns() - before_ns) / count));
}

static void test_refused_and_unanswered_connects(void **state)
{
    (void)state;
    struct sim_options options = {.seed = 4};

    options.chance[SIM_FAULT_REFUSE] = 1000000;
    begin(&options);
    start_connect();
    run_dry();
    assert_int_equal(world.connected, -ECONNREFUSED);
    assert_int_equal(sim_fault_count(world.net, SIM_FAULT_REFUSE), 1);
    finish();

    options = (struct sim_options){.seed = 4};
    options.chance[SIM_FAULT_SYN_DROP] = 1000000;
    begin(&options);
    start_connect();
    run_dry();
    assert_int_equal(world.calls, 0);
    assert_string_equal(sim_fault_name(SIM_FAULT_SYN_DROP), "syn_drop");
    assert_int_equal(sim_fault_count(world.net, SIM_FAULT_SYN_DROP), 1);
    finish();
}

static void test_a_reset_ends_both_sides(void **state)
{
    (void)state;
    unsigned char a[8], b[8];

    begin(&(struct sim_options){.seed = 5});
    assert_false(sim_reset_one(world.net));
    connect_ends();
    recv_some(&world.client, a, 8, 8);
    recv_some(&world.server, b, 8, 8);
    assert_true(sim_reset_one(world.net));
    run_dry();
    assert_int_equal(world.client.recv_result, -ECONNRESET);
    assert_int_equal(world.server.recv_result, -ECONNRESET);
    finish();
}

/* Silence: what was sent does not arrive, the sender notices nothing until its buffer is full. */
static void test_a_stall_is_silent_and_fills_the_buffer(void **state)
{
    (void)state;
    static unsigned char out[4096], in[2][4096];

    begin(&(struct sim_options){.seed = 6, .buffer_bytes = 4096});
    connect_ends();
    assert_true(sim_stall_one(world.net));
    recv_some(&world.client, in[0], 4096, 1);
    recv_some(&world.server, in[1], 4096, 1);
    send_some(&world.client, out, 4096);
    send_some(&world.server, out, 4096);
    run_dry();
    assert_int_equal(world.client.send_result, 4096);
    assert_int_equal(world.server.send_result, 4096);
    assert_int_equal(world.client.recv_calls + world.server.recv_calls, 1);
    struct end *writer = world.client.recv_calls == 1 ? &world.client : &world.server;
    send_some(writer, out, 1);
    run_dry();
    assert_int_equal(writer->send_calls, 0);
    finish();
}

static void test_death_with_and_without_a_word(void **state)
{
    (void)state;
    for (int silent = 0; silent < 2; silent++) {
        unsigned char buf[8];

        begin(&(struct sim_options){.seed = 7});
        connect_ends();
        recv_some(&world.client, buf, 8, 8);
        sim_process_kill(world.server.process, silent != 0);
        assert_false(sim_process_alive(world.server.process));
        run_dry();
        assert_int_equal(world.client.recv_calls, silent != 0 ? 0 : 1);
        if (silent == 0)
            assert_int_equal(world.client.recv_result, -ECONNRESET);
        /* What the dead process still has open fails, so that its owner can tidy up. */
        recv_some(&world.server, buf, 8, 8);
        run_dry();
        assert_int_equal(world.server.recv_result, -ECONNRESET);

        /* Its port: refused by a kernel that is alive, no answer from a host that is not. */
        stop(&world.client, &world.client.recv_op);
        ferry_reactor_detach(world.client.reactor, &world.client.io);
        ferry_net_close(sim_process_net(world.client.process), world.client.fd, false);
        world.calls = 0;
        stop(&world.server, &world.accept_op);
        world.connected = 1;
        start_connect();
        run_dry();
        assert_int_equal(world.connected, silent != 0 ? 1 : -ECONNREFUSED);
        finish();
    }
}

static void test_a_restart_takes_the_port_over(void **state)
{
    (void)state;
    struct sockaddr_in addr;
    int fd;

    begin(&(struct sim_options){.seed = 8});
    addr = world.addr;
    sim_process_kill(world.server.process, false);
    struct ferry_net *net = sim_process_net(sim_process_start(world.net));
    assert_ok(ferry_net_open(net, AF_INET, &fd));
    assert_ok(ferry_net_listen(net, fd, (struct sockaddr *)&addr, sizeof(addr)));
    int second;
    assert_ok(ferry_net_open(net, AF_INET, &second));
    assert_true(ferry_net_listen(net, second, (struct sockaddr *)&addr, sizeof(addr)) != FERRY_OK);
    ferry_net_close(net, fd, false);
    ferry_net_close(net, second, false);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_seed_gives_the_same_schedule),
        cmocka_unit_test(test_schedules_are_cheap),
        cmocka_unit_test(test_refused_and_unanswered_connects),
        cmocka_unit_test(test_a_reset_ends_both_sides),
        cmocka_unit_test(test_a_stall_is_silent_and_fills_the_buffer),
        cmocka_unit_test(test_death_with_and_without_a_word),
        cmocka_unit_test(test_a_restart_takes_the_port_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
