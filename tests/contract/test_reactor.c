/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's contract, operation by operation, on each implementation: io_uring, epoll, and the
 * simulation that the model rig runs on. One thread, except where waking is tested.
 */
#include "contract/reactor_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"
#include "process.h"
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
        skip();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_ok(ferry_reactor_attach(rig->reactor, &io, fds[0]));
    assert_true((fcntl(fds[0], F_GETFL) & O_NONBLOCK) != 0);
    ferry_reactor_detach(rig->reactor, &io);
    close(fds[0]);
    close(fds[1]);
}

static void test_recv_takes_what_is_there(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    struct fenced range = {0};
    unsigned char data[100];

    rig_connect_pair(rig, &pair);
    assert_true(fenced_alloc(&range, 4096, 3));
    pattern_fill(data, sizeof(data), 7, 0);

    rig_recv(rig, &recv_op, &pair.io[1], range.data, range.len, 0);
    rig_expect_pending(rig, &recv_op);
    rig_send_all(rig, &pair.io[0], data, sizeof(data));
    int64_t got = rig_finish(rig, &recv_op);
    assert_true(got >= 1 && got <= 100);
    assert_int_equal(pattern_differs(range.data, (size_t)got, 7, 0), PATTERN_SAME);
    assert_true(fenced_intact(&range));
    fenced_free(&range);
    rig_close_pair(rig, &pair);
}

/* min_bytes may come in any number of pieces; what is beyond len stays for the next receive. */
static void test_recv_waits_for_min_bytes(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    struct fenced range = {0};
    unsigned char data[3000];

    rig_connect_pair(rig, &pair);
    assert_true(fenced_alloc(&range, 2000, 1));
    pattern_fill(data, sizeof(data), 8, 0);

    rig_recv(rig, &recv_op, &pair.io[1], range.data, 2000, 2000);
    for (int i = 0; i < 19; i++) {
        rig_send_all(rig, &pair.io[0], data + i * 100, 100);
        rig_turn(rig);
        assert_int_equal(recv_op.calls, 0);
    }
    rig_expect_pending(rig, &recv_op);
    rig_send_all(rig, &pair.io[0], data + 1900, 1100);
    assert_int_equal(rig_finish(rig, &recv_op), 2000);
    assert_int_equal(pattern_differs(range.data, 2000, 8, 0), PATTERN_SAME);
    assert_true(fenced_intact(&range));

    rig_recv(rig, &recv_op, &pair.io[1], range.data, 2000, 1000);
    assert_int_equal(rig_finish(rig, &recv_op), 1000);
    assert_int_equal(pattern_differs(range.data, 1000, 8, 2000), PATTERN_SAME);
    fenced_free(&range);
    rig_close_pair(rig, &pair);
}

static void test_end_of_stream_ends_a_recv_short_then_with_zero(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char data[300];
    unsigned char buf[1000];

    rig_connect_pair(rig, &pair);
    pattern_fill(data, sizeof(data), 9, 0);
    rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), sizeof(buf));
    rig_send_all(rig, &pair.io[0], data, sizeof(data));
    rig_expect_pending(rig, &recv_op);
    ferry_net_shutdown(rig->net, pair.fd[0], SHUT_WR);
    assert_int_equal(rig_finish(rig, &recv_op), 300);
    assert_int_equal(pattern_differs(buf, 300, 9, 0), PATTERN_SAME);

    rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), sizeof(buf));
    assert_int_equal(rig_finish(rig, &recv_op), 0);
    /* The other direction still works: half closed is not closed. */
    rig_recv(rig, &recv_op, &pair.io[0], buf, sizeof(data), sizeof(data));
    rig_send_all(rig, &pair.io[1], data, sizeof(data));
    assert_int_equal(rig_finish(rig, &recv_op), 300);
    rig_close_pair(rig, &pair);
}

/*
 * Data and the end arrive before anybody asks. An edge-triggered reactor that takes a short receive
 * as "nothing left" would then wait for an edge that has passed.
 */
