/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listeners, one a rail: they accept connections on one worker and hand them round to all. When
 * descriptors run out a listener does not spin: it says so once and tries again a little later.
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

/* How often a port is drawn that must be free at several addresses. */
#define PORT_TRIES 16u

struct hp_listener {
    struct ferry_list link; /* in worker->listeners */
    struct hp_worker *worker;
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
    ferry_list_remove(&listener->link);
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
    ferry_list_push_back(&worker->listeners, &listener->link);
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

static enum ferry_status open_one(struct hp_worker *worker, const char *host, uint16_t port,
                                  struct hp_listener **listener_out, uint16_t *port_out)
{
    FERRY_AUTO_FREE struct hp_listener *listener = calloc(1, sizeof(*listener));
    enum ferry_status status;

    if (listener == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "hp_tcp: out of memory for the listener");
    status = open_socket(worker->transport, host, port, &listener->io.fd, port_out);
    if (status != FERRY_OK)
        return status;
    listener->worker = worker;
    listener->retry.fire = on_retry;
    listener->start_job.run = start;
    ferry_list_init(&listener->link);
    *listener_out = ferry_take_ptr(&listener);
    return FERRY_OK;
}

static bool has_family(const struct ferry_hp_settings *settings, enum ferry_host_kind kind)
{
    struct ferry_hostport place;

    for (uint32_t i = 0; i < settings->rail_count; i++) {
        if (ferry_host_parse(settings->rails[i], &place) == FERRY_OK && place.kind == kind)
            return true;
    }
    return false;
}

/* The addresses to listen at: each rail, or with a wildcard everything of the rails' families. */
static uint32_t places(const struct hp_transport *transport, const char *host,
                       const char *places_out[FERRY_HP_RAILS_MAX])
{
    const struct ferry_hp_settings *settings = &transport->settings;
    struct ferry_hostport bind;
    uint32_t count = 0;

    if (settings->rail_count == 0) {
        places_out[count++] = host;
    } else if (settings->bind_address[0] == '\0' ||
               ferry_host_parse(settings->bind_address, &bind) != FERRY_OK ||
               !ferry_hostport_is_wildcard(&bind)) {
        for (uint32_t i = 0; i < settings->rail_count; i++)
            places_out[count++] = settings->rails[i];
    } else {
        if (has_family(settings, FERRY_HOST_IPV4))
            places_out[count++] = "0.0.0.0";
        if (has_family(settings, FERRY_HOST_IPV6))
            places_out[count++] = "::";
    }
    return count;
}

static enum ferry_status open_all(struct hp_worker *worker, const char *const *hosts,
                                  uint32_t count, struct hp_listener **listeners_out,
                                  uint16_t *port_out)
{
    uint16_t port = worker->transport->settings.port;
    enum ferry_status status = FERRY_OK;

    for (uint32_t i = 0; i < count && status == FERRY_OK; i++)
        status = open_one(worker, hosts[i], port, &listeners_out[i], &port);
    if (status == FERRY_OK) {
        *port_out = port;
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < count && listeners_out[i] != NULL; i++) {
        ferry_net_close(worker->transport->net, listeners_out[i]->io.fd, false);
        free(listeners_out[i]);
        listeners_out[i] = NULL;
    }
    return status;
}

enum ferry_status ferry_hp_listeners_open(struct hp_worker *worker, const char *host,
                                          uint16_t *port_out)
{
    struct hp_transport *transport = worker->transport;
    struct hp_listener *listeners[FERRY_HP_RAILS_MAX] = {NULL};
    const char *hosts[FERRY_HP_RAILS_MAX];
    uint32_t count = places(transport, host, hosts);
    /* A port that the system picked for the first may be taken at another. */
    uint32_t tries = count > 1 && transport->settings.port == 0 ? PORT_TRIES : 1;
    enum ferry_status status;

    do
        status = open_all(worker, hosts, count, listeners, port_out);
    while (status != FERRY_OK && --tries > 0);
    if (status != FERRY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        ferry_hp_live_add(transport);
        ferry_worker_post(worker->worker, &listeners[i]->start_job, false);
    }
    return FERRY_OK;
}

void ferry_hp_listeners_close(struct hp_worker *worker)
{
    struct ferry_list *next;

    for (struct ferry_list *l = worker->listeners.next; l != &worker->listeners; l = next) {
        struct hp_listener *listener = FERRY_CONTAINER_OF(l, struct hp_listener, link);

        next = l->next;
        listener->closing = true;
        if (ferry_op_inflight(&listener->accept))
            ferry_reactor_cancel(ferry_hp_reactor(worker), &listener->accept);
        else
            finish(listener);
    }
}
