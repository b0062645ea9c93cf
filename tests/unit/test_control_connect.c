/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The staggered connect, on a virtual clock where time matters: order, fallback, and the reason
 * kept for every address (field report B05).
 */
#include "control/connect.h"

#include "support/process.h"
#include "test_control_support.h"

#include "base/text.h"

#define LIMIT_NS         (2 * FERRY_NS_PER_S)
#define BACKLOG_FILL_MAX 64

/* A listener whose queue is full: the kernel drops further attempts, as a dead host would. */
struct blackhole {
    int listen_fd;
    uint16_t port;
    int fds[BACKLOG_FILL_MAX];
    int count;
};

static void blackhole_open(struct blackhole *hole)
{
    hole->listen_fd = test_listen("127.0.0.1", &hole->port, 0);
    hole->count = 0;
    while (hole->count < BACKLOG_FILL_MAX) {
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(hole->port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};

        addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        hole->fds[hole->count++] = fd;
        connect(fd, (struct sockaddr *)&addr, sizeof(addr));
        if (poll(&poll_fd, 1, 100) == 0)
            return; /* this one already hangs */
    }
    fail_msg("the queue of a listener never fills up");
}

static void blackhole_close(struct blackhole *hole)
{
    for (int i = 0; i < hole->count; i++)
        close(hole->fds[i]);
    close(hole->listen_fd);
}

static struct ferry_resolution to_ports(const uint16_t *ports, uint32_t count)
{
    struct ferry_resolution to = {.count = count};

    for (uint32_t i = 0; i < count; i++) {
        struct sockaddr_in *addr = (struct sockaddr_in *)(void *)&to.addrs[i].addr;

        addr->sin_family = AF_INET;
        addr->sin_port = htons(ports[i]);
        addr->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.addrs[i].len = sizeof(*addr);
    }
    return to;
}

/* Step at a fixed virtual time until the state is not RUNNING or the real time is up. */
static enum ferry_connect_state step_until_moved(struct ferry_connect *race, uint64_t now_ns)
{
    enum ferry_connect_state state;
    uint64_t until_ns = test_deadline_ms(10000);

    while ((state = ferry_connect_step(race, now_ns)) == FERRY_CONNECT_RUNNING &&
           test_now_ns() < until_ns)
        test_nap();
    return state;
}

static uint16_t peer_port(int fd)
{
    struct sockaddr_in addr;
    socklen_t len = sizeof(addr);

    assert_int_equal(getpeername(fd, (struct sockaddr *)&addr, &len), 0);
    return ntohs(addr.sin_port);
}

static void test_a_refused_address_gives_way_at_once(void **state)
{
    uint16_t ports[2];
    int dead = test_dead_port(&ports[0]);
    int listener = test_listen("127.0.0.1", &ports[1], 8);
    struct ferry_resolution to = to_ports(ports, 2);
    struct ferry_connect race;

    (void)state;
    ferry_connect_init(&race, &to, LIMIT_NS);
    assert_int_equal(step_until_moved(&race, 1000), FERRY_CONNECT_DONE);

    int fd = ferry_connect_take(&race);

    assert_int_equal(peer_port(fd), ports[1]);
    assert_int_equal(ferry_connect_take(&race), -1);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    ferry_connect_fini(&race);
    close(fd);
    close(listener);
    close(dead);
}

