/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hp_tcp at the transport contract, without a runtime above it: two transports in one process, each
 * with a registry of its own, over real loopback. Every case runs on both reactors and in both
 * codecs (a peer whose attribute lacks the ferry mark is spoken to in v1).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "config/engine_options.h"
#include "memory/registry.h"
#include "metadata/document.h"
#include "pattern.h"
#include "test.h"
#include "transport/hp_tcp/hp_tcp.h"
#include "transport/hp_tcp/internal.h"
#include "transport/transport.h"
#include "wire/frame.h"

#define WAIT_NS (10 * FERRY_NS_PER_S)

struct side {
    struct ferry_config *config;
    struct ferry_registry registry;
    struct ferry_transport_env env;
    struct ferry_transport *transport;
    struct ferry_spin_budget budget;
};

struct variant {
    const char *reactor;
    const char *wait;
    bool v1;
};

struct rig {
    struct side target;
    struct side initiator;
    bool v1;
    size_t size;
    struct fenced remote_memory;
    struct fenced local_memory;
    unsigned char *remote; /* of the target */
    unsigned char *local;  /* of the initiator */
    struct ferry_target *view;
    struct ferry_transport_ops ops;
};

static void set(struct side *side, const char *name, const char *value)
{
    assert_int_equal(ferry_config_set(side->config, name, value, FERRY_ORIGIN_API), FERRY_OK);
}

static void side_open(struct side *side, const struct variant *variant, const char *incarnation,
                      const struct ferry_transport_ops *ops)
{
    const struct ferry_option_table *tables[] = {&ferry_engine_option_table, ops->options};
    struct ferry_registry_options registry = {.random = &ferry_random_system};

    assert_int_equal(ferry_config_create_with(tables, 2, &side->config), FERRY_OK);
    set(side, "reactor", variant->reactor);
    set(side, "wait", variant->wait);
    set(side, "transports.hp_tcp.worker_count", "2");
    set(side, "transports.hp_tcp.connect_timeout_ms", "500");
    set(side, "transports.hp_tcp.progress_timeout_ms", "2000");
    assert_int_equal(ferry_registry_init(&side->registry, &registry), FERRY_OK);
    side->budget.spinning_max = 1;
    side->env = (struct ferry_transport_env){
        .config = side->config,
        .clock = &ferry_clock_system,
        .random = &ferry_random_system,
        .registry = &side->registry,
        .segment_name = "test",
        .incarnation = incarnation,
        .advertise_host = "127.0.0.1",
        .budget = &side->budget,
    };
    if (ferry_transport_open(ops, &side->env, &side->transport) != FERRY_OK)
        fail_msg("%s", ferry_last_error_text());
}

static void side_close(struct side *side)
{
    ferry_transport_close(side->transport);
    ferry_registry_fini(&side->registry);
    ferry_config_destroy(side->config);
}

/* Cut the ferry mark out of a segment attribute, as a v1 engine would publish it. */
static void unmark(char *attr)
{
    char *mark = strstr(attr, "\"ferry\":{");
    char *end;

    assert_non_null(mark);
    end = strchr(mark, '}') + 2;
    memmove(mark, end, strlen(end) + 1);
}

static struct ferry_document *describe(struct rig *rig)
{
    struct ferry_registry_list list;
    struct ferry_document *doc;
    char *attr;

    assert_int_equal(ferry_document_create(&doc), FERRY_OK);
    doc->name = strdup("target");
    assert_int_equal(ferry_transport_describe(rig->target.transport, &attr), FERRY_OK);
    if (rig->v1)
        unmark(attr);
    assert_int_equal(ferry_document_add_attr(doc, FERRY_HP_TCP_WIRE_ID, attr), FERRY_OK);
    assert_int_equal(ferry_registry_list(&rig->target.registry, &list), FERRY_OK);
    for (uint32_t i = 0; i < list.count; i++) {
        const struct ferry_registry_buffer *b = &list.buffers[i];
        uint32_t index;

        if (b->permission == FERRY_PERMISSION_LOCAL)
            continue;
        assert_int_equal(ferry_document_add_buffer(doc, b->addr, b->length, b->location, &index),
                         FERRY_OK);
        assert_int_equal(ferry_transport_describe_buffer(rig->target.transport, b->registration_id,
                                                         b->permission, &attr),
                         FERRY_OK);
        assert_int_equal(ferry_document_add_buffer_attr(doc, index, FERRY_HP_TCP_WIRE_ID, attr),
                         FERRY_OK);
    }
    ferry_document_sort(doc);
    ferry_registry_list_free(&list);
    return doc;
}