static void test_end_of_stream_that_came_with_the_data_is_seen(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char data[64];
    unsigned char buf[256];

    rig_connect_pair(rig, &pair);
    pattern_fill(data, sizeof(data), 10, 0);
    rig_send_all(rig, &pair.io[0], data, sizeof(data));
    rig_close_side(rig, &pair, 0, false);
    for (int i = 0; i < 5; i++)
        rig_turn(rig);
    uint64_t total = 0;
    do {
        rig_recv(rig, &recv_op, &pair.io[1], buf + total, sizeof(buf) - total, 1);
        assert_true(rig_finish(rig, &recv_op) >= 0);
        total += (uint64_t)recv_op.result;
    } while (recv_op.result > 0);
    assert_int_equal(total, 64);
    assert_int_equal(pattern_differs(buf, 64, 10, 0), PATTERN_SAME);
    rig_close_pair(rig, &pair);
}

static void test_reset_fails_recv_and_send(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    struct rig_op send_op;
    unsigned char buf[100] = {1};

    rig_connect_pair(rig, &pair);
    rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 0);
    rig_expect_pending(rig, &recv_op);
    rig_close_side(rig, &pair, 0, true);
    assert_int_equal(rig_finish(rig, &recv_op), -ECONNRESET);
    /* No SIGPIPE: the default action would end this program. */
    rig_send(rig, &send_op, &pair.io[1], buf, sizeof(buf));
    int64_t sent = rig_finish(rig, &send_op);
    assert_true(sent == -EPIPE || sent == -ECONNRESET);
    rig_close_pair(rig, &pair);
}

/* A child that the host forked holds the same sockets; the peer must learn of the end all the same.
 */
static void test_close_is_seen_although_a_forked_child_holds_the_socket(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char buf[100];

    if (rig->kind == RIG_SIM)
        skip();
    for (int abort = 0; abort < 2; abort++) {
        rig_connect_pair(rig, &pair);
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            for (;;)
                pause();
        }
        assert_true(child > 0);
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 0);
        rig_close_side(rig, &pair, 0, abort != 0);
        assert_int_equal(rig_finish(rig, &recv_op), abort != 0 ? -ECONNRESET : 0);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        rig_close_pair(rig, &pair);
    }
}

static void test_cancel_ends_each_kind_once(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op = {0};
    struct rig_op accept_op = {0};
    unsigned char buf[100];

    rig_connect_pair(rig, &pair);
    ferry_reactor_cancel(rig->reactor, &recv_op.op); /* never submitted: nothing happens */
    for (int turns = 0; turns < 3; turns++) {
        /* Before the kernel heard of it, and after. */
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 0);
        accept_op.op = (struct ferry_op){.kind = FERRY_OP_ACCEPT, .io = &pair.listen_io};
        rig_submit(rig, &accept_op);
        for (int i = 0; i < turns; i++)
            ferry_reactor_turn(rig->reactor, 0);
        ferry_reactor_cancel(rig->reactor, &recv_op.op);
        ferry_reactor_cancel(rig->reactor, &recv_op.op);
        ferry_reactor_cancel(rig->reactor, &accept_op.op);
        assert_int_equal(recv_op.calls, 0); /* later, never inside */
        assert_int_equal(accept_op.calls, 0);
        assert_int_equal(rig_finish(rig, &recv_op), -ECANCELED);
        assert_int_equal(rig_finish(rig, &accept_op), -ECANCELED);
        ferry_reactor_cancel(rig->reactor, &recv_op.op); /* over: nothing happens */
    }
    /* The socket is as good as before. */
    rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 4);
    rig_send_all(rig, &pair.io[0], "good", 4);
    assert_int_equal(rig_finish(rig, &recv_op), 4);
    assert_memory_equal(buf, "good", 4);
    rig_close_pair(rig, &pair);
}

static void test_cancel_of_a_partial_recv_reports_its_bytes(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    static unsigned char data[1u << 18];
    static unsigned char buf[1u << 18];

    /* Small enough for plain receives, and large enough for those that the kernel completes. */
    for (uint64_t len = 512; len <= sizeof(buf); len *= 512) {
        rig_connect_pair(rig, &pair);
        pattern_fill(data, (size_t)len, len, 0);
        rig_recv(rig, &recv_op, &pair.io[1], buf, len, len);
        rig_send_all(rig, &pair.io[0], data, 300);
        rig_expect_pending(rig, &recv_op);
        ferry_reactor_cancel(rig->reactor, &recv_op.op);
        assert_int_equal(rig_finish(rig, &recv_op), 300);
        assert_int_equal(pattern_differs(buf, 300, len, 0), PATTERN_SAME);
        rig_close_pair(rig, &pair);
    }
}

