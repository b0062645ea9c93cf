/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table behind answers.h: records by session id in hashed lists, and the ended ones by age. A
 * full table forgets the oldest, whose initiator is the least likely to ask still; being asked
 * about what was forgotten is answered as unknown, which costs an initiator certainty but never a
 * second landing.
 */
#include "transport/hp_tcp/answers.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/compiler.h"

void ferry_hp_answers_init(struct hp_answers *answers, uint32_t entries_max, uint64_t keep_ns)
{
    memset(answers, 0, sizeof(*answers));
    answers->entries_max = entries_max;
    answers->keep_ns = keep_ns;
    pthread_mutex_init(&answers->mutex, NULL);
    for (uint32_t i = 0; i < HP_ANSWERS_BUCKETS; i++)
        ferry_list_init(&answers->buckets[i]);
    ferry_list_init(&answers->ended);
}

static uint32_t size_of(const struct hp_record *record)
{
    return 1 + record->count;
}

static void record_free(struct hp_record *record)
{
    free(record->ids);
    free(record);
}

static void forget(struct hp_answers *answers, struct hp_record *record)
{
    FERRY_ASSERT(record->ended);
    answers->entries -= size_of(record);
    atomic_store_explicit(&answers->kept, answers->entries, memory_order_relaxed);
    ferry_list_remove(&record->bucket_link);
    ferry_list_remove(&record->age_link);
    record_free(record);
}

static struct hp_record *oldest(struct hp_answers *answers)
{
    return FERRY_CONTAINER_OF(answers->ended.next, struct hp_record, age_link);
}

void ferry_hp_answers_fini(struct hp_answers *answers)
{
    if (answers->ended.next == NULL)
        return;
    while (!ferry_list_empty(&answers->ended))
        forget(answers, oldest(answers));
    for (uint32_t i = 0; i < HP_ANSWERS_BUCKETS; i++)
        FERRY_ASSERT(ferry_list_empty(&answers->buckets[i]));
    pthread_mutex_destroy(&answers->mutex);
}

/* Session ids are random, so their low bits are as good as a hash. */
static struct ferry_list *bucket_of(struct hp_answers *answers, uint64_t session_id)
{
    return &answers->buckets[session_id % HP_ANSWERS_BUCKETS];
}

static struct hp_record *find(struct hp_answers *answers, uint64_t session_id,
                              const uint8_t *initiator)
{
    struct ferry_list *bucket = bucket_of(answers, session_id);

    for (struct ferry_list *l = bucket->next; l != bucket; l = l->next) {
        struct hp_record *record = FERRY_CONTAINER_OF(l, struct hp_record, bucket_link);

        if (record->session_id == session_id &&
            memcmp(record->initiator, initiator, FERRY_INCARNATION_SIZE) == 0)
            return record;
    }
    return NULL;
}

struct hp_record *ferry_hp_answers_begin(struct hp_answers *answers, uint64_t session_id,
                                         const struct ferry_hello *hello)
{
    struct hp_record *record = calloc(1, sizeof(*record));

    if (record == NULL)
        return NULL;
    record->session_id = session_id;
    record->predecessor_id = hello->predecessor_session_id;
    memcpy(record->initiator, hello->incarnation, FERRY_INCARNATION_SIZE);
    ferry_list_init(&record->age_link);
    pthread_mutex_lock(&answers->mutex);
    ferry_list_push_back(bucket_of(answers, session_id), &record->bucket_link);
    pthread_mutex_unlock(&answers->mutex);
    return record;
}

/* ---- trimming ---- */

/*
 * The initiator will not ask about ids below its low-water mark. If it does all the same, the floor
 * says that nothing is certain there.
 */
static void trim(struct hp_answers *answers, struct hp_record *record)
{
    uint32_t kept = 0;

    if (record->low_water == 0)
        return;
    for (uint32_t i = 0; i < record->count; i++) {
        if (record->ids[i] >= record->low_water)
            record->ids[kept++] = record->ids[i];
    }
    answers->entries -= record->count - kept;
    atomic_store_explicit(&answers->kept, answers->entries, memory_order_relaxed);
    record->count = kept;
    if (record->floor < record->low_water - 1)
        record->floor = record->low_water - 1;
}

/* What came before the predecessor was settled before the predecessor carried its first request. */
static void forget_ancestors(struct hp_answers *answers, const struct hp_record *record)
{
    uint64_t low_water = record->low_water;
    struct hp_record *before = find(answers, record->predecessor_id, record->initiator);

    while (before != NULL && before->ended) {
        uint64_t next = before->predecessor_id;

        before->low_water = low_water > before->low_water ? low_water : before->low_water;
        trim(answers, before);
        if (before->count > 0)
            return;
        forget(answers, before);
        before = next != 0 ? find(answers, next, record->initiator) : NULL;
    }
}

