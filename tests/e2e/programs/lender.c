/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target that lends memory and takes it back, driven line by line by a scenario.
 *
 *     lender BYTES
 *
 *     lend PERMISSION   memory of its own, registered; PERMISSION is read-only or read-write
 *     alloc PERMISSION  the same, allocated by the engine
 *     take TIMEOUT_MS   unregister what was lent, write a pattern over it at once, and look for a
 * while whether anybody else writes; answers `ok MILLISECONDS` (of unregister), `changed`, or
 * `failed STATUS TEXT`
 *
 * The first line that it says is the segment's name.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <ferry/ferry.h>

#include "support/pattern.h"

#define WATCH_NS 50000000u

struct lender {
    struct ferry_engine *engine;
    unsigned char *memory;
    void *map; /* what the latest `lend` mapped */
    uint64_t length;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static enum ferry_permission permission_of(const char *text)
{
    return strcmp(text, "read-only") == 0 ? FERRY_PERMISSION_READ_ONLY
                                          : FERRY_PERMISSION_READ_WRITE;
}

static enum ferry_status lend(struct lender *me, const char *permission)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    void *map = mmap(NULL, me->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED)
        return FERRY_ERR_NO_MEMORY;
    me->memory = me->map = map;
    range.addr = map;
    range.length = me->length;
    range.permission = permission_of(permission);
    return ferry_memory_register(me->engine, &range, 1);
}

static enum ferry_status alloc(struct lender *me, const char *permission)
{
    void *memory = NULL;
    enum ferry_status status = ferry_memory_alloc(me->engine, me->length, NULL,
                                                  permission_of(permission), &memory);

    me->memory = memory;
    return status;
}

/* Nobody touches it any more: what we write stays. */
static bool stays(struct lender *me)
{
    uint64_t until_ns = now_ns() + WATCH_NS;
    bool same = true;

    pattern_fill(me->memory, me->length, 99, 0);
    do {
        same = pattern_differs(me->memory, me->length, 99, 0) == PATTERN_SAME;
    } while (same && now_ns() < until_ns);
    return same;
}

static void take(struct lender *me, const char *timeout_ms)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t timeout_ns = strtoull(timeout_ms, NULL, 10) * 1000000u;
    uint64_t began_ns = now_ns();
    uint64_t took_ms;
    enum ferry_status status;

    range.addr = me->memory;
    range.length = me->length;
    status = ferry_memory_unregister(me->engine, &range, 1, timeout_ns);
    took_ms = (now_ns() - began_ns) / 1000000u;
    if (status != FERRY_OK)
        printf("failed %s %s\n", ferry_status_name(status), ferry_last_error_text());
    else if (!stays(me))
        puts("changed");
    else {
        if (me->memory == me->map)
            munmap(me->map, me->length);
        me->memory = me->map = NULL;
        printf("ok %llu\n", (unsigned long long)took_ms);
    }
}

static void obey(struct lender *me, const char *word, const char *argument)
{
    enum ferry_status status = FERRY_ERR_INVALID;

    if (strcmp(word, "take") == 0) {
        take(me, argument);
        return;
    }
    if (strcmp(word, "lend") == 0)
        status = lend(me, argument);
    else if (strcmp(word, "alloc") == 0)
        status = alloc(me, argument);
    if (status == FERRY_OK)
        puts("ok");
    else
        printf("failed %s %s\n", ferry_status_name(status), ferry_last_error_text());
}

int main(int argc, char **argv)
{
    struct lender me = {0};
    char line[128], word[32], argument[32];

    if (argc != 2) {
        fprintf(stderr, "usage: lender BYTES\n");
        return 2;
    }
    me.length = strtoull(argv[1], NULL, 0);
    if (ferry_engine_open(NULL, &me.engine) != FERRY_OK) {
        fprintf(stderr, "%s\n", ferry_last_error_text());
        return 1;
    }
    puts(ferry_engine_segment_name(me.engine));
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin) != NULL) {
        word[0] = argument[0] = '\0';
        if (sscanf(line, "%31s %31s", word, argument) > 0)
            obey(&me, word, argument);
        fflush(stdout);
    }
    return ferry_engine_close(me.engine) == FERRY_OK ? 0 : 1;
}
