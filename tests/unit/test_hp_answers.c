/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a target of hp_tcp remembers of applied WRITEs: who is answered what, when it is forgotten,
 * and that whatever is not certain is "unknown", never "not applied".
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "test.h"
#include "transport/hp_tcp/answers.h"

#define KEEP_NS  (10 * FERRY_NS_PER_S)
#define BEGUN_NS FERRY_NS_PER_S

static struct ferry_hello hello_of(uint8_t initiator, uint64_t predecessor, uint64_t low_water)
{
    struct ferry_hello hello = {.predecessor_session_id = predecessor,
                                .low_water_request_id = low_water};

    memset(hello.incarnation, initiator, sizeof(hello.incarnation));
    return hello;
}

static struct hp_record *begin(struct hp_answers *answers, uint64_t session, uint64_t predecessor)
{
    struct ferry_hello hello = hello_of(1, predecessor, 0);
    struct hp_record *record = ferry_hp_answers_begin(answers, session, &hello);

    assert_non_null(record);
    return record;
}

/* A session that applied ids first..last and has ended. */
static void past(struct hp_answers *answers, uint64_t session, uint64_t first, uint64_t last)
{
    struct hp_record *record = begin(answers, session, 0);
    struct hp_applied applied = {0};

    for (uint64_t id = first; id <= last; id++)
        ferry_hp_applied_add(&applied, id);
    assert_false(ferry_hp_answers_end(answers, record, &applied, BEGUN_NS));
}

/* The verdict on one id, or -1: the session is not known. */
static int ask_at(struct hp_answers *answers, const struct ferry_hello *hello, uint64_t id,
                  uint64_t now_ns)
{
    uint8_t question[FERRY_RESOLVE_SIZE];
    uint8_t reply[FERRY_RESOLVE_REPLY_SIZE];
    struct ferry_frame_list asked = {question, 1};
    struct ferry_frame_list answered = {reply, 1};
    struct ferry_resolved entry;

    ferry_resolve_put(question, 0, id);
    if (!ferry_hp_answers_resolve(answers, hello, &asked, now_ns, reply))
        return -1;
    entry = ferry_resolved_get(&answered, 0);
    assert_int_equal(entry.request_id, id);
    return (int)entry.verdict;
}

static int ask(struct hp_answers *answers, uint64_t session, uint64_t id)
{
    struct ferry_hello hello = hello_of(1, session, 0);

    return ask_at(answers, &hello, id, BEGUN_NS);
}

static void test_applied_and_not_applied_are_told_apart(void **state)
{
    struct hp_answers answers;
    struct ferry_hello stranger = hello_of(2, 77, 0);

    (void)state;
    ferry_hp_answers_init(&answers, 100, KEEP_NS);
    past(&answers, 77, 5, 9);
    assert_int_equal(ask(&answers, 77, 5), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 77, 9), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 77, 10), FERRY_RESOLVE_NOT_APPLIED);
    assert_int_equal(ask(&answers, 77, 4), FERRY_RESOLVE_NOT_APPLIED);
    /* Answers are given again: the first may have been lost too. */
    assert_int_equal(ask(&answers, 77, 5), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 78, 5), -1);
    assert_int_equal(ask_at(&answers, &stranger, 5, BEGUN_NS), -1);
    ferry_hp_answers_fini(&answers);
}

