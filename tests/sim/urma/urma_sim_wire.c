/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the simulated fabric: posting, the moving of bytes at some instant between post and
 * completion, completions in order per jetty, what an error does to the rest, markers and flush.
 * Any thread, under the fabric's lock.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/checked.h"
#include "sim/urma/urma_sim_state.h"

#define LATE_NS_MAX  (80 * FERRY_NS_PER_MS)
#define DRAIN_NS_MAX (2 * FERRY_NS_PER_MS)
#define DELAY_NS     (40 * FERRY_NS_PER_MS)

static struct sim_device *device_of(struct sim_state *state, uint32_t ctx)
{
    return &state->devices[state->contexts[ctx - 1].device];
}

static bool ports_up(const struct sim_device *device)
{
    bool up = device->port_count == 0;

    for (uint32_t i = 0; i < device->port_count; i++)
        up |= device->port_state[i] == 4 || device->port_state[i] == 5;
    return up && !device->fatal;
}

/* The device that an EID belongs to now, or NULL. */
static struct sim_device *device_by_eid(struct sim_state *state, const uint8_t *eid)
{
    for (uint32_t i = 0; i < state->device_count; i++) {
        for (uint32_t k = 0; k < USIM_EIDS_MAX; k++) {
            if (state->devices[i].eid_valid[k] && memcmp(state->devices[i].eid[k], eid, 16) == 0)
                return &state->devices[i];
        }
    }
    return NULL;
}

void sim_cr_push(struct usim *sim, uint32_t cq_index, const struct sim_cr *cr)
{
    struct sim_cq *cq = &sim->state->queues[cq_index];
    uint64_t one = 1;

    if (cq->broken)
        return;
    if (cq->tail - cq->head >= cq->depth || sim_fires(sim->state, USIM_CQ_OVERFLOW)) {
        cq->broken = true;
        sim_event_push(sim, cq->ctx - 1, SIM_EVENT_JFC_ERR, cq_index + 1);
        return;
    }
    cq->ring[cq->tail++ % SIM_DEPTH_MAX] = *cr;
    if (cq->armed) {
        cq->armed = false;
        cq->signals++;
        if (sim->cq_fd[cq_index] > 0 &&
            write(sim->cq_fd[cq_index], &one, sizeof(one)) != sizeof(one))
            sim_violation(sim->state, "a completion descriptor does not take a wake-up");
    }
}

/* ---- requests ---- */

static struct sim_request *request_new(struct sim_state *state, uint32_t *index_out)
{
    uint32_t index = state->request_free;

    if (index != 0) {
        state->request_free = state->requests[index - 1].next;
    } else if (state->request_top < SIM_REQUESTS_MAX) {
        index = ++state->request_top;
    } else {
        return NULL;
    }
    *index_out = index;
    return &state->requests[index - 1];
}

static void request_free(struct sim_state *state, uint32_t index)
{
    struct sim_request *request = &state->requests[index - 1];

    state->segments[request->seg - 1].users--;
    state->imports[request->import - 1].users--;
    request->used = false;
    request->next = state->request_free;
    state->request_free = index;
}

static void pop_head(struct sim_state *state, struct sim_jetty *jetty)
{
    uint32_t index = jetty->head;

    jetty->head = state->requests[index - 1].next;
    if (jetty->head == 0)
        jetty->tail = 0;
    request_free(state, index);
}

void sim_requests_drop(struct usim *sim, uint32_t jetty_index)
{
    struct sim_jetty *jetty = &sim->state->jetties[jetty_index];

    while (jetty->head != 0)
        pop_head(sim->state, jetty);
    jetty->depth_used = 0;
}

/* ---- moving bytes ---- */

