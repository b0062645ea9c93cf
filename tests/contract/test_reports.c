/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field reports through the public interface, with real target processes: a batch of good and bad
 * requests of which one meets a stopped peer (B12), peers that stop or die (B13), registrations
 * that repeat, overlap or make no sense (B17), and a peer that restarts under its old name (B25).
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "pattern.h"
#include "process.h"
#include "sanitizer.h"
#include "test.h"

#define MIB (1u << 20)

/* ---- target processes ---- */

struct peer {
    pid_t pid;
    char name[256];
    uint64_t addr;
};

struct peer_plan {
    const char *listen_port; /* "0": any */
    const char *data_port;
    void *at; /* where its memory is mapped; NULL: anywhere */
    size_t mapped;
    size_t registered;
    enum ferry_permission permission;
    uint64_t seed;
};

static const char *const reactors[] = {"epoll", "auto"};

static struct ferry_engine *engine_open(const char *reactor, const char *port,
                                        const char *data_port)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config;
    const char *const settings[][2] = {
        {"reactor", reactor},
        {"rpc_server_port", port},
        {"transports.hp_tcp.port", data_port},
        {"transports.hp_tcp.worker_count", "2"},
        {"transports.hp_tcp.connect_timeout_ms", "500"},
        {"transports.hp_tcp.progress_timeout_ms", "2000"},
        {"control_timeout_ms", "2000"},
        {"log_level", getenv("DBG") ? "debug" : "warn"},
    };

    assert_ok(ferry_config_create(&config));
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        assert_ok(ferry_config_set(config, settings[i][0], settings[i][1], FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

static void register_at(struct ferry_engine *engine, void *addr, size_t length,
                        enum ferry_permission permission)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;

    range.addr = addr;
    range.length = length;
    range.permission = permission;
    assert_ok(ferry_memory_register(engine, &range, 1));
}

static void *map_at(void *at, size_t length)
{
    void *memory = mmap(at, length, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED_NOREPLACE : 0), -1,
                        0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

/* The child: serve until killed. */
static void serve(const struct peer_plan *plan, const char *reactor, int out)
{
    struct peer self = {.pid = getpid()};
    struct ferry_engine *engine;
    void *memory;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    engine = engine_open(reactor, plan->listen_port, plan->data_port);
    if (plan->at != NULL)
        munmap(plan->at, plan->mapped); /* the parent's reservation */
    memory = map_at(plan->at, plan->mapped);
    pattern_fill(memory, plan->mapped, plan->seed, 0);
    register_at(engine, memory, plan->registered, plan->permission);
    snprintf(self.name, sizeof(self.name), "%s", ferry_engine_segment_name(engine));
    self.addr = (uintptr_t)memory;
    if (write(out, &self, sizeof(self)) != sizeof(self))
        _exit(1);
    for (;;)
        pause();
}

static struct peer peer_start(const char *reactor, const struct peer_plan *plan)
{
    struct peer peer;
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        serve(plan, reactor, ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], &peer, sizeof(peer)), sizeof(peer));
    close(ends[0]);
    return peer;
}

static void peer_end(struct peer *peer)
{
    kill(peer->pid, SIGKILL);
    waitpid(peer->pid, NULL, 0);
}

static const struct peer_plan usual = {.listen_port = "0",
                                       .data_port = "0",
                                       .mapped = 64 * MIB,
                                       .registered = 64 * MIB,
                                       .permission = FERRY_PERMISSION_READ_WRITE,
                                       .seed = 7};

static uint64_t segment_of(struct ferry_engine *engine, const struct peer *peer)
{
    uint64_t segment;

    assert_ok(ferry_segment_open(engine, peer->name, test_deadline_ms(5000), &segment));
    return segment;
}

static struct ferry_request request_of(enum ferry_opcode opcode, uint64_t segment, void *local,
                                       uint64_t remote, uint64_t length)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.opcode = opcode;
    request.segment = segment;
    request.local = local;
    request.remote_offset = remote;
    request.length = length;
    return request;
}

/* ---- B12 ---- */

static void check_mixed_ends(struct ferry_engine *engine, uint64_t batch)
{
    static const enum ferry_task_state wanted[8] = {
        FERRY_TASK_COMPLETED, FERRY_TASK_FAILED,    FERRY_TASK_COMPLETED, FERRY_TASK_FAILED,
        FERRY_TASK_COMPLETED, FERRY_TASK_TIMED_OUT, FERRY_TASK_COMPLETED, FERRY_TASK_COMPLETED};

    for (uint32_t i = 0; i < 8; i++) {
        struct ferry_task_status task = FERRY_TASK_STATUS_INIT;

        assert_ok(ferry_task_status(engine, batch, i, &task));
        /* A stop takes a moment: once the WRITE has left, what became of it is unknown. */
        if (i != 5 || task.state != FERRY_TASK_FAILED)
            assert_int_equal(task.state, wanted[i]);
        assert_int_equal(task.bytes, task.state == FERRY_TASK_COMPLETED ? MIB : 0);
    }
}

