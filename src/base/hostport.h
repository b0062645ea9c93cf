/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in the network as text: "host:port", with IPv6 in brackets. Pure text and address
 * arithmetic: nothing here asks a resolver, so a malformed place never becomes a query.
 *
 *     192.0.2.1:80   node7:80   [2001:db8::1]:80   [fe80::1%eth0]:80
 *     192.0.2.1      node7      [2001:db8::1]      2001:db8::1         (default port)
 *
 * Text with two or more colons outside brackets is a bare IPv6 literal or an error, never a host
 * cut at some colon.
 */
#ifndef FERRY_BASE_HOSTPORT_H
#define FERRY_BASE_HOSTPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <ferry/status.h>

#include "base/compiler.h"

enum ferry_host_kind {
    FERRY_HOST_NAME, /* needs a resolver */
    FERRY_HOST_IPV4,
    FERRY_HOST_IPV6, /* with a zone ("%eth0") if it is link-local and has one */
};

#define FERRY_HOST_SIZE     256
#define FERRY_HOSTPORT_SIZE (FERRY_HOST_SIZE + 16)

struct ferry_hostport {
    char host[FERRY_HOST_SIZE]; /* no brackets; addresses in their canonical form */
    enum ferry_host_kind kind;
    uint16_t port;
    bool port_given; /* in the text, rather than by default */
};

/* Parse flags. */
#define FERRY_HOSTPORT_NEED_PORT 1U /* no default: a text without a port is refused */
#define FERRY_HOSTPORT_ZERO_PORT 2U /* port 0 ("pick one") is allowed in the text */

/*
 * Strict: no space, no service names, no hexadecimal, ports 1..65535 without leading zeros. A zone
 * is allowed on link-local addresses only. A host that looks like a mistyped IPv4 address ("1.2.3",
 * "10.0.0.256") is refused. ERR_INVALID; the text quotes the form.
 */
FERRY_CHECKED enum ferry_status ferry_hostport_parse(const char *text, uint16_t default_port,
                                                     unsigned flags,
                                                     struct ferry_hostport *place_out);
/* The host alone; brackets are optional around IPv6, a port is refused. */
FERRY_CHECKED enum ferry_status ferry_host_parse(const char *text,
                                                 struct ferry_hostport *place_out);

/* "host:port", brackets where needed; reads back to the same place. FERRY_HOSTPORT_SIZE fits all.
 */
void ferry_hostport_format(const struct ferry_hostport *place, char *buf, size_t size);
/* As the authority of a URL: a zone's '%' becomes "%25" (RFC 6874). */
void ferry_hostport_format_url(const struct ferry_hostport *place, char *buf, size_t size);

/*
 * The socket address of a place that is no name. ERR_INVALID for a name, or for a zone that is no
 * interface of this host.
 */
FERRY_CHECKED enum ferry_status ferry_hostport_sockaddr(const struct ferry_hostport *place,
                                                        struct sockaddr_storage *addr_out,
                                                        socklen_t *len_out);
/* The other way round, numeric, no resolver. ERR_UNSUPPORTED for other families. */
FERRY_CHECKED enum ferry_status ferry_hostport_of_sockaddr(const struct sockaddr *addr,
                                                           struct ferry_hostport *place_out);

/* "0.0.0.0", "::" and what maps to them; such a place can be listened on but not published. */
bool ferry_hostport_is_wildcard(const struct ferry_hostport *place);
/* 127.0.0.0/8, ::1, the mapped ones, and the name "localhost". */
bool ferry_hostport_is_loopback(const struct ferry_hostport *place);

#endif
