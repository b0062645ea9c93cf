/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice of a reactor where io_uring is forbidden, absent or short of memory: AUTO takes epoll
 * and says why in one log line, an explicit uring is an error that names the cause. Containers do
 * this to programs: EPERM by a filter, ENOSYS by an older one, ENOMEM by a memory-lock limit.
 *
 * Each case runs in a child, since a seccomp filter cannot be taken off again.
 */
#include "test.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "reactor/worker.h"

enum {
    CHILD_OK = 0,
    CHILD_AUTO_FAILED = 1,
    CHILD_NOT_EPOLL = 2,
    CHILD_NO_LOG_LINE = 3,
    CHILD_URING_OPENED = 4,
    CHILD_WRONG_STATUS = 5,
    CHILD_WRONG_TEXT = 6,
    CHILD_DEAD_REACTOR = 7,
    CHILD_NO_FILTER = 8,
};

static char log_lines[4][512];
static int log_count;

static void keep_line(void *arg, enum ferry_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    if (log_count < 4)
        snprintf(log_lines[log_count], sizeof(log_lines[0]), "%s", line);
    log_count++;
}

static bool forbid(int syscall_number, int err)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)syscall_number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((unsigned)err & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* In the child: both ways to open, with io_uring not working. */
static int look_without_uring(enum ferry_status status_wanted, const char *text_wanted)
{
    struct ferry_reactor_options options = {.kind = FERRY_REACTOR_AUTO};
    struct ferry_reactor *reactor = NULL;

    ferry_log_set_level(FERRY_LOG_INFO);
    ferry_log_set_sink(keep_line, NULL);
    if (ferry_reactor_open(&options, &reactor) != FERRY_OK)
        return CHILD_AUTO_FAILED;
    if (strcmp(ferry_reactor_name(reactor), "epoll") != 0)
        return CHILD_NOT_EPOLL;
    if (log_count != 1 || strstr(log_lines[0], "epoll") == NULL ||
        strstr(log_lines[0], text_wanted) == NULL)
        return CHILD_NO_LOG_LINE;
    ferry_reactor_wake(reactor);
    ferry_reactor_turn(reactor, FERRY_NEVER_NS);
    ferry_reactor_close(reactor);

    options.kind = FERRY_REACTOR_URING;
    enum ferry_status status = ferry_reactor_open(&options, &reactor);
    if (status == FERRY_OK)
        return CHILD_URING_OPENED;
    if (status != status_wanted)
        return CHILD_WRONG_STATUS;
    return strstr(ferry_last_error_text(), text_wanted) != NULL ? CHILD_OK : CHILD_WRONG_TEXT;
}

static int run_filtered(int syscall_number, int err, enum ferry_status status, const char *text)
{
    pid_t pid = fork();
    int result = -1;

    if (pid == 0) {
        alarm(30);
        _exit(forbid(syscall_number, err) ? look_without_uring(status, text) : CHILD_NO_FILTER);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result));
    return WEXITSTATUS(result);
}

static void expect_fallback(int syscall_number, int err, enum ferry_status status, const char *text)
{
    int result = run_filtered(syscall_number, err, status, text);

    if (result == CHILD_NO_FILTER) {
        test_skip("no seccomp filter can be set here");
    }
    assert_int_equal(result, CHILD_OK);
}

static void test_setup_forbidden(void **state)
{
    (void)state;
    expect_fallback(SYS_io_uring_setup, EPERM, FERRY_ERR_UNSUPPORTED, "EPERM");
}

static void test_setup_unknown(void **state)
{
    (void)state;
    expect_fallback(SYS_io_uring_setup, ENOSYS, FERRY_ERR_UNSUPPORTED, "ENOSYS");
}

static void test_setup_short_of_memory(void **state)
{
    (void)state;
    expect_fallback(SYS_io_uring_setup, ENOMEM, FERRY_ERR_NO_MEMORY, "memory-lock");
}

