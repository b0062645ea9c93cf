/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts and ends the target processes of the benchmark. The main thread runs all of it.
 *
 * The child is `serve` of the same program with the same settings. It is told to end when this
 * process dies, and it is ended by its descriptor, so that never another process is hit.
 */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text.h"

#define START_MS  20000
#define STOP_MS   12000 /* longer than an engine may take to close */
#define KILLED_MS 5000
#define ENDED_MS  100
#define HELLO_MAX 65536

/* "serve --listen X --memory N --json", the settings, NULL. */
#define ARGUMENTS_MAX (10 + 2 * FERRY_CLI_SETS_MAX)

static void put_arguments(const struct ferry_cli *cli, char *memory, const char *arguments[])
{
    size_t count = 0;

    arguments[count++] = "ferry";
    arguments[count++] = "serve";
    arguments[count++] = "--listen";
    arguments[count++] = "127.0.0.1:0";
    arguments[count++] = "--memory";
    arguments[count++] = memory;
    arguments[count++] = "--json";
    if (cli->file != NULL) {
        arguments[count++] = "-c";
        arguments[count++] = cli->file;
    }
    for (size_t i = 0; i < cli->set_count; i++) {
        arguments[count++] = "--set";
        arguments[count++] = cli->sets[i];
    }
    arguments[count] = NULL;
}

/* The child, between fork and exec. */
static void become_target(int out, pid_t parent, const char *const arguments[])
{
    /* The parent ignores it, and what is ignored stays so across exec. */
    signal(SIGPIPE, SIG_DFL);
    /* A terminal sends it to both; the benchmark ends its target itself. */
    signal(SIGINT, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)
        _exit(FERRY_EXIT_ENVIRONMENT);
    if (dup2(out, STDOUT_FILENO) < 0)
        _exit(FERRY_EXIT_ENVIRONMENT);
    execv("/proc/self/exe", (char *const *)arguments);
    fprintf(stderr, "ferry: the target cannot be started: %s\n", strerror(errno));
    _exit(FERRY_EXIT_ENVIRONMENT);
}

