/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files where the system says no: permissions, read-only mounts, full disks, limits of the process,
 * io_uring that is forbidden, memory that cannot be locked, devices that stall, processes that are
 * killed. Each in a process of its own. The argument names the way to read and write. Ends with a
 * table of the acceptance cases that were shown; what this host does not permit is skipped with a
 * reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "contract/file_child.h"
#include "contract/file_rig.h"
#include "contract/file_table.h"
#include "support/process.h"

#define MIB    (1024u * 1024u)
#define NOBODY 65534

static const struct file_kind *kind;
static const char *kind_name;

static const uint64_t two_files[] = {MIB, MIB};

/* ---- logging ---- */

static _Atomic int warnings;
static char last_warning[512];

static void count_line(void *arg, enum ferry_log_level level, const char *line)
{
    (void)arg;
    if (level > FERRY_LOG_WARN)
        return;
    snprintf(last_warning, sizeof(last_warning), "%s", line);
    atomic_fetch_add(&warnings, 1);
}

/* ---- users and mounts ---- */

static void become_nobody(void)
{
    if (geteuid() != 0)
        return; /* an ordinary user already */
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        file_child_skip("cannot become an ordinary user");
    /* Core settings that a change of user resets, and that /proc needs. */
    prctl(PR_SET_DUMPABLE, 1);
}

static void expect_pattern(const struct file_rig *rig, uint64_t at, uint64_t len, uint64_t from)
{
    assert_true(pattern_differs(rig->local.data + at, len, FILE_SEED, from) == PATTERN_SAME);
}

/* Both directions work, and what is written is there. */
static void expect_working(struct file_rig *rig)
{
    struct ferry_request request = file_request(rig, FERRY_READ, 0, 0, 2 * MIB);

    assert_ok(file_run(rig, &request, NULL, NULL));
    expect_pattern(rig, 0, 2 * MIB, 0);
    pattern_fill(rig->local.data, FILE_LOCAL, 2, 0);
    request = file_request(rig, FERRY_WRITE, 77, 1000, MIB + 5000);
    assert_ok(file_run(rig, &request, NULL, NULL));
    file_expect(rig, 1000, MIB + 5000, 2, 77);
    file_expect(rig, 0, 1000, FILE_SEED, 0);
    file_fill(rig, 0, FILE_SEED);
    file_fill(rig, 1, FILE_SEED);
}

static void child_permissions(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char path[320];
    char text[512];
    char name[400];
    uint64_t segment;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, two_files, 2);
    assert_ok(ferry_engine_close(rig.engine));
    assert_int_equal(chmod(file_path(&rig, 0, path), 0), 0);
    assert_int_equal(chmod(file_path(&rig, 1, path), 0444), 0);
    become_nobody();
    rig.engine = NULL;
    file_rig_again(&rig, NULL);
    request = file_request(&rig, FERRY_READ, 0, 0, 4096);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_PERMISSION);
    assert_non_null(strstr(text, file_path(&rig, 0, path)));
    assert_non_null(strstr(text, "Permission denied"));
    request = file_request(&rig, FERRY_READ, 0, MIB, 4096);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    expect_pattern(&rig, 0, 4096, MIB);
    pattern_fill(rig.local.data, 4096, 2, 0);
    request = file_request(&rig, FERRY_WRITE, 0, MIB, 4096);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_PERMISSION);
    assert_int_equal(task.bytes, 0);
    assert_non_null(strstr(text, file_path(&rig, 1, path)));
    /* It still reads. */
    request = file_request(&rig, FERRY_READ, 0, MIB, 4096);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    expect_pattern(&rig, 0, 4096, MIB);
    /* And by name. */
    snprintf(name, sizeof(name), "file://%s", file_path(&rig, 1, path));
    assert_ok(ferry_segment_open(rig.engine, name, test_deadline_ms(5000), &segment));
    request.segment = segment;
    request.remote_offset = 0;
    assert_ok(file_run(&rig, &request, NULL, NULL));
    assert_ok(ferry_engine_close(rig.engine));
    _exit(0); /* the folder is another user's */
}

