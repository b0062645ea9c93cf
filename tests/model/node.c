/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One simulated engine without a runtime: a registry, hp_tcp on simulated seams, and five regions
 * of memory that come and go. A restart keeps the addresses and changes everything else: the
 * incarnation, the registrations, the bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "config/engine_options.h"
#include "config/option.h"
#include "metadata/document.h"
#include "model.h"
#include "sim/reactor_sim.h"
#include "transport/hp_tcp/hp_tcp.h"

/* Turns after a revoke within which the range must be free, with the clock standing still. */
#define REVOKE_TURNS_MAX 400

static void must(struct model *model, enum ferry_status status, const char *what)
{
    if (status != FERRY_OK)
        model_fail(model, "%s: %s: %s", what, ferry_status_name(status), ferry_last_error_text());
}

/* ---- open ---- */

static void set(struct model_node *node, const char *key, uint64_t value)
{
    char name[64];
    char text[24];

    snprintf(name, sizeof(name), "transports.hp_tcp.%s", key);
    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    must(node->model, ferry_config_set(node->config, name, text, FERRY_ORIGIN_API), name);
}

static void set_bool(struct model_node *node, const char *key, bool value)
{
    char name[64];

    snprintf(name, sizeof(name), "transports.hp_tcp.%s", key);
    must(node->model,
         ferry_config_set(node->config, name, value ? "true" : "false", FERRY_ORIGIN_API), name);
}

static void set_rails(struct model_node *node)
{
    char text[MODEL_RAILS_MAX * 16] = "";
    size_t len = 0;

    for (uint32_t i = 0; i < node->model->profile.rails[node->index]; i++) {
        uint32_t host = model_rail_host(node->index, i);

        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u.%u.%u.%u", i > 0 ? "," : "",
                                host >> 24, host >> 16 & 255, host >> 8 & 255, host & 255);
    }
    must(node->model,
         ferry_config_set(node->config, "transports.hp_tcp.rail_addresses", text, FERRY_ORIGIN_API),
         "rail_addresses");
}

static void configure(struct model_node *node)
{
    const struct model_profile *profile = &node->model->profile;
    const struct ferry_option_table *tables[] = {&ferry_engine_option_table,
                                                 node->model->ops.options};

    must(node->model, ferry_config_create_with(tables, 2, &node->config), "configuration");
    set(node, "worker_count", profile->workers);
    set(node, "connections_per_peer", profile->lanes);
    set(node, "window_ops", profile->window_ops);
    set(node, "window_bytes", profile->window_bytes);
    set(node, "chunk_bytes", profile->chunk_bytes);
    set(node, "max_outstanding_tasks", profile->tasks_max);
    set(node, "max_connections", 64);
    set(node, "max_transfer_bytes", 256u << 10);
    set(node, "max_outstanding_bytes", 1u << 20);
    set(node, "connect_timeout_ms", 50);
    set(node, "progress_timeout_ms", 200);
    set(node, "total_timeout_ms", 3000);
    set(node, "idle_connection_timeout_ms", 500);
    set(node, "resolve_timeout_ms", profile->question_ms);
    set(node, "resolve_keep_ms", profile->keep_ms);
    set(node, "resolve_answers_max", profile->answers_max);
    set(node, "port", 7000 + node->index);
    set(node, "rail_timeout_ms", 100);
    set(node, "rail_probe_ms", 50);
    set(node, "small_request_bytes", profile->small_bytes);
    set_bool(node, "isolation", profile->isolation);
    set_rails(node);
}

static void fill_ids(struct ferry_random *random, void *buf, size_t len)
{
    struct model_ids *ids = (struct model_ids *)(void *)random;

    for (size_t i = 0; i < len; i++) {
        ids->state = ids->state * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)buf)[i] = (unsigned char)(ids->state >> 56);
    }
}

