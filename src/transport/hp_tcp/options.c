/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table of hp_tcp and its cross-checks. Keys and meaning are the published ones; the
 * defaults are ours where they differ (enable, worker_count). Runs on the thread that opens an
 * engine; touches nothing but the configuration.
 */
#include "transport/hp_tcp/options.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/hostport.h"
#include "base/thread.h"

/* The index is enum ferry_hp_slicing. */
static const char *const slicing_choices[] = {"dynamic", "static", NULL};

static const struct ferry_option options[] = {
    {.name = "enable",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "serve and use hp_tcp"},
    {.name = "bind_address",
     .type = FERRY_OPTION_STRING,
     .default_value = "",
     .max = 64,
     .help = "numeric address the data listener binds to; empty binds where peers are told to "
             "connect"},
    {.name = "advertise_address",
     .type = FERRY_OPTION_STRING,
     .default_value = "",
     .max = 255,
     .help = "address or name that peers are told to connect to; empty takes the engine's"},
    {.name = "rail_addresses",
     .type = FERRY_OPTION_LIST,
     .default_value = "",
     .max = FERRY_HP_LANES_MAX,
     .help = "ordered numeric addresses of this host, IPv4 or IPv6, one rail each, at most "
             "connections_per_peer; they replace advertise_address, and lane i leaves from rail i "
             "modulo their number. bind_address must then be empty, a wildcard, or the one rail"},
    {.name = "rail_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "2000",
     .min = 100,
     .max = 3600000,
     .unit = "ms",
     .help = "with several rails: how long nothing at all may come back on a connection, although "
             "the system asks for a sign of life, before its rail counts as down and its work goes "
             "to the others; such signs are asked for once a second at most"},
    {.name = "rail_probe_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "1000",
     .min = 10,
     .max = 3600000,
     .unit = "ms",
     .help = "longest pause before a rail that is down is tried again"},
    {.name = "slicing",
     .type = FERRY_OPTION_CHOICE,
     .default_value = "dynamic",
     .choices = slicing_choices,
     .help = "how a large request is spread over lanes and rails: dynamic, they pull chunks when "
             "they have room; static, as published: READ only, one contiguous slice a rail, if "
             "each gets at least 1 MiB, on at most 8 rails"},
    {.name = "v1_write_striping",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "cut a large WRITE over lanes towards peers that speak only the published frames too; "
             "if it fails in the middle, which pieces were applied cannot be found out"},
    {.name = "port",
     .type = FERRY_OPTION_UINT,
     .default_value = "0",
     .max = 65535,
     .help = "port of the data listener; 0 lets the system pick one"},
    {.name = "worker_count",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = FERRY_HP_WORKERS_MAX,
     .help = "threads that drive connections; auto is one per usable core"},
    {.name = "connections_per_peer",
     .type = FERRY_OPTION_UINT,
     .default_value = "4",
     .min = 1,
     .max = FERRY_HP_LANES_MAX,
     .help = "lanes (persistent connections) to one peer, in all"},
    {.name = "max_connections",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = 1000000,
     .help = "connections served at once; further ones are closed at once. auto is the larger of "
             "connections_per_peer and max_outstanding_tasks"},
    {.name = "max_outstanding_tasks",
     .type = FERRY_OPTION_UINT,
     .default_value = "4096",
     .min = 1,
     .max = 1048576,
     .help = "tasks admitted and not ended; more are refused with \"queue full\""},
    {.name = "max_outstanding_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "4294967296",
     .min = 1,
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "bytes of tasks admitted and not ended; not below max_transfer_bytes"},
    {.name = "max_transfer_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1073741824",
     .min = 1,
     .max = UINT64_MAX / 2,
     .unit = "bytes",
     .help = "longest request, sent or served"},
    {.name = "connect_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "2000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "bound of one connection attempt, per address"},
    {.name = "progress_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "30000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "longest pause in a transfer before it is given up, on both sides"},
    {.name = "total_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "600000",
     .min = 1,
     .max = 86400000,
     .unit = "ms",
     .help = "longest time one request may take on a connection, however steadily it trickles"},
    {.name = "resolve_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "1000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "how long a WRITE whose answer was lost waits for the peer to say whether it was "
             "applied; then its outcome is unknown"},
    {.name = "resolve_keep_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "120000",
     .min = 1,
     .max = 86400000,
     .unit = "ms",
     .help = "how long a peer may ask about the WRITEs of a connection that has ended; longer than "
             "it takes the peer to notice the end"},
    {.name = "resolve_answers_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "65536",
     .max = 16777216,
     .help = "connections and WRITEs remembered for such questions, in all; the oldest are "
             "forgotten, and their outcome is unknown to whoever asks"},
    {.name = "idle_connection_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "60000",
     .min = 1,
     .max = 86400000,
     .unit = "ms",
     .help = "how long a lane without work stays connected"},
    {.name = "handshake_timeout_ms",
     .type = FERRY_OPTION_UINT,
     .default_value = "10000",
     .min = 1,
     .max = 3600000,
     .unit = "ms",
     .help = "with access control: how long a connection has for TLS and the proof of a key"},
    {.name = "tls_records_max",
     .type = FERRY_OPTION_UINT,
     .default_value = "16777216",
     .min = 16,
     .max = 16777216,
     .help = "with TLS: records of 16 KiB after which a connection is replaced by one with new "
             "keys; ciphers are safe for about 24 million"},
    {.name = "window_ops",
     .type = FERRY_OPTION_UINT,
     .default_value = "64",
     .min = 1,
     .max = 256,
     .help = "requests in flight on one lane"},
    {.name = "window_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "4MiB",
     .min = 1,
     .max = 1073741824,
     .unit = "bytes",
     .help = "payload in flight on one lane; one request always passes"},
    {.name = "chunk_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "1MiB",
     .min = 4096,
     .max = 1073741824,
     .unit = "bytes",
     .help = "piece into which a large request is cut"},
    {.name = "lanes_per_task",
     .type = FERRY_OPTION_AUTO,
     .default_value = "auto",
     .min = 1,
     .max = 8,
     .help = "lanes that share one large request; auto is one per worker"},
    {.name = "isolation",
     .type = FERRY_OPTION_BOOL,
     .default_value = "true",
     .help = "small requests pass large ones, and have a lane of their own beside them; false: "
             "every lane takes its requests in the order of their submission"},
    {.name = "small_request_bytes",
     .type = FERRY_OPTION_SIZE,
     .default_value = "16KiB",
     .min = 0,
     .max = 1048576,
     .unit = "bytes",
     .help = "with isolation: requests up to this count as small"},
    {.name = "checksum",
     .type = FERRY_OPTION_BOOL,
     .default_value = "false",
     .help = "every chunk of payload comes with its CRC-32C and is checked where it arrives; in "
             "force between ferry peers if either asks for it, never towards v1 peers"},
    {.name = "chunk_size",
     .type = FERRY_OPTION_PLACEHOLDER,
     .help = "of earlier versions of the reference, without meaning here"},
    {.name = "queue_capacity_per_worker",
     .type = FERRY_OPTION_PLACEHOLDER,
     .help = "of earlier versions of the reference, without meaning here"},
};