/* Mounts of this process alone. */
static void private_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        file_child_skip("mounts of its own are not permitted");
}

static void child_read_only_mount(void **state)
{
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char text[512];

    (void)state;
    private_mounts();
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, two_files, 2);
    if (mount(rig.folder, rig.folder, NULL, MS_BIND, NULL) != 0 ||
        mount(NULL, rig.folder, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0)
        file_child_skip("a read-only mount is not permitted");
    request = file_request(&rig, FERRY_READ, 0, 0, 2 * MIB);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    expect_pattern(&rig, 0, 2 * MIB, 0);
    request = file_request(&rig, FERRY_WRITE, 0, 0, 4096);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_PERMISSION);
    assert_non_null(strstr(text, "Read-only file system"));
    assert_int_equal(umount2(rig.folder, MNT_DETACH), 0);
    file_rig_close(&rig);
}

/* A file system of 16 MiB, of the kind that has direct I/O. */
static void mount_small(const char *folder)
{
    char command[2048];

    snprintf(command, sizeof(command),
             "truncate -s 16M %s.img && mkfs.ext4 -q -F -O ^has_journal %s.img && "
             "mkdir -p %s && mount -o loop %s.img %s",
             folder, folder, folder, folder, folder);
    if (system(command) != 0)
        file_child_skip("a small file system cannot be made and mounted here");
}

static void fill_sparse(const struct file_rig *rig, uint32_t index, uint64_t length)
{
    char path[320];
    int fd = open(file_path(rig, index, path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    close(fd);
}

static void child_disk_full(void **state)
{
    enum { LENGTH = 24 * 1024 * 1024, PART = 4 * 1024 * 1024 };
    static const char *const buffered[] = {"transports.file.direct_io", "false", NULL};
    char cwd[128], folder[200], text[512], path[320];

    (void)state;
    private_mounts();
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    snprintf(folder, sizeof(folder), "%s/small-%d", cwd, (int)getpid());
    mount_small(folder);
    for (int round = 0; round < 2; round++) {
        struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
        struct ferry_request request;
        struct file_rig rig;
        uint64_t at = 0;

        file_rig_open_in(&rig, kind, round ? buffered : NULL, folder);
        rig.file_count = 1;
        rig.lengths[0] = LENGTH;
        fill_sparse(&rig, 0, LENGTH);
        file_describe(&rig, NULL);
        for (; at < LENGTH; at += PART) {
            pattern_fill(rig.local.data, PART, 3, at);
            request = file_request(&rig, FERRY_WRITE, 0, at, PART);
            if (file_run(&rig, &request, &task, text) != FERRY_OK)
                break;
        }
        assert_true(at < LENGTH);
        assert_int_equal(task.status, FERRY_ERR_NO_SPACE);
        assert_non_null(strstr(text, "No space left"));
        assert_true(task.bytes < PART);
        /* The beginning that counts is there. */
        file_expect(&rig, 0, at + task.bytes, 3, 0);
        file_expect_lengths(&rig);
        /* With room again the same request succeeds. */
        assert_int_equal(truncate(file_path(&rig, 0, path), 0), 0);
        assert_int_equal(truncate(path, LENGTH), 0);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        file_expect(&rig, at, PART, 3, at);
        file_rig_close(&rig);
    }
    umount2(folder, MNT_DETACH);
    snprintf(path, sizeof(path), "%s.img", folder);
    unlink(path);
    rmdir(folder);
}

static void child_file_size_limit(void **state)
{
    struct rlimit limit = {.rlim_cur = MIB / 2, .rlim_max = RLIM_INFINITY};
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    char text[512];

    (void)state;
    file_rig_open(&rig, kind, NULL);
    rig.file_count = 1;
    rig.lengths[0] = MIB;
    file_fill(&rig, 0, FILE_SEED);
    file_describe(&rig, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    request = file_request(&rig, FERRY_WRITE, 0, MIB / 2, 65536);
    assert_status(file_run(&rig, &request, &task, text), FERRY_ERR_LIMIT);
    assert_int_equal(task.state, FERRY_TASK_FAILED);
    assert_non_null(strstr(text, "File too large"));
    request = file_request(&rig, FERRY_WRITE, 0, 0, 65536);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    file_rig_close(&rig);
}

/* ---- limits of the process ---- */

static void forbid_io_uring(int err)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)err & SECCOMP_RET_DATA)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        file_child_skip("a filter of system calls is not permitted");
}

