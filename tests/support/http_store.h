/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP store of tests/fakes as a process of the test's own, on a port that the system picks. It
 * ends with the test. Header only; one thread.
 */
#ifndef FERRY_TESTS_SUPPORT_HTTP_STORE_H
#define FERRY_TESTS_SUPPORT_HTTP_STORE_H

#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct test_http_store {
    pid_t pid;
    int stdin_fd; /* it ends when this is closed */
    uint16_t port;
};

/* @path: of the program. */
static inline void test_http_store_start(struct test_http_store *store, const char *path)
{
    int in[2];
    int out[2];
    char line[16] = "";
    size_t len = 0;

    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    store->pid = fork();
    if (store->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        execlp("python3", "python3", path, "--until-eof", (char *)NULL);
        _exit(127);
    }
    assert_true(store->pid > 0);
    close(in[0]);
    close(out[1]);
    store->stdin_fd = in[1];
    while (len < sizeof(line) - 1 && strchr(line, '\n') == NULL) {
        ssize_t got = read(out[0], line + len, sizeof(line) - 1 - len);

        assert_true(got > 0);
        len += (size_t)got;
        line[len] = '\0';
    }
    close(out[0]);
    store->port = (uint16_t)strtoul(line, NULL, 10);
    assert_true(store->port > 0);
}

static inline void test_http_store_stop(struct test_http_store *store)
{
    int status = 0;

    if (store->pid <= 0)
        return;
    close(store->stdin_fd);
    kill(store->pid, SIGTERM);
    assert_int_equal(waitpid(store->pid, &status, 0), store->pid);
}

#endif
