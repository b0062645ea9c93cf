/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offer memory to other processes: allocate a range, fill it, print the name under which peers find
 * it, and serve until standard input ends.
 *
 *     ./serve            then, elsewhere: ./read NAME
 *
 * The engine's own threads answer peers; this thread is free for the program's work.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

#define LENGTH ((uint64_t)1 << 20)

static int fail(const char *what, enum ferry_status status)
{
    fprintf(stderr, "%s: %s (%s)\n", what, ferry_last_error_text(), ferry_status_name(status));
    return EXIT_FAILURE;
}

int main(void)
{
    struct ferry_engine *engine = NULL;
    void *memory = NULL;

    enum ferry_status status = ferry_engine_open(NULL, &engine);
    if (status != FERRY_OK)
        return fail("open", status);

    /* Peers may read the range but not write it. */
    status = ferry_memory_alloc(engine, LENGTH, NULL, FERRY_PERMISSION_READ_ONLY, &memory);
    if (status != FERRY_OK) {
        int code = fail("memory", status);
        ferry_engine_close(engine);
        return code;
    }
    for (uint64_t i = 0; i < LENGTH; i++)
        ((unsigned char *)memory)[i] = (unsigned char)(i % 251);

    printf("%s\n", ferry_engine_segment_name(engine));
    fflush(stdout);
    while (getchar() != EOF)
        continue;

    /* Waits up to a second for transfers that run, then nothing touches the range any more. */
    status = ferry_memory_free(engine, memory, 1000000000);
    int code = status == FERRY_OK ? EXIT_SUCCESS : fail("memory", status);
    ferry_engine_close(engine);
    return code;
}