static void view_open(struct rig *rig)
{
    struct ferry_document *doc = describe(rig);

    if (ferry_transport_target_open(rig->initiator.transport, doc, &rig->view) != FERRY_OK)
        fail_msg("%s", ferry_last_error_text());
    ferry_document_destroy(doc);
}

static void register_range(struct side *side, void *addr, size_t length,
                           enum ferry_permission permission)
{
    struct ferry_registry_spec spec = {
        .addr = (uintptr_t)addr, .length = length, .permission = permission};

    assert_int_equal(ferry_registry_register(&side->registry, &spec, 1), FERRY_OK);
}

static void rig_open(struct rig *rig, const struct variant *variant, size_t size)
{
    static const char *const incarnations[] = {"0123456789abcdef0123456789abcdef",
                                               "fedcba9876543210fedcba9876543210"};

    memset(rig, 0, sizeof(*rig));
    rig->v1 = variant->v1;
    rig->size = size;
    assert_int_equal(ferry_transport_ops_merge(&ferry_hp_tcp_ops, &rig->ops), FERRY_OK);
    side_open(&rig->target, variant, incarnations[0], &rig->ops);
    side_open(&rig->initiator, variant, incarnations[1], &rig->ops);
    assert_true(fenced_alloc(&rig->remote_memory, size, 24));
    assert_true(fenced_alloc(&rig->local_memory, size, 3));
    rig->remote = rig->remote_memory.data;
    rig->local = rig->local_memory.data;
    register_range(&rig->target, rig->remote, size, FERRY_PERMISSION_READ_WRITE);
    register_range(&rig->initiator, rig->local, size, FERRY_PERMISSION_LOCAL);
    view_open(rig);
}

static void rig_close(struct rig *rig)
{
    assert_true(fenced_intact(&rig->remote_memory));
    assert_true(fenced_intact(&rig->local_memory));
    ferry_transport_quiesce(rig->initiator.transport);
    ferry_transport_target_close(rig->view);
    ferry_transport_quiesce(rig->target.transport);
    side_close(&rig->initiator);
    side_close(&rig->target);
    fenced_free(&rig->remote_memory);
    fenced_free(&rig->local_memory);
}

/* ---- xfers ---- */

struct move {
    struct ferry_xfer xfer;
    _Atomic uint32_t ended;
};

static void on_ended(struct ferry_xfer *xfer)
{
    struct move *move = FERRY_CONTAINER_OF(xfer, struct move, xfer);

    atomic_fetch_add(&move->ended, 1);
}

static void move_init(struct move *move, struct rig *rig, enum ferry_opcode opcode, size_t offset,
                      size_t length)
{
    memset(move, 0, sizeof(*move));
    move->xfer.opcode = opcode;
    move->xfer.local = rig->local + offset;
    move->xfer.remote_addr = (uintptr_t)rig->remote + offset;
    move->xfer.length = length;
    move->xfer.target = rig->view;
    move->xfer.deadline_ns = FERRY_NO_DEADLINE;
    move->xfer.ended = on_ended;
}

static bool has_ended(void *arg)
{
    struct move *move = arg;

    return atomic_load(&move->ended) > 0;
}

static void wait_end(struct move *move)
{
    uint64_t deadline_ns = ferry_now_ns(&ferry_clock_system) + WAIT_NS;
    struct ferry_worker *driver = atomic_load(&move->xfer.driver);
    bool drove;

    while (!has_ended(move)) {
        assert_true(ferry_now_ns(&ferry_clock_system) < deadline_ns);
        if (driver != NULL)
            ferry_worker_drive(driver, has_ended, move, deadline_ns, &drove);
        sched_yield();
    }
    assert_int_equal(atomic_load(&move->ended), 1);
}

static enum ferry_status run(struct rig *rig, struct move *move)
{
    struct ferry_xfer *xfer = &move->xfer;

    assert_int_equal(ferry_transport_submit(rig->initiator.transport, &xfer, 1), FERRY_OK);
    wait_end(move);
    return move->xfer.status;
}

