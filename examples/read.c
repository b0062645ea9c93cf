/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first transfer: copy the start of another process's memory into our own.
 *
 *     ferry serve --memory 64MiB        prints its name, such as 127.0.0.1:40123
 *     ./read 127.0.0.1:40123
 *
 * One thread. ferry_read() returns when every byte is here, or says why not.
 */
#include <stdio.h>
#include <stdlib.h>

#include <ferry/ferry.h>

static char memory[1 << 20];

static int fail(const char *what, enum ferry_status status)
{
    fprintf(stderr, "%s: %s (%s)\n", what, ferry_last_error_text(), ferry_status_name(status));
    return EXIT_FAILURE;
}

/* Read as much of the peer's first buffer as fits into our memory. */
static enum ferry_status read_first_buffer(struct ferry_engine *engine, uint64_t segment)
{
    struct ferry_segment_buffer buffer = {.struct_size = sizeof(buffer)};
    struct ferry_request request = FERRY_REQUEST_INIT;
    size_t count = 1;

    enum ferry_status status = ferry_segment_buffers(engine, segment, &buffer, &count);
    if (status != FERRY_OK)
        return status;
    if (count == 0) {
        puts("the peer has no memory to read");
        return FERRY_OK;
    }
    request.local = memory;
    request.segment = segment;
    request.remote_offset = buffer.addr;
    request.length = buffer.length < sizeof(memory) ? buffer.length : sizeof(memory);
    status = ferry_read(engine, &request, FERRY_NO_DEADLINE);
    if (status != FERRY_OK)
        return status;

    uint64_t sum = 0;
    for (uint64_t i = 0; i < request.length; i++)
        sum += (unsigned char)memory[i];
    printf("read %llu bytes, sum %llu\n", (unsigned long long)request.length,
           (unsigned long long)sum);
    return FERRY_OK;
}

int main(int argc, char **argv)
{
    struct ferry_engine *engine = NULL;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t segment = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s SEGMENT\n", argv[0]);
        return 2;
    }
    enum ferry_status status = ferry_engine_open(NULL, &engine);
    if (status != FERRY_OK)
        return fail("open", status);

    range.addr = memory;
    range.length = sizeof(memory);
    range.permission = FERRY_PERMISSION_LOCAL; /* peers need not see it */
    status = ferry_memory_register(engine, &range, 1);
    if (status == FERRY_OK)
        status = ferry_segment_open(engine, argv[1], FERRY_NO_DEADLINE, &segment);
    if (status == FERRY_OK)
        status = read_first_buffer(engine, segment);
    int code = status == FERRY_OK ? EXIT_SUCCESS : fail(argv[1], status);
    ferry_engine_close(engine);
    return code;
}
