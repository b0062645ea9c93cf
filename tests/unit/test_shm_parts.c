/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of shm by themselves: messages, sealed memory, boards and slots, the cookie, and the
 * copy past the caches. One thread, but for the race of lease and removal.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/copy.h"
#include "memory/alloc.h"
#include "support/pattern.h"
#include "support/sanitizer.h"
#include "support/test.h"
#include "transport/shm/internal.h"

/* ---- messages ---- */

static struct shm_message sample(enum shm_message_kind kind)
{
    struct shm_message message = {.kind = kind, .fds = {-1, -1}};

    switch (kind) {
    case SHM_HELLO:
        pattern_fill(message.from, sizeof(message.from), 1, 0);
        pattern_fill(message.to, sizeof(message.to), 2, 0);
        break;
    case SHM_WELCOME:
        message.cookie_addr = UINT64_MAX - 5;
        pattern_fill(message.cookie, sizeof(message.cookie), 3, 0);
        break;
    case SHM_REFUSED:
        strcpy(message.text, "no");
        break;
    case SHM_MAP:
        message.index = UINT32_MAX;
        message.id = 1;
        break;
    case SHM_MAPPED:
        message.id = UINT64_MAX;
        message.addr = 4096;
        message.length = 1;
        message.writable = true;
        break;
    case SHM_CHANGED:
        break;
    }
    return message;
}

static void test_messages_read_back_as_they_were_written(void **state)
{
    (void)state;
    for (uint32_t kind = SHM_HELLO; kind <= SHM_CHANGED; kind++) {
        struct shm_message from = sample((enum shm_message_kind)kind);
        struct shm_message to;
        uint8_t buf[SHM_MESSAGE_MAX];
        size_t len = ferry_shm_message_encode(&from, buf);

        assert_ok(ferry_shm_message_decode(buf, len, &to));
        assert_memory_equal(&to, &from, sizeof(to));
        /* Neither shorter nor longer. */
        assert_status(ferry_shm_message_decode(buf, len - 1, &to), FERRY_ERR_PROTOCOL);
        assert_status(ferry_shm_message_decode(buf, len + 1, &to), FERRY_ERR_PROTOCOL);
    }
}

static void test_messages_that_are_none_are_refused(void **state)
{
    struct shm_message from = sample(SHM_MAP);
    struct shm_message to;
    uint8_t buf[SHM_MESSAGE_MAX];
    size_t len = ferry_shm_message_encode(&from, buf);

    (void)state;
    /* Magic, version and kind: no other byte is right in their place. */
    for (size_t at = 0; at < 12; at++) {
        for (uint32_t flip = 1; flip < 256; flip++) {
            uint8_t old = buf[at];

            buf[at] ^= (uint8_t)flip;
            assert_status(ferry_shm_message_decode(buf, len, &to), FERRY_ERR_PROTOCOL);
            buf[at] = old;
        }
    }
    assert_status(ferry_shm_message_decode(buf, 0, &to), FERRY_ERR_PROTOCOL);
    assert_ok(ferry_shm_message_decode(buf, len, &to));
}

static void test_messages_carry_descriptors(void **state)
{
    struct shm_message message = sample(SHM_WELCOME);
    int pair[2];
    int fds[3];
    char byte = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_status(ferry_shm_message_receive(pair[1], &message), FERRY_ERR_QUEUE_FULL);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    message.fds[0] = fds[0];
    message.fds[1] = fds[1];
    assert_ok(ferry_shm_message_send(pair[0], &message));
    close(fds[0]);
    close(fds[1]);
    assert_ok(ferry_shm_message_receive(pair[1], &message));
    assert_int_equal(fcntl(message.fds[0], F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(message.fds[1], "x", 1), 1);
    assert_int_equal(read(message.fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'x');
    ferry_shm_message_close_fds(&message);
    assert_int_equal(message.fds[0], -1);
    close(pair[0]);
    assert_status(ferry_shm_message_receive(pair[1], &message), FERRY_ERR_PEER_GONE);
    assert_status(ferry_shm_message_send(pair[1], &message), FERRY_ERR_PEER_GONE);
    close(pair[1]);
}

/* ---- memory ---- */

static void test_shared_memory_cannot_be_made_shorter_or_longer(void **state)
{
    void *map = NULL;
    void *again = NULL;
    int fd = -1;

    (void)state;
    assert_ok(ferry_shm_pages_create("test", 8192, &map, &fd));
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 16384), -1);
    assert_ok(ferry_shm_map(fd, 8192, true, &again));
    *(unsigned char *)again = 7;
    assert_int_equal(*(unsigned char *)map, 7);
    assert_int_equal(munmap(again, 8192), 0);
    /* What a peer sends must have the length that it says. */
    assert_status(ferry_shm_map(fd, 4096, true, &again), FERRY_ERR_PROTOCOL);
    assert_status(ferry_shm_map(fd, 12288, true, &again), FERRY_ERR_PROTOCOL);
    assert_int_equal(munmap(map, 8192), 0);
    close(fd);
}

