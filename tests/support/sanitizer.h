/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sanitizer a test is built with, for gcc and clang: what a test measures (memory, threads
 * after fork) may be the sanitizer's and not ours. Header only.
 */
#ifndef FERRY_TESTS_SUPPORT_SANITIZER_H
#define FERRY_TESTS_SUPPORT_SANITIZER_H

#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__)
#define TEST_ADDRESS_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_ADDRESS_SANITIZER true
#endif
#endif
#ifndef TEST_ADDRESS_SANITIZER
#define TEST_ADDRESS_SANITIZER false
#endif

#if defined(__SANITIZE_THREAD__)
#define TEST_THREAD_SANITIZER true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_THREAD_SANITIZER true
#endif
#endif
#ifndef TEST_THREAD_SANITIZER
#define TEST_THREAD_SANITIZER false
#endif

#endif
