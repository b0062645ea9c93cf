/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which transports an engine uses: what the configuration enables and this host can run, in the
 * registry's order, which policy.c follows where nothing else decides. One that cannot work here is
 * left out with one log line and its reason kept for reports; a wrong setting or address is an
 * error. Runs on the thread that opens and closes the engine.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "config/option.h"
#include "runtime/runtime.h"
#include "transport/fault/fault.h"
#include "transport/loop/loop.h"

static bool enabled(const struct ferry_engine *engine, const struct ferry_transport_ops *ops)
{
    const char *force = ferry_config_string(engine->config, "force_transport");
    char key[96];

    /* The own segment is always served, whatever peers are reached with. */
    if (force[0] != '\0' && (ops->caps & FERRY_CAP_LOCAL) == 0)
        return strcmp(force, ops->name) == 0;
    snprintf(key, sizeof(key), "transports.%s.enable", ops->name);
    return ferry_config_bool(engine->config, key);
}

static void leave_out(struct ferry_transport_slot *slot, const char *reason)
{
    snprintf(slot->reason, sizeof(slot->reason), "%s", reason);
    ferry_warn("runtime", "transport is left out: %s transport=%s", reason, slot->ops->name);
}

/* Errors of the host leave the transport out; errors of the caller are passed on. */
static enum ferry_status open_one(struct ferry_engine *engine, struct ferry_transport_slot *slot)
{
    struct ferry_transport_info info;
    enum ferry_status status = ferry_transport_probe(slot->ops, engine->config, &info);

    if (status == FERRY_OK && !info.usable) {
        leave_out(slot, info.reason);
        return FERRY_OK;
    }
    if (status == FERRY_OK)
        status = ferry_transport_open(slot->ops, &engine->env, &slot->transport);
    switch (status) {
    case FERRY_OK:
        return FERRY_OK;
    case FERRY_ERR_UNSUPPORTED:
    case FERRY_ERR_LIMIT:
    case FERRY_ERR_IO:
    case FERRY_ERR_DEVICE:
        leave_out(slot, ferry_last_error_text());
        return FERRY_OK;
    default:
        return status;
    }
}

/* Put the fault decorator around a transport; it keeps the name and everything else. */
static enum ferry_status decorate(struct ferry_engine *engine, struct ferry_transport_slot *slot)
{
    struct ferry_transport *outer = NULL;
    enum ferry_status status = ferry_fault_wrap(slot->transport, &engine->env, &outer);

    if (status != FERRY_OK)
        return status;
    slot->inner = slot->transport;
    slot->transport = outer;
    return FERRY_OK;
}

static enum ferry_status check_force(const struct ferry_engine *engine)
{
    const char *force = ferry_config_string(engine->config, "force_transport");
    const struct ferry_transport_ops *ops;

    if (force[0] == '\0')
        return FERRY_OK;
    ops = ferry_transport_find(force);
    if (ops == NULL || (ops->caps & FERRY_CAP_DECORATOR) != 0)
        return ferry_fail(FERRY_ERR_CONFIG,
                          "force_transport \"%s\": this build has no such "
                          "transport",
                          force);
    return FERRY_OK;
}

enum ferry_status ferry_transports_open(struct ferry_engine *engine)
{
    const struct ferry_transport_ops *rows[FERRY_TRANSPORTS_MAX];
    uint32_t row_count = ferry_transports(rows);
    bool faults = ferry_config_bool(engine->config, "transports.fault.enable");
    uint32_t wanted = 0;
    uint32_t open = 0;
    enum ferry_status status = check_force(engine);

    for (uint32_t i = 0; i < row_count && status == FERRY_OK; i++) {
        struct ferry_transport_slot *slot;

        if (rows[i]->caps & FERRY_CAP_DECORATOR)
            continue;
        slot = &engine->transports[engine->transport_count++];
        slot->ops = rows[i];
        if (!enabled(engine, rows[i])) {
            snprintf(slot->reason, sizeof(slot->reason), "not enabled");
            continue;
        }
        wanted++;
        status = open_one(engine, slot);
        if (status == FERRY_OK && slot->transport != NULL && faults)
            status = decorate(engine, slot);
        if (slot->transport != NULL)
            open++;
    }
    if (status == FERRY_OK && wanted > 0 && open == 0)
        return ferry_fail(FERRY_ERR_UNSUPPORTED, "no transport works on this host");
    return status;
}

void ferry_transports_quiesce(struct ferry_engine *engine)
{
    for (uint32_t i = 0; i < engine->transport_count; i++) {
        if (engine->transports[i].transport != NULL)
            ferry_transport_quiesce(engine->transports[i].transport);
    }
}

void ferry_transports_close(struct ferry_engine *engine)
{
    for (uint32_t i = engine->transport_count; i > 0; i--) {
        struct ferry_transport_slot *slot = &engine->transports[i - 1];

        /* A decorator closes what it wraps. */
        ferry_transport_close(slot->transport);
        slot->transport = NULL;
        slot->inner = NULL;
    }
}

uint32_t ferry_engine_turn(struct ferry_engine *engine)
{
    uint32_t count = ferry_worker_turn(engine->keeper.worker);

    for (uint32_t i = 0; i < engine->transport_count; i++) {
        struct ferry_transport_slot *slot = &engine->transports[i];
        struct ferry_transport *plain = slot->inner != NULL ? slot->inner : slot->transport;

        if (plain == NULL)
            continue;
        if (slot->inner != NULL)
            count += ferry_fault_turn(slot->transport);
        if (strcmp(slot->ops->name, "loop") == 0)
            count += ferry_loop_turn(plain);
    }
    return count;
}
