# SPDX-License-Identifier: Apache-2.0
"""Two processes, both reactors, every byte compared; and a check that sees damage."""
import os
import signal
import time

import pytest

import harness
import relay as relays

KEYS = {"op", "transport", "reactor", "block", "pieces", "batch", "threads", "seconds", "ops", "bytes", "errors", "gb_per_s",
        "ops_per_s", "latency_us", "cpu_s_per_gb", "cpu_threads", "placement", "peak_rss_bytes", "verified_bytes",
        "lanes"}


def check_record(record):
    """The keys are there and the sums add up."""
    assert not KEYS - set(record), KEYS - set(record)
    assert record["bytes"] == record["ops"] * record["block"]
    assert record["gb_per_s"] == pytest.approx(record["bytes"] / 1e9 / record["seconds"], rel=0.02)
    assert record["ops_per_s"] == pytest.approx(record["ops"] / record["seconds"], rel=0.02)
    latency = record["latency_us"]
    assert {"mean", "p50", "p90", "p99", "p999", "max"} <= set(latency)
    assert latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"] <= latency["max"] * 1.01
    assert {"initiator", "target"} <= set(record["cpu_s_per_gb"])
    assert {"initiator", "target"} <= set(record["peak_rss_bytes"])
    assert sum(lane["bytes"] for lane in record["lanes"]) >= record["bytes"]


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("op", ["read", "write", "mix"])
@pytest.mark.seconds(180)
def test_every_byte_arrives(ferry, serve, reactor, op):
    setting = ["--set", "reactor=" + reactor]
    server = serve(*setting, memory=("256MiB",))
    blocks = "4096..67108864"
    got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", op, "--check",
                        "--block", blocks, "--duration", 1 if harness.LONG else 0.2, *setting, seconds=150)
    assert [record["block"] for record in got] == [4096 << i for i in range(15)]
    for record in got:
        check_record(record)
        assert record["errors"] == 0 and record["transport"] == "hp_tcp" and record["reactor"] == reactor
        assert record["verified_bytes"] >= record["bytes"] > 0
    assert server.stop() == 0, server.stderr()


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("op", ["read", "write", "mix"])
def test_every_byte_of_every_piece_arrives(ferry, serve, reactor, op):
    """KV-cache blocks: pieces of 64 bytes to 1 MiB, scattered on both sides; gaps are compared too."""
    setting = ["--set", "reactor=" + reactor]
    server = serve(*setting, memory=("64MiB",))
    for pieces, blocks, batch in ((1024, "64KiB..16MiB", 2), (1000, "1000000..2000000", 3), (7, "7..28672", 16),
                                  (16384, "4MiB", 1)):
        got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", op, "--check",
                            "--scatter", pieces, "--block", blocks, "--batch", batch,
                            "--duration", 0.5 if harness.LONG else 0.05, "--warmup", 0.05, *setting, seconds=60)
        for record in got:
            check_record(record)
            assert record["errors"] == 0 and record["pieces"] == pieces
            assert record["verified_bytes"] >= record["bytes"] > 0
    assert server.stop() == 0, server.stderr()


def test_pieces_that_do_not_divide_a_block_are_refused(ferry):
    status, out, err = harness.run([ferry, "bench", "--scatter", "7", "--block", "64"], 10)
    assert status == harness.USAGE and out == "" and "divides the block" in err
    status, out, err = harness.run([ferry, "bench", "--scatter", "16385", "--block", "16385"], 10)
    assert status == harness.USAGE and "16384" in err
    status, out, err = harness.run([ferry, "bench", "--scatter", "2", "--op", "write_seed"], 10)
    assert status == harness.USAGE and "read, write or mix" in err


def test_bench_brings_its_own_target(ferry):
    got = harness.bench(ferry, "--op", "read", "--block", 65536, "--duration", 0.3, "--check")
    assert len(got) == 1 and got[0]["errors"] == 0
    check_record(got[0])


@pytest.mark.parametrize("name", ["loop", "fault", "nonsense"])
def test_transports_that_reach_no_other_process_are_refused_at_once(ferry, name):
    status, out, err = harness.run([ferry, "bench", "--transport", name], 10)
    assert status == harness.USAGE and out == ""
    listed = err.splitlines()[0].rsplit(":", 1)[1]
    assert name in err and "hp_tcp" in listed and "loop" not in listed and "fault" not in listed, err


def own_target(process):
    """The pid of the target process that a benchmark has started."""
    def children():
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid), encoding="ascii") as f:
            return f.read().split()
    return int(harness.wait_until(children, 20, "the benchmark has started its target")[0])


def comm(pid):
    with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
        return f.read().strip()