static void mixed_batch(struct ferry_engine *engine, struct peer *good, struct peer *stopped,
                        unsigned char *local)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    uint64_t to = segment_of(engine, good);
    uint64_t to_stopped = segment_of(engine, stopped);
    struct ferry_request requests[8];
    uint64_t begun_ns;
    uint64_t batch;

    for (uint32_t i = 0; i < 8; i++)
        requests[i] = request_of(i == 7 ? FERRY_READ : FERRY_WRITE, to, local + i * MIB,
                                 good->addr + i * MIB, MIB);
    requests[1].remote_offset = good->addr + 64 * MIB - 4096;
    requests[3].remote_offset = 4096;
    requests[5].segment = to_stopped;
    requests[5].remote_offset = stopped->addr;
    assert_ok(ferry_batch_create(engine, 8, &batch));
    assert_true(process_stop(stopped->pid));
    begun_ns = test_now_ns();
    assert_ok(ferry_batch_submit(engine, batch, requests, 8));
    do {
        test_nap();
        assert_ok(ferry_batch_status(engine, batch, &sum));
    } while (sum.state == FERRY_TASK_WAITING || sum.state == FERRY_TASK_PENDING);
    assert_in_range(test_now_ns() - begun_ns, 1900000000u, 3500000000u);
    kill(stopped->pid, SIGCONT);
    for (int poll = 0; poll < 1000; poll++) {
        assert_ok(ferry_batch_status(engine, batch, &sum));
        assert_int_equal(sum.state, FERRY_TASK_FAILED);
        assert_int_equal(sum.bytes, 5 * MIB);
    }
    check_mixed_ends(engine, batch);
    assert_ok(ferry_batch_destroy(engine, batch));
    assert_status(ferry_batch_destroy(engine, batch), FERRY_ERR_STALE_HANDLE);
}

static void small_batches(struct ferry_engine *engine, uint64_t segment, unsigned char *local,
                          uint64_t remote)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_request requests[9];
    uint64_t batch;

    for (uint32_t i = 0; i < 9; i++)
        requests[i] = request_of(FERRY_WRITE, segment, local, remote, 4096);
    assert_ok(ferry_batch_create(engine, 8, &batch));
    assert_status(ferry_task_status(engine, batch, 0, &task), FERRY_ERR_INVALID);
    assert_status(ferry_batch_submit(engine, batch, requests, 9), FERRY_ERR_TOO_LARGE);
    assert_ok(ferry_batch_submit(engine, batch, requests, 0));
    assert_ok(ferry_batch_status(engine, batch, &sum));
    assert_int_equal(sum.submitted, 0);
    assert_ok(ferry_batch_destroy(engine, batch));
}

static void test_mixed_batch_is_judged_when_all_has_ended(void **state)
{
    (void)state;
    for (size_t r = 0; r < 2; r++) {
        struct peer good = peer_start(reactors[r], &usual);
        struct peer stopped = peer_start(reactors[r], &usual);
        struct ferry_engine *engine = engine_open(reactors[r], "0", "0");
        unsigned char *local = map_at(NULL, 8 * MIB);

        pattern_fill(local, 8 * MIB, 1, 0);
        register_at(engine, local, 8 * MIB, FERRY_PERMISSION_LOCAL);
        mixed_batch(engine, &good, &stopped, local);
        assert_true(pattern_differs(local + 7 * MIB, MIB, usual.seed, 7 * MIB) == PATTERN_SAME);
        small_batches(engine, segment_of(engine, &good), local, good.addr);
        assert_ok(ferry_engine_close(engine));
        munmap(local, 8 * MIB);
        peer_end(&good);
        peer_end(&stopped);
    }
}

/* ---- B13 ---- */

static void stall(struct ferry_engine *engine, struct peer *peer,
                  const struct ferry_request *request, int signal_number)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_request again = *request;
    uint64_t begun_ns;
    uint64_t batch;

    assert_ok(ferry_batch_create(engine, 1, &batch));
    if (request->length < MIB || signal_number == SIGKILL)
        kill(peer->pid, signal_number);
    begun_ns = test_now_ns();
    assert_ok(ferry_batch_submit(engine, batch, request, 1));
    kill(peer->pid, signal_number);
    assert_ok(ferry_batch_wait(engine, batch, test_deadline_ms(8000), &sum));
    if (sum.state != FERRY_TASK_COMPLETED) {
        uint64_t most_ns = signal_number == SIGKILL ? 1000000000u : 3500000000u;

        assert_true(sum.state == FERRY_TASK_FAILED || sum.state == FERRY_TASK_TIMED_OUT);
        assert_in_range(test_now_ns() - begun_ns, 0, most_ns);
    }
    assert_ok(ferry_batch_destroy(engine, batch));
    if (signal_number == SIGKILL)
        return;
    /* The destination is the caller's: late bytes of the old request must not show up in it. */
    pattern_fill(request->local, request->length, 99, 0);
    kill(peer->pid, SIGCONT);
    again.opcode = FERRY_WRITE;
    assert_ok(ferry_write(engine, &again, test_deadline_ms(8000)));
    assert_true(pattern_differs(request->local, request->length, 99, 0) == PATTERN_SAME);
}

