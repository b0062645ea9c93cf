/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last check of `ferry doctor`: two engines in this process, loopback between them, a WRITE and
 * a READ whose bytes depend on their position. Ends within the engine's own time limits.
 */
#include "checks.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common.h"

#define LENGTH     (UINT64_C(1) << 20)
#define TIMEOUT_MS 10000

struct trial {
    struct ferry_engine *server;
    struct ferry_engine *client;
    unsigned char *target;
    unsigned char *source;
    unsigned char *copy;
    uint64_t segment;
};

static unsigned char byte_at(uint64_t position)
{
    uint64_t mixed = (position + 1) * UINT64_C(0x9e3779b97f4a7c15);

    return (unsigned char)(mixed >> 56);
}

static enum ferry_status open_trial(struct trial *trial, const struct ferry_config *config)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    void *memory;

    options.config = config;

    enum ferry_status status = ferry_engine_open(&options, &trial->server);

    if (status == FERRY_OK)
        status = ferry_engine_open(&options, &trial->client);
    if (status == FERRY_OK) {
        status = ferry_memory_alloc(trial->server, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE,
                                    &memory);
    }
    if (status != FERRY_OK)
        return status;
    trial->target = memory;
    status = ferry_memory_alloc(trial->client, 2 * LENGTH, NULL, FERRY_PERMISSION_LOCAL, &memory);
    if (status != FERRY_OK)
        return status;
    trial->source = memory;
    trial->copy = trial->source + LENGTH;
    return ferry_segment_open(trial->client, ferry_engine_segment_name(trial->server),
                              ferry_cli_deadline_ms(TIMEOUT_MS), &trial->segment);
}

static enum ferry_status move(const struct trial *trial, const char **wrong_out)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    for (uint64_t i = 0; i < LENGTH; i++)
        trial->source[i] = byte_at(i);
    request.local = trial->source;
    request.segment = trial->segment;
    request.remote_offset = (uint64_t)(uintptr_t)trial->target;
    request.length = LENGTH;

    enum ferry_status status = ferry_write(trial->client, &request,
                                           ferry_cli_deadline_ms(TIMEOUT_MS));

    if (status != FERRY_OK)
        return status;
    request.local = trial->copy;
    status = ferry_read(trial->client, &request, ferry_cli_deadline_ms(TIMEOUT_MS));
    if (status != FERRY_OK)
        return status;
    for (uint64_t i = 0; i < LENGTH; i++) {
        if (trial->target[i] != byte_at(i) || trial->copy[i] != byte_at(i)) {
            *wrong_out = trial->target[i] != byte_at(i) ? "WRITE" : "READ";
            break;
        }
    }
    return FERRY_OK;
}

/* Memory goes with its engine. */
static void close_trial(struct trial *trial)
{
    ferry_engine_close(trial->client);
    ferry_engine_close(trial->server);
}

/*
 * The trial's control planes listen on loopback and pick their ports, whatever the settings say:
 * the configured port may be the one of a running engine.
 */
static struct ferry_config *trial_config(void)
{
    struct ferry_config *config = NULL;

    if (ferry_config_create(&config) != FERRY_OK)
        return NULL;
    return config;
}

static void copy_setting(void *arg, const struct ferry_config_entry *entry)
{
    static const char *const kept[] = {"reactor", "wait", "log_level", "log_format"};

    if (entry->origin == FERRY_ORIGIN_DEFAULT)
        return;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (strcmp(entry->name, kept[i]) == 0 &&
            ferry_config_set(arg, entry->name, entry->value, FERRY_ORIGIN_API) != FERRY_OK)
            ferry_cli_say("%s: %s", entry->name, ferry_last_error_text());
    }
}

void ferry_check_transfer(struct ferry_findings *findings, const struct ferry_config *config)
{
    struct ferry_finding *finding = ferry_finding_add(findings, "loopback transfer");
    struct ferry_config *own = trial_config();
    struct trial trial = {0};
    const char *wrong = NULL;

    if (own == NULL) {
        finding->verdict = FERRY_VERDICT_BROKEN;
        snprintf(finding->found, sizeof(finding->found), "%s", ferry_last_error_text());
        return;
    }
    ferry_config_each(config, copy_setting, own);

    uint64_t begun_ns = ferry_cli_now_ns();
    enum ferry_status status = open_trial(&trial, own);

    if (status == FERRY_OK)
        status = move(&trial, &wrong);
    if (status != FERRY_OK || wrong != NULL) {
        finding->verdict = FERRY_VERDICT_BROKEN;
        if (wrong != NULL) {
            snprintf(finding->found, sizeof(finding->found), "a %s moved wrong bytes", wrong);
        } else {
            snprintf(finding->found, sizeof(finding->found), "%.200s (%s)", ferry_last_error_text(),
                     ferry_status_name(status));
        }
        snprintf(finding->advice, sizeof(finding->advice),
                 "`ferry info' says which transports there are; --set log_level=debug says more");
    } else {
        snprintf(finding->found, sizeof(finding->found),
                 "1 MiB written, read back and compared in %.1f ms",
                 (double)(ferry_cli_now_ns() - begun_ns) / 1e6);
    }
    close_trial(&trial);
    ferry_config_destroy(own);
}
