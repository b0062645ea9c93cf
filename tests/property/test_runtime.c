/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random calls of the public interface against a small model. The model knows what each call has to
 * answer and what each byte has to be; tasks in flight own their ranges on both sides alone, so
 * that every outcome is known once the task has ended. The seed is printed; FERRY_TEST_SEED repeats
 * it.
 */
#include <stdio.h>
#include <string.h>

#include <ferry/ferry.h>

#include "support/pattern.h"
#include "support/sanitizer.h"
#include "support/test.h"

#define BLOCKS     96u /* of each side; a task owns one block on each */
#define BLOCK      4096u
#define BATCHES    6u
#define CAPACITY   12u
#define RANGES     4u /* extra ranges, registered and unregistered at random */
#define STEPS      4000u
#define STEPS_LONG 400000u

#define PIECES 6u

/* A piece of a task lies at the same offset of both blocks. */
struct model_piece {
    uint32_t offset, length;
};

struct model_task {
    bool open;  /* has no end that we have seen */
    bool bad;   /* its target range is not registered: FAILED */
    bool asked; /* was canceled at some time: may end as CANCELED */
    enum ferry_opcode opcode;
    uint32_t local_block, remote_block, bytes;
    uint32_t piece_count;
    bool vectored; /* else there is one piece, and it is the request */
    struct model_piece pieces[PIECES];
};

struct model_batch {
    uint64_t handle;
    bool alive;
    uint32_t submitted;
    struct model_task tasks[CAPACITY];
};

struct model {
    uint64_t random;
    struct ferry_engine *initiator, *target;
    uint64_t segment;
    uint32_t opens; /* of the segment's name, beyond the first */
    struct fenced local, remote;
    unsigned char local_copy[BLOCKS * BLOCK], remote_copy[BLOCKS * BLOCK];
    bool local_busy[BLOCKS], remote_busy[BLOCKS];
    struct model_batch batches[BATCHES];
    unsigned char extra[RANGES * 8192];
    uint32_t registered[RANGES];
    uint64_t next_fill;
};

static uint32_t pick(struct model *model, uint32_t bound)
{
    model->random = model->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(model->random >> 33) % bound;
}

static uint32_t free_block(struct model *model, bool *busy)
{
    uint32_t start = pick(model, BLOCKS);

    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint32_t block = (start + i) % BLOCKS;

        if (!busy[block]) {
            busy[block] = true;
            return block;
        }
    }
    return BLOCKS;
}

/* New content for the side that a transfer reads from, known to the model. */
static void refill(struct model *model, unsigned char *memory, unsigned char *copy, uint32_t block)
{
    pattern_fill(memory + block * BLOCK, BLOCK, ++model->next_fill, 0);
    memcpy(copy + block * BLOCK, memory + block * BLOCK, BLOCK);
}

/* One range, or a list: some of the parts into which a range is cut, in any order. */
static void make_pieces(struct model *model, struct model_task *task)
{
    uint32_t offset = pick(model, 64);
    uint32_t left = BLOCK - 64;

    task->vectored = pick(model, 3) == 0;
    task->piece_count = task->vectored ? 1 + pick(model, PIECES) : 1;
    for (uint32_t i = 0; i < task->piece_count; i++) {
        struct model_piece *piece = &task->pieces[i];

        piece->offset = offset + (i > 0 ? pick(model, 3) : 0);
        piece->length = 1 + pick(model, left / (task->piece_count - i) - 8);
        offset = piece->offset + piece->length;
        left = BLOCK - offset;
        task->bytes += piece->length;
    }
    for (uint32_t i = task->piece_count - 1; i > 0; i--) {
        uint32_t other = pick(model, i + 1);
        struct model_piece swapped = task->pieces[i];

        task->pieces[i] = task->pieces[other];
        task->pieces[other] = swapped;
    }
}