static bool copy_between(struct usim *sim, const struct sim_seg *remote, uint64_t remote_addr,
                         uint64_t local_addr, uint64_t length, bool write)
{
    void *local = (void *)(uintptr_t)local_addr;
    struct iovec mine = {local, length};
    struct iovec theirs = {(void *)(uintptr_t)remote_addr, length};

    sim->state->moves++;
    sim->state->moved_bytes += length;
    if (remote->pid == sim->pid) {
        if (write)
            memmove(theirs.iov_base, local, length);
        else
            memmove(local, theirs.iov_base, length);
        return true;
    }
    return (write ? process_vm_writev(remote->pid, &mine, 1, &theirs, 1, 0)
                  : process_vm_readv(remote->pid, &mine, 1, &theirs, 1, 0)) == (ssize_t)length;
}

/* The remote jetty that a jetty is bound to, if it is there, ready and bound back; else NULL. */
static struct sim_jetty *remote_end(struct usim *sim, const struct sim_jetty *jetty,
                                    uint32_t jetty_index)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *remote;

    if (jetty->peer_id == 0 || jetty->peer_id > state->jetty_top)
        return NULL;
    remote = &state->jetties[jetty->peer_id - 1];
    if (!remote->used || remote->state != SIM_READY || !remote->bound ||
        sim_dead(state, remote->ctx - 1) || remote->peer_id != jetty_index + 1 ||
        memcmp(state->contexts[remote->ctx - 1].eid, jetty->peer_eid, 16) != 0 ||
        memcmp(remote->peer_eid, state->contexts[jetty->ctx - 1].eid, 16) != 0)
        return NULL;
    return remote;
}

/* The range that a request names at the other side, or NULL with why in *status. */
static struct sim_seg *remote_range(struct usim *sim, const struct sim_request *request,
                                    int32_t *status)
{
    struct sim_state *state = sim->state;
    const struct sim_import *import = &state->imports[request->import - 1];
    struct sim_seg *seg;
    uint32_t need = request->write ? FERRY_URMA_ACCESS_WRITE : FERRY_URMA_ACCESS_READ;

    *status = SIM_CR_REM_ACCESS_ABORT;
    if (import->token_id == 0 || import->token_id > state->seg_top) {
        state->fired[USIM_STALE_SEGMENT]++;
        return NULL;
    }
    seg = &state->segments[import->token_id - 1];
    if (!seg->used || seg->draining ||
        memcmp(state->contexts[seg->ctx - 1].eid, import->eid, 16) != 0) {
        state->fired[USIM_STALE_SEGMENT]++;
        return NULL;
    }
    if (seg->token != import->token) {
        state->fired[USIM_TOKEN_MISMATCH]++;
        return NULL;
    }
    if (!ferry_range_within(request->remote, request->length, seg->addr, seg->length)) {
        state->fired[USIM_RANGE_ERROR]++;
        return NULL;
    }
    if ((seg->access & need) == 0) {
        state->fired[USIM_ACCESS_DENIED]++;
        return NULL;
    }
    return seg;
}

static int32_t random_refusal(struct sim_state *state)
{
    if (sim_fires(state, USIM_LOC_OPERATION))
        return SIM_CR_LOC_OPERATION;
    if (sim_fires(state, USIM_LOC_ACCESS))
        return SIM_CR_LOC_ACCESS;
    if (sim_fires(state, USIM_REM_OPERATION))
        return SIM_CR_REM_OPERATION;
    if (sim_fires(state, USIM_DATA_POISON))
        return SIM_CR_DATA_POISON;
    return 0;
}

/* WRITE bytes that land although nobody was told so, unless the remote end is fenced before. */
static void send_late(struct usim *sim, const struct sim_request *request,
                      const struct sim_jetty *remote, uint64_t now_ns)
{
    struct sim_state *state = sim->state;
    const struct sim_import *import = &state->imports[request->import - 1];

    for (uint32_t i = 0; i < SIM_LATE_MAX && !sim->shared; i++) {
        struct sim_packet *packet = &state->packets[i];

        if (packet->used)
            continue;
        *packet = (struct sim_packet){
            .used = true,
            .jetty = (uint32_t)(remote - state->jetties),
            .incarnation = remote->incarnation,
            .at_ns = now_ns + sim_below(state, LATE_NS_MAX),
            .to = request->remote,
            .length = request->length,
            .token = import->token,
            .token_id = import->token_id,
            .data = malloc(request->length),
        };
        memcpy(packet->data, (void *)(uintptr_t)request->local, request->length);
        state->extras++;
        return;
    }
}

