# SPDX-License-Identifier: Apache-2.0
"""Checksums between two ferry processes with a relay that damages what passes: a damaged chunk fails its
request, with its own error, and nothing else; whichever side asked, in both directions, scattered or not."""
import pytest

import harness
import relay as relays
import v1

MIB = 1 << 20
ON = ("--set", "transports.hp_tcp.checksum=true")


def drive(ferry, name, *options):
    return harness.run([ferry, "bench", "--json", "--target", name, "--transport", "hp_tcp", "--check",
                        "--duration", 0.5, *options], 60)


def damaging(relay, server, op, **how):
    """A relay that flips bits of the payload, in the direction that it takes."""
    def flip():
        return relays.FlipPayload(**how)
    return relay(server, *((relays.Forward, flip) if op == "read" else (flip, relays.Forward)))


def flipped(peer):
    return sum(f.flipped for f in peer.filters if isinstance(f, relays.FlipPayload))


@pytest.mark.parametrize("reactor", ["uring", "epoll"])
@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize("asks", ["initiator", "target"])
@pytest.mark.parametrize("shape", [("--block", 4096), ("--block", 3 * MIB), ("--block", 512000, "--scatter", 50)])
def test_damage_is_an_error_of_its_own(ferry, serve, relay, reactor, op, asks, shape):
    server = serve("--set", "reactor=" + reactor, *(ON if asks == "target" else ()), memory=("16MiB",))
    peer = damaging(relay, server, op, one_in=1000)
    status, out, err = drive(ferry, peer.name, "--op", op, "--set", "reactor=" + reactor, *shape,
                             *(ON if asks == "initiator" else ()))
    assert flipped(peer) > 0
    assert status == harness.DATA, (status, err)
    assert "arrived damaged" in err, err
    assert "offset" not in err, "damage was found by the benchmark, not by the checksum: " + err
    assert harness.records(out)[0]["errors"] > 0
    assert server.alive()


@pytest.mark.parametrize("op", ["read", "write"])
def test_the_other_requests_are_not_touched(ferry, serve, relay, op):
    """Seldom damage, and many requests on the same connections: only those that it met fail, and no connection."""
    server = serve(memory=("16MiB",))
    peer = damaging(relay, server, op, one_in=2 * MIB, seed=3)
    _, out, err = drive(ferry, peer.name, "--op", op, "--block", 65536, "--batch", 16, *ON)
    record = harness.records(out)[0]
    assert "offset" not in err, err
    assert 0 < record["errors"] <= flipped(peer), record
    assert peer.relay.connections() <= 4


@pytest.mark.parametrize("op", ["read", "write", "mix"])
def test_undamaged_data_passes(ferry, serve, op):
    server = serve(memory=("64MiB",))
    got = harness.bench(ferry, "--target", server.name, "--transport", "hp_tcp", "--op", op, "--check",
                        "--block", "1..16777216" if op == "mix" else 262144, "--batch", 2, "--duration", 0.05, *ON,
                        seconds=60)
    assert all(r["errors"] == 0 and r["verified_bytes"] > 0 for r in got)


def test_a_v1_server_is_served_without_and_that_is_said(ferry):
    with v1.Server([v1.Buffer(0x10000000, 16 * MIB, 77)]) as server:
        status, out, err = drive(ferry, server.name, "--op", "mix", "--block", 65536, *ON)
        assert status == 0, err
        assert harness.records(out)[0]["errors"] == 0
        assert err.count("speaks v1") == 1 and server.name in err, err
