/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread and the queue in front of it. What one call does is in call.c.
 *
 * The thread sleeps in curl_multi_poll(), which also watches the connects that are under way.
 * Others put calls into the inbox and wake it; everything else belongs to the thread. It must not
 * block: names are looked up by the resolver's threads.
 *
 * Close order: refuse new work (closing), end the waiting and the running calls with ERR_CLOSING,
 * join the thread, then the resolver, then the multi handle.
 */
#include "control/client.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "access/access.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/futex.h"
#include "base/thread.h"
#include "control/call.h"
#include "control/curl_fds.h"

/* Sleep when nothing has a deadline; any bound will do. */
#define IDLE_MS 3600000

struct ferry_http_client {
    /* immutable after open; multi and resolver are used by the control thread */
    CURLM *multi;
    struct ferry_resolver *resolver;
    const struct ferry_access_control *access;
    pid_t pid;
    pthread_t thread;
    /* any thread, under lock */
    pthread_mutex_t lock;
    struct ferry_list inbox;
    bool closing;
    /* any thread, atomic: some call has abort_asked set (which is written first) */
    _Atomic bool abort_pending;
    /* control thread only */
    struct ferry_list finished; /* nothing to do but done() */
    struct ferry_list waiting;
    uint64_t waiting_due_ns;    /* no waiting call has an earlier deadline */
    struct ferry_list sleeping; /* nothing to do but done(), at the deadline */
    uint64_t sleeping_due_ns;
    struct ferry_list running;
    uint32_t running_count;
    struct curl_waitfd fds[FERRY_HTTP_RUNNING_MAX * FERRY_RESOLVE_ADDRS_MAX];
};

static void wake(void *arg)
{
    struct ferry_http_client *client = arg;

    curl_multi_wakeup(client->multi);
}

static uint64_t now(void)
{
    return ferry_now_ns(&ferry_clock_system);
}

/* True if the client is closing. */
static bool take_inbox(struct ferry_http_client *client)
{
    struct ferry_list *link;

    pthread_mutex_lock(&client->lock);
    while ((link = ferry_list_pop_front(&client->inbox)) != NULL) {
        struct ferry_http_call *call = FERRY_CONTAINER_OF(link, struct ferry_http_call, link);

        if (call->finished) {
            ferry_list_push_back(&client->finished, link);
            continue;
        }
        /* The request to abort may have been looked for before the call could be seen. */
        if (atomic_load(&call->abort_asked))
            atomic_store(&client->abort_pending, true);

        uint64_t *due_ns = call->sleeping ? &client->sleeping_due_ns : &client->waiting_due_ns;

        ferry_list_push_back(call->sleeping ? &client->sleeping : &client->waiting, link);
        if (call->deadline_ns < *due_ns)
            *due_ns = call->deadline_ns;
    }

    bool closing = client->closing;

    pthread_mutex_unlock(&client->lock);
    return closing;
}

static void end_finished(struct ferry_http_client *client)
{
    struct ferry_list *link;

    while ((link = ferry_list_pop_front(&client->finished)) != NULL) {
        struct ferry_http_call *call = FERRY_CONTAINER_OF(link, struct ferry_http_call, link);

        call->done(call);
    }
}

/* End those of a list whose time has come. No call of the list is due before *due_ns. */
static void expire(struct ferry_list *head, uint64_t *list_due_ns, uint64_t now_ns,
                   const char *reason)
{
    struct ferry_list *link = head->next;
    uint64_t due_ns = FERRY_NEVER_NS;

    if (now_ns < *list_due_ns)
        return;
    while (link != head) {
        struct ferry_http_call *call = FERRY_CONTAINER_OF(link, struct ferry_http_call, link);

        link = link->next;
        if (call->deadline_ns <= now_ns) {
            ferry_list_remove(&call->link);
            ferry_http_call_end(call, FERRY_ERR_TIMED_OUT, reason);
        } else if (call->deadline_ns < due_ns) {
            due_ns = call->deadline_ns;
        }
    }
    *list_due_ns = due_ns;
}

