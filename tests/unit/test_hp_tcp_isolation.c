/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which lanes small and large requests get: beside large ones small ones have a lane to themselves,
 * large ones stay off it while small ones keep coming and come back to it afterwards, and nobody
 * keeps a lane free where there is none to spare.
 */
#include <string.h>

#include "test.h"
#include "transport/hp_tcp/internal.h"

#define LANES 4u
#define MIB   (UINT64_C(1) << 20)

struct rig {
    struct hp_transport transport;
    struct hp_rail rails[LANES];
    struct hp_lane lanes[LANES];
    struct hp_peer peer;
};

struct request {
    struct ferry_xfer xfer;
    struct hp_flow flow;
};

static void rig_open(struct rig *rig, bool isolation, uint32_t rails)
{
    memset(rig, 0, sizeof(*rig));
    rig->transport.settings.isolation = isolation;
    rig->peer.transport = &rig->transport;
    rig->peer.rails = rig->rails;
    rig->peer.rail_count = rails;
    rig->peer.lanes = rig->lanes;
    rig->peer.lane_count = LANES;
    for (uint32_t i = 0; i < LANES; i++) {
        rig->lanes[i].index = (uint8_t)i;
        rig->lanes[i].peer = &rig->peer;
        rig->lanes[i].rail = &rig->rails[i % rails];
    }
    ferry_hp_isolation_init(&rig->peer);
}

/* Fill in a request; the number of lanes that are open to it. */
static uint32_t begin(struct rig *rig, struct request *request, uint64_t length, bool small)
{
    memset(request, 0, sizeof(*request));
    request->xfer.length = length;
    request->flow.xfer = &request->xfer;
    request->flow.transport = &rig->transport;
    request->flow.small = small;
    return ferry_hp_isolation_begin(&rig->peer, &request->flow);
}

static void end(struct rig *rig, struct request *request)
{
    ferry_hp_isolation_end(&rig->peer, &request->flow);
}

/* One small request from beginning to end; the lane of its own that it had, if any. */
static struct hp_lane *pass_small(struct rig *rig)
{
    struct request small;

    assert_int_equal(begin(rig, &small, 4096, true), LANES);
    struct hp_lane *lane = ferry_hp_isolation_lane(&rig->peer, &small.flow);
    end(rig, &small);
    return lane;
}

static void test_small_ones_have_a_lane_beside_large_ones_only(void **state)
{
    struct rig rig;
    struct request large[2];

    (void)state;
    rig_open(&rig, true, 1);
    assert_null(pass_small(&rig));
    begin(&rig, &large[0], 64 * MIB, false);
    begin(&rig, &large[1], 64 * MIB, false);
    assert_null(ferry_hp_isolation_lane(&rig.peer, &large[0].flow));
    assert_ptr_equal(pass_small(&rig), &rig.lanes[LANES - 1]);
    end(&rig, &large[0]);
    assert_ptr_equal(pass_small(&rig), &rig.lanes[LANES - 1]);
    end(&rig, &large[1]);
    assert_null(pass_small(&rig));
}

/* A large request that nobody small has met has all lanes; the next ones leave one free. */
static void test_large_ones_stay_off_the_lane_while_small_ones_come(void **state)
{
    struct rig rig;
    struct request first;
    struct request next;

    (void)state;
    rig_open(&rig, true, 1);
    assert_int_equal(begin(&rig, &first, 64 * MIB, false), LANES);
    for (uint32_t i = 0; i < 100; i++) {
        assert_non_null(pass_small(&rig));
        assert_int_equal(begin(&rig, &next, 64 * MIB, false), LANES - 1);
        end(&rig, &next);
    }
    end(&rig, &first);
}

/* Once no small one comes any more, large ones have every lane again within a GiB and a little. */
static void test_large_ones_get_the_lane_back(void **state)
{
    struct rig rig;
    struct request large;
    uint32_t kept = 0;

    (void)state;
    rig_open(&rig, true, 1);
    begin(&rig, &large, 64 * MIB, false);
    assert_non_null(pass_small(&rig));
    end(&rig, &large);
    while (begin(&rig, &large, 64 * MIB, false) == LANES - 1) {
        end(&rig, &large);
        assert_in_range(++kept, 1, 16);
    }
    end(&rig, &large);
    assert_in_range(kept, 8, 16);
}

static void test_no_lane_is_kept_where_none_is_to_spare(void **state)
{
    static const struct {
        bool isolation;
        uint32_t rails;
    } cases[] = {{true, LANES}, {false, 1}};

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(cases); i++) {
        struct rig rig;
        struct request large;

        rig_open(&rig, cases[i].isolation, cases[i].rails);
        begin(&rig, &large, 64 * MIB, false);
        assert_null(pass_small(&rig));
        end(&rig, &large);
        assert_int_equal(begin(&rig, &large, 64 * MIB, false), LANES);
        end(&rig, &large);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_ones_have_a_lane_beside_large_ones_only),
        cmocka_unit_test(test_large_ones_stay_off_the_lane_while_small_ones_come),
        cmocka_unit_test(test_large_ones_get_the_lane_back),
        cmocka_unit_test(test_no_lane_is_kept_where_none_is_to_spare),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