static void test_stopped_and_killed_peers_end_requests_in_time(void **state)
{
    static const size_t lengths[] = {4096, 64 * MIB};

    (void)state;
    if (TEST_THREAD_SANITIZER)
        test_skip("ThreadSanitizer forbids threads in a child of a program that had some");
    for (size_t r = 0; r < 2; r++) {
        struct ferry_engine *engine = engine_open(reactors[r], "0", "0");
        unsigned char *local = map_at(NULL, 64 * MIB);

        register_at(engine, local, 64 * MIB, FERRY_PERMISSION_LOCAL);
        for (int i = 0; i < 8; i++) {
            struct peer peer = peer_start(reactors[r], &usual);
            uint64_t segment = segment_of(engine, &peer);
            struct ferry_request request = request_of(i & 1 ? FERRY_WRITE : FERRY_READ, segment,
                                                      local, peer.addr, lengths[(i >> 1) & 1]);

            assert_ok(ferry_read(engine, &request, test_deadline_ms(8000)));
            stall(engine, &peer, &request, i & 4 ? SIGKILL : SIGSTOP);
            assert_ok(ferry_segment_close(engine, segment));
            peer_end(&peer);
        }
        assert_ok(ferry_engine_close(engine));
        munmap(local, 64 * MIB);
    }
}

/* ---- B17 ---- */

struct odd {
    size_t offset;
    size_t length;
    enum ferry_status wanted;
};

static void count_and_read(struct ferry_engine *reader, struct ferry_engine *owner,
                           uint64_t segment, unsigned char *local, unsigned char *base,
                           size_t expected)
{
    struct ferry_request first = request_of(FERRY_READ, segment, local, (uintptr_t)base, 1);
    struct ferry_request last = request_of(FERRY_READ, segment, local + 1,
                                           (uintptr_t)base + MIB - 1, 1);
    enum ferry_status status;
    size_t count = 0;

    (void)owner;
    assert_ok(ferry_segment_refresh(reader, segment, test_deadline_ms(5000)));
    assert_ok(ferry_segment_buffers(reader, segment, NULL, &count));
    assert_int_equal(count, expected);
    status = ferry_read(reader, &first, test_deadline_ms(5000));
    assert_int_equal(status, expected > 0 ? FERRY_OK : FERRY_ERR_RANGE);
    status = ferry_read(reader, &last, test_deadline_ms(5000));
    assert_int_equal(status, expected > 0 ? FERRY_OK : FERRY_ERR_RANGE);
    if (expected > 0) {
        assert_int_equal(local[0], base[0]);
        assert_int_equal(local[1], base[MIB - 1]);
    }
}