static void expire_all(struct ferry_http_client *client, uint64_t now_ns)
{
    expire(&client->waiting, &client->waiting_due_ns, now_ns,
           "waited for other calls until its deadline");
    expire(&client->sleeping, &client->sleeping_due_ns, now_ns, "slept until its deadline");
}

static void admit(struct ferry_http_client *client)
{
    while (client->running_count < FERRY_HTTP_RUNNING_MAX) {
        struct ferry_list *link = ferry_list_pop_front(&client->waiting);
        struct ferry_http_work *work;

        if (link == NULL)
            return;

        struct ferry_http_call *call = FERRY_CONTAINER_OF(link, struct ferry_http_call, link);

        if (ferry_http_work_create(call, client->multi, client->resolver, client->access, &work) ==
            FERRY_OK) {
            ferry_list_push_back(&client->running, &work->link);
            client->running_count++;
        } else {
            ferry_http_call_end(call, FERRY_ERR_NO_MEMORY, "out of memory");
        }
    }
}

static void retire(struct ferry_http_client *client, struct ferry_http_work *work)
{
    ferry_list_remove(&work->link);
    client->running_count--;
    ferry_http_work_finish(work);
}

/* Of calls that nothing was done for yet. */
static void end_aborted_of(struct ferry_list *head)
{
    for (struct ferry_list *link = head->next; link != head;) {
        struct ferry_http_call *call = FERRY_CONTAINER_OF(link, struct ferry_http_call, link);

        link = link->next;
        if (atomic_load(&call->abort_asked)) {
            ferry_list_remove(&call->link);
            ferry_http_call_end(call, FERRY_ERR_CLOSING, "was given up by its owner");
        }
    }
}

/* All lists are looked through; aborts are for closing and rare. */
static void end_aborted(struct ferry_http_client *client)
{
    struct ferry_list *link;

    if (!atomic_exchange(&client->abort_pending, false))
        return;
    end_aborted_of(&client->waiting);
    end_aborted_of(&client->sleeping);
    for (link = client->running.next; link != &client->running;) {
        struct ferry_http_work *work = FERRY_CONTAINER_OF(link, struct ferry_http_work, link);

        link = link->next;
        if (atomic_load(&work->call->abort_asked)) {
            ferry_http_work_abort(work, FERRY_ERR_CLOSING, "given up by its owner");
            retire(client, work);
        }
    }
}

/* Look-ups, connects and deadlines of all that runs. */
static void step_running(struct ferry_http_client *client, uint64_t now_ns)
{
    struct ferry_list *link = client->running.next;

    while (link != &client->running) {
        struct ferry_http_work *work = FERRY_CONTAINER_OF(link, struct ferry_http_work, link);

        link = link->next;
        ferry_http_work_step(work, now_ns);
        if (work->state == FERRY_HTTP_WORK_ENDED)
            retire(client, work);
    }
}

static void talk(struct ferry_http_client *client)
{
    int left;
    CURLMsg *message;

    curl_multi_perform(client->multi, &left);
    while ((message = curl_multi_info_read(client->multi, &left)) != NULL) {
        struct ferry_http_work *work = NULL;
        CURLcode result = message->data.result;

        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &work);
        ferry_http_work_talked(work, result);
        if (work->state == FERRY_HTTP_WORK_ENDED)
            retire(client, work);
    }
}

static int wait_ms(const struct ferry_http_client *client, uint64_t due_ns)
{
    uint64_t now_ns = now();

    if (!ferry_list_empty(&client->waiting) && client->running_count < FERRY_HTTP_RUNNING_MAX)
        return 0;
    if (due_ns <= now_ns)
        return 0;

    uint64_t ms = (due_ns - now_ns - 1) / FERRY_NS_PER_MS + 1;

    return ms < IDLE_MS ? (int)ms : IDLE_MS;
}

