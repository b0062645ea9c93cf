/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests with lists as the serving side of hp_tcp gets them, by a peer that writes its frames by
 * hand: what is served, that every range of a list is checked and held, and that a peer that does
 * not read its answers costs bounded memory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "memory/registry.h"
#include "runtime/seams.h"
#include "support/frame_peer.h"
#include "support/pattern.h"
#include "support/sanitizer.h"
#include "support/test.h"
#include "transport/transport.h"
#include "wire/frame.h"

#define SIZE    (4u << 20)
#define ENTRIES FERRY_SCATTER_COUNT_MAX

struct rig {
    struct ferry_engine *engine;
    uint16_t port;
    struct fenced memory[3]; /* read-write, read-write, read-only */
    uint64_t id[3];
    int fd;
    uint64_t next_id;
    uint64_t features; /* that are offered */
    uint8_t header[FERRY_FRAME_HEADER_MAX];
    uint8_t *buffer; /* SIZE bytes */
};

static void rig_register(struct rig *rig, int index, enum ferry_permission permission)
{
    struct ferry_transport *transport = ferry_engine_transport(rig->engine, "hp_tcp");
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_registry_buffer buffer;

    range.addr = rig->memory[index].data;
    range.length = SIZE;
    range.permission = permission;
    assert_ok(ferry_memory_register(rig->engine, &range, 1));
    assert_ok(ferry_registry_find(transport->env->registry, (uintptr_t)range.addr, SIZE, &buffer));
    rig->id[index] = buffer.registration_id;
}

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_config *config = NULL;
    char *attr = NULL;

    assert_non_null(rig);
    assert_ok(ferry_config_create(&config));
    if (TEST_THREAD_SANITIZER)
        assert_ok(ferry_config_set(config, "reactor", "epoll", FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &rig->engine));
    ferry_config_destroy(config);
    for (int i = 0; i < 3; i++) {
        assert_true(fenced_alloc(&rig->memory[i], SIZE, 24));
        pattern_fill(rig->memory[i].data, SIZE, 10 + (uint64_t)i, 0);
        rig_register(rig, i, i < 2 ? FERRY_PERMISSION_READ_WRITE : FERRY_PERMISSION_READ_ONLY);
    }
    assert_ok(ferry_transport_describe(ferry_engine_transport(rig->engine, "hp_tcp"), &attr));
    rig->port = (uint16_t)atoi(strstr(attr, "\"port\":") + 7);
    free(attr);
    rig->buffer = malloc(SIZE);
    assert_non_null(rig->buffer);
    rig->fd = -1;
    rig->features = FERRY_FEATURE_SCATTER;
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;

    if (rig->fd >= 0)
        close(rig->fd);
    assert_ok(ferry_engine_close(rig->engine));
    for (int i = 0; i < 3; i++) {
        assert_true(fenced_intact(&rig->memory[i]));
        fenced_free(&rig->memory[i]);
    }
    free(rig->buffer);
    free(rig);
    return 0;
}

static void rig_connect(struct rig *rig)
{
    struct ferry_hello_reply reply;

    if (rig->fd >= 0)
        close(rig->fd);
    rig->fd = frame_peer_connect(rig->port, rig->features, &reply);
    assert_int_equal(reply.features & FERRY_FEATURE_SCATTER, rig->features);
}

/* Send a request with a list; returns its id. */
static uint64_t request(struct rig *rig, uint8_t type, const struct ferry_scatter *entries,
                        uint32_t count)
{
    struct ferry_frame frame = {
        .type = type, .flags = FERRY_FLAG_SCATTER, .request_id = ++rig->next_id};
    size_t size;

    for (uint32_t i = 0; i < count; i++) {
        ferry_scatter_put(rig->header + FERRY_FRAME_LIST_OFFSET, i, &entries[i]);
        frame.length += entries[i].length;
    }
    frame.list = (struct ferry_frame_list){rig->header + FERRY_FRAME_LIST_OFFSET, count};
    size = ferry_frame_encode(rig->header, sizeof(rig->header), &frame);
    assert_true(size > 0);
    frame_peer_send(rig->fd, rig->header, size);
    return frame.request_id;
}

/* @count entries over one memory: gaps between them, the last address first. */
static uint64_t make_entries(const struct rig *rig, int index, struct ferry_scatter *entries,
                             uint32_t count, uint32_t length)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        entries[i] = (struct ferry_scatter){
            .addr = (uintptr_t)rig->memory[index].data + (uint64_t)(count - 1 - i) * (length + 17),
            .length = length - i % 7,
            .registration_id = rig->id[index],
        };
        sum += entries[i].length;
    }
    return sum;
}

