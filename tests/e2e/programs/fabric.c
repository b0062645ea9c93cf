/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A simulated UB fabric that engines of several processes share, driven line by line by a scenario.
 *
 *     fabric PATH NODES BYTES_PER_S...      one device per rate on every node
 *
 *     port DEVICE PORT up|down
 *     eid DEVICE                 its EID changes
 *     fatal DEVICE, reset DEVICE
 *     kill NODE                  the node's process is dead: its objects are gone
 *     chance FAULT PER_MILLION
 *     script FAULT SKIP COUNT    the next COUNT chances, after SKIP, fire
 *     fired FAULT                answers `ok TIMES`
 *     audit NODE                 answers `ok` and numbers by name, in JSON
 *
 * Devices are numbered node by node. The first line that it says is `ready`; then one line per
 * command, `ok` or `unknown`.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/urma/urma_sim.h"

#define RATES_MAX (USIM_DEVICES_MAX / 2)

static const char *const names[RATES_MAX] = {"udma0", "udma1", "udma2", "udma3",
                                             "udma4", "udma5", "udma6", "udma7"};

static enum usim_fault fault_of(const char *name)
{
    for (int i = 0; i < USIM_FAULT_COUNT; i++) {
        if (strcmp(usim_fault_name((enum usim_fault)i), name) == 0)
            return (enum usim_fault)i;
    }
    return USIM_FAULT_COUNT;
}

static void audit(struct usim *sim, uint32_t node)
{
    struct usim_audit now;

    usim_run(sim);
    usim_audit(sim, node, &now);
    printf("ok {\"contexts\": %u, \"queues\": %u, \"jetties\": %u, \"segments\": %u, "
           "\"imports\": %u, \"requests\": %u, \"unacked\": %u, \"made\": %" PRIu64
           ", \"gone\": %" PRIu64 ", \"posts\": %" PRIu64 ", \"moves\": %" PRIu64
           ", \"moved_bytes\": %" PRIu64 ", \"posts_in_error\": %" PRIu64
           ", \"violations\": %" PRIu64 ", \"violation\": \"%s\"}\n",
           now.contexts, now.queues, now.jetties, now.segments, now.imports, now.requests,
           now.events_unacked, now.made, now.gone, now.posts, now.moves, now.moved_bytes,
           now.posts_in_error, now.violations, now.violation);
}

static bool on_device(struct usim *sim, const char *verb, uint32_t device)
{
    if (strcmp(verb, "eid") == 0)
        usim_eid_change(sim, device);
    else if (strcmp(verb, "fatal") == 0)
        usim_device_fatal(sim, device);
    else if (strcmp(verb, "reset") == 0)
        usim_device_reset(sim, device);
    else if (strcmp(verb, "kill") == 0)
        usim_node_kill(sim, device);
    else
        return false;
    return true;
}

/* Whatever names a fault; @given numbers follow it. False: nothing that is known. */
static bool on_fault(struct usim *sim, const char *verb, enum usim_fault fault, const uint32_t *n)
{
    if (fault == USIM_FAULT_COUNT)
        return false;
    if (strcmp(verb, "chance") == 0)
        usim_chance(sim, fault, n[0]);
    else if (strcmp(verb, "script") == 0)
        usim_script(sim, fault, n[0], n[1]);
    else
        return false;
    return true;
}

static void answer(struct usim *sim, const char *line)
{
    uint32_t n[2] = {0, 0};
    char verb[16] = "";
    char word[32] = "";
    bool known = false;

    if (sscanf(line, "audit %u", &n[0]) == 1) {
        audit(sim, n[0]);
        return;
    }
    if (sscanf(line, "fired %31s", word) == 1 && fault_of(word) != USIM_FAULT_COUNT) {
        printf("ok %" PRIu64 "\n", usim_fault_fired(sim, fault_of(word)));
        return;
    }
    if (sscanf(line, "port %u %u %31s", &n[0], &n[1], word) == 3) {
        usim_port(sim, n[0], n[1], strcmp(word, "up") == 0);
        known = true;
    } else if (sscanf(line, "%15s %u", verb, &n[0]) == 2) {
        known = on_device(sim, verb, n[0]);
    } else if (sscanf(line, "%15s %31s %u %u", verb, word, &n[0], &n[1]) >= 3) {
        known = on_fault(sim, verb, fault_of(word), n);
    }
    printf("%s\n", known ? "ok" : "unknown");
}

int main(int argc, char **argv)
{
    struct usim_options options = {.path = argc > 1 ? argv[1] : NULL, .seed = 1};
    struct usim *sim = NULL;
    char line[128];

    if (argc >= 4 && argc - 3 <= RATES_MAX)
        sim = usim_open(&options);
    if (sim == NULL) {
        fprintf(stderr, "usage: %s PATH NODES BYTES_PER_S...\n", argv[0]);
        return 2;
    }
    for (uint32_t node = 0; node < strtoul(argv[2], NULL, 10); node++) {
        uint32_t added = usim_node_add(sim);

        for (int i = 3; i < argc; i++) {
            struct usim_device_spec spec = {.name = names[i - 3],
                                            .ports = 1,
                                            .bytes_per_s = strtoull(argv[i], NULL, 10),
                                            .latency_ns = 3000,
                                            .jitter_ns = 5000};

            usim_device_add(sim, added, &spec);
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    while (fgets(line, sizeof(line), stdin) != NULL)
        answer(sim, line);
    usim_close(sim);
    return 0;
}