/* Room for one more record of @need entries: first what is too old, then what is oldest. */
static bool make_room(struct hp_answers *answers, uint32_t need, uint64_t now_ns)
{
    while (!ferry_list_empty(&answers->ended) && oldest(answers)->forget_at_ns <= now_ns)
        forget(answers, oldest(answers));
    if (need > answers->entries_max)
        return false;
    while (answers->entries > answers->entries_max - need) {
        forget(answers, oldest(answers));
        atomic_fetch_add_explicit(&answers->crowded, 1, memory_order_relaxed);
    }
    return true;
}

/* ---- the end of a session ---- */

/* Copy what is remembered. False without memory. */
static bool take_ids(struct hp_record *record, const struct hp_applied *applied)
{
    uint32_t count = applied->count < HP_APPLIED_MAX ? applied->count : HP_APPLIED_MAX;

    record->floor = applied->floor;
    if (count == 0)
        return true;
    record->ids = malloc(count * sizeof(record->ids[0]));
    if (record->ids == NULL)
        return false;
    memcpy(record->ids, applied->ids, count * sizeof(record->ids[0]));
    record->count = count;
    return true;
}

bool ferry_hp_answers_end(struct hp_answers *answers, struct hp_record *record,
                          const struct hp_applied *applied, uint64_t now_ns)
{
    bool awaited;

    if (record == NULL)
        return false;
    pthread_mutex_lock(&answers->mutex);
    awaited = atomic_load(&record->doomed);
    if (take_ids(record, applied) && make_room(answers, size_of(record), now_ns)) {
        record->ended = true;
        record->forget_at_ns = ferry_deadline_ns(now_ns, answers->keep_ns);
        answers->entries += size_of(record);
        atomic_store_explicit(&answers->kept, answers->entries, memory_order_relaxed);
        ferry_list_push_back(&answers->ended, &record->age_link);
        trim(answers, record);
    } else {
        ferry_list_remove(&record->bucket_link);
        record_free(record);
        atomic_fetch_add_explicit(&answers->crowded, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&answers->mutex);
    return awaited;
}

/* ---- questions ---- */

enum hp_fence ferry_hp_answers_fence(struct hp_answers *answers, const struct ferry_hello *hello)
{
    enum hp_fence fence = HP_FENCE_DONE;
    struct hp_record *record;

    pthread_mutex_lock(&answers->mutex);
    record = find(answers, hello->predecessor_session_id, hello->incarnation);
    if (record != NULL) {
        if (hello->low_water_request_id > record->low_water)
            record->low_water = hello->low_water_request_id;
        if (record->ended) {
            trim(answers, record);
            forget_ancestors(answers, record);
        } else {
            if (!atomic_exchange(&record->doomed, true))
                atomic_fetch_add_explicit(&answers->fenced, 1, memory_order_relaxed);
            fence = HP_FENCE_WAIT;
        }
    }
    pthread_mutex_unlock(&answers->mutex);
    return fence;
}

static enum ferry_resolve_verdict verdict_on(const struct hp_record *record, uint64_t request_id)
{
    for (uint32_t i = 0; i < record->count; i++) {
        if (record->ids[i] == request_id)
            return FERRY_RESOLVE_APPLIED;
    }
    return request_id > record->floor ? FERRY_RESOLVE_NOT_APPLIED : FERRY_RESOLVE_UNKNOWN;
}

bool ferry_hp_answers_resolve(struct hp_answers *answers, const struct ferry_hello *hello,
                              const struct ferry_frame_list *asked, uint64_t now_ns,
                              uint8_t *wire_out)
{
    const struct hp_record *record;
    bool known;

    pthread_mutex_lock(&answers->mutex);
    record = find(answers, hello->predecessor_session_id, hello->incarnation);
    known = record != NULL && record->ended && record->forget_at_ns > now_ns;
    for (uint32_t i = 0; known && i < asked->count; i++) {
        struct ferry_resolved entry = {.request_id = ferry_resolve_get(asked, i)};

        entry.verdict = verdict_on(record, entry.request_id);
        ferry_resolved_put(wire_out, i, &entry);
    }
    if (known)
        atomic_fetch_add_explicit(&answers->answered, asked->count, memory_order_relaxed);
    pthread_mutex_unlock(&answers->mutex);
    return known;
}
