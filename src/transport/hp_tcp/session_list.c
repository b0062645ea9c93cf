/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests with lists on the serving side: every range of a list is leased before a byte of any
 * moves, and held until the last byte has left or landed. On the holder of the worker's baton. The
 * memory for it comes with the first list of a session and stays; a ring that is full makes the
 * session read no further until answers have left.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "transport/hp_tcp/session.h"

static bool ring_has_room(struct hp_ranges *ranges, uint32_t count)
{
    if (ranges->lists == 0) {
        ranges->head = 0;
        ranges->tail = 0;
    }
    /* A list lies in one stretch: behind the newest, else from the beginning on. */
    if (ranges->lists == 0 || ranges->tail > ranges->head) {
        if (HP_RANGES_MAX - ranges->tail >= count)
            return true;
        if (ranges->head < count)
            return false;
        ranges->tail = 0;
        return true;
    }
    return ranges->head - ranges->tail >= count;
}

bool ferry_hp_session_list_room(struct hp_session *session, const struct ferry_frame *frame,
                                enum ferry_status *status_out)
{
    *status_out = FERRY_OK;
    if (session->ranges == NULL) {
        session->ranges = malloc(sizeof(*session->ranges));
        if (session->ranges == NULL) {
            *status_out = FERRY_ERR_NO_MEMORY;
            return false;
        }
        session->ranges->lists = 0;
    }
    return frame->type == FERRY_FRAME_WRITE || ring_has_room(session->ranges, frame->list.count);
}

static void release(struct ferry_lease *leases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ferry_lease_release(&leases[i]);
}

static bool revoked(const struct ferry_lease *leases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ferry_lease_revoked(&leases[i]))
            return true;
    }
    return false;
}

/* All or none. */
static enum ferry_status lease_all(struct hp_session *session, const struct ferry_frame *frame,
                                   struct ferry_xfer_piece *ranges, struct ferry_lease *leases)
{
    struct ferry_registry_reader *reader = &session->worker->reader;
    const struct ferry_lease *last = NULL;
    uint64_t offset = 0;

    if (atomic_load(&session->worker->transport->closing))
        return FERRY_ERR_PEER_CLOSING;
    for (uint32_t i = 0; i < frame->list.count; i++) {
        struct ferry_scatter entry = ferry_scatter_get(&frame->list, i);
        struct ferry_lease_request want = {
            .addr = entry.addr,
            .length = entry.length,
            .registration_id = entry.registration_id,
            .access = frame->type == FERRY_FRAME_READ ? FERRY_ACCESS_READ : FERRY_ACCESS_WRITE,
        };
        enum ferry_status status;

        ranges[i] = (struct ferry_xfer_piece){
            .local = (unsigned char *)(uintptr_t)entry.addr,
            .length = entry.length,
            .offset = offset,
        };
        leases[i] = (struct ferry_lease){0};
        offset += entry.length;
        if (last != NULL && ferry_lease_registration_id(last) == entry.registration_id &&
            ferry_lease_covers(last, entry.addr, entry.length))
            continue;
        status = ferry_lease_acquire(reader, &want, &leases[i]);
        if (status != FERRY_OK) {
            release(leases, i);
            return status;
        }
        last = &leases[i];
    }
    return FERRY_OK;
}

enum ferry_status ferry_hp_session_list_read(struct hp_session *session,
                                             const struct ferry_frame *frame, uint32_t *first_out)
{
    struct hp_ranges *ranges = session->ranges;
    uint32_t first = ranges->tail;
    enum ferry_status status = lease_all(session, frame, &ranges->out[first],
                                         &ranges->out_leases[first]);

    if (status != FERRY_OK)
        return status;
    ranges->tail = first + frame->list.count;
    ranges->lists++;
    *first_out = first;
    return FERRY_OK;
}

enum ferry_status ferry_hp_session_list_write(struct hp_session *session,
                                              const struct ferry_frame *frame)
{
    FERRY_ASSERT(!session->incoming.active);
    return lease_all(session, frame, session->ranges->in, session->ranges->in_leases);
}

void ferry_hp_session_list_sent(struct hp_session *session, struct hp_answer *answer)
{
    struct hp_ranges *ranges = session->ranges;

    if (answer->range_count == 0)
        return;
    release(&ranges->out_leases[answer->range_first], answer->range_count);
    FERRY_DASSERT(ranges->lists > 0);
    ranges->head = answer->range_first + answer->range_count;
    ranges->lists--;
    answer->range_count = 0;
    session->starved = false;
}

void ferry_hp_session_list_landed(struct hp_session *session, struct hp_incoming *incoming)
{
    if (incoming->range_count > 0)
        release(session->ranges->in_leases, incoming->range_count);
    incoming->range_count = 0;
}

bool ferry_hp_session_list_revoked(const struct hp_session *session, const struct hp_answer *answer)
{
    return answer->range_count > 0 &&
           revoked(&session->ranges->out_leases[answer->range_first], answer->range_count);
}

bool ferry_hp_session_body_revoked(const struct hp_session *session)
{
    return session->incoming.active && session->incoming.range_count > 0 &&
           revoked(session->ranges->in_leases, session->incoming.range_count);
}