static void without_io_uring(int err, const char *reason)
{
    static const char *const quiet[] = {"reactor", "epoll", NULL};
    struct file_rig rig;

    forbid_io_uring(err);
    ferry_log_set_sink(count_line, NULL);
    file_rig_open(&rig, file_find_kind("uring"), quiet);
    file_segment(&rig, two_files, 2);
    expect_working(&rig);
    expect_working(&rig);
    ferry_log_set_sink(NULL, NULL);
    /* One line, however many requests. */
    assert_int_equal(atomic_load(&warnings), 1);
    assert_non_null(strstr(last_warning, reason));
    assert_int_equal(file_report_flag(&rig, "backends.io_uring.usable"), 0);
    assert_int_equal(file_report_flag(&rig, "backends.pool.usable"), 1);
    file_rig_close(&rig);
}

static void child_io_uring_eperm(void **state)
{
    (void)state;
    without_io_uring(EPERM, "Operation not permitted");
}

static void child_io_uring_enosys(void **state)
{
    (void)state;
    without_io_uring(ENOSYS, "not implemented");
}

static void child_locked_memory(void **state)
{
    struct rlimit limit = {.rlim_cur = 65536, .rlim_max = 65536};
    struct file_rig rig;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, two_files, 2);
    assert_ok(ferry_engine_close(rig.engine));
    assert_int_equal(chmod(rig.folder, 0777), 0);
    for (uint32_t i = 0; i < 2; i++) {
        char path[320];

        assert_int_equal(chmod(file_path(&rig, i, path), 0666), 0);
    }
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    become_nobody();
    rig.engine = NULL;
    file_rig_again(&rig, NULL);
    expect_working(&rig);
    assert_ok(ferry_engine_close(rig.engine));
    _exit(0);
}

static void child_descriptor_limit(void **state)
{
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 4096};
    uint32_t count = 1000;
    uint64_t *lengths = calloc(count, sizeof(*lengths));
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    assert_non_null(lengths);
    for (uint32_t i = 0; i < count; i++)
        lengths[i] = 1500 + i % 3000;
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, lengths, count);
    /* The engine took what it needs; what is left of 64 is for files. */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    request = file_request(&rig, FERRY_READ, 0, 0, 1900000);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    expect_pattern(&rig, 0, 1900000, 0);
    pattern_fill(rig.local.data, FILE_LOCAL, 5, 0);
    request = file_request(&rig, FERRY_WRITE, 0, 1000, 1800000);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    limit.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    file_expect(&rig, 1000, 1800000, 5, 0);
    file_rig_close(&rig);
    free(lengths);
}

/* ---- time ---- */

/*
 * A device that stalls: the memory it reads into has a page that nobody provides yet, so the read
 * is under way until somebody does. The request ends at its deadline, and its memory stays in use.
 */
static void child_stall(void **state)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register region = {.mode = UFFDIO_REGISTER_MODE_MISSING};
    struct uffdio_zeropage zero = {0};
    struct ferry_request request;
    struct file_rig rig;
    size_t len = 65536;
    void *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

    (void)state;
    if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api) != 0)
        file_child_skip("userfaultfd is not permitted");
    assert_true(map != MAP_FAILED);
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, two_files, 2);
    range.addr = map;
    range.length = len;
    assert_ok(ferry_memory_register(rig.engine, &range, 1));
    region.range.start = (uintptr_t)map;
    region.range.len = len;
    assert_int_equal(ioctl(uffd, UFFDIO_REGISTER, &region), 0);

    request = file_request(&rig, FERRY_READ, 0, 0, len);
    request.local = map;
    uint64_t begin = test_now_ns();
    request.deadline_ns = begin + 500000000;
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), NULL));
    assert_true(test_now_ns() - begin >= 500000000);
    assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
    assert_int_equal(task.state, FERRY_TASK_TIMED_OUT);
    assert_int_equal(file_report(&rig, "quarantined"), 1);
    assert_status(ferry_memory_unregister(rig.engine, &range, 1, 1000000), FERRY_ERR_BUSY);
    /* Others go on. */
    request = file_request(&rig, FERRY_READ, 0, MIB, 65536);
    assert_ok(file_run(&rig, &request, NULL, NULL));
    expect_pattern(&rig, 0, 65536, MIB);

    zero.range = region.range;
    assert_int_equal(ioctl(uffd, UFFDIO_ZEROPAGE, &zero), 0);
    assert_within_ms(file_report(&rig, "quarantined") == 0, 20000);
    assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 20000000000u));
    close(uffd);
    munmap(map, len);
    file_rig_close(&rig);
}