/* The list of a request; @list_out has PIECES entries. */
static void fill_list(struct model *model, const struct model_task *task,
                      struct ferry_request *request, struct ferry_piece *list_out)
{
    unsigned char *local = request->local;
    uint64_t remote = request->remote_offset;
    uint32_t bad = task->bad ? pick(model, task->piece_count) : PIECES;

    for (uint32_t i = 0; i < task->piece_count; i++) {
        const struct model_piece *piece = &task->pieces[i];
        uint32_t shift = piece->offset - task->pieces[0].offset;

        /* Unsigned: shift may stand for a step back. */
        list_out[i] = (struct ferry_piece){
            .local = local + (int32_t)shift,
            .remote_offset = i == bad ? 64 : remote + (uint64_t)(int64_t)(int32_t)shift,
            .length = piece->length,
        };
    }
    request->local = NULL;
    request->remote_offset = 0;
    request->length = 0;
    request->pieces = list_out;
    request->piece_count = task->piece_count;
}

static void make_task(struct model *model, struct model_task *task, struct ferry_request *request,
                      struct ferry_piece *list_out)
{
    memset(task, 0, sizeof(*task));
    task->local_block = free_block(model, model->local_busy);
    task->remote_block = free_block(model, model->remote_busy);
    task->opcode = pick(model, 2) ? FERRY_WRITE : FERRY_READ;
    make_pieces(model, task);
    task->bad = pick(model, 10) == 0;
    task->open = true;
    refill(model, model->local.data, model->local_copy, task->local_block);
    refill(model, model->remote.data, model->remote_copy, task->remote_block);
    *request = (struct ferry_request)FERRY_REQUEST_INIT;
    request->opcode = task->opcode;
    request->local = model->local.data + task->local_block * BLOCK + task->pieces[0].offset;
    request->segment = model->segment;
    request->remote_offset = (uintptr_t)model->remote.data + task->remote_block * BLOCK +
                             task->pieces[0].offset;
    request->length = task->bytes;
    if (task->vectored)
        fill_list(model, task, request, list_out);
    else if (task->bad)
        request->remote_offset = 64;
}

static void give_back(struct model *model, const struct model_task *task)
{
    model->local_busy[task->local_block] = false;
    model->remote_busy[task->remote_block] = false;
}

/* The task has ended: what do both sides have to hold now? */
static void settle(struct model *model, struct model_task *task,
                   const struct ferry_task_status *status)
{
    bool reads = task->opcode == FERRY_READ;
    unsigned char *local = model->local_copy + task->local_block * BLOCK;
    unsigned char *remote = model->remote_copy + task->remote_block * BLOCK;
    const unsigned char *seen = reads ? model->local.data + task->local_block * BLOCK
                                      : model->remote.data + task->remote_block * BLOCK;

    task->open = false;
    if (status->state == FERRY_TASK_COMPLETED) {
        assert_false(task->bad);
        assert_int_equal(status->bytes, task->bytes);
    } else if (status->state == FERRY_TASK_CANCELED) {
        assert_true(task->asked);
        assert_int_equal(status->bytes, 0);
    } else {
        assert_int_equal(status->state, FERRY_TASK_FAILED);
        assert_true(task->bad);
        assert_int_equal(status->status, FERRY_ERR_RANGE);
        task->piece_count = 0; /* of a wrong list nothing moves */
    }
    for (uint32_t i = 0; i < task->piece_count; i++) {
        uint32_t at = task->pieces[i].offset;
        const unsigned char *from = reads ? remote + at : local + at;

        /* Of a canceled one any part may have landed; whatever it is, it stays. */
        memcpy(reads ? local + at : remote + at,
               status->state == FERRY_TASK_COMPLETED ? from : seen + at, task->pieces[i].length);
    }
    assert_memory_equal(model->local.data + task->local_block * BLOCK,
                        model->local_copy + task->local_block * BLOCK, BLOCK);
    assert_memory_equal(model->remote.data + task->remote_block * BLOCK,
                        model->remote_copy + task->remote_block * BLOCK, BLOCK);
    give_back(model, task);
}

