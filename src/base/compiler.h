/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only place that knows about compilers: attributes and builtins behind project names.
 * Nothing here has state.
 */
#ifndef FERRY_BASE_COMPILER_H
#define FERRY_BASE_COMPILER_H

#include <stddef.h>

#define FERRY_PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#define FERRY_CHECKED                       __attribute__((warn_unused_result))
#define FERRY_NORETURN                      __attribute__((noreturn))
#define FERRY_COLD                          __attribute__((cold, noinline))
#define FERRY_LIKELY(x)                     __builtin_expect(!!(x), 1)
#define FERRY_UNLIKELY(x)                   __builtin_expect(!!(x), 0)
#define FERRY_CLEANUP(fn)                   __attribute__((cleanup(fn)))
#define FERRY_CACHE_LINE                    64
#define FERRY_ALIGNED_LINE                  __attribute__((aligned(FERRY_CACHE_LINE)))

/* The object that contains a member, from the member's address. */
#define FERRY_CONTAINER_OF(ptr, type, member)                                                      \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define FERRY_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/*
 * Around a system call that moves payload of another address space: its order is the protocol's,
 * which the thread sanitizer cannot see where both ends live in one process. Nothing otherwise.
 */
#if defined(__SANITIZE_THREAD__)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

static inline void ferry_payload_call_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

static inline void ferry_payload_call_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void ferry_payload_call_begin(void)
{
}

static inline void ferry_payload_call_end(void)
{
}
#endif

/* Tell a spinning core that it spins. */
static inline void ferry_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