static void mark(const char *name)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", getenv("FERRY_TEST_MARKS"), name);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void await_mark(const char *name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", getenv("FERRY_TEST_MARKS"), name);
    assert_within_ms(access(path, F_OK) == 0, 120000);
}

/*
 * For a machine where somebody else stops and starts the device under FERRY_TEST_FOLDER and says so
 * with marks: see tests/e2e/test_file_vm.py.
 */
static void child_device_stall(void **state)
{
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    uint64_t begin;

    (void)state;
    file_rig_open_in(&rig, kind, NULL, getenv("FERRY_TEST_FOLDER"));
    file_segment(&rig, two_files, 2);
    sync();
    range.length = 65536;
    assert_int_equal(posix_memalign(&range.addr, 4096, range.length), 0);
    assert_ok(ferry_memory_register(rig.engine, &range, 1));
    request = file_request(&rig, FERRY_READ, 0, 0, range.length);
    request.local = range.addr;
    assert_ok(file_run(&rig, &request, NULL, NULL));
    mark("ready");
    await_mark("stopped");
    begin = test_now_ns();
    request.deadline_ns = begin + 1000000000;
    request.remote_offset = 65536;
    assert_ok(ferry_batch_reset(rig.engine, rig.batch));
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(60000), NULL));
    assert_true(test_now_ns() - begin >= 1000000000);
    assert_ok(ferry_task_status(rig.engine, rig.batch, 0, &task));
    assert_int_equal(task.state, FERRY_TASK_TIMED_OUT);
    assert_int_equal(file_report(&rig, "quarantined"), 1);
    assert_status(ferry_memory_unregister(rig.engine, &range, 1, 1000000), FERRY_ERR_BUSY);
    mark("timed_out");
    await_mark("started");
    assert_within_ms(file_report(&rig, "quarantined") == 0, 60000);
    assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 60000000000u));
    free(range.addr);
    file_rig_close(&rig);
}

/* Memory of many addresses and few pages, so that a long READ needs no memory. */
static unsigned char *repeated_map(uint64_t len, uint64_t page_bytes)
{
    int fd = (int)syscall(SYS_memfd_create, "ferry-test", 0);
    unsigned char *map = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                              0);

    assert_true(fd >= 0 && map != MAP_FAILED);
    assert_int_equal(ftruncate(fd, (off_t)page_bytes), 0);
    for (uint64_t at = 0; at < len; at += page_bytes)
        assert_true(mmap(map + at, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                         0) == map + at);
    close(fd);
    return map;
}

static uint64_t anonymous_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "RssAnon: %llu", &kib) == 1)
            break;
    }
    fclose(file);
    return kib;
}

