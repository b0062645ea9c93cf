/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict parsing and printing of host and port. Any thread; no state, no allocation, and no
 * resolver: inet_pton() and inet_ntop() only. Interface names are looked up for zones alone.
 */
#include "base/hostport.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#define LABEL_MAX 63 /* RFC 1035, 2.3.4 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
}

static FERRY_COLD enum ferry_status refuse(const char *text, const char *why)
{
    return ferry_fail(FERRY_ERR_INVALID, "\"%.160s\" is not a host and port: %s", text, why);
}

static bool parse_port(const char *text, bool zero_ok, uint16_t *port_out)
{
    uint32_t port = 0;
    size_t len = strlen(text);

    if (len < 1 || len > 5 || (text[0] == '0' && len > 1))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_digit(text[i]))
            return false;
        port = port * 10 + (uint32_t)(text[i] - '0');
    }
    if (port > UINT16_MAX || (port == 0 && !zero_ok))
        return false;
    *port_out = (uint16_t)port;
    return true;
}

/*
 * "0x7f", "017" and "256" as the last label mean that a (mistyped or old-style) IPv4 address was
 * meant; a resolver would read some of these as addresses nobody expects.
 */
static bool is_numeric_label(const char *label, size_t len)
{
    size_t i = 0;

    if (len > 1 && label[0] == '0' && (label[1] | 0x20) == 'x') {
        for (i = 2; i < len; i++) {
            int c = label[i] | 0x20;

            if (!is_digit(label[i]) && !(c >= 'a' && c <= 'f'))
                return false;
        }
        return true;
    }
    while (i < len && is_digit(label[i]))
        i++;
    return i == len;
}

static bool name_ok(const char *host)
{
    const char *label = host;

    for (;;) {
        size_t len = strcspn(label, ".");

        if (len == 0 || len > LABEL_MAX || label[0] == '-' || label[len - 1] == '-')
            return false;
        for (size_t i = 0; i < len; i++) {
            if (!is_word(label[i]))
                return false;
        }
        /* One dot at the very end is allowed: a name that is complete as it stands. */
        if (label[len] == '\0' || label[len + 1] == '\0')
            return !is_numeric_label(label, len);
        label += len + 1;
    }
}

static bool zone_ok(const char *zone)
{
    size_t len = strlen(zone);

    if (len < 1 || len >= IF_NAMESIZE)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!is_word(zone[i]) && zone[i] != '.')
            return false;
    }
    return true;
}

static bool zone_allowed(const struct in6_addr *addr)
{
    return IN6_IS_ADDR_LINKLOCAL(addr) || IN6_IS_ADDR_MC_LINKLOCAL(addr);
}

/* NULL on success, else the reason. */
static const char *set_ipv6(const char *host, struct ferry_hostport *place)
{
    const char *percent = strchr(host, '%');
    size_t len = percent != NULL ? (size_t)(percent - host) : strlen(host);
    char digits[INET6_ADDRSTRLEN];
    struct in6_addr addr;

    if (len >= sizeof(digits))
        return "too long for an IPv6 address";
    memcpy(digits, host, len);
    digits[len] = '\0';
    if (inet_pton(AF_INET6, digits, &addr) != 1)
        return "no IPv6 address";
    if (percent != NULL && !zone_ok(percent + 1))
        return "a zone is an interface name of 1..15 characters";
    if (percent != NULL && !zone_allowed(&addr))
        return "a zone belongs to link-local addresses only";
    if (inet_ntop(AF_INET6, &addr, digits, sizeof(digits)) == NULL)
        return "no IPv6 address";
    snprintf(place->host, sizeof(place->host), "%s%s", digits, percent != NULL ? percent : "");
    place->kind = FERRY_HOST_IPV6;
    return NULL;
}

/* A host without colons. NULL on success, else the reason. */
static const char *set_name_or_ipv4(const char *host, size_t len, struct ferry_hostport *place)
{
    char copy[FERRY_HOST_SIZE];
    struct in_addr addr;

    if (len == 0)
        return "the host is missing";
    if (len > 253)
        return "the host is longer than 253 characters";
    memcpy(copy, host, len);
    copy[len] = '\0';
    if (inet_pton(AF_INET, copy, &addr) == 1) {
        place->kind = FERRY_HOST_IPV4;
    } else if (name_ok(copy)) {
        place->kind = FERRY_HOST_NAME;
    } else {
        return "the host is neither a name nor an address";
    }
    memcpy(place->host, copy, len + 1);
    return NULL;
}