/* Whoever wins, no byte is lost and none comes twice. */
static void test_cancel_that_races_with_data_loses_nothing(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char data[64];
    unsigned char buf[4096];
    uint64_t sent = 0;
    uint64_t got = 0;
    uint64_t canceled = 0;

    rig_connect_pair(rig, &pair);
    /* As many as fit unread into the smallest buffer, if every cancel wins. */
    for (int round = 0; round < 200; round++) {
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), round % 3 == 0 ? 80 : 0);
        if (round % 2 == 0)
            ferry_reactor_turn(rig->reactor, 0);
        pattern_fill(data, sizeof(data), 11, sent);
        rig_send_all(rig, &pair.io[0], data, sizeof(data));
        sent += sizeof(data);
        if (round % 5 == 0)
            rig_turn(rig);
        ferry_reactor_cancel(rig->reactor, &recv_op.op);
        int64_t result = rig_finish(rig, &recv_op);
        if (result == -ECANCELED) {
            canceled++;
            continue;
        }
        assert_true(result > 0);
        assert_int_equal(pattern_differs(buf, (size_t)result, 11, got), PATTERN_SAME);
        got += (uint64_t)result;
    }
    while (got < sent) {
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), 1);
        assert_true(rig_finish(rig, &recv_op) > 0);
        assert_int_equal(pattern_differs(buf, (size_t)recv_op.result, 11, got), PATTERN_SAME);
        got += (uint64_t)recv_op.result;
    }
    assert_int_equal(got, sent);
    assert_true(canceled < 200);
    rig_close_pair(rig, &pair);
}

/* One side of a stream that sends and receives at the same time, in pieces of changing sizes. */
struct stream {
    struct rig *rig;
    struct rig_op recv_op;
    struct rig_op send_op;
    struct ferry_io *io;
    uint64_t seed_out, seed_in;
    uint64_t sent, got, total;
    unsigned char *out, *in;
    uint64_t chunk;
    uint64_t piece;
};

static uint64_t next_piece(struct stream *s)
{
    s->piece = s->piece * 6364136223846793005u + 1442695040888963407u;
    return 1 + (s->piece >> 33) % s->chunk;
}

static void stream_pump(struct stream *s)
{
    if (!ferry_op_inflight(&s->send_op.op)) {
        if (s->send_op.calls > 0) {
            assert_true(s->send_op.result > 0);
            s->sent += (uint64_t)s->send_op.result;
            s->send_op.calls = 0;
        }
        uint64_t len = next_piece(s);
        if (len > s->total - s->sent)
            len = s->total - s->sent;
        if (len > 0) {
            pattern_fill(s->out, (size_t)len, s->seed_out, s->sent);
            rig_send(s->rig, &s->send_op, s->io, s->out, len);
        }
    }
    if (!ferry_op_inflight(&s->recv_op.op)) {
        if (s->recv_op.calls > 0) {
            assert_true(s->recv_op.result > 0);
            assert_true((uint64_t)s->recv_op.result >= s->recv_op.op.min_bytes);
            assert_int_equal(pattern_differs(s->in, (size_t)s->recv_op.result, s->seed_in, s->got),
                             PATTERN_SAME);
            s->got += (uint64_t)s->recv_op.result;
            s->recv_op.calls = 0;
        }
        uint64_t len = next_piece(s);
        if (len > s->total - s->got)
            len = s->total - s->got;
        if (len > 0)
            rig_recv(s->rig, &s->recv_op, s->io, s->in, len, s->piece % 2 == 0 ? len : len / 2);
    }
}

static void stream_init(struct stream *s, struct rig *rig, struct rig_pair *pair, int side)
{
    *s = (struct stream){.rig = rig,
                         .io = &pair->io[side],
                         .seed_out = 20 + (uint64_t)side,
                         .seed_in = 21 - (uint64_t)side,
                         .total = rig->kind == RIG_SIM ? 1u << 20 : 24u << 20,
                         .chunk = rig->kind == RIG_SIM ? 50000 : 3000000,
                         .piece = (uint64_t)side + 5};
    s->out = malloc(s->chunk);
    s->in = malloc(s->chunk);
    assert_true(s->out != NULL && s->in != NULL);
}

