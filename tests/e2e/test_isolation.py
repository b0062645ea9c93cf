# SPDX-License-Identifier: Apache-2.0
"""Peers that share one worker: what one floods, or does not take, is no other's trouble.

Every engine here has one worker. Nothing is timed: a peer that is starved or held back does not move on
at all, or by far less than its neighbour, and counts tell that.
"""
import json
import signal

import pytest

import harness

ONE_WORKER = ("--set", "transports.hp_tcp.worker_count=1")
# Nobody's patience ends while a neighbour is looked at.
PATIENT = ("--set", "transports.hp_tcp.progress_timeout_ms=60000")
REACTORS = ["uring", "epoll"]
BOTH = [(op, reactor) for op in ("read", "write") for reactor in REACTORS]
MIB = 1 << 20


def hp_tcp(server):
    report = json.loads(harness.http_get(server.name, "/v1/transports"))
    return [one for one in report["transports"] if one["name"] == "hp_tcp"][0]


def served(server):
    """Bytes that its one worker has served."""
    workers = hp_tcp(server)["workers"]
    assert len(workers) == 1, workers
    return workers[0]["served_bytes"]


def drive(ferry, server, *arguments):
    names = server.name if hasattr(server, "name") else ",".join(one.name for one in server)
    return [ferry, "bench", "--json", "--target", names, "--warmup", 0, *ONE_WORKER, *PATIENT, *arguments]


def result(process, seconds=60):
    status, out, err = process.finish(seconds)
    assert status == 0, err
    return harness.records(out)[0]


@pytest.mark.parametrize("op,reactor", BOTH if harness.LONG else BOTH[1:3])
def test_a_flood_starves_nobody(ferry, serve, start, op, reactor):
    """64 requests outstanding on four lanes beside one at a time on one lane, of the same size."""
    server = serve("--set", "reactor=" + reactor, *ONE_WORKER, *PATIENT)
    flood = start(drive(ferry, server, "--op", op, "--block", MIB, "--batch", 16, "--threads", 4,
                        "--buffer", "64MiB", "--duration", 60))
    harness.wait_until(lambda: served(server) > 64 * MIB, 20, "the flood flows")
    before = served(server)
    meek = result(start(drive(ferry, server, "--op", op, "--block", MIB, "--buffer", "1MiB", "--duration", 0.4, "--set",
                              "transports.hp_tcp.connections_per_peer=1")))
    everything = served(server) - before
    assert flood.alive(), flood.stderr()
    flood.kill()
    assert meek["errors"] == 0 and meek["bytes"] > 0, meek
    print(reactor, op, "the meek moved", meek["bytes"], "of", everything)
    # A lane's turn is 4 MiB at most, and the meek one has 1 MiB to take in its own: in turns it has a part of
    # seventeen. Who starved would have next to nothing; and the flood flowed meanwhile.
    assert meek["bytes"] * 200 > everything
    assert (everything - meek["bytes"]) * 200 > everything


@pytest.mark.parametrize("op,reactor", BOTH)
def test_a_peer_that_stands_still_holds_nobody_up(ferry, serve, start, op, reactor):
    """An initiator is stopped in the middle of large requests; its neighbour on the worker sees nothing of it."""
    # More is outstanding on its one lane than sockets hold, so the server is in the middle of it too.
    window = ("--set", "transports.hp_tcp.window_bytes=64MiB")
    server = serve("--set", "reactor=" + reactor, *ONE_WORKER, *PATIENT, *window)
    stalled = start(drive(ferry, server, "--op", op, "--block", "16MiB", "--batch", 4, "--buffer", "64MiB",
                          "--duration", 60, "--set", "transports.hp_tcp.connections_per_peer=1", *window))
    harness.wait_until(lambda: served(server) > 64 * MIB, 20, "the other one works")
    stalled.pause()
    sessions = hp_tcp(server)["sessions"]
    assert sessions > 0
    for its in ("read", "write"):
        good = result(start(drive(ferry, server, "--op", its, "--block", 65536, "--buffer", "1MiB", "--duration", 0.2)),
                      20)
        assert good["errors"] == 0 and good["ops"] > 20, good
    # It was there all the while, and goes on where it stood.
    assert hp_tcp(server)["sessions"] >= sessions
    before = served(server)
    stalled.signal(signal.SIGCONT)
    harness.wait_until(lambda: served(server) > before + 64 * MIB, 20, "the stopped one goes on")
    assert stalled.alive(), stalled.stderr()
    stalled.kill()


@pytest.mark.parametrize("reactor", REACTORS)
def test_a_target_that_stands_still_holds_no_other_up(ferry, serve, start, reactor):
    """One initiator, one worker, two targets of which one is stopped: requests to the other go on and on."""
    fast, slow = serve(*PATIENT), serve(*PATIENT)
    client = start(drive(ferry, [fast, slow], "--set", "reactor=" + reactor, "--op", "mix", "--block", MIB,
                         "--batch", 4, "--threads", 2, "--buffer", "16MiB", "--duration", 60))

    def total(server):
        return sum(worker["served_bytes"] for worker in hp_tcp(server)["workers"])
    for server in (fast, slow):
        harness.wait_until(lambda one=server: total(one) > 8 * MIB, 20, "both are driven")
    slow.pause()
    before = total(fast)
    harness.wait_until(lambda: total(fast) > before + 256 * MIB, 30, "the other one is driven on")
    assert client.alive(), client.stderr()
    slow.signal(signal.SIGCONT)
    after = total(slow)
    harness.wait_until(lambda: total(slow) > after + 8 * MIB, 30, "the stopped one is driven again")
    client.kill()
