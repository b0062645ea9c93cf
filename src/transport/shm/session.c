/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that reach us: they are let in by their user, told where the board is and given a page of
 * slots, and later what they want to map. Runs on the meeting thread under the mutex; nothing here
 * waits for a peer: an answer that finds no room on the socket is made again when there is.
 *
 *   accept --same user--> HELLO --this life--> welcomed { MAP }* --hangs up--> slots empty? -->
 * freed \ other user: REFUSED               \ dies: whatever its slots say --> freed
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "transport/shm/internal.h"

/* Says why not, if the socket takes it at once. */
static void refuse(int fd, const char *why)
{
    struct shm_message message = {.kind = SHM_REFUSED, .fds = {-1, -1}};

    snprintf(message.text, sizeof(message.text), "%s", why);
    if (ferry_shm_message_send(fd, &message) != FERRY_OK)
        ferry_debug("shm", "a peer is gone before it was refused");
}

static struct shm_session *session_create(struct shm_peer *peer)
{
    struct shm_session *session = calloc(1, sizeof(*session));
    void *map = NULL;

    if (session == NULL)
        return NULL;
    session->peer = *peer;
    session->slots_fd = -1;
    if (ferry_shm_pages_create("ferry-shm-slots", sizeof(*session->slots), &map,
                               &session->slots_fd) != FERRY_OK) {
        free(session);
        return NULL;
    }
    session->slots = map;
    return session;
}

void ferry_shm_session_accept(struct shm_transport *transport)
{
    struct shm_peer peer = {.fd = -1, .pidfd = -1};
    struct shm_session *session = NULL;
    const char *why = "out of memory";

    peer.fd = accept4(transport->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer.fd < 0)
        return;
    if (ferry_shm_peer_identify(&peer) != FERRY_OK)
        why = ferry_last_error_text();
    else if (transport->session_count >= transport->settings.peers_max)
        why = "as many peers as transports.shm.peers_max are here already";
    else
        session = session_create(&peer);
    if (session == NULL) {
        atomic_fetch_add(&transport->sessions_refused, 1);
        ferry_warn("shm", "a peer is refused: %s", why);
        refuse(peer.fd, why);
        ferry_shm_peer_close(&peer);
        return;
    }
    ferry_list_push_back(&transport->sessions, &session->link);
    transport->session_count++;
}

void ferry_shm_session_free(struct shm_transport *transport, struct shm_session *session)
{
    ferry_list_remove(&session->link);
    transport->session_count--;
    ferry_shm_peer_close(&session->peer);
    munmap(session->slots, sizeof(*session->slots));
    close(session->slots_fd);
    free(session);
}

static void answer_hello(struct shm_transport *transport, struct shm_session *session,
                         struct shm_message *reply)
{
    *reply = (struct shm_message){.kind = SHM_WELCOME,
                                  .cookie_addr = (uintptr_t)transport->cookie,
                                  .fds = {transport->board_fd, session->slots_fd}};
    memcpy(reply->cookie, transport->cookie, sizeof(reply->cookie));
}

/* No length: the buffer is gone. No descriptor: it is not one that can be mapped. */
static void answer_map(struct shm_transport *transport, const struct shm_message *question,
                       struct shm_message *reply)
{
    const struct shm_buffer *buffer = ferry_shm_buffer_find(transport, question->id);

    *reply = (struct shm_message){.kind = SHM_MAPPED, .id = question->id, .fds = {-1, -1}};
    if (buffer == NULL || buffer->index != question->index)
        return;
    reply->addr = buffer->addr;
    reply->length = buffer->length;
    reply->writable = buffer->writable;
    reply->fds[0] = buffer->fd;
}

/* Answer what was asked, now or when the socket has room. False: the peer is gone. */
static bool answer(struct shm_transport *transport, struct shm_session *session)
{
    struct shm_message reply;
    enum ferry_status status;

    if (session->question.kind == SHM_HELLO)
        answer_hello(transport, session, &reply);
    else
        answer_map(transport, &session->question, &reply);
    status = ferry_shm_message_send(session->peer.fd, &reply);
    session->pending = status == FERRY_ERR_QUEUE_FULL;
    if (status == FERRY_OK && session->question.kind == SHM_HELLO)
        session->welcomed = true;
    return status == FERRY_OK || session->pending;
}

static bool question_good(const struct shm_transport *transport, const struct shm_session *session)
{
    const struct shm_message *question = &session->question;

    if (question->kind == SHM_HELLO)
        return !session->welcomed &&
               memcmp(question->to, transport->incarnation, sizeof(question->to)) == 0;
    return question->kind == SHM_MAP && session->welcomed;
}

bool ferry_shm_session_input(struct shm_transport *transport, struct shm_session *session)
{
    while (!session->pending) {
        enum ferry_status status = ferry_shm_message_receive(session->peer.fd, &session->question);

        if (status == FERRY_ERR_QUEUE_FULL)
            return true;
        if (status != FERRY_OK)
            return ferry_shm_session_died(transport, session);
        /* Nobody sends us descriptors. */
        ferry_shm_message_close_fds(&session->question);
        if (!question_good(transport, session)) {
            refuse(session->peer.fd, "a message that does not belong here, or for another engine");
            return ferry_shm_session_died(transport, session);
        }
        if (!answer(transport, session))
            return ferry_shm_session_died(transport, session);
    }
    return true;
}

bool ferry_shm_session_output(struct shm_transport *transport, struct shm_session *session)
{
    struct shm_message news = {.kind = SHM_CHANGED, .fds = {-1, -1}};
    enum ferry_status status;

    if (session->pending && !answer(transport, session))
        return ferry_shm_session_died(transport, session);
    if (!session->changed || !session->welcomed || session->pending)
        return true;
    status = ferry_shm_message_send(session->peer.fd, &news);
    if (status == FERRY_OK)
        session->changed = false;
    else if (status != FERRY_ERR_QUEUE_FULL)
        return ferry_shm_session_died(transport, session);
    return true;
}

/*
 * It hung up, or its process is gone. Only the latter ends what its slots say: a process that lives
 * may be in the middle of a copy. Where its process is not visible the socket is all there is: the
 * kernel closes it after the last thread has left the memory.
 */
bool ferry_shm_session_died(struct shm_transport *transport, struct shm_session *session)
{
    bool dead = ferry_shm_peer_dead(&session->peer);

    if (session->peer.fd >= 0)
        close(session->peer.fd);
    session->peer.fd = -1;
    if (dead || session->peer.pidfd < 0) {
        if (ferry_shm_slots_hold(session->slots, 0)) {
            atomic_fetch_add(&transport->sessions_died, 1);
            ferry_info("shm", "a peer died in the middle of a copy pid=%d", (int)session->peer.pid);
        }
        return false;
    }
    return ferry_shm_slots_hold(session->slots, 0);
}

bool ferry_shm_sessions_hold(struct shm_transport *transport, uint64_t id)
{
    for (struct ferry_list *l = transport->sessions.next; l != &transport->sessions; l = l->next) {
        if (ferry_shm_slots_hold(FERRY_CONTAINER_OF(l, struct shm_session, link)->slots, id))
            return true;
    }
    return false;
}