const struct ferry_option_table ferry_hp_option_table = {
    .component = "transports.hp_tcp",
    .options = options,
    .count = FERRY_ARRAY_LEN(options),
};

#define KEY(name) "transports.hp_tcp." name

/* The pause before the first probe of a rail that went down. */
#define PROBE_MIN_NS (100 * FERRY_NS_PER_MS)

/* A numeric address that can be bound; wildcards are fine here. */
static bool numeric(const char *text, struct ferry_hostport *place_out)
{
    return ferry_host_parse(text, place_out) == FERRY_OK && place_out->kind != FERRY_HOST_NAME;
}

static bool wildcard(const char *text)
{
    struct ferry_hostport place;

    return numeric(text, &place) && ferry_hostport_is_wildcard(&place);
}

/* Peers must be able to connect to it, and a lane to leave from it. */
static enum ferry_status check_rail(const char *rail, struct ferry_hostport *place_out)
{
    struct in6_addr v6;
    bool is_v6;

    if (!numeric(rail, place_out) || ferry_hostport_is_wildcard(place_out))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.rail_addresses: \"%s\" is not a numeric address of "
                          "this host",
                          rail);
    is_v6 = inet_pton(AF_INET6, place_out->host, &v6) == 1;
    if (strchr(place_out->host, '%') != NULL || (is_v6 && IN6_IS_ADDR_LINKLOCAL(&v6)))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.rail_addresses: \"%s\" is link-local; peers need an "
                          "address that means the same to them",
                          rail);
    if (is_v6 && IN6_IS_ADDR_V4MAPPED(&v6))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.rail_addresses: \"%s\" is an IPv4 address in IPv6 "
                          "form; write it as IPv4",
                          rail);
    return FERRY_OK;
}

