/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reactor's table over net_sim.h. One thread, no system calls. Which of the ready ops complete
 * in a turn, and in which order, is drawn from the net's generator; at least one does, so a turn
 * without a delivery means that only time can help.
 */
#include "sim/reactor_sim.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/error.h"

#define OPS_MAX 4096

enum place {
    PENDING = FERRY_OP_INFLIGHT | 1u << 1,
    CANCELED = FERRY_OP_INFLIGHT | 2u << 1,
    RACING = FERRY_OP_INFLIGHT | 3u << 1, /* canceled, but what can be done now is done first */
};

struct sim_impl {
    struct sim_net *net;
    struct sim_process *process;
    struct ferry_list ops;
    uint32_t op_count;
    bool woken;
};

static enum ferry_status sim_open(struct ferry_reactor *reactor,
                                  const struct ferry_reactor_options *options)
{
    struct sim_impl *impl = calloc(1, sizeof(*impl));

    FERRY_ASSERT(impl != NULL);
    reactor->impl = impl;
    impl->net = sim_net_of_clock(options->clock, &impl->process);
    ferry_list_init(&impl->ops);
    sim_net_add_reactor(impl->net, reactor);
    return FERRY_OK;
}

static void sim_close(struct ferry_reactor *reactor)
{
    struct sim_impl *impl = reactor->impl;

    if (impl == NULL)
        return;
    FERRY_ASSERT(ferry_list_empty(&impl->ops));
    sim_net_remove_reactor(impl->net, reactor);
    free(impl);
    reactor->impl = NULL;
}

static enum ferry_status sim_attach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    struct sim_impl *impl = reactor->impl;

    if (!sim_fd_known(impl->process, io->fd))
        return ferry_fail_errno(EBADF, "simulated: descriptor %d", io->fd);
    return FERRY_OK;
}

static void sim_detach(struct ferry_reactor *reactor, struct ferry_io *io)
{
    struct sim_impl *impl = reactor->impl;

    FERRY_ASSERT(sim_fd_known(impl->process, io->fd)); /* closed before it was detached */
}

static void sim_submit(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct sim_impl *impl = reactor->impl;

    FERRY_ASSERT(impl->op_count < OPS_MAX);
    op->state = PENDING;
    ferry_list_push_back(&impl->ops, &op->link);
    impl->op_count++;
}

static void sim_cancel(struct ferry_reactor *reactor, struct ferry_op *op)
{
    struct sim_impl *impl = reactor->impl;

    /* What was ready when the cancel came may win the race. */
    if (op->state == PENDING)
        op->state = sim_op_ready(impl->process, op) && sim_random_below(impl->net, 2) == 0
                        ? RACING
                        : CANCELED;
}

/* True if the op completed. */
static bool run_op(struct ferry_reactor *reactor, struct sim_impl *impl, struct ferry_op *op)
{
    int64_t result;

    if (op->state == CANCELED || sim_try_op(impl->process, op, &result) != SIM_TRY_DONE) {
        if (op->state == PENDING)
            return false;
        result = op->progress > 0 ? (int64_t)op->progress : -ECANCELED;
    }
    ferry_list_remove(&op->link);
    impl->op_count--;
    ferry_reactor_complete(reactor, op, result);
    return true;
}

static bool is_ready(struct sim_impl *impl, const struct ferry_op *op)
{
    return op->state != PENDING || sim_op_ready(impl->process, op);
}

/* A ready op drawn at random: a list walk with one draw per candidate keeps the choice even. */
static struct ferry_op *draw_ready(struct sim_impl *impl)
{
    struct ferry_op *chosen = NULL;
    uint32_t count = 0;

    for (struct ferry_list *link = impl->ops.next; link != &impl->ops; link = link->next) {
        struct ferry_op *op = FERRY_CONTAINER_OF(link, struct ferry_op, link);

        if (is_ready(impl, op) && (++count == 1 || sim_random_below(impl->net, count) == 0))
            chosen = op;
    }
    return chosen;
}

static uint32_t run_some(struct ferry_reactor *reactor, struct sim_impl *impl)
{
    uint32_t delivered = 0;
    uint32_t tries_max = 2 * impl->op_count;

    for (uint32_t i = 0; i < tries_max; i++) {
        struct ferry_op *op = draw_ready(impl);

        if (op == NULL)
            break;
        delivered += run_op(reactor, impl, op) ? 1 : 0;
        if (delivered > 0 && sim_random_below(impl->net, 2) == 0)
            break;
    }
    return delivered;
}

static uint32_t sim_turn(struct ferry_reactor *reactor, uint64_t until_ns)
{
    struct sim_impl *impl = reactor->impl;
    uint32_t delivered = run_some(reactor, impl);

    if (delivered > 0 || until_ns == 0 || draw_ready(impl) != NULL)
        return delivered;
    if (!impl->woken && ferry_reactor_sleep_begin(reactor)) {
        sim_net_advance_until(impl->net, until_ns);
        ferry_reactor_sleep_end(reactor);
    }
    impl->woken = false;
    return run_some(reactor, impl);
}

static void sim_wake(struct ferry_reactor *reactor)
{
    struct sim_impl *impl = reactor->impl;

    impl->woken = true;
}

static bool sim_has_work(const struct ferry_reactor *reactor)
{
    struct sim_impl *impl = reactor->impl;

    for (struct ferry_list *link = impl->ops.next; link != &impl->ops; link = link->next)
        if (is_ready(impl, FERRY_CONTAINER_OF(link, struct ferry_op, link)))
            return true;
    return false;
}

const struct ferry_reactor_ops sim_reactor_ops = {
    .name = "sim",
    .open = sim_open,
    .close = sim_close,
    .attach = sim_attach,
    .detach = sim_detach,
    .submit = sim_submit,
    .cancel = sim_cancel,
    .turn = sim_turn,
    .wake = sim_wake,
    .has_work = sim_has_work,
};
