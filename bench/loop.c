/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closed loop of one thread. Requests are appended to a batch of some capacity, in one call for
 * all that are ready; the thread waits for progress, looks which ones ended, and appends these
 * slots' next requests. A full batch is emptied once its last request has ended, while others take
 * the new ones.
 *
 * Between two requests nothing is allocated, locked or printed.
 */
#include "loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "interrupt.h"

#define NS_PER_MS UINT64_C(1000000)

/* How long a wait may overlook that the others have stopped. */
#define LOOK_NS (200 * NS_PER_MS)
/* How long canceled requests may take to end. */
#define DRAIN_NS (10000 * NS_PER_MS)
/* How long an engine without any request of ours may refuse one as "full". */
#define FULL_NS  (2000 * NS_PER_MS)
#define PAUSE_NS (100000)

/* Batches that take turns, and how many requests one takes before it has to be emptied. */
#define ROUNDS       3
#define ROUND_TASKS  256
#define ROUND_FACTOR 4
#define NO_SLOT      UINT32_MAX

/* Requests with pieces in one submit: an engine has so many at once by default. */
#define LISTS_MAX 64

/* Ends are taken in by the half of what is open, but not more than so many bytes at once. */
#define TOGETHER_BYTES (UINT64_C(128) << 10)

struct round {
    uint64_t batch;
    uint32_t *slots; /* of each task; NO_SLOT once its end has been seen */
    uint32_t submitted;
    uint32_t seen;  /* ends */
    uint32_t first; /* all before it have been seen */
    uint64_t turn;  /* rounds that were begun earlier have a lower one */
};

/* What the loop works with. */
struct work {
    struct ferry_bench_loop *loop;
    struct ferry_bench_gate *gate;
    struct ferry_bench_slot *slots;
    uint32_t *ready; /* slots whose next request can go: a ring of gate->batch entries */
    uint32_t ready_first;
    uint32_t ready_count;
    uint32_t chunk; /* how many one submit may hold; shrinks while the engine is full */
    uint32_t chunk_max;
    struct ferry_piece *pieces; /* of all slots */
    uint32_t open;              /* requests submitted and not seen to end */
    struct ferry_request *requests;
    struct round rounds[ROUNDS];
    uint32_t round_count; /* made so far */
    uint32_t capacity;
    uint32_t current;
    uint64_t turn;
    uint64_t completed;
    uint64_t start_ns;
    uint64_t full_since_ns; /* 0: not full */
    bool warm;
    bool canceled;
};

static void tell_main(struct ferry_bench_gate *gate)
{
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->mutex);
}

/* A request or a call failed: keep the first reason, and have all loops stop. */
static void fail(struct work *work, const char *text)
{
    struct ferry_bench_gate *gate = work->gate;

    work->loop->errors++;
    pthread_mutex_lock(&gate->mutex);
    if (gate->failure[0] == '\0')
        snprintf(gate->failure, sizeof(gate->failure), "%.200s: %.300s", work->loop->peer->name,
                 text);
    atomic_store(&gate->failed, true);
    tell_main(gate);
}

static void fail_call(struct work *work, const char *what, enum ferry_status status)
{
    char text[FERRY_BENCH_FAILURE_SIZE];
    const char *cause = ferry_last_error_text();

    snprintf(text, sizeof(text), "%s: %.300s (%s)", what,
             cause[0] != '\0' ? cause : ferry_status_text(status), ferry_status_name(status));
    fail(work, text);
}

static bool stopping(const struct ferry_bench_gate *gate)
{
    return atomic_load_explicit(&gate->phase, memory_order_relaxed) == FERRY_BENCH_STOP ||
           atomic_load_explicit(&gate->measured, memory_order_relaxed) == gate->threads ||
           atomic_load_explicit(&gate->failed, memory_order_relaxed) ||
           ferry_bench_interrupted() != 0;
}

