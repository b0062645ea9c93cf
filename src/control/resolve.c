/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resolver: a queue of names and up to four detached threads that call getaddrinfo().
 *
 * The shared part counts its users (the owner and each thread), because a thread may be stuck in
 * the system's resolver when the owner has gone. A look-up belongs to its requester until release,
 * and to the thread that works on it while `running`; whoever is last frees it.
 *
 * Locks: resolver->lock only; never held during getaddrinfo().
 */
#include "control/resolve.h"

#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hostport.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"

struct ferry_resolver {
    /* immutable after open */
    ferry_resolver_wake_fn *wake;
    void *arg;
    /* any thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t thread_gone; /* on CLOCK_MONOTONIC */
    struct ferry_list queue;
    uint32_t thread_count;
    bool closing;
};

enum lookup_state {
    LOOKUP_QUEUED,
    LOOKUP_RUNNING,
    LOOKUP_ENDED,
};

struct ferry_lookup {
    /* immutable after creation */
    struct ferry_resolver *resolver;
    char host[FERRY_HOST_SIZE];
    uint16_t port;
    /* any thread, under resolver->lock */
    enum lookup_state state;
    bool released;
    struct ferry_list link;
    struct ferry_resolution resolution;
};

static void put_port(struct sockaddr_storage *addr, uint16_t port)
{
    if (addr->ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)addr)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)(void *)addr)->sin6_port = htons(port);
}

/* Without AI_ADDRCONFIG: it hides loopback addresses on hosts that have nothing else. */
static void resolve(const char *host, uint16_t port, struct ferry_resolution *resolution)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(host, NULL, &hints, &found);

    if (rc != 0) {
        resolution->reason = gai_strerror(rc);
        return;
    }
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        if (resolution->count == FERRY_RESOLVE_ADDRS_MAX)
            break;

        struct ferry_socket_address *address = &resolution->addrs[resolution->count++];

        memcpy(&address->addr, at->ai_addr, at->ai_addrlen);
        address->len = at->ai_addrlen;
        put_port(&address->addr, port);
    }
    freeaddrinfo(found);
    if (resolution->count == 0)
        resolution->reason = "the name has no address";
}

static void destroy(struct ferry_resolver *resolver)
{
    pthread_cond_destroy(&resolver->thread_gone);
    pthread_mutex_destroy(&resolver->lock);
    free(resolver);
}

/* One look-up, from the queue to its requester. Called and left with the lock held. */
static void work(struct ferry_resolver *resolver, struct ferry_lookup *lookup)
{
    struct ferry_resolution resolution = {0};

    lookup->state = LOOKUP_RUNNING;
    pthread_mutex_unlock(&resolver->lock);
    resolve(lookup->host, lookup->port, &resolution);
    pthread_mutex_lock(&resolver->lock);
    if (lookup->released) {
        free(lookup);
        return;
    }
    lookup->resolution = resolution;
    lookup->state = LOOKUP_ENDED;
    if (!resolver->closing)
        resolver->wake(resolver->arg);
}

static void *resolver_main(void *arg)
{
    struct ferry_resolver *resolver = arg;
    struct ferry_list *link;

    pthread_mutex_lock(&resolver->lock);
    while ((link = ferry_list_pop_front(&resolver->queue)) != NULL)
        work(resolver, FERRY_CONTAINER_OF(link, struct ferry_lookup, link));
    resolver->thread_count--;

    bool last = resolver->closing && resolver->thread_count == 0;
    bool orphan = last && resolver->wake == NULL;

    if (last)
        pthread_cond_signal(&resolver->thread_gone);
    pthread_mutex_unlock(&resolver->lock);
    if (orphan)
        destroy(resolver);
    return NULL;
}

enum ferry_status ferry_resolver_open(ferry_resolver_wake_fn *wake, void *arg,
                                      struct ferry_resolver **resolver_out)
{
    struct ferry_resolver *resolver = calloc(1, sizeof(*resolver));
    pthread_condattr_t attr;