static void sleep_until_due(struct ferry_http_client *client)
{
    uint64_t due_ns = ferry_list_empty(&client->waiting) ? FERRY_NEVER_NS : client->waiting_due_ns;
    unsigned fd_count = 0;

    if (!ferry_list_empty(&client->sleeping) && client->sleeping_due_ns < due_ns)
        due_ns = client->sleeping_due_ns;

    for (struct ferry_list *link = client->running.next; link != &client->running;
         link = link->next) {
        struct ferry_http_work *work = FERRY_CONTAINER_OF(link, struct ferry_http_work, link);
        uint64_t work_due_ns = ferry_http_work_due_ns(work);
        int fds[FERRY_RESOLVE_ADDRS_MAX];
        size_t count = ferry_http_work_fds(work, fds);

        for (size_t i = 0; i < count; i++)
            client->fds[fd_count++] = (struct curl_waitfd){.fd = fds[i],
                                                           .events = CURL_WAIT_POLLOUT};
        if (work_due_ns < due_ns)
            due_ns = work_due_ns;
    }
    curl_multi_poll(client->multi, client->fds, fd_count, wait_ms(client, due_ns), NULL);
}

/* done() of a call that is ended here may submit another one: hence until nothing is left. */
static void end_all(struct ferry_http_client *client)
{
    do {
        struct ferry_list *link;

        while (!ferry_list_empty(&client->running)) {
            struct ferry_http_work *work = FERRY_CONTAINER_OF(client->running.next,
                                                              struct ferry_http_work, link);

            ferry_http_work_abort(work, FERRY_ERR_CLOSING, "the engine is closing");
            retire(client, work);
        }
        while ((link = ferry_list_pop_front(&client->waiting)) != NULL ||
               (link = ferry_list_pop_front(&client->sleeping)) != NULL)
            ferry_http_call_end(FERRY_CONTAINER_OF(link, struct ferry_http_call, link),
                                FERRY_ERR_CLOSING, "the engine is closing");
        end_finished(client);
        take_inbox(client);
    } while (!ferry_list_empty(&client->waiting) || !ferry_list_empty(&client->sleeping) ||
             !ferry_list_empty(&client->finished));
}

static void *client_main(void *arg)
{
    struct ferry_http_client *client = arg;

    while (!take_inbox(client)) {
        end_finished(client);
        end_aborted(client);
        expire_all(client, now());
        admit(client);
        step_running(client, now());
        talk(client);
        sleep_until_due(client);
    }
    end_all(client);
    return NULL;
}

