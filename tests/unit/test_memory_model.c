/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls on a registry against a model that is too simple to be wrong: an unordered array and
 * linear searches. Every status and every description must agree. One thread; FERRY_TEST_SEED
 * replays.
 */
#include "support/test.h"

#include "support/pattern.h"
#include "test_memory_support.h"

#define UNIT        UINT64_C(4096)
#define UNITS       24u /* addresses 1..24 units: collisions are the rule */
#define ENTRIES_MAX 64u
#define LEASES_MAX  32u
#define OPEN_MAX    3u
#define READERS     3u
#define LIST_MAX    4u

struct model_entry {
    uint64_t addr;
    uint64_t length;
    uint64_t id;
    enum ferry_permission permission;
    uint32_t count;
    uint32_t reserved;
    uint32_t leases;
    bool hidden;
};

struct model {
    struct model_entry entries[ENTRIES_MAX];
    uint32_t count;
};

struct open_removal {
    bool open;
    struct ferry_removal removal;
    uint64_t addrs[LIST_MAX];
    uint32_t count;
};

struct rig {
    struct ferry_registry registry;
    struct ferry_registry_reader readers[READERS];
    struct model model;
    struct open_removal removals[OPEN_MAX];
    struct ferry_lease leases[LEASES_MAX];
    uint64_t lease_addrs[LEASES_MAX];
    uint64_t old_ids[8];
    uint64_t seed;
    uint64_t drawn;
    uint64_t outcomes[8];
};

static uint64_t draw(struct rig *rig, uint64_t below)
{
    return pattern_word(rig->seed, rig->drawn++) % below;
}

static struct model_entry *model_at(struct model *model, uint64_t addr)
{
    for (uint32_t i = 0; i < model->count; i++) {
        if (model->entries[i].addr == addr)
            return &model->entries[i];
    }
    return NULL;
}

static enum ferry_status model_register_one(struct model *model,
                                            const struct ferry_registry_spec *wanted)
{
    for (uint32_t i = 0; i < model->count; i++) {
        struct model_entry *entry = &model->entries[i];

        if (entry->addr + entry->length <= wanted->addr ||
            wanted->addr + wanted->length <= entry->addr)
            continue;
        if (entry->addr != wanted->addr || entry->length != wanted->length ||
            entry->permission != wanted->permission || entry->hidden)
            return FERRY_ERR_EXISTS;
        entry->count++;
        return FERRY_OK;
    }
    assert_true(model->count < ENTRIES_MAX);
    model->entries[model->count++] = (struct model_entry){.addr = wanted->addr,
                                                          .length = wanted->length,
                                                          .permission = wanted->permission,
                                                          .count = 1};
    return FERRY_OK;
}

static void step_register(struct rig *rig)
{
    struct ferry_registry_spec specs[LIST_MAX];
    uint32_t count = (uint32_t)draw(rig, LIST_MAX) + 1;
    struct model next = rig->model;
    enum ferry_status want = FERRY_OK;

    for (uint32_t i = 0; i < count; i++) {
        specs[i] = spec((draw(rig, UNITS) + 1) * UNIT, (draw(rig, 2) + 1) * UNIT);
        specs[i].permission = draw(rig, 4) == 0   ? FERRY_PERMISSION_READ_ONLY
                              : draw(rig, 6) == 0 ? FERRY_PERMISSION_LOCAL
                                                  : FERRY_PERMISSION_READ_WRITE;
        /* Often the same range again. */
        if (i > 0 && draw(rig, 4) == 0)
            specs[i] = specs[i - 1];
        if (want == FERRY_OK)
            want = model_register_one(&next, &specs[i]);
    }
    assert_status(ferry_registry_register(&rig->registry, specs, count), want);
    rig->outcomes[want == FERRY_OK ? 0 : 1]++;
    if (want != FERRY_OK)
        return;
    rig->model = next;
    for (uint32_t i = 0; i < next.count; i++) {
        struct model_entry *entry = &rig->model.entries[i];

        if (entry->id == 0) {
            entry->id = id_at(&rig->registry, entry->addr);
            for (uint32_t j = 0; j < i; j++)
                assert_int_not_equal(rig->model.entries[j].id, entry->id);
        }
    }
}

static enum ferry_status model_hide_one(struct model *model,
                                        const struct ferry_registry_range *range,
                                        const uint64_t *earlier, uint32_t earlier_count)
{
    struct model_entry *entry = model_at(model, range->addr);
    uint32_t mentions = 0;

    if (entry == NULL || entry->length != range->length)
        return FERRY_ERR_NOT_FOUND;
    if (entry->reserved < entry->count) {
        entry->reserved++;
        return FERRY_OK;
    }
    for (uint32_t i = 0; i < earlier_count; i++)
        mentions += earlier[i] == range->addr;
    return mentions == entry->count ? FERRY_ERR_NOT_FOUND : FERRY_ERR_BUSY;
}

