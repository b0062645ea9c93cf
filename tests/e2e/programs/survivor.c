/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An initiator that outlives its peer, driven line by line by a scenario.
 *
 *     survivor SEGMENT LENGTH
 *
 *     once      one READ and one WRITE; answers `ok`, or `failed STATUS TEXT`
 *     stream    READ and WRITE in turns until one fails; answers `streaming` after the first, then
 *               `failed STATUS MILLISECONDS` with how long the failing request took
 *     open NAME close the segment and open another one; answers `ok` or `failed ...`
 *     time OP BYTES COUNT
 *               so many requests of one kind and length, one after the other; answers `ok` and the
 *               nanoseconds of each, or `failed ...`
 *     idle      answers `ok`, does nothing else
 *
 * End of input closes the engine; the exit status says whether that worked. Every READ is compared
 * with what was written, byte by byte.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ferry/ferry.h>

#include "support/pattern.h"

#define CLOSE_NS 5000000000u

struct survivor {
    struct ferry_engine *engine;
    uint64_t segment;
    bool is_open;
    unsigned char *out; /* what WRITEs send */
    unsigned char *in;  /* where READs land */
    uint64_t length;
    uint64_t remote;
    uint64_t round;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void say_failed(enum ferry_status status, const char *detail)
{
    printf("failed %s %s\n", ferry_status_name(status), detail);
}

static enum ferry_status open_segment(struct survivor *me, const char *name)
{
    struct ferry_segment_buffer buffer = {.struct_size = sizeof(buffer)};
    size_t count = 1;

    if (me->is_open)
        ferry_segment_close(me->engine, me->segment);
    me->is_open = false;
    enum ferry_status status = ferry_segment_open(me->engine, name, now_ns() + CLOSE_NS,
                                                  &me->segment);
    if (status != FERRY_OK)
        return status;
    me->is_open = true;
    status = ferry_segment_buffers(me->engine, me->segment, &buffer, &count);
    if (status == FERRY_OK && (count == 0 || buffer.length < me->length))
        return FERRY_ERR_RANGE;
    me->remote = buffer.addr;
    return status;
}

/* WRITE a pattern of this round, READ it back, compare. */
static enum ferry_status one_round(struct survivor *me)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.segment = me->segment;
    request.remote_offset = me->remote;
    request.length = me->length;
    request.local = me->out;
    pattern_fill(me->out, me->length < 4096 ? me->length : 4096, ++me->round, 0);
    enum ferry_status status = ferry_write(me->engine, &request, FERRY_NO_DEADLINE);
    if (status != FERRY_OK)
        return status;
    request.local = me->in;
    status = ferry_read(me->engine, &request, FERRY_NO_DEADLINE);
    if (status == FERRY_OK && memcmp(me->in, me->out, me->length) != 0) {
        fprintf(stderr, "the data read differs from the data written\n");
        exit(1);
    }
    return status;
}

static void stream(struct survivor *me)
{
    uint64_t began_ns;
    enum ferry_status status;
    bool said = false;

    do {
        began_ns = now_ns();
        status = one_round(me);
        if (status == FERRY_OK && !said) {
            puts("streaming");
            fflush(stdout);
            said = true;
        }
    } while (status == FERRY_OK);
    printf("failed %s %llu %s\n", ferry_status_name(status),
           (unsigned long long)((now_ns() - began_ns) / 1000000u), ferry_last_error_text());
}

static enum ferry_status time_requests(struct survivor *me, const char *what)
{
    static uint64_t took_ns[10000];
    struct ferry_request request = FERRY_REQUEST_INIT;
    char op[8];
    unsigned long long bytes, count;

    if (sscanf(what, "%7s %llu %llu", op, &bytes, &count) != 3 || bytes > me->length ||
        count > sizeof(took_ns) / sizeof(took_ns[0]))
        return FERRY_ERR_INVALID;
    request.segment = me->segment;
    request.remote_offset = me->remote;
    request.length = bytes;
    request.local = me->out;
    for (unsigned long long i = 0; i < count; i++) {
        uint64_t began_ns = now_ns();
        enum ferry_status status = strcmp(op, "write") == 0
                                       ? ferry_write(me->engine, &request, FERRY_NO_DEADLINE)
                                       : ferry_read(me->engine, &request, FERRY_NO_DEADLINE);

        took_ns[i] = now_ns() - began_ns;
        if (status != FERRY_OK)
            return status;
    }
    printf("ok");
    for (unsigned long long i = 0; i < count; i++)
        printf(" %llu", (unsigned long long)took_ns[i]);
    puts("");
    return FERRY_OK;
}

static void obey(struct survivor *me, const char *line)
{
    enum ferry_status status = FERRY_OK;

    if (strcmp(line, "stream") == 0) {
        stream(me);
        return;
    }
    if (strncmp(line, "time ", 5) == 0) {
        status = time_requests(me, line + 5);
        if (status == FERRY_OK)
            return;
    } else if (strcmp(line, "once") == 0)
        status = one_round(me);
    else if (strncmp(line, "open ", 5) == 0)
        status = open_segment(me, line + 5);
    if (status == FERRY_OK)
        puts("ok");
    else
        say_failed(status, ferry_last_error_text());
}

static enum ferry_status prepare(struct survivor *me, const char *name)
{
    void *memory = NULL;

    enum ferry_status status = ferry_engine_open(NULL, &me->engine);
    if (status != FERRY_OK)
        return status;
    status = ferry_memory_alloc(me->engine, 2 * me->length, NULL, FERRY_PERMISSION_LOCAL, &memory);
    if (status != FERRY_OK)
        return status;
    me->out = memory;
    me->in = me->out + me->length;
    pattern_fill(me->out, me->length, 1, 0);
    return open_segment(me, name);
}

int main(int argc, char **argv)
{
    struct survivor me = {0};
    char line[512];

    if (argc != 3) {
        fprintf(stderr, "usage: survivor SEGMENT LENGTH\n");
        return 2;
    }
    me.length = strtoull(argv[2], NULL, 0);
    enum ferry_status status = prepare(&me, argv[1]);
    if (status == FERRY_OK)
        puts("ready");
    else
        say_failed(status, ferry_last_error_text());
    fflush(stdout);
    while (status == FERRY_OK && fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        obey(&me, line);
        fflush(stdout);
    }
    enum ferry_status closed = ferry_engine_close(me.engine);
    return status == FERRY_OK && closed == FERRY_OK ? 0 : 1;
}