/* Look at every task of a batch; an end that was seen once must still be there. */
static uint32_t look(struct model *model, struct model_batch *batch)
{
    uint32_t open = 0;

    for (uint32_t i = 0; i < batch->submitted; i++) {
        struct ferry_task_status status = FERRY_TASK_STATUS_INIT;

        assert_ok(ferry_task_status(model->initiator, batch->handle, i, &status));
        if (status.state <= FERRY_TASK_PENDING) {
            assert_true(batch->tasks[i].open);
            open++;
        } else if (batch->tasks[i].open) {
            settle(model, &batch->tasks[i], &status);
        }
    }
    return open;
}

static void step_create(struct model *model, struct model_batch *batch)
{
    if (batch->alive)
        return;
    assert_ok(ferry_batch_create(model->initiator, CAPACITY, &batch->handle));
    batch->alive = true;
    batch->submitted = 0;
}

static void step_submit(struct model *model, struct model_batch *batch)
{
    uint32_t count = pick(model, 5);
    struct ferry_request requests[5] = {0};
    struct ferry_piece lists[5][PIECES];
    enum ferry_status expected = FERRY_OK;
    enum ferry_status status;

    if (!batch->alive)
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct model_task task;

        make_task(model,
                  batch->submitted + i < CAPACITY ? &batch->tasks[batch->submitted + i] : &task,
                  &requests[i], lists[i]);
        if (batch->submitted + i >= CAPACITY)
            give_back(model, &task);
    }
    if (batch->submitted + count > CAPACITY) {
        expected = FERRY_ERR_TOO_LARGE;
    } else if (count > 0 && pick(model, 6) == 0) {
        struct ferry_request *wrong = &requests[pick(model, count)];

        wrong->piece_count = 0;
        wrong->length = 0;
        expected = FERRY_ERR_INVALID;
    }
    status = ferry_batch_submit(model->initiator, batch->handle, requests, count);
    memset(lists, 0xee, sizeof(lists)); /* copied, whatever the answer */
    assert_int_equal(status, expected);
    if (status == FERRY_OK) {
        batch->submitted += count;
        return;
    }
    for (uint32_t i = 0; i < count && batch->submitted + i < CAPACITY; i++)
        give_back(model, &batch->tasks[batch->submitted + i]);
}

static void step_wait(struct model *model, struct model_batch *batch)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    uint32_t completed = 0;
    uint64_t bytes = 0;
    uint32_t worst = FERRY_TASK_COMPLETED;

    if (!batch->alive)
        return;
    if (pick(model, 2))
        assert_ok(ferry_batch_wait_progress(model->initiator, batch->handle,
                                            pick(model, CAPACITY + 2), test_deadline_ms(20000),
                                            NULL));
    assert_ok(ferry_batch_wait(model->initiator, batch->handle, test_deadline_ms(20000), &sum));
    assert_int_equal(look(model, batch), 0);
    for (uint32_t i = 0; i < batch->submitted; i++) {
        struct ferry_task_status status = FERRY_TASK_STATUS_INIT;

        assert_ok(ferry_task_status(model->initiator, batch->handle, i, &status));
        completed += status.state == FERRY_TASK_COMPLETED;
        bytes += status.bytes;
        if ((uint32_t)status.state > worst)
            worst = (uint32_t)status.state;
    }
    assert_int_equal(sum.submitted, batch->submitted);
    assert_int_equal(sum.ended, batch->submitted);
    assert_int_equal(sum.completed, completed);
    assert_int_equal(sum.bytes, bytes);
    assert_int_equal(sum.state, worst);
}

