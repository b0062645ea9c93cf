/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's sockets, thread and connections; requests are in request.c.
 *
 * libmicrohttpd runs without a thread of its own: ours polls its epoll descriptor, so that signals
 * are blocked, close is prompt, and connections have a time limit that trickled bytes do not
 * extend. All of it is on the server thread; open and close only touch it before and after.
 *
 * Close order: wake and join the thread, stop the daemon (closes all sockets, releases all
 * replies), free.
 */
#include "control/server_private.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

#define CONNECTION_MEMORY_BYTES ((size_t)32 * 1024)
#define LISTEN_BACKLOG          128
/* So many wake-ups in a row that moved nothing make the thread pause for so long. */
#define IDLE_TURNS_MAX 64
#define IDLE_PAUSE_MS  10

static uint64_t now(void)
{
    return ferry_now_ns(&ferry_clock_system);
}

static void on_connection(void *arg, struct MHD_Connection *mhd_connection, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    struct ferry_control_server *server = arg;
    struct ferry_control_connection *connection = *state;

    server->events++;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (connection != NULL) {
            ferry_control_tls_closed(server, mhd_connection, connection);
            ferry_list_remove(&connection->link);
        }
        free(connection);
        *state = NULL;
        return;
    }

    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd_connection, MHD_CONNECTION_INFO_CONNECTION_FD);

    ferry_control_tls_started(server, mhd_connection);
    connection = calloc(1, sizeof(*connection));
    if (connection == NULL)
        return; /* it still has libmicrohttpd's own time limit */
    connection->fd = info->connect_fd;
    connection->since_ns = now();
    ferry_list_push_back(&server->connections, &connection->link);
    *state = connection;
}