static void land(struct usim *sim, struct sim_packet *packet)
{
    struct sim_state *state = sim->state;
    const struct sim_jetty *remote = &state->jetties[packet->jetty];
    const struct sim_seg *seg = &state->segments[packet->token_id - 1];

    if (remote->used && remote->incarnation == packet->incarnation && remote->state == SIM_READY &&
        !sim_dead(state, remote->ctx - 1) && seg->used && !seg->draining &&
        seg->token == packet->token) {
        memcpy((void *)(uintptr_t)packet->to, packet->data, packet->length);
        state->moves++;
    }
    free(packet->data);
    packet->data = NULL;
    packet->used = false;
    state->extras--;
}

static uint64_t error_timeout_ns(const struct sim_jetty *jetty)
{
    return (4096ULL << jetty->err_timeout) / 1000 * 1000;
}

/* A request's instant has come: decide what becomes of it, and move its bytes if it succeeds. */
static void carry_out(struct usim *sim, uint32_t jetty_index, struct sim_request *request,
                      uint64_t now_ns)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_index];
    struct sim_jetty *remote = remote_end(sim, jetty, jetty_index);
    const struct sim_device *far = device_by_eid(state, jetty->peer_eid);
    struct sim_seg *seg;

    request->stage = SIM_MOVED;
    request->status = random_refusal(state);
    if (request->status != 0)
        return;
    state->fired[USIM_NOT_BOUND] += remote == NULL;
    if (remote == NULL || far == NULL || !ports_up(far) ||
        !ports_up(device_of(state, jetty->ctx)) || sim_fires(state, USIM_ACK_TIMEOUT)) {
        request->status = SIM_CR_ACK_TIMEOUT;
        request->done_at_ns = now_ns + error_timeout_ns(jetty);
        return;
    }
    seg = remote_range(sim, request, &request->status);
    if (seg == NULL)
        return;
    if (request->write && sim_fires(state, USIM_LATE_WRITE)) {
        request->status = SIM_CR_ACK_TIMEOUT;
        request->done_at_ns = now_ns + error_timeout_ns(jetty);
        send_late(sim, request, remote, request->done_at_ns);
        return;
    }
    request->status = SIM_CR_SUCCESS;
    request->again = sim_fires(state, USIM_REPEAT_MOVE);
    if (!copy_between(sim, seg, request->remote, request->local, request->length, request->write)) {
        request->status = SIM_CR_ACK_TIMEOUT;
        request->done_at_ns = now_ns + error_timeout_ns(jetty);
    }
    if (sim_fires(state, USIM_POISON_STATUS))
        request->status = SIM_CR_UNHEARD_OF;
}

static void move_again(struct usim *sim, struct sim_request *request)
{
    int32_t status;
    struct sim_seg *seg = remote_range(sim, request, &status);

    request->again = false;
    if (seg != NULL)
        copy_between(sim, seg, request->remote, request->local, request->length, request->write);
}

/* ---- completions ---- */

static void add_late(struct usim *sim, uint32_t cq, const struct sim_cr *cr, uint64_t now_ns)
{
    struct sim_state *state = sim->state;

    for (uint32_t i = 0; i < SIM_LATE_MAX; i++) {
        if (state->late[i].used)
            continue;
        state->late[i] = (struct sim_late){
            .used = true,
            .cq = cq,
            .ctx_incarnation = state->contexts[state->queues[cq - 1].ctx - 1].uasid,
            .at_ns = now_ns + sim_below(state, LATE_NS_MAX),
            .cr = *cr,
        };
        state->extras++;
        return;
    }
}

