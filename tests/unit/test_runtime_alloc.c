/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budget of the way of a request: in steady state nothing is allocated, freed or mapped, on any
 * thread, and the process does not grow. The linker puts the counters below in the place of the
 * allocator (--wrap) for everything that is linked statically, which is the whole library.
 */
#include <stdatomic.h>
#include <sys/mman.h>

#include <ferry/ferry.h>

#include "support/process.h"
#include "support/sanitizer.h"
#include "support/test.h"
#include "transport/transport.h"

#define ROUNDS   (TEST_THREAD_SANITIZER ? 20000u : 100000u)
#define LENGTH   4096u
#define SLOTS    32u
#define WARM_UPS 2000u

static _Atomic bool counting;
static _Atomic uint64_t calls;

static void count_call(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add(&calls, 1);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *ptr, size_t size);
void __real_free(void *ptr);
void *__real_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
void __wrap_free(void *ptr);
void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
    count_call();
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    count_call();
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
    count_call();
    return __real_realloc(ptr, size);
}

void __wrap_free(void *ptr)
{
    count_call();
    __real_free(ptr);
}

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    count_call();
    return __real_mmap(addr, len, prot, flags, fd, offset);
}

struct pair {
    struct ferry_engine *initiator;
    struct ferry_engine *target;
    uint64_t segment;
    void *local;
    void *remote;
};

static struct ferry_engine *open_engine(const char *transport)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    if (transport != NULL)
        assert_ok(ferry_config_set(config, "force_transport", transport, FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

/* @transport: between two engines; NULL: one engine and its own segment. */
static void open_pair(struct pair *pair, const char *transport)
{
    pair->initiator = open_engine(transport);
    pair->target = transport != NULL ? open_engine(transport) : pair->initiator;
    assert_ok(ferry_memory_alloc(pair->initiator, SLOTS * LENGTH, NULL, FERRY_PERMISSION_LOCAL,
                                 &pair->local));
    assert_ok(ferry_memory_alloc(pair->target, SLOTS * LENGTH, NULL, FERRY_PERMISSION_READ_WRITE,
                                 &pair->remote));
    assert_ok(ferry_segment_open(pair->initiator, ferry_engine_segment_name(pair->target),
                                 test_deadline_ms(5000), &pair->segment));
}

static void close_pair(struct pair *pair)
{
    assert_ok(ferry_engine_close(pair->initiator));
    if (pair->target != pair->initiator)
        assert_ok(ferry_engine_close(pair->target));
}

/* The same slot as four pieces, the last one first. */
static void make_list(struct ferry_request *request, struct ferry_piece *pieces)
{
    for (uint32_t k = 0; k < 4; k++)
        pieces[k] = (struct ferry_piece){
            .local = (char *)request->local + (3 - k) * LENGTH / 4,
            .remote_offset = request->remote_offset + (3 - k) * LENGTH / 4,
            .length = LENGTH / 4 - 8,
        };
    request->local = NULL;
    request->remote_offset = 0;
    request->length = 0;
    request->pieces = pieces;
    request->piece_count = 4;
}

static void fill(const struct pair *pair, struct ferry_request *requests)
{
    static struct ferry_piece pieces[SLOTS][4];

    for (uint32_t i = 0; i < SLOTS; i++) {
        requests[i] = (struct ferry_request)FERRY_REQUEST_INIT;
        requests[i].opcode = i % 2 ? FERRY_WRITE : FERRY_READ;
        requests[i].local = (char *)pair->local + i * LENGTH;
        requests[i].remote_offset = (uintptr_t)pair->remote + i * LENGTH;
        requests[i].segment = pair->segment;
        requests[i].length = LENGTH;
        if (i % 4 >= 2)
            make_list(&requests[i], pieces[i]);
    }
}

static void run_batches(const struct pair *pair, uint64_t batch, uint32_t transfers)
{
    struct ferry_request requests[SLOTS];

    fill(pair, requests);
    for (uint32_t done = 0; done < transfers; done += SLOTS) {
        assert_ok(ferry_batch_submit(pair->initiator, batch, requests, SLOTS));
        assert_ok(ferry_batch_wait(pair->initiator, batch, test_deadline_ms(20000), NULL));
        assert_ok(ferry_batch_reset(pair->initiator, batch));
    }
}

static void run_calls(const struct pair *pair, uint32_t transfers)
{
    struct ferry_request requests[SLOTS];

    fill(pair, requests);
    for (uint32_t i = 0; i < transfers; i++) {
        struct ferry_request *request = &requests[i % SLOTS];

        assert_ok(request->opcode == FERRY_READ
                      ? ferry_read(pair->initiator, request, test_deadline_ms(20000))
                      : ferry_write(pair->initiator, request, test_deadline_ms(20000)));
    }
}

static void check_steady(const char *transport)
{
    struct pair pair;
    uint64_t batch;
    uint64_t rss;
    const int strangers = TEST_THREAD_SANITIZER ? 1 : 0; /* the sanitizer's own */

    open_pair(&pair, transport);
    /* A thread frees what it was started with first of all, which may be late on a full machine. */
    assert_within_ms(process_unnamed_threads() == strangers, 20000);
    /* The counters do count: making a batch allocates. */
    atomic_store(&counting, true);
    assert_ok(ferry_batch_create(pair.initiator, SLOTS, &batch));
    atomic_store(&counting, false);
    assert_true(atomic_load(&calls) > 0);
    run_batches(&pair, batch, WARM_UPS);
    run_calls(&pair, WARM_UPS);
    rss = process_rss_bytes();

    atomic_store(&calls, 0);
    atomic_store(&counting, true);
    run_batches(&pair, batch, ROUNDS);
    run_calls(&pair, ROUNDS / 10);
    atomic_store(&counting, false);

    assert_int_equal(atomic_load(&calls), 0);
    /* The kernel counts pages per thread and adds them up late: a few are no growth. */
    if (!TEST_ADDRESS_SANITIZER && !TEST_THREAD_SANITIZER)
        assert_true(process_rss_bytes() <= rss + 65536 * 4);
    assert_ok(ferry_batch_destroy(pair.initiator, batch));
    close_pair(&pair);
}

static void test_steady_transfers_on_the_own_segment_allocate_nothing(void **state)
{
    (void)state;
    check_steady(NULL);
}

static void test_steady_transfers_between_peers_allocate_nothing(void **state)
{
    (void)state;
    check_steady("hp_tcp");
}

static void test_steady_transfers_between_processes_of_one_host_allocate_nothing(void **state)
{
    (void)state;
    if (ferry_transport_find("shm") == NULL)
        test_skip("this build has no shm");
    check_steady("shm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_transfers_on_the_own_segment_allocate_nothing),
        cmocka_unit_test(test_steady_transfers_between_peers_allocate_nothing),
        cmocka_unit_test(test_steady_transfers_between_processes_of_one_host_allocate_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
