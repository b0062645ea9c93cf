/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An initiator whose every round moves new bytes over the same range, driven line by line.
 *
 *     rounds SEGMENT LENGTH
 *
 *     write     a new pattern goes to the target; answers `ok MILLISECONDS`, or `failed STATUS
 * TEXT` read      what was written last comes back, into memory that held something else, and is
 *               compared byte by byte; answers the same, or `differs OFFSET`
 *     rounds N  N times both; answers at the first that fails, or `ok MILLISECONDS` of all
 *     lanes     the transport's report as one line of JSON
 *
 * A byte of an earlier round that lands late, or twice, is seen by the next read, since no two
 * rounds have the same bytes anywhere. End of input closes the engine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ferry/ferry.h>

#include "support/pattern.h"

#define OPEN_NS UINT64_C(10000000000)

struct mover {
    struct ferry_engine *engine;
    struct ferry_request request;
    unsigned char *out;
    unsigned char *in;
    uint64_t round;
    size_t differs; /* where the latest read was wrong */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum ferry_status write_once(struct mover *me)
{
    pattern_fill(me->out, me->request.length, ++me->round, 0);
    me->request.local = me->out;
    return ferry_write(me->engine, &me->request, FERRY_NO_DEADLINE);
}

static enum ferry_status read_once(struct mover *me)
{
    enum ferry_status status;

    pattern_fill(me->in, me->request.length, ~me->round, 0);
    me->request.local = me->in;
    status = ferry_read(me->engine, &me->request, FERRY_NO_DEADLINE);
    if (status == FERRY_OK)
        me->differs = pattern_differs(me->in, me->request.length, me->round, 0);
    return status;
}

static enum ferry_status many(struct mover *me, unsigned long count)
{
    enum ferry_status status = FERRY_OK;

    for (unsigned long i = 0; i < count && status == FERRY_OK && me->differs == PATTERN_SAME; i++) {
        status = write_once(me);
        if (status == FERRY_OK)
            status = read_once(me);
    }
    return status;
}

static void print_report(struct mover *me)
{
    char *text = NULL;

    if (ferry_engine_report(me->engine, FERRY_REPORT_TRANSPORTS, &text) != FERRY_OK)
        text = NULL;
    for (char *p = text; p != NULL && *p != '\0'; p++)
        putchar(*p == '\n' ? ' ' : *p);
    putchar('\n');
    ferry_text_free(text);
}

static void obey(struct mover *me, const char *line)
{
    enum ferry_status status = FERRY_ERR_INVALID;
    uint64_t began_ns = now_ns();

    me->differs = PATTERN_SAME;
    if (strcmp(line, "lanes") == 0) {
        print_report(me);
        return;
    }
    if (strcmp(line, "write") == 0)
        status = write_once(me);
    else if (strcmp(line, "read") == 0)
        status = read_once(me);
    else if (strncmp(line, "rounds ", 7) == 0)
        status = many(me, strtoul(line + 7, NULL, 10));
    if (status != FERRY_OK)
        printf("failed %s %s\n", ferry_status_name(status), ferry_last_error_text());
    else if (me->differs != PATTERN_SAME)
        printf("differs %zu\n", me->differs);
    else
        printf("ok %llu\n", (unsigned long long)((now_ns() - began_ns) / 1000000u));
}

static enum ferry_status prepare(struct mover *me, const char *name)
{
    struct ferry_segment_buffer buffer = {.struct_size = sizeof(buffer)};
    size_t count = 1;
    void *memory = NULL;
    enum ferry_status status = ferry_engine_open(NULL, &me->engine);

    if (status == FERRY_OK)
        status = ferry_memory_alloc(me->engine, 2 * me->request.length, NULL,
                                    FERRY_PERMISSION_LOCAL, &memory);
    if (status != FERRY_OK)
        return status;
    me->out = memory;
    me->in = me->out + me->request.length;
    status = ferry_segment_open(me->engine, name, now_ns() + OPEN_NS, &me->request.segment);
    if (status == FERRY_OK)
        status = ferry_segment_buffers(me->engine, me->request.segment, &buffer, &count);
    if (status == FERRY_OK && (count == 0 || buffer.length < me->request.length))
        return FERRY_ERR_RANGE;
    me->request.remote_offset = buffer.addr;
    return status;
}

int main(int argc, char **argv)
{
    struct mover me = {.request = FERRY_REQUEST_INIT};
    char line[64];

    if (argc != 3) {
        fprintf(stderr, "usage: rounds SEGMENT LENGTH\n");
        return 2;
    }
    me.request.length = strtoull(argv[2], NULL, 0);

    enum ferry_status status = prepare(&me, argv[1]);

    if (status == FERRY_OK)
        puts("ready");
    else
        printf("failed %s %s\n", ferry_status_name(status), ferry_last_error_text());
    fflush(stdout);
    while (status == FERRY_OK && fgets(line, sizeof(line), stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        obey(&me, line);
        fflush(stdout);
    }
    return ferry_engine_close(me.engine) == FERRY_OK && status == FERRY_OK ? 0 : 1;
}