static void complete_head(struct usim *sim, uint32_t jetty_index, uint64_t now_ns)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_index];
    struct sim_request *request = &state->requests[jetty->head - 1];
    struct sim_cr cr = {
        .status = request->status,
        .jetty_id = jetty_index + 1,
        .token = request->token,
        .bytes = request->status == SIM_CR_SUCCESS ? request->length : 0,
    };

    if (request->again)
        move_again(sim, request);
    if (sim_fires(state, USIM_DROP_COMPLETION)) {
        ; /* nobody will hear of it */
    } else if (sim_fires(state, USIM_LATE_COMPLETION)) {
        add_late(sim, jetty->cq, &cr, now_ns);
    } else {
        sim_cr_push(sim, jetty->cq - 1, &cr);
        if (sim_fires(state, USIM_DOUBLE_COMPLETION))
            sim_cr_push(sim, jetty->cq - 1, &cr);
    }
    pop_head(state, jetty);
    /* Errors do not stop the queue at once; whether and when the jetty notices is a matter of luck.
     */
    if (cr.status != SIM_CR_SUCCESS && jetty->state == SIM_READY && sim_below(state, 2) == 0)
        sim_jetty_fails(sim, jetty_index);
    else if (jetty->state == SIM_READY && sim_fires(state, USIM_FLUSH_MIDDLE))
        sim_jetty_fails(sim, jetty_index);
}

/* Into the error state: decide for each request whether the hardware has it. */
static void begin_drain(struct usim *sim, uint32_t jetty_index)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_index];
    uint64_t now_ns = ferry_now_ns(sim->clock);
    bool software = false;

    jetty->state = SIM_ERROR;
    jetty->drain_at_ns = now_ns + 1 + sim_below(state, DRAIN_NS_MAX);
    jetty->marker_due = !sim_fires(state, USIM_MISSING_MARKER);
    if (sim_fires(state, USIM_LATE_MARKER))
        jetty->drain_at_ns += LATE_NS_MAX;
    for (uint32_t i = jetty->head; i != 0; i = state->requests[i - 1].next) {
        struct sim_request *request = &state->requests[i - 1];

        if (request->stage == SIM_MOVED) {
            if (sim_below(state, 3) == 0)
                request->status = SIM_CR_FLUSH; /* whether it was carried out is not said */
            if (request->done_at_ns > jetty->drain_at_ns)
                request->done_at_ns = jetty->drain_at_ns;
            continue;
        }
        software = software || sim_below(state, 2) == 0;
        request->stage = software ? SIM_SOFTWARE : SIM_MOVED;
        request->status = software && sim_below(state, 2) == 0 ? SIM_CR_UNHANDLED : SIM_CR_FLUSH;
        request->done_at_ns = jetty->drain_at_ns;
    }
}

void sim_jetty_fails(struct usim *sim, uint32_t jetty_index)
{
    struct sim_jetty *jetty = &sim->state->jetties[jetty_index];

    if (jetty->state != SIM_READY)
        return;
    begin_drain(sim, jetty_index);
    if (!sim_fires(sim->state, USIM_NO_EVENT))
        sim_event_push(sim, jetty->ctx - 1, SIM_EVENT_JETTY_ERR, jetty_index + 1);
}

static void send_marker(struct usim *sim, uint32_t jetty_index)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_index];
    /* What is in memory where a token would be: somebody else's, still in use. */
    struct sim_cr cr = {.status = SIM_CR_FLUSH_DONE, .jetty_id = jetty_index + 1, .token = 1};

    for (uint32_t i = 0; i < state->jetty_top; i++) {
        if (state->jetties[i].used && state->jetties[i].head != 0 && i != jetty_index)
            cr.token = state->requests[state->jetties[i].head - 1].token;
    }
    jetty->marker_sent = true;
    sim_cr_push(sim, jetty->cq - 1, &cr);
    if (sim_fires(state, USIM_DOUBLE_MARKER))
        sim_cr_push(sim, jetty->cq - 1, &cr);
}