static void step_hide(struct rig *rig)
{
    struct open_removal *removal = &rig->removals[draw(rig, OPEN_MAX)];
    struct ferry_registry_range ranges[LIST_MAX];
    uint32_t count = (uint32_t)draw(rig, LIST_MAX) + 1;
    struct model next = rig->model;
    enum ferry_status want = FERRY_OK;

    if (removal->open)
        return;
    for (uint32_t i = 0; i < count; i++) {
        ranges[i] = (struct ferry_registry_range){(draw(rig, UNITS) + 1) * UNIT, UNIT};
        /* Mostly what exists. */
        if (rig->model.count > 0 && draw(rig, 16) > 0) {
            const struct model_entry *entry = &rig->model.entries[draw(rig, rig->model.count)];

            ranges[i] = (struct ferry_registry_range){entry->addr, entry->length};
        }
        removal->addrs[i] = ranges[i].addr;
        if (want == FERRY_OK)
            want = model_hide_one(&next, &ranges[i], removal->addrs, i);
    }
    uint64_t generation = ferry_registry_generation(&rig->registry);
    assert_status(ferry_registry_hide(&rig->registry, ranges, count, &removal->removal), want);
    rig->outcomes[want == FERRY_OK ? 2 : 3]++;
    if (want != FERRY_OK)
        return;
    removal->open = true;
    removal->count = count;
    rig->model = next;
    bool hid = false;
    for (uint32_t i = 0; i < count; i++) {
        struct model_entry *entry = model_at(&rig->model, ranges[i].addr);

        hid |= entry->reserved == entry->count && !entry->hidden;
        entry->hidden |= entry->reserved == entry->count;
    }
    assert_int_equal(ferry_registry_generation(&rig->registry) != generation, hid);
}

static bool model_quiet(struct rig *rig, const struct open_removal *removal)
{
    for (uint32_t i = 0; i < removal->count; i++) {
        const struct model_entry *entry = model_at(&rig->model, removal->addrs[i]);

        if (entry->hidden && entry->leases > 0)
            return false;
    }
    return true;
}

static void step_finish(struct rig *rig)
{
    struct open_removal *removal = &rig->removals[draw(rig, OPEN_MAX)];
    bool give_up = draw(rig, 3) == 0;

    if (!removal->open)
        return;
    if (draw(rig, 4) == 0)
        ferry_removal_revoke(&removal->removal);
    bool quiet = model_quiet(rig, removal);
    assert_int_equal(ferry_removal_quiet(&removal->removal), quiet);
    if (give_up) {
        ferry_removal_abandon(&removal->removal);
    } else {
        assert_status(ferry_removal_finish(&removal->removal), quiet ? FERRY_OK : FERRY_ERR_BUSY);
    }
    rig->outcomes[give_up ? 4 : quiet ? 5 : 6]++;
    if (!give_up && !quiet)
        return;
    for (uint32_t i = 0; i < removal->count; i++) {
        struct model_entry *entry = model_at(&rig->model, removal->addrs[i]);

        entry->reserved--;
        if (!give_up && --entry->count == 0) {
            rig->old_ids[draw(rig, 8)] = entry->id;
            *entry = rig->model.entries[--rig->model.count];
        }
    }
    removal->open = false;
}

static enum ferry_status model_lease(struct rig *rig, const struct ferry_lease_request *request)
{
    bool local = request->access == FERRY_ACCESS_LOCAL;

    for (uint32_t i = 0; i < rig->model.count; i++) {
        const struct model_entry *entry = &rig->model.entries[i];

        if (entry->hidden || request->length == 0 || request->addr < entry->addr ||
            request->addr + request->length > entry->addr + entry->length)
            continue;
        if (request->registration_id != entry->id && !(local && request->registration_id == 0))
            return FERRY_ERR_STALE_KEY;
        if (!local && (entry->permission == FERRY_PERMISSION_LOCAL ||
                       (request->access == FERRY_ACCESS_WRITE &&
                        entry->permission == FERRY_PERMISSION_READ_ONLY)))
            return FERRY_ERR_PERMISSION;
        return FERRY_OK;
    }
    return local ? FERRY_ERR_INVALID : FERRY_ERR_RANGE;
}

