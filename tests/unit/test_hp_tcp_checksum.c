/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksums as the serving side of hp_tcp handles them, towards a peer that writes its frames by
 * hand: who asks for them, what an answer carries, that a damaged WRITE is refused and nothing else
 * with it, and that a payload without its checksum ends the connection.
 */
#include <stdlib.h>

#include <ferry/ferry.h>

#include "base/checksum.h"
#include "memory/registry.h"
#include "runtime/seams.h"
#include "support/frame_peer.h"
#include "support/pattern.h"
#include "support/sanitizer.h"
#include "transport/transport.h"

#define SIZE  (1u << 20)
#define LARGE 300000u
#define BOTH  (FERRY_FEATURE_CHECKSUM | FERRY_FEATURE_SUMS_DUE)

struct rig {
    struct ferry_engine *engine;
    struct fenced memory;
    uint64_t id;
    uint16_t port;
    int fd;
    uint64_t next_id;
    uint64_t features; /* in force */
    uint8_t *buffer;   /* SIZE bytes */
};

static void rig_open(struct rig *rig, const char *checksum, uint64_t offer)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_config *config = NULL;
    struct ferry_transport *transport;
    struct ferry_registry_buffer buffer;
    struct ferry_hello_reply reply;
    char *attr = NULL;

    *rig = (struct rig){0};
    assert_ok(ferry_config_create(&config));
    if (TEST_THREAD_SANITIZER)
        assert_ok(ferry_config_set(config, "reactor", "epoll", FERRY_ORIGIN_API));
    assert_ok(ferry_config_set(config, "transports.hp_tcp.checksum", checksum, FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &rig->engine));
    ferry_config_destroy(config);
    assert_true(fenced_alloc(&rig->memory, SIZE, 24));
    pattern_fill(rig->memory.data, SIZE, 1, 0);
    range.addr = rig->memory.data;
    range.length = SIZE;
    range.permission = FERRY_PERMISSION_READ_WRITE;
    assert_ok(ferry_memory_register(rig->engine, &range, 1));
    transport = ferry_engine_transport(rig->engine, "hp_tcp");
    assert_ok(ferry_registry_find(transport->env->registry, (uintptr_t)range.addr, SIZE, &buffer));
    rig->id = buffer.registration_id;
    assert_ok(ferry_transport_describe(transport, &attr));
    rig->port = (uint16_t)atoi(strstr(attr, "\"port\":") + 7);
    free(attr);
    rig->buffer = malloc(SIZE);
    assert_non_null(rig->buffer);
    rig->fd = frame_peer_connect(rig->port, offer, &reply);
    rig->features = reply.features;
}

static void rig_close(struct rig *rig)
{
    close(rig->fd);
    assert_ok(ferry_engine_close(rig->engine));
    assert_true(fenced_intact(&rig->memory));
    fenced_free(&rig->memory);
    free(rig->buffer);
}

static struct ferry_frame request(struct rig *rig, uint8_t type, uint64_t offset, uint64_t length)
{
    return (struct ferry_frame){.type = type,
                                .request_id = ++rig->next_id,
                                .registration_id = rig->id,
                                .remote_addr = (uintptr_t)rig->memory.data + offset,
                                .length = length};
}

/* WRITE bytes of a pattern, with a checksum that is wrong by @wrong; the answer. */
static struct ferry_frame write_bytes(struct rig *rig, uint64_t offset, uint64_t length,
                                      uint64_t seed, uint32_t wrong)
{
    struct ferry_frame frame = request(rig, FERRY_FRAME_WRITE, offset, length);
    struct ferry_frame reply;

    pattern_fill(rig->buffer, length, seed, offset);
    frame.flags = FERRY_FLAG_CHECKSUM;
    frame.checksum = ferry_crc32c(0, rig->buffer, length) ^ wrong;
    frame_peer_send_frame(rig->fd, &frame);
    frame_peer_send(rig->fd, rig->buffer, length);
    reply = frame_peer_frame(rig->fd);
    assert_int_equal(reply.type, FERRY_FRAME_WRITE_REPLY);
    assert_int_equal(reply.request_id, frame.request_id);
    return reply;
}