static void say_difference(struct work *work, const struct ferry_bench_slot *slot,
                           const struct ferry_bench_difference *difference)
{
    struct ferry_bench_gate *gate = work->gate;
    uint64_t block = gate->traffic.block;
    const char *where = difference->gap                         ? " (in the gap before it)"
                        : difference->offset < 0                ? " (before the block)"
                        : (uint64_t)difference->offset >= block ? " (behind the block)"
                                                                : "";

    pthread_mutex_lock(&gate->mutex);
    if (gate->difference[0] == '\0')
        snprintf(gate->difference, sizeof(gate->difference),
                 "%s: data differs first at offset %" PRId64 "%s of the %" PRIu64
                 " bytes at %#" PRIx64 ": expected 0x%02x, got 0x%02x (seed %#" PRIx64 ")",
                 work->loop->peer->name, difference->offset, where, block, slot->remote,
                 difference->expected, difference->got, difference->seed);
    pthread_mutex_unlock(&gate->mutex);
}

static void compare(struct work *work, struct ferry_bench_slot *slot)
{
    struct ferry_bench_difference difference;

    if (ferry_bench_slot_compare(slot, &work->gate->traffic, &difference)) {
        work->loop->verified_bytes += slot->owed_bytes;
    } else {
        work->loop->errors++;
        say_difference(work, slot, &difference);
    }
    slot->owed_bytes = 0;
}

static void note_transport(struct ferry_bench_loop *loop, const char *name)
{
    for (uint32_t i = 0; i < loop->transport_count; i++) {
        if (loop->transports[i] == name)
            return;
    }
    if (name != NULL && loop->transport_count < FERRY_BENCH_TRANSPORTS_SEEN)
        loop->transports[loop->transport_count++] = name;
}

static void push_ready(struct work *work, uint32_t slot)
{
    uint32_t at = work->ready_first + work->ready_count++;

    work->ready[at < work->gate->batch ? at : at - work->gate->batch] = slot;
}

/* The slot that is the @index-th of those that are ready. */
static uint32_t ready_slot(const struct work *work, uint32_t index)
{
    uint32_t at = work->ready_first + index;

    return work->ready[at < work->gate->batch ? at : at - work->gate->batch];
}

/* A request completed. @counts: inside the window. */
static void on_completed(struct work *work, struct ferry_bench_slot *slot, uint64_t now_ns,
                         bool counts)
{
    const struct ferry_bench_traffic *traffic = &work->gate->traffic;
    struct ferry_bench_loop *loop = work->loop;
    bool checks = ferry_bench_checks(traffic);

    work->completed++;
    atomic_fetch_add_explicit(&loop->moved_bytes, ferry_bench_slot_bytes(slot, traffic),
                              memory_order_relaxed);
    if (counts && ferry_bench_slot_measured(slot, traffic)) {
        loop->ops++;
        ferry_bench_histogram_add(&loop->latency, now_ns - slot->submit_ns);
        if (checks)
            slot->owed_bytes += traffic->block;
    }
    if (checks && slot->step == FERRY_READ)
        compare(work, slot);
    ferry_bench_slot_advance(slot, traffic);
    /*
     * Nothing stops before this loop's own window is over, and by then every slot that owes a
     * comparison has its READ under way: what was measured is compared.
     */
    if (!stopping(work->gate))
        push_ready(work, (uint32_t)(slot - work->slots));
}

static void on_failed(struct work *work, const struct round *round, uint32_t task,
                      const struct ferry_task_status *status)
{
    char text[FERRY_BENCH_FAILURE_SIZE] = "";

    /* Our own cancel is no failure of a request. */
    if (status->state == FERRY_TASK_CANCELED && work->canceled)
        return;
    ferry_task_describe(work->gate->engine, round->batch, task, text, sizeof(text));
    if (text[0] == '\0')
        snprintf(text, sizeof(text), "%s", ferry_status_text(status->status));
    fail(work, text);
}

/* Look at the tasks of a round until @ended ends have been seen in all. */
static void harvest(struct work *work, struct round *round, uint32_t ended, uint64_t now_ns,
                    bool counts)
{
    for (uint32_t i = round->first; i < round->submitted && round->seen < ended; i++) {
        struct ferry_task_status status = FERRY_TASK_STATUS_INIT;
        uint32_t slot = round->slots[i];

        if (slot == NO_SLOT ||
            ferry_task_status(work->gate->engine, round->batch, i, &status) != FERRY_OK ||
            status.state < FERRY_TASK_COMPLETED)
            continue;
        round->slots[i] = NO_SLOT;
        round->seen++;
        work->open--;
        note_transport(work->loop, status.transport);
        if (status.state == FERRY_TASK_COMPLETED)
            on_completed(work, &work->slots[slot], now_ns, counts);
        else
            on_failed(work, round, i, &status);
    }
    while (round->first < round->submitted && round->slots[round->first] == NO_SLOT)
        round->first++;
}