static enum ferry_status check_unique(const struct ferry_hostport *place,
                                      const struct ferry_hp_settings *settings, const char *rail)
{
    for (uint32_t i = 0; i < settings->rail_count; i++) {
        struct ferry_hostport other;

        if (numeric(settings->rails[i], &other) && strcmp(other.host, place->host) == 0)
            return ferry_fail(FERRY_ERR_CONFIG,
                              "transports.hp_tcp.rail_addresses: \"%s\" is there twice", rail);
    }
    return FERRY_OK;
}

static enum ferry_status check_rails(const struct ferry_config *config,
                                     struct ferry_hp_settings *settings)
{
    size_t count = ferry_config_list_len(config, KEY("rail_addresses"));

    if (count > settings->connections_per_peer)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.rail_addresses names %zu rails and "
                          "connections_per_peer, which counts all lanes, is %u",
                          count, settings->connections_per_peer);
    if (count > FERRY_HP_SLICES_MAX && settings->slicing == FERRY_HP_SLICING_STATIC)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.slicing \"static\" takes at most %u rails, and "
                          "rail_addresses names %zu",
                          FERRY_HP_SLICES_MAX, count);
    for (size_t i = 0; i < count; i++) {
        const char *rail = ferry_config_list_item(config, KEY("rail_addresses"), i);
        struct ferry_hostport place;
        enum ferry_status status = check_rail(rail, &place);

        if (status == FERRY_OK)
            status = check_unique(&place, settings, rail);
        if (status != FERRY_OK)
            return status;
        settings->rails[settings->rail_count++] = rail;
    }
    return FERRY_OK;
}

/* With rails the listener serves each of them, or everything. */
static enum ferry_status check_bind(struct ferry_hp_settings *settings)
{
    struct ferry_hostport bind;
    struct ferry_hostport rail;

    if (settings->bind_address[0] != '\0' && !numeric(settings->bind_address, &bind))
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.bind_address \"%s\" is not a numeric address",
                          settings->bind_address);
    if (settings->rail_count == 0 || settings->bind_address[0] == '\0' ||
        ferry_hostport_is_wildcard(&bind))
        return FERRY_OK;
    if (settings->rail_count > 1)
        return ferry_fail(
            FERRY_ERR_CONFIG,
            "transports.hp_tcp.bind_address \"%s\" must be empty or a wildcard, since "
            "rail_addresses names %u rails",
            settings->bind_address, settings->rail_count);
    if (!numeric(settings->rails[0], &rail) || strcmp(rail.host, bind.host) != 0)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "transports.hp_tcp.bind_address \"%s\" is not the single rail \"%s\"",
                          settings->bind_address, settings->rails[0]);
    return FERRY_OK;
}

static enum ferry_status check_addresses(const struct ferry_config *config,
                                         struct ferry_hp_settings *settings)
{
    enum ferry_status status = check_rails(config, settings);

    if (status == FERRY_OK)
        status = check_bind(settings);
    if (status != FERRY_OK)
        return status;
    if (settings->rail_count == 0 && settings->advertise_address[0] != '\0' &&
        wildcard(settings->advertise_address))
        return ferry_fail(FERRY_ERR_INVALID,
                          "transports.hp_tcp.advertise_address \"%s\" is a wildcard; peers need an "
                          "address they can connect to",
                          settings->advertise_address);
    return FERRY_OK;
}

static uint64_t ms(const struct ferry_config *config, const char *key)
{
    return ferry_config_u64(config, key) * FERRY_NS_PER_MS;
}