static void test_memory_that_can_be_made_shorter_is_not_mapped(void **state)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map = NULL;

    (void)state;
    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_status(ferry_shm_map(fd, 4096, false, &map), FERRY_ERR_PROTOCOL);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_status(ferry_shm_map(fd, 4096, false, &map), FERRY_ERR_PROTOCOL);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    assert_ok(ferry_shm_map(fd, 4096, false, &map));
    assert_int_equal(munmap(map, 4096), 0);
    close(fd);
}

static void test_a_descriptor_for_reading_does_not_write(void **state)
{
    void *map = NULL;
    void *other = NULL;
    int fd = -1;
    int reader = -1;

    (void)state;
    assert_ok(ferry_shm_pages_create("test", 4096, &map, &fd));
    assert_ok(ferry_shm_read_only_fd(fd, &reader));
    assert_int_equal(fcntl(reader, F_GETFD), FD_CLOEXEC);
    assert_true(ferry_shm_map(reader, 4096, true, &other) != FERRY_OK);
    assert_ok(ferry_shm_map(reader, 4096, false, &other));
    assert_int_equal(mprotect(other, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(munmap(other, 4096), 0);
    assert_int_equal(munmap(map, 4096), 0);
    close(reader);
    close(fd);
}

static void test_pages_are_shared_or_sealed_as_asked(void **state)
{
    struct ferry_pages_options options = {.location = {.numa_node = FERRY_LOCATION_ANY_NODE},
                                          .populate = true,
                                          .huge = true,
                                          .shared = true};
    struct ferry_pages pages = {0};
    void *map = NULL;

    (void)state;
    assert_ok(ferry_pages_alloc(5u << 20, &options, &pages));
    assert_true(pages.fd >= 0);
    assert_int_equal((uintptr_t)pages.addr % (2u << 20), 0);
    assert_ok(ferry_shm_map(pages.fd, pages.length, true, &map));
    pattern_fill(map, pages.length, 5, 0);
    assert_int_equal(pattern_differs(pages.addr, pages.length, 5, 0), PATTERN_SAME);
    assert_int_equal(munmap(map, pages.length), 0);
    ferry_pages_free(&pages);

    options.sealed = true;
    assert_ok(ferry_pages_alloc(8192, &options, &pages));
    pattern_fill(pages.addr, pages.length, 6, 0);
    assert_true(ferry_shm_map(pages.fd, pages.length, true, &map) != FERRY_OK);
    assert_ok(ferry_shm_map(pages.fd, pages.length, false, &map));
    assert_int_equal(pattern_differs(map, pages.length, 6, 0), PATTERN_SAME);
    assert_int_equal(munmap(map, pages.length), 0);
    ferry_pages_free(&pages);

    options.shared = false;
    assert_ok(ferry_pages_alloc(8192, &options, &pages));
    assert_int_equal(pages.fd, -1);
    ferry_pages_free(&pages);
}

/* ---- the cookie ---- */

static uint8_t cookie[SHM_COOKIE_BYTES];

static void test_a_process_is_reached_only_with_the_cookie(void **state)
{
    uint8_t other[SHM_COOKIE_BYTES];
    char why[SHM_WHY_SIZE];
    pid_t child;

    (void)state;
    pattern_fill(cookie, sizeof(cookie), 7, 0);
    memcpy(other, cookie, sizeof(other));
    assert_true(ferry_shm_vm_probe(getpid(), (uintptr_t)cookie, cookie, why));
    assert_string_equal(why, "");
    for (uint32_t i = 0; i < sizeof(other); i++) {
        other[i] ^= 0x10;
        assert_false(ferry_shm_vm_probe(getpid(), (uintptr_t)cookie, other, why));
        assert_non_null(strstr(why, "cookie"));
        other[i] ^= 0x10;
    }
    /* Nothing there at all; no number; nobody with that number. */
    assert_false(ferry_shm_vm_probe(getpid(), 4096, cookie, why));
    assert_non_null(strstr(why, "cookie"));
    assert_false(ferry_shm_vm_probe(0, (uintptr_t)cookie, cookie, why));
    assert_non_null(strstr(why, "namespace"));
    child = fork();
    if (child == 0)
        _exit(0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(ferry_shm_vm_probe(child, (uintptr_t)cookie, cookie, why));
    assert_non_null(strstr(why, "process_vm_readv"));
}

/* ---- leases ---- */

static void test_a_lease_is_seen_and_a_range_that_went_is_not_leased(void **state)
{
    struct shm_board *board = calloc(1, sizeof(*board));
    struct shm_slots *slots = calloc(1, sizeof(*slots));
    struct shm_slot *slot = &slots->slot[SHM_WORKERS_MAX - 1];

    (void)state;
    assert_non_null(board);
    assert_non_null(slots);
    atomic_store(&board->ids[9], 77);
    assert_false(ferry_shm_lease_enter(slot, board, 8, 77));
    assert_false(ferry_shm_lease_enter(slot, board, 9, 78));
    assert_false(ferry_shm_slots_hold(slots, 0));
    assert_true(ferry_shm_lease_enter(slot, board, 9, 77));
    assert_true(ferry_shm_slots_hold(slots, 77));
    assert_true(ferry_shm_slots_hold(slots, 0));
    assert_false(ferry_shm_slots_hold(slots, 78));
    ferry_shm_lease_leave(slot);
    assert_false(ferry_shm_slots_hold(slots, 77));
    atomic_store(&board->closing, 1);
    assert_false(ferry_shm_lease_enter(slot, board, 9, 77));
    assert_false(ferry_shm_slots_hold(slots, 0));
    free(slots);
    free(board);
}

struct race {
    struct shm_board *board;
    struct shm_slots *slots;
    _Atomic uint64_t touched; /* grows while a lease is held */
    _Atomic bool stop;
};

static void *copy_for_ever(void *arg)
{
    struct race *race = arg;

    while (!atomic_load(&race->stop)) {
        uint64_t id = atomic_load(&race->board->ids[0]);

        if (id == 0 || !ferry_shm_lease_enter(&race->slots->slot[0], race->board, 0, id))
            continue;
        atomic_fetch_add_explicit(&race->touched, 1, memory_order_relaxed);
        ferry_shm_lease_leave(&race->slots->slot[0]);
    }
    return NULL;
}

/* After the board was cleared and the slots were seen empty, nothing is touched. */
static void test_nothing_is_touched_once_the_slots_are_empty(void **state)
{
    struct race race = {.board = calloc(1, sizeof(*race.board)),
                        .slots = calloc(1, sizeof(*race.slots))};
    uint32_t rounds = TEST_THREAD_SANITIZER ? 2000 : 20000;
    pthread_t thread;

    (void)state;
    assert_non_null(race.board);
    assert_non_null(race.slots);
    assert_int_equal(pthread_create(&thread, NULL, copy_for_ever, &race), 0);
    /* On a busy machine the thread may come late, to nothing but empty slots. */
    atomic_store(&race.board->ids[0], rounds + 1);
    while (atomic_load(&race.touched) == 0)
        sched_yield();
    atomic_store(&race.board->ids[0], 0);
    while (ferry_shm_slots_hold(race.slots, rounds + 1))
        ferry_cpu_relax();
    for (uint64_t id = 1; id <= rounds; id++) {
        uint64_t seen;

        atomic_store(&race.board->ids[0], id);
        for (uint32_t i = 0; i < id % 64; i++)
            ferry_cpu_relax();
        atomic_store(&race.board->ids[0], 0);
        while (ferry_shm_slots_hold(race.slots, id))
            ferry_cpu_relax();
        seen = atomic_load(&race.touched);
        for (uint32_t i = 0; i < 32; i++)
            ferry_cpu_relax();
        assert_int_equal(atomic_load(&race.touched), seen);
    }
    atomic_store(&race.stop, true);
    pthread_join(thread, NULL);
    free(race.slots);
    free(race.board);
}

/* ---- the copy past the caches ---- */

static void test_streaming_copies_what_memcpy_copies(void **state)
{
    static const size_t lengths[] = {0, 1, 63, 64, 255, 256, 257, 4096, 65536 + 17};
    static unsigned char from[70000], to[70000];

    (void)state;
    pattern_fill(from, sizeof(from), 8, 0);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (size_t shift = 0; shift < 130; shift += 13) {
            size_t in = shift * 7 % 64;

            memset(to, 0xee, sizeof(to));
            ferry_copy_streaming(to + shift, from + in, lengths[i]);
            assert_memory_equal(to + shift, from + in, lengths[i]);
            for (size_t k = 0; k < shift; k++)
                assert_int_equal(to[k], 0xee);
            assert_int_equal(to[shift + lengths[i]], 0xee);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_read_back_as_they_were_written),
        cmocka_unit_test(test_messages_that_are_none_are_refused),
        cmocka_unit_test(test_messages_carry_descriptors),
        cmocka_unit_test(test_shared_memory_cannot_be_made_shorter_or_longer),
        cmocka_unit_test(test_memory_that_can_be_made_shorter_is_not_mapped),
        cmocka_unit_test(test_a_descriptor_for_reading_does_not_write),
        cmocka_unit_test(test_pages_are_shared_or_sealed_as_asked),
        cmocka_unit_test(test_a_process_is_reached_only_with_the_cookie),
        cmocka_unit_test(test_a_lease_is_seen_and_a_range_that_went_is_not_leased),
        cmocka_unit_test(test_nothing_is_touched_once_the_slots_are_empty),
        cmocka_unit_test(test_streaming_copies_what_memcpy_copies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
