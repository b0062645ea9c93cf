/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reactor and its baton cost against bare sockets, on loopback, asleep. Every figure is
 * taken in turns with the raw one, so that a busy machine hurts both. Prints medians; gates on
 * nothing.
 *
 *   bench_reactor [ROUNDS]
 *
 * pingpong: 64 bytes out, 4096 bytes back; target on the first usable CPU, caller on the second.
 * stream:   the receiver of 64 MiB pieces, a bare sender beside it; no pinning.
 */
#include "test.h"

#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/futex.h"
#include "reactor/net.h"
#include "reactor/worker.h"

#define CALLS        10000
#define ASK_BYTES    64
#define ANSWER_BYTES 4096
#define PIECE_BYTES  (64u << 20)
#define PIECES       6
#define ROUNDS_MAX   99

struct way {
    const char *name;
    enum ferry_reactor_kind kind;
    bool raw;
    bool drive;
    double figures[ROUNDS_MAX];
    double cpu[ROUNDS_MAX];
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare);
    return values[count / 2];
}

static double cpu_seconds(void)
{
    struct rusage self, children;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    const struct timeval times[] = {self.ru_utime, self.ru_stime, children.ru_utime,
                                    children.ru_stime};
    double sum = 0;
    for (size_t i = 0; i < 4; i++)
        sum += (double)times[i].tv_sec + (double)times[i].tv_usec / 1e6;
    return sum;
}

/* The @index-th CPU that this process may use; nothing happens if there are not as many. */
static void pin(const cpu_set_t *usable, int index)
{
    cpu_set_t one;

    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, usable) || index-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static int listen_on_loopback(struct sockaddr_storage *addr_out, socklen_t *addr_len_out)
{
    struct sockaddr_in loopback = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = -1;

    if (ferry_net_open(&ferry_net_system, AF_INET, &fd) != FERRY_OK ||
        ferry_net_listen(&ferry_net_system, fd, (struct sockaddr *)&loopback, sizeof(loopback)) !=
            FERRY_OK ||
        ferry_net_local_addr(&ferry_net_system, fd, addr_out, addr_len_out) != FERRY_OK)
        exit(1);
    return fd;
}

static int connect_blocking(const struct sockaddr_storage *addr, socklen_t addr_len)
{
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)addr, addr_len) != 0 ||
        ferry_net_set_nodelay(&ferry_net_system, fd) != FERRY_OK)
        exit(1);
    return fd;
}