static void start(struct model_node *node)
{
    struct model *model = node->model;
    struct ferry_registry_options options = {.random = &node->ids.random, .buffers_max = 16};

    node->life++;
    node->ids.random.fill = fill_ids;
    node->ids.state = model->seed * MODEL_NODES_MAX + node->index;
    if (!model->profile.twins)
        node->ids.state ^= sim_random(model->net);
    node->process = sim_process_start(model->net);
    snprintf(node->incarnation, sizeof(node->incarnation), "%08x%08x%016llx", node->index,
             node->life, (unsigned long long)model->seed);
    must(model, ferry_registry_init(&node->registry, &options), "registry");
    ferry_registry_reader_init(&node->reader, &node->registry);
    node->env = (struct ferry_transport_env){
        .config = node->config,
        .clock = sim_process_clock(node->process),
        .random = &model->random,
        .registry = &node->registry,
        .segment_name = node->name,
        .incarnation = node->incarnation,
        .advertise_host = "127.0.0.1",
        .net = sim_process_net(node->process),
        .reactor_ops = &sim_reactor_ops,
        .threadless = true,
    };
    /* An engine that cannot open its listener does not open; that is no schedule. */
    sim_net_set_chance(model->net, SIM_FAULT_EMFILE, 0);
    must(model, ferry_transport_open(&model->ops, &node->env, &node->transport), "transport");
    sim_net_set_chance(model->net, SIM_FAULT_EMFILE,
                       model->healing ? 0 : model->profile.net.chance[SIM_FAULT_EMFILE]);
    node->alive = true;
    node->closing = false;
    node->removing = MODEL_REGIONS;
    model_memory_fill(node, 0, node->size, sim_random(model->net));
    for (uint32_t i = 0; i < MODEL_REGIONS; i++)
        model_node_register(node, i);
}

void model_node_create(struct model *model, uint32_t index)
{
    static const enum ferry_permission permissions[MODEL_REGIONS] = {
        FERRY_PERMISSION_READ_WRITE, FERRY_PERMISSION_READ_WRITE, FERRY_PERMISSION_READ_ONLY,
        FERRY_PERMISSION_LOCAL, FERRY_PERMISSION_LOCAL};
    struct model_node *node = &model->nodes[index];

    memset(node, 0, sizeof(*node));
    node->model = model;
    node->index = index;
    node->memory = model->arenas[index][0];
    node->shadow = model->arenas[index][1];
    snprintf(node->name, sizeof(node->name), "node-%u", index);
    for (uint32_t i = 0; i < MODEL_REGIONS; i++) {
        struct model_region *region = &node->regions[i];

        node->size += 16 + (uint32_t)model_below(model, MODEL_GAP_MAX - 16);
        region->offset = node->size;
        region->length = 64 + (uint32_t)model_below(model, model->profile.region_bytes - 63);
        region->permission = permissions[i];
        node->size += region->length;
    }
    node->size += 16 + (uint32_t)model_below(model, MODEL_GAP_MAX - 16);
    configure(node);
    start(node);
}

void model_node_restart(struct model_node *node)
{
    MODEL_NOTE(node->model, "restart node %llu", node->index);
    node->model->events[MODEL_RESTART]++;
    start(node);
}

/* ---- end ---- */

static void end_life(struct model_node *node)
{
    struct model *model = node->model;
    struct hp_transport *hp = ferry_hp_of(node->transport);

    node->closing = true;
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        if (model->tasks[i].state != MODEL_TASK_FREE && model->tasks[i].from == node)
            model->tasks[i].lost = true;
    }
    ferry_transport_quiesce(node->transport);
    model_memory_check(node);
    model_doubts_count(node);
    for (uint32_t i = 0; i < MODEL_REGIONS; i++)
        model_memory_retire(node, i);
    while (model_task_held_step(model))
        continue;
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        if (model->tasks[i].state == MODEL_TASK_RUNNING && model->tasks[i].from == node)
            model_fail(model, "S1: task %u is open after quiesce", model->tasks[i].serial);
    }
    for (uint32_t i = 0; i < MODEL_NODES_MAX; i++) {
        if (node->views[i] != NULL)
            model_view_drop(node->views[i]);
        node->views[i] = NULL;
    }
    if (atomic_load(&hp->admission.tasks) != 0 || atomic_load(&hp->admission.bytes) != 0 ||
        atomic_load(&hp->admission.failed))
        model_fail(model, "the admission of node %u does not add up", node->index);
    if (ferry_registry_lease_count(&node->registry) != 0)
        model_fail(model, "S5: node %u holds a lease after quiesce", node->index);
    ferry_transport_close(node->transport);
    if (node->removing < MODEL_REGIONS)
        ferry_removal_abandon(&node->removal);
    node->removing = MODEL_REGIONS;
    ferry_registry_reader_fini(&node->reader);
    ferry_registry_fini(&node->registry);
    node->transport = NULL;
    node->alive = false;
    for (uint32_t i = 0; i < MODEL_REGIONS; i++) {
        node->regions[i].id = 0;
        node->regions[i].hidden = false;
    }
    model_memory_fill(node, 0, node->size, sim_random(model->net));
}

void model_node_close(struct model_node *node)
{
    MODEL_NOTE(node->model, "close node %llu", node->index);
    node->model->events[MODEL_SHUTDOWN]++;
    end_life(node);
    /* What is left of the process goes with it. */
    if (sim_process_alive(node->process))
        sim_process_kill(node->process, false);
}

