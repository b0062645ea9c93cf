/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a fuzz target defines. libFuzzer calls it with inputs it makes up; replay.c calls it with
 * the files of a corpus, so that every input ever found stays a regression test under any compiler.
 */
#ifndef FERRY_TESTS_FUZZ_H
#define FERRY_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* The name is libFuzzer's. Return 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* On in all builds: a broken promise must end the run, whatever NDEBUG says. */
#define FUZZ_REQUIRE(expr)                                                                         \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #expr);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