static void run_jetty(struct usim *sim, uint32_t jetty_index, uint64_t now_ns)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_index];

    if (device_of(state, jetty->ctx)->fatal)
        return;
    for (uint32_t i = jetty->head; i != 0 && jetty->state == SIM_READY;
         i = state->requests[i - 1].next) {
        struct sim_request *request = &state->requests[i - 1];

        if (request->move_at_ns > now_ns)
            break;
        if (request->stage == SIM_QUEUED)
            carry_out(sim, jetty_index, request, now_ns);
    }
    if (jetty->state == SIM_ERROR && jetty->marker_due && !jetty->marker_sent && jetty->head != 0 &&
        sim_fires(state, USIM_EARLY_MARKER))
        send_marker(sim, jetty_index);
    while (jetty->head != 0 && state->requests[jetty->head - 1].stage == SIM_MOVED &&
           state->requests[jetty->head - 1].done_at_ns <= now_ns)
        complete_head(sim, jetty_index, now_ns);
    if (jetty->state == SIM_ERROR && jetty->marker_due && !jetty->marker_sent &&
        jetty->drain_at_ns <= now_ns &&
        (jetty->head == 0 || state->requests[jetty->head - 1].stage == SIM_SOFTWARE))
        send_marker(sim, jetty_index);
}

static void run_extras(struct usim *sim, uint64_t now_ns)
{
    struct sim_state *state = sim->state;

    for (uint32_t i = 0; i < SIM_LATE_MAX; i++) {
        struct sim_late *late = &state->late[i];
        const struct sim_cq *cq;

        if (state->packets[i].used && state->packets[i].at_ns <= now_ns && !sim->shared)
            land(sim, &state->packets[i]);
        if (!late->used || late->at_ns > now_ns)
            continue;
        late->used = false;
        state->extras--;
        cq = &state->queues[late->cq - 1];
        if (cq->used && state->contexts[cq->ctx - 1].uasid == late->ctx_incarnation &&
            cq->tail - cq->head < cq->depth)
            sim_cr_push(sim, late->cq - 1, &late->cr);
    }
}

void sim_run(struct usim *sim)
{
    struct sim_state *state = sim->state;
    uint64_t now_ns = ferry_now_ns(sim->clock);

    for (uint32_t i = 0; i < state->jetty_top; i++) {
        const struct sim_jetty *jetty = &state->jetties[i];

        if (!jetty->used || (jetty->head == 0 && jetty->state != SIM_ERROR) ||
            sim_dead(state, jetty->ctx - 1))
            continue;
        /* In a shared fabric each process moves for itself. */
        if (sim->shared && sim->ctx_fd[jetty->ctx - 1] == 0)
            continue;
        run_jetty(sim, i, now_ns);
    }
    if (state->extras > 0)
        run_extras(sim, now_ns);
}

uint64_t usim_next_ns(struct usim *sim)
{
    struct sim_state *state = sim->state;
    uint64_t next = FERRY_NEVER_NS;

    usim_lock(sim);
    for (uint32_t i = 0; i < state->jetty_top; i++) {
        const struct sim_jetty *jetty = &state->jetties[i];
        uint64_t at = FERRY_NEVER_NS;

        if (!jetty->used || sim_dead(state, jetty->ctx - 1) || device_of(state, jetty->ctx)->fatal)
            continue;
        if (jetty->head != 0) {
            const struct sim_request *head = &state->requests[jetty->head - 1];

            if (head->stage == SIM_QUEUED)
                at = head->move_at_ns;
            else if (head->stage == SIM_MOVED)
                at = head->done_at_ns;
        }
        if (jetty->state == SIM_ERROR && jetty->marker_due && !jetty->marker_sent &&
            jetty->drain_at_ns < at)
            at = jetty->drain_at_ns;
        if (at < next)
            next = at;
    }
    for (uint32_t i = 0; i < SIM_LATE_MAX && state->extras > 0; i++) {
        if (state->late[i].used && state->late[i].at_ns < next)
            next = state->late[i].at_ns;
        if (state->packets[i].used && state->packets[i].at_ns < next)
            next = state->packets[i].at_ns;
    }
    usim_unlock(sim);
    return next;
}