static void destroy(struct ferry_http_client *client)
{
    ferry_resolver_close(client->resolver);
    if (client->multi != NULL)
        curl_multi_cleanup(client->multi);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

/*
 * Never undone: the host program may use libcurl as well, and libcurl counts. Safe on any thread in
 * the versions that the build accepts.
 */
static enum ferry_status init_curl(void)
{
    CURLcode rc = curl_global_init(CURL_GLOBAL_DEFAULT);

    return rc == CURLE_OK ? FERRY_OK
                          : ferry_fail(FERRY_ERR_INTERNAL, "libcurl does not start: %s",
                                       curl_easy_strerror(rc));
}

enum ferry_status ferry_http_client_open(const struct ferry_access_control *access,
                                         struct ferry_http_client **client_out)
{
    enum ferry_status status = init_curl();

    if (status != FERRY_OK)
        return status;

    struct ferry_http_client *client = calloc(1, sizeof(*client));

    if (client == NULL)
        return ferry_fail(FERRY_ERR_NO_MEMORY, "http client: out of memory");
    client->access = access;
    client->pid = getpid();
    pthread_mutex_init(&client->lock, NULL);
    ferry_list_init(&client->inbox);
    ferry_list_init(&client->finished);
    ferry_list_init(&client->waiting);
    ferry_list_init(&client->running);
    ferry_list_init(&client->sleeping);
    client->waiting_due_ns = FERRY_NEVER_NS;
    client->sleeping_due_ns = FERRY_NEVER_NS;
    client->multi = curl_multi_init();
    if (client->multi == NULL)
        status = ferry_fail(FERRY_ERR_LIMIT, "http client: no memory or no descriptor for libcurl");
    if (status == FERRY_OK) {
        ferry_curl_set_cloexec(client->multi);
        status = ferry_resolver_open(wake, client, &client->resolver);
    }
    if (status == FERRY_OK)
        status = ferry_thread_start("ferry-control", client_main, client, &client->thread);
    if (status != FERRY_OK) {
        destroy(client);
        return status;
    }
    *client_out = client;
    return FERRY_OK;
}

void ferry_http_client_close(struct ferry_http_client *client)
{
    if (client == NULL || client->pid != getpid())
        return;
    FERRY_ASSERT(!pthread_equal(client->thread, pthread_self()));
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    pthread_mutex_unlock(&client->lock);
    wake(client);
    pthread_join(client->thread, NULL);
    FERRY_ASSERT(ferry_list_empty(&client->inbox));
    destroy(client);
}

static void queue(struct ferry_http_client *client, struct ferry_http_call *call)
{
    FERRY_ASSERT(call->done != NULL);
    call->http_status = 0;
    call->reply = NULL;
    call->reply_len = 0;
    atomic_store(&call->abort_asked, false);
    /* Before the lock: in a child it may be held for ever by a thread that is not there. */
    if (client->pid != getpid()) {
        ferry_http_call_end(call, FERRY_ERR_FORKED, "not sent: the client belongs to the parent");
        return;
    }
    pthread_mutex_lock(&client->lock);

    bool was_empty = ferry_list_empty(&client->inbox);

    ferry_list_push_back(&client->inbox, &call->link);
    pthread_mutex_unlock(&client->lock);
    if (was_empty)
        wake(client);
}

void ferry_http_client_submit(struct ferry_http_client *client, struct ferry_http_call *call)
{
    FERRY_ASSERT(call->deadline_ns != FERRY_NEVER_NS);
    FERRY_ASSERT(call->reply_max <= FERRY_HTTP_REPLY_MAX_MAX);
    call->status = FERRY_OK;
    call->error[0] = '\0';
    call->finished = false;
    call->sleeping = false;
    queue(client, call);
}

void ferry_http_client_sleep(struct ferry_http_client *client, struct ferry_http_call *call)
{
    FERRY_ASSERT(call->deadline_ns != FERRY_NEVER_NS);
    call->method = FERRY_HTTP_GET;
    call->finished = false;
    call->sleeping = true;
    queue(client, call);
}

void ferry_http_client_finish(struct ferry_http_client *client, struct ferry_http_call *call,
                              enum ferry_status status)
{
    call->status = status;
    call->finished = true;
    call->sleeping = false;
    queue(client, call);
}

void ferry_http_client_abort(struct ferry_http_client *client, struct ferry_http_call *call)
{
    atomic_store(&call->abort_asked, true);
    atomic_store(&client->abort_pending, true);
    wake(client);
}

const char *ferry_http_client_scheme(const struct ferry_http_client *client)
{
    return ferry_access_tls(client->access) != NULL ? "https" : "http";
}

static void call_ended(struct ferry_http_call *call)
{
    _Atomic uint32_t *ended = call->arg;

    /* The waiter may be gone before the wake-up, which then hits nobody: futexes are addresses. */
    atomic_store(ended, 1);
    ferry_futex_wake(ended, 1);
}

enum ferry_status ferry_http_client_call(struct ferry_http_client *client,
                                         struct ferry_http_call *call)
{
    _Atomic uint32_t ended = 0;

    FERRY_ASSERT(!pthread_equal(client->thread, pthread_self()));
    call->done = call_ended;
    call->arg = (void *)&ended;
    ferry_http_client_submit(client, call);
    while (atomic_load(&ended) == 0)
        ferry_futex_wait(&ended, 0, FERRY_NEVER_NS);
    return call->status == FERRY_OK ? FERRY_OK : ferry_fail(call->status, "%s", call->error);
}
