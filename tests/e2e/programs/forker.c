/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that forks while its engine is at work (field report B18).
 *
 *     forker SEGMENT REQUESTS CHILDREN
 *
 * Four threads transfer; meanwhile CHILDREN children of each sort are forked:
 *     exit   leaves by _exit          return  leaves by exit(), handlers included
 *     exec   runs ls on its own descriptors; must see none of ours
 *     fresh  opens an engine of its own and transfers
 *     reuse  calls the inherited engine; must get ERR_FORKED
 * A child that takes more than LIMIT_MS is killed and counts as hung. Prints one JSON line.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "support/pattern.h"

#define THREADS  4
#define LENGTH   16384u
#define LIMIT_MS 20000

enum sort { SORT_EXIT, SORT_RETURN, SORT_EXEC, SORT_FRESH, SORT_REUSE, SORT_COUNT };

struct mover {
    struct ferry_engine *engine;
    const char *name;
    uint64_t segment;
    uint64_t remote;
    unsigned char *memory; /* LENGTH to send, LENGTH to receive */
    unsigned requests;
    unsigned failed;
};

static const char *const sort_names[SORT_COUNT] = {"exit", "return", "exec", "fresh", "reuse"};

static enum ferry_status write_and_read(struct mover *mover, uint64_t seed)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    pattern_fill(mover->memory, LENGTH, seed, 0);
    request.segment = mover->segment;
    request.remote_offset = mover->remote;
    request.length = LENGTH;
    request.local = mover->memory;
    enum ferry_status status = ferry_write(mover->engine, &request, FERRY_NO_DEADLINE);
    if (status != FERRY_OK)
        return status;
    request.local = mover->memory + LENGTH;
    status = ferry_read(mover->engine, &request, FERRY_NO_DEADLINE);
    if (status == FERRY_OK &&
        pattern_differs(mover->memory + LENGTH, LENGTH, seed, 0) != PATTERN_SAME)
        return FERRY_ERR_CHECKSUM;
    return status;
}

static void *move(void *arg)
{
    struct mover *mover = arg;

    for (unsigned i = 0; i < mover->requests; i++) {
        enum ferry_status status = write_and_read(mover, mover->remote + i);
        if (status != FERRY_OK) {
            mover->failed++;
            fprintf(stderr, "request %u: %s: %s\n", i, ferry_status_name(status),
                    ferry_last_error_text());
        }
    }
    return NULL;
}

/* Open an engine and a segment, with room for all threads. */
static enum ferry_status open_all(struct mover *mover, unsigned threads)
{
    struct ferry_segment_buffer buffer = {.struct_size = sizeof(buffer)};
    size_t count = 1;
    void *memory = NULL;

    enum ferry_status status = ferry_engine_open(NULL, &mover->engine);
    if (status == FERRY_OK)
        status = ferry_memory_alloc(mover->engine, (uint64_t)threads * 2 * LENGTH, NULL,
                                    FERRY_PERMISSION_LOCAL, &memory);
    if (status == FERRY_OK)
        status = ferry_segment_open(mover->engine, mover->name, FERRY_NO_DEADLINE, &mover->segment);
    if (status == FERRY_OK)
        status = ferry_segment_buffers(mover->engine, mover->segment, &buffer, &count);
    mover->memory = memory;
    mover->remote = buffer.addr;
    return status;
}

/* The child's life; its exit status is 0 when all was as promised. */
static void child(enum sort sort, struct mover *mover)
{
    struct mover own = {.name = mover->name};

    alarm(LIMIT_MS / 1000 + 5);
    switch (sort) {
    case SORT_EXIT:
        _exit(0);
    case SORT_RETURN:
        exit(0);
    case SORT_EXEC:
        /* 0, 1, 2 and the folder that ls itself reads */
        execlp("sh", "sh", "-c", "test \"$(ls /proc/self/fd | wc -l)\" = 4", NULL);
        _exit(9);
    case SORT_FRESH: {
        enum ferry_status status = open_all(&own, 1);
        /* A place of the peer's memory that no thread of the parent uses. */
        own.remote += (uint64_t)THREADS * LENGTH;
        if (status == FERRY_OK)
            status = write_and_read(&own, 99);
        if (status != FERRY_OK)
            fprintf(stderr, "fresh: %s: %s\n", ferry_status_name(status), ferry_last_error_text());
        _exit(status == FERRY_OK && ferry_engine_close(own.engine) == FERRY_OK ? 0 : 1);
    }
    default: {
        uint64_t batch = 0;
        enum ferry_status status = ferry_batch_create(mover->engine, 1, &batch);
        enum ferry_status moved = write_and_read(mover, 1);
        _exit(status == FERRY_ERR_FORKED && moved == FERRY_ERR_FORKED ? 0 : 1);
    }
    }
}

/* Milliseconds until a child ended; its status is judged by the caller. */
static int reap(pid_t pid, int *status_out)
{
    struct timespec nap = {.tv_nsec = 1000000};
    int ms = 0;

    for (; waitpid(pid, status_out, WNOHANG) == 0; ms++) {
        if (ms == LIMIT_MS)
            kill(pid, SIGKILL);
        nanosleep(&nap, NULL);
    }
    return ms;
}

int main(int argc, char **argv)
{
    struct mover first = {0};
    struct mover movers[THREADS];
    pthread_t threads[THREADS];
    unsigned failed = 0;
    unsigned bad[SORT_COUNT] = {0};

    if (argc != 4)
        return 2;
    first.name = argv[1];
    if (open_all(&first, THREADS) != FERRY_OK || write_and_read(&first, 5) != FERRY_OK) {
        fprintf(stderr, "%s\n", ferry_last_error_text());
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        movers[i] = first;
        movers[i].remote += (uint64_t)i * LENGTH;
        movers[i].memory += (size_t)i * 2 * LENGTH;
        movers[i].requests = (unsigned)strtoul(argv[2], NULL, 0) / 2 / THREADS;
        if (pthread_create(&threads[i], NULL, move, &movers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < SORT_COUNT * atoi(argv[3]); i++) {
        enum sort sort = (enum sort)(i % SORT_COUNT);
        int status = 0;
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            child(sort, &first);
        reap(pid, &status);
        bad[sort] += status != 0;
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failed += movers[i].failed;
    }
    printf("{\"failed\": %u", failed);
    for (int i = 0; i < SORT_COUNT; i++)
        printf(", \"%s\": %u", sort_names[i], bad[i]);
    puts("}");
    return ferry_engine_close(first.engine) == FERRY_OK ? 0 : 1;
}
