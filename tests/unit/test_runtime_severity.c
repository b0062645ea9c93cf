/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ends add up: the sum of a batch does not depend on the order in which its tasks end, each
 * status has exactly one end state, and an end is never followed by anything.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/batch.h"
#include "support/test.h"

#define ENDS 5

static const enum ferry_task_state states[ENDS] = {
    FERRY_TASK_COMPLETED, FERRY_TASK_INVALID, FERRY_TASK_CANCELED,
    FERRY_TASK_TIMED_OUT, FERRY_TASK_FAILED,
};

static enum ferry_task_state sum_of(const enum ferry_task_state *ends, uint32_t count)
{
    static struct ferry_batch batch;

    memset(&batch, 0, sizeof(batch));
    atomic_store(&batch.worst, FERRY_TASK_COMPLETED);
    for (uint32_t i = 0; i < count; i++)
        ferry_batch_add_end(&batch, ends[i], 10);
    return (enum ferry_task_state)atomic_load(&batch.worst);
}

static void swap(enum ferry_task_state *ends, uint32_t a, uint32_t b)
{
    enum ferry_task_state kept = ends[a];

    ends[a] = ends[b];
    ends[b] = kept;
}

/* Every order of @ends, by exchanging each element into place @at. */
static void permute(enum ferry_task_state *ends, uint32_t count, uint32_t at,
                    enum ferry_task_state expected)
{
    if (at == count) {
        assert_int_equal(sum_of(ends, count), expected);
        return;
    }
    for (uint32_t i = at; i < count; i++) {
        swap(ends, at, i);
        permute(ends, count, at + 1, expected);
        swap(ends, at, i);
    }
}

static void test_batch_sum_is_the_worst_end_in_every_order(void **state)
{
    (void)state;
    for (uint32_t mask = 1; mask < 1u << ENDS; mask++) {
        enum ferry_task_state ends[ENDS];
        uint32_t count = 0;

        for (uint32_t i = 0; i < ENDS; i++) {
            if (mask & (1u << i))
                ends[count++] = states[i];
        }
        permute(ends, count, 0, ends[count - 1]);
    }
}

static void test_batch_sum_counts_bytes_of_completed_tasks_only(void **state)
{
    static struct ferry_batch batch;

    (void)state;
    atomic_store(&batch.worst, FERRY_TASK_COMPLETED);
    for (uint32_t i = 0; i < ENDS; i++)
        ferry_batch_add_end(&batch, states[i], 10);
    assert_int_equal(atomic_load(&batch.bytes), 10);
    assert_int_equal(atomic_load(&batch.completed), 1);
}

static void test_status_has_the_end_state_of_its_table_row(void **state)
{
    (void)state;
#define EXPECT(name, value, end, text)                                                             \
    assert_int_equal(ferry_task_state_of(FERRY_##name), FERRY_TASK_##end);
    FERRY_STATUS_TABLE(EXPECT)
#undef EXPECT
    assert_int_equal(ferry_task_state_of((enum ferry_status) - 999), FERRY_TASK_FAILED);
}

/* In a child: an illegal move aborts. */
static bool move_is_legal(enum ferry_task_state from, enum ferry_task_state to)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        static struct ferry_task task;

        close(2);
        atomic_store(&task.state, from);
        ferry_task_move(&task, to);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void test_task_moves_only_as_the_table_says(void **state)
{
    (void)state;
    for (int from = FERRY_TASK_WAITING; from <= FERRY_TASK_FAILED; from++) {
        for (int to = FERRY_TASK_WAITING; to <= FERRY_TASK_FAILED; to++) {
            bool open = from <= FERRY_TASK_PENDING;
            bool legal = open && to != from;

            assert_int_equal(move_is_legal((enum ferry_task_state)from, (enum ferry_task_state)to),
                             legal);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_sum_is_the_worst_end_in_every_order),
        cmocka_unit_test(test_batch_sum_counts_bytes_of_completed_tasks_only),
        cmocka_unit_test(test_status_has_the_end_state_of_its_table_row),
        cmocka_unit_test(test_task_moves_only_as_the_table_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