static void check_round_trip(struct rig *rig, uint64_t seed, size_t offset, size_t length)
{
    struct move move;

    pattern_fill(rig->local + offset, length, seed, offset);
    move_init(&move, rig, FERRY_WRITE, offset, length);
    assert_int_equal(run(rig, &move), FERRY_OK);
    assert_true(pattern_differs(rig->remote + offset, length, seed, offset) == PATTERN_SAME);
    pattern_fill(rig->local + offset, length, seed + 1, offset);
    move_init(&move, rig, FERRY_READ, offset, length);
    assert_int_equal(run(rig, &move), FERRY_OK);
    assert_true(pattern_differs(rig->local + offset, length, seed, offset) == PATTERN_SAME);
}

static const struct variant variants[] = {
    {"epoll", "adaptive", false}, {"epoll", "adaptive", true}, {"epoll", "sleep", false},
    {"uring", "adaptive", false}, {"uring", "adaptive", true}, {"uring", "sleep", false},
};

static bool usable(const struct variant *variant)
{
    struct ferry_reactor *reactor;
    struct ferry_reactor_options options = {
        .kind = strcmp(variant->reactor, "uring") == 0 ? FERRY_REACTOR_URING : FERRY_REACTOR_EPOLL,
        .clock = &ferry_clock_system,
    };

    if (ferry_reactor_open(&options, &reactor) != FERRY_OK) {
        print_message("SKIP %s: %s\n", variant->reactor, ferry_last_error_text());
        return false;
    }
    ferry_reactor_close(reactor);
    return true;
}

static void each_variant(size_t size, void (*test)(struct rig *rig))
{
    for (size_t i = 0; i < FERRY_ARRAY_LEN(variants); i++) {
        struct rig rig;

        if (!usable(&variants[i]))
            continue;
        rig_open(&rig, &variants[i], size);
        test(&rig);
        rig_close(&rig);
    }
}

/* ---- cases ---- */

static void sizes(struct rig *rig)
{
    static const size_t lengths[] = {1,       7,       4096,    16384,   16385,   65537,
                                     1048575, 1048576, 1048577, 1310721, 3145731, 8388608};

    for (size_t i = 0; i < FERRY_ARRAY_LEN(lengths); i++)
        check_round_trip(rig, 100 + i, i * 13, lengths[i]);
}

static void test_every_size_moves_both_ways(void **state)
{
    (void)state;
    each_variant(9u << 20, sizes);
}

static void many(struct rig *rig)
{
    enum { COUNT = 256, LENGTH = 4096 };
    static struct move moves[COUNT];
    struct ferry_xfer *xfers[COUNT];

    pattern_fill(rig->remote, rig->size, 9, 0);
    for (int round = 0; round < 20; round++) {
        pattern_fill(rig->local, rig->size, 10, 0);
        for (size_t i = 0; i < COUNT; i++) {
            move_init(&moves[i], rig, FERRY_READ, i * LENGTH, LENGTH);
            xfers[i] = &moves[i].xfer;
        }
        assert_int_equal(ferry_transport_submit(rig->initiator.transport, xfers, COUNT), FERRY_OK);
        for (size_t i = 0; i < COUNT; i++) {
            wait_end(&moves[i]);
            assert_int_equal(moves[i].xfer.status, FERRY_OK);
        }
        assert_true(pattern_differs(rig->local, rig->size, 9, 0) == PATTERN_SAME);
    }
}

static void test_many_small_reads_at_once_arrive_in_place(void **state)
{
    (void)state;
    each_variant(1u << 20, many);
}

/* How many of a group of requests took the lane that small ones have beside a large one. */
static uint64_t on_small_lane(struct rig *rig, size_t length)
{
    enum { COUNT = 16 };
    static struct move moves[1 + COUNT];
    struct ferry_xfer *xfers[1 + COUNT];
    struct hp_peer *peer = ((struct hp_target *)(void *)rig->view)->peer;
    _Atomic uint64_t *ops = &peer->lanes[peer->lane_count - 1].stats.ops;
    uint64_t before = atomic_load(ops);

    /* In one submission, so that each lane is chosen while the large one has not ended; each to a
     * place of its own. */
    for (size_t i = 0; i <= COUNT; i++) {
        if (i == 0)
            move_init(&moves[i], rig, FERRY_READ, 0, rig->size - COUNT * length);
        else
            move_init(&moves[i], rig, FERRY_READ, rig->size - i * length, length);
        xfers[i] = &moves[i].xfer;
    }
    assert_int_equal(ferry_transport_submit(rig->initiator.transport, xfers, 1 + COUNT), FERRY_OK);
    for (size_t i = 0; i <= COUNT; i++) {
        wait_end(&moves[i]);
        assert_int_equal(moves[i].xfer.status, FERRY_OK);
    }
    return atomic_load(ops) - before;
}