static void stream_fini(struct stream *s)
{
    assert_int_equal(s->got, s->total);
    assert_int_equal(s->sent, s->total);
    free(s->out);
    free(s->in);
}

static void pump_both(struct rig *rig, struct stream *a, struct stream *b, bool lend)
{
    uint64_t give_up_ns = rig_now_ns(rig) + 3 * RIG_WAIT_NS;
    uint64_t turns = 0;
    uint64_t lent = 0;

    while (a->got < a->total || b->got < b->total || a->sent < a->total || b->sent < b->total) {
        assert_true(rig_now_ns(rig) < give_up_ns);
        stream_pump(a);
        stream_pump(b);
        if (lend && turns % 3 == 0)
            lent += ferry_reactor_prepare_lend(rig->reactor, true);
        if (lend && turns % 7 == 0)
            ferry_reactor_prepare_lend(rig->reactor, false);
        rig_turn(rig);
        turns++;
    }
    ferry_reactor_prepare_lend(rig->reactor, false);
    assert_true(!lend || lent > 0);
}

/* Both ends fill the buffers of the connection; nobody may wait for the other to read first. */
static void test_full_duplex_with_back_pressure_does_not_deadlock(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct stream a, b;

    rig_connect_pair(rig, &pair);
    stream_init(&a, rig, &pair, 0);
    stream_init(&b, rig, &pair, 1);
    pump_both(rig, &a, &b, false);
    stream_fini(&a);
    stream_fini(&b);
    rig_close_pair(rig, &pair);
}

static void test_lending_amid_pending_ops_keeps_the_data_whole(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct stream a, b;

    rig_connect_pair(rig, &pair);
    stream_init(&a, rig, &pair, 0);
    stream_init(&b, rig, &pair, 1);
    pump_both(rig, &a, &b, true);
    stream_fini(&a);
    stream_fini(&b);
    rig_close_pair(rig, &pair);
}

static void test_send_blocks_until_the_peer_reads_and_is_short_then(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op send_op;
    struct rig_op recv_op;
    uint64_t len = rig->kind == RIG_SIM ? 1u << 20 : 64u << 20;
    unsigned char *data = malloc(len);
    unsigned char *buf = malloc(1u << 20);
    uint64_t sent = 0;
    uint64_t got = 0;

    assert_true(data != NULL && buf != NULL);
    pattern_fill(data, len, 12, 0);
    rig_connect_pair(rig, &pair);
    for (;;) {
        rig_send(rig, &send_op, &pair.io[0], data + sent, len - sent);
        for (int i = 0; i < 20 && send_op.calls == 0; i++)
            rig_turn(rig);
        if (send_op.calls == 0)
            break; /* full */
        assert_true(send_op.result > 0);
        sent += (uint64_t)send_op.result;
        assert_true(sent < len);
    }
    while (got < len) {
        rig_recv(rig, &recv_op, &pair.io[1], buf, 1u << 20, 1);
        assert_true(rig_finish(rig, &recv_op) > 0);
        assert_int_equal(pattern_differs(buf, (size_t)recv_op.result, 12, got), PATTERN_SAME);
        got += (uint64_t)recv_op.result;
        if (send_op.calls == 1 && sent < len) {
            assert_true(send_op.result > 0);
            sent += (uint64_t)send_op.result;
            if (sent < len)
                rig_send(rig, &send_op, &pair.io[0], data + sent, len - sent);
        }
    }
    free(data);
    free(buf);
    rig_close_pair(rig, &pair);
}

static void test_sendv_sends_many_odd_pieces_in_order(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    struct rig_op send_op = {0};
    static unsigned char data[40000];
    static unsigned char buf[40000];
    struct iovec iov[FERRY_IOV_MAX];
    uint64_t total = 0;
    uint64_t sent = 0;

    rig_connect_pair(rig, &pair);
    pattern_fill(data, sizeof(data), 13, 0);
    for (uint32_t i = 0; i < FERRY_IOV_MAX; i++) {
        iov[i] = (struct iovec){data + total, i % 7 == 3 ? 0 : i % 300 + 1};
        total += iov[i].iov_len;
    }
    assert_true(total <= sizeof(data));
    rig_recv(rig, &recv_op, &pair.io[1], buf, total, total);
    for (uint32_t first = 0; sent < total;) {
        send_op.op = (struct ferry_op){.kind = FERRY_OP_SENDV,
                                       .io = &pair.io[0],
                                       .iov = iov + first,
                                       .iov_count = FERRY_IOV_MAX - first};
        rig_submit(rig, &send_op);
        uint64_t step = (uint64_t)rig_finish(rig, &send_op);
        assert_true(send_op.result > 0);
        sent += step;
        while (first < FERRY_IOV_MAX && step >= iov[first].iov_len)
            step -= iov[first++].iov_len;
        if (step > 0) {
            iov[first].iov_base = (char *)iov[first].iov_base + step;
            iov[first].iov_len -= step;
        }
    }
    assert_int_equal(rig_finish(rig, &recv_op), total);
    assert_int_equal(pattern_differs(buf, (size_t)total, 13, 0), PATTERN_SAME);
    rig_close_pair(rig, &pair);
}