static void step_cancel(struct model *model, struct model_batch *batch)
{
    uint32_t task = pick(model, CAPACITY);

    if (!batch->alive)
        return;
    if (pick(model, 2)) {
        for (uint32_t i = 0; i < batch->submitted; i++)
            batch->tasks[i].asked = true;
        assert_ok(ferry_batch_cancel(model->initiator, batch->handle));
        return;
    }
    if (task < batch->submitted)
        batch->tasks[task].asked = true;
    assert_int_equal(ferry_task_cancel(model->initiator, batch->handle, task),
                     task < batch->submitted ? FERRY_OK : FERRY_ERR_INVALID);
}

/* Reset and destroy: BUSY exactly while a task is open; afterwards the handle is stale or empty. */
static void step_empty(struct model *model, struct model_batch *batch, bool destroy)
{
    enum ferry_status status;
    uint32_t open;

    if (!batch->alive)
        return;
    open = look(model, batch);
    status = destroy ? ferry_batch_destroy(model->initiator, batch->handle)
                     : ferry_batch_reset(model->initiator, batch->handle);
    if (status == FERRY_ERR_BUSY) {
        assert_true(open > 0);
        return;
    }
    assert_ok(status);
    /* The last may have ended between the look and the call; its bytes are checked by the end. */
    for (uint32_t i = 0; i < batch->submitted; i++) {
        struct model_task *task = &batch->tasks[i];

        if (!task->open)
            continue;
        memcpy(model->local_copy + task->local_block * BLOCK,
               model->local.data + task->local_block * BLOCK, BLOCK);
        memcpy(model->remote_copy + task->remote_block * BLOCK,
               model->remote.data + task->remote_block * BLOCK, BLOCK);
        give_back(model, task);
    }
    batch->submitted = 0;
    if (destroy) {
        batch->alive = false;
        assert_int_equal(ferry_batch_destroy(model->initiator, batch->handle),
                         FERRY_ERR_STALE_HANDLE);
    }
}

static void step_call(struct model *model)
{
    struct ferry_task_status status = FERRY_TASK_STATUS_INIT;
    struct ferry_piece list[PIECES];
    struct ferry_request request;
    struct model_task task;
    enum ferry_status result;

    make_task(model, &task, &request, list);
    result = task.opcode == FERRY_READ
                 ? ferry_read(model->initiator, &request, test_deadline_ms(20000))
                 : ferry_write(model->initiator, &request, test_deadline_ms(20000));
    status.state = result == FERRY_OK ? FERRY_TASK_COMPLETED : FERRY_TASK_FAILED;
    status.status = result;
    status.bytes = result == FERRY_OK ? task.bytes : 0;
    settle(model, &task, &status);
}

static void step_memory(struct model *model)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint32_t index = pick(model, RANGES);
    struct ferry_engine *engine = model->target;

    range.addr = model->extra + index * 8192 + index;
    range.length = 8000;
    range.permission = FERRY_PERMISSION_READ_ONLY;
    if (pick(model, 2)) {
        assert_ok(ferry_memory_register(engine, &range, 1));
        model->registered[index]++;
    } else if (model->registered[index] > 0) {
        assert_ok(ferry_memory_unregister(engine, &range, 1, 1000000000));
        model->registered[index]--;
    } else {
        assert_status(ferry_memory_unregister(engine, &range, 1, 0), FERRY_ERR_NOT_FOUND);
    }
    if (model->registered[index] > 0) {
        range.length++;
        assert_status(ferry_memory_register(engine, &range, 1), FERRY_ERR_EXISTS);
    }
}

static void step_segment(struct model *model)
{
    uint64_t handle;

    if (pick(model, 2)) {
        assert_ok(ferry_segment_open(model->initiator, ferry_engine_segment_name(model->target),
                                     test_deadline_ms(5000), &handle));
        assert_int_equal(handle, model->segment);
        model->opens++;
    } else if (model->opens > 0) {
        assert_ok(ferry_segment_close(model->initiator, model->segment));
        model->opens--;
    } else {
        size_t count = 0;

        assert_ok(ferry_segment_refresh(model->initiator, model->segment, test_deadline_ms(5000)));
        assert_ok(ferry_segment_buffers(model->initiator, model->segment, NULL, &count));
        /* The own list also shows what peers do not see. */
        assert_in_range(count, 1, (model->segment == FERRY_SEGMENT_LOCAL ? 2 : 1) + RANGES);
    }
}