static void test_odd_registrations_follow_one_rule(void **state)
{
    static const struct odd refused[] = {
        {0, MIB / 2, FERRY_ERR_EXISTS},
        {0, MIB + 4096, FERRY_ERR_EXISTS},
        {MIB / 2, MIB, FERRY_ERR_EXISTS},
        {0, 0, FERRY_ERR_INVALID},
        {MIB, SIZE_MAX - 4096, FERRY_ERR_INVALID},
    };
    struct ferry_engine *owner = engine_open("auto", "0", "0");
    struct ferry_engine *reader = engine_open("auto", "0", "0");
    unsigned char *base = map_at(NULL, 4 * MIB);
    unsigned char *local = map_at(NULL, 4096);
    struct ferry_memory_range twice[2] = {FERRY_MEMORY_RANGE_INIT, FERRY_MEMORY_RANGE_INIT};
    struct ferry_memory_range odd = FERRY_MEMORY_RANGE_INIT;
    uint64_t segment;

    (void)state;
    pattern_fill(base, 4 * MIB, 3, 0);
    register_at(reader, local, 4096, FERRY_PERMISSION_LOCAL);
    assert_ok(ferry_segment_open(reader, ferry_engine_segment_name(owner), test_deadline_ms(5000),
                                 &segment));
    twice[0].addr = twice[1].addr = base;
    twice[0].length = twice[1].length = MIB;
    assert_ok(ferry_memory_register(owner, twice, 1));
    count_and_read(reader, owner, segment, local, base, 1);
    assert_ok(ferry_memory_register(owner, twice, 2)); /* three times in all */
    count_and_read(reader, owner, segment, local, base, 1);
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        odd.addr = base + refused[i].offset;
        odd.length = refused[i].length;
        assert_status(ferry_memory_register(owner, &odd, 1), refused[i].wanted);
        count_and_read(reader, owner, segment, local, base, 1);
    }
    odd.addr = NULL;
    odd.length = 4096;
    assert_status(ferry_memory_register(owner, &odd, 1), FERRY_ERR_INVALID);
    assert_ok(ferry_memory_register(owner, NULL, 0));
    odd.addr = base + MIB + 1; /* nearly adjacent, unaligned */
    odd.length = 4095;
    assert_ok(ferry_memory_register(owner, &odd, 1));
    count_and_read(reader, owner, segment, local, base, 2);
    odd.length = 4094;
    assert_status(ferry_memory_unregister(owner, &odd, 1, 0), FERRY_ERR_NOT_FOUND);
    odd.length = 4095;
    assert_ok(ferry_memory_unregister(owner, &odd, 1, 0));
    assert_status(ferry_memory_unregister(owner, &odd, 1, 0), FERRY_ERR_NOT_FOUND);
    assert_ok(ferry_memory_unregister(owner, twice, 2, 0));
    count_and_read(reader, owner, segment, local, base, 1);
    assert_status(ferry_memory_unregister(owner, twice, 2, 0), FERRY_ERR_NOT_FOUND);
    assert_ok(ferry_memory_unregister(owner, twice, 1, 0));
    count_and_read(reader, owner, segment, local, base, 0);
    assert_ok(ferry_engine_close(reader));
    assert_ok(ferry_engine_close(owner));
    munmap(base, 4 * MIB);
    munmap(local, 4096);
}

/* ---- B25 ---- */

static void after_restart(struct ferry_engine *engine, uint64_t segment, struct peer *peer,
                          unsigned char *local)
{
    struct ferry_request request = request_of(FERRY_READ, segment, local, peer->addr, MIB);

    assert_ok(ferry_read(engine, &request, test_deadline_ms(5000)));
    assert_true(pattern_differs(local, MIB, 2, 0) == PATTERN_SAME);
    request.remote_offset = peer->addr + MIB;
    assert_status(ferry_read(engine, &request, test_deadline_ms(5000)), FERRY_ERR_RANGE);
    request.remote_offset = peer->addr;
    request.length = 4096;
    assert_status(ferry_write(engine, &request, test_deadline_ms(5000)), FERRY_ERR_PERMISSION);
}

static void test_restarted_peer_is_met_as_the_new_one(void **state)
{
    (void)state;
    if (TEST_THREAD_SANITIZER)
        test_skip("ThreadSanitizer forbids threads in a child of a program that had some");
    for (size_t r = 0; r < 2; r++) {
        struct ferry_engine *engine = engine_open(reactors[r], "0", "0");
        unsigned char *local = map_at(NULL, 2 * MIB);
        struct peer_plan plan = usual;
        struct ferry_request request;
        struct peer peer;
        char control[8];
        uint64_t segment;

        plan.mapped = plan.registered = 2 * MIB;
        /* Both lives have their memory at the same place, which is kept free for them here. */
        plan.at = mmap(NULL, plan.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(plan.at, MAP_FAILED);
        plan.seed = 1;
        snprintf(control, sizeof(control), "%u", 21000 + (unsigned)getpid() % 9000);
        plan.listen_port = control;
        peer = peer_start(reactors[r], &plan);
        register_at(engine, local, 2 * MIB, FERRY_PERMISSION_LOCAL);
        segment = segment_of(engine, &peer);
        request = request_of(FERRY_READ, segment, local, peer.addr, 2 * MIB);
        assert_ok(ferry_read(engine, &request, test_deadline_ms(5000)));
        assert_true(pattern_differs(local, 2 * MIB, 1, 0) == PATTERN_SAME);
        peer_end(&peer);
        plan.seed = 2;
        plan.registered = MIB;
        plan.permission = FERRY_PERMISSION_READ_ONLY;
        peer = peer_start(reactors[r], &plan);
        after_restart(engine, segment, &peer, local);
        assert_ok(ferry_segment_close(engine, segment));
        segment = segment_of(engine, &peer);
        after_restart(engine, segment, &peer, local);
        assert_ok(ferry_engine_close(engine));
        munmap(local, 2 * MIB);
        munmap(plan.at, plan.mapped);
        peer_end(&peer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_batch_is_judged_when_all_has_ended),
        cmocka_unit_test(test_stopped_and_killed_peers_end_requests_in_time),
        cmocka_unit_test(test_odd_registrations_follow_one_rule),
        cmocka_unit_test(test_restarted_peer_is_met_as_the_new_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
