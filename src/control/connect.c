/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staggered non-blocking connects; see connect.h. Runs on its owner's thread and keeps no global
 * state. Must not block and must not look up names.
 */
#include "control/connect.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hostport.h"

void ferry_connect_init(struct ferry_connect *race, const struct ferry_resolution *to,
                        uint64_t limit_ns)
{
    FERRY_ASSERT(to->count > 0);
    FERRY_ASSERT(to->count <= FERRY_RESOLVE_ADDRS_MAX);
    *race = (struct ferry_connect){.to = *to, .limit_ns = limit_ns};
}

static void end_try(struct ferry_connect_try *try, enum ferry_connect_try_state state, int err)
{
    if (try->state == FERRY_TRY_RUNNING && state != FERRY_TRY_WON)
        close(try->fd);
    if (state != FERRY_TRY_WON)
        try->fd = -1;
    try->state = state;
    try->err = err;
}

void ferry_connect_fini(struct ferry_connect *race)
{
    for (uint32_t i = 0; i < race->to.count; i++) {
        struct ferry_connect_try *try = &race->tries[i];

        if (try->state == FERRY_TRY_RUNNING)
            end_try(try, FERRY_TRY_FAILED, ECANCELED);
        if (try->state == FERRY_TRY_WON && try->fd >= 0) {
            close(try->fd);
            try->fd = -1;
        }
    }
}

static void start_next(struct ferry_connect *race, uint64_t now_ns)
{
    const struct ferry_socket_address *to = &race->to.addrs[race->next];
    struct ferry_connect_try *try = &race->tries[race->next];
    int fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    race->next++;
    race->next_due_ns = now_ns + FERRY_CONNECT_STAGGER_NS;
    try->started_ns = now_ns;
    if (fd < 0) {
        end_try(try, FERRY_TRY_FAILED, errno);
        return;
    }
    try->fd = fd;
    try->state = FERRY_TRY_RUNNING;
    /* EINTR as well leaves the connect running (connect(2)). */
    if (connect(fd, (const struct sockaddr *)&to->addr, to->len) == 0)
        end_try(try, FERRY_TRY_WON, 0);
    else if (errno != EINPROGRESS && errno != EINTR)
        end_try(try, FERRY_TRY_FAILED, errno);
}

static void check_try(const struct ferry_connect *race, struct ferry_connect_try *try,
                      uint64_t now_ns)
{
    struct pollfd poll_fd = {.fd = try->fd, .events = POLLOUT};
    int err = 0;
    socklen_t len = sizeof(err);

    if (poll(&poll_fd, 1, 0) == 1) {
        if (getsockopt(try->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
            err = errno;
        end_try(try, err == 0 ? FERRY_TRY_WON : FERRY_TRY_FAILED, err);
    } else if (now_ns - try->started_ns >= race->limit_ns) {
        try->gave_up = true;
        end_try(try, FERRY_TRY_FAILED, ETIMEDOUT);
    }
}

static void lose_others(struct ferry_connect *race)
{
    for (uint32_t i = 0; i < race->to.count; i++) {
        if (race->tries[i].state == FERRY_TRY_RUNNING)
            end_try(&race->tries[i], FERRY_TRY_FAILED, ECANCELED);
    }
}

enum ferry_connect_state ferry_connect_step(struct ferry_connect *race, uint64_t now_ns)
{
    for (;;) {
        uint32_t running = 0;

        for (uint32_t i = 0; i < race->next; i++) {
            struct ferry_connect_try *try = &race->tries[i];

            if (try->state == FERRY_TRY_RUNNING)
                check_try(race, try, now_ns);
            if (try->state == FERRY_TRY_WON) {
                lose_others(race);
                return FERRY_CONNECT_DONE;
            }
            running += try->state == FERRY_TRY_RUNNING;
        }
        if (race->next == race->to.count)
            return running > 0 ? FERRY_CONNECT_RUNNING : FERRY_CONNECT_FAILED;
        if (running > 0 && now_ns < race->next_due_ns)
            return FERRY_CONNECT_RUNNING;
        start_next(race, now_ns);
    }
}

int ferry_connect_take(struct ferry_connect *race)
{
    for (uint32_t i = 0; i < race->next; i++) {
        if (race->tries[i].state == FERRY_TRY_WON) {
            int fd = race->tries[i].fd;

            race->tries[i].fd = -1;
            return fd;
        }
    }
    return -1;
}

uint64_t ferry_connect_due_ns(const struct ferry_connect *race)
{
    uint64_t due_ns = race->next < race->to.count ? race->next_due_ns : FERRY_NEVER_NS;

    for (uint32_t i = 0; i < race->next; i++) {
        const struct ferry_connect_try *try = &race->tries[i];
        uint64_t end_ns = ferry_deadline_ns(try->started_ns, race->limit_ns);

        if (try->state == FERRY_TRY_RUNNING && end_ns < due_ns)
            due_ns = end_ns;
    }
    return due_ns;
}

size_t ferry_connect_fds(const struct ferry_connect *race, int *fds_out)
{
    size_t count = 0;

    for (uint32_t i = 0; i < race->next; i++) {
        if (race->tries[i].state == FERRY_TRY_RUNNING)
            fds_out[count++] = race->tries[i].fd;
    }
    return count;
}

static void add_place(const struct ferry_socket_address *address, struct ferry_text *text)
{
    struct ferry_hostport place;
    char buf[FERRY_HOSTPORT_SIZE];

    if (ferry_hostport_of_sockaddr((const struct sockaddr *)&address->addr, &place) != FERRY_OK) {
        ferry_text_add(text, "?");
        return;
    }
    ferry_hostport_format(&place, buf, sizeof(buf));
    ferry_text_add(text, buf);
}

void ferry_connect_describe(const struct ferry_connect *race, struct ferry_text *text)
{
    for (uint32_t i = 0; i < race->to.count; i++) {
        const struct ferry_connect_try *try = &race->tries[i];
        const char *reason = strerrordesc_np(try->err);

        ferry_text_add(text, i > 0 ? ", " : "");
        add_place(&race->to.addrs[i], text);
        if (try->state == FERRY_TRY_WAITING)
            ferry_text_add(text, ": not tried");
        else if (try->state == FERRY_TRY_RUNNING || try->gave_up)
            ferry_text_add(text, ": no answer");
        else
            ferry_text_addf(text, ": %s (errno %d)", reason != NULL ? reason : "unknown error",
                            try->err);
    }
}

void ferry_connect_describe_peer(const struct ferry_connect *race, struct ferry_text *text)
{
    for (uint32_t i = 0; i < race->next; i++) {
        if (race->tries[i].state == FERRY_TRY_WON)
            add_place(&race->to.addrs[i], text);
    }
}

bool ferry_connect_hit_limit(const struct ferry_connect *race)
{
    for (uint32_t i = 0; i < race->to.count; i++) {
        const struct ferry_connect_try *try = &race->tries[i];

        if (try->state != FERRY_TRY_FAILED ||
            (try->err != EMFILE && try->err != ENFILE && try->err != ENOMEM && try->err != ENOBUFS))
            return false;
    }
    return true;
}
