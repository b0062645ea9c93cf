/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's contract beside streams: descriptors, accept and connect, files, waking and
 * sleeping, on io_uring, epoll and the simulation. One thread, except where waking is tested.
 */
#include "contract/reactor_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pattern.h"
#include "sim/reactor_sim.h"

#define FDS_LOOKED_AT 256
static bool open_before_tests[FDS_LOOKED_AT];

static void test_new_descriptors_are_close_on_exec_and_nonblocking(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;

    rig_connect_pair(rig, &pair);
    if (rig->kind != RIG_SIM) {
        const int fds[] = {pair.listen_fd, pair.fd[0], pair.fd[1]};

        for (size_t i = 0; i < 3; i++) {
            assert_true((fcntl(fds[i], F_GETFD) & FD_CLOEXEC) != 0);
            assert_true((fcntl(fds[i], F_GETFL) & O_NONBLOCK) != 0);
        }
        /* The reactor's own descriptors too; what was open before is the environment's. */
        for (int fd = 0; fd < FDS_LOOKED_AT; fd++)
            assert_true(open_before_tests[fd] || fcntl(fd, F_GETFD) < 0 ||
                        (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    rig_close_pair(rig, &pair);
}

static void test_attach_makes_a_blocking_descriptor_nonblocking(void **state)
{
    struct rig *rig = *state;
    struct ferry_io io = {0};
    int fds[2];

    if (rig->kind == RIG_SIM)
        test_skip(RIG_SIM_LACKS);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_ok(ferry_reactor_attach(rig->reactor, &io, fds[0]));
    assert_true((fcntl(fds[0], F_GETFL) & O_NONBLOCK) != 0);
    ferry_reactor_detach(rig->reactor, &io);
    close(fds[0]);
    close(fds[1]);
}

/* Field reports tell of accept loops that spin when descriptors run out: it is one result, once. */
static void test_accept_without_descriptors_is_a_result(void **state)
{
    struct rig *rig = *state;
    struct sockaddr_storage addr;
    socklen_t addr_len;
    struct ferry_io listen_io = {0};
    struct ferry_io connect_io = {0};
    struct rig_op accept_op = {0};
    struct rig_op connect_op = {0};
    struct rlimit before;
    int fd = -1;

    int listen_fd = rig_listen(rig, &addr, &addr_len);
    assert_ok(ferry_reactor_attach(rig->reactor, &listen_io, listen_fd));
    assert_ok(ferry_net_open(rig->net, AF_INET, &fd));
    assert_ok(ferry_reactor_attach(rig->reactor, &connect_io, fd));
    connect_op.op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                      .io = &connect_io,
                                      .addr = (struct sockaddr *)&addr,
                                      .addr_len = addr_len};
    rig_submit(rig, &connect_op);
    assert_int_equal(rig_finish(rig, &connect_op), 0);

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (rig->kind == RIG_SIM) {
        sim_net_set_chance(rig->sim, SIM_FAULT_EMFILE, 1000000);
    } else {
        struct rlimit none = {.rlim_cur = 3, .rlim_max = before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    for (int i = 0; i < 2; i++) {
        accept_op.op = (struct ferry_op){.kind = FERRY_OP_ACCEPT, .io = &listen_io};
        rig_submit(rig, &accept_op);
        int64_t result = rig_finish(rig, &accept_op);
        assert_int_equal(result, -EMFILE);
    }
    setrlimit(RLIMIT_NOFILE, &before);
    if (rig->kind == RIG_SIM)
        sim_net_set_chance(rig->sim, SIM_FAULT_EMFILE, 0);
    accept_op.op = (struct ferry_op){.kind = FERRY_OP_ACCEPT, .io = &listen_io};
    rig_submit(rig, &accept_op);
    int64_t accepted = rig_finish(rig, &accept_op);
    assert_true(accepted >= 0);

    ferry_net_close(rig->net, (int)accepted, false);
    ferry_reactor_detach(rig->reactor, &listen_io);
    ferry_reactor_detach(rig->reactor, &connect_io);
    ferry_net_close(rig->net, listen_fd, false);
    ferry_net_close(rig->net, fd, false);
}

static void test_connect_to_nobody_is_refused(void **state)
{
    struct rig *rig = *state;
    struct sockaddr_storage addr;
    socklen_t addr_len;
    struct ferry_io io = {0};
    struct rig_op connect_op = {0};
    int fd = -1;

    int listen_fd = rig_listen(rig, &addr, &addr_len); /* a port that is free for certain */
    ferry_net_close(rig->net, listen_fd, false);
    assert_ok(ferry_net_open(rig->net, AF_INET, &fd));
    assert_ok(ferry_reactor_attach(rig->reactor, &io, fd));
    connect_op.op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                      .io = &io,
                                      .addr = (struct sockaddr *)&addr,
                                      .addr_len = addr_len};
    rig_submit(rig, &connect_op);
    assert_int_equal(rig_finish(rig, &connect_op), -ECONNREFUSED);
    ferry_reactor_detach(rig->reactor, &io);
    ferry_net_close(rig->net, fd, false);
}

/* A connect that nobody answers, and its cancel. 192.0.2.0/24 is for documentation: no answer. */
static void test_connect_without_answer_can_be_canceled(void **state)
{
    struct rig *rig = *state;
    struct sockaddr_storage addr;
    socklen_t addr_len;
    struct ferry_io io = {0};
    struct rig_op connect_op = {0};
    int fd = -1;

    if (rig->kind != RIG_SIM)
        test_skip("needs a network that drops; the scenario with namespaces has one");
    sim_net_set_chance(rig->sim, SIM_FAULT_SYN_DROP, 1000000);
    int listen_fd = rig_listen(rig, &addr, &addr_len);
    assert_ok(ferry_net_open(rig->net, AF_INET, &fd));
    assert_ok(ferry_reactor_attach(rig->reactor, &io, fd));
    connect_op.op = (struct ferry_op){.kind = FERRY_OP_CONNECT,
                                      .io = &io,
                                      .addr = (struct sockaddr *)&addr,
                                      .addr_len = addr_len};
    rig_submit(rig, &connect_op);
    rig_expect_pending(rig, &connect_op);
    ferry_reactor_cancel(rig->reactor, &connect_op.op);
    assert_int_equal(rig_finish(rig, &connect_op), -ECANCELED);
    ferry_reactor_detach(rig->reactor, &io);
    ferry_net_close(rig->net, fd, false);
    ferry_net_close(rig->net, listen_fd, false);
}

/* A descriptor number lives on in the next socket; nothing of the old one may reach it. */
static void test_a_reopened_descriptor_starts_clean(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char buf[16];

    for (int round = 0; round < 50; round++) {
        rig_connect_pair(rig, &pair);
        rig_send_all(rig, &pair.io[0], "left unread", 11); /* an event that nobody collects */
        rig_close_pair(rig, &pair);
        rig_connect_pair(rig, &pair);
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 5);
        ferry_reactor_turn(rig->reactor, 0);
        assert_int_equal(recv_op.calls, 0);
        rig_send_all(rig, &pair.io[0], "fresh", 5);
        assert_int_equal(rig_finish(rig, &recv_op), 5);
        assert_memory_equal(buf, "fresh", 5);
        rig_close_pair(rig, &pair);
    }
}

/* Two ops are due in one turn; the first callback cancels, ends and closes the other's socket. */
struct closer {
    struct rig *rig;
    struct rig_pair *pair;
    struct ferry_op op;
    struct ferry_op other;
    unsigned char buf[8];
    unsigned char other_buf[8];
    uint32_t calls, other_calls;
};

static void closer_other_done(struct ferry_op *op, int64_t result)
{
    struct closer *c = FERRY_CONTAINER_OF(op, struct closer, other);

    c->other_calls++;
    assert_true((result > 0 && result <= 8) || result == -ECANCELED);
    rig_close_side(c->rig, &c->pair[1], 1, false);
}

static void closer_done(struct ferry_op *op, int64_t result)
{
    struct closer *c = FERRY_CONTAINER_OF(op, struct closer, op);

    assert_int_equal(result, 8);
    c->calls++;
    ferry_reactor_cancel(c->rig->reactor, &c->other);
    rig_close_side(c->rig, &c->pair[0], 1, false);
}

static void test_callbacks_may_cancel_and_close_their_neighbours(void **state)
{
    struct rig *rig = *state;

    for (int round = 0; round < 20; round++) {
        struct rig_pair pair[2];
        struct closer c = {.rig = rig, .pair = pair};
        uint64_t give_up_ns = rig_now_ns(rig) + RIG_WAIT_NS;

        rig_connect_pair(rig, &pair[0]);
        rig_connect_pair(rig, &pair[1]);
        c.op = (struct ferry_op){.kind = FERRY_OP_RECV,
                                 .done = closer_done,
                                 .io = &pair[0].io[1],
                                 .buf = c.buf,
                                 .len = 8,
                                 .min_bytes = 8};
        c.other = c.op;
        c.other.done = closer_other_done;
        c.other.io = &pair[1].io[1];
        c.other.buf = c.other_buf;
        ferry_reactor_submit(rig->reactor, &c.op);
        ferry_reactor_submit(rig->reactor, &c.other);
        rig_send_all(rig, &pair[1].io[0], "neighbor", 8);
        if (c.other_calls == 0)
            rig_send_all(rig, &pair[0].io[0], "neighbor", 8);
        else
            ferry_reactor_cancel(rig->reactor, &c.op);
        if (c.other_calls > 0 && c.calls == 0) {
            /* It was faster: end the first by its data then. */
            rig_send_all(rig, &pair[0].io[0], "neighbor", 8);
        }
        while (c.other_calls == 0 || (c.calls == 0 && ferry_op_inflight(&c.op))) {
            assert_true(rig_now_ns(rig) < give_up_ns);
            rig_turn(rig);
        }
        rig_turn(rig);
        assert_int_equal(c.other_calls, 1);
        rig_close_pair(rig, &pair[0]);
        rig_close_pair(rig, &pair[1]);
    }
}

static int make_file(struct rig *rig, const void *content, uint32_t size)
{
    if (rig->kind == RIG_SIM)
        return sim_file_open(rig->process, content, size, 1u << 20);

    int fd = memfd_create("reactor", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, size), size);
    return fd;
}

static int64_t file_io(struct rig *rig, enum ferry_op_kind kind, int fd, void *buf, uint64_t len,
                       uint64_t offset)
{
    struct rig_op op = {.op = {.kind = kind, .fd = fd, .buf = buf, .len = len, .offset = offset}};

    rig_submit(rig, &op);
    return rig_finish(rig, &op);
}

static void test_file_read_and_write(void **state)
{
    struct rig *rig = *state;
    static unsigned char content[100000];
    struct fenced range = {0};

    pattern_fill(content, sizeof(content), 14, 0);
    assert_true(fenced_alloc(&range, 60000, 5));
    int fd = make_file(rig, content, sizeof(content));

    for (uint64_t got = 0; got < range.len;) {
        int64_t n = file_io(rig, FERRY_OP_READ, fd, range.data + got, range.len - got, 20000 + got);
        assert_true(n > 0);
        got += (uint64_t)n;
    }
    assert_int_equal(pattern_differs(range.data, range.len, 14, 20000), PATTERN_SAME);
    assert_true(fenced_intact(&range));
    /* The end of the file cuts a read short, and behind it there is nothing. */
    int64_t tail = file_io(rig, FERRY_OP_READ, fd, range.data, 1000, 99900);
    assert_true(tail > 0 && tail <= 100);
    assert_int_equal(pattern_differs(range.data, (size_t)tail, 14, 99900), PATTERN_SAME);
    assert_int_equal(file_io(rig, FERRY_OP_READ, fd, range.data, 1000, 100000), 0);

    pattern_fill(range.data, range.len, 15, 0);
    for (uint64_t put = 0; put < 5000;) {
        int64_t n = file_io(rig, FERRY_OP_WRITE, fd, range.data + put, 5000 - put, 99000 + put);
        assert_true(n > 0);
        put += (uint64_t)n;
    }
    for (uint64_t got = 0; got < 5000;) {
        int64_t n = file_io(rig, FERRY_OP_READ, fd, range.data + got, 5000 - got, 99000 + got);
        assert_true(n > 0);
        got += (uint64_t)n;
    }
    assert_int_equal(pattern_differs(range.data, 5000, 15, 0), PATTERN_SAME);
    fenced_free(&range);
    if (rig->kind == RIG_SIM)
        ferry_net_close(rig->net, fd, false);
    else
        close(fd);
}

static void test_file_errors_are_results(void **state)
{
    struct rig *rig = *state;
    unsigned char buf[16];

    if (rig->kind == RIG_SIM)
        test_skip(RIG_SIM_LACKS);
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(file_io(rig, FERRY_OP_READ, fd, buf, sizeof(buf), 0), -EBADF);
    close(fd);
}

static void test_many_file_ops_at_once(void **state)
{
    struct rig *rig = *state;
    enum { OPS = 100 };
    static unsigned char content[OPS * 512];
    static unsigned char bufs[OPS][512];
    struct rig_op ops[OPS];

    pattern_fill(content, sizeof(content), 16, 0);
    int fd = make_file(rig, content, sizeof(content));
    for (uint32_t i = 0; i < OPS; i++) {
        ops[i].op = (struct ferry_op){
            .kind = FERRY_OP_READ, .fd = fd, .buf = bufs[i], .len = 512, .offset = i * 512u};
        rig_submit(rig, &ops[i]);
    }
    for (uint32_t i = 0; i < OPS; i += 10)
        ferry_reactor_cancel(rig->reactor, &ops[i].op);
    for (uint32_t i = 0; i < OPS; i++) {
        int64_t n = rig_finish(rig, &ops[i]);

        if (n == -ECANCELED && i % 10 == 0)
            continue;
        assert_true(n > 0);
        assert_int_equal(pattern_differs(bufs[i], (size_t)n, 16, i * 512u), PATTERN_SAME);
    }
    if (rig->kind == RIG_SIM)
        ferry_net_close(rig->net, fd, false);
    else
        close(fd);
}

static void *wake_later(void *arg)
{
    struct rig *rig = arg;
    struct timespec pause = {.tv_nsec = 20000000};

    nanosleep(&pause, NULL);
    ferry_reactor_wake(rig->reactor);
    return NULL;
}

static void test_wake_ends_a_sleep(void **state)
{
    struct rig *rig = *state;
    pthread_t thread;

    if (rig->kind == RIG_SIM)
        test_skip(RIG_SIM_LACKS);
    for (int i = 0; i < 5; i++) {
        uint64_t before_ns = rig_now_ns(rig);

        assert_int_equal(pthread_create(&thread, NULL, wake_later, rig), 0);
        ferry_reactor_turn(rig->reactor, before_ns + RIG_WAIT_NS);
        assert_true(rig_now_ns(rig) < before_ns + RIG_WAIT_NS / 2);
        pthread_join(thread, NULL);
    }
    /* A wake-up before the sleep counts too. */
    for (int i = 0; i < 5; i++) {
        uint64_t before_ns = rig_now_ns(rig);

        ferry_reactor_wake(rig->reactor);
        ferry_reactor_turn(rig->reactor, before_ns + RIG_WAIT_NS);
        assert_true(rig_now_ns(rig) < before_ns + RIG_WAIT_NS / 2);
    }
    /* And once over, it is over: a sleep is a sleep again. */
    for (int i = 0; i < 3; i++)
        ferry_reactor_turn(rig->reactor, rig_now_ns(rig) + FERRY_NS_PER_MS);
    uint64_t before_ns = rig_now_ns(rig);
    ferry_reactor_turn(rig->reactor, before_ns + 20 * FERRY_NS_PER_MS);
    assert_true(rig_now_ns(rig) >= before_ns + 20 * FERRY_NS_PER_MS);
}

static void test_a_sleep_ends_at_its_deadline(void **state)
{
    struct rig *rig = *state;

    for (uint64_t us = 50; us <= 20000; us *= 20) {
        uint64_t until_ns = rig_now_ns(rig) + us * FERRY_NS_PER_US;

        /* A turn may return early; it must neither spin for ever nor oversleep by much. */
        while (rig_now_ns(rig) < until_ns)
            ferry_reactor_turn(rig->reactor, until_ns);
        assert_true(rig_now_ns(rig) < until_ns + RIG_WAIT_NS / 4);
    }
}

int main(void)
{
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_new_descriptors_are_close_on_exec_and_nonblocking),
        RIG_TEST(test_attach_makes_a_blocking_descriptor_nonblocking),
        RIG_TEST(test_accept_without_descriptors_is_a_result),
        RIG_TEST(test_connect_to_nobody_is_refused),
        RIG_TEST(test_connect_without_answer_can_be_canceled),
        RIG_TEST(test_a_reopened_descriptor_starts_clean),
        RIG_TEST(test_callbacks_may_cancel_and_close_their_neighbours),
        RIG_TEST(test_file_read_and_write),
        RIG_TEST(test_file_errors_are_results),
        RIG_TEST(test_many_file_ops_at_once),
        RIG_TEST(test_wake_ends_a_sleep),
        RIG_TEST(test_a_sleep_ends_at_its_deadline),
    };
#undef RIG_TEST

    for (int fd = 0; fd < FDS_LOOKED_AT; fd++)
        open_before_tests[fd] = fcntl(fd, F_GETFD) >= 0;
    return rig_run_on_all(tests, FERRY_ARRAY_LEN(tests));
}