static void test_a_living_predecessor_is_fenced_before_it_is_answered_for(void **state)
{
    struct hp_answers answers;
    struct ferry_hello successor = hello_of(1, 7, 0);
    struct ferry_hello stranger = hello_of(2, 7, 0);
    struct hp_applied applied = {0};
    struct hp_record *record;

    (void)state;
    ferry_hp_answers_init(&answers, 100, KEEP_NS);
    record = begin(&answers, 7, 0);
    ferry_hp_applied_add(&applied, 3);
    /* Nobody else can close it. */
    assert_int_equal(ferry_hp_answers_fence(&answers, &stranger), HP_FENCE_DONE);
    assert_false(atomic_load(&record->doomed));
    assert_int_equal(ferry_hp_answers_fence(&answers, &successor), HP_FENCE_WAIT);
    assert_true(atomic_load(&record->doomed));
    assert_int_equal(ferry_hp_answers_fence(&answers, &successor), HP_FENCE_WAIT);
    assert_int_equal(ask(&answers, 7, 3), -1);
    /* The last byte of another one lands while it is being closed. */
    ferry_hp_applied_add(&applied, 4);
    assert_true(ferry_hp_answers_end(&answers, record, &applied, BEGUN_NS));
    assert_int_equal(ferry_hp_answers_fence(&answers, &successor), HP_FENCE_DONE);
    assert_int_equal(ask(&answers, 7, 4), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 7, 5), FERRY_RESOLVE_NOT_APPLIED);
    assert_int_equal(atomic_load(&answers.fenced), 1);
    ferry_hp_answers_fini(&answers);
}

static void test_what_fell_out_of_the_list_is_unknown(void **state)
{
    struct hp_answers answers;

    (void)state;
    ferry_hp_answers_init(&answers, 1000, KEEP_NS);
    past(&answers, 1, 1, HP_APPLIED_MAX);
    assert_int_equal(ask(&answers, 1, 1), FERRY_RESOLVE_APPLIED);
    /* Long enough for the count to go round more than once. */
    past(&answers, 2, 1, 5 * HP_APPLIED_MAX + 3);
    assert_int_equal(ask(&answers, 2, 4 * HP_APPLIED_MAX + 3), FERRY_RESOLVE_UNKNOWN);
    assert_int_equal(ask(&answers, 2, 1), FERRY_RESOLVE_UNKNOWN);
    for (uint64_t id = 4 * HP_APPLIED_MAX + 4; id <= 5 * HP_APPLIED_MAX + 3; id++)
        assert_int_equal(ask(&answers, 2, id), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 2, 5 * HP_APPLIED_MAX + 4), FERRY_RESOLVE_NOT_APPLIED);
    ferry_hp_answers_fini(&answers);
}

static void test_the_low_water_mark_trims_and_leaves_no_certainty_below(void **state)
{
    struct hp_answers answers;
    struct ferry_hello successor = hello_of(1, 2, 8);

    (void)state;
    ferry_hp_answers_init(&answers, 1000, KEEP_NS);
    past(&answers, 2, 5, 9);
    assert_int_equal(atomic_load(&answers.kept), 6);
    assert_int_equal(ferry_hp_answers_fence(&answers, &successor), HP_FENCE_DONE);
    assert_int_equal(atomic_load(&answers.kept), 3);
    assert_int_equal(ask(&answers, 2, 5), FERRY_RESOLVE_UNKNOWN);
    assert_int_equal(ask(&answers, 2, 7), FERRY_RESOLVE_UNKNOWN);
    assert_int_equal(ask(&answers, 2, 8), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 2, 9), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 2, 10), FERRY_RESOLVE_NOT_APPLIED);
    ferry_hp_answers_fini(&answers);
}

static void test_a_mark_that_comes_before_the_end_trims_at_the_end(void **state)
{
    struct hp_answers answers;
    struct ferry_hello successor = hello_of(1, 7, 4);
    struct hp_applied applied = {0};
    struct hp_record *record;

    (void)state;
    ferry_hp_answers_init(&answers, 100, KEEP_NS);
    record = begin(&answers, 7, 0);
    ferry_hp_applied_add(&applied, 3);
    ferry_hp_applied_add(&applied, 4);
    assert_int_equal(ferry_hp_answers_fence(&answers, &successor), HP_FENCE_WAIT);
    assert_true(ferry_hp_answers_end(&answers, record, &applied, BEGUN_NS));
    assert_int_equal(ask(&answers, 7, 3), FERRY_RESOLVE_UNKNOWN);
    assert_int_equal(ask(&answers, 7, 4), FERRY_RESOLVE_APPLIED);
    ferry_hp_answers_fini(&answers);
}

