/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One schedule: open the nodes, walk at random, heal the network, see everything end in bounded
 * virtual time, prove that it still works, close, and look for what was left behind.
 */
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Longer than any chain of timeouts that two tries may meet. */
#define HEAL_NS_MAX    (30 * FERRY_NS_PER_S)
#define HEAL_ROUND_MAX 100000
#define PROBES_MAX     40

static struct model_node *draw_node(struct model *model)
{
    return &model->nodes[model_below(model, model->profile.nodes)];
}

/* A receive that took some of what it waits for completes nothing, but makes room for a sender. */
static bool has_work(struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        for (uint32_t k = 0; k < model->profile.workers && model->nodes[i].alive; k++) {
            struct hp_transport *hp = ferry_hp_of(model->nodes[i].transport);

            if (ferry_reactor_has_work(ferry_hp_reactor(&hp->workers[k])))
                return true;
        }
    }
    return false;
}

/* Turns every worker until none has anything to do. */
static void settle(struct model *model)
{
    uint32_t done;
    uint32_t rounds = 0;

    do {
        done = 0;
        for (uint32_t i = 0; i < model->profile.nodes; i++) {
            for (uint32_t k = 0; k < model->profile.workers && model->nodes[i].alive; k++)
                done += model_node_turn(&model->nodes[i], k);
        }
        done += done == 0 && has_work(model);
        if (++rounds > HEAL_ROUND_MAX)
            model_fail(model, "S8: the engines are busy for ever without the clock moving");
    } while (done > 0);
    model_tasks_check_idle(model);
    model_doubts_check_idle(model);
}

static void jump(struct model *model)
{
    uint64_t until_ns = sim_net_now_ns(model->net) + model_below(model, 400 * FERRY_NS_PER_MS);

    MODEL_NOTE(model, "nobody runs until %llu", until_ns);
    model->events[MODEL_JUMP]++;
    model->disturbed = true;
    while (sim_net_now_ns(model->net) < until_ns)
        sim_net_advance_until(model->net, until_ns);
}

/* Time passes in peace until connections grow idle; requests meet them as they close. */
static void rest(struct model *model)
{
    uint64_t until_ns = sim_net_now_ns(model->net) + 600 * FERRY_NS_PER_MS;

    model->events[MODEL_REST]++;
    while (sim_net_now_ns(model->net) < until_ns) {
        uint64_t before_ns;
        bool timer;

        settle(model);
        before_ns = sim_net_now_ns(model->net);
        if (!sim_net_advance(model->net))
            return;
        /* A long step goes to a timer, not to data on the way. */
        timer = sim_net_now_ns(model->net) - before_ns > 10 * FERRY_NS_PER_MS;
        for (uint32_t i = 0; i < model->profile.nodes; i++) {
            for (uint32_t k = 0; k < model->profile.workers && model->nodes[i].alive; k++)
                model_node_turn(&model->nodes[i], k);
            if (timer && model_chance(model, 50))
                model_task_submit(model, &model->nodes[i]);
        }
    }
}

static void advance(struct model *model)
{
    /* In a calm schedule time passes only when everybody waits for it. */
    if (model->profile.calm || model->profile.gentle || model_chance(model, 30))
        settle(model);
    if (model->profile.jumps && model_chance(model, 4))
        jump(model);
    else if (model->profile.rests && model_chance(model, 4))
        rest(model);
    else
        sim_net_advance(model->net);
}

static void change_memory(struct model *model)
{
    struct model_node *node = draw_node(model);
    uint32_t region = (uint32_t)model_below(model, MODEL_REGIONS);

    if (!model->profile.churn || !node->alive)
        return;
    if (node->removing < MODEL_REGIONS)
        model_node_removal_step(node);
    else if (node->regions[region].id == 0)
        model_node_register(node, region);
    else if (model_chance(model, 40))
        model_node_unregister(node, region);
}

static void turn_one(struct model *model)
{
    struct model_node *node = draw_node(model);

    if (node->alive)
        model_node_turn(node, (uint32_t)model_below(model, model->profile.workers));
}