/* Empty a round whose requests have all been seen to end. */
static void recycle(struct work *work, struct round *round)
{
    enum ferry_status status;

    if (round->submitted == 0 || round->seen < round->submitted)
        return;
    status = ferry_batch_reset(work->gate->engine, round->batch);
    if (status != FERRY_OK) {
        fail_call(work, "reset", status);
        return;
    }
    round->submitted = 0;
    round->seen = 0;
    round->first = 0;
}

static struct round *oldest(struct work *work)
{
    struct round *found = NULL;

    for (uint32_t i = 0; i < work->round_count; i++) {
        struct round *round = &work->rounds[i];

        if (round->seen < round->submitted && (found == NULL || round->turn < found->turn))
            found = round;
    }
    return found;
}

/* The round that takes the next requests, or NULL: all are full. */
static struct round *with_room(struct work *work)
{
    struct round *round = &work->rounds[work->current];

    if (round->submitted < work->capacity) {
        if (round->submitted == 0)
            round->turn = ++work->turn;
        return round;
    }
    for (uint32_t i = 0; i < work->round_count; i++) {
        if (work->rounds[i].submitted == 0) {
            work->current = i;
            work->rounds[i].turn = ++work->turn;
            return &work->rounds[i];
        }
    }
    return NULL;
}

/* The first @count ready slots are on their way now. */
static void took(struct work *work, struct round *round, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        round->slots[round->submitted + i] = ready_slot(work, i);
    round->submitted += count;
    work->open += count;
    work->ready_count -= count;
    work->ready_first = (work->ready_first + count) % work->gate->batch;
    work->full_since_ns = 0;
    if (count == work->chunk && work->chunk < work->chunk_max)
        work->chunk = work->chunk * 2 < work->chunk_max ? work->chunk * 2 : work->chunk_max;
}

/* Submit @count ready requests. False: the engine is full, or a failure has been noted. */
static bool submit_some(struct work *work, struct round *round, uint32_t count)
{
    enum ferry_status status = ferry_batch_submit(work->gate->engine, round->batch, work->requests,
                                                  count);

    if (status == FERRY_OK) {
        took(work, round, count);
        return true;
    }
    if (status == FERRY_ERR_QUEUE_FULL)
        work->chunk = count > 1 ? count / 2 : 1;
    else
        fail_call(work, "submit", status);
    return false;
}

/* Full, and no request of ours is there whose end would make room: other loops' are. */
static void pause_when_full(struct work *work)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t now_ns = ferry_cli_now_ns();

    if (work->full_since_ns == 0)
        work->full_since_ns = now_ns;
    if (now_ns - work->full_since_ns >= FULL_NS)
        fail_call(work, "submit", FERRY_ERR_QUEUE_FULL);
    else
        nanosleep(&pause, NULL);
}

/* The first @count ready slots as requests. Time begins when their data is in place. */
static uint64_t fill_requests(struct work *work, uint32_t count)
{
    uint64_t now_ns;

    for (uint32_t i = 0; i < count; i++) {
        struct ferry_bench_slot *slot = &work->slots[ready_slot(work, i)];

        ferry_bench_slot_prepare(slot, &work->gate->traffic);
        ferry_bench_slot_request(slot, &work->gate->traffic, &work->requests[i]);
    }
    now_ns = ferry_cli_now_ns();
    for (uint32_t i = 0; i < count; i++)
        work->slots[ready_slot(work, i)].submit_ns = now_ns;
    return now_ns;
}

static uint32_t least(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t less = a < b ? a : b;

    return less < c ? less : c;
}