static void child_long_request(void **state)
{
    uint64_t len = test_is_long() ? (uint64_t)4 << 30 : (uint64_t)512 << 20;
    struct ferry_memory_range range = FERRY_MEMORY_RANGE_INIT;
    struct ferry_task_status task = FERRY_TASK_STATUS_INIT;
    struct ferry_batch_status sum = FERRY_BATCH_STATUS_INIT;
    struct ferry_request request;
    struct file_rig rig;
    uint64_t before;

    (void)state;
    file_rig_open(&rig, kind, NULL);
    rig.file_count = 1;
    rig.lengths[0] = len;
    fill_sparse(&rig, 0, len);
    file_describe(&rig, NULL);
    range.addr = repeated_map(len, 64 * MIB);
    range.length = len;
    assert_ok(ferry_memory_register(rig.engine, &range, 1));
    request = file_request(&rig, FERRY_READ, 0, 0, len);
    request.local = range.addr;
    before = anonymous_kib();
    assert_ok(file_run(&rig, &request, &task, NULL));
    assert_int_equal(task.bytes, len);
    assert_true(anonymous_kib() < before + 64 * 1024);

    /* And canceled in the middle: the end comes, and the memory is ours. */
    assert_ok(ferry_batch_reset(rig.engine, rig.batch));
    assert_ok(ferry_batch_submit(rig.engine, rig.batch, &request, 1));
    assert_ok(ferry_batch_cancel(rig.engine, rig.batch));
    assert_ok(ferry_batch_wait(rig.engine, rig.batch, test_deadline_ms(20000), &sum));
    assert_true(sum.state == FERRY_TASK_CANCELED || sum.state == FERRY_TASK_COMPLETED);
    assert_ok(ferry_memory_unregister(rig.engine, &range, 1, 20000000000u));
    munmap(range.addr, len);
    file_rig_close(&rig);
}

/* ---- killed ---- */

static void child_writer(void **state)
{
    struct ferry_request request;
    struct file_rig rig;

    (void)state;
    file_rig_open_in(&rig, kind, NULL, getenv("FERRY_TEST_FOLDER"));
    rig.file_count = 2;
    memcpy(rig.lengths, two_files, sizeof(two_files));
    file_describe(&rig, NULL);
    for (uint64_t round = 0;; round++) {
        pattern_fill(rig.local.data, 2 * MIB, 20 + round % 2, 0);
        request = file_request(&rig, FERRY_WRITE, 0, 0, 2 * MIB);
        assert_ok(file_run(&rig, &request, NULL, NULL));
        if (round == 1) {
            int fd = open(getenv("FERRY_TEST_MARK"), O_CREAT | O_WRONLY, 0600);

            close(fd);
        }
    }
}

static pid_t start_writer(const char *folder, const char *mark)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("FERRY_TEST_FOLDER", folder, 1);
        setenv("FERRY_TEST_MARK", mark, 1);
        execl("/proc/self/exe", "child", kind_name, "--child", "writer", (char *)NULL);
        _exit(126);
    }
    return pid;
}

