/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listener: accepts connections on one worker and hands them round to all. When descriptors run
 * out it does not spin: it says so once and tries again a little later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/hostport.h"
#include "base/log.h"
#include "transport/hp_tcp/internal.h"

#define RETRY_NS (100 * FERRY_NS_PER_MS)

struct hp_listener {
    struct hp_worker *worker;
    uint16_t port;
    bool closing;
    bool short_of_fds; /* said so already */
    struct ferry_io io;
    struct ferry_op accept;
    struct ferry_timer retry;
    struct ferry_job start_job;
};

static void accept_next(struct hp_listener *listener);

static void finish(struct hp_listener *listener)
{
    struct hp_transport *transport = listener->worker->transport;
    struct ferry_reactor *reactor = ferry_hp_reactor(listener->worker);

    ferry_reactor_disarm(reactor, &listener->retry);
    ferry_hp_drop_socket(reactor, transport->net, &listener->io);
    listener->worker->listener = NULL;
    ferry_worker_add_duty(listener->worker->worker, -1);
    free(listener);
    ferry_hp_live_drop(transport);
}

static void on_accepted(struct ferry_op *op, int64_t result)
{
    struct hp_listener *listener = FERRY_CONTAINER_OF(op, struct hp_listener, accept);
    struct hp_transport *transport = listener->worker->transport;

    if (listener->closing) {
        if (result >= 0)
            ferry_net_close(transport->net, (int)result, false);
        finish(listener);
        return;
    }
    if (result >= 0) {
        listener->short_of_fds = false;
        ferry_hp_session_accept(transport, (int)result);
        accept_next(listener);
        return;
    }
    if (!listener->short_of_fds && result != -ECONNABORTED)
        ferry_warn("hp_tcp", "cannot accept connections: %s%s", strerror((int)-result),
                   result == -EMFILE ? "; raise the open-file limit (ulimit -n)" : "");
    listener->short_of_fds = result != -ECONNABORTED;
    if (ferry_reactor_arm(ferry_hp_reactor(listener->worker), &listener->retry,
                          ferry_deadline_ns(ferry_reactor_now(ferry_hp_reactor(listener->worker)),
                                            RETRY_NS)) != FERRY_OK)
        ferry_hp_admission_fail(&transport->admission, "the listener has no memory for a timer");
}

static void accept_next(struct hp_listener *listener)
{
    listener->accept.kind = FERRY_OP_ACCEPT;
    listener->accept.done = on_accepted;
    listener->accept.io = &listener->io;
    ferry_reactor_submit(ferry_hp_reactor(listener->worker), &listener->accept);
}

static void on_retry(struct ferry_timer *timer)
{
    accept_next(FERRY_CONTAINER_OF(timer, struct hp_listener, retry));
}

static void start(struct ferry_worker *base, struct ferry_job *job)
{
    struct hp_listener *listener = FERRY_CONTAINER_OF(job, struct hp_listener, start_job);
    struct hp_worker *worker = listener->worker;
    int fd = listener->io.fd;

    listener->io.fd = -1;
    if (ferry_reactor_attach(ferry_hp_reactor(worker), &listener->io, fd) != FERRY_OK) {
        ferry_hp_admission_fail(&worker->transport->admission, ferry_last_error_text());
        ferry_net_close(worker->transport->net, fd, false);
        free(listener);
        ferry_hp_live_drop(worker->transport);
        return;
    }
    worker->listener = listener;
    ferry_worker_add_duty(base, 1);
    accept_next(listener);
}

static enum ferry_status open_socket(struct hp_transport *transport, const char *host,
                                     uint16_t port, int *fd_out, uint16_t *port_out)
{
    struct ferry_hostport place;
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    enum ferry_status status = ferry_host_parse(host, &place);
    FERRY_AUTO_FD int fd = -1;

    if (status != FERRY_OK)
        return status;
    place.port = port;
    status = ferry_hostport_sockaddr(&place, &addr, &len);
    if (status == FERRY_OK)
        status = ferry_net_open(transport->net, addr.ss_family, &fd);
    if (status == FERRY_OK)
        status = ferry_net_listen(transport->net, fd, (const struct sockaddr *)&addr, len);
    if (status == FERRY_OK)
        status = ferry_net_local_addr(transport->net, fd, &addr, &len);
    if (status == FERRY_OK)
        status = ferry_hostport_of_sockaddr((const struct sockaddr *)&addr, &place);
    if (status != FERRY_OK) {
        if (fd >= 0)
            ferry_net_close(transport->net, ferry_take_fd(&fd), false);
        return status;
    }
    *port_out = place.port;
    *fd_out = ferry_take_fd(&fd);
    return FERRY_OK;
}

enum ferry_status ferry_hp_listener_open(struct hp_worker *worker, const char *host, uint16_t port,
                                         struct hp_listener **listener_out)
{
    FERRY_AUTO_FREE struct hp_listener *listener = calloc(1, sizeof(*listener));
    enum ferry_status status;

    if (listener == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for the listener");
    status = open_socket(worker->transport, host, port, &listener->io.fd, &listener->port);
    if (status != FERRY_OK)
        return status;
    listener->worker = worker;
    listener->retry.fire = on_retry;
    listener->start_job.run = start;
    ferry_hp_live_add(worker->transport);
    *listener_out = ferry_take_ptr(&listener);
    return FERRY_OK;
}

void ferry_hp_listener_start(struct hp_listener *listener)
{
    ferry_worker_post(listener->worker->worker, &listener->start_job, false);
}

uint16_t ferry_hp_listener_port(const struct hp_listener *listener)
{
    return listener->port;
}

void ferry_hp_listener_close(struct hp_listener *listener)
{
    listener->closing = true;
    if (ferry_op_inflight(&listener->accept))
        ferry_reactor_cancel(ferry_hp_reactor(listener->worker), &listener->accept);
    else
        finish(listener);
}