    if (resolver == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "resolver: out of memory");
    resolver->wake = wake;
    resolver->arg = arg;
    ferry_list_init(&resolver->queue);
    pthread_mutex_init(&resolver->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&resolver->thread_gone, &attr);
    pthread_condattr_destroy(&attr);
    *resolver_out = resolver;
    return FERRY_OK;
}

void ferry_resolver_close(struct ferry_resolver *resolver)
{
    if (resolver == NULL)
        return;

    uint64_t deadline_ns = ferry_now_ns(&ferry_clock_system) + FERRY_RESOLVER_CLOSE_NS;
    struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / FERRY_NS_PER_S),
        .tv_nsec = (long)(deadline_ns % FERRY_NS_PER_S),
    };
    int rc = 0;

    pthread_mutex_lock(&resolver->lock);
    resolver->closing = true;
    while (resolver->thread_count > 0 && rc == 0)
        rc = pthread_cond_timedwait(&resolver->thread_gone, &resolver->lock, &deadline);

    uint32_t left = resolver->thread_count;

    resolver->wake = NULL; /* the last thread frees what is left */
    pthread_mutex_unlock(&resolver->lock);
    if (left == 0)
        destroy(resolver);
    else
        ferry_warn("control",
                   "%u name look-ups hang in the system's resolver and are left to end by "
                   "themselves",
                   left);
}

static enum ferry_status start_thread(struct ferry_resolver *resolver)
{
    pthread_t thread;
    enum ferry_status status = ferry_thread_start("ferry-resolve", resolver_main, resolver,
                                                  &thread);

    if (status == FERRY_OK) {
        pthread_detach(thread);
        resolver->thread_count++;
    }
    return status;
}

enum ferry_status ferry_resolver_lookup(struct ferry_resolver *resolver, const char *host,
                                        uint16_t port, struct ferry_lookup **lookup_out)
{
    struct ferry_lookup *lookup = calloc(1, sizeof(*lookup));
    enum ferry_status status = FERRY_OK;

    if (lookup == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "resolver: out of memory");
    if (strlen(host) >= sizeof(lookup->host)) {
        free(lookup);
        return ferry_fail(FERRY_ERR_INVALID, "a host name of %zu bytes, at most %zu are allowed",
                          strlen(host), sizeof(lookup->host) - 1);
    }
    lookup->resolver = resolver;
    strcpy(lookup->host, host);
    lookup->port = port;

    pthread_mutex_lock(&resolver->lock);
    if (resolver->thread_count < FERRY_RESOLVER_THREADS_MAX) {
        status = start_thread(resolver);
        if (resolver->thread_count > 0)
            status = FERRY_OK; /* fewer threads do it too, later */
    }
    if (status == FERRY_OK)
        ferry_list_push_back(&resolver->queue, &lookup->link);
    pthread_mutex_unlock(&resolver->lock);
    if (status != FERRY_OK) {
        free(lookup);
        return status;
    }
    *lookup_out = lookup;
    return FERRY_OK;
}

bool ferry_lookup_poll(struct ferry_lookup *lookup, struct ferry_resolution *resolution_out)
{
    pthread_mutex_lock(&lookup->resolver->lock);

    bool ended = lookup->state == LOOKUP_ENDED;

    if (ended)
        *resolution_out = lookup->resolution;
    pthread_mutex_unlock(&lookup->resolver->lock);
    return ended;
}

void ferry_lookup_release(struct ferry_lookup *lookup)
{
    if (lookup == NULL)
        return;

    struct ferry_resolver *resolver = lookup->resolver;

    pthread_mutex_lock(&resolver->lock);

    bool mine = lookup->state != LOOKUP_RUNNING;

    if (lookup->state == LOOKUP_QUEUED)
        ferry_list_remove(&lookup->link);
    lookup->released = true;
    pthread_mutex_unlock(&resolver->lock);
    if (mine)
        free(lookup);
}
