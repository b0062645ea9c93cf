/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What server.c (sockets, thread, connections) and request.c (one request) share. Private to
 * control/.
 */
#ifndef FERRY_CONTROL_SERVER_PRIVATE_H
#define FERRY_CONTROL_SERVER_PRIVATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <microhttpd.h>

#include "access/access.h"
#include "base/hostport.h"
#include "base/list.h"
#include "control/proof.h"
#include "control/server.h"

/* One accepted connection, on the server thread. */
struct ferry_control_connection {
    struct ferry_list link;
    int fd; /* libmicrohttpd's */
    uint64_t since_ns;
    bool cut;
    bool asked;      /* a request of it was read */
    bool challenged; /* the challenge below waits for its proof */
    uint8_t challenge[FERRY_CONTROL_CHALLENGE_SIZE];
    char tls_trouble[160]; /* what GnuTLS says about its certificate */
};

struct ferry_control_server {
    /* immutable after open */
    struct ferry_control_options options; /* advertise_host points to the copy below */
    char advertise_host[FERRY_HOST_SIZE];
    struct MHD_Daemon *daemon; /* used by the server thread until it is joined */
    int epoll_fd;              /* the daemon's */
    int stop_fd;
    uint16_t port;
    pid_t pid;
    pthread_t thread;
    bool thread_started;
    /* server thread only */
    struct ferry_list connections; /* by since_ns, the oldest first */
    uint64_t events;               /* callbacks so far: did anything move? */
};

/* The callbacks of libmicrohttpd for requests; the argument is the server. */
enum MHD_Result ferry_control_on_request(void *arg, struct MHD_Connection *connection,
                                         const char *url, const char *method, const char *version,
                                         const char *upload, size_t *upload_len, void **state);
void ferry_control_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                                enum MHD_RequestTerminationCode why);

/* server_tls.c; all of it does nothing without TLS. */
#define FERRY_CONTROL_TLS_OPTIONS 5
void ferry_control_tls_options(const struct ferry_control_server *server,
                               struct MHD_OptionItem items[FERRY_CONTROL_TLS_OPTIONS]);
/* The server thread begins. */
void ferry_control_tls_thread(struct ferry_control_server *server);
void ferry_control_tls_started(const struct ferry_control_server *server,
                               struct MHD_Connection *mhd_connection);
void ferry_control_tls_closed(struct ferry_control_server *server,
                              struct MHD_Connection *mhd_connection,
                              const struct ferry_control_connection *connection);

/* True if a Host header names this engine. */
bool ferry_control_host_is_ours(const struct ferry_control_server *server, const char *host);

#endif
