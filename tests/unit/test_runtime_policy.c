/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice between transports as a table of facts, and the same rule over a view: with several
 * targets each is asked, with one nobody is.
 */
#include <string.h>

#include "runtime/policy.h"
#include "runtime/runtime.h"
#include "support/test.h"

#define MANY 1000u

/* One letter each. Network: '.' not offered, 'y' 'u' 'n' reach; the same host: upper case. A '-'
 * behind one says that its transfers are too short. */
static uint32_t choose(const char *text)
{
    struct ferry_policy_candidate candidates[FERRY_TRANSPORTS_MAX];
    uint32_t count = 0;

    memset(candidates, 0, sizeof(candidates));
    for (const char *at = text; *at != '\0'; at++) {
        struct ferry_policy_candidate *candidate = &candidates[count];

        if (*at == '-') {
            candidates[count - 1].length_max = MANY - 1;
            continue;
        }
        candidate->offered = *at != '.';
        candidate->same_host = *at >= 'A' && *at <= 'Z';
        candidate->reach = strchr("yY.", *at) != NULL  ? FERRY_REACH_YES
                           : strchr("uU", *at) != NULL ? FERRY_REACH_UNKNOWN
                                                       : FERRY_REACH_NO;
        candidate->length_max = MANY;
        count++;
    }
    return ferry_policy_choose(candidates, count, MANY);
}

static void test_the_first_difference_decides(void **state)
{
    static const struct {
        const char *facts;
        uint32_t chosen;
    } rows[] = {
        {"", FERRY_POLICY_NONE},
        {"...", FERRY_POLICY_NONE},
        {"y", 0},
        {".y", 1},
        {"n", 0},
        {"y-", 0},
        /* the registry's order */
        {"yy", 0},
        {"YY", 0},
        {".yy", 1},
        /* within the host first, wherever it stands */
        {"yY", 1},
        {"Yy", 0},
        {"uU", 1},
        /* but not before it is known to be reachable */
        {"yU", 0},
        {"yN", 0},
        {"uN", 0},
        {"Uy", 1},
        {"nu", 1},
        {"nU", 1},
        /* nor when the request is too long for it */
        {"yY-", 0},
        {"uY-", 0},
        {"nY-", 0},
        {"y-Y-", 1},
        {"y-n", 1},
    };

    (void)state;
    for (size_t i = 0; i < FERRY_ARRAY_LEN(rows); i++) {
        uint32_t chosen = choose(rows[i].facts);

        if (chosen != rows[i].chosen)
            fail_msg("\"%s\": chose %u, expected %u", rows[i].facts, chosen, rows[i].chosen);
    }
}

/* ---- over a view ---- */

#define FAR_ADDR 0x1000u /* the near one does not reach from here on */

static uint32_t asked;

static enum ferry_reach reach_near(struct ferry_target *target, uint64_t addr, uint64_t length,
                                   char *why)
{
    (void)target;
    (void)why;
    asked++;
    return addr + length > FAR_ADDR ? FERRY_REACH_NO : FERRY_REACH_YES;
}

static enum ferry_reach reach_all(struct ferry_target *target, uint64_t addr, uint64_t length,
                                  char *why)
{
    (void)target;
    (void)addr;
    (void)length;
    (void)why;
    asked++;
    return FERRY_REACH_YES;
}

static const struct ferry_transport_ops wide_ops = {.name = "wide", .target_reach = reach_all};
static const struct ferry_transport_ops near_ops = {
    .name = "near", .caps = FERRY_CAP_SHARED, .target_reach = reach_near};
static struct ferry_transport wide = {.ops = &wide_ops};
static struct ferry_transport near = {.ops = &near_ops};
static struct ferry_target wide_target = {.transport = &wide, .max_transfer_bytes = MANY};
static struct ferry_target near_target = {.transport = &near, .max_transfer_bytes = MANY};
static struct ferry_engine engine = {.transport_count = 3};

static void test_a_list_goes_where_all_of_it_can(void **state)
{
    struct ferry_view view = {
        .engine = &engine, .targets = {NULL, &wide_target, &near_target}, .target_count = 2};
    struct ferry_xfer_piece pieces[2] = {{.length = 8, .remote_addr = 0},
                                         {.length = 8, .remote_addr = 64}};
    struct ferry_policy_request request = {.length = 16, .pieces = pieces, .piece_count = 2};

    (void)state;
    assert_int_equal(ferry_policy_choose_in(&view, &request), 2);
    pieces[0].remote_addr = FAR_ADDR;
    assert_int_equal(ferry_policy_choose_in(&view, &request), 1);
    pieces[0].remote_addr = 0;
    pieces[1].remote_addr = FAR_ADDR;
    assert_int_equal(ferry_policy_choose_in(&view, &request), 1);
    request = (struct ferry_policy_request){.length = 16, .remote_addr = 64};
    assert_int_equal(ferry_policy_choose_in(&view, &request), 2);
    request.remote_addr = FAR_ADDR - 8;
    assert_int_equal(ferry_policy_choose_in(&view, &request), 1);
}

static void test_one_target_is_not_asked(void **state)
{
    struct ferry_view view = {.engine = &engine,
                              .targets = {NULL, NULL, &near_target},
                              .target_count = 1,
                              .first_target = 2};
    struct ferry_policy_request request = {.length = 16, .remote_addr = FAR_ADDR};

    (void)state;
    asked = 0;
    assert_int_equal(ferry_policy_choose_in(&view, &request), 2);
    assert_int_equal(asked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_difference_decides),
        cmocka_unit_test(test_a_list_goes_where_all_of_it_can),
        cmocka_unit_test(test_one_target_is_not_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