static void read_limits(const struct ferry_config *config, struct ferry_hp_settings *s)
{
    s->worker_count = (uint32_t)ferry_config_u64(config, KEY("worker_count"));
    if (s->worker_count == 0)
        s->worker_count = ferry_usable_cores();
    if (s->worker_count > FERRY_HP_WORKERS_MAX)
        s->worker_count = FERRY_HP_WORKERS_MAX;
    s->connections_per_peer = (uint32_t)ferry_config_u64(config, KEY("connections_per_peer"));
    s->max_outstanding_tasks = (uint32_t)ferry_config_u64(config, KEY("max_outstanding_tasks"));
    s->max_connections = (uint32_t)ferry_config_u64(config, KEY("max_connections"));
    if (s->max_connections == 0)
        s->max_connections = s->connections_per_peer > s->max_outstanding_tasks
                                 ? s->connections_per_peer
                                 : s->max_outstanding_tasks;
    s->max_transfer_bytes = ferry_config_u64(config, KEY("max_transfer_bytes"));
    s->max_outstanding_bytes = ferry_config_u64(config, KEY("max_outstanding_bytes"));
    /* Whoever raises only the request limit means requests of that size to pass. */
    if (s->max_outstanding_bytes < s->max_transfer_bytes &&
        ferry_config_origin_of(config, KEY("max_outstanding_bytes")) == FERRY_ORIGIN_DEFAULT)
        s->max_outstanding_bytes = s->max_transfer_bytes;
    s->connect_timeout_ns = ms(config, KEY("connect_timeout_ms"));
    s->progress_timeout_ns = ms(config, KEY("progress_timeout_ms"));
    s->total_timeout_ns = ms(config, KEY("total_timeout_ms"));
    s->idle_timeout_ns = ms(config, KEY("idle_connection_timeout_ms"));
    s->resolve_timeout_ns = ms(config, KEY("resolve_timeout_ms"));
    s->resolve_keep_ns = ms(config, KEY("resolve_keep_ms"));
    s->resolve_answers_max = (uint32_t)ferry_config_u64(config, KEY("resolve_answers_max"));
    s->tls_records_max = ferry_config_u64(config, KEY("tls_records_max"));
    s->handshake_timeout_ns = ms(config, KEY("handshake_timeout_ms"));
    s->rail_timeout_ms = (uint32_t)ferry_config_u64(config, KEY("rail_timeout_ms"));
    s->rail_limits.probe_max_ns = ms(config, KEY("rail_probe_ms"));
    s->rail_limits.probe_min_ns = s->rail_limits.probe_max_ns < PROBE_MIN_NS
                                      ? s->rail_limits.probe_max_ns
                                      : PROBE_MIN_NS;
    s->window_ops = (uint32_t)ferry_config_u64(config, KEY("window_ops"));
    s->window_bytes = ferry_config_u64(config, KEY("window_bytes"));
    s->chunk_bytes = ferry_config_u64(config, KEY("chunk_bytes"));
    s->lanes_per_task = (uint32_t)ferry_config_u64(config, KEY("lanes_per_task"));
    if (s->lanes_per_task == 0)
        s->lanes_per_task = s->worker_count < 8 ? s->worker_count : 8;
    s->isolation = ferry_config_bool(config, KEY("isolation"));
    s->checksum = ferry_config_bool(config, KEY("checksum"));
    s->small_request_bytes = ferry_config_u64(config, KEY("small_request_bytes"));
    if (s->lanes_per_task > s->connections_per_peer)
        s->lanes_per_task = s->connections_per_peer;
}

enum ferry_status ferry_hp_settings_read(const struct ferry_config *config,
                                         struct ferry_hp_settings *settings_out)
{
    struct ferry_hp_settings s = {
        .enable = ferry_config_bool(config, KEY("enable")),
        .bind_address = ferry_config_string(config, KEY("bind_address")),
        .advertise_address = ferry_config_string(config, KEY("advertise_address")),
        .port = (uint16_t)ferry_config_u64(config, KEY("port")),
        .slicing = (enum ferry_hp_slicing)ferry_config_choice(config, KEY("slicing")),
        .v1_write_striping = ferry_config_bool(config, KEY("v1_write_striping")),
        .reactor = (enum ferry_reactor_kind)ferry_config_choice(config, "reactor"),
        .wait = (enum ferry_wait_mode)ferry_config_choice(config, "wait"),
        .spin_us = (uint32_t)ferry_config_u64(config, "wait_spin_us_max"),
    };
    enum ferry_status status;

    read_limits(config, &s);
    status = check_addresses(config, &s);
    if (status != FERRY_OK)
        return status;
    if (s.max_outstanding_bytes < s.max_transfer_bytes)
        return ferry_fail(
            FERRY_ERR_CONFIG,
            "transports.hp_tcp.max_outstanding_bytes %llu is below max_transfer_bytes "
            "%llu: a request of that size could never pass",
            (unsigned long long)s.max_outstanding_bytes, (unsigned long long)s.max_transfer_bytes);
    *settings_out = s;
    return FERRY_OK;
}
