/* SPDX-License-Identifier: Apache-2.0 */
/* The reactor on io_uring: not there yet, so AUTO takes epoll. */
#include "reactor/reactor.h"

#include "base/error.h"

static enum ferry_status uring_open(struct ferry_reactor *reactor,
                                    const struct ferry_reactor_options *options)
{
    (void)reactor;
    (void)options;
    return ferry_fail(FERRY_ERR_UNSUPPORTED, "uring reactor: not built");
}

static void uring_close(struct ferry_reactor *reactor)
{
    (void)reactor;
}

static void uring_op(struct ferry_reactor *reactor, struct ferry_op *op)
{
    (void)reactor;
    (void)op;
}

static uint32_t uring_turn(struct ferry_reactor *reactor, uint64_t until_ns)
{
    (void)reactor;
    (void)until_ns;
    return 0;
}

const struct ferry_reactor_ops ferry_reactor_uring = {
    .name = "uring",
    .open = uring_open,
    .close = uring_close,
    .submit = uring_op,
    .cancel = uring_op,
    .turn = uring_turn,
};