static void test_ancestors_are_forgotten_when_the_mark_has_passed_them(void **state)
{
    struct hp_answers answers;
    struct ferry_hello third = hello_of(1, 2, 20);
    struct hp_applied applied = {0};
    struct hp_record *record;

    (void)state;
    ferry_hp_answers_init(&answers, 1000, KEEP_NS);
    past(&answers, 1, 5, 9);
    record = begin(&answers, 2, 1);
    ferry_hp_applied_add(&applied, 20);
    assert_false(ferry_hp_answers_end(&answers, record, &applied, BEGUN_NS));
    assert_int_equal(ask(&answers, 1, 9), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ferry_hp_answers_fence(&answers, &third), HP_FENCE_DONE);
    assert_int_equal(ask(&answers, 1, 9), -1);
    assert_int_equal(ask(&answers, 2, 20), FERRY_RESOLVE_APPLIED);
    ferry_hp_answers_fini(&answers);
}

static void test_answers_outlive_the_session_for_the_time_set(void **state)
{
    struct hp_answers answers;
    struct ferry_hello hello = hello_of(1, 1, 0);

    (void)state;
    ferry_hp_answers_init(&answers, 100, KEEP_NS);
    past(&answers, 1, 1, 1);
    assert_int_equal(ask_at(&answers, &hello, 1, BEGUN_NS + KEEP_NS - 1), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask_at(&answers, &hello, 1, BEGUN_NS + KEEP_NS), -1);
    ferry_hp_answers_fini(&answers);
}

static void test_a_full_table_forgets_and_never_says_not_applied(void **state)
{
    struct hp_answers answers;

    (void)state;
    ferry_hp_answers_init(&answers, 10, KEEP_NS);
    past(&answers, 1, 1, 4);
    past(&answers, 2, 5, 8);
    assert_int_equal(atomic_load(&answers.kept), 10);
    past(&answers, 3, 9, 9);
    assert_int_equal(ask(&answers, 1, 1), -1);
    assert_int_equal(ask(&answers, 2, 5), FERRY_RESOLVE_APPLIED);
    assert_int_equal(ask(&answers, 3, 9), FERRY_RESOLVE_APPLIED);
    /* One that would never fit is not kept, and costs nobody else his answers. */
    past(&answers, 4, 10, 30);
    assert_int_equal(ask(&answers, 4, 10), -1);
    assert_int_equal(ask(&answers, 3, 9), FERRY_RESOLVE_APPLIED);
    assert_int_equal(atomic_load(&answers.crowded), 2);
    assert_true(atomic_load(&answers.kept) <= 10);
    ferry_hp_answers_fini(&answers);
}

static void test_a_table_of_nothing_knows_nothing(void **state)
{
    struct hp_answers answers;

    (void)state;
    ferry_hp_answers_init(&answers, 0, KEEP_NS);
    past(&answers, 1, 1, 4);
    assert_int_equal(ask(&answers, 1, 1), -1);
    assert_int_equal(ask(&answers, 1, 5), -1);
    ferry_hp_answers_fini(&answers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_applied_and_not_applied_are_told_apart),
        cmocka_unit_test(test_a_living_predecessor_is_fenced_before_it_is_answered_for),
        cmocka_unit_test(test_what_fell_out_of_the_list_is_unknown),
        cmocka_unit_test(test_the_low_water_mark_trims_and_leaves_no_certainty_below),
        cmocka_unit_test(test_a_mark_that_comes_before_the_end_trims_at_the_end),
        cmocka_unit_test(test_ancestors_are_forgotten_when_the_mark_has_passed_them),
        cmocka_unit_test(test_answers_outlive_the_session_for_the_time_set),
        cmocka_unit_test(test_a_full_table_forgets_and_never_says_not_applied),
        cmocka_unit_test(test_a_table_of_nothing_knows_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