static void test_a_silent_address_gives_way_after_the_stagger(void **state)
{
    struct blackhole hole;
    uint16_t ports[2];
    struct ferry_connect race;
    int fds[FERRY_RESOLVE_ADDRS_MAX];
    int open_before = process_fd_count();

    (void)state;
    blackhole_open(&hole);
    ports[0] = hole.port;

    int listener = test_listen("127.0.0.1", &ports[1], 8);
    struct ferry_resolution to = to_ports(ports, 2);

    ferry_connect_init(&race, &to, LIMIT_NS);
    assert_int_equal(ferry_connect_step(&race, 1000), FERRY_CONNECT_RUNNING);
    assert_int_equal(ferry_connect_fds(&race, fds), 1);
    assert_int_equal(ferry_connect_due_ns(&race), 1000 + FERRY_CONNECT_STAGGER_NS);
    assert_int_equal(ferry_connect_step(&race, 999 + FERRY_CONNECT_STAGGER_NS),
                     FERRY_CONNECT_RUNNING);
    assert_int_equal(ferry_connect_fds(&race, fds), 1);
    assert_int_equal(step_until_moved(&race, 1000 + FERRY_CONNECT_STAGGER_NS), FERRY_CONNECT_DONE);

    int fd = ferry_connect_take(&race);

    assert_int_equal(peer_port(fd), ports[1]);
    close(fd);
    ferry_connect_fini(&race);
    close(listener);
    blackhole_close(&hole);
    assert_int_equal(process_fd_count(), open_before);
}

static void test_a_failure_names_every_address_and_its_reason(void **state)
{
    struct blackhole hole;
    uint16_t ports[2];
    struct ferry_connect race;
    char buf[512];
    char expected[512];
    struct ferry_text text;
    int dead;

    (void)state;
    blackhole_open(&hole);
    ports[0] = hole.port;
    dead = test_dead_port(&ports[1]);
    struct ferry_resolution to = to_ports(ports, 2);

    ferry_connect_init(&race, &to, LIMIT_NS);
    assert_int_equal(ferry_connect_step(&race, 1000), FERRY_CONNECT_RUNNING);
    assert_int_equal(ferry_connect_step(&race, 1000 + FERRY_CONNECT_STAGGER_NS),
                     FERRY_CONNECT_RUNNING);
    assert_int_equal(step_until_moved(&race, 1000 + LIMIT_NS), FERRY_CONNECT_FAILED);
    ferry_text_init(&text, buf, sizeof(buf));
    ferry_connect_describe(&race, &text);
    snprintf(expected, sizeof(expected),
             "127.0.0.1:%u: no answer, 127.0.0.1:%u: Connection refused (errno 111)", ports[0],
             ports[1]);
    assert_string_equal(buf, expected);
    assert_false(ferry_connect_hit_limit(&race));
    ferry_connect_fini(&race);
    close(dead);
    blackhole_close(&hole);
}

static void test_the_last_address_gets_its_whole_time(void **state)
{
    struct blackhole hole;
    struct ferry_connect race;

    (void)state;
    blackhole_open(&hole);
    struct ferry_resolution to = to_ports(&hole.port, 1);

    ferry_connect_init(&race, &to, LIMIT_NS);
    assert_int_equal(ferry_connect_step(&race, 1000), FERRY_CONNECT_RUNNING);
    assert_int_equal(ferry_connect_due_ns(&race), 1000 + LIMIT_NS);
    assert_int_equal(ferry_connect_step(&race, 999 + LIMIT_NS), FERRY_CONNECT_RUNNING);
    assert_int_equal(ferry_connect_step(&race, 1000 + LIMIT_NS), FERRY_CONNECT_FAILED);
    ferry_connect_fini(&race);
    blackhole_close(&hole);
}

static void test_fini_closes_what_nobody_took(void **state)
{
    uint16_t port;
    int listener = test_listen("127.0.0.1", &port, 8);
    struct ferry_resolution to = to_ports(&port, 1);
    struct ferry_connect race = {0};
    int before = process_fd_count();

    (void)state;
    ferry_connect_fini(&race);
    ferry_connect_init(&race, &to, LIMIT_NS);
    assert_int_equal(step_until_moved(&race, 1000), FERRY_CONNECT_DONE);
    ferry_connect_fini(&race);
    assert_int_equal(process_fd_count(), before);
    close(listener);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_address_gives_way_at_once),
        cmocka_unit_test(test_a_silent_address_gives_way_after_the_stagger),
        cmocka_unit_test(test_a_failure_names_every_address_and_its_reason),
        cmocka_unit_test(test_the_last_address_gets_its_whole_time),
        cmocka_unit_test(test_fini_closes_what_nobody_took),
    };

    return cmocka_run_group_tests_name("control connect", tests, NULL, NULL);
}
