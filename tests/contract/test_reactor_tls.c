/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The TLS handshake as an operation of the reactor: how it ends, with whom it does not, what a
 * cancel in the middle of it leaves, and what damage on the wire does to what follows it.
 */
#include "contract/reactor_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "pattern.h"
#include "support/certificate.h"

/* A raw pair: plain sockets whose ends take TLS, or not, as the test says. */
static void open_raw(struct rig *rig, struct rig_pair *pair)
{
    struct ferry_tls *tls = rig->tls;

    rig->tls = NULL;
    rig_connect_pair(rig, pair);
    rig->tls = tls;
}

static void begin(struct rig *rig, struct rig_op *op, struct ferry_io *io,
                  struct ferry_tls_handshake *handshake)
{
    uint64_t give_up_ns = rig_now_ns(rig) + RIG_WAIT_NS;

    assert_true(give_up_ns > 0);
    op->op = (struct ferry_op){.io = io};
    op->calls = 0;
    op->op.done = rig_count_done;
    ferry_tls_submit(rig->reactor, &op->op, handshake);
    assert_int_equal(op->calls, 0);
}

static void set_up(struct rig *rig, struct ferry_tls_handshake *handshake, bool initiator)
{
    *handshake = (struct ferry_tls_handshake){
        .tls = rig->tls, .initiator = initiator, .host = initiator ? "127.0.0.1" : NULL};
}

static void test_a_plain_peer_is_told_from_tls(void **state)
{
    struct rig *rig = *state;
    struct ferry_tls_handshake handshake;
    struct rig_pair pair;
    struct rig_op shake;
    struct rig_op rest;
    unsigned char buf[16];

    for (int initiator = 0; initiator < 2; initiator++) {
        int me = initiator == 1 ? 0 : 1;

        open_raw(rig, &pair);
        set_up(rig, &handshake, initiator == 1);
        begin(rig, &shake, &pair.io[me], &handshake);
        rig_send_all(rig, &pair.io[1 - me], "FRRY and more", 13);
        assert_int_equal(rig_finish(rig, &shake), -EPROTO);
        assert_true(handshake.plain);
        assert_memory_equal(handshake.first, "FRRY", 4);
        assert_string_not_equal(handshake.trouble, "");
        /* The socket is plain again, and nothing behind the first record's header was taken. */
        rig_recv(rig, &rest, &pair.io[me], buf, sizeof(buf), 8);
        assert_int_equal(rig_finish(rig, &rest), 8);
        assert_memory_equal(buf, "and more", 8);
        rig_send_all(rig, &pair.io[me], "plain", 5);
        rig_close_pair(rig, &pair);
    }
}

static void test_a_peer_that_leaves_in_the_middle(void **state)
{
    struct rig *rig = *state;
    struct ferry_tls_handshake handshake;
    struct rig_pair pair;
    struct rig_op shake;

    for (int abort = 0; abort < 2; abort++) {
        open_raw(rig, &pair);
        set_up(rig, &handshake, true);
        begin(rig, &shake, &pair.io[0], &handshake);
        rig_expect_pending(rig, &shake);
        rig_close_side(rig, &pair, 1, abort == 1);
        assert_int_equal(rig_finish(rig, &shake), -ECONNRESET);
        assert_false(handshake.plain);
        rig_close_pair(rig, &pair);
    }
}

static void test_a_handshake_can_be_canceled_at_any_turn(void **state)
{
    struct rig *rig = *state;
    struct ferry_tls_handshake handshakes[2];
    struct rig_pair pair;
    struct rig_op shakes[2];
    bool canceled_once = false;
    bool done_once = false;

    for (int turns = 0; turns < 40; turns++) {
        open_raw(rig, &pair);
        for (int i = 0; i < 2; i++) {
            set_up(rig, &handshakes[i], i == 0);
            begin(rig, &shakes[i], &pair.io[i], &handshakes[i]);
        }
        for (int i = 0; i < turns; i++)
            ferry_reactor_turn(rig->reactor, 0);
        for (int i = 0; i < 2; i++) {
            if (shakes[i].calls == 0)
                ferry_reactor_cancel(rig->reactor, &shakes[i].op);
        }
        for (int i = 0; i < 2; i++) {
            int64_t result = rig_finish(rig, &shakes[i]);

            assert_true(result == -ECANCELED || result == 0);
            canceled_once |= result == -ECANCELED;
            done_once |= result == 0;
        }
        rig_close_pair(rig, &pair);
    }
    assert_true(canceled_once && done_once);
}

