/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot loop allocates nothing: two engines of one process move data over hp_tcp while this
 * program's malloc counts who calls it, on any thread of either side.
 *
 *     steady REQUESTS LENGTH OUTSTANDING
 *
 * Prints one JSON line: requests, failed, allocations and page growth between the first tenth of
 * the loop and its end. The first tenth warms up: pools, caches and lanes may still be made there.
 */
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferry/ferry.h>

#include "support/process.h"

#define OUTSTANDING_MAX 256u

/* glibc's own, under the names that stay when a program brings a malloc. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

static _Atomic uint64_t allocations;

void *malloc(size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(old, size);
}

struct side {
    struct ferry_engine *engine;
    unsigned char *memory;
    uint64_t length;
};

struct loop {
    struct side owner;
    struct side mover;
    uint64_t segment;
    uint64_t batch;
    uint64_t failed;
    uint64_t request_length;
    uint32_t outstanding;
};

static enum ferry_status side_open(struct side *side, enum ferry_permission permission)
{
    void *memory = NULL;
    enum ferry_status status = ferry_engine_open(NULL, &side->engine);

    if (status == FERRY_OK)
        status = ferry_memory_alloc(side->engine, side->length, NULL, permission, &memory);
    side->memory = memory;
    if (status == FERRY_OK)
        memset(memory, 1, side->length);
    return status;
}

/* One batch: half of its requests READ, half WRITE, each a slot of its own on both sides. */
static enum ferry_status move_once(struct loop *loop)
{
    struct ferry_request requests[OUTSTANDING_MAX];
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;

    for (uint32_t i = 0; i < loop->outstanding; i++) {
        requests[i] = (struct ferry_request)FERRY_REQUEST_INIT;
        requests[i].opcode = i % 2 == 0 ? FERRY_READ : FERRY_WRITE;
        requests[i].local = loop->mover.memory + i * loop->request_length;
        requests[i].segment = loop->segment;
        requests[i].remote_offset = (uint64_t)(uintptr_t)(loop->owner.memory +
                                                          i * loop->request_length);
        requests[i].length = loop->request_length;
        requests[i].transport = "hp_tcp";
    }
    enum ferry_status status = ferry_batch_submit(loop->mover.engine, loop->batch, requests,
                                                  loop->outstanding);
    if (status == FERRY_OK)
        status = ferry_batch_wait(loop->mover.engine, loop->batch, FERRY_NO_DEADLINE, &sum);
    if (status != FERRY_OK)
        return status;
    loop->failed += loop->outstanding - sum.completed;
    return ferry_batch_reset(loop->mover.engine, loop->batch);
}

static enum ferry_status prepare(struct loop *loop)
{
    enum ferry_status status = side_open(&loop->owner, FERRY_PERMISSION_READ_WRITE);

    if (status == FERRY_OK)
        status = side_open(&loop->mover, FERRY_PERMISSION_LOCAL);
    if (status == FERRY_OK)
        status = ferry_segment_open(loop->mover.engine,
                                    ferry_engine_segment_name(loop->owner.engine),
                                    FERRY_NO_DEADLINE, &loop->segment);
    if (status == FERRY_OK)
        status = ferry_batch_create(loop->mover.engine, loop->outstanding, &loop->batch);
    return status;
}

static enum ferry_status run(struct loop *loop, uint64_t request_count)
{
    uint64_t done = 0;
    uint64_t allocations_before = 0;
    uint64_t rss_before = 0;
    uint64_t window_end = request_count / 10;
    long pages = LONG_MAX;
    bool warm = false;

    while (done < request_count) {
        enum ferry_status status = move_once(loop);
        if (status != FERRY_OK)
            return status;
        done += loop->outstanding;
        if (done < window_end)
            continue;
        /*
         * Some thread may touch another page of its stack late; what grows with the requests grows
         * in every window, and so in the one that grows least.
         */
        uint64_t rss = process_rss_bytes();
        long grown = ((long)rss - (long)rss_before) / sysconf(_SC_PAGESIZE);
        if (warm && grown < pages)
            pages = grown;
        if (!warm)
            allocations_before = atomic_load(&allocations);
        warm = true;
        rss_before = rss;
        window_end += request_count * 3 / 10;
    }
    uint64_t allocated = atomic_load(&allocations) - allocations_before;
    printf("{\"requests\": %llu, \"failed\": %llu, \"allocations\": %llu, \"pages\": %ld}\n",
           (unsigned long long)done, (unsigned long long)loop->failed,
           (unsigned long long)allocated, pages);
    return FERRY_OK;
}

int main(int argc, char **argv)
{
    struct loop loop = {0};

    if (argc != 4)
        return 2;
    loop.request_length = strtoull(argv[2], NULL, 0);
    loop.outstanding = (uint32_t)strtoul(argv[3], NULL, 0);
    if (loop.outstanding == 0 || loop.outstanding > OUTSTANDING_MAX)
        return 2;
    loop.owner.length = loop.mover.length = loop.request_length * loop.outstanding;
    enum ferry_status status = prepare(&loop);
    if (status == FERRY_OK)
        status = run(&loop, strtoull(argv[1], NULL, 0));
    if (status != FERRY_OK)
        fprintf(stderr, "%s: %s\n", ferry_status_name(status), ferry_last_error_text());
    ferry_engine_close(loop.mover.engine);
    ferry_engine_close(loop.owner.engine);
    return status == FERRY_OK ? 0 : 1;
}