static void test_setup_too_old(void **state)
{
    (void)state;
    expect_fallback(SYS_io_uring_setup, EINVAL, FERRY_ERR_UNSUPPORTED, "5.19");
}

/* A filter that lets a ring be made and not be used: it must show before the first transfer. */
static void test_enter_forbidden(void **state)
{
    (void)state;
    expect_fallback(SYS_io_uring_enter, EPERM, FERRY_ERR_UNSUPPORTED, "EPERM");
}

/* Neither way works: one clear error, nothing leaked, nothing crashed. */
static void test_no_descriptors_at_all(void **state)
{
    (void)state;
    struct ferry_reactor_options options = {.kind = FERRY_REACTOR_AUTO};
    struct ferry_reactor *reactor = NULL;
    struct rlimit before;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    enum ferry_status status = ferry_reactor_open(&options, &reactor);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(status, FERRY_ERR_LIMIT);
    assert_null(reactor);
}

/* An ordinary user with a tiny limit: old kernels count rings against it, new ones do not. */
static void test_small_memory_lock_limit(void **state)
{
    (void)state;
    pid_t pid = fork();
    int result = -1;

    if (pid == 0) {
        struct ferry_reactor_options options = {.kind = FERRY_REACTOR_AUTO};
        struct ferry_reactor *reactor = NULL;
        struct rlimit small = {.rlim_cur = 4096, .rlim_max = 4096};

        alarm(30);
        if (setrlimit(RLIMIT_MEMLOCK, &small) != 0 || (geteuid() == 0 && setuid(65534) != 0))
            _exit(CHILD_NO_FILTER);
        if (ferry_reactor_open(&options, &reactor) != FERRY_OK)
            _exit(CHILD_AUTO_FAILED);
        ferry_reactor_wake(reactor);
        ferry_reactor_turn(reactor, FERRY_NEVER_NS);
        ferry_reactor_close(reactor);
        _exit(CHILD_OK);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == CHILD_NO_FILTER)
        test_skip("no seccomp filter can be set here");
    assert_int_equal(WEXITSTATUS(result), CHILD_OK);
}

/* A worker opens its reactor on its own thread; the reason must reach the opener all the same. */
static void test_a_worker_passes_the_reason_on(void **state)
{
    (void)state;
    pid_t pid = fork();
    int result = -1;

    if (pid == 0) {
        struct ferry_worker_options options = {.name = "w", .reactor.kind = FERRY_REACTOR_URING};
        struct ferry_worker *worker = NULL;

        alarm(30);
        if (!forbid(SYS_io_uring_setup, EPERM))
            _exit(CHILD_NO_FILTER);
        if (ferry_worker_open(&options, &worker) != FERRY_ERR_UNSUPPORTED)
            _exit(CHILD_WRONG_STATUS);
        if (strstr(ferry_last_error_text(), "EPERM") == NULL)
            _exit(CHILD_WRONG_TEXT);
        options.reactor.kind = FERRY_REACTOR_AUTO;
        if (ferry_worker_open(&options, &worker) != FERRY_OK)
            _exit(CHILD_AUTO_FAILED);
        ferry_worker_close(worker);
        _exit(CHILD_OK);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &result, 0), pid);
    assert_true(WIFEXITED(result));
    if (WEXITSTATUS(result) == CHILD_NO_FILTER)
        test_skip("no seccomp filter can be set here");
    assert_int_equal(WEXITSTATUS(result), CHILD_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setup_forbidden),
        cmocka_unit_test(test_setup_unknown),
        cmocka_unit_test(test_setup_short_of_memory),
        cmocka_unit_test(test_setup_too_old),
        cmocka_unit_test(test_enter_forbidden),
        cmocka_unit_test(test_no_descriptors_at_all),
        cmocka_unit_test(test_small_memory_lock_limit),
        cmocka_unit_test(test_a_worker_passes_the_reason_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
