/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig of reactor_rig.h. One thread. Every wait has a deadline on the rig's own clock.
 */
#include "contract/reactor_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "sim/reactor_sim.h"
#include "support/certificate.h"

enum rig_kind rig_kind_now;

const char *rig_kind_name(enum rig_kind kind)
{
    static const char *const names[] = {"uring", "epoll", "sim", "uring through TLS",
                                        "epoll through TLS"};

    return names[kind];
}

static bool is_available(enum rig_kind kind)
{
    struct ferry_reactor_options options = {.kind = FERRY_REACTOR_URING};
    struct ferry_reactor *reactor = NULL;

    if (kind != RIG_URING && kind != RIG_URING_TLS)
        return true;
    if (ferry_reactor_open(&options, &reactor) != FERRY_OK) {
        print_message("NOT PROVED: uring: %s\n", ferry_last_error_text());
        return false;
    }
    ferry_reactor_close(reactor);
    return true;
}

static void rig_open_tls(struct rig *rig)
{
    const struct test_certificate *made = test_certificate();
    struct ferry_tls_options options;

    assert_non_null(made);
    options = (struct ferry_tls_options){
        .cert = made->cert, .key = made->key, .ca = made->cert, .verify_names = true};
    assert_ok(ferry_tls_open(&options, &rig->tls));
}

int rig_setup(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct ferry_reactor_options options = {0};

    if (rig == NULL)
        return -1;
    rig->kind = rig_kind_now;
    rig->clock = &ferry_clock_system;
    rig->net = &ferry_net_system;
    if (rig->kind == RIG_SIM) {
        struct sim_options sim = {.seed = test_seed(1)};

        sim.chance[SIM_FAULT_SHORT_SEND] = 200000;
        sim.chance[SIM_FAULT_SHORT_RECV] = 200000;
        rig->sim = sim_net_create(&sim);
        rig->process = sim_process_start(rig->sim);
        rig->clock = sim_process_clock(rig->process);
        rig->net = sim_process_net(rig->process);
        options.clock = rig->clock;
        assert_ok(ferry_reactor_open_with(&sim_reactor_ops, &options, &rig->reactor));
    } else {
        bool uring = rig->kind == RIG_URING || rig->kind == RIG_URING_TLS;

        options.kind = uring ? FERRY_REACTOR_URING : FERRY_REACTOR_EPOLL;
        assert_ok(ferry_reactor_open(&options, &rig->reactor));
    }
    assert_int_equal(strncmp(rig_kind_name(rig->kind), ferry_reactor_name(rig->reactor),
                             strlen(ferry_reactor_name(rig->reactor))),
                     0);
    if (rig->kind >= RIG_URING_TLS)
        rig_open_tls(rig);
    *state = rig;
    return 0;
}

int rig_teardown(void **state)
{
    struct rig *rig = *state;

    if (rig == NULL)
        return 0;
    ferry_reactor_close(rig->reactor);
    ferry_tls_close(rig->tls);
    if (rig->sim != NULL) {
        assert_int_equal(sim_open_sockets(rig->sim), 0);
        sim_net_destroy(rig->sim);
    }
    free(rig);
    return 0;
}

uint64_t rig_now_ns(const struct rig *rig)
{
    return ferry_now_ns(rig->clock);
}

void rig_turn(struct rig *rig)
{
    ferry_reactor_turn(rig->reactor, rig_now_ns(rig) + 10 * FERRY_NS_PER_MS);
}

void rig_count_done(struct ferry_op *op, int64_t result)
{
    struct rig_op *rig_op = (struct rig_op *)(void *)op;

    rig_op->calls++;
    rig_op->result = result;
}

void rig_submit(struct rig *rig, struct rig_op *op)
{
    op->op.done = rig_count_done;
    op->calls = 0;
    ferry_reactor_submit(rig->reactor, &op->op);
    assert_int_equal(op->calls, 0); /* never inside the call that submits */
    assert_true(ferry_op_inflight(&op->op));
}

int64_t rig_finish(struct rig *rig, struct rig_op *op)
{
    uint64_t give_up_ns = rig_now_ns(rig) + RIG_WAIT_NS;

    while (op->calls == 0) {
        if (rig_now_ns(rig) > give_up_ns)
            fail_msg("op of kind %d did not complete", (int)op->op.kind);
        rig_turn(rig);
    }
    assert_int_equal(op->calls, 1);
    assert_false(ferry_op_inflight(&op->op));
    return op->result;
}

void rig_expect_pending(struct rig *rig, struct rig_op *op)
{
    for (int i = 0; i < 5; i++) {
        ferry_reactor_turn(rig->reactor, rig_now_ns(rig) + FERRY_NS_PER_MS);
        assert_int_equal(op->calls, 0);
    }
    assert_true(ferry_op_inflight(&op->op));
}

void rig_recv(struct rig *rig, struct rig_op *op, struct ferry_io *io, void *buf, uint64_t len,
              uint64_t min_bytes)
{
    op->op = (struct ferry_op){
        .kind = FERRY_OP_RECV, .io = io, .buf = buf, .len = len, .min_bytes = min_bytes};
    rig_submit(rig, op);
}

