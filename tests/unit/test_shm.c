/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm at the transport contract, without a runtime above it. The peer is a transport of its own, or
 * a script of this test: a target that answers wrongly or not at all, an initiator that asks for
 * what it must not get.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "config/engine_options.h"
#include "config/option.h"
#include "memory/alloc.h"
#include "support/pattern.h"
#include "support/test.h"
#include "transport/shm/internal.h"

#define LENGTH  65536u
#define OURS    "000102030405060708090a0b0c0d0e0f"
#define THEIRS  "101112131415161718191a1b1c1d1e1f"
#define MEET_MS "300"

struct side {
    struct ferry_config *config;
    struct ferry_registry registry;
    struct ferry_transport_env env;
    struct ferry_spin_budget budget;
    struct ferry_transport *transport;
};

static void side_open(struct side *side, const char *incarnation)
{
    const struct ferry_transport_ops *ops = ferry_transport_find("shm");
    const struct ferry_option_table *tables[] = {&ferry_engine_option_table, ops->options};
    struct ferry_registry_options registry = {.random = &ferry_random_system};

    memset(side, 0, sizeof(*side));
    assert_ok(ferry_config_create_with(tables, 2, &side->config));
    assert_ok(ferry_config_set(side->config, "transports.shm.meet_timeout_ms", MEET_MS,
                               FERRY_ORIGIN_API));
    assert_ok(ferry_registry_init(&side->registry, &registry));
    side->env = (struct ferry_transport_env){
        .config = side->config,
        .clock = &ferry_clock_system,
        .random = &ferry_random_system,
        .registry = &side->registry,
        .segment_name = "test",
        .incarnation = incarnation,
        .budget = &side->budget,
    };
    assert_ok(ferry_transport_open(ops, &side->env, &side->transport));
}

static void side_close(struct side *side)
{
    ferry_transport_quiesce(side->transport);
    ferry_transport_close(side->transport);
    ferry_registry_fini(&side->registry);
    ferry_config_destroy(side->config);
}

static struct shm_transport *inside(struct side *side)
{
    return ferry_shm_of(side->transport);
}

/* ---- a description ---- */

static struct ferry_document *describe(const char *segment_attr)
{
    struct ferry_document *doc = NULL;

    assert_ok(ferry_document_create(&doc));
    doc->name = strdup("peer");
    assert_ok(ferry_document_add_attr(doc, FERRY_SHM_WIRE_ID, strdup(segment_attr)));
    return doc;
}

static void add_buffer(struct ferry_document *doc, uint64_t addr, uint64_t id, uint32_t place,
                       bool shared)
{
    char text[256];
    uint32_t index;

    snprintf(text, sizeof(text),
             "{\"protocol\":\"ferry_shm\",\"version\":1,\"registration_id\":%llu,\"place\":%u,"
             "\"permission\":\"global_read_write\",\"shared\":%s}",
             (unsigned long long)id, place, shared ? "true" : "false");
    assert_ok(ferry_document_add_buffer(doc, addr, LENGTH, "*", &index));
    assert_ok(ferry_document_add_buffer_attr(doc, index, FERRY_SHM_WIRE_ID, strdup(text)));
    ferry_document_sort(doc);
}

/* ---- a target that is a script ---- */

struct script {
    char socket[64];
    int listener;
    int visitor;
    struct shm_board *board;
    struct shm_slots *slots;
    int board_fd;
    int slots_fd;
    uint8_t cookie[SHM_COOKIE_BYTES];
};

static void script_open(struct script *script)
{
    static uint32_t serial;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    void *map = NULL;

    memset(script, 0, sizeof(*script));
    script->visitor = -1;
    snprintf(script->socket, sizeof(script->socket), "@ferry-test-%d-%u", (int)getpid(), serial++);
    memcpy(address.sun_path + 1, script->socket + 1, strlen(script->socket) - 1);
    script->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(script->listener, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(script->socket))),
        0);
    assert_int_equal(listen(script->listener, 4), 0);
    assert_ok(ferry_shm_pages_create("board", sizeof(*script->board), &map, &script->board_fd));
    script->board = map;
    assert_ok(ferry_shm_pages_create("slots", sizeof(*script->slots), &map, &script->slots_fd));
    script->slots = map;
    pattern_fill(script->cookie, sizeof(script->cookie), 4, 0);
}

