/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real etcd of one member for a test, on loopback, with its data in a folder of its own: started,
 * stopped, killed, started again on the same port and data. It dies with the test. Header only; one
 * thread.
 */
#ifndef FERRY_TESTS_SUPPORT_ETCD_H
#define FERRY_TESTS_SUPPORT_ETCD_H

#include "support/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starting it on a machine that does much else. */
#define TEST_ETCD_PATIENCE_MS 60000

struct test_etcd {
    pid_t pid;
    uint16_t port;
    uint16_t peer_port;
    const char *args[8]; /* further ones, set before start; NULL ends them */
    char scheme[8];      /* "" is http */
    char dir[64];
};

static inline bool test_etcd_exists(void)
{
    return access("/usr/bin/etcd", X_OK) == 0;
}

/* A port that nobody has at this moment. */
static inline uint16_t test_free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    close(fd);
    return ntohs(addr.sin_port);
}

static inline void test_etcd_exec(const struct test_etcd *etcd)
{
    const char *scheme = etcd->scheme[0] != '\0' ? etcd->scheme : "http";
    char client[64];
    char peer[64];
    char cluster[80];
    char data[80];
    char log[80];
    const char *argv[40];
    size_t argc = 0;
    int fd;

    snprintf(client, sizeof(client), "%s://127.0.0.1:%u", scheme, etcd->port);
    snprintf(peer, sizeof(peer), "http://127.0.0.1:%u", etcd->peer_port);
    snprintf(cluster, sizeof(cluster), "test=%s", peer);
    snprintf(data, sizeof(data), "%s/data", etcd->dir);
    snprintf(log, sizeof(log), "%s/log", etcd->dir);
    const char *const fixed[] = {
        "etcd",
        "--name=test",
        "--data-dir",
        data,
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
        "--listen-peer-urls",
        peer,
        "--initial-advertise-peer-urls",
        peer,
        "--initial-cluster",
        cluster,
        "--heartbeat-interval=20",
        "--election-timeout=200",
        "--logger=zap",
    };

    for (; argc < sizeof(fixed) / sizeof(fixed[0]); argc++)
        argv[argc] = fixed[argc];
    for (size_t i = 0; i < 8 && etcd->args[i] != NULL; i++)
        argv[argc++] = etcd->args[i];
    argv[argc] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    unsetenv("ETCD_NAME");
    execv("/usr/bin/etcd", (char *const *)(uintptr_t)argv);
    _exit(127);
}

static inline bool test_etcd_listens(const struct test_etcd *etcd)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(etcd->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ok = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
    close(fd);
    return ok;
}

/* Also after a stop or a kill: the same port, the same data. */
static inline void test_etcd_start(struct test_etcd *etcd)
{
    uint64_t until_ns = test_deadline_ms(TEST_ETCD_PATIENCE_MS);

    if (etcd->dir[0] == '\0') {
        /* In memory where there is such a place: etcd syncs each write to its disk. */
        snprintf(etcd->dir, sizeof(etcd->dir), "%s/ferry-etcd-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        assert_non_null(mkdtemp(etcd->dir));
        etcd->port = test_free_port();
        etcd->peer_port = test_free_port();
    }
    etcd->pid = fork();
    if (etcd->pid == 0)
        test_etcd_exec(etcd);
    assert_true(etcd->pid > 0);
    /* It listens only once it has a leader. */
    while (!test_etcd_listens(etcd)) {
        int status;

        if (waitpid(etcd->pid, &status, WNOHANG) != 0 || test_now_ns() > until_ns)
            fail_msg("etcd does not start: see %s/log", etcd->dir);
        test_nap();
    }
}

static inline void test_etcd_kill(struct test_etcd *etcd)
{
    if (etcd->pid <= 0)
        return;
    kill(etcd->pid, SIGKILL);
    waitpid(etcd->pid, NULL, 0);
    etcd->pid = 0;
}

/* All that it knows is gone. */
static inline void test_etcd_wipe(struct test_etcd *etcd)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s/data'", etcd->dir);
    assert_int_equal(system(command), 0);
}

static inline void test_etcd_remove(struct test_etcd *etcd)
{
    char command[128];

    test_etcd_kill(etcd);
    if (etcd->dir[0] == '\0')
        return;
    snprintf(command, sizeof(command), "rm -rf '%s'", etcd->dir);
    assert_int_equal(system(command), 0);
    etcd->dir[0] = '\0';
}

#endif