static uint64_t offset_of(const struct rig *rig, int index, const struct ferry_scatter *entry)
{
    return entry->addr - (uintptr_t)rig->memory[index].data;
}

static void expect_read(struct rig *rig, int index, const struct ferry_scatter *entries,
                        uint32_t count, uint64_t id)
{
    struct ferry_frame frame = frame_peer_frame(rig->fd);
    uint64_t at = 0;

    assert_int_equal(frame.type, FERRY_FRAME_READ_REPLY);
    assert_int_equal(frame.status, FERRY_FRAME_OK);
    assert_int_equal(frame.request_id, id);
    assert_int_equal(frame_peer_receive(rig->fd, rig->buffer, frame.length), frame.length);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(pattern_differs(rig->buffer + at, entries[i].length, 10 + (uint64_t)index,
                                         offset_of(rig, index, &entries[i])),
                         PATTERN_SAME);
        at += entries[i].length;
    }
    assert_int_equal(at, frame.length);
}

static void expect_status(struct rig *rig, uint8_t type, uint64_t id, uint16_t status)
{
    struct ferry_frame frame = frame_peer_frame(rig->fd);

    assert_int_equal(frame.type, type);
    assert_int_equal(frame.request_id, id);
    assert_int_equal(frame.status, status);
    if (status != FERRY_FRAME_OK)
        assert_int_equal(frame.flags & FERRY_FLAG_NO_CLOSE, FERRY_FLAG_NO_CLOSE);
}

static void expect_untouched(const struct rig *rig)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(pattern_differs(rig->memory[i].data, SIZE, 10 + (uint64_t)i, 0),
                         PATTERN_SAME);
}

/* Every shape of list: few and many, tiny (staged) and long (straight into place). */
static void test_lists_are_served_in_their_order(void **state)
{
    static const uint32_t counts[] = {1, 2, 63, ENTRIES};
    static const uint32_t lengths[] = {8, 900, 4000};
    struct rig *rig = *state;
    struct ferry_scatter entries[ENTRIES];

    rig_connect(rig);
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 3; k++) {
            uint64_t sum = make_entries(rig, 0, entries, counts[i], lengths[k]);
            uint64_t at = 0;
            uint64_t id = request(rig, FERRY_FRAME_READ, entries, counts[i]);

            expect_read(rig, 0, entries, counts[i], id);
            id = request(rig, FERRY_FRAME_WRITE, entries, counts[i]);
            pattern_fill(rig->buffer, sum, 77, 0);
            frame_peer_send(rig->fd, rig->buffer, sum);
            expect_status(rig, FERRY_FRAME_WRITE_REPLY, id, FERRY_FRAME_OK);
            for (uint32_t e = 0; e < counts[i]; e++) {
                unsigned char *place = rig->memory[0].data + offset_of(rig, 0, &entries[e]);

                assert_int_equal(pattern_differs(place, entries[e].length, 77, at), PATTERN_SAME);
                at += entries[e].length;
                /* As it was, so that what lies between them shows below. */
                pattern_fill(place, entries[e].length, 10, offset_of(rig, 0, &entries[e]));
            }
            expect_untouched(rig);
        }
    }
}

/* One wrong range, wherever it stands: the request is refused as a whole, and the stream goes on.
 */
static void test_one_wrong_range_refuses_the_list(void **state)
{
    static const uint32_t places[] = {0, 1, 30, 39};
    struct rig *rig = *state;
    struct ferry_scatter entries[40];

    rig_connect(rig);
    for (size_t i = 0; i < 4; i++) {
        for (int wrong = 0; wrong < 4; wrong++) {
            uint64_t sum = make_entries(rig, 0, entries, 40, 2000);
            struct ferry_scatter *entry = &entries[places[i]];
            uint16_t status = FERRY_FRAME_RANGE;
            bool writes_only = false;
            uint64_t id;

            if (wrong == 0) {
                entry->addr = (uintptr_t)rig->memory[0].data + SIZE - entry->length + 1;
            } else if (wrong == 1) { /* there, but not under that id */
                entry->registration_id = rig->id[1];
                status = FERRY_FRAME_STALE_REGISTRATION;
            } else if (wrong == 2) {
                entry->addr = 64;
            } else {
                entry->addr = (uintptr_t)rig->memory[2].data;
                entry->registration_id = rig->id[2];
                status = FERRY_FRAME_PERMISSION;
                writes_only = true;
            }
            if (!writes_only) {
                id = request(rig, FERRY_FRAME_READ, entries, 40);
                expect_status(rig, FERRY_FRAME_READ_REPLY, id, status);
            }
            id = request(rig, FERRY_FRAME_WRITE, entries, 40);
            pattern_fill(rig->buffer, sum, 99, 0);
            frame_peer_send(rig->fd, rig->buffer, sum);
            expect_status(rig, FERRY_FRAME_WRITE_REPLY, id, status);
            expect_untouched(rig);
        }
    }
    make_entries(rig, 1, entries, 40, 2000);
    expect_read(rig, 1, entries, 40, request(rig, FERRY_FRAME_READ, entries, 40));
}