/*
 * Sets the host and finds what follows it: @rest_out is "" or begins with ':'. NULL on success,
 * else the reason.
 */
static const char *split(const char *text, struct ferry_hostport *place, const char **rest_out)
{
    const char *colon = strchr(text, ':');

    if (text[0] == '[') {
        const char *close = strchr(text, ']');
        char inside[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE];

        if (close == NULL)
            return "']' is missing";
        if (close[1] != '\0' && close[1] != ':')
            return "only ':' and a port may follow ']'";

        size_t len = (size_t)(close - text - 1);

        if (len >= sizeof(inside))
            return "too long for an IPv6 address";
        memcpy(inside, text + 1, len);
        inside[len] = '\0';
        *rest_out = close + 1;
        return set_ipv6(inside, place);
    }
    if (colon != NULL && strchr(colon + 1, ':') != NULL) {
        *rest_out = "";
        return set_ipv6(text, place);
    }
    *rest_out = colon != NULL ? colon : "";
    return set_name_or_ipv4(text, colon != NULL ? (size_t)(colon - text) : strlen(text), place);
}

enum ferry_status ferry_hostport_parse(const char *text, uint16_t default_port, unsigned flags,
                                       struct ferry_hostport *place_out)
{
    struct ferry_hostport place = {.port = default_port};
    const char *rest = "";
    const char *why = split(text, &place, &rest);

    if (why != NULL)
        return refuse(text, why);
    if (rest[0] == ':') {
        if (!parse_port(rest + 1, (flags & FERRY_HOSTPORT_ZERO_PORT) != 0, &place.port)) {
            return refuse(text, (flags & FERRY_HOSTPORT_ZERO_PORT) != 0
                                    ? "the port is no number 0..65535"
                                    : "the port is no number 1..65535");
        }
        place.port_given = true;
    } else if ((flags & FERRY_HOSTPORT_NEED_PORT) != 0) {
        return refuse(text, "the port is missing (an IPv6 address with a port needs brackets)");
    }
    *place_out = place;
    return FERRY_OK;
}

enum ferry_status ferry_host_parse(const char *text, struct ferry_hostport *place_out)
{
    struct ferry_hostport place = {0};
    enum ferry_status status = ferry_hostport_parse(text, 0, 0, &place);

    if (status != FERRY_OK)
        return status;
    if (place.port_given) {
        return ferry_fail(FERRY_ERR_INVALID, "\"%.160s\" is not a host: a port is not allowed here",
                          text);
    }
    *place_out = place;
    return FERRY_OK;
}

void ferry_hostport_format(const struct ferry_hostport *place, char *buf, size_t size)
{
    bool brackets = place->kind == FERRY_HOST_IPV6;

    snprintf(buf, size, "%s%s%s:%u", brackets ? "[" : "", place->host, brackets ? "]" : "",
             place->port);
}

void ferry_hostport_format_url(const struct ferry_hostport *place, char *buf, size_t size)
{
    const char *percent = strchr(place->host, '%');

    if (percent == NULL) {
        ferry_hostport_format(place, buf, size);
    } else {
        snprintf(buf, size, "[%.*s%%25%s]:%u", (int)(percent - place->host), place->host,
                 percent + 1, place->port);
    }
}

/* The address without its zone. */
static bool parse_in6(const struct ferry_hostport *place, struct in6_addr *addr_out)
{
    char digits[INET6_ADDRSTRLEN];
    size_t len = strcspn(place->host, "%");

    if (place->kind != FERRY_HOST_IPV6 || len >= sizeof(digits))
        return false;
    memcpy(digits, place->host, len);
    digits[len] = '\0';
    return inet_pton(AF_INET6, digits, addr_out) == 1;
}

static enum ferry_status zone_index(const struct ferry_hostport *place, uint32_t *index_out)
{
    const char *percent = strchr(place->host, '%');
    uint32_t index = 0;

