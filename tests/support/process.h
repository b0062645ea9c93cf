/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test asks about its own process (open descriptors, threads, resident memory, CPU time; all
 * of it read from /proc) and how it stops a child. Header only; the counts hold for the moment of
 * the call.
 */
#ifndef FERRY_TESTS_SUPPORT_PROCESS_H
#define FERRY_TESTS_SUPPORT_PROCESS_H

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Entries of a /proc folder, or -1. */
static inline int process_count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    if (dir == NULL)
        return -1;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* Open descriptors, without the one that counting takes. */
static inline int process_fd_count(void)
{
    return process_count_entries("/proc/self/fd") - 1;
}

static inline int process_thread_count(void)
{
    return process_count_entries("/proc/self/task");
}

/* Threads that still have the name of the one that made them: they have not begun to run. */
static inline int process_unnamed_threads(void)
{
    char own[32];
    char path[64];
    char name[32];
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    if (dir == NULL)
        return -1;
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)getpid());
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(own, sizeof(own), file) == NULL)
        own[0] = '\0';
    if (file != NULL)
        fclose(file);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/self/task/%.16s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file == NULL)
            continue;
        count += fgets(name, sizeof(name), file) != NULL && strcmp(name, own) == 0;
        fclose(file);
    }
    closedir(dir);
    return count - 1; /* the main thread */
}

/* Resident bytes now. */
static inline uint64_t process_rss_bytes(void)
{
    unsigned long total = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* User and system time of all threads so far, nanoseconds. */
static inline uint64_t process_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Stop a child. True once every thread of it stands still, which is after the signal was sent. */
static inline bool process_stop(pid_t child)
{
    int status;
    return kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child &&
           WIFSTOPPED(status);
}

#endif