static bool send_all(int fd, const char *buf, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = send(fd, buf + done, len - done, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* In a child, with bare sockets: answers each question of ASK_BYTES with @answer_bytes. */
static pid_t start_target(int listen_fd, const cpu_set_t *usable, size_t answer_bytes)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    alarm(120);
    if (usable != NULL)
        pin(usable, 0);
    char *answer = calloc(1, answer_bytes);
    char ask[ASK_BYTES];
    struct timespec pause = {.tv_nsec = 1000000};
    int fd;
    while ((fd = accept(listen_fd, NULL, NULL)) < 0)
        nanosleep(&pause, NULL);
    if (answer == NULL || ferry_net_set_nodelay(&ferry_net_system, fd) != FERRY_OK)
        _exit(1);
    while (recv(fd, ask, sizeof(ask), MSG_WAITALL) == (ssize_t)sizeof(ask) &&
           send_all(fd, answer, answer_bytes))
        ;
    _exit(0);
}

/* The asking side over a worker. */
struct client {
    struct ferry_worker *worker;
    struct ferry_io io;
    struct ferry_op send_op;
    struct ferry_op recv_op;
    struct ferry_job job;
    int fd;
    char *buf;
    size_t answer_bytes;
    char ask[ASK_BYTES];
    _Atomic uint32_t done; /* futex */
};

static void client_received(struct ferry_op *op, int64_t result)
{
    struct client *client = FERRY_CONTAINER_OF(op, struct client, recv_op);

    if (result != (int64_t)client->answer_bytes)
        abort();
    atomic_store(&client->done, 1);
    ferry_futex_wake(&client->done, 1);
}

static void client_sent(struct ferry_op *op, int64_t result)
{
    (void)op;
    if (result != ASK_BYTES)
        abort();
}

static void client_start(struct ferry_worker *worker, struct ferry_job *job)
{
    struct client *client = FERRY_CONTAINER_OF(job, struct client, job);
    struct ferry_reactor *reactor = ferry_worker_reactor(worker);

    if ((client->io.flags & FERRY_IO_ATTACHED) == 0 &&
        ferry_reactor_attach(reactor, &client->io, client->fd) != FERRY_OK)
        abort();
    client->send_op = (struct ferry_op){.kind = FERRY_OP_SEND,
                                        .done = client_sent,
                                        .io = &client->io,
                                        .buf = client->ask,
                                        .len = ASK_BYTES};
    client->recv_op = (struct ferry_op){.kind = FERRY_OP_RECV,
                                        .done = client_received,
                                        .io = &client->io,
                                        .buf = client->buf,
                                        .len = client->answer_bytes,
                                        .min_bytes = client->answer_bytes};
    ferry_reactor_submit(reactor, &client->send_op);
    ferry_reactor_submit(reactor, &client->recv_op);
}

static void client_stop(struct ferry_worker *worker, struct ferry_job *job)
{
    struct client *client = FERRY_CONTAINER_OF(job, struct client, job);

    ferry_reactor_detach(ferry_worker_reactor(worker), &client->io);
}

static bool client_is_done(void *arg)
{
    return atomic_load(&((struct client *)arg)->done) != 0;
}

static void client_call(struct client *client, bool drive)
{
    bool drove;

    atomic_store(&client->done, 0);
    client->job.run = client_start;
    ferry_worker_post(client->worker, &client->job, drive);
    if (drive)
        ferry_worker_drive(client->worker, client_is_done, client, FERRY_NEVER_NS, &drove);
    while (!client_is_done(client))
        ferry_futex_wait(&client->done, 0, FERRY_NEVER_NS);
}

static void raw_call(struct client *client)
{
    if (!send_all(client->fd, client->ask, ASK_BYTES))
        abort();
    for (size_t got = 0; got < client->answer_bytes;) {
        ssize_t n = recv(client->fd, client->buf + got, client->answer_bytes - got, MSG_WAITALL);

        if (n <= 0)
            abort();
        got += (size_t)n;
    }
}

/* One round of one way; the median microseconds of a call, and CPU seconds of both processes. */
static void run_way(struct way *way, size_t round, const cpu_set_t *usable, size_t answer_bytes,
                    size_t calls)
{
    struct ferry_worker_options options = {
        .name = "bench", .reactor.kind = way->kind, .wait = FERRY_WAIT_SLEEP};
    struct client client = {.answer_bytes = answer_bytes, .buf = malloc(answer_bytes)};
    double *times_us = calloc(calls, sizeof(*times_us));
    struct sockaddr_storage addr;
    socklen_t addr_len;

    if (times_us == NULL || client.buf == NULL)
        exit(1);
    memset(client.buf, 1, answer_bytes);
    int listen_fd = listen_on_loopback(&addr, &addr_len);
    pid_t target = start_target(listen_fd, usable, answer_bytes);
    if (usable != NULL)
        pin(usable, 1);
    client.fd = connect_blocking(&addr, addr_len);
    if (!way->raw && ferry_worker_open(&options, &client.worker) != FERRY_OK) {
        fprintf(stderr, "%s\n", ferry_last_error_text());
        exit(1);
    }
    double cpu_before = cpu_seconds();
    for (size_t i = 0; i < calls; i++) {
        uint64_t before_ns = test_now_ns();

        if (way->raw)
            raw_call(&client);
        else
            client_call(&client, way->drive);
        times_us[i] = (double)(test_now_ns() - before_ns) / 1e3;
    }
    if (!way->raw) {
        client.job.run = client_stop;
        ferry_worker_post(client.worker, &client.job, false);
        ferry_worker_close(client.worker);
    }
    close(client.fd);
    close(listen_fd);
    waitpid(target, NULL, 0);
    way->figures[round] = median(times_us, calls);
    way->cpu[round] = cpu_seconds() - cpu_before;
    if (usable != NULL)
        sched_setaffinity(0, sizeof(*usable), usable);
    free(times_us);
    free(client.buf);
}

int main(int argc, char **argv)
{
    size_t rounds = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
    static struct way ways[] = {
        {.name = "raw", .raw = true},
        {.name = "uring", .kind = FERRY_REACTOR_URING},
        {.name = "epoll", .kind = FERRY_REACTOR_EPOLL},
        {.name = "uring driven", .kind = FERRY_REACTOR_URING, .drive = true},
        {.name = "epoll driven", .kind = FERRY_REACTOR_EPOLL, .drive = true},
    };
    cpu_set_t usable;

    if (rounds == 0 || rounds > ROUNDS_MAX || sched_getaffinity(0, sizeof(usable), &usable) != 0)
        return 2;
    for (int big = 0; big < 2; big++) {
        for (size_t round = 0; round < rounds; round++)
            for (size_t i = 0; i < FERRY_ARRAY_LEN(ways); i++)
                run_way(&ways[i], round, big != 0 ? NULL : &usable,
                        big != 0 ? PIECE_BYTES : ANSWER_BYTES, big != 0 ? PIECES : CALLS);
        for (size_t i = 0; i < FERRY_ARRAY_LEN(ways); i++) {
            double us = median(ways[i].figures, rounds);
            double cpu = median(ways[i].cpu, rounds);

            if (big != 0)
                printf("stream   %-13s %6.2f GB/s  cpu %.3f s/GB\n", ways[i].name,
                       PIECE_BYTES / us / 1e3, cpu / (PIECE_BYTES * (double)PIECES / 1e9));
            else
                printf("pingpong %-13s p50 %6.1f us  cpu %.1f us/call\n", ways[i].name, us,
                       cpu / CALLS * 1e6);
        }
    }
    return 0;
}
