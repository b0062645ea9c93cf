/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table for people: one row a case, with its transport.
 */
#include <inttypes.h>
#include <stdio.h>

#include "record.h"
#include "text.h"

void ferry_bench_print_heading(void)
{
    printf("%-11s %-9s %9s %6s %7s %9s %11s %10s %10s %10s %10s %9s %9s %7s %12s\n", "op",
           "transport", "block", "batch", "threads", "GB/s", "ops/s", "mean us", "p50 us", "p99 us",
           "p999 us", "own", "target", "errors", "verified");
    printf("%-11s %-9s %9s %6s %7s %9s %11s %10s %10s %10s %10s %19s %7s %12s\n", "", "", "", "",
           "", "", "", "", "", "", "", "CPU s a GB", "", "");
}

static void print_cpu(double cpu_s_per_gb)
{
    if (cpu_s_per_gb >= 0)
        printf(" %9.3f", cpu_s_per_gb);
    else
        printf(" %9s", "-");
}

void ferry_bench_print_row(const struct ferry_bench_job *job,
                           const struct ferry_bench_result *result)
{
    const struct ferry_bench_histogram *latency = &result->latency;
    double seconds = result->seconds > 0 ? result->seconds : 1;
    char block[FERRY_CLI_TEXT_SIZE];
    char verified[FERRY_CLI_TEXT_SIZE];

    printf("%-11s %-9s %9s %6" PRIu32 " %7" PRIu32 " %9.3f %11.0f",
           ferry_bench_op_name(job->options->op),
           result->transport[0] != '\0' ? result->transport : "-",
           ferry_cli_size(result->c.block, block), result->c.batch, result->c.threads,
           (double)result->bytes / 1e9 / seconds, (double)result->ops / seconds);
    printf(" %10.1f %10.1f %10.1f %10.1f", ferry_bench_histogram_mean_ns(latency) / 1e3,
           (double)ferry_bench_histogram_at(latency, 0.5) / 1e3,
           (double)ferry_bench_histogram_at(latency, 0.99) / 1e3,
           (double)ferry_bench_histogram_at(latency, 0.999) / 1e3);
    print_cpu(ferry_bench_initiator_cpu_s_per_gb(result));
    print_cpu(ferry_bench_target_cpu_s_per_gb(job, result));
    printf(" %7" PRIu64 " %12s%s\n", result->errors,
           result->verified_bytes > 0 ? ferry_cli_size(result->verified_bytes, verified) : "-",
           result->partial ? "  partial" : "");
}
