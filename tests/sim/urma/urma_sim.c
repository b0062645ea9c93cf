/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulated UB fabric as a whole: its memory, its lock, randomness, faults, devices with their
 * ports and EIDs, and the audit at the end. Any thread, under the one lock.
 */
#include "sim/urma/urma_sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim/urma/urma_sim_state.h"

#define MAGIC 0x6265726d755f6266ULL

static const char *const fault_names[USIM_FAULT_COUNT] = {
#define USIM_FAULT_NAME(name, text) text,
    USIM_FAULT_TABLE(USIM_FAULT_NAME)
#undef USIM_FAULT_NAME
};

const char *usim_fault_name(enum usim_fault fault)
{
    return fault_names[fault];
}

void usim_lock(struct usim *sim)
{
    /* A process that was killed inside leaves a state that is consistent enough to go on with. */
    if (pthread_mutex_lock(&sim->state->mutex) == EOWNERDEAD)
        pthread_mutex_consistent(&sim->state->mutex);
}

void usim_unlock(struct usim *sim)
{
    pthread_mutex_unlock(&sim->state->mutex);
}

/* splitmix64 */
uint64_t sim_random_u64(struct sim_state *state)
{
    uint64_t x = state->random += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t sim_below(struct sim_state *state, uint64_t bound)
{
    return bound == 0 ? 0 : sim_random_u64(state) % bound;
}

uint64_t usim_random(struct usim *sim)
{
    uint64_t value;

    usim_lock(sim);
    value = sim_random_u64(sim->state);
    usim_unlock(sim);
    return value;
}

bool sim_fires(struct sim_state *state, enum usim_fault fault)
{
    bool fires = state->chance[fault] > 0 && sim_below(state, 1000000) < state->chance[fault];

    for (uint32_t i = 0; i < SIM_SCRIPTS_MAX; i++) {
        struct sim_script *script = &state->scripts[i];

        if (!script->used || script->fault != fault)
            continue;
        if (script->skip > 0) {
            script->skip--;
            continue;
        }
        fires = true;
        if (--script->count == 0)
            script->used = false;
        break;
    }
    state->fired[fault] += fires;
    return fires;
}

void sim_violation(struct sim_state *state, const char *text)
{
    if (state->violations++ == 0)
        snprintf(state->violation, sizeof(state->violation), "%s", text);
}

static struct sim_state *map_state(const struct usim_options *options)
{
    size_t size = sizeof(struct sim_state);
    void *map;
    int fd = -1;

    if (options->path != NULL) {
        fd = open(options->path, O_RDWR | O_CLOEXEC | (options->attach ? 0 : O_CREAT | O_TRUNC),
                  0600);
        if (fd < 0 || (!options->attach && ftruncate(fd, (off_t)size) != 0))
            return NULL;
    }
    map = mmap(NULL, size, PROT_READ | PROT_WRITE,
               fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

struct usim *usim_open(const struct usim_options *options)
{
    struct usim *sim = calloc(1, sizeof(*sim));
    pthread_mutexattr_t attr;

    if (sim == NULL)
        return NULL;
    sim->state = map_state(options);
    if (sim->state == NULL || (options->attach && sim->state->magic != MAGIC)) {
        free(sim);
        return NULL;
    }
    sim->clock = options->clock != NULL ? options->clock : &ferry_clock_system;
    sim->shared = options->path != NULL;
    sim->pid = getpid();
    if (options->attach)
        return sim;
    sim->state->random = options->seed;
    sim->state->next_uasid = 100;
    pthread_mutexattr_init(&attr);
    if (sim->shared) {
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    }
    pthread_mutex_init(&sim->state->mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    sim->state->magic = MAGIC;
    return sim;
}

void usim_close(struct usim *sim)
{
    if (sim == NULL)
        return;
    for (uint32_t i = 0; i < SIM_LATE_MAX && !sim->shared; i++)
        free(sim->state->packets[i].data);
    for (uint32_t i = 0; i < SIM_QUEUES_MAX; i++) {
        if (sim->cq_fd[i] > 0)
            close(sim->cq_fd[i]);
    }
    for (uint32_t i = 0; i < SIM_CONTEXTS_MAX; i++) {
        if (sim->ctx_fd[i] > 0)
            close(sim->ctx_fd[i]);
    }
    munmap(sim->state, sizeof(*sim->state));
    free(sim);
}

uint32_t usim_node_add(struct usim *sim)
{
    uint32_t node = 0;

    usim_lock(sim);
    while (sim->state->nodes[node].used)
        node++;
    sim->state->nodes[node].used = true;
    usim_unlock(sim);
    return node;
}

/* An address that depends on device and slot, and on how often it was changed. */
static void make_eid(struct sim_state *state, uint32_t device, uint32_t slot, uint8_t *eid)
{
    uint64_t more = ++state->generation;

    memset(eid, 0, 16);
    eid[0] = 0xfe;
    eid[1] = 0x80;
    memcpy(eid + 4, &more, sizeof(more));
    eid[14] = (uint8_t)device;
    eid[15] = (uint8_t)(slot + 1);
}

uint32_t usim_device_add(struct usim *sim, uint32_t node, const struct usim_device_spec *spec)
{
    struct sim_state *state = sim->state;
    uint32_t index;
    struct sim_device *device;

    usim_lock(sim);
    index = state->device_count++;
    device = &state->devices[index];
    device->used = true;
    device->present = true;
    device->node = node;
    snprintf(device->name, sizeof(device->name), "%s", spec->name);
    snprintf(device->path, sizeof(device->path), "%s", spec->path != NULL ? spec->path : "");
    device->port_count = spec->ports;
    for (uint32_t i = 0; i < USIM_PORTS_MAX; i++)
        device->port_state[i] = 4;
    device->bytes_per_s = spec->bytes_per_s;
    device->latency_ns = spec->latency_ns;
    device->jitter_ns = spec->jitter_ns;
    device->segment_bytes_max = spec->segment_bytes_max;
    device->request_bytes_max = spec->request_bytes_max != 0 ? spec->request_bytes_max : 4u << 20;
    device->depth_max = spec->jetty_depth_max != 0 ? spec->jetty_depth_max : 256;
    device->rtp_only = spec->rtp_only;
    device->limits_unknown = spec->limits_unknown;
    device->container_eid = spec->container_eid;
    for (uint32_t i = spec->first_eid; i < USIM_EIDS_MAX && i <= spec->first_eid; i++) {
        device->eid_valid[i] = true;
        make_eid(state, index, i, device->eid[i]);
    }
    if (spec->container_eid) {
        device->eid_valid[spec->first_eid + 1] = true;
        make_eid(state, index, spec->first_eid + 1, device->eid[spec->first_eid + 1]);
    }
    usim_unlock(sim);
    return index;
}

bool sim_dead(const struct sim_state *state, uint32_t ctx_index)
{
    const struct sim_ctx *ctx = &state->contexts[ctx_index];

    return ctx->incarnation != state->nodes[ctx->node].incarnation;
}

void usim_node_kill(struct usim *sim, uint32_t node)
{
    struct sim_state *state = sim->state;

    usim_lock(sim);
    sim_run(sim);
    state->fired[USIM_PEER_KILL]++;
    for (uint32_t i = 0; i < state->jetty_top; i++) {
        struct sim_jetty *jetty = &state->jetties[i];

        if (!jetty->used || state->contexts[jetty->ctx - 1].node != node ||
            sim_dead(state, jetty->ctx - 1))
            continue;
        sim_requests_drop(sim, i);
        jetty->state = SIM_RESET;
        jetty->bound = false;
        jetty->incarnation++;
    }
    for (uint32_t i = 0; i < state->seg_top; i++) {
        if (state->segments[i].used && state->segments[i].node == node)
            state->segments[i].draining = true;
    }
    state->nodes[node].incarnation++;
    usim_unlock(sim);
}

void sim_event_push(struct usim *sim, uint32_t ctx_index, uint32_t type, uint32_t object)
{
    struct sim_ctx *ctx = &sim->state->contexts[ctx_index];
    uint64_t one = 1;

    if (ctx->event_tail - ctx->event_head == SIM_EVENTS_MAX)
        return;
    ctx->events[ctx->event_tail++ % SIM_EVENTS_MAX] = (struct sim_event){type, object};
    if (sim->ctx_fd[ctx_index] > 0 &&
        write(sim->ctx_fd[ctx_index], &one, sizeof(one)) != sizeof(one))
        sim_violation(sim->state, "an event descriptor does not take a wake-up");
}

/* To all contexts of a device. */
static void tell_all(struct usim *sim, uint32_t device, uint32_t type, uint32_t object)
{
    for (uint32_t i = 0; i < SIM_CONTEXTS_MAX; i++) {
        const struct sim_ctx *ctx = &sim->state->contexts[i];

        if (ctx->used && ctx->device == device && !sim_dead(sim->state, i))
            sim_event_push(sim, i, type, object);
    }
}

void usim_port_state(struct usim *sim, uint32_t device, uint32_t port, uint32_t port_state)
{
    bool up = port_state == 4 || port_state == 5;

    usim_lock(sim);
    sim_run(sim);
    sim->state->devices[device].port_state[port] = port_state;
    sim->state->fired[up ? USIM_PORT_UP : USIM_PORT_DOWN]++;
    tell_all(sim, device, up ? SIM_EVENT_PORT_ACTIVE : SIM_EVENT_PORT_DOWN, port);
    usim_unlock(sim);
}

void usim_port(struct usim *sim, uint32_t device, uint32_t port, bool up)
{
    usim_port_state(sim, device, port, up ? 4 : 1);
}

void usim_eid_change(struct usim *sim, uint32_t device)
{
    struct sim_state *state = sim->state;

    usim_lock(sim);
    sim_run(sim);
    state->fired[USIM_EID_CHANGE]++;
    for (uint32_t i = 0; i < USIM_EIDS_MAX; i++) {
        if (!state->devices[device].eid_valid[i])
            continue;
        make_eid(state, device, i, state->devices[device].eid[i]);
        tell_all(sim, device, SIM_EVENT_EID_CHANGE, i);
    }
    usim_unlock(sim);
}

void usim_device_fatal(struct usim *sim, uint32_t device)
{
    usim_lock(sim);
    sim_run(sim);
    sim->state->fired[USIM_DEVICE_FATAL]++;
    sim->state->devices[device].fatal = true;
    tell_all(sim, device, SIM_EVENT_DEV_FATAL, 0);
    usim_unlock(sim);
}

void usim_device_reset(struct usim *sim, uint32_t device)
{
    usim_lock(sim);
    sim->state->fired[USIM_DEVICE_RESET]++;
    sim->state->devices[device].fatal = false;
    usim_unlock(sim);
}

void usim_device_present(struct usim *sim, uint32_t device, bool present)
{
    usim_lock(sim);
    sim->state->devices[device].present = present;
    usim_unlock(sim);
}

void usim_chance(struct usim *sim, enum usim_fault fault, uint32_t chance)
{
    usim_lock(sim);
    sim->state->chance[fault] = chance;
    usim_unlock(sim);
}

void usim_script(struct usim *sim, enum usim_fault fault, uint32_t skip, uint32_t count)
{
    usim_lock(sim);
    for (uint32_t i = 0; i < SIM_SCRIPTS_MAX; i++) {
        if (sim->state->scripts[i].used)
            continue;
        sim->state->scripts[i] = (struct sim_script){true, fault, skip, count};
        break;
    }
    usim_unlock(sim);
}

uint64_t usim_fault_fired(const struct usim *sim, enum usim_fault fault)
{
    return sim->state->fired[fault];
}

void usim_run(struct usim *sim)
{
    usim_lock(sim);
    sim_run(sim);
    usim_unlock(sim);
}

void usim_audit(struct usim *sim, uint32_t node, struct usim_audit *audit_out)
{
    struct sim_state *state = sim->state;
    struct usim_audit audit = {0};

    usim_lock(sim);
    for (uint32_t i = 0; i < SIM_CONTEXTS_MAX; i++) {
        bool ours = state->contexts[i].used && state->contexts[i].node == node;

        audit.contexts += ours;
        audit.events_unacked += ours ? state->contexts[i].unacked : 0;
    }
    for (uint32_t i = 0; i < SIM_QUEUES_MAX; i++)
        audit.queues += state->queues[i].used &&
                        state->contexts[state->queues[i].ctx - 1].node == node;
    for (uint32_t i = 0; i < state->jetty_top; i++) {
        bool ours = state->jetties[i].used &&
                    state->contexts[state->jetties[i].ctx - 1].node == node;

        audit.jetties += ours;
        audit.requests += ours ? state->jetties[i].depth_used : 0;
    }
    for (uint32_t i = 0; i < state->seg_top; i++)
        audit.segments += state->segments[i].used && state->segments[i].node == node;
    for (uint32_t i = 0; i < state->import_top; i++)
        audit.imports += state->imports[i].used &&
                         state->contexts[state->imports[i].ctx - 1].node == node;
    audit.made = state->made;
    audit.gone = state->gone;
    audit.violations = state->violations;
    memcpy(audit.violation, state->violation, sizeof(audit.violation));
    audit.posts = state->posts;
    audit.moves = state->moves;
    audit.moved_bytes = state->moved_bytes;
    audit.posts_in_error = state->posts_in_error;
    usim_unlock(sim);
    *audit_out = audit;
}