void rig_send(struct rig *rig, struct rig_op *op, struct ferry_io *io, const void *buf,
              uint64_t len)
{
    op->op = (struct ferry_op){
        .kind = FERRY_OP_SEND, .io = io, .buf = (void *)(uintptr_t)buf, .len = len};
    rig_submit(rig, op);
}

void rig_send_all(struct rig *rig, struct ferry_io *io, const void *buf, uint64_t len)
{
    for (uint64_t sent = 0; sent < len;) {
        struct rig_op op;

        rig_send(rig, &op, io, (const char *)buf + sent, len - sent);
        int64_t result = rig_finish(rig, &op);
        assert_true(result > 0);
        sent += (uint64_t)result;
    }
}

int rig_listen(struct rig *rig, struct sockaddr_storage *addr_out, socklen_t *addr_len_out)
{
    struct sockaddr_in loopback = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = -1;

    assert_ok(ferry_net_open(rig->net, AF_INET, &fd));
    assert_ok(ferry_net_listen(rig->net, fd, (struct sockaddr *)&loopback, sizeof(loopback)));
    assert_ok(ferry_net_local_addr(rig->net, fd, addr_out, addr_len_out));
    return fd;
}

static void rig_secure_pair(struct rig *rig, struct rig_pair *pair)
{
    struct ferry_tls_handshake handshakes[2];
    struct rig_op ops[2];

    for (int i = 0; i < 2; i++) {
        handshakes[i] = (struct ferry_tls_handshake){
            .tls = rig->tls, .initiator = i == 0, .host = "127.0.0.1"};
        ops[i] = (struct rig_op){.op = {.io = &pair->io[i], .done = rig_count_done}};
        ferry_tls_submit(rig->reactor, &ops[i].op, &handshakes[i]);
        assert_int_equal(ops[i].calls, 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_finish(rig, &ops[i]), 0);
        assert_string_equal(handshakes[i].trouble, "");
        assert_false(handshakes[i].kernel);
    }
}

void rig_connect_pair(struct rig *rig, struct rig_pair *pair)
{
    struct sockaddr_storage addr;
    socklen_t addr_len;
    struct rig_op accept_op = {0};
    struct rig_op connect_op = {0};

    memset(pair, 0, sizeof(*pair));
    pair->listen_fd = rig_listen(rig, &addr, &addr_len);
    assert_ok(ferry_reactor_attach(rig->reactor, &pair->listen_io, pair->listen_fd));
    assert_ok(ferry_net_open(rig->net, AF_INET, &pair->fd[0]));
    assert_ok(ferry_net_set_nodelay(rig->net, pair->fd[0]));
    assert_ok(ferry_reactor_attach(rig->reactor, &pair->io[0], pair->fd[0]));

    accept_op.op = (struct ferry_op){.kind = FERRY_OP_ACCEPT, .io = &pair->listen_io};
    rig_submit(rig, &accept_op);
    connect_op.op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                      .io = &pair->io[0],
                                      .addr = (struct sockaddr *)&addr,
                                      .addr_len = addr_len};
    rig_submit(rig, &connect_op);
    assert_int_equal(rig_finish(rig, &connect_op), 0);
    pair->fd[1] = (int)rig_finish(rig, &accept_op);
    assert_true(pair->fd[1] >= 0);
    assert_ok(ferry_reactor_attach(rig->reactor, &pair->io[1], pair->fd[1]));
    assert_ok(ferry_net_set_nodelay(rig->net, pair->fd[1]));
    if (rig->tls != NULL)
        rig_secure_pair(rig, pair);
}

void rig_close_side(struct rig *rig, struct rig_pair *pair, int side, bool abort)
{
    if (pair->fd[side] < 0)
        return;
    ferry_reactor_detach(rig->reactor, &pair->io[side]);
    ferry_net_close(rig->net, pair->fd[side], abort);
    pair->fd[side] = -1;
}

void rig_close_pair(struct rig *rig, struct rig_pair *pair)
{
    rig_close_side(rig, pair, 0, false);
    rig_close_side(rig, pair, 1, false);
    ferry_reactor_detach(rig->reactor, &pair->listen_io);
    ferry_net_close(rig->net, pair->listen_fd, false);
}

static int run_kinds(const struct CMUnitTest *tests, size_t count, int first, int last)
{
    int failed = 0;

    for (int kind = first; kind <= last; kind++) {
        if (!is_available((enum rig_kind)kind))
            continue;
        rig_kind_now = (enum rig_kind)kind;
        failed += _cmocka_run_group_tests(rig_kind_name(rig_kind_now), tests, count, NULL, NULL);
    }
    return failed;
}

int rig_run_on_all(const struct CMUnitTest *tests, size_t count)
{
    return run_kinds(tests, count, RIG_URING, RIG_SIM);
}

int rig_run_on_tls(const struct CMUnitTest *tests, size_t count)
{
    return run_kinds(tests, count, RIG_URING_TLS, RIG_EPOLL_TLS);
}