void model_node_kill(struct model_node *node, bool silent)
{
    MODEL_NOTE(node->model, "kill node %llu silent %llu", node->index, silent);
    node->model->events[MODEL_KILL]++;
    sim_process_kill(node->process, silent);
    end_life(node);
}

/* Towards v1 nothing may stand behind a WRITE, since an error to it closes the stream. */
static void check_windows(struct model_node *node)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);

    for (struct ferry_list *l = hp->peers.next; l != &hp->peers && node->model->profile.v1;
         l = l->next) {
        struct hp_peer *peer = FERRY_CONTAINER_OF(l, struct hp_peer, link);

        for (uint32_t i = 0; i < peer->lane_count; i++) {
            struct hp_lane *lane = &peer->lanes[i];

            for (uint32_t k = lane->head; k != lane->tail && k + 1 != lane->tail; k++) {
                if (ferry_hp_lane_op(lane, k)->is_write)
                    model_fail(node->model, "a request stands behind a WRITE on a v1 lane");
            }
        }
    }
}

uint32_t model_node_turn(struct model_node *node, uint32_t worker)
{
    struct hp_transport *hp = ferry_hp_of(node->transport);
    uint64_t received = sim_bytes_received(node->model->net);
    uint32_t done = ferry_worker_turn(hp->workers[worker % hp->worker_count].worker);

    node->model->total_steps++;
    /* A receive that completed nothing may have taken some of what it waits for. */
    if (done > 0 || sim_bytes_received(node->model->net) != received)
        model_memory_check(node);
    check_windows(node);
    model_doubts_check(node);
    if (atomic_load(&hp->admission.failed))
        model_fail(node->model, "the admission of node %u has failed closed", node->index);
    return done;
}

/* ---- registrations ---- */

static struct ferry_registry_range range_of(const struct model_node *node, uint32_t region)
{
    return (struct ferry_registry_range){
        .addr = (uintptr_t)node->memory + node->regions[region].offset,
        .length = node->regions[region].length,
    };
}

bool model_node_register(struct model_node *node, uint32_t region)
{
    struct model_region *r = &node->regions[region];
    struct ferry_registry_range range = range_of(node, region);
    struct ferry_registry_spec spec = {
        .addr = range.addr, .length = range.length, .permission = r->permission};
    struct ferry_registry_buffer buffer;

    if (r->id != 0)
        return false;
    model_memory_fill(node, r->offset, r->length, sim_random(node->model->net));
    must(node->model, ferry_registry_register(&node->registry, &spec, 1), "register");
    must(node->model, ferry_registry_find(&node->registry, range.addr, range.length, &buffer),
         "find");
    r->id = buffer.registration_id;
    node->model->events[MODEL_REGISTER]++;
    MODEL_NOTE(node->model, "register node %llu region %llu id %llx", node->index, region, r->id);
    return true;
}

bool model_node_unregister(struct model_node *node, uint32_t region)
{
    struct model_region *r = &node->regions[region];
    struct ferry_registry_range range = range_of(node, region);

    if (r->id == 0 || node->removing < MODEL_REGIONS)
        return false;
    must(node->model, ferry_registry_hide(&node->registry, &range, 1, &node->removal), "hide");
    r->hidden = true;
    node->removing = region;
    node->revoked = false;
    node->revoke_at_ns = sim_net_now_ns(node->model->net) +
                         model_below(node->model, 5 * FERRY_NS_PER_MS);
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        struct model_task *task = &node->model->tasks[i];

        if (task->state != MODEL_TASK_FREE && task->to == node && task->remote_region == region)
            task->stale_possible = true;
    }
    MODEL_NOTE(node->model, "hide node %llu region %llu", node->index, region);
    return true;
}

static void take_back(struct model_node *node)
{
    struct model *model = node->model;
    struct ferry_registry_range range = range_of(node, node->removing);

    MODEL_NOTE(model, "revoke node %llu region %llu", node->index, node->removing);
    model->events[MODEL_REVOKE]++;
    model->disturbed = true;
    node->revoked = true;
    ferry_removal_revoke(&node->removal);
    must(model,
         ferry_transport_revoke(node->transport, (void *)(uintptr_t)range.addr, range.length,
                                ferry_deadline_ns(sim_net_now_ns(model->net), FERRY_NS_PER_S)),
         "revoke");
    model_memory_check(node);
    /* Tasks that the runtime holds give their memory back themselves. */
    while (model_task_held_step(model))
        continue;
    for (uint32_t i = 0; i < REVOKE_TURNS_MAX && !ferry_removal_quiet(&node->removal); i++)
        model_node_turn(node, i);
    if (!ferry_removal_quiet(&node->removal))
        model_fail(model, "S8: node %u region %u still has a lease after it was revoked",
                   node->index, node->removing);
}

