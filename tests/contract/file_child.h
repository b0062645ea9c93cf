/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a test program that need a process of their own: limits, another user, a filter of
 * system calls, a library that must not be loaded yet. The program runs itself again with
 * "--child NAME" and its own first argument; the child is a cmocka program of one test. Header
 * only; the test's thread.
 */
#ifndef FERRY_TESTS_CONTRACT_FILE_CHILD_H
#define FERRY_TESTS_CONTRACT_FILE_CHILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

#define FILE_CHILD_SKIPPED 77

struct file_child {
    const char *name;
    CMUnitTestFunction test;
};

/* Exit status of the child: 0, FILE_CHILD_SKIPPED, or anything else, which fails the test. */
static inline void file_child_run(const char *kind, const char *name)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "child", kind, "--child", name, (char *)NULL);
        _exit(126);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status))
        fail_msg("%s: killed by signal %d", name, WTERMSIG(status));
    if (WEXITSTATUS(status) == FILE_CHILD_SKIPPED)
        skip();
    if (WEXITSTATUS(status) != 0)
        fail_msg("%s: exit status %d", name, WEXITSTATUS(status));
}

/* In a child: leave with a reason that the run prints. */
static inline void file_child_skip(const char *reason)
{
    printf("SKIP: %s\n", reason);
    fflush(stdout);
    _exit(FILE_CHILD_SKIPPED);
}

/* The exit status if the arguments ask for a child, else -1. */
static inline int file_child_main(int argc, char **argv, const struct file_child *children)
{
    if (argc != 4 || strcmp(argv[2], "--child") != 0)
        return -1;
    for (; children->name != NULL; children++) {
        const struct CMUnitTest tests[] = {
            {children->name, children->test, NULL, NULL, NULL},
        };

        if (strcmp(children->name, argv[3]) == 0)
            return cmocka_run_group_tests_name(children->name, tests, NULL, NULL) == 0 ? 0 : 1;
    }
    return 2;
}

#endif