/*
 * Many long lists, and nobody takes the answers: what a session keeps of lists is bounded, so it
 * stops reading; each answer is right when it is taken at last.
 */
static void test_lists_wait_for_room(void **state)
{
    enum { LISTS = 14 };
    struct rig *rig = *state;
    static struct ferry_scatter entries[LISTS][ENTRIES];
    uint64_t ids[LISTS];
    int small = 65536;

    rig_connect(rig);
    setsockopt(rig->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    for (int i = 0; i < LISTS; i++) {
        uint32_t count = i % 3 == 0 ? ENTRIES : 500 + 40 * (uint32_t)i;

        make_entries(rig, i % 2, entries[i], count, 1500 + 50 * (uint32_t)i);
        ids[i] = request(rig, FERRY_FRAME_READ, entries[i], count);
    }
    for (int i = 0; i < LISTS; i++) {
        uint32_t count = i % 3 == 0 ? ENTRIES : 500 + 40 * (uint32_t)i;

        expect_read(rig, i % 2, entries[i], count, ids[i]);
    }
}

/* A range in the middle of a list that waits to be sent is held like the first one. */
static void test_every_range_of_a_list_is_held(void **state)
{
    struct rig *rig = *state;
    struct ferry_scatter entries[200];
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t left = 0;
    uint64_t got;
    int small = 65536;

    rig_connect(rig);
    setsockopt(rig->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    /* Pieces that overlap, all but one in the first memory: far more than the kernel has room for.
     */
    for (uint32_t i = 0; i < 200; i++) {
        entries[i] = (struct ferry_scatter){.addr = (uintptr_t)rig->memory[0].data + i,
                                            .length = 200000,
                                            .registration_id = rig->id[0]};
        left += entries[i].length;
    }
    left -= entries[150].length;
    entries[150] = (struct ferry_scatter){
        .addr = (uintptr_t)rig->memory[1].data, .length = 4096, .registration_id = rig->id[1]};
    left += 4096;
    request(rig, FERRY_FRAME_READ, entries, 200);
    /* The answer has begun. */
    assert_int_equal(frame_peer_frame(rig->fd).status, FERRY_FRAME_OK);
    range.addr = rig->memory[1].data;
    range.length = SIZE;
    assert_ok(ferry_memory_unregister(rig->engine, &range, 1, 0));
    pattern_fill(rig->memory[1].data, SIZE, 500, 0);
    /* Its connection was closed: what nobody may read any more does not leave. */
    while ((got = frame_peer_receive(rig->fd, rig->buffer, left < SIZE ? left : SIZE)) > 0)
        left -= got;
    assert_true(left > 0);
    pattern_fill(rig->memory[1].data, SIZE, 11, 0);
    rig_register(rig, 1, FERRY_PERMISSION_READ_WRITE);
    rig_connect(rig);
    make_entries(rig, 1, entries, 40, 2000);
    expect_read(rig, 1, entries, 40, request(rig, FERRY_FRAME_READ, entries, 40));
}

static void test_a_list_that_was_not_agreed_on_is_refused(void **state)
{
    struct rig *rig = *state;
    struct ferry_scatter entries[2];
    struct ferry_frame frame;

    rig->features = 0;
    rig_connect(rig);
    make_entries(rig, 0, entries, 2, 100);
    request(rig, FERRY_FRAME_READ, entries, 2);
    frame = frame_peer_frame(rig->fd);
    assert_int_equal(frame.status, FERRY_FRAME_UNSUPPORTED);
    assert_int_equal(frame.flags & FERRY_FLAG_NO_CLOSE, 0);
    assert_int_equal(frame_peer_receive(rig->fd, rig->buffer, 1), 0);
}

int main(void)
{
#define RIG_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_lists_are_served_in_their_order),
        RIG_TEST(test_one_wrong_range_refuses_the_list),
        RIG_TEST(test_lists_wait_for_room),
        RIG_TEST(test_every_range_of_a_list_is_held),
        RIG_TEST(test_a_list_that_was_not_agreed_on_is_refused),
    };
#undef RIG_TEST

    return cmocka_run_group_tests(tests, NULL, NULL);
}
