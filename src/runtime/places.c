/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the control plane listens, and the address that peers are told. What is published is
 * something that a peer can connect to: a wildcard is refused by the name of its setting, and when
 * the listener takes every address the topology picks the one to tell. Runs on the thread that
 * opens an engine; may ask the resolver.
 */
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "config/option.h"
#include "runtime/runtime.h"
#include "topology/address.h"

#define LOOPBACK "127.0.0.1"

/* The first numeric address of a host name, in the resolver's order. */
static enum ferry_status resolve(const char *host, struct ferry_hostport *place_out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &list);
    enum ferry_status status;

    if (rc != 0)
        return ferry_fail(FERRY_ERR_INVALID, "rpc_server_hostname \"%s\": %s", host,
                          gai_strerror(rc));
    status = ferry_hostport_of_sockaddr(list->ai_addr, place_out);
    freeaddrinfo(list);
    return status;
}

static enum ferry_status choose_bind(const char *host, struct ferry_hostport *bind_out)
{
    enum ferry_status status = ferry_host_parse(host[0] != '\0' ? host : LOOPBACK, bind_out);
    char cause[FERRY_ERROR_TEXT_SIZE];

    if (status != FERRY_OK) {
        snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
        return ferry_fail(FERRY_ERR_INVALID, "rpc_server_hostname: %.400s", cause);
    }
    return bind_out->kind == FERRY_HOST_NAME ? resolve(host, bind_out) : FERRY_OK;
}

static enum ferry_status given_advertise(const char *host, struct ferry_places *places)
{
    struct ferry_hostport place;
    enum ferry_status status = ferry_host_parse(host, &place);
    char cause[FERRY_ERROR_TEXT_SIZE];

    if (status != FERRY_OK) {
        snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
        return ferry_fail(FERRY_ERR_INVALID, "advertise_address: %.400s", cause);
    }
    if (ferry_hostport_is_wildcard(&place))
        return ferry_fail(FERRY_ERR_INVALID,
                          "advertise_address \"%s\" is a wildcard; peers need an address or a name "
                          "that they can connect to",
                          host);
    snprintf(places->advertise_host, sizeof(places->advertise_host), "%s", place.host);
    return FERRY_OK;
}

static enum ferry_status picked_advertise(const struct ferry_hostport *bind,
                                          struct ferry_places *places)
{
    struct ferry_address_wish wish = {
        .family = bind->kind == FERRY_HOST_IPV4 ? AF_INET : AF_UNSPEC,
    };
    struct ferry_address address;
    enum ferry_status status = ferry_topology_pick_address(&wish, &address);
    char cause[FERRY_ERROR_TEXT_SIZE];

    if (status != FERRY_OK) {
        snprintf(cause, sizeof(cause), "%s", ferry_last_error_text());
        return ferry_fail(FERRY_ERR_INVALID,
                          "no address to tell peers, set advertise_address: %.400s", cause);
    }
    snprintf(places->advertise_host, sizeof(places->advertise_host), "%s", address.text);
    return FERRY_OK;
}

enum ferry_status ferry_places_choose(const struct ferry_config *config,
                                      struct ferry_places *places_out)
{
    const char *bind_host = ferry_config_string(config, "rpc_server_hostname");
    const char *advertise = ferry_config_string(config, "advertise_address");
    struct ferry_places places = {0};
    struct ferry_hostport bind;
    enum ferry_status status = choose_bind(bind_host, &bind);

    if (status != FERRY_OK)
        return status;
    snprintf(places.bind_host, sizeof(places.bind_host), "%s", bind.host);
    if (advertise[0] != '\0')
        status = given_advertise(advertise, &places);
    else if (ferry_hostport_is_wildcard(&bind))
        status = picked_advertise(&bind, &places);
    else
        status = given_advertise(bind_host[0] != '\0' ? bind_host : bind.host, &places);
    if (status != FERRY_OK)
        return status;
    *places_out = places;
    return FERRY_OK;
}

static void read_line(const char *path, char *buf, size_t size)
{
    FILE *file = fopen(path, "re");

    buf[0] = '\0';
    if (file == NULL)
        return;
    if (fgets(buf, (int)size, file) == NULL)
        buf[0] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    fclose(file);
}

/* Two engines with the same text run on the same machine, in the same boot of it. */
void ferry_machine_id(char *buf, size_t size)
{
    char boot[64], machine[64];

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    read_line("/etc/machine-id", machine, sizeof(machine));
    snprintf(buf, size, "%s:%s", boot, machine);
}
