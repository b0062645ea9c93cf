/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens targets and cuts the window out of their buffers. Moves nothing.
 */
#include "peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A check writes what it is going to read. */
static bool needs_write(const struct ferry_bench_options *options)
{
    return options->check ||
           (options->op != FERRY_BENCH_READ && options->op != FERRY_BENCH_READ_VERIFY);
}

static const struct ferry_segment_buffer *largest(const struct ferry_segment_buffer *buffers,
                                                  size_t count, enum ferry_permission permission)
{
    const struct ferry_segment_buffer *best = NULL;

    for (size_t i = 0; i < count; i++) {
        if (buffers[i].permission >= permission &&
            (best == NULL || buffers[i].length > best->length))
            best = &buffers[i];
    }
    return best;
}

/* The window of the options inside a buffer. */
static int cut_window(const struct ferry_bench_options *options,
                      const struct ferry_segment_buffer *buffer, struct ferry_bench_peer *peer)
{
    uint64_t offset = options->window_offset;
    uint64_t left = offset < buffer->length ? buffer->length - offset : 0;

    if (left == 0 || options->window_bytes > left) {
        ferry_cli_say("--target_offset %" PRIu64 " with --target_range_size %" PRIu64
                      ": expected a range inside the %" PRIu64 " bytes of %s",
                      offset, options->window_bytes, buffer->length, peer->name);
        return FERRY_EXIT_USAGE;
    }
    peer->addr = buffer->addr + offset;
    peer->bytes = options->window_bytes > 0 ? options->window_bytes : left;
    return FERRY_EXIT_OK;
}

static int choose_buffer(struct ferry_engine *engine, const struct ferry_bench_options *options,
                         struct ferry_bench_peer *peer)
{
    enum ferry_permission permission = needs_write(options) ? FERRY_PERMISSION_READ_WRITE
                                                            : FERRY_PERMISSION_READ_ONLY;
    struct ferry_segment_buffer *buffers = NULL;
    size_t count = 0;
    enum ferry_status status = ferry_cli_buffers(engine, peer->segment, &buffers, &count);
    int exit_status = FERRY_EXIT_ENVIRONMENT;

    if (status != FERRY_OK)
        return ferry_cli_fail(status, peer->name);

    const struct ferry_segment_buffer *best = largest(buffers, count, permission);

    if (best == NULL)
        ferry_cli_say("%s: has no buffer that permits to %s", peer->name,
                      needs_write(options) ? "write" : "read");
    else
        exit_status = cut_window(options, best, peer);
    free(buffers);
    return exit_status;
}

int ferry_bench_peer_open(struct ferry_engine *engine, const struct ferry_bench_options *options,
                          const char *name, struct ferry_bench_peer *peer_out)
{
    struct ferry_bench_peer peer = {.name = name};
    enum ferry_status status = ferry_segment_open(engine, name, FERRY_NO_DEADLINE, &peer.segment);

    if (status != FERRY_OK) {
        ferry_cli_fail(status, name);
        return status == FERRY_ERR_INVALID ? FERRY_EXIT_USAGE : FERRY_EXIT_ENVIRONMENT;
    }

    int exit_status = choose_buffer(engine, options, &peer);

    if (exit_status != FERRY_EXIT_OK) {
        ferry_segment_close(engine, peer.segment);
        return exit_status;
    }
    *peer_out = peer;
    return FERRY_EXIT_OK;
}

void ferry_bench_peer_close(struct ferry_engine *engine, struct ferry_bench_peer *peer)
{
    ferry_segment_close(engine, peer->segment);
}
