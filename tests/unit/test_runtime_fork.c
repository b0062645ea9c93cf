/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field report B18: a program forks while an engine runs. In the child every call on it is refused
 * at once, closing it touches nothing, and a new engine works; the parent does not notice.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ferry/ferry.h>

#include "support/pattern.h"
#include "support/sanitizer.h"
#include "support/test.h"

#define LENGTH 65536u

struct rig {
    struct ferry_engine *engine;
    unsigned char *local, *remote;
    uint64_t batch;
};

static struct ferry_engine *open_engine(void)
{
    struct ferry_engine_options options = FERRY_ENGINE_OPTIONS_INIT;
    struct ferry_engine *engine = NULL;
    struct ferry_config *config = NULL;

    if (ferry_config_create(&config) != FERRY_OK)
        return NULL;
    options.config = config;
    if (ferry_engine_open(&options, &engine) != FERRY_OK)
        engine = NULL;
    ferry_config_destroy(config);
    return engine;
}

static bool make(struct rig *rig)
{
    void *local, *remote;

    rig->engine = open_engine();
    if (rig->engine == NULL ||
        ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_LOCAL, &local) != FERRY_OK ||
        ferry_memory_alloc(rig->engine, LENGTH, NULL, FERRY_PERMISSION_READ_WRITE, &remote) !=
            FERRY_OK)
        return false;
    rig->local = local;
    rig->remote = remote;
    pattern_fill(rig->remote, LENGTH, 3, 0);
    return ferry_batch_create(rig->engine, 4, &rig->batch) == FERRY_OK;
}

static enum ferry_status transfer(const struct rig *rig)
{
    struct ferry_request request = FERRY_REQUEST_INIT;

    request.local = rig->local;
    request.remote_offset = (uintptr_t)rig->remote;
    request.length = LENGTH;
    return ferry_read(rig->engine, &request, test_deadline_ms(5000));
}

/* 0 if every call of the child was refused as it has to be. */
static int child_uses_the_parents_engine(const struct rig *rig)
{
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_notification notification = {.struct_size = sizeof(notification)};
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    uint64_t handle;
    char *text;

    range.addr = rig->remote;
    range.length = 16;
    return !(transfer(rig) == FERRY_ERR_FORKED &&
             ferry_batch_status(rig->engine, rig->batch, &sum) == FERRY_ERR_FORKED &&
             ferry_batch_wait(rig->engine, rig->batch, 1, NULL) == FERRY_ERR_FORKED &&
             ferry_batch_cancel(rig->engine, rig->batch) == FERRY_ERR_FORKED &&
             ferry_batch_create(rig->engine, 1, &handle) == FERRY_ERR_FORKED &&
             ferry_segment_open(rig->engine, "", 0, &handle) == FERRY_ERR_FORKED &&
             ferry_memory_register(rig->engine, &range, 1) == FERRY_ERR_FORKED &&
             ferry_memory_unregister(rig->engine, &range, 1, 0) == FERRY_ERR_FORKED &&
             ferry_engine_report(rig->engine, FERRY_REPORT_PROCESS, &text) == FERRY_ERR_FORKED &&
             ferry_notify_receive(rig->engine, 0, &notification) == FERRY_ERR_FORKED);
}

static int child_closes_it(const struct rig *rig)
{
    return ferry_engine_close(rig->engine) != FERRY_OK;
}

static int child_opens_its_own(const struct rig *rig)
{
    struct rig own;

    (void)rig;
    if (!make(&own) || transfer(&own) != FERRY_OK)
        return 1;
    if (pattern_differs(own.local, LENGTH, 3, 0) != PATTERN_SAME)
        return 2;
    return ferry_engine_close(own.engine) != FERRY_OK;
}

typedef int child_fn(const struct rig *rig);

static void run_child(const struct rig *rig, child_fn *fn)
{
    uint64_t until = test_deadline_ms(20000);
    pid_t child = fork();
    int status = 0;
    pid_t got;

    if (child == 0)
        _exit(fn(rig));
    assert_true(child > 0);
    while ((got = waitpid(child, &status, WNOHANG)) == 0 && test_now_ns() < until)
        test_nap();
    assert_int_equal(got, child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_fork_leaves_the_parent_alone_and_refuses_the_child(void **state)
{
    struct rig rig;

    (void)state;
    assert_true(make(&rig));
    for (uint32_t i = 0; i < 5; i++) {
        run_child(&rig, child_uses_the_parents_engine);
        assert_ok(transfer(&rig));
        run_child(&rig, child_closes_it);
        assert_ok(transfer(&rig));
        /* That sanitizer forbids threads in a child of a program that had some. */
        if (!TEST_THREAD_SANITIZER)
            run_child(&rig, child_opens_its_own);
        assert_ok(transfer(&rig));
        assert_int_equal(pattern_differs(rig.local, LENGTH, 3, 0), PATTERN_SAME);
    }
    assert_ok(ferry_engine_close(rig.engine));
}

/* Every descriptor of an engine closes on exec: a program that replaces the child sees none. */
static void test_descriptors_close_on_exec(void **state)
{
    struct rig rig;
    int fd;

    (void)state;
    assert_true(make(&rig));
    assert_ok(ferry_batch_eventfd(rig.engine, rig.batch, &fd));
    assert_ok(transfer(&rig));
    for (fd = 3; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags >= 0 && (flags & FD_CLOEXEC) == 0)
            fail_msg("descriptor %d stays open over exec", fd);
    }
    assert_ok(ferry_engine_close(rig.engine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork_leaves_the_parent_alone_and_refuses_the_child),
        cmocka_unit_test(test_descriptors_close_on_exec),
    };

    /* What the test's own caller left open is not ours to judge. */
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