/* What is behind the last record of the handshake stays in the socket, for the kernel. */
static void test_data_right_behind_the_handshake_is_not_lost(void **state)
{
    struct rig *rig = *state;
    struct ferry_tls_handshake handshakes[2];
    struct rig_pair pair;
    struct rig_op shakes[2];
    struct rig_op recv_op;
    unsigned char data[3000];
    unsigned char buf[3000];

    open_raw(rig, &pair);
    pattern_fill(data, sizeof(data), 3, 0);
    for (int i = 0; i < 2; i++) {
        set_up(rig, &handshakes[i], i == 0);
        begin(rig, &shakes[i], &pair.io[i], &handshakes[i]);
    }
    assert_int_equal(rig_finish(rig, &shakes[0]), 0);
    /* The target may not have read the initiator's last message yet. */
    rig_send_all(rig, &pair.io[0], data, sizeof(data));
    assert_int_equal(rig_finish(rig, &shakes[1]), 0);
    rig_recv(rig, &recv_op, &pair.io[1], buf, sizeof(buf), sizeof(buf));
    assert_int_equal(rig_finish(rig, &recv_op), sizeof(buf));
    assert_int_equal(pattern_differs(buf, sizeof(buf), 3, 0), PATTERN_SAME);
    rig_close_pair(rig, &pair);
}

static void test_a_name_that_the_certificate_lacks_is_refused(void **state)
{
    static const struct {
        const char *host;
        bool fits;
    } hosts[] = {
        {"127.0.0.1", true},  {"::1", true},  {"localhost", true},          {NULL, true},
        {"127.0.0.2", false}, {"::2", false}, {"localhost.example", false}, {"example", false},
    };
    struct rig *rig = *state;

    for (size_t i = 0; i < FERRY_ARRAY_LEN(hosts); i++) {
        struct ferry_tls_handshake handshakes[2];
        struct rig_pair pair;
        struct rig_op shakes[2];

        open_raw(rig, &pair);
        for (int side = 0; side < 2; side++) {
            set_up(rig, &handshakes[side], side == 0);
            handshakes[side].host = hosts[i].host;
            begin(rig, &shakes[side], &pair.io[side], &handshakes[side]);
        }
        assert_int_equal(rig_finish(rig, &shakes[0]), hosts[i].fits ? 0 : -EPROTO);
        assert_int_equal(rig_finish(rig, &shakes[1]), hosts[i].fits ? 0 : -EPROTO);
        if (!hosts[i].fits) {
            assert_non_null(strstr(handshakes[0].trouble, "mismatch"));
            /* The other side hears why: an alert, and not a reset. */
            assert_non_null(strstr(handshakes[1].trouble, "alert"));
        }
        rig_close_pair(rig, &pair);
    }
}

/* Pass on what comes in on two plain ends, both ways, until both handshakes are over. */
static void rig_relay(struct rig *rig, struct ferry_io *a, struct ferry_io *b,
                      const struct rig_op *first, const struct rig_op *second)
{
    struct ferry_io *ends[2] = {a, b};
    static unsigned char bufs[2][65536];
    struct rig_op ops[2];
    uint64_t give_up_ns = rig_now_ns(rig) + RIG_WAIT_NS;

    for (int i = 0; i < 2; i++)
        rig_recv(rig, &ops[i], ends[i], bufs[i], sizeof(bufs[i]), 1);
    while (first->calls == 0 || second->calls == 0) {
        assert_true(rig_now_ns(rig) < give_up_ns);
        rig_turn(rig);
        for (int i = 0; i < 2; i++) {
            if (ops[i].calls == 0)
                continue;
            assert_true(ops[i].result > 0);
            rig_send_all(rig, ends[1 - i], bufs[i], (uint64_t)ops[i].result);
            rig_recv(rig, &ops[i], ends[i], bufs[i], sizeof(bufs[i]), 1);
        }
    }
    assert_int_equal(first->result, 0);
    assert_int_equal(second->result, 0);
    for (int i = 0; i < 2; i++) {
        ferry_reactor_cancel(rig->reactor, &ops[i].op);
        assert_int_equal(rig_finish(rig, &ops[i]), -ECANCELED);
    }
}

/* One bit on the way: no byte of that record reaches the caller, and the stream is over. */
static void test_damage_on_the_wire_is_an_error(void **state)
{
    struct rig *rig = *state;
    struct ferry_tls_handshake handshakes[2];
    struct rig_pair near; /* initiator -- middle */
    struct rig_pair far;  /* middle -- target */
    struct rig_op shakes[2];
    struct rig_op send_op;
    struct rig_op recv_op;
    unsigned char data[1000];
    unsigned char buf[1000];
    unsigned char wire[2000];

    open_raw(rig, &near);
    open_raw(rig, &far);
    set_up(rig, &handshakes[0], true);
    set_up(rig, &handshakes[1], false);
    begin(rig, &shakes[0], &near.io[0], &handshakes[0]);
    begin(rig, &shakes[1], &far.io[1], &handshakes[1]);
    rig_relay(rig, &near.io[1], &far.io[0], &shakes[0], &shakes[1]);
    pattern_fill(data, sizeof(data), 4, 0);
    rig_send(rig, &send_op, &near.io[0], data, sizeof(data));
    assert_int_equal(rig_finish(rig, &send_op), sizeof(data));
    rig_recv(rig, &recv_op, &near.io[1], wire, sizeof(wire), sizeof(data));
    int64_t len = rig_finish(rig, &recv_op);
    assert_true(len > (int64_t)sizeof(data));
    wire[500] ^= 1;
    rig_send_all(rig, &far.io[0], wire, (uint64_t)len);
    memset(buf, 0, sizeof(buf));
    rig_recv(rig, &recv_op, &far.io[1], buf, sizeof(buf), 1);
    assert_int_equal(rig_finish(rig, &recv_op), -EPROTO);
    assert_string_not_equal(ferry_tls_trouble(&far.io[1]), "");
    for (size_t i = 0; i < sizeof(buf); i++)
        assert_int_equal(buf[i], 0);
    rig_recv(rig, &recv_op, &far.io[1], buf, sizeof(buf), 1);
    assert_true(rig_finish(rig, &recv_op) < 0);
    rig_close_pair(rig, &near);
    rig_close_pair(rig, &far);
}

