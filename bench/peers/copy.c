/* SPDX-License-Identifier: Apache-2.0 */
/* copy: the ceilings of a copy between two processes of one host.
 *
 *   copy serve
 *   copy run WAY OP LEN SECONDS PID VMADDR FD
 *
 * "serve" holds ARENA bytes of private memory and as many of a memory
 * descriptor, prints "PID VMADDR FD" and sleeps until it is killed.  "run" copies
 * LEN bytes between its own memory and the beginning of that, one copy after the
 * other, one thread.  WAY is "vm" (one process_vm_readv or process_vm_writev a
 * copy) or "map" (one memcpy a copy, the descriptor mapped through /proc).  OP is
 * "read" or "write".  No registry, no leases, no other thread.  One JSON line on
 * standard output.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define ARENA       (256UL << 20)
#define SAMPLES_MAX (1UL << 22)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static char *arena(int fd)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *p = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (p == MAP_FAILED)
        die("mmap");
    for (size_t i = 0; i < ARENA; i += 4096)
        p[i] = (char)(i >> 12);
    return p;
}

static int serve(void)
{
    int fd = memfd_create("copy", 0);
    if (fd < 0 || ftruncate(fd, ARENA) != 0)
        die("memfd");
    prctl(PR_SET_PDEATHSIG, 15);
    char *own = arena(-1);
    arena(fd);
    printf("%d %llu %d\n", (int)getpid(), (unsigned long long)(uintptr_t)own, fd);
    fflush(stdout);
    for (;;)
        pause();
}

struct copy {
    char *local;
    char *remote; /* mapped here, or an address of the other process */
    size_t len;
    pid_t pid; /* 0: mapped here */
    int write;
};

static void once(const struct copy *c)
{
    struct iovec l = {c->local, c->len}, r = {c->remote, c->len};
    if (c->pid == 0) {
        memcpy(c->write ? c->remote : c->local, c->write ? c->local : c->remote, c->len);
        __asm__ volatile("" ::: "memory");
        return;
    }
    ssize_t got = c->write ? process_vm_writev(c->pid, &l, 1, &r, 1, 0)
                           : process_vm_readv(c->pid, &l, 1, &r, 1, 0);
    if (got != (ssize_t)c->len)
        die("process_vm");
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static int run(char **v)
{
    static float us[SAMPLES_MAX];
    struct copy c = {
        .local = arena(-1), .len = strtoull(v[2], NULL, 0), .write = !strcmp(v[1], "write")};
    double seconds = atof(v[3]), begin, t0, t1;
    uint64_t done = 0;
    size_t n = 0;
    if (c.len == 0 || c.len > ARENA)
        return 2;
    if (!strcmp(v[0], "vm")) {
        c.pid = atoi(v[4]);
        c.remote = (char *)(uintptr_t)strtoull(v[5], NULL, 0);
    } else {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", atoi(v[4]), atoi(v[6]));
        int fd = open(path, O_RDWR);
        if (fd < 0)
            die(path);
        c.remote = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (c.remote == MAP_FAILED)
            die("mmap");
    }
    for (begin = now(); now() - begin < 0.3;)
        once(&c);
    begin = t1 = now();
    do {
        t0 = t1;
        once(&c);
        t1 = now();
        if (n < SAMPLES_MAX)
            us[n++] = (float)((t1 - t0) * 1e6);
        done++;
    } while (t1 - begin < seconds);
    qsort(us, n, sizeof us[0], by_float);
    printf("{\"ops\":%llu,\"gbps\":%.4f,\"p50_us\":%.3f,\"p99_us\":%.3f}\n",
           (unsigned long long)done, (double)done * (double)c.len / (t1 - begin) / 1e9, us[n / 2],
           us[(size_t)((double)n * 0.99)]);
    return 0;
}

int main(int n, char **v)
{
    if (n == 2 && !strcmp(v[1], "serve"))
        return serve();
    if (n == 9 && !strcmp(v[1], "run"))
        return run(v + 2);
    fprintf(stderr, "see the comment at the top of copy.c\n");
    return 2;
}