static void step_lease(struct rig *rig)
{
    uint32_t slot = (uint32_t)draw(rig, LEASES_MAX);
    struct ferry_lease *lease = &rig->leases[slot];
    struct ferry_lease_request request = {.addr = UNIT + draw(rig, UNITS * UNIT),
                                          .length = draw(rig, UNIT * 2),
                                          .access = draw(rig, 3)};

    if (ferry_lease_held(lease)) {
        struct model_entry *entry = model_at(&rig->model, rig->lease_addrs[slot]);

        assert_int_equal(ferry_lease_registration_id(lease), entry->id);
        assert_true(entry->hidden || !ferry_lease_revoked(lease));
        entry->leases--;
        ferry_lease_release(lease);
        return;
    }
    if (rig->model.count > 0) {
        const struct model_entry *entry = &rig->model.entries[draw(rig, rig->model.count)];

        request.registration_id = entry->id;
        if (draw(rig, 4) > 0) {
            request.addr = entry->addr + draw(rig, entry->length);
            request.length = draw(rig, entry->addr + entry->length - request.addr + 2);
        }
    }
    if (draw(rig, 8) == 0)
        request.registration_id = draw(rig, 2) ? 0 : rig->old_ids[draw(rig, 8)];

    enum ferry_status want = model_lease(rig, &request);
    assert_status(ferry_lease_acquire(&rig->readers[draw(rig, READERS)], &request, lease), want);
    if (want != FERRY_OK)
        return;
    rig->outcomes[7]++;
    for (uint32_t i = 0; i < rig->model.count; i++) {
        struct model_entry *entry = &rig->model.entries[i];

        if (request.addr >= entry->addr && request.addr - entry->addr < entry->length) {
            entry->leases++;
            rig->lease_addrs[slot] = entry->addr;
        }
    }
}

static void compare_list(struct rig *rig)
{
    struct ferry_registry_list list;
    uint32_t visible = 0;
    uint64_t leases = 0;

    assert_ok(ferry_registry_list(&rig->registry, &list));
    for (uint32_t i = 0; i < rig->model.count; i++) {
        visible += !rig->model.entries[i].hidden;
        leases += rig->model.entries[i].leases;
    }
    assert_int_equal(list.count, visible);
    for (uint32_t i = 0; i < list.count; i++) {
        const struct model_entry *entry = model_at(&rig->model, list.buffers[i].addr);

        assert_non_null(entry);
        assert_int_equal(list.buffers[i].length, entry->length);
        assert_int_equal(list.buffers[i].registration_id, entry->id);
        assert_int_equal(list.buffers[i].permission, entry->permission);
        if (i > 0)
            assert_true(list.buffers[i - 1].addr < list.buffers[i].addr);
    }
    ferry_registry_list_free(&list);
    assert_int_equal(ferry_registry_count(&rig->registry), rig->model.count);
    assert_int_equal(ferry_registry_lease_count(&rig->registry), leases);
}

static void wind_up(struct rig *rig)
{
    struct ferry_removal all;

    for (uint32_t i = 0; i < LEASES_MAX; i++)
        ferry_lease_release(&rig->leases[i]);
    for (uint32_t i = 0; i < OPEN_MAX; i++) {
        if (rig->removals[i].open)
            assert_ok(ferry_removal_finish(&rig->removals[i].removal));
    }
    assert_ok(ferry_registry_hide_all(&rig->registry, &all));
    assert_ok(ferry_removal_finish(&all));
    assert_int_equal(ferry_registry_count(&rig->registry), 0);
    for (uint32_t i = 0; i < READERS; i++)
        ferry_registry_reader_fini(&rig->readers[i]);
    assert_int_equal(rig->registry.id_count, 0);
    ferry_registry_fini(&rig->registry);
}

static void run_seed(uint64_t seed, uint32_t steps, uint64_t *outcomes)
{
    static struct rig rig;

    memset(&rig, 0, sizeof(rig));
    rig.seed = seed;
    rig_init(&rig.registry);
    for (uint32_t i = 0; i < READERS; i++)
        ferry_registry_reader_init(&rig.readers[i], &rig.registry);
    for (uint32_t i = 0; i < steps; i++) {
        switch (draw(&rig, 8)) {
        case 0:
            step_register(&rig);
            break;
        case 1:
            step_hide(&rig);
            break;
        case 2:
            step_finish(&rig);
            break;
        case 3:
            compare_list(&rig);
            break;
        default:
            step_lease(&rig);
        }
    }
    for (size_t i = 0; i < 8; i++)
        outcomes[i] += rig.outcomes[i];
    wind_up(&rig);
}

static uint64_t seed_running;

/* A failed assertion leaves the test at once; what it needs for a replay is said here. */
static int say_seed(void **state)
{
    if (seed_running != 0)
        print_error("replay with FERRY_TEST_SEED=%llu\n", (unsigned long long)seed_running);
    return 0;
}

static void test_random_calls_agree_with_the_model(void **state)
{
    static const char *const names[] = {"registered", "refused",  "hidden", "not hidden",
                                        "abandoned",  "finished", "busy",   "leased"};
    uint64_t outcomes[8] = {0};
    uint64_t first = test_seed(1);
    uint32_t seeds = getenv("FERRY_TEST_SEED") != NULL ? 1 : test_is_long() ? 2000 : 100;

    print_message("%u seeds from %llu\n", seeds, (unsigned long long)first);
    for (uint32_t i = 0; i < seeds; i++) {
        seed_running = first + i;
        run_seed(first + i, 3000, outcomes);
    }
    for (size_t i = 0; i < 8; i++) {
        print_message("%s %llu\n", names[i], (unsigned long long)outcomes[i]);
        if (seeds > 1)
            assert_true(outcomes[i] > 0);
    }
    seed_running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_random_calls_agree_with_the_model, say_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