/* ---- calls ---- */

static void schedule(struct usim *sim, struct sim_jetty *jetty, struct sim_request *request)
{
    struct sim_state *state = sim->state;
    struct sim_device *device = device_of(state, jetty->ctx);
    uint64_t now_ns = ferry_now_ns(sim->clock);
    uint64_t begin = device->free_at_ns > now_ns ? device->free_at_ns : now_ns;
    uint64_t busy = device->bytes_per_s == 0
                        ? 0
                        : request->length * FERRY_NS_PER_S / device->bytes_per_s + 1;
    uint64_t end = begin + busy + 2 * device->latency_ns + sim_below(state, device->jitter_ns + 1);

    device->free_at_ns = begin + busy;
    if (sim_fires(state, USIM_ELSEWHERE_DELAY))
        end += DELAY_NS;
    /* In order per jetty. */
    if (end < jetty->last_done_ns)
        end = jetty->last_done_ns;
    request->done_at_ns = end;
    request->move_at_ns = begin + sim_below(state, end - begin + 1);
    if (request->move_at_ns < now_ns)
        request->move_at_ns = now_ns;
    if (jetty->state == SIM_READY)
        jetty->last_done_ns = end;
}

static int post_one(struct usim *sim, uint32_t jetty_handle, const struct sim_post *post)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *jetty = &state->jetties[jetty_handle - 1];
    struct sim_request *request;
    uint32_t index;

    if (post->length == 0 || post->seg == 0 || post->import == 0 ||
        post->length > device_of(state, jetty->ctx)->request_bytes_max)
        return SIM_EINVAL;
    if (!ferry_range_within(post->local, post->length, state->segments[post->seg - 1].addr,
                            state->segments[post->seg - 1].length)) {
        sim_violation(state, "a request leaves its local range");
        return SIM_EINVAL;
    }
    if (!state->segments[post->seg - 1].used || !state->imports[post->import - 1].used ||
        state->segments[post->seg - 1].ctx != jetty->ctx ||
        state->imports[post->import - 1].ctx != jetty->ctx)
        sim_violation(state, "a request names a range that is gone, or of another context");
    if (jetty->depth_used >= jetty->depth || sim_fires(state, USIM_POST_FULL))
        return SIM_ENOMEM;
    request = request_new(state, &index);
    if (request == NULL)
        return SIM_ENOMEM;
    *request = (struct sim_request){
        .used = true,
        .jetty = jetty_handle,
        .seg = post->seg,
        .import = post->import,
        .length = post->length,
        .write = post->write,
        .token = post->token,
        .local = post->local,
        .remote = post->remote,
    };
    state->segments[post->seg - 1].users++;
    state->imports[post->import - 1].users++;
    schedule(sim, jetty, request);
    if (jetty->state == SIM_ERROR) {
        state->posts_in_error++;
        request->stage = SIM_SOFTWARE;
        request->status = SIM_CR_UNHANDLED;
    }
    if (jetty->tail != 0)
        state->requests[jetty->tail - 1].next = index;
    else
        jetty->head = index;
    jetty->tail = index;
    jetty->depth_used++;
    state->posts++;
    return 0;
}