/* What a closing engine may find: requests everywhere, a connection that has just broken. */
static void leave_in_use(struct model *model)
{
    for (uint32_t i = 0; i < 4; i++) {
        model_task_submit(model, draw_node(model));
        turn_one(model);
    }
    if (model_chance(model, 50)) {
        sim_reset_one(model->net);
        for (uint32_t i = 0; i < 3; i++)
            turn_one(model);
        model_task_submit(model, draw_node(model));
    }
}

static void die_or_live(struct model *model)
{
    struct model_node *node = draw_node(model);

    if (!model->profile.deaths)
        return;
    if (!node->alive) {
        model_node_restart(node);
        return;
    }
    if (!model_chance(model, 20))
        return;
    model->disturbed = true;
    if (model_chance(model, 50)) {
        leave_in_use(model);
        model_node_close(node);
    } else {
        model_node_kill(node, model_chance(model, 40));
    }
}

static void refresh_some(struct model *model)
{
    struct model_node *node = draw_node(model);
    struct model_node *of = draw_node(model);

    if (node != of && node->alive && model_view_refresh(node, of))
        model->events[MODEL_REFRESH]++;
}

/*
 * Where all else is well, some connections are cut at one moment, and before their questions have
 * been answered none other: then every question must have an answer. Others only write more, into
 * what is in doubt.
 */
static void strike(struct model *model)
{
    uint32_t count = 1 + (uint32_t)model_below(model, 4);

    if (!model_doubts_none(model)) {
        model_task_submit(model, draw_node(model));
        return;
    }
    for (uint32_t i = 0; i < count && model->profile.gentle; i++) {
        if (model_chance(model, 70) ? sim_cut_one(model->net) : sim_reset_one(model->net))
            model->events[MODEL_STRIKE]++;
    }
}

static void mend(struct model *model)
{
    if (model->cut_host == 0)
        return;
    MODEL_NOTE(model, "the wire of %llx is mended", model->cut_host);
    model->events[MODEL_MEND]++;
    sim_net_mend(model->net, model->cut_host);
    model->cut_host = 0;
}

/*
 * One wire at a time. In a calm schedule it is always the same one, so that another rail of every
 * node has never had a reason to count as down.
 */
static void cut_or_mend(struct model *model)
{
    const struct model_profile *profile = &model->profile;
    uint32_t node = 0;
    uint32_t rail = 0;

    if (!profile->cuts)
        return;
    if (!profile->calm) {
        node = (uint32_t)model_below(model, profile->nodes);
        rail = (uint32_t)model_below(model, profile->rails[node]);
    }
    if (model->cut_host != 0) {
        mend(model);
    } else {
        model->cut_host = model_rail_host(node, rail);
        MODEL_NOTE(model, "the wire of node %llu rail %llu is cut", node, rail);
        sim_net_cut(model->net, model->cut_host);
    }
}

/* Where it hurts: a WRITE is under way that another one waits to go over. */
static void strike_doubtful(struct model *model)
{
    if (model->profile.doubtful && model_doubts_strike(draw_node(model)))
        model->events[MODEL_STRIKE]++;
}

static void step(struct model *model)
{
    uint64_t what = model_below(model, 86 + model->profile.submits);

    model->steps++;
    if (what < 3)
        model_task_cancel_one(model);
    else if (what < 6)
        change_memory(model);
    else if (what < 8)
        die_or_live(model);
    else if (what < 10)
        refresh_some(model);
    else if (what < 12)
        model_task_held_step(model);
    else if (what < 14)
        strike(model);
    else if (what < 17)
        cut_or_mend(model);
    else if (what < 32)
        advance(model);
    else if (what < 86)
        turn_one(model);
    else
        model_task_submit(model, draw_node(model));
    strike_doubtful(model);
}

/* ---- the end ---- */

