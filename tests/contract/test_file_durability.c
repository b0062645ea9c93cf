/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a WRITE to a file is complete: durability none, data and full. The system's calls are
 * wrapped at link time, so the test sees them in their order, holds a sync, or makes it fail.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "contract/file_rig.h"

#define MIB (1024u * 1024u)

static const struct file_kind *kind;

static _Atomic uint32_t writes, dsync_writes, data_syncs, full_syncs, running_writes;
static _Atomic uint32_t writes_in_sync; /* WRITEs under way when a sync began: it covers none */
static _Atomic int sync_error;
static _Atomic bool sync_held;
static _Atomic uint32_t syncs_waiting;

ssize_t __real_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fsync(int fd);

ssize_t __wrap_pwritev64v2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
    ssize_t put;

    atomic_fetch_add(&running_writes, 1);
    put = __real_pwritev64v2(fd, iov, count, offset, flags);
    atomic_fetch_sub(&running_writes, 1);
    atomic_fetch_add(&writes, 1);
    if (flags & RWF_DSYNC)
        atomic_fetch_add(&dsync_writes, 1);
    return put;
}

static int sync_with(int fd, int (*real)(int), _Atomic uint32_t *counter)
{
    int err;

    atomic_fetch_add(&writes_in_sync, atomic_load(&running_writes));
    atomic_fetch_add(&syncs_waiting, 1);
    while (atomic_load(&sync_held))
        test_nap();
    atomic_fetch_sub(&syncs_waiting, 1);
    err = atomic_load(&sync_error);
    if (err != 0) {
        errno = err;
        return -1;
    }
    if (real(fd) != 0)
        return -1;
    atomic_fetch_add(counter, 1);
    return 0;
}

int __wrap_fdatasync(int fd)
{
    return sync_with(fd, __real_fdatasync, &data_syncs);
}

int __wrap_fsync(int fd)
{
    return sync_with(fd, __real_fsync, &full_syncs);
}

static void open_rig(struct file_rig *rig, const char *durability, const char *open_files)
{
    const char *const settings[] = {"transports.file.durability",
                                    durability,
                                    "transports.file.slice_bytes",
                                    "64KiB",
                                    "transports.file.open_files_max",
                                    open_files,
                                    NULL};
    static const uint64_t lengths[] = {MIB, MIB};

    file_rig_open(rig, kind, settings);
    file_segment(rig, lengths, 2);
    atomic_store(&writes, 0);
    atomic_store(&dsync_writes, 0);
    atomic_store(&data_syncs, 0);
    atomic_store(&full_syncs, 0);
    atomic_store(&writes_in_sync, 0);
    pattern_fill(rig->local.data, FILE_LOCAL, 2, 0);
}

static void write_range(struct file_rig *rig, uint64_t at, uint64_t len)
{
    struct ferry_request request = file_request(rig, FERRY_WRITE, at, at, len);

    assert_ok(file_run(rig, &request, NULL, NULL));
    file_expect(rig, at, len, 2, at);
}

static void test_durability_none_syncs_nothing(void **state)
{
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "none", "8");
    write_range(&rig, 0, 65536);
    write_range(&rig, MIB / 2, MIB);
    assert_true(atomic_load(&writes) > 0);
    assert_int_equal(atomic_load(&dsync_writes), 0);
    assert_int_equal(atomic_load(&data_syncs) + atomic_load(&full_syncs), 0);
    file_rig_close(&rig);
}

/* Few pieces bring their own sync; READs none. */
static void test_durability_data_of_a_short_write_is_in_the_write(void **state)
{
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "data", "8");
    write_range(&rig, 65536, 65536);
    write_range(&rig, 100, 5000);
    assert_true(atomic_load(&writes) >= 2);
    assert_int_equal(atomic_load(&dsync_writes), atomic_load(&writes));
    assert_int_equal(atomic_load(&data_syncs), 0);
    request = file_request(&rig, FERRY_READ, 0, 0, MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_int_equal(atomic_load(&data_syncs) + atomic_load(&full_syncs), 0);
    file_rig_close(&rig);
}

/* The end is told after the sync has returned, and the sync begins after the last piece. */
static void end_waits_for_the_sync(const char *durability, _Atomic uint32_t *counter)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;

    open_rig(&rig, durability, "8");
    atomic_store(&sync_held, true);
    request = file_request(&rig, FERRY_WRITE, 0, MIB / 2, MIB);
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_within_ms(atomic_load(&syncs_waiting) == 1, 20000);
    /* Every byte was written, and the task is open all the same. */
    assert_true(atomic_load(&writes) >= 16);
    for (int i = 0; i < 50; i++) {
        assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
        assert_int_equal(task.state, FERRY_TASK_PENDING);
        test_nap();
    }
    assert_int_equal(atomic_load(counter), 0);
    atomic_store(&sync_held, false);
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
    assert_int_equal(task.state, FERRY_TASK_COMPLETED);
    /* Both files. */
    assert_int_equal(atomic_load(counter), 2);
    assert_int_equal(atomic_load(&writes_in_sync), 0);
    file_expect(&rig, MIB / 2, MIB, 2, 0);
    file_rig_close(&rig);
}

static void test_durability_data_ends_after_the_sync_of_every_file(void **state)
{
    (void)state;
    end_waits_for_the_sync("data", &data_syncs);
}

static void test_durability_full_syncs_all_of_the_files_state(void **state)
{
    (void)state;
    end_waits_for_the_sync("full", &full_syncs);
}

static void test_durability_sync_that_fails_fails_the_task(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char text[512];

    (void)state;
    open_rig(&rig, "data", "8");
    atomic_store(&sync_error, EIO);
    request = file_request(&rig, FERRY_WRITE, 0, 0, MIB);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_IO);
    assert_int_equal(task.bytes, 0);
    assert_non_null(strstr(text, "durable"));
    assert_non_null(strstr(text, "Input/output error"));
    atomic_store(&sync_error, 0);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    file_rig_close(&rig);
}

/* A file that is closed to make room for another is synced first, and before the task ends. */
static void test_durability_files_closed_for_others_are_synced_first(void **state)
{
    struct file_rig rig;

    (void)state;
    open_rig(&rig, "data", "1");
    write_range(&rig, MIB / 2, MIB);
    assert_true(atomic_load(&data_syncs) >= 2);
    assert_int_equal(atomic_load(&writes_in_sync), 0);
    file_rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_durability_none_syncs_nothing),
        cmocka_unit_test(test_durability_data_of_a_short_write_is_in_the_write),
        cmocka_unit_test(test_durability_data_ends_after_the_sync_of_every_file),
        cmocka_unit_test(test_durability_full_syncs_all_of_the_files_state),
        cmocka_unit_test(test_durability_sync_that_fails_fails_the_task),
        cmocka_unit_test(test_durability_files_closed_for_others_are_synced_first),
    };

    kind = file_find_kind("pool");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
