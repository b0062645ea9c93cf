/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The subcommand `ferry bench`: measures transfers, and verifies what they move.
 */
#ifndef FERRY_BENCH_BENCH_H
#define FERRY_BENCH_BENCH_H

/* argv[0] is what messages begin with. Returns one of the command's exit statuses. */
int ferry_bench_main(int argc, char **argv);

#endif