    if (percent == NULL) {
        *index_out = 0;
        return FERRY_OK;
    }
    index = if_nametoindex(percent + 1);
    if (index == 0) {
        const char *digit = percent + 1;

        /* A zone may be the number of an interface: at most nine digits, so no overflow. */
        for (; is_digit(*digit) && digit - percent <= 9; digit++)
            index = index * 10 + (uint32_t)(*digit - '0');
        if (*digit != '\0')
            index = 0;
    }
    if (index == 0) {
        return ferry_fail(FERRY_ERR_INVALID, "\"%s\": this host has no interface \"%s\"",
                          place->host, percent + 1);
    }
    *index_out = index;
    return FERRY_OK;
}

enum ferry_status ferry_hostport_sockaddr(const struct ferry_hostport *place,
                                          struct sockaddr_storage *addr_out, socklen_t *len_out)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(place->port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(place->port)};

    if (place->kind == FERRY_HOST_IPV4 && inet_pton(AF_INET, place->host, &in.sin_addr) == 1) {
        memset(addr_out, 0, sizeof(*addr_out));
        memcpy(addr_out, &in, sizeof(in));
        *len_out = sizeof(in);
        return FERRY_OK;
    }
    if (!parse_in6(place, &in6.sin6_addr))
        return ferry_fail(FERRY_ERR_INVALID, "\"%s\" is not an address", place->host);

    enum ferry_status status = zone_index(place, &in6.sin6_scope_id);

    if (status != FERRY_OK)
        return status;
    memset(addr_out, 0, sizeof(*addr_out));
    memcpy(addr_out, &in6, sizeof(in6));
    *len_out = sizeof(in6);
    return FERRY_OK;
}

enum ferry_status ferry_hostport_of_sockaddr(const struct sockaddr *addr,
                                             struct ferry_hostport *place_out)
{
    struct ferry_hostport place = {.port_given = true};

    if (addr->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, addr, sizeof(in));
        inet_ntop(AF_INET, &in.sin_addr, place.host, sizeof(place.host));
        place.kind = FERRY_HOST_IPV4;
        place.port = ntohs(in.sin_port);
    } else if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 in6;
        char zone[IF_NAMESIZE];

        memcpy(&in6, addr, sizeof(in6));
        inet_ntop(AF_INET6, &in6.sin6_addr, place.host, sizeof(place.host));
        place.kind = FERRY_HOST_IPV6;
        place.port = ntohs(in6.sin6_port);
        if (in6.sin6_scope_id != 0 && zone_allowed(&in6.sin6_addr)) {
            size_t len = strlen(place.host);

            /* An interface that is gone keeps its number. */
            if (if_indextoname(in6.sin6_scope_id, zone) == NULL)
                snprintf(zone, sizeof(zone), "%u", in6.sin6_scope_id);
            snprintf(place.host + len, sizeof(place.host) - len, "%%%s", zone);
        }
    } else {
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "address family %d is neither IPv4 nor IPv6",
                          addr->sa_family);
    }
    *place_out = place;
    return FERRY_OK;
}

/* The IPv4 address in host byte order, mapped ones included. */
static bool get_ipv4(const struct ferry_hostport *place, uint32_t *addr_out)
{
    struct in_addr in;
    struct in6_addr in6;

    if (place->kind == FERRY_HOST_IPV4 && inet_pton(AF_INET, place->host, &in) == 1) {
        *addr_out = ntohl(in.s_addr);
        return true;
    }
    if (parse_in6(place, &in6) && IN6_IS_ADDR_V4MAPPED(&in6)) {
        memcpy(&in, &in6.s6_addr[12], sizeof(in));
        *addr_out = ntohl(in.s_addr);
        return true;
    }
    return false;
}

bool ferry_hostport_is_wildcard(const struct ferry_hostport *place)
{
    struct in6_addr in6;
    uint32_t addr;

    if (get_ipv4(place, &addr))
        return addr == INADDR_ANY;
    return parse_in6(place, &in6) && IN6_IS_ADDR_UNSPECIFIED(&in6);
}

bool ferry_hostport_is_loopback(const struct ferry_hostport *place)
{
    struct in6_addr in6;
    uint32_t addr;

    if (get_ipv4(place, &addr))
        return addr >> 24 == IN_LOOPBACKNET;
    if (place->kind == FERRY_HOST_NAME)
        return strcmp(place->host, "localhost") == 0;
    return parse_in6(place, &in6) && IN6_IS_ADDR_LOOPBACK(&in6);
}