/* A WRITE whose bytes may have left is not one that was never sent: see tls.h. */
static void test_a_send_that_is_canceled_half_way_counts_as_sent(void **state)
{
    struct rig *rig = *state;
    struct rig_pair pair;
    struct rig_op send_op;
    uint64_t len = 64u << 20;
    unsigned char *data = malloc(len);
    uint64_t sent = 0;

    assert_non_null(data);
    pattern_fill(data, len, 5, 0);
    rig_connect_pair(rig, &pair);
    for (;;) {
        rig_send(rig, &send_op, &pair.io[0], data + sent, len - sent);
        for (int i = 0; i < 20 && send_op.calls == 0; i++)
            rig_turn(rig);
        if (send_op.calls == 0)
            break; /* the pipe is full, in the middle of a chunk's records as a rule */
        assert_true(send_op.result > 0);
        sent += (uint64_t)send_op.result;
    }
    ferry_reactor_cancel(rig->reactor, &send_op.op);
    int64_t result = rig_finish(rig, &send_op);
    assert_true(result > 0 || result == -ECANCELED);
    /* A record is out in part: nothing may follow it. */
    rig_send(rig, &send_op, &pair.io[0], data, 1000);
    assert_int_equal(rig_finish(rig, &send_op), -EPIPE);
    free(data);
    rig_close_pair(rig, &pair);
}

static void test_bad_files_are_refused_with_the_remedy(void **state)
{
    const struct test_certificate *made = test_certificate();
    static const char *const nothing = "";
    struct {
        const char *cert, *key, *ca, *says;
    } files[] = {
        {made->cert, made->key, nothing, "tls.ca is missing"},
        {made->cert, nothing, made->cert, "tls.key is missing"},
        {nothing, made->key, made->cert, "tls.cert is missing"},
        {"/tmp/no/such/file", made->key, made->cert, "tls.cert: cannot open /tmp/no/such/file"},
        {made->key, made->key, made->cert, "holds no certificate"},
        {made->cert, made->cert, made->cert, "holds no key"},
        {made->cert, made->key, made->key, "holds no certificates"},
    };
    struct ferry_tls *tls = NULL;

    (void)state;
    /* The certificate's file has the key's mode here: what is not secret may have any. */
    for (size_t i = 0; i < FERRY_ARRAY_LEN(files); i++) {
        struct ferry_tls_options options = {
            .cert = files[i].cert, .key = files[i].key, .ca = files[i].ca};

        assert_status(ferry_tls_open(&options, &tls), FERRY_ERR_CONFIG);
        if (strstr(ferry_last_error_text(), files[i].says) == NULL)
            fail_msg("\"%s\" is not in: %s", files[i].says, ferry_last_error_text());
        assert_null(tls);
    }
    struct ferry_tls_options options = {.cert = made->cert, .key = made->key, .ca = made->cert};

    assert_int_equal(chmod(made->key, 0644), 0);
    assert_status(ferry_tls_open(&options, &tls), FERRY_ERR_CONFIG);
    assert_non_null(strstr(ferry_last_error_text(), "chmod 600"));
    assert_int_equal(chmod(made->key, 0600), 0);
    options = (struct ferry_tls_options){.cert = nothing, .key = nothing, .ca = nothing};
    assert_ok(ferry_tls_open(&options, &tls));
    assert_null(tls);
}

int main(void)
{
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_a_plain_peer_is_told_from_tls),
        RIG_TEST(test_a_peer_that_leaves_in_the_middle),
        RIG_TEST(test_a_handshake_can_be_canceled_at_any_turn),
        RIG_TEST(test_data_right_behind_the_handshake_is_not_lost),
        RIG_TEST(test_a_name_that_the_certificate_lacks_is_refused),
        RIG_TEST(test_damage_on_the_wire_is_an_error),
        RIG_TEST(test_a_send_that_is_canceled_half_way_counts_as_sent),
        cmocka_unit_test(test_bad_files_are_refused_with_the_remedy),
    };
#undef RIG_TEST

    return rig_run_on_tls(tests, FERRY_ARRAY_LEN(tests));
}