static void heal(struct model *model)
{
    uint64_t deadline_ns = sim_net_now_ns(model->net) + HEAL_NS_MAX;

    MODEL_NOTE(model, "heal", 0);
    model->healing = true;
    mend(model);
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++)
        sim_net_set_chance(model->net, (enum sim_fault)i, 0);
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        if (!model->nodes[i].alive)
            model_node_restart(&model->nodes[i]);
    }
    for (;;) {
        settle(model);
        while (model_task_held_step(model))
            settle(model);
        for (uint32_t i = 0; i < model->profile.nodes; i++)
            model_node_removal_step(&model->nodes[i]);
        settle(model);
        if (model->open == 0)
            break;
        if (!sim_net_advance(model->net))
            model_fail(model, "S1: %u tasks are open and nothing will ever happen", model->open);
        if (sim_net_now_ns(model->net) > deadline_ns)
            model_fail(model, "S1: %u tasks are open long after the network was healed",
                       model->open);
    }
}

/* Each node still serves each other; connections that went silent unnoticed are found out first. */
static void probe(struct model *model, struct model_node *from, struct model_node *to)
{
    uint64_t before = model->ends[0];

    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        model_task_probe(from, to);
        while (model->open > 0) {
            settle(model);
            if (model_task_held_step(model))
                continue;
            if (model->open > 0 && !sim_net_advance(model->net))
                model_fail(model, "S1: a probe is open and nothing will ever happen");
        }
        if (model->ends[0] > before)
            return;
    }
    model_fail(model, "node %u cannot read from node %u although nothing is wrong any more",
               from->index, to->index);
}

static void finish_removals(struct model *model)
{
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        struct model_node *node = &model->nodes[i];

        node->revoke_at_ns = 0;
        model_node_removal_step(node);
        for (uint32_t k = 0; k < MODEL_REGIONS; k++)
            model_node_register(node, k);
    }
}

static void close_all(struct model *model)
{
    model->disturbed = true;
    if (model_chance(model, 50))
        leave_in_use(model);
    for (uint32_t i = 0; i < model->profile.nodes; i++)
        model_node_close(&model->nodes[i]);
    for (uint32_t i = 0; i < model->profile.nodes; i++)
        ferry_config_destroy(model->nodes[i].config);
    if (model->open != 0)
        model_fail(model, "S1: %u tasks are open after everything was closed", model->open);
    if (sim_open_sockets(model->net) != 0)
        model_fail(model, "%u sockets were left open", sim_open_sockets(model->net));
}

static void begin(struct model *model, uint64_t seed)
{
    struct sim_options first = {.seed = seed};

    model->seed = seed;
    memset(&model->profile, 0, sizeof(model->profile));
    memset(model->nodes, 0, sizeof(model->nodes));
    memset(model->tasks, 0, sizeof(model->tasks));
    model->serial = 0;
    model->open = 0;
    model->healing = false;
    model->cut_host = 0;
    model->steps = 0;
    model->trace_count = 0;
    model->net = sim_net_create(&first);
    model_profile_draw(model);
    model->disturbed = !model->profile.calm;
    first = model->profile.net;
    first.seed = sim_random(model->net);
    sim_net_destroy(model->net);
    model->net = sim_net_create(&first);
    for (uint32_t i = 0; i < MODEL_TASKS_MAX; i++) {
        model->tasks[i].model = model;
        model->tasks[i].landed = model->landed_maps[i];
    }
    for (uint32_t i = 0; i < model->profile.nodes; i++)
        model_node_create(model, i);
}

void model_run(struct model *model, uint64_t seed)
{
    begin(model, seed);
    while (model->steps < model->profile.steps)
        step(model);
    heal(model);
    finish_removals(model);
    for (uint32_t i = 0; i < model->profile.nodes; i++) {
        for (uint32_t k = 0; k < model->profile.nodes; k++) {
            if (i != k)
                probe(model, &model->nodes[i], &model->nodes[k]);
        }
    }
    close_all(model);
    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++)
        model->faults[i] += sim_fault_count(model->net, (enum sim_fault)i);
    sim_net_destroy(model->net);
    model->net = NULL;
}