/* Submit what is ready, as far as there is room. */
static void submit_ready(struct work *work)
{
    struct ferry_bench_gate *gate = work->gate;

    while (work->ready_count > 0 && !atomic_load_explicit(&gate->failed, memory_order_relaxed)) {
        struct round *round = with_room(work);

        if (round == NULL)
            return;

        uint32_t room = work->capacity - round->submitted;
        uint32_t count = least(work->ready_count, room, work->chunk);
        uint64_t now_ns = fill_requests(work, count);

        if (work->open == 0 && work->loop->begin_ns == 0 && work->warm &&
            atomic_load(&gate->phase) == FERRY_BENCH_MEASURE)
            work->loop->begin_ns = now_ns;
        if (submit_some(work, round, count))
            continue;
        if (work->open > 0 || atomic_load(&gate->failed))
            return;
        if (count == 1)
            pause_when_full(work);
    }
}

/* The window holds at least one measured request, however long that takes. */
static bool window_over(const struct work *work, uint64_t now_ns)
{
    const struct ferry_bench_loop *loop = work->loop;

    return atomic_load_explicit(&work->gate->failed, memory_order_relaxed) ||
           ferry_bench_interrupted() != 0 ||
           (loop->ops > 0 && now_ns - loop->begin_ns >= work->gate->duration_ns);
}

/* Begin and end the window; both at the end of a request. */
static void step_window(struct work *work, uint64_t now_ns)
{
    struct ferry_bench_loop *loop = work->loop;
    struct ferry_bench_gate *gate = work->gate;

    if (!work->warm && work->completed >= gate->batch &&
        now_ns - work->start_ns >= gate->warmup_ns) {
        work->warm = true;
        pthread_mutex_lock(&gate->mutex);
        gate->warm++;
        tell_main(gate);
    }
    if (loop->begin_ns == 0 && work->open > 0 && work->warm &&
        atomic_load_explicit(&gate->phase, memory_order_relaxed) == FERRY_BENCH_MEASURE) {
        loop->begin_ns = now_ns;
    } else if (loop->begin_ns != 0 && loop->end_ns == 0 && window_over(work, now_ns)) {
        loop->end_ns = now_ns;
        pthread_mutex_lock(&gate->mutex);
        atomic_fetch_add(&gate->measured, 1);
        tell_main(gate);
    }
}

static void cancel_all(struct work *work)
{
    work->canceled = true;
    work->ready_count = 0;
    for (uint32_t i = 0; i < work->round_count; i++)
        ferry_batch_cancel(work->gate->engine, work->rounds[i].batch);
}

/*
 * How many ends of a round to wait for. Small requests end faster than a thread wakes; one wake-up
 * and one submit for several of them leave the pipeline half full at worst and cost half as much.
 */
static uint32_t wanted_ends(const struct work *work, const struct round *round)
{
    uint64_t most = TOGETHER_BYTES / work->gate->traffic.block;
    uint32_t half = (round->submitted - round->seen) / 2;

    return round->seen + 1 + (half < most ? half : (uint32_t)most);
}

/* Wait for the oldest round and take in whatever has ended. */
static void wait_and_harvest(struct work *work)
{
    struct ferry_batch_status status = FERRY_BATCH_STATUS_INIT;
    struct ferry_engine *engine = work->gate->engine;
    struct round *first = oldest(work);
    uint64_t deadline_ns = ferry_cli_now_ns() + LOOK_NS;
    enum ferry_status waited = ferry_batch_wait_progress(
        engine, first->batch, wanted_ends(work, first), deadline_ns, &status);
    uint64_t now_ns = ferry_cli_now_ns();
    bool counts = work->loop->begin_ns != 0 && work->loop->end_ns == 0;

    if (waited != FERRY_OK && waited != FERRY_ERR_TIMED_OUT) {
        fail_call(work, "wait", waited);
        return;
    }
    harvest(work, first, status.ended, now_ns, counts);
    recycle(work, first);
    for (uint32_t i = 0; i < work->round_count; i++) {
        struct round *round = &work->rounds[i];

        if (round == first || round->seen == round->submitted ||
            ferry_batch_status(engine, round->batch, &status) != FERRY_OK)
            continue;
        harvest(work, round, status.ended, now_ns, counts);
        recycle(work, round);
    }
    step_window(work, now_ns);
}