/* Many sends queued in one turn, more than the submission queue of a ring has entries. */
static void test_more_ops_than_the_queue_is_deep(void **state)
{
    struct rig *rig = *state;
    enum { PAIRS = 24 };
    static struct rig_pair pairs[PAIRS];
    struct rig_op recv_ops[2 * PAIRS];
    struct rig_op send_ops[2 * PAIRS];
    unsigned char bufs[2 * PAIRS][8];

    for (int i = 0; i < PAIRS; i++)
        rig_connect_pair(rig, &pairs[i]);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 2 * PAIRS; i++)
            rig_recv(rig, &recv_ops[i], &pairs[i / 2].io[i % 2], bufs[i], 8, 8);
        ferry_reactor_turn(rig->reactor, 0);
        for (int i = 0; i < 2 * PAIRS; i++) {
            uint64_t word = pattern_word((uint64_t)round, (uint64_t)i);

            rig_send_all(rig, &pairs[i / 2].io[1 - i % 2], &word, 8);
        }
        for (int i = 0; i < 2 * PAIRS; i++) {
            uint64_t word = pattern_word((uint64_t)round, (uint64_t)i);

            assert_int_equal(rig_finish(rig, &recv_ops[i]), 8);
            assert_memory_equal(bufs[i], &word, 8);
        }
    }
    (void)send_ops;
    for (int i = 0; i < PAIRS; i++)
        rig_close_pair(rig, &pairs[i]);
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
        skip(); /* needs a network that drops; the scenario with namespaces has one */
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
        skip();
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
        skip();
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

static const struct CMUnitTest reactor_tests[] = {
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    RIG_TEST(test_new_descriptors_are_close_on_exec_and_nonblocking),
    RIG_TEST(test_attach_makes_a_blocking_descriptor_nonblocking),
    RIG_TEST(test_recv_takes_what_is_there),
    RIG_TEST(test_recv_waits_for_min_bytes),
    RIG_TEST(test_end_of_stream_ends_a_recv_short_then_with_zero),
    RIG_TEST(test_end_of_stream_that_came_with_the_data_is_seen),
    RIG_TEST(test_reset_fails_recv_and_send),
    RIG_TEST(test_close_is_seen_although_a_forked_child_holds_the_socket),
    RIG_TEST(test_cancel_ends_each_kind_once),
    RIG_TEST(test_cancel_of_a_partial_recv_reports_its_bytes),
    RIG_TEST(test_cancel_that_races_with_data_loses_nothing),
    RIG_TEST(test_full_duplex_with_back_pressure_does_not_deadlock),
    RIG_TEST(test_lending_amid_pending_ops_keeps_the_data_whole),
    RIG_TEST(test_send_blocks_until_the_peer_reads_and_is_short_then),
    RIG_TEST(test_sendv_sends_many_odd_pieces_in_order),
    RIG_TEST(test_more_ops_than_the_queue_is_deep),
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
#undef RIG_TEST
};

int main(void)
{
    int failed = 0;

    for (int fd = 0; fd < FDS_LOOKED_AT; fd++)
        open_before_tests[fd] = fcntl(fd, F_GETFD) >= 0;
    for (int kind = RIG_URING; kind <= RIG_SIM; kind++) {
        if (!rig_available((enum rig_kind)kind))
            continue;
        rig_kind_now = (enum rig_kind)kind;
        failed += cmocka_run_group_tests_name(rig_kind_name(rig_kind_now), reactor_tests, NULL,
                                              NULL);
    }
    return failed;
}