static void script_close(struct script *script)
{
    if (script->visitor >= 0)
        close(script->visitor);
    close(script->listener);
    munmap(script->board, sizeof(*script->board));
    munmap(script->slots, sizeof(*script->slots));
    close(script->board_fd);
    close(script->slots_fd);
}

static void receive(int fd, struct shm_message *message_out)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&wait, 1, 5000), 1);
    assert_ok(ferry_shm_message_receive(fd, message_out));
}

static void script_hello(struct script *script)
{
    struct shm_message message;

    script->visitor = accept4(script->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(script->visitor >= 0);
    receive(script->visitor, &message);
    assert_int_equal(message.kind, SHM_HELLO);
    assert_int_equal(message.to[0], 0x10);
}

static void script_welcome(struct script *script, uint64_t cookie_addr)
{
    struct shm_message message = {.kind = SHM_WELCOME,
                                  .cookie_addr = cookie_addr,
                                  .fds = {script->board_fd, script->slots_fd}};

    memcpy(message.cookie, script->cookie, sizeof(message.cookie));
    assert_ok(ferry_shm_message_send(script->visitor, &message));
}

/* To the question about a buffer: where it is. */
static void script_mapped(struct script *script, uint64_t addr, uint64_t length, bool writable)
{
    struct shm_message message;

    receive(script->visitor, &message);
    assert_int_equal(message.kind, SHM_MAP);
    message = (struct shm_message){.kind = SHM_MAPPED,
                                   .id = message.id,
                                   .addr = addr,
                                   .length = length,
                                   .writable = writable,
                                   .fds = {-1, -1}};
    assert_ok(ferry_shm_message_send(script->visitor, &message));
}

static struct ferry_document *script_document(struct side *side, const struct script *script)
{
    char text[512];

    snprintf(text, sizeof(text),
             "{\"protocol\":\"ferry_shm\",\"version\":1,\"boot_id\":\"%s\",\"socket\":\"%s\","
             "\"network\":%llu,\"user\":%u,\"incarnation\":\"" THEIRS "\","
             "\"max_transfer_bytes\":1048576}",
             inside(side)->boot_id, script->socket, (unsigned long long)inside(side)->network,
             geteuid());
    return describe(text);
}

/* ---- requests ---- */

struct request {
    struct ferry_xfer xfer;
    _Atomic bool ended;
};

static void on_end(struct ferry_xfer *xfer)
{
    atomic_store(&FERRY_CONTAINER_OF(xfer, struct request, xfer)->ended, true);
}

static void submit(struct side *side, struct ferry_target *target, enum ferry_opcode opcode,
                   void *local, uint64_t remote, struct request *request)
{
    struct ferry_xfer *xfer = &request->xfer;

    memset(request, 0, sizeof(*request));
    xfer->opcode = opcode;
    xfer->local = local;
    xfer->remote_addr = remote;
    xfer->length = LENGTH;
    xfer->target = target;
    xfer->deadline_ns = FERRY_NO_DEADLINE;
    xfer->ended = on_end;
    assert_ok(ferry_transport_submit(side->transport, &xfer, 1));
}

static enum ferry_status end_of(struct request *request)
{
    assert_within_ms(atomic_load(&request->ended), 5000);
    return request->xfer.status;
}

static enum ferry_status run(struct side *side, struct ferry_target *target,
                             enum ferry_opcode opcode, void *local, uint64_t remote)
{
    struct request request;

    submit(side, target, opcode, local, remote, &request);
    return end_of(&request);
}

static bool reach_is(struct ferry_target *target, uint64_t addr, enum ferry_reach wanted)
{
    return ferry_transport_target_reach(target, addr, LENGTH, NULL) == wanted;
}

static void expect_why(struct ferry_target *target, uint64_t addr, const char *word)
{
    char why[FERRY_REACH_TEXT_SIZE];

    assert_int_not_equal(ferry_transport_target_reach(target, addr, LENGTH, why), FERRY_REACH_YES);
    if (strstr(why, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", why, word);
}

/* ---- tests: as initiator ---- */

static unsigned char theirs[LENGTH];
static unsigned char ours[LENGTH];

/* An initiator, a scripted target, and the initiator's view of one buffer of it. */
struct stage {
    struct side side;
    struct script script;
    struct ferry_document *doc;
    struct ferry_target *target;
};

/* The buffer is registration 33; @listed: its place on the board says so. */
static void stage_open(struct stage *stage, uint64_t addr, uint32_t place, bool listed)
{
    *stage = (struct stage){0};
    side_open(&stage->side, OURS);
    script_open(&stage->script);
    if (listed)
        atomic_store(&stage->script.board->ids[place], 33);
    stage->doc = script_document(&stage->side, &stage->script);
    add_buffer(stage->doc, addr, 33, place, false);
    assert_ok(ferry_transport_target_open(stage->side.transport, stage->doc, &stage->target));
}

static void stage_close(struct stage *stage)
{
    ferry_transport_target_close(stage->target);
    ferry_document_destroy(stage->doc);
    side_close(&stage->side);
    script_close(&stage->script);
}

/*
 * The target's number may be another process's. Here it is ours, and has the memory; only the
 * cookie is not there.
 */
static void test_brought_memory_is_not_touched_without_the_cookie(void **state)
{
    struct stage stage;

    (void)state;
    stage_open(&stage, (uintptr_t)theirs, 3, true);
    script_hello(&stage.script);
    assert_true(reach_is(stage.target, (uintptr_t)theirs, FERRY_REACH_UNKNOWN));
    expect_why(stage.target, (uintptr_t)theirs, "not met");
    script_welcome(&stage.script, (uintptr_t)ours); /* not where the cookie is */
    assert_within_ms(reach_is(stage.target, (uintptr_t)theirs, FERRY_REACH_NO), 5000);
    expect_why(stage.target, (uintptr_t)theirs, "cookie");
    memset(ours, 1, sizeof(ours));
    memset(theirs, 2, sizeof(theirs));
    assert_int_equal(run(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs),
                     FERRY_ERR_UNSUPPORTED);
    assert_int_equal(run(&stage.side, stage.target, FERRY_WRITE, ours, (uintptr_t)theirs),
                     FERRY_ERR_UNSUPPORTED);
    assert_int_equal(ours[0], 1);
    assert_int_equal(theirs[0], 2);
    stage_close(&stage);
}

static void test_a_copy_needs_the_place_on_the_board(void **state)
{
    struct request request;
    struct stage stage;

    (void)state;
    stage_open(&stage, (uintptr_t)theirs, 3, true);
    script_hello(&stage.script);
    script_welcome(&stage.script, (uintptr_t)stage.script.cookie);
    assert_within_ms(reach_is(stage.target, (uintptr_t)theirs, FERRY_REACH_YES), 5000);
    pattern_fill(theirs, sizeof(theirs), 5, 0);
    submit(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs, &request);
    script_mapped(&stage.script, (uintptr_t)theirs, LENGTH, true);
    assert_int_equal(end_of(&request), FERRY_OK);
    assert_int_equal(pattern_differs(ours, sizeof(ours), 5, 0), PATTERN_SAME);
    assert_false(ferry_shm_slots_hold(stage.script.slots, 0));
    /* The place is another's now, then nobody's, then the target closes. */
    memset(ours, 1, sizeof(ours));
    atomic_store(&stage.script.board->ids[3], 34);
    assert_int_equal(run(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs),
                     FERRY_ERR_STALE_KEY);
    atomic_store(&stage.script.board->ids[3], 0);
    assert_int_equal(run(&stage.side, stage.target, FERRY_WRITE, ours, (uintptr_t)theirs),
                     FERRY_ERR_STALE_KEY);
    atomic_store(&stage.script.board->ids[3], 33);
    atomic_store(&stage.script.board->closing, 1);
    assert_int_equal(run(&stage.side, stage.target, FERRY_WRITE, ours, (uintptr_t)theirs),
                     FERRY_ERR_PEER_GONE);
    assert_int_equal(ours[0], 1);
    assert_int_equal(pattern_differs(theirs, sizeof(theirs), 5, 0), PATTERN_SAME);
    assert_int_equal(run(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs + 1),
                     FERRY_ERR_RANGE);
    stage_close(&stage);
}

/* A description that a store has changed leads nowhere: the target says what its buffer is. */
static void test_the_target_says_where_its_buffer_is(void **state)
{
    static unsigned char secret[LENGTH];
    static const struct {
        uint64_t length;
        bool elsewhere, writable;
        enum ferry_status read, write;
    } cases[] = {
        {LENGTH, true, true, FERRY_ERR_RANGE, FERRY_ERR_RANGE},
        {LENGTH - 1, false, true, FERRY_ERR_RANGE, FERRY_ERR_RANGE},
        {LENGTH, false, false, FERRY_OK, FERRY_ERR_PERMISSION},
        {0, false, true, FERRY_ERR_STALE_KEY, FERRY_ERR_STALE_KEY},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct request request;
        struct stage stage;

        stage_open(&stage, (uintptr_t)secret, 3, true);
        script_hello(&stage.script);
        script_welcome(&stage.script, (uintptr_t)stage.script.cookie);
        memset(secret, 3, sizeof(secret));
        memset(ours, 1, sizeof(ours));
        submit(&stage.side, stage.target, FERRY_WRITE, ours, (uintptr_t)secret, &request);
        script_mapped(&stage.script, (uintptr_t)(cases[i].elsewhere ? theirs : secret),
                      cases[i].length, cases[i].writable);
        assert_int_equal(end_of(&request), cases[i].write);
        assert_int_equal(secret[0], 3);
        assert_int_equal(run(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)secret),
                         cases[i].read);
        assert_int_equal(ours[0], cases[i].read == FERRY_OK ? 3 : 1);
        stage_close(&stage);
    }
}

/* A request waits for the meeting, and its end is bounded; a later meeting may work. */
static void test_a_target_that_does_not_answer_is_given_up_and_asked_again(void **state)
{
    struct request request;
    struct stage stage;

    (void)state;
    stage_open(&stage, (uintptr_t)theirs, 0, true);
    submit(&stage.side, stage.target, FERRY_WRITE, ours, (uintptr_t)theirs, &request);
    assert_within_ms(atomic_load(&request.ended), 5000);
    assert_int_equal(request.xfer.status, FERRY_ERR_PEER_GONE);
    assert_true(request.xfer.unapplied);
    expect_why(stage.target, (uintptr_t)theirs, "did not answer");
    script_hello(&stage.script); /* of the first meeting, which is over */
    close(stage.script.visitor);
    /* That request was the reason to ask once more, a little later. */
    assert_within_ms(
        poll(&(struct pollfd){.fd = stage.script.listener, .events = POLLIN}, 1, 0) == 1, 5000);
    script_hello(&stage.script);
    script_welcome(&stage.script, (uintptr_t)stage.script.cookie);
    submit(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs, &request);
    script_mapped(&stage.script, (uintptr_t)theirs, LENGTH, true);
    assert_int_equal(end_of(&request), FERRY_OK);
    stage_close(&stage);
}

static void test_a_request_that_waits_can_be_canceled(void **state)
{
    struct request canceled, late;
    struct stage stage;

    (void)state;
    stage_open(&stage, (uintptr_t)theirs, 0, false);
    submit(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs, &canceled);
    submit(&stage.side, stage.target, FERRY_READ, ours, (uintptr_t)theirs, &late);
    atomic_store(&canceled.xfer.cancel_asked, true);
    ferry_transport_cancel(stage.side.transport, &canceled.xfer);
    assert_within_ms(atomic_load(&canceled.ended), 5000);
    assert_int_equal(canceled.xfer.status, FERRY_ERR_CANCELED);
    ferry_transport_quiesce(stage.side.transport);
    assert_true(atomic_load(&late.ended));
    assert_true(late.xfer.status == FERRY_ERR_CLOSING || late.xfer.status == FERRY_ERR_PEER_GONE);
    stage_close(&stage);
}

static void test_another_place_is_said_to_be_one(void **state)
{
    static const struct {
        const char *from, *to, *why;
    } changes[] = {
        {"\"boot_id\":\"", "\"boot_id\":\"f", "another host"},
        {"\"user\":", "\"user\":4", "belongs to user"},
        {"\"network\":", "\"network\":1", "network namespace"},
        {"\"version\":1", "\"version\":2", "version"},
    };
    struct ferry_target *target = NULL;
    struct side side;

    (void)state;
    side_open(&side, OURS);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct ferry_document *doc;
        char text[600];
        char *attr = NULL;
        char *at;

        assert_ok(ferry_transport_describe(side.transport, &attr));
        at = strstr(attr, changes[i].from);
        assert_non_null(at);
        snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - attr), attr, changes[i].to,
                 at + strlen(changes[i].from));
        doc = describe(text);
        assert_true(ferry_transport_target_open(side.transport, doc, &target) != FERRY_OK);
        if (strstr(ferry_last_error_text(), changes[i].why) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", ferry_last_error_text(), changes[i].why);
        ferry_document_destroy(doc);
        free(attr);
    }
    side_close(&side);
}