static void go_round(struct work *work)
{
    uint64_t give_up_ns = 0;

    work->start_ns = ferry_cli_now_ns();
    submit_ready(work);
    while (work->open > 0) {
        if (atomic_load(&work->gate->failed) && !work->canceled) {
            cancel_all(work);
            give_up_ns = ferry_cli_now_ns() + DRAIN_NS;
        }
        if (work->canceled && ferry_cli_now_ns() >= give_up_ns) {
            work->loop->stuck = true;
            return;
        }
        wait_and_harvest(work);
        submit_ready(work);
    }
}

static bool make_slots(struct work *work)
{
    const struct ferry_bench_gate *gate = work->gate;
    uint32_t scatter = gate->traffic.scatter;
    uint64_t stride;

    work->chunk_max = scatter > 0 && gate->batch > LISTS_MAX ? LISTS_MAX : gate->batch;
    work->chunk = work->chunk_max;
    work->pieces = calloc((size_t)gate->batch * scatter + 1, sizeof(*work->pieces));
    work->slots = calloc(gate->batch, sizeof(*work->slots));
    work->ready = calloc(gate->batch, sizeof(*work->ready));
    work->requests = calloc(gate->batch, sizeof(*work->requests));
    if (work->slots == NULL || work->ready == NULL || work->requests == NULL ||
        work->pieces == NULL || !ferry_bench_slot_stride(&gate->traffic, &stride))
        return false;
    for (uint32_t i = 0; i < gate->batch; i++) {
        struct ferry_bench_slot *slot = &work->slots[i];
        struct ferry_request request = FERRY_REQUEST_INIT;

        slot->remote = work->loop->remote + i * ferry_bench_span(&gate->traffic);
        slot->pieces = work->pieces + (size_t)i * scatter;
        slot->stream = (uint64_t)work->loop->index * gate->batch + i;
        ferry_bench_slot_init(slot, &gate->traffic, work->loop->memory + i * stride);
        request.segment = work->loop->peer->segment;
        request.transport = gate->transport;
        request.priority = FERRY_PRIORITY_MEDIUM;
        work->requests[i] = request;
        push_ready(work, i);
    }
    return true;
}

static bool make_rounds(struct work *work)
{
    uint32_t batch = work->gate->batch;
    uint64_t capacity = (uint64_t)batch * ROUND_FACTOR;

    if (capacity < ROUND_TASKS)
        capacity = ROUND_TASKS;
    if (capacity > FERRY_BATCH_CAPACITY_MAX)
        capacity = FERRY_BATCH_CAPACITY_MAX;
    /* One at a time needs no room for a second one, and is emptied at each end anyway. */
    work->capacity = batch == 1 ? 1 : (uint32_t)capacity;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct round *round = &work->rounds[i];
        enum ferry_status status;

        round->slots = calloc(work->capacity, sizeof(*round->slots));
        if (round->slots == NULL)
            return false;
        status = ferry_batch_create(work->gate->engine, work->capacity, &round->batch);
        if (status != FERRY_OK) {
            free(round->slots);
            fail_call(work, "batch", status);
            return true;
        }
        work->round_count++;
    }
    return true;
}

static void give_back(struct work *work)
{
    for (uint32_t i = 0; i < work->round_count; i++) {
        /* A batch with open requests stays; closing the engine ends them. */
        ferry_batch_destroy(work->gate->engine, work->rounds[i].batch);
        free(work->rounds[i].slots);
    }
    free(work->slots);
    free(work->ready);
    free(work->requests);
    free(work->pieces);
}

/* The meters read what each thread used as long as it exists: it ends when they have. */
static void stay_for_meters(struct ferry_bench_gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    while (atomic_load(&gate->phase) != FERRY_BENCH_STOP)
        pthread_cond_wait(&gate->changed, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

void *ferry_bench_loop_main(void *arg)
{
    struct ferry_bench_loop *loop = arg;
    struct work work = {.loop = loop, .gate = loop->gate};
    char name[16];

    snprintf(name, sizeof(name), "bench-%" PRIu32, loop->index);
    prctl(PR_SET_NAME, name);
    if (!make_slots(&work) || !make_rounds(&work))
        fail(&work, "out of memory");
    else
        go_round(&work);
    stay_for_meters(work.gate);
    give_back(&work);
    return NULL;
}
