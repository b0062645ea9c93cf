/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assertions about our own invariants. Anything a caller, peer, file, device or the network can
 * cause is an error with a status, never an assertion.
 */
#ifndef FERRY_BASE_ASSERT_H
#define FERRY_BASE_ASSERT_H

#include "base/compiler.h"

/* Print the broken invariant to standard error and abort. */
FERRY_NORETURN FERRY_COLD void ferry_assert_failed(const char *expr, const char *file, int line);

/* On in all builds. */
#define FERRY_ASSERT(expr)                                                                         \
    (FERRY_LIKELY(expr) ? (void)0 : ferry_assert_failed(#expr, __FILE__, __LINE__))

/* For the per-slice path: on in debug builds and in CI (-DFERRY_DEBUG). */
#ifdef FERRY_DEBUG
#define FERRY_DASSERT(expr) FERRY_ASSERT(expr)
#else
#define FERRY_DASSERT(expr) ((void)sizeof(expr))
#endif

#endif
