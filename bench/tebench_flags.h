/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flags of the reference benchmark, tebench, so that its published command lines run with
 * `ferry bench` in the place of its name. docs/benchmark.md lists which work. One thread.
 */
#ifndef FERRY_BENCH_TEBENCH_FLAGS_H
#define FERRY_BENCH_TEBENCH_FLAGS_H

#include <stdbool.h>

struct ferry_bench_options;

/*
 * Take those flags out of @argv and into @options, which hold the defaults; what is left is for our
 * own parser. One or two dashes, and "=VALUE" or a value of its own. On false, @error
 * (FERRY_BENCH_ERROR_SIZE) names flag, value and what was expected.
 */
bool ferry_bench_take_reference_flags(struct ferry_bench_options *options, int *argc, char **argv,
                                      char *error);

#endif