/* A request ended: the connection's time starts again. */
static void on_completed(void *arg, struct MHD_Connection *mhd_connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct ferry_control_server *server = arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(
        mhd_connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct ferry_control_connection *connection = info->socket_context;

    ferry_control_on_completed(arg, mhd_connection, state, why);
    if (connection == NULL)
        return;
    connection->since_ns = now();
    ferry_list_remove(&connection->link);
    ferry_list_push_back(&server->connections, &connection->link);
}

static uint64_t request_limit_ns(const struct ferry_control_server *server)
{
    return server->options.timeout_s * FERRY_CONTROL_REQUEST_TIMEOUTS * FERRY_NS_PER_S;
}

/* Cut what is over time; libmicrohttpd sees the end of the stream and cleans up. */
static void cut_late(struct ferry_control_server *server, uint64_t now_ns)
{
    uint64_t limit_ns = request_limit_ns(server);

    for (struct ferry_list *link = server->connections.next; link != &server->connections;
         link = link->next) {
        struct ferry_control_connection *connection = FERRY_CONTAINER_OF(
            link, struct ferry_control_connection, link);

        if (now_ns - connection->since_ns < limit_ns)
            return;
        if (!connection->cut)
            shutdown(connection->fd, SHUT_RDWR);
        connection->cut = true;
    }
}

static int wait_ms(struct ferry_control_server *server)
{
    uint64_t ms = UINT64_MAX;
    unsigned long long mhd_ms;

    if (MHD_get_timeout(server->daemon, &mhd_ms) == MHD_YES)
        ms = mhd_ms;
    for (struct ferry_list *link = server->connections.next; link != &server->connections;
         link = link->next) {
        struct ferry_control_connection *connection = FERRY_CONTAINER_OF(
            link, struct ferry_control_connection, link);
        uint64_t due_ns = connection->since_ns + request_limit_ns(server);
        uint64_t now_ns = now();
        uint64_t due_ms = due_ns > now_ns ? (due_ns - now_ns) / FERRY_NS_PER_MS + 1 : 0;

        if (connection->cut)
            continue;
        ms = due_ms < ms ? due_ms : ms;
        break;
    }
    if (ms == UINT64_MAX)
        return -1;
    return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/*
 * libmicrohttpd takes the listener out of its epoll set while all connections are in use, and puts
 * it back only at the beginning of a run, not when a connection closes: as long as a turn moved
 * anything, another one follows at once.
 *
 * Without descriptors left in the process it cannot accept and asks to be run again at once, for
 * ever: many turns that move nothing are slowed down.
 */
static void *server_main(void *arg)
{
    struct ferry_control_server *server = arg;
    struct pollfd fds[2] = {
        {.fd = server->stop_fd, .events = POLLIN},
        {.fd = server->epoll_fd, .events = POLLIN},
    };
    bool moved = false;
    unsigned idle_turns = 0;

    ferry_control_tls_thread(server);
    for (;;) {
        uint64_t events = server->events;
        int rc = poll(fds, 2, moved ? 0 : wait_ms(server));

        if (rc > 0 && fds[0].revents != 0)
            return NULL;
        MHD_run(server->daemon);
        cut_late(server, now());
        moved = server->events != events;
        idle_turns = moved ? 0 : idle_turns + 1;
        if (idle_turns > IDLE_TURNS_MAX)
            poll(fds, 1, IDLE_PAUSE_MS);
    }
}

static enum ferry_status fail_bind(int err, const char *where)
{
    switch (err) {
    case EADDRINUSE:
        return ferry_fail(FERRY_ERR_EXISTS, "control: %s is taken by another listener", where);
    case EADDRNOTAVAIL:
        return ferry_fail(FERRY_ERR_INVALID, "control: %s is not an address of this machine",
                          where);
    case EAFNOSUPPORT:
        return ferry_fail(FERRY_ERR_INVALID, "control: this machine has no IPv6, needed for %s",
                          where);
    default:
        return ferry_fail_errno(err, "control: cannot listen on %s", where);
    }
}

static enum ferry_status listen_on(struct ferry_control_server *server,
                                   const struct ferry_hostport *place, int *fd_out)
{
    struct sockaddr_storage addr;
    socklen_t len;
    char where[FERRY_HOSTPORT_SIZE];
    int on = 1;
    int off = 0;
    enum ferry_status status = ferry_hostport_sockaddr(place, &addr, &len);

    if (status != FERRY_OK)
        return status;
    ferry_hostport_format(place, where, sizeof(where));

    FERRY_AUTO_FD int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return fail_bind(errno, where);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (addr.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, (const struct sockaddr *)&addr, len) != 0 || listen(fd, LISTEN_BACKLOG) != 0)
        return fail_bind(errno, where);

    struct ferry_hostport bound;

    len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        return ferry_fail_errno(errno, "control: %s", where);
    status = ferry_hostport_of_sockaddr((const struct sockaddr *)&addr, &bound);
    if (status != FERRY_OK)
        return status;
    server->port = bound.port;
    *fd_out = ferry_take_fd(&fd);
    return FERRY_OK;
}

/* What libmicrohttpd has to say is about single connections. */
static FERRY_PRINTF(2, 0) void on_log(void *arg, const char *fmt, va_list args)
{
    char text[256];

    (void)arg;
    if (!ferry_log_enabled(FERRY_LOG_DEBUG))
        return;

    int len = vsnprintf(text, sizeof(text), fmt, args);

    while (len > 0 && len < (int)sizeof(text) && text[len - 1] == '\n')
        text[--len] = '\0';
    ferry_debug("control", "%s", text);
}

/* Owns @listen_fd from here on, also on failure. */
static enum ferry_status start_daemon(struct ferry_control_server *server, int listen_fd)
{
    bool tls = ferry_access_tls(server->options.access) != NULL;
    struct MHD_OptionItem tls_options[FERRY_CONTROL_TLS_OPTIONS];

    ferry_control_tls_options(server, tls_options);
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0), 0, NULL, NULL,
        ferry_control_on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        server->options.connections_max, MHD_OPTION_CONNECTION_TIMEOUT, server->options.timeout_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY_BYTES, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, server, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
        tls_options, MHD_OPTION_END);
    if (server->daemon == NULL) {
        close(listen_fd);
        return tls ? ferry_fail(FERRY_ERR_CONFIG,
                                "control: GnuTLS does not take tls.cert, tls.key and tls.ca, or "
                                "there is no memory or descriptor for the server")
                   : ferry_fail(FERRY_ERR_LIMIT,
                                "control: no memory or no descriptor for the server");
    }

    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon,
                                                           MHD_DAEMON_INFO_EPOLL_FD);

    server->epoll_fd = info->epoll_fd;
    return FERRY_OK;
}

