#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes: `ferry serve` owns memory, `ferry bench` reads and writes it and compares every byte.

    scripts/demo.py FERRY
"""
import os
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e"))
import harness  # noqa: E402

GIB = 1 << 30
GOAL_BYTES = 4 * GIB  # verified in each direction, and what each row tries to reach by itself
ROW_SECONDS = 30
ALL_SECONDS = 210
TRANSPORT = "hp_tcp"
ROWS = [(op, block, batch) for block, batch in ((4 << 10, 64), (1 << 20, 4), (64 << 20, 1)) for op in ("read", "write")]


def size_text(size):
    return "%d KiB" % (size >> 10) if size < 1 << 20 else "%d MiB" % (size >> 20)


def measure(ferry, target, row, until):
    """Run one row in pieces until it has verified its share or its time is over; the records."""
    op, block, batch = row
    got, row_until = [], time.monotonic() + ROW_SECONDS
    while sum(r["verified_bytes"] for r in got) < GOAL_BYTES:
        left = min(until, row_until) - time.monotonic()
        if left < 1:
            break
        done = sum(r["verified_bytes"] for r in got)
        # As long as the rest should take at the rate seen so far.
        seconds = 1.0 if not got else (GOAL_BYTES - done) / (done / sum(r["took"] for r in got))
        began = time.monotonic()
        records = harness.bench(ferry, "--target", target, "--transport", TRANSPORT, "--op", op, "--check",
                                "--block", block, "--batch", batch, "--threads", 1,
                                "--duration", "%.2f" % min(max(seconds, 0.2), left), seconds=left + 60)
        for record in records:
            record["took"] = time.monotonic() - began
            assert record["transport"] == TRANSPORT, "moved by %s" % record["transport"]
            assert record["errors"] == 0, "%d requests failed" % record["errors"]
            assert record["verified_bytes"] >= 0 and record["block"] == block and record["op"] == op, record
        assert sum(r["verified_bytes"] for r in records) > 0, "nothing was verified: %r" % records
        got += records
    return got


def main():
    ferry = sys.argv[1]
    until = time.monotonic() + ALL_SECONDS
    verified = {"read": 0, "write": 0}
    with_target = harness.Serve(ferry, memory=("256MiB",))
    try:
        print("target process %d serves %s; every byte is compared, and GB/s is the rate while doing so\n" % (with_target.pid, with_target.name))
        print("%-6s %8s %6s  %-9s %-7s %12s %8s %9s %9s" % ("op", "block", "batch", "transport", "reactor", "verified",
                                                          "GB/s", "p50 us", "CPU s/GB"))
        for row in ROWS:
            records = measure(ferry, with_target.name, row, until)
            assert records, "no time was left for %s of %s" % (row[0], size_text(row[1]))
            total = sum(r["verified_bytes"] for r in records)
            verified[row[0]] += total
            best = max(records, key=lambda r: r["verified_bytes"])
            print("%-6s %8s %6d  %-9s %-7s %8.2f GiB %8.2f %9.1f %9.2f" % (
                row[0], size_text(row[1]), row[2], best["transport"], best["reactor"], total / GIB,
                best["gb_per_s"], best["latency_us"]["p50"], sum(best["cpu_s_per_gb"].values())), flush=True)
        status = with_target.stop()
        assert status == 0, "the target ended with %d:\n%s" % (status, with_target.stderr())
    finally:
        with_target.close()
    print()
    for op, total in sorted(verified.items()):
        print("%s: %.2f GiB moved between two processes and verified" % (op.upper(), total / GIB))
    if min(verified.values()) < GOAL_BYTES:
        print("demo: less than %d GiB in one direction within the time" % (GOAL_BYTES // GIB), file=sys.stderr)
        sys.exit(1)


try:
    main()
except AssertionError as e:
    print("demo: " + str(e), file=sys.stderr)
    sys.exit(1)