/* ---- tests: as target ---- */

static int visit_as(struct side *side, uint8_t flip)
{
    const char *name = inside(side)->socket;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct shm_message hello = {.kind = SHM_HELLO, .fds = {-1, -1}};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    memcpy(hello.to, inside(side)->incarnation, sizeof(hello.to));
    hello.to[0] ^= flip;
    assert_ok(ferry_shm_message_send(fd, &hello));
    return fd;
}

static int visit(struct side *side)
{
    return visit_as(side, 0);
}

static void ask_map(int fd, uint64_t id, uint32_t place, struct shm_message *answer_out)
{
    struct shm_message question = {.kind = SHM_MAP, .id = id, .index = place, .fds = {-1, -1}};

    assert_ok(ferry_shm_message_send(fd, &question));
    receive(fd, answer_out);
    assert_int_equal(answer_out->kind, SHM_MAPPED);
    assert_int_equal(answer_out->id, id);
}

/* A visitor gets what the permission says, and nothing that it does not know the id of. */
static void test_a_read_only_buffer_is_given_for_reading(void **state)
{
    struct ferry_pages_options options = {.location = {.numa_node = FERRY_LOCATION_ANY_NODE},
                                          .shared = true};
    struct ferry_registry_buffer buffer = {.registration_id = 7, .location = "*"};
    struct shm_message message;
    struct ferry_pages pages = {0};
    struct side side;
    void *map = NULL;
    int fd;

    (void)state;
    side_open(&side, THEIRS);
    assert_ok(ferry_pages_alloc(LENGTH, &options, &pages));
    buffer.addr = (uintptr_t)pages.addr;
    buffer.length = pages.length;
    buffer.fd = pages.fd;
    buffer.permission = FERRY_PERMISSION_READ_ONLY;
    assert_ok(ferry_transport_add_buffer(side.transport, &buffer));
    buffer.registration_id = 8;
    buffer.permission = FERRY_PERMISSION_LOCAL;
    assert_ok(ferry_transport_add_buffer(side.transport, &buffer));
    fd = visit(&side);
    receive(fd, &message);
    assert_int_equal(message.kind, SHM_WELCOME);
    /* The board is for reading, too. */
    assert_true(ferry_shm_map(message.fds[0], sizeof(struct shm_board), true, &map) != FERRY_OK);
    ferry_shm_message_close_fds(&message);

    ask_map(fd, 7, 0, &message);
    assert_false(message.writable);
    assert_true(message.fds[0] >= 0);
    assert_true(ferry_shm_map(message.fds[0], pages.length, true, &map) != FERRY_OK);
    assert_ok(ferry_shm_map(message.fds[0], pages.length, false, &map));
    assert_int_equal(mprotect(map, pages.length, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(munmap(map, pages.length), 0);
    ferry_shm_message_close_fds(&message);
    /* Local memory, another place, an id of nobody. */
    ask_map(fd, 8, 1, &message);
    assert_int_equal(message.fds[0], -1);
    ask_map(fd, 7, 1, &message);
    assert_int_equal(message.fds[0], -1);
    ask_map(fd, 9, 0, &message);
    assert_int_equal(message.fds[0], -1);
    /* One that goes is told, and is not to be had any more. */
    assert_ok(ferry_transport_remove_buffer(side.transport, 7, test_deadline_ms(1000)));
    receive(fd, &message);
    assert_int_equal(message.kind, SHM_CHANGED);
    ask_map(fd, 7, 0, &message);
    assert_int_equal(message.fds[0], -1);
    close(fd);
    side_close(&side);
    ferry_pages_free(&pages);
}

/* A visitor that says that it copies holds the buffer; hanging up does not change that while it
 * lives. */
static void test_a_buffer_waits_for_the_slots_of_a_peer_that_lives(void **state)
{
    struct ferry_registry_buffer buffer = {.registration_id = 7,
                                           .addr = (uintptr_t)theirs,
                                           .length = sizeof(theirs),
                                           .permission = FERRY_PERMISSION_READ_WRITE,
                                           .location = "*",
                                           .fd = -1};
    struct shm_message message;
    struct shm_slots *slots;
    struct side side;
    void *map = NULL;
    int fd;

    (void)state;
    side_open(&side, THEIRS);
    assert_ok(ferry_transport_add_buffer(side.transport, &buffer));
    fd = visit(&side);
    receive(fd, &message);
    assert_ok(ferry_shm_map(message.fds[1], sizeof(*slots), true, &map));
    slots = map;
    ferry_shm_message_close_fds(&message);
    atomic_store(&slots->slot[2].id, 7);
    assert_status(ferry_transport_remove_buffer(side.transport, 7, test_deadline_ms(20)),
                  FERRY_ERR_BUSY);
    close(fd);
    assert_status(ferry_transport_remove_buffer(side.transport, 7, test_deadline_ms(50)),
                  FERRY_ERR_BUSY);
    atomic_store(&slots->slot[2].id, 0);
    assert_ok(ferry_transport_remove_buffer(side.transport, 7, test_deadline_ms(1000)));
    assert_ok(ferry_transport_remove_buffer(side.transport, 7, test_deadline_ms(1000)));
    munmap(map, sizeof(*slots));
    side_close(&side);
}

static void test_a_hello_for_another_life_is_refused(void **state)
{
    struct shm_message message;
    struct side side;
    int fd;

    (void)state;
    side_open(&side, THEIRS);
    fd = visit_as(&side, 1);
    receive(fd, &message);
    assert_int_equal(message.kind, SHM_REFUSED);
    close(fd);
    fd = visit(&side);
    receive(fd, &message);
    assert_int_equal(message.kind, SHM_WELCOME);
    ferry_shm_message_close_fds(&message);
    /* A second hello does not belong here. */
    message = (struct shm_message){.kind = SHM_HELLO, .fds = {-1, -1}};
    assert_ok(ferry_shm_message_send(fd, &message));
    receive(fd, &message);
    assert_int_equal(message.kind, SHM_REFUSED);
    close(fd);
    side_close(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_brought_memory_is_not_touched_without_the_cookie),
        cmocka_unit_test(test_a_copy_needs_the_place_on_the_board),
        cmocka_unit_test(test_the_target_says_where_its_buffer_is),
        cmocka_unit_test(test_a_target_that_does_not_answer_is_given_up_and_asked_again),
        cmocka_unit_test(test_a_request_that_waits_can_be_canceled),
        cmocka_unit_test(test_another_place_is_said_to_be_one),
        cmocka_unit_test(test_a_read_only_buffer_is_given_for_reading),
        cmocka_unit_test(test_a_buffer_waits_for_the_slots_of_a_peer_that_lives),
        cmocka_unit_test(test_a_hello_for_another_life_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