static void step(struct model *model)
{
    struct model_batch *batch = &model->batches[pick(model, BATCHES)];

    switch (pick(model, 16)) {
    case 0:
    case 1:
        step_create(model, batch);
        return;
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
        step_submit(model, batch);
        return;
    case 7:
    case 8:
        step_wait(model, batch);
        return;
    case 9:
        step_cancel(model, batch);
        return;
    case 10:
        step_empty(model, batch, false);
        return;
    case 11:
        step_empty(model, batch, true);
        return;
    case 12:
        step_memory(model);
        return;
    case 13:
        step_segment(model);
        return;
    case 14:
        step_call(model);
        return;
    default:
        if (batch->alive)
            look(model, batch);
        return;
    }
}

static void register_all(struct ferry_engine *engine, const struct fenced *range,
                         enum ferry_permission permission)
{
    struct ferry_memory_range whole = FERRY_MEMORY_RANGE_INIT;

    whole.addr = range->data;
    whole.length = range->len;
    whole.permission = permission;
    assert_ok(ferry_memory_register(engine, &whole, 1));
}

static struct ferry_engine *open_engine(void)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    assert_ok(ferry_config_create(&config));
    /* What io_uring orders, the thread sanitizer cannot see; calls on sockets it can. */
    if (TEST_THREAD_SANITIZER)
        assert_ok(ferry_config_set(config, "reactor", "epoll", FERRY_ORIGIN_API));
    options.config = config;
    assert_ok(ferry_engine_open(&options, &engine));
    ferry_config_destroy(config);
    return engine;
}

static void run(bool remote)
{
    uint64_t seed = test_seed(20260417);
    uint32_t steps = test_is_long() ? STEPS_LONG : STEPS;
    struct model *model = calloc(1, sizeof(*model));

    assert_non_null(model);
    print_message("seed %llu\n", (unsigned long long)seed);
    model->random = seed;
    model->initiator = open_engine();
    model->target = remote ? open_engine() : model->initiator;
    assert_true(fenced_alloc(&model->local, BLOCKS * BLOCK, 24));
    assert_true(fenced_alloc(&model->remote, BLOCKS * BLOCK, 40));
    register_all(model->initiator, &model->local, FERRY_PERMISSION_LOCAL);
    register_all(model->target, &model->remote, FERRY_PERMISSION_READ_WRITE);
    assert_ok(ferry_segment_open(model->initiator, ferry_engine_segment_name(model->target),
                                 test_deadline_ms(5000), &model->segment));
    for (uint32_t i = 0; i < steps; i++)
        step(model);
    for (uint32_t i = 0; i < BATCHES; i++)
        step_wait(model, &model->batches[i]);
    assert_memory_equal(model->local.data, model->local_copy, BLOCKS * BLOCK);
    assert_memory_equal(model->remote.data, model->remote_copy, BLOCKS * BLOCK);
    assert_ok(ferry_engine_close(model->initiator));
    if (remote)
        assert_ok(ferry_engine_close(model->target));
    assert_true(fenced_intact(&model->local));
    assert_true(fenced_intact(&model->remote));
    fenced_free(&model->local);
    fenced_free(&model->remote);
    free(model);
}

static void test_runtime_agrees_with_the_model_on_the_own_segment(void **state)
{
    (void)state;
    run(false);
}

static void test_runtime_agrees_with_the_model_between_peers(void **state)
{
    (void)state;
    run(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runtime_agrees_with_the_model_on_the_own_segment),
        cmocka_unit_test(test_runtime_agrees_with_the_model_between_peers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