int usim_post(struct usim *sim, uint32_t jetty, const struct sim_post *posts, uint32_t count,
              uint32_t *accepted_out, bool *known_out)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    uint32_t stop = count;
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    *accepted_out = 0;
    *known_out = true;
    if (!j->bound && !sim_dead(state, j->ctx - 1))
        sim_violation(state, "a post to a jetty that is not bound");
    if (sim_dead(state, j->ctx - 1)) {
        usim_unlock(sim);
        return SIM_FAIL;
    }
    if (count > 1 && sim_fires(state, USIM_POST_PREFIX)) {
        stop = 1 + (uint32_t)sim_below(state, count - 1);
        rc = SIM_EAGAIN;
    } else if (sim_fires(state, USIM_POST_UNKNOWN)) {
        stop = (uint32_t)sim_below(state, count + 1);
        rc = SIM_FAIL;
        *known_out = false;
    }
    for (uint32_t i = 0; i < stop; i++) {
        int one = post_one(sim, jetty, &posts[i]);

        if (one != 0) {
            rc = rc == SIM_FAIL ? rc : one;
            break;
        }
        ++*accepted_out;
    }
    usim_unlock(sim);
    return rc;
}

int usim_poll(struct usim *sim, uint32_t cq, struct sim_cr *out, uint32_t capacity,
              uint32_t *saved_out)
{
    struct sim_state *state = sim->state;
    struct sim_cq *q = &state->queues[cq - 1];
    int count = 0;
    bool lost;

    usim_lock(sim);
    sim_run(sim);
    lost = q->head != q->tail && sim_fires(state, USIM_POLL_NEGATIVE);
    while (!sim_dead(state, q->ctx - 1) && q->head != q->tail && (uint32_t)count < capacity) {
        const struct sim_cr *cr = &q->ring[q->head++ % SIM_DEPTH_MAX];
        struct sim_jetty *jetty = &state->jetties[cr->jetty_id - 1];

        if (cr->status != SIM_CR_FLUSH_DONE && jetty->used && jetty->depth_used > 0)
            jetty->depth_used--;
        /* The corrupt entry itself is lost, and with it how many were read before. */
        if (lost && sim_below(state, 2) == 0)
            break;
        out[count++] = *cr;
    }
    *saved_out = (uint32_t)count;
    usim_unlock(sim);
    return lost ? -1 : count;
}

int usim_jetty_error(struct usim *sim, uint32_t jetty)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    int rc = 0;

    usim_lock(sim);
    sim_run(sim);
    if (device_of(state, j->ctx)->fatal || sim_dead(state, j->ctx - 1))
        rc = SIM_EIO;
    else if (j->state == SIM_READY && sim_fires(state, USIM_MODIFY_FAIL))
        rc = SIM_FAIL;
    else if (j->state == SIM_READY)
        begin_drain(sim, jetty - 1);
    usim_unlock(sim);
    return rc;
}

int usim_flush(struct usim *sim, uint32_t jetty, struct sim_cr *out, uint32_t capacity)
{
    struct sim_state *state = sim->state;
    struct sim_jetty *j = &state->jetties[jetty - 1];
    int count = 0;

    usim_lock(sim);
    sim_run(sim);
    if (!j->marker_sent)
        sim_violation(state, "flush before the marker was there");
    while (j->head != 0 && (uint32_t)count < capacity &&
           state->requests[j->head - 1].stage == SIM_SOFTWARE) {
        const struct sim_request *request = &state->requests[j->head - 1];

        out[count++] = (struct sim_cr){
            .status = request->status, .jetty_id = jetty, .token = request->token};
        if (j->depth_used > 0)
            j->depth_used--;
        pop_head(state, j);
    }
    usim_unlock(sim);
    return count;
}

int usim_arm(struct usim *sim, uint32_t cq)
{
    usim_lock(sim);
    sim->state->queues[cq - 1].armed = true;
    usim_unlock(sim);
    return 0;
}

uint32_t usim_take_signals(struct usim *sim, uint32_t cq)
{
    struct sim_cq *q = &sim->state->queues[cq - 1];
    uint32_t signals;
    uint64_t count;

    usim_lock(sim);
    sim_run(sim);
    signals = q->signals;
    q->signals = 0;
    if (read(sim->cq_fd[cq - 1], &count, sizeof(count)) < 0)
        count = 0;
    usim_unlock(sim);
    return signals;
}