/* Killed in the middle of a WRITE: each block holds what one of the WRITEs had, whole. */
static void test_file_killed_while_writing_leaves_whole_blocks(void **state)
{
    unsigned char *bytes = malloc(2 * MIB);
    struct file_rig rig;
    char mark[300];

    (void)state;
    assert_non_null(bytes);
    file_rig_open(&rig, kind, NULL);
    file_segment(&rig, two_files, 2);
    for (int round = 0; round < 3; round++) {
        pid_t pid;

        snprintf(mark, sizeof(mark), "%s/mark", rig.folder);
        unlink(mark);
        pid = start_writer(rig.folder, mark);
        assert_within_ms(access(mark, F_OK) == 0, 30000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        file_expect_lengths(&rig);
        file_read_back(&rig, 0, bytes, 2 * MIB);
        for (uint64_t at = 0; at < 2 * MIB; at += 4096)
            assert_true(pattern_differs(bytes + at, 4096, 20, at) == PATTERN_SAME ||
                        pattern_differs(bytes + at, 4096, 21, at) == PATTERN_SAME);
    }
    free(bytes);
    shows_case(36, "killed while writing: each block is whole, old or new");
    file_rig_close(&rig);
}

/* ---- the parent's side ---- */

static void test_file_permissions_are_told(void **state)
{
    (void)state;
    file_child_run(kind_name, "permissions");
    shows_case(30, "0000: no access, with path and reason; 0444: READ yes, WRITE no");
    shows_fault(15, "a file that may only be read is opened for reading");
}

static void test_file_on_a_read_only_mount_is_read(void **state)
{
    (void)state;
    file_child_run(kind_name, "read_only_mount");
    shows_case(31, "a read-only mount: READ yes, WRITE no, with the reason");
}

static void test_file_full_disk_fails_with_what_is_there(void **state)
{
    (void)state;
    file_child_run(kind_name, "disk_full");
    shows_case(32, "a full disk: the good beginning, and success once there is room");
}

static void test_file_size_limit_is_an_error_and_no_signal(void **state)
{
    (void)state;
    file_child_run(kind_name, "file_size_limit");
    shows_case(33, "RLIMIT_FSIZE: an error, the process lives");
}

static void test_file_without_io_uring_by_eperm(void **state)
{
    (void)state;
    file_child_run(kind_name, "io_uring_eperm");
    shows_case(37, "io_uring forbidden (EPERM): the same results, one line says why");
}

static void test_file_without_io_uring_by_enosys(void **state)
{
    (void)state;
    file_child_run(kind_name, "io_uring_enosys");
    shows_case(37, "no io_uring (ENOSYS): the same results, one line says why");
}

static void test_file_with_little_locked_memory(void **state)
{
    (void)state;
    file_child_run(kind_name, "locked_memory");
    shows_case(38, "64 KiB of locked memory, an ordinary user: the same results");
}

static void test_file_with_few_descriptors(void **state)
{
    (void)state;
    file_child_run(kind_name, "descriptor_limit");
    shows_case(39, "a limit of 64 descriptors, a thousand files: all right");
}

static void test_file_stall_ends_at_the_deadline(void **state)
{
    (void)state;
    /* A ring takes the page in the dispatcher's own call: what stalls there is no device. */
    if (strcmp(kind_name, "pool") != 0)
        return;
    file_child_run(kind_name, "stall");
    shows_case(35, "a stall: timed out at the deadline, memory busy until it is over");
}

static void test_file_long_request_needs_no_memory(void **state)
{
    (void)state;
    file_child_run(kind_name, "long_request");
    shows_case(20, "one long request: all bytes, no memory of ours (4 GiB in the long run)");
    shows_case(40, "a long READ is canceled, and its memory is free");
}

static const struct file_child children[] = {
    {"permissions", child_permissions},
    {"read_only_mount", child_read_only_mount},
    {"disk_full", child_disk_full},
    {"file_size_limit", child_file_size_limit},
    {"io_uring_eperm", child_io_uring_eperm},
    {"io_uring_enosys", child_io_uring_enosys},
    {"locked_memory", child_locked_memory},
    {"descriptor_limit", child_descriptor_limit},
    {"stall", child_stall},
    {"long_request", child_long_request},
    {"writer", child_writer},
    {"device_stall", child_device_stall},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file_permissions_are_told),
        cmocka_unit_test(test_file_on_a_read_only_mount_is_read),
        cmocka_unit_test(test_file_full_disk_fails_with_what_is_there),
        cmocka_unit_test(test_file_size_limit_is_an_error_and_no_signal),
        cmocka_unit_test(test_file_without_io_uring_by_eperm),
        cmocka_unit_test(test_file_without_io_uring_by_enosys),
        cmocka_unit_test(test_file_with_little_locked_memory),
        cmocka_unit_test(test_file_with_few_descriptors),
        cmocka_unit_test(test_file_stall_ends_at_the_deadline),
        cmocka_unit_test(test_file_long_request_needs_no_memory),
        cmocka_unit_test(test_file_killed_while_writing_leaves_whole_blocks),
    };
    int failed;

    kind_name = argc >= 2 ? argv[1] : "";
    kind = file_find_kind(kind_name);
    if (kind == NULL) {
        fprintf(stderr, "usage: %s KIND, see file_rig.c\n", argv[0]);
        return 2;
    }
    file_skip_if_missing(kind);
    failed = file_child_main(argc, argv, children);
    if (failed >= 0)
        return failed;
    failed = cmocka_run_group_tests_name(kind_name, tests, NULL, NULL);
    file_table_print(kind_name);
    return failed;
}