/* Accepts a partly opened server. */
static void destroy(struct ferry_control_server *server)
{
    if (server->thread_started) {
        uint64_t one = 1;
        ssize_t written = write(server->stop_fd, &one, sizeof(one));

        FERRY_ASSERT(written == (ssize_t)sizeof(one));
        pthread_join(server->thread, NULL);
    }
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    FERRY_ASSERT(ferry_list_empty(&server->connections));
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    free(server);
}

static enum ferry_status check_options(const struct ferry_control_options *options,
                                       struct ferry_hostport *place)
{
    const char *host = options->bind_host;
    enum ferry_status status = ferry_host_parse(
        host == NULL || host[0] == '\0' ? "127.0.0.1" : host, place);

    if (status != FERRY_OK)
        return status;
    if (place->kind == FERRY_HOST_NAME)
        return ferry_fail(FERRY_ERR_INVALID,
                          "control: \"%s\" is a name; a numeric address is needed to listen on",
                          host);
    if (options->connections_max == 0 || options->timeout_s == 0)
        return ferry_fail(FERRY_ERR_INVALID, "control: connections_max and timeout_s must be > 0");
    if (options->advertise_host != NULL && strlen(options->advertise_host) >= FERRY_HOST_SIZE)
        return ferry_fail(FERRY_ERR_INVALID, "control: the advertised host is too long");
    place->port = options->port;
    return FERRY_OK;
}

static enum ferry_status start(struct ferry_control_server *server,
                               const struct ferry_hostport *place)
{
    int listen_fd = -1;

    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->stop_fd < 0)
        return ferry_fail_errno(errno, "control: eventfd");

    enum ferry_status status = listen_on(server, place, &listen_fd);

    if (status == FERRY_OK)
        status = start_daemon(server, listen_fd);
    if (status == FERRY_OK)
        status = ferry_thread_start("ferry-http", server_main, server, &server->thread);
    server->thread_started = status == FERRY_OK;
    return status;
}

enum ferry_status ferry_control_server_open(const struct ferry_control_options *options,
                                            struct ferry_control_server **server_out)
{
    struct ferry_hostport place;
    enum ferry_status status = check_options(options, &place);

    if (status != FERRY_OK)
        return status;

    struct ferry_control_server *server = calloc(1, sizeof(*server));

    if (server == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "control: out of memory");
    server->options = *options;
    if (options->advertise_host != NULL)
        strcpy(server->advertise_host, options->advertise_host);
    server->options.advertise_host = server->advertise_host;
    server->options.bind_host = NULL;
    server->stop_fd = -1;
    server->pid = getpid();
    ferry_list_init(&server->connections);
    status = start(server, &place);
    if (status != FERRY_OK) {
        destroy(server);
        return status;
    }
    if (!ferry_hostport_is_loopback(&place) && !ferry_access_on(options->access))
        ferry_warn(
            "control",
            "the control plane listens on %s port %u without access control "
            "(auth_key_file, tls): everybody who can reach it can read the segment document and "
            "send notifications, and over the data port read and write registered memory as "
            "its permission says",
            place.host, server->port);
    *server_out = server;
    return FERRY_OK;
}

void ferry_control_server_close(struct ferry_control_server *server)
{
    if (server == NULL || server->pid != getpid())
        return;
    FERRY_ASSERT(!pthread_equal(server->thread, pthread_self()));
    destroy(server);
}

uint16_t ferry_control_server_port(const struct ferry_control_server *server)
{
    return server->port;
}
