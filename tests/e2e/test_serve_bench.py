# SPDX-License-Identifier: Apache-2.0
"""Two processes, both reactors, every byte compared; and a check that sees damage."""
import pytest

import harness
import relay as relays

KEYS = {"op", "transport", "reactor", "block", "batch", "threads", "seconds", "ops", "bytes", "errors", "gb_per_s",
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


def test_bench_brings_its_own_target(ferry):
    got = harness.bench(ferry, "--op", "read", "--block", 65536, "--duration", 0.3, "--check")
    assert len(got) == 1 and got[0]["errors"] == 0
    check_record(got[0])


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