/* The first line that the child prints; false at the end of its output or of our patience. */
static bool read_hello(int fd, char *line, size_t size)
{
    uint64_t deadline_ns = ferry_cli_deadline_ms(START_MS);
    size_t used = 0;

    while (used + 1 < size) {
        uint64_t now_ns = ferry_cli_now_ns();
        struct pollfd wait = {.fd = fd, .events = POLLIN};

        if (now_ns >= deadline_ns)
            return false;
        if (poll(&wait, 1, (int)((deadline_ns - now_ns) / 1000000 + 1)) < 0 && errno != EINTR)
            return false;
        if (wait.revents == 0)
            continue;

        ssize_t got = read(fd, line + used, size - used - 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        used += (size_t)got;
        line[used] = '\0';
        if (strchr(line, '\n') != NULL)
            return true;
    }
    return false;
}

static bool take_name(const char *line, struct ferry_bench_target *target)
{
    struct json_object *hello = json_tokener_parse(line);
    struct json_object *name = NULL;
    bool good = json_object_object_get_ex(hello, "name", &name) &&
                json_object_get_string_len(name) < (int)sizeof(target->name);

    if (good)
        snprintf(target->name, sizeof(target->name), "%s", json_object_get_string(name));
    json_object_put(hello);
    return good;
}

/* Wait for the end of the child and reap it; false at the deadline. */
static bool reap(struct ferry_bench_target *target, uint64_t timeout_ms, int *wait_status_out)
{
    uint64_t deadline_ns = ferry_cli_deadline_ms(timeout_ms);

    while (true) {
        uint64_t now_ns = ferry_cli_now_ns();
        struct pollfd wait = {.fd = target->pidfd, .events = POLLIN};

        if (poll(&wait, 1, now_ns < deadline_ns ? (int)((deadline_ns - now_ns) / 1000000 + 1) : 0) <
                0 &&
            errno != EINTR)
            return false;
        if (wait.revents != 0)
            break;
        if (now_ns >= deadline_ns)
            return false;
    }
    return waitpid(target->pid, wait_status_out, 0) == target->pid;
}

static int pidfd_of(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static void send_signal(const struct ferry_bench_target *target, int number)
{
    syscall(SYS_pidfd_send_signal, target->pidfd, number, NULL, 0);
}

/* After it was reaped. True if it had been well. */
static bool say_end(struct ferry_bench_target *target, int wait_status)
{
    bool good = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == FERRY_EXIT_OK;

    if (WIFSIGNALED(wait_status))
        ferry_cli_say("the target was ended by signal %d", WTERMSIG(wait_status));
    else if (!good)
        ferry_cli_say("the target ended with status %d", WEXITSTATUS(wait_status));
    close(target->pidfd);
    target->pid = 0;
    return good;
}

bool ferry_bench_target_stop(struct ferry_bench_target *target)
{
    int wait_status = 0;

    if (target->pid == 0)
        return true;
    send_signal(target, SIGTERM);
    if (reap(target, STOP_MS, &wait_status))
        return say_end(target, wait_status);
    ferry_cli_say("the target, process %d, does not end: killed", (int)target->pid);
    send_signal(target, SIGKILL);
    reap(target, KILLED_MS, &wait_status);
    close(target->pidfd);
    target->pid = 0;
    return false;
}

bool ferry_bench_target_ended(struct ferry_bench_target *target)
{
    int wait_status = 0;

    if (target->pid == 0 || !reap(target, ENDED_MS, &wait_status))
        return false;
    if (say_end(target, wait_status))
        ferry_cli_say("the target has ended");
    return true;
}

static bool await_hello(int fd, struct ferry_bench_target *target)
{
    char *line = malloc(HELLO_MAX);
    bool good = line != NULL && read_hello(fd, line, HELLO_MAX) && take_name(line, target);

    free(line);
    return good;
}

int ferry_bench_target_start(const struct ferry_cli *cli, uint64_t bytes,
                             struct ferry_bench_target *target)
{
    const char *arguments[ARGUMENTS_MAX];
    char memory[32];
    int fds[2];
    pid_t self = getpid();

    memset(target, 0, sizeof(*target));
    snprintf(memory, sizeof(memory), "%" PRIu64, bytes);
    put_arguments(cli, memory, arguments);
    if (pipe2(fds, O_CLOEXEC) < 0) {
        ferry_cli_say("cannot start a target: %s", strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    fflush(NULL);
    target->pid = fork();
    if (target->pid == 0)
        become_target(fds[1], self, arguments);
    close(fds[1]);
    target->pidfd = target->pid > 0 ? pidfd_of(target->pid) : -1;
    if (target->pidfd < 0) {
        ferry_cli_say("cannot start a target: %s", strerror(errno));
        /* Our own child and not reaped: the number is still its. */
        if (target->pid > 0 && kill(target->pid, SIGKILL) == 0)
            waitpid(target->pid, NULL, 0);
        target->pid = 0;
        close(fds[0]);
        return FERRY_EXIT_ENVIRONMENT;
    }
    if (!await_hello(fds[0], target)) {
        close(fds[0]);
        ferry_cli_say("the target did not say its name");
        ferry_bench_target_stop(target);
        return FERRY_EXIT_ENVIRONMENT;
    }
    /* It says nothing more; and without a reader it cannot be held up either. */
    close(fds[0]);
    return FERRY_EXIT_OK;
}

static int offer(struct ferry_engine *engine, const struct ferry_bench_options *options)
{
    void *addr;
    enum ferry_status status = ferry_memory_alloc(engine, options->buffer_bytes, NULL,
                                                  FERRY_PERMISSION_READ_WRITE, &addr);

    if (status != FERRY_OK)
        return ferry_cli_fail(status, "--total_buffer_size");
    printf("serving %" PRIu64 " bytes; an initiator is started with:\n"
           "  ferry bench --target_seg_name=%s\n",
           options->buffer_bytes, ferry_engine_segment_name(engine));
    if (fflush(stdout) != 0) {
        ferry_cli_say("standard output: %s", strerror(errno));
        return FERRY_EXIT_ENVIRONMENT;
    }
    return FERRY_EXIT_OK;
}

int ferry_bench_be_target(const struct ferry_config *config,
                          const struct ferry_bench_options *options)
{
    int exit_status = FERRY_EXIT_OK;
    sigset_t ends;

    /* Blocked before the engine starts its threads, so that only sigwaitinfo() takes them. */
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);

    struct ferry_engine *engine = ferry_cli_open(config, &exit_status);

    if (engine == NULL)
        return exit_status;
    exit_status = offer(engine, options);
    while (exit_status == FERRY_EXIT_OK && sigwaitinfo(&ends, NULL) < 0) {
        /* EINTR: a signal that ends nothing. */
    }
    return ferry_cli_close(engine, exit_status);
}