static void check_read(struct rig *rig, uint64_t offset, uint64_t length)
{
    struct ferry_frame frame = request(rig, FERRY_FRAME_READ, offset, length);
    struct ferry_frame reply;

    frame_peer_send_frame(rig->fd, &frame);
    reply = frame_peer_frame(rig->fd);
    assert_int_equal(reply.status, FERRY_FRAME_OK);
    assert_int_equal(reply.length, length);
    assert_int_equal(reply.flags & FERRY_FLAG_CHECKSUM,
                     (rig->features & FERRY_FEATURE_CHECKSUM) != 0 ? FERRY_FLAG_CHECKSUM : 0);
    assert_int_equal(frame_peer_receive(rig->fd, rig->buffer, length), length);
    assert_memory_equal(rig->buffer, rig->memory.data + offset, length);
    if ((reply.flags & FERRY_FLAG_CHECKSUM) != 0)
        assert_int_equal(reply.checksum, ferry_crc32c(0, rig->buffer, length));
}

static void test_either_side_may_ask_for_checksums(void **state)
{
    static const struct {
        const char *setting;
        uint64_t offer;
        bool in_force;
    } cases[] = {
        {"false", 0, false},
        {"true", 0, false}, /* the peer does not know them */
        {"false", FERRY_FEATURE_CHECKSUM, false},
        {"true", FERRY_FEATURE_CHECKSUM, true},
        {"false", BOTH, true},
        {"true", BOTH, true},
        {"false", FERRY_FEATURE_SUMS_DUE, false}, /* asked for by one that does not know them */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rig rig;

        rig_open(&rig, cases[i].setting, cases[i].offer);
        assert_int_equal(rig.features & FERRY_FEATURE_CHECKSUM,
                         cases[i].in_force ? FERRY_FEATURE_CHECKSUM : 0);
        assert_int_equal(rig.features & ~cases[i].offer, 0);
        check_read(&rig, 5, 100);
        check_read(&rig, 77, LARGE);
        rig_close(&rig);
    }
}

static void test_a_damaged_write_is_refused_and_the_stream_goes_on(void **state)
{
    static const uint64_t lengths[] = {1, 100, 4096, LARGE, SIZE - 3};
    int small = 65536; /* so that a long payload arrives in several parts */
    struct rig rig;

    (void)state;
    rig_open(&rig, "false", BOTH);
    assert_int_equal(setsockopt(rig.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint32_t bit = 0; bit < 32; bit += 5) {
            struct ferry_frame reply = write_bytes(&rig, 3, lengths[i], 40 + i, 1u << bit);

            assert_int_equal(reply.status, FERRY_FRAME_CHECKSUM_BAD);
            assert_int_equal(reply.flags & FERRY_FLAG_NO_CLOSE, FERRY_FLAG_NO_CLOSE);
        }
        assert_int_equal(write_bytes(&rig, 3, lengths[i], 50 + i, 0).status, FERRY_FRAME_OK);
        assert_true(pattern_differs(rig.memory.data + 3, lengths[i], 50 + i, 3) == PATTERN_SAME);
        check_read(&rig, 0, lengths[i] + 3);
    }
    rig_close(&rig);
}

static void test_a_payload_without_its_checksum_ends_the_connection(void **state)
{
    struct rig rig;
    struct ferry_frame frame;

    (void)state;
    rig_open(&rig, "true", FERRY_FEATURE_CHECKSUM);
    frame = request(&rig, FERRY_FRAME_WRITE, 0, 8);
    frame_peer_send_frame(rig.fd, &frame);
    frame = frame_peer_frame(rig.fd);
    assert_int_equal(frame.status, FERRY_FRAME_BAD_REQUEST);
    assert_int_equal(frame.flags & FERRY_FLAG_NO_CLOSE, 0);
    assert_int_equal(frame_peer_receive(rig.fd, rig.buffer, 1), 0);
    assert_true(pattern_differs(rig.memory.data, SIZE, 1, 0) == PATTERN_SAME);
    rig_close(&rig);
}

static void test_a_checksum_that_was_not_agreed_on_ends_the_connection(void **state)
{
    struct rig rig;
    struct ferry_frame frame;

    (void)state;
    rig_open(&rig, "false", FERRY_FEATURE_CHECKSUM);
    frame = request(&rig, FERRY_FRAME_WRITE, 0, 8);
    frame.flags = FERRY_FLAG_CHECKSUM;
    frame_peer_send_frame(rig.fd, &frame);
    frame = frame_peer_frame(rig.fd);
    assert_int_equal(frame.status, FERRY_FRAME_UNSUPPORTED);
    assert_int_equal(frame_peer_receive(rig.fd, rig.buffer, 1), 0);
    assert_true(pattern_differs(rig.memory.data, SIZE, 1, 0) == PATTERN_SAME);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_either_side_may_ask_for_checksums),
        cmocka_unit_test(test_a_damaged_write_is_refused_and_the_stream_goes_on),
        cmocka_unit_test(test_a_payload_without_its_checksum_ends_the_connection),
        cmocka_unit_test(test_a_checksum_that_was_not_agreed_on_ends_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