static void small_bound(struct rig *rig)
{
    uint64_t bound =
        ((struct hp_transport *)(void *)rig->initiator.transport)->settings.small_request_bytes;

    on_small_lane(rig, 1); /* until a small one has come, large ones take that lane too */
    assert_int_equal(on_small_lane(rig, bound), 16);
    assert_int_equal(on_small_lane(rig, bound + 1), 0);
    assert_int_equal(on_small_lane(rig, bound), 16);
}

/* A request of exactly small_request_bytes is a small one, and one byte more makes it a large one.
 */
static void test_the_bound_of_small_requests_is_exact(void **state)
{
    (void)state;
    each_variant(4u << 20, small_bound);
}

static void stale(struct rig *rig)
{
    struct ferry_registry_range range = {(uintptr_t)rig->remote, rig->size};
    struct ferry_unregister_plan plan = {
        .lease_deadline_ns = ferry_now_ns(&ferry_clock_system) + FERRY_NS_PER_S,
        .revoke_deadline_ns = ferry_now_ns(&ferry_clock_system) + FERRY_NS_PER_S};
    struct move move;

    check_round_trip(rig, 1, 0, 4096);
    assert_int_equal(ferry_registry_unregister(&rig->target.registry, &range, 1, &plan), FERRY_OK);
    move_init(&move, rig, FERRY_READ, 0, 4096);
    assert_int_equal(run(rig, &move), FERRY_ERR_RANGE);
    register_range(&rig->target, rig->remote, rig->size, FERRY_PERMISSION_READ_ONLY);
    pattern_fill(rig->remote, rig->size, 77, 0);
    move_init(&move, rig, FERRY_READ, 0, 4096);
    assert_int_equal(run(rig, &move), FERRY_ERR_STALE_KEY);
    /* A large one, so that the body of a refused WRITE is on its way when the answer comes. */
    move_init(&move, rig, FERRY_WRITE, 0, rig->size);
    assert_int_equal(run(rig, &move), FERRY_ERR_STALE_KEY);
    assert_true(pattern_differs(rig->remote, rig->size, 77, 0) == PATTERN_SAME);
    /* With the new description reading works and writing is refused before anything is sent. */
    ferry_transport_target_close(rig->view);
    view_open(rig);
    move_init(&move, rig, FERRY_READ, 0, rig->size);
    assert_int_equal(run(rig, &move), FERRY_OK);
    assert_true(pattern_differs(rig->local, rig->size, 77, 0) == PATTERN_SAME);
    move_init(&move, rig, FERRY_WRITE, 0, 4096);
    assert_int_equal(run(rig, &move), FERRY_ERR_PERMISSION);
    move_init(&move, rig, FERRY_READ, rig->size - 4095, 4096);
    assert_int_equal(run(rig, &move), FERRY_ERR_RANGE);
}

static void test_ids_permissions_and_ranges_are_enforced(void **state)
{
    (void)state;
    each_variant(8u << 20, stale);
}