def measuring(process):
    """True once the threads of load run; the window begins within milliseconds then."""
    for task in os.listdir("/proc/%d/task" % process.pid):
        try:
            with open("/proc/%d/task/%s/comm" % (process.pid, task), encoding="utf-8") as f:
                if f.read().startswith("bench-"):
                    return True
        except FileNotFoundError:
            continue
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_benchmark_with_the_row_so_far(ferry, start, number):
    process = start([ferry, "bench", "--json", "--op", "read", "--block", "4096..65536", "--warmup", "0",
                     "--duration", "3600"])
    target = own_target(process)
    harness.wait_until(lambda: comm(target) == "ferry", 20, "the target is called ferry")
    harness.wait_until(lambda: measuring(process), 20, "it measures")
    time.sleep(0.3)  # some of the window has to pass; how much does not matter
    process.signal(number)
    status, out, err = process.finish(30)
    assert status == 128 + number, (status, err)
    record, = harness.records(out)
    check_record(record)
    assert record["partial"] is True and record["errors"] == 0 and 0 < record["seconds"] < 3600
    assert not os.path.exists("/proc/%d" % target)


def test_the_death_of_the_target_is_said_before_what_comes_of_it(ferry, start):
    process = start([ferry, "bench", "--op", "read", "--block", "65536", "--duration", "3600"])
    target = own_target(process)
    harness.wait_until(lambda: measuring(process), 20, "it measures")
    os.kill(target, signal.SIGKILL)
    status, _, err = process.finish(30)
    assert status == harness.DATA, err
    lines = [line for line in err.splitlines() if line.startswith("ferry: ")]
    assert "ended by signal 9" in lines[0], err
    assert "errors" in lines[-1], err


def test_batches_and_threads(ferry, serve):
    server = serve(memory=("64MiB",))
    got = harness.bench(ferry, "--target", server.name, "--op", "mix", "--block", 4096, "--batch", "1..64",
                        "--threads", "1..4", "--duration", 0.1, "--check", seconds=60)
    assert {(r["batch"], r["threads"]) for r in got} == {(1 << b, 1 << t) for b in range(7) for t in range(3)}
    for record in got:
        check_record(record)
        assert record["errors"] == 0 and record["verified_bytes"] > 0


def test_two_targets_at_once(ferry, serve):
    one, two = serve(memory=("16MiB",)), serve(memory=("16MiB",))
    got = harness.bench(ferry, "--target", one.name + "," + two.name, "--op", "mix", "--block", 65536, "--threads", 2,
                        "--duration", 0.3, "--check")
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0


def test_a_separate_process_can_verify(ferry, serve):
    """write_seed and read_verify agree on the data without talking to each other."""
    server = serve(memory=("16MiB",))
    common = ["--target", server.name, "--block", 1 << 20, "--duration", 0.3]
    assert harness.bench(ferry, *common, "--op", "write_seed")[0]["errors"] == 0
    got = harness.bench(ferry, *common, "--op", "read_verify")
    assert got[0]["errors"] == 0 and got[0]["verified_bytes"] > 0


@pytest.mark.parametrize("op", ["read", "mix"])
def test_flipped_bytes_are_reported_with_their_offset(ferry, serve, relay, op):
    server = serve(memory=("16MiB",))
    peer = relay(server, relays.Forward, relays.FlipPayload)
    status, out, err = harness.run([ferry, "bench", "--json", "--target", peer.name, "--op", op, "--check",
                                    "--block", 1 << 20, "--duration", 1], 30)
    assert status == harness.DATA, (status, err)
    assert any(f.flipped for f in peer.filters if isinstance(f, relays.FlipPayload))
    assert "offset" in err, err
    assert all(record["errors"] > 0 for record in harness.records(out))


@pytest.mark.parametrize("piece", [512, 4096])
def test_swapped_pieces_are_reported(ferry, serve, relay, piece):
    server = serve(memory=("16MiB",))
    peer = relay(server, relays.Forward, lambda: relays.SwapPieces(piece))
    status, _, err = harness.run([ferry, "bench", "--json", "--target", peer.name, "--op", "read", "--check",
                                  "--block", 1 << 20, "--duration", 1], 30)
    assert any(f.swapped for f in peer.filters if isinstance(f, relays.SwapPieces))
    assert status == harness.DATA, (status, err)
    assert "offset" in err, err


def test_damage_on_the_way_to_the_target_is_seen_too(ferry, serve, relay):
    server = serve(memory=("16MiB",))
    peer = relay(server, relays.FlipPayload, relays.Forward)
    status, _, err = harness.run([ferry, "bench", "--json", "--target", peer.name, "--op", "write", "--check",
                                  "--block", 1 << 20, "--duration", 1], 30)
    assert status == harness.DATA, (status, err)
    assert "offset" in err, err


def test_a_plain_relay_changes_nothing(ferry, serve, relay):
    """The relay itself is no reason for errors: without damage all is well through it."""
    server = serve(memory=("16MiB",))
    peer = relay(server, relays.Record)
    got = harness.bench(ferry, "--target", peer.name, "--op", "mix", "--block", "4096..1048576", "--batch", 4,
                        "--duration", 0.2, "--check", seconds=60)
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)
    assert peer.relay.connections() >= 1
    assert sum(f.payload_bytes for f in peer.filters) > 0