bool model_node_removal_step(struct model_node *node)
{
    struct model *model = node->model;
    uint32_t region = node->removing;

    if (region == MODEL_REGIONS)
        return false;
    if (!ferry_removal_quiet(&node->removal)) {
        if (sim_net_now_ns(model->net) < node->revoke_at_ns)
            return false;
        take_back(node);
    }
    must(model, ferry_removal_finish(&node->removal), "finish");
    MODEL_NOTE(model, "unregistered node %llu region %llu", node->index, region);
    model->events[MODEL_UNREGISTER]++;
    model_memory_retire(node, region);
    node->removing = MODEL_REGIONS;
    node->regions[region].id = 0;
    node->regions[region].hidden = false;
    node->regions[region].retired++;
    /* The owner uses its memory again: whoever still reads it reads something else. */
    model_memory_fill(node, node->regions[region].offset, node->regions[region].length,
                      sim_random(model->net));
    return true;
}

/* ---- descriptions ---- */

/* Cut the ferry mark out of a segment attribute, as a v1 engine would publish it. */
static void unmark(char *attr)
{
    char *mark = strstr(attr, "\"ferry\":{");
    char *end = mark == NULL ? NULL : strchr(mark, '}');

    if (end != NULL)
        memmove(mark, end + 2, strlen(end + 2) + 1);
}

static void describe_region(struct model_node *of, uint32_t region, struct ferry_document *doc,
                            bool forged)
{
    const struct model_region *r = &of->regions[region];
    struct ferry_registry_range range = range_of(of, region);
    enum ferry_permission permission = forged ? FERRY_PERMISSION_READ_WRITE : r->permission;
    uint32_t index;
    char *attr;

    if (forged)
        range.length += 16;
    must(of->model, ferry_document_add_buffer(doc, range.addr, range.length, "*", &index),
         "document");
    must(of->model, ferry_transport_describe_buffer(of->transport, r->id, permission, &attr),
         "attribute");
    must(of->model, ferry_document_add_buffer_attr(doc, index, FERRY_HP_TCP_WIRE_ID, attr),
         "document");
}

static struct ferry_document *describe(struct model_node *of, struct model_view *view)
{
    struct model *model = of->model;
    struct ferry_document *doc;
    char *attr;

    must(model, ferry_document_create(&doc), "document");
    doc->name = strdup(of->name);
    must(model, ferry_transport_describe(of->transport, &attr), "attribute");
    if (model->profile.v1)
        unmark(attr);
    must(model, ferry_document_add_attr(doc, FERRY_HP_TCP_WIRE_ID, attr), "document");
    for (uint32_t i = 0; i < MODEL_REGIONS; i++) {
        const struct model_region *region = &of->regions[i];

        view->ids[i] = 0;
        if (region->id == 0 || region->hidden)
            continue;
        if (region->permission == FERRY_PERMISSION_LOCAL && !view->forged)
            continue;
        view->ids[i] = region->id;
        describe_region(of, i, doc, view->forged);
    }
    ferry_document_sort(doc);
    return doc;
}

static struct model_view *view_open(struct model_node *node, struct model_node *of)
{
    struct model *model = node->model;
    struct model_view *view;
    struct ferry_document *doc;

    if (!of->alive || of->closing || node->closing)
        return NULL;
    view = calloc(1, sizeof(*view));
    view->of = of;
    view->life = of->life;
    view->holds = 1;
    view->forged = model->profile.forged && !model->healing && model_chance(model, 20);
    model->events[MODEL_FORGE] += view->forged;
    doc = describe(of, view);
    must(model, ferry_transport_target_open(node->transport, doc, &view->target), "target");
    ferry_document_destroy(doc);
    return view;
}

bool model_view_refresh(struct model_node *node, struct model_node *of)
{
    struct model_view *view = view_open(node, of);

    if (view == NULL)
        return false;
    if (node->views[of->index] != NULL)
        model_view_drop(node->views[of->index]);
    node->views[of->index] = view;
    MODEL_NOTE(node->model, "node %llu reads the description of %llu, forged %llu", node->index,
               of->index, view->forged);
    return true;
}

struct model_view *model_view_get(struct model_node *node, struct model_node *of)
{
    if (node->views[of->index] == NULL && !model_view_refresh(node, of))
        return NULL;
    node->views[of->index]->holds++;
    return node->views[of->index];
}

void model_view_drop(struct model_view *view)
{
    if (--view->holds > 0)
        return;
    ferry_transport_target_close(view->target);
    free(view);
}
