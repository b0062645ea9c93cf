/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a schedule is like, drawn from its seed: sizes, windows, codec, and which kinds of trouble
 * it has. Kinds are switched as a whole, so that a rule that only holds without one of them is
 * tested without it; a fifth of the schedules is calm, and there every request must do what was
 * asked.
 */
#include <string.h>

#include "model.h"

static uint32_t pick(struct model *model, const uint32_t *values, uint32_t count)
{
    return values[model_below(model, count)];
}

#define PICK(model, ...)                                                                           \
    pick((model), (const uint32_t[]){__VA_ARGS__},                                                 \
         sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void draw_sizes(struct model *model)
{
    struct model_profile *profile = &model->profile;

    profile->nodes = model_chance(model, 20) ? 3 : 2;
    profile->workers = PICK(model, 1, 1, 2);
    profile->lanes = PICK(model, 1, 1, 2, 3);
    profile->window_ops = PICK(model, 1, 2, 4, 16, 64);
    profile->window_bytes = PICK(model, 1, 4096, 32768, 262144);
    profile->chunk_bytes = PICK(model, 4096, 4096, 8192, 20000, 65536);
    profile->tasks_max = PICK(model, 2, 16, 32);
    profile->region_bytes = PICK(model, 2048, 4096, 4096, 12288, 12288, 40960, 40960,
                                 MODEL_REGION_MAX);
    profile->length_max = profile->region_bytes / PICK(model, 1, 2, 4);
    profile->steps = 60 + (uint32_t)model_below(model, 300);
    profile->submits = PICK(model, 2, 14, 14, 30);
    profile->v1 = model_chance(model, 30);
    profile->answers_max = PICK(model, 65536, 65536, 65536, 12, 3);
    profile->keep_ms = PICK(model, 120000, 120000, 30);
    profile->question_ms = PICK(model, 100, 100, 1000, 10);
    profile->overlap = !profile->v1 && model_chance(model, 50);
    profile->net.buffer_bytes = PICK(model, 512, 4096, 16384, 65536);
    profile->net.delay_max_ns = PICK(model, 20, 500, 5000) * FERRY_NS_PER_US;
    /* Not so slow that a whole region cannot pass within total_timeout_ms. */
    if (profile->net.buffer_bytes < profile->region_bytes / 24)
        profile->net.delay_max_ns = 20 * FERRY_NS_PER_US;
}

static void draw_faults(struct model *model)
{
    struct model_profile *profile = &model->profile;
    /* In a million calls; zero half of the time, so that each kind is met alone too. */
    static const uint32_t often[SIM_FAULT_COUNT] = {
        [SIM_FAULT_REFUSE] = 100000,     [SIM_FAULT_SYN_DROP] = 60000,
        [SIM_FAULT_RESET] = 12000,       [SIM_FAULT_ONE_SIDED] = 12000,
        [SIM_FAULT_STALL] = 5000,        [SIM_FAULT_DELAY] = 20000,
        [SIM_FAULT_SHORT_SEND] = 200000, [SIM_FAULT_SHORT_RECV] = 200000,
        [SIM_FAULT_EMFILE] = 30000};

    for (uint32_t i = 0; i < SIM_FAULT_COUNT; i++) {
        if (model_chance(model, 50))
            profile->net.chance[i] = often[i] / PICK(model, 1, 3, 10);
    }
    profile->deaths = model_chance(model, 35);
    profile->jumps = model_chance(model, 30);
    /* Towards v1 the ids are all there is to tell one life from another. */
    profile->twins = !profile->v1 && model_chance(model, 50);
}

uint32_t model_rail_host(uint32_t node, uint32_t rail)
{
    return (10u << 24) + (node << 16) + (rail << 8) + 1;
}

/*
 * Towards v1 the numbers of rails are the same. A wire is only cut where every node has another: a
 * calm schedule must then do everything that was asked.
 */
static void draw_rails(struct model *model)
{
    struct model_profile *profile = &model->profile;
    uint32_t least = UINT32_MAX;

    memset(profile->rails, 0, sizeof(profile->rails));
    if (profile->lanes == 1 || profile->doubtful || model_chance(model, 30))
        return;
    for (uint32_t i = 0; i < profile->nodes; i++) {
        profile->rails[i] = profile->v1 && i > 0 ? profile->rails[0]
                                                 : 1 + (uint32_t)model_below(model, profile->lanes);
        least = profile->rails[i] < least ? profile->rails[i] : least;
    }
    profile->cuts = least > 1 && !profile->gentle && model_chance(model, 80);
}

/*
 * Many WRITEs at once to few places, over connections that end one by one, of which the other side
 * often learns late: what passes a range in doubt in another lane's window is only seen here.
 */
static void draw_doubtful(struct model *model)
{
    struct model_profile *profile = &model->profile;

    profile->doubtful = true;
    profile->overlap = true;
    profile->lanes = PICK(model, 2, 2, 3);
    profile->window_ops = PICK(model, 4, 16);
    profile->window_bytes = 262144;
    profile->chunk_bytes = PICK(model, 4096, 8192);
    profile->region_bytes = PICK(model, 12288, 40960);
    profile->length_max = profile->region_bytes;
    profile->tasks_max = 32;
    profile->submits = 30;
    profile->question_ms = PICK(model, 10, 1000);
    profile->answers_max = 65536;
    profile->net.buffer_bytes = 4096;
    profile->net.delay_max_ns = PICK(model, 20, 500) * FERRY_NS_PER_US;
    profile->net.chance[SIM_FAULT_RESET] = PICK(model, 4000, 12000);
    profile->net.chance[SIM_FAULT_ONE_SIDED] = PICK(model, 4000, 12000);
    profile->net.chance[SIM_FAULT_SYN_DROP] = 300000;
}

void model_profile_draw(struct model *model)
{
    struct model_profile *profile = &model->profile;

    draw_sizes(model);
    profile->calm = model_chance(model, 20);
    profile->gentle = !profile->calm && !profile->v1 && model_chance(model, 25);
    profile->bad = model_chance(model, 40);
    profile->churn = model_chance(model, 50);
    profile->rests = model_chance(model, 40);
    if (profile->calm || profile->gentle) {
        /* How data is cut is no trouble. */
        profile->net.chance[SIM_FAULT_SHORT_SEND] = PICK(model, 0, 300000);
        profile->net.chance[SIM_FAULT_SHORT_RECV] = PICK(model, 0, 300000);
        profile->twins = !profile->v1 && model_chance(model, 50);
    } else {
        draw_faults(model);
        profile->forged = model_chance(model, 20);
        if (!profile->v1 && model_chance(model, 20))
            draw_doubtful(model);
    }
    draw_rails(model);
    profile->isolation = model_chance(model, 60);
    profile->small_bytes = PICK(model, 0, 100, 4096, 16384);
    if (profile->gentle || (profile->calm && profile->cuts)) {
        profile->answers_max = 65536;
        profile->keep_ms = 120000;
        profile->question_ms = 1000;
    }
}
