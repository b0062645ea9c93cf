#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What protection costs: ferry plain, with checksums, with a key, with TLS in OpenSSL, and in the kernel.

    bench/peers/access.py --ferry build/ferry [--rounds 5] [--seconds 2] [--out FILE]

One `ferry serve` and one `ferry bench` of each kind take turns, round by round, in one run on one machine. A
line per cell: the median rate and CPU time per GB of each kind, and the median of the rounds' ratios to
plain. `connect` is a whole `ferry bench` of a millisecond: start, control request, connections, the end. Kinds that
this machine cannot do are named and left out.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CELLS = [("read", 4096, 1), ("read", 4096, 64), ("read", 1 << 20, 4), ("read", 64 << 20, 1), ("write", 4096, 1),
         ("write", 1 << 20, 4), ("write", 64 << 20, 1)]


def run(command, seconds=120):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds, check=True).stdout


def settings(pairs):
    return [part for pair in pairs for part in ("--set", pair)]


def make_kinds(folder):
    """Name: settings of both sides."""
    key, cert, private = (os.path.join(folder, name) for name in ("key", "cert.pem", "cert.key"))
    run(["sh", "-c", "umask 077; openssl rand -hex 32 > %s; openssl req -x509 -newkey ec -pkeyopt "
         "ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=bench -addext subjectAltName=IP:127.0.0.1 -keyout %s "
         "-out %s" % (key, private, cert)])
    tls = ["tls.cert=" + cert, "tls.key=" + private, "tls.ca=" + cert]
    kinds = {"plain": [], "sum": ["transports.hp_tcp.checksum=true"], "key": ["auth_key_file=" + key],
             "tls": tls + ["tls.kernel=false"]}
    with open("/proc/sys/net/ipv4/tcp_available_ulp", encoding="ascii") as f:
        if "tls" in f.read().split():
            kinds["ktls"] = tls + ["tls.kernel=true"]
        else:
            print("left out: ktls: this kernel has no TLS (modprobe tls)")
    return kinds


class Server:
    def __init__(self, ferry, kind):
        self.child = subprocess.Popen([ferry, "serve", "--listen", "127.0.0.1:0", "--json", "--memory", "256MiB",
                                       *settings(kind)], stdout=subprocess.PIPE)
        self.name = json.loads(self.child.stdout.readline())["name"]

    def close(self):
        self.child.terminate()
        self.child.wait(timeout=20)


def measure(ferry, server, kind, cell, seconds):
    op, block, batch = cell
    out = run([ferry, "bench", "--json", "--target", server.name, "--op", op, "--block", str(block), "--batch",
               str(batch), "--duration", str(seconds), *settings(kind)], 60 + 10 * seconds)
    record = json.loads(out.splitlines()[-1])
    assert record["errors"] == 0, record
    cost = record["cpu_s_per_gb"]
    return {"gb_per_s": record["gb_per_s"], "p50_us": record["latency_us"]["p50"],
            "cpu_s_per_gb": sum(v for v in cost.values() if v)}


def connect(ferry, server, kind):
    begin = time.monotonic()
    run([ferry, "bench", "--json", "--target", server.name, "--op", "read", "--block", "4096", "--duration", "0.001",
         *settings(kind)], 60)
    return {"ms": (time.monotonic() - begin) * 1000}


def ratio(results, cell, kind, key):
    pairs = [(a[key], b[key]) for a, b in zip(results[cell, kind], results[cell, "plain"]) if a[key] and b[key]]
    return statistics.median(a / b for a, b in pairs) if pairs else float("nan")


def report(results, kinds):
    print("%-18s %-6s %9s %8s %10s %8s %9s %8s" % ("cell", "kind", "GB/s", "/ plain", "CPU s/GB", "/ plain", "p50 us",
                                                   "/ plain"))
    for cell in CELLS:
        name = "%s %d x %d" % cell
        for kind in kinds:
            middle = {key: statistics.median(r[key] for r in results[cell, kind]) for key in results[cell, kind][0]}
            print("%-18s %-6s %9.3f %8.2f %10.3f %8.2f %9.1f %8.2f" % (
                name, kind, middle["gb_per_s"], ratio(results, cell, kind, "gb_per_s"), middle["cpu_s_per_gb"],
                ratio(results, cell, kind, "cpu_s_per_gb"), middle["p50_us"], ratio(results, cell, kind, "p50_us")))
    for kind in kinds:
        times = [r["ms"] for r in results["connect", kind]]
        print("%-18s %-6s %9.1f ms, %.2f of plain" % ("connect", kind, statistics.median(times),
                                                      ratio(results, "connect", kind, "ms")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ferry", default="build/ferry")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--out", help="keep every measurement as a JSON line")
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="ferry-access-")
    servers, results = {}, {}
    try:
        kinds = make_kinds(folder)
        for name, kind in kinds.items():
            servers[name] = Server(arguments.ferry, kind)
        for number in range(arguments.rounds):
            for cell in CELLS + ["connect"]:
                for name, kind in kinds.items():
                    got = connect(arguments.ferry, servers[name], kind) if cell == "connect" else \
                        measure(arguments.ferry, servers[name], kind, cell, arguments.seconds)
                    results.setdefault((cell, name), []).append(got)
                    if arguments.out:
                        with open(arguments.out, "a", encoding="utf-8") as f:
                            print(json.dumps({"round": number, "cell": cell, "kind": name, **got}), file=f)
        report(results, kinds)
    finally:
        for server in servers.values():
            server.close()
        shutil.rmtree(folder)
    return 0


sys.exit(main())
