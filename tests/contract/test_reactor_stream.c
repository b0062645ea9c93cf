/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's contract for streams: receive, send, ends and resets, cancels, back-pressure and
 * lending, on io_uring, epoll and the simulation. One thread.
 */
#include "contract/reactor_rig.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pattern.h"

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
        test_skip(RIG_SIM_LACKS);
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

/* Lending takes the ops back from the kernel; that must not show in any of them. */
static void test_lending_leaves_waiting_ops_as_they_were(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    struct rig_op accept_op = {0};
    unsigned char data[300];
    unsigned char buf[300];

    for (int lent_when_it_comes = 0; lent_when_it_comes < 2; lent_when_it_comes++) {
        rig_connect_pair(rig, &pair);
        pattern_fill(data, sizeof(data), 17, 0);
        accept_op.op = (struct ferry_op){.kind = FERRY_OP_ACCEPT, .io = &pair.listen_io};
        rig_submit(rig, &accept_op);
        rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), sizeof(buf));
        rig_send_all(rig, &pair.io[0], data, 100);
        rig_expect_pending(rig, &recv_op);
        for (int i = 0; i < 6; i++) {
            assert_true(ferry_reactor_prepare_lend(rig->reactor, i % 2 == 0));
            rig_expect_pending(rig, &recv_op);
            assert_int_equal(accept_op.calls, 0);
        }
        if (lent_when_it_comes != 0)
            assert_true(ferry_reactor_prepare_lend(rig->reactor, true));
        rig_send_all(rig, &pair.io[0], data + 100, 200);
        assert_int_equal(rig_finish(rig, &recv_op), 300);
        assert_int_equal(pattern_differs(buf, 300, 17, 0), PATTERN_SAME);
        ferry_reactor_cancel(rig->reactor, &accept_op.op);
        assert_int_equal(rig_finish(rig, &accept_op), -ECANCELED);
        ferry_reactor_prepare_lend(rig->reactor, false);
        rig_close_pair(rig, &pair);
    }
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

static void recvv(struct rig *rig, struct rig_op *recv_op, struct rig_pair *pair,
                  const struct iovec *iov, uint32_t count, uint64_t min_bytes)
{
    memset(recv_op, 0, sizeof(*recv_op));
    recv_op->op = (struct ferry_op){.kind = FERRY_OP_RECVV,
                                    .io = &pair->io[1],
                                    .iov = iov,
                                    .iov_count = count,
                                    .min_bytes = min_bytes};
    rig_submit(rig, recv_op);
}

/* A receive into pieces that comes in parts: each byte in its place, the gaps untouched. */
static void test_recvv_fills_its_pieces_in_order(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    static unsigned char data[200000];
    static unsigned char buf[200000];
    static unsigned char want[200000];
    struct iovec iov[FERRY_IOV_MAX];
    uint64_t total = 0;
    uint64_t at = 0;

    rig_connect_pair(rig, &pair);
    pattern_fill(data, sizeof(data), 21, 0);
    pattern_fill(buf, sizeof(buf), 22, 0);
    pattern_fill(want, sizeof(want), 22, 0);
    for (uint32_t i = 0; i < FERRY_IOV_MAX; i++) {
        iov[i] = (struct iovec){buf + at, i % 7 == 3 ? 0 : i * 5 % 900 + 1};
        memcpy(want + at, data + total, iov[i].iov_len);
        total += iov[i].iov_len;
        at += iov[i].iov_len + i % 3;
    }
    assert_true(at <= sizeof(buf));
    recvv(rig, &recv_op, &pair, iov, FERRY_IOV_MAX, total);
    for (uint64_t sent = 0; sent < total;) {
        uint64_t step = total - sent < 777 ? total - sent : 777;

        rig_send_all(rig, &pair.io[0], data + sent, step);
        sent += step;
        rig_turn(rig);
        assert_true(recv_op.calls == 0 || sent == total);
    }
    assert_int_equal(rig_finish(rig, &recv_op), total);
    assert_memory_equal(buf, want, sizeof(buf));

    /* Without a minimum it takes what is there. */
    recvv(rig, &recv_op, &pair, iov, 3, 0);
    rig_send_all(rig, &pair.io[0], data, 1);
    assert_int_equal(rig_finish(rig, &recv_op), 1);
    assert_int_equal(buf[0], data[0]);
    rig_close_pair(rig, &pair);
}

static void test_recvv_that_is_cancelled_reports_its_bytes(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op recv_op;
    unsigned char parts[3][100] = {{0}};
    unsigned char data[300];
    struct iovec iov[3];

    rig_connect_pair(rig, &pair);
    pattern_fill(data, sizeof(data), 23, 0);
    for (int i = 0; i < 3; i++)
        iov[i] = (struct iovec){parts[i], 100};
    recvv(rig, &recv_op, &pair, iov, 3, 300);
    ferry_reactor_cancel(rig->reactor, &recv_op.op);
    assert_int_equal(rig_finish(rig, &recv_op), -ECANCELED);

    recvv(rig, &recv_op, &pair, iov, 3, 300);
    rig_send_all(rig, &pair.io[0], data, 150);
    for (int i = 0; i < 10000 && recv_op.op.progress < 150; i++)
        rig_turn(rig);
    ferry_reactor_cancel(rig->reactor, &recv_op.op);
    assert_int_equal(rig_finish(rig, &recv_op), 150);
    assert_memory_equal(parts[0], data, 100);
    assert_memory_equal(parts[1], data + 100, 50);
    assert_int_equal(parts[1][50], 0);

    /* The end of the stream ends it short, and then with nothing. */
    recvv(rig, &recv_op, &pair, iov, 3, 300);
    rig_send_all(rig, &pair.io[0], data, 120);
    ferry_net_shutdown(rig->net, pair.fd[0], SHUT_WR);
    assert_int_equal(rig_finish(rig, &recv_op), 120);
    recvv(rig, &recv_op, &pair, iov, 3, 300);
    assert_int_equal(rig_finish(rig, &recv_op), 0);
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

int main(int argc, char **argv)
{
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
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
        RIG_TEST(test_lending_leaves_waiting_ops_as_they_were),
        RIG_TEST(test_lending_amid_pending_ops_keeps_the_data_whole),
        RIG_TEST(test_send_blocks_until_the_peer_reads_and_is_short_then),
        RIG_TEST(test_sendv_sends_many_odd_pieces_in_order),
        RIG_TEST(test_recvv_fills_its_pieces_in_order),
        RIG_TEST(test_recvv_that_is_cancelled_reports_its_bytes),
        RIG_TEST(test_more_ops_than_the_queue_is_deep),
    };
#undef RIG_TEST

    return argc > 1 && strcmp(argv[1], "tls") == 0 ? rig_run_on_tls(tests, FERRY_ARRAY_LEN(tests))
                                                   : rig_run_on_all(tests, FERRY_ARRAY_LEN(tests));
}