static void cancelled(struct rig *rig)
{
    enum { COUNT = 64 };
    static struct move moves[COUNT];
    size_t length = rig->size / COUNT;

    pattern_fill(rig->remote, rig->size, 5, 0);
    for (size_t i = 0; i < COUNT; i++) {
        struct ferry_xfer *xfer = &moves[i].xfer;

        move_init(&moves[i], rig, FERRY_READ, i * length, length);
        assert_int_equal(ferry_transport_submit(rig->initiator.transport, &xfer, 1), FERRY_OK);
        if (i % 2 == 1) {
            atomic_store(&xfer->cancel_asked, true);
            ferry_transport_cancel(rig->initiator.transport, xfer);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        wait_end(&moves[i]);
        if (i % 2 == 0)
            assert_int_equal(moves[i].xfer.status, FERRY_OK);
        else
            assert_true(moves[i].xfer.status == FERRY_OK ||
                        moves[i].xfer.status == FERRY_ERR_CANCELED);
        if (moves[i].xfer.status == FERRY_OK)
            assert_true(pattern_differs(rig->local + i * length, length, 5, i * length) ==
                        PATTERN_SAME);
    }
    check_round_trip(rig, 6, 0, rig->size);
}

static void test_cancelled_reads_end_once_and_spare_the_others(void **state)
{
    (void)state;
    each_variant(16u << 20, cancelled);
}

static void closing(struct rig *rig)
{
    enum { COUNT = 16 };
    static struct move moves[COUNT];
    size_t length = rig->size / COUNT;

    for (size_t i = 0; i < COUNT; i++) {
        struct ferry_xfer *xfer = &moves[i].xfer;

        move_init(&moves[i], rig, i % 2 == 0 ? FERRY_READ : FERRY_WRITE, i * length, length);
        assert_int_equal(ferry_transport_submit(rig->initiator.transport, &xfer, 1), FERRY_OK);
    }
    ferry_transport_quiesce(rig->initiator.transport);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(atomic_load(&moves[i].ended), 1);
}

static void test_quiesce_ends_everything_once(void **state)
{
    (void)state;
    each_variant(32u << 20, closing);
}

/* ---- a peer that does not greet ---- */

static int connect_to(struct rig *rig)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    struct timeval patience = {.tv_sec = 5};
    char *attr;
    int fd;

    assert_int_equal(ferry_transport_describe(rig->target.transport, &attr), FERRY_OK);
    addr.sin_port = htons((uint16_t)atoi(strstr(attr, "\"port\":") + 7));
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    free(attr);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* Send a frame and read to the end of the stream; the status of the answer. */
static unsigned answer_to(struct rig *rig, const uint8_t *bytes, size_t size)
{
    uint8_t answer[512];
    struct ferry_frame frame = {0};
    ssize_t have = 0;
    ssize_t got;
    int fd = connect_to(rig);

    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
    /* A ring that this thread has driven may interrupt a call that has a timeout. */
    while ((got = recv(fd, answer + have, sizeof(answer) - (size_t)have, 0)) > 0 ||
           (got < 0 && errno == EINTR))
        have += got > 0 ? got : 0;
    assert_int_equal(got, 0);
    close(fd);
    assert_int_equal(ferry_frame_decode(answer, (size_t)have, &frame), FERRY_FRAME_VALID);
    assert_int_equal(frame.type, FERRY_FRAME_HELLO_REPLY);
    return frame.status;
}

static void ungreeted(struct rig *rig)
{
    struct ferry_frame frames[] = {
        {.type = FERRY_FRAME_READ, .request_id = 5, .registration_id = 1, .length = 64},
        {.type = FERRY_FRAME_WRITE, .request_id = 5, .registration_id = 1, .length = 64},
        {.type = FERRY_FRAME_READ_REPLY, .request_id = 5, .length = 64},
        {.type = FERRY_FRAME_WRITE_REPLY, .request_id = 5, .length = 64},
        {.type = FERRY_FRAME_GOODBYE, .goodbye_reason = FERRY_GOODBYE_IDLE},
        {.type = FERRY_FRAME_CREDIT, .flags = FERRY_FLAG_CREDIT, .credit_bytes = 1},
    };
    uint8_t bytes[FERRY_FRAME_PLAIN_MAX];

    for (size_t i = 0; i < FERRY_ARRAY_LEN(frames); i++) {
        size_t size = ferry_frame_encode(bytes, sizeof(bytes), &frames[i]);

        assert_true(size > 0);
        assert_int_equal(answer_to(rig, bytes, size), FERRY_FRAME_BAD_REQUEST);
        bytes[4] = 9; /* another version */
        assert_int_equal(answer_to(rig, bytes, size), FERRY_FRAME_UNSUPPORTED);
    }
    check_round_trip(rig, 1, 0, rig->size);
}

/* Every frame but a greeting once ended the serving process: its answer could not be encoded. */
static void test_a_peer_that_does_not_greet_is_refused(void **state)
{
    (void)state;
    each_variant(1u << 16, ungreeted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_size_moves_both_ways),
        cmocka_unit_test(test_many_small_reads_at_once_arrive_in_place),
        cmocka_unit_test(test_the_bound_of_small_requests_is_exact),
        cmocka_unit_test(test_ids_permissions_and_ranges_are_enforced),
        cmocka_unit_test(test_cancelled_reads_end_once_and_spare_the_others),
        cmocka_unit_test(test_quiesce_ends_everything_once),
        cmocka_unit_test(test_a_peer_that_does_not_greet_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
